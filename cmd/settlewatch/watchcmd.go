package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/inbox"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/internal/plain"
)

func (a *app) watch() *cobra.Command {
	var o guarded
	c := a.command(&cobra.Command{
		Use:   "watch [flags]",
		Short: "watch how everything stands, on a full screen that decides nothing",
		Long: `Show on a full screen, kept up to date, what waits for a person, what is open, what is
held, what the limits leave and whether the guard can judge. It reads only: no key of it
decides anything. Space pages, q quits.

Elsewhere than on a terminal, status, review list, hold list and headroom show the same.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error { return a.runInbox(ctx, &o, true) })
	o.rootOptions.flags(c.Flags())
	o.guardOptions.flags(c.Flags())
	return c
}

// listedHere bounds what the overview lists of a kind; its heading counts all.
const listedHere = 5

// overview is how everything stands: first in a few lines that fit a phone, then
// each thing whole.
func (d *desk) overview(ctx context.Context, s *inbox.Scene, standing *guard.Standing, open []guard.OpenOperation) ([]inbox.Block, error) {
	holds, err := d.g.Holds(ctx)
	if err != nil {
		return nil, err
	}
	left, room, err := d.room(ctx)
	if err != nil {
		return nil, err
	}
	health, wrong := d.health(standing)
	out := append(d.glance(s, standing, open, holds), left...)
	if wrong == 0 {
		out = append(out, inbox.Block{Label: "health", Text: "good: the guard judges, the log verifies", Tone: inbox.Good})
	} else {
		out = append(out, inbox.Block{Label: "health", Text: plain.Plural(int64(wrong), "thing") + " to look at, on the last page", Tone: inbox.Warn})
	}
	return slices.Concat(out, []inbox.Block{{}}, d.waits(s), d.unaccounted(open), d.held(holds), room, health), nil
}

// glance is what a person wants to know who looks once.
func (d *desk) glance(s *inbox.Scene, standing *guard.Standing, open []guard.OpenOperation, holds []guard.HoldView) []inbox.Block {
	var out []inbox.Block
	for _, f := range standing.Frozen {
		out = append(out, inbox.Block{Label: "FROZEN", Text: frozenScope(f.Scope, "is blocked"), Tone: inbox.Bad})
	}
	reviews := inbox.Block{Label: "reviews", Text: "none waits"}
	if n := len(s.Cards) + s.Unread; n > 0 {
		reviews.Text, reviews.Tone = plain.Number(int64(n))+" pending, the first expires "+away(s.Cards[0].Expires, d.a.env.now()), inbox.Warn
	}
	unaccounted := inbox.Block{Label: "open", Text: "none: all money is accounted for"}
	if len(open) > 0 {
		unaccounted.Text = plain.Plural(int64(len(open)), "operation") + ": " + sums(d.g.Policy(), open)
	}
	held := inbox.Block{Label: "held", Text: "nothing"}
	if len(holds) > 0 {
		held.Text = plain.Plural(int64(len(holds)), "hold") + ": " + sums(d.g.Policy(), heldSums(d.g.Policy(), holds))
	}
	return append(out, reviews, unaccounted, held)
}

// heldSums are holds as sums takes them.
func heldSums(p *guard.Policy, holds []guard.HoldView) []guard.OpenOperation {
	out := make([]guard.OpenOperation, len(holds))
	for i, h := range holds {
		if atomic, err := p.Atomic(h.Asset, h.Amount); err == nil {
			out[i] = guard.OpenOperation{Amount: atomic, Asset: h.Asset}
		}
	}
	return out
}

func heading(text string, tone inbox.Tone) []inbox.Block {
	return []inbox.Block{{Text: text, Tone: cmp.Or(tone, inbox.Strong)}}
}

// listed are the first few of a kind, each a line and what stands below it.
func listed[T any](all []T, of string, entry func(T) (first, to, at string)) []inbox.Block {
	var out []inbox.Block
	for _, x := range all[:min(len(all), listedHere)] {
		first, to, at := entry(x)
		out = append(out, inbox.Block{Lead: "  ", Text: first}, inbox.Block{Lead: "    to ", Text: to})
		if at != "" {
			out = append(out, inbox.Block{Lead: "    at ", Text: at})
		}
	}
	if more := len(all) - listedHere; more > 0 {
		out = append(out, inbox.Block{Lead: "  ", Text: "and " + plain.Number(int64(more)) + " more: " + of})
	}
	return append(out, inbox.Block{})
}

func (d *desk) waits(s *inbox.Scene) []inbox.Block {
	n, tone := len(s.Cards)+s.Unread, inbox.Plain
	if n > 0 {
		tone = inbox.Warn
	}
	return append(heading(plain.Plural(int64(n), "review")+" pending", tone), listed(s.Cards, d.o.again("review"), func(c inbox.Card) (first, to, at string) {
		return c.Amount + ", expires " + away(c.Expires, d.a.env.now()), c.To, c.At
	})...)
}

func (d *desk) unaccounted(open []guard.OpenOperation) []inbox.Block {
	return append(heading(plain.Plural(int64(len(open)), "open operation"), inbox.Plain), listed(open, d.o.again("review")+", then o", func(op guard.OpenOperation) (first, to, at string) {
		e := openEntry(d.g.Policy(), op, d.a.env.now())
		return e.Summary, e.To, ""
	})...)
}

func (d *desk) held(holds []guard.HoldView) []inbox.Block {
	return append(heading(plain.Plural(int64(len(holds)), "hold")+" in force", inbox.Plain), listed(holds, d.o.again("hold list"), func(h guard.HoldView) (first, to, at string) {
		return money(d.g.Policy(), h.Amount, h.Asset) + ", ends " + away(h.ExpiresAt, d.a.env.now()), dash(h.Counterparty), ""
	})...)
}

// room is what the limits leave, of the default asset and of those with a policy of
// their own, in short and whole.
func (d *desk) room(ctx context.Context) (left, room []inbox.Block, err error) {
	p := d.g.Policy()
	assets := []string{p.DefaultAsset}
	for asset := range p.AssetPolicies {
		assets = append(assets, asset)
	}
	slices.Sort(assets[1:])
	room = heading("what the limits leave", inbox.Plain)
	for _, asset := range assets {
		h, err := d.g.Headroom(ctx, guard.HeadroomQuery{Asset: asset})
		if err != nil {
			return nil, nil, err
		}
		for _, l := range h.Limits {
			unit, tone := " of "+h.Asset, inbox.Plain
			switch {
			case l.Counts:
				unit = " payments"
			case p.Assets[h.Asset].Symbol != "":
				unit = " " + p.Assets[h.Asset].Symbol
			}
			if left := strings.Trim(l.Headroom, "0."); left == "" || strings.HasPrefix(left, "-") || l.Uncounted > 0 {
				tone = inbox.Bad
			}
			left = append(left, inbox.Block{Label: "left", Text: l.Headroom + " of " + l.Limit + unit + ", " + l.Name, Tone: tone})
			text := l.Name + ": " + l.Headroom + " left of " + l.Limit + unit
			if !l.Counts {
				text += onNetwork(h.Asset)
			}
			text += " in " + plain.Number(int64(l.WindowHours)) + " h; spent " + l.Spent + ", held " + l.Held
			for i, f := range l.FreesUp {
				text += map[bool]string{true: "; free again: ", false: ", "}[i == 0] + f.Amount + " " + away(f.At, d.a.env.now())
			}
			if l.Uncounted > 0 {
				text += "; " + uncounted(&l)
			}
			room = append(room, inbox.Block{Lead: "  ", Text: text, Tone: tone})
		}
	}
	if len(left) == 0 {
		left = []inbox.Block{{Label: "left", Text: "no limit on everything, only those of each counterparty"}}
		room = append(room, inbox.Block{Lead: "  ", Text: "no limit on everything; " + d.o.again("headroom") + " --counterparty shows those of one"})
	}
	return left, append(room, inbox.Block{}), nil
}

// health says whether the guard can judge, what else is wrong, and how many things
// are.
func (d *desk) health(s *guard.Standing) (out []inbox.Block, wrong int) {
	out = heading("health", inbox.Plain)
	say := func(tone inbox.Tone, label, text string) {
		if out = append(out, inbox.Block{Label: label, Text: text, Tone: tone}); tone != inbox.Plain {
			wrong++
		}
	}
	if s.Ready == "" {
		say(inbox.Plain, "guard", "judges")
	} else {
		say(inbox.Bad, "guard", "cannot judge, every check is a review: "+s.Ready)
	}
	for _, f := range s.Frozen {
		text := frozenScope(f.Scope, "is blocked")
		if f.Reason != "" {
			text += ": " + plain.Quote(f.Reason, plain.Detail)
		}
		say(inbox.Bad, "frozen", text)
	}
	if s.Unsound == "" {
		say(inbox.Plain, "log", "verifies, "+plain.Plural(s.Lines, "line"))
	} else {
		say(inbox.Bad, "log", "does not verify, every check is a review: "+s.Unsound)
	}
	if s.Torn {
		say(inbox.Warn, "", "it ends in a part of a line, which a crash has left; the next writer sets it aside")
	}
	tone := inbox.Plain
	if s.Damaged > 0 {
		tone = inbox.Warn
	}
	say(tone, "damage", plain.Plural(int64(s.Damaged), "run")+" with damage nobody acknowledged")
	policy := "the built-in defaults"
	if s.Policy != "" {
		policy = shown(s.Policy)
	}
	say(inbox.Plain, "policy", policy)
	if s.OtherPolicy && s.Ready == "" {
		say(inbox.Warn, "", "the log was last written under another policy: a server that was not started again judges by that one")
	}
	if len(s.Operators) == 0 {
		say(inbox.Warn, "operators", "none: an approval could be the agent's own; "+d.o.after("doctor")+" says what to do")
	} else {
		say(inbox.Plain, "operators", plain.Number(int64(len(s.Operators))))
	}
	if s.Suggestion != "" {
		say(inbox.Warn, "hint", s.Suggestion)
	}
	for _, note := range d.told.lines() {
		say(inbox.Warn, "note", strings.TrimPrefix(note, "note: "))
	}
	return out, wrong
}
