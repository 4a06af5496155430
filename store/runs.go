package store

import (
	"bytes"
	"context"
	"database/sql/driver"
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
