package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/internal/plain"
)

func TestFoldingLosesNothingAndFitsAnyWidth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.StringMatching(`[a-zäß0-9/:.-]{0,90}`), 0, 8).Draw(t, "words"), " ")
		width := rapid.IntRange(1, 60).Draw(t, "width")
		lines := plain.Fold(text, width)
		if got := squeezed(strings.Join(lines, "")); got != squeezed(text) {
			t.Fatalf("%q became %q", text, got)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > width {
				t.Fatalf("a line of %d in %d columns: %q", n, width, line)
			}
		}
	})
}

func TestALongWordIsBrokenIntoEqualParts(t *testing.T) {
	for _, c := range []struct {
		name, text string
		width      int
		want       []string
	}{
		{"an address on a phone", payTo, 30, []string{payTo[:21], payTo[21:]}},
		{"an address that fits", payTo, 42, []string{payTo}},
		{"no screen", payTo, 0, []string{payTo}},
		{"among words", "to " + payTo + " now", 30, []string{"to", payTo[:21], payTo[21:], "now"}},
		{"nothing", "", 10, []string{""}},
	} {
		equal(t, c.name, plain.Fold(c.text, c.width), c.want)
	}
}

func TestASheetPutsMarksWhereThereIsRoom(t *testing.T) {
	for _, c := range []struct {
		name  string
		width int
		want  string
	}{
		{"wide", 100, "to            " + payTo + " [typed by the agent]\nsome longer label\n              x\n"},
		{"narrow", 40, "to        " + payTo[:21] + "\n          " + payTo[21:] + "\n          [typed by the agent]\nsome longer label\n          x\n"},
	} {
		a := app{width: c.width}
		var s sheet
		s.row("to", payTo, "agent")
		s.row("some longer label", "x", "")
		a.showSheet(&s)
		if got := a.out.String(); got != c.want {
			t.Errorf("%s: got\n%swant\n%s", c.name, got, c.want)
		}
	}
}

func TestAParagraphHangsBehindItsLead(t *testing.T) {
	a := app{width: 24}
	a.put("", "- ", "one two three four five six")
	if got, want := a.out.String(), "- one two three four\n  five six\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestACommandToCopyIsNeverBroken(t *testing.T) {
	a := app{width: 20}
	command := "settlewatch review approve 4f1c22aa --dir /a/very/long/place"
	a.pasteable(command)
	if got := a.out.String(); got != command+"\n" {
		t.Errorf("got %q", got)
	}
}
