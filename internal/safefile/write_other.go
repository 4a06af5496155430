//go:build !unix

package safefile

import (
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile replaces path by a file with exactly this content. The file is
// synced before the rename.
func WriteFile(path string, data []byte, perm fs.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Chmod(f.Name(), perm); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// SyncDir makes the entries of a directory durable. Systems without that
// notion do it by themselves.
func SyncDir(string) error { return nil }
