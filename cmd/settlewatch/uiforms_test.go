package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/ui"
	"github.com/settlewatch/settlewatch/guard/decision"
)

// visitor reads the pages and sends their forms, as a browser without scripts does.
type visitor struct {
	t      *testing.T
	root   string
	at     atomic.Int64 // what the command's clock is ahead by
	pages  *ui.UI
	addr   string
	host   string
	cookie string
}

func visit(t *testing.T, root string, with ...func(*uiOptions)) *visitor {
	t.Helper()
	v := &visitor{t: t, root: root}
	env := system()
	env.now = func() time.Time { return time.Now().Add(time.Duration(v.at.Load())) }
	env.getenv = func(string) string { return "" }
	a := &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard, env: env}
	o := &uiOptions{addr: "127.0.0.1:0", noOpen: true}
	o.dir = path(root)
	for _, f := range with {
		f(o)
	}
	ready := make(chan struct{})
	o.made = func(pages *ui.UI, addr string) { v.pages, v.addr = pages, addr; close(ready) }
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.runUI(ctx, o) }()
	t.Cleanup(func() { end(); <-done })
	select {
	case <-ready:
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	return v
}

// login uses a new link.
func (v *visitor) login() int {
	v.t.Helper()
	status, _ := v.ask(http.MethodGet, v.link(), nil)
	return status
}

func (v *visitor) link() string {
	u, err := url.Parse(v.pages.Link())
	if err != nil {
		v.t.Fatal(err)
	}
	v.host = u.Host
	return u.RequestURI()
}

func (v *visitor) ask(method, path string, form url.Values) (int, string) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), method, "http://"+v.addr+path, strings.NewReader(form.Encode()))
	if err != nil {
		v.t.Fatal(err)
	}
	r.Host = v.host
	r.Header.Set("Cookie", v.cookie)
	if method == http.MethodPost {
		r.Header.Set("Origin", "http://"+v.host)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer res.Body.Close()
	for _, c := range res.Cookies() {
		v.cookie = c.Name + "=" + c.Value
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return res.StatusCode, string(text) + res.Header.Get("Location")
}

func (v *visitor) page(path string) string {
	v.t.Helper()
	status, text := v.ask(http.MethodGet, path, nil)
	if status != http.StatusOK {
		v.t.Fatalf("%s: status %d: %s", path, status, text)
	}
	return text
}

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)">`)

// form is what a page's form sends before anybody has typed: line ends go as CR LF.
func (v *visitor) form(page, action string) url.Values {
	v.t.Helper()
	_, rest, ok := strings.Cut(page, `action="`+action+`"`)
	if !ok {
		v.t.Fatalf("no form for %s: %s", action, page)
	}
	text, _, _ := strings.Cut(rest, "</form>")
	form := url.Values{}
	for _, m := range hiddenField.FindAllStringSubmatch(text, -1) {
		value := strings.NewReplacer("\r\n", "\r\n", "\r", "\r\n", "\n", "\r\n").Replace(html.UnescapeString(m[2]))
		form.Add(m[1], value)
	}
	return form
}

// send fills a form in and sends it.
func (v *visitor) send(action string, form url.Values, filled ...string) (int, string) {
	v.t.Helper()
	for i := 0; i+1 < len(filled); i += 2 {
		form.Set(filled[i], filled[i+1])
	}
	return v.ask(http.MethodPost, action, form)
}

// command runs a command on the root, and gives what it prints.
func (v *visitor) command(args ...string) string {
	v.t.Helper()
	var out, errs bytes.Buffer
	run(v.t.Context(), append(args, "--dir", v.root), strings.NewReader(""), &out, &errs, system())
	return out.String() + errs.String()
}

// review has an agent ask, and gives the review it is told of.
func (v *visitor) review() string {
	v.t.Helper()
	text := v.command("check", "--json", "--counterparty", "shop.example", "--amount", "7")
	var answer struct {
		Review string `json:"review_id"`
	}
	begin := strings.IndexByte(text, '{')
	if begin < 0 || json.NewDecoder(strings.NewReader(text[begin:])).Decode(&answer) != nil || answer.Review == "" {
		v.t.Fatal(text)
	}
	return answer.Review
}

// lines are those of a type in the decisions log.
func (v *visitor) lines(typ string) (lines []map[string]any) {
	v.t.Helper()
	text, err := os.ReadFile(filepath.Join(v.root, "guard", decision.FileName))
	if err != nil {
		v.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var l map[string]any
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			v.t.Fatal(err)
		}
		if l["type"] == typ {
			lines = append(lines, l)
		}
	}
	return lines
}

func pagesRoot(t *testing.T, all ...bought) string {
	t.Helper()
	root := agentRoot(t)
	traceOf(t, root, map[string][]bought{"1781500000000": all})
	return root
}

const formsPayee = "0x9c4d27e8a1f05b63d9e2708c4fb6a3510de7c982"

// A person who is told that a form was sent before takes the payment for frozen, or
// the operation for closed: so the form that failed is not remembered.
func TestAFormThatFailedMayBeSentAgain(t *testing.T) {
	v := visit(t, pagesRoot(t, bought{id: "op-1", url: "https://shop.example/a", payTo: formsPayee, amount: "400000", at: time.Now().Add(-time.Hour), ends: "silent"}))
	v.login()
	form := v.form(v.page("/operation?run=1781500000000&op=op-1"), "/resolve")
	if status, text := v.send("/resolve", form, "as", "settled", "note", "seen", "amount", "much"); status != http.StatusUnprocessableEntity {
		t.Fatalf("status %d: %s", status, text)
	}
	if status, text := v.send("/resolve", form, "amount", ""); status != http.StatusSeeOther || !strings.Contains(text, "did=resolved") {
		t.Errorf("sent again: status %d: %s", status, text)
	}
	if status, text := v.send("/resolve", form); status != http.StatusSeeOther || !strings.Contains(text, "did=twice-resolved") {
		t.Errorf("sent a third time: status %d: %s", status, text)
	}
	if n := len(v.lines("resolved")); n != 1 {
		t.Errorf("the log has %d resolutions", n)
	}
	form = v.form(v.page("/"), "/freeze")
	if status, text := v.send("/freeze", form, "reason", "a\xff"); status != http.StatusUnprocessableEntity || !strings.Contains(text, "not UTF-8") {
		t.Errorf("bytes that are no text: status %d: %s", status, text)
	}
}

// The agent may pay again while a person looks at the page.
func TestAFormCoversThePaymentsThatItsPageShowed(t *testing.T) {
	op := bought{id: "op-1", url: "https://shop.example/a", payTo: formsPayee, amount: "400000", at: time.Now().Add(-time.Hour), ends: "silent"}
	v := visit(t, pagesRoot(t, op))
	v.login()
	form := v.form(v.page("/operation?run=1781500000000&op=op-1"), "/resolve")
	op.at = op.at.Add(time.Minute)
	traceOf(t, v.root, map[string][]bought{"1781500000000": {op}})
	if status, text := v.send("/resolve", form, "as", "failed", "note", "asked them"); status != http.StatusConflict || !strings.Contains(text, "It has changed") {
		t.Errorf("status %d: %s", status, text)
	}
	if all := v.lines("resolved"); len(all) != 0 {
		t.Errorf("the log has %v", all)
	}
	form = v.form(v.page("/operation?run=1781500000000&op=op-1"), "/resolve")
	if status, text := v.send("/resolve", form, "as", "failed", "note", "asked them"); status != http.StatusSeeOther {
		t.Errorf("looked at again: status %d: %s", status, text)
	}
	if all := v.lines("resolved"); len(all) != 1 || all[0]["payments"] != 2.0 {
		t.Errorf("the log has %v", all)
	}
}

// A name may hold what a page does not show and a form does not carry. What is done is
// done to the one whose page it was.
func TestAFormIsAboutWhatItsPageIsAbout(t *testing.T) {
	const payee, operation = "sell\u200ber\u202ex", "op\none"
	at := time.Now().Add(-time.Hour)
	v := visit(t, pagesRoot(t,
		bought{id: operation, url: "https://shop.example/a", payTo: payee, amount: "400000", at: at, ends: "silent"},
		bought{id: "op\r\none", url: "https://shop.example/b", payTo: formsPayee, amount: "400000", at: at, ends: "silent"}))
	v.login()
	page := v.page("/counterparty?" + url.Values{"name": {payee}}.Encode())
	if status, text := v.send("/freeze", v.form(page, "/freeze"), "reason", "a fraud"); status != http.StatusSeeOther {
		t.Fatalf("status %d: %s", status, text)
	}
	frozen := v.lines("frozen")
	if len(frozen) != 1 || frozen[0]["scope"] != "payee:"+payee {
		t.Fatalf("the log has %q", frozen)
	}
	page = v.page("/counterparty?" + url.Values{"name": {payee}}.Encode())
	if status, text := v.send("/unfreeze", v.form(page, "/unfreeze")); status != http.StatusSeeOther || len(v.lines("unfrozen")) != 1 {
		t.Errorf("status %d: %s", status, text)
	}
	page = v.page("/operation?" + url.Values{"run": {"1781500000000"}, "op": {operation}}.Encode())
	if status, text := v.send("/resolve", v.form(page, "/resolve"), "as", "settled", "note", "seen"); status != http.StatusSeeOther {
		t.Fatalf("status %d: %s", status, text)
	}
	if all := v.lines("resolved"); len(all) != 1 || all[0]["operation_id"] != operation {
		t.Errorf("the log has %q", all)
	}
}

// A page that showed one refusal does not undo another.
func TestADecisionIsTakenBackOnlyAsItWasShown(t *testing.T) {
	v := visit(t, pagesRoot(t))
	v.login()
	id := v.review()
	v.command("review", "reject", id, "--note", "too dear")
	form := v.form(v.page("/review/"+id), "/decide")
	v.command("review", "reopen", id)
	v.command("review", "reject", id, "--note", "it is a fraud")
	if status, text := v.send("/decide", form, "decision", "reopened"); status != http.StatusConflict || !strings.Contains(text, "It has changed") {
		t.Errorf("status %d: %s", status, text)
	}
	if status, text := v.send("/decide", v.form(v.page("/review/"+id), "/decide"), "decision", "reopened"); status != http.StatusSeeOther {
		t.Errorf("as it is shown: status %d: %s", status, text)
	}
}

// The page that confirms has words for what is pending, and no others.
func TestOnlyWhatIsPendingIsDecidedAtOnce(t *testing.T) {
	v := visit(t, pagesRoot(t))
	v.login()
	id := v.review()
	form := v.form(v.page("/reviews?many=1"), "/batch")
	form.Set("review", id+" "+v.form(v.page("/review/"+id), "/decide").Get("shown"))
	for what, want := range map[string]int{"approved": 200, "rejected": 200, "reopened": 422, "revoked": 422} {
		if status, text := v.send("/batch", form, "decision", what); status != want {
			t.Errorf("%s: status %d: %s", what, status, text)
		}
	}
}

// A page that showed one freeze does not end another.
func TestAFreezeIsEndedOnlyAsItWasShown(t *testing.T) {
	v := visit(t, pagesRoot(t))
	v.login()
	v.command("freeze", "--reason", "a test")
	form := v.form(v.page("/"), "/unfreeze")
	v.command("unfreeze", "--reason", "it went well")
	v.command("freeze", "--reason", "a stolen key")
	if status, text := v.send("/unfreeze", form); status != http.StatusConflict || !strings.Contains(text, "It has changed") {
		t.Errorf("status %d: %s", status, text)
	}
	if status, text := v.send("/unfreeze", v.form(v.page("/"), "/unfreeze")); status != http.StatusSeeOther || len(v.lines("unfrozen")) != 2 {
		t.Errorf("as it is shown: status %d: %s", status, text)
	}
}

// A look at a link, as programs take that preview it, does not use it up.
func TestALookLeavesALinkAsItIs(t *testing.T) {
	v := visit(t, pagesRoot(t))
	link := v.link()
	if status, _ := v.ask(http.MethodHead, link, nil); status != http.StatusMethodNotAllowed || v.cookie != "" {
		t.Errorf("status %d, cookie %q", status, v.cookie)
	}
	if status, text := v.ask(http.MethodGet, link, nil); status != http.StatusOK || v.cookie == "" {
		t.Errorf("status %d: %s", status, text)
	}
}

// A command that runs for weeks has a login each day.
func TestLoginsThatEndedMakeRoom(t *testing.T) {
	v := visit(t, pagesRoot(t))
	for day := range 40 {
		if status := v.login(); status != http.StatusOK {
			t.Fatalf("day %d: status %d", day, status)
		}
		v.at.Add(int64(24 * time.Hour))
	}
	for n := range 33 {
		if status := v.login(); (status == http.StatusOK) != (n < 32) {
			t.Errorf("login %d of a day: status %d", n+1, status)
		}
	}
}

// What is open in a browser finds out that the log does not verify any more, and the
// page that is for such days still answers.
func TestPagesSayWhenTheLogDoesNotVerify(t *testing.T) {
	v := visit(t, pagesRoot(t))
	v.login()
	v.review()
	mark := func() string {
		var state struct{ Mark string }
		if err := json.Unmarshal([]byte(v.page("/state")), &state); err != nil || state.Mark == "" {
			t.Fatalf("%+v, %v", state, err)
		}
		return state.Mark
	}
	before := mark()
	if page := v.page("/health"); !strings.Contains(page, `data-mark="`+before+`"`) {
		t.Errorf("the page has not the mark %s", before)
	}
	log := filepath.Join(v.root, "guard", decision.FileName)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, bytes.Replace(text, []byte("shop.example"), []byte("evil.example"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if after := mark(); after == before {
		t.Error("no page asks again")
	}
	if page := v.page("/health"); !strings.Contains(page, "The decisions log does not verify.") || !strings.Contains(page, "cannot judge") {
		t.Errorf("it says %s", page)
	}
}

func TestATerminalThatEndsSaysWhatThatMeans(t *testing.T) {
	for name, typed := range map[string]string{"at once": "", "after a line that no code is": strings.Repeat("1", 1<<17)} {
		var said bytes.Buffer
		a := &app{stdin: strings.NewReader(typed), stderr: &said}
		a.listen(t.Context(), &uiOptions{}, nil, nil)
		if !strings.Contains(said.String(), "start settlewatch ui again") {
			t.Errorf("%s: the terminal is told %q", name, said.String())
		}
	}
}

// A note is as long on a page as anywhere, counted as the browser counts what it lets be
// typed. What is refused comes back where it was typed.
func TestANoteIsRefusedWithWhatWasTyped(t *testing.T) {
	v := visit(t, pagesRoot(t, bought{id: "op-1", url: "https://shop.example/a", payTo: formsPayee, amount: "400000", at: time.Now().Add(-time.Hour), ends: "silent"}))
	v.login()
	review := "/review/" + v.review()
	letters := strings.Repeat("\u0436", 1500)
	for _, c := range []struct {
		page, action, field string
		filled              []string
		back                []string // what else of the form comes back
	}{
		{"/operation?run=1781500000000&op=op-1", "/resolve", "note", []string{"as", "failed", "at", "2026-01-31T18:30:00Z"}, []string{`value="failed" checked`, `value="2026-01-31T18:30:00Z"`, "<details open>"}},
		{"/counterparty?name=shop.example", "/freeze", "reason", nil, []string{"<details open>", "Counterparty shop.example"}},
		{"/", "/freeze", "reason", nil, []string{"<details open>", "Money per day"}},
		{review, "/decide", "note", []string{"decision", "rejected", "freeze", "1"}, []string{`value="1" checked`, "What exactly is signed"}},
	} {
		page := v.page(c.page)
		if !strings.Contains(page, `maxlength="2000"`) {
			t.Errorf("%s: the form does not know how long a note may be", c.page)
		}
		text := page
		for _, note := range []string{strings.Repeat("\u0436", 2001), strings.Repeat("\U0001f600", 1001)} {
			var status int
			status, text = v.send(c.action, v.form(text, c.action), append(c.filled, c.field, note)...)
			if status != http.StatusUnprocessableEntity || !strings.Contains(text, "at most 2,000 are kept") || !strings.Contains(text, `name="`+c.field+`" value="`+note+`"`) {
				t.Fatalf("%s: status %d: %s", c.page, status, text)
			}
			contains(t, c.page, text, c.back...)
			if !strings.Contains(text, `data-mark=""`) {
				t.Errorf("%s: the answer to a form would be asked for again", c.page)
			}
		}
		// The form that came back does it.
		if status, text := v.send(c.action, v.form(text, c.action), append(c.filled, c.field, letters)...); status != http.StatusSeeOther {
			t.Errorf("%s, 1,500 letters of two bytes: status %d: %s", c.page, status, text)
		}
	}
	for _, typ := range []string{"resolved", "frozen", "decided"} {
		lines := v.lines(typ)
		if len(lines) == 0 || lines[0]["note"] != letters && lines[0]["reason"] != letters {
			t.Errorf("%s: the log has %q", typ, lines)
		}
	}
	if said := v.command("resolve", "1781500000000", "op-1", "--as", "settled", "--note", letters+letters); !strings.Contains(said, "at most 2,000 are kept") {
		t.Errorf("the command says %s", said)
	}
}

// Where the page of a form has no room for what was typed any more, it says it all the
// same; so does one that asks to log in first.
func TestWhatWasTypedIsNeverLost(t *testing.T) {
	v := visit(t, pagesRoot(t))
	v.login()
	id := v.review()
	form := v.form(v.page("/review/"+id), "/decide")
	v.command("review", "reject", id, "--note", "elsewhere")
	v.command("review", "reopen", id)
	v.command("review", "approve", id)
	v.command("review", "revoke", id, "--note", "elsewhere again")
	status, text := v.send("/decide", form, "decision", "approved", "note", "asked the seller")
	if status != http.StatusConflict {
		t.Errorf("status %d", status)
	}
	contains(t, "what was decided elsewhere", text, "Decided already", "You had typed: \u201casked the seller\u201d", "elsewhere again", "state revoked")
	form.Set("id", "r-gone")
	status, text = v.send("/decide", form, "note", "asked the seller")
	if status != http.StatusNotFound {
		t.Errorf("status %d", status)
	}
	contains(t, "a review that is not there", text, "Not found", "You had typed: \u201casked the seller\u201d", `data-mark=""`)
	if n := strings.Count(text, "You had typed"); n != 1 {
		t.Errorf("a review that is not there: it is said %d times: %s", n, text)
	}
	v.at.Add(int64(13 * time.Hour))
	status, text = v.send("/decide", form, "note", "asked <the> seller")
	if status != http.StatusUnauthorized {
		t.Errorf("status %d", status)
	}
	contains(t, "a login that has ended", text, "Please log in", "You had typed: \u201casked &lt;the&gt; seller\u201d")
}

// Those that somebody has unticked stay so.
func TestAChoiceOfManyComesBackAsItWas(t *testing.T) {
	v := visit(t, pagesRoot(t))
	v.login()
	first := v.review()
	text := v.command("check", "--json", "--counterparty", "other.example", "--amount", "7")
	second := regexp.MustCompile(`r-[0-9a-f]{24}`).FindString(text)
	page := v.page("/reviews?many=1")
	form := v.form(page, "/batch")
	form.Set("review", second+" "+v.form(v.page("/review/"+second), "/decide").Get("shown"))
	status, text := v.send("/batch", form, "decision", "rejected", "note", strings.Repeat("x", 2001))
	if status != http.StatusUnprocessableEntity || strings.Contains(text, `id="c-`+first+`" checked`) || !strings.Contains(text, `id="c-`+second+`" checked`) {
		t.Errorf("status %d: %s", status, text)
	}
}

// Without scripts a browser sends what is clicked twice two times, and shows the second
// answer.
func TestAFormThatIsSentTwiceIsAnsweredWithWhatItDid(t *testing.T) {
	v := visit(t, pagesRoot(t, bought{id: "op-1", url: "https://shop.example/a", payTo: formsPayee, amount: "400000", at: time.Now().Add(-time.Hour), ends: "silent"}))
	v.login()
	id := v.review()
	for _, c := range []struct {
		page, action, did string
		filled            []string
		shows             []string
	}{
		{"/review/" + id, "/decide", "approved", []string{"decision", "approved", "note", "asked the seller"}, []string{"Approved. The payment may be made once.", "state approved", "asked the seller"}},
		{"/review/" + id, "/decide", "revoked", []string{"decision", "revoked"}, []string{"The approval was taken back.", "state revoked"}},
		{"/operation?run=1781500000000&op=op-1", "/resolve", "resolved", []string{"as", "failed", "note", "it came back"}, []string{"A person closed it as failed", "it came back"}},
		{"/", "/freeze", "frozen", []string{"reason", "a stolen key"}, []string{"Every payment is blocked.", "a stolen key"}},
		{"/", "/unfreeze", "unfrozen", nil, []string{"No longer frozen."}},
	} {
		form := v.form(v.page(c.page), c.action)
		for i := 0; i+1 < len(c.filled); i += 2 {
			form.Set(c.filled[i], c.filled[i+1])
		}
		answers := make(chan string, 2)
		for range 2 {
			go func() {
				status, text := v.ask(http.MethodPost, c.action, form)
				if status != http.StatusSeeOther {
					text = fmt.Sprintf("status %d: %s", status, text)
				}
				answers <- text
			}()
		}
		got := []string{<-answers, <-answers}
		slices.SortFunc(got, func(a, b string) int { return len(a) - len(b) })
		if !strings.Contains(got[0], "did="+c.did) || got[1] != strings.Replace(got[0], "did=", "did=twice-", 1) {
			t.Errorf("%s: the answers are %q", c.did, got)
			continue
		}
		contains(t, c.did, v.page(got[1]), append(c.shows, "It was sent twice and counts once.")...)
	}
	if n := len(v.lines("decided")) + len(v.lines("resolved")) + len(v.lines("frozen")) + len(v.lines("unfrozen")); n != 5 {
		t.Errorf("the log has %d acts", n)
	}
	// Somebody who goes back and clicks the other button is not told that it was done.
	id = v.review()
	form := v.form(v.page("/review/"+id), "/decide")
	v.send("/decide", form, "decision", "approved")
	status, text := v.send("/decide", form, "decision", "rejected")
	if status != http.StatusSeeOther {
		t.Fatalf("status %d: %s", status, text)
	}
	contains(t, "the other button", v.page(text), "What was sent now was not done", "Approved. The payment may be made once.", "state approved")
}

// A page that a browser has kept may be sent again long after what it did has been
// undone: nobody is told then that it is so.
func TestAFormThatIsSentAgainMuchLaterIsNotSaidToBeDone(t *testing.T) {
	v := visit(t, pagesRoot(t))
	v.login()
	form := v.form(v.page("/"), "/freeze")
	if status, text := v.send("/freeze", form, "reason", "a stolen key"); status != http.StatusSeeOther {
		t.Fatalf("status %d: %s", status, text)
	}
	v.send("/unfreeze", v.form(v.page("/"), "/unfreeze"))
	v.at.Add(int64(time.Minute))
	status, text := v.send("/freeze", form)
	if status != http.StatusSeeOther {
		t.Fatalf("status %d: %s", status, text)
	}
	page := v.page(text)
	contains(t, "the page", page, "Nothing was done now", `class="note ask"`)
	lacks(t, "the page", page, "It was sent twice", "Every payment is blocked")
	if n := len(v.lines("frozen")); n != 1 {
		t.Errorf("it was frozen %d times", n)
	}
}

// What is offered works, and what does not is said with what to do.
func TestWithoutAKeyOnlyWhatNeedsNoneIsOffered(t *testing.T) {
	root := pagesRoot(t, bought{id: "op-1", url: "https://shop.example/a", payTo: formsPayee, amount: "400000", at: time.Now().Add(-time.Hour), ends: "silent"})
	policy := filepath.Join(t.TempDir(), "policy.json")
	v := visit(t, root, func(o *uiOptions) {
		o.noKey, o.config = true, path(policy)
		if err := os.WriteFile(policy, []byte(`{"operators": [{"name": "ana", "publicKey": "`+strings.Repeat("A", 43)+`="}]}`), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	v.login()
	id, other := v.review(), v.review()
	if id != other {
		t.Fatalf("%s, %s", id, other)
	}
	page := v.page("/review/" + id)
	contains(t, "pending", page, `value="rejected"`, "review approve "+id, "without --no-key")
	lacks(t, "pending", page, `value="approved"`, "To approve is to let")
	page = v.page("/reviews?many=1")
	contains(t, "many", page, `value="rejected"`, "without --no-key")
	lacks(t, "many", page, `value="approved"`)
	page = v.page("/operation?run=1781500000000&op=op-1")
	contains(t, "operation", page, "without --no-key")
	lacks(t, "operation", page, `action="/resolve"`)
	form := v.form(v.page("/review/"+id), "/decide")
	status, text := v.send("/decide", form, "decision", "approved", "note", "asked the seller")
	if status != http.StatusForbidden {
		t.Errorf("approved all the same: status %d", status)
	}
	contains(t, "approved all the same", text, "No key is unlocked here, and this counts only", "asked the seller")
	if status, text = v.send("/decide", form, "decision", "rejected"); status != http.StatusSeeOther {
		t.Fatalf("rejected: status %d: %s", status, text)
	}
	page = v.page("/review/" + id)
	contains(t, "rejected", page, "review reopen "+id, "without --no-key")
	lacks(t, "rejected", page, `value="reopened"`)
	if status, text := v.send("/freeze", v.form(v.page("/"), "/freeze"), "reason", "a stolen key"); status != http.StatusSeeOther {
		t.Fatalf("frozen: status %d: %s", status, text)
	}
	page = v.page("/")
	contains(t, "frozen", page, "Only a signature ends it")
	lacks(t, "frozen", page, `action="/unfreeze"`)
}

// What an open page shows and the log does not say.
func TestAnOpenPageFindsOutWhatNoLineSays(t *testing.T) {
	v := visit(t, pagesRoot(t))
	v.login()
	id := v.review()
	v.command("review", "approve", id)
	mark := func() string {
		var state struct{ Mark string }
		if err := json.Unmarshal([]byte(v.page("/state")), &state); err != nil || state.Mark == "" {
			t.Fatalf("%+v, %v", state, err)
		}
		return state.Mark
	}
	file := filepath.Join(v.root, "guard", "FROZEN")
	v.page("/") // the figures are made before
	before := mark()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if mark() == before {
		t.Error("everything was frozen by the file, and no page asks again")
	}
	contains(t, "frozen", v.page("/operations"), "Every payment is blocked", "remove", file)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := mark(); got != before {
		t.Errorf("the file is gone, and the mark is %s, not %s", got, before)
	}
	if page := v.page("/operations"); strings.Contains(page, "Every payment is blocked") {
		t.Error("it says frozen still")
	}
	v.at.Add(int64(100 * time.Hour))
	v.login()
	if mark() == before {
		t.Error("an approval has expired, and no page asks again")
	}
}

// Nobody looks for a button that fails: what can be written, and how everything is
// stopped when nothing can.
func TestWithoutASoundLogThePagesSayHowToStopEverything(t *testing.T) {
	v := visit(t, pagesRoot(t))
	v.login()
	v.review()
	form := v.form(v.page("/"), "/freeze")
	log := filepath.Join(v.root, "guard", decision.FileName)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, bytes.Replace(text, []byte("shop.example"), []byte("evil.example"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(v.root, "guard", "FROZEN")
	for _, at := range []string{"/", "/counterparty?name=shop.example"} {
		page := v.page(at)
		contains(t, at, page, "make the file", file)
		if strings.Contains(page, `action="/freeze"`) {
			t.Errorf("%s offers what fails", at)
		}
	}
	status, page := v.send("/freeze", form, "reason", "a stolen key")
	if status != http.StatusServiceUnavailable {
		t.Errorf("status %d", status)
	}
	contains(t, "a form that was open", page, "make a file "+file, "You had typed: \u201ca stolen key\u201d")
}

// A page of somebody who is paid through very many hosts shows some of them, and says
// that there are more.
func TestACounterpartyOfManyHostsIsShownInPart(t *testing.T) {
	var all []bought
	for i := range 300 {
		all = append(all, bought{id: fmt.Sprintf("op-%03d", i), url: fmt.Sprintf("https://h%03d.example/a", i), payTo: formsPayee, amount: "400", at: time.Now().Add(-time.Hour), ends: "settled"})
	}
	v := visit(t, pagesRoot(t, all...))
	v.login()
	address := "/counterparty?name=" + formsPayee
	page := v.page(address)
	contains(t, "page", page, "60 of at least 200", "and at least 1", "the newest 50;", "all its operations", "left of")
}
