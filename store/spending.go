package store

import (
	"database/sql/driver"
	"fmt"
	"strings"

	pay "github.com/settlewatch/settlewatch/guard/payment"
)

// Spending is what was paid inside a window. Most payments count as they stand: an
// index holds what their sum needs, and SQLite adds up none of them by itself. The
// others are there one by one, each once, oldest first.
type Spending struct {
	Payments int64  // that count as they stand, in the asset asked about
	Amount   string // their sum, exact; "0" for AnyAsset
	Others   []Paid
}

// particular are the flags of payments that do not count as they stand: a policy may
// leave them out or believe less, a warning goes with them, or they have several rows.
const particular = pay.FlagAmbiguous | pay.FlagDefinite | pay.FlagUnreadable | pay.FlagSmaller | pay.FlagUnknownNetwork | pay.FlagSeveral | pay.FlagRepeat

// spendingQuery are the queries of a Spending: how many rows there are and the amounts of
// those that count as they stand, and the other rows. Both are about rows k of payments
// that are later than ?2. ?3 is the asset, ?4 the last instant at which a payment counts
// as it stands, ?5 a list of operations whose payments do not, or null.
type spendingQuery struct{ sum, others string }

var plain = fmt.Sprintf("((?3 = %d OR k.asset = ?3) AND k.flags & %d = 0 AND k.amount IS NOT NULL AND k.at <= ?4 AND (?5 IS NULL OR k.op_no NOT IN (SELECT value FROM json_each(?5))))", AnyAsset, particular)

// newSpendingQuery makes one of the places where the rows are, what stands behind FROM,
// and of a query for the rows of a place.
func newSpendingQuery(rows func(place string) string, places ...string) spendingQuery {
	var sum, others []string
	for _, place := range places {
		sum = append(sum, "SELECT count(*), group_concat(k.amount) FILTER (WHERE "+plain+") FROM "+place)
		others = append(others, rows(place)+" AND NOT "+plain)
	}
	return spendingQuery{strings.Join(sum, " UNION ALL "), strings.Join(others, " UNION ALL ")}
}

var (
	spentByName  = newSpendingQuery(rowsAt, placesOf("", "= ?1", "<> ?1", " AND k.at > ?2")...)
	spentByNames = newSpendingQuery(rowsAt, placesOf("json_each(?1) j CROSS JOIN ", "= j.value", "NOT IN (SELECT value FROM json_each(?1))", " AND k.at > ?2")...)
)

// Spending sums up what was paid under any of the names and is later than `since` (unix
// milliseconds) or has no readable time. Payments later than `until`, and those of the
// operations in except, are told one by one (guard contract, section 1, "Spent").
func (v *View) Spending(names []int64, asset, since, until int64, except []int64) (s Spending, err error) {
	if len(names) == 0 {
		return Spending{Amount: "0"}, nil
	}
	q, of := &spentByName, any(names[0])
	if len(names) > 1 {
		q, of = &spentByNames, list(names)
	}
	args := []any{of, since, asset, until, nil}
	if len(except) > 0 {
		args[4] = list(except)
	}
	var sum total
	more, err := v.addPlain(q, args, &s.Payments, &sum)
	if s.Amount = sum.String(); asset == AnyAsset {
		s.Amount = "0"
	}
	if err != nil || !more {
		return s, err
	}
	others, err := v.payments(q.others, args...)
	if err == nil {
		s.Others, err = v.whole(others)
	}
	return s, err
}

// addPlain adds the payments that count as they stand, and tells whether there are more.
func (v *View) addPlain(q *spendingQuery, args []any, payments *int64, sum *total) (more bool, err error) {
	err = v.scan(v.ctx, q.sum, args, func(row []driver.Value) error {
		all := integer(row[0])
		amounts, _ := row[1].(string)
		for rest := amounts != ""; rest; all-- {
			var amount string
			amount, amounts, rest = strings.Cut(amounts, ",")
			if err := sum.add(amount, 1); err != nil {
				return err
			}
			*payments++
		}
		more = more || all > 0
		return nil
	})
	return more, err
}
