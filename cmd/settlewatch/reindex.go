package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/plain"
)

func (a *app) reindex() *cobra.Command {
	var o rootOptions
	var asJSON bool
	c := a.command(&cobra.Command{
		Use:   "reindex [flags]",
		Short: "build the index again from the run files",
		Long: `Build the index again from the run files, beside the old one, and put it in its place.
Answers do not change by it: the files are the truth, the index is a cache.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		if _, err := o.resolve(); err != nil {
			return err
		}
		p := a.progress("indexing")
		var counts ingest.Counts
		if !o.noEvents() { // else nothing is made in what may be no root
			x, err := a.open(ctx, o)
			if err != nil {
				return err
			}
			defer x.Close()
			if counts, err = x.Reindex(ctx, p.report); err != nil {
				p.end()
				return err
			}
		}
		took := p.end()
		if counts.Runs == 0 {
			a.noteEmpty(o)
		}
		if asJSON {
			a.answer(append(object{{"shape", "reindex/1"}}, append(countsJSON(counts), object{
				{"milliseconds", took.Milliseconds()}, {"events_per_second", rate(counts.Events, took)},
			}...)...))
			return nil
		}
		a.showCounts(counts)
		a.put("", "", fmt.Sprintf("indexed in %s: %s events and %s a second", shortly(took), plain.Number(rate(counts.Events, took)), plain.Size(rate(counts.Bytes, took))))
		return nil
	})
	o.flags(c.Flags())
	jsonFlag(c.Flags(), &asJSON)
	return c
}

// rate is n a second.
func rate(n int64, took time.Duration) int64 {
	return int64(float64(n) / max(took, time.Microsecond).Seconds())
}

func shortly(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

func countsJSON(c ingest.Counts) object {
	return object{
		{"runs", c.Runs}, {"operations", c.Operations}, {"events", c.Events},
		{"payments", c.Payments}, {"faults", c.Faults}, {"bytes", c.Bytes},
	}
}

func (a *app) showCounts(c ingest.Counts) {
	a.put("", "", strings.Join([]string{plain.Plural(c.Runs, "run"), plain.Plural(c.Operations, "operation"), plain.Plural(c.Events, "event"),
		plain.Plural(c.Payments, "payment"), plain.Plural(c.Faults, "damaged line"), plain.Size(c.Bytes) + " of run files"}, ", "))
}
