package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
)

// said is what a person found out, signed by nobody.
func said(outcome string) *decision.Resolved {
	return &decision.Resolved{Outcome: outcome, Note: "the seller\x1b[31m says so", Signed: decision.Signed{DecidedBy: "unsigned (could be the agent)"}}
}

func withGuard(t *testing.T, traces Traces, g Guard) *service {
	t.Helper()
	s, err := build(traces, Options{Guard: g}, overStdio)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestARowSaysThatAPersonClosedIt(t *testing.T) {
	page := &ingest.Page{RunsScanned: 1, Operations: []ingest.Row{
		{Ref: ingest.Ref{Run: "r", Operation: "a"}, Template: "t", Completeness: "partial", Settlement: "unknown"},
		{Ref: ingest.Ref{Run: "r\xed\xa0\x80", Null: true}, Template: "t", Completeness: "partial", Settlement: "unknown"},
	}}
	signed := said("settled")
	signed.DecidedBy, signed.Key, signed.Time = "alice", "key", "2026-03-01T12:00:00.000Z"
	var asked []decision.Ref
	g := &fakeGuard{resolved: func(refs []decision.Ref) ([]*decision.Resolved, error) {
		asked = refs
		return []*decision.Resolved{said("failed"), signed}, nil
	}}
	got, _ := askOf(t, withGuard(t, lists(page, nil), g), "list_operations", "{}")
	if diff := cmp.Diff([]decision.Ref{{Run: "r", Operation: id("a")}, {Run: decision.EncodeID("r\xed\xa0\x80")}}, asked); diff != "" {
		t.Error(diff)
	}
	for _, want := range []string{
		`"settlement":"unknown","resolved":{"outcome":"failed","by":"unsigned (could be the agent)","note":"the seller says so"}`,
		`"settlement":"unknown","resolved":{"outcome":"settled","at":"2026-03-01T12:00:00.000Z","by":"alice","note":"the seller says so"}`,
	} {
		if !bytes.Contains(got.Structured, []byte(want)) {
			t.Errorf("no %s in %s", want, got.Structured)
		}
	}
	if text := got.Content[0].Text; !strings.Contains(text, `"a" of run "r": partial, unknown; a person, not the trace, closed it as failed`) {
		t.Errorf("the text is %s", text)
	}
	if !bytes.Equal(PageDocument(page, []*decision.Resolved{said("failed"), signed}), got.Structured) {
		t.Error("the command line prints something else")
	}
}

func TestALogThatCannotBeReadKeepsNobodyFromAList(t *testing.T) {
	page := &ingest.Page{RunsScanned: 1, Operations: []ingest.Row{{Ref: ingest.Ref{Run: "r", Operation: "a"}, Template: "t", Completeness: "partial", Settlement: "unknown"}}}
	for name, g := range map[string]*fakeGuard{
		"an error":    {resolved: func([]decision.Ref) ([]*decision.Resolved, error) { return nil, errors.New("no") }},
		"too few":     {resolved: func([]decision.Ref) ([]*decision.Resolved, error) { return nil, nil }},
		"nothing yet": {},
	} {
		got, isError := askOf(t, withGuard(t, lists(page, nil), g), "list_operations", "{}")
		if isError || bytes.Contains(got.Structured, []byte("resolved")) || !bytes.Contains(got.Structured, []byte(`"operation_id":"a"`)) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A note is the person's, and may be as long as a row has no room for.
func TestALongNoteLeavesTheRowsInTheirPlace(t *testing.T) {
	row := ingest.Row{Ref: ingest.Ref{Run: "r", Operation: "a"}, Template: "t", Completeness: "partial", Settlement: "unknown", Counterparty: strings.Repeat("<", 40_000)}
	long := said("failed")
	long.Note = strings.Repeat("<", 100_000)
	g := &fakeGuard{resolved: func([]decision.Ref) ([]*decision.Resolved, error) { return []*decision.Resolved{long}, nil }}
	got, isError := askOf(t, withGuard(t, lists(&ingest.Page{Operations: []ingest.Row{row}}, nil), g), "list_operations", "{}")
	if isError || !bytes.Contains(got.Structured, []byte(`"truncated":true`)) || !bytes.Contains(got.Structured, []byte(`"outcome":"failed"`)) {
		t.Errorf("the answer is %.300s", got.Structured)
	}
}

func TestAReceiptStaysAsItWasWitnessed(t *testing.T) {
	v := one(t, open)
	var before, after map[string]json.RawMessage
	got, _ := askOf(t, withGuard(t, v.traces(), &fakeGuard{}), "get_receipt", v.arguments(""))
	if err := json.Unmarshal(got.Structured, &before); err != nil {
		t.Fatal(err)
	}
	g := &fakeGuard{resolved: func([]decision.Ref) ([]*decision.Resolved, error) { return []*decision.Resolved{said("failed")}, nil }}
	got, _ = askOf(t, withGuard(t, v.traces(), g), "get_receipt", v.arguments(""))
	if err := json.Unmarshal(got.Structured, &after); err != nil {
		t.Fatal(err)
	}
	if string(after["resolved"]) != `{"outcome":"failed","by":"unsigned (could be the agent)","note":"the seller says so"}` {
		t.Errorf("resolved is %s", after["resolved"])
	}
	// It stands behind every member of the receipt.
	if at, events := bytes.Index(got.Structured, []byte(`"resolved":`)), bytes.LastIndex(got.Structured, []byte(`"settlement":"unknown"`)); at < events {
		t.Error("it stands among the members of the receipt")
	}
	delete(after, "resolved")
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(got.Content[0].Text, `; a person, not the trace, closed this operation as failed (unsigned (could be the agent); note: "the seller says so")`) {
		t.Errorf("the text is %s", got.Content[0].Text)
	}
}

func TestTheConclusionBeginsWithWhatAPersonFoundOut(t *testing.T) {
	v := one(t, open)
	signed := said("settled")
	signed.DecidedBy, signed.Key, signed.Time = "alice", "key", "2026-03-01T12:00:00.000Z"
	const want = `Conclusion: a person, not the trace, closed this operation as settled, paid at 2026-03-01T12:00:00.000Z (signed by "alice"; note: "the seller says so"). By the traces alone, the state of the money is unknown: `
	g := &fakeGuard{resolved: func([]decision.Ref) ([]*decision.Resolved, error) { return []*decision.Resolved{signed}, nil }}
	got, _ := askOf(t, withGuard(t, v.traces(), g), "explain", v.arguments(""))
	if first, _, _ := strings.Cut(got.Content[0].Text, "\n"); !strings.HasPrefix(first, want) {
		t.Errorf("the first line is %s", first)
	}
	if !bytes.Equal(ExplainDocument(v.receipt, signed), got.Structured) || !bytes.Contains(got.Structured, []byte(`"resolved":{"outcome":"settled",`)) {
		t.Errorf("the answer is %s", got.Structured)
	}
	if _, words, _ := strings.Cut(got.Content[0].Text, "\n\nFrom this receipt alone:\n"); words != receiptWords(v.receipt) {
		t.Error("the words of the receipt have changed")
	}
}
