package ingest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A walk along the cursors sees every operation that does not change meanwhile
// exactly once and every one that does at least once, whatever is appended,
// however the pages are cut.
func TestAWalkSeesEveryOperationWhileEventsArrive(t *testing.T) {
	for seed := range uint64(12) / min(slowly, 3) {
		r := rand.New(rand.NewPCG(seed, 7))
		root, path := newRoot(t)
		n := 0
		add := func(op string) {
			n++
			// Times go back and forth, many are equal.
			appendTo(t, path(fmt.Sprintf("r%d.ndjson", len(op)%3)), line(op, r.IntN(40), []string{"required", "submitted", "responded"}[r.IntN(3)]))
		}
		var old []string
		for i := range 60 {
			op := fmt.Sprintf("op%0*d", 2+i%3, i)
			old = append(old, op)
			add(op)
		}
		x := open(t, root)
		q := Query{Limit: 1 + r.IntN(9)}
		if r.IntN(2) == 0 {
			q.Completeness = "partial"
		}
		changed, seen := map[string]bool{}, map[string]int{}
		for page := 0; ; page++ {
			p, err := x.List(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			if r.IntN(3) == 0 && len(p.Operations) > 1 {
				p.Cut(1 + r.IntN(len(p.Operations)-1))
			}
			for _, row := range p.Operations {
				seen[row.Operation]++
			}
			if p.NextCursor == "" {
				break
			}
			q.Cursor = p.NextCursor
			if page < 12 {
				for range r.IntN(4) {
					op := old[r.IntN(len(old))]
					if r.IntN(3) == 0 {
						op = fmt.Sprintf("new%d", n)
					}
					changed[op] = true
					add(op)
				}
			}
		}
		for _, op := range old {
			if changed[op] && q.Completeness == "" && seen[op] < 1 {
				t.Errorf("seed %d: %s changed during the walk and was never seen", seed, op)
			}
			if !changed[op] && seen[op] != 1 {
				t.Errorf("seed %d: %s did not change and was seen %d times", seed, op, seen[op])
			}
		}
	}
}

func TestAWalkGoesOnWhenTheIndexIsFilledAnew(t *testing.T) {
	root, path := newRoot(t)
	write(t, path("r.ndjson"), filler(0, 40))
	x := open(t, root)
	q := Query{Limit: 7}
	seen := map[string]int{}
	for page := 0; ; page++ {
		if page > 0 {
			if _, err := x.Reindex(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
			appendTo(t, path("r.ndjson"), line("op0000", 1000+page, "responded")+line(fmt.Sprintf("new%d", page), 2000+page, "submitted"))
		}
		p, err := x.List(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range p.Operations {
			seen[row.Operation]++
		}
		if p.NextCursor == "" {
			break
		}
		if q.Cursor = p.NextCursor; page > 10 {
			t.Fatal("the walk does not end")
		}
	}
	for i := range 40 {
		op := fmt.Sprintf("op%04d", i)
		if n := seen[op]; i > 0 && n != 1 || i == 0 && n < 1 {
			t.Errorf("%s was seen %d times", op, n)
		}
	}
}

func TestCursorsStayShortAndWalksEndWhateverTheIdsAre(t *testing.T) {
	root, path := newRoot(t)
	want := map[string]bool{}
	for i := range 12 {
		op := strings.Repeat("x", 60_000) + fmt.Sprint(i)
		want[op] = true
		event := line(op, 5, "submitted") // all at one moment
		if i%2 == 0 {
			event = strings.Replace(event, `"occurred_at":"`, `"occurred_at":"`+strings.Repeat("é", 30_000), 1)
		}
		appendTo(t, path("r.ndjson"), event)
	}
	x := open(t, root)
	q := Query{Limit: 5}
	for page := 0; ; page++ {
		p, err := x.List(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range p.Operations {
			if !want[row.Operation] {
				t.Error("an operation was seen twice")
			}
			delete(want, row.Operation)
		}
		if len(p.NextCursor) > 1024 {
			t.Errorf("a cursor of %d bytes", len(p.NextCursor))
		}
		if q.Cursor = p.NextCursor; q.Cursor == "" || page > 10 {
			break
		}
	}
	if len(want) != 0 {
		t.Errorf("%d operations were never seen", len(want))
	}
}

// tool makes events of an MCP client that is traced alone: the payment and its
// answer stand in two operations, or the answer in none.
func toolCall(r *rand.Rand, at, id int) []string {
	payee := fmt.Sprintf("0x%040d", r.IntN(2))
	terms := fmt.Sprintf(`{"scheme":"exact","network":"eip155:8453","asset":"0x833589fcd6edb6e08f4c7c32d4f71b54bda02913","amount":"%d","pay_to":"%s","max_timeout_seconds":%d}`,
		100*(1+r.IntN(2)), payee, []int{1, 60, 300}[r.IntN(3)])
	event := func(at int, op, kind, payload string) string {
		when := time.Date(2026, 5, 4, 9, 0, 0, 0, time.UTC).Add(time.Duration(at) * 400 * time.Millisecond).Format("2006-01-02T15:04:05.000Z")
		if op != "" {
			op = fmt.Sprintf(`"context_id":%q,`, op)
		}
		return fmt.Sprintf(`{"event_id":"%s-%d","event_type":"x402.%s","occurred_at":%q,%s"seq":%d,"adapter":"trace-x402","role":"client","payload":{"x402_version":2,"resource":{"url":"mcp://tool/t%d"},%s}}`+"\n",
			kind, id, kind, when, op, id, id%2, payload)
	}
	hash := fmt.Sprintf("0xfeed%02d", r.IntN(6))
	var lines []string
	if r.IntN(8) > 0 {
		if r.IntN(2) == 0 {
			accepts := terms
			if r.IntN(2) == 0 {
				accepts += "," + strings.Replace(terms, "eip155:8453", "eip155:84532", 1)
			}
			lines = append(lines, event(at, fmt.Sprintf("p%d", id), "payment.requested", `"accepts":[`+accepts+`]`))
		} else {
			lines = append(lines, event(at, fmt.Sprintf("p%d", id), "payment.submitted", `"requirements":`+terms))
		}
	}
	answerOp := []string{fmt.Sprintf("a%d", id), "", fmt.Sprintf("p%d", id), fmt.Sprintf("a%d", id/2)}[r.IntN(4)]
	if r.IntN(3) == 0 {
		terms = strings.Replace(terms, "eip155:8453", "eip155:84532", 1)
	}
	switch r.IntN(4) {
	case 0, 1:
		lines = append(lines, event(at+r.IntN(5), answerOp, "payment.responded", `"requirements":`+terms+`,"settle":{"success":true,"network":"eip155:8453","transaction":"`+hash+`"}`))
	case 2:
		lines = append(lines, event(at+r.IntN(5), answerOp, "settle.failed", `"requirements":`+terms+`,"settle":{"success":false,"network":"eip155:8453","error_reason":"settlement_pending","transaction":"`+hash+`"}`))
	}
	return lines
}

// Links, payments and settlements are a pure function of the files: however
// the lines arrive, the index equals one filled at once.
func TestLinksDoNotDependOnHowLinesArrive(t *testing.T) {
	for seed := range uint64(25) / slowly {
		r := rand.New(rand.NewPCG(seed, 11))
		root, path := newRoot(t)
		var lines []string
		for id := range 30 {
			lines = append(lines, toolCall(r, id*r.IntN(3), id)...)
		}
		if seed%2 == 0 {
			r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		}
		x := open(t, root)
		for i, l := range lines {
			file := path(fmt.Sprintf("r%d.ndjson", r.IntN(2)))
			if r.IntN(25) == 0 {
				// A run that is cut and goes on.
				if info, err := os.Stat(file); err == nil {
					_ = os.Truncate(file, info.Size()/2)
				}
			}
			appendTo(t, file, l)
			if i%(1+r.IntN(4)) == 0 {
				if err := x.Sync(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			if r.IntN(40) == 0 {
				_ = os.Remove(file)
			}
		}
		mustBeSound(t, x)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A hash that very many operations name links none of them, in whatever order
// they came.
func TestAHashThatEverybodyNamesLinksNothing(t *testing.T) {
	root, path := newRoot(t)
	x := open(t, root)
	r := rand.New(rand.NewPCG(3, 3))
	for round := range 4 {
		var b strings.Builder
		for id := range hashLimit / 3 {
			for _, l := range toolCall(r, id, round*1000+id) {
				b.WriteString(strings.ReplaceAll(l, `"0xfeed`, `"0xsame`)[:strings.LastIndex(l, "\n")+1])
			}
		}
		lines := strings.NewReplacer("0xsame00", "0xs", "0xsame01", "0xs", "0xsame02", "0xs", "0xsame03", "0xs", "0xsame04", "0xs", "0xsame05", "0xs").Replace(b.String())
		appendTo(t, path(fmt.Sprintf("r%d.ndjson", round%2)), lines)
		mustBeSound(t, x)
	}
	if err := os.Remove(path("r1.ndjson")); err != nil {
		t.Fatal(err)
	}
	mustBeSound(t, x)
}

// settle adds what the seller said of the settlement to an event.
func settle(l, tx string, ok bool) string {
	reason := `"error_reason":"settlement_pending",`
	if ok {
		reason = ""
	}
	l = strings.Replace(l, "x402.payment.settle.", "x402.settle.", 1)
	return strings.Replace(l, `"x402_version":2,`, fmt.Sprintf(`"x402_version":2,"settle":{"success":%t,"network":"eip155:8453",%s"transaction":"%s"},`, ok, reason, tx), 1)
}

// An answer is linked with no payment while there are two that it may be about. A run
// that goes leaves it to the other one.
func TestALinkIsMadeAgainWhenWhatStoodInItsWayGoes(t *testing.T) {
	paid := func(op string) string {
		return line(op, 1, "submitted") + settle(line(op, 2, "settle.failed"), "0xabc", false)
	}
	answered := func(op string, n int) string { return settle(line(op, n, "responded"), "0xabc", true) }
	save := func(t *testing.T, path, text string) {
		write(t, path, strings.ReplaceAll(text, `"x402_version":2,`, `"x402_version":2,"resource":{"url":"https://s.example/x"},`))
	}
	for name, act := range map[string]func(t *testing.T, x *Indexer, path func(string) string){
		"renamed": func(t *testing.T, _ *Indexer, path func(string) string) {
			if err := os.Rename(path("p1.ndjson"), path("p2.ndjson")); err != nil {
				t.Fatal(err)
			}
		},
		"copied, then removed": func(t *testing.T, x *Indexer, path func(string) string) {
			text, err := os.ReadFile(path("p1.ndjson"))
			if err != nil {
				t.Fatal(err)
			}
			write(t, path("p2.ndjson"), string(text))
			operations(t, x)
			if err := os.Remove(path("p1.ndjson")); err != nil {
				t.Fatal(err)
			}
		},
		"named by another run for a while": func(t *testing.T, x *Indexer, path func(string) string) {
			save(t, path("p2.ndjson"), paid("other"))
			operations(t, x)
			save(t, path("p2.ndjson"), line("another", 1, "required"))
		},
		"answered twice for a while": func(t *testing.T, x *Indexer, path func(string) string) {
			save(t, path("z2.ndjson"), answered("early", 3))
			operations(t, x)
			if err := os.Remove(path("z2.ndjson")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			root, path := newRoot(t)
			save(t, path("p1.ndjson"), paid("p"))
			save(t, path("z.ndjson"), answered("late", 4))
			x := open(t, root)
			linked := func() (n int) {
				p, err := x.List(t.Context(), Query{})
				if err != nil {
					t.Fatal(err)
				}
				for _, row := range p.Operations {
					if row.Linked != nil {
						n++
					}
				}
				return n
			}
			if n := linked(); n != 2 {
				t.Fatalf("%d of two operations are linked", n)
			}
			act(t, x, path)
			if n := linked(); n != 2 {
				t.Errorf("%d of two operations are linked in the end", n)
			}
			mustBeSound(t, x)
		})
	}
}

// Operations come to have answers of their own, another hash, or an answer that is
// earlier than those they have: whatever was linked before, the index is in the end what
// it would be if it were made now.
func TestLinksFollowFromTheFilesWhateverCameFirst(t *testing.T) {
	for seed := range uint64(60) / slowly {
		r := rand.New(rand.NewPCG(seed, 5))
		root, path := newRoot(t)
		x := open(t, root)
		for range 4 + r.IntN(8) {
			run, op := fmt.Sprintf("r%d.ndjson", r.IntN(2)), fmt.Sprintf("op%d", r.IntN(3))
			kind := []string{"submitted", "settle.failed", "responded"}[r.IntN(3)]
			event := line(op, r.IntN(20), kind)
			if kind != "submitted" {
				event = settle(event, []string{"", "0xa", "0xb"}[r.IntN(3)], kind == "responded")
			}
			appendTo(t, path(run), strings.Replace(event, `"x402_version":2,`, `"x402_version":2,"resource":{"url":"https://s.example/x"},`, 1))
			if r.IntN(4) > 0 {
				if err := x.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if mustBeSound(t, x); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// What one process remembers of an operation is worth nothing once another has
// written: a link across runs would write the older state back.
func TestALinkWritesNoStaleOperationBack(t *testing.T) {
	root, path := newRoot(t)
	x, y := open(t, root), open(t, root)
	sync := func(x *Indexer) {
		t.Helper()
		if err := x.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	write(t, path("1.ndjson"), line("p", 1, "submitted"))
	sync(x)
	appendTo(t, path("1.ndjson"), settle(line("p", 2, "settle.failed"), "0xabc", false))
	sync(x) // x remembers p
	appendTo(t, path("1.ndjson"), line("p", 3, "submitted"))
	sync(y) // y writes p
	write(t, path("2.ndjson"), settle(line("late", 4, "responded"), "0xabc", true))
	sync(x) // x links p
	mustBeSound(t, x)
	r, err := y.Receipt(context.Background(), Ref{Run: "1", Operation: "p"}, "")
	if err != nil || r.EventCount() != 3 {
		t.Errorf("the receipt has %d events of 3 (%v)", r.EventCount(), err)
	}
}

// The process a test kills: it indexes the root it is given for ever.
func TestMain(m *testing.M) {
	if root := os.Getenv("INGEST_TEST_INDEX"); root != "" {
		x, err := Open(context.Background(), Options{Root: root, Now: time.Now})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		for {
			if err := x.Sync(context.Background()); err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
		}
	}
	os.Exit(m.Run())
}

func TestKilledProcessesLeaveASoundIndex(t *testing.T) {
	root, path := newRoot(t)
	write(t, path("r.ndjson"), "")
	total := 0
	for round := range 12 {
		var procs []*exec.Cmd
		for range 2 {
			c := exec.Command(os.Args[0], "-test.run=^$")
			c.Env = append(os.Environ(), "INGEST_TEST_INDEX="+root)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			procs = append(procs, c)
		}
		for i := range 40 {
			op := fmt.Sprintf("op%d-%d", round, i/3)
			appendTo(t, path(fmt.Sprintf("r%d.ndjson", i%3)), line(op, total, []string{"required", "submitted", "responded"}[i%3]))
			total++
			if i%10 == 0 {
				time.Sleep(3 * time.Millisecond)
			}
		}
		for _, c := range procs {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
		x := open(t, root)
		s, err := x.Status(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if s.Counts.Events != int64(total) || s.Private {
			t.Fatalf("round %d: %d events, want %d (private %t)", round, s.Counts.Events, total, s.Private)
		}
		mustBeSound(t, x)
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
	left, err := filepath.Glob(filepath.Join(root, "guard", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		if strings.Contains(f, "fsck") || strings.Contains(f, "unusable") {
			t.Errorf("left behind: %s", f)
		}
	}
}

// Two processes on one root, whose run files are appended to, cut, rotated,
// swapped, edited and removed, end up with what the files say.
func TestChurnUnderTwoIndexersLeavesWhatTheFilesSay(t *testing.T) {
	for seed := range uint64(8) / min(slowly, 4) {
		r := rand.New(rand.NewPCG(seed, 23))
		root, path := newRoot(t)
		xs := []*Indexer{open(t, root), open(t, root)}
		if seed%2 == 0 {
			watch(t, xs[0])
		}
		name := func() string { return path(fmt.Sprintf("%d.ndjson", r.IntN(4))) }
		for step := range 150 {
			file := name()
			info, err := os.Stat(file)
			switch k := r.IntN(10); {
			case err != nil || k < 5:
				for _, l := range toolCall(r, step, step) {
					appendTo(t, file, l)
				}
			case k == 5:
				_ = os.Truncate(file, r.Int64N(info.Size()+1))
			case k == 6:
				_ = os.Rename(file, name())
			case k == 7:
				_ = os.Remove(file)
			case k == 8 && info.Size() > 0:
				f, err := os.OpenFile(file, os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = f.WriteAt([]byte("Z"), r.Int64N(info.Size()))
				_ = f.Close()
			default:
				other := name()
				_ = os.Rename(file, file+".t")
				_ = os.Rename(other, file)
				_ = os.Rename(file+".t", other)
			}
			if r.IntN(2) == 0 {
				if err := xs[r.IntN(2)].Sync(context.Background()); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		}
		for _, x := range xs {
			mustBeSound(t, x)
			if s, err := x.Status(context.Background()); err != nil || s.Private {
				t.Errorf("seed %d: private index (%v)", seed, err)
			}
		}
		if left, _ := filepath.Glob(filepath.Join(root, "guard", "*.unusable")); len(left) > 0 {
			t.Errorf("seed %d: the index was given up: %v", seed, left)
		}
		if t.Failed() {
			return
		}
	}
}
