package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/mcp"
	"github.com/settlewatch/settlewatch/store"
)

// openGuard puts the index, the policy, the log and the guard of a root together.
func (a *app) openGuard(ctx context.Context, o rootOptions, g guardOptions) (*guard.Guard, *ingest.Indexer, error) {
	real, err := o.resolve()
	if err != nil {
		return nil, nil, err
	}
	start := g.start
	var log *decision.Log
	if start == nil {
		// A person decides under the policy the server judges by, which the log
		// names (guard contract, section 2).
		var logged *decision.Policy
		if log, logged, err = a.readLog(ctx, o.guardAt(real), real, &g); err != nil {
			return nil, nil, err
		}
		p, err := g.readPolicy(real, logged)
		if err != nil {
			return nil, nil, err
		}
		a.otherPolicy(p, logged)
		start = &policyStart{policyFile: *p}
	}
	// The indexer tells the guard of evidence that vanished, and the guard asks the
	// indexer: whichever comes first finds the other later.
	var told atomic.Pointer[guard.Guard]
	rewritten := func(ctx context.Context, r ingest.Rewrite) {
		if g := told.Load(); g != nil {
			a.noticed(g.Noticed(ctx, guard.Rewrite(r)))
		}
	}
	var x *ingest.Indexer
	if g.start != nil {
		x, err = a.openWith(ctx, o, nil, a.log(slog.LevelInfo), rewritten)
	} else {
		x, err = a.openWith(ctx, o, readTemplateFile, a.noter(), rewritten)
	}
	if err != nil {
		return nil, nil, err
	}
	how := a.guardOf(x, x.GuardDir(), o, g, start, start.fault)
	how.Decisions = log
	made, err := guard.New(how)
	if err != nil {
		return nil, nil, errors.Join(err, x.Close())
	}
	told.Store(made)
	return made, x, nil
}

// guardOf says how the guard of an index judges.
func (a *app) guardOf(x guard.Index, dir string, r rootOptions, g guardOptions, start *policyStart, fault error) guard.Options {
	o := guard.Options{
		Index: x, Dir: dir, Policy: start.policy, PolicyPath: start.path, Fault: fault,
		Repeat: r.absolute(), Now: a.env.now, Version: version(), SyncTimeout: g.syncTimeout, Checkpoint: string(g.checkpoint), Log: a.log(slog.LevelWarn),
		HMAC: g.hmac, AllowHMAC: g.allowHMAC,
	}
	o.Listing = g.listing
	if indexer, ok := x.(*ingest.Indexer); ok {
		o.Template = func(name string) (*assemble.Resolved, error) { return indexer.Library().Resolve(name, nil) }
	}
	return o
}

// guardFor is the guard of an index that is open already, for a command that shows
// how things stand: a policy that cannot be read is one of them.
func (a *app) guardFor(ctx context.Context, x *ingest.Indexer, g guardOptions) (*guard.Guard, error) {
	log, logged, err := a.readLog(ctx, x.GuardDir(), x.Root(), &g)
	if err != nil {
		return nil, err
	}
	start := &policyStart{}
	p, fault := g.readPolicy(x.Root(), logged)
	if fault == nil {
		start.policyFile = *p
	} else {
		start.path = g.absolute()
		if logged != nil {
			// Whose signatures count is still known.
			start.policy = guard.DefaultPolicy()
			start.policy.Operators = logged.Operators
			start.path = cmp.Or(start.path, logged.Path)
		}
	}
	how := a.guardOf(x, x.GuardDir(), rootOptions{dir: defaultDir}, g, start, fault)
	how.Decisions = log
	return guard.New(how)
}

// resolutions are what people found out about operations, nil for each of which
// nobody said anything. A log that cannot be read is said beside the answer: the
// receipts are there all the same.
func (a *app) resolutions(ctx context.Context, x *ingest.Indexer, refs ...ingest.Ref) []*decision.Resolved {
	none := make([]*decision.Resolved, len(refs))
	if _, err := os.Stat(filepath.Join(x.GuardDir(), decision.FileName)); len(refs) == 0 || errors.Is(err, fs.ErrNotExist) {
		return none
	}
	g, err := a.guardFor(ctx, x, guardOptions{})
	if err == nil {
		asked := make([]decision.Ref, len(refs))
		for i, r := range refs {
			asked[i] = mcp.LineRef(r)
		}
		var found []*decision.Resolved
		if found, err = g.Resolutions(ctx, asked); err == nil {
			return found
		}
	}
	a.note("note: what people said of operations is not shown: %s", errcode.Of(err).Message)
	return none
}

// absolute is repeat for somebody in another directory.
func (o rootOptions) absolute() string {
	for _, p := range []*path{&o.dir, &o.index, &o.guardDir, &o.templatesDir} {
		if *p == "" || p == &o.dir && *p == defaultDir {
			continue
		}
		if full, err := filepath.Abs(string(*p)); err == nil {
			*p = path(full)
		}
	}
	return o.repeat()
}

// readLog opens the decisions log a person's command goes by, reads it, and gives the
// policy line it names. What can be read of an unsound log is enough to find the policy
// by: the command itself says what is wrong with the log.
//
// Whose signatures count in it stands in the policy the log names. A log is verified
// once, so the operators it is opened with are found at a glance; where the policy
// turns out to have others, whoever asks of the log opens it again.
func (a *app) readLog(ctx context.Context, dir, root string, g *guardOptions) (*decision.Log, *decision.Policy, error) {
	how := decision.Options{Dir: dir, Now: a.env.now, Log: a.log(slog.LevelWarn)}
	log, err := decision.Open(how)
	if err != nil {
		return nil, nil, err
	}
	var likely *decision.Policy
	if g.config == "" {
		likely, _ = peoples(log.Glance(ctx))
	}
	if how.Operators = g.operatorsOf(root, likely); len(how.Operators) > 0 {
		if by, err := decision.Open(how); err == nil { // else the policy's own error is said where it is used
			log = by
		}
	}
	s, err := log.Read(ctx)
	var unsound *decision.Unsound
	if errors.As(err, &unsound) {
		s, err = unsound.State, nil
	}
	if err != nil {
		return nil, nil, err
	}
	logged, other := peoples(s.Policy(), s.MannedPolicy())
	if other != nil {
		a.note("warning: the log names the policy %s last, and before it %s, which has operators: this goes by the latter. If an agent may have run commands here, look at the log. try: --guard-config FILE",
			policyName(other.Path), policyName(logged.Path))
	}
	return log, logged, nil
}

// peoples is the policy line of a log that people's commands go by, nil for none: the
// last one, unless an earlier one named operators, which then is the other. An agent
// that can run commands can have a policy of its own written down; it must not be the
// one a person decides under without knowing.
func peoples(last, manned *decision.Policy) (goesBy, other *decision.Policy) {
	if manned == nil || manned.Path == last.Path {
		return last, nil
	}
	return manned, last
}

// operatorsOf are the operators a command goes by: those of the policy file, or as the
// log has them where that cannot be read.
func (o *guardOptions) operatorsOf(root string, logged *decision.Policy) []decision.Operator {
	p, err := o.readPolicy(root, logged)
	switch {
	case err == nil:
		return p.policy.Operators
	case logged != nil:
		return logged.Operators
	}
	return nil
}

func policyName(path string) string {
	if path == "" {
		return "of the built-in defaults"
	}
	return plain.Quote(path, plain.Detail)
}

// noticing lets a command that asks no guard write down what it finds gone: the
// index forgets it, and only the log remembers.
func (a *app) noticing(o rootOptions) func(context.Context, ingest.Rewrite) {
	return func(ctx context.Context, r ingest.Rewrite) {
		root, err := o.resolve()
		if err != nil {
			return
		}
		log, err := decision.Open(decision.Options{Dir: o.guardAt(root), Now: a.env.now})
		if err == nil {
			err = guard.Notice(ctx, log, guard.Rewrite(r))
		}
		a.noticed(err)
	}
}

// noticed says that vanished evidence could not be written down. It is looked for
// again with the next check.
func (a *app) noticed(err error) {
	if err != nil {
		a.log(slog.LevelWarn).Warn("vanished evidence could not be written to the decisions log", "error", err)
	}
}

// faultedGuard is the guard of a root that cannot be opened: it blocks what is
// frozen, and answers everything else with not_ready.
func (a *app) faultedGuard(o rootOptions, g guardOptions, fault error) (*guard.Guard, error) {
	start := g.start
	if start == nil {
		start = &policyStart{}
	}
	if start.fault != nil {
		fault = start.fault
	}
	return guard.New(a.guardOf(noIndex{fault}, o.guardAt(string(o.dir)), o, g, start, fault))
}

// noIndex is the index of a root that cannot be opened.
type noIndex struct{ fault error }

func (n noIndex) Sync(context.Context) error                               { return n.fault }
func (n noIndex) Ask(context.Context, func(*store.View) error) error       { return n.fault }
func (n noIndex) AskSynced(context.Context, func(*store.View) error) error { return n.fault }
func (n noIndex) Damage(*store.View, int64) ([]store.RunDamage, error)     { return nil, n.fault }
func (n noIndex) Prefix(context.Context, []byte, int64) (uint32, bool, error) {
	return 0, false, n.fault
}
