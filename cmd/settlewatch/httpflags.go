package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/mcp/transport"
)

// httpOptions are the flags of serving over HTTP (transport contract, section 4).
type httpOptions struct {
	config       transport.Config
	jwks, secret path
	sets         []*pflag.FlagSet // where the flags stand: a flag may be given to either command
}

func (o *httpOptions) flags(f *pflag.FlagSet) {
	if o.sets == nil {
		o.config = transport.Defaults()
	}
	o.sets = append(o.sets, f)
	c := &o.config
	f.StringVar(&c.Addr, "http", "", "serve over HTTP at this HOST:PORT instead of stdin and stdout; HOST is an IP address or localhost")
	f.BoolVar(&c.AllowRemote, "http-allow-remote", false, "let --http be a private or link-local address")
	f.BoolVar(&c.AllowPublic, "http-allow-public", false, "with --http-allow-remote, let --http be any address")
	f.StringVar(&c.PublicURL, "public-url", "", "URL clients use, which tokens name as their audience (default: made of --http)")
	f.StringVar(&c.Auth.Issuer, "auth-issuer", "", "URL of the authorization server whose tokens are taken")
	f.Var(&o.jwks, "auth-jwks", "file of the issuer's public keys, read again when it changes")
	f.Var(&o.secret, "auth-hmac-secret", "file of the secret shared with an issuer on this machine, instead of --auth-jwks")
	f.StringArrayVar(&c.Auth.Scopes, "auth-scope", nil, "scope a token needs; may be given more than once")
	f.BoolVar(&c.NoAuth, "http-insecure-no-auth", false, "serve whoever can reach a loopback address, without tokens")
	f.StringArrayVar(&c.Hosts, "http-allowed-host", nil, "Host header that is served, instead of the names of --http; may be given more than once")
	f.StringArrayVar(&c.Origins, "http-allowed-origin", nil, "origin of browser pages that are served; may be given more than once")
	f.StringArrayVar(&c.TrustedProxies, "http-trusted-proxy", nil, "network of reverse proxies whose X-Forwarded-For counts; may be given more than once")
	f.IntVar(&c.Rate, "http-rate", c.Rate, "requests a minute, for each client and for each subject")
	f.Int64Var(&c.MaxBody, "http-max-body", c.MaxBody, "bytes of a request")
	f.IntVar(&c.MaxConns, "http-max-conns", c.MaxConns, "connections at one time")
	f.IntVar(&c.MaxConnsPerClient, "http-max-conns-per-client", c.MaxConnsPerClient, "connections at one time from one address")
	f.Var((*timeoutsValue)(&c.Timeouts), "http-timeout", "deadlines of slow clients")
}

// timeoutsValue makes the deadlines a flag.
type timeoutsValue transport.Timeouts

func (v *timeoutsValue) String() string        { return (*transport.Timeouts)(v).String() }
func (v *timeoutsValue) Set(text string) error { return (*transport.Timeouts)(v).Set(text) }
func (v *timeoutsValue) Type() string          { return "deadlines" }

// httpFlags are the flags with the names they have for the environment: our
// own, and those of the server whose settings are taken over (transport
// contract, section 4; market contract, section 7).
var httpFlags = []struct{ flag, theirs string }{
	{"http", ""}, // three names of theirs, see theirAddress
	{"http-allow-remote", ""},
	{"http-allow-public", "MORPHIT_MCP_ALLOW_PUBLIC_BIND"},
	{"public-url", ""},
	{"auth-issuer", ""},
	{"auth-jwks", ""},
	{"auth-hmac-secret", ""},
	{"auth-scope", ""},
	{"http-insecure-no-auth", ""},
	{"http-allowed-host", "MORPHIT_MCP_ALLOWED_HOSTS"},
	{"http-allowed-origin", "MORPHIT_MCP_ALLOWED_ORIGINS"},
	{"http-trusted-proxy", ""},
	{"http-rate", "MORPHIT_MCP_RATE_LIMIT_PER_MIN"},
	{"http-max-body", "MORPHIT_MCP_MAX_BODY_BYTES"},
	{"http-max-conns", "MORPHIT_MCP_MAX_CONNECTIONS"},
	{"http-max-conns-per-client", ""},
	{"http-timeout", ""},
}

// ourName is a flag's name in the environment.
func ourName(flag string) string {
	return "SETTLEWATCH_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// given is the flag as it was typed, nil if it was not.
func (o *httpOptions) given(name string) *pflag.Flag {
	for _, set := range o.sets {
		if f := set.Lookup(name); f != nil && f.Changed {
			return f
		}
	}
	return nil
}

// setting is a value that stands in the environment.
type setting struct{ name, text string }

// fromEnvironment fills in what was not typed. What is said of HTTP counts where
// HTTP is served: the environment may be another server's.
func (o *httpOptions) fromEnvironment(getenv func(string) string) error {
	theirs, err := theirAddress(getenv)
	if err != nil {
		return err
	}
	for _, h := range httpFlags {
		other := setting{h.theirs, ""}
		if h.theirs != "" {
			other.text = getenv(h.theirs)
		}
		if h.flag == "http" {
			other = theirs
		}
		if err := o.settle(h.flag, setting{ourName(h.flag), getenv(ourName(h.flag))}, other); err != nil {
			return err
		}
		if o.config.Addr == "" {
			return nil
		}
	}
	return nil
}

// settle gives a flag its value. One that stands in two places with two values
// is refused: which of them somebody meant to count, and relies on, cannot be
// known.
func (o *httpOptions) settle(name string, values ...setting) error {
	from, have := "--"+name, o.given(name)
	for _, v := range values {
		if strings.TrimSpace(v.text) == "" {
			continue
		}
		read, err := readSetting(name, v.text)
		switch {
		case err != nil:
			return usage("%s cannot take %s", v.name, plain.Quote(v.text, plain.Detail))
		case have == nil:
			from, have = v.name, read
			o.take(name, read)
		case have.Value.String() != read.Value.String():
			return usage("%s and %s are both set, and differ: leave one of them out", from, v.name)
		}
	}
	return nil
}

// readSetting reads a value from the environment as its flag would. Lists have
// commas between their values.
func readSetting(name, text string) (*pflag.Flag, error) {
	set := pflag.NewFlagSet("environment", pflag.ContinueOnError)
	new(httpOptions).flags(set)
	f := set.Lookup(name)
	values := []string{strings.TrimSpace(text)}
	if list, ok := f.Value.(pflag.SliceValue); ok {
		values = nil
		for value := range strings.SplitSeq(text, ",") {
			values = append(values, strings.TrimSpace(value))
		}
		return f, list.Replace(values)
	}
	return f, f.Value.Set(values[0])
}

// take sets a flag of ours to a value that was read.
func (o *httpOptions) take(name string, read *pflag.Flag) {
	f := o.sets[0].Lookup(name)
	if list, ok := f.Value.(pflag.SliceValue); ok {
		_ = list.Replace(read.Value.(pflag.SliceValue).GetSlice())
		return
	}
	_ = f.Value.Set(read.Value.String()) // it comes from a value of the same kind
}

// theirAddress is where the other server's settings say that HTTP is served. A
// word or a port it would quietly read as something else is refused.
func theirAddress(getenv func(string) string) (where setting, err error) {
	const name = "MORPHIT_MCP_TRANSPORT"
	word := getenv(name)
	switch {
	case word == "" || strings.EqualFold(word, "stdio"):
		return where, nil
	case !strings.EqualFold(word, "http"):
		return where, usage("%s takes stdio or http, not %s", name, plain.Quote(word, plain.Detail))
	}
	host, port := getenv("MORPHIT_MCP_HTTP_HOST"), getenv("MORPHIT_MCP_HTTP_PORT")
	if host == "" {
		host = "127.0.0.1"
	}
	if port == "" {
		port = "8124"
	}
	if strings.Contains(host, ":") {
		host = "[" + strings.Trim(host, "[]") + "]"
	}
	return setting{name + "=http", host + ":" + port}, nil
}

// overHTTP reports whether HTTP is to be served, and completes the
// configuration for it.
func (a *app) overHTTP(o *serveOptions) (bool, error) {
	h := &o.http
	if err := h.fromEnvironment(a.env.getenv); err != nil {
		return false, err
	}
	if h.config.Addr == "" {
		for _, known := range httpFlags {
			if h.given(known.flag) != nil {
				return false, usage("--%s goes with --http", known.flag)
			}
		}
		return false, nil
	}
	if slices.Contains(o.toolsets, operatorSet) {
		return false, usage("--toolset %s is for the person at this terminal and is not served over HTTP", operatorSet)
	}
	c := &h.config
	c.Auth.JWKS, c.Auth.Secret = string(h.jwks), string(h.secret)
	c.Open = onlyOffers(o.toolsets)
	c.Now, c.Log = a.env.now, a.log(warnings)
	return true, nil
}

// onlyOffers reports whether all that is served is public: offers of a market.
// Payment records are not.
func onlyOffers(toolsets []string) bool {
	return len(toolsets) > 0 && !slices.ContainsFunc(toolsets, func(name string) bool { return name != "market" })
}
