package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks are the fenced blocks of a language.
func blocks(text, language string) []string {
	var found []string
	for _, part := range strings.Split(text, "\n```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```\n")
		found = append(found, block)
	}
	return found
}

func TestTheReadmeBeginsInFiveLinesAndTwoCommands(t *testing.T) {
	text := readme(t)
	_, rest, _ := strings.Cut(text, "# settlewatch\n\n")
	introduction, _, _ := strings.Cut(rest, "\n\n")
	if n := len(strings.Split(introduction, "\n")); n != 5 {
		t.Errorf("the introduction has %d lines, want 5", n)
	}
	want := "go run ./cmd/settlewatch demo\ngo test ./..."
	if sh := blocks(text, "sh"); len(sh) == 0 || sh[0] != want {
		t.Errorf("the first sh block is not\n%s", want)
	}
}

func TestTheReadmeNamesEveryCommand(t *testing.T) {
	_, table, _ := strings.Cut(readme(t), "## What a person can run\n")
	table, _, _ = strings.Cut(table, "\n## ")
	a := app{env: system()}
	for _, c := range a.root().Commands() {
		if name := c.Name(); name != "help" && name != "serve" && !strings.Contains(table, "`"+name) {
			t.Errorf("the command %s is not in the README", name)
		}
	}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 2 && !strings.Contains(line, "---") && strings.TrimSpace(cells[2]) == "" {
			t.Errorf("an empty cell: %s", line)
		}
	}
}

// A reader pastes the configuration into a host, which starts the command with
// its arguments and talks to it. .ci/readme names the binary the README's own
// commands have built.
func TestTheReadmesConfigurationStartsAServer(t *testing.T) {
	found := blocks(readme(t), "json")
	if len(found) != 2 {
		t.Fatalf("%d json blocks, want one host configuration and one policy", len(found))
	}
	var config struct {
		Servers map[string]struct {
			Command string   `json:"command"`
			Args    []string `json:"args"`
		} `json:"mcpServers"`
	}
	decoder := json.NewDecoder(strings.NewReader(found[0]))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&config); err != nil {
		t.Fatal(err)
	}
	server, ok := config.Servers[serverName]
	if !ok || server.Command != "/path/to/settlewatch" {
		t.Fatalf("no server of ours: %v", config)
	}
	binary := os.Getenv("SETTLEWATCH")
	if binary == "" {
		var err error
		if binary, err = exec.LookPath("settlewatch"); err != nil { // the test binary, see TestMain
			t.Fatal(err)
		}
	}
	root := filepath.Join(t.TempDir(), ".trace")
	if err := os.CopyFS(root, os.DirFS(filepath.Join("..", "..", "testdata", "runs", "02-settle-timeout"))); err != nil {
		t.Fatal(err)
	}
	at := slices.Index(server.Args, "/path/to/agent/.trace")
	if at < 0 {
		t.Fatalf("the arguments name no root: %q", server.Args)
	}
	server.Args[at] = root
	// Under the README's own policy.
	policy := filepath.Join(t.TempDir(), "policy.json")
	if err := os.WriteFile(policy, []byte(found[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	if at = slices.Index(server.Args, "/path/to/settlewatch-policy.json"); at < 0 {
		t.Fatalf("the arguments name no policy: %q", server.Args)
	}
	server.Args[at] = policy

	const requests = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"list_operations","arguments":{}}}
{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"check_before_pay","arguments":{"counterparty":"https://scam.example/x","amount":"0.01"}}}
`
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(t.Context(), binary, server.Args...)
	c.Dir = t.TempDir() // hosts start servers wherever they like
	c.Stdin, c.Stdout, c.Stderr = strings.NewReader(requests), &stdout, &stderr
	c.WaitDelay = 10 * time.Second
	if err := c.Run(); err != nil {
		t.Fatalf("%v, stderr %q", err, stderr.String())
	}
	answers := map[int]json.RawMessage{}
	for line := range bytes.Lines(stdout.Bytes()) {
		var a struct {
			ID     int             `json:"id"`
			Result json.RawMessage `json:"result"`
		}
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		answers[a.ID] = a.Result
	}
	var hello struct {
		ServerInfo struct{ Name string }
	}
	if err := json.Unmarshal(answers[1], &hello); err != nil || hello.ServerInfo.Name != "settlewatch" {
		t.Errorf("initialize: %v, %s", err, answers[1])
	}
	var list struct {
		Tools []struct{ Name string }
	}
	if err := json.Unmarshal(answers[2], &list); err != nil {
		t.Errorf("tools/list: %v, %s", err, answers[2])
	}
	// The tools it offers are those of the README's table.
	_, table, _ := strings.Cut(readme(t), "## What the agent can ask\n")
	for _, tool := range list.Tools {
		if !strings.Contains(table, "| `"+tool.Name+"` |") {
			t.Errorf("the tool %s is not in the README", tool.Name)
		}
	}
	if len(list.Tools) != 8 {
		t.Errorf("%d tools, want the README's 8", len(list.Tools))
	}
	var called struct {
		IsError bool
		Content struct {
			Operations []struct{ Completeness string }
		} `json:"structuredContent"`
	}
	if err := json.Unmarshal(answers[3], &called); err != nil || called.IsError || len(called.Content.Operations) != 15 {
		t.Errorf("tools/call: %v, %s", err, answers[3])
	}
	var checked struct {
		Content struct {
			Decision string
			Reasons  []struct{ Rule string }
		} `json:"structuredContent"`
	}
	if err := json.Unmarshal(answers[4], &checked); err != nil || checked.Content.Decision != "block" || checked.Content.Reasons[0].Rule != "denylist" {
		t.Errorf("check_before_pay: %v, %s", err, answers[4])
	}
}

func TestThePoliciesWeShowAreSound(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "policy.md"))
	if err != nil {
		t.Fatal(err)
	}
	market, err := os.ReadFile(filepath.Join("..", "..", "docs", "market.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := append(blocks(readme(t), "json")[1:], blocks(string(page), "json")...)
	found = append(found, blocks(string(market), "json")[1:]...) // the first asks about an offer
	if len(found) != 3 {
		t.Fatalf("%d policies", len(found))
	}
	for _, text := range found {
		p, err := guard.ParsePolicy([]byte(text))
		if err != nil {
			t.Errorf("%v\n%s", err, text)
			continue
		}
		for _, s := range p.Explain() {
			if len(s.Warnings) > 0 {
				t.Errorf("%s: %q", s.Path, s.Warnings)
			}
		}
	}
}

// Every rule of the guard's contract is in the README, in the order they are given.
func TestTheReadmeNamesEveryRuleInOrder(t *testing.T) {
	_, table, _ := strings.Cut(readme(t), "## What the guard checks\n")
	table, _, _ = strings.Cut(table, "\n## ")
	at := 0
	for _, rule := range []string{
		"not_ready", "frozen", "log_unsound", "recorder_silent", "denylist", "rejected_by_human", "recently_rejected", "allowlist", "open_partial",
		"duplicate_purchase", "unknown_asset", "unparseable_amount", "asset_mismatch", "per_counterparty_limit", "mixed_assets", "unparseable_history",
		"spend_gate", "limit:<name>", "review_above", "payee_changed", "price_drift", "damaged_history",
	} {
		i := strings.Index(table[at:], "`"+rule+"`")
		if i < 0 {
			t.Errorf("no rule %s after those before it", rule)
			continue
		}
		at += i
	}
}
