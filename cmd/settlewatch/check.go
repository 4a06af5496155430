package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/internal/safefile"
	"github.com/settlewatch/settlewatch/mcp"
)

type checkOptions struct {
	guarded
	r     guard.Request
	offer path
}

func (a *app) check() *cobra.Command {
	var o checkOptions
	c := a.command(&cobra.Command{
		Use:   "check [flags]",
		Short: "ask the guard whether a payment may be made",
		Long: `Ask the guard what an agent asks with check_before_pay: may this payment be made? The
answer rests on what is on record, the policy and the decisions log. It is written to the
log as for an agent, and may open a review.

Exit status 0 for allow, 10 for review, 20 for block. Anything else is no permission.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error { return a.runCheck(ctx, o) })
	f := c.Flags()
	o.flags(f)
	o.syncFlag(f)
	f.StringVar(&o.r.Counterparty, "counterparty", "", "whom to pay: an address, a host or a URL")
	f.StringVar(&o.r.Amount, "amount", "", `amount in display units, such as "0.05"`)
	f.StringVar(&o.r.Asset, "asset", "", "asset by key, symbol or token address (default: the policy's)")
	f.StringVar(&o.r.Template, "template", "", "a further template to judge by: a name")
	f.StringVar(&o.r.Resource, "resource", "", "what is bought: the URL that is called, or a tool id")
	f.StringVar(&o.r.PayTo, "pay-to", "", "the address that will be paid")
	f.Var(&o.offer, "offer", "file with one entry of an offer's accepts as received, or - for stdin")
	f.StringVar(&o.r.ReviewID, "review-id", "", "the approved review this payment rests on")
	f.BoolVar(&o.r.Hold, "hold", false, "reserve the amount when the answer is allow")
	return c
}

// maxOffer bounds an offer that is read; its texts have bounds of their own
// (guard contract, section 1).
const maxOffer = 256 << 10

func (a *app) runCheck(ctx context.Context, o checkOptions) error {
	if o.offer == "" {
		for _, f := range []struct{ flag, value string }{{"counterparty", o.r.Counterparty}, {"amount", o.r.Amount}} {
			if f.value == "" {
				return usage("--%s is needed, unless --offer gives it", f.flag)
			}
		}
	}
	if err := positive("sync-timeout", o.syncTimeout); err != nil {
		return err
	}
	if o.offer != "" {
		offer, err := a.readOffer(ctx, string(o.offer))
		if err != nil {
			return err
		}
		o.r.Offer = offer
	}
	return a.withGuard(ctx, &o.guarded, func(g guardian, _ finder) error {
		v, err := g.Check(ctx, o.r)
		if err != nil {
			return err
		}
		if o.json {
			if err := a.document(mcp.VerdictDocument(v)); err != nil {
				return err
			}
		} else {
			a.showVerdict(ctx, g, &o, v)
		}
		return verdictStatus(v.Decision)
	})
}

// readOffer reads a file or stdin whole. What it says is for the guard to judge.
func (a *app) readOffer(ctx context.Context, name string) ([]byte, error) {
	failed := func(err error) error {
		return errcode.Wrap(errcode.Bare(err), errcode.Input, "a file with one entry of accepts, or - for stdin", "read the offer %s", plain.Quote(name, plain.Detail))
	}
	if name != "-" {
		offer, err := safefile.ReadFile(name, maxOffer)
		if err != nil {
			return nil, failed(err)
		}
		return offer, nil
	}
	offer, err := leave(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(a.stdin, maxOffer+1)) })
	if err == nil && len(offer) > maxOffer {
		err = safefile.ErrTooLarge
	}
	if err == nil && strings.TrimSpace(string(offer)) == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		return nil, failed(err)
	}
	return offer, nil
}

// verdictStatus is the exit status of a decision. Whatever else one might be, it
// is no permission.
func verdictStatus(decision string) error {
	switch decision {
	case guard.Allow:
		return nil
	case guard.Review:
		return asked
	default:
		return refused
	}
}

func (a *app) showVerdict(ctx context.Context, g guardian, o *checkOptions, v *guard.Verdict) {
	words, style := "block: do not pay", red
	switch v.Decision {
	case guard.Allow:
		words, style = "allow: this one payment may be made now", green
	case guard.Review:
		words, style = "review: do not pay before a person has decided", yellow
	}
	a.put(style, "", words)
	a.showReasons("", v.Reasons, false)
	if len(v.Shadow) > 0 {
		a.showReasons("in shadow mode, which decides nothing:", v.Shadow, false)
	}
	for _, code := range v.Warnings {
		a.put(yellow, "! ", warningText(code))
	}
	var s sheet
	if h := v.Hold; h != nil {
		s.row("hold", h.ID+": "+money(g.Policy(), h.Amount, h.Asset)+" until "+moment(h.ExpiresAt)+", "+away(h.ExpiresAt, a.env.now()), "")
	}
	if v.ReviewID != "" {
		s.row("review", v.ReviewID, "")
	}
	s.row("checked", plain.Plural(v.Checked.Events, "event")+" of "+plain.Plural(v.Checked.Runs, "run")+", until "+dash(v.Checked.Through), "")
	a.showSheet(&s)
	switch {
	case v.Hold != nil:
		a.put("", "", "to give the hold back, if nothing was paid:")
		a.pasteable(o.again("hold release " + shellWord(v.Hold.ID) + ` --note "not paid"`))
	case v.ReviewID != "" && v.Decision == guard.Review:
		a.put("", "", "to see it in full and decide:")
		a.pasteable(o.again("review show " + shellWord(shortID(ctx, g, v.ReviewID))))
	}
	if h := v.Handoff; h != nil && h.Kind == "url" {
		a.put("", "", "or at:")
		a.pasteable(h.Target)
	}
}
