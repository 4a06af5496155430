package buyer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/crash"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/store"
)

// Buyer is the loop of such a process. Everything in it is one goroutine's.
type Buyer struct {
	in     *bufio.Scanner
	out    io.Writer
	clock  *Clock
	record recorder
	unheld bool
	stop   string // of the order at hand
}

// New is a buyer that reads orders from in, says on out what became of them, and
// records in a run. An unheld one asks without a hold.
func New(in io.Reader, out io.Writer, clock *Clock, run string, unheld bool) *Buyer {
	return &Buyer{in: bufio.NewScanner(in), out: out, clock: clock, record: recorder{now: clock.Now, run: run}, unheld: unheld}
}

// notReady is the rule of a guard that cannot judge.
const notReady = "not_ready"

var errLeftAlone = errors.New("nobody has ended this process")

func (b *Buyer) say(s crash.Said) {
	line, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	b.out.Write(append(line, '\n'))
}

// order is the next order, by which the clock is set; there is none when stdin ends.
func (b *Buyer) order(what string) (o crash.Order, ok bool, err error) {
	if !b.in.Scan() {
		return o, false, nil
	}
	if err := json.Unmarshal(b.in.Bytes(), &o); err != nil {
		return o, false, errcode.Wrap(err, errcode.Input, "", "read %s", what)
	}
	return o, true, b.clock.Set(o.Clock)
}

// halt waits, where the order says so, to be killed.
func (b *Buyer) halt(at string) error {
	if b.stop != at {
		return nil
	}
	b.say(crash.Said{At: at})
	for b.in.Scan() { // whoever was to kill it may be gone: then stdin ends
	}
	return errLeftAlone
}

// Shop takes one order after the other until stdin ends. Its guard asks [Buyer.Index],
// and the run file is one of the root.
func (b *Buyer) Shop(ctx context.Context, g *guard.Guard, root string) error {
	if err := b.record.open(root); err != nil {
		return err
	}
	defer b.record.close()
	b.say(crash.Said{At: crash.AtReady})
	for {
		o, ok, err := b.order("an order")
		if err != nil || !ok {
			return err
		}
		if err := b.buy(ctx, g, &o); err != nil {
			return err
		}
	}
}

func (b *Buyer) buy(ctx context.Context, g *guard.Guard, o *crash.Order) error {
	purchase := b.record.purchase(o)
	b.stop = o.Stop
	answer := crash.Said{At: crash.AtAnswered, Began: b.clock.Real().UnixNano()}
	v, err := g.Check(ctx, guard.Request{
		Counterparty: o.Seller, Amount: o.Amount, Asset: o.Asset, Resource: purchase.url, Hold: !b.unheld,
	})
	answer.Ended = b.clock.Real().UnixNano()
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
		if _, ok, err := b.order("when to pay"); err != nil || !ok {
			return err
		}
	}
	return b.pay(purchase)
}

// pay records a purchase that is made and settles.
func (b *Buyer) pay(p *purchase) error {
	for _, event := range p.events() {
		line := event.line()
		if event.kind == submitted && b.stop == crash.StopHalf {
			if err := b.record.write(line[:len(line)/2]); err != nil {
				return err
			}
			return b.halt(crash.StopHalf)
		}
		if err := b.record.write(line); err != nil {
			return err
		}
	}
	b.say(crash.Said{At: crash.AtPaid})
	return nil
}

// Index is an index after whose answer the process can be killed: the guard judges
// inside Ask, with the lock of the log, and writes afterwards.
func (b *Buyer) Index(x guard.Index) guard.Index { return &stoppingIndex{x, b} }

type stoppingIndex struct {
	guard.Index
	b *Buyer
}

func (x *stoppingIndex) Ask(ctx context.Context, fn func(*store.View) error) error {
	return x.judged(x.Index.Ask(ctx, fn))
}

func (x *stoppingIndex) AskSynced(ctx context.Context, fn func(*store.View) error) error {
	return x.judged(x.Index.AskSynced(ctx, fn))
}

func (x *stoppingIndex) judged(err error) error {
	if err != nil {
		return err
	}
	return x.b.halt(crash.StopJudged)
}
