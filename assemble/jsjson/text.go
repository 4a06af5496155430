package jsjson

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode"
	"unicode/utf8"
)

// replacement is U+FFFD, which stands for every ill-formed piece of UTF-8.
const replacement = "\xEF\xBF\xBD"

// sequence measures what s, which must not be empty, starts with: the length of
// a well-formed UTF-8 sequence, or of the maximal subpart of an ill-formed one
// (trace contract, section 8.6). With wtf8 a surrogate is well formed too.
func sequence(s []byte, wtf8 bool) (n int, ok bool) {
	c := s[0]
	lo, hi := byte(0x80), byte(0xBF)
	var need int
	switch {
	case c < 0x80:
		return 1, true
	case c < 0xC2:
		return 1, false
	case c < 0xE0:
		need = 1
	case c < 0xF0:
		need = 2
		if c == 0xE0 {
			lo = 0xA0
		} else if c == 0xED && !wtf8 {
			hi = 0x9F
		}
	case c < 0xF5:
		need = 3
		if c == 0xF0 {
			lo = 0x90
		} else if c == 0xF4 {
			hi = 0x8F
		}
	default:
		return 1, false
	}
	for n = 1; n <= need; n++ {
		if n == len(s) || s[n] < lo || s[n] > hi {
			return n, false
		}
		lo, hi = 0x80, 0xBF
	}
	return n, true
}

// decode is the first code point of s, a lone surrogate included, and its
// length. An ill-formed piece is U+FFFD.
func decode(s []byte) (rune, int) {
	if s[0] < 0x80 {
		return rune(s[0]), 1
	}
	n, ok := sequence(s, true)
	if !ok {
		return utf8.RuneError, n
	}
	switch n {
	case 2:
		return rune(s[0]&0x1F)<<6 | rune(s[1]&0x3F), 2
	case 3:
		return rune(s[0]&0x0F)<<12 | rune(s[1]&0x3F)<<6 | rune(s[2]&0x3F), 3
	}
	return rune(s[0]&0x07)<<18 | rune(s[1]&0x3F)<<12 | rune(s[2]&0x3F)<<6 | rune(s[3]&0x3F), 4
}

func highSurrogate(r rune) bool { return r >= 0xD800 && r < 0xDC00 }
func lowSurrogate(r rune) bool  { return r >= 0xDC00 && r < 0xE000 }
func surrogate(r rune) bool     { return r >= 0xD800 && r < 0xE000 }

func join(high, low rune) rune { return (high-0xD800)<<10 + (low - 0xDC00) + 0x10000 }

// appendRune is utf8.AppendRune that keeps surrogates.
func appendRune(dst []byte, r rune) []byte {
	if surrogate(r) {
		return append(dst, 0xED, 0x80|byte(r>>6)&0x3F, 0x80|byte(r)&0x3F)
	}
	return utf8.AppendRune(dst, r)
}

// plainRun is the length of the run of ASCII without backslash that s starts
// with.
func plainRun(s []byte) int {
	i := 0
	for i+8 <= len(s) {
		w := binary.LittleEndian.Uint64(s[i:])
		// The subtraction marks a backslash; a wrong mark above it only
		// ends the fast loop early.
		if (w|((w^'\\'*ones)-ones)&^w)&highs != 0 {
			break
		}
		i += 8
	}
	for i < len(s) && s[i] < 0x80 && s[i] != '\\' {
		i++
	}
	return i
}

// appendText appends the decoded text of a string's source s, without its
// quotes, which the parser has accepted.
func appendText(dst, s []byte) []byte {
	for len(s) > 0 {
		n := plainRun(s)
		dst = append(dst, s[:n]...)
		if s = s[n:]; len(s) == 0 {
			break
		}
		if s[0] != '\\' {
			n, ok := sequence(s, false)
			if ok {
				dst = append(dst, s[:n]...)
			} else {
				dst = append(dst, replacement...)
			}
			s = s[n:]
			continue
		}
		c := s[1]
		if c != 'u' {
			switch c {
			case 'b':
				c = '\b'
			case 'f':
				c = '\f'
			case 'n':
				c = '\n'
			case 'r':
				c = '\r'
			case 't':
				c = '\t'
			}
			dst = append(dst, c)
			s = s[2:]
			continue
		}
		r := hex4(s[2:])
		s = s[6:]
		if highSurrogate(r) && len(s) >= 6 && s[0] == '\\' && s[1] == 'u' {
			if low := hex4(s[2:]); lowSurrogate(low) {
				r = join(r, low)
				s = s[6:]
			}
		}
		dst = appendRune(dst, r)
	}
	return dst
}

// ToWTF8 appends raw to dst with every maximal ill-formed subpart replaced by
// U+FFFD (trace contract, section 8.6): what a decoder with replacement makes of
// a file or a file name.
func ToWTF8(dst, raw []byte) []byte {
	for len(raw) > 0 {
		if utf8.Valid(raw) {
			return append(dst, raw...)
		}
		// A valid stretch is copied whole; only the sequences around a fault
		// are looked at one by one.
		i := 0
		for {
			n, ok := sequence(raw[i:], false)
			if !ok {
				dst = append(dst, raw[:i]...)
				dst = append(dst, replacement...)
				raw = raw[i+n:]
				break
			}
			i += n
		}
	}
	return dst
}

// Blank reports whether JavaScript's trim leaves nothing of the line. The set is
// that of the trace contract, section 2.3; unlike unicode.IsSpace it holds
// U+FEFF and not U+0085.
func Blank(line []byte) bool {
	for len(line) > 0 {
		r, n := decode(line)
		switch {
		case r >= '\t' && r <= '\r', r == ' ', r == 0xA0, r == 0x1680,
			r >= 0x2000 && r <= 0x200A, r == 0x2028, r == 0x2029,
			r == 0x202F, r == 0x205F, r == 0x3000, r == 0xFEFF:
		default:
			return false
		}
		line = line[n:]
	}
	return true
}

// Compare orders two WTF-8 texts as ECMAScript does, by UTF-16 code unit (trace
// contract, section 8.7): -1, 0 or +1.
func Compare(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for i+8 <= n {
		if differ := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); differ != 0 {
			i += bits.TrailingZeros64(differ) >> 3
			break
		}
		i += 8
	}
	for i < n && a[i] == b[i] {
		i++
	}
	if i == n {
		switch {
		case len(a) < len(b):
			return -1
		case len(a) > len(b):
			return 1
		}
		return 0
	}
	x, y := a[i], b[i]
	if x < 0xED || y < 0xED {
		// Either both stand inside a sequence with the same lead byte, or
		// one begins a code point below the surrogates: byte order is code
		// unit order.
		if x < y {
			return -1
		}
		return 1
	}
	return compareUnits(a[i:], b[i:])
}

// compareUnits is Compare one code unit after the other. It settles the leads
// 0xED and above, where an astral character counts as the surrogates it is made
// of.
func compareUnits(a, b []byte) int {
	var lowA, lowB rune // second half of an astral character, or 0
	for {
		var x, y rune
		x, lowA, a = unit(lowA, a)
		y, lowB, b = unit(lowB, b)
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		case x < 0:
			return 0
		}
	}
}

// unit takes one code unit off a text whose pending second half is low; -1 is
// the end.
func unit(low rune, s []byte) (rune, rune, []byte) {
	if low != 0 {
		return low, 0, s
	}
	if len(s) == 0 {
		return -1, 0, s
	}
	r, n := decode(s)
	if r >= 0x10000 {
		r -= 0x10000
		return 0xD800 + r>>10, 0xDC00 + r&0x3FF, s[n:]
	}
	return r, 0, s[n:]
}

// SortKey appends a form of a WTF-8 text whose byte order is Compare's order: an
// astral character is written as its two surrogates, three bytes each.
func SortKey(dst, wtf8 []byte) []byte {
	for i := 0; i < len(wtf8); {
		if i+8 <= len(wtf8) && binary.LittleEndian.Uint64(wtf8[i:])&highs == 0 {
			i += 8
			continue
		}
		if wtf8[i] >= 0xF0 {
			if r, n := decode(wtf8[i:]); n == 4 {
				r -= 0x10000
				dst = append(dst, wtf8[:i]...)
				dst = appendRune(dst, 0xD800+r>>10)
				dst = appendRune(dst, 0xDC00+r&0x3FF)
				wtf8 = wtf8[i+4:]
				i = 0
				continue
			}
		}
		i++
	}
	return append(dst, wtf8...)
}

// FromSortKey appends the text that SortKey made key of.
func FromSortKey(dst, key []byte) []byte {
	for {
		i := bytes.IndexByte(key, 0xED)
		if i < 0 || i+6 > len(key) {
			return append(dst, key...)
		}
		high, _ := decode(key[i:])
		if highSurrogate(high) && key[i+3] == 0xED {
			if low, n := decode(key[i+3:]); n == 3 && lowSurrogate(low) {
				dst = append(dst, key[:i]...)
				dst = utf8.AppendRune(dst, join(high, low))
				key = key[i+6:]
				continue
			}
		}
		dst = append(dst, key[:i+1]...)
		key = key[i+1:]
	}
}

// equalFold reports whether two WTF-8 texts are equal under Unicode simple case
// folding. strings.EqualFold would take all surrogates for the same character.
func equalFold(a []byte, name string) bool {
	i := 0
	for len(a) > 0 {
		if i == len(name) {
			return false
		}
		x, n := decode(a)
		a = a[n:]
		y := rune(name[i])
		if y < utf8.RuneSelf {
			i++
		} else {
			var buf [4]byte
			y, n = decode(buf[:copy(buf[:], name[i:])])
			i += n
		}
		if x == y {
			continue
		}
		if x < 0x80 && y < 0x80 {
			if c := x | 0x20; c != y|0x20 || c < 'a' || c > 'z' {
				return false
			}
			continue
		}
		r := unicode.SimpleFold(x)
		for r != x && r != y {
			r = unicode.SimpleFold(r)
		}
		if r != y {
			return false
		}
	}
	return i == len(name)
}
