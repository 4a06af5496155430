package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/mcp"
)

type resolveOptions struct {
	guarded
	as, amount, at, note         string
	open, blind, undo, yes, null bool
	run, counterparty, before    string
}

func (a *app) resolve() *cobra.Command {
	var o resolveOptions
	c := a.command(&cobra.Command{
		Use:   "resolve [flags] [RUN] [OPERATION]",
		Short: "say what became of an operation that stayed open",
		Long: `Say what you have found out about an operation: settled, the money is gone and counts as
spent, or failed, it never moved. It is then no longer open. The receipt does not change;
lists, explain and evidence say that a person closed it. --undo takes that back.

--open or --blind, in the place of RUN and OPERATION, closes every operation that is open,
or blind, within --run, --counterparty and --before. What it will do is shown first, and
asked on a terminal; elsewhere it needs --yes.
` + operandsHelp,
		Args: operands(0, 2),
	}, func(ctx context.Context, args []string) error { return a.runResolve(ctx, o, args) })
	f := c.Flags()
	o.flags(f)
	o.operatorFlag(f)
	f.StringVar(&o.as, "as", "", "what became of it: settled or failed")
	f.StringVar(&o.amount, "amount", "", "what was paid, in display units, where the trace does not say it")
	f.StringVar(&o.at, "at", "", "when, such as 2026-01-31T18:30:00Z, where the trace does not say it")
	f.StringVar(&o.note, "note", "", "how you know, for the record (needed, but for --undo)")
	f.BoolVar(&o.undo, "undo", false, "take a resolution back")
	f.BoolVar(&o.null, "null-operation", false, "the operation whose id is JSON null (give only the run)")
	f.BoolVar(&o.open, "open", false, "every operation that is open")
	f.BoolVar(&o.blind, "blind", false, "every operation that is blind")
	f.StringVar(&o.run, "run", "", "with --open or --blind: only of this run, an id, run:<id> or latest")
	f.StringVar(&o.counterparty, "counterparty", "", "with --open or --blind: only with this address, host or URL")
	f.StringVar(&o.before, "before", "", "with --open or --blind: only from before this day or time")
	f.BoolVar(&o.yes, "yes", false, "with --open or --blind: do it without asking")
	return c
}

func (a *app) runResolve(ctx context.Context, o resolveOptions, args []string) error {
	bulk := o.open || o.blind
	narrowed := o.run != "" || o.counterparty != "" || o.before != "" || o.yes
	switch {
	case o.open && o.blind:
		return usage("give --open or --blind, not both: blind operations are open as well, unless the policy ignores them")
	case bulk && (len(args) > 0 || o.null || o.undo):
		return usage("--open and --blind take no operation and no --undo")
	case bulk && (o.amount != "" || o.at != ""):
		return usage("--amount and --at are of one operation; they cannot be given for many")
	case !bulk && narrowed:
		return usage("--run, --counterparty, --before and --yes go with --open or --blind")
	case o.undo && (o.as != "" || o.amount != "" || o.at != ""):
		return usage("--undo takes neither --as nor --amount nor --at")
	case o.as == "failed" && (o.amount != "" || o.at != ""):
		return usage("--amount and --at go with --as settled: what failed was not paid")
	}
	if !o.undo {
		if o.as == "" {
			return usage("--as is needed: settled or failed")
		}
		if err := oneOf("as", o.as, "settled", "failed"); err != nil {
			return err
		}
		if err := noted("note", o.note); err != nil {
			return err
		}
	}
	if o.at != "" {
		if _, err := time.Parse(time.RFC3339, o.at); err != nil {
			return usage("--at takes a time such as 2026-01-31T18:30:00Z, not %s", plain.Quote(o.at, plain.Detail))
		}
	}
	if bulk {
		return a.resolveMany(ctx, &o)
	}
	return a.resolveOne(ctx, &o, args)
}

// named reads the operands: a run and an operation, the latest run where only an
// operation is given.
func (o *resolveOptions) named(args []string) (ingest.Ref, error) {
	r := ingest.Ref{Run: "latest", Null: o.null}
	most := 2
	if o.null {
		most = 1
	}
	switch {
	case len(args) > most:
		return r, usage("give at most a run with --null-operation")
	case len(args) == 0 && !o.null:
		return r, usage("give a run and an operation, or --open or --blind")
	}
	if slices.Contains(args, "") { // an id may be blanks, as receipt takes it too
		return r, usage("an operand is blank")
	}
	if len(args) == most {
		r.Run = args[0]
	}
	if !o.null {
		r.Operation = args[len(args)-1]
	}
	return r, nil
}

func (a *app) resolveOne(ctx context.Context, o *resolveOptions, args []string) error {
	typed, err := o.named(args)
	if err != nil {
		return err
	}
	return a.withGuard(ctx, &o.guarded, func(g guardian, x finder) error {
		found, err := x.Resolve(ctx, typed)
		if code := errcode.Of(err); err != nil {
			gone := code.Code == errcode.RunNotFound || code.Code == errcode.OperationNotFound
			if !o.undo || !gone {
				return err
			}
			found = typed // its evidence may have vanished; what was said of it has not
			found.Run = strings.TrimPrefix(found.Run, "run:")
		}
		ref := mcp.LineRef(found)
		if o.undo {
			if err := g.Unresolve(ctx, ref, o.note); err != nil {
				return err
			}
		} else {
			shown, err := g.Shown(ctx, ref)
			if err != nil {
				return err
			}
			act := "resolve as " + o.as + ": " + operationIn(ref)
			if shown.Payments > 1 {
				act += ", " + plain.Plural(shown.Payments, "payment")
			}
			if o.amount != "" {
				act += ", amount " + o.amount
			}
			by, err := a.signer(ctx, g, &o.guarded, []string{act})
			if err != nil {
				return err
			}
			if err := g.Resolve(ctx, []guard.Resolution{{Ref: ref, Outcome: o.as, Amount: o.amount, Time: o.at, Note: o.note, Shown: shown, Signer: by}}); err != nil {
				return err
			}
		}
		return a.answerResolved(o, []decision.Ref{ref})
	})
}

func (a *app) answerResolved(o *resolveOptions, refs []decision.Ref) error {
	if o.json {
		rows := make([]object, len(refs))
		for i, r := range refs {
			rows[i] = refJSON(r)
		}
		outcome := o.as
		if o.undo {
			outcome = "undone"
		}
		a.answer(object{{"shape", "resolve/1"}, {"outcome", outcome}, {"operations", rows}})
		return nil
	}
	what := plain.Plural(int64(len(refs)), "operation")
	if len(refs) == 1 {
		what = operationIn(refs[0])
	}
	switch {
	case o.undo:
		a.put("", "", "took back what was said of "+what+"; the trace alone counts again")
	case o.as == "settled":
		a.put("", "", "resolved as settled: "+what+"; it counts as spent")
	default:
		a.put("", "", "resolved as failed: "+what+"; it does not count as spent")
	}
	if !o.undo && len(refs) == 1 {
		a.put("", "", "to take that back:")
		undo := strings.Replace(resolveCommand(&o.guarded, refs[0]), ` --as settled --note "..."`, " --undo", 1)
		a.pasteable(undo)
	}
	return nil
}

func refJSON(r decision.Ref) object {
	o := object{{"run_id", r.Run}}
	if r.Operation == nil {
		return append(o, member{"operation_id", nil})
	}
	return append(o, member{"operation_id", *r.Operation})
}

// runNamed is the id of the run a person names.
func runNamed(ctx context.Context, x finder, text string) (string, error) {
	id, latest := runOperand(text)
	if !latest {
		return id, nil
	}
	runs, err := x.Runs(ctx)
	if err != nil {
		return "", err
	}
	if len(runs) == 0 {
		return "", errcode.New(errcode.NoRuns, "", "look for the latest run: there is none")
	}
	return runs[len(runs)-1], nil
}

// dayOrTime reads a day, which begins in UTC, or an instant.
func dayOrTime(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usage("--%s takes a day such as 2026-01-31, or a time such as 2026-01-31T18:30:00Z, not %s", flag, plain.Quote(text, plain.Detail))
}

func (a *app) resolveMany(ctx context.Context, o *resolveOptions) error {
	before, err := dayOrTime("before", o.before)
	if err != nil {
		return err
	}
	if o.json && !o.yes && a.person() == nil || !o.yes && a.person() == nil {
		return usage("--yes is needed where nobody can be asked; without it, on a terminal, it shows what it will do")
	}
	return a.withGuard(ctx, &o.guarded, func(g guardian, x finder) error {
		q := guard.OpenQuery{Blind: o.blind, Counterparty: o.counterparty, Before: before}
		if o.run != "" {
			var err error
			if q.Run, err = runNamed(ctx, x, o.run); err != nil {
				return err
			}
		}
		found, err := g.Open(ctx, q)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			if o.json {
				return a.answerResolved(o, nil)
			}
			a.say("no such operation is open")
			return nil
		}
		act := summary(g.Policy(), o, found)
		if !o.yes {
			// On stderr: it belongs to the question, not to the answer.
			screen := app{stdout: a.stderr, env: a.env, width: a.width}
			screen.showOpen(g.Policy(), found)
			a.stderr.Write(screen.out.Bytes())
			sure, err := a.person().yes(ctx, act+"?")
			if err != nil {
				return err
			}
			if !sure {
				return errcode.New(errcode.Input, "", "%s: the answer was no, so nothing was changed", act)
			}
		}
		by, err := a.signer(ctx, g, &o.guarded, []string{act})
		if err != nil {
			return err
		}
		// What was shown is what is closed: no operation that came since, and no payment.
		all := make([]guard.Resolution, len(found))
		refs := make([]decision.Ref, len(found))
		for i, op := range found {
			refs[i] = op.Ref
			all[i] = guard.Resolution{Ref: op.Ref, Outcome: o.as, Note: o.note, Shown: op.Shown, Signer: by}
		}
		if err := g.Resolve(ctx, all); err != nil {
			return err
		}
		return a.answerResolved(o, refs)
	})
}

// summary is what is about to be done, money included.
func summary(p *guard.Policy, o *resolveOptions, found []guard.OpenOperation) string {
	return fmt.Sprintf("resolve %s as %s (%s)", plain.Plural(int64(len(found)), "operation"), o.as, sums(p, found))
}

// sums are those of operations by asset, which do not mix.
func sums(p *guard.Policy, found []guard.OpenOperation) string {
	sums := map[string]string{}
	var assets []string
	unread := 0
	for _, op := range found {
		if op.Amount == "" || op.Asset == "" {
			unread++
			continue
		}
		if _, ok := sums[op.Asset]; !ok {
			assets = append(assets, op.Asset)
			sums[op.Asset] = "0"
		}
		sum, err := payment.Add(sums[op.Asset], op.Amount)
		if err != nil {
			unread++
			continue
		}
		sums[op.Asset] = sum
	}
	slices.Sort(assets)
	var parts []string
	for _, asset := range assets {
		parts = append(parts, p.Display(asset, sums[asset])+onNetwork(asset))
	}
	if unread > 0 {
		parts = append(parts, plain.Plural(int64(unread), "amount")+" that cannot be read")
	}
	return strings.Join(parts, "; ")
}

// openShown bounds what is shown before a question; the sums count all.
const openShown = 50

func (a *app) showOpen(p *guard.Policy, found []guard.OpenOperation) {
	t := table{head: []string{"RUN", "OPERATION", "PAYEE", "AMOUNT", "NETWORK", "TIME", "NOTES"}, width: whole}
	for _, op := range found[:min(len(found), openShown)] {
		id, when := operationName(nil, true), "-"
		if op.Ref.Operation != nil {
			id = *op.Ref.Operation
		}
		if !op.At.IsZero() {
			when = moment(op.At)
		}
		var notes []string
		if op.Blind {
			notes = append(notes, "blind")
		}
		if n := op.Shown.Payments; n > 1 {
			notes = append(notes, "the first of "+plain.Plural(n, "payment"))
		}
		t.row("", op.Ref.Run, id, dash(op.Counterparty), p.Display(op.Asset, op.Amount), dash(strings.TrimPrefix(onNetwork(op.Asset), " on ")), when, dash(strings.Join(notes, ", ")))
	}
	a.show(&t)
	if more := len(found) - openShown; more > 0 {
		a.say("and %s more", plain.Number(int64(more)))
	}
}
