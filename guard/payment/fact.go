package payment

import (
	"bytes"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest/event"
)

// Side says whose view of a payment a fact is.
type Side uint8

// The sides. An operation with facts of several is of the first of these.
const (
	NoSide      Side = iota
	Client           // this side pays
	Server           // this side sells
	Facilitator      // this side settles for others
	Escrow           // a deal whose money is locked in a contract
)

// Kind says what an event tells about money.
type Kind uint8

// The kinds, by the events of the trace contract, sections 9 and 10.
const (
	NoKind        Kind = iota
	Offer              // client: x402.payment.required
	Creating           // client: creating; creation_failed
	Submitted          // client: a payment was signed
	Requested          // client: a paid tool call is about to be made
	Responded          // client: an answer that reports a settlement, or claims to
	SettleFailed       // any x402 side
	VerifyFailed       // any x402 side
	PaymentFailed      // client: x402.payment.failed, whose outcome is open
	Started            // server, facilitator: verify.started, settle.started
	VerifyOK           // server, facilitator
	SettleOK           // server, facilitator
	Canceled           // server: x402.payment.canceled
	Deposit            // escrow: money was locked
	Disposition        // escrow: money left the contract again, either way
	Transfer           // escrow: any other movement, failed ones included
)

// Fact is what one event says about money. It holds nothing of the line it came
// from and is cheap to copy.
type Fact struct {
	key       event.Key
	kind      Kind
	side      Side
	version1  bool // x402_version is 1
	ambiguous bool // a money fact is repeated or occurs in another letter case
	res       *resource
	tool      string
	terms     *terms   // requirements; nil when absent
	offers    *offers  // accepts; nil when absent
	out       *outcome // of answers
	named     *named   // every name in any copy when ambiguous; the names of an escrow
}

// Kind is what the event tells.
func (f *Fact) Kind() Kind { return f.kind }

// Side is whose view it is.
func (f *Fact) Side() Side { return f.side }

// Ambiguous reports whether a money fact of the event, or an object on the way
// to it, is repeated in the line or occurs in another letter case (guard
// contract, section 1, "Spent").
func (f *Fact) Ambiguous() bool { return f.ambiguous }

// Key is the order of the event among others.
func (f *Fact) Key() event.Key { return f.key }

// terms are requirements in canonical form. An amount that is missing or cannot
// be read is empty; it is never zero.
type terms struct {
	Terms
	ambiguous bool
}

// Terms say who is paid how much of what. Empty text is unknown.
type Terms struct {
	Payee        string // name, as Payee gives it
	Network      string // CAIP-2, or the word itself where it is unknown
	Asset        string // AssetKey
	Scheme       string
	Amount       string // atomic units
	TimeoutMS    int64  // max_timeout_seconds; negative when unknown
	NetworkKnown bool
}

type offers struct {
	list      []*terms
	ambiguous bool
}

type resource struct {
	address
	ambiguous bool
}

// address is what a URL says of a resource.
type address struct {
	url  string // as Resource gives it
	host string // name; empty when it has none
}

// settlement is what a settle object says.
type settlement struct {
	outcome
	ambiguous bool
}

// noSettlement and unclearSettlement are those of answers without a settle object.
var noSettlement, unclearSettlement = settlement{}, settlement{outcome: outcome{reason: unclear}}

// outcome is the answer's own part of an answer.
type outcome struct {
	success     bool   // settle.success is true
	refused     bool   // settle.success is there and not true
	settled     string // settle.amount; empty when absent or unreadable
	unreadable  bool   // settle.amount is there and cannot be read
	network     string // settle.network, canonical
	transaction string
	reason      reason
}

// reason says what a failure's reasons amount to.
type reason uint8

const (
	noReason reason = iota
	decline         // every reason given is a named decline
	unclear         // some reason is not
)

type named struct{ payees, hosts []string }

// Project reads from one event what it says about money. ok is false for events
// that say nothing about it, among them x402 events without one of the roles of
// the trace contract, section 9: no stage and no rule counts those. The fact
// keeps nothing of the line. in may be nil.
func Project(e event.Event, in *Interner) (f Fact, ok bool) {
	if len(e.Type) < len("x402.verify.ok") {
		return Fact{}, false
	}
	switch {
	case e.Type[0] == 'x' && e.HasRole:
		f.kind, f.side = x402(e.Type, e.Role)
		if f.kind == NoKind {
			return Fact{}, false
		}
		f.payment(e, in)
	case e.Type[0] == 'c':
		f.kind = circle(e.Type)
		if f.kind == NoKind {
			return Fact{}, false
		}
		f.side = Escrow
		f.escrow(e, in)
	default:
		return Fact{}, false
	}
	f.key = in.key(e.Key())
	return f, true
}

func x402(typ, role []byte) (Kind, Side) {
	var side Side
	switch string(role) {
	case "client":
		side = Client
	case "server":
		side = Server
	case "facilitator":
		side = Facilitator
	default:
		return NoKind, NoSide
	}
	var kind Kind
	switch string(typ) {
	case "x402.settle.failed":
		return SettleFailed, side
	case "x402.verify.failed":
		return VerifyFailed, side
	case "x402.payment.required":
		kind = Offer
	case "x402.payment.creating", "x402.payment.creation_failed":
		kind = Creating
	case "x402.payment.submitted":
		kind = Submitted
	case "x402.payment.requested":
		kind = Requested
	case "x402.payment.responded":
		kind = Responded
	case "x402.payment.failed":
		kind = PaymentFailed
	case "x402.verify.started", "x402.settle.started":
		kind = Started
	case "x402.verify.ok":
		kind = VerifyOK
	case "x402.settle.ok":
		kind = SettleOK
	case "x402.payment.canceled":
		kind = Canceled
	}
	if (kind < Started) != (side == Client) {
		return NoKind, NoSide
	}
	return kind, side
}

func circle(typ []byte) Kind {
	switch string(typ) {
	case "circle.contract.payment_created":
		return Deposit
	case "circle.contract.withdrawal", "circle.contract.refund", "circle.transaction.inbound.complete":
		return Disposition
	case "circle.transaction.outbound.complete", "circle.transaction.outbound.failed", "circle.transaction.inbound.failed":
		return Transfer
	}
	return NoKind
}

// The members that are read, by object. The first money of them are money facts
// or lead to them: repeated, or in another letter case, they make the event
// ambiguous. transaction is among them because it decides whether two answers
// are one settlement.
var (
	eventNames   = names([]string{"payload"}, 1)
	payloadNames = names([]string{"requirements", "accepts", "resource", "settle", "payment_required", "x402_version", "tool_name", "verify"}, 5)
	termsNames   = names([]string{"pay_to", "amount", "asset", "network", "scheme", "max_timeout_seconds"}, 5)
	urlNames     = names([]string{"url"}, 1)
	settleNames  = names([]string{"success", "transaction", "network", "amount", "error_reason"}, 4)
	freshNames   = names([]string{"accepts", "resource", "error"}, 2)
	verifyNames  = names([]string{"invalid_reason"}, 0)
)

const (
	inRequirements = iota
	inAccepts
	inResource
	inSettle
	inFresh
	inVersion
	inTool
	inVerify
	maxNames
)

type nameSet struct {
	list  []string
	money int
	// maybe has, by the length of a text in bytes, a bit for every name that
	// such a text may be or fold to.
	maybe [32]uint8
}

func names(list []string, money int) *nameSet {
	s := &nameSet{list: list, money: money}
	for i, name := range list {
		// Only s and k are folded to by letters beyond ASCII, which take two
		// and three bytes.
		most := len(name) + strings.Count(name, "s") + 2*strings.Count(name, "k")
		for n := len(name); n <= most; n++ {
			s.maybe[n] |= 1 << i
		}
	}
	return s
}

// read collects the named members of an object into v, the last copy of each.
// ambiguous is true when one of the money names is repeated or occurs in another
// letter case; doubt has a bit for every name of which that is true.
func (s *nameSet) read(n jsjson.Node, v *[maxNames]jsjson.Node) (ambiguous bool, doubt uint8) {
	for name, value := range n.Members() {
		if i, exact := s.index(name.Text()); exact {
			if v[i].Kind() != jsjson.Absent {
				doubt |= 1 << i
			}
			v[i] = value
		} else if i >= 0 {
			doubt |= 1 << i
		}
	}
	return doubt&(1<<s.money-1) != 0, doubt
}

// index is the name that text equals, or folds to; -1 when there is none. No two
// names of a set fold to one another.
func (s *nameSet) index(text []byte) (i int, exact bool) {
	if len(text) >= len(s.maybe) {
		return -1, false
	}
	for m := s.maybe[len(text)]; m != 0; m &= m - 1 {
		i := bits.TrailingZeros8(m)
		if string(text) == s.list[i] {
			return i, true
		}
		if foldsTo(text, s.list[i]) {
			return i, false
		}
	}
	return -1, false
}

// foldsTo reports whether two names are equal under Unicode simple case folding,
// where name is lower case ASCII. They may be equal.
func foldsTo(text []byte, name string) bool {
	switch {
	case len(text) < len(name):
		return false
	case len(text) > len(name):
		// A letter beyond ASCII that folds into it takes two or three bytes.
		return len(text) <= 3*len(name) && bytes.EqualFold(text, []byte(name))
	}
	for i := 0; i < len(name); i++ {
		if c := name[i]; text[i] != c && (text[i] != c-32 || c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}

// textOf is the text of a member; empty for every other kind, and empty text
// means absent (trace contract, section 9).
func textOf(n jsjson.Node) []byte { return n.Text() }

func (f *Fact) payment(e event.Event, in *Interner) {
	var root, v [maxNames]jsjson.Node
	twice, _ := eventNames.read(e.Root, &root)
	ambiguous, doubt := payloadNames.read(e.Payload, &v)
	f.ambiguous = twice || ambiguous
	f.version1 = v[inVersion].Float() == 1
	if text := textOf(v[inTool]); len(text) > 0 {
		f.tool = bounded(in.text(text))
	}
	if n := v[inRequirements]; n.Kind() == jsjson.Object {
		f.terms = in.parseTerms(n)
		f.ambiguous = f.ambiguous || f.terms.ambiguous
	}
	if n := v[inAccepts]; n.Kind() == jsjson.Array {
		f.offers = in.parseOffers(n)
		f.ambiguous = f.ambiguous || f.offers.ambiguous
	}
	if n := v[inResource]; n.Kind() == jsjson.Object {
		f.res = in.parseResource(n)
		f.ambiguous = f.ambiguous || f.res.ambiguous
	}
	if f.answers() {
		f.outcome(&v, doubt, in)
	}
	if f.ambiguous {
		f.named = everyName(e.Root, "payload")
	}
}

// answers reports whether the event says how a payment came out.
func (f *Fact) answers() bool {
	switch f.kind {
	case Responded, SettleFailed, VerifyFailed, PaymentFailed, SettleOK:
		return true
	}
	return false
}

func (f *Fact) outcome(v *[maxNames]jsjson.Node, doubt uint8, in *Interner) {
	s := &noSettlement
	if n := v[inSettle]; n.Kind() == jsjson.Object {
		s = in.parseSettlement(n)
	} else if f.kind == SettleFailed && n.Kind() != jsjson.Absent {
		s = &unclearSettlement
	}
	f.out = &s.outcome
	f.ambiguous = f.ambiguous || s.ambiguous
	if f.kind != VerifyFailed {
		return
	}
	out := *f.out // a copy: what is interned is shared
	f.out = &out
	if n := v[inFresh]; n.Kind() == jsjson.Object {
		var s [maxNames]jsjson.Node
		ambiguous, doubts := freshNames.read(n, &s)
		f.ambiguous = f.ambiguous || ambiguous
		if s[0].Kind() == jsjson.Array {
			f.ambiguous = f.ambiguous || in.parseOffers(s[0]).ambiguous
		}
		if s[1].Kind() == jsjson.Object {
			f.ambiguous = f.ambiguous || in.parseResource(s[1]).ambiguous
		}
		out.addReason(s[2], doubts>>2&1 != 0)
	}
	if n := v[inVerify]; n.Kind() == jsjson.Object {
		var s [maxNames]jsjson.Node
		_, doubts := verifyNames.read(n, &s)
		out.addReason(s[0], doubts&1 != 0)
	}
	if doubt>>inVerify&1 != 0 {
		out.reason = unclear
	}
}

func parseSettlement(n jsjson.Node, in *Interner) *settlement {
	out := &settlement{}
	var s [maxNames]jsjson.Node
	ambiguous, doubts := settleNames.read(n, &s)
	out.ambiguous = ambiguous
	out.success = s[0].Bool()
	out.refused = s[0].Kind() != jsjson.Absent && !out.success
	if t := textOf(s[1]); len(t) > 0 {
		out.transaction = transaction(t)
	}
	if t := textOf(s[2]); len(t) > 0 {
		out.network = in.network(t).id
	}
	out.settled, out.unreadable = amountOf(s[3], in)
	out.addReason(s[4], doubts>>4&1 != 0)
	return out
}

// addReason takes one reason into account. What is given twice is no reason to
// believe anything.
func (o *outcome) addReason(n jsjson.Node, doubtful bool) {
	switch text := textOf(n); {
	case doubtful, n.Kind() != jsjson.Absent && n.Kind() != jsjson.String:
		o.reason = unclear
	case len(text) == 0:
	case !Decline(string(text)):
		o.reason = unclear
	case o.reason == noReason:
		o.reason = decline
	}
}

// Decline reports whether the whole of a failure's reason is a named decline: a
// payment that was refused before money could move (guard contract, section 1,
// trustDefiniteFailures).
func Decline(reason string) bool {
	for i := 0; i < len(reason); i++ {
		if c := reason[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	switch {
	case reason == "invalid_transaction_state":
		return false
	case reason == "unsupported_scheme", reason == "unsupported_network":
		return true
	case len(reason) > len("invalid_") && strings.HasPrefix(reason, "invalid_"):
		return true
	}
	return strings.Contains(reason, "insufficient_funds") ||
		strings.Contains(reason, "insufficient_balance") ||
		strings.Contains(reason, "insufficient_allowance")
}

func parseTerms(n jsjson.Node, in *Interner) *terms {
	t := &terms{}
	t.TimeoutMS = -1
	var v [maxNames]jsjson.Node
	t.ambiguous, _ = termsNames.read(n, &v)
	if s := textOf(v[0]); len(s) > 0 {
		t.Payee = in.payee(s)
	}
	t.Amount, _ = amountOf(v[1], in)
	if s := textOf(v[3]); len(s) > 0 {
		n := in.network(s)
		t.Network, t.NetworkKnown = n.id, n.known
		if a := textOf(v[2]); len(a) > 0 {
			t.Asset = in.asset(n.id, a)
		}
	}
	if s := textOf(v[4]); len(s) > 0 {
		t.Scheme = bounded(in.text(s))
	}
	if v[5].Kind() == jsjson.Number {
		t.TimeoutMS = timeout(v[5].Float())
	}
	return t
}

// maxTimeout bounds what a seller may call a timeout, in seconds.
const maxTimeout = 1e9

// timeout is a max_timeout_seconds in milliseconds, negative when it makes no
// sense.
func timeout(seconds float64) int64 {
	if !(seconds >= 0) {
		return -1
	}
	return int64(math.Floor(min(seconds, maxTimeout) * 1000))
}

// amountOf reads an amount of atomic units, which must be text. Absent, null and
// empty text give no amount; anything else that is no amount is unreadable.
func amountOf(n jsjson.Node, in *Interner) (amount string, unreadable bool) {
	switch n.Kind() {
	case jsjson.Absent, jsjson.Null:
		return "", false
	case jsjson.String:
		text := n.Text()
		if isAmount(text) {
			return in.text(text), false
		}
		return "", len(text) > 0
	}
	return "", true
}

// maxOffers is how many different entries of an offer are read. No seller has
// that many; a line that does is not trusted with anything (it is ambiguous, so
// every payee it names counts and none of it can be summed).
const maxOffers = 1000

func parseOffers(n jsjson.Node, in *Interner) *offers {
	o := &offers{}
	var seen map[Terms]bool
	for entry := range n.Elements() {
		t := &unknownTerms
		if entry.Kind() == jsjson.Object {
			t = in.parseTerms(entry)
		}
		o.ambiguous = o.ambiguous || t.ambiguous
		// An entry that is there twice says nothing new.
		if len(o.list) < 8 {
			if slices.ContainsFunc(o.list, func(have *terms) bool { return have.Terms == t.Terms }) {
				continue
			}
		} else {
			if seen == nil {
				seen = make(map[Terms]bool)
				for _, have := range o.list {
					seen[have.Terms] = true
				}
			}
			if seen[t.Terms] {
				continue
			}
			seen[t.Terms] = true
		}
		if len(o.list) == maxOffers {
			o.ambiguous = true
			break
		}
		o.list = append(o.list, t)
	}
	return o
}

// unknownTerms stands for an entry of accepts that is no object. It must not be
// passed over: then the rest would seem to agree.
var unknownTerms = terms{Terms: Terms{TimeoutMS: -1}}

func parseResource(n jsjson.Node, in *Interner) *resource {
	r := &resource{}
	var v [maxNames]jsjson.Node
	r.ambiguous, _ = urlNames.read(n, &v)
	if s := textOf(v[0]); len(s) > 0 {
		r.address = in.url(s)
	}
	return r
}

// everyName collects the payees and hosts of every copy, in any letter case, of
// every member on the way to one: an ambiguous operation counts with all of them
// (guard contract, section 1, "Spent").
func everyName(root jsjson.Node, payload string) *named {
	n := &named{}
	for p := range folded(root, payload) {
		n.offer(p)
		for r := range folded(p, "requirements") {
			n.terms(r)
		}
		for r := range folded(p, "payment_required") {
			n.offer(r)
		}
	}
	n.payees = sorted(n.payees)
	n.hosts = sorted(n.hosts)
	return n
}

func (n *named) offer(o jsjson.Node) {
	for a := range folded(o, "accepts") {
		for entry := range a.Elements() {
			n.terms(entry)
		}
	}
	for r := range folded(o, "resource") {
		for u := range folded(r, "url") {
			if h, ok := Host(string(u.Text())); ok {
				n.hosts = append(n.hosts, hostName(h))
			}
		}
	}
}

func (n *named) terms(t jsjson.Node) {
	for p := range folded(t, "pay_to") {
		if text := p.Text(); len(text) > 0 {
			n.payees = append(n.payees, Payee(string(text)))
		}
	}
}

// folded yields the members of that name in any letter case.
func folded(n jsjson.Node, name string) func(func(jsjson.Node) bool) {
	return func(yield func(jsjson.Node) bool) {
		for key, value := range n.Members() {
			if foldsTo(key.Text(), name) && !yield(value) {
				return
			}
		}
	}
}

// sorted sorts names and drops repeats and the empty one.
func sorted(names []string) []string {
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > 0 && names[0] == "" {
		names = names[1:]
	}
	return names
}

// escrow reads the contract an escrow event is about (trace contract, section
// 10): the counterparty of a deal. Amounts there are in display units, so none
// is read.
func (f *Fact) escrow(e event.Event, in *Interner) {
	f.out = &outcome{}
	if t := textOf(e.Payload.Get("tx_hash")); len(t) > 0 {
		f.out.transaction = transaction(t)
	}
	address := textOf(e.Payload.Get("contract_address"))
	if len(address) == 0 {
		switch {
		case bytes.HasPrefix(e.Type, []byte("circle.transaction.inbound.")):
			address = textOf(e.Payload.Get("source_address"))
		case bytes.HasPrefix(e.Type, []byte("circle.transaction.outbound.")):
			address = textOf(e.Payload.Get("destination_address"))
		}
	}
	if len(address) > 0 {
		f.named = &named{payees: []string{in.payee(address)}}
	}
}

// Attestation reads what a recorder said when it attached itself to a buyer's
// client (trace contract, section 9). blind is true for a session that can never
// witness a settlement because its SDK has no response hook (section 12.9). ok
// is false for every other event.
func Attestation(e event.Event) (kind string, blind, ok bool) {
	partial := string(e.Type) == "trace.attach_partial"
	if !partial && string(e.Type) != "trace.attached" || string(e.Role) != "client" {
		return "", false, false
	}
	kind = bounded(string(e.Payload.Get("kind").Text()))
	if partial {
		for hook := range e.Payload.Get("missing").Elements() {
			// The hook may be named with the object it belongs to.
			name := hook.Text()
			name = name[bytes.LastIndexByte(name, '.')+1:]
			blind = blind || string(name) == "onPaymentResponse"
		}
	}
	return kind, blind, true
}
