package main

import (
	"crypto/x509"
	"io"
	"log"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/mcp"
	"github.com/settlewatch/settlewatch/mcp/market"
)

// marketOptions say which market instances are asked, if any (market contract,
// section 7). No instance is built in.
type marketOptions struct {
	instances               []string
	allowPrivate, allowHTTP bool
	maxBody                 int64
	timeout                 time.Duration
	proxy                   string

	sets   []*pflag.FlagSet // that these flags are in
	client *market.Client   // once started; nil where the toolset is off
}

// The toolset, and the environment of the server whose settings are taken over.
const (
	marketToolset   = "market"
	envInstance     = "MORPHIT_MCP_INSTANCE_URL"
	envAllowPrivate = "MORPHIT_MCP_ALLOW_PRIVATE_INSTANCE"
)

const (
	defaultMarketBody    = 4 << 20
	mostMarketBody       = 64 << 20 // four answers are read at once
	defaultMarketTimeout = 10 * time.Second
)

func (o *marketOptions) flags(f *pflag.FlagSet) {
	o.sets = append(o.sets, f)
	f.StringArrayVar(&o.instances, "market-instance", nil, "market instance the toolset market asks, as https://HOST; may be given more than once, the first is the default")
	f.BoolVar(&o.allowPrivate, "market-allow-private", false, "let --market-instance be on this machine or its network")
	f.BoolVar(&o.allowHTTP, "market-allow-http", false, "let --market-instance be without TLS")
	f.Int64Var(&o.maxBody, "market-max-body", defaultMarketBody, "bytes of an instance's answer")
	f.DurationVar(&o.timeout, "market-timeout", defaultMarketTimeout, "how long an instance has to answer")
	f.StringVar(&o.proxy, "market-proxy", "", "SOCKS proxy that leads to every instance, as socks5h://HOST:PORT; needed for .onion and .i2p")
}

// typed reports whether a flag is on the command line, with whatever value.
func (o *marketOptions) typed(name string) bool {
	return slices.ContainsFunc(o.sets, func(f *pflag.FlagSet) bool { return f.Changed(name) })
}

// given reports whether anything was said of the market on the command line.
func (o *marketOptions) given() bool {
	return len(o.instances) > 0 || o.allowPrivate || o.allowHTTP || o.proxy != "" || o.maxBody != defaultMarketBody || o.timeout != defaultMarketTimeout
}

// fromEnvironment fills in what was not typed. What stands in both places and
// differs is refused: which of the two somebody relies on cannot be known.
func (o *marketOptions) fromEnvironment(getenv func(string) string) error {
	switch named := strings.TrimSpace(getenv(envInstance)); {
	case named == "":
	case len(o.instances) == 0:
		o.instances = []string{named}
	case !slices.Contains(o.instances, named):
		// The values are not shown: nobody has held them to the rules yet.
		return usage("--market-instance and %s are both set, and differ: leave one of them out", envInstance)
	}
	if set := getenv(envAllowPrivate); strings.TrimSpace(set) != "" {
		// Only this one word has ever meant yes.
		yes := set == "1"
		if o.typed("market-allow-private") && o.allowPrivate != yes {
			return usage("--market-allow-private and %s are both set, and differ: only 1 means yes there", envAllowPrivate)
		}
		o.allowPrivate = yes
	}
	return nil
}

// makeMarket makes the client of the toolset market, where that is on. It holds
// what was configured to the rules and asks nobody.
func (a *app) makeMarket(o *serveOptions) error {
	m := &o.market
	if !slices.Contains(o.toolsets, marketToolset) {
		if m.given() {
			return usage("flags of the market need the toolset: --toolset %s,%s", strings.Join(o.toolsets, ","), marketToolset)
		}
		return nil // and the environment may be another server's
	}
	if m.maxBody <= 0 || m.maxBody > mostMarketBody {
		return usage("--market-max-body takes a number of bytes of more than 0 and at most %d, not %d", mostMarketBody, m.maxBody)
	}
	if err := positive("market-timeout", m.timeout); err != nil {
		return err
	}
	if err := m.fromEnvironment(a.env.getenv); err != nil {
		return err
	}
	client, err := market.New(market.Options{
		Instances: m.instances, AllowPrivate: m.allowPrivate, AllowHTTP: m.allowHTTP, Proxy: m.proxy,
		MaxBody: m.maxBody, Timeout: m.timeout, Version: version(), Now: a.env.now, Dial: a.env.dial,
	})
	if err != nil {
		return err
	}
	m.client = client
	return nil
}

// startMarket prepares the process for the toolset market, where that is on, and says
// whom it will ask.
func (a *app) startMarket(o *serveOptions) {
	client := o.market.client
	if client == nil {
		return
	}
	// The library tells the standard logger of answers nobody has asked for, in the
	// words of who sent them. Nothing here speaks through it.
	log.SetOutput(io.Discard)
	// The library reads the authorities when the first certificate comes, and keeps
	// them. Where SSL_CERT_FILE names them, the process may have given that file up by
	// then. What fails here fails again there, with an error for the question.
	_, _ = x509.SystemCertPool()
	o.listing = client.Recall
	a.note("market: public offers are read from %s", strings.Join(client.Origins(), ", "))
}

// tools is what answers the toolset, nil where it is off.
func (o *marketOptions) tools() mcp.Market {
	if o.client == nil {
		return nil
	}
	return o.client
}

func (o *marketOptions) close() {
	if o.client != nil {
		o.client.Close()
	}
}

// recall is how the guard finds an offer that was shown here.
type recall func(ref string) *guard.Listing
