package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/plain"
)

func (a *app) status() *cobra.Command {
	var o guarded
	var every bool
	c := a.command(&cobra.Command{
		Use:   "status [flags]",
		Short: "show what the index holds, which runs are damaged and how the guard stands",
		Long: `Show what the index holds, where it is, the newest runs, damaged runs and unfinished
lines, then the guard: whether it can judge, by which policy, and what waits for a
person. The latest run is the last by file name, which recorders make of the time.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		x, err := a.open(ctx, o.rootOptions)
		if err != nil {
			return err
		}
		defer x.Close()
		s, err := x.Status(ctx)
		if err != nil {
			return err
		}
		var runs []string
		if every || !o.json {
			if runs, err = x.Runs(ctx); err != nil {
				return err
			}
		}
		if s.Counts.Runs == 0 {
			a.noteEmpty(o.rootOptions)
		}
		stands := a.standing(ctx, x, o.guardOptions)
		if o.json {
			answer := append(statusJSON(s), member{"guard", standingJSON(stands)})
			if every {
				answer = append(answer, member{"run_ids", runs})
			}
			a.answer(answer)
			return nil
		}
		a.showStatus(s, runs, every, o.rootOptions)
		a.say("")
		a.showStanding(stands, o.after)
		return nil
	})
	o.flags(c.Flags())
	c.Flags().BoolVar(&every, "runs", false, "list the id of every run, the latest last")
	return c
}

func statusJSON(s *ingest.Status) object {
	o := object{{"shape", "status/1"}, {"root", s.Root}, {"index", s.Index}, {"private_index", s.Private},
		{"schema", s.Schema}, {"index_bytes", s.IndexBytes}}
	o = append(o, countsJSON(s.Counts)...)
	o = o.add("newest_run", s.Newest)
	torn := make([]object, len(s.TornRuns))
	for i, t := range s.TornRuns {
		torn[i] = object{{"run_id", t.RunID}, {"bytes", t.Bytes}, {"since", stamp(t.Since)}}
	}
	return append(o, member{"torn_runs", torn}, member{"damaged_runs", damageJSON(s.Damaged)}, member{"damaged_total", s.DamagedRuns})
}

// stamp writes a time as the trace format does.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func (a *app) showStatus(s *ingest.Status, runs []string, every bool, o rootOptions) {
	t := table{width: plain.Explanation}
	t.row("", "root", shown(s.Root))
	index := fmt.Sprintf("%s (%s, schema %d)", shown(s.Index), plain.Size(s.IndexBytes), s.Schema)
	if o.noEvents() {
		index = "none is kept until there is an events/" // nothing is made in what may be no root
	}
	t.row("", "index", index)
	if s.Private {
		t.row(yellow, "", "the usual place could not be used; this one serves only this process")
	}
	t.row("", "runs", plain.Number(s.Counts.Runs))
	t.row("", "operations", plain.Number(s.Counts.Operations))
	t.row("", "events", plain.Number(s.Counts.Events))
	t.row("", "payments", plain.Number(s.Counts.Payments))
	t.row("", "damaged lines", plain.Number(s.Counts.Faults))
	t.row("", "run files", plain.Size(s.Counts.Bytes))
	// Listing order: the latest is the last.
	const newest = 5
	for i, what := 0, "latest run"; i < min(len(runs), newest); i, what = i+1, "before it" {
		t.row("", what, runs[len(runs)-1-i])
	}
	a.show(&t)
	switch {
	case every:
		a.say("")
		a.say("runs by file name, the latest last:")
		for _, id := range runs {
			a.put("", "", plain.Clean(id, plain.Explanation))
		}
	case len(runs) > newest:
		a.toCopy("every run:", "settlewatch status --runs"+o.repeat())
	}
	if len(s.TornRuns) > 0 {
		a.say("")
		a.say("runs that end in an unfinished line:")
		t := table{head: []string{"RUN", "BYTES", "SINCE"}}
		for _, torn := range s.TornRuns {
			t.row("", torn.RunID, fmt.Sprint(torn.Bytes), stamp(torn.Since))
		}
		a.show(&t)
	}
	a.showDamage(s.Damaged, s.DamagedRuns, "settlewatch status --json"+o.repeat())
}
