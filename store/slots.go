package store

import (
	"cmp"
	"context"
	"database/sql/driver"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	pay "github.com/settlewatch/settlewatch/guard/payment"
)

// slotSizes are the lengths of time that payments are summed up by, in milliseconds: ten
// minutes and four hours. Each is a multiple of the one before and divides a day, so
// that a window is some slots of each size and what is left of the smallest, and costs
// hardly more the more was paid in it.
var slotSizes = [...]int64{600_000, 14_400_000}

// slotOf is the slot of a size that an instant lies in, counted from 1970.
func slotOf(ms int64, size int) int64 { return floorDiv(ms, slotSizes[size]) }

// lastOfSlot is the last instant of a slot.
func lastOfSlot(slot int64, size int) int64 {
	if slot < slotOf(noTime, size) {
		return (slot+1)*slotSizes[size] - 1
	}
	return noTime
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// The parts of a slot, by what became of a payment: as it counts in a window, where a
// policy may leave some out, and as people are shown it.
const (
	partOpen     = iota // nothing certain is known
	partSettled         // a settlement was reported
	partFailed          // the operation failed for good
	partDisputed        // the operation failed for good, and a settlement was reported
	partSmaller         // of scheme upto, settled for less than authorised
	allParts
)

func (p *payment) part() int64 {
	paired := p.flags&pay.FlagPaired != 0
	switch {
	case p.flags&pay.FlagDefinite != 0 && paired:
		return partDisputed
	case p.flags&pay.FlagDefinite != 0:
		return partFailed
	case p.flags&pay.FlagSmaller != 0:
		return partSmaller
	case paired:
		return partSettled
	}
	return partOpen
}

// slotKey is a part of a slot.
type slotKey struct{ size, slot, asset, part int64 }

func (k slotKey) compare(o slotKey) int {
	return cmp.Or(cmp.Compare(k.size, o.size), cmp.Compare(k.slot, o.slot), cmp.Compare(k.asset, o.asset), cmp.Compare(k.part, o.part))
}

// row is the key of the row a part is in.
func (k slotKey) row() slotKey {
	k.part = 0
	return k
}

// up is the key of the next larger slot around a slot.
func (k slotKey) up() slotKey {
	k.size++
	k.slot = floorDiv(k.slot, slotSizes[k.size]/slotSizes[k.size-1])
	return k
}

// partSum is a sum of payments: how many, how many of these are unreadable, what was
// authorised, and for less than that settled.
type partSum struct {
	payments, unreadable int64
	amount, taken        total
}

// add adds a payment, sign times.
func (s *partSum) add(p *payment, sign int64) error {
	s.payments += sign
	if p.flags&pay.FlagUnreadable != 0 {
		s.unreadable += sign
	}
	if err := s.amount.add(p.amount, sign); err != nil || p.part() != partSmaller {
		return err
	}
	return s.taken.add(p.settled, sign)
}

// addSum adds another sum.
func (s *partSum) addSum(o *partSum) {
	s.payments += o.payments
	s.unreadable += o.unreadable
	s.amount.addTotal(&o.amount)
	s.taken.addTotal(&o.taken)
}

func (s *partSum) isZero() bool {
	return s.payments == 0 && s.unreadable == 0 && s.amount.isZero() && s.taken.isZero()
}

// slotSums are the sums of a slot by part. Their text has, for each part that is not
// empty, its number, how many payments and what was authorised; then how many are
// unreadable and what was taken, where that is not zero:
//
//	0 2 30000;1 12 240000 1
type slotSums [allParts]partSum

func (s *slotSums) isZero() bool {
	return !slices.ContainsFunc(s[:], func(p partSum) bool { return !p.isZero() })
}

func (s *slotSums) text() string {
	var b []byte
	for i := range s {
		p := &s[i]
		if p.isZero() {
			continue
		}
		if len(b) > 0 {
			b = append(b, ';')
		}
		b = strconv.AppendInt(b, int64(i), 10)
		b = strconv.AppendInt(append(b, ' '), p.payments, 10)
		b = append(append(b, ' '), p.amount.String()...)
		if p.unreadable != 0 || !p.taken.isZero() {
			b = strconv.AppendInt(append(b, ' '), p.unreadable, 10)
		}
		if !p.taken.isZero() {
			b = append(append(b, ' '), p.taken.String()...)
		}
	}
	return string(b)
}

// addText adds what text says.
func (s *slotSums) addText(text string) error {
	for more := text != ""; more; {
		var part string
		if part, text, more = strings.Cut(text, ";"); !s.addPart(part) {
			return fmt.Errorf("%w: %.60q are no sums of a slot", ErrUnusable, part)
		}
	}
	return nil
}

func (s *slotSums) addPart(text string) bool {
	var fields [5]string // part, payments, amount, unreadable, taken
	n, more := 0, true
	for ; more && n < len(fields); n++ {
		fields[n], text, more = strings.Cut(text, " ")
	}
	part, err := strconv.Atoi(fields[0])
	if more || n < 3 || err != nil || part < 0 || part >= allParts {
		return false
	}
	p := &s[part]
	payments, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil || p.amount.add(fields[2], 1) != nil || p.taken.add(fields[4], 1) != nil {
		return false
	}
	p.payments += payments
	if fields[3] != "" {
		unreadable, err := strconv.ParseInt(fields[3], 10, 64)
		if err != nil {
			return false
		}
		p.unreadable += unreadable
	}
	return true
}

// addSlots adds changes to the slots of the smallest size, and with them to the larger
// ones, and forgets them.
func (t *Tx) addSlots(changes map[slotKey]*partSum) error {
	for k, h := range maps.Clone(changes) {
		for int(k.size) < len(slotSizes)-1 {
			k = k.up()
			if changes[k] == nil {
				changes[k] = &partSum{}
			}
			changes[k].addSum(h)
		}
	}
	keys := slices.SortedFunc(maps.Keys(changes), slotKey.compare)
	for len(keys) > 0 {
		at := keys[0].row()
		var sums slotSums
		for ; len(keys) > 0 && keys[0].row() == at; keys = keys[1:] {
			sums[keys[0].part] = *changes[keys[0]]
		}
		if err := t.addSlot(at, &sums); err != nil {
			return err
		}
	}
	t.noSlots = t.noSlots && len(changes) == 0
	clear(changes)
	return t.drain(&t.newSlots)
}

// addSlot adds sums to a row. A row of nothing goes, so that an index that was changed
// equals one filled at once.
func (t *Tx) addSlot(at slotKey, sums *slotSums) error {
	if sums.isZero() {
		return nil
	}
	if !t.noSlots {
		if err := t.scan(context.Background(), "SELECT sums FROM slots WHERE size = ? AND slot = ? AND asset = ?", []any{at.size, at.slot, at.asset}, func(row []driver.Value) error {
			text, _ := row[0].(string)
			return sums.addText(text)
		}); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(sums[:], func(p partSum) bool { return p.payments < 0 }) {
		return fmt.Errorf("%w: a slot has less than no payments", ErrUnusable)
	}
	if sums.isZero() {
		return t.put("DELETE FROM slots WHERE size = ? AND slot = ? AND asset = ?", at.size, at.slot, at.asset)
	}
	return t.add(&t.newSlots, 0, at.size, at.slot, at.asset, sums.text())
}
