package transport

import (
	"net/http"
	"net/netip"
	"strings"
)

// client is who sent a request, as far as addresses say.
type client struct {
	key     netip.Prefix // what its bucket is kept by
	proxied bool         // a trusted proxy passed it on
}

// clientOf finds the address of a client. What X-Forwarded-For says counts only
// from a trusted proxy, and of it only the rightmost hop that is not one
// itself: everything left of that is what the client chose to write.
func (p *plan) clientOf(peer netip.Addr, header http.Header) client {
	if !inside(peer, p.proxies) {
		return client{key: keyOf(peer)}
	}
	at := peer
	hops := header.Values("X-Forwarded-For")
	for i := len(hops) - 1; i >= 0; i-- {
		for rest := hops[i]; ; {
			cut := strings.LastIndexByte(rest, ',')
			hop, ok := parseHop(rest[cut+1:])
			if !ok {
				return client{keyOf(at), true} // whoever added this is the last that is known
			}
			at = hop
			if !inside(at, p.proxies) {
				return client{keyOf(at), true}
			}
			if cut < 0 {
				break
			}
			rest = rest[:cut]
		}
	}
	return client{keyOf(at), true}
}

// parseHop reads one hop: an address, which some proxies give a port.
func parseHop(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	addr, err := netip.ParseAddr(text)
	if err != nil {
		ap, e := netip.ParseAddrPort(text)
		addr, err = ap.Addr(), e
	}
	return addr.Unmap().WithZone(""), err == nil
}

// keyOf is what a client is counted by. Whoever has one IPv6 address has the
// 2^64 beside it.
func keyOf(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() && !addr.IsLoopback() {
		bits = 64
	}
	prefix, _ := addr.Prefix(bits)
	return prefix
}
