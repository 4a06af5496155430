package main

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

type freezeOptions struct {
	guarded
	counterparty, reason string
}

func (o *freezeOptions) bind(c *cobra.Command, reason string) {
	f := c.Flags()
	o.flags(f)
	f.StringVar(&o.counterparty, "counterparty", "", "only payments to this address, host or URL (default: every payment)")
	f.StringVar(&o.reason, "reason", "", reason)
}

func (a *app) freeze() *cobra.Command {
	var o freezeOptions
	c := a.command(&cobra.Command{
		Use:   "freeze [flags]",
		Short: "block every payment, or those to one counterparty",
		Long: `While a freeze is in force every check is answered with block. Making a file named FROZEN
in the guard directory does the same and works when nothing else does.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		if err := noted("reason", o.reason); err != nil {
			return err
		}
		return a.orByFile(o, a.withGuard(ctx, &o.guarded, func(g guardian, _ finder) error {
			scope, err := g.Freeze(ctx, o.counterparty, o.reason)
			if err != nil {
				return err
			}
			if o.json {
				a.answer(object{{"shape", "freeze/1"}, {"scope", clean(scope)}, {"frozen", true}})
				return nil
			}
			a.put(red, "", "frozen: "+frozenScope(scope, "is blocked"))
			undo := "unfreeze"
			if o.counterparty != "" {
				undo += " --counterparty " + shellWord(o.counterparty)
			}
			a.put("", "", "to end it:")
			a.pasteable(o.again(undo))
			return nil
		}))
	})
	o.bind(c, "why, for the record (needed)")
	return c
}

// orByFile adds to an error how a person in a hurry freezes all the same.
func (a *app) orByFile(o freezeOptions, err error) error {
	if err == nil {
		return nil
	}
	known := errcode.Of(err)
	switch known.Code {
	case errcode.Usage, errcode.Input, errcode.Root:
		return err
	}
	with := *known
	file := filepath.Join(o.guardAt(string(o.dir)), "FROZEN")
	with.Hint = "touch " + shellWord(file) + " blocks every payment meanwhile"
	if known.Hint != "" {
		with.Hint += "; then " + known.Hint
	}
	return &with
}

// frozenScope says what a scope of the log means, and what becomes of it.
func frozenScope(scope, what string) string {
	if scope == decision.ScopeAll {
		return "every payment " + what
	}
	return "every payment to " + plain.Clean(payment.Display(scope), plain.Detail) + " " + what
}

func (a *app) unfreeze() *cobra.Command {
	var o freezeOptions
	c := a.command(&cobra.Command{
		Use:   "unfreeze [flags]",
		Short: "end a freeze",
		Long: `End the freeze of everything, or that of one counterparty. With operators in the policy
it counts only when one of them signs it. Other freezes stay, and are named.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		return a.withGuard(ctx, &o.guarded, func(g guardian, _ finder) error {
			if err := guard.CheckNote("reason", o.reason); err != nil {
				return err
			}
			act := "unfreeze every payment"
			if o.counterparty != "" {
				act = "unfreeze payments to " + plain.Clean(o.counterparty, whole)
			}
			by, err := a.signer(ctx, g, &o.guarded, []string{act})
			if err != nil {
				return err
			}
			if err := g.Unfreeze(ctx, o.counterparty, o.reason, by); err != nil {
				return err
			}
			left, err := g.Standing(ctx)
			if err != nil {
				return err
			}
			scopes := make([]string, len(left.Frozen))
			for i, f := range left.Frozen {
				scopes[i] = f.Scope
			}
			if o.json {
				a.answer(object{{"shape", "unfreeze/1"}, {"unfrozen", true}, {"still_frozen", cleanAll(scopes)}})
				return nil
			}
			if o.counterparty == "" {
				a.say("no longer frozen as a whole")
			} else {
				a.put("", "", "no longer frozen: payments to "+o.counterparty)
			}
			a.showFrozen(left)
			return nil
		})
	})
	o.bind(c, "why, for the record")
	o.operatorFlag(c.Flags())
	return c
}

func (a *app) showFrozen(s *guard.Standing) {
	for _, f := range s.Frozen {
		text := frozenScope(f.Scope, "is still blocked")
		if f.Reason != "" {
			text += ": " + plain.Quote(f.Reason, plain.Detail)
		}
		a.put(red, "", text)
	}
}
