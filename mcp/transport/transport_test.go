package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a time of the test's own. It begins at the real one, since socket
// deadlines are taken from it.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Now()} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// open is a configuration that serves anybody on loopback.
func open() Config {
	c := Defaults()
	c.Addr, c.NoAuth, c.Now = "127.0.0.1:0", true, time.Now
	return c
}

// started is a server on a real socket.
type started struct {
	t    testing.TB
	s    *Server
	addr string
	stop func()
}

// echo answers with what reached it.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"subject": Subject(r.Context()), "body": string(body), "authorization": r.Header.Get("Authorization")})
})

func start(t testing.TB, c Config, h http.Handler) *started {
	t.Helper()
	s, err := Listen(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, h) }()
	st := &started{t: t, s: s, addr: s.Addr().String()}
	st.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serving ended with %v", err)
		}
	})
	t.Cleanup(st.stop)
	return st
}

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// request is what a client writes, byte for byte.
type request struct {
	method, path, host, body string
	headers                  []string // lines
	bare                     bool     // no headers of our own but Host
}

func (r request) text(addr string) string {
	if r.method == "" {
		r.method = "POST"
	}
	if r.path == "" {
		r.path = "/mcp"
	}
	if r.host == "" {
		r.host = addr
	}
	lines := []string{r.method + " " + r.path + " HTTP/1.1", "Host: " + r.host}
	if !r.bare {
		if r.body == "" && r.method == "POST" {
			r.body = ping
		}
		if r.body != "" {
			lines = append(lines, "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(r.body)))
		}
	}
	return strings.Join(append(lines, r.headers...), "\r\n") + "\r\n\r\n" + r.body
}

// reply is an answer and its body.
type reply struct {
	*http.Response
	status int
	body   string
}

// send opens a connection, writes a request and reads the answer.
func (s *started) send(r request) reply {
	s.t.Helper()
	return s.raw(r.text(s.addr), r.method)
}

func (s *started) raw(text, method string) reply {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		s.t.Fatal(err)
	}
	return s.read(bufio.NewReader(c), method)
}

func (s *started) read(from *bufio.Reader, method string) reply {
	s.t.Helper()
	answer, err := http.ReadResponse(from, &http.Request{Method: method})
	if err != nil {
		s.t.Fatalf("read the answer: %v", err)
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatalf("read the body of the answer: %v", err)
	}
	_ = answer.Body.Close()
	if got := answer.Header.Values("Cache-Control"); len(got) != 1 || got[0] != "no-store" {
		s.t.Errorf("%d %s: Cache-Control is %q", answer.StatusCode, body, got)
	}
	if got := answer.Header.Get("X-Content-Type-Options"); got != "nosniff" {
		s.t.Errorf("%d %s: X-Content-Type-Options is %q", answer.StatusCode, body, got)
	}
	return reply{answer, answer.StatusCode, string(body)}
}

// is reports a reply that has another status or code; a code of "" is the
// handler's own answer.
func (s *started) is(what string, r reply, status int, code string) {
	s.t.Helper()
	if r.status != status || code != "" && r.body != `{"error":"`+code+`"}` {
		s.t.Errorf("%s: %d %s, want %d %s", what, r.status, r.body, status, code)
	}
}

// quiet is a log nobody reads, records what was written.
type quiet struct {
	mu   sync.Mutex
	text strings.Builder
}

func (q *quiet) Write(b []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.text.Write(b)
}

func (q *quiet) String() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.text.String()
}

func (q *quiet) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(q, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
