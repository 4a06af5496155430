package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := command(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// usageError is a call nothing can be done about but call again.
type usageError string

func (e usageError) Error() string { return string(e) }

// command is the whole program. It gives the exit status: 0 when everything
// was measured, whatever came out; 1 when something could not be; 2 for a call
// it does not understand.
func command(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var err error
	if len(args) == 1 && args[0] == childArg {
		err = child(ctx, works, stdin, stdout)
	} else {
		err = parent(ctx, args, stdout, stderr)
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		return 0
	}
	_, _ = fmt.Fprintln(stderr, "bench:", err)
	if errors.As(err, new(usageError)) {
		return 2
	}
	return 1
}

const usage = `usage: go run ./cmd/bench [flags]

Measures the rows of docs/performance.md, each beside its reference, and prints
the table. Allow it a quiet machine, two gigabytes of disk and some minutes;
with --quick half a minute will do.

`

func parent(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := options{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are shown once, by command
	flags.Usage = func() {
		flags.SetOutput(stderr)
		_, _ = fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	flags.BoolVar(&o.Quick, "quick", false, "small sets: a look in half a minute, with rough ratios")
	flags.BoolVar(&o.Large, "large", false, "the rows of ten times the events as well (6 GB of disk)")
	flags.IntVar(&o.Rounds, "rounds", 0, "turns each item and its reference take (default 5, quick 1)")
	flags.Uint64Var(&o.Seed, "seed", 1, "of the data")
	flags.StringVar(&o.data, "data", "", "`directory` to keep the data in (default: made anew and removed)")
	flags.StringVar(&o.profile, "cpuprofile", "", "`directory` for a CPU profile of each measured item, taken in one more turn")
	rows := flags.String("rows", "", "`names` of the rows to measure, with commas (default: all)")
	asJSON := flags.Bool("json", false, "print the results as JSON")
	write := flags.String("write", "", "`file` whose table to replace, such as docs/performance.md")
	list := flags.Bool("list", false, "list the rows and measure nothing")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError(err.Error() + "; try: --help")
	}
	switch {
	case flags.NArg() > 0:
		return usageError(fmt.Sprintf("unexpected %q; try: --help", flags.Arg(0)))
	case o.Rounds < 0:
		return usageError("--rounds is a number of turns; try: --rounds 3")
	case o.Rounds == 0 && o.Quick:
		o.Rounds = 1
	case o.Rounds == 0:
		o.Rounds = 5
	}
	if *rows != "" {
		o.only = strings.Split(*rows, ",")
	}
	if *list {
		_, err := io.WriteString(stdout, listRows())
		return err
	}
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o755); err != nil {
			return fmt.Errorf("make room for the profiles: %w", err)
		}
	}
	r := report{machine: thisMachine(time.Now()), options: o}
	var err error
	if r.results, err = run(ctx, o, stderr); err != nil {
		return err
	}
	if *write != "" {
		if err := r.write(*write); err != nil {
			return err
		}
	}
	out := []byte(r.table())
	if *asJSON {
		if out, err = r.json(); err != nil {
			return err
		}
	}
	_, err = stdout.Write(out)
	return err
}

// listRows names every row once.
func listRows() string {
	var b strings.Builder
	seen := map[string]bool{}
	for _, g := range groups {
		for _, r := range g.rows {
			if seen[r.name] {
				continue
			}
			seen[r.name] = true
			only := ""
			if g.large {
				only = " (with --large)"
			}
			fmt.Fprintf(&b, "%-16s %s%s\n", r.name, r.what, only)
		}
	}
	return b.String()
}
