package decision

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"pgregory.net/rapid"
)

// calling is a review of a tool call.
func calling(id string, now time.Time) Opened {
	return Opened{
		ReviewID: id, Kind: KindToolCall, Intent: Intent{Typed: "tool_call " + id}, Counterparty: "ledger.post", ExpiresAt: now.Add(24 * time.Hour), PolicyHash: testHash,
		Call: &Call{Tool: "ledger.post", Resource: "tenant:a", Arguments: "{}", RequestHash: id, Canon: "jcs-1", TTL: 300_000},
	}
}

func receipt(id, review string, expires time.Time) Authorized {
	return Authorized{ReceiptID: id, Receipt: "{}", Tool: "ledger.post", Scope: "tenant:a", ReviewID: review, ExpiresAt: expires, Canon: "jcs-1"}
}

func spending(id, notional string, expires time.Time) Authorized {
	a := receipt(id, "", expires)
	a.Spend = &Spend{Gate: "desk", Action: "BUY", Asset: "USD", Notional: notional}
	return a
}

func used(id, review string) Executed {
	return Executed{ReceiptID: id, Tool: "ledger.post", Scope: "tenant:a", ReviewID: review, Canon: "jcs-1"}
}

func TestAReceiptIsIssuedForAnApprovalAndUsedOnce(t *testing.T) {
	f := newFixture(t)
	f.write(calling("r-1", start))
	if _, err := writeOn(f.Log, []Body{receipt("n-1", "r-1", start.Add(time.Hour))}); code(err) != errcode.ReviewDecided {
		t.Errorf("a receipt for a pending review: %v", err)
	}
	s := f.write(Decided{ReviewID: "r-1", Decision: Approved}, receipt("n-1", "r-1", start.Add(time.Hour)))
	if r := s.Review("r-1"); r.ReceiptID != "n-1" || !r.ExpiresAt(start).Equal(start.Add(time.Hour)) || r.Last().Hash == "" {
		t.Errorf("the review is %+v", r)
	}
	for name, body := range map[string]Body{
		"a second receipt for it":       receipt("n-2", "r-1", start.Add(time.Hour)),
		"the same id again":             receipt("n-1", "", start.Add(time.Hour)),
		"one for a review of no one":    receipt("n-3", "r-9", start.Add(time.Hour)),
		"a review of that id once more": calling("r-1", start),
	} {
		if _, err := writeOn(f.Log, []Body{body}); err == nil {
			t.Errorf("%s was written", name)
		}
	}
	s = f.write(used("n-1", "r-1"))
	if r := s.Review("r-1"); r.Status(start) != StatusUsed || r.Used.ReceiptID != "n-1" {
		t.Errorf("the review is %+v", r)
	}
	if !s.Burnt("n-1") || s.Burnt("n-2") || s.Receipt("n-1").Alive(start) {
		t.Error("what is used is not told from what is not")
	}
	if _, err := writeOn(f.Log, []Body{used("n-1", "r-1")}); err == nil {
		t.Error("it was used twice")
	}
	// Another process, and one that starts later, see the same.
	if s, err := f.another().Read(t.Context()); err != nil || !s.Burnt("n-1") {
		t.Errorf("another process: %v", err)
	}
}

func TestAPaymentsReviewYieldsNoReceipt(t *testing.T) {
	f := newFixture(t)
	f.write(asked("r-1", pay("a.example", "1"), start), Decided{ReviewID: "r-1", Decision: Approved})
	if _, err := writeOn(f.Log, []Body{receipt("n-1", "r-1", start.Add(time.Hour))}); code(err) != errcode.ReviewNotFound {
		t.Errorf("%v", err)
	}
}

func TestAReceiptThatIsRefusedForGoodIsUsedUp(t *testing.T) {
	f := newFixture(t)
	s := f.write(Denied{Tool: "authorize_tool_call", ReasonCode: "expired_receipt", ReceiptID: "d-1", Presented: "n-1", Burnt: "n-1"})
	if !s.Burnt("n-1") {
		t.Error("it can be used again")
	}
	if s = f.write(Denied{Tool: "authorize_tool_call", ReasonCode: "changed_arguments", ReceiptID: "d-2", Presented: "n-2"}); s.Burnt("n-2") {
		t.Error("a refusal that names a receipt has used it up")
	}
	if _, err := writeOn(f.Log, []Body{receipt("n-1", "", start.Add(time.Hour))}); err == nil {
		t.Error("a receipt was issued under an id that is used up")
	}
}

func TestADoubtfulLineBurnsAndIssuesNothing(t *testing.T) {
	f := newFixture(t)
	f.write(receipt("n-1", "", start.Add(time.Hour)))
	whole := f.bytes()
	f.write(Frozen{Scope: "a.example", Reason: "the line that will be broken"})
	f.write(receipt("n-2", "", start.Add(time.Hour)))
	f.write(used("n-1", ""))
	raw := f.bytes()
	f.set(append(whole[:len(whole):len(whole)], []byte(strings.Replace(string(raw[len(whole):]), "the line", "THE LINE", 1))...))
	s := unsoundness(t, f.another()).State
	if s.Receipt("n-2") != nil || !s.Burnt("n-1") {
		t.Error("behind a fault, a receipt was issued or a use was forgotten")
	}
}

// ofTheDay is what counts in the day of the gate, in order.
func ofTheDay(s *State, now time.Time) string {
	var all []string
	for r := range s.Spends("desk", now) {
		all = append(all, r.ReceiptID)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestADayIsTheUTCDayAndExpiredReceiptsGiveTheirMoneyBack(t *testing.T) {
	midnight := time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC)
	f := newFixture(t)
	last := midnight.Add(-time.Millisecond)
	f.force(last, spending("late", "1", last.Add(5*time.Minute)))
	f.force(last, spending("carried", "1", last.Add(5*time.Minute)))
	f.force(last, spending("spent", "1", last.Add(5*time.Minute)))
	s := f.force(last, used("spent", ""))
	for _, test := range []struct {
		at   time.Time
		want string
	}{
		{last, "carried late spent"},
		{midnight, "carried late"}, // what was spent yesterday was yesterday's
		{midnight.Add(5*time.Minute - time.Millisecond), ""},
		{midnight.Add(-24 * time.Hour), "carried late spent"}, // a clock that was set back
	} {
		if got := ofTheDay(s, test.at); got != test.want {
			t.Errorf("at %s: %q, want %q", test.at, got, test.want)
		}
	}
	// Issued before midnight and used after it, it is of both days.
	s = f.force(midnight, used("carried", ""))
	if got := ofTheDay(s, midnight.Add(time.Hour)); got != "carried" {
		t.Errorf("%q", got)
	}
	// The time zone of the machine is nothing to it.
	if got := ofTheDay(s, midnight.Add(time.Hour).In(time.FixedZone("far", -11*3600))); got != "carried" {
		t.Errorf("%q", got)
	}
	// One that was presented when it could no longer be used was not spent.
	f.force(midnight, spending("over", "1", midnight.Add(time.Minute)))
	s = f.force(midnight.Add(2*time.Minute), Denied{Tool: "x", ReasonCode: "expired", ReceiptID: "d-1", Presented: "over", Burnt: "over"})
	if got := ofTheDay(s, midnight.Add(3*time.Minute)); got != "carried late" || !s.Burnt("over") {
		t.Errorf("%q", got)
	}
	s = f.force(midnight, spending("other", "1", midnight.Add(time.Hour)))
	for range s.Spends("des", midnight) {
		t.Error("a gate counts what is another's")
	}
}

func TestARecoveredLogHonoursNoReceiptAndForgetsNoSpending(t *testing.T) {
	f := newFixture(t)
	f.write(spending("n-1", "1", start.Add(time.Hour)))
	f.write(spending("n-2", "1", start.Add(time.Hour)), used("n-2", ""))
	raw := f.bytes()
	f.set(append(raw, []byte("{}\n")...))
	l := f.another()
	if _, err := l.Recover(t.Context(), SetAside{}); err != nil {
		t.Fatal(err)
	}
	s, err := l.Read(t.Context())
	if err != nil || !s.Burnt("n-1") || !s.Burnt("n-2") {
		t.Errorf("a receipt can be used again, %v", err)
	}
	if got := ofTheDay(s, start); got != "n-1 n-2" {
		t.Errorf("of the day, %q counts", got)
	}
}

// Whatever is written in whatever order, a receipt is used at most once, and what
// the day adds up to is what a list of all that happened says.
func TestReceiptsAddUp(t *testing.T) {
	ids := []string{"a", "b", "c"}
	rapid.Check(t, func(rt *rapid.T) {
		f := newFold(nil)
		now, seq := start, int64(0)
		type fate struct{ issued, burnt, expires time.Time }
		all := map[string]*fate{}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(rt, "minutes")) * time.Minute)
			id := rapid.SampledFrom(ids).Draw(rt, "id")
			seq++
			l := &line{Envelope: Envelope{Seq: seq, At: now}}
			before := f.ignoredTotal
			if known := all[id]; rapid.Bool().Draw(rt, "issue") {
				a := spending(id, "1", now.Add(time.Hour))
				l.body = &a
				f.apply(l)
				if (f.ignoredTotal == before) != (known == nil) {
					rt.Fatalf("%s was issued: %v, known %+v", id, f.ignoredTotal == before, known)
				}
				if known == nil {
					all[id] = &fate{issued: now, expires: now.Add(time.Hour)}
				}
			} else {
				u := used(id, "")
				l.body = &u
				f.apply(l)
				if (f.ignoredTotal == before) != (known == nil || known.burnt.IsZero()) {
					rt.Fatalf("%s was used: %v, known %+v", id, f.ignoredTotal == before, known)
				}
				if known == nil {
					all[id] = &fate{burnt: now} // a receipt of somebody else's
				} else if known.burnt.IsZero() {
					known.burnt = now
				}
			}
			midnight := now.Truncate(24 * time.Hour)
			var want []string
			for id, x := range all {
				alive := x.burnt.IsZero() && now.Before(x.expires)
				if !x.issued.IsZero() && (alive || !x.burnt.IsZero() && (!x.burnt.Before(midnight) || !x.issued.Before(midnight))) {
					want = append(want, id)
				}
			}
			slices.Sort(want)
			if got := ofTheDay(f.snapshot(), now); got != strings.Join(want, " ") {
				rt.Fatalf("at %s %q counts, want %q", now, got, want)
			}
		}
	})
}
