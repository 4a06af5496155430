package plain

import (
	"strings"
	"unicode"

	"golang.org/x/text/width"
)

// Width is how many columns of a terminal a clean text takes, at most. Terminals
// differ about some characters; where they do the larger number is given, so that
// what was laid out by it overflows on none of them.
func Width(text string) int {
	n := 0
	for _, r := range text {
		n += runeWidth(r)
	}
	return n
}

func runeWidth(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.In(r, drawnWide):
		return 2
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// drawnWide are characters that the tables of x/text call narrow and some terminals
// draw over two columns: parts of flags, and pictures.
var drawnWide = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x2600, Hi: 0x27bf, Stride: 1}, {Lo: 0x2ff0, Hi: 0x2fff, Stride: 1}, {Lo: 0x31c0, Hi: 0x31ef, Stride: 1}, {Lo: 0x4dc0, Hi: 0x4dff, Stride: 1}},
	R32: []unicode.Range32{{Lo: 0x16fe0, Hi: 0x18dff, Stride: 1}, {Lo: 0x1d300, Hi: 0x1d37f, Stride: 1}, {Lo: 0x1f000, Hi: 0x1faff, Stride: 1}},
}

// Fold breaks a clean text into lines of at most max columns; 0 means one line. It
// breaks between words, and a word that is longer behind a separator of paths and
// names, or else into parts of about the same length: a last part of three letters
// would be overlooked. Nothing is left out but the spaces at a break.
func Fold(text string, max int) []string {
	if max <= 0 || Width(text) <= max {
		return []string{text}
	}
	var lines []string
	line, used := "", 0
	flush := func() {
		if line != "" {
			lines = append(lines, line)
		}
		line, used = "", 0
	}
	for word := range strings.SplitSeq(text, " ") {
		n := Width(word)
		if line != "" && used+1+n > max {
			flush()
		}
		if line != "" {
			line, used = line+" ", used+1
		}
		broken := n > max
		for n > max {
			part := piece(word, n, max)
			lines = append(lines, part)
			word = word[len(part):]
			n -= Width(part)
		}
		line, used = line+word, used+n
		if broken {
			flush() // what follows is not to be read as a part of it
		}
	}
	flush()
	if lines == nil {
		lines = []string{""} // a text of spaces
	}
	return lines
}

// separators end a part of a path, an address of the web or a name.
const separators = "/.-_?&=:,;@"

// piece is the beginning of a word of n columns that does not fit into max.
func piece(word string, n, max int) string {
	parts := (n + max - 1) / max
	even := (n + parts - 1) / parts
	at, behind, used := 0, 0, 0
	for i, r := range word {
		w := runeWidth(r)
		if w > 0 && used+w > max {
			break
		}
		used += w
		end := i + len(string(r))
		if w == 0 || used <= even || at == 0 {
			at = end
		}
		if strings.ContainsRune(separators, r) && used*2 >= max {
			behind = end
		}
	}
	if behind > 0 {
		return word[:behind]
	}
	if at == 0 { // one character that is wider than the screen
		for i := range word {
			if i > 0 {
				return word[:i]
			}
		}
		return word
	}
	return word[:at]
}
