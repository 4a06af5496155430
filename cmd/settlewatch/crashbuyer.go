package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/crash"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/store"
)

// This file is the inside of a process that a crash test starts: a buyer that is
// told on stdin what to buy, asks the guard as an agent does, and pays by appending
// to a run file of its own as a recorder does. Where it is told to, it stops and
// says so, so that it can be killed exactly there.

type buyerOptions struct {
	guarded
	run, clock    string
	watch, unheld bool
}

func (a *app) crashBuyer() *cobra.Command {
	var o buyerOptions
	c := a.command(&cobra.Command{
		Use:    "buyer [flags]",
		Short:  "be one of the processes of a crash test",
		Hidden: true,
		Args:   operands(0, 0),
	}, func(ctx context.Context, _ []string) error { return a.runBuyer(ctx, o) })
	f := c.Flags()
	o.flags(f)
	o.syncFlag(f)
	f.Var(&o.checkpoint, "checkpoint", "file to keep a checkpoint of the decisions log in")
	f.StringVar(&o.run, "run", "", "run to record in")
	f.StringVar(&o.clock, "clock", "", "time to begin at, in place of the machine's")
	f.BoolVar(&o.watch, "watch", false, "watch the run files, as a server does")
	f.BoolVar(&o.unheld, "unheld", false, "ask without a hold, to see a crash test fail")
	return c
}

func (a *app) runBuyer(ctx context.Context, o buyerOptions) error {
	clock := &movedClock{real: a.env.now}
	if err := clock.set(o.clock); err != nil {
		return err
	}
	a.env.now = clock.now
	root, err := o.resolve()
	if err != nil {
		return err
	}
	p, err := o.readPolicy(root, nil)
	if err != nil {
		return err
	}
	// The same parts as of a server, but for the index in between.
	var told atomic.Pointer[guard.Guard]
	x, err := a.openWith(ctx, o.rootOptions, nil, a.log(slog.LevelWarn), func(ctx context.Context, r ingest.Rewrite) {
		if g := told.Load(); g != nil {
			a.noticed(g.Noticed(ctx, guard.Rewrite(r)))
		}
	})
	if err != nil {
		return err
	}
	defer x.Close()
	b := &buyer{a: a, o: o, clock: clock, in: bufio.NewScanner(a.stdin), record: recorder{now: clock.now, run: o.run}}
	g, err := guard.New(a.guardOf(&stoppingIndex{x, b}, x.GuardDir(), rootOptions{dir: defaultDir}, o.guardOptions, &policyStart{policyFile: *p}, nil))
	if err != nil {
		return err
	}
	told.Store(g)
	if o.watch {
		go func() { _ = x.Watch(ctx) }() // without it every question reads what changed
	}
	if err := b.record.open(root); err != nil {
		return err
	}
	defer b.record.close()
	return b.shop(ctx, g)
}

// notReady is the rule of a guard that cannot judge.
const notReady = "not_ready"

// buyer is the loop of such a process. Everything in it is one goroutine's.
type buyer struct {
	a      *app
	o      buyerOptions
	clock  *movedClock
	in     *bufio.Scanner
	record recorder
	stop   string // of the order at hand
}

var errLeftAlone = errors.New("nobody has ended this process")

func (b *buyer) say(s crash.Said) {
	line, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	b.a.stdout.Write(append(line, '\n'))
}

// next is the next line of stdin.
func (b *buyer) next() ([]byte, bool) {
	if !b.in.Scan() {
		return nil, false
	}
	return b.in.Bytes(), true
}

// halt waits, where the order says so, to be killed.
func (b *buyer) halt(at string) error {
	if b.stop != at {
		return nil
	}
	b.say(crash.Said{At: at})
	for { // whoever was to kill it may be gone: then stdin ends
		if _, ok := b.next(); !ok {
			return errLeftAlone
		}
	}
}

func (b *buyer) shop(ctx context.Context, g *guard.Guard) error {
	b.say(crash.Said{At: crash.AtReady})
	for {
		line, ok := b.next()
		if !ok {
			return nil
		}
		var o crash.Order
		if err := json.Unmarshal(line, &o); err != nil {
			return errcode.Wrap(err, errcode.Input, "", "read an order")
		}
		if err := b.clock.set(o.Clock); err != nil {
			return err
		}
		if err := b.buy(ctx, g, &o); err != nil {
			return err
		}
	}
}

func (b *buyer) buy(ctx context.Context, g *guard.Guard, o *crash.Order) error {
	purchase := b.record.purchase(o)
	b.stop = o.Stop
	answer := crash.Said{At: crash.AtAnswered, Began: b.clock.real().UnixNano()}
	v, err := g.Check(ctx, guard.Request{
		Counterparty: o.Seller, Amount: o.Amount, Asset: o.Asset, Resource: purchase.url, Hold: !b.o.unheld,
	})
	answer.Ended = b.clock.real().UnixNano()
	if err != nil {
		if errors.Is(err, errLeftAlone) || ctx.Err() != nil {
			return err
		}
		answer.Decision, answer.Fault = "none", string(errcode.Of(err).Code)
		b.say(answer)
		return nil
	}
	answer.Decision = v.Decision
	for _, r := range v.Reasons {
		if r.Rule != "history" {
			answer.Rules = append(answer.Rules, r.Rule)
		}
		if r.Rule == notReady {
			answer.Why = r.Detail
		}
	}
	b.say(answer)
	if v.Decision != guard.Allow {
		return nil
	}
	if err := b.halt(crash.StopAllowed); err != nil {
		return err
	}
	if o.PayLater {
		line, ok := b.next()
		if !ok {
			return nil
		}
		var then crash.Order
		if err := json.Unmarshal(line, &then); err != nil {
			return errcode.Wrap(err, errcode.Input, "", "read when to pay")
		}
		if err := b.clock.set(then.Clock); err != nil {
			return err
		}
	}
	for _, event := range purchase.events() {
		if event.kind == submitted && b.stop == crash.StopHalf {
			line := event.line()
			if err := b.record.write(line[:len(line)/2]); err != nil {
				return err
			}
			return b.halt(crash.StopHalf)
		}
		if err := b.record.write(event.line()); err != nil {
			return err
		}
	}
	b.say(crash.Said{At: crash.AtPaid})
	return nil
}

// stoppingIndex is an index after whose answer the process can be killed: the
// guard judges inside Ask, with the lock of the log, and writes afterwards.
type stoppingIndex struct {
	*ingest.Indexer
	b *buyer
}

func (x *stoppingIndex) Ask(ctx context.Context, fn func(*store.View) error) error {
	return x.judged(x.Indexer.Ask(ctx, fn))
}

func (x *stoppingIndex) AskSynced(ctx context.Context, fn func(*store.View) error) error {
	return x.judged(x.Indexer.AskSynced(ctx, fn))
}

func (x *stoppingIndex) judged(err error) error {
	if err != nil {
		return err
	}
	return x.b.halt(crash.StopJudged)
}

// movedClock is the machine's clock, moved.
type movedClock struct {
	real func() time.Time

	mu   sync.Mutex
	away time.Duration // guarded by mu
}

func (c *movedClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.real().Add(c.away)
}

// set moves the clock to a time; blank leaves it.
func (c *movedClock) set(text string) error {
	if text == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return usage("--clock takes a time such as 2026-01-31T23:59:00Z, not %s", plain.Quote(text, plain.Detail))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = t.Sub(c.real())
	return nil
}

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
		return errcode.Wrap(bare(err), errcode.Internal, "give --run a name of its own", "make the run file of %s", plain.Quote(r.run, plain.Detail))
	}
	e := tracedEvent{r: r, kind: "trace.attached", payload: map[string]any{"kind": "httpClient", "attached": []string{
		"onPaymentRequired", "client.onBeforePaymentCreation", "client.onAfterPaymentCreation", "client.onPaymentCreationFailure", "client.onPaymentResponse",
	}}}
	return r.write(e.line())
}

func (r *recorder) close() { _ = r.file.Close() }

func (r *recorder) write(line []byte) error {
	n, err := r.file.Write(line)
	if err == nil && n < len(line) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return errcode.Wrap(bare(err), errcode.Internal, "look at the disk", "record an event")
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
