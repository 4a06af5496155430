package main

import (
	"fmt"
	"math"
	"strings"
)

// size names a set by the part it plays in a run of the benchmark.
type size int

const (
	small size = iota
	million
	many
	one
	large
	giant
)

// probe is one thing to measure: a work, on a set.
type probe struct {
	work string
	on   size
	warm bool // on an index that is up to date
	rate int  // appends a second
}

// metric is a number of a sample, and how people read it.
type metric struct {
	of   func(sample) float64
	show func(float64) string
}

var (
	wall   = metric{func(s sample) float64 { return s.Seconds }, showSeconds}
	cpu    = metric{func(s sample) float64 { return s.CPU }, showSeconds}
	speed  = metric{func(s sample) float64 { return ratio(float64(s.Bytes), s.Seconds) }, func(v float64) string { return showNumber(v/1e6) + " MB/s" }}
	events = metric{func(s sample) float64 { return ratio(float64(s.Events), s.Seconds) }, func(v float64) string { return showNumber(v/1e3) + " k events/s" }}
	call   = metric{func(s sample) float64 { return s.P50 }, showSeconds}
	tail99 = metric{func(s sample) float64 { return s.P99 }, showSeconds}
	// net leaves out of a call the Sync that is the same for every question.
	net = metric{func(s sample) float64 { return s.P50 - s.Barrier }, showSeconds}
	// inside is the part of a check that has its snapshot: what is asked of the index,
	// and the judgement. The lock, the log and the Sync are around it.
	inside = metric{func(s sample) float64 { return s.Inside }, showSeconds}
	memory = metric{func(s sample) float64 { return float64(s.RSS) / 1e6 }, func(v float64) string { return showNumber(v) + " MB" }}
	log    = metric{func(s sample) float64 { return float64(s.WAL) / 1e6 }, memory.show}
	stored = metric{func(s sample) float64 { return float64(s.Bytes) / (1 << 20) }, func(v float64) string { return showNumber(v) + " MiB" }}
	perOp  = metric{func(s sample) float64 { return ratio(float64(s.Index), float64(s.Operations)) }, func(v float64) string { return showNumber(v) + " B/operation" }}
	busy   = metric{func(s sample) float64 { return 100 * ratio(s.CPU, s.Seconds) }, func(v float64) string { return fmt.Sprintf("%.4f %%", v) }}
)

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func showSeconds(v float64) string {
	switch {
	case v < 1e-3:
		return showNumber(v*1e6) + " us"
	case v < 1:
		return showNumber(v*1e3) + " ms"
	}
	return showNumber(v) + " s"
}

// showNumber keeps three digits that mean something.
func showNumber(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.1 || a == 0:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// bound is what a value has to keep; the zero bound keeps everything.
type bound struct {
	most, least float64
}

func atMost(v float64) bound  { return bound{most: v} }
func atLeast(v float64) bound { return bound{least: v} }

func (b bound) none() bool           { return b == bound{} }
func (b bound) holds(v float64) bool { return (b.most == 0 || v <= b.most) && v >= b.least }

func (b bound) show(show func(float64) string) string {
	switch {
	case b.most != 0:
		return "<= " + round(show(b.most))
	case b.least != 0:
		return ">= " + round(show(b.least))
	}
	return ""
}

// round drops zeros that mean nothing in a number that was not measured.
func round(shown string) string {
	end := strings.IndexFunc(shown, func(c rune) bool { return c != '.' && (c < '0' || c > '9') })
	if end < 0 || !strings.Contains(shown[:end], ".") {
		return shown
	}
	return strings.TrimRight(strings.TrimRight(shown[:end], "0"), ".") + shown[end:]
}

// row is one line of the table: item by reference where there is one, else
// item alone.
type row struct {
	name, what string
	item, ref  probe
	metric     metric
	refMetric  metric // the reference's, where it is another
	difference bool   // what the item costs beyond the reference, not how many times as much
	now, goal  bound  // what this version has to keep, and what is aimed at
}

func (r row) alone() bool { return r.ref == probe{} }

func (r row) reference() metric {
	if r.refMetric.of == nil {
		return r.metric
	}
	return r.refMetric
}

func (r row) value(item, ref sample) float64 {
	if r.alone() {
		return r.metric.of(item)
	}
	if r.difference {
		return r.metric.of(item) - r.reference().of(ref)
	}
	return ratio(r.metric.of(item), r.reference().of(ref))
}

func (r row) show(v float64) string {
	if r.alone() || r.difference {
		return r.metric.show(v)
	}
	return showNumber(v) + "x"
}

func (r row) verdict(v float64) string {
	switch {
	case !r.now.holds(v):
		return "MISSED"
	case r.now.none() && r.goal.none():
		return "for comparison"
	case !r.goal.holds(v) && r.now.none():
		return "goal open"
	case !r.goal.holds(v):
		return "met, goal open"
	case r.goal.none():
		return "met"
	}
	return "goal met"
}

// group is rows that are measured together: in every round each of their
// probes has one turn.
type group struct {
	rows  []row
	times int  // rounds for each one asked for: more where a round is short
	once  bool // one round is enough, and long
	large bool // only when the large set was asked for
	small bool // only when it was not
}

// groups is the whole table. A later row needs an entry here and, if what it
// measures is new, a work.
var groups = []group{
	{times: 2, rows: []row{
		{name: "decode", what: "validate a line and read its envelope, vs encoding/json", item: probe{work: "decode"}, ref: probe{work: "json-envelope"}, metric: speed, goal: atLeast(12)},
		{name: "extract", what: "the same and every money fact, vs encoding/json", item: probe{work: "extract"}, ref: probe{work: "json-facts"}, metric: speed, goal: atLeast(12)},
		{name: "decode-read", what: "validate and read the envelope, vs read(2)", item: probe{work: "decode"}, ref: probe{work: "read"}, metric: speed, goal: atLeast(0.25)},
		{name: "extract-read", what: "the same and every money fact, vs read(2)", item: probe{work: "extract"}, ref: probe{work: "read"}, metric: speed, goal: atLeast(0.25)},
	}},
	{times: 1, rows: []row{
		{name: "naive", what: "naive build (a row an event, encoding/json), vs cold reindex", item: probe{work: "naive"}, ref: probe{work: "cold"}, metric: wall, goal: atLeast(20)},
		{name: "sqlite3", what: "sqlite3 shell (.import, json functions), vs cold reindex", item: probe{work: "sqlite3"}, ref: probe{work: "cold"}, metric: wall},
		{name: "node", what: "node (read, parse and group only), vs cold reindex", item: probe{work: "node"}, ref: probe{work: "cold"}, metric: wall},
		{name: "catch-up", what: "catch up with runs that doubled, vs cold reindex", item: probe{work: "catch-up"}, ref: probe{work: "cold"}, metric: events, goal: atLeast(0.5)},
	}},
	{times: 1, rows: []row{
		{name: "cold", what: "cold reindex, vs read(2) of the same bytes", item: probe{work: "cold", on: million}, ref: probe{work: "read", on: million}, metric: wall, now: atMost(14), goal: atMost(9)},
		{name: "cold-cpu", what: "the same in processor time", item: probe{work: "cold", on: million}, ref: probe{work: "read", on: million}, metric: cpu},
		{name: "cold-copy", what: "cold reindex, vs SQLite copying the finished index", item: probe{work: "cold", on: million}, ref: probe{work: "copy", on: million, warm: true}, metric: wall},
		{name: "copy-read", what: "SQLite copying the finished index, vs read(2) of the run files", item: probe{work: "copy", on: million, warm: true}, ref: probe{work: "read", on: million}, metric: wall},
		{name: "duckdb", what: "cold reindex, vs DuckDB (scan and group only)", item: probe{work: "cold", on: million}, ref: probe{work: "duckdb", on: million}, metric: wall, goal: atMost(1)},
		{name: "rss", what: "peak memory of the cold reindex", item: probe{work: "cold", on: million}, metric: memory, now: atMost(100)},
		{name: "size", what: "index size, payments included", item: probe{work: "cold", on: million}, metric: perOp, now: atMost(400)},
	}},
	{times: 1, rows: []row{
		{name: "cold-one", what: "cold reindex of one large run, vs read(2)", item: probe{work: "cold", on: one}, ref: probe{work: "read", on: one}, metric: wall, now: atMost(14), goal: atMost(9)},
		{name: "rss-one", what: "peak memory of it", item: probe{work: "cold", on: one}, metric: memory, now: atMost(100)},
	}},
	{times: 1, rows: []row{
		{name: "cold-many", what: "cold reindex of very many runs, vs read(2)", item: probe{work: "cold", on: many}, ref: probe{work: "read", on: many}, metric: wall, now: atMost(14), goal: atMost(9)},
		{name: "rss-many", what: "peak memory of it", item: probe{work: "cold", on: many}, metric: memory, now: atMost(100)},
	}},
	{times: 4, rows: []row{
		{name: "start", what: "first list of a new process, nothing changed, vs bare readdir+fstatat", item: probe{work: "start", on: many, warm: true}, ref: probe{work: "stat", on: many}, metric: wall, now: atMost(2.5)},
	}},
	{times: 1, small: true, rows: []row{
		{name: "list-growth", what: "list the newest 50: ten times the events, vs one", item: probe{work: "newest", on: million, warm: true}, ref: probe{work: "newest", warm: true}, metric: net, now: atMost(1.1)},
		{name: "list", what: "list the newest 50, vs SELECT 1", item: probe{work: "newest", on: million, warm: true}, ref: probe{work: "select-1"}, metric: net, refMetric: call},
		{name: "receipt", what: "a receipt, vs list the newest 50", item: probe{work: "receipt", on: million, warm: true}, ref: probe{work: "newest", on: million, warm: true}, metric: net},
		{name: "receipt-p99", what: "a receipt, 99th of 100, Sync included", item: probe{work: "receipt", on: million, warm: true}, metric: tail99, goal: atMost(1e-3)},
		{name: "sync", what: "Sync when nothing changed, root watched", item: probe{work: "newest", on: million, warm: true}, metric: metric{func(s sample) float64 { return s.Barrier }, showSeconds}},
	}},
	{times: 1, small: true, rows: verdicts(million, small, bound{})},
	{times: 1, small: true, rows: []row{
		{name: "page-overview", what: "the overview of the pages, 99th of 100, Sync included", item: probe{work: "page-overview", on: million, warm: true}, metric: tail99, now: atMost(50e-3)},
		{name: "page-reviews", what: "ten of 200 reviews", item: probe{work: "page-reviews", on: million, warm: true}, metric: tail99, now: atMost(50e-3)},
		{name: "page-operations", what: "the newest 50 operations", item: probe{work: "page-operations", on: million, warm: true}, metric: tail99, now: atMost(50e-3)},
		{name: "page-open", what: "the oldest 50 nobody heard of again", item: probe{work: "page-open", on: million, warm: true}, metric: tail99, now: atMost(50e-3)},
		{name: "page-operation", what: "one operation, with its receipt", item: probe{work: "page-operation", on: million, warm: true}, metric: tail99, now: atMost(50e-3)},
		{name: "page-party", what: "the busiest counterparty", item: probe{work: "page-party", on: million, warm: true}, metric: tail99, now: atMost(50e-3)},
		{name: "page-log", what: "the decisions log", item: probe{work: "page-log", on: million, warm: true}, metric: tail99, now: atMost(50e-3)},
		{name: "page-health", what: "runs, faults and lag", item: probe{work: "page-health", on: million, warm: true}, metric: tail99, now: atMost(50e-3)},
	}},
	{times: 1, large: true, rows: []row{
		{name: "list-growth", what: "list the newest 50: ten times the events, vs one", item: probe{work: "newest", on: large, warm: true}, ref: probe{work: "newest", on: million, warm: true}, metric: net, now: atMost(1.1)},
		{name: "list", what: "list the newest 50, vs SELECT 1", item: probe{work: "newest", on: large, warm: true}, ref: probe{work: "select-1"}, metric: net, refMetric: call},
		{name: "receipt", what: "a receipt, vs list the newest 50", item: probe{work: "receipt", on: large, warm: true}, ref: probe{work: "newest", on: large, warm: true}, metric: net},
		{name: "receipt-p99", what: "a receipt, 99th of 100, Sync included", item: probe{work: "receipt", on: large, warm: true}, metric: tail99, goal: atMost(1e-3)},
		{name: "first", what: "first list of a new process, nothing changed", item: probe{work: "start", on: large, warm: true}, metric: wall, goal: atMost(20e-3)},
	}},
	{times: 1, large: true, rows: verdicts(large, million, atLeast(10_000))},
	{times: 1, large: true, rows: []row{
		{name: "cold-large", what: "cold reindex, vs read(2) of the same bytes", item: probe{work: "cold", on: large}, ref: probe{work: "read", on: large}, metric: wall, goal: atMost(9)},
		{name: "rss-large", what: "peak memory of it", item: probe{work: "cold", on: large}, metric: memory, now: atMost(300)},
	}},
	{once: true, large: true, rows: []row{
		{name: "rss-giant", what: "peak memory of a cold reindex of one run with all of it", item: probe{work: "cold", on: giant}, metric: memory, now: atMost(300)},
	}},
	{times: 1, rows: []row{
		{name: "visible", what: "append to visible elsewhere, 1,000 a second, vs a commit", item: probe{work: "visible", on: many, warm: true, rate: 1000}, ref: probe{work: "commit"}, metric: call, refMetric: wall, goal: atMost(6)},
		{name: "visible-p99", what: "the same, 99th of 100", item: probe{work: "visible", on: many, warm: true, rate: 1000}, ref: probe{work: "commit"}, metric: tail99, refMetric: wall, goal: atMost(40)},
		{name: "visible-10k", what: "append to visible elsewhere, 10,000 a second, vs a commit", item: probe{work: "visible", on: many, warm: true, rate: 10_000}, ref: probe{work: "commit"}, metric: call, refMetric: wall, goal: atMost(6)},
		{name: "visible-10k-p99", what: "the same, 99th of 100", item: probe{work: "visible", on: many, warm: true, rate: 10_000}, ref: probe{work: "commit"}, metric: tail99, refMetric: wall, goal: atMost(40)},
	}},
	{times: 1, rows: []row{
		{name: "burst", what: "a question of 8 readers while a million events arrive at once, 99th of 100", item: probe{work: "burst", on: million}, metric: tail99, goal: atMost(1e-3)},
		{name: "burst-rss", what: "peak memory of the process that indexes them", item: probe{work: "burst", on: million}, metric: memory, now: atMost(100)},
		{name: "burst-log", what: "the most the index's write-ahead log had meanwhile", item: probe{work: "burst", on: million}, metric: log, now: atMost(64)},
	}},
	{once: true, rows: []row{
		{name: "held", what: "the same, while somebody holds a snapshot for a minute", item: probe{work: "burst-held", on: million}, metric: tail99, goal: atMost(1e-3)},
		{name: "held-log", what: "the most the write-ahead log had meanwhile", item: probe{work: "burst-held", on: million}, metric: log},
	}},
	{times: 1, rows: []row{
		{name: "binary", what: "the program, stripped", item: probe{work: "binary"}, metric: stored, now: atMost(25)},
		{name: "spawn", what: "from the start of the program to its first answer to tools/list", item: probe{work: "spawn", on: million, warm: true}, metric: call, now: atMost(15e-3)},
		{name: "resident", what: "memory of the program while nobody asks", item: probe{work: "resident", on: million, warm: true}, metric: memory, now: atMost(40)},
	}},
	{once: true, rows: []row{
		{name: "idle", what: "processor time while nothing happens", item: probe{work: "idle", on: many, warm: true}, metric: busy, now: atMost(0.02)},
	}},
}

// verdicts are the rows of the guard on a set; tenth has a tenth of its events, and
// reread is what re-reading the history has to cost more.
func verdicts(on, tenth size, reread bound) []row {
	return []row{
		{name: "verdict", what: "a verdict, a typical counterparty, vs SELECT 1", item: probe{work: "verdict", on: on, warm: true}, ref: probe{work: "select-1"}, metric: inside, refMetric: call, now: atMost(20)},
		{name: "verdict-growth", what: "the same: ten times the events, vs one", item: probe{work: "verdict", on: on, warm: true}, ref: probe{work: "verdict", on: tenth, warm: true}, metric: inside, now: atMost(1.5)},
		{name: "verdict-reread", what: "reading every run file again, every line decoded, vs a whole check", item: probe{work: "reread", on: on}, ref: probe{work: "verdict", on: on, warm: true}, metric: wall, refMetric: net, now: reread},
		{name: "hottest-reread", what: "the same, vs a check of the busiest counterparty", item: probe{work: "reread", on: on}, ref: probe{work: "verdict-hottest", on: on, warm: true}, metric: wall, refMetric: net},
		{name: "check", what: "a whole check, its Sync aside", item: probe{work: "verdict", on: on, warm: true}, metric: net},
		{name: "verdict-hottest", what: "a verdict, the busiest counterparty, vs SELECT 1", item: probe{work: "verdict-hottest", on: on, warm: true}, ref: probe{work: "select-1"}, metric: inside, refMetric: call},
		{name: "verdict-past", what: "the same after a baseline, vs before", item: probe{work: "verdict-past", on: on, warm: true}, ref: probe{work: "verdict-hottest", on: on, warm: true}, metric: inside},
		{name: "verdict-stdio", what: "a check over stdio, beyond a bare tool call", item: probe{work: "stdio-check", on: on, warm: true}, ref: probe{work: "stdio-bare", on: on, warm: true}, metric: call, difference: true, now: atMost(1e-3)},
		{name: "verdict-logged", what: "an allow that is written down, vs a bare append and fsync", item: probe{work: "verdict-logged", on: on, warm: true}, ref: probe{work: "append"}, metric: net, refMetric: call},
	}
}

// works is everything a child can be told to do.
var works = map[string]work{
	"make": makeRoot,
	"keep": keptBuild,

	"decode":     decode,
	"reread":     reread,
	"extract":    extract,
	"cold":       coldBuild,
	"start":      start,
	"newest":     newest,
	"receipt":    receipt,
	"catch-up":   catchUp,
	"idle":       idle,
	"visible":    visible,
	"burst":      burst,
	"burst-held": burstHeld,
	"binary":     binary,
	"spawn":      spawn,
	"resident":   resident,
	"sidecar":    sidecar,

	"verdict":         verdict,
	"verdict-hottest": verdictHottest,
	"verdict-past":    verdictPast,
	"page-overview":   page("/"),
	"page-reviews":    page("/reviews"),
	"page-operations": page("/operations"),
	"page-open":       page("/operations?settlement=unknown&sort=oldest"),
	"page-operation":  page("/operation"),
	"page-party":      page("/counterparty"),
	"page-log":        page("/log"),
	"page-health":     page("/health"),
	"verdict-logged":  verdictLogged,
	"stdio-check":     stdioCheck,
	"stdio-bare":      stdioBare,
	"append":          bareAppend,

	"read":          rawRead,
	"stat":          bareStat,
	"json-envelope": jsonEnvelope,
	"json-facts":    jsonFacts,
	"naive":         naiveBuild,
	"select-1":      selectOne,
	"commit":        bareCommit,
	"copy":          bareCopy,
	"sqlite3":       sqliteShell,
	"duckdb":        duckdb,
	"node":          node,
}
