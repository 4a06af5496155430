package guard

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/settlewatch/settlewatch/store"
)

// passed remembers of counterparties that were asked about which of their open
// operations do not count, since people have resolved them or made history of them. What
// is kept of one costs the next question about it nothing, however long its past is.
type passed struct {
	mu sync.Mutex
	of map[string]*passedOver
}

// passedOver are the operations of one counterparty in one snapshot. It is never changed.
type passedOver struct {
	generation, rev int64
	mark            string  // the line of the log that last closed any
	ops             []int64 // ascending
}

// mostPassed bounds the counterparties that are remembered, of which then none is, and
// manyPassed how much is of one.
const (
	mostPassed = 64
	manyPassed = 1 << 16
)

// passedKey is the counterparty of a question and the classes it takes for open.
func (q *gathering) passedKey() string { return fmt.Sprint(q.names, q.openHere) }

// before gives the operations that were passed over before and have not changed since.
func (p *passed) before(q *gathering) ([]int64, error) {
	p.mu.Lock()
	known := p.of[q.passedKey()]
	p.mu.Unlock()
	generation, rev, err := q.v.Meta()
	if err != nil || known == nil || known.generation != generation || known.rev > rev || known.mark != q.s.ClosedBy() {
		return nil, err
	}
	runs, gone, err := q.v.RunsChanged(known.rev)
	if err != nil || gone > known.rev {
		return nil, err
	}
	if slices.ContainsFunc(runs, func(r store.Run) bool { return r.Twin }) {
		return nil, nil // an operation that has come to be in two files is nobody's to close
	}
	limit := len(known.ops) + 1000
	changes, err := q.v.Changed(known.rev, math.MaxInt64, math.MaxInt64, limit)
	if err != nil || len(changes) == limit {
		return nil, err // looking at each again is less
	}
	changed := make(map[int64]bool, len(changes))
	for _, c := range changes {
		changed[c.No] = true
	}
	return slices.DeleteFunc(slices.Clone(known.ops), func(op int64) bool { return changed[op] }), nil
}

// keep remembers what a question passed over.
func (p *passed) keep(q *gathering, ops []int64) error {
	generation, rev, err := q.v.Meta()
	if err != nil || len(ops) > manyPassed {
		return err
	}
	slices.Sort(ops)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil || len(p.of) >= mostPassed {
		p.of = map[string]*passedOver{}
	}
	p.of[q.passedKey()] = &passedOver{generation, rev, q.s.ClosedBy(), ops}
	return nil
}

// openButForPassed counts the open operations that nobody has closed: all but those that
// are known not to count are looked at, newest first, until each of them was.
func (q *gathering) openButForPassed(resolved *closed) error {
	over, err := q.g.passed.before(q)
	if err != nil {
		return err
	}
	known := make(map[int64]bool, len(over))
	for _, op := range over {
		known[op] = true
	}
	q.f.Open.Total = 0
	left := q.here - len(over)
	if left == 0 {
		return q.g.passed.keep(q, over) // as of now, so that the next question looks at little
	}
	pass := func(op int64) bool {
		if known[op] {
			return true
		}
		if resolved.has(op) {
			known[op] = true
			over = append(over, op)
			left--
			return true
		}
		return false
	}
	for o, err := range q.v.OpenOf(q.names, q.openHere, q.mayBeOpen, pass) {
		if err != nil {
			return err
		}
		if r, ok := q.stillOpen(&o); ok && !q.ignored(o.Blind) {
			q.f.Open.add(r)
		} else {
			over = append(over, o.No)
		}
		if left--; left == 0 {
			break
		}
	}
	return q.g.passed.keep(q, over)
}
