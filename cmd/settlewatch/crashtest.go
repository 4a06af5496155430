package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/crash"
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
paid before a hold
                   somebody pays without a hold, then others of the same amount ask
                   with one
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

func (a *app) runCrashTest(ctx context.Context, o crashOptions) error {
	if err := positive("time", o.time); err != nil {
		return err
	}
	if names := crash.Scenarios(); o.scenario != "" && !slices.Contains(names, o.scenario) {
		return usage("--scenario takes %s, not %s", strings.Join(names, "; "), plain.Quote(o.scenario, plain.Detail))
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
		return errcode.Wrap(errcode.Bare(err), errcode.Internal, "a writable temporary directory in TMPDIR", "make a temporary directory")
	}
	test := crash.Options{Scenario: o.scenario, Seed: o.seed, Time: o.time, Now: a.env.now, Executable: exe, Dir: dir, Unheld: o.unheld, Mild: o.mild}
	if terminal(a.stderr) {
		test.Note = func(name string) { a.note("%s ...", name) }
	}
	c := crashReport{seed: o.seed, kept: dir}
	c.all, err = crash.Run(ctx, test)
	failed := slices.ContainsFunc(c.all, func(r crash.Outcome) bool { return r.Failed() })
	if !failed {
		// What went wrong can be looked at, what did not leaves nothing behind.
		if rerr := os.RemoveAll(dir); err == nil && rerr != nil {
			err = errcode.Wrap(errcode.Bare(rerr), errcode.Internal, "remove it by hand", "remove %s", plain.Quote(dir, plain.Detail))
		}
		c.kept = ""
	}
	if err != nil {
		return err
	}
	c.took = a.env.now().Sub(began)
	if o.json {
		a.answer(c.json())
	} else {
		a.showCrashTest(&c)
	}
	if failed {
		return unsound
	}
	return nil
}

// crashReport is what a crash test came to.
type crashReport struct {
	all  []crash.Outcome
	seed int64
	took time.Duration
	kept string // directory that is left to be looked at; "" for none
}

func (a *app) showCrashTest(c *crashReport) {
	t := table{head: []string{"SCENARIO", "PROCESSES", "KILLS", "ALLOWED", "REFUSED", "PAID", "CAP", "OVER"}}
	processes, kills, over, problems := 0, 0, false, 0
	for _, r := range c.all {
		style := ""
		if r.Failed() {
			style = red
		}
		t.row(style, r.Name, fmt.Sprint(r.Processes), fmt.Sprint(r.Kills), fmt.Sprint(r.Allowed), fmt.Sprint(r.Refused),
			r.Paid(), capText(&r), r.Over())
		if !r.More {
			processes += r.Processes
			kills += r.Kills
		}
		over = over || r.IsOver()
		problems += len(r.Problems)
	}
	a.show(&t)
	a.say("")
	for _, r := range c.all {
		for _, p := range r.Problems {
			a.put(red, "! ", r.Name+": "+p)
		}
		for _, why := range r.Unjudged {
			a.put(yellow, "- ", fmt.Sprintf("%s: the guard could not judge, and allowed nothing: %s", r.Name, why))
		}
	}
	end := fmt.Sprintf("%d processes, %d of them killed, in %s; seed %d", processes, kills, shortly(c.took), c.seed)
	switch {
	case over:
		a.put(red, "", "money went over a cap ("+end+")")
	case problems > 0:
		a.put(red, "", "no money went over a cap, but not everything was shown ("+end+")")
	default:
		a.put(green, "", "no money went over a cap ("+end+")")
	}
	a.put("", "", "paid is added up from the run files alone, after everybody was done")
	if c.kept != "" {
		a.put("", "", "what happened is kept in "+c.kept)
	}
}

func capText(r *crash.Outcome) string {
	if r.Caps == 1 {
		return r.Cap()
	}
	return fmt.Sprintf("%d x %s", r.Caps, r.Cap())
}

func (c *crashReport) json() object {
	rows := make([]object, len(c.all))
	sound := true
	for i, r := range c.all {
		sound = sound && !r.Failed()
		problems, unjudged := make([]string, len(r.Problems)), make([]string, len(r.Unjudged))
		for i, p := range r.Problems {
			problems[i] = plain.Clean(p, plain.Explanation)
		}
		for i, why := range r.Unjudged {
			unjudged[i] = plain.Clean(why, plain.Explanation)
		}
		rows[i] = object{
			{"scenario", r.Name}, {"processes", r.Processes}, {"kills", r.Kills}, {"killed_at", countsOf(r.KilledAt)},
			{"allowed", r.Allowed}, {"refused", r.Refused}, {"refused_by", countsOf(r.RefusedBy)},
			{"asset", r.Asset()}, {"paid", r.Paid()}, {"cap", r.Cap()},
			{"caps", r.Caps}, {"over", r.Over()}, {"problems", problems}, {"unjudged", unjudged},
		}
	}
	return object{{"shape", "crash-test/1"}, {"sound", sound}, {"seed", c.seed}, {"milliseconds", c.took.Milliseconds()}, {"scenarios", rows}}.add("kept", c.kept)
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
