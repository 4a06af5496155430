package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/pflag"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/mcp"
)

// approvalOptions say how a server answers about approvals.
type approvalOptions struct {
	demo, args, trustMeta bool
	bound                 []string
}

func (o *approvalOptions) flags(f *pflag.FlagSet, g *guardOptions) {
	f.BoolVar(&o.demo, "demo-finance", false, "toolset approvals: offer the synthetic tools that spend as well")
	f.BoolVar(&o.args, "ledger-args", false, "toolset approvals: inspect_audit_ledger shows arguments, not only their hashes")
	f.BoolVar(&o.trustMeta, "trust-host-meta", false, "toolset approvals: what the host says in _meta of a request is bound; only where the agent cannot write it")
	f.StringArrayVar(&o.bound, "host-bound", nil, "toolset approvals: NAME=VALUE, an argument the agent may not choose; once for each")
	f.BoolVar(&g.allowHMAC, "allow-hmac-receipts", false, "toolset approvals: a receipt under CHP_RECEIPT_KEY stands for a person, though whoever has that key can make one")
	g.operatorFlag(f)
	f.Lookup("operator-key").Usage = "toolset operator: your key file (default: " + operatorFile + " in your configuration directory)"
}

// hostBound are the arguments the host has fixed.
func (o *approvalOptions) hostBound() (approval.Host, error) {
	fixed := map[string]string{}
	for _, pair := range o.bound {
		name, value, ok := strings.Cut(pair, "=")
		if _, twice := fixed[name]; !ok || name == "" || value == "" || twice {
			return approval.Host{}, usage("--host-bound takes NAME=VALUE, each name once, not %s", plain.Quote(pair, plain.Detail))
		}
		fixed[name] = value
	}
	return approval.HostBound(fixed), nil
}

// Environment of the published server (approvals contract, sections 4.2 and 9.8).
const (
	receiptKey = "CHP_RECEIPT_KEY"
	ledgerPath = "CHP_AUDIT_LEDGER"
	ledgerKey  = "AUDIT_LEDGER_KEY"
)

// approvalEnvironment takes the key of receipts of version 1 from the environment,
// and says what is no longer taken from there.
func (a *app) approvalEnvironment(g *guardOptions) {
	if secret := a.env.getenv(receiptKey); secret != "" {
		key, err := approval.NewHMACKey(secret)
		if err != nil {
			a.note("warning: %s: receipts of version 1 are refused. try: %s", errcode.Of(err).Message, errcode.Of(err).Hint)
		} else {
			g.hmac = &key
		}
	}
	if g.allowHMAC && g.hmac == nil {
		a.note("warning: --allow-hmac-receipts has no effect without a key in %s", receiptKey)
	}
	for name, instead := range map[string]string{
		ledgerPath: "the ledger is decisions.ndjson of the guard directory; settlewatch audit export --format chp renders it",
		ledgerKey:  "receipts are signed with operators' keys, see settlewatch operator init",
	} {
		if a.env.getenv(name) != "" {
			a.note("warning: %s is ignored: %s", name, instead)
		}
	}
}

func (l lateGuard) EvaluateSpend(ctx context.Context, r guard.SpendRequest) (*guard.SpendAnswer, error) {
	return late(l, func(g *guard.Guard) (*guard.SpendAnswer, error) { return g.EvaluateSpend(ctx, r) })
}

func (l lateGuard) EvaluateToolApproval(ctx context.Context, r guard.ToolRequest) (*guard.ToolAnswer, error) {
	return late(l, func(g *guard.Guard) (*guard.ToolAnswer, error) { return g.EvaluateToolApproval(ctx, r) })
}

func (l lateGuard) RequestAuthorization(ctx context.Context, r guard.ToolRequest) (*guard.ToolAnswer, error) {
	return late(l, func(g *guard.Guard) (*guard.ToolAnswer, error) { return g.RequestAuthorization(ctx, r) })
}

func (l lateGuard) AuthorizeToolCall(ctx context.Context, r guard.ToolRequest) (*guard.ToolAnswer, error) {
	return late(l, func(g *guard.Guard) (*guard.ToolAnswer, error) { return g.AuthorizeToolCall(ctx, r) })
}

func (l lateGuard) RequestSpend(ctx context.Context, r guard.FinanceRequest) (*guard.FinanceAnswer, error) {
	return late(l, func(g *guard.Guard) (*guard.FinanceAnswer, error) { return g.RequestSpend(ctx, r) })
}

func (l lateGuard) Execute(ctx context.Context, r guard.FinanceRequest) (*guard.FinanceAnswer, error) {
	return late(l, func(g *guard.Guard) (*guard.FinanceAnswer, error) { return g.Execute(ctx, r) })
}

func (l lateGuard) Ledger(ctx context.Context, before int64, limit int, arguments bool) (*guard.LedgerPage, error) {
	return late(l, func(g *guard.Guard) (*guard.LedgerPage, error) { return g.Ledger(ctx, before, limit, arguments) })
}

func (l lateGuard) Refused(ctx context.Context, tool, actor, code, detail string) error {
	_, err := late(l, func(g *guard.Guard) (struct{}, error) {
		return struct{}{}, g.Refused(ctx, tool, actor, code, detail)
	})
	return err
}

// late asks the guard of a root that is opened late.
func late[T any](l lateGuard, ask func(*guard.Guard) (T, error)) (T, error) {
	g, err := l.guard()
	if err != nil {
		var none T
		return none, err
	}
	return ask(g)
}

// minting is the toolset operator: it confirms each grant on the controlling terminal,
// since stdin and stdout are the protocol's (approvals contract, section 9.2).
type minting struct {
	lateGuard
	name string // of the key, as the policy has it
	o    *guarded
	desk *app       // who writes on the terminal and asks there
	turn sync.Mutex // one question at a time is on the screen
}

// operatorSet is the toolset with which a person grants.
const operatorSet = "operator"

// operatorSide is the toolset operator of a server, nil where it is not offered. It
// needs a key of the policy, and a terminal.
func (a *app) operatorSide(o *serveOptions, l lateGuard) (mcp.Operator, func(), error) {
	nothing := func() {}
	if !slices.Contains(o.toolsets, operatorSet) {
		return nil, nothing, nil
	}
	if len(o.toolsets) > 1 {
		return nil, nothing, usage("--toolset operator stands alone, in a process that no agent talks to")
	}
	if o.start.fault != nil {
		return nil, nothing, o.start.fault
	}
	file, err := a.keyFile(o.operator)
	if err != nil {
		return nil, nothing, err
	}
	content, err := a.readKey(file)
	if err != nil {
		return nil, nothing, err
	}
	_, public, err := decision.KeyInfo(content)
	if err != nil {
		return nil, nothing, err
	}
	operators := o.start.policy.Operators
	i := slices.IndexFunc(operators, func(op decision.Operator) bool { return op.PublicKey == public })
	if i < 0 {
		return nil, nothing, errcode.New(errcode.OperatorKey, "the key of an operator of the policy", "offer the toolset operator with the key %s: it is none of the policy's operators", plain.Quote(file, plain.Detail))
	}
	desk := &app{stdout: a.stderr, stderr: a.stderr, env: a.env, width: a.width, someone: a.someone}
	if a.someone == nil {
		terminal, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if err != nil {
			return nil, nothing, errcode.Wrap(errcode.Bare(err), errcode.OperatorKey, "start it from a terminal of yours", "offer the toolset operator: each grant is confirmed on a terminal, and there is none")
		}
		desk.stdout, desk.stderr, desk.someone = terminal, terminal, tty{in: terminal, out: terminal}
		nothing = func() { _ = terminal.Close() } // nothing was written that could be lost
	}
	return &minting{lateGuard: l, name: operators[i].Name, o: &guarded{rootOptions: o.rootOptions, guardOptions: o.guardOptions}, desk: desk}, nothing, nil
}

// confirm shows a review on the terminal and takes the person's key there.
func (m *minting) confirm(act string) guard.Confirm {
	return func(ctx context.Context, v *guard.ReviewView) (decision.Signer, error) {
		m.turn.Lock()
		defer m.turn.Unlock()
		m.desk.out.Reset()
		m.desk.showReview(shownReview{ReviewView: v, o: m.o, id: v.ID, whole: true})
		if err := m.desk.write(ctx); err != nil {
			return nil, err
		}
		yes, err := m.desk.someone.yes(ctx, act+" as "+plain.Quote(m.name, plain.Detail)+"?")
		if err != nil {
			return nil, err
		}
		if !yes {
			return nil, errcode.New(errcode.OperatorKey, "", "the person said no")
		}
		return m.desk.signerOf(ctx, m.o.start.policy.Operators, m.o, nil)
	}
}

func (m *minting) Mint(ctx context.Context, r guard.ToolRequest, actor, word, note string) (*guard.ToolAnswer, error) {
	act := map[string]string{decision.Approved: "approve it", decision.Rejected: "reject it"}[word]
	return late(m.lateGuard, func(g *guard.Guard) (*guard.ToolAnswer, error) {
		return g.Mint(ctx, r, actor, m.name, word, note, m.confirm(act))
	})
}

func (m *minting) MintSpend(ctx context.Context, r guard.FinanceRequest, approver string) (*guard.FinanceAnswer, error) {
	return late(m.lateGuard, func(g *guard.Guard) (*guard.FinanceAnswer, error) {
		return g.MintSpend(ctx, r, approver, m.name, m.confirm("approve it"))
	})
}
