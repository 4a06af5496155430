package ingest

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"hash/maphash"
	"io"
	"io/fs"
	"slices"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/ingest/event"
	"github.com/settlewatch/settlewatch/internal/safefile"
	"github.com/settlewatch/settlewatch/store"
)

// keptOperations is how many operations lately written are held in memory, so
// that the next event of one costs no read of the events before it.
const keptOperations = 1024

// applier writes batches into one index. Whoever holds the Indexer's turn owns
// it. What it remembers between transactions is only ever a copy of what the
// index and the files say, and is dropped when another writer was there.
type applier struct {
	ix         *store.Index
	generation int64
	rev        int64 // of the last transaction this process made
	gone       int64 // the last transaction that removed a run, as far as this process knows
	kept       *simplelru.LRU[opID, *keptOp]
	byNo       map[int64]opID // of the kept ones
	run        *store.Run     // as last written; nil where that is not known
	strays     *simplelru.LRU[int64, *keptOp]
	common     map[string]bool            // hashes that very many operations name, and that link nothing
	fresh      map[int64]map[uint64]int64 // run scanned from its start -> hash of key -> operation
	seed       maphash.Seed
	source     sourceReader
	suspect    func(file string) // notes a run whose bytes have changed
}

type opID struct {
	run int64
	key string
}

// keptOp is an operation as last written, or a stray, with its facts.
type keptOp struct {
	run    int64
	stored *store.Stored
	stray  *store.Stray // instead of stored
	state  *payment.State
	own    *payment.Summary // of state alone, worked out when a link needs it
	after  int64            // end of its last span
	noHook bool
	linked bool // it has links
}

func newApplier(x *Indexer) *applier {
	a := &applier{seed: maphash.MakeSeed(), source: sourceReader{open: x.openEvents}, suspect: func(file string) { x.suspects.Store(file, true) }}
	a.kept, _ = simplelru.NewLRU(keptOperations, func(_ opID, k *keptOp) { delete(a.byNo, k.stored.No) })
	a.strays, _ = simplelru.NewLRU[int64, *keptOp](keptOperations, nil)
	a.forget()
	return a
}

func (a *applier) reset(ix *store.Index) {
	a.ix = ix
	a.forget()
}

func (a *applier) forget() {
	a.rev = -1
	a.kept.Purge()
	a.strays.Purge()
	a.byNo, a.run, a.common = map[int64]opID{}, nil, map[string]bool{}
	a.fresh = map[int64]map[uint64]int64{}
}

// enter is called at the start of every transaction. What is remembered of
// operations is good for as long as nobody else has written: a link may touch
// an operation of any run.
func (a *applier) enter(tx *store.Tx) {
	if g := tx.Generation(); g != a.generation {
		a.forget()
		a.generation = g
	}
	if tx.Rev() != a.rev+1 {
		a.kept.Purge()
		a.strays.Purge()
		a.run = nil
		clear(a.common)
	}
	a.rev = tx.Rev()
}

// batch applies one batch inside tx.
func (a *applier) batch(tx *store.Tx, b *batch) error {
	run, err := a.runOf(tx, b.file)
	if err != nil {
		return err
	}
	if b.gone {
		if run == nil {
			return nil
		}
		return a.drop(tx, run)
	}
	if run == nil {
		if b.run != 0 || b.from != 0 {
			return errStale
		}
		run = &store.Run{File: []byte(b.file)}
		run.Key, run.FileKey = fileID(b.file)
		if err := tx.PutRun(run); err != nil {
			return err
		}
	}
	if err := a.begin(tx, b, run); err != nil {
		return err
	}
	run.Stat = statOf(b.info)
	if !b.last {
		run.Stat.Size = b.to // so that an interrupted scan is taken up again
	}
	run.Unverified = b.unverified
	if b.entryFault != "" {
		run.EntryFault = &b.entryFault
		run.Faults = 1
		if err := tx.PutFault(run.No, store.Fault{Reason: string(event.FaultEntry) + ": " + b.entryFault}); err != nil {
			return err
		}
		return a.end(tx, b, run)
	}

	if err := a.faults(tx, b, run); err != nil {
		return err
	}
	run.Covered, run.CRC = b.to, int64(b.crc)
	run.HeadCRC, run.TailCRC = int64(b.head), int64(b.tail)
	run.Lines += b.lines
	run.Events += b.events
	run.Session, run.Torn = b.session, b.torn

	types, err := typeNumbers(tx, b.types)
	if err != nil {
		return err
	}
	links := newLinkWork(a, tx, run.No)
	for _, d := range b.order {
		if err := a.operation(tx, b, run, d, types, links); err != nil {
			return err
		}
	}
	for i := range b.strays {
		if err := a.stray(tx, run, &b.strays[i], links); err != nil {
			return err
		}
	}
	if err := links.settle(run.Answers > 0); err != nil {
		return err
	}
	return a.end(tx, b, run)
}

// runOf finds the run of a file; nil when there is none.
func (a *applier) runOf(tx *store.Tx, file string) (*store.Run, error) {
	run := a.run
	if a.run = nil; run != nil && string(run.File) == file {
		return run, nil
	}
	return tx.Run([]byte(file))
}

// faults keeps the first faults of a run and the newest one.
func (a *applier) faults(tx *store.Tx, b *batch, run *store.Run) error {
	total := run.Faults + b.faultCount
	for i, f := range b.faults {
		f.Line += run.Lines
		newest := i == len(b.faults)-1
		switch at := run.Faults + int64(i); {
		case at < keptFaults-1 || newest && total <= keptFaults:
		case newest:
			if run.Faults >= keptFaults {
				if err := tx.DropNewestFault(run.No); err != nil {
					return err
				}
			}
		default:
			continue
		}
		if err := tx.PutFault(run.No, f); err != nil {
			return err
		}
	}
	run.Faults = total
	return nil
}

// begin checks that the batch continues just where the index is, and clears
// what a run indexed again held before.
func (a *applier) begin(tx *store.Tx, b *batch, run *store.Run) error {
	switch {
	case b.entryFault != "":
		return a.clear(tx, run) // whatever was read of it before
	case b.reset && b.from == 0:
		if run.Epoch != b.epoch {
			return errStale
		}
		return a.clear(tx, run)
	case b.reset:
		if run.Covered != b.from || run.Epoch != b.epoch+1 {
			return errStale
		}
	case run.Covered != b.from || run.Epoch != b.epoch || run.EntryFault != nil:
		return errStale
	}
	return nil
}

func (a *applier) clear(tx *store.Tx, run *store.Run) error {
	links := newLinkWork(a, tx, run.No)
	if err := links.leave(); err != nil {
		return err
	}
	if err := tx.ClearRun(run.No); err != nil {
		return err
	}
	a.forgetRun(run.No)
	run.Begin()
	return links.settle(false)
}

func (a *applier) drop(tx *store.Tx, run *store.Run) error {
	links := newLinkWork(a, tx, run.No)
	if err := links.leave(); err != nil {
		return err
	}
	a.forgetRun(run.No)
	known := tx.Gone() == a.gone
	if err := tx.DropRun(run.No); err != nil {
		return err
	}
	if known {
		a.gone = tx.Gone()
	}
	return links.settle(false)
}

func (a *applier) end(tx *store.Tx, b *batch, run *store.Run) error {
	if b.last {
		delete(a.fresh, run.No)
	}
	if err := tx.PutRun(run); err != nil {
		return err
	}
	a.run = run
	return nil
}

func (a *applier) forgetRun(run int64) {
	delete(a.fresh, run)
	for _, id := range a.kept.Keys() {
		if id.run == run {
			a.kept.Remove(id)
		}
	}
	a.strays.Purge()
}

func typeNumbers(tx *store.Tx, types []store.Type) ([]int64, error) {
	numbers := make([]int64, len(types))
	for i, t := range types {
		var err error
		if numbers[i], err = tx.Type(t); err != nil {
			return nil, err
		}
	}
	return numbers, nil
}

// find gives the operation a delta belongs to, nil where it is new.
func (a *applier) find(tx *store.Tx, b *batch, run *store.Run, key string) (*keptOp, error) {
	id := opID{run.No, key}
	if k, ok := a.kept.Get(id); ok {
		return k, nil
	}
	var s *store.Stored
	var err error
	known := a.fresh[run.No]
	if b.fresh && known != nil {
		// Every operation of this run was written by this scan.
		no, ok := known[maphash.String(a.seed, key)]
		if !ok {
			return nil, nil
		}
		if s, err = tx.OperationByNumber(no); err != nil {
			return nil, err
		}
		if s != nil && string(s.Key) != key {
			s = nil // two keys of one hash
		}
	} else if b.fresh && b.from == 0 {
		return nil, nil
	}
	if s == nil {
		if s, err = tx.Operation(run.No, []byte(key)); s == nil || err != nil {
			return nil, err
		}
	}
	return a.load(tx, run, s)
}

// load reads the lines of an operation again to have its facts.
func (a *applier) load(tx *store.Tx, run *store.Run, s *store.Stored) (*keptOp, error) {
	spans, ok := store.Spans(s.Spans)
	if !ok || len(spans) == 0 {
		return nil, unsound("spans of operation %d", s.No)
	}
	lines, err := a.read(run, spans, s.CRC)
	if err != nil {
		return nil, err
	}
	k := &keptOp{run: run.No, stored: s, noHook: s.NoHook, state: &payment.State{}, after: spans[len(spans)-1].Offset + spans[len(spans)-1].Length}
	var doc jsjson.Doc
	var intern payment.Interner
	for _, line := range lines {
		e, fault := event.Decode(&doc, line)
		if fault != "" {
			return nil, unsound("operation %d has a line that is no event", s.No) // the checksum says these are the lines
		}
		if fact, ok := payment.Project(e, &intern); ok {
			k.state.Add(fact)
		}
	}
	from, err := tx.LinksFrom(s.No)
	if err != nil {
		return nil, err
	}
	to, err := tx.LinksTo(s.No)
	if err != nil {
		return nil, err
	}
	k.linked = len(from) > 0 || len(to) > 0
	a.keep(k)
	return k, nil
}

func (a *applier) keep(k *keptOp) {
	id := opID{k.run, string(k.stored.Key)}
	a.kept.Add(id, k)
	a.byNo[k.stored.No] = id
}

// read reads lines of a run again. Where they are no longer what was indexed
// the run is noted: it is indexed again from its start in the next pass, and
// this one does not count.
func (a *applier) read(run *store.Run, spans []store.Span, crc uint32) ([][]byte, error) {
	lines, err := a.source.lines(string(run.File), spans, crc)
	if errors.Is(err, errChanged) {
		a.suspect(string(run.File))
	}
	return lines, err
}

// operation folds one delta into the index.
func (a *applier) operation(tx *store.Tx, b *batch, run *store.Run, d *delta, types []int64, links *linkWork) error {
	k, err := a.find(tx, b, run, d.key)
	if err != nil {
		return err
	}
	op, s, old := &d.op, &d.sum, (*store.Stored)(nil)
	op.Run = run.No
	isNew := k == nil
	if isNew {
		state := d.facts // not the delta with it
		k = &keptOp{run: run.No, state: &state, noHook: d.noHook}
	} else {
		old = k.stored
		op.Events += old.Events
		if timeTextLess(op.Last, old.Last) {
			op.Last = old.Last
		}
		op.Spans, op.CRC, op.Shape = slices.Clip(old.Spans), old.CRC, old.Shape()
		op.NoHook = op.NoHook || old.NoHook
		if s, err = a.merge(tx, run, k, d, op, links); err != nil {
			return err
		}
	}
	for _, sp := range d.spans {
		typ := types[sp.typ]
		op.Spans = store.AppendSpan(op.Spans, store.Span{Offset: sp.offset, Length: int64(sp.length), Type: typ}, k.after)
		k.after = sp.offset + int64(sp.length)
		op.CRC = lineSum(op.CRC, sp.crc)
		if i, found := slices.BinarySearch(op.Shape, typ); !found {
			op.Shape = slices.Insert(op.Shape, i, typ)
		}
	}
	stored, err := tx.Put(op, old)
	if err != nil {
		return err // what is remembered of k stays whole until it is forgotten
	}
	k.stored = stored
	links.changed(s)
	links.name(op.Hashes)
	run.Answers += int64(len(op.Answers))
	if !isNew {
		run.Answers -= old.Answers
		a.keep(k)
		return nil
	}
	run.Operations++
	if !b.fresh || !b.last || len(op.Answers) > 0 || run.Answers > 0 {
		// Of a run read to its end at once, nothing is likely to go on.
		a.keep(k)
	}
	if b.fresh && !b.last {
		if a.fresh[run.No] == nil {
			a.fresh[run.No] = map[uint64]int64{}
		}
		a.fresh[run.No][maphash.String(a.seed, d.key)] = op.No
	}
	return nil
}

// merge adds a delta's facts to those of an operation already there and
// completes op from both.
func (a *applier) merge(tx *store.Tx, run *store.Run, k *keptOp, d *delta, op *store.Operation, links *linkWork) (*payment.Summary, error) {
	before := k.summary()
	if run.Answers > 0 {
		links.changed(before)
	}
	links.name(hashesOf(before))
	k.noHook, k.own = op.NoHook, nil
	k.state.Merge(&d.facts)
	own := k.summary()
	s := own
	if k.linked {
		if err := a.unlinkMoved(tx, k.stored.No, before, own, links); err != nil {
			return nil, err
		}
		o, err := a.outside(tx, k.stored.No, k)
		if err != nil {
			return nil, err
		}
		with := k.state.Summary(o)
		s = &with
	}
	complete(op, s, own)
	return s, nil
}

// unlinkMoved takes the links of an operation's answers back where these are not the
// ones they were: it has a payment of its own now, or an answer that came later stands
// before others and they are counted anew.
func (a *applier) unlinkMoved(tx *store.Tx, no int64, before, now *payment.Summary, links *linkWork) error {
	if n := len(before.Answers); n <= len(now.Answers) && slices.EqualFunc(before.Answers, now.Answers[:n], func(a, b payment.Answer) bool { return a.Key.Compare(b.Key) == 0 }) {
		return nil
	}
	from, err := tx.LinksFrom(no)
	if err != nil {
		return err
	}
	for _, l := range from {
		if err := tx.DropLink(l.Op, l.N); err != nil {
			return err
		}
		links.refresh[l.Other] = true
	}
	return nil
}

// stray keeps an answer that belongs to no operation.
func (a *applier) stray(tx *store.Tx, run *store.Run, st *stray, links *linkWork) error {
	k := &keptOp{run: run.No, state: &payment.State{}, stray: &store.Stray{Run: run.No, Offset: st.offset, Length: int64(st.length), CRC: st.crc}}
	k.state.Add(st.fact)
	s := k.summary()
	if len(s.Answers) == 0 {
		return nil
	}
	op := &store.Operation{}
	complete(op, s, s)
	if err := tx.PutStray(k.stray, op); err != nil {
		return err
	}
	run.Answers += int64(len(op.Answers))
	a.strays.Add(k.stray.No, k)
	links.changed(s)
	links.name(op.Hashes)
	return nil
}

// timeTextLess compares two time keys as the texts they stand for: the last
// event is by contract order, which compares text, not instants.
func timeTextLess(p, q []byte) bool {
	return jsjson.Compare(event.TimeFromKey(nil, p), event.TimeFromKey(nil, q)) < 0
}

// sourceReader reads the lines behind spans and checks that they are what was
// indexed.
type sourceReader struct {
	open func() (*safefile.Dir, error)
}

// lines reads spans of one run file. It gives errChanged where the bytes are
// not those that were indexed.
func (s sourceReader) lines(file string, spans []store.Span, crc uint32) ([][]byte, error) {
	dir, err := s.open()
	if err != nil {
		return nil, gone(err)
	}
	defer func() { _ = dir.Close() }()
	f, _, err := dir.Open(file)
	if err != nil {
		return nil, gone(err)
	}
	defer func() { _ = f.Close() }()
	var size int64
	for _, sp := range spans {
		size += sp.Length
	}
	buf := make([]byte, size)
	lines := make([][]byte, len(spans))
	var sum uint32
	for i, sp := range spans {
		line := buf[:sp.Length:sp.Length]
		buf = buf[sp.Length:]
		if n, err := f.ReadAt(line, sp.Offset); n < len(line) {
			return nil, gone(err)
		}
		sum = lineSum(sum, crc32.Checksum(line, castagnoli))
		lines[i] = line
	}
	if sum != crc {
		return nil, errChanged
	}
	return lines, nil
}

// lineSum continues an operation's checksum, which is over the checksums of its
// lines in file order, so that it can be continued without reading them again.
func lineSum(sum, line uint32) uint32 {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], line)
	return crc32.Update(sum, castagnoli, b[:])
}

// gone maps the ways a run file can be missing or short to errChanged.
func gone(err error) error {
	var not *safefile.NotRegular
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.As(err, &not) || errors.Is(err, io.EOF) {
		return errChanged
	}
	return err
}
