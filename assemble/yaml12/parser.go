package yaml12

import (
	"bytes"
	"strings"
)

// A parser walks the source once, from left to right, and never goes back.
type parser struct {
	src []byte
	pos int

	// The line under pos. indent is its indentation; the indicators "-", "?"
	// and ":" that begin a line, and the spaces after them, count as such
	// ("- - a" puts a at 4). fresh says that nothing else has been seen yet.
	indent int
	fresh  bool
	sol    bool // pos is the very start of the line

	gap gap // what lies between the last token and pos

	depth    int               // nodes around pos
	level    int               // flow collections around pos
	jsonKey  bool              // in a flow collection: a ":" here needs no space after it
	anchors  map[string]*Node  // the latest of each name
	handles  map[string]string // prefixes of tag handles
	work     int               // steps spent on weighing anchors
	warnings []string
	lines    []int // offsets of line starts, made on demand
}

// A gap is the white space and the comments between two tokens.
type gap struct {
	space     bool // any white space, or the start of a line: a comment may start
	newline   bool
	tab       bool // the white space directly before pos holds a tab, where
	tabIndent int  // the indentation was this much before it
}

// where says which indicator a block node follows; it decides what may stand
// on the indicator's own line.
type where uint8

const (
	atDocument where = iota // the start of a document without "---"
	afterMarker
	afterItem     // "-"
	afterKeyMark  // "?"
	afterValue    // ":" after an implicit key
	afterOwnValue // ":" after an explicit key
)

// props are the properties of a node: its anchor and its tag.
type props struct {
	anchor, tag       string // the anchor without its &, the tag with its !
	tagAt, start      int    // offsets of the tag and of the first property
	hasAnchor, hasTag bool
}

func (q *props) any() bool { return q.hasAnchor || q.hasTag }

// peek is the byte at pos, 0 beyond the end (and for NUL, which no caller looks
// for).
func (p *parser) peek() byte {
	if p.pos < len(p.src) {
		return p.src[p.pos]
	}
	return 0
}

func (p *parser) eof() bool { return p.pos >= len(p.src) }

// blankAt reports whether the byte at i separates tokens. The end does, and so
// does a lone carriage return, though it ends no line.
func (p *parser) blankAt(i int) bool {
	if i >= len(p.src) {
		return true
	}
	switch p.src[i] {
	case ' ', '\t', '\n', '\r':
		return true
	}
	return false
}

// breakAt is the length of the line break at i: LF or CRLF, else 0.
func (p *parser) breakAt(i int) int {
	switch {
	case i < len(p.src) && p.src[i] == '\n':
		return 1
	case i+1 < len(p.src) && p.src[i] == '\r' && p.src[i+1] == '\n':
		return 2
	}
	return 0
}

// markerAt reports whether the line that starts at i is "---" or "...".
func (p *parser) markerAt(i int) bool {
	if i+3 > len(p.src) || !p.blankAt(i+3) {
		return false
	}
	s := string(p.src[i : i+3])
	return s == "---" || s == "..."
}

// indicator reports whether pos is at the block indicator c.
func (p *parser) indicator(c byte) bool { return p.peek() == c && p.blankAt(p.pos+1) }

// ended reports whether the document has no more content.
func (p *parser) ended() bool { return p.eof() || p.sol && p.markerAt(p.pos) }

// take consumes n bytes of a token on the current line.
func (p *parser) take(n int) {
	p.pos += n
	p.sol, p.fresh, p.gap = false, false, gap{}
}

// takeIndicator consumes a block indicator.
func (p *parser) takeIndicator() {
	fresh := p.fresh
	p.take(1)
	if fresh {
		p.fresh = true
		p.indent++
	}
}

func (p *parser) startLine() {
	p.sol, p.fresh, p.indent = true, true, 0
	p.gap = gap{space: true, newline: true}
}

// skip moves to the next token over white space, comments and line breaks. It
// adds to gap, so calling it again is harmless. It stops at document markers.
func (p *parser) skip() {
	for !p.ended() {
		c := p.src[p.pos]
		switch {
		case p.sol && c == ' ':
			for p.peek() == ' ' {
				p.pos++
				p.indent++
			}
			p.sol = false
			p.gap.space = true
		case c == ' ' || c == '\t':
			start, tab := p.pos, false
			for p.peek() == ' ' || p.peek() == '\t' {
				tab = tab || p.peek() == '\t'
				p.pos++
			}
			p.gap.space, p.gap.tab, p.gap.tabIndent = true, tab, p.indent
			if p.fresh && c == ' ' {
				p.indent += p.pos - start
			}
			p.sol = false
		case c == '#':
			if !p.gap.space && !p.sol {
				p.fail("a comment must be set off by white space")
			}
			if n := bytes.IndexByte(p.src[p.pos:], '\n'); n >= 0 {
				p.pos += n
			} else {
				p.pos = len(p.src)
			}
			p.sol, p.fresh, p.gap.tab = false, false, false
		default:
			n := p.breakAt(p.pos)
			if n == 0 {
				return
			}
			p.pos += n
			p.startLine()
		}
	}
}

// document reads the whole source.
func (p *parser) document() *Node {
	at := atDocument
	directives := p.prelude()
	if p.sol && p.markerAt(p.pos) && p.peek() == '-' {
		p.take(3)
		at = afterMarker
	} else if directives {
		p.fail("a directive must be followed by --- before the document")
	}
	root := p.block(-1, at)
	p.skip()
	if !p.eof() {
		if !p.ended() {
			p.fail("unexpected content after the end of the document")
		}
		if p.peek() == '-' {
			p.fail("more than one document")
		}
		p.take(3)
		p.lineEnd("the document end marker")
		p.prelude()
		if !p.eof() {
			p.fail("more than one document")
		}
	}
	root = p.resolve(root)
	if root.Kind == Scalar && root.Value == nil {
		return nil
	}
	return root
}

// prelude reads directives, comments and blank lines outside a document, each
// line with a byte order mark if it must, and reports whether there was a
// directive.
func (p *parser) prelude() (directives bool) {
	p.startLine()
	for !p.eof() {
		start := p.pos
		if bytes.HasPrefix(p.src[p.pos:], []byte("\uFEFF")) {
			p.pos += len("\uFEFF")
		}
		content := p.pos
		end := len(p.src)
		next := end
		if n := bytes.IndexByte(p.src[p.pos:], '\n'); n >= 0 {
			end = p.pos + n
			next = end + 1
			if end > p.pos && p.src[end-1] == '\r' {
				end--
			}
		}
		line := p.src[content:end]
		if len(line) > 0 && line[0] == '%' {
			p.directive(string(line), content)
			directives = true
		} else if t := bytes.TrimLeft(line, " \t"); len(t) > 0 && t[0] != '#' {
			if content == start {
				p.pos = start
			}
			break
		}
		p.pos = next
	}
	return directives
}

func (p *parser) directive(line string, at int) {
	if i := strings.Index(line, " #"); i >= 0 {
		line = line[:i]
	}
	if i := strings.Index(line, "\t#"); i >= 0 {
		line = line[:i]
	}
	parts := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
	switch parts[0] {
	case "%YAML":
		if len(parts) != 2 {
			p.failAt(at, "a %%YAML directive takes one version")
		}
		major, minor, dotted := strings.Cut(parts[1], ".")
		switch {
		case parts[1] == "1.2":
		case parts[1] == "1.1":
			p.failAt(at, "YAML 1.1 is not supported")
		case dotted && digits(major) && digits(minor):
			p.warn(at, "YAML %s is read as 1.2", parts[1])
		default:
			p.failAt(at, "unknown YAML version %q", parts[1])
		}
	case "%TAG":
		if len(parts) != 3 {
			p.failAt(at, "a %%TAG directive takes a handle and a prefix")
		}
		p.handles[parts[1]] = parts[2]
	default:
		p.warn(at, "unknown directive %q", parts[0])
	}
}

// block reads the node that follows an indicator inside a collection indented
// by parent (-1 for the document). It stops at the end of the document or on a
// line that is not the node's.
func (p *parser) block(parent int, at where) *Node {
	p.enter()
	defer p.leave()

	// Properties on earlier lines belong to the node; those on the line of its
	// first key belong to that key, if there turns out to be one.
	var outer, inner props
	moved := false // a line was begun since the indicator
	lead := at == atDocument || at == afterItem || at == afterKeyMark
	tab := false     // a tab stands before the node or its inner properties
	leadTab := false // a tab stands before properties where indentation ends
	for {
		p.skip()
		if p.gap.newline {
			moved, lead = true, true
			p.merge(&outer, inner)
			inner = props{}
		}
		if p.ended() || moved && p.indent <= parent && !p.flushList(parent, at) {
			if leadTab {
				p.failTab()
			}
			p.merge(&outer, inner)
			return p.finish(p.node(outer), raw{}, outer)
		}
		if !inner.any() {
			tab = p.gap.tab
		}
		if c := p.peek(); c != '&' && c != '!' {
			break
		}
		leadTab = leadTab || p.gap.tab && lead
		p.property(&inner)
		lead = false
	}

	// A block collection cannot begin on the line of an implicit key or of "---".
	inline := !moved && (at == afterValue || at == afterMarker)
	switch {
	case p.indicator('-'), p.indicator('?'):
		if !p.fresh || inline {
			p.fail("a list or a mapping that begins with %q must start on a line of its own", string(p.peek()))
		}
		if tab || leadTab {
			p.failTab()
		}
		n := p.node(outer)
		if p.peek() == '-' {
			p.sequence(n)
		} else {
			p.mapping(n, nil)
		}
		return p.finish(n, raw{}, outer)

	case p.indicator(':') && at == afterKeyMark && moved: // the key was left empty
		p.merge(&outer, inner)
		return p.finish(p.node(outer), raw{}, outer)

	case p.indicator(':'):
		p.checkFirstKey(inline, tab || leadTab)
		whole := p.node(outer)
		p.mapping(whole, p.finish(p.node(inner), raw{}, inner))
		return p.finish(whole, raw{}, outer)

	case p.peek() == '|' || p.peek() == '>':
		p.checkTab(parent, at, lead, leadTab)
		p.merge(&outer, inner)
		n := p.node(outer)
		return p.finish(n, p.blockScalar(parent), outer)
	}

	p.checkTab(parent, at, lead, leadTab)
	start := p.pos
	if inner.any() {
		start = inner.start
	}
	whole, content := p.node(outer), p.node(inner)
	r := p.flowNode(content, parent+1)
	p.keySpace()
	if p.indicator(':') {
		p.checkFirstKey(inline, tab || leadTab)
		p.checkKey(start)
		p.mapping(whole, p.finish(content, r, inner))
		return p.finish(whole, raw{}, outer)
	}
	p.skip()
	if !p.gap.newline && !p.eof() {
		p.fail("unexpected content after a value")
	}
	if !outer.any() {
		return p.finish(content, r, inner)
	}
	anchored := outer.hasAnchor
	p.merge(&outer, inner)
	content = p.finish(content, r, outer)
	if !anchored {
		return content
	}
	content.uses, content.weight = whole.uses, whole.weight
	*whole = *content // whole is what aliases will name
	return whole
}

// flushList reports whether pos is at a list that stands as far left as the
// mapping it is a value of, which YAML allows.
func (p *parser) flushList(parent int, at where) bool {
	return p.indent == parent && p.indicator('-') && (at == afterKeyMark || at == afterValue || at == afterOwnValue)
}

// sequence reads the block list at pos into n.
func (p *parser) sequence(n *Node) {
	n.Kind = Sequence
	for indent := p.indent; ; {
		p.takeIndicator()
		n.Items = append(n.Items, p.block(indent, afterItem))
		if !p.more(indent) || !p.indicator('-') {
			return
		}
		if p.gap.tab {
			p.failTab()
		}
	}
}

// mapping reads a block mapping into n. key is its first key when that has been
// read already, up to the ":".
func (p *parser) mapping(n *Node, key *Node) {
	n.Kind = Mapping
	explicit := false
	seen := keys{}
	for indent := p.indent; ; key = nil {
		if key == nil {
			key, explicit = p.key(indent)
		}
		p.unique(seen, key)
		value := p.node(props{})
		switch {
		case !explicit:
			p.takeIndicator()
			value = p.block(indent, afterValue)
		case !p.ended() && p.indent >= indent && p.indicator(':'):
			if p.gap.tab {
				p.failTab()
			}
			column := p.indent
			p.takeIndicator()
			value = p.block(column, afterOwnValue)
		}
		n.Pairs = append(n.Pairs, Pair{key, value})
		if !p.more(indent) {
			return
		}
	}
}

// more reports whether the next line may hold an entry of a collection with
// this indentation.
func (p *parser) more(indent int) bool {
	p.skip()
	if p.ended() || p.indent < indent {
		return false
	}
	if p.indent > indent {
		p.fail("indented further than the entries it stands between")
	}
	return true
}

// key reads a key of a block mapping: an explicit one whole, any other up to
// its ":".
func (p *parser) key(indent int) (key *Node, explicit bool) {
	if p.gap.tab {
		p.failTab()
	}
	if p.indicator('?') {
		p.takeIndicator()
		key = p.block(indent, afterKeyMark)
		p.skip()
		return key, true
	}
	start := p.pos
	var q props
	for c := p.peek(); c == '&' || c == '!'; c = p.peek() {
		p.property(&q)
		p.skip()
		if p.gap.newline || p.eof() {
			p.failAt(start, "an anchor or a tag without a key after it")
		}
	}
	key = p.node(q)
	var r raw
	switch {
	case p.indicator(':'):
	case p.indicator('-'):
		p.fail("a list item where a key is expected")
	case p.indicator('?'):
		p.fail("an anchor or a tag must follow the %q", "?")
	default:
		r = p.flowNode(key, indent+1)
		p.keySpace()
		if !p.indicator(':') {
			p.failAt(start, "a key without a %q after it", ":")
		}
	}
	p.checkKey(start)
	return p.finish(key, r, q), false
}

// keySpace passes over the white space between a key and its ":".
func (p *parser) keySpace() {
	for p.peek() == ' ' || p.peek() == '\t' {
		p.pos++
		p.gap.space = true
	}
}

// checkKey checks the implicit key that began at start and ends at pos.
func (p *parser) checkKey(start int) {
	key := p.src[start:p.pos]
	if bytes.IndexByte(key, '\n') >= 0 {
		p.failAt(start, "a key must stand on one line")
	}
	if units(key) > 1024 {
		p.failAt(start, "a key of more than 1024 characters")
	}
}

func (p *parser) checkFirstKey(inline, tab bool) {
	if inline {
		p.fail("a mapping cannot begin on the line of its own key or of ---")
	}
	if tab {
		p.failTab()
	}
}

// checkTab refuses a tab that stands where the indentation of a value ends,
// unless spaces alone indent the value enough. Before a flow collection that is
// the whole document, tabs are mere white space.
func (p *parser) checkTab(parent int, at where, lead, leadTab bool) {
	root := at == atDocument || at == afterMarker
	if c := p.peek(); root && (c == '{' || c == '[') {
		return
	}
	if leadTab || p.gap.tab && lead && p.gap.tabIndent <= max(parent, 0) {
		p.failTab()
	}
}

func (p *parser) failTab() { p.fail("a tab used as indentation") }

func (p *parser) enter() {
	if p.depth++; p.depth > MaxDepth {
		p.fail("collections nested more than %d deep", MaxDepth)
	}
}

func (p *parser) leave() { p.depth-- }

// node makes an empty node at pos and gives it its anchor.
func (p *parser) node(q props) *Node {
	n := &Node{}
	n.Line, n.Column = p.position(p.pos)
	if q.hasAnchor {
		n.uses, n.weight = 1, -1
		p.anchors[q.anchor] = n
	}
	return n
}

// merge adds the properties of a later line to those of earlier ones.
func (p *parser) merge(q *props, later props) {
	if q.hasAnchor && later.hasAnchor {
		p.failAt(later.start, "a node with two anchors")
	}
	if q.hasTag && later.hasTag {
		p.failAt(later.start, "a node with two tags")
	}
	if later.hasAnchor {
		q.hasAnchor, q.anchor = true, later.anchor
	}
	if later.hasTag {
		q.hasTag, q.tag, q.tagAt = true, later.tag, later.tagAt
	}
}

// property reads the anchor or the tag at pos.
func (p *parser) property(q *props) {
	start, end := p.pos, p.pos+1
	var one props
	if p.src[start] == '&' {
		end = p.nameEnd(end)
		one.hasAnchor, one.anchor = true, string(p.src[start+1:end])
		switch {
		case one.anchor == "":
			p.fail("an anchor without a name")
		case strings.HasSuffix(one.anchor, ":"):
			p.warn(start, "an anchor that ends in a colon")
		}
	} else {
		end = p.tagEnd(end)
		one.hasTag, one.tag, one.tagAt = true, string(p.src[start:end]), start
	}
	one.start = start
	if !q.any() {
		q.start = start
	}
	p.merge(q, one)
	p.take(end - start)
	switch c := p.peek(); {
	case p.eof(), c == ' ', c == '\t', c == ',', c == ']', c == '}', p.breakAt(p.pos) > 0:
	default:
		p.fail("an anchor or a tag must be set off by white space")
	}
}

// nameEnd is the end of the anchor name that starts at i.
func (p *parser) nameEnd(i int) int {
	for i < len(p.src) && strings.IndexByte(" ,[]{}\n\r\t", p.src[i]) < 0 {
		i++
	}
	return i
}

// tagEnd is the end of the tag whose text after the first "!" starts at i.
func (p *parser) tagEnd(i int) int {
	if i < len(p.src) && p.src[i] == '<' {
		for !p.blankAt(i) {
			if p.src[i] == '>' {
				return i + 1
			}
			i++
		}
		return i
	}
	for i < len(p.src) {
		c := p.src[i]
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', strings.IndexByte("-#;/?:@&=+$_.!~*'()", c) >= 0:
			i++
		case c == '%' && i+2 < len(p.src) && isHex(p.src[i+1]) && isHex(p.src[i+2]):
			i += 3
		default:
			return i
		}
	}
	return i
}
