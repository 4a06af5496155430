package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestToolsListIsAsRecorded(t *testing.T) {
	for golden, o := range map[string]Options{
		"tools_list":           {Guard: &fakeGuard{}},
		"tools_list_approvals": {Approvals: &guard.Guard{}, Demo: true, Toolsets: []string{"approvals"}},
		"tools_list_operator":  {Operator: noOperator{}, Toolsets: []string{"operator"}},
	} {
		isRecorded(t, "testdata/"+golden+".json", o)
	}
}

func isRecorded(t *testing.T, golden string, o Options) {
	t.Helper()
	c := connect(t, t.Context(), &fake{}, o, shutdown)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	c.in.Close()
	sameAsRecorded(t, golden, c.must().Result)
}

func sameAsRecorded(t *testing.T, golden string, result []byte) {
	t.Helper()
	var got bytes.Buffer
	if err := json.Indent(&got, result, "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("what agents are shown has changed; if that is meant, run go test ./mcp -update and add a line to CHANGELOG.md\n%s", diff)
	}
}

func TestToolsAreCompletelyDescribed(t *testing.T) {
	described(t, Options{Guard: &fakeGuard{}}, 8)
	described(t, Options{Guard: &fakeGuard{}, Market: clientOf(t, "https://market.example"), Toolsets: []string{"trace", "guard", "market"}}, 8+5)
	described(t, Options{Guard: &fakeGuard{}, Approvals: &guard.Guard{}, Toolsets: []string{"trace", "guard", "approvals"}}, 8+7)
	described(t, Options{Approvals: &guard.Guard{}, Toolsets: []string{"approvals"}, Demo: true}, 7+3)
	described(t, Options{Operator: noOperator{}, Toolsets: []string{"operator"}}, 2)
}

func described(t *testing.T, o Options, n int) {
	t.Helper()
	s, err := build(&fake{}, o, overStdio)
	if err != nil {
		t.Fatal(err)
	}
	tools := s.mcp.ListTools()
	if len(tools) != n {
		t.Errorf("%d tools, want %d", len(tools), n)
	}
	for name, tool := range tools {
		if n := len(tool.Tool.Description); n > hostText {
			t.Errorf("%s has a description of %d bytes, hosts show %d", name, n, hostText)
		}
		a := tool.Tool.Annotations
		if a.ReadOnlyHint == nil || a.DestructiveHint == nil || a.IdempotentHint == nil || a.OpenWorldHint == nil {
			t.Errorf("%s lacks an annotation hint", name)
		}
		if tool.Tool.Description == "" || tool.Tool.Title == "" {
			t.Errorf("%s has no description or title", name)
		}
		for side, raw := range map[string]json.RawMessage{"input": tool.Tool.RawInputSchema, "output": tool.Tool.RawOutputSchema} {
			var schema map[string]any
			if err := json.Unmarshal(raw, &schema); err != nil {
				t.Fatalf("%s %s: %v", name, side, err)
			}
			describe(t, name+" "+side, schema)
		}
	}
}

// hostText is how many bytes of a description, and of the instructions, hosts are
// known to show.
const hostText = 2048

// describe holds a schema to the house's rules: closed objects, a description
// for each member, bounds for what a client sends.
func describe(t *testing.T, at string, schema map[string]any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	// An offer is a seller's text, passed on as it came.
	if open := strings.HasSuffix(at, " input.offer"); properties != nil && schema["additionalProperties"] != open {
		t.Errorf("%s allows unknown members", at)
	}
	for _, name := range asList(schema["required"]) {
		if properties[name.(string)] == nil {
			t.Errorf("%s requires %s, which it does not have", at, name)
		}
	}
	for name, p := range properties {
		inner := p.(map[string]any)
		where := at + "." + name
		if d, _ := inner["description"].(string); d == "" {
			t.Errorf("%s has no description", where)
		}
		if strings.Contains(at, "input") {
			switch inner["type"] {
			case "string":
				if inner["enum"] == nil && (inner["maxLength"] == nil || inner["minLength"] == nil) {
					t.Errorf("%s has no bounds", where)
				}
			case "integer":
				if inner["minimum"] == nil || inner["maximum"] == nil {
					t.Errorf("%s has no bounds", where)
				}
			}
		}
		describe(t, where, inner)
	}
	if items, ok := schema["items"].(map[string]any); ok {
		describe(t, at+"[]", items)
	}
}

func asList(v any) []any {
	list, _ := v.([]any)
	return list
}

func TestASchemaThatDoesNotCompileKeepsTheServerFromStarting(t *testing.T) {
	for name, source := range map[string]string{
		"not JSON":        `{`,
		"a wrong keyword": `{"type":"text"}`,
		"a wrong bound":   `{"type":"integer","maximum":"many"}`,
		"a wrong pattern": `{"type":"string","pattern":"("}`,
		"a dangling ref":  `{"$ref":"#/none"}`,
	} {
		if _, err := compile("x.json", []byte(source)); err == nil {
			t.Errorf("%s: compiled", name)
		}
	}
	s, err := build(&fake{}, Options{}, overStdio)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.add(tool{name: "no_such_tool"}); err == nil {
		t.Error("a tool without schemas was added")
	}
}

func TestTheWaitIsBoundedByTheTransport(t *testing.T) {
	s, err := build(&fake{}, Options{Guard: &fakeGuard{}}, transport{name: "other", maxWait: 25})
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"await_operation", "get_review_status"} {
		schema := string(s.mcp.GetTool(tool).Tool.RawInputSchema)
		if !strings.Contains(schema, `"maximum":25`) || strings.Contains(schema, `"maximum":55`) {
			t.Errorf("the schema of %s is %s", tool, schema)
		}
	}
}

func TestToolsetsAreChosenByName(t *testing.T) {
	all, defaults := Toolsets()
	want := []string{"trace", "guard", "market", "approvals", "operator"}
	if !slices.Equal(all, want) || !slices.Equal(defaults, want[:2]) {
		t.Errorf("toolsets are %v, by default %v", all, defaults)
	}
	for name, test := range map[string]struct {
		names []string
		good  bool
	}{
		"none named":    {nil, true},
		"one":           {[]string{"trace"}, true},
		"one, repeated": {[]string{"trace", "trace"}, true},
		"unknown":       {[]string{"trace", "tarce"}, false},
		"empty":         {[]string{}, false},
		"another case":  {[]string{"Trace"}, false},
		"no guard":      {[]string{"trace", "guard"}, false},
		"no market":     {[]string{"trace", "market"}, false},
	} {
		_, err := build(&fake{}, Options{Toolsets: test.names}, overStdio)
		var coded *errcode.Error
		if (err == nil) != test.good || err != nil && (!errors.As(err, &coded) || coded.Code != errcode.Usage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestArgumentsThatDoNotFitAreRefusedByName(t *testing.T) {
	long := strings.Repeat("é", 1100)
	for name, test := range map[string]struct{ tool, arguments, want string }{
		"an unknown member":                   {"list_operations", `{"zzz":1}`, `E_INPUT: there is no member "zzz". try: use template, run, completeness, counterparty, settlement, limit, cursor`},
		"an unknown member in another case":   {"get_receipt", `{"run_id":"r","operation_id":"o","Run_id":"x"}`, `E_INPUT: there is no member "Run_id". try: use run_id, operation_id, template, events (needed: run_id, operation_id)`},
		"an unknown member before a missing":  {"get_receipt", `{"run":"r"}`, `E_INPUT: there is no member "run". try: use run_id, operation_id, template, events (needed: run_id, operation_id)`},
		"the first of several unknown":        {"list_operations", `{"b":1,"a":2}`, `E_INPUT: there is no member "a". try: use template, run, completeness, counterparty, settlement, limit, cursor`},
		"a hostile unknown member":            {"list_operations", `{"a\u001b[31m\u202e\nb":1}`, `E_INPUT: there is no member "a b". try: use template, run, completeness, counterparty, settlement, limit, cursor`},
		"a missing member":                    {"get_receipt", `{"run_id":"r"}`, `E_INPUT: "operation_id" is missing. try: use run_id, operation_id, template, events (needed: run_id, operation_id)`},
		"text for a number":                   {"list_operations", `{"limit":"50"}`, `E_INPUT: "limit" must be a whole number, not the text "50". try: a whole number from 1 to 100`},
		"a fraction":                          {"list_operations", `{"limit":1.5}`, `E_INPUT: "limit" must be a whole number, not 1.5. try: a whole number from 1 to 100`},
		"a number too large":                  {"list_operations", `{"limit":101}`, `E_INPUT: "limit" is too large. try: a whole number from 1 to 100`},
		"a number too small":                  {"list_operations", `{"limit":0}`, `E_INPUT: "limit" is too small. try: a whole number from 1 to 100`},
		"a number beyond all":                 {"list_operations", `{"limit":1e400}`, `E_INPUT: "limit" is too large a number. try: use template, run, completeness, counterparty, settlement, limit, cursor`},
		"a huge exponent":                     {"list_operations", `{"limit":1e999999999}`, `E_INPUT: "limit" is too large a number. try: use template, run, completeness, counterparty, settlement, limit, cursor`},
		"null":                                {"list_operations", `{"run":null}`, `E_INPUT: "run" must be text, not null. try: text of 1 to 2048 characters`},
		"a list for text":                     {"list_operations", `{"run":["latest"]}`, `E_INPUT: "run" must be text, not a list. try: text of 1 to 2048 characters`},
		"a value outside an enumeration":      {"list_operations", `{"completeness":"Full"}`, `E_INPUT: "completeness" is none of the values it can have. try: one of full, partial`},
		"an empty text":                       {"list_operations", `{"run":""}`, `E_INPUT: "run" is empty. try: text of 1 to 2048 characters`},
		"a template path":                     {"explain", `{"run_id":"r","operation_id":"o","template":"../x.yaml"}`, `E_INPUT: "template" does not have the form it must have. try: text that matches ^[A-Za-z0-9_-]+$ of 1 to 128 characters`},
		"a template with a line feed":         {"explain", `{"run_id":"r","operation_id":"o","template":"x\n"}`, `E_INPUT: "template" does not have the form it must have. try: text that matches ^[A-Za-z0-9_-]+$ of 1 to 128 characters`},
		"a text over 2048 bytes":              {"list_operations", `{"run":"` + long + `"}`, `E_INPUT: "run" is 2200 bytes long, the most is 2048. try: use template, run, completeness, counterparty, settlement, limit, cursor`},
		"an unknown text over 2048 bytes":     {"list_operations", `{"zzz":["` + long + `"]}`, `E_INPUT: "zzz"[0] is 2200 bytes long, the most is 2048. try: use template, run, completeness, counterparty, settlement, limit, cursor`},
		"a cursor over 2048 bytes":            {"list_operations", `{"cursor":"` + strings.Repeat("x", 2049) + `"}`, `E_INPUT: "cursor" is 2049 bytes long, the most is 2048. try: use template, run, completeness, counterparty, settlement, limit, cursor`},
		"a repeated member":                   {"list_operations", `{"run":"a","run":"a"}`, `E_INPUT: "run" is given more than once. try: use template, run, completeness, counterparty, settlement, limit, cursor`},
		"a repeated member spelled by escape": {"list_operations", `{"run":"a","r\u0075n":"b"}`, `E_INPUT: "run" is given more than once. try: use template, run, completeness, counterparty, settlement, limit, cursor`},
		"a repeated member inside":            {"list_operations", `{"x":{"y":1,"y":2}}`, `E_INPUT: "x"."y" is given more than once. try: use template, run, completeness, counterparty, settlement, limit, cursor`},
		"a list of arguments":                 {"list_operations", `[]`, `E_INPUT: arguments must be an object, not a list. try: use template, run, completeness, counterparty, settlement, limit, cursor`},
		"null arguments":                      {"list_operations", `null`, `E_INPUT: arguments must be an object, not null. try: use template, run, completeness, counterparty, settlement, limit, cursor`},
		"text arguments":                      {"list_operations", `"{}"`, `E_INPUT: arguments must be an object, not text. try: use template, run, completeness, counterparty, settlement, limit, cursor`},
		"a wait too long":                     {"await_operation", `{"run_id":"r","operation_id":"o","wait_seconds":56}`, `E_INPUT: "wait_seconds" is too large. try: a whole number from 0 to 55`},
		"a wait below zero":                   {"await_operation", `{"run_id":"r","operation_id":"o","wait_seconds":-1}`, `E_INPUT: "wait_seconds" is too small. try: a whole number from 0 to 55`},
		"no wait":                             {"await_operation", `{"run_id":"r","operation_id":"o"}`, `E_INPUT: "wait_seconds" is missing. try: use run_id, operation_id, template, wait_seconds (needed: run_id, operation_id, wait_seconds)`},
		"text for true or false":              {"get_receipt", `{"run_id":"r","operation_id":"o","events":"false"}`, `E_INPUT: "events" must be true or false, not the text "false". try: true or false`},
		"a run id without quotes":             {"get_receipt", `{"run_id":1796030990969,"operation_id":"o"}`, `E_INPUT: "run_id" must be text, not the number 1796030990969. try: put it in quotes: "1796030990969"`},
		"an operation id without quotes":      {"await_operation", `{"run_id":"r","operation_id":12345678901234567890123,"wait_seconds":0}`, `E_INPUT: "operation_id" must be text, not the number 12345678901234567890123. try: put it in quotes: "12345678901234567890123"`},
		"a run without quotes in a list":      {"list_operations", `{"run":7}`, `E_INPUT: "run" must be text, not the number 7. try: put it in quotes: "7"`},
		"a number that is no id":              {"get_receipt", `{"run_id":1.7e12,"operation_id":"o"}`, `E_INPUT: "run_id" must be text, not the number 1.7e12. try: text of 1 to 2048 characters`},
		"a number of many digits":             {"get_receipt", `{"run_id":` + strings.Repeat("9", 300) + `,"operation_id":"o"}`, `E_INPUT: "run_id" must be text, not the number ` + strings.Repeat("9", 79) + `…. try: text of 1 to 2048 characters`},
		"a number for a word":                 {"list_operations", `{"completeness":1}`, `E_INPUT: "completeness" must be text, not the number 1. try: one of full, partial`},
		"true for text":                       {"explain", `{"run_id":true,"operation_id":"o"}`, `E_INPUT: "run_id" must be text, not true. try: text of 1 to 2048 characters`},
		"a fraction of a second":              {"await_operation", `{"run_id":"r","operation_id":"o","wait_seconds":0.5}`, `E_INPUT: "wait_seconds" must be a whole number, not 0.5. try: a whole number from 0 to 55`},
		"hostile text for a number":           {"await_operation", `{"run_id":"r","operation_id":"o","wait_seconds":"5\u001b[31m\n\"x"}`, `E_INPUT: "wait_seconds" must be a whole number, not the text "5 'x". try: a whole number from 0 to 55`},
		"an object for a number":              {"await_operation", `{"run_id":"r","operation_id":"o","wait_seconds":{"s":5}}`, `E_INPUT: "wait_seconds" must be a whole number, not an object. try: a whole number from 0 to 55`},
	} {
		t.Run(name, func(t *testing.T) {
			got, isError := ask(t, &fake{}, test.tool, test.arguments)
			if !isError {
				t.Fatal("the call was answered")
			}
			if len(got.Content) != 1 || got.Content[0].Text != test.want {
				t.Errorf("the refusal is\n%+v, want\n%s", got.Content, test.want)
			}
			if got.Structured != nil {
				t.Error("a refusal has structured content")
			}
		})
	}
}

func TestOnlyAListTakesWordsForRuns(t *testing.T) {
	for _, tool := range []string{"get_receipt", "explain", "await_operation"} {
		in, err := loadSchema(tool+".input.json", overStdio)
		if err != nil {
			t.Fatal(err)
		}
		text := string(in.source)
		if !strings.Contains(text, "Exact id of the run") || strings.Contains(text, "run:") {
			t.Errorf("%s does not say that ids are exact: %s", tool, text)
		}
	}
}

func TestExplainSaysWhatItsArgumentEventsIsFor(t *testing.T) {
	in, err := loadSchema("explain.input.json", overStdio)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(in.source); strings.Contains(text, "events_omitted") || !strings.Contains(text, "it changes nothing") {
		t.Errorf("the schema is %s", text)
	}
	v := one(t, open)
	with, _ := ask(t, v.traces(), "explain", v.arguments(""))
	without, isError := ask(t, v.traces(), "explain", v.arguments(`,"events":false`))
	if isError || string(with.Structured) != string(without.Structured) {
		t.Errorf("with events: false the answer is %s %+v", without.Structured, without.Content)
	}
}

// reply is the result of a tool call.
type reply struct {
	Content    []struct{ Type, Text string } `json:"content"`
	Structured json.RawMessage               `json:"structuredContent"`
	IsError    bool                          `json:"isError"`
	line       int
}

// outputs are the compiled output schemas.
var outputs = sync.OnceValue(func() map[string]*schema {
	all := map[string]*schema{}
	for _, tool := range []string{"list_operations", "get_receipt", "explain", "await_operation",
		"check_before_pay", "get_review_status", "get_headroom", "release_hold",
		"morphit_search_orders", "morphit_get_listing", "morphit_list_instances", "morphit_list_payment_methods", "morphit_describe",
		"evaluate_spend_gate", "request_authorization", "evaluate_tool_approval", "authorize_tool_call", "inspect_audit_ledger", "chp_content_hash", "chp_version",
		"place_equity_order", "wire_treasury_transfer", "rebalance_portfolio", "approve_spend", "issue_approval_receipt"} {
		out, err := loadSchema(tool+".output.json", overStdio)
		if err != nil {
			panic(err)
		}
		all[tool] = out
	}
	return all
})

// serviceOf is one server for each Traces: building it compiles the schemas.
func serviceOf(t *testing.T, traces Traces) *service {
	t.Helper()
	if s, ok := services.Load(traces); ok {
		return s.(*service)
	}
	s, err := build(traces, Options{}, overStdio)
	if err != nil {
		t.Fatal(err)
	}
	services.Store(traces, s)
	return s
}

var services sync.Map // Traces to *service

// ask calls one tool over stdio and holds the answer to the rules of every one:
// its size, its output schema, its text.
func ask(t *testing.T, traces Traces, tool, arguments string) (reply, bool) {
	t.Helper()
	return askOf(t, serviceOf(t, traces), tool, arguments)
}

func askOf(t *testing.T, s *service, tool, arguments string) (reply, bool) {
	t.Helper()
	c := connectTo(t, t.Context(), s, 0, shutdown)
	c.send(call(1, tool, arguments))
	c.in.Close()
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := <-c.ended; err != nil {
		t.Fatal(err)
	}
	if len(line) > answerLimit {
		t.Errorf("the answer has %d bytes, the limit is %d", len(line), answerLimit)
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		t.Fatal(err)
	}
	if m.Error != nil {
		t.Fatalf("the call failed: %+v", m.Error)
	}
	r := reply{line: len(line)}
	if err := json.Unmarshal(m.Result, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Content) != 1 || r.Content[0].Type != "text" || r.Content[0].Text == "" {
		t.Errorf("the content is %+v", r.Content)
	} else if text := r.Content[0].Text; len(text) > answerLimit/2 || r.IsError && (len(text) > 4500 || strings.Contains(text, "\n")) {
		t.Errorf("the text has %d bytes: %s", len(text), text)
	}
	if !r.IsError {
		out := outputs()[tool]
		var value any
		if err := json.Unmarshal(r.Structured, &value); err != nil {
			t.Fatal(err)
		}
		if err := out.compiled().Validate(value); err != nil {
			t.Errorf("the answer is not as its schema says: %v\n%s", err, r.Structured)
		}
	}
	return r, r.IsError
}
