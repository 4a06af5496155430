package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"runtime/debug"

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

func newTx(conn *sqlx.Conn) *Tx {
	t := &Tx{session: &session{conn: conn}}
	t.newOps = newRowBuffer("operations", 40, "op_no", "run_no", "op_key", "key_hash", "class", "last_key", "rev",
		"events", "spans", "crc", "side", "payee", "host", "resource", "asset", "amount", "pending_until", "blind", "no_hook", "names")
	t.newPayments = newRowBuffer("payments", 40, "op_no", "i", "n", "payee", "host", "resource", "asset",
		"amount", "settled", "at", "flags")
	t.newWords = newRowBuffer("words", 60, "word_no", "word", "hash")
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

func (t *Tx) start() error {
	var generation int64
	if err := t.one("SELECT generation, rev, gone, next_op FROM meta", nil, &generation, &t.rev, &t.gone, &t.nextOp); err != nil {
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

// one is row for numbers, past database/sql. Arguments are of the driver's own types.
func (t *Tx) one(query string, args []any, to ...*int64) error {
	return t.integers(context.Background(), query, args, to)
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
	return t.one(`UPDATE meta SET generation = abs(random()), runs = 0, operations = 0, events = 0, payments = 0, faults = 0, bytes = 0
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
	// What the rows left behind would stand beside what sorting takes.
	debug.FreeOSMemory()
	if _, err := t.exec(`INSERT INTO operation_names (name, class, last_key, op_no)
		SELECT n.name, o.class, o.last_key, o.op_no FROM operations o JOIN name_set_names n ON n.set_no = o.names ORDER BY 1, 2, 3, 4`); err != nil {
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
