package guard

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/internal/safefile"
)

// The tools that ask the guard about tool calls and spending, by their names in the
// log (approvals contract, section 3).
const (
	toolEvaluateSpend = "evaluate_spend_gate"
	toolRequestAuth   = "request_authorization"
	toolEvaluate      = "evaluate_tool_approval"
	toolAuthorize     = "authorize_tool_call"
	toolReview        = "review" // a person's command
	toolIssue         = "issue_approval_receipt"
	toolApprove       = "approve_spend"
)

// Codes of refusals beside those of the approval package.
const (
	CodePending = "pending_human" // a person has been asked and has not decided
	CodeInput   = "input"         // the question could not be read at all
)

// ToolRequest is one question about a tool call.
type ToolRequest struct {
	Call       json.RawMessage // {tool, resource, arguments}, as it came
	Policy     string          // name of one of the policy's toolPolicies
	Brought    json.RawMessage // a policy the caller brought, which permits nothing; nil for none
	Receipt    json.RawMessage // nil for none
	ReviewID   string          // of an earlier question, "" for none
	TTLSeconds *float64        // how long a receipt is to be good; nil: as the policy says
	Host       approval.Host   // what the host has set, where it is trusted
	Actor      string          // as in Request

	Approver bool // the caller named somebody who approves

	// Person is set where a person asks, in a process no agent talks to: a review is
	// opened whatever the gate or an earlier refusal says, for the person to decide.
	Person bool
}

// ToolAnswer answers a ToolRequest. Texts in it are clean.
type ToolAnswer struct {
	approval.ToolResult
	Advisory bool     // it was judged by a policy the caller brought, and counts nowhere
	Pending  bool     // a person has been asked
	ReviewID string   // of the review that asks, or that stands behind the receipt
	Handoff  *Handoff // while pending
	Seq      int64    // line of the log that says so; 0 where nothing had to be written
	DenyID   string   // of that line, where it is a refusal
}

// grants reports whether the answer hands out a receipt that permits something.
func (a *ToolAnswer) grants() bool { return a.Receipt != nil && a.Receipt.Decision == approval.Allow }

// toolCase is a question about a tool call that was read.
type toolCase struct {
	tool     string // who asks the guard
	call     approval.Call
	name     string // of the policy
	policy   *approval.ToolPolicy
	advisory bool
	person   bool
	approver bool // somebody was named who approves
	actor    string
	review   string
	ttl      *float64
	money    approval.Money
	hash     string // what decides beside the tool policy; "" for nothing
	spend    *decision.Spend
	gate     *approval.Verdict // about spend
	unread   error             // why the question could not be read
}

// toolCase reads a question.
func (g *Guard) toolCase(tool string, r ToolRequest) *toolCase {
	q := &toolCase{tool: tool, name: r.Policy, actor: r.Actor, review: r.ReviewID, ttl: r.TTLSeconds, person: r.Person, approver: r.Approver}
	var doc jsjson.Doc
	if err := doc.Parse(r.Call); err != nil {
		q.unread = err
		return q
	}
	if q.call, q.unread = approval.ParseCall(doc.Root()); q.unread != nil {
		return q
	}
	q.call.Host = r.Host
	if r.Brought == nil {
		q.policy = g.policy.ToolPolicy(r.Policy)
		return q
	}
	q.advisory = true
	var brought jsjson.Doc
	if q.unread = brought.Parse(r.Brought); q.unread == nil {
		q.policy, q.unread = approval.ParseToolPolicy(brought.Root())
	}
	return q
}

// inspect says what is wrong with a question before any receipt is looked at; nil
// when nothing is.
func (q *toolCase) inspect() *approval.ToolResult {
	var r approval.ToolResult
	switch {
	case q.unread != nil:
		r = approval.DenyUnreadable(q.unread)
	case q.policy == nil:
		r = approval.EvaluateTool(nil, q.call)
		r.Reason = "the policy file has no tool policy " + plain.Quote(q.name, plain.Detail)
	default:
		if r = approval.EvaluateTool(q.policy, q.call); r.State == approval.ReceiptRequired {
			return nil
		}
	}
	return &r
}

// denied is a refusal of the question in hand.
func (q *toolCase) denied(code, format string, args ...any) *ToolAnswer {
	r := approval.ToolResult{State: approval.Denied, DenyCode: code, Reason: fmt.Sprintf(format, args...), Claims: []approval.Claim{}}
	if q.policy != nil && q.unread == nil {
		seen := approval.Inspect(q.policy, q.call)
		r.ArgsHash, r.Risk, r.PolicyVersion, r.Claims = seen.ArgsHash, seen.Risk, seen.PolicyVersion, seen.Claims
	}
	return &ToolAnswer{ToolResult: r}
}

// line is what the log says of a refusal. What was presented is named where it could
// be read.
func (q *toolCase) line(a *ToolAnswer, presented *approval.Receipt) (decision.Denied, error) {
	id, err := newID("d")
	if err != nil {
		return decision.Denied{}, err
	}
	a.DenyID = id
	d := decision.Denied{
		Tool: q.tool, Target: shown(q.call.Tool), Scope: shown(q.call.Resource), ReasonCode: a.DenyCode, Detail: shown(a.Reason), ArgsHash: a.ArgsHash,
		ReceiptID: id, ReviewID: a.ReviewID, Policy: shown(q.name), Burnt: a.Burn, Canon: approval.CanonName,
	}
	if q.advisory {
		d.Policy = ""
		d.Detail = "under a policy of the caller's: " + d.Detail
	}
	if d.ReasonCode == "" {
		d.ReasonCode = CodePending
	}
	if presented != nil {
		d.Presented = shown(presented.Nonce)
	}
	return d, nil
}

// shown is a text of a stranger as lines of the log hold it.
func shown(text string) string { return plain.Clean(text, plain.Detail) }

// answer decides a question under the lock of the log and gives the answer once what
// it says is on disk. decide gives the answer and the lines that make it true; where
// it gives none and the answer permits nothing, the refusal is the line.
func (g *Guard) answer(ctx context.Context, q *toolCase, decide func(s *decision.State) (*ToolAnswer, []decision.Body, *approval.Receipt, error)) (*ToolAnswer, error) {
	var a *ToolAnswer
	seq, err := g.said(ctx, q.actor, func(s *decision.State) (bodies []decision.Body, err error) {
		var presented *approval.Receipt
		if a, bodies, presented, err = decide(s); err != nil {
			return nil, err
		}
		a.Advisory = q.advisory
		if len(bodies) == 0 && !a.grants() {
			line, err := q.line(a, presented)
			if err != nil {
				return nil, err
			}
			bodies = []decision.Body{line}
		}
		return bodies, nil
	})
	if err != nil {
		return nil, err
	}
	a.Seq = seq
	return a, nil
}

// said runs decide under the lock of the log and gives the number of the last line it
// wrote, 0 for none. Where there is an error nothing is on disk, and what is not on
// disk was not said (approvals contract, section 8.4).
func (g *Guard) said(ctx context.Context, actor string, decide func(s *decision.State) ([]decision.Body, error)) (seq int64, err error) {
	wrote := false
	s, err := g.update(ctx, actor, func(s *decision.State) (bodies []decision.Body, err error) {
		bodies, err = decide(s)
		wrote = len(bodies) > 0
		return bodies, err
	})
	if err != nil || !wrote {
		return 0, err
	}
	return s.Lines(), nil
}

// Refused writes down that a tool refused a question that could not be read. Only
// when there is no error may whoever asked be told.
func (g *Guard) Refused(ctx context.Context, tool, actor, code, detail string) error {
	id, err := newID("d")
	if err != nil {
		return err
	}
	_, err = g.update(ctx, actor, func(*decision.State) ([]decision.Body, error) {
		return []decision.Body{decision.Denied{Tool: shown(tool), ReasonCode: code, Detail: shown(detail), ReceiptID: id, Canon: approval.CanonName}}, nil
	})
	return err
}

// EvaluateToolApproval answers evaluate_tool_approval: it says whether a call may go
// to a person at all, and never permits one.
func (g *Guard) EvaluateToolApproval(ctx context.Context, r ToolRequest) (*ToolAnswer, error) {
	q := g.toolCase(toolEvaluate, r)
	return g.answer(ctx, q, func(*decision.State) (*ToolAnswer, []decision.Body, *approval.Receipt, error) {
		if wrong := q.inspect(); wrong != nil {
			return &ToolAnswer{ToolResult: *wrong}, nil, nil, nil
		}
		return &ToolAnswer{ToolResult: approval.EvaluateTool(q.policy, q.call)}, nil, nil, nil
	})
}

// RequestAuthorization answers request_authorization for a call that a tool policy
// lists: it asks a person, and gives the receipt once the person has approved
// (approvals contract, section 9.7b).
func (g *Guard) RequestAuthorization(ctx context.Context, r ToolRequest) (*ToolAnswer, error) {
	asks := toolRequestAuth
	if r.Person {
		asks = toolIssue
	}
	q := g.toolCase(asks, r)
	return g.answer(ctx, q, func(s *decision.State) (*ToolAnswer, []decision.Body, *approval.Receipt, error) {
		return g.request(s, q)
	})
}

func (g *Guard) request(s *decision.State, q *toolCase) (*ToolAnswer, []decision.Body, *approval.Receipt, error) {
	if wrong := q.inspect(); wrong != nil {
		return &ToolAnswer{ToolResult: *wrong}, nil, nil, nil
	}
	if q.advisory {
		return q.denied(approval.CodeAmbiguous, "a policy of the caller's own permits nothing: name one of the policy file"), nil, nil, nil
	}
	if q.approver {
		return q.denied(approval.CodeAmbiguous, "%s", noApprover), nil, nil, nil
	}
	now := g.now()
	if why := g.stopped(s, q); why != "" {
		return q.denied(approval.CodePolicyDeny, "%s", why), nil, nil, nil
	}
	call, refused := q.about()
	if refused != nil {
		return q.denied(refused.Code, "%s", refused.Detail), nil, nil, nil
	}
	intent := decision.Intent{Names: []string{}, Resource: call.Resource, Typed: "tool_call " + call.RequestHash}
	var review *decision.ReviewState
	if q.person {
		review = s.PendingFor(intent, now)
	} else {
		review = s.AskedFor(intent, q.actor, now)
	}
	if q.review != "" {
		if review = s.Review(q.review); review == nil || review.Kind != decision.KindToolCall || !review.Intent.Same(intent) || review.Actor != q.actor && !q.person {
			return q.denied(approval.CodeBinding, "no review of this call has the id %s", plain.Quote(q.review, plain.Detail)), nil, nil, nil
		}
	}
	if review != nil {
		return g.reviewed(s, q, review, now), nil, nil, nil
	}
	if !q.person {
		for r := range s.Rejections(now, g.policy.StickyRejectHours) {
			if r.Intent.Same(intent) {
				return g.reviewed(s, q, r, now), nil, nil, nil
			}
		}
		if n := s.Pending(q.actor, now); n >= g.policy.MaxPendingReviews {
			return q.denied(approval.CodePolicyDeny, "%d reviews are pending: a person has to decide some of them first", n), nil, nil, nil
		}
	}
	return g.openCall(q, call, intent, now)
}

// noApprover answers who would name a person in the place of asking one (approvals
// contract, section 7, W1).
const noApprover = "an approver cannot be named: people approve with `settlewatch review approve`"

// stopped says why nothing is permitted now, "" when something may be: a freeze holds
// for tool calls as it does for payments.
func (g *Guard) stopped(s *decision.State, q *toolCase) string {
	return g.frozen(s, &Ask{Names: []string{q.call.Tool, q.call.Resource}})
}

// about is the call as a person will see it and a receipt will be bound to.
func (q *toolCase) about() (*decision.Call, *approval.Refusal) {
	seen := approval.Inspect(q.policy, q.call)
	if seen.Refused != nil {
		return nil, seen.Refused
	}
	arguments, err := seen.Shown(q.policy, q.call)
	if err != nil {
		return nil, &approval.Refusal{Code: approval.CodeAmbiguous, Detail: "the arguments have no form a person can be shown: " + err.Error()}
	}
	ttl, refused := q.lifetime()
	if refused != nil {
		return nil, refused
	}
	issue := approval.Issue{Policy: q.policy, Call: q.call, PolicyHash: q.hash, Money: q.money}
	return &decision.Call{
		Tool: q.call.Tool, Resource: q.call.Resource, Risk: seen.Risk, Arguments: string(arguments), ArgsHash: seen.ArgsHash, RequestHash: issue.RequestHash(),
		Policy: q.name, PolicyVersion: q.policy.Version, PolicyHash: q.policyHash(), Canon: approval.CanonName, TTL: ttl.Milliseconds(), Spend: q.spend,
	}, nil
}

func (q *toolCase) policyHash() string {
	if q.hash != "" {
		return q.hash
	}
	return q.policy.Hash()
}

// longestReceipt is more than anybody means by for how long a receipt is to be good.
const longestReceipt = 10 * 366 * 24 * time.Hour

// lifetime is how long a receipt will be good (approvals contract, sections 4.6 and
// 9.7).
func (q *toolCase) lifetime() (time.Duration, *approval.Refusal) {
	most := approval.DefaultTTL.Seconds()
	if q.policy.MaxTTLSeconds > 0 {
		most = q.policy.MaxTTLSeconds
	}
	seconds := min(most, approval.DefaultTTL.Seconds())
	if q.spend == nil {
		seconds = most
	}
	if q.ttl != nil {
		seconds = *q.ttl
	}
	switch {
	case math.IsNaN(seconds) || seconds*1000 < 1:
		return 0, &approval.Refusal{Code: approval.CodeAmbiguous, Detail: "a receipt is good for more than 0 seconds"}
	case seconds > most || seconds > longestReceipt.Seconds():
		return 0, &approval.Refusal{Code: approval.CodeTTLExceedsPolicy, Detail: "the receipt would be good for longer than the policy allows"}
	}
	return time.Duration(seconds * float64(time.Second)).Truncate(time.Millisecond), nil
}

// openCall asks a person about a call.
func (g *Guard) openCall(q *toolCase, call *decision.Call, intent decision.Intent, now time.Time) (*ToolAnswer, []decision.Body, *approval.Receipt, error) {
	id, err := newID("r")
	if err != nil {
		return nil, nil, nil, err
	}
	a := q.pending(id, g.handoff(id))
	reasons := []decision.Reason{{Rule: "tool_approval", Detail: "the policy " + plain.Quote(q.name, plain.Detail) + " lists this call, and every call of it needs a person"}}
	opened := decision.Opened{
		ReviewID: id, Kind: decision.KindToolCall, Intent: intent, Counterparty: shown(call.Tool), Resource: call.Resource,
		ExpiresAt: now.Add(time.Duration(g.policy.ReviewExpiryHours) * time.Hour).UTC(), PolicyHash: g.hash, Call: call,
	}
	if q.spend != nil {
		opened.Amount, opened.Asset = q.spend.Notional, shown(q.spend.Asset)
		reasons = []decision.Reason{{Rule: "spend_gate", Detail: plain.Clean(strings.Join(q.gate.Reasons, "; "), plain.Explanation)}}
		if len(q.gate.Reasons) == 0 {
			reasons[0].Detail = "the gate needs no person for this; a person was asked all the same"
		}
	}
	opened.Reasons = reasons
	return a, []decision.Body{opened}, nil, nil
}

// pending is the answer while a person has not decided.
func (q *toolCase) pending(id string, handoff *Handoff) *ToolAnswer {
	a := q.denied("", "a person has to approve this call; review %s asks", id)
	a.State, a.RequiresReceipt, a.DenyCode = approval.ReceiptRequired, true, ""
	a.Pending, a.ReviewID, a.Handoff = true, id, handoff
	return a
}

// reviewed answers by what became of the review of a call.
func (g *Guard) reviewed(s *decision.State, q *toolCase, r *decision.ReviewState, now time.Time) *ToolAnswer {
	var a *ToolAnswer
	switch status := r.Status(now); status {
	case decision.StatusPending:
		return q.pending(r.ReviewID, g.handoff(r.ReviewID))
	case decision.StatusApproved:
		issued := s.Receipt(r.ReceiptID)
		if issued == nil {
			a = q.denied(approval.CodeMissingReceipt, "review %s was approved without a receipt", r.ReviewID)
			break
		}
		receipt, err := readReceipt([]byte(issued.Receipt))
		if err != nil {
			a = q.denied(approval.CodeMissingReceipt, "the receipt of review %s cannot be read", r.ReviewID)
			break
		}
		a = q.denied("", "a person has approved this call; to run it, present the receipt once, before it expires")
		a.State, a.RequiresReceipt, a.DenyCode = approval.ReceiptRequired, true, ""
		a.Receipt, a.ReceiptHash = receipt, receipt.Hash()
	case decision.StatusUsed:
		a = q.denied(approval.CodeReplayed, "the approval of review %s has been used; ask anew for another call", r.ReviewID)
	case decision.StatusExpired:
		a = q.denied(approval.CodeExpired, "review %s has expired; ask anew", r.ReviewID)
	default:
		why := "a person has refused this call in review " + r.ReviewID
		if status == decision.StatusRevoked {
			why = "the approval of review " + r.ReviewID + " was taken back"
		}
		if d := r.Last(); d != nil && d.Note != "" {
			why += ", noting " + plain.Quote(d.Note, plain.Detail)
		}
		a = q.denied(approval.CodeHumanDenied, "%s", why)
		if issued := s.Receipt(r.ReceiptID); issued != nil && status == decision.StatusRejected {
			if receipt, err := readReceipt([]byte(issued.Receipt)); err == nil && receipt.Decision == approval.Deny {
				a.Receipt, a.ReceiptHash = receipt, receipt.Hash()
			}
		}
	}
	a.ReviewID = r.ReviewID
	return a
}

func readReceipt(raw []byte) (*approval.Receipt, error) {
	var doc jsjson.Doc
	if err := doc.Parse(raw); err != nil {
		return nil, err
	}
	return approval.ParseReceipt(doc.Root())
}

// AuthorizeToolCall answers authorize_tool_call: it looks at the receipt, uses it up
// on disk, and says AUTHORIZED only then (approvals contract, section 9.5).
func (g *Guard) AuthorizeToolCall(ctx context.Context, r ToolRequest) (*ToolAnswer, error) {
	q := g.toolCase(toolAuthorize, r)
	return g.answer(ctx, q, func(s *decision.State) (*ToolAnswer, []decision.Body, *approval.Receipt, error) {
		if wrong := q.inspect(); wrong != nil {
			return &ToolAnswer{ToolResult: *wrong}, nil, nil, nil
		}
		if q.advisory {
			return q.denied(approval.CodeAmbiguous, "a policy of the caller's own permits nothing: name one of the policy file"), nil, nil, nil
		}
		var receipt *approval.Receipt
		var unreadable error
		if r.Receipt != nil {
			receipt, unreadable = readReceipt(r.Receipt)
		}
		return g.present(s, q, receipt, unreadable)
	})
}

// present judges a call and the receipt that comes with it, under the lock.
func (g *Guard) present(s *decision.State, q *toolCase, receipt *approval.Receipt, unreadable error) (*ToolAnswer, []decision.Body, *approval.Receipt, error) {
	now := g.now()
	if why := g.stopped(s, q); why != "" {
		return q.denied(approval.CodePolicyDeny, "%s", why), nil, receipt, nil
	}
	keys, err := g.keys()
	if err != nil {
		return nil, nil, nil, err
	}
	a := &ToolAnswer{ToolResult: approval.Authorize(approval.Presented{
		Policy: q.policy, Call: q.call, Receipt: receipt, Unreadable: unreadable, Keys: keys, Now: now,
		Burnt: s.Burnt, Approved: approvedIn(s, now), Spend: q.gate, PolicyHash: q.hash, Money: q.money,
	})}
	if !a.Allowed {
		return a, nil, receipt, nil
	}
	full, code, why := q.behind(s, receipt, now)
	if code != "" {
		hash := a.ReceiptHash
		a = q.denied(code, "%s", why)
		a.ReceiptHash = hash
		return a, nil, receipt, nil
	}
	a.ReviewID = full.ReviewID
	return a, []decision.Body{decision.Executed{
		ReceiptID: receipt.Nonce, ReceiptHash: receipt.Hash(), Tool: receipt.Tool, Scope: receipt.Resource, ArgsHash: receipt.ArgsHash,
		ReviewID: full.ReviewID, Canon: approval.CanonName,
	}}, receipt, nil
}

// approvedIn looks up what stands behind a receipt: a review of a tool call that an
// operator's signature approved and nothing has ended since.
func approvedIn(s *decision.State, now time.Time) func(string) (string, bool) {
	return func(id string) (string, bool) {
		r := s.Review(id)
		if r == nil || r.Kind != decision.KindToolCall || r.Status(now) != decision.StatusApproved {
			return "", false
		}
		d := r.Last()
		return d.Hash, d.Decision == decision.Approved && d.Operator != ""
	}
}

// behind holds a receipt that is good in itself to the log: it was issued there, and
// what will run is what the person was shown, word for word. Somebody who can write
// to the log can show a person one call and have the receipt bound to another; this
// is where that comes out. full is the receipt as the log has it, r itself where the
// log knows nothing of it.
func (q *toolCase) behind(s *decision.State, r *approval.Receipt, at time.Time) (full *approval.Receipt, code, why string) {
	issued := s.Receipt(r.Nonce)
	if r.SchemaVersion != approval.ReceiptV1 {
		code, why = q.asShown(s, r, issued)
		return r, code, why
	}
	if issued == nil {
		// Nothing is known of those from before a log that was begun anew.
		if issued, _ := r.Times(); issued.Before(s.Began()) {
			return r, approval.CodeReplayed, "the receipt is older than this log, which cannot tell whether it was used"
		}
		return r, "", ""
	}
	// One that was rendered from a receipt of this log is worth what that one is.
	full, err := readReceipt([]byte(issued.Receipt))
	if err != nil || !r.Renders(*full) {
		return r, approval.CodeMissingReceipt, "the log holds another receipt of that nonce"
	}
	if hash, ok := approvedIn(s, at)(full.ReviewID); !ok || hash != full.DecisionHash {
		return full, approval.CodeMissingReceipt, "the log holds no approval that stands behind the receipt"
	}
	code, why = q.asShown(s, full, issued)
	return full, code, why
}

// asShown holds a receipt of version 2 to the line that issued it, to who asked for
// it, and to what a person was shown.
func (q *toolCase) asShown(s *decision.State, r *approval.Receipt, issued *decision.ReceiptState) (code, why string) {
	if issued == nil || issued.ReceiptHash != r.Hash() || issued.ReviewID != r.ReviewID {
		return approval.CodeMissingReceipt, "the log holds no such receipt"
	}
	if r.ReviewID == "" {
		if issued.Actor != q.actor {
			return approval.CodeBinding, notYours
		}
		return "", ""
	}
	// What was asked on this machine, by the person's own client too, is for whoever
	// was handed the receipt.
	if asker := s.Review(r.ReviewID).Actor; asker != "" && asker != q.actor {
		return approval.CodeBinding, notYours
	}
	now, refused := q.about()
	if refused != nil {
		return refused.Code, refused.Detail
	}
	was := *s.Review(r.ReviewID).Call // Approved has found it
	now.TTL = was.TTL
	if now.Spend != nil && was.Spend != nil && *now.Spend == *was.Spend {
		now.Spend = was.Spend
	}
	if *now != was {
		return approval.CodeChangedArguments, "what would run is not what a person was shown in review " + r.ReviewID
	}
	return "", ""
}

// notYours answers who presents what was given to another subject: a receipt of a
// tool that spends can be put together from what inspect_audit_ledger shows.
const notYours = "the receipt was given to somebody else"

// SharedReceipt gives the receipt of the approved review of a call as one of version
// 1, under a shared key (approvals contract, section 9.3). Nothing is written: it is
// the receipt that the approval has issued.
func (g *Guard) SharedReceipt(ctx context.Context, id string, key approval.HMACKey) (*approval.Receipt, error) {
	s, r, err := g.found(ctx, id)
	if err != nil {
		return nil, err
	}
	issued := s.Receipt(r.ReceiptID)
	if issued == nil || r.Status(g.now()) != decision.StatusApproved {
		return nil, errcode.New(errcode.Input, "approve it first", "review %s has no receipt that can be used", r.ReviewID)
	}
	receipt, err := readReceipt([]byte(issued.Receipt))
	if err != nil {
		return nil, errcode.Wrap(err, errcode.Internal, "", "read the receipt of review %s", r.ReviewID)
	}
	return receipt.Shared(key)
}

// keys are whose receipts count.
func (g *Guard) keys() (approval.Keys, error) {
	k := approval.Keys{HMAC: g.o.HMAC, AllowHMAC: g.o.AllowHMAC}
	for _, o := range g.policy.Operators {
		public, err := base64.StdEncoding.DecodeString(o.PublicKey)
		if err != nil {
			continue // none was read that is not one
		}
		k.Operators = append(k.Operators, approval.OperatorKey{Name: o.Name, Public: public, Until: o.Until})
	}
	auto, err := g.autoKey(false)
	if err != nil {
		return k, err
	}
	if auto != nil {
		k.Auto = auto.Public().(ed25519.PublicKey)
	}
	return k, nil
}

// autoFile holds the key this machine signs with what needs no person. It is worth
// nothing beyond that: what it signed is put to the gate again when it is used
// (approvals contract, section 9.3).
const autoFile = "auto.key"

// autoKey reads the auto key, and makes it where there is none and create is set:
// the lock of the log is held then. Without one it is nil.
func (g *Guard) autoKey(create bool) (ed25519.PrivateKey, error) {
	path := filepath.Join(g.o.Dir, autoFile)
	text, err := safefile.ReadFile(path, 128)
	if errors.Is(err, fs.ErrNotExist) {
		if !create {
			return nil, nil
		}
		seed := make([]byte, ed25519.SeedSize)
		if _, err := rand.Read(seed); err != nil {
			return nil, err
		}
		text = []byte(base64.StdEncoding.EncodeToString(seed) + "\n")
		err = safefile.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return nil, errcode.Wrap(err, errcode.OperatorKey, "see that it is a file of this user with mode 0600, or remove it: a new one is made", "read the key %s of the guard directory", autoFile)
	}
	seed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, errcode.New(errcode.OperatorKey, "remove it: a new one is made", "read the key %s of the guard directory: it holds no key", autoFile)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// receiptFor makes the receipt of a review of a call that is being approved: decided
// is its line, signed. What stands in the review is what is signed, since that is
// what the person saw (approvals contract, section 9.4).
func (g *Guard) receiptFor(r *decision.ReviewState, decided decision.Body, by decision.Signer, allow string, now time.Time) (*decision.Authorized, error) {
	hash, err := decision.Hash(decided)
	if err != nil {
		return nil, err
	}
	nonce, err := newID("a")
	if err != nil {
		return nil, err
	}
	public, err := base64.StdEncoding.DecodeString(by.PublicKey())
	if err != nil {
		return nil, err
	}
	c := r.Call
	now = now.UTC().Truncate(time.Millisecond)
	expires := now.Add(time.Duration(c.TTL) * time.Millisecond)
	receipt := &approval.Receipt{
		Kind: approval.ReceiptKind, SchemaVersion: approval.ReceiptV2, CHPVersion: approval.Version, Actor: g.signs(by), Tool: c.Tool, Resource: c.Resource,
		ArgsHash: c.ArgsHash, PolicyVersion: c.PolicyVersion, Risk: c.Risk, IssuedAt: now.Format(timeFormat), Expiry: expires.Format(timeFormat), Decision: allow, Nonce: nonce,
		ReviewID: r.ReviewID, DecisionHash: hash, RequestHash: c.RequestHash, PolicyHash: c.PolicyHash, Canon: c.Canon, KeyID: approval.KeyID(public),
	}
	sig, err := by.Sign(receipt.Body())
	if err != nil {
		return nil, errcode.Wrap(err, errcode.OperatorKey, "", "sign a receipt")
	}
	receipt.Signature = base64.StdEncoding.EncodeToString(sig)
	return authorized(receipt, c.Spend)
}

// signs is whose key a signer is, as the policy names it.
func (g *Guard) signs(by decision.Signer) string {
	i := slices.IndexFunc(g.policy.Operators, func(o decision.Operator) bool { return o.PublicKey == by.PublicKey() })
	if i < 0 {
		return by.Name()
	}
	return g.policy.Operators[i].Name
}

// authorized is the line of a receipt.
func authorized(r *approval.Receipt, spend *decision.Spend) (*decision.Authorized, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	_, expires := r.Times()
	return &decision.Authorized{
		ReceiptID: r.Nonce, ReceiptHash: r.Hash(), Receipt: string(text), Tool: r.Tool, Scope: r.Resource, ArgsHash: r.ArgsHash, RequestHash: r.RequestHash,
		Approver: r.Actor, ReviewID: r.ReviewID, Spend: spend, ExpiresAt: expires, Canon: r.Canon,
	}, nil
}

// decideCall gives what a decision on a call writes beside its decided line: the
// receipt. Where the gate says no by now, the line is the refusal, to be written
// instead of the decision, and refused says why.
func (g *Guard) decideCall(s *decision.State, r *decision.ReviewState, decided decision.Body, d Decision, now time.Time) (line decision.Body, refused string, err error) {
	known := d.Signer != nil && slices.ContainsFunc(g.policy.Operators, func(o decision.Operator) bool { return o.PublicKey == d.Signer.PublicKey() })
	switch d.Decision {
	case decision.Rejected:
		if !known {
			return nil, "", nil // what tightens needs no signature, and then there is no receipt of it
		}
		line, err = g.receiptFor(r, decided, d.Signer, approval.Deny, now)
		return line, "", err
	case decision.Approved:
	default:
		return nil, "", nil
	}
	if !known {
		return nil, "", errcode.New(errcode.OperatorKey, "make a key with `settlewatch operator init` and name it in the policy",
			"approve review %s: a tool call runs on a signed receipt, and the policy names no operator who has signed", r.ReviewID)
	}
	if hash, ok := g.callPolicyHash(r.Call); !ok || hash != r.Call.PolicyHash {
		return nil, "", errcode.New(errcode.Policy, "have the agent ask again under the policy of now",
			"approve review %s: the policy %s has changed since the review was opened", r.ReviewID, plain.Quote(r.Call.Policy, plain.Detail))
	}
	if r.Call.Spend != nil {
		if len(d.IDs) > 1 {
			// Each takes of the day the next is asked about.
			return nil, "", errcode.New(errcode.Input, "approve it by itself", "approve review %s together with others: it spends", r.ReviewID)
		}
		v, err := g.gateAt(s, r.Call.Spend, "", "", g.signs(d.Signer), now)
		if err != nil {
			return nil, "", err
		}
		if v.State == approval.Blocked {
			why := "approval by " + g.signs(d.Signer) + " rejected: " + strings.Join(v.Reasons, "; ")
			id, err := newID("d")
			line := decision.Denied{Tool: toolReview, Target: shown(r.Call.Tool), Scope: shown(r.Call.Resource), ReasonCode: approval.CodePolicyDeny, Detail: shown(why),
				ArgsHash: r.Call.ArgsHash, ReceiptID: id, ReviewID: r.ReviewID, Policy: shown(r.Call.Policy), Canon: approval.CanonName}
			return line, plain.Clean(why, plain.Explanation), err
		}
	}
	line, err = g.receiptFor(r, decided, d.Signer, approval.Allow, now)
	return line, "", err
}

// callPolicyHash is the hash, now, of the policy a call was put under.
func (g *Guard) callPolicyHash(c *decision.Call) (string, bool) {
	if c.Spend != nil {
		return g.hash, true
	}
	p := g.policy.ToolPolicy(c.Policy)
	if p == nil {
		return "", false
	}
	return p.Hash(), true
}
