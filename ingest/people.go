package ingest

import (
	"cmp"
	"context"
	"io"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/ingest/event"
	"github.com/settlewatch/settlewatch/store"
)

// This file answers people who look at pictures of the past. Every answer reads a
// bounded number of rows: what it costs follows the question (design, principle 6).

// Mark tells two states of the index apart.
type Mark struct{ Generation, Rev int64 }

// Mark is the state of the index as it is, without a look at the run files.
func (x *Indexer) Mark(ctx context.Context) (m Mark, err error) {
	err = x.Snapshot(ctx, func(v *store.View) (err error) {
		m.Generation, m.Rev, err = v.Meta()
		return err
	})
	return m, err
}

// DaySum sums up the payments of one day in one asset that ended alike.
type DaySum struct {
	Day        time.Time // its beginning, UTC
	Asset      string    // asset key; "" unreadable
	State      string    // settled, failed, or open: nothing certain is known yet
	Payments   int64
	Unreadable int64  // of these, and not in Amount where no amount could be read
	Amount     string // atomic units, exact
}

// Days sums payments up by day, asset and outcome, from a day on, oldest first, the
// assets of a day by key.
func (x *Indexer) Days(ctx context.Context, from time.Time) (out []DaySum, err error) {
	const day = 24 * time.Hour
	err = x.Ask(ctx, func(v *store.View) error {
		rows, err := v.Days(from.Unix() / int64(day/time.Second))
		if err != nil {
			return err
		}
		assets := make([]int64, len(rows))
		for i := range rows {
			assets[i] = rows[i].Asset
		}
		words, err := v.Words(assets)
		if err != nil {
			return err
		}
		out = out[:0]
		for _, r := range rows {
			state := map[store.DayState]string{store.DaySettled: payment.WordSettled, store.DayFailed: payment.WordFailed}[r.State]
			if state == "" {
				state = payment.WordOpen
			}
			out = append(out, DaySum{Day: time.Unix(r.Day*int64(day/time.Second), 0).UTC(), Asset: words[r.Asset], State: state,
				Payments: r.Payments, Unreadable: r.Unreadable, Amount: r.Amount})
		}
		// The numbers of assets, by which they come, say nothing.
		sort.SliceStable(out, func(i, j int) bool {
			return cmp.Or(out[i].Day.Compare(out[j].Day), strings.Compare(out[i].Asset, out[j].Asset)) < 0
		})
		return nil
	})
	return out, err
}

// Party is a counterparty and how its operations ended.
type Party struct {
	Name       string // canonical, as Names of a review are
	Operations int64
	Full       int64
	Blind      int64
	// Settled are how long the newest settled payments took, from the payment to the
	// last event of its operation, sorted. It may be empty.
	Settled []time.Duration
}

const (
	partyPayments = 50  // whose pace is looked at
	partyLook     = 400 // newest payments among which counterparties are looked for
	partyRows     = 200 // of any other question about one
)

// Parties gives the counterparties of the newest payments, the newest first: the
// hosts, and payees that were paid without one.
func (x *Indexer) Parties(ctx context.Context, limit int) (out []Party, err error) {
	template, err := x.template("")
	if err != nil {
		return nil, err
	}
	err = x.Ask(ctx, func(v *store.View) error {
		out = nil
		found, err := v.NewestNames(partyLook)
		if err != nil {
			return err
		}
		var names []int64
		for _, n := range found {
			name := n.Host
			if name == 0 {
				name = n.Payee
			}
			if name != 0 && !slices.Contains(names, name) && len(names) < limit {
				names = append(names, name)
			}
		}
		for _, name := range names {
			p, err := party(v, template, name)
			if err != nil {
				return err
			}
			out = append(out, *p)
		}
		return nil
	})
	return out, err
}

func party(v *store.View, template *assemble.Resolved, name int64) (*Party, error) {
	words, err := v.Words([]int64{name})
	if err != nil {
		return nil, err
	}
	p := &Party{Name: words[name]}
	classes, types, err := v.Shapes()
	if err != nil {
		return nil, err
	}
	counts, err := v.HistoryOf([]int64{name})
	if err != nil {
		return nil, err
	}
	for _, c := range counts {
		p.Operations += c.N
		if c.Blind {
			p.Blind += c.N
		}
		if i := slices.IndexFunc(classes, func(k store.Class) bool { return k.No == c.Class }); i >= 0 && template.Judge(pairs(classes[i].Shape, types)).Full {
			p.Full += c.N
		}
	}
	paces, err := v.PaceOf(name, partyPayments)
	if err != nil {
		return nil, err
	}
	for _, pace := range paces {
		if last, ok := event.Canonical(event.TimeFromKey(nil, pace.Last)); ok && last >= pace.At {
			p.Settled = append(p.Settled, time.Duration(last-pace.At)*time.Millisecond)
		}
	}
	slices.Sort(p.Settled)
	return p, nil
}

// Together is a payee and a host that payments named together.
type Together struct {
	Payee, Host                      string // canonical
	Settled, Open, Failed, Ambiguous int64
}

// Payment is one payment to a counterparty.
type Payment struct {
	Ref                    // of its operation; an answer in no operation is Unassigned
	At           time.Time // zero: unreadable
	Payee, Host  string    // canonical
	Resource     string
	Asset        string
	Amount       string // atomic units, the larger of authorised and settled; "" unreadable
	Settled      bool
	Failed       bool // for good
	Ambiguous    bool
	UnknownChain bool
}

// PartyView is what there is to know of one counterparty.
type PartyView struct {
	Party
	Known    bool // the index has one of the names
	Together []Together
	Newest   []Payment // newest first
}

// Party looks at the counterparty that goes by some canonical names; the first of
// them that is known gives the counts.
func (x *Indexer) Party(ctx context.Context, names []string) (out *PartyView, err error) {
	template, err := x.template("")
	if err != nil {
		return nil, err
	}
	err = x.Ask(ctx, func(v *store.View) error {
		out = &PartyView{}
		var numbers []int64
		for _, name := range names {
			no, err := v.Word(name)
			if err != nil {
				return err
			}
			if no != 0 {
				numbers = append(numbers, no)
			}
		}
		if len(numbers) == 0 {
			return nil
		}
		p, err := party(v, template, numbers[0])
		if err != nil {
			return err
		}
		out.Party, out.Known = *p, true
		if err := out.together(v, numbers); err != nil {
			return err
		}
		return out.newest(v, numbers)
	})
	return out, err
}

func (out *PartyView) together(v *store.View, numbers []int64) error {
	var rows []store.PaidTo
	var wanted []int64
	for _, no := range numbers {
		found, err := v.PaidThrough(no, partyRows)
		if err != nil {
			return err
		}
		for _, r := range found {
			if !slices.ContainsFunc(rows, func(o store.PaidTo) bool { return o.Names == r.Names }) {
				rows = append(rows, r)
				wanted = append(wanted, r.Payee, r.Host)
			}
		}
	}
	words, err := v.Words(wanted)
	for _, r := range rows {
		out.Together = append(out.Together, Together{Payee: words[r.Payee], Host: words[r.Host],
			Settled: r.Settled, Open: r.Open, Failed: r.Failed, Ambiguous: r.Ambiguous})
	}
	return err
}

func (out *PartyView) newest(v *store.View, numbers []int64) error {
	paid, err := v.NewestOf(numbers, partyRows)
	if err != nil {
		return err
	}
	var wanted, ops []int64
	for i := range paid {
		wanted = append(wanted, paid[i].Payee, paid[i].Host, paid[i].Resource, paid[i].Asset)
		ops = append(ops, paid[i].Op)
	}
	words, err := v.Words(wanted)
	if err != nil {
		return err
	}
	refs, err := v.OperationRefs(ops)
	if err != nil {
		return err
	}
	for i := range paid {
		p := &paid[i]
		row := Payment{Payee: words[p.Payee], Host: words[p.Host], Resource: words[p.Resource], Asset: words[p.Asset], Amount: p.Amount,
			Settled: p.Flags&payment.FlagPaired != 0, Failed: p.Flags&payment.FlagDefinite != 0,
			Ambiguous: p.Flags&payment.FlagAmbiguous != 0, UnknownChain: p.Flags&payment.FlagUnknownNetwork != 0}
		if r, ok := refs[p.Op]; ok {
			row.Ref = ref(r.Run, r.Op)
			row.Unassigned = r.Stray
		}
		if p.HasAt {
			row.At = time.UnixMilli(p.At).UTC()
		}
		out.Newest = append(out.Newest, row)
	}
	return nil
}

// RunInfo is a run as Health shows it.
type RunInfo struct {
	RunID      string
	Events     int64
	Operations int64
	Faults     int64
	Size       int64 // of the file, when it was last looked at
	Covered    int64 // bytes that are in the index; what is left is the end of an unfinished line
	Changed    time.Time
	Unreadable string // why the file cannot be read, "" when it can
	Twin       bool
}

// NewestRuns gives runs from the end of the listing, after so many.
func (x *Indexer) NewestRuns(ctx context.Context, after, limit int) (out []RunInfo, err error) {
	err = x.Ask(ctx, func(v *store.View) error {
		out = nil
		runs, err := v.NewestRuns(after, limit)
		for i := range runs {
			r := &runs[i]
			info := RunInfo{RunID: runID(r.Key), Events: r.Events, Operations: r.Operations, Faults: r.Faults,
				Size: r.Stat.Size, Covered: r.Covered, Changed: time.Unix(0, r.Stat.MtimeNs).UTC(), Twin: r.Twin}
			if r.EntryFault != nil {
				info.Unreadable = *r.EntryFault
			}
			out = append(out, info)
		}
		return err
	})
	return out, err
}

// FaultLine is a faulty line and the beginning of its bytes.
type FaultLine struct {
	Damage
	Bytes []byte // as they are in the file; nil when they cannot be read any more
	Cut   bool   // there are more
}

// FaultLines gives the first faults of a run with so many bytes of each line.
func (x *Indexer) FaultLines(ctx context.Context, run string, limit, most int) (out []FaultLine, err error) {
	var file string
	err = x.Ask(ctx, func(v *store.View) error {
		out = nil
		r, err := runByID(v, run)
		if err != nil {
			return err
		}
		file = string(r.File)
		faults, err := v.FaultsOf(r.No, limit)
		for _, f := range faults {
			out = append(out, FaultLine{Damage: Damage{RunID: run, Line: f.Line, Offset: f.Offset, Reason: faultText(f.Reason)}})
		}
		return err
	})
	if err != nil || len(out) == 0 {
		return out, err
	}
	dir, err := x.openEvents()
	if err != nil {
		return out, nil // the faults are known without their bytes
	}
	defer func() { _ = dir.Close() }()
	f, info, err := dir.Open(file)
	if err != nil {
		return out, nil
	}
	defer func() { _ = f.Close() }()
	for i := range out {
		out[i].Bytes, out[i].Cut = lineAt(f, out[i].Offset, info.Size, most)
	}
	return out, nil
}

// lineAt reads the beginning of the line at an offset.
func lineAt(f io.ReaderAt, offset, size int64, most int) (line []byte, cut bool) {
	n := min(int64(most)+1, size-offset)
	if offset < 0 || n <= 0 {
		return nil, false
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, offset); err != nil {
		return nil, false
	}
	if i := slices.Index(b, '\n'); i >= 0 {
		return b[:i], false
	}
	return b[:min(len(b), most)], len(b) > most
}
