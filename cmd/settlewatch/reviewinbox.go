package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/cmd/settlewatch/inbox"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/mcp"
)

// fullScreen is the terminal a full screen can be drawn on, or nothing.
func (a *app) fullScreen() (in, out *os.File, ok bool) {
	in, typed := a.stdin.(*os.File)
	out, shown := a.stdout.(*os.File)
	if kind := a.env.getenv("TERM"); !typed || !shown || kind == "" || kind == "dumb" {
		return nil, nil, false
	}
	return in, out, term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd()))
}

// screenVariables tell what a terminal can do.
var screenVariables = []string{"TERM", "TERM_PROGRAM", "COLORTERM", "NO_COLOR", "LANG", "LC_ALL", "TMUX", "STY", "SSH_TTY", "WT_SESSION"}

// runInbox opens the inbox, or the overview, on the terminal.
func (a *app) runInbox(ctx context.Context, o *guarded, overview bool) error {
	in, out, ok := a.fullScreen()
	if !ok {
		return errcode.New(errcode.Usage, "settlewatch status, review list and headroom show the same anywhere", "a full screen needs a terminal, on stdin and stdout, and TERM")
	}
	// What else is told while the screen is full would be drawn over it. It is
	// shown in the overview, and told once the screen is given back.
	told := &aside{}
	stderr := a.stderr
	a.stderr = told
	defer func() {
		a.stderr = stderr
		_, _ = stderr.Write(told.all())
	}()
	return a.withGuard(ctx, o, func(g guardian, x finder) error {
		life, end := context.WithCancel(ctx)
		var watching sync.WaitGroup
		defer watching.Wait()
		defer end()
		if w, ok := x.(interface{ Watch(context.Context) error }); ok {
			watching.Go(func() { _ = w.Watch(life) }) // without it every look reads what changed
		}
		d := &desk{a: a, o: o, g: g, x: x, told: told}
		var environ []string
		for _, name := range screenVariables {
			if value := a.env.getenv(name); value != "" {
				environ = append(environ, name+"="+value)
			}
		}
		err := inbox.Run(ctx, inbox.Options{Desk: d, Now: a.env.now, Every: time.Second, Overview: overview, Colour: a.colour(out), In: in, Out: out, Environ: environ})
		// The full screen leaves nothing behind: what was done in it is the answer.
		for _, text := range d.done() {
			a.put("", "", text)
		}
		return err
	})
}

// aside keeps what is told while nobody can see it.
type aside struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// mostNotes bounds what is kept of them: a fault that repeats says it once a second.
const mostNotes = 64 << 10

func (n *aside) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.text.Len()+len(b) <= mostNotes && !bytes.Contains(n.text.Bytes(), b) {
		n.text.Write(b)
	}
	return len(b), nil
}

func (n *aside) all() []byte {
	n.mu.Lock()
	defer n.mu.Unlock()
	return bytes.Clone(n.text.Bytes())
}

func (n *aside) lines() []string {
	return strings.FieldsFunc(string(n.all()), func(r rune) bool { return r == '\n' })
}

// desk is the guard as the inbox asks it: the same calls as those of the commands.
type desk struct {
	a    *app
	o    *guarded
	g    guardian
	x    finder
	told *aside

	mu   sync.Mutex
	key  decision.Signer // once it is open
	acts []string        // in words, in order
}

func (d *desk) did(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.acts = append(d.acts, text)
}

func (d *desk) done() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.acts)
}

// What is listed at once.
const waiting, openListed = 500, 200

func (d *desk) Look(ctx context.Context, w inbox.Want) (*inbox.Scene, error) {
	s := &inbox.Scene{Ends: map[string]string{}}
	standing, err := d.g.Standing(ctx)
	if err != nil {
		return nil, d.worded(err)
	}
	s.At = d.a.env.now()
	if s.Alerts = alerts(standing); len(d.told.lines()) > 0 {
		s.Alerts = append(s.Alerts, plain.Plural(int64(len(d.told.lines())), "note")+" in the overview")
	}
	if standing.Unsound == "" {
		if err := d.pending(ctx, s, standing.Pending); err != nil {
			return nil, d.worded(err)
		}
	}
	for _, id := range w.Follow {
		if slices.ContainsFunc(s.Cards, func(c inbox.Card) bool { return c.ID == id }) {
			continue
		}
		v, err := d.g.Review(ctx, id, 0)
		if err != nil {
			return nil, d.worded(err)
		}
		s.Ends[id] = endOf(v)
	}
	s.Key, s.KeyFault = d.signing()
	var open []guard.OpenOperation
	if w.Open || w.Overview {
		if open, err = d.g.Open(ctx, guard.OpenQuery{}); err != nil {
			return nil, d.worded(err)
		}
	}
	if w.Open {
		first := open[:min(len(open), openListed)]
		s.Open, s.OpenMore = openEntries(d.g.Policy(), first, d.a.env.now()), len(open)-len(first)
	}
	if w.Overview {
		if s.Overview, err = d.overview(ctx, s, standing, open); err != nil {
			return nil, d.worded(err)
		}
	}
	return s, nil
}

// worded gives an error the words of the command line.
func (d *desk) worded(err error) error { return d.o.wordedGuard(err) }

// pending lists what waits, soonest to expire first: what comes in is then added at
// the end, and nothing moves below a finger.
func (d *desk) pending(ctx context.Context, s *inbox.Scene, total int) error {
	q := guard.ReviewQuery{Status: "pending", Limit: 100}
	for len(s.Cards) < waiting {
		page, err := d.g.Reviews(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Reviews {
			s.Cards = append(s.Cards, reviewCard(&page.Reviews[i], d.a.env.now()))
		}
		if q.Cursor = page.NextCursor; q.Cursor == "" {
			break
		}
	}
	slices.SortStableFunc(s.Cards, func(x, y inbox.Card) int {
		return cmp.Or(x.Expires.Compare(y.Expires), strings.Compare(x.ID, y.ID))
	})
	if q.Cursor != "" {
		s.Unread = max(1, total-len(s.Cards))
	}
	return nil
}

// endOf says what became of a review that waits no longer.
func endOf(v *guard.ReviewView) string {
	switch v.Status {
	case "pending":
		return "still waits, but is not listed now"
	case "expired":
		return "expired on " + moment(v.ExpiresAt) + ": nobody decided, so it is no permission"
	}
	text := "is " + v.Status + " already"
	if !v.DecidedAt.IsZero() {
		text += ", decided on " + moment(v.DecidedAt) + " by " + dash(v.DecidedBy)
	}
	if v.Note != "" {
		text += ": " + plain.Quote(v.Note, whole)
	}
	return text
}

// alerts are what has to be known before anything is decided.
func alerts(s *guard.Standing) []string {
	var out []string
	if s.Unsound != "" {
		out = append(out, "the decisions log does not verify, so nothing can be decided: "+s.Unsound)
	}
	if s.Ready != "" {
		out = append(out, "the guard cannot judge: "+s.Ready)
	}
	for _, f := range s.Frozen {
		text := "FROZEN: " + frozenScope(f.Scope, "is blocked")
		if f.Reason != "" {
			text += ": " + plain.Quote(f.Reason, plain.Detail)
		}
		out = append(out, text)
	}
	return out
}

var tones = map[string]inbox.Tone{bold: inbox.Strong, green: inbox.Good, yellow: inbox.Warn, red: inbox.Bad}

// decisive are the rows of a review that a person decides by before all others.
var decisive = []string{"pay", "to", "host", "network", "resource"}

// reviewCard is a review as the inbox shows it: all that review show does, the
// decisive facts first, then why a person is asked.
func reviewCard(v *guard.ReviewView, now time.Time) inbox.Card {
	if v.Call != nil {
		return callCard(v)
	}
	p := payeeOf(v)
	amount, _ := paid(v)
	c := inbox.Card{ID: v.ID, Expires: v.ExpiresAt, Facts: factsOf(v), Amount: amount, To: p.to, Whom: whom(v, p), Payee: p.to + "\n" + strings.Join(p.hosts, "\n")}
	if c.To == "" {
		c.To = "whatever address the host asks for"
	}
	c.At = strings.Join(p.hosts, ", ")
	if c.At == "" {
		c.At = "no host"
	}
	if v.Network != "" {
		c.At += " on " + network(v.Network)
	}
	// Facts stand below who says so. A fact that was opened with may bear any name,
	// so the decisive ones are those before the asset and what follows it.
	var first, rest []sheetRow
	rows := reviewSheet(v, now).rows
	for _, label := range decisive {
		for _, r := range rows[:min(len(rows), mostDecisive(rows))] {
			if r.label == label {
				first = append(first, r)
			}
		}
	}
	for i, r := range rows {
		if i >= mostDecisive(rows) || !slices.Contains(decisive, r.label) {
			rest = append(rest, r)
		}
	}
	rest = append(rest, sheetRow{label: "review", value: v.ID})
	for _, r := range first {
		if r.label != "resource" {
			c.Decisive = append(c.Decisive, inbox.Block{Label: r.label, Text: r.value, Tone: tones[r.style]})
		}
	}
	why, rules := reasonBlocks(v)
	c.Why = strings.Join(rules, ", ")
	c.Decisive = append(c.Decisive, inbox.Block{Label: "why", Text: c.Why})
	c.Body = slices.Concat(byOrigin(first), []inbox.Block{{}}, why, []inbox.Block{{}}, byOrigin(rest, "trace", "policy", "agent"))
	var evidence []inbox.Block
	if evidence, c.Open = evidenceBlocks(v, c.To); len(evidence) > 0 {
		c.Body = slices.Concat(c.Body, []inbox.Block{{}}, evidence)
	}
	return c
}

// factsOf stands for everything a review was opened with: what is shown of it but the
// times from now, and how it stands.
func factsOf(v *guard.ReviewView) string {
	text, _ := json.Marshal([]any{v.ID, v.CreatedAt.UnixMilli(), v.Counterparty, v.Amount, v.Asset, v.Template, v.Reasons, v.Names, v.PayTo, v.Resource, v.Network, v.AskedBy, v.Facts, v.Call}) // texts and numbers: it cannot fail
	return string(text)
}

// mostDecisive is where the rows end that can be decisive.
func mostDecisive(rows []sheetRow) int {
	if i := slices.IndexFunc(rows, func(r sheetRow) bool { return r.label == "asked by" }); i >= 0 {
		return i
	}
	return len(rows)
}

// byOrigin puts the facts of each origin below a heading that names it, those of
// origins in the order given first; one that is alone has its mark beside it.
func byOrigin(rows []sheetRow, origins ...string) []inbox.Block {
	groups := map[string][]sheetRow{}
	for _, r := range rows {
		if !slices.Contains(origins, r.origin) {
			origins = append(origins, r.origin)
		}
		groups[r.origin] = append(groups[r.origin], r)
	}
	var out []inbox.Block
	for _, origin := range origins {
		group, inline := groups[origin], ""
		switch {
		case origin == "":
		case len(group) > 1:
			out = append(out, inbox.Block{Text: strings.Trim(mark(origin), "[]") + ":"})
		default:
			inline = mark(origin)
		}
		for _, r := range group {
			out = append(out, inbox.Block{Label: r.label, Text: r.value, Mark: inline, Tone: tones[r.style]})
		}
	}
	return out
}

// reasonBlocks tells why a person is asked, and names the rules.
func reasonBlocks(v *guard.ReviewView) (out []inbox.Block, rules []string) {
	out = []inbox.Block{{Text: "why a person is asked:", Tone: inbox.Strong}}
	for _, r := range v.Reasons {
		out = append(out, inbox.Block{Lead: "- ", Text: r.Rule + ": " + r.Detail})
		if r.Rule != "history" {
			rules = append(rules, r.Rule)
		}
	}
	for _, code := range v.Warnings {
		out = append(out, inbox.Block{Lead: "! ", Text: warningText(code), Tone: inbox.Warn})
	}
	return out, rules
}

// evidenceBlocks are all operations the reasons rest on, by rule and run, and those
// of them that a person may know more of.
func evidenceBlocks(v *guard.ReviewView, to string) (out []inbox.Block, open []inbox.Operation) {
	for _, r := range v.Reasons {
		run := ""
		for i, ref := range r.Evidence {
			if i == 0 {
				out = append(out, inbox.Block{Text: "evidence of " + r.Rule + ":"})
			}
			if i == 0 || ref.Run != run {
				run = ref.Run
				out = append(out, inbox.Block{Lead: "in run ", Text: run})
			}
			out = append(out, inbox.Block{Lead: "  ", Text: operationShown(ref)})
			name := operationIn(ref)
			if slices.Contains(resolvable, r.Rule) && !slices.ContainsFunc(open, func(op inbox.Operation) bool { return op.Name == name }) {
				counts := "evidence of " + r.Rule
				open = append(open, inbox.Operation{Name: name, Summary: "an operation this is asked about", To: to, As: counts, Ref: ref,
					Body: []inbox.Block{{Label: "operation", Text: name}, {Label: "counts as", Text: counts}}})
			}
		}
		if more := max(r.Total, len(r.Evidence)) - len(r.Evidence); more > 0 && len(r.Evidence) > 0 {
			out = append(out, inbox.Block{Lead: "  ", Text: "and " + plain.Number(int64(more)) + " more"})
		}
	}
	return out, open
}

// operationShown is the id of an operation alone.
func operationShown(r decision.Ref) string {
	if r.Operation == nil {
		return operationName(nil, true)
	}
	return operationName([]byte(*r.Operation), false)
}

// whom says in one sentence where the money would go.
func whom(v *guard.ReviewView, p payee) string {
	text := "to " + p.to
	if p.to == "" {
		text = "to whatever address the host asks for"
	}
	if len(p.hosts) > 0 {
		text += " at " + strings.Join(p.hosts, ", ")
	}
	if v.Network != "" {
		text += " on " + network(v.Network)
	}
	return text
}

// openEntries are operations whose money is not accounted for.
func openEntries(p *guard.Policy, found []guard.OpenOperation, now time.Time) []inbox.Operation {
	out := make([]inbox.Operation, len(found))
	for i, op := range found {
		out[i] = openEntry(p, op, now)
	}
	return out
}

func openEntry(p *guard.Policy, op guard.OpenOperation, now time.Time) inbox.Operation {
	e := inbox.Operation{Name: operationIn(op.Ref), Summary: openAmount(p, op), To: "a payee that cannot be read", As: "open: paid, and no answer says what became of it", Ref: op}
	if op.Counterparty != "" {
		e.To = payment.Display(op.Counterparty)
	}
	when := "at a time that cannot be read"
	if !op.At.IsZero() {
		when = moment(op.At) + ", " + away(op.At, now)
		e.Summary += ", " + away(op.At, now)
	}
	if op.Blind {
		e.As = "blind: this side could not see what became of it"
	}
	paid := openAmount(p, op)
	if n := op.Shown.Payments; n > 1 {
		paid += ", the first of " + plain.Plural(n, "payment")
	}
	e.Body = []inbox.Block{
		{Label: "paid", Text: paid, Tone: inbox.Strong}, {Label: "to", Text: e.To, Tone: inbox.Strong},
		{Label: "when", Text: when}, {Label: "counts as", Text: e.As}, {Label: "operation", Text: e.Name},
	}
	return e
}

func openAmount(p *guard.Policy, op guard.OpenOperation) string {
	if op.Amount == "" || op.Asset == "" {
		return "an amount that cannot be read"
	}
	return p.Display(op.Asset, op.Amount) + onNetwork(op.Asset)
}

// signing says which key approvals are signed with, and why it cannot sign.
func (d *desk) signing() (file, fault string) {
	operators := d.g.Policy().Operators
	if len(operators) == 0 {
		return "", ""
	}
	file, _, err := d.a.operatorKey(operators, d.o)
	if err != nil {
		e := errcode.Of(err)
		if fault = e.Message; e.Hint != "" {
			fault += ". try: " + e.Hint
		}
	}
	return file, fault
}

func (d *desk) Unlock(ctx context.Context, passphrase []byte) error {
	_, content, err := d.a.operatorKey(d.g.Policy().Operators, d.o)
	if err != nil {
		return err
	}
	key, err := leave(ctx, func() (decision.Signer, error) { return decision.OpenKey(content, passphrase) })
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.key = key
	return nil
}

// signer is the key that was opened, where one has to sign.
func (d *desk) signer() decision.Signer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.key
}

func (d *desk) Decide(ctx context.Context, act inbox.Act) ([]inbox.Block, error) {
	decide := guard.Decision{IDs: act.IDs, Decision: act.Decision, Note: act.Note, Freeze: act.Freeze}
	if act.Decision == "approved" {
		decide.Signer = d.signer()
		// A signature is over the line a review was opened with. It has to be the one
		// that was on the screen, even if somebody has put another log in its place.
		for i, id := range act.IDs {
			v, err := d.g.Review(ctx, id, 0)
			if err != nil {
				return nil, d.worded(err)
			}
			if factsOf(v) != act.Facts[i] {
				return nil, errcode.New(errcode.Input, "look at it again; if nobody has changed the log on purpose, stop the agent and run "+d.o.after("audit verify"), "approve %s: it is no longer what was on the screen", v.ID)
			}
		}
	}
	views, err := d.g.Decide(ctx, decide)
	if err != nil {
		return nil, d.worded(err)
	}
	var out []inbox.Block
	for i := range views {
		v := &views[i]
		d.did(decided(act.Decision, v))
		out = append(out, inbox.Block{Text: decided(act.Decision, v), Tone: tones[statusStyle(v.Status)]})
		switch {
		case act.Decision == "approved":
			out = append(out, inbox.Block{Text: "for one payment, until " + moment(v.ExpiresAt)})
		case act.Freeze:
			out = append(out, inbox.Block{Text: "and frozen: every payment to this payee is blocked; to end that:"},
				inbox.Block{Text: d.o.again("unfreeze --counterparty " + shellWord(frozenBy(v)))})
		case act.Decision == "rejected":
			out = append(out, inbox.Block{Text: "to take that back: " + d.o.again("review reopen "+v.ID)})
		}
	}
	return out, nil
}

func (d *desk) Freeze(ctx context.Context, reason string) ([]inbox.Block, error) {
	scope, err := d.g.Freeze(ctx, "", reason)
	if err != nil {
		return nil, d.a.orByFile(freezeOptions{guarded: *d.o}, d.worded(err))
	}
	text := "frozen: " + frozenScope(scope, "is blocked")
	d.did(text)
	return []inbox.Block{{Text: text, Tone: inbox.Bad}, {Text: "to end it:"}, {Text: d.o.again("unfreeze")}}, nil
}

func (d *desk) Resolve(ctx context.Context, ops []inbox.Operation, outcome, note string) ([]inbox.Block, error) {
	all := make([]guard.Resolution, len(ops))
	for i, op := range ops {
		found := op.Ref.(guard.OpenOperation)
		all[i] = guard.Resolution{Ref: found.Ref, Outcome: outcome, Note: note, Shown: found.Shown, Signer: d.signer()}
	}
	if err := d.g.Resolve(ctx, all); err != nil {
		return nil, d.worded(err)
	}
	counts := "it counts as spent"
	if outcome == "failed" {
		counts = "it does not count as spent"
	}
	var out []inbox.Block
	for _, r := range all {
		text := "resolved as " + outcome + ": " + operationIn(r.Ref) + "; " + counts
		d.did(text)
		out = append(out, inbox.Block{Text: text, Tone: inbox.Good},
			inbox.Block{Text: "to take that back: " + strings.Replace(resolveCommand(d.o, r.Ref), ` --as settled --note "..."`, " --undo", 1)})
	}
	return out, nil
}

// receipts gives them; *ingest.Indexer does.
type receipts interface {
	Receipt(ctx context.Context, r ingest.Ref, template string) (*ingest.Receipt, error)
}

func (d *desk) Explain(ctx context.Context, op inbox.Operation) ([]inbox.Block, error) {
	ref := op.Ref.(guard.OpenOperation).Ref
	at := ingest.Ref{Run: decision.DecodeID(ref.Run), Null: ref.Operation == nil}
	if ref.Operation != nil {
		at.Operation = decision.DecodeID(*ref.Operation)
	}
	x, ok := d.x.(receipts)
	if !ok {
		return nil, errcode.New(errcode.Internal, d.o.again("explain"), "read what is on record of %s", op.Name)
	}
	r, err := x.Receipt(ctx, at, assemble.DefaultTemplate)
	if err != nil {
		return nil, d.worded(err)
	}
	var out []inbox.Block
	for _, row := range paidTable(r).rows {
		out = append(out, inbox.Block{Label: row[0], Text: row[1]})
	}
	out = append(out, inbox.Block{})
	for line := range strings.SplitSeq(mcp.Explanation(r, nil), "\n") {
		body := strings.TrimLeft(line, " |-")
		out = append(out, inbox.Block{Lead: line[:len(line)-len(body)], Text: body})
	}
	return out, nil
}
