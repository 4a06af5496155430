package guard

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/store"
)

// gathering collects the facts of one question from one snapshot of the index and
// one state of the log.
type gathering struct {
	g    *Guard
	v    *store.View
	s    *decision.State
	ask  *Ask
	now  int64 // unix milliseconds
	read *reading
	f    *Facts
	m    *matching // what payments in the trace have used up

	names    []int64 // of the counterparty, that the index has seen
	openHere []int64 // open classes that operations with it are of
	// mayBeOpen is how many operations with it are of a class that is open, those that
	// are left out for being blind too.
	mayBeOpen   int
	here        int      // and how many are of openHere
	asset       int64    // that is asked about
	unseen      []string // assets that have no number in the index
	anyResolved bool     // a person has resolved some operation
	closed      *closed  // what people have resolved; nil: not asked yet
	refs        map[int64]decision.Ref
	stated      map[int64]bool // operations whose stated amount has been counted
	spendings   map[spendingKey]*spending
}

func (g *Guard) newGathering(v *store.View, s *decision.State, ask *Ask, now time.Time) *gathering {
	q := &gathering{g: g, v: v, s: s, ask: ask, now: now.UnixMilli(), f: &Facts{}, refs: map[int64]decision.Ref{}, spendings: map[spendingKey]*spending{}}
	for range s.Resolutions() {
		q.anyResolved = true
		break
	}
	return q
}

func (g *Guard) gather(v *store.View, s *decision.State, ask *Ask, extra *assemble.Template, now time.Time) (*gathering, error) {
	q := g.newGathering(v, s, ask, now)
	totals, err := v.Totals()
	if err != nil {
		return nil, err
	}
	q.f.HasRuns = totals.Runs > 0
	q.f.Checked = decision.Checked{Events: totals.Events, Runs: totals.Runs, Through: now.UTC().Format(timeFormat)}
	if q.read, err = g.classes.read(v, g.policy, g.buyer, extra); err != nil {
		return nil, err
	}
	q.f.AnyPartialCounts = q.read.anyPartial
	if q.names, err = v.WordNumbers(ask.Names); err != nil {
		return nil, err
	}
	if q.asset, err = q.number(ask.Intent.Asset); err != nil {
		return nil, err
	}
	if q.m, err = g.match(v, s, now); err != nil {
		return nil, err
	}
	for _, step := range []func() error{q.counts, q.open, q.windows, q.payee, q.prices, q.damage, q.gate} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if ask.ReviewID != "" {
		f := q.f
		q.f.Made, err = q.made(slices.Concat(f.Open.Refs, f.Duplicate.Refs, f.Mixed.Refs, f.Unreadable.Refs, f.PayeeChanged.Refs))
	}
	return q, err
}

// made tells what payments operations have, each once.
func (q *gathering) made(refs []decision.Ref) (all []decision.Made, err error) {
	for _, r := range refs {
		if !slices.ContainsFunc(all, func(m decision.Made) bool { return sameRef(m.Ref, r) }) {
			all = append(all, decision.Made{Ref: r})
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	refs = refs[:0:0]
	for _, m := range all {
		refs = append(refs, m.Ref)
	}
	numbers, err := numbersOf(q.v, refs)
	if err != nil {
		return nil, err
	}
	made, err := q.v.Made(numbers)
	for i, no := range numbers {
		m := Shown(made[no])
		all[i].Payments, all[i].Newest = m.Payments, m.newest()
	}
	return all, err
}

// counts says how many operations there are with the counterparty, and how many of
// them are open as far as the trace goes.
func (q *gathering) counts() error {
	if len(q.names) == 0 {
		return nil
	}
	all, err := q.v.HistoryOf(q.names)
	for _, c := range all {
		isOpen := slices.Contains(q.read.open, c.Class)
		if isOpen {
			q.mayBeOpen += int(c.N)
		}
		if isOpen && !q.ignored(c.Blind) {
			q.f.Open.Total += int(c.N)
			if !slices.Contains(q.openHere, c.Class) {
				q.openHere = append(q.openHere, c.Class)
			}
		}
		if q.read.full[c.Class] {
			q.f.Full += c.N
		} else {
			q.f.Partial += c.N
		}
		if c.Blind {
			q.f.Blind += c.N
		}
	}
	for _, c := range all {
		if slices.Contains(q.openHere, c.Class) {
			q.here += int(c.N)
		}
	}
	return err
}

// resolved gives what people have resolved.
func (q *gathering) resolved() (*closed, error) {
	if q.closed != nil {
		return q.closed, nil
	}
	if !q.anyResolved {
		q.closed = &closed{}
		return q.closed, nil
	}
	var err error
	q.closed, err = q.g.resolutions.of(q.v, q.s)
	return q.closed, err
}

// ignored reports whether an open operation does not count because it is blind.
func (q *gathering) ignored(blind bool) bool {
	return blind && q.g.policy.BlindOperations == "ignore"
}

// open finds the counterparty's operations whose money is not accounted for, but
// for those a person has resolved or made history of. Where no person has, their
// number is known and the newest of them are evidence enough.
func (q *gathering) open() error {
	if len(q.openHere) == 0 {
		return nil
	}
	resolved, err := q.resolved()
	if err != nil {
		return err
	}
	if q.anyResolved || q.s.Baseline() != nil {
		if err := q.openButForPassed(resolved); err != nil {
			return err
		}
		return q.duplicates()
	}
	for o, err := range q.v.OpenOf(q.names, q.openHere, q.mayBeOpen, nil) {
		if err != nil {
			return err
		}
		if r, ok := q.stillOpen(&o); ok && !q.ignored(o.Blind) {
			q.f.Open.Refs = append(q.f.Open.Refs, r)
		}
		if len(q.f.Open.Refs) == min(maxEvidence, q.f.Open.Total) {
			break
		}
	}
	return q.duplicates()
}

// stillOpen reports whether no person has closed an open operation or made history
// of it, and gives its address.
func (q *gathering) stillOpen(o *store.OpenOperation) (decision.Ref, bool) {
	r := ref(o.Position.Run, o.Op, false)
	if q.closed.has(o.No) {
		return r, false
	}
	if base, ok := q.s.BaselineOf(r.Run); ok && o.End <= base.Covered {
		return r, false
	}
	q.refs[o.No] = r
	return r, true
}

// duplicates finds, among the open operations, payments like the one asked about.
func (q *gathering) duplicates() error {
	in := &q.ask.Intent
	if in.Amount == "" || q.asset <= neverSeen || q.f.Open.Total == 0 {
		return nil
	}
	resource, err := q.v.Word(in.Resource)
	if err != nil {
		return err
	}
	paid, err := q.alike()
	if err != nil {
		return err
	}
	var ops []int64
	for i := range paid {
		// A resource the index has never seen is another one than any it has.
		if p := &paid[i]; p.Op > 0 && (in.Resource == "" || p.Resource == 0 || p.Resource == resource) {
			ops = append(ops, p.Op)
		}
	}
	if len(ops) == 0 {
		return nil
	}
	found, err := q.v.OperationsNewestFirst(ops)
	for i := range found {
		o := &found[i]
		if r, ok := q.stillOpen(o); ok && slices.Contains(q.openHere, o.Class) && !q.ignored(o.Blind) {
			q.f.Duplicate.add(r)
		}
	}
	return err
}

// alike gives the payments to the counterparty of the asset and amount asked about
// that stand in operations which may be open. An additional template has operations
// open that settlements close, so that every payment may be in one.
func (q *gathering) alike() ([]store.Paid, error) {
	in := &q.ask.Intent
	if !q.read.extra {
		return q.v.OpenPayments(q.names, q.asset, in.Amount)
	}
	all, err := q.v.PaymentsOf(q.names, math.MinInt64)
	return slices.DeleteFunc(all, func(p store.Paid) bool { return p.Asset != q.asset || p.Amount != in.Amount }), err
}

// add keeps an operation. They come newest first.
func (e *Evidence) add(r decision.Ref) {
	e.Total++
	if len(e.Refs) < maxEvidence {
		e.Refs = append(e.Refs, r)
	}
}

func (q *gathering) address(op int64) (decision.Ref, error) {
	if r, ok := q.refs[op]; ok {
		return r, nil
	}
	r, err := refOf(q.v, op)
	q.refs[op] = r
	return r, err
}

// hasPolicy reports whether an asset is the default one or has limits of its own.
func (q *gathering) hasPolicy(asset int64) bool {
	if asset <= neverSeen {
		_, _, ok := q.g.policy.CapOf(q.unseen[neverSeen-asset])
		return ok
	}
	words, err := q.v.Words([]int64{asset})
	if err != nil {
		return false
	}
	_, _, ok := q.g.policy.CapOf(words[asset])
	return ok
}

// evidence fills in the operations of payments that come newest first, each once. Which
// of one instant come first must not depend on the index: an approval stands for these.
func (q *gathering) evidence(e *Evidence, paid []store.Paid) error {
	seen := make(map[int64]bool, len(paid))
	each := make([]store.Paid, 0, len(paid))
	for _, p := range paid {
		if !seen[p.Op] {
			seen[p.Op] = true
			each = append(each, p)
		}
	}
	if err := q.v.TellApart(each, maxEvidence); err != nil {
		return err
	}
	for _, p := range each {
		if e.Total < maxEvidence {
			r, err := q.address(p.Op)
			if err != nil {
				return err
			}
			e.Refs = append(e.Refs, r)
		}
		e.Total++
	}
	return nil
}

// neverSeen and the numbers below it stand for assets that have none in the index.
const neverSeen = -2

// number is that of an asset. One the index has never seen is told from payments
// whose asset cannot be read, which have 0, and from other such assets: a person may
// have stated an amount in it.
func (q *gathering) number(asset string) (int64, error) {
	n, err := q.v.Word(asset)
	if n != 0 || err != nil {
		return n, err
	}
	i := slices.Index(q.unseen, asset)
	if i < 0 {
		i = len(q.unseen)
		q.unseen = append(q.unseen, asset)
	}
	return neverSeen - int64(i), nil
}

// hosts are the hosts the question names.
func (q *gathering) hosts() []string {
	hosts := slices.Clone(q.ask.Hosts)
	if q.ask.Host != "" {
		hosts = append(hosts, q.ask.Host)
	}
	return hosts
}

func shares(a, b []string) bool {
	return slices.ContainsFunc(a, func(name string) bool { return slices.Contains(b, name) })
}

// payee finds payments to the host that went to other addresses only. An address that
// an answer brought in is one of those still: else a seller could make it known.
func (q *gathering) payee() error {
	if q.ask.PayTo == "" {
		return nil
	}
	address, err := q.v.WordNumbers(q.g.policy.Group(q.ask.PayTo))
	if err != nil {
		return err
	}
	named := map[int64]bool{} // an operation may have been paid at several hosts
	for _, name := range q.hosts() {
		host, err := q.v.Word(name)
		if err != nil {
			return err
		}
		if host == 0 {
			continue
		}
		paid, there := false, false
		for _, payee := range append(address, 0) {
			all, some, err := q.v.PaidAt(host, payee)
			if err != nil {
				return err
			}
			paid = paid || all.Any()
			there = there || payee != 0 && some.Signed()
		}
		if !paid || there {
			continue
		}
		last, err := q.v.LastPaid(host, maxEvidence)
		if err != nil {
			return err
		}
		last = slices.DeleteFunc(last, func(p store.Paid) bool { return named[p.Op] })
		if err := q.evidence(&q.f.PayeeChanged, last); err != nil {
			return err
		}
		for i := range last {
			named[last[i].Op] = true
		}
		q.f.PaidHosts = append(q.f.PaidHosts, name)
	}
	return nil
}

// prices gives what the resource has cost lately.
func (q *gathering) prices() error {
	if q.ask.Intent.Resource == "" || q.asset <= neverSeen {
		return nil
	}
	resource, err := q.v.Word(q.ask.Intent.Resource)
	if err != nil || resource == 0 {
		return err
	}
	last, err := q.v.LastSettled(resource, q.asset, maxPrices)
	for i := range last {
		q.f.Prices = append(q.f.Prices, last[i].Amount)
	}
	return err
}

func (q *gathering) damage() error {
	items, total, err := q.g.damages.unacknowledged(q.g.o.Index, q.v, q.s, q.now)
	q.f.Damage, q.f.DamageTotal, q.f.DamageCut = items[:min(len(items), maxEvidence)], total, len(items) > maxEvidence
	return err
}

// gate asks the spend gate, whose day is the UTC day (approvals contract, sections
// 2.5 and 9.7).
func (q *gathering) gate() error {
	gate := q.g.policy.SpendGate
	in := &q.ask.Intent
	if gate == nil || in.Amount == "" {
		return nil
	}
	midnight := q.now - q.now%(24*time.Hour.Milliseconds()) - 1
	day, err := q.everything(q.asset, midnight)
	if err != nil {
		return err
	}
	q.held(&day, in.Asset, func(*decision.Intent) bool { return true })
	var committed big.Int
	add(&committed, day.Spent)
	add(&committed, day.Held)
	v := gate.Judge(approval.Payment{
		Action: approval.ActionPay, Asset: q.g.policy.Assets[in.Asset].Symbol,
		Amount: q.g.policy.Units(in.Asset, in.Amount), Committed: q.g.policy.Units(in.Asset, committed.String()),
	})
	q.f.GateUnreadable = day.Unreadable
	if day.Unreadable > 0 && v.State != approval.Blocked {
		v.State = approval.HITLRequired
		v.Reasons = append(v.Reasons, fmt.Sprintf("%s of today cannot be read, so the day cannot be added up", several64(day.Unreadable, "payment", "payments")))
	}
	q.f.Gate = &v
	return nil
}
