package approval

import "time"

// Authorised is one authorisation of the log.
type Authorised struct {
	Amount  string // display units, decimal text
	At      time.Time
	Expires time.Time
	Burnt   bool // it was used
}

// Day is the UTC day of an instant, as the day's total is kept by: from start on,
// and before end (approvals contract, section 2.5).
func Day(now time.Time) (start, end time.Time) { panic("") }

// Committed is what the UTC day of now has taken of the gate's daily cap: what was
// authorised that day less what expired unused, or what was spent that day plus
// what is held, whichever is more; or what the caller claims, if that is more still
// (approvals contract, section 9.7). All amounts are decimal texts in display
// units; claimed may be "". The error is an E_INPUT.
func Committed(now time.Time, authorised []Authorised, spent, held, claimed string) (string, error) {
	panic("")
}
