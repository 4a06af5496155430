package approval

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settlewatch/settlewatch/guard/decision"
)

// exported is the rows of a log, and what they add up to.
func exported(t *testing.T, log *decision.Log) []string {
	t.Helper()
	var lines bytes.Buffer
	if err := log.Export(t.Context(), &lines, "ndjson"); err != nil {
		t.Fatal(err)
	}
	var x LedgerExport
	var rows []string
	for line := range strings.Lines(lines.String()) {
		row, err := x.Line([]byte(strings.TrimSuffix(line, "\n")))
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if row != nil {
			rows = append(rows, string(row))
		}
	}
	anchor := x.Anchor()
	if read, fault := verifyLines(t, rows, &anchor); fault != nil || read != anchor || anchor.Count != int64(len(rows)) {
		t.Errorf("the rows do not verify: %v, %+v and %+v", fault, read, anchor)
	}
	return rows
}

func openLog(t *testing.T, now *time.Time) *decision.Log {
	t.Helper()
	log, err := decision.Open(decision.Options{Dir: t.TempDir(), Now: func() time.Time { return *now }})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func write(t *testing.T, log *decision.Log, bodies ...decision.Body) {
	t.Helper()
	if _, err := log.Update(t.Context(), "", func(*decision.State) ([]decision.Body, error) { return bodies, nil }); err != nil {
		t.Fatal(err)
	}
}

func TestALogIsExportedAsALedgerThatVerifies(t *testing.T) {
	now := noon
	log := openLog(t, &now)
	if rows := exported(t, log); len(rows) != 0 {
		t.Errorf("an empty log has rows: %v", rows)
	}
	i := sold(t)
	asked := signed(t, i, ana, behind)
	i.Actor, i.Nonce = ActorAuto, "nonce-2"
	auto := signed(t, i, NewAutoSigner(autoKey), Approval{})
	line := func(r *Receipt) decision.Authorized {
		_, expiry := r.Times()
		return decision.Authorized{
			ReceiptID: r.Nonce, ReceiptHash: r.Hash(), Receipt: encoded(t, r), Tool: r.Tool, Scope: r.Resource, ArgsHash: r.ArgsHash, RequestHash: r.RequestHash,
			Approver: r.Actor, ReviewID: r.ReviewID, ExpiresAt: expiry, Canon: CanonName,
		}
	}
	used := func(r *Receipt) decision.Executed {
		return decision.Executed{ReceiptID: r.Nonce, ReceiptHash: r.Hash(), Tool: r.Tool, Scope: r.Resource, ArgsHash: r.ArgsHash, ReviewID: r.ReviewID, Canon: CanonName}
	}
	write(t, log, decision.Opened{
		ReviewID: behind.ReviewID, Kind: decision.KindToolCall, Counterparty: "ledger.post", ExpiresAt: now.Add(time.Hour), PolicyHash: strings.Repeat("a", 64),
		Call: &decision.Call{Tool: "ledger.post", Resource: "tenant:north", Arguments: `{"account":"sha256:x","amount":"2500.00"}`, TTL: 120000, Canon: CanonName},
	})
	write(t, log, decision.Decided{ReviewID: behind.ReviewID, Decision: decision.Approved}, line(asked))
	now = now.Add(time.Second)
	write(t, log, line(auto), used(asked))
	now = now.Add(250 * time.Millisecond)
	write(t, log, used(auto),
		decision.Denied{Tool: "authorize_tool_call", Target: "ledger.post", Scope: "tenant:north", ReasonCode: CodeReplayed, Detail: "Zoë ✓", ArgsHash: asked.ArgsHash,
			ReceiptID: "d-1", Presented: "nonce-1", Canon: CanonName},
		decision.Denied{Tool: "evaluate_spend_gate", ReasonCode: FinancePolicyDeny, Detail: "daily-cap", ReceiptID: "d-2", Canon: CanonName},
		decision.Denied{Tool: "request_authorization", ReasonCode: "input", Detail: "no call", ReceiptID: "d-3", Canon: CanonName})
	rows := exported(t, log)
	type want struct {
		TS, Event, Tool, ReceiptID string
		Reason, Scope              *string
		Body                       string
	}
	north, replay, policy := "tenant:north", "replay", "policy_deny"
	code := func(d DenyReceipt, at string) string {
		moment, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		return encoded(t, NewDenyReceipt(d, moment))
	}
	const first, then, last = "2026-03-01T12:00:00.000Z", "2026-03-01T12:00:01.000Z", "2026-03-01T12:00:01.250Z"
	for n, w := range []want{
		{first, "authorize", "ledger.post", "nonce-1", nil, &north, encoded(t, asked.Authorization())},
		{then, "authorize", "ledger.post", "nonce-2", nil, &north, encoded(t, auto.Authorization())},
		{then, "execute", "ledger.post", "nonce-1", nil, &north, `{"receipt_id":"nonce-1","args":{"account":"sha256:x","amount":"2500.00"}}`},
		{last, "execute", "ledger.post", "nonce-2", nil, &north, `{"receipt_id":"nonce-2","args":null}`},
		{last, "deny", "ledger.post", "d-1", &replay, &north, code(DenyReceipt{ReceiptID: "d-1", Tool: "ledger.post", Scope: &north, ReasonCode: replay,
			Detail: "replayed_receipt: Zoë ✓", ArgsHash: asked.ArgsHash}, last)},
		{last, "deny", "evaluate_spend_gate", "d-2", &policy, nil, code(DenyReceipt{ReceiptID: "d-2", Tool: "evaluate_spend_gate", ReasonCode: policy, Detail: "daily-cap"}, last)},
		{last, "deny", "request_authorization", "d-3", &policy, nil, code(DenyReceipt{ReceiptID: "d-3", Tool: "request_authorization", ReasonCode: policy, Detail: "input: no call"}, last)},
	} {
		if n >= len(rows) {
			t.Fatalf("%d rows", len(rows))
		}
		var got struct {
			TS, Event, Tool string
			ReceiptID       string  `json:"receipt_id"`
			Reason          *string `json:"reason_code"`
			Scope           *string
			Payload         struct{ Body json.RawMessage }
		}
		if err := json.Unmarshal([]byte(rows[n]), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(w, want{got.TS, got.Event, got.Tool, got.ReceiptID, got.Reason, got.Scope, w.Body}); diff != "" {
			t.Errorf("row %d: %s", n+1, diff)
		}
		var a, b any
		if json.Unmarshal([]byte(w.Body), &a) != nil || json.Unmarshal(got.Payload.Body, &b) != nil || !cmp.Equal(a, b) {
			t.Errorf("row %d: %s, want %s", n+1, got.Payload.Body, w.Body)
		}
	}
	if len(rows) != 7 {
		t.Errorf("%d rows, want 7", len(rows))
	}
}

func TestALineThatHasNoRowIsAnErrorAndNotLeftOut(t *testing.T) {
	for name, line := range map[string]string{
		"no JSON":                       `{"type":`,
		"a receipt that cannot be read": `{"at":"2026-03-01T12:00:00.000Z","type":"authorized","receipt":"{}"}`,
		"a refusal of another form":     `{"at":"2026-03-01T12:00:00.000Z","type":"denied","reason_code":1}`,
		"a use of another form":         `{"at":"2026-03-01T12:00:00.000Z","type":"executed","receipt_id":1}`,
		"a review of another form":      `{"at":"2026-03-01T12:00:00.000Z","type":"opened","call":[]}`,
	} {
		var x LedgerExport
		if row, err := x.Line([]byte(line)); err == nil {
			t.Errorf("%s: %s", name, row)
		}
	}
	var x LedgerExport
	if row, err := x.Line([]byte(`{"at":"2026-03-01T12:00:00.000Z","type":"frozen"}`)); row != nil || err != nil {
		t.Errorf("a freeze is %s, %v", row, err)
	}
}
