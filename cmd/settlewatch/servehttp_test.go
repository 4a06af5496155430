package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/spf13/pflag"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/mcp/transport"
)

const sharedSecret = "a secret of more than 32 bytes, for tests"

// secretFile is a file of sharedSecret as one is made.
func secretFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(sharedSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// tokenOf is a token for an agent.
func tokenOf(t *testing.T, audience, subject string) string {
	t.Helper()
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{
		"iss": testIssuer, "aud": []string{audience}, "sub": subject, "exp": time.Now().Add(time.Hour).Unix(), "scope": "payments",
	}).SignedString([]byte(sharedSecret))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// call calls a tool and returns its structured content, or the text of a
// refusal.
func (s *served) call(token, tool, arguments string) (content map[string]any, refused string) {
	s.t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, tool, arguments)
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	status, text := s.do(r)
	var got struct {
		Result struct {
			Content           []struct{ Text string }
			StructuredContent map[string]any
			IsError           bool
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != http.StatusOK || len(got.Result.Content) == 0 {
		s.t.Fatalf("%s: %d %s", tool, status, text)
	}
	if got.Result.IsError {
		return nil, got.Result.Content[0].Text
	}
	return got.Result.StructuredContent, ""
}

// Two agents of one server see the same records, reviews say who asked, and a
// hold is its owner's.
func TestTwoAgentsOfOneServerAreToldApart(t *testing.T) {
	root := recorded(t, "02-settle-timeout")
	s := serveOperated(t, "--dir", root, "--auth-issuer", testIssuer, "--auth-hmac-secret", secretFile(t), "--auth-scope", "payments")
	audience := s.find(`tokens of \S+ must name the audience (\S+)`)
	alice, bob := tokenOf(t, audience, "alice"), tokenOf(t, audience, "bob@example")

	one, _ := s.call(alice, "list_operations", "{}")
	other, _ := s.call(bob, "list_operations", "{}")
	rows, _ := one["operations"].([]any)
	if len(rows) != 15 || mustJSON(one["operations"]) != mustJSON(other["operations"]) {
		t.Errorf("one sees\n%s\nthe other\n%s", mustJSON(one), mustJSON(other))
	}

	reviews := map[string]string{}
	for who, token := range map[string]string{"alice": alice, "bob@example": bob} {
		v, refused := s.call(token, "check_before_pay", fmt.Sprintf(`{"counterparty":"0x%040x","amount":"1000"}`, len(who)))
		id, _ := v["review_id"].(string)
		if v["decision"] != "review" || id == "" {
			t.Fatalf("%s is answered by %v %s", who, v, refused)
		}
		reviews[id] = who
	}
	printed, errs, status := answer(t, "review", "list", "--json", "--dir", root)
	var list struct {
		Reviews []struct {
			ID string `json:"review_id"`
			By string `json:"asked_by"`
		}
	}
	if err := json.Unmarshal([]byte(printed), &list); err != nil || status != 0 || len(list.Reviews) != 2 {
		t.Fatalf("%d %s %s", status, printed, errs)
	}
	for _, r := range list.Reviews {
		if r.By != reviews[r.ID] {
			t.Errorf("review %s was asked for by %q, it says %q", r.ID, reviews[r.ID], r.By)
		}
		// Whoever knows of a review may wait for it, and reads who asked.
		if got, _ := s.call(bob, "get_review_status", fmt.Sprintf(`{"review_id":%q}`, r.ID)); got["asked_by"] != r.By {
			t.Errorf("review %s is shown as %v", r.ID, got)
		}
	}

	v, refused := s.call(alice, "check_before_pay", `{"counterparty":"0x2222222222222222222222222222222222222222","amount":"0.01","hold":true}`)
	hold, _ := v["hold"].(map[string]any)
	id, _ := hold["hold_id"].(string)
	if id == "" {
		t.Fatalf("no hold: %v %s", v, refused)
	}
	release := fmt.Sprintf(`{"hold_id":%q}`, id)
	if got, refused := s.call(bob, "release_hold", release); !strings.HasPrefix(refused, "E_HOLD_NOT_FOUND") {
		t.Errorf("somebody else releases it: %v %s", got, refused)
	}
	if got, refused := s.call(alice, "release_hold", release); got["released"] != true {
		t.Errorf("its owner does not: %s", refused)
	}

	log, err := os.ReadFile(filepath.Join(root, "guard", "decisions.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	caused := map[string]int{}
	for line := range strings.Lines(string(log)) {
		var l struct{ Actor, Type string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		caused[l.Actor]++
		if l.Actor == "" && strings.Contains("review_opened held released", l.Type) {
			t.Errorf("nobody caused %s", line)
		}
	}
	if caused["alice"] < 3 || caused["bob@example"] < 1 {
		t.Errorf("lines by actor: %v", caused)
	}
	if strings.Contains(s.said.text(), "eyJ") || strings.Contains(string(log), "eyJ") {
		t.Error("a token was written down")
	}
	http.DefaultClient.CloseIdleConnections()
}

// A stop lets calls in flight end: one that waits says how things stand.
func TestAStoppedServerAnswersWhatItHasRead(t *testing.T) {
	root := recorded(t, "02-settle-timeout")
	s := serveOperated(t, "--dir", root, "--http-insecure-no-auth", "--http-timeout", "idle=20s")
	addr := strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/mcp")
	page, _ := s.call("", "list_operations", `{"limit":1}`)
	rows, _ := page["operations"].([]any)
	run := rows[0].(map[string]any)["run_id"]
	http.DefaultClient.CloseIdleConnections()

	idle, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	busy, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"await_operation","arguments":{"run_id":%q,"operation_id":"not-yet","wait_seconds":25}}}`, run)
	fmt.Fprintf(busy, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", addr, len(body), body)
	// It is in flight once a later request has been answered.
	for range 3 {
		s.call("", "list_operations", `{"limit":1}`)
	}
	http.DefaultClient.CloseIdleConnections()
	began := time.Now()
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = busy.SetReadDeadline(time.Now().Add(20 * time.Second))
	got, err := http.ReadResponse(bufio.NewReader(busy), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(got.Body)
	_ = got.Body.Close()
	if got.StatusCode != http.StatusOK || !strings.Contains(string(text), `"recorded":false`) || !strings.HasPrefix(string(text), `{"jsonrpc":"2.0","id":"w","result"`) {
		t.Errorf("the call in flight is answered by %d %s", got.StatusCode, text)
	}
	if err := s.process.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("it took %s to end", took)
	}
}

// A server goes on when whoever read its stderr has ended.
func TestAServerNobodyListensToGoesOn(t *testing.T) {
	root := recorded(t, "02-settle-timeout")
	p := exec.CommandContext(t.Context(), "settlewatch", "serve", "--http", "127.0.0.1:0", "--dir", root, "--http-insecure-no-auth")
	p.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	said, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() })
	addr := ""
	for lines := bufio.NewScanner(said); addr == "" && lines.Scan(); {
		_, addr, _ = strings.Cut(lines.Text(), "serving MCP over HTTP on ")
	}
	_ = said.Close()
	// What it says of the root, it says to nobody.
	s := &served{t: t, url: "http://" + addr + "/mcp"}
	for range 2 {
		if page, refused := s.call("", "list_operations", `{"limit":1}`); refused != "" || page["operations"] == nil {
			t.Fatalf("%v %s", page, refused)
		}
		time.Sleep(100 * time.Millisecond)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// Exit status 2, the reason on stderr, and nothing listens (transport contract,
// section 4).
func TestWhatCannotBeServedOverHTTPIsRefusedAtTheStart(t *testing.T) {
	root := recorded(t, "02-settle-timeout")
	secret := secretFile(t)
	auth := "--auth-issuer " + testIssuer + " --auth-hmac-secret " + secret
	for _, test := range []struct{ args, want string }{
		{"--http 0.0.0.0:0 " + auth, "refusing to bind 0.0.0.0"}, // transport contract, test 19
		{"--http 0.0.0.0:0 --http-allow-remote " + auth, "refusing to bind 0.0.0.0"},
		{"--http 0.0.0.0:0 --http-allow-public " + auth, "refusing to bind 0.0.0.0"},
		{"--http [::]:0 " + auth, "refusing to bind ::"},
		{"--http [::ffff:0.0.0.0]:0 " + auth, "refusing to bind 0.0.0.0"},
		{"--http 192.168.77.77:0 " + auth, "refusing to bind 192.168.77.77"},
		{"--http 0.0.0.00:0 " + auth, "neither an IP address nor localhost"},
		{"--http :8124 " + auth, "neither an IP address nor localhost"},
		{"--http 8124 " + auth, "not HOST:PORT"},
		{"--http 127.0.0.1:0", "without verifying tokens"},
		{"--http 127.0.0.1:0 --toolset guard", "without verifying tokens"},
		{"--http 192.168.77.77:0 --http-allow-remote --http-insecure-no-auth", "no loopback address"},
		{"--http 127.0.0.1:0 --http-insecure-no-auth " + auth, "--http-insecure-no-auth"},
		{"--http 127.0.0.1:0 --auth-issuer " + testIssuer + " --auth-jwks " + root, "use --auth-jwks"},
		{"--http 127.0.0.1:0 --auth-issuer " + testIssuer + " --auth-jwks " + secret, "it is not a JWK set"},
		{"--http 127.0.0.1:0 --auth-issuer " + testIssuer + " --auth-hmac-secret " + root + "/events", "use --auth-hmac-secret"},
		{"--http 127.0.0.1:0 --http-insecure-no-auth --http-rate 0", "--http-rate takes 1 to"},
		{"--http 127.0.0.1:0 --http-insecure-no-auth --http-rate many", "--http-rate takes a whole number"},
		{"--http 127.0.0.1:0 --http-insecure-no-auth --http-max-body 1e6", "--http-max-body"},
		{"--http 127.0.0.1:0 --http-insecure-no-auth --http-allowed-host *", "--http-allowed-host cannot take"},
		{"--http 127.0.0.1:0 --http-insecure-no-auth --http-allowed-origin *", "--http-allowed-origin cannot take"},
		{"--http 127.0.0.1:0 --http-insecure-no-auth --http-timeout body=0s", "--http-timeout takes times of more than 0"},
		{"--http 127.0.0.1:0 --http-insecure-no-auth --http-timeout soon", "--http-timeout has no deadline"},
		{"--http 127.0.0.1:0 --http-insecure-no-auth --toolset bogus", "there is no toolset"},
		{"--http 127.0.0.1:0 --toolset market", "no instance is named"},
		{"--http-rate 5", "--http-rate goes with --http"},
		{"--http-insecure-no-auth", "--http-insecure-no-auth goes with --http"},
		{"--http=", "--http is blank"},
	} {
		out, errs, status := answer(t, append([]string{"serve", "--dir", root}, strings.Fields(test.args)...)...)
		if status != 2 || out != "" || !strings.Contains(errs, test.want) {
			t.Errorf("%s: exit status %d, %q, %s", test.args, status, out, errs)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "guard")); err == nil {
		t.Error("a server that was refused has opened the root")
	}
}

// settings reads flags and an environment as serve does.
func settings(t *testing.T, env map[string]string, args ...string) (bool, transport.Config, error) {
	t.Helper()
	a := &app{stderr: io.Discard, env: environment{getenv: func(name string) string { return env[name] }, now: time.Now}}
	var o serveOptions
	root, serve := pflag.NewFlagSet("settlewatch", pflag.ContinueOnError), pflag.NewFlagSet("serve", pflag.ContinueOnError)
	o.flags(serve)
	o.flags(root)
	if err := serve.Parse(args); err != nil {
		t.Fatal(err)
	}
	over, err := a.overHTTP(&o)
	return over, o.http.config, err
}

func TestSettingsStandInTheEnvironmentToo(t *testing.T) {
	type env = map[string]string
	const on = "MORPHIT_MCP_TRANSPORT"
	check := func(name string, e env, args string, want func(transport.Config) bool) {
		t.Helper()
		over, c, err := settings(t, e, strings.Fields(args)...)
		if err != nil || !over || !want(c) {
			t.Errorf("%s: %v %v %+v", name, over, err, c)
		}
	}
	check("HTTP by the other server's names", env{on: "HTTP"}, "", func(c transport.Config) bool { return c.Addr == "127.0.0.1:8124" })
	check("where", env{on: "http", "MORPHIT_MCP_HTTP_HOST": "::1", "MORPHIT_MCP_HTTP_PORT": "9"}, "", func(c transport.Config) bool { return c.Addr == "[::1]:9" })
	check("all of them", env{on: "http", "MORPHIT_MCP_ALLOWED_HOSTS": "a.example, b.example:81", "MORPHIT_MCP_ALLOWED_ORIGINS": "https://a.example", "MORPHIT_MCP_RATE_LIMIT_PER_MIN": "7",
		"MORPHIT_MCP_MAX_BODY_BYTES": "1000", "MORPHIT_MCP_MAX_CONNECTIONS": "9", "MORPHIT_MCP_ALLOW_PUBLIC_BIND": "1"}, "", func(c transport.Config) bool {
		return fmt.Sprintf("%v %v %v %v %v %v", c.Hosts, c.Origins, c.Rate, c.MaxBody, c.MaxConns, c.AllowPublic) == "[a.example b.example:81] [https://a.example] 7 1000 9 true"
	})
	check("our own", env{"SETTLEWATCH_HTTP": "localhost:1", "SETTLEWATCH_HTTP_ALLOW_REMOTE": "true", "SETTLEWATCH_PUBLIC_URL": "https://a.example/mcp", "SETTLEWATCH_AUTH_ISSUER": "https://i.example",
		"SETTLEWATCH_AUTH_JWKS": "keys", "SETTLEWATCH_AUTH_SCOPE": "a,b", "SETTLEWATCH_HTTP_TRUSTED_PROXY": "10.0.0.0/8", "SETTLEWATCH_HTTP_TIMEOUT": "body=1s,idle=2s", "SETTLEWATCH_HTTP_MAX_CONNS_PER_CLIENT": "3"}, "", func(c transport.Config) bool {
		return fmt.Sprintf("%v %v %v %v %v %v %v", c.Addr, c.AllowRemote, c.PublicURL, c.Auth, c.TrustedProxies, c.Timeouts.String(), c.MaxConnsPerClient) ==
			"localhost:1 true https://a.example/mcp {https://i.example keys  [a b]} [10.0.0.0/8] header=5s,body=1s,write=30s,idle=2s 3"
	})
	check("a flag and the same in the environment", env{"SETTLEWATCH_HTTP_RATE": "7", "MORPHIT_MCP_RATE_LIMIT_PER_MIN": " 7 ", on: "stdio"}, "--http 127.0.0.1:1 --http-rate 7", func(c transport.Config) bool { return c.Rate == 7 })
	check("a flag and the same list", env{"MORPHIT_MCP_ALLOWED_HOSTS": "a,b"}, "--http 127.0.0.1:1 --http-allowed-host a --http-allowed-host b", func(c transport.Config) bool { return len(c.Hosts) == 2 })
	check("a flag and the same address", env{on: "http", "MORPHIT_MCP_HTTP_PORT": "9"}, "--http 127.0.0.1:9", func(c transport.Config) bool { return c.Addr == "127.0.0.1:9" })
	check("a flag alone", env{"MORPHIT_MCP_HTTP_PORT": "9"}, "--http 127.0.0.1:1", func(c transport.Config) bool { return c.Addr == "127.0.0.1:1" && c.Rate == 120 })
	check("nothing in a variable is nothing", env{"SETTLEWATCH_HTTP_RATE": "", "MORPHIT_MCP_ALLOWED_ORIGINS": " "}, "--http 127.0.0.1:1", func(c transport.Config) bool { return c.Rate == 120 && c.Origins == nil })
	check("no public address", env{"MORPHIT_MCP_ALLOW_PUBLIC_BIND": "0"}, "--http 127.0.0.1:1", func(c transport.Config) bool { return !c.AllowPublic })

	for name, test := range map[string]struct {
		env  env
		args string
		want string
	}{
		"another rate":              {env{"SETTLEWATCH_HTTP_RATE": "8"}, "--http 127.0.0.1:1 --http-rate 7", "--http-rate and SETTLEWATCH_HTTP_RATE"},
		"another rate in theirs":    {env{"MORPHIT_MCP_RATE_LIMIT_PER_MIN": "8"}, "--http 127.0.0.1:1 --http-rate 7", "MORPHIT_MCP_RATE_LIMIT_PER_MIN"},
		"two rates":                 {env{"SETTLEWATCH_HTTP": "127.0.0.1:1", "SETTLEWATCH_HTTP_RATE": "7", "MORPHIT_MCP_RATE_LIMIT_PER_MIN": "8"}, "", "SETTLEWATCH_HTTP_RATE and MORPHIT_MCP_RATE_LIMIT_PER_MIN"},
		"the default, typed":        {env{"SETTLEWATCH_HTTP_RATE": "8"}, "--http 127.0.0.1:1 --http-rate 120", "differ"},
		"another address":           {env{on: "http"}, "--http 127.0.0.1:1", "MORPHIT_MCP_TRANSPORT=http"},
		"two addresses":             {env{on: "http", "SETTLEWATCH_HTTP": "127.0.0.1:1"}, "", "SETTLEWATCH_HTTP and MORPHIT_MCP_TRANSPORT=http"},
		"another list":              {env{"MORPHIT_MCP_ALLOWED_HOSTS": "a"}, "--http 127.0.0.1:1 --http-allowed-host a --http-allowed-host b", "MORPHIT_MCP_ALLOWED_HOSTS"},
		"yes and no":                {env{"SETTLEWATCH_HTTP_ALLOW_PUBLIC": "false"}, "--http 127.0.0.1:1 --http-allow-public", "SETTLEWATCH_HTTP_ALLOW_PUBLIC"},
		"a word that is none":       {env{on: "htp"}, "", "MORPHIT_MCP_TRANSPORT takes stdio or http"},
		"a rate that is none":       {env{"MORPHIT_MCP_RATE_LIMIT_PER_MIN": "7x"}, "--http 127.0.0.1:1", "MORPHIT_MCP_RATE_LIMIT_PER_MIN cannot take"},
		"a yes that is none":        {env{"MORPHIT_MCP_ALLOW_PUBLIC_BIND": "maybe"}, "--http 127.0.0.1:1", "MORPHIT_MCP_ALLOW_PUBLIC_BIND cannot take"},
		"deadlines that are none":   {env{"SETTLEWATCH_HTTP_TIMEOUT": "soon"}, "--http 127.0.0.1:1", "SETTLEWATCH_HTTP_TIMEOUT cannot take"},
		"a flag without an address": {env{}, "--http-rate 7", "--http-rate goes with --http"},
	} {
		_, _, err := settings(t, test.env, strings.Fields(test.args)...)
		if err == nil || errcode.Of(err).Code != errcode.Usage || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if over, _, err := settings(t, env{"MORPHIT_MCP_HTTP_PORT": "9", "MORPHIT_MCP_RATE_LIMIT_PER_MIN": "junk", "SETTLEWATCH_HTTP_RATE": "7"}); over || err != nil {
		t.Errorf("without an address: %v %v", over, err)
	}
	// A port that is junk is no other port.
	if _, c, err := settings(t, env{on: "http", "MORPHIT_MCP_HTTP_PORT": "18150x"}); err != nil || c.Addr != "127.0.0.1:18150x" {
		t.Errorf("%v %v", c.Addr, err)
	}
}

func TestWhatIsPublicNeedsNoToken(t *testing.T) {
	for names, want := range map[string]bool{"market": true, "market,market": true, "": false, "market,trace": false, "guard": false, "approvals": false, "market,approvals": false, "Market": false} {
		if got := onlyOffers(strings.FieldsFunc(names, func(r rune) bool { return r == ',' })); got != want {
			t.Errorf("%q: %v", names, got)
		}
	}
}
