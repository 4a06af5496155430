package mcp

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
	web "github.com/settlewatch/settlewatch/mcp/transport"
)

// The tests of the peer's HTTP surface by their numbers (transport contract, section 2),
// as section 4 has them here.
func TestContract9To20TheSurfaceOverHTTP(t *testing.T) {
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	e := listen(t, &fake{}, Options{Guard: &fakeGuard{}}, func(c *web.Config) { c.MaxBody = 2000 })
	root := strings.TrimSuffix(e.url, "/mcp")
	for _, test := range []struct {
		name, method, path, body string
		header, value            string
		status                   int
		want                     string
	}{
		{"9: health answers", http.MethodGet, "/health", "", "", "", 200, `{"status":"ok","transport":"http"}`},
		{"10: initialize names the server", http.MethodPost, "/mcp",
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, "", "", 200, `"name":"settlewatch"`},
		{"12: a foreign Host is refused", http.MethodPost, "/mcp", list, "Host", "evil.example", 403, `{"error":"host_not_allowed"}`},
		{"13: GET on the endpoint is not allowed", http.MethodGet, "/mcp", "", "", "", 405, `{"error":"method_not_allowed"}`},
		{"14: another path is not found", http.MethodPost, "/other", list, "", "", 404, `{"error":"not_found"}`},
		{"15: a foreign Origin is refused", http.MethodPost, "/mcp", list, "Origin", "https://evil.example", 403, `{"error":"origin_not_allowed"}`},
		{"16: what is no JSON by its type is refused", http.MethodPost, "/mcp", list, "Content-Type", "text/plain", 415, `{"error":"unsupported_media_type"}`},
		{"17: a body over the cap is refused", http.MethodPost, "/mcp", list + strings.Repeat(" ", 2000), "", "", 413, `{"error":"payload_too_large"`},
		{"17: and the server still answers", http.MethodPost, "/mcp", list, "", "", 200, `"check_before_pay"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			status, text := surface(t, test.method, root+test.path, test.body, test.header, test.value)
			if status != test.status || !strings.Contains(text, test.want) {
				t.Errorf("status %d, %.300s; want %d, %s", status, text, test.status, test.want)
			}
		})
	}
	t.Run("11: every tool is listed without a session", func(t *testing.T) {
		_, text := surface(t, http.MethodPost, e.url, list, "", "")
		var answer struct {
			Result struct {
				Tools []struct{ Name string } `json:"tools"`
			} `json:"result"`
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Result.Tools) != 8 {
			t.Errorf("%v: %d tools", err, len(answer.Result.Tools))
		}
	})
	t.Run("18: of four requests at a limit of three the last is refused", func(t *testing.T) {
		limited := listen(t, &fake{}, Options{Guard: &fakeGuard{}}, func(c *web.Config) { c.Rate = 3 })
		for i, want := range []int{200, 200, 200, 429} {
			if status, text := surface(t, http.MethodPost, limited.url, list, "", ""); status != want {
				t.Errorf("request %d: status %d, %.100s", i+1, status, text)
			}
		}
	})
	for name, bind := range map[string]struct {
		addr    string
		remote  bool
		refused bool
	}{
		"19: a wildcard bind needs to be allowed":            {"0.0.0.0:0", true, true},
		"20: a private address is not the guard's to refuse": {"10.255.255.254:0", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := web.Defaults()
			c.Addr, c.AllowRemote, c.Now = bind.addr, bind.remote, time.Now
			c.Auth = web.Auth{Issuer: "https://issuer.example", Secret: secretFile(t)}
			s, err := web.Listen(t.Context(), c)
			if err == nil {
				t.Fatalf("%s was bound: %v", bind.addr, s.Addr())
			}
			// This machine need not have the address; that it is refused is another fault.
			var coded *errcode.Error
			usage := errors.As(err, &coded) && strings.Contains(coded.Hint+coded.Message, "--http-allow")
			if usage != bind.refused {
				t.Errorf("%v", err)
			}
		})
	}
}

// surface sends one request and gives the whole answer.
func surface(t *testing.T, method, url, body, header, value string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	switch header {
	case "":
	case "Host":
		r.Host = value
	default:
		r.Header.Set(header, value)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}
