//go:build unix

package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What a command that was killed has left is gone once another one starts; what is not
// surely of such a command stays.
func TestWhatAKilledCommandLeftIsTidiedUp(t *testing.T) {
	root, temp := agentRoot(t), t.TempDir()
	traceOf(t, root, map[string][]bought{"1": nil})
	t.Setenv("TMPDIR", temp)
	start := func() (*exec.Cmd, string) {
		t.Helper()
		before, _ := filepath.Glob(filepath.Join(temp, "settlewatch-ui-*", linkName))
		c := exec.CommandContext(t.Context(), "settlewatch", "ui", "--dir", root, "--no-open")
		c.Stdout, c.Stderr = io.Discard, io.Discard
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
		for late := time.Now().Add(time.Minute); ; {
			after, _ := filepath.Glob(filepath.Join(temp, "settlewatch-ui-*", linkName))
			for _, file := range after {
				if !strings.Contains(strings.Join(before, "\n"), file) {
					return c, filepath.Dir(file)
				}
			}
			if time.Now().After(late) {
				t.Fatal("it made no link")
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	killed, left := start()
	_ = killed.Process.Kill()
	_ = killed.Wait()
	_, living := start()
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("%s is there still: %v", left, err)
	}
	made := func(name string, mode os.FileMode, files ...string) string {
		t.Helper()
		dir := filepath.Join(temp, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	elsewhere := made("elsewhere", 0o700, linkName, lockName)
	link := filepath.Join(temp, "settlewatch-ui-7")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	stays := []string{
		living, elsewhere, link,
		made("settlewatch-ui-1", 0o755, linkName, lockName),
		made("settlewatch-ui-2", 0o700, linkName), // made by another version: nobody can tell
		made("settlewatch-ui-3", 0o700, linkName, lockName, "letter.txt"),
		made("settlewatch-ui-x", 0o700, linkName, lockName),
		made("my-settlewatch-ui-4", 0o700, linkName, lockName),
	}
	goes := made("settlewatch-ui-5", 0o700, linkName, lockName)
	ended, own := start()
	for _, dir := range stays {
		if found, err := os.ReadDir(dir); err != nil || len(found) == 0 {
			t.Errorf("%s: %v, %v", dir, found, err)
		}
	}
	if _, err := os.Stat(goes); !os.IsNotExist(err) {
		t.Errorf("%s is there still: %v", goes, err)
	}
	_ = ended.Process.Signal(os.Interrupt)
	_ = ended.Wait()
	if _, err := os.Stat(own); !os.IsNotExist(err) {
		t.Errorf("%s is there still: %v", own, err)
	}
}
