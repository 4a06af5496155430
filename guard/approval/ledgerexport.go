package approval

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/guard/decision"
)

// LedgerExport renders the lines of a decisions log that hand out, use or refuse an
// approval as rows of the published server's ledger, so that programs which read
// those can read this (approvals contract, section 9.8). The zero value is ready.
// The rows prove nothing about the log: that is what the log itself is for.
type LedgerExport struct {
	ledger    Ledger
	arguments map[string]string // what the tool calls of the reviews run with, as the log has it
}

// Anchor is that of the rows so far.
func (x *LedgerExport) Anchor() LedgerAnchor { return x.ledger.Anchor() }

// logLine is what all lines have.
type logLine struct {
	At   time.Time `json:"at"`
	Type string    `json:"type"`
}

// Line takes the next line of a log that verifies, and gives the row for it, without
// its newline; nil when there is none.
func (x *LedgerExport) Line(raw []byte) ([]byte, error) {
	var l logLine
	if err := json.Unmarshal(raw, &l); err != nil {
		return nil, err
	}
	row := Row{At: l.At}
	var err error
	switch l.Type {
	case "opened":
		return nil, x.opened(raw)
	case "denied":
		err = row.denied(raw)
	case "authorized":
		err = row.authorized(raw)
	case "executed":
		err = x.executed(raw, &row)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("a line of type %s: %w", l.Type, err)
	}
	return x.ledger.Append(row)
}

// opened remembers what a person was asked about: the line that uses the approval
// up has only the hash of the arguments.
func (x *LedgerExport) opened(raw []byte) error {
	var o decision.Opened
	if err := json.Unmarshal(raw, &o); err != nil {
		return err
	}
	if o.Call != nil {
		if x.arguments == nil {
			x.arguments = map[string]string{}
		}
		x.arguments[o.ReviewID] = o.Call.Arguments
	}
	return nil
}

// denied fills in a refusal.
func (r *Row) denied(raw []byte) (err error) {
	var d decision.Denied
	if err := json.Unmarshal(raw, &d); err != nil {
		return err
	}
	r.Event, r.ReasonCode, r.Tool, r.Scope, r.ReceiptID, r.ArgsHash = EventDeny, d.ReasonCode, d.Target, d.Scope, d.ReceiptID, d.ArgsHash
	if r.Tool == "" {
		r.Tool = d.Tool
	}
	detail := d.Detail
	if !slices.Contains(financeAll, d.ReasonCode) {
		// The published format has six codes and no other.
		r.ReasonCode, detail = FinanceCode(d.ReasonCode), d.ReasonCode+": "+d.Detail
	}
	receipt := DenyReceipt{ReceiptID: r.ReceiptID, Tool: r.Tool, ReasonCode: r.ReasonCode, Detail: detail, ArgsHash: r.ArgsHash}
	if r.Scope != "" {
		receipt.Scope = &r.Scope
	}
	r.Body, err = canon.Marshal(NewDenyReceipt(receipt, r.At))
	return err
}

// authorized fills in the view the finance tools have of a receipt.
func (r *Row) authorized(raw []byte) error {
	var a decision.Authorized
	if err := json.Unmarshal(raw, &a); err != nil {
		return err
	}
	var receipt Receipt
	if err := receipt.UnmarshalJSON([]byte(a.Receipt)); err != nil {
		return err
	}
	r.Event, r.Tool, r.Scope, r.ReceiptID, r.ArgsHash = EventAuthorize, receipt.Tool, receipt.Resource, receipt.Nonce, receipt.ArgsHash
	var err error
	r.Body, err = canon.Marshal(receipt.Authorization())
	return err
}

// executed fills in the use of a receipt. Its arguments are known when a person was
// asked about them, and null otherwise.
func (x *LedgerExport) executed(raw []byte, r *Row) error {
	var e decision.Executed
	if err := json.Unmarshal(raw, &e); err != nil {
		return err
	}
	r.Event, r.Tool, r.Scope, r.ReceiptID, r.ArgsHash = EventExecute, e.Tool, e.Scope, e.ReceiptID, e.ArgsHash
	arguments := x.arguments[e.ReviewID]
	if arguments == "" {
		arguments = "null"
	}
	r.Body = fmt.Appendf(nil, `{"receipt_id":%s,"args":%s}`, jsjson.AppendString(nil, []byte(e.ReceiptID)), arguments)
	return nil
}
