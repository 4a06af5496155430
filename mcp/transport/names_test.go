package transport

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestAHostHasOneSpelling(t *testing.T) {
	for text, want := range map[string]string{
		"pay.example": "pay.example", "PAY.Example": "pay.example", "pay.example:80": "pay.example", "pay.example:443": "pay.example:443",
		"127.0.0.1:8124": "127.0.0.1:8124", "[::1]:8124": "[::1]:8124", "[0:0::1]:8124": "[::1]:8124", "[::FFFF:7f00:1]": "[::ffff:127.0.0.1]",
		"xn--bcher-kva.example": "xn--bcher-kva.example", "a_b.example": "a_b.example", "localhost": "localhost",
	} {
		if got, ok := normalHost(text); !ok || got != want {
			t.Errorf("%q is %q, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "*", "localhost.", "pay.example.", ".example", "a..b", "bücher.example", "pay.example:", "pay.example:0", "pay.example:080", "pay.example:65536", "pay.example:x",
		"a:1:2", "::1", "[::1", "::1]", "[::1]x", "[::1]:", "[127.0.0.1]", "[::1%lo]", "[::1%25lo]", "2130706433", "0x7f000001", "0x7f.1", "127.1", "0177.0.0.1", "127.0.0.01", "a.0x1", "1.2.3.4.5",
		"http://a", "a/b", "a@b", "a b", " a", "a\t", "a,b", "a%41", "a\\b", "127.0.0.1\x00", strings.Repeat("a", 64), strings.Repeat("a.", 127) + "ab"} {
		if got, ok := normalHost(text); ok {
			t.Errorf("%q is %q", text, got)
		}
	}
}

func TestAnOriginHasOneSpelling(t *testing.T) {
	for text, want := range map[string]string{
		"https://a.example": "https://a.example", "HTTPS://A.Example:443": "https://a.example", "http://a.example:80": "http://a.example", "http://a.example:443": "http://a.example:443",
		"http://localhost:6274": "http://localhost:6274", "chrome-extension://abcdefghijklmnop": "chrome-extension://abcdefghijklmnop", "http://[::1]:3000": "http://[::1]:3000",
	} {
		if got, ok := normalOrigin(text); !ok || got != want {
			t.Errorf("%q is %q, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "null", "*", "a.example", "//a.example", "://a.example", "https://", "https:a.example", "https://a.example/", "https://a.example?x", "https://a.example#", "https://u@a.example", "https://a.example.", "file://", "1http://a.example", "ht tp://a", "https://*.example", "https://a.example https://b.example"} {
		if got, ok := normalOrigin(text); ok {
			t.Errorf("%q is %q", text, got)
		}
	}
}

func FuzzNamesAreStable(f *testing.F) {
	for _, s := range []string{"a.example:80", "[::1]:1", "https://A:443", "127.0.0.1", "0x1", "null"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if host, ok := normalHost(text); ok {
			if again, ok := normalHost(host); !ok || again != host {
				t.Errorf("%q is %q is %q", text, host, again)
			}
		}
		if origin, ok := normalOrigin(text); ok {
			if again, ok := normalOrigin(origin); !ok || again != origin {
				t.Errorf("%q is %q is %q", text, origin, again)
			}
		}
	})
}

// Who is counted is decided by who is trusted.
func TestMarketContract63TheClientIsTheRightmostHopThatIsNotTrusted(t *testing.T) {
	c := open()
	c.TrustedProxies = []string{"10.0.0.0/8", "192.168.7.7", "fd00::/8"}
	p, err := c.check()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		peer string
		hops []string
		want string
	}{
		"a stranger":                         {"203.0.113.9", nil, "203.0.113.9/32"},
		"a stranger with a header":           {"203.0.113.9", []string{"1.1.1.1"}, "203.0.113.9/32"},
		"loopback is no proxy by itself":     {"127.0.0.1", []string{"1.1.1.1"}, "127.0.0.1/32"},
		"a proxy without a header":           {"10.1.1.1", nil, "10.1.1.1/32"},
		"a proxy":                            {"10.1.1.1", []string{"203.0.113.9"}, "203.0.113.9/32"},
		"what the client wrote is ignored":   {"10.1.1.1", []string{"1.1.1.1, 203.0.113.9"}, "203.0.113.9/32"},
		"in a line of its own too":           {"10.1.1.1", []string{"1.1.1.1", "203.0.113.9"}, "203.0.113.9/32"},
		"a chain of proxies":                 {"10.1.1.1", []string{"1.1.1.1, 203.0.113.9, 192.168.7.7,10.9.9.9"}, "203.0.113.9/32"},
		"only proxies":                       {"10.1.1.1", []string{"10.2.2.2, 10.3.3.3"}, "10.2.2.2/32"},
		"a hop that is no address":           {"10.1.1.1", []string{"203.0.113.9, unknown"}, "10.1.1.1/32"},
		"one further left":                   {"10.1.1.1", []string{"203.0.113.9, _hidden, 10.3.3.3"}, "10.3.3.3/32"},
		"an empty header":                    {"10.1.1.1", []string{""}, "10.1.1.1/32"},
		"an empty hop":                       {"10.1.1.1", []string{"203.0.113.9,"}, "10.1.1.1/32"},
		"an address with a port":             {"10.1.1.1", []string{"203.0.113.9:4711"}, "203.0.113.9/32"},
		"an IPv6 address with a port":        {"10.1.1.1", []string{"[2001:db8:1:2:3::4]:4711"}, "2001:db8:1:2::/64"},
		"an IPv6 address":                    {"10.1.1.1", []string{"2001:db8:1:2:ffff::4"}, "2001:db8:1:2::/64"},
		"a mapped address is what it maps":   {"10.1.1.1", []string{"::ffff:203.0.113.9"}, "203.0.113.9/32"},
		"a mapped proxy is one":              {"10.1.1.1", []string{"203.0.113.9, ::ffff:10.2.2.2"}, "203.0.113.9/32"},
		"a number for an address":            {"10.1.1.1", []string{"3405803785"}, "10.1.1.1/32"},
		"an IPv6 proxy":                      {"fd00::1", []string{"203.0.113.9"}, "203.0.113.9/32"},
		"a neighbour of a proxy is no proxy": {"192.168.7.8", []string{"203.0.113.9"}, "192.168.7.8/32"},
	} {
		h := http.Header{}
		for _, hop := range test.hops {
			h.Add("X-Forwarded-For", hop)
		}
		if got := p.clientOf(netip.MustParseAddr(test.peer), h); got.key.String() != test.want {
			t.Errorf("%s: %s, want %s", name, got.key, test.want)
		}
	}
}
