package event

import "github.com/settlewatch/settlewatch/assemble/jsjson"

// Recorded reads the envelope of a line that stands byte for byte as the
// recorder of purchases writes it (trace contract, section 3): these members,
// each once and in this order, no white space, texts of plain ASCII. Nearly
// every line does, and needs no tape then.
//
// It does not look into the payload: where that is exactly one JSON object, the
// line is sound and the event is Decode's, but for Payload and Root, which are
// absent. Where it is not, or ok is false, nothing is known of the line.
func Recorded(line []byte) (e Event, payload []byte, ok bool) {
	c := jsjson.Cursor(line)
	e.ID, c = c.Text(`{"event_id":"`)
	e.Type, c = c.Text(`,"event_type":"`)
	e.At, c = c.Text(`,"occurred_at":"`)
	e.OpID, c = c.Text(`,"context_id":"`)
	e.Seq, c = c.Digits(`,"seq":`)
	_, c = c.Text(`,"adapter":"`)
	e.Role, c = c.Text(`,"role":"`)
	c = c.Take(`,"payload":`)
	if len(c) < 3 || c[0] != '{' || c[len(c)-1] != '}' || len(e.OpID) == 0 {
		return Event{}, nil, false
	}
	e.Op, e.HasRole = TextOperation, true
	return e, c[:len(c)-1], true
}
