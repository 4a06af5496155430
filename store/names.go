package store

import (
	"bytes"
	"cmp"
	"database/sql/driver"
	"encoding/hex"
	"encoding/json"
	"iter"
	"slices"
)

// ClassCount is how many operations of a class there are, blind or not.
type ClassCount struct {
	Class int64
	Blind bool
	N     int64
}

// HistoryOf counts the operations that carry any of the names, by class and
// blindness, each once. The counts are kept, not made for the question.
func (v *View) HistoryOf(names []int64) ([]ClassCount, error) {
	names = distinct(slices.Clone(names))
	main, others, err := v.setsOf(names)
	if err != nil || main == 0 {
		return nil, err
	}
	// Of the name with the most sets the sum is kept; of the others, those sets
	// count that do not hold it.
	counts := map[countKey]int64{}
	add := func(query string, args ...any) error {
		return v.scan(v.ctx, query, args, func(row []driver.Value) error {
			counts[countKey{0, integer(row[0]), integer(row[1])}] += integer(row[2])
			return nil
		})
	}
	if err := add("SELECT class, blind, operations FROM name_counts WHERE name = ?", main); err != nil {
		return nil, err
	}
	if len(others) > 0 {
		if err := add(`SELECT c.class, c.blind, c.operations FROM json_each(?1) j CROSS JOIN set_counts c ON c.set_no = j.value
			WHERE NOT EXISTS (SELECT 1 FROM name_set_names n WHERE n.name = ?2 AND n.set_no = j.value)`, list(others), main); err != nil {
			return nil, err
		}
	}
	out := make([]ClassCount, 0, len(counts))
	for k, n := range counts {
		out = append(out, ClassCount{k[1], k[2] != 0, n})
	}
	slices.SortFunc(out, func(a, b ClassCount) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), compareBool(a.Blind, b.Blind))
	})
	return out, nil
}

// setsOf finds the name that is in the most sets, and every set of the others. A
// host may be in a set for each of its payments, so no more is read of the name with
// the most than twice what the next one has.
func (v *View) setsOf(names []int64) (main int64, others []int64, err error) {
	if len(names) == 1 {
		return names[0], nil, nil
	}
	sets := make([][]int64, len(names))
	for limit := 32; ; limit *= 4 {
		longer := -1 // a name that has as many as were asked for
		many := 0
		for i, name := range names {
			if sets[i] != nil && len(sets[i]) < limit/4 {
				continue // all of them are known
			}
			sets[i] = make([]int64, 0, 4)
			if err := v.scan(v.ctx, "SELECT set_no FROM name_set_names WHERE name = ? LIMIT ?", []any{name, int64(limit)}, func(row []driver.Value) error {
				sets[i] = append(sets[i], integer(row[0]))
				return nil
			}); err != nil {
				return 0, nil, err
			}
			if len(sets[i]) == limit {
				longer = i
				many++
			}
		}
		if many > 1 {
			continue
		}
		if longer < 0 {
			for i := range sets {
				if longer < 0 || len(sets[i]) > len(sets[longer]) {
					longer = i
				}
			}
		}
		for i := range sets {
			if i != longer {
				others = append(others, sets[i]...)
			}
		}
		if longer < 0 {
			return 0, nil, nil
		}
		return names[longer], distinct(others), nil
	}
}

// OpenOperation is an operation of OpenOf.
type OpenOperation struct {
	No, Run      int64
	Class        int64
	Blind        bool
	PendingUntil int64 // unix milliseconds; 0 where it does not apply
	End          int64 // offset in its run file at which its last line ends, newline left aside
	Position           // its place: time of the last event, run id and operation id in sortable form
}

// OpenOf gives the operations of the classes, newest first: those that carry one of
// the names, or all where names is nil. It reads little more than is taken. No class
// is none. atMost is how many there may be, 0 where that is not known. Those that pass
// tells are passed over, mostly before their rows are read; nil passes over none.
func (v *View) OpenOf(names, classes []int64, atMost int, pass func(op int64) bool) iter.Seq2[OpenOperation, error] {
	return func(yield func(OpenOperation, error) bool) {
		give := func(found []OpenOperation) bool {
			slices.SortFunc(found, func(a, b OpenOperation) int { return a.Compare(b.Position) })
			for _, o := range found {
				if !yield(o, nil) {
					return false
				}
			}
			return true
		}
		passed := func(o OpenOperation) bool { return pass != nil && pass(o.No) }
		if names != nil && atMost > 0 && atMost <= fewOpen {
			found, err := v.openFew(names, classes)
			if err != nil {
				yield(OpenOperation{}, err)
				return
			}
			give(slices.DeleteFunc(found, passed))
			return
		}
		below := []byte{0xff} // no time begins so
		for n, more := 20, true; more; n = min(4*n, 2048) {
			var found []OpenOperation
			var err error
			if found, below, more, err = v.openRound(names, classes, below, n); err != nil {
				yield(OpenOperation{}, err)
				return
			}
			found = slices.DeleteFunc(eachOnce(found), passed)
			slices.SortFunc(found, func(a, b OpenOperation) int { return bytes.Compare(b.Last, a.Last) })
			for len(found) > 0 {
				// Only as many rows are read as are likely to be taken; those of one
				// time are told apart by what is in the rows.
				some := min(n, len(found))
				for some < len(found) && bytes.Equal(found[some].Last, found[some-1].Last) {
					some++
				}
				if err := v.complete(found[:some]); err != nil {
					yield(OpenOperation{}, err)
					return
				}
				if !give(found[:some]) {
					return
				}
				found = found[some:]
			}
		}
	}
}

// fewOpen is how many open operations are found and read with one look.
const fewOpen = 32

// eachOnce sorts operations by number and drops those found under two names.
func eachOnce(found []OpenOperation) []OpenOperation {
	slices.SortFunc(found, func(a, b OpenOperation) int { return cmp.Compare(a.No, b.No) })
	return slices.CompactFunc(found, func(a, b OpenOperation) bool { return a.No == b.No })
}

// openFew finds all operations of OpenOf, whole, with one look.
func (v *View) openFew(names, classes []int64) (found []OpenOperation, err error) {
	err = v.scan(v.ctx, `SELECT n.class, n.last_key, `+openColumns+` FROM json_each(?1) j CROSS JOIN json_each(?2) c
		CROSS JOIN operation_names n ON n.name = j.value AND n.class = c.value CROSS JOIN operations o ON o.op_no = n.op_no`, []any{list(names), list(classes)}, func(row []driver.Value) error {
		last, _ := row[1].([]byte)
		o := OpenOperation{Class: integer(row[0]), Position: Position{Last: bytes.Clone(last)}}
		o.read(row[2:])
		found = append(found, o)
		return nil
	})
	if err != nil {
		return nil, err
	}
	found = eachOnce(found)
	return found, v.ofRuns(found)
}

// openColumns are what read takes of the row of an operation.
const openColumns = "o.op_no, o.run_no, o.op_key, o.blind IS NOT NULL, o.pending_until, o.spans"

func (o *OpenOperation) read(row []driver.Value) {
	key, _ := row[2].([]byte)
	blob, _ := row[5].([]byte)
	o.No, o.Run, o.Op = integer(row[0]), integer(row[1]), bytes.Clone(unpackKey(key))
	o.Blind, o.PendingUntil, o.End = integer(row[3]) != 0, integer(row[4]), endOfSpans(blob)
}

// openRound finds the newest operations of OpenOf before a time, about n of each name
// and class, and the time from which on these are all there are.
func (v *View) openRound(names, classes []int64, below []byte, n int) (found []OpenOperation, from []byte, more bool, err error) {
	if names == nil {
		names = []int64{0}
	}
	from = []byte{}
	for _, name := range names {
		for _, class := range classes {
			some, rest, err := v.openBelow(name, class, below, n)
			if err != nil {
				return nil, nil, false, err
			}
			found = append(found, some...)
			if first := lastOf(some); rest && (!more || bytes.Compare(first, from) > 0) {
				from, more = first, true
			}
		}
	}
	found = slices.DeleteFunc(found, func(o OpenOperation) bool { return bytes.Compare(o.Last, from) < 0 })
	return found, from, more, nil
}

func lastOf(found []OpenOperation) []byte {
	if len(found) == 0 {
		return nil
	}
	return found[len(found)-1].Last
}

// openBelow finds the newest operations of a class, and of a name where that is not
// 0, whose last event is before a time: about n of them, and of the last of their
// times all there are. rest tells whether there are more. It looks at an index only;
// most operations are found under two names.
func (v *View) openBelow(name, class int64, below []byte, n int) (found []OpenOperation, rest bool, err error) {
	query, args := "SELECT last_key, op_no FROM operations INDEXED BY operations_by_class WHERE class = ?", []any{class}
	if name != 0 {
		query, args = "SELECT last_key, op_no FROM operation_names WHERE name = ? AND class = ?", []any{name, class}
	}
	ask := func(when string, bounds ...any) error {
		found = found[:0]
		return v.scan(v.ctx, query+when, append(args, bounds...), func(row []driver.Value) error {
			last, _ := row[0].([]byte)
			found = append(found, OpenOperation{No: integer(row[1]), Class: class, Position: Position{Last: bytes.Clone(last)}})
			return nil
		})
	}
	if err := ask(" AND last_key < ? ORDER BY last_key DESC LIMIT ?", below, int64(n)); err != nil || len(found) < n {
		return found, false, err
	}
	oldest := lastOf(found)
	if bytes.Equal(found[0].Last, oldest) {
		err := ask(" AND last_key = ?", oldest) // all of one time: there may be more of it
		return found, true, err
	}
	// There may be more of the oldest time.
	return slices.DeleteFunc(found, func(o OpenOperation) bool { return bytes.Equal(o.Last, oldest) }), true, nil
}

// OperationsNewestFirst gives operations by number as OpenOf does; those that are gone
// are left out.
func (v *View) OperationsNewestFirst(numbers []int64) ([]OpenOperation, error) {
	var found []OpenOperation
	err := v.scan(v.ctx, "SELECT o.op_no, o.class, o.last_key FROM json_each(?) j CROSS JOIN operations o ON o.op_no = j.value ORDER BY j.value",
		[]any{list(distinct(slices.Clone(numbers)))}, func(row []driver.Value) error {
			last, _ := row[2].([]byte)
			found = append(found, OpenOperation{No: integer(row[0]), Class: integer(row[1]), Position: Position{Last: bytes.Clone(last)}})
			return nil
		})
	if err != nil {
		return nil, err
	}
	if err := v.complete(found); err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b OpenOperation) int { return a.Compare(b.Position) })
	return found, nil
}

// complete fills in what the rows of operations say, each there once, and sorts them by
// number.
func (v *View) complete(found []OpenOperation) error {
	slices.SortFunc(found, func(a, b OpenOperation) int { return cmp.Compare(a.No, b.No) })
	numbers := make([]int64, len(found))
	for i := range found {
		numbers[i] = found[i].No
	}
	i := 0
	if err := v.scan(v.ctx, "SELECT "+openColumns+" FROM json_each(?) j CROSS JOIN operations o ON o.op_no = j.value ORDER BY j.key", []any{list(numbers)}, func(row []driver.Value) error {
		for found[i].No != integer(row[0]) {
			i++
		}
		found[i].read(row)
		return nil
	}); err != nil {
		return err
	}
	return v.ofRuns(found)
}

// ofRuns fills in the run ids of operations.
func (v *View) ofRuns(found []OpenOperation) (err error) {
	for i := range found {
		if found[i].Position.Run, err = v.runKey(found[i].Run); err != nil {
			return err
		}
	}
	return nil
}

// Words gives the dictionary words behind numbers; a number that has none is left
// out.
func (v *View) Words(numbers []int64) (map[int64]string, error) {
	words := make(map[int64]string, len(numbers))
	err := v.scan(v.ctx, "SELECT w.word_no, w.word FROM json_each(?) j CROSS JOIN words w ON w.word_no = j.value", []any{list(distinct(slices.Clone(numbers)))}, func(row []driver.Value) error {
		words[integer(row[0])], _ = row[1].(string)
		return nil
	})
	return words, err
}

// WordNumbers gives the numbers of words, in their order, those without one left
// out: the index has never seen these.
func (v *View) WordNumbers(words []string) ([]int64, error) {
	numbers := []int64{}
	for _, w := range words {
		n, err := v.Word(w)
		if err != nil {
			return nil, err
		}
		if n != 0 && !slices.Contains(numbers, n) {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// OperationRef addresses an operation by its ids in sortable form (jsjson.SortKey).
type OperationRef struct {
	Run, Op []byte // an empty Op is the null operation
	Stray   bool   // an answer in no operation: Op means nothing
	offset  int64  // of a stray, in its run file
	file    []byte // the file name in sortable form
}

// OperationRefs gives the ids of operations by number; one that is gone is left out.
func (v *View) OperationRefs(ops []int64) (map[int64]OperationRef, error) {
	refs := make(map[int64]OperationRef, len(ops))
	err := v.scan(v.ctx, `SELECT o.op_no, r.run_key, o.op_key, NULL, r.file_key FROM json_each(?1) j CROSS JOIN operations o ON o.op_no = j.value CROSS JOIN runs r ON r.run_no = o.run_no WHERE j.value > 0
		UNION ALL SELECT -s.stray_no, r.run_key, NULL, s.offset, r.file_key FROM json_each(?1) j CROSS JOIN strays s ON s.stray_no = -j.value CROSS JOIN runs r ON r.run_no = s.run_no WHERE j.value < 0`,
		[]any{list(distinct(slices.Clone(ops)))}, func(row []driver.Value) error {
			r := OperationRef{Stray: row[3] != nil, offset: integer(row[3])}
			run, _ := row[1].([]byte)
			op, _ := row[2].([]byte)
			file, _ := row[4].([]byte)
			r.Run, r.file = slices.Clone(run), slices.Clone(file)
			if !r.Stray {
				r.Op = slices.Clone(unpackKey(op))
			}
			refs[integer(row[0])] = r
			return nil
		})
	return refs, err
}

// OperationsByRef gives the numbers of operations by their ids, in their order, 0
// where there is none or more than one: two files may have one run id. Within a
// generation of the index a number is never given to another operation; a run that is
// indexed again has new ones.
func (v *View) OperationsByRef(refs []OperationRef) ([]int64, error) {
	type wanted struct {
		Run  string `json:"r"`
		Op   string `json:"o"`
		Hash int32  `json:"h"`
	}
	asked := make([]wanted, len(refs))
	for i, r := range refs {
		asked[i] = wanted{hex.EncodeToString(r.Run), hex.EncodeToString(packKey(r.Op)), keyHash(r.Op)}
	}
	b, _ := json.Marshal(asked) // texts and integers: it cannot fail
	numbers := make([]int64, len(refs))
	several := make([]bool, len(refs))
	err := v.scan(v.ctx, `SELECT j.key, o.op_no FROM json_each(?) j CROSS JOIN runs r ON r.run_key = unhex(j.value ->> 'r')
		CROSS JOIN operations o ON o.run_no = r.run_no AND o.key_hash = j.value ->> 'h' AND o.op_key = unhex(j.value ->> 'o')`, []any{string(b)}, func(row []driver.Value) error {
		i := integer(row[0])
		several[i] = several[i] || numbers[i] != 0
		numbers[i] = integer(row[1])
		return nil
	})
	for i := range several {
		if several[i] || refs[i].Stray {
			numbers[i] = 0
		}
	}
	return numbers, err
}

// RunsChanged gives the runs that were changed by a transaction after rev, in order
// of change (Run.Rev). gone is the number of the last transaction that removed a run.
func (v *View) RunsChanged(rev int64) (runs []Run, gone int64, err error) {
	p, err := v.meta()
	if err != nil {
		return nil, 0, err
	}
	runs, err = v.runs(v.ctx, "INDEXED BY runs_changed WHERE rev > ? ORDER BY rev", rev)
	return runs, p.gone, err
}

// The kinds of damage.
const (
	DamageFault = "fault" // lines that are no sound events
	DamageEntry = "entry" // the entry cannot be read
	DamageTwin  = "twin"  // another file has the same run id
	DamageTorn  = "torn"  // the last line has no newline
)

// RunDamage is damage of one run, one kind of it.
type RunDamage struct {
	Run     int64  // its number
	RunID   string // WTF-8
	Rev     int64  // of the run
	Kind    string // Damage...
	Line    int64  // of the first fault, 1-based; 0 when it is not about a line
	Offset  int64  // of the first fault
	Reason  string // a short sentence
	Faults  int64  // how many
	Through int64  // offset of the newest fault: all damage of this kind is known up to it
	From    int64  // unix milliseconds from which it counts; 0 is always
}

// Damaged gives the runs that anything is wrong with, whatever it is, in listing
// order: of those changed by a transaction after rev, 0 for all.
func (v *View) Damaged(rev int64) ([]Run, error) {
	var runs []Run
	var err error
	if rev > 0 {
		runs, _, err = v.RunsChanged(rev)
		runs = slices.DeleteFunc(runs, func(r Run) bool { return r.Faults == 0 && !r.Twin && r.Torn == 0 })
	} else {
		for _, which := range []string{"faults > 0", "faults = 0 AND twin > 0", "faults = 0 AND twin = 0 AND torn > 0"} {
			some, err := v.runs(v.ctx, "WHERE "+which+" ORDER BY file_key")
			if err != nil {
				return nil, err
			}
			runs = append(runs, some...)
		}
	}
	slices.SortFunc(runs, func(a, b Run) int { return slices.Compare(a.FileKey, b.FileKey) })
	return runs, err
}

// Faults gives the first and the newest fault of a run; nil when it has none.
func (v *View) Faults(run int64) (first, newest *Fault, err error) {
	if first, err = v.fault("run_no = ? ORDER BY line LIMIT 1", run); err != nil || first == nil {
		return nil, nil, err
	}
	newest, err = v.fault("run_no = ? ORDER BY line DESC LIMIT 1", run)
	return first, newest, err
}

// FaultAfter is the first fault of a run beyond an offset; nil when there is none. Of
// very many faults of a run only the first ones and the newest are known one by one.
func (v *View) FaultAfter(run, offset int64) (*Fault, error) {
	return v.fault("run_no = ? AND offset > ? ORDER BY line LIMIT 1", run, offset)
}

func (v *View) fault(where string, args ...any) (*Fault, error) {
	var faults []Fault
	if err := v.sel(v.ctx, &faults, "SELECT line, offset, reason FROM faults WHERE "+where, args...); err != nil || len(faults) == 0 {
		return nil, err
	}
	return &faults[0], nil
}
