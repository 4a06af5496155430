package guard

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// FinanceTool is one of the synthetic tools of the published server, which show how a
// tool that spends is put behind the gate (approvals contract, section 3.1). None of
// them does anything but answer.
type FinanceTool struct {
	Name, Scope, Description string
	Gate                     approval.Gate

	required, optional []string
	notional           string // the argument that is the amount
	asset              string // the argument that is the asset
	action             string // "" where the side of the order is
	counterparty       string // the argument that is who gets it, "" for none
	unbound            []string
	result             func(id string) object
}

type object = map[string]any

// financePolicy is the name the synthetic tools have as a tool policy.
const financePolicy = "demo-finance"

// FinanceTools are the synthetic tools.
var FinanceTools = []FinanceTool{
	{
		Name: "place_equity_order", Scope: "trading:equities:place", Description: "places a synthetic order for shares",
		Gate:     approval.Gate{Version: "1.0", MaxNotional: "500", DailyCap: "2500", HITLThreshold: "250", MinConfidence: "0.55", AllowedActions: []string{"BUY", "SELL"}},
		required: []string{"symbol", "side", "quantity", "notional"}, optional: []string{"limit_price", "confidence"}, unbound: []string{"rationale"},
		notional: "notional", asset: "symbol",
		result: func(id string) object {
			return object{"status": "accepted", "venue": "SIM-EQUITY", "order_id": "sim-eq-" + id}
		},
	},
	{
		Name: "wire_treasury_transfer", Scope: "treasury:wire", Description: "queues a synthetic wire transfer",
		Gate:     approval.Gate{Version: "1.0", MaxNotional: "10000", DailyCap: "25000", HITLThreshold: "0", MinConfidence: "0.7", AllowedActions: []string{"WIRE"}},
		required: []string{"from_account", "to_account", "amount"}, optional: []string{"currency", "memo"}, unbound: []string{"confidence"},
		notional: "amount", asset: "currency", action: "WIRE", counterparty: "to_account",
		result: func(id string) object {
			return object{"status": "queued", "rail": "SIM-WIRE", "transfer_id": "sim-wire-" + id}
		},
	},
	{
		Name: "rebalance_portfolio", Scope: "portfolio:rebalance", Description: "schedules a synthetic rebalancing",
		Gate:     approval.Gate{Version: "1.0", MaxNotional: "50000", DailyCap: "100000", HITLThreshold: "1000", MinConfidence: "0.6", AllowedActions: []string{"REBALANCE"}},
		required: []string{"portfolio_id", "notional"}, optional: []string{"target_weights", "confidence"},
		notional: "notional", asset: "portfolio_id", action: "REBALANCE",
		result: func(id string) object {
			return object{"status": "scheduled", "desk": "SIM-PORTFOLIO", "rebalance_id": "sim-rb-" + id}
		},
	},
}

// financeTool looks a tool up by its exact name.
func financeTool(name string) *FinanceTool {
	i := slices.IndexFunc(FinanceTools, func(t FinanceTool) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &FinanceTools[i]
}

// toolPolicy is what tool approval asks about the synthetic tools: which there are,
// under which scope. What they may spend is for their gates.
func toolPolicy() *approval.ToolPolicy {
	names, scopes, risk := []string{}, map[string][]string{}, map[string]string{}
	for _, t := range FinanceTools {
		names, scopes[t.Name], risk[t.Name] = append(names, t.Name), []string{t.Scope}, approval.RiskCritical
	}
	text, err := json.Marshal(object{"version": "1.0", "allowed_tools": names, "allowed_resources": scopes, "tool_risk": risk, "max_ttl_seconds": approval.MaxSpendTTL.Seconds()})
	if err != nil {
		return nil // names and numbers always marshal
	}
	var doc jsjson.Doc
	if doc.Parse(text) != nil {
		return nil
	}
	p, err := approval.ParseToolPolicy(doc.Root())
	if err != nil {
		return nil
	}
	return p
}

// FinanceRequest asks for an authorisation of a synthetic tool, or to run one.
type FinanceRequest struct {
	Tool       string
	Args       json.RawMessage // an object
	Scope      string          // "" for not given
	Policy     json.RawMessage // one the caller brought; nil for none
	Approver   bool            // the caller named one
	Committed  json.RawMessage // what the caller says the day has committed; nil for nothing
	TTLSeconds *float64
	ReviewID   string
	Receipt    json.RawMessage // to run it; nil for none
	Actor      string
	Person     bool // as in ToolRequest
	Off        bool // the synthetic tools are not offered here

	// Action is what the caller says the gate should be asked; nil for nothing. It has
	// to be what Args come to (approvals contract, section 7, W6).
	Action json.RawMessage
}

// FinanceAnswer answers a FinanceRequest.
type FinanceAnswer struct {
	OK            bool
	Pending       bool
	Advisory      bool
	State         string // LOCKED, HITL_REQUIRED, BLOCKED; "" where it did not come to the gate
	Gate          *approval.Result
	Authorization *approval.Authorization
	Receipt       *approval.Receipt
	Deny          *approval.DenyReceipt
	Code          string          // of tool approval, that Deny's stands for
	Result        json.RawMessage // of a tool that ran
	ReceiptID     string
	ReviewID      string
	Handoff       *Handoff
	Seq           int64
}

// financeCase is a question about a synthetic tool that was read.
type financeCase struct {
	*toolCase
	of       *FinanceTool
	echo     object // the arguments, for the result
	argsHash string
	wrong    string           // why it could not be read
	advice   *approval.Result // under a policy of the caller's
	claimed  string
}

func (g *Guard) financeCase(tool string, r FinanceRequest) *financeCase {
	q := &financeCase{claimed: "0", toolCase: &toolCase{tool: tool, name: financePolicy, policy: toolPolicy(), actor: r.Actor, review: r.ReviewID,
		ttl: r.TTLSeconds, person: r.Person, hash: g.hash, advisory: r.Policy != nil}}
	q.call.Tool, q.call.Resource = r.Tool, r.Scope
	if !r.Off {
		q.of = financeTool(r.Tool)
	}
	if r.Committed != nil {
		claimed, ok := plainDecimal(string(r.Committed))
		if !ok {
			q.wrong = "committed_today is no amount"
			return q
		}
		q.claimed = claimed
	}
	switch {
	case q.of == nil:
		q.wrong = "there is no tool " + plain.Quote(r.Tool, plain.Detail) + " that spends"
		return q
	case r.Scope != "" && r.Scope != q.of.Scope:
		q.wrong = "the scope of " + r.Tool + " is " + q.of.Scope
		return q
	}
	q.call.Resource = q.of.Scope
	var doc jsjson.Doc
	if err := doc.Parse(r.Args); err != nil || doc.Root().Kind() != jsjson.Object {
		q.wrong = "the arguments are no object"
		return q
	}
	q.wrong = q.read(doc.Root())
	switch {
	case q.wrong != "":
	case r.Approver:
		q.wrong = noApprover
	case r.Action != nil && !q.comesTo(r.Action):
		q.wrong = "the action is not what the arguments come to"
	case q.advisory:
		q.advise(r.Policy)
	}
	return q
}

// comesTo reports whether an action of the protocol is the spending of the call.
func (q *financeCase) comesTo(action json.RawMessage) bool {
	var a approval.Action
	n, err := parsed("action", action, approval.ParseAction, &a)
	if err != nil {
		return false
	}
	notional, ok := plainDecimal(string(n.Get("notional").Raw()))
	confidence := ""
	if a.Confidence != nil {
		confidence = exactOf(string(n.Get("confidence").Raw()))
	}
	return ok && a.Action == q.spend.Action && a.Asset == q.spend.Asset && notional == q.spend.Notional && confidence == q.spend.Confidence
}

// advise asks a gate the caller brought. What it says permits nothing.
func (q *financeCase) advise(policy json.RawMessage) {
	var p approval.Policy
	if _, err := parsed("policy", policy, approval.ParsePolicy, &p); err != nil {
		q.wrong = errcode.Of(err).Message
		return
	}
	record, err := approval.Evaluate(actionOf(q.spend), p, double(q.claimed))
	if err != nil {
		q.wrong = errcode.Of(err).Message
		return
	}
	q.advice = &record
}

// read holds the arguments to the tool, and makes of them what is bound and what the
// gate is asked. An amount that is missing or no number is no zero (approvals
// contract, section 7, W21).
func (q *financeCase) read(args jsjson.Node) (wrong string) {
	t := q.of
	q.echo = object{}
	values := map[string]jsjson.Node{}
	for key, v := range args.Members() {
		name := string(key.Text())
		if _, twice := values[name]; twice {
			return "the argument " + plain.Quote(name, plain.Detail) + " is given twice"
		}
		if !slices.Contains(slices.Concat(t.required, t.optional, t.unbound), name) {
			return t.Name + " takes no argument " + plain.Quote(name, plain.Detail)
		}
		values[name] = v
	}
	bound := []byte(`{"tool":` + string(jsjson.AppendString(nil, []byte(t.Name))))
	add := func(name string, raw []byte) {
		bound = append(append(append(append(bound, `,"`...), name...), `":`...), raw...)
	}
	for _, name := range slices.Concat(t.required, t.optional, t.unbound) {
		v, given := values[name]
		if given && v.Kind() == jsjson.Null {
			given = false
		}
		switch {
		case given:
			if why := q.fits(name, v); why != "" {
				return why
			}
			add(name, v.Raw())
			q.echo[name] = json.RawMessage(v.Raw())
		case slices.Contains(t.required, name):
			return "the argument " + name + " is missing"
		case name == "currency":
			add(name, []byte(`"USD"`))
			q.echo[name] = "USD"
		case slices.Contains(t.optional, name):
			// What the protocol binds is bound when it is not given, too. Of the rest
			// what was given is bound: a person has seen it.
			add(name, []byte("null"))
			q.echo[name] = nil
		}
	}
	bound = append(bound, '}')
	q.call.Arguments = bound
	return q.spending(values)
}

// fits holds one argument to its type.
func (q *financeCase) fits(name string, v jsjson.Node) string {
	switch name {
	case "quantity", "notional", "limit_price", "confidence", "amount":
		if v.Kind() != jsjson.Number {
			return "the argument " + name + " must be a number"
		}
		if f := v.Float(); f-f != 0 {
			return "the argument " + name + " is too large a number"
		}
	case "target_weights":
		if v.Kind() != jsjson.Object {
			return "the argument target_weights must be an object of numbers"
		}
		for _, w := range v.Members() {
			if w.Kind() != jsjson.Number {
				return "the argument target_weights must be an object of numbers"
			}
		}
	default:
		if v.Kind() != jsjson.String || len(v.Text()) == 0 {
			return "the argument " + name + " must be text that is not empty"
		}
	}
	return ""
}

// spending is the money of the call.
func (q *financeCase) spending(values map[string]jsjson.Node) (wrong string) {
	t := q.of
	number := func(name string) string { return string(values[name].Raw()) }
	notional, ok := plainDecimal(number(t.notional))
	if !ok {
		if !strings.HasPrefix(number(t.notional), "-") {
			return "the argument " + t.notional + " cannot be read as an exact amount"
		}
		notional = "0" // less than nothing: the gate blocks both
	}
	q.spend = &decision.Spend{Gate: t.Name, Action: t.action, Asset: string(values[t.asset].Text()), Notional: notional}
	if t.action == "" {
		q.spend.Action = string(values["side"].Text())
	}
	if q.spend.Asset == "" {
		q.spend.Asset = "USD"
	}
	if v, given := values["confidence"]; given && v.Kind() == jsjson.Number {
		confidence, ok := plainDecimal(number("confidence"))
		if !ok {
			return "the argument confidence is no number from 0 to 1"
		}
		if one, _ := new(big.Rat).SetString(confidence); one == nil || one.Cmp(big.NewRat(1, 1)) > 0 {
			return "the argument confidence is no number from 0 to 1"
		}
		q.spend.Confidence = confidence
	}
	// An order must not cost more than what the gate is asked about.
	if v, given := values["limit_price"]; given && v.Kind() == jsjson.Number {
		price, okP := new(big.Rat).SetString(exactOf(number("limit_price")))
		quantity, okQ := new(big.Rat).SetString(exactOf(number("quantity")))
		most, okN := new(big.Rat).SetString(notional)
		if !okP || !okQ || !okN || price.Mul(price, quantity).Cmp(most) > 0 {
			return "quantity at limit_price is more than the notional"
		}
	}
	q.money = approval.Money{Amount: notional, Asset: q.spend.Asset}
	if t.counterparty != "" {
		q.money.Counterparty = string(values[t.counterparty].Text())
	}
	return ""
}

func exactOf(number string) string {
	text, ok := plainDecimal(number)
	if !ok {
		return "no number"
	}
	return text
}

// gateAt asks the gate of a call that spends, with what its day has taken by now but
// for one receipt. approver is the person who approves it, "" for nobody.
func (g *Guard) gateAt(s *decision.State, spend *decision.Spend, except, claimed, approver string, now time.Time) (approval.Verdict, error) {
	t := financeTool(spend.Gate)
	if t == nil {
		return approval.Verdict{}, errcode.New(errcode.Input, "", "there is no gate %s", plain.Quote(spend.Gate, plain.Detail))
	}
	if claimed == "" {
		claimed = "0"
	}
	committed, err := g.committed(s, t.Name, except, "0", "0", claimed, now)
	if err != nil {
		return approval.Verdict{}, err
	}
	p := approval.Payment{Action: spend.Action, Asset: spend.Asset, Amount: spend.Notional, Committed: committed}
	v := t.Gate.Judge(p)
	if approver != "" {
		v = t.Gate.Approve(p, approver)
	}
	if spend.Confidence == "" {
		return v, nil
	}
	// A payment has no confidence, a call may: then the protocol's record is the one
	// with it, and the stricter state counts.
	var record approval.Result
	if approver == "" {
		record, err = approval.Evaluate(actionOf(spend), doubles(t.Gate), double(committed))
	} else {
		record, err = approval.ApproveHuman(actionOf(spend), doubles(t.Gate), double(committed), approver)
	}
	v.Record = record
	if err != nil || strictness(record.State) > strictness(v.State) {
		v.State, v.Reasons = record.State, []string{record.Reason}
	}
	return v, nil
}

// actionOf is the money of a call as the protocol has it.
func actionOf(spend *decision.Spend) approval.Action {
	a := approval.Action{Action: spend.Action, Asset: spend.Asset, Notional: double(spend.Notional)}
	if spend.Confidence != "" {
		confidence := double(spend.Confidence)
		a.Confidence = &confidence
	}
	return a
}

// deny is a refusal in the words of the finance tools.
func (q *financeCase) deny(a *FinanceAnswer, code, detail string, now time.Time) (decision.Denied, error) {
	id, err := newID("d")
	if err != nil {
		return decision.Denied{}, err
	}
	if a.Code = code; a.State == approval.Locked {
		a.State = "" // what the gate says stands in Gate; a refusal locks nothing (section 7, W28)
	}
	if hash := approval.Inspect(q.policy, q.call).ArgsHash; q.wrong == "" {
		q.argsHash = hash
	}
	line := decision.Denied{Tool: q.tool, Target: shown(q.call.Tool), Scope: shown(q.call.Resource), ReasonCode: approval.FinanceCode(code), Detail: shown(detail),
		ArgsHash: q.argsHash, ReceiptID: id, ReviewID: a.ReviewID, Policy: financePolicy, Canon: approval.CanonName}
	if q.advisory {
		line.Policy = ""
	}
	deny := approval.DenyReceipt{ReceiptID: id, Tool: line.Target, ReasonCode: line.ReasonCode, Detail: line.Detail, ArgsHash: line.ArgsHash}
	if line.Scope != "" {
		deny.Scope = &line.Scope
	}
	deny = approval.NewDenyReceipt(deny, now)
	a.Deny = &deny
	return line, nil
}

// finance decides under the lock of the log, as answer does.
func (g *Guard) finance(ctx context.Context, q *financeCase, decide func(s *decision.State, a *FinanceAnswer, now time.Time) ([]decision.Body, error)) (*FinanceAnswer, error) {
	var a *FinanceAnswer
	seq, err := g.said(ctx, q.actor, func(s *decision.State) (bodies []decision.Body, err error) {
		a = &FinanceAnswer{Advisory: q.advisory}
		now := g.now()
		switch why := g.stopped(s, q.toolCase); {
		case q.wrong != "":
			bodies, err = one(q.deny(a, approval.CodeAmbiguous, q.wrong, now))
		case q.advisory:
			a.State, a.Gate = q.advice.State, q.advice
			bodies, err = one(q.deny(a, approval.CodeAmbiguous, "a policy of the caller's own permits nothing", now))
		case why != "":
			bodies, err = one(q.deny(a, approval.CodePolicyDeny, why, now))
		default:
			bodies, err = decide(s, a, now)
		}
		return bodies, err
	})
	if err != nil {
		return nil, err
	}
	a.Seq = seq
	return a, nil
}

func one(line decision.Denied, err error) ([]decision.Body, error) {
	return []decision.Body{line}, err
}

// RequestSpend answers request_authorization for a synthetic tool (approvals
// contract, section 9.5): what the gate locks is authorised under the auto key, what
// it does not is for a person or for nobody.
func (g *Guard) RequestSpend(ctx context.Context, r FinanceRequest) (*FinanceAnswer, error) {
	asks := toolRequestAuth
	if r.Person {
		asks = toolApprove
	}
	q := g.financeCase(asks, r)
	return g.finance(ctx, q, func(s *decision.State, a *FinanceAnswer, now time.Time) ([]decision.Body, error) {
		v, err := g.gateAt(s, q.spend, "", q.claimed, "", now)
		if err != nil {
			return nil, err
		}
		q.gate = &v
		a.gated(&v)
		switch {
		case q.review != "":
		case v.State == approval.Blocked:
			return one(q.deny(a, approval.CodePolicyDeny, v.Record.Reason+": "+strings.Join(v.Reasons, "; "), now))
		case v.State == approval.Locked && !q.person:
			return g.lock(q, a, &v, now)
		}
		asked, bodies, _, err := g.request(s, q.toolCase)
		if err != nil {
			return nil, err
		}
		a.ReviewID, a.Pending, a.Handoff = asked.ReviewID, asked.Pending, asked.Handoff
		switch {
		case asked.grants():
			a.grant(asked.Receipt)
			return nil, nil
		case asked.Pending:
			a.State = approval.HITLRequired
			if len(bodies) > 0 {
				return bodies, nil
			}
			line, err := q.line(asked, nil)
			return []decision.Body{line}, err
		}
		return one(q.deny(a, asked.DenyCode, asked.Reason, now))
	})
}

// gated puts what the gate says into an answer.
func (a *FinanceAnswer) gated(v *approval.Verdict) {
	record := v.Record
	a.State, a.Gate = v.State, &record
}

func (a *FinanceAnswer) grant(r *approval.Receipt) {
	view := r.Authorization()
	a.OK, a.State, a.Receipt, a.Authorization, a.ReceiptID = true, approval.Locked, r, &view, r.Nonce
}

// lock issues a receipt under the auto key.
func (g *Guard) lock(q *financeCase, a *FinanceAnswer, v *approval.Verdict, now time.Time) ([]decision.Body, error) {
	ttl, refused := q.lifetime()
	if refused != nil {
		return one(q.deny(a, refused.Code, refused.Detail, now))
	}
	key, err := g.autoKey(true)
	if err != nil {
		return nil, err
	}
	nonce, err := newID("a")
	if err != nil {
		return nil, err
	}
	seconds := ttl.Seconds()
	issued, err := approval.Issue{
		Policy: q.policy, Call: q.call, Actor: approval.ActorAuto, Decision: approval.Allow, TTLSeconds: &seconds, Nonce: nonce, Now: now,
		PolicyHash: q.hash, Money: q.money, Spend: v,
	}.Signed(approval.NewAutoSigner(key), approval.Approval{})
	if err != nil {
		return nil, err
	}
	if issued.Receipt == nil {
		return one(q.deny(a, issued.DenyCode, issued.Reason, now))
	}
	line, err := authorized(issued.Receipt, q.spend)
	if err != nil {
		return nil, err
	}
	a.grant(issued.Receipt)
	return []decision.Body{line}, nil
}

// Execute runs a synthetic tool on a receipt: it uses the receipt up on disk, and
// answers only then (approvals contract, section 3.4).
func (g *Guard) Execute(ctx context.Context, r FinanceRequest) (*FinanceAnswer, error) {
	q := g.financeCase(r.Tool, r)
	return g.finance(ctx, q, func(s *decision.State, a *FinanceAnswer, now time.Time) ([]decision.Body, error) {
		receipt, code, detail := presented(s, r.Receipt, now)
		if code != "" {
			return one(q.deny(a, code, detail, now))
		}
		except := ""
		if receipt != nil {
			except = receipt.Nonce
		}
		v, err := g.gateAt(s, q.spend, except, "", "", now)
		if err != nil {
			return nil, err
		}
		q.gate = &v
		answer, bodies, _, err := g.present(s, q.toolCase, receipt, nil)
		if err != nil {
			return nil, err
		}
		if !answer.Allowed {
			line, err := q.deny(a, answer.DenyCode, answer.Reason, now)
			line.Burnt = answer.Burn
			if receipt != nil {
				line.Presented = shown(receipt.Nonce)
			}
			return []decision.Body{line}, err
		}
		a.OK, a.ReceiptID, a.ReviewID = true, receipt.Nonce, answer.ReviewID
		a.Result, err = q.run(receipt)
		return bodies, err
	})
}

// presented finds the receipt a caller presents: as it was issued, or as the view of
// it that the finance tools give out. A view proves nothing: the receipt is found by
// its id among those that were issued here.
func presented(s *decision.State, raw json.RawMessage, now time.Time) (r *approval.Receipt, code, detail string) {
	if raw == nil {
		return nil, approval.CodeMissingReceipt, "there is no receipt"
	}
	var doc jsjson.Doc
	if err := doc.Parse(raw); err != nil {
		return nil, approval.CodeMissingReceipt, "the receipt cannot be read"
	}
	if string(doc.Root().Get("kind").Text()) == approval.ReceiptKind {
		r, err := approval.ParseReceipt(doc.Root())
		if err != nil {
			return nil, approval.CodeMissingReceipt, "the receipt cannot be read: " + err.Error()
		}
		return r, "", ""
	}
	view, err := approval.ParseAuthorization(doc.Root())
	if err != nil {
		return nil, approval.CodeMissingReceipt, "the receipt cannot be read: " + err.Error()
	}
	issued := s.Receipt(view.ReceiptID)
	if issued == nil {
		return nil, approval.CodeMissingReceipt, "the log holds no such receipt"
	}
	if r, err = readReceipt([]byte(issued.Receipt)); err != nil {
		return nil, approval.CodeMissingReceipt, "the receipt in the log cannot be read"
	}
	if r.Authorization() != view {
		if view.Expired(now) {
			return nil, approval.CodeExpired, "the receipt has expired, or does not say when it does"
		}
		return nil, approval.CodeMissingReceipt, "the receipt is not as it was issued"
	}
	return r, "", ""
}

// run is what a synthetic tool answers.
func (q *financeCase) run(r *approval.Receipt) (json.RawMessage, error) {
	id := strings.TrimPrefix(r.Nonce, "a-")
	if len(id) > 8 {
		id = id[:8]
	}
	if strings.Trim(id, "0123456789abcdef") != "" {
		id = hex.EncodeToString([]byte(r.Hash()))[:8] // a nonce of somebody else's
	}
	out := q.of.result(id)
	for name, v := range q.echo {
		out[name] = v
	}
	out["synthetic"] = true
	return json.Marshal(out)
}
