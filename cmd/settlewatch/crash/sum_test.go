package crash

import (
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// paidLine is a payment as a recorder writes it.
func paidLine(seller, asset, amount, at string) string {
	network, token, _ := strings.Cut(asset, "/")
	return `{"event_type":"x402.payment.submitted","occurred_at":"` + at + `","payload":{"requirements":{"network":"` + network +
		`","asset":"` + token + `","amount":"` + amount + `","pay_to":"` + seller + `"}}}`
}

func runFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "events"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, "events", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestPaymentsAreReadFromRunFilesAlone(t *testing.T) {
	const at = "2026-03-10T12:00:00.000Z"
	one := paidLine("0xAB", dollar, "300000", at)
	half := one[:len(one)/2]
	for _, c := range []struct {
		name  string
		files map[string]string
		paid  int
		torn  int
		fails bool
	}{
		{"nothing", nil, 0, 0, false},
		{"two runs", map[string]string{"a.ndjson": one + "\n" + one + "\n", "b.ndjson": one + "\n"}, 3, 0, false},
		{"other events do not pay", map[string]string{"a.ndjson": strings.Replace(one, "submitted", "responded", 1) + "\n"}, 0, 0, false},
		{"other files are no runs", map[string]string{"a.txt": one + "\n"}, 0, 0, false},
		{"a cut line has not paid", map[string]string{"a.ndjson": one + "\n" + half}, 1, 1, false},
		{"a line whose newline is missing has", map[string]string{"a.ndjson": one + "\n" + one}, 2, 0, false},
		{"a bad line in the middle is no sum", map[string]string{"a.ndjson": half + "\n" + one + "\n"}, 0, 0, true},
		{"an amount that is none is no sum", map[string]string{"a.ndjson": paidLine("0xAB", dollar, "3e5", at) + "\n" + one + "\n"}, 0, 0, true},
		{"a time that is none is no sum", map[string]string{"a.ndjson": paidLine("0xAB", dollar, "3", "noon") + "\n" + one + "\n"}, 0, 0, true},
	} {
		all, torn, err := payouts(runFiles(t, c.files))
		if len(all) != c.paid || torn != c.torn || (err != nil) != c.fails {
			t.Errorf("%s: %d payments, %d torn, %v", c.name, len(all), torn, err)
		}
	}
	all, _, err := payouts(runFiles(t, map[string]string{"a.ndjson": paidLine("0xAB", "eip155:1/0xCD", "115792089237316195423570985008687907853269984665640564039457584007913129639935", at)}))
	if err != nil || all[0].seller != "0xab" || all[0].asset != "eip155:1/0xcd" || all[0].amount.BitLen() != 256 {
		t.Errorf("%+v, %v", all, err)
	}
}

func payoutsAt(amounts string, times ...string) []payout {
	var all []payout
	for i, amount := range strings.Fields(amounts) {
		n, _ := new(big.Int).SetString(amount, 10)
		at, err := time.Parse("2 15:04", times[i])
		if err != nil {
			panic(err)
		}
		all = append(all, payout{seller: "s", asset: dollar, amount: n, at: at})
	}
	return all
}

func TestTheMostIsThatOfAnyWindow(t *testing.T) {
	for _, c := range []struct {
		name      string
		paid      []payout
		most, all string
	}{
		{"nothing", nil, "0", "0"},
		{"midnight divides nothing", payoutsAt("6 4", "1 23:59", "2 00:01"), "10", "10"},
		{"a day later is another window", payoutsAt("6 5", "1 23:59", "2 23:59"), "6", "11"},
		{"a minute less is not", payoutsAt("6 5", "1 23:59", "2 23:58"), "11", "11"},
		{"the order of writing is not that of time", payoutsAt("5 1 7", "3 12:00", "1 12:00", "3 11:00"), "12", "13"},
		{"the middle counts most", payoutsAt("1 8 8 1", "1 00:00", "2 00:00", "2 23:00", "4 00:00"), "16", "18"},
	} {
		most, all := most(c.paid, capWindow)
		if most.String() != c.most || all.String() != c.all {
			t.Errorf("%s: most %s of %s, want %s of %s", c.name, most, all, c.most, c.all)
		}
	}
}

func TestTheMostIsTheSameCountedTheLongWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		window := time.Duration(rapid.IntRange(1, 10).Draw(t, "window"))
		var paid []payout
		for range rapid.IntRange(0, 12).Draw(t, "n") {
			paid = append(paid, payout{amount: big.NewInt(rapid.Int64Range(0, 9).Draw(t, "amount")), at: time.Unix(0, rapid.Int64Range(0, 30).Draw(t, "at"))})
		}
		want := new(big.Int)
		for _, last := range paid {
			sum := new(big.Int)
			for _, p := range paid {
				if !p.at.After(last.at) && p.at.After(last.at.Add(-window)) {
					sum.Add(sum, p.amount)
				}
			}
			if sum.Cmp(want) > 0 {
				want = sum
			}
		}
		if got, _ := most(paid, window); got.Cmp(want) != 0 {
			t.Fatalf("%s, want %s", got, want)
		}
	})
}

func TestEveryCapIsHeldByItself(t *testing.T) {
	at := time.Unix(0, 0)
	pay := func(seller, asset, amount string, decimals int) payout {
		return payout{seller, asset, units(amount, decimals), at}
	}
	all := []payout{
		pay("a", dollar, "0.60", 6), pay("a", dollar, "0.60", 6), // 0.20 over
		pay("b", dollar, "1.00", 6), // full
		pay("a", ether, "20.000000000000000001", 18), pay("b", ether, "1.00", 18),
	}
	for _, c := range []struct {
		name       string
		l          ledger
		paid, over string
		full       int
	}{
		{"a cap of each seller", dollars("1.00", true), "2.20", "0.20", 1},
		{"one of all", dollars("1.00", false), "2.20", "1.20", 0},
		{"just not over", dollars("2.20", false), "2.20", "0.00", 1},
		{"another asset", ethers("20.00"), "21.000000000000000001", "0.000000000000000001", 0},
	} {
		got := c.l.add(all)
		if paid, over := display(got.paid, c.l.decimals), display(got.over, c.l.decimals); paid != c.paid || over != c.over || got.full != c.full {
			t.Errorf("%s: paid %s, over %s, %d full", c.name, paid, over, got.full)
		}
	}
}

func TestAmountsAreWrittenAsTheyAreRead(t *testing.T) {
	for _, c := range []struct {
		atomic   string
		decimals int
		want     string
	}{
		{"0", 6, "0.00"}, {"1", 6, "0.000001"}, {"10000", 6, "0.01"}, {"1000000", 6, "1.00"}, {"1500000", 6, "1.50"}, {"-400000", 6, "-0.40"},
		{"20000000000000000001", 18, "20.000000000000000001"}, {"7", 0, "7"}, {"7", 1, "0.7"},
	} {
		n, _ := new(big.Int).SetString(c.atomic, 10)
		if got := display(n, c.decimals); got != c.want {
			t.Errorf("%s of %d decimals is %s, want %s", c.atomic, c.decimals, got, c.want)
		}
		if n.Sign() >= 0 && c.decimals > 0 && units(c.want, c.decimals).Cmp(n) != 0 {
			t.Errorf("%s reads as %s", c.want, units(c.want, c.decimals))
		}
	}
}
