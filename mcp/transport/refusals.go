package transport

import (
	"net/netip"
	"sync"
	"time"
)

// refusals tell whoever runs a server of requests that no handler sees: a page with
// another origin, a client without a token or with one that does not hold, a body
// that is too large. Of each kind there is a line at most once a minute, which counts
// those before it that had none: a stranger decides how often he is refused, and must
// not decide how fast a log grows. Nothing that was sent is in a line, so no token is.
type refusals struct {
	mu   sync.Mutex
	told map[Answer]told // as many as there are codes
}

type told struct {
	at     time.Time
	others int64 // refused since, without a line
}

const refusalsEvery = time.Minute

// due reports whether a refusal has its line now, and how many had none.
func (r *refusals) due(a Answer, now time.Time) (others int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, known := r.told[a]
	if since := now.Sub(last.at); known && since >= 0 && since < refusalsEvery {
		last.others++
		r.told[a] = last
		return 0, false
	}
	if r.told == nil {
		r.told = map[Answer]told{}
	}
	r.told[a] = told{at: now}
	return last.others, true
}

// refused writes down that a client was refused; why is a text of ours, "" where the
// code says all there is.
func (p *plan) refused(a Answer, client netip.Prefix, why string) {
	others, ok := p.refusals.due(a, p.Now())
	if !ok {
		return
	}
	what := []any{"status", a.Status, "code", a.Code}
	message := "a request was refused"
	if a.Status == 0 {
		message, what = "a connection was closed at once: there are too many", nil
	}
	what = append(what, "client", client)
	if why != "" {
		what = append(what, "why", why)
	}
	if others > 0 {
		what = append(what, "others_before", others)
	}
	p.Log.Warn(message, what...)
}
