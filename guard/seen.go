package guard

import (
	"context"
	"maps"
	"slices"
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
	// What is still to be written: how far runs are covered, and what vanished.
	pending map[string]decision.Covered
	lost    []decision.Rewritten
}

// seenEvery is how often what was seen is written down at least, while it changes.
const seenEvery = 10 * time.Minute

// lost compares what changed in the index with what the log says was seen, and gives
// the lines about evidence that vanished.
func (g *Guard) lost(ctx context.Context, v *store.View, s *decision.State) ([]decision.Body, error) {
	generation, rev, err := v.Meta()
	if err != nil {
		return nil, err
	}
	c := &g.seen
	c.mu.Lock()
	defer c.mu.Unlock()
	if generation != c.generation || c.trusted == nil {
		c.generation, c.rev, c.trusted, c.pending = generation, -1, map[string]int64{}, map[string]decision.Covered{}
	}
	if rev > c.rev {
		if err := g.compare(ctx, v, s, c); err != nil {
			return nil, err
		}
		c.rev = rev
	}
	var lines []decision.Body
	for _, r := range c.lost {
		if !told(s, r) {
			lines = append(lines, r)
		}
	}
	return lines, nil
}

func (g *Guard) compare(ctx context.Context, v *store.View, s *decision.State, c *seen) error {
	whole := c.rev < 0
	var changed []store.Run
	var err error
	if whole {
		changed, err = v.Runs()
	} else {
		var gone int64
		changed, gone, err = v.RunsChanged(c.rev)
		whole = gone > c.rev
	}
	if err != nil {
		return err
	}
	var lost []decision.Rewritten
	if whole {
		if lost, err = vanished(v, s); err != nil {
			return err
		}
		// What is no longer there is not written down as seen.
		for run := range c.pending {
			runs, err := v.RunsByKey(keyOf(run))
			if err != nil {
				return err
			}
			if len(runs) == 0 {
				delete(c.pending, run)
			}
		}
	}
	for i := range changed {
		run := &changed[i]
		now := covered(run)
		before, known := s.Seen(now.Run)
		if known && before == now || !known && now.Covered == 0 {
			continue
		}
		if known && !run.Twin {
			how, err := g.differs(ctx, c, run, before, now)
			if err != nil {
				return err
			}
			if how != "" {
				lost = append(lost, decision.Rewritten{Run: now.Run, Covered: before.Covered, EventsBefore: before.Events, EventsAfter: now.Events, How: how})
			}
		}
		c.trusted[now.Run] = run.Epoch
		c.pending[now.Run] = now
	}
	c.lost = append(c.lost, lost...)
	return nil
}

func covered(run *store.Run) decision.Covered {
	return decision.Covered{Run: decision.EncodeID(textOf(run.Key)), Covered: run.Covered, Events: run.Events, CRC: uint32(run.CRC)}
}

// lines are what is to be written of runs that changed since the log last spoke of
// them.
func (c *seen) lines(s *decision.State) []decision.Body {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle(s)
	if len(c.pending) == 0 {
		return nil
	}
	var line decision.Seen
	for _, run := range slices.Sorted(maps.Keys(c.pending)) {
		line.Runs = append(line.Runs, c.pending[run])
	}
	return []decision.Body{line}
}

// settle forgets what the log says by now.
func (c *seen) settle(s *decision.State) {
	maps.DeleteFunc(c.pending, func(run string, now decision.Covered) bool {
		before, known := s.Seen(run)
		return known && before == now
	})
	c.lost = slices.DeleteFunc(c.lost, func(r decision.Rewritten) bool { return told(s, r) })
}

// written takes note of what a write has put into the log.
func (c *seen) written(s *decision.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle(s)
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
func vanished(v *store.View, s *decision.State) ([]decision.Rewritten, error) {
	var bodies []decision.Rewritten
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
func (n *notices) take(s *decision.State) []decision.Body {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []decision.Body
	for _, r := range n.all {
		if !told(s, r) && (len(out) == 0 || out[len(out)-1] != r) {
			out = append(out, r)
		}
	}
	return out
}

// recordSeen writes down what was seen where something changed.
func (g *Guard) recordSeen(ctx context.Context) error {
	if g.o.Fault != nil {
		return nil //nolint:nilerr // a guard that cannot judge writes nothing
	}
	_, err := g.decide(ctx, "", nil, func(_ *store.View, s *decision.State) ([]decision.Body, error) {
		lines := g.seen.lines(s)
		if policy := g.policyLine(s); len(lines) == 0 && policy != nil && s.Lines() > 0 {
			lines = append(lines, policy) // update writes it in front of other lines only
		}
		return lines, nil
	})
	return err
}

// Watch names the policy in the log, where it is another one than the log last named,
// and keeps the record of what was seen up to date until ctx ends.
func (g *Guard) Watch(ctx context.Context) error {
	if err := g.recordSeen(ctx); err != nil && ctx.Err() == nil {
		g.say.Warn("the decisions log could not be written", "error", err)
	}
	g.unmanned(ctx)
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

// unmanned warns where acts of people count without a signature though the log knows
// operators: a server that was started without its policy file is worth less than it
// looks.
func (g *Guard) unmanned(ctx context.Context) {
	s, err := g.log.Read(ctx)
	if err != nil || len(g.policy.Operators) > 0 || s.MannedPolicy() == nil {
		return
	}
	g.say.Warn("what people permit counts here without a signature: the policy of this server names no operators, though one in the decisions log does; start it with --guard-config if that is its policy",
		"policy", s.MannedPolicy().Path)
}

// Close records what was seen.
func (g *Guard) Close(ctx context.Context) error { return g.recordSeen(ctx) }
