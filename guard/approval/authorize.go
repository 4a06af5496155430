package approval

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// Times to live of a receipt (approvals contract, sections 4.6 and 9.7).
const (
	DefaultTTL  = 300 * time.Second  // without a policy's own, also the most a tool approval lives
	MaxSpendTTL = 3600 * time.Second // the most a spend authorisation lives without a policy's own
)

// clockSkew is how far ahead of ours the clock of whoever issues may be (approvals
// contract, section 4.7).
const clockSkew = time.Second

// Issue is a person's decision on a call, or the gate's.
type Issue struct {
	Policy     *ToolPolicy
	Call       Call
	Actor      string
	Decision   string   // [Allow] or [Deny]
	Reason     string   // a note of the person; may be empty
	TTLSeconds *float64 // nil: what the policy allows
	Nonce      string   // new, never used before
	Now        time.Time
	// PolicyHash is what decides beside the tool policy, for a call that spends:
	// the hash of the guard's policy. "" is the hash of Policy.
	PolicyHash string
	// Money is what a call spends; zero for one that does not.
	Money Money
	// Spend is what the gate says about a call that spends, asked with the day's
	// total of now: [Gate.Approve] for a person, [Gate.Judge] for the auto key. nil
	// for a call that does not spend.
	Spend *Verdict
}

// HMAC issues a receipt of version 1 (approvals contract, section 4.6). Without a
// key it issues none.
func (i Issue) HMAC(key HMACKey) ToolResult {
	if len(key.secret) == 0 {
		return i.refuse(ambiguous("there is no key for HMAC receipts"))
	}
	r, _ := i.issue(func(receipt *Receipt) error { // the key does not fail
		receipt.SchemaVersion = ReceiptV1
		receipt.Signature = key.mac(receipt.Body())
		return nil
	})
	return r
}

// Signed issues a receipt of version 2. behind is the review and the line of the
// log it stands for; the zero value is for the auto key, which signs only what the
// gate says [Locked] to. The error is the signer's.
func (i Issue) Signed(by Signer, behind Approval) (ToolResult, error) {
	auto := behind == Approval{}
	switch {
	case i.Actor != by.Name() || auto != (i.Actor == ActorAuto):
		return DenyUnreadable(errors.New("the actor is not whose key signs")), nil
	case !auto && (behind.ReviewID == "" || !hash64(behind.DecisionHash)):
		return DenyUnreadable(errors.New("a receipt of a person names a review and the line that decided it")), nil
	case auto && (i.Decision != Allow || i.Spend == nil || i.Spend.State != Locked):
		return i.refuse(&Refusal{CodePolicyDeny, "without a person only what the spend gate locks is allowed"}), nil
	}
	return i.issue(func(receipt *Receipt) error {
		receipt.SchemaVersion, receipt.Canon = ReceiptV2, CanonName
		receipt.ReviewID, receipt.DecisionHash = behind.ReviewID, behind.DecisionHash
		receipt.PolicyHash = i.policyHash()
		receipt.RequestHash = i.request(receipt.ArgsHash).Hash()
		return receipt.sign(by)
	})
}

// refuse is the answer of an issue that came to nothing.
func (i Issue) refuse(why *Refusal) ToolResult {
	r := Inspect(i.Policy, i.Call).result()
	return r.deny(why)
}

func (i Issue) policyHash() string { return policyHash(i.PolicyHash, i.Policy) }

func policyHash(own string, p *ToolPolicy) string {
	if own != "" || p == nil {
		return own
	}
	return p.Hash()
}

func (i Issue) request(argsHash string) Request {
	return Request{Tool: i.Call.Tool, Resource: i.Call.Resource, ArgsHash: argsHash, PolicyHash: i.policyHash(), Money: i.Money}
}

// RequestHash is the hash a review is opened under and its receipt is bound to.
// It is "" when the call does not pass inspection.
func (i Issue) RequestHash() string {
	seen := Inspect(i.Policy, i.Call)
	if seen.Refused != nil {
		return ""
	}
	return i.request(seen.ArgsHash).Hash()
}

// issue makes a receipt and has it signed.
func (i Issue) issue(sign func(*Receipt) error) (ToolResult, error) {
	seen := Inspect(i.Policy, i.Call)
	answer := seen.result()
	if refused := i.unusable(); refused != nil {
		return answer.deny(refused), nil
	}
	argsHash := seen.ArgsHash
	switch {
	case i.Decision == Allow && seen.Refused != nil:
		return answer, nil
	case i.Decision == Allow && i.Spend != nil && i.Spend.State == Blocked:
		return answer.deny(blocked(i.Spend)), nil
	case argsHash == "":
		// A person's no is kept, whatever is wrong with the call.
		var refused *Refusal
		if argsHash, refused = i.denied(); refused != nil {
			return answer.deny(refused), nil
		}
	}
	ttl, refused := i.ttl()
	if refused != nil {
		return answer.deny(refused), nil
	}
	now := i.Now.UTC().Truncate(time.Millisecond)
	receipt := &Receipt{
		Kind: ReceiptKind, CHPVersion: Version, Actor: i.Actor, Tool: i.Call.Tool, Resource: i.Call.Resource, ArgsHash: argsHash,
		PolicyVersion: i.Policy.Version, Risk: i.Policy.Risk(i.Call.Tool), IssuedAt: stamp(now), Expiry: stamp(now.Add(ttl)),
		Decision: i.Decision, Nonce: i.Nonce,
	}
	if err := sign(receipt); err != nil {
		return answer.deny(ambiguous("the receipt could not be signed")), err
	}
	return i.issued(answer, receipt), nil
}

// unusable is what is wrong with the decision itself.
func (i Issue) unusable() *Refusal {
	switch {
	case i.Policy == nil || i.Policy.hash == "" || Ambiguous(i.Policy.Version):
		return ambiguous("the policy cannot be read, or its version names none")
	case !utf8.ValidString(i.Actor) || Ambiguous(i.Actor):
		return ambiguous("the actor does not name one person")
	case i.Decision != Allow && i.Decision != Deny:
		return ambiguous("a decision is allow or deny")
	case !utf8.ValidString(i.Nonce) || strings.TrimSpace(i.Nonce) == "":
		return ambiguous("the receipt has no nonce")
	case !utf8.ValidString(i.Call.Tool) || Ambiguous(i.Call.Tool) || !utf8.ValidString(i.Call.Resource) || Ambiguous(i.Call.Resource):
		return ambiguous("the tool or the resource does not name one thing")
	}
	return nil
}

// denied is the args_hash of a denial whose call does not pass inspection: that of
// the model's arguments alone.
func (i Issue) denied() (string, *Refusal) {
	arguments := i.Call.Arguments
	if arguments == nil {
		arguments = json.RawMessage("{}")
	}
	return argumentsHash(arguments)
}

// ttl is how long the receipt lives, in whole milliseconds.
func (i Issue) ttl() (time.Duration, *Refusal) {
	standard, most := lifetimes(i.Policy, i.Money)
	seconds := standard
	if i.TTLSeconds != nil {
		seconds = *i.TTLSeconds
	}
	switch millis := math.Round(seconds * 1000); {
	case !(millis >= 1):
		return 0, ambiguous("a receipt lives for more than 0 seconds")
	case seconds > most, i.Now.UTC().Year()+int(min(millis/(366*24*3600e3), 1e4)) >= 9999:
		return 0, &Refusal{CodeTTLExceedsPolicy, "the receipt would live longer than the policy allows"}
	default:
		return time.Duration(millis) * time.Millisecond, nil
	}
}

// lifetimes are how many seconds a receipt lives when nobody asks for a time, and at
// most.
func lifetimes(p *ToolPolicy, m Money) (standard, most float64) {
	spends := m != Money{}
	switch {
	case p.MaxTTLSeconds > 0:
		most = p.MaxTTLSeconds
	case spends:
		most = MaxSpendTTL.Seconds()
	default:
		most = DefaultTTL.Seconds()
	}
	if spends {
		return min(most, DefaultTTL.Seconds()), most
	}
	return most, most
}

// issued is the answer that hands out a receipt.
func (i Issue) issued(answer ToolResult, r *Receipt) ToolResult {
	answer.Receipt, answer.ReceiptHash, answer.ArgsHash, answer.Risk = r, r.Hash(), r.ArgsHash, r.Risk
	answer.DecisionLog = &DecisionLog{
		At: r.IssuedAt, Actor: r.Actor, Tool: r.Tool, Resource: r.Resource, ArgsHash: r.ArgsHash, Decision: r.Decision,
		Reason: i.Reason, Nonce: r.Nonce, PolicyVersion: r.PolicyVersion, ReceiptHash: answer.ReceiptHash,
	}
	if r.Decision == Deny {
		return answer.deny(&Refusal{CodeHumanDenied, "a person has denied this call"})
	}
	answer.State, answer.RequiresReceipt, answer.DenyCode = ReceiptRequired, true, ""
	answer.Reason = "the receipt allows this call once; to run it, present the receipt"
	return answer
}

func blocked(v *Verdict) *Refusal {
	return &Refusal{CodePolicyDeny, strings.Join(v.Reasons, "; ")}
}

// Presented is a call that wants to run, and what it brings.
type Presented struct {
	Policy  *ToolPolicy
	Call    Call
	Receipt *Receipt // nil: none
	// Unreadable is why the receipt that came could not be read; Receipt is then nil.
	Unreadable error
	Keys       Keys
	Now        time.Time
	// Burnt reports whether a nonce was used up.
	Burnt func(nonce string) bool
	// Approved is the hash of the line by which a review stands approved, and false
	// when it does not, by now.
	Approved func(reviewID string) (decisionHash string, ok bool)
	// Spend is what the gate says about a call that spends, asked again with
	// [Gate.Judge] and the day's total of now, less what this receipt itself has
	// taken of it; nil for a call that does not spend. A receipt no person has
	// signed counts only where it says [Locked].
	Spend      *Verdict
	PolicyHash string // as in [Issue]
	Money      Money  // as in [Issue]
}

// Authorize is the answer of authorize_tool_call, in the order of the approvals
// contract, section 4.7. It is pure: what it burns is in the answer, and whoever
// asks has to hold the lock until that is in the log.
func Authorize(a Presented) ToolResult {
	seen := Inspect(a.Policy, a.Call)
	answer := seen.result()
	if seen.Refused != nil {
		return answer
	}
	switch {
	case a.Unreadable != nil:
		return answer.deny(ambiguous("the receipt cannot be read: %v", a.Unreadable))
	case a.Receipt == nil:
		return answer.deny(&Refusal{CodeAllowlistIsNotAuth, "the policy lists this call, and there is no receipt for it"})
	}
	refused, burns := a.judge(seen)
	if burns {
		answer.Burn = a.Receipt.Nonce
	}
	answer.ReceiptHash = a.Receipt.Hash()
	if refused != nil {
		return answer.deny(refused)
	}
	answer.State, answer.Allowed, answer.Reason = Authorized, true, "the receipt is for this call, and is used up with it"
	return answer
}

// judge is why a receipt does not count, and whether it is used up. A receipt that
// is not for this call stays what it is for its own.
func (a Presented) judge(seen Inspection) (refused *Refusal, burns bool) {
	r := a.Receipt
	person, refused := a.Keys.Verify(r, a.Now)
	if refused != nil {
		return refused, false
	}
	issued, expiry := r.Times()
	switch {
	case a.Burnt == nil || a.Burnt(r.Nonce):
		return &Refusal{CodeReplayed, "the receipt was used up"}, false
	case issued.After(a.Now.Add(clockSkew)):
		return ambiguous("the receipt was issued later than now"), false
	case !expiry.After(a.Now):
		return &Refusal{CodeExpired, "the receipt expired at " + stamp(expiry)}, true
	case r.Decision != Allow:
		return &Refusal{CodeHumanDenied, "a person has denied this call"}, true
	}
	if refused := a.bound(seen); refused != nil {
		return refused, false
	}
	refused = a.backed(person)
	return refused, refused == nil
}

// bound holds a receipt to the call it came with.
func (a Presented) bound(seen Inspection) *Refusal {
	r, policyHash := a.Receipt, policyHash(a.PolicyHash, a.Policy)
	v2 := r.SchemaVersion == ReceiptV2
	switch {
	case r.PolicyVersion != a.Policy.Version:
		return &Refusal{CodePolicyVersion, "the receipt was issued under another version of the policy"}
	case v2 && r.PolicyHash != policyHash:
		return &Refusal{CodePolicyVersion, "the policy says other things than when the receipt was issued"}
	case r.Tool != a.Call.Tool || r.Resource != a.Call.Resource:
		return &Refusal{CodeBinding, "the receipt is for another tool or resource"}
	case r.ArgsHash != seen.ArgsHash:
		return &Refusal{CodeChangedArguments, "the arguments are not those that were approved"}
	case r.Risk != seen.Risk:
		return &Refusal{CodeRisk, "the risk is not the one that was approved"}
	}
	issued, expiry := r.Times()
	_, most := lifetimes(a.Policy, a.Money)
	longLived := expiry.Sub(issued).Seconds() > most
	if !v2 && !longLived {
		return nil
	}
	request := Request{Tool: r.Tool, Resource: r.Resource, ArgsHash: r.ArgsHash, PolicyHash: policyHash, Money: a.Money}
	switch {
	case v2 && r.RequestHash != request.Hash():
		return &Refusal{CodeBinding, "the receipt is for another payment"}
	case longLived:
		return &Refusal{CodeTTLExceedsPolicy, "the receipt lives longer than the policy allows"}
	}
	return nil
}

// backed asks what stands behind a receipt by now: a person's approval, or, where no
// person was asked, a gate that still needs none (approvals contract, section 9.3).
func (a Presented) backed(person bool) *Refusal {
	switch {
	case a.Spend != nil && a.Spend.State == Blocked:
		return blocked(a.Spend)
	case !person && (a.Spend == nil || a.Spend.State != Locked):
		return &Refusal{CodeMissingReceipt, "this call needs a person, and no person has signed the receipt"}
	case a.Receipt.SchemaVersion == ReceiptV1 || !person:
		return nil
	}
	if a.Approved != nil {
		if hash, ok := a.Approved(a.Receipt.ReviewID); ok && hash == a.Receipt.DecisionHash {
			return nil
		}
	}
	return &Refusal{CodeMissingReceipt, "the log holds no approval that stands behind the receipt"}
}

// The codes of the finance tools (approvals contract, section 3.3).
const (
	FinancePolicyDeny      = CodePolicyDeny
	FinanceExpired         = "expired"
	FinanceReplay          = "replay"
	FinanceArgsChanged     = "args_changed"
	FinanceMissingReceipt  = CodeMissingReceipt
	FinanceAmbiguousPolicy = "ambiguous_policy"
)

var financeAll = []string{FinancePolicyDeny, FinanceExpired, FinanceReplay, FinanceArgsChanged, FinanceMissingReceipt, FinanceAmbiguousPolicy}

var financeCodes = map[string]string{
	CodeAmbiguous: FinanceAmbiguousPolicy, CodeToolNotListed: FinanceAmbiguousPolicy, CodeResourceNotListed: FinanceAmbiguousPolicy,
	CodeAllowlistIsNotAuth: FinanceMissingReceipt, CodeInvalidSignature: FinanceMissingReceipt, CodeMissingReceipt: FinanceMissingReceipt,
	CodeReplayed: FinanceReplay, CodeExpired: FinanceExpired, CodeTTLExceedsPolicy: FinanceExpired,
	CodeChangedArguments: FinanceArgsChanged, CodeBinding: FinanceArgsChanged, CodeHostBoundOverride: FinanceArgsChanged,
}

// FinanceCode is the code of the six of the finance tools that stands for one of
// tool approval.
func FinanceCode(code string) string {
	if c, ok := financeCodes[code]; ok {
		return c
	}
	return FinancePolicyDeny
}
