//go:build unix

package safefile

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// oddities fills a directory with one entry of each kind.
func oddities(t *testing.T) string {
	t.Helper()
	// Short: a socket's path is limited to about 100 bytes.
	dir, err := os.MkdirTemp("", "sf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(at("file"), []byte("content"), 0o600))
	must(os.Mkdir(at("dir"), 0o700))
	must(os.Symlink("file", at("good-link")))
	must(os.Symlink(at("file"), at("absolute-link")))
	must(os.Symlink("nowhere", at("dangling-link")))
	must(os.Symlink("dir", at("dir-link")))
	must(os.Link(at("file"), at("hard-link")))
	must(unix.Mkfifo(at("pipe"), 0o600))
	l, err := net.Listen("unix", at("socket"))
	must(err)
	t.Cleanup(func() { l.Close() })
	return dir
}

func open(t *testing.T, dir string) *Dir {
	t.Helper()
	d, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestOnlyRegularFilesAreOpened(t *testing.T) {
	for _, way := range []struct {
		name  string
		plain bool
	}{{"as the kernel allows", false}, {"without openat2", true}} {
		t.Run(way.name, func(t *testing.T) {
			withoutOpenat2(t, way.plain)
			d := open(t, oddities(t))
			for _, c := range []struct{ name, reason string }{
				{"file", ""},
				{"hard-link", ""},
				{"dir", "is a directory"},
				{"good-link", "is a symbolic link"},
				{"absolute-link", "is a symbolic link"},
				{"dangling-link", "is a symbolic link"},
				{"dir-link", "is a symbolic link"},
				{"pipe", "is a named pipe"},
				{"socket", "is a socket"},
			} {
				f, info, err := d.Open(c.name)
				if c.reason == "" {
					if err != nil {
						t.Errorf("%s: %v", c.name, err)
						continue
					}
					data, _ := io.ReadAll(f)
					f.Close()
					if string(data) != "content" || info.Size != 7 || !info.Regular || info.Nlink != 2 || info.Ino == 0 {
						t.Errorf("%s: read %q, info %+v", c.name, data, info)
					}
					continue
				}
				var odd *NotRegular
				if !errors.As(err, &odd) || odd.Reason != c.reason || odd.Name != c.name {
					t.Errorf("%s: got %v, want %q", c.name, err, c.reason)
				}
			}
			for _, name := range []string{"absent", "", ".", "..", "dir/x", "a\x00b"} {
				if _, _, err := d.Open(name); err == nil {
					t.Errorf("%q was opened", name)
				}
			}
			if _, _, err := d.Open("absent"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("absent: %v", err)
			}
		})
	}
}

func TestADeviceIsNotOpened(t *testing.T) {
	d := open(t, "/dev")
	_, info, err := d.Open("null")
	if err == nil || !strings.Contains(err.Error(), "is a device") || info.Kind != "device" {
		t.Errorf("got %v, %+v", err, info)
	}
}

func TestAnUnreadableFileSaysSo(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root reads everything")
	}
	dir := oddities(t)
	os.Chmod(filepath.Join(dir, "file"), 0)
	_, _, err := open(t, dir).Open("file")
	var odd *NotRegular
	if !errors.As(err, &odd) || odd.Reason != "permission denied" {
		t.Errorf("got %v", err)
	}
}

// An entry that becomes a pipe after it was looked at must not hang the open.
func TestAnEntryThatTurnsIntoSomethingElse(t *testing.T) {
	dir := oddities(t)
	d := open(t, dir)
	for _, name := range []string{"pipe", "good-link"} { // as if Stat had seen a file
		err := d.with(func(fd int) error {
			f, err := openFile(fd, name)
			if err == nil {
				unix.Close(f)
			}
			return err
		})
		if name == "good-link" && err != unix.ELOOP {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNames(t *testing.T) {
	dir := oddities(t)
	os.WriteFile(filepath.Join(dir, ".hidden.ndjson"), nil, 0o600)
	os.WriteFile(filepath.Join(dir, "bad\xff.ndjson"), nil, 0o600)
	os.WriteFile(filepath.Join(dir, "other.NDJSON"), nil, 0o600)
	os.Mkdir(filepath.Join(dir, "d.ndjson"), 0o700)
	d := open(t, dir)
	for range 2 { // the second listing starts from the beginning again
		names, err := d.Names(".ndjson")
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		if want := []string{".hidden.ndjson", "bad\xff.ndjson", "d.ndjson"}; !slices.Equal(names, want) {
			t.Errorf("got %q, want %q", names, want)
		}
	}
}

func TestADirectoryStaysItselfWhenItsPathIsReplaced(t *testing.T) {
	dir := oddities(t)
	sub := filepath.Join(dir, "dir")
	d := open(t, sub)
	os.Rename(sub, sub+"-moved")
	os.WriteFile(filepath.Join(sub+"-moved", "x"), []byte("mine"), 0o600)
	os.Mkdir(sub, 0o700)
	if _, _, err := d.Open("x"); err != nil {
		t.Error(err)
	}
	d.Close()
	if _, err := d.Stat("x"); err == nil {
		t.Error("a closed directory answered")
	}
}

func TestOpenDirRefusesLinks(t *testing.T) {
	for _, way := range []bool{false, true} {
		withoutOpenat2(t, way)
		dir := oddities(t)
		for _, name := range []string{"dir-link", "file", "pipe", "absent"} {
			if d, err := OpenDir(filepath.Join(dir, name)); err == nil {
				d.Close()
				t.Errorf("%s was opened as a directory", name)
			}
		}
	}
}

func TestResolveRoot(t *testing.T) {
	dir := oddities(t)
	for _, name := range []string{"dir", "dir-link", "dir/../dir-link/."} {
		got, err := ResolveRoot(filepath.Join(dir, name))
		if err != nil || got != filepath.Join(dir, "dir") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	t.Chdir(dir)
	if got, err := ResolveRoot("dir-link"); err != nil || got != filepath.Join(dir, "dir") {
		t.Errorf("a relative path: %q, %v", got, err)
	}
	for _, path := range []string{"", " ", "\t", "file", "absent", "dangling-link", "pipe"} {
		if got, err := ResolveRoot(path); err == nil {
			t.Errorf("%q resolved to %q", path, got)
		}
	}
}

func TestReadFile(t *testing.T) {
	dir := oddities(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	if data, err := ReadFile(at("file"), 7); err != nil || string(data) != "content" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := ReadFile(at("file"), 6); !errors.Is(err, ErrTooLarge) {
		t.Errorf("over the limit: %v", err)
	}
	os.WriteFile(at("dir/inner"), []byte("x"), 0o600)
	if data, err := ReadFile(at("dir-link/inner"), 7); err != nil || string(data) != "x" {
		t.Errorf("below a linked directory: %q, %v", data, err)
	}
	for _, name := range []string{"good-link", "pipe", "dir", "socket", "absent"} {
		if _, err := ReadFile(at(name), 7); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	// Files of /proc say they are empty and are not.
	if data, err := ReadFile("/proc/self/status", 1<<20); err == nil && len(data) == 0 {
		t.Error("a file with no stated size read as empty")
	}
}

func TestWriteFile(t *testing.T) {
	dir := oddities(t)
	path := filepath.Join(dir, "written")
	for _, content := range []string{"first", "second, longer"} {
		if err := WriteFile(path, []byte(content), 0o640); err != nil {
			t.Fatal(err)
		}
		data, _ := os.ReadFile(path)
		info, _ := os.Stat(path)
		if string(data) != content || info.Mode().Perm() != 0o640 {
			t.Errorf("%q, %v", data, info.Mode())
		}
	}
	link := filepath.Join(dir, "good-link")
	if err := WriteFile(link, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(filepath.Join(dir, "file")); string(data) != "content" {
		t.Error("a write went through a link")
	}
	before, _ := os.ReadDir(dir)
	if err := WriteFile(filepath.Join(dir, "dir"), []byte("x"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if after, _ := os.ReadDir(dir); len(after) != len(before) {
		t.Error("a failed write left something behind")
	}
}

// A name may be as long as the file system takes. It is written beside its place
// under another, which must not be longer; a random one failed now and then.
func TestWriteFileTakesTheLongestName(t *testing.T) {
	dir := t.TempDir()
	for _, size := range []int{200, 236, 245, 254, 255} {
		path := filepath.Join(dir, strings.Repeat("n", size-5)+".json")
		for range 3 {
			if err := WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Errorf("a name of %d bytes: %v", size, err)
			}
		}
	}
	before, _ := os.ReadDir(dir)
	if err := WriteFile(filepath.Join(dir, strings.Repeat("n", 256)), []byte("x"), 0o600); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("a name of 256 bytes: %v", err)
	}
	if after, _ := os.ReadDir(dir); len(after) != len(before) || len(after) != 5 {
		t.Errorf("%d entries, then %d", len(before), len(after))
	}
}
