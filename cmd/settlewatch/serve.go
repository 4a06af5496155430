package main

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/mcp"
)

type serveOptions struct {
	rootOptions
	guardOptions
	market marketOptions
	metricsOptions
	http httpOptions
	approvalOptions
	toolsets []string
	strict   bool
}

func (o *serveOptions) flags(f *pflag.FlagSet) {
	o.rootOptions.flags(f)
	o.guardOptions.flags(f)
	f.Lookup("guard-config").Usage = "policy file (default: the built-in defaults)"
	o.syncFlag(f)
	f.Var(&o.checkpoint, "checkpoint", "file to keep a checkpoint of the decisions log in, where the agent cannot write")
	f.BoolVar(&o.strict, "strict-start", false, "end with exit status 2 when the policy or the root cannot be read, instead of answering not_ready")
	o.approvalOptions.flags(f, &o.guardOptions)
	_, defaults := mcp.Toolsets()
	f.StringSliceVar(&o.toolsets, "toolset", defaults, "tools to offer, by set")
	o.market.flags(f)
	o.http.flags(f)
	o.metricsFlags(f)
}

func (a *app) serve() (*cobra.Command, *serveOptions) {
	var o serveOptions
	c := a.command(&cobra.Command{
		Use:   "serve [flags]",
		Short: "serve MCP on stdin and stdout (what an agent's host starts), or over HTTP",
		Long: `Serve the tools of the chosen toolsets over MCP on stdin and stdout. stdout carries
the protocol only; diagnostics go to stderr. The server ends when stdin ends, after
answering every request it has read.

With --http it serves over HTTP instead, until it is told to stop. Payment records are
private: it then verifies the tokens of an authorization server (--auth-issuer with
--auth-jwks or --auth-hmac-secret), or serves a loopback address without
(--http-insecure-no-auth). It speaks no TLS: put a reverse proxy in front of it. Each of
these flags can also stand in the environment, --http-rate as SETTLEWATCH_HTTP_RATE; lists
have commas between their values.

The policy is read once, at the start. One that has faults does not keep the server from
starting: every check is then answered with not_ready, for a person to look into.

The toolset market reads public offers from the instances that --market-instance names;
without it this program opens no connection.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error { return a.runServe(ctx, &o) })
	o.flags(c.Flags())
	return c, &o
}

// runServe is told where the options are: the flags, and what the environment sets in
// their place, point there.
func (a *app) runServe(ctx context.Context, o *serveOptions) error {
	defer o.market.close()
	host, overHTTP, err := a.holds(o)
	if err != nil {
		return err
	}
	a.startMarket(o)
	if err := a.startPolicy(o); err != nil {
		return err
	}
	a.approvalEnvironment(&o.guardOptions)
	if in, ok := a.stdin.(*os.File); ok && !overHTTP && term.IsTerminal(int(in.Fd())) {
		a.note("serving MCP on this terminal, one JSON-RPC message a line; an agent's host usually starts this. try: settlewatch --help")
	}
	root := newLateRoot(func(ctx context.Context) (*guard.Guard, *ingest.Indexer, error) {
		return a.openGuard(ctx, o.rootOptions, o.guardOptions)
	})
	defer root.close()
	asks := lateGuard{root, func(fault error) (*guard.Guard, error) {
		return a.faultedGuard(o.rootOptions, o.guardOptions, fault)
	}}
	grants, done, err := a.operatorSide(o, asks)
	if err != nil {
		return err
	}
	defer done()
	s := &serving{options: o, root: root, traces: lateTraces{root}, guard: asks, asks: asks, grants: grants, host: host}
	if err := a.beforeStart(s); err != nil {
		return err
	}
	if overHTTP {
		return a.serveHTTP(ctx, s)
	}
	root.begin()
	end, err := a.afterStart(ctx, s)
	if err != nil {
		return err
	}
	defer end()
	return mcp.ServeStdio(ctx, s.traces, a.offered(s), a.stdin, a.stdout)
}

// holds refuses what no server starts with, and completes the options by the
// environment. It opens, reads and asks nothing: what it refuses shows in the flags.
func (a *app) holds(o *serveOptions) (host approval.Host, overHTTP bool, err error) {
	if err = positive("sync-timeout", o.syncTimeout); err != nil {
		return host, false, err
	}
	if host, err = o.hostBound(); err != nil {
		return host, false, err
	}
	if err = a.makeMarket(o); err != nil {
		return host, false, err
	}
	if overHTTP, err = a.overHTTP(o); err != nil {
		return host, false, err
	}
	if overHTTP {
		if err = o.http.config.Check(); err != nil {
			return host, false, err
		}
		// Whoever is asked later; that there is somebody counts.
		if err = a.offered(&serving{options: o, guard: lateGuard{}, asks: lateGuard{}}).Check(); err != nil {
			return host, false, err
		}
	}
	_, err = o.metricsAddress()
	return host, overHTTP, err
}

// startPolicy reads the policy a server judges by and says on stderr which it is
// (guard contract, section 2).
func (a *app) startPolicy(o *serveOptions) error {
	root, missing := o.resolve()
	if missing != nil {
		root = string(o.dir) // nothing lies in it yet
		if o.strict {
			return missing
		}
	}
	p, err := o.readPolicy(root, nil)
	switch {
	case err != nil && o.strict:
		return err
	case err != nil:
		o.start = &policyStart{fault: err}
		e := errcode.Of(err)
		a.note("warning: %s: every check is answered with not_ready until the server is started with a policy it can read. try: %s", e.Message, e.Hint)
	default:
		o.start = &policyStart{policyFile: *p}
		from := p.path
		if from == "" {
			from = "the built-in defaults"
		}
		a.note("policy: %s, hash %s", from, p.policy.Hash())
		if what, hint := linkedPolicy(p.path); what != "" {
			a.note("warning: %s. try: %s", what, hint)
		}
	}
	return nil
}

// lateRoot opens the trace root when it is first needed. A host starts the server
// before the agent has recorded anything, so a root that does not exist is an
// answer to a question, not a reason to have no server.
type lateRoot struct {
	open func(context.Context) (*guard.Guard, *ingest.Indexer, error)
	life context.Context // of the index, the guard and their watchers; outlives any question
	end  context.CancelFunc

	mu       sync.Mutex // guards g and x; held while opening
	g        *guard.Guard
	x        *ingest.Indexer
	watchers sync.WaitGroup
}

func newLateRoot(open func(context.Context) (*guard.Guard, *ingest.Indexer, error)) *lateRoot {
	r := &lateRoot{open: open}
	r.life, r.end = context.WithCancel(context.Background())
	return r
}

// begin builds the index while clients still introduce themselves; a root that
// is not there yet is tried again with each question.
func (r *lateRoot) begin() { go func() { _, _, _ = r.get() }() }

// get is the open guard and index.
func (r *lateRoot) get() (*guard.Guard, *ingest.Indexer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.x != nil {
		return r.g, r.x, nil
	}
	if err := r.life.Err(); err != nil {
		return nil, nil, err
	}
	g, x, err := r.open(r.life)
	if err != nil {
		return nil, nil, err
	}
	r.g, r.x = g, x
	r.watchers.Go(func() { _ = x.Watch(r.life) }) // without it every question reads what changed
	r.watchers.Go(func() { _ = g.Watch(r.life) }) // without it what was seen is written later
	return g, x, nil
}

// index is the index, nil while the root could not be opened.
func (r *lateRoot) index() *ingest.Indexer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.x
}

// lastWords is how long the guard has to write what was seen before the server
// ends: it ends within five seconds of being told to.
const lastWords = 2 * time.Second

func (r *lateRoot) close() {
	r.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.x == nil {
		return
	}
	r.watchers.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), lastWords)
	defer cancel()
	_ = r.g.Close(ctx) // what was seen shows again at the next start
	r.x.Close()
}

// lateTraces answers from the run files of a root that is opened late.
type lateTraces struct{ *lateRoot }

func (t lateTraces) List(ctx context.Context, q ingest.Query) (*ingest.Page, error) {
	_, x, err := t.get()
	if err != nil {
		return nil, err
	}
	return x.List(ctx, q)
}

func (t lateTraces) Receipt(ctx context.Context, ref ingest.Ref, template string) (*ingest.Receipt, error) {
	_, x, err := t.get()
	if err != nil {
		return nil, err
	}
	return x.Receipt(ctx, ref, template)
}

func (t lateTraces) Await(ctx context.Context, ref ingest.Ref, template string, wait time.Duration) (*ingest.Await, error) {
	_, x, err := t.get()
	if err != nil {
		return nil, err
	}
	return x.Await(ctx, ref, template, wait)
}

// lateGuard judges for a root that is opened late. While it cannot be opened, a
// guard that knows of the fault answers: what keeps a guard from judging is a
// verdict and no error (guard contract, section 1).
type lateGuard struct {
	*lateRoot
	faulted func(error) (*guard.Guard, error)
}

func (l lateGuard) guard() (*guard.Guard, error) {
	g, _, err := l.get()
	if err != nil {
		return l.faulted(err)
	}
	return g, nil
}

func (l lateGuard) Check(ctx context.Context, r guard.Request) (*guard.Verdict, error) {
	g, err := l.guard()
	if err != nil {
		return nil, err
	}
	return g.Check(ctx, r)
}

func (l lateGuard) Review(ctx context.Context, id string, wait time.Duration) (*guard.ReviewView, error) {
	g, err := l.guard()
	if err != nil {
		return nil, err
	}
	return g.Review(ctx, id, wait)
}

func (l lateGuard) Headroom(ctx context.Context, q guard.HeadroomQuery) (*guard.Headroom, error) {
	g, err := l.guard()
	if err != nil {
		return nil, err
	}
	return g.Headroom(ctx, q)
}

func (l lateGuard) Resolutions(ctx context.Context, refs []decision.Ref) ([]*decision.Resolved, error) {
	g, err := l.guard()
	if err != nil {
		return nil, err
	}
	return g.Resolutions(ctx, refs)
}

func (l lateGuard) ReleaseHold(ctx context.Context, id, actor string) error {
	g, err := l.guard()
	if err != nil {
		return err
	}
	return g.ReleaseHold(ctx, id, actor)
}
