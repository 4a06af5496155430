package ingest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/ingest/event"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/store"
)

const (
	defaultTemplate = "x402-buyer"
	defaultLimit    = 50
	damageShown     = 20   // damaged runs a page names
	damageListed    = 1000 // that Status names
	// tornPatience is how long an unfinished last line may wait for its end
	// before it counts as damage (design, "Damage").
	tornPatience = 5 * time.Second
)

// classCache holds the classes of one filling of the index. They are only ever
// added to, so a question loads what is new.
type classCache struct {
	mu         sync.Mutex
	generation int64
	classes    []store.Class
	lastType   int64
	types      map[int64]store.Type
}

// load gives every class and type the snapshot can mention.
func (c *classCache) load(v *store.View, generation int64) ([]store.Class, map[int64]store.Type, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation != generation || c.types == nil {
		c.generation, c.classes, c.types, c.lastType = generation, nil, map[int64]store.Type{}, 0
	}
	var last int64
	if n := len(c.classes); n > 0 {
		last = c.classes[n-1].No
	}
	more, err := v.Classes(last)
	if err != nil {
		return nil, nil, err
	}
	types, err := v.Types(c.lastType)
	if err != nil {
		return nil, nil, err
	}
	if len(types) > 0 {
		// Callers keep the map they were given, so a new one takes its place.
		all := make(map[int64]store.Type, len(c.types)+len(types))
		for no, t := range c.types {
			all[no] = t
		}
		for no, t := range types {
			all[no] = t
			c.lastType = max(c.lastType, no)
		}
		c.types = all
	}
	c.classes = append(c.classes, more...)
	return slices.Clip(c.classes), c.types, nil
}

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
	Last    []byte `json:"l,omitempty"`
	LastRun []byte `json:"u,omitempty"`
	LastOp  []byte `json:"o,omitempty"`
	LastNo  int64  `json:"i,omitempty"`
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
	c.Last, c.LastRun, c.LastOp, c.LastNo = r.Last, r.Run, r.Op, 0
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
	return h.Sum64()
}

// List gives one page of operations, newest first (trace contract, section
// 12.3). A walk along NextCursor gives every operation that does not change
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
	err = x.ask(ctx, func(v *store.View) (err error) {
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
	if err := x.judge(l, generation); err != nil {
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
	at.Leg, at.Last, at.LastRun, at.LastOp = from.Leg, from.Last, from.LastRun, from.LastOp
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
			run, err = x.run(l.v, l.q.Run, true)
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

// damage gives the first fault of each damaged run.
func (x *Indexer) damage(v *store.View, run int64, limit int) ([]Damage, int, error) {
	faults, err := v.FirstFaults(run, limit)
	if err != nil {
		return nil, 0, err
	}
	total, err := v.DamagedRuns(run)
	if err != nil {
		return nil, 0, err
	}
	var out []Damage
	for _, f := range faults {
		out = append(out, Damage{RunID: runID(f.RunKey), Line: f.Line, Offset: f.Offset, Reason: faultText(f.Reason)})
	}
	more := func(runs []store.Run, is func(store.Run) bool, damage func(store.Run) Damage) {
		for _, r := range runs {
			if r.Faults > 0 || !is(r) {
				continue
			}
			if total++; len(out) < limit {
				out = append(out, damage(r))
			}
		}
	}
	twins, err := v.Twins(run)
	if err != nil {
		return nil, 0, err
	}
	more(twins, func(store.Run) bool { return true }, func(r store.Run) Damage {
		return Damage{RunID: runID(r.Key), Reason: "another run file has the same id"}
	})
	torn, err := v.Torn(run)
	if err != nil {
		return nil, 0, err
	}
	more(torn, func(r store.Run) bool { return !r.Twin && x.tornIsDamage(r.Torn, r.MtimeNs) }, func(r store.Run) Damage {
		return Damage{RunID: runID(r.Key), Line: r.Lines + 1, Offset: r.Covered, Reason: "the last line has no newline"}
	})
	return out, total, nil
}

// tornIsDamage tells whether what stands after a run's last newline counts as
// damage: a whole object, or anything nobody has finished for a while.
func (x *Indexer) tornIsDamage(torn, mtimeNs int64) bool {
	return torn == tornWhole || torn != 0 && x.now().Sub(time.Unix(0, mtimeNs)) >= tornPatience
}

func faultText(reason string) string {
	if rest, ok := strings.CutPrefix(reason, string(event.FaultEntry)+": "); ok {
		if strings.HasPrefix(rest, "is ") {
			return "the entry " + rest
		}
		return "the entry cannot be read: " + rest
	}
	return event.Fault(reason).Message()
}

// judge sorts the classes by the template's verdict and the settlement asked.
func (x *Indexer) judge(l *lister, generation int64) error {
	classes, types, err := x.classes.load(l.v, generation)
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
		word := settlementWord(c.Settlement)
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
			if at.Top == nil && len(steps) > 0 {
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
		at.Leg, at.Last, at.LastRun, at.LastOp, at.LastNo = at.Leg+1, nil, nil, nil, 0
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
	f := store.Filter{Run: l.run, Names: l.names, Classes: l.wanted, Limit: room + 1, Open: l.settlement, Above: above}
	if above == nil {
		f.MaxRev = at.Rev
	}
	if at.Last != nil {
		f.After = &store.Position{Last: at.Last, Run: at.LastRun, Op: at.LastOp}
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
			LastEventAt: string(event.TimeFromKey(nil, d.Last)), Counterparty: payment.Display(text(d.Payee)), Amount: text(d.Amount), Asset: text(d.Asset),
			Settlement: settlementAt(d, l.now), Linked: linked(d), Blind: text(d.Blind),
			cursor: st.at.encode()}
		if row.Counterparty == "" {
			row.Counterparty = payment.Display(text(d.Host))
		}
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

func completeness(full bool) string {
	if full {
		return "full"
	}
	return "partial"
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func runID(key []byte) string { return string(jsjson.FromSortKey(nil, key)) }

func ref(run, op []byte) Ref {
	return Ref{Run: runID(run), Operation: string(jsjson.FromSortKey(nil, op)), Null: len(op) == 0}
}

func linked(d *store.Detail) *Ref {
	if d.LinkRun == nil {
		return nil
	}
	r := ref(d.LinkRun, d.LinkOp)
	if d.LinkStray {
		r.Null, r.Unassigned = false, true
	}
	return &r
}

func (x *Indexer) template(name string) (*assemble.Resolved, error) {
	if name == "" {
		name = defaultTemplate
	}
	return x.Library().Resolve(name, x.o.ReadFile)
}

// run finds the run a caller names: "latest", an id, or "run:" and an id
// (trace contract, sections 12.2 and 12.4).
func (x *Indexer) run(v *store.View, name string, withOperations bool) (*store.Run, error) {
	if name == "latest" {
		run, err := v.Latest(withOperations)
		if run == nil && err == nil && withOperations {
			run, err = v.Latest(false)
		}
		if run == nil && err == nil {
			return nil, errcode.New(errcode.NoRuns, "check that the recorder writes to this root", "there is no run in %q", x.events)
		}
		return run, err
	}
	if id, ok := strings.CutPrefix(name, "run:"); ok {
		run, err := runByID(v, id)
		if err == nil || errcode.Of(err).Code != errcode.RunNotFound {
			return run, err
		}
		// An id may itself begin with "run:".
	}
	return runByID(v, name)
}

// runByID finds the run of an id.
func runByID(v *store.View, id string) (*store.Run, error) {
	runs, err := v.RunsByKey(jsjson.SortKey(nil, []byte(id)))
	if err != nil {
		return nil, err
	}
	switch len(runs) {
	case 0:
		return nil, runNotFound(id)
	case 1:
		return &runs[0], nil
	}
	return nil, errcode.New(errcode.RunDamaged, "rename one of the files", "two run files have the id %q", id)
}

func runNotFound(name string) error {
	return errcode.New(errcode.RunNotFound, "list the runs with `settlewatch status`, or use \"latest\"", "there is no run %q", name)
}

// Receipt assembles one operation's receipt from its own lines. The run is
// addressed by its id, whatever that is; Resolve takes "latest" and "run:".
func (x *Indexer) Receipt(ctx context.Context, r Ref, templateRef string) (*Receipt, error) {
	template, err := x.template(templateRef)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		var d *store.Detail
		err := x.ask(ctx, func(v *store.View) error {
			run, err := runByID(v, r.Run)
			if err != nil {
				return err
			}
			var key []byte
			if !r.Null {
				if key = jsjson.SortKey(nil, []byte(r.Operation)); len(key) == 0 {
					return operationNotFound(r)
				}
			}
			if d, err = v.Operation(run.No, key); err == nil && d == nil {
				return operationNotFound(r)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		receipt, err := x.receipt(d, template)
		if !errors.Is(err, errChanged) {
			return receipt, err
		}
		// The bytes behind the spans are not what was indexed. The run is
		// compared whole and indexed again; a receipt is never guessed.
		x.suspects.Store(string(d.File), true)
		x.needFull.Store(true)
		if try == 3 {
			return nil, errcode.Wrap(err, errcode.RunDamaged, "ask again when the run file is no longer being rewritten", "read operation %q of run %q", r.Operation, runID(d.RunKey))
		}
	}
}

func operationNotFound(r Ref) error {
	return errcode.New(errcode.OperationNotFound, "list operations of that run with list_operations or `settlewatch list`", "run %q has no operation %q", r.Run, r.Operation)
}

func (x *Indexer) receipt(d *store.Detail, template *assemble.Resolved) (*Receipt, error) {
	spans, ok := store.Spans(d.Spans)
	if !ok {
		return nil, errChanged
	}
	lines, err := (sourceReader{open: x.openEvents}).lines(string(d.File), spans, d.CRC)
	if err != nil {
		return nil, err
	}
	assembled, err := assemble.One(template.Template, lines)
	if err != nil {
		return nil, err
	}
	return &Receipt{Receipt: assembled, Ref: ref(d.RunKey, d.Key), Template: template,
		Damaged:    d.RunFaults > 0 || x.tornIsDamage(d.RunTorn, d.RunMtimeNs),
		Settlement: settlementAt(d, x.now().UnixMilli()), Linked: linked(d), Blind: text(d.Blind)}, nil
}

// Resolve completes an operation id given as a unique prefix within a run
// (trace contract, section 7, "Lookup"); an exact id comes first.
func (x *Indexer) Resolve(ctx context.Context, r Ref) (Ref, error) {
	var out Ref
	err := x.ask(ctx, func(v *store.View) error {
		run, err := x.run(v, r.Run, true)
		if err != nil {
			return err
		}
		out = Ref{Run: runID(run.Key), Operation: r.Operation, Null: r.Null}
		if r.Null {
			return nil
		}
		prefix := jsjson.SortKey(nil, []byte(r.Operation))
		if len(prefix) == 0 {
			return operationNotFound(r)
		}
		d, err := v.Operation(run.No, prefix)
		if err != nil || d != nil {
			return err
		}
		keys, err := v.WithPrefix(run.No, prefix, 11)
		if err != nil {
			return err
		}
		switch len(keys) {
		case 0:
			return operationNotFound(r)
		case 1:
			out.Operation = string(jsjson.FromSortKey(nil, keys[0]))
			return nil
		}
		var ids []string
		for _, k := range keys[:min(len(keys), 10)] {
			ids = append(ids, string(jsjson.FromSortKey(nil, k)))
		}
		if len(keys) > 10 {
			ids = append(ids, "...")
		}
		return errcode.New(errcode.OperationAmbiguous, "give more of the id: "+strings.Join(ids, ", "), "%q begins several operations of run %q", r.Operation, out.Run)
	})
	return out, err
}

// Await waits until an operation is full or the time is over. An operation of
// a known run that has not appeared yet is waited for.
func (x *Indexer) Await(ctx context.Context, r Ref, templateRef string, wait time.Duration) (*Await, error) {
	timed, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		var happened <-chan struct{}
		if w := x.watcher.Load(); w != nil {
			happened = w.happened()
		}
		a := &Await{Ref: r, Completeness: "partial", Settlement: "none"}
		receipt, err := x.Receipt(ctx, r, templateRef)
		switch {
		case err == nil:
			a.Ref, a.Template, a.Settlement = receipt.Ref, receipt.Template.Name, receipt.Settlement
			if receipt.Full() {
				a.Completeness = "full"
				return a, nil
			}
		case errcode.Of(err).Code == errcode.OperationNotFound && (r.Operation != "" || r.Null):
			template, err := x.template(templateRef)
			if err != nil {
				return nil, err
			}
			a.Template = template.Name
		default:
			return nil, err
		}
		poll, stop := context.WithTimeout(timed, pollEvery/4)
		select {
		case <-happened:
		case <-poll.Done():
		}
		stop()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if timed.Err() != nil {
			a.TimedOut = true
			return a, nil
		}
	}
}

// Runs lists the run ids in listing order.
func (x *Indexer) Runs(ctx context.Context) ([]string, error) {
	var ids []string
	err := x.ask(ctx, func(v *store.View) error {
		runs, err := v.Runs()
		ids = ids[:0]
		for _, r := range runs {
			ids = append(ids, runID(r.Key))
		}
		return err
	})
	return ids, err
}

// Status tells what is indexed and how well.
func (x *Indexer) Status(ctx context.Context) (*Status, error) {
	var s *Status
	err := x.ask(ctx, func(v *store.View) error {
		s = &Status{Root: x.root, Schema: store.Schema()}
		t, err := v.Totals()
		if err != nil {
			return err
		}
		s.Counts = Counts(t)
		if s.Damaged, s.DamagedRuns, err = x.damage(v, 0, damageListed); err != nil {
			return err
		}
		torn, err := v.Torn(0)
		if err != nil {
			return err
		}
		for _, r := range torn {
			s.TornRuns = append(s.TornRuns, Torn{RunID: runID(r.Key), Bytes: r.Size - r.Covered, Since: time.Unix(0, r.MtimeNs)})
		}
		latest, err := v.Latest(false)
		if latest != nil {
			s.Newest = runID(latest.Key)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	if x.ix != nil {
		s.Index, s.IndexBytes, s.Private = x.ix.Path(), x.ix.Bytes(), x.private != ""
	}
	x.mu.Unlock()
	return s, nil
}
