package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/internal/safefile"
)

type installOptions struct {
	rootOptions
	name   string
	config path
	guard  path // --guard-config
	write  bool
	json   bool
}

// serverName is how hosts call the server unless told otherwise.
const serverName = "settlewatch"

func (a *app) install() *cobra.Command {
	var o installOptions
	ids := make([]string, len(hosts))
	for i, h := range hosts {
		ids[i] = h.id
	}
	c := a.command(&cobra.Command{
		Use:   "install [flags] [HOST]",
		Short: "print the configuration an agent's host needs, or write it",
		Long: `Print the entry that makes a host start settlewatch, and the file it belongs into. With
--write it is merged into that file: everything else in it stays as it is, and a copy of
the old file is left beside it. Without a host the known ones are listed.

The entry names a policy: the one the host names already, else one beside the host's
file. Where there is none, --write puts a starter there, with comments, a limit of what
may be spent in all in a day, and the defaults; a file that exists is never changed.

HOST is one of ` + strings.Join(ids, ", ") + `.`,
		Args:      operands(0, 1),
		ValidArgs: ids,
	}, func(_ context.Context, args []string) error {
		if len(args) == 0 {
			return a.listHosts(o)
		}
		for _, h := range hosts {
			if h.id == args[0] {
				return a.runInstall(o, h)
			}
		}
		return usage("there is no host %s; known are %s", plain.Quote(args[0], plain.Detail), strings.Join(ids, ", "))
	})
	f := c.Flags()
	o.rootOptions.flags(f)
	f.StringVar(&o.name, "name", serverName, "name of the server in the host")
	f.Var(&o.config, "config", "the host's configuration file, if it is elsewhere")
	f.Var(&o.guard, "guard-config", "policy file the entry names (default: the one it names already, else NAME-policy.json beside the host's file)")
	f.BoolVar(&o.write, "write", false, "merge the entry into the file, and write a starter policy where there is none")
	jsonFlag(f, &o.json)
	return c
}

// maxConfig bounds a host's configuration file.
const maxConfig = 16 << 20

func (a *app) listHosts(o installOptions) error {
	if o.write || o.config != "" {
		return usage("say which host to install into")
	}
	p, err := a.places()
	if err != nil {
		return err
	}
	t := table{width: plain.Explanation, head: []string{"HOST", "NAME", "FILE", "STATE"}}
	rows := make([]object, len(hosts))
	for i, h := range hosts {
		file := h.file(p)
		state, _ := configured(file, h, o.name)
		rows[i] = object{{"host", h.id}, {"name", h.name}, {"file", file}, {"state", state}}
		t.row("", h.id, h.name, shown(file), state)
	}
	if o.json {
		a.answer(object{{"shape", "hosts/1"}, {"hosts", rows}})
		return nil
	}
	a.show(&t)
	a.say("")
	a.put("", "", oneLine(o.again("HOST"))+" prints the entry; --write merges it into the file")
	return nil
}

// server is what a host's file says of a server.
type server struct {
	Command string   `json:"command"`
	Args    []string `json:"args"`
}

// root is the trace root the server would read; "" when that cannot be told,
// as for one that depends on where the host starts it.
func (s server) root() string { return s.absolute("--dir") }

// policy is the policy file the server would judge by, likewise.
func (s server) policy() string { return s.absolute("--guard-config") }

func (s server) absolute(flag string) string {
	for i, arg := range s.Args {
		if value, ok := strings.CutPrefix(arg, flag+"="); ok && filepath.IsAbs(value) {
			return filepath.Clean(value)
		}
		if arg == flag && i+1 < len(s.Args) && filepath.IsAbs(s.Args[i+1]) {
			return filepath.Clean(s.Args[i+1])
		}
	}
	return ""
}

// configured says whether a host's file names our server, and what it would
// start.
func configured(file string, h host, name string) (state string, found server) {
	data, err := safefile.ReadFile(file, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return "no file", server{}
	}
	if err != nil {
		return "cannot be read", server{}
	}
	var top map[string]json.RawMessage
	if json.Unmarshal(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), &top) != nil {
		return "not plain JSON", server{}
	}
	var servers map[string]json.RawMessage
	if json.Unmarshal(top[h.key], &servers) != nil || servers[name] == nil {
		return "not installed", server{}
	}
	_ = json.Unmarshal(servers[name], &found) // what is of another kind starts nothing
	return "installed", found
}

func (a *app) runInstall(o installOptions, h host) error {
	places, err := a.places()
	if err != nil && (o.config == "" || h.project) {
		return err
	}
	file := string(o.config)
	if file == "" {
		file = h.file(places)
	}
	if file, err = filepath.Abs(file); err != nil {
		return errcode.Wrap(err, errcode.Input, "an absolute path", "find %s", plain.Quote(string(o.config), plain.Detail))
	}
	_, before := configured(file, h, o.name)
	p, err := o.policyFor(h, places, file, before)
	if err != nil {
		return err
	}
	a.notePolicy(p)
	entry, err := a.serverEntry(o, h, p.path)
	if err != nil {
		return err
	}
	whole := object{{h.key, object{{o.name, entry}}}}
	if !o.write {
		if o.json {
			a.answer(p.addTo(installJSON(h, o, file, entry, false, ""), false))
			return nil
		}
		a.put("", "", h.name+" reads its servers from "+plain.Quote(file, plain.Detail))
		a.put("", "", "put this there, beside what the file already holds:")
		a.say("")
		a.out.Write(append(encodeJSON(whole, 2), '\n'))
		a.say("")
		if p.starter != nil {
			a.put("", "", "and this policy into "+plain.Quote(p.path, plain.Explanation)+":")
			a.say("")
			a.out.Write(p.starter)
		} else {
			a.put("", "", "the policy "+plain.Quote(p.path, plain.Explanation)+" is there and stays as it is")
		}
		a.say("")
		a.toCopy("or let settlewatch do it:", o.again(h.id)+" --write")
		return nil
	}
	// The policy first: no server shall be told of one that is not there.
	made, err := p.write()
	if err != nil {
		return err
	}
	backup, changed, err := a.writeEntry(file, h, o.name, entry)
	if err != nil {
		if made {
			_ = os.Remove(p.path) // nobody names it
		}
		return o.refuseFile(file, h, err)
	}
	replaced := before.root()
	if abs, err := filepath.Abs(string(o.dir)); err != nil || abs == replaced {
		replaced = ""
	}
	if o.json {
		a.answer(p.addTo(installJSON(h, o, file, entry, changed, backup).add("replaced_dir", replaced), made))
		return nil
	}
	switch {
	case !changed:
		a.put("", "", h.name+" is already set up in "+plain.Quote(file, plain.Detail))
	case backup != "":
		a.put("", "", "wrote "+plain.Quote(file, plain.Detail)+"; the old file is "+plain.Quote(backup, plain.Detail))
	default:
		a.put("", "", "wrote "+plain.Quote(file, plain.Detail))
	}
	if replaced != "" {
		a.tell("replaced the entry for " + shown(replaced) + "; use --name to keep both")
	}
	if made {
		a.tell("wrote the starter policy " + plain.Quote(p.path, plain.Explanation) + ": read it, change it, and check it with settlewatch policy check " + shellWord(p.path))
	}
	a.put("", "", "now "+h.after)
	return nil
}

func installJSON(h host, o installOptions, file string, entry object, written bool, backup string) object {
	return object{{"shape", "install/1"}, {"host", h.id}, {"name", o.name}, {"file", file}, {"key", h.key}, {"entry", entry},
		{"written", written}}.add("backup", backup)
}

// serverEntry is what the host is told to start. Hosts start servers in
// directories of their own, so every path is absolute.
func (a *app) serverEntry(o installOptions, h host, policy string) (object, error) {
	command, err := a.env.executable()
	if err != nil {
		return nil, errcode.Wrap(err, errcode.Input, "install the binary with `go install ./cmd/settlewatch` and call it by its path", "find this program's own file")
	}
	if strings.Contains(filepath.ToSlash(command), "/go-build") {
		const how = "go install ./cmd/settlewatch, then settlewatch install from there"
		if o.write {
			return nil, errcode.New(errcode.Input, how, "install a program that `go run` made: it is deleted when it ends")
		}
		a.note("note: this program was made by `go run` and is deleted when it ends; try: %s", how)
	}
	args := []string{"serve"}
	for _, f := range []struct {
		flag  string
		value path
	}{{"--dir", o.dir}, {"--index", o.index}, {"--guard-dir", o.guardDir}, {"--templates-dir", o.templatesDir}, {"--guard-config", path(policy)}} {
		if f.value == "" {
			continue
		}
		abs, err := filepath.Abs(string(f.value))
		if err != nil {
			return nil, errcode.Wrap(err, errcode.Input, "an absolute path", "find %s", plain.Quote(string(f.value), plain.Detail))
		}
		args = append(args, f.flag, abs)
	}
	if _, err := o.resolve(); err != nil {
		a.note("note: %s is not there yet; the server starts all the same and finds it when the recorder has made it", plain.Quote(string(o.dir), plain.Detail))
	}
	return h.entry(command, args), nil
}

// writeEntry merges the entry into a host's file. It gives the path of the copy
// of the old file, if there was one.
func (a *app) writeEntry(file string, h host, name string, entry object) (backup string, changed bool, err error) {
	perm := fs.FileMode(0o600)
	old, err := safefile.ReadFile(file, maxConfig)
	exists := err == nil
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return "", false, err
		}
	case err != nil:
		return "", false, err
	default:
		if info, err := os.Lstat(file); err == nil {
			perm = info.Mode().Perm()
		}
	}
	merged, err := mergeEntry(old, h.key, name, entry)
	if err != nil {
		return "", false, err
	}
	if exists && string(merged) == string(old) {
		return "", false, nil
	}
	if exists {
		if backup, err = a.backUp(file, old, perm); err != nil {
			return "", false, err
		}
	}
	return backup, true, safefile.WriteFile(file, merged, perm)
}

// backUp copies a file beside itself under a name that was free.
func (a *app) backUp(file string, data []byte, perm fs.FileMode) (string, error) {
	base := file + ".backup-" + a.env.now().UTC().Format("20060102T150405Z")
	for n := 0; ; n++ {
		name := base
		if n > 0 {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
		if errors.Is(err, fs.ErrExist) && n < 100 {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(data)
		if err == nil {
			err = f.Sync()
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		return name, err
	}
}

// again is the command that prints the same entry for a host.
func (o *installOptions) again(host string) string {
	command := "settlewatch install " + host + o.repeat()
	if o.name != serverName {
		command += " --name " + shellWord(o.name)
	}
	if o.config != "" {
		command += " --config " + shellWord(string(o.config))
	}
	if o.guard != "" {
		command += " --guard-config " + shellWord(string(o.guard))
	}
	return command
}

// refuseFile says why a host's file was left alone. A file with comments is the
// person's: what we would write back has none.
func (o *installOptions) refuseFile(file string, h host, err error) error {
	shown := plain.Quote(file, plain.Detail)
	byHand := "add the entry by hand, which " + o.again(h.id) + " prints"
	var odd *safefile.NotRegular
	switch {
	case errors.As(err, &odd):
		return errcode.New(errcode.Input, "--config with the real file, or "+byHand, "write %s: %s", shown, odd.Reason)
	case errors.Is(err, errNotJSON) && h.comments:
		return errcode.New(errcode.Input, byHand,
			"merge into %s: it holds comments or something else that is not plain JSON, so it is left as it is", shown)
	case errors.Is(err, errNotJSON):
		return errcode.New(errcode.Input, "put the file right, or "+byHand, "merge into %s: it is not plain JSON", shown)
	}
	return errcode.Wrap(bare(err), errcode.Input, "put the file right, or "+byHand, "merge into %s", shown)
}
