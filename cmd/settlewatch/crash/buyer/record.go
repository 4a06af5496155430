package buyer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/crash"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// recorder writes a run file as trace-x402 does, a write an event.
type recorder struct {
	now   func() time.Time
	run   string
	file  *os.File
	seq   int
	count int // purchases
}

const submitted = "x402.payment.submitted"

func (r *recorder) open(root string) error {
	var err error
	r.file, err = os.OpenFile(filepath.Join(root, "events", r.run+".ndjson"), os.O_APPEND|os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return errcode.Wrap(errcode.Bare(err), errcode.Internal, "give --run a name of its own", "make the run file of %s", plain.Quote(r.run, plain.Detail))
	}
	e := tracedEvent{r: r, kind: "trace.attached", payload: map[string]any{"kind": "httpClient", "attached": []string{
		"onPaymentRequired", "client.onBeforePaymentCreation", "client.onAfterPaymentCreation", "client.onPaymentCreationFailure", "client.onPaymentResponse",
	}}}
	return r.write(e.line())
}

func (r *recorder) close() { _ = r.file.Close() }

func (r *recorder) write(line []byte) error {
	if _, err := r.file.Write(line); err != nil {
		return errcode.Wrap(errcode.Bare(err), errcode.Internal, "look at the disk", "record an event")
	}
	return nil
}

// purchase begins one: no two of them buy the same thing.
func (r *recorder) purchase(o *crash.Order) *purchase {
	r.count++
	id := fmt.Sprintf("%s-%d", r.run, r.count)
	return &purchase{r: r, o: o, id: id, url: "https://" + o.Host + "/" + id}
}

type purchase struct {
	r       *recorder
	o       *crash.Order
	id, url string
}

// events are what is recorded of a purchase that is made and settles.
func (p *purchase) events() []tracedEvent {
	network, token, _ := strings.Cut(p.o.Asset, "/")
	resource := map[string]any{"url": p.url}
	terms := map[string]any{
		"scheme": "exact", "network": network, "asset": token, "amount": p.o.Atomic, "pay_to": p.o.Seller, "max_timeout_seconds": 60,
	}
	signed := map[string]any{"x402_version": 2, "resource": resource, "requirements": terms}
	settled := map[string]any{"x402_version": 2, "resource": resource, "requirements": terms,
		"settle": map[string]any{"success": true, "transaction": fmt.Sprintf("0x%x", p.id), "network": network}}
	return []tracedEvent{
		{p.r, "x402.payment.required", p.id, map[string]any{"x402_version": 2, "resource": resource, "accepts": []any{terms}}},
		{p.r, "x402.payment.creating", p.id, signed},
		{p.r, submitted, p.id, signed},
		{p.r, "x402.payment.responded", p.id, settled},
	}
}

type tracedEvent struct {
	r       *recorder
	kind    string
	context string // "" for an event of no operation
	payload map[string]any
}

// line is the event as it is written, dated now.
func (e *tracedEvent) line() []byte {
	type envelope struct {
		ID      string         `json:"event_id"`
		Type    string         `json:"event_type"`
		At      string         `json:"occurred_at"`
		Context string         `json:"context_id,omitempty"`
		Seq     int            `json:"seq"`
		Adapter string         `json:"adapter"`
		Role    string         `json:"role"`
		Payload map[string]any `json:"payload"`
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(envelope{
		fmt.Sprintf("%s.%d", e.r.run, e.r.seq), e.kind, e.r.now().UTC().Format("2006-01-02T15:04:05.000Z"), e.context, e.r.seq, "trace-x402", "client", e.payload,
	}); err != nil {
		panic(err) // texts and numbers alone
	}
	e.r.seq++
	return out.Bytes()
}
