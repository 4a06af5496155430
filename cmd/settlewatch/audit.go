package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/internal/safefile"
)

func (a *app) audit() *cobra.Command {
	return group(&cobra.Command{
		Use:   "audit",
		Short: "prove the decisions log, pin it, export it, begin it anew",
		Long: `The decisions log is append-only and chained: each line carries a hash (its sig) of itself
and of the line before it. A log that was edited does not verify; one that was cut, begun
anew or chained again as a whole shows only against a checkpoint that was kept elsewhere.`,
	}, "audit verify, checkpoint, export, recover or adopt",
		a.auditVerify(), a.auditCheckpoint(), a.auditExport(),
		a.auditAside("recover", "begin a new log behind one that does not verify",
			`Set a log that does not verify aside, byte for byte, and begin a new one with its hash.
Freezes, rejections and pending reviews that can still be read are carried on; approvals
are not. With operators in the policy it counts only when one of them signs it.

A log that was cut verifies by itself. What shows the cut is the checkpoint: name it with
--checkpoint, as for serve. From then on the file pins the new log; keep a copy of it first.`),
		a.auditAside("adopt", "take over the log of another program",
			`Set the log of another program at this place aside, byte for byte, and begin one with its
hash; haia-trace-mcp's are known. Freezes, rejections and pending reviews are carried on;
approvals are not. With operators in the policy it counts only when one of them signs it.`))
}

// guardPath is the real guard directory. Whoever names one needs no root: an
// auditor has the log and nothing else.
func (o *rootOptions) guardPath() (string, error) {
	if o.guardDir == "" {
		root, err := o.resolve()
		if err != nil {
			return "", err
		}
		return o.guardAt(root), nil
	}
	dir := o.guardAt("")
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real, nil
	}
	return dir, nil
}

type auditOptions struct {
	rootOptions
	checkpoint path
	format     string
	json       bool
}

func (a *app) auditVerify() *cobra.Command {
	var o auditOptions
	c := a.command(&cobra.Command{
		Use:   "verify [flags] [LOG]",
		Short: "prove the chain of the decisions log",
		Long: `Prove the chain of the decisions log from its first line, that of the root or the file
LOG. A cut end cannot show in the chain itself: with --checkpoint the log is compared with
a checkpoint that was kept elsewhere, and its end is pinned. Whether operators have signed
what permits is not asked here: settlewatch doctor names what does not count.

With --format chp LOG is a ledger of the published CHP server, and the checkpoint the
count and head_sig of its rows.

Exit status 3 when the log does not verify.`,
		Args: operands(0, 1),
	}, func(ctx context.Context, args []string) error {
		if err := noBlank("LOG", args); err != nil {
			return err
		}
		if err := oneOf("format", o.format, "ndjson", "chp"); err != nil {
			return err
		}
		if o.format == "chp" {
			return a.verifyLedger(ctx, o, args)
		}
		return a.runVerify(ctx, o, args)
	})
	f := c.Flags()
	o.rootOptions.flags(f)
	f.Var(&o.checkpoint, "checkpoint", "file with the checkpoint to compare with")
	f.StringVar(&o.format, "format", "ndjson", "ndjson, or chp for a ledger of the published CHP server")
	jsonFlag(f, &o.json)
	return c
}

// maxCheckpoint bounds a checkpoint that is read.
const maxCheckpoint = 64 << 10

func (a *app) runVerify(ctx context.Context, o auditOptions, args []string) error {
	var file string
	if len(args) == 1 {
		file = args[0]
		if _, err := os.Stat(file); err != nil {
			return errcode.Wrap(errcode.Bare(err), errcode.Input, "the path of a decisions log", "read the log %s", plain.Quote(file, plain.Detail))
		}
	} else {
		dir, err := o.guardPath()
		if err != nil {
			return err
		}
		file = filepath.Join(dir, decision.FileName)
	}
	var pin *decision.Checkpoint
	if o.checkpoint != "" {
		c, err := readCheckpoint(o.checkpoint)
		if err != nil {
			return err
		}
		pin = &c
	}
	r, err := decision.Verify(ctx, file, pin)
	if err != nil {
		return err
	}
	if o.json {
		a.answer(reportJSON(r))
	} else {
		a.showReport(&o, r, len(args) == 0)
	}
	if r.Unsound != nil {
		return unsound
	}
	return nil
}

const checkpointHint = "the file that settlewatch audit checkpoint was kept in"

// checkpointFile reads a checkpoint's file.
func checkpointFile(file path) ([]byte, error) {
	source, err := safefile.ReadFile(string(file), maxCheckpoint)
	if err != nil {
		return nil, errcode.Wrap(errcode.Bare(err), errcode.Input, checkpointHint, "read the checkpoint %s", plain.Quote(string(file), plain.Detail))
	}
	return source, nil
}

func readCheckpoint(file path) (decision.Checkpoint, error) {
	source, err := checkpointFile(file)
	if err != nil {
		return decision.Checkpoint{}, err
	}
	c, err := decision.ParseCheckpoint(source)
	if err != nil {
		return c, errcode.New(errcode.Input, checkpointHint, "read the checkpoint %s: %s", plain.Quote(string(file), plain.Detail), errcode.Of(err).Message)
	}
	return c, nil
}

func reportJSON(r *decision.Report) object {
	o := object{{"shape", "audit/1"}, {"sound", r.Unsound == nil}, {"log", r.Path}, {"exists", r.Exists}, {"lines", r.Lines}}
	o = o.add("first_sig", r.First).add("last_sig", r.Sig)
	if !r.At.IsZero() {
		o = append(o, member{"last_at", stamp(r.At)})
	}
	o = append(o, member{"torn_bytes", r.Torn}, member{"tail", r.Tail()}, member{"pinned_lines", r.Pinned})
	if u := r.Unsound; u != nil {
		o = append(o, member{"fault", object{{"line", u.Line}, {"reason", clean(u.Reason)}, {"foreign", u.Foreign}}})
	}
	return o
}

// showReport says what was found. What to do about it is said of the root's own
// log: a file that was handed to an auditor is none that commands act on.
func (a *app) showReport(o *auditOptions, r *decision.Report, own bool) {
	var s sheet
	s.row("log", r.Path, "")
	if !r.Exists && r.Unsound == nil {
		s.row("lines", "none: nothing has been decided here yet", "")
	} else {
		s.row("lines", plain.Number(r.Lines), "")
	}
	if !r.At.IsZero() {
		s.row("last line", moment(r.At), "")
	}
	if r.Sig != "" {
		s.row("last sig", r.Sig, "")
	}
	if r.Torn > 0 {
		s.styled(yellow, "torn", plain.Plural(r.Torn, "byte")+" after the last whole line, which a crash has left; the next writer sets them aside", "")
	}
	a.showSheet(&s)
	// The two lines a script looks for stand as they are, on a screen of any width.
	a.say("tail: %s", r.Tail())
	if u := r.Unsound; u != nil {
		where := ""
		if u.Line > 0 {
			where = "line " + plain.Number(u.Line) + ": "
		}
		a.put(red, "", "the log does not verify: "+where+u.Reason)
		if !own {
			return
		}
		verb := "recover"
		if u.Foreign {
			verb = "adopt"
		}
		a.put("", "", "to begin a new log behind it, which carries on what it blocks:")
		pin := ""
		if o.checkpoint != "" && verb == "recover" {
			pin = " --checkpoint " + shellWord(string(o.checkpoint))
		}
		a.pasteable("settlewatch audit " + verb + o.repeat() + pin)
		return
	}
	a.say("the log verifies")
	if r.Pinned < r.Lines && r.Exists {
		what := "a cut end would not show. to pin it, keep this elsewhere and verify with --checkpoint:"
		if r.Pinned > 0 {
			what = "the checkpoint pins the first " + plain.Plural(r.Pinned, "line") + "; a cut behind them would not show. to pin the rest, keep this elsewhere:"
		}
		if !own {
			what, _, _ = strings.Cut(what, " to pin ")
			a.put("", "", what)
			return
		}
		a.put("", "", what)
		a.pasteable("settlewatch audit checkpoint" + o.repeat())
	}
}

func (a *app) auditCheckpoint() *cobra.Command {
	var o auditOptions
	c := a.command(&cobra.Command{
		Use:   "checkpoint [flags]",
		Short: "print a checkpoint of the log, to be kept elsewhere",
		Long: `Print one JSON object on one line: how many lines the log has, the hash (sig) of the
last and the time. Kept where the agent cannot write, it shows later whether the log was cut,
begun anew or deleted.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		l, err := a.openLog(&o.rootOptions, "", nil)
		if err != nil {
			return err
		}
		s, err := l.Read(ctx)
		if err != nil {
			return o.wordedLog(err)
		}
		a.out.Write(s.Checkpoint(a.env.now()).Append(nil))
		return nil
	})
	f := c.Flags()
	o.rootOptions.flags(f)
	jsonFlag(f, &o.json)
	f.Lookup("json").Usage = "the same: it is JSON anyhow"
	return c
}

// openLog opens the decisions log without an index: an auditor may have nothing
// but the log.
func (a *app) openLog(o *rootOptions, checkpoint path, operators []decision.Operator) (*decision.Log, error) {
	dir, err := o.guardPath()
	if err != nil {
		return nil, err
	}
	return decision.Open(decision.Options{Dir: dir, Checkpoint: string(checkpoint), Now: a.env.now, Operators: operators})
}

// wordedLog gives an error of the log the words of the command line.
func (o *auditOptions) wordedLog(err error) error {
	g := guarded{rootOptions: o.rootOptions}
	return g.wordedGuard(err)
}

func (a *app) auditExport() *cobra.Command {
	var o auditOptions
	var format string
	c := a.command(&cobra.Command{
		Use:   "export [flags]",
		Short: "print the log for others to read",
		Long: `Print the log: its lines byte for byte, or a table of them, or, as chp, what it says of
approvals in the rows of the published CHP server's ledger. A log that does not verify is
refused.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		if err := oneOf("format", format, "ndjson", "csv", "chp"); err != nil {
			return err
		}
		l, err := a.openLog(&o.rootOptions, "", nil)
		if err != nil {
			return err
		}
		if format == "chp" {
			return o.wordedLog(l.Export(ctx, &ledgerRows{to: &a.out}, "ndjson"))
		}
		return o.wordedLog(l.Export(ctx, &a.out, format))
	})
	f := c.Flags()
	o.rootOptions.flags(f)
	f.StringVar(&format, "format", "ndjson", "ndjson, csv or chp")
	jsonFlag(f, &o.json)
	f.Lookup("json").Usage = "errors as JSON; the log is a JSON object a line anyhow"
	return c
}

func (a *app) auditAside(verb, short, long string) *cobra.Command {
	var o guarded
	c := a.command(&cobra.Command{
		Use:   verb + " [flags]",
		Short: short,
		Long:  long,
		Args:  operands(0, 0),
	}, func(ctx context.Context, _ []string) error { return a.runAside(ctx, &o, verb) })
	o.flags(c.Flags())
	o.operatorFlag(c.Flags())
	if verb == "recover" {
		c.Flags().Var(&o.checkpoint, "checkpoint", "file with the checkpoint the log is behind, which then pins the new log")
	}
	return c
}

func (a *app) runAside(ctx context.Context, o *guarded, verb string) error {
	// A file that is none would count as a reason to begin anew, and be written over.
	if o.checkpoint != "" {
		if _, err := readCheckpoint(o.checkpoint); err != nil {
			return err
		}
	}
	p, err := a.policyOf(ctx, o)
	if err != nil {
		return err
	}
	l, err := a.openLog(&o.rootOptions, o.checkpoint, p.policy.Operators)
	if err != nil {
		return err
	}
	by, err := a.signerOf(ctx, p.policy.Operators, o, []string{verb + " the log " + plain.Quote(l.Path(), whole) + ": it is set aside, and a new one begins"})
	if err != nil {
		return err
	}
	how := decision.SetAside{By: by, StickyHours: p.policy.StickyRejectHours}
	var c *decision.Carried
	if verb == "adopt" {
		how.Intent = intentOf(p.policy)
		c, err = l.Adopt(ctx, how)
	} else {
		c, err = l.Recover(ctx, how)
	}
	if err != nil {
		return o.worded(err)
	}
	// The next command is to find the policy again, and with it whose signatures
	// count.
	if _, err := l.Update(ctx, "", func(*decision.State) ([]decision.Body, error) {
		return []decision.Body{decision.Policy{Path: p.path, Hash: p.policy.Hash(), Operators: p.policy.Operators, Version: version()}}, nil
	}); err != nil {
		return o.worded(err)
	}
	if o.json {
		a.answer(object{{"shape", "audit-aside/1"}, {"act", verb}, {"log", l.Path()}, {"set_aside", c.File}, {"sha256", c.SHA256}, {"lines", c.Lines},
			{"freezes", c.Freezes}, {"rejections", c.Rejections}, {"pending", c.Pending}, {"holds", c.Holds}, {"rewrites", c.Rewrites}, {"runs", c.Runs}})
		return nil
	}
	var s sheet
	s.row("set aside", c.File, "")
	s.row("sha256", c.SHA256, "")
	s.row("lines", plain.Number(c.Lines), "")
	s.row("carried on", plain.Plural(int64(c.Freezes), "freeze")+", "+plain.Plural(int64(c.Rejections), "rejection")+", "+plain.Plural(int64(c.Pending), "pending review")+", "+
		plain.Plural(int64(c.Holds), "hold"), "")
	a.showSheet(&s)
	text := "a new log has begun. approvals were not carried on; an agent that still needs one asks again."
	if o.checkpoint != "" {
		a.put("", "", text+" the checkpoint "+plain.Quote(string(o.checkpoint), plain.Detail)+" pins it.")
		return nil
	}
	a.put("", "", text+" keep a checkpoint of it elsewhere:")
	a.pasteable("settlewatch audit checkpoint" + o.rootOptions.repeat())
	return nil
}

// intentOf reads what a review of another program is about as this guard reads a
// request, so that a rejection still sticks.
func intentOf(p *guard.Policy) func(decision.Foreign) decision.Intent {
	return func(f decision.Foreign) decision.Intent {
		ask, err := p.Read(guard.Request{Counterparty: f.Counterparty, Amount: f.Amount, Asset: f.Asset, Template: f.Template, Resource: f.Resource, PayTo: f.PayTo})
		if err != nil {
			names := slices.Concat(payment.Names(f.Counterparty), payment.Names(f.PayTo))
			slices.Sort(names)
			return decision.Intent{Names: slices.Compact(names), Resource: payment.Resource(f.Resource)}
		}
		return ask.Intent
	}
}

// policyOf is the policy a command goes by that needs no guard.
func (a *app) policyOf(ctx context.Context, o *guarded) (*policyFile, error) {
	dir, err := o.guardPath()
	if err != nil {
		return nil, err
	}
	root, missing := o.resolve()
	_, logged, err := a.readLog(ctx, dir, root, &o.guardOptions)
	if err != nil {
		return nil, err
	}
	if missing != nil && o.guardDir == "" {
		return nil, missing
	}
	p, err := o.readPolicy(root, logged)
	if err != nil {
		return nil, err
	}
	a.otherPolicy(p, logged)
	return p, nil
}
