package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/internal/safefile"
)

// operatorFile is where an operator's key is, in the person's own configuration
// directory: never below a trace root, where agents write (guard contract, section
// 4).
const operatorFile = "settlewatch/operator.key"

// shortestPassphrase is what keeps a stolen key file from being opened at once.
const shortestPassphrase = 8

func (a *app) operator() *cobra.Command {
	return group(&cobra.Command{
		Use:   "operator",
		Short: "make and show the keys of people who may approve",
		Long: `With operators in the policy, what permits (an approval, the end of a freeze, a
resolution) counts only when one of them has signed it with a key that a passphrase
protects. An agent that runs as the same user can then not approve its own payments.`,
	}, "operator init, operator list or operator show",
		a.operatorInit(), a.operatorList(), a.operatorShow())
}

// keyFile is the path of an operator's key.
func (a *app) keyFile(named path) (string, error) {
	if named != "" {
		file, err := filepath.Abs(string(named))
		if err != nil {
			return "", errcode.Wrap(err, errcode.OperatorKey, "an absolute path", "find the operator's key %s", plain.Quote(string(named), plain.Detail))
		}
		return file, nil
	}
	p, err := a.places()
	if err != nil {
		return "", errcode.New(errcode.OperatorKey, "name the key file with --operator-key", "%s", errcode.Of(err).Message)
	}
	return filepath.Join(p.Support, filepath.FromSlash(operatorFile)), nil
}

func (a *app) operatorInit() *cobra.Command {
	var o guarded
	var name string
	c := a.command(&cobra.Command{
		Use:   "init [flags]",
		Short: "make an operator's key",
		Long: `Make an Ed25519 key that signs what you permit, and keep it in a file that a passphrase
opens. The passphrase is asked on the terminal, twice, and never taken from a flag or the
environment. The public key, which is printed, goes into the policy.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		file, err := a.keyFile(o.operator)
		if err != nil {
			return err
		}
		if plain.Clean(name, plain.Detail) != name {
			return usage("--name takes a short name of visible characters, not %s", plain.Quote(name, plain.Detail))
		}
		public, err := a.newOperatorKey(ctx, &o, file, name)
		if err != nil {
			return err
		}
		if o.json {
			a.answer(object{{"shape", "operator/1"}, {"name", name}, {"public_key", public}, {"path", file}})
			return nil
		}
		a.put("", "", "wrote the key of "+plain.Quote(name, plain.Detail)+" to "+shown(file))
		a.put("", "", "to make it count, have this in the policy file, and the server started anew:")
		a.pasteable(operatorEntry(name, public))
		return nil
	})
	f := c.Flags()
	o.rootOptions.flags(f)
	f.Lookup("dir").Usage = "trace root, which the key must not lie in"
	for _, unused := range []string{"index", "guard-dir", "templates-dir"} {
		f.Lookup(unused).Usage = "taken as everywhere and ignored"
	}
	jsonFlag(f, &o.json)
	o.operatorFlag(f)
	f.StringVar(&name, "name", "operator", "whose key it is, as decisions will say")
	return c
}

// operatorEntry is what makes a key count, as the policy file has it.
func operatorEntry(name, public string) string {
	return string(encodeJSON(object{{"operators", []object{{{"name", name}, {"publicKey", public}}}}}, 0))
}

func (a *app) newOperatorKey(ctx context.Context, o *guarded, file, name string) (public string, err error) {
	failed := func(err error) error {
		return errcode.Wrap(errcode.Bare(err), errcode.OperatorKey, "another file with --operator-key", "write the operator's key %s", plain.Quote(file, plain.Detail))
	}
	if _, err := os.Lstat(file); err == nil {
		// A key that is overwritten takes every later approval of its owner with it.
		return "", failed(fs.ErrExist)
	}
	if root, err := o.resolve(); err == nil && leadsThrough(file, root) {
		return "", failed(errors.New("it would lie in the trace root, where agents write"))
	}
	who := a.person()
	if who == nil {
		return "", noTerminal("make an operator's key")
	}
	passphrase, err := who.secret(ctx, "new passphrase")
	if err != nil {
		return "", err
	}
	if utf8.RuneCount(passphrase) < shortestPassphrase {
		return "", errcode.New(errcode.OperatorKey, "a longer one, such as four words", "take the passphrase: it has fewer than %d characters", shortestPassphrase)
	}
	again, err := who.secret(ctx, "the same again")
	if err != nil {
		return "", err
	}
	if !slices.Equal(passphrase, again) {
		return "", errcode.New(errcode.OperatorKey, "settlewatch operator init, and the same passphrase twice", "take the passphrase: the two differ")
	}
	content, public, err := decision.NewKey(name, passphrase, cmp.Or(a.keyCost, decision.KeyCost))
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", failed(err)
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", failed(err)
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = safefile.SyncDir(dir)
	}
	if err != nil {
		_ = os.Remove(file)
		return "", failed(err)
	}
	return public, nil
}

// noTerminal refuses to take a passphrase from anywhere else (guard contract,
// section 4).
func noTerminal(what string) error {
	return errcode.New(errcode.OperatorKey, "run it on a terminal", "%s: a passphrase is asked on a terminal only, and stdin is none", what)
}

func (a *app) operatorList() *cobra.Command {
	var o guarded
	c := a.command(&cobra.Command{
		Use:   "list [flags]",
		Short: "list the operators of the policy",
		Args:  operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		p, err := a.policyOf(ctx, &o)
		if err != nil {
			return err
		}
		now := a.env.now()
		if o.json {
			rows := make([]object, len(p.policy.Operators))
			for i, op := range p.policy.Operators {
				rows[i] = object{{"name", clean(op.Name)}, {"public_key", op.PublicKey}, {"counts", !retired(op, now)}}
				if !op.Until.IsZero() {
					rows[i] = append(rows[i], member{"until", stamp(op.Until)})
				}
			}
			a.answer(object{{"shape", "operators/1"}, {"operators", rows}})
			return nil
		}
		if len(p.policy.Operators) == 0 {
			a.put("", "", "the policy names no operator: whoever runs programs as this user, the agent too, may approve. to make a key:")
			a.pasteable("settlewatch operator init")
			return nil
		}
		t := table{head: []string{"NAME", "SIGNS", "PUBLIC KEY"}}
		for _, op := range p.policy.Operators {
			signs, style := "yes", ""
			if !op.Until.IsZero() {
				signs = "until " + moment(op.Until)
			}
			if retired(op, now) {
				signs, style = "no, only "+signs, yellow
			}
			t.row(style, op.Name, signs, op.PublicKey)
		}
		a.show(&t)
		return nil
	})
	o.flags(c.Flags())
	return c
}

// retired reports whether a key signs nothing any more; what it has signed before
// stays valid (guard contract, section 4).
func retired(o decision.Operator, now time.Time) bool {
	return !o.Until.IsZero() && !now.Before(o.Until)
}

func (a *app) operatorShow() *cobra.Command {
	var o guarded
	c := a.command(&cobra.Command{
		Use:   "show [flags]",
		Short: "show the public key of an operator's key file",
		Long:  `Show the public key of your key file, as it goes into the policy. It needs no passphrase.`,
		Args:  operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		file, err := a.keyFile(o.operator)
		if err != nil {
			return err
		}
		content, err := a.readKey(file)
		if err != nil {
			return err
		}
		name, public, err := decision.KeyInfo(content)
		if err != nil {
			return err
		}
		if o.json {
			a.answer(object{{"shape", "operator/1"}, {"name", clean(name)}, {"public_key", public}, {"path", file}})
			return nil
		}
		var s sheet
		s.row("name", name, "")
		s.row("public key", public, "")
		s.row("file", file, "")
		a.showSheet(&s)
		a.put("", "", "in the policy:")
		a.pasteable(operatorEntry(name, public))
		return nil
	})
	f := c.Flags()
	jsonFlag(f, &o.json)
	o.operatorFlag(f)
	return c
}

// readKey reads a key file, which nobody but its owner may read (approvals contract,
// section 9.3).
func (a *app) readKey(file string) ([]byte, error) {
	content, err := safefile.ReadFile(file, decision.MaxKeyFile)
	if err != nil {
		return nil, errcode.Wrap(errcode.Bare(err), errcode.OperatorKey, "settlewatch operator init makes one; --operator-key names another file",
			"read the operator's key %s", plain.Quote(file, plain.Detail))
	}
	if perm := a.perm(file); perm&0o077 != 0 {
		return nil, errcode.New(errcode.OperatorKey, "chmod 600 "+shellWord(file), "use the operator's key %s: others may read or change it (mode %04o)", plain.Quote(file, plain.Detail), perm)
	}
	return content, nil
}

// signer is who signs acts, which are shown before the passphrase is asked; nil
// where the policy names no operator and nothing is signed.
func (a *app) signer(ctx context.Context, g guardian, o *guarded, acts []string) (decision.Signer, error) {
	return a.signerOf(ctx, g.Policy().Operators, o, acts)
}

func (a *app) signerOf(ctx context.Context, operators []decision.Operator, o *guarded, acts []string) (decision.Signer, error) {
	if len(operators) == 0 {
		return nil, nil
	}
	file, content, err := a.operatorKey(operators, o)
	if err != nil {
		return nil, err
	}
	for _, act := range acts {
		a.note("note: to be signed: %s", act)
	}
	return a.openKey(ctx, file, content)
}

// operatorKey is the key file that signs, closed, once it is known to be the key of
// an operator whose signature counts.
func (a *app) operatorKey(operators []decision.Operator, o *guarded) (file string, content []byte, err error) {
	if file, err = a.keyFile(o.operator); err != nil {
		return "", nil, err
	}
	if content, err = a.readKey(file); err != nil {
		return file, nil, err
	}
	name, public, err := decision.KeyInfo(content)
	if err != nil {
		return file, nil, err
	}
	i := slices.IndexFunc(operators, func(op decision.Operator) bool { return op.PublicKey == public })
	switch {
	case i < 0:
		return file, nil, errcode.New(errcode.OperatorKey, "the key of an operator of the policy, or in the policy: "+operatorEntry(name, public),
			"sign with the key %s: it is none of the policy's operators", plain.Quote(file, plain.Detail))
	case retired(operators[i], a.env.now()):
		return file, nil, errcode.New(errcode.OperatorKey, "the key of another operator",
			"sign with the key of %s: the policy has retired it on %s", plain.Quote(operators[i].Name, plain.Detail), moment(operators[i].Until))
	}
	return file, content, nil
}

// tries is how often a passphrase may be mistyped.
const tries = 3

// openKey asks for the passphrase of a key on the terminal.
func (a *app) openKey(ctx context.Context, file string, content []byte) (decision.Signer, error) {
	who := a.person()
	if who == nil {
		return nil, noTerminal("sign, as the policy names operators")
	}
	for try := 1; ; try++ {
		passphrase, err := who.secret(ctx, "passphrase of "+oneLine(file))
		if err != nil {
			return nil, err
		}
		key, err := leave(ctx, func() (decision.Signer, error) { return decision.OpenKey(content, passphrase) })
		if err == nil || try == tries || ctx.Err() != nil {
			return key, err
		}
		a.note("note: %s", errcode.Of(err).Message)
	}
}
