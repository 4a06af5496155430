package approval

import (
	"encoding/json"
	"time"
)

// The events of a row.
const (
	EventDeny      = "deny"
	EventAuthorize = "authorize"
	EventExecute   = "execute"
)

// Row is what one row of the published server's ledger says (approvals contract,
// section 5).
type Row struct {
	At         time.Time
	Event      string
	ReasonCode string // "" is null; set for a deny and for nothing else
	Tool       string
	Scope      string // "" is null
	ReceiptID  string // "" is null
	ArgsHash   string
	Body       json.RawMessage // the receipt, or {receipt_id, args} of an execution
}

// Ledger writes rows one behind the other, in the format of the published server:
// its keys, and 64 zeros before the first. The zero value is an empty ledger.
type Ledger struct {
	rows int64
	head string
}

// Append makes the next row, without its newline.
func (l *Ledger) Append(r Row) ([]byte, error) { panic("") }

// LedgerAnchor is what somebody elsewhere remembers of a ledger.
type LedgerAnchor struct {
	Count   int64  `json:"count"`
	HeadSig string `json:"head_sig"`
}

// Anchor is that of the rows so far.
func (l *Ledger) Anchor() LedgerAnchor { panic("") }

// LedgerFault is the first thing wrong with a ledger.
type LedgerFault struct {
	Line   int64 // from 1
	Reason string
}

// Error implements error.
func (f *LedgerFault) Error() string { panic("") }

// LedgerVerifier reads a ledger of the published server line by line. The zero
// value is ready. Unlike that server's own it looks at every copy a row holds of
// its members, at the hash of the receipt inside, at every key and at the seq of
// the last row.
type LedgerVerifier struct {
	ledger Ledger
}

// Line looks at the next line, without its newline. After an error there is
// nothing more to look at.
func (v *LedgerVerifier) Line(raw []byte) *LedgerFault { panic("") }

// End compares what was read with an anchor; nil for none. Without one a cut tail
// and a ledger that was written anew do not show.
func (v *LedgerVerifier) End(a *LedgerAnchor) *LedgerFault { panic("") }
