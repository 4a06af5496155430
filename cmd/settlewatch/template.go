package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/internal/safefile"
)

func (a *app) template() *cobra.Command {
	return group(&cobra.Command{
		Use:   "template",
		Short: "list, show and start templates",
		Long: `A template says which stages an operation must show to be full, which events witness
each stage, and which events are faults.`,
	}, "template list, template show or template new",
		a.templateList(), a.templateShow(), a.templateNew())
}

const templateSuffix = ".yaml"

// templates resolves every template that has a name: the shipped ones and
// those of the templates directory, which win.
func (o *rootOptions) templates() ([]string, assemble.Library, error) {
	lib := o.library()
	names := slices.Clone(assemble.Builtins())
	real, err := safefile.ResolveRoot(lib.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return names, lib, nil
	}
	if err == nil {
		var d *safefile.Dir
		if d, err = safefile.OpenDir(real); err == nil {
			defer d.Close()
			var own []string
			if own, err = d.Names(templateSuffix); err == nil {
				slices.Sort(own)
				for _, name := range own {
					name = strings.TrimSuffix(name, templateSuffix)
					if assemble.IsName(name) && !slices.Contains(names, name) {
						names = append(names, name)
					}
				}
				return names, lib, nil
			}
		}
	}
	return nil, lib, errcode.Wrap(errcode.Bare(err), errcode.TemplateInvalid, "make it a directory, or name another with --templates-dir",
		"read templates directory %s", plain.Quote(lib.Dir, plain.Detail))
}

func (a *app) templateList() *cobra.Command {
	var o rootOptions
	var asJSON bool
	c := a.command(&cobra.Command{
		Use:   "list [flags]",
		Short: "list the templates that have a name",
		Args:  operands(0, 0),
	}, func(context.Context, []string) error {
		names, lib, err := o.templates()
		if err != nil {
			return err
		}
		t := table{head: []string{"NAME", "ORIGIN", "VERSION", "STAGES", "NOTES"}}
		rows := make([]object, len(names))
		for i, name := range names {
			r, err := lib.Resolve(name, nil)
			if err != nil {
				// A broken file never falls back to the shipped template of its name.
				reason := errcode.Of(templateError(name, err)).Message
				rows[i] = object{{"name", name}, {"origin", string(assemble.OriginLocal)}, {"error", plain.Clean(reason, plain.Explanation)}}
				t.row(red, name, string(assemble.OriginLocal), "-", "-", "broken: "+reason)
				continue
			}
			rows[i] = object{{"name", name}, {"origin", string(r.Origin)}, {"template", r.Name}, {"version", r.Version}, {"stages", stageIDs(r.Template)}}
			note := "-"
			if r.Name != name {
				note = "calls itself " + plain.Quote(r.Name, plain.Detail)
			}
			if name == assemble.DefaultTemplate {
				note = "the default"
			}
			t.row("", name, string(r.Origin), version64(r.Version), strings.Join(stageIDs(r.Template), ", "), note)
		}
		if asJSON {
			a.answer(object{{"shape", "template-list/1"}, {"templates", rows}})
			return nil
		}
		a.show(&t)
		return nil
	})
	o.templateFlags(c)
	jsonFlag(c.Flags(), &asJSON)
	return c
}

// templateFlags are the flags of commands that read templates and no runs.
func (o *rootOptions) templateFlags(c *cobra.Command) {
	o.flags(c.Flags())
	c.Flags().Lookup("dir").Usage = "trace root, whose templates/ is searched first"
	c.Flags().Lookup("index").Usage = "taken as everywhere and ignored: templates are in no index"
	c.Flags().Lookup("guard-dir").Usage = "taken as everywhere and ignored"
}

func stageIDs(t *assemble.Template) []string {
	ids := make([]string, len(t.Stages))
	for i, s := range t.Stages {
		ids[i] = s.ID
	}
	return ids
}

func version64(v float64) string { return string(jsjson.AppendNumber(nil, v)) }

func (a *app) templateShow() *cobra.Command {
	var o rootOptions
	var asJSON, asYAML bool
	c := a.command(&cobra.Command{
		Use:   "show [flags] TEMPLATE",
		Short: "show a template, by name or by the path of a file",
		Args:  operands(1, 1),
	}, func(_ context.Context, args []string) error {
		if asJSON && asYAML {
			return usage("give --json or --yaml, not both")
		}
		r, err := o.library().Resolve(args[0], readTemplateFile)
		if err != nil {
			return templateError(args[0], err)
		}
		for _, w := range r.Warnings {
			a.note("warning: template %s: %s", args[0], w)
		}
		switch {
		case asJSON:
			a.answer(templateJSON(r))
		case asYAML:
			return a.showSource(r)
		default:
			a.showTemplate(r)
		}
		return nil
	})
	o.templateFlags(c)
	c.Flags().BoolVar(&asYAML, "yaml", false, "print the file itself")
	jsonFlag(c.Flags(), &asJSON)
	return c
}

func templateJSON(r *assemble.Resolved) object {
	stages := make([]object, len(r.Stages))
	for i, s := range r.Stages {
		match := make([]object, len(s.Match))
		for j, w := range s.Match {
			match[j] = object{{"event", w.Event}}.add("role", w.Role)
		}
		stages[i] = object{{"id", s.ID}, {"required", s.Required}, {"match", match}}
		if s.HasExplanation {
			stages[i] = append(stages[i], member{"missing_explanation", s.Explanation})
		}
	}
	exceptions := r.Exceptions
	if exceptions == nil {
		exceptions = []string{}
	}
	o := object{{"shape", "template/1"}, {"reference", r.Ref}, {"origin", string(r.Origin)}}.add("path", r.Path)
	return append(o, member{"template", r.Name}, member{"version", r.Version}, member{"stages", stages}, member{"exceptions", exceptions})
}

func (a *app) showTemplate(r *assemble.Resolved) {
	from := string(r.Origin)
	if r.Origin != assemble.OriginBuiltin {
		from += ", " + plain.Quote(r.Path, plain.Detail)
	}
	a.put("", "", plain.Clean(r.Name, plain.Detail)+", version "+version64(r.Version)+" ("+from+")")
	a.say("")
	t := table{head: []string{"STAGE", "REQUIRED", "WITNESSED BY"}}
	for _, s := range r.Stages {
		required := "no"
		if s.Required {
			required = "yes"
		}
		for i, w := range s.Match {
			witness := w.Event
			if w.Role != "" {
				witness += " from the " + w.Role
			}
			if i == 0 {
				t.row("", s.ID, required, witness)
			} else {
				t.row("", "", "", "or "+witness)
			}
		}
	}
	a.show(&t)
	for _, s := range r.Stages {
		if s.Explanation != "" {
			a.say("")
			a.put("", "", "without "+plain.Clean(s.ID, plain.Detail)+": "+plain.Clean(s.Explanation, plain.Explanation))
		}
	}
	if len(r.Exceptions) > 0 {
		a.say("")
		a.put("", "", "faults: "+plain.Clean(strings.Join(r.Exceptions, ", "), plain.Explanation))
	}
}

// showSource prints the file: as it is into a pipe or file, cleaned line by
// line onto a terminal.
func (a *app) showSource(r *assemble.Resolved) error {
	var source []byte
	var err error
	if r.Origin == assemble.OriginBuiltin {
		source = assemble.Builtin(r.Ref)
	} else if source, err = readTemplateFile(r.Path); err != nil {
		return templateError(r.Ref, err)
	}
	if !terminal(a.stdout) {
		a.out.Write(source)
		return nil
	}
	for line := range strings.Lines(string(source)) {
		a.say("%s", plain.Clean(strings.TrimRight(line, "\r\n"), maxTemplate))
	}
	return nil
}

func (a *app) templateNew() *cobra.Command {
	var o rootOptions
	var from string
	var asJSON bool
	c := a.command(&cobra.Command{
		Use:   "new [flags] NAME",
		Short: "start a template of your own from an existing one",
		Long: `Copy a template into your templates directory under a new name, ready to be edited.
An existing file is never overwritten. Naming it like a shipped template makes it win over
that one.`,
		Args: operands(1, 1),
	}, func(_ context.Context, args []string) error {
		file, err := o.newTemplate(args[0], from)
		if err != nil {
			return err
		}
		if asJSON {
			a.answer(object{{"shape", "template-new/1"}, {"name", args[0]}, {"from", from}, {"path", file}})
			return nil
		}
		a.put("", "", "wrote "+plain.Quote(file, plain.Detail))
		a.toCopy("edit it, then:", "settlewatch template show "+args[0]+o.repeat())
		return nil
	})
	o.templateFlags(c)
	c.Flags().StringVar(&from, "from", assemble.DefaultTemplate, "template to start from: a name or the path of a file")
	jsonFlag(c.Flags(), &asJSON)
	return c
}

var templateLine = regexp.MustCompile(`(?m)^template:.*$`)

// newTemplate writes a copy of a template and returns its path.
func (o *rootOptions) newTemplate(name, from string) (string, error) {
	if !assemble.IsName(name) {
		return "", usage("a template's name is made of letters, digits, - and _, not %s", plain.Quote(name, plain.Detail))
	}
	if o.templatesDir == "" {
		if _, err := o.resolve(); err != nil {
			return "", err
		}
	}
	lib := o.library()
	r, err := lib.Resolve(from, readTemplateFile)
	if err != nil {
		return "", templateError(from, err)
	}
	source := assemble.Builtin(from)
	if r.Origin != assemble.OriginBuiltin {
		if source, err = readTemplateFile(r.Path); err != nil {
			return "", templateError(from, err)
		}
	}
	source = templateLine.ReplaceAll(source, []byte("template: "+name))
	if t, _, err := assemble.ParseTemplate(source); err != nil || t.Name != name {
		return "", errcode.New(errcode.TemplateInvalid, "--from "+assemble.DefaultTemplate+", whose first line can be renamed",
			"copy template %s: it has no plain line that says template:", plain.Quote(from, plain.Detail))
	}
	file := filepath.Join(lib.Dir, name+templateSuffix)
	failed := func(err error) error {
		return errcode.Wrap(errcode.Bare(err), errcode.Input, "another name, or another --templates-dir", "write template %s", plain.Quote(file, plain.Detail))
	}
	if err := os.MkdirAll(lib.Dir, 0o755); err != nil {
		return "", failed(err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return "", failed(err)
	}
	if _, err := f.Write(source); err != nil {
		_ = f.Close()
		_ = os.Remove(file)
		return "", failed(err)
	}
	if err := f.Close(); err != nil {
		return "", failed(err)
	}
	return file, nil
}
