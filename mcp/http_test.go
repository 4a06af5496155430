package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/ingest"
	web "github.com/settlewatch/settlewatch/mcp/transport"
)

// endpoint is a handler behind the real transport, on a real socket.
type endpoint struct {
	t    testing.TB
	url  string
	stop func() // stops it and waits
}

const testSecret = "0123456789abcdef0123456789abcdef"

// listen serves traces and a guard; change may change the transport.
func listen(t testing.TB, traces Traces, o Options, change func(*web.Config)) *endpoint {
	t.Helper()
	c := web.Defaults()
	c.Addr, c.NoAuth, c.Now, c.Rate, c.MaxConnsPerClient = "127.0.0.1:0", true, time.Now, 1<<20, 64
	if change != nil {
		change(&c)
	}
	s, err := web.Listen(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h, err := NewHTTPHandler(ctx, traces, o)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, h) }()
	e := &endpoint{t: t, url: "http://" + s.Addr().String() + "/mcp", stop: sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})}
	t.Cleanup(e.stop)
	return e
}

// post sends one message; headers are names and values in turn.
func (e *endpoint) post(body string, headers ...string) (int, message) {
	e.t.Helper()
	status, text := e.raw(e.t.Context(), body, headers...)
	var m message
	if len(text) > 0 {
		if err := json.Unmarshal(text, &m); err != nil {
			e.t.Fatalf("%d %s: %v", status, text, err)
		}
	}
	return status, m
}

func (e *endpoint) raw(ctx context.Context, body string, headers ...string) (int, []byte) {
	e.t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		if ctx.Err() == nil {
			e.t.Error(err)
		}
		return 0, nil
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		e.t.Error(err)
	}
	if kind := answer.Header.Get("Content-Type"); len(text) > 0 && kind != "application/json" {
		e.t.Errorf("an answer of type %q: %s", kind, text)
	}
	if id := answer.Header.Get("Mcp-Session-Id"); id != "" {
		e.t.Errorf("a session was made: %s", id)
	}
	return answer.StatusCode, text
}

// modern are the headers of a request of the version 2026-07-28.
func modern(method, name string) []string {
	h := []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method}
	if name != "" {
		h = append(h, "Mcp-Name", name)
	}
	return h
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

func TestBothErasAreServedOverHTTP(t *testing.T) {
	e := listen(t, lists(&ingest.Page{RunsScanned: 3}, nil), Options{Version: "1.2.3", Guard: &fakeGuard{}}, nil)

	status, m := e.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	if status != 200 || !strings.Contains(string(m.Result), `"protocolVersion":"2025-11-25"`) || !strings.Contains(string(m.Result), `"version":"1.2.3"`) {
		t.Errorf("initialize: %d %s", status, m.Result)
	}
	if strings.Contains(string(m.Result), `"listChanged":true`) || strings.Contains(string(m.Result), `"subscribe":true`) {
		t.Errorf("what needs a stream is offered: %s", m.Result)
	}
	if status, m := e.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "MCP-Protocol-Version", "2025-11-25"); status != 202 || m.ID != nil {
		t.Errorf("initialized: %d", status)
	}
	// Without a session and without initialize.
	status, m = e.post(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, "MCP-Protocol-Version", "2025-11-25")
	if status != 200 || !strings.Contains(string(m.Result), `"check_before_pay"`) || !strings.Contains(string(m.Result), `"maximum":25`) || strings.Contains(string(m.Result), `"maximum":55`) {
		t.Errorf("tools/list: %d %s", status, m.Result)
	}
	status, m = e.post(call(3, "list_operations", "{}"))
	if status != 200 || !strings.Contains(string(m.Result), `"runs_scanned":3`) {
		t.Errorf("tools/call: %d %s", status, m.Result)
	}

	status, m = e.post(`{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{`+modernMeta+`}}`, modern("server/discover", "")...)
	if status != 200 || !strings.Contains(string(m.Result), `"2026-07-28"`) || !strings.Contains(string(m.Result), `"2025-11-25"`) {
		t.Errorf("server/discover: %d %s", status, m.Result)
	}
	body := `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"list_operations","arguments":{},` + modernMeta + `}}`
	status, m = e.post(body, modern("tools/call", "list_operations")...)
	if status != 200 || !strings.Contains(string(m.Result), `"runs_scanned":3`) {
		t.Errorf("modern tools/call: %d %s %v", status, m.Result, m.Error)
	}
	for name, test := range map[string]struct {
		headers []string
		status  int
		code    int
	}{
		"another tool in the header":   {modern("tools/call", "explain"), 400, -32020},
		"another method in the header": {modern("tools/list", "list_operations"), 400, -32020},
		"no method in the header":      {[]string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Name", "list_operations"}, 400, -32020},
		"no tool in the header":        {modern("tools/call", ""), 400, -32020},
		"no version in the header":     {[]string{"Mcp-Method", "tools/call", "Mcp-Name", "list_operations"}, 400, -32020},
		"another version":              {[]string{"MCP-Protocol-Version", "2099-01-01", "Mcp-Method", "tools/call", "Mcp-Name", "list_operations"}, 400, -32020},
	} {
		status, m := e.post(body, test.headers...)
		if status != test.status || m.Error == nil || m.Error.Code != test.code || string(m.ID) != "4" {
			t.Errorf("%s: %d %+v", name, status, m)
		}
	}
	// What stands between may read another value than the one that is checked.
	for _, name := range []string{"MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		for i, h := 0, modern("tools/call", "list_operations"); i < len(h); i += 2 {
			r.Header.Set(h[i], h[i+1])
		}
		r.Header.Add(name, "explain")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), `"id":4,"error":{"code":-32600`) {
			t.Errorf("%s twice: %d %s", name, answer.StatusCode, text)
		}
	}
	if status, m := e.post(strings.Replace(body, "tools/call", "no/such", 1), modern("no/such", "")...); status != 404 || m.Error == nil || m.Error.Code != -32601 {
		t.Errorf("an unknown method: %d %+v", status, m)
	}
	if status, m := e.post(`{"jsonrpc":"2.0","id":5,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+modernMeta+`}}`, modern("subscriptions/listen", "")...); status != 404 || m.Error == nil {
		t.Errorf("a stream: %d %+v", status, m)
	}
	for _, body := range []string{`{"jsonrpc":"2.0","id":6,"method":"tools/list"}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`} {
		if status, m := e.post(body, "MCP-Protocol-Version", "1999-01-01"); status != 400 || m.Error == nil || strings.Contains(m.Error.Message, "1999") {
			t.Errorf("an unknown version: %d %+v", status, m)
		}
	}
	if status, m := e.post(`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"trace://a"}}`); status != 200 || m.Error == nil || m.Error.Code != -32002 || !strings.Contains(m.Error.Message, "E_INPUT") {
		t.Errorf("no resource: %d %+v", status, m)
	}
}

func TestArgumentsAreHeldToTheSameRulesOverHTTP(t *testing.T) {
	e := listen(t, &fake{}, Options{Guard: &fakeGuard{}}, nil)
	s := serviceOf(t, &fake{})
	for name, test := range map[string]struct{ tool, arguments string }{
		"an unknown member":      {"list_operations", `{"limits":1}`},
		"a repeated key":         {"list_operations", `{"limit":1,"limit":2}`},
		"another letter case":    {"list_operations", `{"Limit":1}`},
		"a key escaped to two":   {"list_operations", `{"limit":1,"\u006cimit":2}`},
		"a number for a text":    {"explain", `{"run_id":1,"operation_id":"o"}`},
		"a missing member":       {"explain", `{"run_id":"r"}`},
		"a text that is too big": {"explain", `{"run_id":"` + strings.Repeat("x", 3000) + `","operation_id":"o"}`},
		"a list for an object":   {"explain", `[]`},
		"a number beyond double": {"list_operations", `{"limit":1e999}`},
	} {
		status, m := e.post(call(1, test.tool, test.arguments))
		var got reply
		if err := json.Unmarshal(m.Result, &got); err != nil || status != 200 {
			t.Fatalf("%s: %d %s %v", name, status, m.Result, m.Error)
		}
		want, _ := askOf(t, s, test.tool, test.arguments)
		if !got.IsError || mustText(t, got) != mustText(t, want) {
			t.Errorf("%s: over HTTP %q, on stdio %q", name, mustText(t, got), mustText(t, want))
		}
	}
	// A wait is shorter here.
	if _, m := e.post(call(1, "await_operation", `{"run_id":"r","operation_id":"o","wait_seconds":26}`)); !strings.Contains(string(m.Result), "too large") {
		t.Errorf("a wait of 26 s: %s", m.Result)
	}
}

func mustText(t *testing.T, r reply) string {
	t.Helper()
	if len(r.Content) == 0 {
		t.Fatalf("no content: %+v", r)
	}
	return r.Content[0].Text
}

func TestMarketContract62MessagesThatAreNoneAreRefusedOverHTTP(t *testing.T) {
	ran := false
	traces := &fake{list: func(context.Context, ingest.Query) (*ingest.Page, error) {
		ran = true
		return &ingest.Page{}, nil
	}}
	e := listen(t, traces, Options{}, nil)
	one := call(1, "list_operations", "{}")
	for name, test := range map[string]struct {
		body string
		code int
	}{
		"an array":                     {"[" + one + "]", -32600},
		"an empty array":               {"[]", -32600},
		"two messages":                 {one + one, -32700},
		"half a message":               {one[:len(one)-1], -32700},
		"nothing":                      {"", -32700},
		"a number":                     {"1", -32600},
		"bytes that are no UTF-8":      {strings.Replace(one, "list_operations", "list\xffoperations", 1), -32700},
		"a repeated method":            {strings.Replace(one, `"method"`, `"method":"ping","method"`, 1), -32600},
		"a method in another spelling": {strings.Replace(one, `"method"`, `"Method":"ping","method"`, 1), -32600},
		"a repeated name":              {strings.Replace(one, `"name"`, `"name":"explain","name"`, 1), -32602},
		"params that are a list":       {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}`, -32602},
		"an id that is an object":      {`{"jsonrpc":"2.0","id":{},"method":"tools/list"}`, -32600},
		"an id that is null":           {`{"jsonrpc":"2.0","id":null,"method":"tools/list"}`, -32600},
		"another version":              {`{"jsonrpc":"1.0","id":1,"method":"tools/list"}`, -32600},
		"no method":                    {`{"jsonrpc":"2.0","id":1}`, -32600},
		"a hundred thousand levels":    {strings.Repeat("[", 100000), -32700},
	} {
		status, m := e.post(test.body)
		if status != 400 || m.Error == nil || m.Error.Code != test.code {
			t.Errorf("%s: %d %+v", name, status, m)
		}
	}
	if ran {
		t.Error("a tool has run")
	}
	if status, _ := e.post(`{"jsonrpc":"2.0","id":1,"result":{}}`); status != 202 {
		t.Errorf("an answer to nothing: %d", status)
	}
}

func TestIDsComeBackAsTheyWereWrittenOverHTTP(t *testing.T) {
	e := listen(t, &fake{}, Options{}, nil)
	for _, id := range []string{`1`, `0`, `-1`, `1.50`, `12345678901234567890`, `"x"`, `"\u0061\n"`, `"1"`, `1e3`} {
		for _, method := range []string{"ping", "no/such", "tools/list"} {
			_, m := e.post(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"}`)
			if string(m.ID) != id {
				t.Errorf("%s: the id %s came back as %s", method, id, m.ID)
			}
		}
	}
}

// Without sessions the library knows requests by their ids alone: a
// cancellation by one client would end another's request with the same id.
func TestNoClientCancelsAnothersCall(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	traces := &fake{await: func(ctx context.Context, ref ingest.Ref, _ string, _ time.Duration) (*ingest.Await, error) {
		close(begun)
		select {
		case <-release:
			return &ingest.Await{Ref: ref, Recorded: true, Completeness: "full", Settlement: "settled"}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	e := listen(t, traces, Options{}, nil)
	answered := make(chan message, 1)
	go func() {
		_, m := e.post(call(77, "await_operation", `{"run_id":"r","operation_id":"o","wait_seconds":20}`))
		answered <- m
	}()
	<-begun
	for _, body := range []string{
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}`,
		`{"jsonrpc":"2.0","method":"notifications\/c\u0061ncelled","params":{"requestId":77}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77,` + modernMeta + `}}`,
	} {
		if status, m := e.post(body); status != 202 {
			t.Errorf("%s: %d %+v", body, status, m)
		}
	}
	// What only looks like a cancellation is refused, or no cancellation.
	for _, body := range []string{
		`{"jsonrpc":"2.0","Method":"notifications/cancelled","params":{"requestId":77}}`,
		`{"jsonrpc":"2.0","id":null,"method":"notifications/cancelled","params":{"requestId":77}}`,
		`{"jsonrpc":"2.0","id":77,"method":"notifications/cancelled","params":{"requestId":77}}`,
		`[{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}]`,
	} {
		e.post(body)
	}
	// Another request of the same id neither ends the first nor waits for it.
	if _, m := e.post(`{"jsonrpc":"2.0","id":77,"method":"ping"}`); m.Error != nil || string(m.ID) != "77" {
		t.Errorf("a second request of the id: %+v", m)
	}
	select {
	case m := <-answered:
		t.Fatalf("the call was ended: %+v", m)
	default:
	}
	close(release)
	if m := <-answered; m.Error != nil || !strings.Contains(string(m.Result), `"settlement":"settled"`) {
		t.Errorf("the call was answered by %+v", m)
	}
}

func TestWhoHangsUpEndsItsOwnCall(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan error, 1)
	traces := &fake{await: func(ctx context.Context, _ ingest.Ref, _ string, _ time.Duration) (*ingest.Await, error) {
		close(begun)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}}
	e := listen(t, traces, Options{}, nil)
	ctx, hangUp := context.WithCancel(t.Context())
	go e.raw(ctx, call(1, "await_operation", `{"run_id":"r","operation_id":"o","wait_seconds":20}`))
	<-begun
	hangUp()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("the call goes on without anybody to answer")
	}
}

// Who hangs up is no defect of the server's, and gets no empty success.
func TestWhoHangsUpIsAnsweredByNothing(t *testing.T) {
	var log bytes.Buffer // read when the server has ended
	begun := make(chan struct{})
	traces := &fake{await: func(ctx context.Context, _ ingest.Ref, _ string, _ time.Duration) (*ingest.Await, error) {
		close(begun)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	e := listen(t, traces, Options{Log: slog.New(slog.NewTextHandler(&log, nil))}, nil)
	addr := strings.TrimSuffix(strings.TrimPrefix(e.url, "http://"), "/mcp")
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	body := call(1, "await_operation", `{"run_id":"r","operation_id":"o","wait_seconds":20}`)
	fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", addr, len(body), body)
	<-begun
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(c); len(got) != 0 {
		t.Errorf("it was answered by %q", got)
	}
	e.stop()
	if strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("logged was %s", log.String())
	}
}

// What one client's call reports, or is logged for it, reaches nobody else: there
// is no stream to read, and a progress token is no address.
func TestNothingOfOneClientsCallReachesAnother(t *testing.T) {
	release := make(chan struct{})
	var calls sync.WaitGroup
	traces := &fake{await: func(ctx context.Context, ref ingest.Ref, _ string, _ time.Duration) (*ingest.Await, error) {
		<-release
		return &ingest.Await{Ref: ref, Recorded: true, Completeness: "full", Settlement: "settled"}, nil
	}}
	e := listen(t, traces, Options{}, nil)
	const clients = 20
	for i := range clients {
		calls.Go(func() {
			run := fmt.Sprintf("run-of-%02d", i)
			status, text := e.raw(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"await_operation","arguments":{"run_id":"`+run+`","operation_id":"o","wait_seconds":20},"_meta":{"progressToken":1}}}`)
			if status != 200 || bytes.Count(text, []byte("run-of-")) != bytes.Count(text, []byte(run)) || !bytes.Contains(text, []byte(run)) || !bytes.HasPrefix(text, []byte(`{"jsonrpc":"2.0","id":1,"result"`)) {
				t.Errorf("client %d was answered by %d %s", i, status, text)
			}
		})
	}
	for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodHead, http.MethodPut, http.MethodOptions} {
		r, err := http.NewRequestWithContext(t.Context(), method, e.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusMethodNotAllowed || answer.Header.Get("Allow") != "POST" {
			t.Errorf("%s: %d, Allow %q", method, answer.StatusCode, answer.Header.Get("Allow"))
		}
	}
	close(release)
	calls.Wait()
}

func TestAtShutdownAWaitOverHTTPSaysHowThingsStand(t *testing.T) {
	begun := make(chan struct{}, 2)
	traces := &fake{await: func(ctx context.Context, ref ingest.Ref, _ string, wait time.Duration) (*ingest.Await, error) {
		if wait > 0 {
			begun <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return &ingest.Await{Ref: ref, Recorded: true, TimedOut: true, Completeness: "partial", Settlement: "pending"}, nil
	}}
	e := listen(t, traces, Options{}, nil)
	answered := make(chan message, 1)
	go func() {
		_, m := e.post(call(1, "await_operation", `{"run_id":"r","operation_id":"o","wait_seconds":20}`))
		answered <- m
	}()
	<-begun
	start := time.Now()
	e.stop()
	if m := <-answered; !strings.Contains(string(m.Result), `"settlement":"pending"`) {
		t.Errorf("the wait was answered by %+v", m)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the shutdown took %s", took)
	}
}

func TestAPanicOverHTTPIsAnErrorAndTheServerLivesOn(t *testing.T) {
	e := listen(t, &fake{list: func(context.Context, ingest.Query) (*ingest.Page, error) { panic("/secret/path") }}, Options{}, nil)
	for range 2 {
		status, m := e.post(call(1, "list_operations", "{}"))
		if status != 200 || m.Error == nil || !strings.Contains(m.Error.Message, "E_INTERNAL") || strings.Contains(m.Error.Message, "secret") {
			t.Errorf("%d %+v", status, m)
		}
	}
}

// token is signed by the secret of the test server.
func token(t testing.TB, e *endpoint, claims jwt.MapClaims) string {
	t.Helper()
	all := jwt.MapClaims{"iss": "https://issuer.example", "aud": e.url, "exp": time.Now().Add(time.Hour).Unix()}
	for name, value := range claims {
		all[name] = value
	}
	text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, all).SignedString([]byte(testSecret))
	if err != nil {
		t.Fatal(err)
	}
	return "Bearer " + text
}

func secretFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(testSecret), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheSubjectOfATokenIsWhoAsks(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	holds := map[string]string{}
	g := &fakeGuard{
		check: func(_ context.Context, r guard.Request) (*guard.Verdict, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, r.Actor)
			holds["hold-of-"+r.Actor] = r.Actor
			return &guard.Verdict{Decision: guard.Allow}, nil
		},
		release: func(_ context.Context, id, actor string) error {
			mu.Lock()
			defer mu.Unlock()
			if holds[id] != actor {
				return errors.New("not yours")
			}
			return nil
		},
	}
	var log bytes.Buffer
	e := listen(t, &fake{}, Options{Guard: g, Log: slog.New(slog.NewTextHandler(&log, nil))}, func(c *web.Config) {
		c.NoAuth, c.Auth = false, web.Auth{Issuer: "https://issuer.example", Secret: secretFile(t)}
	})
	alice := token(t, e, jwt.MapClaims{"sub": "alice"})
	service := token(t, e, jwt.MapClaims{"client_id": "alice"})
	for _, who := range []string{alice, service} {
		if status, m := e.post(call(1, "check_before_pay", `{"counterparty":"a","amount":"1"}`), "Authorization", who); status != 200 || m.Error != nil {
			t.Errorf("%d %+v", status, m)
		}
	}
	if len(asked) != 2 || asked[0] != "alice" || asked[1] != "client_id:alice" {
		t.Errorf("asked by %q", asked)
	}
	release := func(id, who string) bool {
		_, m := e.post(call(1, "release_hold", `{"hold_id":"`+id+`"}`), "Authorization", who)
		return strings.Contains(string(m.Result), `"released":true`)
	}
	if release("hold-of-alice", service) || !release("hold-of-alice", alice) {
		t.Error("a hold is not its subject's")
	}
	// What goes wrong for somebody says for whom, and never what they hold.
	e.stop()
	if text := log.String(); !strings.Contains(text, "actor=client_id:alice") || strings.Contains(text, "eyJ") {
		t.Errorf("logged was %s", text)
	}
}
