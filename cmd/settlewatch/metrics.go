package main

import (
	"context"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/pflag"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/metrics"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/mcp"
	"github.com/settlewatch/settlewatch/mcp/transport"
	"github.com/settlewatch/settlewatch/store"
)

// metricsOptions say where a server shows its metrics.
type metricsOptions struct{ metrics string }

func (o *metricsOptions) metricsFlags(f *pflag.FlagSet) {
	f.StringVar(&o.metrics, "metrics", "", "HOST:PORT of loopback to show Prometheus metrics at, under /metrics (default: nowhere)")
}

// metered is a server that is counted.
type metered struct {
	set *metrics.Set
	at  netip.AddrPort
}

// metricsAddress is where metrics are shown, zero for nowhere.
func (o *metricsOptions) metricsAddress() (at netip.AddrPort, err error) {
	if o.metrics == "" {
		return at, nil
	}
	if at, err = metrics.Address(o.metrics); err != nil {
		return at, errcode.New(errcode.Usage, "--metrics 127.0.0.1:9464", "show metrics at %s: %v", plain.Quote(o.metrics, plain.Detail), err)
	}
	return at, nil
}

// meter counts what a server answers, nil where nobody asked for it.
func (a *app) meter(s *serving) (*metered, error) {
	at, err := s.options.metricsAddress()
	if err != nil || !at.IsValid() {
		return nil, err
	}
	m := &metered{at: at, set: metrics.New(s.root.life, version(), func(ctx context.Context) metrics.Reading { return reading(ctx, s.root, a.env.now) })}
	s.guard = countedGuard{s.guard, m.set}
	s.answered = func(answer transport.Answer) { m.set.Answered(answer.Status, answer.Code) }
	return m, nil
}

// listen shows the metrics until end is called; nil shows nothing.
func (m *metered) listen(ctx context.Context, a *app) (end func(), err error) {
	if m == nil {
		return func() {}, nil
	}
	server, err := m.set.Listen(ctx, m.at)
	if err != nil {
		return nil, errcode.Wrap(err, errcode.Usage, "another port, or end what listens there", "show metrics at %s", m.at)
	}
	a.note("metrics: http://%s/metrics", server.Addr())
	return server.Close, nil
}

// countedGuard is a guard whose verdicts are counted.
type countedGuard struct {
	mcp.Guard
	set *metrics.Set
}

func (c countedGuard) Check(ctx context.Context, r guard.Request) (*guard.Verdict, error) {
	v, err := c.Guard.Check(ctx, r)
	if err == nil {
		rules := make([]string, len(v.Reasons))
		for i, reason := range v.Reasons {
			rules[i] = reason.Rule
		}
		c.set.Verdict(v.Decision, rules)
	}
	return v, err
}

// opened is what a root gives when it is there.
type opened struct {
	guard *guard.Guard
	index *ingest.Indexer
}

// reading is how things stand with a root that is opened late. A scrape opens it, as
// any question does.
func reading(ctx context.Context, root *lateRoot, now func() time.Time) (r metrics.Reading) {
	o, err := leave(ctx, func() (opened, error) {
		g, x, err := root.get()
		return opened{g, x}, err
	})
	if err != nil {
		return r
	}
	r.Index = readIndex(ctx, o.index, now)
	if n, oldest, err := o.guard.Waiting(ctx); err == nil {
		r.Log = &metrics.Log{Pending: n}
		if n > 0 {
			r.Log.Oldest = max(0, now().Sub(oldest))
		}
	}
	return r
}

// readIndex compares what the index holds before and after it is brought up to date:
// the difference is what it lagged behind by.
func readIndex(ctx context.Context, x *ingest.Indexer, now func() time.Time) *metrics.Index {
	var had store.Totals
	if err := x.Snapshot(ctx, func(v *store.View) (err error) {
		had, err = v.Totals()
		return err
	}); err != nil {
		return nil
	}
	began := now()
	status, err := x.Status(ctx)
	index := &metrics.Index{Behind: max(0, now().Sub(began)), Counts: counts(ingest.Counts(had))}
	if err != nil {
		return index
	}
	index.Counts = counts(status.Counts)
	index.Current = &metrics.Current{
		BehindBytes: max(0, status.Counts.Bytes-had.Bytes), DamagedRuns: int64(status.DamagedRuns), TornRuns: int64(len(status.TornRuns)), IndexBytes: status.IndexBytes,
	}
	if info, err := os.Lstat(status.Index + "-wal"); err == nil {
		index.Current.WALBytes = info.Size()
	}
	return index
}

func counts(c ingest.Counts) metrics.Counts {
	return metrics.Counts{Runs: c.Runs, Operations: c.Operations, Events: c.Events, Faults: c.Faults, Bytes: c.Bytes}
}
