package approval

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

// HMACKey is a key of receipts of version 1. The zero value signs and verifies
// nothing.
type HMACKey struct{ secret []byte }

// minHMACKey is how many bytes such a key has at least (approvals contract,
// section 9.3).
const minHMACKey = 32

// published are keys that anybody can read: the one the published server signs
// with when it is given none (approvals contract, section 7, W4), and the one of
// the protocol's vectors that is long enough.
var published = []string{
	"cubiczan-chp-mcp-insecure-default-key",
	strings.Repeat("0123456789abcdef", 9),
}

// NewHMACKey takes a key from the configuration. There is no default: no key, one
// shorter than 32 bytes and one that was published are refused. The error is an
// E_USAGE.
func NewHMACKey(secret string) (HMACKey, error) {
	refuse := func(format string, args ...any) (HMACKey, error) {
		return HMACKey{}, errcode.New(errcode.Usage, "make one with: openssl rand -hex 32", "the key of HMAC receipts: "+format, args...)
	}
	switch bare := strings.TrimSpace(secret); {
	case bare == "":
		return refuse("there is none, and no default stands in for it")
	case slices.Contains(published, bare):
		return refuse("it was published, so that everybody could sign with it")
	case len(bare) < minHMACKey:
		return refuse("it has %d bytes; it needs at least %d", len(bare), minHMACKey)
	}
	return HMACKey{[]byte(secret)}, nil
}

// mac is the signature of a receipt of version 1.
func (k HMACKey) mac(body []byte) string {
	h := hmac.New(sha256.New, k.secret)
	h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}

// Signer signs receipts of version 2; a decision.Signer is one.
type Signer interface {
	Name() string
	PublicKey() string // base64
	Sign(payload []byte) ([]byte, error)
}

// NewAutoSigner is the key a server signs with what needs no person.
func NewAutoSigner(key ed25519.PrivateKey) Signer { return autoSigner{key} }

type autoSigner struct{ key ed25519.PrivateKey }

func (autoSigner) Name() string { return ActorAuto }

func (s autoSigner) PublicKey() string {
	return base64.StdEncoding.EncodeToString(s.key.Public().(ed25519.PublicKey))
}

func (s autoSigner) Sign(payload []byte) ([]byte, error) { return ed25519.Sign(s.key, payload), nil }

// KeyID names a public key in a receipt.
func KeyID(public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:16])
}

// sign fills in the signature and whose it is.
func (r *Receipt) sign(by Signer) error {
	public, err := base64.StdEncoding.DecodeString(by.PublicKey())
	if err != nil || len(public) != ed25519.PublicKeySize {
		return errcode.New(errcode.OperatorKey, "", "sign a receipt: the signer has no public key")
	}
	r.KeyID = KeyID(public)
	signature, err := by.Sign(r.Body())
	if err != nil {
		return errcode.Wrap(err, errcode.OperatorKey, "", "sign a receipt")
	}
	r.Signature = base64.StdEncoding.EncodeToString(signature)
	return nil
}

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
	AllowHMAC bool              // one of version 1 may stand for a person (--allow-hmac-receipts)
}

// Verify checks a receipt's signature. person reports whether it speaks for a
// person: one under the auto key does not, and one of version 1 only where that is
// allowed, since whoever can verify it could have made it.
func (k Keys) Verify(r *Receipt, now time.Time) (person bool, refused *Refusal) {
	var err error
	switch r.SchemaVersion {
	case ReceiptV1:
		person, err = k.AllowHMAC, k.verifyHMAC(r)
	case ReceiptV2:
		person, err = k.verifySigned(r, now)
	default:
		err = errors.New("it is of no version that is known")
	}
	if err != nil {
		return false, &Refusal{CodeInvalidSignature, "the signature of the receipt does not count: " + err.Error()}
	}
	return person, nil
}

func (k Keys) verifyHMAC(r *Receipt) error {
	switch {
	case k.HMAC == nil || len(k.HMAC.secret) == 0:
		return errors.New("there is no key for HMAC receipts")
	case !hmac.Equal([]byte(r.Signature), []byte(k.HMAC.mac(r.Body()))):
		return errors.New("it is another than the key gives")
	}
	return nil
}

func (k Keys) verifySigned(r *Receipt, now time.Time) (person bool, err error) {
	signature, err := base64.StdEncoding.DecodeString(r.Signature)
	if err != nil || base64.StdEncoding.EncodeToString(signature) != r.Signature {
		return false, errors.New("it is not base64 in its one form") // line breaks are let through, for one
	}
	public := k.Auto
	if person = len(k.Auto) == 0 || r.KeyID != KeyID(k.Auto); person {
		i := slices.IndexFunc(k.Operators, func(o OperatorKey) bool { return KeyID(o.Public) == r.KeyID })
		switch {
		case i < 0:
			return false, errors.New("nobody's key is named")
		case k.Operators[i].Name != r.Actor:
			return false, errors.New("it is with the key of somebody else than the actor")
		case !k.Operators[i].Until.IsZero() && !now.Before(k.Operators[i].Until):
			return false, errors.New("the key was retired")
		}
		public = k.Operators[i].Public
	}
	// A receipt for which nobody was asked names no review, and only that.
	if auto := r.ReviewID == ""; auto == person || auto != (r.Actor == ActorAuto) || auto != (r.DecisionHash == "") {
		return false, errors.New("it names a review without a person, or a person without a review")
	}
	if len(public) != ed25519.PublicKeySize || !ed25519.Verify(public, r.Body(), signature) {
		return false, errors.New("it is not over this receipt")
	}
	return person, nil
}
