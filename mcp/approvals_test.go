package mcp

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	mcplib "github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

var _ Approvals = (*guard.Guard)(nil)

// noOperator is an operator nobody asks.
type noOperator struct{}

func (noOperator) Mint(context.Context, guard.ToolRequest, string, string, string) (*guard.ToolAnswer, error) {
	panic("it was asked")
}
func (noOperator) MintSpend(context.Context, guard.FinanceRequest, string) (*guard.FinanceAnswer, error) {
	panic("it was asked")
}
func (noOperator) Refused(context.Context, string, string, string, string) error { return nil }

// key is that of a person.
type key struct{ ed25519.PrivateKey }

func (k key) Name() string { return "ana" }
func (k key) PublicKey() string {
	return base64.StdEncoding.EncodeToString(k.Public().(ed25519.PublicKey))
}
func (k key) Sign(payload []byte) ([]byte, error) { return ed25519.Sign(k.PrivateKey, payload), nil }

var ana = key{ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))}

// desk is a guard on a root of its own, and a server that asks it.
type desk struct {
	t     testing.TB
	now   time.Time // moved by tests that ask one question after the other
	guard *guard.Guard
	*service
}

func newDesk(t testing.TB, change ...func(*Options)) *desk {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "events"), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := guard.ParsePolicy([]byte(`{"operators": [{"name": "ana", "publicKey": "` + ana.PublicKey() + `"}], "toolPolicies": {"ops": {
		"version": "p-1", "allowed_tools": ["ledger.post", "kb.search"], "host_bound_fields": {"kb.search": ["tenant_id"]}, "redact": ["secret"]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, now: time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)}
	now := func() time.Time { return d.now }
	x, err := ingest.Open(t.Context(), ingest.Options{Root: root, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	g, err := guard.New(guard.Options{Index: x, Dir: x.GuardDir(), Policy: p, Now: now, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Guard: g, Approvals: g, Demo: true, Toolsets: []string{"trace", "guard", "approvals"}}
	for _, c := range change {
		c(&o)
	}
	s, err := build(x, o, overStdio)
	if err != nil {
		t.Fatal(err)
	}
	d.guard, d.service = g, s
	return d
}

// ask calls a tool and gives its structured content, nil for an error.
func (d *desk) ask(tool, arguments string, meta ...string) (map[string]any, string) {
	d.t.Helper()
	ctx := context.WithValue(d.t.Context(), callKey{}, &callInfo{fromWire: true, arguments: []byte(arguments), meta: []byte(strings.Join(meta, ""))})
	t := d.mcp.GetTool(tool)
	if t == nil {
		d.t.Fatalf("there is no tool %s", tool)
	}
	r, err := t.Handler(ctx, callRequest(tool))
	if err != nil {
		d.t.Fatal(err)
	}
	wire, err := json.Marshal(r)
	if err != nil {
		d.t.Fatal(err)
	}
	var said reply
	if err := json.Unmarshal(wire, &said); err != nil {
		d.t.Fatal(err)
	}
	if said.IsError {
		return nil, said.Content[0].Text
	}
	var content map[string]any
	if err := json.Unmarshal(said.Structured, &content); err != nil {
		d.t.Fatal(err)
	}
	var value any = content
	if err := outputs()[tool].compiled().Validate(value); err != nil {
		d.t.Errorf("the answer of %s is not as its schema says: %v\n%s", tool, err, said.Structured)
	}
	return content, said.Content[0].Text
}

func (d *desk) state() *decision.State {
	d.t.Helper()
	s, err := d.guard.Log().Read(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const post = `{"tool":"ledger.post","resource":"tenant:north","arguments":{"amount":"2500.00","secret":"hunter2"}}`

func TestAnAgentAsksAPersonApprovesAndTheCallRunsOnce(t *testing.T) {
	d := newDesk(t)
	asked, _ := d.ask("request_authorization", `{"call":`+post+`,"policy":"ops"}`)
	id, _ := asked["review_id"].(string)
	if asked["pending"] != true || asked["ok"] != false || asked["state"] != "RECEIPT_REQUIRED" || asked["handoff"] == nil || id == "" {
		t.Fatalf("%v", asked)
	}
	status, text := d.ask("get_review_status", `{"review_id":"`+id+`"}`)
	if status["status"] != "pending" || strings.Contains(text, "not pay") || !strings.Contains(text, "ledger.post") {
		t.Errorf("%v\n%s", status, text)
	}
	if _, err := d.guard.Decide(t.Context(), guard.Decision{IDs: []string{id}, Decision: "approved", Signer: ana}); err != nil {
		t.Fatal(err)
	}
	_, text = d.ask("get_review_status", `{"review_id":"`+id+`"}`)
	if !strings.Contains(text, "request_authorization") || strings.Contains(text, "check_before_pay") {
		t.Errorf("%s", text)
	}
	granted, _ := d.ask("request_authorization", `{"call":`+post+`,"policy":"ops","review_id":"`+id+`"}`)
	if granted["ok"] != true {
		t.Fatalf("%v", granted)
	}
	use := `{"call":` + post + `,"policy":"ops","receipt":` + jsonOf(t, granted["receipt"]) + `}`
	ran, text := d.ask("authorize_tool_call", use)
	if ran["state"] != "AUTHORIZED" || ran["allowed"] != true || ran["receipt_hash"] != granted["receipt_hash"] {
		t.Errorf("%v", ran)
	}
	// Clients of the protocol read the text as JSON.
	var same map[string]any
	if err := json.Unmarshal([]byte(text), &same); err != nil || jsonOf(t, same) != jsonOf(t, ran) {
		t.Errorf("the text is %s, %v", text, err)
	}
	if again, _ := d.ask("authorize_tool_call", use); again["deny_code"] != approval.CodeReplayed {
		t.Errorf("%v", again)
	}
	if _, text := d.ask("get_review_status", `{"review_id":"`+id+`"}`); !strings.Contains(text, "USED") {
		t.Errorf("%s", text)
	}
}

func TestEveryRefusalHasItsLineSchemaErrorsToo(t *testing.T) { // 75, 34
	d := newDesk(t)
	for name, c := range map[string]struct{ tool, arguments, says string }{
		"a key":                         {"authorize_tool_call", `{"call":` + post + `,"policy":"ops","signing_key":"k"}`, `E_INPUT: there is no member "signing_key"`},
		"no call":                       {"authorize_tool_call", `{"policy":"ops"}`, `E_INPUT: "call" is missing`},
		"no resource":                   {"evaluate_tool_approval", `{"call":{"tool":"ledger.post"},"policy":"ops"}`, `E_INPUT: "call"."resource" is missing`},
		"a repeated key":                {"authorize_tool_call", `{"call":{"tool":"a","tool":"ledger.post","resource":"r"},"policy":"ops"}`, `E_INPUT: "call"."tool" is given more than once`},
		"NaN":                           {"evaluate_spend_gate", `{"action":{"action":"PAY","asset":"USDC","notional":NaN}}`, "E_INPUT: the arguments are not JSON"},
		"an infinite cap":               {"evaluate_spend_gate", `{"action":{"action":"PAY","asset":"USDC","notional":1},"policy":{"max_notional":1e999,"daily_cap":1,"hitl_threshold":1,"min_confidence":0}}`, "E_INPUT: "},
		"a total below zero":            {"evaluate_spend_gate", `{"action":{"action":"PAY","asset":"USDC","notional":1},"committed_today":-1}`, "E_INPUT: "},
		"an unpaired surrogate":         {"chp_content_hash", `{"value":"\ud800"}`, "E_INPUT: hash the value"},
		"a number beyond doubles":       {"chp_content_hash", `{"value":1e400}`, "E_INPUT: "},
		"both forms":                    {"request_authorization", `{"call":` + post + `,"policy":"ops","tool":"x","args":{}}`, "E_INPUT: both call and tool"},
		"neither form":                  {"request_authorization", `{}`, "E_INPUT: neither"},
		"no amount":                     {"wire_treasury_transfer", `{"from_account":"a","to_account":"b"}`, `E_INPUT: "amount" is missing`},
		"an amount as text":             {"wire_treasury_transfer", `{"from_account":"a","to_account":"b","amount":"1"}`, "E_INPUT: "},
		"a limit too large":             {"inspect_audit_ledger", `{"limit":1000000}`, "E_INPUT: "},
		"a cursor of nobody":            {"inspect_audit_ledger", `{"cursor":"x"}`, "E_INPUT: the cursor is none of ours"},
		"a member of a tool that takes": {"chp_version", `{"x":1}`, "E_INPUT: "},
	} {
		before := d.state().Lines()
		content, text := d.ask(c.tool, c.arguments)
		if content != nil || !strings.HasPrefix(text, c.says) {
			t.Errorf("%s: %v %s, want %s", name, content, text, c.says)
		}
		found, _, err := d.guard.Log().Tail(t.Context(), 0, 1, func(*decision.Line) bool { return true })
		if err != nil || d.state().Lines() == before {
			t.Fatalf("%s: nothing was written: %v", name, err)
		}
		line, ok := found[0].Body.(*decision.Denied)
		if !ok || line.Tool != c.tool || line.ReasonCode != guard.CodeInput || !strings.Contains(text, line.Detail[:min(len(line.Detail), 20)]) {
			t.Errorf("%s: the log says %s", name, found[0].Raw)
		}
	}
	// Every decision that is no error has its line as well, and is no error.
	for name, c := range map[string]struct{ tool, arguments string }{
		"not listed":       {"evaluate_tool_approval", `{"call":{"tool":"shell.exec","resource":"r","arguments":{}},"policy":"ops"}`},
		"listed":           {"evaluate_tool_approval", `{"call":` + post + `,"policy":"ops"}`},
		"no receipt":       {"authorize_tool_call", `{"call":` + post + `,"policy":"ops"}`},
		"half a receipt":   {"authorize_tool_call", `{"call":` + post + `,"policy":"ops","receipt":{"kind":"x"}}`},
		"a text":           {"wire_treasury_transfer", `{"from_account":"a","to_account":"b","amount":1,"receipt":"x"}`},
		"blocked":          {"evaluate_spend_gate", `{"action":{"action":"PAY","asset":"USDC","notional":501}}`},
		"a person":         {"evaluate_spend_gate", `{"action":{"action":"PAY","asset":"USDC","notional":300}}`},
		"pending":          {"request_authorization", `{"call":` + post + `,"policy":"ops"}`},
		"pending again":    {"request_authorization", `{"call":` + post + `,"policy":"ops"}`},
		"a wire":           {"request_authorization", `{"tool":"wire_treasury_transfer","args":{"from_account":"a","to_account":"b","amount":1}}`},
		"an approver":      {"request_authorization", `{"tool":"wire_treasury_transfer","args":{"from_account":"a","to_account":"b","amount":1},"approver":"ana"}`},
		"one of a call":    {"request_authorization", `{"call":` + post + `,"policy":"ops","approver":"ana"}`},
		"a policy":         {"request_authorization", `{"tool":"wire_treasury_transfer","args":{"from_account":"a","to_account":"b","amount":1},"policy":{"max_notional":1e9,"daily_cap":1e9,"hitl_threshold":1e9,"min_confidence":0}}`},
		"a tool policy":    {"request_authorization", `{"call":` + post + `,"policy":{"version":"1","allowed_tools":["ledger.post"]}}`},
		"an envelope":      {"authorize_tool_call", `{"call":{"tool":"kb.search","resource":"r","arguments":{},"_meta":{"cubiczan":{"host_bound":{"tenant_id":"a"}}}},"policy":"ops"}`},
		"no such tool":     {"request_authorization", `{"tool":"constructor","args":{}}`},
		"a missing amount": {"request_authorization", `{"tool":"wire_treasury_transfer","args":{"from_account":"a","to_account":"b"}}`},
	} {
		before := d.state().Lines()
		content, text := d.ask(c.tool, c.arguments)
		if content == nil || content["ledger_seq"] != float64(d.state().Lines()) || d.state().Lines() == before {
			t.Errorf("%s: %s (%d lines before, %d now)", name, text, before, d.state().Lines())
		}
	}
}

// What reaches no tool may have been meant for one whose refusals are kept.
func TestAMessageThatReachesNoToolHasItsLineToo(t *testing.T) { // 75
	call := func(name, more string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + name + `","arguments":{}` + more + `}}`
	}
	for name, c := range map[string]struct{ message, what, says string }{
		"a tool of the other toolset":  {call("issue_approval_receipt", ""), "tools/call", "tool 'issue_approval_receipt' not found"},
		"no tool at all":               {call("constructor", ""), "tools/call", "tool 'constructor' not found"},
		"arguments that stand twice":   {call("authorize_tool_call", `,"arguments":{}`), noMessage, `params have "arguments" more than once`},
		"a name that stands twice":     {call("authorize_tool_call", `,"name":"chp_version"`), noMessage, `params have "name" more than once`},
		"half a message":               {call("authorize_tool_call", "")[:60], noMessage, "the line is not one JSON value"},
		"one that is nested too deep":  {call("authorize_tool_call", `,"x":`+strings.Repeat("[", 4000)+strings.Repeat("]", 4000)), noMessage, "the line is not one JSON value"},
		"one that is longer than read": {call("authorize_tool_call", `,"x":"`+strings.Repeat("x", 20_000)+`"`), noMessage, ""},
	} {
		for _, over := range []string{"stdio", "HTTP"} {
			d := newDesk(t)
			ask := func() (answer string) {
				if over == "HTTP" {
					h := &httpHandler{service: d.service, library: http.NotFoundHandler(), most: 10_000, draining: make(chan struct{})}
					if c.what != noMessage {
						h.library = server.NewStreamableHTTPServer(d.mcp, server.WithStateLess(true))
					}
					w := httptest.NewRecorder()
					r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(c.message))
					r.Header.Set("Content-Type", "application/json")
					h.ServeHTTP(w, r)
					return w.Body.String()
				}
				var out bytes.Buffer
				if err := newConn(t.Context(), d.service, 10_000, shutdown).serve(t.Context(), strings.NewReader(c.message+"\n"), &out); err != nil {
					t.Fatal(err)
				}
				return out.String()
			}
			first := ask()
			found, _, err := d.guard.Log().Tail(t.Context(), 0, 1, func(*decision.Line) bool { return true })
			if err != nil || len(found) != 1 {
				t.Fatalf("%s over %s: nothing was written: %v, %s", name, over, err, first)
			}
			line, ok := found[0].Body.(*decision.Denied)
			if !ok || line.Tool != c.what || line.ReasonCode != guard.CodeInput || !strings.HasPrefix(line.Detail, c.says) || !strings.Contains(first, `"error"`) {
				t.Errorf("%s over %s: the log says %s, the answer is %s", name, over, found[0].Raw, first)
			}
			if err := os.Rename(d.guard.Log().Path(), d.guard.Log().Path()+".x"); err != nil {
				t.Fatal(err)
			}
			if again := ask(); !strings.Contains(again, `"code":-32603`) || !strings.Contains(again, "E_LOG_UNSOUND") && !strings.Contains(again, "E_LOG_WRITE") {
				t.Errorf("%s over %s, without a log: %s", name, over, again)
			}
		}
	}
}

func TestARefusalThatCannotBeWrittenIsAnErrorOfTheLog(t *testing.T) { // 51, 71
	d := newDesk(t)
	if err := os.Mkdir(filepath.Dir(d.guard.Log().Path()), 0o700); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	if err := os.Mkdir(d.guard.Log().Path(), 0o700); err != nil {
		t.Fatal(err)
	}
	for tool, arguments := range map[string]string{
		"evaluate_tool_approval": `{"call":` + post + `,"policy":"ops"}`, "authorize_tool_call": `{"call":` + post + `,"policy":"ops"}`,
		"request_authorization": `{"call":` + post + `,"policy":"ops"}`, "evaluate_spend_gate": `{"action":{"action":"PAY","asset":"USDC","notional":501}}`,
		"place_equity_order": `{}`, "chp_content_hash": `{"value":"\ud800"}`,
	} {
		if content, text := d.ask(tool, arguments); content != nil || !strings.HasPrefix(text, "E_LOG_WRITE: ") {
			t.Errorf("%s: %v %s", tool, content, text)
		}
	}
}

func TestTheHostsPartIsBoundOnlyWhereTheHostIsTrusted(t *testing.T) { // 38, 41, 45, 47
	search := func(arguments string) string {
		return `{"call":{"tool":"kb.search","resource":"docs","arguments":` + arguments + `},"policy":"ops"}`
	}
	const meta = `{"cubiczan":{"host_bound":{"tenant_id":"umbra"}}}`
	trusting := func(o *Options) { o.TrustMeta = true }
	fixed := func(o *Options) { o.Host = approval.HostBound(map[string]string{"tenant_id": "north"}) }
	for name, c := range map[string]struct {
		change          []func(*Options)
		arguments, meta string
		code            string
		shown           string
	}{
		"not trusted":                {nil, `{"q":"x"}`, meta, approval.CodeAmbiguous, ""},
		"trusted":                    {[]func(*Options){trusting}, `{"q":"x"}`, meta, "", `{"q":"x","tenant_id":"umbra"}`},
		"trusted and silent":         {[]func(*Options){trusting}, `{"q":"x"}`, ``, approval.CodeAmbiguous, ""},
		"overridden by the model":    {[]func(*Options){trusting}, `{"q":"x","tenant_id":"north"}`, meta, approval.CodeHostBoundOverride, ""},
		"fixed":                      {[]func(*Options){fixed}, `{"q":"x"}`, meta, "", `{"q":"x","tenant_id":"north"}`},
		"fixed wins over the host's": {[]func(*Options){trusting, fixed}, `{"q":"x"}`, meta, "", `{"q":"x","tenant_id":"north"}`},
		"the principal's tenant":     {[]func(*Options){trusting}, `{"q":"x"}`, `{"cubiczan":{"principal":{"id":"u","orgId":"umbra"}}}`, "", `{"q":"x","tenant_id":"umbra"}`},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, c.change...)
			got, text := d.ask("request_authorization", search(c.arguments), c.meta)
			if c.code != "" {
				if got["deny_code"] != c.code {
					t.Errorf("%s, want %s", text, c.code)
				}
				return
			}
			id, _ := got["review_id"].(string)
			if r := d.state().Review(id); r == nil || r.Call.Arguments != c.shown {
				t.Errorf("%s\n%+v, want %s", text, r, c.shown)
			}
		})
	}
}

func TestTheLedgerIsPagedAndShowsNoArguments(t *testing.T) { // 58
	for _, shows := range []bool{false, true} {
		d := newDesk(t, func(o *Options) { o.LedgerArgs = shows })
		d.ask("request_authorization", `{"call":`+post+`,"policy":"ops"}`)
		for range 7 {
			d.ask("authorize_tool_call", `{"call":`+post+`,"policy":"ops"}`)
		}
		page, text := d.ask("inspect_audit_ledger", `{}`)
		if strings.Contains(text, "2500.00") != shows || strings.Contains(text, "hunter2") {
			t.Errorf("arguments: %v\n%s", shows, text)
		}
		entries, _ := page["entries"].([]any)
		tools, _ := page["tools"].([]any)
		if len(entries) != 8 || page["tail"] != "NOT PINNED" || jsonOf(t, page["chain"]) != `{"ok":true}` || len(tools) != 3 || page["next_cursor"] != nil {
			t.Errorf("%s", text)
		}
		for _, tool := range tools {
			if tool.(map[string]any)["synthetic"] != true {
				t.Errorf("%v", tool)
			}
		}
		var seen []float64
		cursor := ""
		for range 10 {
			part, _ := d.ask("inspect_audit_ledger", `{"limit":3`+cursor+`}`)
			list := part["entries"].([]any)
			for _, e := range slices.Backward(list) {
				seen = append(seen, e.(map[string]any)["seq"].(float64))
			}
			next, more := part["next_cursor"].(string)
			if !more {
				break
			}
			cursor = `,"cursor":"` + next + `"`
		}
		if len(seen) != 8 || !slices.IsSortedFunc(seen, func(a, b float64) int { return int(b - a) }) {
			t.Errorf("pages hold %v", seen)
		}
	}
}

func TestAnAlteredLogIsSaidToBe(t *testing.T) { // 59
	d := newDesk(t)
	for range 3 {
		d.ask("authorize_tool_call", `{"call":`+post+`,"policy":"ops"}`)
	}
	raw, err := os.ReadFile(d.guard.Log().Path())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.guard.Log().Path(), []byte(strings.Replace(string(raw), "ledger.post", "ledger.pot", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	page, text := d.ask("inspect_audit_ledger", `{}`)
	if chain, _ := page["chain"].(map[string]any); chain["ok"] != false || chain["reason"] == "" || page["tail"] != "NOT PINNED" {
		t.Errorf("%s", text)
	}
	if content, text := d.ask("authorize_tool_call", `{"call":`+post+`,"policy":"ops"}`); content != nil || !strings.HasPrefix(text, "E_LOG_UNSOUND: ") {
		t.Errorf("%v %s", content, text)
	}
}

func TestHashesAreThoseOfTheRulesByName(t *testing.T) { // 3
	d := newDesk(t)
	for numbers, want := range map[string]string{"": "lexeme", "lexeme": "lexeme", "float": "float", "jcs": "jcs"} {
		option := ""
		if numbers != "" {
			option = `,"numbers":"` + numbers + `"`
		}
		got, _ := d.ask("chp_content_hash", `{"value":{"b":100.0,"a":[1e2,null]}`+option+`}`)
		text := map[string]string{"lexeme": `{"a":[100.0,null],"b":100.0}`, "float": `{"a":[100.0,null],"b":100.0}`, "jcs": `{"a":[100,null],"b":100}`}[want]
		if got["numbers"] != want || got["content_hash"] != sum(text) {
			t.Errorf("%s: %v", numbers, got)
		}
	}
}

func TestTheOperatorsToolsStandAlone(t *testing.T) {
	d := newDesk(t)
	agent := slices.Sorted(maps.Keys(d.mcp.ListTools()))
	s, err := build(&fake{}, Options{Operator: noOperator{}, Toolsets: []string{"operator"}}, overStdio)
	if err != nil {
		t.Fatal(err)
	}
	operator := slices.Sorted(maps.Keys(s.mcp.ListTools()))
	if !slices.Equal(operator, []string{"approve_spend", "issue_approval_receipt"}) {
		t.Errorf("%v", operator)
	}
	for _, name := range operator {
		if slices.Contains(agent, name) {
			t.Errorf("an agent is offered %s", name)
		}
	}
	both := slices.Concat(agent, operator)
	for _, name := range []string{"evaluate_spend_gate", "approve_spend", "request_authorization", "place_equity_order", "wire_treasury_transfer", "rebalance_portfolio",
		"inspect_audit_ledger", "evaluate_tool_approval", "issue_approval_receipt", "authorize_tool_call", "chp_content_hash", "chp_version"} {
		if !slices.Contains(both, name) {
			t.Errorf("%s is nowhere", name)
		}
	}
	for _, beside := range []string{"trace", "guard", "approvals"} {
		_, err := build(&fake{}, Options{Guard: d.guard, Approvals: d.guard, Operator: noOperator{}, Toolsets: []string{"operator", beside}}, overStdio)
		if e := errcode.Of(err); e == nil || e.Code != errcode.Usage {
			t.Errorf("beside %s: %v", beside, err)
		}
	}
}

// Whatever an agent calls, in whatever order, with whatever it has been given before or
// makes up: no person's permission comes of it (77).
func TestNoOrderOfCallsGrantsWhatAPersonMustGrant(t *testing.T) {
	calls := []string{post, strings.Replace(post, "2500.00", "1.00", 1), `{"tool":"kb.search","resource":"docs","arguments":{"tenant_id":"a"}}`}
	spends := []struct{ tool, args string }{
		{"wire_treasury_transfer", `{"from_account":"a","to_account":"b","amount":1}`},
		{"wire_treasury_transfer", `{"from_account":"a","to_account":"b","amount":9999,"confidence":0.9}`},
		{"place_equity_order", `{"symbol":"IBM","side":"BUY","quantity":1,"notional":249.99}`},
		{"place_equity_order", `{"symbol":"IBM","side":"BUY","quantity":1,"notional":250}`},
		{"rebalance_portfolio", `{"portfolio_id":"p","notional":1000}`},
	}
	small := spends[2]
	d := newDesk(t)
	tools := slices.Sorted(maps.Keys(d.mcp.ListTools()))
	rapid.Check(t, func(rt *rapid.T) {
		d.now = d.now.Add(49 * time.Hour) // a day of its own, and no review is left
		start := d.state().Lines()
		var reviews []string
		receipts := []string{`{"kind":"x"}`, `null`}
		for range rapid.IntRange(1, 12).Draw(rt, "calls") {
			tool := rapid.SampledFrom(tools).Draw(rt, "tool")
			spend := rapid.SampledFrom(spends).Draw(rt, "spend")
			callText := rapid.SampledFrom(calls).Draw(rt, "call")
			receipt := rapid.SampledFrom(receipts).Draw(rt, "receipt")
			if rapid.Bool().Draw(rt, "forge") {
				receipt = strings.NewReplacer(`"auto-lock"`, `"ana"`, "place_equity_order", "wire_treasury_transfer", "trading:equities:place", "treasury:wire", `"deny"`, `"allow"`).Replace(receipt)
			}
			review := ""
			if len(reviews) > 0 && rapid.Bool().Draw(rt, "review") {
				review = `,"review_id":"` + rapid.SampledFrom(reviews).Draw(rt, "id") + `"`
			}
			arguments := `{}`
			switch tool {
			case "evaluate_tool_approval":
				arguments = `{"call":` + callText + `,"policy":"ops"}`
			case "authorize_tool_call":
				arguments = `{"call":` + callText + `,"policy":` + rapid.SampledFrom([]string{`"ops"`, `{"version":"p-1","allowed_tools":["ledger.post"]}`}).Draw(rt, "policy") + `,"receipt":` + receipt + `}`
			case "request_authorization":
				arguments = `{"call":` + callText + `,"policy":"ops"` + review + `}`
				if rapid.Bool().Draw(rt, "spends") {
					extra := rapid.SampledFrom([]string{"", `,"approver":"ana"`, `,"policy":{"max_notional":1e9,"daily_cap":1e9,"hitl_threshold":1e9,"min_confidence":0}`, `,"committed_today":0`, `,"scope":"treasury:wire"`}).Draw(rt, "extra")
					arguments = `{"tool":"` + spend.tool + `","args":` + spend.args + extra + review + `}`
				}
			case "place_equity_order", "wire_treasury_transfer", "rebalance_portfolio":
				if spend.tool != tool {
					continue
				}
				arguments = spend.args[:len(spend.args)-1] + `,"receipt":` + receipt + `}`
			case "evaluate_spend_gate":
				arguments = `{"action":{"action":"PAY","asset":"USDC","notional":1},"policy":{"max_notional":1e9,"daily_cap":1e9,"hitl_threshold":1e9,"min_confidence":0}}`
			case "chp_content_hash":
				arguments = `{"value":` + receipt + `}`
			case "check_before_pay":
				arguments = `{"counterparty":"shop.example","amount":"2"` + review + `}`
			case "get_review_status":
				if review == "" {
					continue
				}
				arguments = `{` + review[1:] + `}`
			}
			got, _ := d.ask(tool, arguments)
			if got == nil {
				continue
			}
			if id, ok := got["review_id"].(string); ok {
				reviews = append(reviews, id)
			}
			for _, name := range []string{"receipt", "authorization", "deny"} {
				if got[name] != nil {
					receipts = append(receipts, jsonOf(t, got[name]))
				}
			}
			switch {
			case got["state"] == "AUTHORIZED", got["status"] == "approved":
				rt.Fatalf("%s %s gave %v", tool, arguments, got)
			case got["ok"] == true && (spend.tool != small.tool || spend.args != small.args):
				rt.Fatalf("%s %s gave %v", tool, arguments, got)
			}
		}
		for r := range d.state().Reviews() {
			if r.Last() != nil {
				rt.Fatalf("review %s was decided", r.ReviewID)
			}
		}
		lines, _, err := d.guard.Log().Tail(t.Context(), 0, 100, func(l *decision.Line) bool { return l.Seq > start })
		if err != nil {
			rt.Fatal(err)
		}
		for _, l := range lines {
			if a, ok := l.Body.(*decision.Authorized); ok && (a.Approver != approval.ActorAuto || a.Tool != small.tool) {
				rt.Fatalf("the log says %s", l.Raw)
			}
		}
	})

}

func sum(text string) string { return canon.Sum([]byte(text)) }

func callRequest(tool string) mcplib.CallToolRequest {
	return mcplib.CallToolRequest{Params: mcplib.CallToolParams{Name: tool}}
}
