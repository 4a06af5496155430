package mcp

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
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
	x, err := ingest.Open(t.Context(), ingest.Options{Root: root, Now: func() time.Time { return time.UnixMilli(1796040000000) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
	return x, root
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
		if len(page.Operations) == 0 && pages > 100 {
			t.Fatal("the walk does not end")
		}
		cursor = page.NextCursor
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
					o.dst = append(append(o.dst, ','), receipt.Append(nil, 0, 0)[1:]...)
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
				if got, isError = ask(t, x, "explain", v.arguments("")); isError {
					t.Errorf("%s: %s", op, got.Content[0].Text)
				}
				got, isError = ask(t, x, "await_operation", v.arguments(`,"wait_seconds":0`))
				full := row["completeness"] == "full"
				if isError || bytes.Contains(got.Structured, []byte(`"timed_out":true`)) == full {
					t.Errorf("%s: %s %+v", op, got.Structured, got.Content)
				}
			}
		})
	}
}

func TestALongWalkOfLargeRowsSeesEachOperationOnce(t *testing.T) {
	root := t.TempDir()
	events := filepath.Join(root, "events")
	if err := os.MkdirAll(events, 0o755); err != nil {
		t.Fatal(err)
	}
	const n = 400
	var data bytes.Buffer
	pad := strings.Repeat("<\xed\xa0\x80", 100) // inflates on the wire; not UTF-8, so read as U+FFFD
	for i := range n {
		o := object{}
		o.text("event_id", "e"+string(rune('a'+i%26))+time.UnixMilli(int64(i)).UTC().Format("150405.000"))
		o.text("event_type", "x402.payment.required")
		o.text("occurred_at", time.UnixMilli(1796030000000+int64(i)).UTC().Format("2006-01-02T15:04:05.000Z"))
		o.text("context_id", pad+time.UnixMilli(int64(i)).UTC().Format("150405.000"))
		o.number("seq", int64(i))
		o.text("adapter", "trace-x402")
		o.text("role", "client")
		data.Write(o.close())
		data.WriteByte('\n')
	}
	if err := os.WriteFile(filepath.Join(events, "1796030000000.ndjson"), data.Bytes(), fs.FileMode(0o644)); err != nil {
		t.Fatal(err)
	}
	x, err := ingest.Open(t.Context(), ingest.Options{Root: root, Now: func() time.Time { return time.UnixMilli(1796040000000) }})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
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

func TestRefusalsOfTheRealIndexAreWorded(t *testing.T) {
	x, root := openRuns(t, "../testdata/runs/03-insufficient-funds")
	for arguments, want := range map[string]string{
		`{"run_id":"none","operation_id":"o"}`:                              "E_RUN_NOT_FOUND: ",
		`{"run_id":"latest","operation_id":"o"}`:                            "E_OPERATION_NOT_FOUND: ",
		`{"run_id":"latest","operation_id":"o","template":"no-such-one"}`:   "E_TEMPLATE_NOT_FOUND: ",
		`{"run_id":"latest","operation_id":"o","template":"../x402-buyer"}`: "E_INPUT: ",
	} {
		got, isError := ask(t, x, "get_receipt", arguments)
		if !isError || !strings.HasPrefix(got.Content[0].Text, want) || !strings.Contains(got.Content[0].Text, ". try: ") {
			t.Errorf("%s: %s", arguments, got.Content[0].Text)
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
