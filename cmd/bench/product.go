package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/ingest/event"
	"github.com/settlewatch/settlewatch/store"
)

// The works in this file are ours.

// decode validates every line and reads its envelope.
func decode(_ context.Context, t task) (sample, error) {
	var d jsjson.Doc
	return overLines(t, func(line []byte) error {
		if _, fault := event.Decode(&d, line); fault != "" {
			return errors.New(fault.Message())
		}
		return nil
	})
}

// extract reads what a line says about money as well.
func extract(_ context.Context, t task) (sample, error) {
	var d jsjson.Doc
	var in payment.Interner
	facts := 0
	s, err := overLines(t, func(line []byte) error {
		_, _, money, fault := payment.Read(&d, line, &in)
		if fault != "" {
			return errors.New(fault.Message())
		}
		if money {
			facts++
		}
		return nil
	})
	if err == nil && facts == 0 {
		err = errors.New("no line says anything about money")
	}
	return s, err
}

// reread answers a question about the history without an index: it reads every run
// file and decodes every line.
func reread(_ context.Context, t task) (s sample, err error) {
	files, err := filepath.Glob(filepath.Join(t.Root, "events", "*.ndjson"))
	if err != nil {
		return s, err
	}
	var d jsjson.Doc
	var in payment.Interner
	var buf bytes.Buffer
	begin := time.Now()
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return s, err
		}
		buf.Reset()
		_, err = buf.ReadFrom(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return s, err
		}
		s.Bytes += int64(buf.Len())
		for line := range bytes.Lines(buf.Bytes()) {
			if _, _, _, fault := payment.Read(&d, bytes.TrimSuffix(line, []byte("\n")), &in); fault != "" {
				return s, errors.New(fault.Message())
			}
			s.Events++
		}
	}
	s.Seconds = time.Since(begin).Seconds()
	if s.Events != int64(t.Set.Events) {
		err = fmt.Errorf("%d events, not %d", s.Events, t.Set.Events)
	}
	return s, err
}

func open(ctx context.Context, root, guard string) (*ingest.Indexer, error) {
	return ingest.Open(ctx, ingest.Options{Root: root, GuardDir: guard, Now: time.Now})
}

// build fills an index that is not there yet.
func build(ctx context.Context, t task, guard string) (sample, error) {
	begin := time.Now()
	x, err := open(ctx, t.Root, guard)
	if err != nil {
		return sample{}, err
	}
	counts, err := x.Reindex(ctx, nil)
	if err = errors.Join(err, x.Close()); err != nil {
		return sample{}, err
	}
	s := sample{
		Seconds:    time.Since(begin).Seconds(),
		Bytes:      counts.Bytes,
		Events:     counts.Events,
		Operations: counts.Operations,
		Index:      fileBytes(filepath.Join(guard, store.FileName())),
	}
	if counts.Faults > 0 {
		return s, fmt.Errorf("found %d faults in sound files", counts.Faults)
	}
	return s, check(t, s)
}

// coldBuild is a reindex from nothing, to closed and durable.
func coldBuild(ctx context.Context, t task) (sample, error) { return build(ctx, t, t.Scratch) }

// keptBuild leaves the index for works that want one.
func keptBuild(ctx context.Context, t task) (sample, error) { return build(ctx, t, t.Guard) }

// makeRoot writes a set.
func makeRoot(ctx context.Context, t task) (sample, error) {
	begin := time.Now()
	m, err := makeSet(ctx, t.Root, t.Set, t.Seed)
	return sample{Seconds: time.Since(begin).Seconds(), Bytes: m.Tally.Bytes, Events: m.Tally.Events}, err
}

const listed = 50

// start is the first answer of a process that finds nothing changed.
func start(ctx context.Context, t task) (sample, error) {
	begin := time.Now()
	x, err := open(ctx, t.Root, t.Guard)
	if err != nil {
		return sample{}, err
	}
	page, err := x.List(ctx, ingest.Query{Limit: listed})
	s := sample{Seconds: time.Since(begin).Seconds()}
	if err = errors.Join(err, x.Close()); err != nil {
		return s, err
	}
	if len(page.Operations) != listed || page.RunsScanned != t.Set.Files {
		err = fmt.Errorf("the list holds %d operations of %d runs", len(page.Operations), page.RunsScanned)
	}
	return s, err
}

// watched opens an up to date index and waits until its root is watched. The
// returned function closes both.
func watched(ctx context.Context, t task) (x *ingest.Indexer, end func() error, skipped string, err error) {
	if x, err = open(ctx, t.Root, t.Guard); err != nil {
		return nil, nil, "", err
	}
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- x.Watch(ctx) }()
	end = func() error {
		cancel()
		if err := <-over; !errors.Is(err, context.Canceled) {
			return errors.Join(err, x.Close())
		}
		return x.Close()
	}
	for range 1000 {
		if x.Watching() {
			// The first look at every run follows the watch; it is not what is
			// measured.
			time.Sleep(300 * time.Millisecond)
			return x, end, "", x.Sync(ctx)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, nil, "run files cannot be watched here", end()
}

// asked times n calls of fn against a watched root, each followed by a bare
// Sync, which is the part of a call that does not depend on the question.
func asked(ctx context.Context, t task, n int, prepare func(*ingest.Indexer) (func(i int) error, error)) (sample, error) {
	x, end, skipped, err := watched(ctx, t)
	if err != nil || skipped != "" {
		return sample{Skipped: skipped}, err
	}
	var took, bare []float64
	fn, err := prepare(x)
	if err == nil {
		took, err = latencies(n, fn)
	}
	if err == nil {
		bare, err = latencies(n, func(int) error { return x.Sync(ctx) })
	}
	s := sample{P50: quantile(took, 0.5), P99: quantile(took, 0.99), Barrier: quantile(bare, 0.5)}
	return s, errors.Join(err, end())
}

// newest lists the newest operations.
func newest(ctx context.Context, t task) (sample, error) {
	return asked(ctx, t, 2000, func(x *ingest.Indexer) (func(int) error, error) {
		return func(int) error {
			page, err := x.List(ctx, ingest.Query{Limit: listed})
			if err == nil && len(page.Operations) != listed {
				err = fmt.Errorf("the list holds %d operations", len(page.Operations))
			}
			return err
		}, nil
	})
}

// receipt reads receipts of operations from all over the root.
func receipt(ctx context.Context, t task) (sample, error) {
	return asked(ctx, t, 2000, func(x *ingest.Indexer) (func(int) error, error) {
		runs, err := x.Runs(ctx)
		if err != nil {
			return nil, err
		}
		r := rand.New(rand.NewPCG(t.Seed, 0))
		var refs []ingest.Ref
		for range min(40, len(runs)) {
			page, err := x.List(ctx, ingest.Query{Run: "run:" + runs[r.IntN(len(runs))], Limit: 100})
			if err != nil {
				return nil, err
			}
			for _, o := range page.Operations {
				refs = append(refs, o.Ref)
			}
		}
		return func(int) error {
			got, err := x.Receipt(ctx, refs[r.IntN(len(refs))], "")
			if err == nil && got.EventCount() == 0 {
				err = errors.New("a receipt holds no event")
			}
			return err
		}, nil
	})
}
