package guard_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

// keeper is a person with a key, as a policy names them.
type keeper struct {
	name string
	key  ed25519.PrivateKey
}

func (o keeper) Name() string { return o.name }
func (o keeper) PublicKey() string {
	return base64.StdEncoding.EncodeToString(o.key.Public().(ed25519.PublicKey))
}
func (o keeper) Sign(payload []byte) ([]byte, error) { return ed25519.Sign(o.key, payload), nil }

func named(name string) keeper {
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, name)
	return keeper{name, ed25519.NewKeyFromSeed(seed)}
}

var ana = named("ana")

// opsPolicy lists tools of a ledger; more is put into it.
func opsPolicy(more string) string {
	return `{"operators": [{"name": "ana", "publicKey": "` + ana.PublicKey() + `"}], "toolPolicies": {"ops": {
		"version": "p-1", "allowed_tools": ["ledger.post", "kb.search"], "tool_risk": {"ledger.post": "critical"},
		"allowed_resources": {"ledger.post": ["tenant:north"]}, "host_bound_fields": {"kb.search": ["tenant_id"]}` + more + `}}}`
}

const post = `{"tool": "ledger.post", "resource": "tenant:north", "arguments": {"account": "1200-01", "amount": "2500.00", "fx": 1.5}}`

// ops is a site whose guard knows the operator ana and the policy ops.
func ops(t *testing.T) *site { return newSite(t, opsPolicy("")) }

func (s *site) approve(ids ...string) { s.decideAs(ana, decision.Approved, ids...) }

func (s *site) decideAs(by decision.Signer, word string, ids ...string) {
	s.t.Helper()
	if _, err := s.Decide(s.t.Context(), guard.Decision{IDs: ids, Decision: word, Note: "because", Signer: by}); err != nil {
		s.t.Fatal(err)
	}
}

// said is an answer of a tool, held to the rule that what it refuses has its line.
func (s *site) said(a *guard.ToolAnswer, err error) *guard.ToolAnswer {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	if !a.Allowed && (a.Receipt == nil || a.Receipt.Decision == approval.Deny) && (a.Seq == 0 || a.Seq != s.state().Lines()) {
		s.t.Errorf("a refusal (%s) is not the log's last line: %d of %d", a.DenyCode, a.Seq, s.state().Lines())
	}
	return a
}

func (s *site) request(call string, review string) *guard.ToolAnswer {
	s.t.Helper()
	return s.said(s.RequestAuthorization(s.t.Context(), guard.ToolRequest{Call: json.RawMessage(call), Policy: "ops", ReviewID: review}))
}

func (s *site) authorize(call string, receipt *approval.Receipt) *guard.ToolAnswer {
	s.t.Helper()
	r := guard.ToolRequest{Call: json.RawMessage(call), Policy: "ops"}
	if receipt != nil {
		r.Receipt = encoded(s.t, receipt)
	}
	return s.said(s.AuthorizeToolCall(s.t.Context(), r))
}

func encoded(t *testing.T, v any) json.RawMessage {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// granted is a receipt for a call that ana has approved.
func (s *site) granted(call string) *approval.Receipt {
	s.t.Helper()
	asked := s.request(call, "")
	if !asked.Pending || asked.ReviewID == "" {
		s.t.Fatalf("no person was asked: %+v", asked)
	}
	s.approve(asked.ReviewID)
	a := s.request(call, asked.ReviewID)
	if a.Receipt == nil || a.ReceiptHash != a.Receipt.Hash() {
		s.t.Fatalf("there is no receipt: %+v", a)
	}
	return a.Receipt
}

// lines are the types of the log's lines from one on, those of the policy left out.
func (s *site) lines(after int64) (types []string) {
	s.t.Helper()
	raw, err := os.ReadFile(s.Log().Path())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var l struct {
			Seq        int64
			Type       string
			ReasonCode string `json:"reason_code"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			s.t.Fatal(err)
		}
		if l.Seq > after && l.Type != "policy" && l.Type != "seen" {
			types = append(types, strings.TrimSuffix(l.Type+" "+l.ReasonCode, " "))
		}
	}
	return types
}

func wantCode(t *testing.T, a *guard.ToolAnswer, code string) {
	t.Helper()
	if a.Allowed || a.DenyCode != code {
		t.Errorf("%s %q (%s), want %s", a.State, a.DenyCode, a.Reason, code)
	}
}

func TestACallRunsOnceAfterAPersonApprovedIt(t *testing.T) { // 21, 24, 20
	s := ops(t)
	if a := s.said(s.EvaluateToolApproval(t.Context(), guard.ToolRequest{Call: json.RawMessage(post), Policy: "ops"})); a.State != approval.ReceiptRequired || a.Risk != "critical" {
		t.Errorf("%+v", a)
	}
	a := s.authorize(post, nil)
	wantCode(t, a, approval.CodeAllowlistIsNotAuth)
	receipt := s.granted(post)
	if receipt.Actor != "ana" || receipt.SchemaVersion != approval.ReceiptV2 || receipt.Risk != "critical" || receipt.Canon != "jcs-1" {
		t.Errorf("%+v", receipt)
	}
	before := s.state().Lines()
	if a := s.authorize(post, receipt); !a.Allowed || a.State != approval.Authorized || a.ReceiptHash != receipt.Hash() {
		t.Fatalf("%+v", a)
	}
	if got := s.lines(before); fmt.Sprint(got) != "[executed]" {
		t.Errorf("the log says %v", got)
	}
	wantCode(t, s.authorize(post, receipt), approval.CodeReplayed)
	if r := s.state().Review(receipt.ReviewID); r.Status(s.clock.now()) != decision.StatusUsed {
		t.Errorf("the review is %s", r.Status(s.clock.now()))
	}
	// Asked again, it is another call, for a person to decide.
	if a := s.request(post, ""); !a.Pending || a.ReviewID == receipt.ReviewID {
		t.Errorf("%+v", a)
	}
	wantCode(t, s.request(post, receipt.ReviewID), approval.CodeReplayed)
}

func TestChangedArgumentsAreDeniedAndTheCallItselfStillRuns(t *testing.T) { // 22, 73
	s := ops(t)
	receipt := s.granted(post)
	for name, call := range map[string]string{
		"an amount":       strings.Replace(post, "2500.00", "9000.00", 1),
		"another member":  strings.Replace(post, `"fx"`, `"memo": "x", "fx"`, 1),
		"one member less": strings.Replace(post, `, "fx": 1.5`, "", 1),
		"null":            `{"tool": "ledger.post", "resource": "tenant:north", "arguments": null}`,
	} {
		if a := s.authorize(call, receipt); a.Allowed || a.DenyCode != approval.CodeChangedArguments {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if a := s.authorize(strings.Replace(post, "1.5", "1.50", 1), receipt); !a.Allowed {
		t.Errorf("the same number in another spelling: %+v", a)
	}
}

func TestAnExpiredReceiptIsUsedUpAndAClockSetBackDoesNotReviveIt(t *testing.T) { // 23
	s := ops(t)
	receipt := s.granted(post)
	_, expiry := receipt.Times()
	if d := expiry.Sub(s.clock.now()); d != 5*time.Minute {
		t.Errorf("it is good for %s", d)
	}
	s.clock.add(5 * time.Minute)
	wantCode(t, s.authorize(post, receipt), approval.CodeExpired)
	s.clock.add(-4 * time.Minute)
	wantCode(t, s.authorize(post, receipt), approval.CodeReplayed)
	wantCode(t, s.request(post, receipt.ReviewID), approval.CodeExpired)
}

func TestARestartKeepsAReceiptUsableOnceAndAUseUsed(t *testing.T) { // 31, 76
	s := ops(t)
	receipt := s.granted(post)
	s.open(opsPolicy(""))
	if a := s.authorize(post, receipt); !a.Allowed {
		t.Fatalf("%+v", a)
	}
	s.open(opsPolicy(""))
	wantCode(t, s.authorize(post, receipt), approval.CodeReplayed)
}

func TestAPolicyThatSaysOtherThingsUnderOneVersionDenies(t *testing.T) { // 37
	s := ops(t)
	receipt := s.granted(post)
	asked := s.request(strings.Replace(post, "2500", "2501", 1), "")
	s.open(opsPolicy(`, "default_risk": "low"`))
	wantCode(t, s.authorize(post, receipt), approval.CodePolicyVersion)
	_, err := s.Decide(t.Context(), guard.Decision{IDs: []string{asked.ReviewID}, Decision: decision.Approved, Signer: ana})
	if errcode.Of(err) == nil || errcode.Of(err).Code != errcode.Policy {
		t.Errorf("a review of the old policy was approved: %v", err)
	}
	s.open(opsPolicy(""))
	if a := s.authorize(post, receipt); !a.Allowed {
		t.Errorf("it was used up by a mismatch: %+v", a)
	}
}

func TestAPersonsNoIsFinalAndLogged(t *testing.T) { // 25
	for name, by := range map[string]decision.Signer{"signed": ana, "unsigned": nil} {
		t.Run(name, func(t *testing.T) {
			s := ops(t)
			asked := s.request(post, "")
			before := s.state().Lines()
			s.decideAs(by, decision.Rejected, asked.ReviewID)
			if got := s.lines(before); got[0] != "decided" {
				t.Errorf("the log says %v", got)
			}
			again := s.request(post, asked.ReviewID)
			wantCode(t, again, approval.CodeHumanDenied)
			if (again.Receipt != nil) != (by != nil) {
				t.Errorf("%+v", again.Receipt)
			}
			if a := s.request(post, ""); a.DenyCode != approval.CodeHumanDenied || !strings.Contains(a.Reason, "because") {
				t.Errorf("asked anew: %+v", a)
			}
			issued := s.state().Receipt(s.state().Review(asked.ReviewID).ReceiptID)
			if by == nil {
				if issued != nil {
					t.Errorf("a receipt without a signature: %+v", issued)
				}
				return
			}
			var deny approval.Receipt
			if err := json.Unmarshal([]byte(issued.Receipt), &deny); err != nil || deny.Decision != approval.Deny {
				t.Fatalf("%+v, %v", deny, err)
			}
			wantCode(t, s.authorize(post, &deny), approval.CodeHumanDenied)
			allow := deny
			allow.Decision = approval.Allow // 36
			wantCode(t, s.authorize(post, &allow), approval.CodeInvalidSignature)
		})
	}
}

func TestARevokedApprovalRunsNothing(t *testing.T) {
	s := ops(t)
	receipt := s.granted(post)
	s.decide(decision.Revoked, receipt.ReviewID)
	wantCode(t, s.authorize(post, receipt), approval.CodeMissingReceipt)
	wantCode(t, s.request(post, receipt.ReviewID), approval.CodeHumanDenied)
}

// What an agent with the files and a shell can make up has no effect.
func TestForgedReceiptsAreRefused(t *testing.T) { // 61, 28
	s := ops(t)
	mallory := named("mallory")
	good := s.granted(post)
	sign := func(change func(*approval.Receipt)) *approval.Receipt {
		r := *good
		r.Nonce = "a-000000000000000000000001"
		change(&r)
		sig, _ := mallory.Sign(r.Body())
		r.Signature = base64.StdEncoding.EncodeToString(sig)
		return &r
	}
	public := func(o keeper) string { return approval.KeyID(o.key.Public().(ed25519.PublicKey)) }
	other := strings.Replace(post, "2500.00", "9000.00", 1)
	for name, forged := range map[string]*approval.Receipt{
		"another's key under the operator's id": sign(func(*approval.Receipt) {}),
		"another's key under its own id":        sign(func(r *approval.Receipt) { r.KeyID, r.Actor = public(mallory), "mallory" }),
		"as if no person was needed":            sign(func(r *approval.Receipt) { r.ReviewID, r.DecisionHash, r.Actor = "", "", approval.ActorAuto }),
		"a later expiry":                        func() *approval.Receipt { r := *good; r.Expiry = "2036-01-01T00:00:00.000Z"; return &r }(),
		"another nonce":                         func() *approval.Receipt { r := *good; r.Nonce = "a-1"; return &r }(),
	} {
		if a := s.authorize(post, forged); a.Allowed || a.DenyCode != approval.CodeInvalidSignature {
			t.Errorf("%s: %+v", name, a)
		}
		if a := s.authorize(other, forged); a.Allowed {
			t.Errorf("%s, for another call: %+v", name, a)
		}
	}
	if a := s.authorize(post, good); !a.Allowed {
		t.Errorf("%+v", a)
	}
}

// A log that an agent could write to shows a person one call and binds the receipt to
// another. Nothing of the receipt is wrong then; what was shown is not what runs.
func TestWhatRunsIsWhatThePersonWasShown(t *testing.T) {
	s := ops(t)
	harmful := strings.Replace(post, "2500.00", "9000.00", 1)
	real := s.request(harmful, "")
	shown := *s.state().Review(real.ReviewID)
	forged := shown.Opened
	call := *forged.Call
	call.Arguments = strings.Replace(call.Arguments, "9000.00", "0.01", 1)
	forged.ReviewID, forged.Call, forged.Intent.Typed = "r-forged000", &call, "tool_call forged"
	if _, err := s.Log().Update(t.Context(), "", func(*decision.State) ([]decision.Body, error) { return []decision.Body{forged}, nil }); err != nil {
		t.Fatal(err)
	}
	s.approve("r-forged000")
	issued := s.state().Receipt(s.state().Review("r-forged000").ReceiptID)
	var receipt approval.Receipt
	if err := json.Unmarshal([]byte(issued.Receipt), &receipt); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.authorize(harmful, &receipt), approval.CodeChangedArguments)
}

func TestWithoutTheLogAReceiptIsWorthNothing(t *testing.T) {
	s := ops(t)
	receipt := s.granted(post)
	if err := os.Remove(s.Log().Path()); err != nil {
		t.Fatal(err)
	}
	s.open(opsPolicy(""))
	wantCode(t, s.authorize(post, receipt), approval.CodeMissingReceipt)
}

func TestOnlyAnOperatorsSignatureApprovesACall(t *testing.T) {
	for name, policy := range map[string]string{
		"no operator":      `{"toolPolicies": {"ops": {"version": "p-1", "allowed_tools": ["ledger.post"]}}}`,
		"another operator": strings.ReplaceAll(opsPolicy(""), ana.PublicKey(), named("bob").PublicKey()),
	} {
		s := newSite(t, policy)
		asked := s.request(post, "")
		for who, by := range map[string]decision.Signer{"nobody": nil, "ana": ana} {
			_, err := s.Decide(t.Context(), guard.Decision{IDs: []string{asked.ReviewID}, Decision: decision.Approved, Signer: by})
			if e := errcode.Of(err); e == nil || e.Code != errcode.OperatorKey {
				t.Errorf("%s, approved by %s: %v", name, who, err)
			}
		}
		if a := s.request(post, asked.ReviewID); !a.Pending {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestAReceiptIsForItsOwnActor(t *testing.T) {
	s := ops(t)
	asked := s.request(post, "")
	s.approve(asked.ReviewID)
	a := s.said(s.RequestAuthorization(t.Context(), guard.ToolRequest{Call: json.RawMessage(post), Policy: "ops", ReviewID: asked.ReviewID, Actor: "somebody"}))
	wantCode(t, a, approval.CodeBinding)
}

// One subject asks, and a person approves it for that one: another who wants the same
// call asks a person of its own.
func TestOneSubjectsApprovalIsNoOtherSubjects(t *testing.T) {
	s := ops(t)
	ask := func(actor string) *guard.ToolAnswer {
		return s.said(s.RequestAuthorization(t.Context(), guard.ToolRequest{Call: json.RawMessage(post), Policy: "ops", Actor: actor}))
	}
	run := func(actor string, receipt *approval.Receipt) *guard.ToolAnswer {
		return s.said(s.AuthorizeToolCall(t.Context(), guard.ToolRequest{Call: json.RawMessage(post), Policy: "ops", Receipt: encoded(t, receipt), Actor: actor}))
	}
	alice := ask("alice")
	bob := ask("bob")
	if !bob.Pending || bob.ReviewID == alice.ReviewID || ask("alice").ReviewID != alice.ReviewID {
		t.Errorf("alice asks in %s, bob in %s", alice.ReviewID, bob.ReviewID)
	}
	s.approve(alice.ReviewID)
	receipt := ask("alice").Receipt
	if receipt == nil || ask("bob").Receipt != nil || ask("").Receipt != nil {
		t.Fatal("the receipt is not alice's alone")
	}
	wantCode(t, run("bob", receipt), approval.CodeBinding)
	wantCode(t, run("", receipt), approval.CodeBinding)
	if a := run("alice", receipt); !a.Allowed {
		t.Errorf("%+v", a)
	}
}

func TestWhatAPersonsOwnClientIsRefusedStandsUnderItsTool(t *testing.T) { // W19
	s := ops(t)
	nobody := func(context.Context, *guard.ReviewView) (decision.Signer, error) { panic("nobody is asked") }
	last := func() string {
		t.Helper()
		found, _, err := s.Log().Tail(t.Context(), 0, 1, func(*decision.Line) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		return found[0].Body.(*decision.Denied).Tool
	}
	s.said(s.Mint(t.Context(), guard.ToolRequest{Call: json.RawMessage(`{"tool": "shell.exec", "resource": "r", "arguments": {}}`), Policy: "ops"}, "ana", "ana", decision.Approved, "", nobody))
	if tool := last(); tool != "issue_approval_receipt" {
		t.Errorf("the log says %s", tool)
	}
	if _, err := s.MintSpend(t.Context(), guard.FinanceRequest{Tool: "constructor", Args: json.RawMessage(`{}`)}, "ana", "ana", nobody); err != nil {
		t.Fatal(err)
	}
	if tool := last(); tool != "approve_spend" {
		t.Errorf("the log says %s", tool)
	}
}

func TestAReceiptForOneCallIsNoneForAnother(t *testing.T) { // 66
	s := ops(t)
	a := s.granted(post)
	other := strings.Replace(post, "1200-01", "1200-02", 1)
	b := s.request(other, "")
	wantCode(t, s.request(other, a.ReviewID), approval.CodeBinding)
	wantCode(t, s.authorize(other, a), approval.CodeChangedArguments)
	if !s.request(other, b.ReviewID).Pending {
		t.Error("the approval of one call approved another")
	}
	// Nor is a payment's review one of a call.
	id := s.want("review", guard.Request{Amount: "2"}, "review_above").ReviewID
	wantCode(t, s.request(other, id), approval.CodeBinding)
}

func TestEveryRefusalOfACallHasItsLineFirst(t *testing.T) { // 75, 26, 62, 46
	s := ops(t)
	for call, code := range map[string]string{
		`{"tool": "shell.exec", "resource": "tenant:north", "arguments": {}}`:                           approval.CodeToolNotListed,
		`{"tool": "constructor", "resource": "tenant:north", "arguments": {}}`:                          approval.CodeToolNotListed,
		`{"tool": "__proto__", "resource": "tenant:north", "arguments": {}}`:                            approval.CodeToolNotListed,
		`{"tool": "ledger.post", "resource": "tenant:south", "arguments": {}}`:                          approval.CodeResourceNotListed,
		`{"tool": "ledger.post", "resource": "*", "arguments": {}}`:                                     approval.CodeAmbiguous,
		`{"tool": "ledger.post", "resource": "tenant:north"}`:                                           approval.CodeAmbiguous,
		`{"tool": "ledger.post", "resource": "tenant:north", "arguments": {"a": 1e999}}`:                approval.CodeAmbiguous,
		`{"tool": "ledger.post", "resource": "tenant:north", "arguments": {"a": "\ud800"}}`:             approval.CodeAmbiguous,
		`{"tool": "ledger.post", "resource": "tenant:north", "arguments": {"a": 1, "a": 2}}`:            approval.CodeAmbiguous,
		`{"tool": "ledger.post", "resource": "tenant:north", "arguments": {}, "host_bound": {}}`:        approval.CodeAmbiguous,
		`{"tool": "ledger.post", "resource": "tenant:north", "arguments": {}, "_meta": {"cubiczan":1}}`: approval.CodeAmbiguous,
		`{"tool": "kb.search", "resource": "tenant:north", "arguments": {"tenant_id": "north"}}`:        approval.CodeAmbiguous, // the host did not say it
		`{`: approval.CodeAmbiguous,
	} {
		r := guard.ToolRequest{Call: json.RawMessage(call), Policy: "ops"}
		for tool, ask := range map[string]func() (*guard.ToolAnswer, error){
			"evaluate":  func() (*guard.ToolAnswer, error) { return s.EvaluateToolApproval(t.Context(), r) },
			"request":   func() (*guard.ToolAnswer, error) { return s.RequestAuthorization(t.Context(), r) },
			"authorize": func() (*guard.ToolAnswer, error) { return s.AuthorizeToolCall(t.Context(), r) },
		} {
			before := s.state().Lines()
			a := s.said(ask())
			if a.Allowed || a.DenyCode != code || fmt.Sprint(s.lines(before)) != "[denied "+code+"]" {
				t.Errorf("%s, %s: %q, %v, want %s", call, tool, a.DenyCode, s.lines(before), code)
			}
		}
	}
	for name, r := range map[string]guard.ToolRequest{
		"no such policy":          {Call: json.RawMessage(post), Policy: "constructor"},
		"a policy of the callers": {Call: json.RawMessage(post), Brought: json.RawMessage(`{"version": "1", "allowed_tools": ["ledger.post"]}`)},
	} {
		for _, ask := range []func() (*guard.ToolAnswer, error){
			func() (*guard.ToolAnswer, error) { return s.RequestAuthorization(t.Context(), r) },
			func() (*guard.ToolAnswer, error) { return s.AuthorizeToolCall(t.Context(), r) },
		} {
			if a := s.said(ask()); a.DenyCode != approval.CodeAmbiguous || a.Advisory != (r.Brought != nil) {
				t.Errorf("%s: %+v", name, a)
			}
		}
	}
	if a := s.request(post, ""); !a.Pending {
		t.Error("no person was asked")
	}
	before := s.state().Lines()
	if a := s.request(post, ""); !a.Pending || fmt.Sprint(s.lines(before)) != "[denied "+guard.CodePending+"]" {
		t.Errorf("a second pending answer has %v", s.lines(before))
	}
}

func TestTimesToLiveAreBounded(t *testing.T) { // 35, 65
	s := newSite(t, opsPolicy(`, "max_ttl_seconds": 60`))
	for ttl, code := range map[float64]string{0: approval.CodeAmbiguous, -1: approval.CodeAmbiguous, 0.0001: approval.CodeAmbiguous, 60.001: approval.CodeTTLExceedsPolicy, 1e300: approval.CodeTTLExceedsPolicy} {
		a := s.said(s.RequestAuthorization(t.Context(), guard.ToolRequest{Call: json.RawMessage(post), Policy: "ops", TTLSeconds: &ttl}))
		if a.DenyCode != code {
			t.Errorf("%g: %q, want %q", ttl, a.DenyCode, code)
		}
	}
	ttl := 1.5
	asked := s.said(s.RequestAuthorization(t.Context(), guard.ToolRequest{Call: json.RawMessage(post), Policy: "ops", TTLSeconds: &ttl}))
	s.approve(asked.ReviewID)
	issued, expiry := s.request(post, asked.ReviewID).Receipt.Times()
	if expiry.Sub(issued) != 1500*time.Millisecond {
		t.Errorf("it is good for %s", expiry.Sub(issued))
	}
}

func TestAPolicyMayLetReceiptsLastForLonger(t *testing.T) {
	for most, want := range map[string]time.Duration{"7200": 2 * time.Hour, "0.5": 500 * time.Millisecond} {
		s := newSite(t, opsPolicy(`, "max_ttl_seconds": `+most))
		receipt := s.granted(post)
		issued, expiry := receipt.Times()
		if expiry.Sub(issued) != want {
			t.Errorf("%s: it is good for %s", most, expiry.Sub(issued))
		}
		if s.clock.add(want - time.Millisecond); !s.authorize(post, receipt).Allowed {
			t.Errorf("%s: it is over too early", most)
		}
	}
	s := newSite(t, opsPolicy(`, "max_ttl_seconds": 9007199254740991`))
	if a := s.request(post, ""); a.DenyCode != approval.CodeTTLExceedsPolicy {
		t.Errorf("for ever: %+v", a)
	}
}

func TestWhatThePolicyRedactsIsAHashInTheLogAndStillBound(t *testing.T) {
	s := newSite(t, opsPolicy(`, "redact": {"ledger.post": ["account"]}`))
	receipt := s.granted(post)
	raw, err := os.ReadFile(s.Log().Path())
	if err != nil || strings.Contains(string(raw), "1200-01") || !strings.Contains(string(raw), "2500.00") {
		t.Errorf("the log holds what was to be redacted, or not what was not: %v", err)
	}
	wantCode(t, s.authorize(strings.Replace(post, "1200-01", "1200-02", 1), receipt), approval.CodeChangedArguments)
	if a := s.authorize(post, receipt); !a.Allowed {
		t.Errorf("%+v", a)
	}
}

func TestAFreezeHoldsForToolCalls(t *testing.T) {
	s := ops(t)
	receipt := s.granted(post)
	if _, err := s.Freeze(t.Context(), "", "fire"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.authorize(post, receipt), approval.CodePolicyDeny)
	wantCode(t, s.request(post, ""), approval.CodePolicyDeny)
	if err := s.Unfreeze(t.Context(), "", "out", ana); err != nil {
		t.Fatal(err)
	}
	if a := s.authorize(post, receipt); !a.Allowed {
		t.Errorf("%+v", a)
	}
}

// If a refusal cannot be written down no answer leaves, and nothing is used up.
func TestWithoutALineThereIsNoAnswer(t *testing.T) { // 51, 71
	s := ops(t)
	receipt := s.granted(post)
	dir := filepath.Dir(s.Log().Path())
	whole, err := os.ReadFile(s.Log().Path())
	if err != nil {
		t.Fatal(err)
	}
	ask := map[string]func() error{
		"a refusal": func() error {
			a, err := s.AuthorizeToolCall(t.Context(), guard.ToolRequest{Call: json.RawMessage(post), Policy: "ops"})
			return without(a != nil, err)
		},
		"an authorisation": func() error {
			a, err := s.AuthorizeToolCall(t.Context(), guard.ToolRequest{Call: json.RawMessage(post), Policy: "ops", Receipt: encoded(t, receipt)})
			return without(a != nil, err)
		},
		"a request": func() error {
			a, err := s.RequestAuthorization(t.Context(), guard.ToolRequest{Call: json.RawMessage(strings.Replace(post, "1.5", "2.5", 1)), Policy: "ops"})
			return without(a != nil, err)
		},
		"a blocked evaluation": func() error {
			a, err := s.EvaluateSpend(t.Context(), guard.SpendRequest{Action: json.RawMessage(`{"action": "PAY", "asset": "X", "notional": 501}`)})
			return without(a != nil, err)
		},
		"a question that could not be read": func() error { return s.Refused(t.Context(), "authorize_tool_call", "", guard.CodeInput, "x") },
	}
	for how, spoil := range map[string]func(){
		"the log is a directory": func() {
			_ = os.Remove(s.Log().Path())
			_ = os.Mkdir(s.Log().Path(), 0o700)
		},
		"the log is a link": func() {
			_ = os.WriteFile(filepath.Join(dir, "elsewhere"), whole, 0o600)
			_ = os.Remove(s.Log().Path())
			_ = os.Symlink("elsewhere", s.Log().Path())
		},
	} {
		spoil()
		for name, try := range ask {
			if e := errcode.Of(try()); e == nil || e.Code != errcode.LogWrite {
				t.Errorf("%s, %s: %v, want E_LOG_WRITE", how, name, e)
			}
		}
		_ = os.RemoveAll(s.Log().Path())
		if err := os.WriteFile(s.Log().Path(), whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.open(opsPolicy(""))
	if a := s.authorize(post, receipt); !a.Allowed {
		t.Errorf("it was used up by an error: %+v", a)
	}
}

var errSaid = errors.New("an answer left beside the error")

func without(said bool, err error) error {
	if said {
		return errSaid
	}
	return err
}

func TestATornLineIsSetAsideAndTheNextAnswerHasItsLine(t *testing.T) { // 69
	s := ops(t)
	receipt := s.granted(post)
	f, err := os.OpenFile(s.Log().Path(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"receipt_id":"` + receipt.Nonce); err != nil {
		t.Fatal(err)
	}
	f.Close()
	s.open(opsPolicy(""))
	if a := s.authorize(post, receipt); !a.Allowed {
		t.Errorf("%+v", a)
	}
	if torn, _ := filepath.Glob(filepath.Join(filepath.Dir(s.Log().Path()), "torn-*.bin")); len(torn) != 1 {
		t.Errorf("set aside are %v", torn)
	}
}

// A receipt that an approval has issued may be handed on as one of version 1: it is
// worth what the approval is.
func TestAReceiptUnderASharedKeyIsTheApprovalsOwn(t *testing.T) {
	key, err := approval.NewHMACKey(strings.Repeat("k", 32))
	if err != nil {
		t.Fatal(err)
	}
	open := func() *site {
		s := ops(t)
		s.openWith(opsPolicy(""), func(o *guard.Options) { o.HMAC, o.AllowHMAC = &key, true })
		return s
	}
	for name, c := range map[string]struct {
		before func(s *site, v1, v2 *approval.Receipt) *approval.Receipt
		code   string
	}{
		"it runs the call":            {func(_ *site, v1, _ *approval.Receipt) *approval.Receipt { return v1 }, ""},
		"used as the other":           {func(s *site, v1, v2 *approval.Receipt) *approval.Receipt { s.authorize(post, v2); return v1 }, approval.CodeReplayed},
		"the other, when it was used": {func(s *site, v1, v2 *approval.Receipt) *approval.Receipt { s.authorize(post, v1); return v2 }, approval.CodeReplayed},
		"the approval was revoked": {func(s *site, v1, v2 *approval.Receipt) *approval.Receipt {
			s.decideAs(nil, decision.Revoked, v2.ReviewID)
			return v1
		}, approval.CodeMissingReceipt},
		"not what the approval says": {func(_ *site, v1, _ *approval.Receipt) *approval.Receipt {
			i := *v1
			i.IssuedAt = strings.Replace(i.IssuedAt, "Z", "+00:00", 1)
			changed, err := i.Shared(key)
			if err != nil {
				t.Fatal(err)
			}
			return changed
		}, approval.CodeMissingReceipt},
	} {
		t.Run(name, func(t *testing.T) {
			s := open()
			v2 := s.granted(post)
			v1, err := s.SharedReceipt(t.Context(), v2.ReviewID, key)
			if err != nil || v1.SchemaVersion != approval.ReceiptV1 || v1.Nonce != v2.Nonce || v1.ReviewID != "" {
				t.Fatalf("%+v, %v", v1, err)
			}
			a := s.authorize(post, c.before(s, v1, v2))
			if c.code != "" {
				wantCode(t, a, c.code)
				return
			}
			if r := s.state().Review(v2.ReviewID); !a.Allowed || a.ReviewID != v2.ReviewID || r.Status(s.clock.now()) != decision.StatusUsed {
				t.Errorf("%+v", a)
			}
			if _, err := s.SharedReceipt(t.Context(), v2.ReviewID, key); errcode.Of(err).Code != errcode.Input {
				t.Errorf("a used one is given out: %v", err)
			}
		})
	}
	s := open()
	if _, err := s.SharedReceipt(t.Context(), s.request(post, "").ReviewID, key); errcode.Of(err).Code != errcode.Input {
		t.Errorf("a pending one is given out: %v", err)
	}
	v2 := s.granted(strings.Replace(post, "1200-01", "1200-02", 1))
	if _, err := s.SharedReceipt(t.Context(), v2.ReviewID, approval.HMACKey{}); errcode.Of(err).Code != errcode.Usage {
		t.Errorf("without a key: %v", err)
	}
}

// Receipts of version 1 are verified where there is a key, and stand for a person only
// where that was asked for: whoever can verify one could have made it.
func TestReceiptsUnderASharedKeyCountWhereTheyAreLetTo(t *testing.T) { // 33, 20, 31
	s := ops(t)
	key, err := approval.NewHMACKey(strings.Repeat("k", 32))
	if err != nil {
		t.Fatal(err)
	}
	other, err := approval.NewHMACKey(strings.Repeat("o", 32))
	if err != nil {
		t.Fatal(err)
	}
	issue := func(key approval.HMACKey, nonce string) *approval.Receipt {
		t.Helper()
		var call approval.Call
		call.Tool, call.Resource, call.Arguments = "ledger.post", "tenant:north", json.RawMessage(`{"account": "1200-01", "amount": "2500.00", "fx": 1.5}`)
		made := approval.Issue{Policy: s.Policy().ToolPolicy("ops"), Call: call, Actor: "ana", Decision: approval.Allow, Nonce: nonce, Now: s.clock.now()}.HMAC(key)
		if made.Receipt == nil {
			t.Fatalf("%+v", made)
		}
		return made.Receipt
	}
	wantCode(t, s.authorize(post, issue(key, "n-1")), approval.CodeInvalidSignature)
	s.openWith(opsPolicy(""), func(o *guard.Options) { o.HMAC = &key })
	wantCode(t, s.authorize(post, issue(key, "n-2")), approval.CodeMissingReceipt)
	wantCode(t, s.authorize(post, issue(other, "n-3")), approval.CodeInvalidSignature)
	s.openWith(opsPolicy(""), func(o *guard.Options) { o.HMAC, o.AllowHMAC = &key, true })
	receipt := issue(key, "n-4")
	if a := s.authorize(post, receipt); !a.Allowed {
		t.Fatalf("%+v", a)
	}
	s.openWith(opsPolicy(""), func(o *guard.Options) { o.HMAC, o.AllowHMAC = &key, true })
	wantCode(t, s.authorize(post, receipt), approval.CodeReplayed)
	// A log that was begun anew cannot tell which of the older ones were used.
	older := issue(key, "n-5")
	s.clock.add(2 * time.Second)
	f, err := os.OpenFile(s.Log().Path(), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("{}\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	s.openWith(opsPolicy(""), func(o *guard.Options) { o.HMAC, o.AllowHMAC = &key, true })
	if _, err := s.Log().Recover(t.Context(), decision.SetAside{By: ana}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, s.authorize(post, older), approval.CodeReplayed)
	s.clock.add(time.Second)
	if a := s.authorize(post, issue(key, "n-6")); !a.Allowed {
		t.Errorf("%+v", a)
	}
}

func TestTheLedgerSaysWhetherItsEndIsPinned(t *testing.T) {
	s := ops(t)
	receipt := s.granted(post)
	s.authorize(post, receipt)
	page, err := s.Ledger(t.Context(), 0, 50, true)
	if err != nil || !page.OK || page.Pinned {
		t.Fatalf("%+v, %v", page, err)
	}
	var events []string
	for _, e := range page.Entries {
		events = append(events, e.Event)
		if e.Tool != "ledger.post" || e.Scope != "tenant:north" || e.ArgsHash != receipt.ArgsHash || (e.Arguments != nil) != (e.Event == "pending") {
			t.Errorf("%+v", e)
		}
	}
	if fmt.Sprint(events) != "[pending decided authorize execute]" || page.Entries[1].Approver != "ana" || page.Entries[1].Decision != decision.Approved {
		t.Errorf("%v %+v", events, page.Entries)
	}
	pin := filepath.Join(t.TempDir(), "checkpoint")
	s.openWith(opsPolicy(""), func(o *guard.Options) { o.Checkpoint = pin })
	s.authorize(post, receipt)
	if page, err = s.Ledger(t.Context(), 0, 50, false); err != nil || !page.Pinned || page.Lines != s.state().Lines() {
		t.Errorf("%+v, %v", page, err)
	}
}
