package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
)

// hostedServer is one that a host has started.
type hostedServer struct {
	t      *testing.T
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *bytes.Buffer
	wait   func() error
	id     int
}

func hosted(t *testing.T, env []string, args ...string) *hostedServer {
	t.Helper()
	binary, err := exec.LookPath("settlewatch") // the test binary, see TestMain
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), binary, args...)
	c.Dir, c.Env = t.TempDir(), append(os.Environ(), env...)
	s := &hostedServer{t: t, stderr: &bytes.Buffer{}, wait: c.Wait}
	c.Stderr = s.stderr
	if s.in, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewReader(out)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// call gives the structured content of an answer, or its text where it is an error.
func (s *hostedServer) call(tool, arguments string) (map[string]any, string) {
	s.t.Helper()
	s.id++
	fmt.Fprintf(s.in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":%s}}`+"\n", s.id, tool, arguments)
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		s.t.Fatalf("%s: %v, stderr %s", tool, err, s.stderr)
	}
	var m struct {
		Result struct {
			IsError           bool
			Content           []struct{ Text string }
			StructuredContent map[string]any
		}
		Error json.RawMessage
	}
	if err := json.Unmarshal(line, &m); err != nil || m.Error != nil {
		s.t.Fatalf("%s: %s, %v", tool, line, err)
	}
	if m.Result.IsError {
		return nil, m.Result.Content[0].Text
	}
	return m.Result.StructuredContent, m.Result.Content[0].Text
}

func (s *hostedServer) end() {
	s.t.Helper()
	_ = s.in.Close()
	if err := s.wait(); err != nil {
		s.t.Errorf("%v, stderr %s", err, s.stderr)
	}
}

// TestTheApprovalsPageDoesWhatItSays follows the page: its host configuration, its
// policy and its five commands, with what an agent asks in between.
func TestTheApprovalsPageDoesWhatItSays(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "approvals.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := strings.Split(blocks(string(page), "sh")[0], "\n")
	documents := blocks(string(page), "json")
	if len(commands) != 5 || len(documents) != 2 {
		t.Fatalf("%d commands, %d documents", len(commands), len(documents))
	}
	home, root := t.TempDir(), filepath.Join(t.TempDir(), ".trace")
	if err := os.CopyFS(root, os.DirFS(filepath.Join("..", "..", "testdata", "runs", "02-settle-timeout"))); err != nil {
		t.Fatal(err)
	}
	policy := filepath.Join(t.TempDir(), "policy.json")
	who := &fakePerson{secrets: []string{"four words of mine", "four words of mine", "four words of mine"}}
	review := ""
	run := func(command string) string {
		t.Helper()
		args := strings.Fields(strings.NewReplacer(`"ordered by me"`, "ordered", "/path/to/agent/.trace", root, "/path/to/settlewatch-policy.json", policy, "4f1c22aa", review).Replace(command))
		var out, errs bytes.Buffer
		env := system()
		env.home = func() (string, error) { return home, nil }
		env.getenv = func(string) string { return "" }
		a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, env: env, keyCost: 4, someone: who}
		tree := a.root()
		tree.SetArgs(args[1:])
		if exit := a.finish(t.Context(), a.execute(t.Context(), tree)); exit != 0 {
			t.Fatalf("%s: exit %d\n%s%s", command, exit, &out, &errs)
		}
		return out.String()
	}
	key := regexp.MustCompile(`"publicKey": ?"([^"]+)"`)
	made := key.FindStringSubmatch(run(commands[0]))
	if made == nil {
		t.Fatal("no key was printed")
	}
	text := strings.Replace(documents[1], key.FindStringSubmatch(documents[1])[1], made[1], 1)
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run(commands[1])

	var config struct {
		Servers map[string]struct{ Args []string } `json:"mcpServers"`
	}
	if err := json.Unmarshal([]byte(documents[0]), &config); err != nil {
		t.Fatal(err)
	}
	args := config.Servers["settlewatch"].Args
	for i := range args {
		args[i] = strings.NewReplacer("/path/to/agent/.trace", root, "/path/to/settlewatch-policy.json", policy).Replace(args[i])
	}
	s := hosted(t, nil, args...)
	defer s.end()
	const call = `{"tool":"ledger.post","resource":"tenant:north","arguments":{"account":"1200-01","amount":"2500.00","iban":"DE02120300000000202051"}}`
	asked, _ := s.call("request_authorization", `{"call":`+call+`,"policy":"ops"}`)
	id, _ := asked["review_id"].(string)
	if id == "" || asked["pending"] != true {
		t.Fatalf("%v", asked)
	}
	review = strings.TrimPrefix(id, "r-")[:8]
	if list := run(commands[2]); !strings.Contains(list, id) || !strings.Contains(list, "ledger.post") {
		t.Errorf("%s", list)
	}
	show := run(commands[3])
	if !strings.Contains(show, `"amount": "2500.00"`) || strings.Contains(show, "DE0212") || !strings.Contains(show, "critical") || !strings.Contains(show, "review approve "+review) {
		t.Errorf("%s", show)
	}
	run(commands[4])
	granted, _ := s.call("request_authorization", `{"call":`+call+`,"policy":"ops","review_id":"`+id+`"}`)
	receipt, err := json.Marshal(granted["receipt"])
	if err != nil || granted["ok"] != true {
		t.Fatalf("%v", granted)
	}
	use := `{"call":` + call + `,"policy":"ops","receipt":` + string(receipt) + `}`
	if got, text := s.call("authorize_tool_call", use); got["state"] != "AUTHORIZED" {
		t.Errorf("%s", text)
	}
	if got, text := s.call("authorize_tool_call", use); got["deny_code"] != "replayed_receipt" {
		t.Errorf("%s", text)
	}
	if out := run("settlewatch audit verify --dir " + root); !strings.Contains(out, "NOT PINNED") {
		t.Errorf("%s", out)
	}
	// What was said of a refusal stands in the published rows as well.
	if out := run("settlewatch audit export --format chp --dir " + root); strings.Count(out, `"event":"execute","reason_code":null,"tool":"ledger.post"`) != 2 { // in the row and in its payload
		t.Errorf("%s", out)
	}
}

func callReview(arguments string) guard.ReviewView {
	v := pendingReview()
	v.Call = &decision.Call{Tool: "ledger.post", Resource: "tenant:north", Risk: "critical", Arguments: arguments, ArgsHash: strings.Repeat("a", 64), Policy: "ops", PolicyVersion: "p-1", TTL: 90_000}
	v.Counterparty, v.Amount, v.Asset, v.PayTo, v.Network, v.Names, v.Facts = "ledger.post", "", "", "", "", nil, nil
	v.Reasons = []decision.Reason{{Rule: "tool_approval", Detail: "every call of it needs a person"}}
	return v
}

func TestAPersonSeesAllThatWillRun(t *testing.T) {
	long := strings.Repeat("0123456789", 2000)
	q := asking{guard: &fakeGuard{reviews: []guard.ReviewView{callReview(`{"end":"the last of it","long":"` + long + `","to":"a\u202eb` + "\u202e" + `  c\u001b[31m"}`)}}, width: 40}
	out, _, exit := q.run(t, "review", "show", "4f1c22aa")
	if exit != 0 {
		t.Fatal(exit)
	}
	contains(t, "show", squeezed(out), long, `"thelastofit"`, `\u202eb`, `\u0020c\u001b[31m`, "ledger.post", "tenant:north", "critical", "goodfor1m30s", "reviewapprove4f1c22aa")
	lacks(t, "show", out, "\u202e", "\x1b[31m", "pay ")
	out, _, _ = q.run(t, "review", "show", "4f1c22aa", "--json")
	var doc struct {
		Call struct{ Arguments string } `json:"tool_call"`
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || !strings.Contains(doc.Call.Arguments, long) {
		t.Errorf("%.300s %v", out, err)
	}
}

func TestTheOperatorsServerWantsAKeyAndATerminalAndStandsAlone(t *testing.T) {
	root := filepath.Join(t.TempDir(), ".trace")
	if err := os.MkdirAll(filepath.Join(root, "events"), 0o700); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	file := filepath.Join(home, "key")
	content, public, err := decision.NewKey("ana", []byte("four words of mine"), 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	policy := filepath.Join(home, "policy.json")
	if err := os.WriteFile(policy, []byte(`{"operators":[{"name":"ana","publicKey":"`+public+`"}],"toolPolicies":{"ops":{"version":"1","allowed_tools":["ledger.post"]}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	mint := func(actor, decision string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"issue_approval_receipt","arguments":{"actor":"` + actor + `","call":{"tool":"ledger.post","resource":"r","arguments":{}},"policy":"ops","decision":"` + decision + `"}}}` + "\n"
	}
	serve := func(who person, stdin, toolsets string) (string, string, int) {
		var out, errs bytes.Buffer
		env := system()
		env.getenv = func(string) string { return "" }
		a := &app{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs, env: env, keyCost: 4, someone: who}
		tree := a.root()
		tree.SetArgs([]string{"serve", "--dir", root, "--guard-config", policy, "--operator-key", file, "--toolset", toolsets})
		exit := a.finish(t.Context(), a.execute(t.Context(), tree))
		return out.String(), errs.String(), exit
	}
	if _, _, exit := serve(&fakePerson{}, "", "operator,approvals"); exit != 2 {
		t.Errorf("beside the agent's tools: exit %d", exit)
	}
	if f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		f.Close() // somebody runs the tests on a terminal
	} else if _, _, exit := serve(nil, "", "operator"); exit != 1 {
		t.Errorf("without a terminal: exit %d", exit)
	}
	for name, c := range map[string]struct {
		who    *fakePerson
		line   string
		states []string
	}{
		"another actor":      {&fakePerson{}, mint("bob", "allow"), []string{"DENIED", "ambiguous"}},
		"the person says no": {&fakePerson{answers: []bool{false}}, mint("ana", "allow"), []string{"DENIED", "human_denied"}},
		"a wrong passphrase": {&fakePerson{answers: []bool{true}, secrets: []string{"x", "y", "z"}}, mint("ana", "allow"), []string{"DENIED", "human_denied"}},
		"a deny":             {&fakePerson{answers: []bool{true}, secrets: []string{"four words of mine"}}, mint("ana", "deny"), []string{"DENIED", "human_denied", `"decision":"deny"`, `"ok":false`}},
		"an allow":           {&fakePerson{answers: []bool{true}, secrets: []string{"four words of mine"}}, mint("ana", "allow"), []string{"RECEIPT_REQUIRED", `"ok":true`, `"actor":"ana"`, `"decision":"allow"`}},
	} {
		out, errs, exit := serve(c.who, c.line, "operator")
		if exit != 0 {
			t.Fatalf("%s: exit %d, %s", name, exit, errs)
		}
		for _, part := range c.states {
			if !strings.Contains(out, part) {
				t.Errorf("%s: no %s in %s\n%s", name, part, out, errs)
			}
		}
		if len(c.who.secrets) > 0 || strings.Contains(out, "four words") {
			t.Errorf("%s: the passphrase was not asked on the terminal", name)
		}
	}
}

func TestTheEnvironmentOfThePublishedServerIsAnsweredWithAWarning(t *testing.T) { // 33
	root := t.TempDir()
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
		says []string
	}{
		"its ledger":         {map[string]string{"CHP_AUDIT_LEDGER": "x", "AUDIT_LEDGER_KEY": "y"}, nil, []string{"CHP_AUDIT_LEDGER is ignored", "AUDIT_LEDGER_KEY is ignored", "audit export --format chp"}},
		"a short key":        {map[string]string{"CHP_RECEIPT_KEY": "short"}, nil, []string{"receipts of version 1 are refused"}},
		"a flag without key": {nil, []string{"--allow-hmac-receipts"}, []string{"--allow-hmac-receipts has no effect"}},
	} {
		var out, errs bytes.Buffer
		env := system()
		env.getenv = func(name string) string { return c.env[name] }
		a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, env: env}
		tree := a.root()
		tree.SetArgs(append([]string{"serve", "--dir", root, "--toolset", "approvals"}, c.args...))
		if exit := a.finish(t.Context(), a.execute(t.Context(), tree)); exit != 0 {
			t.Errorf("%s: exit %d", name, exit)
		}
		contains(t, name, errs.String(), c.says...)
	}
	for _, bad := range []string{"x", "=x", "x=", ""} {
		a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, env: system()}
		tree := a.root()
		tree.SetArgs([]string{"serve", "--dir", root, "--host-bound", bad})
		if exit := a.finish(t.Context(), a.execute(t.Context(), tree)); exit != 2 {
			t.Errorf("--host-bound %q: exit %d", bad, exit)
		}
	}
}
