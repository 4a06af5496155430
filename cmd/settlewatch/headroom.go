package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/mcp"
)

func (a *app) headroom() *cobra.Command {
	var o guarded
	var q guard.HeadroomQuery
	c := a.command(&cobra.Command{
		Use:   "headroom [flags]",
		Short: "show what the limits leave",
		Long: `Show for each limit of the policy what is spent, reserved and left of an asset now, and
when more is free again. The limit of a counterparty needs --counterparty.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		if err := positive("sync-timeout", o.syncTimeout); err != nil {
			return err
		}
		return a.withGuard(ctx, &o, func(g guardian, _ finder) error {
			h, err := g.Headroom(ctx, q)
			if err != nil {
				return err
			}
			if o.json {
				return a.document(mcp.HeadroomDocument(h))
			}
			a.showHeadroom(g, h)
			return nil
		})
	})
	f := c.Flags()
	o.flags(f)
	o.syncFlag(f)
	f.StringVar(&q.Counterparty, "counterparty", "", "what its limits leave too: an address, host or URL")
	f.StringVar(&q.Asset, "asset", "", "asset by key, symbol or token address (default: the policy's)")
	return c
}

func (a *app) showHeadroom(g guardian, h *guard.Headroom) {
	asset := h.Asset
	if known, ok := g.Policy().Assets[h.Asset]; ok && known.Symbol != "" {
		asset = known.Symbol + ", " + asset
	}
	a.put("", "", "what the limits leave of "+asset)
	if len(h.Limits) == 0 {
		a.put("", "", "no limit on everything; --counterparty shows what its own limits leave")
		return
	}
	var doubts []string
	t := table{head: []string{"LIMIT", "SCOPE", "LEFT", "OF", "SPENT", "HELD", "WINDOW", "FREE AGAIN"}}
	for _, l := range h.Limits {
		unit, style := "", ""
		if l.Counts {
			unit = " payments"
		}
		// The guard has worked out what is left; here it is only read.
		if left := strings.Trim(l.Headroom, "0."); left == "" || strings.HasPrefix(left, "-") {
			style = red
		}
		if l.Uncounted > 0 {
			style = red
			doubts = append(doubts, l.Name+": "+uncounted(&l))
		}
		var free []string
		for _, f := range l.FreesUp {
			free = append(free, f.Amount+" "+away(f.At, a.env.now()))
		}
		t.row(style, l.Name, l.Scope, l.Headroom+unit, l.Limit+unit, l.Spent, l.Held, fmt.Sprintf("%d h", l.WindowHours), dash(strings.Join(free, "; ")))
	}
	a.show(&t)
	for _, text := range doubts {
		a.put(red, "", text)
	}
}

// uncounted says that what is left of a limit is not the whole truth.
func uncounted(l *guard.HeadroomLimit) string {
	return plain.Plural(l.Uncounted, "payment") + " of the window cannot be added up, so checks under this limit are reviews unless it is in shadow mode"
}
