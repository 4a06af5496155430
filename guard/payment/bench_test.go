package payment

import (
	"bytes"
	"os"
	"testing"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest/event"
)

// lines are the events of a recorded run, each in a document of its own, so that a
// benchmark measures the projection alone. Short runs only: the documents must
// stay in the cache, as a line that was just read is.
func lines(b *testing.B, file string) []event.Event {
	b.Helper()
	data, err := os.ReadFile(runsDir + "/" + file)
	if err != nil {
		b.Fatal(err)
	}
	var events []event.Event
	for line := range bytes.Lines(data) {
		if e, fault := event.Decode(new(jsjson.Doc), line); fault == "" {
			events = append(events, e)
		}
	}
	return events
}

func BenchmarkProject(b *testing.B) {
	for name, file := range map[string]string{
		"client":    "01-four-sellers-settled/events/1796030986749.ndjson",
		"all sides": "10-both-sides/events/1796031007008.ndjson",
		"escrow":    "15-circle-escrow/events/circle-escrow.ndjson",
	} {
		events := lines(b, file)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var in Interner
			i := 0
			for b.Loop() {
				Project(events[i], &in)
				if i++; i == len(events) {
					i = 0
				}
			}
		})
	}
	var doc jsjson.Doc
	e, _ := event.Decode(&doc, []byte(`{"event_id":"a","event_type":"escrow.work.delivered","occurred_at":"2026-01-01T00:00:00.000Z","seq":1,"context_id":"x","payload":{}}`))
	b.Run("nothing", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			Project(e, nil)
		}
	})
}

func BenchmarkSummary(b *testing.B) {
	var ops []*operation
	for _, r := range load(b, runsDir+"/01-four-sellers-settled") {
		ops = append(ops, r.ops...)
	}
	b.ReportAllocs()
	var sum Summary
	i := 0
	for b.Loop() {
		ops[i].state.SummaryInto(&sum, Outside{})
		if i++; i == len(ops) {
			i = 0
		}
	}
}

func BenchmarkLink(b *testing.B) {
	sums, ops := []Summary{}, load(b, runsDir+"/14-long-run")["1796031753779"].ops
	for _, op := range ops {
		sums = append(sums, op.state.Summary(Outside{}))
	}
	var payments []LinkPayment
	for i := range sums {
		for j := range sums[i].Payments {
			if c, ok := sums[i].Payments[j].Candidate(); ok {
				c.Answered = false
				payments = append(payments, c)
			}
		}
	}
	var answers []LinkAnswer
	for _, p := range payments {
		t := p.Accepts[0]
		answers = append(answers, LinkAnswer{
			Key: p.Key, AtMS: p.AtMS + 1, AtOK: true, Payee: t.Payee, Asset: t.Asset, Amount: t.Amount, Resource: p.Resource,
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		Link(payments, answers)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(answers)), "ns/answer")
}
