package plain

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// The caps of the guard contract, section 8, in characters.
const (
	Detail      = 200  // names, urls and reasons in tables and verdict details
	Explanation = 2000 // text inside explanations
)

// Ellipsis ends a text that was cut.
const Ellipsis = '…'

// A run of combining marks longer than marksKept is drawn over its neighbours
// by most terminals, so the rest is dropped. marksRead bounds the run before
// normalisation: beyond 30 marks the normaliser inserts invisible joiners.
const (
	marksRead = 20
	marksKept = 8
)

// Clean returns text in NFC without control, bidirectional, zero-width and
// other invisible characters, without terminal sequences, on one line, and at
// most max characters long; what is cut is marked by an ellipsis within max.
// The text may be WTF-8 or ill-formed: each lone surrogate and each ill-formed
// byte becomes U+FFFD. Cleaning a cleaned text changes nothing.
func Clean(text string, max int) string {
	if max <= 0 || text == "" {
		return ""
	}
	if ascii(text) {
		return cut(text, max)
	}
	text = strip(text)
	if !norm.NFC.IsNormalString(text) {
		text = norm.NFC.String(text)
	}
	return cut(thin(text), max)
}

// Quote is Clean between double quotes. Double quotes inside become single
// ones, so the text cannot seem to end early. The quotes are not counted in max.
func Quote(text string, max int) string {
	return `"` + strings.ReplaceAll(Clean(text, max), `"`, `'`) + `"`
}

// ascii reports whether text is printable ASCII, which needs no cleaning.
func ascii(text string) bool {
	for i := 0; i < len(text); i++ {
		if text[i] < 0x20 || text[i] > 0x7e {
			return false
		}
	}
	return true
}

// Hidden reports whether r is a character Clean never lets through: controls,
// format characters (bidirectional and zero-width ones among them), line and
// paragraph separators, surrogates, and code points that are drawn as nothing.
// The last kind can carry whole hidden messages to an agent (tags, variation
// selectors).
func Hidden(r rune) bool {
	switch {
	case r < 0x20 || (r >= 0x7f && r < 0xa0):
		return true
	case r < 0xad:
		return false
	}
	return unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Cs,
		unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// strip removes terminal sequences and hidden characters, turns line breaks and
// tabs into spaces and ill-formed bytes into U+FFFD.
func strip(text string) string {
	var b strings.Builder
	b.Grow(min(len(text), 16<<10))
	marks := 0
	endless := false // no end of a terminal string from here on
	for i := 0; i < len(text); {
		r, size := decode(text[i:])
		switch {
		case r == 0x1b || (r >= 0x80 && r < 0xa0 && r != 0x85):
			var unended bool
			size, unended = sequence(text[i:], r, size, endless)
			endless = endless || unended
		case r == '\r' && strings.HasPrefix(text[i+1:], "\n"):
			// one break, one space
		case r == '\t' || r == '\n' || r == '\v' || r == '\f' || r == '\r' ||
			r == 0x85 || r == 0x2028 || r == 0x2029:
			b.WriteByte(' ')
			marks = 0
		case Hidden(r):
		case unicode.Is(unicode.M, r):
			if marks++; marks <= marksRead {
				b.WriteRune(r)
			}
		default:
			b.WriteRune(r)
			marks = 0
		}
		i += size
	}
	return b.String()
}

// decode reads one character. A surrogate in its three-byte form is one
// U+FFFD, not three.
func decode(s string) (rune, int) {
	r, size := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && size == 1 && len(s) >= 3 &&
		s[0] == 0xed && s[1] >= 0xa0 && s[1] <= 0xbf && s[2] >= 0x80 && s[2] <= 0xbf {
		return r, 3
	}
	return r, size
}

// sequence is the length of the terminal sequence (ECMA-48) s begins with; r
// and size are its first character. A string sequence (a window title, a
// hyperlink) that never ends loses only its opening, so that it cannot hide the
// rest of the text; unended reports that.
func sequence(s string, r rune, size int, endless bool) (length int, unended bool) {
	kind := r
	if r == 0x1b {
		if len(s) == 1 {
			return 1, false
		}
		// ESC and one of @.._ is the seven-bit spelling of a C1 control.
		c := s[1]
		switch {
		case c >= 0x40 && c <= 0x5f:
			kind, size = rune(c)+0x40, 2
		case c >= 0x20 && c <= 0x2f:
			i := 1
			for i < len(s) && s[i] >= 0x20 && s[i] <= 0x2f {
				i++
			}
			if i < len(s) && s[i] >= 0x30 && s[i] <= 0x7e {
				i++
			}
			return i, false
		case c >= 0x60 && c <= 0x7e, c >= 0x30 && c <= 0x3f:
			return 2, false
		default:
			return 1, false
		}
	}
	switch kind {
	case 0x9b: // CSI: parameters, intermediates, one final byte
		i := size
		for i < len(s) && s[i] >= 0x20 && s[i] <= 0x3f {
			i++
		}
		if i < len(s) && s[i] >= 0x40 && s[i] <= 0x7e {
			i++
		}
		return i, false
	case 0x90, 0x98, 0x9d, 0x9e, 0x9f: // DCS, SOS, OSC, PM, APC: up to BEL or ST
		if endless {
			return size, true
		}
		for i := size; i < len(s); i++ {
			switch {
			case s[i] == 0x07:
				return i + 1, false
			case s[i] == 0x1b:
				if i+1 < len(s) && s[i+1] == '\\' {
					return i + 2, false
				}
				return i, false // another sequence aborts this one
			case s[i] == 0xc2 && i+1 < len(s) && s[i+1] == 0x9c:
				return i + 2, false
			}
		}
		return size, true
	}
	return size, false
}

// thin drops combining marks beyond marksKept in a row. Normalisation can
// split a character into a base and marks, so this comes after it.
func thin(text string) string {
	marks, long := 0, false
	for _, r := range text {
		if r < 0x300 || !unicode.Is(unicode.M, r) {
			marks = 0
		} else if marks++; marks > marksKept {
			long = true
			break
		}
	}
	if !long {
		return text
	}
	var b strings.Builder
	marks = 0
	for _, r := range text {
		if !unicode.Is(unicode.M, r) {
			marks = 0
		} else if marks++; marks > marksKept {
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// cut shortens text to max characters, the ellipsis included.
func cut(text string, max int) string {
	if len(text) <= max {
		return text
	}
	keep, n := 0, 0
	for i := range text {
		if n == max-1 {
			keep = i
		}
		if n == max {
			return text[:keep] + string(Ellipsis)
		}
		n++
	}
	return text
}
