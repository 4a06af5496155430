//go:build race

package main

// manyOps is fewer where every memory access is watched.
const manyOps = 10_000
