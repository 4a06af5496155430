//go:build linux || darwin

package main

import "golang.org/x/sys/unix"

// hush turns the echo of a terminal off. It comes before a prompt is printed: who
// types at once, or pastes, must not be echoed in between.
func hush(fd int) error {
	state, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return err
	}
	state.Lflag &^= unix.ECHO
	return unix.IoctlSetTermios(fd, setTermios, state)
}
