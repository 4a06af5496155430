package ingest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest/event"
	"github.com/settlewatch/settlewatch/internal/safefile"
	"github.com/settlewatch/settlewatch/store"
)

// This file holds what the guard asks for beside the index: evidence that vanished,
// and damage.

// Rewrite says that what was indexed of a run has vanished or changed.
type Rewrite struct {
	Run          string // id, WTF-8
	Covered      int64  // how far it had been indexed
	EventsBefore int64
	EventsAfter  int64  // sound events in the file as it is now
	How          string // shrunk, replaced, edited, removed
}

// The ways of Rewrite.How.
const (
	shrunk   = "shrunk"
	replaced = "replaced" // by another file, or by something that is no file
	edited   = "edited"
	removed  = "removed" // or no longer to be read
)

// GuardDir is the resolved guard directory; it may not be there yet.
func (x *Indexer) GuardDir() string { return x.guard }

// Root is the real path of the trace root.
func (x *Indexer) Root() string { return x.root }

// rewrites are the runs a pass found rewritten and left as they are, because nobody
// has been told of them yet.
type rewrites struct {
	mu    sync.Mutex
	found map[string]rewrite // by file
	told  map[string]rewrite // the owner of the turn clears a run that is in here
}

// rewrite is a rewritten run as the index knew it.
type rewrite struct {
	run *store.Run
	how string
}

func (r rewrite) same(o rewrite) bool {
	return r.run.No == o.run.No && r.run.Epoch == o.run.Epoch && r.run.Covered == o.run.Covered && r.run.CRC == o.run.CRC
}

// errRewritten says that a pass left runs as they are: see rewrites.
var errRewritten = errors.New("a run file was rewritten")

// untold tells whether a run that is about to be cleared must wait until its rewrite
// has been told, which never happens while an index transaction may be open: what is
// told to may hold a lock that another process holds while it waits for the index.
func (x *Indexer) untold(run *store.Run, how string) bool {
	if x.o.Rewritten == nil || run == nil || run.Covered == 0 {
		return false
	}
	x.rewrites.mu.Lock()
	defer x.rewrites.mu.Unlock()
	r := rewrite{run, how}
	file := string(run.File)
	if t, ok := x.rewrites.told[file]; ok && t.same(r) {
		return false
	}
	x.rewrites.found[file] = r
	return true
}

// look begins a pass: what earlier ones found may be mended by now.
func (r *rewrites) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.found)
}

// rewritten tells whether a pass left runs that were rewritten.
func (x *Indexer) rewritten() error {
	x.rewrites.mu.Lock()
	defer x.rewrites.mu.Unlock()
	if len(x.rewrites.found) > 0 {
		return errRewritten
	}
	clear(x.rewrites.told) // they are indexed again
	return nil
}

// tell tells of the rewrites found. Neither the turn nor a transaction is held: who
// is told may wait for a question that waits for the turn.
func (x *Indexer) tell(ctx context.Context) {
	x.rewrites.mu.Lock()
	found := maps.Clone(x.rewrites.found)
	x.rewrites.mu.Unlock()
	for _, file := range slices.Sorted(maps.Keys(found)) {
		r := found[file]
		if ctx.Err() != nil {
			return // the next pass finds it again
		}
		// Another process may have been here meanwhile.
		var now *store.Run
		if err := x.Snapshot(ctx, func(v *store.View) (err error) {
			now, err = v.RunByFile([]byte(file))
			return err
		}); err != nil || now == nil || !r.same(rewrite{run: now}) {
			continue
		}
		after := int64(0)
		if r.how != removed {
			after = x.countEvents(file)
		}
		x.o.Rewritten(ctx, Rewrite{Run: runID(now.Key), Covered: now.Covered, EventsBefore: now.Events, EventsAfter: after, How: r.how})
		x.rewrites.mu.Lock()
		x.rewrites.told[file] = r
		x.rewrites.mu.Unlock()
	}
}

// countEvents counts the sound events of a run file; what cannot be read has none.
func (x *Indexer) countEvents(file string) (n int64) {
	dir, err := x.openEvents()
	if err != nil {
		return 0
	}
	defer func() { _ = dir.Close() }()
	f, info, err := dir.Open(file)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	r := newLineReader(f, 0, info.Size, 0, nil)
	var doc jsjson.Doc
	for {
		line, _, tooLong, err := r.line()
		if err != nil {
			return n
		}
		if tooLong || jsjson.Blank(line) {
			continue
		}
		if _, fault := event.Decode(&doc, line); fault == "" {
			n++
		}
	}
}

// Prefix is the crc32c of the first n bytes of a run file (its entry name); ok is
// false when the file is gone, shorter, or no file that is read.
func (x *Indexer) Prefix(ctx context.Context, file []byte, n int64) (crc uint32, ok bool, err error) {
	if err := ctx.Err(); err != nil {
		return 0, false, err
	}
	dir, err := x.openEvents()
	if err != nil {
		return 0, false, notThere(err)
	}
	defer func() { _ = dir.Close() }()
	f, _, err := dir.Open(string(file))
	if err != nil {
		return 0, false, notThere(err)
	}
	defer func() { _ = f.Close() }()
	crc, short, err := checksum(readerWith{ctx, f}, 0, n, make([]byte, min(n+1, 256<<10)))
	return crc, err == nil && !short, err
}

// notThere takes the ways in which a run file can be missing for no error.
func notThere(err error) error {
	var not *safefile.NotRegular
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &not) {
		return nil
	}
	return err
}

// readerWith reads until a context ends.
type readerWith struct {
	ctx context.Context
	f   io.ReaderAt
}

func (r readerWith) ReadAt(p []byte, off int64) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.f.ReadAt(p, off)
}

// Damage lists what counts as damage in a snapshot, in listing order: of the runs
// changed by a transaction after rev, 0 for all runs. A run may be there once for
// each kind. Damage with a time in From counts from then on.
func (x *Indexer) Damage(v *store.View, rev int64) ([]store.RunDamage, error) {
	runs, err := v.Damaged(rev)
	if err != nil {
		return nil, err
	}
	var out []store.RunDamage
	for i := range runs {
		if out, err = damageOf(v, out, &runs[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func damageOf(v *store.View, out []store.RunDamage, r *store.Run) ([]store.RunDamage, error) {
	d := store.RunDamage{Run: r.No, RunID: runID(r.Key), Rev: r.Rev, Faults: 1}
	if r.Faults > 0 {
		first, newest, err := v.Faults(r.No)
		if err != nil {
			return nil, err
		}
		if first == nil {
			return nil, unsound("run %d has faults and none is known", r.No)
		}
		f := d
		f.Kind, f.Line, f.Offset, f.Reason = store.DamageFault, first.Line, first.Offset, faultText(first.Reason)
		f.Faults, f.Through = r.Faults, newest.Offset
		if r.EntryFault != nil {
			f.Kind = store.DamageEntry
		}
		out = append(out, f)
	}
	if r.Twin {
		t := d
		t.Kind, t.Reason = store.DamageTwin, twinText
		out = append(out, t)
	}
	if r.Torn != 0 {
		t := d
		t.Kind, t.Line, t.Offset, t.Through, t.Reason = store.DamageTorn, r.Lines+1, r.Covered, r.Covered, tornText
		if r.Torn != tornWhole {
			t.From = time.Unix(0, r.Stat.MtimeNs).Add(tornPatience).UnixMilli()
		}
		out = append(out, t)
	}
	return out, nil
}

const (
	twinText = "another run file has the same id"
	tornText = "the last line has no newline"
)
