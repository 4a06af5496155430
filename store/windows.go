package store

import (
	"cmp"
	"database/sql/driver"
	"fmt"
	"slices"

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
// one asset stand those whose asset is unreadable, which may be in it. It reads kept
// sums and the payments of less than ten minutes inside an index, so its cost hardly
// grows with what is in it.
func (v *View) Window(asset, since int64) (w Window, unknown int64, err error) {
	var of, rest slotSums // in the asset, and in one that cannot be read
	in := func(its int64) *slotSums {
		if its == asset || asset == AnyAsset {
			return &of
		}
		return &rest
	}
	first, second := slotOf(since, 0), slotOf(since, 1)
	if err := v.scan(v.ctx, slotsAfter, []any{asset, first, second}, func(row []driver.Value) error {
		sums, _ := row[0].(string)
		if err := of.addText(sums); err != nil {
			return err
		}
		sums, _ = row[1].(string)
		return rest.addText(sums)
	}); err != nil {
		return Window{}, 0, err
	}
	// What is left of the slot that the window begins in.
	args := []any{lastOfSlot(first, 0), since, asset, int64(noTime)}
	more, err := v.addStanding(&spentUntil, args, &of[partOpen], &of[partFailed])
	if err != nil {
		return Window{}, 0, err
	}
	if more {
		if err := v.scan(v.ctx, spentUntil.others, args, func(row []driver.Value) error {
			p := payment{asset: integer(row[0]), flags: integer(row[1]), amount: amountOf(row[2]), settled: amountOf(row[3])}
			return in(p.asset)[p.part()].add(&p, 1)
		}); err != nil {
			return Window{}, 0, err
		}
	}
	for i := range rest {
		unknown += rest[i].payments
	}
	return of.window(asset), unknown, nil
}

// window gives the parts of a window in an asset.
func (s *slotSums) window(asset int64) Window {
	sum := func(parts ...int) Part {
		var all partSum
		for _, i := range parts {
			all.addSum(&s[i])
		}
		p := Part{Payments: all.payments, Unreadable: all.unreadable, Amount: "0", Settled: "0"}
		if asset != AnyAsset {
			p.Amount = all.amount.String()
			p.Settled = p.Amount
		}
		return p
	}
	w := Window{Plain: sum(partOpen, partSettled), Definite: sum(partFailed, partDisputed), Smaller: sum(partSmaller)}
	if asset != AnyAsset {
		w.Smaller.Settled = s[partSmaller].taken.String()
	}
	return w
}

// spentUntil is about the payments up to ?1 in an asset, or in one that cannot be read.
// Only what less was settled stands in the table alone.
var spentUntil = newSpendingQuery(false, func(place string) string {
	return fmt.Sprintf("SELECT k.asset, k.flags, k.amount, CASE WHEN k.flags & %d THEN (SELECT p.settled FROM payments p WHERE p.op_no = k.op_no AND p.i = k.i) END FROM %s AND k.flags & %d = 0",
		pay.FlagSmaller, place, pay.FlagRepeat)
}, []string{fmt.Sprintf("payments k INDEXED BY payments_by_time WHERE k.at > ?2 AND k.at <= ?1 AND (?3 = %d OR k.asset IN (?3, 0))", AnyAsset)})

// slotsAfter is a query for the slots behind ?2, one of the smaller size, that make up
// all the time there is: small ones up to where ?3 ends, and large ones from there on. It
// gives the sums of those in the asset ?1, and of those in one that cannot be read beside
// it.
var slotsAfter = func() string {
	sums := fmt.Sprintf("SELECT group_concat(sums, ';') FILTER (WHERE asset = ?1 OR ?1 = %[1]d), group_concat(sums, ';') FILTER (WHERE asset <> ?1 AND ?1 <> %[1]d) FROM slots WHERE (asset = ?1 OR asset = 0 OR ?1 = %[1]d)", AnyAsset)
	return fmt.Sprintf("%s AND size = 0 AND slot > ?2 AND slot < (?3 + 1) * %d UNION ALL %[1]s AND size = 1 AND slot > ?3", sums, slotSizes[1]/slotSizes[0])
}()

// DayState is what became of payments, as far as a sum by day tells it: whether an
// open one is still pending is for the clock to say.
type DayState int

// The states of a Day.
const (
	DayOpen    DayState = iota // nothing certain is known
	DaySettled                 // a settlement was reported
	DayFailed                  // the operation failed for good
)

// dayStates are those of the parts of a slot.
var dayStates = [allParts]DayState{partOpen: DayOpen, partSettled: DaySettled, partFailed: DayFailed, partDisputed: DaySettled, partSmaller: DaySettled}

// dayLength is a day in milliseconds.
const dayLength = 86_400_000

// dayOf is the day since 1970 an instant lies in.
func dayOf(ms int64) int64 { return floorDiv(ms, dayLength) }

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
	const size = len(slotSizes) - 1
	perDay := dayLength / slotSizes[size]
	type key struct{ day, asset int64 }
	days := map[key]*slotSums{}
	if err := v.scan(v.ctx, "SELECT slot, asset, sums FROM slots WHERE size = ? AND slot >= ? AND slot < ?",
		[]any{int64(size), from * perDay, dayOf(noTime) * perDay}, func(row []driver.Value) error {
			k := key{floorDiv(integer(row[0]), perDay), integer(row[1])}
			if days[k] == nil {
				days[k] = &slotSums{}
			}
			text, _ := row[2].(string)
			return days[k].addText(text)
		}); err != nil {
		return nil, err
	}
	var out []Day
	for k, sums := range days {
		for state := DayOpen; state <= DayFailed; state++ {
			var all partSum
			for part := range sums {
				if dayStates[part] == state {
					all.addSum(&sums[part])
				}
			}
			if all.payments > 0 {
				out = append(out, Day{Asset: k.asset, Day: k.day, State: state, Payments: all.payments, Unreadable: all.unreadable, Amount: all.amount.String()})
			}
		}
	}
	slices.SortFunc(out, func(a, b Day) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Asset, b.Asset), cmp.Compare(a.State, b.State))
	})
	return out, nil
}
