package ui

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

func encode(pairs ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return v.Encode()
}

// logPage shows the decisions log and whether it holds.
type logPage struct {
	Path       string
	Lines      int64
	Sig        string
	First      string
	Last       time.Time
	Torn       int64
	Problem    string
	Entries    []entry
	Ignored    []decision.Ignored
	IgnoredAll int
	Checkpoint string
	Report     *decision.Report // of a verification that was just asked for
	Took       string
}

func (logPage) title() string { return "Log" }

// entry is a line of the log.
type entry struct {
	Seq    int64
	At     time.Time
	Type   string
	What   string
	Review string
	Ref    *decision.Ref
	Raw    string
}

const (
	entriesShown = 40
	// entriesRead bounds the bytes read from the end of the log.
	entriesRead = 512 << 10
	rawShown    = 700
)

func (q *request) log() error { return q.logPage(nil, "") }

func (q *request) logPage(report *decision.Report, took string) error {
	l := q.g.Log()
	s, err := l.Read(q.r.Context())
	p := logPage{Path: clean(l.Path()), Lines: s.Lines(), Sig: s.Sig(), First: s.First(), Last: s.At(), Torn: s.Torn(), Report: report, Took: took}
	if err != nil {
		p.Problem = clean(err.Error())
	}
	p.Ignored, p.IgnoredAll = s.Ignored()
	p.Checkpoint = string(s.Checkpoint(q.now()).Append(nil))
	lines, err := decision.Recent(l.Path(), entriesShown, entriesRead)
	if err != nil && p.Problem == "" {
		p.Problem = clean(err.Error())
	}
	for _, line := range lines {
		p.Entries = append(p.Entries, entryOf(line))
	}
	q.render(http.StatusOK, "log", "log", p)
	return nil
}

// entryOf lays out a line of the log, whatever it is.
func entryOf(line []byte) entry {
	var l struct {
		Seq       int64     `json:"seq"`
		At        time.Time `json:"at"`
		Type      string    `json:"type"`
		Review    string    `json:"review_id"`
		Decision  string    `json:"decision"`
		Note      string    `json:"note"`
		By        string    `json:"decided_by"`
		Amount    string    `json:"amount"`
		Asset     string    `json:"asset"`
		Party     string    `json:"counterparty"`
		Scope     string    `json:"scope"`
		Reason    string    `json:"reason"`
		Rule      string    `json:"rule"`
		Outcome   string    `json:"outcome"`
		Run       string    `json:"run_id"`
		Operation *string   `json:"operation_id"`
		Hold      string    `json:"hold_id"`
		Why       string    `json:"why"`
		How       string    `json:"how"`
		Hash      string    `json:"policy_hash"`
		Signature string    `json:"signature"`
		Runs      []any     `json:"runs"`
	}
	e := entry{Raw: plain.Clean(string(line), rawShown)}
	if err := json.Unmarshal(line, &l); err != nil {
		e.Type, e.What = "unreadable", "this line is no JSON object"
		return e
	}
	e.Seq, e.At, e.Type, e.Review = l.Seq, l.At, clean(l.Type), l.Review
	join := func(words ...string) string {
		var b bytes.Buffer
		for _, w := range words {
			if w = plain.Clean(w, plain.Detail); w == "" {
				continue
			}
			if b.Len() > 0 {
				b.WriteString(" · ")
			}
			b.WriteString(w)
		}
		return b.String()
	}
	signed := ""
	if l.Signature != "" {
		signed = "signed"
	}
	switch l.Type {
	case "opened":
		e.What = join(l.Amount+" "+l.Asset, l.Party)
	case "decided":
		e.What = join(l.Decision, l.Note, l.By, signed)
	case "frozen", "unfrozen":
		e.What = join(l.Scope, l.Reason, signed)
	case "resolved", "unresolved":
		e.What = join(l.Outcome, l.Note, l.By, signed)
	case "seen":
		e.What = join("how far " + plural(len(l.Runs), "run") + " had been read")
	case "policy":
		e.What = join("hash " + l.Hash[:min(12, len(l.Hash))])
	default:
		e.What = join(l.Rule, l.Why, l.How, l.Hold, l.Note, l.Run)
	}
	if l.Run != "" && slices.Contains([]string{"resolved", "unresolved"}, l.Type) {
		e.Ref = &decision.Ref{Run: l.Run, Operation: l.Operation}
	}
	return e
}

// checkpoint gives what pins the log, to be kept elsewhere.
func (q *request) checkpoint() error {
	s, err := q.g.Log().Read(q.r.Context())
	if err != nil {
		return err
	}
	q.w.Header().Set("Content-Type", "application/json")
	q.w.Header().Set("Content-Disposition", `attachment; filename="settlewatch-checkpoint.json"`)
	_, err = q.w.Write(s.Checkpoint(q.now()).Append(nil))
	return err
}

// verify proves the chain from its first line, against a checkpoint where one is
// given.
func (q *request) verify() error {
	began := q.now()
	var pin *decision.Checkpoint
	if text := q.text("checkpoint"); text != "" {
		c, err := decision.ParseCheckpoint([]byte(text))
		if err != nil {
			return err
		}
		pin = &c
	}
	report, err := decision.Verify(q.r.Context(), q.g.Log().Path(), pin)
	if err != nil {
		return err
	}
	return q.logPage(report, took(q.now().Sub(began)))
}

// healthPage shows whether everything is seen.
type healthPage struct {
	*ingest.Status
	Watching bool
	Sync     string
	Runs     []ingest.RunInfo
	Next     string
	First    string
	Faults   []faultsOf
	Damage   []guard.DamageItem
	Standing guard.Standing
	Lag      int64
	Newest   time.Time
}

func (healthPage) title() string { return "Health" }

// faultsOf are the faults of a run.
type faultsOf struct {
	Run   string
	Lines []faultLine
}

type faultLine struct {
	ingest.FaultLine
	Text string
}

const (
	runsShown   = 30
	faultyShown = 6
	faultsShown = 5
	bytesShown  = 400
)

func (q *request) health() error {
	ctx, began := q.r.Context(), q.now()
	if err := q.x.Sync(ctx); err != nil {
		return err
	}
	p := healthPage{Watching: q.x.Watching(), Sync: took(q.now().Sub(began))}
	var err error
	if p.Status, err = q.x.Status(ctx); err != nil {
		return err
	}
	after, _ := strconv.Atoi(q.r.URL.Query().Get("after"))
	after = max(after, 0)
	if p.Runs, err = q.x.NewestRuns(ctx, after, runsShown+1); err != nil {
		return err
	}
	if len(p.Runs) > runsShown {
		p.Runs = p.Runs[:runsShown]
		p.Next = link(q.r, "after", strconv.Itoa(after+runsShown))
	}
	if after > 0 {
		p.First = link(q.r, "after", "")
	}
	for i := range p.Runs {
		r := &p.Runs[i]
		p.Lag += max(0, r.Size-r.Covered)
		if r.Changed.After(p.Newest) {
			p.Newest = r.Changed
		}
	}
	for _, d := range p.Damaged[:min(len(p.Damaged), faultyShown)] {
		lines, err := q.x.FaultLines(ctx, d.RunID, faultsShown, bytesShown)
		if err != nil || len(lines) == 0 {
			lines = []ingest.FaultLine{{Damage: d}} // not of a line, or two runs of one id
		}
		f := faultsOf{Run: d.RunID}
		for _, l := range lines {
			f.Lines = append(f.Lines, faultLine{l, clean(string(l.Bytes))})
		}
		p.Faults = append(p.Faults, f)
	}
	// This page is for when something is wrong: without a sound log nobody knows what
	// was acknowledged, and the frame says so.
	if p.Damage, err = q.g.Damage(ctx); err != nil && errcode.Of(err).Code != errcode.LogUnsound {
		return err
	}
	p.Damage = p.Damage[:min(len(p.Damage), 20)]
	s, unsound := q.g.Log().Read(ctx)
	if f := q.figures.get(ctx, q.UI, q.mark(ctx, s, unsound)); f != nil {
		p.Standing = f.Standing
	}
	q.render(http.StatusOK, "health", "health", p)
	return nil
}
