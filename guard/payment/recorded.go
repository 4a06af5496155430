package payment

import (
	"bytes"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest/event"
)

// Read is event.Decode and Project in one: what a line is, and when money is true,
// what it says about money. With an Interner most lines are read without a tape;
// the events of those have neither Payload nor Root.
//
// That short way is for lines of the shape the recorder of purchases gives them
// (trace contract, sections 3 and 9): an envelope and a payload with the known
// members only, each once and in the recorder's order. Whole objects in the
// payload are looked up by their bytes, and what is met for the first time is
// parsed and read by the functions that Project uses. So whatever is strange in
// a line either stands outside the shape or inside an object that was parsed;
// and a line that is outside it, or in doubt, is read the long way.
func Read(doc *jsjson.Doc, line []byte, in *Interner) (e event.Event, f Fact, money bool, fault event.Fault) {
	if in != nil {
		var payload []byte
		var ok bool
		if e, payload, ok = event.Recorded(line); ok && f.recorded(&e, payload, in) {
			return e, f, f.kind != NoKind, ""
		}
	}
	if e, fault = event.Decode(doc, line); fault != "" {
		return e, Fact{}, false, fault
	}
	f, money = Project(e, in)
	return e, f, money, ""
}

// recorded reads a payload, and reports whether it was of the known shape and
// leaves nothing in doubt. Only then is the fact good, and the payload sound.
func (f *Fact) recorded(e *event.Event, payload []byte, in *Interner) bool {
	*f = Fact{}
	c := jsjson.Cursor(payload)
	if len(e.Type) == 0 || e.Type[0] != 'x' {
		return false // other adapters' events, whose payloads have other shapes
	}
	if f.kind, f.side = x402(e.Type, e.Role); f.kind == NoKind {
		_, c = known(c, "{}", in, &in.objects, isObject)
		return c != nil && len(c) == 0
	}
	if f.kind == VerifyFailed {
		return false // its reasons stand in several places
	}
	rest := c.Take(`{"x402_version":2`)
	if rest == nil {
		rest = c.Take(`{"x402_version":1`)
		f.version1 = true
	}
	c = rest
	if _, rest := c.Text(`,"error":"`); rest != nil {
		c = rest
	}
	if rest := c.Take(`,"resource":`); rest != nil {
		f.res, c = known(rest, "{}", in, &in.resources, parseResource)
	}
	if rest := c.Take(`,"requirements":`); rest != nil {
		f.terms, c = known(rest, "{}", in, &in.terms, parseTerms)
	} else if rest := c.Take(`,"accepts":`); rest != nil {
		f.offers, c = known(rest, "[]", in, &in.offers, parseOffers)
	}
	s := &noSettlement
	if rest := c.Take(`,"settle":`); rest != nil {
		s, c = known(rest, "{}", in, &in.settlements, parseSettlement)
	} else if rest := c.Take(`,"verify":`); rest != nil {
		_, c = known(rest, "{}", in, &in.objects, isObject)
	}
	if text, rest := c.Text(`,"tool_name":"`); len(text) > 0 {
		f.tool = bounded(in.text(text))
		c = rest
	}
	switch {
	case string(c) != "}":
		return false // another shape
	case f.res != nil && f.res.ambiguous, f.terms != nil && f.terms.ambiguous, f.offers != nil && f.offers.ambiguous, s.ambiguous:
		return false // in doubt
	}
	if f.answers() {
		f.out = &s.outcome
	}
	f.key = in.key(e.Key())
	return true
}

func isObject(jsjson.Node, *Interner) bool { return true }

// known takes one object or array off the front of c and gives what read makes of
// it, or made of the same bytes before; zero and nil when there is none, or one
// with another of its kind inside. Where a value that begins with a bracket ends
// does not depend on what stands behind it: if the bytes up to the first closing
// bracket are one JSON value, they are the value that stands here.
func known[V any](c jsjson.Cursor, brackets string, in *Interner, m *memo[V], read func(jsjson.Node, *Interner) V) (v V, rest jsjson.Cursor) {
	n := bytes.IndexByte(c, brackets[1]) + 1
	if n == 0 || n > maxCached || c[0] != brackets[0] {
		return v, nil
	}
	at, ok := m.find(c[:n])
	if !ok {
		if in.doc.Parse(c[:n]) != nil {
			at.forget()
			return v, nil
		}
		at.value = read(in.doc.Root(), in)
	}
	return at.value, c[n:]
}
