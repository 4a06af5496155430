package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/mcp"
)

const defaultLimit = 50

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
how the payment ended. Amounts are in atomic units. Damaged runs are served around and
named below the table.

On a screen too narrow for the table, ids are shortened to a beginning that receipt and
explain take as well, and columns are left out; --json has everything.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error { return a.runList(ctx, o) })
	f := c.Flags()
	o.rootOptions.flags(f)
	templateFlag(f, &o.query.Template, " of list")
	f.Lookup("template").Usage = "template to judge by"
	f.StringVar(&o.query.Run, "run", "", "only this run: an id, run:<id> or latest (the last by file name that is not empty)")
	f.StringVar(&o.query.Completeness, "completeness", "", "only full or only partial operations")
	f.StringVar(&o.query.Counterparty, "counterparty", "", "only payments to this address, host or URL")
	f.StringVar(&o.query.Settlement, "settlement", "", "only payments that are settled, failed, unknown, pending or none")
	f.IntVar(&o.query.Limit, "limit", defaultLimit, "rows to show, 1 to 100")
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
	if page.RunsScanned == 0 {
		a.noteEmpty(o.rootOptions)
	}
	refs := make([]ingest.Ref, len(page.Operations))
	for i := range page.Operations {
		refs[i] = page.Operations[i].Ref
	}
	resolved := a.resolutions(ctx, x, refs...)
	if o.json {
		return a.document(mcp.PageDocument(page, resolved))
	}
	p := listing{Page: page, resolved: resolved, every: "settlewatch status --json" + o.repeat(), whole: o.query.Cursor == "" && page.NextCursor == "" && !o.filtered(),
		only: func(r ingest.Ref) bool {
			found, err := x.Resolve(ctx, r)
			return err == nil && strings.HasPrefix(found.Operation, r.Operation) && found.Operation != r.Operation
		}}
	if !p.whole && len(page.Operations) > 0 {
		if p.title, err = o.title(ctx, x, page); err != nil {
			return err
		}
		p.more = o.again() + " --cursor " + page.NextCursor
	}
	a.showPage(p)
	if mismatch(x.Library(), o.query.Template, page) {
		a.note("note: nothing here shows any stage that %s requires; these events are another side's. try: %s",
			plain.Clean(page.Template, plain.Detail), o.otherTemplate(ctx, x))
	}
	return nil
}

// filtered reports whether the question leaves operations out.
func (o *listOptions) filtered() bool {
	return o.query.Run != "" || o.query.Completeness != "" || o.query.Counterparty != "" || o.query.Settlement != ""
}

// title says which of how many operations a page shows. Nobody has counted
// those that pass a filter.
func (o *listOptions) title(ctx context.Context, x *ingest.Indexer, page *ingest.Page) (string, error) {
	first := o.query.Cursor == ""
	switch {
	case o.filtered() && first && page.NextCursor == "":
		return "", nil
	case o.filtered() && first:
		return "newest " + plain.Plural(int64(len(page.Operations)), "operation"), nil
	case o.filtered():
		return "next " + plain.Plural(int64(len(page.Operations)), "operation"), nil
	}
	s, err := x.Status(ctx)
	if err != nil {
		return "", err
	}
	which := "newest"
	if !first {
		which = "next"
	}
	title := fmt.Sprintf("%s %s of %s", which, plain.Number(int64(len(page.Operations))), plain.Plural(s.Counts.Operations, "operation"))
	if s.Counts.Runs > 1 {
		title += " in " + plain.Plural(s.Counts.Runs, "run") + ", here"
	}
	return title, nil
}

// again is the command that asks the same question.
func (o *listOptions) again() string {
	command := o.without()
	if o.query.Template != assemble.DefaultTemplate {
		command += " --template " + shellWord(o.query.Template)
	}
	return command
}

// without is the command that asks it with the default template.
func (o *listOptions) without() string {
	command := "settlewatch list" + o.repeat()
	for _, f := range []struct{ flag, value string }{
		{"--run", o.query.Run}, {"--completeness", o.query.Completeness},
		{"--counterparty", o.query.Counterparty}, {"--settlement", o.query.Settlement},
	} {
		if f.value != "" {
			command += " " + f.flag + " " + shellWord(f.value)
		}
	}
	if o.query.Limit != defaultLimit {
		command += fmt.Sprintf(" --limit %d", o.query.Limit)
	}
	return command
}

// mismatch reports whether no operation of a page shows anything the template
// requires: then the template is for another side's events.
func mismatch(lib assemble.Library, template string, page *ingest.Page) bool {
	t, err := lib.Resolve(template, readTemplateFile)
	if err != nil || len(page.Operations) == 0 {
		return false
	}
	required := 0
	for _, s := range t.Stages {
		if s.Required {
			required++
		}
	}
	return required > 0 && !slices.ContainsFunc(page.Operations, func(r ingest.Row) bool { return len(r.MissingStages) < required })
}

// otherTemplate is the command that asks with a shipped template the first
// operations do match.
func (o *listOptions) otherTemplate(ctx context.Context, x *ingest.Indexer) string {
	for _, name := range assemble.Builtins() {
		q := o.query
		q.Template, q.Cursor, q.Completeness = name, "", ""
		if page, err := x.List(ctx, q); err == nil && name != o.query.Template && !mismatch(x.Library(), name, page) {
			return o.without() + " --template " + name
		}
	}
	return "settlewatch template new, as no shipped template matches"
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

// listing is a page and how it is introduced.
type listing struct {
	*ingest.Page
	resolved []*decision.Resolved // what people found out, one for each operation

	title string                    // "newest 50 of 1,234 operations"; "" to count the rows
	more  string                    // command that shows the next page, if there is one
	every string                    // command that lists every damaged run
	whole bool                      // the page holds every operation of its runs
	only  func(ref ingest.Ref) bool // whether an id's beginning names one operation; nil if nobody can tell
}

// showPage shows a page of operations.
func (a *app) showPage(p listing) {
	oneRun := true
	for _, r := range p.Operations {
		oneRun = oneRun && r.Run == p.Operations[0].Run
	}
	if len(p.Operations) == 0 {
		a.put("", "", fmt.Sprintf("no operations (%s, template %s)", plain.Plural(int64(p.RunsScanned), "run"), plain.Clean(p.Template, plain.Detail)))
	} else {
		title := p.title
		if title == "" {
			title = plain.Plural(int64(len(p.Operations)), "operation")
		}
		if oneRun {
			title += " of run " + plain.Clean(p.Operations[0].Run, plain.Detail)
		}
		a.tell(fmt.Sprintf("%s, template %s", title, plain.Clean(p.Template, plain.Detail)))
		a.show(a.pageTable(p, oneRun))
	}
	if p.NextCursor != "" {
		a.toCopy("more:", p.more)
	}
	a.showDamage(p.DamagedRuns, p.DamagedTotal, p.every)
}

const columnAsset, columnLast, columnAmount = "ASSET", "LAST EVENT", "AMOUNT (ATOMIC)"

// pageTable lays a page out for the screen. Where that is too narrow, ids are
// shortened first, which receipt and explain take as well; then the asset goes,
// which is mostly the same, then the time, since rows are in its order.
func (a *app) pageTable(p listing, oneRun bool) *table {
	build := func(ids []string) *table {
		t := &table{head: []string{"OPERATION", "VERDICT", "SETTLEMENT", "PAYEE", columnAmount, columnAsset, columnLast, "NOTES"}}
		if !oneRun {
			t.head = append([]string{"RUN"}, t.head...)
		}
		for i, r := range p.Operations {
			cells := []string{
				ids[i], r.Completeness, dash(r.Settlement), dash(short(r.Counterparty)),
				dash(r.Amount), dash(short(r.Asset)), r.LastEventAt, dash(notes(r, p.resolved[i])),
			}
			if !oneRun {
				cells = append([]string{r.Run}, cells...)
			}
			t.row(settlementStyle(r.Settlement), cells...)
		}
		t.clean()
		return t
	}
	ids := make([]string, len(p.Operations))
	for i, r := range p.Operations {
		ids[i] = operationName([]byte(r.Operation), r.Null)
	}
	columns := a.columns()
	t := build(ids)
	fits := func(t *table) bool {
		whole, _ := t.natural()
		return columns == 0 || whole <= columns
	}
	if fits(t) {
		return t
	}
	t = build(p.beginnings(ids))
	if fits(t) {
		return t
	}
	narrow := t.without(columnAsset)
	if fits(narrow) {
		return narrow
	}
	narrow = narrow.without(columnLast)
	if !fits(narrow) {
		narrow.head[slices.Index(narrow.head, columnAmount)] = "AMOUNT"
	}
	if _, rest := narrow.natural(); rest+narrowest <= columns {
		return narrow
	}
	return t // a block a row, which has room for everything
}

// leastBeginning is what an id is shortened to where that names it.
const leastBeginning = 8

// beginnings shortens ids to what still names one operation of its run.
func (p listing) beginnings(ids []string) []string {
	out := slices.Clone(ids)
	for i, r := range p.Operations {
		if r.Null || plain.Clean(r.Operation, plain.Detail) != r.Operation {
			continue // what is shown of it could not be typed
		}
		for _, n := range []int{leastBeginning, leastBeginning + 4, leastBeginning + 8} {
			for n < len(r.Operation) && !utf8.RuneStart(r.Operation[n]) {
				n++
			}
			if n+3 >= len(r.Operation) {
				break
			}
			start := r.Operation[:n]
			taken := slices.ContainsFunc(p.Operations, func(o ingest.Row) bool {
				return o.Run == r.Run && o.Operation != r.Operation && strings.HasPrefix(o.Operation, start)
			})
			if !taken && (p.whole || p.only != nil && p.only(ingest.Ref{Run: r.Run, Operation: start})) {
				out[i] = start
				break
			}
		}
	}
	return out
}

// notes is what else a person should see in a row.
func notes(r ingest.Row, resolved *decision.Resolved) string {
	var words []string
	if resolved != nil {
		words = append(words, "closed as "+resolved.Outcome+" by a person")
	}
	switch len(r.MissingStages) {
	case 0:
		if r.Completeness == "partial" && r.Exceptions == 0 {
			words = append(words, "no stage witnessed")
		}
	case 1:
		words = append(words, "stage "+r.MissingStages[0]+" missing")
	default:
		words = append(words, "stages "+strings.Join(r.MissingStages, ", ")+" missing")
	}
	if r.Exceptions > 0 {
		words = append(words, plain.Plural(int64(r.Exceptions), "fault"))
	}
	if r.Linked != nil {
		words = append(words, "linked to "+operationName([]byte(r.Linked.Operation), r.Linked.Null))
	}
	if r.Blind != "" {
		words = append(words, "blind: "+r.Blind)
	}
	return strings.Join(words, "; ")
}

// settlementStyle colours a row by what became of the money.
func settlementStyle(settlement string) string {
	return map[string]string{"settled": green, "failed": red, "unknown": yellow}[settlement]
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
	a.put("", "", plain.Plural(int64(total), "run")+" with damage, served around:")
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
		a.toCopy("and "+plain.Number(int64(total-len(damage)))+" more; they are listed by", every)
	}
}
