package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest/event"
)

// testSet is large enough for its shares to be near what they are meant to be.
var testSet = set{Events: 40_000, Files: 4}

func runsOf(t *testing.T, seed uint64, s set) (runs [][]byte, all tally) {
	t.Helper()
	g := newGenerator(seed)
	for _, sp := range s.spans() {
		var b bytes.Buffer
		count, err := g.run(&b, sp)
		if err != nil {
			t.Fatal(err)
		}
		all.add(count)
		runs = append(runs, b.Bytes())
	}
	return runs, all
}

func TestTheSameSeedMakesTheSameBytes(t *testing.T) {
	s := set{Events: 2000, Files: 3}
	a, tallyA := runsOf(t, 7, s)
	b, tallyB := runsOf(t, 7, s)
	if !slices.EqualFunc(a, b, bytes.Equal) || tallyA != tallyB {
		t.Error("two generators of one seed differ")
	}
	other, _ := runsOf(t, 8, s)
	if slices.EqualFunc(a, other, bytes.Equal) {
		t.Error("another seed makes the same bytes")
	}
}

func TestGeneratedLinesAreSoundEventsOfThePromisedMix(t *testing.T) {
	runs, all := runsOf(t, 1, testSet)
	var d jsjson.Doc
	var lines, size int64
	types := map[string]int{}
	payees := map[string]int{}
	for _, run := range runs {
		operations := map[string]bool{}
		last := ""
		for line := range bytes.Lines(run) {
			size += int64(len(line))
			lines++
			e, fault := event.Decode(&d, bytes.TrimSuffix(line, []byte("\n")))
			if fault != "" {
				t.Fatalf("line %d: %s: %s", lines, fault.Message(), line)
			}
			if _, ok := event.Canonical(e.At); !ok || string(e.At) < last {
				t.Fatalf("line %d: time %s after %s", lines, e.At, last)
			}
			last = string(e.At)
			if e.Op == event.TextOperation {
				operations[string(e.OpID)] = true
			}
			types[string(e.Type)+"@"+string(e.Role)]++
			if payee := e.Payload.Get("requirements").Get("pay_to").Text(); payee != nil && string(e.Type) == submitted.typ {
				payees[string(payee)]++
			}
		}
		all.Operations -= int64(len(operations))
	}
	if all.Operations != 0 {
		t.Errorf("the tally is off by %d operations", all.Operations)
	}
	if lines != all.Events || lines != int64(testSet.Events) || size != all.Bytes {
		t.Errorf("%d lines of %d bytes, tallied %d of %d", lines, size, all.Events, all.Bytes)
	}
	if perLine := size / lines; perLine < 590 || perLine > 640 {
		t.Errorf("a line has %d bytes, not about 610", perLine)
	}
	begun := int64(0)
	for _, n := range all.Outcomes {
		begun += n
	}
	for v, n := range all.Outcomes {
		want := float64(begun) * float64(outcomePerMill[v]) / 1000
		if math.Abs(float64(n)-want) > 5*math.Sqrt(want) {
			t.Errorf("%d operations of outcome %d, not about %.0f", n, v, want)
		}
	}
	if perOp := float64(lines) / float64(begun); perOp < 9 || perOp > 9.5 {
		t.Errorf("%.2f events an operation, not about 9.2", perOp)
	}
	if all.Huge == 0 {
		t.Error("no amount is larger than 64 bits")
	}
	if got := int64(types["x402.payment.submitted@client"]); got != all.Paid {
		t.Errorf("%d payments, tallied %d", got, all.Paid)
	}
	if got := int64(types["x402.payment.responded@client"]); got != all.Full {
		t.Errorf("%d answers, tallied %d full operations", got, all.Full)
	}
	busiest := 0
	for _, n := range payees {
		busiest = max(busiest, n)
	}
	if len(payees) < 200 || busiest < 20*int(all.Paid)/len(payees) {
		t.Errorf("%d payees, the busiest of %d payments: not skewed", len(payees), busiest)
	}
}

func TestABuildOfAGeneratedSetFindsWhatTheGeneratorTallied(t *testing.T) {
	s := set{Events: 3000, Files: 3}
	root := filepath.Join(t.TempDir(), "root")
	if _, err := makeSet(t.Context(), root, s, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := makeSet(t.Context(), root, s, 2); err == nil {
		t.Error("a set of another seed was taken for this one")
	}
	m, err := makeSet(t.Context(), root, s, 1)
	if err != nil {
		t.Fatalf("a set that is there already: %v", err)
	}
	for name, do := range map[string]work{"cold": coldBuild, "naive": naiveBuild, "read": rawRead, "decode": decode, "catch-up": catchUp} {
		got, err := do(t.Context(), task{Work: name, Root: root, Scratch: t.TempDir(), Set: s, Seed: 1})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name != "catch-up" && got.Bytes != m.Tally.Bytes {
			t.Errorf("%s went through %d bytes of %d", name, got.Bytes, m.Tally.Bytes)
		}
	}
}

func TestEveryProbeOfTheTableHasAWorkAndEveryRowANameOfItsOwn(t *testing.T) {
	for _, wantLarge := range []bool{false, true} {
		todo, err := chosen(options{Large: wantLarge})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, g := range todo {
			for _, p := range g.probes() {
				if works[p.work] == nil {
					t.Errorf("no work is called %q", p.work)
				}
			}
			for _, r := range g.rows {
				if seen[r.name] {
					t.Errorf("two rows are named %q", r.name)
				}
				seen[r.name] = true
				if r.metric.of == nil || r.what == "" {
					t.Errorf("row %q is not complete", r.name)
				}
			}
		}
	}
}

func TestRowsAreChosenByName(t *testing.T) {
	todo, err := chosen(options{only: []string{"cold", "idle"}})
	if err != nil || len(todo) != 2 || len(todo[0].probes()) != 2 {
		t.Errorf("chose %v, %v", todo, err)
	}
	for _, only := range []string{"nonesuch", "rss-large"} {
		if _, err := chosen(options{only: []string{only}}); err == nil {
			t.Errorf("%s was accepted", only)
		}
	}
}

// sampleReport has a row of each kind of verdict.
func sampleReport() report {
	cold := row{name: "cold", what: "a build, vs a read", item: probe{work: "cold"}, ref: probe{work: "read"}, metric: wall, now: atMost(14), goal: atMost(9)}
	results := []result{{row: cold, On: "1M/100", RefOn: "1M/100"}, {row: cold, On: "1M/1", RefOn: "1M/1"}}
	results[0].settle([]sample{{Seconds: 1}, {Seconds: 9}, {Seconds: 1.25}}, []sample{{Seconds: 0.125}, {Seconds: 0.125}, {Seconds: 0.125}})
	results[1].settle([]sample{{Seconds: 2}}, []sample{{Seconds: 0.1}})
	alone := result{row: row{name: "size", what: "index size", item: probe{work: "cold"}, metric: perOp, now: atMost(400)}, On: "1M/100"}
	alone.settle([]sample{{Index: 3000, Operations: 10}}, nil)
	fast := result{row: row{name: "decode", what: "decode, vs encoding/json", item: probe{work: "decode"}, ref: probe{work: "json"}, metric: speed, goal: atLeast(12)}, On: "100k/20", RefOn: "100k/20"}
	fast.settle([]sample{{Bytes: 1000e6, Seconds: 1}}, []sample{{Bytes: 100e6, Seconds: 1}})
	return report{
		machine: machine{Processor: "a processor", Cores: 2, System: "linux/amd64", Go: "go1.26", Date: "2026-11-30"},
		options: options{Rounds: 3, Seed: 1},
		results: append(results, alone, fast, result{row: row{name: "duckdb", what: "vs DuckDB", item: probe{work: "cold"}, metric: wall}, On: "1M/100", Skipped: "duckdb is not installed"}),
	}
}

func TestTheTableShowsRatiosTargetsAndVerdicts(t *testing.T) {
	table := sampleReport().table()
	for _, want := range []string{
		"2026-11-30, a processor, 2 cores",
		"cold    a build, vs a read        1M/100   1.25 s           125 ms     10.0x            <= 14x              <= 9x   met, goal open",
		"MISSED",
		"300 B/operation  <= 400 B/operation",
		"goal open",
		"not measured: duckdb is not installed",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
}

func TestSmallSetsAreMeasuredButNotJudged(t *testing.T) {
	r := sampleReport()
	for i := range r.results {
		r.results[i].Rough = true
	}
	if table := r.table(); strings.Contains(table, "MISSED") || !strings.Contains(table, "not judged") || !strings.Contains(table, "20.0x") {
		t.Errorf("got\n%s", table)
	}
}

func TestTheResultsAsJSONHoldWhatTheTableShows(t *testing.T) {
	b, err := sampleReport().json()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Shape string
		Rows  []jsonRow
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if got.Shape != "bench/1" || len(got.Rows) != 5 {
		t.Fatalf("got %s", b)
	}
	if r := got.Rows[0]; *r.Result != 10 || r.Target.Most != 14 || r.Verdict != "met, goal open" || r.Reference.Seconds != 0.125 {
		t.Errorf("the first row is %+v", r)
	}
	if r := got.Rows[4]; r.Result != nil || !strings.HasPrefix(r.Verdict, "not measured") {
		t.Errorf("the last row is %+v", r)
	}
}

func TestOnlyTheMarkedPartOfADocumentIsReplaced(t *testing.T) {
	document := []byte("# head\n\n" + beginMark + "\nold\n" + endMark + "\n\nfoot\n")
	got, err := insert(document, "new\n")
	if err != nil {
		t.Fatal(err)
	}
	again, err := insert(got, "new\n")
	if err != nil || !bytes.Equal(again, got) {
		t.Errorf("a second time it differs: %v\n%s", err, again)
	}
	want := "# head\n\n" + beginMark + "\n\nnew\n\n" + endMark + "\n\nfoot\n"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if _, err := insert([]byte("no place"), "new"); err == nil {
		t.Error("a document without a place was accepted")
	}
}

func TestTheDocumentHasAPlaceForTheTableAndNamesEveryRow(t *testing.T) {
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := insert(document, ""); err != nil {
		t.Error(err)
	}
	for _, g := range groups {
		for _, r := range g.rows {
			if !bytes.Contains(document, []byte("`"+r.name+"`")) {
				t.Errorf("docs/performance.md does not say what `%s` means", r.name)
			}
		}
	}
}

func TestACallIsUnderstoodOrRefusedWithStatusTwo(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		out    string
	}{
		{[]string{"--list"}, 0, "cold-large       cold reindex"},
		{[]string{"--rows", "nonesuch"}, 2, "no row is named nonesuch"},
		{[]string{"--rounds", "-1"}, 2, "--rounds"},
		{[]string{"--nonesuch"}, 2, "try: --help"},
		{[]string{"extra"}, 2, `unexpected "extra"`},
		{[]string{"--help"}, 0, "usage: go run ./cmd/bench"},
	} {
		var out bytes.Buffer
		if status := command(context.Background(), c.args, strings.NewReader(""), &out, &out); status != c.status || !strings.Contains(out.String(), c.out) {
			t.Errorf("%v: status %d, said %s", c.args, status, &out)
		}
	}
}
