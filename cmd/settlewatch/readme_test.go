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
	if len(found) != 1 {
		t.Fatalf("%d json blocks, want one host configuration", len(found))
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

	const requests = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"list_operations","arguments":{}}}
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
}
