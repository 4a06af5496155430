package approval

import (
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
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
// Its fields are the texts that were signed.
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

	Signature string // v1: HMAC-SHA256 in hex; v2: Ed25519 in base64; over [Receipt.Body]
}

// receiptField is a member of a receipt: where it is kept, and what is wrong with
// a text that cannot stand there ("" for nothing).
type receiptField struct {
	key   string
	value *string
	wrong func(string) string
}

// fields are the members of the receipt's version in the protocol's order, the
// signature last.
func (r *Receipt) fields() []receiptField {
	all := []receiptField{
		{"kind", &r.Kind, exactly(ReceiptKind)},
		{"schema_version", &r.SchemaVersion, exactly(ReceiptV1, ReceiptV2)},
		{"chp_version", &r.CHPVersion, notBlank},
		{"actor", &r.Actor, concrete},
		{"tool", &r.Tool, concrete},
		{"resource", &r.Resource, concrete},
		{"args_hash", &r.ArgsHash, isHash},
		{"policy_version", &r.PolicyVersion, concrete},
		{"risk", &r.Risk, exactly(risks...)},
		{"issued_at", &r.IssuedAt, isInstant},
		{"expiry", &r.Expiry, isInstant},
		{"decision", &r.Decision, exactly(Allow, Deny)},
		{"nonce", &r.Nonce, notBlank},
	}
	if r.SchemaVersion == ReceiptV2 {
		all = append(all, []receiptField{
			{"review_id", &r.ReviewID, anything},
			{"decision_hash", &r.DecisionHash, isHashOrNone},
			{"request_hash", &r.RequestHash, isHash},
			{"policy_hash", &r.PolicyHash, isHash},
			{"canon", &r.Canon, exactly(CanonName)},
			{"key_id", &r.KeyID, notBlank},
		}...)
	}
	return append(all, receiptField{"signature", &r.Signature, anything})
}

// ParseReceipt reads a receipt of either version: its keys and no other, every
// value of its form (approvals contract, section 4.3). It does not look at the
// signature. The error is a *[Fault].
func ParseReceipt(n jsjson.Node) (*Receipt, error) {
	r := &Receipt{SchemaVersion: string(n.Get("schema_version").Text())}
	fields := map[string]receiptField{}
	var keys []string
	for _, f := range r.fields() {
		fields[f.key] = f
		keys = append(keys, f.key)
	}
	err := members(n, keys, keys, func(key string, v jsjson.Node) error {
		s, err := text(v)
		if err != nil {
			return err
		}
		f := fields[key]
		if detail := f.wrong(s); detail != "" {
			return &Fault{Detail: plain.Quote(s, 40) + " " + detail}
		}
		*f.value = s
		return nil
	})
	if err != nil {
		return nil, err
	}
	if (r.ReviewID == "") != (r.DecisionHash == "") {
		return nil, &Fault{Path: ".decision_hash", Detail: "a review and the line that decided it are named together or not at all"}
	}
	return r, nil
}

// UnmarshalJSON is [ParseReceipt].
func (r *Receipt) UnmarshalJSON(src []byte) error {
	var doc jsjson.Doc
	if err := doc.Parse(src); err != nil {
		return err
	}
	parsed, err := ParseReceipt(doc.Root())
	if err != nil {
		return err
	}
	*r = *parsed
	return nil
}

// MarshalJSON writes the keys of the receipt's version in the protocol's order.
func (r Receipt) MarshalJSON() ([]byte, error) { return textObject(r.fields()), nil }

// Body is what is signed: the receipt without its signature, canonical. Every
// value is a text, so that all rules for numbers agree on it.
func (r Receipt) Body() []byte {
	fields := r.fields()
	fields = fields[:len(fields)-1]
	slices.SortFunc(fields, func(a, b receiptField) int { return strings.Compare(a.key, b.key) }) // ASCII
	return textObject(fields)
}

func textObject(fields []receiptField) []byte {
	dst := []byte{'{'}
	for _, f := range fields {
		dst = appendMember(dst, jsjson.AppendString(nil, []byte(f.key)), jsjson.AppendString(nil, []byte(*f.value)))
	}
	return append(dst, '}')
}

// Hash is the receipt_hash: that of the body.
func (r Receipt) Hash() string { return canon.Sum(r.Body()) }

// Times are when the receipt was issued and when it expires. A receipt that was
// not read has none that are sound: it expired long ago.
func (r Receipt) Times() (issued, expiry time.Time) {
	issued, _ = time.Parse(time.RFC3339, r.IssuedAt)
	expiry, _ = time.Parse(time.RFC3339, r.Expiry)
	return issued, expiry
}

// Shared is a receipt of version 2 as one of version 1, for those who know no other:
// the same decision under the same nonce, so that who uses one up uses up both. The
// error is an E_USAGE: there is no key.
func (r Receipt) Shared(key HMACKey) (*Receipt, error) {
	if len(key.secret) == 0 {
		return nil, errcode.New(errcode.Usage, "", "there is no key for HMAC receipts")
	}
	v1 := r.reduced()
	v1.Signature = key.mac(v1.Body())
	return &v1, nil
}

// Renders reports whether a receipt of version 1 says what one of version 2 does.
func (r Receipt) Renders(v2 Receipt) bool {
	r.Signature = ""
	return r == v2.reduced()
}

// reduced is a receipt of version 2 with what one of version 1 has, unsigned.
func (r Receipt) reduced() Receipt {
	r.SchemaVersion, r.Signature = ReceiptV1, ""
	r.ReviewID, r.DecisionHash, r.RequestHash, r.PolicyHash, r.Canon, r.KeyID = "", "", "", "", "", ""
	return r
}

// stampForm is the form of the instants we write: that of Date.toISOString.
const stampForm = "2006-01-02T15:04:05.000Z"

func stamp(t time.Time) string { return t.UTC().Format(stampForm) }

func exactly(words ...string) func(string) string {
	return func(s string) string {
		if slices.Contains(words, s) {
			return ""
		}
		return "is not " + strings.Join(words, " or ")
	}
}

func anything(string) string { return "" }

func notBlank(s string) string {
	if jsjson.Blank([]byte(s)) || strings.TrimSpace(s) == "" {
		return "is blank"
	}
	return ""
}

func concrete(s string) string {
	if Ambiguous(s) {
		return "is ambiguous: it does not name one thing"
	}
	return ""
}

func isHash(s string) string {
	if hash64(s) {
		return ""
	}
	return "is not 64 digits of lower case hexadecimal"
}

func isHashOrNone(s string) string {
	if s == "" {
		return ""
	}
	return isHash(s)
}

func hash64(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }

// isInstant is stricter than Date.parse, which reads most things somehow
// (approvals contract, section 7, W23).
func isInstant(s string) string {
	if _, err := time.Parse(time.RFC3339, s); err != nil {
		return "is no instant like 2026-01-31T12:00:00.000Z"
	}
	return ""
}

// Approval is what stands behind a receipt of version 2.
type Approval struct {
	ReviewID     string
	DecisionHash string // of the decided line, 64 digits of lower case hexadecimal
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
func (r Request) Hash() string {
	canonName := CanonName
	return canon.Sum(textObject([]receiptField{
		{key: "amount", value: &r.Amount},
		{key: "args_hash", value: &r.ArgsHash},
		{key: "asset", value: &r.Asset},
		{key: "canon", value: &canonName},
		{key: "counterparty", value: &r.Counterparty},
		{key: "policy_hash", value: &r.PolicyHash},
		{key: "resource", value: &r.Resource},
		{key: "tool", value: &r.Tool},
	}))
}

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
func (r Receipt) Authorization() Authorization {
	a := Authorization{
		Kind: "authorization", ReceiptID: r.Nonce, Tool: r.Tool, Scope: r.Resource, ArgsHash: r.ArgsHash,
		IssuedAt: r.IssuedAt, ExpiresAt: r.Expiry, Approver: r.Actor, Nonce: r.Nonce,
	}
	a.ContentHash = contentHash(a)
	return a
}

// Expired reports whether the authorisation is over. One whose end cannot be read
// is (approvals contract, section 7, W14).
func (a Authorization) Expired(now time.Time) bool {
	end, err := time.Parse(time.RFC3339, a.ExpiresAt)
	return err != nil || !end.After(now)
}

// ParseAuthorization reads what a caller presents as such a view: its keys and no
// other, all of them texts. A right content_hash proves nothing, since anybody can
// compute it (approvals contract, section 7, W2): the receipt is found by its
// receipt_id among those that were issued, and its own view has to equal this one.
// The error is a *[Fault].
func ParseAuthorization(n jsjson.Node) (Authorization, error) {
	var a Authorization
	fields := map[string]*string{
		"kind": &a.Kind, "receipt_id": &a.ReceiptID, "tool": &a.Tool, "scope": &a.Scope, "args_hash": &a.ArgsHash,
		"issued_at": &a.IssuedAt, "expires_at": &a.ExpiresAt, "approver": &a.Approver, "nonce": &a.Nonce, "content_hash": &a.ContentHash,
	}
	keys := []string{"kind", "receipt_id", "tool", "scope", "args_hash", "issued_at", "expires_at", "approver", "nonce", "content_hash"}
	err := members(n, keys, keys, func(key string, v jsjson.Node) (err error) {
		*fields[key], err = text(v)
		return err
	})
	switch {
	case err != nil:
		return Authorization{}, err
	case a.Kind != "authorization":
		return Authorization{}, &Fault{Path: ".kind", Detail: "want authorization"}
	case a.ContentHash != contentHash(a):
		return Authorization{}, &Fault{Path: ".content_hash", Detail: "it is not the hash of the rest"}
	}
	return a, nil
}

// DenyReceipt is a refusal as the finance tools have it.
type DenyReceipt struct {
	Kind        string  `json:"kind"` // "deny"
	ReceiptID   string  `json:"receipt_id"`
	Tool        string  `json:"tool"`
	Scope       *string `json:"scope"`
	ReasonCode  string  `json:"reason_code"` // one of the Finance constants
	Detail      string  `json:"detail"`
	ArgsHash    string  `json:"args_hash"`
	IssuedAt    string  `json:"issued_at"`
	ContentHash string  `json:"content_hash"`
}

// NewDenyReceipt fills in kind, time and hash.
func NewDenyReceipt(d DenyReceipt, now time.Time) DenyReceipt {
	d.Kind, d.IssuedAt = "deny", stamp(now)
	d.ContentHash = contentHash(d)
	return d
}

// contentHash is the hash over a receipt of the finance tools without its hash;
// "" for one that has no canonical form.
func contentHash(v any) string {
	raw, err := canon.Marshal(v)
	if err != nil {
		return ""
	}
	hash, err := bodyHash(raw)
	if err != nil {
		return ""
	}
	return hash
}

// bodyHash is contentHash of the text of a receipt.
func bodyHash(raw []byte) (string, error) {
	var doc jsjson.Doc
	if err := doc.Parse(raw); err != nil {
		return "", err
	}
	return canon.Hash(doc.Root(), canon.Lexeme, "content_hash")
}
