package transport

import (
	"bytes"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// door is a listener with ceilings: what is over them is closed before a byte
// of it is read (market contract, W12).
type door struct {
	net.Listener
	plan *plan

	mu     sync.Mutex
	open   map[*conn]struct{}
	count  map[netip.Prefix]int
	closed bool
}

func newDoor(l net.Listener, p *plan) *door {
	return &door{Listener: l, plan: p, open: map[*conn]struct{}{}, count: map[netip.Prefix]int{}}
}

// answered tells of what no request came of.
func (d *door) answered(a Answer, c *conn) {
	d.plan.refused(a, c.key, "")
	if d.plan.Answered != nil {
		d.plan.Answered(a)
	}
}

func (d *door) Accept() (net.Conn, error) {
	for {
		raw, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, err := addrPort(raw.RemoteAddr())
		c := &conn{Conn: raw, door: d, peer: peer.Addr(), key: keyOf(peer.Addr())}
		if err == nil && d.admit(c) {
			return c, nil
		}
		_ = raw.Close()
		d.answered(Answer{}, c)
	}
}

func (d *door) admit(c *conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.open) >= d.plan.MaxConns ||
		d.count[c.key] >= d.plan.MaxConnsPerClient && !inside(c.peer, d.plan.proxies) {
		return false
	}
	d.open[c] = struct{}{}
	d.count[c.key]++
	return true
}

func (d *door) left(c *conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, c)
	if d.count[c.key]--; d.count[c.key] <= 0 {
		delete(d.count, c.key)
	}
}

// shut closes the connections that wait for nothing: the library would wait for
// them when it shuts down. Over which nothing was heard they end at once; a
// request that has begun to arrive gets a moment to become a call. stop ends
// what shut has begun.
func (d *door) shut() (stop func()) {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	_ = d.Close()
	d.closeThose(func(c *conn) bool { return !c.heard.Load() })
	t := time.AfterFunc(arrival, func() { d.closeThose(func(c *conn) bool { return !c.called.Load() }) })
	return func() { t.Stop() }
}

// arrival is how long a request may still take to arrive during a shutdown.
const arrival = 500 * time.Millisecond

func (d *door) closeThose(which func(*conn) bool) {
	d.mu.Lock()
	var found []*conn
	for c := range d.open {
		if which(c) {
			found = append(found, c)
		}
	}
	d.mu.Unlock()
	for _, c := range found {
		_ = c.Close()
	}
}

// conn is a connection that was admitted.
type conn struct {
	net.Conn
	door   *door
	peer   netip.Addr
	key    netip.Prefix
	heard  atomic.Bool // something was read
	called atomic.Bool // a request was read whole, but for its body
	once   sync.Once
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && !c.heard.Load() {
		c.heard.Store(true)
	}
	return n, err
}

func (c *conn) Close() error {
	c.once.Do(func() { c.door.left(c) })
	return c.Conn.Close()
}

// CloseWrite is what the library asks for to let a client read the last answer
// before the connection ends.
func (c *conn) CloseWrite() error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		return tcp.CloseWrite()
	}
	return nil
}

// Write gives the answers the library sends by itself, to what is no proper
// HTTP, the form and the headers of all others. They are recognised whole: no
// answer of this package begins like them, and a body of JSON has no line of a
// header in it.
func (c *conn) Write(b []byte) (int, error) {
	status, code := libraryAnswer(b)
	if status == 0 {
		return c.Conn.Write(b)
	}
	c.door.answered(Answer{status, code}, c)
	body := errorBody(code)
	answer := []byte("HTTP/1.1 " + strconv.Itoa(status) + " " + http.StatusText(status) +
		"\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Length: " + strconv.Itoa(len(body)) +
		"\r\nContent-Type: application/json\r\nX-Content-Type-Options: nosniff\r\n\r\n")
	answer = append(answer, body...)
	if _, err := c.Conn.Write(answer); err != nil {
		return 0, err
	}
	return len(b), nil
}

// libraryAnswer is the status of an answer of the library's own and the code it
// gets; 0 for any other bytes.
func libraryAnswer(b []byte) (status int, code string) {
	rest, ok := bytes.CutPrefix(b, []byte("HTTP/1.1 "))
	if !ok {
		return 0, ""
	}
	line, after, ok := bytes.Cut(rest, []byte("\r\n"))
	if !ok || len(line) < 3 {
		return 0, ""
	}
	text := bytes.HasPrefix(after, []byte("Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"))
	expectation := bytes.HasPrefix(line, []byte("417 ")) && bytes.HasPrefix(after, []byte("Connection: close\r\nDate: ")) && bytes.HasSuffix(after, []byte("\r\n\r\n"))
	status, err := strconv.Atoi(string(line[:3]))
	if err != nil || status < 400 || !text && !expectation {
		return 0, ""
	}
	if status == http.StatusRequestHeaderFieldsTooLarge {
		return status, codeHeaderTooLarge
	}
	return status, codeBadRequest
}
