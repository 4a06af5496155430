package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	mcplib "github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// noMessage is what was sent where that is no proper request, for the log.
const noMessage = "message"

// lane runs calls of one kind, a bounded number at a time, in order of arrival.
type lane struct {
	slots, busy int
	queue       []*flight
	bytes       int
}

const (
	quick = iota
	waiting
)

// flight is one request from being read to being answered.
type flight struct {
	key    string // the id, comparable: 1 and 1.0 are one id, 1 and "1" are two
	id     []byte // the id as it was written
	method string
	uri    string // of resources/read
	msg    []byte
	call   *callInfo
	ctx    context.Context
	cancel context.CancelFunc
	done   bool // answered, or never to be: guarded by conn.mu
}

// refuse answers a message that is no proper request.
func (c *conn) refuse(id []byte, code int, message string) {
	code, message = c.service.turnedAway(c.work, noMessage, code, message)
	c.send(errorLine(id, code, message))
}

// incoming is one JSON-RPC message, its parts checked and not copied: they are
// good as long as the document and the line they were read from.
type incoming struct {
	id     jsjson.Node
	echo   []byte // the id as it was written; nil for a notification and an answer
	method string // "" for an answer to a request, of which this server makes none
	raw    []byte // the method as it was written
	params jsjson.Node
}

// malformed is why a text is no proper message.
type malformed struct {
	id      []byte // what the refusal answers; nil where that is not known
	code    int
	message string
}

// readMessage reads one message. Whatever it lets pass has one reading.
func readMessage(doc *jsjson.Doc, line []byte) (m incoming, wrong *malformed) {
	if !utf8.Valid(line) {
		return m, &malformed{nil, mcplib.PARSE_ERROR, "the line is not valid UTF-8. try: one JSON-RPC message a line, in UTF-8"}
	}
	if err := doc.Parse(line); err != nil {
		return m, &malformed{nil, mcplib.PARSE_ERROR, "the line is not one JSON value: " + err.Error() + ". try: one JSON-RPC message a line"}
	}
	root := doc.Root()
	switch root.Kind() {
	case jsjson.Object:
	case jsjson.Array:
		return m, &malformed{nil, mcplib.INVALID_REQUEST, "batches are not supported. try: one JSON-RPC message a line"}
	default:
		return m, &malformed{nil, mcplib.INVALID_REQUEST, "a message must be a JSON object. try: one JSON-RPC message a line"}
	}

	m.id = root.Get("id")
	switch m.id.Kind() {
	case jsjson.Absent:
	case jsjson.String, jsjson.Number:
		if len(m.id.Raw()) > maxID {
			return m, &malformed{nil, mcplib.INVALID_REQUEST, fmt.Sprintf("the request id is longer than %d bytes. try: a short id", maxID)}
		}
		m.echo = append([]byte(nil), m.id.Raw()...)
	default:
		return m, &malformed{nil, mcplib.INVALID_REQUEST, "a request id must be text or a number"}
	}
	if name, bad := unclear(root, "jsonrpc", "id", "method", "params"); bad {
		return m, &malformed{nil, mcplib.INVALID_REQUEST, "the message has " + name + " more than once, or in another spelling"}
	}
	method := root.Get("method")
	if method.Kind() == jsjson.Absent && (root.Get("result").Kind() != jsjson.Absent || root.Get("error").Kind() != jsjson.Absent) {
		m.echo = nil
		return m, nil
	}
	if string(root.Get("jsonrpc").Text()) != mcplib.JSONRPC_VERSION {
		return m, &malformed{m.echo, mcplib.INVALID_REQUEST, `jsonrpc must be "2.0"`}
	}
	if method.Kind() != jsjson.String || len(method.Text()) == 0 {
		return m, &malformed{m.echo, mcplib.INVALID_REQUEST, "method must be text"}
	}
	m.method, m.raw, m.params = string(method.Text()), method.Raw(), root.Get("params")
	if m.echo == nil {
		return m, nil
	}
	switch m.params.Kind() {
	case jsjson.Absent, jsjson.Null:
	case jsjson.Object:
		if name, bad := unclear(m.params, "name", "arguments", "uri", "cursor", "task", "_meta"); bad {
			return m, &malformed{m.echo, mcplib.INVALID_PARAMS, "params have " + name + " more than once, or in another spelling"}
		}
	default:
		return m, &malformed{m.echo, mcplib.INVALID_PARAMS, "params must be an object"}
	}
	return m, nil
}

// dispatch handles one line. Protocol upkeep is done at once, on the reading
// goroutine, so pings and cancellations pass calls that work; calls go to a lane.
func (c *conn) dispatch(line []byte) {
	if jsjson.Blank(line) {
		return
	}
	m, wrong := readMessage(&c.doc, line)
	switch {
	case wrong != nil:
		c.refuse(wrong.id, wrong.code, wrong.message)
	case m.method == "":
	case m.echo == nil:
		c.notified(m.method, m.params)
	default:
		c.begin(c.newFlight(m), m.params)
	}
}

// unclear finds a member that readers of JSON could take for two things: one
// that is repeated, or that differs from an expected name only in letter case.
func unclear(object jsjson.Node, names ...string) (string, bool) {
	for _, name := range names {
		if _, copies, variants := object.Find(name); copies > 1 || variants > 0 {
			return strconv.Quote(name), true
		}
	}
	return "", false
}

// newFlight copies what a request needs out of its line.
func (c *conn) newFlight(m incoming) *flight {
	f := &flight{key: idKey(m.id), id: m.echo, method: m.method, msg: m.forLibrary(m.echo), call: m.call()}
	f.call.draining = c.draining
	if f.method == string(mcplib.MethodResourcesRead) {
		f.uri = string(m.params.Get("uri").Text())
	}
	if f.call.fromWire {
		if token := m.params.Get("_meta").Get("progressToken"); token.Kind() == jsjson.String || token.Kind() == jsjson.Number {
			f.call.progress = c.progress(f, append([]byte(nil), token.Raw()...))
		}
	}
	f.ctx, f.cancel = context.WithCancel(context.WithValue(c.work, callKey{}, f.call))
	return f
}

// forLibrary is a request as the library gets it, written anew from the parsed
// one, so both see the same members. Arguments of a tool call travel beside it,
// byte for byte, because the library's decoder rejects numbers beyond float64
// and folds letter case.
func (m incoming) forLibrary(id []byte) []byte {
	isCall := m.method == string(mcplib.MethodToolsCall)
	msg := make([]byte, 0, 64+len(id)+len(m.raw)+len(m.params.Raw()))
	msg = append(msg, `{"jsonrpc":"2.0","id":`...)
	msg = append(msg, id...)
	msg = append(msg, `,"method":`...)
	msg = append(msg, m.raw...)
	msg = append(msg, `,"params":{`...)
	first := true
	for key, value := range m.params.Members() {
		if isCall && string(key.Text()) == "arguments" {
			continue
		}
		if !first {
			msg = append(msg, ',')
		}
		first = false
		msg = append(msg, key.Raw()...)
		msg = append(msg, ':')
		msg = append(msg, value.Raw()...)
	}
	return append(msg, '}', '}')
}

// call is what of a request the library does not get.
func (m incoming) call() *callInfo {
	if m.method != string(mcplib.MethodToolsCall) {
		return &callInfo{}
	}
	return &callInfo{fromWire: true, arguments: append([]byte(nil), m.params.Get("arguments").Raw()...),
		meta: append([]byte(nil), m.params.Get("_meta").Raw()...)}
}

func idKey(id jsjson.Node) string {
	if id.Kind() == jsjson.Number {
		return "n" + string(jsjson.AppendNumber(nil, id.Float()))
	}
	return "s" + string(id.Text())
}

// upkeep are the methods answered on the reading goroutine: they need no data
// and never wait.
var upkeep = map[string]bool{
	string(mcplib.MethodInitialize):             true,
	string(mcplib.MethodPing):                   true,
	string(mcplib.MethodServerDiscover):         true,
	string(mcplib.MethodToolsList):              true,
	string(mcplib.MethodResourcesTemplatesList): true,
}

// begin answers f at once, or queues it. When its lane's queue is full it waits
// for room, which slows the client down instead of losing its requests.
func (c *conn) begin(f *flight, params jsjson.Node) {
	c.mu.Lock()
	c.flights[f] = struct{}{}
	c.mu.Unlock()
	if upkeep[f.method] {
		c.run(f)
		return
	}
	l := &c.lanes[quick]
	if f.method == string(mcplib.MethodToolsCall) && c.service.waits[string(params.Get("name").Text())] {
		l = &c.lanes[waiting]
	}
	size := len(f.msg) + len(f.call.arguments)
	c.mu.Lock()
	defer c.mu.Unlock()
	for l.busy >= l.slots && len(l.queue) > 0 && (len(l.queue) >= queueLength || l.bytes+size > queueBytes) && !c.ended {
		c.changed.Wait()
	}
	if l.busy >= l.slots {
		l.queue = append(l.queue, f)
		l.bytes += size
		return
	}
	l.busy++
	go c.occupy(l, f)
}

// occupy runs f and then whatever is queued, until the lane has nothing to do.
func (c *conn) occupy(l *lane, f *flight) {
	for {
		c.run(f)
		c.mu.Lock()
		if len(l.queue) == 0 || c.ended {
			l.busy--
			c.changed.Broadcast()
			c.mu.Unlock()
			return
		}
		f = l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		l.bytes -= len(f.msg) + len(f.call.arguments)
		c.changed.Broadcast()
		c.mu.Unlock()
	}
}

// run answers f unless it has been cancelled or answered meanwhile.
func (c *conn) run(f *flight) {
	defer f.cancel()
	c.mu.Lock()
	done := f.done
	c.mu.Unlock()
	if done {
		return
	}
	line := c.handle(f)
	c.mu.Lock()
	done = f.done
	f.done = true
	c.mu.Unlock()
	if done {
		return
	}
	for _, n := range c.session.take() {
		if note, err := json.Marshal(n); err == nil {
			c.send(append(note, '\n'))
		}
	}
	c.send(line)
	c.retire(f)
}

// retire forgets a flight whose answer is with the writer, or will never come.
func (c *conn) retire(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.flights, f)
	c.changed.Broadcast()
}

// handle lets the library answer one message, and makes its answer a line.
func (c *conn) handle(f *flight) (line []byte) {
	defer func() {
		if r := recover(); r != nil {
			c.service.panicked(f.ctx, plain.Clean(f.method, plain.Detail), r)
			line = errorLine(f.id, mcplib.INTERNAL_ERROR, panicText)
		}
	}()
	switch response := c.service.mcp.HandleMessage(f.ctx, f.msg).(type) {
	case mcplib.JSONRPCResponse:
		response.ID = mcplib.NewRequestId(json.RawMessage(f.id))
		text, err := json.Marshal(response)
		if err != nil {
			c.log.Error("an answer could not be written as JSON", "method", plain.Clean(f.method, plain.Detail), "error", err)
			return errorLine(f.id, mcplib.INTERNAL_ERROR, panicText)
		}
		return append(text, '\n')
	case mcplib.JSONRPCError:
		return c.errorAnswer(f, response)
	default:
		return errorLine(f.id, mcplib.INTERNAL_ERROR, panicText)
	}
}

// errorAnswer words a protocol error of the library for the client.
func (c *conn) errorAnswer(f *flight, response mcplib.JSONRPCError) []byte {
	_, line := wordedError(c.service.noted(f.ctx, f.method, response), f.id, f.method, f.uri, f.call.errorCode)
	return line
}

// noted is a protocol error about a tool that was called, once it is known that there
// is no such tool, or no such call of it.
func (s *service) noted(ctx context.Context, method string, response mcplib.JSONRPCError) mcplib.JSONRPCError {
	if method == string(mcplib.MethodToolsCall) && response.Error.Code != mcplib.INTERNAL_ERROR && !ofTransport[response.Error.Code] {
		response.Error.Code, response.Error.Message = s.turnedAway(ctx, method, response.Error.Code, response.Error.Message)
	}
	return response
}

// wordedError is a protocol error of the library in this product's words, and
// its code. errorCode is what a handler wants in place of the library's.
func wordedError(response mcplib.JSONRPCError, id []byte, method, uri string, errorCode int) (int, []byte) {
	code, message := response.Error.Code, response.Error.Message
	if errorCode != 0 {
		code = errorCode
	}
	if code == mcplib.INVALID_REQUEST {
		// The envelope was checked before: what the library could not decode
		// are params, and its words are those of Go's decoder.
		code, message = mcplib.INVALID_PARAMS, "the params of "+method+" do not have the shape the method takes"
	}
	if method == string(mcplib.MethodResourcesRead) && errorCode == 0 && code != mcplib.INTERNAL_ERROR && !ofTransport[code] {
		message = errorText(noResource(uri))
	}
	response.ID = mcplib.NewRequestId(json.RawMessage(id))
	response.Error.Code = code
	response.Error.Message = plain.Clean(message, 1000)
	text, err := json.Marshal(response)
	if err != nil || len(text) > answerLimit {
		return code, errorLine(id, code, message)
	}
	return code, append(text, '\n')
}

// ofTransport are the codes of errors that are about headers and versions, not
// about what was asked for.
var ofTransport = map[int]bool{mcplib.HEADER_MISMATCH: true, mcplib.MISSING_REQUIRED_CLIENT_CAPABILITY: true, mcplib.UNSUPPORTED_PROTOCOL_VERSION: true}

// errorLine is a JSON-RPC error answer; a nil id is written as null.
func errorLine(id []byte, code int, message string) []byte {
	line := append([]byte(nil), `{"jsonrpc":"2.0","id":`...)
	if id == nil {
		line = append(line, "null"...)
	}
	line = append(line, id...)
	line = append(line, `,"error":{"code":`...)
	line = strconv.AppendInt(line, int64(code), 10)
	line = append(line, `,"message":`...)
	line = jsjson.AppendString(line, []byte(plain.Clean(message, 1000)))
	return append(line, '}', '}', '\n')
}

// notified handles a notification. Only a cancellation asks for anything.
func (c *conn) notified(method string, params jsjson.Node) {
	if method != "notifications/cancelled" {
		return
	}
	id := params.Get("requestId")
	if id.Kind() != jsjson.String && id.Kind() != jsjson.Number {
		return
	}
	key := idKey(id)
	// A cancelled request gets no answer (MCP, cancellation). Ids should be
	// unique; where a client repeats one, it cancels all that bear it.
	c.mu.Lock()
	defer c.mu.Unlock()
	for f := range c.flights {
		if f.key == key && !f.done && f.method != string(mcplib.MethodInitialize) {
			f.done = true
			f.cancel()
			delete(c.flights, f)
		}
	}
	c.changed.Broadcast()
}

// progress sends progress of f until f is answered.
func (c *conn) progress(f *flight, token []byte) func(done, total int, message string) {
	return func(done, total int, message string) {
		c.mu.Lock()
		over := f.done
		c.mu.Unlock()
		if over {
			return
		}
		line := append([]byte(nil), `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`...)
		line = append(line, token...)
		line = append(line, `,"progress":`...)
		line = strconv.AppendInt(line, int64(done), 10)
		line = append(line, `,"total":`...)
		line = strconv.AppendInt(line, int64(total), 10)
		line = append(line, `,"message":`...)
		line = jsjson.AppendString(line, []byte(plain.Clean(message, plain.Detail)))
		c.send(append(line, '}', '}', '\n'))
	}
}

// session is what the library wants to know of the one client. Notifications
// the library itself sends belong to the request that causes them and leave
// with its answer.
type session struct {
	notes chan mcplib.JSONRPCNotification
}

var _ server.ClientSession = (*session)(nil)

func newSession() *session {
	return &session{notes: make(chan mcplib.JSONRPCNotification, 64)}
}

func (*session) Initialize()       {}
func (*session) Initialized() bool { return true }
func (*session) SessionID() string { return "stdio" }
func (s *session) NotificationChannel() chan<- mcplib.JSONRPCNotification {
	return s.notes
}

func (s *session) take() (notes []mcplib.JSONRPCNotification) {
	for {
		select {
		case n := <-s.notes:
			notes = append(notes, n)
		default:
			return notes
		}
	}
}
