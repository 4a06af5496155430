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
}

type payKey struct {
	op int64
	n  int
}

func (g *Guard) match(v *store.View, s *decision.State, now time.Time) (*matching, error) {
	out := &matching{approvals: map[string]decision.UsedBy{}}
	m := &matcher{p: g.policy, v: v, s: s, taken: map[payKey]bool{}, spare: map[int64]int{}}
	for _, h := range s.Holds(now) {
		ref, ok, err := m.find(h.Intent, h.At.Add(-holdSlack))
		if err != nil {
			return nil, err
		}
		if !ok {
			out.active = append(out.active, h)
			continue
		}
		out.ended = append(out.ended, decision.Released{HoldID: h.HoldID, Why: "paid", By: &ref})
	}
	for _, r := range s.Approvals(now) {
		ref, ok, err := m.find(r.Intent, r.At)
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

// find takes the first payment of an intent made at or after an instant.
func (m *matcher) find(in decision.Intent, from time.Time) (ref decision.Ref, ok bool, err error) {
	if in.Amount == "" || in.Asset == "" {
		return ref, false, nil // what it was could not be read, so no payment equals it
	}
	asset, err := m.v.Word(in.Asset)
	if err != nil || asset == 0 {
		return ref, false, err
	}
	names, err := m.v.WordNumbers(m.p.Expand(in.Names...))
	if err != nil || len(names) == 0 {
		return ref, false, err
	}
	paid, err := m.v.MatchingPayments(names, asset, in.Amount, from.UnixMilli())
	if err != nil {
		return ref, false, err
	}
	for i := range paid {
		p := &paid[i]
		key := payKey{p.Op, p.N}
		if m.taken[key] {
			continue
		}
		ref, err := refOf(m.v, p.Op)
		if err != nil {
			return ref, false, err
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
