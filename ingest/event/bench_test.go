package event_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest/event"
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

// BenchmarkDecode is the parse plus the envelope of recorded x402 lines.
func BenchmarkDecode(b *testing.B) {
	lines := recorded(b)
	var n int64
	for _, line := range lines {
		n += int64(len(line))
	}
	b.SetBytes(n)
	b.ReportAllocs()
	var d jsjson.Doc
	for b.Loop() {
		for _, line := range lines {
			if _, fault := event.Decode(&d, line); fault != "" {
				b.Fatal(fault)
			}
		}
	}
}
