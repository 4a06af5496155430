package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/internal/plain"
)

func (a *app) baseline() *cobra.Command {
	var o guarded
	var note string
	c := a.command(&cobra.Command{
		Use:   "baseline [flags]",
		Short: "make history of everything open or damaged until now",
		Long: `For a root with a past: every operation that is open and all damage until now no longer
lead to questions. What was spent still counts. What comes after counts as ever. With
operators in the policy it counts only when one of them signs it.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		if err := noted("note", note); err != nil {
			return err
		}
		return a.withGuard(ctx, &o, func(g guardian, _ finder) error {
			by, err := a.signer(ctx, g, &o, []string{"make history of everything open or damaged until now"})
			if err != nil {
				return err
			}
			open, damaged, err := g.Baseline(ctx, note, by)
			if err != nil {
				return err
			}
			if o.json {
				a.answer(object{{"shape", "baseline/1"}, {"open", open}, {"damaged", damaged}})
				return nil
			}
			a.put("", "", "made history of "+plain.Plural(int64(open), "open operation")+" and "+plain.Plural(int64(damaged), "damaged run")+"; what was spent still counts")
			return nil
		})
	})
	o.flags(c.Flags())
	o.operatorFlag(c.Flags())
	c.Flags().StringVar(&note, "note", "", "why, for the record (needed)")
	return c
}
