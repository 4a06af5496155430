package store

import (
	"cmp"
	"database/sql/driver"
	"slices"
	"strings"

	pay "github.com/settlewatch/settlewatch/guard/payment"
)

// This file holds the questions of people who look at pictures of the past. Each
// reads a bounded number of rows, however long that past is.

// NewestNames gives the names of the newest payments, each payee and host once, the
// newest first. It looks at so many payments.
func (v *View) NewestNames(payments int) ([]Names, error) {
	paid, err := v.newest(payments, noTime-1, func(from, to int64, n int) ([]Paid, error) {
		return v.payments("SELECT "+paidColumns+" FROM payments p INDEXED BY payments_by_time WHERE p.at BETWEEN ? AND ? ORDER BY p.at DESC LIMIT ?", from, to, int64(n))
	}, thePayment)
	if err != nil {
		return nil, err
	}
	var out []Names
	seen := map[Names]bool{}
	for i := range paid {
		p := &paid[i]
		for _, n := range append([]Names{{p.Payee, p.Host}}, p.More...) {
			if !seen[n] {
				seen[n] = true
				out = append(out, n)
			}
		}
	}
	return out, nil
}

// Pace is when a payment was made and when the last event of its operation was.
type Pace struct {
	At   int64 // unix milliseconds
	Last []byte
}

// PaceOf gives the settled ones among the newest payments that carry a name, newest
// first. It looks at so many payments.
func (v *View) PaceOf(name int64, payments int) ([]Pace, error) {
	paid, err := v.newest(payments, noTime-1, v.paidWith([]int64{name}), thePayment)
	if err != nil {
		return nil, err
	}
	paid = slices.DeleteFunc(paid, func(p Paid) bool { return p.Flags&pay.FlagPaired == 0 })
	ops := make([]int64, len(paid))
	for i := range paid {
		ops[i] = paid[i].Op
	}
	last := make(map[int64][]byte, len(ops))
	if err := v.scan(v.ctx, "SELECT o.op_no, o.last_key FROM json_each(?) j CROSS JOIN operations o ON o.op_no = j.value", []any{list(distinct(ops))}, func(row []driver.Value) error {
		key, _ := row[1].([]byte)
		last[integer(row[0])] = slices.Clone(key)
		return nil
	}); err != nil {
		return nil, err
	}
	var out []Pace
	for i := range paid {
		if key, ok := last[paid[i].Op]; ok { // an answer in no operation has no last event
			out = append(out, Pace{paid[i].At, key})
		}
	}
	return out, nil
}

// NewestOf gives the newest payments that carry one of the names, newest first. Those
// without a readable time come before all others.
func (v *View) NewestOf(names []int64, limit int) ([]Paid, error) {
	return v.newest(limit, noTime, v.paidWith(names), thePayment)
}

// paidWith gives the payments that carry one of the names.
func (v *View) paidWith(names []int64) stretchOf {
	return func(from, to int64, n int) ([]Paid, error) {
		var found []Paid
		for _, name := range names {
			for _, column := range [...]string{"payee", "host"} {
				rows, err := v.paidBy(column, name)(from, to, n)
				if err != nil {
					return nil, err
				}
				found = append(found, rows...)
			}
		}
		slices.SortFunc(found, func(a, b Paid) int { return b.compareTime(&a) })
		if n >= 0 {
			found = found[:min(len(found), n)]
		}
		return found, nil
	}
}

// PaidTo is how the payments to a payee at a host ended.
type PaidTo struct {
	Names
	PaidThere
}

// PaidThrough gives the payees of a host, or the hosts a payee was paid at, whichever
// name is: those with the most payments first. It reads so many rows of a kind at most.
// Where there are more, it gives the names of so many of the newest payments.
func (v *View) PaidThrough(name int64, limit int) ([]PaidTo, error) {
	found, all, err := v.paidThrough(name, limit)
	if err == nil && !all {
		found, err = v.paidLately(name, limit)
	}
	if err != nil {
		return nil, err
	}
	numbers := make([]int64, 0, 2*len(found))
	for n := range found {
		numbers = append(numbers, n.Payee, n.Host)
	}
	words, err := v.Words(numbers)
	if err != nil {
		return nil, err
	}
	out := make([]PaidTo, 0, len(found))
	for n, p := range found {
		out = append(out, PaidTo{n, *p})
	}
	slices.SortFunc(out, func(a, b PaidTo) int {
		return cmp.Or(cmp.Compare(b.all(), a.all()), strings.Compare(words[a.Payee], words[b.Payee]), strings.Compare(words[a.Host], words[b.Host]))
	})
	return out, nil
}

// paidThrough gives what PaidThrough does where it is no more than may be read, which
// all tells.
func (v *View) paidThrough(name int64, limit int) (found map[Names]*PaidThere, all bool, err error) {
	found = map[Names]*PaidThere{}
	add := func(n Names, outcome, payments int64) {
		if found[n] == nil {
			found[n] = &PaidThere{}
		}
		found[n].count(outcome, payments)
	}
	rows := 0
	if err := v.scan(v.ctx, "SELECT payee, outcome, payments FROM paid WHERE host = ? AND payee > 0 LIMIT ?", []any{name, int64(limit) + 1}, func(row []driver.Value) error {
		rows++
		add(Names{integer(row[0]), name}, integer(row[1]), integer(row[2]))
		return nil
	}); err != nil || rows > limit {
		return nil, false, err
	}
	// A payee stands in a set of names with each of its hosts.
	var together []int64
	sets := 0
	if err := v.scan(v.ctx, "SELECT s.names FROM name_set_names n CROSS JOIN name_sets s ON s.set_no = n.set_no WHERE n.name = ? LIMIT ?", []any{name, int64(limit) + 1},
		func(row []driver.Value) error {
			sets++
			key, _ := row[0].([]byte)
			together = append(together, shapeFromKey(key)...)
			return nil
		}); err != nil {
		return nil, false, err
	}
	hosts := distinct(together)
	if sets > limit || len(hosts) > limit {
		return nil, false, nil
	}
	err = v.scan(v.ctx, "SELECT p.host, p.outcome, p.payments FROM json_each(?) j CROSS JOIN paid p WHERE p.host = j.value AND p.payee = ?",
		[]any{list(hosts), name}, func(row []driver.Value) error {
			add(Names{name, integer(row[0])}, integer(row[1]), integer(row[2]))
			return nil
		})
	return found, true, err
}

// paidLately is paidThrough for the names of the newest payments.
func (v *View) paidLately(name int64, limit int) (map[Names]*PaidThere, error) {
	newest, err := v.NewestOf([]int64{name}, limit)
	if err != nil {
		return nil, err
	}
	found := map[Names]*PaidThere{}
	for i := range newest {
		p := &newest[i]
		for _, n := range append([]Names{{p.Payee, p.Host}}, p.More...) {
			if found[n] != nil || n.Payee == 0 || n.Host == 0 || n.Payee != name && n.Host != name {
				continue
			}
			_, there, err := v.PaidAt(n.Host, n.Payee)
			if err != nil {
				return nil, err
			}
			found[n] = &there
		}
	}
	return found, nil
}

func (p *PaidThere) all() int64 { return p.Settled + p.Open + p.Failed + p.Ambiguous }

// NewestRuns gives runs from the end of the listing, after so many.
func (v *View) NewestRuns(after, limit int) ([]Run, error) {
	return v.runs(v.ctx, "ORDER BY file_key DESC LIMIT ? OFFSET ?", int64(limit), int64(after))
}

// FaultsOf gives the first faults of a run that are known one by one.
func (v *View) FaultsOf(run int64, limit int) ([]Fault, error) {
	var out []Fault
	err := v.sel(v.ctx, &out, "SELECT line, offset, reason FROM faults WHERE run_no = ? ORDER BY line LIMIT ?", run, limit)
	return out, err
}
