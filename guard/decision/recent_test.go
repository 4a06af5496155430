package decision

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheNewestLinesComeFirstAndNoPartOfOne(t *testing.T) {
	file := filepath.Join(t.TempDir(), FileName)
	for _, c := range []struct {
		name, text string
		lines      int
		most       int64
		want       string
	}{
		{"nothing there", "", 5, 100, ""},
		{"all of them", "one\ntwo\nthree\n", 5, 100, "three two one"},
		{"no more than asked for", "one\ntwo\nthree\n", 2, 100, "three two"},
		{"no torn end", "one\ntwo\nthr", 5, 100, "two one"},
		{"no line that is cut at the front", "first one\ntwo\nthree\n", 5, 12, "three two"},
		{"an end that is all one line", "a very long line\n", 5, 4, ""},
		{"empty lines as they are", "one\n\n", 5, 100, " one"},
	} {
		if c.text != "" {
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := Recent(file, c.lines, c.most)
		var words []string
		for _, line := range got {
			words = append(words, string(line))
		}
		if text := strings.Join(words, " "); err != nil || text != c.want {
			t.Errorf("%s: %q, %v", c.name, text, err)
		}
	}
	if err := os.Symlink(file, file+".link"); err != nil {
		t.Fatal(err)
	}
	if got, err := Recent(file+".link", 5, 100); err == nil {
		t.Errorf("a link was followed to %q", got)
	}
}
