package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	mcplib "github.com/mark3labs/mcp-go/mcp"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// Limits of a stdio connection. The library's own stdio server has none of
// them: it drops queued calls at the end of input, runs calls on the reading
// goroutine when its queue is full and starts a goroutine for everything else,
// so this package frames the stream itself and hands the library whole messages.
const (
	maxLine     = 4 << 20  // bytes of one request line
	maxID       = 256      // bytes of a request id; it is echoed in the answer
	quickSlots  = 8        // calls that work at one time
	waitSlots   = 64       // calls that mostly wait at one time
	queueLength = 1024     // calls read and not begun, of either kind
	queueBytes  = 16 << 20 // and their bytes
)

// stages of a shutdown by context. All of it stays inside five seconds, after
// which supervisors kill.
type stages struct {
	quiet  time.Duration // input that was already sent is read until it pauses this long
	listen time.Duration // and no longer than this
	force  time.Duration // calls that still run are answered with an error
	leave  time.Duration // output that nobody reads is given up
}

var shutdown = stages{
	quiet:  50 * time.Millisecond,
	listen: time.Second,
	force:  4 * time.Second,
	leave:  4500 * time.Millisecond,
}

// ServeStdio answers JSON-RPC messages read from in, one a line, on out. It
// returns nil when in ends or ctx is done, after everything that was read has
// been answered: without a time limit at the end of input, within five seconds
// when ctx is done. Only complete messages reach out, each in one Write; nothing
// else in the process may hold that writer. An error says that the server could
// not start, that in or out failed, or that answers had to be given up.
func ServeStdio(ctx context.Context, t Traces, o Options, in io.Reader, out io.Writer) error {
	s, err := build(t, o, overStdio)
	if err != nil {
		return err
	}
	c := newConn(ctx, s, o.MaxLine, shutdown)
	return c.serve(ctx, in, out)
}

// conn is one stdio connection. The goroutine that called serve reads; calls run
// on goroutines of the two lanes; one goroutine writes.
type conn struct {
	service *service
	session *session
	log     *slog.Logger
	stages  stages
	lines   splitter
	doc     jsjson.Doc // owned by the reading goroutine

	work     context.Context // what calls run under
	stopWork context.CancelFunc
	draining chan struct{} // closed when ctx is done: waits end early
	gone     chan struct{} // closed when output is lost or given up
	out      chan []byte
	finish   chan struct{} // closed when nothing more will be sent
	written  chan struct{} // closed when the writer has ended

	mu      sync.Mutex // guards all below; changed signals every change
	changed sync.Cond
	lanes   [2]lane
	flights map[*flight]struct{} // read and not answered
	failure error                // why output is gone
	ended   bool                 // gone is closed
}

func newConn(ctx context.Context, s *service, max int, st stages) *conn {
	if max <= 0 {
		max = maxLine
	}
	c := &conn{
		service:  s,
		session:  newSession(),
		log:      s.log,
		stages:   st,
		lines:    splitter{max: max},
		draining: make(chan struct{}),
		gone:     make(chan struct{}),
		out:      make(chan []byte, 16),
		finish:   make(chan struct{}),
		written:  make(chan struct{}),
		flights:  map[*flight]struct{}{},
	}
	c.changed.L = &c.mu
	c.lanes[quick].slots = quickSlots
	c.lanes[waiting].slots = waitSlots
	// Calls outlive ctx by the shutdown's length, so they are not under it.
	c.work, c.stopWork = context.WithCancel(context.WithoutCancel(ctx))
	c.work = s.mcp.WithContext(c.work, c.session)
	return c
}

func (c *conn) serve(ctx context.Context, in io.Reader, out io.Writer) error {
	defer c.stopWork()
	defer c.end(nil) // releases whoever still wants to send
	go c.write(out)

	var timers []*time.Timer
	stop := context.AfterFunc(ctx, func() {
		close(c.draining)
		c.mu.Lock()
		defer c.mu.Unlock()
		timers = append(timers,
			time.AfterFunc(c.stages.force, c.abandon),
			time.AfterFunc(c.stages.leave, func() {
				c.end(errors.New("gave up on answers that were not ready, or not read, at the end of the shutdown"))
			}))
	})
	defer func() {
		stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, t := range timers {
			t.Stop()
		}
	}()

	readErr := c.read(ctx, in)

	c.mu.Lock()
	for len(c.flights) > 0 && !c.ended {
		c.changed.Wait()
	}
	c.mu.Unlock()
	close(c.finish)
	select {
	case <-c.written:
	case <-c.gone:
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failure != nil {
		return c.failure
	}
	return readErr
}

// read feeds the splitter until in ends, or ctx is done and no more input is at
// hand, or output is gone.
func (c *conn) read(ctx context.Context, in io.Reader) error {
	chunks, free, result := make(chan []byte), make(chan []byte, 2), make(chan error, 1)
	free <- make([]byte, 64<<10)
	free <- make([]byte, 64<<10)
	go c.fill(in, free, chunks, result)

	take := func(chunk []byte) {
		c.lines.feed(chunk, c.dispatch, func() {
			c.refuse(nil, mcplib.INVALID_REQUEST, fmt.Sprintf(
				"a request line is longer than %d bytes and was skipped. try: send a shorter request", c.lines.max))
		})
		free <- chunk
	}
	ended := func() error {
		c.lines.end(c.dispatch)
		if err := <-result; !errors.Is(err, io.EOF) {
			return fmt.Errorf("read requests: %w", err)
		}
		return nil
	}

	for {
		select {
		case chunk, ok := <-chunks:
			if !ok {
				return ended()
			}
			take(chunk)
			continue
		case <-c.gone:
			return nil
		case <-ctx.Done():
		}
		break
	}
	// What a client wrote before the signal may still be in the pipe or in the
	// other goroutine's hands: it counts as read.
	limit := time.NewTimer(c.stages.listen)
	defer limit.Stop()
	for {
		quiet := time.NewTimer(c.stages.quiet)
		select {
		case chunk, ok := <-chunks:
			quiet.Stop()
			if !ok {
				return ended()
			}
			take(chunk)
		case <-quiet.C:
			return nil
		case <-limit.C:
			quiet.Stop()
			return nil
		case <-c.gone:
			quiet.Stop()
			return nil
		}
	}
}

// fill reads in into free buffers until it ends, why in result, or output is gone. A
// blocked Read cannot be interrupted, so it may outlive serve.
func (c *conn) fill(in io.Reader, free chan []byte, chunks chan<- []byte, result chan<- error) {
	for {
		var buf []byte
		select {
		case buf = <-free:
		case <-c.gone:
			return
		}
		n, err := in.Read(buf[:cap(buf)])
		if n > 0 {
			select {
			case chunks <- buf[:n]:
			case <-c.gone:
				return
			}
		} else if err == nil {
			free <- buf
		}
		if err != nil {
			result <- err
			close(chunks)
			return
		}
	}
}

// write sends lines out, one Write each, until finish and nothing is left.
func (c *conn) write(out io.Writer) {
	defer close(c.written)
	put := func(line []byte) bool {
		_, err := out.Write(line)
		if err != nil {
			c.end(fmt.Errorf("write answers: %w", err))
		}
		return err == nil
	}
	for {
		select {
		case line := <-c.out:
			if !put(line) {
				return
			}
			continue
		case <-c.gone:
			return
		case <-c.finish:
		}
		for {
			select {
			case line := <-c.out:
				if !put(line) {
					return
				}
			default:
				return
			}
		}
	}
}

// end closes gone: nothing can be answered from here on.
func (c *conn) end(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	c.failure = why
	close(c.gone)
	c.stopWork()
	c.changed.Broadcast()
}

// abandon answers what still runs near the end of a shutdown, then cancels it.
func (c *conn) abandon() {
	c.mu.Lock()
	var left []*flight
	for f := range c.flights {
		if !f.done {
			f.done = true
			left = append(left, f)
		}
	}
	c.mu.Unlock()
	for _, f := range left {
		c.send(errorLine(f.id, mcplib.INTERNAL_ERROR, "the server is shutting down and could not finish this call. try: call again after it has started"))
		c.retire(f)
	}
	c.stopWork()
}

// send hands a line to the writer. It blocks while the client does not read.
func (c *conn) send(line []byte) {
	select {
	case c.out <- line:
	case <-c.gone:
	}
}
