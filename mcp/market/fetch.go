package market

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/net/proxy"
	"golang.org/x/sync/singleflight"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

// What an instance is asked for, and how much of it is kept (market contract,
// sections 4 and 6).
const (
	defaultMaxBody = 4 << 20 // bytes, after decompression
	defaultTimeout = 10 * time.Second
	atOnce         = 4 // requests under way, of all instances together
	freshFor       = 15 * time.Second
	keptReplies    = 32
	keptBytes      = 16 << 20
	maxHeader      = 64 << 10
	maxAddresses   = 4                // of a name that are tried
	maxSilence     = 10 * time.Minute // an instance may ask for
	dfltSilence    = 15 * time.Second // where it asks to wait and does not say how long
)

// resolver is what names are looked up with; *net.Resolver is one.
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer opens a connection to a host and port.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// fetcher asks instances, and nobody else.
type fetcher struct {
	o       *Options
	http    *http.Client
	slots   chan struct{}
	flights singleflight.Group
	life    context.Context // of every request
	end     context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex // guards all below
	ended  bool
	fresh  *simplelru.LRU[string, reply]
	bytes  int
	silent map[string]time.Time // by origin: not to be asked before
}

// reply is the body of an answer and when it came.
type reply struct {
	body []byte
	at   time.Time
}

func newFetcher(o *Options) (*fetcher, error) {
	f := &fetcher{o: o, slots: make(chan struct{}, atOnce), silent: map[string]time.Time{}}
	f.life, f.end = context.WithCancel(context.Background())
	var err error
	f.fresh, err = simplelru.NewLRU(keptReplies, func(_ string, r reply) { f.bytes -= len(r.body) })
	if err != nil {
		return nil, err
	}
	dial, err := f.dialer()
	if err != nil {
		return nil, err
	}
	f.http = &http.Client{
		// The answer to a redirect is the redirect: it is an error, wherever it leads.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  nil, // never one of the environment
			DialContext:            dial,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.roots},
			TLSNextProto:           map[string]func(string, *tls.Conn) http.RoundTripper{},
			MaxConnsPerHost:        atOnce,
			MaxIdleConns:           atOnce,
			IdleConnTimeout:        30 * time.Second,
			MaxResponseHeaderBytes: maxHeader,
			// A handshake may outlive the request it is for, and would keep its place
			// among the connections for good.
			TLSHandshakeTimeout: o.Timeout,
		},
	}
	return f, nil
}

// dialer is how a connection is made: through the proxy where one is named, which
// then resolves names, else to an address that was checked here.
func (f *fetcher) dialer() (Dialer, error) {
	if f.o.Proxy != "" {
		address, err := parseProxy(f.o.Proxy)
		if err != nil {
			return nil, err
		}
		direct := f.o.Dial
		if direct == nil {
			direct = new(net.Dialer).DialContext
		}
		socks, err := proxy.SOCKS5("tcp", address, nil, through(direct))
		if err != nil {
			return nil, err
		}
		named, ok := socks.(proxy.ContextDialer)
		if !ok {
			return nil, errors.New("market: the proxy's dialer knows no deadline")
		}
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, f.o.Timeout)
			defer cancel()
			return named.DialContext(ctx, network, address)
		}, nil
	}
	return f.dialChecked, nil
}

// through makes a dialer of the proxy library of a function.
type through Dialer

func (t through) Dial(network, address string) (net.Conn, error) {
	return t(context.Background(), network, address)
}

func (t through) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return t(ctx, network, address)
}

// errPrivate is a name that leads, or one of whose addresses leads, to a host
// nearby.
var errPrivate = errors.New("its name leads to an address that is not public")

// dialChecked resolves a name once, holds every answer to the address policy and
// connects to what was checked: a name that answers otherwise a moment later gains
// nothing. The name stays what TLS verifies.
func (f *fetcher) dialChecked(ctx context.Context, network, address string) (net.Conn, error) {
	// A dial may outlive the request it is for.
	ctx, cancel := context.WithTimeout(ctx, f.o.Timeout)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addrs, err := f.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	err = errors.New("its name has no address")
	addrs = addrs[:min(len(addrs), maxAddresses)]
	for _, a := range addrs {
		var conn net.Conn
		// One that swallows what is sent to it must not use up the time of the others.
		if conn, err = f.dialAddress(ctx, network, net.JoinHostPort(a.String(), port), f.o.Timeout/time.Duration(len(addrs)+1)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

func (f *fetcher) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		if !f.o.AllowPrivate && !Public(a) {
			return nil, errPrivate
		}
		return []netip.Addr{a}, nil
	}
	addrs, err := f.o.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	for i, a := range addrs {
		if !f.o.AllowPrivate && !Public(a) {
			return nil, errPrivate
		}
		addrs[i] = a.Unmap()
	}
	return addrs, nil
}

// dialAddress connects to a numeric address. What is really connected to is held
// to the policy once more: before, where the dialer is this package's own, and
// after.
func (f *fetcher) dialAddress(ctx context.Context, network, address string, within time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	dial := f.o.Dial
	if dial == nil {
		dial = (&net.Dialer{Control: f.control}).DialContext
	}
	conn, err := dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := f.control(network, conn.RemoteAddr().String(), nil); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// control is called with the final address, before the connection is made.
func (f *fetcher) control(_, address string, _ syscall.RawConn) error {
	if f.o.AllowPrivate {
		return nil
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil || !Public(at.Addr()) {
		return errPrivate
	}
	return nil
}

// get asks an instance for one resource. Calls that ask the same at the same time
// share one request; an answer is good for a few seconds. A request belongs to
// nobody: who stops waiting for it does not stop it for the others.
func (f *fetcher) get(ctx context.Context, in *instance, path string, query url.Values) (reply, error) {
	address := in.origin + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	if r, ok := f.kept(address); ok {
		return r, nil
	}
	if err := f.mayAsk(in); err != nil {
		return reply{}, err
	}
	if !f.begin() {
		return reply{}, context.Canceled
	}
	flight := f.flights.DoChan(address, func() (any, error) { return f.ask(in, address) })
	answered := make(chan singleflight.Result, 1)
	go func() {
		defer f.running.Done()
		answered <- <-flight
	}()
	select {
	case done := <-answered:
		if done.Err != nil {
			return reply{}, done.Err
		}
		return done.Val.(reply), nil
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return reply{}, f.late(in)
		}
		return reply{}, ctx.Err()
	}
}

// begin counts in whoever waits for a request, unless the fetcher has ended.
func (f *fetcher) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return false
	}
	f.running.Add(1)
	return true
}

func (f *fetcher) close() {
	f.mu.Lock()
	f.ended = true
	f.mu.Unlock()
	f.end()
	f.running.Wait()
	f.http.CloseIdleConnections()
}

func (f *fetcher) kept(address string) (reply, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, ok := f.fresh.Get(address)
	if age := f.o.Now().Sub(r.at); !ok || age < 0 || age >= freshFor {
		return reply{}, false
	}
	return r, true
}

func (f *fetcher) keep(address string, r reply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fresh.Remove(address) // replacing evicts nothing, so the bytes would not be counted off
	f.fresh.Add(address, r)
	for f.bytes += len(r.body); f.bytes > keptBytes; {
		f.fresh.RemoveOldest()
	}
}

// mayAsk refuses to ask an instance that has asked to be left alone.
func (f *fetcher) mayAsk(in *instance) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := f.silent[in.origin].Sub(f.o.Now())
	// More than was ever granted is left only where the clock was put back.
	if left <= 0 || left > maxSilence {
		return nil
	}
	seconds := int64((left + time.Second - 1) / time.Second)
	return errcode.New(errcode.Market, fmt.Sprintf("call again in %d seconds", seconds), "ask the instance %s: it has asked not to be asked so often", in.origin)
}

// ask is one request, from waiting for a slot to the last byte of the body.
func (f *fetcher) ask(in *instance, address string) (reply, error) {
	ctx, cancel := context.WithTimeout(f.life, f.o.Timeout)
	defer cancel()
	for _, turns := range []chan struct{}{in.turns, f.slots} {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		case <-ctx.Done():
			return reply{}, f.worded(ctx, in, ctx.Err())
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return reply{}, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "settlewatch/"+f.o.Version)
	response, err := f.http.Do(request)
	if err != nil {
		return reply{}, f.worded(ctx, in, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return reply{}, f.refused(in, response)
	}
	if response.ContentLength > f.o.MaxBody {
		return reply{}, f.tooLarge(in)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, f.o.MaxBody+1))
	switch {
	case err != nil:
		return reply{}, f.worded(ctx, in, err)
	case int64(len(body)) > f.o.MaxBody:
		return reply{}, f.tooLarge(in)
	}
	r := reply{body: body, at: f.o.Now()}
	f.keep(address, r)
	return r, nil
}

// refused words an answer that is none. Its text is a stranger's and is not read.
func (f *fetcher) refused(in *instance, r *http.Response) error {
	switch code := r.StatusCode; {
	case code >= 300 && code < 400:
		return errcode.New(errcode.Market, "name the instance by the address it redirects to, after looking at it", "ask the instance %s: it answers with a redirect (status %d), and redirects are never followed", in.origin, code)
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		f.mu.Lock()
		defer f.mu.Unlock()
		wait := pause(r.Header.Get("Retry-After"), f.o.Now())
		f.silent[in.origin] = f.o.Now().Add(wait)
		return errcode.New(errcode.Market, fmt.Sprintf("call again in %d seconds", int64((wait+time.Second-1)/time.Second)), "ask the instance %s: it has no time now (status %d)", in.origin, code)
	default:
		return errcode.New(errcode.Market, "call again later, or ask another instance", "ask the instance %s: it answers with status %d", in.origin, code)
	}
}

// pause reads Retry-After, seconds or a date (RFC 9110, section 10.2.3). An
// instance may silence itself for a while, not for good.
func pause(value string, now time.Time) time.Duration {
	wait := dfltSilence
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		wait = time.Duration(n) * time.Second
	} else if errors.Is(err, strconv.ErrRange) {
		wait = maxSilence
	} else if at, err := http.ParseTime(value); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), maxSilence)
}

func (f *fetcher) tooLarge(in *instance) error {
	return errcode.New(errcode.Market, "ask for less: a smaller limit, more filters", "read the answer of the instance %s: it is larger than %d bytes", in.origin, f.o.MaxBody)
}

func (f *fetcher) late(in *instance) error {
	return errcode.New(errcode.Market, "call again later, or ask another instance", "ask the instance %s: it did not answer within %s", in.origin, f.o.Timeout)
}

// worded says in words of this product why there is no answer: texts of the network
// name addresses and servers that are nobody's business.
func (f *fetcher) worded(ctx context.Context, in *instance, err error) error {
	const hint = "call again later, or ask another instance"
	why := "the connection failed"
	var (
		dns         *net.DNSError
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
		hostname    x509.HostnameError
		slow        net.Error // a handshake, for one
	)
	switch {
	case f.life.Err() != nil:
		return context.Canceled
	case errors.Is(err, errPrivate):
		return errcode.New(errcode.Market, "have a person look at the name: it may be meant to lead here ("+allowPrivate+")", "ask the instance %s: %s", in.origin, errPrivate.Error())
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return f.late(in)
	case errors.As(err, &dns):
		why = "its name cannot be resolved"
	case errors.As(err, &certificate), errors.As(err, &authority), errors.As(err, &hostname):
		why = "its certificate cannot be trusted"
	case errors.As(err, &slow) && slow.Timeout():
		return f.late(in)
	case errors.Is(err, syscall.ECONNREFUSED):
		why = "it refuses connections"
	}
	return errcode.New(errcode.Market, hint, "ask the instance %s: %s", in.origin, why)
}
