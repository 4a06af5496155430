package approval

import (
	"math/big"
	"time"
)

// Authorised is one authorisation of the log.
type Authorised struct {
	Amount  string // display units, decimal text
	At      time.Time
	Expires time.Time
	BurntAt time.Time // zero: it was not used
}

// Day is the UTC day of an instant, as the day's total is kept by: from start on,
// and before end (approvals contract, section 2.5).
func Day(now time.Time) (start, end time.Time) {
	y, m, d := now.UTC().Date()
	start = time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	return start, start.AddDate(0, 0, 1)
}

// counts reports whether an authorisation takes of the day that began at start. One
// that may still be used does, whichever day it is of: it would be spent on this
// one. One that was used counts for the day of either. One of a later day shows that
// the clock was set back, which must not give a day a second allowance.
func (a Authorised) counts(start, now time.Time) bool {
	if a.BurntAt.IsZero() {
		return a.Expires.After(now)
	}
	return !a.At.Before(start) || !a.BurntAt.Before(start)
}

// Committed is what the UTC day of now has taken of the gate's daily cap: what was
// authorised less what expired unused, or what was spent that day plus what is held,
// whichever is more; or what the caller claims, if that is more still (approvals
// contract, section 9.7). All amounts are decimal texts in display units of one
// asset; claimed may be "". The error is an E_INPUT.
func Committed(now time.Time, authorised []Authorised, spent, held, claimed string) (string, error) {
	start, _ := Day(now)
	promised := decimal{value: new(big.Rat)}
	for _, a := range authorised {
		amount, err := readDecimal(a.Amount)
		if err != nil {
			return "", unreadableNumber("authorised", err)
		}
		if a.counts(start, now) {
			promised = promised.plus(amount)
		}
	}
	seen, err := readDecimal(spent)
	if err != nil {
		return "", unreadableNumber("spent", err)
	}
	reserved, err := readDecimal(held)
	if err != nil {
		return "", unreadableNumber("held", err)
	}
	most := larger(promised, seen.plus(reserved))
	if claimed == "" {
		return most.String(), nil
	}
	said, err := readDecimal(claimed)
	if err != nil {
		return "", unreadableNumber("committed_today", err)
	}
	return larger(most, said).String(), nil
}

func larger(a, b decimal) decimal {
	if a.atMost(b) {
		return b
	}
	return a
}
