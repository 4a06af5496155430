package store

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Readers that always overlap keep the write-ahead log from beginning anew by itself.
func TestTheWriteAheadLogIsBoundedUnderReadersThatNeverPause(t *testing.T) {
	x := open(t)
	grow := func(n int) {
		t.Helper()
		if err := x.Write(t.Context(), func(tx *Tx) error {
			run, err := tx.Run([]byte("a"))
			if run == nil && err == nil {
				run = &Run{File: []byte("a"), FileKey: []byte("a"), Key: []byte("a")}
			}
			if err == nil {
				err = tx.PutRun(run)
			}
			for i := 0; i < 4 && err == nil; i++ {
				_, err = tx.Put(&Operation{Run: run.No, Key: fmt.Appendf(nil, "op-%d-%d", n, i), Last: []byte{1}, Spans: make([]byte, 256<<10)}, nil)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	grow(0)
	var over atomic.Bool
	var readers sync.WaitGroup
	for i := range 2 {
		readers.Go(func() {
			time.Sleep(time.Duration(i) * 5 * time.Millisecond)
			for !over.Load() {
				if err := x.Read(context.Background(), func(v *View) error {
					_, _, err := v.Meta()
					time.Sleep(10 * time.Millisecond)
					return err
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var most int64
	size := func() int64 {
		info, err := os.Stat(x.Path() + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, info.Size())
		return info.Size()
	}
	for n := range 100 {
		grow(n + 1)
		size()
	}
	over.Store(true)
	readers.Wait()
	if most > walLong+3*walKept { // a try may find a slow disk
		t.Errorf("the write-ahead log had %d MB", most>>20)
	}
	if most < walLong {
		t.Errorf("the write-ahead log had %d MB only: nothing was put to the test", most>>20)
	}
	grow(100)
	grow(101)
	if left := size(); left > walLong {
		t.Errorf("%d MB of the write-ahead log stay on disk", left>>20)
	}
}

func TestTheWriteAheadLogIsCutOnceALongReaderHasLeft(t *testing.T) {
	x := open(t)
	if err := x.Read(t.Context(), func(v *View) error {
		if _, _, err := v.Meta(); err != nil {
			return err
		}
		if err := x.Write(t.Context(), func(tx *Tx) error {
			run := &Run{File: []byte("a"), FileKey: []byte("a"), Key: []byte("a")}
			err := tx.PutRun(run)
			for i := 0; i < 2*walKept>>20 && err == nil; i++ {
				_, err = tx.Put(&Operation{Run: run.No, Key: fmt.Appendf(nil, "op-%d", i), Last: []byte{1}, Spans: make([]byte, 1<<20)}, nil)
			}
			return err
		}); err != nil {
			return err
		}
		if !x.Trim() {
			t.Error("a log that somebody reads from was cut, or it is not long")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if x.Trim() {
		t.Error("nobody reads from the log, and it stays long")
	}
	if info, err := os.Stat(x.Path() + "-wal"); err == nil && info.Size() > walKept {
		t.Errorf("%d MB of the log stay on disk", info.Size()>>20)
	}
}

// One that holds its snapshot keeps what it sees, and writers go on.
func TestAHeldSnapshotNeitherChangesNorStopsWriters(t *testing.T) {
	x := open(t)
	write := func() {
		t.Helper()
		if err := x.Write(t.Context(), func(tx *Tx) error {
			return tx.PutRun(&Run{File: fmt.Appendf(nil, "%d", tx.Rev()), FileKey: []byte("a"), Key: fmt.Appendf(nil, "%d", tx.Rev())})
		}); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if err := x.Read(t.Context(), func(v *View) error {
		before, err := v.RunCount()
		if err != nil {
			return err
		}
		for range 50 {
			write()
		}
		after, err := v.RunCount()
		if before != 1 || after != before {
			t.Errorf("a snapshot of %d runs has %d at its end", before, after)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// One long transaction under a reader says nothing of how long the log may become later.
func TestAWriteAheadLogThatBeganAnewMayNotBecomeAsLongAsBefore(t *testing.T) {
	x := open(t)
	put(t, x, 1)
	if err := x.Read(t.Context(), func(v *View) error {
		if _, _, err := v.Meta(); err != nil {
			return err
		}
		return x.Write(t.Context(), func(tx *Tx) error {
			for i := range 5 {
				if _, err := tx.Put(&Operation{Run: 1, Key: fmt.Appendf(nil, "op-%d", i), Last: []byte{1}, Spans: make([]byte, walLong/4)}, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	if x.wal == 0 {
		t.Fatal("the log began anew under a reader: nothing was put to the test")
	}
	for n := range 3 {
		put(t, x, n+2)
	}
	if info, err := os.Stat(x.Path() + "-wal"); err != nil || info.Size() > walKept {
		t.Fatalf("the log did not begin anew: %v, %v", info, err)
	}
	if x.wal != 0 {
		t.Errorf("it may grow to %d MB before a writer waits for readers again", (walLong+x.wal)>>20)
	}
}
