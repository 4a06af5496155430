package main

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/crash/buyer"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/ingest"
)

type buyerOptions struct {
	guarded
	run, clock    string
	watch, unheld bool
}

func (a *app) crashBuyer() *cobra.Command {
	var o buyerOptions
	c := a.command(&cobra.Command{
		Use:    "buyer [flags]",
		Short:  "be one of the processes of a crash test",
		Hidden: true,
		Args:   operands(0, 0),
	}, func(ctx context.Context, _ []string) error { return a.runBuyer(ctx, o) })
	f := c.Flags()
	o.flags(f)
	o.syncFlag(f)
	f.Var(&o.checkpoint, "checkpoint", "file to keep a checkpoint of the decisions log in")
	f.StringVar(&o.run, "run", "", "run to record in")
	f.StringVar(&o.clock, "clock", "", "time to begin at, in place of the machine's")
	f.BoolVar(&o.watch, "watch", false, "watch the run files, as a server does")
	f.BoolVar(&o.unheld, "unheld", false, "ask without a hold, to see a crash test fail")
	return c
}

func (a *app) runBuyer(ctx context.Context, o buyerOptions) error {
	clock := &buyer.Clock{Real: a.env.now}
	if err := clock.Set(o.clock); err != nil {
		return err
	}
	a.env.now = clock.Now
	root, err := o.resolve()
	if err != nil {
		return err
	}
	p, err := o.readPolicy(root, nil)
	if err != nil {
		return err
	}
	// The same parts as of a server, but for the index in between.
	var told atomic.Pointer[guard.Guard]
	x, err := a.openWith(ctx, o.rootOptions, nil, a.log(slog.LevelWarn), func(ctx context.Context, r ingest.Rewrite) {
		if g := told.Load(); g != nil {
			a.noticed(g.Noticed(ctx, guard.Rewrite(r)))
		}
	})
	if err != nil {
		return err
	}
	defer x.Close()
	b := buyer.New(a.stdin, a.stdout, clock, o.run, o.unheld)
	g, err := guard.New(a.guardOf(b.Index(x), x.GuardDir(), rootOptions{dir: defaultDir}, o.guardOptions, &policyStart{policyFile: *p}, nil))
	if err != nil {
		return err
	}
	told.Store(g)
	if o.watch {
		go func() { _ = x.Watch(ctx) }() // without it every question reads what changed
	}
	return b.Shop(ctx, g, root)
}
