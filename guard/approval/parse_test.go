package approval

import (
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

func node(t testing.TB, src string) jsjson.Node {
	t.Helper()
	var doc jsjson.Doc
	if err := doc.Parse([]byte(src)); err != nil {
		t.Fatalf("%s: %v", src, err)
	}
	return doc.Root()
}

const goodPolicy = `{"version":"v","max_notional":500,"daily_cap":2.5e3,"hitl_threshold":-0.5,"min_confidence":0.55,` +
	`"allowed_actions":["PAY","PAY"],"per_asset_limits":{"USDC":5.0,"__proto__":1}}`

const goodGate = `{"version":"v","max_notional":"500.00","daily_cap":"2500","hitl_threshold":"0","min_confidence":"0.55",` +
	`"allowed_actions":["PAY"],"per_asset_limits":{"USDC":"5.10"}}`

func TestParsePolicyReadsAPolicy(t *testing.T) {
	got, err := ParsePolicy(node(t, goodPolicy))
	want := Policy{Version: "v", MaxNotional: 500, DailyCap: 2500, HITLThreshold: -0.5, MinConfidence: 0.55,
		AllowedActions: []string{"PAY", "PAY"}, PerAssetLimits: map[string]float64{"USDC": 5, "__proto__": 1}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	got, err = ParsePolicy(node(t, `{"max_notional":1,"daily_cap":2,"hitl_threshold":3,"min_confidence":4,"allowed_actions":[],"per_asset_limits":{}}`))
	want = Policy{Version: "1.0", MaxNotional: 1, DailyCap: 2, HITLThreshold: 3, MinConfidence: 4, AllowedActions: []string{}, PerAssetLimits: map[string]float64{}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestParseActionReadsAnAction(t *testing.T) {
	for src, want := range map[string]Action{
		`{"action":"PAY","asset":"\u20ac","notional":1e2,"confidence":1,"rationale":"r"}`: {Action: "PAY", Asset: "€", Notional: 100, Confidence: some(1), Rationale: "r"},
		`{"action":"","asset":"","notional":-0,"confidence":null}`:                        {},
		`{"notional":9007199254740993,"asset":"a","action":"b"}`:                          {Action: "b", Asset: "a", Notional: 9007199254740992},
	} {
		got, err := ParseAction(node(t, src))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Error(src, diff, err)
		}
	}
}

func TestParseGateReadsDecimalTextInItsShortestForm(t *testing.T) {
	got, err := ParseGate(node(t, goodGate))
	want := &Gate{Version: "v", MaxNotional: "500", DailyCap: "2500", HITLThreshold: "0", MinConfidence: "0.55",
		AllowedActions: []string{"PAY"}, PerAssetLimits: map[string]string{"USDC": "5.1"}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// edit puts a member of a good object into another form, or takes it away.
func edit(t testing.TB, src, key, value string) string {
	t.Helper()
	var b strings.Builder
	sep, found := "{", false
	for name, v := range node(t, src).Members() {
		raw := string(v.Raw())
		if string(name.Text()) == key {
			found = true
			if raw = value; raw == "" {
				continue
			}
		}
		b.WriteString(sep + string(name.Raw()) + ":" + raw)
		sep = ","
	}
	if !found {
		b.WriteString(sep + value)
	}
	return b.String() + "}"
}

func TestAFaultNamesItsPlace(t *testing.T) {
	const action = `{"action":"PAY","asset":"USDC","notional":1,"confidence":0.5,"rationale":"r"}`
	parse := map[string]func(jsjson.Node) error{
		"action": func(n jsjson.Node) error { _, err := ParseAction(n); return err },
		"policy": func(n jsjson.Node) error { _, err := ParsePolicy(n); return err },
		"gate":   func(n jsjson.Node) error { _, err := ParseGate(n); return err },
	}
	for name, c := range map[string]struct{ what, src, path, detail string }{
		"no object":                        {"policy", `[]`, "", "want an object, not array"},
		"null":                             {"gate", `null`, "", "want an object, not null"},
		"an empty policy":                  {"policy", `{}`, ".max_notional", "missing"},
		"an empty gate":                    {"gate", `{}`, ".max_notional", "missing"},
		"an empty action":                  {"action", `{}`, ".action", "missing"},
		"no amount":                        {"action", edit(t, action, "notional", ""), ".notional", "missing"},
		"an amount that is text":           {"action", edit(t, action, "notional", `"1"`), ".notional", "want a number, not text"},
		"an amount that is true":           {"action", edit(t, action, "notional", `true`), ".notional", "want a number, not boolean"},
		"an amount that is null":           {"action", edit(t, action, "notional", `null`), ".notional", "want a number, not null"},
		"an amount beyond doubles":         {"action", edit(t, action, "notional", `1e400`), ".notional", "a number too large for a double"},
		"a long integer beyond doubles":    {"action", edit(t, action, "notional", "1"+strings.Repeat("0", 400)), ".notional", "a number too large for a double"},
		"a confidence that is text":        {"action", edit(t, action, "confidence", `"high"`), ".confidence", "want a number, not text"},
		"an asset that is a number":        {"action", edit(t, action, "asset", `1`), ".asset", "want text, not number"},
		"a rationale that is null":         {"action", edit(t, action, "rationale", `null`), ".rationale", "want text, not null"},
		"an asset with half a pair":        {"action", edit(t, action, "asset", `"\ud800"`), ".asset", "text with an unpaired surrogate"},
		"an asset that is not UTF-8":       {"action", edit(t, action, "asset", "\"\xff\""), ".asset", "text that is not UTF-8"},
		"an amount twice":                  {"action", edit(t, action, "-", `"notional":2`), ".notional", "a key that stands twice in its object"},
		"a key of a policy in an action":   {"action", edit(t, action, "-", `"daily_cap":2`), ".daily_cap", "unknown key; the keys are action, asset, notional, confidence, rationale"},
		"a key in another case":            {"policy", edit(t, goodPolicy, "-", `"Daily_Cap":2`), ".Daily_Cap", "unknown key; the keys are " + strings.Join(policyKeys, ", ")},
		"a key to be cleaned":              {"policy", edit(t, goodPolicy, "-", `"a\u202eb":2`), `["ab"]`, "unknown key; the keys are " + strings.Join(policyKeys, ", ")},
		"a cap twice":                      {"policy", edit(t, goodPolicy, "-", `"daily\u005fcap":2`), ".daily_cap", "a key that stands twice in its object"},
		"no threshold":                     {"policy", edit(t, goodPolicy, "hitl_threshold", ""), ".hitl_threshold", "missing"},
		"a cap that is text":               {"policy", edit(t, goodPolicy, "daily_cap", `"2500"`), ".daily_cap", "want a number, not text"},
		"a cap beyond doubles":             {"policy", edit(t, goodPolicy, "daily_cap", `1e999`), ".daily_cap", "a number too large for a double"},
		"a version that is a number":       {"policy", edit(t, goodPolicy, "version", `1`), ".version", "want text, not number"},
		"actions that are text":            {"policy", edit(t, goodPolicy, "allowed_actions", `"PAY"`), ".allowed_actions", "want a list of texts, not text"},
		"actions that are null":            {"policy", edit(t, goodPolicy, "allowed_actions", `null`), ".allowed_actions", "want a list of texts, not null"},
		"an action that is a number":       {"policy", edit(t, goodPolicy, "allowed_actions", `["PAY",1]`), ".allowed_actions[1]", "want text, not number"},
		"limits that are a list":           {"policy", edit(t, goodPolicy, "per_asset_limits", `[]`), ".per_asset_limits", "want an object of limits by asset, not array"},
		"a limit that is null":             {"policy", edit(t, goodPolicy, "per_asset_limits", `{"A B":null}`), `.per_asset_limits["A B"]`, "want a number, not null"},
		"a limit twice":                    {"policy", edit(t, goodPolicy, "per_asset_limits", `{"A":1,"A":2}`), ".per_asset_limits.A", "a key that stands twice in its object"},
		"a gate's cap that is a number":    {"gate", edit(t, goodGate, "daily_cap", `2500`), ".daily_cap", `want a decimal amount as text, like "2.50", not number`},
		"a gate's cap that is negative":    {"gate", edit(t, goodGate, "daily_cap", `"-1"`), ".daily_cap", `"-1" is no decimal amount like "2.50"`},
		"a gate's cap with an exponent":    {"gate", edit(t, goodGate, "daily_cap", `"1e3"`), ".daily_cap", `"1e3" is no decimal amount like "2.50"`},
		"a gate's cap beyond doubles":      {"gate", edit(t, goodGate, "daily_cap", `"`+strings.Repeat("9", 310)+`"`), ".daily_cap", `"` + strings.Repeat("9", 39) + `…" is too large for a double, which the gate's record needs`},
		"a gate's cap of a page":           {"gate", edit(t, goodGate, "daily_cap", `"0.`+strings.Repeat("0", 400)+`"`), ".daily_cap", `"0.` + strings.Repeat("0", 37) + `…" is no decimal amount like "2.50"`},
		"a gate that lists no action":      {"gate", edit(t, goodGate, "allowed_actions", `[]`), ".allowed_actions", "an empty list would allow every action; leave it out to say so, or name the actions"},
		"a gate's action that is a number": {"gate", edit(t, goodGate, "allowed_actions", `[1]`), ".allowed_actions[0]", "want text, not number"},
		"a gate's limit that is a number":  {"gate", edit(t, goodGate, "per_asset_limits", `{"USDC":5}`), ".per_asset_limits.USDC", `want a decimal amount as text, like "2.50", not number`},
		"a gate without a floor":           {"gate", edit(t, goodGate, "min_confidence", ``), ".min_confidence", "missing"},
		"a gate's version that is null":    {"gate", edit(t, goodGate, "version", `null`), ".version", "want text, not null"},
		"a gate's keys in camel case":      {"gate", edit(t, goodGate, "-", `"maxNotional":"1"`), ".maxNotional", "unknown key; the keys are " + strings.Join(policyKeys, ", ")},
	} {
		t.Run(name, func(t *testing.T) {
			err := parse[c.what](node(t, c.src))
			var f *Fault
			if !errors.As(err, &f) {
				t.Fatalf("%s: %v", c.src, err)
			}
			if f.Path != c.path || f.Detail != c.detail {
				t.Errorf("at %q: %q\nwant %q: %q", f.Path, f.Detail, c.path, c.detail)
			}
			if f.Error() != "$"+c.path+": "+c.detail {
				t.Errorf("the error reads %q", f)
			}
		})
	}
	if _, err := ParsePolicy(jsjson.Node{}); err == nil || err.Error() != "$: want an object, not absent" {
		t.Errorf("absent: %v", err)
	}
}

func TestEachLimitIsRequired(t *testing.T) {
	for _, key := range policyRequired {
		for src, parse := range map[string]func(jsjson.Node) error{
			goodPolicy: func(n jsjson.Node) error { _, err := ParsePolicy(n); return err },
			goodGate:   func(n jsjson.Node) error { _, err := ParseGate(n); return err },
		} {
			if err := parse(node(t, edit(t, src, key, ""))); err == nil || err.Error() != "$."+key+": missing" {
				t.Errorf("%s: %v", key, err)
			}
			if err := parse(node(t, edit(t, src, key, "[]"))); err == nil || !strings.HasPrefix(err.Error(), "$."+key+": want a ") {
				t.Errorf("%s: %v", key, err)
			}
		}
	}
}

func TestADecimalIsDigitsWithAnOptionalFraction(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "0.0": "0", "1": "1", "10": "10", "100.00": "100", "0.10": "0.1", "12.3400": "12.34", "0.000000000000000001": "0.000000000000000001",
	} {
		d, err := readDecimal(text)
		if err != nil || d.String() != want {
			t.Errorf("%s: %v, %v, want %s", text, d, err, want)
		}
	}
	for _, text := range []string{"", ".", "1.", ".5", "00", "01", "+1", "-1", "1e2", "1E2", " 1", "1 ", "1,5", "1_0", "0x1", "1/2", "Inf", "NaN", "１", "1.2.3", "1.-2"} {
		if d, err := readDecimal(text); err == nil {
			t.Errorf("%q was read as %s", text, d)
		}
	}
}

func TestADecimalIsExactAndItsDoubleTheNearest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?`).Draw(t, "text")
		d, err := readDecimal(text)
		if err != nil {
			t.Fatal(err)
		}
		back, err := readDecimal(d.String())
		if err != nil || back.value.Cmp(d.value) != 0 {
			t.Fatalf("%s became %s, %v", text, d, err)
		}
		want := json.Number(text)
		if f, err := want.Float64(); err != nil || f != d.double() {
			t.Fatalf("%s: %v, want %v", text, d.double(), f)
		}
		other, _ := readDecimal(rapid.StringMatching(`[1-9][0-9]{0,9}\.[0-9]{1,9}`).Draw(t, "other"))
		sum, err := readDecimal(d.plus(other).String())
		if err != nil || sum.value.Cmp(new(big.Rat).Add(d.value, other.value)) != 0 {
			t.Fatalf("%s + %s = %s", d, other, sum)
		}
	})
}

func FuzzParse(f *testing.F) {
	decided, refused := vectors(f)
	for _, v := range append(decided[:10:10], refused...) {
		f.Add([]byte(v.Args))
	}
	f.Add([]byte(goodPolicy))
	f.Add([]byte(goodGate))
	f.Fuzz(func(t *testing.T, src []byte) {
		var doc jsjson.Doc
		if doc.Parse(src) != nil {
			return
		}
		check := func(err error) {
			var fault *Fault
			if err != nil && (!errors.As(err, &fault) || !utf8.ValidString(err.Error()) || len(err.Error()) > 1000) {
				t.Fatalf("%q", err)
			}
		}
		a, err := ParseAction(doc.Root())
		if check(err); err == nil {
			roundTrip(t, a, ParseAction)
		}
		p, err := ParsePolicy(doc.Root())
		if check(err); err == nil {
			if _, err := Evaluate(pay(1), p, 0); err != nil {
				t.Fatal(err)
			}
			if len(p.AllowedActions) > 0 && len(p.PerAssetLimits) > 0 {
				roundTrip(t, p, ParsePolicy)
			}
		}
		g, err := ParseGate(doc.Root())
		if check(err); err == nil {
			if len(g.PerAssetLimits) > 0 {
				roundTrip(t, g, ParseGate)
			}
			if v := g.Judge(Payment{ActionPay, "USDC", "1", "0"}); v.Record.ContentHash == "" {
				t.Fatalf("a gate that was read cannot judge: %+v", v)
			}
		}
	})
}

// roundTrip writes what was read and reads it again.
func roundTrip[T any](t *testing.T, v T, parse func(jsjson.Node) (T, error)) {
	t.Helper()
	src, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse(node(t, string(src)))
	if diff := cmp.Diff(v, got); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
}
