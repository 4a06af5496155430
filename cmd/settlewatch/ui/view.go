package ui

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// whole bounds a text that is shown in full: more than any string a request to the
// guard may have.
const whole = 4096

// clean makes a stranger's text fit to be shown; the templates make it HTML.
func clean(text string) string { return plain.Clean(text, whole) }

// frame is what every page of a login has around it.
type frame struct {
	Title, Nav string
	Body       any

	Token    string
	Path     string // of the page, for forms to come back to
	Root     string
	Version  string
	Pending  int
	Frozen   []decision.Frozen
	ByFile   bool // everything is frozen by File
	Unsound  string
	Code     string // to be typed on the terminal, "" when the login may act
	Operator string // whose key signs, "" for none
	Did      string // what a form has just done
	Undone   bool   // Did is not about what was sent now
	Mute     bool   // what needs a signature cannot be done here
	File     string // that freezes everything while it exists
	Returned *returned
	Mark     string // tells whether anything has changed since
	Now      time.Time
}

// message is a page that says one thing.
type message struct {
	Title, Text, Extra, Code, Hint string
	Onward, Link                   string
	Kept                           string // what was typed, where no field has it
}

// Typed is what a form that came back has in a field.
func (f frame) Typed(action, name string) string { return f.Returned.value(action, name) }

func (u *UI) parse() error {
	funcs := template.FuncMap{
		"clean":   clean,
		"when":    func(t time.Time) moment { return u.moment(t) },
		"date":    func(t time.Time) string { return t.UTC().Format(time.DateOnly) },
		"number":  func(n any) string { return plain.Number(count(n)) },
		"plural":  plural,
		"size":    plain.Size,
		"took":    took,
		"money":   u.money,
		"called":  u.called,
		"short":   short,
		"once":    u.sessions.secret,
		"most":    func() int { return plain.Note }, // of a note or a reason
		"encode":  encode,
		"ref":     operationQuery,
		"command": u.o.Words.Command,
		"warning": u.o.Words.Warning,
		"network": u.o.Words.Network,
		"opened":  operationLink,
		"party":   partyLink,
		"shown":   func(name string) string { return clean(payment.Display(name)) },
		"opname":  operationName,
		"deref":   func(r *decision.Ref) decision.Ref { return *r },
		"rate":    rateOf,
		"pace":    paceOf,
		"slowest": func(sorted []time.Duration) string {
			if len(sorted) == 0 {
				return "–"
			}
			return took(sorted[len(sorted)-1])
		},
		"scope": func(scope string) string {
			if scope == decision.ScopeAll {
				return "Every payment"
			}
			return "Every payment to " + clean(payment.Display(scope))
		},
	}
	u.pages = map[string]*template.Template{}
	for _, name := range []string{"overview", "reviews", "review", "batch", "operations", "operation", "counterparty", "log", "health", "message", "plain"} {
		t, err := template.New("layout.html").Funcs(funcs).ParseFS(pages, "pages/layout.html", "pages/parts.html", "pages/"+name+".html")
		if err != nil {
			return err
		}
		u.pages[name] = t
	}
	return nil
}

// Words of what a form has done; a page takes none from its address.
var deeds = map[string]string{
	"approved": "Approved. The payment may be made once.", "rejected": "Rejected. The same payment is blocked for a while.",
	"frozenalso": "Rejected, and every payment to this payee is blocked.",
	"revoked":    "The approval was taken back.", "reopened": "The review is pending again.",
	"callapproved": "Approved. The call may run once.", "callrejected": "Rejected. The call does not run.",
	"resolved": "Written down. The operation is no longer open.", "unresolved": "Taken back. The trace alone counts again.",
	"frozen": "Frozen.", "unfrozen": "No longer frozen.", "batch": "All of them were decided.",
}

// What comes before a deed where a form was sent that had been sent before.
const (
	twice = "twice-"
	other = "other-"
	later = "later-"
)

// deed says what a form has done; undone is whether that was another one or is long ago.
func deed(word string) (text string, undone bool) {
	if of, ok := strings.CutPrefix(word, twice); ok && deeds[of] != "" {
		return "It was sent twice and counts once. " + deeds[of], false
	}
	if of, ok := strings.CutPrefix(word, other); ok && deeds[of] != "" {
		return "What was sent now was not done: the same form had been sent before, otherwise filled in. What that came to: " + deeds[of], true
	}
	if of, ok := strings.CutPrefix(word, later); ok && deeds[of] != "" {
		return "Nothing was done now: this form had been sent before, from an older page. What that came to then: " + deeds[of] + " This page shows how it stands now.", true
	}
	return deeds[word], false
}

// render answers with a page in its frame.
func (q *request) render(status int, name, nav string, body any) {
	f := frame{Nav: nav, Body: body, Token: q.s.token, Path: link(q.r, "did", ""), Root: clean(q.x.Root()), Version: q.o.Version, Now: q.now()}
	if q.r.Method == http.MethodPost {
		f.Path = q.back()
	}
	f.Did, f.Undone = deed(q.r.URL.Query().Get("did"))
	f.Mute = q.mute()
	if m, ok := body.(message); ok {
		f.Title = m.Title
	}
	if t, ok := body.(interface{ title() string }); ok {
		f.Title = t.title()
	}
	if q.o.Signer != nil {
		f.Operator = clean(q.o.Signer.Name())
		if !q.sessions.may(q.s) {
			f.Code = q.s.code
		}
	}
	s, err := q.g.Log().Read(q.r.Context())
	var unsound *decision.Unsound
	if errors.As(err, &unsound) {
		f.Unsound, s = clean(unsound.Error()), unsound.State
	} else if err != nil {
		f.Unsound = clean(err.Error())
	}
	f.Frozen = s.AllFrozen()
	f.File, f.ByFile = q.g.FreezeFile()
	f.Pending = q.pending(s)
	f.Mark = q.mark(q.r.Context(), s, err)
	if o, ok := body.(overview); ok && o.Stale {
		f.Mark = o.mark // so that the page asks again soon
	}
	f.Mark += q.confirmation()
	if q.r.Method == http.MethodPost || q.returned != nil {
		f.Mark = "" // what a form was answered with cannot be asked for again
	}
	if q.returned != nil && name != "message" { // a message says by itself what went wrong
		f.Returned = q.returned
		status, f.Title = f.Returned.status, f.Returned.Title+" – "+f.Title
	}
	q.write(q.w, status, name, f)
}

// pending counts the reviews that wait, and no further than anybody counts.
func (u *UI) pending(s *decision.State) int {
	n, now := 0, u.now()
	for r := range s.Reviews() {
		if now.Sub(r.At) > 10_000*time.Hour {
			break
		}
		if r.Status(now) == decision.StatusPending {
			n++
		}
	}
	return n
}

// message is a page for whom nobody knows.
func (u *UI) message(w http.ResponseWriter, _ *http.Request, status int, m message) {
	u.write(w, status, "plain", frame{Title: m.Title, Body: m, Now: u.now()})
}

// write makes a page whole before any of it is sent: half a page says half the truth.
func (u *UI) write(w http.ResponseWriter, status int, name string, f frame) {
	var b bytes.Buffer
	err := u.pages[name].Execute(&b, f)
	if back := f.Returned; err == nil && back != nil && !back.filled && back.typed() != "" {
		// The page has no field for it any more.
		back.Kept = back.typed()
		b.Reset()
		err = u.pages[name].Execute(&b, f)
	}
	if err != nil {
		u.say.Error("make a page", "page", name, "error", err)
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// moment is a time for a page: to the second, with the zone, and how far away it is.
type moment struct{ Stamp, Text, Away string }

func (u *UI) moment(t time.Time) moment {
	if t.IsZero() {
		return moment{}
	}
	return moment{t.UTC().Format(time.RFC3339), t.UTC().Format("2006-01-02 15:04:05 UTC"), away(t, u.now())}
}

// away says how far a time is from now.
func away(t, now time.Time) string {
	d, form := t.Sub(now), "in %s"
	if d < 0 {
		d, form = -d, "%s ago"
	}
	var text string
	switch {
	case d < time.Minute:
		return map[bool]string{true: "just now", false: "in less than a minute"}[form != "in %s"]
	case d < time.Hour:
		text = fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		text = fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		text = fmt.Sprintf("%d days", int(d.Hours())/24)
	}
	return fmt.Sprintf(form, text)
}

// took is a duration as short as it stays true.
func took(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

// money is an exact amount of atomic units with what tells its asset.
type amount struct{ Text, Network string }

func (u *UI) money(asset, atomic string) amount {
	if atomic == "" && asset == "" {
		return amount{Text: "unknown"}
	}
	a := amount{Text: clean(u.g.Policy().Display(asset, atomic))}
	if network, _, ok := strings.Cut(asset, "/"); ok {
		a.Network = clean(u.o.Words.Network(network))
		if open := strings.LastIndexByte(a.Network, '('); open > 0 && strings.HasSuffix(a.Network, ")") {
			a.Network = a.Network[open+1 : len(a.Network)-1]
		}
	}
	return a
}

// count is a number of a template, which has several kinds of them.
func count(n any) int64 {
	switch n := n.(type) {
	case int:
		return int64(n)
	case int64:
		return n
	}
	return 0
}

func plural(n any, one string) string {
	return plain.Plural(count(n), one)
}

// short abbreviates an address for a table: 0x833589…2913.
func short(name string) string {
	if i := strings.LastIndex(name, "0x"); i >= 0 && len(name)-i == 42 {
		return name[:i+8] + "…" + name[len(name)-4:]
	}
	return name
}

// operationQuery is an operation as an address names it.
func operationQuery(of ingest.Ref) string {
	return strings.TrimPrefix(operationLink(of), "/operation?")
}

// operationLink is where an operation of a line, or of a list, is shown.
func operationLink(of any) string {
	v := url.Values{}
	switch r := of.(type) {
	case ingest.Ref:
		v.Set("run", r.Run)
		if r.Null {
			v.Set("null", "1")
		} else {
			v.Set("op", r.Operation)
		}
	case *ingest.Ref:
		return operationLink(*r)
	case decision.Ref:
		v.Set("run", decision.DecodeID(r.Run))
		if r.Operation == nil {
			v.Set("null", "1")
		} else {
			v.Set("op", decision.DecodeID(*r.Operation))
		}
	}
	return "/operation?" + v.Encode()
}

// operationName is the id of an operation, for people.
func operationName(of any) string {
	id, null := "", false
	switch r := of.(type) {
	case ingest.Ref:
		id, null = r.Operation, r.Null
	case *ingest.Ref:
		return operationName(*r)
	case decision.Ref:
		if null = r.Operation == nil; !null {
			id = *r.Operation
		}
	}
	if null {
		return "null (an id that is JSON null)"
	}
	return plain.Clean(id, plain.Detail)
}

// partyLink is where a counterparty is shown, by its name as people write it.
func partyLink(name string) string {
	return "/counterparty?" + url.Values{"name": {payment.Display(name)}}.Encode()
}

// link is the page's own address with some of its parameters set anew.
func link(r *http.Request, set ...string) string {
	v := r.URL.Query()
	v.Del("did")
	for i := 0; i+1 < len(set); i += 2 {
		if set[i+1] == "" {
			v.Del(set[i])
		} else {
			v.Set(set[i], set[i+1])
		}
	}
	if len(v) == 0 {
		return r.URL.Path
	}
	return r.URL.Path + "?" + v.Encode()
}

// oneOf takes a word of an address only when it is known.
func oneOf(word string, known ...string) string {
	if slices.Contains(known, word) {
		return word
	}
	return ""
}
