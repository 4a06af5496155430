package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

func TestEveryCodeHasAPage(t *testing.T) {
	dir := filepath.Join("..", "..", "docs", "errors")
	known := map[string]bool{}
	for _, code := range errcode.All() {
		name := string(code) + ".md"
		known[name] = true
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Errorf("%s has no page: %v", code, err)
			continue
		}
		text := string(page)
		for _, part := range []string{"# " + string(code) + "\n", "**What happened.**", "**Why.**", "**What to do.**", "```\n"} {
			if !strings.Contains(text, part) {
				t.Errorf("%s: the page has no %q", code, part)
			}
		}
		if want := "Exit status " + string(rune('0'+code.Exit())) + "."; !strings.Contains(text, want) {
			t.Errorf("%s: the page does not say %q", code, want)
		}
	}
	pages, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if strings.HasPrefix(page.Name(), "E_") && !known[page.Name()] {
			t.Errorf("%s is about a code that does not exist", page.Name())
		}
	}
}

// TestThePolicyPageHasEveryDefault holds docs/policy.md to what the defaults are.
func TestThePolicyPageHasEveryDefault(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "policy.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = " -update -->\n", "<!-- end of settings -->"
	head, rest, ok := strings.Cut(string(page), begin)
	got, tail, found := strings.Cut(rest, end)
	if !ok || !found {
		t.Fatal("the page has no place for the settings")
	}
	var want strings.Builder
	want.WriteString("\n| key | default | which means |\n| --- | --- | --- |\n")
	policy := guard.DefaultPolicy()
	for _, s := range policy.Explain() {
		want.WriteString("| `" + strings.TrimPrefix(s.Path, "$.") + "` | " + strings.ReplaceAll(s.Value, "|", "\\|") + " | " + s.Means + " |\n")
	}
	want.WriteByte('\n')
	if *update {
		if err := os.WriteFile(file, []byte(head+begin+want.String()+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want.String(), got); diff != "" {
		t.Errorf("the defaults have changed; if that is meant, run go test ./cmd/settlewatch -run TestThePolicyPage -update\n%s", diff)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(policy.Effective(), &keys); err != nil {
		t.Fatal(err)
	}
	for key := range keys {
		if !strings.Contains(got, "| `"+key) {
			t.Errorf("the key %s is not on the page", key)
		}
	}
}
