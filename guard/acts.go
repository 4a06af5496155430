package guard

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/store"
)

// ReleaseHold ends a hold of the same actor (guard contract, section 5): over HTTP
// the subject it was given to, on stdio the process it was given to.
func (g *Guard) ReleaseHold(ctx context.Context, id, actor string) error {
	return g.release(ctx, id, actor, decision.Released{HoldID: id, Why: "released"}, func(h *decision.HoldState) error {
		if h == nil || !g.owns(h, actor) {
			// The same words for both: whose holds there are is nobody else's business.
			return holdNotFound(id)
		}
		return nil
	})
}

// release ends a hold, unless its payment has: then that is written down and the
// hold is not found.
func (g *Guard) release(ctx context.Context, id, actor string, line decision.Released, may func(*decision.HoldState) error) error {
	paid := false
	_, err := g.decide(ctx, actor, nil, func(v *store.View, s *decision.State) ([]decision.Body, error) {
		paid = false
		h := s.Hold(id, g.now())
		if err := may(h); err != nil {
			return nil, err
		}
		m, err := g.match(v, s, g.now())
		if err != nil {
			return nil, err
		}
		if paid = !slices.Contains(m.active, h); paid {
			return m.ended, nil
		}
		return append(m.ended, line), nil
	})
	if err == nil && paid {
		return holdNotFound(id)
	}
	return err
}

func (g *Guard) owns(h *decision.HoldState, actor string) bool {
	if actor != "" {
		return h.Actor == actor
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return h.Actor == "" && g.mine[h.HoldID]
}

func holdNotFound(id string) error {
	return errcode.New(errcode.HoldNotFound, "it may have ended by itself; holds end when their payment is seen, when released, and at expires_at", "no hold of yours has the id %s", plain.Quote(id, plain.Detail))
}

// EndHold ends any hold; it is a person's act.
func (g *Guard) EndHold(ctx context.Context, id, note string) error {
	if err := CheckNote("note", note); err != nil {
		return err
	}
	return g.release(ctx, id, "", decision.Released{HoldID: id, Why: "released", Note: note}, func(h *decision.HoldState) error {
		if h == nil {
			return errcode.New(errcode.HoldNotFound, "list them with `settlewatch hold list`", "no active hold has the id %s", plain.Quote(id, plain.Detail))
		}
		return nil
	})
}

// Holds lists the active holds, oldest first.
func (g *Guard) Holds(ctx context.Context) ([]HoldView, error) {
	var out []HoldView
	err := g.look(ctx, func(view *store.View, s *decision.State) error {
		out = nil
		now := g.now()
		m, err := g.match(view, s, now)
		if err != nil {
			return err
		}
		for _, h := range m.active {
			out = append(out, HoldView{
				Hold:         Hold{ID: h.HoldID, Amount: g.policy.Units(h.Intent.Asset, h.Intent.Amount), Asset: h.Intent.Asset, ExpiresAt: h.ExpiresAt},
				Counterparty: firstName(h.Intent.Names), HeldAt: h.At, Actor: h.Actor, ReviewID: h.ReviewID,
			})
		}
		return nil
	})
	return out, err
}

func firstName(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return payment.Display(names[0])
}

// scope is the name a freeze is written under.
func scope(counterparty string) (string, error) {
	if counterparty == "" {
		return decision.ScopeAll, nil
	}
	names := typedNames(counterparty)
	if len(names) == 0 {
		return "", errcode.New(errcode.Input, "name an address, a host or a URL", "%s is no counterparty", plain.Quote(counterparty, plain.Detail))
	}
	return names[0], nil
}

// Freeze blocks every check, of one counterparty or, when it is "", of all (guard
// contract, section 6). It gives the scope as it was written.
func (g *Guard) Freeze(ctx context.Context, counterparty, reason string) (string, error) {
	if err := CheckNote("reason", reason); err != nil {
		return "", err
	}
	name, err := scope(counterparty)
	if err != nil {
		return "", err
	}
	_, err = g.update(ctx, "", func(*decision.State) ([]decision.Body, error) {
		return []decision.Body{decision.Frozen{Scope: name, Reason: reason}}, nil
	})
	return name, err
}

// Unfreeze ends a freeze.
func (g *Guard) Unfreeze(ctx context.Context, counterparty, reason string, by decision.Signer) error {
	if err := CheckNote("reason", reason); err != nil {
		return err
	}
	name, err := scope(counterparty)
	if err != nil {
		return err
	}
	_, err = g.update(ctx, "", func(s *decision.State) ([]decision.Body, error) {
		frozen := false
		for _, f := range s.AllFrozen() {
			frozen = frozen || f.Scope == name
		}
		if !frozen {
			hint := "see what is frozen with `settlewatch status`"
			if name == decision.ScopeAll && g.frozenByFile() {
				hint = "remove the file " + plain.Quote(frozenFile, plain.Detail) + " from the guard directory"
			}
			return nil, errcode.New(errcode.Input, hint, "%s is not frozen", plain.Quote(payment.Display(name), plain.Detail))
		}
		body, err := g.sign(s, decision.Unfrozen{Scope: name, Reason: reason}, by, true)
		return []decision.Body{body}, err
	})
	return err
}

// Shown gives what payments an operation has, for a person who is about to resolve it.
func (g *Guard) Shown(ctx context.Context, ref decision.Ref) (shown Shown, err error) {
	err = g.ask(ctx, func(v *store.View) error {
		no, err := operation(v, ref)
		if err != nil {
			return err
		}
		shown, err = paidBy(v, no)
		return err
	})
	return shown, err
}

func paidBy(v *store.View, op int64) (Shown, error) {
	made, err := v.Made([]int64{op})
	return Shown(made[op]), err
}

// newest is when the newest payment was made, as lines of the log have it: nil where
// there is none, or a time is unreadable.
func (s Shown) newest() *int64 {
	if s.Payments == 0 || s.Newest == math.MaxInt64 {
		return nil
	}
	return &s.Newest
}

// Resolve closes operations, all or none. What was paid after the person saw it is
// covered by nothing they said, so it is refused.
func (g *Guard) Resolve(ctx context.Context, all []Resolution) error {
	for _, r := range all {
		if err := CheckNote("note", r.Note); err != nil {
			return err
		}
		if err := g.begin(ctx, r.Signer); err != nil {
			return err
		}
	}
	_, err := g.decide(ctx, "", nil, func(view *store.View, s *decision.State) (bodies []decision.Body, err error) {
		for _, r := range all {
			body, err := g.resolved(view, s, r)
			if err != nil {
				return nil, err
			}
			bodies = append(bodies, body)
		}
		return bodies, nil
	})
	return err
}

func (g *Guard) resolved(view *store.View, s *decision.State, r Resolution) (decision.Body, error) {
	if r.Outcome != "settled" && r.Outcome != "failed" {
		return nil, errcode.New(errcode.Input, "use settled or failed", "%s is no outcome", plain.Quote(r.Outcome, plain.Detail))
	}
	no, err := operation(view, r.Ref)
	if err != nil {
		return nil, err
	}
	made, err := paidBy(view, no)
	if err != nil {
		return nil, err
	}
	if made != r.Shown {
		return nil, errcode.New(errcode.Input, "look at it again, with `settlewatch explain`, and say what became of all of it",
			"%s was paid again since it was shown, so nothing was written", operationText(r.Ref))
	}
	paid, err := view.PaymentsOfOperations([]int64{no})
	if err != nil {
		return nil, err
	}
	if r.Outcome == "failed" {
		unsettled := func(p store.Paid) bool { return p.Flags&payment.FlagPaired == 0 }
		if len(paid) > 0 && !slices.ContainsFunc(paid, unsettled) {
			return nil, errcode.New(errcode.Input, "see it with `settlewatch explain`; what was paid back is not unpaid", "the trace shows that every payment of this operation was settled")
		}
	}
	body := decision.Resolved{Ref: r.Ref, Outcome: r.Outcome, Note: r.Note, Payments: &made.Payments, Newest: made.newest()}
	if r.Time != "" {
		t, err := time.Parse(time.RFC3339, r.Time)
		if err != nil {
			return nil, errcode.New(errcode.Input, "write it as 2026-01-31T18:30:00Z", "the time %s cannot be read", plain.Quote(r.Time, plain.Detail))
		}
		body.Time = t.UTC().Format(timeFormat)
	}
	if r.Amount != "" {
		if !slices.ContainsFunc(paid, amountUnread) {
			return nil, errcode.New(errcode.Usage, "leave the amount out", "the trace says what each payment of %s took, so the amount %s would not count", operationText(r.Ref), plain.Quote(r.Amount, plain.Detail))
		}
		asset, err := assetOf(view, no)
		if err != nil {
			return nil, err
		}
		if asset == "" {
			asset = g.policy.DefaultAsset
		}
		if body.Amount, err = g.policy.Atomic(asset, r.Amount); err != nil {
			return nil, err
		}
		body.Asset = asset
	}
	return g.sign(s, body, r.Signer, true)
}

// amountUnread tells whether an amount that a person states stands in for a payment's
// own (guard contract, section 6: it replaces an unreadable one).
func amountUnread(p store.Paid) bool {
	return p.Amount == "" || p.Asset == 0 || p.Flags&payment.FlagAmbiguous != 0
}

// Unresolve takes a resolution back.
func (g *Guard) Unresolve(ctx context.Context, ref decision.Ref, note string) error {
	if err := CheckNote("note", note); err != nil {
		return err
	}
	_, err := g.update(ctx, "", func(s *decision.State) ([]decision.Body, error) {
		if s.Resolution(ref) == nil {
			return nil, errcode.New(errcode.Input, "", "nobody has resolved this operation")
		}
		return []decision.Body{decision.Unresolved{Ref: ref, Note: note}}, nil
	})
	return err
}

const timeFormat = "2006-01-02T15:04:05.000Z"
