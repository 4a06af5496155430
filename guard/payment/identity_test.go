package payment

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAddress(t *testing.T) {
	for _, c := range []struct{ what, in, want string }{
		{"an EVM address is lower-cased", "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"},
		{"a capital X is an EVM address too", "0X833589FCD6EDB6E08F4C7C32D4F71B54BDA02913", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"},
		{"a Solana address keeps its case", "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v", "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v"},
		{"a Stellar address is kept", "GA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVSGZ", "GA7QYNF7SOWQ3GLR2BGMZEHXAVIRZA4KVWLTJJFC7MGXUA74P7UJVSGZ"},
		{"an Algorand address is kept", "VCMJKWOY5P5P7SKMZFFOCEROPJCZOTIJMNIYNUCKH7LRO45JMJP6UYBIJA", "VCMJKWOY5P5P7SKMZFFOCEROPJCZOTIJMNIYNUCKH7LRO45JMJP6UYBIJA"},
		{"32 bytes of hex are no EVM address and keep their case", "0xABCdef0000000000000000000000000000000000000000000000000000000001", "0xABCdef0000000000000000000000000000000000000000000000000000000001"},
		{"an EVM address that is too short keeps its case", "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA0291", "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA0291"},
		{"an EVM address with a letter that is no hex digit keeps its case", "0xG33589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "0xG33589fCD6eDb6E08f4c7C32D4f71b54bdA02913"},
		{"a host is none", "api.example.com", ""},
		{"a short word is none", "localhost", ""},
		{"a host of one long label with hyphens is none", "payments-of-the-second-cluster-01", ""},
		{"padding makes it none", " 0x833589fcd6edb6e08f4c7c32d4f71b54bda02913", ""},
		{"a line break after it makes it none", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913\n", ""},
		{"empty text is none", "", ""},
		{"0x alone is none", "0x", ""},
		{"text beyond every address is none", strings.Repeat("a", 129), ""},
	} {
		got, ok := Address(c.in)
		if ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%s: %q, %v", c.what, got, ok)
		}
	}
}

// The vectors of EIP-55.
func TestChecksum(t *testing.T) {
	for _, good := range []string{
		"0x52908400098527886E0F7030069857D2E4169EE7", "0x8617E340B3D01FA5F11F306F4090FD50E238070D",
		"0xde709f2102306220921060314715629080e2fb77", "0x27b1fdb04752bbc536007a920d24acb045561c26",
		"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
		"0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB", "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
		"0X5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
	} {
		if !ChecksumOK(good) {
			t.Errorf("%s is refused", good)
		}
	}
	for _, bad := range []string{
		"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD", "0xfb6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
		"0xDBF03B407c01E7cD3CBea99509d93f8DDDC8C6FB", "0xd1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
	} {
		if ChecksumOK(bad) {
			t.Errorf("%s is accepted", bad)
		}
	}
	for what, none := range map[string]string{
		"lower case": "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed", "upper case": "0x5AAEB6053F3E94C9B9A09F33669435E7EF1BEAED",
		"another chain's": "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v", "a host": "Example.com", "nothing": "",
	} {
		if !ChecksumOK(none) {
			t.Errorf("%s: a text without a checksum is refused", what)
		}
	}
}

func TestHost(t *testing.T) {
	for _, c := range []struct{ what, in, want string }{
		{"a host is lower-cased", "API.Example.COM", "api.example.com"},
		{"a port is dropped", "example.com:8080", "example.com"},
		{"an empty port is dropped", "https://example.com:/x", "example.com"},
		{"a path is dropped", "example.com/a/b?c=d#e", "example.com"},
		{"a URL gives its host", "https://Example.com/a", "example.com"},
		{"a query right after the host is dropped", "https://example.com?a=b", "example.com"},
		{"userinfo is dropped", "https://good.com@evil.com/", "evil.com"},
		{"userinfo with a port in it is dropped", "https://good.com:443@evil.com:8443/", "evil.com"},
		{"the last at sign counts", "https://a@b@evil.com/", "evil.com"},
		{"an at sign in the path is none", "https://example.com/@user", "example.com"},
		{"a trailing dot is dropped", "example.com.", "example.com"},
		{"a trailing dot before a port is dropped", "http://example.com.:80/", "example.com"},
		{"a back slash ends the host", `https://evil.com\@good.com/`, "evil.com"},
		{"slashes of any number and kind lead to the host", `https:\\/example.com/x`, "example.com"},
		{"no slash at all leads to it too", "https:example.com", "example.com"},
		{"a host called http with a port", "http:8080", "http"},
		{"white space around a URL is passed over", " \thttps://example.com/ \n", "example.com"},
		{"a line break inside a URL is passed over", "https://exam\nple.com/", "example.com"},
		{"a scheme-relative URL", "//example.com/x", "example.com"},
		{"another scheme", "ftp://Example.com/x", "example.com"},
		{"a single label", "localhost:3000", "localhost"},
		{"an underscore", "my_service.internal", "my_service.internal"},
		{"umlauts", "Bücher.example", "xn--bcher-kva.example"},
		{"punycode is the same name", "XN--BCHER-KVA.example", "xn--bcher-kva.example"},
		{"an escaped host", "https://b%C3%BCcher.example/", "xn--bcher-kva.example"},
		{"an escaped ASCII letter", "https://ex%61mple.com/", "example.com"},
		{"sharp s stays (not transitional)", "faß.de", "xn--fa-hia.de"},
		{"full width letters and dots are mapped", "ｅｘａｍｐｌｅ。ｃｏｍ", "example.com"},
		{"a Cyrillic look-alike is another host", "аpple.com", "xn--pple-43d.com"},
		{"capitals beyond ASCII are mapped", "ÅNGSTRÖM.example", "xn--ngstrm-hua5l.example"},
		{"ASCII that IDNA dislikes is still looked up", "xn--zzzzzzzz99999999.com", "xn--zzzzzzzz99999999.com"},
		{"hyphens in odd places", "-a-.ab--cd.com", "-a-.ab--cd.com"},
		{"IPv4", "http://127.0.0.1:4021/v1", "127.0.0.1"},
		{"IPv4 in hexadecimal", "http://0x7F.0.0.1/", "127.0.0.1"},
		{"IPv4 in octal", "http://0177.0.0.1/", "127.0.0.1"},
		{"IPv4 as one number", "http://2130706433/", "127.0.0.1"},
		{"IPv4 of two parts", "http://127.1/", "127.0.0.1"},
		{"IPv4 with a trailing dot", "http://127.0.0.1./", "127.0.0.1"},
		{"IPv4 in full width digits", "http://１２７.0.0.1/", "127.0.0.1"},
		{"IPv6 is shortened", "http://[2001:DB8:0:0:0:0:0:1]:80/", "2001:db8::1"},
		{"IPv6 without brackets", "2001:db8::1", "2001:db8::1"},
		{"IPv4 in IPv6 is IPv4", "http://[::ffff:127.0.0.1]/", "127.0.0.1"},
		{"IPv4 in IPv6, in hexadecimal", "[::FFFF:7f00:1]", "127.0.0.1"},
		{"a zone is dropped", "http://[fe80::1%25eth0]/", "fe80::1"},
		{"an mcp URL has none", "mcp://tool/x", ""},
		{"an mcp URL has none in capitals", "MCP://tool/x", ""},
		{"a path has none", "/v1/data", ""},
		{"empty text has none", "", ""},
		{"a URL without a host", "https://", ""},
		{"a port that is no number", "example.com:abc", ""},
		{"a space", "exa mple.com", ""},
		{"an empty label", "a..b", ""},
		{"a leading dot", ".example.com", ""},
		{"only dots", "...", ""},
		{"a percent sign that escapes nothing", "ex%zzample.com", ""},
		{"an escaped slash", "https://a%2fb/", ""},
		{"IPv4 with a part too large", "http://256.0.0.1/", ""},
		{"IPv4 with too many parts", "http://1.2.3.4.5/", ""},
		{"IPv6 cut short", "http://[::1", ""},
		{"text after IPv6", "http://[::1]x/", ""},
		{"IPv4 in brackets", "http://[127.0.0.1]/", ""},
		{"a NUL", "a\x00b.com", ""},
		{"bytes that are not UTF-8", "a\xffb.com", ""},
		{"a lone surrogate", "a\xed\xa0\x80.com", ""},
		{"a name too long for any resolver", strings.Repeat("a.", 130) + "com", ""},
	} {
		got, ok := Host(c.in)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s: Host(%q) = %q, %v; want %q", c.what, c.in, got, ok, c.want)
		}
	}
}

func TestResource(t *testing.T) {
	for _, c := range []struct{ what, in, want string }{
		{"scheme and host in lower case, path and query exact", "HTTPS://API.Example.com/V1/Data?Q=A%20b&q=%2f", "https://api.example.com/V1/Data?Q=A%20b&q=%2f"},
		{"the default port is dropped", "http://example.com:80/x", "http://example.com/x"},
		{"the default port of https is dropped", "https://example.com:0443/x", "https://example.com/x"},
		{"another port stays", "https://example.com:80/x", "https://example.com:80/x"},
		{"the fragment is dropped", "https://example.com/x?a=b#frag", "https://example.com/x?a=b"},
		{"the fragment after the host is dropped", "https://example.com#frag", "https://example.com/"},
		{"no path is the path slash", "https://example.com", "https://example.com/"},
		{"no path before a query", "https://example.com?a=b", "https://example.com/?a=b"},
		{"dots in the path stay", "https://example.com/a/../b/./", "https://example.com/a/../b/./"},
		{"userinfo is dropped", "https://user:secret@example.com/x", "https://example.com/x"},
		{"a trailing dot is dropped", "https://example.com./x", "https://example.com/x"},
		{"IDNA", "https://Bücher.example/ü", "https://xn--bcher-kva.example/ü"},
		{"IPv6", "http://[2001:DB8::0:1]:80/x", "http://[2001:db8::1]/x"},
		{"an mcp tool is kept", "mcp://tool/Get_Weather#1", "mcp://tool/Get_Weather#1"},
		{"an mcp scheme in capitals", "MCP://Tool/X", "mcp://Tool/X"},
		{"text that is no URL is kept", "lookup:Tool/X#y", "lookup:Tool/X#y"},
		{"a path is kept", "/V1/x", "/V1/x"},
		{"a host that cannot be read is only lower-cased", "https://A..B/x", "https://a..b/x"},
		{"empty text", "", ""},
	} {
		if got := Resource(c.in); got != c.want {
			t.Errorf("%s: Resource(%q) = %q, want %q", c.what, c.in, got, c.want)
		}
	}
	long := Resource("https://example.com/" + strings.Repeat("x", 5000))
	if len(long) > 100 || long == Resource("https://example.com/"+strings.Repeat("x", 5001)) {
		t.Errorf("a long URL becomes %q", long)
	}
}

func TestName(t *testing.T) {
	for _, c := range []struct {
		what, in string
		want     []string
	}{
		{"an address in any case", "0X833589FCD6EDB6E08F4C7C32D4F71B54BDA02913", []string{"0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"}},
		{"a URL gives its host", "https://API.example.com/x", []string{"api.example.com", "payee:https://API.example.com/x"}},
		{"a host", "api.example.com", []string{"api.example.com", "payee:api.example.com"}},
		{"an account that looks like a host is both", "alice.near", []string{"alice.near", "payee:alice.near"}},
		{"a Hedera account reads as an IP address too", "0.0.12345", []string{"0.0.48.57", "payee:0.0.12345"}},
		{"a Solana address is nothing else", "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v", []string{"EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v"}},
		{"a long label without capitals is an address first", "paymentsofthewholebackend", []string{"paymentsofthewholebackend", "paymentsofthewholebackend."}},
		{"text that is neither", "seller one", []string{"payee:seller one"}},
		{"nothing", "", nil},
	} {
		got := Names(c.in)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
		if len(got) > 0 && Name(c.in) != got[0] {
			t.Errorf("%s: Name is %q, the first of Names %q", c.what, Name(c.in), got[0])
		}
	}
}

// Whatever a seller writes as its address and whatever is a host, the one never
// comes out as the name of the other.
func TestPayeesAndHostsNeverShareAName(t *testing.T) {
	text := rapid.OneOf(
		rapid.StringMatching(`[a-z0-9.:\[\]%@_-]{0,12}`),
		rapid.StringMatching(`(0[xX])?[a-zA-Z0-9]{20,45}\.?`),
		rapid.StringMatching(`0[xX][0-9a-fA-F]{40}`),
		rapid.SampledFrom([]string{"payee:x", "example.com", "0x7f.1", "::1", "payee", "2130706433"}),
		rapid.String(),
	)
	rapid.Check(t, func(t *rapid.T) {
		payTo, url := text.Draw(t, "pay_to"), text.Draw(t, "url")
		h, ok := Host(url)
		if !ok {
			return
		}
		if Payee(payTo) == hostName(h) {
			t.Fatalf("payee %q and host %q are both %q", payTo, url, hostName(h))
		}
	})
}

// A question about a name finds what was recorded under it: as a payee when it
// was a payee, as a host when it was a host.
func TestEveryRecordedNameIsFoundByTypingIt(t *testing.T) {
	text := rapid.OneOf(rapid.StringMatching(`[A-Za-z0-9.-]{1,40}`), rapid.StringMatching(`0[xX][0-9a-fA-F]{38,40}`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		s := text.Draw(t, "typed")
		names := Names(s)
		if p := Payee(s); p != "" && !slices.Contains(names, p) {
			t.Fatalf("%q as a payee is %q, not among %q", s, p, names)
		}
		address := addressLike(s) && s != strings.ToLower(s) // one letter's case is another payee
		if h, ok := Host(s); ok && !evm(s) && !address && !slices.Contains(names, hostName(h)) {
			t.Fatalf("%q as a host is %q, not among %q", s, hostName(h), names)
		}
	})
}

func TestCanonicalFormsAreCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringMatching(`(HTTPS?://)?([a-zA-Z0-9]+@)?[A-Za-zäßéЯ0-9.-]{1,20}(:[0-9]{0,4})?(/[a-zA-Z#?]*)?`)).Draw(t, "text")
		if h, ok := Host(s); ok {
			if again, ok := Host(h); !ok || again != h {
				t.Fatalf("Host(%q) = %q, and of that %q", s, h, again)
			}
		}
		if r := Resource(s); Resource(r) != r {
			t.Fatalf("Resource(%q) = %q, and of that %q", s, r, Resource(r))
		}
		id, _ := Network(s)
		if strings.Contains(id, "/") {
			t.Fatalf("Network(%q) = %q holds a slash", s, id)
		}
		if h, ok := Host(s); ok {
			if rh, ok := Host(Resource(s)); !ok || rh != h {
				t.Fatalf("the resource of %q has the host %q, not %q", s, rh, h)
			}
		}
	})
}

func TestNetwork(t *testing.T) {
	for word, want := range map[string]string{
		"base": "eip155:8453", "base-sepolia": "eip155:84532", "ethereum": "eip155:1", "mainnet": "eip155:1", "polygon": "eip155:137",
		"polygon-amoy": "eip155:80002", "arbitrum": "eip155:42161", "optimism": "eip155:10", "avalanche": "eip155:43114",
		"avalanche-fuji": "eip155:43113", "bsc": "eip155:56", "sei": "eip155:1329", "iotex": "eip155:4689", "peaq": "eip155:3338",
		"abstract": "eip155:2741", "solana": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", "solana-devnet": "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1",
		"solana:5eykt4UsFv8P8NJdTREpY1vzAqKqKvdp": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
		"eip155:8453":    "eip155:8453",
		"eip155:143":     "eip155:143",
		"cosmos:hub-3":   "cosmos:hub-3",
		"stellar:pubnet": "stellar:pubnet",
	} {
		if got, known := Network(word); got != want || !known {
			t.Errorf("Network(%q) = %q, %v; want %q", word, got, known, want)
		}
	}
	seen := make(map[string]string)
	for _, word := range []string{"Base", "BASE", "base ", "moonbase", "eip155:08453", "EIP155:8453", "eip155:", "eip155:8453x", ":1", "ei:1", "a/b", "a%2Fb", ""} {
		got, known := Network(word)
		if known || strings.Contains(got, "/") {
			t.Errorf("Network(%q) = %q, known", word, got)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q share the bucket %q", word, other, got)
		}
		seen[got] = word
	}
}

func TestAssetKey(t *testing.T) {
	for _, c := range []struct{ what, network, asset, want string }{
		{"word and address in any case", "base", "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"},
		{"a Solana mint keeps its case", "solana", "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v", solana + "/EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v"},
		{"a symbol is text, never looked up", "base", "USDC", "eip155:8453/USDC"},
		{"no network, no asset", "", "USDC", ""},
		{"no address, no asset", "base", "", ""},
		{"a network cannot reach into the address", "a/b", "c", "a%2Fb/c"},
		{"an address may hold a slash", "a", "b/c", "a/b/c"},
	} {
		if got := AssetKey(c.network, c.asset); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

func TestDisplayDropsTheMarks(t *testing.T) {
	for in, want := range map[string]string{
		"payee:alice.near": "alice.near", "api.example.com": "api.example.com", "": "",
		"abcdefghijklmnopqrstuvwxyz0.": "abcdefghijklmnopqrstuvwxyz0",
	} {
		if got := Display(in); got != want {
			t.Errorf("Display(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestTransactionHashes(t *testing.T) {
	for in, want := range map[string]string{
		"0xABcd": "0xabcd", "0Xab": "0xab", "0xab": "0xab", "0xZZ": "0xZZ", "0x": "0x",
		"5KtPn1LGuxhFiwjxErkxTb7XxtLVYUBe6Cn33ej7ATNV": "5KtPn1LGuxhFiwjxErkxTb7XxtLVYUBe6Cn33ej7ATNV",
	} {
		if got := transaction([]byte(in)); got != want {
			t.Errorf("transaction(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{
		"https://user@API.Example.com:443/x?y#z", "http://[::ffff:1.2.3.4]:80", "0x7f.1", "Bücher.example.", "mcp://tool/x",
		"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "alice.near", `https:\\a\b`, "xn--bcher-kva", "ex%61mple.com", "//h", "a:b@c:1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if h, ok := Host(s); ok {
			if again, ok := Host(h); !ok || again != h {
				t.Fatalf("Host(%q) = %q, and of that %q", s, h, again)
			}
			if Payee(s) == hostName(h) {
				t.Fatalf("%q is the same as a payee and as a host", s)
			}
		}
		if r := Resource(s); Resource(r) != r {
			t.Fatalf("Resource(%q) = %q, and of that %q", s, r, Resource(r))
		}
		for _, n := range Names(s) {
			if n == "" || len(n) > 2*maxText {
				t.Fatalf("Names(%q) holds %q", s, n)
			}
		}
		ChecksumOK(s)
		AssetKey(s, s)
	})
}
