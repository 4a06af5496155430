package jsjson

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Append appends the value as JSON.stringify(value, null, indent) writes it when
// it stands at the given depth of an outer document: the trace contract, section
// 8. The first line is not indented. indent 0 is the compact form; as in
// JSON.stringify, more than 10 counts as 10. Nothing is appended for an absent
// node.
//
// The size of indented output grows with depth times the number of values: a
// caller that prints what strangers wrote bounds it with [Node.Bound] first.
func (n Node) Append(dst []byte, indent, depth int) []byte {
	if n.doc == nil {
		return dst
	}
	w := writer{doc: n.doc, indent: min(max(indent, 0), 10)}
	return w.value(dst, uint32(n.at), max(depth, 0))
}

// Bound is an upper bound, cheap to compute, of the number of bytes Append would
// append. It is at most a few times the truth unless members are repeated.
func (n Node) Bound(indent, depth int) int64 {
	if n.doc == nil {
		return 0
	}
	indent, depth = min(max(indent, 0), 10), max(depth, 0)
	d := n.doc
	var total int64
	var ends []uint32 // where the open containers end
	end := d.nodes[n.at].next
	for k := uint32(n.at); k < end; k++ {
		for len(ends) > 0 && ends[len(ends)-1] == k {
			ends = ends[:len(ends)-1]
		}
		// A line of its own, and what stands around the value: a comma, or
		// a colon and a space.
		line := int64(1 + indent*(depth+len(ends)))
		total += line + 2
		e := &d.nodes[k]
		size := int64(e.end - e.start)
		switch {
		case e.kind == Object || e.kind == Array:
			total += line + 2 // the closing one
			if e.next > k+1 {
				ends = append(ends, e.next)
			}
		case e.kind == Number && !plainInteger(d.src[e.start:e.end]):
			total += 25 // the longest double is -0.0000012345678901234567
		case e.flags&flagHigh != 0 && !utf8.Valid(d.src[e.start:e.end]):
			total += 3 * size // each byte may become U+FFFD
		default:
			total += size // decoding an escape never makes it longer
		}
	}
	return total
}

type writer struct {
	doc    *Doc
	indent int
}

// value recurses once a level, which MaxDepth bounds.
func (w *writer) value(dst []byte, at uint32, depth int) []byte {
	d := w.doc
	e := &d.nodes[at]
	switch e.kind {
	case Number:
		s := d.src[e.start:e.end]
		if plainInteger(s) {
			return append(dst, s...)
		}
		return AppendNumber(dst, parseNumber(s))
	case String:
		return d.appendString(dst, e)
	case Array:
		if e.next == at+1 {
			return append(dst, "[]"...)
		}
		for k := at + 1; k < e.next; k = d.nodes[k].next {
			if k == at+1 {
				dst = append(dst, '[')
			} else {
				dst = append(dst, ',')
			}
			dst = w.line(dst, depth+1)
			dst = w.value(dst, k, depth+1)
		}
		dst = w.line(dst, depth)
		return append(dst, ']')
	case Object:
		if e.next == at+1 {
			return append(dst, "{}"...)
		}
		return w.object(dst, at, depth)
	}
	return append(dst, d.src[e.start:e.end]...) // null, true, false
}

// object is apart from value so that only objects pay for its stack frame.
func (w *writer) object(dst []byte, at uint32, depth int) []byte {
	d := w.doc
	var buf [12]member
	members := d.order(buf[:0], at)
	sep := byte('{')
	for _, m := range members {
		dst = append(dst, sep)
		sep = ','
		dst = w.line(dst, depth+1)
		dst = d.appendString(dst, &d.nodes[m.name])
		dst = append(dst, ':')
		if w.indent > 0 {
			dst = append(dst, ' ')
		}
		dst = w.value(dst, m.value, depth+1)
	}
	dst = w.line(dst, depth)
	return append(dst, '}')
}

const spaces = "                                                                "

// line starts a new line at the given depth, in the indented form only.
func (w *writer) line(dst []byte, depth int) []byte {
	if w.indent == 0 {
		return dst
	}
	dst = append(dst, '\n')
	n := w.indent * depth
	for n > len(spaces) {
		dst = append(dst, spaces...)
		n -= len(spaces)
	}
	return append(dst, spaces[:n]...)
}

// member is one member of an object as ECMAScript keeps it.
type member struct {
	name, value uint32
	index       int64 // the array index its name is, or -1
}

// small is the number of members up to which comparing every name with every
// other is cheaper than hashing.
const small = 12

// order is the members of an object in the order ECMAScript lists them, each
// name once (trace contract, sections 8.1 and 8.2): array indices ascending,
// then the rest by first appearance; the value is that of the last copy.
func (d *Doc) order(list []member, at uint32) []member {
	end := d.nodes[at].next
	indices := 0
	var seen table
	for k := at + 1; k < end; k = d.nodes[k+1].next {
		e := &d.nodes[k]
		first := -1
		if len(list) == small && seen.slots == nil {
			for i := range list {
				seen.add(d, list, i)
			}
		}
		if seen.slots != nil {
			first = seen.find(d, list, e)
		} else {
			for i := range list {
				o := &d.nodes[list[i].name]
				if o.flags|e.flags == 0 && o.end-o.start != e.end-e.start {
					continue
				}
				if d.same(o, e) {
					first = i
					break
				}
			}
		}
		if first >= 0 {
			list[first].value = k + 1
			continue
		}
		m := member{name: k, value: k + 1, index: d.index(e)}
		if m.index >= 0 {
			indices++
		}
		list = append(list, m)
		if seen.slots != nil {
			seen.add(d, list, len(list)-1)
		}
	}
	if indices > 0 {
		slices.SortStableFunc(list, func(a, b member) int {
			switch {
			case a.index == b.index: // both -1
				return 0
			case b.index < 0 || a.index >= 0 && a.index < b.index:
				return -1
			}
			return 1
		})
	}
	return list
}

// same reports whether two names are equal after decoding.
func (d *Doc) same(a, b *entry) bool {
	if a.flags|b.flags == 0 {
		return a.end-a.start == b.end-b.start &&
			string(d.src[a.start:a.end]) == string(d.src[b.start:b.end])
	}
	var x, y [64]byte
	return string(d.text(a, x[:0])) == string(d.text(b, y[:0]))
}

// index is the array index a name is: canonical decimal, 0 to 4294967294; else
// -1.
func (d *Doc) index(e *entry) int64 {
	if c := d.src[e.start+1]; !digit(c) && c != '\\' {
		return -1
	}
	var buf [64]byte
	s := d.text(e, buf[:0])
	if len(s) == 0 || len(s) > 10 || s[0] == '0' && len(s) > 1 {
		return -1
	}
	var v int64
	for _, c := range s {
		if !digit(c) {
			return -1
		}
		v = v*10 + int64(c-'0')
	}
	if v > math.MaxUint32-1 {
		return -1
	}
	return v
}

// table finds repeated names of a large object. It is a hash table over indices
// of the member list, so that no name is copied; the seed keeps a stranger from
// choosing names that collide.
type table struct {
	slots []slot
	used  int
	seed  maphash.Seed
}

type slot struct {
	hash  uint32
	index int32 // into the member list, plus one; 0 is free
}

func (t *table) hash(d *Doc, e *entry) uint32 {
	var buf [64]byte
	return uint32(maphash.Bytes(t.seed, d.text(e, buf[:0])))
}

// find is the index of the member with e's name, or -1.
func (t *table) find(d *Doc, list []member, e *entry) int {
	h := t.hash(d, e)
	mask := uint32(len(t.slots) - 1)
	for i := h & mask; t.slots[i].index != 0; i = (i + 1) & mask {
		s := t.slots[i]
		if s.hash == h && d.same(&d.nodes[list[s.index-1].name], e) {
			return int(s.index - 1)
		}
	}
	return -1
}

// add enters list[i], whose name is not there yet.
func (t *table) add(d *Doc, list []member, i int) {
	if t.slots == nil {
		t.seed = maphash.MakeSeed()
		t.slots = make([]slot, 64)
	}
	if 2*t.used >= len(t.slots) {
		old := t.slots
		t.slots = make([]slot, 2*len(old))
		for _, s := range old {
			if s.index != 0 {
				t.put(s)
			}
		}
	}
	t.used++
	t.put(slot{t.hash(d, &d.nodes[list[i].name]), int32(i + 1)})
}

func (t *table) put(s slot) {
	mask := uint32(len(t.slots) - 1)
	i := s.hash & mask
	for t.slots[i].index != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = s
}

// appendString appends a string node as JSON.stringify writes its text.
func (d *Doc) appendString(dst []byte, e *entry) []byte {
	s := d.src[e.start:e.end]
	if e.flags == 0 || e.flags == flagHigh && utf8.Valid(s) {
		return append(dst, s...)
	}
	// Decode behind dst, write behind that, and close the gap: no other
	// memory is needed.
	start := len(dst)
	dst = appendText(dst, s[1:len(s)-1])
	end := len(dst)
	dst = AppendString(dst, dst[start:end])
	return slices.Delete(dst, start, end)
}

// AppendString appends a WTF-8 text as JSON.stringify writes it (trace contract,
// section 8.5): only the quote, the backslash, U+0000 to U+001F and lone
// surrogates are escaped. Bytes that are not WTF-8 become U+FFFD.
func AppendString(dst, wtf8 []byte) []byte {
	dst = append(dst, '"')
	s := wtf8
	for {
		n := safeRun(s)
		dst = append(dst, s[:n]...)
		if s = s[n:]; len(s) == 0 {
			return append(dst, '"')
		}
		c := s[0]
		if c < 0x80 {
			dst = appendEscape(dst, c)
			s = s[1:]
			continue
		}
		n, ok := sequence(s, true)
		switch {
		case !ok:
			dst = append(dst, replacement...)
		case c == 0xED && s[1] >= 0xA0:
			r, _ := decode(s)
			if highSurrogate(r) && len(s) >= 6 && s[3] == 0xED {
				// Not WTF-8, yet to ECMAScript these halves are a pair.
				if low, m := decode(s[3:]); m == 3 && lowSurrogate(low) {
					dst = utf8.AppendRune(dst, join(r, low))
					n = 6
					break
				}
			}
			dst = appendUnit(dst, uint16(r))
		default:
			dst = append(dst, s[:n]...)
		}
		s = s[n:]
	}
}

// safeRun is the length of the run of ASCII that s starts with and that needs no
// escape.
func safeRun(s []byte) int {
	i := 0
	for i+8 <= len(s) {
		w := binary.LittleEndian.Uint64(s[i:])
		if m := special(w) | w&highs; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	for i < len(s) && s[i] >= ' ' && s[i] < 0x80 && s[i] != '"' && s[i] != '\\' {
		i++
	}
	return i
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\t':
		return append(dst, `\t`...)
	case '\n':
		return append(dst, `\n`...)
	case '\f':
		return append(dst, `\f`...)
	case '\r':
		return append(dst, `\r`...)
	}
	return appendUnit(dst, uint16(c))
}

func appendUnit(dst []byte, u uint16) []byte {
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', hex[u>>12], hex[u>>8&15], hex[u>>4&15], hex[u&15])
}

// plainInteger reports whether a number is already in the form it is written in:
// digits alone, few enough to be exact. The grammar has no leading zeros.
func plainInteger(s []byte) bool {
	if len(s) > 15 {
		return false
	}
	for _, c := range s {
		if !digit(c) {
			return false
		}
	}
	return true
}

// AppendNumber appends a double as JSON.stringify writes it (trace contract,
// section 8.4): the shortest digits that round-trip, positional from 1e-6 up to
// but not including 1e21, null when not finite, 0 for negative zero.
func AppendNumber(dst []byte, f float64) []byte {
	switch abs := math.Abs(f); {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return append(dst, "null"...)
	case f == 0:
		return append(dst, '0')
	case abs >= 1e-6 && abs < 1e21:
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// Go pads the exponent to two digits.
	if n := len(dst); dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}
