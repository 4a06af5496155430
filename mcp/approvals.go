package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// Approvals decides about tool calls and spending; *guard.Guard does. What it answers
// is in the log by then. An error permits nothing.
type Approvals interface {
	EvaluateSpend(ctx context.Context, r guard.SpendRequest) (*guard.SpendAnswer, error)
	EvaluateToolApproval(ctx context.Context, r guard.ToolRequest) (*guard.ToolAnswer, error)
	RequestAuthorization(ctx context.Context, r guard.ToolRequest) (*guard.ToolAnswer, error)
	AuthorizeToolCall(ctx context.Context, r guard.ToolRequest) (*guard.ToolAnswer, error)
	RequestSpend(ctx context.Context, r guard.FinanceRequest) (*guard.FinanceAnswer, error)
	Execute(ctx context.Context, r guard.FinanceRequest) (*guard.FinanceAnswer, error)
	Ledger(ctx context.Context, before int64, limit int, arguments bool) (*guard.LedgerPage, error)
	// Refused writes down that a tool refused a question that could not be read.
	Refused(ctx context.Context, tool, actor, code, detail string) error
}

// Operator lets the person at the terminal grant what an agent asks for. It is never
// offered to an agent: each grant is confirmed on the terminal, under a key.
type Operator interface {
	Mint(ctx context.Context, r guard.ToolRequest, actor, decision, note string) (*guard.ToolAnswer, error)
	MintSpend(ctx context.Context, r guard.FinanceRequest, approver string) (*guard.FinanceAnswer, error)
	Refused(ctx context.Context, tool, actor, code, detail string) error
}

const approvalsInstructions = `Tool calls that need approval: request_authorization with the call and the name of its policy; while it is pending, ask the person as handoff says and wait with get_review_status or ask again with review_id; once it gives a receipt, authorize_tool_call with exactly the same call and the receipt, and make the call only when that says AUTHORIZED. A receipt is good for one call. Nothing you send approves anything, and a policy you pass is only advice.`

const operatorInstructions = `For a person's own client, never for an agent: each grant is confirmed on the terminal with the passphrase of the person's key.`

// approvalTools are the tools of the toolset approvals. None of them grants what a
// person must grant (approvals contract, section 9.2).
func approvalTools(s *service) []tool {
	tools := []tool{
		{
			name: "evaluate_spend_gate", title: "Evaluate the spend gate", writes: true, idempotent: true,
			description: "Says what the spend gate of the policy makes of an amount today: LOCKED, HITL_REQUIRED (a person has to approve) or BLOCKED. It reserves and permits nothing. " +
				"With a policy of your own the answer is advice and counts nowhere.",
			run: s.evaluateSpendGate,
		},
		{
			name: "request_authorization", title: "Request an authorization", writes: true,
			description: "Asks for a receipt for one tool call: with call and the name of its policy, a person is asked, and pending with a review_id is the answer; ask again with review_id once the person has approved. " +
				"With tool and args, for the tools that spend, small amounts are authorized at once. No approver can be named: only people approve, with commands of their own.",
			run: s.requestAuthorization,
		},
		{
			name: "evaluate_tool_approval", title: "Evaluate a tool call", writes: true, idempotent: true,
			description: "Says whether a tool call could be approved under a policy: RECEIPT_REQUIRED, or DENIED and why. Being listed is no approval: it never says that a call may run.",
			run:         s.evaluateToolApproval,
		},
		{
			name: "authorize_tool_call", title: "Authorize a tool call", writes: true,
			description: "Uses up the receipt of one tool call and says AUTHORIZED, or DENIED and why. Call it right before the call itself, with exactly the call that was approved, and make the call only on AUTHORIZED: " +
				"a receipt is good for one call, and it is used up before the answer leaves.",
			run: s.authorizeToolCall,
		},
		{
			name: "inspect_audit_ledger", title: "Inspect the audit ledger", idempotent: true,
			description: "Lists what was refused, authorized and used, the newest last, and says whether the chain of the log holds and its end is pinned. Arguments are shown as hashes unless the server was started to show them.",
			run:         s.inspectAuditLedger,
		},
		{
			name: "chp_content_hash", title: "Hash a value", idempotent: true,
			description: "Gives the SHA-256 of a JSON value in canonical form. numbers names how numbers are written: lexeme keeps 100 and 100.0 apart. A hash is no receipt.",
			run:         s.contentHash,
		},
		{
			name: "chp_version", title: "Version of the protocol", idempotent: true,
			description: "Says which protocol and receipts this server speaks.",
			run:         s.chpVersion,
		},
	}
	if s.options.Demo {
		for _, t := range guard.FinanceTools {
			tools = append(tools, tool{
				name: t.Name, title: titles[t.Name], writes: true,
				description: "A synthetic tool that " + t.Description + "; nothing happens anywhere. It runs once on the receipt that request_authorization gave for exactly these arguments.",
				run:         func(ctx context.Context, a arguments) (answer, error) { return s.execute(ctx, t.Name, a) },
			})
		}
	}
	s.unread = s.refusedBy(s.options.Approvals.Refused)
	for i := range tools {
		tools[i].refused = s.unread
	}
	return tools
}

var titles = map[string]string{
	"place_equity_order": "Place a synthetic order", "wire_treasury_transfer": "Queue a synthetic transfer", "rebalance_portfolio": "Schedule a synthetic rebalancing",
}

// operatorTools are the tools of the toolset operator.
func operatorTools(s *service) []tool {
	tools := []tool{
		{
			name: "approve_spend", title: "Approve spending", writes: true,
			description: "Approves one call of a tool that spends, as the person whose key the server was started with: the call is shown on the terminal, and the passphrase is asked there. The gate is asked again; what it blocks nobody can approve.",
			run:         s.approveSpend,
		},
		{
			name: "issue_approval_receipt", title: "Issue an approval receipt", writes: true,
			description: "Decides about one tool call, as the person whose key the server was started with: the call is shown on the terminal, and the passphrase is asked there.",
			run:         s.issueApprovalReceipt,
		},
	}
	s.unread = s.refusedBy(s.options.Operator.Refused)
	for i := range tools {
		tools[i].refused = s.unread
	}
	return tools
}

// refusedBy has a refusal written down before it is told (approvals contract, section
// 8.4). What the log itself cannot take has no line, and its error says so.
func (s *service) refusedBy(write func(ctx context.Context, tool, actor, code, detail string) error) func(context.Context, string, *errcode.Error) error {
	return func(ctx context.Context, tool string, err *errcode.Error) error {
		code := guard.CodeInput
		switch err.Code {
		case errcode.LogWrite, errcode.LogUnsound:
			return nil
		case errcode.Input:
		default:
			code = string(err.Code)
		}
		return write(context.WithoutCancel(ctx), tool, actor(ctx), code, err.Message)
	}
}

// raw is a member as it was sent, nil when it is absent.
func (a arguments) raw(name string) json.RawMessage {
	n := a.root.Get(name)
	if n.Kind() == jsjson.Absent {
		return nil
	}
	return bytes.Clone(n.Raw())
}

// seconds is a number of seconds, nil when it is absent.
func (a arguments) seconds(name string) *float64 {
	n := a.root.Get(name)
	if n.Kind() != jsjson.Number {
		return nil
	}
	f := n.Float()
	return &f
}

// policy is the name of a policy, or one the caller brought.
func (a arguments) policy() (name string, brought json.RawMessage) {
	if n := a.root.Get("policy"); n.Kind() == jsjson.Object {
		return "", a.raw("policy")
	}
	return a.text("policy"), nil
}

// host is what the host that runs the model has set for a call (approvals contract,
// section 9.9). What the model writes is never asked.
func (s *service) host(ctx context.Context) approval.Host {
	h := approval.Host{}
	info := callOf(ctx)
	if s.options.TrustMeta && info != nil && len(info.meta) > 0 {
		var doc jsjson.Doc
		if doc.Parse(info.meta) == nil {
			h = approval.ReadHost(doc.Root())
		}
	}
	if who := actor(ctx); who != "" {
		// Who asks over a network is known by a token, and by nothing that was sent.
		h.Principal = append(jsjson.AppendString([]byte(`{"id":`), []byte(who)), '}')
	}
	return h.Under(s.options.Host)
}

func (s *service) toolRequest(ctx context.Context, a arguments) guard.ToolRequest {
	name, brought := a.policy()
	return guard.ToolRequest{
		Call: a.raw("call"), Policy: name, Brought: brought, Receipt: a.raw("receipt"), ReviewID: a.text("review_id"),
		TTLSeconds: a.seconds("ttl_seconds"), Host: s.host(ctx), Actor: actor(ctx), Approver: a.raw("approver") != nil,
	}
}

func (s *service) evaluateSpendGate(ctx context.Context, a arguments) (answer, error) {
	found, err := s.options.Approvals.EvaluateSpend(ctx, guard.SpendRequest{Action: a.raw("action"), Policy: a.raw("policy"), Committed: a.raw("committed_today"), Actor: actor(ctx)})
	if err != nil {
		return answer{}, err
	}
	return document(spendDocument(found))
}

func (s *service) requestAuthorization(ctx context.Context, a arguments) (answer, error) {
	call, tool := a.raw("call"), a.text("tool")
	switch {
	case call != nil && (tool != "" || a.raw("args") != nil):
		return answer{}, errcode.New(errcode.Input, "call and policy for a listed tool, or tool and args for one that spends", "both call and tool are given")
	case call != nil:
		if a.raw("policy") == nil {
			return answer{}, errcode.New(errcode.Input, "the name of a policy in toolPolicies", `"policy" is missing`)
		}
		found, err := s.options.Approvals.RequestAuthorization(ctx, s.toolRequest(ctx, a))
		if err != nil {
			return answer{}, err
		}
		return document(grantDocument(found))
	case tool == "" || a.raw("args") == nil:
		return answer{}, errcode.New(errcode.Input, "call and policy for a listed tool, or tool and args for one that spends", "neither a call nor a tool with args is given")
	}
	found, err := s.options.Approvals.RequestSpend(ctx, s.financeRequest(ctx, tool, a.raw("args"), a))
	if err != nil {
		return answer{}, err
	}
	return document(financeDocument(found))
}

func (s *service) financeRequest(ctx context.Context, tool string, args json.RawMessage, a arguments) guard.FinanceRequest {
	return guard.FinanceRequest{
		Tool: tool, Args: args, Scope: a.text("scope"), Policy: a.raw("policy"), Approver: a.raw("approver") != nil, Committed: a.raw("committed_today"),
		TTLSeconds: a.seconds("ttl_seconds"), ReviewID: a.text("review_id"), Actor: actor(ctx), Off: !s.options.Demo,
	}
}

func (s *service) evaluateToolApproval(ctx context.Context, a arguments) (answer, error) {
	found, err := s.options.Approvals.EvaluateToolApproval(ctx, s.toolRequest(ctx, a))
	if err != nil {
		return answer{}, err
	}
	return document(toolDocument(found))
}

func (s *service) authorizeToolCall(ctx context.Context, a arguments) (answer, error) {
	found, err := s.options.Approvals.AuthorizeToolCall(ctx, s.toolRequest(ctx, a))
	if err != nil {
		return answer{}, err
	}
	return document(toolDocument(found))
}

// execute runs a synthetic tool: its arguments are all but the receipt.
func (s *service) execute(ctx context.Context, name string, a arguments) (answer, error) {
	args := []byte{'{'}
	for key, v := range a.root.Members() {
		if string(key.Text()) == "receipt" {
			continue
		}
		if len(args) > 1 {
			args = append(args, ',')
		}
		args = append(append(append(args, key.Raw()...), ':'), v.Raw()...)
	}
	found, err := s.options.Approvals.Execute(ctx, guard.FinanceRequest{Tool: name, Args: append(args, '}'), Receipt: a.raw("receipt"), Actor: actor(ctx)})
	if err != nil {
		return answer{}, err
	}
	return document(financeDocument(found))
}

// ledgerDefault is how many entries a page has.
const ledgerDefault = 50

func (s *service) inspectAuditLedger(ctx context.Context, a arguments) (answer, error) {
	before := int64(0)
	if cursor := a.text("cursor"); cursor != "" {
		var err error
		if before, err = strconv.ParseInt(cursor, 10, 64); err != nil || before < 1 {
			return answer{}, errcode.New(errcode.Input, "ask again without a cursor", "the cursor is none of ours")
		}
	}
	limit := a.number("limit", ledgerDefault)
	for {
		page, err := s.options.Approvals.Ledger(ctx, before, limit, s.options.LedgerArgs)
		if err != nil {
			return answer{}, err
		}
		found, err := document(ledgerDocument(page, s.options.Demo))
		// A page may hold fewer entries than were asked for.
		if err != nil || found.fits() || limit == 1 {
			return found, err
		}
		limit = max(limit/2, 1)
	}
}

func (s *service) contentHash(_ context.Context, a arguments) (answer, error) {
	name := a.text("numbers")
	if name == "" {
		name = canon.Lexeme.String()
	}
	rule, ok := canon.ParseRule(name)
	if !ok {
		return answer{}, errcode.New(errcode.Input, "lexeme, float or jcs", "there is no rule %s for numbers", plain.Quote(name, shortText))
	}
	hash, err := canon.HashText(a.raw("value"), rule)
	if err != nil {
		return answer{}, errcode.New(errcode.Input, "a JSON value with well-formed text and numbers a double can hold", "hash the value: %s", plain.Clean(err.Error(), plain.Detail))
	}
	return document(map[string]any{"content_hash": hash, "numbers": rule.String()})
}

func (s *service) chpVersion(context.Context, arguments) (answer, error) {
	return document(map[string]any{
		"mcp": s.version, "chp_profile": approval.Profile, "chp_version": approval.Version, "engine": "settlewatch",
		"deny_reason_codes": []string{
			approval.FinancePolicyDeny, approval.FinanceExpired, approval.FinanceReplay, approval.FinanceArgsChanged, approval.FinanceMissingReceipt, approval.FinanceAmbiguousPolicy,
		},
		"receipt_schema": approval.ReceiptKind + "/" + approval.ReceiptV2, "receipt_schemas": []string{approval.ReceiptKind + "/" + approval.ReceiptV1, approval.ReceiptKind + "/" + approval.ReceiptV2},
		"receipt_key_env": "CHP_RECEIPT_KEY", "argument_numbers": approval.CanonName,
	})
}

func (s *service) approveSpend(ctx context.Context, a arguments) (answer, error) {
	r := s.financeRequest(ctx, a.text("tool"), a.raw("bound_args"), a)
	r.Approver, r.Off, r.Action = false, false, a.raw("action")
	found, err := s.options.Operator.MintSpend(ctx, r, a.text("approver"))
	if err != nil {
		return answer{}, err
	}
	return document(financeDocument(found))
}

func (s *service) issueApprovalReceipt(ctx context.Context, a arguments) (answer, error) {
	word := map[string]string{approval.Allow: "approved", approval.Deny: "rejected"}[a.text("decision")]
	found, err := s.options.Operator.Mint(ctx, s.toolRequest(ctx, a), a.text("actor"), word, a.text("reason"))
	if err != nil {
		return answer{}, err
	}
	return document(grantDocument(found))
}
