package yaml12

import (
	"bytes"
	"unicode/utf8"
)

// raw is what flowNode and blockScalar read of a scalar: its text, and whether
// the core schema may read something else into it.
type raw struct {
	text   string
	quoted bool // or a block scalar: text, whatever it looks like
}

// flowNode reads what may stand on one line with other content: an alias, a
// quoted or plain scalar, a flow collection. The latter is read into n. Further
// lines must be indented by need.
func (p *parser) flowNode(n *Node, need int) raw {
	switch c := p.peek(); c {
	case '"':
		return raw{p.doubleQuoted(need), true}
	case '\'':
		return raw{p.singleQuoted(need), true}
	case '[', '{':
		p.flow(n, need)
		return raw{}
	case '*':
		p.alias(n)
		return raw{}
	case ']', '}', ',', '|', '>', '@', '`', '%':
		p.fail("a value cannot begin with %q unless it is quoted", string(c))
	}
	return raw{text: p.plain(need)}
}

func (p *parser) alias(n *Node) {
	end := p.nameEnd(p.pos + 1)
	name := string(p.src[p.pos+1 : end])
	if len(name) > 0 && name[len(name)-1] == ':' {
		p.warn(p.pos, "an alias that ends in a colon")
	}
	target := p.anchors[name]
	if target == nil {
		p.fail("alias %q names no anchor before it", name)
	}
	n.Kind, n.target = alias, target
	p.take(end - p.pos)
}

// continues reports whether a scalar goes on, after a line break, with the line
// at i; and where to go on reading: at the line's content or its own break.
func (p *parser) continues(i, need int) (int, bool) {
	if need == 0 {
		return i, !p.markerAt(i)
	}
	start := i
	for i < len(p.src) && p.src[i] == ' ' {
		i++
	}
	return i, i-start >= need || p.breakAt(i) > 0
}

// plain reads a plain scalar.
func (p *parser) plain(need int) string {
	inFlow := p.level > 0
	ends := func(i int) bool { // at white space before i, or at i itself in a flow collection
		return i < len(p.src) && inFlow && isFlowIndicator(p.src[i])
	}
	start, end := p.pos, p.pos
	i := start
scan:
	for i < len(p.src) {
		c := p.src[i]
		if c == ':' {
			if p.blankAt(i+1) || ends(i+1) {
				break
			}
			i++
			end = i
			continue
		}
		if !p.blankAt(i) {
			if ends(i) {
				break
			}
			i++
			end = i
			continue
		}
		brk := p.breakAt(i)
		next := i + max(brk, 1)
		if c == '\r' && brk == 0 { // a lone carriage return is content
			end = next
		}
		if next < len(p.src) && p.src[next] == '#' || ends(next) {
			break
		}
		i = next
		if brk > 0 {
			at, ok := p.continues(i, need)
			if !ok || at > i && at < len(p.src) && (p.src[at] == '#' || ends(at)) {
				break scan
			}
			i = at
		}
	}
	text := p.src[start:end]
	p.take(end - start)
	p.jsonKey = false
	return string(unfold(text))
}

// lineInside checks, after a line break inside quotes, that the line at i still
// belongs to the scalar.
func (p *parser) lineInside(i, need int) {
	if i == len(p.src) {
		p.fail("a quoted text is not closed")
	}
	if _, ok := p.continues(i, need); !ok {
		p.failAt(i, "a quoted text is not closed before a line that is indented too little")
	}
}

func (p *parser) singleQuoted(need int) string {
	start := p.pos + 1
	for i := start; i < len(p.src); i++ {
		switch p.src[i] {
		case '\n':
			p.lineInside(i+1, need)
		case '\'':
			if i+1 < len(p.src) && p.src[i+1] == '\'' {
				i++
				continue
			}
			text := bytes.ReplaceAll(unfold(p.src[start:i]), []byte("''"), []byte("'"))
			p.take(i + 1 - p.pos)
			p.jsonKey = true
			return string(text)
		}
	}
	p.fail("a quoted text is not closed")
	return ""
}

// unfold joins the lines of a plain or single-quoted scalar: one break becomes
// a space, n+1 breaks become n, and white space around breaks goes.
func unfold(s []byte) []byte {
	line, rest, more := cutLine(s)
	if !more {
		return s
	}
	out := append(make([]byte, 0, len(s)), bytes.TrimRight(line, " \t")...)
	sep := byte(' ')
	for {
		line, rest, more = cutLine(rest)
		if !more {
			break
		}
		switch t := bytes.Trim(line, " \t"); {
		case len(t) > 0:
			out = append(append(out, sep), t...)
			sep = ' '
		case sep == '\n':
			out = append(out, '\n')
		default:
			sep = '\n'
		}
	}
	return append(append(out, sep), bytes.TrimLeft(line, " \t")...)
}

// cutLine splits off the first line of s, without its break. Without a break
// the line is all of s.
func cutLine(s []byte) (line, rest []byte, more bool) {
	n := bytes.IndexByte(s, '\n')
	if n < 0 {
		return s, nil, false
	}
	return bytes.TrimSuffix(s[:n], []byte("\r")), s[n+1:], true
}

func (p *parser) doubleQuoted(need int) string {
	var out []byte
	for i := p.pos + 1; i < len(p.src); {
		switch c := p.src[i]; c {
		case '"':
			p.take(i + 1 - p.pos)
			p.jsonKey = true
			return string(out)
		case '\\':
			out, i = p.escape(out, i, need)
		case ' ', '\t', '\r', '\n':
			ws := i
			for i < len(p.src) && (p.src[i] == ' ' || p.src[i] == '\t') {
				i++
			}
			if p.breakAt(i) == 0 {
				out = append(out, p.src[ws:i]...)
				if i < len(p.src) && p.src[i] == '\r' {
					out = append(out, '\r')
					i++
				}
				continue
			}
			breaks := 0
			for n := p.breakAt(i); n > 0; n = p.breakAt(i) {
				breaks++
				i += n
				p.lineInside(i, need)
				for i < len(p.src) && (p.src[i] == ' ' || p.src[i] == '\t') {
					i++
				}
			}
			if breaks == 1 {
				out = append(out, ' ')
			}
			for ; breaks > 1; breaks-- {
				out = append(out, '\n')
			}
		default:
			out = append(out, c)
			i++
		}
	}
	p.fail("a quoted text is not closed")
	return ""
}

// escapes are the one-character escapes of double-quoted text.
var escapes = map[byte]string{
	'0': "\x00", 'a': "\a", 'b': "\b", 'e': "\x1b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
	'N': "\u0085", '_': "\u00a0", 'L': "\u2028", 'P': "\u2029", ' ': " ", '"': `"`, '/': "/", '\\': `\`, '\t': "\t",
}

// escape reads the escape at i, appends what it stands for and returns the
// offset behind it.
func (p *parser) escape(out []byte, i, need int) ([]byte, int) {
	if n := p.breakAt(i + 1); n > 0 {
		i += 1 + n
		p.lineInside(i, need)
		for i < len(p.src) && (p.src[i] == ' ' || p.src[i] == '\t') {
			i++
		}
		return out, i
	}
	if i+1 < len(p.src) {
		c := p.src[i+1]
		if s, ok := escapes[c]; ok {
			return append(out, s...), i + 2
		}
		if width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]; width > 0 && i+2+width <= len(p.src) {
			code, ok := parseHex(p.src[i+2 : i+2+width])
			if ok && code <= utf8.MaxRune {
				return appendUnit(out, rune(code)), i + 2 + width
			}
		}
	}
	p.failAt(i, "an escape that YAML does not know")
	return nil, 0
}

// appendUnit appends r in WTF-8: a surrogate on its own as three bytes, one
// that completes a pair together with its other half.
func appendUnit(out []byte, r rune) []byte {
	if r < 0xD800 || r > 0xDFFF {
		return utf8.AppendRune(out, r)
	}
	if n := len(out) - 3; r >= 0xDC00 && n >= 0 && out[n] == 0xED && out[n+1] >= 0xA0 && out[n+1] < 0xB0 {
		high := rune(out[n+1]&0x0F)<<6 | rune(out[n+2]&0x3F)
		return utf8.AppendRune(out[:n], 0x10000+(high<<10|r&0x3FF))
	}
	return append(out, 0xED, 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
}

// blockScalar reads a literal or folded scalar from its header on; parent is
// the indentation of the collection around it, -1 at the document.
func (p *parser) blockScalar(parent int) raw {
	folded := p.peek() == '>'
	var chomp byte
	explicit := 0 // the indentation indicator
	p.take(1)
	for !p.blankAt(p.pos) && p.peek() != '#' {
		switch c := p.peek(); {
		case chomp == 0 && (c == '-' || c == '+'):
			chomp = c
		case explicit == 0 && '1' <= c && c <= '9':
			explicit = int(c - '0')
		default:
			p.fail("unexpected %q in the header of a block text", string(c))
		}
		p.take(1)
	}
	p.lineEnd("the header of a block text")
	b := blockText{folded: folded, chomp: chomp}
	p.blockLines(&b, parent, explicit)
	p.startLine()
	return raw{string(b.join()), true}
}

// lineEnd reads to the end of the line, which may hold only a comment after
// what.
func (p *parser) lineEnd(what string) {
	p.keySpace()
	if p.peek() == '#' {
		if !p.gap.space {
			p.fail("a comment must be set off by white space")
		}
		if n := bytes.IndexByte(p.src[p.pos:], '\n'); n >= 0 {
			p.pos += n
		} else {
			p.pos = len(p.src)
		}
	}
	n := p.breakAt(p.pos)
	if n == 0 && !p.eof() {
		p.fail("unexpected content after %s", what)
	}
	p.pos += n
}

// A blockLine is a line of a block scalar: its leading spaces and the rest.
type blockLine struct {
	spaces int
	text   []byte
}

type blockText struct {
	folded bool
	chomp  byte
	trim   int // spaces that are indentation
	keep   int // blank lines at the end with more spaces than this are content
	lines  []blockLine
	final  bool // the last line had a break
}

// blockLines collects the lines of a block scalar and finds its indentation.
func (p *parser) blockLines(b *blockText, parent, explicit int) {
	limit := parent + 1 // least indentation of a content line
	if explicit > 0 {
		limit = max(limit, 1) + explicit - 1
	}
	b.trim = max(parent, 0) + explicit
	found := false // the first content line
	deepest := 0   // blank line before it
	for p.pos < len(p.src) {
		i := p.pos
		for i < len(p.src) && p.src[i] == ' ' {
			i++
		}
		spaces := i - p.pos
		if p.breakAt(i) == 0 {
			if spaces < limit || limit == 0 && p.markerAt(p.pos) {
				break
			}
			if !found && i < len(p.src) {
				found, b.keep = true, spaces
				if explicit == 0 {
					if deepest > spaces {
						p.failAt(i, "blank lines deeper than the first line of a block text need an indentation indicator")
					}
					limit, b.trim = spaces, spaces
				}
			}
		}
		if !found {
			deepest = max(deepest, spaces)
		}
		line, _, broken := cutLine(p.src[i:])
		p.pos = len(p.src)
		if broken {
			p.pos = i + bytes.IndexByte(p.src[i:], '\n') + 1
		}
		b.final = broken
		b.lines = append(b.lines, blockLine{spaces, bytes.TrimSuffix(line, []byte("\r"))})
	}
	i := p.pos
	for i < len(p.src) && p.src[i] == ' ' {
		i++
	}
	if i < len(p.src) && p.src[i] == '\t' {
		p.failAt(i, "a tab used as indentation after a block text")
	}
}

// join makes the text of a block scalar of its lines.
func (b *blockText) join() []byte {
	first, end := -1, 0 // first content line, end of content
	for i, l := range b.lines {
		if len(l.text) > 0 {
			if first < 0 {
				first = i
			}
			end = i + 1
		}
	}
	var out []byte
	if first < 0 {
		breaks := len(b.lines)
		if breaks > 0 && !b.final {
			breaks = max(1, breaks-1)
		}
		if b.chomp == '+' {
			out = append(out, bytes.Repeat([]byte("\n"), breaks)...)
		}
		return out
	}
	deep := b.keep
	if b.chomp == '+' {
		deep = b.trim
	}
	for i := len(b.lines) - 1; i >= end; i-- {
		if b.lines[i].spaces > deep {
			end = i + 1
		}
	}
	indent := func(l blockLine) {
		for n := b.trim; n < l.spaces; n++ {
			out = append(out, ' ')
		}
	}
	for _, l := range b.lines[:first] {
		indent(l)
		out = append(out, '\n')
	}
	if b.folded {
		out = b.fold(out, b.lines[first:end])
	} else {
		for i, l := range b.lines[first:end] {
			if i > 0 {
				out = append(out, '\n')
			}
			indent(l)
			out = append(out, l.text...)
		}
	}
	switch b.chomp {
	case '-':
	case '+':
		for range b.lines[end:] {
			out = append(out, '\n')
		}
		if b.final || end == len(b.lines) {
			out = append(out, '\n')
		}
	default:
		out = append(out, '\n')
	}
	return out
}

// fold appends lines to out with single breaks between lines at the block's
// indentation turned to spaces; lines indented further keep their breaks.
func (b *blockText) fold(out []byte, lines []blockLine) []byte {
	sep := ""
	deeper := false // the last line was indented further
	for _, l := range lines {
		switch {
		case l.spaces > b.trim || len(l.text) > 0 && l.text[0] == '\t':
			if sep == " " {
				sep = "\n"
			} else if sep == "\n" && !deeper {
				sep = "\n\n"
			}
			out = append(out, sep...)
			for n := b.trim; n < l.spaces; n++ {
				out = append(out, ' ')
			}
			out = append(out, l.text...)
			sep, deeper = "\n", true
		case len(l.text) == 0 && sep == "\n":
			out = append(out, '\n')
		case len(l.text) == 0:
			sep = "\n"
		default:
			out = append(append(out, sep...), l.text...)
			sep, deeper = " ", false
		}
	}
	return out
}
