package ingest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/store"
)

func eventOf(t *testing.T, x *Indexer, r Ref) string {
	t.Helper()
	receipt, err := x.Receipt(context.Background(), r, "")
	if err != nil {
		return string(errcode.Of(err).Code)
	}
	_, id, _ := strings.Cut(string(receipt.Append(nil, 0, 0)), `"event_id":"`)
	id, _, _ = strings.Cut(id, `"`)
	return id
}

func TestReceiptsAreAddressedByTheExactRunID(t *testing.T) {
	root, path := newRoot(t)
	for i, run := range []string{"latest", "zzz", "run:zzz", "run:latest"} {
		write(t, path(run+".ndjson"), line("same", i, "submitted"))
	}
	x := open(t, root)
	for i, run := range []string{"latest", "zzz", "run:zzz", "run:latest"} {
		if got, want := eventOf(t, x, Ref{Run: run, Operation: "same"}), "e-same-"+string(rune('0'+i)); got != want {
			t.Errorf("run %q: event %s, want %s", run, got, want)
		}
	}
	for name, want := range map[string]string{"latest": "zzz", "run:latest": "latest", "run:zzz": "zzz", "run:run:zzz": "run:zzz", "zzz": "zzz"} {
		r, err := x.Resolve(context.Background(), Ref{Run: name, Operation: "sa"})
		if err != nil || r.Run != want || r.Operation != "same" {
			t.Errorf("%q resolves to %+v (%v), want run %q", name, r, err, want)
		}
	}
}

// An empty newest run is passed over; one with damage is not empty, and an answer from
// an older one in its place would say that nothing is damaged (trace contract, sections
// 12.2 and 12.5).
func TestTheLatestRunIsTheLastThatIsNotEmpty(t *testing.T) {
	sound, whole := line("late", 9, "submitted"), strings.TrimSpace(line("late", 9, "submitted"))
	attested := `{"event_id":"e","event_type":"trace.attached","occurred_at":"2026-05-04T09:00:00.000Z","seq":0,"adapter":"trace-x402","payload":{}}` + "\n"
	for name, c := range map[string]struct {
		newest string
		dir    bool // the newest entry is a directory
		age    time.Duration
		want   string // run, and what is said of its damage
	}{
		"empty":                                {"", false, time.Hour, "1 "},
		"attested only":                        {attested, false, time.Hour, "1 "},
		"blank lines only":                     {"\n \n", false, time.Hour, "1 "},
		"with an operation":                    {sound, false, time.Hour, "2 "},
		"of faulty lines":                      {"what\n{}\n", false, time.Hour, "2 the line is not one JSON value"},
		"attested, and a faulty line":          {attested + "what\n", false, time.Hour, "2 the line is not one JSON value"},
		"a directory":                          {"", true, time.Hour, "2 the entry is a directory"},
		"a whole object without its newline":   {whole, false, 0, "2 " + tornText},
		"attested, and a whole object":         {attested + whole, false, 0, "2 " + tornText},
		"a part of a line, written just now":   {whole[:40], false, 0, "1 "},
		"a part of a line, and nobody went on": {whole[:40], false, time.Hour, "2 " + tornText},
	} {
		t.Run(name, func(t *testing.T) {
			root, path := newRoot(t)
			write(t, path("1.ndjson"), line("old", 1, "submitted"))
			if c.dir {
				if err := os.Mkdir(path("2.ndjson"), 0o755); err != nil {
					t.Fatal(err)
				}
			} else {
				write(t, path("2.ndjson"), c.newest)
			}
			write(t, path("3.ndjson"), "") // and behind it an empty one
			x := open(t, root)
			now := time.Now().Add(c.age)
			x.now = func() time.Time { return now }
			p, err := x.List(context.Background(), Query{Run: "latest"})
			if err != nil {
				t.Fatal(err)
			}
			run, reason, _ := strings.Cut(c.want, " ")
			r, err := x.Resolve(context.Background(), Ref{Run: "latest", Operation: "old"})
			if run == "1" {
				if len(p.Operations) != 1 || p.Operations[0].Run != "1" || p.DamagedTotal != 0 || err != nil || r.Run != "1" {
					t.Errorf("%+v; %+v (%v)", p, r, err)
				}
				return
			}
			if err == nil || errcode.Of(err).Code != errcode.OperationNotFound || !strings.Contains(err.Error(), `run "2" `) || strings.Contains(err.Error(), "damaged") != (reason != "") {
				t.Errorf("an operation of another run: %+v, %v", r, err)
			}
			if reason == "" {
				if len(p.Operations) != 1 || p.Operations[0].Run != "2" || p.DamagedTotal != 0 {
					t.Errorf("%+v", p)
				}
				return
			}
			if p.RunsScanned != 1 || len(p.Operations) != 0 || p.DamagedTotal != 1 || len(p.DamagedRuns) != 1 || p.DamagedRuns[0].RunID != run || p.DamagedRuns[0].Reason != reason {
				t.Errorf("%+v", p)
			}
		})
	}
}

func TestWhereNoRunHasOperationsTheLatestIsTheDamagedOneElseTheLast(t *testing.T) {
	root, path := newRoot(t)
	write(t, path("1.ndjson"), "what\n")
	write(t, path("2.ndjson"), "")
	x := open(t, root)
	p, err := x.List(context.Background(), Query{Run: "latest"})
	if err != nil || p.DamagedTotal != 1 || p.DamagedRuns[0].RunID != "1" {
		t.Errorf("%+v, %v", p, err)
	}
	write(t, path("1.ndjson"), "")
	if p, err := x.List(context.Background(), Query{Run: "latest"}); err != nil || p.DamagedTotal != 0 || p.RunsScanned != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestTwoFilesOfOneIDAreDamageAndNeverMixedUp(t *testing.T) {
	root, path := newRoot(t)
	write(t, path(".ndjson"), line("a", 1, "submitted"))
	write(t, path(".ndjson.ndjson"), line("b", 2, "submitted"))
	x := open(t, root)
	p, err := x.List(context.Background(), Query{})
	if err != nil {
		t.Fatal(err)
	}
	if p.DamagedTotal != 2 || !strings.Contains(p.DamagedRuns[0].Reason, "same id") {
		t.Errorf("damage is %+v", p.DamagedRuns)
	}
	if got := eventOf(t, x, Ref{Run: ".ndjson", Operation: "a"}); got != string(errcode.RunDamaged) {
		t.Errorf("reading one of them gives %s", got)
	}
	if err := os.Remove(path(".ndjson")); err != nil {
		t.Fatal(err)
	}
	if got := eventOf(t, x, Ref{Run: ".ndjson", Operation: "b"}); got != "e-b-2" {
		t.Errorf("the one that is left gives %s", got)
	}
	mustBeSound(t, x)
}

func TestARunDeletedWhileItIsReadDisturbsNoOther(t *testing.T) {
	root, path := newRoot(t)
	write(t, path("keep.ndjson"), line("k", 1, "submitted"))
	write(t, path("gone.ndjson"), line("g", 2, "submitted"))
	x := open(t, root)
	watch(t, x)
	wantOperations(t, x, "gone/g", "keep/k")
	// As a receipt leaves it that found its lines missing.
	x.suspects.Store("gone.ndjson", true)
	x.suspects.Store("never.ndjson", true)
	if err := os.Remove(path("gone.ndjson")); err != nil {
		t.Fatal(err)
	}
	if got := eventOf(t, x, Ref{Run: "gone", Operation: "g"}); got != string(errcode.RunNotFound) {
		t.Errorf("the deleted run gives %s", got)
	}
	wantOperations(t, x, "keep/k")
}

func TestAReceiptOfARunThatEndsInATornLineSaysSo(t *testing.T) {
	root, path := newRoot(t)
	write(t, path("r.ndjson"), line("a", 1, "submitted")+strings.TrimSpace(line("a", 2, "responded")))
	x := open(t, root)
	r, err := x.Receipt(context.Background(), Ref{Run: "r", Operation: "a"}, "")
	if err != nil || !r.Damaged {
		t.Errorf("damaged %v (%v)", r != nil && r.Damaged, err)
	}
}

func TestAnAnswerInNoOperationIsShownOnThePaymentItCloses(t *testing.T) {
	root, path := newRoot(t)
	answer := strings.Replace(line("a", 2, "responded"), `"context_id":"a",`, "", 1)
	answer = strings.Replace(answer, `"x402_version":2,`, `"x402_version":2,"resource":{"url":"https://s.example/x"},"settle":{"success":true,"network":"eip155:8453","transaction":"0x1"},`, 1)
	paid := strings.Replace(line("a", 1, "submitted"), `"x402_version":2,`, `"x402_version":2,"resource":{"url":"https://s.example/x"},`, 1)
	write(t, path("r.ndjson"), paid+answer)
	x := open(t, root)
	p, err := x.List(context.Background(), Query{})
	if err != nil {
		t.Fatal(err)
	}
	row := p.Operations[0]
	if row.Settlement != "settled" || row.Linked == nil || !row.Linked.Unassigned || row.Linked.Run != "r" {
		t.Errorf("the payment is %s, linked %+v", row.Settlement, row.Linked)
	}
	mustBeSound(t, x)
}

// Neither the files it led to before nor those it leads to now are answered for.
func TestALinkToTheEventsThatLeadsElsewhereLaterIsAnError(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	for _, dir := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(elsewhere, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(elsewhere, dir, dir+".ndjson"), line(dir, 1, "submitted"))
	}
	link := filepath.Join(root, "events")
	if err := os.Symlink(filepath.Join(elsewhere, "one"), link); err != nil {
		t.Fatal(err)
	}
	x := open(t, root)
	wantOperations(t, x, "one/one")
	_ = os.Remove(link)
	if err := os.Symlink(filepath.Join(elsewhere, "two"), link); err != nil {
		t.Fatal(err)
	}
	_, err := x.List(t.Context(), Query{})
	if got := errcode.Of(err); got == nil || got.Code != errcode.Root || !strings.Contains(got.Message, "leads elsewhere now") {
		t.Errorf("the answer is %v", err)
	}
	_ = os.Remove(link)
	if _, err := x.List(t.Context(), Query{}); err == nil || !strings.Contains(err.Error(), "leads nowhere now") {
		t.Errorf("where it leads nowhere the answer is %v", err)
	}
	if err := os.Symlink(filepath.Join(elsewhere, "one"), link); err != nil {
		t.Fatal(err)
	}
	wantOperations(t, x, "one/one")
	if gone := lastGone(t, x); gone != 0 {
		t.Errorf("transaction %d removed a run", gone)
	}
}

func TestARootThatVanishesIsAnErrorAndNotAnEmptyAnswer(t *testing.T) {
	parent := t.TempDir()
	root := filepath.Join(parent, "root")
	if err := os.MkdirAll(filepath.Join(root, "events"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "events", "r.ndjson"), line("a", 1, "submitted"))
	x, err := Open(context.Background(), Options{Root: root, Index: filepath.Join(parent, "index.db"), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	wantOperations(t, x, "r/a")
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	_, err = x.List(context.Background(), Query{})
	var e *errcode.Error
	if !errors.As(err, &e) || e.Code != errcode.Root {
		t.Errorf("the answer is %v", err)
	}
}

func TestEventsThatAppearLaterAreServed(t *testing.T) {
	root := t.TempDir()
	x := open(t, root)
	wantOperations(t, x)
	if err := os.Mkdir(filepath.Join(root, "events"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "events", "r.ndjson"), line("a", 1, "submitted"))
	wantOperations(t, x, "r/a")
}

func TestAHardLinkedRunIsReadAndAlwaysStated(t *testing.T) {
	root, path := newRoot(t)
	outside := filepath.Join(root, "outside")
	write(t, outside, line("a", 1, "submitted"))
	if err := os.Link(outside, path("r.ndjson")); err != nil {
		t.Skip("hard links are not to be had here")
	}
	x := open(t, root)
	watch(t, x)
	wantOperations(t, x, "r/a")
	// Written through the other name: no notification comes by.
	appendTo(t, outside, line("b", 2, "submitted"))
	wantOperations(t, x, "r/b", "r/a")
}

func TestADeafWatcherMeansThatEveryRunIsStated(t *testing.T) {
	root, path := newRoot(t)
	write(t, path("r.ndjson"), line("a", 1, "submitted"))
	x := open(t, root)
	watch(t, x)
	wantOperations(t, x, "r/a")
	w := x.watcher.Load()
	w.distrust(overflow)
	appendTo(t, path("r.ndjson"), line("b", 2, "submitted"))
	w.mu.Lock()
	clear(w.dirty) // what an overflow loses
	w.mu.Unlock()
	wantOperations(t, x, "r/b", "r/a")
	if ok, why := w.healthy(); !ok {
		t.Errorf("the watcher did not recover: %s", why)
	}
}

func TestCookiesOfKilledProcessesAreSweptAndNamesAreUnique(t *testing.T) {
	root, path := newRoot(t)
	write(t, path("r.ndjson"), line("a", 1, "submitted"))
	old := filepath.Join(root, "guard", "sync", "cookie-1-1")
	if err := os.MkdirAll(filepath.Dir(old), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, old, "")
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	a, b := open(t, root), open(t, root)
	watch(t, a)
	watch(t, b)
	wantOperations(t, a, "r/a")
	wantOperations(t, b, "r/a")
	if a.watcher.Load().name == b.watcher.Load().name {
		t.Error("two watchers have one name")
	}
	left, err := os.ReadDir(filepath.Dir(old))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if e.Name() == filepath.Base(old) {
			t.Error("the old cookie is still there")
		}
	}
}

func TestNothingIsMadeWhereThereAreNoEvents(t *testing.T) {
	root := t.TempDir()
	x := open(t, root)
	wantOperations(t, x)
	left, err := os.ReadDir(root)
	if err != nil || len(left) != 0 {
		t.Errorf("%d entries were made (%v)", len(left), err)
	}
	if s, err := x.Status(context.Background()); err != nil || s.Private {
		t.Errorf("status calls the index private (%v)", err)
	}
	if err := os.Mkdir(filepath.Join(root, "events"), 0o755); err != nil {
		t.Fatal(err)
	}
	wantOperations(t, x)
	if _, err := os.Stat(filepath.Join(root, "guard")); err != nil {
		t.Errorf("the index did not move to its usual place: %v", err)
	}
}

func TestAwaitClaimsNothingOfAnOperationItNeverSaw(t *testing.T) {
	root, path := newRoot(t)
	write(t, path("r.ndjson"), line("a", 1, "submitted"))
	x := open(t, root)
	a, err := x.Await(context.Background(), Ref{Run: "r", Operation: "mistyped"}, "", time.Millisecond)
	if err != nil || a.Recorded || a.Settlement != "unknown" || !a.TimedOut {
		t.Errorf("%+v (%v)", a, err)
	}
	a, err = x.Await(context.Background(), Ref{Run: "r", Operation: "a"}, "", time.Millisecond)
	if err != nil || !a.Recorded || a.Completeness != "partial" || !a.TimedOut {
		t.Errorf("%+v (%v)", a, err)
	}
	if _, err := x.Await(context.Background(), Ref{Run: "nope", Operation: "a"}, "", time.Millisecond); err == nil {
		t.Error("an unknown run is waited for")
	}
}

func TestAwaitReturnsWhenTheMoneyIsKnownAlthoughTheReceiptStaysPartial(t *testing.T) {
	root, path := newRoot(t)
	failed := strings.Replace(line("a", 2, "responded"), "x402.payment.responded", "x402.settle.failed", 1)
	failed = strings.Replace(failed, `"x402_version":2,`, `"x402_version":2,"settle":{"success":false,"network":"eip155:8453","error_reason":"insufficient_funds"},`, 1)
	write(t, path("r.ndjson"), line("a", 1, "submitted")+failed)
	x := open(t, root)
	a, err := x.Await(context.Background(), Ref{Run: "r", Operation: "a"}, "", time.Hour)
	if err != nil || a.Settlement != "failed" || a.TimedOut {
		t.Errorf("%+v (%v)", a, err)
	}
}

func TestWhatWasNotComparedYetIsRememberedByTheIndex(t *testing.T) {
	root, path := newRoot(t)
	data := filler(0, 3000)
	write(t, path("r.ndjson"), data)
	x := open(t, root)
	watch(t, x)
	operations(t, x)
	edited := strings.Replace(data, `"op1500"`, `"OP1500"`, 1) + line("more", 4000, "submitted")
	patch(t, path("r.ndjson"), edited, 0)
	operations(t, x) // the watcher tells of an append; the middle is not compared
	y := open(t, root)
	if got := strings.Join(operations(t, y), " "); !strings.Contains(got, "OP1500") || strings.Contains(got, "op1500") {
		t.Error("another process takes the run for unchanged")
	}
	mustBeSound(t, y)
}

func TestBlindnessDoesNotDependOnWhereAPassEnded(t *testing.T) {
	attach := func(n int, kind string, blind bool) string {
		what, missing := "attached", ""
		if blind {
			what, missing = "attach_partial", `,"missing":["client.onPaymentResponse"]`
		}
		l := strings.Replace(line("x", n, "submitted"), `"context_id":"x",`, "", 1)
		l = strings.Replace(l, "x402.payment.submitted", "trace."+what, 1)
		return l[:strings.Index(l, `"payload":`)] + `"payload":{"kind":"` + kind + `"` + missing + "}}\n"
	}
	var many strings.Builder
	for i := range 40 {
		many.WriteString(attach(i, "sighted"+strings.Repeat("x", i), false))
	}
	for name, before := range map[string]string{
		"many sighted kinds":   many.String() + attach(50, "late", true),
		"a kind without name":  attach(1, "", true),
		"a kind with controls": attach(1, `a\u001fb`, true),
		"sighted again":        attach(1, "k", true) + attach(2, "k", false),
	} {
		t.Run(name, func(t *testing.T) {
			root, path := newRoot(t)
			write(t, path("r.ndjson"), before)
			x := open(t, root)
			operations(t, x)
			appendTo(t, path("r.ndjson"), line("p", 60, "submitted"))
			operations(t, x)
			mustBeSound(t, x)
		})
	}
}

func TestRotationUnderAnOpenDescriptorIsNotMissed(t *testing.T) {
	root, path := newRoot(t)
	f, err := os.OpenFile(path("1.ndjson"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	put := func(s string) {
		t.Helper()
		if _, err := f.WriteString(s); err != nil {
			t.Fatal(err)
		}
	}
	put(line("a", 1, "submitted"))
	x := open(t, root)
	watch(t, x)
	wantOperations(t, x, "1/a")
	if err := os.Link(path("1.ndjson"), path("2.ndjson")); err != nil {
		t.Skip("hard links are not to be had here")
	}
	if err := os.Remove(path("1.ndjson")); err != nil {
		t.Fatal(err)
	}
	wantOperations(t, x, "2/a")
	put(line("b", 2, "submitted"))
	wantOperations(t, x, "2/b", "2/a")
}

func TestAnEntryThatBecomesReadableIsServed(t *testing.T) {
	root, path := newRoot(t)
	write(t, path("r.ndjson"), line("a", 1, "submitted"))
	x := open(t, root)
	// As a process that may not read the file leaves it.
	j := job{file: "r.ndjson"}
	dir, err := x.openEvents()
	if err != nil {
		t.Fatal(err)
	}
	if j.info, err = dir.Stat("r.ndjson"); err != nil {
		t.Fatal(err)
	}
	_ = dir.Close()
	operations(t, x)
	ix, err := x.handle(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := ix.Write(context.Background(), func(tx *store.Tx) error {
		x.apply.enter(tx)
		return x.apply.batch(tx, &batch{file: "r.ndjson", info: j.info, entryFault: "permission denied", last: true})
	}); err != nil {
		t.Fatal(err)
	}
	x.needFull.Store(true)
	wantOperations(t, x, "r/a")
}

func TestEventsBehindALinkThatGoAndComeBackAreServedAgain(t *testing.T) {
	t.Run("by who looked meanwhile", func(t *testing.T) {
		eventsGoAndComeBack(t, func(x, _ *Indexer) { wantOperations(t, x) })
	})
	t.Run("by who did not look while another did", func(t *testing.T) {
		eventsGoAndComeBack(t, func(_, another *Indexer) { wantOperations(t, another) })
	})
}

func eventsGoAndComeBack(t *testing.T, meanwhile func(x, another *Indexer)) {
	t.Helper()
	root, elsewhere := t.TempDir(), t.TempDir()
	disk := filepath.Join(elsewhere, "disk")
	if err := os.MkdirAll(filepath.Join(disk, "events"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(disk, "events", "r.ndjson"), line("a", 1, "submitted"))
	if err := os.Symlink(filepath.Join(disk, "events"), filepath.Join(root, "events")); err != nil {
		t.Fatal(err)
	}
	x, another := open(t, root), open(t, root)
	watch(t, x)
	wantOperations(t, x, "r/a")
	// The watched directory itself is neither moved nor removed, so nobody is told.
	if err := os.Rename(disk, disk+"-away"); err != nil {
		t.Fatal(err)
	}
	meanwhile(x, another)
	if err := os.Rename(disk+"-away", disk); err != nil {
		t.Fatal(err)
	}
	wantOperations(t, x, "r/a")
}
