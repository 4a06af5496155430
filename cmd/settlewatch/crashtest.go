package main

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

type crashOptions struct {
	json     bool
	seed     int64
	time     time.Duration
	scenario string // "" for all

	// Tests see the crash test fail by these.
	unheld bool // buyers ask without a hold
	mild   bool // nobody is killed, nothing is deleted, cut or set back
}

func (a *app) crashTest() *cobra.Command {
	o := crashOptions{}
	c := a.command(&cobra.Command{
		Use:   "crash-test [flags]",
		Short: "try on this machine whether money can get past a cap",
		Long: `Start buyers, each a process of its own that asks the guard before it pays, let them
race, kill them with kill -9, delete the index and cut the decisions log under them, move
their clocks, and then add up from the run files alone what was paid. Nothing may be over
the cap. All of it happens in a temporary directory; no money is involved and nobody is
dialled.

race, one seller   ten buyers at once, each for the cap less its smallest unit
race, one total    the same, each at another seller, under one limit of all payments
paid before a hold somebody pays without a hold, then others of the same amount ask with one
kill -9            between verdict and log, between allow and payment, in the middle of
                   a payment's line, and at any moment
restart, no index  the index is deleted, half of the buyers start again
cut log            the log loses its end, within a line and between lines, or a line,
                   with a checkpoint kept elsewhere and without
two assets         6 and 18 decimals under a cap each, at one seller
midnight           23:59 and 00:01 are one window, the next evening is another
clock set back     by an hour, while a payment that was allowed is not made yet

A scenario in which the fault did not happen fails as well: it has shown nothing.

Exit status 0 when nothing was over a cap and every fault happened, 3 otherwise.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error { return a.runCrashTest(ctx, o) })
	f := c.Flags()
	jsonFlag(f, &o.json)
	f.Int64Var(&o.seed, "seed", 0, "choose who is killed when as an earlier run did (default: anew each time)")
	f.StringVar(&o.scenario, "scenario", "", "only one of them, by its name")
	f.DurationVar(&o.time, "time", 15*time.Second, "about how long to go on; it takes what one round of each needs")
	c.AddCommand(a.crashBuyer())
	return c
}

// outcome is a row of the report.
type outcome struct {
	name             string
	more             bool // of the scenario of the row above, in another asset
	processes, kills int
	killedAt         map[string]int // by place
	verdicts                        // in the asset of the row
	ledger           ledger
	caps             int // how many there were: one, or one of each seller
	paid, over       *big.Int
	problems         []string // besides money over the cap: what was not shown, or went wrong
	unjudged         []string // why the guard answered not_ready
}

func (r *outcome) failed() bool { return r.over.Sign() != 0 || len(r.problems) > 0 }

// crash is one crash test.
type crash struct {
	a    *app
	o    crashOptions
	exe  string
	dir  string
	rand *rand.Rand
}

func (a *app) runCrashTest(ctx context.Context, o crashOptions) error {
	if err := positive("time", o.time); err != nil {
		return err
	}
	if o.scenario != "" {
		var names []string
		for _, s := range scenarios {
			names = append(names, s.name)
		}
		if !slices.Contains(names, o.scenario) {
			return usage("--scenario takes %s, not %s", strings.Join(names, "; "), plain.Quote(o.scenario, plain.Detail))
		}
	}
	began := a.env.now()
	if o.seed == 0 {
		o.seed = began.UnixMilli()
	}
	exe, err := a.env.executable()
	if err != nil {
		return errcode.Wrap(err, errcode.Internal, "run it from a file", "find this program")
	}
	dir, err := os.MkdirTemp("", "settlewatch-crash-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return errcode.Wrap(bare(err), errcode.Internal, "a writable temporary directory in TMPDIR", "make a temporary directory")
	}
	c := &crash{a: a, o: o, exe: exe, dir: dir, rand: rand.New(rand.NewPCG(uint64(o.seed), 0))}
	all, err := c.all(ctx)
	failed := slices.ContainsFunc(all, func(r *outcome) bool { return r.failed() })
	if !failed {
		// What went wrong can be looked at, what did not leaves nothing behind.
		if rerr := os.RemoveAll(dir); err == nil && rerr != nil {
			err = errcode.Wrap(bare(rerr), errcode.Internal, "remove it by hand", "remove %s", plain.Quote(dir, plain.Detail))
		}
		c.dir = ""
	}
	if err != nil {
		return err
	}
	took := a.env.now().Sub(began)
	if o.json {
		a.answer(c.json(all, took))
	} else {
		c.show(all, took)
	}
	if failed {
		return unsound
	}
	return nil
}

// all runs the scenarios one after the other: each is to have the machine to itself.
func (c *crash) all(ctx context.Context) ([]*outcome, error) {
	var all []*outcome
	began, parts := c.a.env.now(), 0.0
	for _, s := range scenarios {
		parts += s.part
		if c.o.scenario != "" {
			parts = 1
		}
		if c.o.scenario != "" && c.o.scenario != s.name {
			continue
		}
		if terminal(c.a.stderr) {
			c.a.note("%s ...", s.name)
		}
		// Time that one has not used is the next one's.
		until := began.Add(time.Duration(float64(c.o.time) * parts))
		rows, err := c.play(ctx, s, until)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	return all, nil
}

// play runs one scenario and measures it.
func (c *crash) play(ctx context.Context, s scenario, until time.Time) ([]*outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &stage{crash: c, ctx: ctx, scenario: s, until: until, seen: newSightings()}
	err := s.play(t)
	t.clear()
	if err == nil {
		err = ctx.Err() // who was interrupted has shown nothing
	}
	if err != nil {
		return nil, err
	}
	return t.outcomes()
}

func (c *crash) show(all []*outcome, took time.Duration) {
	a := c.a
	t := table{head: []string{"SCENARIO", "PROCESSES", "KILLS", "ALLOWED", "REFUSED", "PAID", "CAP", "OVER"}}
	processes, kills, over, problems := 0, 0, false, 0
	for _, r := range all {
		style := ""
		if r.failed() {
			style = red
		}
		t.row(style, r.name, fmt.Sprint(r.processes), fmt.Sprint(r.kills), fmt.Sprint(r.allowed), fmt.Sprint(r.refused),
			display(r.paid, r.ledger.decimals), r.capText(), r.overText())
		if !r.more {
			processes += r.processes
			kills += r.kills
		}
		over = over || r.over.Sign() != 0
		problems += len(r.problems)
	}
	a.show(&t)
	a.say("")
	for _, r := range all {
		for _, p := range r.problems {
			a.put(red, "! ", r.name+": "+p)
		}
		for _, why := range r.unjudged {
			a.put(yellow, "- ", fmt.Sprintf("%s: the guard could not judge, and allowed nothing: %s", r.name, why))
		}
	}
	end := fmt.Sprintf("%d processes, %d of them killed, in %s; seed %d", processes, kills, shortly(took), c.o.seed)
	switch {
	case over:
		a.put(red, "", "money went over a cap ("+end+")")
	case problems > 0:
		a.put(red, "", "no money went over a cap, but not everything was shown ("+end+")")
	default:
		a.put(green, "", "no money went over a cap ("+end+")")
	}
	a.put("", "", "paid is added up from the run files alone, after everybody was done")
	if c.dir != "" {
		a.put("", "", "what happened is kept in "+c.dir)
	}
}

func (r *outcome) capText() string {
	one := display(r.ledger.cap, r.ledger.decimals)
	if r.caps == 1 {
		return one
	}
	return fmt.Sprintf("%d x %s", r.caps, one)
}

func (r *outcome) overText() string {
	if r.over.Sign() == 0 {
		return "0"
	}
	return display(r.over, r.ledger.decimals)
}

func (c *crash) json(all []*outcome, took time.Duration) object {
	rows := make([]object, len(all))
	sound := true
	for i, r := range all {
		sound = sound && !r.failed()
		problems, unjudged := make([]string, len(r.problems)), make([]string, len(r.unjudged))
		for i, p := range r.problems {
			problems[i] = plain.Clean(p, plain.Explanation)
		}
		for i, why := range r.unjudged {
			unjudged[i] = plain.Clean(why, plain.Explanation)
		}
		rows[i] = object{
			{"scenario", r.name}, {"processes", r.processes}, {"kills", r.kills}, {"killed_at", countsOf(r.killedAt)},
			{"allowed", r.allowed}, {"refused", r.refused}, {"refused_by", countsOf(r.refusedBy)},
			{"asset", r.ledger.asset}, {"paid", display(r.paid, r.ledger.decimals)}, {"cap", display(r.ledger.cap, r.ledger.decimals)},
			{"caps", r.caps}, {"over", r.overText()}, {"problems", problems}, {"unjudged", unjudged},
		}
	}
	return object{{"shape", "crash-test/1"}, {"sound", sound}, {"seed", c.o.seed}, {"milliseconds", took.Milliseconds()}, {"scenarios", rows}}.add("kept", c.dir)
}

func countsOf(counts map[string]int) object {
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	slices.Sort(names)
	o := object{}
	for _, name := range names {
		o = append(o, member{name, counts[name]})
	}
	return o
}
