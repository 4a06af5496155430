package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// options is what a run of the benchmark was asked for.
type options struct {
	Quick   bool   `json:"quick"`
	Large   bool   `json:"large"`
	Rounds  int    `json:"rounds"`
	Seed    uint64 `json:"seed"`
	only    []string
	data    string // "" is a directory that is removed at the end
	profile string // directory for CPU profiles
}

func (o options) sets() [giant + 1]set {
	s := fullSets
	if o.Quick {
		s = quickSets
	}
	return [...]set{small: s.small, million: s.million, many: s.many, one: s.one, large: s.large, giant: s.giant}
}

// result is a row as measured.
type result struct {
	row
	Item, Ref sample // of the round in the middle
	On, RefOn string // the sets
	Value     float64
	Rounds    int
	Rough     bool   // the sets were too small for a verdict
	Skipped   string // why it could not be measured
}

// chosen leaves out the groups and rows that were not asked for.
func chosen(o options) ([]group, error) {
	var out []group
	unknown := slices.Clone(o.only)
	for _, g := range groups {
		named := func(r row) bool { return len(o.only) == 0 || slices.Contains(o.only, r.name) }
		unknown = slices.DeleteFunc(unknown, func(n string) bool {
			return slices.ContainsFunc(g.rows, func(r row) bool { return r.name == n })
		})
		if g.large && !o.Large || g.small && o.Large {
			continue
		}
		rows := slices.DeleteFunc(slices.Clone(g.rows), func(r row) bool { return !named(r) })
		if len(rows) > 0 {
			g.rows = rows
			out = append(out, g)
		}
	}
	if len(unknown) > 0 {
		return nil, usageError(fmt.Sprintf("no row is named %s; try: --list", strings.Join(unknown, ", ")))
	}
	if len(out) == 0 {
		return nil, usageError("none of these rows is measured without --large; try: --large")
	}
	return out, nil
}

// probes of a group, each once.
func (g group) probes() []probe {
	var out []probe
	for _, r := range g.rows {
		for _, p := range []probe{r.item, r.ref} {
			if p != (probe{}) && !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// bench runs groups. It does no work itself, so that it stays small and leaves
// the processors to its children.
type bench struct {
	o     options
	log   io.Writer
	sets  [giant + 1]set
	data  string // directory of the roots
	dir   string // directory of indexes and scratch
	warm  map[size]bool
	count int
}

func run(ctx context.Context, o options, log io.Writer) (results []result, err error) {
	todo, err := chosen(o)
	if err != nil {
		return nil, err
	}
	b := &bench{o: o, log: log, sets: o.sets(), data: o.data, warm: map[size]bool{}}
	if b.data == "" {
		if b.data, err = os.MkdirTemp("", "settlewatch-bench-"); err != nil {
			return nil, fmt.Errorf("make room for the data: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(b.data)) }()
	} else if err := os.MkdirAll(b.data, 0o755); err != nil {
		return nil, fmt.Errorf("make room for the data: %w", err)
	}
	// On the file system of the data, because the index usually is.
	if b.dir, err = os.MkdirTemp(b.data, "work-"); err != nil {
		return nil, fmt.Errorf("make room for the indexes: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()

	for i, g := range todo {
		more, err := b.group(ctx, g)
		results = append(results, more...)
		if err != nil {
			return results, err
		}
		if err := b.leave(todo[i+1:]); err != nil {
			return results, err
		}
	}
	return results, nil
}

func (b *bench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.log, format+"\n", args...)
}

func (b *bench) describe(p probe) string {
	if p.rate > 0 {
		return fmt.Sprintf("%s on %s at %d a second", p.work, b.sets[p.on], p.rate)
	}
	return fmt.Sprintf("%s on %s", p.work, b.sets[p.on])
}

func (b *bench) root(s set) string {
	return filepath.Join(b.data, strings.ReplaceAll(s.String(), "/", "-"))
}

func (b *bench) guard(on size) string { return filepath.Join(b.dir, fmt.Sprintf("guard-%d", on)) }

// leave removes what no later group needs.
func (b *bench) leave(later []group) error {
	var needed []size
	for _, g := range later {
		for _, p := range g.probes() {
			needed = append(needed, p.on)
		}
	}
	for on := small; on <= giant; on++ {
		if slices.Contains(needed, on) {
			continue
		}
		delete(b.warm, on)
		if err := os.RemoveAll(b.guard(on)); err != nil {
			return fmt.Errorf("remove an index: %w", err)
		}
		if b.o.data == "" {
			if err := os.RemoveAll(b.root(b.sets[on])); err != nil {
				return fmt.Errorf("remove a set: %w", err)
			}
		}
	}
	return nil
}

func (b *bench) task(p probe) task {
	t := task{
		Work:    p.work,
		Root:    b.root(b.sets[p.on]),
		Set:     b.sets[p.on],
		Seed:    b.o.Seed,
		Rate:    p.rate,
		Seconds: 3,
	}
	if p.warm {
		t.Guard = b.guard(p.on)
	}
	if p.work == "idle" && !b.o.Quick {
		t.Seconds = 60
	}
	if p.rate > 0 && b.o.Quick {
		t.Seconds = 0.5
	}
	return t
}

// one measures a probe once.
func (b *bench) one(ctx context.Context, p probe, profile string) (sample, error) {
	b.count++
	t := b.task(p)
	t.Scratch = filepath.Join(b.dir, fmt.Sprintf("scratch-%d", b.count))
	t.Profile = profile
	if err := os.Mkdir(t.Scratch, 0o755); err != nil {
		return sample{}, fmt.Errorf("make room for %s: %w", p.work, err)
	}
	s, err := measure(ctx, t)
	return s, errors.Join(err, os.RemoveAll(t.Scratch))
}

// prepare makes the sets and indexes a group needs, and reads the sets once so
// that all of its probes find them in memory.
func (b *bench) prepare(ctx context.Context, probes []probe) error {
	ready := map[size]bool{}
	for _, p := range probes {
		s := b.sets[p.on]
		if !ready[p.on] {
			b.say("set %s", s)
			for _, work := range []string{"make", "read"} {
				if _, err := measure(ctx, b.task(probe{work: work, on: p.on})); err != nil {
					return err
				}
			}
			ready[p.on] = true
		}
		if p.warm && !b.warm[p.on] {
			b.say("index of %s", s)
			if err := os.Mkdir(b.guard(p.on), 0o755); err != nil {
				return fmt.Errorf("make room for an index: %w", err)
			}
			if _, err := measure(ctx, b.task(probe{work: "keep", on: p.on, warm: true})); err != nil {
				return err
			}
			b.warm[p.on] = true
		}
	}
	return nil
}

func (b *bench) group(ctx context.Context, g group) ([]result, error) {
	probes := g.probes()
	if err := b.prepare(ctx, probes); err != nil {
		return nil, err
	}
	rounds := b.o.Rounds * g.times
	if g.once {
		rounds = 1
	}
	samples := map[probe][]sample{}
	skipped := map[probe]string{}
	for n := range rounds {
		for i := range probes {
			// Nobody always comes first.
			p := probes[(i+n)%len(probes)]
			if skipped[p] != "" {
				continue
			}
			b.say("round %d/%d: %s", n+1, rounds, b.describe(p))
			s, err := b.one(ctx, p, "")
			if err != nil {
				return nil, err
			}
			skipped[p] = s.Skipped
			samples[p] = append(samples[p], s)
		}
	}
	var out []result
	for _, r := range g.rows {
		res := result{row: r, On: b.sets[r.item.on].String(), Rounds: rounds, Rough: b.o.Quick}
		if !r.alone() {
			res.RefOn = b.sets[r.ref.on].String()
		}
		if res.Skipped = skipped[r.item] + skipped[r.ref]; res.Skipped == "" {
			res.settle(samples[r.item], samples[r.ref])
		}
		out = append(out, res)
	}
	return out, b.profiles(ctx, g)
}

// verdict is the row's; small sets are not judged, because what is fixed cost
// weighs too much in them.
func (r *result) verdict() string {
	if r.Skipped != "" {
		return "not measured: " + r.Skipped
	}
	if r.Rough {
		return "not judged"
	}
	return r.row.verdict(r.Value)
}

// settle takes the median of what the rounds gave, each item by the reference
// that had its turn in the same round.
func (r *result) settle(items, refs []sample) {
	values := make([]float64, len(items))
	for i, item := range items {
		var ref sample
		if !r.alone() {
			ref = refs[i]
		}
		values[i] = r.value(item, ref)
	}
	r.Value = median(values)
	r.Item = middle(items, r.metric)
	if !r.alone() {
		r.Ref = middle(refs, r.reference())
	}
}

// middle is the sample that has the middle value of a metric.
func middle(samples []sample, m metric) sample {
	s := slices.Clone(samples)
	slices.SortStableFunc(s, func(a, b sample) int {
		switch x, y := m.of(a), m.of(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	return s[len(s)/2]
}

// profiles measures each item of the group once more, with a CPU profile; the
// numbers of that turn do not count.
func (b *bench) profiles(ctx context.Context, g group) error {
	if b.o.profile == "" {
		return nil
	}
	done := map[probe]bool{}
	for _, r := range g.rows {
		if p := r.item; !done[p] {
			done[p] = true
			name := strings.NewReplacer(" on ", "-", " at ", "-", " a second", "", "/", "-").Replace(b.describe(p)) + ".pprof"
			b.say("profile: %s", name)
			if _, err := b.one(ctx, p, filepath.Join(b.o.profile, name)); err != nil {
				return err
			}
		}
	}
	return nil
}
