// Package decision is the decisions log: guard/decisions.ndjson, append-only, one
// hash-chained line a decision, and the fold of its lines into a [State].
//
// It owns the lock, the chain, the bytes on disk and what they add up to: reviews,
// approvals, receipts and their use, holds, freezes, resolutions, the baseline,
// acknowledged damage, and what of the history was seen. It also owns operator keys, since what counts of
// the log depends on their signatures, and what auditors do with a log: verify,
// pin, export, set aside. All of it is the guard contract, sections 4 to 7.
//
// Three rules hold everywhere. What is written together is believed together or
// not at all: every line but the last of a write says how many follow it, so that a
// crash between two of them leaves a torn tail like one within a line. What cannot
// be told for certain may forbid and not permit. And nobody is told of a decision
// before it is on disk.
//
// Files in the guard directory: decisions.ndjson, lock, torn-*.bin (what a crash
// left behind the last whole write), decisions-unsound-*.ndjson and
// decisions-foreign-*.ndjson (logs that were set aside), and decisions.new for as
// long as one is being replaced.
//
// It must never edit or remove a line, never believe half of one, never judge a
// payment, and never ask the index.
package decision
