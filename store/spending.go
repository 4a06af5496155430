package store

import (
	"database/sql/driver"
	"fmt"
	"strings"

	pay "github.com/settlewatch/settlewatch/guard/payment"
)

// Spending is what was paid inside a window. Most payments count as they stand: an
// index holds what their sums need, and SQLite goes through it by itself. The others are
// there one by one, each once, oldest first.
type Spending struct {
	Plain    Sum // in the asset asked about
	Definite Sum // likewise, but their operations failed for good (trustDefiniteFailures)
	Others   []Paid
}

// Sum is how many payments there are and what they come to, exact; "0" for AnyAsset.
type Sum struct {
	Payments int64
	Amount   string
}

// particular are the flags of payments that do not count as they stand: a policy may
// believe less, a warning goes with them, or they have several rows.
const particular = pay.FlagAmbiguous | pay.FlagUnreadable | pay.FlagSmaller | pay.FlagUnknownNetwork | pay.FlagSeveral | pay.FlagRepeat

// spendingQuery are the queries of a Spending, both about rows k of payments that are
// later than ?2: how many there are and the amounts of those that count as they stand,
// and the other ones. ?3 is the asset, ?4 the last instant at which a payment counts as
// it stands, and ?5 a list of operations whose payments do not.
type spendingQuery struct{ sum, others string }

// newSpendingQuery makes one of the places where the rows are, what stands behind FROM,
// and of a query for the rows of a place. Without excepted there is no ?5.
func newSpendingQuery(excepted bool, rows func(place string) string, places []string) spendingQuery {
	stands := fmt.Sprintf("k.flags & %d = 0 AND (k.asset = ?3 OR ?3 = %d) AND k.at <= ?4 AND k.amount IS NOT NULL", particular, AnyAsset)
	if excepted {
		stands += " AND k.op_no NOT IN (SELECT value FROM json_each(?5))"
	}
	var sum, others []string
	for _, place := range places {
		// Counting goes through the index much faster than judging does.
		sum = append(sum, "SELECT count(*), NULL, NULL FROM "+place,
			fmt.Sprintf("SELECT 0, group_concat(k.amount) FILTER (WHERE k.flags & %[1]d = 0), group_concat(k.amount) FILTER (WHERE k.flags & %[1]d <> 0) FROM %[2]s AND %[3]s",
				pay.FlagDefinite, place, stands))
		others = append(others, rows(place)+" AND NOT ("+stands+")")
	}
	return spendingQuery{strings.Join(sum, " UNION ALL "), strings.Join(others, " UNION ALL ")}
}

// spentBy are the queries about names: of every payment, and but for those of some
// operations.
var spentBy = newByName(func(from, is, isNot string) (q [2]spendingQuery) {
	places := placesOf(from, is, isNot, " AND k.at > ?2")
	for excepted := range q {
		q[excepted] = newSpendingQuery(excepted == 1, rowsAt, places)
	}
	return q
})

// Spending sums up what was paid under any of the names and is later than `since` (unix
// milliseconds) or has no readable time. Payments later than `until`, and those of the
// operations in except, are told one by one (guard contract, section 1, "Spent").
func (v *View) Spending(names []int64, asset, since, until int64, except []int64) (s Spending, err error) {
	if len(names) == 0 {
		return Spending{Plain: Sum{Amount: "0"}, Definite: Sum{Amount: "0"}}, nil
	}
	excepted := len(except) > 0
	queries, of := spentBy.of(names)
	q := &queries[boolInt(excepted)]
	args := []any{of, since, asset, until}
	if excepted {
		args = append(args, list(except))
	}
	var plain, definite partSum
	more, err := v.addStanding(q, args, &plain, &definite)
	s.Plain, s.Definite = plain.sum(asset), definite.sum(asset)
	if err != nil || !more {
		return s, err
	}
	others, err := v.payments(q.others, args...)
	if err == nil {
		s.Others, err = v.whole(others)
	}
	return s, err
}

func (s *partSum) sum(asset int64) Sum {
	if asset == AnyAsset {
		return Sum{s.payments, "0"}
	}
	return Sum{s.payments, s.amount.String()}
}

// addStanding adds the payments that count as they stand, and tells whether there are
// more.
func (v *View) addStanding(q *spendingQuery, args []any, plain, definite *partSum) (more bool, err error) {
	all := plain.payments + definite.payments
	err = v.scan(v.ctx, q.sum, args, func(row []driver.Value) error {
		all += integer(row[0])
		for i, to := range [...]*partSum{plain, definite} {
			amounts, _ := row[i+1].(string)
			for rest := amounts != ""; rest; to.payments++ {
				var amount string
				amount, amounts, rest = strings.Cut(amounts, ",")
				if err := to.amount.add(amount, 1); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return all != plain.payments+definite.payments, err
}
