package guard

import (
	"math/big"
	"slices"
	"time"

	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/store"
)

// This file holds what was spent and held in windows of time (guard contract, sections
// 1, 2 and 5).

// windows sums up what was spent and held.
func (q *gathering) windows() error {
	p := q.g.policy
	limit, _, capped := p.CapOf(q.ask.Intent.Asset)
	longest := p.PerCounterparty.WindowHours // what cannot be read is looked for in any asset
	if capped {
		longest = limit.WindowHours
	}
	for i := range p.Limits {
		// A limit in shadow mode decides nothing, so it makes nobody look further back.
		if l := &p.Limits[i]; (l.Scope == "counterparty" || l.Scope == "host") && l.Mode != "shadow" && q.about(l) {
			longest = max(longest, l.WindowHours)
		}
	}
	own := func(in *decision.Intent) bool { return shares(p.Expand(in.Names...), q.ask.Names) }
	if capped {
		spent, err := q.spending(spendingKey{"counterparty", limit.WindowHours}, q.names)
		if err != nil {
			return err
		}
		q.f.Window = q.window(spent, q.asset, limit.WindowHours)
		q.held(&q.f.Window, q.ask.Intent.Asset, own)
		q.f.Window.Applies = true
	}
	spent, err := q.spending(spendingKey{"counterparty", longest}, q.names)
	if err != nil {
		return err
	}
	if err := q.doubts(spent.rows, longest); err != nil {
		return err
	}
	q.f.Limits = make([]Window, len(p.Limits))
	for i := range p.Limits {
		if q.f.Limits[i], err = q.limit(&p.Limits[i], own); err != nil {
			return err
		}
	}
	return nil
}

// spending is what was spent in a window: the payments in the asset asked about that
// count as they stand, as sums, and the others as they count.
type spending struct {
	sums []store.Sum
	rows []weighed // oldest first
}

// spendingKey says whose payments and of how many hours.
type spendingKey struct {
	scope string
	hours int
}

// spending gives what was spent under names.
func (q *gathering) spending(k spendingKey, names []int64) (*spending, error) {
	if s := q.spendings[k]; s != nil {
		return s, nil
	}
	s := &spending{}
	if len(names) > 0 && k.hours > 0 {
		resolved, err := q.resolvedSince(q.since(k.hours))
		if err != nil {
			return nil, err
		}
		found, err := q.v.Spending(names, q.asset, q.since(k.hours), q.now, resolved)
		if err != nil {
			return nil, err
		}
		if s.sums = []store.Sum{found.Plain}; !q.g.policy.TrustDefiniteFailures {
			s.sums = append(s.sums, found.Definite)
		}
		if s.rows, err = q.weighAll(found.Others); err != nil {
			return nil, err
		}
	}
	q.spendings[k] = s
	return s, nil
}

// window sums up what was spent in the asset asked about, or counts it in all assets.
func (q *gathering) window(s *spending, asset int64, hours int) Window {
	since := q.since(hours)
	w := Window{Held: "0"}
	var sum big.Int
	for _, part := range s.sums {
		w.Count += part.Payments
		if asset != store.AnyAsset {
			add(&sum, part.Amount)
		}
	}
	for i := range s.rows {
		p := &s.rows[i]
		if !p.inside(since) || asset != store.AnyAsset && p.Asset != asset {
			continue
		}
		w.Count++
		if asset != store.AnyAsset {
			add(&sum, p.amount)
		}
	}
	w.Spent = sum.String()
	return w
}

func add(sum *big.Int, amount string) {
	if amount == "" {
		return
	}
	var n big.Int
	if _, ok := n.SetString(amount, 10); ok {
		sum.Add(sum, &n)
	}
}

// held adds the active holds of an asset, all of them where asset is "".
func (q *gathering) held(w *Window, asset string, belongs func(*decision.Intent) bool) {
	var sum big.Int
	for _, h := range q.m.active {
		if asset != "" && h.Intent.Asset != asset || !belongs(&h.Intent) {
			continue
		}
		w.Holds++
		if asset != "" {
			add(&sum, h.Intent.Amount)
		}
	}
	w.Held = sum.String()
}

// doubts names what the sums of the counterparty's window had to leave out.
func (q *gathering) doubts(paid []weighed, hours int) error {
	mixed, unreadable := q.leftOut(paid, hours)
	if err := q.evidence(&q.f.Mixed, mixed); err != nil {
		return err
	}
	return q.evidence(&q.f.Unreadable, unreadable)
}

// leftOut gives the payments that the sums of a window leave out, newest first: those in
// assets without a policy of their own, and those that cannot be read.
func (q *gathering) leftOut(paid []weighed, hours int) (mixed, unreadable []store.Paid) {
	since := q.since(hours)
	known := map[int64]bool{}
	for i := len(paid) - 1; i >= 0; i-- { // newest first
		p := &paid[i]
		q.f.FutureTime = q.f.FutureTime || p.hasAt && p.at > q.now
		q.f.UnknownNetwork = q.f.UnknownNetwork || p.Flags&payment.FlagUnknownNetwork != 0
		switch {
		case !p.inside(since):
		case !p.readable:
			unreadable = append(unreadable, *p.Paid)
		case p.Asset == q.asset:
		default:
			own, ok := known[p.Asset]
			if !ok {
				own = q.hasPolicy(p.Asset)
				known[p.Asset] = own
			}
			if !own {
				mixed = append(mixed, *p.Paid)
			}
		}
	}
	return mixed, unreadable
}

// about reports whether a limit is about payments in the asset asked about.
func (q *gathering) about(l *Limit) bool { return l.Asset == "" || l.Asset == q.ask.Intent.Asset }

// hostNames are the names that a limit of scope host is about: the hosts the question
// names, and what the policy says is the same seller.
func (q *gathering) hostNames() []string { return q.g.policy.Expand(q.hosts()...) }

// limit counts what one of limits is about (guard contract, section 2).
func (q *gathering) limit(l *Limit, own func(*decision.Intent) bool) (Window, error) {
	if !q.about(l) {
		return Window{}, nil
	}
	asset := q.asset
	if l.Asset == "" {
		asset = store.AnyAsset
	}
	var w Window
	belongs := own
	switch l.Scope {
	case "counterparty":
		spent, err := q.spending(spendingKey{l.Scope, l.WindowHours}, q.names)
		if err != nil {
			return Window{}, err
		}
		w = q.window(spent, asset, l.WindowHours)
	case "host":
		names := q.hostNames()
		if len(names) == 0 {
			return Window{}, nil
		}
		numbers, err := q.v.WordNumbers(names)
		if err != nil {
			return Window{}, err
		}
		spent, err := q.spending(spendingKey{l.Scope, l.WindowHours}, numbers)
		if err != nil {
			return Window{}, err
		}
		w = q.window(spent, asset, l.WindowHours)
		belongs = func(in *decision.Intent) bool { return shares(q.g.policy.Expand(in.Names...), names) }
	case "resource":
		resource := q.ask.Intent.Resource
		if resource == "" {
			return Window{}, nil
		}
		number, err := q.v.Word(resource)
		if err != nil {
			return Window{}, err
		}
		var rows []weighed
		if number != 0 {
			found, err := q.v.PaymentsFor(number, q.since(l.WindowHours))
			if err != nil {
				return Window{}, err
			}
			if rows, err = q.weighAll(found); err != nil {
				return Window{}, err
			}
		}
		w = q.window(&spending{rows: rows}, asset, l.WindowHours)
		belongs = func(in *decision.Intent) bool { return in.Resource == resource }
		for i := range rows {
			if !rows[i].readable && rows[i].inside(q.since(l.WindowHours)) {
				w.Unreadable++
			}
		}
	default:
		var err error
		if w, err = q.everything(asset, q.since(l.WindowHours)); err != nil {
			return Window{}, err
		}
		belongs = func(*decision.Intent) bool { return true }
	}
	w.Applies = true
	q.held(&w, l.Asset, belongs)
	return w, nil
}

// everything sums up the payments to everybody from kept sums, with what people
// found out taken off and added one by one.
func (q *gathering) everything(asset, since int64) (Window, error) {
	kept, unknown, err := q.v.Window(asset, since)
	if err != nil {
		return Window{}, err
	}
	w := Window{Count: kept.Plain.Payments + kept.Smaller.Payments, Unreadable: kept.Plain.Unreadable + kept.Smaller.Unreadable + kept.Definite.Unreadable}
	var sum big.Int
	add(&sum, kept.Plain.Amount)
	if q.g.policy.TrustSettledAmounts {
		add(&sum, kept.Smaller.Settled)
	} else {
		add(&sum, kept.Smaller.Amount)
	}
	if !q.g.policy.TrustDefiniteFailures {
		w.Count += kept.Definite.Payments
		add(&sum, kept.Definite.Amount)
	}
	if asset != store.AnyAsset {
		w.Unreadable += unknown
	}
	if q.anyResolved {
		if err := q.correct(&w, &sum, asset, since); err != nil {
			return Window{}, err
		}
	}
	w.Spent = sum.String()
	return w, nil
}

// correct replaces what the kept sums hold of resolved operations by what they
// count with.
func (q *gathering) correct(w *Window, sum *big.Int, asset, since int64) error {
	resolved, err := q.resolvedSince(since)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(resolved, 500) {
		rows, err := q.v.PaymentsOfOperations(chunk)
		if err != nil {
			return err
		}
		for i := range rows {
			q.kept(w, sum, &rows[i], asset, since)
		}
		counted, err := q.weighAll(rows)
		if err != nil {
			return err
		}
		for i := range counted {
			p := &counted[i]
			if !p.inside(since) || asset != store.AnyAsset && p.Asset != asset && (p.Asset != 0 || p.readable) {
				continue
			}
			if asset == store.AnyAsset || p.Asset == asset {
				w.Count++
				add(sum, p.amount)
			}
			if !p.readable {
				w.Unreadable++
			}
		}
	}
	return nil
}

// kept takes off what the kept sums hold of one payment.
func (q *gathering) kept(w *Window, sum *big.Int, p *store.Paid, asset, since int64) {
	if p.HasAt && p.At <= since || asset != store.AnyAsset && p.Asset != asset && p.Asset != 0 {
		return
	}
	if p.Flags&payment.FlagUnreadable != 0 {
		w.Unreadable--
	}
	if asset != store.AnyAsset && p.Asset != asset {
		return
	}
	amount, counted := q.trusted(p)
	if !counted {
		return
	}
	w.Count--
	if asset != store.AnyAsset {
		var taken big.Int
		add(&taken, amount)
		sum.Sub(sum, &taken)
	}
}

// weighed is a payment as it counts.
type weighed struct {
	*store.Paid
	counts   bool
	amount   string // what it counts with, "" when it cannot be summed
	at       int64
	hasAt    bool
	readable bool
}

// weigh says what a payment counts with, given what the policy trusts and what a
// person found out (guard contract, sections 1 and 6).
func (q *gathering) weigh(p *store.Paid) (weighed, error) {
	w := weighed{Paid: p, at: p.At, hasAt: p.HasAt, readable: p.Flags&payment.FlagUnreadable == 0}
	w.amount, w.counts = q.trusted(p)
	closed, err := q.resolved()
	if err != nil || !closed.has(p.Op) {
		return w, err
	}
	found := q.s.Resolution(closed.refs[p.Op])
	switch {
	case found.Outcome == "failed":
		// What the trace shows as settled was taken, whatever a person heard.
		w.counts = w.counts && p.Flags&payment.FlagPaired != 0
	default:
		w.counts = true
		if w.readable {
			break
		}
		if !w.hasAt && found.Time != "" {
			if t, err := time.Parse(timeFormat, found.Time); err == nil {
				w.at, w.hasAt = t.UnixMilli(), true
			}
		}
		if found.Amount == "" {
			w.readable = w.hasAt && !amountUnread(*p)
			break
		}
		// The person stated what the operation took: its unreadable payments count
		// with that once.
		asset, err := q.number(found.Asset)
		if err != nil {
			return w, err
		}
		if q.stated[p.Op] {
			w.counts = false
			break
		}
		if q.stated == nil {
			q.stated = map[int64]bool{}
		}
		q.stated[p.Op] = true
		stated := *p
		stated.Asset, stated.Amount = asset, found.Amount
		w.Paid, w.amount, w.readable = &stated, found.Amount, w.hasAt
	}
	return w, nil
}

// trusted says what a payment counts with, given what the policy trusts alone.
func (q *gathering) trusted(p *store.Paid) (amount string, counts bool) {
	if p.Flags&payment.FlagSmaller != 0 && q.g.policy.TrustSettledAmounts {
		return p.Settled, true
	}
	return p.Amount, p.Flags&payment.FlagDefinite == 0 || !q.g.policy.TrustDefiniteFailures
}

// inside reports whether a payment is inside a window: one that cannot be dated is
// inside every one, and so is one of the future.
func (w *weighed) inside(since int64) bool { return !w.hasAt || w.at > since }

func (q *gathering) since(hours int) int64 { return q.now - int64(hours)*time.Hour.Milliseconds() }

func (q *gathering) weighAll(rows []store.Paid) ([]weighed, error) {
	// What a person stated of an operation counts once in each window, and each
	// window looks at its own rows.
	q.stated = nil
	out := make([]weighed, 0, len(rows))
	for i := range rows {
		w, err := q.weigh(&rows[i])
		if err != nil {
			return nil, err
		}
		if w.counts {
			out = append(out, w)
		}
	}
	return out, nil
}

// resolvedSince are the resolved operations with a payment that may be later than an
// instant.
func (q *gathering) resolvedSince(since int64) ([]int64, error) {
	c, err := q.resolved()
	if err != nil {
		return nil, err
	}
	return c.since(since), nil
}
