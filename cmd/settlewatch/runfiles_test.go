package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

func TestRunsAreListedByFileName(t *testing.T) {
	root := t.TempDir()
	events := filepath.Join(root, "events")
	if err := os.Mkdir(events, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"a.ndjson", "a-1.ndjson", "999.ndjson", "1000.ndjson", "\U0001f600.ndjson", "\ufb00.ndjson", ".ndjson", ".hidden.ndjson",
		"x.NDJSON", "x.ndjson.bak", "x.ndjso", "README",
	} {
		if err := os.WriteFile(filepath.Join(events, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(events, "dir.ndjson"), 0o700); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range listRuns(root) {
		ids = append(ids, r.id)
	}
	// By UTF-16 code unit of the whole name: '-' before '.', surrogates before
	// U+FB00 (trace contract, section 2).
	want := []string{".hidden", ".ndjson", "1000", "999", "a-1", "a", "dir", "\U0001f600", "\ufb00"}
	if !slices.Equal(ids, want) {
		t.Errorf("got %q, want %q", ids, want)
	}
	if got := listRuns(t.TempDir()); got != nil {
		t.Errorf("a root without events lists %v", got)
	}
}

func TestTwoRunsWithOneIDAreRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		files []string
		want  bool
	}{
		{"different ids", []string{"a.ndjson", "b.ndjson"}, false},
		{".ndjson and .ndjson.ndjson", []string{".ndjson", ".ndjson.ndjson"}, true},
		{"bytes that decode alike", []string{"a\xff.ndjson", "a\xfe.ndjson"}, true},
	} {
		var runs []runFile
		for _, f := range c.files {
			runs = append(runs, runFile{id: runID(f), name: f, path: f})
		}
		err := distinct(runs)
		if (err != nil) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil && errcode.Of(err).Code != errcode.RunDamaged {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestARunIsNamedByAPerson(t *testing.T) {
	for _, c := range []struct {
		in, id string
		latest bool
	}{
		{"latest", "", true}, {"run:latest", "latest", false}, {"17", "17", false}, {"run:17", "17", false}, {"run:run:17", "run:17", false},
	} {
		if id, latest := runOperand(c.in); id != c.id || latest != c.latest {
			t.Errorf("%s: %q, %v", c.in, id, latest)
		}
	}
}
