package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"time"
)

// childArg is the hidden first argument that makes this binary do one task and
// end.
const childArg = "measure"

// task is what a child is told on its standard input.
type task struct {
	Work    string
	Root    string  // the trace root to measure on
	Guard   string  // a guard directory whose index is up to date, where the work wants one
	Scratch string  // an empty directory of the child's own
	Rate    int     // appends a second, for works that append
	Seconds float64 // how long works last that last as long as they are told
	Seed    uint64
	Set     set
	Profile string // file for a CPU profile of the work; "" is none
}

// sample is what one child measured. What does not apply is zero.
type sample struct {
	Seconds    float64 `json:"seconds,omitempty"` // wall time of the measured part
	CPU        float64 `json:"cpu_seconds,omitempty"`
	RSS        int64   `json:"peak_rss_bytes,omitempty"`
	Bytes      int64   `json:"bytes,omitempty"` // of run files gone through in Seconds
	Events     int64   `json:"events,omitempty"`
	Operations int64   `json:"operations,omitempty"`
	Index      int64   `json:"index_bytes,omitempty"`
	P50        float64 `json:"p50_seconds,omitempty"` // of one call
	P99        float64 `json:"p99_seconds,omitempty"`
	Barrier    float64 `json:"barrier_seconds,omitempty"` // p50 of the bare Sync that each call contains
	Inside     float64 `json:"inside_seconds,omitempty"`  // p50 of the part of a call that reads the index and judges
	WAL        int64   `json:"wal_bytes,omitempty"`       // the most the write-ahead log had
	Process    float64 `json:"process_seconds,omitempty"` // from before its start to after its end
	Skipped    string  `json:"skipped,omitempty"`         // why there is nothing to measure here
}

// work measures one thing.
type work func(context.Context, task) (sample, error)

// child is the other side of measure: it does the task on stdin.
func child(ctx context.Context, works map[string]work, stdin io.Reader, stdout io.Writer) error {
	var t task
	if err := json.NewDecoder(stdin).Decode(&t); err != nil {
		return fmt.Errorf("read the task: %w", err)
	}
	do, ok := works[t.Work]
	if !ok {
		return fmt.Errorf("measure %q: there is no such work", t.Work)
	}
	stop := func() error { return nil }
	if t.Profile != "" {
		f, err := os.Create(t.Profile)
		if err != nil {
			return fmt.Errorf("write the profile: %w", err)
		}
		if err := pprof.StartCPUProfile(f); err != nil {
			return fmt.Errorf("write the profile: %w", err)
		}
		stop = func() error {
			pprof.StopCPUProfile()
			return f.Close()
		}
	}
	s, err := do(ctx, t)
	if err = errors.Join(err, stop()); err != nil {
		return fmt.Errorf("measure %s: %w", t.Work, err)
	}
	if s.CPU == 0 {
		s.CPU = cpuTime(false).Seconds()
	}
	if s.RSS == 0 {
		s.RSS = peakRSS()
	}
	return json.NewEncoder(stdout).Encode(s)
}

// measure does a task in a fresh process of this binary.
func measure(ctx context.Context, t task) (sample, error) {
	var s sample
	self, err := os.Executable()
	if err != nil {
		return s, fmt.Errorf("find this binary: %w", err)
	}
	in, err := json.Marshal(t)
	if err != nil {
		return s, err
	}
	cmd := exec.CommandContext(ctx, self, childArg)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return s, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return s, err
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return s, fmt.Errorf("start a child: %w", err)
	}
	_, werr := stdin.Write(in)
	cerr := stdin.Close()
	out, rerr := io.ReadAll(stdout)
	if err := cmd.Wait(); err != nil {
		return s, fmt.Errorf("measure %s on %s: %w", t.Work, t.Set, err)
	}
	took := time.Since(begin)
	if err := errors.Join(werr, cerr, rerr); err != nil {
		return s, fmt.Errorf("talk to the child: %w", err)
	}
	if err := json.Unmarshal(out, &s); err != nil {
		return s, fmt.Errorf("read what the child measured: %w", err)
	}
	s.Process = took.Seconds()
	return s, nil
}

// passes repeats fn for about half a second, at least three times, and gives
// the median of the time and of the processor time of one pass.
func passes(fn func() error) (seconds, cpu float64, err error) {
	var took, used []float64
	for total := 0.0; len(took) < 3 || total < 0.5; {
		begin, before := time.Now(), cpuTime(false)
		if err := fn(); err != nil {
			return 0, 0, err
		}
		s := time.Since(begin).Seconds()
		took = append(took, s)
		used = append(used, (cpuTime(false) - before).Seconds())
		total += s
	}
	return median(took), median(used), nil
}

// latencies times n calls of fn one by one, after some that do not count.
func latencies(n int, fn func(i int) error) ([]float64, error) {
	took := make([]float64, 0, n)
	for i := range n + n/10 {
		begin := time.Now()
		if err := fn(i); err != nil {
			return nil, err
		}
		if i >= n/10 {
			took = append(took, time.Since(begin).Seconds())
		}
	}
	slices.Sort(took)
	return took, nil
}

// quantile of sorted values.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	switch n := len(s); {
	case n == 0:
		return 0
	case n%2 == 1:
		return s[n/2]
	default:
		return (s[n/2-1] + s[n/2]) / 2
	}
}

// fileBytes is the size of a file and of SQLite's companions of it.
func fileBytes(path string) int64 {
	var n int64
	for _, suffix := range []string{"", "-wal"} {
		if info, err := os.Stat(filepath.Clean(path + suffix)); err == nil {
			n += info.Size()
		}
	}
	return n
}
