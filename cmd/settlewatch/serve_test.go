package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// A host may stop the server by a signal while it still holds stdin open: what
// was read is answered, and the server ends by itself with status 0.
func TestServeEndsWhenItIsStopped(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	root := recorded(t, "02-settle-timeout")
	ctx, stop := context.WithCancel(t.Context())
	in, requests := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan int)
	go func() {
		ended <- run(ctx, []string{"--dir", root}, in, out, io.Discard, system())
		out.Close()
	}()
	lines := bufio.NewScanner(answers)
	lines.Buffer(nil, 1<<20)
	ask := func(line string) map[string]any {
		t.Helper()
		if _, err := io.WriteString(requests, line+"\n"); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() {
			t.Fatalf("no answer: %v", lines.Err())
		}
		var found map[string]any
		if err := json.Unmarshal(lines.Bytes(), &found); err != nil {
			t.Fatal(err)
		}
		return found
	}
	got := ask(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_operations","arguments":{}}}`)
	content, _ := got["result"].(map[string]any)["structuredContent"].(map[string]any)
	rows, _ := content["operations"].([]any)
	if len(rows) != 15 {
		t.Errorf("%d operations: %v", len(rows), got)
	}
	// What the agent is told and what `list --json` prints are one document.
	printed, _, _ := answer(t, "list", "--json", "--dir", root)
	var want map[string]any
	if err := json.Unmarshal([]byte(printed), &want); err != nil {
		t.Fatal(err)
	}
	if a, b := mustJSON(content), mustJSON(want); a != b {
		t.Errorf("the tool answers\n%s\nthe command prints\n%s", a, b)
	}
	stop()
	select {
	case status := <-ended:
		if status != 0 {
			t.Errorf("status %d", status)
		}
	case <-time.After(10 * time.Second):
		t.Error("the server did not end")
	}
	requests.Close()
	in.Close()
}

func mustJSON(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetIndent("", " ")
	if err := e.Encode(v); err != nil {
		panic(err)
	}
	return b.String()
}
