package guard

import (
	"context"
	"slices"
	"time"

	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/store"
)

// openOperations gives the operations that count as open, of one counterparty or
// of all where names is nil, newest first.
func (g *Guard) openOperations(v *store.View, s *decision.State, names []int64, fn func(*store.OpenOperation, decision.Ref)) error {
	read, err := g.classes.read(v, g.policy, g.buyer, nil)
	if err != nil || len(read.open) == 0 {
		return err
	}
	q := g.newGathering(v, s, nil, g.now())
	resolved, err := q.resolved()
	if err != nil {
		return err
	}
	for o, err := range v.OpenOf(names, read.open, 0, resolved.has) {
		if err != nil {
			return err
		}
		if r, ok := q.stillOpen(&o); ok {
			fn(&o, r) // blind ones too, whatever the policy makes of them in a verdict
		}
	}
	return nil
}

// Open lists operations that count as open, newest first, for a resolution in bulk.
func (g *Guard) Open(ctx context.Context, q OpenQuery) ([]OpenOperation, error) {
	var out []OpenOperation
	err := g.look(ctx, func(v *store.View, s *decision.State) (err error) {
		out = nil
		var names []int64
		if q.Counterparty != "" {
			all := g.policy.Expand(typedNames(q.Counterparty)...)
			if names, err = v.WordNumbers(all); err != nil || len(names) == 0 {
				return err
			}
		}
		if q.Run != "" {
			runs, err := v.RunsByKey(keyOf(q.Run))
			if err != nil {
				return err
			}
			if len(runs) == 0 {
				return errcode.New(errcode.RunNotFound, "list operations with `settlewatch list`", "no run has the id %s", plain.Quote(q.Run, plain.Detail))
			}
		}
		var ops []int64
		err = g.openOperations(v, s, names, func(o *store.OpenOperation, r decision.Ref) {
			if q.Blind && !o.Blind || q.Run != "" && r.Run != q.Run {
				return
			}
			out = append(out, OpenOperation{Ref: r, Blind: o.Blind})
			ops = append(ops, o.No)
		})
		if err != nil {
			return err
		}
		return g.describe(v, out, ops)
	})
	if err != nil || q.Before.IsZero() {
		return out, err
	}
	kept := out[:0]
	for _, o := range out {
		// One that cannot be dated may be of any time.
		if !o.At.IsZero() && o.At.Before(q.Before) {
			kept = append(kept, o)
		}
	}
	return kept, nil
}

// describe fills in whom operations paid, how much and when.
func (g *Guard) describe(v *store.View, out []OpenOperation, ops []int64) error {
	place := make(map[int64]int, len(ops))
	for i, no := range ops {
		place[no] = i
	}
	const chunk = 500
	for len(ops) > 0 {
		n := min(chunk, len(ops))
		paid, err := v.PaymentsOfOperations(ops[:n])
		if err != nil {
			return err
		}
		ops = ops[n:]
		var numbers []int64
		for i := range paid {
			numbers = append(numbers, paid[i].Payee, paid[i].Host, paid[i].Asset)
		}
		words, err := v.Words(numbers)
		if err != nil {
			return err
		}
		for i := range paid {
			p := &paid[i]
			o := &out[place[p.Op]]
			if o.Shown.Payments++; o.Shown.Payments == 1 || p.At > o.Shown.Newest {
				o.Shown.Newest = p.At
			}
			if o.Counterparty != "" || o.Amount != "" {
				continue // described by its first payment
			}
			if o.Counterparty = words[p.Payee]; o.Counterparty == "" {
				o.Counterparty = words[p.Host]
			}
			o.Counterparty, o.Amount, o.Asset = payment.Display(o.Counterparty), p.Amount, words[p.Asset]
			if p.HasAt {
				o.At = time.UnixMilli(p.At).UTC()
			}
		}
	}
	return nil
}

// Resolutions gives what people found out about operations, in the order of refs,
// nil where nobody has said anything, or the operation was paid again since (guard
// contract, section 6). DecidedBy says in the words of answers who it was: a name that
// no operator's key vouches for is anybody's, and neither it nor the key is given.
func (g *Guard) Resolutions(ctx context.Context, refs []decision.Ref) ([]*decision.Resolved, error) {
	s, err := g.log.Read(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]*decision.Resolved, len(refs))
	if !slices.ContainsFunc(refs, func(r decision.Ref) bool { return s.Resolution(r) != nil }) {
		return out, nil
	}
	var numbers []int64
	var closed *closed
	if err := g.o.Index.AskSynced(ctx, func(v *store.View) (err error) {
		if numbers, err = numbersOf(v, refs); err == nil {
			closed, err = g.resolutions.of(v, s)
		}
		return err
	}); err != nil {
		return nil, err
	}
	for i, ref := range refs {
		found := s.Resolution(ref)
		if found == nil || !closed.has(numbers[i]) {
			continue
		}
		said := *found
		said.Signed = decision.Signed{DecidedBy: unsigned}
		for _, o := range g.policy.Operators {
			// Where there are operators the log counts only what one of them signed.
			if o.PublicKey == found.Key {
				said.Signed = found.Signed
				said.DecidedBy = o.Name
			}
		}
		out[i] = &said
	}
	return out, nil
}

// Baseline makes history of everything open or damaged until now, and gives how
// much that was (guard contract, section 6).
func (g *Guard) Baseline(ctx context.Context, note string, by decision.Signer) (open, damaged int, err error) {
	if err := needed(note); err != nil {
		return 0, 0, err
	}
	if err := g.begin(ctx, by); err != nil {
		return 0, 0, err
	}
	_, err = g.decide(ctx, "", nil, func(v *store.View, s *decision.State) ([]decision.Body, error) {
		open = 0
		if err := g.openOperations(v, s, nil, func(*store.OpenOperation, decision.Ref) { open++ }); err != nil {
			return nil, err
		}
		items, total, err := g.damages.unacknowledged(g.o.Index, v, s, g.now().UnixMilli())
		if err != nil {
			return nil, err
		}
		damaged = total
		runs, err := v.Runs()
		if err != nil {
			return nil, err
		}
		body := decision.Baseline{Through: g.now().UTC().Truncate(time.Millisecond), Open: open, Damaged: damaged, Note: note, Runs: []decision.Covered{}}
		for i := range runs {
			run := &runs[i]
			body.Runs = append(body.Runs, covered(run))
		}
		signed, err := g.sign(s, body, by, true)
		if err != nil {
			return nil, err
		}
		bodies := append(g.seen.lines(s), signed)
		// Vanished evidence has no offset to be history up to: it is acknowledged.
		for _, item := range items {
			if !item.Rewritten {
				continue
			}
			ack, err := g.sign(s, decision.Acknowledged{Run: item.Run, Through: item.Through, Faults: item.Faults, Note: note}, by, true)
			if err != nil {
				return nil, err
			}
			bodies = append(bodies, ack)
		}
		return bodies, nil
	})
	return open, damaged, err
}

// Standing tells how the guard stands.
func (g *Guard) Standing(ctx context.Context) (*Standing, error) {
	out := &Standing{Policy: g.o.PolicyPath, PolicyHash: g.hash, Log: g.log.Path(), Operators: g.policy.Operators}
	if g.o.Fault != nil {
		out.Ready = why(g.o.Fault)
	}
	// What vanished is in the log once the index has been brought up to date.
	synced := g.o.Index.Sync(ctx)
	s, err := g.log.Read(ctx)
	if unsound := asUnsound(err); unsound != nil {
		out.Unsound, s = unsound.Error(), unsound.State
	} else if err != nil {
		out.Ready = why(err)
		return out, nil
	}
	out.Lines, out.Torn = s.Lines(), s.Torn() > 0
	out.Frozen = s.AllFrozen()
	if g.frozenByFile() {
		out.Frozen = append([]decision.Frozen{{Scope: decision.ScopeAll, Reason: "the file " + frozenFile}}, out.Frozen...)
	}
	if synced != nil && out.Ready == "" {
		out.Ready = why(synced)
	}
	now := g.now()
	for r := range s.Reviews() {
		if r.Status(now) == decision.StatusPending {
			out.Pending++
		}
	}
	out.Suggestion = g.suggestion(s, now)
	if last := s.Policy(); last != nil {
		out.OtherPolicy, out.LoggedPath = last.Hash != g.hash, last.Path
	}
	err = g.ask(ctx, func(v *store.View) error {
		m, err := g.match(v, s, now)
		if err != nil {
			return err
		}
		out.Holds = len(m.active)
		out.Open = 0
		if err := g.openOperations(v, s, nil, func(*store.OpenOperation, decision.Ref) { out.Open++ }); err != nil {
			return err
		}
		_, out.Damaged, err = g.damages.unacknowledged(g.o.Index, v, s, now.UnixMilli())
		return err
	})
	if err != nil && out.Ready == "" {
		out.Ready = why(err)
	}
	if out.Open+out.Damaged == 0 {
		out.Suggestion = "" // there is no past left to make history of
	}
	return out, nil
}
