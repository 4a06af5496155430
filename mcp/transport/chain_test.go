package transport

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestOnlyTheRightHostIsServed(t *testing.T) {
	s := start(t, open(), echo)
	port := s.addr[strings.LastIndexByte(s.addr, ':'):]
	for host, status := range map[string]int{
		"127.0.0.1" + port: 200, "localhost" + port: 200, "LOCALHOST" + port: 200, "[::1]" + port: 200, "[0:0:0::1]" + port: 200,
		"localhost." + port: 403, "127.0.0.1": 403, "localhost": 403, "127.0.0.1:1": 403, "127.0.0.2" + port: 403, "0.0.0.0" + port: 403, "0.0.0.00" + port: 403, "[::]" + port: 403,
		"[::ffff:127.0.0.1]" + port: 403, "[::ffff:7f00:1]" + port: 403, "2130706433" + port: 403, "0x7f000001" + port: 403, "0x7f.0.0.1" + port: 403, "127.1" + port: 403, "0177.0.0.1" + port: 403,
		"evil.example": 403, "evil.example" + port: 403, "127.0.0.1.evil.example" + port: 403, "localhost.evil.example" + port: 403, "null": 403, "evil.example#127.0.0.1" + port: 403,
		"127.0.0.1" + port + "@evil.example": 403, "user@127.0.0.1" + port: 403,
	} {
		r := s.send(request{host: host})
		code := "host_not_allowed"
		if status == 200 {
			code = ""
		} else if r.status == 400 {
			// Some are no Host at all to the library.
			status, code = 400, "bad_request"
		}
		s.is(host, r, status, code)
		if status == 403 {
			// The same rule holds for what needs no token.
			s.is("health at "+host, s.send(request{method: "GET", path: "/health", host: host}), 403, "host_not_allowed")
		}
	}
	s.is("no Host", s.raw("POST /mcp HTTP/1.1\r\nContent-Length: 0\r\n\r\n", "POST"), 400, "bad_request")
	s.is("no Host in HTTP/1.0", s.raw("POST /mcp HTTP/1.0\r\nContent-Length: 0\r\n\r\n", "POST"), 403, "host_not_allowed")
	s.is("two Hosts", s.raw("POST /mcp HTTP/1.1\r\nHost: "+s.addr+"\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n", "POST"), 400, "bad_request")
	s.is("a whole URL with another host", s.send(request{path: "http://evil.example/mcp"}), 403, "host_not_allowed")
	s.is("a forwarded host", s.send(request{host: "evil.example", headers: []string{"X-Forwarded-Host: " + s.addr}}), 403, "host_not_allowed")
}

func TestNamedHostsReplaceTheBoundOnes(t *testing.T) {
	c := open()
	c.Hosts = []string{"Pay.Example", "10.0.0.1:99"}
	s := start(t, c, echo)
	s.is("the named host", s.send(request{host: "pay.example:80"}), 200, "")
	s.is("the other one", s.send(request{host: "10.0.0.1:99"}), 200, "")
	s.is("the bound address", s.send(request{}), 403, "host_not_allowed")
	s.is("another port", s.send(request{host: "pay.example:81"}), 403, "host_not_allowed")
}

func TestThePublicHostIsServedToATrustedProxyOnly(t *testing.T) {
	c := open()
	c.PublicURL = "https://pay.example/tools/mcp"
	s := start(t, c, echo)
	s.is("the public host from anybody", s.send(request{host: "pay.example"}), 403, "host_not_allowed")
	s.is("the bound address", s.send(request{}), 200, "")
	c.TrustedProxies = []string{"127.0.0.1/32"}
	s = start(t, c, echo)
	for host, status := range map[string]int{"pay.example": 200, "PAY.example:443": 200, "pay.example:80": 403, "pay.example:8443": 403, "evil.example": 403, "pay.example.": 403} {
		if r := s.send(request{host: host, headers: []string{"X-Forwarded-For: 203.0.113.9"}}); r.status != status {
			t.Errorf("%s from the proxy: %d", host, r.status)
		}
	}
}

func TestOnlyAllowedOriginsAreServed(t *testing.T) {
	c := open()
	none := start(t, c, echo)
	c.Origins = []string{"https://app.example", "http://localhost:6274"}
	some := start(t, c, echo)
	for _, origin := range []string{"null", "https://evil.example", "http://" + none.addr, "http://" + some.addr, "https://app.example.", "http://app.example", "https://app.example:8443", "https://app.example.evil.example",
		"https://app.example/", "https://app.example https://evil.example", "*", "", "https://APP.example@evil.example", "file://"} {
		for _, s := range []*started{none, some} {
			r := s.send(request{headers: []string{"Origin: " + origin}})
			s.is("the origin "+origin, r, 403, "origin_not_allowed")
			if r.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%q may read the answer", origin)
			}
		}
	}
	some.is("health for a stranger", some.send(request{method: "GET", path: "/health", headers: []string{"Origin: https://evil.example"}}), 403, "origin_not_allowed")
	none.is("an origin that is not listed", none.send(request{headers: []string{"Origin: https://app.example"}}), 403, "origin_not_allowed")
	some.is("two origins", some.send(request{headers: []string{"Origin: https://app.example", "Origin: https://evil.example"}}), 403, "origin_not_allowed")
	for _, origin := range []string{"https://app.example", "http://localhost:6274", "HTTPS://APP.EXAMPLE:443"} {
		r := some.send(request{headers: []string{"Origin: " + origin}})
		some.is(origin, r, 200, "")
		if r.Header.Get("Access-Control-Allow-Origin") != origin || r.Header.Get("Vary") != "Origin" || r.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: %v", origin, r.Header)
		}
		// A refusal can be read too, or the page cannot know that it needs a token.
		if r := some.send(request{headers: []string{"Origin: " + origin, "Content-Encoding: gzip"}}); r.status != 415 || r.Header.Get("Access-Control-Allow-Origin") != origin {
			t.Errorf("%s: %d %v", origin, r.status, r.Header)
		}
	}
	if r := some.send(request{}); r.Header.Get("Vary") != "Origin" || r.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("without an origin: %v", r.Header)
	}

	// Also one that asks too often can read for how long to wait.
	c.Rate = 1
	few := start(t, c, echo)
	few.send(request{})
	for _, origin := range []string{"https://app.example", "https://evil.example"} {
		r := few.send(request{headers: []string{"Origin: " + origin}})
		few.is(origin, r, 429, "rate_limited")
		if got, allowed := r.Header.Get("Access-Control-Allow-Origin"), origin == "https://app.example"; (got == origin) != allowed || (got != "") != allowed {
			t.Errorf("%s asks too often: %v", origin, r.Header)
		}
	}

	ask := request{method: "OPTIONS", headers: []string{"Origin: https://app.example", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization, content-type, mcp-protocol-version"}}
	r := some.send(ask)
	some.is("a preflight", r, 204, "")
	for name, want := range map[string]string{"Access-Control-Allow-Origin": "https://app.example", "Access-Control-Allow-Methods": "POST", "Access-Control-Max-Age": "600", "Access-Control-Allow-Private-Network": ""} {
		if r.Header.Get(name) != want {
			t.Errorf("a preflight: %s is %q", name, r.Header.Get(name))
		}
	}
	for _, name := range []string{"Authorization", "Content-Type", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"} {
		if !strings.Contains(r.Header.Get("Access-Control-Allow-Headers"), name) {
			t.Errorf("a preflight does not allow %s", name)
		}
	}
	ask.headers = append(ask.headers, "Access-Control-Request-Private-Network: true")
	if r := some.send(ask); r.Header.Get("Access-Control-Allow-Private-Network") != "true" {
		t.Errorf("a page of the internet may not ask a private network: %v", r.Header)
	}
	ask.headers[0] = "Origin: https://evil.example"
	some.is("a preflight of a stranger", some.send(ask), 403, "origin_not_allowed")
	some.is("OPTIONS that is no preflight", some.send(request{method: "OPTIONS", headers: []string{"Origin: https://app.example"}}), 405, "method_not_allowed")
	none.is("OPTIONS without an origin", none.send(request{method: "OPTIONS", headers: []string{"Access-Control-Request-Method: POST"}}), 405, "method_not_allowed")
}

func TestMethodsAndPaths(t *testing.T) {
	s := start(t, open(), echo)
	for _, path := range []string{"/", "/mcp", "/mcp/"} {
		s.is(path, s.send(request{path: path}), 200, "")
		for _, method := range []string{"GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECTED", "post"} {
			r := s.send(request{method: method, path: path})
			want := "method_not_allowed"
			if method == "HEAD" {
				want = ""
			}
			s.is(method+" "+path, r, 405, want)
			if r.Header.Get("Allow") != "POST" {
				t.Errorf("%s %s: Allow is %q", method, path, r.Header.Get("Allow"))
			}
		}
	}
	for _, path := range []string{"/mcp2", "/MCP", "//mcp", "/mcp//", "/mcp/x", "/./mcp", "/health/", "/healthz", "/metrics", "/%2fmcp", "/mcp%2f", "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource", "/..//mcp"} {
		s.is(path, s.send(request{path: path}), 404, "not_found")
	}
	s.is("OPTIONS *", s.send(request{method: "OPTIONS", path: "*"}), 404, "not_found")
	s.is("a query", s.send(request{path: "/mcp?access_token=x"}), 200, "")

	r := s.send(request{method: "GET", path: "/health"})
	if r.status != 200 || r.body != `{"status":"ok","transport":"http"}` || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("health: %d %s", r.status, r.body)
	}
	if r := s.send(request{method: "HEAD", path: "/health"}); r.status != 200 || r.body != "" || r.ContentLength != 34 {
		t.Errorf("HEAD of health: %d %q %d", r.status, r.body, r.ContentLength)
	}
	if r := s.send(request{method: "POST", path: "/health"}); r.status != 405 || r.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST of health: %d %v", r.status, r.Header)
	}
}

// What a browser may send with no question beforehand is no JSON.
func TestMarketContract68TheMediaTypeIsParsed(t *testing.T) {
	s := start(t, open(), echo)
	for kind, status := range map[string]int{
		"application/json": 200, "Application/JSON": 200, "application/json; charset=utf-8": 200, `application/json;charset="UTF-8"`: 200, "application/json; x=y": 200, " application/json ": 200,
		"text/plain; application/json": 415, "text/plain": 415, "text/plain;charset=application/json": 415, "application/json, text/plain": 415, "application/jsonp": 415, "application/json-rpc": 415,
		"application/x-www-form-urlencoded": 415, "multipart/form-data; boundary=application/json": 415, "application/json; charset=utf-16": 415, "application/json;;": 415, "application/json; charset": 415,
		"application/*": 415, "*/*": 415, "json": 415, "application / json": 415, "application/json\x0b": 415,
	} {
		code := ""
		if status == 415 {
			code = "unsupported_media_type"
		}
		r := s.send(request{bare: true, body: ping, headers: []string{"Content-Length: " + fmt.Sprint(len(ping)), "Content-Type: " + kind}})
		if r.status == 400 {
			continue // no header to the library
		}
		s.is(kind, r, status, code)
	}
	s.is("none", s.send(request{bare: true, body: ping, headers: []string{"Content-Length: " + fmt.Sprint(len(ping))}}), 415, "unsupported_media_type")
	s.is("two", s.send(request{headers: []string{"Content-Type: text/plain"}}), 415, "unsupported_media_type")
	s.is("gzip", s.send(request{headers: []string{"Content-Encoding: gzip"}}), 415, "unsupported_media_type")
	s.is("gzip in a second line", s.send(request{headers: []string{"Content-Encoding: identity", "Content-Encoding: gzip"}}), 415, "unsupported_media_type")
	s.is("no coding", s.send(request{headers: []string{"Content-Encoding: identity"}}), 200, "")
}

func TestBodies(t *testing.T) {
	c := open()
	c.MaxBody = 1000
	s := start(t, c, echo)
	fill := func(n int) string { return ping[:len(ping)-1] + strings.Repeat(" ", n-len(ping)) + "}" }
	chunked := func(body string) request {
		half := len(body) / 2
		return request{bare: true, headers: []string{"Content-Type: application/json", "Transfer-Encoding: chunked"},
			body: fmt.Sprintf("%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", half, body[:half], len(body)-half, body[half:])}
	}
	s.is("a body of the cap", s.send(request{body: fill(1000)}), 200, "")
	s.is("a body of the cap in chunks", s.send(chunked(fill(1000))), 200, "")
	for name, r := range map[string]request{
		"a byte over the cap":         {body: fill(1001)},
		"a byte over it in chunks":    chunked(fill(1001)),
		"far over it in chunks":       chunked(fill(200000)),
		"announced, and never sent":   {bare: true, headers: []string{"Content-Type: application/json", "Content-Length: 1001"}},
		"announced with a wait":       {bare: true, headers: []string{"Content-Type: application/json", "Content-Length: 99999999999", "Expect: 100-continue"}},
		"announced without measure":   {bare: true, headers: []string{"Content-Type: application/json", "Content-Length: 9223372036854775807"}},
		"bytes over it that are none": {body: strings.Repeat("\x00", 1001)},
	} {
		got := s.send(r)
		s.is(name, got, 413, "payload_too_large")
		if !got.Close {
			t.Errorf("%s: the connection stays open", name)
		}
	}
	s.is("the next one", s.send(request{}), 200, "") // transport contract, test 17

	for name, test := range map[string]struct {
		body string
		code int
	}{
		"nothing":                   {" ", -32700},
		"half an object":            {`{"jsonrpc":`, -32700},
		"two messages":              {ping + ping, -32700},
		"a comment":                 {ping + "//", -32700},
		"single quotes":             {`{'id':1}`, -32700},
		"a byte order mark":         {"\xef\xbb\xbf" + ping, -32700},
		"bytes that are no UTF-8":   {`{"id":"` + "\xff" + `"}`, -32700},
		"UTF-16":                    {"{\x00}\x00", -32700},
		"gzip without saying so":    {"\x1f\x8b\x08\x00", -32700},
		"levels without end":        {strings.Repeat("[", 900), -32700},
		"levels with an end":        {strings.Repeat("[", 450) + strings.Repeat("]", 450), -32600},
		"an array":                  {"[" + ping + "]", -32600},
		"an empty array":            {"[]", -32600},
		"a text":                    {`"ping"`, -32600},
		"null":                      {"null", -32600},
		"a repeated id":             {`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, -32600},
		"a repeated method":         {`{"jsonrpc":"2.0","id":1,"method":"ping","method":"x"}`, -32600},
		"one of them escaped":       {`{"jsonrpc":"2.0","id":1,"method":"ping","\u006dethod":"x"}`, -32600},
		"params in another writing": {`{"jsonrpc":"2.0","id":1,"method":"ping","PARAMS":{}}`, -32600},
	} {
		r := s.send(request{body: test.body})
		if r.status != 400 || !strings.HasPrefix(r.body, fmt.Sprintf(`{"jsonrpc":"2.0","id":null,"error":{"code":%d,`, test.code)) {
			t.Errorf("%s: %d %s", name, r.status, r.body)
		}
	}
	s.is("a cancellation", s.send(request{body: `{"jsonrpc":"2.0","method":"notifications\/cancelled","params":{"requestId":1}}`}), 202, "")
	if r := s.send(request{body: `{"jsonrpc":"2.0","method":"notifications/cancelled"}`}); r.body != "" {
		t.Errorf("a cancellation reached the handler: %s", r.body)
	}
	if r := s.send(request{body: `{"jsonrpc":"2.0","method":"notifications/initialized"}`}); r.status != 200 || !strings.Contains(r.body, "initialized") {
		t.Errorf("another notification: %d %s", r.status, r.body)
	}
	if r := s.send(request{body: strings.Repeat("{\"a\":", 190) + "1" + strings.Repeat("}", 20)}); r.status != 400 {
		t.Errorf("objects in objects: %d", r.status)
	}
}

// What the library answers by itself looks like every other answer.
func TestWhatIsNoProperHTTPIsAnsweredInTheSameForm(t *testing.T) {
	s := start(t, open(), echo)
	s.is("a flood of headers", s.send(request{headers: func() (all []string) {
		for i := range 2000 {
			all = append(all, fmt.Sprintf("X-Flood-%d: %s", i, strings.Repeat("x", 40)))
		}
		return all
	}()}), 431, "headers_too_large")
	s.is("one long header", s.send(request{headers: []string{"X-Flood: " + strings.Repeat("x", 64<<10)}}), 431, "headers_too_large")
	s.is("a long path", s.send(request{path: "/" + strings.Repeat("x", 64<<10)}), 431, "headers_too_large")
	s.is("a long path that fits", s.send(request{path: "/" + strings.Repeat("x", 8<<10)}), 404, "not_found")
	for name, text := range map[string]string{
		"no HTTP":                     "hello\r\n\r\n",
		"a header without a name":     "POST /mcp HTTP/1.1\r\nHost: " + s.addr + "\r\n: x\r\n\r\n",
		"a header with a blank":       "POST /mcp HTTP/1.1\r\nHost: " + s.addr + "\r\nContent-Length : 5\r\n\r\n",
		"a length that is none":       "POST /mcp HTTP/1.1\r\nHost: " + s.addr + "\r\nContent-Length: x\r\n\r\n",
		"two lengths":                 "POST /mcp HTTP/1.1\r\nHost: " + s.addr + "\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"a negative length":           "POST /mcp HTTP/1.1\r\nHost: " + s.addr + "\r\nContent-Length: -1\r\n\r\n",
		"TLS":                         "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
		"a path without a slash":      "POST mcp HTTP/1.1\r\nHost: " + s.addr + "\r\n\r\n",
		"a body coded unheard of":     "POST /mcp HTTP/1.1\r\nHost: " + s.addr + "\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"HTTP/2 without an agreement": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"HTTP/3":                      "POST /mcp HTTP/3.0\r\nHost: " + s.addr + "\r\n\r\n",
		"a wish that is none":         "POST /mcp HTTP/1.1\r\nHost: " + s.addr + "\r\nExpect: coffee\r\nContent-Length: 1\r\n\r\n",
	} {
		r := s.raw(text, "POST")
		if r.status < 400 || !strings.HasPrefix(r.body, `{"error":"`) || !r.Close && r.status != 403 {
			t.Errorf("%s: %d %q, closes %v", name, r.status, r.body, r.Close)
		}
	}
	s.is("a broken chunk", s.send(request{bare: true, body: "zz\r\n", headers: []string{"Content-Type: application/json", "Transfer-Encoding: chunked"}}), 400, "bad_request")
}

// Transport contract, section 4: path, Host, client's bucket, Origin, method,
// token, subject's bucket, media type, size, JSON, one message. A request that
// breaks all of them is refused for the first; mended one by one, for the next.
func TestTheOrderOfChecks(t *testing.T) {
	now := newClock()
	c := withSecret(t)
	c.Now, c.Rate, c.Origins, c.MaxBody = now.now, 2, []string{"https://app.example"}, 100
	s := start(t, c, echo)
	good := bearer(t, s, claims{"sub": "alice", "exp": now.now().Add(1000 * time.Hour).Unix()})
	drain := func() {
		now.add(time.Hour)
		for s.send(request{path: "/"}).status != 429 {
		}
	}
	drain()
	bad := request{method: "DELETE", path: "/nowhere", host: "evil.example", body: strings.Repeat("[", 200), bare: true, headers: []string{"Origin: null", "Content-Length: 200"}}
	expect := func(what string, status int, code string) {
		t.Helper()
		s.is(what, s.send(bad), status, code)
	}
	expect("all wrong", 404, "not_found")
	bad.path = "/mcp"
	expect("all but the path", 403, "host_not_allowed")
	bad.host = ""
	expect("and the host", 429, "rate_limited")
	now.add(time.Hour)
	expect("and the rate", 403, "origin_not_allowed")
	bad.headers[0] = "X: y"
	expect("and the origin", 405, "method_not_allowed")
	now.add(time.Hour)
	bad.method = "POST"
	expect("and the method", 401, "unauthorized")
	bad.headers = append(bad.headers, "Authorization: "+good)
	expect("and the token", 415, "unsupported_media_type")
	now.add(30 * time.Second) // a token for the client, and two for the subject
	bad.headers[0] = "Content-Type: application/json"
	expect("and the media type", 413, "payload_too_large")
	now.add(time.Hour)
	bad.body = strings.Repeat("[", 50)
	bad.headers[1] = "Content-Length: 50"
	if r := s.send(bad); r.status != 400 || !strings.Contains(r.body, "-32700") {
		t.Errorf("and the size: %d %s", r.status, r.body)
	}
	bad.body = strings.Repeat("[", 25) + strings.Repeat("]", 25)
	if r := s.send(bad); r.status != 400 || !strings.Contains(r.body, "-32600") {
		t.Errorf("and the JSON: %d %s", r.status, r.body)
	}
	// The subject's bucket stands after the token and before the media type: it
	// is empty now where another subject's is not, and the client's neither.
	c.TrustedProxies = []string{"127.0.0.1"}
	s = start(t, c, echo)
	subject := func(who, from, kind string) reply {
		return s.send(request{bare: true, body: ping, headers: []string{"Content-Length: " + fmt.Sprint(len(ping)), "Content-Type: " + kind, "X-Forwarded-For: " + from, "Authorization: " + bearer(t, s, claims{"sub": who})}})
	}
	for i := range 2 {
		s.is("alice", subject("alice", fmt.Sprintf("192.0.2.%d", i), "application/json"), 200, "")
	}
	r := subject("alice", "192.0.2.9", "text/plain")
	s.is("alice once more", r, 429, "rate_limited")
	if r.Header.Get("Retry-After") != "30" {
		t.Errorf("Retry-After is %q", r.Header.Get("Retry-After"))
	}
	s.is("bob from there", subject("bob", "192.0.2.9", "text/plain"), 415, "unsupported_media_type")
	now.add(30 * time.Second)
	s.is("alice later", subject("alice", "192.0.2.9", "application/json"), 200, "")
}

func TestAPanicIsAnAnswerAndTheServerLivesOn(t *testing.T) {
	var log quiet
	c := open()
	c.Log = log.log()
	late := false
	s := start(t, c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if late {
			w.WriteHeader(http.StatusOK)
			_, _ = w.Write([]byte(`{"half":`))
		}
		panic("/secret/path")
	}))
	r := s.send(request{})
	s.is("a panic", r, 500, "internal_error")
	if !strings.Contains(log.String(), "/secret/path") {
		t.Errorf("logged was %s", log.String())
	}
	late = true
	c2 := s.dial()
	defer func() { _ = c2.Close() }()
	if text := c2.ask(request{}.text(s.addr)); strings.HasSuffix(text, "\r\n0\r\n\r\n") {
		t.Errorf("half an answer looks whole: %q", text)
	}
	s.is("the next one", s.send(request{path: "/health", method: "GET"}), 200, "")
}
