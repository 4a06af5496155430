package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/internal/plain"
)

// unsound is the exit status of a command that found damage or an unsound index.
const unsound = status(3)

func (a *app) fsck() *cobra.Command {
	var o rootOptions
	var asJSON bool
	c := a.command(&cobra.Command{
		Use:   "fsck [flags]",
		Short: "prove the index equal to a fresh one, row by row",
		Long: `Build a second index beside the live one and compare them row by row. Exit status 3
when they differ, which settlewatch reindex puts right, or when runs are damaged, which
no index can put right: settlewatch status names them.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		x, err := a.open(ctx, o)
		if err != nil {
			return err
		}
		defer x.Close()
		p := a.progress("checking")
		report, err := x.Fsck(ctx, p.report)
		p.end()
		if err != nil {
			return err
		}
		if report.Counts.Runs == 0 {
			a.noteEmpty(o)
		}
		if asJSON {
			differences := make([]string, len(report.Differences))
			for i, d := range report.Differences {
				differences[i] = plain.Clean(d, plain.Explanation)
			}
			a.answer(append(append(object{{"shape", "fsck/1"}, {"sound", len(differences) == 0}}, countsJSON(report.Counts)...),
				member{"damaged_total", report.Damaged}, member{"private_index", report.Private}, member{"differences", differences}))
		} else {
			a.showCounts(report.Counts)
			for _, d := range report.Differences {
				a.put("", "", "differs: "+plain.Clean(d, plain.Explanation))
			}
			switch {
			case o.noEvents():
				a.say("nothing to check")
			case len(report.Differences) == 0 && report.Private:
				a.tell("no index is kept at the usual place, which cannot be used; the private one of this process equals a fresh one")
			case len(report.Differences) == 0:
				a.say("the index is sound")
			default:
				a.toCopy("the index differs from its run files; try:", "settlewatch reindex"+o.repeat())
			}
			if report.Damaged > 0 {
				a.toCopy(plain.Plural(int64(report.Damaged), "run")+" with damage; try:", "settlewatch status"+o.repeat())
			}
		}
		if len(report.Differences) > 0 || report.Damaged > 0 {
			return unsound
		}
		return nil
	})
	o.flags(c.Flags())
	jsonFlag(c.Flags(), &asJSON)
	return c
}
