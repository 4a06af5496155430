package ui

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/ingest"
)

// figures are what the overview shows. What of it grows with the number of open
// operations is worked out beside the pages, so that no page waits for it: a page
// shows the figures there are and when they were made.
type figures struct {
	mu     sync.Mutex
	last   *figureSet
	making chan struct{} // closed when they are made; nil while nobody makes any
}

type figureSet struct {
	At       time.Time
	mark     string
	Took     time.Duration
	Problem  string
	Standing guard.Standing
	Days     []ingest.DaySum
	Parties  []ingest.Party
	Ages     []age
	Oldest   []guard.OpenOperation // oldest first
	Holds    []guard.HoldView
	Headroom []*guard.Headroom
}

// age is how many operations are open since when, and how much money that is.
type age struct {
	Label, Means string
	Operations   int
	Sums         []sum
	Unread       int // amounts that cannot be read
}

type sum struct{ Asset, Atomic string }

const (
	// figuresWait is how long a page waits for figures that are being made.
	figuresWait = 25 * time.Millisecond
	// figuresLast is how long figures are shown that nothing has changed since: what
	// is pending, and what a window holds, change by the clock alone.
	figuresLast = 20 * time.Second
	chartDays   = 30
	mostParties = 12
	mostOldest  = 5
)

func (f *figures) now() *figureSet {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last
}

// get gives figures that are up to date if that takes no time, else those there are.
func (f *figures) get(ctx context.Context, u *UI, mark string) *figureSet {
	f.mu.Lock()
	last := f.last
	if last != nil && last.mark == mark && u.now().Sub(last.At) < figuresLast {
		f.mu.Unlock()
		return last
	}
	making := f.making
	if making == nil {
		making = make(chan struct{})
		f.making = making
		go func() {
			defer close(making)
			// Whoever asked may be gone before they are there; the next one is glad of them.
			f.make(context.WithoutCancel(ctx), u)
		}()
	}
	f.mu.Unlock()
	wait := figuresWait
	if last == nil {
		wait = time.Minute
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-making:
	case <-timer.C:
	case <-ctx.Done():
	}
	return f.now()
}

func (f *figures) refresh(ctx context.Context, u *UI) {
	f.mu.Lock()
	if f.making != nil {
		f.mu.Unlock()
		return
	}
	making := make(chan struct{})
	f.making = making
	f.mu.Unlock()
	defer close(making)
	f.make(ctx, u)
}

func (f *figures) make(ctx context.Context, u *UI) {
	set := u.work(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.making = set, nil
}

func (u *UI) work(ctx context.Context) *figureSet {
	began := u.now()
	f := &figureSet{At: began}
	failed := func(what string, err error) {
		if err != nil && f.Problem == "" {
			f.Problem = clean(what + ": " + err.Error())
		}
	}
	s, err := u.g.Log().Read(ctx)
	failed("read the decisions log", err)
	if standing, err := u.g.Standing(ctx); err == nil {
		f.Standing = *standing
	} else {
		failed("ask how the guard stands", err)
	}
	// The mark is taken before what it stands for: what comes between is looked at
	// again.
	f.mark = u.mark(ctx, s, err)
	day := began.UTC().Truncate(24 * time.Hour)
	f.Days, err = u.x.Days(ctx, day.AddDate(0, 0, 1-chartDays))
	failed("sum up the days", err)
	f.Parties, err = u.x.Parties(ctx, mostParties)
	failed("look at counterparties", err)
	open, err := u.g.Open(ctx, guard.OpenQuery{})
	failed("list open operations", err)
	f.ages(open, began)
	f.Holds, err = u.g.Holds(ctx)
	failed("list holds", err)
	for _, asset := range u.assets() {
		h, err := u.g.Headroom(ctx, guard.HeadroomQuery{Asset: asset})
		failed("ask for headroom", err)
		if err == nil {
			f.Headroom = append(f.Headroom, h)
		}
	}
	f.Took = u.now().Sub(began)
	return f
}

// assets are those that limits of the policy are about.
func (u *UI) assets() []string {
	p := u.g.Policy()
	all := []string{p.DefaultAsset}
	for key := range p.AssetPolicies {
		all = append(all, key)
	}
	for i := range p.Limits {
		if a := p.Limits[i].Asset; a != "" {
			all = append(all, a)
		}
	}
	slices.Sort(all[1:])
	var out []string
	for _, a := range all {
		if _, ok := p.Assets[a]; ok && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// ages sorts open operations by how long ago they were paid.
func (f *figureSet) ages(open []guard.OpenOperation, now time.Time) {
	f.Ages = []age{
		{Label: "under an hour", Means: "an answer may still come"}, {Label: "under a day", Means: ""}, {Label: "under a week", Means: ""},
		{Label: "older", Means: "ask the seller, or look at the chain"}, {Label: "without a readable time", Means: ""},
	}
	bounds := []time.Duration{time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}
	for i := range open {
		o := &open[i]
		n := len(f.Ages) - 1
		if !o.At.IsZero() {
			n, _ = slices.BinarySearch(bounds, now.Sub(o.At))
		}
		a := &f.Ages[n]
		a.Operations++
		a.add(o.Asset, o.Amount)
	}
	if f.Ages[len(f.Ages)-1].Operations == 0 {
		f.Ages = f.Ages[:len(f.Ages)-1]
	}
	slices.SortStableFunc(open, func(a, b guard.OpenOperation) int { return a.At.Compare(b.At) })
	f.Oldest = open[:min(len(open), mostOldest)]
}

func (a *age) add(asset, atomic string) {
	if asset == "" || atomic == "" {
		a.Unread++
		return
	}
	i := slices.IndexFunc(a.Sums, func(s sum) bool { return s.Asset == asset })
	if i < 0 {
		i = len(a.Sums)
		a.Sums = append(a.Sums, sum{asset, "0"})
	}
	if all, err := payment.Add(a.Sums[i].Atomic, atomic); err == nil {
		a.Sums[i].Atomic = all
	} else {
		a.Unread++
	}
}

// mark tells apart what pages show: the states of index and log, what in them changes by
// the clock alone, and what stands beside them. It says nothing about what they hold.
func (u *UI) mark(ctx context.Context, s *decision.State, unsound error) string {
	m, err := u.x.Mark(ctx)
	if err != nil {
		return ""
	}
	now := u.now()
	_, frozen := u.g.FreezeFile()
	return fmt.Sprintf("%x.%d.%d.%d.%d.%d.%t.%t.%t", uint64(m.Generation), m.Rev, s.Lines(), u.pending(s), len(s.Approvals(now)), len(s.Holds(now)), unsound == nil, frozen, u.x.Watching())
}

// confirmation is what a login adds to the mark: its pages change when its code is typed.
func (q *request) confirmation() string {
	return fmt.Sprintf(".%t", q.sessions.may(q.s))
}

// state is what a page asks to find out whether it is still true.
func (q *request) state() error {
	ctx := q.r.Context()
	s, unsound := q.g.Log().Read(ctx) // it shows on the page; the log has a state all the same
	q.mu.Lock()
	knocked, n := q.knocked, q.knockedN
	q.mu.Unlock()
	// Looking keeps the index up to date where nobody watches.
	_ = q.x.Sync(ctx)
	q.w.Header().Set("Content-Type", "application/json")
	_, err := fmt.Fprintf(q.w, `{"mark": %q, "pending": %d, "asked_for": %q, "asked": %d}`+"\n", q.mark(ctx, s, unsound)+q.confirmation(), q.pending(s), knocked, n)
	return err
}

// overview is the page that shows where the money went.
type overview struct {
	*figureSet
	Asset  string // whose days are shown
	Assets []choice
	Table  []day // newest first
	Total  day
	Guard  string // why it cannot judge, "" when it can
	Events int64
	Stale  bool
}

func (overview) title() string { return "Overview" }

type choice struct {
	Label, Link string
	Chosen      bool
}

// day is a row of the table the chart is drawn from.
type day struct {
	Day                   time.Time
	Settled, Open, Failed string // display units
	Payments, Unreadable  int64
}

func (q *request) overview() error {
	ctx := q.r.Context()
	s, unsound := q.g.Log().Read(ctx)
	if err := q.x.Sync(ctx); err != nil {
		return err
	}
	mark := q.mark(ctx, s, unsound)
	f := q.figures.get(ctx, q.UI, mark)
	if f == nil {
		return ctx.Err()
	}
	o := overview{figureSet: f, Stale: f.mark != mark}
	o.Guard = f.Standing.Ready
	o.pick(q)
	q.render(http.StatusOK, "overview", "overview", o)
	return nil
}

// pick chooses the asset and lays its days out.
func (o *overview) pick(q *request) {
	p := q.g.Policy()
	var assets []string
	for _, d := range o.Days {
		if !slices.Contains(assets, d.Asset) {
			assets = append(assets, d.Asset)
		}
	}
	slices.SortStableFunc(assets, func(a, b string) int {
		// The default asset first.
		return compareBool(b == p.DefaultAsset, a == p.DefaultAsset)
	})
	o.Asset = p.DefaultAsset
	if len(assets) > 0 && !slices.Contains(assets, o.Asset) {
		o.Asset = assets[0]
	}
	if wanted := q.r.URL.Query().Get("asset"); slices.Contains(assets, wanted) {
		o.Asset = wanted
	}
	for _, a := range assets {
		o.Assets = append(o.Assets, choice{Label: q.called(a), Link: link(q.r, "asset", a), Chosen: a == o.Asset})
	}
	rows := map[time.Time]*day{}
	sums := map[time.Time]map[string]string{}
	total := map[string]string{}
	first := o.At.UTC().Truncate(24*time.Hour).AddDate(0, 0, 1-chartDays)
	for i := range chartDays {
		at := first.AddDate(0, 0, i)
		rows[at], sums[at] = &day{Day: at}, map[string]string{}
	}
	for _, d := range o.Days {
		row := rows[d.Day]
		if d.Asset != o.Asset || row == nil {
			continue
		}
		row.Payments += d.Payments
		row.Unreadable += d.Unreadable
		o.Total.Payments += d.Payments
		o.Total.Unreadable += d.Unreadable
		for _, to := range []map[string]string{sums[d.Day], total} {
			if all, err := payment.Add(orZero(to[d.State]), d.Amount); err == nil {
				to[d.State] = all
			}
		}
	}
	fill := func(row *day, of map[string]string) {
		row.Settled, row.Failed, row.Open = p.Units(o.Asset, orZero(of["settled"])), p.Units(o.Asset, orZero(of["failed"])), p.Units(o.Asset, orZero(of["open"]))
	}
	for i := range chartDays {
		at := first.AddDate(0, 0, chartDays-1-i)
		fill(rows[at], sums[at])
		o.Table = append(o.Table, *rows[at])
	}
	fill(&o.Total, total)
}

func orZero(amount string) string {
	if amount == "" {
		return "0"
	}
	return amount
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// called is an asset in a few words.
func (u *UI) called(asset string) string {
	if asset == "" {
		return "an asset that cannot be read"
	}
	known, ok := u.g.Policy().Assets[asset]
	network, address, _ := strings.Cut(asset, "/")
	where := u.money(asset, "0").Network
	if !ok || known.Symbol == "" {
		return clean(short(address) + " on " + where + " (atomic units)")
	}
	if where == "" {
		where = network
	}
	return clean(known.Symbol + " on " + where)
}
