package payment

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/settlewatch/settlewatch/ingest/event"
)

// LinkPayment is a payment that an answer of another operation may claim.
type LinkPayment struct {
	Key            event.Key
	AtMS           int64
	AtOK           bool
	Resource, Tool string
	// Accepts are the terms it may have been made on: its own, or every entry
	// of the offer where it was only requested.
	Accepts   []Terms
	Ambiguous bool
	// Answered by an answer of its own operation; Link passes over it.
	Answered bool
	// Claimed: a link that is kept from an earlier call of Link holds this
	// payment, by an answer of the operation ClaimedBy (empty: of none).
	Claimed   bool
	ClaimedBy string
	// For LinkByTransaction only: the run it is in, and every hash that the
	// events of its operation name.
	Run          string
	Transactions []string
}

// LinkAnswer is an answer that has no payment in its own operation, or has no
// operation at all.
type LinkAnswer struct {
	Key                  event.Key
	AtMS                 int64
	AtOK                 bool
	Payee, Asset, Amount string
	Resource, Tool       string
	Transaction          string
	Ambiguous            bool
	// Op is the id of its operation, any text that tells the operations of the
	// run apart, empty when it has none. All answers of one operation are about
	// one payment.
	Op string
	// Run is for LinkByTransaction only.
	Run string
}

// Pair links payments[Payment] and answers[Answer] of a call.
type Pair struct{ Payment, Answer int }

const (
	defaultTimeoutMS = 300_000 // max_timeout_seconds where it is unknown
	graceMS          = 60_000
)

// Candidate is the payment as Link looks at it. Offers and settlements alone are
// none: they are never claimed.
func (p *Payment) Candidate() (c LinkPayment, ok bool) {
	if p.Status != SubmittedPayment && p.Status != RequestedPayment {
		return LinkPayment{}, false
	}
	c = LinkPayment{
		Key: p.Key, AtMS: p.AtMS, AtOK: p.AtOK, Resource: p.Resource, Tool: p.Tool,
		Accepts: p.Accepts, Ambiguous: p.Ambiguous, Answered: p.Answered,
	}
	if len(c.Accepts) == 0 {
		c.Accepts = []Terms{p.Terms}
	}
	return c, true
}

// Candidate is the answer of an operation as Link looks at it.
func (a *Answer) Candidate(op string) LinkAnswer {
	return LinkAnswer{
		Key: a.Key, AtMS: a.AtMS, AtOK: a.AtOK, Payee: a.Payee, Asset: a.Asset, Amount: a.Amount,
		Resource: a.Resource, Tool: a.Tool, Transaction: a.Transaction, Ambiguous: a.Ambiguous, Op: op,
	}
}

// Until is the last instant at which an answer can claim or be kept from a link
// by this payment.
func (p *LinkPayment) Until() int64 {
	if !p.AtOK {
		return math.MaxInt64
	}
	until := p.AtMS
	for i := range p.Accepts {
		until = max(until, p.AtMS+p.Accepts[i].window())
	}
	return until
}

// window is how long after the payment an answer may come.
func (t *Terms) window() int64 {
	if t.TimeoutMS < 0 {
		return defaultTimeoutMS + graceMS
	}
	return t.TimeoutMS + graceMS
}

// Link pairs answers with payments of other operations of one run (trace
// contract, section 12.8). Walking in contract order, each answer, success or
// failure, claims the one payment before it that is unanswered in its own
// operation, unclaimed by an earlier answer, made on the answer's payee, asset
// (which holds the network) and amount, for the same thing, and at most its
// timeout and a minute before. With two or more there is no link. The pairs come
// in the order of the answers and do not depend on the order of the slices.
//
// Where the contract leaves room, the reading is the one that links less:
//
//   - The same thing is the same resource, or the same tool where one of the two
//     names no resource; a resource or tool that differs is never the same.
//   - A payment that fits but is ambiguous or has no readable time is never
//     claimed, and keeps others from being the only one. An ambiguous answer, or
//     one without a readable time, claims nothing.
//   - Answers of one operation are about one payment: once one of them has
//     claimed, the others join that link where they fit it and claim no other.
//
// What a link depends on lies before its answer: payments with a key not above
// the answer's, and the claims of earlier answers. So when payments or answers
// appear, change or go, and k is the lowest key of any of them, old or new, the
// links of answers below k stay as they are. It is enough to call Link with the
// answers from k on, the payments whose Until is not before the first of these,
// and the payments that kept links hold for operations with answers among them;
// Claimed marks those that kept links hold.
func Link(payments []LinkPayment, answers []LinkAnswer) []Pair {
	if len(payments) == 0 || len(answers) == 0 {
		return nil
	}
	l := linker{
		payments: payments,
		answers:  answers,
		claimed:  make([]bool, len(payments)),
		bound:    make(map[string]int),
		index:    make(map[linkKey][]int),
	}
	return l.run()
}

type linker struct {
	payments []LinkPayment
	answers  []LinkAnswer
	claimed  []bool
	bound    map[string]int    // the payment an operation's answers are about
	index    map[linkKey][]int // payments seen so far, in contract order
}

// linkKey is what payment and answer must share. kind keeps the ways to be the
// same thing apart.
type linkKey struct {
	payee, asset, amount, thing string
	kind                        thingKind
}

type thingKind uint8

const (
	byResource thingKind = iota
	byTool               // a payment that names a resource, for answers that name none
	byToolOnly           // a payment that names no resource
)

func (l *linker) run() []Pair {
	payments := make([]int, 0, len(l.payments))
	for i := range l.payments {
		p := &l.payments[i]
		if p.Answered {
			continue
		}
		payments = append(payments, i)
		if p.Claimed {
			l.claimed[i] = true
			if p.ClaimedBy != "" {
				l.bound[p.ClaimedBy] = i
			}
		}
	}
	slices.SortFunc(payments, func(a, b int) int { return l.payments[a].Key.Compare(l.payments[b].Key) })
	answers := make([]int, len(l.answers))
	for i := range answers {
		answers[i] = i
	}
	slices.SortFunc(answers, func(a, b int) int { return compareLinkAnswers(&l.answers[a], &l.answers[b]) })

	// rest is the earliest instant from each answer on. Contract order compares
	// times as text, so instants need not rise with it.
	rest := make([]int64, len(answers))
	least := int64(math.MaxInt64)
	for i := len(answers) - 1; i >= 0; i-- {
		if a := &l.answers[answers[i]]; a.AtOK {
			least = min(least, a.AtMS)
		}
		rest[i] = least
	}

	var pairs []Pair
	seen := 0
	for i, at := range answers {
		a := &l.answers[at]
		for seen < len(payments) && l.payments[payments[seen]].Key.Compare(a.Key) <= 0 {
			l.add(payments[seen])
			seen++
		}
		if p := l.claim(a, rest[i]); p >= 0 {
			pairs = append(pairs, Pair{Payment: p, Answer: at})
		}
	}
	return pairs
}

// compareLinkAnswers orders by contract order and, for answers alike in it, by
// content, so that the order of the input is forgotten.
func compareLinkAnswers(a, b *LinkAnswer) int {
	if c := a.Key.Compare(b.Key); c != 0 {
		return c
	}
	return cmp.Or(
		strings.Compare(a.Op, b.Op),
		strings.Compare(a.Payee, b.Payee), strings.Compare(a.Asset, b.Asset), strings.Compare(a.Amount, b.Amount),
		strings.Compare(a.Resource, b.Resource), strings.Compare(a.Tool, b.Tool),
		strings.Compare(a.Transaction, b.Transaction), compareBool(a.Ambiguous, b.Ambiguous))
}

// add makes a payment known to the answers after it.
func (l *linker) add(i int) {
	p := &l.payments[i]
	if l.claimed[i] {
		return
	}
	for j := range p.Accepts {
		t := &p.Accepts[j]
		put := func(kind thingKind, thing string) {
			if thing == "" {
				return
			}
			k := linkKey{t.Payee, t.Asset, t.Amount, thing, kind}
			if list := l.index[k]; len(list) == 0 || list[len(list)-1] != i {
				l.index[k] = append(list, i)
			}
		}
		switch {
		case t.Payee == "" || t.Asset == "" || t.Amount == "":
		case p.Resource != "":
			put(byResource, p.Resource)
			put(byTool, p.Tool)
		default:
			put(byToolOnly, p.Tool)
		}
	}
}

// claim is the payment the answer is linked to, -1 for none. No answer from this
// one on comes before the instant rest.
func (l *linker) claim(a *LinkAnswer, rest int64) int {
	if a.Ambiguous || !a.AtOK || a.Payee == "" || a.Asset == "" || a.Amount == "" {
		return -1
	}
	if a.Op != "" {
		if i, ok := l.bound[a.Op]; ok {
			if l.payments[i].fit(a) == fits {
				return i
			}
			return -1
		}
	}
	found, count := -1, 0
	look := func(kind thingKind, thing string) {
		if thing == "" {
			return
		}
		k := linkKey{a.Payee, a.Asset, a.Amount, thing, kind}
		list := l.index[k]
		gone := 0
		for n := len(list) - 1; n >= 0 && count < 2; n-- {
			i := list[n]
			if l.gone(i, rest) {
				gone++
				continue
			}
			switch l.payments[i].fit(a) {
			case fits:
				found = i
				count++
			case blocks:
				count = 2
			}
		}
		if gone > 16 && gone > len(list)/2 {
			// Each payment is dropped once, so the walk stays linear.
			l.index[k] = slices.DeleteFunc(list, func(i int) bool { return l.gone(i, rest) })
		}
	}
	if a.Resource != "" {
		look(byResource, a.Resource)
	} else {
		look(byTool, a.Tool)
	}
	look(byToolOnly, a.Tool)
	if count != 1 {
		return -1
	}
	l.claimed[found] = true
	if a.Op != "" {
		l.bound[a.Op] = found
	}
	return found
}

// gone reports whether no answer to come can be about the payment.
func (l *linker) gone(i int, rest int64) bool {
	return l.claimed[i] || l.payments[i].Until() < rest
}

type fit uint8

const (
	differs fit = iota
	fits
	blocks // it may be the one, but must not be claimed
)

// fit says whether an answer may be about the payment.
func (p *LinkPayment) fit(a *LinkAnswer) fit {
	same := p.Resource == a.Resource && a.Resource != ""
	if p.Resource == "" || a.Resource == "" {
		same = p.Tool == a.Tool && a.Tool != ""
	}
	if !same || p.Tool != "" && a.Tool != "" && p.Tool != a.Tool || p.Key.Compare(a.Key) > 0 {
		return differs
	}
	named, inTime := false, false
	for i := range p.Accepts {
		t := &p.Accepts[i]
		if t.Payee == a.Payee && t.Asset == a.Asset && t.Amount == a.Amount {
			named = true
			inTime = inTime || p.AtMS <= a.AtMS && a.AtMS-p.AtMS <= t.window()
		}
	}
	switch {
	case !named:
		return differs
	case !p.AtOK:
		return blocks
	case !inTime:
		return differs
	case p.Ambiguous:
		return blocks
	}
	return fits
}

// LinkByTransaction pairs answers with payments of other runs: of the same payee,
// asset and network, and of an operation whose own events name the answer's
// transaction (trace contract, section 12.8). Answers that Link has paired are
// not to be passed. Where several payments fit there is no link; several answers
// may share a payment, since they report one settlement. It does not depend on
// the order of the slices, and each answer's link on no other answer.
func LinkByTransaction(payments []LinkPayment, answers []LinkAnswer) []Pair {
	index := make(map[string][]int)
	for i := range payments {
		for _, tx := range payments[i].Transactions {
			if list := index[tx]; len(list) == 0 || list[len(list)-1] != i {
				index[tx] = append(list, i)
			}
		}
	}
	var pairs []Pair
	for i := range answers {
		a := &answers[i]
		if a.Transaction == "" || a.Ambiguous || a.Payee == "" || a.Asset == "" {
			continue
		}
		found, count := -1, 0
		for _, j := range index[a.Transaction] {
			p := &payments[j]
			if p.Run == a.Run || !slices.ContainsFunc(p.Accepts, func(t Terms) bool { return t.Payee == a.Payee && t.Asset == a.Asset }) {
				continue
			}
			found = j
			count++
			if p.Ambiguous {
				count++
			}
		}
		if count == 1 {
			pairs = append(pairs, Pair{Payment: found, Answer: i})
		}
	}
	return pairs
}
