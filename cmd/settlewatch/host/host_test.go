package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestWhatAFileSaysOfAServer(t *testing.T) {
	h := &Known[0]
	for text, want := range map[string]State{
		"": NotJSON, "// a comment": NotJSON, "[]": NotJSON, "{}": NotInstalled, `{"mcpServers":[]}`: NotInstalled, `{"mcpServers":{"other":{}}}`: NotInstalled,
		`{"mcpServers":{"sw":{"command":"/bin/sw","args":["serve"]}}}`:       Installed,
		"\xef\xbb\xbf" + `{"mcpServers":{"sw":{"command":"/bin/sw"},"b":1}}`: Installed,
	} {
		file := filepath.Join(t.TempDir(), "servers.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, server := h.Look(file, "sw")
		if got != want || (server.Command == "/bin/sw") != (want == Installed) {
			t.Errorf("%q: %s, %+v", text, got, server)
		}
	}
	dir := t.TempDir()
	if got, _ := h.Look(dir, "sw"); got != Unreadable {
		t.Errorf("a directory: %s", got)
	}
	if got, _ := h.Look(filepath.Join(dir, "none"), "sw"); got != NoFile {
		t.Errorf("nothing: %s", got)
	}
}

func TestOnlyAnAbsolutePathOfAServerCanBeTold(t *testing.T) {
	for args, want := range map[string]string{
		"serve --dir /a/../b": "/b", "serve --dir=/a/": "/a", "serve --dir a": "", "serve --dir=a": "", "serve --dir": "", "serve": "", "serve --index /a": "",
	} {
		if got := (Server{Args: strings.Fields(args)}).Path("--dir"); got != want {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}

func TestEveryHostFindsWhatWasInstalledAndKeepsWhatWasThere(t *testing.T) {
	p := PlacesOf("linux", t.TempDir(), t.TempDir(), func(string) string { return "" })
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for _, h := range Known {
		file := h.File(p)
		for i, change := range []struct {
			command         string
			copied, changed bool
		}{{"/bin/a", false, true}, {"/bin/a", false, false}, {"/bin/b", true, true}, {"/bin/c", true, true}} {
			before, _ := os.ReadFile(file) // the first finds none
			backup, changed, err := h.Install(file, "sw", h.Entry(change.command, []string{"serve", "--dir", "/r"}), now)
			if err != nil || changed != change.changed || (backup != "") != change.copied {
				t.Fatalf("%s, %d: %q, %v, %v", h.ID, i, backup, changed, err)
			}
			if state, s := h.Look(file, "sw"); state != Installed || s.Command != change.command || s.Path("--dir") != "/r" {
				t.Errorf("%s, %d: %s, %+v", h.ID, i, state, s)
			}
			if old, err := os.ReadFile(backup); backup != "" && (err != nil || string(old) != string(before)) {
				t.Errorf("%s, %d: the copy holds %q, %v", h.ID, i, old, err)
			}
		}
	}
}

// A copy has a longer name than its file. Where that is too long, nothing is changed
// and the name that is meant stands in the error.
func TestAFileWhoseCopyCannotBeNamedStaysAsItIs(t *testing.T) {
	h, now := &Known[0], time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for _, size := range []int{231, 232, 236, 255} {
		file := filepath.Join(t.TempDir(), strings.Repeat("c", size-5)+".json")
		if _, changed, err := h.Install(file, "sw", h.Entry("/bin/a", nil), now); err != nil || !changed {
			t.Errorf("the first file of a name of %d bytes: %v, %v", size, changed, err)
		}
		before, _ := os.ReadFile(file)
		backup, changed, err := h.Install(file, "sw", h.Entry("/bin/b", nil), now)
		after, _ := os.ReadFile(file)
		if size <= 231 {
			if err != nil || backup == "" {
				t.Errorf("a name of %d bytes: %q, %v", size, backup, err)
			}
			continue
		}
		if changed || backup != "" || string(after) != string(before) || err == nil || !strings.Contains(err.Error(), "a copy of it cannot be kept as") || !strings.Contains(err.Error(), "name too long") {
			t.Errorf("a name of %d bytes: %q, %v, %v", size, backup, changed, err)
		}
	}
}
