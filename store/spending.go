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

// spendingQuery are the queries of a Spending. Both are about rows k of payments that
// are later than ?2. ?3 is the asset, ?4 the last instant at which a payment counts as
// it stands, ?5 a list of operations whose payments do not, or null.
type spendingQuery struct{ sum, others string }

// newSpendingQuery makes one of the places where the rows are: what stands behind FROM.
func newSpendingQuery(places ...string) spendingQuery {
	plain := fmt.Sprintf("((?3 = %d OR k.asset = ?3) AND k.flags & %d = 0 AND k.amount IS NOT NULL AND k.at <= ?4 AND (?5 IS NULL OR k.op_no NOT IN (SELECT value FROM json_each(?5))))", AnyAsset, particular)
	var sum, others []string
	for _, place := range places {
		sum = append(sum, "SELECT count(*), group_concat(k.amount) FILTER (WHERE "+plain+") FROM "+place)
		others = append(others, rowsAt(place)+" AND NOT "+plain)
	}
	return spendingQuery{strings.Join(sum, " UNION ALL "), strings.Join(others, " UNION ALL ")}
}

var (
	spentByName  = newSpendingQuery(placesOf("", "= ?1", "<> ?1", " AND k.at > ?2")...)
	spentByNames = newSpendingQuery(placesOf("json_each(?1) j CROSS JOIN ", "= j.value", "NOT IN (SELECT value FROM json_each(?1))", " AND k.at > ?2")...)
	spentUntil   = newSpendingQuery(fmt.Sprintf("payments k INDEXED BY payments_by_time WHERE k.at > ?2 AND k.at <= ?1 AND (?3 = %d OR k.asset IN (?3, 0))", AnyAsset))
)

// Spending sums up what was paid under any of the names and is later than `since` (unix
// milliseconds) or has no readable time. Payments later than `until`, and those of the
// operations in except, are told one by one (guard contract, section 1, "Spent").
func (v *View) Spending(names []int64, asset, since, until int64, except []int64) (Spending, error) {
	switch len(names) {
	case 0:
		return Spending{Amount: "0"}, nil
	case 1:
		return v.spending(&spentByName, names[0], since, asset, until, except)
	}
	return v.spending(&spentByNames, list(names), since, asset, until, except)
}

func (v *View) spending(q *spendingQuery, of any, since, asset, until int64, except []int64) (s Spending, err error) {
	args := []any{of, since, asset, until, nil}
	if len(except) > 0 {
		args[4] = list(except)
	}
	var sum total
	var all int64
	if err := v.scan(v.ctx, q.sum, args, func(row []driver.Value) error {
		all += integer(row[0])
		amounts, _ := row[1].(string)
		for more := amounts != ""; more; s.Payments++ {
			var amount string
			amount, amounts, more = strings.Cut(amounts, ",")
			if err := sum.add(amount, 1); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return s, err
	}
	if s.Amount = sum.String(); asset == AnyAsset {
		s.Amount = "0"
	}
	if all == s.Payments {
		return s, nil
	}
	others, err := v.payments(q.others, args...)
	if err == nil {
		s.Others, err = v.whole(others)
	}
	return s, err
}
