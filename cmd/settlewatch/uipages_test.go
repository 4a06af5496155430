//go:build browser

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdpnetwork "github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/settlewatch/settlewatch/internal/plain"
)

// TestThePages drives the pages in a real browser: one for all of it.
func TestThePages(t *testing.T) {
	browser := chromium(t)
	for _, c := range []struct {
		name string
		run  func(*testing.T, context.Context)
	}{
		{"every page is there, and nobody is left out", everyPage},
		{"a link logs in once, and soon", loginOnce},
		{"what is decided stands in the log, signed", decided2},
		{"two tabs, and a command beside them", twoTabs},
		{"a review expires while its page is open", expiryWhileOpen},
		{"many are decided together or not at all", manyAtOnce},
		{"a person says what became of a payment", resolving},
		{"a form counts once", formsOnce},
		{"strangers' words stay words", hostileWords},
		{"a hundred thousand operations", manyOperations},
		{"no page is heavy", heavyPages},
		{"nobody else reaches in", otherOrigins},
		{"the door gives nothing away", doorStep},
		{"all of it works without scripts", withoutScripts},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // each has a root, a server and cookies of its own
			c.run(t, browser)
		})
	}
}

func monthRoot(t *testing.T) string {
	t.Helper()
	root := agentRoot(t)
	traceOf(t, root, month(uiNow))
	traceText(t, root, "1781000000000", "{\"event_id\": \"x\", this is no JSON\n")
	entries, err := os.ReadDir(filepath.Join(root, "events"))
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range entries {
		at := uiNow.AddDate(0, 0, i+1-len(entries)).Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(root, "events", e.Name()), at, at); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// fewRoot is a root with a purchase that settled and one nobody heard of again.
func fewRoot(t *testing.T) string {
	t.Helper()
	root := agentRoot(t)
	traceOf(t, root, map[string][]bought{"1781500000000": {
		{id: "4f9d1b26-7c3e-4a80-95d1-e2b60c8f7a13", url: "https://weather.example/v1/forecast", payTo: "0x5b1e6f0d2c9a48e7b3d4f1a07c6e92d8b05f3a41", amount: "50000", at: uiNow.Add(-3 * time.Hour), ends: "settled"},
		{id: "c41b7a90-2f6d-4e58-8b13-0d9e6a5f3b27", url: "https://reports.example/v1/company/acme", payTo: reports, amount: "400000", at: uiNow.Add(-2 * time.Hour), ends: "silent"},
	}})
	return root
}

const reports = "0x9c4d27e8a1f05b63d9e2708c4fb6a3510de7c982"

func everyPage(t *testing.T, browser context.Context) {
	s := serveUI(t, monthRoot(t), true)
	first := s.ask("reports.example", "0.40", "--pay-to", reports, "--resource", "https://reports.example/v1/company/acme")
	s.ask("images.example", "2.50", "--pay-to", "0x60d9ab4f7c13e8250f96ad3b8e7c41d29a05bf38", "--resource", "https://images.example/render")
	s.ask("0xa3f018d7c5e94b26907d1f3be84c06a5d7e2b914", "0.90")
	b := s.open(browser)
	b.login()
	b.says("on the terminal")
	b.accessible("unconfirmed")
	b.confirm()
	b.until("!document.querySelector('.code')") // by itself
	if text, exit := s.command("freeze", "--reason", "a stolen key"); exit != 0 {
		t.Fatal(text)
	}
	b.says("Every payment is blocked.")
	b.click("#standing button")
	b.says("No longer frozen.")
	if at := ask[string](b, "location.href"); strings.Contains(at, "did=") {
		t.Errorf("%s says again what was done", at)
	}
	for _, p := range []struct{ name, path, says string }{
		{"overview", "/", "Money per day"},
		{"reviews", "/reviews", "0.40"},
		{"review", "/review/" + first, "What exactly is signed"},
		{"batch", "/reviews?many=1", "Decide many at once"},
		{"operations", "/operations", "Last event"},
		{"open", "/operations?settlement=unknown&sort=oldest", "unknown"},
		{"counterparty", "/counterparty?name=images.example", "Addresses by host"},
		{"log", "/log", "Prove the chain"},
		{"health", "/health", "Damaged runs"},
		{"empty", "/reviews?status=revoked", "No revoked review"},
		{"error", "/review/r-00000000-nothing", "Not found"},
	} {
		b.visit(p.path)
		b.says(p.says)
		if p.name != "open" && p.name != "error" { // as operations, as empty
			b.accessible(p.name)
		}
		b.shot(p.name)
		b.light(p.name)
	}
	b.visit("/")
	b.until(`document.querySelector("#days canvas")`)
	b.visit("/operations?settlement=unknown")
	b.click("tbody th a")
	b.says("Timeline", "Do you know what became of it?", "Unknown is not failed")
	b.accessible("operation")
	b.shot("operation")
	b.scheme("dark")
	b.visit("/review/" + first)
	b.accessible("review in the dark")
	b.visit("/operations")
	b.accessible("operations in the dark")
	b.scheme("light")
	// From the keyboard: the first stop leads past the navigation.
	b.do(chromedp.KeyEvent("\t"))
	if got := ask[string](b, "document.activeElement.className"); got != "skip" {
		t.Errorf("the first stop is %q", got)
	}
	b.do(chromedp.EmulateViewport(390, 844))
	for _, p := range []struct{ name, path string }{{"phone-overview", "/"}, {"phone-review", "/review/" + first}, {"phone-operations", "/operations"}} {
		b.visit(p.path)
		if ask[bool](b, "document.documentElement.scrollWidth > innerWidth") {
			t.Errorf("%s is wider than a phone", p.name)
		}
		if p.name != "phone-operations" {
			b.accessible(p.name)
			b.shot(p.name)
		}
	}
	b.quiet("404") // the page that is not there
}

// light holds a page to what it may weigh, with all it loads.
func (b *tab) light(name string) {
	b.t.Helper()
	b.until("document.readyState == 'complete'")
	weight := ask[int](b, `performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation")).filter(e => e.initiatorType != "fetch").reduce((n, e) => n + e.decodedBodySize, 0)`)
	if weight > 150<<10 || weight < 10<<10 {
		b.t.Errorf("%s weighs %d bytes", name, weight)
	}
}

// Pages of the worst there is are no heavier.
func heavyPages(t *testing.T, browser context.Context) {
	root := agentRoot(t)
	var all []bought
	for i := range 30 {
		all = append(all, bought{id: fmt.Sprintf("open-%02d", i), url: "https://shop.example/" + strings.Repeat("x", 1500), payTo: reports, amount: fmt.Sprint(400000 + i), at: uiNow.Add(-time.Hour), ends: "silent"})
	}
	traceOf(t, root, map[string][]bought{"1781500000000": all})
	var long strings.Builder
	for range 400 {
		long.WriteString(bought{id: "long", url: "https://long.example/" + strings.Repeat("y", 300), payTo: reports, amount: "1", at: uiNow.Add(-time.Hour), ends: "silent"}.lines())
	}
	traceText(t, root, "1781500000001", attached+long.String())
	s := serveUI(t, root, false)
	for i := range 24 {
		s.ask("shop.example", fmt.Sprintf("0.%d", 31+i), "--pay-to", reports, "--resource", "https://shop.example/"+strings.Repeat("x", 1500)+fmt.Sprint(i))
	}
	b := s.open(browser)
	b.enter()
	for _, path := range []string{"/", "/reviews", "/reviews?many=1", "/operations", "/operation?run=1781500000001&op=long", "/counterparty?name=shop.example", "/log", "/health"} {
		b.visit(path)
		b.light(path)
	}
	b.visit("/reviews")
	b.click("article .evidence li.sub a")
	b.says("What exactly is signed")
	if n := ask[int](b, "document.querySelectorAll('article .evidence a').length"); n < 20 {
		t.Errorf("of the evidence %d pieces are shown", n)
	}
	b.light("a review")
	b.quiet()
}

func loginOnce(t *testing.T, browser context.Context) {
	s := serveUI(t, fewRoot(t), false)
	b := s.open(browser)
	b.visit("/")
	b.says("Please log in")
	b.login()
	got, err := chromedp.Call(b.ctx, cdpnetwork.GetCookies, cdpnetwork.GetCookiesParams{})
	if err != nil || len(got.Cookies) != 1 {
		t.Fatalf("%v, %v", got, err)
	}
	host, _, _ := strings.Cut(strings.TrimPrefix(s.base(), "http://"), ":")
	if c := got.Cookies[0]; !c.HTTPOnly || c.SameSite != cdpnetwork.CookieSameSiteStrict || c.Domain != host || c.Path != "/" || !c.Session {
		t.Errorf("the cookie is %+v", c)
	}
	if seen := ask[string](b, "document.cookie"); seen != "" {
		t.Errorf("a script sees %q", seen)
	}
	thief := s.open(browser)
	thief.do(chromedp.Navigate(s.newest()))
	thief.says("This link was used before", "somebody else on this machine")
	thief.visit("/reviews")
	thief.says("Please log in")
	if !strings.Contains(s.errs.String(), "a link was used a second time") {
		t.Errorf("the terminal does not say it: %s", s.errs.String())
	}
	for _, link := range []string{s.base() + "/login?link=guess", s.base() + "/login"} {
		thief.do(chromedp.Navigate(link))
		thief.says("This link does not work")
	}
	old, late := s.pages.Link(), s.pages.Link() // the second takes the place of the first
	thief.do(chromedp.Navigate(old))
	thief.says("This link does not work")
	s.clock.turn(4 * time.Minute)
	thief.do(chromedp.Navigate(late))
	thief.says("This link does not work")
	b.visit("/")
	b.says("Log out")
	b.click("footer form button")
	b.says("Logged out")
	b.visit("/")
	b.says("Please log in")
	again := s.open(browser)
	again.do(chromedp.Navigate(s.pages.Link()))
	again.says("Log out")
	s.clock.turn(13 * time.Hour)
	again.visit("/log")
	again.says("Please log in")
	b.quiet("401")
}

// last is the newest line of the log of a type.
func (s *uiServer) last(typ string) map[string]any {
	s.t.Helper()
	for _, line := range slices.Backward(s.lines()) {
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			s.t.Fatal(err)
		}
		if l["type"] == typ {
			return l
		}
	}
	return nil
}

func decided2(t *testing.T, browser context.Context) {
	s := serveUI(t, fewRoot(t), true)
	first := s.ask("reports.example", "0.40", "--pay-to", reports, "--resource", "https://reports.example/v1/company/acme")
	second := s.ask("weather.example", "0.90")
	before := len(s.lines())
	b := s.open(browser)
	b.login()
	approve, reject := `article.review button[value=approved]`, `article.review button[value=rejected]`
	// Whoever stole the link sees, and decides nothing.
	b.visit("/review/" + first)
	b.click(approve)
	b.says("Not confirmed on the terminal")
	b.visit("/review/" + first)
	b.click(reject)
	b.says("Not confirmed on the terminal")
	if n := len(s.lines()); n != before {
		t.Fatalf("it wrote %d lines", n-before)
	}
	for _, wrong := range []string{"000 000", "", "12345", "1234567"} {
		if s.pages.Confirm(wrong) {
			t.Errorf("the code %q is taken", wrong)
		}
	}
	b.visit("/review/" + first)
	b.confirm()
	b.visit("/review/" + first)
	b.says("typed by the agent", "seen in the trace", "open_partial", "operation c41b7a90", reports)
	b.fill("article.review input[name=note]", "asked the seller")
	b.click(approve)
	b.says("Approved. The payment may be made once.", "asked the seller", "by ana")
	if l := s.last("decided"); l["review_id"] != first || l["decision"] != "approved" || l["note"] != "asked the seller" || l["decided_by"] != "ana" || l["signature"] == "" {
		t.Errorf("the log has %v", l)
	}
	b.click("article.review button[value=revoked]")
	b.says("The approval was taken back.")
	b.visit("/review/" + second)
	b.click("input[name=freeze]")
	b.click(reject)
	b.says("every payment to this payee is blocked", "Every payment to weather.example is blocked.")
	if l := s.last("frozen"); l["scope"] != "weather.example" {
		t.Errorf("the log has %v", l)
	}
	if l := s.last("decided"); l["decision"] != "rejected" {
		t.Errorf("the log has %v", l)
	}
	b.click(".frozen button")
	b.says("No longer frozen.")
	if l := s.last("unfrozen"); l["scope"] != "weather.example" || l["signature"] == "" {
		t.Errorf("the log has %v", l)
	}
	b.visit("/review/" + second)
	b.click("article.review button[value=reopened]")
	b.says("The review is pending again.")
	b.visit("/log")
	b.says("unfrozen", "reopened", "signed")
	b.click("main form[action='/verify'] button")
	b.says("Proved from the first line", "Tail: NOT PINNED")
	b.fill("#cp", string(mustCheckpoint(s)))
	b.click("main form[action='/verify'] button")
	b.says("Tail: pinned")
	b.fill("#cp", "no checkpoint")
	b.click("main form[action='/verify'] button")
	b.says("That cannot be done")
	// What one login showed another one's form cannot do.
	b.visit("/review/" + second)
	b.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('article form input[name=token]').value = 'x'"))
	b.click(approve)
	b.says("This form is out of date")
	b.visit("/review/" + second)
	b.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('article form input[name=shown]').value = 'x'"))
	b.click(approve)
	b.says("It has changed")
	if l := s.last("decided"); l["decision"] != "reopened" {
		t.Errorf("the log has %v", l)
	}
	b.quiet("403", "422", "409")
}

func mustCheckpoint(s *uiServer) []byte {
	var l struct{ Sig, At string }
	lines := s.lines()
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &l); err != nil {
		s.t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"at": %q, "count": %d, "sig": %q}`, l.At, len(lines), l.Sig)
}

func twoTabs(t *testing.T, browser context.Context) {
	s := serveUI(t, fewRoot(t), true)
	first, second := s.ask("shop.example", "0.40"), s.ask("other.example", "0.50")
	third := s.ask("third.example", "0.60")
	a := s.open(browser)
	a.enter()
	b := a.another()
	for _, tab := range []*tab{a, b} {
		tab.visit("/review/" + first)
		tab.says("pending")
	}
	// Return at the end of a note is no decision.
	a.fill("article.review input[name=note]", "too dear")
	a.do(chromedp.Evaluate[chromedp.Void]("document.querySelector('article.review input[name=note]').focus()"), chromedp.KeyEvent("\r"))
	time.Sleep(200 * time.Millisecond)
	if l := s.last("decided"); l != nil || ask[string](a, "location.pathname") != "/review/"+first {
		t.Errorf("return in a note has decided: %v", l)
	}
	a.visit("/review/" + first)
	// One that is only read follows by itself; one that is typed in says so.
	b.fill("article.review input[name=note]", "let me think")
	a.click("article.review button[value=approved]")
	a.says("Approved.")
	b.says("Something has changed since this page was opened.")
	b.click("article.review button[value=rejected]")
	b.says("Decided already", "it is approved", "by ana")
	if l := s.last("decided"); l["decision"] != "approved" {
		t.Errorf("the log has %v", l)
	}
	// Decided on the command line while the page is open.
	b.visit("/review/" + second)
	a.visit("/reviews")
	a.says("other.example")
	if text, exit := s.command("review", "reject", second, "--note", "by hand"); exit != 0 {
		t.Fatal(text)
	}
	b.says("Decided", "by hand")
	a.until("!document.querySelector('main').innerText.includes('other.example')")
	// An agent asks while somebody looks.
	s.ask("late.example", "0.70")
	a.says("late.example")
	if n := ask[string](a, "document.querySelector('#pending-count').textContent"); n != "2" {
		t.Errorf("%s wait", n)
	}
	// The same form, sent after the command line was faster than anybody looked.
	b.visit("/review/" + third)
	b.fill("article.review input[name=note]", "x")
	if text, exit := s.command("review", "approve", third); exit != 0 {
		t.Fatal(text)
	}
	b.click("article.review button[value=approved]")
	b.says("Decided already")
	a.quiet()
	b.quiet("409")
}

func expiryWhileOpen(t *testing.T, browser context.Context) {
	s := serveUI(t, fewRoot(t), false)
	id := s.ask("shop.example", "0.40")
	b := s.open(browser)
	b.enter()
	b.visit("/review/" + id)
	b.says("could approve this")
	b.fill("article.review input[name=note]", "soon")
	s.clock.turn(8*time.Hour + time.Minute)
	b.click("article.review button[value=approved]")
	b.says("Too late", "no permission")
	if l := s.last("decided"); l != nil {
		t.Errorf("the log has %v", l)
	}
	b.visit("/review/" + id)
	b.says("nobody decided, so it is no permission")
	b.quiet("409")
}

func manyAtOnce(t *testing.T, browser context.Context) {
	s := serveUI(t, fewRoot(t), true)
	var shop []string
	for i := range 4 {
		shop = append(shop, s.ask("shop.example", fmt.Sprintf("0.%d", 41+i)))
	}
	other := s.ask("other.example", "0.90")
	b := s.open(browser)
	b.enter()
	b.visit("/reviews?many=1&q=shop.example")
	b.click("#c-" + shop[3]) // not this one
	b.fill("#note", "all of a kind")
	b.click("button[value=approved]")
	b.says("Approve 3 reviews?", "1.26 USDC on Base", "all of a kind")
	if l := s.last("decided"); l != nil {
		t.Fatalf("decided before it was confirmed: %v", l)
	}
	b.accessible("batch, to be confirmed")
	b.shot("batch-confirm")
	b.click("button.go")
	b.says("All of them were decided.")
	decisions := 0
	for _, line := range s.lines() {
		if strings.Contains(line, `"type":"decided"`) {
			decisions++
			if !strings.Contains(line, `"note":"all of a kind"`) || strings.Contains(line, shop[3]) || strings.Contains(line, other) {
				t.Error(line)
			}
		}
	}
	if decisions != 3 {
		t.Errorf("%d were decided", decisions)
	}
	// All or none: one of them is decided before the second form is sent.
	b.visit("/reviews?many=1")
	b.click("button[value=rejected]")
	b.says("Reject 2 reviews?")
	if text, exit := s.command("review", "approve", other); exit != 0 {
		t.Fatal(text)
	}
	b.click("button.stop")
	b.says("Decided already")
	b.visit("/review/" + shop[3])
	b.says("pending")
	b.quiet("409")
}

func resolving(t *testing.T, browser context.Context) {
	s := serveUI(t, fewRoot(t), true)
	b := s.open(browser)
	b.enter()
	// As a newcomer finds it: from the overview to the payment nobody heard of again.
	b.visit("/")
	b.click("a[href='/operations?settlement=unknown&sort=oldest']")
	b.says("unknown")
	b.click("tbody th a")
	b.says("https://reports.example/v1/company/acme", "may have moved")
	b.click("input[value=settled]")
	b.fill("#r-note", "seen on the chain")
	b.fill("#r-at", "2026-06-15T14:40:30Z")
	b.click("form.grid button")
	b.says("Written down.", "A person closed it as settled", "seen on the chain")
	if l := s.last("resolved"); l["outcome"] != "settled" || l["operation_id"] != "c41b7a90-2f6d-4e58-8b13-0d9e6a5f3b27" || l["signature"] == "" {
		t.Errorf("the log has %v", l)
	}
	b.visit("/")
	b.says("Nothing is open.")
	b.do(chromedp.NavigateBack())
	b.says("Take that back")
	b.click("form[action='/resolve'] button.quiet")
	b.says("The trace alone counts again.")
	b.click("input[value=settled]")
	b.fill("#r-note", "seen")
	b.fill("#r-at", "yesterday")
	b.click("form.grid button")
	b.says("That cannot be done", "cannot be read")
	b.quiet("422")
}

func formsOnce(t *testing.T, browser context.Context) {
	s := serveUI(t, fewRoot(t), false)
	b := s.open(browser)
	b.enter()
	b.visit("/")
	got := ask[[]string](b, `(async () => {
		const form = document.querySelector("form[action='/freeze']");
		form.elements.reason.value = "a stolen key";
		const send = async () => (await fetch("/freeze", {method: "POST", body: new URLSearchParams(new FormData(form))})).url.split("did=")[1];
		return [await send(), await send()];
	})()`)
	if !slices.Equal(got, []string{"frozen", "twice-frozen"}) {
		t.Errorf("it went %q", got)
	}
	frozen := 0
	for _, line := range s.lines() {
		if strings.Contains(line, `"type":"frozen"`) {
			frozen++
		}
	}
	if frozen != 1 {
		t.Errorf("the log has %d freezes", frozen)
	}
	if text, exit := s.command("check", "--counterparty", "weather.example", "--amount", "0.05"); exit != 20 {
		t.Errorf("status %d, %s", exit, text)
	}
	b.visit("/")
	b.says("Every payment is blocked.", "a stolen key")
	b.accessible("frozen")
	b.quiet()
}

// nasty is text that would be more than text if somebody let it.
const nasty = `"><script>window.pwned=1</script><img src=x onerror=window.pwned=1>'` + "{{.Token}}\u202e\u200b\x1b[31m&lt;"

func hostileWords(t *testing.T, browser context.Context) {
	root := agentRoot(t)
	traceOf(t, root, map[string][]bought{`run"><script>window.pwned=1<`: {
		{id: nasty, url: "javascript:window.pwned=1//" + nasty, payTo: nasty, amount: "400000", at: uiNow.Add(-2 * time.Hour), ends: "silent", description: nasty},
		{id: "../../etc", url: "https://xn--80ak6aa92e.example/" + nasty, payTo: "javascript:window.pwned=1", amount: "1" + strings.Repeat("0", 80), at: uiNow.Add(-time.Hour), ends: "settled", description: nasty},
	}})
	traceText(t, root, "damaged", nasty+"\n")
	s := serveUI(t, root, false)
	const typed = `"><script>window.pwned=1</script>`
	s.ask("https://shop.example/"+typed, "0.40", "--resource", "https://shop.example/"+typed)
	id := s.ask("0x9c4d27e8a1f05b63d9e2708c4fb6a3510de7c982", "0.41", "--asset", nasty, "--resource", "mcp://tool/"+typed)
	b := s.open(browser)
	b.enter()
	b.visit("/review/" + id)
	b.fill("article.review input[name=note]", nasty)
	b.click("article.review button[value=rejected]")
	b.says("Rejected.")
	visited := map[string]bool{}
	look := func(path string) {
		b.visit(path)
		b.until("document.readyState == 'complete'")
		if got := ask[string](b, "typeof window.pwned"); got != "undefined" {
			t.Errorf("%s runs what it shows", path)
		}
		if text := b.text(); strings.ContainsAny(text, "\u202e\u200b\x1b") {
			t.Errorf("%s shows what nobody sees: %q", path, text)
		}
		if n := ask[int](b, `document.querySelectorAll("main script, main img, a[href^='javascript:'], [onerror]").length`); n != 0 {
			t.Errorf("%s has %d elements of a stranger", path, n)
		}
	}
	for _, path := range []string{"/", "/reviews?status=all", "/review/" + id, "/reviews?status=all&q=" + url.QueryEscape(nasty), "/operations", "/log", "/health",
		"/counterparty?name=" + url.QueryEscape(nasty), "/operations?counterparty=" + url.QueryEscape(nasty), "/find?q=" + url.QueryEscape(nasty), "/?did=" + url.QueryEscape(nasty), "/" + url.PathEscape(nasty)} {
		look(path)
	}
	b.visit("/operations")
	for _, path := range ask[[]string](b, `[...document.querySelectorAll("main tbody a")].map(a => a.pathname + a.search)`) {
		if !visited[path] {
			visited[path] = true
			look(path)
		}
	}
	if len(visited) < 4 {
		t.Errorf("only %d links were followed", len(visited))
	}
	b.quiet("404", "422")
}

// manyOps is how many operations the pages are to be quick with.
const manyOps = 100_000

func manyOperations(t *testing.T, browser context.Context) {
	root := agentRoot(t)
	var text strings.Builder
	const runs = 4
	for run := range runs {
		text.Reset()
		text.WriteString(attached)
		for i := range manyOps / runs {
			n := run*manyOps/runs + i
			// Most are offers that were left: an event each is quickly written.
			typ, terms := "required", `"accepts":[%s]`
			if n%10 == 7 {
				typ, terms = "submitted", `"requirements":%s`
			}
			terms = fmt.Sprintf(terms, fmt.Sprintf(`{"scheme":"exact","network":"eip155:8453","asset":"%s","amount":"%d","pay_to":"0x%040x","max_timeout_seconds":60}`, testUSDC, 10_000+n, n%500+1))
			fmt.Fprintf(&text, `{"event_id":"e%d","event_type":"x402.payment.%s","occurred_at":%q,"context_id":"op-%06d","seq":%d,"adapter":"trace-x402","role":"client","payload":{"x402_version":2,"resource":{"url":"https://shop-%d.example/a"},%s}}`+"\n",
				n, typ, uiNow.Add(-time.Duration(manyOps-n)*20*time.Second).Format("2006-01-02T15:04:05.000Z"), n, i, n%500, terms)
		}
		traceText(t, root, fmt.Sprint(1781000000000+run), text.String())
	}
	s := serveUI(t, root, false)
	b := s.open(browser)
	b.enter()
	b.visit("/")
	b.says(fmt.Sprintf("%s\npaid, and never heard of again", plain.Number(int64(manyOps/10))))
	b.visit("/operations")
	b.says(fmt.Sprintf("op-%06d", manyOps-1))
	b.click("a[rel=next]")
	b.says(fmt.Sprintf("op-%06d", manyOps-51), "From the start")
	b.visit("/operations?sort=oldest")
	b.says("op-000000", "op-000049")
	b.click("a[rel=next]")
	b.says("op-000050", "op-000099")
	b.visit("/operations?settlement=unknown&counterparty=shop-7.example&sort=oldest")
	b.says("op-000007", "op-000507")
	b.visit("/counterparty?name=shop-7.example")
	b.says(plain.Number(int64(manyOps/500)), "0x0000000000000000000000000000000000000008")
	b.visit("/find?q=op-" + fmt.Sprintf("%06d", manyOps-1))
	b.says("Timeline")
	b.quiet()
}

// evil is a server of somebody else, who keeps what browsers send.
type evil struct {
	*httptest.Server
	mu      sync.Mutex
	cookies []string
	asked   int
}

func newEvil(t *testing.T, body string) *evil {
	e := &evil{}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		e.asked++
		for _, c := range r.Cookies() {
			e.cookies = append(e.cookies, r.Host+" "+c.Name)
		}
		e.mu.Unlock()
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(e.Close)
	return e
}

func otherOrigins(t *testing.T, browser context.Context) {
	s := serveUI(t, fewRoot(t), false)
	id := s.ask("shop.example", "0.40")
	b := s.open(browser)
	b.enter()
	b.visit("/review/" + id)
	before := len(s.lines())
	var form struct{ Token, Shown, Once string }
	if err := json.Unmarshal([]byte(ask[string](b, `JSON.stringify(Object.fromEntries([...document.querySelectorAll("article form input[type=hidden]")].map(i => [i.name, i.value])))`)), &form); err != nil {
		t.Fatal(err)
	}
	got, err := chromedp.Call(b.ctx, cdpnetwork.GetCookies, cdpnetwork.GetCookiesParams{})
	if err != nil {
		t.Fatal(err)
	}
	cookie := got.Cookies[0].Name + "=" + got.Cookies[0].Value
	own := strings.TrimPrefix(s.base(), "http://")

	// Somebody with a client of their own, who even has the cookie and the token.
	type attempt struct {
		name, method, path, host, body string
		header                         map[string]string
		want                           int
	}
	act := url.Values{"token": {form.Token}, "shown": {form.Shown}, "id": {id}, "decision": {"approved"}}.Encode()
	for _, c := range []attempt{
		{"another host", "GET", "/", "evil.example", "", nil, 421},
		{"the address itself", "GET", "/reviews", s.addr, "", nil, 421},
		{"localhost", "GET", "/reviews", "localhost" + own[strings.LastIndexByte(own, ':'):], "", nil, 421},
		{"another label", "GET", "/", "guess.localhost" + own[strings.LastIndexByte(own, ':'):], "", nil, 421},
		{"our label on another port", "GET", "/", strings.Split(own, ":")[0] + ":1", "", nil, 421},
		{"our label without a port", "GET", "/", strings.Split(own, ":")[0], "", nil, 421},
		{"no cookie", "GET", "/reviews", own, "", map[string]string{"Cookie": ""}, 401},
		{"a guessed cookie", "GET", "/reviews", own, "", map[string]string{"Cookie": "settlewatch=guess"}, 401},
		{"two cookies", "GET", "/reviews", own, "", map[string]string{"Cookie": "settlewatch=guess; " + cookie}, 401},
		{"no origin", "POST", "/decide", own, act, map[string]string{"Origin": ""}, 403},
		{"no origin of a page", "POST", "/decide", own, act, map[string]string{"Origin": "null"}, 403},
		{"another origin", "POST", "/decide", own, act, map[string]string{"Origin": "http://evil.example"}, 403},
		{"our host over TLS", "POST", "/decide", own, act, map[string]string{"Origin": "https://" + own}, 403},
		{"another port", "POST", "/decide", own, act, map[string]string{"Origin": "http://" + strings.Split(own, ":")[0] + ":1"}, 403},
		{"another site, as the browser says", "POST", "/decide", own, act, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, 403},
		{"a picture of another site", "GET", "/reviews", own, "", map[string]string{"Origin": "", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, 403},
		{"a frame of another site", "GET", "/reviews", own, "", map[string]string{"Origin": "", "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, 403},
		{"a wrong token", "POST", "/decide", own, strings.Replace(act, form.Token, "x", 1), nil, 403},
		{"no token", "POST", "/decide", own, "id=" + id + "&decision=approved", nil, 403},
		{"no form", "POST", "/decide", own, `{"id": 1}`, map[string]string{"Content-Type": "application/json"}, 415},
		{"a form that looks like a text", "POST", "/decide", own, act, map[string]string{"Content-Type": "text/plain"}, 415},
		{"a form without an end", "POST", "/decide", own, "token=" + strings.Repeat("x", 300<<10), nil, 413},
		{"a form in the address", "GET", "/decide?" + act, own, "", nil, 404},
		{"another method", "PUT", "/decide", own, act, nil, 405},
		{"a preflight", "OPTIONS", "/decide", own, "", map[string]string{"Origin": "http://evil.example"}, 403},
		{"no such form", "POST", "/adopt", own, act, nil, 405},
		{"the way up", "GET", "/static/../ui.go", own, "", nil, 307},
	} {
		r, err := http.NewRequest(c.method, "http://"+s.addr+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		r.Header.Set("Cookie", cookie)
		r.Header.Set("Origin", "http://"+own)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for k, v := range c.header {
			if r.Header.Set(k, v); v == "" {
				r.Header.Del(k)
			}
		}
		res, err := (&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}).Do(r)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != c.want {
			t.Errorf("%s: status %d, want %d: %s", c.name, res.StatusCode, c.want, text)
		}
		for _, secret := range []string{strings.Split(own, ".")[0], form.Token, id} {
			if c.host != own && (strings.Contains(string(text), secret) || strings.Contains(fmt.Sprint(res.Header), secret)) {
				t.Errorf("%s: it tells %s", c.name, secret)
			}
		}
		for header, want := range map[string]string{"Content-Security-Policy": "default-src 'none'; script-src 'self'", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "X-Frame-Options": "DENY"} {
			if !strings.Contains(res.Header.Get(header), want) {
				t.Errorf("%s: %s is %q", c.name, header, res.Header.Get(header))
			}
		}
		if got := res.Header.Get("Access-Control-Allow-Origin"); got != "" {
			t.Errorf("%s: %q may read it", c.name, got)
		}
	}

	// A page of somebody else in the same browser, who has found out our name.
	attack := newEvil(t, fmt.Sprintf(`<!doctype html><title>x</title><iframe src="http://%[1]s/reviews" name=f></iframe><img src="http://%[1]s/reviews">
		<script src="http://%[1]s/state"></script>
		<form id=a method=post action="http://%[1]s/freeze" target=f><input name=all value=1><input name=reason value=evil></form>
		<script>window.read = "nothing"; a.submit();
		fetch("http://%[1]s/state", {credentials: "include"}).then(r => r.text()).then(t => { window.read = t }).catch(() => {});
		fetch("http://%[1]s/freeze", {method: "POST", credentials: "include", mode: "no-cors", body: new URLSearchParams({all: 1, reason: "evil"})}).catch(() => {});
		</script><p>ready</p>`, own))
	port := attack.URL[strings.LastIndexByte(attack.URL, ':'):]
	b2 := b.another()
	for _, host := range []string{"127.0.0.1", "localhost", "evil.localhost"} {
		b2.do(chromedp.Navigate("http://" + host + port))
		b2.says("ready")
		if read := ask[string](b2, "new Promise(r => setTimeout(() => r(window.read), 150))"); read != "nothing" {
			t.Errorf("%s reads %q", host, read)
		}
		if frames := ask[int](b2, "(() => { try { return frames[0].document.body ? frames[0].document.body.innerText.length : 0 } catch { return -1 } })()"); frames > 0 {
			t.Errorf("%s looks into the page", host)
		}
	}
	attack.mu.Lock()
	if len(attack.cookies) > 0 || attack.asked == 0 {
		t.Errorf("the other server was sent %q in %d requests", attack.cookies, attack.asked)
	}
	attack.mu.Unlock()
	if n := len(s.lines()); n != before {
		t.Errorf("the log has %d more lines", n-before)
	}
	// A link from there opens the page all the same, and reading is all it does.
	b2.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("location.href = 'http://%s/review/%s'", own, id)))
	b2.says("Why a person is asked")
	if n := len(s.lines()); n != before {
		t.Errorf("the log has %d more lines", n-before)
	}
	b.quiet()
}

func doorStep(t *testing.T, browser context.Context) {
	s := serveUI(t, fewRoot(t), false)
	id := s.ask("shop.example", "0.40")
	b := s.open(browser)
	b.enter()
	b.visit("/operations")
	b.until("document.readyState == 'complete'")
	label := strings.TrimPrefix(strings.Split(s.base(), ".")[0], "http://")
	door := s.open(browser)
	time.Sleep(50 * time.Millisecond)
	for _, path := range []string{"/", "/review/r-nothing", "/review/" + id} {
		door.do(chromedp.Navigate("http://" + s.addr + path))
		door.says("The pages are open in the browser that the terminal opened")
		if html := ask[string](door, "document.documentElement.outerHTML"); strings.Contains(html, label) || strings.Contains(html, id) {
			t.Errorf("the door tells %s", html)
		}
	}
	b.says("Somebody followed a link to a review.")
	b.click("#live a")
	b.says("shop.example", "Why a person is asked")
	got, err := chromedp.Call(door.ctx, cdpnetwork.GetCookies, cdpnetwork.GetCookiesParams{})
	if err != nil || len(got.Cookies) != 0 {
		t.Errorf("the door set %v, %v", got.Cookies, err)
	}
	b.quiet()
}

func withoutScripts(t *testing.T, browser context.Context) {
	s := serveUI(t, fewRoot(t), false)
	id := s.ask("shop.example", "0.40")
	b := s.open(browser)
	if _, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := chromedp.Call(b.ctx, page.Enable, page.EnableParams{}); err != nil {
		t.Fatal(err)
	}
	b.login()
	b.says("The figures as a table")
	b.visit("/reviews")
	b.click("article.review h2 a")
	b.says("What exactly is signed")
	b.click("article.review button[value=rejected]")
	b.says("Rejected.")
	if l := s.last("decided"); l["review_id"] != id || l["decision"] != "rejected" {
		t.Errorf("the log has %v", l)
	}
	if ask[bool](b, "typeof uPlot != 'undefined'") {
		t.Error("scripts ran")
	}
}

// month is a month of an agent's purchases, as seen from a moment.
func month(now time.Time) map[string][]bought {
	shops := []struct {
		host, path, payTo string
		amount            int64
	}{
		{"weather.example", "/v1/forecast?city=Oslo", "0x5b1e6f0d2c9a48e7b3d4f1a07c6e92d8b05f3a41", 50_000},
		{"maps.example", "/v2/route", "0x1c7d35e9b02f84a6d5318ce90b7fa264e8d10c93", 20_000},
		{"reports.example", "/v1/company/acme", "0x9c4d27e8a1f05b63d9e2708c4fb6a3510de7c982", 400_000},
		{"speech.example", "/v1/transcribe", "0xa3f018d7c5e94b26907d1f3be84c06a5d7e2b914", 120_000},
		{"images.example", "/render", "0x60d9ab4f7c13e8250f96ad3b8e7c41d29a05bf38", 250_000},
	}
	runs := map[string][]bought{}
	day := now.UTC().Truncate(24 * time.Hour)
	n := 0
	for d := 29; d >= 0; d-- {
		at := day.AddDate(0, 0, -d).Add(20 * time.Minute)
		run := fmt.Sprint(at.UnixMilli())
		for i := range 3 + (d*7+d*d)%9 {
			s := shops[(d*3+i*i)%len(shops)]
			n++
			p := bought{id: fmt.Sprintf("%08x-7c3e-4a80-95d1-%012x", 0x4f9d1b26+n*7919, n), url: "https://" + s.host + s.path, payTo: s.payTo, amount: fmt.Sprint(s.amount),
				at: at.Add(time.Duration(i) * 7 * time.Minute), ends: "settled", took: time.Duration(900+(n*n*131)%4200) * time.Millisecond, description: "Bought every day"}
			switch {
			case n%29 == 0:
				p.ends = "silent"
			case n%23 == 0:
				p.ends = "declined"
			}
			if p.at.After(now) {
				continue
			}
			runs[run] = append(runs[run], p)
		}
	}
	return runs
}
