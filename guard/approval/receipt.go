package approval

import (
	"crypto/ed25519"
	"encoding/json"
	"time"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/canon"
)

// What a receipt says of itself.
const (
	ReceiptKind = "chp.tool_approval_receipt"
	ReceiptV1   = "1"     // HMAC-SHA256; whoever can verify one can make one
	ReceiptV2   = "2"     // Ed25519, bound to review, decision, request and policy
	CanonName   = "jcs-1" // the rule of the hashes in a receipt of version 2
)

// What a receipt says of its call.
const (
	Allow = "allow"
	Deny  = "deny"
)

// ActorAuto is the actor of a receipt nobody was asked for.
const ActorAuto = "auto-lock"

// Receipt is one decision on one call (approvals contract, sections 4.1 and 9.4).
// The text fields are as they were read, since they are what was signed.
type Receipt struct {
	Kind          string
	SchemaVersion string
	CHPVersion    string
	Actor         string
	Tool          string
	Resource      string
	ArgsHash      string
	PolicyVersion string
	Risk          string
	IssuedAt      string
	Expiry        string
	Decision      string
	Nonce         string

	// Of version 2 alone. ReviewID and DecisionHash are empty under the auto key.
	ReviewID     string
	DecisionHash string
	RequestHash  string
	PolicyHash   string
	Canon        string
	KeyID        string

	Signature string // v1: hex HMAC-SHA256; v2: base64 Ed25519; over [Receipt.Body]
}

// ParseReceipt reads a receipt of either version: its keys and no other, every
// value of its form (approvals contract, section 4.3). It does not look at the
// signature. The error is a *[Fault].
func ParseReceipt(n jsjson.Node) (*Receipt, error) { panic("") }

// Body is what is signed: the receipt without its signature, canonical.
func (r Receipt) Body() []byte { panic("") }

// Hash is the receipt_hash: that of the body.
func (r Receipt) Hash() string { return canon.Sum(r.Body()) }

// MarshalJSON writes the keys of the receipt's version, in the protocol's order.
func (r Receipt) MarshalJSON() ([]byte, error) { panic("") }

// Times are when the receipt was issued and when it expires.
func (r Receipt) Times() (issued, expiry time.Time) { panic("") }

// HMACKey is a key of receipts of version 1.
type HMACKey struct{ secret []byte }

// NewHMACKey takes a key from the configuration. There is no default: no key, one
// shorter than 32 bytes and one that was published are refused (approvals
// contract, section 9.3). The error is an E_USAGE.
func NewHMACKey(secret string) (HMACKey, error) { panic("") }

// Signer signs receipts of version 2; a decision.Signer is one.
type Signer interface {
	Name() string
	PublicKey() string // base64
	Sign(payload []byte) ([]byte, error)
}

// NewAutoSigner is the key a server signs with what needs no person.
func NewAutoSigner(key ed25519.PrivateKey) Signer { panic("") }

// KeyID names a public key in a receipt.
func KeyID(public ed25519.PublicKey) string { panic("") }

// OperatorKey is a key that speaks for a person.
type OperatorKey struct {
	Name   string
	Public ed25519.PublicKey
	Until  time.Time // from when on its receipts no longer count; zero: it is not retired
}

// Keys are whose receipts count. The zero value trusts nobody.
type Keys struct {
	Operators []OperatorKey
	Auto      ed25519.PublicKey // nil: none
	HMAC      *HMACKey          // nil: receipts of version 1 are refused
	AllowHMAC bool              // a receipt of version 1 may stand for a person (--allow-hmac-receipts)
}

// Verify checks a receipt's signature. person reports whether it speaks for a
// person; one under the auto key or of version 1 does not.
func (k Keys) Verify(r *Receipt, now time.Time) (person bool, refused *Refusal) { panic("") }

// Approval is what stands behind a receipt of version 2.
type Approval struct {
	ReviewID     string
	DecisionHash string // of the decided line, 64 hex digits
}

// Money is what a call spends.
type Money struct {
	Counterparty string // canonical
	Amount       string // atomic units
	Asset        string // asset key
}

// Request is what a review is about and a receipt of version 2 is bound to
// (approvals contract, section 9.4).
type Request struct {
	Tool       string
	Resource   string // or the scope
	ArgsHash   string
	PolicyHash string
	Money
}

// Hash is the request_hash.
func (r Request) Hash() string { panic("") }

// Authorization is a receipt as the finance tools of the protocol have it
// (approvals contract, section 3.3): a view of a [Receipt], never a store of its
// own.
type Authorization struct {
	Kind        string `json:"kind"`       // "authorization"
	ReceiptID   string `json:"receipt_id"` // the nonce
	Tool        string `json:"tool"`
	Scope       string `json:"scope"`
	ArgsHash    string `json:"args_hash"`
	IssuedAt    string `json:"issued_at"`
	ExpiresAt   string `json:"expires_at"`
	Approver    string `json:"approver"`
	Nonce       string `json:"nonce"`
	ContentHash string `json:"content_hash"`
}

// Authorization is the view.
func (r Receipt) Authorization() Authorization { panic("") }

// ParseAuthorization reads what a caller presents as such a view: its keys and no
// other. Nothing in it is to be believed but the receipt_id, by which the receipt
// is found, whose own view then has to be the same. The error is a *[Fault].
func ParseAuthorization(n jsjson.Node) (Authorization, error) { panic("") }

// DenyReceipt is a refusal as the finance tools have it.
type DenyReceipt struct {
	Kind        string  `json:"kind"` // "deny"
	ReceiptID   string  `json:"receipt_id"`
	Tool        string  `json:"tool"`
	Scope       *string `json:"scope"`
	ReasonCode  string  `json:"reason_code"`
	Detail      string  `json:"detail"`
	ArgsHash    string  `json:"args_hash"`
	IssuedAt    string  `json:"issued_at"`
	ContentHash string  `json:"content_hash"`
}

// NewDenyReceipt fills in kind, time and hash.
func NewDenyReceipt(d DenyReceipt, now time.Time) DenyReceipt { panic("") }

// FinanceArgsHash is the args_hash of a finance tool: over its bound arguments and
// its name (approvals contract, section 3.1).
func FinanceArgsHash(tool string, bound json.RawMessage) (string, error) { panic("") }
