//go:build race

package ingest

// slowly divides how often tests repeat what the race detector slows down tenfold.
const slowly = 5
