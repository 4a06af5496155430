package market

import (
	"math/big"
	"strconv"
	"strings"
)

// Digits a number may have before and after its point. The largest amount there is
// has thirteen; a price of a coin has up to twelve decimals.
const (
	maxWhole    = 16
	maxDecimals = 18
)

// decimal writes a JSON number, or a text of that form, as decimal text: no
// exponent, no zeros that say nothing. ok is false for anything else and for what
// has more digits than any number of an offer.
func decimal(text string) (exact string, ok bool) {
	if len(text) > 64 || !numberForm.matches(text) {
		return "", false
	}
	sign := ""
	if text[0] == '-' {
		sign, text = "-", text[1:]
	}
	shift := 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		shift, _ = strconv.Atoi(text[i+1:]) // of at most three digits
		text = text[:i]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	point := len(whole) + shift
	all := whole + fraction
	if lead := len(all) - len(strings.TrimLeft(all, "0")); lead > 0 {
		all, point = all[lead:], point-lead
	}
	all = strings.TrimRight(all, "0")
	switch {
	case all == "":
		return "0", true
	case point > maxWhole || len(all)-point > maxDecimals:
		return "", false
	case point <= 0:
		return sign + "0." + strings.Repeat("0", -point) + all, true
	case point >= len(all):
		return sign + all + strings.Repeat("0", point-len(all)), true
	default:
		return sign + all[:point] + "." + all[point:], true
	}
}

// compare compares two decimal texts exactly.
func compare(a, b string) int {
	x, _ := new(big.Rat).SetString(a)
	y, _ := new(big.Rat).SetString(b)
	return x.Cmp(y)
}
