package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math"
	"slices"

	pay "github.com/settlewatch/settlewatch/guard/payment"
)

// Kept counts and sums are what a question about the whole past would otherwise
// have to add up. A transaction gathers its changes in memory and adds them once,
// so a bulk fill pays for each count and not for each row.

// sums are changes that are not yet in the tables.
type sums struct {
	operations map[countKey]int64   // by name set, class, blindness
	paid       map[countKey]int64   // by host, payee, outcome
	slots      map[slotKey]*partSum // of the smallest size
	payments   int64
}

// countKey is what is counted: the key of a table of counts.
type countKey [3]int64

func (k countKey) compare(o countKey) int { return slices.Compare(k[:], o[:]) }

func newSums() sums {
	return sums{operations: map[countKey]int64{}, slots: map[slotKey]*partSum{}, paid: map[countKey]int64{}}
}

// full tells whether the changes should be written before there are more: there may
// be as many name sets as operations.
func (s *sums) full() bool { return len(s.operations)+len(s.slots)+len(s.paid) > 1<<15 }

// count counts an operation, sign times.
func (s *sums) count(o *Stored, sign int64) {
	s.operations[countKey{o.names, o.Class, int64(boolInt(o.blind))}] += sign
}

// The outcomes of PaidThere, as they are stored.
const (
	outcomeOpen      = 0
	outcomeSettled   = 1
	outcomeFailed    = 2
	outcomeAmbiguous = 3
)

// noTime is `at` of a payment whose time is unreadable: it is later than any
// instant, so inside every window.
const noTime = math.MaxInt64

func (p *payment) outcome() int64 {
	switch {
	case p.flags&pay.FlagAmbiguous != 0:
		return outcomeAmbiguous
	case p.flags&pay.FlagPaired != 0:
		return outcomeSettled
	case p.flags&pay.FlagDefinite != 0:
		return outcomeFailed
	}
	return outcomeOpen
}

// outcomeThere is the outcome of what the payee of the row was paid at its host: that
// nobody signed to pay them there leaves open whether they were.
func (p *payment) outcomeThere() int64 {
	if p.flags&pay.FlagNamed != 0 {
		return outcomeAmbiguous
	}
	return p.outcome()
}

// spend counts the payments of one operation, in the order of their rows, sign
// times. A payment that has several rows counts once, and with each pair of names.
func (s *sums) spend(rows []payment, sign int64) error {
	for i := range rows {
		p := &rows[i]
		if p.host != 0 {
			if p.payee != 0 {
				s.paid[countKey{p.host, p.payee, p.outcomeThere()}] += sign
			}
			if p.firstAt(rows[:i]) {
				s.paid[countKey{p.host, 0, p.outcome()}] += sign
			}
		}
		if p.flags&pay.FlagRepeat != 0 {
			continue
		}
		s.payments += sign
		k := slotKey{slot: slotOf(p.at, 0), asset: p.asset, part: p.part()}
		h := s.slots[k]
		if h == nil {
			h = &partSum{}
			s.slots[k] = h
		}
		if err := h.add(p, sign); err != nil {
			return err
		}
	}
	return nil
}

// firstAt tells whether no row before has the same payment at the same host.
func (p *payment) firstAt(before []payment) bool {
	for i := len(before) - 1; i >= 0 && before[i].n == p.n; i-- {
		if before[i].host == p.host {
			return false
		}
	}
	return true
}

// addUp writes the changes.
func (t *Tx) addUp() error {
	s := &t.sums
	t.added.Payments += s.payments
	s.payments = 0
	names := map[countKey]int64{}
	for k, n := range s.operations {
		all, err := t.namesOf(k[0])
		if err != nil {
			return err
		}
		for _, name := range all {
			names[countKey{name, k[1], k[2]}] += n
		}
	}
	for _, c := range [...]struct {
		*counter
		changes map[countKey]int64
	}{{&t.setCounts, s.operations}, {&t.nameCounts, names}, {&t.paidCounts, s.paid}} {
		if err := t.addCounts(c.counter, c.changes); err != nil {
			return err
		}
	}
	return t.addSlots(s.slots)
}

// counter is a table of counts: how to add to them, and how to remove one that is
// none any more, so that an index that was changed equals one filled at once.
type counter struct {
	add   rowBuffer
	prune string
}

func newCounter(table, count string, key ...string) counter {
	c := counter{
		add:   newRowBuffer(table, 60, append(key, count)...),
		prune: "DELETE FROM " + table + " INDEXED BY " + table + "_none WHERE " + count + " = 0",
	}
	c.add.then(count + " = " + count + " + excluded." + count)
	return c
}

// addCounts adds changes to a table and forgets them.
func (t *Tx) addCounts(c *counter, changes map[countKey]int64) error {
	keys := make([]countKey, 0, len(changes))
	for k, n := range changes {
		if n != 0 {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, countKey.compare) // in the order of the table
	for _, k := range keys {
		if err := t.add(&c.add, 0, k[0], k[1], k[2], changes[k]); err != nil {
			return err
		}
	}
	if err := t.drain(&c.add); err != nil {
		return err
	}
	if slices.ContainsFunc(keys, func(k countKey) bool { return changes[k] < 0 }) {
		if err := t.put(c.prune); err != nil {
			return err
		}
	}
	clear(changes)
	return nil
}

// uncount takes a run that is about to be cleared out of the counts.
func (t *Tx) uncount(run int64) error {
	if err := t.drain(&t.newOps); err != nil {
		return err
	}
	if err := t.drain(&t.newPayments); err != nil {
		return err
	}
	ctx := context.Background()
	var o Stored
	if err := t.scan(ctx, "SELECT names, class, blind IS NOT NULL FROM operations WHERE run_no = ?", []any{run}, func(row []driver.Value) error {
		o.names, o.Class, o.blind = integer(row[0]), integer(row[1]), integer(row[2]) != 0
		t.sums.count(&o, -1)
		return nil
	}); err != nil {
		return err
	}
	// Rows of one operation come one after the other.
	var rows []payment
	var op int64
	if err := t.scan(ctx, "SELECT op_no, "+paymentColumns+` FROM payments p WHERE op_no IN
		(SELECT op_no FROM operations WHERE run_no = ?1 UNION ALL SELECT -stray_no FROM strays WHERE run_no = ?1) ORDER BY op_no, i`, []any{run},
		func(row []driver.Value) error {
			if no := integer(row[0]); no != op {
				if err := t.sums.spend(rows, -1); err != nil {
					return err
				}
				op, rows = no, rows[:0]
			}
			rows = append(rows, paymentFrom(row[1:]))
			return nil
		}); err != nil {
		return err
	}
	return t.sums.spend(rows, -1)
}

// nameSet gives the number of a set of names; 0 for the empty one.
func (t *Tx) nameSet(names []string) (int64, error) {
	if len(names) == 0 {
		return 0, nil
	}
	var few [2]int64 // most operations carry a payee and a host
	numbers := few[:0]
	for _, name := range names {
		w, err := t.word(name)
		if err != nil {
			return 0, err
		}
		numbers = append(numbers, w.(int64)) // a name is never empty
	}
	numbers = distinct(numbers) // so that the set decides and not its order
	if len(numbers) > len(few) {
		return t.findSet(numbers)
	}
	var key [2]int64
	copy(key[:], numbers)
	if n, ok := t.pairs[key]; ok {
		return n, nil
	}
	n, err := t.findSet(slices.Clone(numbers))
	if err == nil {
		t.pairs[key] = n
	}
	return n, err
}

func (t *Tx) findSet(numbers []int64) (int64, error) {
	key := shapeKey(numbers)
	if n, ok := t.sets[string(key)]; ok {
		return n, nil
	}
	if t.newSet > 0 && len(t.sets) < maxCached {
		// Filling: every set there is, is in the cache.
		n := t.newSet
		t.newSet++
		t.keepSet(n, key, numbers)
		for _, name := range numbers {
			if err := t.add(&t.newSetNames, 0, name, n); err != nil {
				return 0, err
			}
		}
		return n, t.add(&t.newSets, 0, n, key)
	}
	if err := t.drainSets(); err != nil {
		return 0, err
	}
	t.newSet = 0
	var n int64
	err := t.one("SELECT set_no FROM name_sets WHERE names = ?", []any{key}, &n)
	if errors.Is(err, sql.ErrNoRows) {
		if err := t.one("INSERT INTO name_sets (names) VALUES (?) RETURNING set_no", []any{key}, &n); err != nil {
			return 0, err
		}
		for _, name := range numbers {
			if err := t.put("INSERT INTO name_set_names (name, set_no) VALUES (?, ?)", name, n); err != nil {
				return 0, err
			}
		}
	} else if err != nil {
		return 0, err
	}
	t.keepSet(n, key, numbers)
	return n, nil
}

func (t *Tx) keepSet(no int64, key []byte, numbers []int64) {
	if len(t.sets) >= maxCached {
		t.forgetSets()
	}
	t.sets[string(key)], t.setNames[no] = no, numbers
}

func (t *Tx) drainSets() error {
	if err := t.drain(&t.newSets); err != nil {
		return err
	}
	return t.drain(&t.newSetNames)
}

func (t *Tx) forgetSets() {
	t.sets, t.pairs, t.setNames = map[string]int64{}, map[[2]int64]int64{}, map[int64][]int64{}
}

// namesOf gives the names of a set.
func (t *Tx) namesOf(set int64) ([]int64, error) {
	if set == 0 {
		return nil, nil
	}
	if names, ok := t.setNames[set]; ok {
		return names, nil
	}
	if err := t.drainSets(); err != nil {
		return nil, err
	}
	var key []byte
	if err := t.row("SELECT names FROM name_sets WHERE set_no = ?", []any{set}, &key); err != nil {
		return nil, err
	}
	names := shapeFromKey(key)
	t.keepSet(set, key, names)
	return names, nil
}
