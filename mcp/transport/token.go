package transport

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/internal/safefile"
)

const (
	maxToken    = 8 << 10 // bytes; a longer one is not looked into
	maxSubject  = 200     // characters of a subject
	leastSecret = 32      // bytes, RFC 7518, section 3.2
	maxSecret   = 4 << 10
	leeway      = 60 * time.Second
)

// clientSubject stands before a subject that is a client's id. A sub may not
// begin like it, so no user can have the name of a client.
const clientSubject = "client_id:"

type subjectKey struct{}

// Subject is who a request comes from: the sub of its verified token or, where
// that has none, "client_id:" and its client_id. It is "" where no tokens are
// verified.
func Subject(ctx context.Context) string {
	subject, _ := ctx.Value(subjectKey{}).(string)
	return subject
}

// verifier says whose a token is.
type verifier struct {
	methods []string
	keys    func(now time.Time) *[]key // another pointer means other keys
	parser  *jwt.Parser
	scopes  []string
	now     func() time.Time

	mu       sync.Mutex
	verified *simplelru.LRU[[sha256.Size]byte, verified] // by the hash of the whole token
}

// verified is a token that was found good. An agent sends the same one for an
// hour, and a signature costs more than all the rest of a request.
type verified struct {
	subject     string
	from, until time.Time // with the leeway; from is zero where it always was good
	keys        *[]key
}

// verifiedTokens is how many are kept.
const verifiedTokens = 1024

func newVerifier(methods, scopes []string, now func() time.Time, keys func(time.Time) *[]key) *verifier {
	kept, err := simplelru.NewLRU[[sha256.Size]byte, verified](verifiedTokens, nil)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	return &verifier{methods: methods, scopes: scopes, now: now, keys: keys, verified: kept}
}

// openVerifier reads the keys. The audience comes later: a server that derives
// it knows it when it is bound.
func openVerifier(a Auth, now func() time.Time, log *slog.Logger) (*verifier, error) {
	if a.Secret != "" {
		secret, err := readSecret(a.Secret)
		if err != nil {
			return nil, errcode.Wrap(err, errcode.Usage, "a file of mode 0600 with 32 random bytes or more, such as openssl rand -hex 32 prints",
				"use --auth-hmac-secret %s", plain.Quote(a.Secret, plain.Detail))
		}
		keys := &[]key{{alg: "HS256", public: secret}}
		return newVerifier([]string{"HS256"}, a.Scopes, now, func(time.Time) *[]key { return keys }), nil
	}
	file, err := openKeyFile(a.JWKS, now(), log)
	if err != nil {
		return nil, errcode.Wrap(err, errcode.Usage, "a regular file with the issuer's JWK set", "use --auth-jwks %s", plain.Quote(a.JWKS, plain.Detail))
	}
	return newVerifier([]string{"RS256", "ES256", "EdDSA"}, a.Scopes, now, file.current), nil
}

// expect sets what tokens must say.
func (v *verifier) expect(issuer, audience string) {
	v.parser = jwt.NewParser(
		jwt.WithValidMethods(v.methods),
		jwt.WithIssuer(issuer),
		jwt.WithAudience(audience),
		jwt.WithExpirationRequired(),
		jwt.WithLeeway(leeway),
		jwt.WithTimeFunc(v.now),
		jwt.WithStrictDecoding(),
	)
}

// readSecret reads a shared secret. A line break an editor or a command has put
// behind a text is not part of it.
func readSecret(path string) ([]byte, error) {
	dir, name := splitPath(path)
	d, err := safefile.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	f, info, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info.Size > maxSecret {
		return nil, safefile.ErrTooLarge
	}
	if err := onlyOwner(f); err != nil {
		return nil, err
	}
	secret, err := io.ReadAll(io.LimitReader(f, maxSecret))
	if err != nil {
		return nil, err
	}
	if text := bytes.TrimSuffix(bytes.TrimSuffix(secret, []byte("\n")), []byte("\r")); !bytes.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		secret = text
	}
	if len(secret) < leastSecret {
		return nil, errors.New("it is shorter than 32 bytes")
	}
	return secret, nil
}

func onlyOwner(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o177 != 0 {
		return errors.New("others than its owner may use it: its mode is not 0600")
	}
	return nil
}

// refused is why a token is not good. Its text goes to the log and holds
// nothing of the token.
type refused struct {
	code string // of the answer
	why  string
}

func (r *refused) Error() string { return r.why }

var (
	errNoToken   = &refused{codeUnauthorized, "no token"}
	errScope     = &refused{codeScope, "a scope is missing"}
	errLong      = &refused{codeToken, "longer than a token may be"}
	errForm      = &refused{codeToken, "not a token"}
	errHeader    = &refused{codeToken, "a header that is not served"}
	errRepeats   = &refused{codeToken, "a member is there more than once"}
	errTime      = &refused{codeToken, "a time that is no time"}
	errNoKey     = &refused{codeToken, "signed by no listed key"}
	errSubject   = &refused{codeToken, "no subject that can be written down"}
	tokenReasons = []struct {
		is  error
		why *refused
	}{
		{jwt.ErrTokenExpired, &refused{codeToken, "expired"}},
		{jwt.ErrTokenNotValidYet, &refused{codeToken, "not valid yet"}},
		{jwt.ErrTokenInvalidAudience, &refused{codeToken, "for another audience"}},
		{jwt.ErrTokenInvalidIssuer, &refused{codeToken, "from another issuer"}},
		{jwt.ErrTokenRequiredClaimMissing, &refused{codeToken, "without a claim it needs"}},
		{jwt.ErrTokenSignatureInvalid, &refused{codeToken, "not signed by the key it names, or by an algorithm that is not served"}},
	}
)

// subject is whose request has these Authorization values.
func (v *verifier) subject(values []string) (string, *refused) {
	if len(values) == 0 {
		return "", errNoToken
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if len(values) > 1 || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", errForm
	}
	if len(token) > maxToken {
		return "", errLong
	}
	now := v.now()
	hash, keys := sha256.Sum256([]byte(token)), v.keys(now)
	v.mu.Lock()
	known, ok := v.verified.Get(hash)
	v.mu.Unlock()
	if ok && known.keys == keys && !now.Before(known.from) && now.Before(known.until) {
		return known.subject, nil
	}
	claims := jwt.MapClaims{}
	_, err := v.parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) { return keyFor(t, *keys) })
	if err != nil {
		return "", reason(err)
	}
	if refusal := unclear(token, claims); refusal != nil {
		return "", refusal
	}
	if !granted(claims, v.scopes) {
		return "", errScope
	}
	subject, refusal := subjectOf(claims)
	if refusal == nil {
		v.mu.Lock()
		v.verified.Add(hash, verified{subject, when(claims.GetNotBefore, -leeway), when(claims.GetExpirationTime, leeway), keys})
		v.mu.Unlock()
	}
	return subject, refusal
}

// when is the time of a claim that was checked, moved by the leeway.
func when(claim func() (*jwt.NumericDate, error), by time.Duration) time.Time {
	at, err := claim()
	if err != nil || at == nil {
		return time.Time{}
	}
	return at.Add(by)
}

func reason(err error) *refused {
	var ours *refused
	if errors.As(err, &ours) {
		return ours
	}
	for _, r := range tokenReasons {
		if errors.Is(err, r.is) {
			return r.why
		}
	}
	return errForm
}

// keyFor finds the key of a token by its header. A header that brings its own
// key, or asks for extensions, is refused: none is understood here (RFC 7515,
// sections 4.1.2 to 4.1.6 and 4.1.11).
func keyFor(token *jwt.Token, keys []key) (any, error) {
	for name, value := range token.Header {
		switch strings.ToLower(name) {
		case "crit", "jwk", "jku", "x5u", "x5c", "b64", "zip", "enc":
			return nil, errHeader
		case "typ":
			// RFC 9068, section 2.1; "JWT" is what most issuers write. A token of
			// another type was made for something else.
			kind, _ := value.(string)
			if kind = strings.TrimPrefix(strings.ToLower(kind), "application/"); kind != "jwt" && kind != "at+jwt" {
				return nil, errHeader
			}
		}
	}
	named, has := token.Header["kid"]
	id, isText := named.(string)
	if has && !isText {
		return nil, errHeader
	}
	var found *key
	for _, k := range keys {
		if k.alg != token.Method.Alg() || has && k.id != id && k.alg != "HS256" {
			continue
		}
		if found != nil {
			return nil, errNoKey // a token that names no key must leave no choice
		}
		found = &k
	}
	if found == nil {
		return nil, errNoKey
	}
	return found.public, nil
}

// lastSecond is the end of the year 9999 (RFC 3339, section 1).
const lastSecond = 253402300799

// unclear is why a token that verifies is refused all the same: readers of JSON
// disagree about which of two members counts (RFC 7515, section 4; RFC 7519,
// section 4), and the library takes a time so far away that it cannot be counted
// for one long ago.
func unclear(token string, claims jwt.MapClaims) *refused {
	for _, name := range []string{"exp", "nbf"} {
		if at, is := claims[name].(float64); is && (at < 0 || at > lastSecond) {
			return errTime
		}
	}
	for i, part := range strings.Split(token, ".") {
		if i < 2 && repeats(part) {
			return errRepeats
		}
	}
	return nil
}

// repeats reports whether a part of a token has a member more than once.
func repeats(part string) bool {
	text, err := base64.RawURLEncoding.DecodeString(part)
	var doc jsjson.Doc
	if err != nil || doc.Parse(text) != nil {
		return true
	}
	seen := map[string]bool{}
	for name := range doc.Root().Members() {
		if seen[string(name.Text())] {
			return true
		}
		seen[string(name.Text())] = true
	}
	return false
}

// granted reports whether a token has every scope: those of scope, a text (RFC
// 8693, section 4.2), or where there is none those of scp, a list.
func granted(claims jwt.MapClaims, needed []string) bool {
	have := map[string]bool{}
	if scope, ok := claims["scope"]; ok {
		text, _ := scope.(string)
		for name := range strings.SplitSeq(text, " ") {
			have[name] = true
		}
	} else {
		list, _ := claims["scp"].([]any)
		for _, name := range list {
			if text, ok := name.(string); ok {
				have[text] = true
			}
		}
	}
	for _, name := range needed {
		if !have[name] {
			return false
		}
	}
	return true
}

// subjectOf is the subject of a verified token. People read it in reviews, so
// it may have nothing that is not seen, and no blank that looks like another.
// U+FFFD stands for whatever cannot be read, so it could be anybody.
func subjectOf(claims jwt.MapClaims) (string, *refused) {
	value, has := claims["sub"]
	if !has {
		if value, has = claims["client_id"]; !has {
			return "", errSubject
		}
	}
	text, ok := value.(string)
	if !ok || text == "" || strings.TrimSpace(text) != text || plain.Clean(text, maxSubject) != text ||
		strings.ContainsFunc(text, func(r rune) bool { return r == utf8.RuneError || r != ' ' && unicode.IsSpace(r) }) {
		return "", errSubject
	}
	if _, isUser := claims["sub"]; !isUser {
		return clientSubject + text, nil
	}
	if strings.HasPrefix(text, clientSubject) {
		return "", errSubject
	}
	return text, nil
}
