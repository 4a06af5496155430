package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/mcp"
)

const rowsShown = 50

var (
	settlements    = []string{"settled", "unknown", "pending", "failed", "none"}
	completenesses = []string{"full", "partial"}
)

type operationsPage struct {
	Query       ingest.Query
	Rows        []operationRow
	Settlements []string
	Sort        []choice
	Next, First string
	Damaged     int
	Filtered    bool
	Templates   []string
}

func (operationsPage) title() string { return "Operations" }

type operationRow struct {
	ingest.Row
	Amount   amount
	Last     time.Time
	LastText string // where it is no time
	Resolved *decision.Resolved
}

func (q *request) operations() error {
	v := q.r.URL.Query()
	query := ingest.Query{
		Settlement: oneOf(v.Get("settlement"), settlements...), Completeness: oneOf(v.Get("completeness"), completenesses...),
		Counterparty: strings.TrimSpace(v.Get("counterparty")), Run: strings.TrimSpace(v.Get("run")),
		Template: oneOf(v.Get("template"), assemble.Builtins()...), Cursor: v.Get("from"), Oldest: v.Get("sort") == "oldest", Limit: rowsShown,
	}
	page, err := q.x.List(q.r.Context(), query)
	if err != nil {
		return err
	}
	refs := make([]decision.Ref, len(page.Operations))
	for i := range page.Operations {
		refs[i] = mcp.LineRef(page.Operations[i].Ref)
	}
	resolved, err := q.g.Resolutions(q.r.Context(), refs)
	if err != nil {
		// The frame says what is wrong with the log.
		resolved = make([]*decision.Resolved, len(refs))
	}
	p := operationsPage{Query: query, Settlements: settlements, Damaged: page.DamagedTotal, Templates: assemble.Builtins()}
	p.Filtered = query.Settlement+query.Completeness+query.Counterparty+query.Run+query.Template != ""
	for i := range page.Operations {
		row := operationRow{Row: page.Operations[i], Resolved: resolved[i]}
		row.Amount = q.money(row.Asset, row.Row.Amount)
		if t, err := time.Parse(time.RFC3339, row.LastEventAt); err == nil {
			row.Last = t
		} else {
			row.LastText = plain.Clean(row.LastEventAt, plain.Detail)
		}
		p.Rows = append(p.Rows, row)
	}
	p.Sort = []choice{
		{Label: "newest first", Link: link(q.r, "sort", "", "from", ""), Chosen: !query.Oldest},
		{Label: "oldest first", Link: link(q.r, "sort", "oldest", "from", ""), Chosen: query.Oldest},
	}
	if page.NextCursor != "" {
		p.Next = link(q.r, "from", page.NextCursor)
	}
	if query.Cursor != "" {
		p.First = link(q.r, "from", "")
	}
	q.render(http.StatusOK, "operations", "operations", p)
	return nil
}

// operationPage is one operation with everything there is to know of it.
type operationPage struct {
	*ingest.Receipt
	Name        string
	Amount      amount
	Line        decision.Ref
	Resolved    *decision.Resolved
	Said        amount // what a person said was paid
	Explanation []sentenceShown
	Stages      []stage
	Events      []eventShown
	MoreEvents  int
	Text        string // the receipt, indented; "" when it is too large to show
	Bytes       int64  // of the receipt
	Hidden      bool   // characters of it are shown as escapes
	ReceiptLink string
	Paid        string // its payments, for the form
	Undecided   bool   // a person can still say what became of it
	Asset       string
}

func (p operationPage) title() string { return "Operation " + p.Name }

// sentenceShown is a line of the explanation.
type sentenceShown struct {
	Text       string
	Item, Lead bool
}

type stage struct {
	assemble.StageState
	Explanation string
}

// eventShown is an event on the timeline.
type eventShown struct {
	At     time.Time
	AtText string // where it is no time
	Gap    string // since the event before, where that says something
	Type   string
	Role   string
	Stage  string // the stage it confirms
	Fault  bool
	Facts  []Row
}

const (
	eventsShown = 60
	factsShown  = 4 // of an event
	linesShown  = 80
	// textShown keeps the page light; a larger receipt is one link away.
	textShown = 24 << 10
)

func (q *request) found() (*ingest.Receipt, error) {
	of, err := ref(q.r.URL.Query())
	if err != nil {
		return nil, err
	}
	return q.x.Receipt(q.r.Context(), of, oneOf(q.r.URL.Query().Get("template"), assemble.Builtins()...))
}

// paid marks what payments the operation has. The receipt is read later, so that a form
// never covers more than what the page shows.
func (q *request) paid() (string, error) {
	of, err := ref(q.r.URL.Query())
	if err != nil {
		return "", err
	}
	if of, err = q.x.Resolve(q.r.Context(), of); err != nil {
		return "", err
	}
	shown, err := q.g.Shown(q.r.Context(), mcp.LineRef(of))
	return paidMark(shown), err
}

func (q *request) operation() error {
	paid, err := q.paid()
	if err != nil {
		return err
	}
	r, err := q.found()
	if err != nil {
		return err
	}
	p := operationPage{Receipt: r, Paid: paid, Name: operationName(r.Ref), Amount: q.money(r.Asset, r.Amount), Asset: r.Asset, Line: mcp.LineRef(r.Ref)}
	if said, err := q.g.Resolutions(q.r.Context(), []decision.Ref{p.Line}); err == nil {
		if p.Resolved = said[0]; p.Resolved != nil && p.Resolved.Amount != "" {
			p.Said = q.money(p.Resolved.Asset, p.Resolved.Amount)
		}
	}
	p.Undecided = p.Resolved == nil && (r.Settlement == "unknown" || r.Settlement == "pending" || r.Settlement == "failed")
	for i, line := range strings.Split(mcp.Explanation(r, p.Resolved), "\n") {
		if len(p.Explanation) == linesShown {
			p.Explanation = append(p.Explanation, sentenceShown{Text: "It goes on; all of it: " + clean(q.o.Words.Command("explain"))})
			break
		}
		if text, item := strings.CutPrefix(line, "- "); text != "" {
			p.Explanation = append(p.Explanation, sentenceShown{Text: clean(text), Item: item, Lead: i == 0})
		}
	}
	p.ReceiptLink = strings.Replace(operationLink(r.Ref), "/operation?", "/receipt.json?", 1)
	template := r.Receipt.Template()
	for i, s := range r.Stages() {
		p.Stages = append(p.Stages, stage{s, clean(template.Stages[i].Explanation)})
	}
	if r.Bound(2, 0) <= 4<<20 {
		text := r.Append(nil, 2, 0)
		p.Bytes = int64(len(text)) + 1
		p.timeline(template, text)
		if len(text) <= textShown {
			p.Text, p.Hidden = visible(text)
		}
	}
	q.render(http.StatusOK, "operation", "operations", p)
	return nil
}

// timeline lays out the events of a receipt.
func (p *operationPage) timeline(t *assemble.Template, receipt []byte) {
	var doc struct {
		Events []json.RawMessage `json:"events"`
	}
	if json.Unmarshal(receipt, &doc) != nil {
		return
	}
	p.MoreEvents = max(0, len(doc.Events)-eventsShown)
	var before time.Time
	for _, raw := range doc.Events[:len(doc.Events)-p.MoreEvents] {
		var e struct {
			Type    any            `json:"event_type"`
			At      any            `json:"occurred_at"`
			Role    any            `json:"role"`
			Payload map[string]any `json:"payload"`
		}
		if json.Unmarshal(raw, &e) != nil {
			// A member has a shape of its own; the receipt below has it.
			p.Events = append(p.Events, eventShown{Type: "an event that cannot be laid out"})
			continue
		}
		typ, at, role := word(e.Type), word(e.At), word(e.Role)
		shown := eventShown{Type: clean(typ), Role: clean(role), Fault: t.IsException(typ)}
		if when, err := time.Parse(time.RFC3339, at); err == nil {
			shown.At = when
			if gap := when.Sub(before); !before.IsZero() && gap >= time.Second {
				shown.Gap = took(gap)
			}
			before = when
		} else {
			shown.AtText = plain.Clean(at, plain.Detail)
		}
		for i := range t.Stages {
			if slices.ContainsFunc(t.Stages[i].Match, func(w assemble.Witness) bool { return w.Event == typ && (w.Role == "" || w.Role == role) }) {
				shown.Stage = clean(t.Stages[i].ID)
			}
		}
		shown.Facts = facts(e.Payload)
		p.Events = append(p.Events, shown)
	}
}

func word(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	return fmt.Sprint(v)
}

// facts are members of a payload that tell what an event was about, where they are
// plain text.
func facts(payload map[string]any) (out []Row) {
	for _, path := range []string{
		"settle.success", "settle.transaction", "settle.error_reason", "verify.is_valid", "verify.invalid_reason", "error.message", "error", "payment_required.error",
		"requirements.amount", "requirements.pay_to", "requirements.network", "resource.url",
	} {
		var at any = payload
		for part := range strings.SplitSeq(path, ".") {
			m, ok := at.(map[string]any)
			if !ok {
				at = nil
				break
			}
			at = m[part]
		}
		if len(out) == factsShown {
			break
		}
		switch v := at.(type) {
		case string:
			out = append(out, Row{Label: path, Value: plain.Clean(v, plain.Detail)})
		case bool:
			out = append(out, Row{Label: path, Value: fmt.Sprint(v)})
		}
	}
	return out
}

// visible is JSON with what nobody would see written as escapes, which mean the same.
func visible(text []byte) (shown string, changed bool) {
	var b strings.Builder
	for rest := text; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		rest = rest[n:]
		switch {
		case r == '\n' || !plain.Hidden(r):
			b.WriteRune(r)
		default:
			changed = true
			if r > 0xffff {
				r -= 0x10000
				fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
			} else {
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		}
	}
	return b.String(), changed
}

// maxReceipt bounds a receipt that is downloaded whole.
const maxReceipt = 64 << 20

// receipt gives the receipt's bytes as they are stored.
func (q *request) receipt() error {
	r, err := q.found()
	if err != nil {
		return err
	}
	if r.Bound(2, 0) > maxReceipt {
		return errcode.New(errcode.ReceiptTooLarge, q.o.Words.Command("receipt"), "the receipt is larger than a page gives")
	}
	q.w.Header().Set("Content-Type", "application/json")
	q.w.Header().Set("Content-Disposition", `attachment; filename="receipt.json"`)
	_, err = q.w.Write(append(r.Append(nil, 2, 0), '\n'))
	return err
}
