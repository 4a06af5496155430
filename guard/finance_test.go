package guard_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

func order(notional string) string {
	return `{"symbol": "IBM", "side": "BUY", "quantity": 1, "notional": ` + notional + `}`
}

const wire = `{"from_account": "ops", "to_account": "vendor", "amount": 9000}`

// spent is an answer of a finance tool, held to the rule that what it refuses has its
// line.
func (s *site) spent(a *guard.FinanceAnswer, err error) *guard.FinanceAnswer {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	if !a.OK && (a.Seq == 0 || a.Seq != s.state().Lines()) {
		s.t.Errorf("a refusal (%+v) is not the log's last line: %d of %d", a.Deny, a.Seq, s.state().Lines())
	}
	return a
}

func (s *site) spend(tool, args string, more ...func(*guard.FinanceRequest)) *guard.FinanceAnswer {
	s.t.Helper()
	r := guard.FinanceRequest{Tool: tool, Args: json.RawMessage(args)}
	for _, m := range more {
		m(&r)
	}
	return s.spent(s.RequestSpend(s.t.Context(), r))
}

func (s *site) execute(tool, args string, receipt any) *guard.FinanceAnswer {
	s.t.Helper()
	r := guard.FinanceRequest{Tool: tool, Args: json.RawMessage(args)}
	if receipt != nil {
		r.Receipt = encoded(s.t, receipt)
	}
	return s.spent(s.Execute(s.t.Context(), r))
}

func wantDeny(t *testing.T, a *guard.FinanceAnswer, code string) {
	t.Helper()
	if a.OK || a.Deny == nil || a.Deny.ReasonCode != code || a.Deny.ContentHash == "" {
		t.Errorf("%+v %+v, want %s", a, a.Deny, code)
	}
}

func TestWhatTheGateLocksRunsOnce(t *testing.T) { // 55, 52, 53
	s := ops(t)
	a := s.spend("place_equity_order", order("61.50"))
	if !a.OK || a.State != approval.Locked || a.Authorization.Approver != approval.ActorAuto || a.Authorization.Scope != "trading:equities:place" {
		t.Fatalf("%+v", a)
	}
	wantDeny(t, s.execute("place_equity_order", order("61.50"), nil), "missing_receipt")
	wantDeny(t, s.execute("place_equity_order", order("61.51"), a.Authorization), "args_changed")
	wantDeny(t, s.execute("rebalance_portfolio", `{"portfolio_id": "p", "notional": 10}`, a.Authorization), "args_changed")
	before := s.state().Lines()
	ran := s.execute("place_equity_order", order("61.5"), a.Authorization)
	var result struct {
		Status, Venue string
		OrderID       string `json:"order_id"`
		Synthetic     bool
		Symbol        string
	}
	if err := json.Unmarshal(ran.Result, &result); err != nil || !ran.OK || result.Status != "accepted" || result.Venue != "SIM-EQUITY" || !result.Synthetic || result.Symbol != "IBM" ||
		!strings.HasPrefix(result.OrderID, "sim-eq-") || len(result.OrderID) != len("sim-eq-")+8 {
		t.Errorf("%s %+v, %v", ran.Result, ran, err)
	}
	if got := s.lines(before); fmt.Sprint(got) != "[executed]" || ran.Seq != s.state().Lines() {
		t.Errorf("the log says %v", got)
	}
	wantDeny(t, s.execute("place_equity_order", order("61.5"), a.Authorization), "replay")
	// The same receipt in its own form is the same receipt.
	wantDeny(t, s.execute("place_equity_order", order("61.5"), a.Receipt), "replay")
}

// All that a view holds can be read off inspect_audit_ledger.
func TestWhatTheGateLocksIsForWhoAsked(t *testing.T) {
	s := ops(t)
	as := func(actor string, receipt any) *guard.FinanceAnswer {
		r := guard.FinanceRequest{Tool: "place_equity_order", Args: json.RawMessage(order("61.50")), Actor: actor}
		if receipt == nil {
			return s.spent(s.RequestSpend(t.Context(), r))
		}
		r.Receipt = encoded(t, receipt)
		return s.spent(s.Execute(t.Context(), r))
	}
	a := as("alice", nil)
	wantDeny(t, as("bob", a.Authorization), "args_changed")
	wantDeny(t, as("", a.Receipt), "args_changed")
	if ran := as("alice", a.Authorization); !ran.OK {
		t.Errorf("%+v", ran)
	}
}

func TestARefusalIsNotLocked(t *testing.T) { // W28
	s := ops(t)
	long := 3601.0
	for name, r := range map[string]guard.FinanceRequest{
		"one that would live too long":  {TTLSeconds: &long},
		"under a policy of the callers": {Policy: json.RawMessage(`{"max_notional": 1e9, "daily_cap": 1e9, "hitl_threshold": 1e9, "min_confidence": 0}`)},
	} {
		r.Tool, r.Args = "place_equity_order", json.RawMessage(order("61.50"))
		a := s.spent(s.RequestSpend(t.Context(), r))
		if a.OK || a.Deny == nil || a.State != "" || a.Gate == nil || a.Gate.State != approval.Locked {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestAWireIsForAPersonAndRunsOnTheApproval(t *testing.T) { // 54
	s := ops(t)
	a := s.spend("wire_treasury_transfer", wire)
	if a.OK || !a.Pending || a.State != approval.HITLRequired || a.Authorization != nil || a.Gate.State != approval.HITLRequired {
		t.Fatalf("%+v", a)
	}
	for _, line := range s.lines(0) {
		if line == "authorized" {
			t.Error("an authorisation was written while a person had not decided")
		}
	}
	call := s.state().Review(a.ReviewID).Call
	if !strings.Contains(call.Arguments, `"amount":9000`) || !strings.Contains(call.Arguments, `"to_account":"vendor"`) || call.Spend.Notional != "9000" {
		t.Errorf("a person is shown %+v", call)
	}
	s.approve(a.ReviewID)
	granted := s.spend("wire_treasury_transfer", wire, func(r *guard.FinanceRequest) { r.ReviewID = a.ReviewID })
	if !granted.OK || granted.Authorization.Approver != "ana" {
		t.Fatalf("%+v", granted)
	}
	ran := s.execute("wire_treasury_transfer", wire, granted.Authorization)
	if !ran.OK || !strings.Contains(string(ran.Result), `"rail":"SIM-WIRE"`) || !strings.Contains(string(ran.Result), `"status":"queued"`) {
		t.Errorf("%+v %s", ran, ran.Result)
	}
	wantDeny(t, s.execute("wire_treasury_transfer", wire, granted.Authorization), "replay")
}

func TestWhatWasApprovedIsBoundInFull(t *testing.T) { // 73
	s := ops(t)
	for name, c := range map[string]struct{ tool, approved, runs string }{
		"a confidence of an order": {"place_equity_order", `{"symbol":"IBM","side":"BUY","quantity":1,"notional":1,"confidence":0.9}`, `{"symbol":"IBM","side":"BUY","quantity":1,"notional":1,"confidence":0.6}`},
		"a rationale":              {"place_equity_order", `{"symbol":"IBM","side":"BUY","quantity":1,"notional":1,"rationale":"a"}`, `{"symbol":"IBM","side":"BUY","quantity":1,"notional":1,"rationale":"b"}`},
		"a rationale that is gone": {"place_equity_order", `{"symbol":"IBM","side":"BUY","quantity":1,"notional":1,"rationale":"a"}`, order("1")},
		"a side":                   {"place_equity_order", order("1"), strings.Replace(order("1"), "BUY", "SELL", 1)},
		"weights":                  {"rebalance_portfolio", `{"portfolio_id":"p","notional":1,"target_weights":{"a":0.5}}`, `{"portfolio_id":"p","notional":1,"target_weights":{"a":0.6}}`},
	} {
		a := s.spend(c.tool, c.approved)
		if !a.OK {
			t.Fatalf("%s: %+v %+v", name, a, a.Deny)
		}
		if ran := s.execute(c.tool, c.runs, a.Authorization); ran.OK || ran.Deny.ReasonCode != "args_changed" {
			t.Errorf("%s: %+v", name, ran)
		}
	}
	withConfidence := strings.Replace(wire, "}", `, "confidence": 0.9}`, 1)
	a := s.spend("wire_treasury_transfer", withConfidence)
	s.approve(a.ReviewID)
	granted := s.spend("wire_treasury_transfer", withConfidence, func(r *guard.FinanceRequest) { r.ReviewID = a.ReviewID })
	wantDeny(t, s.execute("wire_treasury_transfer", wire, granted.Authorization), "args_changed")
}

func TestArgumentsHashAsTheProtocolHasThem(t *testing.T) {
	src, err := os.ReadFile(filepath.Join("approval", "testdata", "receipts.json"))
	var file struct {
		Vectors []struct {
			Tool  string
			Bound string            `json:"bound_json"`
			Hash  map[string]string `json:"args_hash"`
		} `json:"finance_args_hash"`
	}
	if err == nil {
		err = json.Unmarshal(src, &file)
	}
	if err != nil || len(file.Vectors) < 3 {
		t.Fatalf("%d vectors, %v", len(file.Vectors), err)
	}
	for _, v := range file.Vectors {
		s := ops(t)
		a := s.spend(v.Tool, v.Bound)
		got := ""
		if a.Authorization != nil {
			got = a.Authorization.ArgsHash
		} else if r, err := s.Review(t.Context(), a.ReviewID, 0); err == nil && r.Call != nil {
			got = r.Call.ArgsHash
		}
		if got != v.Hash["jcs"] {
			t.Errorf("%s: %q, want %s: %+v", v.Tool, got, v.Hash["jcs"], a)
		}
	}
}

func TestQuestionsThatCannotBeReadAreRefusedAndLogged(t *testing.T) { // 56, 62, 63, 65
	s := ops(t)
	more := func(change func(*guard.FinanceRequest)) func(*guard.FinanceRequest) { return change }
	nothing := more(func(*guard.FinanceRequest) {})
	ttl := func(v float64) func(*guard.FinanceRequest) {
		return func(r *guard.FinanceRequest) { r.TTLSeconds = &v }
	}
	for name, c := range map[string]struct {
		tool, args, code string
		more             func(*guard.FinanceRequest)
	}{
		"constructor":              {"constructor", "{}", "ambiguous_policy", nothing},
		"toString":                 {"toString", "{}", "ambiguous_policy", nothing},
		"__proto__":                {"__proto__", "{}", "ambiguous_policy", nothing},
		"another case":             {"Wire_treasury_transfer", wire, "ambiguous_policy", nothing},
		"another scope":            {"wire_treasury_transfer", wire, "ambiguous_policy", func(r *guard.FinanceRequest) { r.Scope = "treasury:*" }},
		"no amount":                {"wire_treasury_transfer", `{"from_account":"a","to_account":"b"}`, "ambiguous_policy", nothing},
		"an amount of null":        {"wire_treasury_transfer", `{"from_account":"a","to_account":"b","amount":null}`, "ambiguous_policy", nothing},
		"an amount as text":        {"wire_treasury_transfer", `{"from_account":"a","to_account":"b","amount":"NaN"}`, "ambiguous_policy", nothing},
		"an amount beyond doubles": {"wire_treasury_transfer", `{"from_account":"a","to_account":"b","amount":1e999}`, "ambiguous_policy", nothing},
		"an amount too small":      {"place_equity_order", order("1e-300"), "ambiguous_policy", nothing},
		"an unknown argument":      {"place_equity_order", strings.Replace(order("1"), "}", `,"hitl_threshold":1e9}`, 1), "ambiguous_policy", nothing},
		"an argument twice":        {"place_equity_order", strings.Replace(order("1"), "}", `,"notional":2}`, 1), "ambiguous_policy", nothing},
		"no object":                {"place_equity_order", `[]`, "ambiguous_policy", nothing},
		"an approver":              {"wire_treasury_transfer", wire, "ambiguous_policy", func(r *guard.FinanceRequest) { r.Approver = true }},
		"a confidence above one":   {"place_equity_order", strings.Replace(order("1"), "}", `,"confidence":1.1}`, 1), "ambiguous_policy", nothing},
		"more than the notional":   {"place_equity_order", `{"symbol":"IBM","side":"BUY","quantity":100,"limit_price":90,"notional":10}`, "ambiguous_policy", nothing},
		"a policy of the callers": {"wire_treasury_transfer", wire, "ambiguous_policy", func(r *guard.FinanceRequest) {
			r.Policy = json.RawMessage(`{"max_notional":1e9,"daily_cap":1e9,"hitl_threshold":1e9,"min_confidence":0}`)
		}}, // 67
		"a negative total":     {"place_equity_order", order("1"), "ambiguous_policy", func(r *guard.FinanceRequest) { r.Committed = json.RawMessage("-100") }},
		"no time to live":      {"place_equity_order", order("1"), "ambiguous_policy", ttl(0)},
		"a negative time":      {"place_equity_order", order("1"), "ambiguous_policy", ttl(-5)},
		"a time too long":      {"place_equity_order", order("1"), "expired", ttl(3601)},
		"less than nothing":    {"place_equity_order", order("-5"), "policy_deny", nothing},
		"nothing":              {"place_equity_order", order("0"), "policy_deny", nothing},
		"too much":             {"place_equity_order", order("500.01"), "policy_deny", nothing},
		"another action":       {"place_equity_order", strings.Replace(order("1"), "BUY", "buy", 1), "policy_deny", nothing},
		"a confidence too low": {"place_equity_order", strings.Replace(order("1"), "}", `,"confidence":0.5}`, 1), "policy_deny", nothing},
		"too low, for a wire":  {"wire_treasury_transfer", strings.Replace(wire, "}", `,"confidence":0.6999}`, 1), "policy_deny", nothing},
		"a day that is full":   {"place_equity_order", order("1"), "policy_deny", func(r *guard.FinanceRequest) { r.Committed = json.RawMessage("2499.5") }},
	} {
		before := s.state().Lines()
		a := s.spend(c.tool, c.args, c.more)
		if a.OK || a.Deny == nil || a.Deny.ReasonCode != c.code || fmt.Sprint(s.lines(before)) != "[denied "+c.code+"]" {
			t.Errorf("%s: %+v, %v, want %s", name, a.Deny, s.lines(before), c.code)
		}
	}
}

func TestEachOfTheSixCodesIsInTheLogBeforeItIsTold(t *testing.T) { // 50, 61, 64
	s := ops(t)
	a := s.spend("place_equity_order", order("10"))
	s.execute("place_equity_order", order("10"), a.Authorization)
	b := s.spend("place_equity_order", order("20"))
	forged := *b.Authorization
	forged.ReceiptID, forged.Nonce = "a-0000", "a-0000"
	endless := *b.Authorization
	endless.ExpiresAt = "never"
	rehash := func(v approval.Authorization) approval.Authorization {
		v.ContentHash = approval.Receipt{Tool: v.Tool, Resource: v.Scope, Actor: v.Approver, ArgsHash: v.ArgsHash, IssuedAt: v.IssuedAt, Expiry: v.ExpiresAt, Nonce: v.Nonce}.Authorization().ContentHash
		return v
	}
	expired := s.spend("place_equity_order", order("30"))
	s.clock.add(301 * time.Second)
	fresh := s.spend("place_equity_order", order("40"))
	for name, c := range map[string]struct {
		args, code string
		receipt    any
	}{
		"no receipt":                    {order("10"), "missing_receipt", nil},
		"a malformed one":               {order("10"), "missing_receipt", map[string]any{"kind": "authorization"}},
		"text":                          {order("10"), "missing_receipt", "receipt"},
		"null":                          {order("10"), "missing_receipt", json.RawMessage("null")},
		"a right hash that nobody made": {order("20"), "missing_receipt", rehash(forged)},
		"an end that cannot be read":    {order("20"), "expired", rehash(endless)},
		"one that is used":              {order("10"), "replay", a.Authorization},
		"one that is over":              {order("30"), "expired", expired.Authorization},
		"for something else":            {order("41"), "args_changed", fresh.Authorization},
	} {
		before := s.state().Lines()
		ran := s.execute("place_equity_order", c.args, c.receipt)
		if ran.OK || ran.Deny == nil || ran.Deny.ReasonCode != c.code || fmt.Sprint(s.lines(before)) != "[denied "+c.code+"]" {
			t.Errorf("%s: %+v, %v, want %s", name, ran.Deny, s.lines(before), c.code)
		}
	}
	if _, err := s.Log().Read(t.Context()); err != nil {
		t.Errorf("the chain does not hold: %v", err)
	}
}

func TestADayHoldsNoMoreThanItsCap(t *testing.T) { // 74, 16
	s := ops(t)
	var receipts []*guard.FinanceAnswer
	for range 10 {
		receipts = append(receipts, s.spend("place_equity_order", order("249")))
	}
	if a := receipts[9]; !a.OK {
		t.Fatalf("%+v %+v", a, a.Deny)
	}
	wantDeny(t, s.spend("place_equity_order", order("11")), "policy_deny")
	// A person cannot approve beyond the day either, not even what was asked before.
	s.clock.add(301 * time.Second) // what nobody used is free again
	big := s.spend("place_equity_order", order("400"))
	if !big.Pending {
		t.Fatalf("%+v", big)
	}
	// What is approved together would not count for each other.
	both := []string{s.spend("place_equity_order", order("300")).ReviewID, s.spend("place_equity_order", order("301")).ReviewID}
	if _, err := s.Decide(t.Context(), guard.Decision{IDs: both, Decision: decision.Approved, Signer: ana}); errcode.Of(err) == nil || errcode.Of(err).Code != errcode.Input {
		t.Errorf("two were approved at once: %v", err)
	}
	for range 9 {
		receipts = append(receipts, s.spend("place_equity_order", order("249")))
	}
	before := s.state().Lines()
	_, err := s.Decide(t.Context(), guard.Decision{IDs: []string{big.ReviewID}, Decision: decision.Approved, Signer: ana})
	if e := errcode.Of(err); e == nil || e.Code != errcode.Input || !strings.Contains(e.Message, "daily-cap") {
		t.Errorf("it was approved over the cap: %v", err)
	}
	if got := s.lines(before); fmt.Sprint(got) != "[denied policy_deny]" {
		t.Errorf("the log says %v", got)
	}
	if r := s.state().Review(big.ReviewID); r.Status(s.clock.now()) != decision.StatusPending {
		t.Errorf("the review is %s", r.Status(s.clock.now()))
	}
	sum := 0
	for _, a := range receipts {
		if s.execute("place_equity_order", order("249"), a.Authorization).OK {
			sum += 249
		}
	}
	if sum != 9*249 {
		t.Errorf("%d was spent in a day", sum)
	}
	s.clock.add(12 * time.Hour)
	if a := s.spend("place_equity_order", order("249")); !a.OK {
		t.Errorf("the next day: %+v", a.Deny)
	}
}

// The server's own key, in the hands of who may read its files and write to its log,
// permits nothing that needs a person: the gate is asked again.
func TestTheAutoKeyPermitsNothingThatNeedsAPerson(t *testing.T) {
	s := ops(t)
	s.spend("place_equity_order", order("1")) // makes the key
	file := filepath.Join(filepath.Dir(s.Log().Path()), "auto.key")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	asked := s.spend("wire_treasury_transfer", wire)
	call := s.state().Review(asked.ReviewID).Call
	auto := approval.NewAutoSigner(ed25519.NewKeyFromSeed(seed))
	now := s.clock.now()
	for _, actor := range []string{approval.ActorAuto, "ana"} {
		r := approval.Receipt{
			Kind: approval.ReceiptKind, SchemaVersion: approval.ReceiptV2, CHPVersion: approval.Version, Actor: actor, Tool: call.Tool, Resource: call.Resource, ArgsHash: call.ArgsHash,
			PolicyVersion: call.PolicyVersion, Risk: call.Risk, IssuedAt: now.Format("2006-01-02T15:04:05.000Z"), Expiry: now.Add(time.Minute).Format("2006-01-02T15:04:05.000Z"),
			Decision: approval.Allow, Nonce: "a-" + actor, RequestHash: call.RequestHash, PolicyHash: call.PolicyHash, Canon: approval.CanonName,
		}
		r.KeyID = approval.KeyID(ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey))
		sig, err := auto.Sign(r.Body())
		if err != nil {
			t.Fatal(err)
		}
		r.Signature = base64.StdEncoding.EncodeToString(sig)
		line := decision.Authorized{ReceiptID: r.Nonce, ReceiptHash: r.Hash(), Receipt: string(encoded(t, r)), Tool: r.Tool, Scope: r.Resource, ArgsHash: r.ArgsHash,
			RequestHash: r.RequestHash, Approver: actor, ExpiresAt: now.Add(time.Minute), Canon: r.Canon}
		if _, err := s.Log().Update(t.Context(), "", func(*decision.State) ([]decision.Body, error) { return []decision.Body{line}, nil }); err != nil {
			t.Fatal(err)
		}
		wantDeny(t, s.execute("wire_treasury_transfer", wire, r), "missing_receipt")
		wantDeny(t, s.execute("wire_treasury_transfer", wire, r.Authorization()), "missing_receipt")
	}
}

func TestTheGateAloneIsAskedInDoublesAndExactly(t *testing.T) { // 57, 67
	s := newSite(t, `{"spendGate": {"max_notional": "0.3", "daily_cap": "2500", "hitl_threshold": "0.25", "min_confidence": "0.5", "allowed_actions": ["PAY"]}}`)
	ask := func(action, policy, committed string) *guard.SpendAnswer {
		t.Helper()
		r := guard.SpendRequest{Action: json.RawMessage(action)}
		if policy != "" {
			r.Policy = json.RawMessage(policy)
		}
		if committed != "" {
			r.Committed = json.RawMessage(committed)
		}
		before := s.state().Lines()
		a, err := s.EvaluateSpend(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if lines := s.lines(before); (a.State == approval.Locked) != (len(lines) == 0) || a.State != approval.Locked && a.Seq != s.state().Lines() {
			t.Errorf("%s leaves %v", a.State, lines)
		}
		return a
	}
	pay := func(n string) string { return `{"action": "PAY", "asset": "USDC", "notional": ` + n + `}` }
	if a := ask(pay("0.1"), "", ""); a.State != approval.Locked || !a.Allowed || a.Advisory || a.ContentHash == "" {
		t.Errorf("%+v", a)
	}
	if a := ask(pay("0.25"), "", ""); a.State != approval.HITLRequired || a.Deny != nil {
		t.Errorf("%+v", a)
	}
	if a := ask(pay("0.31"), "", ""); a.State != approval.Blocked || a.Deny == nil || a.Deny.ReasonCode != "policy_deny" || a.Deny.Scope != nil {
		t.Errorf("%+v", a)
	}
	if a := ask(pay("0.3000000000000000001"), "", ""); a.State != approval.Blocked || a.Allowed || a.Doubt == "" {
		t.Errorf("a double took it for 0.3: %+v", a)
	}
	if a := ask(pay("0.1"), "", "2499.95"); a.State != approval.Blocked {
		t.Errorf("a larger total of the caller's is believed: %+v", a)
	}
	loose := `{"max_notional": 1e6, "daily_cap": 1e6, "hitl_threshold": 1e6, "min_confidence": 0}`
	if a := ask(pay("9000"), loose, ""); a.State != approval.Locked || !a.Advisory {
		t.Errorf("%+v", a)
	}
	if a := ask(pay("9000"), "", ""); a.State != approval.Blocked {
		t.Errorf("a policy of the caller's was kept: %+v", a)
	}
	for _, action := range []string{pay("-1"), pay("0")} {
		if a := ask(action, loose, ""); a.State != approval.Blocked {
			t.Errorf("%s: %+v", action, a)
		}
	}
	for _, bad := range []guard.SpendRequest{
		{Action: json.RawMessage(pay("1e999"))}, {Action: json.RawMessage(pay(`"1"`))}, {Action: json.RawMessage(pay("1")), Committed: json.RawMessage("-1")},
		{Action: json.RawMessage(pay("1")), Policy: json.RawMessage(`{"max_notional": 1e999}`)}, {Action: json.RawMessage(`{"action": "PAY", "asset": "\ud800", "notional": 1}`)},
	} {
		if a, err := s.EvaluateSpend(t.Context(), bad); errcode.Of(err) == nil || errcode.Of(err).Code != errcode.Input {
			t.Errorf("%s: %+v, %v", bad.Action, a, err)
		}
	}
}

func TestTheDayOfTheGateIsWhatTheTraceShows(t *testing.T) {
	s := newSite(t, `{"spendGate": {"max_notional": "10", "daily_cap": "1.00", "hitl_threshold": "10", "min_confidence": "0"}}`)
	ask := func() *guard.SpendAnswer {
		t.Helper()
		a, err := s.EvaluateSpend(t.Context(), guard.SpendRequest{Action: json.RawMessage(`{"action": "PAY", "asset": "USDC", "notional": 0.6}`)})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := ask(); a.State != approval.Locked || a.Committed != "0" {
		t.Errorf("%+v", a)
	}
	s.buy("r1", "op1", terms{amount: "500000"})
	if a := ask(); a.State != approval.Blocked || a.Committed != "0.5" {
		t.Errorf("%+v", a)
	}
	s.clock.add(12 * time.Hour)
	if a := ask(); a.State != approval.Locked {
		t.Errorf("the next day: %+v", a)
	}
	s.raw("r1", `{"event_id":"x","event_type":"x402.payment.submitted","occurred_at":"`+s.clock.now().Format("2006-01-02T15:04:05.000Z")+`","seq":900,"adapter":"trace-x402","role":"client","context_id":"odd","payload":{"x402_version":2,"requirements":{"amount":"?"}}}`+"\n")
	if a := ask(); a.State != approval.Blocked || a.Doubt == "" {
		t.Errorf("a day that cannot be added up: %+v", a)
	}
}

func TestAtOneInstantADayHoldsNoMoreThanItsCap(t *testing.T) { // 16
	s := ops(t)
	var granted atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			a, err := s.RequestSpend(context.Background(), guard.FinanceRequest{Tool: "place_equity_order", Args: json.RawMessage(order("249"))})
			if err != nil {
				t.Error(err)
			} else if a.OK {
				granted.Add(249)
			}
		})
	}
	wg.Wait()
	if n := granted.Load(); n != 2490 {
		t.Errorf("%d was authorised of a cap of 2500", n)
	}
}
