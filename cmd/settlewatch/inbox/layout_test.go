package inbox

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/internal/plain"
)

// What lays lines out must not think them shorter than what draws them.
func TestNoCharacterIsDrawnWiderThanItIsCounted(t *testing.T) {
	step := rune(1)
	for r := rune(' '); r <= unicode.MaxRune; r += step {
		if r > 0x1ffff {
			step = 97 // ideographs, and planes for private use
		}
		if plain.Hidden(r) || unicode.In(r, unicode.Mn, unicode.Me) {
			continue
		}
		text := string(r)
		if drawn := max(ansi.StringWidth(text), ansi.StringWidthWc(text)); drawn > plain.Width(text) {
			t.Errorf("%U is drawn over %d columns and counted as %d", r, drawn, plain.Width(text))
		}
	}
}

func TestBlocksFitAnyWidthAndLoseNothing(t *testing.T) {
	word := rapid.StringMatching(`[a-zß日本🇩/:.-]{0,70}`)
	rapid.Check(t, func(t *rapid.T) {
		b := Block{Label: rapid.StringMatching(`[a-z]{0,16}`).Draw(t, "label"), Text: strings.Join(rapid.SliceOfN(word, 0, 6).Draw(t, "text"), " ")}
		if b.Label != "" {
			b.Mark = rapid.SampledFrom([]string{"", "[policy]", "[typed by the agent]"}).Draw(t, "mark")
		}
		width := rapid.IntRange(leastWidth, 130).Draw(t, "width")
		lines := b.lines(width)
		for _, l := range lines {
			if plain.Width(l) > width {
				t.Fatalf("%d columns in %d: %q", plain.Width(l), width, l)
			}
		}
		want := squeeze(plain.Clean(b.Label, whole) + plain.Clean(b.Text, whole) + b.Mark)
		if got := squeeze(strings.Join(lines, "")); got != want {
			t.Fatalf("%q became %q", want, got)
		}
	})
}

func squeeze(text string) string { return strings.Join(strings.Fields(text), "") }

// However a page is moved through and whatever its width becomes meanwhile, it counts
// as read only once every line of it was on the screen.
func TestAPageIsReadOnlyWhenAllOfItWasOnTheScreen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var blocks []Block
		for i := range rapid.IntRange(1, 12).Draw(t, "blocks") {
			blocks = append(blocks, Block{Text: fmt.Sprintf("<%d> ", i) + strings.Repeat("word ", rapid.IntRange(0, 30).Draw(t, "words")) + fmt.Sprintf("</%d>", i)})
		}
		seen := map[string]bool{}
		var r reader
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			width, height := rapid.IntRange(24, 120).Draw(t, "width"), rapid.IntRange(1, 30).Draw(t, "height")
			lines := layout(blocks, width)
			r.settle(lines, width, height, rapid.SampledFrom([]int{0, 1, -1, height, height, -height, 1 << 20, -1 << 20}).Draw(t, "by"))
			top := r.first(lines, height)
			for _, l := range lines[top:min(top+height, len(lines))] {
				for word := range strings.FieldsSeq(l.text) {
					seen[word] = true
				}
			}
			if !r.all {
				continue
			}
			for i := range blocks {
				if !seen[fmt.Sprintf("<%d>", i)] || !seen[fmt.Sprintf("</%d>", i)] {
					t.Fatalf("block %d was not on the screen", i)
				}
			}
		}
	})
}

func TestAPageReadFromTheTopIsRead(t *testing.T) {
	blocks := slices.Repeat([]Block{{Text: strings.Repeat("word ", 20)}}, 10)
	lines := layout(blocks, 40)
	var r reader
	for range len(lines)/5 + 1 {
		if r.all {
			t.Fatal("read before its end")
		}
		r.settle(lines, 40, 5, 5)
	}
	r.settle(lines, 40, 5, -1<<20)
	for range len(lines)/5 + 1 {
		r.settle(lines, 40, 5, 5)
	}
	if !r.all {
		t.Error("it does not count as read")
	}
}

func TestASecretIsNeverShownAndForgotten(t *testing.T) {
	in := input{secret: true}
	empty := in.shown(40)
	for _, r := range "correct horse\n" {
		in.key(tea.KeyPressMsg{Code: r, Text: string(r)})
	}
	if got := in.shown(40); got != empty {
		t.Errorf("it shows %q", got)
	}
	if got := string(in.bytes()); got != "correct horse" {
		t.Errorf("it is %q", got)
	}
	kept := in.text[:cap(in.text)]
	in.clear()
	if len(in.text) != 0 || slices.ContainsFunc(kept, func(r rune) bool { return r != 0 }) {
		t.Error("it is still in memory")
	}
}

func TestWhatIsTypedLastIsOnTheScreen(t *testing.T) {
	var in input
	in.add(strings.Repeat("wide 日本 ", 40) + "\r\nend")
	if got := in.shown(40); plain.Width(got) > 40 || !strings.HasSuffix(got, " end") || strings.ContainsAny(got, "\r\n") {
		t.Errorf("it shows %q", got)
	}
	in.add(strings.Repeat("x", 2*longest))
	if len(in.text) > longest {
		t.Errorf("%d characters are kept", len(in.text))
	}
	in.key(tea.KeyPressMsg{Code: 'u', Mod: tea.ModCtrl})
	if got := in.shown(40); got != "> " {
		t.Errorf("it shows %q", got)
	}
}

func TestHintsThatDoNotFitAreLeftOutWhole(t *testing.T) {
	hints := []string{"enter look", "r reject", "x mark", "o open operations", "w overview", "? keys", "q quit"}
	for width := leastWidth; width < 120; width++ {
		lines := keys(hints, width)
		if len(lines) > hintLines {
			t.Errorf("%d lines", len(lines))
		}
		for _, l := range lines {
			if plain.Width(l) > width {
				t.Errorf("width %d: %q", width, l)
			}
			for hint := range strings.SplitSeq(l, " | ") {
				if !slices.Contains(hints, hint) {
					t.Errorf("width %d: a part of a hint: %q", width, hint)
				}
			}
		}
	}
}
