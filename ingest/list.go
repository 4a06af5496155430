package ingest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/ingest/event"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/store"
)

const (
	defaultTemplate = "x402-buyer"
	defaultLimit    = 50
)

func pairs(shape []int64, types map[int64]store.Type) []assemble.Pair {
	out := make([]assemble.Pair, len(shape))
	for i, no := range shape {
		t := types[no]
		out[i] = assemble.Pair{Type: t.EventType, Role: t.Role, HasRole: t.HasRole}
	}
	return out
}

// cursor is where a walk stands. What was asked, the newest row of its beginning
// and the last change until then are the same on every page.
//
// A walk has three legs. First the rows unchanged since it began, newest first.
// Then those that have changed since, in order of change. Row numbers and
// changes mean something within one filling of the index only; where the index
// was filled anew in between, the walk goes on by place, and at its end shows
// what is newer than anything there was at its beginning: of a row that did not
// change the time of the last event did not either.
type cursor struct {
	Generation int64  `json:"g"`
	Rev        int64  `json:"r"`
	MaxOp      int64  `json:"m"`
	Asked      uint64 `json:"q"`
	Run        []byte `json:"f,omitempty"` // file of the run "latest" meant at first
	Top        []byte `json:"t,omitempty"` // time of the newest row of the beginning
	Refilled   bool   `json:"n,omitempty"` // the index was filled anew meanwhile

	Leg int `json:"s,omitempty"`
	// Of the first and third leg: the place of the last row. A long operation id
	// is cut here and looked up by the row's number.
	Last     []byte `json:"l,omitempty"`
	LastRun  []byte `json:"u,omitempty"`
	LastOp   []byte `json:"o,omitempty"`
	LastNo   int64  `json:"i,omitempty"`
	LastFile []byte `json:"e,omitempty"` // its name in sortable form: two files may have one run id
	// Of the second leg: the change last shown.
	ChangeRev int64 `json:"c,omitempty"`
	ChangeOp  int64 `json:"d,omitempty"`
}

const (
	legOrder = iota
	legChanged
	legNewer
)

// cursorID is how much of an operation id a cursor holds.
const cursorID = 256

func (c cursor) at(r store.Found) cursor {
	c.Last, c.LastRun, c.LastFile, c.LastOp, c.LastNo = r.Last, r.Run, r.File, r.Op, 0
	if len(r.Op) > cursorID {
		c.LastOp, c.LastNo = r.Op[:cursorID], r.No
	}
	return c
}

func (c cursor) encode() string {
	b, _ := json.Marshal(c) // integers and bytes only: it cannot fail
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(s string) (c cursor, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return c, false
	}
	return c, json.Unmarshal(b, &c) == nil
}

// asked is what a query asks, apart from how much and from where.
func (q Query) asked() uint64 {
	h := fnv.New64a()
	for _, s := range []string{q.Template, q.Run, q.Completeness, q.Counterparty, q.Settlement} {
		_, _ = h.Write([]byte(s))
		_, _ = h.Write([]byte{0})
	}
	if q.Oldest {
		_, _ = h.Write([]byte("oldest"))
	}
	return h.Sum64()
}

// List gives one page of operations, newest first (trace contract, section
// 12.3), or oldest first where the query says so. A walk along NextCursor gives every operation that does not change
// meanwhile exactly once, and one that does at least once.
func (x *Indexer) List(ctx context.Context, q Query) (*Page, error) {
	template, err := x.template(q.Template)
	if err != nil {
		return nil, err
	}
	if q.Limit <= 0 {
		q.Limit = defaultLimit
	}
	var from *cursor
	if q.Cursor != "" {
		c, ok := parseCursor(q.Cursor)
		if !ok || c.Asked != q.asked() {
			return nil, errcode.New(errcode.Input, "ask again without a cursor; a cursor only goes on with the question it came from", "cursor does not belong to this question")
		}
		from = &c
	}
	for _, allowed := range []struct {
		value string
		of    []string
		name  string
	}{
		{q.Completeness, []string{"", "full", "partial"}, "completeness"},
		{q.Settlement, []string{"", "settled", "failed", "unknown", "pending", "none"}, "settlement"},
	} {
		if !slices.Contains(allowed.of, allowed.value) {
			return nil, errcode.New(errcode.Input, "use one of "+strings.Join(allowed.of[1:], ", "), "%s %q is not known", allowed.name, allowed.value)
		}
	}
	var page *Page
	err = x.Ask(ctx, func(v *store.View) (err error) {
		page, err = x.list(v, q, template, from)
		return err
	})
	return page, err
}

// lister is one List call over one snapshot.
type lister struct {
	v          *store.View
	q          Query
	template   *assemble.Resolved
	now        int64
	types      map[int64]store.Type
	verdicts   map[int64]assemble.Verdict // by class
	openClass  map[int64]bool
	wanted     []int64 // nil: every class
	settlement store.OpenFilter
	run        int64
	runFile    []byte
	names      []int64 // nil: no name was asked for
}

func (x *Indexer) list(v *store.View, q Query, template *assemble.Resolved, from *cursor) (*Page, error) {
	generation, rev, err := v.Meta()
	if err != nil {
		return nil, err
	}
	l := &lister{v: v, q: q, template: template, now: x.now().UnixMilli()}
	page := &Page{Template: template.Name}
	if err := x.scope(l, from, page); err != nil {
		return nil, err
	}
	if err := l.judge(); err != nil {
		return nil, err
	}
	if q.Counterparty != "" {
		for _, name := range payment.Names(q.Counterparty) {
			no, err := v.Word(name)
			if err != nil {
				return nil, err
			}
			if no != 0 {
				l.names = append(l.names, no)
			}
		}
		if l.names == nil {
			return page, nil
		}
	}
	at := cursor{Generation: generation, Rev: rev, Asked: q.asked(), Run: l.runFile}
	if at.MaxOp, err = v.MaxOperation(); err != nil {
		return nil, err
	}
	if from == nil {
		return page, l.fill(page, at)
	}
	if from.Generation == generation {
		return page, l.fill(page, *from)
	}
	at.Top, at.Refilled = from.Top, true
	at.Leg, at.Last, at.LastRun, at.LastFile, at.LastOp = from.Leg, from.Last, from.LastRun, from.LastFile, from.LastOp
	if at.Leg == legChanged {
		at.Leg, at.Last = legNewer, nil
	}
	return page, l.fill(page, at)
}

// scope settles which run is asked for and what is damaged there.
func (x *Indexer) scope(l *lister, from *cursor, page *Page) error {
	if l.q.Run != "" {
		var run *store.Run
		var err error
		if from != nil && from.Run != nil {
			run, err = l.v.RunByFile(from.Run)
		} else {
			run, err = x.run(l.v, l.q.Run)
		}
		if err != nil {
			return err
		}
		if run == nil {
			return runNotFound(l.q.Run)
		}
		l.run, l.runFile = run.No, run.File
	}
	var err error
	if l.run != 0 {
		page.RunsScanned = 1
	} else if page.RunsScanned, err = l.v.RunCount(); err != nil {
		return err
	}
	page.DamagedRuns, page.DamagedTotal, err = x.damage(l.v, l.run, damageShown)
	return err
}

// judge sorts the classes by the template's verdict and the settlement asked.
func (l *lister) judge() error {
	classes, types, err := l.v.Shapes()
	if err != nil {
		return err
	}
	l.types = types
	l.verdicts = make(map[int64]assemble.Verdict, len(classes))
	l.openClass = map[int64]bool{}
	narrowed := l.q.Completeness != "" || l.q.Settlement != ""
	l.wanted = []int64{}
	for _, c := range classes {
		verdict := l.template.Judge(pairs(c.Shape, types))
		l.verdicts[c.No] = verdict
		word := payment.SettlementWord(c.Settlement)
		open := word == payment.WordOpen
		if open {
			l.openClass[c.No] = true
		}
		if l.q.Completeness != "" && verdict.Full != (l.q.Completeness == "full") {
			continue
		}
		switch l.q.Settlement {
		case "":
		case payment.WordPending, payment.WordUnknown:
			// Open operations are one or the other by the clock.
			if !open && word != l.q.Settlement {
				continue
			}
		default:
			if word != l.q.Settlement {
				continue
			}
		}
		l.wanted = append(l.wanted, c.No)
	}
	if !narrowed {
		l.wanted = nil
	}
	switch l.q.Settlement {
	case payment.WordPending:
		l.settlement = store.StillPending
	case payment.WordUnknown:
		l.settlement = store.NoLongerPending
	}
	return nil
}

// fill walks on from at until the page is full or the walk is over.
func (l *lister) fill(page *Page, at cursor) error {
	var found []step
	more := false
	for !more && at.Leg <= legNewer {
		var steps []step
		var err error
		room := l.q.Limit - len(found)
		switch at.Leg {
		case legChanged:
			steps, more, err = l.changes(at, room)
		case legNewer:
			if at.Refilled && at.Top != nil {
				steps, more, err = l.inOrder(at, room, at.Top)
			}
		default:
			steps, more, err = l.inOrder(at, room, nil)
			// Turned round, what is newer than the beginning comes by itself.
			if at.Top == nil && len(steps) > 0 && !l.q.Oldest {
				at.Top = steps[0].at.Last
				for i := range steps {
					steps[i].at.Top = at.Top
				}
			}
		}
		if err != nil {
			return err
		}
		found = append(found, steps...)
		if more {
			break
		}
		at.Leg, at.Last, at.LastRun, at.LastFile, at.LastOp, at.LastNo = at.Leg+1, nil, nil, nil, nil, 0
		at.ChangeRev, at.ChangeOp = at.Rev, 1<<62
	}
	if err := l.rows(page, found); err != nil {
		return err
	}
	if more {
		last := at
		if len(found) > 0 {
			last = found[len(found)-1].at
		}
		page.NextCursor = last.encode()
	}
	return nil
}

// step is an operation of a walk, and the cursor after it.
type step struct {
	no int64
	at cursor
}

// inOrder gives rows newest first from a place on, of those newer than above
// where that is given. On the first leg, rows that have changed since the walk
// began are left to the second.
func (l *lister) inOrder(at cursor, room int, above []byte) (steps []step, more bool, err error) {
	f := store.Filter{Run: l.run, Names: l.names, Classes: l.wanted, Limit: room + 1, Open: l.settlement, Above: above, Oldest: l.q.Oldest}
	if above == nil {
		f.MaxRev = at.Rev
	}
	if at.Last != nil {
		f.After = &store.Position{Last: at.Last, Run: at.LastRun, Op: at.LastOp, File: at.LastFile}
		if at.LastNo != 0 {
			if f.After.Op, err = l.v.OperationKey(at.LastNo, at.LastOp); err != nil {
				return nil, false, err
			}
		}
	}
	found, err := l.v.List(f, l.openClass, l.now)
	if err != nil {
		return nil, false, err
	}
	if len(found) > room {
		more, found = true, found[:room]
	}
	for _, r := range found {
		steps = append(steps, step{r.No, at.at(r)})
	}
	return steps, more, nil
}

// changes gives operations of the walk's beginning that have changed since.
func (l *lister) changes(at cursor, room int) (steps []step, more bool, err error) {
	for {
		changed, err := l.v.Changed(at.ChangeRev, at.ChangeOp, at.MaxOp, room+1)
		if err != nil || len(changed) == 0 {
			return steps, false, err
		}
		for _, c := range changed {
			if len(steps) == room {
				return steps, true, nil
			}
			at.ChangeRev, at.ChangeOp = c.Rev, c.No
			ok, err := l.wants(c)
			if err != nil {
				return nil, false, err
			}
			if ok {
				steps = append(steps, step{c.No, at})
			}
		}
	}
}

func (l *lister) wants(c store.Change) (bool, error) {
	if l.run != 0 && c.Run != l.run || l.wanted != nil && !slices.Contains(l.wanted, c.Class) {
		return false, nil
	}
	if l.openClass[c.Class] && l.settlement != store.AnyOpen && (c.PendingUntil > l.now) != (l.settlement == store.StillPending) {
		return false, nil
	}
	if l.names == nil {
		return true, nil
	}
	return l.v.HasName(c.No, l.names)
}

// rows fetches what the page shows of the operations found.
func (l *lister) rows(page *Page, steps []step) error {
	if len(steps) == 0 {
		return nil
	}
	numbers := make([]int64, len(steps))
	for i, st := range steps {
		numbers[i] = st.no
	}
	details, err := l.v.Details(numbers)
	if err != nil {
		return err
	}
	byNo := make(map[int64]*store.Detail, len(details))
	for i := range details {
		byNo[details[i].No] = &details[i]
	}
	exceptional := map[int64]bool{}
	for no, t := range l.types {
		if l.template.IsException(t.EventType) {
			exceptional[no] = true
		}
	}
	for _, st := range steps {
		d := byNo[st.no]
		if d == nil {
			continue
		}
		verdict := l.verdicts[d.Class]
		row := Row{Ref: ref(d.RunKey, d.Key), Template: l.template.Name, Completeness: completeness(verdict.Full), MissingStages: verdict.Missing,
			LastEventAt: string(event.TimeFromKey(nil, d.Last)), Counterparty: counterparty(d), Amount: text(d.Amount), Asset: text(d.Asset),
			Settlement: settlementAt(d, l.now), Linked: linked(d), Blind: text(d.Blind),
			cursor: st.at.encode()}
		if verdict.Fault {
			spans, _ := store.Spans(d.Spans)
			for _, s := range spans {
				if exceptional[s.Type] {
					row.Exceptions++
				}
			}
		}
		page.Operations = append(page.Operations, row)
	}
	return nil
}
