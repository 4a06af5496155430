package guard

import (
	"encoding/json"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestANumberOfJSONIsReadAsItsExactDecimal(t *testing.T) {
	for number, want := range map[string]string{
		"0": "0", "-0": "0", "-0.0e5": "0", "100": "100", "100.0": "100", "1e2": "100", "1E+2": "100", "12.50": "12.5", "5e-3": "0.005", "1.25e1": "12.5",
		"0.1": "0.1", "123456789012345678901234567890.5": "123456789012345678901234567890.5",
	} {
		if got, ok := plainDecimal(number); got != want || !ok {
			t.Errorf("%s is read as %q, %v, want %s", number, got, ok, want)
		}
	}
	for _, number := range []string{"", "-1", "-0.1", "-1e-5", "1e61", "1e-61", "1e999999999999999999999", strings.Repeat("1", 81), `"1"`, "null", "true", "[1]", "1/2", "0x1"} {
		if got, ok := plainDecimal(number); ok {
			t.Errorf("%s is read as %s", number, got)
		}
	}
	form := regexp.MustCompile(`^(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$`)
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.StringMatching(`(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
		got, ok := plainDecimal(number)
		if !ok {
			if _, exponent, _ := strings.Cut(strings.ToLower(number), "e"); len(strings.Trim(exponent, "+-")) < 2 {
				t.Fatalf("%s is not read", number)
			}
			return
		}
		want, good := new(big.Rat).SetString(number)
		have, plain := new(big.Rat).SetString(got)
		if !good || !plain || want.Cmp(have) != 0 || !form.MatchString(got) {
			t.Fatalf("%s is read as %s", number, got)
		}
	})
}

func FuzzFinanceArguments(f *testing.F) {
	for _, t := range FinanceTools {
		f.Add(t.Name, `{"symbol":"IBM","side":"BUY","quantity":1,"notional":61.5}`)
		f.Add(t.Name, `{"from_account":"a","to_account":"b","amount":1e2,"confidence":0.5}`)
		f.Add(t.Name, `{"portfolio_id":"p","notional":1,"target_weights":{"a":0.5}}`)
	}
	g := &Guard{policy: DefaultPolicy()}
	f.Fuzz(func(t *testing.T, tool, args string) {
		q := g.financeCase("request_authorization", FinanceRequest{Tool: tool, Args: json.RawMessage(args)})
		if q.wrong != "" {
			return
		}
		// What was read has an amount, and says the same when it is read again.
		if _, ok := plainDecimal(q.spend.Notional); !ok || !json.Valid(q.call.Arguments) {
			t.Fatalf("%+v %s", q.spend, q.call.Arguments)
		}
	})
}
