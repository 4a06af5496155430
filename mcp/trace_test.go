package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

func lists(page *ingest.Page, err error) *fake {
	return &fake{list: func(context.Context, ingest.Query) (*ingest.Page, error) { return page, err }}
}

func TestListOperationsPassesTheQuestionOn(t *testing.T) {
	for arguments, want := range map[string]ingest.Query{
		`{}`: {Limit: 50},
		`{"template":"my_own-1","run":"latest","completeness":"partial","counterparty":"https://a.example/x","settlement":"unknown","limit":7,"cursor":"abc"}`: {
			Template: "my_own-1", Run: "latest", Completeness: "partial", Counterparty: "https://a.example/x", Settlement: "unknown", Limit: 7, Cursor: "abc"},
		`{"run":"\ud83d\ude00\ud800","limit":1.0}`: {Run: "😀\xed\xa0\x80", Limit: 1},
		`{"limit":1e2}`: {Limit: 100},
		`{"cursor":"` + strings.Repeat("x", 2048) + `"}`: {Limit: 50, Cursor: strings.Repeat("x", 2048)},
	} {
		var got ingest.Query
		traces := &fake{list: func(_ context.Context, q ingest.Query) (*ingest.Page, error) {
			got = q
			return &ingest.Page{}, nil
		}}
		if r, isError := ask(t, traces, "list_operations", arguments); isError {
			t.Errorf("%.80s was refused: %+v", arguments, r.Content)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.80s:\n%s", arguments, diff)
		}
	}
}

func TestArgumentsMayBeLeftOut(t *testing.T) {
	c := connect(t, t.Context(), &fake{}, Options{}, shutdown)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_operations"}}`)
	c.in.Close()
	if m := c.must(); m.Error != nil || bytes.Contains(m.Result, []byte("isError")) {
		t.Errorf("the answer is %s %+v", m.Result, m.Error)
	}
}

func TestAPageHasTheMembersOfTheDesignInOrder(t *testing.T) {
	page := &ingest.Page{
		Template: "x402-buyer",
		Operations: []ingest.Row{
			{
				Ref: ingest.Ref{Run: "1796030997497", Operation: "op-1"}, Template: "x402-buyer", Completeness: "full",
				LastEventAt: "2026-11-30T09:29:57.502Z", Counterparty: "0x737143f2900a2b2c6e16a4c3a35ca92cd170b7d1", Amount: "10000",
				Asset: "eip155:84532/0x036cbd53842c5426634e7929541ec2318f3dcf7e", Settlement: "settled",
			},
			{
				Ref: ingest.Ref{Run: "1796030997497", Null: true}, Template: "x402-buyer", Completeness: "partial",
				MissingStages: []string{"payment", "settlement"}, Exceptions: 2, LastEventAt: "yesterday", Settlement: "none",
				Linked: &ingest.Ref{Run: "r2", Operation: "op\xed\xa0\x80"}, Blind: "the client never\x1b[31m hooks answers",
			},
		},
		RunsScanned:  3,
		NextCursor:   "on",
		DamagedRuns:  []ingest.Damage{{RunID: "bad", Line: 7, Offset: 100, Reason: "the line is not JSON"}},
		DamagedTotal: 21,
	}
	page.Operations = append(page.Operations, ingest.Row{
		Ref: ingest.Ref{Run: "r3", Operation: "op-3"}, Template: "x402-buyer", Completeness: "partial", Settlement: "settled",
		Linked: &ingest.Ref{Run: "r3", Unassigned: true},
	})
	const want = `{"operations":[` +
		`{"run_id":"1796030997497","operation_id":"op-1","template":"x402-buyer","completeness":"full","missing_stages":[],"exception_count":0,"last_event_at":"2026-11-30T09:29:57.502Z",` +
		`"counterparty":"0x737143f2900a2b2c6e16a4c3a35ca92cd170b7d1","amount":"10000","asset":"eip155:84532/0x036cbd53842c5426634e7929541ec2318f3dcf7e","settlement":"settled"},` +
		`{"run_id":"1796030997497","operation_id":null,"null_operation":true,"template":"x402-buyer","completeness":"partial","missing_stages":["payment","settlement"],"exception_count":2,"last_event_at":"yesterday",` +
		`"counterparty":null,"amount":null,"asset":null,"settlement":"none","linked_operation":{"run_id":"r2","operation_id":"op\ud800"},"blind":"the client never hooks answers"},` +
		`{"run_id":"r3","operation_id":"op-3","template":"x402-buyer","completeness":"partial","missing_stages":[],"exception_count":0,"last_event_at":"",` +
		`"counterparty":null,"amount":null,"asset":null,"settlement":"settled","linked_operation":{"run_id":"r3","operation_id":null,"unassigned":true}}],` +
		`"runs_scanned":3,"next_cursor":"on","damaged_runs":[{"run_id":"bad","line":7,"reason":"the line is not JSON"}],"damaged_total":21}`
	got, _ := ask(t, lists(page, nil), "list_operations", "{}")
	if diff := cmp.Diff(want, string(got.Structured)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, string(PageDocument(page, make([]*decision.Resolved, len(page.Operations))))); diff != "" {
		t.Errorf("what the command line prints:\n%s", diff)
	}
	const text = `3 operations of 3 runs, newest first: 1 full, 2 partial; settlement: 2 settled, 1 none; more follow with next_cursor
- "op-1" of run "1796030997497": full, settled, to "0x737143f2900a2b2c6e16a4c3a35ca92cd170b7d1", amount 10000 (atomic units) of "eip155:84532/0x036cbd53842c5426634e7929541ec2318f3dcf7e"
- the operation without an id of run "1796030997497": partial, none
- "op-3" of run "r3": partial, settled
next_cursor: on
21 damaged runs: operations may be missing; first "bad", the line is not JSON`
	if diff := cmp.Diff(text, got.Content[0].Text); diff != "" {
		t.Error(diff)
	}
}

func TestAnEmptyPageIsStillAnAnswer(t *testing.T) {
	got, _ := ask(t, lists(&ingest.Page{RunsScanned: 1}, nil), "list_operations", "{}")
	if want := `{"operations":[],"runs_scanned":1,"damaged_runs":[],"damaged_total":0}`; string(got.Structured) != want {
		t.Errorf("the answer is %s", got.Structured)
	}
	if got.Content[0].Text != "no operation found in 1 run" {
		t.Errorf("the text is %q", got.Content[0].Text)
	}
}

func TestAListOfNoRunsAsksForTheRecorder(t *testing.T) {
	const want = "no run files in this root: is the recorder wired to it, and is --dir right?"
	got, isError := ask(t, lists(&ingest.Page{}, nil), "list_operations", "{}")
	if isError || got.Content[0].Text != want {
		t.Errorf("the answer is %+v", got.Content)
	}
	// An entry that cannot be read is there all the same.
	got, _ = ask(t, lists(&ingest.Page{DamagedTotal: 1}, nil), "list_operations", "{}")
	if strings.Contains(got.Content[0].Text, "no run files") {
		t.Errorf("the text is %q", got.Content[0].Text)
	}
	root := t.TempDir()
	x := openRoot(t, root)
	if got, isError = ask(t, x, "list_operations", "{}"); isError || got.Content[0].Text != want {
		t.Errorf("of an empty root the answer is %+v", got.Content)
	}
	writeRun(t, root, "r", recorded("e", "o", "2026-01-01T00:00:00.000Z"))
	if got, _ = ask(t, x, "list_operations", "{}"); !strings.Contains(got.Content[0].Text, "\n- \"o\" of run \"r\": partial, none") {
		t.Errorf("of a run the text is %q", got.Content[0].Text)
	}
}

func TestTheTextOfAListHasTheRowsThatHaveRoom(t *testing.T) {
	page := &ingest.Page{RunsScanned: 1, NextCursor: "on", DamagedTotal: 1, DamagedRuns: []ingest.Damage{{RunID: "bad", Reason: "x"}}}
	for i := range 50 {
		page.Operations = append(page.Operations, ingest.Row{
			Ref: ingest.Ref{Run: "1796030997497", Operation: fmt.Sprintf("24accded-0711-4d3c-9df2-4b6a7ad01f%02d", i)}, Template: "x402-buyer", Completeness: "full",
			LastEventAt: "2026-11-30T09:29:57.502Z", Settlement: "settled", Counterparty: "0x737143f2900A2b2c6e16a4c3a35ca92cd170b7d1", Amount: "10000",
			Asset: "eip155:84532/0x036cbd53842c5426634e7929541ec2318f3dcf7e",
		})
	}
	got, _ := ask(t, lists(page, nil), "list_operations", "{}")
	if lines := strings.Split(got.Content[0].Text, "\n"); len(lines) != 53 || strings.Contains(got.Content[0].Text, "more in structuredContent") {
		t.Errorf("fifty ordinary rows make %d lines: %s", len(lines), got.Content[0].Text)
	}
	// Texts of strangers stay in their line, and what has no room is counted.
	page.Operations = page.Operations[:30]
	for i := range page.Operations {
		page.Operations[i].Run = "1\n- \"x\""
		page.Operations[i].Counterparty = strings.Repeat("<", 70)
	}
	got, _ = ask(t, lists(page, nil), "list_operations", "{}")
	lines := strings.Split(got.Content[0].Text, "\n")
	shown, more := 0, 0
	for _, line := range lines {
		if strings.HasPrefix(line, "- ") {
			shown++
			if !strings.HasSuffix(line, `/0x036cbd53842c5426634e7929541ec2318f3dcf7e"`) {
				t.Errorf("a row was cut: %s", line)
			}
		}
	}
	var answer struct{ Operations []any }
	if err := json.Unmarshal(got.Structured, &answer); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(lines[len(lines)-3], "... %d more in structuredContent", &more); err != nil || shown == 0 || shown+more != len(answer.Operations) {
		t.Errorf("%d rows are shown and %d counted of %d: %v\n%s", shown, more, len(answer.Operations), err, got.Content[0].Text)
	}
	if want := `1 damaged run: operations may be missing; first "bad", x`; lines[len(lines)-2] != "next_cursor: on" || lines[len(lines)-1] != want {
		t.Errorf("the text ends in %q", lines[len(lines)-2:])
	}
}

func TestAPageThatIsTooLargeHoldsFewerRows(t *testing.T) {
	for name, filler := range map[string]string{
		"plain texts":                  "x",
		"texts the library escapes":    "<",
		"texts of many bytes":          "😀",
		"control characters":           "\x01",
		"lone surrogates":              "\xed\xa0\x80",
		"texts of one byte in quarter": "\"",
	} {
		t.Run(name, func(t *testing.T) {
			page := &ingest.Page{RunsScanned: 1}
			for i := range 100 {
				page.Operations = append(page.Operations, ingest.Row{
					Ref:      ingest.Ref{Run: "r", Operation: fmt.Sprint(i, strings.Repeat(filler, i*7))},
					Template: "x402-buyer", Completeness: "full", LastEventAt: "t", Settlement: "none"})
			}
			got, isError := ask(t, lists(page, nil), "list_operations", `{"limit":100}`)
			if isError {
				t.Fatal(got.Content)
			}
			var answer struct {
				Operations []struct {
					OperationID string `json:"operation_id"`
					Truncated   bool
				}
			}
			if err := json.Unmarshal(got.Structured, &answer); err != nil {
				t.Fatal(err)
			}
			if n := len(answer.Operations); n == 0 || n == 100 {
				t.Errorf("%d rows", n)
			}
			if got.line < answerLimit/2 {
				t.Errorf("the answer has %d bytes though more rows would fit", got.line)
			}
			for i, row := range answer.Operations {
				if !strings.HasPrefix(row.OperationID, fmt.Sprint(i)) || row.Truncated {
					t.Errorf("row %d is %.30q", i, row.OperationID)
				}
			}
			if len(page.Operations) != 100 {
				t.Error("the page itself was changed")
			}
		})
	}
}

func TestARowThatIsTooLargeByItselfIsShortened(t *testing.T) {
	huge := strings.Repeat("\xed\xa0\x80<", 15_000)
	row := ingest.Row{
		Ref: ingest.Ref{Run: "r", Operation: huge}, Template: "x402-buyer", Completeness: "partial",
		LastEventAt: huge, Counterparty: huge, Amount: huge, Asset: huge, Settlement: "none", Linked: &ingest.Ref{Run: huge, Operation: huge}, Blind: huge,
	}
	for range 100 {
		row.MissingStages = append(row.MissingStages, huge[:4000])
	}
	got, isError := ask(t, lists(&ingest.Page{Operations: []ingest.Row{row, row}, RunsScanned: 1}, nil), "list_operations", "{}")
	if isError {
		t.Fatal(got.Content)
	}
	if !bytes.Contains(got.Structured, []byte(`"truncated":true`)) || bytes.Count(got.Structured, []byte(`"completeness"`)) != 1 {
		t.Errorf("the answer is %.300s", got.Structured)
	}
	if !json.Valid(PageDocument(&ingest.Page{Operations: []ingest.Row{row}}, []*decision.Resolved{nil})) {
		t.Error("the whole document is not JSON")
	}
}

func TestARowThatIsTooLargeStillFitsBesideAllDamageAndTheLongestCursor(t *testing.T) {
	for name, filler := range map[string]string{"texts the library escapes": "<", "control characters": "\x01", "lone surrogates": "\xed\xa0\x80", "line separators": "\u2028"} {
		huge := strings.Repeat(filler, 20_000)
		row := ingest.Row{
			Ref: ingest.Ref{Run: huge[:250], Operation: huge}, Template: huge, Completeness: "partial", LastEventAt: huge, Counterparty: huge,
			Amount: huge, Asset: huge, Settlement: "pending", Linked: &ingest.Ref{Run: huge, Unassigned: true}, Blind: huge,
		}
		page := &ingest.Page{NextCursor: strings.Repeat("c", 1024), Operations: []ingest.Row{row}, RunsScanned: 1 << 50, DamagedTotal: 1 << 50}
		for range 100 {
			page.Operations[0].MissingStages = append(page.Operations[0].MissingStages, huge[:400])
		}
		for range 20 {
			page.DamagedRuns = append(page.DamagedRuns, ingest.Damage{RunID: huge[:250], Line: 1 << 50, Reason: huge})
		}
		got, isError := ask(t, lists(page, nil), "list_operations", "{}") // measures the answer
		if isError || !bytes.Contains(got.Structured, []byte(`"truncated":true`)) || !bytes.Contains(got.Structured, []byte(`"damaged_runs":[{`)) {
			t.Errorf("%s: %+v", name, got.Content)
		}
	}
}

func TestNoCursorCanMakeAnAnswerTooLarge(t *testing.T) {
	page := &ingest.Page{Operations: []ingest.Row{{Ref: ingest.Ref{Run: "r", Operation: "o"}, Template: "t", Completeness: "full", Settlement: "none"}}, NextCursor: strings.Repeat("x", 50_000)}
	got, isError := ask(t, lists(page, nil), "list_operations", "{}")
	if !isError || !strings.HasPrefix(got.Content[0].Text, "E_INTERNAL: ") {
		t.Errorf("the answer is %+v", got.Content)
	}
}

func TestDamageCannotCrowdTheRowsOut(t *testing.T) {
	page := &ingest.Page{RunsScanned: 40, DamagedTotal: 40}
	for range 40 {
		page.DamagedRuns = append(page.DamagedRuns, ingest.Damage{RunID: strings.Repeat("\xed\xa0\x80", 255), Reason: strings.Repeat("<", 500)})
	}
	for i := range 20 {
		page.Operations = append(page.Operations, ingest.Row{Ref: ingest.Ref{Run: "r", Operation: fmt.Sprint(i)}, Template: "x402-buyer", Completeness: "full", Settlement: "none"})
	}
	got, _ := ask(t, lists(page, nil), "list_operations", "{}")
	var answer struct {
		Operations  []any
		DamagedRuns []any `json:"damaged_runs"`
		Total       int   `json:"damaged_total"`
	}
	if err := json.Unmarshal(got.Structured, &answer); err != nil {
		t.Fatal(err)
	}
	if len(answer.Operations) != 20 || len(answer.DamagedRuns) == 0 || len(answer.DamagedRuns) > 20 || answer.Total != 40 {
		t.Errorf("%d rows, %d of %d damaged runs", len(answer.Operations), len(answer.DamagedRuns), answer.Total)
	}
}

func TestWhatCannotBeAnsweredSaysWhyAndWhatToDo(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"no runs":               {errcode.New(errcode.NoRuns, "check the recorder", "there is no run"), "E_NO_RUNS: there is no run. try: check the recorder"},
		"wrapped":               {fmt.Errorf("list: %w", errcode.New(errcode.TemplateNotFound, "", "there is no template %q", "x")), `E_TEMPLATE_NOT_FOUND: there is no template "x"`},
		"hostile text":          {errcode.New(errcode.RunNotFound, "look\x1b]0;t\x07 again", "there is no run %s", "a\u202eb\nc"), "E_RUN_NOT_FOUND: there is no run ab c. try: look again"},
		"an unexpected error":   {errors.New("open /home/x/.trace: boom"), "E_INTERNAL: the server failed while answering. try: call again, and report the server's log if it fails again"},
		"a coded internal one":  {errcode.Wrap(errors.New("open /home/x"), errcode.Internal, "", "x"), "E_INTERNAL: the server failed while answering. try: call again, and report the server's log if it fails again"},
		"a deadline":            {fmt.Errorf("sync: %w", context.DeadlineExceeded), "E_INTERNAL: the call was stopped before it was answered. try: call again"},
		"a message of any size": {errcode.New(errcode.RunNotFound, "look again", "%s", strings.Repeat("x", 100_000)), "E_RUN_NOT_FOUND: " + strings.Repeat("x", 1999) + "…. try: look again"},
	} {
		traces := &fake{
			list:    func(context.Context, ingest.Query) (*ingest.Page, error) { return nil, test.err },
			receipt: func(context.Context, ingest.Ref, string) (*ingest.Receipt, error) { return nil, test.err },
			await: func(context.Context, ingest.Ref, string, time.Duration) (*ingest.Await, error) {
				return nil, test.err
			},
		}
		for tool, arguments := range map[string]string{
			"list_operations": `{}`, "get_receipt": `{"run_id":"r","operation_id":"o"}`, "explain": `{"run_id":"r","operation_id":"o"}`,
			"await_operation": `{"run_id":"r","operation_id":"o","wait_seconds":0}`,
		} {
			got, isError := ask(t, traces, tool, arguments)
			if !isError || len(got.Content) != 1 || got.Content[0].Text != test.want {
				t.Errorf("%s, %s: %v %+v", name, tool, isError, got.Content)
			}
		}
	}
}

func TestAwaitOperationPassesTheQuestionOn(t *testing.T) {
	traces := &fake{await: func(_ context.Context, r ingest.Ref, template string, wait time.Duration) (*ingest.Await, error) {
		if r != (ingest.Ref{Run: "r", Operation: "o"}) || template != "mine" || wait != 55*time.Second {
			t.Errorf("asked for %+v by %q in %v", r, template, wait)
		}
		return &ingest.Await{Ref: r, Recorded: true, Template: "my own", Completeness: "partial", Settlement: "pending", TimedOut: true}, nil
	}}
	got, _ := ask(t, traces, "await_operation", `{"run_id":"r","operation_id":"o","template":"mine","wait_seconds":55}`)
	if want := `{"run_id":"r","operation_id":"o","recorded":true,"template":"my own","completeness":"partial","settlement":"pending","timed_out":true}`; string(got.Structured) != want {
		t.Errorf("the answer is %s", got.Structured)
	}
	if want := `operation "o" of run "r" is still partial by my own; settlement pending`; got.Content[0].Text != want {
		t.Errorf("the text is %q", got.Content[0].Text)
	}
}

// TestAnOperationThatIsNotOnRecordIsNotSaidToBeUnpaid: an agent that mistypes an
// id must not take the answer for leave to pay again.
func TestAnOperationThatIsNotOnRecordIsNotSaidToBeUnpaid(t *testing.T) {
	root := t.TempDir()
	writeRun(t, root, "r", recorded("e", "o", "2026-01-01T00:00:00.000Z"))
	x := openRoot(t, root)
	got, isError := ask(t, x, "await_operation", `{"run_id":"r","operation_id":"0","wait_seconds":0}`)
	if want := `{"run_id":"r","operation_id":"0","recorded":false,"template":"x402-buyer","completeness":"partial","settlement":"unknown","timed_out":true}`; isError || string(got.Structured) != want {
		t.Errorf("the answer is %s", got.Structured)
	}
	if want := `operation "0": no operation of that id is on record in run "r" (yet); check the id with list_operations. That does not mean that nothing was paid: settlement unknown`; got.Content[0].Text != want {
		t.Errorf("the text is %q", got.Content[0].Text)
	}
	got, _ = ask(t, x, "await_operation", `{"run_id":"r","operation_id":"o","wait_seconds":0}`)
	if !bytes.Contains(got.Structured, []byte(`"recorded":true,`)) || !bytes.Contains(got.Structured, []byte(`"settlement":"none"`)) || strings.Contains(got.Content[0].Text, "on record") {
		t.Errorf("of one on record the answer is %s %+v", got.Structured, got.Content)
	}
}

func TestAWaitEndsWhenTheMoneyIsKnown(t *testing.T) {
	for _, state := range []string{"settled", "failed"} {
		traces := &fake{await: func(_ context.Context, r ingest.Ref, _ string, _ time.Duration) (*ingest.Await, error) {
			return &ingest.Await{Ref: r, Recorded: true, Template: "x402-buyer", Completeness: "partial", Settlement: state}, nil
		}}
		got, _ := ask(t, traces, "await_operation", `{"run_id":"r","operation_id":"o","wait_seconds":55}`)
		if want := `operation "o" of run "r" is partial by x402-buyer; settlement ` + state; got.Content[0].Text != want || !bytes.Contains(got.Structured, []byte(`"timed_out":false`)) {
			t.Errorf("the answer is %s %q", got.Structured, got.Content[0].Text)
		}
	}
	s, err := build(&fake{}, Options{}, overStdio)
	if err != nil {
		t.Fatal(err)
	}
	if says := s.mcp.GetTool("await_operation").Tool.Description; !strings.Contains(says, "(it is full, or its payment is settled or failed)") || !strings.Contains(says, "recorded: false") {
		t.Errorf("agents are told: %s", says)
	}
}
