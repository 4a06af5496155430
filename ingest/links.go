package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/ingest/event"
	"github.com/settlewatch/settlewatch/store"
)

// linkWork brings links up to date after operations of one run have changed
// (trace contract, section 12.8). Within a run a link depends only on what lies
// before its answer, so what is done again is everything from the earliest
// change on.
type linkWork struct {
	a       *applier
	tx      *store.Tx
	run     int64
	from    []byte          // time key of the earliest change
	dirty   bool            // there was one
	key     []byte          // scratch
	hashes  map[string]bool // transaction hashes whose operations changed
	refresh map[int64]bool  // operations whose links changed
}

func newLinkWork(a *applier, tx *store.Tx, run int64) *linkWork {
	return &linkWork{a: a, tx: tx, run: run, hashes: map[string]bool{}, refresh: map[int64]bool{}}
}

// changed notes what an operation (or stray) said before a change, and what it
// says after it.
func (w *linkWork) changed(s *payment.Summary) {
	for i := range s.Payments {
		if _, ok := s.Payments[i].Candidate(); ok {
			w.mark(s.Payments[i].Key)
		}
	}
	for i := range s.Answers {
		w.mark(s.Answers[i].Key)
	}
}

func (w *linkWork) mark(k event.Key) {
	w.key = jsjson.SortKey(w.key[:0], k.At)
	if !w.dirty || bytes.Compare(w.key, w.from) < 0 {
		w.dirty, w.from = true, bytes.Clone(w.key)
	}
}

// name notes transaction hashes that operations which changed name, or named before.
func (w *linkWork) name(hashes []string) {
	for _, h := range hashes {
		w.hashes[h] = true
	}
}

// leave notes the operations of other runs that the run, about to be cleared,
// is linked with, and the hashes it stood in the way of: where two runs have a
// payment that an answer may be about, it is linked with neither.
func (w *linkWork) leave() error {
	hashes, err := w.tx.HashesAcross(w.run)
	if err != nil {
		return err
	}
	w.name(hashes)
	links, err := w.tx.LinksAcross(w.run)
	if err != nil {
		return err
	}
	for _, l := range links {
		for _, op := range []int64{l.Op, l.Other} {
			run, err := w.tx.RunOf(op)
			if err != nil {
				return err
			}
			if run != w.run && run != 0 {
				w.refresh[op] = true
			}
		}
	}
	return nil
}

// settle computes the links of everything noted and writes the operations that
// gained or lost one.
func (w *linkWork) settle(answers bool) error {
	if answers && w.dirty {
		if err := w.within(); err != nil {
			return err
		}
	}
	if len(w.hashes) > 0 {
		any, err := w.tx.HasAnswers()
		if err != nil {
			return err
		}
		for h := range w.hashes {
			if !any {
				break
			}
			if err := w.hash(h); err != nil {
				return err
			}
		}
	}
	for op := range w.refresh {
		if err := w.a.rewrite(w.tx, op); err != nil {
			return err
		}
	}
	return nil
}

// within links the answers of the run from the earliest change on. Links of
// earlier answers are kept.
func (w *linkWork) within() error {
	rows, err := w.tx.AnswersFrom(w.run, w.from)
	if err != nil || len(rows) == 0 {
		return err
	}
	answers := make([]payment.LinkAnswer, 0, len(rows))
	earliest := int64(math.MaxInt64)
	var held []store.Member // payments that kept links of the same operations hold
	for i, m := range rows {
		k, err := w.a.need(w.tx, m.Op)
		if err != nil {
			return err
		}
		a := k.answer(m.N)
		if a == nil {
			return unsound("operation %d has no answer %d", m.Op, m.N)
		}
		answers = append(answers, a.Candidate(k.name()))
		if a.AtOK {
			earliest = min(earliest, a.AtMS)
		}
		if i > 0 && rows[i-1].Op == m.Op {
			continue
		}
		links, err := w.tx.LinksFrom(m.Op)
		if err != nil {
			return err
		}
		for _, l := range links {
			if w.kept(l) {
				held = append(held, store.Member{Op: l.Other, N: l.M})
			}
		}
	}
	places, err := w.tx.CandidatesUntil(w.run, earliest)
	if err != nil {
		return err
	}
	for _, m := range held {
		if !slices.Contains(places, m) {
			places = append(places, m)
		}
	}
	payments := make([]payment.LinkPayment, 0, len(places))
	for _, m := range places {
		c, err := w.candidate(m)
		if err != nil {
			return err
		}
		payments = append(payments, c)
	}
	for _, a := range answers {
		if a.Transaction != "" {
			w.hashes[a.Transaction] = true
		}
	}
	return w.setAll(payment.Link(payments, answers), answers, rows, places, false)
}

// kept tells whether a link lies before the earliest change.
func (w *linkWork) kept(l store.Link) bool { return !l.ByTx && bytes.Compare(l.AtKey, w.from) < 0 }

// candidate is a payment as Link looks at it, with the claim a kept link has
// on it.
func (w *linkWork) candidate(m store.Member) (payment.LinkPayment, error) {
	k, err := w.a.need(w.tx, m.Op)
	if err != nil {
		return payment.LinkPayment{}, err
	}
	c, ok := k.payment(m.N)
	if !ok {
		return c, unsound("operation %d has no payment %d", m.Op, m.N)
	}
	links, err := w.tx.LinksTo(m.Op)
	if err != nil {
		return c, err
	}
	for _, l := range links {
		if l.M == m.N && w.kept(l) {
			by, err := w.a.need(w.tx, l.Op)
			if err != nil {
				return c, err
			}
			c.Claimed, c.ClaimedBy = true, by.name()
		}
	}
	return c, nil
}

// hashLimit is how many operations may name one transaction for it to link
// anything. No transaction settles more, and a hash written by thousands says
// nothing about any of them.
const hashLimit = 256

// unlinkHash takes back what a hash linked before too many named it.
func (w *linkWork) unlinkHash(h string) error {
	links, err := w.tx.LinksByHash(h)
	if err != nil {
		return err
	}
	for _, l := range links {
		k, err := w.a.need(w.tx, l.Op)
		if errors.Is(err, errChanged) {
			continue
		}
		if err != nil {
			return err
		}
		if a := k.answer(l.N); a != nil && a.Transaction != h {
			continue // another of its answers, by another hash
		}
		if err := w.tx.DropLink(l.Op, l.N); err != nil {
			return err
		}
		w.refresh[l.Op], w.refresh[l.Other] = true, true
	}
	return nil
}

// hash links answers across runs by one transaction hash.
func (w *linkWork) hash(h string) error {
	ops, err := w.tx.OperationsNaming(h, hashLimit+1)
	if err != nil {
		return err
	}
	if len(ops) > hashLimit {
		// Looking for links costs as much as operations name it, so it is done once.
		if w.a.common[h] {
			return nil
		}
		if len(w.a.common) >= keptOperations {
			clear(w.a.common)
		}
		w.a.common[h] = true
		return w.unlinkHash(h)
	}
	delete(w.a.common, h)
	var answers []payment.LinkAnswer
	var payments []payment.LinkPayment
	var rows, places []store.Member
	for _, op := range ops {
		k, err := w.a.need(w.tx, op)
		if errors.Is(err, errChanged) {
			continue
		}
		if err != nil {
			return err
		}
		run := strconv.FormatInt(k.run, 10)
		s := k.summary()
		linked, err := w.tx.LinksFrom(op)
		if err != nil {
			return err
		}
		for i := range s.Answers {
			if s.Answers[i].Transaction != h || slices.ContainsFunc(linked, func(l store.Link) bool { return l.N == i && !l.ByTx }) {
				continue
			}
			c := s.Answers[i].Candidate(k.name())
			c.Run = run
			answers, rows = append(answers, c), append(rows, store.Member{Op: op, N: i})
		}
		for i := range s.Payments {
			if c, ok := s.Payments[i].Candidate(); ok {
				c.Run, c.Transactions = run, s.Transactions
				payments, places = append(payments, c), append(places, store.Member{Op: op, N: i})
			}
		}
	}
	if len(answers) == 0 {
		return nil
	}
	return w.setAll(payment.LinkByTransaction(payments, answers), answers, rows, places, true)
}

// setAll makes the links of answers, which stand in rows, what they were found to be.
func (w *linkWork) setAll(pairs []payment.Pair, answers []payment.LinkAnswer, rows, places []store.Member, byTx bool) error {
	found := map[store.Member]store.Member{}
	for _, p := range pairs {
		found[rows[p.Answer]] = places[p.Payment]
	}
	for i, m := range rows {
		to, ok := found[m]
		if err := w.set(m, to, ok, byTx, answers[i].Key.At); err != nil {
			return err
		}
	}
	return nil
}

// set makes an answer's link what it was found to be. Links within a run come
// before those by transaction, which are decided after them.
func (w *linkWork) set(from, to store.Member, linked, byTx bool, at []byte) error {
	have, err := w.tx.LinksFrom(from.Op)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(have, func(l store.Link) bool { return l.N == from.N })
	want := store.Link{Op: from.Op, N: from.N, Other: to.Op, M: to.N, AtKey: jsjson.SortKey([]byte{}, at), ByTx: byTx}
	switch {
	case linked && i >= 0 && have[i].Other == want.Other && have[i].M == want.M && have[i].ByTx == byTx:
		return nil
	case linked:
		err = w.tx.PutLink(want)
		w.refresh[to.Op] = true
	case i >= 0 && have[i].ByTx == byTx:
		err = w.tx.DropLink(from.Op, from.N)
	default:
		return nil
	}
	w.refresh[from.Op] = true
	if i >= 0 {
		w.refresh[have[i].Other] = true
	}
	return err
}

// answer is the n-th answer of an operation without a payment.
func (k *keptOp) answer(n int) *payment.Answer {
	s := k.summary()
	if n < 0 || n >= len(s.Answers) {
		return nil
	}
	return &s.Answers[n]
}

func (k *keptOp) payment(n int) (payment.LinkPayment, bool) {
	s := k.summary()
	if n < 0 || n >= len(s.Payments) {
		return payment.LinkPayment{}, false
	}
	return s.Payments[n].Candidate()
}

// summary is what the operation's own events say, links left aside.
func (k *keptOp) summary() *payment.Summary {
	if k.own == nil {
		s := k.state.Summary(payment.Outside{NoResponseHook: k.noHook})
		k.own = &s
	}
	return k.own
}

// name tells operations of a run apart; strays, which belong to none, have
// none.
func (k *keptOp) name() string {
	if k.stray != nil {
		return ""
	}
	return "op" + string(k.stored.Key)
}

// member gives an operation or stray by its number, nil when there is none.
func (a *applier) member(tx *store.Tx, no int64) (*keptOp, error) {
	if no < 0 {
		return a.strayByNumber(tx, -no)
	}
	if id, ok := a.byNo[no]; ok {
		if k, ok := a.kept.Get(id); ok {
			return k, nil
		}
	}
	s, err := tx.OperationByNumber(no)
	if s == nil || err != nil {
		return nil, err
	}
	if k, ok := a.kept.Get(opID{s.Run, string(s.Key)}); ok && k.stored.No == no {
		return k, nil
	}
	run, err := tx.RunByNumber(s.Run)
	if err != nil {
		return nil, err
	}
	if run == nil {
		return nil, unsound("there is no run %d", s.Run)
	}
	return a.load(tx, run, s)
}

// need is member for an operation that a row of the index names.
func (a *applier) need(tx *store.Tx, no int64) (*keptOp, error) {
	k, err := a.member(tx, no)
	if err == nil && k == nil {
		err = unsound("there is no operation %d", no)
	}
	return k, err
}

func (a *applier) strayByNumber(tx *store.Tx, no int64) (*keptOp, error) {
	if k, ok := a.strays.Get(no); ok {
		return k, nil
	}
	s, err := tx.StrayByNumber(no)
	if s == nil || err != nil {
		return nil, err
	}
	run, err := tx.RunByNumber(s.Run)
	if err != nil {
		return nil, err
	}
	if run == nil {
		return nil, unsound("there is no run %d", s.Run)
	}
	lines, err := a.read(run, []store.Span{{Offset: s.Offset, Length: s.Length}}, lineSum(0, s.CRC))
	if err != nil {
		return nil, err
	}
	var doc jsjson.Doc
	e, fault := event.Decode(&doc, lines[0])
	if fault != "" {
		return nil, unsound("stray %d is no event", no)
	}
	k := &keptOp{stray: s, run: s.Run, state: &payment.State{}}
	if fact, ok := payment.Project(e, nil); ok {
		k.state.Add(fact)
	}
	a.strays.Add(no, k)
	return k, nil
}

// outside is what links say of an operation.
func (a *applier) outside(tx *store.Tx, no int64, k *keptOp) (payment.Outside, error) {
	o := payment.Outside{NoResponseHook: k.noHook}
	from, err := tx.LinksFrom(no)
	if err != nil {
		return o, err
	}
	for _, l := range from {
		if own := k.answer(l.N); own != nil {
			o.LinkedAway = append(o.LinkedAway, own.Key)
		}
	}
	to, err := tx.LinksTo(no)
	if err != nil {
		return o, err
	}
	for _, l := range to {
		by, err := a.need(tx, l.Op)
		if errors.Is(err, errChanged) {
			continue
		}
		if err != nil {
			return o, err
		}
		answer := by.answer(l.N)
		if answer == nil {
			return o, unsound("operation %d has no answer %d", l.Op, l.N)
		}
		o.Linked = append(o.Linked, *answer)
	}
	k.linked = len(from) > 0 || len(to) > 0
	return o, nil
}

// unsound says that rows of the index contradict each other.
func unsound(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{store.ErrUnusable}, args...)...)
}

// rewrite writes an operation or stray again whose links have changed.
func (a *applier) rewrite(tx *store.Tx, no int64) error {
	k, err := a.member(tx, no)
	if errors.Is(err, errChanged) {
		return nil // its run is indexed again
	}
	if k == nil || err != nil {
		return err // gone with its run
	}
	o, err := a.outside(tx, no, k)
	if err != nil {
		return err
	}
	s := k.state.Summary(o)
	if k.stray != nil {
		op := &store.Operation{}
		complete(op, &s, k.summary())
		return tx.PutStray(k.stray, op)
	}
	old := k.stored
	op := &store.Operation{Run: old.Run, Key: old.Key, Shape: old.Shape(), Last: old.Last, Events: old.Events,
		Spans: old.Spans, CRC: old.CRC, NoHook: old.NoHook}
	complete(op, &s, k.summary())
	stored, err := tx.Put(op, old)
	if err == nil {
		k.stored = stored
	}
	return err
}
