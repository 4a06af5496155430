package decision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

func TestALogThatIsNotThereIsAnEmptyOneAndReadingMakesNothing(t *testing.T) {
	f := newFixture(t)
	s := f.read()
	if s.Lines() != 0 || s.Sig() != "" || s.First() != "" || !s.At().IsZero() || s.Torn() != 0 {
		t.Errorf("got %+v", s)
	}
	if _, err := os.Lstat(f.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reading made %s", f.dir)
	}
}

func TestWhatIsWrittenIsChainedDurableAndSeenByOthers(t *testing.T) {
	f := newFixture(t)
	other := f.another()
	f.write(Policy{Hash: testHash, Version: "1"}, Frozen{Scope: "all", Reason: "lunch <&> \u2028 \U0001F600"})
	f.add(1500 * time.Microsecond)
	s := f.write(Unfrozen{Scope: "all"})
	all := audit(t, f.bytes())
	if len(all) != 3 || s.Lines() != 3 || s.Sig() != all[2]["sig"] || s.First() != all[0]["sig"] {
		t.Fatalf("got %d lines, state %d", len(all), s.Lines())
	}
	if all[2]["at"] != "2026-03-04T05:06:07.001Z" || all[0]["prev"] != "" {
		t.Errorf("at is %v, the first prev %q", all[2]["at"], all[0]["prev"])
	}
	o, err := other.Read(t.Context())
	if err != nil || o.Sig() != s.Sig() {
		t.Errorf("another handle has %v, %v", o.Sig(), err)
	}
	if fmt.Sprint(all[0]["more"]) != "1" || all[1]["more"] != nil {
		t.Error("lines of one write say how many follow")
	}
}

func TestAGlanceFindsThePolicyThatReadFinds(t *testing.T) {
	f := newFixture(t)
	for _, c := range []struct {
		name         string
		write        []Body
		last, manned string // their paths
	}{
		{"no log", nil, "", ""},
		{"no policy", []Body{Frozen{Scope: "all", Reason: `{"type":"policy"}`}}, "", ""},
		{"operators", []Body{Policy{Path: "/one", Hash: testHash, Operators: []Operator{{Name: "alice", PublicKey: "AAAA"}}}}, "/one", "/one"},
		{"another policy", []Body{Policy{Path: "/two", Hash: testHash}}, "/two", "/one"},
	} {
		if c.write != nil {
			f.write(c.write...)
		}
		l := f.another()
		last, manned := l.Glance(t.Context())
		s, err := l.Read(t.Context())
		must(t, err)
		if !reflect.DeepEqual(last, s.Policy()) || !reflect.DeepEqual(manned, s.MannedPolicy()) {
			t.Errorf("%s: a glance finds %+v and %+v, reading %+v and %+v", c.name, last, manned, s.Policy(), s.MannedPolicy())
		}
		path := func(p *Policy) string {
			if p == nil {
				return ""
			}
			return p.Path
		}
		if path(last) != c.last || path(manned) != c.manned {
			t.Errorf("%s: a glance finds %+v and %+v", c.name, last, manned)
		}
	}
}

func TestFilesAreTheUsersAlone(t *testing.T) {
	f := newFixture(t)
	f.write(Frozen{Scope: "all", Reason: "x"})
	f.set(append(f.bytes(), "half a li"...))
	f.write(Unfrozen{Scope: "all"})
	names := map[string]os.FileMode{"": 0o700 | os.ModeDir, FileName: 0o600, lockName: 0o600, "torn-2.bin": 0o600}
	for name, mode := range names {
		info, err := os.Lstat(filepath.Join(f.dir, name))
		if err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	entries, _ := os.ReadDir(f.dir)
	if len(entries) != len(names)-1 {
		t.Errorf("there are %v", entries)
	}
}

func TestNothingIsWrittenWhenNothingIsDecided(t *testing.T) {
	f := newFixture(t)
	boom := errors.New("boom")
	for name, fn := range map[string]func(*State) ([]Body, error){
		"nothing":  func(*State) ([]Body, error) { return nil, nil },
		"an error": func(*State) ([]Body, error) { return []Body{Frozen{Scope: "all"}}, boom },
	} {
		_, err := f.Update(t.Context(), "", fn)
		if (name == "an error") != errors.Is(err, boom) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Lstat(f.Path()); !errors.Is(err, os.ErrNotExist) {
		t.Error("a file was made")
	}
}

func TestATornTailOfAnyLengthIsReportedAndSetAside(t *testing.T) {
	whole := newFixture(t)
	whole.write(Frozen{Scope: "a.example", Reason: "first"})
	one := len(whole.bytes())
	whole.write(Frozen{Scope: "b.example", Reason: "second"}, Frozen{Scope: "c.example", Reason: "third"})
	raw := whole.bytes()
	for cut := one; cut <= len(raw); cut++ {
		if cut%29 != 0 && cut > one+5 && cut < len(raw)-5 && raw[cut-1] != '\n' {
			continue // every length behaves alike; the interesting ones are the ends
		}
		f := newFixture(t)
		f.set(raw[:cut])
		s := f.read()
		wantLines, wantTorn := int64(1), int64(cut-one)
		if cut == len(raw) {
			wantLines, wantTorn = 3, 0
		}
		if s.Lines() != wantLines || s.Torn() != wantTorn {
			t.Fatalf("cut at %d: %d lines, %d torn", cut, s.Lines(), s.Torn())
		}
		if !bytes.Equal(f.bytes(), raw[:cut]) {
			t.Fatal("a reader changed the file")
		}
		s = f.write(Frozen{Scope: "d.example", Reason: "next"})
		audit(t, f.bytes())
		if s.Lines() != wantLines+1 || s.Torn() != 0 {
			t.Fatalf("cut at %d: then %d lines", cut, s.Lines())
		}
		aside, err := os.ReadFile(filepath.Join(f.dir, "torn-2.bin"))
		if wantTorn == 0 {
			if err == nil {
				t.Fatal("something was set aside")
			}
		} else if !bytes.Equal(aside, raw[one:cut]) {
			t.Fatalf("cut at %d: %d bytes were set aside, %v", cut, len(aside), err)
		}
	}
}

func TestAnOlderTornTailIsNeverWrittenOver(t *testing.T) {
	f := newFixture(t)
	f.write(Frozen{Scope: "all", Reason: "x"})
	sound := f.bytes()
	for i, tail := range []string{"one", "two", "two", "three"} {
		f.set(append(bytes.Clone(sound), tail...))
		l := f.another()
		if _, err := l.Update(t.Context(), "", func(*State) ([]Body, error) { return []Body{Frozen{Scope: "x.example"}}, nil }); err != nil {
			t.Fatal(i, err)
		}
	}
	for name, want := range map[string]string{"torn-2.bin": "one", "torn-2-2.bin": "two", "torn-2-3.bin": "three"} {
		if got, err := os.ReadFile(filepath.Join(f.dir, name)); string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(f.dir, "torn-2-4.bin")); err == nil {
		t.Error("the same tail was set aside twice")
	}
}

func TestAProcessNoticesWhatWasDoneToWhatItHasSeen(t *testing.T) {
	for name, harm := range map[string]struct {
		do   func(t *testing.T, f *fixture)
		says string
	}{
		"the last line was cut off": {func(t *testing.T, f *fixture) {
			b := f.bytes()
			f.truncate(int64(bytes.LastIndexByte(b[:len(b)-1], '\n') + 1))
		}, "shorter"},
		"it was emptied":            {func(t *testing.T, f *fixture) { f.truncate(0) }, "shorter"},
		"it was deleted":            {func(t *testing.T, f *fixture) { must(t, os.Remove(f.Path())) }, "gone"},
		"its directory was deleted": {func(t *testing.T, f *fixture) { must(t, os.RemoveAll(f.dir)) }, "gone"},
		"a byte in the middle was changed": {func(t *testing.T, f *fixture) {
			b := f.bytes()
			b[len(b)/2] ^= 1
			f.overwrite(b)
		}, "changed"},
		"a byte was changed and a line appended": {func(t *testing.T, f *fixture) {
			b := f.bytes()
			b[10] ^= 1
			f.overwrite(append(b, b...))
		}, "changed"},
		"another file took its place": {func(t *testing.T, f *fixture) {
			b := f.bytes()
			must(t, os.Rename(f.Path(), f.Path()+".old"))
			f.set(b)
		}, "replaced"},
		"a line that does not follow was appended": {func(t *testing.T, f *fixture) {
			b := f.bytes()
			f.overwrite(append(b, b[:bytes.IndexByte(b, '\n')+1]...))
		}, "line 4: its seq is 1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.write(Frozen{Scope: "a.example", Reason: "x"})
			f.write(Frozen{Scope: "b.example", Reason: "x"})
			f.write(Frozen{Scope: "c.example", Reason: "x"})
			before := f.read()
			harm.do(t, f)
			u := unsoundness(t, f.Log)
			if !strings.Contains(u.Error(), harm.says) {
				t.Errorf("it says %q", u)
			}
			if _, frozen := u.State.Frozen([]string{"c.example"}); !frozen || u.State.Lines() != before.Lines() {
				t.Error("what the process had seen is forgotten")
			}
			if again := unsoundness(t, f.Log); again.Error() != u.Error() {
				t.Errorf("the second time it says %q", again)
			}
			called := false
			_, err := f.Update(t.Context(), "", func(*State) ([]Body, error) { called = true; return nil, nil })
			if code(err) != errcode.LogUnsound || called {
				t.Errorf("a write gives %v", err)
			}
		})
	}
}

func TestAFreezeThatWasNotSeenYetHoldsHoweverTheLinesBeforeItWereHarmed(t *testing.T) {
	for name, harm := range map[string]func(t *testing.T, f *fixture){
		"the first line was cut off": func(_ *testing.T, f *fixture) {
			b := f.bytes()
			f.overwrite(b[bytes.IndexByte(b, '\n')+1:])
		},
		"a line was edited": func(_ *testing.T, f *fixture) {
			f.overwrite(bytes.Replace(f.bytes(), []byte("a.example"), []byte("x.example"), 1))
		},
		"another file took its place": func(t *testing.T, f *fixture) {
			b := f.bytes()
			must(t, os.Rename(f.Path(), f.Path()+".old"))
			f.set(b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.write(Frozen{Scope: "a.example", Reason: "x"})
			f.write(Frozen{Scope: "b.example", Reason: "x"})
			f.write(Unfrozen{Scope: "b.example"})
			before := f.read()
			if _, err := f.another().Update(t.Context(), "", func(*State) ([]Body, error) {
				return []Body{Frozen{Scope: "c.example", Reason: "x"}}, nil
			}); err != nil {
				t.Fatal(err)
			}
			harm(t, f)
			u := unsoundness(t, f.Log)
			for scope, want := range map[string]bool{"a.example": true, "b.example": false, "c.example": true} {
				if _, frozen := u.State.Frozen([]string{scope}); frozen != want {
					t.Errorf("%s is frozen: %v", scope, frozen)
				}
			}
			if u.State.Lines() != before.Lines() {
				t.Errorf("%d lines are believed, want %d", u.State.Lines(), before.Lines())
			}
		})
	}
}

func TestALineThatWasEditedIsNotTakenForTheOneItWas(t *testing.T) {
	f := newFixture(t)
	first, second := Ref{Run: "r"}, Ref{Run: "s"}
	f.write(Resolved{Ref: first, Outcome: "failed", Note: "x"})
	f.write(Resolved{Ref: second, Outcome: "failed", Note: "x"})
	f.read()
	if _, err := f.another().Update(t.Context(), "", func(*State) ([]Body, error) {
		return []Body{Unresolved{Ref: first, Note: "back"}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	sound := f.bytes()
	f.overwrite(bytes.Replace(sound, []byte("back"), []byte("BACK"), 1))
	harmed := unsoundness(t, f.Log).State.ClosedBy()
	f.overwrite(sound)
	if now := f.read().ClosedBy(); now == harmed {
		t.Errorf("both are %q", now)
	}
}

func TestWhatComesBackAsItWasIsSoundAgain(t *testing.T) {
	f := newFixture(t)
	f.write(Frozen{Scope: "a.example", Reason: "x"})
	must(t, os.Rename(f.Path(), f.Path()+".away"))
	unsoundness(t, f.Log)
	must(t, os.Rename(f.Path()+".away", f.Path()))
	f.write(Frozen{Scope: "b.example", Reason: "x"})
	audit(t, f.bytes())
}

func (f *fixture) truncate(n int64) {
	f.t.Helper()
	if err := os.Truncate(f.Path(), n); err != nil {
		f.t.Fatal(err)
	}
}

// overwrite keeps the file the same one.
func (f *fixture) overwrite(b []byte) {
	f.t.Helper()
	time.Sleep(5 * time.Millisecond) // file systems count time in ticks
	file, err := os.OpenFile(f.Path(), os.O_WRONLY, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(b, 0); err != nil {
		f.t.Fatal(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestOnlyARegularFileWithOneNameIsTheLog(t *testing.T) {
	sound := newFixture(t)
	sound.write(Frozen{Scope: "a.example", Reason: "x"})
	for name, make := range map[string]func(t *testing.T, f *fixture){
		"a symbolic link": func(t *testing.T, f *fixture) { must(t, os.Symlink(sound.Path(), f.Path())) },
		"a dangling link": func(t *testing.T, f *fixture) { must(t, os.Symlink(f.dir+"/nowhere", f.Path())) },
		"a hard link":     func(t *testing.T, f *fixture) { f.set(sound.bytes()); must(t, os.Link(f.Path(), f.Path()+"2")) },
		"a directory":     func(t *testing.T, f *fixture) { must(t, os.Mkdir(f.Path(), 0o700)) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			must(t, os.Mkdir(f.dir, 0o700))
			make(t, f)
			if _, err := f.Read(t.Context()); code(err) != errcode.LogWrite {
				t.Errorf("reading gives %v", err)
			}
			_, err := f.Update(t.Context(), "", func(*State) ([]Body, error) { return []Body{Frozen{Scope: "b.example"}}, nil })
			if code(err) != errcode.LogWrite {
				t.Errorf("writing gives %v", err)
			}
			if len(audit(t, sound.bytes())) != 1 {
				t.Error("it was written through")
			}
		})
	}
}

func TestTheLockAndTheDirectoryMayBeNoLinksEither(t *testing.T) {
	f := newFixture(t)
	must(t, os.Mkdir(f.dir, 0o700))
	must(t, os.Symlink(f.dir+"/elsewhere", filepath.Join(f.dir, lockName)))
	try := func() error {
		_, err := f.Update(t.Context(), "", func(*State) ([]Body, error) { return []Body{Frozen{Scope: "b.example"}}, nil })
		return err
	}
	if err := try(); code(err) != errcode.LogWrite {
		t.Errorf("a linked lock gives %v", err)
	}
	must(t, os.RemoveAll(f.dir))
	must(t, os.Symlink(t.TempDir(), f.dir))
	if err := try(); code(err) != errcode.LogWrite {
		t.Errorf("a linked directory gives %v", err)
	}
}

func TestAWriteWaitsForTheLockAndNoLonger(t *testing.T) {
	f := newFixture(t)
	short := f.another(func(o *Options) { o.LockWait = 30 * time.Millisecond })
	inside, leave := make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() {
		_, err := f.Update(context.Background(), "", func(*State) ([]Body, error) {
			close(inside)
			<-leave
			return []Body{Frozen{Scope: "all", Reason: "x"}}, nil
		})
		done <- err
	}()
	<-inside
	nothing := func(*State) ([]Body, error) { return nil, nil }
	_, err := short.Update(t.Context(), "", nothing)
	if !errors.Is(err, ErrLocked) || code(err) != errcode.LogWrite {
		t.Errorf("another handle gets %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := short.Update(ctx, "", nothing); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled wait gives %v", err)
	}
	if s, err := f.Read(t.Context()); err != nil || s.Lines() != 0 {
		t.Errorf("a reader meanwhile gets %d lines, %v", s.Lines(), err)
	}
	close(leave)
	must(t, <-done)
	if _, err := short.Update(t.Context(), "", nothing); err != nil {
		t.Errorf("after that it gets %v", err)
	}
}

func TestManyGoroutinesAndHandlesWriteOneChain(t *testing.T) {
	f := newFixture(t)
	handles := []*Log{f.Log, f.another(func(o *Options) { o.LockWait = time.Minute }), f.another(func(o *Options) { o.LockWait = time.Minute })}
	var wg sync.WaitGroup
	const each = 8
	for g := range 6 {
		wg.Go(func() {
			l := handles[g%len(handles)]
			for i := range each {
				before := int64(-1)
				s, err := l.Update(context.Background(), fmt.Sprint(g), func(s *State) ([]Body, error) {
					before = s.Lines()
					return []Body{Frozen{Scope: fmt.Sprintf("%d-%d.example", g, i), Reason: "x"}}, nil
				})
				if errors.Is(err, ErrLocked) {
					continue
				}
				if err != nil || s.Lines() != before+1 {
					t.Errorf("%d: %v", g, err)
				}
				if _, err := l.Read(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	n := len(audit(t, f.bytes()))
	for _, l := range handles {
		if s, err := l.Read(t.Context()); err != nil || s.Lines() != int64(n) || len(s.AllFrozen()) != n {
			t.Errorf("a handle has %d of %d lines, %v", s.Lines(), n, err)
		}
	}
}

func TestAStateNeverChanges(t *testing.T) {
	f := newFixture(t)
	old := f.write(asked("r-1", pay("a.example", "1"), f.now()), held("h-1", pay("a.example", "1"), f.now()))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 300 {
				if old.Lines() != 2 || old.Review("r-1").Status(start) != StatusPending || len(old.Holds(start)) != 1 || old.Hold("h-1", start) == nil || len(old.AllFrozen()) != 0 {
					t.Error("an old state has changed")
					return
				}
			}
		})
	}
	for i := range 30 {
		f.write(Frozen{Scope: fmt.Sprintf("%d.example", i), Reason: "x"})
	}
	s := f.write(Decided{ReviewID: "r-1", Decision: Rejected}, Released{HoldID: "h-1", Why: WhyReleased})
	wg.Wait()
	if s.Review("r-1").Status(start) != StatusRejected || len(s.Holds(start)) != 0 {
		t.Error("the new state has not")
	}
}

func TestWhatWouldChangeNothingIsRefused(t *testing.T) {
	f := newFixture(t)
	f.write(asked("r-1", pay("a.example", "1"), f.now()))
	f.write(Decided{ReviewID: "r-1", Decision: Rejected})
	for name, c := range map[string]struct {
		body Body
		want errcode.Code
	}{
		"a second decision":           {Decided{ReviewID: "r-1", Decision: Approved}, errcode.ReviewDecided},
		"a decision on nothing":       {Decided{ReviewID: "r-2", Decision: Approved}, errcode.ReviewNotFound},
		"a review opened twice":       {asked("r-1", pay("a.example", "2"), f.now()), errcode.Input},
		"a recovery in the middle":    {Recovered{}, errcode.Input},
		"a decision of no kind":       {Decided{ReviewID: "r-1", Decision: "maybe"}, errcode.LogWrite},
		"text that is not UTF-8":      {Frozen{Scope: "a\xff", Reason: "x"}, errcode.LogWrite},
		"a hold without an id":        {Held{}, errcode.LogWrite},
		"an instant that has no form": {held("h", pay("a", "1"), time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC)), errcode.LogWrite},
	} {
		before := f.bytes()
		s, err := f.Update(t.Context(), "", func(*State) ([]Body, error) {
			return []Body{Frozen{Scope: "x.example", Reason: "x"}, c.body}, nil
		})
		if code(err) != c.want || s != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !bytes.Equal(before, f.bytes()) {
			t.Errorf("%s: something was written", name)
		}
		if _, frozen := f.read().Frozen([]string{"x.example"}); frozen {
			t.Errorf("%s: half of it is believed", name)
		}
	}
}

// bulky writes more than is compared when the log grows.
func bulky(f *fixture) {
	for i := range 3 {
		f.write(Frozen{Scope: fmt.Sprintf("%d.example", i), Reason: strings.Repeat("x", 2*tailKept)})
	}
}

func TestALongLogThatChangedWithoutGrowingIsReadAgain(t *testing.T) {
	f := newFixture(t)
	bulky(f)
	b := f.bytes()
	f.overwrite(b)
	f.read() // touched, but the same
	b[100] ^= 1
	f.overwrite(b)
	if u := unsoundness(t, f.Log); !strings.Contains(u.Reason, "changed") {
		t.Errorf("got %v", u)
	}
}

func TestAfterAFailedWriteTheLogIsReadAgainFromItsStart(t *testing.T) {
	for name, harm := range map[string]struct {
		do   func(data []byte) []byte
		says string
	}{
		"a page was lost": {func(data []byte) []byte { data[100] ^= 1; return data }, "line 1"},
		"a line was lost": {func(data []byte) []byte { return data[:bytes.LastIndexByte(data[:len(data)-1], '\n')+1] }, "it has 1 line, and this process has seen 2"},
		"all was lost":    {func([]byte) []byte { return nil }, "it has 0 lines, and this process has seen 2"},
		"nothing was":     {func(data []byte) []byte { return data }, ""},
	} {
		d := newDisk()
		l := onDisk(t, d)
		for range 2 {
			if _, err := writeOn(l, []Body{Frozen{Scope: "a.example", Reason: strings.Repeat("x", 5*tailKept)}}); err != nil {
				t.Fatal(err)
			}
		}
		d.fail = func(_ int, op string) error {
			if op == "sync "+FileName {
				file := d.names[FileName]
				file.data = harm.do(bytes.Clone(file.stable))
				return errIO
			}
			return nil
		}
		if _, err := writeOn(l, []Body{Frozen{Scope: "b.example"}}); code(err) != errcode.LogWrite {
			t.Fatalf("%s: %v", name, err)
		}
		d.fail = nil
		s, err := l.Read(t.Context())
		if harm.says == "" {
			if err != nil || s.Lines() != 2 {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), harm.says) || s.Lines() != 2 {
			t.Errorf("%s: %d lines, %v", name, s.Lines(), err)
		}
		if _, err := writeOn(l, []Body{Frozen{Scope: "b.example"}}); code(err) != errcode.LogUnsound {
			t.Errorf("%s: then a write gives %v", name, err)
		}
	}
}
