package safefile

import (
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile replaces path by a file with exactly this content: after a crash
// it holds either the old content or the new, never a part. The file and its
// directory are synced, because a rename is not durable before its directory
// is. A link at path is replaced, not followed. Any name a file system takes can
// be written, the longest included.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	dir := filepath.Dir(path)
	// Beside the target: a rename across file systems is not atomic. The name is not
	// made from the target's, which may be as long as a name can be.
	f, err := os.CreateTemp(dir, ".settlewatch-*.tmp")
	if err != nil {
		return err
	}
	if err = fill(f, data, perm); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return SyncDir(dir)
}

// fill writes the whole of a new file and closes it.
func fill(f *os.File, data []byte, perm fs.FileMode) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Chmod(perm) // whatever the umask says
	}
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
