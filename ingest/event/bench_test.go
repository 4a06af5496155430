package event_test

import (
	"testing"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest/event"
)

// BenchmarkDecode is the parse plus the envelope of recorded x402 lines.
func BenchmarkDecode(b *testing.B) {
	lines := linesOf(b, longRun)
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
