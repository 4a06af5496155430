package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/internal/plain"
)

func (a *app) policy() *cobra.Command {
	return group(&cobra.Command{
		Use:   "policy",
		Short: "check a policy file, show what judges",
		Long: `The policy says whom an agent may pay, how much, and when a person is asked. It is a JSON
file that --guard-config names; without one the built-in defaults judge.`,
	}, "policy check or policy show",
		a.policyCheck(), a.policyShow())
}

// badPolicy is the exit status of a check that found faults: that of E_POLICY.
const badPolicy = status(2)

func (a *app) policyCheck() *cobra.Command {
	var o guarded
	c := a.command(&cobra.Command{
		Use:   "check [flags] [FILE]",
		Short: "check a policy file and name every fault",
		Long: `Check a policy file before a server is started with it, and name every fault with its
place. Without FILE the policy that --guard-config or the log names is checked. Nothing is
written.

Exit status 2 when it has faults.`,
		Args: operands(0, 1),
	}, func(ctx context.Context, args []string) error {
		if err := noBlank("FILE", args); err != nil {
			return err
		}
		if len(args) == 1 {
			if o.config != "" {
				return usage("give either FILE or --guard-config")
			}
			o.config = path(args[0])
		}
		p, err := a.policyWherever(ctx, &o)
		if err != nil {
			var faults *guard.PolicyError
			if !errors.As(err, &faults) {
				return err
			}
			return a.answerFaults(&o, faults)
		}
		if o.json {
			warnings := []object{}
			for _, s := range p.policy.Explain() {
				for _, w := range s.Warnings {
					warnings = append(warnings, object{{"path", s.Path}, {"text", clean(w)}})
				}
			}
			a.answer(append(object{{"shape", "policy-check/1"}, {"sound", true}}.add("path", p.path), member{"policy_hash", p.policy.Hash()},
				member{"faults", []object{}}, member{"warnings", warnings}))
			return nil
		}
		a.say("the policy is sound")
		a.showPolicyFile(p)
		for _, s := range p.policy.Explain() {
			for _, w := range s.Warnings {
				a.put(yellow, "! ", s.Path+": "+w)
			}
		}
		if len(p.policy.Operators) == 0 {
			a.put(yellow, "! ", warningText("unsigned_reviews"))
		}
		return nil
	})
	o.flags(c.Flags())
	return c
}

// policyWherever is the policy of a root, or the file that is named where there
// is no root: a policy may be written before an agent has ever run.
func (a *app) policyWherever(ctx context.Context, o *guarded) (*policyFile, error) {
	if o.config == "" {
		return a.policyOf(ctx, o)
	}
	root, err := o.resolve()
	if err != nil {
		root = ""
	}
	return o.readPolicy(root, nil)
}

func (a *app) answerFaults(o *guarded, e *guard.PolicyError) error {
	if o.json {
		rows := make([]object, len(e.Faults))
		for i, f := range e.Faults {
			rows[i] = object{{"path", clean(f.Path)}, {"problem", clean(f.Problem)}}.add("try", clean(f.Hint))
		}
		doc := object{{"shape", "policy-check/1"}, {"sound", false}}
		if file, err := filepath.Abs(string(o.config)); err == nil && o.config != "" {
			doc = doc.add("path", file)
		}
		a.answer(append(doc, member{"faults", rows}, member{"warnings", []object{}}))
		return badPolicy
	}
	a.say("the policy has %s:", plain.Plural(int64(len(e.Faults)), "fault"))
	for _, f := range e.Faults {
		a.put(red, "- ", f.Path+": "+f.Problem)
		if f.Hint != "" {
			a.put("", "  ", "try: "+f.Hint)
		}
	}
	return badPolicy
}

// showPolicyFile says where a policy comes from and what it is called in the log.
func (a *app) showPolicyFile(p *policyFile) {
	var s sheet
	from := p.path
	if from == "" {
		from = "none: the built-in defaults"
	}
	s.row("file", from, "")
	s.row("hash", p.policy.Hash(), "")
	a.showSheet(&s)
}

func (a *app) policyShow() *cobra.Command {
	var o guarded
	c := a.command(&cobra.Command{
		Use:   "show [flags]",
		Short: "show the policy that judges, defaults filled in",
		Long: `Show the policy that --guard-config names, else the one the log names, else the built-in
defaults, in words. --json prints it whole, in the form of a policy file.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		p, err := a.policyWherever(ctx, &o)
		if err != nil {
			return err
		}
		if o.json {
			a.answer(append(object{{"shape", "policy/1"}}.add("path", p.path), member{"policy_hash", p.policy.Hash()},
				member{"policy", raw(p.policy.Effective())}))
			return nil
		}
		a.showPolicyFile(p)
		a.say("")
		a.showSettings(p.policy.Explain())
		return nil
	})
	o.flags(c.Flags())
	return c
}

// showSettings tells a policy member by member, what the file says before what it
// leaves to the defaults.
func (a *app) showSettings(all []guard.Setting) {
	for _, defaults := range []bool{false, true} {
		title := "from the file:"
		if defaults {
			title = "by default:"
		}
		for _, s := range all {
			if s.Default != defaults {
				continue
			}
			if title != "" {
				a.say("%s", title)
				title = ""
			}
			a.put("", "- ", strings.TrimPrefix(s.Path, "$.")+" "+s.Value+": "+s.Means)
			for _, w := range s.Warnings {
				a.put(yellow, "  ! ", w)
			}
		}
	}
}

// clean makes a text of strangers fit for a document that is not byte-exact.
func clean(text string) string { return plain.Clean(text, whole) }

func cleanAll(texts []string) []string {
	out := slices.Clone(texts)
	for i, text := range out {
		out[i] = clean(text)
	}
	if out == nil {
		out = []string{}
	}
	return out
}
