package plain

import (
	"slices"
	"strings"
	"testing"
)

func TestFoldFitsAndKeepsEverything(t *testing.T) {
	address := "0x209693bc6afc0c5328ba36faf03c514ef312287c"
	for _, c := range []struct {
		name, in string
		max      int
		want     []string
	}{
		{"no width is one line", "one two", 0, []string{"one two"}},
		{"what fits is not touched", "one  two ", 9, []string{"one  two "}},
		{"words stay whole", "one two three", 8, []string{"one two", "three"}},
		{"an address breaks in the middle", address, 30, []string{address[:21], address[21:]}},
		{"a path breaks behind a slash", "/srv/agents/buyer/.trace/guard/decisions.ndjson", 30, []string{"/srv/agents/buyer/.trace/", "guard/decisions.ndjson"}},
		{"a separator near the start is not waited for", "a/" + strings.Repeat("b", 30), 20, []string{"a/" + strings.Repeat("b", 14), strings.Repeat("b", 16)}},
		{"wide characters count twice", "日本語日本語", 6, []string{"日本語", "日本語"}},
		{"a mark stays with its letter", strings.Repeat("x\u0323", 6), 3, []string{strings.Repeat("x\u0323", 3), strings.Repeat("x\u0323", 3)}},
		{"one column and wide characters end all the same", "日本", 1, []string{"日", "本"}},
		{"nothing but spaces", "      ", 3, []string{""}},
	} {
		got := Fold(c.in, c.max)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func FuzzFold(f *testing.F) {
	f.Add("a verylongword/with.parts 日本語", 7)
	f.Add("e\u0323\u0323\u0323 👩💻🇩🇪", 1)
	f.Fuzz(func(t *testing.T, s string, max int) {
		s, max = Clean(s, 500), 1+(max%60+60)%60
		lines := Fold(s, max)
		for _, line := range lines {
			if Width(line) > max && len([]rune(line)) > 1 && max > 1 {
				t.Fatalf("Fold(%q, %d) has the line %q of %d columns", s, max, line, Width(line))
			}
		}
		if got, want := strings.Join(strings.Fields(strings.Join(lines, "")), ""), strings.Join(strings.Fields(s), ""); strings.ReplaceAll(got, " ", "") != strings.ReplaceAll(want, " ", "") {
			t.Fatalf("Fold(%q, %d) = %q loses characters", s, max, lines)
		}
	})
}
