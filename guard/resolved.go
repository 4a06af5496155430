package guard

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/store"
)

// resolutions remembers which operations of the index people have resolved, so that a
// question looks at those it is about, however many there ever were.
type resolutions struct {
	mu         sync.Mutex
	generation int64
	rev        int64
	mark       string                  // the line of the log that last changed them
	runs       map[string]*resolvedRun // by key; nil: nothing is known
	made       map[int64]store.Made    // by operation
	closed     *closed
}

// resolvedRun is a run with resolved operations, and where the index had it.
type resolvedRun struct {
	no, epoch int64
	ops       map[string]*resolvedOp // by refText
}

type resolvedOp struct {
	said *decision.Resolved
	no   int64 // 0: the index has no such operation
}

// closed are the operations of one snapshot that people have resolved and that have not
// been paid again since. It is never changed.
type closed struct {
	refs   map[int64]decision.Ref
	newest []lastPaid // newest first
}

// lastPaid is an operation and when its newest payment was made, in unix milliseconds;
// later than any time where that cannot be read.
type lastPaid struct{ op, at int64 }

// has tells whether an operation is one of them.
func (c *closed) has(op int64) bool {
	_, ok := c.refs[op]
	return ok
}

// since gives the operations with a payment that may be later than an instant.
func (c *closed) since(ms int64) []int64 {
	n, _ := slices.BinarySearchFunc(c.newest, ms, func(p lastPaid, ms int64) int { return cmp.Compare(ms, p.at) })
	ops := make([]int64, n)
	for i := range ops {
		ops[i] = c.newest[i].op
	}
	return ops
}

// of gives what a snapshot holds of what people have resolved.
func (r *resolutions) of(v *store.View, s *decision.State) (*closed, error) {
	generation, rev, err := v.Meta()
	if err != nil {
		return nil, err
	}
	gone, err := v.Gone()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if generation == r.generation && rev < r.rev {
		return (&resolutions{}).of(v, s) // an older snapshot than the last one: it is asked by itself
	}
	if generation != r.generation || gone > r.rev {
		r.runs = nil
	} else if r.runs != nil && rev == r.rev && s.ClosedBy() == r.mark {
		return r.closed, nil
	}
	changed := r.runs == nil
	if changed {
		r.runs, r.made, r.mark, r.rev = map[string]*resolvedRun{}, map[int64]store.Made{}, "", rev
	}
	look := func() error {
		var ops []*resolvedOp
		if mark := s.ClosedBy(); mark != r.mark {
			ops, r.mark, changed = r.compare(s), mark, true
		}
		moved, err := r.moved(v)
		if err != nil {
			return err
		}
		if ops = append(ops, moved...); len(ops) > 0 {
			changed = true
		}
		if err := r.find(v, ops); err != nil {
			return err
		}
		again, err := r.paidAgain(v)
		if err != nil {
			return err
		}
		changed = changed || len(again) > 0
		return r.count(v, ops, again)
	}
	if err := look(); err != nil {
		r.runs = nil
		return nil, err
	}
	r.generation, r.rev = generation, rev
	if changed {
		r.closed = r.make()
	}
	return r.closed, nil
}

// compare takes over what people have resolved, and gives what was not known before.
func (r *resolutions) compare(s *decision.State) (added []*resolvedOp) {
	still := make(map[*resolvedOp]bool, len(r.made))
	for found := range s.Resolutions() {
		key := string(keyOf(found.Run))
		run := r.runs[key]
		if run == nil {
			run = &resolvedRun{ops: map[string]*resolvedOp{}}
			r.runs[key] = run
		}
		text := refText(found.Ref)
		op := run.ops[text]
		if op == nil {
			op = &resolvedOp{}
			run.ops[text] = op
			added = append(added, op)
		}
		op.said = found
		still[op] = true
	}
	for key, run := range r.runs {
		for text, op := range run.ops {
			if !still[op] {
				delete(run.ops, text)
				delete(r.made, op.no)
			}
		}
		if len(run.ops) == 0 {
			delete(r.runs, key)
		}
	}
	return added
}

// moved gives the operations that may have a number now, or another one: those of runs
// that came, were indexed again from their start, or are not the only one of their id,
// and in runs that grew those that were not there.
func (r *resolutions) moved(v *store.View) (ops []*resolvedOp, err error) {
	changed, _, err := v.RunsChanged(r.rev)
	for i := range changed {
		run := r.runs[string(changed[i].Key)]
		if run == nil {
			continue
		}
		// Where several files have the id, each may have come to hold what another has.
		again := run.no != changed[i].No || run.epoch != changed[i].Epoch || changed[i].Twin
		run.no, run.epoch = changed[i].No, changed[i].Epoch
		for _, op := range run.ops {
			if again || op.no == 0 {
				ops = append(ops, op)
			}
		}
	}
	return ops, err
}

// find looks up numbers.
func (r *resolutions) find(v *store.View, ops []*resolvedOp) error {
	for chunk := range slices.Chunk(ops, 500) {
		refs := make([]decision.Ref, len(chunk))
		for i, op := range chunk {
			refs[i] = op.said.Ref
		}
		numbers, err := numbersOf(v, refs)
		if err != nil {
			return err
		}
		for i, op := range chunk {
			delete(r.made, op.no)
			op.no = numbers[i]
		}
	}
	return nil
}

// paidAgain gives the operations that have changed since, or all where looking at every
// change would be more.
func (r *resolutions) paidAgain(v *store.View) (ops []int64, err error) {
	changes, err := v.Changed(r.rev, math.MaxInt64, math.MaxInt64, len(r.made)+1)
	if err != nil {
		return nil, err
	}
	if len(changes) > len(r.made) {
		for op := range r.made {
			ops = append(ops, op)
		}
		return ops, nil
	}
	for _, c := range changes {
		if _, ok := r.made[c.No]; ok {
			ops = append(ops, c.No)
		}
	}
	return ops, nil
}

// count asks what payments operations have.
func (r *resolutions) count(v *store.View, found []*resolvedOp, numbers []int64) error {
	for _, op := range found {
		if op.no != 0 {
			numbers = append(numbers, op.no)
		}
	}
	for chunk := range slices.Chunk(numbers, 5000) {
		made, err := v.Made(chunk)
		if err != nil {
			return err
		}
		for _, op := range chunk {
			r.made[op] = made[op]
		}
	}
	return nil
}

func (r *resolutions) make() *closed {
	c := &closed{refs: make(map[int64]decision.Ref, len(r.made)), newest: make([]lastPaid, 0, len(r.made))}
	for _, run := range r.runs {
		for _, op := range run.ops {
			made := r.made[op.no]
			if op.no == 0 || paidSince(op.said, made) {
				continue
			}
			c.refs[op.no] = op.said.Ref
			c.newest = append(c.newest, lastPaid{op.no, made.Newest})
		}
	}
	slices.SortFunc(c.newest, func(a, b lastPaid) int { return cmp.Or(cmp.Compare(b.at, a.at), cmp.Compare(a.op, b.op)) })
	return c
}

// paidSince tells whether an operation was paid again after a person resolved it. One
// that was asked for and is then signed has no more payments than before, but a later
// one.
func paidSince(said *decision.Resolved, made store.Made) bool {
	return said.Payments != nil && made.Payments > *said.Payments || said.Newest != nil && made.Newest > *said.Newest
}
