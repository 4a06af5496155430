//go:build !race

package ingest

const slowly = 1
