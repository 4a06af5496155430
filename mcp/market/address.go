package market

import (
	"net/netip"
	"strings"
)

// globalV6 is the one block of IPv6 that is handed out for use on the Internet.
// What else exists (loopback, mapped and compatible forms, NAT64, unique local,
// link local, site local, multicast) leads to this host or its neighbours.
var globalV6 = netip.MustParsePrefix("2000::/3")

// notPublic are the blocks of the IANA special-purpose registries that do not lead
// to a host on the Internet, or lead to an address written inside another one
// (market contract, section 6, W6).
var notPublic = prefixes(
	"0.0.0.0/8",       // this network
	"10.0.0.0/8",      // private
	"100.64.0.0/10",   // behind a carrier's NAT
	"127.0.0.0/8",     // loopback
	"169.254.0.0/16",  // link local, metadata services
	"172.16.0.0/12",   // private
	"192.0.0.0/24",    // protocol assignments
	"192.0.2.0/24",    // documentation
	"192.88.99.0/24",  // 6to4 relays
	"192.168.0.0/16",  // private
	"198.18.0.0/15",   // benchmarks
	"198.51.100.0/24", // documentation
	"203.0.113.0/24",  // documentation
	"224.0.0.0/4",     // multicast
	"240.0.0.0/4",     // reserved, broadcast
	"2001::/23",       // protocol assignments, Teredo among them
	"2001:db8::/32",   // documentation
	"2002::/16",       // 6to4: an IPv4 address in disguise
	"3fff::/20",       // documentation
)

func prefixes(all ...string) (out []netip.Prefix) {
	for _, p := range all {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// Public reports whether an address is one of a host on the Internet. A mapped
// address counts as the IPv4 address it holds.
func Public(a netip.Addr) bool {
	a = a.Unmap()
	if !a.IsValid() || a.Zone() != "" || a.Is6() && !globalV6.Contains(a) {
		return false
	}
	for _, p := range notPublic {
		if p.Contains(a) {
			return false
		}
	}
	return true
}

// localDomains are the ends of names that mean a host nearby, whatever the
// resolver at hand makes of them.
var localDomains = []string{"local", "localhost", "localdomain", "internal", "intranet", "lan", "corp", "home", "private", "home.arpa"}

// overlays are the ends of names that no public resolver may ever be asked for.
var overlays = []string{"onion", "i2p", "loki"}

// private reports whether a host name, in lower case and without a final dot, is
// one of this host or its neighbours.
func private(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return !Public(a)
	}
	return !strings.Contains(host, ".") || endsIn(host, localDomains)
}

func endsIn(host string, domains []string) bool {
	for _, d := range domains {
		if host == d || strings.HasSuffix(host, "."+d) {
			return true
		}
	}
	return false
}

// numeric reports whether the last label of a name is a number, decimal or
// hexadecimal. Some resolvers take such a name (127.1, 0x7f000001) for an address.
func numeric(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	if digits(last) {
		return true
	}
	hex, ok := strings.CutPrefix(last, "0x")
	return ok && strings.Trim(hex, "0123456789abcdef") == ""
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
