//go:build browser

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	cdpnetwork "github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/ui"
	"github.com/settlewatch/settlewatch/guard/decision"
)

var uiShots = flag.String("ui-shots", "", "directory to write pictures of the pages into, such as ../../docs/ui")

// uiNow is when the tests of the pages take place.
var uiNow = time.Date(2026, 6, 15, 16, 40, 0, 0, time.UTC)

// wall is a clock that a test turns on.
type wall struct {
	mu sync.Mutex
	at time.Time
	on time.Time
}

func newWall() *wall { return &wall{at: uiNow, on: time.Now()} }

func (w *wall) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at.Add(time.Since(w.on))
}

func (w *wall) turn(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = w.at.Add(d)
}

// chromium starts the one browser of all tests.
func chromium(t *testing.T) context.Context {
	t.Helper()
	found := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			found = path
			break
		}
	}
	if found == "" {
		t.Fatal("the pages are tested in a real browser, and there is none. try: apt-get install chromium")
	}
	ctx, end := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(found), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("lang", "en"), chromedp.WindowSize(1200, 900), chromedp.UserDataDir(t.TempDir()))...)
	t.Cleanup(end)
	ctx, cancel := chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// uiServer is the pages of a root, served by the command.
type uiServer struct {
	t     *testing.T
	root  string
	home  string
	clock *wall
	pages *ui.UI
	addr  string
	mu    sync.Mutex
	link  string
	errs  lockedBuffer

	signed bool // an operator's key is unlocked
}

// policy is what a root's guard judges by in these tests.
const uiPolicy = `{"reviewAbove": "0.30", "reviewExpiryHours": 8, "maxPendingReviews": 500, "reviewUrl": "http://127.0.0.1:8737/review/{review_id}",
"limits": [{"name": "a day", "scope": "total", "asset": "eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913", "amount": "25.00", "windowHours": 24, "action": "review"}]%s}`

// serveUI starts the command on a root. With signed the policy has an operator, whose
// key it unlocks.
func serveUI(t *testing.T, root string, signed bool, args ...func(*uiOptions)) *uiServer {
	t.Helper()
	s := &uiServer{t: t, root: root, home: t.TempDir(), clock: newWall()}
	env := system()
	env.now, env.home = s.clock.now, func() (string, error) { return s.home, nil }
	env.getenv = func(string) string { return "" }
	operators, who := "", &fakePerson{}
	if signed {
		content, public, err := decision.NewKey("ana", []byte(passphrase), 4)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(s.home, ".config", filepath.FromSlash(operatorFile))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, content, 0o600)); err != nil {
			t.Fatal(err)
		}
		operators, who.secrets = fmt.Sprintf(`, "operators": [{"name": "ana", "publicKey": %q}]`, public), []string{passphrase}
	}
	config := filepath.Join(s.home, "policy.json")
	if err := os.WriteFile(config, fmt.Appendf(nil, uiPolicy, operators), 0o600); err != nil {
		t.Fatal(err)
	}
	o := &uiOptions{addr: "127.0.0.1:0", noOpen: true}
	o.dir, o.config = path(root), path(config)
	o.opened = func(link string) { s.mu.Lock(); s.link = link; s.mu.Unlock() }
	ready := make(chan struct{})
	o.made = func(pages *ui.UI, addr string) { s.pages, s.addr = pages, addr; close(ready) }
	for _, arg := range args {
		arg(o)
	}
	s.signed = signed
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: &s.errs, env: env, someone: who}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.runUI(ctx, o) }()
	t.Cleanup(func() {
		end()
		if err := <-done; err != nil {
			t.Errorf("the command ended with %v\n%s", err, s.errs.String())
		}
	})
	select {
	case <-ready:
	case err := <-done:
		done <- nil
		t.Fatalf("the command ended with %v", err)
	case <-time.After(120 * time.Second):
		t.Fatal("the command does not serve")
	}
	return s
}

// command runs another command of ours on the root, as a person would on a terminal.
func (s *uiServer) command(args ...string) (string, int) {
	s.t.Helper()
	var out, errs bytes.Buffer
	env := system()
	env.now, env.home = s.clock.now, func() (string, error) { return s.home, nil }
	env.getenv = func(string) string { return "" }
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, env: env, someone: &fakePerson{secrets: []string{passphrase}}, json: slices.Contains(args, "--json")}
	root := a.root()
	root.SetArgs(append(args, "--dir", s.root, "--guard-config", filepath.Join(s.home, "policy.json")))
	exit := a.finish(s.t.Context(), a.execute(s.t.Context(), root))
	return out.String() + errs.String(), exit
}

// ask has an agent ask whether it may pay, and gives the review it is told of.
func (s *uiServer) ask(counterparty, amount string, more ...string) string {
	s.t.Helper()
	args := append([]string{"check", "--json", "--counterparty", counterparty, "--amount", amount}, more...)
	text, _ := s.command(args...)
	var v struct {
		Review string `json:"review_id"`
	}
	begin := strings.IndexByte(text, '{')
	if begin < 0 || json.NewDecoder(strings.NewReader(text[begin:])).Decode(&v) != nil || v.Review == "" {
		s.t.Fatalf("no review was opened: %s", text)
	}
	return v.Review
}

// lines are those of the decisions log.
func (s *uiServer) lines() []string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.root, "guard", decision.FileName))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// tab is a tab of the browser with a profile of its own.
type tab struct {
	*uiServer
	ctx  context.Context
	mu   sync.Mutex
	said []string // on the console, and what could not be loaded
	asks []string // where requests went
	code []int64  // what a page was answered with
}

// open opens a tab with cookies of its own.
func (s *uiServer) open(browser context.Context) *tab {
	s.t.Helper()
	return s.tab(browser, chromedp.WithNewBrowserContext())
}

// another opens a second tab of the same person.
func (b *tab) another() *tab {
	b.t.Helper()
	return b.tab(b.ctx, chromedp.WithNewWindow(true))
}

func (s *uiServer) tab(parent context.Context, options ...chromedp.ContextOption) *tab {
	s.t.Helper()
	b := &tab{uiServer: s}
	ctx, cancel := chromedp.NewContext(parent, append(options, chromedp.WithListener(b.heard))...)
	s.t.Cleanup(cancel)
	b.ctx = ctx
	b.do()
	for _, enable := range []cdp.Command[cdp.Empty, cdp.Empty]{log.Enable, runtime.Enable} {
		if _, err := chromedp.Call(ctx, enable, cdp.Empty{}); err != nil {
			s.t.Fatal(err)
		}
	}
	if _, err := chromedp.Call(ctx, cdpnetwork.Enable, cdpnetwork.EnableParams{}); err != nil {
		s.t.Fatal(err)
	}
	return b
}

// heard keeps what the browser tells of a tab.
func (b *tab) heard(e any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := e.(type) {
	case *runtime.EventConsoleAPICalled:
		b.said = append(b.said, fmt.Sprintf("console %s", e.Type))
	case *runtime.EventExceptionThrown:
		b.said = append(b.said, "exception: "+e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		b.said = append(b.said, fmt.Sprintf("log %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *cdpnetwork.EventRequestWillBeSent:
		b.asks = append(b.asks, e.Request.URL)
	case *cdpnetwork.EventResponseReceived:
		if e.Type == cdpnetwork.ResourceTypeDocument {
			b.code = append(b.code, e.Response.Status)
		}
	}
}

// do runs actions, for which a page has as long as nobody would wait.
func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := b.ctx, func() {}
	if len(actions) > 0 { // the first run is for the life of the tab
		ctx, cancel = context.WithTimeout(b.ctx, 60*time.Second)
	}
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// ask gives what a script comes to.
func ask[T any](b *tab, script string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 60*time.Second)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.200s: %v", script, err)
	}
	return value
}

// login opens the link the command gave.
func (b *tab) login() {
	b.t.Helper()
	b.do(chromedp.Navigate(b.newest()))
	b.says("Overview", "Log out")
}

// enter logs in and confirms it where that is needed.
func (b *tab) enter() {
	b.t.Helper()
	b.login()
	if b.signed {
		b.confirm()
	}
}

func (s *uiServer) newest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// confirm types the code of the page on the terminal.
func (b *tab) confirm() {
	b.t.Helper()
	code := ask[string](b, "document.querySelector('.code').textContent")
	if !b.pages.Confirm(code) {
		b.t.Fatalf("the code %q is not taken", code)
	}
}

// base is where the pages are.
func (s *uiServer) base() string {
	base, _, _ := strings.Cut(s.newest(), "/login")
	return base
}

func (b *tab) visit(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base() + path))
}

// says waits until the page says something.
func (b *tab) says(want ...string) {
	b.t.Helper()
	for _, w := range want {
		b.until(fmt.Sprintf("document.body && document.body.innerText.includes(%q)", w))
	}
}

// until waits for a script to come true, over page loads.
func (b *tab) until(script string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 45*time.Second)
	defer cancel()
	for {
		yes, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+script+")"))
		if err == nil && yes {
			return
		}
		if ctx.Err() != nil {
			b.t.Fatalf("it never came to %s\nthe page says: %s", script, b.text())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (b *tab) text() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body ? document.body.innerText : ''"))
	return text
}

// click does what a keyboard does, wherever on the page it is.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.until(fmt.Sprintf("document.querySelector(%q)", selector))
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).click()", selector)))
}

func (b *tab) fill(selector, text string) {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).value = %q", selector, text)))
}

// quiet checks that nothing was said on the console but what is expected, and nothing
// asked of anybody else.
func (b *tab) quiet(expected ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, said := range b.said {
		if !slices.ContainsFunc(expected, func(e string) bool { return strings.Contains(said, e) }) {
			b.t.Errorf("the console says: %s", said)
		}
	}
	for _, to := range b.asks {
		if !strings.HasPrefix(to, b.base()+"/") && !strings.HasPrefix(to, "data:") {
			b.t.Errorf("a page asked %s", to)
		}
	}
}

var axe = sync.OnceValues(func() (string, error) {
	f, err := os.Open(filepath.Join("testdata", "axe", "axe.min.js.gz"))
	if err != nil {
		return "", err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(z)
	return string(text), err
})

// accessible runs axe over the page.
func (b *tab) accessible(name string) {
	b.t.Helper()
	script, err := axe()
	if err != nil {
		b.t.Fatal(err)
	}
	type violation struct {
		ID    string `json:"id"`
		Help  string `json:"help"`
		Nodes []struct {
			HTML    string `json:"html"`
			Summary string `json:"failureSummary"`
		} `json:"nodes"`
	}
	b.do(chromedp.Evaluate[chromedp.Void](script + "; 0"))
	found := ask[[]violation](b, `axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}).then(r => r.violations)`)
	for _, f := range found {
		b.t.Errorf("%s: %s: %s\n%s\n%s", name, f.ID, f.Help, f.Nodes[0].HTML, f.Nodes[0].Summary)
	}
}

// shot keeps a picture of the page, whole, in light and in dark.
func (b *tab) shot(name string) {
	b.t.Helper()
	if *uiShots == "" {
		return
	}
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		b.do(chromedp.Evaluate[chromedp.Void]("document.activeElement.blur()"), chromedp.Sleep(250*time.Millisecond))
		raw, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		if err == nil {
			err = os.WriteFile(filepath.Join(*uiShots, name+"-"+scheme+".png"), small(b.t, raw), 0o644)
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	b.scheme("light")
}

func (b *tab) scheme(name string) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}); err != nil {
		b.t.Fatal(err)
	}
}

// small makes a picture of few colours, and not longer than anybody looks.
func small(t *testing.T, raw []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	bounds := from.Bounds()
	bounds.Max.Y = min(bounds.Max.Y, 1700)
	to := image.NewPaletted(bounds, commonest(from, bounds))
	draw.Draw(to, bounds, from, bounds.Min, draw.Src)
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, to); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// commonest are the most frequent colours of a picture.
func commonest(from image.Image, bounds image.Rectangle) color.Palette {
	count := map[color.Color]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			r, g, b, _ := from.At(x, y).RGBA()
			count[color.RGBA{uint8(r>>8) &^ 3, uint8(g>>8) &^ 3, uint8(b>>8) &^ 3, 0xff}]++
		}
	}
	var all color.Palette
	for c := range count {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b color.Color) int { return count[b] - count[a] })
	if len(all) > 160 {
		all = all[:160]
	}
	return all
}
