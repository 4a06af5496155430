package decision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model is the log as its contract tells it: a list of lines, and every question
// answered by going through all of them.
type model struct{ lines []told }

type told struct {
	at   time.Time
	body Body
}

type naive struct {
	status          string
	since, deadline time.Time
	lapsed          bool
	opened          Opened
	openedAt        time.Time
}

func (m *model) review(id string) *naive {
	var r *naive
	for _, l := range m.lines {
		if r != nil && !r.lapsed && (r.status == StatusPending || r.status == StatusApproved) {
			r.lapsed = !l.at.Before(r.deadline) || r.status == StatusApproved && l.at.Add(time.Minute).Before(r.since)
		}
		switch b := l.body.(type) {
		case Opened:
			if b.ReviewID == id {
				r = &naive{status: StatusPending, since: l.at, deadline: b.ExpiresAt, opened: b, openedAt: l.at}
			}
		case Decided:
			if b.ReviewID != id {
				continue
			}
			r.since = l.at
			switch b.Decision {
			case Approved:
				r.status, r.deadline = StatusApproved, l.at.Add(r.opened.ExpiresAt.Sub(r.openedAt))
			case Rejected:
				r.status = StatusRejected
			case Revoked:
				r.status = StatusRevoked
			case Reopened:
				r.status, r.deadline, r.lapsed = StatusPending, l.at.Add(r.opened.ExpiresAt.Sub(r.openedAt)), false
			}
		case Held:
			if b.ReviewID == id && r != nil && r.status == StatusApproved {
				r.status = StatusUsed
			}
		case ApprovalUsed:
			if b.ReviewID == id && r != nil && r.status == StatusApproved {
				r.status = StatusUsed
			}
		}
	}
	return r
}

func (r *naive) at(now time.Time) string {
	if r.status == StatusPending || r.status == StatusApproved {
		if r.lapsed || !now.Before(r.deadline) || r.status == StatusApproved && now.Add(time.Minute).Before(r.since) {
			return StatusExpired
		}
	}
	return r.status
}

// changes reports whether a body may be appended.
func (m *model) changes(b Body, now time.Time) bool {
	switch b := b.(type) {
	case Opened:
		return m.review(b.ReviewID) == nil
	case Decided:
		r := m.review(b.ReviewID)
		if r == nil {
			return false
		}
		switch b.Decision {
		case Approved:
			return r.at(now) == StatusPending
		case Rejected:
			return r.status == StatusPending
		case Revoked:
			return r.status == StatusApproved
		default:
			return r.status == StatusRejected
		}
	}
	return true
}

func (m *model) holds(now time.Time) []string {
	type hold struct {
		id        string
		base, end time.Time
		span      time.Duration
	}
	var all []hold
	var newest time.Time
	for _, l := range m.lines {
		switch b := l.body.(type) {
		case Held:
			all = append(all, hold{b.HoldID, later(newest, l.at), b.ExpiresAt, b.ExpiresAt.Sub(l.at)})
		case Released:
			// The last of that id ends; ids are unique in earnest.
			for i := len(all) - 1; i >= 0; i-- {
				if all[i].id == b.HoldID {
					all = slices.Delete(all, i, i+1)
					break
				}
			}
		}
		newest = later(newest, l.at)
	}
	var out []string
	for _, h := range all {
		if now.Before(h.end) || !now.Before(h.base) && now.Before(h.base.Add(h.span)) {
			out = append(out, h.id)
		}
	}
	return out
}

func (m *model) frozen() map[string]bool {
	all := map[string]bool{}
	for _, l := range m.lines {
		switch b := l.body.(type) {
		case Frozen:
			all[b.Scope] = true
		case Unfrozen:
			delete(all, b.Scope)
		}
	}
	return all
}

func (m *model) consumed(r Ref) (n int) {
	for _, l := range m.lines {
		switch b := l.body.(type) {
		case Released:
			n += btoi(b.Why == WhyPaid && b.By != nil && b.By.key() == r.key())
		case ApprovalUsed:
			n += btoi(b.By.Run != "" && (Ref{b.By.Run, b.By.Operation}).key() == r.key())
		}
	}
	return n
}

func (m *model) run(run string) (seen int64, rewritten int, acked bool, resolved string) {
	seen = -1
	for _, l := range m.lines {
		switch b := l.body.(type) {
		case Seen:
			if b.Runs[0].Run == run {
				seen = b.Runs[0].Covered
			}
		case Rewritten:
			if b.Run == run {
				seen, acked, resolved = -1, false, ""
				rewritten++
			}
		case Acknowledged:
			if b.Run == run {
				rewritten, acked = 0, true
			}
		case Resolved:
			if b.Run == run {
				resolved = b.Note
			}
		case Unresolved:
			if b.Run == run {
				resolved = ""
			}
		}
	}
	return seen, rewritten, acked, resolved
}

func (m *model) check(t *rapid.T, s *State, now time.Time) {
	if s.Lines() != int64(len(m.lines)) {
		t.Fatalf("%d lines, want %d", s.Lines(), len(m.lines))
	}
	pending, rejected := 0, 0
	for i := range 3 {
		id := fmt.Sprint("r-", i)
		want, got := m.review(id), s.Review(id)
		if (want == nil) != (got == nil) {
			t.Fatalf("%s: %v, want %v", id, got, want)
		}
		if want == nil {
			continue
		}
		if got.Status(now) != want.at(now) {
			t.Fatalf("%s is %s, want %s", id, got.Status(now), want.at(now))
		}
		pending += btoi(want.at(now) == StatusPending)
		rejected += btoi(want.status == StatusRejected)
	}
	if got := s.Pending("", now); got != pending {
		t.Fatalf("%d pending, want %d", got, pending)
	}
	if got := len(slices.Collect(s.Rejections(now, 1<<20))); got != rejected {
		t.Fatalf("%d rejected, want %d", got, rejected)
	}
	var holds []string
	for _, h := range s.Holds(now) {
		holds = append(holds, h.HoldID)
	}
	if want := m.holds(now); !slices.Equal(holds, want) {
		t.Fatalf("holds %v, want %v", holds, want)
	}
	frozen := m.frozen()
	if len(s.AllFrozen()) != len(frozen) {
		t.Fatalf("frozen %v, want %v", s.AllFrozen(), frozen)
	}
	for _, f := range s.AllFrozen() {
		if !frozen[f.Scope] {
			t.Fatalf("%s is frozen", f.Scope)
		}
	}
	for _, run := range []string{"a", "b"} {
		r := ref(run, "op")
		if got, want := s.Consumed(r), m.consumed(r); got != want {
			t.Fatalf("consumed %d, want %d", got, want)
		}
		seen, rewritten, acked, resolved := m.run(run)
		c, ok := s.Seen(run)
		if ok != (seen >= 0) || ok && c.Covered != seen {
			t.Fatalf("seen %v, want %d", c, seen)
		}
		_, ack := s.Acknowledged(run)
		if len(s.Rewritten(run)) != rewritten || ack != acked {
			t.Fatalf("rewritten %d, acknowledged %v, want %d, %v", len(s.Rewritten(run)), ack, rewritten, acked)
		}
		note := ""
		if res := s.Resolution(r); res != nil {
			note = res.Note
		}
		if note != resolved {
			t.Fatalf("resolved %q, want %q", note, resolved)
		}
	}
}

func anyBody(t *rapid.T, now time.Time) Body {
	review := fmt.Sprint("r-", rapid.IntRange(0, 2).Draw(t, "review"))
	run := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "run")
	scope := rapid.SampledFrom([]string{"all", "a.example", "b.example"}).Draw(t, "scope")
	hold := fmt.Sprint("h-", rapid.IntRange(0, 9).Draw(t, "hold"))
	op := ref(run, "op")
	n := rapid.IntRange(1, 1000).Draw(t, "n")
	return rapid.SampledFrom([]Body{
		asked(review, pay("a.example", review), now),
		Decided{ReviewID: review, Decision: Approved}, Decided{ReviewID: review, Decision: Rejected},
		Decided{ReviewID: review, Decision: Revoked}, Decided{ReviewID: review, Decision: Reopened},
		ApprovalUsed{ReviewID: review, By: UsedBy{Run: run, Operation: op.Operation}},
		held(hold, pay("a.example", "1"), now), Held{HoldID: hold + "r", Intent: pay("a.example", "1"), ExpiresAt: now.Add(time.Hour), ReviewID: review},
		Released{HoldID: hold, Why: WhyPaid, By: &op}, Released{HoldID: hold, Why: WhyReleased},
		Frozen{Scope: scope, Reason: "x"}, Unfrozen{Scope: scope},
		Seen{Runs: []Covered{{Run: run, Covered: int64(n)}}}, Rewritten{Run: run, How: Edited}, Acknowledged{Run: run},
		Resolved{Ref: op, Outcome: Settled, Note: fmt.Sprint(n)}, Unresolved{Ref: op},
		Allowed{Intent: pay("a.example", fmt.Sprint(n)), PolicyHash: testHash},
	}).Draw(t, "body")
}

func TestAnyInterleavingOfHandlesIsTheModel(t *testing.T) {
	base := t.TempDir()
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		dir := filepath.Join(base, strconv.Itoa(round))
		c := newClock()
		open := func() *Log {
			l, err := Open(Options{Dir: dir, Now: c.now})
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		handles := []*Log{open(), open(), open()}
		m := &model{}
		pick := func() int { return rapid.IntRange(0, len(handles)-1).Draw(t, "handle") }
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				now := whole(c.now())
				next := &model{slices.Clone(m.lines)}
				ok := true
				var bodies []Body
				for range rapid.IntRange(1, 3).Draw(t, "lines") {
					b := anyBody(t, now)
					ok = ok && next.changes(b, now)
					if ok {
						next.lines = append(next.lines, told{now, b})
					}
					bodies = append(bodies, b)
				}
				s, err := handles[pick()].Update(context.Background(), "", func(s *State) ([]Body, error) {
					m.check(t, s, now)
					return bodies, nil
				})
				if (err == nil) != ok {
					t.Fatalf("writing %v gives %v, want success %v", bodies, err, ok)
				}
				if ok {
					m = next
					m.check(t, s, now)
				}
			},
			"read": func(t *rapid.T) {
				s, err := handles[pick()].Read(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				m.check(t, s, c.now())
			},
			"restart": func(*rapid.T) { handles[pick()] = open() },
			"time passes": func(t *rapid.T) {
				c.add(time.Duration(rapid.SampledFrom([]int{1, 59, 61, 600, 3600, 80_000, 200_000}).Draw(t, "seconds")) * time.Second)
			},
			"the clock is set back": func(t *rapid.T) {
				c.add(-time.Duration(rapid.SampledFrom([]int{1, 61, 3600, 90_000}).Draw(t, "seconds")) * time.Second)
			},
			"a writer dies": func(t *rapid.T) {
				// It leaves a part of what the next write would be.
				s, err := handles[0].Read(context.Background())
				if err != nil || s.Torn() > 0 || s.Lines() == 0 {
					return
				}
				text, _, err := compose(s.Lines(), s.Sig(), c.now(), []entry{{"", Frozen{Scope: "torn"}}, {"", Frozen{Scope: "torn"}}})
				if err != nil {
					t.Fatal(err)
				}
				f, err := os.OpenFile(handles[0].Path(), os.O_APPEND|os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				if _, err := f.Write(text[:rapid.IntRange(1, len(text)-1).Draw(t, "torn")]); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {},
		})
		raw, err := os.ReadFile(filepath.Join(dir, FileName))
		if errors.Is(err, os.ErrNotExist) {
			return
		}
		if s, err := open().Read(context.Background()); err != nil || s.Lines() != int64(len(m.lines)) {
			t.Fatal(s.Lines(), err)
		} else {
			m.check(t, s, c.now())
			raw = raw[:int64(len(raw))-s.Torn()]
		}
		if n := bytes.Count(raw, []byte("\n")); n != len(m.lines) {
			t.Fatalf("%d lines in the file", n)
		}
	})
}

// raceDir makes the test binary a writer: see TestRealProcessesWriteOneChain.
const raceDir = "SETTLEWATCH_TEST_RACE_DIR"

func TestMain(m *testing.M) {
	dir := os.Getenv(raceDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	l, err := Open(Options{Dir: dir, Now: time.Now, LockWait: time.Minute})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	me := strconv.Itoa(os.Getpid())
	for i := range 15 {
		// Each takes a free place under the lock; two must never get the same.
		_, err := l.Update(context.Background(), me, func(s *State) ([]Body, error) {
			free := 0
			for s.Hold(fmt.Sprint("h-", free), start) != nil {
				free++
			}
			return []Body{held(fmt.Sprint("h-", free), pay("a.example", me), start), Frozen{Scope: fmt.Sprint(me, "-", i), Reason: "x"}}, nil
		})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		if _, err := l.Read(context.Background()); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(0)
}

func TestRealProcessesWriteOneChain(t *testing.T) {
	f := newFixture(t)
	exe, err := os.Executable()
	must(t, err)
	const writers = 4
	var all []*exec.Cmd
	var out [writers]bytes.Buffer
	for i := range writers {
		c := exec.CommandContext(t.Context(), exe)
		c.Env = append(os.Environ(), raceDir+"="+f.dir)
		c.Stdout, c.Stderr = &out[i], &out[i]
		must(t, c.Start())
		all = append(all, c)
	}
	for i, c := range all {
		if err := c.Wait(); err != nil {
			t.Errorf("%v: %s", err, &out[i])
		}
	}
	lines := audit(t, f.bytes())
	s := f.read()
	if len(lines) != writers*15*2 || len(s.Holds(start)) != writers*15 || len(s.AllFrozen()) != writers*15 {
		t.Errorf("%d lines, %d holds, %d frozen", len(lines), len(s.Holds(start)), len(s.AllFrozen()))
	}
	for i := range writers * 15 {
		if s.Hold(fmt.Sprint("h-", i), start) == nil {
			t.Errorf("place %d was given away twice, or not at all", i)
		}
	}
}

// TestAProcessThatIsKilledLeavesNothingHalf kills writers at any moment.
func TestAProcessThatIsKilledLeavesNothingHalf(t *testing.T) {
	f := newFixture(t)
	exe, err := os.Executable()
	must(t, err)
	for i := range 6 {
		c := exec.CommandContext(t.Context(), exe)
		c.Env = append(os.Environ(), raceDir+"="+f.dir)
		must(t, c.Start())
		time.Sleep(time.Duration(20+15*i) * time.Millisecond)
		_ = c.Process.Kill()
		_ = c.Wait()
		s, err := f.another().Read(t.Context())
		if err != nil || s.Lines()%2 != 0 {
			t.Fatalf("%d lines, %v", s.Lines(), err)
		}
	}
	if _, err := f.Update(t.Context(), "", func(*State) ([]Body, error) { return []Body{Frozen{Scope: "after"}}, nil }); err != nil {
		t.Fatal(err)
	}
	audit(t, f.bytes())
}
