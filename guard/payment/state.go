package payment

import (
	"cmp"
	"slices"
	"strings"

	"github.com/settlewatch/settlewatch/ingest/event"
)

// Status says what is known of a payment.
type Status uint8

// The statuses.
const (
	// Offered: terms are known from an offer alone.
	Offered Status = iota
	// Named: terms were chosen or answered, but no payment was seen.
	Named
	// RequestedPayment: a paid tool call was about to be made.
	RequestedPayment
	// SubmittedPayment: a payment was signed.
	SubmittedPayment
	// SettledAlone: a settlement that no payment of the operation explains. It
	// counts as a payment of its own.
	SettledAlone
)

// Payment is one possible payment of an operation (guard contract, section 1,
// "Spent"), or in Summary.Offers the terms of one that was not made. Empty text
// is unknown. A payment whose Amount or Asset is empty, that has no readable
// time, or that is Ambiguous, cannot be summed: Readable is false for it.
type Payment struct {
	Status Status
	Key    event.Key // of the money-stage event, else of the settlement
	AtMS   int64     // its occurred_at as an instant
	AtOK   bool      // that could be read
	// Terms hold what counts as spent: Amount is the larger of what was
	// authorised and what was settled.
	Terms
	// Payees and Hosts are every name the payment counts with, sorted. They
	// hold more than one name where the trace leaves open who was paid.
	Payees, Hosts []string
	Host          string // name of the resource's host
	Resource      string // as Resource gives it
	Tool          string
	// Settled is what an answer said was taken. It may be believed when it is
	// smaller than Amount, Scheme is upto and the policy trusts sellers.
	Settled     string
	Transaction string
	// Paired: a settlement was reported for it, by an answer of its own
	// operation or a linked one.
	Paired bool
	// Answered: an answer of its own operation, success or failure, is about
	// it. Such a payment is never linked (trace contract, section 12.8).
	Answered  bool
	Ambiguous bool
	Version1  bool
	// Accepts are the entries of the offer a Requested payment was made on.
	Accepts []Terms

	answeredBy verdict
}

// Readable reports whether the payment can be summed.
func (p *Payment) Readable() bool {
	return p.Amount != "" && p.Asset != "" && p.AtOK && !p.Ambiguous
}

// verdict is how a payment was answered, its linked answers included.
type verdict uint8

const (
	unanswered verdict = iota
	settled
	doubted  // a settlement that cannot be believed
	failed   // unclear failure
	declined // definite failure
)

// Answer is an answer to a payment: a reported settlement or a failure. Its
// Terms are the requirements the answer names; Amount is what was authorised.
type Answer struct {
	Key  event.Key
	AtMS int64
	AtOK bool
	Terms
	Host, Resource, Tool string
	Settled              string // what it says was taken; empty when that cannot be read
	Transaction          string
	Success              bool // a settlement was reported
	// Doubtful: it may be a settlement and must not close anything.
	Doubtful bool
	// Unproven: an x402.payment.responded without a settlement. The receipt's
	// stage counts it, the guard does not (guard contract, "Settlement states").
	Unproven  bool
	Decline   bool // a failure whose whole reason is a named decline
	Ambiguous bool
	// SettledAsset is Asset, but for an answer whose settlement names another
	// network than its requirements.
	SettledAsset string
}

// Outside is what an operation's own events do not say.
type Outside struct {
	// Linked are answers recorded elsewhere that belong to payments of this
	// operation.
	Linked []Answer
	// LinkedAway are the keys of this operation's answers that belong to
	// payments of other operations: those halves count there.
	LinkedAway []event.Key
	// NoResponseHook: the operation belongs to a session that Attestation
	// called blind.
	NoResponseHook bool
}

// The words of a settlement state (guard contract, "Settlement states").
// WordOpen stands for the two that depend on the clock; SettlementAt turns it
// into one of them.
const (
	WordSettled = "settled"
	WordFailed  = "failed"
	WordUnknown = "unknown"
	WordPending = "pending"
	WordNone    = "none"
	WordOpen    = "open"
)

// The reasons for which an operation is blind (trace contract, section 12.9).
const (
	BlindVersion1       = "version_1"
	BlindSolana         = "solana"
	BlindNoResponseHook = "no_response_hook"
)

// Summary is what an operation says about money.
type Summary struct {
	Side       Side
	MoneyStage bool // money has moved or is committed, by the side's stage roles
	Open       bool // and no settlement closes it
	// Settlement is a word that does not depend on the clock; see SettlementAt.
	Settlement   string
	PendingUntil int64  // ms; until then an open operation is pending; 0 when it is not
	Blind        string // reason, empty when it can see or was answered
	// DefiniteFailure: one payment, no transaction, and a named decline (guard
	// contract, section 1, trustDefiniteFailures).
	DefiniteFailure bool
	Ambiguous       bool // a fact is ambiguous: the operation cannot be summed
	Payments        []Payment
	Offers          []Payment // when there is no payment: what was offered, by payee
	Answers         []Answer  // when there is no payment made here: answers that look for one
	Names           []string  // every payee and host, sorted
	Transactions    []string  // every hash its own events name, sorted

	// For display, of the first payment, else answer, else offer. Amount is the
	// sum over the operation's payments to that payee in that asset; empty when
	// it cannot be told. Payee and Host are names (see Display).
	Payee, Host, Resource, Tool, Asset, Amount string
}

// SettlementAt is the settlement state at an instant: settled, failed, unknown,
// pending or none.
func (s *Summary) SettlementAt(nowMS int64) string {
	switch {
	case s.Settlement != WordOpen:
		return s.Settlement
	case nowMS < s.PendingUntil:
		return WordPending
	}
	return WordUnknown
}

// State folds the facts of one operation. The order of Add does not matter. The
// zero State is empty and ready.
type State struct {
	facts []Fact
}

// Add takes one event's fact into account. Every event counts, a repeated
// event_id too (trace contract, section 3).
func (s *State) Add(f Fact) {
	if s.facts == nil {
		// A purchase that all three sides witness has as many events that
		// speak of money.
		s.facts = make([]Fact, 0, 9)
	}
	s.facts = append(s.facts, f)
}

// Merge takes every fact of another state into account, which must not be used
// afterwards.
func (s *State) Merge(o *State) {
	if len(s.facts) == 0 {
		s.facts = o.facts
		return
	}
	s.facts = append(s.facts, o.facts...)
}

// Len is the number of facts.
func (s *State) Len() int { return len(s.facts) }

// Reset empties the state and keeps its memory.
func (s *State) Reset() {
	clear(s.facts)
	s.facts = s.facts[:0]
}

// sort puts the facts into contract order, full ties by content: equal facts are
// interchangeable, so the order of Add is forgotten.
func (s *State) sort() {
	f := s.facts
	for i := 1; i < len(f); i++ {
		if compareFacts(&f[i-1], &f[i]) > 0 {
			slices.SortFunc(f, func(a, b Fact) int { return compareFacts(&a, &b) })
			return
		}
	}
}

func compareFacts(a, b *Fact) int {
	if c := a.key.Compare(b.key); c != 0 {
		return c
	}
	return cmp.Or(
		cmp.Compare(a.kind, b.kind),
		cmp.Compare(a.side, b.side),
		compareBool(a.version1, b.version1),
		compareBool(a.ambiguous, b.ambiguous),
		strings.Compare(a.tool, b.tool),
		comparePointers(a.res, b.res, func(a, b *resource) int {
			return cmp.Or(strings.Compare(a.url, b.url), strings.Compare(a.host, b.host))
		}),
		comparePointers(a.terms, b.terms, compareTerms),
		comparePointers(a.offers, b.offers, func(a, b *offers) int {
			return slices.CompareFunc(a.list, b.list, compareTerms)
		}),
		comparePointers(a.out, b.out, func(a, b *outcome) int {
			return cmp.Or(
				compareBool(a.success, b.success), compareBool(a.refused, b.refused),
				strings.Compare(a.settled, b.settled), compareBool(a.unreadable, b.unreadable),
				strings.Compare(a.network, b.network), strings.Compare(a.transaction, b.transaction),
				cmp.Compare(a.reason, b.reason))
		}),
		comparePointers(a.named, b.named, func(a, b *named) int {
			return cmp.Or(slices.Compare(a.payees, b.payees), slices.Compare(a.hosts, b.hosts))
		}),
	)
}

func compareTerms(a, b *terms) int {
	return cmp.Or(
		strings.Compare(a.Payee, b.Payee), strings.Compare(a.Network, b.Network),
		strings.Compare(a.Asset, b.Asset), strings.Compare(a.Scheme, b.Scheme),
		strings.Compare(a.Amount, b.Amount), cmp.Compare(a.TimeoutMS, b.TimeoutMS),
		compareBool(a.NetworkKnown, b.NetworkKnown))
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func comparePointers[T any](a, b *T, compare func(a, b *T) int) int {
	switch {
	case a == b:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return compare(a, b)
}
