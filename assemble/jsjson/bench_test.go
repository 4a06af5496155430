package jsjson_test

import (
	"encoding/json"
	"testing"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

func total(lines [][]byte) (n int64) {
	for _, line := range lines {
		n += int64(len(line))
	}
	return n
}

// BenchmarkParse reads recorded x402 lines; encoding/json.Valid, which builds
// nothing, is the reference of the same run.
func BenchmarkParse(b *testing.B) {
	lines := linesOf(b, longRun)
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
	lines := linesOf(b, longRun)
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
