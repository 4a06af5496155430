package store

import (
	"database/sql/driver"
	"fmt"

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

// Window sums up every payment later than `since` (unix milliseconds) in an asset; of
// AnyAsset it counts. Payments without a readable time are in every window. Beside
// one asset stand those whose asset is unreadable, which may be in it. It reads kept sums
// and the payments of some minutes, so its cost hardly grows with what is in it.
func (v *View) Window(asset, since int64) (w Window, unknown int64, err error) {
	var parts [3]slotSum
	first := [len(slotSizes)]int64{}
	for size := range slotSizes {
		first[size] = slotOf(since, size)
	}
	if err := v.scan(v.ctx, slotsAfter, []any{asset, first[0], first[1], first[2]}, func(row []driver.Value) error {
		switch of := integer(row[0]); {
		case of == asset:
		case asset == AnyAsset:
			return nil // they are counted already
		default:
			unknown += integer(row[2])
			return nil
		}
		part := &parts[integer(row[1])%3]
		part.payments += integer(row[2])
		part.unreadable += integer(row[3])
		if err := part.amount.add(amountOf(row[4]), 1); err != nil {
			return err
		}
		return part.settled.add(amountOf(row[5]), 1)
	}); err != nil {
		return Window{}, 0, err
	}
	if err := v.scan(v.ctx, "SELECT p.asset, p.flags, p.amount, p.settled FROM payments p INDEXED BY payments_by_time WHERE p.at > ?1 AND p.at <= ?2 AND (?3 = -1 OR p.asset IN (?3, 0))",
		[]any{since, lastOfSlot(first[0], 0), asset}, func(row []driver.Value) error {
			p := payment{asset: integer(row[0]), flags: integer(row[1]), amount: amountOf(row[2]), settled: amountOf(row[3])}
			if p.flags&pay.FlagRepeat != 0 {
				return nil
			}
			if asset != AnyAsset && p.asset != asset {
				unknown++
				return nil
			}
			return parts[p.part()].add(&p, asset, 1)
		}); err != nil {
		return Window{}, 0, err
	}
	w = Window{Plain: parts[partPlain].part(), Definite: parts[partDefinite].part(), Smaller: parts[partSmaller].part()}
	w.Smaller.Settled = parts[partSmaller].settled.String()
	return w, unknown, nil
}

// slotsAfter is a query for the slots behind ?2, one of the smallest size, that make
// up all the time there is: small ones up to where ?3 ends, those up to where ?4 ends,
// and large ones from there on.
var slotsAfter = func() string {
	one := func(size int, until string) string {
		return fmt.Sprintf("SELECT asset, part, payments, unreadable, amount, settled FROM slots WHERE asset IN (?1, 0) AND size = %d AND slot > ?%d%s", size, size+2, until)
	}
	return one(0, fmt.Sprintf(" AND slot < (?3 + 1) * %d", slotSizes[1]/slotSizes[0])) +
		" UNION ALL " + one(1, fmt.Sprintf(" AND slot < (?4 + 1) * %d", slotSizes[2]/slotSizes[1])) +
		" UNION ALL " + one(2, "")
}()

// lastOfSlot is the last instant of a slot.
func lastOfSlot(slot int64, size int) int64 {
	if slot < slotOf(noTime, size) {
		return (slot+1)*slotSizes[size] - 1
	}
	return noTime
}

func (s *slotSum) part() Part {
	amount := s.amount.String()
	return Part{Payments: s.payments, Unreadable: s.unreadable, Amount: amount, Settled: amount}
}
