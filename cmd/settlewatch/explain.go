package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/mcp"
)

func (a *app) explain() *cobra.Command {
	var o receiptOptions
	c := a.command(&cobra.Command{
		Use:   "explain [flags] [RUN] OPERATION",
		Short: "explain the receipt of one operation in sentences",
		Long: `Say what was observed of one operation, in order, what is missing and what that means.
The text is what the agent is told; above it stands what the payment was for.
` + operandsHelp,
		Args: operands(0, 2),
	}, func(ctx context.Context, args []string) error {
		return a.withReceipt(ctx, o, args, func(x *ingest.Indexer, r *ingest.Receipt) error {
			resolved := a.resolutions(ctx, x, r.Ref)[0]
			if o.json {
				return a.document(mcp.ExplainDocument(r, resolved))
			}
			a.show(paidTable(r))
			a.say("")
			a.tell(mcp.Explanation(r, resolved))
			return nil
		})
	})
	o.bind(c)
	return c
}
