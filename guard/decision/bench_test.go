package decision

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// benchLog writes a log of verdicts, with a review and a hold now and then.
func benchLog(b *testing.B, n int) string {
	b.Helper()
	dir := b.TempDir()
	f, err := os.Create(filepath.Join(dir, FileName))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	at, prev := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), ""
	for i := 0; i < n; i++ {
		in := Intent{Names: []string{"0x" + fmt.Sprintf("%040x", i%997), "host:api.example.com"}, Amount: "1000000", Asset: "eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913", Resource: "https://api.example.com/v1/things"}
		var body Body = Allowed{Intent: in, PolicyHash: testHash, Checked: Checked{Events: int64(i), Runs: 3, Through: stamp(at)}}
		switch {
		case i%500 == 1:
			body = Opened{ReviewID: fmt.Sprintf("r-%d", i), Kind: "payment", Intent: in, Counterparty: "x", Amount: "1.00", Asset: "USDC", ExpiresAt: at.Add(time.Hour), PolicyHash: testHash}
		case i%10 == 2:
			body = Held{HoldID: fmt.Sprintf("h-%d", i), Intent: in, ExpiresAt: at.Add(time.Minute)}
		case i%10 == 3:
			op := fmt.Sprintf("op-%d", i)
			body = Released{HoldID: fmt.Sprintf("h-%d", i-1), Why: WhyPaid, By: &Ref{Run: "run-1", Operation: &op}}
		}
		text, lines, err := compose(int64(i), prev, at, []entry{{body: body}})
		if err != nil {
			b.Fatal(err)
		}
		prev = lines[0].Sig
		if _, err := f.Write(text); err != nil {
			b.Fatal(err)
		}
		at = at.Add(time.Second)
	}
	return dir
}

func BenchmarkOpenVerifiesTheWholeChain(b *testing.B) {
	const n = 50_000
	dir := benchLog(b, n)
	info, _ := os.Stat(filepath.Join(dir, FileName))
	b.SetBytes(info.Size())
	b.ResetTimer()
	for range b.N {
		l, err := Open(Options{Dir: dir, Now: time.Now})
		if err != nil {
			b.Fatal(err)
		}
		s, err := l.Read(context.Background())
		if err != nil || s.Lines() != n {
			b.Fatal(s.Lines(), err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/line")
}

func BenchmarkAnUpdateOnALongLog(b *testing.B) {
	dir := benchLog(b, 20_000)
	l, _ := Open(Options{Dir: dir, Now: time.Now})
	if _, err := l.Read(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for i := range b.N {
		_, err := l.Update(context.Background(), "", func(*State) ([]Body, error) {
			return []Body{Frozen{Scope: fmt.Sprint(i % 10), Reason: "because"}}, nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAReadWhenNothingIsNew(b *testing.B) {
	dir := benchLog(b, 1000)
	l, _ := Open(Options{Dir: dir, Now: time.Now})
	for range b.N {
		if _, err := l.Read(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
