package assemble

import (
	"sync"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// A Receipt is the judgement of one operation with its evidence (trace contract,
// section 6). It is never changed once made.
type Receipt struct {
	t       *Template
	id      []byte
	null    bool
	verdict Verdict
	events  []*event
	stages  [][]*event // evidence, by stage of t
	faults  []*event
}

// OperationID is the operation's id in WTF-8; nil when it is null.
func (r *Receipt) OperationID() []byte { return r.id }

// Null reports whether the operation's id is JSON null (trace contract, section
// 12.7).
func (r *Receipt) Null() bool { return r.null }

// Full reports whether every required stage has evidence and there is no fault.
func (r *Receipt) Full() bool { return r.verdict.Full }

// Completeness is "full" or "partial".
func (r *Receipt) Completeness() string { return r.verdict.Completeness() }

// Verdict is what Template.Judge says of the operation's shape.
func (r *Receipt) Verdict() Verdict { return r.verdict }

// Template is what the operation was judged by.
func (r *Receipt) Template() *Template { return r.t }

// Missing lists the ids of required stages without evidence, in template order.
func (r *Receipt) Missing() []string { return r.verdict.Missing }

// EventCount is the number of events.
func (r *Receipt) EventCount() int { return len(r.events) }

// StageState is a stage and whether it is confirmed.
type StageState struct {
	ID        string
	Required  bool
	Confirmed bool
	Events    int // that confirm it
}

// Stages lists the stages in template order.
func (r *Receipt) Stages() []StageState {
	all := make([]StageState, len(r.t.Stages))
	for i, s := range r.t.Stages {
		n := len(r.stages[i])
		all[i] = StageState{s.ID, s.Required, n > 0, n}
	}
	return all
}

// Exceptions lists the event types of the faults, one for each, in order.
func (r *Receipt) Exceptions() []string {
	all := make([]string, len(r.faults))
	for i, e := range r.faults {
		all[i] = string(e.typ)
	}
	return all
}

// Append appends the receipt as JSON.stringify writes it at the given depth of
// an outer document. With indent 2, depth 0 and a line feed after it, it is the
// stored receipt, byte for byte.
func (r *Receipt) Append(dst []byte, indent, depth int) []byte {
	w := writer{dst: dst, indent: indent, depth: depth}
	w.open('{')
	r.members(&w, false)
	w.close('}')
	return w.dst
}

// MemberOptions says how AppendMembers writes.
type MemberOptions struct {
	Indent, Depth int  // as for Append
	OmitEvents    bool // events_omitted, the number of events, stands last instead
}

// AppendMembers appends the members of the receipt in contract order, without
// the braces and the white space next to them, so that a caller can put members
// of its own before and after.
func (r *Receipt) AppendMembers(dst []byte, o MemberOptions) []byte {
	w := writer{dst: dst, indent: o.Indent, depth: o.Depth + 1, first: true, inline: true}
	r.members(&w, o.OmitEvents)
	return w.dst
}

// Bound is an upper bound, cheap to compute, of the bytes Append would append.
// What strangers nest deeply grows far beyond the size of its line when it is
// indented: callers that serve receipts ask first.
func (r *Receipt) Bound(indent, depth int) int64 {
	const perLine = 64 // names, punctuation
	pad := int64(indent * (depth + 4))
	n := 8 * (perLine + pad)
	text := func(s int) { n += 6*int64(s) + perLine + pad }
	text(len(r.t.Name) + len(r.id))
	for i, s := range r.t.Stages {
		n += 8 * (perLine + pad)
		text(2*len(s.ID) + len(s.Explanation))
		for _, w := range s.Match {
			text(len(w.Event))
		}
		for _, e := range r.stages[i] {
			text(0)
			n += e.boundID(indent, depth+4)
		}
	}
	for _, e := range r.faults {
		n += 4 * (perLine + pad)
		text(len(e.typ))
		n += e.boundID(indent, depth+3)
	}
	doc := docs.Get().(*jsjson.Doc)
	defer docs.Put(doc)
	for _, e := range r.events {
		text(0)
		n += e.root(doc).Bound(indent, depth+2)
	}
	return n
}

// members writes the members of the receipt: operation, completeness, stages,
// missing, exceptions, events.
func (r *Receipt) members(w *writer, omitEvents bool) {
	w.key("operation")
	w.open('{')
	w.key("template")
	w.text(r.t.Name)
	w.key("version")
	w.dst = jsjson.AppendNumber(w.dst, r.t.Version)
	w.key("operation_id")
	if r.null {
		w.raw("null")
	} else {
		w.dst = jsjson.AppendString(w.dst, r.id)
	}
	w.close('}')

	w.key("completeness")
	w.text(r.Completeness())

	w.key("stages")
	w.open('[')
	for i, s := range r.t.Stages {
		w.item()
		w.open('{')
		w.key("id")
		w.text(s.ID)
		w.key("required")
		w.bool(s.Required)
		w.key("state")
		if len(r.stages[i]) > 0 {
			w.text("confirmed")
		} else {
			w.text("not_confirmed")
		}
		w.key("events")
		w.open('[')
		for _, e := range r.stages[i] {
			w.item()
			if e.id.kind == jsjson.Absent {
				w.raw("null")
			} else {
				w.eventID(e)
			}
		}
		w.close(']')
		w.close('}')
	}
	w.close(']')

	w.key("missing")
	w.open('[')
	for i, s := range r.t.Stages {
		if !s.Required || len(r.stages[i]) > 0 {
			continue
		}
		w.item()
		w.open('{')
		w.key("stage")
		w.text(s.ID)
		w.key("expected_events")
		w.open('[')
		for _, m := range s.Match {
			w.item()
			w.text(m.Event)
		}
		w.close(']')
		if s.HasExplanation {
			w.key("why")
			w.text(s.Explanation)
		}
		w.close('}')
	}
	w.close(']')

	w.key("exceptions")
	w.open('[')
	for _, e := range r.faults {
		w.item()
		w.open('{')
		w.key("event_type")
		w.dst = jsjson.AppendString(w.dst, e.typ)
		if e.id.kind != jsjson.Absent {
			w.key("event_id")
			w.eventID(e)
		}
		w.close('}')
	}
	w.close(']')

	if omitEvents {
		w.key("events_omitted")
		w.dst = jsjson.AppendNumber(w.dst, float64(len(r.events)))
		return
	}
	w.key("events")
	w.open('[')
	doc := docs.Get().(*jsjson.Doc)
	defer docs.Put(doc)
	for _, e := range r.events {
		w.item()
		w.dst = e.root(doc).Append(w.dst, w.indent, w.depth)
	}
	w.close(']')
}

// docs holds the tapes that events are parsed on again when they are written:
// parsing twice costs less than keeping every event's tape.
var docs = sync.Pool{New: func() any { return new(jsjson.Doc) }}

// root is the event on doc's tape.
func (e *event) root(doc *jsjson.Doc) jsjson.Node {
	if doc.Parse(e.line) != nil {
		panic("assemble: a line changed after it was assembled")
	}
	return doc.Root()
}

func (e *event) boundID(indent, depth int) int64 {
	if e.id.kind == jsjson.String {
		return 6 * int64(len(e.id.text))
	}
	doc := docs.Get().(*jsjson.Doc)
	defer docs.Put(doc)
	return e.root(doc).Get("event_id").Bound(indent, depth)
}

// A writer writes JSON as JSON.stringify does.
type writer struct {
	dst           []byte
	indent, depth int
	first         bool // nothing stands yet in the innermost list or object
	inline        bool // the very first item starts where dst ends
}

func (w *writer) raw(s string)  { w.dst = append(w.dst, s...) }
func (w *writer) text(s string) { w.dst = jsjson.AppendString(w.dst, []byte(s)) }

func (w *writer) bool(b bool) {
	if b {
		w.raw("true")
	} else {
		w.raw("false")
	}
}

func (w *writer) line() {
	if w.indent == 0 {
		return
	}
	w.dst = append(w.dst, '\n')
	for range w.depth * w.indent {
		w.dst = append(w.dst, ' ')
	}
}

func (w *writer) open(c byte) {
	w.dst = append(w.dst, c)
	w.depth++
	w.first = true
}

func (w *writer) close(c byte) {
	w.depth--
	if !w.first {
		w.line()
	}
	w.dst = append(w.dst, c)
	w.first = false
}

// item begins the next element of a list.
func (w *writer) item() {
	if !w.first {
		w.dst = append(w.dst, ',')
	}
	if !w.inline {
		w.line()
	}
	w.first, w.inline = false, false
}

// key begins the next member of an object. Names need no escapes.
func (w *writer) key(name string) {
	w.item()
	w.dst = append(append(append(w.dst, '"'), name...), '"', ':')
	if w.indent > 0 {
		w.dst = append(w.dst, ' ')
	}
}

func (w *writer) eventID(e *event) {
	if e.id.kind == jsjson.String {
		w.dst = jsjson.AppendString(w.dst, e.id.text)
		return
	}
	doc := docs.Get().(*jsjson.Doc)
	defer docs.Put(doc)
	w.dst = e.root(doc).Get("event_id").Append(w.dst, w.indent, w.depth)
}
