package guard

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

func TestUnitsMoveThePoint(t *testing.T) {
	for _, c := range []struct {
		atomic   string
		decimals int
		want     string
	}{
		{"0", 6, "0.00"}, {"1", 6, "0.000001"}, {"10", 6, "0.00001"}, {"10000", 6, "0.01"}, {"1500000", 6, "1.50"}, {"1000000", 6, "1.00"}, {"1234567", 6, "1.234567"},
		{"0", 0, "0"}, {"120", 0, "120"}, {"5", 1, "0.5"}, {"50", 1, "5.0"}, {"123", 2, "1.23"}, {"100", 2, "1.00"}, {"1", 18, "0.000000000000000001"},
		{"115792089237316195423570985008687907853269984665640564039457584007913129639935", 18, "115792089237316195423570985008687907853269984665640564039457.584007913129639935"},
	} {
		if got := unscale(c.atomic, c.decimals); got != c.want {
			t.Errorf("%s with %d decimals is %s, want %s", c.atomic, c.decimals, got, c.want)
		}
		if back, why := scale(c.want, c.decimals); why != "" || back != c.atomic {
			t.Errorf("%s with %d decimals is %s, want %s (%s)", c.want, c.decimals, back, c.atomic, why)
		}
	}
}

func TestScaleRefusesWhatItCannotHold(t *testing.T) {
	for _, c := range []struct {
		display  string
		decimals int
		want     string
	}{
		{"", 6, notDecimal}, {".", 6, notDecimal}, {"1.", 6, notDecimal}, {".1", 6, notDecimal}, {"01", 6, notDecimal}, {"00", 6, notDecimal}, {"-1", 6, notDecimal}, {"+1", 6, notDecimal},
		{"1e6", 6, notDecimal}, {"1 ", 6, notDecimal}, {"1,5", 6, notDecimal}, {"1_000", 6, notDecimal}, {"0x10", 6, notDecimal}, {"1.2.3", 6, notDecimal}, {"１", 6, notDecimal}, {"NaN", 6, notDecimal}, {"1\n", 6, notDecimal},
		{"1.1234567", 6, "has 7 fraction digits"}, {"1.0000000", 6, "has 7 fraction digits"}, {"1.0", 0, "has 1 fraction digit"},
		{"1" + strings.Repeat("0", payment.MaxDigits-6), 6, tooLarge}, {strings.Repeat("9", payment.MaxDigits+1), 0, tooLarge},
	} {
		if got, why := scale(c.display, c.decimals); why != c.want || got != "" {
			t.Errorf("%.40q with %d decimals: %q, %q, want %q", c.display, c.decimals, got, why, c.want)
		}
	}
	if got, why := scale(strings.Repeat("9", payment.MaxDigits-6), 6); why != "" || len(got) != payment.MaxDigits {
		t.Errorf("the largest amount: %d digits, %q", len(got), why)
	}
}

// atomicAmount is an amount of any size that is read.
func atomicAmount() *rapid.Generator[string] {
	return rapid.OneOf(rapid.Just("0"), rapid.StringMatching(`[1-9][0-9]{0,5}`), rapid.StringMatching(`[1-9]0{0,30}`), rapid.StringMatching(`[1-9][0-9]{0,90}`),
		rapid.Map(rapid.IntRange(1, payment.MaxDigits), func(n int) string { return strings.Repeat("9", n) }))
}

func TestDisplayAndAtomicAreEachOthersInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		atomic := atomicAmount().Draw(t, "atomic")
		decimals := rapid.IntRange(0, maxDecimals).Draw(t, "decimals")
		p := &Policy{Assets: map[string]Asset{"fiat/X": {Symbol: "X", Decimals: decimals}}}
		units := p.Units("fiat/X", atomic)
		back, err := p.Atomic("fiat/X", units)
		if err != nil || back != atomic {
			t.Fatalf("%s with %d decimals is %s, which is %s (%v)", atomic, decimals, units, back, err)
		}
		if got := p.Display("fiat/X", atomic); got != units+" X" {
			t.Fatalf("%s, want %s X", got, units)
		}
		whole, fraction, ok := cutDecimal(units)
		if !ok || len(fraction) < min(2, decimals) || len(fraction) > max(2, decimals) || len(fraction) > 2 && strings.HasSuffix(fraction, "0") {
			t.Fatalf("%s with %d decimals is spelt %s", atomic, decimals, units)
		}
		// The order of the texts is that of the numbers.
		more, err := payment.Add(atomic, "1")
		if err == nil && len(more) <= payment.MaxDigits {
			if next, _, _ := cutDecimal(p.Units("fiat/X", more)); payment.Cmp(next, whole) < 0 {
				t.Fatalf("%s becomes %s", units, p.Units("fiat/X", more))
			}
		}
	})
}

func TestEverySpellingOfAnAmountIsTheAmount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		display := rapid.StringMatching(`(0|[1-9][0-9]{0,40})(\.[0-9]{1,18})?`).Draw(t, "display")
		decimals := rapid.IntRange(0, 18).Draw(t, "decimals")
		atomic, why := scale(display, decimals)
		_, fraction, _ := cutDecimal(display)
		if (why == "") != (len(fraction) <= decimals) {
			t.Fatalf("%s with %d decimals: %s", display, decimals, why)
		}
		if why != "" {
			return
		}
		if short := shortDecimal(unscale(atomic, decimals)); short != shortDecimal(display) {
			t.Fatalf("%s came back as %s", display, short)
		}
		if longer, why := scale(shortDecimal(display), decimals); why != "" || longer != atomic {
			t.Fatalf("%s is %s, in short %s", display, atomic, longer)
		}
	})
}

func TestAmountsForPeople(t *testing.T) {
	p := mustPolicy(t, `{"assets": {"eip155:8453/0x4200000000000000000000000000000000000006": {"decimals": 18}}}`)
	for _, c := range []struct{ what, asset, atomic, want string }{
		{"an asset with a symbol", baseUSDC, "1500000", "1.50 USDC"},
		{"an asset without one", "eip155:8453/0x4200000000000000000000000000000000000006", "1", "0.000000000000000001 of eip155:8453/0x4200000000000000000000000000000000000006"},
		{"an asset that is not registered", mainUSDT, "15", "15 atomic units of " + mainUSDT},
		{"no asset", "", "15", "15 atomic units of an unknown asset"},
		{"no amount", baseUSDC, "", "an unknown amount"},
		{"a seller's asset that would paint the terminal", "eip155:8453/\x1b[31mred", "15", "15 atomic units of eip155:8453/red"},
	} {
		if got := p.Display(c.asset, c.atomic); got != c.want {
			t.Errorf("%s: %q", c.what, got)
		}
	}
	for _, c := range []struct{ asset, atomic, want string }{{baseUSDC, "1", "0.000001"}, {mainUSDT, "1", "1"}, {baseUSDC, "", ""}} {
		if got := p.Units(c.asset, c.atomic); got != c.want {
			t.Errorf("%s of %s: %q", c.atomic, c.asset, got)
		}
	}
}

func TestAtomicSaysWhy(t *testing.T) {
	p := DefaultPolicy()
	for _, c := range []struct{ asset, display, want string }{
		{mainUSDT, "1", "decimals are not known"}, {baseUSDC, "one", "is not decimal text"}, {baseUSDC, "-1", "is not decimal text"}, {baseUSDC, "0.0000001", "7 fraction digits, and USDC has 6"},
		{baseUSDC, strings.Repeat("9", 2000), "larger than any amount"},
	} {
		got, err := p.Atomic(c.asset, c.display)
		if e := new(errcode.Error); got != "" || !errors.As(err, &e) || e.Code != errcode.Input || !strings.Contains(e.Message, c.want) {
			t.Errorf("%.20s: %q, %v", c.display, got, err)
		}
	}
	if got, err := p.Atomic(baseUSDC, "0.00"); err != nil || got != "0" {
		t.Errorf("%q, %v", got, err)
	}
}

// Guard contract, section 3: "A symbol names the default asset if that bears it,
// else the only entry that bears it, else nothing".
func TestResolve(t *testing.T) {
	const (
		sol  = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp/EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v"
		twin = "0x1111111111111111111111111111111111111111"
	)
	p := mustPolicy(t, `{"assets": {"`+mainUSDT+`": {"symbol": "USDT", "decimals": 6}, "`+sol+`": {"symbol": "USDC", "decimals": 6},
		"eip155:10/`+twin+`": {"symbol": "A", "decimals": 6}, "eip155:137/`+twin+`": {"symbol": "B", "decimals": 6}, "fiat/EUR": {"decimals": 2},
		"eip155:10/0x2222222222222222222222222222222222222222": {"symbol": "A", "decimals": 6}}}`)
	for _, c := range []struct{ what, typed, want, why string }{
		{"nothing is the default", "", baseUSDC, ""},
		{"a key", mainUSDT, mainUSDT, ""},
		{"a key in capitals", "eip155:1/0XDAC17F958D2EE523A2206206994597C13D831EC7", mainUSDT, ""},
		{"a key with a word of version 1", "ethereum/0xdAC17F958D2ee523a2206206994597C13D831ec7", mainUSDT, ""},
		{"a key nobody registered", "eip155:1/0x0000000000000000000000000000000000000001", "", "is not in the policy's assets"},
		{"a testnet's address under a mainnet", "eip155:8453/0x036cbd53842c5426634e7929541ec2318f3dcf7e", "", "is not in the policy's assets"},
		{"half a key", "eip155:8453/", "", "is not in the policy's assets"},
		{"a symbol the default bears among others", "USDC", baseUSDC, ""},
		{"a symbol one entry bears", "USDT", mainUSDT, ""},
		{"a symbol two entries bear", "A", "", "2 assets of the policy are called"},
		{"a symbol nobody bears", "DAI", "", "is not in the policy's assets"},
		{"a symbol in another case", "usdt", "", "letter by letter, and there is USDT"},
		{"a symbol with padding", " USDC", "", "is not in the policy's assets"},
		{"an address", "0xdAC17F958D2ee523a2206206994597C13D831ec7", mainUSDT, ""},
		{"the default's address", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913", baseUSDC, ""},
		{"an address on two networks", twin, "", "2 assets of the policy are called"},
		{"an address of Solana", "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v", sol, ""},
		{"one of its letters in another case", "ePjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v", "", "is not in the policy's assets"},
		{"what follows the network", "EUR", "fiat/EUR", ""},
	} {
		key, why := p.resolve(c.typed)
		if key != c.want || !strings.Contains(why, c.why) || (why == "") != (c.why == "") {
			t.Errorf("%s: %q, %q", c.what, key, why)
		}
	}
	other := mustPolicy(t, `{"defaultAsset": "`+sepoliaUSDC+`"}`)
	if key, _ := other.resolve("USDC"); key != sepoliaUSDC {
		t.Errorf("with another default a symbol is %q", key)
	}
	third := mustPolicy(t, `{"defaultAsset": "`+mainUSDT+`", "assets": {"`+mainUSDT+`": {"symbol": "USDT", "decimals": 6}}}`)
	if key, why := third.resolve("USDC"); key != "" || !strings.Contains(why, "2 assets") {
		t.Errorf("a symbol of the two built-in assets is %q, %q", key, why)
	}
}
