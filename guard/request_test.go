package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

const (
	payee    = "0x209693bc6afc0c5328ba36faf03c514ef312287c"
	payeeMix = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C" // its EIP-55 spelling
	solPayee = "7ecDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV"
)

// twoAssets is a policy whose default asset is USDC on Base, with limits for USDT on
// Ethereum as well, and a third asset without.
const twoAssets = `{"assets": {"` + mainUSDT + `": {"symbol": "USDT", "decimals": 6}, "fiat/JPY": {"symbol": "JPY", "decimals": 0}},
	"assetPolicies": {"` + mainUSDT + `": {"reviewAbove": "1"}, "fiat/JPY": {"reviewAbove": "100"}}}`

func offerOf(members string) json.RawMessage {
	return json.RawMessage(`{"scheme": "exact", "network": "eip155:8453", "asset": "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "amount": "10000", "payTo": "` + payeeMix + `"` + members + `}`)
}

func TestReadGivesNamesAndMoneyInOneSpelling(t *testing.T) {
	p := mustPolicy(t, twoAssets)
	for _, c := range []struct {
		what string
		r    Request
		want Ask
	}{
		{"an address", Request{Counterparty: payeeMix, Amount: "0.05"}, Ask{
			Intent: decision.Intent{Names: []string{payee}, Amount: "50000", Asset: baseUSDC}, Typed: []string{payee}, Names: []string{payee},
		}},
		{"a host", Request{Counterparty: "API.Example.com:8443", Amount: "1.50"}, Ask{
			Intent: decision.Intent{Names: []string{"api.example.com"}, Amount: "1500000", Asset: baseUSDC},
			Typed:  []string{"api.example.com", "payee:API.Example.com:8443"},
			Names:  []string{"api.example.com", "payee:API.Example.com:8443", "payee:api.example.com"}, Hosts: []string{"api.example.com"},
		}},
		{"a URL, whose host counts", Request{Counterparty: "https://api.example.com/x", Amount: "1"}, Ask{
			Intent: decision.Intent{Names: []string{"api.example.com"}, Amount: "1000000", Asset: baseUSDC},
			Typed:  []string{"api.example.com", "payee:https://api.example.com/x"},
			Names:  []string{"api.example.com", "payee:api.example.com", "payee:https://api.example.com/x"}, Hosts: []string{"api.example.com"},
		}},
		{"a host, the address that will be paid, and the URL", Request{Counterparty: "example.com", PayTo: payeeMix, Resource: "HTTPS://CDN.example.com:443/w?q=1#top", Amount: "1"}, Ask{
			Intent: decision.Intent{Names: []string{payee, "cdn.example.com", "example.com"}, Amount: "1000000", Asset: baseUSDC, Resource: "https://cdn.example.com/w?q=1"},
			Typed:  []string{"example.com", "payee:example.com"}, PayTo: payee, Host: "cdn.example.com", Hosts: []string{"example.com"},
			Names: []string{payee, "cdn.example.com", "example.com", "payee:cdn.example.com", "payee:example.com"},
		}},
		{"a tool, which has no host", Request{Counterparty: payee, Resource: "mcp://tool/search", Amount: "1"}, Ask{
			Intent: decision.Intent{Names: []string{payee}, Amount: "1000000", Asset: baseUSDC, Resource: "mcp://tool/search"}, Typed: []string{payee}, Names: []string{payee},
		}},
		{"a tool by its bare name", Request{Counterparty: payee, Resource: "search", Amount: "1"}, Ask{
			Intent: decision.Intent{Names: []string{payee}, Amount: "1000000", Asset: baseUSDC, Resource: "search"}, Typed: []string{payee}, Names: []string{payee},
		}},
		{"an account with its prefix, as people are shown it", Request{Counterparty: "payee:alice.near", Amount: "1"}, Ask{
			Intent: decision.Intent{Names: []string{"payee:alice.near"}, Amount: "1000000", Asset: baseUSDC}, Typed: []string{"payee:alice.near"}, Names: []string{"payee:alice.near"},
		}},
		{"another asset by its symbol, and a template", Request{Counterparty: payee, Amount: "2", Asset: "USDT", Template: "escrow-arc"}, Ask{
			Intent: decision.Intent{Names: []string{payee}, Amount: "2000000", Asset: mainUSDT, Template: "escrow-arc"}, Typed: []string{payee}, Names: []string{payee}, Symbol: "USDT", Network: "eip155:1",
		}},
		{"the template that is judged by anyway", Request{Counterparty: payee, Amount: "2", Template: "x402-buyer"}, Ask{
			Intent: decision.Intent{Names: []string{payee}, Amount: "2000000", Asset: baseUSDC}, Typed: []string{payee}, Names: []string{payee},
		}},
	} {
		want := c.want
		want.Request, want.Decimals = c.r, 6
		if want.Network == "" {
			want.Network, want.Symbol = "eip155:8453", "USDC"
		}
		got, err := p.Read(c.r)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.what, diff)
		}
	}
}

func TestAliasesAreAmongTheNamesAndNotInTheIntent(t *testing.T) {
	p := mustPolicy(t, `{"counterpartyAliases": {"shop.example": ["`+payeeMix+`", "old.example"]}}`)
	a, err := p.Read(Request{Counterparty: "https://shop.example/x", Amount: "1", Resource: "https://shop.example/x"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{payee, "old.example", "payee:https://shop.example/x", "payee:old.example", "payee:shop.example", "shop.example"}; !slices.Equal(a.Names, want) {
		t.Errorf("names %q", a.Names)
	}
	if !slices.Equal(a.Intent.Names, []string{"shop.example"}) || a.Host != "shop.example" || !slices.Equal(a.Hosts, []string{"old.example"}) {
		t.Errorf("intent %q, host %q, hosts %q", a.Intent.Names, a.Host, a.Hosts)
	}
}

// What no verdict is given about (guard contract, section 1, the input table).
func TestRequestsThatAreRefused(t *testing.T) {
	p := mustPolicy(t, twoAssets)
	with := func(change func(*Request)) Request {
		r := Request{Counterparty: payee, Amount: "0.05"}
		change(&r)
		return r
	}
	offered := func(change func(*Request)) Request {
		r := Request{Offer: offerOf("")}
		change(&r)
		return r
	}
	long := strings.Repeat("a", maxText+1)
	for _, c := range []struct {
		what string
		r    Request
		says string
	}{
		{"nothing", Request{}, `"counterparty" is needed`},
		{"no amount", Request{Counterparty: payee}, `"amount" is needed`},
		{"no counterparty", Request{Amount: "1"}, `"counterparty" is needed`},
		{"a sign", with(func(r *Request) { r.Amount = "-1" }), "is no amount"},
		{"a plus", with(func(r *Request) { r.Amount = "+1" }), "is no amount"},
		{"an exponent", with(func(r *Request) { r.Amount = "1e6" }), "is no amount"},
		{"a leading zero", with(func(r *Request) { r.Amount = "01" }), "is no amount"},
		{"no whole part", with(func(r *Request) { r.Amount = ".5" }), "is no amount"},
		{"no fraction", with(func(r *Request) { r.Amount = "5." }), "is no amount"},
		{"a separator", with(func(r *Request) { r.Amount = "1,000" }), "is no amount"},
		{"padding", with(func(r *Request) { r.Amount = " 1" }), "is no amount"},
		{"a currency", with(func(r *Request) { r.Amount = "1 USDC" }), "is no amount"},
		{"digits of another script", with(func(r *Request) { r.Amount = "１" }), "is no amount"},
		{"a word", with(func(r *Request) { r.Amount = "NaN" }), "is no amount"},
		{"a long counterparty", with(func(r *Request) { r.Counterparty = long }), `"counterparty" is 2049 bytes`},
		{"a long amount", with(func(r *Request) { r.Amount = strings.Repeat("1", maxText+1) }), `"amount" is 2049 bytes`},
		{"a long asset", with(func(r *Request) { r.Asset = long }), `"asset" is 2049 bytes`},
		{"a long template", with(func(r *Request) { r.Template = long }), `"template" is 2049 bytes`},
		{"a long resource", with(func(r *Request) { r.Resource = long }), `"resource" is 2049 bytes`},
		{"a long pay_to", with(func(r *Request) { r.PayTo = long }), `"pay_to" is 2049 bytes`},
		{"a long review_id", with(func(r *Request) { r.ReviewID = long }), `"review_id" is 2049 bytes`},
		{"half a surrogate pair", with(func(r *Request) { r.Resource = "https://example.com/\xed\xa0\x80" }), "half of a surrogate pair"},
		{"bytes that are not UTF-8", with(func(r *Request) { r.Counterparty = "caf\xe9.example" }), "not UTF-8"},
		{"a padded address", with(func(r *Request) { r.Counterparty = " " + payee }), "white space"},
		{"an address with a zero width space", with(func(r *Request) { r.PayTo = payee + "\u200b" }), "cannot be seen"},
		{"a URL without a host", with(func(r *Request) { r.Counterparty = "https://" }), "URL without a host"},
		{"a tool as counterparty", with(func(r *Request) { r.Counterparty = "mcp://tool/search" }), "URL without a host"},
		{"an address behind its network", with(func(r *Request) { r.Counterparty = "eip155:8453:" + payee }), "names a network"},
		{"an address behind a word for it", with(func(r *Request) { r.PayTo = "base:" + payeeMix }), "names a network"},
		{"an account of a network without such addresses", with(func(r *Request) { r.Counterparty = "hedera:mainnet:0.0.1234567" }), "names a network"},
		{"an offer that pays to one", Request{Offer: json.RawMessage(strings.Replace(string(offerOf("")), payeeMix, "eip155:8453:"+payeeMix, 1))}, "names a network"},
		{"another address than the offer's", offered(func(r *Request) { r.Counterparty = "0x00000000000000000000000000000000000000aa" }), `"counterparty" is`},
		{"another account than the offer's", offered(func(r *Request) { r.Counterparty = "morphit:bob" }), `"counterparty" is`},
		{"another pay_to than the offer's", offered(func(r *Request) { r.PayTo = "0x00000000000000000000000000000000000000aa" }), `"pay_to" is`},
		{"the offer's host as pay_to", offered(func(r *Request) { r.PayTo = "api.example.com" }), `"pay_to" is`},
		{"another amount than the offer's", offered(func(r *Request) { r.Amount = "0.02" }), `"amount" is`},
		{"the offer's atomic amount", offered(func(r *Request) { r.Amount = "10000" }), `"amount" is`},
		{"more digits than the offer's asset has", offered(func(r *Request) { r.Amount = "0.0100000" }), `"amount" is`},
		{"no amount beside an offer", offered(func(r *Request) { r.Amount = "1e-2" }), "is no amount"},
		{"another symbol than the offer's", offered(func(r *Request) { r.Asset = "USDT" }), `"asset" is`},
		{"the symbol in another case", offered(func(r *Request) { r.Asset = "usdc" }), `"asset" is`},
		{"another key than the offer's", offered(func(r *Request) { r.Asset = mainUSDT }), `"asset" is`},
		{"the offer's token on another network", offered(func(r *Request) { r.Asset = "eip155:1/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913" }), `"asset" is`},
		{"another token's address", offered(func(r *Request) { r.Asset = "0xdac17f958d2ee523a2206206994597c13d831ec7" }), `"asset" is`},
		{"a symbol the policy knows for a token it does not know", Request{Asset: "USDC", Offer: json.RawMessage(strings.Replace(string(offerOf("")), "2913", "2914", 1))}, `"asset" is`},
	} {
		a, err := p.Read(c.r)
		if a != nil || err == nil {
			t.Errorf("%s: read as %+v", c.what, a)
			continue
		}
		if e := new(errcode.Error); !errors.As(err, &e) || e.Code != errcode.Input || !strings.Contains(e.Message, c.says) || e.Hint == "" {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// Money that has the right form and that the policy cannot read is a rule, never an
// error and never zero.
func TestMoneyThatCannotBeReadIsARule(t *testing.T) {
	p := mustPolicy(t, twoAssets)
	unknown := "0x0000000000000000000000000000000000000001"
	for _, c := range []struct {
		what                    string
		r                       Request
		rule, says, typed       string
		asset, symbol, network_ string
	}{
		{"zero", Request{Amount: "0"}, ruleUnparseable, "is zero", "0 " + baseUSDC, baseUSDC, "USDC", "eip155:8453"},
		{"zero with a fraction", Request{Amount: "0.000"}, ruleUnparseable, "is zero", "0 " + baseUSDC, baseUSDC, "USDC", "eip155:8453"},
		{"more fraction digits than decimals", Request{Amount: "0.0000001"}, ruleUnparseable, `"0.0000001" has 7 fraction digits, and USDC has 6`, "0.0000001 " + baseUSDC, baseUSDC, "USDC", "eip155:8453"},
		{"zeros beyond the decimals", Request{Amount: "1.0000000"}, ruleUnparseable, "7 fraction digits", "1 " + baseUSDC, baseUSDC, "USDC", "eip155:8453"},
		{"a fraction of what has none", Request{Amount: "1.5", Asset: "JPY"}, ruleUnparseable, "1 fraction digit, and JPY has 0", "1.5 fiat/JPY", "fiat/JPY", "JPY", "fiat"},
		{"more than there is", Request{Amount: strings.Repeat("9", 1020)}, ruleUnparseable, "larger than any", strings.Repeat("9", 1020) + " " + baseUSDC, baseUSDC, "USDC", "eip155:8453"},
		{"a symbol nobody bears", Request{Amount: "1.50", Asset: "DAI"}, ruleUnknownAsset, `"DAI"`, "1.5 DAI", "", "", ""},
		{"an address nobody registered", Request{Amount: "1", Asset: strings.ToUpper(unknown)}, ruleUnknownAsset, "not in the policy's assets", "1 " + unknown, "", "", ""},
		{"a key nobody registered", Request{Amount: "1", Asset: "base/" + unknown}, ruleUnknownAsset, "not in the policy's assets", "1 eip155:8453/" + unknown, "", "", "eip155:8453"},
		{"a key on a network nobody knows", Request{Amount: "1", Asset: "bsae/" + unknown}, ruleUnknownAsset, "not in the policy's assets", "1 bsae/" + unknown, "", "", "bsae"},
		{"an asset without limits", Request{Amount: "1.0", Asset: sepoliaUSDC}, ruleMismatch, "has none of its own in assetPolicies", "1 " + sepoliaUSDC, sepoliaUSDC, "USDC", "eip155:84532"},
		{"an asset without limits and no amount", Request{Amount: "0", Asset: sepoliaUSDC}, ruleMismatch, "has none of its own", "0 " + sepoliaUSDC, sepoliaUSDC, "USDC", "eip155:84532"},
	} {
		c.r.Counterparty = payee
		a, err := p.Read(c.r)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		if a.MoneyRule != c.rule || !strings.Contains(a.MoneyDetail, c.says) || a.Intent.Amount != "" || a.Intent.Typed != c.typed || a.Intent.Asset != c.asset || a.Symbol != c.symbol || a.Network != c.network_ {
			t.Errorf("%s: %s, %q, intent %+v, %s on %s", c.what, a.MoneyRule, a.MoneyDetail, a.Intent, a.Symbol, a.Network)
		}
		if got, want := a.Warnings, []string{warnNetwork}; (c.network_ == "bsae") != slices.Equal(got, want) {
			t.Errorf("%s: warnings %q", c.what, got)
		}
	}
}

func TestWhatAgreesWithAnOfferIsNoDisagreement(t *testing.T) {
	p := mustPolicy(t, twoAssets)
	alone, err := p.Read(Request{Offer: offerOf("")})
	if err != nil {
		t.Fatal(err)
	}
	if r := alone.Request; r.Counterparty != payeeMix || r.PayTo != payeeMix || r.Amount != "0.01" || r.Asset != baseUSDC || alone.Typed != nil || alone.PayTo != payee || alone.Intent.Amount != "10000" || alone.Scheme != "exact" {
		t.Errorf("%+v", alone)
	}
	for _, c := range []struct {
		what string
		r    Request
	}{
		{"its address", Request{Counterparty: payee}},
		{"its address in capitals", Request{Counterparty: "0X" + strings.ToUpper(payee[2:])}},
		{"its address as pay_to", Request{PayTo: payee}},
		{"its amount", Request{Amount: "0.01"}},
		{"its amount with zeros", Request{Amount: "0.010000"}},
		{"its asset's symbol", Request{Asset: "USDC"}},
		{"its asset's key", Request{Asset: "base/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"}},
		{"its token", Request{Asset: "0X833589FCD6EDB6E08F4C7C32D4F71B54BDA02913"}},
	} {
		c.r.Offer = offerOf("")
		a, err := p.Read(c.r)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
		} else if diff := cmp.Diff(alone.Intent, a.Intent); diff != "" {
			t.Errorf("%s changes the intent\n%s", c.what, diff)
		}
	}
	// The seller's host beside the offer is one name more, and no disagreement.
	a, err := p.Read(Request{Offer: offerOf(""), Counterparty: "https://api.example.com/x"})
	if err != nil || !slices.Equal(a.Intent.Names, []string{payee, "api.example.com"}) || a.Request.Counterparty != "https://api.example.com/x" {
		t.Errorf("%+v, %v", a, err)
	}
	// The offer says which of two assets of one symbol is meant.
	sepolia := json.RawMessage(strings.NewReplacer("8453", "84532", "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "0x036CbD53842c5426634e7929541eC2318f3dCF7e").Replace(string(offerOf(""))))
	if a, err = p.Read(Request{Offer: sepolia, Asset: "USDC"}); err != nil || a.MoneyRule != ruleMismatch {
		t.Errorf("%+v, %v", a, err)
	}
	// What the policy knows neither of contradicts nothing.
	strange := json.RawMessage(strings.Replace(string(offerOf("")), "2913", "2914", 1))
	for _, asset := range []string{"", "FOO", "0x833589fcd6edb6e08f4c7c32d4f71b54bda02914", "base/0x833589fcd6edb6e08f4c7c32d4f71b54bda02914"} {
		if a, err = p.Read(Request{Offer: strange, Asset: asset}); err != nil || a.MoneyRule != ruleUnknownAsset || a.Intent.Typed != "atomic 10000 eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02914" {
			t.Errorf("%q: %+v, %v", asset, a, err)
		}
	}
}

// Each file of testdata/request is one offer; what becomes of it is in
// offers.golden.
func TestOffers(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "request", "offer-*.json"))
	if err != nil || len(files) < 60 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	p := mustPolicy(t, twoAssets)
	var all strings.Builder
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		a, err := p.Read(Request{Offer: readFile(t, file)})
		if bad := strings.HasPrefix(name, "offer-bad-"); bad != (err != nil) {
			t.Errorf("%s: %+v, %v", name, a, err)
			continue
		}
		fmt.Fprintln(&all, strings.TrimPrefix(name, "offer-"))
		if err != nil {
			if e := new(errcode.Error); !errors.As(err, &e) || e.Code != errcode.Input {
				t.Errorf("%s: %v", name, err)
			}
			fmt.Fprintf(&all, "  %v\n", err)
			continue
		}
		intent, err := canon.Marshal(a.Intent)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "  %s\n  shown: %q %q, pay_to %q, %s, network %s, scheme %q\n", intent, a.Request.Counterparty, a.Request.Amount, a.PayTo, p.Display(a.Intent.Asset, a.Intent.Amount), a.Network, a.Scheme)
		if a.MoneyRule != "" {
			fmt.Fprintf(&all, "  %s: %s\n", a.MoneyRule, a.MoneyDetail)
		}
		if len(a.Warnings) > 0 {
			fmt.Fprintf(&all, "  warnings: %s\n", strings.Join(a.Warnings, ", "))
		}
	}
	goldenText(t, all.String(), "request", "offers.golden")
}

func TestAWrongChecksumIsAWarningWhereverItStands(t *testing.T) {
	p := DefaultPolicy()
	wrong := strings.Replace(payeeMix, "B", "b", 1)
	token := "0x833589FCD6eDb6E08f4c7C32D4f71b54bdA02913"
	for _, c := range []struct {
		what string
		r    Request
		want bool
	}{
		{"counterparty", Request{Counterparty: wrong, Amount: "1"}, true},
		{"pay_to", Request{Counterparty: "a.example", PayTo: wrong, Amount: "1"}, true},
		{"the token", Request{Counterparty: "a.example", Asset: token, Amount: "1"}, true},
		{"the token in a key", Request{Counterparty: "a.example", Asset: "base/" + token, Amount: "1"}, true},
		{"the offer's address", Request{Offer: json.RawMessage(strings.Replace(string(offerOf("")), payeeMix, wrong, 1))}, true},
		{"the address beside an offer with a right one", Request{Counterparty: wrong, Offer: offerOf("")}, true},
		{"none", Request{Counterparty: payeeMix, PayTo: payee, Asset: "USDC", Amount: "1"}, false},
		{"no address", Request{Counterparty: "a.example", PayTo: solPayee, Amount: "1"}, false},
	} {
		a, err := p.Read(c.r)
		if err != nil || slices.Contains(a.Warnings, warnChecksum) != c.want {
			t.Errorf("%s: %+v, %v", c.what, a, err)
		}
	}
}

func TestOnlyAURLHasAHost(t *testing.T) {
	for resource, want := range map[string]string{
		"": "", "search": "", "api.example.com": "", "api.example.com/x": "", "mcp://tool/x": "", "MCP://tool/x": "", "https://": "", "https://%zz/x": "", "1http://a.example": "", "a b://c.example": "", "://a.example": "",
		"https://A.example": "a.example", "WSS://a.example:443/x": "a.example", "https:a.example": "a.example", "ht\ntps://a.example/": "a.example", "grpc+x://a.example/x": "a.example", "https://[::1]:8080/": "::1",
		"https://0x7f.1/x": "127.0.0.1", "https://" + strings.ToLower(solPayee) + "/": strings.ToLower(solPayee) + ".",
	} {
		if got := resourceHost(resource); got != want {
			t.Errorf("%q has the host %q, want %q", resource, got, want)
		}
	}
}

func TestReadChangesNothingOfTheRequest(t *testing.T) {
	p := DefaultPolicy()
	r := Request{Offer: offerOf("")}
	before := string(r.Offer)
	if _, err := p.Read(r); err != nil || string(r.Offer) != before || r.Counterparty != "" {
		t.Errorf("%+v, %v", r, err)
	}
}

// spellings of one thing, each of which must be read as the first.
type spellings struct{ counterparty, payTo, asset, amount, resource []string }

func evmSpellings(t *rapid.T, label string) []string {
	digits := rapid.StringMatching(`[0-9a-f]{40}`).Draw(t, label)
	mixed := []byte(digits)
	for i := range mixed {
		if mixed[i] >= 'a' && rapid.Bool().Draw(t, "upper") {
			mixed[i] -= 'a' - 'A'
		}
	}
	return []string{"0x" + digits, "0X" + digits, "0x" + strings.ToUpper(digits), "0x" + string(mixed)}
}

func exactSpelling(t *rapid.T, label string) []string {
	return []string{rapid.StringMatching(`[1-9A-HJ-NP-Za-km-z]{32,44}`).Draw(t, label)}
}

func hostSpellings(t *rapid.T, label string) []string {
	host := rapid.StringMatching(`[a-z][a-z0-9]{0,8}\.(example|test|org)`).Draw(t, label)
	return []string{host, strings.ToUpper(host), host + ".", host + ":8443", "https://" + host, "http://" + host + "/a?b=c", "wss://user@" + host + "/", "HTTPS://" + strings.ToUpper(host) + ":443"}
}

func amountSpellings(t *rapid.T, label string) []string {
	atomic := rapid.StringMatching(`[1-9][0-9]{0,20}`).Draw(t, label)
	units := unscale(atomic, 6)
	whole, fraction, _ := strings.Cut(units, ".")
	return []string{units, shortDecimal(units), whole + "." + fraction + strings.Repeat("0", 6-len(fraction))}
}

func resourceSpellings(t *rapid.T, label string) []string {
	host := rapid.StringMatching(`[a-z]{1,6}\.example`).Draw(t, label)
	path := rapid.StringMatching(`/[A-Za-z]{0,4}(\?[a-z]=[A-Z])?`).Draw(t, label+" path")
	return []string{"https://" + host + path, "HTTPS://" + strings.ToUpper(host) + path, "https://" + host + ":443" + path + "#x", "https://me@" + host + "." + path}
}

func drawSpellings(t *rapid.T, label string) spellings {
	var s spellings
	s.counterparty = rapid.SampledFrom([]func(*rapid.T, string) []string{evmSpellings, exactSpelling, hostSpellings}).Draw(t, "kind of "+label)(t, label+" counterparty")
	s.payTo = rapid.SampledFrom([]func(*rapid.T, string) []string{evmSpellings, exactSpelling}).Draw(t, "kind of pay_to of "+label)(t, label+" pay_to")
	s.asset = rapid.SampledFrom([][]string{
		{"", "USDC", baseUSDC, "base/0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", "0X833589FCD6EDB6E08F4C7C32D4F71B54BDA02913"},
		{"USDT", mainUSDT, "ethereum/0xdAC17F958D2ee523a2206206994597C13D831ec7", "mainnet/0XDAC17F958D2EE523A2206206994597C13D831EC7", "0xdac17f958d2ee523a2206206994597c13d831ec7"},
	}).Draw(t, label+" asset")
	s.amount = amountSpellings(t, label+" amount")
	s.resource = resourceSpellings(t, label+" resource")
	return s
}

func (s spellings) request(pick func([]string) string) Request {
	return Request{Counterparty: pick(s.counterparty), PayTo: pick(s.payTo), Asset: pick(s.asset), Amount: pick(s.amount), Resource: pick(s.resource)}
}

func intentOf(t *rapid.T, p *Policy, r Request) string {
	a, err := p.Read(r)
	if err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	text, err := canon.Marshal(a.Intent)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(a.Intent.Names) || !slices.IsSorted(a.Names) {
		t.Fatalf("unsorted: %+v", a)
	}
	for _, name := range p.Expand(a.Intent.Names...) {
		if !slices.Contains(a.Names, name) {
			t.Fatalf("%q is not among the names %q of %q", name, a.Names, a.Intent.Names)
		}
	}
	return string(text)
}

// "Any two spellings of the same payee, host, asset, network and amount give the same
// intent; different ones never."
func TestAnIntentKnowsNoSpelling(t *testing.T) {
	p := mustPolicy(t, twoAssets)
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpellings(t, "one")
		first := func(all []string) string { return all[0] }
		any := func(all []string) string { return rapid.SampledFrom(all).Draw(t, "spelling") }
		if a, b := intentOf(t, p, s.request(first)), intentOf(t, p, s.request(any)); a != b {
			t.Fatalf("one intent became two\n%s\n%s", a, b)
		}
	})
}

func TestDifferentIntentsStayApart(t *testing.T) {
	p := mustPolicy(t, twoAssets)
	rapid.Check(t, func(t *rapid.T) {
		s, other := drawSpellings(t, "one"), drawSpellings(t, "other")
		pick := func(all []string) string { return rapid.SampledFrom(all).Draw(t, "spelling") }
		a := s.request(pick)
		b := s.request(pick)
		differ := false
		for what, member := range map[string]struct {
			of         *[]string
			from       []string
			into       *string
			sameMeaing bool
		}{
			"counterparty": {&s.counterparty, other.counterparty, &b.Counterparty, payment.Name(s.counterparty[0]) == payment.Name(other.counterparty[0])},
			"pay_to":       {&s.payTo, other.payTo, &b.PayTo, payment.Payee(s.payTo[0]) == payment.Payee(other.payTo[0])},
			"asset":        {&s.asset, other.asset, &b.Asset, s.asset[0] == other.asset[0]},
			"amount":       {&s.amount, other.amount, &b.Amount, s.amount[0] == other.amount[0]},
			"resource":     {&s.resource, other.resource, &b.Resource, payment.Resource(s.resource[0]) == payment.Resource(other.resource[0])},
		} {
			if rapid.Bool().Draw(t, "change "+what) {
				*member.into = pick(member.from)
				differ = differ || !member.sameMeaing
			}
		}
		ia, ib := intentOf(t, p, a), intentOf(t, p, b)
		if (ia != ib) != differ {
			t.Fatalf("differ: %v\n%+v\n%s\n%+v\n%s", differ, a, ia, b, ib)
		}
	})
}

// The letters of an address that is no EVM address, of a path and of a query count.
func TestOneLetterIsAnotherIntent(t *testing.T) {
	p := mustPolicy(t, twoAssets)
	seen := map[string]Request{}
	for _, r := range []Request{
		{Counterparty: solPayee, Amount: "1"}, {Counterparty: solPayee[:len(solPayee)-1] + "v", Amount: "1"}, {Counterparty: strings.ToLower(solPayee), Amount: "1"},
		{Counterparty: "a.example", Amount: "1"}, {Counterparty: "a.example", Amount: "1", PayTo: "a.example"}, {Counterparty: "payee:a.example", Amount: "1"},
		{Counterparty: "a.example", Amount: "1", Resource: "https://a.example/x"}, {Counterparty: "a.example", Amount: "1", Resource: "https://a.example/X"},
		{Counterparty: "a.example", Amount: "1", Resource: "https://a.example/x?y=1"}, {Counterparty: "a.example", Amount: "1", Resource: "http://a.example/x"},
		{Counterparty: "a.example", Amount: "1", Resource: "https://a.example:8443/x"}, {Counterparty: "a.example", Amount: "1", Resource: "search"}, {Counterparty: "a.example", Amount: "1", Resource: "mcp://tool/search"},
		{Counterparty: "a.example", Amount: "1.000001"}, {Counterparty: "a.example", Amount: "1", Asset: "USDT"}, {Counterparty: "a.example", Amount: "1", Asset: sepoliaUSDC}, {Counterparty: "a.example", Amount: "2", Asset: sepoliaUSDC},
		{Counterparty: "a.example", Amount: "1", Asset: "FOO"}, {Counterparty: "a.example", Amount: "1", Asset: "foo"}, {Counterparty: "a.example", Amount: "2", Asset: "FOO"}, {Counterparty: "a.example", Amount: "0"},
		{Counterparty: "a.example", Amount: "0.0000001"}, {Counterparty: "a.example", Amount: "0.0000002"},
	} {
		a, err := p.Read(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := canon.Marshal(a.Intent)
		if err != nil {
			t.Fatal(err)
		}
		if first, twice := seen[string(text)]; twice {
			t.Errorf("%+v and %+v are one intent: %s", first, r, text)
		}
		seen[string(text)] = r
	}
}

func TestOffersAreReadExactly(t *testing.T) {
	p := mustPolicy(t, twoAssets)
	rapid.Check(t, func(t *rapid.T) {
		atomic := rapid.StringMatching(`[1-9][0-9]{0,90}`).Draw(t, "atomic")
		payTo := rapid.SampledFrom(evmSpellings(t, "pay to")).Draw(t, "spelling")
		network := rapid.SampledFrom([]string{"base", "eip155:8453"}).Draw(t, "network")
		payKey := rapid.SampledFrom([]string{"payTo", "pay_to"}).Draw(t, "pay member")
		amountKey := rapid.SampledFrom([]string{"amount", "maxAmountRequired"}).Draw(t, "amount member")
		offer, err := json.Marshal(map[string]any{payKey: payTo, amountKey: atomic, "network": network, "asset": "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913", "scheme": "exact", "extra": map[string]any{"amount": "7"}})
		if err != nil {
			t.Fatal(err)
		}
		a, err := p.Read(Request{Offer: offer})
		if err != nil || a.MoneyRule != "" || a.Intent.Amount != atomic || a.Intent.Asset != baseUSDC || a.PayTo != strings.ToLower(payTo) {
			t.Fatalf("%s: %+v, %v", offer, a, err)
		}
		// Asked in words it is the same payment, also where it cannot be judged.
		b, err := p.Read(Request{Counterparty: payTo, PayTo: payTo, Amount: a.Request.Amount})
		if err != nil || !cmp.Equal(a.Intent, b.Intent) {
			t.Fatalf("%s\n%+v\n%+v, %v", offer, a.Intent, b, err)
		}
		q := mustPolicy(t, `{"assets": {"fiat/EUR": {"decimals": 2}}, "defaultAsset": "fiat/EUR"}`)
		a, err = q.Read(Request{Offer: offer})
		if err != nil || a.MoneyRule != ruleMismatch || a.Intent.Amount != "" {
			t.Fatalf("%s: %+v, %v", offer, a, err)
		}
		b, err = q.Read(Request{Counterparty: payTo, PayTo: payTo, Amount: a.Request.Amount, Asset: baseUSDC})
		if err != nil || !cmp.Equal(a.Intent, b.Intent) {
			t.Fatalf("%s\n%+v\n%+v, %v", offer, a.Intent, b, err)
		}
	})
}

// Whatever is asked, Read gives either an error of input or an intent that the log
// can hold, with an amount above zero or a rule that says why there is none.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "request", "offer-*.json"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add("", "", "", "", "", text)
	}
	f.Add("https://api.example.com/x", "1.50", "USDC", "https://api.example.com/x?y", payeeMix, []byte(nil))
	f.Add(solPayee, "0.000001", mainUSDT, "mcp://tool/x", "0.0.1234", []byte(nil))
	f.Add("alice.near", "1", "fiat/JPY", "search", "payee:x", []byte(nil))
	p, err := ParsePolicy([]byte(twoAssets))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, counterparty, amount, asset, resource, payTo string, offer []byte) {
		r := Request{Counterparty: counterparty, Amount: amount, Asset: asset, Resource: resource, PayTo: payTo, Offer: offer}
		a, err := p.Read(r)
		if err != nil {
			if e := new(errcode.Error); a != nil || !errors.As(err, &e) || e.Code != errcode.Input {
				t.Fatalf("%+v, %v", a, err)
			}
			return
		}
		if _, err := canon.Marshal(a.Intent); err != nil {
			t.Fatalf("%+v cannot be logged: %v", a.Intent, err)
		}
		_, readable := payment.Amount(a.Intent.Amount)
		switch {
		case len(a.Intent.Names) == 0 || len(a.Names) == 0:
			t.Fatalf("nobody is paid: %+v", a)
		case a.MoneyRule == "" && (!readable || a.Intent.Amount == "0" || a.Intent.Typed != "" || a.Intent.Asset == ""):
			t.Fatalf("no money and no rule: %+v", a)
		case a.MoneyRule != "" && (a.Intent.Amount != "" || a.Intent.Typed == "" || a.MoneyDetail == ""):
			t.Fatalf("money and a rule: %+v", a)
		}
		if a.MoneyRule != "" {
			return
		}
		// What people are shown is what was read.
		back, err := p.Atomic(a.Intent.Asset, a.Request.Amount)
		if err != nil || back != a.Intent.Amount {
			t.Fatalf("shown as %s, which is %s (%v), not %s", a.Request.Amount, back, err, a.Intent.Amount)
		}
	})
}
