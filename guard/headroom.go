package guard

import (
	"context"
	"math/big"
	"strconv"
	"time"

	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/store"
)

// nextToLeave is how many payments get_headroom names that leave a window next.
const nextToLeave = 3

// Headroom answers get_headroom (guard contract, section 5).
func (g *Guard) Headroom(ctx context.Context, query HeadroomQuery) (*Headroom, error) {
	ask, err := g.policy.headroomAsk(query)
	if err != nil {
		return nil, err
	}
	if g.o.Fault != nil {
		return nil, errcode.Wrap(g.o.Fault, errcode.Policy, "mend it and start again", "work out what the limits leave")
	}
	if _, err := g.ready(ctx); err != nil {
		return nil, err
	}
	var out *Headroom
	err = g.look(ctx, func(v *store.View, s *decision.State) error {
		now := g.now()
		out = &Headroom{Asset: ask.Intent.Asset}
		q, err := g.gather(v, s, ask, nil, now)
		if err != nil {
			return err
		}
		if limit, _, ok := g.policy.CapOf(ask.Intent.Asset); ok && len(ask.Names) > 0 {
			row := q.headroom("per_counterparty_limit", "counterparty", limit.Atomic, ask.Intent.Asset, q.f.Window, limit.WindowHours)
			scope := store.Scope{Names: q.names}
			if err := q.leaving(&row, scope, ask.Intent.Asset, limit.WindowHours); err != nil {
				return err
			}
			out.Limits = append(out.Limits, row)
		}
		for i := range g.policy.Limits {
			l := &g.policy.Limits[i]
			w := q.f.Limits[i]
			if !w.Applies {
				continue
			}
			scope, ok, err := q.scopeOf(l)
			if err != nil {
				return err
			}
			if l.Atomic != "" {
				row := q.headroom(l.Name, l.Scope, l.Atomic, l.Asset, w, l.WindowHours)
				if ok {
					if err := q.leaving(&row, scope, l.Asset, l.WindowHours); err != nil {
						return err
					}
				}
				out.Limits = append(out.Limits, row)
			}
			if l.Count > 0 {
				row := HeadroomLimit{
					Name: l.Name, Scope: l.Scope, Counts: true, WindowHours: l.WindowHours,
					Limit: strconv.FormatInt(l.Count, 10), Spent: strconv.FormatInt(w.Count, 10), Held: strconv.FormatInt(w.Holds, 10),
					Headroom: strconv.FormatInt(max(0, l.Count-w.Count-w.Holds), 10),
				}
				if ok {
					if err := q.leaving(&row, scope, l.Asset, l.WindowHours); err != nil {
						return err
					}
				}
				out.Limits = append(out.Limits, row)
			}
		}
		return nil
	})
	return out, err
}

// headroomAsk is the question a headroom query stands for: nothing is paid, so only
// names and the asset matter.
func (p *Policy) headroomAsk(q HeadroomQuery) (*Ask, error) {
	ask := &Ask{Request: Request{Counterparty: q.Counterparty, Asset: q.Asset}}
	for name, text := range map[string]string{"counterparty": q.Counterparty, "asset": q.Asset} {
		if err := checkText(name, text); text != "" && err != nil {
			return nil, err
		}
	}
	ask.Intent.Asset = p.DefaultAsset
	if q.Asset != "" {
		key, why := p.resolve(q.Asset)
		if why != "" {
			return nil, errcode.New(errcode.Input, "use a registry key, a symbol or a token address of the policy", "the asset %s: %s", plain.Quote(q.Asset, plain.Detail), why)
		}
		ask.Intent.Asset = key
	}
	if q.Counterparty != "" {
		ask.Typed = typedNames(q.Counterparty)
		if len(ask.Typed) == 0 {
			return nil, errcode.New(errcode.Input, "name an address, a host or a URL", "%s is no counterparty", plain.Quote(q.Counterparty, plain.Detail))
		}
		ask.Names = p.Expand(ask.Typed...)
		for _, name := range ask.Names {
			if isHost(name) {
				ask.Hosts = append(ask.Hosts, name)
			}
		}
	}
	ask.Intent.Names = ask.Names
	return ask, nil
}

func (q *gathering) headroom(name, scope, limit, asset string, w Window, hours int) HeadroomLimit {
	units := func(atomic string) string { return q.g.policy.Units(asset, atomic) }
	var left, used big.Int
	left.SetString(limit, 10)
	add(&used, w.Spent)
	add(&used, w.Held)
	if left.Sub(&left, &used); left.Sign() < 0 {
		left.SetInt64(0)
	}
	return HeadroomLimit{
		Name: name, Scope: scope, Limit: units(limit), Spent: units(w.Spent), Held: units(w.Held), Headroom: units(left.String()),
		Uncounted: w.Unreadable + q.uncounted(scope, hours), WindowHours: hours,
	}
}

// uncounted is how many payments of a window that is looked at by name its sums leave
// out. Rules of their own name those, so the window itself does not count them.
func (q *gathering) uncounted(scope string, hours int) int64 {
	s := q.spendings[spendingKey{scope, hours}]
	if s == nil {
		return 0
	}
	mixed, unreadable := q.leftOut(s.rows, hours)
	return int64(len(mixed) + len(unreadable))
}

// scopeOf is a limit's scope in numbers of the index; ok is false where it has seen
// nothing of the kind.
func (q *gathering) scopeOf(l *Limit) (scope store.Scope, ok bool, err error) {
	switch l.Scope {
	case "counterparty":
		return store.Scope{Names: q.names}, len(q.names) > 0, nil
	case "host":
		numbers, err := q.v.WordNumbers(q.hostNames())
		return store.Scope{Names: numbers}, len(numbers) > 0, err
	case "resource":
		number, err := q.v.Word(q.ask.Intent.Resource)
		return store.Scope{Resource: number}, number != 0, err
	}
	return store.Scope{}, true, nil
}

// leaving fills in when the next payments leave a window.
func (q *gathering) leaving(row *HeadroomLimit, scope store.Scope, asset string, hours int) error {
	if scope.Names != nil && len(scope.Names) == 0 {
		return nil
	}
	scope.Asset = store.AnyAsset
	if asset != "" {
		number, err := q.v.Word(asset)
		if err != nil || number == 0 {
			return err
		}
		scope.Asset = number
	}
	q.stated = nil
	for p, err := range q.v.Leaving(scope, q.since(hours)) {
		if err != nil {
			return err
		}
		w, err := q.weigh(&p)
		if err != nil {
			return err
		}
		if !w.counts || !w.hasAt {
			continue
		}
		amount := "1"
		if !row.Counts {
			amount = q.g.policy.Units(asset, w.amount)
		}
		row.FreesUp = append(row.FreesUp, FreesUp{At: time.UnixMilli(w.at).UTC().Add(time.Duration(hours) * time.Hour), Amount: amount})
		if len(row.FreesUp) == nextToLeave {
			break
		}
	}
	return nil
}
