package guard

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

// The events of a ledger entry beside those of the approval package.
const (
	eventPending = "pending" // a person was asked
	eventDecided = "decided" // a person has decided
)

// LedgerEntry is a line of the log that is about approvals.
type LedgerEntry struct {
	Seq                          int64
	At                           string // RFC 3339
	Event                        string // deny, authorize, execute, pending, decided
	ReasonCode, Detail           string
	Tool, Scope                  string
	ReceiptID, ReviewID          string
	ArgsHash, Approver, Decision string
	Arguments                    json.RawMessage // of what a person was asked; nil unless asked for
	Prev, Sig                    string
}

// LedgerPage is a page of the log, the newest last, and how the log stands.
type LedgerPage struct {
	Entries []LedgerEntry
	Before  int64 // to go on before the first of them; 0 at the beginning
	Lines   int64 // of the whole log
	OK      bool  // the chain holds
	At      int64 // the line that does not follow, 0 for none in particular
	Reason  string
	Pinned  bool // a checkpoint that is kept covers the last line
}

// Ledger answers inspect_audit_ledger: at most limit entries before a line, 0 for the
// last ones. What is shown of a log that does not verify is what did.
func (g *Guard) Ledger(ctx context.Context, before int64, limit int, arguments bool) (*LedgerPage, error) {
	s, err := g.log.Read(ctx)
	p := &LedgerPage{OK: err == nil, Lines: s.Lines()}
	if unsound := asUnsound(err); unsound != nil {
		p.At, p.Reason = unsound.Line, unsound.Reason
	} else if err != nil {
		return nil, err
	}
	p.Pinned = p.OK && g.log.Pinned()
	lines, more, err := g.log.Tail(ctx, before, limit, func(l *decision.Line) bool {
		_, ours := entry(s, l, false)
		return ours
	})
	if err != nil && p.OK {
		return nil, err
	}
	for i := len(lines) - 1; i >= 0; i-- {
		e, _ := entry(s, &lines[i], arguments)
		p.Entries = append(p.Entries, e)
	}
	if more {
		p.Before = p.Entries[0].Seq
	}
	return p, nil
}

// entry is what a line says of approvals, where it says something.
func entry(s *decision.State, l *decision.Line, arguments bool) (LedgerEntry, bool) {
	e := LedgerEntry{Seq: l.Seq, At: l.At.UTC().Format(timeFormat), Prev: l.Prev, Sig: l.Sig}
	switch b := l.Body.(type) {
	case *decision.Denied:
		e.Event, e.ReasonCode, e.Detail, e.Tool, e.Scope = approval.EventDeny, b.ReasonCode, b.Detail, b.Target, b.Scope
		e.ReceiptID, e.ReviewID, e.ArgsHash = b.ReceiptID, b.ReviewID, b.ArgsHash
		if e.Tool == "" {
			e.Tool = b.Tool
		}
	case *decision.Authorized:
		e.Event, e.Tool, e.Scope, e.ReceiptID, e.ReviewID, e.ArgsHash, e.Approver = approval.EventAuthorize, b.Tool, b.Scope, b.ReceiptID, b.ReviewID, b.ArgsHash, b.Approver
	case *decision.Executed:
		e.Event, e.Tool, e.Scope, e.ReceiptID, e.ReviewID, e.ArgsHash = approval.EventExecute, b.Tool, b.Scope, b.ReceiptID, b.ReviewID, b.ArgsHash
	case *decision.Opened:
		if b.Call == nil {
			return e, false
		}
		e.Event, e.Tool, e.Scope, e.ReviewID, e.ArgsHash = eventPending, b.Call.Tool, b.Call.Resource, b.ReviewID, b.Call.ArgsHash
		if arguments && json.Valid([]byte(b.Call.Arguments)) {
			e.Arguments = json.RawMessage(b.Call.Arguments)
		}
	case *decision.Decided:
		r := s.Review(b.ReviewID)
		if r == nil || r.Call == nil {
			return e, false
		}
		e.Event, e.Tool, e.Scope, e.ReviewID, e.ArgsHash, e.Decision, e.Detail = eventDecided, r.Call.Tool, r.Call.Resource, b.ReviewID, r.Call.ArgsHash, b.Decision, b.Note
		for _, d := range r.Decisions {
			if d.Seq == l.Seq {
				e.Approver = decidedBy(&d)
			}
		}
	default:
		return e, false
	}
	return e, true
}

// Confirm shows a person what is to be decided and gives their key, opened with their
// passphrase. An error is a no.
type Confirm func(ctx context.Context, r *ReviewView) (decision.Signer, error)

// Mint lets a person decide about a call at once, in a process no agent talks to: the
// review is opened as for an agent, confirmed, and decided under the person's key.
// who is what the caller calls the person, which has to be the name of the key.
func (g *Guard) Mint(ctx context.Context, r ToolRequest, who, name, word, note string, confirm Confirm) (*ToolAnswer, error) {
	r.Person = true
	if who != name {
		q := g.toolCase(toolIssue, r)
		return g.answer(ctx, q, func(*decision.State) (*ToolAnswer, []decision.Body, *approval.Receipt, error) {
			return q.denied(approval.CodeAmbiguous, "the key is not that of the actor who is named"), nil, nil, nil
		})
	}
	asked, err := g.RequestAuthorization(ctx, r)
	if err != nil || !asked.Pending {
		return asked, err
	}
	if err := g.confirmed(ctx, asked.ReviewID, word, note, confirm); err != nil {
		return nil, err
	}
	r.ReviewID = asked.ReviewID
	return g.RequestAuthorization(ctx, r)
}

// MintSpend is Mint for a synthetic tool that spends.
func (g *Guard) MintSpend(ctx context.Context, r FinanceRequest, who, name string, confirm Confirm) (*FinanceAnswer, error) {
	r.Person = true
	if who != name {
		q := g.financeCase(toolApprove, r)
		q.wrong = "the key is not that of the approver who is named"
		return g.finance(ctx, q, nil)
	}
	asked, err := g.RequestSpend(ctx, r)
	if err != nil || !asked.Pending {
		return asked, err
	}
	if err := g.confirmed(ctx, asked.ReviewID, decision.Approved, "", confirm); err != nil {
		return nil, err
	}
	r.ReviewID = asked.ReviewID
	return g.RequestSpend(ctx, r)
}

// confirmed has a person decide a review. One that is not confirmed is rejected:
// whoever asked for it was told no.
func (g *Guard) confirmed(ctx context.Context, id, word, note string, confirm Confirm) error {
	view, err := g.Review(ctx, id, 0)
	if err != nil {
		return err
	}
	signer, err := confirm(ctx, view)
	d := Decision{IDs: []string{id}, Decision: word, Note: note, Signer: signer}
	if err != nil {
		var coded *errcode.Error
		if !errors.As(err, &coded) {
			return err
		}
		d = Decision{IDs: []string{id}, Decision: decision.Rejected, Note: "not confirmed on the terminal: " + coded.Message}
	}
	_, err = g.Decide(ctx, d)
	return err
}
