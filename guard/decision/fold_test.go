package decision

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// hour is where the clock of a fold test stands, in hours after the start.
func hour(h float64) time.Time { return start.Add(time.Duration(h * float64(time.Hour))) }

func TestTheLifeOfAReview(t *testing.T) {
	in := pay("a.example", "5")
	type step struct {
		at   float64 // hours after it was opened
		body Body
	}
	dec := func(what string) Body { return Decided{ReviewID: "r-1", Decision: what, Note: what} }
	by := UsedBy{HoldID: "h-1"}
	for name, c := range map[string]struct {
		steps []step
		at    float64
		want  string
		until float64 // when it expires; 0 for that of the opening
	}{
		"it is pending at first": {nil, 1, StatusPending, 24},
		"silence is not consent": {nil, 24, StatusExpired, 24},
		"approved":               {[]step{{2, dec(Approved)}}, 3, StatusApproved, 26},
		"an approval lasts as long from its decision":  {[]step{{20, dec(Approved)}}, 43.9, StatusApproved, 44},
		"an approval expires":                          {[]step{{20, dec(Approved)}}, 44, StatusExpired, 44},
		"rejected":                                     {[]step{{2, dec(Rejected)}}, 1000, StatusRejected, 24},
		"it is decided once":                           {[]step{{2, dec(Rejected)}, {3, dec(Approved)}}, 4, StatusRejected, 24},
		"an approval is not rejected":                  {[]step{{2, dec(Approved)}, {3, dec(Rejected)}}, 4, StatusApproved, 26},
		"an approval is revoked":                       {[]step{{2, dec(Approved)}, {3, dec(Revoked)}}, 4, StatusRevoked, 26},
		"what is pending cannot be revoked":            {[]step{{3, dec(Revoked)}}, 4, StatusPending, 24},
		"what was revoked stays so":                    {[]step{{2, dec(Approved)}, {3, dec(Revoked)}, {4, dec(Reopened)}, {5, dec(Approved)}}, 6, StatusRevoked, 26},
		"a rejection is reopened with a new span":      {[]step{{2, dec(Rejected)}, {30, dec(Reopened)}}, 53.9, StatusPending, 54},
		"reopened it expires as well":                  {[]step{{2, dec(Rejected)}, {30, dec(Reopened)}}, 54, StatusExpired, 54},
		"reopened it can be approved":                  {[]step{{2, dec(Rejected)}, {30, dec(Reopened)}, {31, dec(Approved)}}, 54.9, StatusApproved, 55},
		"what is pending cannot be reopened":           {[]step{{2, dec(Reopened)}}, 23, StatusPending, 24},
		"an approval that comes too late is none":      {[]step{{24, dec(Approved)}}, 25, StatusExpired, 24},
		"a rejection that comes too late is one":       {[]step{{24, dec(Rejected)}}, 25, StatusRejected, 24},
		"a hold that redeems it uses it up":            {[]step{{2, dec(Approved)}, {3, Held{HoldID: "h-1", Intent: in, ExpiresAt: hour(4), ReviewID: "r-1"}}}, 100, StatusUsed, 26},
		"a payment uses it up":                         {[]step{{2, dec(Approved)}, {3, ApprovalUsed{ReviewID: "r-1", By: by}}}, 4, StatusUsed, 26},
		"an expired approval can still turn out used":  {[]step{{2, dec(Approved)}, {30, ApprovalUsed{ReviewID: "r-1", By: by}}}, 31, StatusUsed, 26},
		"what is used is neither revoked nor reopened": {[]step{{2, dec(Approved)}, {3, ApprovalUsed{ReviewID: "r-1", By: by}}, {4, dec(Revoked)}, {5, dec(Reopened)}}, 6, StatusUsed, 26},
		"what is pending cannot be used":               {[]step{{3, ApprovalUsed{ReviewID: "r-1", By: by}}}, 4, StatusPending, 24},
		"what is rejected cannot be used":              {[]step{{2, dec(Rejected)}, {3, ApprovalUsed{ReviewID: "r-1", By: by}}}, 4, StatusRejected, 24},

		// Clocks go backwards, and nothing becomes looser through it.
		"an approval that was seen to expire stays expired": {[]step{{2, dec(Approved)}, {27, Seen{}}, {3, Seen{}}}, 4, StatusExpired, 26},
		"a review that was seen to expire stays expired":    {[]step{{25, Seen{}}, {3, dec(Approved)}}, 4, StatusExpired, 24},
		"an approval from the future is none":               {[]step{{200, dec(Approved)}}, 30, StatusExpired, 24},
		"an approval does not begin before it was given":    {[]step{{10, dec(Approved)}}, 9, StatusExpired, 34},
		"within a minute clocks may differ":                 {[]step{{10, dec(Approved)}}, 9.99, StatusApproved, 34},
		"once the clock was behind it, it is over for good": {[]step{{10, dec(Approved)}, {5, Seen{}}}, 11, StatusExpired, 34},
		"a clock set back lengthens no review":              {[]step{{1, dec(Rejected)}, {30, dec(Reopened)}, {2, Seen{}}}, 53.9, StatusPending, 54},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.force(start, asked("r-1", in, start))
			for _, s := range c.steps {
				f.force(hour(s.at), s.body)
			}
			r := f.read().Review("r-1")
			if got := r.Status(hour(c.at)); got != c.want {
				t.Errorf("it is %s, want %s", got, c.want)
			}
			if got := r.ExpiresAt(hour(c.at)); !got.Equal(hour(c.until)) {
				t.Errorf("it expires at %s, want %s", got, hour(c.until))
			}
			// The lists agree with the status.
			s, now := f.read(), hour(c.at)
			if (s.PendingFor(in, now) != nil) != (c.want == StatusPending) || s.Pending("", now) != btoi(c.want == StatusPending) {
				t.Error("PendingFor and Pending disagree")
			}
			if n, oldest := s.Waiting(now); n != btoi(c.want == StatusPending) || n == 1 && !oldest.Equal(start) {
				t.Errorf("Waiting disagrees: %d, the oldest since %s", n, oldest)
			}
			if (s.UsableFor(in, now) != nil) != (c.want == StatusApproved) || len(s.Approvals(now)) != btoi(c.want == StatusApproved) {
				t.Error("UsableFor and Approvals disagree")
			}
			if n := len(slices.Collect(s.Rejections(now, 1_000_000))); n != btoi(c.want == StatusRejected) {
				t.Error("Rejections disagree")
			}
		})
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestAReviewSaysWhoAskedAndWhoDecided(t *testing.T) {
	f := newFixture(t)
	_, err := f.Update(t.Context(), "agent-7", func(*State) ([]Body, error) {
		return []Body{asked("r-1", pay("a.example", "5"), f.now())}, nil
	})
	must(t, err)
	f.add(time.Hour)
	s := f.write(Decided{ReviewID: "r-1", Decision: Approved, Note: "fine", Signed: Signed{DecidedBy: "alice", Signature: "bm8=", Key: "bm8="}})
	r := s.Review("r-1")
	d := r.Last()
	if r.Actor != "agent-7" || !r.At.Equal(start) || r.Seq != 1 || d.Seq != 2 || d.Note != "fine" || !d.At.Equal(hour(1)) {
		t.Errorf("got %+v, %+v", r, d)
	}
	if d.Signature != "" || d.Key != "" || d.Operator != "" || d.DecidedBy != "alice" {
		t.Errorf("an unverified signature is shown as one: %+v", d)
	}
	f.write(ApprovalUsed{ReviewID: "r-1", By: UsedBy{Run: "run", Operation: ref("", "op").Operation}})
	r = f.read().Review("r-1")
	if r.Used == nil || r.Used.Run != "run" || *r.Used.Operation != "op" || !r.UsedAt.Equal(hour(1)) || r.Status(hour(1)) != StatusUsed {
		t.Errorf("got %+v", r)
	}
}

func TestReviewsAreFoundByIntentByIDAndByAge(t *testing.T) {
	f := newFixture(t)
	a, b := pay("a.example", "5"), pay("b.example", "5")
	f.write(asked("r-aaaa1111", a, f.now()), asked("r-aaaa2222", b, f.now()), asked("r-bbbb", a, f.now()))
	f.write(Decided{ReviewID: "r-aaaa1111", Decision: Approved})
	f.write(Decided{ReviewID: "r-bbbb", Decision: Approved})
	s, now := f.read(), f.now()
	template := a
	template.Template = "escrow"
	if r := s.UsableFor(template, now); r == nil || r.ReviewID != "r-aaaa1111" {
		t.Error("the template is no part of what an intent is, and the oldest approval comes first")
	}
	for name, other := range map[string]Intent{
		"amount": pay("a.example", "6"), "name": pay("c.example", "5"),
		"resource": {Names: a.Names, Amount: a.Amount, Asset: a.Asset, Resource: "https://a.example/x"},
		"typed":    {Names: a.Names, Amount: a.Amount, Asset: a.Asset, Typed: "5 X"},
		"asset":    {Names: a.Names, Amount: a.Amount, Asset: "x"},
		"names":    {Names: []string{"a.example", "b.example"}, Amount: a.Amount, Asset: a.Asset},
		"shifted":  {Names: []string{""}, Amount: a.Amount, Asset: a.Asset, Typed: "a.example"},
	} {
		if s.UsableFor(other, now) != nil || other.Same(a) {
			t.Errorf("another %s is another intent", name)
		}
	}
	if !a.Same(template) {
		t.Error("the template is no part of an intent")
	}
	for prefix, want := range map[string]int{"r-": 2, "r-aaaa": 2, "r-aaaa1": 1, "r-aaaa1111": 1, "r-bbbb": 1, "r-c": 0, "": 2} {
		if got := s.FindReviews(prefix); len(got) != want {
			t.Errorf("%q finds %d, want %d", prefix, len(got), want)
		}
	}
	var ids []string
	for r := range s.Reviews() {
		ids = append(ids, r.ReviewID)
	}
	if !slices.Equal(ids, []string{"r-bbbb", "r-aaaa2222", "r-aaaa1111"}) {
		t.Errorf("newest first they are %v", ids)
	}
	for r := range s.ReviewsBefore(3) {
		if r.ReviewID != "r-aaaa2222" {
			t.Errorf("before line 3 comes %s", r.ReviewID)
		}
		break
	}
	if all := s.Approvals(now); len(all) != 2 || all[0].ReviewID != "r-aaaa1111" {
		t.Error("approvals come in the order of their decisions")
	}
	if s.Pending("", now) != 1 || s.Pending("somebody", now) != 0 {
		t.Error("pending reviews count for who asked")
	}
}

func TestAWholeIDThatBeginsAnotherIsUnique(t *testing.T) {
	f := newFixture(t)
	f.write(asked("r-12345678", pay("a", "1"), f.now()), asked("r-123456789", pay("a", "2"), f.now()))
	if got := f.read().FindReviews("r-12345678"); len(got) != 1 || got[0].ReviewID != "r-12345678" {
		t.Errorf("it finds %d", len(got))
	}
}

func TestARejectionSticksForItsHoursWhateverTheClockSaid(t *testing.T) {
	rejected := func(f *fixture, id string, at float64) {
		f.force(hour(at), asked(id, pay("a.example", "1"), hour(at)))
		f.force(hour(at), Decided{ReviewID: id, Decision: Rejected})
	}
	count := func(s *State, at float64) int { return len(slices.Collect(s.Rejections(hour(at), 24))) }
	t.Run("in order", func(t *testing.T) {
		f := newFixture(t)
		rejected(f, "r-1", 0)
		rejected(f, "r-2", 10)
		s := f.read()
		for at, want := range map[float64]int{11: 2, 23.9: 2, 24: 1, 33.9: 1, 34: 0, -100: 2} {
			if got := count(s, at); got != want {
				t.Errorf("after %v hours %d stick, want %d", at, got, want)
			}
		}
		for r := range s.Rejections(hour(11), 24) {
			if r.ReviewID != "r-2" {
				t.Error("the latest comes first")
			}
			break
		}
	})
	t.Run("the clock was behind", func(t *testing.T) {
		f := newFixture(t)
		f.force(hour(1000), Seen{})
		rejected(f, "r-1", 0) // at a time that is long past
		if s := f.read(); count(s, 1001) != 1 || count(s, 1024) != 0 || count(s, 1) != 1 {
			t.Error("it does not stick after the clock was set right")
		}
	})
	t.Run("the clock had been ahead for once", func(t *testing.T) {
		f := newFixture(t)
		f.force(hour(1_000_000), Seen{})
		rejected(f, "r-1", 0)
		if s := f.read(); count(s, 23) != 1 || count(s, 24) != 0 {
			t.Error("one wrong time makes rejections stick for good")
		}
	})
	t.Run("reopened", func(t *testing.T) {
		f := newFixture(t)
		rejected(f, "r-1", 0)
		f.force(hour(1), Decided{ReviewID: "r-1", Decision: Reopened})
		if count(f.read(), 2) != 0 {
			t.Error("it still sticks")
		}
		f.force(hour(3), Decided{ReviewID: "r-1", Decision: Rejected})
		if s := f.read(); count(s, 26) != 1 || count(s, 27) != 0 {
			t.Error("rejected again it sticks from then on")
		}
	})
}

func TestHoldsLastUntilTheyAreEndedOrOver(t *testing.T) {
	f := newFixture(t)
	in := pay("a.example", "5")
	f.write(held("h-1", in, start), held("h-2", in, start), held("h-3", in, start))
	f.write(Released{HoldID: "h-2", Why: WhyPaid, By: &Ref{Run: "run"}})
	s := f.read()
	minutes := func(m int) time.Time { return start.Add(time.Duration(m) * time.Minute) }
	if all := s.Holds(minutes(9)); len(all) != 2 || all[0].HoldID != "h-1" || all[1].HoldID != "h-3" {
		t.Errorf("active are %d", len(all))
	}
	if len(s.Holds(minutes(10))) != 0 || s.Hold("h-1", minutes(10)) != nil || s.Hold("h-1", minutes(9)) == nil || s.Hold("h-2", minutes(1)) != nil || s.Hold("h-9", start) != nil {
		t.Error("expired, ended or unknown holds are found")
	}
	if s.Consumed(Ref{Run: "run"}) != 1 || s.Consumed(ref("run", "")) != 0 || s.Consumed(ref("run", "x")) != 0 {
		t.Error("the payment of the operation without an id ended a hold, and no other")
	}
	f.write(Released{HoldID: "h-1", Why: WhyReleased}, Released{HoldID: "h-3", Why: WhyExpired})
	if s := f.read(); len(s.Holds(start)) != 0 || s.Consumed(Ref{Run: "run"}) != 1 {
		t.Error("a hold was not ended, or ended by a payment")
	}
}

func TestAHoldOfAClockThatWasBehindOutlivesItsCorrection(t *testing.T) {
	f := newFixture(t)
	f.force(hour(10), Seen{})
	f.force(hour(2), held("h-1", pay("a.example", "5"), hour(2)))
	s := f.read()
	for at, want := range map[time.Time]bool{
		hour(2): true, hour(2).Add(10 * time.Minute): false, hour(10): true,
		hour(10).Add(9 * time.Minute): true, hour(10).Add(10 * time.Minute): false,
	} {
		if got := s.Hold("h-1", at) != nil; got != want {
			t.Errorf("at %s: %v", at, got)
		}
	}
}

func TestAHoldThatNobodyEndsIsForgottenInTheEnd(t *testing.T) {
	f := newFold(nil)
	add := func(seq int64, at time.Time, b Body) {
		f.apply(&line{Envelope: Envelope{Seq: seq, At: at, Type: b.kind(), Sig: "x"}, body: b})
	}
	in := pay("a.example", "5")
	for i := range int64(100) {
		h := held(fmt.Sprint("h-", i), in, start)
		add(i+1, start, &h)
	}
	// A clock that jumps ahead for one line forgets nothing.
	h := held("jump", in, hour(10_000))
	add(101, hour(10_000), &h)
	if f.holds.Len() != 101 {
		t.Fatalf("%d holds are left", f.holds.Len())
	}
	for i := range int64(holdKeptLines + 200) {
		h := held("late", in, hour(50))
		add(102+i, hour(50), &h)
		add(103+i, hour(50), &Released{HoldID: "late", Why: WhyReleased})
	}
	if f.holds.Len() > 3 || f.holdIDs.Len() > 3 {
		t.Errorf("%d holds are left", f.holds.Len())
	}
}

func TestAPaymentIsConsumedByHoldsAndApprovals(t *testing.T) {
	f := newFixture(t)
	f.write(asked("r-1", pay("a.example", "5"), start), held("h-1", pay("a.example", "5"), start))
	f.write(Decided{ReviewID: "r-1", Decision: Approved})
	op := ref("run", "op")
	f.write(ApprovalUsed{ReviewID: "r-1", By: UsedBy{Run: op.Run, Operation: op.Operation}}, Released{HoldID: "h-1", Why: WhyPaid, By: &op})
	if got := f.read().Consumed(op); got != 2 {
		t.Errorf("got %d", got)
	}
}

func TestFreezesAreByScope(t *testing.T) {
	f := newFixture(t)
	f.write(Frozen{Scope: "b.example", Reason: "b"}, Frozen{Scope: "a.example", Reason: "a"})
	s := f.read()
	if fr, ok := s.Frozen([]string{"x.example", "b.example"}); !ok || fr.Reason != "b" {
		t.Errorf("got %+v", fr)
	}
	if _, ok := s.Frozen([]string{"x.example"}); ok {
		t.Error("another name is frozen")
	}
	if all := s.AllFrozen(); len(all) != 2 || all[0].Scope != "a.example" {
		t.Errorf("got %+v", all)
	}
	f.write(Frozen{Scope: ScopeAll, Reason: "all"}, Unfrozen{Scope: "a.example"})
	if fr, ok := f.read().Frozen(nil); !ok || fr.Reason != "all" {
		t.Error("a freeze of all is for every name")
	}
	f.write(Unfrozen{Scope: ScopeAll})
	s = f.read()
	if _, ok := s.Frozen([]string{"a.example"}); ok {
		t.Error("what was unfrozen is frozen")
	}
	if _, ok := s.Frozen([]string{"b.example"}); !ok {
		t.Error("to unfreeze all is not to unfreeze each")
	}
}

func TestResolutionsAreTakenBackByPeopleAndByRewriting(t *testing.T) {
	f := newFixture(t)
	a, null := ref("run-1", "a"), Ref{Run: "run-1"}
	f.write(Resolved{Ref: a, Outcome: Settled, Amount: "7", Note: "seen on chain"}, Resolved{Ref: null, Outcome: Failed, Note: "x"}, Resolved{Ref: ref("run-10", "a"), Outcome: Failed, Note: "y"})
	s := f.read()
	if r := s.Resolution(a); r == nil || r.Outcome != Settled || r.Amount != "7" {
		t.Errorf("got %+v", r)
	}
	if r := s.Resolution(null); r == nil || r.Outcome != Failed {
		t.Errorf("the operation without an id: %+v", r)
	}
	if s.Resolution(ref("run-1", "")) != nil {
		t.Error("an empty id is not no id")
	}
	if n := len(slices.Collect(s.ResolutionsOf("run-1"))); n != 2 {
		t.Errorf("run-1 has %d", n)
	}
	f.write(Unresolved{Ref: a})
	if s := f.read(); s.Resolution(a) != nil || len(slices.Collect(s.Resolutions())) != 2 {
		t.Error("it was not taken back")
	}
	f.write(Rewritten{Run: "run-1", Covered: 5, EventsBefore: 2, EventsAfter: 1, How: Shrunk})
	if s := f.read(); s.Resolution(null) != nil || s.Resolution(ref("run-10", "a")) == nil {
		t.Error("what was said of a run holds no longer once it is rewritten, and of others it does")
	}
}

func TestTheNewestBaselineCounts(t *testing.T) {
	f := newFixture(t)
	if f.read().Baseline() != nil {
		t.Error("there is one without a line")
	}
	f.write(Baseline{Through: start, Runs: []Covered{{Run: "a", Covered: 10}, {Run: "b", Covered: 20}}, Open: 3, Note: "past"})
	f.write(Baseline{Through: hour(1), Runs: []Covered{{Run: "a", Covered: 30}}, Note: "again"})
	s := f.read()
	if c, ok := s.BaselineOf("a"); !ok || c.Covered != 30 || s.Baseline().Note != "again" || !s.Baseline().Through.Equal(hour(1)) {
		t.Errorf("got %+v", c)
	}
	if _, ok := s.BaselineOf("b"); ok {
		t.Error("the older one still counts")
	}
	f.write(Rewritten{Run: "a", Covered: 30, How: Replaced})
	if _, ok := f.read().BaselineOf("a"); ok {
		t.Error("what is in a rewritten run is not what had been seen")
	}
	f.write(Baseline{Through: hour(2), Runs: []Covered{{Run: "a", Covered: 40}}})
	if c, ok := f.read().BaselineOf("a"); !ok || c.Covered != 40 {
		t.Error("a new baseline covers it again")
	}
}

func TestWhatWasSeenIsRememberedPerRun(t *testing.T) {
	f := newFixture(t)
	f.write(Seen{Runs: []Covered{{"a", 10, 1, 7}, {"b", 20, 2, 8}}})
	f.add(time.Minute)
	f.write(Seen{Runs: []Covered{{"a", 15, 2, 4_000_000_000}}})
	s := f.read()
	if c, ok := s.Seen("a"); !ok || c != (Covered{"a", 15, 2, 4_000_000_000}) || !s.SeenAt().Equal(start.Add(time.Minute)) {
		t.Errorf("got %+v", c)
	}
	if n := len(slices.Collect(s.SeenRuns())); n != 2 {
		t.Errorf("%d runs", n)
	}
	f.write(Rewritten{Run: "b", Covered: 20, EventsBefore: 2, How: Removed})
	if _, ok := f.read().Seen("b"); ok {
		t.Error("a run that is gone would be found missing again and again")
	}
}

func TestDamageIsAcknowledgedUpToThenAndNoFurther(t *testing.T) {
	f := newFixture(t)
	rewritten := func() (n int) {
		for run, all := range f.read().RewrittenRuns() {
			if run != "a" || len(all) == 0 {
				t.Errorf("got %s", run)
			}
			n += len(all)
		}
		return n
	}
	f.write(Rewritten{Run: "a", Covered: 10, EventsBefore: 3, EventsAfter: 2, How: Edited}, Rewritten{Run: "a", Covered: 9, How: Shrunk})
	if rewritten() != 2 || len(f.read().Rewritten("a")) != 2 {
		t.Error("two rewrites count")
	}
	f.write(Acknowledged{Run: "a", Through: 9, Faults: 1, Note: "disk"})
	if through, ok := f.read().Acknowledged("a"); !ok || through != 9 || rewritten() != 0 {
		t.Error("acknowledged they do not")
	}
	f.write(Rewritten{Run: "a", Covered: 9, How: Removed})
	if _, ok := f.read().Acknowledged("a"); ok || rewritten() != 1 {
		t.Error("later damage of the same run needs a new acknowledgement")
	}
	if _, ok := f.read().Acknowledged("b"); ok {
		t.Error("another run is acknowledged")
	}
}

func TestAVerdictIsNotWrittenAgainWithinAMinute(t *testing.T) {
	f := newFixture(t)
	in := pay("a.example", "5")
	f.write(Allowed{Intent: in, PolicyHash: testHash}, Blocked{Intent: in, Rule: "denylist", PolicyHash: testHash})
	second := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	s := f.read()
	template := in
	template.Template = "escrow"
	for name, c := range map[string]struct {
		kind, rule string
		in         Intent
		at         time.Time
		want       bool
	}{
		"at once":                {"allowed", "", in, start, true},
		"after 59 s":             {"allowed", "", in, second(59), true},
		"after a minute":         {"allowed", "", in, second(60), false},
		"by a clock set back":    {"allowed", "", in, second(-1), false},
		"by another template":    {"allowed", "", template, start, true},
		"another intent":         {"allowed", "", pay("a.example", "6"), start, false},
		"blocked by that rule":   {"blocked", "denylist", in, start, true},
		"blocked by another":     {"blocked", "frozen", in, start, false},
		"blocked without a rule": {"blocked", "", in, start, false},
	} {
		if got := s.RecentVerdict(c.kind, c.in, c.rule, c.at); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	// It is the same for one that reads the log only now, and old ones are forgotten.
	o, err := f.another().Read(t.Context())
	if err != nil || !o.RecentVerdict("allowed", in, "", second(59)) {
		t.Error("another process does not know")
	}
	f.add(2 * time.Minute)
	f.write(Allowed{Intent: pay("b.example", "1"), PolicyHash: testHash})
	if n := f.read().verdicts.Len(); n != 1 {
		t.Errorf("%d verdicts are remembered", n)
	}
}

func TestVerdictsTakeNoMemoryAfterTheirMinute(t *testing.T) {
	f := newFold(nil)
	for i := range int64(20_000) {
		f.apply(&line{Envelope: Envelope{Seq: i + 1, At: start.Add(time.Duration(i) * 100 * time.Millisecond), Type: "allowed"}, body: &Allowed{Intent: pay("a.example", fmt.Sprint(i))}})
	}
	if n := f.verdicts.Len(); n > 601 || len(f.told) > 601 {
		t.Errorf("%d are kept", n)
	}
}

func TestThePolicyIsTheLastOne(t *testing.T) {
	f := newFixture(t)
	if f.read().Policy() != nil {
		t.Error("there is one without a line")
	}
	f.write(Policy{Hash: "1"}, Policy{Hash: "2", Path: "/p", Operators: []Operator{{Name: "alice", PublicKey: "x", Until: start}}, Version: "v"})
	if p := f.read().Policy(); p.Hash != "2" || p.Path != "/p" || len(p.Operators) != 1 || p.Operators[0].Name != "alice" {
		t.Errorf("got %+v", p)
	}
}

func TestIgnoredActsAreToldAndBounded(t *testing.T) {
	f := newFold(nil)
	for i := range int64(250) {
		f.apply(&line{Envelope: Envelope{Seq: i + 1, At: start, Type: "decided"}, body: &Decided{ReviewID: "none", Decision: Approved}})
	}
	last, total := f.snapshot().Ignored()
	if total != 250 || len(last) != ignoredKept || last[len(last)-1].Seq != 250 || last[0].Seq != 151 || last[0].Why == "" {
		t.Errorf("%d of %d, from %d", len(last), total, last[0].Seq)
	}
}

func TestAnIDThatJSONCannotHoldHasOneForm(t *testing.T) {
	for id, want := range map[string]string{
		"": "", "op-1": "op-1", "\x00": "\x00", "\xed\xa0\x80": "wtf-8:eda080", "wtf-8:": "wtf-8:7774662d383a", "wtf-8:x": "wtf-8:7774662d383a78",
	} {
		got := EncodeID(id)
		if got != want || DecodeID(got) != id {
			t.Errorf("%q: %q, back %q", id, got, DecodeID(got))
		}
	}
}
