package guard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
)

// clock is a clock that tests set.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// site is a trace root with a guard on it.
type site struct {
	t     *testing.T
	dir   string
	clock *clock
	seq   int
	*guard.Guard
	index    *ingest.Indexer
	listings map[string]*guard.Listing // that were shown
}

const (
	seller = "0x672e9eE22541092022E004E5145Ca93095cF4887"
	other  = "0x1111111111111111111111111111111111111111"
	shop   = "https://shop.example/report"
)

// newSite makes a root with one run and the policy that a JSON text says.
func newSite(t *testing.T, policy string) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), clock: &clock{t: time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)}}
	if err := os.Mkdir(filepath.Join(s.dir, "events"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.event("r1", "", "trace.attached", map[string]any{"kind": "httpClient", "attached": []string{"client.onPaymentResponse"}})
	s.open(policy)
	return s
}

// open opens the guard, again where there is one.
func (s *site) open(policy string) {
	s.t.Helper()
	s.openWith(policy, func(*guard.Options) {})
}

func (s *site) openWith(policy string, change func(*guard.Options)) {
	s.t.Helper()
	p := guard.DefaultPolicy()
	if policy != "" {
		var err error
		if p, err = guard.ParsePolicy([]byte(policy)); err != nil {
			s.t.Fatal(err)
		}
	}
	var g *guard.Guard
	x, err := ingest.Open(s.t.Context(), ingest.Options{
		Root: s.dir, Now: s.clock.now,
		Rewritten: func(ctx context.Context, r ingest.Rewrite) {
			if err := g.Noticed(ctx, guard.Rewrite(r)); err != nil {
				s.t.Logf("noticed: %v", err)
			}
		},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = x.Close() })
	o := guard.Options{Index: x, Dir: x.GuardDir(), Policy: p, Now: s.clock.now, Version: "test",
		Listing: func(ref string) *guard.Listing { return s.listings[ref] }}
	change(&o)
	g, err = guard.New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Guard, s.index = g, x
}

// event appends one event to a run, at the time of the clock.
func (s *site) event(run, op, kind string, payload map[string]any) {
	s.t.Helper()
	s.seq++
	e := map[string]any{
		"event_id": fmt.Sprintf("e%d", s.seq), "event_type": kind, "occurred_at": s.clock.now().Format("2006-01-02T15:04:05.000Z"),
		"seq": s.seq, "adapter": "trace-x402", "role": "client", "payload": payload,
	}
	if op != "" {
		e["context_id"] = op
	}
	line, err := json.Marshal(e)
	if err != nil {
		s.t.Fatal(err)
	}
	s.raw(run, string(line)+"\n")
}

// raw appends bytes to a run.
func (s *site) raw(run, text string) {
	s.t.Helper()
	f, err := os.OpenFile(filepath.Join(s.dir, "events", run+".ndjson"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// terms are what a payment is made on.
type terms struct{ payTo, amount, resource, network, asset, scheme string }

func (p terms) payload() map[string]any {
	def := func(s, d string) string {
		if s == "" {
			return d
		}
		return s
	}
	return map[string]any{
		"x402_version": 2, "resource": map[string]any{"url": def(p.resource, shop)},
		"requirements": map[string]any{
			"scheme": def(p.scheme, "exact"), "network": def(p.network, "eip155:8453"), "asset": def(p.asset, "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"),
			"amount": def(p.amount, "500000"), "pay_to": def(p.payTo, seller), "max_timeout_seconds": 60,
		},
	}
}

// submit records a signed payment, settle its settlement.
func (s *site) submit(run, op string, p terms) {
	s.event(run, op, "x402.payment.submitted", p.payload())
}

func (s *site) settle(run, op string, p terms) {
	payload := p.payload()
	payload["settle"] = map[string]any{"success": true, "transaction": fmt.Sprintf("0x%064d", s.seq), "network": "eip155:8453"}
	s.event(run, op, "x402.payment.responded", payload)
}

// buy records a whole purchase: one second between its events.
func (s *site) buy(run, op string, p terms) {
	payload := p.payload()
	s.event(run, op, "x402.payment.required", map[string]any{"x402_version": 2, "resource": payload["resource"], "accepts": []any{payload["requirements"]}})
	s.event(run, op, "x402.payment.creating", payload)
	s.submit(run, op, p)
	s.settle(run, op, p)
}

func (s *site) ask(r guard.Request) *guard.Verdict {
	s.t.Helper()
	if r.Counterparty == "" {
		r.Counterparty = seller
	}
	if r.Amount == "" {
		r.Amount = "0.50"
	}
	v, err := s.Check(s.t.Context(), r)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

// want asks and holds the answer to a decision and the rules that fired.
func (s *site) want(decision string, r guard.Request, rules ...string) *guard.Verdict {
	s.t.Helper()
	v := s.ask(r)
	var fired []string
	for _, reason := range v.Reasons {
		if reason.Rule != "history" {
			fired = append(fired, reason.Rule)
		}
	}
	if v.Decision != decision || fmt.Sprint(fired) != fmt.Sprint(rules) {
		s.t.Errorf("%s by %v, want %s by %v", v.Decision, fired, decision, rules)
		for _, reason := range v.Reasons {
			s.t.Logf("  %s: %s %v", reason.Rule, reason.Detail, reason.Evidence)
		}
	}
	return v
}

// Resolve says what became of operations as they are now.
func (s *site) Resolve(ctx context.Context, all []guard.Resolution) error {
	for i := range all {
		all[i].Shown, _ = s.Shown(ctx, all[i].Ref) // the guard says itself what is wrong
	}
	return s.Guard.Resolve(ctx, all)
}

func (s *site) state() *decision.State {
	s.t.Helper()
	st, err := s.Log().Read(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

func (s *site) decide(word string, ids ...string) {
	s.t.Helper()
	if _, err := s.Decide(s.t.Context(), guard.Decision{IDs: ids, Decision: word, Note: "because"}); err != nil {
		s.t.Fatal(err)
	}
}
