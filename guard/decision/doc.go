// Package decision is the decisions log: guard/decisions.ndjson, append-only, one
// hash-chained line a decision, and the fold of its lines into a [State].
//
// It owns the lock, the chain, the bytes on disk and what they add up to: reviews,
// approvals, holds, freezes, resolutions, the baseline, acknowledged damage, and
// what of the history was seen. It also owns operator keys, since what counts of
// the log depends on their signatures. All of it is the guard contract, sections
// 4 to 7.
//
// It must never edit or remove a line, never believe half of one, never judge a
// payment, and never ask the index.
package decision
