package ingest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// overflow is the one way to lose notifications without losing the watch.
var overflow = fsnotify.ErrEventOverflow.Error()

const (
	// How long a barrier waits for its cookie before the watcher is taken for
	// deaf and every file is stated instead.
	cookieWait = 300 * time.Millisecond
	// How often a root is looked at where nothing can be watched.
	pollEvery = 2 * time.Second
	// How often runs that grew are compared whole with their index.
	verifyEvery = time.Minute
	// How long nothing is written before the index's log is cut, and how often that is
	// tried while somebody reads from it.
	trimAfter = 2 * time.Second
)

// watcher turns notifications into the names of run files that may have
// changed. They are hints: a pass states the file before it believes one.
//
// One goroutine (run) reads notifications in order, so that a cookie seen
// there proves that everything written before the cookie was seen as well.
type watcher struct {
	notify *fsnotify.Watcher
	events string // real path of the watched directory
	dir    os.FileInfo
	sync   string // directory of the cookies

	mu      sync.Mutex
	dirty   map[string]bool
	deaf    string // why notifications can no longer be trusted; "" while they can
	cookies map[string]chan struct{}
	name    string // of this watcher's cookies: two processes may have one number
	count   int
	wake    chan struct{} // one pending signal: something happened
	changed chan struct{} // closed and replaced whenever something happened
}

// newWatcher watches an events directory. It fails where the kernel gives no
// watch or its notifications could not be trusted.
func newWatcher(events, guard string, now time.Time) (*watcher, error) {
	if kind := remoteFileSystem(events); kind != "" {
		return nil, fmt.Errorf("%s gives no reliable notifications", kind)
	}
	dir, err := os.Stat(events)
	if err != nil {
		return nil, err
	}
	w := &watcher{events: events, dir: dir, sync: filepath.Join(guard, "sync"), dirty: map[string]bool{},
		name: rand.Text(), cookies: map[string]chan struct{}{}, wake: make(chan struct{}, 1), changed: make(chan struct{})}
	if err := os.MkdirAll(w.sync, 0o700); err != nil {
		return nil, err
	}
	sweep(w.sync, now)
	if w.notify, err = fsnotify.NewBufferedWatcher(4096); err != nil {
		return nil, err
	}
	for _, dir := range []string{w.sync, w.events} {
		if err := w.notify.Add(dir); err != nil {
			_ = w.notify.Close()
			return nil, err
		}
	}
	go w.run()
	return w, nil
}

const cookiePrefix = "cookie-"

// sweep removes cookies that killed processes left behind.
func sweep(dir string, now time.Time) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), cookiePrefix) && now.Sub(info.ModTime()) > time.Minute {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

func (w *watcher) close() { _ = w.notify.Close() }

func (w *watcher) run() {
	for {
		select {
		case e, ok := <-w.notify.Events:
			if !ok {
				w.distrust("it was closed")
				return
			}
			w.see(e)
		case err, ok := <-w.notify.Errors:
			if !ok {
				w.distrust("it was closed")
				return
			}
			if errors.Is(err, fsnotify.ErrEventOverflow) {
				w.distrust(overflow)
			} else {
				w.distrust(err.Error())
			}
		}
	}
}

func (w *watcher) see(e fsnotify.Event) {
	dir, name := filepath.Split(e.Name)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch filepath.Clean(dir) {
	case w.sync:
		if c := w.cookies[name]; c != nil {
			delete(w.cookies, name)
			close(c)
		}
		return
	case w.events:
		if !strings.HasSuffix(name, suffix) {
			// A file that is written under a name it no longer has (made without
			// one, or renamed while open) is told of by that name.
			if _, err := os.Lstat(e.Name); err == nil || e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
				return
			}
		}
		w.dirty[name] = true
	default:
		if e.Name == w.events || e.Name == w.sync {
			w.deaf = "a watched directory was moved or removed"
		}
	}
	w.signal()
}

func (w *watcher) distrust(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaf = why
	for name, c := range w.cookies {
		delete(w.cookies, name)
		close(c)
	}
	w.signal()
}

// signal is called with mu held.
func (w *watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// happened gives a channel that is closed at the next notification.
func (w *watcher) happened() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// changes gives the names that may have changed before it was called. It gives
// ok false when the watcher cannot vouch for that: every file must be stated.
func (w *watcher) changes(ctx context.Context) (names []string, ok bool) {
	if !w.barrier(ctx) {
		return nil, false
	}
	return w.told(ctx)
}

// told gives the names that may have changed as far as notifications have come by. It
// gives ok false when the watcher cannot vouch for these.
func (w *watcher) told(context.Context) (names []string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deaf != "" {
		return nil, false
	}
	for name := range w.dirty {
		names = append(names, name)
	}
	clear(w.dirty)
	return names, true
}

// barrier makes a file of a name nobody else uses and waits until its
// notification comes by.
func (w *watcher) barrier(ctx context.Context) bool {
	seen := make(chan struct{})
	w.mu.Lock()
	w.count++
	name := fmt.Sprintf("%s%s-%d", cookiePrefix, w.name, w.count)
	healthy := w.deaf == ""
	if healthy {
		w.cookies[name] = seen
	}
	w.mu.Unlock()
	if !healthy {
		return false
	}
	path := filepath.Join(w.sync, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		_ = f.Close()
		defer func() { _ = os.Remove(path) }()
		wait, cancel := context.WithTimeout(ctx, cookieWait)
		defer cancel()
		select {
		case <-seen:
			return true
		case <-wait.Done():
		}
	}
	w.mu.Lock()
	delete(w.cookies, name)
	w.mu.Unlock()
	return false
}

// restart is called before every run file is stated: what was told until now
// is covered by that, and lost notifications no longer matter.
func (w *watcher) restart() {
	info, err := os.Stat(w.events)
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.dirty)
	switch {
	case err != nil || !os.SameFile(info, w.dir):
		w.deaf = "the watched directory was replaced"
	case w.deaf == overflow:
		w.deaf = ""
	}
}

// moved tells whether the watched directory is no longer what its path names.
func (w *watcher) moved() bool {
	info, err := os.Stat(w.events)
	if err == nil && os.SameFile(info, w.dir) {
		return false
	}
	w.distrust("the watched directory was replaced")
	return true
}

func (w *watcher) healthy() (bool, string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.deaf == "", w.deaf
}

// Watching tells whether notifications of the run files are being received.
func (x *Indexer) Watching() bool { return x.watcher.Load() != nil }

// Watch keeps the index up to date until ctx ends, so that questions find
// little left to read. It is a convenience: every question syncs by itself.
func (x *Indexer) Watch(ctx context.Context) error {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	verify := time.NewTicker(verifyEvery)
	defer verify.Stop()
	trim := time.NewTimer(trimAfter)
	defer trim.Stop()
	refused, verified := "", 0
	for {
		w := x.watcher.Load()
		if w != nil {
			if ok, why := w.healthy(); !ok && why != overflow {
				x.watcher.Store(nil)
				w.close()
				w = nil
			}
		}
		if w == nil {
			events, err := x.eventsDir()
			var fresh *watcher
			if err == nil {
				fresh, err = newWatcher(events, x.guard, x.now())
			}
			if err == nil {
				// The watch is there before the look that follows.
				w = fresh
				x.watcher.Store(w)
				refused = ""
				x.log.Info("run files are watched", "events", events)
				x.needFull.Store(true)
			} else if refused != err.Error() {
				refused = err.Error()
				x.log.Info("run files are polled", "reason", refused)
			}
		}
		if err := x.follow(ctx); err != nil && ctx.Err() == nil {
			x.log.Warn("the index is behind", "error", err)
		}
		trim.Reset(trimAfter)
		var wake <-chan struct{}
		var tick <-chan time.Time
		if w != nil {
			wake = w.wake
		} else {
			tick = poll.C
		}
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-wake:
				waiting = false
			case <-tick:
				waiting = false
			case <-trim.C:
				if x.trim(ctx) {
					trim.Reset(trimAfter)
				}
			case <-verify.C:
				// Nothing is touched while nothing happens: the memory of an
				// idle process may be elsewhere by now.
				if verified++; x.needVerify.Load() {
					x.needFull.Store(true)
					waiting = false
				} else if verified%int(fullPassEvery/verifyEvery) == 0 {
					waiting = false
				}
			}
		}
	}
}

// trim cuts the log of the index, and tells whether somebody keeps it from that.
func (x *Indexer) trim(ctx context.Context) (long bool) {
	_ = x.inTurn(ctx, func() error {
		if ix, err := x.handle(ctx); err == nil {
			long = ix.Trim()
		}
		return nil
	})
	return long
}
