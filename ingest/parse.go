package ingest

import (
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/ingest/event"
	"github.com/settlewatch/settlewatch/internal/safefile"
	"github.com/settlewatch/settlewatch/store"
)

const (
	// A batch ends after this much of a file, so that memory does not grow
	// with the file: whichever comes first.
	batchBytes      = 1 << 20
	batchOperations = 1024

	// keptFaults bounds the fault rows of one run, which are those of its first
	// faults and of the newest; all of them are counted.
	keptFaults = 1000

	// maxTypes bounds the types a parser remembers from one batch to the next.
	maxTypes = 1024

	// blockSize is what the head and tail checksums of a run cover.
	blockSize = 4096
)

// span is where one event's line lies, before its type has a number.
type span struct {
	offset int64
	length int32
	typ    int32 // index into the parser's types
	crc    uint32
}

// delta is what a batch adds to one operation.
type delta struct {
	key    string // sortable id; empty is the null operation
	last   []byte // greatest occurred_at text
	spans  []span
	facts  payment.State
	op     store.Operation // what the operation is if nothing of it came before
	sum    payment.Summary
	noHook bool // a payment was made in a session that is blind
}

// stray is an answer in no operation (trace contract, section 12.8).
type stray struct {
	span
	fact payment.Fact
}

// batch is a stretch of one run file, parsed and folded, ready to be applied
// in a transaction. It applies only where the index covers the run up to
// exactly `from`.
type batch struct {
	file  string
	info  safefile.Info
	run   int64 // run number the scan started from; 0 for a new run
	epoch int64 // epoch the scan started from
	reset bool  // of a scan from the start of a run known before
	fresh bool  // this scan began at offset 0: operations not met in it do not exist
	last  bool

	from, to   int64
	crc        uint32 // of [0, to)
	head, tail uint32
	lines      int64 // complete lines in the stretch
	events     int64
	faults     []store.Fault // line numbers count from the start of the stretch
	faultCount int64
	torn       int64  // what stands after the last newline
	session    string // attestation state at the end
	types      []store.Type
	order      []*delta
	strays     []stray
	entryFault string // the entry cannot be read: nothing else is set
	unverified bool   // the covered bytes were not all compared
	gone       bool   // the entry is no longer there: nothing else is set
}

// parser turns the lines of run files into batches. One goroutine owns it.
type parser struct {
	doc     jsjson.Doc
	intern  payment.Interner
	types   []store.Type
	typeNos map[string]int32
	ops     map[string]*delta // of the batch at hand, by key
	scratch []byte
	buf     []byte
}

func newParser() *parser {
	return &parser{typeNos: map[string]int32{}, ops: map[string]*delta{}}
}

// scan reads a run from (from, crc, session) up to limit and gives its batches
// to emit, the last of which has last set.
func (p *parser) scan(f *os.File, first batch, crc uint32, session string, limit int64, emit func(*batch) error) error {
	r := newLineReader(f, first.from, limit, crc, p.buf)
	defer func() { p.buf = r.buf }()
	next := first
	attested := parseSession(session)
	for {
		b := next
		if len(p.types) > maxTypes {
			p.types, p.typeNos = nil, map[string]int32{}
		}
		var err error
		for err == nil && r.covered-b.from < batchBytes && len(b.order)+len(b.strays) < batchOperations {
			var line []byte
			var offset int64
			var tooLong bool
			if line, offset, tooLong, err = r.line(); err == nil {
				b.lines++
				p.take(&b, line, offset, tooLong, attested)
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return readError{err}
		}
		b.last = err != nil
		b.to, b.crc = r.covered, r.crc
		if b.last && r.covered < limit {
			b.torn = p.tail(r)
		}
		b.session = attested.String()
		b.types = p.types
		if b.head, b.tail, err = blockChecksums(f, b.to); err != nil {
			return readError{err}
		}
		for _, d := range b.order {
			d.finish()
		}
		clear(p.ops)
		if err := emit(&b); err != nil || b.last {
			return err
		}
		next = first
		next.from = b.to
	}
}

// What stands after the last newline of a run.
const (
	tornPart  = 1 // part of a line
	tornWhole = 2 // a whole object that lacks nothing but its newline
)

func (p *parser) tail(r *lineReader) int64 {
	if p.doc.Parse(r.buf[r.start:r.end]) == nil && p.doc.Root().Kind() == jsjson.Object {
		return tornWhole
	}
	return tornPart
}

// finish works out what does not depend on the index, ahead of the write lock.
func (d *delta) finish() {
	d.op = store.Operation{Key: []byte(d.key), Last: timeKey(d.last), Events: int64(len(d.spans)), NoHook: d.noHook}
	d.facts.SummaryInto(&d.sum, payment.Outside{NoResponseHook: d.noHook})
	complete(&d.op, &d.sum, &d.sum)
}

// maxTimeKey bounds the key of a time. A time is text of any length, but what
// is longer than this is no time; such texts are ordered by their beginnings.
const maxTimeKey = 64

func timeKey(at []byte) []byte {
	key := event.AppendTimeKey(nil, at)
	if len(key) <= maxTimeKey {
		return key
	}
	cut := maxTimeKey
	for key[cut]&0xC0 == 0x80 {
		cut-- // not inside a character
	}
	return slices.Clip(key[:cut])
}

// take folds one complete line into the batch.
func (p *parser) take(b *batch, line []byte, offset int64, tooLong bool, attested session) {
	fault := event.FaultTooLong
	var e event.Event
	var fact payment.Fact
	var money bool
	if !tooLong {
		if jsjson.Blank(line) {
			return
		}
		e, fact, money, fault = payment.Read(&p.doc, line, &p.intern)
	}
	if fault != "" {
		b.faultCount++
		if len(b.faults) == keptFaults {
			b.faults = b.faults[:keptFaults-1]
		}
		b.faults = append(b.faults, store.Fault{Line: b.lines, Offset: offset, Reason: string(fault)})
		return
	}
	b.events++
	if e.Op == event.NoOperation {
		if kind, blind, ok := payment.Attestation(e); ok {
			attested.set(kind, blind)
		} else if money && fact.Side() == payment.Client {
			b.strays = append(b.strays, stray{span{offset: offset, length: int32(len(line)), crc: crc32.Checksum(line, castagnoli)}, fact})
		}
		return
	}
	p.scratch = p.scratch[:0]
	if e.Op == event.TextOperation {
		p.scratch = jsjson.SortKey(p.scratch, e.OpID)
	}
	d := p.ops[string(p.scratch)]
	if d == nil {
		d = &delta{key: string(p.scratch), spans: make([]span, 0, 10)}
		d.last = append(make([]byte, 0, 24), e.At...)
		p.ops[d.key] = d
		b.order = append(b.order, d)
	} else if jsjson.Compare(e.At, d.last) > 0 {
		d.last = append(d.last[:0], e.At...)
	}
	d.spans = append(d.spans, span{offset: offset, length: int32(len(line)), typ: p.typeOf(e), crc: crc32.Checksum(line, castagnoli)})
	if money {
		if k := fact.Kind(); (k == payment.Submitted || k == payment.Requested) && attested.blind() {
			d.noHook = true
		}
		d.facts.Add(fact)
	}
}

func (p *parser) typeOf(e event.Event) int32 {
	p.scratch = append(append(p.scratch[:0], e.Type...), 0)
	if e.HasRole {
		p.scratch = append(append(p.scratch, 1), e.Role...)
	}
	if n, ok := p.typeNos[string(p.scratch)]; ok {
		return n
	}
	n := int32(len(p.types))
	p.typeNos[string(p.scratch)] = n
	p.types = append(p.types, store.Type{EventType: string(e.Type), Role: string(e.Role), HasRole: e.HasRole})
	return n
}

// blockChecksums are the checksums of the first and the last block of [0, to).
func blockChecksums(f io.ReaderAt, to int64) (head, tail uint32, err error) {
	var block [blockSize]byte
	if head, _, err = checksum(f, 0, min(to, blockSize), block[:]); err != nil {
		return 0, 0, err
	}
	tail, _, err = checksum(f, max(0, to-blockSize), to, block[:])
	return head, tail, err
}

// session is the attestation state of a run at some offset: the kinds of
// attached clients whose last attestation says that no settlement can ever be
// witnessed (trace contract, section 12.9).
type session map[string]bool

func parseSession(text string) session {
	s := session{}
	var kinds []string
	if json.Unmarshal([]byte(text), &kinds) == nil {
		for _, kind := range kinds {
			s[kind] = true
		}
	}
	return s
}

// String is what the index keeps, the same for the same kinds.
func (s session) String() string {
	if len(s) == 0 {
		return ""
	}
	text, _ := json.Marshal(slices.Sorted(maps.Keys(s))) // texts: it cannot fail
	return string(text)
}

// maxKinds bounds the blind kinds kept of one run; what lies beyond it calls
// nothing blind, which is the stricter reading.
const maxKinds = 32

func (s session) set(kind string, blind bool) {
	switch {
	case !blind:
		delete(s, kind)
	case s[kind] || len(s) < maxKinds:
		s[kind] = true
	}
}

func (s session) blind() bool { return len(s) > 0 }
