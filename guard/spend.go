package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/store"
)

// SpendRequest is a question to the spend gate alone. The members are as they came.
type SpendRequest struct {
	Action    json.RawMessage // {action, asset, notional, confidence?, rationale?}
	Policy    json.RawMessage // one the caller brought: the answer is then advisory; nil for none
	Committed json.RawMessage // what the caller says the day has committed; nil for nothing
	Actor     string
}

// SpendAnswer is what the gate says.
type SpendAnswer struct {
	approval.Result
	Advisory  bool                  // by a policy the caller brought; it counts nowhere
	Deny      *approval.DenyReceipt // where it is blocked
	Committed string                // what the day had taken, decimal text
	Doubt     string                // why the stricter of two states counts, "" when they agree
	Warnings  []string              // default_gate: none is configured
	Seq       int64
}

// gateConfigured names the gate of the policy file in the log.
const gateConfigured = "spendGate"

// defaultGate is the gate where none is configured: never an unlimited one (approvals
// contract, section 2.1).
var defaultGate = approval.Gate{Version: "1.0", MaxNotional: "500", DailyCap: "2500", HITLThreshold: "250", MinConfidence: "0.55"}

// EvaluateSpend answers evaluate_spend_gate. It mints nothing and counts nothing; a
// refusal is in the log before it is told.
func (g *Guard) EvaluateSpend(ctx context.Context, r SpendRequest) (*SpendAnswer, error) {
	q, err := g.spendCase(r)
	if err != nil {
		return nil, err
	}
	a := &SpendAnswer{Advisory: r.Policy != nil}
	if r.Policy == nil && g.policy.SpendGate == nil {
		a.Warnings = []string{"default_gate"}
	}
	decide := func(s *decision.State, spent, held, unknown string) ([]decision.Body, error) {
		now := g.now()
		committed, err := g.committed(s, gateConfigured, "", spent, held, q.claimed, now)
		if err != nil {
			return nil, err
		}
		if a.Advisory {
			committed = q.claimed
		}
		v := q.judge(committed, unknown)
		a.Result, a.Committed, a.Doubt, a.Deny = v.Record, committed, "", nil
		if v.Record.State != v.State {
			a.stricter(v)
		}
		if v.State == approval.Locked {
			return nil, nil
		}
		return a.refusal(q, v, now)
	}
	s, err := g.decideSpend(ctx, r.Actor, q, a.Advisory, decide)
	if err != nil {
		return nil, err
	}
	if a.State != approval.Locked {
		a.Seq = s.Lines()
	}
	return a, nil
}

// decideSpend runs decide under the lock, with what the trace shows of the day.
func (g *Guard) decideSpend(ctx context.Context, actor string, q *spendCase, advisory bool, decide func(s *decision.State, spent, held, unknown string) ([]decision.Body, error)) (*decision.State, error) {
	alone := func(unknown string) (*decision.State, error) {
		return g.update(ctx, actor, func(s *decision.State) ([]decision.Body, error) { return decide(s, "0", "0", unknown) })
	}
	key, why := g.policy.resolve(q.action.Asset)
	if advisory || why != "" {
		return alone("") // the trace knows nothing of such an asset
	}
	if g.o.Fault != nil {
		return alone("what was spent today is not known: " + whyNot(g.o.Fault))
	}
	covered, err := g.ready(ctx)
	if err != nil {
		return alone("what was spent today is not known: " + whyNot(err))
	}
	return g.decide(ctx, actor, covered, func(view *store.View, s *decision.State) ([]decision.Body, error) {
		day, err := g.today(view, s, key)
		if err != nil {
			return nil, err
		}
		unknown := ""
		if day.Unreadable > 0 {
			unknown = fmt.Sprintf("%s of today cannot be read, so the day cannot be added up", several64(day.Unreadable, "payment", "payments"))
		}
		return decide(s, g.policy.Units(key, day.Spent), g.policy.Units(key, day.Held), unknown)
	})
}

func whyNot(err error) string { return plain.Clean(why(err), plain.Detail) }

// today is what the trace shows as spent of an asset since midnight UTC, and what is
// held of it (approvals contract, section 9.7).
func (g *Guard) today(view *store.View, s *decision.State, key string) (Window, error) {
	now := g.now()
	q := g.newGathering(view, s, &Ask{}, now)
	var err error
	if q.m, err = g.match(view, s, now); err != nil {
		return Window{}, err
	}
	if q.asset, err = q.number(key); err != nil {
		return Window{}, err
	}
	day, err := q.everything(q.asset, q.now-q.now%(24*time.Hour.Milliseconds())-1)
	if err == nil {
		q.held(&day, key, func(*decision.Intent) bool { return true })
	}
	return day, err
}

// committed is what the day of a gate has taken of its cap, but for one receipt. A
// caller's larger figure is believed (approvals contract, section 9.7).
func (g *Guard) committed(s *decision.State, gate, except, spent, held, claimed string, now time.Time) (string, error) {
	var all []approval.Authorised
	for r := range s.Spends(gate, now) {
		if r.ReceiptID != except {
			all = append(all, approval.Authorised{Amount: r.Spend.Notional, At: r.At, Expires: r.ExpiresAt, BurntAt: r.BurntAt})
		}
	}
	return approval.Committed(now, all, spent, held, claimed)
}

// spendCase is a question to a gate that was read: as doubles, as the protocol has
// them, and as exact decimals.
type spendCase struct {
	action     approval.Action
	notional   string // decimal text; "" where it is negative
	policy     approval.Policy
	gate       *approval.Gate // nil where some limit is negative
	claimed    string         // decimal text
	actionHash string
}

func (g *Guard) spendCase(r SpendRequest) (*spendCase, error) {
	q := &spendCase{claimed: "0"}
	action, err := parsed("action", r.Action, approval.ParseAction, &q.action)
	if err != nil {
		return nil, err
	}
	q.notional, _ = plainDecimal(string(action.Get("notional").Raw()))
	if q.actionHash, err = canon.Hash(action, canon.Float); err != nil {
		return nil, faulty("action", err)
	}
	if r.Committed != nil {
		text, ok := plainDecimal(string(r.Committed))
		if !ok {
			return nil, errcode.New(errcode.Input, "a number of 0 or more", "committed_today is no amount")
		}
		q.claimed = text
	}
	if r.Policy == nil {
		gate := defaultGate
		if g.policy.SpendGate != nil {
			gate = *g.policy.SpendGate
		}
		q.gate, q.policy = &gate, doubles(gate)
		return q, nil
	}
	policy, err := parsed("policy", r.Policy, approval.ParsePolicy, &q.policy)
	if err != nil {
		return nil, err
	}
	q.gate = exactGate(policy, q.policy)
	return q, nil
}

// parsed reads a member with a reader of the approval package.
func parsed[T any](name string, raw json.RawMessage, read func(jsjson.Node) (T, error), to *T) (jsjson.Node, error) {
	var doc jsjson.Doc
	err := doc.Parse(raw)
	if err == nil {
		*to, err = read(doc.Root())
	}
	if err != nil {
		return jsjson.Node{}, faulty(name, err)
	}
	return doc.Root(), nil
}

func faulty(name string, err error) error {
	return errcode.New(errcode.Input, "give "+name+" as the schema has it", "read %s: %s", name, plain.Clean(err.Error(), plain.Detail))
}

// exactGate is a policy of JSON numbers as the gate in exact decimals; nil where some
// number is negative, which only the protocol's doubles have a meaning for.
func exactGate(n jsjson.Node, p approval.Policy) *approval.Gate {
	g := &approval.Gate{Version: p.Version, AllowedActions: p.AllowedActions, PerAssetLimits: map[string]string{}}
	ok := true
	read := func(v jsjson.Node) string {
		text, good := plainDecimal(string(v.Raw()))
		ok = ok && good
		return text
	}
	g.MaxNotional, g.DailyCap = read(n.Get("max_notional")), read(n.Get("daily_cap"))
	g.HITLThreshold, g.MinConfidence = read(n.Get("hitl_threshold")), read(n.Get("min_confidence"))
	for asset, v := range n.Get("per_asset_limits").Members() {
		g.PerAssetLimits[string(asset.Text())] = read(v)
	}
	if !ok {
		return nil
	}
	return g
}

// doubles are the limits of a gate as the protocol's policy.
func doubles(g approval.Gate) approval.Policy {
	p := approval.Policy{Version: g.Version, MaxNotional: double(g.MaxNotional), DailyCap: double(g.DailyCap), HITLThreshold: double(g.HITLThreshold), MinConfidence: double(g.MinConfidence),
		AllowedActions: g.AllowedActions, PerAssetLimits: map[string]float64{}}
	for asset, limit := range g.PerAssetLimits {
		p.PerAssetLimits[asset] = double(limit)
	}
	return p
}

// double is the double nearest to an exact text, for the protocol's records.
func double(text string) float64 {
	if text == "" {
		return 0 // nothing was said
	}
	return jsjson.Double(text)
}

// judge takes the stricter of what doubles and exact decimals say (approvals
// contract, section 9.6), and is a denial where something is not known that counts.
func (q *spendCase) judge(committed, unknown string) approval.Verdict {
	record, err := approval.Evaluate(q.action, q.policy, double(committed))
	v := approval.Verdict{State: record.State, Record: record, Claims: record.Claims}
	if err != nil || record.State != approval.Locked {
		v.Reasons = []string{record.Reason}
	}
	if q.gate != nil && q.notional != "" {
		exact := q.gate.Judge(approval.Payment{Action: q.action.Action, Asset: q.action.Asset, Amount: q.notional, Committed: committed})
		if strictness(exact.State) > strictness(v.State) {
			v.State, v.Reasons = exact.State, exact.Reasons
		}
	}
	if unknown != "" {
		v.State, v.Reasons = approval.Blocked, append(v.Reasons, unknown)
	}
	return v
}

func strictness(state string) int {
	return slices.Index([]string{approval.Locked, approval.HITLRequired, approval.Blocked}, state)
}

// stricter puts the state that counts into an answer whose record says another.
func (a *SpendAnswer) stricter(v approval.Verdict) {
	a.State, a.Allowed, a.RequiresHuman, a.CommittedDelta = v.State, false, v.State == approval.HITLRequired, 0
	a.Reason = "in exact amounts, or with what is known of the day: " + strings.Join(v.Reasons, "; ")
	a.Doubt = "the record says " + v.Record.State + "; the stricter state counts"
}

// refusal is the line of an answer that permits nothing, and for a blocked one what
// the protocol calls a deny receipt.
func (a *SpendAnswer) refusal(q *spendCase, v approval.Verdict, now time.Time) ([]decision.Body, error) {
	id, err := newID("d")
	if err != nil {
		return nil, err
	}
	code, policy := CodePending, gateConfigured
	if v.State == approval.Blocked {
		code = approval.CodePolicyDeny
		deny := approval.NewDenyReceipt(approval.DenyReceipt{ReceiptID: id, Tool: toolEvaluateSpend, ReasonCode: code, Detail: shown(a.Reason), ArgsHash: q.actionHash}, now)
		a.Deny = &deny
	}
	detail := a.Reason
	if a.Advisory {
		policy, detail = "", "under a policy of the caller's: "+detail
	}
	return []decision.Body{decision.Denied{Tool: toolEvaluateSpend, ReasonCode: code, Detail: shown(detail), ArgsHash: q.actionHash, ReceiptID: id, Policy: policy, Canon: approval.CanonName}}, nil
}

// longestNumber and largestExponent bound a number that is read exactly.
const (
	longestNumber   = 80
	largestExponent = 60
)

// jsonNumber is a number as JSON has it: sign, digits before and behind the point,
// exponent.
var jsonNumber = regexp.MustCompile(`^(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?$`)

// plainDecimal is the exact decimal text of a JSON number that is not negative.
func plainDecimal(number string) (string, bool) {
	part := jsonNumber.FindStringSubmatch(number)
	if part == nil || len(number) > longestNumber {
		return "", false
	}
	digits, fraction, e := part[2]+part[3], len(part[3]), 0
	if part[1] != "" && strings.Trim(digits, "0") != "" {
		return "", false
	}
	if part[4] != "" {
		var err error
		if e, err = strconv.Atoi(part[4]); err != nil || e > largestExponent || e < -largestExponent {
			return "", false
		}
	}
	if e > fraction {
		digits, fraction = digits+strings.Repeat("0", e-fraction), 0
	} else {
		fraction -= e
	}
	if pad := fraction + 1 - len(digits); pad > 0 {
		digits = strings.Repeat("0", pad) + digits
	}
	whole := strings.TrimLeft(digits[:len(digits)-fraction], "0")
	if whole == "" {
		whole = "0"
	}
	if rest := strings.TrimRight(digits[len(digits)-fraction:], "0"); rest != "" {
		return whole + "." + rest, true
	}
	return whole, true
}
