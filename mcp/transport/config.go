package transport

import (
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// Config says where a server listens, who may speak to it and how much. Errors
// about it name the flags of the command line, which have one name a field.
type Config struct {
	Addr        string // HOST:PORT; HOST is an IP literal or localhost
	AllowRemote bool   // private and link-local addresses may be bound
	AllowPublic bool   // wildcard and public addresses may be bound, with AllowRemote
	Open        bool   // what is served is public: no verifier is needed, private addresses may be bound
	PublicURL   string // the resource, as clients and tokens name it; "" derives it from what is bound

	Auth   Auth // the zero value verifies nothing
	NoAuth bool // anybody who reaches a loopback address is served

	Hosts          []string // Host values that are served; none means the bound names
	Origins        []string // origins of browser pages that are served
	TrustedProxies []string // CIDRs whose X-Forwarded-For counts

	Rate              int   // requests a minute and client, and a minute and subject
	MaxBody           int64 // bytes of a request's body
	MaxConns          int   // connections at one time
	MaxConnsPerClient int   // of them, of one address; a trusted proxy is no client
	Timeouts          Timeouts

	// Now decides on tokens and buckets, and socket deadlines are taken from
	// it, so it must not run behind the wall clock.
	Now      func() time.Time
	Log      *slog.Logger // nil discards
	Answered func(Answer) // told of each answer; nil tells nobody
}

// Timeouts are the deadlines of a slow client.
type Timeouts struct {
	Header time.Duration // from the first byte, or from connecting, to the end of the header
	Body   time.Duration // from there to the end of the body
	Write  time.Duration // from the first byte of an answer to its last
	Idle   time.Duration // between two requests
}

// Auth says whose tokens are good.
type Auth struct {
	Issuer string   // iss, exactly
	JWKS   string   // file of the issuer's public keys, read again when it changes
	Secret string   // or file of the secret it shares with this server
	Scopes []string // a token needs every one
}

func (a Auth) set() bool {
	return a.Issuer != "" || a.JWKS != "" || a.Secret != "" || len(a.Scopes) > 0
}

// Defaults are the values of transport contract, section 4.
func Defaults() Config {
	return Config{
		Rate:              120,
		MaxBody:           256 << 10,
		MaxConns:          64,
		MaxConnsPerClient: 8,
		Timeouts:          Timeouts{Header: 5 * time.Second, Body: 10 * time.Second, Write: 30 * time.Second, Idle: time.Minute},
	}
}

// longestTimeout keeps a deadline one.
const longestTimeout = 10 * time.Minute

func (t *Timeouts) named() []struct {
	name string
	at   *time.Duration
} {
	return []struct {
		name string
		at   *time.Duration
	}{{"header", &t.Header}, {"body", &t.Body}, {"write", &t.Write}, {"idle", &t.Idle}}
}

// String is the form Set takes.
func (t *Timeouts) String() string {
	var parts []string
	for _, f := range t.named() {
		// 1m0s is how Go prints a minute and not how anybody writes one.
		text := strings.TrimSuffix(f.at.String(), "m0s")
		if text != f.at.String() {
			text += "m"
		}
		parts = append(parts, f.name+"="+text)
	}
	return strings.Join(parts, ",")
}

// Set reads a comma list such as "header=5s,body=10s"; what it does not name
// stays.
func (t *Timeouts) Set(text string) error {
	const hint = "header=5s,body=10s,write=30s,idle=1m, or some of them"
	next, seen := *t, map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		i := slices.IndexFunc(next.named(), func(f struct {
			name string
			at   *time.Duration
		}) bool {
			return f.name == name
		})
		if i < 0 {
			return errcode.New(errcode.Usage, hint, "--http-timeout has no deadline %s", plain.Quote(name, plain.Detail))
		}
		if seen[name] {
			return errcode.New(errcode.Usage, hint, "--http-timeout gives %s more than once", name)
		}
		seen[name] = true
		d, err := time.ParseDuration(value)
		if err != nil {
			return errcode.New(errcode.Usage, hint, "--http-timeout cannot take %s for %s", plain.Quote(value, plain.Detail), name)
		}
		*next.named()[i].at = d
	}
	if err := next.check(); err != nil {
		return err
	}
	*t = next
	return nil
}

func (t *Timeouts) check() error {
	for _, f := range t.named() {
		if *f.at <= 0 || *f.at > longestTimeout {
			return errcode.New(errcode.Usage, "header=5s,body=10s,write=30s,idle=1m", "--http-timeout takes times of more than 0 and at most %s, not %s for %s", longestTimeout, *f.at, f.name)
		}
	}
	return nil
}

// plan is a checked Config.
type plan struct {
	Config
	bind    bind
	hosts   map[string]bool // empty: the bound names
	origins map[string]bool
	proxies []netip.Prefix
	public  *url.URL // nil if derived

	refusals refusals
}

// Check refuses what Listen would refuse before it reads a file or binds.
func (c Config) Check() error {
	_, err := c.check()
	return err
}

// check reads a configuration and refuses what is wrong with it.
func (c Config) check() (*plan, error) {
	p := &plan{Config: c, hosts: map[string]bool{}, origins: map[string]bool{}}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	var err error
	if p.bind, err = parseBind(c.Addr); err != nil {
		return nil, err
	}
	if err := p.mayBind(p.bind.addr.Addr()); err != nil {
		return nil, err
	}
	if err := p.checkAuth(); err != nil {
		return nil, err
	}
	if err := p.checkNames(); err != nil {
		return nil, err
	}
	for _, n := range []struct {
		flag        string
		value, most int64
	}{
		{"http-rate", int64(c.Rate), 1 << 20},
		{"http-max-body", c.MaxBody, 64 << 20},
		{"http-max-conns", int64(c.MaxConns), 1 << 16},
		{"http-max-conns-per-client", int64(c.MaxConnsPerClient), 1 << 16},
	} {
		if n.value < 1 || n.value > n.most {
			return nil, errcode.New(errcode.Usage, "a number in between", "--%s takes 1 to %d, not %d", n.flag, n.most, n.value)
		}
	}
	return p, p.Timeouts.check()
}

func (p *plan) checkAuth() error {
	a := p.Auth
	switch {
	case p.NoAuth && a.set():
		return errcode.New(errcode.Usage, "leave one of them out", "both verify tokens (--auth-...) and serve anybody (--http-insecure-no-auth)")
	case p.NoAuth && reachOf(p.bind.addr.Addr()) != loopback:
		return errcode.New(errcode.Usage, "verify tokens: --auth-issuer with --auth-jwks or --auth-hmac-secret", "serve anybody (--http-insecure-no-auth) on %s, which is no loopback address", p.bind.addr.Addr())
	case !a.set() && !p.NoAuth && !p.Open:
		return errcode.New(errcode.Usage, "--auth-issuer URL with --auth-jwks FILE or --auth-hmac-secret FILE, or on a loopback address --http-insecure-no-auth",
			"serve payment records over HTTP without verifying tokens")
	case !a.set():
		return nil
	case a.Issuer == "":
		return errcode.New(errcode.Usage, "--auth-issuer URL", "verify tokens without knowing who issues them")
	case a.JWKS == "" && a.Secret == "":
		return errcode.New(errcode.Usage, "--auth-jwks FILE, or --auth-hmac-secret FILE for an issuer on this machine", "verify tokens without a key")
	case a.JWKS != "" && a.Secret != "":
		return errcode.New(errcode.Usage, "leave one of them out", "verify tokens by --auth-jwks and by --auth-hmac-secret at the same time")
	}
	if _, err := webURL("auth-issuer", a.Issuer); err != nil {
		return err
	}
	for _, scope := range a.Scopes {
		if scope == "" || strings.ContainsFunc(scope, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
			return errcode.New(errcode.Usage, "one scope for each --auth-scope", "--auth-scope cannot take %s", plain.Quote(scope, plain.Detail))
		}
	}
	if p.PublicURL == "" && p.bind.addr.Addr().IsUnspecified() {
		return errcode.New(errcode.Usage, "--public-url with the URL clients use; tokens must name it as their audience", "verify tokens on %s without knowing the server's own URL", p.bind.addr.Addr())
	}
	return nil
}

func (p *plan) checkNames() error {
	if p.PublicURL != "" {
		u, err := webURL("public-url", p.PublicURL)
		if err != nil {
			return err
		}
		p.public = u
	}
	for _, h := range p.Hosts {
		name, ok := normalHost(h)
		if !ok {
			return errcode.New(errcode.Usage, "NAME, NAME:PORT or an IP address, one for each flag; there is no wildcard", "--http-allowed-host cannot take %s", plain.Quote(h, plain.Detail))
		}
		p.hosts[name] = true
	}
	for _, o := range p.Origins {
		origin, ok := normalOrigin(o)
		if !ok {
			return errcode.New(errcode.Usage, "SCHEME://NAME or SCHEME://NAME:PORT, one for each flag; there is no wildcard", "--http-allowed-origin cannot take %s", plain.Quote(o, plain.Detail))
		}
		p.origins[origin] = true
	}
	for _, text := range p.TrustedProxies {
		prefix, err := netip.ParsePrefix(text)
		if addr, e := netip.ParseAddr(text); e == nil && addr.Zone() == "" {
			addr = addr.Unmap()
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		// Trust in everybody would let every client choose its own address.
		if err != nil || prefix.Bits() == 0 || prefix.Addr().Is4In6() {
			return errcode.New(errcode.Usage, "a network such as 10.0.0.0/24, or an IP address", "--http-trusted-proxy cannot take %s", plain.Quote(text, plain.Detail))
		}
		p.proxies = append(p.proxies, prefix.Masked())
	}
	return nil
}

// webURL is an absolute URL with nothing that does not belong in an identifier.
// Plain http is for this machine.
func webURL(flag, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	good := err == nil && u.Host != "" && u.User == nil && u.RawQuery == "" && !u.ForceQuery && !strings.Contains(text, "#") && u.Opaque == ""
	if good {
		_, good = normalHost(u.Host)
	}
	if good && u.Scheme != "https" {
		addr, err := netip.ParseAddr(u.Hostname())
		good = u.Scheme == "http" && (u.Hostname() == "localhost" || err == nil && addr.IsLoopback())
	}
	if !good {
		// What is wrong with it may be a password in it.
		return nil, errcode.New(errcode.Usage, "https://NAME/PATH without user, query and fragment; http only for this machine", "--%s is no such URL", flag)
	}
	return u, nil
}
