package approval

import (
	"encoding/json"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// The states of a tool call.
const (
	Authorized      = "AUTHORIZED"       // it may run, once
	ReceiptRequired = "RECEIPT_REQUIRED" // a person has to approve it
	Denied          = "DENIED"
)

// Why a tool call is denied (approvals contract, section 4.4).
const (
	CodeAmbiguous          = "ambiguous"
	CodeAllowlistIsNotAuth = "allowlist_is_not_authorization"
	CodeToolNotListed      = "tool_not_allowlisted"
	CodeResourceNotListed  = "resource_not_allowlisted"
	CodeChangedArguments   = "changed_arguments"
	CodeExpired            = "expired_receipt"
	CodeReplayed           = "replayed_receipt"
	CodeInvalidSignature   = "invalid_signature"
	CodePolicyVersion      = "policy_version_mismatch" // or its content: a version is a name
	CodeBinding            = "binding_mismatch"
	CodeRisk               = "risk_mismatch"
	CodeHumanDenied        = "human_denied"
	CodeMissingReceipt     = "missing_receipt" // here: the log holds no approval behind a receipt
	CodeTTLExceedsPolicy   = "ttl_exceeds_policy"
	CodeHostBoundOverride  = "host_bound_override"
	CodePolicyDeny         = "policy_deny" // of the spend gate, for calls that spend
)

// ToolResult is what the three tools of tool approval answer (approvals contract,
// section 4.4).
type ToolResult struct {
	State           string       `json:"state"`
	Allowed         bool         `json:"allowed"`
	RequiresReceipt bool         `json:"requires_receipt"`
	Reason          string       `json:"reason"`
	DenyCode        string       `json:"deny_code,omitempty"`
	ArgsHash        string       `json:"args_hash,omitempty"`
	Risk            string       `json:"risk,omitempty"`
	PolicyVersion   string       `json:"policy_version,omitempty"`
	Claims          []Claim      `json:"claims"`
	Receipt         *Receipt     `json:"receipt,omitempty"`
	ReceiptHash     string       `json:"receipt_hash,omitempty"`
	DecisionLog     *DecisionLog `json:"decision_log,omitempty"`
	// Burn is the nonce this answer uses up, which has to be in the log before the
	// answer leaves; "" when it uses none up.
	Burn string `json:"-"`
}

// DecisionLog is what is kept of an issued receipt (approvals contract, section
// 4.6).
type DecisionLog struct {
	At            string `json:"at"`
	Actor         string `json:"actor"`
	Tool          string `json:"tool"`
	Resource      string `json:"resource"`
	ArgsHash      string `json:"args_hash"`
	Decision      string `json:"decision"`
	Reason        string `json:"reason"`
	Nonce         string `json:"nonce"`
	PolicyVersion string `json:"policy_version"`
	ReceiptHash   string `json:"receipt_hash"`
}

// Inspection is what the three tools look at first (approvals contract, section
// 4.5).
type Inspection struct {
	Claims        []Claim
	Refused       *Refusal // nil when the call passes
	Bound         Bound
	ArgsHash      string // under [canon.JCS]; "" when it was refused before
	Risk          string // likewise
	PolicyVersion string // "" without a policy
}

// The rules of an inspection, in the order of their claims.
const (
	RuleDenyOnAmbiguity  = "deny-on-ambiguity"
	RulePolicyVersion    = "policy-version"
	RuleConcreteTool     = "concrete-tool"
	RuleConcreteResource = "concrete-resource"
	RuleConcreteArgs     = "concrete-args"
	RuleHostBinding      = "host-binding"
	RuleArgsHash         = "args-hash"
	RuleToolAllowlist    = "tool-allowlist"
	RuleResourceList     = "resource-allowlist"
	RuleRisk             = "risk"
)

// MaxArguments bounds the arguments of a call, in bytes of their canonical text: a
// person has to read them, and the log keeps them.
const MaxArguments = 64 << 10

// maxName bounds the name of a tool or a resource in bytes, so that all of it is shown.
const maxName = 2048

// Inspect looks at a call, and no further than to the first thing that is wrong
// with it. A nil policy is one that could not be read: the call is ambiguous.
func Inspect(p *ToolPolicy, c Call) Inspection {
	i := Inspection{Claims: []Claim{}}
	i.Refused = i.inspect(p, c)
	return i
}

func (i *Inspection) inspect(p *ToolPolicy, c Call) *Refusal {
	if p != nil && !p.DenyOnAmbiguity {
		// Noted, and nothing else: the one claim that fails and refuses nothing.
		_ = i.failed(RuleDenyOnAmbiguity, CodeAmbiguous, "the policy turns it off; what is ambiguous is denied all the same")
	} else {
		i.passed(RuleDenyOnAmbiguity, "what is ambiguous is denied")
	}
	if p == nil || p.hash == "" || Ambiguous(p.Version) {
		return i.failed(RulePolicyVersion, CodeAmbiguous, "the policy cannot be read, or its version names none")
	}
	i.PolicyVersion = p.Version
	i.passed(RulePolicyVersion, "policy "+plain.Quote(p.Version, 80))
	if refused := i.names(RuleConcreteTool, "tool", c.Tool); refused != nil {
		return refused
	}
	if refused := i.names(RuleConcreteResource, "resource", c.Resource); refused != nil {
		return refused
	}
	if refused := i.arguments(p, c); refused != nil {
		return refused
	}
	tool := plain.Quote(c.Tool, 80)
	if !slices.Contains(p.AllowedTools, c.Tool) {
		return i.failed(RuleToolAllowlist, CodeToolNotListed, "the policy does not list the tool "+tool)
	}
	i.passed(RuleToolAllowlist, "the policy lists the tool "+tool)
	if list, ok := p.AllowedResources[c.Tool]; ok {
		resource := plain.Quote(c.Resource, 80)
		if !slices.Contains(list, c.Resource) {
			return i.failed(RuleResourceList, CodeResourceNotListed, "the policy does not list the resource "+resource+" for the tool "+tool)
		}
		i.passed(RuleResourceList, "the policy lists the resource "+resource+" for the tool "+tool)
	}
	i.Risk = p.Risk(c.Tool)
	i.passed(RuleRisk, i.Risk)
	return nil
}

// passed notes what a rule found in order.
func (i *Inspection) passed(rule, detail string) {
	i.Claims = append(i.Claims, Claim{rule, true, detail})
}

// failed notes what a rule found wrong.
func (i *Inspection) failed(rule, code, detail string) *Refusal {
	i.Claims = append(i.Claims, Claim{rule, false, detail})
	return &Refusal{code, detail}
}

func (i *Inspection) names(rule, what, value string) *Refusal {
	if len(value) > maxName {
		return i.failed(rule, CodeAmbiguous, "the "+what+" has a name of "+strconv.Itoa(len(value))+" bytes, more than the "+strconv.Itoa(maxName)+" a person is shown")
	}
	if !utf8.ValidString(value) || Ambiguous(value) {
		return i.failed(rule, CodeAmbiguous, "the "+what+" "+plain.Quote(value, 80)+" does not name one thing")
	}
	i.passed(rule, what+" "+plain.Quote(value, 80))
	return nil
}

func (i *Inspection) arguments(p *ToolPolicy, c Call) *Refusal {
	if c.Arguments == nil {
		return i.failed(RuleConcreteArgs, CodeAmbiguous, "there are no arguments; an approval is for certain ones, be they empty")
	}
	i.passed(RuleConcreteArgs, "there are arguments")
	if c.Enveloped {
		return i.failed(RuleHostBinding, CodeAmbiguous, "the call brings host_bound or _meta of its own, which only a trusted host may set")
	}
	bound, refused := c.Bind(p)
	if refused != nil {
		return i.failed(RuleHostBinding, refused.Code, refused.Detail)
	}
	i.Bound = bound
	i.passed(RuleHostBinding, strconv.Itoa(len(bound.Keys))+" of the arguments are the host's")
	hash, refused := argumentsHash(bound.Arguments)
	if refused == nil {
		refused = c.exact()
	}
	if refused != nil {
		return i.failed(RuleArgsHash, refused.Code, refused.Detail)
	}
	i.ArgsHash = hash
	i.passed(RuleArgsHash, hash)
	return nil
}

// argumentsHash is the args_hash of arguments that a log can hold and a person can
// be shown.
func argumentsHash(arguments json.RawMessage) (string, *Refusal) {
	text, err := canon.Text(arguments, canon.JCS)
	if err == nil {
		// A text that is not its own canonical form is one the log refuses.
		_, err = canon.Text(text, canon.JCS)
	}
	if err != nil {
		return "", ambiguous("arguments: %v", err)
	}
	if len(text) > MaxArguments {
		return "", ambiguous("the arguments have %d bytes, more than the %d a person can be asked to approve", len(text), MaxArguments)
	}
	return canon.Sum(text), nil
}

// Shown are the arguments a call would run with as people and logs see them:
// canonical under [canon.JCS], those the policy redacts for the tool as hashes.
func (i Inspection) Shown(p *ToolPolicy, c Call) (json.RawMessage, error) {
	return Redact(i.Bound.Arguments, p.Redacted(c.Tool))
}

// result is the answer an inspection leads to when nothing comes after it.
func (i Inspection) result() ToolResult {
	r := ToolResult{State: Denied, Claims: i.Claims, ArgsHash: i.ArgsHash, Risk: i.Risk, PolicyVersion: i.PolicyVersion}
	if i.Refused != nil {
		return r.deny(i.Refused)
	}
	return r
}

// deny is r as a denial.
func (r ToolResult) deny(why *Refusal) ToolResult {
	r.State, r.DenyCode, r.Reason = Denied, why.Code, why.Detail
	r.RequiresReceipt = why.Code == CodeAllowlistIsNotAuth || why.Code == CodeMissingReceipt
	return r
}

// EvaluateTool is the answer of evaluate_tool_approval. It never authorises: being
// listed is no approval.
func EvaluateTool(p *ToolPolicy, c Call) ToolResult {
	i := Inspect(p, c)
	r := i.result()
	if i.Refused == nil {
		r = r.deny(&Refusal{CodeAllowlistIsNotAuth, "the policy lists this call; it runs with a receipt for it, and with no other"})
		r.State = ReceiptRequired
	}
	return r
}

// DenyUnreadable is the answer to a policy, a call or a receipt that cannot be read,
// where no error is to be given instead.
func DenyUnreadable(err error) ToolResult {
	return ToolResult{Claims: []Claim{}}.deny(ambiguous("%v", err))
}
