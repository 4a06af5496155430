package ui

import (
	"context"
	"sync"
	"time"

	"github.com/settlewatch/settlewatch/guard"
)

// limits are what the policy leaves single counterparties. That adds up every payment
// of a window, of which there may be very many, so it is worked out beside the pages,
// as figures are: a page shows what there is and when it was made.
type limits struct {
	mu sync.Mutex
	of map[guard.HeadroomQuery]*limitSet
}

// limitSet is what is left to one counterparty.
type limitSet struct {
	headroom *guard.Headroom // nil until it is made for the first time
	at       time.Time
	mark     string
	making   chan struct{} // closed when it is made; nil while nobody makes it
}

const (
	// limitsWait is how long a page waits for limits that are being worked out.
	limitsWait = 15 * time.Millisecond
	// mostLimits bounds the counterparties whose limits are kept.
	mostLimits = 32
)

// get gives what is left by now if that takes no longer than a page waits, else what
// was left when it was last worked out; nil where it never was. Current tells which.
func (l *limits) get(ctx context.Context, u *UI, query guard.HeadroomQuery, mark string) (left *guard.Headroom, at time.Time, current bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	set := l.set(query)
	if set.fresh(mark, u.now()) {
		return set.headroom, set.at, true
	}
	making := set.making
	if making == nil {
		making = make(chan struct{})
		set.making = making
		// Whoever asked may be gone before it is there; the next one is glad of it.
		go l.make(context.WithoutCancel(ctx), u, query, mark, set)
	}
	l.mu.Unlock()
	timer := time.NewTimer(limitsWait)
	defer timer.Stop()
	select {
	case <-making:
	case <-timer.C:
	case <-ctx.Done():
	}
	l.mu.Lock()
	return set.headroom, set.at, set.fresh(mark, u.now())
}

// make works the limits out. The mark was taken before what it stands for: what came
// between is looked at again.
func (l *limits) make(ctx context.Context, u *UI, query guard.HeadroomQuery, mark string, set *limitSet) {
	at := u.now()
	left, err := u.g.Headroom(ctx, query)
	if err != nil {
		u.say.Debug("work out what limits leave a counterparty", "error", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		set.headroom = left
	}
	// What could not be worked out is not asked for again at once either.
	set.at, set.mark = at, mark
	close(set.making)
	set.making = nil
}

// fresh tells whether what was worked out for a mark still holds.
func (s *limitSet) fresh(mark string, now time.Time) bool {
	return s.making == nil && !s.at.IsZero() && s.mark == mark && now.Sub(s.at) < figuresLast
}

// set is what is kept of a counterparty. The one that was worked out longest ago makes
// room.
func (l *limits) set(query guard.HeadroomQuery) *limitSet {
	if set := l.of[query]; set != nil {
		return set
	}
	for len(l.of) >= mostLimits {
		var oldest guard.HeadroomQuery
		var of *limitSet
		for q, set := range l.of {
			if of == nil || set.at.Before(of.at) {
				oldest, of = q, set
			}
		}
		delete(l.of, oldest)
	}
	if l.of == nil {
		l.of = map[guard.HeadroomQuery]*limitSet{}
	}
	set := &limitSet{}
	l.of[query] = set
	return set
}
