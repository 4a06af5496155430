//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package safefile

import "golang.org/x/sys/unix"

func openFile(dir int, name string) (int, error) { return openNoFollow(dir, name) }

func openPath(path string) (int, error) {
	return retry(func() (int, error) {
		return unix.Open(path, flags|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	})
}
