package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// environment is everything the program learns from the machine besides files
// and flags.
type environment struct {
	getenv     func(string) string
	now        func() time.Time
	home       func() (string, error)
	executable func() (string, error) // absolute, links resolved
	goos       string
}

func system() environment {
	return environment{
		getenv: os.Getenv,
		now:    time.Now,
		home:   os.UserHomeDir,
		executable: func() (string, error) {
			path, err := os.Executable()
			if err != nil {
				return "", err
			}
			return filepath.EvalSymlinks(path)
		},
		goos: runtime.GOOS,
	}
}

// app is one invocation.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            environment
	json           bool         // --json was given
	out            bytes.Buffer // the answer, written when the command has succeeded
	began          bool         // a command's own code ran: errors before that are usage
}

// status is an answer that ends with an exit status of its own: what was asked
// has been printed.
type status int

func (s status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// finish writes the answer or the error and returns the exit status.
func (a *app) finish(err error) int {
	var s status
	if err == nil || errors.As(err, &s) {
		if a.out.Len() == 0 {
			return int(s) // serve: stdout is the protocol's, and may be gone
		}
		if _, werr := a.stdout.Write(a.out.Bytes()); werr != nil {
			return a.fail(errcode.Wrap(werr, errcode.Internal, "check where standard output goes", "write the answer"))
		}
		return int(s)
	}
	if errors.Is(err, context.Canceled) {
		err = errcode.New(errcode.Internal, "run it again", "stopped by a signal before the answer was complete")
	}
	if !a.began {
		var known *errcode.Error
		if !errors.As(err, &known) {
			err = usage("%s", strings.TrimSuffix(err.Error(), "."))
		}
	}
	return a.fail(err)
}

func (a *app) fail(err error) int {
	e := errcode.Of(err)
	if a.json {
		line := object{{"error", object{{"code", string(e.Code)}, {"message", oneLine(e.Message)}, {"hint", oneLine(e.Hint)}}}}
		a.stderr.Write(append(encodeJSON(line, 0), '\n'))
	} else {
		text := oneLine(e.Error())
		if a.colour(a.stderr) {
			text = paint(red, "error:") + " " + text
		} else {
			text = "error: " + text
		}
		fmt.Fprintln(a.stderr, text)
	}
	return e.Code.Exit()
}

// oneLine cleans a message that may quote names and bytes of strangers.
func oneLine(s string) string { return plain.Clean(s, plain.Explanation) }

// note tells the person something beside the answer.
func (a *app) note(format string, args ...any) {
	fmt.Fprintln(a.stderr, oneLine(fmt.Sprintf(format, args...)))
}

// say adds a line of our own words to the answer; strangers' words in args have
// been cleaned by the caller.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(&a.out, format+"\n", args...)
}

// answer sets the answer to a JSON document, indented by two spaces.
func (a *app) answer(o object) {
	a.out.Write(append(encodeJSON(o, 2), '\n'))
}

// document sets the answer to a compact JSON document of another package,
// indented as all others are.
func (a *app) document(compact []byte) error {
	var d jsjson.Doc
	if err := d.Parse(compact); err != nil {
		return errcode.Wrap(err, errcode.Internal, "report this", "lay out the answer")
	}
	a.out.Write(append(d.Root().Append(nil, 2, 0), '\n'))
	return nil
}

func usage(format string, args ...any) error {
	return errcode.New(errcode.Usage, "settlewatch --help, or --help after the command", format, args...)
}

// asksJSON looks for --json before the flags are parsed, so that an error in
// the flags themselves comes out in the form that was asked for.
func asksJSON(args []string) bool {
	for _, arg := range args {
		switch arg {
		case "--":
			return false
		case "--json", "--json=true", "--json=1":
			return true
		}
	}
	return false
}

// terminal reports whether w is a person's screen.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colour reports whether w may be coloured (https://no-color.org).
func (a *app) colour(w io.Writer) bool {
	return terminal(w) && a.env.getenv("NO_COLOR") == "" && a.env.getenv("TERM") != "dumb"
}
