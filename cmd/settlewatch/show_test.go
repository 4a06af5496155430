package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

func TestShortKeepsWhatIsNoAddress(t *testing.T) {
	const address = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
	for in, want := range map[string]string{
		address:                  "0x833589…2913",
		"eip155:8453/" + address: "eip155:8453/0x833589…2913",
		"shop.example":           "shop.example",
		"":                       "",
		address + "00":           address + "00",
	} {
		if got := short(in); got != want {
			t.Errorf("short(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestAHintIsOneWordAWordInAShell(t *testing.T) {
	for in, want := range map[string]string{
		"/srv/a-b_1/.trace": "/srv/a-b_1/.trace",
		"a b":               "'a b'",
		"it's":              `'it'\''s'`,
		"$(x)":              "'$(x)'",
		"~/x":               "'~/x'",
		"":                  "''",
	} {
		if got := shellWord(in); got != want {
			t.Errorf("shellWord(%q) = %s, want %s", in, got, want)
		}
	}
	o := rootOptions{dir: defaultDir}
	if got := o.repeat(); got != "" {
		t.Errorf("nothing was typed, repeated is %q", got)
	}
}

func TestATableCleansItsCells(t *testing.T) {
	var a app
	tab := table{head: []string{"A", "B"}}
	tab.row(red, "x\ty\nz", "\x1b[31mevil\u202e")
	tab.row("", "long enough", "b")
	a.show(&tab)
	want := "A            B\nx y z        evil\nlong enough  b\n"
	if got := a.out.String(); got != want {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func TestColourNeedsATerminal(t *testing.T) {
	var out bytes.Buffer
	a := app{stdout: &out, env: environment{getenv: func(string) string { return "" }}}
	if a.colour(a.stdout) {
		t.Error("a buffer was coloured")
	}
}

// failing refuses what is written to it.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestAnAnswerThatCannotBeWrittenIsAFailure(t *testing.T) {
	var errs bytes.Buffer
	if status := run(t.Context(), []string{"version"}, strings.NewReader(""), failing{}, &errs, system()); status != 1 {
		t.Errorf("status %d", status)
	}
	if !strings.Contains(errs.String(), "E_INTERNAL: write the answer: no space left") {
		t.Error(errs.String())
	}
}

func TestErrorsAreOneCleanLine(t *testing.T) {
	for _, json := range []bool{false, true} {
		var out, errs bytes.Buffer
		a := app{stdout: &out, stderr: &errs, json: json, began: true, env: environment{getenv: func(string) string { return "" }}}
		a.out.WriteString("half an answer")
		if status := a.finish(t.Context(), errcode.New(errcode.RunDamaged, "look", "a\nb \x1b[2J\"c\"\u202e")); status != 1 || out.Len() > 0 {
			t.Errorf("status %d, stdout %q", status, out.String())
		}
		want := "error: E_RUN_DAMAGED: a b \"c\". try: look\n"
		if json {
			want = `{"error":{"code":"E_RUN_DAMAGED","message":"a b \"c\"","hint":"look"}}` + "\n"
		}
		if errs.String() != want {
			t.Errorf("got %q, want %q", errs.String(), want)
		}
	}
}

func TestAnErrorWithoutACodeIsADefect(t *testing.T) {
	var out, errs bytes.Buffer
	a := app{stdout: &out, stderr: &errs, began: true, env: environment{getenv: func(string) string { return "" }}}
	if status := a.finish(t.Context(), errors.New("boom")); status != 1 || !strings.Contains(errs.String(), "E_INTERNAL: boom") {
		t.Errorf("status %d, %s", status, errs.String())
	}
}

func TestJSONIsAskedForBeforeTheFlagsAreRead(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want bool
	}{
		{"the flag", []string{"list", "--json"}, true},
		{"the flag with a value", []string{"--json=true"}, true},
		{"the flag switched off", []string{"--json=false"}, false},
		{"an operand behind --", []string{"receipt", "--", "--json"}, false},
		{"nothing", nil, false},
	} {
		if got := asksJSON(c.args); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
