package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/netutil"
)

// ErrAddress says that metrics may not be shown at an address.
var ErrAddress = errors.New("metrics are shown on loopback only, at an IP address or localhost and a port")

// Address reads HOST:PORT. It gives ErrAddress for anything but loopback.
func Address(text string) (netip.AddrPort, error) {
	if port, ok := strings.CutPrefix(text, "localhost:"); ok {
		text = "127.0.0.1:" + port
	}
	at, err := netip.ParseAddrPort(text)
	if err != nil || !at.Addr().Unmap().IsLoopback() {
		return netip.AddrPort{}, ErrAddress
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), nil
}

// Server shows a Set until it is closed.
type Server struct {
	http *http.Server
	at   netip.AddrPort
	done chan struct{}
}

const (
	readTime   = 5 * time.Second
	writeTime  = 2 * scrapeTime
	idleTime   = time.Minute
	closeTime  = time.Second
	maxHeader  = 8 << 10
	maxConns   = 8
	maxScrapes = 2 // at a time
)

// Listen shows the Set at an address that Address gave.
func (s *Set) Listen(ctx context.Context, at netip.AddrPort) (*Server, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	bound, ok := l.Addr().(*net.TCPAddr)
	if !ok || !bound.IP.IsLoopback() {
		return nil, errors.Join(fmt.Errorf("%w, not at %s", ErrAddress, l.Addr()), l.Close())
	}
	server := &Server{at: bound.AddrPort(), done: make(chan struct{}), http: &http.Server{
		Handler: s.handler(), ReadTimeout: readTime, WriteTimeout: writeTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: log.New(discard{}, "", 0), // what it has to say is about strangers' bytes
	}}
	go func() {
		defer close(server.done)
		_ = server.http.Serve(netutil.LimitListener(l, maxConns)) // it ends when it is closed
	}()
	return server, nil
}

// Addr is where the server listens.
func (s *Server) Addr() netip.AddrPort { return s.at }

// Close stops listening, and waits a moment for a scrape under way.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	<-s.done
}

func (s *Set) handler() http.Handler {
	asked := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		switch {
		case r.URL.Path != "/metrics":
			http.Error(w, "not found", http.StatusNotFound)
		case !local(r.Host):
			// A name a page's author has led to this address is not ours.
			http.Error(w, "this host is not served", http.StatusForbidden)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		default:
			select {
			case asked <- struct{}{}:
				defer func() { <-asked }()
				var b bytes.Buffer
				s.write(&b)
				w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
				_, _ = w.Write(b.Bytes()) // who scrapes sees what is missing
			default:
				http.Error(w, "others are scraping", http.StatusServiceUnavailable)
			}
		}
	})
}

// local tells whether a Host header names loopback.
func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
