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
	Burnt   bool // it was used
}

// Day is the UTC day of an instant, as the day's total is kept by: from start on,
// and before end (approvals contract, section 2.5).
func Day(now time.Time) (start, end time.Time) {
	y, m, d := now.UTC().Date()
	start = time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	return start, start.AddDate(0, 0, 1)
}

// Committed is what the UTC day of now has taken of the gate's daily cap: what was
// authorised that day less what expired unused, or what was spent that day plus
// what is held, whichever is more; or what the caller claims, if that is more still
// (approvals contract, section 9.7). All amounts are decimal texts in display
// units of one asset; claimed may be "". The error is an E_INPUT.
func Committed(now time.Time, authorised []Authorised, spent, held, claimed string) (string, error) {
	start, _ := Day(now)
	promised := decimal{value: new(big.Rat)}
	for _, a := range authorised {
		amount, err := readDecimal(a.Amount)
		if err != nil {
			return "", unreadableNumber("authorised", err)
		}
		// One of a later day shows that the clock was set back since. That must not
		// give the day a second allowance.
		if !a.At.Before(start) && (a.Burnt || a.Expires.After(now)) {
			promised = promised.plus(amount)
		}
	}
	paid, err := readDecimal(spent)
	if err != nil {
		return "", unreadableNumber("spent", err)
	}
	reserved, err := readDecimal(held)
	if err != nil {
		return "", unreadableNumber("held", err)
	}
	most := promised
	if seen := paid.plus(reserved); most.atMost(seen) {
		most = seen
	}
	if claimed != "" {
		said, err := readDecimal(claimed)
		if err != nil {
			return "", unreadableNumber("committed_today", err)
		}
		if most.atMost(said) {
			most = said
		}
	}
	return most.String(), nil
}
