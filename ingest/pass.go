package ingest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/safefile"
	"github.com/settlewatch/settlewatch/store"
)

const suffix = ".ndjson"

// errStale says that the index moved on between reading a run's row and
// writing to it: another process indexed the same lines.
var errStale = errors.New("the index moved on meanwhile")

// errChanged says that lines the index knows are no longer what they were.
var errChanged = errors.New("a run file changed under its index")

// writeError is a failure to write the index, as against one to read files.
type writeError struct{ error }

func (e writeError) Unwrap() error { return e.error }

const (
	// Above this much to read, a pass takes the whole-index lock and keeps
	// transactions open while the parsers work.
	bulkBytes = 32 << 20
	// Operations a transaction of a bulk pass holds before it commits, so that
	// the write-ahead log stays small.
	bulkCommit = 32768
)

// fileID gives the sortable run id and listing key of an entry name. The id is
// the name less one final suffix, unless nothing would be left (trace
// contract, section 2).
func fileID(file string) (runKey, fileKey []byte) {
	name := jsjson.ToWTF8(nil, []byte(file))
	fileKey = jsjson.SortKey(nil, name)
	if len(name) > len(suffix) {
		name = name[:len(name)-len(suffix)]
	}
	return jsjson.SortKey(nil, name), fileKey
}

// job is one run file a pass has to look at.
type job struct {
	file string
	run  *store.Run // nil: not in the index
	info safefile.Info
	gone bool
	// verify: compare every covered byte, not just the first and last block.
	verify bool
	again  bool // index it from its start: lines of it were found changed
}

// pass brings the index up to date once. hints is how it learns from the watcher, where
// there is one, which run files to look at. The caller holds the turn.
func (x *Indexer) pass(ctx context.Context, ix *store.Index, hints func(*watcher, context.Context) ([]string, bool)) error {
	if x.apply.ix != ix {
		x.apply.reset(ix)
		x.forgetHints()
	}
	x.rewrites.look()
	w := x.watcher.Load()
	names, told := []string(nil), false
	if x.needFull.Swap(false) {
		x.forgetHints()
	}
	if w != nil && x.now().Sub(x.fullPassAt) < fullPassEvery && x.now().Sub(x.fullPassAt) >= 0 {
		names, told = hints(w, ctx)
	}
	dir, err := x.openEvents()
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(x.root); err != nil {
			return errcode.Wrap(err, errcode.Root, "name the directory that holds events/ with --dir", "open the trace root")
		}
		jobs, err := goneJobs(ctx, ix)
		if err != nil {
			return err
		}
		if err := x.fill(ctx, ix, dir, jobs, filling{}); err != nil {
			return err
		}
		x.generation = 0 // any filling will do, since there is nothing to cover
		x.forgetHints()  // nobody tells of what is there when the directory comes back
		return x.rewritten()
	}
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if told && w.moved() {
		told = false
	}
	if told {
		for name := range x.linked {
			names = append(names, name)
		}
		if len(names) == 0 {
			return nil
		}
		jobs, err := x.named(ctx, ix, dir, names)
		if err == nil {
			if err := x.fill(ctx, ix, dir, jobs, filling{}); err != nil {
				return err
			}
			return x.settled()
		}
		if !errors.Is(err, errGone) && !errors.Is(err, errRefilled) {
			return err
		}
	}
	if w != nil {
		w.restart()
	}
	at := x.now()
	jobs, known, generation, err := x.all(ctx, ix, dir)
	if err != nil {
		return err
	}
	anew := known == 0 && toRead(jobs) > bulkBytes
	if err := x.fill(ctx, ix, dir, jobs, filling{anew: anew}); err != nil {
		return err
	}
	if x.generation = generation; anew {
		x.generation = x.apply.generation // filled by us, just now
	}
	x.fullPassAt = at
	x.needVerify.Store(false) // a full pass compares whatever grew
	return x.settled()
}

// settled tells whether a pass left no run that must be indexed again.
func (x *Indexer) settled() (err error) {
	if err := x.rewritten(); err != nil {
		return err
	}
	x.suspects.Range(func(any, any) bool {
		err = errChanged
		return false
	})
	return err
}

// forgetHints makes the next pass state every run file: a failed pass may have
// used up what the watcher told.
func (x *Indexer) forgetHints() { x.fullPassAt = x.now().Add(-2 * fullPassEvery) }

// openEvents opens the events directory, which may be a link: it is resolved
// once, when it is first seen, and nothing below it is ever followed. One that leads
// elsewhere later is an error.
func (x *Indexer) openEvents() (*safefile.Dir, error) {
	real, err := x.eventsDir()
	if err != nil {
		return nil, err
	}
	dir, err := safefile.OpenDir(real)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil && real != x.events {
		// Files of another directory than the one that is named now would be answered for.
		if err = sameDirectory(x.events, real); err != nil {
			_ = dir.Close()
		}
	}
	if err == nil {
		return dir, nil
	}
	if errors.As(err, new(*errcode.Error)) {
		return nil, err
	}
	return nil, errcode.Wrap(err, errcode.Root, "make events/ a directory this user can read", "open the events directory of the root")
}

func sameDirectory(a, b string) error {
	first, err := os.Stat(a)
	if err != nil {
		// Not that the events are gone: they are where they were.
		return errcode.New(errcode.Root, "lead it back, or start anew to go on with what it names now", "%q led to %q when it was first seen, and leads nowhere now: %v", a, b, errcode.Bare(err))
	}
	second, err := os.Stat(b)
	if err == nil && !os.SameFile(first, second) {
		err = errcode.New(errcode.Root, "lead it back, or start anew to go on with what it names now", "%q led to %q when it was first seen, and leads elsewhere now", a, b)
	}
	return err
}

func (x *Indexer) eventsDir() (string, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.eventsReal == "" {
		real, err := filepath.EvalSymlinks(x.events)
		if err != nil {
			return "", err
		}
		x.eventsReal = real
	}
	return x.eventsReal, nil
}

// errGone says that an entry a watcher told of is not there: it was removed, or
// is written to under another name by now.
var errGone = errors.New("an entry is gone")

// stat is dir.Stat for entries that may be in any state: one that cannot be
// stated is looked at more closely when it is opened.
func stat(dir *safefile.Dir, name string) (safefile.Info, error) {
	info, err := dir.Stat(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !shortage(err) {
		return safefile.Info{Kind: "unreadable"}, nil
	}
	return info, err
}

// named makes jobs for the entries a watcher told of.
func (x *Indexer) named(ctx context.Context, ix *store.Index, dir *safefile.Dir, names []string) ([]job, error) {
	slices.Sort(names)
	names = slices.Compact(names)
	jobs := make([]job, 0, len(names))
	err := ix.Read(ctx, func(v *store.View) error {
		// An index that was filled anew by another process may lack what we were
		// told of and passed on to the old one.
		if generation, _, err := v.Meta(); err != nil {
			return err
		} else if generation != x.generation {
			return errRefilled
		}
		for _, name := range names {
			run, err := v.RunByFile([]byte(name))
			if err != nil {
				return err
			}
			info, err := stat(dir, name)
			if errors.Is(err, fs.ErrNotExist) || !strings.HasSuffix(name, suffix) {
				return errGone
			}
			if err != nil {
				return err
			}
			if info.Nlink > 1 {
				x.linked[name] = true
			}
			if run != nil && unchanged(run, info) {
				continue
			}
			jobs = append(jobs, job{file: name, run: run, info: info})
		}
		return nil
	})
	return jobs, err
}

// survey is what the index knows of its runs, and what there is of their files.
type survey struct {
	known            map[string]store.Identity
	generation, gone int64
	names            []string
	infos            []safefile.Info // of names; one that vanished since it was listed has no kind
}

// look makes a survey, of both sides at once.
func look(ctx context.Context, ix *store.Index, dir *safefile.Dir) (*survey, error) {
	s := &survey{}
	var g errgroup.Group
	g.Go(func() error {
		return ix.Read(ctx, func(v *store.View) (err error) {
			if s.generation, _, err = v.Meta(); err != nil {
				return err
			}
			if s.gone, err = v.Gone(); err != nil {
				return err
			}
			s.known, err = v.Identities()
			return err
		})
	})
	g.Go(func() (err error) {
		if s.names, err = dir.Names(suffix); err != nil {
			return err
		}
		s.infos = make([]safefile.Info, len(s.names))
		for i, name := range s.names {
			if s.infos[i], err = stat(dir, name); err != nil {
				if !errors.Is(err, fs.ErrNotExist) {
					return err
				}
				s.infos[i].Kind = ""
			}
		}
		return nil
	})
	return s, g.Wait()
}

// all makes jobs for every entry that is not just as the index knows it, and
// tells how many runs the index knows and which filling of it that is.
func (x *Indexer) all(ctx context.Context, ix *store.Index, dir *safefile.Dir) (jobs []job, runs int, generation int64, err error) {
	s, err := look(ctx, ix, dir)
	if err != nil {
		return nil, 0, 0, err
	}
	known, names, infos := s.known, s.names, s.infos
	x.apply.gone = s.gone

	linked := map[string]bool{}
	var changed []int
	seen := 0
	for i, name := range names {
		if infos[i].Kind == "" {
			continue
		}
		if infos[i].Regular && infos[i].Nlink > 1 {
			linked[name] = true
		}
		id, ok := known[name]
		if ok {
			seen++
		}
		if _, suspect := x.suspects.Load(name); !ok || suspect || id.Unverified || id.Bad && infos[i].Regular || !sameStat(id.Stat, id.Bad, infos[i]) {
			changed = append(changed, i)
		}
		if ok {
			id.No = 0 // told apart from the ones that are gone
			known[name] = id
		}
	}
	x.linked = linked
	x.suspects.Range(func(file, _ any) bool {
		// A run that is neither there nor in the index has nothing left to mend.
		name := file.(string)
		if _, ok := known[name]; !ok && !slices.Contains(names, name) {
			x.suspects.Delete(file)
		}
		return true
	})

	err = ix.Read(ctx, func(v *store.View) error {
		if now, _, err := v.Meta(); err != nil {
			return err
		} else if now != s.generation {
			return errStale
		}
		for _, i := range changed {
			j := job{file: names[i], info: infos[i], verify: true}
			_, j.again = x.suspects.Load(names[i])
			if _, ok := known[names[i]]; ok {
				run, err := v.RunByFile([]byte(names[i]))
				if err != nil {
					return err
				}
				j.run = run
			}
			jobs = append(jobs, j)
		}
		if seen == len(known) {
			return nil
		}
		for name, id := range known {
			if id.No == 0 {
				continue
			}
			run, err := v.RunByFile([]byte(name))
			if err != nil {
				return err
			}
			if run != nil {
				// It may have come since the names were listed, and another process
				// indexed it: whether it is gone shows when it is opened.
				jobs = append(jobs, job{file: name, run: run, verify: true})
			}
		}
		return nil
	})
	return jobs, len(known), s.generation, err
}

// goneJobs are for a root whose events directory is not there.
func goneJobs(ctx context.Context, ix *store.Index) (jobs []job, err error) {
	err = ix.Read(ctx, func(v *store.View) error {
		runs, err := v.Runs()
		for i := range runs {
			jobs = append(jobs, job{file: string(runs[i].File), run: &runs[i], gone: true})
		}
		return err
	})
	return jobs, err
}

func statOf(info safefile.Info) store.Stat {
	return store.Stat{Dev: int64(info.Dev), Ino: int64(info.Ino), Size: info.Size, MtimeNs: info.MtimeNs, CtimeNs: info.CtimeNs, Nlink: int64(info.Nlink)}
}

// sameStat tells whether an entry is as the index knows it.
func sameStat(stat store.Stat, bad bool, info safefile.Info) bool {
	return stat == statOf(info) && (bad || info.Regular)
}

func unchanged(run *store.Run, info safefile.Info) bool {
	return sameStat(run.Stat, run.EntryFault != nil, info)
}

// filling says how fill works: anew empties the index first and commits once;
// locked, that the caller holds the whole-index lock.
type filling struct {
	anew, locked bool
	report       func(Progress)
}

func toRead(jobs []job) int64 {
	var n int64
	for _, j := range jobs {
		n += j.bytes()
	}
	return n
}

// fill runs the jobs: parsers read and fold ahead of the write lock, one
// writer applies what they give.
func (x *Indexer) fill(ctx context.Context, ix *store.Index, dir *safefile.Dir, jobs []job, how filling) error {
	if len(jobs) == 0 && !how.anew {
		return nil
	}
	total := toRead(jobs)
	bulk := total > bulkBytes || how.anew
	if bulk && !how.locked {
		// Several processes that start on one large root would each build the
		// whole index; the ones that wait find it built.
		unlock, waited, err := x.lock(ctx)
		if err != nil {
			return writeError{err}
		}
		defer unlock()
		if waited {
			return errStale
		}
	}
	if bulk {
		// The largest first, so that no worker is left alone with one at the end.
		slices.SortStableFunc(jobs, func(a, b job) int { return int(min(math.MaxInt32, max(math.MinInt32, b.bytes()-a.bytes()))) })
	}

	workers := 1
	if bulk {
		workers = max(1, min(runtime.NumCPU(), len(jobs)))
	}
	for len(x.parsers) < workers {
		x.parsers = append(x.parsers, newParser())
	}
	g, ctx := errgroup.WithContext(ctx)
	queue := make(chan job, len(jobs))
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	batches := make(chan *batch, 1)
	var scanners errgroup.Group
	for _, p := range x.parsers[:workers] {
		scanners.Go(func() error {
			for j := range queue {
				if err := x.scan(p, dir, j, func(b *batch) error {
					select {
					case batches <- b:
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(batches)
		return scanners.Wait()
	})
	progress := Progress{Total: total}
	g.Go(func() error {
		return x.consume(ctx, ix, batches, bulk, how.anew, func(b *batch) {
			progress.Bytes += b.to - b.from
			progress.Events += b.events
			if b.last {
				progress.Runs++
				if b.unverified {
					x.needVerify.Store(true)
				}
				if b.fresh || b.gone || b.entryFault != "" {
					x.suspects.Delete(b.file)
				}
			}
			if how.report != nil {
				how.report(progress)
			}
		})
	})
	return g.Wait()
}

func (j job) bytes() int64 {
	if j.gone {
		return 0
	}
	if j.run != nil && j.info.Size >= j.run.Covered && !j.verify {
		return j.info.Size - j.run.Covered
	}
	return j.info.Size
}

// consume applies batches. A transaction is left open for as long as more is
// coming in a bulk pass, and never closed in the middle of a run that is being
// indexed again, nor of an index that is filled anew: readers see the old
// state or the new one.
func (x *Indexer) consume(ctx context.Context, ix *store.Index, batches <-chan *batch, bulk, anew bool, done func(*batch)) error {
	next := func(wait bool) (b *batch, err error) {
		if !wait {
			select {
			case b = <-batches:
			default:
			}
			return b, nil
		}
		select {
		case b = <-batches:
			return b, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	b, err := next(true)
	for err == nil && (b != nil || anew) {
		err = ix.Write(ctx, func(tx *store.Tx) (err error) {
			if anew {
				if err := tx.Fill(); err != nil {
					return err
				}
				x.apply.gone = tx.Gone()
			}
			x.apply.enter(tx)
			unfinished := map[string]bool{}
			for n := 0; b != nil; {
				if err := x.apply.batch(tx, b); err != nil {
					return err
				}
				done(b)
				n += len(b.order)
				if b.reset && !b.last {
					unfinished[b.file] = true
				} else {
					delete(unfinished, b.file)
				}
				whole := anew || len(unfinished) > 0
				if n >= bulkCommit && !whole {
					break
				}
				if b, err = next(bulk || whole); err != nil {
					return err
				}
			}
			if anew {
				return tx.Filled()
			}
			return nil
		})
		if err != nil {
			x.apply.forget()
			if errors.Is(err, errStale) || errors.Is(err, errChanged) || errors.Is(err, store.ErrUnusable) || ctx.Err() != nil {
				return err
			}
			return writeError{err}
		}
		anew = false
		b, err = next(true)
	}
	return err
}

// scan looks at one run file and gives what it adds to the index.
func (x *Indexer) scan(p *parser, dir *safefile.Dir, j job, emit func(*batch) error) error {
	b := batch{file: j.file, info: j.info, last: true}
	if j.run != nil {
		b.run, b.epoch = j.run.No, j.run.Epoch
	}
	gone := func() error {
		if x.untold(j.run, removed) {
			return nil
		}
		b.gone = true
		return emit(&b)
	}
	unreadable := func(fault, how string) error {
		if j.asItWas(fault) || x.untold(j.run, how) {
			return nil
		}
		b.entryFault = fault
		return emit(&b)
	}
	if j.gone {
		return gone()
	}
	f, info, err := dir.Open(j.file)
	var not *safefile.NotRegular
	switch {
	case errors.As(err, &not):
		return unreadable(not.Reason, replaced)
	case errors.Is(err, fs.ErrNotExist):
		if j.run == nil {
			return nil
		}
		return gone()
	case err != nil:
		if shortage(err) {
			return err
		}
		return unreadable(errcode.Bare(err).Error(), removed)
	}
	defer func() { _ = f.Close() }()
	err = x.read(p, f, info, j, b, emit)
	var failed readError
	if errors.As(err, &failed) && !shortage(err) {
		// A disk that cannot give one run's bytes must not hide the others.
		return unreadable(errcode.Bare(failed.error).Error(), removed)
	}
	return err
}

// asItWas tells whether the index has this fault of the entry already.
func (j job) asItWas(fault string) bool {
	return j.run != nil && j.run.EntryFault != nil && *j.run.EntryFault == fault && unchanged(j.run, j.info)
}

// readError is a failure to read a run file, as against one of whoever takes
// what was read.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

// shortage tells errors of this process from those of the file.
func shortage(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// read gives what a run file adds to the index.
func (x *Indexer) read(p *parser, f *os.File, info safefile.Info, j job, b batch, emit func(*batch) error) error {
	b.info, b.last = info, false

	from, crc, session := int64(0), uint32(0), ""
	if j.run != nil && j.run.EntryFault == nil {
		if j.again {
			j.verify = true
		}
		how, whole, err := sameBytes(f, j, info)
		if err != nil {
			return readError{err}
		}
		switch {
		case how != "":
			if x.untold(j.run, how) {
				return nil
			}
			x.log.Info("a run file is no longer what was indexed; it is indexed again from its start", "run", j.file, "how", how)
			b.reset = true
		case j.again:
			b.reset = true
		default:
			b.unverified = !whole
			from, crc, session = j.run.Covered, uint32(j.run.CRC), j.run.Session
		}
	} else if j.run != nil {
		b.reset = true
	}
	b.from, b.fresh = from, from == 0
	return p.scan(f, b, crc, session, info.Size, emit)
}

// wholeCheck is how many covered bytes are compared whole on every append;
// above it the first and last block are, and the rest by the next full pass.
const wholeCheck = 256 << 10

// sameBytes tells how what the index covers of a run has vanished from its file, ""
// where it is all there; whole, whether every byte was compared. A file that was put
// in the place of the run and begins with the same bytes goes on for it: a copy that
// was put back, a disk that has another number since it was mounted.
func sameBytes(f io.ReaderAt, j job, info safefile.Info) (how string, whole bool, err error) {
	r := j.run
	how = edited
	another := r.Stat.Dev != int64(info.Dev) || r.Stat.Ino != int64(info.Ino)
	switch {
	case another:
		how = replaced
	case info.Size < r.Covered:
		how = shrunk
	}
	if info.Size < r.Covered {
		return how, true, nil
	}
	head, tail, err := blockChecksums(f, r.Covered)
	if err != nil {
		return "", false, err
	}
	if int64(head) != r.HeadCRC || int64(tail) != r.TailCRC {
		return how, true, nil
	}
	if r.Covered <= 2*blockSize {
		return "", true, nil
	}
	if info.Size > r.Stat.Size && !another && !j.verify && r.Covered > wholeCheck {
		return "", false, nil
	}
	crc, short, err := checksum(f, 0, r.Covered, make([]byte, 256<<10))
	if err != nil {
		return "", false, err
	}
	if short || int64(crc) != r.CRC {
		return how, true, nil
	}
	return "", true, nil
}
