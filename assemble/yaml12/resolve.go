package yaml12

import (
	"math"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

const coreTag = "tag:yaml.org,2002:"

// finish completes a node that has been read: it gives a scalar its value and
// checks the properties.
func (p *parser) finish(n *Node, r raw, q props) *Node {
	if n.Kind == alias {
		if q.any() {
			p.failAt(q.start, "an alias takes no anchor and no tag")
		}
		return n
	}
	tag := ""
	if q.hasTag {
		tag = p.tagName(q.tag, q.tagAt)
	}
	if foreign(tag, n.Kind) {
		p.warn(q.tagAt, "the tag %s is not one of the core schema", q.tag)
		n.Kind, n.Value, n.Pairs, n.Items = Scalar, Foreign(tag), nil, nil
		return n
	}
	known := true
	switch {
	case n.Kind == Mapping:
		known = tag == coreTag+"map"
	case n.Kind == Sequence:
		known = tag == coreTag+"seq"
	case tag == "" && r.quoted, tag == "!":
		n.Value = r.text
	case tag == "":
		n.Value, _ = core(r.text, "")
	default:
		n.Value, known = core(r.text, tag)
	}
	if !known && tag != "" && tag != "!" {
		p.warn(q.tagAt, "the tag %s is unknown or does not fit; the value is kept as it stands", q.tag)
	}
	return n
}

// foreign reports whether tag names a YAML 1.1 type that replaces a node of
// this kind. (!!merge, which rewrites the mapping around it, is refused where
// the tag is read.)
func foreign(tag string, kind Kind) bool {
	switch name, ok := strings.CutPrefix(tag, coreTag); {
	case !ok:
		return false
	case kind == Scalar:
		return name == "timestamp" || name == "binary"
	case kind == Mapping:
		return name == "set"
	default:
		return name == "omap" || name == "pairs"
	}
}

// tagName resolves a tag against the handles of the document.
func (p *parser) tagName(tag string, at int) string {
	if tag == "!" {
		return tag
	}
	name := ""
	if strings.HasPrefix(tag, "!<") {
		if !strings.HasSuffix(tag, ">") || tag == "!<!>" || tag == "!<!!>" {
			p.failAt(at, "%s is no tag", tag)
		}
		name = tag[2 : len(tag)-1]
	} else {
		cut := strings.LastIndexByte(tag, '!') + 1
		handle, suffix := tag[:cut], tag[cut:]
		if suffix == "" {
			p.failAt(at, "the tag %s has no name", tag)
		}
		prefix, ok := p.handles[handle]
		switch {
		case ok:
			decoded, err := url.PathUnescape(suffix)
			if err != nil || !utf8.ValidString(decoded) {
				p.failAt(at, "the tag %s is not well escaped", tag)
			}
			name = prefix + decoded
		case handle == "!":
			name = tag // a local tag
		default:
			p.failAt(at, "the tag %s uses a handle that no %%TAG line declares", tag)
		}
	}
	if name == coreTag+"merge" {
		p.failAt(at, "the merge tag is not supported")
	}
	return name
}

// core reads text by the core schema. With a tag only the forms of that tag
// count; ok is false when none fits, and the value is then the text.
func core(text, tag string) (value any, ok bool) {
	if tag == coreTag+"str" {
		return text, true
	}
	asks := func(s string) bool { return tag == "" || tag == coreTag+s }
	if asks("null") {
		switch text {
		case "", "~", "null", "Null", "NULL":
			return nil, true
		}
	}
	if asks("bool") {
		switch text {
		case "true", "True", "TRUE":
			return true, true
		case "false", "False", "FALSE":
			return false, true
		}
	}
	if asks("int") {
		if v, ok := coreInt(text); ok {
			return v, true
		}
	}
	if asks("float") {
		if v, ok := coreFloat(text); ok {
			return v, true
		}
	}
	return text, false
}

func coreInt(s string) (float64, bool) {
	switch {
	case len(s) > 2 && s[:2] == "0o" && strings.Trim(s[2:], "01234567") == "":
		return jsjson.BinaryDouble(s[2:], 3), true
	case len(s) > 2 && s[:2] == "0x" && strings.Trim(s[2:], "0123456789abcdefABCDEF") == "":
		return jsjson.BinaryDouble(s[2:], 4), true
	case digits(unsigned(s)):
		return jsjson.Double(s), true
	}
	return 0, false
}

func coreFloat(s string) (float64, bool) {
	t := unsigned(s)
	switch t {
	case ".inf", ".Inf", ".INF":
		return math.Inf(map[bool]int{true: -1, false: 1}[s[0] == '-']), true
	case ".nan", ".NaN", ".NAN":
		return math.NaN(), s == t
	}
	mantissa := t
	if i := strings.IndexAny(t, "eE"); i >= 0 {
		mantissa = t[:i]
		if !digits(unsigned(t[i+1:])) {
			return 0, false
		}
	} else if !strings.Contains(t, ".") {
		return 0, false // an integer
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	if (whole != "" || fraction == "") && !digits(whole) || fraction != "" && !digits(fraction) {
		return 0, false
	}
	return jsjson.Double(s), true // overflow gives an infinity, as it should
}

// unsigned is s without a sign.
func unsigned(s string) string {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		return s[1:]
	}
	return s
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func parseHex(b []byte) (code uint32, ok bool) {
	for _, c := range b {
		if !isHex(c) {
			return 0, false
		}
	}
	v, err := strconv.ParseUint(string(b), 16, 32)
	return uint32(v), err == nil
}

// units counts b in UTF-16 code units, in which the bound on keys is given.
func units(b []byte) int {
	n := 0
	for _, c := range b {
		if c&0xC0 != 0x80 {
			n++
		}
		if c >= 0xF0 {
			n++
		}
	}
	return n
}

// keys are the scalar keys of a mapping so far. Keys of different types differ
// (1 and "1"), NaN differs from itself, aliases and collections are never
// compared (trace contract, section 4).
type keys map[any]struct{}

func (p *parser) unique(seen keys, key *Node) {
	if key.Kind != Scalar {
		return
	}
	if _, ok := key.Value.(Foreign); ok {
		return
	}
	if _, dup := seen[key.Value]; dup {
		line, column := key.Line, key.Column
		panic(&Error{line, column, "the same key twice in one mapping"})
	}
	seen[key.Value] = struct{}{}
}

// maxAliases bounds, for each anchor, the times it is used (and the once it is
// defined) times the weight of what it holds (trace contract, section 4).
const maxAliases = 100

// resolve counts aliases and replaces them by what they name.
func (p *parser) resolve(root *Node) *Node {
	p.count(root)
	return replace(root)
}

func (p *parser) count(n *Node) {
	switch n.Kind {
	case alias:
		t := n.target
		t.uses++
		if t.weight < 0 {
			t.weight = p.weigh(t)
		}
		if t.uses*t.weight > maxAliases {
			panic(&Error{n.Line, n.Column, "too many aliases: the document would grow beyond bounds"})
		}
	case Sequence:
		for _, item := range n.Items {
			p.count(item)
		}
	case Mapping:
		for _, pair := range n.Pairs {
			p.count(pair.Key)
			p.count(pair.Value)
		}
	}
}

// weigh is the weight of an anchor's content at its first use: the most any
// anchor used inside has come to by then, at least 1 if there is any scalar.
func (p *parser) weigh(n *Node) int {
	if p.work++; p.work > 16*MaxSize {
		panic(&Error{n.Line, n.Column, "too many anchors inside each other"})
	}
	w := 0
	switch n.Kind {
	case Scalar:
		w = 1
	case alias:
		w = n.target.uses * max(n.target.weight, 0)
	case Sequence:
		for _, item := range n.Items {
			w = max(w, p.weigh(item))
		}
	case Mapping:
		for _, pair := range n.Pairs {
			w = max(w, p.weigh(pair.Key), p.weigh(pair.Value))
		}
	}
	return w
}

// replace puts the nodes that aliases name in their place.
func replace(n *Node) *Node {
	switch n.Kind {
	case alias:
		return n.target
	case Sequence:
		for i, item := range n.Items {
			n.Items[i] = replace(item)
		}
	case Mapping:
		for i, pair := range n.Pairs {
			n.Pairs[i] = Pair{replace(pair.Key), replace(pair.Value)}
		}
	}
	return n
}
