package guard_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
)

func TestAPaymentToSomebodyNewIsAllowed(t *testing.T) {
	s := newSite(t, "")
	v := s.want("allow", guard.Request{})
	if v.Checked.Runs != 1 || v.Checked.Events != 1 {
		t.Errorf("checked %+v", v.Checked)
	}
	st := s.state()
	if st.Lines() != 3 { // policy, seen, allowed
		t.Errorf("%d lines in the log", st.Lines())
	}
	s.want("allow", guard.Request{})
	if n := s.state().Lines(); n != 3 {
		t.Errorf("the same verdict within a minute made %d lines", n)
	}
}

func TestAnUnansweredPaymentIsForAPerson(t *testing.T) {
	s := newSite(t, "")
	s.submit("r1", "op1", terms{})
	v := s.want("review", guard.Request{Amount: "0.25"}, "open_partial")
	if len(v.Reasons[0].Evidence) != 1 || *v.Reasons[0].Evidence[0].Operation != "op1" {
		t.Errorf("evidence %+v", v.Reasons[0].Evidence)
	}
	again := s.want("review", guard.Request{Amount: "0.25"}, "open_partial")
	if again.ReviewID != v.ReviewID || v.ReviewID == "" {
		t.Errorf("the same question has two reviews: %s, %s", v.ReviewID, again.ReviewID)
	}
	s.want("review", guard.Request{Amount: "0.50"}, "open_partial", "duplicate_purchase")
	s.settle("r1", "op1", terms{})
	s.want("allow", guard.Request{Amount: "0.25"})
}

func TestTheOldestOfTheReviewsThatWaitIsKnown(t *testing.T) {
	s := newSite(t, "")
	waiting := func(want int, since time.Time) {
		t.Helper()
		n, oldest, err := s.Waiting(t.Context())
		if err != nil || n != want || !oldest.Equal(since) {
			t.Errorf("%d wait, the oldest since %s, %v; want %d since %s", n, oldest, err, want, since)
		}
	}
	waiting(0, time.Time{})
	s.submit("r1", "op1", terms{})
	first := s.clock.now()
	older := s.want("review", guard.Request{Amount: "0.25"}, "open_partial")
	s.clock.add(time.Hour)
	s.want("review", guard.Request{Amount: "0.26"}, "open_partial")
	waiting(2, first)
	s.decide("rejected", older.ReviewID)
	waiting(1, first.Add(time.Hour))
}

func TestARejectionSticksAndAnApprovalIsUsedOnce(t *testing.T) {
	s := newSite(t, "")
	s.submit("r1", "op1", terms{})
	v := s.want("review", guard.Request{Amount: "0.25"}, "open_partial")
	s.decide("rejected", v.ReviewID)
	s.want("block", guard.Request{Amount: "0.25"}, "rejected_by_human", "open_partial")
	s.want("review", guard.Request{Amount: "0.24"}, "recently_rejected", "open_partial")
	s.clock.add(25 * time.Hour)

	v = s.want("review", guard.Request{Amount: "0.25"}, "open_partial")
	s.decide("approved", v.ReviewID)
	s.want("review", guard.Request{Amount: "0.25"}, "open_partial")
	got := s.want("allow", guard.Request{Amount: "0.25", ReviewID: v.ReviewID}, "approved_by_human")
	if got.Hold == nil || got.Hold.Amount != "0.25" {
		t.Fatalf("hold %+v", got.Hold)
	}
	s.want("review", guard.Request{Amount: "0.25", ReviewID: v.ReviewID}, "open_partial")
	view, err := s.Review(t.Context(), v.ReviewID, 0)
	if err != nil || view.Status != "used" || view.Used.HoldID != got.Hold.ID {
		t.Errorf("%+v, %v", view, err)
	}
}

func TestWhoDiffersByALettersCaseIsAnotherPayee(t *testing.T) {
	const listed = "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV"
	s := newSite(t, `{"denylist": ["`+listed+`"], "perCounterpartyLimit": {"amount": "1.00", "windowHours": 24}}`)
	another := "7ec" + listed[3:]
	s.want("block", guard.Request{Counterparty: listed, Amount: "0.60"}, "denylist")
	s.want("allow", guard.Request{Counterparty: another, Amount: "0.60", Hold: true})
	s.want("allow", guard.Request{Counterparty: strings.ToLower(listed), Amount: "0.60"})
	s.want("review", guard.Request{Counterparty: another, Amount: "0.60"}, "per_counterparty_limit")
	third := "7eC" + listed[3:]
	s.want("allow", guard.Request{Counterparty: third, Amount: "0.60"}) // what is held is held for another
}

func TestEightCharactersOfAReviewsIDAreEnough(t *testing.T) {
	s := newSite(t, "")
	id := s.want("review", guard.Request{Amount: "2"}, "review_above").ReviewID
	for name, c := range map[string]struct {
		typed string
		found bool
	}{
		"all of it":               {id, true},
		"eight with the kind":     {id[:8], true},
		"eight without the kind":  {id[2:10], true},
		"seven with the kind":     {id[:7], false},
		"seven without the kind":  {id[2:9], false},
		"the kind alone":          {"r-", false},
		"eight that begin nobody": {id[3:11], false},
	} {
		view, err := s.Review(t.Context(), c.typed, 0)
		if (err == nil) != c.found || c.found && view.ID != id {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHoldsCountUntilTheirPaymentIsSeen(t *testing.T) {
	s := newSite(t, `{"perCounterpartyLimit": {"amount": "1.00", "windowHours": 24}}`)
	v := s.want("allow", guard.Request{Amount: "0.60", Hold: true})
	s.want("review", guard.Request{Amount: "0.60", Hold: true}, "per_counterparty_limit")
	s.clock.add(time.Second)
	s.buy("r1", "op1", terms{amount: "600000"})
	s.want("review", guard.Request{Amount: "0.41"}, "per_counterparty_limit")
	s.want("allow", guard.Request{Amount: "0.40"})
	holds, err := s.Holds(t.Context())
	if err != nil || len(holds) != 0 {
		t.Errorf("holds %+v, %v", holds, err)
	}
	if err := s.ReleaseHold(t.Context(), v.Hold.ID, ""); err == nil {
		t.Error("a hold that was paid was released")
	}
}

func TestAHoldIsReleasedByItsOwnerOnly(t *testing.T) {
	s := newSite(t, "")
	v := s.want("allow", guard.Request{Hold: true, Actor: "alice"})
	if err := s.ReleaseHold(t.Context(), v.Hold.ID, "bob"); err == nil {
		t.Error("bob released it")
	}
	if err := s.ReleaseHold(t.Context(), v.Hold.ID, ""); err == nil {
		t.Error("the stdio process released it")
	}
	if err := s.ReleaseHold(t.Context(), v.Hold.ID, "alice"); err != nil {
		t.Error(err)
	}
}

func TestAResolutionClosesAndCounts(t *testing.T) {
	s := newSite(t, `{"perCounterpartyLimit": {"amount": "1.00", "windowHours": 24}}`)
	s.submit("r1", "op1", terms{amount: "900000"})
	s.want("review", guard.Request{Amount: "0.20"}, "open_partial", "per_counterparty_limit")
	op := "op1"
	ref := decision.Ref{Run: "r1", Operation: &op}
	if err := s.Resolve(t.Context(), []guard.Resolution{{Ref: ref, Outcome: "settled", Note: "asked the seller"}}); err != nil {
		t.Fatal(err)
	}
	s.want("review", guard.Request{Amount: "0.20"}, "per_counterparty_limit")
	if err := s.Unresolve(t.Context(), ref, ""); err != nil {
		t.Fatal(err)
	}
	if err := s.Resolve(t.Context(), []guard.Resolution{{Ref: ref, Outcome: "failed", Note: "nothing was taken"}}); err != nil {
		t.Fatal(err)
	}
	s.want("allow", guard.Request{Amount: "0.20"})
}

func TestABaselineMakesHistoryOfThePastOnly(t *testing.T) {
	s := newSite(t, "")
	s.submit("r1", "op1", terms{})
	s.raw("r1", "junk\n")
	s.want("review", guard.Request{Amount: "0.25"}, "open_partial", "damaged_history")
	open, damaged, err := s.Baseline(t.Context(), "known", nil)
	if err != nil || open != 1 || damaged != 1 {
		t.Fatal(open, damaged, err)
	}
	s.want("allow", guard.Request{Amount: "0.25"})
	s.submit("r1", "op2", terms{})
	s.want("review", guard.Request{Amount: "0.25"}, "open_partial")
	s.raw("r1", "junk\n")
	s.want("review", guard.Request{Amount: "0.25"}, "open_partial", "damaged_history")
}

func TestVanishedEvidenceIsDamageUntilAcknowledged(t *testing.T) {
	for name, forget := range map[string]bool{"the index knew it": false, "the index was deleted too": true} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "")
			s.buy("r2", "op1", terms{})
			s.want("allow", guard.Request{})
			if err := os.Remove(filepath.Join(s.dir, "events", "r2.ndjson")); err != nil {
				t.Fatal(err)
			}
			if forget {
				_ = s.index.Close()
				all, _ := filepath.Glob(filepath.Join(s.dir, "guard", "index-*"))
				for _, f := range all {
					_ = os.Remove(f)
				}
				s.open("")
			}
			s.want("review", guard.Request{}, "damaged_history")
			if n, err := s.Acknowledge(t.Context(), "", "rotated", nil); err != nil || n != 1 {
				t.Fatal(n, err)
			}
			s.want("allow", guard.Request{Amount: "0.49"})
		})
	}
}

func TestFrozenMeansBlocked(t *testing.T) {
	s := newSite(t, "")
	if _, err := s.Freeze(t.Context(), seller, "odd"); err != nil {
		t.Fatal(err)
	}
	s.want("block", guard.Request{}, "frozen")
	s.want("allow", guard.Request{Counterparty: other})
	if err := s.Unfreeze(t.Context(), seller, "fine", nil); err != nil {
		t.Fatal(err)
	}
	s.want("allow", guard.Request{})
	if err := os.WriteFile(filepath.Join(s.dir, "guard", "FROZEN"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.want("block", guard.Request{Counterparty: other}, "frozen")
}

// A freeze has one name, and what a person types may be a host or an account.
func TestAFreezeCoversAnAccountThatLooksLikeAHost(t *testing.T) {
	for _, payTo := range []string{"alice.near", "Alice.Near"} {
		s := newSite(t, "")
		s.want("allow", guard.Request{Counterparty: other, PayTo: payTo})
		if _, err := s.Freeze(t.Context(), "alice.near", "odd"); err != nil {
			t.Fatal(err)
		}
		s.want("block", guard.Request{Counterparty: other, PayTo: payTo}, "frozen")
		s.want("block", guard.Request{Counterparty: "alice.near"}, "frozen")
		s.want("allow", guard.Request{Counterparty: other, PayTo: "bob.near"})
		if err := s.Unfreeze(t.Context(), "alice.near", "fine", nil); err != nil {
			t.Fatal(err)
		}
		s.want("allow", guard.Request{Counterparty: other, PayTo: payTo})
	}
}

func TestALogThatDoesNotVerifyIsForAPerson(t *testing.T) {
	s := newSite(t, "")
	s.want("allow", guard.Request{})
	f, err := os.OpenFile(filepath.Join(s.dir, "guard", "decisions.ndjson"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString("{}\n")
	_ = f.Close()
	v := s.want("review", guard.Request{}, "log_unsound")
	if v.ReviewID != "" {
		t.Error("a review was opened")
	}
}

func TestALimitOnEverythingIsNotSilentAboutWhatItCannotAddUp(t *testing.T) {
	policy := `{"limits": [{"name": "day", "scope": "total", "amount": "10.00", "windowHours": 24, "action": "block"}]}`
	s := newSite(t, policy)
	s.buy("r1", "op1", terms{payTo: other})
	s.want("allow", guard.Request{})
	s.event("r1", "op2", "x402.payment.submitted", map[string]any{"x402_version": 1})
	v := s.want("review", guard.Request{}, "limit:day")
	s.decide("approved", v.ReviewID)
	s.want("allow", guard.Request{ReviewID: v.ReviewID}, "approved_by_human")
}

func TestALimitOnEverythingCountsEveryCounterparty(t *testing.T) {
	policy := `{"limits": [{"name": "day", "scope": "total", "amount": "2.00", "windowHours": 24, "action": "block"}]}`
	s := newSite(t, policy)
	for range 3 {
		s.buy("r1", "op"+s.clock.now().String(), terms{payTo: other})
		s.clock.add(7 * time.Hour)
	}
	s.want("allow", guard.Request{Amount: "0.50"})
	s.want("block", guard.Request{Amount: "0.51"}, "limit:day")
	s.clock.add(4 * time.Hour) // the first is older than a day now
	s.want("allow", guard.Request{Amount: "0.51"})
}

func TestASignedActMayBeTheFirst(t *testing.T) {
	file, public, err := decision.NewKey("ann", []byte("a long enough passphrase"), 10)
	if err != nil {
		t.Fatal(err)
	}
	key, err := decision.OpenKey(file, []byte("a long enough passphrase"))
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, `{"operators": [{"name": "ann", "publicKey": "`+public+`"}]}`)
	s.submit("r1", "op1", terms{})
	if _, _, err := s.Baseline(t.Context(), "known", nil); err == nil {
		t.Fatal("an unsigned baseline was written")
	}
	if open, _, err := s.Baseline(t.Context(), "known", key); err != nil || open != 1 {
		t.Fatal(open, err)
	}
	s.want("allow", guard.Request{Amount: "0.25"})
}

// What was paid before a hold was made counts as spent already, so it must not end
// the hold as well.
func TestAPaymentBeforeAHoldDoesNotEndIt(t *testing.T) {
	s := newSite(t, `{"perCounterpartyLimit": {"amount": "1.00", "windowHours": 24}}`)
	s.buy("r1", "op1", terms{amount: "400000"})
	s.want("allow", guard.Request{Amount: "0.40", Hold: true})
	s.want("review", guard.Request{Amount: "0.40", Hold: true, Resource: "https://shop.example/other"}, "per_counterparty_limit")
}

func TestAPaymentIsTheHoldsItWasMadeUnderWheneverSomebodyLooks(t *testing.T) {
	s := newSite(t, `{"holdSeconds": 60}`)
	s.want("allow", guard.Request{Hold: true})
	s.clock.add(10 * time.Second)
	s.want("allow", guard.Request{Hold: true})
	s.clock.add(10 * time.Second)
	s.buy("r1", "op1", terms{})
	s.clock.add(45 * time.Second) // the first hold is over, the second is not
	holds, err := s.Holds(t.Context())
	if err != nil || len(holds) != 1 {
		t.Fatalf("holds %+v, %v", holds, err)
	}
	s.want("allow", guard.Request{Amount: "0.10"})
	s.clock.add(time.Second)
	if holds, err = s.Holds(t.Context()); err != nil || len(holds) != 1 {
		t.Errorf("after the line was written: holds %+v, %v", holds, err)
	}
}

func TestAHoldWhosePaymentIsOnDiskCannotBeReleased(t *testing.T) {
	s := newSite(t, `{"perCounterpartyLimit": {"amount": "5.00", "windowHours": 24}, "reviewAbove": "5.00"}`)
	a := s.want("allow", guard.Request{Amount: "2", Hold: true})
	s.clock.add(3 * time.Second)
	s.want("allow", guard.Request{Amount: "2", Hold: true})
	s.want("review", guard.Request{Amount: "2", Hold: true}, "per_counterparty_limit")
	s.buy("r1", "op1", terms{amount: "2000000"})
	if err := s.ReleaseHold(t.Context(), a.Hold.ID, ""); err == nil {
		t.Error("released")
	}
	s.want("review", guard.Request{Amount: "2", Hold: true}, "per_counterparty_limit")
}

func TestDamageAfterAnAcknowledgementIsNew(t *testing.T) {
	run := func(s *site) string { return filepath.Join(s.dir, "events", "r2.ndjson") }
	for name, change := range map[string]func(*site) error{
		"a removed run comes back": func(s *site) error { return os.Remove(run(s)) },
		"a run was cut":            func(s *site) error { return os.Truncate(run(s), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "")
			s.buy("r2", "op1", terms{})
			s.want("allow", guard.Request{})
			if err := change(s); err != nil {
				t.Fatal(err)
			}
			// The first look already tells.
			items, err := s.Damage(t.Context())
			if err != nil || len(items) != 1 {
				t.Fatalf("%+v, %v", items, err)
			}
			if _, err := s.Acknowledge(t.Context(), "r2", "known", nil); err != nil {
				t.Fatal(err)
			}
			s.want("allow", guard.Request{Amount: "0.11"})
			s.raw("r2", "junk\n")
			s.want("review", guard.Request{Amount: "0.12"}, "damaged_history")
		})
	}
}

func TestABaselineCoversARunThatWasRewritten(t *testing.T) {
	s := newSite(t, "")
	s.buy("r2", "op1", terms{})
	s.want("allow", guard.Request{})
	if err := os.Truncate(filepath.Join(s.dir, "events", "r2.ndjson"), 0); err != nil {
		t.Fatal(err)
	}
	s.want("review", guard.Request{}, "damaged_history")
	if _, damaged, err := s.Baseline(t.Context(), "rotated", nil); err != nil || damaged != 1 {
		t.Fatal(damaged, err)
	}
	s.want("allow", guard.Request{Amount: "0.11"})
}

func TestAnApprovalThatWasSpentInTheTraceIsUsedEverywhere(t *testing.T) {
	s := newSite(t, "")
	v := s.want("review", guard.Request{Amount: "2"}, "review_above")
	s.clock.add(time.Second)
	s.decide("approved", v.ReviewID)
	s.buy("r1", "op1", terms{amount: "2000000"})
	page, err := s.Reviews(t.Context(), guard.ReviewQuery{Status: "used"})
	if err != nil || len(page.Reviews) != 1 {
		t.Errorf("%+v, %v", page, err)
	}
	if _, err := s.Decide(t.Context(), guard.Decision{IDs: []string{v.ReviewID}, Decision: "revoked"}); err == nil {
		t.Error("a spent approval was revoked")
	}
}

func TestARejectionFreezesWhoWasToBePaid(t *testing.T) {
	s := newSite(t, "")
	v := s.want("review", guard.Request{Amount: "2", Resource: "https://good.example/a"}, "review_above")
	if _, err := s.Decide(t.Context(), guard.Decision{IDs: []string{v.ReviewID}, Decision: "rejected", Freeze: true}); err != nil {
		t.Fatal(err)
	}
	s.want("block", guard.Request{Amount: "0.10"}, "frozen", "recently_rejected")
	// The host that was typed beside it is not frozen; that it was named is remembered.
	s.want("review", guard.Request{Counterparty: "good.example", Amount: "0.10"}, "recently_rejected")
}

// A host that two payments only have in their resource makes neither payee the other
// (guard contract, section 1, recently_rejected).
func TestARefusalIsRememberedOfThePayeeThatWasRefused(t *testing.T) {
	const third, host = "0x2222222222222222222222222222222222222222", "shop.example"
	aliased := `{"counterpartyAliases": {"shop.example": ["` + other + `"]}}`
	for name, c := range map[string]struct {
		policy         string
		refused, asked guard.Request
		want           string // what was refused, "" where the rule is silent
	}{
		"another payee at the same resource": {
			refused: guard.Request{PayTo: seller, Resource: shop}, asked: guard.Request{Counterparty: other, Resource: shop}},
		"another payee at another resource of the host": {
			refused: guard.Request{Resource: shop}, asked: guard.Request{Counterparty: other, PayTo: other, Resource: "https://shop.example/x"}},
		"another payee at a host whose address was refused": {policy: aliased,
			refused: guard.Request{Counterparty: other}, asked: guard.Request{Counterparty: third, Resource: shop}},
		"the address of a host that was named beside another": {policy: aliased,
			refused: guard.Request{Counterparty: third, Resource: shop}, asked: guard.Request{Counterparty: other}},
		"another payee at a host that was refused": {
			refused: guard.Request{Counterparty: host, Resource: shop}, asked: guard.Request{Counterparty: other, Resource: shop}},
		"the same address": {
			refused: guard.Request{Resource: shop}, asked: guard.Request{Resource: "https://good.example/"}, want: `another payment to "` + strings.ToLower(seller) + `"`},
		"the same address, for another seller": {
			refused: guard.Request{Counterparty: host, PayTo: seller}, asked: guard.Request{Counterparty: "good.example", PayTo: seller},
			want: `another payment to "` + strings.ToLower(seller) + `"`},
		"the same host": {
			refused: guard.Request{Counterparty: host}, asked: guard.Request{Counterparty: "https://Shop.example:8443/x"}, want: `another payment to "shop.example"`},
		"the same host, whose resource was refused with it": {
			refused: guard.Request{Counterparty: host, PayTo: seller, Resource: shop}, asked: guard.Request{Counterparty: host, PayTo: other}, want: `another payment to "shop.example"`},
		"a host as an account": {
			refused: guard.Request{Counterparty: host}, asked: guard.Request{Counterparty: "payee:Shop.example"}, want: `another payment to "Shop.example"`},
		"an alias of the address": {policy: aliased,
			refused: guard.Request{Counterparty: other}, asked: guard.Request{Counterparty: host}, want: `another payment to an alias of "shop.example"`},
		"the address of a host": {policy: aliased,
			refused: guard.Request{Counterparty: host, Resource: shop}, asked: guard.Request{Counterparty: other}, want: `another payment to an alias of "` + other + `"`},
		"the host alone, after an address there": {
			refused: guard.Request{Resource: shop}, asked: guard.Request{Counterparty: host}, want: `a payment for a resource at "shop.example"`},
		"a host that is too long to be shown": {
			refused: guard.Request{Counterparty: "https://shop.example/" + strings.Repeat("x", 400), Resource: shop}, asked: guard.Request{Counterparty: host, PayTo: other},
			want: `another payment to "shop.example"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, c.policy)
			c.refused.Amount = "2"
			s.decide("rejected", s.want("review", c.refused, "review_above").ReviewID)
			c.asked.Amount = "0.10"
			if c.want == "" {
				s.want("allow", c.asked)
				return
			}
			v := s.want("review", c.asked, "recently_rejected")
			if got := v.Reasons[0].Detail; !strings.HasPrefix(got, "a person rejected "+c.want+" in review ") {
				t.Error(got)
			}
		})
	}
}

// Many holds share one look at the payments; it must find what single looks find.
func TestManyHoldsEndByTheirOwnPayments(t *testing.T) {
	s := newSite(t, `{"perCounterpartyLimit": {"amount": "1000.00", "windowHours": 24}}`)
	for i := range 20 {
		s.want("allow", guard.Request{Amount: fmt.Sprintf("0.%02d", i+10), Hold: true, Counterparty: []string{seller, other}[i%2]})
	}
	s.clock.add(3 * time.Second)
	for i := range 10 {
		s.buy("r1", fmt.Sprintf("op%d", i), terms{amount: fmt.Sprintf("%d0000", i+10), payTo: []string{seller, other}[i%2]})
	}
	s.buy("r1", "elsewhere", terms{amount: "250000", payTo: seller}) // the hold of 0.25 is for the other one
	holds, err := s.Holds(t.Context())
	if err != nil || len(holds) != 10 || holds[0].Amount != "0.20" {
		t.Errorf("%d holds, %+v, %v", len(holds), holds, err)
	}
	s.want("allow", guard.Request{Amount: "0.05"})
	if holds, err = s.Holds(t.Context()); err != nil || len(holds) != 10 {
		t.Errorf("after the lines were written: %d holds, %v", len(holds), err)
	}
}

func TestWhatTheTraceSettledIsNotResolvedAsFailed(t *testing.T) {
	s := newSite(t, "")
	s.buy("r1", "op1", terms{})
	op := "op1"
	ref := decision.Ref{Run: "r1", Operation: &op}
	if err := s.Resolve(t.Context(), []guard.Resolution{{Ref: ref, Outcome: "failed", Note: "paid back"}}); err == nil {
		t.Error("a settled operation was resolved as failed, and frees what it spent")
	}
}

// What vanished while nobody looked is found by the baseline itself, and is part of
// the history it makes.
func TestABaselineKnowsWhatVanishedUnseen(t *testing.T) {
	s := newSite(t, "")
	s.buy("r2", "op1", terms{})
	s.want("allow", guard.Request{})
	_ = s.index.Close()
	if err := os.Remove(filepath.Join(s.dir, "events", "r2.ndjson")); err != nil {
		t.Fatal(err)
	}
	all, _ := filepath.Glob(filepath.Join(s.dir, "guard", "index-*"))
	for _, f := range all {
		_ = os.Remove(f)
	}
	s.open("")
	if _, damaged, err := s.Baseline(t.Context(), "rotated", nil); err != nil || damaged != 1 {
		t.Fatal(damaged, err)
	}
	s.want("allow", guard.Request{Amount: "0.11"})
}

// Where no person has acted the open operations are counted from kept counts, else one
// by one.
func TestOpenOperationsCountAlikeWhetherOrNotAPersonHasActed(t *testing.T) {
	s := newSite(t, "")
	for i := range 25 {
		s.clock.add(time.Second)
		s.submit("r1", fmt.Sprintf("op%d", i), terms{amount: []string{"500000", "600000"}[i%2]})
	}
	s.submit("r1", "elsewhere", terms{payTo: other, resource: "https://other.example/x"})
	ask := guard.Request{Counterparty: seller, Amount: "0.60", Resource: shop}
	before := s.want("review", ask, "open_partial", "duplicate_purchase", "per_counterparty_limit")
	if n := len(before.Reasons[0].Evidence); n != 20 || *before.Reasons[0].Evidence[0].Operation != "op24" {
		t.Errorf("%d operations are named, %v first", n, before.Reasons[0].Evidence[:1])
	}
	if n := len(before.Reasons[1].Evidence); n != 12 || *before.Reasons[1].Evidence[0].Operation != "op23" {
		t.Errorf("%d like payments are named, %v first", n, before.Reasons[1].Evidence[:1])
	}
	op := "elsewhere"
	if err := s.Resolve(t.Context(), []guard.Resolution{{Ref: decision.Ref{Run: "r1", Operation: &op}, Outcome: "failed", Note: "asked"}}); err != nil {
		t.Fatal(err)
	}
	after := s.want("review", ask, "open_partial", "duplicate_purchase", "per_counterparty_limit")
	if diff := cmp.Diff(before.Reasons, after.Reasons); diff != "" {
		t.Errorf("one by one the operations count differently: %s", diff)
	}
}

func TestARunThatVanishedIsNotWrittenDownAsSeen(t *testing.T) {
	s := newSite(t, "")
	s.buy("r2", "op1", terms{payTo: other})
	s.want("allow", guard.Request{})
	s.buy("r2", "op2", terms{payTo: other}) // seen by the next question, and not written down yet
	if _, err := s.Headroom(t.Context(), guard.HeadroomQuery{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(s.run("r2")); err != nil {
		t.Fatal(err)
	}
	s.want("review", guard.Request{}, "damaged_history")
	if _, _, err := s.Baseline(t.Context(), "it was moved away", nil); err != nil {
		t.Fatal(err)
	}
	s.want("allow", guard.Request{})
	s.beside("", nil).want("allow", guard.Request{})
}

// said is what was logged, for a handler.
type said chan string

func (s said) Write(p []byte) (int, error) {
	s <- string(p)
	return len(p), nil
}

func TestAServerWithoutTheOperatorsOfTheLogSaysSo(t *testing.T) {
	_, public, err := decision.NewKey("alice", []byte("four words"), 4)
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, `{"operators": [{"name": "alice", "publicKey": "`+public+`"}]}`)
	s.want("allow", guard.Request{})
	lines := make(said, 10)
	g := s.beside("", func(o *guard.Options) { o.Log = slog.New(slog.NewTextHandler(lines, nil)) })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- g.Watch(ctx) }()
	if line := <-lines; !strings.Contains(line, "without a signature") {
		t.Error(line)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
