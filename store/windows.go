package store

import (
	"database/sql/driver"

	pay "github.com/settlewatch/settlewatch/guard/payment"
)

// Window sums up the payments of a stretch of time by what a policy may leave out.
// Each payment is in one of the parts.
type Window struct {
	Plain    Part
	Definite Part // their operations failed for good (trustDefiniteFailures)
	Smaller  Part // of scheme upto, settled for less than authorised (trustSettledAmounts)
}

// Part is the sum of some payments. Sums are exact decimal text; they leave out what
// has no readable amount, and hold what is unreadable for another reason.
type Part struct {
	Payments   int64
	Unreadable int64  // of these: without amount, asset or time, or ambiguous
	Amount     string // authorised; "0" for AnyAsset
	Settled    string // what was taken, where that is less; otherwise the same
}

// Payments is how many payments there are in all.
func (w Window) Payments() int64 { return w.Plain.Payments + w.Definite.Payments + w.Smaller.Payments }

// Window sums up every payment later than `since` (unix milliseconds) in an asset;
// of AnyAsset it counts, and of asset 0 those whose asset is unreadable. Payments
// without a readable time are in every window. It reads hourly sums and the payments
// of one hour, so its cost grows with the window's length and not with what is in it.
func (v *View) Window(asset, since int64) (Window, error) {
	var parts [3]hourSum
	first := hourOf(since)
	err := v.scan(v.ctx, "SELECT part, payments, unreadable, amount, settled FROM hours WHERE asset = ? AND hour > ?", []any{asset, first}, func(row []driver.Value) error {
		part := &parts[integer(row[0])%3]
		part.payments += integer(row[1])
		part.unreadable += integer(row[2])
		if err := part.amount.add(amountOf(row[3]), 1); err != nil {
			return err
		}
		return part.settled.add(amountOf(row[4]), 1)
	})
	if err != nil {
		return Window{}, err
	}
	last := int64(noTime) // of the first hour
	if first < hourOf(noTime) {
		last = (first+1)*hourMillis - 1
	}
	if err := v.scan(v.ctx, "SELECT "+paymentColumns+" FROM payments p INDEXED BY payments_by_time WHERE p.at > ?1 AND p.at <= ?2 AND (?3 = -1 OR p.asset = ?3)",
		[]any{since, last, asset}, func(row []driver.Value) error {
			p := paymentFrom(row)
			if p.flags&pay.FlagRepeat != 0 {
				return nil
			}
			return parts[p.part()].add(&p, asset, 1)
		}); err != nil {
		return Window{}, err
	}
	w := Window{Plain: parts[partPlain].part(), Definite: parts[partDefinite].part(), Smaller: parts[partSmaller].part()}
	w.Smaller.Settled = parts[partSmaller].settled.String()
	return w, nil
}

func (s *hourSum) part() Part {
	amount := s.amount.String()
	return Part{Payments: s.payments, Unreadable: s.unreadable, Amount: amount, Settled: amount}
}
