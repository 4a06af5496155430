//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package safefile

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Dir is an open directory. Everything is looked up inside it.
type Dir struct {
	root *os.Root
}

// OpenDir opens a directory by a path that holds no links (see ResolveRoot).
func OpenDir(path string) (*Dir, error) {
	seen, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !seen.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("not a directory")}
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &Dir{root: root}, nil
}

// Close releases the directory. Files opened through it stay open.
func (d *Dir) Close() error { return d.root.Close() }

// Names lists the entries whose names end in suffix, of whatever kind they
// are, in no order.
func (d *Dir) Names(suffix string) ([]string, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(name string) bool { return !strings.HasSuffix(name, suffix) }), nil
}

// Stat looks at an entry without following or opening it. Where the system
// gives no identity, Dev, Ino, Nlink and CtimeNs are zero.
func (d *Dir) Stat(name string) (Info, error) {
	if err := element(name); err != nil {
		return Info{}, err
	}
	fi, err := d.root.Lstat(name)
	if err != nil {
		return Info{}, refusal(name, err)
	}
	return info(fi), nil
}

// Open opens a regular file of the directory for reading; anything else is a
// *NotRegular. os.Root follows links inside the root, so what was opened is
// compared with what was seen.
func (d *Dir) Open(name string) (*os.File, Info, error) {
	if err := element(name); err != nil {
		return nil, Info{}, err
	}
	seen, err := d.root.Lstat(name)
	if err != nil {
		return nil, Info{}, refusal(name, err)
	}
	if i := info(seen); !i.Regular {
		return nil, i, notRegular(name, i.Kind)
	}
	f, err := d.root.Open(name)
	if err != nil {
		return nil, Info{}, refusal(name, err)
	}
	opened, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, Info{}, err
	}
	if !opened.Mode().IsRegular() || !os.SameFile(seen, opened) {
		f.Close()
		return nil, info(opened), notRegular(name, kindLink)
	}
	return f, info(opened), nil
}

func info(fi fs.FileInfo) Info {
	i := Info{Size: fi.Size(), MtimeNs: fi.ModTime().UnixNano()}
	switch mode := fi.Mode(); {
	case mode.IsRegular():
		i.Regular, i.Kind = true, kindFile
	case mode.IsDir():
		i.Kind = kindDirectory
	case mode&fs.ModeSymlink != 0:
		i.Kind = kindLink
	case mode&fs.ModeNamedPipe != 0:
		i.Kind = kindPipe
	case mode&fs.ModeSocket != 0:
		i.Kind = kindSocket
	case mode&fs.ModeDevice != 0:
		i.Kind = kindDevice
	default:
		i.Kind = kindOther
	}
	return i
}

// SyncDir makes the entries of a directory durable. Systems without that
// notion do it by themselves.
func SyncDir(string) error { return nil }
