package crash

import "time"

// This file is what a crash test and its buyers say to each other, a line of JSON at
// a time: an order on the buyer's stdin, what became of it on its stdout. Where an
// order says so, the buyer stops and says that it does, so that it can be killed
// exactly there.

// Order is one purchase, a line of stdin. A buyer that is to pay later takes another
// one, of which only the clock counts, for the word to do it.
type Order struct {
	Seller   string `json:"seller"` // address
	Host     string `json:"host"`
	Asset    string `json:"asset"`           // key
	Amount   string `json:"amount"`          // display units
	Atomic   string `json:"atomic"`          // the same in atomic units
	Clock    string `json:"clock,omitempty"` // set the clock to this, RFC 3339, before asking
	Stop     string `json:"stop,omitempty"`  // where to wait for the end
	PayLater bool   `json:"pay_later,omitempty"`

	after time.Duration // kill it so long after it has begun; 0 for not
}

// The places a buyer can be told to stop at.
const (
	StopJudged  = "judged"  // there is a verdict, and nothing of it is in the log
	StopAllowed = "allowed" // it was allowed, and nothing is paid
	StopHalf    = "half"    // half of the payment's line is in the run file
)

// What a buyer says besides that it has stopped.
const (
	AtReady    = "ready"    // once, before its first order
	AtAnswered = "answered" // the guard has, or an error has in its place
	AtPaid     = "paid"
)

// Said is one line of a buyer's stdout. At is one of the words above or a stop; the
// rest is of an answer.
type Said struct {
	At       string   `json:"at"`
	Decision string   `json:"decision,omitempty"`
	Rules    []string `json:"rules,omitempty"` // that fired
	Why      string   `json:"why,omitempty"`   // the guard could not judge
	Fault    string   `json:"fault,omitempty"` // code of an error in place of a verdict
	Began    int64    `json:"began,omitempty"` // when the check began and ended, in nanoseconds of the real clock
	Ended    int64    `json:"ended,omitempty"`
}
