package guard

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/store"
)

// Check answers check_before_pay (guard contract, section 1). An error is one of the
// request; whatever keeps the guard from judging is a verdict, not_ready.
func (g *Guard) Check(ctx context.Context, r Request) (*Verdict, error) {
	if err := g.attach(&r); err != nil {
		return nil, err
	}
	ask, err := g.policy.Read(r)
	if err != nil {
		return nil, err
	}
	extra, err := g.template(r.Template)
	if err != nil {
		return nil, err
	}
	if r.ReviewID != "" {
		if err := g.known(ctx, r.ReviewID); err != nil {
			return nil, err
		}
	}
	if g.o.Fault != nil {
		return g.notReady(ctx, ask, g.o.Fault), nil //nolint:nilerr // a guard that cannot judge answers all the same
	}
	// History is brought up to date before the lock is taken, so that a long pass
	// keeps nobody waiting; under the lock little is left to read.
	covered, err := g.ready(ctx)
	if err != nil {
		return g.notReady(ctx, ask, err), nil
	}
	if ask.ReviewID != "" {
		// A payment uses an approval up as soon as it is on disk (guard contract,
		// section 4).
		covered = nil
	}
	var v *Verdict
	_, err = g.decide(ctx, r.Actor, covered, func(view *store.View, s *decision.State) (bodies []decision.Body, err error) {
		v, bodies, err = g.judge(view, s, ask, extra)
		return bodies, err
	})
	unsound := asUnsound(err)
	switch {
	case err == nil:
		g.keep(v.Hold)
		return v, nil
	case unsound != nil:
		return g.unsound(ctx, ask, extra, unsound), nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	default:
		// Nothing was appended, so nothing was promised.
		return g.notReady(ctx, ask, err), nil
	}
}

// ready waits for history for as long as the policy of the process allows. It gives
// what held before, which that history covers: a long log is verified before its lock
// is taken as well, and what is wrong with it shows under the lock.
func (g *Guard) ready(ctx context.Context) (covered *basis, err error) {
	limited, cancel := context.WithTimeout(ctx, g.o.SyncTimeout)
	defer cancel()
	log, _ := g.log.Read(limited)
	covered = &basis{log, g.now()}
	err = g.o.Index.Sync(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return nil, fmt.Errorf("the history was not indexed within %s; ask again in a moment", g.o.SyncTimeout)
	}
	return covered, err
}

// ask reads one snapshot of the index, brought up to date, within the time a check
// has.
func (g *Guard) ask(ctx context.Context, fn func(*store.View) error) error {
	return g.within(ctx, g.o.Index.Ask, fn)
}

func (g *Guard) within(ctx context.Context, ask func(context.Context, func(*store.View) error) error, fn func(*store.View) error) error {
	limited, cancel := context.WithTimeout(ctx, g.o.SyncTimeout)
	defer cancel()
	return ask(limited, fn)
}

// judge is the part of a check that runs under the lock: facts, verdict, and what
// is to be written before anybody is told.
func (g *Guard) judge(view *store.View, s *decision.State, ask *Ask, extra *assemble.Template) (*Verdict, []decision.Body, error) {
	now := g.now()
	q, err := g.gather(view, s, ask, extra, now)
	if err != nil {
		return nil, nil, err
	}
	record := g.record(s, q.m, ask, now)
	v := Judge(g.policy, q.f, record, ask, now)

	bodies := q.m.ended // holds and approvals that payments have used up
	switch v.Decision {
	case Allow:
		more, err := g.allowed(view, s, ask, v, now)
		if err != nil {
			return nil, nil, err
		}
		bodies = append(bodies, more...)
	case Review:
		more, err := g.opened(q, record, v, now)
		if err != nil {
			return nil, nil, err
		}
		if more != nil {
			bodies = append(bodies, more)
		}
	case Block:
		rule := blocking(v)
		if !s.RecentVerdict("blocked", ask.Intent, rule.Rule, now) {
			bodies = append(bodies, decision.Blocked{Intent: ask.Intent, Rule: rule.Rule, Detail: rule.Detail, PolicyHash: g.hash})
		}
	}
	return v, bodies, nil
}

// allowed gives the lines an allow needs on disk before it is told.
func (g *Guard) allowed(view *store.View, s *decision.State, ask *Ask, v *Verdict, now time.Time) ([]decision.Body, error) {
	var line decision.Body
	switch {
	// An approval is for one payment, so redeeming it always makes a hold (guard
	// contract, section 4).
	case ask.Hold || g.policy.Holds == "always" || v.Redeems != "":
		id, err := newID("h")
		if err != nil {
			return nil, err
		}
		h := decision.Held{HoldID: id, Intent: ask.Intent, ExpiresAt: now.Add(time.Duration(g.policy.HoldSeconds) * time.Second).UTC(), ReviewID: v.Redeems}
		if h.Before, err = g.before(view, s, ask.Intent, now); err != nil {
			return nil, err
		}
		v.Hold = &Hold{ID: id, Amount: g.policy.Units(ask.Intent.Asset, ask.Intent.Amount), Asset: ask.Intent.Asset, ExpiresAt: h.ExpiresAt}
		line = h
	case !g.policy.LogAllows || s.RecentVerdict("allowed", ask.Intent, "", now):
		return nil, nil
	default:
		line = decision.Allowed{Intent: ask.Intent, PolicyHash: g.hash, Checked: v.Checked}
	}
	return append(g.seen.lines(s), line), nil
}

// opened gives the line that asks a person, nil when one is asked already or may
// not be asked.
func (g *Guard) opened(q *gathering, r *Record, v *Verdict, now time.Time) (decision.Body, error) {
	s, ask := q.s, q.ask
	if v.NoReview() || ask.namesNobody() {
		return nil, nil
	}
	if open := s.PendingFor(ask.Intent, now); open != nil {
		v.ReviewID = open.ReviewID
		v.Handoff = g.handoff(v.ReviewID)
		return nil, nil
	}
	if id := usable(q, now); id != "" {
		v.ReviewID = id
		return nil, nil
	}
	if n := s.Pending(ask.Actor, now); n >= g.policy.MaxPendingReviews {
		last := &v.Reasons[len(v.Reasons)-1]
		last.Detail += fmt.Sprintf("; no review was opened, since %d are pending: decide some of them first", n)
		return nil, nil
	}
	id, err := newID("r")
	if err != nil {
		return nil, err
	}
	var refs []decision.Ref
	for _, reason := range v.Fired {
		refs = append(refs, reason.Evidence...)
	}
	made, err := q.made(refs)
	if err != nil {
		return nil, err
	}
	facts, shown := Opening(g.policy, q.f, r, ask, v)
	v.ReviewID = id
	v.Handoff = g.handoff(id)
	return decision.Opened{
		ReviewID: id, Kind: "payment", Intent: ask.Intent,
		Counterparty: plain.Clean(ask.Request.Counterparty, plain.Detail),
		Amount:       shownAmount(g.policy, ask), Asset: shownAsset(g.policy, ask),
		PayTo: ask.PayTo, Resource: ask.Intent.Resource, Network: ask.Network,
		Facts: facts, Shown: shown, Made: made, Reasons: v.Fired,
		ExpiresAt:  now.Add(time.Duration(g.policy.ReviewExpiryHours) * time.Hour).UTC(),
		PolicyHash: g.hash,
	}, nil
}

// usable is the newest approved and unused review of the same intent, which answers
// the same question; "" for none. One the request has just been shown not to be
// covered by is none, nor are older ones, so that nobody is sent from one to the
// other. One that a payment in the trace has used up is used, though the line that
// says so is only being written (guard contract, section 4).
func usable(q *gathering, now time.Time) string {
	for _, r := range slices.Backward(q.s.Approvals(now)) {
		if r.ReviewID == q.ask.ReviewID {
			break
		}
		if _, used := q.m.approvals[r.ReviewID]; !used && r.Intent.Same(q.ask.Intent) {
			return r.ReviewID
		}
	}
	return ""
}

// handoff says where a person decides, from configuration only.
func (g *Guard) handoff(id string) *Handoff {
	if u := g.policy.ReviewURL; u != "" {
		u = strings.ReplaceAll(u, "{review_id}", id)
		return &Handoff{Kind: "url", Target: u, Instruction: "ask the person who approves payments to open this address and decide review " + id}
	}
	return &Handoff{Kind: "command", Target: "settlewatch review show " + id + g.o.Repeat, Instruction: "ask the person who approves payments to run this command and decide"}
}

// notReady is the verdict of a guard that cannot judge. What freezes still does.
func (g *Guard) notReady(ctx context.Context, ask *Ask, cause error) *Verdict {
	policy := g.policy
	if g.o.Policy == nil {
		policy = nil // the defaults are not what the file says
	}
	r := &Record{Frozen: g.frozen(nil, ask)}
	// What people refused needs the log alone.
	if s, err := g.log.Read(ctx); err == nil {
		r = g.record(s, &matching{}, ask, g.now())
		r.Approval, r.NoApproval = nil, ""
	} else if unsound := asUnsound(err); unsound != nil {
		r = g.record(unsound.State, &matching{}, ask, g.now())
		r.Approval, r.NoApproval, r.Unsound = nil, "", unsound.Reason
	}
	return Judge(policy, &Facts{NotReady: why(cause)}, r, ask, g.now())
}

// unsound is the verdict where the log does not verify: what can still be read
// judges, nothing is written.
func (g *Guard) unsound(ctx context.Context, ask *Ask, extra *assemble.Template, cause *decision.Unsound) *Verdict {
	s := cause.State
	var v *Verdict
	err := g.ask(ctx, func(view *store.View) error {
		now := g.now()
		q, err := g.gather(view, s, ask, extra, now)
		if err != nil {
			return err
		}
		r := g.record(s, q.m, ask, now)
		r.Unsound = cause.Reason
		r.Approval, r.NoApproval = nil, ""
		v = Judge(g.policy, q.f, r, ask, now)
		return nil
	})
	if err != nil {
		return g.notReady(ctx, ask, err)
	}
	return v
}

// known refuses a review_id that no review has.
func (g *Guard) known(ctx context.Context, id string) error {
	s, err := g.log.Read(ctx)
	if err != nil {
		return nil //nolint:nilerr // the check itself says what is wrong with the log
	}
	if s.Review(id) == nil {
		return errcode.New(errcode.ReviewNotFound, "leave review_id out, or give the whole id that check_before_pay gave", "no review has the id %s", plain.Quote(id, plain.Detail))
	}
	return nil
}

// keep remembers that this process was given a hold: on stdio there is no other
// name for who may release it.
func (g *Guard) keep(h *Hold) {
	if h == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mine[h.ID] = true
}

// newID is an unguessable id. Its beginning tells people what it names.
func newID(kind string) (string, error) {
	var b [12]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	return kind + "-" + hex.EncodeToString(b[:]), nil
}

func blocking(v *Verdict) decision.Reason {
	for _, r := range v.Reasons {
		if v.blocks[r.Rule] {
			return r
		}
	}
	return v.Reasons[0]
}

// shownAmount and shownAsset are what a person reads: as typed where it could not
// be read.
func shownAmount(p *Policy, ask *Ask) string {
	switch {
	case ask.Intent.Amount != "":
	case ask.Amount != "":
		return plain.Clean(ask.Amount, plain.Detail)
	default:
		return plain.Clean(ask.Intent.Typed, plain.Detail)
	}
	return p.Units(ask.Intent.Asset, ask.Intent.Amount)
}

func shownAsset(p *Policy, ask *Ask) string {
	if ask.Intent.Asset == "" {
		return plain.Clean(ask.Asset, plain.Detail)
	}
	return p.called(ask.Intent.Asset)
}
