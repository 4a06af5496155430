package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/cmd/settlewatch/host"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/internal/safefile"
)

func (a *app) doctor() *cobra.Command {
	var o guarded
	c := a.command(&cobra.Command{
		Use:   "doctor [flags]",
		Short: "check the machine, the trace root, the index, the guard and the hosts",
		Long: `Check what settlewatch depends on and say what to do about each finding. The index is
opened, brought up to date and read; fsck proves it right row by row. Exit status 3 when
something fails: a root that is not there, a damaged run, run files that cannot be read, a
broken template, an index that cannot be used, a policy that cannot be read, a decisions
log that does not verify.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		return a.showFindings(a.examine(ctx, &o), o.json)
	})
	o.flags(c.Flags())
	return c
}

// How grave a finding is.
const (
	fine    = "ok"
	notice  = "note" // worth knowing
	warning = "warn" // works, but not as well as it could
	failure = "fail" // damage
)

var findingStyles = map[string]string{warning: yellow, failure: red}

type finding struct {
	check, level, text, try string
}

type findings []finding

func (d *findings) add(check, level, try, format string, args ...any) {
	*d = append(*d, finding{check, level, fmt.Sprintf(format, args...), try})
}

// quiet reports that a check has found nothing so far.
func (d findings) quiet(check string) bool {
	return !slices.ContainsFunc(d, func(f finding) bool { return f.check == check })
}

func (a *app) showFindings(d findings, asJSON bool) error {
	failed := slices.ContainsFunc(d, func(f finding) bool { return f.level == failure })
	if asJSON {
		rows := make([]object, len(d))
		for i, f := range d {
			rows[i] = object{{"check", f.check}, {"level", f.level}, {"text", oneLine(f.text)}}.add("try", oneLine(f.try))
		}
		a.answer(object{{"shape", "doctor/1"}, {"sound", !failed}, {"findings", rows}})
	} else if columns := a.columns(); columns > 0 && columns < wideScreen {
		for _, f := range d {
			a.put(findingStyles[f.level], "", f.level+" "+f.check)
			a.put(findingStyles[f.level], "  ", f.text)
			if f.try != "" {
				a.put("", "  ", "try: "+f.try)
			}
		}
	} else {
		t := table{width: plain.Explanation} // a hint that is cut cannot be followed
		for _, f := range d {
			t.row(findingStyles[f.level], f.level, f.check, f.text)
			if f.try != "" {
				t.row("", "", "", "try: "+f.try)
			}
		}
		a.show(&t)
	}
	if failed {
		return unsound
	}
	return nil
}

// examine makes every check. A check that cannot be made is a finding, not an
// error. Without a root what needs none is still checked.
func (a *app) examine(ctx context.Context, o *guarded) findings {
	var d findings
	d.add("program", fine, "", "settlewatch %s, reads %s", version(), traceFormat)
	root, err := o.resolve()
	if err != nil {
		d.fail("root", err)
		a.checkClock(&d, nil)
		checkWatch(&d, filepath.Join(string(o.dir), "events"))
	} else {
		a.checkRoot(&d, root)
		runs := listRuns(root)
		d.runFiles(runs)
		a.checkClock(&d, runs)
		d.adapters(runs)
		checkWatch(&d, filepath.Join(root, "events"))
	}
	d.templates(o.rootOptions)
	if err == nil {
		a.checkIndex(ctx, &d, o.rootOptions)
		a.checkGuard(ctx, &d, o, root)
	}
	a.checkHosts(&d, o.rootOptions)
	return d
}

// fail makes an error a finding. What sends others here must not send a person
// round in a circle.
func (d *findings) fail(check string, err error) {
	e := errcode.Of(err)
	hint := e.Hint
	if strings.Contains(hint, "settlewatch doctor") {
		hint = "report this with the output of settlewatch version"
		if e.Code == errcode.Index {
			hint = "name a writable place with --index"
		}
	}
	d.add(check, failure, hint, "%s", e.Message)
}

// templates reads every template that has a name.
func (d *findings) templates(o rootOptions) {
	names, lib, err := o.templates()
	if err != nil {
		d.fail("templates", err)
		return
	}
	own := 0
	for _, name := range names {
		r, err := lib.Resolve(name, nil)
		switch {
		case err != nil:
			d.add("templates", failure, "put the file right, or move it elsewhere; a broken one never falls back to the shipped one of its name",
				"%s: %s", shown(filepath.Join(lib.Dir, name+templateSuffix)), errcode.Of(templateError(name, err)).Message)
		case r.Origin != assemble.OriginBuiltin:
			own++
		}
	}
	if d.quiet("templates") {
		d.add("templates", fine, "", "%s can be read, %d of them your own", plain.Plural(int64(len(names)), "template"), own)
	}
}

func (a *app) checkRoot(d *findings, root string) {
	d.add("root", fine, "", "%s", shown(root))
	events := filepath.Join(root, "events")
	real, err := safefile.ResolveRoot(events)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.add("root", warning, "start the agent's recorder with this root", "there is no events directory yet")
	case err != nil:
		d.add("root", failure, "make events/ a readable directory", "events cannot be read: %v", errcode.Bare(err))
	case real != events:
		d.add("root", notice, "nothing, if you made the link",
			"events is a link: it was followed once, to %s, and the runs there are served", shown(real))
	}
	for _, place := range []string{root, real} {
		if who := a.othersWrite(place); who != "" {
			d.add("permissions", warning, "chmod go-w "+shellWord(place), "%s may write into %s, and so invent payments", who, shown(place))
		}
	}
	for _, place := range []string{root, real} {
		if kind, remote := fileSystem(place); kind != "" && place != "" {
			if remote {
				d.add("file system", warning, "nothing, or keep the root on a local disk",
					"%s is on %s, where changes made by other machines are not announced: every question looks at every run file", shown(place), kind)
			} else if place == root {
				d.add("file system", fine, "", "%s", kind)
			}
		}
	}
}

// shown is a path inside a sentence.
func shown(path string) string { return plain.Quote(path, plain.Explanation) }

// perm is what a file allows to whom; nothing where the system has no such
// bits, or the file is not there.
func (a *app) perm(file string) fs.FileMode {
	info, err := os.Stat(file)
	if a.env.goos == "windows" || err != nil {
		return 0
	}
	return info.Mode().Perm()
}

// othersWrite says who besides the owner may write to a file; "" for nobody.
func (a *app) othersWrite(file string) string {
	switch perm := a.perm(file); {
	case perm&0o002 != 0:
		return "every user of this machine"
	case perm&0o020 != 0:
		return "its group"
	}
	return ""
}

// runFiles looks at the entries of events/ without reading them.
func (d *findings) runFiles(runs []runFile) {
	if len(runs) == 0 {
		return
	}
	dir, err := safefile.OpenDir(runs[0].dir)
	if err != nil {
		d.add("run files", failure, "check the directory's permissions", "events cannot be opened: %v", errcode.Bare(err))
		return
	}
	defer dir.Close()
	var linked, odd []string
	for _, r := range runs {
		info, err := dir.Stat(r.name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			odd = append(odd, plain.Quote(r.id, plain.Detail)+" cannot be looked at")
		case !info.Regular:
			odd = append(odd, plain.Quote(r.id, plain.Detail)+" is a "+info.Kind)
		case info.Nlink > 1:
			linked = append(linked, plain.Quote(r.id, plain.Detail))
		}
	}
	if len(odd) > 0 {
		d.add("run files", failure, "move them out of events/", "%s not regular files: %s", are(len(odd)), few(odd))
	}
	if len(linked) > 0 {
		d.add("run files", notice, "check who else has them: ls -li", "%s under more than one name, so they may be written from elsewhere: %s",
			map[bool]string{true: "1 run is known", false: plain.Number(int64(len(linked))) + " runs are known"}[len(linked) == 1], few(linked))
	}
	if d.quiet("run files") {
		d.add("run files", fine, "", "%s", plain.Plural(int64(len(runs)), "run"))
	}
}

func are(n int) string {
	if n == 1 {
		return "1 run is"
	}
	return plain.Number(int64(n)) + " runs are"
}

// few lists a few of many.
func few(names []string) string { return fewOf(names, len(names)) }

// fewOf lists a few of total, of which names are the first.
func fewOf(names []string, total int) string {
	names = names[:min(len(names), 5)]
	text := strings.Join(names, ", ")
	if more := total - len(names); more > 0 {
		text += fmt.Sprintf(" and %s more", plain.Number(int64(more)))
	}
	return text
}

// checkClock compares this machine's clock with what was written here.
func (a *app) checkClock(d *findings, runs []runFile) {
	const slack = 5 * time.Minute
	now := a.env.now()
	var newest time.Time
	for _, r := range runs {
		if info, err := os.Lstat(filepath.Join(r.dir, r.name)); err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	switch {
	case now.Year() < 2026:
		d.add("clock", warning, "set the clock", "the clock says %s, before this trace format existed", stamp(now))
	case newest.Sub(now) > slack:
		d.add("clock", warning, "set the clock, here or where the run files are written",
			"a run file was changed at %s, which is in the future: waits and windows will be wrong", stamp(newest))
	default:
		d.add("clock", fine, "", "%s", stamp(now))
	}
}

// The adapters this program was written against (trace contract, sections 9
// and 10).
var knownAdapters = []string{"trace-x402", "trace-circle"}

// adapters reads the beginning of the newest runs and names the recorders it
// does not know, which are most likely the person's own, and versions of x402 it
// does not know. Their events are served as the contract says for unknown
// members.
func (d *findings) adapters(runs []runFile) {
	const newest, beginning = 20, 64 << 10
	seen, own := map[string]bool{}, map[string]bool{}
	var doc jsjson.Doc
	var buf []byte
	for _, r := range runs[max(0, len(runs)-newest):] {
		dir, err := safefile.OpenDir(r.dir)
		if err != nil {
			continue
		}
		f, _, err := dir.Open(r.name)
		dir.Close()
		if err != nil {
			continue
		}
		buf, _ = io.ReadAll(io.LimitReader(f, beginning))
		f.Close()
		for line := range bytes.Lines(buf) {
			if !bytes.HasSuffix(line, []byte("\n")) || doc.Parse(bytes.TrimSuffix(line, []byte("\n"))) != nil {
				continue
			}
			event := doc.Root()
			if name := event.Get("adapter").Text(); name != nil && !slices.Contains(knownAdapters, string(name)) {
				own[plain.Quote(string(name), 60)] = true
			}
			if v := event.Get("payload").Get("x402_version"); v.Kind() == jsjson.Number && v.Float() > 2 {
				seen["x402 version "+string(jsjson.AppendNumber(nil, v.Float()))] = true
			}
		}
	}
	if len(own) > 0 {
		d.add("recorder", notice, "a template of your own, if their operations are to be judged: settlewatch template new",
			"events of other adapters than %s: %s", strings.Join(knownAdapters, " and "), few(slices.Sorted(maps.Keys(own))))
	}
	if len(seen) > 0 {
		d.add("recorder", warning, "look for a newer settlewatch; until then read such operations with care",
			"events of kinds this version does not know: %s", few(slices.Sorted(maps.Keys(seen))))
	}
}

func (a *app) checkIndex(ctx context.Context, d *findings, o rootOptions) {
	// What the index warns of is a finding here, not a note beside them.
	x, err := a.openWith(ctx, o, readTemplateFile, slog.New(&noter{tell: func(text string) {
		d.add("index", warning, "", "%s", text)
	}}), a.noticing(o))
	if err != nil {
		d.fail("index", err)
		return
	}
	defer x.Close()
	s, err := x.Status(ctx)
	if err != nil {
		d.fail("index", err)
		return
	}
	a.indexFindings(d, s, o)
	if kind, remote := fileSystem(filepath.Dir(s.Index)); remote && !s.Private {
		d.add("index", warning, "--index with a file on a local disk", "the index is on %s, where its locks cannot be relied on", kind)
	}
	guard := o.guardAt(s.Root)
	for _, file := range slices.Compact([]string{guard, filepath.Join(guard, decision.FileName), filepath.Dir(s.Index), s.Index}) {
		if who := a.othersWrite(file); who != "" && !s.Private {
			d.add("permissions", warning, "chmod go-w "+shellWord(file), "%s may write to %s, and so change answers", who, shown(file))
		}
	}
	if perm := a.perm(guard); perm&0o077 != 0 {
		d.add("permissions", notice, "chmod 700 "+shellWord(guard),
			"the guard directory %s is open to others (mode %04o); settlewatch makes it 0700", shown(guard), perm)
	}
	if d.quiet("permissions") {
		d.add("permissions", fine, "", "nobody else may write to the root, the index or the decisions log")
	}
}

func (a *app) indexFindings(d *findings, s *ingest.Status, o rootOptions) {
	if o.noEvents() {
		d.add("index", notice, "", "none is kept until there is an events directory")
	} else if s.Private {
		d.add("index", warning, "give the guard directory to this user, or name a writable file with --index",
			"the usual place cannot be used, so each process builds an index of its own: %s", shown(s.Index))
	} else {
		d.add("index", fine, "", "%s (%s) opens, takes what the run files hold and can be read: %s; that its rows are right is for settlewatch fsck%s to prove",
			shown(s.Index), plain.Size(s.IndexBytes), plain.Plural(s.Counts.Operations, "operation"), o.repeat())
	}
	if s.DamagedRuns > 0 {
		var names []string
		for _, r := range s.Damaged {
			names = append(names, fmt.Sprintf("%s line %d: %s", plain.Quote(r.RunID, 60), r.Line, r.Reason))
		}
		d.add("damage", failure, "settlewatch damage list"+o.repeat()+" names what counts against payments, settlewatch damage ack"+o.repeat()+" accepts it; the lines stay damaged",
			"%s: %s", plain.Plural(int64(s.DamagedRuns), "damaged run"), fewOf(names, s.DamagedRuns))
	}
	for _, t := range s.TornRuns {
		if age := a.env.now().Sub(t.Since); age > 5*time.Second {
			d.add("damage", warning, "nothing if the recorder still runs; else the last event of the run is lost",
				"run %s ends in an unfinished line of %s, unchanged for %s", plain.Quote(t.RunID, 60), plain.Size(t.Bytes), age.Round(time.Second))
		}
	}
	if d.quiet("damage") {
		d.add("damage", fine, "", "every line of every run can be read")
	}
}

func (a *app) checkHosts(d *findings, o rootOptions) {
	again := func(host string) string {
		install := installOptions{rootOptions: o, name: serverName}
		return install.again(host)
	}
	p, err := a.places()
	if err != nil {
		d.add("hosts", notice, "", "%s", errcode.Of(err).Message)
		return
	}
	found := false
	for _, h := range host.Known {
		file := h.File(p)
		switch state, server := h.Look(file, serverName); state {
		case host.Installed:
			found = true
			command := server.Command
			if _, err := os.Stat(command); filepath.IsAbs(command) && err != nil {
				d.add("hosts", warning, again(h.ID)+" --write", "%s would start %s, which is not there", h.Name, shown(command))
			} else if !filepath.IsAbs(command) {
				d.add("hosts", notice, again(h.ID)+" --write", "%s starts %s by a name that depends on its PATH", h.Name, shown(command))
			} else {
				d.add("hosts", fine, "", "%s starts %s", h.Name, shown(command))
			}
			if policy := server.Path("--guard-config"); policy == "" {
				d.add("hosts", notice, again(h.ID)+" --write", "%s has it judge by the built-in defaults: no --guard-config is in its entry", h.Name)
			} else if _, err := os.Stat(policy); err != nil {
				d.add("hosts", warning, again(h.ID)+" --write makes one there",
					"%s has it judge by the policy %s, which cannot be read (%v): every check is a review", h.Name, shown(policy), errcode.Bare(err))
			}
			root := server.Path("--dir")
			if dir, err := filepath.Abs(string(o.dir)); err == nil && root != "" && root != dir {
				d.add("hosts", notice, "nothing, if that is meant; to have both: "+again(h.ID)+" --name NAME --write",
					"%s has it read another root, %s", h.Name, shown(root))
			}
		case host.NotInstalled:
			d.add("hosts", notice, again(h.ID), "%s is here and does not start settlewatch: %s", h.Name, shown(file))
		case host.NotJSON, host.Unreadable:
			d.add("hosts", notice, again(h.ID)+" prints the entry to look for", "%s: %s %s", h.Name, shown(file), map[host.State]string{
				host.NotJSON: "may hold comments, so it was not looked into", host.Unreadable: "cannot be read"}[state])
		}
	}
	if !found {
		d.add("hosts", notice, "settlewatch install"+o.repeat(), "no host starts settlewatch from its usual file")
	}
}
