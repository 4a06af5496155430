package ingest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/safefile"
	"github.com/settlewatch/settlewatch/store"
)

// Indexer serves one trace root. Its methods may be called from many
// goroutines, and any number of processes may have one on the same root.
type Indexer struct {
	o         Options
	root      string // real paths, resolved once
	events    string
	templates string
	guard     string
	path      string // of the index
	now       func() time.Time
	log       *slog.Logger

	mu          sync.Mutex // guards the handle and what follows
	eventsReal  string     // real path of events, once it was there
	ix          *store.Index
	privateAt   time.Time // when the usual place was last tried
	provisional bool      // a private one serves because there are no events yet
	private     string    // directory of a private index, "" while the usual place serves
	privateLock *flock.Flock

	// One pass over the run files at a time. A caller takes a ticket first;
	// a pass serves every ticket given out before it began.
	turn   chan struct{}
	asked  atomic.Int64
	served atomic.Int64
	synced atomic.Pointer[synced] // what the last pass that succeeded brought up to date

	// Owned by whoever holds the turn:
	apply      *applier
	parsers    []*parser
	fullPassAt time.Time
	generation int64           // of the index when it was last looked at
	linked     map[string]bool // runs with more than one link: always stated

	watcher    atomic.Pointer[watcher]
	needFull   atomic.Bool // the next pass states every run file
	needVerify atomic.Bool // some run grew without being compared whole
	suspects   sync.Map    // run files whose lines were found changed: indexed again by the next pass
	rewrites   rewrites
}

// fullPassEvery is how often every run file is stated although a healthy
// watcher would have told of a change.
const fullPassEvery = 5 * time.Minute

// Open resolves the root and opens its index, making the guard directory and
// the index file where they are missing. It reads no run file yet.
func Open(ctx context.Context, o Options) (*Indexer, error) {
	x := &Indexer{o: o, now: o.Now, log: o.Log, turn: make(chan struct{}, 1), linked: map[string]bool{},
		rewrites: rewrites{found: map[string]rewrite{}, told: map[string]rewrite{}}}
	if x.now == nil {
		return nil, errors.New("ingest: Options.Now is required")
	}
	if x.log == nil {
		x.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if x.root, err = resolve(o.Root); err != nil {
		return nil, errcode.Wrap(err, errcode.Root, "name the directory that holds events/ with --dir", "open the trace root %q", o.Root)
	}
	// events/ may come later; see openEvents.
	x.events = filepath.Join(x.root, "events")
	x.templates = filepath.Join(x.root, "templates")
	if o.TemplatesDir != "" {
		// A directory that is not there holds no template, as a file that is not
		// there is none (trace contract, section 4).
		x.templates, err = resolve(o.TemplatesDir)
		if errors.Is(err, fs.ErrNotExist) {
			x.templates, err = filepath.Abs(o.TemplatesDir)
		}
		if err != nil {
			return nil, errcode.Wrap(err, errcode.Root, "name an existing directory with --templates-dir", "open the templates directory %q", o.TemplatesDir)
		}
	}
	x.guard = filepath.Join(x.root, "guard")
	if o.GuardDir != "" {
		if x.guard, err = filepath.Abs(o.GuardDir); err != nil {
			return nil, errcode.Wrap(err, errcode.Root, "name an existing directory", "open the guard directory %q", o.GuardDir)
		}
	}
	x.path = filepath.Join(x.guard, store.FileName())
	if o.Index != "" {
		if x.path, err = filepath.Abs(o.Index); err != nil {
			return nil, errcode.Wrap(err, errcode.Usage, "name a file with --index", "open the index %q", o.Index)
		}
	}
	x.apply = newApplier(x)
	if _, err := x.handle(ctx); err != nil {
		return nil, err
	}
	return x, nil
}

func resolve(path string) (string, error) {
	real, err := safefile.ResolveRoot(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is not a directory", path)
	}
	return real, nil
}

// Close stops the watcher and closes the index.
func (x *Indexer) Close() error {
	if w := x.watcher.Swap(nil); w != nil {
		w.close()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.dropHandle()
}

func (x *Indexer) dropHandle() error {
	var err error
	if x.ix != nil {
		err = x.ix.Close()
		x.ix = nil
	}
	if x.private != "" {
		_ = os.RemoveAll(x.private)
		_ = x.privateLock.Close()
		x.private = ""
	}
	return err
}

// handle gives the open index, opening it first where needed.
func (x *Indexer) handle(ctx context.Context) (*store.Index, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.provisional {
		if _, err := os.Stat(x.events); err == nil {
			_ = x.dropHandle() // the events are there now
		}
	}
	if x.ix != nil && !x.ix.Moved() {
		return x.ix, nil
	}
	if err := x.dropHandle(); err != nil {
		x.log.Debug("close the index", "error", err)
	}
	var ix *store.Index
	_, err := os.Stat(x.events)
	x.provisional = errors.Is(err, fs.ErrNotExist)
	if x.provisional {
		// Nothing is made in a directory that may not be a trace root at all.
		ix, err = x.openPrivate(ctx)
	} else {
		ix, err = x.openUsual(ctx)
	}
	if err != nil && ctx.Err() == nil && !x.provisional {
		// A root on a read-only disk, a full one, an index held by a stranger:
		// the files are the truth, so a private index answers the same.
		x.log.Warn("the index at its usual place cannot be used; a private one serves", "index", x.path, "error", err)
		ix, err = x.openPrivate(ctx)
	}
	if err != nil {
		return nil, errcode.Wrap(err, errcode.Index, "free space in the temporary directory (TMPDIR), or name a writable place with --index", "open the index")
	}
	x.ix = ix
	return ix, nil
}

func (x *Indexer) openUsual(ctx context.Context) (*store.Index, error) {
	if err := os.MkdirAll(filepath.Dir(x.path), 0o700); err != nil {
		return nil, err
	}
	_, err := os.Lstat(x.path)
	if err == nil {
		var ix *store.Index
		if ix, err = store.Open(ctx, x.path); err == nil || !errors.Is(err, store.ErrUnusable) {
			return ix, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	unlock, _, lerr := x.lock(ctx)
	if lerr != nil {
		return nil, lerr
	}
	defer unlock()
	// Another process may have put a fresh one there while we waited.
	if _, err := os.Lstat(x.path); errors.Is(err, fs.ErrNotExist) {
		if err := store.Sweep(x.path); err != nil {
			return nil, err
		}
	}
	ix, err := store.Open(ctx, x.path)
	if !errors.Is(err, store.ErrUnusable) {
		return ix, err
	}
	x.log.Warn("the index is not usable; it is set aside and built again from the run files", "index", x.path, "error", err)
	if err := store.Discard(x.path); err != nil {
		return nil, err
	}
	return store.Open(ctx, x.path)
}

func (x *Indexer) openPrivate(ctx context.Context) (*store.Index, error) {
	sweepPrivate()
	dir, err := os.MkdirTemp("", privatePrefix)
	if err != nil {
		return nil, err
	}
	lock := flock.New(filepath.Join(dir, privateLock), flock.SetPermissions(0o600))
	var ix *store.Index
	// Waits where another process looks just now whether it was left behind.
	if err = lock.Lock(); err == nil {
		ix, err = store.Open(ctx, filepath.Join(dir, store.FileName()))
	}
	if err != nil {
		_ = lock.Close()
		_ = os.RemoveAll(dir)
		return nil, err
	}
	x.private, x.privateLock, x.privateAt = dir, lock, x.now()
	return ix, nil
}

// A private index stands in a directory of its own, with a lock that its process holds.
const (
	privatePrefix = "settlewatch-index-"
	privateLock   = "lock"
)

// sweepPrivate removes private indexes of processes that were killed.
func sweepPrivate() {
	locks, _ := filepath.Glob(filepath.Join(os.TempDir(), privatePrefix+"*", privateLock))
	for _, path := range locks {
		if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
			continue // the directory is everybody's
		}
		l := flock.New(path, flock.SetFlag(os.O_RDWR)) // no pipe can keep it waiting
		if free, err := l.TryLock(); err == nil && free {
			_ = os.RemoveAll(filepath.Dir(path))
		}
		_ = l.Close()
	}
}

// lock takes the lock that whole-index work holds: setting a broken file
// aside, filling an empty one, a reindex. A process that waits for it finds
// the work done.
func (x *Indexer) lock(ctx context.Context) (unlock func(), waited bool, err error) {
	l := flock.New(x.path+".lock", flock.SetPermissions(0o600))
	ok, err := l.TryLock()
	if err == nil && !ok {
		waited = true
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		ok, err = l.TryLockContext(ctx, 20*time.Millisecond)
	}
	switch {
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return nil, waited, fmt.Errorf("lock the index: %w", err)
	case !ok:
		return nil, waited, fmt.Errorf("%w: another process has held %s.lock for a minute", store.ErrBusy, filepath.Base(x.path))
	}
	return func() { _ = l.Unlock() }, waited, nil
}

// retire closes an index that proved unusable, unless another caller has
// replaced it already.
func (x *Indexer) retire(ix *store.Index, why error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ix != ix {
		return
	}
	x.log.Warn("the index is opened again", "error", why)
	if errors.Is(why, store.ErrUnusable) && x.private == "" {
		// The file looked sound when it was opened and is not: nothing but a
		// fresh one helps, unless another process has put one there already.
		if unlock, _, err := x.lock(context.Background()); err == nil {
			if !ix.Moved() {
				if err := store.Discard(x.path); err != nil {
					x.log.Warn("the index cannot be set aside", "error", err)
				}
			}
			unlock()
		}
	}
	_ = x.dropHandle()
}

// attempts bounds how often a question is asked again after the index under it
// was replaced or another process got ahead.
const attempts = 8

// staleAttempts is the same where another process was faster with the same lines. Then
// one of the two got on, and the next time it is mostly the other.
const staleAttempts = 64

// Sync makes the index cover every complete line that was in the run files
// when it was called.
func (x *Indexer) Sync(ctx context.Context) error {
	_, err := x.sync(ctx)
	return err
}

// synced is an index that was brought up to date, which filling of it, and the last
// transaction that removed a run from that.
type synced struct {
	ix               *store.Index
	generation, gone int64
}

func (x *Indexer) sync(ctx context.Context) (*synced, error) {
	ticket := x.asked.Add(1)
	for try := 0; ; try++ {
		done, err := x.turnOf(ctx, ticket)
		if !errors.Is(err, errRewritten) {
			return done, err
		}
		if try == attempts {
			return nil, errcode.Wrap(err, errcode.Index, "ask again when the run files are no longer being rewritten", "bring the index up to date")
		}
		x.tell(ctx)
	}
}

// follow indexes what the watcher has told of so far. Nobody waits for it, so it need
// not cover what was written a moment ago: that will be told of next.
func (x *Indexer) follow(ctx context.Context) error {
	err := x.inTurn(ctx, func() error {
		ix, err := x.handle(ctx)
		if err == nil {
			err = x.pass(ctx, ix, (*watcher).told)
		}
		if err != nil {
			x.forgetHints()
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		return x.Sync(ctx) // which knows what to do about it
	}
	return err
}

// inTurn runs fn when nobody else looks at the run files.
func (x *Indexer) inTurn(ctx context.Context, fn func() error) error {
	select {
	case x.turn <- struct{}{}:
		defer func() { <-x.turn }()
		return fn()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// turnOf waits for the turn and, unless somebody else has served the ticket
// meanwhile, makes passes until one succeeds. It gives errRewritten when the rest
// waits for somebody to be told of rewritten runs.
func (x *Indexer) turnOf(ctx context.Context, ticket int64) (*synced, error) {
	select {
	case x.turn <- struct{}{}:
		defer func() { <-x.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ix, err := x.handle(ctx)
	if done := x.synced.Load(); err == nil && x.served.Load() >= ticket && x.apply.ix == ix && done.ix == ix {
		return done, nil
	}
	x.comeBack(ctx)
	for try := 0; ; try++ {
		upTo := x.asked.Load()
		if ix, err = x.handle(ctx); err != nil {
			return nil, err
		}
		if err = x.pass(ctx, ix, (*watcher).changes); err == nil {
			done := &synced{ix, x.generation, x.apply.gone}
			x.synced.Store(done)
			x.served.Store(upTo)
			return done, nil
		}
		x.forgetHints()
		most := attempts
		if errors.Is(err, errStale) {
			most = staleAttempts
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, errRewritten):
			return nil, err
		case errors.As(err, new(*errcode.Error)):
			return nil, err // waiting does not help
		case try >= most:
			return nil, errcode.Wrap(err, errcode.Index, "run `settlewatch doctor`", "bring the index up to date")
		case errors.Is(err, errStale):
			// Another process indexed the same lines first; look again.
		case errors.Is(err, store.ErrUnusable):
			x.retire(ix, err)
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, errChanged):
			// A run file went away or changed between two looks at it.
		case errors.As(err, new(writeError)):
			if errors.Is(err, store.ErrBusy) && x.ourOwn(ctx) {
				continue // another process of ours is filling the index
			}
			x.goPrivate(ix, err)
		default:
			return nil, errcode.Wrap(err, errcode.Index, "run `settlewatch doctor`", "read the run files")
		}
	}
}

// ourOwn tells whether the index is held by whole-index work of our own, which
// holds the lock beside it; if so it waits for that to end.
func (x *Indexer) ourOwn(ctx context.Context) bool {
	unlock, waited, err := x.lock(ctx)
	if err != nil {
		return false
	}
	unlock()
	return waited
}

// goPrivate gives up on the usual place for as long as this process lives:
// it is locked by a stranger, on a full disk, or read-only.
func (x *Indexer) goPrivate(ix *store.Index, why error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ix != ix || x.private != "" {
		return
	}
	x.log.Warn("the index cannot be written; a private one serves", "index", x.path, "error", why)
	_ = x.dropHandle()
	if fresh, err := x.openPrivate(context.Background()); err == nil {
		x.ix = fresh
	}
}

// privateFor is how long a private index serves before the usual place is
// tried again.
const privateFor = time.Minute

// comeBack goes back from a private index to the usual place once that can be
// written again.
func (x *Indexer) comeBack(ctx context.Context) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.private == "" || x.provisional || x.now().Sub(x.privateAt) < privateFor {
		return
	}
	x.privateAt = x.now()
	ix, err := x.openUsual(ctx)
	if err != nil {
		return
	}
	if err := ix.Write(ctx, func(*store.Tx) error { return nil }); err != nil {
		_ = ix.Close()
		return
	}
	x.log.Info("the index at its usual place can be used again", "index", x.path)
	_ = x.dropHandle()
	x.ix = ix
}

// Ask brings the index up to date and runs fn over one snapshot. It runs fn again,
// over another one, when the index under it turns out to be unusable.
func (x *Indexer) Ask(ctx context.Context, fn func(*store.View) error) error {
	return x.over(ctx, func(ctx context.Context, _ int) (*synced, error) { return x.sync(ctx) }, fn)
}

// AskSynced is Ask over what this process has brought up to date last, or something
// newer; it looks at the run files only where that is no longer there.
func (x *Indexer) AskSynced(ctx context.Context, fn func(*store.View) error) error {
	return x.over(ctx, func(ctx context.Context, try int) (*synced, error) {
		if done := x.synced.Load(); try == 0 && done != nil && x.uses(done.ix) {
			return done, nil
		}
		return x.sync(ctx)
	}, fn)
}

// uses tells whether an index is the one that answers.
func (x *Indexer) uses(ix *store.Index) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ix == ix
}

// Snapshot is Ask over the index as it is, without a look at the run files.
func (x *Indexer) Snapshot(ctx context.Context, fn func(*store.View) error) error {
	return x.over(ctx, func(ctx context.Context, _ int) (*synced, error) {
		ix, err := x.handle(ctx)
		return &synced{ix: ix}, err
	}, fn)
}

// over runs fn over a snapshot of the index that get gives. Where get says which
// filling of it that is, no other will do: one that another process committed since
// may lack lines that were read into the one before. Nor will one that another process
// has removed a run from: where that saw no run file, it may be there.
func (x *Indexer) over(ctx context.Context, get func(ctx context.Context, try int) (*synced, error), fn func(*store.View) error) error {
	for try := 0; ; try++ {
		on, err := get(ctx, try)
		if err != nil {
			return err
		}
		err = on.ix.Read(ctx, func(v *store.View) error {
			if on.generation == 0 {
				return fn(v)
			}
			generation, _, err := v.Meta()
			if err != nil {
				return err
			}
			if gone, err := v.Gone(); err != nil {
				return err
			} else if generation != on.generation || gone != on.gone {
				return errRefilled
			}
			return fn(v)
		})
		switch {
		case err == nil || ctx.Err() != nil:
			return err
		case try == attempts && errors.Is(err, errRefilled):
			return errcode.Wrap(err, errcode.Index, "ask again when the index is no longer being filled", "read the index")
		case try == attempts:
			return err
		case errors.Is(err, store.ErrUnusable), errors.Is(err, store.ErrBusy):
			x.retire(on.ix, err)
		case errors.Is(err, errRefilled):
			x.needFull.Store(true)
		default:
			return err
		}
	}
}

// errRefilled says that the index is another filling than the one brought up to date,
// or has lost runs since.
var errRefilled = errors.New("the index was filled anew, or lost a run, meanwhile")

// Library resolves templates: the root's own first, then the shipped ones.
func (x *Indexer) Library() assemble.Library {
	return assemble.Library{Dir: x.templates, Read: func(name string) ([]byte, error) {
		return readTemplate(x.templates, name)
	}}
}

const maxTemplate = 1 << 20

func readTemplate(dir, name string) ([]byte, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err // fs.ErrNotExist: no directory, so the shipped one is meant
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	return safefile.ReadFile(filepath.Join(dir, name), maxTemplate)
}
