package plain

import (
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

func TestClean(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"plain text stays as it is", "https://shop.example/a?b=c", "https://shop.example/a?b=c"},
		{"letters of any script stay", "Café 店 ☕ 😀", "Café 店 ☕ 😀"},
		{"text is composed", "Cafe\u0301", "Café"},
		{"a newline becomes a space", "a\nb", "a b"},
		{"a Windows line break becomes one space", "a\r\nb", "a b"},
		{"tabs and exotic line breaks become spaces", "a\tb\vc\fd\u0085e\u2028f\u2029g\rh", "a b c d e f g h"},
		{"controls go", "a\x00b\x07c\x7fd", "abcd"},
		{"C1 controls go", "a\u0080b\u009fc", "abc"},
		{"bidirectional overrides go", "pay \u202eecilA\u202c \u2066x\u2069\u200f\u061c", "pay ecilA x"},
		{"zero-width characters go", "a\u200bb\u200cc\u200dd\u2060e\ufefff\u00adg\u180eh", "abcdefgh"},
		{"tag characters that spell a hidden order go", "ok\U000e0068\U000e0069\U000e007f", "ok"},
		{"variation selectors go", "a\ufe0fb\U000e0101c", "abc"},
		{"blank fillers go", "a\u115f\u3164\uffa0\u034fb", "ab"},
		{"a colour sequence goes whole", "\x1b[31;1mred\x1b[0m", "red"},
		{"a colour sequence in its C1 form goes whole", "\u009b31mred", "red"},
		{"a window title goes whole", "a\x1b]0;owned\x07b", "ab"},
		{"a hyperlink leaves its text", "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\", "click"},
		{"a string sequence ended by a C1 terminator goes whole", "a\u009d0;x\u009cb", "ab"},
		{"a device control string goes whole", "a\x1bPq#0\x1b\\b", "ab"},
		{"an unended title cannot hide what follows", "a\x1b]0;pay bob", "a0;pay bob"},
		{"a sequence cut short goes", "a\x1b[31", "a"},
		{"a lone escape at the end goes", "a\x1b", "a"},
		{"a character set switch goes whole", "a\x1b(Bb\x1bcd", "abd"},
		{"an escape before another goes", "\x1b\x1b[2Ja", "a"},
		{"a lone surrogate becomes one replacement", "a\xed\xa0\x80b", "a\ufffdb"},
		{"ill-formed bytes become replacements", "a\xff\xfeb", "a\ufffd\ufffdb"},
		{"a raw C1 byte is ill-formed, not a control", "a\x9bb", "a\ufffdb"},
		{"stacked marks are thinned", "e" + strings.Repeat("\u0323", 40) + "x", "ẹ" + strings.Repeat("\u0323", 8) + "x"},
		{"nothing stays nothing", "", ""},
		{"only hidden characters leave nothing", "\u200b\x1b[0m\u202e", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Clean(c.in, 200); got != c.want {
				t.Errorf("Clean(%q) = %q, want %q", c.in, got, c.want)
			}
		})
	}
}

func TestCleanCutsAtCharacters(t *testing.T) {
	for _, c := range []struct {
		name, in string
		max      int
		want     string
	}{
		{"a text of exactly the cap is whole", "abcde", 5, "abcde"},
		{"a longer one ends in an ellipsis within the cap", "abcdef", 5, "abcd…"},
		{"characters are counted, not bytes", "ééééé", 5, "ééééé"},
		{"a cut never splits a character", "😀😀😀", 2, "😀…"},
		{"a cap of one leaves the ellipsis", "ab", 1, "…"},
		{"a cap of nothing leaves nothing", "ab", 0, ""},
		{"removed characters do not count", "\u200b\u200b\u200bab", 2, "ab"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Clean(c.in, c.max); got != c.want {
				t.Errorf("Clean(%q, %d) = %q, want %q", c.in, c.max, got, c.want)
			}
		})
	}
}

func TestQuote(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"text is quoted", "shop", `"shop"`},
		{"quotes inside cannot end it", `x" allow "y`, `"x' allow 'y"`},
		{"nothing is an empty quotation", "", `""`},
		{"the cut text is quoted", strings.Repeat("a", 20), `"aaaaaaaaa…"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Quote(c.in, 10); got != c.want && c.name == "the cut text is quoted" {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if c.name != "the cut text is quoted" {
				if got := Quote(c.in, 200); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
			}
		})
	}
}

// A hostile text must not cost more than its length.
func TestCleanIsLinear(t *testing.T) {
	text := strings.Repeat("\x1b]", 1<<19)
	if got := Clean(text, 100); got != "" {
		t.Errorf("got %q", got)
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{
		"", "a", "\x1b[31mred\x1b[0m", "\x1b]0;t\x07x", "e\u0301\u0323", "\u0958\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301",
		"\xed\xa0\x80\xed\xb0\x80", strings.Repeat("\u0300", 70), "\u1100\u1161\u11a8", "a\r\n\r\nb", "\u2126\u212b\u0344", "\U0001d15e\U0001d165",
	} {
		f.Add(s, 20)
	}
	f.Fuzz(func(t *testing.T, s string, max int) {
		max %= 500
		got := Clean(s, max)
		if !utf8.ValidString(got) {
			t.Fatalf("Clean(%q) is not UTF-8: %q", s, got)
		}
		for _, r := range got {
			if Hidden(r) {
				t.Fatalf("Clean(%q) lets %U through", s, r)
			}
		}
		if n := utf8.RuneCountInString(got); n > 0 && n > max {
			t.Fatalf("Clean(%q, %d) has %d characters", s, max, n)
		}
		if !norm.NFC.IsNormalString(got) {
			t.Fatalf("Clean(%q) = %q is not NFC", s, got)
		}
		if again := Clean(got, max); again != got {
			t.Fatalf("Clean(%q) = %q, cleaned again %q", s, got, again)
		}
		if q := Quote(s, max); strings.Count(q, `"`) != 2 {
			t.Fatalf("Quote(%q) = %s", s, q)
		}
	})
}
