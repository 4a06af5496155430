package decision

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/settlewatch/settlewatch/internal/safefile"
)

// FS is what the log asks of a file system. Tests put one in its place that fails.
type FS interface {
	// Dir opens a directory by a path that holds no links. With create it makes
	// the last element of the path, durably, where it is not there.
	Dir(path string, create bool) (Dir, error)
	// ReadFile and WriteFile are for the checkpoint, which lives elsewhere. A
	// write replaces the file, durably.
	ReadFile(path string, max int64) ([]byte, error)
	WriteFile(path string, data []byte) error
}

// Dir is an open directory. Names are single elements; no link is followed, and
// nothing but a regular file is opened.
type Dir interface {
	Stat(name string) (safefile.Info, error)
	Open(name string) (File, safefile.Info, error) // for reading
	Append(name string) (File, error)              // for reading and appending; it is there
	Create(name string) (File, error)              // likewise; it is not there
	Rename(from, to string) error
	Remove(name string) error
	Sync() error // makes the entries durable
	// Lock takes the exclusive lock of a lock file, which it makes where it is
	// missing. It does not wait: the error is [ErrLocked] when another has it.
	Lock(name string) (release func(), err error)
	Close() error
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.Writer
	Truncate(size int64) error
	Sync() error
	Close() error
}

// Directories and files of ours are the user's alone (guard contract, section 7).
const (
	dirMode  = 0o700
	fileMode = 0o600
)

type osFS struct{}

func (osFS) ReadFile(path string, max int64) ([]byte, error) { return safefile.ReadFile(path, max) }

func (osFS) WriteFile(path string, data []byte) error {
	return safefile.WriteFile(path, data, fileMode)
}

func (osFS) Dir(path string, create bool) (Dir, error) {
	d, err := safefile.OpenDir(path)
	if create && errors.Is(err, fs.ErrNotExist) {
		if err := os.Mkdir(path, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		// Before anything is put into it: what is durable inside a directory that
		// is not is lost with it.
		if err := safefile.SyncDir(filepath.Dir(path)); err != nil {
			return nil, err
		}
		d, err = safefile.OpenDir(path)
	}
	if err != nil {
		return nil, err
	}
	seen, err := os.Lstat(path)
	if err != nil {
		d.Close()
		return nil, err
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		d.Close()
		return nil, err
	}
	opened, err := root.Stat(".")
	if err == nil && !os.SameFile(seen, opened) {
		err = &fs.PathError{Op: "open", Path: path, Err: errors.New("it was replaced meanwhile")}
	}
	if err != nil {
		d.Close()
		_ = root.Close() // nothing was done through it
		return nil, err
	}
	return &osDir{d: d, root: root, path: path}, nil
}

// osDir looks through one handle, which follows no link, and writes through
// another, which leaves no directory.
type osDir struct {
	d    *safefile.Dir
	root *os.Root
	path string
}

func (d *osDir) Close() error {
	d.d.Close()
	return d.root.Close()
}

func (d *osDir) Stat(name string) (safefile.Info, error) { return d.d.Stat(name) }

func (d *osDir) Open(name string) (File, safefile.Info, error) {
	f, info, err := d.d.Open(name)
	if err != nil {
		return nil, info, err
	}
	return f, info, nil
}

func (d *osDir) Append(name string) (File, error) { return d.append(name) }

func (d *osDir) append(name string) (*os.File, error) {
	seen, err := d.root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !seen.Mode().IsRegular() {
		return nil, &safefile.NotRegular{Name: name, Reason: "is no regular file"}
	}
	f, err := d.root.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, err
	}
	opened, err := f.Stat()
	if err == nil && (!opened.Mode().IsRegular() || !os.SameFile(seen, opened)) {
		err = &safefile.NotRegular{Name: name, Reason: "was replaced meanwhile"}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (d *osDir) Create(name string) (File, error) {
	// O_EXCL follows no link: one that is there is there.
	f, err := d.root.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (d *osDir) Rename(from, to string) error { return d.root.Rename(from, to) }
func (d *osDir) Remove(name string) error     { return d.root.Remove(name) }

func (d *osDir) Sync() error { return safefile.SyncDir(d.path) }

func (d *osDir) Lock(name string) (func(), error) {
	for range 10 {
		f, err := d.append(name)
		if errors.Is(err, fs.ErrNotExist) {
			f, err = d.root.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, fileMode)
		}
		if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
			continue // another process made it, or took it away, just now
		}
		if err != nil {
			return nil, err
		}
		release, err := flock(f)
		if err != nil {
			f.Close()
			return nil, err
		}
		// A lock on a file that has been replaced keeps nobody out.
		held, err := f.Stat()
		if err == nil {
			var there os.FileInfo
			if there, err = d.root.Lstat(name); err == nil && os.SameFile(held, there) {
				return release, nil
			}
		}
		release()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return nil, errors.New("the lock file keeps being replaced")
}
