package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
