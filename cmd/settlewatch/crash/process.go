package crash

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

// This file starts the processes of a crash test, tells them what to do and ends
// them.

// answerWithin is how long a buyer may take for one step. A check waits for history
// for ten seconds at most and for the log two: what takes longer hangs.
const answerWithin = 20 * time.Second

// process is a buyer as the crash test sees it.
type process struct {
	run    string
	cmd    *exec.Cmd
	in     io.WriteCloser
	said   chan Said // closed when its stdout ends
	errors *lastBytes
	within time.Duration // how long a step may take

	mu     sync.Mutex // guards what follows
	killed bool       // by us
	gone   chan struct{}
}

// launch starts a process of this program as a buyer.
func launch(ctx context.Context, exe string, args []string) (*process, error) {
	// A step says three things at most, and each is waited for.
	p := &process{said: make(chan Said, 64), errors: &lastBytes{}, within: answerWithin, gone: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, exe)
	// By this name a test's binary, too, knows that it is to be the program.
	p.cmd.Args = append([]string{"settlewatch", "crash-test", "buyer"}, args...)
	p.cmd.Stderr = p.errors
	p.cmd.WaitDelay = time.Second
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.in = in
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var s Said
			if json.Unmarshal(lines.Bytes(), &s) == nil {
				p.said <- s
			}
		}
		close(p.said)
		_ = p.cmd.Wait() // how it ended does not matter, what it said does
		close(p.gone)
	}()
	return p, nil
}

// tell gives the process a line. One that is gone cannot be told anything.
func (p *process) tell(o Order) {
	line, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	_, _ = p.in.Write(append(line, '\n'))
}

// kill ends the process as kill -9 does, in the middle of whatever it is doing, and
// waits until it is gone.
func (p *process) kill() {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.gone
}

func (p *process) wasKilled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killed
}

// leave lets the process come to its end by itself, as a server does when its
// host goes.
func (p *process) leave() error {
	_ = p.in.Close()
	select {
	case <-p.gone:
		return nil
	case <-time.After(p.within):
		p.kill()
		return errHangs
	}
}

var errHangs = errors.New("it does not end")

// stuck ends a process that does not answer, and gives what its goroutines do, if
// the system can make it say so.
func (p *process) stuck() string {
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-p.gone:
	case <-time.After(2 * time.Second):
		p.kill()
	}
	return p.errors.String()
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

func (l *lastBytes) Write(b []byte) (int, error) {
	const most = 1 << 20
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept.Write(b)
	if more := l.kept.Len() - most; more > 0 {
		l.kept.Next(more)
	}
	return len(b), nil
}

func (l *lastBytes) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.String()
}

// reply is what became of an order.
type reply struct {
	p     *process
	order Order
	said  Said
	how   string // one of the words below
}

const (
	answered = "answered"
	stopped  = "killed"  // by us, before it had answered or paid
	vanished = "died"    // by itself
	hung     = "hung"    // did not answer in time
	settled  = "paid"    // answered allow, and paid
	unpaid   = "allowed" // answered allow, and is to pay when told to
)

func (r *reply) allowed() bool { return r.said.Decision == "allow" }

// wait reads what a process says up to the end of its step: the verdict, or the
// payment where it was allowed and pays at once.
func (p *process) wait(r *reply) {
	late := time.NewTimer(p.within)
	defer late.Stop()
	if r.order.after > 0 {
		killer := time.AfterFunc(r.order.after, p.kill)
		defer func() {
			if !killer.Stop() {
				<-p.gone
			}
		}()
	}
	for {
		select {
		case s, ok := <-p.said:
			switch {
			case !ok:
				// Its last words come by another pipe: they are whole once it is gone.
				select {
				case <-p.gone:
				case <-late.C:
					r.how = hung
					return
				}
				r.how = map[bool]string{true: stopped, false: vanished}[p.wasKilled()]
				return
			case s.At == AtAnswered:
				r.said, r.how = s, answered
				if s.Decision != "allow" {
					return
				}
				if r.order.PayLater {
					r.how = unpaid
					return
				}
			case s.At == AtPaid:
				r.how = settled
				return
			case s.At == r.order.Stop:
				p.kill()
				r.how = stopped
				return
			}
		case <-late.C:
			r.how = hung
			return
		}
	}
}

// startWithin is how long a process may take to be ready: many of them may start at
// once, on a machine that has other things to do.
const startWithin = time.Minute

func (p *process) ready() error {
	late := time.NewTimer(startWithin)
	defer late.Stop()
	select {
	case _, ok := <-p.said:
		if ok {
			return nil
		}
		<-p.gone
		why := strings.TrimSpace(p.errors.String())
		if why == "" {
			why = "it said nothing"
		}
		return errcode.New(errcode.Internal, "report this", "start a buyer: %s", why)
	case <-late.C:
		return errcode.New(errcode.Internal, "try again when the machine has less to do", "start a buyer within %s: %s", startWithin, firstLines(p.stuck(), 20))
	}
}

func firstLines(text string, n int) string {
	lines := strings.SplitN(text, "\n", n+1)
	return strings.Join(lines[:min(len(lines), n)], "\n")
}

// together runs steps at the same time and waits for all.
func together[T any](all []T, step func(T)) {
	var group sync.WaitGroup
	for _, one := range all {
		group.Go(func() { step(one) })
	}
	group.Wait()
}

// overlap is how many checks were under way at one moment at most.
func overlap(replies []*reply) int {
	most := 0
	for _, r := range replies {
		n := 0
		for _, s := range replies {
			if s.said.Began <= r.said.Began && r.said.Began < s.said.Ended {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}

// writeJSON makes a file of a value.
func writeJSON(name string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, errcode.Bare(err))
	}
	return nil
}
