//go:build unix

package ingest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestEntriesThatAreNoFilesAreReportedAndNeverOpened(t *testing.T) {
	root, path := newRoot(t)
	write(t, path("good.ndjson"), line("a", 1, "submitted"))
	if err := os.Mkdir(path("dir.ndjson"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path("fifo.ndjson"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path("good.ndjson"), path("link.ndjson")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", path("dangling.ndjson")); err != nil {
		t.Fatal(err)
	}
	x := open(t, root)
	p, err := x.List(context.Background(), Query{})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Operations) != 1 {
		t.Errorf("%d operations, want the one of the sound run", len(p.Operations))
	}
	var got []string
	for _, d := range p.DamagedRuns {
		got = append(got, fmt.Sprintf("%s line %d %s", d.RunID, d.Line, d.Reason))
	}
	want := "dangling line 0 the entry is a symbolic link; dir line 0 the entry is a directory; fifo line 0 the entry is a named pipe; link line 0 the entry is a symbolic link"
	if strings.Join(got, "; ") != want {
		t.Errorf("damage is\n%s, want\n%s", strings.Join(got, "; "), want)
	}
	// An entry that becomes a run file is served.
	_ = os.Remove(path("fifo.ndjson"))
	write(t, path("fifo.ndjson"), line("f", 2, "submitted"))
	wantOperations(t, x, "fifo/f", "good/a")
}
