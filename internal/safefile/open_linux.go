package safefile

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// noOpenat2 remembers that the kernel, or a seccomp filter around the process,
// does not have openat2.
var noOpenat2 atomic.Bool

// openFile opens one element of a directory; the kernel refuses links itself.
func openFile(dir int, name string) (int, error) {
	if !noOpenat2.Load() {
		fd, err := openat2(dir, name, flags|unix.O_NONBLOCK,
			unix.RESOLVE_BENEATH|unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
		if !missing(err) {
			return fd, err
		}
	}
	return openNoFollow(dir, name)
}

// openPath opens a directory by its resolved path and refuses a link anywhere
// in it.
func openPath(path string) (int, error) {
	if !noOpenat2.Load() {
		fd, err := openat2(unix.AT_FDCWD, path, flags|unix.O_DIRECTORY,
			unix.RESOLVE_NO_SYMLINKS|unix.RESOLVE_NO_MAGICLINKS)
		if !missing(err) {
			return fd, err
		}
	}
	return retry(func() (int, error) {
		return unix.Open(path, flags|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	})
}

func openat2(dir int, name string, flags, resolve uint64) (int, error) {
	return retry(func() (int, error) {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: flags, Resolve: resolve})
		if err == unix.EAGAIN {
			return -1, unix.EINTR // a rename raced with the lookup: look again
		}
		return fd, err
	})
}

// missing reports that openat2 is not there. Container filters answer EPERM
// for calls they do not know; openat itself would answer EACCES.
func missing(err error) bool {
	if err == unix.ENOSYS || err == unix.EPERM {
		noOpenat2.Store(true)
		return true
	}
	return false
}
