package store

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// View is one snapshot of the index: everything it answers belongs to the same
// moment, whatever is written meanwhile.
type View struct {
	ctx context.Context
	*session
	known *dictionary
	place *place // once it was asked for
}

// place is a snapshot's in the life of the index, with what the index holds in all.
type place struct {
	generation, rev, gone int64
	Totals
}

// Read runs fn over one snapshot. It gives ErrUnusable when the file is not
// the one that was opened, or not an index.
func (x *Index) Read(ctx context.Context, fn func(*View) error) error {
	if x.Moved() {
		return ErrUnusable
	}
	var s *session
	select {
	case s = <-x.readers:
		if s == nil {
			return fmt.Errorf("%w: it was closed", ErrUnusable)
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	sound := false
	defer func() {
		if !sound && s.conn != nil {
			// Whatever it was, a panic of fn too, the next question starts afresh.
			_, _ = s.exec(context.Background(), "ROLLBACK")
			s.close()
		}
		x.readers <- s
	}()
	if s.conn == nil {
		conn, err := x.read.Connx(ctx)
		// The connection is opened by the path: if that names another file by now, or
		// none, it is not the one that was brought up to date.
		if x.Moved() {
			if err == nil {
				_ = conn.Close()
			}
			return ErrUnusable
		}
		if err != nil {
			return classify(err)
		}
		s.conn = conn
	}
	err := ctx.Err()
	if err == nil {
		err = s.bulk("BEGIN", nil)
	}
	if err == nil {
		err = fn(&View{ctx: ctx, session: s, known: &x.known})
		// A snapshot must not outlive its question, even a cancelled one.
		err = errors.Join(err, s.bulk("ROLLBACK", nil))
	}
	sound = err == nil || ctx.Err() != nil
	return classify(err)
}

// Meta gives the generation of the index and the number of its last change.
func (v *View) Meta() (generation, rev int64, err error) {
	p, err := v.meta()
	return p.generation, p.rev, err
}

// Gone is the number of the last change that removed a run.
func (v *View) Gone() (int64, error) {
	p, err := v.meta()
	return p.gone, err
}

func (v *View) meta() (place, error) {
	if v.place != nil {
		return *v.place, nil
	}
	var p place
	err := v.one("SELECT generation, rev, gone, runs, operations, events, payments, faults, bytes FROM meta", nil,
		&p.generation, &p.rev, &p.gone, &p.Runs, &p.Operations, &p.Events, &p.Payments, &p.Faults, &p.Bytes)
	if err == nil {
		v.place = &p
	}
	return p, err
}

// one reads the integers of the only row of a query; sql.ErrNoRows where there is
// none.
func (v *View) one(query string, args []any, to ...*int64) error {
	return v.integers(v.ctx, query, args, to)
}

// Runs lists every run in listing order.
func (v *View) Runs() ([]Run, error) {
	return v.runs(v.ctx, "ORDER BY file_key")
}

// Identity is the part of a run that one stat call can confirm.
type Identity struct {
	No int64
	Stat
	Bad        bool // the entry could not be read
	Unverified bool
}

// Identities gives the identity of every run by file name. A cold start asks
// for nothing else, so the rows go past database/sql.
func (v *View) Identities() (map[string]Identity, error) {
	m := map[string]Identity{}
	err := v.scan(v.ctx, "SELECT file, stat, run_no * 4 + (entry_fault IS NOT NULL) * 2 + unverified FROM runs", nil, func(row []driver.Value) error {
		file, _ := row[0].([]byte)
		rest, _ := row[2].(int64)
		id := Identity{No: rest / 4, Bad: rest&2 != 0, Unverified: rest&1 != 0}
		if err := id.Scan(row[1]); err != nil {
			return err
		}
		m[string(file)] = id
		return nil
	})
	return m, err
}

// RunByFile finds a run by its file name; nil when there is none.
func (v *View) RunByFile(file []byte) (*Run, error) {
	return v.oneRun(v.ctx, "file = ?", file)
}

// RunsByKey finds the runs of an id: one, none, or, where two file names
// collide, several.
func (v *View) RunsByKey(key []byte) ([]Run, error) {
	return v.runs(v.ctx, "WHERE run_key = ? ORDER BY file_key", key)
}

// Latest is the last run of the listing; withOperations passes over runs that
// have none. It gives nil when there is no such run.
func (v *View) Latest(withOperations bool) (*Run, error) {
	return v.oneRun(v.ctx, "operations >= ? ORDER BY file_key DESC LIMIT 1", int64(boolInt(withOperations)))
}

// DamagedAfter gives the runs after a place of the listing that have a fault, a twin
// or an incomplete line, the last first. A nil place is before all of them.
func (v *View) DamagedAfter(fileKey []byte) ([]Run, error) {
	return v.runs(v.ctx, "WHERE file_key > coalesce(?, x'') AND (faults > 0 OR twin > 0 OR torn > 0) ORDER BY file_key DESC", fileKey)
}

// Totals are what the index holds in all.
type Totals struct {
	Runs       int64 `db:"runs"`
	Operations int64 `db:"operations"`
	Events     int64 `db:"events"`
	Payments   int64 `db:"payments"` // one that counts with several names once
	Faults     int64 `db:"faults"`
	Bytes      int64 `db:"bytes"`
}

func (t *Totals) add(o Totals, sign int64) {
	t.Runs += sign * o.Runs
	t.Operations += sign * o.Operations
	t.Events += sign * o.Events
	t.Payments += sign * o.Payments
	t.Faults += sign * o.Faults
	t.Bytes += sign * o.Bytes
}

// Totals gives the sums over every run, which are kept.
func (v *View) Totals() (Totals, error) {
	p, err := v.meta()
	return p.Totals, err
}

// RunCount is the number of runs.
func (v *View) RunCount() (int, error) {
	var n int
	err := v.row(v.ctx, "SELECT runs FROM meta").Scan(&n)
	return n, err
}

// DamagedRuns is the number of runs with a fault, of all or of the one named.
func (v *View) DamagedRuns(run int64) (int, error) {
	var n int
	err := v.row(v.ctx, "SELECT count(*) FROM runs WHERE faults > 0 AND (?1 = 0 OR run_no = ?1)", run).Scan(&n)
	return n, err
}

// Twins gives the runs whose id another file has too, of all or the one named.
func (v *View) Twins(run int64) ([]Run, error) {
	return v.runs(v.ctx, "WHERE twin > 0 AND (?1 = 0 OR run_no = ?1) ORDER BY file_key", run)
}

// Torn gives the runs that end in an incomplete line, of all or the one named.
func (v *View) Torn(run int64) ([]Run, error) {
	return v.runs(v.ctx, "WHERE torn > 0 AND (?1 = 0 OR run_no = ?1) ORDER BY file_key", run)
}

// FirstFault is the first fault of a damaged run.
type FirstFault struct {
	RunKey []byte `db:"run_key"`
	Fault
}

// FirstFaults gives the first fault of each damaged run, in listing order, at
// most limit of them; run narrows it to one run where it is not 0.
func (v *View) FirstFaults(run int64, limit int) ([]FirstFault, error) {
	var out []FirstFault
	err := v.sel(v.ctx, &out, `SELECT r.run_key, f.line, f.offset, f.reason FROM runs r
		JOIN faults f ON f.run_no = r.run_no AND f.line = (SELECT min(line) FROM faults WHERE run_no = r.run_no)
		WHERE r.faults > 0 AND (?1 = 0 OR r.run_no = ?1) ORDER BY r.file_key LIMIT ?2`, run, limit)
	return out, err
}

// Class is what operations of one kind share.
type Class struct {
	No         int64
	Shape      []int64
	Settlement int
}

// Classes gives every class numbered above after. Classes are never changed,
// so a caller keeps what it has within one generation.
func (v *View) Classes(after int64) ([]Class, error) {
	rows, err := v.query(v.ctx, "SELECT class_no, shape, settlement FROM classes WHERE class_no > ? ORDER BY class_no", after)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Class
	for rows.Next() {
		var c Class
		var shape []byte
		if err := rows.Scan(&c.No, &shape, &c.Settlement); err != nil {
			return nil, err
		}
		c.Shape = shapeFromKey(shape)
		out = append(out, c)
	}
	return out, rows.Err()
}

// Types gives every type numbered above after.
func (v *View) Types(after int64) (map[int64]Type, error) {
	rows, err := v.query(v.ctx, "SELECT type_no, event_type, has_role, role FROM types WHERE type_no > ?", after)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[int64]Type{}
	for rows.Next() {
		var no int64
		var eventType, role []byte
		var t Type
		if err := rows.Scan(&no, &eventType, &t.HasRole, &role); err != nil {
			return nil, err
		}
		t.EventType, t.Role = string(eventType), string(role)
		out[no] = t
	}
	return out, rows.Err()
}

// Position is a place in the order of lists: by time of the last event, then
// run id, then operation id, newest first. Of two files with one run id, which lists
// show, it is the file name that decides.
type Position struct {
	Last, Run, Op []byte
	File          []byte // in sortable form
}

// Compare orders positions the way lists do, descending: negative when p comes
// before q.
func (p Position) Compare(q Position) int {
	if c := bytes.Compare(q.Last, p.Last); c != 0 {
		return c
	}
	if c := bytes.Compare(q.Run, p.Run); c != 0 {
		return c
	}
	if c := bytes.Compare(q.Op, p.Op); c != 0 {
		return c
	}
	return bytes.Compare(q.File, p.File)
}

// Filter says which operations a list holds.
type Filter struct {
	Run     int64   // 0: every run
	Names   []int64 // word numbers of payees or hosts, any of which will do; nil: all
	Classes []int64 // the classes wanted; nil: all of them
	After   *Position
	Above   []byte // only rows whose last key is greater; nil: any
	MaxRev  int64  // only rows unchanged since; 0: any
	Limit   int
	Open    OpenFilter // applies to rows whose class is in OpenClasses
	Oldest  bool       // oldest first: After and the order of List are turned round
}

// OpenFilter splits open operations by the moment until which they count as
// pending.
type OpenFilter int

// The zero value of OpenFilter keeps both kinds.
const (
	AnyOpen OpenFilter = iota
	StillPending
	NoLongerPending
)

// Found is one operation of a list, found but not yet fetched.
type Found struct {
	No int64
	Position
}

// List finds operations newest first, or oldest first where the filter says so. Each wanted class (of each name) is a
// stretch of an index of its own, so rows of other classes are never passed
// over; `now` decides what is pending for the classes of openClasses.
func (v *View) List(f Filter, openClasses map[int64]bool, now int64) ([]Found, error) {
	if f.Classes == nil && f.Run == 0 && f.Names == nil {
		return v.listOf(f, 0, 0, AnyOpen, now, nil)
	}
	classes := f.Classes
	if classes == nil {
		all, err := v.Classes(0)
		if err != nil {
			return nil, err
		}
		for _, c := range all {
			classes = append(classes, c.No)
		}
	}
	names := f.Names
	if names == nil {
		names = []int64{0}
	}
	var out []Found
	var floor []byte // the last key a row must reach to be among the first Limit
	for _, name := range names {
		for _, c := range classes {
			open := AnyOpen
			if openClasses[c] {
				open = f.Open
			}
			rows, err := v.listOf(f, name, c, open, now, floor)
			if err != nil {
				return nil, err
			}
			if len(rows) == 0 {
				continue
			}
			out = append(out, rows...)
			slices.SortFunc(out, func(a, b Found) int {
				if f.Oldest {
					a, b = b, a
				}
				return a.Compare(b.Position)
			})
			// An operation stands under several names once each.
			out = slices.CompactFunc(out, func(a, b Found) bool { return a.No == b.No })
			if len(out) >= f.Limit {
				out = out[:f.Limit]
				floor = out[f.Limit-1].Last
			}
		}
	}
	return out, nil
}

var opText = keyText("o.op_key")

func (v *View) listOf(f Filter, name, class int64, open OpenFilter, now int64, floor []byte) ([]Found, error) {
	var q strings.Builder
	var args []any
	q.WriteString("SELECT o.op_no, o.last_key, r.run_key, o.op_key, r.file_key FROM ")
	last := "o.last_key"
	switch {
	case name != 0:
		q.WriteString("operation_names n CROSS JOIN operations o ON o.op_no = n.op_no CROSS JOIN runs r ON r.run_no = o.run_no WHERE n.name = ? AND n.class = ?")
		args = append(args, name, class)
		last = "n.last_key"
		if f.Run != 0 {
			q.WriteString(" AND o.run_no = ?")
			args = append(args, f.Run)
		}
	case f.Run != 0:
		q.WriteString("operations o INDEXED BY operations_by_run CROSS JOIN runs r ON r.run_no = o.run_no WHERE o.run_no = ? AND o.class = ?")
		args = append(args, f.Run, class)
	case class != 0:
		q.WriteString("operations o INDEXED BY operations_by_class CROSS JOIN runs r ON r.run_no = o.run_no WHERE o.class = ?")
		args = append(args, class)
	default:
		q.WriteString("operations o INDEXED BY operations_newest CROSS JOIN runs r ON r.run_no = o.run_no WHERE 1")
	}
	below, above, order := "<", ">", " DESC"
	if f.Oldest {
		below, above, order = ">", "<", ""
	}
	if f.After != nil {
		q.WriteString(" AND " + last + " " + below + "= ? AND (" + last + ", r.run_key, " + opText + ", r.file_key) " + below + " (?, ?, ?, ?)")
		// The id of the null operation is not NULL.
		args = append(args, f.After.Last, f.After.Last, f.After.Run, nonNil(f.After.Op), nonNil(f.After.File))
	}
	if f.Above != nil {
		q.WriteString(" AND " + last + " > ?")
		args = append(args, f.Above)
	}
	if floor != nil {
		// In turned order it is the last key a row may have.
		q.WriteString(" AND " + last + " " + above + "= ?")
		args = append(args, floor)
	}
	if f.MaxRev != 0 {
		q.WriteString(" AND o.rev <= ?")
		args = append(args, f.MaxRev)
	}
	switch open {
	case StillPending:
		q.WriteString(" AND o.pending_until > ?")
		args = append(args, now)
	case NoLongerPending:
		q.WriteString(" AND o.pending_until <= ?")
		args = append(args, now)
	}
	q.WriteString(" ORDER BY " + last + order + ", r.run_key" + order + ", " + opText + order + ", r.file_key" + order + " LIMIT ?")
	args = append(args, f.Limit)
	return v.found(q.String(), args...)
}

func (v *View) found(query string, args ...any) ([]Found, error) {
	rows, err := v.query(v.ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Found
	for rows.Next() {
		var r Found
		if err := rows.Scan(&r.No, &r.Last, &r.Run, &r.Op, &r.File); err != nil {
			return nil, err
		}
		r.Op = unpackKey(r.Op)
		out = append(out, r)
	}
	return out, rows.Err()
}

// Change is an operation that changed, for the end of a walk.
type Change struct {
	No, Rev, Class, Run, PendingUntil int64
}

// Changed gives operations numbered at most maxOp that changed after (rev,
// op), in order of change.
func (v *View) Changed(rev, op, maxOp int64, limit int) ([]Change, error) {
	rows, err := v.query(v.ctx, `SELECT op_no, rev, class, run_no, pending_until FROM operations INDEXED BY operations_changed
		WHERE rev > 0 AND rev >= ? AND (rev, op_no) > (?, ?) AND op_no <= ? ORDER BY rev, op_no LIMIT ?`, rev, rev, op, maxOp, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Change
	for rows.Next() {
		var c Change
		if err := rows.Scan(&c.No, &c.Rev, &c.Class, &c.Run, &c.PendingUntil); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, rows.Err()
}

// MaxOperation is the greatest operation number given out.
func (v *View) MaxOperation() (int64, error) {
	var n int64
	err := v.row(v.ctx, "SELECT next_op - 1 FROM meta").Scan(&n)
	return n, err
}

// OperationKey is the key of an operation that begins with prefix; prefix itself
// where there is no such operation any more.
func (v *View) OperationKey(no int64, prefix []byte) ([]byte, error) {
	var key []byte
	err := v.row(v.ctx, "SELECT op_key FROM operations WHERE op_no = ?", no).Scan(&key)
	key = unpackKey(key)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !bytes.HasPrefix(key, prefix) {
		return prefix, nil
	}
	return key, err
}

// HasName tells whether an operation carries one of the names.
func (v *View) HasName(op int64, names []int64) (bool, error) {
	var have []byte
	err := v.row(v.ctx, "SELECT s.names FROM operations o JOIN name_sets s ON s.set_no = o.names WHERE o.op_no = ?", op).Scan(&have)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return false, err
	}
	return slices.ContainsFunc(shapeFromKey(have), func(n int64) bool { return slices.Contains(names, n) }), nil
}

// Detail is an operation as lists and receipts show it.
type Detail struct {
	No           int64   `db:"op_no"`
	Run          int64   `db:"run_no"`
	Epoch        int64   `db:"epoch"`
	File         []byte  `db:"file"`
	RunKey       []byte  `db:"run_key"`
	RunFaults    int64   `db:"run_faults"`
	Key          []byte  `db:"op_key"`
	Class        int64   `db:"class"`
	Shape        []byte  `db:"shape"`
	Settlement   int     `db:"settlement"`
	Last         []byte  `db:"last_key"`
	Events       int64   `db:"events"`
	Spans        []byte  `db:"spans"`
	CRC          uint32  `db:"crc"`
	Payee        *string `db:"payee"`
	Host         *string `db:"host"`
	Resource     *string `db:"resource"`
	Asset        *string `db:"asset"`
	Amount       *string `db:"-"`
	StoredAmount any     `db:"amount"`
	PendingUntil int64   `db:"pending_until"`
	Blind        *string `db:"blind"`
	LinkRun      []byte  `db:"link_run"` // nil: not linked
	LinkOp       []byte  `db:"link_op"`
	LinkStray    bool    `db:"link_stray"` // the other half belongs to no operation
	RunTorn      int64   `db:"torn"`
	RunStat      Stat    `db:"stat"`
}

const detailColumns = `o.op_no, o.run_no, r.epoch, r.file, r.run_key, r.faults AS run_faults, o.op_key, o.class, c.shape, c.settlement, o.last_key, o.events, o.spans, o.crc,
	(SELECT word FROM words WHERE word_no = coalesce(o.payee, p.payee)) AS payee, (SELECT word FROM words WHERE word_no = coalesce(o.host, p.host)) AS host,
	(SELECT word FROM words WHERE word_no = coalesce(o.resource, p.resource)) AS resource, (SELECT word FROM words WHERE word_no = coalesce(o.asset, p.asset)) AS asset,
	coalesce(o.amount, p.amount) AS amount, o.pending_until, o.blind, coalesce(lr.run_key, sr.run_key) AS link_run,
	lo.op_key AS link_op, sr.run_key IS NOT NULL AS link_stray, r.torn, r.stat`

// Of several answers to one payment the earliest is its other half; of one instant run
// id and operation id decide, or the place in the file. Hardly any payment has an
// answer elsewhere: only then are they sorted.
var (
	linkedOperation = `CASE WHEN EXISTS (SELECT 1 FROM links WHERE other = o.op_no) THEN (SELECT l.op_no FROM links l CROSS JOIN operations x ON x.op_no = l.op_no
		CROSS JOIN runs y ON y.run_no = x.run_no WHERE l.other = o.op_no AND l.op_no > 0 ORDER BY l.at_key, y.run_key, ` + keyText("x.op_key") + `, y.file_key LIMIT 1) END`
	linkedStray = `CASE WHEN EXISTS (SELECT 1 FROM links WHERE other = o.op_no) THEN (SELECT x.stray_no FROM links l CROSS JOIN strays x ON x.stray_no = -l.op_no
		CROSS JOIN runs y ON y.run_no = x.run_no WHERE l.other = o.op_no AND l.op_no < 0 ORDER BY l.at_key, y.run_key, y.file_key, x.offset LIMIT 1) END`
)

var detailJoins = ` JOIN runs r ON r.run_no = o.run_no JOIN classes c ON c.class_no = o.class
	LEFT JOIN payments p ON p.op_no = o.op_no AND p.i = 0
	LEFT JOIN operations lo ON lo.op_no = coalesce((SELECT other FROM links WHERE op_no = o.op_no ORDER BY n LIMIT 1), ` + linkedOperation + `)
	LEFT JOIN runs lr ON lr.run_no = lo.run_no
	LEFT JOIN strays s ON lo.op_no IS NULL AND s.stray_no = ` + linkedStray + `
	LEFT JOIN runs sr ON sr.run_no = s.run_no`

// complete turns what is stored into what it stands for.
func (d *Detail) complete() {
	d.Key, d.LinkOp = unpackKey(d.Key), unpackKey(d.LinkOp)
	if amount := amountOf(d.StoredAmount); amount != "" {
		d.Amount = &amount
	}
}

// Details fetches operations by number, in any order; one that is gone
// is left out.
func (v *View) Details(numbers []int64) ([]Detail, error) {
	out := make([]Detail, 0, len(numbers))
	err := v.sel(v.ctx, &out, "SELECT "+detailColumns+" FROM json_each(?) j CROSS JOIN operations o ON o.op_no = j.value"+detailJoins, list(numbers))
	for i := range out {
		out[i].complete()
	}
	return out, err
}

// Operation fetches one operation of a run; nil when there is none.
func (v *View) Operation(run int64, key []byte) (*Detail, error) {
	var d Detail
	err := v.get(v.ctx, &d, "SELECT "+detailColumns+" FROM operations o"+detailJoins+" WHERE o.run_no = ? AND o.key_hash = ? AND o.op_key = ?", run, keyHash(key), packKey(key))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d.complete()
	return &d, nil
}

// WithPrefix looks through a run's operations: only a person's shortened id is
// found this way. It gives those that begin with prefix.
func (v *View) WithPrefix(run int64, prefix []byte, limit int) ([][]byte, error) {
	var keys [][]byte
	err := v.sel(v.ctx, &keys, "SELECT "+opText+" AS op FROM operations o WHERE run_no = ? AND substr("+opText+", 1, length(?)) = ? ORDER BY op LIMIT ?",
		run, prefix, prefix, limit)
	return keys, err
}

// Dump writes every row that the run files determine as a line of text, with
// row numbers spelled out as what they stand for, so that two indexes of the
// same files give the same lines whatever the order they were filled in. Lines
// come by section, and within one in byte order.
func (v *View) Dump(line func(section int, s string) error) error {
	types, err := v.Types(0)
	if err != nil {
		return err
	}
	classes, err := v.classTexts(types)
	if err != nil {
		return err
	}
	for section, q := range dumps {
		var args []any
		if strings.Contains(q, "?") {
			args = []any{classes}
		}
		if err := v.dump(spelled(q), args, func(rows *sql.Rows) error {
			var s string
			if err := rows.Scan(&s); err != nil {
				return err
			}
			return line(section, s)
		}); err != nil {
			return err
		}
	}
	// Spans and shapes hold type numbers, which only Go can spell out.
	return v.dump(spelled(`SELECT name(r.file) || ' ' || name(o.op_key) AS id, o.spans, c.shape FROM operations o
		JOIN runs r USING (run_no) JOIN classes c ON c.class_no = o.class ORDER BY id`), nil, func(rows *sql.Rows) error {
		var id string
		var blob, shape []byte
		if err := rows.Scan(&id, &blob, &shape); err != nil {
			return err
		}
		b := append([]byte("spans "), id...)
		spans, ok := Spans(blob)
		for _, s := range spans {
			t := types[s.Type]
			b = fmt.Appendf(b, " %d+%d %q %q %t", s.Offset, s.Length, t.EventType, t.Role, t.HasRole)
		}
		shown := map[Type]bool{}
		for _, s := range spans {
			shown[types[s.Type]] = true
		}
		agrees := len(shown) == len(shapeFromKey(shape))
		for _, t := range shapeFromKey(shape) {
			agrees = agrees && shown[types[t]]
		}
		return line(len(dumps), string(fmt.Appendf(b, " sound %t shape agrees %t", ok, agrees)))
	})
}

// classTexts spells the classes out for a query's json_each.
func (v *View) classTexts(types map[int64]Type) (string, error) {
	classes, err := v.Classes(0)
	if err != nil {
		return "", err
	}
	texts := make(map[int64]string, len(classes))
	for _, c := range classes {
		shape := make([]string, len(c.Shape))
		for i, no := range c.Shape {
			t := types[no]
			shape[i] = fmt.Sprintf("%q %q %t", t.EventType, t.Role, t.HasRole)
		}
		slices.Sort(shape)
		texts[c.No] = fmt.Sprintf("settlement %d of %s", c.Settlement, strings.Join(shape, " "))
	}
	b, _ := json.Marshal(texts) // texts: it cannot fail
	return string(b), nil
}

func (v *View) dump(query string, args []any, row func(*sql.Rows) error) error {
	rows, err := v.query(v.ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// spelled replaces name(x) in a query of dumps by the text of a key, quoted, or
// by its bytes where text would lose some.
func spelled(query string) string {
	return nameCall.ReplaceAllStringFunc(query, func(call string) string {
		key := nameCall.FindStringSubmatch(call)[1]
		if strings.HasSuffix(key, ".op_key") {
			key = keyText(key)
		}
		return strings.ReplaceAll("CASE WHEN instr(KEY, x'00') OR length(KEY) = 0 THEN 'x' || hex(KEY) ELSE quote(CAST(KEY AS TEXT)) END", "KEY", "("+key+")")
	})
}

var nameCall = regexp.MustCompile(`name\(([a-z0-9_.]+)\)`)

// dumps spell numbers of the dictionaries and of rows out as what they stand
// for. Shapes are sets of type numbers, so they are told by their names.
var dumps = []string{
	`SELECT 'run ' || name(file) || ' covered ' || covered || ' crc ' || crc || ' lines ' || lines || ' events ' || events || ' operations ' || operations ||
		' answers ' || answers || ' faults ' || faults || ' entry ' || coalesce(entry_fault, '') || ' torn ' || torn || ' session ' || session AS line FROM runs ORDER BY line`,
	`SELECT 'fault ' || name(r.file) || ' line ' || f.line || ' offset ' || f.offset || ' ' || f.reason AS line FROM faults f JOIN runs r USING (run_no) ORDER BY line`,
	`WITH sets AS MATERIALIZED (SELECT set_no, group_concat(word, ' ') AS names FROM
		(SELECT n.set_no, w.word FROM name_set_names n JOIN words w ON w.word_no = n.name ORDER BY n.set_no, w.word) GROUP BY set_no)
	SELECT 'operation ' || name(r.file) || ' ' || name(o.op_key) || ' last ' || hex(o.last_key) || ' events ' || o.events ||
		' crc ' || o.crc || ' side ' || o.side || ' settlement ' || c.settlement || ' pending ' || o.pending_until || ' blind ' || coalesce(o.blind, '') || ' no hook ' || o.no_hook || ' amount ' || coalesce(o.amount, p.amount, '') ||
		' payee ' || coalesce((SELECT word FROM words WHERE word_no = coalesce(o.payee, p.payee)), '') || ' host ' || coalesce((SELECT word FROM words WHERE word_no = coalesce(o.host, p.host)), '') ||
		' resource ' || coalesce((SELECT word FROM words WHERE word_no = coalesce(o.resource, p.resource)), '') || ' asset ' || coalesce((SELECT word FROM words WHERE word_no = coalesce(o.asset, p.asset)), '') ||
		' names ' || coalesce(s.names, '')
		AS line FROM operations o JOIN runs r USING (run_no) JOIN classes c ON c.class_no = o.class LEFT JOIN payments p ON p.op_no = o.op_no AND p.i = 0
		LEFT JOIN sets s ON s.set_no = o.names ORDER BY line`,
	`SELECT 'name ' || w.word || ' of ' || name(r.file) || ' ' || name(o.op_key) || ' agrees ' || (n.class = o.class AND n.last_key = o.last_key) AS line FROM operation_names n JOIN operations o USING (op_no) JOIN runs r USING (run_no) JOIN words w ON w.word_no = n.name ORDER BY line`,
	`SELECT 'payment ' || coalesce((SELECT name(r.file) || ' ' || name(o.op_key) FROM operations o JOIN runs r USING (run_no) WHERE o.op_no = p.op_no), (SELECT name(r.file) || ' stray ' || s.offset || '+' || s.length || ' ' || s.crc FROM strays s JOIN runs r USING (run_no) WHERE s.stray_no = -p.op_no), 'nothing') || ' n ' || p.n || ' flags ' || p.flags ||
		' at ' || CASE p.at WHEN 9223372036854775807 THEN '' ELSE p.at END || ' amount ' || coalesce(p.amount, '') || ' settled ' || coalesce(p.settled, '') ||
		' payee ' || coalesce((SELECT word FROM words WHERE word_no = p.payee), '') ||
		' host ' || coalesce((SELECT word FROM words WHERE word_no = p.host), '') ||
		' resource ' || coalesce((SELECT word FROM words WHERE word_no = p.resource), '') ||
		' asset ' || coalesce((SELECT word FROM words WHERE word_no = p.asset), '') AS line
		FROM payments p ORDER BY line`,
	`SELECT 'total runs ' || runs || ' operations ' || operations || ' events ' || events || ' payments ' || payments || ' faults ' || faults || ' bytes ' || bytes AS line FROM meta`,
	`SELECT 'slot ' || h.slot || ' of size ' || h.size || ' of ' || coalesce((SELECT word FROM words WHERE word_no = h.asset), 'no asset') || ' ' || h.sums AS line FROM slots h ORDER BY line`,
	`SELECT 'paid ' || coalesce((SELECT word FROM words WHERE word_no = d.payee), 'anybody') || ' at ' || coalesce((SELECT word FROM words WHERE word_no = d.host), 'nothing') || ' outcome ' || d.outcome || ' payments ' || d.payments AS line FROM paid d ORDER BY line`,
	`WITH k AS MATERIALIZED (SELECT CAST(key AS INTEGER) AS class, value AS text FROM json_each(?))
		SELECT 'count of ' || coalesce((SELECT group_concat(word, ' ') FROM (SELECT w.word FROM name_set_names n JOIN name_sets s USING (set_no) JOIN words w ON w.word_no = n.name WHERE s.set_no = c.set_no ORDER BY w.word)), 'no names') || ' ' || k.text || ' blind ' || c.blind || ' operations ' || c.operations AS line
		FROM set_counts c JOIN k USING (class) ORDER BY line`,
	`WITH k AS MATERIALIZED (SELECT CAST(key AS INTEGER) AS class, value AS text FROM json_each(?))
		SELECT 'count of name ' || w.word || ' ' || k.text || ' blind ' || c.blind || ' operations ' || c.operations AS line
		FROM name_counts c JOIN k USING (class) JOIN words w ON w.word_no = c.name ORDER BY line`,
	`SELECT 'answer ' || coalesce((SELECT name(r.file) || ' ' || name(o.op_key) FROM operations o JOIN runs r USING (run_no) WHERE o.op_no = a.op_no), (SELECT name(r.file) || ' stray ' || s.offset || '+' || s.length || ' ' || s.crc FROM strays s JOIN runs r USING (run_no) WHERE s.stray_no = -a.op_no), 'nothing') || ' n ' || a.n || ' at ' || hex(a.at_key) AS line FROM answers a ORDER BY line`,
	`SELECT 'candidate ' || coalesce((SELECT name(r.file) || ' ' || name(o.op_key) FROM operations o JOIN runs r USING (run_no) WHERE o.op_no = c.op_no), (SELECT name(r.file) || ' stray ' || s.offset || '+' || s.length || ' ' || s.crc FROM strays s JOIN runs r USING (run_no) WHERE s.stray_no = -c.op_no), 'nothing') || ' n ' || c.n || ' until ' || c.claim_until AS line FROM candidates c ORDER BY line`,
	`SELECT 'hash ' || t.hash || ' of ' || coalesce((SELECT name(r.file) || ' ' || name(o.op_key) FROM operations o JOIN runs r USING (run_no) WHERE o.op_no = t.op_no), (SELECT name(r.file) || ' stray ' || s.offset || '+' || s.length || ' ' || s.crc FROM strays s JOIN runs r USING (run_no) WHERE s.stray_no = -t.op_no), 'nothing') AS line FROM transactions t ORDER BY line`,
	`SELECT 'link ' || coalesce((SELECT name(r.file) || ' ' || name(o.op_key) FROM operations o JOIN runs r USING (run_no) WHERE o.op_no = l.op_no), (SELECT name(r.file) || ' stray ' || s.offset || '+' || s.length || ' ' || s.crc FROM strays s JOIN runs r USING (run_no) WHERE s.stray_no = -l.op_no), 'nothing') || ' n ' || l.n || ' at ' || hex(l.at_key) || ' by transaction ' || l.by_tx || ' to ' ||
		coalesce((SELECT name(r.file) || ' ' || name(o.op_key) FROM operations o JOIN runs r USING (run_no) WHERE o.op_no = l.other), (SELECT name(r.file) || ' stray ' || s.offset || '+' || s.length || ' ' || s.crc FROM strays s JOIN runs r USING (run_no) WHERE s.stray_no = -l.other), 'nothing') || ' n ' || l.m AS line FROM links l ORDER BY line`,
}

// CheckPages runs SQLite's own consistency check and gives what it found.
func (v *View) CheckPages() ([]string, error) {
	var out []string
	if err := v.sel(v.ctx, &out, "PRAGMA integrity_check"); err != nil {
		return nil, err
	}
	if len(out) == 1 && out[0] == "ok" {
		return nil, nil
	}
	return out, nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
