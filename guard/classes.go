package guard

import (
	"slices"
	"sync"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/store"
)

// classes are the classes of one filling of the index, judged by the shipped
// buyer's template. Classes are only ever added to, so a question judges what is
// new.
type classes struct {
	mu         sync.Mutex
	generation int64
	judged     []judged
}

// judged is a class and what the buyer's template makes of it.
type judged struct {
	store.Class
	full  bool
	money bool // the buyer's money stage is confirmed
}

// reading sorts the classes for one question.
type reading struct {
	full map[int64]bool
	open []int64 // classes whose operations count as open
	// anyPartial: the additional template has no stage roles, so every partial
	// operation counts as open.
	anyPartial bool
	extra      bool // an additional template has a say in what is open
}

func (c *classes) read(v *store.View, p *Policy, buyer, extra *assemble.Template) (*reading, error) {
	all, types, err := c.load(v, buyer)
	if err != nil {
		return nil, err
	}
	r := &reading{full: make(map[int64]bool, len(all)), extra: extra != nil}
	if extra != nil {
		money, _ := extra.Roles()
		r.anyPartial = money == ""
	}
	for i := range all {
		j := &all[i]
		r.full[j.No] = j.full
		// A settlement that was found elsewhere closes what the shape leaves open; a
		// reply that claims none leaves open what the shape would close (guard
		// contract, section 1).
		open := j.money && payment.SettlementOpen(j.Settlement, p.TrustDefiniteFailures)
		if extra != nil && !open {
			verdict := extra.Judge(pairs(j.Shape, types))
			settled := payment.SettlementWord(j.Settlement) == payment.WordSettled
			open = verdict.Open() && !settled || r.anyPartial && !verdict.Full
		}
		if open {
			r.open = append(r.open, j.No)
		}
	}
	return r, nil
}

func (c *classes) load(v *store.View, buyer *assemble.Template) ([]judged, map[int64]store.Type, error) {
	generation, _, err := v.Meta()
	if err != nil {
		return nil, nil, err
	}
	all, types, err := v.Shapes()
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation != generation {
		c.generation, c.judged = generation, nil
	}
	for _, class := range all[min(len(c.judged), len(all)):] {
		verdict := buyer.Judge(pairs(class.Shape, types))
		c.judged = append(c.judged, judged{Class: class, full: verdict.Full, money: verdict.MoneyStage})
	}
	return slices.Clip(c.judged), types, nil
}

func pairs(shape []int64, types map[int64]store.Type) []assemble.Pair {
	out := make([]assemble.Pair, len(shape))
	for i, no := range shape {
		t := types[no]
		out[i] = assemble.Pair{Type: t.EventType, Role: t.Role, HasRole: t.HasRole}
	}
	return out
}
