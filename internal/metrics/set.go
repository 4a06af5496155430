package metrics

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// Reading is how things stand at a scrape.
type Reading struct {
	Index *Index // nil: there is none yet
	Log   *Log   // nil: it cannot be read, or there is no guard yet
}

// Index is how the index stands.
type Index struct {
	Behind time.Duration // how long it took to bring it up to date, or has taken so far
	Counts
	Current *Current // nil: it could not be brought up to date within the time a scrape has
}

// Counts is what the index holds.
type Counts struct{ Runs, Operations, Events, Faults, Bytes int64 }

// Current is what is known of an index that covers every run file.
type Current struct {
	BehindBytes           int64 // of run files, which it did not cover when it was asked
	DamagedRuns, TornRuns int64
	IndexBytes, WALBytes  int64
}

// Log is how the decisions log stands.
type Log struct {
	Pending int           // reviews
	Oldest  time.Duration // how long the oldest of them has waited
}

// Set is the metrics of one server.
type Set struct {
	ctx     context.Context
	version string
	read    func(context.Context) Reading
	counted *metrics.Set
}

// typed has the library say of each metric what it is, once for the process.
var typed = sync.OnceFunc(func() { metrics.ExposeMetadata(true) })

// scrapeTime bounds what a scrape asks for. It is less than the ten seconds after
// which Prometheus gives up by default.
const scrapeTime = 5 * time.Second

// New makes a Set. read is asked at each scrape; it ends when ctx does.
func New(ctx context.Context, version string, read func(context.Context) Reading) *Set {
	typed()
	return &Set{ctx: ctx, version: version, read: read, counted: metrics.NewSet()}
}

// Verdict counts a verdict, by decision, and the rules among its reasons: a verdict may
// have several.
func (s *Set) Verdict(decision string, rules []string) {
	decision = label(decision)
	s.counted.GetOrCreateCounter(fmt.Sprintf("settlewatch_verdicts_total{decision=%q}", decision)).Inc()
	seen := map[string]bool{}
	for _, rule := range rules {
		// A rule of a limit carries the name the policy's author gave it.
		rule, _, _ = strings.Cut(rule, ":")
		if rule = label(rule); !seen[rule] {
			seen[rule] = true
			s.counted.GetOrCreateCounter(fmt.Sprintf("settlewatch_verdict_rules_total{decision=%q,rule=%q}", decision, rule)).Inc()
		}
	}
}

// Answered counts an answer over HTTP, by status and by the server's own error code.
// Status 0 is a connection that was closed at a ceiling.
func (s *Set) Answered(status int, code string) {
	if status != 0 && (status < 100 || status > 599) {
		status = 0
	}
	if code != "" {
		code = label(code)
	}
	s.counted.GetOrCreateCounter(fmt.Sprintf("settlewatch_http_answers_total{code=%q,status=\"%d\"}", code, status)).Inc()
}

var word = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)

// label keeps words of ours and nothing else: no word of a stranger becomes a label,
// whatever a caller hands on.
func label(text string) string {
	if word.MatchString(text) {
		return text
	}
	return "other"
}

// measure is a gauge that is measured at each scrape.
type measure[T any] struct {
	name  string
	value func(*T) float64
}

func gauge[T any](name string, value func(*T) float64) measure[T] {
	return measure[T]{"settlewatch_" + name, value}
}

func whole[T any](name string, value func(*T) int64) measure[T] {
	return gauge(name, func(t *T) float64 { return float64(value(t)) })
}

// What each says is in docs/deploy.md.
var (
	indexMeasures = []measure[Index]{
		gauge("ingest_lag_seconds", func(i *Index) float64 { return i.Behind.Seconds() }),
		whole("runs", func(i *Index) int64 { return i.Runs }),
		whole("operations", func(i *Index) int64 { return i.Operations }),
		whole("events", func(i *Index) int64 { return i.Events }),
		whole("faults", func(i *Index) int64 { return i.Faults }),
		whole("run_bytes", func(i *Index) int64 { return i.Bytes }),
	}
	currentMeasures = []measure[Current]{
		whole("ingest_lag_bytes", func(c *Current) int64 { return c.BehindBytes }),
		whole("runs_damaged", func(c *Current) int64 { return c.DamagedRuns }),
		whole("runs_torn", func(c *Current) int64 { return c.TornRuns }),
		whole("index_bytes", func(c *Current) int64 { return c.IndexBytes }),
		whole("wal_bytes", func(c *Current) int64 { return c.WALBytes }),
	}
	logMeasures = []measure[Log]{
		whole("reviews_pending", func(l *Log) int64 { return int64(l.Pending) }),
		gauge("review_oldest_seconds", func(l *Log) float64 { return l.Oldest.Seconds() }),
	}
)

// write writes everything in Prometheus' text form. Values that are not known are left
// out: a 0 would say that there is nothing.
func (s *Set) write(w io.Writer) {
	ctx, cancel := context.WithTimeout(s.ctx, scrapeTime)
	defer cancel()
	r := s.read(ctx)
	var current *Current
	if r.Index != nil {
		current = r.Index.Current
	}
	s.counted.WritePrometheus(w)
	metrics.WriteGaugeUint64(w, fmt.Sprintf("settlewatch_build_info{version=%q}", s.version), 1)
	emit(w, indexMeasures, r.Index)
	emit(w, currentMeasures, current)
	emit(w, logMeasures, r.Log)
	metrics.WriteGaugeUint64(w, "settlewatch_index_ready", truth(current != nil))
	metrics.WriteGaugeUint64(w, "settlewatch_log_ready", truth(r.Log != nil))
}

func emit[T any](w io.Writer, measures []measure[T], of *T) {
	if of == nil {
		return
	}
	for _, m := range measures {
		metrics.WriteGaugeFloat64(w, m.name, m.value(of))
	}
}

func truth(is bool) uint64 {
	if is {
		return 1
	}
	return 0
}
