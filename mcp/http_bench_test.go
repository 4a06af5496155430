package mcp

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/mark3labs/mcp-go/server"

	"github.com/settlewatch/settlewatch/ingest"
	web "github.com/settlewatch/settlewatch/mcp/transport"
)

// bare is the library's handler as it comes, with the same tools.
func bare(tb testing.TB) http.Handler {
	tb.Helper()
	s, err := build(lists(&ingest.Page{RunsScanned: 3}, nil), Options{}, overHTTP)
	if err != nil {
		tb.Fatal(err)
	}
	return server.NewStreamableHTTPServer(s.mcp, server.WithStateLess(true), server.WithDisableStreaming(true))
}

// full is our handler.
func full(tb testing.TB) http.Handler {
	tb.Helper()
	h, err := NewHTTPHandler(tb.Context(), lists(&ingest.Page{RunsScanned: 3}, nil), Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return h
}

// unlimited serves a handler as the standard library does.
func unlimited(b *testing.B, h http.Handler) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }()
	b.Cleanup(func() { _ = s.Close() })
	return "http://" + l.Addr().String() + "/mcp"
}

// limited serves a handler behind our transport.
func limited(b *testing.B, h http.Handler, change func(*web.Config)) (url string, s *web.Server) {
	b.Helper()
	c := web.Defaults()
	c.Addr, c.NoAuth, c.Now, c.Rate, c.MaxConnsPerClient = "127.0.0.1:0", true, time.Now, 1<<20, 64
	if change != nil {
		change(&c)
	}
	s, err := web.Listen(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, h) }()
	b.Cleanup(func() { cancel(); <-ended })
	return "http://" + s.Addr().String() + "/mcp", s
}

// crowd asks one server from some workers, each over a connection of its own.
type crowd struct {
	b                  *testing.B
	url, authorization string
	workers            int
	client             *http.Client
	took               []time.Duration
}

func newCrowd(b *testing.B, workers int, url, authorization string) *crowd {
	b.Helper()
	c := &crowd{b: b, url: url, authorization: authorization, workers: workers, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers, MaxConnsPerHost: workers}}}
	b.Cleanup(c.client.CloseIdleConnections)
	return c
}

// round asks n times and says how long that took.
func (c *crowd) round(n int) time.Duration {
	start := time.Now()
	jobs := make(chan struct{}, n)
	for range n {
		jobs <- struct{}{}
	}
	close(jobs)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range c.workers {
		all.Go(func() {
			for range jobs {
				took := c.ask()
				mu.Lock()
				c.took = append(c.took, took)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return time.Since(start)
}

func (c *crowd) ask() time.Duration {
	start := time.Now()
	r, err := http.NewRequest(http.MethodPost, c.url, strings.NewReader(call(1, "list_operations", "{}")))
	if err != nil {
		c.b.Error(err)
		return 0
	}
	r.Header.Set("Content-Type", "application/json")
	if c.authorization != "" {
		r.Header.Set("Authorization", c.authorization)
	}
	answer, err := c.client.Do(r)
	if err != nil {
		c.b.Error(err)
		return 0
	}
	text, _ := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if answer.StatusCode != http.StatusOK || !strings.Contains(string(text), `"runs_scanned":3`) {
		c.b.Errorf("%d %s", answer.StatusCode, text)
	}
	return time.Since(start)
}

func (c *crowd) median() time.Duration {
	slices.Sort(c.took)
	return c.took[len(c.took)/2]
}

// BenchmarkHTTP compares what serves a call with the library's handler as it
// comes. Both are asked in turn, round by round, since other work on a machine
// slows one minute down and not the next.
//
//	vs-library  requests a second, as a part of the library's; 16 workers
//	added-us    what the median of a single worker's calls takes longer
func BenchmarkHTTP(b *testing.B) {
	token := func(s *web.Server) string {
		text, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.MapClaims{"iss": "https://issuer.example", "aud": s.Resource(), "sub": "alice", "exp": time.Now().Add(time.Hour).Unix()}).SignedString([]byte(testSecret))
		if err != nil {
			b.Fatal(err)
		}
		return "Bearer " + text
	}
	verified := func(c *web.Config) {
		c.NoAuth, c.Auth = false, web.Auth{Issuer: "https://issuer.example", Secret: secretFile(b)}
	}
	for _, test := range []struct {
		name   string
		made   func(testing.TB) http.Handler
		change func(*web.Config)
	}{
		{"the library behind the limits", bare, nil},
		{"the whole server", full, nil},
		{"the whole server with tokens", full, verified},
	} {
		b.Run(test.name, func(b *testing.B) {
			const size = 320
			url, s := limited(b, test.made(b), test.change)
			authorization := ""
			if test.change != nil {
				authorization = token(s)
			}
			library := unlimited(b, bare(b))
			theirs, ours := newCrowd(b, 16, library, ""), newCrowd(b, 16, url, authorization)
			theirOne, ourOne := newCrowd(b, 1, library, ""), newCrowd(b, 1, url, authorization)
			var ratios []float64
			for range max(1, b.N/size) {
				t := theirs.round(size)
				ratios = append(ratios, float64(t)/float64(ours.round(size)))
				theirOne.round(20)
				ourOne.round(20)
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "vs-library")
			b.ReportMetric(float64((ourOne.median() - theirOne.median()).Microseconds()), "added-us")
		})
	}
}
