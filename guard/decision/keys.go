package decision

import (
	"bytes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/chacha20poly1305"
	"golang.org/x/crypto/scrypt"

	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

// Signer is an operator who can sign what loosens (guard contract, section 4).
type Signer interface {
	Name() string
	PublicKey() string // base64, as in the policy
	Sign(payload []byte) ([]byte, error)
}

// Sign fills in the signature of an act and gives it back, by value or by pointer
// as it came; the body that was given is not changed. st is the state the act is
// appended to, so it is called by the function given to [Log.Update]. The first
// line of a log cannot be signed, unless it is a recovery or an adoption, since it
// is what a signature is bound to. The error is an E_OPERATOR_KEY.
func Sign(body Body, st *State, by Signer, now time.Time) (Body, error) {
	full, err := normal(body)
	if err != nil {
		return nil, cannotSign(err)
	}
	s := signed(full)
	if s == nil {
		return nil, cannotSign(errors.New("a " + full.kind() + " line bears no signature"))
	}
	*s = Signed{DecidedBy: by.Name(), SignedAt: stamp(now), Key: by.PublicKey()}
	part, err := act(full)
	if err != nil {
		return nil, cannotSign(err)
	}
	payload, err := st.payload(part, full, st.lines == 0)
	if err != nil {
		return nil, cannotSign(err)
	}
	sig, err := by.Sign(payload)
	if err != nil {
		return nil, cannotSign(err)
	}
	s.Signature = base64.StdEncoding.EncodeToString(sig)
	if reflect.TypeOf(body).Kind() != reflect.Pointer {
		return reflect.ValueOf(full).Elem().Interface().(Body), nil
	}
	return full, nil
}

func cannotSign(err error) error {
	return errcode.Wrap(err, errcode.OperatorKey, "", "sign as an operator")
}

// A key file is one JSON object. Everything in it but the sealed seed is readable
// and authenticated with it.
type keyFile struct {
	Version   int    `json:"version"` // 1
	Type      string `json:"type"`    // keyType
	Name      string `json:"name"`
	PublicKey string `json:"publicKey"` // base64
	KDF       kdf    `json:"kdf"`
	Cipher    string `json:"cipher"` // keyCipher
	Nonce     []byte `json:"nonce"`  // base64, as Sealed
	Sealed    []byte `json:"sealed"` // the seed of the private key
}

type kdf struct {
	Name string `json:"name"` // "scrypt"
	Salt []byte `json:"salt"` // base64
	LogN int    `json:"logN"`
	R    int    `json:"r"`
	P    int    `json:"p"`
}

const (
	keyVersion = 1
	keyType    = "settlewatch operator key"
	keyCipher  = "xchacha20poly1305"
	// KeyCost is the cost of opening a key file, as the binary logarithm of
	// scrypt's N: 256 MiB of memory, and about a second, for every guess.
	KeyCost = 18
	// maxKeyCost bounds what a file from elsewhere can make us do: 1 GiB.
	maxKeyCost = 20
	saltSize   = 16
)

// NewKey makes an operator's key. It gives the content of the file to keep it in,
// which the passphrase opens, and the public key as the policy names it. cost is
// [KeyCost] except in tests. The error is an E_OPERATOR_KEY.
func NewKey(name string, passphrase []byte, cost int) (file []byte, public string, err error) {
	refuse := func(err error, hint string) ([]byte, string, error) {
		return nil, "", errcode.Wrap(err, errcode.OperatorKey, hint, "make an operator key")
	}
	if err := keyName(name); err != nil {
		return refuse(err, "give a short name, such as alice")
	}
	if len(bytes.TrimSpace(passphrase)) == 0 {
		return refuse(errors.New("the passphrase is blank"), "choose one that only you know; without it the agent could sign")
	}
	pub, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return refuse(err, "")
	}
	k := keyFile{
		Version: keyVersion, Type: keyType, Name: name, PublicKey: base64.StdEncoding.EncodeToString(pub),
		KDF:    kdf{Name: "scrypt", Salt: make([]byte, saltSize), LogN: cost, R: 8, P: 1},
		Cipher: keyCipher, Nonce: make([]byte, chacha20poly1305.NonceSizeX),
	}
	if _, err := rand.Read(k.KDF.Salt); err != nil {
		return refuse(err, "")
	}
	if _, err := rand.Read(k.Nonce); err != nil {
		return refuse(err, "")
	}
	aead, aad, err := k.open(passphrase)
	if err != nil {
		return refuse(err, "")
	}
	k.Sealed = aead.Seal(nil, k.Nonce, private.Seed(), aad)
	file, err = json.MarshalIndent(k, "", "  ")
	if err != nil {
		return refuse(err, "")
	}
	return append(file, '\n'), k.PublicKey, nil
}

// keyName refuses a name that could not be shown, or read aloud.
func keyName(name string) error {
	if name == "" || len(name) > 64 || name != strings.TrimSpace(name) || !utf8.ValidString(name) {
		return errors.New("the name is blank, longer than 64 bytes, or no plain text")
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return errors.New("the name holds a character that cannot be shown")
		}
	}
	return nil
}

// open derives the key of the sealed part, and what is authenticated beside it.
func (k *keyFile) open(passphrase []byte) (aead cipher.AEAD, additional []byte, err error) {
	if k.KDF.LogN < 1 || k.KDF.LogN > maxKeyCost || k.KDF.R != 8 || k.KDF.P != 1 || len(k.KDF.Salt) != saltSize || len(k.Nonce) != chacha20poly1305.NonceSizeX {
		return nil, nil, errors.New("its parameters are none that are used")
	}
	secret, err := scrypt.Key(passphrase, k.KDF.Salt, 1<<k.KDF.LogN, k.KDF.R, k.KDF.P, chacha20poly1305.KeySize)
	if err != nil {
		return nil, nil, err
	}
	bare := *k
	bare.Sealed = nil
	if additional, err = canon.Marshal(bare); err != nil {
		return nil, nil, err
	}
	aead, err = chacha20poly1305.NewX(secret)
	return aead, additional, err
}

// MaxKeyFile is more bytes than a key file has.
const MaxKeyFile = 4096

// OpenKey opens the content of a key file. The error is an E_OPERATOR_KEY.
func OpenKey(file, passphrase []byte) (Signer, error) {
	k, err := readKey(file)
	if err != nil {
		return nil, err
	}
	aead, additional, err := k.open(passphrase)
	if err != nil {
		return nil, badKey(err)
	}
	seed, err := aead.Open(nil, k.Nonce, k.Sealed, additional)
	if err != nil {
		return nil, errcode.New(errcode.OperatorKey, "type it again", "the passphrase does not open the key of %s, or the file was changed", k.Name)
	}
	if len(seed) != ed25519.SeedSize {
		return nil, badKey(errors.New("it holds no seed"))
	}
	private := ed25519.NewKeyFromSeed(seed)
	if base64.StdEncoding.EncodeToString(private.Public().(ed25519.PublicKey)) != k.PublicKey {
		return nil, badKey(errors.New("it names another public key than it holds"))
	}
	return &operatorKey{k.Name, k.PublicKey, private}, nil
}

// KeyInfo tells whose key a file holds, without opening it. The error is an
// E_OPERATOR_KEY.
func KeyInfo(file []byte) (name, public string, err error) {
	k, err := readKey(file)
	if err != nil {
		return "", "", err
	}
	return k.Name, k.PublicKey, nil
}

func readKey(file []byte) (*keyFile, error) {
	if len(file) > MaxKeyFile {
		return nil, badKey(errors.New("it is too long"))
	}
	var k keyFile
	dec := json.NewDecoder(bytes.NewReader(file))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&k); err != nil {
		return nil, badKey(err)
	}
	if k.Type != keyType || k.Version != keyVersion || k.KDF.Name != "scrypt" || k.Cipher != keyCipher {
		return nil, badKey(errors.New("it is no key of this version"))
	}
	if err := keyName(k.Name); err != nil {
		return nil, badKey(err)
	}
	if _, err := publicKey(k.PublicKey); err != nil {
		return nil, badKey(err)
	}
	return &k, nil
}

func badKey(err error) error {
	return errcode.Wrap(err, errcode.OperatorKey, "give the file that `settlewatch operator init` wrote", "read the operator key")
}

type operatorKey struct {
	name, public string
	private      ed25519.PrivateKey
}

func (k *operatorKey) Name() string      { return k.name }
func (k *operatorKey) PublicKey() string { return k.public }

func (k *operatorKey) Sign(payload []byte) ([]byte, error) {
	return ed25519.Sign(k.private, payload), nil
}
