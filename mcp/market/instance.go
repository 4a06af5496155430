package market

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// Words of the command line, for refusals.
const (
	allowPrivate = "--market-allow-private (MORPHIT_MCP_ALLOW_PRIVATE_INSTANCE=1)"
	allowHTTP    = "--market-allow-http"
	proxyFlag    = "--market-proxy socks5h://HOST:PORT"
)

// instance is a server an operator has named. Nothing but its origin is ever
// shown, and nothing but its origin is ever gone to.
type instance struct {
	origin  string // scheme, host, port and path, without a slash at the end
	host    string // lower case, no final dot, no brackets
	overlay bool   // a name that only the proxy can reach

	// turns are its share of the requests that may be under way: one that stalls
	// must not keep the others waiting.
	turns chan struct{}
}

// instanceURL is an example for hints.
const instanceURL = "give it as https://HOST"

// parseInstance reads the address of an instance as it was configured. A refusal
// never repeats the address: it may hold a password (market contract, test 61). It
// names the host where that is what is refused.
func parseInstance(text string, o *Options) (*instance, error) {
	refuse := func(hint, format string, args ...any) error {
		return errcode.New(errcode.Usage, hint, "use the market instance: "+format, args...)
	}
	if len(text) > 512 || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }) {
		return nil, refuse(instanceURL+"; a host in other letters in its ASCII form (xn--...)", "its address is no URL")
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Opaque != "" || u.Hostname() == "" {
		return nil, refuse(instanceURL, "its address is no URL with a host")
	}
	switch {
	case u.User != nil || strings.Contains(u.Host, "@"):
		return nil, refuse("leave them out: nobody signs in to read public offers", "its address holds a user name or a password")
	case strings.Contains(text, "?"):
		return nil, refuse("leave it out", "its address has a query")
	case strings.Contains(text, "#"):
		return nil, refuse("leave it out", "its address has a fragment")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, refuse(instanceURL, "its address has the scheme %s", plain.Quote(u.Scheme, 32))
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	in := &instance{host: host, overlay: endsIn(host, overlays)}
	if err := checkHost(u, host); err != nil {
		return nil, err
	}
	if private(host) && !o.AllowPrivate {
		return nil, refuse("name a public host, or give "+allowPrivate, "its host %s is not a public one", plain.Quote(host, plain.Detail))
	}
	if u.Scheme == "http" && !o.AllowHTTP {
		return nil, refuse("use https, or give "+allowHTTP, "its address is not https")
	}
	if in.overlay && o.Proxy == "" {
		return nil, refuse("give "+proxyFlag, "its host %s is reached through a proxy only", plain.Quote(host, plain.Detail))
	}
	in.origin = u.Scheme + "://" + authority(u, host) + strings.TrimRight(u.EscapedPath(), "/")
	return in, nil
}

// checkHost refuses what has two readings: a host that one reader takes for a name
// and another for an address.
func checkHost(u *url.URL, host string) error {
	refuse := func(format string, args ...any) error {
		return errcode.New(errcode.Usage, instanceURL, "use the market instance: "+format, args...)
	}
	shown := plain.Quote(host, plain.Detail)
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return refuse("its host %s has a zone", shown)
		}
	} else if numeric(host) || len(host) > 253 || strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" || strings.Contains("."+host+".", "..") {
		return refuse("its host %s is neither a name nor an address", shown)
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return refuse("its port is no port")
		}
	}
	if strings.HasSuffix(u.Host, ":") {
		return refuse("its port is missing")
	}
	for part := range strings.SplitSeq(u.Path, "/") {
		if part == "." || part == ".." {
			return refuse("its path leads upwards")
		}
	}
	return nil
}

// authority is host and port as they stand in a URL; the port only where it is not
// the scheme's own, so that one instance has one name.
func authority(u *url.URL, host string) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port := u.Port(); port != "" && (u.Scheme != "https" || port != "443") && (u.Scheme != "http" || port != "80") {
		return host + ":" + port
	}
	return host
}

// parseProxy reads the address of the SOCKS proxy. Only socks5h: with any other
// scheme names would be resolved here, onion names among them.
func parseProxy(text string) (address string, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "socks5h" || u.Hostname() == "" || u.Port() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || strings.ContainsAny(text, "?#") {
		return "", errcode.New(errcode.Usage, proxyFlag+", such as socks5h://127.0.0.1:9050", "use the market proxy: its address is not of that form")
	}
	if n, err := strconv.Atoi(u.Port()); err != nil || n < 1 || n > 65535 {
		return "", errcode.New(errcode.Usage, proxyFlag, "use the market proxy: its port is no port")
	}
	return u.Host, nil
}
