package decision

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/tidwall/btree"
)

// fold adds lines up. Its State is what they have come to so far; whoever is given
// a state gets a snapshot of it.
//
// Clocks go backwards. A line is never refused for that, but nothing may become
// looser through it: an approval ends when its time is over, and also when a line
// says that the clock has been past its end, or before its beginning; a rejection
// and a hold also last for their time after the newest time the log had shown when
// they were written.
type fold struct {
	*State
	operators map[string]operator          // by public key
	keys      *btree.Map[string, struct{}] // digests of what signatures that count were over
	maxAt     time.Time                    // the newest time of any line
	told      []*verdict                   // as in State.verdicts, oldest first
	next      time.Time                    // no live review has an earlier deadline; zero: none is live
	ahead     time.Time                    // no approval began later
	behind    int64                        // lines behind a fault that were looked at
	beginning string                       // why the log may not begin as it does; "" when it may
}

type operator struct {
	Operator
	key ed25519.PublicKey
}

type verdict struct {
	key string
	at  time.Time
}

func newFold(operators map[string]operator) *fold {
	return &fold{State: newState(), operators: operators, keys: &btree.Map[string, struct{}]{}}
}

// clone is a fold that goes its own way from here. It costs the same however much
// was folded.
func (f *fold) clone() *fold {
	c := *f
	c.State, c.keys = f.State.snapshot(), f.keys.Copy()
	c.told = slices.Clip(f.told)
	return &c
}

// apply adds a verified line.
func (f *fold) apply(l *line) {
	f.pass(l.At)
	f.lines, f.sig, f.at = l.Seq, l.Sig, l.At
	if l.Seq == 1 {
		f.first = l.Sig
		switch l.body.(type) {
		case *Recovered, *Adopted:
			f.began = l.At
		}
	}
	f.add(l, false)
	if l.At.After(f.maxAt) {
		f.maxAt = l.At
	}
}

// tighten adds what tightens of a line that stands behind a fault: whether it was
// written by one of ours nobody can tell, so that it may restrict and not permit,
// unless an operator signed it. It gets a number of its own, since the one it
// bears may be another line's.
func (f *fold) tighten(l *line) {
	f.behind++
	l.Seq = f.lines + f.behind
	f.add(l, true)
}

func (f *fold) add(l *line, doubtful bool) {
	switch b := l.body.(type) {
	case *Policy:
		if !doubtful {
			f.policy = b
			if len(b.Operators) > 0 {
				f.manned = b
			}
		}
	case *Opened:
		f.open(l, b)
	case *Decided:
		f.decide(l, b, doubtful)
	case *ApprovalUsed:
		if b.By.Run != "" {
			f.consume(Ref{b.By.Run, b.By.Operation})
		}
		f.use(b.ReviewID, b.By, l)
	case *Allowed:
		f.verdict("allowed", b.Intent, "", l.At)
	case *Blocked:
		f.verdict("blocked", b.Intent, b.Rule, l.At)
	case *Held:
		f.hold(l, b)
	case *Released:
		if doubtful {
			return
		}
		if seq, ok := f.holdIDs.Delete(b.HoldID); ok {
			f.holds.Delete(seq)
		}
		if b.Why == WhyPaid && b.By != nil {
			f.consume(*b.By)
		}
	case *Denied:
		if b.Burnt != "" {
			f.burn(b.Burnt, l, false)
		}
	case *Authorized:
		f.issue(l, b, doubtful)
	case *Executed:
		f.execute(l, b)
	case *Frozen:
		f.frozen.Set(b.Scope, &frozenState{*b, l.At})
	case *Unfrozen:
		frozen, ok := f.frozen.Get(b.Scope)
		if !ok {
			return
		}
		if _, ok := f.counts(l, doubtful, frozen.at); ok {
			f.frozen.Delete(b.Scope)
		}
	case *Resolved:
		if _, ok := f.counts(l, doubtful, time.Time{}); ok {
			f.resolved.Set(b.key(), b)
			f.closedBy = f.named(l)
		}
	case *Unresolved:
		f.resolved.Delete(b.key())
		f.closedBy = f.named(l)
	case *Baseline:
		if _, ok := f.counts(l, doubtful, time.Time{}); !ok {
			return
		}
		f.baseline = b
		f.baselineRuns = make(map[string]Covered, len(b.Runs))
		for _, c := range b.Runs {
			f.baselineRuns[c.Run] = c
		}
		f.rewritten.Clear()
		f.closedBy = f.named(l)
	case *Seen:
		for _, c := range b.Runs {
			if _, known := f.seen.Get(c.Run); known && doubtful {
				continue // to have seen less of it would be looser
			}
			f.seen.Set(c.Run, c)
		}
		f.seenAt = l.At
	case *Rewritten:
		f.rewrite(l, b)
	case *Acknowledged:
		var since time.Time
		if all := f.Rewritten(b.Run); len(all) > 0 {
			since = all[len(all)-1].At
		}
		if _, ok := f.counts(l, doubtful, since); ok {
			f.rewrites.Delete(b.Run)
			f.acks.Set(b.Run, b)
		}
	case *Recovered, *Adopted:
		f.begin(l, doubtful)
	}
}

// begin takes a line that says how the log began. Whoever begins a log anew drops
// what the old one had permitted and counted, so where operators are named one of
// them has to have signed it (guard contract, section 4).
func (f *fold) begin(l *line, doubtful bool) {
	switch {
	case doubtful:
	case l.Seq != 1:
		f.ignore(l, errcode.Input, "a log can only begin with it")
	default:
		before := f.ignoredTotal
		if _, ok := f.counts(l, false, time.Time{}); !ok && f.ignoredTotal > before {
			f.beginning = "it begins behind a log that was set aside, and " + f.ignored[len(f.ignored)-1].Why
		}
	}
}

// ignoredKept is how many ignored acts are kept to be shown.
const ignoredKept = 100

func (f *fold) ignore(l *line, code errcode.Code, why string) {
	if len(f.ignored) >= ignoredKept {
		f.ignored = slices.Clone(f.ignored[len(f.ignored)-ignoredKept+1:])
	}
	f.ignored = append(f.ignored, Ignored{Seq: l.Seq, Type: l.Type, Why: why, code: code})
	f.ignoredTotal++
}

// pass notes that the clock showed a time when a line was written.
func (f *fold) pass(at time.Time) {
	if !f.next.IsZero() && !at.Before(f.next) || at.Add(skew).Before(f.ahead) {
		f.lapse(at)
	}
}

// lapse ends what had expired at a time, for good: a clock that is set back later
// revives nothing.
func (f *fold) lapse(at time.Time) {
	var over []string
	f.next, f.ahead = time.Time{}, time.Time{}
	f.live.Scan(func(key string, r *ReviewState) bool {
		if r.expired(at) {
			over = append(over, key)
			return true
		}
		f.watch(r)
		return true
	})
	for _, key := range over {
		r, _ := f.live.Get(key)
		r = r.copy()
		r.lapsed = true
		f.live.Delete(key)
		f.keep(r)
	}
}

// watch remembers when a live review is to be looked at again.
func (f *fold) watch(r *ReviewState) {
	if f.next.IsZero() || r.deadline.Before(f.next) {
		f.next = r.deadline
	}
	if r.status == StatusApproved && r.since.After(f.ahead) {
		f.ahead = r.since
	}
}

func (r *ReviewState) copy() *ReviewState {
	c := *r
	c.Decisions = slices.Clip(c.Decisions)
	return &c
}

// liveKey orders live reviews by intent, then by age.
func (r *ReviewState) liveKey() string {
	return string(binary.BigEndian.AppendUint64([]byte(intentKey(r.Intent)), uint64(r.Seq)))
}

// keep puts a changed review in its places.
func (f *fold) keep(r *ReviewState) {
	f.reviews.Set(r.ReviewID, r)
	f.opened.Set(r.Seq, r)
	if (r.status == StatusPending || r.status == StatusApproved) && !r.lapsed {
		f.live.Set(r.liveKey(), r)
		f.watch(r)
	} else {
		f.live.Delete(r.liveKey())
	}
}

func (f *fold) open(l *line, b *Opened) {
	if _, known := f.reviews.Get(b.ReviewID); known {
		f.ignore(l, errcode.Input, "there is a review of that id already")
		return
	}
	f.keep(&ReviewState{
		Opened: *b, Seq: l.Seq, At: l.At, OpenedSig: l.Sig, Actor: l.Actor,
		status: StatusPending, since: l.At, deadline: b.ExpiresAt,
	})
}

func (f *fold) decide(l *line, b *Decided, doubtful bool) {
	old, ok := f.reviews.Get(b.ReviewID)
	if !ok {
		f.ignore(l, errcode.ReviewNotFound, "there is no review of that id")
		return
	}
	r := old.copy()
	d := Decision{Decided: *b, Seq: l.Seq, At: l.At, Actor: l.Actor}
	d.Hash, _ = Hash(b) // a line that was read has one
	// The more cautious of the two times: when it was signed, when it was written.
	since := l.At
	if t, err := time.Parse(stampForm, b.SignedAt); err == nil && t.Before(since) {
		since = t
	}
	from := map[string]string{Approved: StatusPending, Rejected: StatusPending, Revoked: StatusApproved, Reopened: StatusRejected}[b.Decision]
	if r.status != from {
		f.ignore(l, errcode.ReviewDecided, "the review was "+r.status+" then")
		return
	}
	switch b.Decision {
	case Approved, Reopened:
		if r.status == StatusPending && r.expired(l.At) {
			f.ignore(l, errcode.ReviewExpired, "the review had expired")
			return
		}
		if d.Operator, ok = f.counts(l, doubtful, r.since); !ok {
			return
		}
		r.deadline, r.lapsed = since.Add(r.Opened.ExpiresAt.Sub(r.At)), false
	default:
		d.Operator, _ = f.signer(l, time.Time{})
	}
	if d.Operator == "" {
		// Nobody shall take for signed what was only said to be.
		d.Signature, d.Key = "", ""
	}
	if r.status == StatusRejected {
		f.rejected.Delete(r.Last().Seq)
	}
	r.Decisions = append(r.Decisions, d)
	r.since, r.ReceiptID = since, ""
	r.status = map[string]string{Approved: StatusApproved, Rejected: StatusRejected, Revoked: StatusRevoked, Reopened: StatusPending}[b.Decision]
	if r.status == StatusRejected {
		r.since, r.stuck = l.At, later(l.At, f.maxAt)
		f.rejected.Set(l.Seq, r)
	}
	f.keep(r)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// use spends an approval. That it had expired does not matter: spent is stricter.
func (f *fold) use(id string, by UsedBy, l *line) {
	old, ok := f.reviews.Get(id)
	if !ok || old.status != StatusApproved {
		return
	}
	r := old.copy()
	r.status, r.Used, r.UsedAt = StatusUsed, &by, l.At
	f.keep(r)
}

func (f *fold) consume(ref Ref) {
	key := digest(ref.key())
	n, _ := f.consumed.Get(key)
	f.consumed.Set(key, n+1)
}

// A hold that no line ends is dropped in the end: long after its time, and long
// enough in the log that no clock that was wrong for a while can be the reason.
const (
	holdKept      = 24 * time.Hour
	holdKeptLines = 10_000
)

func (f *fold) hold(l *line, b *Held) {
	f.holds.Set(l.Seq, &HoldState{Held: *b, Seq: l.Seq, At: l.At, Actor: l.Actor, base: later(l.At, f.maxAt)})
	f.holdIDs.Set(b.HoldID, l.Seq)
	if b.ReviewID != "" {
		f.use(b.ReviewID, UsedBy{HoldID: b.HoldID}, l)
	}
	for {
		seq, h, ok := f.holds.Min()
		if !ok || l.Seq-seq < holdKeptLines || h.Active(l.At) || l.At.Before(h.ExpiresAt.Add(holdKept)) {
			return
		}
		f.holds.Delete(seq)
		if at, ok := f.holdIDs.Get(h.HoldID); ok && at == seq {
			f.holdIDs.Delete(h.HoldID)
		}
	}
}

// rewrite takes note of vanished evidence. What people said of what the run held
// no longer holds for what it holds now.
func (f *fold) rewrite(l *line, b *Rewritten) {
	all := append(slices.Clip(f.Rewritten(b.Run)), &RewrittenState{*b, l.Seq, l.At})
	f.rewrites.Set(b.Run, &all)
	f.rewritten.Set(b.Run, struct{}{})
	f.seen.Delete(b.Run)
	f.acks.Delete(b.Run)
	var gone []string
	for r := range f.ResolutionsOf(b.Run) {
		gone = append(gone, r.key())
	}
	for _, key := range gone {
		f.resolved.Delete(key)
	}
	f.closedBy = f.named(l)
}

// named tells a line from every other. One behind a fault may bear the number and the
// signature of the line that was there, and say something else.
func (f *fold) named(l *line) string { return fmt.Sprint(l.Seq, " ", f.behind, " ", l.Sig) }

func (f *fold) verdict(kind string, in Intent, rule string, at time.Time) {
	v := &verdict{verdictKey(kind, in, rule), at}
	f.verdicts.Set(v.key, v)
	f.told = append(f.told, v)
	for len(f.told) > 0 {
		old := f.told[0]
		if d := at.Sub(old.at); d < verdictsLast && d > -verdictsLast {
			return
		}
		if last, _ := f.verdicts.Get(old.key); last == old {
			f.verdicts.Delete(old.key)
		}
		f.told = f.told[1:]
	}
}

// counts reports whether an act that loosens does, and who signed it; it takes note
// of one that does not. since is when the log came to what the act changes: no
// signature from before that can have meant it.
func (f *fold) counts(l *line, doubtful bool, since time.Time) (name string, ok bool) {
	if len(f.operators) == 0 {
		return "", !doubtful
	}
	name, why := f.signer(l, since)
	if why != "" {
		f.ignore(l, errcode.OperatorKey, why)
		return "", false
	}
	return name, true
}

// signer is whose signature an act bears (guard contract, section 4), "" and why
// when it is nobody's.
func (f *fold) signer(l *line, since time.Time) (name, why string) {
	s := signed(l.body)
	if s == nil || s.Signature == "" || s.Key == "" {
		return "", "no operator signed it"
	}
	op, ok := f.operators[s.Key]
	if !ok {
		return "", "it is signed with a key that is no operator's"
	}
	payload, err := f.payload(l.act, l.body, l.Seq == 1)
	if err != nil {
		return "", err.Error()
	}
	sig, err := base64.StdEncoding.DecodeString(s.Signature)
	if err != nil || base64.StdEncoding.EncodeToString(sig) != s.Signature || !ed25519.Verify(op.key, payload, sig) {
		return "", "its signature is not one of " + op.Name + " over this act in this log"
	}
	at, err := time.Parse(stampForm, s.SignedAt)
	if err != nil {
		return "", "it does not say when it was signed"
	}
	if at.Add(skew).Before(since) {
		return "", "it was signed before that was so"
	}
	// A retired key could date its acts back; the lines before it cannot be.
	if !op.Until.IsZero() && !(at.Before(op.Until) && l.At.Before(op.Until) && f.maxAt.Before(op.Until)) {
		return "", "the key of " + op.Name + " was retired on " + stamp(op.Until)
	}
	key := digest(string(payload), s.Key)
	if _, again := f.keys.Set(key, struct{}{}); again {
		return "", "that signature was used before, and each counts once"
	}
	return op.Name, ""
}

// payload is what the signature of an act is over: its own members, the log they
// are meant for, and of a review what was shown.
func (s *State) payload(act []byte, body Body, first bool) ([]byte, error) {
	p := []byte(`{"line":`)
	p = append(p, act...)
	log := s.first
	switch body.(type) {
	case *Recovered, *Adopted:
		if !first {
			return nil, fmt.Errorf("a log can only begin with it")
		}
		log = "" // the line that names the log is this one
	default:
		if first || log == "" {
			return nil, fmt.Errorf("the first line of a log cannot be signed, since it is what signatures are bound to")
		}
	}
	p = append(p, `,"log":"`+log+`"`...)
	if d, ok := body.(*Decided); ok {
		r := s.Review(d.ReviewID)
		if r == nil {
			return nil, fmt.Errorf("there is no review of that id")
		}
		p = append(p, `,"opened":"`+r.OpenedSig+`"`...)
	}
	return append(p, '}'), nil
}

// act is the part of a body that is signed.
func act(body Body) ([]byte, error) {
	m, err := members(body)
	if err != nil {
		return nil, err
	}
	delete(m, "signature")
	delete(m, "key")
	return canon.Marshal(m)
}
