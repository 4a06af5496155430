package ingest

import (
	"slices"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/store"
)

func settlementAt(d *store.Detail, now int64) string {
	s := payment.Summary{Settlement: payment.SettlementWord(d.Settlement), PendingUntil: d.PendingUntil}
	return s.SettlementAt(now)
}

// complete fills in what an operation's facts say about money: s with its
// links, own without. What links are made from may not depend on links: a hash
// that left the table with the link it made could not make that link again.
func complete(op *store.Operation, s, own *payment.Summary) {
	op.Settlement = s.SettlementNumber()
	op.PendingUntil = s.PendingUntil
	op.Side = int(s.Side)
	op.Payee, op.Host, op.Resource, op.Asset, op.Amount = s.Payee, s.Host, s.Resource, s.Asset, s.Amount
	op.Blind = s.Blind
	op.Names = s.Names
	op.Payments, op.Answers, op.Candidates, op.Hashes = nil, nil, nil, nil
	for i := range s.Payments {
		p := &s.Payments[i]
		row := store.Payment{N: i, Payee: p.Payee, Host: p.Host, Resource: p.Resource, Asset: p.Asset,
			Amount: p.Amount, At: p.AtMS, HasAt: p.AtOK}
		if p.Settled != p.Amount {
			row.Settled = p.Settled
		}
		row.Flags = s.Flags(p)
		// A row for each name it counts with; most have one payee and one host. The pair
		// that this side paid on is the first.
		payees, hosts := ownFirst(p.Payees, p.Payee), ownFirst(p.Hosts, p.Host)
		rows := max(1, len(payees), len(hosts))
		if rows > 1 {
			row.Flags |= payment.FlagSeveral
		}
		for j := range rows {
			if j == 1 {
				row.Flags |= payment.FlagRepeat
			}
			if len(payees) > 0 {
				row.Payee = payees[min(j, len(payees)-1)]
			}
			if len(hosts) > 0 {
				row.Host = hosts[min(j, len(hosts)-1)]
			}
			row.Flags &^= payment.FlagNamed
			if p.Status == payment.SettledAlone || row.Payee != p.Payee || row.Host != p.Host || chosenByAnswer(p) {
				row.Flags |= payment.FlagNamed
			}
			op.Payments = append(op.Payments, row)
		}
	}
	for i := range own.Payments {
		if c, ok := own.Payments[i].Candidate(); ok && !own.Payments[i].Answered {
			op.Candidates = append(op.Candidates, store.Candidate{N: i, Until: c.Until()})
		}
	}
	for i := range own.Answers {
		op.Answers = append(op.Answers, store.Answer{N: i, AtKey: jsjson.SortKey(nil, own.Answers[i].Key.At)})
	}
	op.Hashes = hashesOf(own)
}

// ownFirst moves the name that this side paid on to the front.
func ownFirst(names []string, own string) []string {
	i := slices.Index(names, own)
	if i <= 0 {
		return names
	}
	return slices.Concat(names[i:i+1], names[:i], names[i+1:])
}

// chosenByAnswer tells whether the payee of a call that was only requested is an answer's
// choice among several that were offered.
func chosenByAnswer(p *payment.Payment) bool {
	return p.Status == payment.RequestedPayment && slices.ContainsFunc(p.Accepts, func(t payment.Terms) bool { return t.Payee != p.Payee })
}

// hashesOf are the transactions by which an operation may be linked across runs.
func hashesOf(own *payment.Summary) []string {
	if len(own.Answers) > 0 || slices.ContainsFunc(own.Payments, func(p payment.Payment) bool {
		_, ok := p.Candidate()
		return ok && !p.Paired
	}) {
		return own.Transactions
	}
	return nil
}
