package errcode

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestEveryCodeHasTheExitStatusOfTheDesign(t *testing.T) {
	others := map[Code]int{Usage: 2, Policy: 2, Root: 2, LogUnsound: 3}
	for _, c := range All() {
		want, ok := others[c]
		if !ok {
			want = 1
		}
		if c.Exit() != want {
			t.Errorf("%s exits with %d, want %d", c, c.Exit(), want)
		}
		if !strings.HasPrefix(string(c), "E_") || strings.ToUpper(string(c)) != string(c) {
			t.Errorf("%s is not spelled like a code", c)
		}
	}
	if Code("E_NOBODY_KNOWS").Exit() != 1 {
		t.Error("an unknown code must be a failure")
	}
}

func TestAnErrorSaysWhatWasTriedAndWhatToDo(t *testing.T) {
	cause := errors.New("no such file")
	e := Wrap(cause, Root, "name it with --dir", "open the trace root %q", ".trace")
	if got, want := e.Error(), `E_ROOT: open the trace root ".trace": no such file. try: name it with --dir`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !errors.Is(e, cause) {
		t.Error("the cause is lost")
	}
	if got := New(Input, "", "limit is %d", 0).Error(); got != "E_INPUT: limit is 0" {
		t.Errorf("without a hint: %s", got)
	}
}

func TestOfFindsTheCodeInsideAndInventsNone(t *testing.T) {
	inner := New(NoRuns, "", "nothing there")
	if got := Of(fmt.Errorf("list: %w", inner)); got != inner {
		t.Errorf("got %v", got)
	}
	if got := Of(errors.New("boom")); got.Code != Internal {
		t.Errorf("a plain error is %s", got.Code)
	}
	if Of(nil) != nil {
		t.Error("no error is no error")
	}
}
