package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/internal/plain"
)

func (a *app) damage() *cobra.Command {
	return group(&cobra.Command{
		Use:   "damage",
		Short: "list and acknowledge damage that checks ask about",
		Long: `A line that cannot be read may have been a payment, and so may lines that were indexed
and have since vanished or changed. Checks ask a person about it until it is acknowledged.`,
	}, "damage list or damage ack",
		a.damageList(), a.damageAck())
}

func (a *app) damageList() *cobra.Command {
	var o guarded
	c := a.command(&cobra.Command{
		Use:   "list [flags]",
		Short: "list damage that is not acknowledged",
		Args:  operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		return a.withGuard(ctx, &o, func(g guardian, _ finder) error {
			items, err := g.Damage(ctx)
			if err != nil {
				return err
			}
			if o.json {
				rows := make([]object, len(items))
				for i, d := range items {
					rows[i] = object{{"run_id", d.Run}, {"line", d.Line}, {"offset", d.Offset}, {"reason", clean(d.Reason)},
						{"faults", d.Faults}, {"removed", d.Removed}}
				}
				a.answer(object{{"shape", "damage/1"}, {"damage", rows}})
				return nil
			}
			a.showUnacknowledged(&o, items)
			return nil
		})
	})
	o.flags(c.Flags())
	return c
}

func (a *app) showUnacknowledged(o *guarded, items []guard.DamageItem) {
	if len(items) == 0 {
		a.say("no damage that is not acknowledged")
		return
	}
	t := table{head: []string{"RUN", "LINE", "FAULTS", "REASON"}}
	present, removed := "", false
	for _, d := range items {
		line := fmt.Sprint(d.Line)
		if d.Line == 0 {
			line = "-"
		}
		t.row(red, d.Run, line, fmt.Sprint(d.Faults), d.Reason)
		if d.Removed {
			removed = true
		} else if present == "" {
			present = d.Run
		}
	}
	a.show(&t)
	a.put("", "", "when it is known what was lost:")
	if present != "" {
		a.pasteable(o.again("damage ack " + shellWord(present) + ` --note "..."`))
	}
	if removed {
		a.pasteable(o.again(`damage ack --removed --note "..."`))
	}
}

func (a *app) damageAck() *cobra.Command {
	var o guarded
	var note string
	var removed bool
	c := a.command(&cobra.Command{
		Use:   "ack [flags] RUN",
		Short: "acknowledge the damage of a run",
		Long: `Acknowledge the damage of a run so far; later damage of it counts again. --removed, in the
place of RUN, acknowledges every run that has vanished; one that comes back is new. With
operators in the policy it counts only when one of them signs it.`,
		Args: operands(0, 1),
	}, func(ctx context.Context, args []string) error {
		if removed == (len(args) == 1) {
			return usage("give either a run or --removed")
		}
		if err := noBlank("RUN", args); err != nil {
			return err
		}
		if err := noted("note", note); err != nil {
			return err
		}
		return a.withGuard(ctx, &o, func(g guardian, x finder) error {
			run, what := "", "the damage of every run that has vanished"
			if !removed {
				var err error
				if run, err = runNamed(ctx, x, args[0]); err != nil {
					return err
				}
				what = "the damage of run " + plain.Quote(run, plain.Detail)
			}
			by, err := a.signer(ctx, g, &o, []string{"acknowledge " + what})
			if err != nil {
				return err
			}
			n, err := g.Acknowledge(ctx, run, note, by)
			if err != nil {
				return err
			}
			if o.json {
				a.answer(object{{"shape", "damage-ack/1"}, {"runs", n}})
				return nil
			}
			a.put("", "", fmt.Sprintf("acknowledged %s (%s)", what, plain.Plural(int64(n), "run")))
			return nil
		})
	})
	o.flags(c.Flags())
	o.operatorFlag(c.Flags())
	c.Flags().StringVar(&note, "note", "", "what is known of it, for the record (needed)")
	c.Flags().BoolVar(&removed, "removed", false, "every run that has vanished")
	return c
}
