package approval

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

// What a record says it was made by.
const (
	Version = "1.0" // of the protocol
	Profile = "B"
)

// The states a gate leaves an action in.
const (
	Locked       = "LOCKED"        // allowed, and it consumes the day's allowance
	HITLRequired = "HITL_REQUIRED" // a person has to approve it
	Blocked      = "BLOCKED"       // refused; no person can approve it either
)

// The rules, in the order of their claims (approvals contract, section 2.2).
const (
	RuleSaneNotional  = "sane-notional"
	RuleAllowedAction = "allowed-action"
	RulePerAssetCap   = "per-asset-cap"
	RuleMaxNotional   = "max-notional"
	RuleDailyCap      = "daily-cap"
	RuleMinConfidence = "min-confidence"
	RuleHumanApproval = "human-approval" // the one claim of an approval
)

// Action is what an agent wants to spend (approvals contract, section 2.1).
type Action struct {
	Action     string   `json:"action"`
	Asset      string   `json:"asset"`
	Notional   float64  `json:"notional"`   // display units
	Confidence *float64 `json:"confidence"` // nil: none given, and no rule about it
	Rationale  string   `json:"rationale,omitempty"`
}

// Policy is what may be spent (approvals contract, section 2.1). The zero value
// lets nothing through.
type Policy struct {
	Version        string             `json:"version"`
	MaxNotional    float64            `json:"max_notional"`
	DailyCap       float64            `json:"daily_cap"`
	HITLThreshold  float64            `json:"hitl_threshold"` // inclusive; 0 or less: always a person
	MinConfidence  float64            `json:"min_confidence"`
	AllowedActions []string           `json:"allowed_actions,omitempty"` // empty: every action
	PerAssetLimits map[string]float64 `json:"per_asset_limits,omitempty"`
}

// DefaultPolicy is the policy where there is none: never an unlimited one
// (approvals contract, section 2.1).
func DefaultPolicy() Policy {
	return Policy{Version: "1.0", MaxNotional: 500, DailyCap: 2500, HITLThreshold: 250, MinConfidence: 0.55}
}

// Claim is what one rule found.
type Claim struct {
	Rule   string `json:"rule"`
	Passed bool   `json:"passed"`
	Detail string `json:"detail"`
}

// Result is the gate's record of a decision (approvals contract, section 2.3).
type Result struct {
	State          string  `json:"state"`
	Allowed        bool    `json:"allowed"`
	RequiresHuman  bool    `json:"requires_human"`
	Reason         string  `json:"reason"`
	Claims         []Claim `json:"claims"`
	ContentHash    string  `json:"content_hash"`
	CommittedDelta float64 `json:"committed_delta"` // what the day's total grows by
}

// Evaluate puts an action through the gate. committed is what the same UTC day
// has already locked; the gate itself remembers nothing. An error is an E_INPUT,
// and the result is then blocked and has no hash.
func Evaluate(a Action, p Policy, committed float64) (Result, error) {
	if err := sound(a, p, committed); err != nil {
		return denied(err)
	}
	claims := rules(a, p, committed)
	failed := failedRules(claims)
	r := Result{State: Locked, Claims: claims}
	switch {
	case len(failed) > 0:
		r.State, r.Reason = Blocked, "blocked: "+strings.Join(failed, ", ")
	case a.Notional >= p.HITLThreshold:
		r.State, r.RequiresHuman = HITLRequired, true
		r.Reason = "human approval required: " + repr(a.Notional) + " >= HITL threshold " + repr(p.HITLThreshold)
	default:
		r.Allowed, r.CommittedDelta = true, a.Notional
		r.Reason = "auto-approved under CHP thresholds"
	}
	return sealed(r, a)
}

// ApproveHuman is Evaluate for an action a person has approved: every rule runs
// again, with what the day has committed by now, and only the threshold is
// waived (approvals contract, section 2.4). The approver stands in the reason and
// not in the hash.
func ApproveHuman(a Action, p Policy, committed float64, approver string) (Result, error) {
	if strings.TrimSpace(approver) == "" || !utf8.ValidString(approver) {
		return denied(errcode.New(errcode.Input, "name the person who approves", "approve an action: the approver has no readable name"))
	}
	r, err := Evaluate(a, p, committed)
	if err != nil {
		return r, err
	}
	if r.State == Blocked {
		r.Reason = "approval by " + approver + " rejected: " + r.Reason
		return r, nil
	}
	return sealed(Result{
		State:          Locked,
		Allowed:        true,
		Reason:         "human-approved by " + approver,
		Claims:         []Claim{{RuleHumanApproval, true, "approved by " + approver}},
		CommittedDelta: a.Notional,
	}, a)
}

// sound is why the gate cannot judge at all. The reference raises on some of
// these and lets others through, an infinite cap among them (approvals contract,
// section 2.6).
func sound(a Action, p Policy, committed float64) error {
	numbers := []struct {
		name  string
		value float64
	}{
		{"notional", a.Notional},
		{"max_notional", p.MaxNotional},
		{"daily_cap", p.DailyCap},
		{"hitl_threshold", p.HITLThreshold},
		{"min_confidence", p.MinConfidence},
		{"committed_today", committed},
	}
	for _, n := range numbers {
		if !finite(n.value) {
			return notFinite(n.name)
		}
	}
	if a.Confidence != nil && !finite(*a.Confidence) {
		return notFinite("confidence")
	}
	for _, limit := range p.PerAssetLimits {
		if !finite(limit) {
			return notFinite("per_asset_limits")
		}
	}
	if !utf8.ValidString(a.Action) || !utf8.ValidString(a.Asset) {
		return errcode.New(errcode.Input, "send action and asset as UTF-8", "evaluate the spend gate: action or asset is not UTF-8 text")
	}
	return nil
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

func notFinite(name string) error {
	return errcode.New(errcode.Input, "give a number a double can hold", "evaluate the spend gate: %s is not a finite number", name)
}

// rules runs all of them: none stops the next, so that a record names everything
// that is wrong.
func rules(a Action, p Policy, committed float64) []Claim {
	n := repr(a.Notional)
	sane := a.Notional > 0
	claims := []Claim{{RuleSaneNotional, sane, "notional=" + n}}
	if len(p.AllowedActions) > 0 {
		claims = append(claims, Claim{RuleAllowedAction, slices.Contains(p.AllowedActions, a.Action), "action " + a.Action})
	}
	limit, ok := p.PerAssetLimits[a.Asset]
	if !ok {
		limit = p.MaxNotional
	}
	projected := committed
	if sane {
		projected += a.Notional // may overflow, and is then over every cap
	}
	claims = append(claims,
		Claim{RulePerAssetCap, a.Notional <= limit, a.Asset + " notional " + n + " vs cap " + repr(limit)},
		Claim{RuleMaxNotional, a.Notional <= p.MaxNotional, n + " vs max " + repr(p.MaxNotional)},
		Claim{RuleDailyCap, projected <= p.DailyCap, "projected " + repr(projected) + " vs daily cap " + repr(p.DailyCap)},
	)
	if a.Confidence != nil {
		claims = append(claims, Claim{RuleMinConfidence, *a.Confidence >= p.MinConfidence,
			"confidence " + repr(*a.Confidence) + " vs min " + repr(p.MinConfidence)})
	}
	return claims
}

// failedRules names the rules that did not pass, in claim order.
func failedRules(claims []Claim) []string {
	failed := []string{}
	for _, c := range claims {
		if !c.Passed {
			failed = append(failed, c.Rule)
		}
	}
	return failed
}

// sealed is the result with its hash.
func sealed(r Result, a Action) (Result, error) {
	text, err := hashed(r, a, canon.Float)
	if err != nil {
		return denied(errcode.Wrap(err, errcode.Input, "send action and asset as UTF-8", "hash a gate decision"))
	}
	r.ContentHash = canon.Sum(text)
	return r, nil
}

// hashed is the canonical text the hash is over (approvals contract, section
// 2.3). Neither who approved nor why stands in it, so that two people who
// approve one action make one record.
func hashed(r Result, a Action, rule canon.Rule) ([]byte, error) {
	failed := failedRules(r.Claims)
	slices.Sort(failed)
	var confidence json.RawMessage
	if a.Confidence != nil {
		confidence = canon.AppendFloat(nil, *a.Confidence)
	}
	text, err := json.Marshal(map[string]any{
		"chp_version":    Version,
		"profile":        Profile,
		"action":         a.Action,
		"asset":          a.Asset,
		"notional":       json.RawMessage(canon.AppendFloat(nil, a.Notional)),
		"confidence":     confidence, // null when there is none
		"state":          r.State,
		"allowed":        r.Allowed,
		"requires_human": r.RequiresHuman,
		"failed_rules":   failed,
	})
	if err != nil {
		return nil, err
	}
	return canon.Text(text, rule)
}

// denied is the result beside an error: who drops the error is still refused.
func denied(err error) (Result, error) {
	return Result{State: Blocked, Reason: "blocked: " + errcode.Of(err).Message, Claims: []Claim{}}, err
}

// repr is a number in the form details and reasons have it.
func repr(f float64) string { return string(canon.AppendFloat(nil, f)) }
