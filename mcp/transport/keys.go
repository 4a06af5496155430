package transport

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/internal/safefile"
)

// Bounds of a key file.
const (
	maxKeyFile = 1 << 20
	maxKeys    = 100
	leastRSA   = 2048 // bits, RFC 7518, section 3.3
	mostRSA    = 8192
)

// key is a public key and the one algorithm it is good for.
type key struct {
	id     string
	alg    string
	public any
}

// jwk is what of an entry of a key set matters here (RFC 7517).
type jwk struct {
	Kty, Kid, Alg, Use, Crv string
	Ops                     []string `json:"key_ops"`
	N, E, X, Y              string
	D, K, P                 json.RawMessage
}

// parseKeys reads a JWK set. Keys that are for something else are left out; one
// that should fit and is malformed, and any that is no public key, is a fault of
// the whole file.
func parseKeys(source []byte) ([]key, error) {
	var set struct{ Keys []jwk }
	if err := json.Unmarshal(source, &set); err != nil {
		return nil, errors.New("it is not a JWK set")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("it has more than %d keys", maxKeys)
	}
	var keys []key
	for i, j := range set.Keys {
		if j.Kty == "oct" || j.D != nil || j.K != nil || j.P != nil {
			return nil, fmt.Errorf("key %d of it is secret: only public keys belong in it", i+1)
		}
		k, err := j.key()
		if err != nil {
			return nil, fmt.Errorf("key %d of it: %w", i+1, err)
		}
		if k == nil {
			continue
		}
		if slices.ContainsFunc(keys, func(other key) bool { return other.id == k.id && other.alg == k.alg }) {
			return nil, fmt.Errorf("it has more than one key %s for %s", plain.Quote(k.id, plain.Detail), k.alg)
		}
		keys = append(keys, *k)
	}
	if len(keys) == 0 {
		return nil, errors.New("it has no key that signs by RS256, ES256 or EdDSA")
	}
	return keys, nil
}

// key is the key of an entry, nil for one that is not for signatures or not of
// the kinds that are served.
func (j jwk) key() (*key, error) {
	if j.Use != "" && j.Use != "sig" || j.Ops != nil && !slices.Contains(j.Ops, "verify") {
		return nil, nil
	}
	alg := map[[2]string]string{{"RSA", ""}: "RS256", {"EC", "P-256"}: "ES256", {"OKP", "Ed25519"}: "EdDSA"}[[2]string{j.Kty, j.Crv}]
	if alg == "" || j.Alg != "" && j.Alg != alg && (alg != "EdDSA" || j.Alg != "Ed25519") {
		return nil, nil
	}
	k := &key{id: j.Kid, alg: alg}
	var err error
	switch alg {
	case "RS256":
		k.public, err = j.rsa()
	case "ES256":
		k.public, err = j.ecdsa()
	case "EdDSA":
		k.public, err = j.ed25519()
	}
	return k, err
}

func decode(text string) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) == 0 {
		return nil, errors.New("a number of it is not base64url")
	}
	return b, nil
}

func (j jwk) rsa() (any, error) {
	n, err := decode(j.N)
	if err != nil {
		return nil, err
	}
	e, err := decode(j.E)
	if err != nil {
		return nil, err
	}
	modulus, exponent := new(big.Int).SetBytes(n), new(big.Int).SetBytes(e)
	if bits := modulus.BitLen(); bits < leastRSA || bits > mostRSA {
		return nil, fmt.Errorf("an RSA key of %d bits; from %d to %d are taken", bits, leastRSA, mostRSA)
	}
	if exponent.BitLen() > 31 || exponent.Int64() < 3 || exponent.Bit(0) == 0 || modulus.Bit(0) == 0 {
		return nil, errors.New("an RSA key with an exponent or modulus that cannot be right")
	}
	return &rsa.PublicKey{N: modulus, E: int(exponent.Int64())}, nil
}

func (j jwk) ecdsa() (any, error) {
	x, err := decode(j.X)
	if err != nil {
		return nil, err
	}
	y, err := decode(j.Y)
	if err != nil {
		return nil, err
	}
	const size = 32 // RFC 7518, section 6.2.1.2: full length
	if len(x) != size || len(y) != size {
		return nil, errors.New("a P-256 key whose coordinates do not have 32 bytes")
	}
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
	if err != nil {
		return nil, errors.New("a P-256 key that is no point of the curve")
	}
	return public, nil
}

func (j jwk) ed25519() (any, error) {
	x, err := decode(j.X)
	if err != nil {
		return nil, err
	}
	if len(x) != ed25519.PublicKeySize {
		return nil, errors.New("an Ed25519 key that does not have 32 bytes")
	}
	return ed25519.PublicKey(x), nil
}

// keyFile is a key set that follows its file.
type keyFile struct {
	path string
	log  *slog.Logger
	keys atomic.Pointer[[]key]

	checked atomic.Int64 // when the file was last looked at, nanoseconds since 1970

	mu    sync.Mutex // guards all below; held by whoever looks at the file
	seen  safefile.Info
	hash  [sha256.Size]byte
	fault string // what was last wrong with it; told once, not every second
}

// checkEvery is how often the file is looked at, and so how long a key that was
// taken out of it may still be good.
const checkEvery = time.Second

func openKeyFile(path string, now time.Time, log *slog.Logger) (*keyFile, error) {
	f := &keyFile{path: path, log: log}
	f.checked.Store(now.UnixNano())
	return f, f.read()
}

// current are the keys of the file as it is now. A file that cannot be used is
// logged and changes nothing: a token is not good or bad by how far somebody is
// with writing a file.
func (f *keyFile) current(now time.Time) *[]key {
	if f.fresh(now) {
		return f.keys.Load()
	}
	// Whoever comes while somebody looks waits for what is found: after a quiet
	// day the keys there are may be those of the day before.
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fresh(now) {
		return f.keys.Load()
	}
	switch err := f.read(); {
	case err == nil:
		f.fault = ""
	case err.Error() != f.fault:
		f.fault = err.Error()
		f.log.Error("the key file cannot be used, the keys read before stay", "file", plain.Clean(f.path, plain.Detail), "error", err)
	}
	f.checked.Store(now.UnixNano())
	return f.keys.Load()
}

func (f *keyFile) fresh(now time.Time) bool {
	d := now.UnixNano() - f.checked.Load()
	return d >= 0 && d < int64(checkEvery)
}

// read takes the file's keys if it has changed since it was last looked at.
func (f *keyFile) read() error {
	dir, err := filepath.EvalSymlinks(filepath.Dir(f.path))
	if err != nil {
		return err
	}
	d, err := safefile.OpenDir(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	info, err := d.Stat(filepath.Base(f.path))
	if err != nil || info == f.seen {
		return err
	}
	source, err := d.ReadFile(filepath.Base(f.path), maxKeyFile)
	if err != nil {
		return err
	}
	f.seen = info
	hash := sha256.Sum256(source)
	if f.keys.Load() != nil && hash == f.hash {
		return nil
	}
	keys, err := parseKeys(source)
	if err != nil {
		return err
	}
	f.hash = hash
	if f.keys.Swap(&keys) != nil {
		f.log.Warn("the key file has changed and was read", "file", plain.Clean(f.path, plain.Detail), "keys", len(keys))
	}
	return nil
}
