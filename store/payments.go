package store

import (
	"cmp"
	"context"
	"database/sql/driver"
	"encoding/json"
	"slices"
	"strings"

	pay "github.com/settlewatch/settlewatch/guard/payment"
)

// Paid is a possible payment as it was found: every one of side client, those of
// answers in no operation too. Words are dictionary numbers (see Words), 0 where
// there is none.
type Paid struct {
	Op                    int64 // its operation; negative: an answer in no operation
	N                     int   // which payment of it
	Payee, Host, Resource int64
	Asset                 int64
	Amount                string  // atomic units, the larger of authorised and settled; "" unreadable
	Settled               string  // what an answer said was taken, where that is not Amount; else ""
	At                    int64   // unix milliseconds
	HasAt                 bool    // false: the time is unreadable, and inside every window
	Flags                 int     // payment.Flag...
	More                  []Names // of one that counts with several: the other pairs of names
}

// Names are a payee and a host that a payment counts with, 0 where there is none.
type Names struct{ Payee, Host int64 }

// Carries tells whether the payment counts with one of the names.
func (p *Paid) Carries(names []int64) bool {
	return slices.ContainsFunc(append([]Names{{p.Payee, p.Host}}, p.More...), func(n Names) bool {
		return n.Payee != 0 && slices.Contains(names, n.Payee) || n.Host != 0 && slices.Contains(names, n.Host)
	})
}

func (p *Paid) compareTime(q *Paid) int {
	return cmp.Or(cmp.Compare(p.at(), q.at()), cmp.Compare(p.Op, q.Op), cmp.Compare(p.N, q.N))
}

func (p *Paid) at() int64 {
	if !p.HasAt {
		return noTime
	}
	return p.At
}

// payment is a row of payments with its words as numbers.
type payment struct {
	n                            int64
	payee, host, resource, asset int64
	amount, settled              string
	at, flags                    int64
}

const paymentColumns = "p.n, p.payee, p.host, p.resource, p.asset, p.amount, p.settled, p.at, p.flags"

func paymentFrom(row []driver.Value) payment {
	return payment{n: integer(row[0]), payee: integer(row[1]), host: integer(row[2]), resource: integer(row[3]), asset: integer(row[4]),
		amount: amountOf(row[5]), settled: amountOf(row[6]), at: integer(row[7]), flags: integer(row[8])}
}

// paidColumns are the columns of a Paid: what a question about payments asks of each.
// Every column costs as much as finding the row does.
const paidColumns = "p.op_no, p.n, p.payee, p.host, p.resource, p.asset, p.amount, p.settled, p.at, p.flags"

func paidFrom(row []driver.Value) Paid {
	at := integer(row[8])
	return Paid{Op: integer(row[0]), N: int(integer(row[1])), Payee: integer(row[2]), Host: integer(row[3]), Resource: integer(row[4]), Asset: integer(row[5]),
		Amount: amountOf(row[6]), Settled: amountOf(row[7]), At: at, HasAt: at != noTime, Flags: int(integer(row[9]))}
}

// payment makes a row of a payment.
func (t *Tx) payment(row *payment, p *Payment) error {
	*row = payment{n: int64(p.N), amount: p.Amount, settled: p.Settled, at: noTime, flags: int64(p.Flags)}
	if p.HasAt {
		row.at = p.At
	}
	for _, w := range [...]struct {
		to   *int64
		word string
	}{{&row.payee, p.Payee}, {&row.host, p.Host}, {&row.resource, p.Resource}, {&row.asset, p.Asset}} {
		no, err := t.word(w.word)
		if err != nil {
			return err
		}
		*w.to, _ = no.(int64)
	}
	return nil
}

// putPayments makes the rows of an operation what they are to be. What becomes of a
// payment mostly changes nothing that an index holds, and never who is paid.
func (t *Tx) putPayments(op int64, now, had []payment) error {
	if err := t.sums.spend(had, -1); err != nil {
		return err
	}
	if err := t.sums.spend(now, 1); err != nil {
		return err
	}
	if len(had) > 0 {
		if err := t.drainOf(&t.newPayments, op); err != nil {
			return err
		}
		if slices.EqualFunc(had, now, func(a, b payment) bool { return a.fixed() == b.fixed() }) {
			return t.updatePayments(op, now, had)
		}
		if err := t.put(deletePayments, op); err != nil {
			return err
		}
	}
	for i := range now {
		if err := t.addPayment(op, i, &now[i]); err != nil {
			return err
		}
	}
	return nil
}

// fixed is what no update changes: all but what updatePayments sets.
func (p payment) fixed() payment {
	p.amount, p.settled, p.flags = "", "", 0
	return p
}

func (t *Tx) updatePayments(op int64, now, had []payment) error {
	for i := range now {
		p := &now[i]
		if *p == had[i] {
			continue
		}
		if err := t.put("UPDATE payments SET amount = ?, settled = ?, flags = ? WHERE op_no = ? AND i = ?",
			stored(p.amount), stored(p.settled), p.flags, op, int64(i)); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tx) addPayment(op int64, i int, p *payment) error {
	return t.add(&t.newPayments, op, op, int64(i), p.n, word(p.payee), word(p.host), word(p.resource), p.asset,
		stored(p.amount), stored(p.settled), p.at, p.flags)
}

// word is the column value of a word's number.
func word(no int64) any {
	if no == 0 {
		return nil
	}
	return no
}

// paymentsOf reads the rows of one operation or stray.
func (t *Tx) paymentsOf(op int64) (rows []payment, err error) {
	err = t.scan(context.Background(), "SELECT "+paymentColumns+" FROM payments p WHERE op_no = ? ORDER BY i", []any{op}, func(row []driver.Value) error {
		rows = append(rows, paymentFrom(row))
		return nil
	})
	return rows, err
}

// payments runs a query for paidColumns.
func (v *View) payments(query string, args ...any) (out []Paid, err error) {
	err = v.scan(v.ctx, query, args, func(row []driver.Value) error {
		out = append(out, paidFrom(row))
		return nil
	})
	return out, err
}

// whole makes one of the rows that a payment with several names has: those that were
// found, and the other ones. It sorts by compareTime.
func (v *View) whole(found []Paid) ([]Paid, error) {
	slices.SortFunc(found, func(a, b Paid) int { return cmp.Or(a.compareTime(&b), cmp.Compare(a.Flags, b.Flags)) })
	found = slices.CompactFunc(found, func(a, b Paid) bool { return a.Op == b.Op && a.N == b.N })
	return found, v.complement(found)
}

// complement gives payments with several names, each there once, the other ones.
func (v *View) complement(found []Paid) error {
	var ops []int64
	for i := range found {
		if found[i].Flags&pay.FlagSeveral != 0 {
			ops = append(ops, found[i].Op)
		}
	}
	if len(ops) == 0 {
		return nil
	}
	all, err := v.PaymentsOfOperations(distinct(ops))
	if err != nil {
		return err
	}
	byID := make(map[paidID]*Paid, len(all))
	for i := range all {
		byID[thePayment(&all[i])] = &all[i]
	}
	for i := range found {
		if p := byID[thePayment(&found[i])]; p != nil {
			found[i] = *p
		}
	}
	return nil
}

// distinct sorts numbers and drops those that come twice.
func distinct(numbers []int64) []int64 {
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// list is numbers as a query's json_each takes them.
func list(numbers []int64) string {
	b, _ := json.Marshal(numbers) // integers: it cannot fail
	return string(b)
}

// byName is a query, or several, about what carries names. It is mostly asked about
// one, which spares SQLite a table of them: ?1 is that name, or a list of several.
type byName[Q any] struct{ one, several Q }

// newByName makes one of three texts: where names come from, that something is one of
// them, and that it is none.
func newByName[Q any](query func(from, is, isNot string) Q) byName[Q] {
	return byName[Q]{query("", "= ?1", "<> ?1"), query("json_each(?1) j CROSS JOIN ", "= j.value", "NOT IN (SELECT value FROM json_each(?1))")}
}

// of gives the query for some names, and its ?1.
func (q *byName[Q]) of(names []int64) (Q, any) {
	if len(names) == 1 {
		return q.one, names[0]
	}
	return q.several, list(names)
}

// paymentsBy runs a query by name for paidColumns.
func (v *View) paymentsBy(q *byName[string], names []int64, args ...any) ([]Paid, error) {
	query, of := q.of(names)
	return v.payments(query, append([]any{of}, args...)...)
}

// placesOf is where the payments are that count with a name: a payment carries a name
// as its payee or as its host; of one that does as both, the second is seen in the index
// alone. The texts are those of newByName, and when what else holds of a row k.
func placesOf(from, is, isNot, when string) []string {
	table := from + "payments k INDEXED BY "
	return []string{
		table + "payments_by_payee WHERE k.payee " + is + when,
		table + "payments_by_host WHERE k.host " + is + " AND (k.payee IS NULL OR k.payee " + isNot + ")" + when,
	}
}

// rowsAt is a query for paidColumns of the rows k of an index.
func rowsAt(place string) string {
	return "SELECT " + paidColumns + " FROM " + strings.Replace(place, " WHERE ", " CROSS JOIN payments p WHERE p.op_no = k.op_no AND p.i = k.i AND ", 1)
}

// paidByName is a query for the payments that count with a name, of which holds what
// when says of a row k.
func paidByName(when string) byName[string] {
	return newByName(func(from, is, isNot string) string {
		var rows []string
		for _, place := range placesOf(from, is, isNot, when) {
			rows = append(rows, rowsAt(place))
		}
		return strings.Join(rows, " UNION ALL ")
	})
}

var (
	paymentsOf       = paidByName(" AND k.at > ?2")
	matchingPayments = paidByName(" AND k.at >= ?2 AND k.at < ?3 AND k.asset = ?4 AND k.amount = ?5")
)

// PaymentsOf gives every payment that counts with one of the names and is later than
// `since` (unix milliseconds) or has no readable time, each once, oldest first,
// those without a time last.
func (v *View) PaymentsOf(names []int64, since int64) ([]Paid, error) {
	if len(names) == 0 {
		return nil, nil
	}
	found, err := v.paymentsBy(&paymentsOf, names, since)
	if err != nil {
		return nil, err
	}
	return v.whole(found)
}

// PaymentsOfOperations gives the payments of operations (and of strays, whose
// numbers are negative), by operation as asked and in the order of their numbers.
func (v *View) PaymentsOfOperations(ops []int64) ([]Paid, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	rows, err := v.payments("SELECT "+paidColumns+" FROM json_each(?) j CROSS JOIN payments p WHERE p.op_no = j.value ORDER BY j.key, p.i", list(ops))
	if err != nil {
		return nil, err
	}
	out := rows[:0]
	for _, p := range rows {
		if n := len(out); n > 0 && out[n-1].Op == p.Op && out[n-1].N == p.N {
			out[n-1].More = append(out[n-1].More, Names{p.Payee, p.Host})
			continue
		}
		out = append(out, p)
	}
	return out, nil
}

// Made is what payments an operation has.
type Made struct {
	Payments int64
	Newest   int64 // unix milliseconds; the greatest integer where a time is unreadable
}

// Made gives that of operations by number. Those without a payment are left out.
func (v *View) Made(ops []int64) (map[int64]Made, error) {
	made := make(map[int64]Made, len(ops))
	err := v.scan(v.ctx, "SELECT p.op_no, p.at FROM json_each(?) j CROSS JOIN payments p WHERE p.op_no = j.value AND p.flags & ? = 0",
		[]any{list(distinct(slices.Clone(ops))), int64(pay.FlagRepeat)}, func(row []driver.Value) error {
			m, ok := made[integer(row[0])]
			if at := integer(row[1]); !ok || at > m.Newest {
				m.Newest = at
			}
			m.Payments++
			made[integer(row[0])] = m
			return nil
		})
	return made, err
}

// PaymentsFor is PaymentsOf for one resource.
func (v *View) PaymentsFor(resource, since int64) ([]Paid, error) {
	var found []Paid
	err := v.eachAsset(resource, func(asset int64) error {
		rows, err := v.payments("SELECT "+paidColumns+" FROM payments p INDEXED BY payments_by_resource WHERE p.resource = ? AND p.asset = ? AND p.priced IN (0, 1) AND p.at > ?",
			resource, asset, since)
		found = append(found, rows...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return v.whole(found)
}

// eachAsset gives the assets that were paid for a resource: a few, each found by one
// look into the index.
func (v *View) eachAsset(resource int64, fn func(asset int64) error) error {
	for asset := int64(-1); ; {
		var next any
		if err := v.row(v.ctx, "SELECT min(asset) FROM payments INDEXED BY payments_by_resource WHERE resource = ? AND asset > ?", resource, asset).Scan(&next); err != nil {
			return err
		}
		if next == nil {
			return nil
		}
		asset = integer(next)
		if err := fn(asset); err != nil {
			return err
		}
	}
}

// LastSettled gives the newest payments for a resource in one asset that a
// settlement was reported for and that can be summed, newest first (guard contract,
// section 1, price_drift).
func (v *View) LastSettled(resource, asset int64, limit int) ([]Paid, error) {
	return v.newest(limit, noTime, func(from, to int64, n int) ([]Paid, error) {
		return v.payments("SELECT "+paidColumns+` FROM payments p INDEXED BY payments_by_resource WHERE p.resource = ? AND p.asset = ? AND p.priced = 1
			AND p.at BETWEEN ? AND ? ORDER BY p.at DESC LIMIT ?`, resource, asset, from, to, int64(n))
	}, thePayment)
}

// LastPaid gives the newest payments to a host, newest first, at most limit
// operations.
func (v *View) LastPaid(host int64, limit int) ([]Paid, error) {
	return v.newest(limit, noTime, v.paidBy("host", host), theOperation)
}

// paidBy gives the payments with a name, which stands in the column payee or host.
func (v *View) paidBy(column string, name int64) stretchOf {
	query := "SELECT " + paidColumns + " FROM payments p INDEXED BY payments_by_" + column + " WHERE p." + column + " = ? AND p.at BETWEEN ? AND ? ORDER BY p.at DESC LIMIT ?"
	return func(from, to int64, n int) ([]Paid, error) { return v.payments(query, name, from, to, int64(n)) }
}

// openPayments finds payments by names ?1, asset ?2 and amount ?3 in open operations.
// Its condition, payment.FlagOpen, is that of the two indexes.
var openPayments = newByName(func(from, is, isNot string) string {
	one := func(column, other string) string {
		return "SELECT " + paidColumns + " FROM " + from + "payments p INDEXED BY payments_open_by_" + column +
			" WHERE p." + column + " " + is + " AND p.asset = ?2 AND p.amount = ?3 AND p.flags & 16 <> 0" + other
	}
	return one("payee", "") + " UNION ALL " + one("host", " AND (p.payee IS NULL OR p.payee "+isNot+")")
})

// OpenPayments gives the payments that count with one of the names, are of exactly
// this amount of the asset, and whose operation is open. Its cost is that of what it
// finds (guard contract, section 1, duplicate_operation).
func (v *View) OpenPayments(names []int64, asset int64, amount string) ([]Paid, error) {
	if len(names) == 0 || amount == "" {
		return nil, nil
	}
	found, err := v.paymentsBy(&openPayments, names, asset, stored(amount))
	if err != nil {
		return nil, err
	}
	return v.whole(found)
}

// MatchingPayments gives the payments that count with one of the names, are of
// exactly this amount of the asset, and whose time is readable and not before
// `from`: those that may end a hold or use up an approval made then (guard contract,
// sections 4 and 5). They come oldest first, and those of one instant as tellApart has
// it, so that everybody finds the same first one.
func (v *View) MatchingPayments(names []int64, asset int64, amount string, from int64) ([]Paid, error) {
	if len(names) == 0 || amount == "" {
		return nil, nil
	}
	found, err := v.paymentsBy(&matchingPayments, names, from, int64(noTime), asset, stored(amount))
	if err != nil {
		return nil, err
	}
	if found, err = v.whole(found); err != nil {
		return nil, err
	}
	return found, v.tellApart(found, len(found), 1)
}

func compareBool(a, b bool) int { return boolInt(a) - boolInt(b) }

// PaidThere counts the payments to a host, or to a payee at a host, by what became of
// them. One that counts with several pairs of names counts with each.
type PaidThere struct {
	Settled   int64 // a settlement was reported
	Open      int64 // nothing certain is known
	Failed    int64 // the operation failed for good
	Ambiguous int64 // it is ambiguous who was paid, whatever became of it
}

// Signed tells whether this side signed to pay there. What is ambiguous may be the
// seller's word alone.
func (p PaidThere) Signed() bool { return p.Settled+p.Open+p.Failed > 0 }

// Any tells whether there is any payment.
func (p PaidThere) Any() bool { return p != PaidThere{} }

// count notes how many payments had one of the outcomes.
func (p *PaidThere) count(outcome, n int64) {
	switch outcome {
	case outcomeSettled:
		p.Settled = n
	case outcomeFailed:
		p.Failed = n
	case outcomeAmbiguous:
		p.Ambiguous = n
	default:
		p.Open = n
	}
}

// PaidAt counts the payments to a host, and those of them to one payee. They are
// counted as they come, so nothing is scanned (guard contract, section 1,
// payee_changed).
func (v *View) PaidAt(host, payee int64) (atHost, toPayee PaidThere, err error) {
	err = v.scan(v.ctx, "SELECT payee, outcome, payments FROM paid WHERE host = ? AND payee IN (0, ?)", []any{host, payee}, func(row []driver.Value) error {
		p := &atHost
		if integer(row[0]) != 0 {
			p = &toPayee
		}
		p.count(integer(row[1]), integer(row[2]))
		return nil
	})
	return atHost, toPayee, err
}
