package guard

import (
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/store"
)

// shortestID is how many characters of a review's id a person has to type (guard
// contract, section 4). The r- in front is part of the id, and may be left out.
const shortestID = 8

// pollEvery is how often a wait looks at the log. It is a file of this machine, so
// a look costs one stat.
const pollEvery = 200 * time.Millisecond

// find gives the one review an id, whole or shortened, means.
func find(s *decision.State, id string) (*decision.ReviewState, error) {
	if r := s.Review(id); r != nil {
		return r, nil
	}
	shown := plain.Quote(id, plain.Detail)
	if len(id) < shortestID {
		return nil, errcode.New(errcode.ReviewNotFound, "give the whole id, or "+strconv.Itoa(shortestID)+" or more of its characters", "%s is too short for the beginning of a review's id", shown)
	}
	found := s.FindReviews(id)
	if !strings.HasPrefix(id, "r-") {
		found = append(found, s.FindReviews("r-"+id)...)
	}
	switch len(found) {
	case 0:
		return nil, errcode.New(errcode.ReviewNotFound, "list them with `settlewatch review list`", "no review has the id %s", shown)
	case 1:
		return found[0], nil
	default:
		return nil, errcode.New(errcode.ReviewAmbiguous, "type more of it", "%d reviews begin with %s", len(found), shown)
	}
}

// found is the log as it stands and the one review in it that an id means.
func (g *Guard) found(ctx context.Context, id string) (*decision.State, *decision.ReviewState, error) {
	s, err := g.log.Read(ctx)
	if err != nil {
		return nil, nil, err
	}
	r, err := find(s, id)
	return s, r, err
}

// Review answers get_review_status for a whole id or a shortened one (guard
// contract, section 4). It waits up to wait for a pending one to be decided.
func (g *Guard) Review(ctx context.Context, id string, wait time.Duration) (*ReviewView, error) {
	until := g.now().Add(wait)
	for {
		s, r, err := g.found(ctx, id)
		if err != nil {
			return nil, err
		}
		now := g.now()
		v := g.view(r, now, nil)
		if v.Status == decision.StatusApproved {
			v = g.view(r, now, g.usedUp(ctx, s))
		}
		if v.Status != decision.StatusPending || !now.Before(until) {
			return &v, nil
		}
		timer := time.NewTimer(min(pollEvery, until.Sub(now)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		case <-timer.C:
		}
	}
}

// usedUp gives the approvals that payments in the trace have used up already: the
// lines that say so follow with the next write (guard contract, section 4).
func (g *Guard) usedUp(ctx context.Context, s *decision.State) map[string]decision.UsedBy {
	if len(s.Approvals(g.now())) == 0 {
		return nil
	}
	var used map[string]decision.UsedBy
	err := g.ask(ctx, func(view *store.View) error {
		m, err := g.match(view, s, g.now())
		if err == nil {
			used = m.approvals
		}
		return err
	})
	if err != nil {
		g.say.Debug("look for the payments approvals were spent on", "error", err)
	}
	return used
}

// view is a review as people see it.
func (g *Guard) view(r *decision.ReviewState, now time.Time, used map[string]decision.UsedBy) ReviewView {
	v := ReviewView{
		ID: r.ReviewID, Status: statusOf(r, now, used), CreatedAt: r.At, Counterparty: r.Counterparty, Amount: r.Amount, Asset: r.Asset,
		Template: r.Intent.Template, Reasons: r.Reasons, Names: r.Intent.Names, PayTo: r.PayTo, Resource: r.Resource, Network: r.Network,
		AskedBy: r.Actor, ExpiresAt: r.ExpiresAt(now), Facts: r.Facts, Used: r.Used, Call: r.Call,
	}
	if by, ok := used[r.ReviewID]; ok && v.Used == nil {
		v.Used = &by
	}
	if d := r.Last(); d != nil && d.Decision != "reopened" {
		v.DecidedAt, v.Note, v.DecidedBy = d.At, d.Note, decidedBy(d)
	}
	if v.Status == decision.StatusPending {
		v.Handoff = g.handoff(v.ID)
	}
	if len(g.policy.Operators) == 0 {
		v.Warnings = []string{"unsigned_reviews"}
	}
	return v
}

// statusOf is a review's status given the approvals that were used up.
func statusOf(r *decision.ReviewState, now time.Time, used map[string]decision.UsedBy) string {
	status := r.Status(now)
	if _, ok := used[r.ReviewID]; ok && status == decision.StatusApproved {
		return decision.StatusUsed
	}
	return status
}

// unsigned is what answers say where no key signed a decision.
const unsigned = "unsigned (could be the agent)"

func decidedBy(d *decision.Decision) string {
	if d.Operator == "" {
		return unsigned
	}
	return d.Operator
}

// Reviews lists reviews, newest first.
func (g *Guard) Reviews(ctx context.Context, q ReviewQuery) (*ReviewPage, error) {
	s, err := g.log.Read(ctx)
	if err != nil {
		return nil, err
	}
	states := []string{
		decision.StatusPending, decision.StatusApproved, decision.StatusRejected,
		decision.StatusExpired, decision.StatusUsed, decision.StatusRevoked,
	}
	if q.Status != "" && !slices.Contains(states, q.Status) {
		return nil, errcode.New(errcode.Input, "use one of "+strings.Join(states, ", "), "status %s is not known", plain.Quote(q.Status, plain.Detail))
	}
	limit := q.Limit
	if limit <= 0 {
		limit = 50
	}
	reviews := s.Reviews()
	if q.Cursor != "" {
		b, err := base64.RawURLEncoding.DecodeString(q.Cursor)
		below, nerr := strconv.ParseInt(string(b), 10, 64)
		if err != nil || nerr != nil || below <= 0 {
			return nil, errcode.New(errcode.Input, "ask again without a cursor", "the cursor is none of ours")
		}
		reviews = s.ReviewsBefore(below)
	}
	now := g.now()
	used := g.usedUp(ctx, s)
	page := &ReviewPage{}
	var last int64
	for r := range reviews {
		if q.Status != "" && statusOf(r, now, used) != q.Status {
			continue
		}
		if len(page.Reviews) == limit {
			page.NextCursor = base64.RawURLEncoding.EncodeToString(strconv.AppendInt(nil, last, 10))
			break
		}
		page.Reviews = append(page.Reviews, g.view(r, now, used))
		last = r.Seq
	}
	if q.Cursor == "" {
		page.Suggestion = g.suggestion(s, now)
	}
	return page, nil
}

// Waiting is how many reviews are pending and when the oldest of them was opened, as
// the log says. It asks nothing of the index, so it may be asked often.
func (g *Guard) Waiting(ctx context.Context) (n int, oldest time.Time, err error) {
	s, err := g.log.Read(ctx)
	if err != nil {
		return 0, time.Time{}, err
	}
	n, oldest = s.Waiting(g.now())
	return n, oldest, nil
}

// suggestion says that a baseline would help when most of what waits waits only
// because of the past (guard contract, section 6).
func (g *Guard) suggestion(s *decision.State, now time.Time) string {
	pending, past := 0, 0
	for r := range s.Reviews() {
		if r.Status(now) != decision.StatusPending {
			continue
		}
		if base := s.Baseline(); base != nil && !r.At.After(base.Through) {
			continue // its past is history already: whoever asks again is answered anew
		}
		pending++
		only := true
		for _, reason := range r.Reasons {
			only = only && (reason.Rule == "open_partial" || reason.Rule == "damaged_history" || reason.Rule == "duplicate_purchase" || reason.Rule == "history")
		}
		if only {
			past++
		}
		if pending == 200 {
			break
		}
	}
	if pending < 3 || past*2 <= pending {
		return ""
	}
	return strconv.Itoa(past) + " of " + strconv.Itoa(pending) + " pending reviews wait only because of operations that were open or damaged before; " +
		"if that past is known, settlewatch baseline --note \"...\" makes history of it"
}

// Decide decides reviews, all or none, and gives them as they stand then.
func (g *Guard) Decide(ctx context.Context, d Decision) ([]ReviewView, error) {
	if len(d.IDs) == 0 {
		return nil, errcode.New(errcode.Input, "name a review", "no review was named")
	}
	if err := CheckNote("note", d.Note); err != nil {
		return nil, err
	}
	var ids []string
	var refusal *errcode.Error
	s, err := g.decide(ctx, "", nil, func(view *store.View, s *decision.State) ([]decision.Body, error) {
		ids, refusal = nil, nil
		now := g.now()
		m, err := g.match(view, s, now)
		if err != nil {
			return nil, err
		}
		bodies := m.ended
		for _, id := range d.IDs {
			r, err := find(s, id)
			if err != nil {
				return nil, err
			}
			if slices.Contains(ids, r.ReviewID) {
				continue
			}
			if err := mayDecide(r, d.Decision, statusOf(r, now, m.approvals), now); err != nil {
				return nil, err
			}
			ids = append(ids, r.ReviewID)
			var body decision.Body = decision.Decided{ReviewID: r.ReviewID, Decision: d.Decision, Note: d.Note}
			if body, err = g.sign(s, body, d.Signer, d.Decision == "approved" || d.Decision == "reopened"); err != nil {
				return nil, err
			}
			if bodies = append(bodies, body); r.Kind == decision.KindToolCall {
				line, why, err := g.decideCall(s, r, body, d, now)
				if err != nil {
					return nil, err
				}
				if why != "" {
					// It alone is written: all are decided or none.
					refusal = errcode.New(errcode.Input, "reject it, or approve it when the gate has room again", "approve review %s: %s", r.ReviewID, why)
					return []decision.Body{line}, nil
				}
				if line != nil {
					bodies = append(bodies, line)
				}
			}
			if d.Freeze {
				for _, scope := range freezeScopes(r) {
					bodies = append(bodies, decision.Frozen{Scope: scope, Reason: "review " + r.ReviewID + " was rejected" + because(d.Note)})
				}
			}
		}
		return bodies, nil
	})
	if err != nil {
		return nil, err
	}
	if refusal != nil {
		return nil, refusal
	}
	now := g.now()
	var views []ReviewView
	for _, id := range ids {
		views = append(views, g.view(s.Review(id), now, nil))
	}
	return views, nil
}

func because(note string) string {
	if note == "" {
		return ""
	}
	return ": " + note
}

// freezeScopes are the names a rejection with --freeze blocks: the counterparty and
// the address that was to be paid, not the host of a resource that was typed beside
// them.
func freezeScopes(r *decision.ReviewState) []string {
	var scopes []string
	if names := typedNames(r.Counterparty); len(names) > 0 {
		scopes = append(scopes, names[0])
	}
	if r.PayTo != "" && !slices.Contains(scopes, r.PayTo) {
		scopes = append(scopes, r.PayTo)
	}
	return scopes
}

// mayDecide holds a decision to the state of its review: one is decided once
// (guard contract, section 4).
func mayDecide(r *decision.ReviewState, what, status string, now time.Time) error {
	wants := map[string]string{
		"approved": decision.StatusPending, "rejected": decision.StatusPending,
		"revoked": decision.StatusApproved, "reopened": decision.StatusRejected,
	}[what]
	switch {
	case wants == "":
		return errcode.New(errcode.Input, "", "%s is no decision", plain.Quote(what, plain.Detail))
	case status == wants:
		return nil
	case status == decision.StatusExpired:
		return errcode.New(errcode.ReviewExpired, "have the agent ask again", "review %s expired on %s", r.ReviewID, moment(r.ExpiresAt(now)))
	default:
		said := status
		if d := r.Last(); d != nil {
			said = status + ", decided on " + moment(d.At) + " by " + decidedBy(d)
		}
		hint := "see it with `settlewatch review show " + r.ReviewID + "`"
		return errcode.New(errcode.ReviewDecided, hint, "review %s cannot be %s: it is %s already", r.ReviewID, what, said)
	}
}

// sign signs a loosening act where the policy names operators, and refuses one
// that would not count (guard contract, section 4).
func (g *Guard) sign(s *decision.State, body decision.Body, by decision.Signer, loosens bool) (decision.Body, error) {
	if by != nil {
		return decision.Sign(body, s, by, g.now())
	}
	if loosens && len(g.policy.Operators) > 0 {
		return nil, errcode.New(errcode.OperatorKey, "run it on a terminal, with an operator's key", "the policy names operators, and this act counts only when one of them signs it")
	}
	return body, nil
}
