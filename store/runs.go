package store

import (
	"bytes"
	"context"
	"database/sql/driver"
	"fmt"
)

// Run is a row of runs. Ids and keys are in sortable form
// (jsjson.SortKey); offsets are bytes.
type Run struct {
	No         int64
	File       []byte
	FileKey    []byte
	Key        []byte
	Epoch      int64
	Stat       Stat
	Covered    int64
	CRC        int64
	HeadCRC    int64
	TailCRC    int64
	Lines      int64
	Events     int64
	Operations int64
	Answers    int64
	Faults     int64
	EntryFault *string
	Session    string
	Torn       int64 // 0: ends in a newline; else the owner's word for what is there
	Unverified bool
	Twin       bool  // another file has the same id; kept by the store
	Rev        int64 // transaction that last changed it; set by the store

	was Totals // what its row adds to the totals of the index
}

// totals is what a run adds to the totals of the index.
func (r *Run) totals() Totals {
	return Totals{Runs: 1, Operations: r.Operations, Events: r.Events, Faults: r.Faults, Bytes: r.Covered}
}

// Begin makes r a run of which nothing is known yet, in its next epoch.
func (r *Run) Begin() {
	*r = Run{No: r.No, File: r.File, FileKey: r.FileKey, Key: r.Key, Epoch: r.Epoch + 1, was: r.was}
}

const runColumns = `run_no, file, file_key, run_key, epoch, stat, covered, crc, head_crc, tail_crc,
	lines, events, operations, answers, faults, entry_fault, session, torn, twin, unverified, rev`

func runFrom(row []driver.Value) (r Run, err error) {
	key := func(i int) []byte {
		b, _ := row[i].([]byte)
		return bytes.Clone(b)
	}
	r = Run{No: integer(row[0]), File: key(1), FileKey: key(2), Key: key(3), Epoch: integer(row[4]), Covered: integer(row[6]), CRC: integer(row[7]),
		HeadCRC: integer(row[8]), TailCRC: integer(row[9]), Lines: integer(row[10]), Events: integer(row[11]), Operations: integer(row[12]),
		Answers: integer(row[13]), Faults: integer(row[14]), Torn: integer(row[17]), Twin: integer(row[18]) != 0, Unverified: integer(row[19]) != 0, Rev: integer(row[20])}
	if fault, ok := row[15].(string); ok {
		r.EntryFault = &fault
	}
	r.Session, _ = row[16].(string)
	r.was = r.totals()
	return r, r.Stat.Scan(row[5])
}

// runs gives the runs that the rest of a query, behind FROM runs, names.
func (s *session) runs(ctx context.Context, rest string, args ...any) (runs []Run, err error) {
	err = s.scan(ctx, "SELECT "+runColumns+" FROM runs "+rest, args, func(row []driver.Value) error {
		r, err := runFrom(row)
		runs = append(runs, r)
		return err
	})
	return runs, err
}

// oneRun finds a run; nil when there is none.
func (s *session) oneRun(ctx context.Context, where string, arg any) (*Run, error) {
	runs, err := s.runs(ctx, "WHERE "+where, arg)
	if err != nil || len(runs) == 0 {
		return nil, err
	}
	return &runs[0], nil
}

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
	t.gone = t.rev
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
