package store

import (
	"database/sql/driver"
	"strings"
)

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
