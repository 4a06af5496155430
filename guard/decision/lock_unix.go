//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package decision

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// flock takes the lock of an open file. It belongs to the opening, so that two in
// one process keep each other out as well, and ends with the process whatever
// happens to it.
func flock(f *os.File) (release func(), err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var locked error
	if err := raw.Control(func(fd uintptr) {
		for {
			if locked = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(locked, unix.EINTR) {
				return
			}
		}
	}); err != nil {
		return nil, err
	}
	if errors.Is(locked, unix.EWOULDBLOCK) {
		return nil, ErrLocked
	}
	if locked != nil {
		return nil, &os.PathError{Op: "flock", Path: f.Name(), Err: locked}
	}
	return func() { f.Close() }, nil
}
