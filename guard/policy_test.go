package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

var updatePolicy = flag.Bool("update-policy", false, "write the golden files of testdata/policy and testdata/request again")

const (
	baseUSDC    = "eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
	sepoliaUSDC = "eip155:84532/0x036cbd53842c5426634e7929541ec2318f3dcf7e"
	mainUSDT    = "eip155:1/0xdac17f958d2ee523a2206206994597c13d831ec7"
)

func mustPolicy(t interface {
	Helper()
	Fatalf(string, ...any)
}, src string) *Policy {
	t.Helper()
	p, err := ParsePolicy([]byte(src))
	if err != nil {
		t.Fatalf("%s\n%v", src, err)
	}
	return p
}

func readFile(t *testing.T, path ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// goldenText compares with a file of testdata, or writes it.
func goldenText(t *testing.T, got string, path ...string) {
	t.Helper()
	file := filepath.Join(append([]string{"testdata"}, path...)...)
	if *updatePolicy {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(readFile(t, file)), got); diff != "" {
		t.Errorf("%s (-want +got; -update-policy writes it)\n%s", file, diff)
	}
}

// The defaults of the guard contract, section 2.
func TestAnEmptyFileIsThePolicyOfTheContract(t *testing.T) {
	p := mustPolicy(t, "{}")
	want := &Policy{
		PerCounterparty: Cap{Amount: "5.00", Atomic: "5000000", WindowHours: 24}, MaxOpenPartial: 0,
		ReviewAbove: "1.00", ReviewAboveAtomic: "1000000", DefaultAsset: baseUSDC,
		Assets:        map[string]Asset{baseUSDC: {"USDC", 6}, sepoliaUSDC: {"USDC", 6}},
		AssetPolicies: map[string]AssetPolicy{}, StickyRejectHours: 24, ReviewExpiryHours: 24, MaxPendingReviews: 50, PriceDriftRatio: "10",
		BlindOperations: "review", Holds: "asked", HoldSeconds: 600, LogAllows: true, Damage: "review",
		Aliases: map[string][]string{}, ToolPolicies: map[string]json.RawMessage{},
	}
	ignore := cmp.FilterPath(func(path cmp.Path) bool {
		return slices.Contains([]string{"given", "where", "notes"}, strings.TrimPrefix(path.Last().String(), "."))
	}, cmp.Ignore())
	if diff := cmp.Diff(want, p, ignore, cmp.AllowUnexported(Policy{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff(p, DefaultPolicy(), cmp.AllowUnexported(Policy{})); diff != "" {
		t.Errorf("DefaultPolicy is another policy: %s", diff)
	}
	if got := p.Hash(); got != DefaultPolicy().Hash() || len(got) != 64 {
		t.Errorf("hash %s", got)
	}
}

func TestEveryMemberIsRead(t *testing.T) {
	p, err := ParsePolicy(readFile(t, "testdata", "policy", "good-everything.json"))
	if err != nil {
		t.Fatal(err)
	}
	account := "0x00000000000000000000000000000000000000"
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"the allowlist holds the likeliest reading of each entry", p.Allowlist, []string{"0.0.4.210", "api.example.com", "payee:0.0.1234", "payee:alice.near"}},
		{"the denylist holds every reading", p.Denylist, []string{account + "aa", "evil.example", "payee:evil.example"}},
		{"the cap", p.PerCounterparty, Cap{"20.00", "20000000", 168}},
		{"open ones", p.MaxOpenPartial, 2},
		{"review above", []string{p.ReviewAbove, p.ReviewAboveAtomic}, []string{"2.50", "2500000"}},
		{"the default asset by a word of version 1", p.DefaultAsset, baseUSDC},
		{"assets", p.Assets, map[string]Asset{
			baseUSDC: {"USDC", 6}, sepoliaUSDC: {"USDC", 6}, mainUSDT: {"USDT", 6}, "fiat/EUR": {"EUR", 2},
			"solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp/EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v": {"USDC", 6},
			"eip155:8453/0x4200000000000000000000000000000000000006":                               {"", 18},
		}},
		{"asset policies, with nothing assumed", p.AssetPolicies, map[string]AssetPolicy{
			mainUSDT:   {Cap{"7.00", "7000000", 1}, "3.000001", "3000001"},
			"fiat/EUR": {Cap{"0.00", "0", 24}, "0.00", "0"},
		}},
		{"limits in the order of the file", p.Limits, []Limit{
			{Name: "daily total", Scope: "total", Asset: baseUSDC, Amount: "25.00", Atomic: "25000000", WindowHours: 24, Action: "block", Mode: "enforce"},
			{Name: "busy", Scope: "host", Count: 100, WindowHours: 1, Action: "review", Mode: "shadow"},
			{Name: "tether", Scope: "asset", Asset: mainUSDT, Amount: "50.00", Atomic: "50000000", Count: 10, WindowHours: 24, Action: "review", Mode: "enforce"},
		}},
		{"hours", []int{p.StickyRejectHours, p.ReviewExpiryHours}, []int{48, 12}},
		{"pending", p.MaxPendingReviews, 5},
		{"drift", p.PriceDriftRatio, "2.5"},
		{"flags", []bool{p.TrustDefiniteFailures, p.TrustSettledAmounts, p.LogAllows}, []bool{true, true, false}},
		{"words", []string{p.BlindOperations, p.Holds, p.Damage}, []string{"ignore", "always", "ignore"}},
		{"hold seconds", p.HoldSeconds, 60},
		{"operators", []string{p.Operators[0].Name, p.Operators[1].Name}, []string{"ana", "ana"}},
		{"an operator's end, in UTC", []time.Time{p.Operators[0].Until, p.Operators[1].Until}, []time.Time{time.Date(2030, 1, 31, 11, 0, 0, 0, time.UTC), {}}},
		{"an operator's key", p.Operators[0].PublicKey, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="},
		{"the review address", p.ReviewURL, "https://reviews.example.com/{review_id}"},
		{"aliases of a host", p.Group("api.example.com"), []string{account + "bb", "alice.near", "api.example.com", "payee:alice.near", "payee:api.example.com"}},
		{"aliases of an account", p.Group("payee:morphit:bob"), []string{account + "cc", "payee:morphit:bob"}},
		{"a name without aliases", p.Group("shop.example"), []string{"shop.example"}},
		{"the gate, without comments", p.SpendGate, &approval.Gate{Version: p.SpendGate.Version, MaxNotional: "500", DailyCap: "2500", HITLThreshold: "250", MinConfidence: "0.55",
			PerAssetLimits: map[string]string{"USDC": "100.5"}}},
		{"tool policies as canonical JSON, without comments", p.ToolPolicies, map[string]json.RawMessage{"shell": json.RawMessage(`{"allowed_tools":["run"],"max_ttl_seconds":300,"version":"1"}`)}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", c.what, diff)
		}
	}
}

// compatibility: "the policy file is read as it is".
func TestAPublishedPolicyIsReadAsItIs(t *testing.T) {
	p, err := ParsePolicy(readFile(t, "testdata", "policy", "good-published.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.Allowlist, []string{"0xdd3aa35c7f5f8d0be32e7d382e6fab3d8bfa3a5c", "api.example.com"}; !slices.Equal(got, want) {
		t.Errorf("allowlist %q", got)
	}
	if p.DefaultAsset != sepoliaUSDC || p.PerCounterparty != (Cap{"2.50", "2500000", 48}) || p.ReviewAboveAtomic != "500000" || p.MaxOpenPartial != 1 {
		t.Errorf("%+v", p)
	}
	if a := p.Assets["eip155:137/0x3c499c542cef5e3811e1192ce70d8cc03d5c3359"]; a != (Asset{"USDC", 6}) {
		t.Errorf("asset %+v", a)
	}
}

// Each file of testdata/policy/bad-*.json has one fault; what is said of it is in
// bad.golden.
func TestEveryFaultIsNamedWithItsPath(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "policy", "bad-*.json"))
	if err != nil || len(files) < 100 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	var all strings.Builder
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		p, err := ParsePolicy(readFile(t, file))
		var faults *PolicyError
		e := new(errcode.Error)
		switch {
		case err == nil:
			t.Errorf("%s is read: %s", name, p.Effective())
			continue
		case !errors.As(err, &faults) || !errors.As(err, &e) || e.Code != errcode.Policy:
			t.Errorf("%s: %v is no E_POLICY around faults", name, err)
			continue
		case p != nil:
			t.Errorf("%s: a policy comes with the error", name)
		case len(faults.Faults) != 1:
			t.Errorf("%s has more than its one fault: %v", name, err)
		}
		if !strings.HasPrefix(faults.Faults[0].Path, "$") {
			t.Errorf("%s: path %q", name, faults.Faults[0].Path)
		}
		fmt.Fprintf(&all, "%s\n  %s\n", strings.TrimPrefix(name, "bad-"), strings.ReplaceAll(err.Error(), "\n", "\n  "))
	}
	goldenText(t, all.String(), "policy", "bad.golden")
}

func TestAllFaultsAreReportedInTheOrderOfTheFile(t *testing.T) {
	_, err := ParsePolicy([]byte(`{
  "limits": [{"name": "a", "scope": "total", "amount": "ten"}, {"scope": "host", "count": 0, "windowHours": "1"}],
  "Holds": "always",
  "reviewAbove": 1,
  "assets": {"eip155:1/0xdac17f958d2ee523a2206206994597c13d831ec7": {"symbol": "USDT"}},
  "perCounterpartyLimit": {"windowHours": 0, "amount": "-1"},
  "spendGate": {"max_notional": "1"}
}`))
	var faults *PolicyError
	if !errors.As(err, &faults) {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range faults.Faults {
		paths = append(paths, f.Path)
	}
	want := []string{"$.limits[0].amount", "$.limits[1]", "$.limits[1].count", "$.limits[1].windowHours", "$.Holds", "$.reviewAbove",
		`$.assets["eip155:1/0xdac17f958d2ee523a2206206994597c13d831ec7"]`, "$.perCounterpartyLimit.windowHours", "$.perCounterpartyLimit.amount", "$.spendGate"}
	for i := range paths {
		paths[i], _, _ = strings.Cut(paths[i], ".max_")
		paths[i], _, _ = strings.Cut(paths[i], ".daily_")
	}
	if !slices.Equal(paths, want) {
		t.Errorf("paths\n%q, want\n%q", paths, want)
	}
	lines := strings.Split(errcode.Of(err).Message, "\n")
	if len(lines) != len(want) || !strings.HasPrefix(lines[0], "$.limits[0].amount: ") {
		t.Errorf("message\n%s", errcode.Of(err).Message)
	}
}

func TestAFloodOfFaultsEndsInACount(t *testing.T) {
	var src strings.Builder
	src.WriteString(`{"denylist": [0`)
	for range 500 {
		src.WriteString(", 1")
	}
	src.WriteString("]}")
	_, err := ParsePolicy([]byte(src.String()))
	lines := strings.Split(errcode.Of(err).Message, "\n")
	if len(lines) != maxFaults+1 || lines[maxFaults] != "and 401 more" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

func TestAHintNamesTheMemberThatWasMeant(t *testing.T) {
	for wrong, want := range map[string]string{
		"allowList": `"allowlist"`, "ALLOWLIST": `"allowlist"`, "allow_list": `"allowlist"`, "deny-list": `"denylist"`, "denlyist": `"denylist"`,
		"review_above": `"reviewAbove"`, "reviewAbvoe": `"reviewAbove"`, "reviewUri": `"reviewUrl"`, "per_counterparty_limit": `"perCounterpartyLimit"`,
		"hold": `"holds"`, "aliases": "one of allowlist, ",
	} {
		_, err := ParsePolicy(fmt.Appendf(nil, `{%q: 1}`, wrong))
		if hint := errcode.Of(err).Hint; !strings.Contains(hint, want) {
			t.Errorf("%s: %s", wrong, hint)
		}
	}
}

func TestDistanceCountsLetters(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"holds", "holds", 0}, {"hodls", "holds", 1}, {"hold", "holds", 1}, {"folds", "holds", 1}, {"lohds", "holds", 2}, {"abcdef", "ab", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q are %d", c.a, c.b, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-c]{0,6}`)
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		if d := distance(a, b); d != distance(b, a) || (d == 0) != (a == b) {
			t.Fatalf("from %q to %q are %d, back %d", a, b, d, distance(b, a))
		}
	})
}

func TestASyntaxErrorSaysLineAndColumn(t *testing.T) {
	_, err := ParsePolicy([]byte("{\n  \"é\": \"é\" \"x\"\n}"))
	if e := errcode.Of(err); !strings.HasPrefix(e.Message, "$: line 2, column 12: ") {
		t.Error(err)
	}
}

func TestWhatAPersonShouldLookAtIsNoFault(t *testing.T) {
	p := mustPolicy(t, `{
  "allowlist": ["https://shared.example/seller-a", "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeD", "good.example:8443", "https://good.example/"],
  "denylist": ["ana@evil.example"],
  "assets": {"bsae/0xDAc17F958D2ee523a2206206994597C13D831ec7": {"decimals": 6}, "eip155:1/0xDAc17F958D2ee523a2206206994597C13D831ec7": {"decimals": 6}},
  "counterpartyAliases": {"a.example": ["https://b.example/x"]}
}`)
	got := map[string]int{}
	for _, s := range p.Explain() {
		got[s.Path] = len(s.Warnings)
	}
	for path, want := range map[string]int{
		"$.allowlist": 2, "$.denylist": 1, `$.assets["bsae/0xDAc17F958D2ee523a2206206994597C13D831ec7"]`: 1,
		`$.assets["eip155:1/0xDAc17F958D2ee523a2206206994597C13D831ec7"]`: 1, `$.counterpartyAliases["a.example"]`: 1,
	} {
		if got[path] != want {
			t.Errorf("%s has %d warnings, want %d", path, got[path], want)
		}
	}
}

func TestAnAssetPolicyIsUnderItsAssetsDecimals(t *testing.T) {
	p := mustPolicy(t, `{"assets": {"fiat/JPY": {"symbol": "JPY", "decimals": 0}, "eip155:8453/0x4200000000000000000000000000000000000006": {"symbol": "WETH", "decimals": 18}},
		"defaultAsset": "fiat/JPY", "assetPolicies": {"base/0x4200000000000000000000000000000000000006": {"reviewAbove": "0.000000000000000001"}}}`)
	// The default numbers are read in the default asset, whichever that is.
	if p.PerCounterparty != (Cap{"5", "5", 24}) || p.ReviewAbove != "1" || p.ReviewAboveAtomic != "1" {
		t.Errorf("%+v, review above %s", p.PerCounterparty, p.ReviewAbove)
	}
	limit, above, ok := p.CapOf("eip155:8453/0x4200000000000000000000000000000000000006")
	if !ok || above != "1" || limit != (Cap{"0.00", "0", 24}) {
		t.Errorf("%+v, %s, %v", limit, above, ok)
	}
	if limit, above, ok = p.CapOf("fiat/JPY"); !ok || above != "1" || limit.Atomic != "5" {
		t.Errorf("%+v, %s, %v", limit, above, ok)
	}
	if _, _, ok := p.CapOf(baseUSDC); ok {
		t.Error("an asset that has no limits has some")
	}
	if _, _, ok := p.CapOf(""); ok {
		t.Error("no asset has limits")
	}
}

func TestHashIsThatOfTheEffectivePolicy(t *testing.T) {
	for _, name := range []string{"empty-object", "published", "everything"} {
		p, err := ParsePolicy(readFile(t, "testdata", "policy", "good-"+name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		text := p.Effective()
		if hash, err := canon.HashText(text, canon.JCS); err != nil || hash != p.Hash() {
			t.Errorf("%s: %s, %v, want %s", name, hash, err, p.Hash())
		}
		again, err := ParsePolicy(text)
		if err != nil {
			t.Fatalf("%s: what it means cannot be read: %v\n%s", name, err, text)
		}
		if diff := cmp.Diff(string(text), string(again.Effective())); diff != "" {
			t.Errorf("%s: read again it is another policy\n%s", name, diff)
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, text, "", "  "); err != nil {
			t.Fatal(err)
		}
		goldenText(t, p.Hash()+"\n"+indented.String()+"\n", "policy", name+".golden")
	}
}

func TestHashKnowsNoSpelling(t *testing.T) {
	for _, same := range [][]string{
		{`{}`, " {\n} ", `{"reviewAbove": "1.00"}`, `{"reviewAbove": "1"}`, `{"reviewAbove": "1.000000"}`, `{"allowlist": [], "holds": "asked"}`, `{"$comment": "nothing"}`,
			`{"stickyRejectHours": 24.0}`, `{"defaultAsset": "base/0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"}`, `{"perCounterpartyLimit": {}}`, `{"priceDriftRatio": "10.0"}`,
			`{"assets": {"base/0X833589FCD6EDB6E08F4C7C32D4F71B54BDA02913": {}}}`},
		{`{"holds": "always", "damage": "ignore"}`, `{"damage": "ignore", "holds": "always"}`, `{"d\u0061mage": "ignore", "holds": "alway\u0073"}`},
		{`{"denylist": ["shop.example", "b.example"]}`, `{"denylist": ["b.example", "https://SHOP.example:443/", "shop.example."]}`, `{"denylist": ["Shop.Example", "b.example", "shop.example"]}`,
			`{"denylist": ["shop.example", "payee:shop.example", "b.example"]}`},
		{`{"allowlist": ["0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"]}`, `{"allowlist": ["0X5AAEB6053F3E94C9B9A09F33669435E7EF1BEAED"]}`},
		{`{"counterpartyAliases": {"a.example": ["b.example", "c.example"]}}`, `{"counterpartyAliases": {"C.example": ["b.example", "a.example", "a.example"]}}`},
		{`{"limits": [{"name": "n", "scope": "total", "amount": "1.50", "windowHours": 24, "action": "review", "mode": "enforce"}]}`, `{"limits": [{"scope": "total", "name": "n", "amount": "1.5"}]}`,
			`{"limits": [{"scope": "total", "name": "n", "amount": "1.5", "asset": "` + baseUSDC + `"}]}`},
		{`{"spendGate": {"max_notional": "1.0", "daily_cap": "2", "hitl_threshold": "3.50", "min_confidence": "0.5"}}`, `{"spendGate": {"min_confidence": "0.50", "daily_cap": "2.00", "hitl_threshold": "3.5", "max_notional": "1"}}`},
		{`{"toolPolicies": {"x": {"version": "1", "allowed_tools": ["t"], "max_ttl_seconds": 60.0}}}`,
			`{"toolPolicies": {"x": {"allowed_tools": ["t"], "$comment": "x", "max_ttl_seconds": 6e1, "version": "1"}}}`},
	} {
		for _, src := range same[1:] {
			if a, b := mustPolicy(t, same[0]), mustPolicy(t, src); a.Hash() != b.Hash() {
				t.Errorf("%s and %s are one policy\n%s", same[0], src, cmp.Diff(string(a.Effective()), string(b.Effective())))
			}
		}
	}
}

func TestHashTellsPoliciesApart(t *testing.T) {
	other := func(member string) string { return "{" + member + "}" }
	seen := map[string]string{DefaultPolicy().Hash(): "{}"}
	usdt := `"assets": {"` + mainUSDT + `": {"decimals": 6}}`
	limit := func(more string) string { return `"limits": [{"name": "n", "scope": "total", ` + more + `}]` }
	group := func(more string) string { return `"counterpartyAliases": {"a.example": [` + more + `]}` }
	operator := `{"name": "ana", "publicKey": "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="`
	tool := func(more string) string {
		return `"toolPolicies": {"x": {"version": "1", "allowed_tools": ["t"]` + more + `}}`
	}
	gate := func(cap string) string {
		return `"spendGate": {"max_notional": "1", "daily_cap": "` + cap + `", "hitl_threshold": "3", "min_confidence": "0.5"}`
	}
	for _, src := range []string{
		`"allowlist": ["a.example"]`, `"allowlist": ["b.example"]`, `"allowlist": ["payee:a.example"]`, `"denylist": ["a.example"]`, `"denylist": ["payee:a.example"]`,
		`"perCounterpartyLimit": {"amount": "5.000001"}`, `"perCounterpartyLimit": {"windowHours": 25}`, `"maxOpenPartialPerCounterparty": 1`, `"reviewAbove": "0.999999"`,
		`"defaultAsset": "` + sepoliaUSDC + `"`, usdt, usdt + `, "assetPolicies": {"` + mainUSDT + `": {}}`, usdt + `, "assetPolicies": {"` + mainUSDT + `": {"reviewAbove": "1"}}`,
		limit(`"amount": "1"`), limit(`"count": 1`), limit(`"count": 1, "asset": "` + baseUSDC + `"`), limit(`"amount": "1", "action": "block"`), limit(`"amount": "1", "mode": "shadow"`),
		limit(`"amount": "1", "windowHours": 1`), `"stickyRejectHours": 1`, `"reviewExpiryHours": 1`, `"maxPendingReviews": 1`, `"priceDriftRatio": "9.5"`, `"trustDefiniteFailures": true`,
		`"trustSettledAmounts": true`, `"blindOperations": "ignore"`, `"holds": "always"`, `"holdSeconds": 1`, `"logAllows": false`, `"damage": "ignore"`,
		`"operators": [` + operator + `}]`, `"operators": [` + operator + `, "until": "2030-01-01T00:00:00Z"}]`, `"reviewUrl": "https://a.example/"`, group(`"b.example"`), group(`"c.example"`),
		gate("1"), gate("2"), tool(""), tool(`, "redact": ["b"]`), tool(`, "redact": {"t": ["b"]}`), tool(`, "always_require_receipt": ["t"]`),
	} {
		hash := mustPolicy(t, other(src)).Hash()
		if first, twice := seen[hash]; twice {
			t.Errorf("%s and %s have one hash", first, src)
		}
		seen[hash] = src
	}
}

func TestEveryMemberIsExplained(t *testing.T) {
	for _, name := range []string{"empty-object", "everything"} {
		p, err := ParsePolicy(readFile(t, "testdata", "policy", "good-"+name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		var order []string
		for _, s := range p.Explain() {
			top := strings.FieldsFunc(s.Path, func(c rune) bool { return strings.ContainsRune("$.[", c) })[0]
			if !slices.Contains(order, top) {
				order = append(order, top)
			}
			if s.Path == "" || s.Value == "" || s.Means == "" {
				t.Errorf("%s: %+v", name, s)
			}
			if name == "empty-object" && !s.Default {
				t.Errorf("%s comes from no file", s.Path)
			}
			fmt.Fprintf(&text, "%s = %s\n", s.Path, s.Value)
			if s.Default {
				text.WriteString("  (default)\n")
			}
			fmt.Fprintf(&text, "  %s\n", s.Means)
			for _, w := range s.Warnings {
				fmt.Fprintf(&text, "  ! %s\n", w)
			}
		}
		if !slices.Equal(order, policyMembers) {
			t.Errorf("%s: explained are %q, want %q", name, order, policyMembers)
		}
		goldenText(t, text.String(), "policy", name+".explained")
	}
}

func TestTheStarterPolicyIsAPolicyWithATotalPerDay(t *testing.T) {
	for _, dir := range []string{"/home/ana/traces", `/tmp/"quotes" and \ more`, "/tmp/ill-formed-\xff", "/tmp/line\nbreak", ""} {
		src := StarterPolicy(dir)
		p := mustPolicy(t, string(src))
		if len(p.Limits) != 1 || p.Limits[0].Scope != "total" || p.Limits[0].WindowHours != 24 || p.Limits[0].Atomic == "" || p.Limits[0].Mode != "enforce" {
			t.Errorf("limits %+v", p.Limits)
		}
		p.Limits = nil
		if p.Hash() != DefaultPolicy().Hash() {
			t.Error("beside the limit it is not the default policy")
		}
		if dir == "/home/ana/traces" {
			if !bytes.Contains(src, []byte(dir)) || !bytes.Contains(src, []byte(commentKey)) {
				t.Errorf("it does not name its root, or has no comments:\n%s", src)
			}
			goldenText(t, string(src), "policy", "starter.golden")
		}
	}
}

// whatever a list in the policy names is met when the same text is asked about.
func TestWhatIsDeniedAsTypedIsDeniedAsTyped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := anyName().Draw(t, "name")
		src, err := json.Marshal(map[string]any{"denylist": []string{text}, "allowlist": []string{text}})
		if err != nil {
			t.Fatal(err)
		}
		p, err := ParsePolicy(src)
		if err != nil {
			t.Skip(err)
		}
		for _, r := range []Request{{Counterparty: text}, {Counterparty: "0x00000000000000000000000000000000000000ff", PayTo: text}} {
			if strings.HasPrefix(text, accountPrefix) {
				r.PayTo = strings.TrimPrefix(r.PayTo, accountPrefix)
			}
			r.Amount = "0.01"
			a, err := p.Read(r)
			if err != nil {
				t.Fatalf("%+v: %v", r, err)
			}
			if !slices.ContainsFunc(a.Names, func(name string) bool { return slices.Contains(p.Denylist, name) }) {
				t.Fatalf("%q is denied by %q, but passes as %q", text, p.Denylist, a.Names)
			}
			if r.PayTo == "" && !slices.ContainsFunc(a.Typed, func(name string) bool { return slices.Contains(p.Allowlist, name) }) {
				t.Fatalf("%q is allowed by %q, but refused as %q", text, p.Allowlist, a.Typed)
			}
		}
	})
}

// anyName is text that may stand for a counterparty.
func anyName() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringMatching(`0[xX][0-9a-fA-F]{40}`), rapid.StringMatching(`[1-9A-HJ-NP-Za-km-z]{32,44}`), rapid.StringMatching(`G[A-Z2-7]{55}`),
		rapid.StringMatching(`[a-zA-Z0-9-]{1,8}(\.[a-zA-Z0-9]{1,6}){0,2}\.?(:[0-9]{1,4})?`), rapid.StringMatching(`https?://[a-zA-Z]{1,6}\.[a-z]{2}(/[a-z]{0,3})?`),
		rapid.StringMatching(`0\.0\.[0-9]{1,8}`), rapid.StringMatching(`[a-z]{1,6}\.near`), rapid.StringMatching(`morphit:[a-z]{1,5}`), rapid.StringMatching(`payee:[A-Za-z.]{1,12}`),
		rapid.StringMatching(`[0-9]{1,3}(\.[0-9]{1,3}){3}`), rapid.StringMatching(`\[?[0-9a-f:]{2,12}\]?`), rapid.String(),
	)
}

// Whatever names, amounts and assets a file holds, what it means reads as the same
// policy, and people can be shown it.
func TestWhatAPolicyMeansReadsAsThatPolicy(t *testing.T) {
	read := 0
	rapid.Check(t, func(t *rapid.T) {
		few := func(label string, most int) []string { return rapid.SliceOfN(anyName(), 0, most).Draw(t, label) }
		amount := rapid.StringMatching(`(0|[1-9][0-9]{0,12})(\.[0-9]{1,6})?`)
		key := rapid.OneOf(rapid.StringMatching(`(base|eip155:[1-9][0-9]{0,3})/0[xX][0-9a-fA-F]{40}`), rapid.StringMatching(`(solana|fiat|bsae)/[A-Za-z]{1,8}`), rapid.Just(mainUSDT))
		own := key.Draw(t, "asset")
		file := map[string]any{
			"allowlist": few("allowlist", 2), "denylist": few("denylist", 2), "reviewAbove": amount.Draw(t, "review above"),
			"assets":        map[string]any{own: map[string]any{"decimals": rapid.IntRange(6, 255).Draw(t, "decimals")}},
			"assetPolicies": map[string]any{own: map[string]any{"reviewAbove": amount.Draw(t, "review above")}},
			"limits": []any{map[string]any{"name": rapid.StringN(1, 8, 64).Draw(t, "name"), "scope": "total", "amount": amount.Draw(t, "limit"), "asset": own},
				map[string]any{"name": "count", "scope": "host", "count": 1}},
			"counterpartyAliases": map[string]any{anyName().Draw(t, "alias"): few("aliases", 2)},
			"priceDriftRatio":     amount.Draw(t, "drift"),
		}
		// Most strange names are faults; one at a time leaves files that are read.
		for _, member := range []string{"allowlist", "denylist", "limits", "counterpartyAliases", "priceDriftRatio"} {
			if rapid.Bool().Draw(t, "without "+member) {
				delete(file, member)
			}
		}
		src, err := json.Marshal(file)
		if err != nil {
			t.Fatal(err)
		}
		p, err := ParsePolicy(src)
		if err != nil {
			return
		}
		read++
		again, err := ParsePolicy(p.Effective())
		if err != nil || !bytes.Equal(p.Effective(), again.Effective()) || !slices.Equal(p.Denylist, again.Denylist) || !slices.Equal(p.Allowlist, again.Allowlist) || !cmp.Equal(p.Aliases, again.Aliases) {
			t.Fatalf("%s\n%s\n%v", src, p.Effective(), err)
		}
		for _, s := range p.Explain() {
			if s.Value == "" || s.Means == "" {
				t.Fatalf("%+v", s)
			}
		}
	})
	if read == 0 {
		t.Error("no file was read")
	}
}

func TestReadingsOfReadingsAreThemselves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.Map(anyName(), payment.Name), 0, 4).Draw(t, "names")
		names = slices.DeleteFunc(names, func(s string) bool { return s == "" })
		once := readings(names)
		if again := readings(once); !slices.Equal(once, again) {
			t.Fatalf("of %q: %q, then %q", names, once, again)
		}
		if back := readings(bare(once)); !slices.Equal(once, back) {
			t.Fatalf("of %q: %q, from %q %q", names, once, bare(once), back)
		}
		if !slices.IsSorted(once) || len(slices.Compact(slices.Clone(once))) != len(once) {
			t.Fatalf("%q", once)
		}
	})
}

func TestAccountsHaveThePrefixOfPayment(t *testing.T) {
	if got := payment.Payee("morphit:bob"); got != accountPrefix+"morphit:bob" {
		t.Error(got)
	}
}

func TestExpandFindsWhereHistoryMayBe(t *testing.T) {
	p := mustPolicy(t, `{"counterpartyAliases": {"shop.example": ["0x00000000000000000000000000000000000000aa", "alice.near"]}}`)
	sol := "7ecDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV"
	group := []string{"0x00000000000000000000000000000000000000aa", "alice.near", "payee:alice.near", "payee:shop.example", "shop.example"}
	for _, c := range []struct {
		what     string
		in, want []string
	}{
		{"nothing", nil, nil},
		{"an EVM address is itself", []string{"0x00000000000000000000000000000000000000bb"}, []string{"0x00000000000000000000000000000000000000bb"}},
		{"another address with capitals is too", []string{sol}, []string{sol}},
		{"one without may be a host", []string{strings.ToLower(sol)}, []string{strings.ToLower(sol), strings.ToLower(sol) + "."}},
		{"a host may be an account", []string{"b.example"}, []string{"b.example", "payee:b.example"}},
		{"an account is no host", []string{"payee:b.example"}, []string{"payee:b.example"}},
		{"an account that is written like a host has a host's one spelling too", []string{"payee:B.example"}, []string{"payee:B.example", "payee:b.example"}},
		{"an alias brings its group", []string{"shop.example"}, group},
		{"a reading of an alias does too", []string{"payee:alice.near"}, group},
	} {
		if got := p.Expand(c.in...); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

func TestCommentsMayStandInEveryObject(t *testing.T) {
	src := string(readFile(t, "testdata", "policy", "good-everything.json"))
	plainHash := mustPolicy(t, src).Hash()
	var doc jsjson.Doc
	if err := doc.Parse(withoutComments(nil, rootOf(t, src))); err != nil {
		t.Fatal(err)
	}
	bareText := string(doc.Root().Append(nil, 0, 0))
	if strings.Contains(bareText, commentKey) {
		t.Fatal(bareText)
	}
	commented := strings.ReplaceAll(strings.ReplaceAll(bareText, `{"`, `{"$comment":["a","b"],"`), `{}`, `{"$comment":"a"}`)
	for _, text := range []string{bareText, commented} {
		if p := mustPolicy(t, text); p.Hash() != plainHash {
			t.Errorf("%s is another policy", text)
		}
	}
}

func rootOf(t *testing.T, src string) jsjson.Node {
	t.Helper()
	var doc jsjson.Doc
	if err := doc.Parse([]byte(src)); err != nil {
		t.Fatal(err)
	}
	return doc.Root()
}

// A policy file that is read means the same when what it means is written and read
// again, whatever it holds.
func FuzzParsePolicy(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "policy", "*.json"))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		p, err := ParsePolicy(src)
		if err != nil {
			var faults *PolicyError
			if p != nil || !errors.As(err, &faults) || len(faults.Faults) == 0 || errcode.Of(err).Code != errcode.Policy {
				t.Fatalf("%v, %v", p, err)
			}
			return
		}
		p.Explain()
		text := p.Effective()
		again, err := ParsePolicy(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if !bytes.Equal(text, again.Effective()) {
			t.Fatalf("it becomes another policy\n%s\n%s", text, again.Effective())
		}
		if _, _, ok := p.CapOf(p.DefaultAsset); !ok {
			t.Fatal("the default asset has no limits")
		}
	})
}

func TestAToolPolicyIsReadStrictlyAndAFaultNamesItsPlace(t *testing.T) {
	for src, want := range map[string]string{
		`{}`:                                    "$.toolPolicies.ops.version",
		`{"version": "1"}`:                      "$.toolPolicies.ops.allowed_tools",
		`{"version": "*", "allowed_tools": []}`: "$.toolPolicies.ops.version",
		`{"version": "1", "allowed_tools": ["t", 1]}`:                            "$.toolPolicies.ops.allowed_tools[1]",
		`{"version": "1", "allowed_tools": ["t"], "tool_risk": {"t": "none"}}`:   "$.toolPolicies.ops.tool_risk.t",
		`{"version": "1", "allowed_tools": ["t"], "max_ttl_seconds": 0}`:         "$.toolPolicies.ops.max_ttl_seconds",
		`{"version": "1", "allowed_tools": ["t"], "max_ttl_seconds": 1e999}`:     "$.toolPolicies.ops.max_ttl_seconds",
		`{"version": "1", "allowed_tools": ["t"], "redact": {"t": "b"}}`:         "$.toolPolicies.ops.redact.t",
		`{"version": "1", "allowed_tools": ["t"], "redact": {"a b": [1]}}`:       `$.toolPolicies.ops.redact["a b"][0]`,
		`{"version": "1", "allowed_tools": ["t"], "allowedTools": ["t"]}`:        "$.toolPolicies.ops.allowedTools",
		`{"version": "1", "allowed_tools": ["t"], "signing_key": "k"}`:           "$.toolPolicies.ops.signing_key",
		`{"version": "1", "allowed_tools": ["t"], "host_bound_fields": ["org"]}`: "$.toolPolicies.ops.host_bound_fields",
	} {
		_, err := ParsePolicy([]byte(`{"toolPolicies": {"ops": ` + src + `}}`))
		var faults *PolicyError
		if !errors.As(err, &faults) || faults.Faults[0].Path != want {
			t.Errorf("%s: %v, want a fault at %s", src, err, want)
		}
	}
	p := mustPolicy(t, `{"toolPolicies": {"ops": {"version": "1", "allowed_tools": ["t"], "deny_on_ambiguity": false}}}`)
	if tools := p.ToolPolicy("ops"); tools == nil || tools.Version != "1" || p.ToolPolicy("constructor") != nil {
		t.Errorf("%+v", tools)
	}
	noted := false
	for _, s := range p.Explain() {
		noted = noted || s.Path == "$.toolPolicies.ops" && len(s.Warnings) == 2
	}
	if !noted {
		t.Error("nobody is told that deny_on_ambiguity changes nothing, and that there is nobody to approve")
	}
}
