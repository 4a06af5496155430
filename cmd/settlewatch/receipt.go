package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/plain"
)

type receiptOptions struct {
	rootOptions
	template string
	null     bool
	json     bool
}

func (o *receiptOptions) bind(c *cobra.Command) {
	f := c.Flags()
	o.rootOptions.flags(f)
	templateFlag(f, &o.template, "")
	f.BoolVar(&o.null, "null-operation", false, "the operation whose id is JSON null (give only the run)")
	jsonFlag(f, &o.json)
}

const operandsHelp = `
RUN is a run id, run:<id> or latest, the last run by file name that is not empty; latest is
meant where RUN is left out. OPERATION is an operation id, or the beginning of one if only
one operation of the run begins so.`

func (a *app) receipt() *cobra.Command {
	var o receiptOptions
	c := a.command(&cobra.Command{
		Use:   "receipt [flags] [RUN] OPERATION",
		Short: "show the receipt of one operation",
		Long: `Show the receipt of one operation. With --json it is printed byte for byte as the trace
format stores it.
` + operandsHelp,
		Args: operands(0, 2),
	}, func(ctx context.Context, args []string) error {
		return a.withReceipt(ctx, o, args, func(x *ingest.Indexer, r *ingest.Receipt) error {
			if o.json {
				a.out.Write(append(r.Append(nil, 2, 0), '\n'))
				if r.Damaged {
					// The bytes are those of a stored receipt, which has no place for it.
					a.note("note: run %s has lines that cannot be read; this receipt holds the sound ones. try: settlewatch status%s", plain.Quote(r.Run, plain.Detail), o.repeat())
				}
				return nil
			}
			a.showReceipt(r, a.resolutions(ctx, x, r.Ref)[0])
			return nil
		})
	})
	o.bind(c)
	return c
}

// withReceipt finds the operation the operands name and hands its receipt on.
func (a *app) withReceipt(ctx context.Context, o receiptOptions, args []string, show func(*ingest.Indexer, *ingest.Receipt) error) error {
	want := 2
	if o.null {
		want = 1
	}
	if len(args) > want || !o.null && len(args) == 0 {
		return usage("give %s", map[bool]string{true: "at most a run with --null-operation", false: "a run and an operation"}[o.null])
	}
	run, operation := "latest", ""
	if len(args) == want {
		run = args[0]
	}
	if !o.null {
		operation = args[len(args)-1]
	}
	for i, arg := range args {
		if arg == "" {
			what := "RUN"
			if !o.null && i == len(args)-1 {
				what = "OPERATION"
			}
			return usage("%s is blank; settlewatch list%s shows what there is", what, o.repeat())
		}
	}
	x, err := a.open(ctx, o.rootOptions)
	if err != nil {
		return err
	}
	defer x.Close()
	// "latest" and a beginning of an id are looked up first; what comes back are
	// ids.
	ref, err := x.Resolve(ctx, ingest.Ref{Run: run, Operation: operation, Null: o.null})
	if err != nil {
		return o.worded(err)
	}
	r, err := x.Receipt(ctx, ref, o.template)
	if err != nil {
		return err
	}
	return show(x, r)
}

// paidTable says what the payment of an operation was for: what was asked, if
// none was made.
func paidTable(r *ingest.Receipt) *table {
	t := &table{width: plain.Explanation}
	amount := dash(r.Amount)
	if r.Amount != "" {
		amount += " (atomic units)"
	}
	t.row("", "payee", dash(r.Counterparty))
	t.row("", "amount", amount)
	t.row("", "asset", dash(r.Asset))
	t.row("", "resource", dash(r.Resource))
	for _, hash := range transactions(r) {
		t.row("", "transaction", hash)
	}
	return t
}

// transactions are those the events name, each once (trace contract, sections 9
// and 10). That one is named does not say that it was settled.
func transactions(r *ingest.Receipt) []string {
	var d jsjson.Doc
	if d.Parse(r.Append(nil, 0, 0)) != nil {
		return nil // an event as deep as may be is deeper inside a receipt
	}
	var found []string
	for e := range d.Root().Get("events").Elements() {
		payload := e.Get("payload")
		for _, n := range []jsjson.Node{payload.Get("settle").Get("transaction"), payload.Get("tx_hash")} {
			if text := string(n.Text()); text != "" && !slices.Contains(found, text) {
				found = append(found, text)
			}
		}
	}
	return found
}

// resolvedWords says what a person found out, and who that was. The receipt stays as
// it was witnessed (guard contract, section 6).
func resolvedWords(r *decision.Resolved) string {
	line := r.Outcome + ", says a person and not the trace"
	if r.Time != "" {
		line += ", paid at " + r.Time
	}
	by := r.DecidedBy
	if r.Key != "" {
		by = "signed by " + plain.Quote(r.DecidedBy, plain.Detail)
	}
	return line + " (" + by + "): " + plain.Quote(r.Note, plain.Explanation)
}

func (a *app) showReceipt(r *ingest.Receipt, resolved *decision.Resolved) {
	t := table{width: plain.Explanation}
	t.row("", "run", r.Run)
	t.row("", "operation", operationName([]byte(r.Operation), r.Ref.Null))
	t.row("", "template", fmt.Sprintf("%s (%s)", r.Template.Name, r.Template.Origin))
	t.row(verdictStyle(r.Full(), len(r.Exceptions())), "verdict", r.Completeness())
	t.row(settlementStyle(r.Settlement), "settlement", dash(r.Settlement))
	if resolved != nil {
		t.row("", "resolved", resolvedWords(resolved))
	}
	t.row("", "events", fmt.Sprint(r.EventCount()))
	paid := paidTable(r)
	t.rows, t.styles = append(t.rows, paid.rows...), append(t.styles, paid.styles...)
	if r.Linked != nil {
		t.row("", "linked to", operationName([]byte(r.Linked.Operation), r.Linked.Null)+" of run "+r.Linked.Run)
	}
	if r.Blind != "" {
		t.row(yellow, "blind", r.Blind)
	}
	if r.Damaged {
		t.row(red, "damaged", "the run has lines that cannot be read; this receipt holds the sound ones")
	}
	a.show(&t)
	a.say("")
	t = table{head: []string{"STAGE", "REQUIRED", "STATE", "EVIDENCE"}}
	for _, s := range r.Stages() {
		required, state, evidence, style := "no", "confirmed", "-", ""
		if s.Required {
			required = "yes"
		}
		if s.Confirmed {
			evidence = plain.Plural(int64(s.Events), "event")
		} else {
			state = "not confirmed"
			if s.Required {
				style = yellow
			}
		}
		t.row(style, s.ID, required, state, evidence)
	}
	a.show(&t)
	missing := r.Missing()
	for _, s := range r.Template.Stages {
		if !slices.Contains(missing, s.ID) {
			continue
		}
		var expected []string
		for _, w := range s.Match {
			expected = append(expected, w.Event)
		}
		a.say("")
		a.tell(fmt.Sprintf("missing %s: expected %s", plain.Clean(s.ID, plain.Detail), plain.Clean(strings.Join(expected, " or "), plain.Detail)))
		if s.Explanation != "" {
			a.tell("  " + plain.Clean(s.Explanation, plain.Explanation))
		}
	}
	if faults := r.Exceptions(); len(faults) > 0 {
		a.say("")
		a.tell("faults: " + plain.Clean(tally(faults), plain.Explanation))
	} else if !r.Full() && len(missing) == 0 {
		a.say("")
		a.tell("partial although nothing is missing: the template requires no stage, and none of its stages was witnessed")
	}
}
