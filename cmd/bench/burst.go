package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/settlewatch/settlewatch/store"
)

const (
	burstReaders = 8
	heldFor      = time.Minute
)

// burst writes all run files of a set at once, in pieces and as fast as the disk takes
// them, while a process of its own indexes them and readers ask.
func burst(ctx context.Context, t task) (sample, error) { return writeBurst(ctx, t, 0) }

// burstHeld is burst under a reader that holds its snapshot for a minute.
func burstHeld(ctx context.Context, t task) (sample, error) { return writeBurst(ctx, t, heldFor) }

func writeBurst(ctx context.Context, t task, held time.Duration) (s sample, err error) {
	from, err := runFiles(t.Root)
	if err != nil {
		return s, err
	}
	t.Root, t.Guard = filepath.Join(t.Scratch, "root"), filepath.Join(t.Scratch, "guard")
	if err := errors.Join(os.MkdirAll(filepath.Join(t.Root, "events"), 0o755), os.Mkdir(t.Guard, 0o755)); err != nil {
		return s, err
	}
	// What readers ask about is there before the burst.
	first := filepath.Join(t.Root, "events", filepath.Base(from[0]))
	data, err := os.ReadFile(from[0])
	if err == nil {
		err = os.WriteFile(first, data, 0o644)
	}
	if err != nil {
		return s, err
	}
	pid, skipped, stop, err := startSidecar(ctx, t)
	if err != nil || skipped != "" {
		return sample{Skipped: skipped}, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	path := filepath.Join(t.Guard, store.FileName())
	ix, err := store.Open(ctx, path)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()

	var over atomic.Bool
	g, gctx := errgroup.WithContext(ctx)
	begin := time.Now()
	if held > 0 {
		if err := hold(gctx, g, path, held); err != nil {
			return s, err
		}
	}
	took := make([][]float64, burstReaders)
	for i := range took {
		r := rand.New(rand.NewPCG(t.Seed, uint64(i)))
		g.Go(func() (err error) {
			for !over.Load() && err == nil {
				var one float64
				one, err = askOne(gctx, ix, r)
				took[i] = append(took[i], one)
				nap(500 * time.Microsecond)
			}
			return err
		})
	}
	g.Go(func() error {
		defer over.Store(true)
		if err := copyInPieces(from[1:], filepath.Join(t.Root, "events")); err != nil {
			return err
		}
		s.Seconds = time.Since(begin).Seconds()
		for {
			events, err := indexed(gctx, ix)
			if err != nil || events == int64(t.Set.Events) && time.Since(begin) > held {
				return err
			}
			if events == int64(t.Set.Events) && s.Events == 0 {
				s.Events, s.Process = events, time.Since(begin).Seconds()
			}
			if time.Since(begin) > held+5*time.Minute {
				return fmt.Errorf("%d of %d events are indexed after five minutes", events, t.Set.Events)
			}
			time.Sleep(20 * time.Millisecond)
			if info, err := os.Stat(path + "-wal"); err == nil {
				s.WAL = max(s.WAL, info.Size())
			}
		}
	})
	if err := g.Wait(); err != nil {
		return s, err
	}
	all := slices.Sorted(slices.Values(slices.Concat(took...)))
	s.P50, s.P99, s.RSS = quantile(all, 0.5), quantile(all, 0.99), memoryOf(pid, "VmHWM")
	return s, nil
}

// hold keeps a snapshot from before the burst open for a while, as a program does that
// looks at the index and forgets to stop. What it sees must not change.
func hold(ctx context.Context, g *errgroup.Group, path string, held time.Duration) error {
	ix, err := store.Open(ctx, path)
	if err != nil {
		return err
	}
	begun := make(chan error, 1)
	g.Go(func() error {
		err := ix.Read(ctx, func(v *store.View) error {
			before, err := v.RunCount()
			begun <- err
			if err != nil {
				return err
			}
			select {
			case <-time.After(held):
			case <-ctx.Done():
				return ctx.Err()
			}
			after, err := v.Runs()
			if err == nil && len(after) != before {
				err = fmt.Errorf("a snapshot of %d runs holds %d at its end", before, len(after))
			}
			return err
		})
		return errors.Join(err, ix.Close())
	})
	return <-begun
}

// askOne asks what a check asks of a counterparty, and says how long that took.
func askOne(ctx context.Context, ix *store.Index, r *rand.Rand) (float64, error) {
	begin := time.Now()
	err := ix.Read(ctx, func(v *store.View) error {
		name := []int64{1 + r.Int64N(200)}
		if _, err := v.HistoryOf(name); err != nil {
			return err
		}
		since := dataEnd.Add(-24 * time.Hour).UnixMilli()
		if _, err := v.PaymentsOf(name, since); err != nil {
			return err
		}
		_, _, err := v.Window(store.AnyAsset, since)
		return err
	})
	return time.Since(begin).Seconds(), err
}

func indexed(ctx context.Context, ix *store.Index) (events int64, err error) {
	err = ix.Read(ctx, func(v *store.View) error {
		t, err := v.Totals()
		events = t.Events
		return err
	})
	return events, err
}

// copyInPieces writes files as many processes would: a piece of each in turn, torn
// lines and all.
func copyInPieces(from []string, to string) error {
	const piece = 1 << 20
	type run struct {
		data *bytes.Reader
		file *os.File
	}
	var runs []run
	for _, name := range from {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f, err := os.OpenFile(filepath.Join(to, filepath.Base(name)), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return err
		}
		runs = append(runs, run{bytes.NewReader(data), f})
	}
	for len(runs) > 0 {
		left := runs[:0]
		for _, r := range runs {
			if _, err := io.CopyN(r.file, r.data, piece); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if r.data.Len() > 0 {
				left = append(left, r)
			} else if err := r.file.Close(); err != nil {
				return err
			}
		}
		runs = left
	}
	return nil
}
