//go:build unix

package main

import (
	"io/fs"
	"os"
	"syscall"
)

// ours tells whether something belongs to the user who runs this.
func ours(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
