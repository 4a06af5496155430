package approval

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/canon"
)

const toolPolicy = `{"version":"p-1","allowed_tools":["ledger.post","ledger.void","kb.search"],"tool_risk":{"ledger.post":"critical"},"default_risk":"medium",` +
	`"max_ttl_seconds":120,"allowed_resources":{"ledger.post":["tenant:north"]},"host_bound_fields":{"kb.search":["tenant_id","index"]}}`

const (
	postCall   = `{"tool":"ledger.post","resource":"tenant:north","arguments":{"account":"1200-01","amount":"2500.00","fx":1.5}}`
	searchCall = `{"tool":"kb.search","resource":"tenant:umbra","arguments":{"query":"open invoices"},"host_bound":{"tenant_id":"umbra","index":"live"}}`
)

func mustPolicy(t testing.TB, src string) *ToolPolicy {
	t.Helper()
	p, err := ParseToolPolicy(node(t, src))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// with is a call with one member put in another form; "" takes it away.
func with(t testing.TB, src, key, value string) Call {
	t.Helper()
	return hostedCall(t, edit(t, src, key, value))
}

func TestAToolPolicyIsReadWhole(t *testing.T) {
	src := `{"version":"v","allowed_tools":["a","__proto__"],"always_require_receipt":["a"],"tool_risk":{"a":"low","constructor":"critical"},"default_risk":"medium",` +
		`"max_ttl_seconds":0.5,"allowed_resources":{"a":["r"]},"host_bound_fields":{"a":["tenant_id"]},"deny_on_ambiguity":false,"redact":{"a":["pin"]}}`
	p := mustPolicy(t, src)
	want := &ToolPolicy{
		Version: "v", AllowedTools: []string{"a", "__proto__"}, AlwaysRequireReceipt: []string{"a"}, ToolRisk: map[string]string{"a": "low", "constructor": "critical"},
		DefaultRisk: "medium", MaxTTLSeconds: 0.5, AllowedResources: map[string][]string{"a": {"r"}}, HostBoundFields: map[string][]string{"a": {"tenant_id"}},
		Redact: map[string][]string{"a": {"pin"}}, hash: p.hash,
	}
	if diff := cmp.Diff(want, p, cmp.AllowUnexported(ToolPolicy{})); diff != "" {
		t.Error(diff)
	}
	if hash, err := canon.HashText([]byte(src), canon.JCS); err != nil || p.Hash() != hash {
		t.Errorf("the hash is %s, want %s, %v", p.Hash(), hash, err)
	}
	for tool, risk := range map[string]string{"a": "low", "constructor": "critical", "toString": "medium", "__proto__": "medium"} {
		if got := p.Risk(tool); got != risk {
			t.Errorf("the risk of %s is %s, want %s", tool, got, risk)
		}
	}
	if got := mustPolicy(t, `{"version":"v","allowed_tools":[]}`).Risk("x"); got != RiskHigh {
		t.Errorf("a risk nobody named is %s", got)
	}
	if all := mustPolicy(t, `{"version":"v","allowed_tools":[],"redact":["pin"]}`); !slices.Equal(all.Redacted("any tool"), []string{"pin"}) {
		t.Errorf("a list of arguments to redact is for every tool: %v", all.Redacted("any tool"))
	}
}

func TestAFaultOfAToolPolicyNamesItsPlace(t *testing.T) {
	for name, c := range map[string]struct{ key, value, path, detail string }{
		"a key nobody knows":         {"-", `"allowedTools":[]`, ".allowedTools", "unknown key; the keys are " + strings.Join(toolPolicyKeys, ", ")},
		"a key twice":                {"-", `"version":"p-2"`, ".version", "a key that stands twice in its object"},
		"a tool twice":               {"tool_risk", `{"a":"low","\u0061":"high"}`, ".tool_risk.a", "a key that stands twice in its object"},
		"half of a pair":             {"allowed_tools", `["\ud800"]`, ".allowed_tools[0]", "text with an unpaired surrogate"},
		"a version of two words":     {"version", `"any"`, ".version", `"any" is ambiguous: it does not name one thing`},
		"a version that is a number": {"version", `1`, ".version", "want text, not number"},
		"no tools":                   {"allowed_tools", ``, ".allowed_tools", "missing"},
		"tools that are null":        {"allowed_tools", `null`, ".allowed_tools", "want a list of texts, not null"},
		"a risk that is none":        {"default_risk", `"Low"`, ".default_risk", `"Low" is no risk; the risks are low, medium, high, critical`},
		"risks in a list":            {"tool_risk", `["low"]`, ".tool_risk", "want an object by tool, not array"},
		"a time beyond doubles":      {"max_ttl_seconds", `1e400`, ".max_ttl_seconds", "a number too large for a double"},
		"no time":                    {"max_ttl_seconds", `0`, ".max_ttl_seconds", "want more than 0 seconds"},
		"less than no time":          {"max_ttl_seconds", `-0.0`, ".max_ttl_seconds", "want more than 0 seconds"},
		"a time that is true":        {"max_ttl_seconds", `true`, ".max_ttl_seconds", "want a number, not boolean"},
		"a time that is text":        {"max_ttl_seconds", `"120"`, ".max_ttl_seconds", "want a number, not text"},
		"a time no hash can hold":    {"max_ttl_seconds", `9007199254740993`, ".max_ttl_seconds", "an integer beyond 2^53-1; write it as text"},
		"ambiguity that is text":     {"deny_on_ambiguity", `"deny_on_ambiguity":"no"`, ".deny_on_ambiguity", "want true or false, not text"},
		"a name to redact":           {"redact", `"redact":{"a":"pin"}`, ".redact.a", "want a list of texts, not text"},
		"a text to redact":           {"redact", `"redact":"pin"`, ".redact", "want an object by tool, not text"},
	} {
		_, err := ParseToolPolicy(node(t, edit(t, toolPolicy, c.key, c.value)))
		var f *Fault
		if !errors.As(err, &f) || f.Path != c.path || f.Detail != c.detail {
			t.Errorf("%s: %v, want $%s: %s", name, err, c.path, c.detail)
		}
	}
}

func TestAFaultOfACallNamesItsPlace(t *testing.T) {
	for name, c := range map[string]struct{ src, path, detail string }{
		"no object":                  {`"x"`, "", "want an object, not text"},
		"no tool":                    {edit(t, postCall, "tool", ""), ".tool", "missing"},
		"no resource":                {edit(t, postCall, "resource", ""), ".resource", "missing"},
		"a tool that is null":        {edit(t, postCall, "tool", "null"), ".tool", "want text, not null"},
		"a resource that is a list":  {edit(t, postCall, "resource", `["tenant:north"]`), ".resource", "want text, not array"},
		"an argument twice":          {edit(t, postCall, "arguments", `{"a":1,"a":1}`), ".arguments.a", "a key that stands twice in its object"},
		"a number beyond doubles":    {edit(t, postCall, "arguments", `[1e999]`), ".arguments[0]", "a number too large for a double"},
		"half of a pair":             {edit(t, postCall, "arguments", `{"a":"\udc00"}`), ".arguments.a", "text with an unpaired surrogate"},
		"a tool that is half a pair": {edit(t, postCall, "tool", `"\ud800"`), ".tool", "text with an unpaired surrogate"},
		"a member nobody knows":      {edit(t, postCall, "-", `"signing_key":"k"`), ".signing_key", "unknown key; the keys are " + strings.Join(callKeys, ", ")},
	} {
		_, err := ParseCall(node(t, c.src))
		var f *Fault
		if !errors.As(err, &f) || f.Path != c.path || f.Detail != c.detail {
			t.Errorf("%s: %v, want $%s: %s", name, err, c.path, c.detail)
		}
	}
}

// rules are the rules of the claims, a failed one marked.
func rulesOf(claims []Claim) (list []string) {
	for _, c := range claims {
		rule := c.Rule
		if !c.Passed {
			rule += " failed"
		}
		list = append(list, rule)
	}
	return list
}

func TestTheClaimsOfAnInspectionStandInOrder(t *testing.T) {
	all := []string{RuleDenyOnAmbiguity, RulePolicyVersion, RuleConcreteTool, RuleConcreteResource, RuleConcreteArgs, RuleHostBinding, RuleArgsHash, RuleToolAllowlist, RuleResourceList, RuleRisk}
	upTo := func(n int) []string { return append(slices.Clone(all[:n]), all[n]+" failed") }
	p := mustPolicy(t, toolPolicy)
	lax := mustPolicy(t, edit(t, toolPolicy, "-", `"deny_on_ambiguity":false`))
	for name, c := range map[string]struct {
		policy *ToolPolicy
		call   Call
		want   []string
		code   string
	}{
		"a sound call":                  {p, hostedCall(t, postCall), all, ""},
		"ambiguity noted":               {lax, hostedCall(t, postCall), append([]string{all[0] + " failed"}, all[1:]...), ""},
		"ambiguity noted and denied":    {lax, with(t, postCall, "tool", `"*"`), []string{all[0] + " failed", all[1], all[2] + " failed"}, CodeAmbiguous},
		"no policy":                     {nil, hostedCall(t, postCall), upTo(1), CodeAmbiguous},
		"a policy that was put up":      {&ToolPolicy{Version: "v", AllowedTools: []string{"ledger.post"}, DenyOnAmbiguity: true}, hostedCall(t, postCall), upTo(1), CodeAmbiguous},
		"a tool for anything":           {p, with(t, postCall, "tool", `"ledger.*"`), upTo(2), CodeAmbiguous},
		"a resource for anything":       {p, with(t, postCall, "resource", `" ALL "`), upTo(3), CodeAmbiguous},
		"no arguments":                  {p, with(t, postCall, "arguments", ""), upTo(4), CodeAmbiguous},
		"a host that is missing":        {p, with(t, searchCall, "host_bound", ""), upTo(5), CodeAmbiguous},
		"arguments no hash can hold":    {p, with(t, postCall, "arguments", `[9007199254740993]`), upTo(6), CodeAmbiguous},
		"arguments no log can hold":     {p, with(t, postCall, "arguments", `[1e20]`), upTo(6), CodeAmbiguous},
		"arguments of a book":           {p, with(t, postCall, "arguments", `["`+strings.Repeat("a", MaxArguments)+`"]`), upTo(6), CodeAmbiguous},
		"a tool that is not listed":     {p, with(t, postCall, "tool", `"shell.exec"`), upTo(7), CodeToolNotListed},
		"a resource that is not listed": {p, with(t, postCall, "resource", `"tenant:west"`), upTo(8), CodeResourceNotListed},
		"a tool without resources":      {p, with(t, postCall, "tool", `"ledger.void"`), append(slices.Clone(all[:8]), RuleRisk), ""},
	} {
		i := Inspect(c.policy, c.call)
		code := ""
		if i.Refused != nil {
			code = i.Refused.Code
		}
		if diff := cmp.Diff(c.want, rulesOf(i.Claims)); diff != "" || code != c.code {
			t.Errorf("%s: %q %s", name, code, diff)
		}
	}
}

func Test19NumbersOfOneValueAreOneArgument(t *testing.T) {
	p := mustPolicy(t, toolPolicy)
	hash := func(arguments string) string { return Inspect(p, with(t, postCall, "arguments", arguments)).ArgsHash }
	if hash(`{"n":10.0}`) != hash(`{"n":10}`) || hash(`{"n":1e1}`) != hash(`{"n":10}`) || hash(`{"n":-0.0}`) != hash(`{"n":0}`) {
		t.Error("a client that spells a number anew changes its arguments")
	}
	if hash(`{"n":10}`) == hash(`{"n":"10"}`) || hash(`{"n":10}`) == hash(`{"n":10.000001}`) || hash(`{"n":10}`) == "" {
		t.Error("other arguments hash alike")
	}
}

func Test20AListedToolWithoutAReceiptIsNotAuthorised(t *testing.T) {
	p, c := mustPolicy(t, toolPolicy), hostedCall(t, postCall)
	code := CodeAllowlistIsNotAuth
	outcome{State: ReceiptRequired, Code: &code}.assert(t, EvaluateTool(p, c))
	outcome{State: Denied, Code: &code}.assert(t, Authorize(Presented{Policy: p, Call: c}))
	noted := mustPolicy(t, edit(t, toolPolicy, "-", `"always_require_receipt":[]`))
	outcome{State: ReceiptRequired, Code: &code}.assert(t, EvaluateTool(noted, c))
}

func Test26WhatDoesNotNameOneThingIsAmbiguous(t *testing.T) {
	code := CodeAmbiguous
	for name, r := range map[string]ToolResult{
		"a star resource":          EvaluateTool(mustPolicy(t, toolPolicy), with(t, postCall, "resource", `"*"`)),
		"absent arguments":         EvaluateTool(mustPolicy(t, toolPolicy), with(t, postCall, "arguments", "")),
		"a policy without version": EvaluateTool(policyOf(t, edit(t, toolPolicy, "version", "")), hostedCall(t, postCall)),
	} {
		t.Run(name, func(t *testing.T) { outcome{State: Denied, Code: &code}.assert(t, r) })
	}
	for _, s := range []string{"\u200bany\u200b", "\ufeffall", "any\u00a0", "\u202enull", "Unknown\n", "\u2028", "\x00", "UNDEFINED", "Nulł?"} {
		if !Ambiguous(s) {
			t.Errorf("%q names one thing", s)
		}
	}
}

func Test38TheEnvelopeOfATrustedHostIsRead(t *testing.T) {
	meta := `{"cubiczan":{"principal":{"id":"a","kind":"agent","orgId":"org_9","displayName":"x"},"host_bound":{"index":"live"}}}`
	c, err := ParseCall(node(t, `{"tool":"kb.search","resource":"r","arguments":{"query":"q"}}`))
	if err != nil {
		t.Fatal(err)
	}
	c.Host = ReadHost(node(t, meta))
	i := Inspect(mustPolicy(t, toolPolicy), c)
	if i.Refused != nil || string(i.Bound.Arguments) != `{"index":"live","query":"q","tenant_id":"org_9"}` {
		t.Errorf("%v, %s", i.Refused, i.Bound.Arguments)
	}
	for _, src := range []string{`null`, `[]`, `"cubiczan"`, `{}`, `{"cubiczan":1}`, `{"cubiczan":{"host_bound":[],"principal":"x"}}`, `{"host_bound":{"index":"live"}}`} {
		if h := ReadHost(node(t, src)); h.Bound != nil || h.Principal != nil {
			t.Errorf("%s is read as an envelope: %+v", src, h)
		}
	}
}

func Test39TheHashIsOverAllArgumentsAndNotTheModelsPart(t *testing.T) {
	p := mustPolicy(t, toolPolicy)
	i := Inspect(p, hostedCall(t, searchCall))
	model, err := canon.HashText([]byte(`{"query":"open invoices"}`), canon.JCS)
	if err != nil || i.ArgsHash == model {
		t.Errorf("the hash is that of the model's part, %v", err)
	}
	union, err := canon.HashText([]byte(`{"query":"open invoices","tenant_id":"umbra","index":"live"}`), canon.JCS)
	if err != nil || i.ArgsHash != union {
		t.Errorf("the hash is %s, want %s, %v", i.ArgsHash, union, err)
	}
}

func Test40AHostsOwnValuesLieOverItsEnvelopeAndTheModelMayRepeatThem(t *testing.T) {
	h := ReadHost(node(t, `{"cubiczan":{"host_bound":{"tenant_id":"umbra","index":"old"},"principal":{"orgId":"p"}}}`)).Under(HostBound(map[string]string{"index": "live"}))
	c := Call{Tool: "kb.search", Resource: "r", Arguments: json.RawMessage(`{"index":"l\u0069ve"}`), Host: h}
	b, refused := c.Bind(mustPolicy(t, toolPolicy))
	if refused != nil || string(b.Arguments) != `{"index":"live","tenant_id":"umbra"}` || !slices.Equal(b.Keys, []string{"index", "tenant_id"}) {
		t.Errorf("%v, %s, %v", refused, b.Arguments, b.Keys)
	}
	if h := (Host{}).Under(Host{}); h.Bound != nil || h.Principal != nil {
		t.Errorf("nothing over nothing is %+v", h)
	}
	if h := HostBound(nil); h.Bound != nil {
		t.Errorf("nothing that is fixed is %+v", h)
	}
	if h := (Host{Bound: json.RawMessage(`{"a":1}`)}).Under(Host{Principal: json.RawMessage(`{}`)}); string(h.Bound) != `{"a":1}` || h.Principal == nil {
		t.Errorf("a principal over values is %+v", h)
	}
}

func Test41AnOverriddenHostValueIsDeniedInAllThreeToolsAndNamed(t *testing.T) {
	p, c := mustPolicy(t, toolPolicy), with(t, searchCall, "arguments", `{"query":"q","index":"other"}`)
	code := CodeHostBoundOverride
	for _, r := range []ToolResult{EvaluateTool(p, c), Authorize(Presented{Policy: p, Call: c}), issue(p, c, Allow).HMAC(strongKey)} {
		outcome{State: Denied, Code: &code}.assert(t, r)
		if !strings.Contains(r.Reason, `"index"`) {
			t.Errorf("the reason does not name the field: %s", r.Reason)
		}
	}
}

func Test42RightHostValuesAreNoApproval(t *testing.T) {
	code := CodeAllowlistIsNotAuth
	outcome{State: Denied, Code: &code}.assert(t, Authorize(Presented{Policy: mustPolicy(t, toolPolicy), Call: hostedCall(t, searchCall)}))
}

func Test44ADeclaredFieldThatIsMissingOrForAnythingIsAmbiguous(t *testing.T) {
	for _, host := range []string{`{}`, `{"index":"live"}`, `{"tenant_id":"umbra","index":"*"}`, `{"tenant_id":null,"index":"live"}`, `{"tenant_id":" any ","index":"live"}`} {
		c := hostedCall(t, edit(t, searchCall, "host_bound", host))
		if _, refused := c.Bind(mustPolicy(t, toolPolicy)); refused == nil || refused.Code != CodeAmbiguous {
			t.Errorf("%s: %v", host, refused)
		}
	}
}

func Test45TheTenantIsTheOrganisationOfThePrincipal(t *testing.T) {
	for principal, want := range map[string]string{
		`{"orgId":"org_9","tenant":"t"}`:               "org_9",
		`{"orgId":"any","tenant":"t","tenant_id":"u"}`: "t",
		`{"orgId":7,"tenant":null,"tenant_id":"u"}`:    "u",
		`{"id":"a","kind":"agent"}`:                    "",
		`{"orgId":"a","orgId":"b"}`:                    "",
	} {
		c := Call{Tool: "kb.search", Resource: "r", Arguments: json.RawMessage(`{}`), Host: Host{Bound: json.RawMessage(`{"index":"i"}`), Principal: json.RawMessage(principal)}}
		b, refused := c.Bind(mustPolicy(t, toolPolicy))
		if want == "" {
			if refused == nil || refused.Code != CodeAmbiguous {
				t.Errorf("%s: %s, %v", principal, b.Arguments, refused)
			}
			continue
		}
		if refused != nil || string(b.Arguments) != `{"index":"i","tenant_id":"`+want+`"}` {
			t.Errorf("%s: %s, %v", principal, b.Arguments, refused)
		}
	}
}

func Test46AnEnvelopeInTheCallItselfIsDenied(t *testing.T) {
	p := mustPolicy(t, toolPolicy)
	for _, member := range []string{`"host_bound":{"tenant_id":"umbra","index":"live"}`, `"_meta":{"cubiczan":{}}`, `"host_bound":null`, `"_meta":1`} {
		for _, src := range []string{postCall, `{"tool":"kb.search","resource":"r","arguments":{}}`} {
			c, err := ParseCall(node(t, edit(t, src, "-", member)))
			if err != nil {
				t.Fatal(err)
			}
			// Also beside what a trusted host has set.
			c.Host = HostBound(map[string]string{"tenant_id": "umbra", "index": "live"})
			code := CodeAmbiguous
			outcome{State: Denied, Code: &code}.assert(t, EvaluateTool(p, c))
			outcome{State: Denied, Code: &code}.assert(t, Authorize(Presented{Policy: p, Call: c}))
		}
	}
	// Deeper down it is an argument like any other.
	c, err := ParseCall(node(t, edit(t, postCall, "arguments", `{"_meta":{"cubiczan":{"host_bound":{"tenant_id":"x"}}},"host_bound":{"index":"x"}}`)))
	i := Inspect(p, c)
	if err != nil || i.Refused != nil || len(i.Bound.Keys) != 0 {
		t.Errorf("%v, %v, %v", err, i.Refused, i.Bound.Keys)
	}
}

func Test48NamesOfPrototypesAreNames(t *testing.T) {
	names := []string{"__proto__", "constructor", "toString", "hasOwnProperty", "valueOf"}
	for _, name := range names {
		quoted := encoded(t, name)
		p, c := mustPolicy(t, toolPolicy), with(t, postCall, "tool", quoted)
		code := CodeToolNotListed
		outcome{State: Denied, Code: &code}.assert(t, EvaluateTool(p, c))
		listed := mustPolicy(t, `{"version":"v","allowed_tools":[`+quoted+`],"host_bound_fields":{`+quoted+`:[`+quoted+`]}}`)
		code = CodeAmbiguous // the host has to set it, and sets nothing
		outcome{State: Denied, Code: &code}.assert(t, EvaluateTool(listed, c))
		c.Host = HostBound(map[string]string{name: "x"})
		i := Inspect(listed, c)
		if i.Refused != nil || !slices.Equal(i.Bound.Keys, []string{name}) || !strings.Contains(string(i.Bound.Arguments), quoted+`:"x"`) {
			t.Errorf("%s: %v, %s", name, i.Refused, i.Bound.Arguments)
		}
		c.Arguments = json.RawMessage(`{` + quoted + `:"y"}`)
		if _, refused := c.Bind(listed); refused == nil || refused.Code != CodeHostBoundOverride {
			t.Errorf("%s: %v", name, refused)
		}
	}
}

func TestHostValuesOfTwoMeaningsAreRefused(t *testing.T) {
	p := mustPolicy(t, toolPolicy)
	for name, c := range map[string]Call{
		"a host that sets a name twice":         {Arguments: json.RawMessage(`{}`), Host: Host{Bound: json.RawMessage(`{"tenant_id":"a","index":"i","index":"j"}`)}},
		"the model repeats a number too large":  {Arguments: json.RawMessage(`{"index":9007199254740993}`), Host: Host{Bound: json.RawMessage(`{"tenant_id":"a","index":9007199254740992}`)}},
		"a host that sets a number too large":   {Arguments: json.RawMessage(`{"index":1}`), Host: Host{Bound: json.RawMessage(`{"tenant_id":"a","index":9007199254740993}`)}},
		"a host that sets half of a pair":       {Arguments: json.RawMessage(`{}`), Host: Host{Bound: json.RawMessage(`{"tenant_id":"a","index":"\ud800"}`)}},
		"a model that passes a name twice":      {Arguments: json.RawMessage(`{"query":1,"query":2}`), Host: Host{Bound: json.RawMessage(`{"tenant_id":"a","index":"i"}`)}},
		"arguments that are no JSON":            {Arguments: json.RawMessage(`{"query":`), Host: Host{Bound: json.RawMessage(`{"tenant_id":"a","index":"i"}`)}},
		"two envelopes and one name too many":   {Arguments: json.RawMessage(`{}`), Host: Host{Bound: json.RawMessage(`{"tenant_id":"a","x":1,"x":2}`)}.Under(HostBound(map[string]string{"index": "i"}))},
		"an envelope that stands twice":         {Arguments: json.RawMessage(`{}`), Host: ReadHost(node(t, `{"cubiczan":{"host_bound":{"tenant_id":"a","index":"i"}},"cubiczan":{}}`))},
		"an envelope with a name twice":         {Arguments: json.RawMessage(`{}`), Host: ReadHost(node(t, `{"cubiczan":{"host_bound":{},"host_bound":{"tenant_id":"a","index":"i"}}}`))},
		"such an envelope under fixed values":   {Arguments: json.RawMessage(`{}`), Host: ReadHost(node(t, `{"cubiczan":{"principal":{"orgId":"a","orgId":"b"}}}`)).Under(HostBound(map[string]string{"tenant_id": "a", "index": "i"}))},
		"no arguments, and the library is used": {Host: Host{Bound: json.RawMessage(`{"tenant_id":"a","index":"i"}`)}},
	} {
		c.Tool, c.Resource = "kb.search", "r"
		if b, refused := c.Bind(p); refused == nil || refused.Code != CodeAmbiguous {
			t.Errorf("%s: %s, %v", name, b.Arguments, refused)
		}
	}
	if _, refused := (Call{Arguments: json.RawMessage(`{}`)}).Bind(nil); refused == nil {
		t.Error("without a policy something is bound")
	}
}

func TestBoundArgumentsAreTheHostsOverTheModels(t *testing.T) {
	key := rapid.SampledFrom([]string{"a", "b", "é", "\ue000", "😀", "__proto__", ""})
	object := rapid.MapOf(key, rapid.SampledFrom([]string{"1", "1.0", `"x"`, "null", "[1,2]", `{"k":true}`}))
	write := func(m map[string]string) json.RawMessage {
		raw := []byte{'{'}
		for k, v := range m {
			raw = appendMember(raw, jsjson.AppendString(nil, []byte(k)), []byte(v))
		}
		return append(raw, '}')
	}
	rapid.Check(t, func(t *rapid.T) {
		model, host := object.Draw(t, "model"), object.Draw(t, "host")
		b, refused := Call{Tool: "t", Arguments: write(model), Host: Host{Bound: write(host)}}.Bind(&ToolPolicy{})
		merged, agreed := map[string]string{}, true
		for k, v := range model {
			merged[k] = v
			if h, ok := host[k]; ok && h != v && !(strings.HasPrefix(h, "1") && strings.HasPrefix(v, "1")) {
				agreed = false
			}
		}
		for k, v := range host {
			merged[k] = v
		}
		if !agreed {
			if refused == nil || refused.Code != CodeHostBoundOverride {
				t.Fatalf("%v under %v: %v", model, host, refused)
			}
			return
		}
		want, err := canon.Text(write(merged), canon.Lexeme)
		if refused != nil || err != nil || string(b.Arguments) != string(want) || len(b.Keys) != len(host) {
			t.Fatalf("%v under %v: %s, %v, %v, want %s", model, host, b.Arguments, refused, err, want)
		}
	})
}

func TestRedactedArgumentsAreHashesAtEveryDepth(t *testing.T) {
	hash := func(src string) string {
		h, err := canon.HashText([]byte(src), canon.JCS)
		if err != nil {
			t.Fatal(err)
		}
		return `"sha256:` + h + `"`
	}
	for src, want := range map[string]string{
		`{"pin":"1234","to":"a"}`:                       `{"pin":` + hash(`"1234"`) + `,"to":"a"}`,
		`{"list":[{"pin":1.0},{"pin":1},[{"pin":{}}]]}`: `{"list":[{"pin":` + hash("1") + `},{"pin":` + hash("1") + `},[{"pin":` + hash("{}") + `}]]}`,
		`{"p\u0069n":null}`:                             `{"pin":` + hash("null") + `}`,
		`{"pin":{"pin":{"pin":1}}}`:                     `{"pin":` + hash(`{"pin":{"pin":1}}`) + `}`,
		`{"PIN":"1234","pins":2,"key":["pin"]}`:         `{"PIN":"1234","key":["pin"],"pins":2}`,
		`"pin"`:                                         `"pin"`,
		`[[[],[]],{}]`:                                  `[[[],[]],{}]`,
		`null`:                                          `null`,
	} {
		if got, err := Redact(json.RawMessage(src), []string{"pin"}); err != nil || string(got) != want {
			t.Errorf("%s became %s, %v, want %s", src, got, err, want)
		}
	}
	for _, src := range []string{``, `{`, `{"pin":9007199254740993}`, `{"a":1,"a":2}`, `{"pin":1,"pin":2}`, `{"pin":"\ud800"}`} {
		if got, err := Redact(json.RawMessage(src), []string{"pin"}); err == nil {
			t.Errorf("%s became %s", src, got)
		}
	}
	p := mustPolicy(t, edit(t, toolPolicy, "-", `"redact":{"ledger.post":["account"]}`))
	c := hostedCall(t, postCall)
	i := Inspect(p, c)
	shown, err := i.Shown(p, c)
	if err != nil || strings.Contains(string(shown), "1200-01") || !strings.Contains(string(shown), `"amount":"2500.00"`) {
		t.Errorf("shown as %s, %v", shown, err)
	}
	if i.ArgsHash != Inspect(mustPolicy(t, toolPolicy), c).ArgsHash {
		t.Error("what is hidden from people changes what they approve")
	}
}

func TestDeepArgumentsAreHandledWithoutHarm(t *testing.T) {
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	p, c := mustPolicy(t, toolPolicy), Call{Tool: "ledger.post", Resource: "tenant:north", Arguments: json.RawMessage(deep)}
	i := Inspect(p, c)
	if i.Refused != nil {
		t.Fatal(i.Refused)
	}
	if shown, err := i.Shown(p, c); err != nil || string(shown) != deep {
		t.Errorf("%.20s, %v", shown, err)
	}
	c.Arguments = json.RawMessage(strings.Repeat("[", 5000) + strings.Repeat("]", 5000))
	if i := Inspect(p, c); i.Refused == nil || i.Refused.Code != CodeAmbiguous {
		t.Errorf("%v", i.Refused)
	}
}

func FuzzToolParsers(f *testing.F) {
	v := readVectors(f)
	for _, x := range v.PolicyParse {
		f.Add([]byte(x.Policy), []byte(postCall))
	}
	for _, x := range v.HostBind {
		f.Add([]byte(x.Policy), []byte(x.Call))
	}
	f.Fuzz(func(t *testing.T, policy, call []byte) {
		var a, b jsjson.Doc
		if a.Parse(policy) != nil || b.Parse(call) != nil {
			return
		}
		p, err := ParseToolPolicy(a.Root())
		var fault *Fault
		if (p == nil) != (err != nil) || err != nil && (!errors.As(err, &fault) || !utf8.ValidString(err.Error())) {
			t.Fatalf("%v, %q", p, err)
		}
		c, err := parseHosted(b.Root())
		if err != nil && (!errors.As(err, &fault) || !utf8.ValidString(err.Error())) {
			t.Fatalf("%q", err)
		}
		i := Inspect(p, c)
		if (i.Refused == nil) != (i.ArgsHash != "" && i.Risk != "") || len(i.Claims) == 0 {
			t.Fatalf("%+v", i)
		}
		if i.Refused != nil {
			if !utf8.ValidString(i.Refused.Detail) {
				t.Fatalf("%q", i.Refused.Detail)
			}
			return
		}
		if !slices.Contains(p.AllowedTools, c.Tool) || Ambiguous(c.Tool) || Ambiguous(c.Resource) {
			t.Fatalf("%+v passes %+v", p, c)
		}
		if r := EvaluateTool(p, c); r.Allowed || r.State != ReceiptRequired {
			t.Fatalf("%+v", r)
		}
		shown, err := i.Shown(p, c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := canon.Marshal(shown); err != nil {
			t.Fatalf("no log can hold %s: %v", shown, err)
		}
	})
}
