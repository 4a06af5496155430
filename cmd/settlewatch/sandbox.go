package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/ingest"
)

// sandbox takes from the process what it does not need. It does as much as the kernel
// knows how to, and says what that was. What is taken never comes back, so it belongs
// to a process of its own: nil where a command runs in somebody else's.
type sandbox struct {
	// outside takes what leads out of the process: programs it could start, and,
	// unless it is to dial, connections.
	outside func(dial bool) (taken []string, by string, err error)
	// files leaves the directories that are named, with what lies in them. In those
	// of sweep nothing may be done but to remove an empty directory.
	files func(read, write, sweep []string) error
}

// confineEvery is how often a server whose root is not there yet looks whether its
// files can be closed now.
const confineEvery = 500 * time.Millisecond

// confine gives up what a server that is bound does not need. The files follow when
// there is something to tell them by: a server is started before the root it serves,
// and only a directory that exists can be left open.
func (a *app) confine(ctx context.Context, s *serving) {
	if a.env.sandbox == nil {
		return
	}
	log := a.log(slog.LevelInfo)
	taken, by, err := a.env.sandbox.outside(slices.Contains(s.options.toolsets, "market"))
	if err != nil {
		log.Info("the process is not restricted", "reason", err)
		return
	}
	log.Info("the process is restricted", "by", by, "gave_up", strings.Join(taken, ", "))
	go func() {
		tick := time.NewTicker(confineEvery)
		defer tick.Stop()
		for said := ""; ; {
			closed, waits := a.confineFiles(log, s)
			if closed {
				return
			}
			if waits != said {
				said = waits
				log.Info("files are not restricted yet", "reason", waits)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
}

// confineFiles closes the files. closed says that there is nothing left to try, else
// waits says what it waits for.
func (a *app) confineFiles(log *slog.Logger, s *serving) (closed bool, waits string) {
	x := s.root.index()
	if x == nil {
		return false, "the trace root is not open"
	}
	events, err := filepath.EvalSymlinks(filepath.Join(x.Root(), "events"))
	if err != nil {
		return false, "there is no events directory"
	}
	write := writtenBy(x, s.options)
	for _, dir := range write {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return false, "a directory to write to is missing: " + dir
		}
		if within(events, dir) {
			log.Info("run files stay writable to the process: what it has to write lies in a directory around them", "directory", dir)
			return true, ""
		}
	}
	temp := os.TempDir()
	if !within(events, temp) {
		write = append(write, temp) // for an index when the usual place cannot be used
	}
	var sweep []string
	if s.temp != "" {
		sweep = append(sweep, filepath.Dir(s.temp)) // it is removed at the end
	}
	if err := a.env.sandbox.files(append(a.reads(x, s.options), events), write, sweep); err != nil {
		log.Info("files are not restricted", "reason", err)
		return true, ""
	}
	log.Info("run files are read-only to the process", "writes", strings.Join(write, ", "))
	return true, ""
}

// writtenBy are the directories a server has to write to. Files come and go in them
// under names of their own (a write-ahead log, a lock, a file that replaces another),
// so no single file will do.
func writtenBy(x *ingest.Indexer, o *serveOptions) []string {
	dirs := []string{x.GuardDir()}
	for _, file := range []path{o.index, o.checkpoint} {
		if full, err := filepath.Abs(string(file)); file != "" && err == nil {
			dirs = append(dirs, filepath.Dir(full))
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// reads are what a server reads after its start, besides what it writes.
func (a *app) reads(x *ingest.Indexer, o *serveOptions) []string {
	dirs := append([]string{"/etc", "/usr/share/zoneinfo", "/usr/share/ca-certificates", "/sys", "/proc/self", "/proc/sys"}, beyondEtc()...)
	// The root may be recorded anew under its name, so the directory it stands in is
	// left open, unless that is as good as everything.
	around := filepath.Dir(x.Root())
	if home, err := a.env.home(); around == "/" || err == nil && within(home, around) {
		around = x.Root()
	}
	dirs = append(dirs, around)
	templates := string(o.templatesDir)
	if templates == "" {
		templates = filepath.Join(x.Root(), "templates")
	}
	if slices.Contains(o.toolsets, operatorSet) {
		if file, err := a.keyFile(o.operator); err == nil {
			dirs = append(dirs, there(filepath.Dir(file))) // each grant reads the key
		}
	}
	return append(append(dirs, there(templates)), o.http.readsLater()...)
}

// beyondEtc are the directories that what is read of /etc really lies in: on some
// systems much of it is links. A resolver's file is replaced now and then, so the
// directory is meant and not the file.
func beyondEtc() []string {
	var dirs []string
	for _, file := range []string{
		"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/localtime",
		"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
	} {
		if real, err := filepath.EvalSymlinks(file); err == nil && !within(real, "/etc") {
			dirs = append(dirs, filepath.Dir(real))
		}
	}
	return dirs
}

// there is a directory, or the nearest one on the way to it that exists: what is
// missing may come later.
func there(path string) string {
	full, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	for full != filepath.Dir(full) {
		if info, err := os.Stat(full); err == nil && info.IsDir() {
			break
		}
		full = filepath.Dir(full)
	}
	return full
}

// within tells whether a path lies in a directory or is it, links resolved as far as
// they lead somewhere.
func within(path, dir string) bool {
	rel, err := filepath.Rel(resolved(dir), resolved(path))
	return err == nil && filepath.IsLocal(rel)
}

func resolved(path string) string {
	full, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	exists := there(full)
	rest, err := filepath.Rel(exists, full)
	if err != nil {
		return full
	}
	real, err := filepath.EvalSymlinks(exists)
	if err != nil {
		return full
	}
	return filepath.Join(real, rest)
}

// ownTemp gives a process whose root lies in the directory for temporary files one of
// its own, since it cannot have that one and leave the run files alone. It is "" where
// there is no need for one, or none to be had: then there is no index either when the
// usual place cannot be used, and questions say so.
func (a *app) ownTemp(o *serveOptions) string {
	if a.env.sandbox == nil || !within(string(o.dir), os.TempDir()) {
		return ""
	}
	dir, err := os.MkdirTemp("", "settlewatch-")
	if err != nil || os.Setenv("TMPDIR", dir) != nil {
		return ""
	}
	return dir
}

// removeTemp removes what ownTemp made. By then the directory around it can no longer
// be opened, as os.RemoveAll would.
func removeTemp(dir string) {
	if dir == "" {
		return
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		_ = os.RemoveAll(filepath.Join(dir, e.Name()))
	}
	_ = os.Remove(dir)
}
