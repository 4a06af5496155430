package guard

import (
	"cmp"
	"context"
	"sort"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/store"
)

// damages remembers the damage of the index, so that a question looks at the runs
// that changed only.
type damages struct {
	mu         sync.Mutex
	generation int64
	rev        int64
	byRun      map[int64][]store.RunDamage
	all        []store.RunDamage // by run id: whatever the index has been through, it is the same
}

// load gives every damage there is in a snapshot.
func (d *damages) load(ix Index, v *store.View) ([]store.RunDamage, error) {
	generation, rev, err := v.Meta()
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if rev < d.rev && generation == d.generation {
		all, err := ix.Damage(v, 0) // an older snapshot than the last one: it is asked by itself
		sortDamage(all)
		return all, err
	}
	if rev == d.rev && generation == d.generation && d.byRun != nil {
		return d.all, nil
	}
	changed, gone, err := v.RunsChanged(d.rev)
	if err != nil {
		return nil, err
	}
	if generation != d.generation || gone > d.rev || d.byRun == nil {
		d.byRun, d.all, d.rev = map[int64][]store.RunDamage{}, nil, 0
	}
	before := len(d.byRun)
	for i := range changed {
		delete(d.byRun, changed[i].No)
	}
	more, err := ix.Damage(v, d.rev)
	if err != nil {
		d.byRun = nil
		return nil, err
	}
	if d.generation, d.rev = generation, rev; len(more) == 0 && len(d.byRun) == before {
		return d.all, nil
	}
	for _, item := range more {
		d.byRun[item.Run] = append(d.byRun[item.Run], item)
	}
	d.all = nil // questions may still look at the one before
	for _, items := range d.byRun {
		d.all = append(d.all, items...)
	}
	sortDamage(d.all)
	return d.all, nil
}

// sortDamage orders damage by run, whatever the index has been through.
func sortDamage(all []store.RunDamage) {
	sort.Slice(all, func(i, j int) bool {
		a, b := &all[i], &all[j]
		return cmp.Or(strings.Compare(a.RunID, b.RunID), cmp.Compare(a.Offset, b.Offset), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Reason, b.Reason)) < 0
	})
}

// unacknowledged gives the damage that counts: what no person has accepted or made
// history of (guard contract, sections 1 and 6); total says how many runs there are.
func (d *damages) unacknowledged(ix Index, v *store.View, s *decision.State, now int64) (items []DamageItem, total int, err error) {
	all, err := d.load(ix, v)
	if err != nil {
		return nil, 0, err
	}
	runs := map[string]bool{}
	keep := func(item DamageItem) {
		runs[item.Run] = true
		items = append(items, item)
	}
	for _, found := range all {
		if found.From > now {
			continue
		}
		run := decision.EncodeID(found.RunID)
		// Everything that begins before accepted is accepted, nothing behind it.
		accepted, ok := s.Acknowledged(run)
		if base, based := s.BaselineOf(run); based {
			accepted, ok = max(accepted, base.Covered), true
		}
		item := DamageItem{Run: run, Line: found.Line, Offset: found.Offset, Reason: found.Reason, Faults: found.Faults, Through: found.Through + 1}
		if ok {
			if found.Through < accepted || found.Kind == store.DamageEntry || found.Kind == store.DamageTwin {
				continue
			}
			if found.Kind == store.DamageFault {
				next, err := v.FaultAfter(found.Run, accepted-1)
				if err != nil {
					return nil, 0, err
				}
				if next == nil {
					continue
				}
				item.Line, item.Offset = next.Line, next.Offset
			}
		}
		keep(item)
	}
	for run, changes := range s.RewrittenRuns() {
		last := changes[len(changes)-1]
		keep(DamageItem{
			// What comes after the change is judged anew, so nothing of the run as it is
			// now is accepted with it.
			Run: run, Offset: last.Covered, Reason: rewrittenWords(last), Faults: int64(len(changes)), Rewritten: true, Removed: last.How == "removed",
		})
	}
	return items, len(runs), nil
}

func rewrittenWords(r *decision.RewrittenState) string {
	switch r.How {
	case "removed":
		return "the run file was removed after it had been indexed"
	case "shrunk":
		return "the run file lost bytes that had been indexed"
	case "replaced":
		return "the run file was replaced by another after it had been indexed"
	default:
		return "bytes of the run file changed after they had been indexed"
	}
}

// Damage lists damage that is not acknowledged.
func (g *Guard) Damage(ctx context.Context) ([]DamageItem, error) {
	var items []DamageItem
	err := g.look(ctx, func(v *store.View, s *decision.State) (err error) {
		items, _, err = g.damages.unacknowledged(g.o.Index, v, s, g.now().UnixMilli())
		return err
	})
	return items, err
}

// Acknowledge accepts the damage of a run, or of every vanished run when run is "",
// and gives how many runs that were.
func (g *Guard) Acknowledge(ctx context.Context, run, note string, by decision.Signer) (int, error) {
	if err := needed(note); err != nil {
		return 0, err
	}
	if err := g.begin(ctx, by); err != nil {
		return 0, err
	}
	count := 0
	_, err := g.decide(ctx, "", nil, func(v *store.View, s *decision.State) ([]decision.Body, error) {
		items, _, err := g.damages.unacknowledged(g.o.Index, v, s, g.now().UnixMilli())
		if err != nil {
			return nil, err
		}
		accepted := map[string]decision.Acknowledged{}
		var order []string
		for _, item := range items {
			if run != "" && item.Run != run || run == "" && !item.Removed {
				continue
			}
			a, listed := accepted[item.Run]
			if !listed {
				order = append(order, item.Run)
			}
			a.Run, a.Note = item.Run, note
			a.Through, a.Faults = max(a.Through, item.Through), a.Faults+item.Faults
			accepted[item.Run] = a
		}
		if count = len(order); count == 0 {
			what := "run " + plain.Quote(run, plain.Detail) + " has no damage that waits"
			if run == "" {
				what = "no run has vanished"
			}
			return nil, errcode.New(errcode.Input, "list it with `settlewatch damage list`", "%s", what)
		}
		var bodies []decision.Body
		for _, id := range order {
			body, err := g.sign(s, accepted[id], by, true)
			if err != nil {
				return nil, err
			}
			bodies = append(bodies, body)
		}
		return bodies, nil
	})
	return count, err
}

// CheckNote holds a note or a reason to what one may be: whoever takes one, a form, a
// screen or a command, comes through here.
func CheckNote(what, text string) error {
	switch n := plain.Units(text); {
	case !utf8.ValidString(text):
		return errcode.New(errcode.Input, "type it again", "the %s is not UTF-8", what)
	case n > plain.Note:
		return errcode.New(errcode.Input, "shorten it; most emoji count as two", "the %s has %s characters, and at most %s are kept", what, plain.Number(int64(n)), plain.Number(plain.Note))
	}
	return nil
}

// needed is CheckNote for a note that must be there.
func needed(note string) error {
	if strings.TrimSpace(note) == "" {
		return errcode.New(errcode.Input, "say with --note why", "the note is missing")
	}
	return CheckNote("note", note)
}
