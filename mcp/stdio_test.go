package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/settlewatch/settlewatch/ingest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a Traces made of functions.
type fake struct {
	list    func(context.Context, ingest.Query) (*ingest.Page, error)
	receipt func(context.Context, ingest.Ref, string) (*ingest.Receipt, error)
	await   func(context.Context, ingest.Ref, string, time.Duration) (*ingest.Await, error)
}

func (f *fake) List(ctx context.Context, q ingest.Query) (*ingest.Page, error) {
	if f.list == nil {
		return &ingest.Page{}, nil
	}
	return f.list(ctx, q)
}

func (f *fake) Receipt(ctx context.Context, ref ingest.Ref, template string) (*ingest.Receipt, error) {
	return f.receipt(ctx, ref, template)
}

func (f *fake) Await(ctx context.Context, ref ingest.Ref, template string, wait time.Duration) (*ingest.Await, error) {
	return f.await(ctx, ref, template, wait)
}

// message is any line a server writes.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// client talks to a server in this process.
type client struct {
	t      testing.TB
	in     *io.PipeWriter
	out    *bufio.Reader
	outEnd *io.PipeReader
	ended  chan error
	conn   *conn
}

// read waits until n requests have been read and not answered.
func (c *client) read(n int) {
	waitFor(func() bool {
		c.conn.mu.Lock()
		defer c.conn.mu.Unlock()
		return len(c.conn.flights) == n
	})
}

func connect(t testing.TB, ctx context.Context, traces Traces, o Options, st stages) *client {
	t.Helper()
	s, err := build(traces, o, overStdio)
	if err != nil {
		t.Fatal(err)
	}
	return connectTo(t, ctx, s, o.MaxLine, st)
}

func connectTo(t testing.TB, ctx context.Context, s *service, maxLine int, st stages) *client {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	c := &client{t: t, in: inW, out: bufio.NewReader(outR), outEnd: outR, ended: make(chan error, 1)}
	c.conn = newConn(ctx, s, maxLine, st)
	go func() {
		err := c.conn.serve(ctx, inR, outW)
		outW.Close()
		c.ended <- err
	}()
	t.Cleanup(func() {
		inW.Close()
		outR.Close()
		inR.Close()
	})
	return c
}

func (c *client) send(lines ...string) {
	c.t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(c.in, line+"\n"); err != nil {
			c.t.Fatal(err)
		}
	}
}

// next is the next message; ok is false when the server has ended.
func (c *client) next() (m message, ok bool) {
	c.t.Helper()
	line, err := c.out.ReadBytes('\n')
	if err == io.EOF && len(line) == 0 {
		return m, false
	}
	if err != nil {
		c.t.Fatalf("read an answer: %v (%q)", err, line)
	}
	if err := json.Unmarshal(line, &m); err != nil {
		c.t.Fatalf("an answer is not JSON: %v\n%s", err, line)
	}
	if m.JSONRPC != "2.0" {
		c.t.Errorf("an answer is not JSON-RPC 2.0: %s", line)
	}
	return m, true
}

func (c *client) must() message {
	c.t.Helper()
	m, ok := c.next()
	if !ok {
		c.t.Fatal("the server ended without an answer")
	}
	return m
}

// rest reads until the server ends, which must be without an error.
func (c *client) rest() (all []message) {
	c.t.Helper()
	for {
		m, ok := c.next()
		if !ok {
			break
		}
		all = append(all, m)
	}
	if err := <-c.ended; err != nil {
		c.t.Errorf("the server ended with: %v", err)
	}
	return all
}

func call(id any, tool, arguments string) string {
	name, _ := json.Marshal(tool)
	key, _ := json.Marshal(id)
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%s,"arguments":%s}}`, key, name, arguments)
}

func ids(all []message) []string {
	var list []string
	for _, m := range all {
		list = append(list, string(m.ID))
	}
	slices.Sort(list)
	return list
}

// waitFor polls without a deadline of its own: the test binary's is enough.
func waitFor(condition func() bool) {
	for !condition() {
		time.Sleep(time.Millisecond)
	}
}

func TestEveryRequestReadIsAnsweredAtTheEndOfInput(t *testing.T) {
	for _, n := range []int{1, 20, 60, 400} {
		for _, lastFeed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%d calls, last line feed %v", n, lastFeed), func(t *testing.T) {
				traces := &fake{list: func(context.Context, ingest.Query) (*ingest.Page, error) {
					runtime.Gosched()
					return &ingest.Page{}, nil
				}}
				var want, lines []string
				for i := range n {
					lines = append(lines, call(i, "list_operations", "{}"))
					want = append(want, fmt.Sprint(i))
				}
				in := strings.Join(lines, "\n")
				if lastFeed {
					in += "\n"
				}
				var out bytes.Buffer
				if err := ServeStdio(t.Context(), traces, Options{}, strings.NewReader(in), &out); err != nil {
					t.Fatal(err)
				}
				var all []message
				for line := range bytes.Lines(out.Bytes()) {
					var m message
					if err := json.Unmarshal(line, &m); err != nil {
						t.Fatalf("%v: %s", err, line)
					}
					if m.Error != nil {
						t.Errorf("answered with an error: %s", line)
					}
					all = append(all, m)
				}
				slices.Sort(want)
				if got := ids(all); !slices.Equal(got, want) {
					t.Errorf("%d of %d calls were answered", len(got), n)
				}
			})
		}
	}
}

func TestPipelinedRequestsRunABoundedNumberAtATime(t *testing.T) {
	const n = 10_000
	var busy, most, goroutines atomic.Int64
	raise := func(m *atomic.Int64, v int64) {
		for old := m.Load(); v > old && !m.CompareAndSwap(old, v); old = m.Load() {
		}
	}
	traces := &fake{
		list: func(context.Context, ingest.Query) (*ingest.Page, error) {
			raise(&most, busy.Add(1))
			defer busy.Add(-1)
			raise(&goroutines, int64(runtime.NumGoroutine()))
			runtime.Gosched()
			return &ingest.Page{}, nil
		},
	}
	c := connect(t, t.Context(), traces, Options{}, shutdown)
	before := int64(runtime.NumGoroutine())
	go func() {
		for i := range n {
			io.WriteString(c.in, call(i, "list_operations", "{}")+"\n")
		}
		c.in.Close()
	}()
	if got := len(c.rest()); got != n {
		t.Errorf("%d of %d calls were answered", got, n)
	}
	if most.Load() > quickSlots {
		t.Errorf("%d calls ran at one time, the bound is %d", most.Load(), quickSlots)
	}
	// A call gives its slot back a moment before its goroutine is gone, so how
	// many there are at a time is a matter of scheduling; without a bound it
	// would be all of them.
	if grew := goroutines.Load() - before; grew > n/20 {
		t.Errorf("%d goroutines were added by the calls", grew)
	}
}

func TestUpkeepPassesCallsThatWork(t *testing.T) {
	release := make(chan struct{})
	var running, cancelled atomic.Int64
	traces := &fake{list: func(ctx context.Context, q ingest.Query) (*ingest.Page, error) {
		running.Add(1)
		select {
		case <-release:
			return &ingest.Page{}, nil
		case <-ctx.Done():
			cancelled.Add(1)
			return nil, ctx.Err()
		}
	}}
	c := connect(t, t.Context(), traces, Options{}, shutdown)
	const calls = 200 // more than run at one time
	for i := range calls {
		c.send(call(i, "list_operations", "{}"))
	}
	waitFor(func() bool { return running.Load() == quickSlots })
	c.send(`{"jsonrpc":"2.0","id":"ping","method":"ping"}`)
	if m := c.must(); string(m.ID) != `"ping"` || m.Error != nil {
		t.Fatalf("the first answer is not the ping's: %+v", m)
	}
	c.send(`{"jsonrpc":"2.0","id":"tools","method":"tools/list"}`)
	if m := c.must(); string(m.ID) != `"tools"` || m.Error != nil {
		t.Fatalf("the second answer is not that of tools/list: %+v", m)
	}
	// One that runs and one that waits in the queue.
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":0}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":150,"reason":"no longer needed"}}`)
	waitFor(func() bool { return cancelled.Load() == 1 })
	close(release)
	c.in.Close()
	got := ids(c.rest())
	if len(got) != calls-2 || slices.Contains(got, "0") || slices.Contains(got, "150") {
		t.Errorf("%d answers, want all %d but those to the cancelled calls 0 and 150", len(got), calls)
	}
}

func TestACancellationOfNothingIsIgnored(t *testing.T) {
	c := connect(t, t.Context(), &fake{}, Options{}, shutdown)
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled"}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":[7]}`,
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","method":"notifications/unheard_of","params":{"a":1}}`,
		`{"jsonrpc":"2.0","id":3,"result":{}}`,
		`{"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"x"}}`,
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	c.in.Close()
	if got := ids(c.rest()); !slices.Equal(got, []string{"1"}) {
		t.Errorf("answers to %v, want only to the ping", got)
	}
}

func TestACallOfTheSameIDAsAnotherIsAnsweredToo(t *testing.T) {
	release := make(chan struct{})
	traces := &fake{list: func(context.Context, ingest.Query) (*ingest.Page, error) {
		<-release
		return &ingest.Page{}, nil
	}}
	c := connect(t, t.Context(), traces, Options{}, shutdown)
	c.send(call(1, "list_operations", "{}"), call(1, "list_operations", "{}"), call("1", "list_operations", "{}"))
	close(release)
	c.in.Close()
	if got := ids(c.rest()); !slices.Equal(got, []string{`"1"`, "1", "1"}) {
		t.Errorf("answers to %v", got)
	}
}

func TestIDsComeBackAsTheyWereWritten(t *testing.T) {
	for _, id := range []string{`0`, `-1`, `1.0`, `1e3`, `9007199254740993`, `12345678901234567890123`, `""`, `"a b"`, `"é"`, `"\u0041"`, `"\ud800"`} {
		c := connect(t, t.Context(), &fake{}, Options{}, shutdown)
		c.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
		c.in.Close()
		all := c.rest()
		if len(all) != 1 || string(all[0].ID) != id {
			t.Errorf("id %s came back as %+v", id, all)
		}
	}
}

func TestMalformedLinesAreAnsweredAndTheServerLivesOn(t *testing.T) {
	long := strings.Repeat("x", 300)
	for name, test := range map[string]struct {
		line string
		id   string
		code int
	}{
		"not JSON":                           {`{"jsonrpc":`, "null", -32700},
		"two values":                         {`{} {}`, "null", -32700},
		"a trailing comma":                   {`{"jsonrpc":"2.0","id":1,}`, "null", -32700},
		"invalid UTF-8":                      {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", "null", -32700},
		"a byte order mark":                  {"\uFEFF" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "null", -32700},
		"a NUL":                              {"\x00", "null", -32700},
		"nested too deep":                    {strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "null", -32700},
		"a batch":                            {`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`, "null", -32600},
		"an empty batch":                     {`[]`, "null", -32600},
		"a number":                           {`7`, "null", -32600},
		"null":                               {`null`, "null", -32600},
		"no members":                         {`{}`, "null", -32600},
		"no version":                         {`{"id":1,"method":"ping"}`, "1", -32600},
		"another version":                    {`{"jsonrpc":"1.0","id":1,"method":"ping"}`, "1", -32600},
		"a null id":                          {`{"jsonrpc":"2.0","id":null,"method":"ping"}`, "null", -32600},
		"an id that is an object":            {`{"jsonrpc":"2.0","id":{},"method":"ping"}`, "null", -32600},
		"an id that is true":                 {`{"jsonrpc":"2.0","id":true,"method":"ping"}`, "null", -32600},
		"an id that is too long":             {`{"jsonrpc":"2.0","id":"` + long + `","method":"ping"}`, "null", -32600},
		"no method":                          {`{"jsonrpc":"2.0","id":1}`, "1", -32600},
		"a method that is a number":          {`{"jsonrpc":"2.0","id":1,"method":7}`, "1", -32600},
		"a repeated id":                      {`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, "null", -32600},
		"a repeated method":                  {`{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}`, "null", -32600},
		"a member in another case":           {`{"jsonrpc":"2.0","id":1,"method":"ping","METHOD":"tools/list"}`, "null", -32600},
		"params that are a list":             {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[]}`, "1", -32602},
		"params that are text":               {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":"x"}`, "1", -32602},
		"repeated arguments":                 {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"explain","arguments":{},"arguments":{}}}`, "1", -32602},
		"arguments in another case":          {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"explain","Arguments":{}}}`, "1", -32602},
		"a tool name that is a number":       {`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}`, "1", -32602},
		"a cursor that is a number":          {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":7}}`, "1", -32602},
		"a cursor that makes no sense":       {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"%"}}`, "1", -32602},
		"an unknown method":                  {`{"jsonrpc":"2.0","id":1,"method":"tools/burn"}`, "1", -32601},
		"a method of a capability we lack":   {`{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`, "1", -32601},
		"an unknown tool":                    {call(1, "pay", "{}"), "1", -32602},
		"an unknown tool with a long name":   {call(1, strings.Repeat("pay", 30000), "{}"), "1", -32602},
		"an unknown method with a long name": {`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("pay", 30000) + `"}`, "1", -32601},
		"an unknown protocol with a long name": {`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01` +
			long + `","io.modelcontextprotocol/clientCapabilities":{}}}}`, "1", -32022},
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, t.Context(), &fake{}, Options{}, shutdown)
			c.send(test.line)
			first := c.must()
			if first.Error == nil || first.Error.Code != test.code || string(first.ID) != test.id {
				t.Errorf("answer %+v (error %+v), want id %s and code %d", first, first.Error, test.id, test.code)
			} else if len(first.Error.Message) > 4000 || first.Error.Message == "" || strings.Contains(first.Error.Message, "Go ") {
				t.Errorf("the message is %q", first.Error.Message)
			}
			c.send(`{"jsonrpc":"2.0","id":"after","method":"ping"}`)
			c.in.Close()
			if all := c.rest(); len(all) != 1 || string(all[0].ID) != `"after"` {
				t.Errorf("the server did not live on: %+v", all)
			}
		})
	}
}

func TestBlankLinesAreIgnored(t *testing.T) {
	c := connect(t, t.Context(), &fake{}, Options{}, shutdown)
	c.send("", "   ", "\r", "\t", `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\r", "")
	c.in.Close()
	if got := ids(c.rest()); !slices.Equal(got, []string{"1"}) {
		t.Errorf("answers to %v", got)
	}
}

func TestALineOverTheCapIsAnsweredAndSkipped(t *testing.T) {
	const limit = 4096
	padded := func(id, size int) string {
		head := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping","params":{"pad":"`, id)
		return head + strings.Repeat("x", size-len(head)-3) + `"}}`
	}
	c := connect(t, t.Context(), &fake{}, Options{MaxLine: limit}, shutdown)
	c.send(padded(1, limit), padded(2, limit+1), padded(3, 100*limit), padded(4, limit))
	c.in.Close()
	all := c.rest()
	if got := ids(all); !slices.Equal(got, []string{"1", "4", "null", "null"}) {
		t.Fatalf("answers to %v", got)
	}
	for _, m := range all {
		if string(m.ID) == "null" && (m.Error.Code != -32600 || !strings.Contains(m.Error.Message, "4096")) {
			t.Errorf("the refusal is %+v", m.Error)
		}
	}
}

func TestTheCapIsFourMebibytes(t *testing.T) {
	pad := strings.Repeat("x", maxLine)
	c := connect(t, t.Context(), &fake{}, Options{}, shutdown)
	go func() {
		io.WriteString(c.in, `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"pad":"`+pad+"\"}}\n")
		io.WriteString(c.in, `{"jsonrpc":"2.0","id":2,"method":"ping","params":{"pad":"`+pad[:maxLine-100]+"\"}}\n")
		c.in.Close()
	}()
	if got := ids(c.rest()); !slices.Equal(got, []string{"2", "null"}) {
		t.Errorf("answers to %v", got)
	}
}

func TestAPanicInAToolIsAnErrorAndTheServerLivesOn(t *testing.T) {
	traces := &fake{list: func(context.Context, ingest.Query) (*ingest.Page, error) { panic("secret /home/x") }}
	c := connect(t, t.Context(), traces, Options{}, shutdown)
	c.send(call(1, "list_operations", "{}"))
	m := c.must()
	if m.Error == nil || m.Error.Code != -32603 || strings.Contains(m.Error.Message, "secret") {
		t.Errorf("the answer is %+v", m.Error)
	}
	c.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	c.in.Close()
	if got := ids(c.rest()); !slices.Equal(got, []string{"2"}) {
		t.Errorf("answers to %v", got)
	}
}

func TestAPanicInAResourceIsAnError(t *testing.T) {
	traces := &fake{receipt: func(context.Context, ingest.Ref, string) (*ingest.Receipt, error) { panic("secret") }}
	c := connect(t, t.Context(), traces, Options{}, shutdown)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"trace://a/b"}}`)
	c.in.Close()
	all := c.rest()
	if len(all) != 1 || all[0].Error == nil || all[0].Error.Code != -32603 || strings.Contains(all[0].Error.Message, "secret") {
		t.Errorf("the answer is %+v", all)
	}
}

func TestAPanicInAHookIsAnError(t *testing.T) {
	traces := &fake{list: func(context.Context, ingest.Query) (*ingest.Page, error) { panic("secret") }}
	c := connect(t, t.Context(), traces, Options{}, shutdown)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"resources/list"}`)
	c.in.Close()
	all := c.rest()
	if len(all) != 1 || all[0].Error == nil || all[0].Error.Code != -32603 || strings.Contains(all[0].Error.Message, "secret") {
		t.Errorf("the answer is %+v", all)
	}
}

// patient never reaches a timed stage of the shutdown.
var patient = stages{quiet: time.Millisecond, listen: time.Second, force: time.Hour, leave: 2 * time.Hour}

func TestAtShutdownWhatWasReadIsAnswered(t *testing.T) {
	release := make(chan struct{})
	traces := &fake{list: func(ctx context.Context, _ ingest.Query) (*ingest.Page, error) {
		<-release
		return &ingest.Page{}, ctx.Err()
	}}
	ctx, stop := context.WithCancel(t.Context())
	c := connect(t, ctx, traces, Options{}, patient)
	const calls = 60
	for i := range calls {
		c.send(call(i, "list_operations", "{}"))
	}
	c.read(calls)
	stop()
	close(release)
	all := c.rest()
	for _, m := range all {
		if m.Error != nil || bytes.Contains(m.Result, []byte(`"isError":true`)) {
			t.Errorf("call %s was answered with an error: %s %+v", m.ID, m.Result, m.Error)
		}
	}
	if len(all) != calls {
		t.Errorf("%d of %d calls were answered", len(all), calls)
	}
}

func TestAtShutdownACallThatDoesNotEndIsAnsweredWithAnError(t *testing.T) {
	started := make(chan struct{})
	release := make(chan struct{})
	traces := &fake{list: func(context.Context, ingest.Query) (*ingest.Page, error) {
		close(started)
		<-release // deaf to cancellation
		return &ingest.Page{}, nil
	}}
	ctx, stop := context.WithCancel(t.Context())
	c := connect(t, ctx, traces, Options{}, stages{quiet: time.Millisecond, listen: time.Millisecond, force: 10 * time.Millisecond, leave: time.Hour})
	c.send(call(1, "list_operations", "{}"))
	<-started
	stop()
	all := c.rest()
	close(release)
	if len(all) != 1 || all[0].Error == nil || all[0].Error.Code != -32603 {
		t.Errorf("the answers are %+v", all)
	}
}

func TestAtShutdownOutputThatNobodyReadsIsGivenUp(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	c := connect(t, ctx, &fake{}, Options{}, stages{quiet: time.Millisecond, listen: time.Millisecond, force: 5 * time.Millisecond, leave: 10 * time.Millisecond})
	// More answers than are held on the way out.
	c.send(strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n", 40))
	c.read(1)
	stop()
	if err := <-c.ended; err == nil {
		t.Error("the server ended without an error, though its answers were not read")
	}
}

func TestAtShutdownAWaitEndsEarlyAndSaysHowThingsStand(t *testing.T) {
	var asked atomic.Int64
	traces := &fake{await: func(ctx context.Context, ref ingest.Ref, _ string, wait time.Duration) (*ingest.Await, error) {
		if asked.Add(1) == 1 {
			<-ctx.Done()
			return nil, fmt.Errorf("await: %w", ctx.Err())
		}
		if wait != 0 {
			t.Errorf("the second question waits %v", wait)
		}
		return &ingest.Await{Ref: ref, Template: "x402-buyer", Completeness: "partial", Settlement: "unknown", TimedOut: true}, ctx.Err()
	}}
	ctx, stop := context.WithCancel(t.Context())
	c := connect(t, ctx, traces, Options{}, patient)
	c.send(call(1, "await_operation", `{"run_id":"r","operation_id":"o","wait_seconds":55}`))
	waitFor(func() bool { return asked.Load() == 1 })
	stop()
	all := c.rest()
	if len(all) != 1 || !bytes.Contains(all[0].Result, []byte(`"timed_out":true`)) {
		t.Errorf("the answers are %+v", all)
	}
}

func TestWaitsDoNotHoldUpOtherCalls(t *testing.T) {
	release := make(chan struct{})
	var waits atomic.Int64
	traces := &fake{await: func(ctx context.Context, ref ingest.Ref, _ string, _ time.Duration) (*ingest.Await, error) {
		waits.Add(1)
		<-release
		return &ingest.Await{Ref: ref, Template: "x402-buyer", Completeness: "full", Settlement: "settled"}, nil
	}}
	c := connect(t, t.Context(), traces, Options{}, shutdown)
	mustOvertake(t, c, call("other", "list_operations", "{}"), "await_operation", `{"run_id":"r","operation_id":"o","wait_seconds":55}`, &waits, release)
}

// mustOvertake asks for more waits than there are slots, and holds a call that comes
// after them to being answered before the first.
func mustOvertake(t *testing.T, c *client, other, tool, arguments string, waits *atomic.Int64, release chan struct{}) {
	t.Helper()
	const calls = waitSlots + 20
	for i := range calls {
		c.send(call(i, tool, arguments))
	}
	waitFor(func() bool { return waits.Load() == waitSlots })
	c.send(other)
	if m := c.must(); string(m.ID) != `"other"` {
		t.Errorf("the first answer is to %s", m.ID)
	}
	close(release)
	c.in.Close()
	if got := len(c.rest()); got != calls {
		t.Errorf("%d of %d waits were answered", got, calls)
	}
}

func TestAWaitReportsProgressWhenAsked(t *testing.T) {
	release := make(chan struct{})
	traces := &fake{await: func(ctx context.Context, ref ingest.Ref, _ string, _ time.Duration) (*ingest.Await, error) {
		<-release
		return &ingest.Await{Ref: ref, Template: "x402-buyer", Completeness: "full", Settlement: "settled"}, nil
	}}
	s, err := build(traces, Options{}, overStdio)
	if err != nil {
		t.Fatal(err)
	}
	s.progressEvery = time.Millisecond
	c := connectTo(t, t.Context(), s, 0, shutdown)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"await_operation","_meta":{"progressToken":9007199254740993},` +
		`"arguments":{"run_id":"r","operation_id":"o","wait_seconds":55}}}`)
	first := c.must()
	if first.Method != "notifications/progress" || !bytes.Contains(first.Params, []byte(`"progressToken":9007199254740993,"progress":10,"total":55`)) {
		t.Errorf("the first message is %+v %s", first, first.Params)
	}
	close(release)
	c.in.Close()
	all := c.rest()
	if last := all[len(all)-1]; string(last.ID) != "1" {
		t.Errorf("the answer is not the last message: %+v", last)
	}
}

func TestLostOutputEndsTheServerAndItsCalls(t *testing.T) {
	var running, cancelled atomic.Int64
	traces := &fake{list: func(ctx context.Context, _ ingest.Query) (*ingest.Page, error) {
		running.Add(1)
		<-ctx.Done()
		cancelled.Add(1)
		return nil, ctx.Err()
	}}
	c := connect(t, t.Context(), traces, Options{}, shutdown)
	c.send(call(1, "list_operations", "{}"))
	waitFor(func() bool { return running.Load() == 1 })
	c.outEnd.CloseWithError(errors.New("the reader left"))
	c.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	if err := <-c.ended; err == nil || !strings.Contains(err.Error(), "the reader left") {
		t.Errorf("the server ended with %v", err)
	}
	waitFor(func() bool { return cancelled.Load() == 1 })
}

func TestFailingInputEndsTheServerAfterItsAnswers(t *testing.T) {
	c := connect(t, t.Context(), &fake{}, Options{}, shutdown)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	c.in.CloseWithError(errors.New("device unplugged"))
	if m := c.must(); string(m.ID) != "1" {
		t.Errorf("the answer is %+v", m)
	}
	if err := <-c.ended; err == nil || !strings.Contains(err.Error(), "device unplugged") {
		t.Errorf("the server ended with %v", err)
	}
}

// writes records what each Write gets.
type writes struct {
	mu  sync.Mutex
	all []string
}

func (w *writes) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, string(p))
	return len(p), nil
}

func TestEachMessageIsOneWrite(t *testing.T) {
	var in strings.Builder
	for i := range 50 {
		fmt.Fprintln(&in, call(i, "list_operations", "{}"))
		fmt.Fprintln(&in, "junk")
	}
	var out writes
	if err := ServeStdio(t.Context(), &fake{}, Options{}, strings.NewReader(in.String()), &out); err != nil {
		t.Fatal(err)
	}
	if len(out.all) != 100 {
		t.Errorf("%d writes for 100 messages", len(out.all))
	}
	for _, w := range out.all {
		if strings.Count(w, "\n") != 1 || !strings.HasSuffix(w, "\n") || !json.Valid([]byte(w)) {
			t.Errorf("one write was %q", w)
		}
	}
}

func TestInitializeNegotiatesAndIntroducesTheServer(t *testing.T) {
	for asked, want := range map[string]string{
		"2024-11-05": "2024-11-05", "2025-03-26": "2025-03-26", "2025-06-18": "2025-06-18",
		"2025-11-25": "2025-11-25", "2030-01-01": "2025-11-25",
	} {
		c := connect(t, t.Context(), &fake{}, Options{Version: "1.2.3"}, shutdown)
		c.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + asked + `","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`)
		c.in.Close()
		var result struct {
			ProtocolVersion, Instructions string
			Capabilities                  map[string]any
			ServerInfo                    struct{ Name, Version string }
		}
		if err := json.Unmarshal(c.must().Result, &result); err != nil {
			t.Fatal(err)
		}
		if result.ProtocolVersion != want || result.ServerInfo.Name != "settlewatch" || result.ServerInfo.Version != "1.2.3" {
			t.Errorf("asked for %s, the server says %+v", asked, result)
		}
		for _, word := range []string{"settled", "failed", "unknown"} {
			if !strings.Contains(result.Instructions, word) {
				t.Errorf("the instructions do not name the outcome %s", word)
			}
		}
		if got := slices.Sorted(maps.Keys(result.Capabilities)); !slices.Equal(got, []string{"resources", "tools"}) {
			t.Errorf("capabilities are %v", got)
		}
	}
}

func TestTheStatelessProtocolIsServed(t *testing.T) {
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	c := connect(t, t.Context(), &fake{}, Options{}, shutdown)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{`+meta+`}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_operations",`+meta+`}}`,
		`{"jsonrpc":"2.0","id":3,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+meta+`}}`)
	c.in.Close()
	answered := map[string]bool{}
	for _, m := range c.rest() {
		if m.Error != nil {
			t.Errorf("request %s was answered with %+v", m.ID, m.Error)
		}
		if m.Method != "" {
			if answered["3"] {
				t.Errorf("%s came after the answer it belongs to", m.Method)
			}
			continue
		}
		answered[string(m.ID)] = true
	}
	if len(answered) != 3 {
		t.Errorf("answered were %v", answered)
	}
}

func FuzzStdio(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	f.Add([]byte(call(1, "list_operations", `{"limit":1e400}`)))
	f.Add([]byte(call("x", "get_receipt", `{"run_id":"\ud800","operation_id":"b","events":false}`)))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"trace://a/%ff"}}`))
	f.Add([]byte("[]\n\n{\"id\":\"\xff\"}"))
	traces := &fake{
		receipt: func(_ context.Context, r ingest.Ref, _ string) (*ingest.Receipt, error) {
			return nil, errors.New("none")
		},
		await: func(_ context.Context, r ingest.Ref, _ string, _ time.Duration) (*ingest.Await, error) {
			return nil, errors.New("none")
		},
	}
	s, err := build(traces, Options{}, overStdio)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		if err := newConn(t.Context(), s, 10_000, shutdown).serve(t.Context(), bytes.NewReader(in), &out); err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(out.Bytes()) {
			if !json.Valid(line) || len(line) > answerLimit {
				t.Errorf("the answer is %q", line)
			}
		}
	})
}

// TestWhatAHandlerPrintsStaysOutOfTheStream: the program keeps the one handle of
// the protocol's stream and points os.Stdout elsewhere before it serves; this
// package writes to what it was handed and to nothing else.
func TestWhatAHandlerPrintsStaysOutOfTheStream(t *testing.T) {
	stray, err := os.CreateTemp(t.TempDir(), "stdout")
	if err != nil {
		t.Fatal(err)
	}
	real := os.Stdout
	os.Stdout = stray
	defer func() { os.Stdout = real }()

	v := one(t, open)
	traces := &fake{
		receipt: func(context.Context, ingest.Ref, string) (*ingest.Receipt, error) {
			fmt.Println("printed")
			fmt.Fprint(os.Stdout, `{"jsonrpc":"2.0","id":2,"result":{}}`+"\n")
			return v.receipt, nil
		},
		await: func(context.Context, ingest.Ref, string, time.Duration) (*ingest.Await, error) {
			fmt.Println("printed")
			panic("printed")
		},
	}
	requests := strings.Join([]string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		call(2, "get_receipt", v.arguments("")),
		call(3, "await_operation", v.arguments(`,"wait_seconds":0`)),
		`{"jsonrpc":"2.0","id":4,"method":"resources/read","params":{"uri":"` + resourceURI(v.receipt.Ref) + `"}}`,
		`{"jsonrpc":"2.0","id":5,"method":"tools/list"}`,
		`not JSON`,
	}, "\n") + "\n"
	var stream bytes.Buffer
	if err := ServeStdio(t.Context(), traces, Options{}, strings.NewReader(requests), &stream); err != nil {
		t.Fatal(err)
	}

	var ids []string
	for line := range strings.Lines(stream.String()) {
		var m message
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.Result == nil && m.Error == nil || string(m.Result) == "{}" {
			t.Errorf("the stream holds %q", line)
		}
		ids = append(ids, string(m.ID))
	}
	slices.Sort(ids)
	if want := []string{"1", "2", "3", "4", "5", "null"}; !slices.Equal(ids, want) {
		t.Errorf("answered are %v, want %v", ids, want)
	}
	printed, err := os.ReadFile(stray.Name())
	if err != nil {
		t.Fatal(err)
	}
	const receipt = "printed\n" + `{"jsonrpc":"2.0","id":2,"result":{}}` + "\n"
	if got := len(printed); got != 2*len(receipt)+len("printed\n") {
		t.Errorf("os.Stdout holds what no handler printed: %q", printed)
	}
}
