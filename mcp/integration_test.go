package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest"
)

var _ Traces = (*ingest.Indexer)(nil)

// openRuns copies a tree of recorded runs to a root of its own and indexes it.
func openRuns(t *testing.T, from string) (*ingest.Indexer, string) {
	t.Helper()
	root := t.TempDir()
	if err := os.CopyFS(filepath.Join(root, "events"), os.DirFS(filepath.Join(from, "events"))); err != nil {
		t.Fatal(err)
	}
	return openRoot(t, root), root
}

// rows walks a whole list.
func rows(t *testing.T, x Traces, arguments string) (all []map[string]any, pages int) {
	t.Helper()
	cursor := ""
	for {
		args := "{" + arguments
		if cursor != "" {
			if arguments != "" {
				args += ","
			}
			args += `"cursor":` + string(jsjson.AppendString(nil, []byte(cursor)))
		}
		got, isError := ask(t, x, "list_operations", args+"}")
		if isError {
			t.Fatalf("page %d: %s", pages, got.Content[0].Text)
		}
		var page struct {
			Operations []map[string]any
			NextCursor string `json:"next_cursor"`
		}
		if err := json.Unmarshal(got.Structured, &page); err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Operations...)
		if pages++; page.NextCursor == "" {
			return all, pages
		}
		if pages > 1000 {
			t.Fatal("the walk does not end")
		}
		if cursor = page.NextCursor; len(cursor) > 1024 {
			t.Errorf("a cursor has %d bytes", len(cursor))
		}
	}
}

// TestRecordedRunsAreServedWhole asks for every operation of the recorded runs
// and compares each receipt with the one of the vectors.
func TestRecordedRunsAreServedWhole(t *testing.T) {
	dirs, err := filepath.Glob("../testdata/runs/*/expected/x402-buyer.json")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no recorded runs: %v", err)
	}
	for _, expected := range dirs {
		dir := filepath.Dir(filepath.Dir(expected))
		t.Run(filepath.Base(dir), func(t *testing.T) {
			x, _ := openRuns(t, dir)
			source, err := os.ReadFile(expected)
			if err != nil {
				t.Fatal(err)
			}
			var doc jsjson.Doc
			if err := doc.Parse(source); err != nil {
				t.Fatal(err)
			}
			want := map[string]jsjson.Node{}
			for run := range doc.Root().Get("runs").Elements() {
				id := string(run.Get("run").Text())
				for r := range run.Get("receipts").Elements() {
					want[id+"/"+string(r.Get("operation").Get("operation_id").Text())] = r
				}
			}
			all, _ := rows(t, x, `"limit":7`)
			if len(all) != len(want) {
				t.Errorf("%d operations are listed, want %d", len(all), len(want))
			}
			for _, row := range all {
				run, op := row["run_id"].(string), row["operation_id"].(string)
				receipt, ok := want[run+"/"+op]
				if !ok {
					t.Errorf("%s/%s is listed twice, or is none", run, op)
					continue
				}
				delete(want, run+"/"+op)
				if row["completeness"] != string(receipt.Get("completeness").Text()) {
					t.Errorf("%s is listed as %v", op, row["completeness"])
				}
				ref := ingest.Ref{Run: run, Operation: op}
				v := vector{receipt: &ingest.Receipt{Ref: ref}}
				got, isError := ask(t, x, "get_receipt", v.arguments(""))
				if isError {
					if !strings.HasPrefix(got.Content[0].Text, "E_RECEIPT_TOO_LARGE") {
						t.Errorf("%s: %s", op, got.Content[0].Text)
					}
				} else {
					o := object{}
					o.text("run_id", run)
					o.dst = append(append(o.dst, ','), bytes.Trim(receipt.Append(nil, 0, 0), "{}")...)
					o.text("settlement", row["settlement"].(string))
					o.dst = o.close()
					if diff := cmp.Diff(asSent(o.dst), string(got.Structured)); diff != "" {
						t.Errorf("%s: %s", op, diff)
					}
				}
				c := connectTo(t, t.Context(), serviceOf(t, x), 0, shutdown)
				c.send(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"` + resourceURI(ref) + `"}}`)
				c.in.Close()
				var resource struct{ Contents []struct{ Text string } }
				if err := json.Unmarshal(c.must().Result, &resource); err != nil || len(resource.Contents) != 1 {
					t.Fatal(err)
				}
				if file := string(receipt.Append(nil, 2, 0)) + "\n"; file != resource.Contents[0].Text {
					t.Errorf("%s: the resource is %s", op, cmp.Diff(file, resource.Contents[0].Text))
				}
				got, isError = ask(t, x, "explain", v.arguments(""))
				if isError || !strings.HasPrefix(got.Content[0].Text, "Conclusion: ") || !bytes.Contains(got.Structured, []byte(`"settlement":"`+row["settlement"].(string)+`"`)) {
					t.Errorf("%s: %s", op, got.Content[0].Text)
				}
				got, isError = ask(t, x, "await_operation", v.arguments(`,"wait_seconds":0`))
				known := row["completeness"] == "full" || row["settlement"] == "settled" || row["settlement"] == "failed"
				if isError || bytes.Contains(got.Structured, []byte(`"timed_out":true`)) == known || !bytes.Contains(got.Structured, []byte(`"recorded":true`)) {
					t.Errorf("%s: %s %+v", op, got.Structured, got.Content)
				}
			}
		})
	}
}

func TestALongWalkOfLargeRowsSeesEachOperationOnce(t *testing.T) {
	root := t.TempDir()
	const n = 400
	var lines []object
	pad := strings.Repeat("<\xed\xa0\x80", 100) // inflates on the wire; not UTF-8, so read as U+FFFD
	for i := range n {
		at := time.UnixMilli(1796030000000 + int64(i)).UTC().Format("2006-01-02T15:04:05.000Z")
		lines = append(lines, recorded(fmt.Sprint("e", i), fmt.Sprint(pad, i), at))
	}
	writeRun(t, root, "1796030000000", lines...)
	x := openRoot(t, root)
	all, pages := rows(t, x, `"limit":100`)
	seen := map[any]bool{}
	for _, row := range all {
		seen[row["operation_id"]] = true
	}
	if len(all) != n || len(seen) != n {
		t.Errorf("%d rows, %d operations, want %d", len(all), len(seen), n)
	}
	if pages < 6 {
		t.Errorf("%d pages: the rows were meant to be too large for pages of 100", pages)
	}
}

// writeRun records a run of these lines.
func writeRun(t *testing.T, root, run string, lines ...object) {
	t.Helper()
	events := filepath.Join(root, "events")
	if err := os.MkdirAll(events, 0o755); err != nil {
		t.Fatal(err)
	}
	var data bytes.Buffer
	for i := range lines {
		data.Write(lines[i].close())
		data.WriteByte('\n')
	}
	if err := os.WriteFile(filepath.Join(events, run+".ndjson"), data.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func recorded(id, context, at string) (o object) {
	o.text("event_id", id)
	o.text("event_type", "x402.payment.required")
	o.text("occurred_at", at)
	o.text("context_id", context)
	o.number("seq", 1)
	o.text("adapter", "trace-x402")
	o.text("role", "client")
	return o
}

func openRoot(t *testing.T, root string) *ingest.Indexer {
	t.Helper()
	x, err := ingest.Open(t.Context(), ingest.Options{Root: root, Now: func() time.Time { return time.UnixMilli(1796040000000) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// TestARunWhoseIDReadsLikeAWordIsReachedByIt: only a list takes words for runs,
// so an address always leads to the operation it was made for.
func TestARunWhoseIDReadsLikeAWordIsReachedByIt(t *testing.T) {
	root := t.TempDir()
	runs := []string{"latest", "zzz", "run:zzz", "run:latest", "run:run:zzz"}
	for _, run := range runs {
		writeRun(t, root, run, recorded("event of "+run, "op", "2026-01-01T00:00:00.000Z"))
	}
	x := openRoot(t, root)
	s := serviceOf(t, x)

	c := connectTo(t, t.Context(), s, 0, shutdown)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"resources/list"}`)
	c.in.Close()
	var list struct{ Resources []struct{ URI string } }
	if err := json.Unmarshal(c.must().Result, &list); err != nil || len(list.Resources) != len(runs) {
		t.Fatalf("%+v (%v)", list, err)
	}
	reached := map[string]bool{}
	for _, resource := range list.Resources {
		ref, err := parseResource(resource.URI)
		if err != nil {
			t.Fatal(err)
		}
		reached[ref.Run] = true
		c := connectTo(t, t.Context(), s, 0, shutdown)
		c.send(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"` + resource.URI + `"}}`)
		c.in.Close()
		m := c.must()
		var result struct{ Contents []struct{ Text string } }
		if err := json.Unmarshal(m.Result, &result); err != nil || len(result.Contents) != 1 {
			t.Fatalf("%s: %s %+v", resource.URI, m.Result, m.Error)
		}
		type receipt struct {
			RunID  string `json:"run_id"`
			Events []struct {
				ID string `json:"event_id"`
			}
		}
		var got receipt
		if err := json.Unmarshal([]byte(result.Contents[0].Text), &got); err != nil || len(got.Events) != 1 || got.Events[0].ID != "event of "+ref.Run {
			t.Errorf("%s holds %+v (%v)", resource.URI, got, err)
		}

		v := vector{receipt: &ingest.Receipt{Ref: ref}}
		answer, _ := ask(t, x, "get_receipt", v.arguments(""))
		got = receipt{}
		if err := json.Unmarshal(answer.Structured, &got); err != nil || got.RunID != ref.Run || len(got.Events) != 1 || got.Events[0].ID != "event of "+ref.Run {
			t.Errorf("get_receipt of run %s: %s %+v", ref.Run, answer.Structured, answer.Content)
		}
		for tool, extra := range map[string]string{"explain": "", "await_operation": `,"wait_seconds":0`} {
			answer, _ := ask(t, x, tool, v.arguments(extra))
			if got := (receipt{}); json.Unmarshal(answer.Structured, &got) != nil || got.RunID != ref.Run {
				t.Errorf("%s of run %s: %s %+v", tool, ref.Run, answer.Structured, answer.Content)
			}
		}
	}
	if len(reached) != len(runs) {
		t.Errorf("listed are the runs %v", reached)
	}
	// An id that is no run's stays one that is not there.
	if answer, isError := ask(t, x, "get_receipt", `{"run_id":"run:run:latest","operation_id":"op"}`); !isError || !strings.HasPrefix(answer.Content[0].Text, "E_RUN_NOT_FOUND: ") {
		t.Errorf("the answer is %s %+v", answer.Structured, answer.Content)
	}
}

// TestAnAnswerOutsideAnyOperationIsShownWithItsPayment: some answers are recorded
// without a context (trace contract, section 12.8).
func TestAnAnswerOutsideAnyOperationIsShownWithItsPayment(t *testing.T) {
	const (
		terms  = `"x402_version":2,"resource":{"url":"https://s.example/x"},"requirements":{"scheme":"exact","network":"eip155:8453","asset":"0x036cbd53842c5426634e7929541ec2318f3dcf7e","amount":"100","pay_to":"0x737143f2900a2b2c6e16a4c3a35ca92cd170b7d1","max_timeout_seconds":60}`
		paid   = `{"event_id":"e1","event_type":"x402.payment.submitted","occurred_at":"2026-01-01T00:00:00.000Z","context_id":"o","seq":1,"adapter":"trace-x402","role":"client","payload":{` + terms + `}}` + "\n"
		answer = `{"event_id":"e2","event_type":"x402.payment.responded","occurred_at":"2026-01-01T00:00:01.000Z","seq":2,"adapter":"trace-x402","role":"client","payload":{` + terms + `,"settle":{"success":true,"network":"eip155:8453","transaction":"0x1"}}}` + "\n"
	)
	root := t.TempDir()
	writeRun(t, root, "r")
	if err := os.WriteFile(filepath.Join(root, "events", "r.ndjson"), []byte(paid+answer), 0o644); err != nil {
		t.Fatal(err)
	}
	x := openRoot(t, root)
	got, _ := ask(t, x, "list_operations", "{}")
	if !bytes.Contains(got.Structured, []byte(`"settlement":"settled","linked_operation":{"run_id":"r","operation_id":null,"unassigned":true}`)) {
		t.Errorf("the list is %s", got.Structured)
	}
	got, _ = ask(t, x, "explain", `{"run_id":"r","operation_id":"o"}`)
	for _, want := range []string{
		`"explanation":"Conclusion: the money is settled: a successful settlement is on record. An answer that was recorded elsewhere, ` +
			`outside any operation, in run \"r\", belongs to the payment of this operation. It reports a settlement.\n`,
		`\n\nFrom this receipt alone:\nOperation \"o\" `, `no answer about its settlement is on record`,
	} {
		if !bytes.Contains(got.Structured, []byte(want)) {
			t.Errorf("the explanation lacks %q: %s", want, got.Structured)
		}
	}
}

func TestOperationsWithHugeIDsAreAllReached(t *testing.T) {
	root := t.TempDir()
	var lines []object
	var want []string
	for i := range 12 {
		head := fmt.Sprintf("%02d-", i)
		want = append(want, head)
		lines = append(lines, recorded(fmt.Sprint("e", i), head+strings.Repeat("<", 60_000), "2026-01-01T00:00:00.000Z"))
		// Ids that are the same until far behind what is shown.
		lines = append(lines, recorded(fmt.Sprint("f", i), "same"+strings.Repeat("x", 60_000)+head, "2026-01-01T00:00:00.000Z"))
		want = append(want, "same")
	}
	writeRun(t, root, "r", lines...)
	x := openRoot(t, root)
	for _, limit := range []string{"", `"limit":100`, `"limit":1`} {
		all, pages := rows(t, x, limit)
		var got []string
		for _, row := range all {
			id := row["operation_id"].(string)
			if row["truncated"] != true || len(id) > 1000 {
				t.Errorf("%.40s is not said to be cut", id)
			}
			if id, _, _ = strings.Cut(id, "<"); strings.HasPrefix(id, "same") {
				id = "same"
			}
			got = append(got, id)
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in %d pages: %s", pages, diff)
		}
	}
}

// The newest run holds nothing that can be read, and the answer is about it all the
// same: from the run before, all would look sound.
func TestADamagedLatestRunIsNotPassedOver(t *testing.T) {
	root := t.TempDir()
	writeRun(t, root, "1", recorded("e1", "op", "2026-01-01T00:00:00.000Z"))
	if err := os.WriteFile(filepath.Join(root, "events", "2.ndjson"), []byte("what\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	x := openRoot(t, root)
	got, isError := ask(t, x, "list_operations", `{"run":"latest"}`)
	want := `{"operations":[],"runs_scanned":1,"damaged_runs":[{"run_id":"2","line":1,"reason":"the line is not one JSON value"}],"damaged_total":1}`
	if isError || string(got.Structured) != want || !strings.Contains(got.Content[0].Text, `1 damaged run: operations may be missing; first "2"`) {
		t.Errorf("%s\n%s", got.Structured, got.Content[0].Text)
	}
	got, isError = ask(t, x, "get_receipt", `{"run_id":"2","operation_id":"op"}`)
	if !isError || !strings.HasPrefix(got.Content[0].Text, `E_OPERATION_NOT_FOUND: run "2" is damaged, and nothing of it that can be read has operation "op"`) {
		t.Errorf("%s", got.Content[0].Text)
	}
}

func TestRefusalsOfTheRealIndexAreWorded(t *testing.T) {
	x, root := openRuns(t, "../testdata/runs/03-insufficient-funds")
	all, _ := rows(t, x, "")
	run := all[0]["run_id"].(string)
	for arguments, want := range map[string]string{
		`{"run_id":"none","operation_id":"o"}`:                                   "E_RUN_NOT_FOUND: ",
		`{"run_id":"latest","operation_id":"o"}`:                                 "E_RUN_NOT_FOUND: ",
		`{"run_id":"run:` + run + `","operation_id":"o"}`:                        "E_RUN_NOT_FOUND: ",
		`{"run_id":"` + run + `","operation_id":"o"}`:                            "E_OPERATION_NOT_FOUND: ",
		`{"run_id":"` + run + `","operation_id":"o","template":"no-such-one"}`:   "E_TEMPLATE_NOT_FOUND: ",
		`{"run_id":"` + run + `","operation_id":"o","template":"../x402-buyer"}`: "E_INPUT: ",
	} {
		got, isError := ask(t, x, "get_receipt", arguments)
		if !isError || !strings.HasPrefix(got.Content[0].Text, want) || !strings.Contains(got.Content[0].Text, ". try: ") {
			t.Errorf("%s: %s", arguments, got.Content[0].Text)
		}
		if _, hint, _ := strings.Cut(got.Content[0].Text, ". try: "); strings.Contains(hint, "latest") {
			t.Errorf("%s: the hint leads back: %s", arguments, hint)
		}
		if strings.Contains(got.Content[0].Text, root) {
			t.Errorf("%s: the refusal shows a path: %s", arguments, got.Content[0].Text)
		}
	}
	got, isError := ask(t, x, "list_operations", `{"cursor":"junk"}`)
	if !isError || !strings.HasPrefix(got.Content[0].Text, "E_INPUT: ") {
		t.Errorf("a junk cursor: %s", got.Content[0].Text)
	}
}

func TestAWaitEndsWhenTheOperationBecomesFull(t *testing.T) {
	x, root := openRuns(t, "../testdata/runs/01-four-sellers-settled")
	paths, err := filepath.Glob(filepath.Join(root, "events", "*.ndjson"))
	if err != nil || len(paths) == 0 {
		t.Fatal(err)
	}
	path := paths[0]
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// The run as it stood before its last settlement was recorded.
	at := bytes.LastIndex(data, []byte(`"x402.payment.responded"`))
	at = bytes.LastIndexByte(data[:at], '\n') + 1
	var doc jsjson.Doc
	line, _, _ := bytes.Cut(data[at:], []byte("\n"))
	if err := doc.Parse(line); err != nil {
		t.Fatal(err)
	}
	ref := ingest.Ref{Run: strings.TrimSuffix(filepath.Base(path), ".ndjson"), Operation: string(doc.Root().Get("context_id").Text())}
	if err := os.WriteFile(path, data[:at], 0o644); err != nil {
		t.Fatal(err)
	}
	v := vector{receipt: &ingest.Receipt{Ref: ref}}
	if got, _ := ask(t, x, "await_operation", v.arguments(`,"wait_seconds":0`)); !bytes.Contains(got.Structured, []byte(`"completeness":"partial"`)) {
		t.Fatalf("before the settlement: %s %+v", got.Structured, got.Content)
	}

	c := connectTo(t, t.Context(), serviceOf(t, x), 0, shutdown)
	c.send(call(1, "await_operation", v.arguments(`,"wait_seconds":55`)))
	c.read(1)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(data[at:]); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	c.in.Close()
	m := c.must()
	for _, want := range []string{`"completeness":"full"`, `"settlement":"settled"`, `"timed_out":false`} {
		if !bytes.Contains(m.Result, []byte(want)) {
			t.Errorf("after the settlement: %s %+v", m.Result, m.Error)
		}
	}
}
