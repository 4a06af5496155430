package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// wire is one connection to a server.
type wire struct {
	net.Conn
	t    testing.TB
	read *bufio.Reader
}

func (s *started) dial() *wire {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return &wire{c, s.t, bufio.NewReader(c)}
}

// ask writes and reads until the connection ends.
func (c *wire) ask(text string) string {
	_, _ = io.WriteString(c, text)
	all, _ := io.ReadAll(c.read)
	return string(all)
}

// lives is how long the server keeps the connection.
func (c *wire) lives(since time.Time) time.Duration {
	_, _ = io.Copy(io.Discard, c.read)
	return time.Since(since)
}

func TestAClientIsLimitedAndToldForHowLong(t *testing.T) {
	now := newClock()
	c := open()
	c.Rate, c.Now = 3, now.now
	var codes sync.Map
	c.Answered = func(a Answer) { codes.Store(a.Code, a.Status) }
	s := start(t, c, echo)
	for range 3 { // transport contract, test 18
		s.is("within the limit", s.send(request{}), 200, "")
	}
	r := s.send(request{})
	s.is("the fourth", r, 429, "rate_limited")
	if r.Header.Get("Retry-After") != "20" {
		t.Errorf("Retry-After is %q", r.Header.Get("Retry-After"))
	}
	now.add(19 * time.Second)
	if r := s.send(request{}); r.status != 429 || r.Header.Get("Retry-After") != "1" {
		t.Errorf("a second before: %d, Retry-After %q", r.status, r.Header.Get("Retry-After"))
	}
	// Health has a bucket of its own, and a small one.
	for i := range healthBurst {
		s.is(fmt.Sprint("health ", i), s.send(request{method: "GET", path: "/health"}), 200, "")
	}
	s.is("health once more", s.send(request{method: "GET", path: "/health"}), 429, "rate_limited")
	now.add(time.Second)
	s.is("in time", s.send(request{}), 200, "")
	s.is("at once after", s.send(request{}), 429, "rate_limited")
	s.is("health in time", s.send(request{method: "HEAD", path: "/health"}), 200, "")
	now.add(time.Hour) // and no more than a bucket full
	for range 3 {
		s.is("much later", s.send(request{}), 200, "")
	}
	s.is("the fourth", s.send(request{}), 429, "rate_limited")
	now.add(-time.Hour) // a clock that is set back neither stops nor frees anybody
	s.is("an hour before", s.send(request{}), 429, "rate_limited")
	if status, ok := codes.Load("rate_limited"); !ok || status != 429 {
		t.Error("a refusal was not reported")
	}
}

// What is kept of clients does not grow with their number, and neither does the time
// a request takes (market contract, section 6, W11).
func TestMarketContract64AHundredThousandClientsTakeNoMoreRoom(t *testing.T) {
	c := open()
	c.TrustedProxies = []string{"127.0.0.1"}
	s, err := Listen(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	h := s.chain(echo)
	r := httptest.NewRequest(http.MethodDelete, "/mcp", nil)
	r.Host, r.RemoteAddr = s.Addr().String(), "127.0.0.1:1"
	ask := func(n int) {
		r.Header.Set("X-Forwarded-For", netip.AddrFrom4([4]byte{11, byte(n >> 16), byte(n >> 8), byte(n)}).String())
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != 405 {
			t.Fatalf("client %d: %d", n, w.Code)
		}
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for n := range 10_000 {
		ask(n)
	}
	before := heap()
	start := time.Now()
	for n := range 100_000 {
		ask(10_000 + n)
	}
	t.Logf("a request of a new client took %s", time.Since(start)/100_000)
	if grown := int64(heap()) - int64(before); grown > 2<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	if n := h.clients.kept.Len(); n != clientBuckets {
		t.Errorf("%d buckets are kept", n)
	}
	// IPv6 clients are counted by network, or each had buckets without end.
	for n := range c.Rate + 1 {
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("2001:db8::%x", n))
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); (w.Code == 429) != (n == c.Rate) {
			t.Fatalf("address %d of a network: %d", n, w.Code)
		}
	}
}

// One address cannot take all connections (market contract, section 6, W12).
func TestMarketContract65OneAddressCannotTakeAllConnections(t *testing.T) {
	c := open()
	var away atomic.Int64
	c.Answered = func(a Answer) {
		if a.Status == 0 {
			away.Add(1)
		}
	}
	s := start(t, c, echo)
	var idle []*wire
	for range 64 {
		one := s.dial()
		defer func() { _ = one.Close() }()
		idle = append(idle, one)
	}
	for i, one := range idle[c.MaxConnsPerClient:] {
		if _, err := one.read.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d of one address stays: %v", i+c.MaxConnsPerClient, err)
		}
	}
	for i, one := range idle[:c.MaxConnsPerClient] {
		_ = one.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := one.read.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d of one address does not stay: %v", i, err)
		}
	}
	if n := away.Load(); n != 56 {
		t.Errorf("%d connections were turned away", n)
	}
	// Another address is served meanwhile: 127.0.0.2 is loopback too.
	other := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	second, err := other.Dial("tcp", s.addr)
	if err != nil && runtime.GOOS == "linux" {
		t.Fatal(err)
	}
	if err == nil { // not every system has a second one
		defer func() { _ = second.Close() }()
		_, _ = io.WriteString(second, request{}.text(s.addr))
		s.is("another address", s.read(bufio.NewReader(second), "POST"), 200, "")
	}
	// And whose connection ends makes room.
	_ = idle[0].Close()
	for range 100 {
		third := s.dial()
		_, _ = io.WriteString(third, request{}.text(s.addr))
		_, err := third.read.Peek(1)
		_ = third.Close()
		if err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("a connection that ended left no room")
}

func TestConnectionsInAllAreLimitedAndAProxyIsNoClient(t *testing.T) {
	c := open()
	c.MaxConns, c.MaxConnsPerClient, c.TrustedProxies = 12, 2, []string{"127.0.0.1"}
	s := start(t, c, echo)
	stay := 0
	var all []*wire
	for range 20 {
		one := s.dial()
		defer func() { _ = one.Close() }()
		_, _ = io.WriteString(one, request{method: "GET", path: "/nowhere"}.text(s.addr))
		all = append(all, one)
	}
	for _, one := range all {
		if _, err := one.read.Peek(1); err == nil {
			stay++
		}
	}
	if stay != 12 {
		t.Errorf("%d connections of a proxy stay", stay)
	}
}

// Behind a proxy as before one: no client takes all there is.
func TestOneClientOfAProxyCannotTakeAllConnections(t *testing.T) {
	begun, release := make(chan struct{}, 8), make(chan struct{})
	c := open()
	c.MaxConns, c.MaxConnsPerClient, c.TrustedProxies = 8, 3, []string{"127.0.0.1"}
	s := start(t, c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-release
		_, _ = io.WriteString(w, "{}")
	}))
	of := func(client string) request { return request{headers: []string{"X-Forwarded-For: " + client}} }
	var waiting []*wire
	call := func(client string) {
		one := s.dial()
		t.Cleanup(func() { _ = one.Close() })
		_, _ = io.WriteString(one, of(client).text(s.addr))
		waiting = append(waiting, one)
		<-begun
	}
	for range 3 {
		call("192.0.2.1")
	}
	r := s.send(of("192.0.2.1"))
	s.is("the fourth", r, 429, "rate_limited")
	if r.Header.Get("Retry-After") != "1" {
		t.Errorf("Retry-After is %q", r.Header.Get("Retry-After"))
	}
	call("192.0.2.2") // another has room
	close(release)
	for _, one := range waiting {
		s.is("who waited", s.read(one.read, "POST"), 200, "")
	}
	s.is("and the first has again", s.send(of("192.0.2.1")), 200, "")
}

// A body that nobody wants holds up its refusal no longer than a moment.
func TestARefusalDoesNotWaitForItsBody(t *testing.T) {
	c := open()
	c.Timeouts.Body, c.Timeouts.Write = 15*time.Second, 2*time.Second
	s := start(t, c, echo)
	one := s.dial()
	defer func() { _ = one.Close() }()
	began := time.Now()
	_, _ = io.WriteString(one, "POST /mcp HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 5000\r\n\r\n{")
	s.is("half a body", s.read(one.read, "POST"), 403, "host_not_allowed")
	if took := one.lives(began); took > 5*time.Second {
		t.Errorf("it was held for %s", took)
	}
}

// Slow clients are cut when their time is over, and within a second of it
// (transport contract, section 4).
func TestMarketContract65SlowClientsAreCut(t *testing.T) {
	c := open()
	c.Timeouts = Timeouts{Header: 300 * time.Millisecond, Body: 600 * time.Millisecond, Write: 900 * time.Millisecond, Idle: 450 * time.Millisecond}
	c.MaxConnsPerClient = 20
	huge := strings.Repeat("x", 64<<20)
	s := start(t, c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, huge) }))
	drip := func(c *wire, text string) {
		for i := range len(text) {
			if _, err := c.Write([]byte{text[i]}); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	head := "POST /mcp HTTP/1.1\r\nHost: " + s.addr + "\r\nContent-Type: application/json\r\n"
	within := func(name string, from time.Duration, run func(c *wire, since time.Time) time.Duration) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			since := time.Now()
			c := s.dial()
			defer func() { _ = c.Close() }()
			if took := run(c, since); took < from-10*time.Millisecond || took > from+time.Second {
				t.Errorf("it was cut after %s, not %s", took, from)
			}
		})
	}
	within("who says nothing", c.Timeouts.Header, func(c *wire, since time.Time) time.Duration { return c.lives(since) })
	within("a dripped header", c.Timeouts.Header, func(c *wire, since time.Time) time.Duration {
		go drip(c, head+strings.Repeat("X: y\r\n", 100))
		return c.lives(since)
	})
	within("a dripped body", c.Timeouts.Body, func(c *wire, since time.Time) time.Duration {
		_, _ = io.WriteString(c, head+"Content-Length: 5000\r\n\r\n")
		go drip(c, strings.Repeat(" ", 5000))
		answer := s.read(c.read, "POST")
		s.is("a dripped body", answer, 408, "request_timeout")
		return c.lives(since)
	})
	within("dripped chunks", c.Timeouts.Body, func(c *wire, since time.Time) time.Duration {
		_, _ = io.WriteString(c, head+"Transfer-Encoding: chunked\r\n\r\n")
		go drip(c, strings.Repeat("1\r\n \r\n", 1000))
		return c.lives(since)
	})
	within("a dripped trailer", c.Timeouts.Body, func(c *wire, since time.Time) time.Duration {
		_, _ = io.WriteString(c, head+"Transfer-Encoding: chunked\r\n\r\n1\r\n \r\n0\r\n")
		go drip(c, strings.Repeat("X: y\r\n", 1000))
		s.is("a dripped trailer", s.read(c.read, "POST"), 408, "request_timeout")
		return c.lives(since)
	})
	within("a body that stops", c.Timeouts.Body, func(c *wire, since time.Time) time.Duration {
		_, _ = io.WriteString(c, head+"Content-Length: 5000\r\n\r\n{")
		return c.lives(since)
	})
	within("a dripped body nobody wants", c.Timeouts.Body, func(c *wire, since time.Time) time.Duration {
		_, _ = io.WriteString(c, "POST /mcp HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 5000\r\n\r\n")
		go drip(c, strings.Repeat(" ", 5000))
		return c.lives(since)
	})
	within("who asks no more", c.Timeouts.Idle, func(c *wire, _ time.Time) time.Duration {
		since := time.Now()
		_, _ = io.WriteString(c, request{method: "GET", path: "/health"}.text(s.addr))
		s.read(c.read, "GET")
		return c.lives(since)
	})
	within("who does not read", c.Timeouts.Write, func(c *wire, since time.Time) time.Duration {
		_, _ = io.WriteString(c, request{}.text(s.addr))
		// The end shows on the way out: nothing may be read here.
		for {
			if _, err := c.Write([]byte(" ")); err != nil {
				return time.Since(since)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// A call may take longer than reading its request and writing its answer.
func TestTheTimeACallTakesIsNoClientsFault(t *testing.T) {
	c := open()
	c.Timeouts = Timeouts{Header: 200 * time.Millisecond, Body: 200 * time.Millisecond, Write: 300 * time.Millisecond, Idle: time.Second}
	s := start(t, c, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(700 * time.Millisecond):
		case <-r.Context().Done():
			t.Error("the call was cancelled")
		}
		_, _ = io.WriteString(w, "{}")
	}))
	one := s.dial()
	defer func() { _ = one.Close() }()
	for range 2 { // and the connection is good for another
		_, _ = io.WriteString(one, request{}.text(s.addr))
		s.is("a long call", s.read(one.read, "POST"), 200, "")
	}
}

func TestAtTheEndCallsInFlightAreAnswered(t *testing.T) {
	begun, release := make(chan struct{}, 4), make(chan struct{})
	s := start(t, open(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-release
		_, _ = io.WriteString(w, "{}")
	}))
	silent, half, idle := s.dial(), s.dial(), s.dial()
	for _, c := range []*wire{silent, half, idle} {
		defer func() { _ = c.Close() }()
	}
	_, _ = io.WriteString(half, "POST /mcp HT")
	_, _ = io.WriteString(idle, request{method: "GET", path: "/health"}.text(s.addr))
	s.read(idle.read, "GET")
	busy := s.dial()
	defer func() { _ = busy.Close() }()
	_, _ = io.WriteString(busy, request{}.text(s.addr))
	<-begun
	stopped := make(chan struct{})
	go func() { s.stop(); close(stopped) }()
	// Who is not being answered is let go at once.
	for name, c := range map[string]*wire{"silent": silent, "half a request": half, "idle": idle} {
		if took := c.lives(time.Now()); took > 3*time.Second {
			t.Errorf("%s: closed after %s", name, took)
		}
	}
	for range 200 {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			break
		}
		_ = c.Close()
		time.Sleep(10 * time.Millisecond)
	}
	if c, err := net.Dial("tcp", s.addr); err == nil {
		_ = c.Close()
		t.Error("it still accepts")
	}
	select {
	case <-stopped:
		t.Error("it has not waited for a call")
	default:
	}
	close(release)
	r := s.read(busy.read, "POST")
	s.is("the call in flight", r, 200, "")
	<-stopped
}

func TestAnAnswerIsReported(t *testing.T) {
	c := open()
	var mu sync.Mutex
	var got []Answer
	c.Answered = func(a Answer) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, a)
	}
	s := start(t, c, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	s.send(request{})
	s.send(request{path: "/nowhere"})
	s.send(request{body: "["})
	s.raw("nonsense\r\n\r\n", "POST")
	s.stop()
	want := []Answer{{418, ""}, {404, "not_found"}, {400, "parse_error"}, {400, "bad_request"}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("reported were %v", got)
	}
}

func TestWhoHangsUpIsCountedAndEndsItsCall(t *testing.T) {
	c := open()
	counted, begun := make(chan Answer, 1), make(chan struct{})
	c.Answered = func(a Answer) { counted <- a }
	s := start(t, c, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	}))
	one := s.dial()
	_, _ = io.WriteString(one, request{}.text(s.addr))
	<-begun
	_ = one.Close()
	if got := <-counted; got != (Answer{statusGone, codeGone}) {
		t.Errorf("it was counted as %v", got)
	}
}

// Who shuts its side has hung up to the library, and reads on: no answer must not
// look like an empty success.
func TestACallThatWasGivenUpIsNoSuccess(t *testing.T) {
	var log quiet
	c := open()
	c.Log = log.log()
	begun := make(chan struct{})
	s := start(t, c, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	}))
	one := s.dial()
	defer func() { _ = one.Close() }()
	_, _ = io.WriteString(one, request{}.text(s.addr))
	<-begun
	if err := one.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(one.read); len(got) != 0 {
		t.Errorf("it was answered by %q", got)
	}
	s.stop()
	if log.String() != "" {
		t.Errorf("logged was %s", log.String())
	}
}

// Where two lengths of a body could be meant, what follows it is no request.
func TestNoRequestHidesBehindABodyOfTwoLengths(t *testing.T) {
	s := start(t, open(), echo)
	const kind = "Content-Type: application/json\r\n"
	hidden := request{method: "GET", path: "/health"}.text(s.addr)
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(ping), ping)
	for name, text := range map[string]string{
		"a length beside chunks": "POST /mcp HTTP/1.1\r\nHost: " + s.addr + "\r\n" + kind + fmt.Sprintf("Content-Length: %d\r\n", len(chunked)+len(hidden)) + "Transfer-Encoding: chunked\r\n\r\n" + chunked,
		"chunks":                 "POST /mcp HTTP/1.1\r\nHost: " + s.addr + "\r\n" + kind + "Transfer-Encoding: chunked\r\n\r\n" + chunked,
		"chunks of HTTP/1.0":     "POST /mcp HTTP/1.0\r\nHost: " + s.addr + "\r\n" + kind + fmt.Sprintf("Content-Length: %d\r\n", len(ping)) + "Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n" + ping,
		"refused before":         "POST /nowhere HTTP/1.1\r\nHost: " + s.addr + "\r\n" + kind + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked,
	} {
		one := s.dial()
		if got := one.ask(text + hidden); strings.Count(got, "HTTP/1.") != 1 || strings.Contains(got, `"status":"ok"`) {
			t.Errorf("%s: answered by %q", name, got)
		}
		_ = one.Close()
	}
}

func TestAHandlerThatSaysNothingHasSaidYes(t *testing.T) {
	s := start(t, open(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.is("nothing", s.send(request{}), 200, "")
}
