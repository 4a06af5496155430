package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/chp"
)

func (a *app) chpAdapter() *cobra.Command {
	return a.command(&cobra.Command{
		Use:   "chp-adapter",
		Short: "answer the conformance runner of the CHP protocol on stdin",
		Long: `Read one JSON request a line on stdin, {"op": ..., "args": {...}}, and write one JSON
answer a line on stdout: {"ok": true, "result": ...} or {"ok": false, "error": "..."}.

  canonical_json, content_hash   {payload, numbers?}
  chain_hash                     {prev_sig, entry, numbers?}
  evaluate_gate                  {action, policy?, committed_today?}
  approve_human                  {action, policy?, committed_today?, approver}

numbers is lexeme, float or jcs; without it lexeme counts. Nothing is read from disk, and
nothing is remembered from one line to the next.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error {
		_, err := leave(ctx, func() (struct{}, error) { return struct{}{}, chp.Answer(a.stdin, a.stdout) })
		return err
	})
}
