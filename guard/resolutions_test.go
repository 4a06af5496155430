package guard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

func TestResolutionsSayWhoClosedAnOperation(t *testing.T) {
	file, public, err := decision.NewKey("file's name", []byte("four words"), 4)
	if err != nil {
		t.Fatal(err)
	}
	alice, err := decision.OpenKey(file, []byte("four words"))
	if err != nil {
		t.Fatal(err)
	}
	const unsigned = "unsigned (could be the agent)"
	for name, test := range map[string]struct {
		policy string
		by     decision.Signer
		want   string
		key    string
	}{
		"nobody signed":                     {"", nil, unsigned, ""},
		"a key that is no operator's":       {"", alice, unsigned, ""},
		"an operator, by the policy's name": {`{"operators": [{"name": "alice", "publicKey": "` + public + `"}]}`, alice, "alice", public},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, test.policy)
			s.submit("r1", "a", terms{})
			s.submit("r1", "b", terms{})
			s.clock.add(10 * time.Minute)
			a, b := "a", "b"
			refs := []decision.Ref{{Run: "r1", Operation: &b}, {Run: "r1", Operation: &a}, {Run: "gone"}, {Run: "r1"}}
			if found, err := s.Resolutions(t.Context(), refs); err != nil || len(found) != 4 || found[0] != nil || found[1] != nil {
				t.Fatalf("before anything was said: %v, %v", found, err)
			}
			if err := s.Resolve(t.Context(), []guard.Resolution{{Ref: refs[1], Outcome: "failed", Time: "2026-03-10T12:00:00+01:00", Note: "asked them", Signer: test.by}}); err != nil {
				t.Fatal(err)
			}
			found, err := s.Resolutions(t.Context(), refs)
			if err != nil || found[0] != nil || found[1] == nil || found[2] != nil || found[3] != nil {
				t.Fatalf("%v, %v", found, err)
			}
			got := found[1]
			if got.Outcome != "failed" || got.Time != "2026-03-10T11:00:00.000Z" || got.Note != "asked them" || got.DecidedBy != test.want || got.Key != test.key {
				t.Errorf("%+v", got)
			}
			if kept := s.state().Resolution(refs[1]); test.by != nil && kept.Key == "" {
				t.Error("the state itself was changed")
			}
			if err := s.Unresolve(t.Context(), refs[1], ""); err != nil {
				t.Fatal(err)
			}
			if found, err = s.Resolutions(t.Context(), refs); err != nil || found[1] != nil {
				t.Errorf("after it was taken back: %v, %v", found[1], err)
			}
		})
	}
}

func (s *site) resolve(run, op, outcome string) error {
	return s.Resolve(s.t.Context(), []guard.Resolution{{Ref: decision.Ref{Run: run, Operation: &op}, Outcome: outcome, Note: "asked them"}})
}

const aDollarADay = `{"reviewAbove": "100", "perCounterpartyLimit": {"amount": "1.00", "windowHours": 24}}`

func TestWhatTheTraceSettledStaysSpentBesideWhatAPersonSaysFailed(t *testing.T) {
	s := newSite(t, aDollarADay)
	s.submit("r1", "op1", terms{})
	s.buy("r1", "op1", terms{amount: "600000"}) // two payments, one of them settled
	if err := s.resolve("r1", "op1", "failed"); err != nil {
		t.Fatal(err)
	}
	s.want("allow", guard.Request{Amount: "0.40"})
	s.want("review", guard.Request{Amount: "0.41"}, "per_counterparty_limit")
}

func TestASettlementSeenAfterAPersonSaidFailedIsSpent(t *testing.T) {
	s := newSite(t, aDollarADay)
	s.submit("r1", "op1", terms{amount: "600000"})
	if err := s.resolve("r1", "op1", "failed"); err != nil {
		t.Fatal(err)
	}
	s.want("allow", guard.Request{Amount: "0.41"})
	s.settle("r1", "op1", terms{amount: "600000"})
	s.want("review", guard.Request{Amount: "0.41"}, "per_counterparty_limit")
}

func TestAnOperationThatIsPaidAgainIsAsIfNobodyHadResolvedIt(t *testing.T) {
	for _, outcome := range []string{"failed", "settled"} {
		t.Run(outcome, func(t *testing.T) {
			s := newSite(t, aDollarADay)
			op := "op1"
			refs := []decision.Ref{{Run: "r1", Operation: &op}}
			s.submit("r1", op, terms{amount: "600000"})
			if err := s.resolve("r1", op, outcome); err != nil {
				t.Fatal(err)
			}
			s.clock.add(30 * time.Hour)
			s.want("allow", guard.Request{Amount: "0.41"})
			s.submit("r1", op, terms{amount: "600000"}) // signed again under the same offer
			s.want("review", guard.Request{Amount: "0.41"}, "open_partial", "per_counterparty_limit")
			s.want("review", guard.Request{Amount: "0.60"}, "open_partial", "duplicate_purchase", "per_counterparty_limit")
			if found, err := s.Resolutions(t.Context(), refs); err != nil || found[0] != nil {
				t.Errorf("a person is still said to have closed it: %+v, %v", found, err)
			}
			open, err := s.Open(t.Context(), guard.OpenQuery{})
			if err != nil || len(open) != 1 {
				t.Errorf("open are %+v, %v", open, err)
			}
			if err := s.resolve("r1", op, "failed"); err != nil {
				t.Fatal(err)
			}
			s.want("allow", guard.Request{Amount: "0.41"})
		})
	}
}

// What came and what a person then said of it may both be new to a guard that has been
// asked before.
func TestWhatWasPaidAndResolvedBetweenTwoQuestions(t *testing.T) {
	for outcome, decision := range map[string]string{"failed": "allow", "settled": "review"} {
		t.Run(outcome, func(t *testing.T) {
			s := newSite(t, aDollarADay)
			s.submit("r1", "a", terms{amount: "100000"})
			if err := s.resolve("r1", "a", "failed"); err != nil {
				t.Fatal(err)
			}
			s.want("allow", guard.Request{Amount: "0.90"})
			s.submit("r1", "b", terms{amount: "200000"})
			if err := s.resolve("r1", "b", outcome); err != nil {
				t.Fatal(err)
			}
			var rules []string
			if decision == "review" {
				rules = []string{"per_counterparty_limit"}
			}
			s.want(decision, guard.Request{Amount: "0.90"}, rules...)
		})
	}
}

// Between what a person is shown and what is written, the agent may pay again.
func TestAPaymentThatAPersonWasNotShownIsNotCovered(t *testing.T) {
	for name, again := range map[string]func(s *site){
		"another one": func(s *site) { s.submit("r1", "op1", terms{amount: "600000"}) },
		"one of before that comes to be seen": func(s *site) {
			s.clock.add(-time.Hour)
			s.submit("r1", "op1", terms{amount: "600000"})
			s.clock.add(time.Hour)
		},
		"the call is signed": func(s *site) { s.submit("r1", "asked", terms{amount: "600000"}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, aDollarADay)
			s.submit("r1", "op1", terms{amount: "600000"})
			s.event("r1", "asked", "x402.payment.requested", map[string]any{"x402_version": 2, "accepts": []any{terms{}.payload()["requirements"]}})
			s.clock.add(time.Minute)
			listed, err := s.Open(t.Context(), guard.OpenQuery{})
			if err != nil || len(listed) != 2 {
				t.Fatalf("open are %+v, %v", listed, err)
			}
			var all []guard.Resolution
			for _, op := range listed {
				if one, err := s.Shown(t.Context(), op.Ref); err != nil || one != op.Shown || one.Payments != 1 {
					t.Errorf("%+v is listed with %+v and shown with %+v, %v", op.Ref, op.Shown, one, err)
				}
				all = append(all, guard.Resolution{Ref: op.Ref, Outcome: "failed", Note: "asked them", Shown: op.Shown})
			}
			again(s)
			err = s.Guard.Resolve(t.Context(), all)
			if errcode.Of(err) == nil || errcode.Of(err).Code != errcode.Input || !strings.Contains(err.Error(), "paid again since it was shown") {
				t.Errorf("it was refused with %v", err)
			}
			for range s.state().Resolutions() {
				t.Error("a part of it was written")
			}
			if listed, err = s.Open(t.Context(), guard.OpenQuery{}); err != nil || len(listed) != 2 {
				t.Fatalf("open are %+v, %v", listed, err)
			}
			for i, op := range listed {
				all[i] = guard.Resolution{Ref: op.Ref, Outcome: "failed", Note: "asked them", Shown: op.Shown}
			}
			if err := s.Guard.Resolve(t.Context(), all); err != nil {
				t.Errorf("shown again it was refused: %v", err)
			}
		})
	}
}

func TestAnAmountThatTheTraceSaysIsNotStated(t *testing.T) {
	unread := terms{amount: "much"}
	for name, test := range map[string]struct {
		record  func(s *site)
		refused bool
	}{
		"every amount can be read":      {func(s *site) { s.submit("r1", "op1", terms{amount: "600000"}) }, true},
		"it was not paid":               {func(s *site) { s.event("r1", "op1", "x402.payment.required", nil) }, true},
		"the amount cannot be read":     {func(s *site) { s.submit("r1", "op1", unread) }, false},
		"one of several cannot be read": {func(s *site) { s.submit("r1", "op1", terms{}); s.submit("r1", "op1", unread) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, aDollarADay)
			test.record(s)
			op := "op1"
			r := guard.Resolution{Ref: decision.Ref{Run: "r1", Operation: &op}, Outcome: "settled", Amount: "0.30", Note: "asked them"}
			err := s.Resolve(t.Context(), []guard.Resolution{r})
			if refused := err != nil && errcode.Of(err).Code == errcode.Usage; refused != test.refused || err != nil && !refused {
				t.Errorf("%v", err)
			}
			for range s.state().Resolutions() {
				if test.refused {
					t.Error("it was written")
				}
			}
			if test.refused {
				r.Amount = ""
				if err := s.Resolve(t.Context(), []guard.Resolution{r}); err != nil {
					t.Errorf("without it: %v", err)
				}
			}
		})
	}
}

func TestAResolutionOfAnEarlierVersionCoversWhateverComes(t *testing.T) {
	s := newSite(t, aDollarADay)
	s.submit("r1", "op1", terms{amount: "600000"})
	op := "op1"
	if _, err := s.Log().Update(t.Context(), "", func(*decision.State) ([]decision.Body, error) {
		return []decision.Body{decision.Resolved{Ref: decision.Ref{Run: "r1", Operation: &op}, Outcome: "failed", Note: "asked them", Signed: decision.Signed{DecidedBy: "somebody"}}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	s.submit("r1", "op1", terms{amount: "600000"})
	s.want("allow", guard.Request{Amount: "0.41"})
}

func TestWhatIsTakenBackIsOpenAgainForAGuardThatRemembers(t *testing.T) {
	s := newSite(t, aDollarADay)
	op := "op1"
	s.submit("r1", op, terms{amount: "1"})
	s.submit("r1", "op2", terms{amount: "1"})
	s.want("review", guard.Request{Amount: "0.01"}, "open_partial")
	for range 2 {
		for _, op := range []string{"op1", "op2"} {
			if err := s.resolve("r1", op, "failed"); err != nil {
				t.Fatal(err)
			}
		}
		s.want("allow", guard.Request{Amount: "0.01"})
		if err := s.Unresolve(t.Context(), decision.Ref{Run: "r1", Operation: &op}, ""); err != nil {
			t.Fatal(err)
		}
		if v := s.want("review", guard.Request{Amount: "0.01"}, "open_partial"); len(v.Reasons[0].Evidence) != 1 {
			t.Errorf("%d are open, want 1", len(v.Reasons[0].Evidence))
		}
	}
	if _, _, err := s.Baseline(t.Context(), "the past", nil); err != nil {
		t.Fatal(err)
	}
	s.want("allow", guard.Request{Amount: "0.01"})
	s.submit("r1", op, terms{amount: "1"}) // paid again, behind the baseline
	s.want("review", guard.Request{Amount: "0.01"}, "open_partial")
}

func TestAToolCallThatIsSignedAfterAPersonSaidItFailedIsSpent(t *testing.T) {
	for _, outcome := range []string{"failed", "settled"} {
		t.Run(outcome, func(t *testing.T) {
			s := newSite(t, aDollarADay)
			p := terms{amount: "600000"}.payload()
			// Asked for by the tool's client and signed by the one inside it: once it is
			// signed, what was asked for is no payment beside it.
			s.event("r1", "op1", "x402.payment.requested", map[string]any{"x402_version": 2, "resource": p["resource"], "tool_name": "report", "accepts": []any{p["requirements"]}})
			if err := s.resolve("r1", "op1", outcome); err != nil {
				t.Fatal(err)
			}
			s.clock.add(30 * time.Hour)
			s.want("allow", guard.Request{Amount: "0.41"})
			s.submit("r1", "op1", terms{amount: "600000"})
			s.want("review", guard.Request{Amount: "0.41"}, "open_partial", "per_counterparty_limit")
			if err := s.resolve("r1", "op1", "failed"); err != nil {
				t.Fatal(err)
			}
			s.want("allow", guard.Request{Amount: "0.41"})
		})
	}
}

func TestAResolutionEndsWhenAnotherFileOfItsRunHasTheOperationToo(t *testing.T) {
	s := newSite(t, `{"reviewAbove": "100", "damage": "ignore"}`)
	const id, file, twin = ".ndjson", ".ndjson", "" // both files stand for one run
	elsewhere := terms{payTo: other, resource: "https://elsewhere.example/"}
	s.submit(file, "op1", terms{})
	s.buy(twin, "op2", elsewhere)
	if err := s.resolve(id, "op1", "failed"); err != nil {
		t.Fatal(err)
	}
	s.want("allow", guard.Request{})
	s.buy(twin, "op3", elsewhere)
	s.want("allow", guard.Request{})
	s.buy(twin, "op1", elsewhere)
	s.want("review", guard.Request{}, "open_partial", "duplicate_purchase")
}
