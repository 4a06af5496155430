package payment

import (
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAmount(t *testing.T) {
	for _, good := range []string{"0", "1", "10000", "115792089237316195423570985008687907853269984665640564039457584007913129639935", "1" + strings.Repeat("0", MaxDigits-1)} {
		if got, ok := Amount(good); !ok || got != good {
			t.Errorf("Amount(%.20q) = %.20q, %v", good, got, ok)
		}
	}
	for what, bad := range map[string]string{
		"empty": "", "negative": "-1", "a plus": "+1", "an exponent": "1e6", "a fraction": "1.0", "a point": "1.", "a leading zero": "01",
		"two zeros": "00", "padding before": " 1", "padding after": "1 ", "a line break": "1\n", "hexadecimal": "0x10", "separators": "1,000",
		"underscores": "1_000", "full width": "１", "Arabic digits": "١", "infinity": "Infinity", "not a number": "NaN", "a NUL": "1\x00",
		"a digit beyond the cap": "1" + strings.Repeat("0", MaxDigits),
	} {
		if got, ok := Amount(bad); ok || got != "" {
			t.Errorf("%s: Amount(%.20q) = %.20q, %v", what, bad, got, ok)
		}
	}
}

func TestSumsAreExact(t *testing.T) {
	amount := rapid.StringMatching(`0|[1-9][0-9]{0,90}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := amount.Draw(t, "a"), amount.Draw(t, "b")
		x, _ := new(big.Int).SetString(a, 10)
		y, _ := new(big.Int).SetString(b, 10)
		sum, err := Add(a, b)
		if err != nil || sum != new(big.Int).Add(x, y).String() {
			t.Fatalf("Add = %q, %v", sum, err)
		}
		if Cmp(a, b) != x.Cmp(y) {
			t.Fatalf("Cmp(%s, %s) = %d", a, b, Cmp(a, b))
		}
	})
}

func TestSumsThatCannotBeMadeAreErrors(t *testing.T) {
	top := strings.Repeat("9", MaxDigits)
	for what, c := range map[string][2]string{
		"unreadable": {"1", "x"}, "empty": {"", "1"}, "overflow": {top, "1"}, "negative": {"-1", "1"},
	} {
		if sum, err := Add(c[0], c[1]); err == nil || sum != "" {
			t.Errorf("%s: %.10q, %v", what, sum, err)
		}
	}
	if sum, err := Add(top, "0"); err != nil || sum != top {
		t.Errorf("the largest amount and nothing: %v", err)
	}
}
