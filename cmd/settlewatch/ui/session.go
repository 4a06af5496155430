package ui

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"io"
	"math/big"
	"net/http"
	"sync"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

const (
	cookieName = "settlewatch"
	loginLasts = 3 * time.Minute
	// sessionLasts is a working day: a laptop that was left open should not approve
	// payments the next morning.
	sessionLasts = 12 * time.Hour
	mostSessions = 32
)

// session is one login.
type session struct {
	token string // of its forms
	code  string // to be typed on the terminal, "" where nothing is
	began time.Time

	confirmed bool // guarded by sessions.mu
}

func (s *session) ended(now time.Time) bool { return now.Sub(s.began) >= sessionLasts }

// sessions are the logins there are. Secrets are kept as their hashes, so that a
// comparison tells nothing by the time it takes.
type sessions struct {
	random io.Reader

	mu     sync.Mutex
	links  map[[32]byte]time.Time // that were not used yet, and until when they work
	spent  map[[32]byte]bool      // that were
	logins map[[32]byte]*session
}

func (s *sessions) init(random io.Reader) {
	s.random, s.links, s.spent, s.logins = random, map[[32]byte]time.Time{}, map[[32]byte]bool{}, map[[32]byte]*session{}
}

// secret is 256 bits as text.
func (s *sessions) secret() string {
	b := make([]byte, 32)
	if _, err := io.ReadFull(s.random, b); err != nil {
		panic("no random numbers: " + err.Error()) // nothing may be handed out then
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// number is six digits.
func (s *sessions) number() string {
	b := make([]byte, 8)
	if _, err := io.ReadFull(s.random, b); err != nil {
		panic("no random numbers: " + err.Error())
	}
	n := new(big.Int).Mod(new(big.Int).SetBytes(b), big.NewInt(1_000_000)).Int64()
	text := []byte("000000")
	for i := len(text) - 1; n > 0; i-- {
		text[i] = byte('0' + n%10)
		n /= 10
	}
	return string(text[:3]) + " " + string(text[3:])
}

// Link is a web address that logs one browser in, once, and soon. Links made before
// stop working.
func (u *UI) Link() string {
	s := &u.sessions
	secret := s.secret()
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.links)
	s.links[sha256.Sum256([]byte(secret))] = u.now().Add(loginLasts)
	return "http://" + u.o.Authority + "/login?link=" + secret
}

// Confirm lets the login act whose code it is: whoever reads the page and types on
// the terminal is one person. Without a code to type every login may.
func (u *UI) Confirm(code string) bool {
	digits := onlyDigits(code)
	s := &u.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	found := false
	for _, one := range s.logins {
		if one.code != "" && len(digits) == 6 && subtle.ConstantTimeCompare([]byte(onlyDigits(one.code)), []byte(digits)) == 1 {
			one.confirmed, found = true, true
		}
	}
	return found
}

func onlyDigits(text string) string {
	var out []byte
	for i := range len(text) {
		if text[i] >= '0' && text[i] <= '9' {
			out = append(out, text[i])
		}
	}
	return string(out)
}

// of is the login a request belongs to, nil for none.
func (s *sessions) of(r *http.Request, now time.Time) *session {
	// More than one cookie of the name: somebody else has set one.
	cookies := r.CookiesNamed(cookieName)
	if len(cookies) != 1 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.logins[sha256.Sum256([]byte(cookies[0].Value))]
	if one == nil || one.ended(now) {
		return nil
	}
	return one
}

// may tells whether a login may act.
func (s *sessions) may(one *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return one.confirmed
}

func (u *UI) login(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead { // it shows nobody anything, and would use the link up
		w.Header().Set("Allow", "GET")
		refuse(w, http.StatusMethodNotAllowed, "method_not_allowed")
		return
	}
	s, now := &u.sessions, u.now()
	key := sha256.Sum256([]byte(r.URL.Query().Get("link")))
	s.mu.Lock()
	until, known := s.links[key]
	spent := s.spent[key]
	if known {
		delete(s.links, key)
		s.spent[key] = true
	}
	for k, one := range s.logins {
		if one.ended(now) {
			delete(s.logins, k)
		}
	}
	full := len(s.logins) >= mostSessions
	s.mu.Unlock()
	switch {
	case spent:
		u.o.Entered("again")
		u.message(w, r, http.StatusForbidden, message{Title: "This link was used before", Text: "It works once. If it was not you who used it, somebody else on this machine did: end settlewatch ui on its terminal, now. Otherwise press return there for a new link."})
		return
	case !known || !now.Before(until):
		u.message(w, r, http.StatusForbidden, message{Title: "This link does not work", Text: "It is too old, or was replaced by a newer one. Press return on the terminal where settlewatch ui runs."})
		return
	case full:
		u.message(w, r, http.StatusForbidden, message{Title: "Too many logins", Text: "End settlewatch ui on its terminal and start it again."})
		return
	}
	value := s.secret()
	one := &session{token: s.secret(), began: now, confirmed: true}
	if u.o.Signer != nil {
		one.code, one.confirmed = s.number(), false
	}
	s.mu.Lock()
	s.logins[sha256.Sum256([]byte(value))] = one
	s.mu.Unlock()
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: value, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	u.o.Entered(r.UserAgent())
	// Not a redirect: that would still come from where the link was, and without the
	// cookie.
	u.message(w, r, http.StatusOK, message{Title: "Logged in", Text: "The overview opens by itself.", Onward: "/", Link: "Overview"})
}

func (q *request) leave() error {
	s := &q.sessions
	if cookies := q.r.CookiesNamed(cookieName); len(cookies) == 1 {
		s.mu.Lock()
		delete(s.logins, sha256.Sum256([]byte(cookies[0].Value)))
		s.mu.Unlock()
	}
	http.SetCookie(q.w, &http.Cookie{Name: cookieName, Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	q.message(q.w, q.r, http.StatusOK, message{Title: "Logged out", Text: "Press return on the terminal where settlewatch ui runs to come back."})
	return nil
}

// sent is a form whose act has begun. Forms carry a number that is used once.
type sent struct {
	at   time.Time
	said [32]byte      // what the form said
	over chan struct{} // closed when the act is over
	// What came of it, set before over is closed; to is "" where nothing did.
	to, did string
}

// atOnce is within what time a form that comes again was sent twice. What comes later
// is from a page that a browser has kept, and what the form did may have been undone.
const atOnce = 10 * time.Second

// once does what a form asks for unless it was done already. What is sent twice is
// answered with what the first came to, also while that is under way: a browser
// without scripts shows the last answer alone.
func (q *request) once(h func(*request) error) error {
	number := q.r.PostForm.Get("once")
	if number == "" {
		return errcode.New(errcode.Input, "open the page again", "the form has no number")
	}
	form := &sent{at: q.now(), said: sha256.Sum256([]byte(q.r.PostForm.Encode())), over: make(chan struct{})}
	for {
		first := q.begin(number, form)
		if first == form {
			break
		}
		<-first.over
		switch {
		case first.to == "": // it failed, so it may be sent again
		case form.at.Sub(first.at) > atOnce:
			return q.done(first.to, later+first.did)
		case first.said == form.said:
			return q.done(first.to, twice+first.did)
		default:
			return q.done(first.to, other+first.did)
		}
	}
	defer func() {
		// Sent again, a form that has failed must do what it says, and not be told that
		// it was done.
		if form.to == "" {
			q.mu.Lock()
			delete(q.forms, number)
			q.mu.Unlock()
		}
		close(form.over)
	}()
	err := h(q)
	if err == nil {
		form.to, form.did = q.to, q.did
	}
	return err
}

// begin gives the form that was sent under a number: this one, if it is the first.
func (q *request) begin(number string, form *sent) *sent {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.forms) > 10_000 {
		for k, f := range q.forms {
			if form.at.Sub(f.at) > sessionLasts {
				delete(q.forms, k)
			}
		}
	}
	if first := q.forms[number]; first != nil {
		return first
	}
	q.forms[number] = form
	return form
}
