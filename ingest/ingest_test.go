package ingest

import (
	"context"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/store"
)

// copyRoot copies a root of testdata/runs (or parity) into a directory of the
// test's own.
func copyRoot(t *testing.T, name string) string {
	t.Helper()
	dst := t.TempDir()
	src := filepath.Join("..", "testdata", name)
	if err := os.CopyFS(filepath.Join(dst, "events"), os.DirFS(filepath.Join(src, "events"))); err != nil {
		t.Fatal(err)
	}
	return dst
}

func open(t *testing.T, root string) *Indexer {
	t.Helper()
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
	x, err := Open(context.Background(), Options{Root: root, Now: time.Now, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.Close() })
	return x
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", p)
	return len(p), nil
}

// dump gives every row of the index after a sync.
func dump(t *testing.T, x *Indexer) []string {
	t.Helper()
	var rows []string
	err := x.Ask(context.Background(), func(v *store.View) error {
		rows = rows[:0]
		return v.Dump(func(_ int, s string) error {
			rows = append(rows, s)
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// mustBeSound checks the live index against one built beside it.
func mustBeSound(t *testing.T, x *Indexer) {
	t.Helper()
	report, err := x.Fsck(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range report.Differences {
		t.Errorf("fsck: %s", d)
	}
	mustAddUp(t, x)
}

// mustAddUp compares the kept sums of the live index with its payments and
// operations one by one.
func mustAddUp(t *testing.T, x *Indexer) {
	t.Helper()
	if err := x.Snapshot(context.Background(), func(v *store.View) error {
		assets := map[int64]bool{store.AnyAsset: true}
		var all []store.Paid
		for p, err := range v.Leaving(store.Scope{Asset: store.AnyAsset}, math.MinInt64) {
			if err != nil {
				return err
			}
			assets[p.Asset] = true
			all = append(all, p)
		}
		windows := []int64{math.MinInt64, 0}
		if len(all) > 0 {
			windows = append(windows, all[len(all)/2].At, all[len(all)-1].At)
		}
		for asset := range assets {
			undated, _, err := v.Window(asset, math.MaxInt64-1)
			if err != nil {
				return err
			}
			for _, since := range windows {
				got, _, err := v.Window(asset, since)
				if err != nil {
					return err
				}
				n, sum := undated.Payments(), new(big.Int)
				for _, part := range []store.Part{undated.Plain, undated.Definite, undated.Smaller} {
					sum.Add(sum, number(part.Amount))
				}
				for _, p := range all {
					if p.At > since && (asset == store.AnyAsset || p.Asset == asset) {
						n++
						if asset != store.AnyAsset {
							sum.Add(sum, number(p.Amount))
						}
					}
				}
				have := new(big.Int)
				for _, part := range []store.Part{got.Plain, got.Definite, got.Smaller} {
					have.Add(have, number(part.Amount))
				}
				if got.Payments() != n || have.Cmp(sum) != 0 {
					t.Errorf("the window of asset %d since %d holds %d payments of %s, want %d of %s", asset, since, got.Payments(), have, n, sum)
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func number(amount string) *big.Int {
	n, _ := new(big.Int).SetString("0"+amount, 10)
	return n
}

func eachRecordedRoot(t *testing.T, fn func(t *testing.T, root string)) {
	entries, err := os.ReadDir(filepath.Join("..", "testdata", "runs"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		t.Run(e.Name(), func(t *testing.T) { fn(t, copyRoot(t, filepath.Join("runs", e.Name()))) })
	}
}

func TestAnIndexFilledLineByLineEqualsOneFilledAtOnce(t *testing.T) {
	eachRecordedRoot(t, func(t *testing.T, whole string) {
		grown := t.TempDir()
		if err := os.Mkdir(filepath.Join(grown, "events"), 0o755); err != nil {
			t.Fatal(err)
		}
		x := open(t, grown)
		src := os.DirFS(filepath.Join(whole, "events"))
		names, err := fs.Glob(src, "*.ndjson")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			data, err := fs.ReadFile(src, name)
			if err != nil {
				t.Fatal(err)
			}
			f, err := os.Create(filepath.Join(grown, "events", name))
			if err != nil {
				t.Fatal(err)
			}
			step := max(1, len(data)*slowly/40) // cuts lines anywhere
			for len(data) > 0 {
				n := min(step, len(data))
				if _, err := f.Write(data[:n]); err != nil {
					t.Fatal(err)
				}
				data = data[n:]
				if err := x.Sync(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		mustBeSound(t, x)
		if len(dump(t, x)) == 0 {
			t.Fatal("the index is empty")
		}
	})
}

var _ io.Writer = testWriter{}
