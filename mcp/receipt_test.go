package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/ingest"
)

const parity = "../testdata/parity"

// vector is one receipt of the parity cases.
type vector struct {
	name    string
	receipt *ingest.Receipt
	file    []byte // as a receipt file holds it
}

// vectors assembles every case that is not refused.
func vectors(t *testing.T) []vector {
	t.Helper()
	if len(assembled) == 0 {
		assembled = assembleVectors(t)
	}
	return assembled
}

var assembled []vector

func assembleVectors(t *testing.T) (all []vector) {
	t.Helper()
	cases, err := filepath.Glob(parity + "/*/expected.json")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no parity cases: %v", err)
	}
	for _, expected := range cases {
		dir := filepath.Dir(expected)
		path := filepath.Join(dir, "template.yaml")
		if name, err := os.ReadFile(filepath.Join(dir, "template")); err == nil {
			path = filepath.Join(parity, "templates", strings.TrimSpace(string(name))+".yaml")
		}
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		template, _, err := assemble.ParseTemplate(source)
		if err != nil {
			t.Fatal(err)
		}
		runs, err := filepath.Glob(dir + "/events/*.ndjson")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range runs {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			run, err := assemble.Assemble(template, data)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			id := strings.TrimSuffix(filepath.Base(path), ".ndjson")
			for _, r := range run.Receipts {
				if r.Null() {
					continue
				}
				file := assemble.FileName([]byte(id), r.OperationID(), false)
				golden, err := os.ReadFile(filepath.Join(dir, "receipts", file))
				if err != nil {
					continue // names too long for a file
				}
				all = append(all, vector{
					name: filepath.Base(dir) + "/" + file,
					receipt: &ingest.Receipt{
						Receipt: r, Ref: ingest.Ref{Run: id, Operation: string(r.OperationID())},
						Template: &assemble.Resolved{Template: template}, Settlement: "unknown",
					},
					file: golden,
				})
			}
		}
	}
	return all
}

func (v vector) traces() *fake {
	return &fake{receipt: func(context.Context, ingest.Ref, string) (*ingest.Receipt, error) { return v.receipt, nil }}
}

// arguments addresses the vector the way a client would.
func (v vector) arguments(extra string) string {
	o := object{}
	o.operation(v.receipt.Ref, whole)
	return strings.TrimSuffix(string(o.close()), "}") + extra + "}"
}

// asSent is what the library makes of a document: the same, with < > & escaped.
func asSent(doc []byte) string {
	var b bytes.Buffer
	json.HTMLEscape(&b, doc)
	return b.String()
}

func TestAReceiptHasItsMembersInContractOrderAfterTheRun(t *testing.T) {
	var served *ingest.Receipt
	traces := &fake{receipt: func(context.Context, ingest.Ref, string) (*ingest.Receipt, error) { return served, nil }}
	for _, v := range vectors(t) {
		if strings.HasPrefix(v.name, "loose-missing-event-id/") {
			continue // such lines are faults here and reach no receipt (trace contract, section 3)
		}
		t.Run(v.name, func(t *testing.T) {
			served = v.receipt
			var compact bytes.Buffer
			if err := json.Compact(&compact, v.file); err != nil {
				t.Fatal(err)
			}
			head := object{}
			head.text("run_id", v.receipt.Run)
			want := string(head.dst) + "," + strings.TrimSuffix(compact.String()[1:], "}") + `,"settlement":"unknown"}`
			got, isError := ask(t, traces, "get_receipt", v.arguments(""))
			if isError {
				t.Errorf("a receipt of %d bytes: %s", len(want), got.Content[0].Text)
			} else if diff := cmp.Diff(asSent([]byte(want)), string(got.Structured)); diff != "" {
				t.Error(diff)
			}

			// Without its events it says how many there were.
			var all struct{ Events []json.RawMessage }
			if err := json.Unmarshal(v.file, &all); err != nil {
				t.Fatal(err)
			}
			got, _ = ask(t, traces, "get_receipt", v.arguments(`,"events":false`))
			without := object{dst: []byte(want[:indexOfEvents(t, want)]), inner: true}
			without.text("settlement", "unknown")
			without.number("events_omitted", int64(len(all.Events)))
			if diff := cmp.Diff(asSent(without.close()), string(got.Structured)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// indexOfEvents is where the member events of a document begins.
func indexOfEvents(t *testing.T, doc string) int {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(doc))
	if _, err := decoder.Token(); err != nil {
		t.Fatal(err)
	}
	for decoder.More() {
		at := int(decoder.InputOffset())
		key, err := decoder.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			t.Fatal(err)
		}
		if key == "events" {
			return at
		}
	}
	t.Fatal("there is no member events")
	return 0
}

func TestAResourceIsTheReceiptFileByteForByte(t *testing.T) {
	var asked ingest.Ref
	var served *ingest.Receipt
	traces := &fake{receipt: func(_ context.Context, r ingest.Ref, template string) (*ingest.Receipt, error) {
		asked = r
		if template != "" {
			t.Errorf("judged by %q", template)
		}
		return served, nil
	}}
	for _, v := range vectors(t) {
		t.Run(v.name, func(t *testing.T) {
			served = v.receipt
			c := connectTo(t, t.Context(), serviceOf(t, traces), 0, shutdown)
			c.send(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"` + resourceURI(v.receipt.Ref) + `"}}`)
			c.in.Close()
			m := c.must()
			var result struct {
				Contents []struct {
					URI, MIMEType, Text string
					Meta                map[string]any `json:"_meta"`
				}
			}
			if err := json.Unmarshal(m.Result, &result); err != nil || len(result.Contents) != 1 {
				t.Fatalf("%v %s %+v", err, m.Result, m.Error)
			}
			got := result.Contents[0]
			if got.Text != string(v.file) {
				t.Error(cmp.Diff(string(v.file), got.Text))
			}
			if asked != v.receipt.Ref || got.URI != resourceURI(v.receipt.Ref) || got.MIMEType != "application/json" || got.Meta != nil {
				t.Errorf("asked for %+v, the resource is %s, %s, %v", asked, got.URI, got.MIMEType, got.Meta)
			}
		})
	}
}

// one is the receipt of a case.
func one(t *testing.T, name string) vector {
	t.Helper()
	for _, v := range vectors(t) {
		if v.name == name {
			own := *v.receipt
			v.receipt = &own
			return v
		}
	}
	t.Fatalf("there is no %s", name)
	return vector{}
}

const open = "buyer-open-payment/1777885300000~op-open.json"

func TestADamagedRunIsSaidAfterTheReceiptsMembers(t *testing.T) {
	v := one(t, open)
	v.receipt.Damaged = true
	got, _ := ask(t, v.traces(), "get_receipt", v.arguments(""))
	if !bytes.HasSuffix(got.Structured, []byte(`],"settlement":"unknown","damaged":true}`)) {
		t.Errorf("the answer ends in %s", got.Structured[len(got.Structured)-80:])
	}
	if !strings.Contains(got.Content[0].Text, "damaged") {
		t.Errorf("the text is %q", got.Content[0].Text)
	}
	got, _ = ask(t, v.traces(), "get_receipt", v.arguments(`,"events":false`))
	if !bytes.Contains(got.Structured, []byte(`],"settlement":"unknown","damaged":true,"events_omitted":`)) {
		t.Errorf("the answer is %s", got.Structured)
	}
	got, _ = ask(t, v.traces(), "explain", v.arguments(""))
	if !strings.Contains(string(got.Structured), "cannot be read") {
		t.Errorf("the explanation is %s", got.Structured)
	}
	c := connect(t, t.Context(), v.traces(), Options{}, shutdown)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"` + resourceURI(v.receipt.Ref) + `"}}`)
	c.in.Close()
	if m := c.must(); !bytes.Contains(m.Result, []byte(`"_meta":{"settlewatch/damaged":true}`)) {
		t.Errorf("the resource does not say so: %.200s", m.Result)
	}
}

func TestAReceiptThatIsTooLargeIsRefusedWithWaysOut(t *testing.T) {
	v := one(t, open)
	event := `{"event_id":"e%d","event_type":"x","occurred_at":"2026-01-01T00:00:00.000Z","context_id":"a/b","seq":1,"adapter":"t","payload":{"pad":"` + strings.Repeat("p", 500) + `"}}` + "\n"
	data := strings.Repeat(event, 100)
	run, err := assemble.Assemble(v.receipt.Template.Template, []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	v.receipt.Receipt, v.receipt.Ref = run.Receipts[0], ingest.Ref{Run: "r", Operation: "a/b"}
	const want = "E_RECEIPT_TOO_LARGE: the receipt of operation \"a/b\" in run \"r\", with 100 events, is larger than an answer may be (49152 bytes). " +
		"try: events: false, or read the resource trace://r/a%2Fb, or run `settlewatch receipt --json --template x402-buyer r a/b` with the server's own --dir"
	got, isError := ask(t, v.traces(), "get_receipt", v.arguments(""))
	if !isError || got.Content[0].Text != want {
		t.Errorf("the answer is %+v", got.Content)
	}
	got, isError = ask(t, v.traces(), "get_receipt", v.arguments(`,"events":false`))
	if isError || !bytes.Contains(got.Structured, []byte(`"events_omitted":100`)) {
		t.Errorf("without events the answer is %+v %s", got.Content, got.Structured)
	}
	// The resource is another receipt where another template is asked for.
	for template, resource := range map[string]bool{"x402-buyer": true, "x402-seller": false} {
		got, _ = ask(t, v.traces(), "get_receipt", v.arguments(`,"template":"`+template+`"`))
		text := got.Content[0].Text
		if strings.Contains(text, "trace://") != resource || !strings.Contains(text, "settlewatch receipt --json --template "+template+" r a/b`") {
			t.Errorf("by %s the hint is %s", template, text)
		}
	}
	// Whatever the ids are, there is a way and none is cut.
	whole := v.receipt.Ref
	for _, id := range []string{"\x00", strings.Repeat("x", 2048), strings.Repeat("'", 2048), strings.Repeat("\u202e", 600), "`rm`", "-x"} {
		for _, arguments := range []string{"", `,"template":"x402-seller"`} {
			v.receipt.Ref = ingest.Ref{Run: "r", Operation: id}
			got, isError := ask(t, v.traces(), "get_receipt", v.arguments(arguments))
			_, hint, ok := strings.Cut(got.Content[0].Text, ". try: ")
			if !isError || !ok || len(hint) > 1500 || strings.Contains(hint, "…") || strings.Count(hint, "`")%2 != 0 {
				t.Errorf("%.20q%s: the hint is %s", id, arguments, hint)
			}
		}
	}
	v.receipt.Ref = whole
	// Evidence alone can be too much.
	v.receipt.Receipt = fullOfEvidence(t, v.receipt.Template.Template)
	got, isError = ask(t, v.traces(), "get_receipt", v.arguments(`,"events":false`))
	if !isError || !strings.Contains(got.Content[0].Text, "try: read the resource trace://r/a%2Fb") {
		t.Errorf("the answer is %+v", got.Content)
	}
	// An explanation is cut instead.
	got, isError = ask(t, v.traces(), "explain", v.arguments(""))
	if isError {
		t.Errorf("the answer is %+v", got.Content)
	}
	if !strings.HasPrefix(got.Content[0].Text, "Conclusion: ") {
		t.Errorf("the conclusion is gone: %s", got.Structured)
	}
}

// receiptOf is the receipt of an operation with one event of each of some types.
func receiptOf(t *testing.T, template *assemble.Template, operation string, types ...string) *assemble.Receipt {
	t.Helper()
	var data bytes.Buffer
	for i, kind := range types {
		o := object{}
		o.text("event_id", fmt.Sprint("e", i))
		o.text("event_type", kind)
		o.text("occurred_at", "2026-01-01T00:00:00.000Z")
		o.text("context_id", operation)
		o.number("seq", int64(i))
		o.text("adapter", "t")
		data.Write(o.close())
		data.WriteByte('\n')
	}
	run, err := assemble.Assemble(template, data.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return run.Receipts[0]
}

func TestAnExplanationThatIsCutKeepsTheConclusion(t *testing.T) {
	v := one(t, open)
	// The words of a receipt are bounded, but what is sent of them may be six
	// times as long.
	why := strings.Repeat("<", 2000)
	template, _, err := assemble.ParseTemplate([]byte(`{"template":"t","version":1,"stages":[` +
		`{"id":"a","required":true,"match":[{"event":"x"}],"missing_explanation":"` + why + `"},` +
		`{"id":"b","required":true,"match":[{"event":"x"}],"missing_explanation":"` + why + `"},` +
		`{"id":"c","required":true,"match":[{"event":"x"}],"missing_explanation":"` + why + `"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	receipt := receiptOf(t, template, "-o", slices.Repeat([]string{strings.Repeat("<", 100)}, 200)...)
	v.receipt.Template = &assemble.Resolved{Template: template}
	v.receipt.Receipt, v.receipt.Ref, v.receipt.Blind = receipt, ingest.Ref{Run: "r", Operation: "-o"}, "version_1"
	got, isError := ask(t, v.traces(), "explain", v.arguments(`,"template":"escrow-arc"`))
	var answer struct{ Explanation string }
	if err := json.Unmarshal(got.Structured, &answer); err != nil || isError {
		t.Fatal(err, got.Content)
	}
	const cut = "\nThe rest was cut. `settlewatch explain --template escrow-arc -- r -o`, with the server's own --dir, prints the whole."
	head := conclusion(v.receipt, nil)
	if !strings.HasPrefix(answer.Explanation, head) || !strings.Contains(head, "says nothing about the money.\n") || !strings.HasSuffix(answer.Explanation, cut) {
		t.Errorf("the explanation is %s", answer.Explanation)
	}
	words := strings.TrimSuffix(strings.TrimPrefix(answer.Explanation, head), cut)
	if whole := receiptWords(v.receipt); words == "" || !strings.HasPrefix(whole, words+"\n") {
		t.Errorf("what is left was not cut at the end of a line: %s", words)
	}
	if answer.Explanation != got.Content[0].Text {
		t.Errorf("the text is another: %s", got.Content[0].Text)
	}
}

func fullOfEvidence(t *testing.T, template *assemble.Template) *assemble.Receipt {
	t.Helper()
	var data bytes.Buffer
	for i := range 1000 {
		o := object{}
		o.text("event_id", strings.Repeat("e", 60)+string(rune('a'+i%26)))
		o.text("event_type", "x402.payment.submitted")
		o.text("occurred_at", "2026-01-01T00:00:00.000Z")
		o.text("context_id", "a/b")
		o.number("seq", int64(i))
		o.text("adapter", "t")
		o.text("role", "client")
		data.Write(o.close())
		data.WriteByte('\n')
	}
	run, err := assemble.Assemble(template, data.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return run.Receipts[0]
}

func TestAnExplanationSaysWhatTheIndexKnows(t *testing.T) {
	const (
		paid     = `{"event_id":"e1","event_type":"x402.payment.submitted","occurred_at":"2026-01-01T00:00:00.000Z","context_id":"o","seq":1,"adapter":"t","role":"client"}` + "\n"
		again    = `{"event_id":"e2","event_type":"x402.payment.submitted","occurred_at":"2026-01-01T00:00:01.000Z","context_id":"o","seq":2,"adapter":"t","role":"client"}` + "\n"
		called   = `{"event_id":"e3","event_type":"x402.payment.requested","occurred_at":"2026-01-01T00:00:00.000Z","context_id":"o","seq":1,"adapter":"t","role":"client"}` + "\n"
		sold     = `{"event_id":"e4","event_type":"x402.payment.submitted","occurred_at":"2026-01-01T00:00:00.000Z","context_id":"o","seq":1,"adapter":"t","role":"server","ROLE":"client"}` + "\n"
		answered = `{"event_id":"e5","event_type":"x402.payment.responded","occurred_at":"2026-01-01T00:00:02.000Z","context_id":"o","seq":3,"adapter":"t","role":"client","payload":{"settle":{"success":true}}}` + "\n"
	)
	deep := strings.Replace(paid, `"role"`, `"payload":`+strings.Repeat("[", 2990)+strings.Repeat("]", 2990)+`,"role"`, 1)
	half := &ingest.Ref{Run: "r2", Operation: "half\u202e"}
	const (
		settled   = "the money is settled: a successful settlement is on record."
		failed    = "the payment failed: a definite refusal is on record, and nothing on record says that money moved."
		unknown   = "the state of the money is unknown: it may have moved, and nothing on record says for certain. Unknown is not failed."
		pending   = "the payment is pending: money may have moved, and the other side still has time to answer. Pending is not failed."
		none      = "nothing was paid in this operation, as far as it is recorded: it holds no payment."
		elsewhere = "An answer that was recorded elsewhere, as operation \"half\" of run \"r2\", belongs to "
		blind     = "This operation is blind: %s. That no answer is seen says nothing about the money."
	)
	for name, test := range map[string]struct {
		lines      string
		settlement string
		linked     *ingest.Ref
		blind      string
		want       []string
	}{
		"a payment on its own":                     {paid, "pending", nil, "", []string{pending}},
		"no payment":                               {sold, "none", nil, "", []string{none}},
		"a settlement elsewhere":                   {paid, "settled", half, "", []string{settled, elsewhere + "the payment of this operation. It reports a settlement."}},
		"a settlement elsewhere of a call":         {called, "settled", half, "", []string{settled, elsewhere + "the payment of this operation. It reports a settlement."}},
		"a settlement elsewhere of a nested event": {deep, "settled", half, "", []string{settled, elsewhere + "the payment of this operation. It reports a settlement."}},
		"a refusal elsewhere":                      {paid, "failed", half, "", []string{failed, elsewhere + "the payment of this operation. It reports a failure: a definite refusal."}},
		"a failure elsewhere that proves nothing":  {paid, "unknown", half, "", []string{unknown, elsewhere + "the payment of this operation. It reports a failure, or nothing that can be relied on; neither proves that no money moved."}},
		"one answer elsewhere for two payments":    {paid + again, "unknown", half, "", []string{unknown, elsewhere + "one of the payments of this operation. It reports a settlement or a failure, and leaves it open whether each of them was settled."}},
		"an answer in no operation": {paid, "settled", &ingest.Ref{Run: "r\n2", Unassigned: true}, "",
			[]string{settled, `An answer that was recorded elsewhere, outside any operation, in run "r 2", belongs to the payment of this operation. It reports a settlement.`}},
		"an answer in the operation without an id": {paid, "settled", &ingest.Ref{Run: "r", Null: true}, "",
			[]string{settled, `An answer that was recorded elsewhere, as the operation without an id of run "r", belongs to the payment of this operation. It reports a settlement.`}},
		"the answer's half, a settlement": {answered, "settled", half, "",
			[]string{settled, `The payment that the answer in this operation belongs to was recorded elsewhere, as operation "half" of run "r2". The answer reports a settlement.`}},
		"the answer's half, a failure": {answered, "none", half, "",
			[]string{none, `The payment that the answer in this operation belongs to was recorded elsewhere, as operation "half" of run "r2". The answer reports a failure.`}},
		"the answer's half, unclear": {answered, "unknown", half, "",
			[]string{unknown, `The payment that the answer in this operation belongs to was recorded elsewhere, as operation "half" of run "r2". The answer does not say for certain whether it was settled.`}},
		"blind by version":         {paid, "unknown", nil, "version_1", []string{unknown, fmt.Sprintf(blind, "a version 1 seller's answer is never recorded by this client")}},
		"blind by network":         {paid, "unknown", nil, "solana", []string{unknown, fmt.Sprintf(blind, "this client records an answer on Solana without the operation it belongs to")}},
		"blind for want of a hook": {paid, "unknown", nil, "no_response_hook", []string{unknown, fmt.Sprintf(blind, "this client had no hook for answers, so none was ever recorded")}},
		"blind for another reason": {paid, "unknown", nil, "else", []string{unknown, fmt.Sprintf(blind, "the session that recorded it could never witness a settlement")}},
	} {
		t.Run(name, func(t *testing.T) {
			v := one(t, open)
			run, err := assemble.Assemble(v.receipt.Template.Template, []byte(test.lines))
			if err != nil {
				t.Fatal(err)
			}
			v.receipt.Receipt, v.receipt.Ref = run.Receipts[0], ingest.Ref{Run: "r", Operation: "o"}
			v.receipt.Settlement, v.receipt.Linked, v.receipt.Blind = test.settlement, test.linked, test.blind
			want := "Conclusion: " + strings.Join(test.want, " ") + "\n" +
				"That is judged from all runs together and holds wherever the receipt alone leaves more open.\n\n" +
				"From this receipt alone:\n" + strings.TrimRight(assemble.Explain(v.receipt.Receipt), "\n")
			if diff := cmp.Diff(want, Explanation(v.receipt, nil)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAnExplanationIsTheSameOnTheCommandLine(t *testing.T) {
	v := one(t, open)
	v.receipt.Linked = &ingest.Ref{Run: "r2", Operation: "half"}
	got, _ := ask(t, v.traces(), "explain", v.arguments(""))
	var answer map[string]string
	if err := json.Unmarshal(got.Structured, &answer); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"run_id": "1777885300000", "operation_id": "op-open", "template": "x402-buyer", "completeness": "partial", "settlement": "unknown", "explanation": Explanation(v.receipt, nil)}
	if diff := cmp.Diff(want, answer); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(string(ExplainDocument(v.receipt, nil)), string(got.Structured)); diff != "" {
		t.Errorf("what the command line prints:\n%s", diff)
	}
	if got.Content[0].Text != want["explanation"] {
		t.Errorf("the text is not the whole explanation: %q", got.Content[0].Text)
	}
}

// TestNoExplanationTakesItsConclusionBack looks at every case's words: of the
// money there is one conclusion, and it comes first.
func TestNoExplanationTakesItsConclusionBack(t *testing.T) {
	for _, v := range vectors(t) {
		for _, state := range []string{"settled", "failed", "unknown", "pending", "none"} {
			r := *v.receipt
			r.Settlement = state
			text := Explanation(&r, nil)
			head, words, ok := strings.Cut(text, "\n\nFrom this receipt alone:\n")
			if !ok || !strings.HasPrefix(head, "Conclusion: ") || strings.Contains(words, "Conclusion: ") || words != receiptWords(&r) {
				t.Errorf("%s: %s", v.name, text)
			}
			if strings.Contains(head, "no sign that money moved") {
				t.Errorf("%s: %s", v.name, head)
			}
		}
	}
}

func TestADamagedRunIsSaidBesideTheConclusion(t *testing.T) {
	v := one(t, open)
	v.receipt.Damaged = true
	head, _, _ := strings.Cut(Explanation(v.receipt, nil), "\n\nFrom this receipt alone:\n")
	if lines := strings.Split(head, "\n"); len(lines) != 3 || !strings.HasPrefix(lines[2], "The run is damaged: ") {
		t.Errorf("the conclusion is %s", head)
	}
}

func TestAReceiptsTextNamesItsStagesAndFaults(t *testing.T) {
	template, _, err := assemble.ParseTemplate([]byte(`{"template":"t","version":1,"stages":[` +
		`{"id":"a","required":true,"match":[{"event":"x"}]},{"id":"b","required":true,"match":[{"event":"y"}]},` +
		`{"id":"c\u001b[31m","required":true,"match":[{"event":"z"}]},{"id":"d","required":false,"match":[{"event":"z"}]}],"exceptions":["f","g"]}`))
	if err != nil {
		t.Fatal(err)
	}
	receipt := receiptOf(t, template, "o", "x", "x", "y", "f", "g", "f")
	v := vector{receipt: &ingest.Receipt{Receipt: receipt, Ref: ingest.Ref{Run: "r", Operation: "o"}, Template: &assemble.Resolved{Template: template}, Settlement: "unknown", Damaged: true}}
	got, _ := ask(t, v.traces(), "get_receipt", v.arguments(""))
	const want = `operation "o" of run "r" is partial by t; settlement unknown; 6 events
- stage a: confirmed by 2 events
- stage b: confirmed
- stage c: not confirmed
- stage d: not confirmed, not required
missing: c
faults: f (2 times), g
the run is damaged: the receipt is made of its sound lines only`
	if diff := cmp.Diff(want, got.Content[0].Text); diff != "" {
		t.Error(diff)
	}
}

func TestAReceiptsTextIsBoundedAndGivesWayToTheReceipt(t *testing.T) {
	var source bytes.Buffer
	source.WriteString(`{"template":"t","version":1,"stages":[`)
	for i := range 150 {
		if i > 0 {
			source.WriteByte(',')
		}
		fmt.Fprintf(&source, `{"id":"%03d%s","required":%t,"match":[{"event":"x"}]}`, i, strings.Repeat("s", 70), i < 30)
	}
	source.WriteString(`]}`)
	template, _, err := assemble.ParseTemplate(source.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	receipt := func(pad int) vector {
		run, err := assemble.Assemble(template, []byte(`{"event_id":"e","event_type":"y","occurred_at":"2026-01-01T00:00:00.000Z","context_id":"o","seq":1,"adapter":"t","payload":"`+strings.Repeat("p", pad)+`"}`+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		return vector{receipt: &ingest.Receipt{Receipt: run.Receipts[0], Ref: ingest.Ref{Run: "r", Operation: "o"}, Template: &assemble.Resolved{Template: template}, Settlement: "none"}}
	}
	small := receipt(0)
	got, isError := ask(t, small.traces(), "get_receipt", small.arguments(""))
	if isError || !strings.Contains(got.Content[0].Text, " more in structuredContent\nmissing: 000") || !strings.HasSuffix(got.Content[0].Text, ", and 10 more") {
		t.Errorf("the text is %+v", got.Content)
	}
	// The receipt fits an answer, but not beside that text.
	large := receipt(answerLimit - envelope - got.line + 10<<10)
	got, isError = ask(t, large.traces(), "get_receipt", large.arguments(""))
	if want := verdictText(large.receipt, nil); isError || got.Content[0].Text != want {
		t.Errorf("the text is %+v, want %s", got.Content, want)
	}
}

func TestAReceiptIsAskedForByItsIDs(t *testing.T) {
	v := one(t, open)
	traces := &fake{receipt: func(_ context.Context, r ingest.Ref, template string) (*ingest.Receipt, error) {
		if r != (ingest.Ref{Run: "run:latest", Operation: "\xed\xa0\x80😀"}) || template != "escrow-arc" {
			t.Errorf("asked for %+v by %q", r, template)
		}
		return v.receipt, nil
	}}
	for _, tool := range []string{"get_receipt", "explain"} {
		ask(t, traces, tool, `{"run_id":"run:latest","operation_id":"\ud800\ud83d\ude00","template":"escrow-arc"}`)
	}
}
