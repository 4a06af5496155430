//go:build unix

package safefile

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// WriteFile replaces path by a file with exactly this content: after a crash
// it holds either the old content or the new, never a part. The file and its
// directory are synced, because a rename is not durable before its directory
// is. A link at path is replaced, not followed.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	dir := filepath.Dir(path)
	// Beside the target: a rename across file systems is not atomic.
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(dir), renameio.WithPermissions(perm), renameio.IgnoreUmask())
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }() // nothing is left to clean once it took its place
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return SyncDir(dir)
}

// SyncDir makes the entries of a directory durable.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
