package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/mcp"
	"github.com/settlewatch/settlewatch/store"
)

// The works in this file ask the guard. Its clock stands at the end of the data, so
// that windows hold what they would on the day.

// dataEnd is a moment after which no event of a set lies, or few.
var dataEnd = time.UnixMilli(firstDay).Add(days * 24 * time.Hour)

// starter is the policy that install writes, but for logAllows.
func starter(t task) (*guard.Policy, error) {
	return guard.ParsePolicy([]byte(strings.Replace(string(guard.StarterPolicy(t.Root)), "{", `{"logAllows": false,`, 1)))
}

// guarding opens the guard of a watched root. Its log is the scratch directory's: the
// index of the root is shared with others.
func guarding(t task, x guard.Index, p *guard.Policy) (*guard.Guard, error) {
	now := time.Now()
	clock := func() time.Time { return dataEnd.Add(time.Since(now)) }
	return guard.New(guard.Options{Index: x, Dir: filepath.Join(t.Scratch, "guard"), Policy: p, Now: clock, Version: "bench"})
}

// timedIndex tells how long the answer to a question took once the snapshot of the
// index was there: what a verdict costs by itself.
type timedIndex struct {
	*ingest.Indexer
	took time.Duration
}

func (x *timedIndex) AskSynced(ctx context.Context, fn func(*store.View) error) error {
	return x.Indexer.AskSynced(ctx, func(v *store.View) error {
		begin := time.Now()
		err := fn(v)
		x.took = time.Since(begin)
		return err
	})
}

// counterparties finds payees all over the root, each once, the busiest first.
func counterparties(ctx context.Context, t task, x *ingest.Indexer) ([]string, error) {
	runs, err := x.Runs(ctx)
	if err != nil {
		return nil, err
	}
	r := rand.New(rand.NewPCG(t.Seed, 1))
	seen := map[string]int{}
	var all []string
	for range min(60, len(runs)) {
		page, err := x.List(ctx, ingest.Query{Run: "run:" + runs[r.IntN(len(runs))], Limit: 100})
		if err != nil {
			return nil, err
		}
		for _, o := range page.Operations {
			if o.Counterparty == "" {
				continue
			}
			if seen[o.Counterparty]++; seen[o.Counterparty] == 1 {
				all = append(all, o.Counterparty)
			}
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no operation names a counterparty")
	}
	for i := range all {
		if seen[all[i]] > seen[all[0]] {
			all[0], all[i] = all[i], all[0]
		}
	}
	return all, nil
}

// judged times checks of counterparties that pick chooses, after prepare. Each is asked
// once before it counts, so that what is timed is a verdict and not the line it writes.
func judged(ctx context.Context, t task, pick func(all []string, r *rand.Rand) string, prepare ...func(context.Context, *guard.Guard) error) (sample, error) {
	var inside []float64
	s, err := asked(ctx, t, 2000, func(x *ingest.Indexer) (func(int) error, error) {
		all, err := counterparties(ctx, t, x)
		if err != nil {
			return nil, err
		}
		p, err := starter(t)
		if err != nil {
			return nil, err
		}
		timed := &timedIndex{Indexer: x}
		g, err := guarding(t, timed, p)
		if err != nil {
			return nil, err
		}
		for _, do := range prepare {
			if err := do(ctx, g); err != nil {
				return nil, err
			}
		}
		r := rand.New(rand.NewPCG(t.Seed, 2))
		ask := func(cp string) error {
			v, err := g.Check(ctx, guard.Request{Counterparty: cp, Amount: "0.02"})
			if err == nil && v.Reasons[0].Rule == "not_ready" {
				err = errors.New(v.Reasons[0].Detail)
			}
			return err
		}
		for _, cp := range all {
			if err := ask(cp); err != nil {
				return nil, err
			}
		}
		return func(int) error {
			err := ask(pick(all, r))
			inside = append(inside, timed.took.Seconds())
			return err
		}, nil
	})
	slices.Sort(inside)
	s.Inside = quantile(inside, 0.5)
	return s, err
}

func verdict(ctx context.Context, t task) (sample, error) {
	return judged(ctx, t, func(all []string, r *rand.Rand) string { return all[r.IntN(len(all))] })
}

func verdictHottest(ctx context.Context, t task) (sample, error) {
	return judged(ctx, t, busiest)
}

func busiest(all []string, _ *rand.Rand) string { return all[0] }

// verdictPast is verdictHottest after a person has made history of everything.
func verdictPast(ctx context.Context, t task) (sample, error) {
	return judged(ctx, t, busiest, func(ctx context.Context, g *guard.Guard) error {
		_, _, err := g.Baseline(ctx, "the past", nil)
		return err
	})
}

// verdictLogged times allows that are written down.
func verdictLogged(ctx context.Context, t task) (sample, error) {
	s, err := asked(ctx, t, 500, func(x *ingest.Indexer) (func(int) error, error) {
		g, err := guarding(t, x, guard.DefaultPolicy())
		if err != nil {
			return nil, err
		}
		return func(i int) error {
			// Somebody new each time: the same question within a minute is not written again.
			v, err := g.Check(ctx, guard.Request{Counterparty: fmt.Sprintf("0x%040x", i+1), Amount: "0.02"})
			if err == nil && v.Decision != guard.Allow {
				err = fmt.Errorf("%s: %s", v.Decision, v.Reasons[0].Detail)
			}
			return err
		}, nil
	})
	return s, err
}

// bareAppend appends a line of the size of a verdict's and syncs the file.
func bareAppend(_ context.Context, t task) (sample, error) {
	f, err := os.OpenFile(filepath.Join(t.Scratch, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return sample{}, err
	}
	line := []byte(strings.Repeat("x", 799) + "\n")
	took, err := latencies(500, func(int) error {
		if _, err := f.Write(line); err != nil {
			return err
		}
		return f.Sync()
	})
	return sample{P50: quantile(took, 0.5), P99: quantile(took, 0.99)}, errors.Join(err, f.Close())
}

// overStdio times a call of check_before_pay through the server, as a host makes it.
func overStdio(ctx context.Context, t task, chosen func(*guard.Guard) mcp.Guard) (sample, error) {
	return asked(ctx, t, 1000, func(x *ingest.Indexer) (func(int) error, error) {
		p, err := starter(t)
		if err != nil {
			return nil, err
		}
		g, err := guarding(t, x, p)
		if err != nil {
			return nil, err
		}
		all, err := counterparties(ctx, t, x)
		if err != nil {
			return nil, err
		}
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		go func() {
			err := mcp.ServeStdio(ctx, x, mcp.Options{Version: "bench", Guard: chosen(g)}, inR, outW)
			_ = outW.CloseWithError(errors.Join(err, io.EOF))
		}()
		c := client{inW, bufio.NewReaderSize(outR, 1<<20)}
		if err := c.initialize(); err != nil {
			return nil, err
		}
		r := rand.New(rand.NewPCG(t.Seed, 3))
		return func(i int) error {
			return c.call(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"check_before_pay","arguments":{"counterparty":%q,"amount":"0.02"}}}`,
				i+1, all[r.IntN(len(all))]))
		}, nil
	})
}

func stdioCheck(ctx context.Context, t task) (sample, error) {
	return overStdio(ctx, t, func(g *guard.Guard) mcp.Guard { return g })
}

// bareGuard answers without looking at anything.
type bareGuard struct{ mcp.Guard }

func (bareGuard) Check(context.Context, guard.Request) (*guard.Verdict, error) {
	return &guard.Verdict{Decision: guard.Allow}, nil
}

func stdioBare(ctx context.Context, t task) (sample, error) {
	return overStdio(ctx, t, func(*guard.Guard) mcp.Guard { return bareGuard{} })
}
