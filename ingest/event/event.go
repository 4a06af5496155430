package event

import (
	"errors"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// OpKind says to which kind of operation an event belongs.
type OpKind uint8

const (
	// NoOperation is an event whose context_id is absent or empty: it stays
	// unassigned.
	NoOperation OpKind = iota
	// NullOperation is an event whose context_id is JSON null: such events
	// make up one operation with a null id.
	NullOperation
	// TextOperation is an event whose context_id is non-empty text.
	TextOperation
)

// Event is the envelope of one sound line. Texts are WTF-8 and alias the line
// where nothing needed decoding; they and the nodes are valid until the document
// is parsed again or the line changes.
type Event struct {
	ID, Type, At []byte  // event_id, event_type, occurred_at
	Seq          float64 // may be infinite, never NaN
	Role         []byte
	HasRole      bool // the event has a role and it is text
	Op           OpKind
	OpID         []byte      // of a TextOperation
	Payload      jsjson.Node // absent if none; any kind
	Root         jsjson.Node // the whole event
}

// Key is what the event is ordered by.
func (e Event) Key() Key { return Key{At: e.At, Seq: e.Seq, ID: e.ID} }

// Fault says why a complete line cannot be indexed. The empty Fault is a sound
// line.
type Fault string

// The faults. Their values are stored and never change meaning.
const (
	FaultNotJSON    Fault = "not_json"      // not exactly one JSON value
	FaultTooDeep    Fault = "too_deep"      // nested deeper than jsjson.MaxDepth
	FaultNotObject  Fault = "not_object"    // a JSON value, but no object
	FaultEventID    Fault = "event_id"      // missing or not text
	FaultEventType  Fault = "event_type"    // missing or not text
	FaultOccurredAt Fault = "occurred_at"   // missing or not text
	FaultSeq        Fault = "seq"           // missing or not a number
	FaultContextID  Fault = "context_id"    // present and neither text nor null
	FaultTooLong    Fault = "line_too_long" // longer than the reader's limit; found by the reader
	FaultEntry      Fault = "entry"         // a directory entry that cannot be read safely; found by the reader
)

// Message is a short reason in plain English, without a final stop.
func (f Fault) Message() string {
	switch f {
	case "":
		return ""
	case FaultNotJSON:
		return "the line is not one JSON value"
	case FaultTooDeep:
		return "the line is nested deeper than 3000 levels"
	case FaultNotObject:
		return "the line is not a JSON object"
	case FaultEventID:
		return "event_id is missing or not text"
	case FaultEventType:
		return "event_type is missing or not text"
	case FaultOccurredAt:
		return "occurred_at is missing or not text"
	case FaultSeq:
		return "seq is missing or not a number"
	case FaultContextID:
		return "context_id is neither text nor null"
	case FaultTooLong:
		return "the line is too long to be read"
	case FaultEntry:
		return "the entry is not a regular file that can be read safely"
	}
	return "unknown fault " + string(f)
}

// Decode reads one complete, non-blank line, without its LF, by the policy of
// the trace contract, section 3. Of a repeated top-level member the last copy
// counts (section 8.2), for the checks too. With several faults the first in
// the order of the Fault constants is named. The event of a faulty line is the
// zero Event.
func Decode(d *jsjson.Doc, line []byte) (Event, Fault) {
	if err := d.Parse(line); err != nil {
		var syntax *jsjson.SyntaxError
		if errors.As(err, &syntax) && syntax.TooDeep() {
			return Event{}, FaultTooDeep
		}
		return Event{}, FaultNotJSON
	}
	root := d.Root()
	if root.Kind() != jsjson.Object {
		return Event{}, FaultNotObject
	}
	var id, typ, at, seq, role, op, payload jsjson.Node
	for name, value := range root.Members() {
		switch string(name.Text()) {
		case "event_id":
			id = value
		case "event_type":
			typ = value
		case "occurred_at":
			at = value
		case "seq":
			seq = value
		case "role":
			role = value
		case "context_id":
			op = value
		case "payload":
			payload = value
		}
	}
	switch {
	case id.Kind() != jsjson.String:
		return Event{}, FaultEventID
	case typ.Kind() != jsjson.String:
		return Event{}, FaultEventType
	case at.Kind() != jsjson.String:
		return Event{}, FaultOccurredAt
	case seq.Kind() != jsjson.Number:
		return Event{}, FaultSeq
	}
	e := Event{
		ID:      id.Text(),
		Type:    typ.Text(),
		At:      at.Text(),
		Seq:     seq.Float(),
		Payload: payload,
		Root:    root,
	}
	switch op.Kind() {
	case jsjson.Absent:
	case jsjson.Null:
		e.Op = NullOperation
	case jsjson.String:
		// Empty text is no id (trace contract, section 3).
		if text := op.Text(); len(text) > 0 {
			e.Op, e.OpID = TextOperation, text
		}
	default:
		return Event{}, FaultContextID
	}
	if role.Kind() == jsjson.String {
		e.Role, e.HasRole = role.Text(), true
	}
	return e, ""
}

// Key is the sort key of an event: the trace contract, section 5.1.
type Key struct {
	At  []byte  // occurred_at, compared as text
	Seq float64 // never NaN
	ID  []byte  // event_id
}

// Compare orders keys: occurred_at as text by UTF-16 code unit, then seq as a
// number, then event_id by code unit. Infinities of one sign are equal. Equal
// keys keep file order, which is the caller's stable sort.
func (k Key) Compare(o Key) int {
	if c := jsjson.Compare(k.At, o.At); c != 0 {
		return c
	}
	switch {
	case k.Seq < o.Seq:
		return -1
	case k.Seq > o.Seq:
		return 1
	}
	return jsjson.Compare(k.ID, o.ID)
}
