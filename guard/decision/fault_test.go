package decision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

// A scenario is what is written one after the other. garbage is put behind the
// lines before the step of that number, as another process leaves it that dies.
const (
	garbageBefore = 2
	garbage       = `{"actor":"x","at":"2026`
)

func scenario() [][]Body {
	in := pay("a.example", "1")
	return [][]Body{
		{Policy{Hash: testHash}, Frozen{Scope: "a.example", Reason: "x"}},
		{asked("r-1", in, start), held("h-1", in, start), Frozen{Scope: "b.example", Reason: "y"}},
		{Decided{ReviewID: "r-1", Decision: Rejected}},
		{Released{HoldID: "h-1", Why: WhyReleased}, Unfrozen{Scope: "a.example"}},
		{calling("r-2", start), Decided{ReviewID: "r-2", Decision: Approved}, receipt("n-1", "r-2", start.Add(time.Hour))},
		{used("n-1", "r-2")},
	}
}

const guardDir = "/guard"

func onDisk(t testing.TB, d *disk, change ...func(*Options)) *Log {
	t.Helper()
	o := Options{Dir: guardDir, FS: d, Now: func() time.Time { return start }, LockWait: 10 * time.Second}
	for _, c := range change {
		c(&o)
	}
	l, err := Open(o)
	must(t, err)
	return l
}

func (d *disk) litter() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.names[FileName]; f != nil && !bytes.HasSuffix(f.data, []byte(garbage)) {
		f.data = append(bytes.Clone(f.data), garbage...)
		f.stable, f.since = bytes.Clone(f.data), nil
		d.ticks++
		f.tick = d.ticks
	}
}

// until runs fn until the machine goes down.
func until(fn func()) (down bool) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(crashed); !ok {
				panic(r)
			}
			down = true
		}
	}()
	fn()
	return false
}

func writeOn(l *Log, bodies []Body) (*State, error) {
	return l.Update(context.Background(), "", func(*State) ([]Body, error) { return bodies, nil })
}

// sums are the lines the log has after each step.
func sums() []int64 {
	n, all := int64(0), []int64{0}
	for _, s := range scenario() {
		n += int64(len(s))
		all = append(all, n)
	}
	return all
}

func TestACrashAtAnyCallLeavesTheOldStateOrTheNew(t *testing.T) {
	total := sums()
	for call := 1; ; call++ {
		d := newDisk()
		d.crash = func(n int, _ string) bool { return n == call }
		step := 0
		down := until(func() {
			l := onDisk(t, d)
			for _, bodies := range scenario() {
				if step == garbageBefore {
					d.litter()
				}
				s, err := writeOn(l, bodies)
				if err != nil || s.Lines() != total[step+1] {
					t.Fatalf("step %d: %v", step, err)
				}
				step++
			}
		})
		if !down {
			if call < 40 {
				t.Fatalf("the whole is only %d calls", call)
			}
			return
		}
		for how := range 8 {
			at := fmt.Sprintf("crash at call %d (%s) in step %d, disk %d", call, d.trace[len(d.trace)-1], step, how)
			n := d.restart(how)
			l := onDisk(t, n)
			s, err := l.Read(context.Background())
			if err != nil {
				t.Fatalf("%s: %v", at, err)
			}
			if s.Lines() != total[step] && s.Lines() != total[step+1] {
				t.Fatalf("%s: %d lines, want %d or %d", at, s.Lines(), total[step], total[step+1])
			}
			// What a step did it did whole.
			done := step
			if s.Lines() == total[step+1] {
				done++
			}
			sameAs(t, at, s, done)
			// And it goes on from there.
			for _, bodies := range scenario()[done:] {
				if s, err = writeOn(l, bodies); err != nil {
					t.Fatalf("%s: then %v", at, err)
				}
			}
			sameAs(t, at, s, len(total)-1)
			audit(t, n.names[FileName].data)
			if step > garbageBefore && !n.keeps(garbage) {
				t.Fatalf("%s: the torn tail is lost", at)
			}
		}
	}
}

// keeps reports whether a file of torn bytes holds exactly what.
func (d *disk) keeps(what string) bool {
	for name, f := range d.names {
		if strings.HasPrefix(name, "torn-") && string(f.data) == what {
			return true
		}
	}
	return false
}

// sameAs holds a state to what it is after so many steps.
func sameAs(t testing.TB, at string, s *State, done int) {
	t.Helper()
	frozen := []int{0, 1, 2, 2, 1, 1, 1}[done]
	holds := []int{0, 0, 1, 1, 0, 0, 0}[done]
	status := []string{"", "", StatusPending, StatusRejected, StatusRejected, StatusRejected, StatusRejected}[done]
	got := ""
	if r := s.Review("r-1"); r != nil {
		got = r.Status(start)
	}
	if len(s.AllFrozen()) != frozen || len(s.Holds(start)) != holds || got != status || s.Lines() != sums()[done] {
		t.Fatalf("%s: after %d steps %d lines, %d frozen, %d holds, %q", at, done, s.Lines(), len(s.AllFrozen()), len(s.Holds(start)), got)
	}
	// A receipt is used up with the line that says so, and never by half.
	if issued := s.Receipt("n-1") != nil; issued != (done >= 5) || s.Burnt("n-1") != (done >= 6) {
		t.Fatalf("%s: after %d steps the receipt is issued: %v, used: %v", at, done, issued, s.Burnt("n-1"))
	}
}

func TestAnErrorAtAnyCallLeavesTheOldStateAndTheNextTryWorks(t *testing.T) {
	total := sums()
	for call := 1; ; call++ {
		d := newDisk()
		failed := ""
		d.fail = func(n int, op string) error {
			if n == call {
				failed = op
				return errNoSpace
			}
			return nil
		}
		l := onDisk(t, d)
		for step, bodies := range scenario() {
			if step == garbageBefore {
				d.litter()
			}
			s, err := writeOn(l, bodies)
			if err != nil {
				at := fmt.Sprintf("%s fails in step %d", failed, step)
				if code(err) != errcode.LogWrite || !errors.Is(err, errNoSpace) || s != nil {
					t.Fatalf("%s: %v", at, err)
				}
				if s, err = l.Read(context.Background()); err != nil {
					t.Fatalf("%s: then reading gives %v", at, err)
				}
				sameAs(t, at, s, step)
				if o, err := onDisk(t, d).Read(context.Background()); err != nil || o.Lines() != total[step] {
					t.Fatalf("%s: another process sees %d lines, %v", at, o.Lines(), err)
				}
				if s, err = writeOn(l, bodies); err != nil {
					t.Fatalf("%s: the second try gives %v", at, err)
				}
			}
			sameAs(t, failed, s, step+1)
		}
		audit(t, d.names[FileName].data)
		if !d.keeps(garbage) {
			t.Fatalf("%s fails: the torn tail is lost", failed)
		}
		if failed == "" {
			return
		}
	}
}

// TestADiskThatStaysBrokenIsNeverBelieved lets every call from one on fail, and
// those that would take back what was written with them.
func TestADiskThatStaysBrokenIsNeverBelieved(t *testing.T) {
	total := sums()
	for call := 1; ; call++ {
		d := newDisk()
		reached := false
		d.fail = func(n int, op string) error {
			if n >= call && (strings.HasPrefix(op, "write") || strings.HasPrefix(op, "sync") || strings.HasPrefix(op, "truncate") || strings.HasPrefix(op, "create")) {
				reached = true
				return errIO
			}
			return nil
		}
		l := onDisk(t, d)
		step := 0
		for ; step < len(scenario()); step++ {
			if _, err := writeOn(l, scenario()[step]); err != nil {
				break
			}
		}
		if !reached {
			return
		}
		for range 2 {
			if _, err := writeOn(l, []Body{Frozen{Scope: "z.example"}}); code(err) != errcode.LogWrite {
				t.Fatalf("call %d: the next write gives %v", call, err)
			}
		}
		s, err := l.Read(context.Background())
		if err != nil {
			t.Fatalf("call %d: %v", call, err)
		}
		// What is whole in the file stands in the file, whatever its writer was told;
		// half of it never counts.
		if s.Lines() != total[step] && s.Lines() != total[step+1] {
			t.Fatalf("call %d: %d lines, want %d or %d", call, s.Lines(), total[step], total[step+1])
		}
		for how := range 4 {
			n := d.restart(how)
			l := onDisk(t, n)
			s, err := l.Read(context.Background())
			if err != nil || s.Lines() != total[step] && s.Lines() != total[step+1] {
				t.Fatalf("call %d, disk %d: %d lines, %v", call, how, s.Lines(), err)
			}
			if _, err := writeOn(l, []Body{Frozen{Scope: "z.example"}}); err != nil {
				t.Fatalf("call %d, disk %d: %v", call, how, err)
			}
			audit(t, n.names[FileName].data)
		}
	}
}

func TestACrashOfARecoveryLiftsNothing(t *testing.T) {
	base := newDisk()
	l := onDisk(t, base)
	for _, bodies := range scenario()[:3] {
		_, err := writeOn(l, bodies)
		must(t, err)
	}
	f := base.names[FileName]
	f.data = bytes.Replace(f.data, []byte(`"reason":"y"`), []byte(`"reason":"z"`), 1)
	f.stable, f.since = bytes.Clone(f.data), nil
	old := bytes.Clone(f.data)
	check := func(at string, d *disk) {
		t.Helper()
		s, err := onDisk(t, d).Read(context.Background())
		if s == nil {
			t.Fatalf("%s: %v", at, err)
		}
		if len(s.AllFrozen()) != 2 || s.Review("r-1").Status(start) != StatusRejected || len(s.Holds(start)) != 1 {
			t.Fatalf("%s: %d frozen, %d holds, %v", at, len(s.AllFrozen()), len(s.Holds(start)), err)
		}
		isOld := bytes.Equal(d.names[FileName].data, old)
		if isOld != (err != nil) {
			t.Fatalf("%s: %v", at, err)
		}
		if isOld {
			return
		}
		audit(t, d.names[FileName].data)
		for name, f := range d.names {
			if strings.HasPrefix(name, "decisions-unsound-") && bytes.Equal(f.data, old) {
				return
			}
		}
		t.Fatalf("%s: the old log is lost", at)
	}
	for call := 1; ; call++ {
		d := base.restart(1)
		d.crash = func(n int, _ string) bool { return n == call }
		down := until(func() {
			_, err := onDisk(t, d).Recover(context.Background(), SetAside{})
			must(t, err)
		})
		for how := range 8 {
			at := fmt.Sprintf("crash at call %d, disk %d", call, how)
			n := d.restart(how)
			check(at, n)
			// It can be done again, or is done.
			_, err := onDisk(t, n).Recover(context.Background(), SetAside{})
			if err != nil && code(err) != errcode.Input {
				t.Fatalf("%s: again it gives %v", at, err)
			}
			check(at, n)
		}
		if !down {
			break
		}
	}
	for call := 1; ; call++ {
		d := base.restart(1)
		reached := false
		d.fail = func(n int, _ string) error {
			if n == call {
				reached = true
				return errIO
			}
			return nil
		}
		l := onDisk(t, d)
		_, err := l.Recover(context.Background(), SetAside{})
		if !reached {
			must(t, err)
			return
		}
		check(fmt.Sprintf("call %d fails", call), d)
		if err != nil {
			if _, err := l.Recover(context.Background(), SetAside{}); err != nil && code(err) != errcode.Input {
				t.Fatalf("call %d: the second try gives %v", call, err)
			}
			check(fmt.Sprintf("call %d failed", call), d)
		}
	}
}

func TestACheckpointThatCannotBeWrittenStopsNobody(t *testing.T) {
	d := newDisk()
	d.fail = func(_ int, op string) error {
		if op == "write pin" {
			return errNoSpace
		}
		return nil
	}
	l := onDisk(t, d, func(o *Options) { o.Checkpoint = "/pin" })
	for _, bodies := range scenario() {
		if _, err := writeOn(l, bodies); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAProcessThatDiesBeforeTheMachineLosesNothing kills a writer that was about
// to set a torn tail aside, lets another go on with what the first had not synced,
// and then brings the machine down.
func TestAProcessThatDiesBeforeTheMachineLosesNothing(t *testing.T) {
	total := sums()
	steps := func(l *Log, from int) (done int) {
		for done = from; done < len(scenario()); done++ {
			if _, err := writeOn(l, scenario()[done]); err != nil {
				t.Fatal(err)
			}
		}
		return done
	}
	for call := 1; ; call++ {
		died := false
		for second := 1; ; second++ {
			d := newDisk()
			l := onDisk(t, d)
			for _, bodies := range scenario()[:garbageBefore] {
				_, err := writeOn(l, bodies)
				must(t, err)
			}
			d.litter()
			first := d.calls
			d.crash = func(n int, _ string) bool { return n == first+call }
			died = until(func() { _, _ = writeOn(l, scenario()[garbageBefore]) })
			d.down, d.locked, d.crash = false, false, nil
			l = onDisk(t, d)
			from := garbageBefore
			s, err := writeOn(l, nil) // whoever has the lock may rest on what it sees
			must(t, err)
			if s.Lines() != total[from] {
				from++
			}
			first, done := d.calls, from
			d.crash = func(n int, _ string) bool { return n == first+second }
			down := until(func() {
				for ; done < len(scenario()); done++ {
					_, err := writeOn(l, scenario()[done])
					must(t, err)
				}
			})
			for how := range 2 {
				n := d.restart(2 * how)
				l := onDisk(t, n)
				s, err := l.Read(context.Background())
				if err != nil || s.Lines() < total[done] {
					t.Fatalf("call %d, then %d, disk %d: %d lines of %d, %v", call, second, how, s.Lines(), total[done], err)
				}
				if s.Lines() > total[done] {
					steps(l, done+1)
				} else {
					steps(l, done)
				}
				if !n.keeps(garbage) {
					t.Fatalf("call %d, then %d, disk %d: the torn tail is lost", call, second, how)
				}
			}
			if !down {
				break
			}
		}
		if !died {
			return
		}
	}
}
