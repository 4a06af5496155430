//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package guard_test

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
)

func TestALockHeldForEverIsNoAllow(t *testing.T) {
	s := newSite(t, "")
	s.want("allow", guard.Request{})
	g := s.beside("", func(o *guard.Options) { o.LockWait = 50 * time.Millisecond })
	f, err := os.OpenFile(filepath.Join(s.dir, "guard", "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	before := s.logText()
	for _, r := range []guard.Request{{}, {Amount: "0.4"}, {Amount: "0.4", Hold: true}} {
		if v := g.want("review", r, "not_ready"); v.ReviewID != "" || v.Hold != nil {
			t.Errorf("%+v", v)
		}
	}
	if !bytes.Equal(before, s.logText()) {
		t.Error("something was written")
	}
	s.write(filepath.Join(s.dir, "guard", "FROZEN"), nil)
	g.want("block", guard.Request{}, "not_ready", "frozen")
}

func TestALogThatIsNoFileIsNoAllow(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a symlink":   func(path string) error { return os.Symlink("/dev/null", path) },
		"a loop":      func(path string) error { return os.Symlink("decisions.ndjson", path) },
	} {
		for _, what := range []string{"decisions.ndjson", "lock"} {
			t.Run(what+" is "+name, func(t *testing.T) {
				s := newSite(t, "")
				s.want("allow", guard.Request{})
				path := filepath.Join(s.dir, "guard", what)
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
				if err := make(path); err != nil {
					t.Fatal(err)
				}
				g := s.beside("", func(o *guard.Options) { o.LockWait = 50 * time.Millisecond })
				done := time.AfterFunc(5*time.Second, func() { panic("the check hangs") })
				defer done.Stop()
				if v := g.ask(guard.Request{Amount: "0.4", Hold: true}); v.Decision == "allow" || v.Hold != nil {
					t.Errorf("%s %v", v.Decision, v.Reasons)
				}
			})
		}
	}
}
