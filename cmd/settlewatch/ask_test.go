package main

import (
	"io"
	"os"
	"strings"
	"testing"
)

// typing is a terminal on which a text was typed; what is read of it is an answer.
func typing(t *testing.T, text string) (who tty, in *os.File, screen *strings.Builder) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	w.Close()
	screen = &strings.Builder{}
	return tty{in: r, out: screen}, r, screen
}

func TestOnlyYesMeansYes(t *testing.T) {
	for text, want := range map[string]bool{
		"y\n": true, "Yes\r\n": true, " YES \n": true, "n\n": false, "\n": false, "": false, "yes please\n": false, "yeah\n": false,
		strings.Repeat("y", 5000) + "\n": false, "y": true,
	} {
		who, _, screen := typing(t, text)
		got, err := who.yes(t.Context(), "really?")
		if got != want || err != nil {
			t.Errorf("%q: %v, %v", text, got, err)
		}
		if screen.String() != "really? [y/N] " {
			t.Errorf("the screen shows %q", screen.String())
		}
	}
}

func TestWhatIsTypedAheadIsForTheNextQuestion(t *testing.T) {
	who, in, _ := typing(t, "y\nno\nrest")
	for i, want := range []bool{true, false} {
		if got, err := who.yes(t.Context(), "?"); got != want || err != nil {
			t.Errorf("question %d: %v, %v", i, got, err)
		}
	}
	if rest, _ := io.ReadAll(in); string(rest) != "rest" {
		t.Errorf("left is %q", rest)
	}
}

func TestNobodyIsAskedWithoutATerminal(t *testing.T) {
	_, pipe, _ := typing(t, "y\n")
	for _, in := range []io.Reader{strings.NewReader("y\n"), pipe} {
		if a := (app{stdin: in}); a.person() != nil {
			t.Errorf("%T is taken for a terminal", in)
		}
	}
}
