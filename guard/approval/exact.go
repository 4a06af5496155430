package approval

import (
	"slices"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

// ActionPay is the action of a payment (approvals contract, section 9.7).
const ActionPay = "PAY"

// Gate is the spend gate as a policy file configures it: a [Policy] in decimal
// texts (approvals contract, section 9.6). The zero value blocks everything.
type Gate struct {
	Version        string            `json:"version"`
	MaxNotional    string            `json:"max_notional"`
	DailyCap       string            `json:"daily_cap"`
	HITLThreshold  string            `json:"hitl_threshold"` // inclusive; "0": always a person
	MinConfidence  string            `json:"min_confidence"`
	AllowedActions []string          `json:"allowed_actions,omitempty"`
	PerAssetLimits map[string]string `json:"per_asset_limits,omitempty"`
}

// Payment is what the guard asks a gate about.
type Payment struct {
	Action    string // [ActionPay]
	Asset     string // as per_asset_limits names it: the symbol of the asset
	Amount    string // display units, decimal text
	Committed string // display units: what the same UTC day has already locked
}

// Verdict is a gate's answer about a payment.
type Verdict struct {
	// State is the stricter of what exact decimals and the record say.
	State string
	// Reasons says why, one sentence each: what failed, or that a person is
	// needed; and, last, what the record says where it disagrees. It is empty
	// when the payment may go ahead. The sentences hold Asset and Action as
	// they came.
	Reasons []string
	// Claims are the gate's claims in exact decimals.
	Claims []Claim
	// Record is the protocol's record, computed with doubles: provenance, and
	// never what allows a payment that the exact amounts do not.
	Record Result
	// Disagree is set when rounding gave the record another state.
	Disagree bool
}

// Judge puts a payment through the gate: with exact decimals, which decide, and
// as the protocol does, which makes the record. What cannot be read is blocked.
func (g Gate) Judge(p Payment) Verdict {
	q, err := g.question(p)
	if err != nil {
		return unreadable(err)
	}
	record, err := Evaluate(q.doubles())
	if err != nil {
		return unreadable(err)
	}
	return q.verdict(record, false)
}

// Approve is Judge for a payment a person has approved: every rule runs again,
// and only the threshold is waived (approvals contract, section 2.4).
func (g Gate) Approve(p Payment, approver string) Verdict {
	q, err := g.question(p)
	if err != nil {
		return unreadable(err)
	}
	action, policy, committed := q.doubles()
	record, err := ApproveHuman(action, policy, committed, approver)
	if err != nil {
		return unreadable(err)
	}
	return q.verdict(record, true)
}

// question is a payment and the gate it is put to, in exact decimals.
type question struct {
	Payment
	actions                             []string
	amount, committed                   decimal
	most, day, threshold, minConfidence decimal
	limits                              map[string]decimal
}

func (g Gate) question(p Payment) (question, error) {
	q := question{Payment: p, actions: g.AllowedActions, limits: map[string]decimal{}}
	for _, f := range []struct {
		name, text string
		to         *decimal
	}{
		{"amount", p.Amount, &q.amount},
		{"committed", p.Committed, &q.committed},
		{"max_notional", g.MaxNotional, &q.most},
		{"daily_cap", g.DailyCap, &q.day},
		{"hitl_threshold", g.HITLThreshold, &q.threshold},
		{"min_confidence", g.MinConfidence, &q.minConfidence},
	} {
		d, err := readDecimal(f.text)
		if err != nil {
			return q, unreadableNumber(f.name, err)
		}
		*f.to = d
	}
	for asset, text := range g.PerAssetLimits {
		d, err := readDecimal(text)
		if err != nil {
			return q, unreadableNumber("per_asset_limits", err)
		}
		q.limits[asset] = d
	}
	return q, nil
}

func unreadableNumber(name string, err error) error {
	return errcode.Wrap(err, errcode.Input, "give amounts as decimal text", "evaluate the spend gate: %s", name)
}

// claims is the gate of section 2.2. There is no confidence: nobody claims one
// about a payment.
func (q question) claims() []Claim {
	n := q.amount.String()
	limit, ok := q.limits[q.Asset]
	if !ok {
		limit = q.most
	}
	projected := q.committed.plus(q.amount) // no amount is negative, and zero adds nothing
	claims := []Claim{{RuleSaneNotional, q.amount.value.Sign() > 0, "notional=" + n}}
	if len(q.actions) > 0 {
		claims = append(claims, Claim{RuleAllowedAction, slices.Contains(q.actions, q.Action), "action " + q.Action})
	}
	return append(claims,
		Claim{RulePerAssetCap, q.amount.atMost(limit), q.Asset + " notional " + n + " vs cap " + limit.String()},
		Claim{RuleMaxNotional, q.amount.atMost(q.most), n + " vs max " + q.most.String()},
		Claim{RuleDailyCap, projected.atMost(q.day), "projected " + projected.String() + " vs daily cap " + q.day.String()},
	)
}

// doubles is the same question as the protocol asks it.
func (q question) doubles() (Action, Policy, float64) {
	limits := map[string]float64{}
	for asset, d := range q.limits {
		limits[asset] = d.double()
	}
	return Action{Action: q.Action, Asset: q.Asset, Notional: q.amount.double()}, Policy{
		MaxNotional:    q.most.double(),
		DailyCap:       q.day.double(),
		HITLThreshold:  q.threshold.double(),
		MinConfidence:  q.minConfidence.double(),
		AllowedActions: q.actions,
		PerAssetLimits: limits,
	}, q.committed.double()
}

// strict orders the states.
var strict = []string{Locked, HITLRequired, Blocked}

// verdict takes the stricter of what the exact amounts and the record say, and
// says so where they differ: doubles put 0.1 + 0.2 above 0.3, and who reads
// BLOCKED beside three such numbers has to learn why.
func (q question) verdict(record Result, approved bool) Verdict {
	v := Verdict{State: Locked, Claims: q.claims(), Record: record}
	for _, c := range v.Claims {
		if !c.Passed {
			v.State = Blocked
			v.Reasons = append(v.Reasons, c.Rule+": "+c.Detail)
		}
	}
	if v.State == Locked && !approved && q.threshold.atMost(q.amount) {
		v.State = HITLRequired
		v.Reasons = []string{"human approval required: " + q.amount.String() + " >= HITL threshold " + q.threshold.String()}
	}
	if v.Disagree = record.State != v.State; v.Disagree {
		v.Reasons = append(v.Reasons, "in doubles, as the protocol computes, the gate says "+record.State+" ("+record.Reason+
			"); in exact amounts "+v.State+"; the stricter counts")
		if slices.Index(strict, record.State) > slices.Index(strict, v.State) {
			v.State = record.State
		}
	}
	return v
}

func unreadable(err error) Verdict {
	record, _ := denied(err)
	return Verdict{State: Blocked, Reasons: []string{record.Reason}, Claims: []Claim{}, Record: record}
}
