package ui

import (
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

type counterpartyPage struct {
	Typed string // as it is shown
	Of    string // which it is, exactly, for a form
	Forms []form // identity forms it counts by
	*ingest.PartyView
	Rate     string
	Pace     string
	Asset    string // of the chart
	Called   string
	Points   []point // oldest first
	Drifts   []drift
	Refused  []earlier
	Frozen   *decision.Frozen
	Denied   bool
	Allowed  bool
	Headroom *guard.Headroom // nil where it cannot be worked out
	More     int             // forms that are not shown
	Pairs    []ingest.Together
	Sampled  bool // there may be more pairs than were looked at
	Payments []ingest.Payment
	Filter   string
}

const (
	formsShown    = 40
	pairsShown    = 60
	paymentsShown = 50
	// pairsSampled is from how many rows on the index may have left some out: it reads
	// 200 of several kinds, and does not say at which it ended. There is a row for each
	// pair and each way its payments ended.
	pairsSampled = 100
)

// sampled tells whether there may be pairs that the index did not give.
func sampled(all []ingest.Together) bool {
	rows := 0
	for i := range all {
		for _, n := range []int64{all[i].Settled, all[i].Open, all[i].Failed, all[i].Ambiguous} {
			if n > 0 {
				rows++
			}
		}
	}
	return rows >= pairsSampled
}

func (p counterpartyPage) title() string { return "Counterparty " + p.Typed }

// form is a name a counterparty counts by, and where it comes from.
type form struct{ Name, Kind, From string }

// point is a payment on the chart.
type point struct {
	At    time.Time
	Units string
	State string
}

// drift compares the newest price of a resource with what was usual.
type drift struct {
	Resource, Newest, Usual, Times string
	Much                           bool
	Of                             int
}

func (q *request) counterparty() error {
	ctx := q.r.Context()
	typed := strings.TrimSpace(q.r.URL.Query().Get("name"))
	if len(typed) > 2048 {
		return errcode.New(errcode.Input, "", "the name is longer than any name")
	}
	names := payment.Names(typed)
	if len(names) == 0 {
		return errcode.New(errcode.Input, "an address, a host or a URL", "%s is no counterparty", plain.Quote(typed, plain.Detail))
	}
	p := q.g.Policy()
	all := p.Expand(names...)
	for _, n := range names {
		if !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	view, err := q.x.Party(ctx, orderly(names, all))
	if err != nil {
		return err
	}
	s, unsound := q.g.Log().Read(ctx)
	page := counterpartyPage{Typed: clean(payment.Display(typed)), Of: encode("name", payment.Display(typed)), PartyView: view, Filter: "/operations?" + encode("counterparty", payment.Display(typed))}
	page.forms(names, all, view)
	page.rate()
	page.chart(q, view)
	page.drift(q, view)
	page.Pairs, page.Sampled = view.Together[:min(len(view.Together), pairsShown)], sampled(view.Together)
	page.Payments = view.Newest[:min(len(view.Newest), paymentsShown)]
	if unsound == nil {
		if f, ok := s.Frozen(all); ok {
			page.Frozen = &f
		}
		looked := 0
		for r := range s.Reviews() {
			if looked++; looked > reviewsRead || len(page.Refused) == 10 {
				break
			}
			if !slices.ContainsFunc(r.Intent.Names, func(n string) bool { return slices.Contains(all, n) }) {
				continue
			}
			if typed := payment.Display(r.Counterparty); typed != "" && !slices.ContainsFunc(page.Forms, func(f form) bool { return f.Name == clean(typed) }) {
				page.Forms = append(page.Forms, form{clean(typed), "as it was typed", "a review"})
			}
			if d := r.Last(); d != nil && d.Decision == decision.Rejected {
				page.Refused = append(page.Refused, earlier{ID: r.ReviewID, Status: clean(d.Note), Amount: clean(r.Amount + " " + r.Asset), At: q.moment(d.At)})
			}
		}
	}
	page.Denied = slices.ContainsFunc(all, func(n string) bool { return slices.Contains(p.Denylist, n) })
	page.Allowed = slices.ContainsFunc(all, func(n string) bool { return slices.Contains(p.Allowlist, n) })
	if h, err := q.g.Headroom(ctx, guard.HeadroomQuery{Counterparty: payment.Display(typed), Asset: known(p, page.Asset)}); err == nil {
		page.Headroom = h
	}
	q.render(http.StatusOK, "counterparty", "", page)
	return nil
}

// known is an asset the policy has, "" for its default.
func known(p *guard.Policy, asset string) string {
	if _, ok := p.Assets[asset]; ok {
		return asset
	}
	return ""
}

// orderly puts what was typed before what it stands for besides.
func orderly(first, all []string) []string {
	out := slices.Clone(first)
	for _, n := range all {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

func (p *counterpartyPage) forms(names, all []string, view *ingest.PartyView) {
	add := func(name, from string) {
		shown := clean(payment.Display(name))
		if shown == "" || slices.ContainsFunc(p.Forms, func(f form) bool { return f.Name == shown }) {
			return
		}
		if len(p.Forms) == formsShown {
			p.More++
			return
		}
		kind := "host"
		if _, address := payment.Address(shown); address || payment.Payee(shown) == name {
			kind = "account"
		}
		p.Forms = append(p.Forms, form{shown, kind, from})
	}
	for _, n := range names {
		add(n, "as asked for here")
	}
	for _, n := range all {
		add(n, "an alias of the policy")
	}
	for _, t := range view.Together {
		add(t.Payee, "paid together with it")
		add(t.Host, "paid together with it")
	}
}

func (p *counterpartyPage) rate() {
	p.Rate, p.Pace = rateOf(p.Full, p.Operations), paceOf(p.Settled)
}

// rateOf is a share in whole percent, cut and not rounded: 100 is all of them.
func rateOf(full, of int64) string {
	if of == 0 {
		return "–"
	}
	return plain.Number(full*100/of) + " %"
}

// paceOf is the median.
func paceOf(sorted []time.Duration) string {
	if len(sorted) == 0 {
		return "–"
	}
	return took(sorted[len(sorted)/2])
}

// chart picks the asset with the most payments.
func (p *counterpartyPage) chart(q *request, view *ingest.PartyView) {
	count := map[string]int{}
	for i := range view.Newest {
		a := view.Newest[i].Asset
		if count[a]++; count[a] > count[p.Asset] || p.Asset == "" {
			p.Asset = a
		}
	}
	p.Called = q.called(p.Asset)
	for i := len(view.Newest) - 1; i >= 0; i-- {
		n := &view.Newest[i]
		if n.Asset != p.Asset || n.Amount == "" || n.At.IsZero() {
			continue
		}
		p.Points = append(p.Points, point{n.At, q.g.Policy().Units(n.Asset, n.Amount), stateOf(n)})
	}
}

func stateOf(n *ingest.Payment) string {
	switch {
	case n.Settled:
		return "settled"
	case n.Failed:
		return "failed"
	}
	return "open"
}

// drift compares, for each resource, the newest price with the median of the settled
// ones before it, at least three and at most twenty (guard contract, price_drift).
func (p *counterpartyPage) drift(q *request, view *ingest.PartyView) {
	type key struct{ resource, asset string }
	seen := map[key]bool{}
	for i := range view.Newest {
		n := &view.Newest[i]
		k := key{n.Resource, n.Asset}
		if n.Resource == "" || n.Amount == "" || seen[k] || len(p.Drifts) == 8 {
			continue
		}
		seen[k] = true
		var before []string
		for j := i + 1; j < len(view.Newest) && len(before) < 20; j++ {
			if o := &view.Newest[j]; o.Resource == n.Resource && o.Asset == n.Asset && o.Settled && o.Amount != "" {
				before = append(before, o.Amount)
			}
		}
		if len(before) < 3 {
			continue
		}
		slices.SortFunc(before, payment.Cmp)
		usual := before[len(before)/2]
		d := drift{Resource: clean(n.Resource), Newest: q.money(n.Asset, n.Amount).Text, Usual: q.money(n.Asset, usual).Text, Of: len(before)}
		var a, b big.Int
		a.SetString(n.Amount, 10)
		b.SetString(usual, 10)
		if b.Sign() > 0 {
			r := new(big.Rat).SetFrac(&a, &b)
			d.Times = r.FloatString(2) + " ×"
			d.Much = r.Cmp(big.NewRat(3, 2)) > 0
		}
		p.Drifts = append(p.Drifts, d)
	}
}
