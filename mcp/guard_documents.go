package mcp

import (
	"slices"
	"time"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// VerdictDocument is the structured content of check_before_pay, which `check
// --json` prints too. None of these documents is held to the size of an answer.
func VerdictDocument(v *guard.Verdict) []byte { return verdictJSON(v, uncut) }

// HeadroomDocument is the structured content of get_headroom, which `headroom
// --json` prints too.
func HeadroomDocument(h *guard.Headroom) []byte { return headroomJSON(h, uncut) }

// ReviewDocument is the structured content of get_review_status, which `review
// show --json` prints too.
func ReviewDocument(r *guard.ReviewView) []byte { return appendReview(nil, r, uncut) }

// ReviewsDocument is what `review list --json` prints: reviews as
// [ReviewDocument] has them, and the cursor of the next page.
func ReviewsDocument(page *guard.ReviewPage) []byte {
	var o object
	o.list("reviews", len(page.Reviews), func(i int) { o.dst = appendReview(o.dst, &page.Reviews[i], uncut) })
	if page.NextCursor != "" {
		o.text("next_cursor", page.NextCursor)
	}
	return o.close()
}

// cut bounds what an answer of the guard has, so that it fits. What decides
// (decision, status, the ids an agent needs next) is in none of these.
type cut struct {
	reasons int // rules that are shown: the first ones and the last
	refs    int // operations of a reason
	ids     int // bytes both ids of such an operation may have: they are exact or absent
	detail  int // characters of a reason's detail
	text    int // characters of any other text
	names   int // names of a review, limits of a headroom
	way     int // bytes of where a person decides: a part of it leads somewhere else
	room    int // bytes of the lines of the text block that give reasons, as they are sent
}

var (
	uncut = cut{reasons: 1 << 20, refs: 1 << 20, ids: 1 << 30, detail: plain.Explanation, text: maxText, names: 1 << 20, way: 1 << 20, room: 1 << 30}

	// cuts are tried one after the other. The last fits whatever the answer says.
	cuts = []cut{
		{reasons: 100, refs: 20, ids: 4096, detail: plain.Explanation, text: maxText, names: 100, way: maxText, room: textRoom},
		{reasons: 100, refs: 20, ids: 400, detail: plain.Explanation, text: maxText, names: 100, way: maxText, room: textRoom},
		{reasons: 60, refs: 5, ids: 400, detail: 600, text: 600, names: 50, way: maxText, room: textRoom / 2},
		{reasons: 40, refs: 1, ids: 200, detail: 300, text: plain.Detail, names: 20, way: longestWay, room: textRoom / 3},
		{reasons: 20, refs: 0, ids: 0, detail: 150, text: 120, names: 10, way: longestWay, room: textRoom / 6},
		{reasons: 10, refs: 0, ids: 0, detail: 80, text: shortText, names: 5, way: longestWay, room: textRoom / 6},
	}
)

// fitting is the first of an answer's forms that is within the limit.
func fitting(form func(cut) answer) answer {
	var found answer
	for _, c := range cuts {
		if found = form(c); found.fits() {
			break
		}
	}
	return found
}

// instant writes a time as the contracts do.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func verdictJSON(v *guard.Verdict, c cut) []byte {
	var o object
	o.text("decision", v.Decision)
	o.reasons("reasons", v.Reasons, c)
	if v.ReviewID != "" {
		o.text("review_id", v.ReviewID)
	}
	if h := v.Hold; h != nil {
		o.key("hold")
		hold := object{dst: o.dst}
		hold.text("hold_id", h.ID)
		hold.text("amount", plain.Clean(h.Amount, c.text))
		hold.text("asset", plain.Clean(h.Asset, c.text))
		hold.text("expires_at", instant(h.ExpiresAt))
		o.dst = hold.close()
	}
	o.handoff(v.Handoff, c)
	if n := min(len(v.Warnings), c.names); n > 0 {
		o.list("warnings", n, func(i int) {
			o.dst = jsjson.AppendString(o.dst, []byte(plain.Clean(v.Warnings[i], shortText)))
		})
	}
	if len(v.Shadow) > 0 {
		// A limit in shadow mode is for whoever tunes the policy: no evidence.
		bare := make([]decision.Reason, len(v.Shadow))
		for i, r := range v.Shadow {
			bare[i] = decision.Reason{Rule: r.Rule, Detail: r.Detail}
		}
		o.reasons("shadow", bare, c)
	}
	o.key("checked")
	checked := object{dst: o.dst}
	checked.number("events", v.Checked.Events)
	checked.number("runs", v.Checked.Runs)
	checked.text("through", plain.Clean(v.Checked.Through, shortText))
	o.dst = checked.close()
	return o.close()
}

// someReasons leaves out rules in the middle where there is no room: what decides
// stands first, and the last is the history.
func someReasons(all []decision.Reason, most int) []decision.Reason {
	if len(all) <= most {
		return all
	}
	return append(slices.Clone(all[:most-1]), all[len(all)-1])
}

func (o *object) reasons(name string, all []decision.Reason, c cut) {
	some := someReasons(all, c.reasons)
	o.list(name, len(some), func(i int) {
		r := object{dst: o.dst}
		r.text("rule", plain.Clean(some[i].Rule, min(plain.Detail, c.text)))
		r.text("detail", plain.Clean(some[i].Detail, c.detail))
		if total := max(some[i].Total, len(some[i].Evidence)); total > 0 {
			refs := someRefs(some[i].Evidence, c)
			r.list("evidence", len(refs), func(j int) {
				e := object{dst: r.dst}
				e.operation(refs[j], whole)
				r.dst = e.close()
			})
			if total > len(refs) {
				r.number("evidence_total", int64(total))
			}
		}
		o.dst = r.close()
	})
}

// someRefs leaves out operations whose ids have no room: an id that was cut
// would address another operation, or none.
func someRefs(all []decision.Ref, c cut) (some []ingest.Ref) {
	for _, of := range all {
		ref := traceRef(of.Run, of.Operation)
		if len(some) < c.refs && len(ref.Run)+len(ref.Operation) <= c.ids {
			some = append(some, ref)
		}
	}
	return some
}

// traceRef reads ids as the log writes them. What an agent is given are the ids
// of the trace, which get_receipt takes.
func traceRef(run string, operation *string) ingest.Ref {
	if operation == nil {
		return ingest.Ref{Run: decision.DecodeID(run), Null: true}
	}
	return ingest.Ref{Run: decision.DecodeID(run), Operation: decision.DecodeID(*operation)}
}

func (o *object) handoff(h *guard.Handoff, c cut) {
	if h = reachable(h, c); h == nil {
		return
	}
	o.key("handoff")
	to := object{dst: o.dst}
	to.text("kind", h.Kind)
	to.text("target", plain.Clean(h.Target, c.way))
	to.text("instruction", plain.Clean(h.Instruction, c.text))
	o.dst = to.close()
}

// reachable is h where there is room for the whole of it.
func reachable(h *guard.Handoff, c cut) *guard.Handoff {
	if h == nil || len(h.Target) > c.way {
		return nil
	}
	return h
}

// appendReview writes the members of the contract; what else is known of a review
// (facts, what it was spent on) is for people and for the text.
func appendReview(dst []byte, r *guard.ReviewView, c cut) []byte {
	text := func(s string) string { return plain.Clean(s, c.text) }
	o := object{dst: dst}
	optional := func(name, value string) {
		if value != "" {
			o.text(name, text(value))
		}
	}
	o.text("review_id", r.ID)
	o.text("status", r.Status)
	o.text("created_at", instant(r.CreatedAt))
	if !r.DecidedAt.IsZero() {
		o.text("decided_at", instant(r.DecidedAt))
	}
	optional("note", r.Note)
	o.text("counterparty", text(r.Counterparty))
	o.text("amount", text(r.Amount))
	o.text("asset", text(r.Asset))
	optional("template", r.Template)
	o.reasons("reasons", r.Reasons, c)
	o.list("names", min(len(r.Names), c.names), func(i int) {
		o.dst = jsjson.AppendString(o.dst, []byte(text(r.Names[i])))
	})
	o.known("pay_to", text(r.PayTo))
	o.known("resource", text(r.Resource))
	o.known("network", text(r.Network))
	if call := r.Call; call != nil {
		o.key("tool_call")
		in := object{dst: o.dst}
		in.text("tool", text(call.Tool))
		in.text("resource", text(call.Resource))
		in.text("risk", text(call.Risk))
		in.text("args_hash", text(call.ArgsHash))
		if c == uncut {
			in.text("arguments", call.Arguments) // for people, who have to know what will run
		}
		o.dst = in.close()
	}
	optional("asked_by", r.AskedBy)
	optional("decided_by", r.DecidedBy)
	o.text("expires_at", instant(r.ExpiresAt))
	o.handoff(r.Handoff, c)
	if n := min(len(r.Warnings), c.names); n > 0 {
		o.list("warnings", n, func(i int) {
			o.dst = jsjson.AppendString(o.dst, []byte(plain.Clean(r.Warnings[i], min(shortText, c.text))))
		})
	}
	return o.close()
}

func headroomJSON(h *guard.Headroom, c cut) []byte {
	text := func(s string) string { return plain.Clean(s, c.text) }
	var o object
	o.text("asset", text(h.Asset))
	o.list("limits", min(len(h.Limits), c.names), func(i int) {
		limit := &h.Limits[i]
		l := object{dst: o.dst}
		l.text("name", plain.Clean(limit.Name, min(plain.Detail, c.text)))
		l.text("scope", text(limit.Scope))
		l.text("limit", text(limit.Limit))
		l.text("spent", text(limit.Spent))
		l.text("held", text(limit.Held))
		l.text("headroom", text(limit.Headroom))
		l.number("window_hours", int64(limit.WindowHours))
		l.list("frees_up", min(len(limit.FreesUp), 3), func(j int) {
			f := object{dst: l.dst}
			f.text("at", instant(limit.FreesUp[j].At))
			f.text("amount", text(limit.FreesUp[j].Amount))
			l.dst = f.close()
		})
		if limit.Counts {
			l.flag("counts", true)
		}
		if limit.Uncounted > 0 {
			l.number("uncounted", limit.Uncounted)
		}
		o.dst = l.close()
	})
	return o.close()
}

func releaseJSON(id string) []byte {
	var o object
	o.text("hold_id", id)
	o.flag("released", true)
	return o.close()
}
