package main

import (
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/ui"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// uiWords let the pages say what the commands say, in the same words.
func uiWords(again func(command string) string) ui.Words {
	return ui.Words{Review: uiCard, Warning: warningText, Network: network, Command: func(c string) string { return oneLine(again(c)) }}
}

// uiCard is a review as `review show` has it: every fact, and where it comes from.
func uiCard(v *guard.ReviewView) ui.Card {
	if v.Call != nil {
		return uiCallCard(v)
	}
	p := payeeOf(v)
	amount, key := paid(v)
	c := ui.Card{Amount: clean(amount), To: clean(p.to), Account: p.to}
	for _, h := range p.hosts {
		c.Hosts = append(c.Hosts, clean(h))
	}
	if v.Network != "" {
		c.Network = clean(network(v.Network))
	}
	origin := func(name string) string {
		if f, ok := fact(v, name); ok {
			return f.Origin
		}
		return "agent" // who asked has typed it, unless the log knows better
	}
	row := func(label, value, from string) {
		if value != "" {
			c.Rows = append(c.Rows, ui.Row{Label: label, Value: clean(value), Origin: from})
		}
	}
	row("amount", amount, origin("amount"))
	row("to", p.to, origin("pay_to"))
	for _, h := range p.hosts {
		row("host", h, origin("counterparty"))
	}
	if p.typed != "" {
		row("typed as", plain.Quote(p.typed, whole), "agent")
	}
	if v.Resource != "" {
		row("resource", typed(v.Resource), origin("resource"))
	}
	if v.Network != "" {
		row("network", network(v.Network), origin("network"))
	}
	if key != "" {
		row("asset", typed(key), origin("asset"))
	}
	row("counts as", strings.Join(p.other, ", "), "policy")
	if v.Template != "" {
		row("template", typed(v.Template), "agent")
	}
	row("asked by", askerOf(v), "")
	for _, f := range v.Facts {
		if !slices.Contains([]string{"amount", "asset", "counterparty", "host", "network", "pay_to", "resource", "template"}, f.Name) {
			row(factLabel(f.Name), typed(f.Value), f.Origin)
		}
	}
	if v.Used != nil {
		row("used by", usedBy(v.Used), "")
	}
	if c.Account == "" && len(p.hosts) > 0 {
		c.Account = p.hosts[0]
	} else if c.Account == "" {
		c.Account = payment.Display(v.Counterparty)
	}
	c.Evidence = uiReasons(v)
	return c
}

// uiCallCard is a review of a tool call as `review show` has it.
func uiCallCard(v *guard.ReviewView) ui.Card {
	call := v.Call
	tool, resource := typed(visible(call.Tool)), typed(visible(call.Resource))
	c := ui.Card{
		Amount: "one call of " + tool, To: resource, Evidence: uiReasons(v),
		Call: &ui.Call{Tool: tool, Resource: resource, Arguments: argumentLines(call.Arguments), Alike: beyondASCII(call.Tool + call.Resource + call.Arguments)},
	}
	row := func(label, value, from string) {
		c.Rows = append(c.Rows, ui.Row{Label: label, Value: clean(value), Origin: from})
	}
	row("call", tool, "agent")
	row("for", resource, "agent")
	row("risk", call.Risk, "policy")
	if call.Spend != nil {
		row("spends", typed(visible(call.Spend.Notional+" "+call.Spend.Asset))+" ("+typed(call.Spend.Action)+")", "agent")
	}
	row("policy", typed(call.Policy)+", version "+typed(call.PolicyVersion), "policy")
	if call.TTL > 0 {
		row("good for", (time.Duration(call.TTL)*time.Millisecond).String()+" from the approval on", "")
	}
	row("asked by", askerOf(v), "")
	if v.Used != nil {
		row("used by", usedBy(v.Used), "")
	}
	return c
}

func askerOf(v *guard.ReviewView) string {
	if v.AskedBy != "" {
		return plain.Quote(v.AskedBy, whole)
	}
	return "somebody on this machine (stdio or the command line)"
}

func uiReasons(v *guard.ReviewView) (all []ui.Reason) {
	for _, r := range v.Reasons {
		all = append(all, ui.Reason{Rule: clean(r.Rule), Detail: clean(r.Detail), Evidence: r.Evidence, More: max(r.Total, len(r.Evidence)) - len(r.Evidence)})
	}
	return all
}
