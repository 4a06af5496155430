package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/internal/safefile"
)

// guardOptions say by which policy and in which log the guard of a root judges.
type guardOptions struct {
	config   path // --guard-config
	inRoot   bool // --guard-config-in-root
	operator path // --operator-key, of commands that loosen

	syncTimeout time.Duration // 0 means the guard's own default
	checkpoint  path          // serve only
	listing     recall        // serve with the toolset market only

	hmac      *approval.HMACKey // of receipts of version 1; serve only
	allowHMAC bool

	// start is set where the guard serves an agent: the policy was read once, at
	// the start, from nowhere but where --guard-config says, and what the log
	// names counts for nothing (guard contract, section 2). nil is a person's
	// command.
	start *policyStart
}

// policyStart is the policy a server started with. A fault of it is handed to
// the guard, which then answers not_ready: a dead server is a host that pays
// unguarded.
type policyStart struct {
	policyFile
	fault error
}

func (o *guardOptions) flags(f *pflag.FlagSet) {
	f.Var(&o.config, "guard-config", "policy file (default: the one the log names last, else the built-in defaults)")
	f.BoolVar(&o.inRoot, "guard-config-in-root", false, "take a policy file that lies in the trace root, where agents write")
}

const defaultSyncTimeout = 10 * time.Second

func (o *guardOptions) syncFlag(f *pflag.FlagSet) {
	f.DurationVar(&o.syncTimeout, "sync-timeout", defaultSyncTimeout, "how long a check waits for the history to be indexed")
}

// positive refuses a time that is none.
func positive(flag string, d time.Duration) error {
	if d <= 0 {
		return usage("--%s takes a time of more than 0, not %s", flag, d)
	}
	return nil
}

func (o *guardOptions) operatorFlag(f *pflag.FlagSet) {
	f.Var(&o.operator, "operator-key", "operator's key file (default: "+operatorFile+" in your configuration directory)")
}

func (o *guardOptions) repeat() string {
	var b strings.Builder
	if o.config != "" {
		b.WriteString(" --guard-config " + shellWord(string(o.config)))
	}
	if o.inRoot {
		b.WriteString(" --guard-config-in-root")
	}
	// Not the operator's key: few commands take it, and those that do ask for it.
	return b.String()
}

// guarded are the options of a command that asks the guard of a root.
type guarded struct {
	rootOptions
	guardOptions
	json bool
}

func (o *guarded) flags(f *pflag.FlagSet) {
	o.rootOptions.flags(f)
	o.guardOptions.flags(f)
	jsonFlag(f, &o.json)
}

func (o *guarded) repeat() string { return o.rootOptions.repeat() + o.guardOptions.repeat() }

// again is a command of ours on the same root, for hints.
func (o *guarded) again(command string) string { return "settlewatch " + command + o.repeat() }

// after is again for any command of ours: not all of them take the guard's flags.
func (o *guarded) after(command string) string {
	if name, _, _ := strings.Cut(command, " "); !slices.Contains(guardCommands, name) {
		return "settlewatch " + command + o.rootOptions.repeat()
	}
	return o.again(command)
}

// guardian is what a person asks of *guard.Guard.
type guardian interface {
	Policy() *guard.Policy
	Check(ctx context.Context, r guard.Request) (*guard.Verdict, error)
	Headroom(ctx context.Context, q guard.HeadroomQuery) (*guard.Headroom, error)
	Review(ctx context.Context, id string, wait time.Duration) (*guard.ReviewView, error)
	Reviews(ctx context.Context, q guard.ReviewQuery) (*guard.ReviewPage, error)
	Decide(ctx context.Context, d guard.Decision) ([]guard.ReviewView, error)
	SharedReceipt(ctx context.Context, id string, key approval.HMACKey) (*approval.Receipt, error)
	EndHold(ctx context.Context, id, note string) error
	Holds(ctx context.Context) ([]guard.HoldView, error)
	Freeze(ctx context.Context, counterparty, reason string) (string, error)
	Unfreeze(ctx context.Context, counterparty, reason string, by decision.Signer) error
	Shown(ctx context.Context, ref decision.Ref) (guard.Shown, error)
	Resolve(ctx context.Context, all []guard.Resolution) error
	Unresolve(ctx context.Context, ref decision.Ref, note string) error
	Open(ctx context.Context, q guard.OpenQuery) ([]guard.OpenOperation, error)
	Baseline(ctx context.Context, note string, by decision.Signer) (open, damaged int, err error)
	Damage(ctx context.Context) ([]guard.DamageItem, error)
	Acknowledge(ctx context.Context, run, note string, by decision.Signer) (int, error)
	Standing(ctx context.Context) (*guard.Standing, error)
}

// finder looks up what a person has named; *ingest.Indexer does.
type finder interface {
	Resolve(ctx context.Context, r ingest.Ref) (ingest.Ref, error)
	Runs(ctx context.Context) ([]string, error)
}

// withGuard opens the guard of a root, asks it and closes it.
func (a *app) withGuard(ctx context.Context, o *guarded, ask func(guardian, finder) error) error {
	if a.guards != nil {
		g, x := a.guards(o)
		return o.wordedGuard(ask(g, x))
	}
	g, x, err := a.openGuard(ctx, o.rootOptions, o.guardOptions)
	if err != nil {
		return err
	}
	defer x.Close()
	return o.wordedGuard(ask(g, x))
}

// wordedGuard gives an error of the guard the words of the command line: a hint
// that names a command names the root as well.
func (o *guarded) wordedGuard(err error) error {
	if err == nil {
		return nil
	}
	var e *errcode.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case errcode.ReviewNotFound:
		return errcode.New(e.Code, o.again("review list --status all")+" lists every review", "%s", e.Message)
	case errcode.ReviewAmbiguous:
		return errcode.New(e.Code, "more of the id; "+o.again("review list --status all")+" shows whole ones", "%s", e.Message)
	case errcode.HoldNotFound:
		return errcode.New(e.Code, o.again("hold list")+"; a hold ends by itself when its payment is seen or its time is over", "%s", e.Message)
	case errcode.LogUnsound:
		return errcode.New(e.Code, "settlewatch audit verify"+o.rootOptions.repeat()+" says where, settlewatch audit recover"+o.rootOptions.repeat()+" begins a new log", "%s", e.Message)
	}
	// Other commands of ours in a hint go on to the same root.
	if hint := ourCommand.ReplaceAllStringFunc(e.Hint, func(command string) string {
		command = strings.TrimSuffix(command, "`")
		if name := strings.Fields(command)[1]; slices.Contains(guardCommands, name) {
			return command + o.repeat() + "`"
		}
		return command + o.rootOptions.repeat() + "`"
	}); hint != e.Hint {
		with := *e
		with.Hint = hint
		return &with
	}
	return o.worded(err)
}

var ourCommand = regexp.MustCompile("`settlewatch [a-z][^`]*`")

// guardCommands are those that take the flags of guardOptions.
var guardCommands = []string{"baseline", "check", "damage", "doctor", "freeze", "headroom", "hold", "policy", "resolve", "review", "status", "unfreeze", "watch"}

// policyFile is a policy and where it came from.
type policyFile struct {
	path   string // absolute, as it was named; "" for the defaults
	policy *guard.Policy
}

// maxPolicy bounds a policy file that is read.
const maxPolicy = 1 << 20

// readPolicy reads the policy file the flags name, else the one of the log's last
// policy line (guard contract, section 2); logged may be nil. Its errors are
// E_POLICY.
func (o *guardOptions) readPolicy(root string, logged *decision.Policy) (*policyFile, error) {
	name, from := string(o.config), ""
	if name == "" && logged != nil {
		name, from = logged.Path, ", which the log names,"
	}
	if name == "" {
		return &policyFile{policy: guard.DefaultPolicy()}, nil
	}
	file, err := filepath.Abs(name)
	if err != nil {
		return nil, errcode.Wrap(err, errcode.Policy, "an absolute path", "find the policy file %s", plain.Quote(name, plain.Detail))
	}
	source, err := o.readOutside(root, file)
	if err != nil {
		if known := new(errcode.Error); errors.As(err, &known) {
			return nil, err
		}
		return nil, errcode.Wrap(errcode.Bare(err), errcode.Policy, "give the right file with --guard-config",
			"read the policy file %s%s", plain.Quote(file, plain.Detail), from)
	}
	p, err := guard.ParsePolicy(source)
	if err != nil {
		e := errcode.Of(err)
		// Faults have a line each, an error has one.
		return nil, &errcode.Error{Code: errcode.Policy, Hint: e.Hint, Err: err,
			Message: "read the policy file " + plain.Quote(file, plain.Detail) + from + ": " + strings.ReplaceAll(e.Message, "\n", "; ")}
	}
	return &policyFile{path: file, policy: p}, nil
}

// readOutside reads a policy file and refuses one an agent may write: where the
// trace root is one of the directories its path leads through, whoever writes
// there chooses the policy, even if the file itself lies elsewhere (guard
// contract, section 2).
func (o *guardOptions) readOutside(root, file string) ([]byte, error) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return nil, err
	}
	if !o.inRoot && leadsThrough(file, root) {
		return nil, errcode.New(errcode.Policy, "keep it where no agent writes, or give --guard-config-in-root",
			"use the policy file %s: it lies in the trace root", plain.Quote(file, plain.Detail))
	}
	return safefile.ReadFile(real, maxPolicy)
}

// leadsThrough reports whether an absolute path passes a directory on its way,
// links included.
func leadsThrough(file, dir string) bool {
	wanted, err := os.Stat(dir)
	if err != nil {
		return false // there is no such directory yet, so nothing lies in it
	}
	const most = 255 // links may point at each other
	here, rest := string(filepath.Separator), strings.Split(filepath.ToSlash(file), "/")
	if volume := filepath.VolumeName(file); volume != "" {
		here, rest = volume+here, strings.Split(filepath.ToSlash(file[len(volume):]), "/")
	}
	for steps := 0; len(rest) > 0 && steps < most; steps++ {
		next := filepath.Join(here, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(next)
		if err != nil {
			return false // whoever reads it says so
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(next)
			if err != nil {
				return false
			}
			if filepath.IsAbs(target) {
				here = filepath.VolumeName(target) + string(filepath.Separator)
			}
			rest = append(strings.Split(filepath.ToSlash(target), "/"), rest...)
			continue
		}
		// By identity, not by name: letters of another case or a second mount
		// may lead to the same place.
		if os.SameFile(info, wanted) {
			return true
		}
		here = next
	}
	return len(rest) > 0 // too long a way to say
}

// linkedPolicy says that a policy file has other names, "" where it has none or the
// system does not tell. One of them may lie where an agent writes; most do not, since
// backups and package stores make them too, so it is no reason to judge nothing.
func linkedPolicy(file string) (what, hint string) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return "", ""
	}
	dir, err := safefile.OpenDir(filepath.Dir(real))
	if err != nil {
		return "", ""
	}
	defer dir.Close()
	info, err := dir.Stat(filepath.Base(real))
	if err != nil || info.Nlink < 2 {
		return "", ""
	}
	return fmt.Sprintf("the policy %s has %d names (hard links): whoever may write to it by another one chooses the limits", shown(file), info.Nlink),
		"make a copy of it, which has one name, and use that"
}

// otherPolicy tells a person that what they decide is judged by another policy
// than the log last named.
func (a *app) otherPolicy(p *policyFile, logged *decision.Policy) {
	if logged == nil || logged.Hash == p.policy.Hash() {
		return
	}
	what := "the built-in defaults"
	if p.path != "" {
		what = plain.Quote(p.path, plain.Detail)
	}
	a.note("note: the policy is %s with hash %s, but the log was last written under hash %s: the server may still judge by another one",
		what, firstOf(p.policy.Hash()), firstOf(logged.Hash))
}

// firstOf is the beginning of a hash, for a sentence.
func firstOf(hash string) string { return hash[:min(len(hash), 12)] }
