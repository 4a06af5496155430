package ingest

import (
	"context"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/ingest/event"
	"github.com/settlewatch/settlewatch/store"
)

const (
	damageShown  = 20   // damaged runs a page names
	damageListed = 1000 // that Status names
	// tornPatience is how long an unfinished last line may wait for its end
	// before it counts as damage (design, "Damage").
	tornPatience = 5 * time.Second
)

// damage gives the first fault of each damaged run.
func (x *Indexer) damage(v *store.View, run int64, limit int) ([]Damage, int, error) {
	faults, err := v.FirstFaults(run, limit)
	if err != nil {
		return nil, 0, err
	}
	total, err := v.DamagedRuns(run)
	if err != nil {
		return nil, 0, err
	}
	var out []Damage
	for _, f := range faults {
		out = append(out, Damage{RunID: runID(f.RunKey), Line: f.Line, Offset: f.Offset, Reason: faultText(f.Reason)})
	}
	more := func(runs []store.Run, is func(store.Run) bool, damage func(store.Run) Damage) {
		for _, r := range runs {
			if r.Faults > 0 || !is(r) {
				continue
			}
			if total++; len(out) < limit {
				out = append(out, damage(r))
			}
		}
	}
	twins, err := v.Twins(run)
	if err != nil {
		return nil, 0, err
	}
	more(twins, func(store.Run) bool { return true }, func(r store.Run) Damage {
		return Damage{RunID: runID(r.Key), Reason: twinText}
	})
	torn, err := v.Torn(run)
	if err != nil {
		return nil, 0, err
	}
	more(torn, func(r store.Run) bool { return !r.Twin && x.tornIsDamage(r.Torn, r.Stat.MtimeNs) }, func(r store.Run) Damage {
		return Damage{RunID: runID(r.Key), Line: r.Lines + 1, Offset: r.Covered, Reason: tornText}
	})
	return out, total, nil
}

// damaged tells whether a run is among those that damage names.
func (x *Indexer) damaged(r *store.Run) bool {
	return r.Faults > 0 || r.Twin || x.tornIsDamage(r.Torn, r.Stat.MtimeNs)
}

// tornIsDamage tells whether what stands after a run's last newline counts as
// damage: a whole object, or anything nobody has finished for a while.
func (x *Indexer) tornIsDamage(torn, mtimeNs int64) bool {
	return torn == tornWhole || torn != 0 && x.now().Sub(time.Unix(0, mtimeNs)) >= tornPatience
}

func faultText(reason string) string {
	if rest, ok := strings.CutPrefix(reason, string(event.FaultEntry)+": "); ok {
		if strings.HasPrefix(rest, "is ") {
			return "the entry " + rest
		}
		return "the entry cannot be read: " + rest
	}
	return event.Fault(reason).Message()
}

// Runs lists the run ids in listing order.
func (x *Indexer) Runs(ctx context.Context) ([]string, error) {
	var ids []string
	err := x.Ask(ctx, func(v *store.View) error {
		runs, err := v.Runs()
		ids = ids[:0]
		for _, r := range runs {
			ids = append(ids, runID(r.Key))
		}
		return err
	})
	return ids, err
}

// Status tells what is indexed and how well.
func (x *Indexer) Status(ctx context.Context) (*Status, error) {
	var s *Status
	err := x.Ask(ctx, func(v *store.View) error {
		s = &Status{Root: x.root, Schema: store.Schema()}
		t, err := v.Totals()
		if err != nil {
			return err
		}
		s.Counts = Counts(t)
		if s.Damaged, s.DamagedRuns, err = x.damage(v, 0, damageListed); err != nil {
			return err
		}
		torn, err := v.Torn(0)
		if err != nil {
			return err
		}
		for _, r := range torn {
			s.TornRuns = append(s.TornRuns, Torn{RunID: runID(r.Key), Bytes: r.Stat.Size - r.Covered, Since: time.Unix(0, r.Stat.MtimeNs)})
		}
		latest, err := v.Latest(false)
		if latest != nil {
			s.Newest = runID(latest.Key)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	if x.ix != nil {
		s.Index, s.IndexBytes, s.Private = x.ix.Path(), x.ix.Bytes(), x.private != "" && !x.provisional
	}
	x.mu.Unlock()
	return s, nil
}
