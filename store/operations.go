package store

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
)

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

func (t *Tx) stored(where string, args ...any) (found *Stored, err error) {
	err = t.scan(context.Background(), "SELECT "+storedColumns+" FROM operations o JOIN classes c ON c.class_no = o.class WHERE "+where, args, func(row []driver.Value) error {
		blob := func(i int) []byte {
			b, _ := row[i].([]byte)
			return bytes.Clone(b)
		}
		found = &Stored{No: integer(row[0]), Run: integer(row[1]), Key: unpackKey(blob(2)), Class: integer(row[3]), Last: blob(4),
			Events: integer(row[5]), Spans: blob(6), CRC: uint32(integer(row[7])), names: integer(row[8]), blind: integer(row[9]) != 0,
			NoHook: integer(row[10]) != 0, ShapeBytes: blob(11), Payments: integer(row[12]), Answers: integer(row[13])}
		return nil
	})
	return found, err
}

// Operation finds an operation of a run by its key; nil when there is none.
func (t *Tx) Operation(run int64, key []byte) (*Stored, error) {
	if t.buffered(run, keyHash(key)) {
		if err := t.drain(&t.newOps); err != nil {
			return nil, err
		}
	}
	find := func() (*Stored, error) {
		return t.stored("o.run_no = ? AND o.key_hash = ? AND o.op_key = ?", run, int64(keyHash(key)), packKey(key))
	}
	s, err := find()
	if s == nil || err != nil || len(t.newPayments.args) == 0 || s.No < t.newPayments.owner {
		return s, err
	}
	// It may have payments that are not counted yet.
	if err := t.drain(&t.newPayments); err != nil {
		return nil, err
	}
	return find()
}

// buffered tells whether an operation with that hash may be among those still to be
// written. Most that are looked up are new, and writing the others one by one for each
// would undo the batching.
func (t *Tx) buffered(run int64, hash int32) bool {
	const runAt, hashAt = 1, 3 // in a row of newOps
	for row := t.newOps.args; len(row) > 0; row = row[t.newOps.cols:] {
		if row[runAt].Value == run && row[hashAt].Value == int64(hash) {
			return true
		}
	}
	return false
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
	show, err := t.shown(op, has)
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
			show.payee, show.host, show.resource, show.asset, show.amount, op.PendingUntil, text(op.Blind), int64(boolInt(op.NoHook)), names); err != nil {
			return nil, err
		}
	} else {
		now.No = old.No
		if err := t.drainOf(&t.newOps, old.No); err != nil {
			return nil, err
		}
		if err := t.put(`UPDATE operations SET class=?, last_key=?, rev=?, events=?, spans=?, crc=?, side=?, payee=?, host=?, resource=?,
			asset=?, amount=?, pending_until=?, blind=?, no_hook=?, names=? WHERE op_no=?`, class, op.Last, t.stamp, op.Events, op.Spans, int64(op.CRC), int64(op.Side),
			show.payee, show.host, show.resource, show.asset, show.amount, op.PendingUntil, text(op.Blind), int64(boolInt(op.NoHook)), names, now.No); err != nil {
			return nil, err
		}
	}
	op.No = now.No
	if err := t.putNames(now, old); err != nil {
		return nil, err
	}
	had := &dependents{}
	if old != nil && old.Payments+old.Answers > 0 {
		had = old.has
	}
	return now, t.putDependents(op.No, op.Run, has, had)
}

// shown is what the row of an operation keeps of what is shown, as column values:
// nothing where its first payment says the same.
type shown struct{ payee, host, resource, asset, amount any }

func (t *Tx) shown(op *Operation, has *dependents) (s shown, err error) {
	none := payment{}
	first := &none
	if len(has.payments) > 0 {
		first = &has.payments[0]
	}
	for _, w := range [...]struct {
		to    *any
		word  string
		first int64
	}{{&s.payee, op.Payee, first.payee}, {&s.host, op.Host, first.host}, {&s.resource, op.Resource, first.resource}, {&s.asset, op.Asset, first.asset}} {
		no, err := t.word(w.word)
		if err != nil {
			return s, err
		}
		if n, _ := no.(int64); n != w.first {
			*w.to = n
		}
	}
	switch {
	case op.Amount == first.amount:
	case op.Amount == "":
		s.amount = ""
	default:
		s.amount = stored(op.Amount)
	}
	return s, nil
}

// putNames makes the name rows and counts of an operation what they are to be.
func (t *Tx) putNames(now, old *Stored) error {
	if old == nil {
		t.sums.count(now, 1)
	} else if old.names != now.names || old.Class != now.Class || old.blind != now.blind {
		t.sums.count(old, -1)
		t.sums.count(now, 1)
	}
	if t.deferred != nil {
		return nil // Filled makes the rows
	}
	if old != nil {
		if old.names == now.names && old.Class == now.Class && bytes.Equal(old.Last, now.Last) {
			return nil
		}
		if old.names == now.names {
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
			if err := t.put(q, no); err != nil {
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
			if err := t.put("INSERT INTO candidates (run_no, claim_until, op_no, n) VALUES (?,?,?,?)", run, c.Until, no, int64(c.N)); err != nil {
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
	return t.put(query, no)
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
	err := t.one(query, []any{op}, &run)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return run, err
}
