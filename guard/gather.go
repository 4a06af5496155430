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
	"github.com/settlewatch/settlewatch/guard/payment"
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
	mayBeOpen int
	asset     int64    // that is asked about
	unseen    []string // assets that have no number in the index
	resolved  bool     // a person has resolved some operation
	refs      map[int64]decision.Ref
	stated    map[int64]bool // operations whose stated amount has been counted
	closed    []int64        // operations that a person has resolved; nil: not looked up yet
	spendings map[spendingKey]*spending
}

func (g *Guard) newGathering(v *store.View, s *decision.State, ask *Ask, now time.Time) *gathering {
	q := &gathering{g: g, v: v, s: s, ask: ask, now: now.UnixMilli(), f: &Facts{}, refs: map[int64]decision.Ref{}, spendings: map[spendingKey]*spending{}}
	for range s.Resolutions() {
		q.resolved = true
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
	return q, nil
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
	return err
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
	touched := q.resolved || q.s.Baseline() != nil
	if touched {
		q.f.Open.Total = 0
	}
	for o, err := range q.v.OpenOf(q.names, q.openHere, q.mayBeOpen) {
		if err != nil {
			return err
		}
		r, ok := q.stillOpen(&o)
		switch {
		case !ok || q.ignored(o.Blind):
		case touched:
			q.f.Open.add(r)
		default:
			q.f.Open.Refs = append(q.f.Open.Refs, r)
		}
		if !touched && len(q.f.Open.Refs) == min(maxEvidence, q.f.Open.Total) {
			break
		}
	}
	return q.duplicates()
}

// stillOpen reports whether no person has closed an open operation or made history
// of it, and gives its address.
func (q *gathering) stillOpen(o *store.OpenOperation) (decision.Ref, bool) {
	r := ref(o.Position.Run, o.Op, false)
	if q.resolved && q.s.Resolution(r) != nil {
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
	if !q.resolved || p.Op < 0 {
		return w, nil
	}
	r, err := q.address(p.Op)
	if err != nil {
		return w, err
	}
	found := q.s.Resolution(r)
	switch {
	case found == nil:
	case found.Outcome == "failed":
		w.counts = false
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
			w.readable = w.hasAt && p.Amount != "" && p.Asset != 0 && p.Flags&payment.FlagAmbiguous == 0
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

func (q *gathering) address(op int64) (decision.Ref, error) {
	if r, ok := q.refs[op]; ok {
		return r, nil
	}
	r, err := refOf(q.v, op)
	q.refs[op] = r
	return r, err
}

// inside reports whether a payment is inside a window: one that cannot be dated is
// inside every one, and so is one of the future.
func (w *weighed) inside(since int64) bool { return !w.hasAt || w.at > since }

func (q *gathering) since(hours int) int64 { return q.now - int64(hours)*time.Hour.Milliseconds() }

// windows sums up what was spent and held.
func (q *gathering) windows() error {
	p := q.g.policy
	limit, _, capped := p.CapOf(q.ask.Intent.Asset)
	longest := p.PerCounterparty.WindowHours // what cannot be read is looked for in any asset
	if capped {
		longest = limit.WindowHours
	}
	for i := range p.Limits {
		if scope := p.Limits[i].Scope; scope == "counterparty" || scope == "host" {
			longest = max(longest, p.Limits[i].WindowHours)
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
	q.doubts(spent.rows, longest)
	q.f.Limits = make([]Window, len(p.Limits))
	for i := range p.Limits {
		if q.f.Limits[i], err = q.limit(&p.Limits[i], own); err != nil {
			return err
		}
	}
	return nil
}

// spending is what was spent in a window: the payments in the asset asked about that
// count as they stand, as a sum, and the others as they count.
type spending struct {
	payments int64
	amount   string
	rows     []weighed // oldest first
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
		closed, err := q.resolvedOperations()
		if err != nil {
			return nil, err
		}
		found, err := q.v.Spending(names, q.asset, q.since(k.hours), q.now, closed)
		if err != nil {
			return nil, err
		}
		s.payments, s.amount = found.Payments, found.Amount
		if s.rows, err = q.weighAll(found.Others); err != nil {
			return nil, err
		}
	}
	q.spendings[k] = s
	return s, nil
}

// resolvedOperations are the numbers of the operations that a person has resolved.
func (q *gathering) resolvedOperations() ([]int64, error) {
	if !q.resolved || q.closed != nil {
		return q.closed, nil
	}
	q.closed = []int64{}
	var refs []decision.Ref
	for r := range q.s.Resolutions() {
		refs = append(refs, r.Ref)
	}
	for chunk := range slices.Chunk(refs, 500) {
		numbers, err := numbersOf(q.v, chunk)
		if err != nil {
			return nil, err
		}
		for i, no := range numbers {
			if no != 0 {
				q.refs[no] = chunk[i]
				q.closed = append(q.closed, no)
			}
		}
	}
	return q.closed, nil
}

func (q *gathering) weighAll(rows []store.Paid) ([]weighed, error) {
	if q.resolved {
		ops := make([]int64, 0, len(rows))
		for i := range rows {
			if _, ok := q.refs[rows[i].Op]; !ok {
				ops = append(ops, rows[i].Op)
			}
		}
		refs, err := refsOf(q.v, ops)
		if err != nil {
			return nil, err
		}
		for op, r := range refs {
			q.refs[op] = r
		}
	}
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

// window sums up what was spent in one asset.
func (q *gathering) window(s *spending, asset int64, hours int) Window {
	since := q.since(hours)
	w := Window{Held: "0"}
	var sum big.Int
	if asset == q.asset || asset == store.AnyAsset {
		w.Count = s.payments
	}
	if asset == q.asset {
		add(&sum, s.amount)
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
func (q *gathering) doubts(paid []weighed, hours int) {
	since := q.since(hours)
	var mixed, unreadable []int64
	known := map[int64]bool{}
	for i := len(paid) - 1; i >= 0; i-- { // newest first
		p := &paid[i]
		q.f.FutureTime = q.f.FutureTime || p.hasAt && p.at > q.now
		q.f.UnknownNetwork = q.f.UnknownNetwork || p.Flags&payment.FlagUnknownNetwork != 0
		switch {
		case !p.inside(since):
		case !p.readable:
			unreadable = append(unreadable, p.Op)
		case p.Asset == q.asset:
		default:
			own, ok := known[p.Asset]
			if !ok {
				own = q.hasPolicy(p.Asset)
				known[p.Asset] = own
			}
			if !own {
				mixed = append(mixed, p.Op)
			}
		}
	}
	q.evidence(&q.f.Mixed, mixed)
	q.evidence(&q.f.Unreadable, unreadable)
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

// evidence fills in operations by number, each once.
func (q *gathering) evidence(e *Evidence, ops []int64) {
	seen := make(map[int64]bool, len(ops))
	for _, op := range ops {
		if seen[op] {
			continue
		}
		seen[op] = true
		if e.Total < maxEvidence {
			r, err := q.address(op)
			if err == nil {
				e.Refs = append(e.Refs, r)
			}
		}
		e.Total++
	}
}

// limit counts what one of limits is about (guard contract, section 2).
func (q *gathering) limit(l *Limit, own func(*decision.Intent) bool) (Window, error) {
	asset := int64(store.AnyAsset)
	if l.Asset != "" {
		var err error
		if asset, err = q.number(l.Asset); err != nil {
			return Window{}, err
		}
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
		hosts := q.hosts()
		if len(hosts) == 0 {
			return Window{}, nil
		}
		numbers, err := q.v.WordNumbers(hosts)
		if err != nil {
			return Window{}, err
		}
		spent, err := q.spending(spendingKey{l.Scope, l.WindowHours}, numbers)
		if err != nil {
			return Window{}, err
		}
		w = q.window(spent, asset, l.WindowHours)
		belongs = func(in *decision.Intent) bool { return shares(in.Names, hosts) }
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
	case "asset":
		if l.Asset != q.ask.Intent.Asset {
			return Window{}, nil
		}
		fallthrough
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
	if q.resolved {
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
	closed, err := q.resolvedOperations()
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(closed, 500) {
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

// payee finds payments to the host that went to other addresses only.
func (q *gathering) payee() error {
	if q.ask.PayTo == "" {
		return nil
	}
	address, err := q.v.WordNumbers(q.g.policy.Group(q.ask.PayTo))
	if err != nil {
		return err
	}
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
			there = there || payee != 0 && some.Any()
		}
		if !paid || there {
			continue
		}
		last, err := q.v.LastPaid(host, maxEvidence)
		if err != nil {
			return err
		}
		ops := make([]int64, len(last))
		for i := range last {
			ops[i] = last[i].Op
		}
		q.evidence(&q.f.PayeeChanged, ops)
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
	items, total, err := q.g.damages.unacknowledged(q.g.o.Index, q.v, q.s, q.now, maxEvidence)
	q.f.Damage, q.f.DamageTotal = items, total
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
	if day.Unreadable > 0 && v.State == approval.Locked {
		v.State = approval.HITLRequired
		v.Reasons = append(v.Reasons, fmt.Sprintf("%s of today cannot be read, so the day cannot be added up", several64(day.Unreadable, "payment", "payments")))
	}
	q.f.Gate = &v
	return nil
}
