package store

import (
	"bytes"
	"cmp"
	"math"
	"slices"
)

// This file puts payments in an order that two indexes of the same files share. Numbers
// of operations and words depend on the order in which an index was filled, so they
// decide nothing that is shown or cut (design, principle 1).

// compare orders operations by run id and operation id, behind those of a run its
// answers in no operation by their place in the file. Of two files with one run id it
// is the file name that decides.
func (r *OperationRef) compare(s *OperationRef) int {
	return cmp.Or(bytes.Compare(r.Run, s.Run), compareBool(r.Stray, s.Stray), bytes.Compare(r.Op, s.Op), bytes.Compare(r.file, s.file), cmp.Compare(r.offset, s.offset))
}

// TellApart orders payments that come by time, newest first, among those of one instant:
// by run id, operation id and number, the last first. It does so for every instant that
// one of the first `limit` is of, and looks up ids only where several operations share
// one.
func (v *View) TellApart(newest []Paid, limit int) error { return v.tellApart(newest, limit, -1) }

// tellApart is TellApart for payments sorted by compareTime, where sign is 1, or in the
// reverse order, where it is -1.
func (v *View) tellApart(byTime []Paid, limit, sign int) error {
	var shared [][]Paid
	var ops []int64
	for i := 0; i < min(limit, len(byTime)); {
		several := false
		to := i + 1
		for ; to < len(byTime) && byTime[to].at() == byTime[i].at(); to++ {
			several = several || byTime[to].Op != byTime[i].Op
		}
		instant := byTime[i:to]
		i = to
		if !several {
			continue
		}
		shared = append(shared, instant)
		for k := range instant {
			ops = append(ops, instant[k].Op)
		}
	}
	if len(shared) == 0 {
		return nil
	}
	refs, err := v.OperationRefs(ops)
	if err != nil {
		return err
	}
	for _, paid := range shared {
		slices.SortStableFunc(paid, func(a, b Paid) int {
			r, s := refs[a.Op], refs[b.Op]
			return sign * cmp.Or(r.compare(&s), cmp.Compare(a.N, b.N))
		})
	}
	return nil
}

// stretchOf gives the newest n payments from one instant to another, the newest first,
// or all of them where n is negative.
type stretchOf func(from, to int64, n int) ([]Paid, error)

// paidID is a payment, or an operation that was paid.
type paidID struct {
	op int64
	n  int
}

func thePayment(p *Paid) paidID   { return paidID{p.Op, p.N} }
func theOperation(p *Paid) paidID { return paidID{p.Op, 0} }

// newest takes the first so many different ones of what fetch gives up to an instant,
// newest first. Of the last instant that one is taken of it reads all there are.
func (v *View) newest(limit int, to int64, fetch stretchOf, id func(*Paid) paidID) ([]Paid, error) {
	for n := limit + 1; ; n *= 4 { // one more shows that the last one is alone
		rows, err := fetch(math.MinInt64, to, n)
		if err != nil {
			return nil, err
		}
		more := len(rows) >= n
		last := int64(0)
		if more {
			last = rows[len(rows)-1].at()
			rows = slices.DeleteFunc(rows, func(p Paid) bool { return p.at() == last })
		}
		out := different(rows, id)
		if more && len(out) < limit {
			all, err := fetch(last, last, -1)
			if err != nil {
				return nil, err
			}
			if out = different(append(rows, all...), id); len(out) < limit {
				continue
			}
		}
		if err := v.TellApart(out, limit); err != nil {
			return nil, err
		}
		out = out[:min(limit, len(out))]
		return out, v.complement(out)
	}
}

// different gives the newest row of each payment or operation, newest first.
func different(rows []Paid, id func(*Paid) paidID) []Paid {
	slices.SortFunc(rows, func(a, b Paid) int { return cmp.Or(b.compareTime(&a), cmp.Compare(a.Flags, b.Flags)) })
	seen := make(map[paidID]bool, len(rows))
	out := make([]Paid, 0, len(rows))
	for i := range rows {
		if k := id(&rows[i]); !seen[k] {
			seen[k] = true
			out = append(out, rows[i])
		}
	}
	return out
}
