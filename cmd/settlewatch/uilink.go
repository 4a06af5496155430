package main

import (
	"errors"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/gofrs/flock"
)

// linkFile is the file that leads a browser to the link, in a directory of its own,
// which only its user can look into. A lock on a file beside it lasts as long as the
// process: what a process that was killed has left behind is known by that it has none.
type linkFile struct {
	dir, path string
	held      *flock.Flock
}

const (
	linkName = "open.html"
	lockName = "lock"
)

// linkDir is what such a directory is called.
var linkDir = regexp.MustCompile(`^settlewatch-ui-[0-9]+$`)

// linkTries is how often a directory is made that somebody else tidies up at once.
const linkTries = 5

func (f *linkFile) write(link string) error {
	if f.dir == "" {
		if err := f.begin(); err != nil {
			return err
		}
	}
	if err := os.Remove(f.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	to := html.EscapeString(link)
	_, err = fmt.Fprintf(out, "<!doctype html><meta charset=utf-8><meta name=referrer content=no-referrer><title>settlewatch</title><meta http-equiv=refresh content=\"0;url=%s\"><p><a href=\"%s\">Open settlewatch</a></p>\n", to, to)
	return errors.Join(err, out.Close())
}

// begin makes the directory, once those are gone that nobody lives in any more.
func (f *linkFile) begin() error {
	temp := os.TempDir()
	sweepLinks(temp)
	for range linkTries {
		dir, err := os.MkdirTemp(temp, "settlewatch-ui-") // 0700
		if err != nil {
			return err
		}
		held := flock.New(filepath.Join(dir, lockName), flock.SetPermissions(0o600))
		locked, err := held.TryLock()
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			_ = os.RemoveAll(dir)
			return err
		}
		// One that starts at the same moment may have found it without its lock.
		if _, err := os.Lstat(held.Path()); locked && err == nil {
			f.dir, f.path, f.held = dir, filepath.Join(dir, linkName), held
			return nil
		}
		_ = held.Close()
	}
	return errors.New("every directory that was made was removed at once")
}

func (f *linkFile) remove() {
	if f.dir != "" {
		_ = os.RemoveAll(f.dir)
		_ = f.held.Close()
		_ = os.RemoveAll(f.dir) // some systems keep a file that is open
	}
}

// sweepLinks removes what commands that were killed have left in a directory: what is
// surely of this user and of this program, and has no process any more. What is in
// doubt stays.
func sweepLinks(temp string) {
	entries, err := os.ReadDir(temp)
	if err != nil {
		return
	}
	for _, e := range entries {
		if linkDir.MatchString(e.Name()) {
			sweepLink(filepath.Join(temp, e.Name()))
		}
	}
}

func sweepLink(dir string) {
	if info, err := os.Lstat(dir); err != nil || info.Mode() != os.ModeDir|0o700 || !ours(info) {
		return
	}
	within, err := os.ReadDir(dir)
	if err != nil || slices.ContainsFunc(within, func(e os.DirEntry) bool {
		return e.Name() != linkName && e.Name() != lockName || !e.Type().IsRegular()
	}) {
		return
	}
	// Without the file nobody can tell whether it is lived in: it is not made here.
	held := flock.New(filepath.Join(dir, lockName), flock.SetFlag(os.O_RDONLY))
	defer func() { _ = held.Close() }()
	if locked, err := held.TryLock(); err != nil || !locked {
		return
	}
	// One by one: what has come since is not removed with them.
	for _, name := range []string{linkName, lockName} {
		_ = os.Remove(filepath.Join(dir, name))
	}
	_ = os.Remove(dir)
}
