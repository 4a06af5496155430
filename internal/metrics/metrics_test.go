package metrics

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

func full(context.Context) Reading {
	return Reading{
		Index: &Index{
			Behind: 1500 * time.Millisecond, Counts: Counts{Runs: 3, Operations: 5, Events: 40, Faults: 2, Bytes: 9000},
			Current: &Current{BehindBytes: 120, DamagedRuns: 1, TornRuns: 1, IndexBytes: 8192, WALBytes: 4096},
		},
		Log: &Log{Pending: 2, Oldest: 90 * time.Second},
	}
}

// scraped is what a scrape shows, without the comments.
func scraped(t *testing.T, s *Set) []string {
	t.Helper()
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1/metrics", nil))
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("status %d, %s: %s", w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	slices.Sort(lines)
	return lines
}

func TestAScrapeShowsEverythingThatIsKnown(t *testing.T) {
	s := New(t.Context(), "v1.2.3", full)
	s.Verdict("review", []string{"open_partial", "limit:weekly", "limit:daily", "history"})
	s.Verdict("allow", []string{"history"})
	s.Answered(200, "")
	s.Answered(429, "rate_limited")
	s.Answered(429, "rate_limited")
	s.Answered(0, "too_many_connections")
	want := []string{
		`settlewatch_build_info{version="v1.2.3"} 1`,
		`settlewatch_events 40`,
		`settlewatch_faults 2`,
		`settlewatch_http_answers_total{code="",status="200"} 1`,
		`settlewatch_http_answers_total{code="rate_limited",status="429"} 2`,
		`settlewatch_http_answers_total{code="too_many_connections",status="0"} 1`,
		`settlewatch_index_bytes 8192`,
		`settlewatch_index_ready 1`,
		`settlewatch_ingest_lag_bytes 120`,
		`settlewatch_ingest_lag_seconds 1.5`,
		`settlewatch_log_ready 1`,
		`settlewatch_operations 5`,
		`settlewatch_review_oldest_seconds 90`,
		`settlewatch_reviews_pending 2`,
		`settlewatch_run_bytes 9000`,
		`settlewatch_runs 3`,
		`settlewatch_runs_damaged 1`,
		`settlewatch_runs_torn 1`,
		`settlewatch_verdict_rules_total{decision="allow",rule="history"} 1`,
		`settlewatch_verdict_rules_total{decision="review",rule="history"} 1`,
		`settlewatch_verdict_rules_total{decision="review",rule="limit"} 1`,
		`settlewatch_verdict_rules_total{decision="review",rule="open_partial"} 1`,
		`settlewatch_verdicts_total{decision="allow"} 1`,
		`settlewatch_verdicts_total{decision="review"} 1`,
		`settlewatch_wal_bytes 4096`,
	}
	if got := scraped(t, s); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestWhatIsNotKnownIsLeftOut(t *testing.T) {
	for _, c := range []struct {
		name string
		read Reading
		want []string
	}{
		{"nothing is open", Reading{}, []string{"settlewatch_index_ready 0", "settlewatch_log_ready 0"}},
		{"the index is behind", Reading{Index: &Index{Behind: 5 * time.Second, Counts: Counts{Events: 7}}}, []string{
			"settlewatch_events 7", "settlewatch_faults 0", "settlewatch_index_ready 0", "settlewatch_ingest_lag_seconds 5", "settlewatch_log_ready 0",
			"settlewatch_operations 0", "settlewatch_run_bytes 0", "settlewatch_runs 0",
		}},
	} {
		s := New(t.Context(), "v", func(context.Context) Reading { return c.read })
		if got := scraped(t, s)[1:]; !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestNoWordOfAStrangerBecomesALabel(t *testing.T) {
	s := New(t.Context(), "v", full)
	for _, word := range []string{"0x672e9eE22541092022E004E5145Ca93095cF4887", "shop.example", "/srv/agent/.trace", "evil\nsettlewatch_runs 9", "", strings.Repeat("a", 41), "Ä"} {
		s.Verdict(word, []string{word, "limit:" + word})
		s.Answered(200, word)
		s.Answered(1000, word)
	}
	for _, line := range scraped(t, s) {
		if !regexp.MustCompile(`^settlewatch_[a-z_]+(\{([a-z]+="[a-z0-9_]*",?)+\})? [0-9.e+]+$`).MatchString(line) {
			t.Errorf("%s", line)
		}
	}
	if got := len(scraped(t, s)); got > 30 {
		t.Errorf("%d lines: strangers made series of their own", got)
	}
}

func TestTheGlobalSetOfTheLibraryIsNotUsed(t *testing.T) {
	New(t.Context(), "v", full).Answered(200, "")
	var all strings.Builder
	metrics.WritePrometheus(&all, false)
	if strings.Contains(all.String(), "settlewatch") {
		t.Errorf("ours are in it: %s", all.String())
	}
	for _, line := range scraped(t, New(t.Context(), "v", full)) {
		if !strings.HasPrefix(line, "settlewatch_") {
			t.Errorf("%s is not ours", line)
		}
	}
}

func TestEachMetricSaysWhatItIs(t *testing.T) {
	s := New(t.Context(), "v", full)
	s.Verdict("allow", nil)
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1/metrics", nil))
	for _, want := range []string{"# TYPE settlewatch_verdicts_total counter\n", "# TYPE settlewatch_events gauge\n"} {
		if strings.Count(w.Body.String(), want) != 1 {
			t.Errorf("%q is not there once: %s", want, w.Body)
		}
	}
}

func TestOnlyLoopbackIsAnAddress(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:9000": "127.0.0.1:9000", "localhost:0": "127.0.0.1:0", "127.8.8.8:1": "127.8.8.8:1", "[::1]:9": "[::1]:9", "[::ffff:127.0.0.1]:9": "127.0.0.1:9",
		"": "", "9000": "", ":9000": "", "0.0.0.0:1": "", "0.0.0.00:1": "", "[::]:1": "", "[::ffff:0.0.0.0]:1": "", "192.168.1.2:1": "", "8.8.8.8:1": "",
		"*:1": "", "localhost": "", "localhost.:1": "", "example.com:1": "", "127.0.0.1": "", "127.0.0.1:70000": "", "127.0.0.1:http": "", "127.1:1": "", "2130706433:1": "", "0x7f000001:1": "", "[fe80::1%lo]:1": "",
	} {
		got, err := Address(text)
		if (err == nil) != (want != "") || err == nil && got.String() != want || err != nil && !errors.Is(err, ErrAddress) {
			t.Errorf("%q: %s, %v; want %q", text, got, err, want)
		}
	}
}

func TestTheListenerAnswersScrapesAndNothingElse(t *testing.T) {
	server, err := New(t.Context(), "v", full).Listen(t.Context(), netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, c := range []struct {
		method, path, host string
		want               int
	}{
		{http.MethodGet, "/metrics", "", 200},
		{http.MethodHead, "/metrics", "", 200},
		{http.MethodGet, "/metrics", "localhost", 200},
		{http.MethodGet, "/metrics", "[::1]:99", 200},
		{http.MethodGet, "/metrics", "evil.example", 403},
		{http.MethodGet, "/metrics", "127.0.0.1.evil.example:80", 403},
		{http.MethodGet, "/metrics", "localhost.", 403},
		{http.MethodPost, "/metrics", "", 405},
		{http.MethodOptions, "/metrics", "", 405},
		{http.MethodGet, "/", "", 404},
		{http.MethodGet, "/metrics/", "", 404},
		{http.MethodGet, "/debug/pprof/", "", 404},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, "http://"+server.Addr().String()+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != c.want || answer.Header.Get("Cache-Control") != "no-store" || answer.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s of %q: status %d, want %d; headers %v", c.method, c.path, c.host, answer.StatusCode, c.want, answer.Header)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestAClosedListenerIsGone(t *testing.T) {
	server, err := New(t.Context(), "v", full).Listen(t.Context(), netip.MustParseAddrPort("[::1]:0"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), "v", full).Listen(t.Context(), server.Addr()); err == nil {
		t.Error("a second one listens at the same address")
	}
	server.Close()
	if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Addr().String()); err == nil {
		_ = c.Close()
		t.Error("it still listens")
	}
}

func TestAScrapeThatTakesTooLongIsToldSo(t *testing.T) {
	ended := make(chan time.Duration, 1)
	s := New(t.Context(), "v", func(ctx context.Context) Reading {
		deadline, _ := ctx.Deadline()
		ended <- time.Until(deadline)
		return Reading{}
	})
	scraped(t, s)
	if left := <-ended; left <= 0 || left > scrapeTime {
		t.Errorf("a scrape has %s", left)
	}
}
