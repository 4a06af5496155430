package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// bought is what the recorder of a buyer writes about one payment.
type bought struct {
	id, url, payTo, amount string
	at                     time.Time
	ends                   string // settled, silent, declined
	took                   time.Duration
	description            string
}

const (
	testUSDC  = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
	testPayer = "0x4e8a0b7c61d2f3958e0c47ab9d16f2530c7be8a9"
)

// lines are the events of a purchase, in the shape of a recording.
func (p bought) lines() string {
	var b strings.Builder
	terms := map[string]any{"scheme": "exact", "network": "eip155:8453", "asset": testUSDC, "amount": p.amount, "pay_to": p.payTo, "max_timeout_seconds": 60}
	resource := map[string]any{"url": p.url, "description": p.description, "mime_type": "application/json"}
	n := 0
	event := func(typ string, after time.Duration, payload map[string]any) {
		payload["x402_version"], payload["resource"] = 2, resource
		n++
		line, _ := json.Marshal(map[string]any{"event_id": fmt.Sprintf("%s-%d", p.id, n), "event_type": typ, "occurred_at": p.at.Add(after).UTC().Format("2006-01-02T15:04:05.000Z"),
			"context_id": p.id, "seq": n, "adapter": "trace-x402", "role": "client", "payload": payload})
		b.Write(line)
		b.WriteByte('\n')
	}
	event("x402.payment.required", 0, map[string]any{"error": "Payment required", "accepts": []any{terms}})
	event("x402.payment.creating", time.Millisecond, map[string]any{"requirements": terms})
	event("x402.payment.submitted", 20*time.Millisecond, map[string]any{"requirements": terms})
	took := p.took
	if took == 0 {
		took = 1800 * time.Millisecond
	}
	switch p.ends {
	case "settled":
		event("x402.payment.responded", took, map[string]any{"requirements": terms, "settle": map[string]any{"success": true, "network": "eip155:8453", "payer": testPayer,
			"transaction": "0x8d1f3b5a90c72e46d8e1b7f0a3945c6e27bd08f1643ac95de07f2b81c4960a3d"}})
	case "declined":
		event("x402.verify.failed", took, map[string]any{"requirements": terms, "verify": map[string]any{"is_valid": false, "invalid_reason": "insufficient_funds"}})
	}
	return b.String()
}

const attached = `{"event_id":"7d1f6c0a-93b2-4f0e-8a57-1c6d2be04e91","event_type":"trace.attached","occurred_at":"2026-03-10T09:00:00.000Z","seq":0,"adapter":"trace-x402","role":"client","payload":{"kind":"httpClient","attached":["onPaymentRequired","client.onBeforePaymentCreation","client.onAfterPaymentCreation","client.onPaymentCreationFailure","client.onPaymentResponse"]}}` + "\n"

// traceOf writes runs of purchases.
func traceOf(t testing.TB, root string, runs map[string][]bought) {
	t.Helper()
	for name, all := range runs {
		var b strings.Builder
		b.WriteString(attached)
		for _, p := range all {
			b.WriteString(p.lines())
		}
		traceText(t, root, name, b.String())
	}
}

func traceText(t testing.TB, root, name, text string) {
	t.Helper()
	dir := filepath.Join(root, "events")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, name+".ndjson"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// agentRoot is a root with a short name, which pictures show.
func agentRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, ".trace")
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
