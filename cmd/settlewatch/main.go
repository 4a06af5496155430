package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends a program that does not come to its end.
	context.AfterFunc(ctx, stop)
	// On stdio the protocol owns stdout: whatever else in the process prints
	// there by mistake must not corrupt it.
	stdout := os.Stdout
	os.Stdout = os.Stderr
	env := system()
	env.sandbox = processSandbox()
	status := run(ctx, os.Args[1:], os.Stdin, stdout, os.Stderr, env)
	stop()
	os.Exit(status)
}

// run is the whole program: it answers args and returns the exit status. It
// touches the process only through its arguments, so tests call it in process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env environment) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, env: env, json: asksJSON(args)}
	root := a.root()
	root.SetArgs(args)
	return a.finish(ctx, a.execute(ctx, root))
}

// execute runs the command. A defect ends it as an error with a code, not with
// the exit status Go gives a panic, which would say "bad usage".
func (a *app) execute(ctx context.Context, root *cobra.Command) (err error) {
	defer func() {
		if defect := recover(); defect != nil {
			if !a.json {
				a.stderr.Write(debug.Stack())
			}
			err = errcode.New(errcode.Internal, "report this with the output of settlewatch version", "run into a defect: %v", defect)
		}
	}()
	called, err := root.ExecuteContextC(ctx)
	if called != nil {
		a.called = called.CommandPath()
	}
	return err
}
