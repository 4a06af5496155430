package transport

import (
	"net/netip"
	"strconv"
	"strings"
)

// normalHost is the one spelling of a Host value: lower case, IP addresses as
// net/netip prints them, without the port of plain HTTP. Spellings with a
// second reading elsewhere (numbers for addresses, a dot at the end) are no
// hosts here.
func normalHost(text string) (string, bool) { return normalAuthority(text, "80") }

func normalAuthority(text, defaultPort string) (string, bool) {
	host, port := text, ""
	if end := strings.LastIndexByte(text, ':'); end >= 0 && !strings.HasSuffix(text, "]") {
		host, port = text[:end], text[end+1:]
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port != strconv.FormatUint(n, 10) {
			return "", false
		}
	}
	if port == defaultPort {
		port = ""
	}
	if port != "" {
		port = ":" + port
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		if !ok || err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", false
		}
		return "[" + addr.String() + "]" + port, true
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is4() {
		return addr.String() + port, true
	}
	if host = strings.ToLower(host); !isName(host) {
		return "", false
	}
	return host + port, true
}

// isName reports whether a lower-case text is a name of labels. The last label
// is no number: then it would be an address to a browser (WHATWG URL, host
// parsing), in one of the forms that name one address in many ways.
func isName(host string) bool {
	if host == "" || len(host) > 253 {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
		last = label
	}
	if strings.HasPrefix(last, "0x") {
		return false
	}
	return strings.Trim(last, "0123456789") != ""
}

// normalOrigin is the one spelling of an origin. "null" and "*" are none.
func normalOrigin(text string) (string, bool) {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || scheme == "" {
		return "", false
	}
	scheme = strings.ToLower(scheme)
	for i := range len(scheme) {
		c := scheme[i]
		if (c < 'a' || c > 'z') && (i == 0 || (c < '0' || c > '9') && c != '+' && c != '-' && c != '.') {
			return "", false
		}
	}
	port := map[string]string{"http": "80", "https": "443"}[scheme]
	host, ok := normalAuthority(rest, port)
	return scheme + "://" + host, ok
}

// boundNames are the Host values a bound address answers to by itself.
func boundNames(b bind, real netip.AddrPort) map[string]bool {
	port := ":" + strconv.Itoa(int(real.Port()))
	names := map[string]bool{}
	add := func(host string) {
		if name, ok := normalHost(host + port); ok {
			names[name] = true
		}
	}
	if !real.Addr().IsUnspecified() {
		add(b.host)
	}
	// The loopback names lead nowhere else, so a page of a stranger cannot be
	// served under them.
	if real.Addr().IsLoopback() || real.Addr().IsUnspecified() {
		for _, host := range []string{"localhost", "127.0.0.1", "[::1]"} {
			add(host)
		}
	}
	return names
}
