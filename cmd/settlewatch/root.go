package main

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/internal/safefile"
)

// maxTemplate bounds a template file that is read.
const maxTemplate = 1 << 20

// root is the command tree.
func (a *app) root() *cobra.Command {
	serve, options := a.serve()
	showVersion := false
	root := &cobra.Command{
		Use:   "settlewatch",
		Short: "receipts of an agent's own payments, for the agent and for you",
		Long: `settlewatch reads the payment traces an agent leaves in .trace/events and answers
which paid operations completed, over MCP to the agent and here to you.

Without a command but with flags it serves MCP on stdin and stdout:
settlewatch --dir .trace is settlewatch serve --dir .trace.

New here? settlewatch demo tells the whole story on a trace of its own.`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, args []string) error {
			if showVersion {
				a.began = true
				return a.showVersion(a.json)
			}
			if cmd.Flags().Changed("json") {
				return usage("--json belongs to a command")
			}
			return serve.RunE(cmd, args)
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	options.flags(root.Flags())
	root.Flags().BoolVar(&showVersion, "version", false, "print what settlewatch version prints")
	// So that `settlewatch --json list` is read as it is meant.
	root.Flags().Bool("json", false, "")
	_ = root.Flags().MarkHidden("json")
	root.SetOut(&a.out)
	root.SetErr(a.stderr)
	root.SetIn(a.stdin)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	root.AddCommand(
		serve, a.build(), a.list(), a.receipt(), a.explain(), a.template(),
		a.check(), a.review(), a.resolve(), a.baseline(), a.hold(), a.freeze(), a.unfreeze(), a.damage(), a.watch(),
		a.headroom(), a.policy(), a.operator(), a.audit(),
		a.ui(), a.reindex(), a.fsck(), a.status(), a.doctor(), a.install(), a.demo(), a.crashTest(), a.systemdUnit(), a.chpAdapter(), a.version(),
	)
	a.help(root)
	strictGroups(root)
	return root
}

// strictGroups makes the commands the library adds refuse what they do not
// know; by themselves they print help and call that a success.
func strictGroups(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion":
			c.Short = "print the script that completes commands in a shell"
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		case "help":
			c.Short = "show what a command takes and does"
			c.Run = nil
			c.RunE = func(c *cobra.Command, args []string) error {
				topic, rest, err := c.Root().Find(args)
				if topic == nil || err != nil || len(rest) > 0 {
					name := strings.Join(args, " ")
					if topic == nil || len(rest) == 0 {
						topic, rest = c.Root(), args
					}
					return usage("there is no command %s%s", plain.Quote(name, plain.Detail), didYouMean(topic, rest))
				}
				topic.InitDefaultHelpFlag()
				return topic.Help()
			}
		}
	}
}

// knownCommand refuses a command that a group does not have, and names those
// that are spelled alike.
func knownCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usage("unknown command %s for %s%s", plain.Quote(args[0], plain.Detail), c.CommandPath(), didYouMean(c, args))
}

func didYouMean(c *cobra.Command, args []string) string {
	if len(args) == 0 {
		return ""
	}
	c.SuggestionsMinimumDistance = 2
	names := c.SuggestionsFor(args[0])
	if len(names) == 0 {
		return ""
	}
	for i, name := range names {
		names[i] = c.CommandPath() + " " + name
	}
	return " (did you mean " + strings.Join(names, " or ") + "?)"
}

// flagError says in our words what is wrong with a flag.
func flagError(err error) error {
	if worded := (*errcode.Error)(nil); errors.As(err, &worded) {
		return worded
	}
	var invalid *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	switch {
	case errors.As(err, &invalid):
		f, value := invalid.GetFlag(), plain.Quote(invalid.GetValue(), plain.Detail)
		switch f.Value.Type() {
		case "int":
			return usage("--%s takes a whole number, not %s", f.Name, value)
		case "bool":
			return usage("--%s takes true or false, not %s", f.Name, value)
		}
		return usage("--%s cannot take %s", f.Name, value)
	case errors.As(err, &missing):
		return usage("--%s needs a value behind it", missing.GetFlag().Name)
	}
	return usage("%v", err)
}

// operands checks how many operands a command was given.
func operands(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		name := strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")
		switch n := len(args); {
		case n >= least && n <= most:
			return nil
		case most == 0:
			return usage("%s takes no argument, not %s", name, plain.Quote(args[0], plain.Detail))
		case least == most:
			return usage("%s takes %s, not %d", name, plain.Plural(int64(most), "argument"), n)
		default:
			return usage("%s takes at most %s, not %d", name, plain.Plural(int64(most), "argument"), n)
		}
	}
}

// command fills in what all commands share. The answer function runs after the
// flags have been parsed and checked.
func (a *app) command(c *cobra.Command, answer func(ctx context.Context, args []string) error) *cobra.Command {
	c.DisableFlagsInUseLine = true
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := noBlankFlag(cmd.Flags()); err != nil {
			return err
		}
		a.began = true
		return answer(cmd.Context(), args)
	}
	return c
}

// group is a command that only says which ones there are below it.
func group(c *cobra.Command, choices string, commands ...*cobra.Command) *cobra.Command {
	c.Args = knownCommand
	c.RunE = func(*cobra.Command, []string) error { return usage("say what to do: %s", choices) }
	c.AddCommand(commands...)
	return c
}

// noBlankFlag refuses a flag that was given a blank value. A blank path would quietly
// mean the working directory (trace contract, section 1), any other blank value that
// the flag was not given: most likely a variable was empty, and what it was to choose
// must not be everything.
func noBlankFlag(f *pflag.FlagSet) (err error) {
	f.Visit(func(f *pflag.Flag) {
		if kind := f.Value.Type(); (kind == "path" || kind == "string") && strings.TrimSpace(f.Value.String()) == "" {
			err = usage("--%s is blank", f.Name)
		}
	})
	return err
}

// path is the value of a flag that names a file or directory.
type path string

func (p *path) String() string     { return string(*p) }
func (p *path) Set(s string) error { *p = path(s); return nil }
func (p *path) Type() string       { return "path" }

// rootOptions say which trace root a command reads.
type rootOptions struct {
	dir, index, guardDir, templatesDir path
}

// defaultDir is where a recorder writes unless told otherwise.
const defaultDir = ".trace"

func (o *rootOptions) flags(f *pflag.FlagSet) {
	o.dir = defaultDir
	f.Var(&o.dir, "dir", "trace root, the directory that holds events/")
	f.Var(&o.index, "index", "index file (default: in the root's guard directory)")
	f.Var(&o.guardDir, "guard-dir", "directory of the decisions log and the index (default: guard/ of the root)")
	f.Var(&o.templatesDir, "templates-dir", "directory of your own templates (default: templates/ of the root)")
}

// repeat gives the flags that were typed, for a command in a hint: what it
// says must do what it promises when it is pasted.
func (o *rootOptions) repeat() string {
	var b strings.Builder
	if o.dir != defaultDir {
		b.WriteString(" --dir " + shellWord(string(o.dir)))
	}
	if o.index != "" {
		b.WriteString(" --index " + shellWord(string(o.index)))
	}
	if o.guardDir != "" {
		b.WriteString(" --guard-dir " + shellWord(string(o.guardDir)))
	}
	if o.templatesDir != "" {
		b.WriteString(" --templates-dir " + shellWord(string(o.templatesDir)))
	}
	return b.String()
}

// shellWord is text as a shell takes it for one word.
func shellWord(text string) string {
	harmless := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !harmless(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// noRuns says that a root holds nothing to answer from. Whoever finds out, it
// is said in the same words.
func (o *rootOptions) noRuns() error {
	return errcode.New(errcode.NoRuns, "start the agent's recorder, or give the right root with --dir",
		"look for run files in %s: there are none", plain.Quote(filepath.Join(string(o.dir), "events"), plain.Detail))
}

// worded gives an error of the index the words of the command line.
func (o *rootOptions) worded(err error) error {
	if err == nil {
		return nil
	}
	switch e := errcode.Of(err); e.Code {
	case errcode.NoRuns:
		return o.noRuns()
	case errcode.RunNotFound:
		return errcode.New(e.Code, o.everyRun(), "%s", e.Message)
	}
	return err
}

// everyRun is a hint for who named a run that is not there.
func (o *rootOptions) everyRun() string {
	return "settlewatch status --runs" + o.repeat() + " lists every run"
}

// noEvents reports whether the root has no events directory.
func (o *rootOptions) noEvents() bool {
	_, err := os.Stat(filepath.Join(string(o.dir), "events"))
	return errors.Is(err, fs.ErrNotExist)
}

// noteEmpty tells a person who has perhaps named the wrong root; that there is
// nothing is an answer all the same.
func (a *app) noteEmpty(o rootOptions) {
	events := filepath.Join(string(o.dir), "events")
	if o.noEvents() {
		a.note("note: there is no events/ in %s: is --dir right?", plain.Quote(string(o.dir), plain.Detail))
	} else if len(listRuns(string(o.dir))) == 0 {
		a.note("note: there is no run in %s: is --dir right?", plain.Quote(events, plain.Detail))
	}
}

func jsonFlag(f *pflag.FlagSet, v *bool) {
	f.BoolVar(v, "json", false, "print JSON (docs/json.md)")
}

func templateFlag(f *pflag.FlagSet, v *string, where string) {
	f.StringVar(v, "template", assemble.DefaultTemplate, "template to judge by: a name"+where)
}

// resolve is the real path of the trace root.
func (o *rootOptions) resolve() (string, error) {
	real, err := safefile.ResolveRoot(string(o.dir))
	if err != nil {
		return "", errcode.Wrap(errcode.Bare(err), errcode.Root, "give the directory that holds events/ with --dir, or start the agent's recorder first",
			"open trace root %s", plain.Quote(string(o.dir), plain.Detail))
	}
	return real, nil
}

// guardAt is the guard directory of a root whose real path is given.
func (o *rootOptions) guardAt(root string) string {
	if o.guardDir == "" {
		return filepath.Join(root, "guard")
	}
	if dir, err := filepath.Abs(string(o.guardDir)); err == nil {
		return dir
	}
	return string(o.guardDir)
}

// open opens the index of the root for a person, who may name templates by
// path.
func (a *app) open(ctx context.Context, o rootOptions) (*ingest.Indexer, error) {
	return a.openWith(ctx, o, readTemplateFile, a.noter(), a.noticing(o))
}

// noter tells a person what the index has to say.
func (a *app) noter() *slog.Logger {
	return slog.New(&noter{tell: func(text string) { a.note("note: %s", text) }})
}

func (a *app) openWith(ctx context.Context, o rootOptions, readFile func(string) ([]byte, error), log *slog.Logger, rewritten func(context.Context, ingest.Rewrite)) (*ingest.Indexer, error) {
	real, err := o.resolve()
	if err != nil {
		return nil, err
	}
	return ingest.Open(ctx, ingest.Options{
		Root:         real,
		Index:        string(o.index),
		GuardDir:     string(o.guardDir),
		TemplatesDir: string(o.templatesDir),
		Now:          a.env.now,
		ReadFile:     readFile,
		Log:          log,
		Rewritten:    rewritten,
	})
}

// log is where diagnostics go. They never hold payloads.
func (a *app) log(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: level}))
}

// library reads templates without an index: the root need not hold any run.
func (o *rootOptions) library() assemble.Library {
	dir := string(o.templatesDir)
	if dir == "" {
		dir = filepath.Join(string(o.dir), "templates")
	}
	return assemble.Library{
		Dir: dir,
		Read: func(name string) ([]byte, error) {
			real, err := filepath.EvalSymlinks(dir)
			if err != nil {
				return nil, err
			}
			d, err := safefile.OpenDir(real)
			if err != nil {
				return nil, err
			}
			defer d.Close()
			return d.ReadFile(name, maxTemplate)
		},
	}
}

func readTemplateFile(path string) ([]byte, error) {
	return safefile.ReadFile(path, maxTemplate)
}

// runOperand reads how a person names a run: "latest", "run:<id>" or an id
// (trace contract, section 12.4). The id is empty for the latest.
func runOperand(text string) (id string, latest bool) {
	if text == "latest" {
		return "", true
	}
	return strings.TrimPrefix(text, "run:"), false
}
