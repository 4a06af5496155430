package guard_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
)

// What an approval covers is what a person was shown (guard contract, section 4).
func TestAnApprovalCoversNothingThatCameAfterItWasShown(t *testing.T) {
	const gated = `{"spendGate": {"version": "1", "max_notional": "5", "daily_cap": "100", "hitl_threshold": "0.05", "min_confidence": "0"}, "reviewExpiryHours": 48}`
	request := guard.Request{Amount: "0.10"}
	for name, test := range map[string]struct {
		policy        string
		before, after func(s *site)
		want          string
	}{
		"nothing came": {
			before: func(s *site) { s.submit("r1", "a", terms{}) },
			after:  func(*site) {}, want: "allow",
		},
		"another operation is open": {
			before: func(s *site) { s.submit("r1", "a", terms{}) },
			after:  func(s *site) { s.submit("r1", "b", terms{}) }, want: "review",
		},
		"the same operation was paid again": {
			before: func(s *site) { s.submit("r1", "a", terms{}) },
			after:  func(s *site) { s.submit("r1", "a", terms{}) }, want: "review",
		},
		"the same operation was paid again, and nobody can read what": {
			before: func(s *site) { s.submit("r1", "a", terms{amount: "x"}) },
			after:  func(s *site) { s.submit("r1", "a", terms{amount: "x"}) }, want: "review",
		},
		"the same operation was answered": {
			before: func(s *site) { s.submit("r1", "a", terms{}); s.submit("r1", "b", terms{}) },
			after:  func(s *site) { s.settle("r1", "a", terms{}) }, want: "allow",
		},
		"of more than are listed, another one in the place of one": {
			before: func(s *site) {
				for i := range 25 {
					s.submit("r1", fmt.Sprintf("op%02d", i), terms{amount: "1000"})
					s.clock.add(time.Second)
				}
			},
			after: func(s *site) {
				s.settle("r1", "op00", terms{amount: "1000"})
				s.clock.add(-time.Hour)
				s.submit("r1", "late", terms{amount: "1000"})
				s.clock.add(time.Hour)
			}, want: "review",
		},
		"of more than are listed, one was closed": {
			before: func(s *site) {
				for i := range 25 {
					s.submit("r1", fmt.Sprintf("op%02d", i), terms{amount: "1000"})
				}
			},
			after: func(s *site) { s.settle("r1", "op24", terms{amount: "1000"}) }, want: "review", // one is listed that was not
		},
		"a limit that was over cannot be added up any more": {
			policy: `{"limits": [{"name": "all", "scope": "total", "amount": "0.55", "windowHours": 24, "action": "review"}], "holdSeconds": 60}`,
			before: func(s *site) {
				s.buy("r1", "a", terms{amount: "300000"})
				s.want("allow", guard.Request{Amount: "0.10", Hold: true})
				s.want("allow", guard.Request{Amount: "0.10", Hold: true})
			},
			after: func(s *site) {
				s.clock.add(2 * time.Minute)
				s.submit("r1", "c", terms{amount: "x", payTo: other, resource: "https://elsewhere.example/"})
			}, want: "review",
		},
		"a day that a gate could not add up is over": {
			policy: gated,
			before: func(s *site) {
				s.buy("r1", "c", terms{amount: "x", payTo: other, resource: "https://elsewhere.example/"})
			},
			after: func(s *site) { s.clock.add(23 * time.Hour) }, want: "allow",
		},
		"a day that a gate cannot add up any more": {
			policy: gated,
			before: func(s *site) { s.buy("r1", "a", terms{}) },
			after: func(s *site) {
				s.buy("r1", "c", terms{amount: "x", payTo: other, resource: "https://elsewhere.example/"})
			}, want: "review",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, test.policy)
			test.before(s)
			s.clock.add(time.Minute - time.Second)
			v := s.ask(request)
			if v.Decision != "review" || v.ReviewID == "" {
				t.Fatalf("%s by %+v", v.Decision, v.Reasons)
			}
			s.decide("approved", v.ReviewID)
			test.after(s)
			again := request
			again.ReviewID = v.ReviewID
			if got := s.ask(again); got.Decision != test.want {
				t.Errorf("%s by %+v, want %s", got.Decision, got.Reasons, test.want)
			}
		})
	}
}
