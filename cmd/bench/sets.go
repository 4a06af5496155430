package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sync/errgroup"
)

// set is a trace root to measure on: so many events over so many run files.
type set struct {
	Events, Files int
}

func (s set) String() string {
	return short(s.Events) + "/" + strconv.Itoa(s.Files)
}

func short(n int) string {
	switch {
	case n >= 1_000_000 && n%1_000_000 == 0:
		return strconv.Itoa(n/1_000_000) + "M"
	case n >= 1000 && n%1000 == 0:
		return strconv.Itoa(n/1000) + "k"
	}
	return strconv.Itoa(n)
}

// sets names the roots by the part they play, so that rows need not know how
// large a run of the benchmark is.
type sets struct {
	small   set // fits memory and is quick to read: decoding, slow yardsticks
	million set // what the targets speak of
	many    set // the same in very many runs
	one     set // the same in one run
	large   set // ten times as much
	giant   set // the same in one run
}

var (
	fullSets = sets{
		small:   set{100_000, 20},
		million: set{1_000_000, 100},
		many:    set{1_000_000, 10_000},
		one:     set{1_000_000, 1},
		large:   set{10_000_000, 1000},
		giant:   set{10_000_000, 1},
	}
	// quickSets are for a look in seconds; their ratios are rougher, and what
	// is fixed cost weighs more in them.
	quickSets = sets{
		small:   set{5000, 2},
		million: set{50_000, 20},
		many:    set{20_000, 1000},
		one:     set{50_000, 1},
		large:   set{500_000, 50},
		giant:   set{500_000, 1},
	}
)

// manifest says what a made set holds. It lies beside events/.
type manifest struct {
	Version int
	Seed    uint64
	Set     set
	Tally   tally
}

const manifestName = "set.json"

func readManifest(root string) (manifest, error) {
	var m manifest
	b, err := os.ReadFile(filepath.Join(root, manifestName))
	if err != nil {
		return m, fmt.Errorf("read what the set holds: %w", err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("read what the set holds: %w", err)
	}
	return m, nil
}

// spans cuts a set into runs: as many events each, spread over the days.
func (s set) spans() []span {
	length := int64(days) * 24 * 3600 * 1000 / int64(s.Files)
	out := make([]span, s.Files)
	for i := range out {
		out[i] = span{
			number: i,
			events: (i+1)*s.Events/s.Files - i*s.Events/s.Files,
			start:  firstDay + int64(i)*length,
			length: length,
		}
	}
	return out
}

// makeSet writes a set below root, unless it is there already.
func makeSet(ctx context.Context, root string, s set, seed uint64) (manifest, error) {
	want := manifest{Version: dataVersion, Seed: seed, Set: s}
	have, err := readManifest(root)
	if err == nil {
		want.Tally = have.Tally
		if have == want {
			return have, nil
		}
		return have, fmt.Errorf("make the set %s: %s holds another one; try: remove it, or name another directory with --data", s, root)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return have, err
	}
	events := filepath.Join(root, "events")
	if err := os.MkdirAll(events, 0o755); err != nil {
		return have, fmt.Errorf("make the set %s: %w", s, err)
	}
	g := newGenerator(seed)
	spans := s.spans()
	tallies := make([]tally, len(spans))
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(runtime.NumCPU())
	for i, sp := range spans {
		work.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			f, err := os.Create(filepath.Join(events, sp.name()))
			if err != nil {
				return err
			}
			tallies[i], err = g.run(f, sp)
			return errors.Join(err, f.Close())
		})
	}
	if err := work.Wait(); err != nil {
		return have, fmt.Errorf("make the set %s: %w", s, err)
	}
	for _, t := range tallies {
		want.Tally.add(t)
	}
	b, err := json.MarshalIndent(want, "", "  ")
	if err != nil {
		return have, err
	}
	// The disk is to be quiet before anything is measured.
	if err := flush(root); err != nil {
		return have, fmt.Errorf("flush the set %s to disk: %w", s, err)
	}
	return want, os.WriteFile(filepath.Join(root, manifestName), b, 0o644)
}

// runFiles lists the run files of a root in the order of their names.
func runFiles(root string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(root, "events", "*.ndjson"))
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("list the run files of %s: there are none", root)
	}
	return names, err
}
