package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/guard"
)

func (a *app) hold() *cobra.Command {
	return group(&cobra.Command{
		Use:   "hold",
		Short: "list and release reserved amounts",
		Long: `A hold reserves the amount of a payment that was allowed, so that two agents are not both
allowed the same money. It ends by itself when its payment is on record or its time is
over.`,
	}, "hold list or hold release",
		a.holdList(), a.holdRelease())
}

func (a *app) holdList() *cobra.Command {
	var o guarded
	c := a.command(&cobra.Command{
		Use:   "list [flags]",
		Short: "list the holds in force, oldest first",
		Args:  operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		return a.withGuard(ctx, &o, func(g guardian, _ finder) error {
			holds, err := g.Holds(ctx)
			if err != nil {
				return err
			}
			if o.json {
				rows := make([]object, len(holds))
				for i, h := range holds {
					rows[i] = object{{"hold_id", h.ID}, {"counterparty", clean(h.Counterparty)}, {"amount", clean(h.Amount)}, {"asset", clean(h.Asset)},
						{"held_at", stamp(h.HeldAt)}, {"expires_at", stamp(h.ExpiresAt)}}.add("actor", clean(h.Actor)).add("review_id", h.ReviewID)
				}
				a.answer(object{{"shape", "holds/1"}, {"holds", rows}})
				return nil
			}
			if len(holds) == 0 {
				a.say("no hold is in force")
				return nil
			}
			t := table{head: []string{"HOLD", "AMOUNT", "PAYEE", "ENDS", "ASKED BY", "REVIEW"}, width: whole}
			for _, h := range holds {
				t.row("", h.ID, money(g.Policy(), h.Amount, h.Asset), dash(h.Counterparty), away(h.ExpiresAt, a.env.now()), dash(h.Actor), dash(h.ReviewID))
			}
			a.show(&t)
			a.put("", "", "to end one whose payment will not be made:")
			a.pasteable(o.again("hold release " + shellWord(holds[0].ID) + ` --note "..."`))
			return nil
		})
	})
	o.flags(c.Flags())
	return c
}

func (a *app) holdRelease() *cobra.Command {
	var o guarded
	var note string
	c := a.command(&cobra.Command{
		Use:   "release [flags] ID",
		Short: "end a hold whose payment will not be made",
		Long: `End a hold: what it reserved is free again. Never end one whose payment was sent, even if
no answer came: the money may be gone, and the limit would be passed.`,
		Args: operands(1, 1),
	}, func(ctx context.Context, args []string) error {
		if err := noBlank("ID", args); err != nil {
			return err
		}
		if err := noted("note", note); err != nil {
			return err
		}
		return a.withGuard(ctx, &o, func(g guardian, _ finder) error {
			if err := g.EndHold(ctx, args[0], note); err != nil {
				return err
			}
			if o.json {
				a.answer(object{{"shape", "hold-release/1"}, {"hold_id", args[0]}, {"released", true}})
				return nil
			}
			a.put("", "", "released hold "+args[0])
			return nil
		})
	})
	o.flags(c.Flags())
	c.Flags().StringVar(&note, "note", "", "why, for the record (needed)")
	return c
}

// noted refuses an act without a word of why, which the record is kept for, or with
// more of it than is kept: before a passphrase is asked for.
func noted(flag, note string) error {
	if note == "" {
		return usage("--%s is needed: say why, for the record", flag)
	}
	return guard.CheckNote(flag, note)
}
