package metrics

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	registry *prometheus.Registry
	verdicts *prometheus.CounterVec
	rules    *prometheus.CounterVec
	answers  *prometheus.CounterVec
}

// scrapeTime bounds what a scrape asks for. It is less than the ten seconds after
// which Prometheus gives up by default.
const scrapeTime = 5 * time.Second

// New makes a Set. read is asked at each scrape; it ends when ctx does.
func New(ctx context.Context, version string, read func(context.Context) Reading) *Set {
	s := &Set{
		registry: prometheus.NewPedanticRegistry(),
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "settlewatch_verdicts_total", Help: "Verdicts of the guard, by decision.",
		}, []string{"decision"}),
		rules: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "settlewatch_verdict_rules_total", Help: "Rules that were among the reasons of a verdict, by its decision. A verdict may have several.",
		}, []string{"decision", "rule"}),
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "settlewatch_http_answers_total", Help: "Answers over HTTP, by status and by the server's own error code. Status 0 is a connection that was closed at a ceiling.",
		}, []string{"status", "code"}),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "settlewatch_build_info", Help: "Always 1; the label says which version runs.", ConstLabels: prometheus.Labels{"version": version},
	})
	build.Set(1)
	s.registry.MustRegister(s.verdicts, s.rules, s.answers, build, &scrape{ctx: ctx, read: read})
	return s
}

// Verdict counts a verdict and the rules among its reasons.
func (s *Set) Verdict(decision string, rules []string) {
	decision = label(decision)
	s.verdicts.WithLabelValues(decision).Inc()
	seen := map[string]bool{}
	for _, rule := range rules {
		// A rule of a limit carries the name the policy's author gave it.
		rule, _, _ = strings.Cut(rule, ":")
		if rule = label(rule); !seen[rule] {
			seen[rule] = true
			s.rules.WithLabelValues(decision, rule).Inc()
		}
	}
}

// Answered counts an answer over HTTP.
func (s *Set) Answered(status int, code string) {
	if status != 0 && (status < 100 || status > 599) {
		status = 0
	}
	if code != "" {
		code = label(code)
	}
	s.answers.WithLabelValues(strconv.Itoa(status), code).Inc()
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

// measure is a metric that is measured at each scrape.
type measure[T any] struct {
	desc  *prometheus.Desc
	value func(*T) float64
}

func gauge[T any](name, help string, value func(*T) float64) measure[T] {
	return measure[T]{prometheus.NewDesc("settlewatch_"+name, help, nil, nil), value}
}

func whole[T any](value func(*T) int64) func(*T) float64 {
	return func(t *T) float64 { return float64(value(t)) }
}

var (
	indexMeasures = []measure[Index]{
		gauge("ingest_lag_seconds", "How long it took to bring the index up to date for this scrape, or had taken when it was given up.", func(i *Index) float64 { return i.Behind.Seconds() }),
		gauge("runs", "Runs that are indexed.", whole(func(i *Index) int64 { return i.Runs })),
		gauge("operations", "Operations that are indexed.", whole(func(i *Index) int64 { return i.Operations })),
		gauge("events", "Events that are indexed.", whole(func(i *Index) int64 { return i.Events })),
		gauge("faults", "Lines and entries that could not be read as events.", whole(func(i *Index) int64 { return i.Faults })),
		gauge("run_bytes", "Bytes of run files that the index covers.", whole(func(i *Index) int64 { return i.Bytes })),
	}
	currentMeasures = []measure[Current]{
		gauge("ingest_lag_bytes", "Bytes of run files that the index did not cover when this scrape asked.", whole(func(c *Current) int64 { return c.BehindBytes })),
		gauge("runs_damaged", "Runs with damage.", whole(func(c *Current) int64 { return c.DamagedRuns })),
		gauge("runs_torn", "Runs that end in an incomplete line.", whole(func(c *Current) int64 { return c.TornRuns })),
		gauge("index_bytes", "Size of the index, its write-ahead log included.", whole(func(c *Current) int64 { return c.IndexBytes })),
		gauge("wal_bytes", "Size of the write-ahead log of the index.", whole(func(c *Current) int64 { return c.WALBytes })),
	}
	logMeasures = []measure[Log]{
		gauge("reviews_pending", "Reviews that wait for a person.", func(l *Log) float64 { return float64(l.Pending) }),
		gauge("review_oldest_seconds", "How long the oldest pending review has waited; 0 when none waits.", func(l *Log) float64 { return l.Oldest.Seconds() }),
	}
	indexReady = prometheus.NewDesc("settlewatch_index_ready", "Whether the index was brought up to date for this scrape.", nil, nil)
	logReady   = prometheus.NewDesc("settlewatch_log_ready", "Whether the decisions log can be read and verifies.", nil, nil)
)

// scrape is the collector of what is measured. Values that are not known are left
// out: a 0 would say that there is nothing.
type scrape struct {
	ctx  context.Context
	read func(context.Context) Reading
}

func (s *scrape) Describe(ch chan<- *prometheus.Desc) {
	describe(ch, indexMeasures)
	describe(ch, currentMeasures)
	describe(ch, logMeasures)
	ch <- indexReady
	ch <- logReady
}

func describe[T any](ch chan<- *prometheus.Desc, measures []measure[T]) {
	for _, m := range measures {
		ch <- m.desc
	}
}

func (s *scrape) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(s.ctx, scrapeTime)
	defer cancel()
	r := s.read(ctx)
	var current *Current
	if r.Index != nil {
		current = r.Index.Current
	}
	emit(ch, indexMeasures, r.Index)
	emit(ch, currentMeasures, current)
	emit(ch, logMeasures, r.Log)
	ch <- prometheus.MustNewConstMetric(indexReady, prometheus.GaugeValue, truth(current != nil))
	ch <- prometheus.MustNewConstMetric(logReady, prometheus.GaugeValue, truth(r.Log != nil))
}

func emit[T any](ch chan<- prometheus.Metric, measures []measure[T], of *T) {
	if of == nil {
		return
	}
	for _, m := range measures {
		ch <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, m.value(of))
	}
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
