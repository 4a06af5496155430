package mcp

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// document is an answer whose text is its content, indented where that has room.
func document(v any) (answer, error) {
	var compact bytes.Buffer
	enc := json.NewEncoder(&compact)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return answer{}, err
	}
	found := inJSON(bytes.TrimSpace(compact.Bytes()))
	var indented bytes.Buffer
	if err := json.Indent(&indented, found.json, "", "  "); err != nil {
		return answer{}, err
	}
	if spaced := (answer{text: indented.String(), json: found.json}); spaced.fits() {
		return spaced, nil
	}
	return found, nil
}

// fields is a JSON object that leaves out what is empty.
type fields map[string]any

func (f fields) some(name, value string) {
	if value != "" {
		f[name] = value
	}
}

// clean is a text of a stranger for an agent.
func clean(text string) string { return plain.Clean(text, plain.Detail) }

// claims are a gate's or an inspection's, whose details hold what a stranger wrote.
func claims(all []approval.Claim) []approval.Claim {
	out := make([]approval.Claim, 0, len(all))
	for _, c := range all {
		out = append(out, approval.Claim{Rule: c.Rule, Passed: c.Passed, Detail: clean(c.Detail)})
	}
	return out
}

func gateDocument(r *approval.Result) fields {
	return fields{
		"state": r.State, "allowed": r.Allowed, "requires_human": r.RequiresHuman, "reason": plain.Clean(r.Reason, plain.Explanation), "claims": claims(r.Claims),
		"content_hash": r.ContentHash, "committed_delta": r.CommittedDelta,
	}
}

func spendDocument(a *guard.SpendAnswer) fields {
	f := gateDocument(&a.Result)
	f["advisory"], f["committed_today"] = a.Advisory, a.Committed
	f.some("doubt", a.Doubt)
	if a.Deny != nil {
		f["deny"] = a.Deny
	}
	if len(a.Warnings) > 0 {
		f["warnings"] = a.Warnings
	}
	if a.Seq > 0 {
		f["ledger_seq"] = a.Seq
	}
	return f
}

func toolDocument(a *guard.ToolAnswer) fields {
	f := fields{
		"state": a.State, "allowed": a.Allowed, "requires_receipt": a.RequiresReceipt, "reason": plain.Clean(a.Reason, plain.Explanation), "claims": claims(a.Claims),
		"advisory": a.Advisory,
	}
	f.some("deny_code", a.DenyCode)
	f.some("args_hash", a.ArgsHash)
	f.some("risk", a.Risk)
	f.some("policy_version", a.PolicyVersion)
	f.some("receipt_hash", a.ReceiptHash)
	f.some("review_id", a.ReviewID)
	if a.Seq > 0 {
		f["ledger_seq"] = a.Seq
	}
	return f
}

// grantDocument is a tool's answer that may hold a receipt, or say who has to give
// one.
func grantDocument(a *guard.ToolAnswer) fields {
	f := toolDocument(a)
	f["ok"], f["pending"] = a.Receipt != nil && a.Receipt.Decision == approval.Allow, a.Pending
	if a.Receipt != nil {
		f["receipt"] = a.Receipt
	}
	f.handoff(a.Handoff)
	return f
}

func (f fields) handoff(h *guard.Handoff) {
	if h != nil && len(h.Target) <= longestWay {
		f["handoff"] = fields{"kind": h.Kind, "target": plain.Clean(h.Target, longestWay), "instruction": clean(h.Instruction)}
	}
}

func financeDocument(a *guard.FinanceAnswer) fields {
	f := fields{"ok": a.OK, "advisory": a.Advisory, "pending": a.Pending}
	f.some("state", a.State)
	f.some("receipt_id", a.ReceiptID)
	f.some("review_id", a.ReviewID)
	f.some("deny_code", a.Code)
	if a.Gate != nil {
		f["gate"] = gateDocument(a.Gate)
	}
	if a.Authorization != nil {
		f["authorization"] = a.Authorization
	}
	if a.Receipt != nil {
		f["receipt"] = a.Receipt
	}
	if a.Deny != nil {
		f["deny"] = a.Deny
	}
	if a.Result != nil {
		f["result"] = a.Result
	}
	if a.Seq > 0 {
		f["ledger_seq"] = a.Seq
	}
	f.handoff(a.Handoff)
	return f
}

func ledgerDocument(p *guard.LedgerPage, demo bool) fields {
	entries := make([]fields, 0, len(p.Entries))
	for _, e := range p.Entries {
		f := fields{"seq": e.Seq, "ts": e.At, "event": e.Event, "prev_sig": e.Prev, "sig": e.Sig}
		for name, value := range map[string]string{
			"reason_code": e.ReasonCode, "detail": clean(e.Detail), "tool": clean(e.Tool), "scope": clean(e.Scope), "receipt_id": clean(e.ReceiptID),
			"review_id": clean(e.ReviewID), "args_hash": e.ArgsHash, "approver": clean(e.Approver), "decision": e.Decision,
		} {
			f.some(name, value)
		}
		if e.Arguments != nil {
			f["arguments"] = e.Arguments
		}
		entries = append(entries, f)
	}
	chain := fields{"ok": p.OK}
	if !p.OK {
		chain["at"] = p.At
		chain.some("reason", clean(p.Reason))
	}
	tail := "NOT PINNED"
	if p.Pinned {
		tail = "pinned"
	}
	tools := []fields{}
	if demo {
		for _, t := range guard.FinanceTools {
			tools = append(tools, fields{"tool": t.Name, "scope": t.Scope, "description": t.Description, "policy": t.Gate, "synthetic": true})
		}
	}
	f := fields{"entries": entries, "chain": chain, "tail": tail, "lines": p.Lines, "tools": tools}
	if p.Before > 0 {
		f["next_cursor"] = cursorOf(p.Before)
	}
	return f
}

func cursorOf(seq int64) string { return strconv.FormatInt(seq, 10) }
