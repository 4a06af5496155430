package mcp

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// PageDocument is the structured content of list_operations, which `list --json`
// prints too. It is not held to the size of an answer.
func PageDocument(page *ingest.Page) []byte { return appendPage(nil, page, 0) }

// ExplainDocument is the structured content of explain, which `explain --json`
// prints too, uncut.
func ExplainDocument(r *ingest.Receipt) []byte { return appendExplain(nil, r, Explanation(r)) }

// Explanation is what explain says: the receipt in words, then what the index
// knows beyond the receipt (trace contract, sections 12.8 and 12.9).
func Explanation(r *ingest.Receipt) string {
	text := strings.TrimRight(assemble.Explain(r.Receipt), "\n")
	if r.Linked != nil {
		text += "\nIts other half was recorded as operation " + shownID(*r.Linked) + " of run " + plain.Quote(r.Linked.Run, plain.Detail) + "."
	}
	if r.Blind != "" {
		text += "\nThis operation is blind: " + plain.Clean(r.Blind, plain.Detail) + ". Its records can never show a settlement, so their silence says nothing."
	}
	if r.Damaged {
		text += "\nThe run has lines that cannot be read. This is said from the sound ones; an event may be missing."
	}
	return text
}

// object writes the members of a JSON object in the order they are added. Texts
// are WTF-8 and leave as an ECMAScript engine writes them.
type object struct {
	dst   []byte
	inner bool
}

func (o *object) key(name string) {
	if o.inner {
		o.dst = append(o.dst, ',')
	} else {
		o.dst = append(o.dst, '{')
		o.inner = true
	}
	o.dst = jsjson.AppendString(o.dst, []byte(name))
	o.dst = append(o.dst, ':')
}

func (o *object) text(name, value string) {
	o.key(name)
	o.dst = jsjson.AppendString(o.dst, []byte(value))
}

// known is a text that is null when it is not known.
func (o *object) known(name, value string) {
	if value == "" {
		o.key(name)
		o.dst = append(o.dst, "null"...)
		return
	}
	o.text(name, value)
}

func (o *object) number(name string, value int64) {
	o.key(name)
	o.dst = strconv.AppendInt(o.dst, value, 10)
}

func (o *object) flag(name string, value bool) {
	o.key(name)
	o.dst = strconv.AppendBool(o.dst, value)
}

func (o *object) operation(r ingest.Ref, cut func(string) string) {
	o.text("run_id", cut(r.Run))
	if r.Null {
		o.known("operation_id", "")
	} else {
		o.text("operation_id", cut(r.Operation))
	}
}

func (o *object) list(name string, n int, item func(i int)) {
	o.key(name)
	o.dst = append(o.dst, '[')
	for i := range n {
		if i > 0 {
			o.dst = append(o.dst, ',')
		}
		item(i)
	}
	o.dst = append(o.dst, ']')
}

func (o *object) close() []byte {
	if !o.inner {
		o.dst = append(o.dst, '{')
	}
	return append(o.dst, '}')
}

func whole(text string) string { return text }

// shorten cuts a text to a number of bytes, cleaned so that what is left shows
// that it was cut and is not half a character.
func shorten(longest int) func(string) string {
	if longest <= 0 {
		return whole
	}
	return func(text string) string {
		if len(text) <= longest {
			return text
		}
		// A character has at most four bytes, and the cleaner need not see more
		// of a very long text than can be kept.
		return plain.Clean(text[:min(len(text), 4*longest)], longest/4)
	}
}

// damagedBytes bounds the damage a page names, so that it cannot crowd the rows
// out; damaged_total still counts all.
const damagedBytes = 12 << 10

// appendPage writes a page. Where longest is not 0, texts over so many bytes are
// cut and the row says so.
func appendPage(dst []byte, page *ingest.Page, longest int) []byte {
	o := object{dst: dst}
	o.list("operations", len(page.Operations), func(i int) {
		o.dst = appendRow(o.dst, &page.Operations[i], longest)
	})
	o.number("runs_scanned", int64(page.RunsScanned))
	if page.NextCursor != "" {
		o.text("next_cursor", page.NextCursor)
	}
	var damaged [][]byte
	total := 0
	for _, d := range page.DamagedRuns {
		var entry object
		entry.text("run_id", d.RunID)
		entry.number("line", d.Line)
		entry.text("reason", plain.Clean(d.Reason, plain.Detail))
		text := entry.close()
		if total += len(text); total > damagedBytes || len(damaged) == 20 {
			break
		}
		damaged = append(damaged, text)
	}
	o.list("damaged_runs", len(damaged), func(i int) { o.dst = append(o.dst, damaged[i]...) })
	o.number("damaged_total", int64(page.DamagedTotal))
	return o.close()
}

func appendRow(dst []byte, row *ingest.Row, longest int) []byte {
	cut := shorten(longest)
	o := object{dst: dst}
	o.operation(row.Ref, cut)
	if row.Null {
		o.flag("null_operation", true)
	}
	o.text("template", cut(row.Template))
	o.text("completeness", row.Completeness)
	stages := row.MissingStages
	if longest > 0 {
		stages = stages[:min(len(stages), 20)]
	}
	o.list("missing_stages", len(stages), func(i int) {
		o.dst = jsjson.AppendString(o.dst, []byte(cut(stages[i])))
	})
	o.number("exception_count", int64(row.Exceptions))
	o.text("last_event_at", cut(row.LastEventAt))
	o.known("counterparty", cut(row.Counterparty))
	o.known("amount", cut(row.Amount))
	o.known("asset", cut(row.Asset))
	o.text("settlement", row.Settlement)
	if row.Linked != nil {
		o.key("linked_operation")
		linked := object{dst: o.dst}
		linked.operation(*row.Linked, cut)
		o.dst = linked.close()
	}
	if row.Blind != "" {
		o.text("blind", plain.Clean(row.Blind, plain.Detail))
	}
	if longest > 0 {
		o.flag("truncated", true)
	}
	return o.close()
}

// appendReceipt writes run_id and then the receipt's own members, in the order
// and with the spellings of the contract (trace contract, sections 6 and 12.1).
func appendReceipt(dst []byte, r *ingest.Receipt, withEvents bool) []byte {
	o := object{dst: dst}
	o.text("run_id", r.Run)
	o.dst = append(o.dst, ',')
	o.dst = r.AppendMembers(o.dst, assemble.MemberOptions{OmitEvents: !withEvents})
	if r.Damaged {
		omitted := ""
		if i := bytes.LastIndex(o.dst, []byte(`,"events_omitted":`)); !withEvents && i >= 0 {
			omitted = string(o.dst[i:])
			o.dst = o.dst[:i]
		}
		o.flag("damaged", true)
		o.dst = append(o.dst, omitted...) // it stands last
	}
	return o.close()
}

func appendExplain(dst []byte, r *ingest.Receipt, text string) []byte {
	o := object{dst: dst}
	o.operation(r.Ref, whole)
	o.text("template", r.Template.Name)
	o.text("completeness", r.Completeness())
	o.text("explanation", text)
	return o.close()
}

func appendAwait(dst []byte, a *ingest.Await) []byte {
	o := object{dst: dst}
	o.operation(a.Ref, whole)
	o.text("template", a.Template)
	o.text("completeness", a.Completeness)
	o.text("settlement", a.Settlement)
	o.flag("timed_out", a.TimedOut)
	return o.close()
}
