package ingest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/store"
)

// Reindex fills the index anew from the run files, in one transaction: readers
// see the old rows until all the new ones are there. Several at once wait for
// each other. Where the usual place cannot be written it is an error.
func (x *Indexer) Reindex(ctx context.Context, report func(Progress)) (Counts, error) {
	if x.o.Rewritten != nil && !x.empty(ctx) {
		// What has vanished from the run files is told before it is forgotten. An
		// index that cannot be brought up to date any more cannot tell, and one that
		// holds nothing has nothing to tell: bringing it up to date would be the
		// whole work, done twice.
		if err := x.Sync(ctx); err != nil && ctx.Err() == nil {
			x.log.Warn("the index is filled anew without a last look at what it held", "error", err)
		}
	}
	select {
	case x.turn <- struct{}{}:
		defer func() { <-x.turn }()
	case <-ctx.Done():
		return Counts{}, ctx.Err()
	}
	for try := 0; ; try++ {
		ix, err := x.handle(ctx)
		if err != nil {
			return Counts{}, err
		}
		err = x.refill(ctx, ix, report)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return Counts{}, ctx.Err()
		}
		if try == attempts {
			return Counts{}, errcode.Wrap(err, errcode.Index, "run `settlewatch doctor`", "fill the index anew")
		}
		if errors.Is(err, store.ErrUnusable) {
			x.retire(ix, err)
		}
	}
	x.forgetHints()
	ix, err := x.handle(ctx)
	if err != nil {
		return Counts{}, err
	}
	if x.mu.Lock(); x.private != "" && !x.provisional {
		err = errcode.New(errcode.Index, "free space on its disk, or name a writable place with --index",
			"the index at %q cannot be written: a private one was filled, which goes with this process", x.path)
	}
	x.mu.Unlock()
	if err != nil {
		return Counts{}, err
	}
	var c Counts
	err = ix.Read(ctx, func(v *store.View) error {
		t, err := v.Totals()
		c = Counts(t)
		return err
	})
	return c, err
}

// empty tells whether the index as it is holds no run.
func (x *Indexer) empty(ctx context.Context) (empty bool) {
	err := x.Snapshot(ctx, func(v *store.View) error {
		t, err := v.Totals()
		empty = t.Runs == 0
		return err
	})
	return err == nil && empty
}

func (x *Indexer) refill(ctx context.Context, ix *store.Index, report func(Progress)) error {
	if x.apply.ix != ix {
		x.apply.reset(ix)
	}
	x.apply.forget()
	how := filling{anew: true, locked: true, report: report}
	dir, err := x.openEvents()
	if errors.Is(err, fs.ErrNotExist) && x.provisional {
		return nil // nothing is there and nothing is made
	}
	unlock, _, lerr := x.lock(ctx)
	if lerr != nil {
		return lerr
	}
	defer unlock()
	if errors.Is(err, fs.ErrNotExist) {
		return x.fill(ctx, ix, nil, nil, how)
	}
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Names(suffix)
	if err != nil {
		return err
	}
	var jobs []job
	for _, name := range names {
		info, err := dir.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		jobs = append(jobs, job{file: name, info: info})
	}
	return x.fill(ctx, ix, dir, jobs, how)
}

// differencesShown bounds what fsck tells of the differences it finds.
const differencesShown = 50

// Fsck builds an index beside the live one and compares the two row by row,
// and has SQLite check the pages of the live one. Run files may grow
// meanwhile, so a difference counts only if it is there again after both have
// been brought up to date.
func (x *Indexer) Fsck(ctx context.Context, report func(Progress)) (*FsckReport, error) {
	dir, err := os.MkdirTemp(filepath.Dir(x.path), "fsck-")
	if err != nil {
		dir, err = os.MkdirTemp("", "settlewatch-fsck-")
	}
	if err != nil {
		return nil, errcode.Wrap(err, errcode.Index, "make room or name a writable place with --index", "make a place for the index to compare with")
	}
	defer func() { _ = os.RemoveAll(dir) }()
	o := x.o
	o.Rewritten = nil // it is told of what happens to the live one
	o.Root, o.Index, o.GuardDir = x.root, filepath.Join(dir, store.FileName()), x.guard
	beside, err := Open(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { _ = beside.Close() }()
	if beside.eventsReal, err = x.eventsDir(); err != nil {
		beside.eventsReal = "" // it is not there; both will say so
	}
	if _, err := beside.Reindex(ctx, report); err != nil {
		return nil, err
	}
	var out *FsckReport
	for try := 0; try < 3; try++ {
		live, err := x.sync(ctx)
		if err != nil {
			return nil, err
		}
		fresh, err := beside.sync(ctx)
		if err != nil {
			return nil, err
		}
		out, err = compare(ctx, live.ix, fresh.ix)
		if errors.Is(err, store.ErrUnusable) {
			out = &FsckReport{Differences: []string{"the live index cannot be read whole: " + err.Error()}}
			x.retire(live.ix, err)
			break
		}
		if err != nil {
			return nil, errcode.Wrap(err, errcode.Index, "run `settlewatch reindex`", "compare the indexes")
		}
		if len(out.Differences) == 0 {
			break
		}
	}
	x.mu.Lock()
	out.Private = x.private != "" && !x.provisional
	x.mu.Unlock()
	return out, x.Ask(ctx, func(v *store.View) (err error) {
		_, out.Damaged, err = x.damage(v, 0, 0)
		return err
	})
}

// dumped is a row of store.View.Dump.
type dumped struct {
	section int
	line    string
}

func (d dumped) before(o dumped) bool {
	if d.section != o.section {
		return d.section < o.section
	}
	return d.line < o.line
}

func compare(ctx context.Context, live, fresh *store.Index) (*FsckReport, error) {
	out := &FsckReport{}
	differ := func(format string, args ...any) {
		if len(out.Differences) < differencesShown {
			out.Differences = append(out.Differences, fmt.Sprintf(format, args...))
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows := make(chan dumped, 256)
	failed := make(chan error, 1)
	go func() {
		defer close(rows)
		failed <- fresh.Read(ctx, func(v *store.View) error {
			return v.Dump(func(section int, s string) error {
				select {
				case rows <- dumped{section, s}:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		})
	}()
	err := live.Read(ctx, func(v *store.View) error {
		problems, err := v.CheckPages()
		if err != nil {
			return err
		}
		for _, p := range problems {
			differ("page check: %s", p)
		}
		t, err := v.Totals()
		if err != nil {
			return err
		}
		out.Counts = Counts(t)
		want, ok := <-rows
		err = v.Dump(func(section int, s string) error {
			have := dumped{section, s}
			for ok && want.before(have) {
				differ("missing: %s", want.line)
				want, ok = <-rows
			}
			if ok && want == have {
				want, ok = <-rows
			} else {
				differ("not from the files: %s", s)
			}
			return nil
		})
		for ok && err == nil {
			differ("missing: %s", want.line)
			want, ok = <-rows
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, <-failed
}
