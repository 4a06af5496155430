package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// Guard judges payments before they are made; *guard.Guard does. An error is one
// of the request, as an *errcode.Error: what keeps a guard from judging is a
// verdict.
type Guard interface {
	Check(ctx context.Context, r guard.Request) (*guard.Verdict, error)
	// Review waits up to wait for a pending review to be decided.
	Review(ctx context.Context, id string, wait time.Duration) (*guard.ReviewView, error)
	Headroom(ctx context.Context, q guard.HeadroomQuery) (*guard.Headroom, error)
	ReleaseHold(ctx context.Context, id, actor string) error
	// Resolutions gives what people found out about operations, in the order of
	// refs, nil where there is nothing. It asks the decisions log alone.
	Resolutions(ctx context.Context, refs []decision.Ref) ([]*decision.Resolved, error)
}

// Hosts cut the instructions of a server after about two kilobytes, all toolsets
// together.
const guardInstructions = `Call check_before_pay before every payment, retries included. allow: make this one payment, as asked. review: do not pay, a person must decide. block: do not pay. An error is no allow. Only people decide, with commands of their own: no tool approves, and nothing you send changes a limit.
Pass the offer (one entry of accepts) as received, and resource, the URL really called; without an offer counterparty and amount. Amounts are decimal text in display units ("0.05"), never numbers.
On review, ask a person as handoff says, wait with get_review_status, and once approved check again with the same arguments and review_id. Never pay around it: not in parts, not another address, not another tool.
When several agents share a budget, check with hold: true; release_hold if you then do not pay.`

// guardTools are the tools of the toolset guard. None of them decides a review.
func guardTools(s *service) []tool {
	listingRef := ""
	if s.market != nil {
		listingRef = "check_before_pay.listing_ref.json"
	}
	return []tool{
		{
			name:   "check_before_pay",
			title:  "Check before paying",
			writes: true, // it may open a review or make a hold, and a second hold is another one
			takes:  listingRef,
			description: "Says whether this agent may make one payment now, from all it has recorded and the policy of whom it works for: allow, review (do not pay, a person has to decide) or block (do not pay). " +
				"Call it before every payment, also before a retry, and pay only on allow. Pass the seller's offer as received, or counterparty and amount. " +
				"With hold: true an allowed amount is reserved, so that two agents are not both allowed the same money. It never pays.",
			run: s.checkBeforePay,
		},
		{
			name:       "get_review_status",
			title:      "Get the status of a review",
			idempotent: true,
			waits:      true,
			description: "Says whether a person has decided a review that check_before_pay opened, and waits up to wait_seconds for it. " +
				"An approval is no allow yet: call check_before_pay again with the same arguments and review_id. No tool decides a review. Use this tool instead of checking again and again.",
			run: s.getReviewStatus,
		},
		{
			name:       "get_headroom",
			title:      "Get what the limits leave",
			idempotent: true,
			description: "Says, for each limit of the policy, what is spent, reserved and left of an asset now, and when more is free again. " +
				"It is for planning: only check_before_pay says whether to pay.",
			run: s.getHeadroom,
		},
		{
			name:       "release_hold",
			title:      "Release a hold",
			idempotent: true,
			writes:     true,
			description: "Gives back what check_before_pay reserved for you, when that payment will not be made. Never release a hold whose payment was sent, even if no answer came: " +
				"a hold ends by itself when its payment is on record or its time is over.",
			run: s.releaseHold,
		},
	}
}

// actor is who asks, as far as the transport knows.
func actor(ctx context.Context) string {
	if info := callOf(ctx); info != nil {
		return info.actor
	}
	return ""
}

func (s *service) checkBeforePay(ctx context.Context, a arguments) (answer, error) {
	offer := bytes.Clone(a.root.Get("offer").Raw())
	if offer == nil {
		// What hosts accept of a schema leaves no room for "either or".
		for _, name := range []string{"counterparty", "amount"} {
			if a.text(name) == "" && (name != "counterparty" || a.text("listing_ref") == "") {
				return answer{}, errcode.New(errcode.Input, "give counterparty and amount, or the seller's offer as received", "%q is missing", name)
			}
		}
	}
	v, err := s.guard.Check(ctx, guard.Request{
		Counterparty: a.text("counterparty"),
		Amount:       a.text("amount"),
		Asset:        a.text("asset"),
		Template:     a.text("template"),
		Offer:        json.RawMessage(offer),
		Resource:     a.text("resource"),
		PayTo:        a.text("pay_to"),
		Hold:         a.flag("hold", false),
		ReviewID:     a.text("review_id"),
		ListingRef:   a.text("listing_ref"),
		Actor:        actor(ctx),
	})
	if err != nil {
		return answer{}, err
	}
	return fitting(func(c cut) answer {
		return answer{text: checkText(v, c), json: verdictJSON(v, c)}
	}), nil
}

// checkText begins with what to do, since some hosts show an agent no more
// than a text and some agents read no more than its first line.
func checkText(v *guard.Verdict, c cut) string {
	lines := []string{decisionWords(v)}
	lines = append(lines, reasonLines(v.Reasons, c)...)
	if v.ReviewID != "" {
		lines = append(lines, "review: "+plain.Clean(v.ReviewID, shortText))
	}
	if h := v.Hold; h != nil {
		lines = append(lines, fmt.Sprintf("hold %s: %s of %s is reserved for this payment until %s. Pay before then, or check again; if you will not pay, release_hold.",
			plain.Clean(h.ID, shortText), plain.Clean(h.Amount, shortText), plain.Clean(h.Asset, shortText), instant(h.ExpiresAt)))
	}
	for _, code := range v.Warnings[:min(len(v.Warnings), c.names)] {
		lines = append(lines, warningText(code))
	}
	for _, line := range reasonLines(v.Shadow, cut{reasons: 5, detail: min(c.detail, plain.Detail), text: c.text, room: c.room / 4}) {
		lines = append(lines, "in shadow mode, decides nothing: "+strings.TrimPrefix(line, "- "))
	}
	lines = append(lines, nextSteps(v, c)...)
	lines = append(lines, fmt.Sprintf("checked: %s of %s, recorded until %s",
		count(int(v.Checked.Events), "event"), count(int(v.Checked.Runs), "run"), plain.Clean(v.Checked.Through, shortText)))
	return strings.Join(lines, "\n")
}

func decisionWords(v *guard.Verdict) string {
	switch v.Decision {
	case guard.Allow:
		return "ALLOW: you may make this one payment now, exactly as you asked about it. Check again before any other, a retry included."
	case guard.Block:
		return "BLOCK: do not pay. Nothing you can send changes that."
	case guard.Review:
		if v.ReviewID == "" {
			return "REVIEW: do not pay. A person has to look into it; no review was opened, the reasons say why."
		}
		return "REVIEW: do not pay. A person has to decide, and only a person can."
	default: // cannot be; whatever it is, it is no allow
		return strings.ToUpper(plain.Clean(v.Decision, shortText)) + ": do not pay."
	}
}

// aroundIt is what no answer but an allow leaves open.
const aroundIt = "Do not pay around it: not in parts, not to another address, not with another tool."

// nextSteps says what an agent can do now.
func nextSteps(v *guard.Verdict, c cut) []string {
	var lines []string
	switch v.Decision {
	case guard.Allow:
	case guard.Review:
		lines = handoffLines(v.Handoff, c)
		if v.ReviewID == "" {
			return append(lines, "next: tell the person you work for what the reasons say, and check again when it is put right. "+aroundIt)
		}
		lines = append(lines, "then: get_review_status with wait_seconds says how the review stands. Once it is approved, call check_before_pay again with the same arguments and review_id, and pay only if that says allow. "+aroundIt)
	default:
		lines = append(handoffLines(v.Handoff, c), "next: tell the person you work for what the reasons say. "+aroundIt)
	}
	return lines
}

// handoffLines passes a decision on to a person. An agent that can run commands
// could run this one: that it must not is said each time.
func handoffLines(h *guard.Handoff, c cut) []string {
	if h = reachable(h, c); h == nil {
		return nil
	}
	how := plain.Clean(h.Instruction, c.text)
	if how == "" {
		how = "ask the person who approves payments"
	}
	return []string{"handoff: " + how + ": `" + strings.ReplaceAll(plain.Clean(h.Target, c.way), "`", "'") + "` (for a person; do not do it yourself)"}
}

var warningWords = map[string]string{
	"checksum_mismatch": "the address has a wrong checksum: compare it with where it came from, letter by letter",
	"unknown_network":   "a network is not known here, so payments on it are counted apart",
	"future_time":       "a payment on record lies in the future: a clock is wrong, or somebody wrote it",
	"unsigned_reviews":  "no operator's key is set up, so anybody who can write here could have decided a review",
}

func warningText(code string) string {
	line := "warning: " + plain.Clean(code, shortText)
	if words := warningWords[code]; words != "" {
		line += ": " + words
	}
	return line
}

// evidenceShown is how many operations of a reason its line names.
const evidenceShown = 3

// reasonLines is one line for each rule, as far as there is room.
func reasonLines(reasons []decision.Reason, c cut) []string {
	var lines []string
	for _, r := range someReasons(reasons, c.reasons) {
		line := "- " + plain.Clean(r.Rule, min(plain.Detail, c.text)) + ": " + plain.Clean(r.Detail, c.detail)
		if total := max(r.Total, len(r.Evidence)); total > 0 && c.refs > 0 {
			var shown []string
			for _, ref := range someRefs(r.Evidence, cut{refs: evidenceShown, ids: c.ids}) {
				shown = append(shown, refText(ref))
			}
			if more := total - len(shown); len(shown) == 0 {
				line += " [" + count(total, "operation") + "]"
			} else if more > 0 {
				line += fmt.Sprintf(" [%s; %d more]", strings.Join(shown, "; "), more)
			} else {
				line += " [" + strings.Join(shown, "; ") + "]"
			}
		}
		lines = append(lines, line)
	}
	kept := firstLinesIn(c.room, lines)
	if left := len(reasons) - len(lines); left > 0 {
		kept = append(kept, fmt.Sprintf("... %d rules that fired are left out here", left))
	}
	return kept
}

func refText(ref ingest.Ref) string {
	return shownID(ref) + " of run " + plain.Quote(ref.Run, shortText)
}

func (s *service) getReviewStatus(ctx context.Context, a arguments) (answer, error) {
	id := a.text("review_id")
	r, err := patiently(ctx, s, a.number("wait_seconds", 0), "waiting for a person to decide",
		func(ctx context.Context, wait time.Duration) (*guard.ReviewView, error) {
			return s.guard.Review(ctx, id, wait)
		})
	if err != nil {
		return answer{}, err
	}
	return fitting(func(c cut) answer {
		return answer{text: reviewText(r, c), json: appendReview(nil, r, c)}
	}), nil
}

func reviewText(r *guard.ReviewView, c cut) string {
	text := func(s string) string { return plain.Clean(s, min(c.text, plain.Detail)) }
	lines := []string{statusWords(r)}
	if r.Call != nil {
		lines[0] = callStatusWords(r)
	}

	about := fmt.Sprintf("review %s: %s of %s to %s", plain.Clean(r.ID, shortText), text(r.Amount), text(r.Asset), plain.Quote(r.Counterparty, min(c.text, plain.Detail)))
	if r.PayTo != "" {
		about += ", address " + text(r.PayTo)
	}
	if r.Network != "" {
		about += " on " + text(r.Network)
	}
	if r.Resource != "" {
		about += ", for " + plain.Quote(r.Resource, min(c.text, plain.Detail))
	}
	if call := r.Call; call != nil {
		about = fmt.Sprintf("review %s: a call of %s for %s, risk %s, arguments %s", plain.Clean(r.ID, shortText), plain.Quote(call.Tool, min(c.text, plain.Detail)),
			plain.Quote(call.Resource, min(c.text, plain.Detail)), text(call.Risk), text(call.ArgsHash))
	}
	lines = append(lines, about)

	asked := "opened " + instant(r.CreatedAt)
	if r.AskedBy != "" {
		asked += " for " + plain.Quote(r.AskedBy, shortText)
	}
	if !r.DecidedAt.IsZero() {
		asked += "; decided " + instant(r.DecidedAt)
	}
	if r.DecidedBy != "" {
		asked += " by " + text(r.DecidedBy)
	}
	if r.Status == statusPending || r.Status == statusApproved {
		asked += "; ends " + instant(r.ExpiresAt)
	}
	lines = append(lines, asked)
	if r.Note != "" {
		lines = append(lines, "note: "+plain.Quote(r.Note, c.text))
	}
	if u := r.Used; u != nil {
		switch {
		case u.HoldID != "":
			lines = append(lines, "spent on hold "+plain.Clean(u.HoldID, shortText))
		case u.ReceiptID != "":
			lines = append(lines, "spent on the call of receipt "+plain.Clean(u.ReceiptID, shortText))
		case u.Run != "":
			lines = append(lines, "spent on "+refText(traceRef(u.Run, u.Operation)))
		}
	}
	lines = append(lines, reasonLines(r.Reasons, c)...)
	for _, code := range r.Warnings[:min(len(r.Warnings), c.names)] {
		lines = append(lines, warningText(code))
	}
	if r.Status == statusPending {
		lines = append(lines, handoffLines(r.Handoff, c)...)
		around := aroundIt
		if r.Call != nil {
			around = "Do not do it in another way meanwhile."
		}
		lines = append(lines, "then: call get_review_status with wait_seconds to wait for the decision. "+around)
	}
	return strings.Join(lines, "\n")
}

// The states of a review (guard contract, section 4).
const (
	statusPending  = "pending"
	statusApproved = "approved"
	statusRejected = "rejected"
	statusExpired  = "expired"
	statusUsed     = "used"
	statusRevoked  = "revoked"
)

func statusWords(r *guard.ReviewView) string {
	switch r.Status {
	case statusPending:
		return "PENDING: do not pay. No person has decided yet; silence is no consent."
	case statusApproved:
		return "APPROVED: call check_before_pay again with the same arguments and review_id " + plain.Clean(r.ID, shortText) + ", and pay only if that says allow. It is good for one payment."
	case statusRejected:
		return "REJECTED: do not pay, in no other way either."
	case statusExpired:
		if !r.DecidedAt.IsZero() {
			return "EXPIRED: do not pay. The approval was not used in time. If the payment is still wanted, call check_before_pay anew, without this review_id."
		}
		return "EXPIRED: do not pay. Nobody decided in time, and silence is no consent. If the payment is still wanted, call check_before_pay anew."
	case statusUsed:
		return "USED: the approval has been spent on one payment. Do not pay on it again; call check_before_pay for another payment."
	case statusRevoked:
		return "REVOKED: do not pay. The approval was taken back."
	default: // cannot be; whatever it is, it is no approval
		return strings.ToUpper(plain.Clean(r.Status, shortText)) + ": do not pay."
	}
}

// callStatusWords are statusWords for a review of a tool call.
func callStatusWords(r *guard.ReviewView) string {
	switch r.Status {
	case statusPending:
		return "PENDING: do not make the call. No person has decided yet; silence is no consent."
	case statusApproved:
		return "APPROVED: request_authorization with the same call and review_id " + plain.Clean(r.ID, shortText) + " gives the receipt. It is good for one call, and not for long."
	case statusRejected:
		return "REJECTED: do not make the call, in no other way either."
	case statusExpired:
		return "EXPIRED: do not make the call. Nobody decided, or the receipt was not used, in time. If it is still wanted, ask with request_authorization anew."
	case statusUsed:
		return "USED: the receipt has been spent on one call. For another one ask with request_authorization anew."
	case statusRevoked:
		return "REVOKED: do not make the call. The approval was taken back."
	default: // cannot be; whatever it is, it is no approval
		return strings.ToUpper(plain.Clean(r.Status, shortText)) + ": do not make the call."
	}
}

func (s *service) getHeadroom(ctx context.Context, a arguments) (answer, error) {
	h, err := s.guard.Headroom(ctx, guard.HeadroomQuery{Counterparty: a.text("counterparty"), Asset: a.text("asset")})
	if err != nil {
		return answer{}, err
	}
	return fitting(func(c cut) answer {
		return answer{text: headroomText(h, c), json: headroomJSON(h, c)}
	}), nil
}

func headroomText(h *guard.Headroom, c cut) string {
	asset := plain.Clean(h.Asset, c.text)
	if len(h.Limits) == 0 {
		return "no limit applies to " + asset + " by this question. Check with check_before_pay before each payment all the same."
	}
	var rows []string
	for _, l := range h.Limits[:min(len(h.Limits), c.names)] {
		what := ""
		if l.Counts {
			what = " payments"
		}
		text := func(s string) string { return plain.Clean(s, shortText) }
		row := fmt.Sprintf("- %s (%s, %d h): %s of %s%s left; spent %s, held %s", text(l.Name), text(l.Scope), l.WindowHours, text(l.Headroom), text(l.Limit), what, text(l.Spent), text(l.Held))
		for i, f := range l.FreesUp[:min(len(l.FreesUp), 3)] {
			if i == 0 {
				row += "; frees up "
			} else {
				row += ", "
			}
			row += text(f.Amount) + " at " + instant(f.At)
		}
		if l.Uncounted > 0 {
			row += "; " + count(int(l.Uncounted), "payment") + " cannot be added up, so checks under this limit are reviews unless it is in shadow mode"
		}
		rows = append(rows, row)
	}
	lines := append([]string{"what the limits leave of " + asset + " (for planning; check_before_pay decides)"}, firstLinesIn(c.room, rows)...)
	if left := len(h.Limits) - len(rows); left > 0 {
		lines = append(lines, fmt.Sprintf("... %s more are left out here", count(left, "limit")))
	}
	return strings.Join(lines, "\n")
}

func (s *service) releaseHold(ctx context.Context, a arguments) (answer, error) {
	id := a.text("hold_id")
	if err := s.guard.ReleaseHold(ctx, id, actor(ctx)); err != nil {
		return answer{}, err
	}
	return answer{
		text: "hold " + plain.Clean(id, 128) + " is released: its amount no longer counts. Do not make the payment it was for without a new check_before_pay.",
		json: releaseJSON(id),
	}, nil
}
