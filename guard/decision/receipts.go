package decision

import (
	"iter"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

// ReceiptState is a receipt that was issued, and what became of it.
type ReceiptState struct {
	Authorized
	Seq     int64     // of the line that holds it
	At      time.Time // of that line
	Actor   string    // likewise: who asked, where no person was asked
	BurntAt time.Time // when it was used for a call; zero while it was not
	void    bool      // a refusal used it up
	counted string    // where it stands in spends
}

// Alive reports whether the receipt may still be used up at a time.
func (r *ReceiptState) Alive(now time.Time) bool {
	return r.BurntAt.IsZero() && !r.void && now.Before(r.ExpiresAt)
}

// Receipt is the receipt that was issued under an id; nil when none was.
func (s *State) Receipt(id string) *ReceiptState {
	r, _ := s.receipts.Get(id)
	return r
}

// Burnt reports whether a receipt was used up, by a call or by being presented when
// it could no longer be used. It says so of receipts that others issued too.
func (s *State) Burnt(id string) bool {
	_, burnt := s.burnt.Get(digest("receipt", id))
	return burnt
}

// Began is when the log began anew behind one that was set aside; zero for a log
// that did not. A receipt of somebody else's from before may have been used up in
// the log that is no longer this one.
func (s *State) Began() time.Time { return s.began }

// Spends yields the receipts that count in the day of a gate: those that were issued
// or used since midnight UTC, and those of the day before that may still be used. One
// that expired unused counts nowhere (approvals contract, section 9.7). What is dated
// in the future counts as well.
func (s *State) Spends(gate string, now time.Time) iter.Seq[*ReceiptState] {
	midnight := now.UTC().Truncate(24 * time.Hour)
	return func(yield func(*ReceiptState) bool) {
		prefix := gate + "\x00"
		// The day before: a receipt lasts for an hour at most.
		s.spends.Ascend(prefix+day(midnight.Add(-time.Hour)), func(key string, r *ReceiptState) bool {
			if !strings.HasPrefix(key, prefix) {
				return false
			}
			today := !r.At.Before(midnight) || !r.BurntAt.Before(midnight)
			if r.Alive(now) || today && !r.BurntAt.IsZero() {
				return yield(r)
			}
			return true
		})
	}
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// issue takes a receipt for issued. One that rests on a review is issued once, when
// the review was decided; what it is worth while the review stands otherwise is for
// who verifies it to ask.
func (f *fold) issue(l *line, b *Authorized, doubtful bool) {
	if doubtful {
		return
	}
	if _, known := f.receipts.Get(b.ReceiptID); known || f.Burnt(b.ReceiptID) {
		f.ignore(l, errcode.Input, "there is a receipt of that id already")
		return
	}
	if b.ReviewID != "" {
		old, ok := f.reviews.Get(b.ReviewID)
		switch {
		case !ok || old.Kind != KindToolCall:
			f.ignore(l, errcode.ReviewNotFound, "there is no review of a tool call of that id")
			return
		case old.status != StatusApproved && old.status != StatusRejected || old.Status(l.At) == StatusExpired || old.ReceiptID != "":
			f.ignore(l, errcode.ReviewDecided, "the review is not decided, or has its receipt already")
			return
		}
		r := old.copy()
		r.ReceiptID = b.ReceiptID
		if r.status == StatusApproved && b.ExpiresAt.Before(r.deadline) {
			r.deadline = b.ExpiresAt // an approval is its receipt
		}
		f.keep(r)
	}
	f.count(&ReceiptState{Authorized: *b, Seq: l.Seq, At: l.At, Actor: l.Actor})
}

// count puts a receipt in its places.
func (f *fold) count(r *ReceiptState) {
	f.receipts.Set(r.ReceiptID, r)
	if r.Spend == nil {
		return
	}
	if r.counted != "" {
		f.spends.Delete(r.counted)
	}
	r.counted = r.Spend.Gate + "\x00" + day(later(r.At, r.BurntAt)) + "\x00" + r.ReceiptID
	f.spends.Set(r.counted, r)
}

// burn uses a receipt up, by a call or by a refusal, and reports whether it had not
// been.
func (f *fold) burn(id string, l *line, called bool) bool {
	if _, again := f.burnt.Set(digest("receipt", id), struct{}{}); again {
		return false
	}
	if old, ok := f.receipts.Get(id); ok {
		r := *old
		if r.void = !called; called {
			r.BurntAt = l.At
		}
		f.count(&r)
	}
	return true
}

// execute uses a receipt up by a call. A second one is refused when it is to be
// written, and changes nothing where it stands.
func (f *fold) execute(l *line, b *Executed) {
	if !f.burn(b.ReceiptID, l, true) {
		f.ignore(l, errcode.Input, "that receipt was used before, and each is good for one call")
		return
	}
	if b.ReviewID != "" {
		f.use(b.ReviewID, UsedBy{ReceiptID: b.ReceiptID}, l)
	}
}
