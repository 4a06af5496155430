package transport

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"time"
)

// Answer is what became of a request, for whoever counts.
type Answer struct {
	Status int    // HTTP status; 0 for a connection that was turned away before HTTP, 499 for a client that hung up
	Code   string // the error code of an answer of this package, "" for the handler's own
}

// drainTime is how long calls in flight have to end (transport contract,
// section 4).
const drainTime = 10 * time.Second

// maxHeader is the most bytes the header of a request may have; the library
// adds 4096 of its own.
const maxHeader = 16 << 10

type clientKey = netip.Prefix

// Server is a bound server that answers nobody before Serve.
type Server struct {
	plan     *plan
	door     *door
	at       netip.AddrPort
	resource string
	verifier *verifier
}

// Listen checks a configuration, reads the keys and binds. Its errors are
// usage errors, and when there is one, nothing listens.
func Listen(ctx context.Context, c Config) (*Server, error) {
	p, err := c.check()
	if err != nil {
		return nil, err
	}
	s := &Server{plan: p}
	if p.Auth.set() {
		if s.verifier, err = openVerifier(p.Auth, p.Now, p.Log); err != nil {
			return nil, err
		}
	}
	l, real, err := p.listen(ctx)
	if err != nil {
		return nil, err
	}
	s.at = real
	s.resource = p.PublicURL
	if s.resource == "" {
		s.resource = fmt.Sprintf("http://%s:%d%s", p.bind.host, real.Port(), endpoint)
	}
	if s.verifier != nil {
		s.verifier.expect(p.Auth.Issuer, s.resource)
	}
	s.door = newDoor(l, p)
	return s, nil
}

// Addr is where the server is bound.
func (s *Server) Addr() netip.AddrPort { return s.at }

// Resource is the URL the server goes by: what a token must name as its
// audience.
func (s *Server) Resource() string { return s.resource }

// Close gives up a server that was not served.
func (s *Server) Close() error { return s.door.Close() }

type connKey struct{}

func connOf(ctx context.Context) *conn {
	c, _ := ctx.Value(connKey{}).(*conn)
	return c
}

func peerOf(r *http.Request) netip.Addr {
	if c := connOf(r.Context()); c != nil {
		return c.peer
	}
	ap, _ := netip.ParseAddrPort(r.RemoteAddr)
	return ap.Addr().Unmap()
}

// Serve answers requests by h until ctx is done. Then it accepts nothing more,
// lets calls in flight end for up to ten seconds, and returns nil.
func (s *Server) Serve(ctx context.Context, h http.Handler) error {
	t := s.plan.Timeouts
	srv := &http.Server{
		Handler:                      s.chain(h),
		ReadHeaderTimeout:            t.Header,
		WriteTimeout:                 t.Write, // from the request on; each answer gets its own
		IdleTimeout:                  t.Idle,
		MaxHeaderBytes:               maxHeader,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.plan.Log.Handler(), slog.LevelWarn),
		BaseContext:                  func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ConnContext:                  func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(s.door) }()
	select {
	case err := <-ended:
		_ = srv.Close()
		return fmt.Errorf("accept connections: %w", err)
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	defer s.door.shut()()
	if err := srv.Shutdown(limit); errors.Is(err, context.DeadlineExceeded) {
		s.plan.Log.Warn("calls that had not ended were given up at the end of the shutdown")
		_ = srv.Close()
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
		s.plan.Log.Warn("connections were not accepted to the end", "error", err)
	}
	return nil
}

// chain puts the checks around a handler.
func (s *Server) chain(h http.Handler) *chain {
	p := s.plan
	c := &chain{
		plan: p, next: h, verifier: s.verifier, hosts: p.hosts,
		busy:     crowd{most: p.MaxConnsPerClient, count: map[clientKey]int{}},
		clients:  newBuckets[clientKey](clientBuckets, p.Rate, p.Rate),
		health:   newBuckets[clientKey](clientBuckets, healthPerMinute, healthBurst),
		subjects: newBuckets[string](subjectBuckets, p.Rate, p.Rate),
	}
	if len(c.hosts) == 0 {
		c.hosts = boundNames(p.bind, s.at)
	}
	call := page{methods: []string{http.MethodPost}}
	read := []string{http.MethodGet, http.MethodHead}
	c.pages = map[string]page{
		"/": call, endpoint: call, endpoint + "/": call,
		healthPath: {methods: read, health: true, answer: []byte(`{"status":"ok","transport":"http"}`)},
	}
	if s.verifier != nil {
		about := page{methods: read, answer: s.about()}
		base, path := s.base()
		c.metadata = base + metadataPath + path
		c.pages[metadataPath+endpoint] = about
		c.pages[metadataPath+path] = about
	}
	return c
}

// base is the resource without its path, and the path, "" for none.
func (s *Server) base() (base, path string) {
	u := s.plan.public
	if u == nil {
		return strings.TrimSuffix(s.resource, endpoint), endpoint
	}
	path = u.EscapedPath()
	if path == "/" {
		path = ""
	}
	return u.Scheme + "://" + u.Host, path
}

// about is the metadata of the resource (RFC 9728, section 2).
func (s *Server) about() []byte {
	text, err := json.Marshal(struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported,omitempty"`
		Methods  []string `json:"bearer_methods_supported"`
	}{s.resource, []string{s.plan.Auth.Issuer}, s.plan.Auth.Scopes, []string{"header"}})
	if err != nil {
		panic(err) // texts have been checked
	}
	return text
}

func splitPath(path string) (dir, name string) {
	dir, name = filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return dir, name
}
