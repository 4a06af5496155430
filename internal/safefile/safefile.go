package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Info is what a directory entry is, without following it if it is a link.
type Info struct {
	Dev, Ino, Nlink  uint64 // identity; all zero where the system has none to give
	Size             int64  // bytes
	MtimeNs, CtimeNs int64  // nanoseconds since 1970
	Regular          bool
	Kind             string // "file", "directory", "symbolic link", "named pipe", "socket", "device", "special file"
}

// NotRegular says why an entry cannot be read as a file. It never means that
// the entry is absent: that is fs.ErrNotExist.
type NotRegular struct {
	Name   string
	Reason string // "is a directory", "is a symbolic link", "permission denied", ...
}

func (e *NotRegular) Error() string { return e.Name + ": " + e.Reason }

// ErrTooLarge is wrapped by ReadFile when a file has more bytes than allowed.
var ErrTooLarge = errors.New("larger than allowed")

// The kinds of entries, as Info.Kind spells them.
const (
	kindFile      = "file"
	kindDirectory = "directory"
	kindLink      = "symbolic link"
	kindPipe      = "named pipe"
	kindSocket    = "socket"
	kindDevice    = "device"
	kindOther     = "special file"
)

// element reports whether name is one element of a path, so that joining it to
// a directory stays in the directory.
func element(name string) error {
	if name == "" || name == "." || name == ".." ||
		strings.ContainsRune(name, '/') || strings.ContainsRune(name, filepath.Separator) ||
		strings.ContainsRune(name, 0) {
		return &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return nil
}

func notRegular(name, kind string) error {
	return &NotRegular{Name: name, Reason: "is a " + kind}
}

// refusal turns what the system said about an entry into a *NotRegular where
// it is a property of the entry; a shortage of descriptors or an input-output
// error is not, and stays itself.
func refusal(name string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return &NotRegular{Name: name, Reason: "permission denied"}
	}
	return err
}

// ResolveRoot returns the real, absolute path of an existing directory: links
// are followed here, once, and nowhere later. A blank path is an error (trace
// contract, section 1).
func ResolveRoot(path string) (string, error) {
	if strings.TrimSpace(path) == "" {
		return "", errors.New("the path is blank")
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	if real, err = filepath.Abs(real); err != nil {
		return "", err
	}
	// The working directory may itself be spelled through a link.
	if real, err = filepath.EvalSymlinks(real); err != nil {
		return "", err
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", &fs.PathError{Op: "open", Path: path, Err: errors.New("not a directory")}
	}
	return real, nil
}

// ReadFile reads a whole regular file of at most max bytes. The last element
// of path may not be a link; the directories before it may.
func ReadFile(path string, max int64) ([]byte, error) {
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	d, err := OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.ReadFile(filepath.Base(path), max)
}

// ReadFile reads a whole regular file of the directory of at most max bytes.
func (d *Dir) ReadFile(name string, max int64) ([]byte, error) {
	f, info, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info.Size > max {
		return nil, fmt.Errorf("%s: %d bytes: %w (%d)", name, info.Size, ErrTooLarge, max)
	}
	data := make([]byte, 0, info.Size+1)
	for {
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if int64(len(data)) > max {
			return nil, fmt.Errorf("%s: %w (%d bytes)", name, ErrTooLarge, max)
		}
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			return nil, err
		}
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
	}
}
