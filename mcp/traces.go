package mcp

import (
	"context"
	"time"

	"github.com/settlewatch/settlewatch/ingest"
)

// Traces answers questions about run files; *ingest.Indexer does. Every answer
// covers what was written before the call, and every error a caller can act on
// is an *errcode.Error.
type Traces interface {
	List(ctx context.Context, q ingest.Query) (*ingest.Page, error)
	Receipt(ctx context.Context, ref ingest.Ref, template string) (*ingest.Receipt, error)
	Await(ctx context.Context, ref ingest.Ref, template string, wait time.Duration) (*ingest.Await, error)
}
