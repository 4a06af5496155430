package decision

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

// SetAside says how [Log.Recover] and [Log.Adopt] are done.
type SetAside struct {
	Actor       string
	By          Signer                 // nil for unsigned
	StickyHours int                    // rejections older than this are not carried; 0 means 24
	Intent      func(f Foreign) Intent // Adopt: what a foreign review is about; nil keeps names only
}

// Foreign is what could be read of a review in the log of another program. All
// text is as it stands there.
type Foreign struct {
	ReviewID, Counterparty, PayTo, Amount, Asset, Resource, Template, Network, Note string

	Rejected bool      // else pending
	At       time.Time // of the last thing said of it; zero where that cannot be read
}

// Carried says what a new log took over.
type Carried struct {
	File   string // name of the file that was set aside, "" when there was none
	SHA256 string
	Lines  int64 // of it, complete ones

	Freezes, Rejections, Pending, Holds, Rewrites, Runs int

	Receipts int // that were good for something today; none is good any more
}

// Recover sets an unsound log aside, byte for byte, and begins a new one that
// carries on every tightening that can still be read: freezes, rejections that
// stick, pending reviews, holds, vanished evidence and what had been seen. What
// permits is not carried on: approvals, resolutions, acknowledgements, the
// baseline. Where operators are named one of them must sign it.
//
// The error is an E_INPUT when the log verifies, an E_OPERATOR_KEY, or one of
// those of [Log.Update].
func (l *Log) Recover(ctx context.Context, how SetAside) (*Carried, error) {
	return l.beginAnew(ctx, how, false)
}

// Adopt does the same with the log of another program, of which reviews,
// rejections and freezes are read as far as they look like some. The error is an
// E_INPUT when the log is ours.
func (l *Log) Adopt(ctx context.Context, how SetAside) (*Carried, error) {
	return l.beginAnew(ctx, how, true)
}

// newName is the new log until it takes the old one's place.
const newName = "decisions.new"

func (l *Log) beginAnew(ctx context.Context, how SetAside, adopt bool) (*Carried, error) {
	if how.StickyHours == 0 {
		how.StickyHours = 24
	}
	if len(l.operators) > 0 && how.By == nil {
		return nil, errcode.New(errcode.OperatorKey, "run it on a terminal, with an operator's key", "the policy names operators, and a log begins anew only when one of them signs it")
	}
	var carried *Carried
	err := l.locked(ctx, func(dir Dir) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		_, err := l.refresh(ctx, dir)
		var bad *Unsound
		if err == nil {
			return errcode.New(errcode.Input, "nothing is to be done", "the decisions log %s verifies", l.Path())
		}
		if !errors.As(err, &bad) {
			return err
		}
		if adopt && !bad.Foreign {
			return errcode.New(errcode.Input, "run `settlewatch audit recover`", "the decisions log %s is not that of another program", l.Path())
		}
		carried, err = l.replace(ctx, dir, how, adopt)
		return err
	})
	if err != nil {
		return nil, err
	}
	return carried, nil
}

// replace puts a new log in the old one's place. At every moment one of the two is
// there, so that nothing that blocks is ever lifted by a crash.
func (l *Log) replace(ctx context.Context, dir Dir, how SetAside, adopt bool) (*Carried, error) {
	fail := func(err error) (*Carried, error) {
		return nil, l.cannot(err, "begin the decisions log anew")
	}
	now := l.o.Now()
	c, old, err := l.salvage(ctx, dir, how, adopt, now)
	if err != nil {
		return fail(err)
	}
	entries, err := l.beginning(c, old, how, adopt, now)
	if err != nil {
		return nil, err
	}
	text, lines, err := compose(0, "", now, entries)
	if err != nil {
		return fail(err)
	}
	// One that was left half written by a crash is nobody's log.
	if err := dir.Remove(newName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	f, err := dir.Create(newName)
	if err != nil {
		return fail(err)
	}
	if _, err = f.Write(text); err == nil {
		err = f.Sync()
	}
	_ = f.Close() // what counts was synced
	if err == nil {
		err = dir.Rename(newName, FileName)
	}
	// From here on the new log may be the log, whatever else fails.
	l.look, l.last, l.bad, l.stable = l.nothing(), file{}, nil, 0
	if err == nil {
		err = dir.Sync()
	}
	if err != nil {
		return fail(err)
	}
	if l.o.Checkpoint != "" {
		last := lines[len(lines)-1]
		pin := Checkpoint{Count: last.Seq, Sig: last.Sig, At: whole(now)}
		if err := l.o.FS.WriteFile(l.o.Checkpoint, pin.Append(nil)); err != nil {
			return nil, errcode.Wrap(err, errcode.LogWrite, "remove "+l.o.Checkpoint+", which pins the log that was set aside", "write the checkpoint of the new decisions log")
		}
	}
	_, err = l.refresh(ctx, dir)
	return c, err
}

// salvage copies the old file aside and adds up what tightens in it.
func (l *Log) salvage(ctx context.Context, dir Dir, how SetAside, adopt bool, now time.Time) (*Carried, *State, error) {
	c := &Carried{}
	f, info, err := dir.Open(FileName)
	if errors.Is(err, fs.ErrNotExist) {
		return c, newState(), nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	h, lines := sha256.New(), &newlines{}
	src := func() io.Reader { return &reading{ctx, io.NewSectionReader(f, 0, info.Size)} }
	if _, err := io.Copy(io.MultiWriter(h, lines), src()); err != nil {
		return nil, nil, err
	}
	c.SHA256 = hex.EncodeToString(h.Sum(nil))
	kind := "unsound"
	if adopt {
		kind = "foreign"
	}
	c.File, err = keepAside(dir, "decisions-"+kind+"-"+c.SHA256[:12], ".ndjson", info.Size, src)
	if err != nil {
		return nil, nil, err
	}

	// What verifies is believed as it stands, unless it is the whole that cannot
	// be trusted: a log that is behind a checkpoint, or not the one it pins.
	v, trusted := newVerifier(), newFold(l.operators)
	pin, unreadable := l.readPin()
	pinned := unreadable == nil && pin.Count == 0
	err = v.follow(ctx, f, info.Size, func(lines []*line) error {
		for _, in := range lines {
			pinned = pinned || in.Seq == pin.Count && in.Sig == pin.Sig
			trusted.apply(in)
		}
		return nil
	})
	var at *broken
	if err != nil && !errors.As(err, &at) {
		return nil, nil, err
	}
	from := v.bytes
	if !pinned {
		trusted, from = newFold(l.operators), 0
	}
	theirs := newStrangers()
	err = eachLine(ctx, f, from, info.Size, func(raw []byte) error {
		if in := lenient(raw, now); in != nil {
			trusted.tighten(in)
		} else {
			theirs.add(raw)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	c.Lines = lines.n
	theirs.carry(trusted, how, now)
	return c, trusted.snapshot(), nil
}

// newlines counts them.
type newlines struct{ n int64 }

func (w *newlines) Write(p []byte) (int, error) {
	w.n += int64(bytes.Count(p, []byte("\n")))
	return len(p), nil
}

// beginning restates what tightens, behind the line that says where it is from.
func (l *Log) beginning(c *Carried, old *State, how SetAside, adopt bool, now time.Time) ([]entry, error) {
	var rest []entry
	put := func(actor string, b Body) { rest = append(rest, entry{actor, b}) }
	for _, f := range old.AllFrozen() {
		put(how.Actor, f)
		c.Freezes++
	}
	span := func(r *ReviewState) time.Duration {
		if d := r.Opened.ExpiresAt.Sub(r.At); d > 0 && !r.At.IsZero() {
			return d
		}
		return 24 * time.Hour
	}
	for r := range old.Rejections(now, how.StickyHours) {
		b := r.Opened
		b.ExpiresAt = now.Add(span(r))
		put(r.Actor, b)
		put(how.Actor, Decided{ReviewID: r.ReviewID, Decision: Rejected, Note: r.Last().Note, Signed: Signed{DecidedBy: r.Last().DecidedBy}})
		c.Rejections++
	}
	for r := range old.Reviews() {
		if r.Status(now) != StatusPending {
			continue
		}
		b := r.Opened
		b.ExpiresAt = r.deadline // it is no younger for being restated
		put(r.Actor, b)
		c.Pending++
	}
	for _, h := range old.Holds(now) {
		b := h.Held
		b.ReviewID = "" // approvals are not carried on
		put(h.Actor, b)
		c.Holds++
	}
	// No receipt is carried on, but what it may have spent today still counts.
	old.spends.Scan(func(_ string, r *ReceiptState) bool {
		if day(later(r.At, r.BurntAt)) >= day(now) && (r.Alive(now) || !r.BurntAt.IsZero()) {
			b := r.Authorized
			b.ReviewID = ""
			put(how.Actor, b)
			put(how.Actor, Executed{ReceiptID: b.ReceiptID, ReceiptHash: b.ReceiptHash, Tool: b.Tool, Scope: b.Scope, ArgsHash: b.ArgsHash, Canon: b.Canon})
			c.Receipts++
		}
		return true
	})
	for _, all := range old.RewrittenRuns() {
		for _, r := range all {
			put(how.Actor, r.Rewritten)
			c.Rewrites++
		}
	}
	seen := slices.Collect(old.SeenRuns())
	c.Runs = len(seen)
	for runs := range slices.Chunk(seen, 10_000) {
		put(how.Actor, Seen{Runs: runs})
	}

	var first Body = &Recovered{File: c.File, SHA256: c.SHA256, Lines: c.Lines, Carried: len(rest)}
	if adopt {
		first = &Adopted{File: c.File, SHA256: c.SHA256, Lines: c.Lines, Carried: len(rest)}
	}
	if how.By != nil {
		var err error
		if first, err = Sign(first, newState(), how.By, now); err != nil {
			return nil, err
		}
	}
	return append([]entry{{how.Actor, first}}, rest...), nil
}

// strangers gathers what looks like reviews and freezes in lines of another
// program, in the order in which they appear.
type strangers struct {
	reviews map[string]*stranger
	order   []string
	freezes []Foreign
}

type stranger struct {
	Foreign
	approved bool
}

func newStrangers() *strangers { return &strangers{reviews: map[string]*stranger{}} }

// add reads one line: an object, or a list of objects, or an object that holds a
// list of reviews.
func (s *strangers) add(raw []byte) {
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return
	}
	s.value(v)
}

func (s *strangers) value(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			if o, ok := e.(map[string]any); ok {
				s.object(o)
			}
		}
	case map[string]any:
		for name, e := range v {
			if list, ok := e.([]any); ok && plainName(name) == "reviews" {
				s.value(list)
			}
		}
		s.object(v)
	}
}

func plainName(s string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(s))
}

// object reads an object by what its members are called, in it or in the object
// inside it that says what was asked.
func (s *strangers) object(o map[string]any) {
	flat := map[string]string{}
	var fill func(o map[string]any, depth int)
	fill = func(o map[string]any, depth int) {
		for name, v := range o {
			name = plainName(name)
			switch v := v.(type) {
			case string:
				if _, outer := flat[name]; !outer {
					flat[name] = v
				}
			case json.Number:
				if _, outer := flat[name]; !outer {
					flat[name] = v.String()
				}
			}
		}
		for name, v := range o {
			if in, ok := v.(map[string]any); ok && depth < 3 {
				switch plainName(name) {
				case "intent", "request", "input", "payment", "review", "args", "arguments", "data", "payload", "decision":
					fill(in, depth+1)
				}
			}
		}
	}
	fill(o, 0)
	get := func(names ...string) string {
		for _, n := range names {
			if flat[n] != "" {
				return flat[n]
			}
		}
		return ""
	}
	f := Foreign{
		ReviewID: get("reviewid", "id"), Counterparty: get("counterparty", "payee", "host", "to"), PayTo: get("payto"),
		Amount: get("amount"), Asset: get("asset"), Resource: get("resource", "url"), Template: get("template"),
		Network: get("network"), Note: get("note", "reason", "comment"),
	}
	for _, name := range []string{"decidedat", "at", "ts", "timestamp", "time", "createdat", "openedat", "requestedat"} {
		if t, err := time.Parse(time.RFC3339Nano, flat[name]); err == nil {
			f.At = t
			break
		}
	}
	var said string
	for _, name := range []string{"status", "decision", "verdict", "outcome", "type", "event", "kind", "action", "state"} {
		said += " " + strings.ToLower(flat[name])
	}
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(said, w) })
	}
	switch {
	case has("unfreeze", "unfrozen", "thaw"):
		// Who lifted it nobody can tell; a person lifts it again.
	case has("freeze", "frozen"):
		s.freezes = append(s.freezes, f)
	case has("reject", "denied", "deny", "declin"):
		f.Rejected = true
		s.review(f, false)
	case has("approve"):
		s.review(f, true)
	case has("pending", "review", "open", "request"):
		s.review(f, false)
	}
}

func (s *strangers) review(f Foreign, approved bool) {
	if f.ReviewID == "" {
		f.ReviewID = "adopted-" + hex.EncodeToString([]byte(digest(f.Counterparty, f.PayTo, f.Amount, f.Asset, f.Resource)))
	}
	old, ok := s.reviews[f.ReviewID]
	if !ok {
		s.reviews[f.ReviewID] = &stranger{f, approved}
		s.order = append(s.order, f.ReviewID)
		return
	}
	// A later line says what became of it and need not repeat what it was.
	old.Rejected = old.Rejected || f.Rejected
	old.approved = old.approved || approved
	for _, p := range []struct{ old, new *string }{
		{&old.Counterparty, &f.Counterparty}, {&old.PayTo, &f.PayTo}, {&old.Amount, &f.Amount}, {&old.Asset, &f.Asset},
		{&old.Resource, &f.Resource}, {&old.Template, &f.Template}, {&old.Network, &f.Network},
	} {
		if *p.old == "" {
			*p.old = *p.new
		}
	}
	if f.Note != "" {
		old.Note = f.Note
	}
	if !f.At.IsZero() {
		old.At = f.At
	}
}

// carry adds what was gathered to a fold, as if it had been decided here.
func (s *strangers) carry(strict *fold, how SetAside, now time.Time) {
	for _, f := range s.freezes {
		scopes := namesOf(f)
		if len(scopes) == 0 {
			scopes = []string{ScopeAll}
		}
		for _, scope := range scopes {
			strict.tighten(&line{Envelope: Envelope{At: now, Type: "frozen"}, body: &Frozen{Scope: scope, Reason: f.Note}})
		}
	}
	intent := how.Intent
	if intent == nil {
		intent = plainIntent
	}
	for _, id := range s.order {
		f := s.reviews[id]
		if f.approved && !f.Rejected || f.Counterparty == "" && f.PayTo == "" {
			continue
		}
		at := f.At
		if at.IsZero() || at.After(now) {
			at = now
		}
		strict.tighten(&line{Envelope: Envelope{At: now, Type: "opened"}, body: &Opened{
			ReviewID: id, Kind: "payment", Intent: intent(f.Foreign), Counterparty: f.Counterparty, Amount: f.Amount, Asset: f.Asset,
			PayTo: f.PayTo, Resource: f.Resource, Network: f.Network,
			Reasons:   []Reason{{Rule: "adopted", Detail: "carried over from the log of another program"}},
			ExpiresAt: now.Add(24 * time.Hour),
		}})
		if f.Rejected {
			strict.tighten(&line{Envelope: Envelope{At: at, Type: "decided"}, body: &Decided{ReviewID: id, Decision: Rejected, Note: f.Note}})
		}
	}
}

func namesOf(f Foreign) []string {
	names := append(payment.Names(f.Counterparty), payment.Names(f.PayTo)...)
	slices.Sort(names)
	return slices.Compact(names)
}

// plainIntent is what a foreign review is about as far as that can be told without
// a registry of assets: whom it was to pay.
func plainIntent(f Foreign) Intent {
	return Intent{Names: namesOf(f), Resource: payment.Resource(f.Resource), Template: f.Template, Typed: strings.TrimSpace(fmt.Sprintf("%s %s", f.Amount, f.Asset))}
}
