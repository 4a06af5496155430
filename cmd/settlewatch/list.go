package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/mcp"
)

type listOptions struct {
	rootOptions
	query ingest.Query
	json  bool
}

func (a *app) list() *cobra.Command {
	var o listOptions
	c := a.command(&cobra.Command{
		Use:   "list [flags]",
		Short: "list paid operations, newest first",
		Long: `List the operations of all runs, newest first: the verdict of each, whom it paid and
how the payment ended. Damaged runs are served around and named below the table.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error { return a.runList(ctx, o) })
	f := c.Flags()
	o.rootOptions.flags(f)
	templateFlag(f, &o.query.Template, " of list")
	f.Lookup("template").Usage = "template to judge by"
	f.StringVar(&o.query.Run, "run", "", "only this run: an id, run:<id> or latest")
	f.StringVar(&o.query.Completeness, "completeness", "", "only full or only partial operations")
	f.StringVar(&o.query.Counterparty, "counterparty", "", "only payments to this address, host or URL")
	f.StringVar(&o.query.Settlement, "settlement", "", "only payments that are settled, failed, unknown, pending or none")
	f.IntVar(&o.query.Limit, "limit", 50, "rows to show, 1 to 100")
	f.StringVar(&o.query.Cursor, "cursor", "", "go on after an earlier page")
	jsonFlag(f, &o.json)
	return c
}

func (a *app) runList(ctx context.Context, o listOptions) error {
	if o.query.Limit < 1 || o.query.Limit > 100 {
		return usage("--limit takes 1 to 100, not %d", o.query.Limit)
	}
	if err := oneOf("completeness", o.query.Completeness, "full", "partial"); err != nil {
		return err
	}
	if err := oneOf("settlement", o.query.Settlement, "settled", "failed", "unknown", "pending", "none"); err != nil {
		return err
	}
	x, err := a.open(ctx, o.rootOptions)
	if err != nil {
		return err
	}
	defer x.Close()
	page, err := x.List(ctx, o.query)
	if err != nil {
		return o.worded(err)
	}
	if o.json {
		return a.document(mcp.PageDocument(page))
	}
	a.showPage(page, "settlewatch status --json"+o.repeat())
	return nil
}

// oneOf refuses a word a flag does not know.
func oneOf(flag, word string, known ...string) error {
	if word == "" {
		return nil
	}
	for _, k := range known {
		if word == k {
			return nil
		}
	}
	last := len(known) - 1
	return usage("--%s takes %s or %s, not %s", flag, strings.Join(known[:last], ", "), known[last], plain.Quote(word, plain.Detail))
}

func damageJSON(damage []ingest.Damage) []object {
	runs := make([]object, len(damage))
	for i, d := range damage {
		runs[i] = object{{"run_id", d.RunID}, {"line", d.Line}, {"reason", plain.Clean(d.Reason, plain.Detail)}}
	}
	return runs
}

// showPage shows a page of operations; every names the command that lists
// every damaged run.
func (a *app) showPage(p *ingest.Page, every string) {
	oneRun := true
	for _, r := range p.Operations {
		oneRun = oneRun && r.Run == p.Operations[0].Run
	}
	if len(p.Operations) == 0 {
		a.say("no operations (%s, template %s)", plural(int64(p.RunsScanned), "run"), plain.Clean(p.Template, plain.Detail))
	} else {
		of := ""
		if oneRun {
			of = " of run " + plain.Clean(p.Operations[0].Run, plain.Detail)
		}
		a.say("%s%s, template %s", plural(int64(len(p.Operations)), "operation"), of, plain.Clean(p.Template, plain.Detail))
		t := table{head: []string{"OPERATION", "VERDICT", "SETTLEMENT", "PAYEE", "AMOUNT (ATOMIC)", "ASSET", "LAST EVENT", "NOTES"}}
		if !oneRun {
			t.head = append([]string{"RUN"}, t.head...)
		}
		for _, r := range p.Operations {
			cells := []string{
				operationName([]byte(r.Operation), r.Null), r.Completeness, dash(r.Settlement), dash(short(r.Counterparty)),
				dash(r.Amount), dash(short(r.Asset)), r.LastEventAt, dash(notes(r)),
			}
			if !oneRun {
				cells = append([]string{r.Run}, cells...)
			}
			t.row(verdictStyle(r.Completeness == "full", r.Exceptions), cells...)
		}
		a.show(&t)
	}
	if p.NextCursor != "" {
		a.say("more: --cursor %s", p.NextCursor)
	}
	a.showDamage(p.DamagedRuns, p.DamagedTotal, every)
}

// notes is what else a person should see in a row.
func notes(r ingest.Row) string {
	var words []string
	if len(r.MissingStages) > 0 {
		words = append(words, "no "+strings.Join(r.MissingStages, ", no "))
	}
	if r.Exceptions > 0 {
		words = append(words, plural(int64(r.Exceptions), "fault"))
	}
	if r.Linked != nil {
		words = append(words, "linked to "+operationName([]byte(r.Linked.Operation), r.Linked.Null))
	}
	if r.Blind != "" {
		words = append(words, "blind: "+r.Blind)
	}
	return strings.Join(words, "; ")
}

// damageShown bounds what a table tells of damaged runs, as answers to agents
// are bound.
const damageShown = 20

func (a *app) showDamage(damage []ingest.Damage, total int, every string) {
	if total == 0 {
		return
	}
	damage = damage[:min(len(damage), damageShown)]
	a.say("")
	a.say("%s with damage, served around:", plural(int64(total), "run"))
	t := table{head: []string{"RUN", "LINE", "REASON"}}
	for _, d := range damage {
		line := fmt.Sprint(d.Line)
		if d.Line == 0 {
			line = "-"
		}
		t.row("", d.RunID, line, d.Reason)
	}
	a.show(&t)
	if total > len(damage) {
		a.say("and %s more; they are listed by %s", number(int64(total-len(damage))), oneLine(every))
	}
}
