package ingest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/safefile"
	"github.com/settlewatch/settlewatch/store"
)

// line makes one sound event of the client side.
func line(op string, n int, kind string) string {
	at := time.Date(2026, 5, 4, 9, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Millisecond).Format("2006-01-02T15:04:05.000Z")
	req := `"requirements":{"scheme":"exact","network":"eip155:8453","asset":"0x833589fcd6edb6e08f4c7c32d4f71b54bda02913","amount":"4200","pay_to":"0x7A1de5000000000000000000000000000000A1e5","max_timeout_seconds":120}`
	return fmt.Sprintf(`{"event_id":"e-%s-%d","event_type":"x402.payment.%s","occurred_at":%q,"context_id":%q,"seq":%d,"adapter":"trace-x402","role":"client","payload":{"x402_version":2,%s}}`+"\n",
		op, n, kind, at, op, n, req)
}

func newRoot(t *testing.T) (root string, events func(name string) string) {
	root = t.TempDir()
	dir := filepath.Join(root, "events")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return root, func(name string) string { return filepath.Join(dir, name) }
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

// patch writes over what a file holds at a place.
func patch(t *testing.T, path, data string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(data), at); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
}

func appendTo(t *testing.T, path, data string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(data); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func operations(t *testing.T, x *Indexer) []string {
	t.Helper()
	var ids []string
	q := Query{Limit: 100}
	for {
		p, err := x.List(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Operations {
			ids = append(ids, r.Run+"/"+r.Operation)
		}
		if p.NextCursor == "" {
			return ids
		}
		q.Cursor = p.NextCursor
	}
}

func wantOperations(t *testing.T, x *Indexer, want ...string) {
	t.Helper()
	got := operations(t, x)
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("operations are %v, want %v", got, want)
	}
	mustBeSound(t, x)
}

// filler is a long run of its own operations, so that a change in its middle
// lies in neither the first nor the last block.
func filler(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		b.WriteString(line(fmt.Sprintf("op%04d", i), i, "submitted"))
	}
	return b.String()
}

func TestAnswersFollowARunFileHoweverItChanges(t *testing.T) {
	one := line("a", 1, "submitted")
	two := line("b", 2, "submitted")
	cases := []struct {
		name   string
		before string
		change func(t *testing.T, path string)
		want   string
	}{
		{"appended", one, func(t *testing.T, p string) { appendTo(t, p, two) }, "r/b r/a"},
		{"cut short", one + two, func(t *testing.T, p string) {
			if err := os.Truncate(p, int64(len(one))); err != nil {
				t.Fatal(err)
			}
		}, "r/a"},
		{"emptied", one + two, func(t *testing.T, p string) { write(t, p, "") }, ""},
		{"replaced by another file", one, func(t *testing.T, p string) {
			write(t, p+".new", two)
			if err := os.Rename(p+".new", p); err != nil {
				t.Fatal(err)
			}
		}, "r/b"},
		{"edited in place, same length", one, func(t *testing.T, p string) { write(t, p, strings.ReplaceAll(one, `"a"`, `"z"`)) }, "r/z"},
		{"cut and regrown past the old end", one, func(t *testing.T, p string) { write(t, p, two+line("c", 3, "submitted")) }, "r/c r/b"},
		{"removed", one, func(t *testing.T, p string) { _ = os.Remove(p) }, ""},
		{"removed and made again", one, func(t *testing.T, p string) { _ = os.Remove(p); write(t, p, two) }, "r/b"},
		{"torn tail completed", one + two[:20], func(t *testing.T, p string) { appendTo(t, p, two[20:]) }, "r/b r/a"},
		{"torn tail replaced", one + two[:20], func(t *testing.T, p string) { write(t, p, one+two) }, "r/b r/a"},
		{"renamed", one, func(t *testing.T, p string) {
			if err := os.Rename(p, filepath.Join(filepath.Dir(p), "s.ndjson")); err != nil {
				t.Fatal(err)
			}
		}, "s/a"},
		{"turned into a directory", one, func(t *testing.T, p string) {
			_ = os.Remove(p)
			if err := os.Mkdir(p, 0o755); err != nil {
				t.Fatal(err)
			}
		}, ""},
	}
	for _, watched := range []bool{false, true} {
		for _, c := range cases {
			t.Run(fmt.Sprintf("%s, watched %t", c.name, watched), func(t *testing.T) {
				root, path := newRoot(t)
				write(t, path("r.ndjson"), c.before)
				x := open(t, root)
				if watched {
					watch(t, x)
				}
				operations(t, x)
				c.change(t, path("r.ndjson"))
				wantOperations(t, x, strings.Fields(c.want)...)
			})
		}
	}
}

// watch starts the watcher and waits until it is there.
func watch(t *testing.T, x *Indexer) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = x.Watch(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	for x.watcher.Load() == nil {
		time.Sleep(time.Millisecond)
	}
}

func TestAnEditInTheMiddleOfALongRunIsFound(t *testing.T) {
	for _, grown := range []bool{false, true} {
		t.Run(fmt.Sprintf("grown %t", grown), func(t *testing.T) {
			root, path := newRoot(t)
			data := filler(0, 3000)
			write(t, path("r.ndjson"), data)
			x := open(t, root)
			operations(t, x)
			edited := strings.Replace(data, `"op1500"`, `"edited"`, 1)
			if grown {
				edited += line("more", 4000, "submitted")
			}
			patch(t, path("r.ndjson"), edited, 0)
			got := strings.Join(operations(t, x), " ")
			if !strings.Contains(got, "r/edited") || strings.Contains(got, "r/op1500") {
				t.Error("the list shows what the file no longer says")
			}
			mustBeSound(t, x)
		})
	}
}

func TestALongRunThatWasReplacedIsIndexedWholeInOneStep(t *testing.T) {
	root, path := newRoot(t)
	write(t, path("r.ndjson"), line("old", 1, "submitted"))
	x := open(t, root)
	wantOperations(t, x, "r/old")
	// Several batches long: an operation goes on from one to the next.
	var b strings.Builder
	for i := 0; b.Len() < 3*batchBytes; i++ {
		b.WriteString(line(fmt.Sprintf("op%d", i%5000), i, "submitted"))
	}
	write(t, path("r.ndjson.new"), b.String())
	if err := os.Rename(path("r.ndjson.new"), path("r.ndjson")); err != nil {
		t.Fatal(err)
	}
	s, err := x.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if s.Counts.Operations != 5000 || s.Private {
		t.Errorf("%d operations, want 5000 (private %t)", s.Counts.Operations, s.Private)
	}
	mustBeSound(t, x)
}

func TestAReceiptIsNeverBuiltFromChangedBytes(t *testing.T) {
	root, path := newRoot(t)
	data := filler(0, 3000)
	write(t, path("r.ndjson"), data)
	x := open(t, root)
	watch(t, x)
	operations(t, x)
	// Edited and grown while the watcher looks: the append alone would not
	// show that the middle has changed.
	edited := strings.Replace(data, `"e-op1500-1500"`, `"E-op1500-1500"`, 1) + line("more", 4000, "submitted")
	patch(t, path("r.ndjson"), edited, 0)
	r, err := x.Receipt(context.Background(), Ref{Run: "r", Operation: "op1500"}, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := string(r.Append(nil, 0, 0)); !strings.Contains(got, "E-op1500-1500") {
		t.Errorf("the receipt shows the old bytes: %s", got)
	}
}

func TestDamageIsReportedAndServedAround(t *testing.T) {
	good, after := line("a", 1, "submitted"), line("b", 2, "submitted")
	cases := []struct{ name, bad, reason string }{
		{"half a record", `{"event_id":"x",` + "\n", "not one JSON value"},
		{"two records on a line", strings.TrimSpace(good) + "\r" + strings.TrimSpace(good) + "\n", "not one JSON value"},
		{"a list", "[1]\n", "not a JSON object"},
		{"a number for the id", strings.Replace(good, `"e-a-1"`, "7", 1), "event_id"},
		{"no time", strings.Replace(good, `"occurred_at"`, `"at"`, 1), "occurred_at"},
		{"text for seq", strings.Replace(good, `"seq":1`, `"seq":"1"`, 1), "seq"},
		{"a number for the operation", strings.Replace(good, `"context_id":"a"`, `"context_id":1`, 1), "context_id"},
		{"nested too deep", strings.Repeat("[", 4000) + strings.Repeat("]", 4000) + "\n", "nested deeper"},
		{"over eight mebibytes", `{"x":"` + strings.Repeat("y", maxLine) + "\"}\n", "too long"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root, path := newRoot(t)
			write(t, path("r.ndjson"), good+"\n"+c.bad+after)
			write(t, path("sound.ndjson"), line("s", 3, "submitted"))
			x := open(t, root)
			p, err := x.List(context.Background(), Query{})
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Operations) != 3 || p.RunsScanned != 2 {
				t.Errorf("%d operations of %d runs, want 3 of 2", len(p.Operations), p.RunsScanned)
			}
			if p.DamagedTotal != 1 || len(p.DamagedRuns) != 1 || p.DamagedRuns[0].RunID != "r" || p.DamagedRuns[0].Line != 3 ||
				p.DamagedRuns[0].Offset != int64(len(good)+1) || !strings.Contains(p.DamagedRuns[0].Reason, c.reason) {
				t.Errorf("damage is %+v", p.DamagedRuns)
			}
			r, err := x.Receipt(context.Background(), Ref{Run: "r", Operation: "b"}, "")
			if err != nil || !r.Damaged {
				t.Errorf("receipt of the damaged run: %v", err)
			}
			mustBeSound(t, x)
		})
	}
}

func TestATornTailWaitsAndThenCountsAsDamage(t *testing.T) {
	root, path := newRoot(t)
	now := time.Now()
	write(t, path("r.ndjson"), line("a", 1, "submitted")+`{"event_id":"half`)
	x := open(t, root)
	x.now = func() time.Time { return now.Add(time.Second) }
	damage := func() int {
		p, err := x.List(context.Background(), Query{})
		if err != nil {
			t.Fatal(err)
		}
		return p.DamagedTotal
	}
	if n := damage(); n != 0 {
		t.Errorf("a tail written just now is counted as damage (%d)", n)
	}
	now = now.Add(10 * time.Second)
	if n := damage(); n != 1 {
		t.Errorf("a tail nobody finished for ten seconds is not counted (%d)", n)
	}
	write(t, path("r.ndjson"), line("a", 1, "submitted")+strings.TrimSpace(line("b", 2, "submitted")))
	now = time.Now().Add(-5 * time.Second)
	if n := damage(); n != 1 {
		t.Errorf("a whole object without its newline is not counted (%d)", n)
	}
	wantOperations(t, x, "r/a")
	appendTo(t, path("r.ndjson"), "\n")
	now = time.Now().Add(time.Minute)
	if n := damage(); n != 0 {
		t.Errorf("a completed tail still counts (%d)", n)
	}
	wantOperations(t, x, "r/b", "r/a")
}

func TestTheIndexMayVanishOrBreakAtAnyMoment(t *testing.T) {
	index := func(root string) string { return filepath.Join(root, "guard", store.FileName()) }
	inDB := func(t *testing.T, path, stmt string) {
		db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec(stmt); err != nil {
			t.Fatal(err)
		}
	}
	harm := map[string]func(t *testing.T, root string){
		"deleted": func(t *testing.T, root string) { _ = os.Remove(index(root)) },
		"deleted with its log": func(t *testing.T, root string) {
			for _, s := range []string{"", "-wal", "-shm"} {
				_ = os.Remove(index(root) + s)
			}
		},
		"the whole guard directory deleted": func(t *testing.T, root string) { _ = os.RemoveAll(filepath.Join(root, "guard")) },
		"overwritten with junk":             func(t *testing.T, root string) { patch(t, index(root), strings.Repeat("junk", 2048), 0) },
		"cut to nothing":                    func(t *testing.T, root string) { _ = os.Truncate(index(root), 0) },
		"cut in half": func(t *testing.T, root string) {
			info, _ := os.Stat(index(root))
			_ = os.Truncate(index(root), info.Size()/2/4096*4096)
		},
		"replaced by a text file": func(t *testing.T, root string) {
			_ = os.Remove(index(root))
			write(t, index(root), "not an index\n")
		},
		"replaced by a directory": func(t *testing.T, root string) {
			_ = os.Remove(index(root))
			_ = os.MkdirAll(index(root), 0o755)
		},
		"replaced by a newer schema": func(t *testing.T, root string) {
			inDB(t, index(root), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)")
		},
		"cut within its header":             func(t *testing.T, root string) { _ = os.Truncate(index(root), 100) },
		"cut to nothing by another program": func(t *testing.T, root string) { _ = os.Truncate(index(root), 0) },
		"a table dropped":                   func(t *testing.T, root string) { inDB(t, index(root), "DROP TABLE payments") },
		"another table dropped":             func(t *testing.T, root string) { inDB(t, index(root), "DROP TABLE operations") },
		"rows of it deleted and the runs forgotten": func(t *testing.T, root string) {
			inDB(t, index(root), "DELETE FROM runs")
		},
	}
	for name, do := range harm {
		for _, while := range []string{"open", "closed"} {
			t.Run(name+" while "+while, func(t *testing.T) {
				root, path := newRoot(t)
				write(t, path("r.ndjson"), filler(0, 300))
				x := open(t, root)
				want := strings.Join(operations(t, x), " ")
				if while == "closed" {
					if err := x.Close(); err != nil {
						t.Fatal(err)
					}
				}
				do(t, root)
				if while == "closed" {
					x = open(t, root)
				}
				if got := strings.Join(operations(t, x), " "); got != want {
					t.Errorf("answers changed: %d bytes instead of %d", len(got), len(want))
				}
				appendTo(t, path("r.ndjson"), line("op0299", 4999, "submitted")) // which is remembered
				if got := operations(t, x); got[0] != "r/op0299" {
					t.Errorf("what was written afterwards is missing: %s", got[0])
				}
				do(t, root)
				appendTo(t, path("r.ndjson"), settle(line("op0299", 5000, "responded"), "0xa", true)+line("late", 5001, "submitted"))
				if got := operations(t, x); got[0] != "r/late" {
					t.Errorf("what was written after it broke again is missing: %s", got[0])
				}
			})
		}
	}
}

func TestALockedIndexDoesNotKeepAnswersBack(t *testing.T) {
	root, path := newRoot(t)
	write(t, path("r.ndjson"), filler(0, 10))
	x := open(t, root)
	operations(t, x)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(root, "guard", store.FileName())+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	appendTo(t, path("r.ndjson"), line("late", 5000, "submitted"))
	if got := operations(t, x); got[0] != "r/late" {
		t.Errorf("the newest operation is %s", got[0])
	}
}

func TestManyIndexersOnOneRootProjectEachLineOnce(t *testing.T) {
	root, path := newRoot(t)
	const writers, each = 3, 150
	var xs []*Indexer
	for range 3 {
		x := open(t, root)
		xs = append(xs, x)
	}
	watch(t, xs[0])
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				op := fmt.Sprintf("w%d-%d", w, i/3)
				appendTo(t, path(fmt.Sprintf("run%d.ndjson", w)), line(op, w*10000+i, []string{"required", "submitted", "responded"}[i%3]))
			}
		})
	}
	for _, x := range xs {
		wg.Go(func() {
			for range 40 {
				if err := x.Sync(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, x := range xs {
		s, err := x.Status(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if s.Counts.Events != writers*each || s.Private {
			t.Errorf("%d events, want %d (private %t)", s.Counts.Events, writers*each, s.Private)
		}
	}
	mustBeSound(t, xs[0])
}

// A process may list the run files before one comes, and ask the index after another
// process has indexed it.
func TestARunFileThatCameWhileTheOthersWereListedIsNotTakenForRemoved(t *testing.T) {
	root, path := newRoot(t)
	write(t, path("r.ndjson"), line("a", 1, "submitted"))
	x := open(t, root)
	wantOperations(t, x, "r/a")
	ix, err := x.handle(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before, err := safefile.OpenDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = before.Close() }()
	now, err := x.openEvents()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = now.Close() }()
	jobs, _, _, err := x.all(t.Context(), ix, before)
	if err != nil || len(jobs) != 1 {
		t.Fatalf("%+v, %v", jobs, err)
	}
	if err := x.fill(t.Context(), ix, now, jobs, filling{}); err != nil {
		t.Fatal(err)
	}
	if gone := lastGone(t, x); gone != 0 {
		t.Errorf("transaction %d removed a run", gone)
	}
	wantOperations(t, x, "r/a")
}

func lastGone(t *testing.T, x *Indexer) (gone int64) {
	t.Helper()
	if err := x.Ask(t.Context(), func(v *store.View) (err error) {
		gone, err = v.Gone()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return gone
}

func TestProcessesThatRaceForTheSameRunFilesAllGetOn(t *testing.T) {
	root, path := newRoot(t)
	xs := []*Indexer{open(t, root), open(t, root), open(t, root)}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for _, x := range xs {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := x.Sync(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 500 {
		write(t, path(fmt.Sprintf("run%d.ndjson", i)), line("op", i, "submitted"))
	}
	close(stop)
	wg.Wait()
	if gone := lastGone(t, xs[0]); gone != 0 {
		t.Errorf("transaction %d removed a run", gone)
	}
}

func TestAReindexThatCannotStaySaysSo(t *testing.T) {
	root, path := newRoot(t)
	write(t, path("r.ndjson"), line("a", 1, "submitted"))
	file := filepath.Join(root, "file")
	write(t, file, "")
	x, err := Open(t.Context(), Options{Root: root, Index: filepath.Join(file, "index.db"), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	wantOperations(t, x, "r/a")
	if _, err := x.Reindex(t.Context(), nil); errcode.Of(err) == nil || errcode.Of(err).Code != errcode.Index {
		t.Errorf("it ends with %v", err)
	}
	wantOperations(t, x, "r/a")
}

func TestThePrivateIndexOfAKilledProcessIsRemovedByTheNext(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	left := filepath.Join(os.TempDir(), privatePrefix+"left")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(left, privateLock), "")
	root, path := newRoot(t)
	write(t, path("r.ndjson"), line("a", 1, "submitted"))
	file := filepath.Join(root, "file")
	write(t, file, "")
	for range 2 { // neither takes the other's for left behind
		x, err := Open(t.Context(), Options{Root: root, Index: filepath.Join(file, "index.db"), Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		wantOperations(t, x, "r/a")
	}
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), privatePrefix+"*"))
	if len(dirs) != 2 || slices.Contains(dirs, left) {
		t.Errorf("there are %v", dirs)
	}
}
