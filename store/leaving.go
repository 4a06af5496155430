package store

import (
	"database/sql"
	"errors"
	"iter"
	"slices"
)

// Scope says which payments are meant: those that count with one of Names, else
// those for Resource, else all; and of these the ones in Asset, which may be
// AnyAsset.
type Scope struct {
	Names    []int64
	Resource int64
	Asset    int64
}

// AnyAsset stands for all of them; 0 is the asset that could not be read.
const AnyAsset = -1

// Leaving gives the payments of a scope that are later than `since`, oldest first,
// so in the order in which they leave a window, those of one instant as tellApart has it. Those without a readable time never
// do. It reads little more than is taken.
func (v *View) Leaving(s Scope, since int64) iter.Seq2[Paid, error] {
	return func(yield func(Paid, error) bool) {
		next := v.leavingOfAll
		switch {
		case s.Names != nil:
			next = v.leavingOfNames
		case s.Resource != 0:
			next = v.leavingOfResource
		}
		after := since
		for n := 16; ; n = min(4*n, 4096) {
			rows, to, err := next(s, after, n)
			if err == nil {
				rows, err = v.whole(rows)
			}
			if err != nil {
				yield(Paid{}, err)
				return
			}
			for some := n; len(rows) > 0; some *= 4 {
				some = endOfInstant(rows, some)
				if err := v.tellApart(rows[:some], some, 1); err != nil {
					yield(Paid{}, err)
					return
				}
				for _, p := range rows[:some] {
					if !yield(p, nil) {
						return
					}
				}
				rows = rows[some:]
			}
			if to == noTime {
				return
			}
			after = to
		}
	}
}

// endOfInstant is so many of the payments, and the others of the last one's instant.
func endOfInstant(byTime []Paid, n int) int {
	n = min(n, len(byTime))
	for n < len(byTime) && byTime[n].At == byTime[n-1].At {
		n++
	}
	return n
}

// The functions behind Leaving give the payments of a stretch of time from `after`
// on, about n of them, and the instant up to which these are all; noTime at the end.

func (v *View) leavingOfNames(s Scope, after int64, n int) ([]Paid, int64, error) {
	var found []Paid
	to := int64(noTime)
	for _, name := range s.Names {
		for _, index := range [...]string{
			"INDEXED BY payments_by_payee WHERE p.payee = ?4",
			"INDEXED BY payments_by_host WHERE p.host = ?4",
		} {
			rows, upTo, err := v.stretch(index+" AND (?5 = -1 OR p.asset = ?5)", after, n, name, s.Asset)
			if err != nil {
				return nil, 0, err
			}
			found, to = append(found, rows...), min(to, upTo)
		}
	}
	return upTo(found, to), to, nil
}

func (v *View) leavingOfResource(s Scope, after int64, n int) ([]Paid, int64, error) {
	var found []Paid
	to := int64(noTime)
	one := func(asset int64) error {
		for priced := range int64(2) {
			rows, upTo, err := v.stretch("INDEXED BY payments_by_resource WHERE p.resource = ?4 AND p.asset = ?5 AND p.priced = ?6", after, n, s.Resource, asset, priced)
			if err != nil {
				return err
			}
			found, to = append(found, rows...), min(to, upTo)
		}
		return nil
	}
	var err error
	if s.Asset == AnyAsset {
		err = v.eachAsset(s.Resource, one)
	} else {
		err = one(s.Asset)
	}
	return upTo(found, to), to, err
}

// upTo keeps what is not later than an instant.
func upTo(found []Paid, to int64) []Paid {
	return slices.DeleteFunc(found, func(p Paid) bool { return p.At > to })
}

// leavingOfAll goes from one slot that has payments in the asset to the next.
func (v *View) leavingOfAll(s Scope, after int64, _ int) ([]Paid, int64, error) {
	if after == noTime {
		return nil, noTime, nil
	}
	const size = 0 // neither many slots nor many payments in one
	var slot int64
	err := v.one("SELECT slot FROM slots WHERE size = ?1 AND slot >= ?2 AND (?3 = -1 OR asset = ?3) ORDER BY slot LIMIT 1", []any{int64(size), slotOf(after+1, size), s.Asset}, &slot)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, noTime, nil
	}
	if err != nil {
		return nil, 0, err
	}
	from, to := slot*slotSizes[size], lastOfSlot(slot, size)
	found, err := v.payments("SELECT "+paidColumns+" FROM payments p INDEXED BY payments_by_time WHERE p.at > ?1 AND p.at <= ?2 AND (?3 = -1 OR p.asset = ?3)",
		max(after, from-1), min(to, noTime-1), s.Asset)
	return found, to, err
}

// stretch gives the first n payments of a range of an index by time, and the instant
// up to which these are all there are.
func (v *View) stretch(where string, after int64, n int, args ...any) ([]Paid, int64, error) {
	query := "SELECT " + paidColumns + " FROM payments p " + where + " AND p.at > ?1 AND p.at <= ?2 ORDER BY p.at LIMIT ?3"
	rows, err := v.payments(query, append([]any{after, int64(noTime - 1), int64(n)}, args...)...)
	if err != nil || len(rows) < n {
		return rows, noTime, err
	}
	last := rows[n-1].At
	if rows[0].At < last {
		return rows, last - 1, nil // there may be more of the last instant
	}
	rows, err = v.payments(query, append([]any{after, last, int64(-1)}, args...)...)
	return rows, last, err
}
