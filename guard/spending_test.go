package guard_test

import (
	"bytes"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
)

// bought is a payment as a test made it.
type bought struct {
	op            string
	at            time.Time
	payTo, host   string
	resource      string
	amount        *big.Int // nil: not to be read
	taken         *big.Int // what the answer said, where that is less
	euro          bool     // in another asset
	failed        bool     // for good
	resolved      string
	stated        *big.Int
	mayBeResolved bool
}

const (
	euroToken    = "0x60a3E35Cc302bFA44Cb288Bc5a4F316Fdb1adb42"
	spendingText = `{"trustSettledAmounts": %[1]t, "trustDefiniteFailures": %[1]t, "perCounterpartyLimit": {"amount": "1000000", "windowHours": 24},
	"assets": {"eip155:8453/0x60a3e35cc302bfa44cb288bc5a4f316fdb1adb42": {"symbol": "EURC", "decimals": 6}},
	"assetPolicies": {"eip155:8453/0x60a3e35cc302bfa44cb288bc5a4f316fdb1adb42": {"perCounterpartyLimit": {"amount": "1000000", "windowHours": 30}}},
	"limits": [
		{"name": "seller", "scope": "counterparty", "amount": "1000000", "windowHours": 6, "action": "block"},
		{"name": "seller's euros", "scope": "counterparty", "asset": "eip155:8453/0x60a3e35cc302bfa44cb288bc5a4f316fdb1adb42", "amount": "1000000", "windowHours": 7, "action": "block"},
		{"name": "payments to the seller", "scope": "counterparty", "count": 1000, "windowHours": 24, "action": "block"},
		{"name": "host", "scope": "host", "amount": "1000000", "windowHours": 24, "action": "block"},
		{"name": "payments at the host", "scope": "host", "count": 1000, "windowHours": 5, "action": "block"},
		{"name": "total", "scope": "total", "amount": "1000000", "windowHours": 24, "action": "block"},
		{"name": "payments", "scope": "total", "count": 1000, "windowHours": 23, "action": "block"}]}`
)

// make records a payment of some kind.
func (s *site) make(r *rand.Rand, run string, n int) bought {
	hosts := []string{"shop.example", "mall.example"}
	b := bought{op: fmt.Sprintf("op%d", n), at: s.clock.now(), payTo: []string{seller, other}[r.IntN(2)], host: hosts[r.IntN(2)], euro: r.IntN(4) == 0}
	b.resource = "https://" + b.host + "/report"
	b.amount = big.NewInt(r.Int64N(5_000_000) + 1)
	if r.IntN(6) == 0 { // above 64 bits
		b.amount.Lsh(b.amount, 60)
	}
	p := terms{payTo: b.payTo, amount: b.amount.String(), resource: b.resource}
	if b.euro {
		p.asset = euroToken
	}
	switch r.IntN(6) {
	case 0, 1:
		s.submit(run, b.op, p)
		s.settle(run, b.op, p)
	case 2:
		s.submit(run, b.op, p)
		b.mayBeResolved = true
	case 3:
		p.scheme = "upto"
		s.submit(run, b.op, p)
		b.taken = big.NewInt(r.Int64N(b.amount.Int64()&0xffff + 1))
		payload := p.payload()
		payload["settle"] = map[string]any{"success": true, "transaction": fmt.Sprintf("0x%064d", s.seq), "network": "eip155:8453", "amount": b.taken.String()}
		s.event(run, b.op, "x402.payment.responded", payload)
	case 4:
		s.submit(run, b.op, p)
		payload := p.payload()
		payload["settle"] = map[string]any{"success": false, "transaction": "", "network": "eip155:8453", "error_reason": "insufficient_funds"}
		s.event(run, b.op, "x402.settle.failed", payload)
		b.failed, b.mayBeResolved = true, true
	case 5:
		p.amount = "1e6"
		s.submit(run, b.op, p)
		b.amount, b.mayBeResolved = nil, true
	}
	return b
}

// counts is what a payment counts with under a policy that trusts, or does not; nil
// where it does not count, and of nothing where it cannot be added up.
func (b *bought) counts(trusts bool) *big.Int {
	switch {
	case b.resolved == "failed": // none of them is shown as settled
		return nil
	case b.resolved == "settled" && b.amount == nil && b.stated != nil:
		return b.stated
	case b.failed && trusts && b.resolved == "":
		return nil
	case b.amount == nil:
		return new(big.Int)
	case b.taken != nil && trusts:
		return b.taken
	}
	return b.amount
}

// What SQLite adds up inside an index and what is weighed payment by payment come to
// what the payments come to, whatever people found out of some of them.
func TestWhatWasSpentIsWhatThePaymentsComeTo(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 7))
		trusts := seed%2 == 0
		s := newSite(t, fmt.Sprintf(spendingText, trusts))
		var all []bought
		for n := range 40 {
			all = append(all, s.make(r, "r1", n))
			s.clock.add(time.Duration(r.IntN(90)) * time.Minute)
		}
		// The last ones lie in the future.
		s.clock.add(-2 * time.Hour)
		check := func() {
			t.Helper()
			for _, ask := range []guard.HeadroomQuery{{Counterparty: seller}, {Counterparty: "mall.example"}, {Counterparty: seller, Asset: "EURC"}} {
				s.cameTo(all, ask, trusts)
			}
		}
		check()
		for i := range all {
			b := &all[i]
			if !b.mayBeResolved || r.IntN(2) == 0 {
				continue
			}
			b.resolved = []string{"settled", "failed"}[r.IntN(2)]
			found := guard.Resolution{Ref: decision.Ref{Run: "r1", Operation: &b.op}, Outcome: b.resolved, Note: "asked"}
			if b.resolved == "settled" && b.amount == nil {
				b.stated = big.NewInt(r.Int64N(9_000_000) + 1)
				found.Amount = units(b.stated)
			}
			if err := s.Resolve(t.Context(), []guard.Resolution{found}); err != nil {
				t.Fatal(err)
			}
		}
		check()
	}
}

// units are atomic ones as they are shown.
func units(atomic *big.Int) string {
	return guard.DefaultPolicy().Units("eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913", atomic.String())
}

// cameTo holds what every limit says was spent to what the payments come to.
func (s *site) cameTo(all []bought, ask guard.HeadroomQuery, trusts bool) {
	s.t.Helper()
	h, err := s.Headroom(s.t.Context(), ask)
	if err != nil {
		s.t.Fatal(err)
	}
	euro := ask.Asset == "EURC"
	if len(h.Limits) < 4 && !euro {
		s.t.Fatalf("%+v", h.Limits)
	}
	for _, l := range h.Limits {
		since := s.clock.now().Add(-time.Duration(l.WindowHours) * time.Hour)
		var sum big.Int
		count := 0
		for i := range all {
			b := &all[i]
			mine := b.payTo == ask.Counterparty || b.host == ask.Counterparty
			if l.Scope == "total" {
				mine = true
			}
			amount := b.counts(trusts)
			if !mine || amount == nil || !b.at.After(since) || !l.Counts && b.euro != euro {
				continue
			}
			count++
			sum.Add(&sum, amount)
		}
		want := fmt.Sprint(count)
		if !l.Counts {
			want = units(&sum)
		}
		if l.Spent != want {
			s.t.Errorf("%+v: %s (%s, counts %t) spent %s, want %s", ask, l.Name, l.Scope, l.Counts, l.Spent, want)
		}
	}
	if !slices.ContainsFunc(h.Limits, func(l guard.HeadroomLimit) bool { return l.Spent != "0" }) {
		s.t.Errorf("%+v: nothing was spent", ask)
	}
}

// Nothing shows what a limit on a resource has counted, so it is asked at its edges.
func TestALimitOnAResourceAddsUpEachAssetAndEndsWithItsWindow(t *testing.T) {
	const policy = `{"perCounterpartyLimit": {"amount": "1000", "windowHours": 24}, "reviewAbove": "1000", "priceDriftRatio": "1000000",
	"assets": {"eip155:8453/0x60a3e35cc302bfa44cb288bc5a4f316fdb1adb42": {"symbol": "EURC", "decimals": 6}},
	"assetPolicies": {"eip155:8453/0x60a3e35cc302bfa44cb288bc5a4f316fdb1adb42": {"perCounterpartyLimit": {"amount": "1000", "windowHours": 24}, "reviewAbove": "1000"}},
	"limits": [%s]}`
	at := func(t *testing.T, limits string) *site {
		s := newSite(t, fmt.Sprintf(policy, limits))
		s.buy("r1", "first", terms{amount: "300000"})
		s.clock.add(time.Hour)
		s.buy("r1", "of another seller", terms{amount: "200000", payTo: other})
		s.buy("r1", "in euros", terms{amount: "1500000", asset: euroToken})
		s.buy("r1", "for something else", terms{amount: "900000", resource: shop + "?of=yesterday"})
		s.clock.add(23*time.Hour - time.Millisecond)
		return s
	}
	t.Run("amounts", func(t *testing.T) {
		s := at(t, `{"name": "dollars", "scope": "resource", "amount": "1.00", "windowHours": 24, "action": "block"},
		{"name": "euros", "scope": "resource", "asset": "eip155:8453/0x60a3e35cc302bfa44cb288bc5a4f316fdb1adb42", "amount": "2.00", "windowHours": 24, "action": "block"}`)
		s.want("allow", guard.Request{Amount: "0.5", Resource: shop})
		s.want("block", guard.Request{Amount: "0.500001", Resource: shop}, "limit:dollars")
		s.want("allow", guard.Request{Amount: "0.5", Resource: shop, Asset: "EURC"})
		s.want("block", guard.Request{Amount: "0.500001", Resource: shop, Asset: "EURC"}, "limit:euros")
		s.want("allow", guard.Request{Amount: "0.500001"})
		s.clock.add(time.Millisecond) // the first is as old as the window is long
		s.want("allow", guard.Request{Amount: "0.8", Resource: shop})
		s.want("block", guard.Request{Amount: "0.800001", Resource: shop}, "limit:dollars")
		s.want("block", guard.Request{Amount: "0.500001", Resource: shop, Asset: "EURC"}, "limit:euros")
	})
	t.Run("payments", func(t *testing.T) {
		s := at(t, `{"name": "any", "scope": "resource", "count": 3, "windowHours": 24, "action": "block"},
		{"name": "euros", "scope": "resource", "asset": "eip155:8453/0x60a3e35cc302bfa44cb288bc5a4f316fdb1adb42", "count": 1, "windowHours": 24, "action": "review"}`)
		s.want("block", guard.Request{Amount: "0.1", Resource: shop}, "limit:any")
		s.want("block", guard.Request{Amount: "0.1", Resource: shop, Asset: "EURC"}, "limit:any", "limit:euros")
		s.clock.add(time.Millisecond)
		s.want("allow", guard.Request{Amount: "0.1", Resource: shop})
		s.want("review", guard.Request{Amount: "0.1", Resource: shop, Asset: "EURC"}, "limit:euros")
		s.want("allow", guard.Request{Amount: "0.1", Resource: shop + "?of=today"})
	})
}

// A guard remembers what people have resolved from one question to the next; one that
// was just opened does not, and both say the same, whatever became of the run files.
func TestAGuardThatRemembersAnswersLikeANewOne(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 11))
		policy := fmt.Sprintf(spendingText, seed%2 == 0)
		s := newSite(t, policy)
		made := map[string][]bought{}
		runs := []string{"r1", "r2", "r3"}
		resolved := 0
		resolve := func(run string, b *bought) {
			ref := decision.Ref{Run: run, Operation: &b.op}
			if s.state().Resolution(ref) != nil {
				if err := s.Unresolve(t.Context(), ref, ""); err != nil {
					t.Fatal(err)
				}
				return
			}
			// What the trace has settled is not resolved as failed, and what is gone not at all.
			_ = s.Resolve(t.Context(), []guard.Resolution{{Ref: ref, Outcome: []string{"settled", "failed"}[r.IntN(2)], Note: "asked"}})
		}
		for n := range 50 {
			run := runs[r.IntN(len(runs))]
			all := made[run]
			switch act := r.IntN(17); {
			case act < 6 || len(all) == 0:
				made[run] = append(all, s.make(r, run, n))
			case act < 13:
				resolve(run, &all[r.IntN(len(all))])
			case act == 13: // it is paid once more
				b := &all[r.IntN(len(all))]
				s.submit(run, b.op, terms{payTo: b.payTo, resource: b.resource})
			case act == 14:
				if _, _, err := s.Baseline(t.Context(), "the past", nil); err != nil {
					t.Fatal(err)
				}
			case act == 15: // the run begins anew
				text, err := os.ReadFile(s.run(run))
				if err != nil {
					t.Fatal(err)
				}
				lines := bytes.SplitAfter(text, []byte("\n"))
				s.write(s.run(run), bytes.Join(lines[:len(lines)/2], nil))
			default:
				if err := os.Remove(s.run(run)); err != nil {
					t.Fatal(err)
				}
				made[run] = nil
			}
			s.clock.add(time.Duration(r.IntN(240)) * time.Minute)
			for range s.state().Resolutions() {
				resolved++
				break
			}
			if r.IntN(3) == 0 {
				continue // much may have happened when it is asked again
			}
			fresh := s.beside(policy, nil)
			for _, ask := range []guard.HeadroomQuery{{Counterparty: seller}, {Counterparty: "mall.example"}} {
				got, err := s.Headroom(t.Context(), ask)
				if err != nil {
					t.Fatal(err)
				}
				want, err := fresh.Headroom(t.Context(), ask)
				if err != nil || !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d, step %d: %+v\ngot  %+v\nwant %+v, %v", seed, n, ask, got, want, err)
				}
			}
			request := guard.Request{Counterparty: seller, Amount: "0.02"}
			got, want := s.ask(request), fresh.ask(request)
			if got.Decision != want.Decision || !reflect.DeepEqual(got.Reasons, want.Reasons) {
				t.Fatalf("seed %d, step %d:\ngot  %+v\nwant %+v", seed, n, got, want)
			}
		}
		if resolved < 20 {
			t.Errorf("seed %d: operations were resolved at %d steps only", seed, resolved)
		}
	}
}
