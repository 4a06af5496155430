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
		// A row for each name it counts with; most have one payee and one host.
		rows := max(1, len(p.Payees), len(p.Hosts))
		if rows > 1 {
			row.Flags |= payment.FlagSeveral
		}
		for j := range rows {
			if j == 1 {
				row.Flags |= payment.FlagRepeat
			}
			if len(p.Payees) > 0 {
				row.Payee = p.Payees[min(j, len(p.Payees)-1)]
			}
			if len(p.Hosts) > 0 {
				row.Host = p.Hosts[min(j, len(p.Hosts)-1)]
			}
			row.Flags &^= payment.FlagNamed
			if p.Status == payment.SettledAlone || row.Payee != p.Payee || row.Host != p.Host {
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
