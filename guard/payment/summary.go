package payment

import (
	"cmp"
	"slices"
	"strings"

	"github.com/settlewatch/settlewatch/ingest/event"
)

// Summary is what the facts added so far say, together with what is known from
// outside the operation. It depends on the set of facts and on nothing else.
func (s *State) Summary(o Outside) Summary {
	var sum Summary
	s.SummaryInto(&sum, o)
	return sum
}

// SummaryInto is Summary that uses the memory of an earlier one, nothing of which
// may be kept.
func (s *State) SummaryInto(sum *Summary, o Outside) {
	s.sort()
	*sum = Summary{
		Settlement: WordNone,
		Payments:   sum.Payments[:0], Answers: sum.Answers[:0],
		Names: sum.Names[:0], Transactions: sum.Transactions[:0],
	}
	sum.collect(s.facts)
	switch sum.Side {
	case Client:
		c := client{facts: s.facts, sum: sum, payments: sum.Payments, answers: sum.Answers}
		c.run(o)
	case Server, Facilitator:
		sum.counterSide(s.facts)
	case Escrow:
		sum.escrow(s.facts)
	}
}

// collect finds the side, the names and the transactions.
func (s *Summary) collect(facts []Fact) {
	// Mostly there is one payee, one host and one transaction.
	s.Names = slices.Grow(s.Names, 2)
	for i := range facts {
		f := &facts[i]
		if s.Side == NoSide || f.side < s.Side {
			s.Side = f.side
		}
		s.Ambiguous = s.Ambiguous || f.ambiguous
		if f.out != nil && f.out.transaction != "" {
			s.Transactions = addName(s.Transactions, f.out.transaction)
		}
		if f.terms != nil {
			s.Names = addName(s.Names, f.terms.Payee)
		}
		if f.offers != nil {
			for _, t := range f.offers.list {
				s.Names = addName(s.Names, t.Payee)
			}
		}
		if f.res != nil {
			s.Names = addName(s.Names, f.res.host)
		}
		if f.named != nil {
			s.Names = append(append(s.Names, f.named.payees...), f.named.hosts...)
		}
	}
	s.Names = sorted(s.Names)
	s.Transactions = sorted(s.Transactions)
}

// chosen leaves out of the names the payees of offers that were not taken up, once
// it is plain for every payment whom it paid: who was never paid has no part in the
// operation.
func (c *client) chosen() {
	if c.own == 0 || c.sum.Ambiguous {
		return
	}
	names := c.sum.Names[:0:0]
	for i := range c.sum.Payments {
		p := &c.sum.Payments[i]
		if p.Status == RequestedPayment || p.Payee == "" {
			return
		}
		names = append(append(names, p.Payees...), p.Hosts...)
	}
	for i := range c.facts {
		f := &c.facts[i]
		if f.terms != nil {
			names = addName(names, f.terms.Payee)
		}
		if f.res != nil {
			names = addName(names, f.res.host)
		}
	}
	c.sum.Names = sorted(names)
}

// addName adds a name unless it came just before.
func addName(names []string, name string) []string {
	n := len(names)
	if name != "" && (n == 0 || names[n-1] != name) && (n < 2 || names[n-2] != name) {
		names = append(names, name)
	}
	return names
}

// client summarises an operation in which this side pays.
type client struct {
	facts    []Fact
	sum      *Summary
	payments []Payment
	answers  []Answer // own, in contract order
	own      int      // payments made here; settlements alone come after them
	few      [8]bool  // memory for flags
	used     int

	first          int       // no payment before this one is looked for
	lookedForThing bool      // thing and tool are what the operation names
	thing          *resource // first resource its events name
	tool           string    // first tool
	others         *Payment  // what otherTerms found
}

// flags is n flags, none set.
func (c *client) flags(n int) []bool {
	if c.used+n > len(c.few) {
		return make([]bool, n)
	}
	c.used += n
	return c.few[c.used-n : c.used]
}

func (c *client) run(o Outside) {
	c.possible()
	c.own = len(c.payments)
	c.collectAnswers()
	own := c.settle(c.answers, false)
	c.fail(c.answers, own, true)

	linked := slices.Clone(o.Linked)
	slices.SortFunc(linked, compareAnswers)
	// A linked answer that repeats a settlement seen here says nothing new.
	linked = slices.DeleteFunc(linked, func(l Answer) bool {
		return slices.ContainsFunc(c.answers, func(a Answer) bool { return a.settles() && l.settles() && sameSettlement(&a, &l) })
	})
	taken := c.settle(linked, true)
	c.fail(linked, taken, false)

	for i := range c.payments {
		c.namesOf(&c.payments[i])
	}
	c.alone(c.answers, own, o.LinkedAway)
	c.alone(linked, taken, nil)

	s := c.sum
	s.MoneyStage = c.own > 0
	s.Payments = c.payments
	s.Answers = c.answers
	if c.own > 0 {
		s.Answers = c.answers[:0]
	}
	if len(s.Payments) == 0 {
		s.Offers = c.offered()
	}
	c.chosen()
	c.word(linked)
	c.blind(linked, o)
	c.display()
}

// possible is every submitted as one possible payment, else every requested
// (guard contract, section 1, "Spent").
func (c *client) possible() {
	var signed, asked int
	for i := range c.facts {
		if f := &c.facts[i]; f.side == Client {
			switch f.kind {
			case Submitted:
				signed++
			case Requested:
				asked++
			}
		}
	}
	kind, status, n := Submitted, SubmittedPayment, signed
	if signed == 0 {
		kind, status, n = Requested, RequestedPayment, asked
	}
	c.payments = slices.Grow(c.payments, n)
	for i := range c.facts {
		f := &c.facts[i]
		if f.side != Client || f.kind != kind {
			continue
		}
		c.payments = append(c.payments, Payment{Status: status, Terms: unknownTerms.Terms, Version1: f.version1})
		p := &c.payments[len(c.payments)-1]
		p.from(f)
		switch {
		case status == RequestedPayment && f.offers != nil:
			p.offer(f.offers.list)
		case f.terms != nil:
			p.Terms = f.terms.Terms
		}
		c.borrowThing(p)
		if p.Payee == "" && len(p.Payees) == 0 {
			c.borrowTerms(p, status == SubmittedPayment && f.terms == nil)
		}
	}
}

// from takes what every fact has.
func (p *Payment) from(f *Fact) {
	p.Key = f.key
	p.AtMS, p.AtOK = event.Instant(f.key.At)
	p.Tool = f.tool
	if f.res != nil {
		p.Resource, p.Host = f.res.url, f.res.host
	}
}

// offer gives a payment the terms its offer leaves no doubt about: the payee,
// asset and network all entries agree on, and then the largest amount, if all
// can be read. The timeout is the shortest.
func (p *Payment) offer(list []*terms) {
	for i, t := range list {
		p.Accepts = append(p.Accepts, t.Terms)
		p.Payees = append(p.Payees, t.Payee)
		if i == 0 {
			p.Terms = t.Terms
			continue
		}
		agree := t.Payee == p.Payee && t.Asset == p.Asset
		switch {
		case !agree || t.Amount == "":
			p.Amount = ""
		case p.Amount != "":
			p.Amount = larger(p.Amount, t.Amount)
		}
		p.agree(&t.Terms)
		if p.Scheme != t.Scheme {
			p.Scheme = ""
		}
		p.TimeoutMS = min(p.TimeoutMS, t.TimeoutMS) // unknown is the least
	}
	if p.Payee == "" || p.Asset == "" {
		p.Amount = ""
	}
	p.Payees = sorted(p.Payees)
}

// agree keeps what other terms have too.
func (p *Payment) agree(t *Terms) {
	if p.Payee != t.Payee {
		p.Payee = ""
	}
	if p.Asset != t.Asset {
		p.Asset = ""
	}
	if p.Network != t.Network {
		p.Network, p.NetworkKnown = "", false
	}
}

// borrowThing takes the resource and the tool from the rest of the operation
// where the payment's own event does not name them: the first that are named.
func (c *client) borrowThing(p *Payment) {
	if p.Tool != "" && (p.Resource != "" || p.Host != "") {
		return
	}
	if !c.lookedForThing {
		c.lookedForThing = true
		for i := range c.facts {
			f := &c.facts[i]
			if f.side != Client {
				continue
			}
			if c.thing == nil {
				c.thing = f.res
			}
			if c.tool == "" {
				c.tool = f.tool
			}
		}
	}
	if p.Resource == "" && p.Host == "" && c.thing != nil {
		p.Resource, p.Host = c.thing.url, c.thing.host
	}
	if p.Tool == "" {
		p.Tool = c.tool
	}
}

// borrowTerms is for version 1, whose submitted names nobody: payee, asset and
// network come from creating, else from the offer, where those leave no doubt
// (trace contract, section 9). An amount is never borrowed. Where payees differ,
// the payment counts with all of them.
func (c *client) borrowTerms(p *Payment, all bool) {
	if c.others == nil {
		c.others = c.otherTerms()
	}
	b := c.others
	if len(b.Payees) == 0 {
		return
	}
	p.Payee, p.Payees = b.Payee, slices.Clone(b.Payees)
	if all {
		p.Network, p.NetworkKnown, p.Asset = b.Network, b.NetworkKnown, b.Asset
		p.TimeoutMS = b.TimeoutMS
	}
}

// otherTerms is what creating, else the offer, says of the terms.
func (c *client) otherTerms() *Payment {
	var from []*terms
	for i := range c.facts {
		if f := &c.facts[i]; f.side == Client && f.kind == Creating && f.terms != nil {
			from = append(from, f.terms)
		}
	}
	if len(from) == 0 {
		for i := range c.facts {
			if f := &c.facts[i]; f.side == Client && f.offers != nil {
				from = append(from, f.offers.list...)
			}
		}
	}
	b := &Payment{}
	for i, t := range from {
		b.Payees = append(b.Payees, t.Payee)
		if i == 0 {
			b.Terms = t.Terms
			continue
		}
		b.agree(&t.Terms)
		b.TimeoutMS = min(b.TimeoutMS, t.TimeoutMS)
	}
	b.Payees = sorted(b.Payees)
	return b
}

// collectAnswers lists the answers of this side's operation in contract order.
func (c *client) collectAnswers() {
	for i := range c.facts {
		if f := &c.facts[i]; f.isAnswer() {
			c.answers = append(c.answers, Answer{})
			f.answer(&c.answers[len(c.answers)-1])
		}
	}
}

func (f *Fact) isAnswer() bool {
	if f.side != Client {
		return false
	}
	switch f.kind {
	case Responded, SettleFailed, VerifyFailed, PaymentFailed:
		return true
	}
	return false
}

func (f *Fact) answer(a *Answer) {
	*a = Answer{Key: f.key, Terms: unknownTerms.Terms, Tool: f.tool, Ambiguous: f.ambiguous}
	a.AtMS, a.AtOK = event.Instant(f.key.At)
	if f.terms != nil {
		a.Terms = f.terms.Terms
	}
	if f.res != nil {
		a.Resource, a.Host = f.res.url, f.res.host
	}
	o := f.out
	a.Transaction = o.transaction
	a.SettledAsset = a.Asset
	if o.network != "" && o.network != a.Network {
		// The answer speaks of another network than its requirements: it
		// settles nothing that was asked for there.
		if _, address, ok := strings.Cut(a.Asset, "/"); ok {
			a.SettledAsset = o.network + "/" + address
		}
	}
	a.Settled = a.Amount
	if o.unreadable {
		a.Settled = ""
	} else if o.settled != "" {
		a.Settled = o.settled
	}
	switch {
	case f.kind == Responded && o.success && !f.ambiguous:
		a.Success = true
	case f.kind == Responded && f.ambiguous, o.success:
		// Repeated keys, or an event that contradicts itself. Money may have
		// moved, so it counts; it proves nothing, so it does not close.
		a.Doubtful = true
	}
	a.Unproven = f.kind == Responded && !a.Success
	a.Decline = o.reason == decline && (f.kind == SettleFailed || f.kind == VerifyFailed) && !a.Doubtful && !f.ambiguous
}

// settles reports whether the answer is, or may be, a settlement.
func (a *Answer) settles() bool { return a.Success || a.Doubtful }

// spent is what an unpaired settlement counts with: in full, so the larger of
// what was authorised and what was taken.
func (a *Answer) spent() string { return larger(a.Amount, a.Settled) }

// sameSettlement: settlements are distinct by transaction, else by event (guard
// contract, section 1, "Spent"). Only of one asset can they be the same.
func sameSettlement(a, b *Answer) bool {
	return a.Transaction != "" && a.Transaction == b.Transaction && a.SettledAsset == b.SettledAsset
}

// settlementID is what sameSettlement compares.
type settlementID struct{ transaction, asset string }

func settlementOf(a *Answer) settlementID { return settlementID{a.Transaction, a.SettledAsset} }

func compareAnswers(a, b Answer) int {
	return cmp.Or(
		a.Key.Compare(b.Key),
		strings.Compare(a.Payee, b.Payee), strings.Compare(a.Network, b.Network),
		strings.Compare(a.Asset, b.Asset), strings.Compare(a.Scheme, b.Scheme),
		strings.Compare(a.Amount, b.Amount), cmp.Compare(a.TimeoutMS, b.TimeoutMS),
		compareBool(a.NetworkKnown, b.NetworkKnown),
		strings.Compare(a.Resource, b.Resource), strings.Compare(a.Tool, b.Tool),
		strings.Compare(a.Settled, b.Settled), strings.Compare(a.Transaction, b.Transaction),
		compareBool(a.Success, b.Success), compareBool(a.Doubtful, b.Doubtful),
		compareBool(a.Unproven, b.Unproven), compareBool(a.Decline, b.Decline),
		compareBool(a.Ambiguous, b.Ambiguous), strings.Compare(a.SettledAsset, b.SettledAsset))
}

// settle pairs each successful settlement with the earliest unpaired payment of
// the same asset and network whose amount is not below it. A linked answer has
// found its payment already, so its amount may be any. The result tells of each
// answer whether a payment is paired with it, or with another report of the same
// settlement.
func (c *client) settle(answers []Answer, linked bool) []bool {
	if len(answers) == 0 {
		return nil
	}
	done := c.flags(len(answers))
	var reports map[settlementID][]int
	for i := range answers {
		if a := &answers[i]; a.Transaction != "" && a.settles() && len(answers) > 1 {
			if reports == nil {
				reports = map[settlementID][]int{}
			}
			reports[settlementOf(a)] = append(reports[settlementOf(a)], i)
		}
	}
	c.first = 0
	for i := range answers {
		a := &answers[i]
		if !a.settles() || done[i] {
			continue
		}
		// Reports of one settlement are one: the largest amount counts, and
		// one that can be believed is believed.
		for _, j := range reports[settlementOf(a)] {
			b := &answers[j]
			if j <= i || done[j] || !b.settles() || !sameSettlement(a, b) {
				continue
			}
			done[j] = true
			a.Settled = larger(a.Settled, b.Settled)
			a.Amount = larger(a.Amount, b.Amount)
			if b.Success {
				a.Success, a.Doubtful = true, false
			}
		}
		p := c.pair(a, linked)
		if done[i] = p != nil; !done[i] {
			continue
		}
		p.alsoNamed(a)
		for _, j := range reports[settlementOf(a)] {
			p.alsoNamed(&answers[j])
		}
	}
	return done
}

// pair pairs a settlement with its payment and gives that, nil where there is none.
func (c *client) pair(a *Answer, linked bool) *Payment {
	for c.first < c.own && c.payments[c.first].Paired {
		c.first++ // nothing looks for a paired payment again
	}
	if p := c.find(func(p *Payment) bool {
		return !p.Paired && p.covers(a)
	}); p != nil {
		p.pair(a, linked)
		return p
	}
	if linked {
		if p := c.find(func(p *Payment) bool {
			return !p.Paired && p.payable(a.Payee, a.Asset)
		}); p != nil {
			p.pair(a, linked)
			return p
		}
	}
	return nil
}

// find is the earliest payment made here that fits.
func (c *client) find(fits func(*Payment) bool) *Payment {
	for i := c.first; i < c.own; i++ {
		if p := &c.payments[i]; fits(p) {
			return p
		}
	}
	return nil
}

// covers reports whether a settlement can be this payment's: same asset and
// network, and an amount that is not below it.
func (p *Payment) covers(a *Answer) bool {
	if a.SettledAsset == "" || a.Settled == "" {
		return false
	}
	return p.terms(func(t *Terms) bool {
		return t.Asset == a.SettledAsset && t.Amount != "" && Cmp(t.Amount, a.Settled) >= 0
	})
}

// payable reports whether the payment may have paid that payee in that asset.
func (p *Payment) payable(payee, asset string) bool {
	return payee != "" && asset != "" && p.terms(func(t *Terms) bool {
		return t.Payee == payee && t.Asset == asset
	})
}

// terms reports whether any of the terms the payment may have been made on is as
// asked.
func (p *Payment) terms(is func(*Terms) bool) bool {
	if len(p.Accepts) == 0 {
		return is(&p.Terms)
	}
	for i := range p.Accepts {
		if is(&p.Accepts[i]) {
			return true
		}
	}
	return false
}

// pair closes a payment with a settlement. It counts the larger of both amounts.
func (p *Payment) pair(a *Answer, linked bool) {
	p.resolve(a)
	p.Paired = true
	p.Answered = p.Answered || !linked
	p.answeredBy = settled
	if !a.Success {
		p.answeredBy = doubted
	}
	p.Settled, p.Transaction = a.Settled, a.Transaction
	if a.Settled != "" {
		p.Amount = larger(p.Amount, a.Settled)
	}
	if p.Scheme != a.Scheme {
		// Two schemes: none of them can vouch for a smaller amount.
		p.Scheme = ""
	}
}

// alsoNamed lets the payment count with whom its settlement names as well. A
// settlement is paired by asset, network and amount alone, so that it may name
// another payee or host, and both then have a part in the money (guard contract,
// section 1, "Names" and "Spent").
func (p *Payment) alsoNamed(a *Answer) {
	p.Payees = alsoName(p.Payees, p.Payee, a.Payee)
	p.Hosts = alsoName(p.Hosts, p.Host, a.Host)
}

// alsoName adds a name to those a payment counts with, which are its own one where
// they have not been listed.
func alsoName(names []string, own, name string) []string {
	if name == "" || name == own || slices.Contains(names, name) {
		return names
	}
	if len(names) == 0 && own != "" {
		names = []string{own}
	}
	return sorted(append(slices.Clip(names), name))
}

// resolve gives a requested payment the terms its answer names, when its offer
// has them: an MCP answer supplies the call's amount (guard contract, section 1,
// "Spent"). Where it has only the asset, the largest amount of that counts.
func (p *Payment) resolve(a *Answer) {
	if p.Status != RequestedPayment {
		return
	}
	best := Terms{}
	for _, t := range p.Accepts {
		if a.Payee != "" && a.Amount != "" && t.Payee == a.Payee && t.Asset == a.Asset && t.Amount == a.Amount {
			best = t
			break
		}
		if a.SettledAsset != "" && t.Asset == a.SettledAsset && t.Amount != "" && (best.Amount == "" || Cmp(best.Amount, t.Amount) < 0) {
			best = t
		}
	}
	if best.Amount == "" {
		return
	}
	p.Terms = best
	if best.Payee != "" {
		p.Payees = []string{best.Payee}
	}
}

// fail gives every answer that paired with nothing the payment it is about: the
// earliest unanswered one of its terms, else the earliest unanswered one. done
// tells which answers have theirs already.
func (c *client) fail(answers []Answer, done []bool, own bool) {
	c.first = 0
	for i := range answers {
		a := &answers[i]
		if done[i] {
			continue
		}
		open := func(p *Payment) bool { return !p.Paired && p.answeredBy == unanswered }
		for c.first < c.own && !open(&c.payments[c.first]) {
			c.first++ // what is answered stays so
		}
		p := c.find(func(p *Payment) bool { return open(p) && p.named(a) })
		if p == nil {
			p = c.find(open)
		}
		if p == nil {
			continue
		}
		if p.named(a) {
			p.resolve(a)
		}
		p.Answered = p.Answered || own
		p.answeredBy = failed
		if a.Decline {
			p.answeredBy = declined
		}
	}
}

// named reports whether the payment was made on the answer's own terms.
func (p *Payment) named(a *Answer) bool {
	return a.Payee != "" && a.Asset != "" && a.Amount != "" && p.terms(func(t *Terms) bool {
		return t.Payee == a.Payee && t.Asset == a.Asset && t.Amount == a.Amount
	})
}

// alone adds the settlements that paired with nothing as payments of their own,
// once each, but for those that count in another operation. Each key of those
// stands for one answer, whatever else has that key.
func (c *client) alone(answers []Answer, done []bool, away []event.Key) {
	away = slices.Clone(away)
	for i := range answers {
		a := &answers[i]
		if !a.settles() || done[i] {
			continue
		}
		if j := slices.IndexFunc(away, func(k event.Key) bool { return k.Compare(a.Key) == 0 }); j >= 0 {
			away = slices.Delete(away, j, j+1)
			continue
		}
		p := Payment{
			Status: SettledAlone, Key: a.Key, AtMS: a.AtMS, AtOK: a.AtOK, Terms: a.Terms,
			Host: a.Host, Resource: a.Resource, Tool: a.Tool,
			Settled: a.Settled, Transaction: a.Transaction, Paired: true, Answered: true,
			answeredBy: settled,
		}
		p.Amount = a.spent()
		if a.SettledAsset != a.Asset {
			p.Asset = a.SettledAsset
			p.Network, _, _ = strings.Cut(a.SettledAsset, "/")
			_, p.NetworkKnown = Network(p.Network)
		}
		if !a.Success {
			p.answeredBy = doubted
		}
		c.namesOf(&p)
		c.payments = append(c.payments, p)
	}
}

// namesOf completes the names a payment counts with. An ambiguous operation's
// payments count with every name in any copy.
func (c *client) namesOf(p *Payment) {
	if len(p.Payees) == 0 {
		p.Payees = c.sum.only(p.Payee)
	}
	if len(p.Hosts) == 0 {
		p.Hosts = c.sum.only(p.Host)
	}
	if !c.sum.Ambiguous {
		return
	}
	p.Ambiguous = true
	for i := range c.facts {
		if n := c.facts[i].named; n != nil {
			p.Payees = append(p.Payees, n.payees...)
			p.Hosts = append(p.Hosts, n.hosts...)
		}
	}
	p.Payees, p.Hosts = sorted(p.Payees), sorted(p.Hosts)
}

// only is the list of one name, which is one of the operation's.
func (s *Summary) only(name string) []string {
	if name == "" {
		return nil
	}
	if i, ok := slices.BinarySearch(s.Names, name); ok {
		return s.Names[i : i+1 : i+1]
	}
	return []string{name}
}

// offered is what an operation without a payment knows of one: chosen terms, else
// the offer's, one for each payee, holding what is certain about it.
func (c *client) offered() []Payment {
	var list []Payment
	add := func(f *Fact, t *terms, status Status) {
		for i := range list {
			if p := &list[i]; p.Payee == t.Payee {
				if p.Asset != t.Asset || p.Amount != t.Amount {
					p.Amount = ""
				}
				p.agree(&t.Terms)
				if p.Scheme != t.Scheme {
					p.Scheme = ""
				}
				return
			}
		}
		p := Payment{Status: status, Terms: t.Terms}
		p.from(f)
		c.borrowThing(&p)
		c.namesOf(&p)
		list = append(list, p)
	}
	for i := range c.facts {
		if f := &c.facts[i]; f.side == Client && f.terms != nil {
			add(f, f.terms, Named)
		}
	}
	if len(list) > 0 {
		return list
	}
	for i := range c.facts {
		if f := &c.facts[i]; f.side == Client && f.kind == Offer && f.offers != nil {
			for _, t := range f.offers.list {
				add(f, t, Offered)
			}
		}
	}
	return list
}

// word decides the settlement state and whether the operation is open.
func (c *client) word(linked []Answer) {
	s := c.sum
	var success, doubtful, unproven, failure, unclear, transactions bool
	weigh := func(list []Answer) {
		for i := range list {
			a := &list[i]
			success = success || a.Success
			doubtful = doubtful || a.Doubtful
			unproven = unproven || a.Unproven
			failure = failure || !a.settles()
			unclear = unclear || !a.settles() && !a.Decline
			transactions = transactions || a.Transaction != ""
		}
	}
	weigh(c.answers)
	weigh(linked)

	// unsettled counts payments made here without a settlement that can be
	// believed; unexplained those whose failure is not definite either.
	unsettled, unexplained := 0, 0
	for i := range s.Payments[:c.own] {
		switch s.Payments[i].answeredBy {
		case settled:
		case declined:
			unsettled++
		default:
			unsettled++
			unexplained++
		}
	}

	if !s.MoneyStage {
		switch {
		case success:
			s.Settlement = WordSettled
		case doubtful:
			s.Settlement = WordUnknown
		}
		return
	}
	// A responded that reports no settlement confirms the receipt's stage and
	// leaves its payment, and so the operation, open.
	s.Open = !success || unproven && unsettled > 0

	elsewhere := false // the other side of the same operation settled it
	for i := range c.facts {
		elsewhere = elsewhere || c.facts[i].kind == SettleOK
	}
	s.DefiniteFailure = len(s.Payments) == 1 && failure && !unclear && !success && !doubtful &&
		!transactions && len(s.Transactions) == 0 && !elsewhere && !s.Ambiguous

	switch {
	case success && !s.Open && unexplained == 0 && len(s.Payments) == c.own:
		// Every payment made here is accounted for, and nothing else was taken.
		s.Settlement = WordSettled
	case success:
		s.Settlement = WordUnknown
	case s.DefiniteFailure:
		s.Settlement = WordFailed
	case failure || doubtful:
		s.Settlement = WordUnknown
	default:
		s.Settlement = WordOpen
		s.PendingUntil = pendingUntil(s.Payments)
	}
}

// pendingUntil is when the first of the payments is as old as its timeout, 0 when
// the age or the timeout of one is not known.
func pendingUntil(payments []Payment) int64 {
	var until int64
	for i := range payments {
		p := &payments[i]
		if !p.AtOK || p.TimeoutMS < 0 {
			return 0
		}
		if t := p.AtMS + p.TimeoutMS; i == 0 || t < until {
			until = t
		}
	}
	return until
}

// blind marks an operation that was paid and cannot have seen an answer (trace
// contract, section 12.9).
func (c *client) blind(linked []Answer, o Outside) {
	s := c.sum
	if !s.MoneyStage || len(c.answers) > 0 || len(linked) > 0 {
		return
	}
	solana := false
	for i := range s.Payments {
		p := &s.Payments[i]
		if p.Version1 {
			s.Blind = BlindVersion1
			return
		}
		solana = solana || p.terms(func(t *Terms) bool { return strings.HasPrefix(t.Network, "solana:") })
	}
	switch {
	case solana:
		s.Blind = BlindSolana
	case o.NoResponseHook:
		s.Blind = BlindNoResponseHook
	}
}

func (c *client) display() {
	s := c.sum
	switch {
	case len(s.Payments) > 0:
		s.show(&s.Payments[0])
		s.Amount = total(s.Payments, s.Payee, s.Asset)
	case len(s.Offers) == 1:
		s.show(&s.Offers[0])
	case len(s.Offers) > 1:
		// Several payees: only what they share is certain.
		s.Resource, s.Host, s.Tool = s.Offers[0].Resource, s.Offers[0].Host, s.Offers[0].Tool
	default:
		p := Payment{}
		c.borrowThing(&p)
		s.show(&p)
	}
	if s.Ambiguous || s.Asset == "" {
		s.Amount = ""
	}
}

func (s *Summary) show(p *Payment) {
	s.Payee, s.Host, s.Resource, s.Tool = p.Payee, p.Host, p.Resource, p.Tool
	s.Asset, s.Amount = p.Asset, p.Amount
}

// total is the sum over the payments to one payee in one asset, empty when one
// of them cannot be read.
func total(payments []Payment, payee, asset string) string {
	sum := "0"
	for i := range payments {
		p := &payments[i]
		if p.Payee != payee || p.Asset != asset {
			continue
		}
		var err error
		if sum, err = Add(sum, p.Amount); err != nil {
			return ""
		}
	}
	return sum
}

// counterSide summarises what a seller or go-between saw. It is no spending of
// ours, so there are no payments (guard contract, section 1).
func (s *Summary) counterSide(facts []Fact) {
	var success, failure, unclear bool
	var verified, named *Fact
	for i := range facts {
		f := &facts[i]
		if f.side != s.Side {
			continue
		}
		switch f.kind {
		case VerifyOK:
			s.MoneyStage = true
			if verified == nil {
				verified = f
			}
		case SettleOK:
			if f.out.refused || f.ambiguous {
				failure, unclear = true, true
			} else {
				success = true
			}
		case SettleFailed, VerifyFailed:
			failure = true
			unclear = unclear || f.out.reason != decline || f.ambiguous
		case Canceled:
			failure, unclear = true, true
		}
		if named == nil && f.terms != nil {
			named = f
		}
		if s.Resource == "" && f.res != nil {
			s.Resource, s.Host = f.res.url, f.res.host
		}
	}
	if named != nil {
		s.Payee, s.Asset, s.Amount = named.terms.Payee, named.terms.Asset, named.terms.Amount
	}
	until := int64(0)
	if verified != nil && verified.terms != nil && verified.terms.TimeoutMS >= 0 {
		if at, ok := event.Instant(verified.key.At); ok {
			until = at + verified.terms.TimeoutMS
		}
	}
	if s.Ambiguous || s.Asset == "" {
		s.Amount = ""
	}
	s.Open = s.MoneyStage && !success
	s.DefiniteFailure = s.MoneyStage && !success && failure && !unclear && len(s.Transactions) == 0
	switch {
	case success:
		s.Settlement = WordSettled
	case !s.MoneyStage:
	case s.DefiniteFailure:
		s.Settlement = WordFailed
	case failure:
		s.Settlement = WordUnknown
	default:
		s.Settlement, s.PendingUntil = WordOpen, until
	}
}

// escrow summarises a deal. Its chain facts carry no amount in atomic units.
func (s *Summary) escrow(facts []Fact) {
	success := false
	for i := range facts {
		f := &facts[i]
		s.MoneyStage = s.MoneyStage || f.kind == Deposit
		success = success || f.kind == Disposition
		if s.Payee == "" && f.named != nil {
			s.Payee = f.named.payees[0]
		}
	}
	s.Open = s.MoneyStage && !success
	switch {
	case success:
		s.Settlement = WordSettled
	case s.MoneyStage:
		s.Settlement = WordUnknown // money is locked; a deal has no time limit of its own
	}
}
