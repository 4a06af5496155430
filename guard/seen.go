package guard

import (
	"context"
	"sync"
	"time"

	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/store"
)

// seen compares the index with what the log remembers of it, so that evidence that
// vanished while the index was lost, or nobody watched, is noticed (guard contract,
// section 7). A comparison of everything is made once for each filling of the index;
// after that the runs that changed are looked at.
type seen struct {
	mu         sync.Mutex
	generation int64
	rev        int64            // what was changed up to here has been compared
	trusted    map[string]int64 // by run: the epoch in which its beginning was found to be what was seen
}

// seenEvery is how often what was seen is written down at least, while it changes.
const seenEvery = 10 * time.Minute

// glance is what a look at the index found that the log does not say yet.
type glance struct {
	lost            []decision.Body    // rewritten lines
	fresh           []decision.Covered // runs that changed since the log last spoke of them
	generation, rev int64
}

// lines are what is to be written of a glance.
func (l *glance) lines() []decision.Body {
	if len(l.fresh) == 0 {
		return l.lost
	}
	return append(l.lost, decision.Seen{Runs: l.fresh})
}

// written takes note that the lines of a glance are on disk: nothing older has to be
// compared again.
func (c *seen) written(l *glance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l != nil && c.generation == l.generation {
		c.rev = max(c.rev, l.rev)
	}
}

// glance compares what changed in the index with what the log says was seen.
func (g *Guard) glance(ctx context.Context, v *store.View, s *decision.State) (*glance, error) {
	c := &g.seen
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &glance{}
	var err error
	if l.generation, l.rev, err = v.Meta(); err != nil {
		return nil, err
	}
	if l.generation != c.generation {
		c.generation, c.rev, c.trusted = l.generation, 0, map[string]int64{}
	}
	changed, gone, err := v.RunsChanged(c.rev)
	if err != nil {
		return nil, err
	}
	if c.rev == 0 {
		if changed, err = v.Runs(); err != nil {
			return nil, err
		}
	}
	if c.rev == 0 || gone > c.rev {
		if l.lost, err = vanished(v, s); err != nil {
			return nil, err
		}
	}
	for i := range changed {
		run := &changed[i]
		now := decision.Covered{Run: decision.EncodeID(textOf(run.Key)), Covered: run.Covered, Events: run.Events, CRC: uint32(run.CRC)}
		before, known := s.Seen(now.Run)
		if known && before == now || !known && now.Covered == 0 {
			continue
		}
		if known && !run.Twin {
			how, err := g.differs(ctx, c, run, before, now)
			if err != nil {
				return nil, err
			}
			if how != "" {
				l.lost = append(l.lost, decision.Rewritten{Run: now.Run, Covered: before.Covered, EventsBefore: before.Events, EventsAfter: now.Events, How: how})
			}
		}
		c.trusted[now.Run] = run.Epoch
		l.fresh = append(l.fresh, now)
	}
	return l, nil
}

// differs says how a run is no longer what was seen of it, "" when it is or has only
// grown.
func (g *Guard) differs(ctx context.Context, c *seen, run *store.Run, before, now decision.Covered) (string, error) {
	switch {
	case now.Covered < before.Covered:
		return "shrunk", nil
	case now.Covered == before.Covered:
		if now.CRC != before.CRC {
			return "edited", nil
		}
		return "", nil
	}
	if epoch, ok := c.trusted[now.Run]; ok && epoch == run.Epoch {
		return "", nil // it was what was seen, and the indexer has only added to it since
	}
	crc, ok, err := g.o.Index.Prefix(ctx, run.File, before.Covered)
	if err != nil {
		return "", err
	}
	if !ok || crc != before.CRC {
		return "edited", nil
	}
	return "", nil
}

// vanished gives the lines about runs that were seen and are no longer there.
func vanished(v *store.View, s *decision.State) ([]decision.Body, error) {
	var bodies []decision.Body
	for before := range s.SeenRuns() {
		runs, err := v.RunsByKey(keyOf(before.Run))
		if err != nil {
			return nil, err
		}
		if len(runs) == 0 && before.Covered > 0 {
			bodies = append(bodies, decision.Rewritten{Run: before.Run, Covered: before.Covered, EventsBefore: before.Events, How: "removed"})
		}
	}
	return bodies, nil
}

// Noticed takes note of vanished evidence; the indexer calls it before it forgets
// what it knew. Where the call comes out of a check that holds the log already, the
// check writes it down itself.
func (g *Guard) Noticed(ctx context.Context, r Rewrite) error {
	if held, ok := ctx.Value(noticing{}).(*notices); ok {
		held.add(r.line())
		return nil
	}
	return Notice(ctx, g.log, r)
}

func (r Rewrite) line() decision.Rewritten {
	return decision.Rewritten{Run: decision.EncodeID(r.Run), Covered: r.Covered, EventsBefore: r.EventsBefore, EventsAfter: r.EventsAfter, How: r.How}
}

// Notice writes vanished evidence into a log, unless the log says so already.
func Notice(ctx context.Context, log *decision.Log, r Rewrite) error {
	_, err := log.Update(ctx, "", func(s *decision.State) ([]decision.Body, error) {
		if told(s, r.line()) {
			return nil, nil
		}
		return []decision.Body{r.line()}, nil
	})
	return err
}

// told reports whether the last thing the log says of a run is this.
func told(s *decision.State, body decision.Rewritten) bool {
	all := s.Rewritten(body.Run)
	return len(all) > 0 && all[len(all)-1].Rewritten == body
}

// notices are rewrites noticed while the log's lock was held.
type notices struct {
	mu  sync.Mutex
	all []decision.Rewritten
}

type noticing struct{}

func (n *notices) add(r decision.Rewritten) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = append(n.all, r)
}

// take gives what is new among the notices.
func (n *notices) take(s *decision.State) []decision.Rewritten {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []decision.Rewritten
	for _, r := range n.all {
		if !told(s, r) && (len(out) == 0 || out[len(out)-1] != r) {
			out = append(out, r)
		}
	}
	return out
}

// record writes down what was seen where something changed.
func (g *Guard) recordSeen(ctx context.Context) error {
	if g.o.Fault != nil {
		return nil
	}
	var l *glance
	_, err := g.decide(ctx, "", func(v *store.View, s *decision.State) (bodies []decision.Body, err error) {
		if l, err = g.glance(ctx, v, s); err != nil {
			return nil, err
		}
		return l.lines(), nil
	})
	if err == nil {
		g.seen.written(l)
	}
	return err
}

// Watch keeps the record of what was seen up to date until ctx ends.
func (g *Guard) Watch(ctx context.Context) error {
	ticker := time.NewTicker(seenEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			if err := g.recordSeen(ctx); err != nil && ctx.Err() == nil {
				g.say.Warn("what was seen could not be written down", "error", err)
			}
		}
	}
}

// Close records what was seen.
func (g *Guard) Close(ctx context.Context) error { return g.recordSeen(ctx) }
