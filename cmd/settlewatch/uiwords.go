package main

import (
	"github.com/settlewatch/settlewatch/cmd/settlewatch/ui"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/payment"
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
	amount, _ := paid(v)
	c := ui.Card{Amount: clean(amount), To: clean(p.to), Account: p.to}
	for _, h := range p.hosts {
		c.Hosts = append(c.Hosts, clean(h))
	}
	if v.Network != "" {
		c.Network = clean(network(v.Network))
	}
	var s sheet
	s.row("amount", amount, originOf(v, "amount"))
	s.row("to", p.to, originOf(v, "pay_to"))
	for _, h := range p.hosts {
		s.row("host", h, originOf(v, "counterparty"))
	}
	c.Rows = uiRows(v, append(s.rows, termRows(v)...), factRows(v))
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
	c.Rows = uiRows(v, callRows(call), nil)
	return c
}

// uiRows are the rows of a card: those before who asked, those behind, and what has
// used the review up. The rest of what became of it stands in the card's head.
func uiRows(v *guard.ReviewView, before, behind []sheetRow) (rows []ui.Row) {
	var s sheet
	s.rows = before
	s.row("asked by", askerOf(v), "")
	s.rows = append(s.rows, behind...)
	if v.Used != nil {
		s.row("used by", usedBy(v.Used), "")
	}
	for _, r := range s.rows {
		if r.value != "" {
			rows = append(rows, ui.Row{Label: r.label, Value: clean(r.value), Origin: r.origin})
		}
	}
	return rows
}

func uiReasons(v *guard.ReviewView) (all []ui.Reason) {
	for _, r := range v.Reasons {
		all = append(all, ui.Reason{Rule: clean(r.Rule), Detail: clean(r.Detail), Evidence: r.Evidence, More: max(r.Total, len(r.Evidence)) - len(r.Evidence)})
	}
	return all
}
