package guard

import (
	"fmt"
	"slices"
	"time"

	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// Judge applies the rules of the guard contract, section 1, in table order. It is
// pure: the same arguments give the same verdict, and none of them is changed. A nil
// policy is one that could not be read: it makes not_ready fire.
func Judge(p *Policy, f *Facts, r *Record, a *Ask, now time.Time) *Verdict {
	q := &question{p: p, f: f, r: r, a: a, now: now}
	v := &Verdict{Decision: Allow, Checked: f.Checked, Warnings: q.warnings(), blocks: map[string]bool{}}
	if v.Checked.Through == "" {
		v.Checked.Through = now.UTC().Format(time.RFC3339)
	}
	v.noReview = q.notReadyWhy() != "" || r.Unsound != ""

	// Redeeming an approval appends a line, so where nothing can be appended no
	// approval waives anything.
	approval := r.Approval
	if v.noReview {
		approval = nil
	}
	var waived []string
	place := 0 // of the first waived rule
	for _, rule := range rules {
		if q.lacks(rule.needs) {
			continue
		}
		for _, fired := range rule.fires(q) {
			if fired.Rule == "" {
				fired.Rule = rule.name
			}
			if fired.gives == "" {
				fired.gives = rule.gives
			}
			if fired.shadow {
				v.Shadow = append(v.Shadow, fired.Reason)
				continue
			}
			v.Fired = append(v.Fired, fired.Reason)
			switch {
			case fired.gives == Block:
				v.Decision, v.blocks[fired.Rule] = Block, true
			case approval != nil && rule.waives != nil && q.covers(approval, rule.waives, fired.Reason):
				if waived == nil {
					place = len(v.Reasons)
				}
				waived = append(waived, fired.Rule)
				continue
			case v.Decision == Allow:
				v.Decision = Review
			}
			v.Reasons = append(v.Reasons, fired.Reason)
		}
	}
	if waived != nil {
		v.Reasons = slices.Insert(v.Reasons, place, q.approved(approval, waived))
	}
	if approval != nil && v.Decision == Allow {
		v.Redeems = approval.ReviewID
	}
	history := decision.Reason{Rule: "history", Detail: q.history(approval, v)}
	v.Reasons = append(v.Reasons, history)
	v.Fired = append(v.Fired, history)
	return v
}

// NoReview reports that the log cannot be trusted or written: nothing is appended
// and no review is opened (guard contract, section 1, not_ready and log_unsound).
func (v *Verdict) NoReview() bool { return v.noReview }

// question is everything a rule may look at.
type question struct {
	p   *Policy
	f   *Facts
	r   *Record
	a   *Ask
	now time.Time
}

// need says what a rule cannot do without. A rule that lacks it is off; the rule
// that says why it is missing has fired.
type need uint8

const (
	needPolicy need = 1 << iota
	needFacts
	needAmount
)

func (q *question) lacks(n need) bool {
	return n&needPolicy != 0 && q.p == nil ||
		n&needFacts != 0 && q.notReadyWhy() != "" ||
		n&needAmount != 0 && !q.amountRead()
}

// amountRead reports that the payment has an amount to compare. A payment of nothing
// has none (guard contract, section 1, unparseable_amount).
func (q *question) amountRead() bool {
	_, ok := payment.Amount(q.a.Intent.Amount)
	return ok && q.a.MoneyRule == "" && q.a.Intent.Amount != "0"
}

// notReadyWhy says why there is nothing to judge by.
func (q *question) notReadyWhy() string {
	if q.f.NotReady == "" && q.p == nil {
		return "there is no policy to judge by: mend the policy file and start again"
	}
	return q.f.NotReady
}

// finding is a rule that fired. Its rule and what it gives are those of the table
// where it does not say.
type finding struct {
	decision.Reason
	gives  string
	shadow bool
}

// rule is a row of the table. waives tells whether an approval that lists the rule
// covers what the rule sees now; without one no approval does.
type rule struct {
	name   string
	gives  string // "": as configured
	needs  need
	waives waiver
	fires  func(*question) []finding
}

// rules is the table of the guard contract, section 1, and behind it that of the
// market contract, section 7.
var rules = []rule{
	{"not_ready", Review, 0, nil, (*question).notReady},
	{"frozen", Block, 0, nil, (*question).frozen},
	{"log_unsound", Review, 0, nil, (*question).logUnsound},
	{"recorder_silent", Review, needFacts, byName, (*question).recorderSilent},
	{"denylist", Block, needPolicy, nil, (*question).denylist},
	{"rejected_by_human", Block, 0, nil, (*question).rejectedByHuman},
	{"recently_rejected", Review, 0, byWords, (*question).recentlyRejected},
	{"allowlist", Review, needPolicy, byName, (*question).allowlist},
	{"open_partial", Review, needPolicy | needFacts, byEvidence, (*question).openPartial},
	{"duplicate_purchase", Review, needFacts | needAmount, byEvidence, (*question).duplicatePurchase},
	{"unknown_asset", Review, needPolicy, byName, (*question).unknownAsset},
	{"unparseable_amount", Review, needPolicy, byName, (*question).unparseableAmount},
	{"asset_mismatch", Review, needPolicy, byName, (*question).assetMismatch},
	{"per_counterparty_limit", Review, needPolicy | needFacts | needAmount, byTotals, (*question).perCounterpartyLimit},
	{"mixed_assets", Review, needFacts, byEvidence, (*question).mixedAssets},
	{"unparseable_history", Review, needFacts, byEvidence, (*question).unparseableHistory},
	{"spend_gate", "", needFacts | needAmount, byTotals, (*question).spendGate},
	{"limit:", "", needPolicy | needFacts, byTotals, (*question).limits},
	{"review_above", Review, needPolicy | needAmount, byName, (*question).reviewAbove},
	{"payee_changed", Review, needFacts, byEvidence, (*question).payeeChanged},
	{"price_drift", Review, needPolicy | needFacts | needAmount, byName, (*question).priceDrift},
	{"damaged_history", Review, needPolicy | needFacts, byDamage, (*question).damagedHistory},
	{"listing_unknown_or_stale", Review, 0, byWords, (*question).listingUnknown},
	{"listing_not_payable", Block, 0, nil, (*question).listingNotPayable},
	{"listing_amount_out_of_range", Review, needPolicy | needAmount, byWords, (*question).listingAmount},
	{"listing_currency_mismatch", Review, needPolicy, byWords, (*question).listingCurrency},
	{"listing_network_missing", Block, 0, nil, (*question).listingNetwork},
	{"listing_new_trader", Review, needPolicy, byWords, (*question).listingNewTrader},
	{"listing_text_flagged", Review, 0, byWords, (*question).listingText},
}

// fire is the finding of a rule that says nothing but this.
func fire(format string, args ...any) []finding {
	return []finding{{Reason: decision.Reason{Detail: fmt.Sprintf(format, args...)}}}
}

// give overrides what the table says a rule gives.
func give(decision string, found []finding) []finding {
	found[0].gives = decision
	return found
}

// with names the operations a rule fired for.
func (e Evidence) with(found []finding) []finding {
	refs := e.Refs[:min(len(e.Refs), maxEvidence)]
	found[0].Evidence = slices.Clone(refs)
	if total := e.total(); total > len(refs) {
		found[0].Total = total
	}
	return found
}

func (e Evidence) total() int { return max(e.Total, len(e.Refs)) }

// history always stands last.
func (q *question) history(approval *decision.Opened, v *Verdict) string {
	f, none := q.f, q.notReadyWhy() != ""
	if none {
		f = &Facts{Window: Window{Spent: "0", Held: "0"}}
	}
	text := fmt.Sprintf("%s with %s: %d full, %d partial, %d open, %d blind",
		several64(f.Full+f.Partial, "operation", "operations"), q.who(), f.Full, f.Partial, f.Open.total(), f.Blind)
	switch limit, ok := q.cap(); {
	case ok:
		text += fmt.Sprintf("; spent %s and held %s %s", q.money(f.Window.Spent), q.money(f.Window.Held), last(limit.WindowHours))
	case none:
		text += "; spent 0 and held 0"
	default:
		text += "; what was spent and held in that asset is not known"
	}
	if f.AnyPartialCounts {
		text += fmt.Sprintf("; the template %s names no stage roles, so every partial operation counts as open", plain.Quote(q.a.Template, plain.Detail))
	}
	switch {
	case approval == nil && q.r.NoApproval != "":
		text += "; " + plain.Clean(q.r.NoApproval, plain.Explanation)
	case approval != nil && v.Redeems != "":
		text += fmt.Sprintf("; this payment uses up review %s", plain.Clean(approval.ReviewID, plain.Detail))
	case approval != nil:
		text += fmt.Sprintf("; review %s does not cover all of this and is not used up", plain.Clean(approval.ReviewID, plain.Detail))
	}
	return text
}

// cap is the limit per counterparty of the asset that is asked about, if it has one.
func (q *question) cap() (limit Cap, ok bool) {
	if q.p != nil {
		limit, _, ok = q.p.CapOf(q.a.Intent.Asset)
	}
	return limit, ok
}

// warnings are codes, each where it first appears.
func (q *question) warnings() []string {
	var all []string
	add := func(code string) {
		if !slices.Contains(all, code) {
			all = append(all, code)
		}
	}
	for _, code := range q.a.Warnings {
		add(code)
	}
	if q.f.FutureTime {
		add("future_time")
	}
	if q.f.UnknownNetwork {
		add("unknown_network")
	}
	if q.p != nil && len(q.p.Operators) == 0 {
		add("unsigned_reviews")
	}
	return all
}
