package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// checkGuard looks at what a verdict rests on besides the index: the policy, whose
// approvals count, and the decisions log.
func (a *app) checkGuard(ctx context.Context, d *findings, o *guarded, root string) {
	dir := o.guardAt(root)
	log, logged, err := a.readLog(ctx, dir, root, &o.guardOptions)
	if err != nil {
		d.fail("decisions", err)
		return
	}
	var operators []decision.Operator
	p, err := o.readPolicy(root, logged)
	if err != nil {
		d.fail("policy", err)
		if logged != nil {
			operators = logged.Operators
		}
	} else {
		a.policyFindings(d, o, root, p, logged)
		operators = p.policy.Operators
	}
	if err == nil || logged != nil {
		d.operators(operators)
	}
	if !log.GoesBy(operators) {
		if log, err = decision.Open(decision.Options{Dir: dir, Now: a.env.now, Operators: operators}); err != nil {
			d.fail("decisions", err)
			return
		}
	}
	decisions(ctx, d, o, log)
}

func (a *app) policyFindings(d *findings, o *guarded, root string, p *policyFile, logged *decision.Policy) {
	switch {
	case p.path == "":
		d.add("policy", notice, "settlewatch install HOST --write"+o.rootOptions.repeat()+" makes one and has the host name it",
			"there is no policy file, so the built-in defaults judge, and nothing limits what is spent in all")
	case leadsThrough(p.path, root):
		d.add("policy", warning, "move it out of the trace root", "the policy %s lies in the trace root, where agents write: whoever writes there chooses the limits", shown(p.path))
	default:
		d.add("policy", fine, "", "%s can be read and lies outside the trace root, hash %s", shown(p.path), firstOf(p.policy.Hash()))
	}
	if p.path != "" {
		if what, hint := linkedPolicy(p.path); what != "" {
			d.add("policy", warning, hint, "%s", what)
		}
		for _, file := range []string{p.path, filepath.Dir(p.path)} {
			if who := a.othersWrite(file); who != "" {
				d.add("policy", warning, "chmod go-w "+shellWord(file), "%s may write to %s, and so change the limits", who, shown(file))
			}
		}
	}
	if logged != nil && logged.Hash != p.policy.Hash() {
		d.add("policy", warning, "start the server again, so that it judges by this one",
			"the log was last written under another policy: hash %s, and this one has %s", firstOf(logged.Hash), firstOf(p.policy.Hash()))
	}
}

// operators says what an approval is worth (guard contract, section 4).
func (d *findings) operators(operators []decision.Operator) {
	if len(operators) == 0 {
		d.add("operators", notice, "settlewatch operator init, put the entry it prints into the policy file, and start the server again",
			"no operator's key is configured: whoever can run settlewatch here can approve, the agent among them")
		return
	}
	names := make([]string, len(operators))
	for i, op := range operators {
		names[i] = plain.Quote(op.Name, 60)
		if !op.Until.IsZero() {
			names[i] += " (until " + moment(op.Until) + ")"
		}
	}
	d.add("operators", fine, "", "what permits has to be signed by one of %s", few(names))
}

// decisions verifies the log and says what of it counts for nothing.
func decisions(ctx context.Context, d *findings, o *guarded, log *decision.Log) {
	again := func(command string) string { return "settlewatch " + command + o.rootOptions.repeat() }
	s, err := log.Read(ctx)
	var broken *decision.Unsound
	if errors.As(err, &broken) {
		where := ""
		if broken.Line > 0 {
			where = "line " + plain.Number(broken.Line) + ": "
		}
		verb := "recover"
		if broken.Foreign {
			verb = "adopt"
		}
		d.add("decisions", failure, again("audit verify")+" says more, "+again("audit "+verb)+" begins a new log behind it and carries on what blocks",
			"the log %s does not verify, so every check is a review: %s%s", shown(broken.Path), where, plain.Clean(broken.Reason, plain.Detail))
		return
	}
	if err != nil {
		d.fail("decisions", err)
		return
	}
	if s.Torn() > 0 {
		d.add("decisions", warning, "nothing: the next writer sets it aside as torn-*.bin",
			"the log ends in %s of a line, which a crash has left", plain.Plural(s.Torn(), "byte"))
	}
	if last, total := s.Ignored(); total > 0 {
		var some []string
		for _, i := range last {
			some = append(some, fmt.Sprintf("line %s (%s): %s", plain.Number(i.Seq), plain.Clean(i.Type, 60), plain.Clean(i.Why, plain.Detail)))
		}
		d.add("decisions", warning, again("audit export")+" shows them; if you did not write them, ask who did",
			"%s in the log that count for nothing: %s", plain.Plural(int64(total), "act"), fewOf(some, total))
	}
	if d.quiet("decisions") {
		if s.Lines() == 0 {
			d.add("decisions", fine, "", "nothing has been decided here yet")
			return
		}
		d.add("decisions", fine, "", "the log verifies, %s; that its end was not cut only a checkpoint shows: %s", plain.Plural(s.Lines(), "line"), again("audit checkpoint"))
	}
}
