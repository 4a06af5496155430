package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/internal/safefile"
)

type buildOptions struct {
	rootOptions
	dirGiven bool
	run      string
	runGiven bool
	all      bool
	template string
	status   string
	out      path
	json     bool
}

func (a *app) build() *cobra.Command {
	var o buildOptions
	c := &cobra.Command{
		Use:   "build [flags] [FILE...]",
		Short: "assemble receipts straight from run files, without the index",
		Long: `Assemble the receipts of one or more runs from their files: the latest run (the last by file
name), the one named by --run, all of them, or the given files. With --json the document is the
one Haia Trace's build prints, byte for byte. A run with a malformed line is refused,
and with it the whole build.

The index is neither read nor written, so --index changes nothing. Nothing is stored
unless --out names a directory: each receipt is then also stored there, under the name the
trace format gives it.`,
	}
	a.command(c, func(ctx context.Context, args []string) error {
		o.dirGiven, o.runGiven = c.Flags().Changed("dir"), c.Flags().Changed("run")
		return a.runBuild(ctx, o, args)
	})
	f := c.Flags()
	o.rootOptions.flags(f)
	f.Lookup("index").Usage = "taken as everywhere and ignored: build reads no index"
	f.Lookup("guard-dir").Usage = "taken as everywhere and ignored"
	f.StringVar(&o.run, "run", "", "run to build: an id, run:<id> or latest (the last by file name)")
	f.BoolVar(&o.all, "all", false, "build every run")
	templateFlag(f, &o.template, " or the path of a file")
	f.StringVar(&o.status, "status", "", "show only receipts that are full or partial")
	f.Var(&o.out, "out", "also store each receipt in this directory")
	jsonFlag(f, &o.json)
	return c
}

func (a *app) runBuild(ctx context.Context, o buildOptions, files []string) error {
	if o.status != "" && o.status != "full" && o.status != "partial" {
		return usage("--status takes full or partial, not %s", plain.Quote(o.status, plain.Detail))
	}
	if len(files) > 0 && (o.all || o.runGiven) || o.all && o.runGiven {
		return usage("give run files, --run or --all, not two of them")
	}
	// Files may lie anywhere; then the root only lends its templates.
	if len(files) == 0 || o.dirGiven {
		if _, err := o.resolve(); err != nil {
			return err
		}
	}
	// Runs before the template: "no runs" wins over "no template" (trace
	// contract, section 4).
	chosen, err := o.choose(files)
	if err != nil {
		return err
	}
	template, err := o.library().Resolve(o.template, readTemplateFile)
	if err != nil {
		return templateError(o.template, err)
	}
	for _, w := range template.Warnings {
		a.note("warning: template %s: %s", o.template, w)
	}
	runs := make([]assemble.Built, 0, len(chosen))
	for _, r := range chosen {
		run, err := leave(ctx, func() (*assemble.Run, error) { return o.assembleRun(r, template.Template) })
		if err != nil {
			return err
		}
		runs = append(runs, assemble.Built{ID: r.id, Path: shownPath(r.path), Run: run})
	}
	if o.out != "" {
		stored, err := storeReceipts(ctx, string(o.out), runs)
		if err != nil {
			return err
		}
		a.note("stored %s in %s", plain.Plural(int64(stored), "receipt"), plain.Quote(string(o.out), plain.Detail))
	}
	if o.json {
		document, err := leave(ctx, func() ([]byte, error) { return assemble.AppendBuild(nil, runs, template, o.status), nil })
		a.out = *bytes.NewBuffer(document) // it may be large: not copied
		return err
	}
	a.showBuild(runs, template, o.status)
	return nil
}

// choose picks the runs to build.
func (o *buildOptions) choose(files []string) ([]runFile, error) {
	if len(files) > 0 {
		runs, err := namedFiles(files)
		if err != nil {
			return nil, err
		}
		return runs, distinct(runs)
	}
	all := listRuns(string(o.dir))
	if len(all) == 0 {
		return nil, o.noRuns()
	}
	if o.all {
		return all, distinct(all)
	}
	id, latest := runOperand(o.run)
	if latest || !o.runGiven {
		return all[len(all)-1:], nil
	}
	named := func(id string) (runs []runFile) {
		for _, r := range all {
			if r.id == id {
				runs = append(runs, r)
			}
		}
		return runs
	}
	runs := named(id)
	if len(runs) == 0 {
		runs = named(o.run) // an id may itself begin with "run:"
	}
	if len(runs) == 0 {
		return nil, errcode.New(errcode.RunNotFound, o.everyRun(),
			"find run %s in %s", plain.Quote(id, plain.Detail), plain.Quote(string(o.dir), plain.Detail))
	}
	return runs, distinct(runs)
}

// shownPath is a path as JSON can hold it: file names need not be UTF-8.
func shownPath(path string) string { return string(jsjson.ToWTF8(nil, []byte(path))) }

func (o *buildOptions) assembleRun(r runFile, t *assemble.Template) (*assemble.Run, error) {
	hint := "settlewatch list" + o.repeat() + ", which serves the sound lines of a damaged run"
	data, err := r.read()
	if err != nil {
		return nil, err
	}
	run, err := assemble.Assemble(t, data)
	var line *assemble.LineError
	if errors.As(err, &line) {
		return nil, errcode.New(errcode.RunDamaged, hint,
			"assemble run %s, line %d: %s", plain.Quote(r.id, plain.Detail), line.Line, line.Reason)
	}
	if err != nil {
		return nil, errcode.Wrap(err, errcode.RunDamaged, hint,
			"assemble run %s", plain.Quote(r.id, plain.Detail))
	}
	return run, nil
}

// templateError gives an error from a template its code.
func templateError(ref string, err error) error {
	var known *errcode.Error
	if errors.As(err, &known) {
		return err
	}
	return errcode.Wrap(err, errcode.TemplateInvalid, "settlewatch template list", "read template %s", plain.Quote(ref, plain.Detail))
}

// storeReceipts writes each receipt under its name (trace contract, section 7). Names
// are checked before the first file is written, so a refusal leaves nothing.
func storeReceipts(ctx context.Context, dir string, runs []assemble.Built) (int, error) {
	type file struct {
		name    string
		receipt *assemble.Receipt
	}
	var files []file
	taken := map[string]bool{}
	for _, run := range runs {
		for _, r := range run.Run.Receipts {
			name := assemble.FileName([]byte(run.ID), r.OperationID(), r.Null())
			if len(name) > 255 {
				return 0, errcode.New(errcode.Input, "build with --json and without --out",
					"store a receipt of run %s: its file name would be %d bytes long, over 255", plain.Quote(run.ID, plain.Detail), len(name))
			}
			if taken[name] {
				return 0, errcode.New(errcode.Input, "build with --json and without --out",
					"store the receipts of run %s: two of them would be named %s", plain.Quote(run.ID, plain.Detail), plain.Quote(name, plain.Detail))
			}
			taken[name] = true
			files = append(files, file{name, r})
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, errcode.Wrap(errcode.Bare(err), errcode.Input, "another directory", "make directory %s", plain.Quote(dir, plain.Detail))
	}
	var buf []byte
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		buf = append(f.receipt.Append(buf[:0], 2, 0), '\n')
		if err := safefile.WriteFile(filepath.Join(dir, f.name), buf, fs.FileMode(0o600)); err != nil {
			return 0, errcode.Wrap(errcode.Bare(err), errcode.Input, "another directory", "store receipt %s", plain.Quote(f.name, plain.Detail))
		}
	}
	return len(files), nil
}

// showBuild is the answer for a person.
func (a *app) showBuild(runs []assemble.Built, template *assemble.Resolved, status string) {
	a.put("", "", fmt.Sprintf("template %s (%s)", plain.Clean(template.Name, plain.Detail), template.Origin))
	for _, run := range runs {
		full := 0
		t := table{head: []string{"OPERATION", "VERDICT", "EVENTS", "MISSING", "FAULTS"}}
		for _, r := range run.Run.Receipts {
			if r.Full() {
				full++
			}
			if status != "" && r.Completeness() != status {
				continue
			}
			exceptions := r.Exceptions()
			t.row(verdictStyle(r.Full(), len(exceptions)), operationName(r.OperationID(), r.Null()), r.Completeness(),
				fmt.Sprint(r.EventCount()), dash(strings.Join(r.Missing(), ", ")), dash(tally(exceptions)))
		}
		total := len(run.Run.Receipts)
		a.say("")
		a.put("", "", fmt.Sprintf("run %s: %s, %d full, %d partial, %s in no operation", plain.Clean(run.ID, plain.Detail),
			plain.Plural(int64(total), "operation"), full, total-full, plain.Plural(int64(len(run.Run.Unassigned)), "event")))
		if len(t.rows) > 0 {
			a.show(&t)
		}
	}
}

// tally names the kinds of faults, each once, and how often it came.
func tally(exceptions []string) string {
	var kinds []string
	times := map[string]int{}
	for _, kind := range exceptions {
		if times[kind]++; times[kind] == 1 {
			kinds = append(kinds, kind)
		}
	}
	for i, kind := range kinds {
		if n := times[kind]; n > 1 {
			kinds[i] = fmt.Sprintf("%s (%d times)", kind, n)
		}
	}
	return strings.Join(kinds, ", ")
}

func operationName(id []byte, null bool) string {
	if null {
		return "(null)"
	}
	return string(id)
}

// verdictStyle colours what needs a look.
func verdictStyle(full bool, exceptions int) string {
	switch {
	case full:
		return ""
	case exceptions > 0:
		return red
	}
	return yellow
}
