package payment

import (
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// hosts maps names to ASCII as a browser does (UTS 46, not transitional), but
// lets through what resolvers accept and registries do not, such as underscores.
var hosts = idna.New(
	idna.MapForLookup(),
	idna.Transitional(false),
	idna.StrictDomainName(false),
	idna.CheckHyphens(false),
	idna.BidiRule(),
	idna.CheckJoiners(true),
)

// Host is the canonical host of a URL or of text that is a host: lower case,
// IDNA to ASCII, without trailing dot, port, userinfo and path; IP addresses in
// their one canonical form, without brackets, an IPv4 address inside IPv6 as
// IPv4 (guard contract, section 3). mcp: URLs have no host.
func Host(urlOrHost string) (host string, ok bool) {
	scheme, authority, _, _ := split(urlOrHost)
	if scheme == "mcp" {
		return "", false
	}
	host, _, ok = splitAuthority(authority)
	if !ok {
		return "", false
	}
	return canonicalHost(host)
}

// Resource is the canonical form of what is bought: of a URL, scheme and host in
// lower case, default port, userinfo and fragment dropped, path and query exact;
// mcp: URLs and text that is no URL as they are (guard contract, section 3). An
// empty path is the path "/", as on the wire.
func Resource(url string) string {
	scheme, authority, rest, isURL := split(url)
	if !isURL {
		return bounded(url)
	}
	if scheme == "mcp" {
		return bounded("mcp://" + authority + rest)
	}
	if whole, _, has := strings.Cut(url, "#"); has {
		// Read again: what is left may end in white space that the fragment hid.
		scheme, authority, rest, _ = split(whole)
	}
	host, port, ok := splitAuthority(authority)
	if ok {
		var canon string
		if canon, ok = canonicalHost(host); ok {
			if strings.Contains(canon, ":") {
				canon = "[" + canon + "]"
			}
			if port = strings.TrimLeft(port, "0"); port != "" && port != defaultPort(scheme) {
				canon += ":" + port
			}
			authority = canon
		}
	}
	if !ok {
		// No host that could be looked up. Folding letters beyond ASCII could
		// make one of it, and another resource.
		authority = asciiLower(authority)
	}
	if defaultPort(scheme) != "" && (rest == "" || rest[0] == '?') {
		rest = "/" + rest
	}
	return bounded(scheme + "://" + authority + rest)
}

// blank is white space around a URL, as a browser sees it.
func blank(r rune) bool { return r <= ' ' }

func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func defaultPort(scheme string) string {
	switch scheme {
	case "http", "ws":
		return "80"
	case "https", "wss":
		return "443"
	}
	return ""
}

// split cuts a URL into its scheme (lower case), its authority and the rest.
// Without a scheme the whole text up to a path is the authority and isURL is
// false. Like a browser it passes over white space around the URL and line
// breaks inside it, and takes any number of slashes of either kind after http:
// and its kin, since that is where such a URL leads.
func split(s string) (scheme, authority, rest string, isURL bool) {
	s = strings.TrimFunc(s, blank)
	if strings.ContainsAny(s, "\t\n\r") {
		s = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(s)
	}
	if i := strings.IndexByte(s, ':'); i > 0 && isScheme(s[:i]) {
		word := strings.ToLower(s[:i])
		after := s[i+1:]
		trimmed := strings.TrimLeft(after, `/\`)
		switch {
		case defaultPort(word) != "" && len(trimmed) < len(after),
			defaultPort(word) != "" && !allDigits(portOf(after)):
			scheme, s, isURL = word, trimmed, true
		case strings.HasPrefix(after, "//"):
			scheme, s, isURL = word, after[2:], true
		}
	}
	if !isURL {
		s = strings.TrimPrefix(s, "//")
	}
	if i := strings.IndexAny(s, `/\?#`); i >= 0 {
		return scheme, s[:i], s[i:], isURL
	}
	return scheme, s, "", isURL
}

// portOf is the text up to a path: in "http:8080" it may be the port of a host
// called http.
func portOf(s string) string {
	if i := strings.IndexAny(s, `/\?#`); i >= 0 {
		return s[:i]
	}
	return s
}

func isScheme(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (i == 0 || !alnum(c) && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return true
}

func allDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i]-'0' > 9 {
			return false
		}
	}
	return true
}

// splitAuthority drops the userinfo and cuts off the port.
func splitAuthority(authority string) (host, port string, ok bool) {
	host = authority[strings.LastIndexByte(authority, '@')+1:]
	if strings.HasPrefix(host, "[") {
		end := strings.IndexByte(host, ']')
		if end < 0 {
			return "", "", false
		}
		rest := host[end+1:]
		if rest != "" {
			if rest[0] != ':' || !allDigits(rest[1:]) {
				return "", "", false
			}
			port = rest[1:]
		}
		return host[:end+1], port, true
	}
	if strings.Count(host, ":") > 1 {
		// An IPv6 address without brackets, as people type it.
		return "[" + host + "]", "", true
	}
	host, port, _ = strings.Cut(host, ":")
	return host, port, host != "" && allDigits(port)
}

// maxHost is the longest name of the domain name system.
const maxHost = 253

func canonicalHost(host string) (string, bool) {
	if strings.HasPrefix(host, "[") {
		inside := strings.TrimSuffix(host[1:], "]")
		inside, _, _ = strings.Cut(inside, "%") // a zone is no part of the address
		ip, err := netip.ParseAddr(inside)
		if err != nil || !ip.Is6() {
			return "", false
		}
		return ip.Unmap().String(), true
	}
	if strings.Contains(host, "%") {
		decoded, ok := percentDecode(host)
		if !ok {
			return "", false
		}
		host = decoded
	}
	// Mapping can only grow a name fourfold or so; this bounds its work.
	if len(host) > 4*maxHost || !utf8.ValidString(host) {
		return "", false
	}
	ascii := true
	for i := 0; i < len(host); i++ {
		ascii = ascii && host[i] < 0x80
	}
	lower := strings.ToLower(host)
	if !ascii || strings.Contains(lower, "xn--") {
		mapped, err := hosts.ToASCII(host)
		switch {
		case err == nil:
			lower = mapped
		case !ascii:
			return "", false
		}
		// An ASCII name that IDNA does not like is still the name that is
		// looked up.
	}
	lower = strings.TrimRight(lower, ".")
	if lower == "" || len(lower) > maxHost || lower[0] == '.' || strings.Contains(lower, "..") {
		return "", false
	}
	for i := 0; i < len(lower); i++ {
		if c := lower[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`#/:<>?@[\]^|%`, c) >= 0 {
			return "", false
		}
	}
	if last := lower[strings.LastIndexByte(lower, '.')+1:]; numeric(last) {
		return ipv4(lower)
	}
	return lower, true
}

func percentDecode(s string) (string, bool) {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) || !hexDigit(s[i+1]) || !hexDigit(s[i+2]) {
			return "", false
		}
		v, _ := strconv.ParseUint(s[i+1:i+3], 16, 8)
		b = append(b, byte(v))
		i += 2
	}
	return string(b), true
}

// numeric reports whether a host whose last label is s is an IPv4 address, or
// meant as one.
func numeric(s string) bool {
	return allDigits(s) || strings.HasPrefix(s, "0x") && allHex(s[2:])
}

// ipv4 reads an IPv4 address in any form a URL may have it in: fewer parts than
// four, octal and hexadecimal ones.
func ipv4(s string) (string, bool) {
	parts := strings.Split(s, ".")
	if len(parts) > 4 {
		return "", false
	}
	var v uint64
	for i, part := range parts {
		base := 10
		switch {
		case strings.HasPrefix(part, "0x"):
			part, base = part[2:], 16
			if part == "" {
				part = "0"
			}
		case len(part) > 1 && part[0] == '0':
			part, base = part[1:], 8
		}
		n, err := strconv.ParseUint(part, base, 32)
		if err != nil {
			return "", false
		}
		last := i == len(parts)-1
		switch {
		case !last && n > 255:
			return "", false
		case !last:
			v |= n << (8 * (3 - i))
		case n >= 1<<(8*(4-i)):
			return "", false
		default:
			v |= n
		}
	}
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}).String(), true
}
