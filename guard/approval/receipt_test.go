package approval

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// strongKey is a key of HMAC receipts that may be used.
var strongKey = func() HMACKey {
	k, err := NewHMACKey(strings.Repeat("key-of-the-tests.", 3))
	if err != nil {
		panic(err)
	}
	return k
}()

func seeded(b byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(b), ed25519.SeedSize)))
}

func publicOf(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

// person is an operator who signs.
type person struct {
	name string
	key  ed25519.PrivateKey
	err  error
}

func (p person) Name() string                     { return p.name }
func (p person) PublicKey() string                { return base64.StdEncoding.EncodeToString(publicOf(p.key)) }
func (p person) Sign(text []byte) ([]byte, error) { return ed25519.Sign(p.key, text), p.err }

var (
	ana     = person{name: "ana", key: seeded('a')}
	mallory = person{name: "mallory", key: seeded('m')}
	autoKey = seeded('0')
	behind  = Approval{ReviewID: "rev-1", DecisionHash: strings.Repeat("d", 64)}
	locked  = &Verdict{State: Locked}
)

func trusted() Keys {
	return Keys{Operators: []OperatorKey{{Name: "ana", Public: publicOf(ana.key)}}, Auto: publicOf(autoKey), HMAC: &strongKey}
}

func issue(p *ToolPolicy, c Call, decision string) Issue {
	return Issue{Policy: p, Call: c, Actor: "ana", Decision: decision, Reason: "a note", Nonce: "nonce-1", Now: noon}
}

// sold is a call with what it spends.
func sold(t testing.TB) Issue {
	i := issue(mustPolicy(t, toolPolicy), hostedCall(t, postCall), Allow)
	i.Money = Money{Counterparty: "seller.example", Amount: "2500000000", Asset: "eip155:8453/0xa"}
	i.PolicyHash = strings.Repeat("b", 64)
	i.Spend = locked
	return i
}

// signed is a receipt of version 2.
func signed(t testing.TB, i Issue, by Signer, behind Approval) *Receipt {
	t.Helper()
	r, err := i.Signed(by, behind)
	if err != nil || r.Receipt == nil {
		t.Fatalf("%+v, %v", r, err)
	}
	// What is presented was written and read.
	receipt, err := ParseReceipt(node(t, encoded(t, r.Receipt)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(r.Receipt, receipt); diff != "" {
		t.Fatal(diff)
	}
	return receipt
}

// present is the call of an issue with a receipt, a moment later.
func present(i Issue, r *Receipt) Presented {
	return Presented{
		Policy: i.Policy, Call: i.Call, Receipt: r, Keys: trusted(), Now: i.Now.Add(time.Second), Burnt: func(string) bool { return false },
		Approved: func(id string) (string, bool) { return behind.DecisionHash, id == behind.ReviewID },
		Spend:    i.Spend, PolicyHash: i.PolicyHash, Money: i.Money,
	}
}

func denies(t *testing.T, code string, r ToolResult) {
	t.Helper()
	outcome{State: Denied, Code: &code}.assert(t, r)
}

func authorises(t *testing.T, r ToolResult) {
	t.Helper()
	outcome{State: Authorized}.assert(t, r)
}

func Test18AReceiptBindsEveryFieldAndItsMACIsTheHMACOfItsBody(t *testing.T) {
	i := issue(mustPolicy(t, toolPolicy), hostedCall(t, postCall), Allow)
	answer := i.HMAC(strongKey)
	var m map[string]any
	if err := json.Unmarshal([]byte(encoded(t, answer.Receipt)), &m); err != nil {
		t.Fatal(err)
	}
	signature := m["signature"]
	delete(m, "signature")
	want := map[string]any{
		"kind": "chp.tool_approval_receipt", "schema_version": "1", "chp_version": "1.0", "actor": "ana", "tool": "ledger.post", "resource": "tenant:north",
		"args_hash": answer.ArgsHash, "policy_version": "p-1", "risk": "critical", "issued_at": "2026-03-01T12:00:00.000Z", "expiry": "2026-03-01T12:02:00.000Z",
		"decision": "allow", "nonce": "nonce-1",
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Error(diff)
	}
	body, err := canon.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	h := hmac.New(sha256.New, []byte(strings.Repeat("key-of-the-tests.", 3)))
	h.Write(body)
	if mac := hex.EncodeToString(h.Sum(nil)); signature != mac {
		t.Errorf("signed %s, want %s", signature, mac)
	}
	other, err := NewHMACKey(strings.Repeat("another-key.", 3))
	if err != nil {
		t.Fatal(err)
	}
	if _, refused := (Keys{HMAC: &other}).Verify(answer.Receipt, noon); refused == nil || refused.Code != CodeInvalidSignature {
		t.Errorf("another key verifies it: %v", refused)
	}
}

func Test21AReceiptWorksOnceAndItsHashIsThatOfItsIssue(t *testing.T) {
	for name, c := range map[string]func(Issue) (ToolResult, error){
		"version 1": func(i Issue) (ToolResult, error) { return i.HMAC(strongKey), nil },
		"version 2": func(i Issue) (ToolResult, error) { return i.Signed(ana, behind) },
	} {
		t.Run(name, func(t *testing.T) {
			i := sold(t)
			issued, err := c(i)
			if err != nil || issued.Receipt == nil {
				t.Fatalf("%+v, %v", issued, err)
			}
			a := present(i, issued.Receipt)
			r := Authorize(a)
			authorises(t, r)
			if r.Burn != "nonce-1" || r.ReceiptHash != issued.ReceiptHash || r.ReceiptHash != issued.DecisionLog.ReceiptHash || r.ReceiptHash != issued.Receipt.Hash() {
				t.Errorf("it burns %q, hash %s", r.Burn, r.ReceiptHash)
			}
		})
	}
}

func Test24AReceiptThatWasUsedUpIsReplayed(t *testing.T) {
	i := sold(t)
	a := present(i, signed(t, i, ana, behind))
	burnt := Authorize(a).Burn
	a.Burnt = func(nonce string) bool { return nonce == burnt }
	answer := Authorize(a)
	denies(t, CodeReplayed, answer)
	if answer.Burn != "" {
		t.Error("it is used up twice")
	}
	a.Burnt = nil
	denies(t, CodeReplayed, Authorize(a)) // whoever does not know what was used up lets nothing through
}

func Test22ChangedArgumentsAreDeniedAndTheCallThatWasApprovedStillWorks(t *testing.T) {
	i := sold(t)
	r := signed(t, i, ana, behind)
	changed := present(i, r)
	changed.Call.Arguments = json.RawMessage(`{"account":"1200-01","amount":"2500.01","fx":1.5}`)
	answer := Authorize(changed)
	denies(t, CodeChangedArguments, answer)
	if answer.Burn != "" {
		t.Error("a call that was not approved uses the receipt up")
	}
	authorises(t, Authorize(present(i, r)))
}

func Test23AnExpiredReceiptIsUsedUpSoThatAClockSetBackDoesNotReviveIt(t *testing.T) {
	i := sold(t)
	r := signed(t, i, ana, behind)
	a := present(i, r)
	for offset, code := range map[time.Duration]string{
		119999 * time.Millisecond: "", 120 * time.Second: CodeExpired, 24 * time.Hour: CodeExpired,
		-time.Second: "", -1001 * time.Millisecond: CodeAmbiguous,
	} {
		a.Now = noon.Add(offset)
		answer := Authorize(a)
		if answer.DenyCode != code {
			t.Errorf("%s after it was issued: %q, want %q", offset, answer.DenyCode, code)
		}
		if burns := answer.Burn != ""; burns != (code != CodeAmbiguous) {
			t.Errorf("%s after it was issued: used up is %v", offset, burns)
		}
	}
	a.Now, a.Burnt = noon, func(string) bool { return true }
	denies(t, CodeReplayed, Authorize(a))
}

func Test25APersonsNoIsKeptWithItsReasonAndAuthorisesNothing(t *testing.T) {
	i := issue(mustPolicy(t, toolPolicy), hostedCall(t, postCall), Deny)
	issued, err := i.Signed(ana, behind)
	if err != nil {
		t.Fatal(err)
	}
	code := CodeHumanDenied
	outcome{State: Denied, Code: &code}.assert(t, issued)
	want := &DecisionLog{
		At: "2026-03-01T12:00:00.000Z", Actor: "ana", Tool: "ledger.post", Resource: "tenant:north", ArgsHash: issued.ArgsHash, Decision: Deny,
		Reason: "a note", Nonce: "nonce-1", PolicyVersion: "p-1", ReceiptHash: issued.ReceiptHash,
	}
	if diff := cmp.Diff(want, issued.DecisionLog); diff != "" {
		t.Error(diff)
	}
	answer := Authorize(present(i, issued.Receipt))
	denies(t, CodeHumanDenied, answer)
	if answer.Burn != "nonce-1" {
		t.Error("it may be tried again")
	}
}

func Test27APersonCannotAllowWhatThePolicyDoesNotList(t *testing.T) {
	i := issue(mustPolicy(t, toolPolicy), with(t, postCall, "tool", `"shell.exec"`), Allow)
	r, err := i.Signed(ana, behind)
	if err != nil || r.Receipt != nil || r.DecisionLog != nil {
		t.Errorf("%+v, %v", r, err)
	}
	denies(t, CodeToolNotListed, r)
	if hash := i.RequestHash(); hash != "" {
		t.Errorf("a review could be opened for it, as %s", hash)
	}
}

// Test28 edits every field of receipts that are otherwise in order.
func Test28AnEditedFieldFailsTheSignatureAndAnExtraKeyTheParser(t *testing.T) {
	i := sold(t)
	v1, v2 := i.HMAC(strongKey).Receipt, signed(t, i, ana, behind)
	for _, r := range []*Receipt{v1, v2} {
		edits := map[string][]string{
			"actor": {"mallory", "ana "}, "tool": {"ledger.void"}, "resource": {"tenant:west"}, "args_hash": {strings.Repeat("0", 64)}, "policy_version": {"p-2"},
			"risk": {"low"}, "issued_at": {"2026-03-01T11:59:59.000Z", "2026-03-01T12:00:00Z"}, "expiry": {"2026-03-01T12:59:00.000Z"}, "decision": {"deny"},
			"nonce": {"nonce-2"}, "chp_version": {"1.1"}, "review_id": {"rev-2"}, "decision_hash": {strings.Repeat("e", 64)}, "request_hash": {strings.Repeat("e", 64)},
			"policy_hash": {strings.Repeat("e", 64)}, "key_id": {KeyID(publicOf(mallory.key)), KeyID(publicOf(autoKey)), "x"},
			"signature": {"", "x", strings.ToUpper(r.Signature), r.Signature[:len(r.Signature)-1], r.Signature + "\n", " " + r.Signature},
		}
		for _, f := range r.fields() {
			for _, value := range edits[f.key] {
				edited, err := ParseReceipt(node(t, edit(t, encoded(t, r), f.key, encoded(t, value))))
				if err != nil {
					t.Fatalf("%s: %v", f.key, err)
				}
				a := present(i, edited)
				a.Keys.AllowHMAC = true
				answer := Authorize(a)
				if answer.DenyCode != CodeInvalidSignature || answer.Burn != "" {
					t.Errorf("version %s, %s as %q: %s %q", r.SchemaVersion, f.key, value, answer.State, answer.DenyCode)
				}
			}
		}
		for _, extra := range []string{`"note":"x"`, `"x":null`, `"__proto__":"x"`, `"tool":"ledger.post"`, `"args":{}`} {
			src := edit(t, encoded(t, r), "-", extra)
			if _, err := ParseReceipt(node(t, src)); err == nil {
				t.Errorf("%s was read", src)
			}
		}
		for _, f := range r.fields() {
			if _, err := ParseReceipt(node(t, edit(t, encoded(t, r), f.key, ""))); err == nil {
				t.Errorf("version %s without %s was read", r.SchemaVersion, f.key)
			}
			for _, other := range []string{"null", "1", "true", "[]", "{}", `"\ud800"`} {
				if _, err := ParseReceipt(node(t, edit(t, encoded(t, r), f.key, other))); err == nil {
					t.Errorf("version %s with %s as %s was read", r.SchemaVersion, f.key, other)
				}
			}
		}
	}
	// A receipt of one version is none of the other.
	for _, src := range []string{edit(t, encoded(t, v1), "schema_version", `"2"`), edit(t, encoded(t, v2), "schema_version", `"1"`), edit(t, encoded(t, v1), "schema_version", `"3"`)} {
		if _, err := ParseReceipt(node(t, src)); err == nil {
			t.Errorf("%s was read", src)
		}
	}
}

func Test29AnotherTenantAndANewerPolicyAreDenied(t *testing.T) {
	i := sold(t)
	r := signed(t, i, ana, behind)
	west := present(i, r)
	west.Call.Resource = "tenant:west"
	denies(t, CodeResourceNotListed, Authorize(west))
	west.Policy = mustPolicy(t, edit(t, toolPolicy, "allowed_resources", `{}`))
	denies(t, CodeBinding, Authorize(west))
	newer := present(i, r)
	newer.Policy = mustPolicy(t, edit(t, toolPolicy, "version", `"p-2"`))
	denies(t, CodePolicyVersion, Authorize(newer))
}

// Test30 lays one fault over the other, the first to be named on top: taking away the
// top one shows the next (approvals contract, section 4.7).
func Test30TheFirstThingThatIsWrongIsTheOneThatIsNamed(t *testing.T) {
	i := sold(t)
	i.Decision = Deny
	no := signed(t, i, ana, behind)
	i.Decision = Allow
	yes := signed(t, i, ana, behind)
	edited := *yes
	edited.Actor = "mallory"
	everything := present(i, &edited)
	everything.Now = noon.Add(-time.Hour)
	everything.Burnt = func(string) bool { return true }
	everything.Policy = mustPolicy(t, edit(t, edit(t, edit(t, toolPolicy, "version", `"p-2"`), "tool_risk", `{}`), "allowed_resources", `{}`))
	everything.PolicyHash = strings.Repeat("c", 64)
	everything.Call = with(t, postCall, "resource", `"*"`)
	everything.Call.Tool = "ledger.void"
	everything.Call.Arguments = json.RawMessage(`{}`)
	everything.Money.Amount = "1"
	everything.Approved = nil
	everything.Unreadable = errors.New("it was cut")
	everything.Spend = &Verdict{State: Blocked, Reasons: []string{"daily-cap: over"}}
	policy := everything.Policy
	everything.Policy = nil
	for _, s := range []struct {
		code string
		mend func(*Presented)
	}{
		{CodeAmbiguous, func(a *Presented) { a.Policy = policy }},
		{CodeAmbiguous, func(a *Presented) { a.Call.Resource = "tenant:east" }},
		{CodeAmbiguous, func(a *Presented) { a.Receipt, a.Unreadable = nil, nil }},
		{CodeAllowlistIsNotAuth, func(a *Presented) { a.Receipt = &edited }},
		{CodeInvalidSignature, func(a *Presented) { a.Receipt = yes }},
		{CodeReplayed, func(a *Presented) { a.Burnt = func(string) bool { return false } }},
		{CodeAmbiguous, func(a *Presented) { a.Now = noon.Add(time.Hour) }},
		{CodeExpired, func(a *Presented) { a.Now, a.Receipt = noon, no }},
		{CodeHumanDenied, func(a *Presented) { a.Receipt = yes }},
		{CodePolicyVersion, func(a *Presented) {
			a.Policy = mustPolicy(t, edit(t, edit(t, toolPolicy, "tool_risk", `{}`), "allowed_resources", `{}`))
		}},
		{CodePolicyVersion, func(a *Presented) { a.PolicyHash = i.PolicyHash }},
		{CodeBinding, func(a *Presented) { a.Call.Tool = "ledger.post" }},
		{CodeBinding, func(a *Presented) { a.Call.Resource = "tenant:north" }},
		{CodeChangedArguments, func(a *Presented) { a.Call.Arguments = i.Call.Arguments }},
		{CodeRisk, func(a *Presented) { a.Policy = i.Policy }},
		{CodeBinding, func(a *Presented) { a.Money = i.Money }},
		{CodePolicyDeny, func(a *Presented) { a.Spend = &Verdict{State: HITLRequired} }},
		{CodeMissingReceipt, func(a *Presented) { a.Approved = func(string) (string, bool) { return behind.DecisionHash, true } }},
	} {
		denies(t, s.code, Authorize(everything))
		s.mend(&everything)
	}
	authorises(t, Authorize(everything))
}

func Test33WithoutAKeyOfItsOwnNothingIsSignedOrVerified(t *testing.T) {
	for name, secret := range map[string]string{
		"no key": "", "blanks": strings.Repeat(" ", 40), "a short key": strings.Repeat("k", 31), "a short key and blanks": strings.Repeat("k", 31) + "\n\n",
		"the key the published server falls back to": "cubiczan-chp-mcp-insecure-default-key",
		"that key with a newline behind it":          "cubiczan-chp-mcp-insecure-default-key\n",
		"a key of the vectors":                       strings.Repeat("0123456789abcdef", 9),
	} {
		_, err := NewHMACKey(secret)
		var e *errcode.Error
		if !errors.As(err, &e) || e.Code != errcode.Usage {
			t.Errorf("%s: %v", name, err)
		}
		if secret != "" && strings.TrimSpace(secret) != "" && strings.Contains(err.Error(), strings.TrimSpace(secret)) {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
	if _, err := NewHMACKey(strings.Repeat("k", 32)); err != nil {
		t.Error(err)
	}
	for _, v := range readVectors(t).MAC {
		if _, err := NewHMACKey(v.Key); err == nil {
			t.Errorf("the key of the vector %s is taken", v.Name)
		}
	}
	i := sold(t)
	receipt := i.HMAC(strongKey).Receipt
	for name, k := range map[string]*HMACKey{"none": nil, "an empty one": {}} {
		a := present(i, receipt)
		a.Keys = Keys{HMAC: k, AllowHMAC: true}
		denies(t, CodeInvalidSignature, Authorize(a))
		if r := i.HMAC(HMACKey{}); r.Receipt != nil {
			t.Errorf("%s signs %+v", name, r.Receipt)
		}
	}
}

func Test35TheLifetimeOfAReceiptHasEdges(t *testing.T) {
	standard := mustPolicy(t, edit(t, toolPolicy, "max_ttl_seconds", ""))
	generous := mustPolicy(t, edit(t, toolPolicy, "max_ttl_seconds", "1e300"))
	for name, c := range map[string]struct {
		policy *ToolPolicy
		money  bool
		ttl    float64
		lives  time.Duration
		code   string
	}{
		"zero":                         {standard, false, 0, 0, CodeAmbiguous},
		"negative zero":                {standard, false, math.Copysign(0, -1), 0, CodeAmbiguous},
		"negative":                     {standard, false, -1, 0, CodeAmbiguous},
		"less than a millisecond":      {standard, false, 0.0004, 0, CodeAmbiguous},
		"a millisecond":                {standard, false, 0.001, time.Millisecond, ""},
		"a fraction":                   {standard, false, 0.3, 300 * time.Millisecond, ""},
		"not a number":                 {standard, false, math.NaN(), 0, CodeAmbiguous},
		"endless":                      {standard, false, math.Inf(1), 0, CodeTTLExceedsPolicy},
		"endless in the past":          {standard, false, math.Inf(-1), 0, CodeAmbiguous},
		"the cap":                      {standard, false, 300, 300 * time.Second, ""},
		"above the cap":                {standard, false, 301, 0, CodeTTLExceedsPolicy},
		"a little above the cap":       {standard, false, 300.0004, 0, CodeTTLExceedsPolicy},
		"the cap of what spends":       {standard, true, 3600, time.Hour, ""},
		"above the cap of what spends": {standard, true, 3601, 0, CodeTTLExceedsPolicy},
		"a policy's own cap":           {mustPolicy(t, toolPolicy), true, 120, 2 * time.Minute, ""},
		"above a policy's own cap":     {mustPolicy(t, toolPolicy), true, 121, 0, CodeTTLExceedsPolicy},
		"a day":                        {generous, false, 86400, 24 * time.Hour, ""},
		"beyond the calendar":          {generous, false, 1e300, 0, CodeTTLExceedsPolicy},
		"just beyond the calendar":     {generous, false, 7974 * 366 * 86400, 0, CodeTTLExceedsPolicy},
	} {
		t.Run(name, func(t *testing.T) {
			i := issue(c.policy, hostedCall(t, postCall), Allow)
			if c.money {
				i = sold(t)
				i.Policy = c.policy
			}
			i.TTLSeconds = &c.ttl
			r, err := i.Signed(ana, behind)
			if err != nil || r.DenyCode != c.code || (r.Receipt != nil) != (c.code == "") {
				t.Fatalf("%q, %v, %v, want %q", r.DenyCode, r.Receipt, err, c.code)
			}
			if r.Receipt != nil {
				if issued, expiry := r.Receipt.Times(); expiry.Sub(issued) != c.lives {
					t.Errorf("it lives for %s, want %s", expiry.Sub(issued), c.lives)
				}
			}
		})
	}
	day := mustPolicy(t, edit(t, toolPolicy, "max_ttl_seconds", "86400"))
	for p, want := range map[*ToolPolicy][2]time.Duration{
		standard: {300 * time.Second, 300 * time.Second}, mustPolicy(t, toolPolicy): {120 * time.Second, 120 * time.Second}, day: {24 * time.Hour, 300 * time.Second},
	} {
		call, spend := issue(p, hostedCall(t, postCall), Allow), sold(t)
		spend.Policy = p
		for n, i := range []Issue{call, spend} {
			if issued, expiry := signed(t, i, ana, behind).Times(); expiry.Sub(issued) != want[n] {
				t.Errorf("nobody asks for a time, and it lives for %s, want %s", expiry.Sub(issued), want[n])
			}
		}
	}
}

func Test36ADenialFlippedToAllowFailsItsSignature(t *testing.T) {
	i := issue(mustPolicy(t, toolPolicy), hostedCall(t, postCall), Deny)
	for _, r := range []*Receipt{i.HMAC(strongKey).Receipt, signed(t, i, ana, behind)} {
		r.Decision = Allow
		a := present(i, r)
		a.Keys.AllowHMAC = true
		denies(t, CodeInvalidSignature, Authorize(a))
	}
}

func Test37APolicyOfOtherContentUnderOneVersionIsAnother(t *testing.T) {
	i := issue(mustPolicy(t, toolPolicy), hostedCall(t, postCall), Allow)
	r := signed(t, i, ana, behind)
	for name, src := range map[string]string{
		"one more tool":      edit(t, toolPolicy, "allowed_tools", `["ledger.post","ledger.void","kb.search","shell.exec"]`),
		"another time":       edit(t, toolPolicy, "max_ttl_seconds", "121"),
		"fewer host fields":  edit(t, toolPolicy, "host_bound_fields", `{}`),
		"something redacted": edit(t, toolPolicy, "-", `"redact":["account"]`),
	} {
		a := present(i, r)
		a.Policy = mustPolicy(t, src)
		t.Run(name, func(t *testing.T) { denies(t, CodePolicyVersion, Authorize(a)) })
	}
	respelt := present(i, r)
	respelt.Policy = mustPolicy(t, edit(t, toolPolicy, "max_ttl_seconds", "1.2e2"))
	authorises(t, Authorize(respelt))
	// Where the guard's policy decides beside it, that one's content counts.
	paid := sold(t)
	a := present(paid, signed(t, paid, ana, behind))
	a.PolicyHash = strings.Repeat("c", 64)
	denies(t, CodePolicyVersion, Authorize(a))
}

func Test43AHostBoundReceiptWorksOnceForItsArgumentsAlone(t *testing.T) {
	i := issue(mustPolicy(t, toolPolicy), hostedCall(t, searchCall), Allow)
	r := signed(t, i, ana, behind)
	changed := present(i, r)
	changed.Call = with(t, searchCall, "arguments", `{"query":"all invoices"}`)
	denies(t, CodeChangedArguments, Authorize(changed))
	changed.Call = with(t, searchCall, "host_bound", `{"tenant_id":"rival","index":"live"}`)
	denies(t, CodeChangedArguments, Authorize(changed))
	a := present(i, r)
	answer := Authorize(a)
	authorises(t, answer)
	a.Burnt = func(nonce string) bool { return nonce == answer.Burn }
	denies(t, CodeReplayed, Authorize(a))
}

func Test61AForgedReceiptWithRightHashesCountsForNothing(t *testing.T) {
	i := sold(t)
	forged := *signed(t, i, ana, behind)
	forged.Nonce = "nonce-2"
	for name, sign := range map[string]func(*Receipt){
		"the old signature":            func(*Receipt) {},
		"a key nobody trusts":          func(r *Receipt) { _ = r.sign(mallory) },
		"a key that claims another":    func(r *Receipt) { id := r.KeyID; _ = r.sign(mallory); r.KeyID = id },
		"the auto key for a review":    func(r *Receipt) { _ = r.sign(NewAutoSigner(autoKey)) },
		"the auto key as auto":         func(r *Receipt) { r.Actor = ActorAuto; _ = r.sign(NewAutoSigner(autoKey)) },
		"the auto key without review":  func(r *Receipt) { r.ReviewID, r.DecisionHash = "", ""; _ = r.sign(NewAutoSigner(autoKey)) },
		"a person without a review":    func(r *Receipt) { r.ReviewID, r.DecisionHash = "", ""; _ = r.sign(ana) },
		"a person as auto":             func(r *Receipt) { r.Actor = ActorAuto; _ = r.sign(ana) },
		"a person as somebody else":    func(r *Receipt) { r.Actor = "bob"; _ = r.sign(ana) },
		"a hash in place of signature": func(r *Receipt) { r.Signature = r.Hash() },
		"a MAC in place of signature":  func(r *Receipt) { r.Signature = strongKey.mac(r.Body()) },
	} {
		r := forged
		sign(&r)
		if _, refused := trusted().Verify(&r, noon); refused == nil || refused.Code != CodeInvalidSignature {
			t.Errorf("%s: %v", name, refused)
		}
		denies(t, CodeInvalidSignature, Authorize(present(i, &r)))
	}
	if _, refused := (Keys{}).Verify(&forged, noon); refused == nil {
		t.Error("keys of nobody verify")
	}
	if _, refused := trusted().Verify(&Receipt{}, noon); refused == nil {
		t.Error("an empty receipt verifies")
	}
}

func Test64AnAuthorisationWhoseEndCannotBeReadIsOver(t *testing.T) {
	a := signed(t, sold(t), ana, behind).Authorization()
	for end, over := range map[string]bool{a.ExpiresAt: false, "": true, "soon": true, "9999": true, "2026-03-01": true, "2026-03-01T12:00:00.000Z": true, "Infinity": true} {
		a.ExpiresAt = end
		if got := a.Expired(noon); got != over {
			t.Errorf("%q is over: %v", end, got)
		}
	}
	if issued, expiry := (Receipt{IssuedAt: "x", Expiry: "y"}).Times(); issued.After(noon) || expiry.After(noon) {
		t.Error("a receipt without times is alive")
	}
}

func Test65ALifetimeThatIsNoneOrHugeIsRefusedForWhatSpends(t *testing.T) {
	for ttl, code := range map[float64]string{0: CodeAmbiguous, -5: CodeAmbiguous, 1e12: CodeTTLExceedsPolicy, math.Inf(1): CodeTTLExceedsPolicy, math.Inf(-1): CodeAmbiguous} {
		i := sold(t)
		i.Actor, i.TTLSeconds = ActorAuto, &ttl
		r, err := i.Signed(NewAutoSigner(autoKey), Approval{})
		if err != nil || r.Receipt != nil || r.DenyCode != code {
			t.Errorf("%v: %q, %v, %v", ttl, r.DenyCode, r.Receipt, err)
		}
	}
	// One that was signed all the same does not count either.
	i := sold(t)
	long := *signed(t, i, ana, behind)
	long.Expiry = "2026-03-01T12:02:00.001Z"
	if err := long.sign(ana); err != nil {
		t.Fatal(err)
	}
	denies(t, CodeTTLExceedsPolicy, Authorize(present(i, &long)))
}

func Test66AReceiptForAnotherPaymentIsRefused(t *testing.T) {
	i := sold(t)
	r := signed(t, i, ana, behind)
	for name, money := range map[string]Money{
		"another seller": {"other.example", i.Money.Amount, i.Money.Asset},
		"another amount": {i.Money.Counterparty, "2500000001", i.Money.Asset},
		"another asset":  {i.Money.Counterparty, i.Money.Amount, "eip155:1/0xa"},
		"no payment":     {},
	} {
		a := present(i, r)
		a.Money = money
		t.Run(name, func(t *testing.T) { denies(t, CodeBinding, Authorize(a)) })
	}
}

func TestAReceiptCountsOnlyWithTheApprovalBehindIt(t *testing.T) {
	i := sold(t)
	r := signed(t, i, ana, behind)
	for name, approved := range map[string]func(string) (string, bool){
		"nothing is known of the log":        nil,
		"the log does not know the review":   func(string) (string, bool) { return "", false },
		"the approval was taken back":        func(string) (string, bool) { return behind.DecisionHash, false },
		"it was decided again by a new line": func(string) (string, bool) { return strings.Repeat("e", 64), true },
	} {
		a := present(i, r)
		a.Approved = approved
		answer := Authorize(a)
		t.Run(name, func(t *testing.T) { denies(t, CodeMissingReceipt, answer) })
		if answer.Burn != "" {
			t.Errorf("%s: it is used up", name)
		}
	}
}

func TestARetiredKeyNoLongerSpeaks(t *testing.T) {
	i := sold(t)
	a := present(i, signed(t, i, ana, behind))
	a.Keys.Operators[0].Until = noon.Add(time.Second)
	denies(t, CodeInvalidSignature, Authorize(a))
	a.Keys.Operators[0].Until = noon.Add(2 * time.Second)
	authorises(t, Authorize(a))
}

func TestOnlyWhatTheGateLocksGoesWithoutAPerson(t *testing.T) {
	i := sold(t)
	i.Actor = ActorAuto
	auto := signed(t, i, NewAutoSigner(autoKey), Approval{})
	hmacked := sold(t).HMAC(strongKey).Receipt
	for name, c := range map[string]struct {
		spend *Verdict
		code  string
	}{
		"locked": {locked, ""}, "a person is needed": {&Verdict{State: HITLRequired}, CodeMissingReceipt}, "blocked": {&Verdict{State: Blocked}, CodePolicyDeny},
		"nothing is spent": {nil, CodeMissingReceipt}, "no verdict": {&Verdict{}, CodeMissingReceipt},
	} {
		for _, r := range []*Receipt{auto, hmacked} {
			a := present(i, r)
			a.Spend = c.spend
			if got := Authorize(a); got.DenyCode != c.code || got.Allowed != (c.code == "") {
				t.Errorf("%s, version %s: %q, want %q", name, r.SchemaVersion, got.DenyCode, c.code)
			}
		}
		i := i
		i.Spend = c.spend
		r, err := i.Signed(NewAutoSigner(autoKey), Approval{})
		if err != nil || (r.Receipt != nil) != (name == "locked") {
			t.Errorf("%s: issued %v, %v", name, r.Receipt, err)
		}
	}
	// Where it is allowed, a receipt of version 1 stands for a person.
	a := present(sold(t), hmacked)
	a.Spend, a.Keys.AllowHMAC = &Verdict{State: HITLRequired}, true
	authorises(t, Authorize(a))
	i.Decision = Deny
	if r, err := i.Signed(NewAutoSigner(autoKey), Approval{}); err != nil || r.Receipt != nil {
		t.Errorf("a denial by nobody: %+v, %v", r, err)
	}
}

func TestAPersonCannotIssueWhatTheGateBlocks(t *testing.T) {
	i := sold(t)
	i.Spend = &Verdict{State: Blocked, Reasons: []string{"daily-cap: over"}}
	r, err := i.Signed(ana, behind)
	if err != nil || r.Receipt != nil || r.DenyCode != CodePolicyDeny || !strings.Contains(r.Reason, "daily-cap") {
		t.Errorf("%+v, %v", r, err)
	}
	i.Decision = Deny
	if r, err := i.Signed(ana, behind); err != nil || r.Receipt == nil {
		t.Errorf("a no is kept: %+v, %v", r, err)
	}
}

func TestNobodyIssuesInAnothersName(t *testing.T) {
	for name, c := range map[string]struct {
		actor  string
		by     Signer
		behind Approval
	}{
		"another's name":            {"bob", ana, behind},
		"auto in a person's name":   {"ana", NewAutoSigner(autoKey), Approval{}},
		"auto for a review":         {ActorAuto, NewAutoSigner(autoKey), behind},
		"a person without a review": {"ana", ana, Approval{}},
		"a person named auto":       {ActorAuto, person{name: ActorAuto, key: ana.key}, behind},
		"a review without its line": {"ana", ana, Approval{ReviewID: "rev-1"}},
		"a line without its review": {"ana", ana, Approval{DecisionHash: behind.DecisionHash}},
		"a line that is no hash":    {"ana", ana, Approval{"rev-1", "x"}},
	} {
		i := sold(t)
		i.Actor = c.actor
		if r, err := i.Signed(c.by, c.behind); err != nil || r.Receipt != nil || r.State != Denied {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	i := sold(t)
	for name, edit := range map[string]func(*Issue){
		"no nonce":               func(i *Issue) { i.Nonce = " " },
		"a nonce of half a pair": func(i *Issue) { i.Nonce = "\xed\xa0\x80" },
		"a decision of neither":  func(i *Issue) { i.Decision = "maybe" },
		"no policy":              func(i *Issue) { i.Policy = nil },
		"a tool of bad bytes":    func(i *Issue) { i.Decision, i.Call.Tool = Deny, "a\xff" },
		"arguments of bad bytes": func(i *Issue) { i.Decision, i.Call.Arguments = Deny, json.RawMessage("\"\xff\"") },
	} {
		i := i
		edit(&i)
		if r, err := i.Signed(ana, behind); err != nil || r.Receipt != nil || r.DenyCode != CodeAmbiguous {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

func TestASignerThatFailsIssuesNothing(t *testing.T) {
	r, err := sold(t).Signed(person{name: "ana", key: ana.key, err: errors.New("the card was pulled")}, behind)
	var e *errcode.Error
	if !errors.As(err, &e) || e.Code != errcode.OperatorKey || r.Receipt != nil || r.State != Denied {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := sold(t).Signed(nameless{ana}, behind); err == nil || r.Receipt != nil {
		t.Errorf("without a public key: %+v, %v", r, err)
	}
}

type nameless struct{ person }

func (nameless) PublicKey() string { return "AAAA" }

func TestTheViewOfAReceiptIsTheFinanceToolsAuthorisation(t *testing.T) {
	r := signed(t, sold(t), ana, behind)
	a := r.Authorization()
	back, err := ParseAuthorization(node(t, encoded(t, a)))
	if err != nil || back != a || a.ReceiptID != r.Nonce || a.Scope != r.Resource || a.ExpiresAt != r.Expiry || a.Approver != r.Actor {
		t.Errorf("%+v, %v", back, err)
	}
	for _, c := range []struct{ key, value string }{
		{"kind", `"deny"`}, {"scope", `null`}, {"nonce", ``}, {"-", `"amount":1`}, {"tool", `"wire"`}, {"content_hash", `"` + strings.Repeat("0", 64) + `"`}, {"-", `"tool":"ledger.post"`},
	} {
		src := edit(t, encoded(t, a), c.key, c.value)
		if got, err := ParseAuthorization(node(t, src)); err == nil {
			t.Errorf("%s was read as %+v", src, got)
		}
	}
}

func TestARequestHashIsOverEverythingAnApprovalIsFor(t *testing.T) {
	base := Request{"t", "r", "h", "p", Money{"c", "1", "a"}}
	seen := map[string]Request{base.Hash(): base}
	for _, r := range []Request{
		{"u", "r", "h", "p", Money{"c", "1", "a"}}, {"t", "s", "h", "p", Money{"c", "1", "a"}}, {"t", "r", "i", "p", Money{"c", "1", "a"}}, {"t", "r", "h", "q", Money{"c", "1", "a"}},
		{"t", "r", "h", "p", Money{"d", "1", "a"}}, {"t", "r", "h", "p", Money{"c", "2", "a"}}, {"t", "r", "h", "p", Money{"c", "1", "b"}}, {"t", "r", "h", "p", Money{}},
		{"r", "t", "h", "p", Money{"c", "1", "a"}}, {"t", "r", "h", "p", Money{"c", "a", "1"}},
	} {
		if other, twice := seen[r.Hash()]; twice {
			t.Errorf("%+v and %+v hash alike", r, other)
		}
		seen[r.Hash()] = r
	}
	want, err := canon.HashText([]byte(`{"tool":"t","resource":"r","args_hash":"h","policy_hash":"p","counterparty":"c","amount":"1","asset":"a","canon":"jcs-1"}`), canon.JCS)
	if err != nil || base.Hash() != want {
		t.Errorf("%s, want %s, %v", base.Hash(), want, err)
	}
	i := sold(t)
	if r := signed(t, i, ana, behind); r.RequestHash != i.RequestHash() || r.Canon != "jcs-1" || r.PolicyHash != i.PolicyHash || r.KeyID != KeyID(publicOf(ana.key)) {
		t.Errorf("the receipt is bound to %+v", r)
	}
}

func TestFinanceCodesAreSixAndEveryCodeHasOne(t *testing.T) {
	for _, code := range []string{
		CodeAmbiguous, CodeAllowlistIsNotAuth, CodeToolNotListed, CodeResourceNotListed, CodeChangedArguments, CodeExpired, CodeReplayed, CodeInvalidSignature,
		CodePolicyVersion, CodeBinding, CodeRisk, CodeHumanDenied, CodeMissingReceipt, CodeTTLExceedsPolicy, CodeHostBoundOverride, CodePolicyDeny, "no such code",
	} {
		if got := FinanceCode(code); len(got) == 0 || !strings.Contains(strings.Join(financeAll, " "), got) {
			t.Errorf("%s is %q", code, got)
		}
	}
	for code, want := range map[string]string{
		CodeReplayed: "replay", CodeExpired: "expired", CodeChangedArguments: "args_changed", CodeAllowlistIsNotAuth: "missing_receipt", CodeInvalidSignature: "missing_receipt",
		CodeAmbiguous: "ambiguous_policy", CodeToolNotListed: "ambiguous_policy", CodeHumanDenied: "policy_deny", CodePolicyDeny: "policy_deny",
	} {
		if got := FinanceCode(code); got != want {
			t.Errorf("%s is %s, want %s", code, got, want)
		}
	}
}

func FuzzParseReceipt(f *testing.F) {
	v := readVectors(f)
	for _, x := range v.Parse {
		f.Add([]byte(x.Receipt))
	}
	for _, x := range v.ContentHashed {
		f.Add([]byte(x.Body[:len(x.Body)-1] + `,"content_hash":"` + x.Hash + `"}`))
	}
	f.Add([]byte(encoded(f, signed(f, sold(f), ana, behind))))
	i := sold(f)
	f.Fuzz(func(t *testing.T, src []byte) {
		var doc jsjson.Doc
		if doc.Parse(src) != nil {
			return
		}
		var fault *Fault
		if a, err := ParseAuthorization(doc.Root()); err == nil {
			if back, err := ParseAuthorization(node(t, encoded(t, a))); err != nil || back != a {
				t.Fatalf("%+v became %+v, %v", a, back, err)
			}
		} else if !errors.As(err, &fault) {
			t.Fatal(err)
		}
		r, err := ParseReceipt(doc.Root())
		if err != nil {
			if !errors.As(err, &fault) || !utf8.ValidString(err.Error()) || len(err.Error()) > 1000 {
				t.Fatalf("%q", err)
			}
			return
		}
		var again Receipt
		if err := json.Unmarshal([]byte(encoded(t, r)), &again); err != nil || again != *r {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
		if !json.Valid(r.Body()) || len(r.Hash()) != 64 {
			t.Fatalf("%s", r.Body())
		}
		// Nobody's signature is guessed: what passes is the one that was made.
		if Authorize(present(i, r)).Allowed && *r != *signed(t, i, ana, behind) {
			t.Fatalf("%+v passes", r)
		}
	})
}

func TestAReceiptUnderASharedKeyLivesNoLongerThanThePolicySays(t *testing.T) {
	i := issue(mustPolicy(t, toolPolicy), hostedCall(t, postCall), Allow)
	made := i.HMAC(strongKey).Receipt
	keys := trusted()
	keys.AllowHMAC = true
	for _, c := range []struct {
		seconds int
		code    string
	}{{120, ""}, {121, CodeTTLExceedsPolicy}} { // of the policy
		r := *made
		r.Expiry = stamp(noon.Add(time.Duration(c.seconds) * time.Second))
		r.Signature = strongKey.mac(r.Body())
		p := present(i, &r)
		if p.Keys = keys; c.code == "" {
			authorises(t, Authorize(p))
		} else {
			denies(t, c.code, Authorize(p))
		}
	}
}
