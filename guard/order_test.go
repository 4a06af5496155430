package guard_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
)

// anew closes the guard, deletes its index and opens it again.
func (s *site) anew(policy string) {
	s.t.Helper()
	if err := s.index.Close(); err != nil {
		s.t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(s.index.GuardDir(), "index-v*.db*"))
	if err != nil || len(files) == 0 {
		s.t.Fatalf("there is no index to delete (%v)", err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			s.t.Fatal(err)
		}
	}
	s.open(policy)
}

// filled makes a root whose runs, of operations at one instant, were indexed one by one
// in an order.
func filled(t *testing.T, policy string, runs []string, write func(s *site, run string)) *site {
	t.Helper()
	s := newSite(t, policy)
	for _, run := range runs {
		write(s, run)
		if err := s.index.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.clock.add(time.Minute)
	return s
}

func (s *site) reasons(r guard.Request) string {
	s.t.Helper()
	text, err := json.Marshal(s.ask(r).Reasons)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// Payments of one instant come in the order of their ids, so that it is the same ones
// of them that are evidence, and the same prices that are usual.
func TestWhatIsTakenOfPaymentsOfOneInstantDoesNotDependOnTheIndex(t *testing.T) {
	many := func(p func(run string) terms) func(s *site, run string) {
		return func(s *site, run string) {
			for i := range 15 {
				op := fmt.Sprintf("%s-%02d", run, i)
				s.submit(run, op, p(run))
				s.settle(run, op, p(run))
			}
		}
	}
	priced := map[string]string{"a": "9000", "z": "1000"}
	for name, c := range map[string]struct {
		policy string
		write  func(s *site, run string)
		ask    guard.Request
		rule   string
	}{
		"payments that cannot be read": {
			write: many(func(string) terms { return terms{amount: "abc"} }), ask: guard.Request{Amount: "0.01"}, rule: "unparseable_history",
		},
		"payments in another asset": {
			write: many(func(string) terms { return terms{asset: other, amount: "1"} }), ask: guard.Request{Amount: "0.01"}, rule: "mixed_assets",
		},
		"payments to another address of the host": {
			write: many(func(string) terms { return terms{payTo: other, amount: "1"} }), rule: "payee_changed",
			ask: guard.Request{Counterparty: "shop.example", PayTo: seller, Amount: "0.01", Resource: "https://shop.example/y"},
		},
		"prices": {
			write: many(func(run string) terms { return terms{amount: priced[run]} }), ask: guard.Request{Amount: "0.05", Resource: shop}, rule: "price_drift",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var said []string
			for _, runs := range [][]string{{"a", "z"}, {"z", "a"}} {
				s := filled(t, c.policy, runs, c.write)
				v := s.want("review", c.ask, c.rule)
				said = append(said, s.reasons(c.ask))
				s.decide("approved", v.ReviewID)
				s.anew(c.policy)
				said = append(said, s.reasons(c.ask))
				asked := c.ask
				asked.ReviewID = v.ReviewID
				s.want("allow", asked, "approved_by_human")
			}
			if slices.Sort(said); said[0] != said[len(said)-1] {
				t.Errorf("it depends on the index:\n%s\n%s", said[0], said[len(said)-1])
			}
		})
	}
}

// What leaves a window next names amounts, those of one instant too.
func TestWhatLeavesAWindowNextDoesNotDependOnTheIndex(t *testing.T) {
	const policy = `{"limits": [{"name": "day", "scope": "total", "amount": "10.00", "windowHours": 24, "action": "block"}]}`
	amounts := map[string]string{"a": "10000", "m": "20000", "z": "30000"}
	for _, runs := range [][]string{{"a", "m", "z"}, {"z", "m", "a"}} {
		s := filled(t, policy, runs, func(s *site, run string) {
			s.submit(run, "op", terms{amount: amounts[run]})
			s.settle(run, "op", terms{amount: amounts[run]})
		})
		for _, index := range []string{"kept", "deleted"} {
			h, err := s.Headroom(t.Context(), guard.HeadroomQuery{Counterparty: seller})
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range h.Limits {
				var leave []string
				for _, f := range l.FreesUp {
					leave = append(leave, f.Amount)
				}
				if !slices.Equal(leave, []string{"0.01", "0.02", "0.03"}) {
					t.Errorf("runs indexed as %v, index %s: %v leave the window %s next", runs, index, leave, l.Name)
				}
			}
			s.anew(policy)
		}
	}
}

// Of two payments of one instant the same one ends a hold, however many holds there are:
// many share one look.
func TestWhichPaymentEndsAHoldDoesNotDependOnTheIndex(t *testing.T) {
	for _, holds := range []int{1, 9} {
		for _, runs := range [][]string{{"a", "z"}, {"z", "a"}} {
			s := newSite(t, "")
			for i := range holds {
				s.want("allow", guard.Request{Amount: fmt.Sprintf("0.0%d", i+1), Hold: true})
			}
			s.clock.add(time.Second)
			for _, run := range runs {
				s.submit(run, "op", terms{amount: "10000"})
				s.settle(run, "op", terms{amount: "10000"})
				if err := s.index.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			s.ask(guard.Request{Amount: "0.50"}) // whoever asks writes down what was paid
			log, err := os.ReadFile(s.Log().Path())
			if err != nil {
				t.Fatal(err)
			}
			var by []string
			for line := range strings.Lines(string(log)) {
				var body struct {
					Why string
					By  struct {
						Run string `json:"run_id"`
					}
				}
				if err := json.Unmarshal([]byte(line), &body); err == nil && body.Why == "paid" {
					by = append(by, body.By.Run)
				}
			}
			if !slices.Equal(by, []string{"a"}) {
				t.Errorf("%d holds, runs indexed as %v: the payment that ended one is of %q, want a", holds, runs, by)
				t.Log(string(log))
			}
		}
	}
}
