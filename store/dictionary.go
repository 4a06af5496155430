package store

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"errors"
	"hash/crc32"
	"slices"
	"sync"
)

// dictionary remembers what the index has numbers for. Within one filling of the
// index a number keeps its meaning and there are only ever more of them, so that a
// question loads what is new.
type dictionary struct {
	mu         sync.Mutex
	generation int64
	rev        int64 // classes and types are known up to this change; -1: none are
	words      map[string]int64
	classes    []Class
	types      map[int64]Type
	lastType   int64
	runs       map[int64][]byte // run ids in sortable form, since the run was removed that
	gone       int64            // this transaction was the last to remove
}

// enter forgets what was learnt of another filling. The caller holds the lock.
func (d *dictionary) enter(generation int64) {
	if d.words == nil || d.generation != generation {
		d.generation, d.rev, d.words, d.classes, d.types, d.lastType, d.runs = generation, -1, map[string]int64{}, nil, map[int64]Type{}, 0, nil
	}
}

const findWord = "SELECT word_no FROM words WHERE hash = ? AND word = ?"

// wordHash is what words are found by.
func wordHash(w string) int64 { return int64(int32(crc32.ChecksumIEEE([]byte(w)))) }

// Word gives the number of a dictionary word, 0 when it has none; the empty one never
// has.
func (v *View) Word(w string) (int64, error) {
	if w == "" {
		return 0, nil
	}
	generation, _, err := v.Meta()
	if err != nil {
		return 0, err
	}
	d := v.known
	d.mu.Lock()
	d.enter(generation)
	n := d.words[w]
	d.mu.Unlock()
	if n != 0 {
		return n, nil
	}
	err = v.one(findWord, []any{wordHash(w), w}, &n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil // perhaps the next question finds it
	}
	if err != nil {
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.enter(generation)
	if len(d.words) >= maxCached {
		d.words = map[string]int64{}
	}
	d.words[w] = n
	return n, nil
}

// runKey gives the id of a run in sortable form. It stays the same until a run is
// removed, whose number may be given to another one then.
func (v *View) runKey(run int64) ([]byte, error) {
	p, err := v.meta()
	if err != nil {
		return nil, err
	}
	d := v.known
	d.mu.Lock()
	d.enterRuns(p)
	key := d.runs[run]
	d.mu.Unlock()
	if key != nil {
		return key, nil
	}
	err = v.scan(v.ctx, "SELECT run_key FROM runs WHERE run_no = ?", []any{run}, func(row []driver.Value) error {
		blob, _ := row[0].([]byte)
		key = bytes.Clone(blob)
		return nil
	})
	if err != nil || key == nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.enterRuns(p)
	if len(d.runs) >= maxRuns {
		clear(d.runs)
	}
	d.runs[run] = key
	return key, nil
}

// maxRuns bounds the run ids that are remembered.
const maxRuns = 1 << 14

// enterRuns forgets the ids of runs that may be others now. The caller holds the lock.
func (d *dictionary) enterRuns(p place) {
	d.enter(p.generation)
	if d.runs == nil || d.gone != p.gone {
		d.runs, d.gone = map[int64][]byte{}, p.gone
	}
}

// Shapes gives every class and type the snapshot can mention, classes in the order
// of their numbers. Nothing of it may be changed.
func (v *View) Shapes() ([]Class, map[int64]Type, error) {
	generation, rev, err := v.Meta()
	if err != nil {
		return nil, nil, err
	}
	d := v.known
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.enter(generation); rev > d.rev {
		if err := v.learn(d); err != nil {
			return nil, nil, err
		}
		d.rev = rev
	}
	return slices.Clip(d.classes), d.types, nil
}

func (v *View) learn(d *dictionary) error {
	var last int64
	if n := len(d.classes); n > 0 {
		last = d.classes[n-1].No
	}
	classes, err := v.Classes(last)
	if err != nil {
		return err
	}
	more, err := v.Types(d.lastType)
	if err != nil {
		return err
	}
	if len(more) > 0 {
		// Callers keep the map they were given, so a new one takes its place.
		all := make(map[int64]Type, len(d.types)+len(more))
		for no, t := range d.types {
			all[no] = t
		}
		for no, t := range more {
			all[no] = t
			d.lastType = max(d.lastType, no)
		}
		d.types = all
	}
	d.classes = append(d.classes, classes...)
	return nil
}

// word gives the number of a dictionary word; nil for the empty one.
func (t *Tx) word(w string) (any, error) {
	if w == "" {
		return nil, nil
	}
	// A payment repeats the words of its operation.
	for i := range t.lately {
		if t.lately[i].word == w {
			return t.lately[i].no, nil
		}
	}
	no, err := t.wordNumber(w)
	if err != nil {
		return nil, err
	}
	t.lately[t.turn] = recent{w, no}
	t.turn = (t.turn + 1) % len(t.lately)
	return no, nil
}

// recent is a word used a moment ago. Its number is kept as the interface that
// statements take.
type recent struct {
	word string
	no   any
}

func (t *Tx) wordNumber(w string) (any, error) {
	if n, ok := t.words[w]; ok {
		return n, nil
	}
	if t.newWord > 0 && len(t.words) < maxCached {
		// Filling: every word there is, is in the cache.
		n := t.newWord
		t.newWord++
		t.words[w] = n
		return n, t.add(&t.newWords, 0, n, w, wordHash(w))
	}
	if err := t.drain(&t.newWords); err != nil {
		return nil, err
	}
	t.newWord = 0
	var n int64
	err := t.one(findWord, []any{wordHash(w), w}, &n)
	if errors.Is(err, sql.ErrNoRows) {
		err = t.one("INSERT INTO words (word, hash) VALUES (?,?) RETURNING word_no", []any{w, wordHash(w)}, &n)
	}
	if err != nil {
		return nil, err
	}
	if len(t.words) >= maxCached {
		t.words = map[string]int64{}
	}
	t.words[w] = n
	return n, nil
}

// number finds the number of an entry of a dictionary, or makes one of the same values.
func (t *Tx) number(find, insert string, args ...any) (n int64, err error) {
	if err = t.one(find, args, &n); errors.Is(err, sql.ErrNoRows) {
		err = t.one(insert, args, &n)
	}
	return n, err
}

// Type gives the number of a pair of event type and role.
func (t *Tx) Type(p Type) (int64, error) {
	if n, ok := t.types[p]; ok {
		return n, nil
	}
	n, err := t.number("SELECT type_no FROM types WHERE event_type = ? AND has_role = ? AND role = ?",
		"INSERT INTO types (event_type, has_role, role) VALUES (?,?,?) RETURNING type_no", []byte(p.EventType), int64(boolInt(p.HasRole)), []byte(p.Role))
	if err != nil {
		return 0, err
	}
	if len(t.types) >= maxCached {
		t.types = map[Type]int64{}
	}
	t.types[p] = n
	return n, nil
}

func (t *Tx) class(shape []int64, settlement int) (int64, error) {
	blob := shapeKey(shape)
	key := string(blob) + string(rune(settlement))
	if n, ok := t.classes[key]; ok {
		return n, nil
	}
	n, err := t.number("SELECT class_no FROM classes WHERE shape = ? AND settlement = ?",
		"INSERT INTO classes (shape, settlement) VALUES (?,?) RETURNING class_no", blob, int64(settlement))
	if err != nil {
		return 0, err
	}
	if len(t.classes) >= maxCached {
		t.classes = map[string]int64{}
	}
	t.classes[key] = n
	return n, nil
}
