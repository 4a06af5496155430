//go:build !wip

package guard

import (
	"context"
	"errors"
	"time"

	"github.com/settlewatch/settlewatch/guard/decision"
)

// Guard answers for one trace root. Its methods may be called from many goroutines
// and any number of processes may have one on the same root.
type Guard struct{}

var errTodo = errors.New("not built yet")

// Policy is what judges; nil when the policy file could not be read.
func (g *Guard) Policy() *Policy { return nil }

// Check answers check_before_pay (guard contract, section 1). An error is one of the
// request (E_INPUT); whatever keeps the guard from judging is a verdict, not_ready.
func (g *Guard) Check(ctx context.Context, r Request) (*Verdict, error) { return nil, errTodo }

// Headroom answers get_headroom (section 5).
func (g *Guard) Headroom(ctx context.Context, q HeadroomQuery) (*Headroom, error) {
	return nil, errTodo
}

// Review answers get_review_status for a whole id or a shortened one (section 4). It
// waits up to wait for a pending one to be decided.
func (g *Guard) Review(ctx context.Context, id string, wait time.Duration) (*ReviewView, error) {
	return nil, errTodo
}

// Reviews lists reviews, newest first.
func (g *Guard) Reviews(ctx context.Context, q ReviewQuery) (*ReviewPage, error) { return nil, errTodo }

// Decide decides reviews, all or none, and gives them as they stand then.
func (g *Guard) Decide(ctx context.Context, d Decision) ([]ReviewView, error) { return nil, errTodo }

// ReleaseHold ends a hold of the same actor (section 5); EndHold is a person's.
func (g *Guard) ReleaseHold(ctx context.Context, id, actor string) error { return errTodo }

// EndHold ends any hold.
func (g *Guard) EndHold(ctx context.Context, id, note string) error { return errTodo }

// Holds lists the active holds, oldest first.
func (g *Guard) Holds(ctx context.Context) ([]HoldView, error) { return nil, errTodo }

// Freeze blocks every check, of one counterparty or, when it is "", of all
// (section 6). It gives the scope as it was written.
func (g *Guard) Freeze(ctx context.Context, counterparty, reason string) (string, error) {
	return "", errTodo
}

// Unfreeze ends a freeze.
func (g *Guard) Unfreeze(ctx context.Context, counterparty, reason string, by decision.Signer) error {
	return errTodo
}

// Resolve closes operations, all or none; Unresolve takes a resolution back.
func (g *Guard) Resolve(ctx context.Context, all []Resolution) error { return errTodo }

// Unresolve takes a resolution back.
func (g *Guard) Unresolve(ctx context.Context, ref decision.Ref, note string) error { return errTodo }

// Open lists operations that count as open, newest first, for a resolution in bulk.
func (g *Guard) Open(ctx context.Context, q OpenQuery) ([]OpenOperation, error) { return nil, errTodo }

// Baseline makes history of everything open or damaged until now, and gives how
// much that was.
func (g *Guard) Baseline(ctx context.Context, note string, by decision.Signer) (open, damaged int, err error) {
	return 0, 0, errTodo
}

// Damage lists damage that is not acknowledged.
func (g *Guard) Damage(ctx context.Context) ([]DamageItem, error) { return nil, errTodo }

// Acknowledge accepts the damage of a run, or of every vanished run when run is "",
// and gives how many runs that were.
func (g *Guard) Acknowledge(ctx context.Context, run, note string, by decision.Signer) (int, error) {
	return 0, errTodo
}

// Standing tells how the guard stands.
func (g *Guard) Standing(ctx context.Context) (*Standing, error) { return nil, errTodo }

// Noticed takes note of vanished evidence; the indexer calls it.
func (g *Guard) Noticed(ctx context.Context, r Rewrite) error { return errTodo }

// Watch keeps the record of what was seen up to date until ctx ends.
func (g *Guard) Watch(ctx context.Context) error { return errTodo }

// Close records what was seen.
func (g *Guard) Close(ctx context.Context) error { return errTodo }
