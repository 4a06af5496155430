package jsjson

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// MaxDepth is how many arrays and objects may stand inside one another. The
// trace contract, section 2, gives no meaning to deeper documents.
const MaxDepth = 3000

// maxSource keeps every offset and every node index inside an int32; a node
// takes at least one byte of source.
const maxSource = math.MaxInt32

// keepNodes bounds the tape kept between documents, to a MiB: a larger one is
// let go when a source comes that cannot fill it, so that one monstrous line
// does not hold its memory for ever.
const keepNodes = 1 << 16

const (
	reasonDeep   = "nested more than 3000 levels deep"
	reasonLong   = "longer than 2147483647 bytes"
	reasonEnd    = "it ends before the value does"
	reasonValue  = "want a value"
	reasonKey    = "want a member name in double quotes"
	reasonColon  = "want ':' after a member name"
	reasonObject = "want ',' or '}' after a member"
	reasonArray  = "want ',' or ']' after an element"
	reasonAfter  = "want nothing after the value"
	reasonNumber = "malformed number"
	reasonCtrl   = "raw control character in a string"
	reasonEscape = "malformed escape in a string"
)

// SyntaxError says why a source is not one JSON value.
type SyntaxError struct {
	Offset int    // byte offset of the first byte that cannot stand
	Reason string // short, lower case, without the offset
}

// Error implements error.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("read JSON: at byte %d: %s", e.Offset, e.Reason)
}

// TooDeep reports whether the source was given up for its depth alone; it may
// or may not be JSON.
func (e *SyntaxError) TooDeep() bool { return e.Reason == reasonDeep }

// Kind is what a node is.
type Kind uint8

// The kinds of node. Absent is the kind of a node that is not there.
const (
	Absent Kind = iota
	Null
	Bool
	Number
	String
	Array
	Object
)

// String names the kind as it is spelt in messages.
func (k Kind) String() string {
	switch k {
	case Null:
		return "null"
	case Bool:
		return "boolean"
	case Number:
		return "number"
	case String:
		return "text"
	case Array:
		return "array"
	case Object:
		return "object"
	}
	return "absent"
}

// What a string holds besides plain ASCII. A string with no flag is its own
// decoded text and its own serialised form.
const (
	flagEscape uint8 = 1 << iota // at least one backslash
	flagHigh                     // at least one byte >= 0x80
)

// entry is one node of the tape: a value or a member name. The members of an
// object follow it as name, value, name, value; the elements of an array follow
// it one after the other.
type entry struct {
	start, end uint32 // span in the source, quotes and brackets included
	next       uint32 // index after the subtree; while it is open, the index of its parent
	kind       Kind
	flags      uint8
}

// Doc holds one parsed document. The zero value is ready, and a Doc may be used
// for any number of documents one after the other. Nodes may be read by several
// goroutines as long as none parses.
type Doc struct {
	src   []byte
	nodes []entry
}

// Root is the document's value; it is absent before the first Parse and after
// one that failed.
func (d *Doc) Root() Node {
	if len(d.nodes) == 0 {
		return Node{}
	}
	return Node{doc: d}
}

// Parse reads src, which must be exactly one JSON value (RFC 8259) with JSON
// white space around it allowed. It keeps src without copying it: the caller
// must not change it while nodes are in use. Ill-formed UTF-8 inside a string
// is no error (trace contract, section 8.6). The error is a *SyntaxError.
func (d *Doc) Parse(src []byte) error {
	d.src = src
	nodes := d.nodes[:cap(d.nodes)]
	if len(nodes) > keepNodes && len(src) < keepNodes {
		nodes = nil
	}
	if len(src) > maxSource {
		return d.fail(nodes, maxSource, reasonLong)
	}
	var (
		n        int // nodes written so far
		i, start int
		c        byte
		depth    int
		open     uint32 // the innermost open container, when depth > 0
		object   bool   // whether it is an object
		name     bool   // whether the string being read is a member name
		w, m     uint64
		high     uint64
		flags    uint8
		e        *entry
	)

value:
	for {
		if i >= len(src) {
			return d.fail(nodes, i, reasonEnd)
		}
		if c = src[i]; c > ' ' {
			break
		}
		if !space(c) {
			return d.fail(nodes, i, reasonValue)
		}
		i++
	}
	start = i
	if c == '"' {
		goto text
	}
	if n == len(nodes) {
		nodes = grow(nodes)
	}
	e = &nodes[n]
	n++
	e.start = uint32(start)
	e.flags = 0
	switch c {
	case '{':
		if depth == MaxDepth {
			return d.fail(nodes, i, reasonDeep)
		}
		depth++
		e.kind = Object
		e.next = open
		open = uint32(n - 1)
		object = true
		i++
		for i < len(src) && src[i] <= ' ' && space(src[i]) {
			i++
		}
		if i < len(src) && src[i] == '}' {
			goto closed
		}
		goto member
	case '[':
		if depth == MaxDepth {
			return d.fail(nodes, i, reasonDeep)
		}
		depth++
		e.kind = Array
		e.next = open
		open = uint32(n - 1)
		object = false
		i++
		for i < len(src) && src[i] <= ' ' && space(src[i]) {
			i++
		}
		if i < len(src) && src[i] == ']' {
			goto closed
		}
		goto value
	case 't':
		if i+4 > len(src) || string(src[i:i+4]) != "true" {
			return d.fail(nodes, i, reasonValue)
		}
		i += 4
		e.kind = Bool
	case 'f':
		if i+5 > len(src) || string(src[i:i+5]) != "false" {
			return d.fail(nodes, i, reasonValue)
		}
		i += 5
		e.kind = Bool
	case 'n':
		if i+4 > len(src) || string(src[i:i+4]) != "null" {
			return d.fail(nodes, i, reasonValue)
		}
		i += 4
		e.kind = Null
	default:
		if c != '-' && !digit(c) {
			return d.fail(nodes, i, reasonValue)
		}
		i = scanNumber(src, i)
		if i < 0 {
			return d.fail(nodes, ^i, reasonNumber)
		}
		e.kind = Number
	}
	e.end = uint32(i)
	e.next = uint32(n)

after:
	if object && i+1 < len(src) && src[i] == ',' && src[i+1] == '"' {
		i++
		start = i
		name = true
		goto text
	}
	if i < len(src) && src[i] <= ' ' {
		for i < len(src) && space(src[i]) {
			i++
		}
	}
	if depth == 0 {
		if i < len(src) {
			return d.fail(nodes, i, reasonAfter)
		}
		d.nodes = nodes[:n]
		return nil
	}
	if i >= len(src) {
		return d.fail(nodes, i, reasonEnd)
	}
	c = src[i]
	if object {
		if c == ',' {
			i++
			goto member
		}
		if c != '}' {
			return d.fail(nodes, i, reasonObject)
		}
	} else {
		if c == ',' {
			i++
			goto value
		}
		if c != ']' {
			return d.fail(nodes, i, reasonArray)
		}
	}

closed:
	i++
	e = &nodes[open]
	open = e.next
	e.end = uint32(i)
	e.next = uint32(n)
	depth--
	object = depth > 0 && nodes[open].kind == Object
	goto after

member:
	if i < len(src) && src[i] <= ' ' {
		for i < len(src) && space(src[i]) {
			i++
		}
	}
	if i >= len(src) {
		return d.fail(nodes, i, reasonEnd)
	}
	if src[i] != '"' {
		return d.fail(nodes, i, reasonKey)
	}
	start = i
	name = true

text: // from the quote at i, a member name or a value
	i++
	high = 0
	flags = 0
	for i+16 <= len(src) {
		w = binary.LittleEndian.Uint64(src[i : i+8 : i+8])
		m = special(w)
		if m == 0 {
			high |= w
			i += 8
			w = binary.LittleEndian.Uint64(src[i : i+8 : i+8])
			m = special(w)
		}
		if m != 0 {
			high |= w & (m - 1) &^ m
			i += bits.TrailingZeros64(m) >> 3
			goto marked
		}
		high |= w
		i += 8
	}
	for i+8 <= len(src) {
		w = binary.LittleEndian.Uint64(src[i : i+8 : i+8])
		m = special(w)
		if m != 0 {
			high |= w & (m - 1) &^ m
			i += bits.TrailingZeros64(m) >> 3
			goto marked
		}
		high |= w
		i += 8
	}
	for i < len(src) {
		c = src[i]
		if c == '"' || c == '\\' || c < ' ' {
			goto marked
		}
		high |= uint64(c)
		i++
	}
	return d.fail(nodes, i, reasonEnd)

marked:
	if src[i] != '"' {
		i, flags = scanEscapes(src, i)
		if i < 0 {
			return d.fail(nodes, ^i, stringReason(src, ^i))
		}
	}
	if high&highs != 0 {
		flags |= flagHigh
	}
	i++
	if n == len(nodes) {
		nodes = grow(nodes)
	}
	e = &nodes[n]
	n++
	e.start = uint32(start)
	e.end = uint32(i)
	e.next = uint32(n)
	e.kind = String
	e.flags = flags
	if !name {
		goto after
	}
	name = false
	if i+1 < len(src) && src[i] == ':' && src[i+1] == '"' {
		i++
		start = i
		goto text
	}
	if i < len(src) && src[i] <= ' ' {
		for i < len(src) && space(src[i]) {
			i++
		}
	}
	if i >= len(src) {
		return d.fail(nodes, i, reasonEnd)
	}
	if src[i] != ':' {
		return d.fail(nodes, i, reasonColon)
	}
	i++
	goto value
}

// fail keeps the grown tape for the next Parse and leaves the document empty.
func (d *Doc) fail(nodes []entry, offset int, reason string) error {
	d.nodes = nodes[:0]
	return &SyntaxError{Offset: offset, Reason: reason}
}

// grow makes room for more nodes; every element up to its length may be written.
func grow(nodes []entry) []entry {
	// Room for the nodes of an ordinary line, so that the first lines do not
	// grow the tape over and over.
	nodes = append(nodes, make([]entry, max(64, len(nodes)/2))...)
	return nodes[:cap(nodes)]
}

func space(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

func digit(c byte) bool { return c-'0' <= 9 }

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks, with the high bit of its byte, the first of eight bytes that
// ends a plain run inside a string: a quote, a backslash or a control
// character. Bytes above the first mark may be marked wrongly.
//
// XOR 2 brings the quote (0x22) down to 0x20 and keeps the control characters
// below it, so that one subtraction finds both; the backslash becomes zero.
// Borrows only ever come from a byte that is marked itself.
func special(w uint64) uint64 {
	return (((w ^ 2*ones) - 0x21*ones) | ((w ^ '\\'*ones) - ones)) &^ w & highs
}

// scanEscapes reads the rest of a string from its first byte that is not plain,
// i. It returns the index of the closing quote and the string's flags, or the
// complement of the offset of the fault.
func scanEscapes(src []byte, i int) (int, uint8) {
	var high byte
	for i < len(src) {
		switch c := src[i]; {
		case c == '"':
			if high >= 0x80 {
				return i, flagEscape | flagHigh
			}
			return i, flagEscape
		case c < ' ':
			return ^i, 0
		case c == '\\':
			if i+1 >= len(src) {
				return ^len(src), 0
			}
			switch src[i+1] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i += 2
			case 'u':
				if hex4(src[i+2:]) < 0 {
					return ^i, 0
				}
				i += 6
			default:
				return ^i, 0
			}
		default:
			high |= c
			i++
			for i+8 <= len(src) {
				w := binary.LittleEndian.Uint64(src[i:])
				if special(w)|w&highs != 0 {
					break
				}
				i += 8
			}
		}
	}
	return ^i, 0
}

// stringReason names the fault that scanEscapes found at offset i.
func stringReason(src []byte, i int) string {
	switch {
	case i >= len(src):
		return reasonEnd
	case src[i] == '\\':
		return reasonEscape
	}
	return reasonCtrl
}

// scanNumber reads the number that starts at i, a digit or a minus sign. It
// returns the index after it, or the complement of the offset of the fault.
func scanNumber(src []byte, i int) int {
	if src[i] == '-' {
		i++
		if i >= len(src) || !digit(src[i]) {
			return ^i
		}
	}
	if src[i] == '0' {
		i++
	} else {
		for i < len(src) && digit(src[i]) {
			i++
		}
	}
	if i < len(src) && src[i] == '.' {
		i++
		if i >= len(src) || !digit(src[i]) {
			return ^i
		}
		for i < len(src) && digit(src[i]) {
			i++
		}
	}
	if i < len(src) && src[i]|0x20 == 'e' {
		i++
		if i < len(src) && (src[i] == '+' || src[i] == '-') {
			i++
		}
		if i >= len(src) || !digit(src[i]) {
			return ^i
		}
		for i < len(src) && digit(src[i]) {
			i++
		}
	}
	return i
}

// hex4 is the value of the four hexadecimal digits s starts with, or -1.
func hex4(s []byte) rune {
	if len(s) < 4 {
		return -1
	}
	var r rune
	for _, c := range s[:4] {
		switch {
		case digit(c):
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}
