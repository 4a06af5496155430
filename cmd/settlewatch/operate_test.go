package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const testIssuer = "https://issuer.example"

// served is the program as an operator runs it: a process of its own.
type served struct {
	t       *testing.T
	process *exec.Cmd
	said    *transcript
	url     string // of the endpoint
	metrics string
}

// serveOperated starts a server and waits until it serves and has given up what it
// does not need.
func serveOperated(t *testing.T, flags ...string) *served {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // ends what would wait forever
	t.Cleanup(cancel)
	s := &served{t: t, said: &transcript{changed: make(chan struct{}, 1)}}
	s.process = exec.CommandContext(ctx, "settlewatch", append([]string{"serve", "--http", "127.0.0.1:0", "--metrics", "localhost:0"}, flags...)...)
	s.process.Stderr = s.said
	s.process.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.process.Process.Kill()
		_ = s.process.Wait()
		if t.Failed() {
			t.Log(s.said.text())
		}
	})
	s.url = "http://" + s.find(`serving MCP over HTTP on (\S+)`) + "/mcp"
	s.metrics = s.find(`metrics: (\S+)`)
	s.find(`(run files are read-only to the process|the process is not restricted)`)
	return s
}

// find waits for words on stderr.
func (s *served) find(pattern string) string {
	s.t.Helper()
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if found := regexp.MustCompile(pattern).FindStringSubmatch(s.said.text()); found != nil {
			return found[1]
		}
	}
	s.t.Fatalf("it did not say %s:\n%s", pattern, s.said.text())
	return ""
}

func (s *served) do(r *http.Request) (int, string) {
	s.t.Helper()
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// check asks check_before_pay with a token.
func (s *served) check(token, counterparty string) (int, string) {
	s.t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"check_before_pay","arguments":{"counterparty":%q,"amount":"0.01"}}}`, counterparty)
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return s.do(r)
}

// scrape is what the metrics say, by name and labels.
func (s *served) scrape() map[string]string {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.metrics, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	status, body := s.do(r)
	if status != http.StatusOK {
		s.t.Fatalf("a scrape is answered with %d: %s", status, body)
	}
	found := map[string]string{}
	for line := range strings.Lines(body) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			found[name] = value
		}
	}
	return found
}

// issuer signs tokens with a key of its own and publishes that key.
type issuer struct {
	key ed25519.PrivateKey
	kid string
}

func newIssuer(t *testing.T, kid string) *issuer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{key, kid}
}

// publish puts the key in a file's place, as a deployment does: by renaming.
func (i *issuer) publish(t *testing.T, file string) {
	t.Helper()
	public, _ := i.key.Public().(ed25519.PublicKey)
	set, err := json.Marshal(map[string]any{"keys": []any{map[string]any{
		"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig", "kid": i.kid, "x": base64.RawURLEncoding.EncodeToString(public),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".new", set, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func (i *issuer) token(t *testing.T, audience string) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{"iss": testIssuer, "aud": audience, "sub": "buyer-7", "exp": time.Now().Add(time.Hour).Unix()})
	token.Header["kid"] = i.kid
	text, err := token.SignedString(i.key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestARestrictedServerOverHTTPIsOperatedAsAnyOther(t *testing.T) {
	root, keys := recorded(t, "02-settle-timeout"), filepath.Join(t.TempDir(), "jwks.json")
	first, second := newIssuer(t, "first"), newIssuer(t, "second")
	first.publish(t, keys)
	s := serveOperated(t, "--dir", root, "--auth-issuer", testIssuer, "--auth-jwks", keys)
	audience := s.find(`tokens of \S+ must name the audience (\S+)`)

	const stranger = "0x1111111111111111111111111111111111111111"
	if status, body := s.check(first.token(t, audience), stranger); status != http.StatusOK || !strings.Contains(body, `"decision":"allow"`) {
		t.Errorf("a check is answered with %d: %s", status, body)
	}
	if status, _ := s.check("", stranger); status != http.StatusUnauthorized {
		t.Errorf("one without a token is answered with %d", status)
	}
	before := s.scrape()
	for name, want := range map[string]string{
		`settlewatch_verdicts_total{decision="allow"}`: "1", `settlewatch_verdict_rules_total{decision="allow",rule="history"}`: "1",
		`settlewatch_http_answers_total{code="",status="200"}`: "1", "settlewatch_index_ready": "1", "settlewatch_log_ready": "1",
		"settlewatch_reviews_pending": "0", "settlewatch_review_oldest_seconds": "0", "settlewatch_faults": "0", "settlewatch_runs": "1", "settlewatch_ingest_lag_bytes": "0",
	} {
		if before[name] != want {
			t.Errorf("%s is %s, want %s", name, before[name], want)
		}
	}
	if !slices.ContainsFunc(keysOf(before), func(name string) bool { return strings.HasSuffix(name, `status="401"}`) }) {
		t.Errorf("the request without a token is not counted: %v", before)
	}

	// A scrape covers what was written before it.
	runs, err := filepath.Glob(filepath.Join(root, "events", "*.ndjson"))
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	appendText(t, runs[0], "no event\n")
	after := s.scrape()
	if after["settlewatch_faults"] != "1" || after["settlewatch_runs_damaged"] != "1" {
		t.Errorf("%s faults in %s runs", after["settlewatch_faults"], after["settlewatch_runs_damaged"])
	}
	// Damage is for a person: the review waits.
	if status, body := s.check(first.token(t, audience), stranger); status != http.StatusOK || !strings.Contains(body, `"decision":"review"`) {
		t.Errorf("a check is answered with %d: %s", status, body)
	}
	if got := s.scrape(); got["settlewatch_reviews_pending"] != "1" || got[`settlewatch_verdict_rules_total{decision="review",rule="damaged_history"}`] != "1" {
		t.Errorf("the review is not counted: %v", got)
	}
	for name := range s.scrape() {
		for _, word := range []string{stranger, "buyer-7", filepath.Base(runs[0]), root} {
			if strings.Contains(name, word) {
				t.Errorf("%s tells of %s", name, word)
			}
		}
	}

	// Keys are read again though the files were closed to the process.
	second.publish(t, keys)
	status := 0
	for until := time.Now().Add(20 * time.Second); status != http.StatusOK && time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		status, _ = s.check(second.token(t, audience), stranger)
	}
	if status != http.StatusOK {
		t.Errorf("the new key is not taken: %d", status)
	}
	if status, _ := s.check(first.token(t, audience), stranger); status != http.StatusUnauthorized {
		t.Errorf("the old key is still taken: %d", status)
	}

	http.DefaultClient.CloseIdleConnections()
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.process.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func keysOf(m map[string]string) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	return names
}

func appendText(t *testing.T, file, text string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestMetricsAreShownOverStdioAsWell(t *testing.T) {
	in, requests := io.Pipe()
	answers, out := io.Pipe()
	said := &transcript{changed: make(chan struct{}, 1)}
	ended := make(chan int, 1)
	go func() {
		ended <- run(t.Context(), []string{"serve", "--dir", recorded(t, "02-settle-timeout"), "--metrics", "127.0.0.1:0"}, in, out, said, system())
		out.Close()
	}()
	fmt.Fprintln(requests, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"check_before_pay","arguments":{"counterparty":"shop.example","amount":"0.01"}}}`)
	if line, err := bufio.NewReader(answers).ReadString('\n'); err != nil || !strings.Contains(line, `"decision":"allow"`) {
		t.Errorf("%v: %s", err, line)
	}
	s := &served{t: t, said: said}
	s.metrics = s.find(`metrics: (\S+)`)
	if got := s.scrape(); got[`settlewatch_verdicts_total{decision="allow"}`] != "1" || got["settlewatch_index_ready"] != "1" {
		t.Errorf("%v", got)
	}
	http.DefaultClient.CloseIdleConnections()
	requests.Close()
	if status := <-ended; status != 0 {
		t.Errorf("exit status %d", status)
	}
	in.Close()
}

// A root that is not there is no reason to show nothing.
func TestMetricsOfAServerWithoutARootSaySo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), ".trace")
	in, requests := io.Pipe()
	said := &transcript{changed: make(chan struct{}, 1)}
	ended := make(chan int, 1)
	go func() {
		ended <- run(t.Context(), []string{"serve", "--dir", dir, "--metrics", "127.0.0.1:0"}, in, io.Discard, said, system())
	}()
	s := &served{t: t, said: said}
	s.metrics = s.find(`metrics: (\S+)`)
	if got := s.scrape(); got["settlewatch_index_ready"] != "0" || got["settlewatch_log_ready"] != "0" || got["settlewatch_events"] != "" {
		t.Errorf("before there is a root: %v", got)
	}
	if err := os.CopyFS(dir, os.DirFS(recorded(t, "02-settle-timeout"))); err != nil {
		t.Fatal(err)
	}
	// The scrape opens it, as any question would.
	if got := s.scrape(); got["settlewatch_index_ready"] != "1" || got["settlewatch_log_ready"] != "1" || got["settlewatch_runs"] != "1" {
		t.Errorf("once there is one: %v", got)
	}
	http.DefaultClient.CloseIdleConnections()
	requests.Close()
	if status := <-ended; status != 0 {
		t.Errorf("exit status %d", status)
	}
}

func TestARootThatIsRecordedAnewIsReadByARestrictedServer(t *testing.T) {
	root := recorded(t, "02-settle-timeout")
	s := serveOperated(t, "--dir", root, "--guard-dir", filepath.Join(t.TempDir(), "guard"), "--http-insecure-no-auth")
	if status, body := s.check("", "shop.example"); status != http.StatusOK || !strings.Contains(body, `"decision":"allow"`) {
		t.Fatalf("a check is answered with %d: %s", status, body)
	}
	if err := os.Rename(root, root+".old"); err != nil {
		t.Fatal(err)
	}
	if status, body := s.check("", "other.example"); status != http.StatusOK || !strings.Contains(body, "not_ready") {
		t.Errorf("a check without a root is answered with %d: %s", status, body)
	}
	if err := os.CopyFS(root, os.DirFS(root+".old")); err != nil {
		t.Fatal(err)
	}
	if status, body := s.check("", "another.example"); status != http.StatusOK || !strings.Contains(body, `"decision":"allow"`) {
		t.Errorf("a check of the new root is answered with %d: %s", status, body)
	}
}

// The unit gives its verifier in the environment.
func TestSettingsInTheEnvironmentReachTheServer(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SETTLEWATCH_AUTH_ISSUER", testIssuer)
	t.Setenv("SETTLEWATCH_AUTH_HMAC_SECRET", secret)
	s := serveOperated(t, "--dir", recorded(t, "02-settle-timeout"))
	s.find(`tokens of (\S+) must name`)
	if status, _ := s.check("", "shop.example"); status != http.StatusUnauthorized {
		t.Errorf("a check without a token is answered with %d", status)
	}
}

func TestMetricsAreRefusedAnywhereButOnLoopback(t *testing.T) {
	root := recorded(t, "02-settle-timeout")
	for _, at := range []string{"0.0.0.0:9464", "[::]:9464", "192.168.1.1:9464", "example.com:9464", ":9464", "9464", "127.0.0.1"} {
		_, errs, status := answer(t, "serve", "--dir", root, "--metrics", at)
		if status != 2 || !strings.Contains(errs, "E_USAGE") || !strings.Contains(errs, "loopback") {
			t.Errorf("%s: exit status %d, %s", at, status, errs)
		}
	}
}

func TestMetricsThatCannotBeShownEndTheServer(t *testing.T) {
	root := recorded(t, "02-settle-timeout")
	s := serveOperated(t, "--dir", root, "--http-insecure-no-auth")
	taken := strings.TrimSuffix(strings.TrimPrefix(s.metrics, "http://"), "/metrics")
	if _, errs, status := answer(t, "serve", "--dir", root, "--metrics", taken); status != 2 || !strings.Contains(errs, "show metrics at "+taken) {
		t.Errorf("exit status %d, %s", status, errs)
	}
}
