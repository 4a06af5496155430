package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/internal/safefile"
)

const runSuffix = ".ndjson"

// maxRun bounds the run files `build` reads whole; the index has no such limit.
const maxRun = 2 << 30

// runFile is a run that was chosen to be built.
type runFile struct {
	id   string // WTF-8
	dir  string // real path of the directory it lies in
	name string // entry name, as the file system spells it
	path string // as it is shown
}

// runID is the id of a run file (trace contract, section 2): the name without
// a final .ndjson, unless that is the whole name.
func runID(name string) string {
	if name != runSuffix {
		name = strings.TrimSuffix(name, runSuffix)
	}
	return string(jsjson.ToWTF8(nil, []byte(name)))
}

// listRuns lists the run files of a root in listing order: by file name with
// the extension, by UTF-16 code unit (trace contract, section 2). Entries that
// are no regular files are listed too. A directory that is absent or cannot be
// read lists nothing.
func listRuns(root string) []runFile {
	shown := filepath.Join(root, "events")
	real, err := safefile.ResolveRoot(shown)
	if err != nil {
		return nil
	}
	d, err := safefile.OpenDir(real)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, err := d.Names(runSuffix)
	if err != nil {
		return nil
	}
	runs := make([]runFile, len(names))
	keys := make(map[string][]byte, len(names))
	for i, name := range names {
		runs[i] = runFile{id: runID(name), dir: real, name: name, path: filepath.Join(shown, name)}
		keys[name] = jsjson.ToWTF8(nil, []byte(name))
	}
	slices.SortFunc(runs, func(a, b runFile) int {
		if c := jsjson.Compare(keys[a.name], keys[b.name]); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	return runs
}

// namedFiles are the run files given as operands. A file given twice counts
// once.
func namedFiles(operands []string) ([]runFile, error) {
	var runs []runFile
	for _, operand := range operands {
		if strings.TrimSpace(operand) == "" {
			return nil, usage("a run file's name is blank")
		}
		dir, err := safefile.ResolveRoot(filepath.Dir(operand))
		if err != nil {
			return nil, errcode.Wrap(errcode.Bare(err), errcode.RunNotFound, "check the path of the run file",
				"open the directory of %s", plain.Quote(operand, plain.Detail))
		}
		name := filepath.Base(operand)
		if slices.ContainsFunc(runs, func(r runFile) bool { return r.dir == dir && r.name == name }) {
			continue
		}
		runs = append(runs, runFile{id: runID(name), dir: dir, name: name, path: operand})
	}
	return runs, nil
}

// distinct refuses two run files with one run id: their receipts could not be
// told apart (trace contract, section 2).
func distinct(runs []runFile) error {
	seen := map[string]string{}
	for _, r := range runs {
		if other, ok := seen[r.id]; ok {
			return errcode.New(errcode.RunDamaged, "move one of the two elsewhere, or build one of them by its path",
				"two run files have one id, %s: %s and %s", plain.Quote(r.id, plain.Detail),
				plain.Quote(other, plain.Detail), plain.Quote(r.path, plain.Detail))
		}
		seen[r.id] = r.path
	}
	return nil
}

// read gives a run's bytes. Only a regular file that is no link is read.
func (r runFile) read() ([]byte, error) {
	d, err := safefile.OpenDir(r.dir)
	if err != nil {
		return nil, r.unreadable(err)
	}
	defer d.Close()
	data, err := d.ReadFile(r.name, maxRun)
	if err != nil {
		return nil, r.unreadable(err)
	}
	return data, nil
}

func (r runFile) unreadable(err error) error {
	id := plain.Quote(r.id, plain.Detail)
	var odd *safefile.NotRegular
	switch {
	case errors.As(err, &odd):
		return errcode.New(errcode.RunDamaged, "put a regular, readable file in its place or move it out of events/",
			"read run %s: %s: %s", id, plain.Quote(r.path, plain.Detail), odd.Reason)
	case errors.Is(err, fs.ErrNotExist):
		return errcode.New(errcode.RunNotFound, "settlewatch status --runs for what is there",
			"read run %s: no file %s", id, plain.Quote(r.path, plain.Detail))
	case errors.Is(err, safefile.ErrTooLarge):
		return errcode.New(errcode.Input, "settlewatch list and settlewatch receipt, which read a run of any size",
			"build run %s: the file is larger than 2 GiB", id)
	}
	return errcode.Wrap(errcode.Bare(err), errcode.RunDamaged, "check the disk and the permissions of the file",
		"read run %s from %s", id, plain.Quote(r.path, plain.Detail))
}
