package transport

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

type claims = jwt.MapClaims

const (
	issuer = "https://issuer.example"
	secret = "a secret of more than 32 bytes, for tests"
)

// withSecret is a configuration that verifies HS256.
func withSecret(t testing.TB) Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := open()
	c.NoAuth, c.Auth = false, Auth{Issuer: issuer, Secret: path}
	return c
}

// signing is how a token of a test is made.
type signing struct {
	method jwt.SigningMethod
	key    any
	header map[string]any
}

func (s *started) token(how signing, change claims) string {
	s.t.Helper()
	all := claims{"iss": issuer, "aud": s.s.Resource(), "exp": s.s.plan.Now().Add(time.Hour).Unix(), "sub": "alice"}
	for name, value := range change {
		if value == nil {
			delete(all, name)
		} else {
			all[name] = value
		}
	}
	token := jwt.NewWithClaims(how.method, all)
	for name, value := range how.header {
		if value == nil {
			delete(token.Header, name)
		} else {
			token.Header[name] = value
		}
	}
	text, err := token.SignedString(how.key)
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

func bearer(t testing.TB, s *started, change claims) string {
	t.Helper()
	return "Bearer " + s.token(signing{jwt.SigningMethodHS256, []byte(secret), nil}, change)
}

// with sends a message with a value of Authorization.
func (s *started) with(authorization string) reply {
	s.t.Helper()
	if authorization == "" {
		return s.send(request{})
	}
	return s.send(request{headers: []string{"Authorization: " + authorization}})
}

// keys of the kinds that are served, made once.
var keys = sync.OnceValue(func() (k struct {
	rsa, other *rsa.PrivateKey
	small      *rsa.PrivateKey
	ec         *ecdsa.PrivateKey
	ed         ed25519.PrivateKey
}) {
	var err error
	for _, e := range []func() error{
		func() error { k.rsa, err = rsa.GenerateKey(rand.Reader, 2048); return err },
		func() error { k.other, err = rsa.GenerateKey(rand.Reader, 2048); return err },
		func() error { k.small, err = rsa.GenerateKey(rand.Reader, 1024); return err },
		func() error { k.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); return err },
		func() error { _, k.ed, err = ed25519.GenerateKey(rand.Reader); return err },
	} {
		if err := e(); err != nil {
			panic(err)
		}
	}
	return k
})

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// public is the JWK of a key; more is added to it.
func public(key crypto.Signer, kid string, more map[string]any) map[string]any {
	j := map[string]any{"kid": kid}
	switch k := key.Public().(type) {
	case *rsa.PublicKey:
		j["kty"], j["n"], j["e"] = "RSA", b64(k.N.Bytes()), b64(big.NewInt(int64(k.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		if err != nil {
			panic(err)
		}
		size := (len(point) - 1) / 2
		j["kty"], j["crv"], j["x"], j["y"] = "EC", k.Curve.Params().Name, b64(point[1:1+size]), b64(point[1+size:])
	case ed25519.PublicKey:
		j["kty"], j["crv"], j["x"] = "OKP", "Ed25519", b64(k)
	}
	for name, value := range more {
		j[name] = value
	}
	return j
}

func keySet(all ...map[string]any) string {
	text, err := json.Marshal(map[string]any{"keys": all})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// withKeys is a configuration that verifies by a key set.
func withKeys(t testing.TB, set string) (Config, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(path, []byte(set), 0o644); err != nil {
		t.Fatal(err)
	}
	c := open()
	c.NoAuth, c.Auth = false, Auth{Issuer: issuer, JWKS: path}
	return c, path
}

func TestAServerSaysWhereItsTokensComeFrom(t *testing.T) {
	c := withSecret(t)
	c.Auth.Scopes = []string{"payments:read", "payments:check"}
	s := start(t, c, echo)
	about := "http://" + s.addr + "/.well-known/oauth-protected-resource/mcp"
	r := s.send(request{method: "GET", path: "/.well-known/oauth-protected-resource/mcp"})
	want := `{"resource":"http://` + s.addr + `/mcp","authorization_servers":["https://issuer.example"],"scopes_supported":["payments:read","payments:check"],"bearer_methods_supported":["header"]}`
	if r.status != 200 || r.body != want {
		t.Errorf("%d %s", r.status, r.body)
	}
	s.is("HEAD", s.send(request{method: "HEAD", path: "/.well-known/oauth-protected-resource/mcp"}), 200, "")
	s.is("POST", s.send(request{path: "/.well-known/oauth-protected-resource/mcp"}), 405, "method_not_allowed")
	for what, test := range map[string]struct {
		authorization string
		status        int
		code, params  string
	}{
		"no token":    {"", 401, "unauthorized", ""},
		"a bad one":   {"Bearer x", 401, "invalid_token", `, error="invalid_token"`},
		"too little":  {bearer(t, s, claims{"scope": "payments:read"}), 403, "insufficient_scope", `, error="insufficient_scope"`},
		"none at all": {bearer(t, s, nil), 403, "insufficient_scope", `, error="insufficient_scope"`},
	} {
		r := s.with(test.authorization)
		s.is(what, r, test.status, test.code)
		if got, want := r.Header.Get("WWW-Authenticate"), `Bearer resource_metadata="`+about+`"`+test.params+`, scope="payments:read payments:check"`; got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	s.is("enough", s.with(bearer(t, s, claims{"scope": "other payments:check payments:read"})), 200, "")
	s.is("as a list", s.with(bearer(t, s, claims{"scp": []string{"payments:read", "payments:check"}})), 200, "")
	s.is("a part of a name", s.with(bearer(t, s, claims{"scope": "payments:read payments:checks"})), 403, "insufficient_scope")
	s.is("a list for the text", s.with(bearer(t, s, claims{"scope": []string{"payments:read", "payments:check"}})), 403, "insufficient_scope")
	s.is("a text for the list", s.with(bearer(t, s, claims{"scp": "payments:read payments:check"})), 403, "insufficient_scope")
	s.is("a list beside an empty text", s.with(bearer(t, s, claims{"scope": "", "scp": []string{"payments:read", "payments:check"}})), 403, "insufficient_scope")
	// Health asks for none.
	s.is("health", s.send(request{method: "GET", path: "/health"}), 200, "")

	for url, paths := range map[string][2]string{
		"https://pay.example/mcp":       {"https://pay.example/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource/mcp"},
		"https://pay.example/tools/mcp": {"https://pay.example/.well-known/oauth-protected-resource/tools/mcp", "/.well-known/oauth-protected-resource/tools/mcp"},
		"https://pay.example/":          {"https://pay.example/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource"},
		"https://pay.example":           {"https://pay.example/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource"},
	} {
		c.PublicURL = url
		s := start(t, c, echo)
		if got := s.with("").Header.Get("WWW-Authenticate"); !strings.HasPrefix(got, `Bearer resource_metadata="`+paths[0]+`",`) {
			t.Errorf("%s: %s", url, got)
		}
		for _, path := range []string{paths[1], "/.well-known/oauth-protected-resource/mcp"} {
			if r := s.send(request{method: "GET", path: path}); r.status != 200 || !strings.Contains(r.body, `"resource":"`+url+`"`) {
				t.Errorf("%s at %s: %d %s", url, path, r.status, r.body)
			}
		}
		s.is("the URL as audience", s.with(bearer(t, s, claims{"aud": url, "scope": "payments:read payments:check"})), 200, "")
		s.is("the bound address as audience", s.with(bearer(t, s, claims{"aud": "http://" + s.addr + "/mcp", "scope": "payments:read payments:check"})), 401, "invalid_token")
	}
}

func TestTokensByTheirClaims(t *testing.T) {
	now := newClock()
	c := withSecret(t)
	c.Now, c.Rate = now.now, 1000
	var log quiet
	c.Log = log.log()
	s := start(t, c, echo)
	at := func(d time.Duration) int64 { return now.now().Add(d).Unix() }
	for name, test := range map[string]struct {
		change claims
		want   string // the subject; "" for no good token
	}{
		"all that is needed":                 {nil, "alice"},
		"an audience in a list":              {claims{"aud": []string{"other", s.s.Resource()}}, "alice"},
		"another audience":                   {claims{"aud": "https://other.example/mcp"}, ""},
		"an audience that is a part":         {claims{"aud": s.s.Resource() + "/"}, ""},
		"the server as audience":             {claims{"aud": "http://" + s.addr}, ""},
		"other audiences in a list":          {claims{"aud": []string{"a", "b"}}, ""},
		"no audience":                        {claims{"aud": nil}, ""},
		"an empty audience":                  {claims{"aud": ""}, ""},
		"an empty list":                      {claims{"aud": []string{}}, ""},
		"an audience that is an object":      {claims{"aud": map[string]any{s.s.Resource(): true}}, ""},
		"a list with a number":               {claims{"aud": []any{1, s.s.Resource()}}, ""},
		"another issuer":                     {claims{"iss": issuer + "/"}, ""},
		"no issuer":                          {claims{"iss": nil}, ""},
		"an issuer in a list":                {claims{"iss": []string{issuer}}, ""},
		"no end":                             {claims{"exp": nil}, ""},
		"an end of zero":                     {claims{"exp": 0}, ""},
		"an end that is text":                {claims{"exp": fmt.Sprint(at(time.Hour))}, ""},
		"an end within the leeway":           {claims{"exp": at(-59 * time.Second)}, "alice"},
		"an end beyond it":                   {claims{"exp": at(-61 * time.Second)}, ""},
		"a beginning within the leeway":      {claims{"nbf": at(59 * time.Second)}, "alice"},
		"a beginning beyond it":              {claims{"nbf": at(61 * time.Second)}, ""},
		"a beginning that is text":           {claims{"nbf": "now"}, ""},
		"no subject":                         {claims{"sub": nil}, ""},
		"a client":                           {claims{"sub": nil, "client_id": "robot"}, "client_id:robot"},
		"a client and a subject":             {claims{"client_id": "robot"}, "alice"},
		"a subject that looks like a client": {claims{"sub": "client_id:robot"}, ""},
		"an empty subject":                   {claims{"sub": "", "client_id": "robot"}, ""},
		"a subject that is a number":         {claims{"sub": 7}, ""},
		"a client that is a number":          {claims{"sub": nil, "client_id": 7}, ""},
		"a subject with a line break":        {claims{"sub": "alice\nallow"}, ""},
		"a subject that turns around":        {claims{"sub": "alice\u202ebob"}, ""},
		"a subject with an invisible one":    {claims{"sub": "alice\u200b"}, ""},
		"a subject with a blank behind":      {claims{"sub": "alice "}, ""},
		"a long subject":                     {claims{"sub": strings.Repeat("x", 201)}, ""},
		"a subject of letters":               {claims{"sub": "zoë@example"}, "zoë@example"},
		"a subject of words":                 {claims{"sub": "alice b"}, "alice b"},
		"a subject with a blank like ours":   {claims{"sub": "alice\u00a0b"}, ""},
		"a subject that could be anybody's":  {claims{"sub": "alice\ufffd"}, ""},
		"an end nobody will see":             {claims{"exp": 1e18}, ""},
		"an end that cannot be counted":      {claims{"exp": 1e300}, ""},
		"a beginning nobody will see":        {claims{"nbf": 1e18}, ""},
		"a beginning that cannot be counted": {claims{"nbf": 1e300}, ""},
		"a beginning before all counting":    {claims{"nbf": -1e300}, ""},
		"the last end there is":              {claims{"exp": 253402300799}, "alice"},
	} {
		r := s.with(bearer(t, s, test.change))
		if test.want == "" {
			s.is(name, r, 401, "invalid_token")
		} else if r.status != 200 || !strings.Contains(r.body, `"subject":"`+test.want+`"`) || !strings.Contains(r.body, `"authorization":""`) {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	now.add(time.Hour + time.Minute - time.Second)
	old := bearer(t, s, claims{"exp": at(-59 * time.Second)})
	s.is("before its end", s.with(old), 200, "")
	now.add(2 * time.Second)
	s.is("after it", s.with(old), 401, "invalid_token")
	if strings.Contains(log.String(), "eyJ") || !strings.Contains(log.String(), "expired") {
		t.Errorf("logged was %s", log.String())
	}
}

func TestTokensByTheirForm(t *testing.T) {
	c := withSecret(t)
	c.Rate = 1000
	var log quiet
	c.Log = log.log()
	s := start(t, c, echo)
	good := strings.TrimPrefix(bearer(t, s, nil), "Bearer ")
	part := strings.Split(good, ".")
	s.is("a good one", s.with("Bearer "+good), 200, "")
	s.is("the scheme in capitals", s.with("BEARER "+good), 200, "")
	flip := func(text string) string {
		if text[0] == 'A' {
			return "B" + text[1:]
		}
		return "A" + text[1:]
	}
	last := func(text string) string { // the same bytes, spelled with other padding bits
		const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
		i := strings.IndexByte(letters, text[len(text)-1])
		return text[:len(text)-1] + string(letters[i^1])
	}
	for name, value := range map[string]string{
		"no scheme":                good,
		"another scheme":           "Basic " + good,
		"DPoP":                     "DPoP " + good,
		"only the scheme":          "Bearer",
		"two blanks":               "Bearer  " + good,
		"a comma list":             "Bearer " + good + ", Bearer " + good,
		"quotes":                   `Bearer "` + good + `"`,
		"two parts":                "Bearer " + part[0] + "." + part[1],
		"four parts":               "Bearer " + good + ".x",
		"five parts":               "Bearer " + good + ".x.y",
		"no signature":             "Bearer " + part[0] + "." + part[1] + ".",
		"another signature":        "Bearer " + part[0] + "." + part[1] + "." + flip(part[2]),
		"a signature spelled anew": "Bearer " + part[0] + "." + part[1] + "." + last(part[2]),
		"padding":                  "Bearer " + part[0] + "." + part[1] + "." + part[2] + "=",
		"other claims":             "Bearer " + part[0] + "." + b64([]byte(`{"sub":"root"}`)) + "." + part[2],
		"claims that are none":     "Bearer " + part[0] + "." + b64([]byte(`[]`)) + "." + part[2],
		"nothing":                  "Bearer ..",
		"a huge one":               "Bearer " + part[0] + "." + strings.Repeat("A", 9000) + "." + part[2],
	} {
		s.is(name, s.with(value), 401, "invalid_token")
	}
	s.is("two of them", s.send(request{headers: []string{"Authorization: Bearer " + good, "Authorization: Bearer " + good}}), 401, "invalid_token")
	s.is("one in the URL", s.send(request{path: "/mcp?access_token=" + good}), 401, "unauthorized")
	s.is("one in a cookie", s.send(request{headers: []string{"Cookie: token=" + good}}), 401, "unauthorized")
	s.is("one for the proxy", s.send(request{headers: []string{"Proxy-Authorization: Bearer " + good}}), 401, "unauthorized")
	if !strings.Contains(log.String(), "longer than") {
		t.Error("a huge token was looked into")
	}
	if strings.Contains(log.String(), part[1]) || strings.Contains(log.String(), part[2]) {
		t.Errorf("logged was %s", log.String())
	}
}

// Readers of JSON disagree about which of two members counts.
func TestATokenSaysEverythingOnce(t *testing.T) {
	s := start(t, withSecret(t), echo)
	signed := func(header, body string) string {
		text := b64([]byte(header)) + "." + b64([]byte(body))
		signature, err := jwt.SigningMethodHS256.Sign(text, []byte(secret))
		if err != nil {
			t.Fatal(err)
		}
		return "Bearer " + text + "." + b64(signature)
	}
	rest := fmt.Sprintf(`"iss":%q,"aud":%q,"exp":%d}`, issuer, s.s.Resource(), time.Now().Add(time.Hour).Unix())
	const header = `{"alg":"HS256"}`
	s.is("all once", s.with(signed(header, `{"sub":"alice","act":{"sub":"a"},`+rest)), 200, "")
	for name, token := range map[string]string{
		"two subjects":          signed(header, `{"sub":"alice","sub":"bob",`+rest),
		"one of them escaped":   signed(header, `{"sub":"alice","\u0073ub":"bob",`+rest),
		"two ends":              signed(header, `{"sub":"alice","exp":1,`+rest),
		"two audiences":         signed(header, `{"sub":"alice","aud":"https://other.example",`+rest),
		"two of what is unread": signed(header, `{"sub":"alice","x":1,"x":1,`+rest),
		"two algorithms":        signed(`{"alg":"none","alg":"HS256"}`, `{"sub":"alice",`+rest),
		"a half surrogate":      signed(header, `{"sub":"\ud800",`+rest),
		"another half":          signed(header, `{"sub":"\udfff",`+rest),
		"a byte that is none":   signed(header, "{\"sub\":\"\xff\","+rest),
	} {
		s.is(name, s.with(token), 401, "invalid_token")
	}
}

// Algorithms, headers and keys an attacker would choose (transport contract,
// section 4).
func TestTokensByTheirHeader(t *testing.T) {
	k := keys()
	set := keySet(public(k.rsa, "r", map[string]any{"alg": "RS256", "use": "sig"}), public(k.ec, "e", map[string]any{"key_ops": []string{"verify"}}), public(k.ed, "d", nil),
		public(k.other, "enc", map[string]any{"use": "enc"}), public(k.other, "ps", map[string]any{"alg": "PS256"}), public(k.other, "wrap", map[string]any{"key_ops": []string{"wrapKey"}}))
	c, _ := withKeys(t, set)
	c.Rate = 1000
	s := start(t, c, echo)
	der, err := x509.MarshalPKIXPublicKey(&k.rsa.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	asPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	rs := func(header map[string]any) signing { return signing{jwt.SigningMethodRS256, k.rsa, header} }
	for name, test := range map[string]struct {
		how  signing
		good bool
	}{
		"RS256":                        {rs(map[string]any{"kid": "r"}), true},
		"ES256":                        {signing{jwt.SigningMethodES256, k.ec, map[string]any{"kid": "e"}}, true},
		"EdDSA":                        {signing{jwt.SigningMethodEdDSA, k.ed, map[string]any{"kid": "d"}}, true},
		"no key named, one fits":       {rs(nil), true},
		"the type of access tokens":    {rs(map[string]any{"kid": "r", "typ": "at+jwt"}), true},
		"the same, spelled out":        {rs(map[string]any{"kid": "r", "typ": "application/at+JWT"}), true},
		"no type":                      {rs(map[string]any{"kid": "r", "typ": nil}), true},
		"another type":                 {rs(map[string]any{"kid": "r", "typ": "dpop+jwt"}), false},
		"a type that is a number":      {rs(map[string]any{"kid": "r", "typ": 1}), false},
		"none":                         {signing{jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, map[string]any{"kid": "r"}}, false},
		"None":                         {rs(map[string]any{"kid": "r", "alg": "None"}), false},
		"HS256 by the public key":      {signing{jwt.SigningMethodHS256, asPEM, map[string]any{"kid": "r"}}, false},
		"HS256 by its bytes":           {signing{jwt.SigningMethodHS256, der, map[string]any{"kid": "r"}}, false},
		"HS256 by its modulus":         {signing{jwt.SigningMethodHS256, k.rsa.N.Bytes(), map[string]any{"kid": "r"}}, false},
		"HS256 by the Ed25519 key":     {signing{jwt.SigningMethodHS256, []byte(k.ed.Public().(ed25519.PublicKey)), map[string]any{"kid": "d"}}, false},
		"RS512":                        {signing{jwt.SigningMethodRS512, k.rsa, map[string]any{"kid": "r"}}, false},
		"PS256":                        {signing{jwt.SigningMethodPS256, k.rsa, map[string]any{"kid": "r"}}, false},
		"RS256 said to be ES256":       {rs(map[string]any{"kid": "r", "alg": "ES256"}), false},
		"RS256 that names the EC key":  {rs(map[string]any{"kid": "e"}), false},
		"an unknown key":               {rs(map[string]any{"kid": "x"}), false},
		"an empty name":                {rs(map[string]any{"kid": ""}), false},
		"a name that is a number":      {rs(map[string]any{"kid": 1}), false},
		"a name that is a path":        {rs(map[string]any{"kid": "../../etc/passwd"}), false},
		"another key under the name":   {signing{jwt.SigningMethodRS256, k.other, map[string]any{"kid": "r"}}, false},
		"a key for encryption":         {signing{jwt.SigningMethodRS256, k.other, map[string]any{"kid": "enc"}}, false},
		"a key for another algorithm":  {signing{jwt.SigningMethodRS256, k.other, map[string]any{"kid": "ps"}}, false},
		"a key for another operation":  {signing{jwt.SigningMethodRS256, k.other, map[string]any{"kid": "wrap"}}, false},
		"a key of its own":             {signing{jwt.SigningMethodRS256, k.other, map[string]any{"jwk": public(k.other, "r", nil)}}, false},
		"a key of its own beside ours": {rs(map[string]any{"kid": "r", "jwk": public(k.rsa, "r", nil)}), false},
		"an address of keys":           {rs(map[string]any{"kid": "r", "jku": "https://evil.example/jwks"}), false},
		"an address of certificates":   {rs(map[string]any{"kid": "r", "x5u": "https://evil.example/cert"}), false},
		"certificates":                 {rs(map[string]any{"kid": "r", "x5c": []string{"MIIB"}}), false},
		"an extension it insists on":   {rs(map[string]any{"kid": "r", "crit": []string{"exp"}, "exp": 1}), false},
		"an empty list of them":        {rs(map[string]any{"kid": "r", "crit": []string{}}), false},
		"a body that is not encoded":   {rs(map[string]any{"kid": "r", "b64": false}), false},
		"a compressed body":            {rs(map[string]any{"kid": "r", "zip": "DEF"}), false},
		"such a header in capitals":    {rs(map[string]any{"kid": "r", "JWK": public(k.rsa, "r", nil)}), false},
		"a header nobody need know":    {rs(map[string]any{"kid": "r", "x5t": "abc"}), true},
	} {
		r := s.with("Bearer " + s.token(test.how, nil))
		if test.good {
			s.is(name, r, 200, "")
		} else {
			s.is(name, r, 401, "invalid_token")
		}
	}

	two, _ := withKeys(t, keySet(public(k.rsa, "a", nil), public(k.other, "b", nil)))
	s = start(t, two, echo)
	s.is("no key named, two would fit", s.with("Bearer "+s.token(signing{jwt.SigningMethodRS256, k.rsa, nil}, nil)), 401, "invalid_token")
	s.is("named, it is one", s.with("Bearer "+s.token(signing{jwt.SigningMethodRS256, k.rsa, map[string]any{"kid": "a"}}, nil)), 200, "")

	hs := start(t, withSecret(t), echo)
	for name, how := range map[string]signing{
		"HS512":       {jwt.SigningMethodHS512, []byte(secret), nil},
		"RS256":       {jwt.SigningMethodRS256, k.rsa, nil},
		"another key": {jwt.SigningMethodHS256, []byte(secret + "\n"), nil},
		"no key":      {jwt.SigningMethodHS256, []byte{}, nil},
	} {
		hs.is(name, hs.with("Bearer "+hs.token(how, nil)), 401, "invalid_token")
	}
}

func TestKeySets(t *testing.T) {
	k := keys()
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := public(k.rsa, "r", nil)
	off := public(k.ec, "e", nil)
	off["y"] = off["x"]
	for name, test := range map[string]struct {
		set  string
		want int // keys; 0 for a fault
	}{
		"one of each kind":            {keySet(good, public(k.ec, "e", nil), public(k.ed, "d", nil)), 3},
		"algorithms that fit":         {keySet(public(k.rsa, "r", map[string]any{"alg": "RS256"}), public(k.ec, "e", map[string]any{"alg": "ES256"}), public(k.ed, "d", map[string]any{"alg": "Ed25519"}), public(k.ed, "f", map[string]any{"alg": "EdDSA"})), 4},
		"others are left out":         {keySet(good, public(p384, "p", nil), map[string]any{"kty": "OKP", "crv": "X25519", "x": "AA"}, map[string]any{"kty": "future"}), 1},
		"members nobody knows":        {`{"keys":[` + mustText(good) + `],"more":[1]}`, 1},
		"nothing that fits":           {keySet(public(p384, "p", nil)), 0},
		"no keys":                     {`{"keys":[]}`, 0},
		"no set":                      {`[]`, 0},
		"no JSON":                     {`keys`, 0},
		"half a file":                 {keySet(good)[:100], 0},
		"a private key":               {keySet(public(k.rsa, "r", map[string]any{"d": "AQAB"})), 0},
		"a secret":                    {keySet(good, map[string]any{"kty": "oct", "k": "AQAB"}), 0},
		"a small RSA key":             {keySet(public(k.small, "s", nil)), 0},
		"an exponent of one":          {keySet(public(k.rsa, "r", map[string]any{"e": "AQ"})), 0},
		"an even exponent":            {keySet(public(k.rsa, "r", map[string]any{"e": "BA"})), 0},
		"a huge exponent":             {keySet(public(k.rsa, "r", map[string]any{"e": "AQAAAAAB"})), 0},
		"no exponent":                 {keySet(public(k.rsa, "r", map[string]any{"e": ""})), 0},
		"a modulus that is no number": {keySet(public(k.rsa, "r", map[string]any{"n": "!!"})), 0},
		"a point off the curve":       {keySet(off), 0},
		"a short coordinate":          {keySet(public(k.ec, "e", map[string]any{"x": "AQAB"})), 0},
		"a short Ed25519 key":         {keySet(public(k.ed, "d", map[string]any{"x": "AQAB"})), 0},
		"a name for two keys":         {keySet(good, public(k.other, "r", nil)), 0},
		"a name for two kinds":        {keySet(good, public(k.ec, "r", nil)), 2},
	} {
		got, err := parseKeys([]byte(test.set))
		if len(got) != test.want || (err != nil) != (test.want == 0) {
			t.Errorf("%s: %d keys, %v", name, len(got), err)
		}
	}
}

func mustText(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestKeysAreReadAgainWhenTheirFileChanges(t *testing.T) {
	k := keys()
	now := newClock()
	c, path := withKeys(t, keySet(public(k.ec, "one", nil)))
	var log quiet
	c.Now, c.Log = now.now, log.log()
	s := start(t, c, echo)
	old := func() reply {
		return s.with("Bearer " + s.token(signing{jwt.SigningMethodES256, k.ec, map[string]any{"kid": "one"}}, nil))
	}
	young := func() reply {
		return s.with("Bearer " + s.token(signing{jwt.SigningMethodEdDSA, k.ed, map[string]any{"kid": "two"}}, nil))
	}
	put := func(text string, replace bool) {
		t.Helper()
		to := path
		if replace {
			to = path + ".new"
		}
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if replace {
			if err := os.Rename(to, path); err != nil {
				t.Fatal(err)
			}
		}
		now.add(checkEvery)
	}
	s.is("the first key", old(), 200, "")
	s.is("one that is not there", young(), 401, "invalid_token")
	put(keySet(public(k.ec, "one", nil), public(k.ed, "two", nil)), true)
	s.is("one that was added", young(), 200, "")
	s.is("beside the first", old(), 200, "")
	put(keySet(public(k.ed, "two", nil)), false)
	s.is("the first, taken away", old(), 401, "invalid_token")
	for name, text := range map[string]string{"half a file": keySet(public(k.ec, "one", nil))[:40], "an empty one": "", "one without a key": `{"keys":[]}`, "one with a secret": keySet(map[string]any{"kty": "oct", "k": "AA"})} {
		put(text, true)
		s.is("the key that was read, beside "+name, young(), 200, "")
		s.is("another, beside "+name, old(), 401, "invalid_token")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	now.add(checkEvery)
	s.is("the key that was read, without a file", young(), 200, "")
	faults := strings.Count(log.String(), "cannot be used")
	for range 3 {
		now.add(checkEvery)
		young()
	}
	if again := strings.Count(log.String(), "cannot be used"); faults < 4 || again != faults {
		t.Errorf("faults were told %d times, then %d: %s", faults, again, log.String())
	}
	put(keySet(public(k.ec, "one", nil)), false)
	s.is("the first, back again", old(), 200, "")
	s.is("the second, gone", young(), 401, "invalid_token")
	if err := os.Rename(path, path+".real"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path+".real", path); err != nil {
		t.Fatal(err)
	}
	now.add(checkEvery)
	s.is("beside a link", old(), 200, "")
	if !strings.Contains(log.String(), "symbolic link") {
		t.Errorf("a link was followed: %s", log.String())
	}
}

// Whoever comes while somebody looks at the file is not answered by the keys of
// before: they may be a day old.
func TestNobodyIsServedByKeysThatAreGoneMeanwhile(t *testing.T) {
	k := keys()
	now := newClock()
	_, path := withKeys(t, keySet(public(k.ec, "one", nil)))
	f, err := openKeyFile(path, now.now(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	old := f.keys.Load()
	if err := os.WriteFile(path, []byte(keySet(public(k.ed, "two", nil))), 0o644); err != nil {
		t.Fatal(err)
	}
	if f.current(now.now()) != old {
		t.Fatal("the file was looked at again too early")
	}
	now.add(24 * time.Hour)
	f.mu.Lock() // somebody looks
	got := make(chan *[]key, 1)
	go func() { got <- f.current(now.now()) }()
	select {
	case <-got:
		f.mu.Unlock()
		t.Fatal("served by the key that is gone")
	case <-time.After(50 * time.Millisecond):
	}
	f.mu.Unlock()
	if served := <-got; served == old {
		t.Error("served by the key that is gone")
	}
}

// A fault that went away and comes back is told again.
func TestAFaultOfTheKeyFileThatComesBackIsToldAgain(t *testing.T) {
	now := newClock()
	_, path := withKeys(t, keySet(public(keys().ec, "one", nil)))
	var log quiet
	f, err := openKeyFile(path, now.now(), log.log())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		for _, move := range [][2]string{{path, path + ".away"}, {path + ".away", path}} {
			if err := os.Rename(move[0], move[1]); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				now.add(checkEvery)
				f.current(now.now())
			}
		}
	}
	if told := strings.Count(log.String(), "cannot be used"); told != 3 {
		t.Errorf("told %d times: %s", told, log.String())
	}
}

// A token that was found good is not verified each time, and is good no longer
// for that.
func TestATokenThatWasGoodIsHeldToTheClockAndTheKeys(t *testing.T) {
	k := keys()
	now := newClock()
	c, path := withKeys(t, keySet(public(k.ec, "one", nil)))
	c.Now = now.now
	s := start(t, c, echo)
	of := func(change claims) string {
		return "Bearer " + s.token(signing{jwt.SigningMethodES256, k.ec, map[string]any{"kid": "one"}}, change)
	}
	at := now.now()
	short := of(claims{"exp": at.Add(time.Minute).Unix(), "nbf": at.Add(-time.Minute).Unix()})
	long := of(claims{"sub": "bob"})
	for range 3 {
		s.is("a short one", s.with(short), 200, "")
		if r := s.with(long); r.status != 200 || !strings.Contains(r.body, `"subject":"bob"`) {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
	if n := s.s.verifier.verified.Len(); n != 2 {
		t.Errorf("%d tokens are remembered", n)
	}
	s.is("another signature under it", s.with(short[:len(short)-4]+"AAAA"), 401, "invalid_token")
	now.add(-3 * time.Minute) // sockets would not live in the past
	if who, refusal := s.s.verifier.subject([]string{short}); refusal == nil {
		t.Errorf("before its time it is a token of %s", who)
	}
	now.add(3 * time.Minute)
	s.is("in its time", s.with(short), 200, "")
	now.add(3 * time.Minute)
	s.is("after its time", s.with(short), 401, "invalid_token")
	s.is("the long one", s.with(long), 200, "")
	if err := os.WriteFile(path, []byte(keySet(public(k.other, "one", nil))), 0o644); err != nil {
		t.Fatal(err)
	}
	now.add(checkEvery)
	s.is("the long one under other keys", s.with(long), 401, "invalid_token")
	if err := os.WriteFile(path, []byte(keySet(public(k.other, "one", nil), public(k.ec, "two", nil))), 0o644); err != nil {
		t.Fatal(err)
	}
	now.add(checkEvery)
	s.is("its key under another name", s.with(long), 401, "invalid_token")
}

func FuzzToken(f *testing.F) {
	now := time.Now()
	for _, text := range []string{"", "a.b.c", "eyJhbGciOiJub25lIn0.e30.", "eyJhbGciOiJIUzI1NiJ9.e30.AAAA"} {
		f.Add(text)
	}
	shared := &[]key{{alg: "HS256", public: []byte(secret)}}
	v := newVerifier([]string{"RS256", "ES256", "EdDSA", "HS256"}, nil, func() time.Time { return now }, func(time.Time) *[]key { return shared })
	v.expect(issuer, "x")
	f.Fuzz(func(t *testing.T, token string) {
		if subject, refusal := v.subject([]string{"Bearer " + token}); refusal == nil {
			t.Errorf("%q is a token of %q", token, subject)
		}
	})
}
