package store

import (
	"bytes"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/settlewatch/settlewatch/migrations"
)

// Schema is the version of the index's schema.
func Schema() int64 { return migrations.Schema }

// Stat is what one stat call says of a run file. A start reads one for each
// run, so it is kept as one value.
type Stat struct {
	Dev, Ino, Size, MtimeNs, CtimeNs, Nlink int64
}

func (s *Stat) fields() [6]*int64 {
	return [...]*int64{&s.Dev, &s.Ino, &s.Size, &s.MtimeNs, &s.CtimeNs, &s.Nlink}
}

// Value is the stored form: six little-endian integers.
func (s Stat) Value() (driver.Value, error) {
	b := make([]byte, 0, 48)
	for _, f := range s.fields() {
		b = binary.LittleEndian.AppendUint64(b, uint64(*f))
	}
	return b, nil
}

// Scan reads the stored form.
func (s *Stat) Scan(v any) error {
	b, _ := v.([]byte)
	if len(b) != 48 {
		return fmt.Errorf("%w: what stat said takes 48 bytes, not %d", ErrUnusable, len(b))
	}
	for i, f := range s.fields() {
		*f = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return nil
}

// Type is a pair of event type and role; Shape is the ascending list of the
// type numbers an operation has shown.
type Type struct {
	EventType string
	Role      string
	HasRole   bool
}

// Span is where one event's line lies in its run file, and its type.
type Span struct {
	Offset, Length, Type int64
}

// AppendSpan encodes s behind the spans in dst, the last of which ended at
// the offset `after`.
func AppendSpan(dst []byte, s Span, after int64) []byte {
	dst = binary.AppendUvarint(dst, uint64(s.Offset-after))
	dst = binary.AppendUvarint(dst, uint64(s.Length))
	return binary.AppendUvarint(dst, uint64(s.Type))
}

// Spans decodes what AppendSpan encoded. A damaged blob gives ok false.
func Spans(b []byte) (spans []Span, ok bool) {
	var after int64
	for len(b) > 0 {
		var v [3]uint64
		for i := range v {
			value, n := binary.Uvarint(b)
			if n <= 0 {
				return spans, false
			}
			v[i], b = value, b[n:]
		}
		s := Span{Offset: after + int64(v[0]), Length: int64(v[1]), Type: int64(v[2])}
		if s.Offset < after || s.Length < 0 {
			return spans, false
		}
		after = s.Offset + s.Length
		spans = append(spans, s)
	}
	return spans, true
}

// endOfSpans is the offset at which the last span ends, 0 when there is none.
func endOfSpans(b []byte) (end int64) {
	for i := 0; len(b) > 0; i++ {
		value, n := binary.Uvarint(b)
		if n <= 0 {
			return end
		}
		if i%3 < 2 { // the offset from the end before, the length
			end += int64(value)
		}
		b = b[n:]
	}
	return end
}

// Operation is a row of operations with its words spelled out.
type Operation struct {
	No, Run      int64
	Key          []byte  // sortable id; empty is the null operation
	Shape        []int64 // ascending type numbers
	Settlement   int
	Last         []byte // sortable time of the last event
	Events       int64
	Spans        []byte
	CRC          uint32
	Side         int
	Payee, Host  string
	Resource     string
	Asset        string
	Amount       string // atomic units; "" unknown
	PendingUntil int64  // unix milliseconds; 0 where it does not apply
	Blind        string
	NoHook       bool     // paid in a session that cannot witness settlements
	Names        []string // every payee and host it carries
	Payments     []Payment
	Answers      []Answer
	Candidates   []Candidate
	Hashes       []string // transaction hashes a link may need
}

// Payment is a row of payments. Flags are payment.Flag...
type Payment struct {
	N                            int
	Payee, Host, Resource, Asset string
	Amount, Settled              string
	At                           int64
	HasAt                        bool
	Flags                        int
}

// Answer is an answer without a payment in its own operation.
type Answer struct {
	N     int
	AtKey []byte // its time, sortable
}

func (a Answer) equal(b Answer) bool { return a.N == b.N && bytes.Equal(a.AtKey, b.AtKey) }

// Candidate is a payment without an answer in its own operation.
type Candidate struct {
	N     int
	Until int64 // the last instant an answer can claim it
}

// Link says that answer N of operation Op belongs to payment M of operation
// Other. A negative number of an operation is a stray's.
type Link struct {
	Op    int64  `db:"op_no"`
	N     int    `db:"n"`
	Other int64  `db:"other"`
	M     int    `db:"m"`
	AtKey []byte `db:"at_key"`
	ByTx  bool   `db:"by_tx"`
}

// Stray is an answer in no operation.
type Stray struct {
	No     int64  `db:"stray_no"`
	Run    int64  `db:"run_no"`
	Offset int64  `db:"offset"`
	Length int64  `db:"length"`
	CRC    uint32 `db:"crc"`
}

// Fault is a row of faults.
type Fault struct {
	Line   int64  `db:"line"`
	Offset int64  `db:"offset"`
	Reason string `db:"reason"`
}

// keyHash is what operations are found by within a run; keys of one hash are
// told apart by themselves.
func keyHash(key []byte) int32 { return int32(crc32.ChecksumIEEE(key)) }

// shapeKey is the stored form of a shape.
func shapeKey(shape []int64) []byte {
	b := make([]byte, 0, 2*len(shape))
	for _, t := range shape {
		b = binary.AppendUvarint(b, uint64(t))
	}
	return b
}

func shapeFromKey(b []byte) []int64 {
	var shape []int64
	for len(b) > 0 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return shape
		}
		shape = append(shape, int64(v))
		b = b[n:]
	}
	return shape
}
