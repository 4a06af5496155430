package approval

import (
	"encoding/json"
	"time"
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

// Inspect looks at a call. A nil policy is one that could not be read: the call
// is ambiguous.
func Inspect(p *ToolPolicy, c Call) Inspection { panic("") }

// Shown are the arguments a call would run with as people and logs see them:
// canonical under [canon.JCS], those the policy redacts as hashes.
func (i Inspection) Shown(p *ToolPolicy, c Call) (json.RawMessage, error) { panic("") }

// EvaluateTool is the answer of evaluate_tool_approval. It never authorises: being
// listed is no approval.
func EvaluateTool(p *ToolPolicy, c Call) ToolResult { panic("") }

// DenyUnreadable is the answer to a policy, a call or a receipt that cannot be read,
// where no error is to be given instead.
func DenyUnreadable(err error) ToolResult { panic("") }

// Times to live of a receipt (approvals contract, sections 4.6 and 9.7).
const (
	DefaultTTL  = 300 * time.Second  // without a policy's own, also the most a tool approval lives
	MaxSpendTTL = 3600 * time.Second // the most a spend authorisation lives without a policy's own
)

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
}

// Receipt issues a receipt of version 1 under an HMAC key (approvals contract,
// section 4.6).
func (i Issue) HMAC(key HMACKey) ToolResult { panic("") }

// Signed issues a receipt of version 2. behind is the review and the line of the
// log it stands for; the zero value is for the auto key. The error is the
// signer's.
func (i Issue) Signed(by Signer, behind Approval) (ToolResult, error) { panic("") }

// RequestHash is the hash a review is opened under and its receipt is bound to.
// It is "" when the call does not pass inspection.
func (i Issue) RequestHash() string { panic("") }

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
	// Spend is what the gate says about a call that spends, asked again with the
	// day's total of now; nil for one that does not. A receipt no person has signed
	// counts only where it says [Locked].
	Spend      *Verdict
	PolicyHash string // as in [Issue]
	Money      Money  // as in [Issue]
}

// Authorize is the answer of authorize_tool_call, in the order of the approvals
// contract, section 4.7. It is pure: what it burns is in the answer, and whoever
// asks has to hold the lock until that is in the log.
func Authorize(a Presented) ToolResult { panic("") }

// FinanceCode is the code of the six of the finance tools (approvals contract,
// section 3.3) that stands for one of tool approval.
func FinanceCode(code string) string { panic("") }
