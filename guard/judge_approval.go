package guard

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// waiver reports whether what a rule sees now is no more than what it showed in the
// review o, where its reason was then.
type waiver func(q *question, o *decision.Opened, now, then decision.Reason) bool

// covers reports whether a review listed a rule and showed all that it sees now.
func (q *question) covers(o *decision.Opened, waives waiver, now decision.Reason) bool {
	if !q.sameListing(o) {
		return false
	}
	i := slices.IndexFunc(o.Reasons, func(r decision.Reason) bool { return r.Rule == now.Rule })
	return i >= 0 && waives(q, o, now, o.Reasons[i])
}

// byName: the rule looks at nothing that the same intent and policy can change.
func byName(*question, *decision.Opened, decision.Reason, decision.Reason) bool { return true }

// byWords: the reason says the same, word for word. A refusal that came later names
// another review, or another time.
func byWords(_ *question, _ *decision.Opened, now, then decision.Reason) bool {
	return now.Detail == then.Detail
}

// byEvidence: no operation that was not shown, and none that was paid again since.
// Where the list is cut, what is newer comes first, the total may not grow, and no
// operation may have come: it could stand below the cut in the place of another.
func byEvidence(q *question, o *decision.Opened, now, then decision.Reason) bool {
	if max(now.Total, len(now.Evidence)) > max(then.Total, len(then.Evidence)) {
		return false
	}
	if now.Total > len(now.Evidence) && !byTotals(q, o, decision.Reason{Rule: allOperations}, then) {
		return false
	}
	for _, r := range now.Evidence {
		if n, shown := madeBy(q.f.Made, r), madeBy(o.Made, r); n.Payments > shown.Payments || n.Payments > 0 && newest(n) > newest(shown) {
			return false
		}
	}
	return !slices.ContainsFunc(now.Evidence, func(r decision.Ref) bool {
		return !slices.ContainsFunc(then.Evidence, func(s decision.Ref) bool { return sameRef(r, s) })
	})
}

func madeBy(all []decision.Made, r decision.Ref) decision.Made {
	for _, m := range all {
		if sameRef(m.Ref, r) {
			return m
		}
	}
	return decision.Made{}
}

// newest is when the last payment was made; one whose time cannot be read may be later
// than any.
func newest(m decision.Made) int64 {
	if m.Newest == nil {
		return math.MaxInt64
	}
	return *m.Newest
}

func sameRef(a, b decision.Ref) bool {
	return a.Run == b.Run && (a.Operation == nil) == (b.Operation == nil) &&
		(a.Operation == nil || *a.Operation == *b.Operation)
}

// byTotals: spent, held and counted no more than was shown.
func byTotals(q *question, o *decision.Opened, now, _ decision.Reason) bool {
	counted, found := q.counted(now.Rule), false
	for _, then := range o.Shown {
		if then.Rule != now.Rule {
			continue
		}
		found = true
		for _, n := range counted {
			if n.Count > then.Count || n.Unreadable > then.Unreadable || more(n.Spent, then.Spent) || more(n.Held, then.Held) {
				return false
			}
		}
	}
	return found && len(counted) > 0
}

// more reports whether a is more than b, or that this cannot be told.
func more(a, b string) bool {
	_, okA := payment.Amount(a)
	_, okB := payment.Amount(b)
	return !okA || !okB || payment.Cmp(a, b) > 0
}

// byDamage: no damage that was not among the facts that were shown. Of more than fits
// among them a person was not shown all.
func byDamage(q *question, o *decision.Opened, now, _ decision.Reason) bool {
	if q.f.DamageCut || !byTotals(q, o, now, now) {
		return false
	}
	return !slices.ContainsFunc(q.f.Damage, func(d DamageItem) bool {
		return !slices.Contains(o.Facts, damageFact(d))
	})
}

func damageFact(d DamageItem) decision.Fact {
	return decision.Fact{Name: "damage", Value: damageText(d), Origin: fromTrace}
}

// counted is what a rule of totals has counted: its line in an opened review, and
// what a later question compares with that line.
func (q *question) counted(rule string) []decision.Shown {
	switch name, isLimit := strings.CutPrefix(rule, "limit:"); {
	case rule == "per_counterparty_limit":
		return []decision.Shown{tally(rule, q.f.Window)}
	case rule == allOperations:
		return []decision.Shown{{Rule: rule, Spent: "0", Held: "0", Count: int(q.f.Full + q.f.Partial)}}
	case rule == "spend_gate":
		return []decision.Shown{{Rule: rule, Spent: "0", Held: "0", Unreadable: int(q.f.GateUnreadable)}}
	case rule == "damaged_history":
		return []decision.Shown{{Rule: rule, Spent: "0", Held: "0", Count: q.damaged()}}
	case isLimit:
		var all []decision.Shown
		for i, l := range q.p.Limits {
			if l.Name != name || i >= len(q.f.Limits) {
				continue
			}
			w := q.f.Limits[i]
			if l.Atomic == "" { // it limits counts only
				w.Spent, w.Held = "0", "0"
			}
			all = append(all, tally(rule, w))
		}
		return all
	}
	return nil
}

// allOperations is what stands in the place of a rule where it was shown how many
// operations with the counterparty there are in all.
const allOperations = "history"

func tally(rule string, w Window) decision.Shown {
	return decision.Shown{Rule: rule, Spent: w.Spent, Held: w.Held, Count: int(w.Count + w.Holds), Unreadable: int(w.Unreadable)}
}

func (q *question) approved(o *decision.Opened, waived []string) decision.Reason {
	return decision.Reason{Rule: "approved_by_human", Detail: fmt.Sprintf("a person was shown %s and approved %s to %s in review %s; an approval is good for one payment",
		strings.Join(waived, ", "), q.asked(), q.who(), plain.Clean(o.ReviewID, plain.Detail))}
}

// Where facts come from (guard contract, section 4).
const (
	fromAgent  = "agent"
	fromTrace  = "trace"
	fromPolicy = "policy"
	fromMarket = "market" // an instance said so, of what a stranger posted
	fromLog    = "log"    // the decisions log holds it
)

// Opening is what a review that is opened for a verdict shows beside its reasons,
// which are v.Fired: the facts for people, and what the rules that fired had counted.
// A later approval waives up to these. Where v.NoReview there is nothing to open.
func Opening(p *Policy, f *Facts, r *Record, a *Ask, v *Verdict) (facts []decision.Fact, all []decision.Shown) {
	q := &question{p: p, f: f, r: r, a: a}
	for _, reason := range v.Fired { // history, whose count only evidence that is cut needs, stands last
		if reason.Rule != allOperations || slices.ContainsFunc(v.Fired, func(r decision.Reason) bool { return r.Total > 0 }) {
			all = append(all, q.counted(reason.Rule)...)
		}
	}
	say := func(origin, name, value string) {
		if value = plain.Clean(value, plain.Explanation); value != "" {
			facts = append(facts, decision.Fact{Name: name, Value: value, Origin: origin})
		}
	}
	named := fromAgent
	if a.Listing != nil {
		named = fromMarket
	}
	say(named, "counterparty", q.name())
	say(fromAgent, "pay_to", payment.Display(a.PayTo))
	say(fromAgent, "host", payment.Display(a.Host))
	say(fromAgent, "resource", a.Intent.Resource)
	say(fromAgent, "amount", q.asked())
	origin := fromAgent
	if a.Asset == "" && len(a.Offer) == 0 {
		origin = fromPolicy
	}
	say(origin, "asset", a.Intent.Asset)
	say(origin, "network", a.Network)
	say(fromAgent, "scheme", a.Scheme)
	say(fromAgent, "template", a.Template)
	q.listingFacts(say)
	for _, name := range a.Names {
		named := slices.Contains(a.Typed, name) || name == a.PayTo || name == a.Host
		if _, alias := p.Aliases[name]; alias && !named {
			say(fromPolicy, "alias", payment.Display(name))
		}
	}

	say(fromTrace, "operations", fmt.Sprintf("%d (%d full, %d partial)", f.Full+f.Partial, f.Full, f.Partial))
	say(fromTrace, "open", strconv.Itoa(f.Open.total()))
	say(fromTrace, "blind", strconv.FormatInt(f.Blind, 10))
	limit, capped := q.cap()
	if capped {
		window := " " + last(limit.WindowHours)
		say(fromTrace, "spent", q.money(f.Window.Spent)+window)
		say(fromLog, "held", q.money(f.Window.Held)+window)
	}
	if n := f.PayeeChanged.total(); n > 0 {
		say(fromTrace, "paid_elsewhere", several(n, "operation with this host", "operations with this host"))
	}
	if prices := f.Prices[:min(len(f.Prices), maxPrices)]; len(prices) >= minPrices && capped {
		if twice, err := twiceMedian(prices); err == nil {
			say(fromTrace, "usual_price", q.half(twice))
		}
	}
	if slices.ContainsFunc(v.Fired, func(r decision.Reason) bool { return r.Rule == "damaged_history" }) {
		for _, d := range f.Damage[:min(len(f.Damage), maxEvidence)] {
			facts = append(facts, damageFact(d))
		}
	}

	if capped {
		_, above, _ := p.CapOf(a.Intent.Asset)
		say(fromPolicy, "per_counterparty_limit", q.money(limit.Atomic)+" in "+hours(limit.WindowHours))
		say(fromPolicy, "review_above", q.money(above))
	}
	return facts, all
}
