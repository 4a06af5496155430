package main

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/mcp"
)

type serveOptions struct {
	rootOptions
	toolsets []string
}

func (o *serveOptions) flags(f *pflag.FlagSet) {
	o.rootOptions.flags(f)
	_, defaults := mcp.Toolsets()
	f.StringSliceVar(&o.toolsets, "toolset", defaults, "tools to offer, by set")
}

func (a *app) serve() (*cobra.Command, *serveOptions) {
	var o serveOptions
	c := a.command(&cobra.Command{
		Use:   "serve [flags]",
		Short: "serve MCP on stdin and stdout (what an agent's host starts)",
		Long: `Serve the tools of the chosen toolsets over MCP on stdin and stdout. stdout carries
the protocol only; diagnostics go to stderr. The server ends when stdin ends, after
answering every request it has read.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		if in, ok := a.stdin.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
			a.note("serving MCP on this terminal, one JSON-RPC message a line; an agent's host usually starts this. try: settlewatch --help")
		}
		traces := newLateTraces(func(ctx context.Context) (*ingest.Indexer, error) {
			// An agent names templates and never paths (trace contract, section 12.6).
			// How files are watched is for the host's log, as is what became of them.
			return a.openWith(ctx, o.rootOptions, nil, a.log(slog.LevelInfo))
		})
		defer traces.close()
		// The index is built while the host still initialises; a root that is not
		// there yet is tried again with each question.
		go func() { _, _ = traces.get() }()
		return mcp.ServeStdio(ctx, traces, mcp.Options{
			Version:  version(),
			Toolsets: o.toolsets,
			Log:      a.log(slog.LevelWarn),
		}, a.stdin, a.stdout)
	})
	o.flags(c.Flags())
	return c, &o
}

// lateTraces opens the trace root when it is first needed. A host starts the
// server before the agent has recorded anything, so a root that does not exist
// is an answer to a question, not a reason to have no server.
type lateTraces struct {
	open func(context.Context) (*ingest.Indexer, error)
	life context.Context // of the index and its watcher; outlives any question
	end  context.CancelFunc

	mu   sync.Mutex // guards x and done; held while opening
	x    *ingest.Indexer
	done chan struct{} // closed when the watcher has ended
}

func newLateTraces(open func(context.Context) (*ingest.Indexer, error)) *lateTraces {
	t := &lateTraces{open: open}
	t.life, t.end = context.WithCancel(context.Background())
	return t
}

// get is the open index.
func (t *lateTraces) get() (*ingest.Indexer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.x != nil {
		return t.x, nil
	}
	if err := t.life.Err(); err != nil {
		return nil, err
	}
	x, err := t.open(t.life)
	if err != nil {
		return nil, err
	}
	t.x, t.done = x, make(chan struct{})
	go func() {
		defer close(t.done)
		_ = x.Watch(t.life) // without it every question reads what changed
	}()
	return x, nil
}

func (t *lateTraces) close() {
	t.end()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.x != nil {
		<-t.done
		t.x.Close()
	}
}

func (t *lateTraces) List(ctx context.Context, q ingest.Query) (*ingest.Page, error) {
	x, err := t.get()
	if err != nil {
		return nil, err
	}
	return x.List(ctx, q)
}

func (t *lateTraces) Receipt(ctx context.Context, ref ingest.Ref, template string) (*ingest.Receipt, error) {
	x, err := t.get()
	if err != nil {
		return nil, err
	}
	return x.Receipt(ctx, ref, template)
}

func (t *lateTraces) Await(ctx context.Context, ref ingest.Ref, template string, wait time.Duration) (*ingest.Await, error) {
	x, err := t.get()
	if err != nil {
		return nil, err
	}
	return x.Await(ctx, ref, template, wait)
}
