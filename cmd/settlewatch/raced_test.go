//go:build race

package main

// Where every memory access is watched there are fewer operations, and what looks at
// the pages alone, and not at us, is left to the other run.
const (
	manyOps = 5_000
	raced   = true
)
