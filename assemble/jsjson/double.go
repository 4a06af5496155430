package jsjson

import (
	"math"
	"strconv"
)

// Double is the double nearest to a decimal numeral, rounded to even and infinite
// on overflow: a sign, digits with a point before, among or behind them, and an
// exponent, of any length. It is NaN for what is no such numeral. Whoever reads a
// number that a stranger wrote reads it here, because strconv.ParseFloat loses the
// digits of very long ones.
func Double[T string | []byte](text T) float64 {
	if s := []byte(text); numeral(s) {
		return parseNumber(s)
	}
	return math.NaN()
}

// numeral reports whether s is what [Double] reads.
func numeral(s []byte) bool {
	s = unsigned(s)
	whole := digitsOf(s)
	s = s[whole:]
	fraction := 0
	if len(s) > 0 && s[0] == '.' {
		fraction = digitsOf(s[1:])
		s = s[1+fraction:]
	}
	if whole+fraction == 0 {
		return false
	}
	if len(s) == 0 {
		return true
	}
	if s[0]|0x20 != 'e' {
		return false
	}
	s = unsigned(s[1:])
	return len(s) > 0 && digitsOf(s) == len(s)
}

// unsigned is s without a sign.
func unsigned(s []byte) []byte {
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		return s[1:]
	}
	return s
}

// digitsOf is the number of digits s begins with.
func digitsOf(s []byte) int {
	n := 0
	for n < len(s) && digit(s[n]) {
		n++
	}
	return n
}

// parseNumber reads a numeral.
func parseNumber(s []byte) float64 {
	if len(s) <= 15 {
		// Up to fifteen digits are exact in a double.
		var v int64
		for _, c := range s {
			if !digit(c) {
				return parseFloat(s)
			}
			v = v*10 + int64(c-'0')
		}
		return float64(v)
	}
	if len(s) > keptDigits {
		s = shorten(s)
	}
	return parseFloat(s)
}

func parseFloat(s []byte) float64 {
	// The only error left is overflow, and then the value is infinite.
	f, _ := strconv.ParseFloat(string(s), 64)
	return f
}

// keptDigits is what strconv keeps of a numeral's digits where it has to look at
// all of them. Of more before the point it forgets that they were there, and the
// value is too small by a power of ten for each. A double is decided by its first
// 768 digits and whether anything follows them.
const keptDigits = 800

// shorten writes a numeral again as 0.DIGITSeN with at most [keptDigits] digits and
// one more that stands for all that follow, without changing the double it rounds
// to. strconv also stops counting exponents beyond five digits, which is wrong when
// as many digits stand on the other side of the point.
func shorten(s []byte) []byte {
	out := make([]byte, 0, keptDigits+40)
	if s[0] == '-' {
		out = append(out, '-')
	}
	s = unsigned(s)
	out = append(out, '0', '.')
	first := len(out)
	scale := 0 // the value is 0.DIGITS times ten to this
	point, sticky := false, false
	i := 0
	for ; i < len(s) && s[i]|0x20 != 'e'; i++ {
		c := s[i]
		if c == '.' {
			point = true
			continue
		}
		if len(out) == first && c == '0' {
			if point {
				scale--
			}
			continue
		}
		if !point {
			scale++
		}
		if len(out) < first+keptDigits {
			out = append(out, c)
		} else if c != '0' {
			sticky = true
		}
	}
	if len(out) == first {
		return append(out, '0')
	}
	if sticky {
		out = append(out, '1')
	}
	out = append(out, 'e')
	exponent := int64(scale) + shortExponent(s[i:])
	return strconv.AppendInt(out, min(max(exponent, -5000), 5000), 10)
}

// shortExponent reads what follows the digits of a numeral. It stops counting far
// beyond any number of digits a source can hold.
func shortExponent(s []byte) int64 {
	if len(s) == 0 {
		return 0
	}
	var n int64
	for _, c := range unsigned(s[1:]) {
		n = min(n*10+int64(c-'0'), 1<<40)
	}
	if s[1] == '-' {
		return -n
	}
	return n
}

// BinaryDouble is the double nearest to a whole number in base 2, 8 or 16, which is
// two to the power of bits. It is NaN for what is no such number. Its cost is that
// of one look at each digit, however many there are.
func BinaryDouble[T string | []byte](text T, bits uint) float64 {
	const full = 1 << 60 // more than a double holds, and room for one more digit
	if len(text) == 0 {
		return math.NaN()
	}
	var v uint64
	scale := 0
	for i := range len(text) {
		d := digitValue(text[i])
		switch {
		case d >= 1<<bits:
			return math.NaN()
		case v < full:
			v = v<<bits | d
		default:
			scale += int(bits)
			if d != 0 {
				v |= 1 // it only decides what is half way
			}
		}
	}
	return math.Ldexp(float64(v), scale)
}

// digitValue is the value of a hexadecimal digit, 16 for anything else.
func digitValue(c byte) uint64 {
	switch {
	case digit(c):
		return uint64(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return uint64(c|0x20-'a') + 10
	}
	return 16
}
