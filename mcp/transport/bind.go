package transport

import (
	"context"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// bind is an address to listen on.
type bind struct {
	addr netip.AddrPort
	host string // as it is written in a URL
}

// parseBind reads HOST:PORT. Names are refused but localhost: what another name
// means is decided elsewhere and later. The parser of net/netip takes none of
// the spellings old resolvers do (0, 0x0, 127.1, 0.0.0.00).
func parseBind(text string) (bind, error) {
	wrong := func(why string) (bind, error) {
		return bind{}, errcode.New(errcode.Usage, "--http 127.0.0.1:8124", "listen on %s: %s", plain.Quote(text, plain.Detail), why)
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return wrong("it is not HOST:PORT")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || port != strconv.FormatUint(n, 10) {
		return wrong("its port is no number from 0 to 65535")
	}
	if strings.EqualFold(host, "localhost") {
		return bind{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(n)), "localhost"}, nil
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return wrong("its host is neither an IP address nor localhost")
	}
	addr = addr.Unmap()
	name := addr.WithZone("").String()
	if addr.Is6() {
		name = "[" + name + "]"
	}
	return bind{netip.AddrPortFrom(addr, uint16(n)), name}, nil
}

// reach says from where an address can be reached.
type reach int

const (
	loopback reach = iota
	near           // private and link-local networks
	anywhere       // wildcard and public addresses, and all that is neither
)

// nearNets are the networks that are not routed on the internet: RFC 1918, RFC
// 6598, RFC 3927, RFC 4193, RFC 4291.
var nearNets = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("fc00::/7"),
	netip.MustParsePrefix("fe80::/10"),
}

func reachOf(addr netip.Addr) reach {
	addr = addr.Unmap().WithZone("")
	if addr.IsLoopback() {
		return loopback
	}
	if inside(addr, nearNets) {
		return near
	}
	return anywhere
}

func inside(addr netip.Addr, nets []netip.Prefix) bool {
	for _, n := range nets {
		if n.Contains(addr) {
			return true
		}
	}
	return false
}

// mayBind is the bind policy (transport contract, section 4; market contract,
// section 7 for what is open).
func (p *plan) mayBind(addr netip.Addr) error {
	if addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return errcode.New(errcode.Usage, "--http 127.0.0.1:8124", "listen on %s: it is the address of no single machine", addr)
	}
	remote := p.AllowRemote || p.Open
	switch reachOf(addr) {
	case near:
		if !remote {
			return errcode.New(errcode.Usage, "--http-allow-remote if other machines are to reach it", "refusing to bind %s: it is no loopback address", addr)
		}
	case anywhere:
		kind := "a public address"
		if addr.IsUnspecified() {
			kind = "every address of this machine"
		}
		if !remote || !p.AllowPublic {
			hint := "--http-allow-remote and --http-allow-public if everybody is to reach it"
			if remote {
				hint = "--http-allow-public if everybody is to reach it"
			}
			return errcode.New(errcode.Usage, hint, "refusing to bind %s: it is %s", addr, kind)
		}
	}
	return nil
}

// listen binds. What the system made of the address is held to the policy once
// more: what counts is where the socket is, not what was asked for.
func (p *plan) listen(ctx context.Context) (net.Listener, netip.AddrPort, error) {
	network := "tcp4"
	if addr := p.bind.addr.Addr(); addr.Is6() {
		network = "tcp6"
		if addr.IsUnspecified() {
			network = "tcp" // [::] is meant to be reached over IPv4 as well
		}
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, network, p.bind.addr.String())
	if err != nil {
		return nil, netip.AddrPort{}, errcode.Wrap(err, errcode.Usage, "another address or port with --http", "bind %s", p.bind.addr)
	}
	real, err := addrPort(l.Addr())
	if err == nil {
		err = p.mayBind(real.Addr())
	}
	if err == nil && real.Addr().WithZone("") != p.bind.addr.Addr().WithZone("") {
		err = errcode.New(errcode.Usage, "another address with --http", "bind %s: the system bound %s", p.bind.addr, real)
	}
	if err != nil {
		_ = l.Close()
		return nil, netip.AddrPort{}, err
	}
	return l, real, nil
}

func addrPort(a net.Addr) (netip.AddrPort, error) {
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.AddrPort{}, errcode.Wrap(err, errcode.Internal, "report this", "read the address of a socket")
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), nil
}
