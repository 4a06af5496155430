package store

import (
	"cmp"
	"database/sql/driver"
	"slices"

	pay "github.com/settlewatch/settlewatch/guard/payment"
)

// This file holds the questions of people who look at pictures of the past. Each
// reads a bounded number of rows, however long that past is.

// NewestNames gives the names of the newest payments, each payee and host once, the
// newest first. It looks at so many payments.
func (v *View) NewestNames(payments int) ([]Names, error) {
	var out []Names
	seen := map[Names]bool{}
	err := v.scan(v.ctx, `SELECT p.payee, p.host FROM (SELECT op_no, i FROM payments INDEXED BY payments_by_time WHERE at < ? ORDER BY at DESC LIMIT ?) k
		CROSS JOIN payments p ON p.op_no = k.op_no AND p.i = k.i`, []any{int64(noTime), int64(payments)}, func(row []driver.Value) error {
		n := Names{integer(row[0]), integer(row[1])}
		if !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
		return nil
	})
	return out, err
}

// Pace is when a payment was made and when the last event of its operation was.
type Pace struct {
	At   int64 // unix milliseconds
	Last []byte
}

// PaceOf gives the settled ones among the newest payments that carry a name, newest
// first. It looks at so many payments.
func (v *View) PaceOf(name int64, payments int) ([]Pace, error) {
	var out []Pace
	for _, column := range [...]string{"payee", "host"} {
		if err := v.scan(v.ctx, `SELECT p.at, o.last_key, p.flags FROM (SELECT op_no, i FROM payments INDEXED BY payments_by_`+column+
			` WHERE `+column+` = ? AND at < ? ORDER BY at DESC LIMIT ?) k CROSS JOIN payments p ON p.op_no = k.op_no AND p.i = k.i
			CROSS JOIN operations o ON o.op_no = p.op_no`, []any{name, int64(noTime), int64(payments)}, func(row []driver.Value) error {
			if integer(row[2])&pay.FlagPaired != 0 {
				last, _ := row[1].([]byte)
				out = append(out, Pace{integer(row[0]), slices.Clone(last)})
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(out, func(a, b Pace) int { return cmp.Compare(b.At, a.At) })
	return out[:min(len(out), payments)], nil
}

// NewestOf gives the newest payments that carry one of the names, newest first. Those
// without a readable time come before all others.
func (v *View) NewestOf(names []int64, limit int) ([]Paid, error) {
	return v.newest(limit, func(n int) ([]Paid, error) {
		var found []Paid
		for _, name := range names {
			for _, column := range [...]string{"payee", "host"} {
				rows, err := v.payments("SELECT "+paidColumns+" FROM payments p INDEXED BY payments_by_"+column+" WHERE p."+column+" = ? ORDER BY p.at DESC LIMIT ?",
					name, int64(n))
				if err != nil {
					return nil, err
				}
				found = append(found, rows...)
			}
		}
		slices.SortStableFunc(found, func(a, b Paid) int { return b.compareTime(&a) })
		return found[:min(len(found), n)], nil
	}, func(a, b *Paid) bool { return a.Op == b.Op && a.N == b.N })
}

// PaidTo is how the payments to a payee at a host ended.
type PaidTo struct {
	Names
	PaidThere
}

// PaidThrough gives the payees of a host, or the hosts a payee was paid at: whichever
// name is. It reads so many rows at most.
func (v *View) PaidThrough(name int64, limit int) ([]PaidTo, error) {
	found := map[Names]*PaidTo{}
	add := func(host, payee, outcome, n int64) {
		k := Names{Payee: payee, Host: host}
		if found[k] == nil {
			found[k] = &PaidTo{Names: k}
		}
		found[k].count(outcome, n)
	}
	if err := v.scan(v.ctx, "SELECT payee, outcome, payments FROM paid WHERE host = ? AND payee > 0 LIMIT ?", []any{name, int64(limit)}, func(row []driver.Value) error {
		add(name, integer(row[0]), integer(row[1]), integer(row[2]))
		return nil
	}); err != nil {
		return nil, err
	}
	// A payee stands in a set of names with each of its hosts.
	var together []int64
	if err := v.scan(v.ctx, "SELECT s.names FROM name_set_names n CROSS JOIN name_sets s ON s.set_no = n.set_no WHERE n.name = ? LIMIT ?", []any{name, int64(limit)},
		func(row []driver.Value) error {
			key, _ := row[0].([]byte)
			together = append(together, shapeFromKey(key)...)
			return nil
		}); err != nil {
		return nil, err
	}
	hosts := distinct(together)
	if err := v.scan(v.ctx, "SELECT p.host, p.outcome, p.payments FROM json_each(?) j CROSS JOIN paid p WHERE p.host = j.value AND p.payee = ? LIMIT ?",
		[]any{list(hosts[:min(len(hosts), limit)]), name, int64(limit)}, func(row []driver.Value) error {
			add(integer(row[0]), name, integer(row[1]), integer(row[2]))
			return nil
		}); err != nil {
		return nil, err
	}
	out := make([]PaidTo, 0, len(found))
	for _, p := range found {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b PaidTo) int {
		return cmp.Or(cmp.Compare(b.all(), a.all()), cmp.Compare(a.Payee, b.Payee), cmp.Compare(a.Host, b.Host))
	})
	return out, nil
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
