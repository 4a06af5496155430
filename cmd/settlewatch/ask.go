package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

// person is whoever sits at the terminal that stdin is. What is asked goes to
// stderr, because stdout is the answer's.
type person interface {
	// yes asks a question; only y and yes mean yes.
	yes(ctx context.Context, question string) (bool, error)
	// secret asks for what must not be seen on the screen.
	secret(ctx context.Context, prompt string) ([]byte, error)
}

// person is nil when stdin is no terminal: then nothing is asked.
func (a *app) person() person {
	if a.someone != nil {
		return a.someone
	}
	if in, ok := a.stdin.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		return tty{in: in, out: a.stderr}
	}
	return nil
}

type tty struct {
	in  *os.File
	out io.Writer
}

func (t tty) yes(ctx context.Context, question string) (bool, error) {
	fmt.Fprintf(t.out, "%s [y/N] ", question)
	line, err := leave(ctx, t.line)
	if err != nil {
		return false, err
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}

// line reads to the end of a line and not beyond: what else was typed is for
// who reads next. An end of input is the answer no.
func (t tty) line() (string, error) {
	var line []byte
	for b := make([]byte, 1); len(line) < 100; {
		n, err := t.in.Read(b)
		if n == 0 || b[0] == '\n' {
			if err == io.EOF {
				err = nil
			}
			return string(line), err
		}
		line = append(line, b[0])
	}
	return string(line), nil
}

func (t tty) secret(ctx context.Context, prompt string) ([]byte, error) {
	fd := int(t.in.Fd())
	before, err := term.GetState(fd)
	if err == nil {
		err = hush(fd)
	}
	if err != nil {
		return nil, errcode.Wrap(err, errcode.OperatorKey, "run it on a terminal", "hide what is typed")
	}
	// The reader puts back what it found, and when the context ends it still waits:
	// the shell must not be left without an echo.
	defer func() { _ = term.Restore(fd, before) }()
	fmt.Fprintf(t.out, "%s: ", prompt)
	typed, err := leave(ctx, func() ([]byte, error) { return term.ReadPassword(fd) })
	fmt.Fprintln(t.out)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, errcode.Wrap(err, errcode.OperatorKey, "type it and end it with return", "read the passphrase")
	}
	return typed, nil
}
