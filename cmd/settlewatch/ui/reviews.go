package ui

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

const (
	cardsShown = 8
	// evidenceShown bounds the evidence of a rule where a card is one of many.
	evidenceShown = 3
	// reviewsRead bounds how many reviews a filter looks at: a page answers a question
	// and does not read the past.
	reviewsRead = 400
	mostBatch   = 50
	// shortestID is the least of an operation's id that is looked for.
	shortestID = 8
)

var states = []string{"pending", "approved", "rejected", "expired", "used", "revoked"}

// card is a review on a page.
type card struct {
	Card
	View     *guard.ReviewView
	Shown    string // stands for what is shown, and is checked when it is decided
	Limits   []limitShown
	Opened   string // sig of the line that is signed for
	LogName  string // sig of the log's first line
	Earlier  []earlier
	Waiting  bool
	Operator string // whose key signs
	Unsigned bool
	Token    string
	Path     string
	Alone    bool // it has the page to itself

	Mute      bool   // what needs a signature cannot be done here
	Unreceipt bool   // a tool call runs on a signed receipt, and nobody could sign one
	Note      string // typed before, with a form that came back
	FreezeToo bool   // ticked before
}

// Approvable tells whether an approval given here would count.
func (c card) Approvable() bool { return !c.Mute && !c.Unreceipt }

// limitShown is what a rule had counted when the review was opened: an approval
// waives it up to that.
type limitShown struct{ Rule, What string }

// earlier is another review of the same counterparty.
type earlier struct {
	ID, Status, Amount string
	At                 moment
}

// errStale says that what a form was made from is not what there is any more.
var errStale = errors.New("it is not what the page showed")

// errUnconfirmed says that nobody has typed the login's code on the terminal.
var errUnconfirmed = errors.New("the login was not confirmed on the terminal")

// shownOf stands for everything a card shows that a decision rests on: the line that
// opened the review, which the signature covers, and what was decided since.
func shownOf(r *decision.ReviewState, status string) string {
	h := sha256.New()
	_, _ = h.Write([]byte(r.ReviewID + "\n" + r.OpenedSig + "\n" + status + "\n"))
	for i := range r.Decisions {
		_, _ = h.Write([]byte(strconv.FormatInt(r.Decisions[i].Seq, 10) + "\n"))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func (q *request) card(s *decision.State, v *guard.ReviewView, alone bool) card {
	c := card{Card: q.o.Words.Review(v), View: v, Waiting: v.Status == decision.StatusPending, Token: q.s.token, Path: link(q.r, "did", ""), Alone: alone}
	if !alone {
		for i := range c.Evidence {
			if e := &c.Evidence[i]; len(e.Evidence) > evidenceShown {
				e.More += len(e.Evidence) - evidenceShown
				e.Evidence = e.Evidence[:evidenceShown]
			}
		}
	}
	if q.o.Signer != nil {
		c.Operator = clean(q.o.Signer.Name())
	}
	c.Unsigned = slices.Contains(v.Warnings, "unsigned_reviews")
	c.Mute, c.Unreceipt = q.mute(), v.Call != nil && q.o.Signer == nil && !q.mute()
	if b := q.returned; b != nil && b.form.Get("id") == v.ID && (c.Waiting || v.Status == decision.StatusApproved || v.Status == decision.StatusRejected && !c.Mute) {
		c.Note, c.FreezeToo = b.value("/decide", "note"), b.value("/decide", "freeze") != ""
	}
	r := s.Review(v.ID)
	if r == nil {
		return c
	}
	c.Shown, c.Opened, c.LogName = shownOf(r, v.Status), r.OpenedSig, s.First()
	p := q.g.Policy()
	for _, l := range r.Opened.Shown {
		what := plain.Number(int64(l.Count)) + " counted"
		if orZero(l.Spent) != "0" || orZero(l.Held) != "0" {
			what += ", " + p.Display(r.Intent.Asset, orZero(l.Spent)) + " spent, " + p.Display(r.Intent.Asset, orZero(l.Held)) + " held"
		}
		c.Limits = append(c.Limits, limitShown{Rule: clean(l.Rule), What: clean(what)})
	}
	looked := 0
	for o := range s.Reviews() {
		if looked++; looked > reviewsRead || len(c.Earlier) == 5 {
			break
		}
		if o.ReviewID != v.ID && slices.ContainsFunc(o.Intent.Names, func(n string) bool { return slices.Contains(v.Names, n) }) {
			c.Earlier = append(c.Earlier, earlier{ID: o.ReviewID, Status: o.Status(q.now()), Amount: clean(o.Amount + " " + o.Asset), At: q.moment(o.At)})
		}
	}
	return c
}

// reviewsPage is the inbox.
type reviewsPage struct {
	Status, Text string
	States       []choice
	Cards        []card
	Looked       bool // there are reviews the filter was not held to
	Next, First  string
	Batch        string
	Suggestion   string
}

func (p reviewsPage) title() string { return "Reviews" }

// filter are the reviews a page is about.
type filter struct {
	status, text string
	from         string // a cursor of the guard
}

func (q *request) filter() filter {
	v := q.r.URL.Query()
	f := filter{status: v.Get("status"), text: strings.TrimSpace(v.Get("q")), from: v.Get("from")}
	if f.status != "all" {
		if f.status = oneOf(f.status, states...); f.status == "" {
			f.status = decision.StatusPending
		}
	}
	return f
}

// match reports whether a review says a text: a name, a rule, who asked.
func (f filter) match(v *guard.ReviewView) bool {
	if f.text == "" {
		return true
	}
	text := strings.ToLower(f.text)
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), text) }
	return has(v.ID) || has(v.Counterparty) || has(v.PayTo) || has(v.Resource) || has(v.AskedBy) || has(v.Amount+" "+v.Asset) ||
		slices.ContainsFunc(v.Names, has) || slices.ContainsFunc(v.Reasons, func(r decision.Reason) bool { return has(r.Rule) })
}

// matching gives the reviews a filter is about, newest first, and the cursor behind them.
func (q *request) matching(ctx context.Context, f filter, limit int) (found []guard.ReviewView, next, suggestion string, err error) {
	query := guard.ReviewQuery{Status: f.status, Limit: limit, Cursor: f.from}
	if f.status == "all" {
		query.Status = ""
	}
	for looked := 0; looked < reviewsRead; looked += query.Limit {
		page, err := q.g.Reviews(ctx, query)
		if err != nil {
			return nil, "", "", err
		}
		if query.Cursor == "" {
			suggestion = page.Suggestion
		}
		for i := range page.Reviews {
			if f.match(&page.Reviews[i]) {
				found = append(found, page.Reviews[i])
			}
		}
		query.Cursor = page.NextCursor
		if query.Cursor == "" || len(found) >= limit {
			break
		}
	}
	return found, query.Cursor, suggestion, nil
}

func (q *request) reviews() error {
	ctx, f := q.r.Context(), q.filter()
	found, next, suggestion, err := q.matching(ctx, f, cardsShown)
	if err != nil {
		return err
	}
	s, err := q.g.Log().Read(ctx)
	if err != nil {
		return err
	}
	if q.r.URL.Query().Get("many") != "" && f.status == decision.StatusPending {
		return q.choose(ctx, s, f)
	}
	p := reviewsPage{Status: f.status, Text: clean(f.text), Suggestion: clean(suggestion)}
	for _, state := range append(slices.Clone(states), "all") {
		p.States = append(p.States, choice{Label: state, Link: link(q.r, "status", state, "from", ""), Chosen: state == f.status})
	}
	for i := range found {
		p.Cards = append(p.Cards, q.card(s, &found[i], false))
	}
	if next != "" {
		p.Next = link(q.r, "from", next)
	}
	if f.from != "" {
		p.First = link(q.r, "from", "")
	}
	if f.status == decision.StatusPending && len(found) > 1 {
		p.Batch = link(q.r, "many", "1", "from", "")
	}
	q.render(http.StatusOK, "reviews", "reviews", p)
	return nil
}

// batchPage lists reviews that are decided together.
type batchPage struct {
	Cards    []card
	Text     string
	Sums     []string // what an approval of all would let be paid
	Decision string   // what is to be confirmed; "" while they are chosen
	Note     string
	Back     string
	More     bool
	Left     map[string]bool // by their ids, those a form that came back had not chosen
}

func (p batchPage) title() string {
	if p.Decision != "" {
		return "Confirm"
	}
	return "Decide many"
}

func (q *request) choose(ctx context.Context, s *decision.State, f filter) error {
	f.from = ""
	found, next, _, err := q.matching(ctx, f, mostBatch)
	if err != nil {
		return err
	}
	found = found[:min(len(found), mostBatch)]
	p := batchPage{Text: clean(f.text), Back: link(q.r, "many", ""), More: next != ""}
	for i := range found {
		if found[i].Call == nil { // a call is approved with all of it in sight
			p.Cards = append(p.Cards, q.card(s, &found[i], false))
		}
	}
	if b := q.returned; b != nil && b.action == "/batch" {
		p.Left = map[string]bool{}
		for i := range p.Cards {
			id := p.Cards[i].View.ID
			p.Left[id] = !slices.ContainsFunc(b.form["review"], func(chosen string) bool { return strings.HasPrefix(chosen, id+" ") })
		}
	}
	q.render(http.StatusOK, "batch", "reviews", p)
	return nil
}

// sums adds up what reviews are about, by asset: assets do not mix.
func (q *request) sums(s *decision.State, cards []card) []string {
	all := map[string]string{}
	var assets []string
	unread := 0
	for i := range cards {
		r := s.Review(cards[i].View.ID)
		if r == nil || r.Intent.Amount == "" || r.Intent.Asset == "" {
			unread++
			continue
		}
		if _, ok := all[r.Intent.Asset]; !ok {
			assets = append(assets, r.Intent.Asset)
		}
		sum, err := payment.Add(orZero(all[r.Intent.Asset]), r.Intent.Amount)
		if err != nil {
			unread++
			continue
		}
		all[r.Intent.Asset] = sum
	}
	slices.Sort(assets)
	var out []string
	for _, a := range assets {
		m := q.money(a, all[a])
		text := m.Text
		if m.Network != "" {
			text += " on " + m.Network
		}
		out = append(out, text)
	}
	if unread > 0 {
		out = append(out, plural(unread, "amount")+" that cannot be read")
	}
	return out
}

type reviewPage struct {
	View  *guard.ReviewView
	Inner card
}

func (p reviewPage) title() string { return "Review " + p.View.ID }

func (q *request) review() error {
	ctx := q.r.Context()
	v, err := q.g.Review(ctx, q.r.PathValue("id"), 0)
	if err != nil {
		return err
	}
	s, err := q.g.Log().Read(ctx)
	if err != nil {
		return err
	}
	q.render(http.StatusOK, "review", "reviews", reviewPage{v, q.card(s, v, true)})
	return nil
}

// find leads to what somebody typed: a review, an operation, a counterparty.
func (q *request) find() error {
	text := strings.TrimSpace(q.r.URL.Query().Get("q"))
	if text == "" {
		return errcode.New(errcode.Input, "", "nothing was typed")
	}
	if v, err := q.g.Review(q.r.Context(), text, 0); err == nil {
		return q.goTo("/review/" + v.ID)
	}
	if len(text) >= shortestID {
		// In the latest run, as the commands look.
		if of, err := q.x.Resolve(q.r.Context(), ingest.Ref{Run: "latest", Operation: text}); err == nil {
			return q.goTo(operationLink(of))
		}
	}
	if payment.Name(text) == "" {
		return errcode.New(errcode.Input, "a review's id, an operation's whole id, an address, a host or a URL", "nothing is known by %s", plain.Quote(text, plain.Detail))
	}
	return q.goTo(partyLink(text))
}

func (q *request) goTo(to string) error {
	http.Redirect(q.w, q.r, to, http.StatusSeeOther)
	return nil
}
