package mcp

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// PageDocument is the structured content of list_operations, which `list --json`
// prints too. It is not held to the size of an answer. resolved is what people found
// out, one for each operation of the page.
func PageDocument(page *ingest.Page, resolved []*decision.Resolved) []byte {
	return appendPage(nil, page, resolved, 0)
}

// ExplainDocument is the structured content of explain, which `explain --json`
// prints too, uncut. resolved is what a person found out, nil for nothing.
func ExplainDocument(r *ingest.Receipt, resolved *decision.Resolved) []byte {
	return appendExplain(nil, r, resolved, Explanation(r, resolved))
}

// Explanation is what explain says: what a person found out (guard contract,
// section 6) and what the index concludes from all runs (trace contract, sections
// 12.8 and 12.9), then the receipt in words.
func Explanation(r *ingest.Receipt, resolved *decision.Resolved) string {
	return conclusion(r, resolved) + receiptWords(r)
}

// receiptWords follows from the receipt alone (guard contract, section 9).
func receiptWords(r *ingest.Receipt) string {
	return strings.TrimRight(assemble.Explain(r.Receipt), "\n")
}

// conclusion is one line on the money, and what the words after it are worth
// beside it: they may rightly say that no answer is on record, in the receipt.
func conclusion(r *ingest.Receipt, resolved *decision.Resolved) string {
	line := "Conclusion: " + settlementWords(r.Settlement)
	if resolved != nil {
		line = "Conclusion: " + resolvedWords(resolved) + ". By the traces alone, " + settlementWords(r.Settlement)
	}
	if r.Linked != nil {
		line += " " + linkWords(r)
	}
	if r.Blind != "" {
		line += " " + blindWords(r.Blind)
	}
	line += "\nThat is judged from all runs together and holds wherever the receipt alone leaves more open.\n"
	if r.Damaged {
		line += "The run is damaged: it has lines that cannot be read, or an end that was never completed. Both are made of the sound lines; an event may be missing.\n"
	}
	return line + "\nFrom this receipt alone:\n"
}

// resolvedWords says that a person closed an operation, and what that rests on: an
// agent shall not take it for something that was witnessed.
func resolvedWords(r *decision.Resolved) string {
	line := "a person, not the trace, closed this operation as " + plain.Clean(r.Outcome, shortText)
	if r.Time != "" {
		line += ", paid at " + plain.Clean(r.Time, shortText)
	}
	by := plain.Clean(r.DecidedBy, plain.Detail)
	if r.Key != "" {
		by = "signed by " + plain.Quote(r.DecidedBy, plain.Detail)
	}
	return line + " (" + by + "; note: " + plain.Quote(r.Note, plain.Detail) + ")"
}

// resolved is what a person found out about an operation; nothing is written where
// that is nothing.
func (o *object) resolved(r *decision.Resolved, cut func(string) string) {
	if r == nil {
		return
	}
	o.key("resolved")
	in := object{dst: o.dst}
	in.text("outcome", r.Outcome)
	if r.Time != "" {
		in.text("at", cut(plain.Clean(r.Time, plain.Detail)))
	}
	in.text("by", cut(plain.Clean(r.DecidedBy, plain.Detail)))
	in.text("note", cut(plain.Clean(r.Note, plain.Explanation)))
	o.dst = in.close()
}

// settlementWords says the settlement state (guard contract, "Settlement
// states"), as the conclusion.
func settlementWords(state string) string {
	switch state {
	case payment.WordSettled:
		return "the money is settled: a successful settlement is on record."
	case payment.WordFailed:
		return "the payment failed: a definite refusal is on record, and nothing on record says that money moved."
	case payment.WordPending:
		return "the payment is pending: money may have moved, and the other side still has time to answer. Pending is not failed."
	case payment.WordNone:
		// Not more than that: an answer may stand here whose payment does not.
		return "nothing was paid in this operation, as far as it is recorded: it holds no payment."
	default:
		return "the state of the money is unknown: it may have moved, and nothing on record says for certain. Unknown is not failed."
	}
}

// linkWords says where the other half of an operation was recorded, and what the
// answer among the two reports. A link joins an answer, in no operation with a
// payment of its own, and a payment (trace contract, section 12.8).
func linkWords(r *ingest.Receipt) string {
	run := plain.Quote(r.Linked.Run, plain.Detail)
	where := "as " + namedID(*r.Linked) + " of run " + run
	payments := paymentsOf(r.Receipt)
	if payments == 0 {
		said := "reports a failure."
		switch r.Settlement {
		case payment.WordSettled:
			said = "reports a settlement."
		case payment.WordUnknown, payment.WordPending:
			said = "does not say for certain whether it was settled."
		}
		return "The payment that the answer in this operation belongs to was recorded elsewhere, " + where + ". The answer " + said
	}
	if r.Linked.Unassigned {
		where = "outside any operation, in run " + run
	}
	whose := "the payment of this operation"
	if payments > 1 {
		whose = "one of the payments of this operation"
	}
	said := "reports a failure, or nothing that can be relied on; neither proves that no money moved."
	switch {
	case r.Settlement == payment.WordSettled:
		said = "reports a settlement."
	case r.Settlement == payment.WordFailed:
		said = "reports a failure: a definite refusal."
	case payments > 1:
		said = "reports a settlement or a failure, and leaves it open whether each of them was settled."
	}
	return "An answer that was recorded elsewhere, " + where + ", belongs to " + whose + ". It " + said
}

func namedID(r ingest.Ref) string {
	if r.Null {
		return shownID(r)
	}
	return "operation " + shownID(r)
}

// paymentsOf counts the payments an operation's own events make: each signing,
// else each paid call (guard contract, section 1, "Spent").
func paymentsOf(r *assemble.Receipt) int {
	// Maps, because the library's structs fold letter case; and the library,
	// because an event of the greatest depth is deeper inside a receipt.
	var receipt map[string]json.RawMessage
	var events []map[string]json.RawMessage
	if json.Unmarshal(r.Append(nil, 0, 0), &receipt) != nil || json.Unmarshal(receipt["events"], &events) != nil {
		return 0 // cannot be: the receipt was written here
	}
	signed, called := 0, 0
	for _, e := range events {
		if string(e["role"]) != `"client"` {
			continue
		}
		switch string(e["event_type"]) {
		case `"x402.payment.submitted"`:
			signed++
		case `"x402.payment.requested"`:
			called++
		}
	}
	if signed > 0 {
		return signed
	}
	return called
}

// blindWords says why no settlement could be seen (trace contract, section 9,
// "Blind buyers").
func blindWords(reason string) string {
	why := "the session that recorded it could never witness a settlement"
	switch reason {
	case payment.BlindVersion1:
		why = "a version 1 seller's answer is never recorded by this client"
	case payment.BlindSolana:
		why = "this client records an answer on Solana without the operation it belongs to"
	case payment.BlindNoResponseHook:
		why = "this client had no hook for answers, so none was ever recorded"
	}
	return "This operation is blind: " + why + ". That no answer is seen says nothing about the money."
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
	if r.Null || r.Unassigned {
		o.known("operation_id", "")
	} else {
		o.text("operation_id", cut(r.Operation))
	}
	if r.Unassigned {
		o.flag("unassigned", true)
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

// damagedBytes bounds the damage a page names, in bytes as they are sent, so that
// it cannot crowd the rows out; damaged_total still counts all.
const damagedBytes = 12 << 10

// appendPage writes a page. Where longest is not 0, texts over so many bytes are
// cut and the row says so.
func appendPage(dst []byte, page *ingest.Page, resolved []*decision.Resolved, longest int) []byte {
	o := object{dst: dst}
	o.list("operations", len(page.Operations), func(i int) {
		o.dst = appendRow(o.dst, &page.Operations[i], resolved[i], longest)
	})
	o.number("runs_scanned", int64(page.RunsScanned))
	if page.NextCursor != "" {
		o.text("next_cursor", page.NextCursor)
	}
	var damaged [][]byte
	var sent bytes.Buffer
	total := 0
	for _, d := range page.DamagedRuns {
		var entry object
		entry.text("run_id", d.RunID)
		entry.number("line", d.Line)
		entry.text("reason", plain.Clean(d.Reason, plain.Detail))
		text := entry.close()
		sent.Reset()
		json.HTMLEscape(&sent, text) // as the library sends it
		if total += sent.Len(); total > damagedBytes || len(damaged) == 20 {
			break
		}
		damaged = append(damaged, text)
	}
	o.list("damaged_runs", len(damaged), func(i int) { o.dst = append(o.dst, damaged[i]...) })
	o.number("damaged_total", int64(page.DamagedTotal))
	return o.close()
}

func appendRow(dst []byte, row *ingest.Row, resolved *decision.Resolved, longest int) []byte {
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
	o.resolved(resolved, cut)
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
// What is not the receipt's follows; only events_omitted stands behind it.
func appendReceipt(dst []byte, r *ingest.Receipt, resolved *decision.Resolved, withEvents bool) []byte {
	o := object{dst: dst}
	o.text("run_id", r.Run)
	o.dst = append(o.dst, ',')
	o.dst = r.AppendMembers(o.dst, assemble.MemberOptions{OmitEvents: !withEvents})
	omitted := ""
	if i := bytes.LastIndex(o.dst, []byte(`,"events_omitted":`)); !withEvents && i >= 0 {
		omitted = string(o.dst[i:])
		o.dst = o.dst[:i]
	}
	o.text("settlement", r.Settlement)
	o.resolved(resolved, whole)
	if r.Damaged {
		o.flag("damaged", true)
	}
	o.dst = append(o.dst, omitted...)
	return o.close()
}

func appendExplain(dst []byte, r *ingest.Receipt, resolved *decision.Resolved, text string) []byte {
	o := object{dst: dst}
	o.operation(r.Ref, whole)
	o.text("template", r.Template.Name)
	o.text("completeness", r.Completeness())
	o.text("settlement", r.Settlement)
	o.resolved(resolved, whole)
	o.text("explanation", text)
	return o.close()
}

func appendAwait(dst []byte, a *ingest.Await) []byte {
	o := object{dst: dst}
	o.operation(a.Ref, whole)
	o.flag("recorded", a.Recorded)
	o.text("template", a.Template)
	o.text("completeness", a.Completeness)
	o.text("settlement", a.Settlement)
	o.flag("timed_out", a.TimedOut)
	return o.close()
}
