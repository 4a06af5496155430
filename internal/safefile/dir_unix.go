//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package safefile

import (
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Dir is an open directory. Everything is looked up through its descriptor, so
// renaming or replacing the path afterwards redirects nothing. Its methods may
// be called by several goroutines.
type Dir struct {
	f   *os.File
	raw syscall.RawConn
}

const flags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOCTTY

// OpenDir opens a directory by a path that holds no links (see ResolveRoot).
func OpenDir(path string) (*Dir, error) {
	fd, err := openPath(path)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Dir{f: f, raw: raw}, nil
}

// Close releases the directory. Files opened through it stay open.
func (d *Dir) Close() error { return d.f.Close() }

// Names lists the entries whose names end in suffix, of whatever kind they
// are, in no order.
func (d *Dir) Names(suffix string) ([]string, error) {
	// A descriptor of its own: reading moves its offset.
	var fd int
	err := d.with(func(dir int) (err error) {
		fd, err = retry(func() (int, error) {
			return unix.Openat(dir, ".", flags|unix.O_DIRECTORY, 0)
		})
		return err
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: d.f.Name(), Err: err}
	}
	f := os.NewFile(uintptr(fd), d.f.Name())
	defer f.Close()
	all, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(name string) bool { return !strings.HasSuffix(name, suffix) }), nil
}

// Stat looks at an entry without following or opening it.
func (d *Dir) Stat(name string) (Info, error) {
	if err := element(name); err != nil {
		return Info{}, err
	}
	var st unix.Stat_t
	err := d.with(func(dir int) error {
		_, err := retry(func() (int, error) {
			return 0, unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		})
		return err
	})
	if err != nil {
		return Info{}, refusal(name, &fs.PathError{Op: "stat", Path: name, Err: err})
	}
	return info(&st), nil
}

// Open opens a regular file of the directory for reading. Anything else is a
// *NotRegular and is not opened at all; an entry that turns into something else
// between the look and the opening cannot hang it and is refused too.
func (d *Dir) Open(name string) (*os.File, Info, error) {
	seen, err := d.Stat(name)
	if err != nil {
		return nil, Info{}, err
	}
	if !seen.Regular {
		return nil, seen, notRegular(name, seen.Kind)
	}
	var fd int
	err = d.with(func(dir int) (err error) {
		fd, err = openFile(dir, name)
		return err
	})
	if err == unix.ELOOP {
		return nil, Info{}, notRegular(name, kindLink)
	}
	if err == unix.ENXIO || err == unix.ENODEV {
		return nil, Info{}, notRegular(name, kindOther)
	}
	if err != nil {
		return nil, Info{}, refusal(name, &fs.PathError{Op: "open", Path: name, Err: err})
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, Info{}, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	opened := info(&st)
	if !opened.Regular {
		unix.Close(fd)
		return nil, opened, notRegular(name, opened.Kind)
	}
	return os.NewFile(uintptr(fd), name), opened, nil
}

// with runs f with the directory's descriptor and keeps it from being closed
// meanwhile.
func (d *Dir) with(f func(fd int) error) error {
	var inner error
	if err := d.raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return fs.ErrClosed
	}
	return inner
}

// openNoFollow is enough for a single element: only the last one can be a link.
func openNoFollow(dir int, name string) (int, error) {
	return retry(func() (int, error) {
		return unix.Openat(dir, name, flags|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	})
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

func info(st *unix.Stat_t) Info {
	i := Info{
		Dev: uint64(st.Dev), Ino: uint64(st.Ino), Nlink: uint64(st.Nlink), //nolint:unconvert // widths differ by system
		Size: st.Size, MtimeNs: mtime(st), CtimeNs: ctime(st),
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		i.Regular, i.Kind = true, kindFile
	case unix.S_IFDIR:
		i.Kind = kindDirectory
	case unix.S_IFLNK:
		i.Kind = kindLink
	case unix.S_IFIFO:
		i.Kind = kindPipe
	case unix.S_IFSOCK:
		i.Kind = kindSocket
	case unix.S_IFCHR, unix.S_IFBLK:
		i.Kind = kindDevice
	default:
		i.Kind = kindOther
	}
	return i
}

func mtime(st *unix.Stat_t) int64 { return st.Mtim.Nano() }
func ctime(st *unix.Stat_t) int64 { return st.Ctim.Nano() }

// SyncDir makes the entries of a directory durable.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
