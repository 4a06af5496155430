package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	"golang.org/x/crypto/sha3"
)

// The shape of the data. A change of any of it makes other data: raise
// dataVersion, so that kept sets are made again.
const (
	dataVersion  = 1
	parties      = 2000 // counterparties, the busiest first
	partySkew    = 1.1  // exponent of their zipf distribution
	inFlight     = 24   // operations a run has open at most
	startPerMill = 135  // chance that an event opens an operation while fewer are open
	hugePerMill  = 5    // operations whose amount does not fit 64 bits
	days         = 30   // over which the runs are spread
)

// firstDay is when the first run starts: 1 October 2026, UTC.
const firstDay = 1_790_812_800_000

// outcome is what becomes of an operation if its run lasts long enough.
type outcome int

const (
	settled   outcome = iota // paid, settled, answered
	unsettled                // paid, and nothing more was heard
	walked                   // an offer that was left
	declined                 // paid, found invalid
	broken                   // paid, settlement failed
	outcomes
)

// outcomePerMill is how many operations of a thousand meet each outcome.
var outcomePerMill = [outcomes]int{settled: 850, unsettled: 80, walked: 50, declined: 10, broken: 10}

// kind is one event of a flow (trace contract, section 9).
type kind struct {
	typ, role string
	tail      tail
}

// tail is what a payload holds behind its base facts.
type tail int

const (
	facts       tail = iota // nothing
	offer                   // an offer instead of base facts
	protected               // a request instead of base facts
	verifyOK                // verify{is_valid: true}
	verifyNo                // verify{is_valid: false}
	verifyAgain             // payment_required, a fresh offer
	settleOK                // settle{success: true}
	settleNo                // settle{success: false}
	settleError             // error{name, message}
)

var (
	required   = kind{"x402.payment.required", "client", offer}
	creating   = kind{"x402.payment.creating", "client", facts}
	submitted  = kind{"x402.payment.submitted", "client", facts}
	responded  = kind{"x402.payment.responded", "client", settleOK}
	request    = kind{"x402.request.protected", "server", protected}
	chainValid = kind{"x402.verify.ok", "facilitator", verifyOK}
	valid      = kind{"x402.verify.ok", "server", verifyOK}
	settling   = kind{"x402.settle.started", "server", facts}
	chainDone  = kind{"x402.settle.ok", "facilitator", settleOK}
	done       = kind{"x402.settle.ok", "server", settleOK}
)

// flows gives each outcome the events of an operation, in order. A walk-away
// may stop after its first.
var flows = [outcomes][]kind{
	settled:   {required, creating, submitted, request, chainValid, valid, settling, chainDone, done, responded},
	unsettled: {required, creating, submitted, request, chainValid, valid},
	walked:    {required, creating},
	declined: {required, creating, submitted, request,
		{"x402.verify.failed", "facilitator", verifyNo},
		{"x402.verify.failed", "server", verifyNo},
		{"x402.verify.failed", "client", verifyAgain}},
	broken: {required, creating, submitted, request, chainValid, valid, settling,
		{"x402.settle.failed", "facilitator", settleNo},
		{"x402.settle.failed", "server", settleError},
		{"x402.settle.failed", "client", settleNo}},
}

// tally counts what was written.
type tally struct {
	Events     int64 // lines
	Operations int64
	Full       int64 // operations the template x402-buyer judges full
	Paid       int64 // operations with a possible payment
	Huge       int64 // operations with an amount above 64 bits
	Bytes      int64
	Outcomes   [outcomes]int64 // operations begun, by what was to become of them
}

func (t *tally) add(o tally) {
	t.Events += o.Events
	t.Operations += o.Operations
	t.Full += o.Full
	t.Paid += o.Paid
	t.Huge += o.Huge
	t.Bytes += o.Bytes
	for i := range t.Outcomes {
		t.Outcomes[i] += o.Outcomes[i]
	}
}

// party is one counterparty: what its offers and facts say, cut around what
// differs from one operation to the next.
type party struct {
	routes  [4]string // resource objects
	paths   [4]string
	before  string // a requirements object up to the amount
	behind  string // and from there on
	network string
	price   uint64
}

// generator makes run files. The same seed makes the same bytes; its runs are
// independent of each other, so they may be made at the same time.
type generator struct {
	seed    uint64
	parties []party
}

// chains are the networks and the asset each counterparty may ask for.
// The first is the usual one.
var chains = []struct{ network, asset string }{
	{"eip155:8453", "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"},
	{"eip155:84532", "0x036CbD53842c5426634e7929541eC2318f3dCF7e"},
	{"eip155:137", "0x3c499c542cEF5E3811e1192ce70d8cC03d5c3359"},
}

// trades are what is sold; a description is optional.
var trades = []struct{ name, path, description, mime string }{
	{"weather", "forecast", "Five-day forecast", "application/json"},
	{"quotes", "quote", "", "application/json"},
	{"images", "render", "1024×1024 → PNG", "image/png"},
	{"search", "search", "Ten results", "application/json"},
	{"speech", "transcribe", "", "text/plain"},
	{"maps", "route", "Driving route", "application/geo+json"},
	{"papers", "abstract", "", "application/json"},
	{"models", "complete", "", "text/plain"},
	{"ledger", "balance", "", "application/json"},
	{"files", "convert", "", "application/pdf"},
}

func newGenerator(seed uint64) *generator {
	g := &generator{seed: seed, parties: make([]party, parties)}
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range g.parties {
		p := &g.parties[i]
		trade, chain := trades[i%len(trades)], chains[max(0, r.IntN(6)-3)]
		description := ""
		if trade.description != "" {
			description = fmt.Sprintf(`"description":"%s",`, trade.description)
		}
		for j := range p.routes {
			p.paths[j] = fmt.Sprintf("/v%d/%s/%d", 1+j%2, trade.path, j)
			p.routes[j] = fmt.Sprintf(`{"url":"https://%s-%04d.example%s",%s"mime_type":"%s"}`, trade.name, i, p.paths[j], description, trade.mime)
		}
		p.before = fmt.Sprintf(`{"scheme":"exact","network":"%s","asset":"%s","amount":"`, chain.network, chain.asset)
		p.behind = fmt.Sprintf(`","pay_to":"%s","max_timeout_seconds":%d}`, address(r), 60*(1+r.IntN(5)))
		p.network = chain.network
		p.price = uint64(1+r.IntN(100)) * [...]uint64{100, 1000, 2500, 10_000}[r.IntN(4)]
	}
	return g
}

// address is a random account in its EIP-55 spelling, as recorders write them.
func address(r *rand.Rand) string {
	text := appendHex(nil, r, 20)
	h := sha3.NewLegacyKeccak256()
	_, _ = h.Write(text) // a hash takes every write
	sum := h.Sum(nil)
	for i, c := range text {
		if c >= 'a' && sum[i/2]>>(4-4*(i%2))&8 != 0 {
			text[i] = c - 'a' + 'A'
		}
	}
	return "0x" + string(text)
}

func appendHex(dst []byte, r *rand.Rand, n int) []byte {
	var raw [32]byte
	for i := 0; i < n; i += 8 {
		v := r.Uint64()
		for j := range 8 {
			raw[i+j] = byte(v >> (8 * j))
		}
	}
	return hex.AppendEncode(dst, raw[:n])
}

// appendUUID appends a random UUID of version 4.
func appendUUID(dst []byte, r *rand.Rand) []byte {
	at := len(dst)
	dst = appendHex(dst, r, 16)
	text := dst[at:]
	text[12] = '4'
	text[16] = "89ab"[text[16]&3]
	dst = append(dst, "----"...)
	text = dst[at:]
	copy(text[24:], text[20:32])
	copy(text[19:], text[16:20])
	copy(text[14:], text[12:16])
	copy(text[9:], text[8:12])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return dst
}

// running is an operation a run has open.
type running struct {
	flow     []kind
	at       int
	party    *party
	id       []byte // context_id
	resource string
	terms    []byte // the requirements object
	path     string
	tx       []byte
	verdict  outcome
}

// span is one run to be made.
type span struct {
	number int // of the run: it seeds the run's own randomness
	events int
	start  int64 // unix milliseconds
	length int64 // milliseconds the run lasts
}

// name is the run file's name: recorders call a run after its start.
func (s span) name() string { return strconv.FormatInt(s.start, 10) + ".ndjson" }

// run writes one run file. Operations that are open at its end stay as they
// are, as when an agent's process ends.
func (g *generator) run(w io.Writer, s span) (tally, error) {
	m := &maker{
		g:     g,
		r:     rand.New(rand.NewPCG(g.seed, uint64(s.number)+1)),
		out:   bufio.NewWriterSize(w, min(1<<20, 640*s.events)),
		start: s.start,
	}
	m.zipf = rand.NewZipf(m.r, partySkew, 1, parties-1)
	m.payer = "0x" + string(appendHex(nil, m.r, 20))
	m.open = make([]*running, 0, inFlight)
	for _, session := range attachments {
		if m.count.Events < int64(s.events) {
			m.attach(session)
		}
	}
	for m.count.Events < int64(s.events) {
		m.now = s.length * m.count.Events / int64(s.events)
		if len(m.open) == 0 || len(m.open) < inFlight && m.r.IntN(1000) < startPerMill {
			m.begin()
			m.advance(len(m.open) - 1)
		} else {
			m.advance(m.r.IntN(len(m.open)))
		}
		if m.err != nil {
			return m.count, m.err
		}
	}
	return m.count, m.out.Flush()
}

// attachment is the event by which one side says that it records.
type attachment struct{ role, payload string }

// attachments open a run. The client's says that it will see answers.
var attachments = []attachment{
	{"client", `{"kind":"httpClient","attached":["onPaymentRequired","client.onBeforePaymentCreation","client.onAfterPaymentCreation","client.onPaymentCreationFailure","client.onPaymentResponse"]}`},
	{"server", `{"kind":"httpResourceServer","attached":["onProtectedRequest","server.onBeforeVerify","server.onAfterVerify","server.onVerifyFailure","server.onBeforeSettle","server.onAfterSettle","server.onSettleFailure","server.onVerifiedPaymentCanceled"]}`},
	{"facilitator", `{"kind":"facilitator","attached":["onBeforeVerify","onAfterVerify","onVerifyFailure","onBeforeSettle","onAfterSettle","onSettleFailure"]}`},
}

// maker makes one run. Only the goroutine that runs it touches it.
type maker struct {
	g     *generator
	r     *rand.Rand
	zipf  *rand.Zipf
	out   *bufio.Writer
	line  []byte
	open  []*running
	spare []*running // closed ones, whose buffers serve again
	payer string
	start int64
	now   int64 // milliseconds since start
	count tally
	err   error
}

func (m *maker) begin() {
	var o *running
	if n := len(m.spare); n > 0 {
		o, m.spare = m.spare[n-1], m.spare[:n-1]
	} else {
		o = &running{}
	}
	o.at = 0
	o.verdict = m.outcome()
	o.flow = flows[o.verdict]
	if o.verdict == walked && m.r.IntN(2) == 0 {
		o.flow = o.flow[:1]
	}
	o.party = &m.g.parties[m.zipf.Uint64()]
	route := m.r.IntN(len(o.party.routes))
	o.resource, o.path = o.party.routes[route], o.party.paths[route]
	o.id = appendUUID(o.id[:0], m.r)
	o.terms = append(o.terms[:0], o.party.before...)
	if m.r.IntN(1000) < hugePerMill {
		m.count.Huge++
		o.terms = strconv.AppendUint(o.terms, 1+m.r.Uint64N(1e9), 10)
		o.terms = fmt.Appendf(o.terms, "%020d", m.r.Uint64())
	} else {
		o.terms = strconv.AppendUint(o.terms, o.party.price*uint64(1+m.r.IntN(4)), 10)
	}
	o.terms = append(o.terms, o.party.behind...)
	o.tx = append(o.tx[:0], "0x"...)
	o.tx = appendHex(o.tx, m.r, 32)
	m.open = append(m.open, o)
	m.count.Operations++
	m.count.Outcomes[o.verdict]++
}

func (m *maker) outcome() outcome {
	n := m.r.IntN(1000)
	for v, share := range outcomePerMill {
		if n -= share; n < 0 {
			return outcome(v)
		}
	}
	return settled
}

// advance writes the next event of an open operation.
func (m *maker) advance(i int) {
	o := m.open[i]
	k := o.flow[o.at]
	m.head(k.typ, o.id, k.role)
	m.payload(o, k.tail)
	m.end()
	switch {
	case k == submitted:
		m.count.Paid++
	case k == responded:
		m.count.Full++
	}
	if o.at++; o.at == len(o.flow) {
		last := len(m.open) - 1
		m.open[i] = m.open[last]
		m.open = m.open[:last]
		m.spare = append(m.spare, o)
	}
}

func (m *maker) attach(a attachment) {
	m.head("trace.attached", nil, a.role)
	m.line = append(m.line, a.payload...)
	m.end()
}

// head begins a line, in the recorder's own order of members (trace contract,
// section 3).
func (m *maker) head(typ string, id []byte, role string) {
	b := m.line[:0]
	b = append(b, `{"event_id":"`...)
	b = appendUUID(b, m.r)
	b = append(b, `","event_type":"`...)
	b = append(b, typ...)
	b = append(b, `","occurred_at":"`...)
	b = time.UnixMilli(m.start+m.now).UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
	if id != nil {
		b = append(b, `","context_id":"`...)
		b = append(b, id...)
	}
	b = append(b, `","seq":`...)
	b = strconv.AppendInt(b, m.count.Events, 10)
	b = append(b, `,"adapter":"trace-x402","role":"`...)
	b = append(b, role...)
	b = append(b, `","payload":`...)
	m.line = b
}

func (m *maker) payload(o *running, t tail) {
	b := m.line
	switch t {
	case protected:
		b = append(b, `{"method":"GET","path":"`...)
		b = append(b, o.path...)
		b = append(b, `","route_pattern":"`...)
		b = append(b, o.path[:len(o.path)-1]...)
		b = append(b, `:id","paid":true}`...)
		m.line = b
		return
	case offer:
		m.line = o.appendOffer(b, "Payment required")
		return
	}
	b = append(b, `{"x402_version":2,"resource":`...)
	b = append(b, o.resource...)
	b = append(b, `,"requirements":`...)
	b = append(b, o.terms...)
	switch t {
	case verifyOK:
		b = append(b, `,"verify":{"is_valid":true,"payer":"`...)
		b = append(b, m.payer...)
		b = append(b, `"}`...)
	case verifyNo:
		b = append(b, `,"verify":{"is_valid":false,"invalid_reason":"invalid_exact_evm_signature","payer":"`...)
		b = append(b, m.payer...)
		b = append(b, `"}`...)
	case verifyAgain:
		b = append(b, `,"payment_required":`...)
		b = o.appendOffer(b, "invalid_exact_evm_signature")
	case settleOK:
		b = append(b, `,"settle":{"success":true,"transaction":"`...)
		b = append(b, o.tx...)
		b = append(b, `","network":"`...)
		b = append(b, o.party.network...)
		b = append(b, `","payer":"`...)
		b = append(b, m.payer...)
		b = append(b, `"}`...)
	case settleNo:
		b = append(b, `,"settle":{"success":false,"transaction":"","network":"`...)
		b = append(b, o.party.network...)
		b = append(b, `","payer":"`...)
		b = append(b, m.payer...)
		b = append(b, `","error_reason":"invalid_exact_evm_insufficient_balance","error_message":"ERC20: transfer amount exceeds balance"}`...)
	case settleError:
		b = append(b, `,"error":{"name":"SettleError","message":"invalid_exact_evm_insufficient_balance: ERC20: transfer amount exceeds balance"}`...)
	}
	b = append(b, '}')
	m.line = b
}

func (o *running) appendOffer(b []byte, reason string) []byte {
	b = append(b, `{"x402_version":2,"error":"`...)
	b = append(b, reason...)
	b = append(b, `","resource":`...)
	b = append(b, o.resource...)
	b = append(b, `,"accepts":[`...)
	b = append(b, o.terms...)
	return append(b, `]}`...)
}

func (m *maker) end() {
	m.line = append(m.line, "}\n"...)
	m.count.Events++
	m.count.Bytes += int64(len(m.line))
	if _, err := m.out.Write(m.line); err != nil {
		m.err = err
	}
}
