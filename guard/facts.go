package guard

import (
	"time"

	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/decision"
)

// Facts are what a verdict rests on beside the policy, the log and the clock:
// what the index says of the payment that is asked about, with what people said
// of it (resolutions, the baseline, acknowledgements) already applied.
//
// References are newest first. A list is cut at [maxEvidence] and its total says
// how many there are.
type Facts struct {
	NotReady string // why no facts could be had: a sentence and what to do; all else is then zero

	Checked decision.Checked
	HasRuns bool

	// Operations with any of the names.
	Full, Partial, Blind int64
	AnyPartialCounts     bool     // the additional template has no stage roles: every partial operation counts as open
	Open                 Evidence // open operations
	Duplicate            Evidence // open ones with the same payee, asset, amount and, where both are known, resource

	// The window of per_counterparty_limit, in the asset asked about.
	Window Window
	// Of the longest window that this question looks at by name.
	Mixed      Evidence // payments in assets that have no policy of their own
	Unreadable Evidence // payments that cannot be summed

	Limits []Window // one for each of Policy.Limits; Applies is false where its scope is not named

	PayeeChanged Evidence // payments to hosts, when none of a host's went to the address to be paid
	PaidHosts    []string // those hosts
	Prices       []string // amounts of the last settled payments for the resource, newest first, at most 20

	Damage      []DamageItem // not acknowledged, at most maxEvidence
	DamageTotal int          // runs
	DamageCut   bool         // there is more than in Damage

	Made []decision.Made // what payments the operations named above have; only where an approval is asked about

	Gate           *approval.Verdict // of the spend gate; nil when none is configured
	GateUnreadable int64             // payments of its day that cannot be added up

	FutureTime     bool // a payment looked at lies in the future
	UnknownNetwork bool // one is on a network that is not known
}

// Evidence is a list of operations.
type Evidence struct {
	Refs  []decision.Ref
	Total int
}

// Window is what one limit counts. Amounts are atomic units of its asset.
type Window struct {
	Applies bool
	Spent   string
	Held    string
	Count   int64 // payments
	// Unreadable are payments that the sum had to leave out and no other rule names.
	Unreadable int64
	Holds      int64
}

// maxEvidence is how many operations a reason names (guard contract, section 1).
const maxEvidence = 20

// Record is what the decisions log says about one question.
type Record struct {
	Unsound string // why the log does not verify; all else is then what could be read
	Frozen  string // a sentence on the freeze in force, "" when there is none

	Rejected *Refusal // a person rejected the same intent
	Nearby   *Refusal // a person rejected another payment to the same payee

	// The review the request rests on, where it may: approved, unexpired, unused,
	// of the same intent.
	Approval *decision.Opened
	// Otherwise why not: "" when the request names no review.
	NoApproval string
}

// Refusal is a rejection that still holds.
type Refusal struct {
	ReviewID string
	At       time.Time
	By, Note string
	What     string // of Nearby: what was refused, in words
}
