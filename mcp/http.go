package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	mcplib "github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/internal/plain"
	web "github.com/settlewatch/settlewatch/mcp/transport"
)

// overHTTP waits less: proxies give up a request without news after half a
// minute (design, "Surfaces").
var overHTTP = transport{name: "http", maxWait: 25}

// NewHTTPHandler answers one JSON-RPC message a POST, always at once and as one
// piece of JSON: it keeps no sessions and streams nothing (libraries, section
// 1.9). Both protocol eras are served, the ones that begin with initialize and
// 2026-07-28. Who asks is transport.Subject of a request's context. When ctx
// ends, calls that wait are answered with how things stand.
//
// It has no limits of its own but that of a line: it belongs behind
// transport.Server. An error says that the server could not be made.
func NewHTTPHandler(ctx context.Context, t Traces, o Options) (http.Handler, error) {
	s, err := build(t, o, overHTTP)
	if err != nil {
		return nil, err
	}
	most := o.MaxLine
	if most <= 0 {
		most = maxLine
	}
	return &httpHandler{
		service: s,
		library: server.NewStreamableHTTPServer(s.mcp,
			server.WithStateLess(true),
			server.WithDisableStreaming(true),
			server.WithDisableLocalhostProtection(true), // Host has been checked, and a proxy's may be a public one
			server.WithStreamableHTTPLogger(s.log),
		),
		most:     int64(most),
		draining: ctx.Done(),
	}, nil
}

// httpHandler stands between HTTP and the library: it reads messages as the
// stdio server does, and gives the library only requests.
type httpHandler struct {
	service  *service
	library  http.Handler
	most     int64
	draining <-chan struct{}
	docs     sync.Pool // of *jsjson.Doc

	// ids are what the library sees in place of the clients' ids. Without
	// sessions it takes two requests with the same id for one (libraries,
	// section 1.4), so no two have the same.
	ids atomic.Int64
}

func (h *httpHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.most))
	if err != nil {
		code, message := h.service.turnedAway(asked(r), noMessage, mcplib.INVALID_REQUEST, "the message could not be read whole")
		h.send(w, http.StatusRequestEntityTooLarge, errorLine(nil, code, message))
		return
	}
	doc, _ := h.docs.Get().(*jsjson.Doc)
	if doc == nil {
		doc = new(jsjson.Doc)
	}
	m, wrong := readMessage(doc, body)
	if wrong != nil {
		h.docs.Put(doc)
		code, message := h.service.turnedAway(asked(r), noMessage, wrong.code, wrong.message)
		h.send(w, http.StatusBadRequest, errorLine(wrong.id, code, message))
		return
	}
	if name := repeated(r.Header); name != "" {
		id := m.echo
		h.docs.Put(doc)
		h.send(w, http.StatusBadRequest, errorLine(id, mcplib.INVALID_REQUEST, "the header "+name+" is there more than once"))
		return
	}
	if m.echo == nil {
		h.docs.Put(doc)
		h.accept(w, r)
		return
	}
	id := strconv.AppendInt(nil, h.ids.Add(1), 10)
	f := &httpFlight{id: m.echo, method: m.method, libraryID: id, info: m.call(), msg: m.forLibrary(id), uri: string(m.params.Get("uri").Text())}
	h.docs.Put(doc) // m ends with it
	f.info.actor = web.Subject(r.Context())
	f.info.draining = h.draining
	status, answer := h.handle(f, r)
	if r.Context().Err() != nil {
		return // nobody is there to read it
	}
	h.send(w, status, answer)
}

// asked says who sent what could not be read.
func asked(r *http.Request) context.Context {
	return context.WithValue(r.Context(), callKey{}, &callInfo{actor: web.Subject(r.Context())})
}

// accept takes what asks for nothing: a notification, or an answer to a request
// this server never makes. None reaches the library, which without sessions
// would take a cancellation by one client for one by any other.
func (h *httpHandler) accept(w http.ResponseWriter, r *http.Request) {
	if version := r.Header.Get(mcplib.HeaderProtocolVersion); version != "" && !mcplib.IsValidProtocolVersion(version) {
		h.send(w, http.StatusBadRequest, errorLine(nil, mcplib.INVALID_REQUEST, noVersion))
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

// repeated is the name of a header of the protocol that has several values, ""
// for none. What stands between reads these headers in place of the message, and
// may read another of the values than the one that is held to it.
func repeated(h http.Header) string {
	for _, name := range []string{mcplib.HeaderProtocolVersion, mcplib.HeaderMethod, mcplib.HeaderName} {
		if len(h.Values(name)) > 1 {
			return name
		}
	}
	return ""
}

const noVersion = "the version in MCP-Protocol-Version is not served. try: leave it out in initialize, and send what that answers"

// httpFlight is one request from being read to being answered.
type httpFlight struct {
	id        []byte // as the client wrote it
	method    string
	libraryID []byte
	info      *callInfo
	msg       []byte
	uri       string // of resources/read
}

// handle lets the library answer one request, and puts the client's id back.
func (h *httpHandler) handle(f *httpFlight, r *http.Request) (status int, answer []byte) {
	ctx := context.WithValue(r.Context(), callKey{}, f.info)
	defer func() {
		if defect := recover(); defect != nil {
			h.service.panicked(ctx, plain.Clean(f.method, plain.Detail), defect)
			status, answer = http.StatusInternalServerError, errorLine(f.id, mcplib.INTERNAL_ERROR, panicText)
		}
	}()
	modern := mcplib.IsModernProtocol(r.Header.Get(mcplib.HeaderProtocolVersion))
	if f.method == string(mcplib.MethodSubscriptionsListen) {
		// A stream that would never say anything.
		return statusOf(mcplib.METHOD_NOT_FOUND, modern, http.StatusOK), errorLine(f.id, mcplib.METHOD_NOT_FOUND, "nothing is streamed here. try: ask again, or a tool that waits")
	}
	inner := r.WithContext(ctx)
	inner.Body, inner.ContentLength = io.NopCloser(bytes.NewReader(f.msg)), int64(len(f.msg))
	var got kept
	h.library.ServeHTTP(&got, inner)

	prefix := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,`, f.libraryID)
	rest, ok := bytes.CutPrefix(got.body.Bytes(), prefix)
	switch {
	case !ok && r.Context().Err() != nil:
		return 0, nil // whoever asked has hung up, and the library said nothing
	case !ok && got.status == http.StatusBadRequest:
		// It answers versions and media types in plain text, before it looks at
		// the message.
		return got.status, errorLine(f.id, mcplib.INVALID_REQUEST, noVersion)
	case !ok:
		h.service.logOf(ctx).Error("the library's answer has another form", "method", plain.Clean(f.method, plain.Detail), "status", got.status)
		return http.StatusInternalServerError, errorLine(f.id, mcplib.INTERNAL_ERROR, panicText)
	case bytes.HasPrefix(rest, []byte(`"error":`)):
		var response mcplib.JSONRPCError
		if err := json.Unmarshal(got.body.Bytes(), &response); err != nil {
			h.service.logOf(ctx).Error("the library's answer has another form", "method", plain.Clean(f.method, plain.Detail), "error", err)
			return http.StatusInternalServerError, errorLine(f.id, mcplib.INTERNAL_ERROR, panicText)
		}
		code, line := wordedError(h.service.noted(ctx, f.method, response), f.id, f.method, f.uri, f.info.errorCode)
		return statusOf(code, modern, got.status), line
	}
	answer = make([]byte, 0, got.body.Len()+len(f.id))
	answer = append(answer, `{"jsonrpc":"2.0","id":`...)
	answer = append(answer, f.id...)
	answer = append(answer, ',')
	return got.status, append(answer, rest...)
}

// statusOf is the HTTP status of an error: protocol version 2026-07-28 gives
// most codes one, older ones leave it to the message.
func statusOf(code int, modern bool, status int) int {
	if !modern {
		return status
	}
	switch code {
	case mcplib.METHOD_NOT_FOUND:
		return http.StatusNotFound
	case mcplib.INVALID_PARAMS, mcplib.INVALID_REQUEST, mcplib.PARSE_ERROR,
		mcplib.HEADER_MISMATCH, mcplib.MISSING_REQUIRED_CLIENT_CAPABILITY, mcplib.UNSUPPORTED_PROTOCOL_VERSION:
		return http.StatusBadRequest
	}
	return status
}

func (h *httpHandler) send(w http.ResponseWriter, status int, answer []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.WriteHeader(status)
	_, _ = w.Write(answer) // a client that has gone needs no answer
}

// kept is what the library answers. It cannot be flushed, so the library
// never makes a stream of it.
type kept struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *kept) Header() http.Header {
	if k.header == nil {
		k.header = http.Header{}
	}
	return k.header
}

func (k *kept) WriteHeader(status int) {
	if k.status == 0 {
		k.status = status
	}
}

func (k *kept) Write(b []byte) (int, error) {
	k.WriteHeader(http.StatusOK)
	return k.body.Write(b)
}
