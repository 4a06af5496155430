package payment

import (
	"fmt"
	"math/big"
	"strings"
)

// MaxDigits is the longest amount that is read. A uint256 has 78 digits; what is
// longer than this is no amount of anything.
const MaxDigits = 1024

// Amount reads an amount of atomic units: decimal digits without sign, leading
// zero, point, exponent or padding. Anything else, and empty text, is not ok and
// is never read as zero (guard contract, sections 1 and 3). The canonical form
// is the text itself.
func Amount(s string) (canon string, ok bool) {
	if !isAmount(s) {
		return "", false
	}
	return s, true
}

func isAmount[T string | []byte](s T) bool {
	if len(s) == 0 || len(s) > MaxDigits || s[0] == '0' && len(s) > 1 {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i]-'0' > 9 {
			return false
		}
	}
	return true
}

// Add is the exact sum of two amounts. It is an error when either is not
// canonical or the sum is longer than MaxDigits: sums never wrap and never round
// (guard contract, section 3).
func Add(a, b string) (string, error) {
	if !isAmount(a) || !isAmount(b) {
		return "", fmt.Errorf("add the amounts %.40q and %.40q: not whole atomic units", a, b)
	}
	switch {
	case a == "0":
		return b, nil
	case b == "0":
		return a, nil
	}
	var x, y big.Int
	x.SetString(a, 10)
	y.SetString(b, 10)
	sum := x.Add(&x, &y).String()
	if len(sum) > MaxDigits {
		return "", fmt.Errorf("add two amounts: the sum has more than %d digits", MaxDigits)
	}
	return sum, nil
}

// Cmp compares two canonical amounts. Without leading zeros a longer amount is a
// larger one, so no arithmetic is needed.
func Cmp(a, b string) int {
	if len(a) != len(b) {
		if len(a) < len(b) {
			return -1
		}
		return 1
	}
	return strings.Compare(a, b)
}

// larger is the larger of two amounts, and unreadable when either is.
func larger(a, b string) string {
	if a == "" || b == "" {
		return ""
	}
	if Cmp(a, b) < 0 {
		return b
	}
	return a
}
