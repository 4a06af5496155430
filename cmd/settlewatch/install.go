package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/host"
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
	ids := make([]string, len(host.Known))
	for i, h := range host.Known {
		ids[i] = h.ID
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
		if i := slices.Index(ids, args[0]); i >= 0 {
			return a.runInstall(o, &host.Known[i])
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

func (a *app) listHosts(o installOptions) error {
	if o.write || o.config != "" {
		return usage("say which host to install into")
	}
	p, err := a.places()
	if err != nil {
		return err
	}
	t := table{width: plain.Explanation, head: []string{"HOST", "NAME", "FILE", "STATE"}}
	rows := make([]object, len(host.Known))
	for i, h := range host.Known {
		file := h.File(p)
		state, _ := h.Look(file, o.name)
		rows[i] = object{{"host", h.ID}, {"name", h.Name}, {"file", file}, {"state", string(state)}}
		t.row("", h.ID, h.Name, shown(file), string(state))
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

// places are the directories in which hosts, and this program, keep what belongs to a
// person.
func (a *app) places() (host.Places, error) {
	home, err := a.env.home()
	if err != nil {
		return host.Places{}, errcode.Wrap(err, errcode.Input, "--config with the host's file", "find the home directory")
	}
	project, err := filepath.Abs(".")
	if err != nil {
		return host.Places{}, errcode.Wrap(err, errcode.Input, "another working directory", "find the working directory")
	}
	return host.PlacesOf(a.env.goos, home, project, a.env.getenv), nil
}

func (a *app) runInstall(o installOptions, h *host.Host) error {
	places, err := a.places()
	if err != nil && (o.config == "" || h.Project) {
		return err
	}
	file := string(o.config)
	if file == "" {
		file = h.File(places)
	}
	if file, err = filepath.Abs(file); err != nil {
		return errcode.Wrap(err, errcode.Input, "an absolute path", "find %s", plain.Quote(string(o.config), plain.Detail))
	}
	_, before := h.Look(file, o.name)
	p, err := o.policyFor(h, places, file, before)
	if err != nil {
		return err
	}
	a.notePolicy(p)
	entry, err := a.serverEntry(o, h, p.path)
	if err != nil {
		return err
	}
	if !o.write {
		a.showEntry(o, h, file, entry, p)
		return nil
	}
	// The policy first: no server shall be told of one that is not there.
	made, err := p.write()
	if err != nil {
		return err
	}
	backup, changed, err := h.Install(file, o.name, entry, a.env.now())
	if err != nil {
		if made {
			_ = os.Remove(p.path) // nobody names it
		}
		return o.refuseFile(file, h, err)
	}
	replaced := before.Path("--dir")
	if abs, err := filepath.Abs(string(o.dir)); err != nil || abs == replaced {
		replaced = ""
	}
	if o.json {
		a.answer(p.addTo(installJSON(h, o, file, entry, changed, backup).add("replaced_dir", replaced), made))
		return nil
	}
	switch {
	case !changed:
		a.put("", "", h.Name+" is already set up in "+plain.Quote(file, plain.Detail))
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
	a.put("", "", "now "+h.After)
	return nil
}

// showEntry shows what a person can put into a host's file by hand.
func (a *app) showEntry(o installOptions, h *host.Host, file string, entry []byte, p *installPolicy) {
	if o.json {
		a.answer(p.addTo(installJSON(h, o, file, entry, false, ""), false))
		return
	}
	a.put("", "", h.Name+" reads its servers from "+plain.Quote(file, plain.Detail))
	a.put("", "", "put this there, beside what the file already holds:")
	a.say("")
	a.answer(object{{h.Key, object{{o.name, raw(entry)}}}})
	a.say("")
	if p.starter != nil {
		a.put("", "", "and this policy into "+plain.Quote(p.path, plain.Explanation)+":")
		a.say("")
		a.out.Write(p.starter)
	} else {
		a.put("", "", "the policy "+plain.Quote(p.path, plain.Explanation)+" is there and stays as it is")
	}
	a.say("")
	a.toCopy("or let settlewatch do it:", o.again(h.ID)+" --write")
}

func installJSON(h *host.Host, o installOptions, file string, entry []byte, written bool, backup string) object {
	return object{{"shape", "install/1"}, {"host", h.ID}, {"name", o.name}, {"file", file}, {"key", h.Key}, {"entry", raw(entry)},
		{"written", written}}.add("backup", backup)
}

// serverEntry is what the host is told to start.
func (a *app) serverEntry(o installOptions, h *host.Host, policy string) ([]byte, error) {
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
	return h.Entry(command, args), nil
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
func (o *installOptions) refuseFile(file string, h *host.Host, err error) error {
	shown := plain.Quote(file, plain.Detail)
	byHand := "add the entry by hand, which " + o.again(h.ID) + " prints"
	var odd *safefile.NotRegular
	switch {
	case errors.As(err, &odd):
		return errcode.New(errcode.Input, "--config with the real file, or "+byHand, "write %s: %s", shown, odd.Reason)
	case errors.Is(err, host.ErrNotJSON) && h.Comments:
		return errcode.New(errcode.Input, byHand,
			"merge into %s: it holds comments or something else that is not plain JSON, so it is left as it is", shown)
	case errors.Is(err, host.ErrNotJSON):
		return errcode.New(errcode.Input, "put the file right, or "+byHand, "merge into %s: it is not plain JSON", shown)
	}
	return errcode.Wrap(errcode.Bare(err), errcode.Input, "put the file right, or "+byHand, "merge into %s", shown)
}
