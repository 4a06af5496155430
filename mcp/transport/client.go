package transport

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
)

// client is who sent a request, as far as addresses say.
type client struct {
	key     netip.Prefix // what its bucket is kept by
	proxied bool         // a trusted proxy passed it on
	named   bool         // and said for whom
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
				return client{keyOf(at), true, at != peer} // whoever added this is the last that is known
			}
			at = hop
			if !inside(at, p.proxies) {
				return client{keyOf(at), true, at != peer}
			}
			if cut < 0 {
				break
			}
			rest = rest[:cut]
		}
	}
	return client{keyOf(at), true, at != peer}
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

// crowd counts what is being answered for each client. A proxy's connections say
// nothing of whose requests come over them, so this is the ceiling of connections
// of one address for those behind one (market contract, W12).
type crowd struct {
	most int

	mu    sync.Mutex
	count map[clientKey]int // no more than there are connections
}

// enter reports whether one more of a client's may be answered; then leave has
// to follow.
func (c *crowd) enter(key clientKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count[key] >= c.most {
		return false
	}
	c.count[key]++
	return true
}

func (c *crowd) leave(key clientKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count[key]--; c.count[key] <= 0 {
		delete(c.count, key)
	}
}
