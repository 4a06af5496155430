package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestThePages drives the pages in a real browser: one for all of it.
func TestThePages(t *testing.T) {
	browser := chromium(t)
	t.Run("every page is there, in light and dark, and nobody is left out", func(t *testing.T) { everyPage(t, browser) })
}

func monthRoot(t *testing.T) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), ".trace")
	traceOf(t, root, month(uiNow))
	traceText(t, root, "1781000000000", "{\"event_id\": \"x\", this is no JSON\n")
	entries, err := os.ReadDir(filepath.Join(root, "events"))
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range entries {
		at := uiNow.AddDate(0, 0, i+1-len(entries)).Add(-3600e9)
		if err := os.Chtimes(filepath.Join(root, "events", e.Name()), at, at); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const reports = "0x9c4d27e8a1f05b63d9e2708c4fb6a3510de7c982"

func everyPage(t *testing.T, browser context.Context) {
	s := serveUI(t, monthRoot(t), true)
	first := s.ask("reports.example", "0.40", "--pay-to", reports, "--resource", "https://reports.example/v1/company/acme")
	s.ask("images.example", "2.50", "--pay-to", "0x60d9ab4f7c13e8250f96ad3b8e7c41d29a05bf38", "--resource", "https://images.example/render")
	s.ask("0xa3f018d7c5e94b26907d1f3be84c06a5d7e2b914", "0.90")
	if text, exit := s.command("check", "--counterparty", "maps.example", "--amount", "0.02", "--hold"); exit != 0 {
		t.Log(text)
	}
	b := s.open(browser)
	b.login()
	b.shot("overview-unconfirmed")
	b.confirm()
	for _, p := range []struct{ name, path, says string }{
		{"overview", "/", "Money per day"},
		{"reviews", "/reviews", "0.40"},
		{"review", "/review/" + first, "What exactly is signed"},
		{"batch", "/reviews?many=1", "Decide many at once"},
		{"operations", "/operations", "Last event"},
		{"open", "/operations?settlement=unknown&sort=oldest", "unknown"},
		{"counterparty", "/counterparty?name=reports.example", "Addresses by host"},
		{"log", "/log", "Prove the chain"},
		{"health", "/health", "Damaged runs"},
		{"empty", "/reviews?status=revoked", "No revoked review"},
		{"error", "/review/r-00000000-nothing", "Not found"},
	} {
		b.visit(p.path)
		b.says(p.says)
		b.accessible(p.name)
		b.shot(p.name)
	}
	b.visit("/operations?settlement=unknown")
	b.click("tbody th a")
	b.says("Timeline", "Do you know what became of it?")
	b.accessible("operation")
	b.shot("operation")
	b.phone()
	for _, p := range []struct{ name, path string }{{"phone-overview", "/"}, {"phone-review", "/review/" + first}} {
		b.visit(p.path)
		if ask[bool](b, "document.documentElement.scrollWidth > innerWidth") {
			t.Errorf("%s is wider than a phone", p.name)
		}
		b.accessible(p.name)
		b.shot(p.name)
	}
	b.do(chromedp.EmulateViewport(1200, 900))
	b.quiet("404")
}
