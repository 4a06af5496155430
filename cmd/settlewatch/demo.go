package main

import (
	"context"
	"embed"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/mcp"
)

// demoTrace is part of a trace that a real x402 client recorded: one payment
// that settled and three that did not end well. The lines are unchanged.
//
//go:embed demo/events
var demoTrace embed.FS

func (a *app) demo() *cobra.Command {
	return a.command(&cobra.Command{
		Use:   "demo",
		Short: "show what settlewatch does, on a built-in recorded trace",
		Long: `Copy a small recorded trace into a temporary directory, index it, and show what a person
and what an agent would be told. Nothing is dialled and nothing is left behind.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error { return a.runDemo(ctx) })
}

func (a *app) runDemo(ctx context.Context) (err error) {
	root, err := os.MkdirTemp("", "settlewatch-demo-")
	if err != nil {
		return errcode.Wrap(bare(err), errcode.Internal, "a writable temporary directory in TMPDIR", "make a temporary directory")
	}
	defer func() {
		if rerr := os.RemoveAll(root); err == nil && rerr != nil {
			err = errcode.Wrap(bare(rerr), errcode.Internal, "remove it by hand", "remove %s", plain.Quote(root, plain.Detail))
		}
	}()
	if err := copyTrace(root); err != nil {
		return errcode.Wrap(bare(err), errcode.Internal, "a writable temporary directory in TMPDIR", "copy the demo trace")
	}
	x, err := a.open(ctx, rootOptions{dir: path(root)})
	if err != nil {
		return err
	}
	defer x.Close()
	page, err := x.List(ctx, ingest.Query{Template: assemble.DefaultTemplate, Limit: 50})
	if err != nil {
		return err
	}
	a.paragraph(`An agent paid four times over x402 while its recorder wrote each step down, one JSON line an event, into .trace/events. This demo copied such a recording into a temporary directory and indexed it. First, what happened to the money:`)
	a.showPage(listing{Page: page, every: "settlewatch status --json", whole: true})

	full, open := pickDemo(page)
	if full == nil || open == nil {
		return errcode.New(errcode.Internal, "report this", "find a full and an open operation in the demo trace")
	}
	r, err := x.Receipt(ctx, full.Ref, assemble.DefaultTemplate)
	if err != nil {
		return err
	}
	a.paragraph(`A receipt is full when every stage the template requires was witnessed by an event, and no fault was. This one is:`)
	a.showReceipt(r)

	if r, err = x.Receipt(ctx, open.Ref, assemble.DefaultTemplate); err != nil {
		return err
	}
	a.paragraph(`The next one is partial, and it is the dangerous kind: the payment was signed and sent, then the buyer stopped waiting. Nobody on this side can know whether the money moved:`)
	a.showReceipt(r)

	a.paragraph(`An agent that asks over MCP, with the tool explain, is told this instead of guessing and paying twice:`)
	for line := range strings.SplitSeq(mcp.Explanation(r), "\n") {
		a.tell("  | " + line)
	}
	a.paragraph(`That is all there is to it: the run files are the truth, the index beside them is a cache, nothing was dialled, and the temporary directory is already gone. To use it on your own agent:`)
	a.say("  settlewatch list --dir .trace         the same table, from your agent's traces")
	a.say("  settlewatch install                   the line your agent's host needs")
	a.say("  settlewatch --help                    everything else")
	return nil
}

func copyTrace(root string) error {
	if err := os.Mkdir(filepath.Join(root, "events"), 0o700); err != nil {
		return err
	}
	return fs.WalkDir(demoTrace, "demo/events", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := demoTrace.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(root, "events", filepath.Base(name)), data, 0o600)
	})
}

// pickDemo picks a settled operation and one whose payment was never answered.
func pickDemo(p *ingest.Page) (full, open *ingest.Row) {
	for i := range p.Operations {
		row := &p.Operations[i]
		switch {
		case row.Completeness == "full" && full == nil:
			full = row
		case row.Completeness == "partial" && row.Exceptions == 0 && open == nil:
			open = row
		}
	}
	return full, open
}

// paragraph adds text, wrapped for a terminal, between empty lines.
func (a *app) paragraph(text string) {
	width := 88
	if columns := a.columns(); columns > 0 {
		width = min(width, columns)
	}
	a.say("")
	for _, line := range wrap(text, width) {
		a.say("%s", line)
	}
	a.say("")
}
