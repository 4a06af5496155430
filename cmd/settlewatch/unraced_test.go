//go:build !race

package main

const (
	manyOps = 100_000
	raced   = false
)
