package store

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jmoiron/sqlx"
)

// Tx is a write transaction: the only writer of the index on this machine
// while it lasts. It is the same object from one Write to the next, so that
// prepared statements and dictionary caches live on.
type Tx struct {
	*session

	generation  int64
	rev         int64
	stamp       int64 // what rows changed now are marked with: rev, or 0 while filling
	nextOp      int64
	gone        int64  // last transaction that removed a run
	added       Totals // what this transaction adds to the totals
	words       map[string]int64
	types       map[Type]int64
	classes     map[string]int64
	newOps      rowBuffer
	newPayments rowBuffer
	newNames    rowBuffer
	newWords    rowBuffer
	newSets     rowBuffer
	newSetNames rowBuffer
	newSlots    rowBuffer
	setCounts   counter
	nameCounts  counter
	paidCounts  counter
	lately      [8]recent
	turn        int
	sets        map[string]int64   // name sets by their stored form
	pairs       map[[2]int64]int64 // those of at most two names by these
	setNames    map[int64][]int64  // the names of each
	sums        sums               // what is not yet added to the kept counts
	newWord     int64              // next word number while the cache holds every word; else 0
	newSet      int64              // likewise the next name set
	noSlots     bool               // the table slots is empty
	args        []driver.NamedValue
	deferred    []string // statements that make the indexes again; non-nil while filling
}

// maxCached bounds each dictionary cache; a cache that is full starts again.
const maxCached = 1 << 17

// rowBuffer gathers rows of one table for a multi-row insert, which costs a
// fraction of as many single ones. Its values go straight to the driver: the
// conversions of database/sql are a tenth of a bulk fill.
type rowBuffer struct {
	cols  int
	per   int // rows a statement
	args  []driver.NamedValue
	owner int64 // operation of the first row buffered; later rows have greater ones
	// Statements for one row, for a few and for per of them.
	one, some, many string
}

// someRows is how many rows one statement writes of what is left for a commit: each
// statement costs as much as a few rows.
const someRows = 8

// INSERT OR ROLLBACK: a plain multi-row insert opens a statement journal for
// each statement where the table has a unique index, which is slower than no
// batching at all. A violation means a corrupt index, so losing the
// transaction is right.
func newRowBuffer(table string, per int, cols ...string) rowBuffer {
	row := "(?" + strings.Repeat(",?", len(cols)-1) + ")"
	head := "INSERT OR ROLLBACK INTO " + table + " (" + strings.Join(cols, ",") + ") VALUES "
	return rowBuffer{cols: len(cols), per: per, args: make([]driver.NamedValue, 0, per*len(cols)),
		one: head + row, some: head + row + strings.Repeat(","+row, someRows-1), many: head + row + strings.Repeat(","+row, per-1)}
}

// then says what becomes of a row whose key is there already.
func (b *rowBuffer) then(set string) {
	set = " ON CONFLICT DO UPDATE SET " + set
	b.one += set
	b.some += set
	b.many += set
}

func newTx(conn *sqlx.Conn) *Tx {
	t := &Tx{session: &session{conn: conn}}
	t.newOps = newRowBuffer("operations", 40, "op_no", "run_no", "op_key", "key_hash", "class", "last_key", "rev",
		"events", "spans", "crc", "side", "payee", "host", "resource", "asset", "amount", "pending_until", "blind", "no_hook", "names")
	t.newPayments = newRowBuffer("payments", 40, "op_no", "i", "n", "payee", "host", "resource", "asset",
		"network", "scheme", "amount", "settled", "at", "status", "priced", "flags")
	t.newWords = newRowBuffer("words", 60, "word_no", "word")
	t.newNames = newRowBuffer("operation_names", 60, "name", "class", "last_key", "op_no")
	t.newSets = newRowBuffer("name_sets", 60, "set_no", "names")
	t.newSetNames = newRowBuffer("name_set_names", 60, "name", "set_no")
	t.newSlots = newRowBuffer("slots", 40, "size", "slot", "asset", "sums")
	t.newSlots.then("sums = excluded.sums")
	t.setCounts = newCounter("set_counts", "operations", "set_no", "class", "blind")
	t.nameCounts = newCounter("name_counts", "operations", "name", "class", "blind")
	t.paidCounts = newCounter("paid", "payments", "host", "payee", "outcome")
	t.forget()
	return t
}

// forget drops what an earlier transaction cached: after a rollback, or when
// another process has filled the index anew.
func (t *Tx) forget() {
	t.words, t.types, t.classes = map[string]int64{}, map[Type]int64{}, map[string]int64{}
	t.forgetSets()
	t.lately = [8]recent{}
	t.sums = newSums()
	for _, b := range []*rowBuffer{&t.newWords, &t.newOps, &t.newPayments, &t.newNames, &t.newSets, &t.newSetNames, &t.newSlots, &t.setCounts.add, &t.nameCounts.add, &t.paidCounts.add} {
		b.args = b.args[:0]
	}
}

// Write runs fn inside one immediate transaction. If fn or the commit fails
// nothing of it remains. It gives ErrUnusable when the file is not the one
// that was opened, or not an index, and ErrBusy when the lock was not had.
func (x *Index) Write(ctx context.Context, fn func(*Tx) error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return fmt.Errorf("%w: it was closed", ErrUnusable)
	}
	if x.Moved() {
		return fmt.Errorf("%w: %s was replaced or removed", ErrUnusable, x.path)
	}
	t := x.tx
	if err := t.session.begin(ctx, "BEGIN IMMEDIATE"); err != nil {
		return classify(err)
	}
	committed := false
	defer func() {
		if !committed { // fn may have panicked
			_, _ = t.exec("ROLLBACK")
			t.forget()
			t.generation, t.deferred = 0, nil
		}
	}()
	err := t.start()
	if err == nil {
		err = fn(t)
	}
	if err == nil {
		err = t.flush()
	}
	if err == nil {
		err = t.putMeta()
	}
	if err == nil {
		// From here on the context no longer matters: a commit is not undone.
		_, err = t.exec("COMMIT")
	}
	if committed = err == nil; committed {
		x.shorten()
	}
	return classify(err)
}

// checkpoint empties the write-ahead log, waiting so many milliseconds for who reads
// from it, and tells whether all of it is in the index now.
func (t *Tx) checkpoint(how string, patience int) (done bool) {
	ctx := context.Background()
	wait := func(milliseconds int) error {
		_, err := t.conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout(%d)", milliseconds))
		return err
	}
	if wait(patience) != nil {
		return false
	}
	var busy, frames, moved int
	err := t.conn.QueryRowxContext(ctx, "PRAGMA wal_checkpoint("+how+")").Scan(&busy, &frames, &moved)
	return wait(busyMillis) == nil && err == nil && busy == 0
}

func (t *Tx) start() error {
	var generation int64
	if err := t.row("SELECT generation, rev, gone, next_op FROM meta", nil, &generation, &t.rev, &t.gone, &t.nextOp); err != nil {
		return err
	}
	if generation != t.generation {
		t.forget()
		t.generation = generation
	}
	t.rev++
	t.stamp = t.rev
	t.newWord, t.newSet, t.noSlots = 0, 0, false
	t.added = Totals{}
	return nil
}

// putMeta writes what a transaction changed of the whole.
func (t *Tx) putMeta() error {
	a := &t.added
	return t.put(`UPDATE meta SET rev = ?, gone = ?, next_op = ?, runs = runs + ?, operations = operations + ?, events = events + ?,
		payments = payments + ?, faults = faults + ?, bytes = bytes + ?`, t.rev, t.gone, t.nextOp, a.Runs, a.Operations, a.Events, a.Payments, a.Faults, a.Bytes)
}

// Statements of a transaction do not heed the caller's context: a context that
// can end costs a goroutine each, and a transaction is short or rolled back.

func (t *Tx) exec(query string, args ...any) (sql.Result, error) {
	return t.session.exec(context.Background(), query, args...)
}

// put runs a statement past database/sql. Arguments are of the driver's own types.
func (t *Tx) put(query string, args ...any) error {
	t.args = t.args[:0]
	for i, a := range args {
		t.args = append(t.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	return t.bulk(query, t.args)
}

func (t *Tx) row(query string, args []any, dest ...any) error {
	return t.session.row(context.Background(), query, args...).Scan(dest...)
}

// add buffers one row of an operation (0 for words). Its values are of the
// driver's own types: int64, string, []byte or nil.
func (t *Tx) add(b *rowBuffer, owner int64, row ...any) error {
	if len(b.args) == 0 || owner < b.owner {
		b.owner = owner
	}
	for _, v := range row {
		b.args = append(b.args, driver.NamedValue{Ordinal: len(b.args) + 1, Value: v})
	}
	if len(b.args) < b.per*b.cols {
		return nil
	}
	return t.drain(b)
}

// drainOf writes the rows buffered if some may be an operation's. Writing them
// one by one whenever an older operation changes would undo the batching.
func (t *Tx) drainOf(b *rowBuffer, op int64) error {
	if len(b.args) == 0 || op < b.owner {
		return nil
	}
	return t.drain(b)
}

func (t *Tx) drain(b *rowBuffer) error {
	args := b.args
	b.args = b.args[:0]
	if len(args) == b.per*b.cols {
		return t.bulk(b.many, args)
	}
	for len(args) > 0 {
		rows, query := 1, b.one
		if len(args) >= someRows*b.cols {
			rows, query = someRows, b.some
		}
		part := args[:rows*b.cols]
		for i := range part {
			part[i].Ordinal = i + 1
		}
		if err := t.bulk(query, part); err != nil {
			return err
		}
		args = args[len(part):]
	}
	return nil
}

// flush writes the rows still buffered, and adds what was counted.
func (t *Tx) flush() error {
	for _, b := range []*rowBuffer{&t.newWords, &t.newOps, &t.newPayments, &t.newNames, &t.newSets, &t.newSetNames} {
		if err := t.drain(b); err != nil {
			return err
		}
	}
	return t.addUp()
}

// Rev numbers this transaction; the one before it in the index was Rev()-1,
// whichever process made it.
func (t *Tx) Rev() int64 { return t.rev }

// Generation is the filling of the index this transaction writes to. Row
// numbers learnt under another generation mean nothing.
func (t *Tx) Generation() int64 { return t.generation }

// Gone is the number of the last transaction that removed a run.
func (t *Tx) Gone() int64 { return t.gone }

// Run finds a run by its file name; nil when there is none.
func (t *Tx) Run(file []byte) (*Run, error) {
	return t.oneRun(context.Background(), "file = ?", file)
}

// PutRun writes r, which gets its number when it is new.
func (t *Tx) PutRun(r *Run) error {
	r.Rev = t.rev
	stat, err := r.Stat.Value()
	if err != nil {
		return err
	}
	var fault any
	if r.EntryFault != nil {
		fault = *r.EntryFault
	}
	args := []any{r.FileKey, r.Key, r.Epoch, stat, r.Covered, r.CRC, r.HeadCRC, r.TailCRC,
		r.Lines, r.Events, r.Operations, r.Answers, r.Faults, fault, r.Session, r.Torn, int64(boolInt(r.Unverified)), r.Rev}
	if r.No == 0 {
		r.was = Totals{}
	}
	t.added.add(r.totals(), 1)
	t.added.add(r.was, -1)
	r.was = r.totals()
	if r.No != 0 {
		return t.put(`UPDATE runs SET file_key=?, run_key=?, epoch=?, stat=?, covered=?, crc=?,
			head_crc=?, tail_crc=?, lines=?, events=?, operations=?, answers=?, faults=?, entry_fault=?, session=?, torn=?, unverified=?, rev=? WHERE run_no=?`,
			append(args, r.No)...)
	}
	res, err := t.exec(`INSERT INTO runs (file_key, run_key, epoch, stat, covered, crc, head_crc, tail_crc,
		lines, events, operations, answers, faults, entry_fault, session, torn, unverified, rev, file) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
		append(args, r.File)...)
	if err == nil {
		r.No, err = res.LastInsertId()
	}
	if err == nil {
		err = t.markTwins(r.Key)
	}
	if err != nil || t.deferred != nil {
		return err
	}
	// A number that rows still stand under was taken from a run that somebody
	// else removed: such an index cannot be trusted in anything.
	var left int
	if err := t.row("SELECT EXISTS (SELECT 1 FROM operations WHERE run_no = ?)", []any{r.No}, &left); err != nil {
		return err
	}
	if left != 0 {
		return fmt.Errorf("%w: it holds operations of no run", ErrUnusable)
	}
	return nil
}

// markTwins marks the runs of one id where there are several: none of them can
// be addressed.
func (t *Tx) markTwins(key []byte) error {
	_, err := t.exec(`UPDATE runs SET twin = 1 - twin, rev = ?2 WHERE run_key = ?1
		AND twin <> (SELECT count(*) > 1 FROM runs r WHERE r.run_key = ?1)`, key, t.rev)
	return err
}

// RunByNumber finds a run by its row number; nil when there is none.
func (t *Tx) RunByNumber(no int64) (*Run, error) {
	return t.oneRun(context.Background(), "run_no = ?", no)
}

// ClearRun removes everything known of a run but the run itself.
func (t *Tx) ClearRun(run int64) error {
	if err := t.uncount(run); err != nil {
		return err
	}
	if err := t.flush(); err != nil {
		return err
	}
	const members = "(SELECT op_no FROM operations WHERE run_no = ?1 UNION ALL SELECT -stray_no FROM strays WHERE run_no = ?1)"
	for _, q := range []string{
		"DELETE FROM links WHERE op_no IN " + members,
		"DELETE FROM links WHERE other IN " + members,
		"DELETE FROM transactions WHERE op_no IN " + members,
		"DELETE FROM candidates WHERE run_no = ?1",
		"DELETE FROM answers WHERE op_no IN " + members,
		"DELETE FROM payments WHERE op_no IN " + members,
		"DELETE FROM strays WHERE run_no = ?1",
		"DELETE FROM faults WHERE run_no = ?1",
	} {
		if _, err := t.exec(q, run); err != nil {
			return err
		}
	}
	if err := t.clearNames(run); err != nil {
		return err
	}
	_, err := t.exec("DELETE FROM operations WHERE run_no = ?", run)
	return err
}

// clearNames removes the name rows of a run's operations one by one: the table
// is keyed by name, and a scan of it would cost the size of the whole index.
func (t *Tx) clearNames(run int64) error {
	type row struct {
		No    int64  `db:"op_no"`
		Class int64  `db:"class"`
		Last  []byte `db:"last_key"`
		Names int64  `db:"names"`
	}
	var after int64
	for {
		var rows []row
		if err := t.sel(context.Background(), &rows,
			"SELECT op_no, class, last_key, names FROM operations WHERE run_no = ? AND op_no > ? ORDER BY op_no LIMIT 1000", run, after); err != nil {
			return err
		}
		if len(rows) == 0 {
			return nil
		}
		for _, r := range rows {
			if err := t.removeNames(r.No, r.Names, r.Class, r.Last); err != nil {
				return err
			}
			after = r.No
		}
	}
}

// DropRun removes a run.
func (t *Tx) DropRun(run int64) error {
	if err := t.ClearRun(run); err != nil {
		return err
	}
	var key []byte
	before := Totals{Runs: 1}
	if err := t.row("DELETE FROM runs WHERE run_no = ? RETURNING run_key, operations, events, faults, covered", []any{run},
		&key, &before.Operations, &before.Events, &before.Faults, &before.Bytes); err != nil {
		return err
	}
	t.added.add(before, -1)
	t.gone = t.rev
	return t.markTwins(key)
}

// Clear empties the index and draws a new generation. Dictionaries go too.
func (t *Tx) Clear() error {
	t.forget()
	for _, table := range []string{"links", "transactions", "candidates", "answers", "strays", "paid", "slots", "payments", "operation_names", "operations",
		"name_counts", "set_counts", "name_set_names", "name_sets", "classes", "types", "words", "faults", "runs"} {
		if _, err := t.exec("DELETE FROM " + table); err != nil {
			return err
		}
	}
	t.added, t.nextOp, t.gone, t.noSlots = Totals{}, 1, t.rev, true
	return t.row(`UPDATE meta SET generation = abs(random()), runs = 0, operations = 0, events = 0, payments = 0, faults = 0, bytes = 0
		RETURNING generation`, nil, &t.generation)
}

// Fill empties the index and puts off its larger indexes and the names of
// operations until Filled: sorted once at the end they cost a fraction of what
// they cost row by row. Between the two, operations are found by number only.
func (t *Tx) Fill() error {
	if err := t.Clear(); err != nil {
		return err
	}
	var indexes []struct {
		Name string `db:"name"`
		SQL  string `db:"sql"`
	}
	if err := t.sel(context.Background(), &indexes,
		`SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name IN ('operations', 'payments')
		AND sql IS NOT NULL ORDER BY name`); err != nil {
		return err
	}
	t.deferred, t.newWord, t.newSet, t.stamp = []string{}, 1, 1, 0
	for _, i := range indexes {
		t.deferred = append(t.deferred, i.SQL)
		if _, err := t.conn.ExecContext(context.Background(), "DROP INDEX "+i.Name); err != nil {
			return err
		}
	}
	return nil
}

// Filled makes what Fill put off.
func (t *Tx) Filled() error {
	if err := t.flush(); err != nil {
		return err
	}
	if _, err := t.exec(`INSERT OR IGNORE INTO operation_names (name, class, last_key, op_no) SELECT name, class, last_key, op_no FROM (
		SELECT payee AS name, class, last_key, op_no FROM operations WHERE payee IS NOT NULL UNION ALL
		SELECT host, class, last_key, op_no FROM operations WHERE host IS NOT NULL) ORDER BY name, class, last_key, op_no`); err != nil {
		return err
	}
	for _, sql := range t.deferred {
		if _, err := t.conn.ExecContext(context.Background(), sql); err != nil {
			return err
		}
	}
	t.deferred = nil
	return nil
}

// word gives the number of a dictionary word; nil for the empty one.
func (t *Tx) word(w string) (any, error) {
	if w == "" {
		return nil, nil
	}
	// A payment repeats the words of its operation.
	for i := range t.lately {
		if t.lately[i].word == w {
			return t.lately[i].no, nil
		}
	}
	no, err := t.wordNumber(w)
	if err != nil {
		return nil, err
	}
	t.lately[t.turn] = recent{w, no}
	t.turn = (t.turn + 1) % len(t.lately)
	return no, nil
}

// recent is a word used a moment ago. Its number is kept as the interface that
// statements take.
type recent struct {
	word string
	no   any
}

func (t *Tx) wordNumber(w string) (any, error) {
	if n, ok := t.words[w]; ok {
		return n, nil
	}
	if t.newWord > 0 && len(t.words) < maxCached {
		// Filling: every word there is, is in the cache.
		n := t.newWord
		t.newWord++
		t.words[w] = n
		return n, t.add(&t.newWords, 0, n, w)
	}
	if err := t.drain(&t.newWords); err != nil {
		return nil, err
	}
	t.newWord = 0
	var n int64
	err := t.row("SELECT word_no FROM words WHERE word = ?", []any{w}, &n)
	if errors.Is(err, sql.ErrNoRows) {
		err = t.row("INSERT INTO words (word) VALUES (?) RETURNING word_no", []any{w}, &n)
	}
	if err != nil {
		return nil, err
	}
	if len(t.words) >= maxCached {
		t.words = map[string]int64{}
	}
	t.words[w] = n
	return n, nil
}

// Type gives the number of a pair of event type and role.
func (t *Tx) Type(p Type) (int64, error) {
	if n, ok := t.types[p]; ok {
		return n, nil
	}
	var n int64
	args := []any{[]byte(p.EventType), p.HasRole, []byte(p.Role)}
	err := t.row("SELECT type_no FROM types WHERE event_type = ? AND has_role = ? AND role = ?", args, &n)
	if errors.Is(err, sql.ErrNoRows) {
		err = t.row("INSERT INTO types (event_type, has_role, role) VALUES (?,?,?) RETURNING type_no", args, &n)
	}
	if err != nil {
		return 0, err
	}
	if len(t.types) >= maxCached {
		t.types = map[Type]int64{}
	}
	t.types[p] = n
	return n, nil
}

func (t *Tx) class(shape []int64, settlement int) (int64, error) {
	blob := shapeKey(shape)
	key := string(blob) + string(rune(settlement))
	if n, ok := t.classes[key]; ok {
		return n, nil
	}
	var n int64
	err := t.row("SELECT class_no FROM classes WHERE shape = ? AND settlement = ?", []any{blob, settlement}, &n)
	if errors.Is(err, sql.ErrNoRows) {
		err = t.row("INSERT INTO classes (shape, settlement) VALUES (?,?) RETURNING class_no", []any{blob, settlement}, &n)
	}
	if err != nil {
		return 0, err
	}
	if len(t.classes) >= maxCached {
		t.classes = map[string]int64{}
	}
	t.classes[key] = n
	return n, nil
}

// Stored is what a writer needs of an operation that is in the index already.
type Stored struct {
	No         int64
	Run        int64
	Key        []byte
	Class      int64
	Last       []byte
	Events     int64
	Spans      []byte
	CRC        uint32
	NoHook     bool
	ShapeBytes []byte
	Payments   int64 // rows of payments it has
	Answers    int64 // and of answers

	names int64 // its name set
	blind bool
	has   *dependents // nil: to be read from the index
}

// dependents are the rows that depend on an operation's payments and answers. Most
// events change none of them.
type dependents struct {
	payments   []payment
	answers    []Answer
	candidates []Candidate
	hashes     []string
}

// Shape is the operation's set of types so far.
func (s *Stored) Shape() []int64 { return shapeFromKey(s.ShapeBytes) }

const storedColumns = `o.op_no, o.run_no, o.op_key, o.class, o.last_key, o.events, o.spans, o.crc, o.names, o.blind IS NOT NULL, o.no_hook, c.shape,
	(SELECT count(*) FROM payments p WHERE p.op_no = o.op_no), (SELECT count(*) FROM answers a WHERE a.op_no = o.op_no)`

func (t *Tx) stored(where string, args ...any) (*Stored, error) {
	var s Stored
	err := t.row("SELECT "+storedColumns+" FROM operations o JOIN classes c ON c.class_no = o.class WHERE "+where, args,
		&s.No, &s.Run, &s.Key, &s.Class, &s.Last, &s.Events, &s.Spans, &s.CRC, &s.names, &s.blind, &s.NoHook, &s.ShapeBytes, &s.Payments, &s.Answers)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.Key = unpackKey(s.Key)
	return &s, nil
}

// Operation finds an operation of a run by its key; nil when there is none.
func (t *Tx) Operation(run int64, key []byte) (*Stored, error) {
	for _, b := range []*rowBuffer{&t.newOps, &t.newPayments} {
		if err := t.drain(b); err != nil {
			return nil, err
		}
	}
	return t.stored("o.run_no = ? AND o.key_hash = ? AND o.op_key = ?", run, keyHash(key), packKey(key))
}

// OperationByNumber finds an operation by its row number.
func (t *Tx) OperationByNumber(no int64) (*Stored, error) {
	for _, b := range []*rowBuffer{&t.newOps, &t.newPayments} {
		if err := t.drainOf(b, no); err != nil {
			return nil, err
		}
	}
	return t.stored("o.op_no = ?", no)
}

// Put writes an operation with its payments, names, answers and hashes. old is
// what the index holds of it, nil for a new one, whose number is set. It
// returns what a later Put takes as old. It keeps the slices of op.
func (t *Tx) Put(op *Operation, old *Stored) (*Stored, error) {
	class, err := t.class(op.Shape, op.Settlement)
	if err != nil {
		return nil, err
	}
	has, err := t.dependents(op)
	if err != nil {
		return nil, err
	}
	payee, err := t.word(op.Payee)
	if err != nil {
		return nil, err
	}
	host, err := t.word(op.Host)
	if err != nil {
		return nil, err
	}
	resource, asset, amount, err := t.shown(op, has)
	if err != nil {
		return nil, err
	}
	names, err := t.nameSet(op.Names)
	if err != nil {
		return nil, err
	}
	now := &Stored{Run: op.Run, Key: nonNil(op.Key), Class: class, Last: op.Last, Events: op.Events,
		Spans: op.Spans, CRC: op.CRC, NoHook: op.NoHook, ShapeBytes: shapeKey(op.Shape),
		Payments: int64(len(op.Payments)), Answers: int64(len(op.Answers)), names: names, blind: op.Blind != "", has: has}

	if old == nil {
		now.No = t.nextOp
		t.nextOp++
		if err := t.add(&t.newOps, now.No, now.No, op.Run, packKey(now.Key), int64(keyHash(now.Key)), class, op.Last, t.stamp, op.Events, op.Spans, int64(op.CRC), int64(op.Side),
			payee, host, resource, asset, amount, op.PendingUntil, text(op.Blind), int64(boolInt(op.NoHook)), names); err != nil {
			return nil, err
		}
	} else {
		now.No = old.No
		if err := t.drainOf(&t.newOps, old.No); err != nil {
			return nil, err
		}
		if err := t.put(`UPDATE operations SET class=?, last_key=?, rev=?, events=?, spans=?, crc=?, side=?, payee=?, host=?, resource=?,
			asset=?, amount=?, pending_until=?, blind=?, no_hook=?, names=? WHERE op_no=?`, class, op.Last, t.stamp, op.Events, op.Spans, int64(op.CRC), int64(op.Side),
			payee, host, resource, asset, amount, op.PendingUntil, text(op.Blind), int64(boolInt(op.NoHook)), names, now.No); err != nil {
			return nil, err
		}
	}
	op.No = now.No
	if err := t.putNames(op, now, old); err != nil {
		return nil, err
	}
	had := &dependents{}
	if old != nil && old.Payments+old.Answers > 0 {
		had = old.has
	}
	return now, t.putDependents(op.No, op.Run, has, had)
}

// shown is what the row of an operation keeps of what is shown: nothing where its
// first payment says the same.
func (t *Tx) shown(op *Operation, has *dependents) (resource, asset, amount any, err error) {
	if resource, err = t.word(op.Resource); err != nil {
		return nil, nil, nil, err
	}
	if asset, err = t.word(op.Asset); err != nil {
		return nil, nil, nil, err
	}
	amount = stored(op.Amount)
	if len(has.payments) == 0 {
		return resource, asset, amount, nil
	}
	first := &has.payments[0]
	if resource = unlessAlready(resource, first.resource); op.Amount == first.amount {
		amount = nil
	} else if amount == nil {
		amount = ""
	}
	return resource, unlessAlready(asset, first.asset), amount, nil
}

func unlessAlready(word any, have int64) any {
	no, _ := word.(int64)
	if no == have {
		return nil
	}
	return no
}

// putNames makes the name rows and counts of an operation what they are to be.
func (t *Tx) putNames(op *Operation, now, old *Stored) error {
	if old == nil {
		t.sums.count(now, 1)
	} else if old.names != now.names || old.Class != now.Class || old.blind != now.blind {
		t.sums.count(old, -1)
		t.sums.count(now, 1)
	}
	if old != nil {
		// While filling, what is shown now decides which rows Filled makes.
		if t.deferred == nil && old.names == now.names && old.Class == now.Class && bytes.Equal(old.Last, now.Last) {
			return nil
		}
		if t.deferred == nil && old.names == now.names {
			return t.moveNames(now, old)
		}
		if err := t.removeNames(old.No, old.names, old.Class, old.Last); err != nil {
			return err
		}
	}
	names, err := t.namesOf(now.names)
	if err != nil {
		return err
	}
	for _, n := range names {
		if t.deferred != nil && t.isShown(op, n) {
			continue // Filled does it
		}
		if err := t.add(&t.newNames, now.No, n, now.Class, now.Last, now.No); err != nil {
			return err
		}
	}
	return nil
}

// moveNames moves the name rows of an operation to where it stands now.
func (t *Tx) moveNames(now, old *Stored) error {
	if err := t.drainOf(&t.newNames, now.No); err != nil {
		return err
	}
	names, err := t.namesOf(now.names)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := t.put("UPDATE operation_names SET class = ?, last_key = ? WHERE name = ? AND class = ? AND last_key = ? AND op_no = ?",
			now.Class, now.Last, n, old.Class, old.Last, now.No); err != nil {
			return err
		}
	}
	return nil
}

// isShown tells whether a name is the payee or host in the row of an operation.
func (t *Tx) isShown(op *Operation, name int64) bool {
	return t.words[op.Payee] == name || t.words[op.Host] == name
}

func (t *Tx) removeNames(no, set, class int64, last []byte) error {
	if err := t.drainOf(&t.newNames, no); err != nil {
		return err
	}
	names, err := t.namesOf(set)
	if err != nil {
		return err
	}
	for _, n := range names {
		if err := t.put("DELETE FROM operation_names WHERE name = ? AND class = ? AND last_key = ? AND op_no = ?", n, class, last, no); err != nil {
			return err
		}
	}
	return nil
}

// dependents are op's, with words as numbers.
func (t *Tx) dependents(op *Operation) (*dependents, error) {
	d := &dependents{answers: op.Answers, candidates: op.Candidates, hashes: op.Hashes}
	if len(op.Payments) > 0 {
		d.payments = make([]payment, len(op.Payments))
	}
	for i := range op.Payments {
		if err := t.payment(&d.payments[i], &op.Payments[i]); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// putDependents makes the dependents of an operation (or stray) what they are to be.
// had is what they are, nil where that is not known.
func (t *Tx) putDependents(no, run int64, now, had *dependents) error {
	if had == nil {
		if err := t.drainOf(&t.newPayments, no); err != nil {
			return err
		}
		rows, err := t.paymentsOf(no)
		if err != nil {
			return err
		}
		had = &dependents{payments: rows}
		for _, q := range []string{deleteAnswers, deleteCandidates, deleteHashes} {
			if err := t.bulk(q, values(no)); err != nil {
				return err
			}
		}
	}
	if !slices.Equal(had.payments, now.payments) {
		if err := t.putPayments(no, now.payments, had.payments); err != nil {
			return err
		}
	}
	if !slices.EqualFunc(had.answers, now.answers, Answer.equal) {
		if err := t.deleteSome(deleteAnswers, no, len(had.answers)); err != nil {
			return err
		}
		for _, a := range now.answers {
			if err := t.put("INSERT INTO answers (op_no, n, run_no, at_key) VALUES (?,?,?,?)", no, int64(a.N), run, nonNil(a.AtKey)); err != nil {
				return err
			}
		}
	}
	if !slices.Equal(had.candidates, now.candidates) {
		if err := t.deleteSome(deleteCandidates, no, len(had.candidates)); err != nil {
			return err
		}
		for _, c := range now.candidates {
			if err := t.bulk("INSERT INTO candidates (run_no, claim_until, op_no, n) VALUES (?,?,?,?)", values(run, c.Until, no, int64(c.N))); err != nil {
				return err
			}
		}
	}
	if !slices.Equal(had.hashes, now.hashes) {
		if err := t.deleteSome(deleteHashes, no, len(had.hashes)); err != nil {
			return err
		}
		for _, h := range now.hashes {
			if err := t.put("INSERT OR IGNORE INTO transactions (hash, op_no) VALUES (?,?)", h, no); err != nil {
				return err
			}
		}
	}
	if t.sums.full() {
		return t.addUp()
	}
	return nil
}

const (
	deletePayments   = "DELETE FROM payments WHERE op_no = ?"
	deleteAnswers    = "DELETE FROM answers WHERE op_no = ?"
	deleteCandidates = "DELETE FROM candidates WHERE op_no = ?"
	deleteHashes     = "DELETE FROM transactions WHERE op_no = ?"
)

func (t *Tx) deleteSome(query string, no int64, some int) error {
	if some == 0 {
		return nil
	}
	return t.bulk(query, values(no))
}

// PutStray keeps where an answer in no operation lies, and under its number
// what op says of it.
func (t *Tx) PutStray(s *Stray, op *Operation) error {
	had := &dependents{}
	if s.No == 0 {
		res, err := t.exec("INSERT INTO strays (run_no, offset, length, crc) VALUES (?,?,?,?)", s.Run, s.Offset, s.Length, int64(s.CRC))
		if err != nil {
			return err
		}
		if s.No, err = res.LastInsertId(); err != nil {
			return err
		}
	} else {
		had = nil
	}
	op.No, op.Run = -s.No, s.Run
	has, err := t.dependents(op)
	if err != nil {
		return err
	}
	return t.putDependents(op.No, op.Run, has, had)
}

// StrayByNumber finds a stray; nil when there is none.
func (t *Tx) StrayByNumber(no int64) (*Stray, error) {
	var s Stray
	err := t.row("SELECT stray_no, run_no, offset, length, crc FROM strays WHERE stray_no = ?", []any{no}, &s.No, &s.Run, &s.Offset, &s.Length, &s.CRC)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// PutFault keeps one fault of a run.
func (t *Tx) PutFault(run int64, f Fault) error {
	_, err := t.exec("INSERT OR REPLACE INTO faults (run_no, line, offset, reason) VALUES (?,?,?,?)", run, f.Line, f.Offset, f.Reason)
	return err
}

// DropNewestFault makes room for a newer one.
func (t *Tx) DropNewestFault(run int64) error {
	_, err := t.exec("DELETE FROM faults WHERE run_no = ?1 AND line = (SELECT max(line) FROM faults WHERE run_no = ?1)", run)
	return err
}

// HasAnswers tells whether any answer looks for a payment. Where none does,
// no transaction hash can make a link.
func (t *Tx) HasAnswers() (bool, error) {
	var has bool
	err := t.row("SELECT EXISTS (SELECT 1 FROM answers)", nil, &has)
	return has, err
}

// Member is the n-th answer or payment of an operation.
type Member struct {
	Op int64 `db:"op_no"`
	N  int   `db:"n"`
}

// AnswersFrom gives a run's answers without a payment, from a time on.
func (t *Tx) AnswersFrom(run int64, atKey []byte) ([]Member, error) {
	return t.members("SELECT op_no, n FROM answers WHERE run_no = ? AND at_key >= ? ORDER BY op_no, n", run, nonNil(atKey))
}

// CandidatesUntil gives a run's payments without an answer that an answer at
// or after an instant can claim.
func (t *Tx) CandidatesUntil(run int64, until int64) ([]Member, error) {
	return t.members("SELECT op_no, n FROM candidates WHERE run_no = ? AND claim_until >= ? ORDER BY op_no, n", run, until)
}

func (t *Tx) members(query string, args ...any) ([]Member, error) {
	var out []Member
	err := t.sel(context.Background(), &out, query, args...)
	return out, err
}

// OperationsNaming gives the operations (and strays) that a transaction hash
// may link, at most limit of them.
func (t *Tx) OperationsNaming(hash string, limit int) ([]int64, error) {
	var out []int64
	err := t.sel(context.Background(), &out, "SELECT op_no FROM transactions WHERE hash = ? ORDER BY op_no LIMIT ?", hash, limit)
	return out, err
}

// RunOf gives the number of the run of an operation or stray, 0 when there is
// no such one.
func (t *Tx) RunOf(op int64) (int64, error) {
	query := "SELECT run_no FROM operations WHERE op_no = ?"
	if op < 0 {
		op, query = -op, "SELECT run_no FROM strays WHERE stray_no = ?"
	} else if err := t.drain(&t.newOps); err != nil {
		return 0, err
	}
	var run int64
	err := t.row(query, []any{op}, &run)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return run, err
}

// LinksFrom gives the links of an operation's answers, LinksTo those to its
// payments.
func (t *Tx) LinksFrom(op int64) ([]Link, error) {
	return t.links("SELECT op_no, n, other, m, at_key, by_tx FROM links WHERE op_no = ? ORDER BY n", op)
}

// LinksTo gives the links to an operation's payments.
func (t *Tx) LinksTo(op int64) ([]Link, error) {
	return t.links("SELECT op_no, n, other, m, at_key, by_tx FROM links WHERE other = ? ORDER BY op_no, n", op)
}

// LinksAcross gives the links between a run and others.
func (t *Tx) LinksAcross(run int64) ([]Link, error) {
	return t.links(`SELECT op_no, n, other, m, at_key, by_tx FROM links WHERE by_tx AND (
		op_no IN (SELECT op_no FROM operations WHERE run_no = ?1 UNION ALL SELECT -stray_no FROM strays WHERE run_no = ?1) OR
		other IN (SELECT op_no FROM operations WHERE run_no = ?1))`, run)
}

func (t *Tx) links(query string, args ...any) ([]Link, error) {
	if err := t.drain(&t.newOps); err != nil {
		return nil, err
	}
	var out []Link
	err := t.sel(context.Background(), &out, query, args...)
	return out, err
}

// LinksByHash gives the links across runs of the answers that name a hash.
func (t *Tx) LinksByHash(hash string) ([]Link, error) {
	return t.links(`SELECT l.op_no, l.n, l.other, l.m, l.at_key, l.by_tx FROM transactions t CROSS JOIN links l ON l.op_no = t.op_no
		WHERE t.hash = ? AND l.by_tx`, hash)
}

// PutLink writes a link in place of any other of its answer.
func (t *Tx) PutLink(l Link) error {
	_, err := t.exec("INSERT OR REPLACE INTO links (op_no, n, other, m, at_key, by_tx) VALUES (?,?,?,?,?,?)", l.Op, l.N, l.Other, l.M, nonNil(l.AtKey), l.ByTx)
	return err
}

// DropLink removes the link of an answer.
func (t *Tx) DropLink(op int64, n int) error {
	_, err := t.exec("DELETE FROM links WHERE op_no = ? AND n = ?", op, n)
	return err
}

func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}
