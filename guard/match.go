package guard

import (
	"time"

	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/store"
)

// holdSlack is how much earlier than a hold the payment it was made for may be
// dated: two clocks are never quite the same (guard contract, section 5).
const holdSlack = 2 * time.Second

// matching says which holds and approvals payments in the trace have used up. A
// payment is consumed once: by the matching hold, else by the oldest unused
// approval (guard contract, section 4).
type matching struct {
	active    []*decision.HoldState      // holds that no payment has ended
	approvals map[string]decision.UsedBy // by review, the payment that used it up
	ended     []decision.Body            // the lines that say so
}

// matcher finds payments nobody has consumed yet.
type matcher struct {
	p     *Policy
	v     *store.View
	s     *decision.State
	taken map[payKey]bool
	spare map[int64]int // by operation, how many of its payments the log says were consumed
	// recent holds every payment since the oldest hold, by asset and amount, where
	// there are so many holds that one look is cheaper than one for each.
	recent map[[2]string][]recentPayment
	since  time.Time
}

type recentPayment struct {
	store.Paid
	names []string
}

// fewHolds are looked for one by one. More of them share one look, unless more than
// manyPayments were made since the oldest.
const (
	fewHolds     = 8
	manyPayments = 5_000
)

// gatherRecent reads every payment that may end one of the holds.
func (m *matcher) gatherRecent(holds []*decision.HoldState) error {
	since := holds[0].At
	for _, h := range holds {
		if h.At.Before(since) {
			since = h.At
		}
	}
	since = since.Add(-holdSlack)
	var paid []store.Paid
	for p, err := range m.v.Leaving(store.Scope{Asset: store.AnyAsset}, since.UnixMilli()-1) {
		if err != nil {
			return err
		}
		if len(paid) == manyPayments {
			return nil
		}
		paid = append(paid, p)
	}
	var numbers []int64
	for i := range paid {
		numbers = append(numbers, paid[i].Payee, paid[i].Host, paid[i].Asset)
		for _, more := range paid[i].More {
			numbers = append(numbers, more.Payee, more.Host)
		}
	}
	words, err := m.v.Words(numbers)
	if err != nil {
		return err
	}
	m.since, m.recent = since, map[[2]string][]recentPayment{}
	for i := range paid {
		p := recentPayment{Paid: paid[i], names: []string{words[paid[i].Payee], words[paid[i].Host]}}
		for _, more := range p.More {
			p.names = append(p.names, words[more.Payee], words[more.Host])
		}
		key := [2]string{words[p.Asset], p.Amount}
		m.recent[key] = append(m.recent[key], p)
	}
	return nil
}

type payKey struct {
	op int64
	n  int
}

func (g *Guard) match(v *store.View, s *decision.State, now time.Time) (*matching, error) {
	out := &matching{approvals: map[string]decision.UsedBy{}}
	m := &matcher{p: g.policy, v: v, s: s, taken: map[payKey]bool{}, spare: map[int64]int{}}
	approvals := s.Approvals(now)
	holds := s.Holds(now)
	if len(holds)+len(approvals) == 0 {
		return out, nil
	}
	all := withExpired(s, holds, approvals, now)
	if len(all) > fewHolds {
		if err := m.gatherRecent(all); err != nil {
			return nil, err
		}
	}
	for _, h := range all {
		expired := !h.Active(now)
		until := now.Add(forever)
		if expired {
			until = h.ExpiresAt
		}
		ref, ok, err := m.find(h.Intent, h.At.Add(-holdSlack), until, h.Before)
		if err != nil {
			return nil, err
		}
		switch {
		case ok:
			out.ended = append(out.ended, decision.Released{HoldID: h.HoldID, Why: "paid", By: &ref})
		case !expired:
			out.active = append(out.active, h)
		}
	}
	for _, r := range approvals {
		ref, ok, err := m.find(r.Intent, r.At, now.Add(forever), nil)
		if err != nil {
			return nil, err
		}
		if ok {
			by := decision.UsedBy{Run: ref.Run, Operation: ref.Operation}
			out.approvals[r.ReviewID] = by
			out.ended = append(out.ended, decision.ApprovalUsed{ReviewID: r.ReviewID, By: by})
		}
	}
	return out, nil
}

// forever is later than any payment that counts: one of the future is inside every
// window.
const forever = 200 * 365 * 24 * time.Hour

// withExpired puts expired holds before and between active ones where they may claim
// a payment that an active hold or an approval would otherwise be given: a payment
// that was made while a hold lasted is the hold's, even if nobody looked in time.
func withExpired(s *decision.State, holds []*decision.HoldState, approvals []*decision.ReviewState, now time.Time) []*decision.HoldState {
	rivals := map[[2]string]bool{}
	for _, h := range holds {
		rivals[[2]string{h.Intent.Asset, h.Intent.Amount}] = true
	}
	for _, r := range approvals {
		rivals[[2]string{r.Intent.Asset, r.Intent.Amount}] = true
	}
	var all []*decision.HoldState
	for h := range s.Unended() {
		if h.Active(now) || rivals[[2]string{h.Intent.Asset, h.Intent.Amount}] {
			all = append(all, h)
		}
	}
	return all
}

// like gives the payments that an intent may have led to, made at or after an
// instant.
func (m *matcher) like(in decision.Intent, from time.Time) ([]store.Paid, error) {
	if in.Amount == "" || in.Asset == "" {
		return nil, nil // what it was could not be read, so no payment equals it
	}
	if m.recent != nil && !from.Before(m.since) {
		var paid []store.Paid
		names := m.p.Expand(in.Names...)
		for _, p := range m.recent[[2]string{in.Asset, in.Amount}] {
			if p.At >= from.UnixMilli() && shares(names, p.names) {
				paid = append(paid, p.Paid)
			}
		}
		return paid, nil
	}
	asset, err := m.v.Word(in.Asset)
	if err != nil || asset == 0 {
		return nil, err
	}
	names, err := m.v.WordNumbers(m.p.Expand(in.Names...))
	if err != nil || len(names) == 0 {
		return nil, err
	}
	return m.v.MatchingPayments(names, asset, in.Amount, from.UnixMilli())
}

// find takes the first payment of an intent made between two instants, but for those
// that were there before.
func (m *matcher) find(in decision.Intent, from, until time.Time, before []decision.Ref) (ref decision.Ref, ok bool, err error) {
	paid, err := m.like(in, from)
	if err != nil {
		return ref, false, err
	}
	known := make(map[string]int, len(before))
	for _, r := range before {
		known[refText(r)]++
	}
	for i := range paid {
		p := &paid[i]
		key := payKey{p.Op, p.N}
		if p.At > until.UnixMilli() {
			break
		}
		ref, err := refOf(m.v, p.Op)
		if err != nil {
			return ref, false, err
		}
		if text := refText(ref); known[text] > 0 {
			known[text]--
			continue
		}
		if m.taken[key] {
			continue
		}
		if _, asked := m.spare[p.Op]; !asked {
			m.spare[p.Op] = m.s.Consumed(ref)
		}
		m.taken[key] = true
		if m.spare[p.Op] > 0 {
			// The log says which operation was consumed, not which of its payments:
			// the earliest, as here.
			m.spare[p.Op]--
			continue
		}
		return ref, true, nil
	}
	return decision.Ref{}, false, nil
}

// before names the payments like an intent that are on record already and near
// enough to end a hold that is made now.
func (g *Guard) before(v *store.View, s *decision.State, in decision.Intent, now time.Time) ([]decision.Ref, error) {
	m := &matcher{p: g.policy, v: v, s: s}
	paid, err := m.like(in, now.Add(-holdSlack))
	if err != nil {
		return nil, err
	}
	var refs []decision.Ref
	for i := range paid {
		ref, err := refOf(v, paid[i].Op)
		if err != nil {
			return nil, err
		}
		refs = append(refs, ref)
	}
	return refs, nil
}

// refText tells references apart.
func refText(r decision.Ref) string {
	if r.Operation == nil {
		return r.Run
	}
	return r.Run + "\x00" + *r.Operation
}
