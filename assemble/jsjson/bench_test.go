package jsjson_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// recorded is the lines of a recorded buyer session.
func recorded(tb testing.TB) [][]byte {
	tb.Helper()
	names, err := filepath.Glob("../../testdata/runs/14-long-run/events/*.ndjson")
	if err != nil || len(names) == 0 {
		tb.Fatalf("find the recorded run: %v, %d files", err, len(names))
	}
	var lines [][]byte
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			lines = append(lines, bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	return lines
}

func total(lines [][]byte) (n int64) {
	for _, line := range lines {
		n += int64(len(line))
	}
	return n
}

// BenchmarkParse reads recorded x402 lines; encoding/json.Valid, which builds
// nothing, is the reference of the same run.
func BenchmarkParse(b *testing.B) {
	lines := recorded(b)
	b.Run("jsjson", func(b *testing.B) {
		b.SetBytes(total(lines))
		b.ReportAllocs()
		var d jsjson.Doc
		for b.Loop() {
			for _, line := range lines {
				if err := d.Parse(line); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("encoding_json_valid", func(b *testing.B) {
		b.SetBytes(total(lines))
		b.ReportAllocs()
		for b.Loop() {
			for _, line := range lines {
				if !json.Valid(line) {
					b.Fatal("not valid")
				}
			}
		}
	})
}

// BenchmarkAppend writes the same lines as they stand in a receipt.
func BenchmarkAppend(b *testing.B) {
	lines := recorded(b)
	docs := make([]jsjson.Doc, len(lines))
	for i, line := range lines {
		if err := docs[i].Parse(line); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(total(lines))
	b.ReportAllocs()
	var out []byte
	for b.Loop() {
		for i := range docs {
			out = docs[i].Root().Append(out[:0], 2, 2)
		}
	}
}
