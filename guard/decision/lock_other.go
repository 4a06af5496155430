//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package decision

import (
	"os"

	lock "github.com/gofrs/flock"
)

// flock takes the lock of an open file through a second opening of it, since the
// systems this is for lock by path.
func flock(f *os.File) (release func(), err error) {
	l := lock.New(f.Name())
	held, err := l.TryLock()
	if err != nil {
		return nil, err
	}
	if !held {
		return nil, ErrLocked
	}
	return func() {
		_ = l.Unlock() // it ends with the process at the latest
		f.Close()
	}, nil
}
