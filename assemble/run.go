package assemble

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// LineError is a line that refuses a whole run.
type LineError struct {
	Line   int // from 1, blank lines counted
	Reason string
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

// SplitLines yields the lines of a run file without their LF, numbered from 1.
// What follows the last LF is a torn record, even when it is whole, and is
// dropped (trace contract, section 2). Blank lines are yielded too.
func SplitLines(data []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for n := 1; ; n++ {
			end := bytes.IndexByte(data, '\n')
			if end < 0 || !yield(n, data[:end]) {
				return
			}
			data = data[end+1:]
		}
	}
}

// A Run is what a template makes of one run file.
type Run struct {
	Receipts   []*Receipt // in order of the operations' first events
	Unassigned [][]byte   // lines of events that belong to no operation, in order
}

// Assemble makes the receipts of a run from its file (trace contract, sections 2
// and 5). It is as tolerant as section 3 of the contract: only a line that is
// not JSON, is null or has an operation id that is neither text nor null refuses
// the run, with a *LineError. The Run keeps data, which must not be changed.
func Assemble(t *Template, data []byte) (*Run, error) {
	var doc jsjson.Doc
	events := make([]event, 0, len(data)/400)
	for n, line := range SplitLines(data) {
		if jsjson.Blank(line) {
			continue
		}
		e, err := decode(&doc, line)
		if err != nil {
			err.Line = n
			return nil, err
		}
		events = append(events, e)
	}

	type group struct{ events []*event }
	var groups []*group
	var null *group
	byID := map[string]*group{}
	run := &Run{}
	for _, e := range sorted(events) {
		var g *group
		switch e.owner {
		case ownerNone:
			run.Unassigned = append(run.Unassigned, e.line)
			continue
		case ownerNull:
			if null == nil {
				null = &group{}
				groups = append(groups, null)
			}
			g = null
		default:
			g = byID[string(e.operation)]
			if g == nil {
				g = &group{}
				byID[string(e.operation)] = g
				groups = append(groups, g)
			}
		}
		g.events = append(g.events, e)
	}
	table := t.table()
	for _, g := range groups {
		run.Receipts = append(run.Receipts, fold(t, table, g.events))
	}
	return run, nil
}

// One makes the receipt of a single operation from its lines, in the order they
// have in the file. It is the receipt Assemble makes of the whole run. The
// *LineError of a line that cannot be used numbers it within lines. The Receipt
// keeps the lines, which must not be changed.
func One(t *Template, lines [][]byte) (*Receipt, error) {
	if len(lines) == 0 {
		return nil, errors.New("an operation without events has no receipt")
	}
	var doc jsjson.Doc
	events := make([]event, 0, len(lines))
	for i, line := range lines {
		e, err := decode(&doc, line)
		if err == nil && e.owner == ownerNone {
			err = &LineError{Reason: "the event belongs to no operation"}
		}
		if err == nil && i > 0 && (e.owner != events[0].owner || !bytes.Equal(e.operation, events[0].operation)) {
			err = &LineError{Reason: "the event belongs to another operation"}
		}
		if err != nil {
			err.Line = i + 1
			return nil, err
		}
		events = append(events, e)
	}
	return fold(t, t.table(), sorted(events)), nil
}

// An event is a line of a run, decoded as far as assembly needs. The rest stays
// in the line until it is written.
type event struct {
	line      []byte
	operation []byte // id, when owner is ownerText
	typ       []byte // nil unless text
	role      []byte // nil unless text
	at, id    loose
	seq       float64 // NaN when it cannot be compared
	owner     owner
}

// owner says which operation an event belongs to.
type owner uint8

const (
	ownerNone owner = iota // no id, or an empty one
	ownerNull              // the id null, an operation of its own
	ownerText
)

// loose is a member that ought to be text and may be anything.
type loose struct {
	text []byte // when kind is jsjson.String
	num  float64
	kind jsjson.Kind
}

// compare is JavaScript's comparison of the two: as texts when both are, else
// as numbers, where whatever is no number compares equal to anything (trace
// contract, section 5, "Off-contract comparisons").
func (a loose) compare(b loose) int {
	if a.kind == jsjson.String && b.kind == jsjson.String {
		return jsjson.Compare(a.text, b.text)
	}
	return compareNumbers(a.number(), b.number())
}

func (a loose) number() float64 {
	if a.kind == jsjson.String {
		return textNumber(a.text)
	}
	return a.num
}

// compareNumbers orders by difference, so that NaN, and two infinities alike,
// are equal to each other.
func compareNumbers(a, b float64) int {
	switch d := a - b; {
	case d < 0:
		return -1
	case d > 0:
		return 1
	}
	return 0
}

// decode reads a line that is not blank.
func decode(doc *jsjson.Doc, line []byte) (event, *LineError) {
	e := event{line: line, at: loose{num: nan}, id: loose{num: nan}, seq: nan}
	if err := doc.Parse(line); err != nil {
		return e, &LineError{Reason: "not JSON: " + err.Error()}
	}
	root := doc.Root()
	if root.Kind() == jsjson.Null {
		return e, &LineError{Reason: "null is not an event"}
	}
	operation := jsjson.Absent
	for name, v := range root.Members() { // a repeated member obeys its last copy
		switch string(name.Text()) {
		case "event_id":
			e.id = looseOf(v)
		case "event_type":
			e.typ = v.Text()
		case "occurred_at":
			e.at = looseOf(v)
		case "seq":
			e.seq = looseOf(v).number()
		case "role":
			e.role = v.Text()
		case "context_id":
			operation, e.operation = v.Kind(), v.Text()
		}
	}
	switch operation {
	case jsjson.Absent:
	case jsjson.Null:
		e.owner = ownerNull
	case jsjson.String:
		if len(e.operation) > 0 {
			e.owner = ownerText
		}
	default:
		return e, &LineError{Reason: "context_id is neither text nor null"}
	}
	return e, nil
}

func looseOf(v jsjson.Node) loose {
	l := loose{kind: v.Kind(), num: nan}
	switch l.kind {
	case jsjson.String:
		l.text = v.Text()
	case jsjson.Number:
		l.num = v.Float()
	case jsjson.Null:
		l.num = 0
	case jsjson.Bool:
		l.num = 0
		if v.Bool() {
			l.num = 1
		}
	}
	return l
}

// sorted puts events in the order of the trace contract, section 5.1. Full ties
// keep the order of the file.
func sorted(events []event) []*event {
	all := make([]*event, len(events))
	for i := range events {
		all[i] = &events[i]
	}
	order := func(a, b *event) int {
		return cmp.Or(a.at.compare(b.at), compareNumbers(a.seq, b.seq), a.id.compare(b.id))
	}
	if !slices.IsSortedFunc(all, order) {
		slices.SortStableFunc(all, order)
	}
	return all
}

// fold makes the receipt of the sorted events of one operation.
func fold(t *Template, table map[string]*reading, events []*event) *Receipt {
	r := &Receipt{t: t, id: events[0].operation, null: events[0].owner == ownerNull, events: events, stages: make([][]*event, len(t.Stages))}
	confirmed := make([]bool, len(t.Stages))
	for _, e := range events {
		if e.typ == nil {
			continue
		}
		reading := table[string(e.typ)]
		if reading == nil {
			continue
		}
		for i := range reading.stages {
			if s := &reading.stages[i]; s.accepts(e.role, e.role != nil) {
				r.stages[s.stage] = append(r.stages[s.stage], e)
				confirmed[s.stage] = true
			}
		}
		if reading.fault {
			r.faults = append(r.faults, e)
		}
	}
	r.verdict = t.verdict(confirmed, len(r.faults) > 0)
	return r
}
