package decision

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

func long(t testing.TB, n int) *fixture {
	t.Helper()
	f := newFixture(t)
	for i := range n {
		f.write(Frozen{Scope: fmt.Sprintf("%d.example", i), Reason: "x"})
	}
	return f
}

func TestVerifyComparesWithACheckpoint(t *testing.T) {
	f := long(t, 6)
	raw := f.bytes()
	upTo := func(n int) []byte {
		i := 0
		for range n {
			i += bytes.IndexByte(raw[i:], '\n') + 1
		}
		return bytes.Clone(raw[:i])
	}
	all := audit(t, raw)
	pin := func(n int) *Checkpoint {
		c := &Checkpoint{Count: int64(n), At: start}
		if n > 0 {
			c.Sig = all[n-1]["sig"].(string)
		}
		return c
	}
	other := newFixture(t)
	for i := range 6 {
		other.write(Frozen{Scope: fmt.Sprintf("%d.example", i), Reason: "y"})
	}
	for name, c := range map[string]struct {
		raw    []byte // nil: no file
		pin    *Checkpoint
		tail   string
		pinned int64
		says   string
	}{
		"without a checkpoint":         {raw, nil, "NOT PINNED", 0, ""},
		"with one of the last line":    {raw, pin(6), "pinned", 6, ""},
		"with an older one":            {raw, pin(4), "NOT PINNED", 4, ""},
		"with one of an empty log":     {raw, pin(0), "NOT PINNED", 0, ""},
		"an empty log and its own":     {[]byte{}, pin(0), "pinned", 0, ""},
		"no log and none":              {nil, nil, "NOT PINNED", 0, ""},
		"a cut tail":                   {upTo(5), pin(6), "NOT PINNED", 0, "it has 5 lines, and a checkpoint pins 6"},
		"a cut tail without one":       {upTo(5), nil, "NOT PINNED", 0, ""},
		"a restart from a cut head":    {append(upTo(2), restarted(t, upTo(2), 4)...), pin(4), "NOT PINNED", 0, "another line than the one the checkpoint pins"},
		"another log of that length":   {other.bytes(), pin(6), "NOT PINNED", 0, "another line than the one the checkpoint pins"},
		"a deleted file":               {nil, pin(6), "NOT PINNED", 0, "it is gone, and a checkpoint pins 6 lines"},
		"an emptied file":              {[]byte{}, pin(6), "NOT PINNED", 0, "it has 0 lines, and a checkpoint pins 6"},
		"a torn tail under a pin":      {raw[:len(raw)-1], pin(6), "NOT PINNED", 0, "it has 5 lines"},
		"a torn tail behind it":        {append(bytes.Clone(raw), "half"...), pin(6), "pinned", 6, ""},
		"a first line that is missing": {raw[len(upTo(1)):], nil, "NOT PINNED", 0, "its seq is 2"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), FileName)
			if c.raw != nil {
				must(t, os.WriteFile(path, c.raw, 0o600))
			}
			r, err := Verify(t.Context(), path, c.pin)
			must(t, err)
			if r.Tail() != c.tail || r.Pinned != c.pinned || r.Exists != (c.raw != nil) {
				t.Errorf("got %s, %d pinned", r.Tail(), r.Pinned)
			}
			if (r.Unsound == nil) != (c.says == "") || r.Unsound != nil && !strings.Contains(r.Unsound.Error(), c.says) {
				t.Errorf("it says %v", r.Unsound)
			}
			if r.Unsound == nil {
				whole := int64(bytes.LastIndexByte(c.raw, '\n') + 1)
				if r.Lines != int64(bytes.Count(c.raw, []byte("\n"))) || r.Torn != int64(len(c.raw))-whole {
					t.Errorf("%d lines, %d torn", r.Lines, r.Torn)
				}
				if r.Lines == 6 && (r.Sig != pin(6).Sig || r.First != pin(1).Sig || !r.At.Equal(start)) {
					t.Errorf("got %+v", r)
				}
			}
		})
	}
}

// restarted is what a log could go on with from an older state of it.
func restarted(t testing.TB, head []byte, n int) []byte {
	t.Helper()
	f := newFixture(t)
	f.set(bytes.Clone(head))
	for range n {
		f.write(Unfrozen{Scope: "0.example"})
	}
	return f.bytes()[len(head):]
}

func TestVerifyWantsARegularFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := Verify(t.Context(), dir, nil); code(err) != errcode.Input {
		t.Errorf("a directory gives %v", err)
	}
	must(t, os.Symlink(dir+"/x", dir+"/link"))
	if _, err := Verify(t.Context(), dir+"/link", nil); code(err) != errcode.Input {
		t.Errorf("a link gives %v", err)
	}
	f := long(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verify(ctx, f.Path(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled it gives %v", err)
	}
}

func TestACheckpointIsOneStrictObject(t *testing.T) {
	f := long(t, 2)
	c := f.read().Checkpoint(start.Add(1500 * time.Microsecond))
	text := c.Append(nil)
	back, err := ParseCheckpoint(text)
	if err != nil || back != c || !strings.HasPrefix(string(text), `{"at":"2026-03-04T05:06:07.001Z","count":2,"sig":"`) || !strings.HasSuffix(string(text), "\"}\n") {
		t.Errorf("%s is read as %+v, %v", text, back, err)
	}
	if back, err := ParseCheckpoint([]byte("\n { \"sig\":\"\", \"count\":0,\"at\":\"2026-03-04T05:06:07.001Z\"}")); err != nil || back.Count != 0 {
		t.Errorf("another layout: %v", err)
	}
	sig := c.Sig
	at := `"at":"2026-03-04T05:06:07.000Z"`
	for name, bad := range map[string]string{
		"nothing": "", "no object": "[]", "two objects": "{}{}",
		"a member missing": `{"count":1,"sig":"` + sig + `"}`,
		"one too many":     `{` + at + `,"count":1,"sig":"` + sig + `","x":1}`,
		"one twice":        `{` + at + `,"count":1,"count":1,"sig":"` + sig + `"}`,
		"a count as text":  `{` + at + `,"count":"1","sig":"` + sig + `"}`,
		"half a line":      `{` + at + `,"count":1.5,"sig":"` + sig + `"}`,
		"less than none":   `{` + at + `,"count":-1,"sig":"` + sig + `"}`,
		"none with a sig":  `{` + at + `,"count":0,"sig":"` + sig + `"}`,
		"some without":     `{` + at + `,"count":1,"sig":""}`,
		"a short sig":      `{` + at + `,"count":1,"sig":"abc"}`,
		"capitals":         `{` + at + `,"count":1,"sig":"` + strings.ToUpper(sig) + `"}`,
		"no instant":       `{"at":"today","count":1,"sig":"` + sig + `"}`,
		"too long":         `{` + at + `,"count":1,"sig":"` + sig + `"}` + strings.Repeat(" ", maxCheckpoint),
	} {
		if _, err := ParseCheckpoint([]byte(bad)); code(err) != errcode.Input {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte(`{"at":"2026-03-04T05:06:07.000Z","count":1,"sig":"` + testHash + `"}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		c, err := ParseCheckpoint(src)
		if err != nil {
			return
		}
		if again, err := ParseCheckpoint(c.Append(nil)); err != nil || again != c {
			t.Errorf("%s is read as %+v, then %+v, %v", src, c, again, err)
		}
	})
}

func pinnedAt(path string) func(*Options) { return func(o *Options) { o.Checkpoint = path } }

func TestACheckpointThatIsKeptRefusesALogThatIsBehindIt(t *testing.T) {
	pin := filepath.Join(t.TempDir(), "pin")
	f := newFixture(t, pinnedAt(pin))
	for i := range 5 {
		f.write(Frozen{Scope: fmt.Sprintf("%d.example", i), Reason: "x"})
		src, err := os.ReadFile(pin)
		must(t, err)
		if c, err := ParseCheckpoint(src); err != nil || c.Count != int64(i+1) || c.Sig != f.read().Sig() {
			t.Fatalf("after line %d it is %s, %v", i+1, src, err)
		}
	}
	raw := f.bytes()
	third := 0
	for range 3 {
		third += bytes.IndexByte(raw[third:], '\n') + 1
	}
	try := func(name string, raw []byte, pin string, says string) {
		t.Helper()
		g := newFixture(t)
		if raw != nil {
			g.set(raw)
		}
		l := g.another(pinnedAt(pin))
		if says == "" {
			if _, err := l.Read(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return
		}
		if u := unsoundness(t, l); !strings.Contains(u.Reason, says) {
			t.Errorf("%s: %v", name, u)
		}
		if _, err := l.Update(t.Context(), "", func(*State) ([]Body, error) { return []Body{Frozen{Scope: "x"}}, nil }); code(err) != errcode.LogUnsound {
			t.Errorf("%s: writing gives %v", name, err)
		}
	}
	try("the log it pins", raw, pin, "")
	try("a longer one", append(bytes.Clone(raw), restarted(t, raw, 2)...), pin, "")
	try("a log cut behind it", raw[:third], pin, "it has 3 lines, and a checkpoint pins 5")
	try("a log that was deleted", nil, pin, "it is gone")
	try("a log that forked before it", append(bytes.Clone(raw[:third]), restarted(t, raw[:third], 4)...), pin, "another line")
	broken := filepath.Join(t.TempDir(), "pin")
	must(t, os.WriteFile(broken, []byte("x"), 0o600))
	try("a checkpoint that cannot be read", raw, broken, "cannot be read")

	// Another process that keeps it too goes ahead and this one follows.
	other := f.another(pinnedAt(pin))
	_, err := other.Update(t.Context(), "", func(*State) ([]Body, error) { return []Body{Frozen{Scope: "y"}}, nil })
	must(t, err)
	f.write(Frozen{Scope: "z"})
	// One that was changed to pin another line of what was read is noticed.
	c := f.read().Checkpoint(start)
	c.Count--
	must(t, os.WriteFile(pin, c.Append(nil), 0o600))
	_, err = f.another(pinnedAt(pin)).Read(t.Context())
	if code(err) != errcode.LogUnsound {
		t.Errorf("got %v", err)
	}
}

func TestACheckpointOfAnotherLogIsNotWrittenOver(t *testing.T) {
	pin := filepath.Join(t.TempDir(), "pin")
	f, g := newFixture(t, pinnedAt(pin)), newFixture(t, pinnedAt(pin))
	f.write(Frozen{Scope: "a.example", Reason: "x"})
	if u := unsoundness(t, g.Log); !strings.Contains(u.Reason, "at least 1 line") {
		t.Errorf("got %v", u)
	}
	must(t, os.Remove(pin))
	g.write(Frozen{Scope: "b.example", Reason: "x"})
	before, err := os.ReadFile(pin)
	must(t, err)
	// Nothing of its own log has changed, so that this one does not look.
	if _, err := f.Update(t.Context(), "", func(*State) ([]Body, error) { return []Body{Frozen{Scope: "c"}}, nil }); code(err) != errcode.LogUnsound {
		t.Errorf("got %v", err)
	}
	if after, err := os.ReadFile(pin); err != nil || !bytes.Equal(before, after) {
		t.Errorf("it is %s now", after)
	}
}

func TestACheckpointFarBackIsStillCompared(t *testing.T) {
	f := newFixture(t)
	var bodies []Body
	for i := range ringSize + 50 {
		bodies = append(bodies, Frozen{Scope: fmt.Sprint(i % 3), Reason: "x"})
	}
	f.write(bodies...)
	all := audit(t, f.bytes())
	pin := filepath.Join(t.TempDir(), "pin")
	l := f.another(pinnedAt(pin))
	if _, err := l.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n, sig := range map[int]string{7: all[6]["sig"].(string), 8: all[6]["sig"].(string), ringSize + 49: all[ringSize+48]["sig"].(string)} {
		must(t, os.WriteFile(pin, Checkpoint{Count: int64(n), Sig: sig, At: start}.Append(nil), 0o600))
		f.write(Frozen{Scope: fmt.Sprint("next", n), Reason: "x"})
		_, err := l.Read(t.Context())
		if (err == nil) != (n != 8) {
			t.Errorf("line %d: %v", n, err)
		}
	}
}

// ruined is a log whose line i was changed so that it no longer verifies.
func (f *fixture) ruin(i int, from, to string) {
	f.t.Helper()
	lines := strings.SplitAfter(string(f.bytes()), "\n")
	changed := strings.Replace(lines[i], from, to, 1)
	if changed == lines[i] {
		f.t.Fatalf("line %d does not hold %s", i+1, from)
	}
	lines[i] = changed
	f.set([]byte(strings.Join(lines, "")))
}

func TestRecoverCarriesOnWhatTightensAndNothingElse(t *testing.T) {
	f := newFixture(t)
	in := pay("a.example", "1")
	op := ref("run-1", "op")
	f.write(Policy{Hash: testHash}, Frozen{Scope: "lifted.example", Reason: "1"}, Frozen{Scope: "kept.example", Reason: "2"})
	f.write(Unfrozen{Scope: "lifted.example"})
	for i, id := range []string{"r-approved", "r-rejected", "r-reopened", "r-used", "r-old", "r-pending"} {
		_, err := f.Update(t.Context(), "agent", func(*State) ([]Body, error) {
			return []Body{asked(id, pay("a.example", fmt.Sprint(i)), f.now())}, nil
		})
		must(t, err)
	}
	f.write(Decided{ReviewID: "r-old", Decision: Rejected, Note: "long ago"})
	f.add(20 * time.Hour)
	f.write(Decided{ReviewID: "r-approved", Decision: Approved}, Decided{ReviewID: "r-used", Decision: Approved}, Decided{ReviewID: "r-rejected", Decision: Rejected, Note: "too dear"},
		Decided{ReviewID: "r-reopened", Decision: Rejected}, Decided{ReviewID: "r-reopened", Decision: Reopened}, held("h-over", in, f.now()), Released{HoldID: "h-over", Why: WhyReleased})
	f.write(Resolved{Ref: op, Outcome: Failed, Note: "x"}, Baseline{Through: f.now(), Note: "x"}, Seen{Runs: []Covered{{"run-1", 10, 1, 7}, {"run-2", 20, 2, 8}}})
	f.write(Rewritten{Run: "run-2", Covered: 20, EventsBefore: 2, How: Removed}, Rewritten{Run: "run-3", Covered: 20, How: Edited}, Acknowledged{Run: "run-3", Note: "x"})
	// From here on the log is broken: what permits no longer counts, what forbids does.
	f.write(Frozen{Scope: "broken here", Reason: "3"})
	f.write(Frozen{Scope: "late.example", Reason: "4"}, Unfrozen{Scope: "kept.example"}, Held{HoldID: "h-1", Intent: in, ExpiresAt: f.now().Add(9 * time.Hour), ReviewID: "r-used"},
		asked("r-late", pay("late.example", "1"), f.now()), Decided{ReviewID: "r-pending", Decision: Approved}, Released{HoldID: "h-1", Why: WhyReleased}, Acknowledged{Run: "run-2"}, Seen{Runs: []Covered{{"run-1", 1, 1, 1}}})
	f.ruin(len(audit(t, f.bytes()))-9, "broken here", "here it is broken")
	old := f.bytes()

	f.add(5 * time.Hour)
	l := f.another()
	if u := unsoundness(t, l); len(u.State.AllFrozen()) != 3 || u.State.Policy() == nil {
		t.Errorf("before, what is known is %v", u.State.AllFrozen())
	}
	c, err := l.Recover(t.Context(), SetAside{Actor: "alice"})
	must(t, err)
	aside, err := os.ReadFile(filepath.Join(f.dir, c.File))
	if err != nil || !bytes.Equal(aside, old) || !strings.HasPrefix(c.File, "decisions-unsound-"+c.SHA256[:12]) || c.Lines != int64(bytes.Count(old, []byte("\n"))) {
		t.Errorf("set aside is %+v, %v", c, err)
	}
	if *c != (Carried{c.File, c.SHA256, c.Lines, 3, 1, 2, 1, 1, 1, 0}) {
		t.Errorf("carried are %+v", c)
	}
	all := audit(t, f.bytes())
	if all[0]["type"] != "recovered" || all[0]["file"] != c.File || all[0]["sha256"] != c.SHA256 || fmt.Sprint(all[0]["carried"]) != fmt.Sprint(len(all)-1) {
		t.Errorf("it begins with %v", all[0])
	}
	s, err := l.Read(t.Context())
	must(t, err)
	now := f.now()
	for id, want := range map[string]string{"r-rejected": StatusRejected, "r-reopened": StatusPending, "r-late": StatusPending, "r-pending": StatusExpired, "r-old": "", "r-approved": "", "r-used": ""} {
		got := ""
		if r := s.Review(id); r != nil {
			got = r.Status(now)
		}
		if id == "r-pending" && got == "" {
			continue // it had expired: nothing was pending any more
		}
		if got != want {
			t.Errorf("%s is %q, want %q", id, got, want)
		}
	}
	if r := s.Review("r-rejected"); r.Actor != "agent" || r.Last().Note != "too dear" || r.Reasons == nil {
		t.Errorf("got %+v", r)
	}
	if r := s.Review("r-reopened"); !r.ExpiresAt(now).Equal(hour(44)) {
		t.Errorf("what is pending became younger: it expires at %s", r.ExpiresAt(now))
	}
	if s.Hold("h-1", now) == nil || s.Hold("h-over", now) != nil {
		t.Error("a hold is lost, or one that was released came back")
	}
	if s.Resolution(op) != nil || s.Baseline() != nil || len(s.Approvals(now)) != 0 || s.Policy() != nil {
		t.Error("something that permits is carried on")
	}
	if c, _ := s.Seen("run-1"); c.Covered != 10 || len(s.Rewritten("run-2")) != 1 || len(s.Rewritten("run-3")) != 0 {
		t.Error("what was seen, or what had vanished, is forgotten")
	}
	if _, err := l.Recover(t.Context(), SetAside{}); code(err) != errcode.Input {
		t.Errorf("a sound log is recovered: %v", err)
	}
	if _, err := l.Adopt(t.Context(), SetAside{}); code(err) != errcode.Input {
		t.Errorf("a log of ours is adopted: %v", err)
	}
	if _, err := l.Update(t.Context(), "", func(*State) ([]Body, error) { return []Body{Frozen{Scope: "x"}}, nil }); err != nil {
		t.Errorf("it does not go on: %v", err)
	}
}

func TestALogThatIsBehindItsCheckpointPermitsNothingOfItself(t *testing.T) {
	pin := filepath.Join(t.TempDir(), "pin")
	f := newFixture(t)
	f.write(Frozen{Scope: "a.example", Reason: "x"}, Frozen{Scope: "b.example", Reason: "x"})
	f.write(Unfrozen{Scope: "a.example"})
	must(t, os.WriteFile(pin, Checkpoint{Count: 9, Sig: testHash, At: start}.Append(nil), 0o600))
	l := f.another(pinnedAt(pin))
	unsoundness(t, l)
	c, err := l.Recover(t.Context(), SetAside{})
	if err != nil || c.Freezes != 2 {
		t.Errorf("carried are %+v, %v", c, err)
	}
	src, err := os.ReadFile(pin)
	must(t, err)
	if p, err := ParseCheckpoint(src); err != nil || p.Count != int64(1+c.Freezes) {
		t.Errorf("the checkpoint is %s", src)
	}
	if _, err := f.another(pinnedAt(pin)).Read(t.Context()); err != nil {
		t.Errorf("then it is %v", err)
	}
}

func TestADeletedLogBeginsAnewBehindItsCheckpoint(t *testing.T) {
	pin := filepath.Join(t.TempDir(), "pin")
	must(t, os.WriteFile(pin, Checkpoint{Count: 9, Sig: testHash, At: start}.Append(nil), 0o600))
	f := newFixture(t)
	l := f.another(pinnedAt(pin))
	unsoundness(t, l)
	if c, err := l.Recover(t.Context(), SetAside{}); err != nil || c.File != "" {
		t.Errorf("got %+v, %v", c, err)
	}
	if s, err := l.Read(t.Context()); err != nil || s.Lines() != 1 {
		t.Errorf("then %d lines, %v", s.Lines(), err)
	}
}

func TestWithOperatorsALogBeginsAnewOnlySigned(t *testing.T) {
	alice, op := operatorOf(t, "alice")
	_, bob := operatorOf(t, "bob")
	f := newFixture(t)
	f.write(Policy{Hash: testHash}, Frozen{Scope: "a.example", Reason: "x"})
	f.ruin(0, testHash, strings.ToUpper(testHash))
	l := f.another(by(op))
	if _, err := l.Recover(t.Context(), SetAside{}); code(err) != errcode.OperatorKey {
		t.Errorf("unsigned it gives %v", err)
	}
	// One that was begun where nobody asked for a signature does not count either.
	if _, err := f.another().Recover(t.Context(), SetAside{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.another().Read(t.Context()); err != nil {
		t.Errorf("without operators it is %v", err)
	}
	u := unsoundness(t, f.another(by(op)))
	if !strings.Contains(u.Reason, "no operator signed it") || u.Line != 1 || len(u.State.AllFrozen()) != 1 {
		t.Errorf("got %v", u)
	}
	l = f.another(by(op))
	c, err := l.Recover(t.Context(), SetAside{By: alice})
	if err != nil || c.Freezes != 1 {
		t.Fatalf("signed it gives %+v, %v", c, err)
	}
	s, err := l.Read(t.Context())
	if err != nil || len(s.AllFrozen()) != 1 {
		t.Errorf("then it is %v", err)
	}
	if u := unsoundness(t, f.another(by(bob))); !strings.Contains(u.Reason, "no operator's") {
		t.Errorf("for another operator it is %v", u)
	}
	// The signature is for this file and no other.
	bad := relink(t, audit(t, f.bytes()), func(i int, m map[string]any) string { return set(i == 0, m, "sha256", testHash) })
	g := newFixture(t)
	g.set(bad)
	if u := unsoundness(t, g.another(by(op))); u.Line != 1 {
		t.Errorf("got %v", u)
	}
}

func TestAdoptReadsTheLogOfAnotherProgram(t *testing.T) {
	names, err := filepath.Glob("testdata/foreign/*.ndjson")
	must(t, err)
	if len(names) < 3 {
		t.Fatalf("found %v", names)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			raw, err := os.ReadFile(name)
			must(t, err)
			f := newFixture(t)
			f.set(raw)
			f.t = t
			if u := unsoundness(t, f.Log); !u.Foreign || !strings.Contains(u.Error(), "audit adopt") {
				t.Errorf("it is %v", u)
			}
			c, err := f.Adopt(t.Context(), SetAside{})
			must(t, err)
			if !strings.HasPrefix(c.File, "decisions-foreign-") {
				t.Errorf("set aside as %s", c.File)
			}
			if aside, err := os.ReadFile(filepath.Join(f.dir, c.File)); err != nil || !bytes.Equal(aside, raw) {
				t.Error("not byte for byte")
			}
			s := f.read()
			if all := audit(t, f.bytes()); all[0]["type"] != "adopted" {
				t.Errorf("it begins with %v", all[0])
			}
			if r := s.Review("rev-pending"); r == nil || r.Status(f.now()) != StatusPending || !slices.Contains(r.Intent.Names, "api.example.com") {
				t.Errorf("what is pending: %+v", r)
			}
			if r := s.Review("rev-rejected"); r == nil || r.Status(f.now()) != StatusRejected || r.Last().Note != "too dear" {
				t.Errorf("what was rejected: %+v", r)
			}
			if s.Review("rev-approved") != nil || s.Review("rev-stale") != nil {
				t.Error("an approval, or a rejection that no longer sticks, is carried on")
			}
			frozen := strings.Contains(string(raw), "frozen")
			if _, ok := s.Frozen([]string{"bad.example.com"}); ok != frozen {
				t.Errorf("frozen: %v", ok)
			}
		})
	}
}

func TestAdoptAsksWhatAReviewIsAbout(t *testing.T) {
	f := newFixture(t)
	f.set([]byte(`{"type":"opened","review_id":"rev-1","counterparty":"api.example.com","amount":2.5,"asset":"USDC","intent":{"resource":"https://api.example.com/x","payTo":"0xAb"}}` + "\n"))
	_, err := f.Adopt(t.Context(), SetAside{Intent: func(x Foreign) Intent {
		if x.Amount != "2.5" || x.Asset != "USDC" || x.Counterparty != "api.example.com" || x.Resource != "https://api.example.com/x" || x.PayTo != "0xAb" {
			t.Errorf("it asks about %+v", x)
		}
		return pay("api.example.com", "2500000")
	}})
	must(t, err)
	if r := f.read().PendingFor(pay("api.example.com", "2500000"), f.now()); r == nil || r.ReviewID != "rev-1" {
		t.Error("the same intent does not find it")
	}
}

func TestExportGivesTheLinesAndATable(t *testing.T) {
	f := newFixture(t)
	in := pay("a.example", "1")
	in.Names = []string{"=cmd()", "b"}
	f.write(Frozen{Scope: "@sum", Reason: "-1+1"}, asked("r-1", in, start))
	f.write(Decided{ReviewID: "r-1", Decision: Rejected, Note: "\tx, \"y\"\nz"}, Seen{Runs: []Covered{{Run: "r"}}})
	f.set(append(f.bytes(), "torn"...))
	var out bytes.Buffer
	must(t, f.Export(t.Context(), &out, "ndjson"))
	if !bytes.Equal(append(out.Bytes(), "torn"...), f.bytes()) {
		t.Error("the lines are not the log's")
	}
	out.Reset()
	must(t, f.Export(t.Context(), &out, "csv"))
	rows, err := csv.NewReader(&out).ReadAll()
	must(t, err)
	if len(rows) != 5 || !slices.Equal(rows[0], columns) {
		t.Fatalf("got %d rows", len(rows))
	}
	cell := func(row int, name string) string { return rows[row][slices.Index(columns, name)] }
	for _, c := range []struct {
		row        int
		name, want string
	}{
		{1, "seq", "1"}, {1, "scope", "'@sum"}, {1, "reason", "'-1+1"}, {2, "names", "'=cmd() b"}, {2, "amount", "1"}, {2, "review_id", "r-1"},
		{3, "note", "'\tx, \"y\"\nz"}, {3, "decision", "rejected"}, {1, "prev", ""}, {2, "prev", cell(1, "sig")}, {4, "type", "seen"}, {3, "at", stamp(start)},
	} {
		if got := cell(c.row, c.name); got != c.want {
			t.Errorf("row %d, %s: %q, want %q", c.row, c.name, got, c.want)
		}
	}
	if err := f.Export(t.Context(), &out, "xml"); code(err) != errcode.Input {
		t.Errorf("another format gives %v", err)
	}
	out.Reset()
	must(t, newFixture(t).Export(t.Context(), &out, "csv"))
	if out.String() != strings.Join(columns, ",")+"\n" {
		t.Errorf("of an empty log it is %q", out.String())
	}
	f.ruin(0, "@sum", "@SUM")
	out.Reset()
	if err := f.another().Export(t.Context(), &out, "ndjson"); code(err) != errcode.LogUnsound || out.Len() > 0 {
		t.Errorf("of an unsound one it is %v", err)
	}
}

func TestACellIsNeverAFormula(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "1": "1", "-1": "'-1", "+1": "'+1", "=1": "'=1", "@x": "'@x", "\tx": "'\tx", "\rx": "'\rx", "a=1": "a=1", "0x11": "0x11", "'x": "'x",
	} {
		if got := harmless(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
