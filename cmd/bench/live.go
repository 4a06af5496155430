package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/settlewatch/settlewatch/store"
)

// The works in this file watch a root that changes, or does not.

// idle is the processor time of a sidecar that nobody asks and nothing wakes.
func idle(ctx context.Context, t task) (sample, error) {
	_, end, skipped, err := watched(ctx, t)
	if err != nil || skipped != "" {
		return sample{Skipped: skipped}, err
	}
	sleep := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	sleep(2 * time.Second)
	begin, used := time.Now(), cpuTime(false)
	sleep(time.Duration(t.Seconds * float64(time.Second)))
	s := sample{CPU: (cpuTime(false) - used).Seconds(), Seconds: time.Since(begin).Seconds()}
	return s, errors.Join(err, end())
}

// sidecar keeps an index up to date until its standard input ends. It says
// when it has begun.
func sidecar(ctx context.Context, t task) (sample, error) {
	_, end, skipped, err := watched(ctx, t)
	if err != nil {
		return sample{}, err
	}
	if err := json.NewEncoder(os.Stdout).Encode(sample{Skipped: skipped}); err != nil {
		return sample{}, err
	}
	if skipped != "" {
		return sample{}, nil
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return sample{}, errors.Join(err, end())
}

// visible appends to a run file at a steady rate while another process keeps
// the index, and times from each write's return to the moment this process
// finds the line in the index.
func visible(ctx context.Context, t task) (s sample, err error) {
	lines, err := liveLines(t)
	if err != nil {
		return s, err
	}
	other, skipped, stop, err := startSidecar(ctx, t)
	if err != nil || skipped != "" {
		return sample{Skipped: skipped}, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	name := fmt.Sprintf("live-%d.ndjson", other)
	path := filepath.Join(t.Root, "events", name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	ix, err := store.Open(ctx, filepath.Join(t.Guard, store.FileName()))
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, ix.Close()) }()

	// written[i] is set before the appender says so over the channel.
	written := make([]time.Time, len(lines))
	ends := make([]int64, len(lines))
	said := make(chan int, len(lines))
	begin := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(said)
		var at int64
		for i, line := range lines {
			due := begin.Add(time.Duration(i) * time.Second / time.Duration(t.Rate))
			for wait := time.Until(due); wait > 0 && ctx.Err() == nil; wait = time.Until(due) {
				nap(wait)
			}
			if _, err := f.Write(line); err != nil {
				return err
			}
			at += int64(len(line))
			written[i], ends[i] = time.Now(), at
			said <- i
		}
		return nil
	})
	took := make([]float64, 0, len(lines))
	g.Go(func() error {
		var covered int64
		var err error
		var seen time.Time // when covered was found
		for i := range said {
			for deadline := time.Now().Add(10 * time.Second); covered < ends[i]; {
				if covered, err = covers(ctx, ix, name); err != nil {
					return err
				}
				seen = time.Now()
				if covered < ends[i] {
					nap(50 * time.Microsecond)
				}
				if seen.After(deadline) {
					return fmt.Errorf("line %d of %s is not in the index after 10 s", i+1, name)
				}
			}
			// The index may have had it before the appender got its time.
			took = append(took, max(0, seen.Sub(written[i]).Seconds()))
		}
		return nil
	})
	err = g.Wait()
	slices.Sort(took)
	return sample{P50: quantile(took, 0.5), P99: quantile(took, 0.99), Events: int64(len(took)), Seconds: time.Since(begin).Seconds()}, err
}

func covers(ctx context.Context, ix *store.Index, name string) (covered int64, err error) {
	err = ix.Read(ctx, func(v *store.View) error {
		run, err := v.RunByFile([]byte(name))
		if run != nil {
			covered = run.Covered
		}
		return err
	})
	return covered, err
}

// liveLines makes the lines of a run that goes on as long as told.
func liveLines(t task) ([][]byte, error) {
	var run bytes.Buffer
	n := int(t.Seconds * float64(t.Rate))
	if _, err := newGenerator(t.Seed).run(&run, span{number: t.Set.Files, events: n, start: firstDay, length: 1000 * int64(t.Seconds+1)}); err != nil {
		return nil, err
	}
	return slices.Collect(bytes.Lines(run.Bytes())), nil
}

// startSidecar runs a sidecar in a process of its own and waits until it has
// begun.
func startSidecar(ctx context.Context, t task) (pid int, skipped string, stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, "", nil, err
	}
	t.Work = "sidecar"
	if t.Profile != "" {
		t.Profile = strings.TrimSuffix(t.Profile, ".pprof") + "-sidecar.pprof"
	}
	in, err := json.Marshal(t)
	if err != nil {
		return 0, "", nil, err
	}
	cmd := exec.CommandContext(ctx, self, childArg)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 0, "", nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return 0, "", nil, err
	}
	said := json.NewDecoder(stdout)
	stop = func() error {
		// Both it says at its end and the pipe have to be read before Wait.
		err := stdin.Close()
		_, cerr := io.Copy(io.Discard, stdout)
		return errors.Join(err, cerr, cmd.Wait())
	}
	var begun sample
	if _, err = stdin.Write(in); err == nil {
		err = said.Decode(&begun)
	}
	if err != nil {
		return 0, "", nil, errors.Join(fmt.Errorf("start a sidecar: %w", err), stop())
	}
	if begun.Skipped != "" {
		return 0, begun.Skipped, nil, stop()
	}
	return cmd.Process.Pid, "", stop, nil
}

// catchUp is the live path over much at once: every run of the root grows by
// its second half while nobody looks.
func catchUp(ctx context.Context, t task) (sample, error) {
	names, err := runFiles(t.Root)
	if err != nil {
		return sample{}, err
	}
	root, guard := filepath.Join(t.Scratch, "root"), filepath.Join(t.Scratch, "guard")
	if err := os.MkdirAll(filepath.Join(root, "events"), 0o755); err != nil {
		return sample{}, err
	}
	rest := make([][]byte, len(names))
	for i, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return sample{}, err
		}
		half := len(data)/2 + bytes.IndexByte(data[len(data)/2:], '\n') + 1
		names[i] = filepath.Join(root, "events", filepath.Base(name))
		if err := os.WriteFile(names[i], data[:half], 0o644); err != nil {
			return sample{}, err
		}
		rest[i] = data[half:]
	}
	x, err := open(ctx, root, guard)
	if err != nil {
		return sample{}, err
	}
	before, err := x.Reindex(ctx, nil)
	var s sample
	if err == nil {
		err = appendAll(names, rest)
	}
	if err == nil {
		begin := time.Now()
		err = x.Sync(ctx)
		s.Seconds = time.Since(begin).Seconds()
	}
	if err != nil {
		return s, errors.Join(err, x.Close())
	}
	after, err := x.Status(ctx)
	if err = errors.Join(err, x.Close()); err != nil {
		return s, err
	}
	s.Events, s.Operations = after.Counts.Events, after.Counts.Operations
	err = check(t, s)
	s.Events -= before.Events
	s.Bytes = after.Counts.Bytes - before.Bytes
	return s, err
}

func appendAll(names []string, data [][]byte) error {
	for i, name := range names {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		_, err = f.Write(data[i])
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
