package store

import (
	"cmp"
	"context"
	"database/sql/driver"
	"maps"
	"slices"

	pay "github.com/settlewatch/settlewatch/guard/payment"
)

// DayState is what became of payments, as far as a sum by day tells it: whether an
// open one is still pending is for the clock to say.
type DayState int

// The states, as they are stored.
const (
	DayOpen    DayState = iota // nothing certain is known
	DaySettled                 // a settlement was reported
	DayFailed                  // the operation failed for good
)

// Day sums up the payments of one day, asset and state.
type Day struct {
	Asset      int64 // 0: unreadable
	Day        int64 // since 1970, UTC
	State      DayState
	Payments   int64
	Unreadable int64  // of these: without amount, asset or time, or ambiguous
	Amount     string // atomic units, of what has a readable amount
}

// Days gives the sums of the days from one on, oldest first. Payments without a
// readable time are of no day and left out.
func (v *View) Days(from int64) ([]Day, error) {
	var out []Day
	err := v.scan(v.ctx, "SELECT asset, day, state, payments, unreadable, amount FROM days WHERE day >= ? AND day < ? ORDER BY day, asset, state",
		[]any{from, dayOf(noTime)}, func(row []driver.Value) error {
			out = append(out, Day{Asset: integer(row[0]), Day: integer(row[1]), State: DayState(integer(row[2])),
				Payments: integer(row[3]), Unreadable: integer(row[4]), Amount: amountOf(row[5])})
			return nil
		})
	return out, err
}

// dayOf is the day since 1970 an instant lies in.
func dayOf(ms int64) int64 { return floorDiv(ms, 86_400_000) }

type dayKey struct{ day, asset, state int64 }

func (k dayKey) compare(o dayKey) int {
	return cmp.Or(cmp.Compare(k.day, o.day), cmp.Compare(k.asset, o.asset), cmp.Compare(k.state, o.state))
}

type daySum struct {
	payments, unreadable int64
	amount               total
}

func (p *payment) dayState() int64 {
	switch {
	case p.flags&pay.FlagPaired != 0:
		return int64(DaySettled)
	case p.flags&pay.FlagDefinite != 0:
		return int64(DayFailed)
	}
	return int64(DayOpen)
}

// spendDay adds a payment to its day, sign times.
func (s *sums) spendDay(p *payment, sign int64) error {
	k := dayKey{dayOf(p.at), p.asset, p.dayState()}
	d := s.days[k]
	if d == nil {
		d = &daySum{}
		s.days[k] = d
	}
	d.payments += sign
	if p.flags&pay.FlagUnreadable != 0 {
		d.unreadable += sign
	}
	return d.amount.add(p.amount, sign)
}

// addDays adds changes to the days and forgets them.
func (t *Tx) addDays(changes map[dayKey]*daySum) error {
	for _, k := range slices.SortedFunc(maps.Keys(changes), dayKey.compare) {
		d := changes[k]
		if d.payments == 0 && d.unreadable == 0 && d.amount.isZero() {
			continue
		}
		if err := t.scan(context.Background(), "SELECT payments, unreadable, amount FROM days WHERE day = ? AND asset = ? AND state = ?",
			[]any{k.day, k.asset, k.state}, func(row []driver.Value) error {
				d.payments += integer(row[0])
				d.unreadable += integer(row[1])
				return d.amount.add(amountOf(row[2]), 1)
			}); err != nil {
			return err
		}
		var err error
		if d.payments == 0 {
			err = t.bulk("DELETE FROM days WHERE day = ? AND asset = ? AND state = ?", values(k.day, k.asset, k.state))
		} else {
			args := values(k.day, k.asset, k.state, d.payments, d.unreadable, 0)
			args[5].Value = stored(d.amount.String())
			err = t.bulk("INSERT OR REPLACE INTO days (day, asset, state, payments, unreadable, amount) VALUES (?, ?, ?, ?, ?, ?)", args)
		}
		if err != nil {
			return err
		}
	}
	clear(changes)
	return nil
}
