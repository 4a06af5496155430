package market

import (
	"fmt"
	"strings"
	"testing"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

func parse(text string, o Options) (*instance, error) { return parseInstance(text, &o) }

func TestContract32APublicHostNeedsNoOptIn(t *testing.T) {
	for text, origin := range map[string]string{
		"https://market.example":              "https://market.example",
		"https://market.example/":             "https://market.example",
		"https://MARKET.Example.:443":         "https://market.example",
		"https://market.example:8443/base/":   "https://market.example:8443/base",
		"https://8.8.8.8":                     "https://8.8.8.8",
		"https://[2606:4700:4700::1111]:8443": "https://[2606:4700:4700::1111]:8443",
		"https://xn--mrkt-loa.example":        "https://xn--mrkt-loa.example",
		"https://localhost.market.example":    "https://localhost.market.example",
		"https://10.0.0.5.market.example":     "https://10.0.0.5.market.example",
		"https://internal.example":            "https://internal.example",
		"https://market.example/a%2Fb":        "https://market.example/a%2Fb",
	} {
		in, err := parse(text, Options{})
		if err != nil || in.origin != origin {
			t.Errorf("%s: %+v, %v", text, in, err)
		}
	}
}

// nearby are the six of the contract.
var nearby = []string{"127.0.0.1:3000", "localhost:3000", "10.0.0.5", "192.168.1.1", "169.254.169.254", "market.local"}

func TestContract33To44HostsNearbyNeedTheOptIn(t *testing.T) {
	for i, host := range nearby {
		name, _, _ := strings.Cut(host, ":")
		t.Run(fmt.Sprintf("%d: %s is refused, naming the host and the opt-in", 33+i, host), func(t *testing.T) {
			_, err := parse("https://"+host, Options{})
			refusedAs(t, err, errcode.Usage, `"`+name+`"`, "MORPHIT_MCP_ALLOW_PRIVATE_INSTANCE=1", "--market-allow-private")
		})
		t.Run(fmt.Sprintf("%d: %s is taken with it", 39+i, host), func(t *testing.T) {
			if in, err := parse("https://"+host, Options{AllowPrivate: true}); err != nil || in.origin != "https://"+host {
				t.Errorf("%+v, %v", in, err)
			}
		})
	}
}

func TestContract52And53WhatIsNoAddressIsRefused(t *testing.T) {
	for text, words := range map[string]string{
		"52 not a url": "no URL", "market.example": "no URL", "": "no URL", "https://": "no URL", "https:///v1": "no URL", "https:market.example": "no URL",
		"//market.example": "no URL", "https://mar ket.example": "no URL", "https://märkt.example": "no URL", "https://market.example\\@evil.example": "no URL",
		"ftp://market.example": `the scheme "ftp"`, "file:///etc/passwd": "no URL", "javascript:alert(1)": "no URL", "gopher://market.example": `the scheme "gopher"`,
		"https://market.example:0": "no port", "https://market.example:65536": "no port", "https://market.example:": "port is missing",
		"https://market..example": "neither a name nor an address", "https://.market.example": "neither a name nor an address",
		"https://market.example/../v1": "leads upwards", "https://market.example/%2e%2e/v1": "leads upwards", "https://" + strings.Repeat("a", 600) + ".example": "no URL",
		"https://under_score.example": "neither a name nor an address",
	} {
		_, err := parse(text, Options{AllowPrivate: true, AllowHTTP: true})
		refusedAs(t, err, errcode.Usage, words)
	}
}

func TestContract60NoFormOfANearbyAddressIsTaken(t *testing.T) {
	forms := []string{
		"127.0.0.1", "127.1", "127.0.1", "0", "0x0", "0.0.0.0", "0.0.0.00", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001", "2130706433", "017700000001",
		"127.0.0.1.", "10.0.0.1", "10.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.1", "169.254.169.254", "100.64.0.1", "192.0.0.1", "198.18.0.1",
		"192.0.2.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
		"[::]", "[::0]", "[::1]", "[0:0:0:0:0:0:0:1]", "[::127.0.0.1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:0.0.0.0]", "[::ffff:0:127.0.0.1]",
		"[64:ff9b::7f00:1]", "[64:ff9b:1::1]", "[2001::1]", "[2001:db8::1]", "[2002:7f00:1::]", "[fc00::1]", "[fd12::1]", "[fe80::1]", "[fe90::1]", "[febf::1]", "[fec0::1]",
		"[ff02::1]", "[fe80::1%25eth0]",
		"localhost", "localhost.", "LOCALHOST", "a.localhost", "printer.local", "printer.local.", "metadata.google.internal", "router.lan", "nas.home.arpa", "intranet", "db.corp",
	}
	if len(forms) < 56 {
		t.Fatalf("%d forms", len(forms))
	}
	for _, form := range forms {
		for _, text := range []string{"https://" + form, "https://" + form + ":8443/", "http://" + form} {
			if in, err := parse(text, Options{AllowHTTP: true}); err == nil {
				t.Errorf("%s was taken as %s", text, in.origin)
			}
		}
	}
	// Two readings are refused with the opt-in as well.
	for _, form := range []string{"127.1", "0x7f000001", "2130706433", "0177.0.0.1", "0.0.0.00", "[fe80::1%25eth0]"} {
		if in, err := parse("https://"+form, Options{AllowPrivate: true}); err == nil {
			t.Errorf("%s was taken as %s", form, in.origin)
		}
	}
}

func TestContract61WhatIsNoneOfAnInstancesBusinessIsRefusedAndNeverRepeated(t *testing.T) {
	const secret = "hunter2"
	for text, words := range map[string]string{
		"https://user:" + secret + "@market.example":    "user name or a password",
		"https://" + secret + "@market.example":         "user name or a password",
		"https://@market.example/" + secret:             "user name or a password",
		"https://market.example/?token=" + secret:       "a query",
		"https://market.example?":                       "a query",
		"https://market.example/#" + secret:             "a fragment",
		"https://market.example#":                       "a fragment",
		"https://user:" + secret + "@market.example:x":  "no URL",
		"https://user:" + secret + "@market.example/\n": "no URL",
		"ftp://user:" + secret + "@market.example":      "user name or a password",
		"http://user:" + secret + "@127.0.0.1":          "user name or a password",
		"https://market.example:" + secret:              "no URL",
	} {
		_, err := parse(text, Options{})
		refusedAs(t, err, errcode.Usage, words)
		if strings.Contains(err.Error(), secret) || strings.Contains(fmt.Sprintf("%+v %#v", err, err), secret) {
			t.Errorf("the refusal of %s repeats what it holds: %v", text, err)
		}
	}
}

func TestPlainHTTPAndOverlaysNeedMoreThanAnAddress(t *testing.T) {
	const onion = "alphafixturealphafixturealphafixturealphafixturealpha2d.onion"
	_, err := parse("http://market.example", Options{})
	refusedAs(t, err, errcode.Usage, "not https", "--market-allow-http")
	if in, err := parse("http://market.example:80", Options{AllowHTTP: true}); err != nil || in.origin != "http://market.example" {
		t.Errorf("%+v, %v", in, err)
	}
	for _, host := range []string{onion, "market.i2p", "market.loki", "sub." + onion} {
		_, err = parse("https://"+host, Options{})
		refusedAs(t, err, errcode.Usage, "through a proxy only", "--market-proxy socks5h://")
		if _, err := parse("https://"+host, Options{Proxy: "socks5h://127.0.0.1:9050"}); err != nil {
			t.Error(err)
		}
	}
	for _, proxy := range []string{"socks5://127.0.0.1:9050", "http://127.0.0.1:8080", "socks5h://127.0.0.1", "socks5h://u:p@127.0.0.1:9050", "socks5h://127.0.0.1:9050/x", "127.0.0.1:9050", "socks5h://127.0.0.1:0", "socks5h://127.0.0.1:9050?x", "socks5h://:9050"} {
		_, err := New(Options{Now: (&clock{}).now, Instances: []string{"https://market.example"}, Proxy: proxy})
		refusedAs(t, err, errcode.Usage, "proxy")
	}
}

func TestAClientNeedsAnInstanceAndKnowsOnlyConfiguredOnes(t *testing.T) {
	_, err := New(Options{Now: (&clock{}).now})
	refusedAs(t, err, errcode.Usage, "no instance is named, and none is built in", "--market-instance")
	if _, err := New(Options{Instances: []string{"https://market.example"}}); err == nil {
		t.Error("a client without a clock was made")
	}
	c, _ := newClient(t, func(o *Options) {
		o.Instances = []string{"https://a.example", "https://b.example/", "https://A.example:443"}
	})
	if got := fmt.Sprint(c.Origins()); got != "[https://a.example https://b.example]" {
		t.Error(got)
	}
	for name, want := range map[string]string{"": "https://a.example", "https://b.example": "https://b.example", "https://b.example/": "https://b.example"} {
		if in, err := c.instance(name); err != nil || in.origin != want {
			t.Errorf("%s: %+v, %v", name, in, err)
		}
	}
	for _, name := range []string{"https://c.example", "b.example", "https://b.example/v1", "http://b.example", "https://b.example#", "HTTPS://B.EXAMPLE"} {
		_, err := c.instance(name)
		refusedAs(t, err, errcode.Input, "there is no configured instance", "one of https://a.example, https://b.example")
	}
}
