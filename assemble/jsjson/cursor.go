package jsjson

import (
	"encoding/binary"
	"math/bits"
)

// Cursor reads JSON whose shape is known beforehand, as one certain writer makes
// it: it is what is still to be read. Each method takes what it names off the
// front and gives the cursor behind it; where something else stands there it
// gives nil, and every method of a nil Cursor does. So a whole shape can be read
// in a row, with one look at the end.
//
// It knows only what such writers write: no white space, and of texts only ASCII
// without escapes. What it does not take may well be sound: Parse knows.
type Cursor []byte

// Take takes exactly these bytes.
func (c Cursor) Take(want string) Cursor {
	if len(c) < len(want) || string(c[:len(want)]) != want {
		return nil
	}
	return c[len(want):]
}

// Text takes want, which ends in the quote that opens a text, and then the text
// and its closing quote. The text is part of the source, as that of Node.Text.
func (c Cursor) Text(want string) ([]byte, Cursor) {
	start := len(want)
	if len(c) < start || string(c[:start]) != want {
		return nil, nil
	}
	i := start
	for i+8 <= len(c) {
		w := binary.LittleEndian.Uint64(c[i : i+8 : i+8])
		if m := special(w) | w&highs; m != 0 {
			i += bits.TrailingZeros64(m) >> 3
			break
		}
		i += 8
	}
	for ; i < len(c); i++ {
		if b := c[i]; b == '"' {
			return c[start:i:i], c[i+1:]
		} else if b < ' ' || b == '\\' || b >= 0x80 {
			break
		}
	}
	return nil, nil
}

// Digits takes want and then a number that is digits only, few enough to be
// exact in a double. Whoever takes neither a digit nor a point nor an exponent
// next knows that it was the whole number.
func (c Cursor) Digits(want string) (float64, Cursor) {
	c = c.Take(want)
	var n int64
	i := 0
	for i < len(c) && digit(c[i]) {
		n = n*10 + int64(c[i]-'0')
		if i++; i > 15 {
			return 0, nil
		}
	}
	if i == 0 || i > 1 && c[0] == '0' {
		return 0, nil
	}
	return float64(n), c[i:]
}
