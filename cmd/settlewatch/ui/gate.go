package ui

import (
	"context"
	"crypto/subtle"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

// This file decides who may ask what from where (transport contract, section 4): the
// host first, then where the question comes from, the method, the person, and last
// the token of a form.

// policy lets a page load its own files and nothing else, and be framed by nobody.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

func (u *UI) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// Not no-referrer: a browser then hides the origin of a form as well.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	host := strings.ToLower(r.Host)
	if u.doors[host] {
		u.door.ServeHTTP(w, r)
		return
	}
	if host != u.o.Authority {
		// A name that leads here by somebody else's DNS is not ours.
		refuse(w, http.StatusMisdirectedRequest, "host_not_allowed")
		return
	}
	if o := r.Header.Values("Origin"); len(o) > 1 || len(o) == 1 && o[0] != "http://"+u.o.Authority {
		refuse(w, http.StatusForbidden, "origin_not_allowed")
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
		h.Set("Allow", "GET, HEAD, POST")
		refuse(w, http.StatusMethodNotAllowed, "method_not_allowed")
		return
	}
	switch site := r.Header.Get("Sec-Fetch-Site"); site {
	case "", "same-origin", "none":
	default:
		// Another page may lead here, and load nothing of it.
		if r.Method == http.MethodPost || r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document" {
			refuse(w, http.StatusForbidden, "cross_site")
			return
		}
		if r.URL.Path != "/login" {
			// The cookie of a login stays behind when somebody comes from elsewhere.
			// What this page opens comes from here.
			u.message(w, r, http.StatusOK, message{Title: "One moment", Text: "A link from somewhere else led here.", Onward: onward(r.URL), Link: "Open it"})
			return
		}
	}
	if r.Method == http.MethodPost && r.Header.Get("Origin") == "" {
		refuse(w, http.StatusForbidden, "origin_required")
		return
	}
	u.mux.ServeHTTP(w, r)
}

// onward is a page of ours, by its path alone: what stands before it is not taken
// from a request.
func onward(to *url.URL) string {
	return (&url.URL{Path: "/" + strings.TrimLeft(to.Path, "/"), RawQuery: to.RawQuery}).String()
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(`{"error": "` + code + `"}` + "\n"))
}

// request is a question of a person who is logged in.
type request struct {
	*UI
	w http.ResponseWriter
	r *http.Request
	s *session

	to, did  string    // where the act of a form leads, and what it did
	returned *returned // a form that comes back with this page
}

// page answers a question that changes nothing.
func (u *UI) page(w http.ResponseWriter, r *http.Request, h func(*request) error) {
	s := u.sessions.of(r, u.now())
	if s == nil {
		if r.URL.Path == "/state" {
			refuse(w, http.StatusUnauthorized, "login_required")
			return
		}
		u.stranger(w, r)
		return
	}
	q := &request{UI: u, w: w, r: r, s: s}
	q.returned, _ = r.Context().Value(returning{}).(*returned)
	if err := h(q); err != nil {
		q.failed(err)
	}
}

func (u *UI) stranger(w http.ResponseWriter, r *http.Request) {
	u.message(w, r, http.StatusUnauthorized, message{Title: "Please log in",
		Text: "This page belongs to the person who started settlewatch ui. A link that works once is opened by the terminal it runs on: press return there for a new one.", Kept: typedIn(r)})
}

// maxForm bounds what a form may hold: a batch names at most so many reviews.
const maxForm = 256 << 10

// act does what a form asks for.
func (u *UI) act(w http.ResponseWriter, r *http.Request, h func(*request) error) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	s := u.sessions.of(r, u.now())
	if s == nil {
		_ = r.ParseForm() // only to give back what was typed
		u.stranger(w, r)
		return
	}
	// What was clicked is done even if the browser goes away: a second click must not be
	// told that the first did it when that was cut off.
	r = r.WithContext(context.WithoutCancel(r.Context()))
	q := &request{UI: u, w: w, r: r, s: s}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/x-www-form-urlencoded" {
		refuse(w, http.StatusUnsupportedMediaType, "form_required")
		return
	}
	if err := r.ParseForm(); err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "form_too_large")
		return
	}
	if subtle.ConstantTimeCompare([]byte(r.PostForm.Get("token")), []byte(s.token)) != 1 {
		q.render(http.StatusForbidden, "message", "", message{Title: "This form is out of date", Text: "It was made for another login. Nothing was done. Open the page again.", Onward: "/", Link: "Overview", Kept: typedIn(r)})
		return
	}
	if err := h(q); err != nil {
		q.failed(err)
	}
}

// errNotFound is the error of a page that does not exist.
var errNotFound = errors.New("there is no such page")

// failed shows an error in words a person can act on.
func (q *request) failed(err error) {
	if q.r.Context().Err() != nil {
		return // nobody waits any more
	}
	if q.returned != nil { // the page a form was on cannot be shown either
		q.returned.Kept = q.returned.typed()
		q.render(q.returned.status, "message", "", q.returned.message)
		return
	}
	m := message{Title: "That did not work", Onward: q.back(), Link: "Back"}
	status := http.StatusInternalServerError
	if errors.Is(err, errNotFound) {
		q.render(http.StatusNotFound, "message", "", message{Title: "There is no such page", Text: "The address may be mistyped.", Onward: "/", Link: "Overview"})
		return
	}
	e := errcode.Of(err)
	switch e.Code {
	case errcode.ReviewNotFound, errcode.RunNotFound, errcode.OperationNotFound, errcode.NoRuns:
		status, m.Title = http.StatusNotFound, "Not found"
	case errcode.ReviewDecided:
		status, m.Title = http.StatusConflict, "Decided already"
		m.Extra = "It was decided meanwhile, on another page or on a terminal. A review is decided once; nothing was changed."
	case errcode.ReviewExpired:
		status, m.Title = http.StatusConflict, "Too late"
		m.Extra = "A review that nobody decides in time is no permission. Nothing was changed."
	case errcode.Input, errcode.Usage, errcode.ReviewAmbiguous, errcode.OperationAmbiguous:
		status, m.Title = http.StatusUnprocessableEntity, "That cannot be done"
	case errcode.OperatorKey:
		status, m.Title = http.StatusForbidden, "It was not signed"
	case errcode.LogUnsound:
		status, m.Title = http.StatusServiceUnavailable, "The decisions log does not verify"
	default:
		q.say.Warn("answer a page", "path", q.r.URL.Path, "error", err)
	}
	m.Text, m.Code, m.Hint = sentence(e.Message), string(e.Code), e.Hint
	if errors.Is(err, errStale) {
		status, m = http.StatusConflict, message{Title: "It has changed", Text: "What the page showed is not what would be signed now. Nothing was done. Look at it again.", Onward: q.back(), Link: "Look again"}
	}
	if errors.Is(err, errUnconfirmed) {
		status, m = http.StatusForbidden, message{Title: "Not confirmed on the terminal", Text: "Type the code of this page on the terminal where settlewatch ui runs, then decide again. Nothing was done.", Onward: q.back(), Link: "Back"}
	}
	if q.r.Method == http.MethodPost {
		q.giveBack(status, m)
		return
	}
	q.render(status, "message", "", m)
}

// returned is a form whose act has failed: it comes back on the page it was on, with
// what was typed into it and what went wrong.
type returned struct {
	message
	status int
	action string
	form   url.Values
	filled bool // a field of the page has what was typed
}

// returning is under what a context has a form that comes back.
type returning struct{}

// giveBack answers a form with the page it was on.
func (q *request) giveBack(status int, m message) {
	to, err := url.Parse(q.back())
	if err != nil {
		to = &url.URL{Path: "/"}
	}
	if id := q.text("id"); q.r.URL.Path == "/decide" && id != "" {
		to = &url.URL{Path: "/review/" + id} // a list may not have it any more
	}
	form := &returned{message: m, status: status, action: q.r.URL.Path, form: q.r.PostForm}
	r := q.r.WithContext(context.WithValue(q.r.Context(), returning{}, form))
	r.Method, r.URL, r.Body, r.Form, r.PostForm = http.MethodGet, to, http.NoBody, nil, nil
	q.mux.ServeHTTP(q.w, r)
}

// value is what was typed into a field of the form for an action, "" for another form.
func (b *returned) value(action, name string) string {
	if b == nil || b.action != action {
		return ""
	}
	text := strings.ToValidUTF8(b.form.Get(name), "\ufffd")
	b.filled = b.filled || text != ""
	return text
}

// typed are the words that were typed, as they are shown where no field takes them.
func (b *returned) typed() string { return words(b.form) }

func words(form url.Values) string {
	for _, name := range []string{"note", "reason"} {
		if text := strings.TrimSpace(form.Get(name)); text != "" {
			return clean(text)
		}
	}
	return ""
}

// typedIn are the words a request brings, which nobody should have to type again.
func typedIn(r *http.Request) string { return words(r.PostForm) }

// back is the page a form was on.
func (q *request) back() string {
	if q.r.PostForm != nil {
		if to, err := url.Parse(q.r.PostForm.Get("back")); err == nil && strings.HasPrefix(to.Path, "/") {
			return onward(to)
		}
	}
	return "/"
}

func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
