package transport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// The codes of the answers of this package.
const (
	codeNotFound       = "not_found"
	codeHost           = "host_not_allowed"
	codeOrigin         = "origin_not_allowed"
	codeRate           = "rate_limited"
	codeMethod         = "method_not_allowed"
	codeUnauthorized   = "unauthorized"
	codeToken          = "invalid_token"
	codeScope          = "insufficient_scope"
	codeMedia          = "unsupported_media_type"
	codeTooLarge       = "payload_too_large"
	codeTimeout        = "request_timeout"
	codeBadRequest     = "bad_request"
	codeHeaderTooLarge = "headers_too_large"
	codeInternal       = "internal_error"
	codeParse          = "parse_error"     // a JSON-RPC error on the wire
	codeMessage        = "invalid_message" // a JSON-RPC error on the wire
)

// statusGone is what a client that hung up is counted by; nothing is sent.
const (
	statusGone = 499
	codeGone   = "client_gone"
)

const (
	endpoint     = "/mcp"
	healthPath   = "/health"
	metadataPath = "/.well-known/oauth-protected-resource"
)

// JSON-RPC 2.0, section 5.1.
const (
	parseError     = -32700
	invalidRequest = -32600
)

// Probes of /health, a client: enough for one a second.
const (
	healthPerMinute = 60
	healthBurst     = 10
)

// unwanted is how long the rest of a body nobody reads may hold up its refusal, and
// a connection.
const unwanted = time.Second

// page is what a path leads to.
type page struct {
	methods []string
	health  bool
	answer  []byte // of a page that is always the same; nil for the endpoint
}

// chain does what has to be done before a handler sees a request, in the order
// of transport contract, section 4.
type chain struct {
	*plan
	next     http.Handler
	verifier *verifier // nil if none is needed
	hosts    map[string]bool
	pages    map[string]page
	metadata string // URL of the resource's metadata

	busy     crowd
	clients  *buckets[clientKey]
	health   *buckets[clientKey]
	subjects *buckets[string]
	docs     sync.Pool // of *jsjson.Doc
}

func errorBody(code string) []byte { return []byte(`{"error":"` + code + `"}`) }

// exchange is one request and its answer.
type exchange struct {
	http.ResponseWriter
	chain  *chain
	r      *http.Request
	until  time.Time // when its body has to be there; zero without one, and once it is
	status int
	code   string
	why    string // of a token that was refused, for the log
}

func (c *chain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{ResponseWriter: w, chain: c, r: r}
	if conn := connOf(r.Context()); conn != nil {
		conn.called.Store(true)
	}
	if len(c.origins) > 0 {
		w.Header().Set("Vary", "Origin")
	}
	if r.Body != http.NoBody {
		x.until = c.Now().Add(c.Timeouts.Body)
		_ = http.NewResponseController(w).SetReadDeadline(x.until)
	}
	if len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1) {
		// The library drops a Content-Length beside Transfer-Encoding, and a
		// Transfer-Encoding in HTTP/1.0, and tells nobody. A proxy may have gone by
		// the other one, so what it takes for the rest of a body must not become a
		// request (RFC 9112, section 6.1).
		w.Header().Set("Connection", "close")
	}
	abort := false
	defer func() {
		if defect := recover(); defect != nil {
			c.Log.Error("a request panicked", "panic", fmt.Sprint(defect), "stack", string(debug.Stack()))
			if abort = x.status != 0; abort {
				x.code = codeInternal
			} else {
				x.refuse(http.StatusInternalServerError, codeInternal)
			}
		}
		answer := Answer{x.status, x.code}
		switch x.code {
		case "", codeGone, codeInternal: // answered, or nobody is there, or there is a line already
		default:
			c.refused(answer, c.clientOf(peerOf(r), r.Header).key, x.why)
		}
		if c.Answered != nil {
			c.Answered(answer)
		}
		if abort {
			panic(http.ErrAbortHandler) // half an answer, or none, must not look like one
		}
	}()
	x.serve()
	switch {
	case x.status != 0:
	case r.Context().Err() != nil:
		// Who has only said that nothing more comes still reads: the library would
		// send an empty success.
		x.status, x.code, abort = statusGone, codeGone, true
	default:
		x.WriteHeader(http.StatusOK)
	}
}

func (x *exchange) serve() {
	c, r, h := x.chain, x.r, x.Header()
	p, ok := c.pages[r.URL.Path]
	if !ok || r.URL.RawPath != "" {
		x.refuse(http.StatusNotFound, codeNotFound)
		return
	}
	peer := peerOf(r)
	from := c.clientOf(peer, r.Header)
	if !c.serves(r.Host) && !(from.proxied && c.isPublic(r.Host)) {
		x.refuse(http.StatusForbidden, codeHost)
		return
	}
	stranger := !x.cors()
	bucket := c.clients
	if p.health {
		bucket = c.health
	}
	if wait, ok := bucket.take(from.key, c.Now()); !ok {
		x.limited(wait)
		return
	}
	if from.named {
		if !c.busy.enter(from.key) {
			x.limited(1)
			return
		}
		defer c.busy.leave(from.key)
	}
	if stranger {
		x.refuse(http.StatusForbidden, codeOrigin)
		return
	}
	if x.preflight(p) {
		return
	}
	if !slices.Contains(p.methods, r.Method) {
		h.Set("Allow", strings.Join(p.methods, ", "))
		x.refuse(http.StatusMethodNotAllowed, codeMethod)
		return
	}
	if p.answer != nil {
		x.write(http.StatusOK, p.answer)
		return
	}
	ctx := r.Context()
	if c.verifier != nil {
		subject, refusal := c.verifier.subject(r.Header.Values("Authorization"))
		if refusal != nil {
			x.challenge(refusal)
			return
		}
		if wait, ok := c.subjects.take(subject, c.Now()); !ok {
			x.limited(wait)
			return
		}
		ctx = context.WithValue(ctx, subjectKey{}, subject)
	}
	r.Header.Del("Authorization") // a token goes no further
	body, ok := x.message()
	if !ok {
		return
	}
	r = r.WithContext(ctx)
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	c.next.ServeHTTP(x, r)
}

// serves reports whether a Host value is one that is served.
func (c *chain) serves(host string) bool {
	if c.hosts[host] { // most clients spell it as we do
		return true
	}
	name, ok := normalHost(host)
	return ok && c.hosts[name]
}

// isPublic reports whether a Host value is the one of the public URL, with or
// without the port that goes without saying.
func (c *chain) isPublic(host string) bool {
	if c.public == nil {
		return false
	}
	port := map[string]string{"http": "80", "https": "443"}[c.public.Scheme]
	want, _ := normalAuthority(c.public.Host, port)
	got, ok := normalAuthority(host, port)
	return ok && got == want
}

// cors reports whether a request comes from no browser page or from one that is
// allowed. Such a page may read whatever is answered from here on, also that it
// asks too often (Fetch standard, CORS protocol).
func (x *exchange) cors() bool {
	values := x.r.Header.Values("Origin")
	if len(values) == 0 {
		return true
	}
	origin, ok := normalOrigin(values[0])
	if !ok || len(values) > 1 || !x.chain.origins[origin] {
		return false
	}
	x.Header().Set("Access-Control-Allow-Origin", values[0])
	if !x.asks() {
		x.Header().Set("Access-Control-Expose-Headers", "Retry-After, WWW-Authenticate")
	}
	return true
}

// asks reports whether a request is a preflight.
func (x *exchange) asks() bool {
	return x.r.Method == http.MethodOptions && x.r.Header.Get("Origin") != "" && x.r.Header.Get("Access-Control-Request-Method") != ""
}

// preflight answers one of an allowed page, and reports whether it did.
func (x *exchange) preflight(p page) bool {
	if !x.asks() {
		return false
	}
	h := x.Header()
	h.Set("Access-Control-Allow-Methods", strings.Join(p.methods, ", "))
	h.Set("Access-Control-Allow-Headers", "Accept, Authorization, Content-Type, Last-Event-ID, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id")
	h.Set("Access-Control-Max-Age", "600")
	if x.r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	x.WriteHeader(http.StatusNoContent)
	return true
}

// challenge answers a request without a good token (RFC 6750, section 3; RFC
// 9728, section 5.1).
func (x *exchange) challenge(why *refused) {
	c := x.chain
	value := `Bearer resource_metadata="` + c.metadata + `"`
	status := http.StatusUnauthorized
	if why.code != codeUnauthorized {
		value += `, error="` + why.code + `"`
		x.why = why.why
		c.Log.Info("a token was refused", "why", why.why) // each of them, for who looks that closely
	}
	if why.code == codeScope {
		status = http.StatusForbidden
	}
	if len(c.verifier.scopes) > 0 {
		value += `, scope="` + strings.Join(c.verifier.scopes, " ") + `"`
	}
	x.Header().Set("WWW-Authenticate", value)
	x.refuse(status, why.code)
}

// message reads the body: one JSON-RPC message. It reports whether the request
// goes on.
func (x *exchange) message() ([]byte, bool) {
	if !jsonBody(x.r.Header) {
		x.refuse(http.StatusUnsupportedMediaType, codeMedia)
		return nil, false
	}
	body, ok := x.body()
	if !ok {
		return nil, false
	}
	doc, _ := x.chain.docs.Get().(*jsjson.Doc)
	if doc == nil {
		doc = new(jsjson.Doc)
	}
	defer x.chain.docs.Put(doc)
	if !utf8.Valid(body) {
		x.rpcError(codeParse, parseError, "the body is not valid UTF-8")
		return nil, false
	}
	if err := doc.Parse(body); err != nil {
		x.rpcError(codeParse, parseError, "the body is not one JSON value")
		return nil, false
	}
	root := doc.Root()
	switch root.Kind() {
	case jsjson.Object:
	case jsjson.Array:
		x.rpcError(codeMessage, invalidRequest, "batches are not supported: send one message a request")
		return nil, false
	default:
		x.rpcError(codeMessage, invalidRequest, "a message must be a JSON object")
		return nil, false
	}
	// Readers of JSON disagree about a member that is there twice or in another
	// spelling, so who checks and who acts could read two messages.
	for _, name := range []string{"jsonrpc", "id", "method", "params", "result", "error"} {
		if _, copies, variants := root.Find(name); copies > 1 || variants > 0 {
			x.rpcError(codeMessage, invalidRequest, "the message has "+name+" more than once, or in another spelling")
			return nil, false
		}
	}
	if id := root.Get("id").Kind(); (id == jsjson.Absent || id == jsjson.Null) && string(root.Get("method").Text()) == "notifications/cancelled" {
		// Without sessions an id says nothing about whose request it is: one
		// client could cancel another's (libraries, section 1.4). Who hangs up
		// cancels its own.
		x.WriteHeader(http.StatusAccepted)
		return nil, false
	}
	return body, true
}

// jsonBody reports whether a request says that its body is plain JSON. A media
// type is parsed: a browser may send "text/plain; application/json" unasked.
func jsonBody(h http.Header) bool {
	types := h.Values("Content-Type")
	if len(types) != 1 {
		return false
	}
	kind, parameters, err := mime.ParseMediaType(types[0])
	if err != nil || kind != "application/json" {
		return false
	}
	charset, named := parameters["charset"]
	if named && !strings.EqualFold(charset, "utf-8") {
		return false
	}
	for _, coding := range h.Values("Content-Encoding") {
		if !strings.EqualFold(strings.TrimSpace(coding), "identity") {
			return false
		}
	}
	return true
}

func (x *exchange) body() ([]byte, bool) {
	r, most := x.r, x.chain.MaxBody
	tooLarge := func() ([]byte, bool) {
		x.Header().Set("Connection", "close")
		x.refuse(http.StatusRequestEntityTooLarge, codeTooLarge)
		return nil, false
	}
	if r.ContentLength > most {
		return tooLarge()
	}
	control := http.NewResponseController(x.ResponseWriter)
	// Room for what was announced, within reason: announcing costs nothing.
	buffer := bytes.NewBuffer(make([]byte, 0, min(max(r.ContentLength, 0), 64<<10)+bytes.MinRead))
	// What ends the body is read with it, so that the library can watch for a
	// client that hangs up.
	n, err := io.Copy(buffer, io.LimitReader(r.Body, most+1))
	switch {
	case n > most:
		return tooLarge()
	case err != nil && (errors.Is(err, os.ErrDeadlineExceeded) || !x.chain.Now().Before(x.until)):
		// Within a trailer the library has another word for it.
		x.Header().Set("Connection", "close")
		x.refuse(http.StatusRequestTimeout, codeTimeout)
		return nil, false
	case err != nil:
		x.Header().Set("Connection", "close")
		x.refuse(http.StatusBadRequest, codeBadRequest)
		return nil, false
	}
	x.until = time.Time{}
	_ = control.SetReadDeadline(x.until)
	return buffer.Bytes(), true
}

// limited answers a client that has no token left.
func (x *exchange) limited(wait int) {
	x.Header().Set("Retry-After", strconv.Itoa(wait))
	x.refuse(http.StatusTooManyRequests, codeRate)
}

// refuse is an answer of this package.
func (x *exchange) refuse(status int, code string) {
	x.code = code
	x.write(status, errorBody(code))
}

// rpcError refuses what is no message in the words of JSON-RPC.
func (x *exchange) rpcError(code string, number int, message string) {
	x.code = code
	text, _ := json.Marshal(message)
	x.write(http.StatusBadRequest, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%s}}`, number, text))
}

func (x *exchange) write(status int, body []byte) {
	h := x.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	x.WriteHeader(status)
	_, _ = x.Write(body) // a client that has gone needs no answer
}

// WriteHeader starts the time a client has to read its answer. exchange has no
// Flush: an answer is one piece of JSON.
func (x *exchange) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
		now, control := x.chain.Now(), http.NewResponseController(x.ResponseWriter)
		_ = control.SetWriteDeadline(now.Add(x.chain.Timeouts.Write))
		if soon := now.Add(unwanted); soon.Before(x.until) {
			// The library reads the rest of a body before it sends the answer.
			_ = control.SetReadDeadline(soon)
		}
		h := x.Header() // whatever a handler has set
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(b []byte) (int, error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	return x.ResponseWriter.Write(b)
}
