package guard_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
)

const (
	euro = "eip155:8453/0x60a3e35cc302bfa44cb288bc5a4f316fdb1adb42"
	// manyCoins lets everything pass but for what its limits say.
	manyCoins = `{"perCounterpartyLimit": {"amount": "1000", "windowHours": 24}, "reviewAbove": "1000",
	"assets": {"` + euro + `": {"symbol": "EURC", "decimals": 6}},
	"assetPolicies": {"` + euro + `": {"perCounterpartyLimit": {"amount": "1000", "windowHours": 24}, "reviewAbove": "1000"}},
	"counterpartyAliases": {"shop.example": ["mall.example", "` + other + `"]},
	"limits": [%s]}`
)

// What is held under any name of a seller counts in the limit that judges them all.
func TestALimitOnAHostCountsEveryNameOfTheSeller(t *testing.T) {
	const limit = `{"name": "h", "scope": "host", "amount": "0.10", "windowHours": 24, "action": "block"}`
	names := []string{other, "shop.example", "mall.example"}
	for _, first := range names {
		for _, then := range names {
			s := newSite(t, fmt.Sprintf(manyCoins, limit))
			for range 2 {
				s.want("allow", guard.Request{Counterparty: first, Amount: "0.05", Hold: true})
			}
			s.want("block", guard.Request{Counterparty: then, Amount: "0.000001"}, "limit:h")
			h, err := s.Headroom(t.Context(), guard.HeadroomQuery{Counterparty: then})
			if err != nil || len(h.Limits) != 2 || h.Limits[1].Held != "0.10" || h.Limits[1].Headroom != "0.00" {
				t.Errorf("%s, then %s: %+v, %v", first, then, h, err)
			}
		}
	}
	s := newSite(t, fmt.Sprintf(manyCoins, limit))
	s.buy("r1", "op1", terms{payTo: other, amount: "100000", resource: "https://elsewhere.example/"})
	s.want("block", guard.Request{Counterparty: "shop.example", Amount: "0.000001"}, "limit:h")
}

func TestALimitInAnAssetIsAboutPaymentsInIt(t *testing.T) {
	for _, scope := range []string{"counterparty", "host", "resource", "asset", "total"} {
		t.Run(scope, func(t *testing.T) {
			s := newSite(t, fmt.Sprintf(manyCoins, `{"name": "euros", "scope": "`+scope+`", "asset": "`+euro+`", "count": 2, "windowHours": 24, "action": "block"}`))
			s.buy("r1", "op1", terms{asset: euroToken})
			s.buy("r1", "op2", terms{asset: euroToken})
			s.want("allow", guard.Request{Amount: "0.01", Resource: shop})
			s.want("block", guard.Request{Amount: "0.01", Resource: shop, Asset: "EURC"}, "limit:euros")
		})
	}
}

func TestALimitOfScopeAssetIsAboutTheDefaultAssetWhereItNamesNone(t *testing.T) {
	s := newSite(t, fmt.Sprintf(manyCoins, `{"name": "two", "scope": "asset", "count": 2, "windowHours": 24, "action": "block"}`))
	s.buy("r1", "op1", terms{})
	s.buy("r1", "op2", terms{asset: euroToken})
	s.want("allow", guard.Request{Amount: "0.01"})
	s.buy("r1", "op3", terms{})
	s.want("block", guard.Request{Amount: "0.01"}, "limit:two")
	s.want("allow", guard.Request{Amount: "0.01", Asset: "EURC"})
}

// A limit in shadow mode, or in another asset, is not a reason to look further back.
func TestWhatALimitOnlyReportsDecidesNothing(t *testing.T) {
	for name, test := range map[string]struct{ limit, want string }{
		"none":                               {``, "allow"},
		"enforced":                           {`{"name": "l", "scope": "host", "count": 1000, "windowHours": 720, "action": "review"}`, "review"},
		"shadow":                             {`{"name": "l", "scope": "host", "count": 1000, "windowHours": 720, "action": "review", "mode": "shadow"}`, "allow"},
		"shadow, on the counterparty":        {`{"name": "l", "scope": "counterparty", "amount": "1000", "windowHours": 720, "action": "block", "mode": "shadow"}`, "allow"},
		"in another asset than is asked for": {`{"name": "l", "scope": "counterparty", "asset": "` + euro + `", "amount": "1000", "windowHours": 720, "action": "block"}`, "allow"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, fmt.Sprintf(manyCoins, test.limit))
			s.buy("r1", "op1", terms{amount: "+1"})
			s.clock.add(30 * time.Hour)
			var rules []string
			if test.want == "review" {
				rules = []string{"unparseable_history"}
			}
			s.want(test.want, guard.Request{Amount: "0.01"}, rules...)
		})
	}
}

// An approval covers the damage that a person was shown, so of more than is listed none.
func TestAnApprovalCoversNoMoreDamageThanIsListed(t *testing.T) {
	for runs, want := range map[int]string{20: "allow", 21: "review"} {
		s := newSite(t, "")
		for i := range runs {
			s.raw(fmt.Sprintf("d%02d", i), "{bad\n")
		}
		s.clock.add(time.Minute)
		v := s.want("review", guard.Request{}, "damaged_history")
		if told := strings.Contains(v.Reasons[0].Detail, "more than an approval can cover"); told != (want == "review") {
			t.Errorf("%d runs: %s", runs, v.Reasons[0].Detail)
		}
		s.decide("approved", v.ReviewID)
		if got := s.ask(guard.Request{ReviewID: v.ReviewID}); got.Decision != want {
			t.Errorf("%d runs: %s by %+v", runs, got.Decision, got.Reasons)
		}
	}
}

// A limit whose window holds payments that cannot be added up leaves nothing that could
// be relied on: every check that counts them is a review.
func TestHeadroomSaysWhatCannotBeAddedUp(t *testing.T) {
	s := newSite(t, `{"perCounterpartyLimit": {"amount": "5.00", "windowHours": 24}, "limits": [
		{"name": "day", "scope": "total", "amount": "20.00", "windowHours": 24, "action": "block"},
		{"name": "host", "scope": "host", "amount": "9.00", "windowHours": 48, "action": "block"},
		{"name": "calls", "scope": "total", "count": 100, "windowHours": 24, "action": "block"}]}`)
	uncounted := func(want ...int64) {
		t.Helper()
		h, err := s.Headroom(t.Context(), guard.HeadroomQuery{Counterparty: "shop.example"})
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, l := range h.Limits { // of the counterparty, then as in the policy
			got = append(got, l.Uncounted)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d, want %d", got, want)
		}
	}
	s.buy("r1", "sound", terms{})
	uncounted(0, 0, 0, 0)
	s.submit("r1", "unread", terms{amount: "a lot"})
	uncounted(1, 1, 1, 0)
	s.submit("r1", "elsewhere", terms{amount: "a lot", resource: "https://good.example/"})
	uncounted(1, 2, 1, 0)
	s.submit("r1", "mixed", terms{asset: other})
	uncounted(2, 2, 2, 0)
	s.clock.add(25 * time.Hour)
	uncounted(0, 0, 2, 0)
}
