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
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/mcp/market"
)

// environment is everything the program learns from the machine besides files
// and flags.
type environment struct {
	getenv     func(string) string
	now        func() time.Time
	home       func() (string, error)
	executable func() (string, error) // absolute, links resolved
	goos       string
	dial       market.Dialer // of the toolset market; nil is the network
	sandbox    *sandbox      // nil where the process is not this program's own
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
	json           bool                              // --json was given
	called         string                            // the command as it was found, for hints
	width          int                               // columns of the screen, if that is not for the machine to say
	someone        person                            // who answers, if that is not for stdin to say
	keyCost        int                               // what a guess at a passphrase costs, if not decision.KeyCost
	guards         func(*guarded) (guardian, finder) // the guard, where a test has one of its own
	out            bytes.Buffer                      // the answer, written when the command has succeeded
	began          bool                              // a command's own code ran: errors before that are usage
}

// status is an answer that ends with an exit status of its own: what was asked
// has been printed.
type status int

func (s status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// interrupted is the exit status shells give a program that Ctrl-C has ended.
const interrupted = 130

// finish writes the answer or the error and returns the exit status.
func (a *app) finish(ctx context.Context, err error) int {
	var s status
	if err == nil || errors.As(err, &s) {
		if a.out.Len() == 0 {
			return int(s) // serve: stdout is the protocol's, and may be gone
		}
		if err = a.write(ctx); err == nil {
			return int(s)
		}
	}
	if ctx.Err() != nil {
		// Whatever a command makes of it, a person who ends it has seen no failure.
		fmt.Fprintln(a.stderr, "interrupted")
		return interrupted
	}
	if !a.began {
		var known *errcode.Error
		if !errors.As(err, &known) {
			err = usage("%s", strings.TrimSuffix(err.Error(), "."))
		}
	}
	return a.fail(err)
}

// write writes the answer. A reader that has stopped reading, or a screen that
// a long answer scrolls over, must not keep a person from ending it: it is
// written in pieces, and not waited for once ctx has ended.
func (a *app) write(ctx context.Context) error {
	const piece = 64 << 10
	_, err := leave(ctx, func() (struct{}, error) {
		for rest := a.out.Bytes(); len(rest) > 0; {
			if err := ctx.Err(); err != nil {
				return struct{}{}, err
			}
			n, err := a.stdout.Write(rest[:min(len(rest), piece)])
			if err != nil {
				return struct{}{}, errcode.Wrap(err, errcode.Internal, "check where standard output goes", "write the answer")
			}
			rest = rest[n:]
		}
		return struct{}{}, nil
	})
	return err
}

// leave runs work that knows no context and leaves it to itself when ctx ends:
// only for what holds nothing that has to be put back.
func leave[T any](ctx context.Context, work func() (T, error)) (T, error) {
	type outcome struct {
		value  T
		err    error
		defect any
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			o.defect = recover()
			done <- o
		}()
		o.value, o.err = work()
	}()
	select {
	case o := <-done:
		if o.defect != nil {
			panic(o.defect)
		}
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

func (a *app) fail(err error) int {
	e := errcode.Of(err)
	if e.Hint == helpHint && a.called != "" {
		e.Hint = strings.TrimSuffix(a.called, " help") + " --help"
	}
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

// helpHint stands for the help of the command that was called.
const helpHint = "settlewatch --help"

func usage(format string, args ...any) error {
	return errcode.New(errcode.Usage, helpHint, format, args...)
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

// columns is the width of a person's screen, which may have been set; 0 for
// anything else, which is not laid out to a width.
func (a *app) columns() int {
	if a.width > 0 || !terminal(a.stdout) {
		return a.width
	}
	if n, err := strconv.Atoi(a.env.getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	n, _, err := term.GetSize(int(a.stdout.(*os.File).Fd()))
	if err != nil {
		return 0
	}
	return n
}

// colour reports whether w may be coloured (https://no-color.org).
func (a *app) colour(w io.Writer) bool {
	return terminal(w) && a.env.getenv("NO_COLOR") == "" && a.env.getenv("TERM") != "dumb"
}
