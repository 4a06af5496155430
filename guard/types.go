package guard

import (
	"encoding/json"
	"time"

	"github.com/settlewatch/settlewatch/guard/decision"
)

// Request is one question to the guard, as it was asked (guard contract, section
// 1). Empty text stands for a member that was not given.
type Request struct {
	Counterparty string          // address, host or URL
	Amount       string          // display units, decimal text
	Asset        string          // registry key, symbol or token address
	Template     string          // an additional template to judge by
	Offer        json.RawMessage // one entry of an offer's accepts, as received
	Resource     string
	PayTo        string
	Hold         bool
	ReviewID     string
	ListingRef   string   // an offer the agent was shown
	Listing      *Listing // that offer, where it is remembered; Check fills it in
	Actor        string   // who asks: an HTTP subject, "" on stdio and the command line
}

// Ask is a [Request] whose members were read: canonical names, exact amounts. It
// is what rules look at.
type Ask struct {
	Request
	Intent decision.Intent

	Typed []string // canonical readings of Counterparty
	PayTo string   // canonical name of the address to be paid, "" when not given
	Host  string   // canonical host of the resource, "" when it has none
	Hosts []string // every host among the names but Host
	// Names holds every name the payment counts with: the readings of the
	// counterparty, PayTo, Host, and their aliases. Sorted.
	Names []string

	// What is wrong with the money: "", unknown_asset, unparseable_amount or
	// asset_mismatch, and the sentence about it. Intent.Amount is then empty.
	MoneyRule, MoneyDetail string
	Symbol                 string // of the asset, "" when it has none
	Decimals               int
	Network                string // CAIP-2, "" when not known
	Scheme                 string // of the offer
	Warnings               []string
}

// The decisions.
const (
	Allow  = "allow"
	Review = "review"
	Block  = "block"
)

// Verdict answers a Request. Details are clean text for people.
type Verdict struct {
	Decision string
	Reasons  []decision.Reason // in table order; the last is always history
	ReviewID string
	Hold     *Hold
	Handoff  *Handoff
	Warnings []string
	Shadow   []decision.Reason // limits in shadow mode that would have fired
	Checked  decision.Checked

	// Redeems is the review whose approval an allow uses up, "" for none.
	Redeems string
	// Fired holds Reasons as they were before an approval waived any: what a
	// review that is opened now has to show, so that one approval covers it all.
	Fired    []decision.Reason
	blocks   map[string]bool // the rules among Fired that block
	noReview bool
}

// Hold is a reservation as its owner sees it.
type Hold struct {
	ID        string
	Amount    string // display units
	Asset     string // asset key
	ExpiresAt time.Time
}

// Handoff says where a person decides.
type Handoff struct {
	Kind        string // command, url
	Target      string
	Instruction string
}

// ReviewView is a review as agents and people see it.
type ReviewView struct {
	ID           string
	Status       string // pending, approved, rejected, expired, used, revoked
	CreatedAt    time.Time
	DecidedAt    time.Time // zero: not decided
	Note         string
	Counterparty string // as shown
	Amount       string // display units
	Asset        string // as shown
	Template     string
	Reasons      []decision.Reason
	Names        []string
	PayTo        string
	Resource     string
	Network      string
	AskedBy      string
	DecidedBy    string // "unsigned (could be the agent)" where no key signed it
	ExpiresAt    time.Time
	Handoff      *Handoff // while pending
	Facts        []decision.Fact
	Used         *decision.UsedBy
	Warnings     []string
	Call         *decision.Call // of a tool call; nil for a payment
}

// ReviewQuery asks for reviews, newest first.
type ReviewQuery struct {
	Status string // "" = all
	Limit  int    // 0 means 50
	Cursor string
}

// ReviewPage is one page of reviews.
type ReviewPage struct {
	Reviews    []ReviewView
	NextCursor string
	// Suggestion is a sentence when most checks would be reviews only because of
	// the past; "" otherwise.
	Suggestion string
}

// Decision is what a person decides about reviews, all or none.
type Decision struct {
	IDs      []string // whole or shortened to 8 or more characters
	Decision string   // approved, rejected, revoked, reopened
	Note     string
	Freeze   bool // with a rejection: also freeze the counterparty
	Signer   decision.Signer
}

// HeadroomQuery asks what the limits leave.
type HeadroomQuery struct {
	Counterparty, Asset string // "" for none, for the default asset
}

// Headroom is what the limits leave of one asset.
type Headroom struct {
	Asset  string // asset key
	Limits []HeadroomLimit
}

// HeadroomLimit is one limit. Amounts are in display units; a limit of counts has
// whole numbers of payments in their place and Counts set.
type HeadroomLimit struct {
	Name, Scope                  string
	Limit, Spent, Held, Headroom string
	Counts                       bool
	Uncounted                    int64 // payments that cannot be added up: Spent and Headroom leave them out
	WindowHours                  int
	FreesUp                      []FreesUp // the next three
}

// FreesUp is when a payment leaves the window.
type FreesUp struct {
	At     time.Time
	Amount string
}

// HoldView is an active hold for people.
type HoldView struct {
	Hold
	Counterparty string
	HeldAt       time.Time
	Actor        string
	ReviewID     string
}

// Resolution is what a person found out about an operation.
type Resolution struct {
	Ref     decision.Ref
	Outcome string // settled, failed
	Amount  string // display units of the operation's asset; "" keeps the trace's
	Time    string // RFC 3339; "" keeps the trace's
	Note    string
	Shown   Shown // what the person saw; refused where there is more by now
	Signer  decision.Signer
}

// Shown is what payments an operation had when a person was shown it. Two are equal
// unless it was paid again.
type Shown struct {
	Payments int64
	Newest   int64 // unix milliseconds; the greatest integer where a time is unreadable
}

// OpenQuery chooses operations for a resolution in bulk.
type OpenQuery struct {
	Blind        bool // only blind ones; else open ones, blind or not
	Run          string
	Counterparty string
	Before       time.Time // zero: any
}

// OpenOperation is an operation whose money is not accounted for.
type OpenOperation struct {
	Ref          decision.Ref
	Counterparty string // canonical, "" unknown
	Amount       string // atomic units, "" unknown
	Asset        string
	At           time.Time // zero: unreadable
	Blind        bool
	Shown        Shown
}

// DamageItem is damage of a run that counts until it is acknowledged.
type DamageItem struct {
	Run     string
	Line    int64 // 0: not of one line
	Offset  int64
	Reason  string
	Faults  int64
	Through int64 // what an acknowledgement would cover
	// Rewritten: bytes that were indexed vanished or changed; Removed: all of them.
	Rewritten, Removed bool
}

// Rewrite says that bytes that were indexed vanished or changed.
type Rewrite struct {
	Run          string
	Covered      int64
	EventsBefore int64
	EventsAfter  int64
	How          string // shrunk, replaced, edited, removed
}

// Standing is what status and doctor show of the guard.
type Standing struct {
	Ready       string // "" when it can judge; else why not
	Policy      string // resolved path, "" for the defaults
	PolicyHash  string
	Log         string // path
	Lines       int64
	Unsound     string // "" when the log verifies
	Torn        bool   // the log ends in a part of a line
	Frozen      []decision.Frozen
	Pending     int // reviews
	Holds       int
	Open        int // operations that count as open
	Damaged     int // runs with damage that is not acknowledged
	Operators   []decision.Operator
	OtherPolicy bool   // the log's last policy line names another policy
	LoggedPath  string // of that line
	Suggestion  string // as in ReviewPage
}
