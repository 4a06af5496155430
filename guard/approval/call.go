package approval

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// Call is a tool call somebody wants approved.
type Call struct {
	Tool     string
	Resource string
	// Arguments is what the model passes, as it came; nil when it passes nothing,
	// which is not the same as null.
	Arguments json.RawMessage
	// Host is what the host that runs the model has set.
	Host Host
	// Enveloped is set when the caller put an envelope of the host into the call
	// itself. Whoever calls is not the host: nothing passes (approvals contract,
	// section 9.9).
	Enveloped bool
}

// Host is what the envelope of a trusted host holds: raw JSON objects, nil when
// there is none (approvals contract, section 4.9).
type Host struct {
	Bound     json.RawMessage // arguments the model may not choose
	Principal json.RawMessage // for whom the model acts
}

var (
	callKeys     = []string{"tool", "resource", "arguments", "host_bound", "_meta"}
	callRequired = []string{"tool", "resource"}
)

// ParseCall reads a call as a tool of this server gets it. It is as strict as
// [ParseAction]. An envelope in it sets Enveloped and is not read. The error is a
// *[Fault].
func ParseCall(n jsjson.Node) (Call, error) {
	var c Call
	err := members(n, callKeys, callRequired, func(key string, v jsjson.Node) (err error) {
		switch key {
		case "tool":
			c.Tool, err = text(v)
		case "resource":
			c.Resource, err = text(v)
		case "arguments":
			c.Arguments = bytes.Clone(v.Raw())
		case "host_bound", "_meta":
			c.Enveloped = true
		}
		return err
	})
	if err != nil {
		return Call{}, err
	}
	return c, nil
}

// ReadHost is the envelope of a host in the _meta of a request. Whether that
// host is trusted is for the caller to know; what is no envelope is ignored. One
// that can be read in two ways binds nothing, and calls under it are ambiguous.
func ReadHost(meta jsjson.Node) Host {
	envelope, copies, _ := meta.Find("cubiczan")
	if copies == 0 {
		return Host{}
	}
	if _, err := canon.Append(nil, envelope, canon.Lexeme); err != nil || copies > 1 {
		return Host{Bound: bytes.Clone(meta.Raw())} // it has no canonical form, which [Call.Bind] refuses
	}
	return Host{Bound: object(envelope.Get("host_bound")), Principal: object(envelope.Get("principal"))}
}

// HostBound is the envelope of a host that was configured with fixed arguments.
func HostBound(fixed map[string]string) Host {
	if len(fixed) == 0 {
		return Host{}
	}
	raw, err := json.Marshal(fixed)
	if err != nil {
		return Host{} // strings always marshal
	}
	return Host{Bound: raw}
}

// Under is h with what over binds laid over it.
func (h Host) Under(over Host) Host {
	if over.Principal != nil {
		h.Principal = over.Principal
	}
	switch {
	case over.Bound == nil:
	case h.Bound == nil:
		h.Bound = over.Bound
	default:
		h.Bound = overlay(h.Bound, over.Bound)
	}
	return h
}

// object is the text of an object, and nil for anything else.
func object(n jsjson.Node) json.RawMessage {
	if n.Kind() != jsjson.Object {
		return nil
	}
	return bytes.Clone(n.Raw())
}

// Refusal is why a call is denied.
type Refusal struct {
	Code   string // one of the Code constants
	Detail string // lower case, clean text
}

// Bound are the arguments a call runs with: the model's, and over them the
// host's.
type Bound struct {
	Keys      []string        // that the host has set or has to set, in UTF-16 order
	Arguments json.RawMessage // canonical under [canon.Lexeme], so that no number's spelling is lost
}

// Hash is the hash of the arguments. Receipts hold the one under [canon.JCS].
func (b Bound) Hash(r canon.Rule) (string, error) { return canon.HashText(b.Arguments, r) }

// Bind merges what the model and its host pass (approvals contract, section 4.9).
func (c Call) Bind(p *ToolPolicy) (Bound, *Refusal) {
	if p == nil {
		return Bound{}, ambiguous("there is no policy")
	}
	model, refused := sourced("arguments", c.Arguments)
	if refused != nil {
		return Bound{}, refused
	}
	declared := p.HostBoundFields[c.Tool]
	host, refused := c.Host.values(slices.Contains(declared, tenantField))
	if refused != nil {
		return Bound{}, refused
	}
	for _, key := range declared {
		v, ok := host[key]
		if !ok || v.Kind() == jsjson.Null || v.Kind() == jsjson.String && Ambiguous(string(v.Text())) {
			return Bound{}, ambiguous("the host has to set the argument %s, and has set nothing that names one thing", plain.Quote(key, 40))
		}
	}
	keys := slices.Collect(maps.Keys(host))
	slices.SortFunc(keys, func(a, b string) int { return jsjson.Compare([]byte(a), []byte(b)) })
	if len(keys) == 0 {
		return merge(model, nil, nil)
	}
	if model.Kind() != jsjson.Object {
		return Bound{}, ambiguous("the host sets arguments by name, and the model passes %s", model.Kind())
	}
	for _, key := range keys {
		if v := model.Get(key); v.Kind() != jsjson.Absent {
			if refused := agree(key, v, host[key]); refused != nil {
				return Bound{}, refused
			}
		}
	}
	return merge(model, keys, host)
}

// tenantField is the argument a host may set by saying for whom the model acts.
const tenantField = "tenant_id"

// values are what a host sets, by name. tenant: one of the names is to be that of
// the tenant.
func (h Host) values(tenant bool) (map[string]jsjson.Node, *Refusal) {
	set := map[string]jsjson.Node{}
	if h.Bound != nil {
		n, refused := sourced("what the host sets", h.Bound)
		if refused != nil {
			return nil, refused
		}
		for name, v := range n.Members() {
			set[string(name.Text())] = v
		}
	}
	if _, ok := set[tenantField]; ok || !tenant || h.Principal == nil {
		return set, nil
	}
	principal, refused := sourced("the principal of the host", h.Principal)
	if refused != nil {
		return nil, refused
	}
	for _, name := range []string{"orgId", "tenant", tenantField} {
		if v := principal.Get(name); v.Kind() == jsjson.String && !Ambiguous(string(v.Text())) {
			set[tenantField] = v
			break
		}
	}
	return set, nil
}

// sourced reads raw JSON that has a canonical form.
func sourced(what string, raw json.RawMessage) (jsjson.Node, *Refusal) {
	if raw == nil {
		return jsjson.Node{}, ambiguous("%s: there are none", what)
	}
	var doc jsjson.Doc
	if err := doc.Parse(raw); err != nil {
		return jsjson.Node{}, ambiguous("%s: %v", what, err)
	}
	if _, err := canon.Append(nil, doc.Root(), canon.Lexeme); err != nil {
		return jsjson.Node{}, ambiguous("%s: %v", what, err)
	}
	return doc.Root(), nil
}

// exact refuses a call with a number that its hash does not hold to the last digit.
func (c Call) exact() *Refusal {
	for _, raw := range []json.RawMessage{c.Arguments, c.Host.Bound} {
		var doc jsjson.Doc
		if raw == nil || doc.Parse(raw) != nil {
			continue // [Call.Bind] has read them
		}
		if number := rounded(doc.Root()); number != "" {
			return ambiguous("arguments: %s has more digits than a double keeps; write it as text", plain.Quote(number, 40))
		}
	}
	return nil
}

// rounded is a number whose canonical form has another value, "" when there is none.
// Its hash would be that of its neighbours, and a person would be shown one of them:
// what makes the call may well read every digit.
func rounded(n jsjson.Node) string {
	switch n.Kind() {
	case jsjson.Number:
		if digits, exponent := scientific(string(n.Raw())); digits != "" {
			d, e := scientific(string(jsjson.AppendNumber(nil, n.Float())))
			if d != digits || e != exponent {
				return string(n.Raw())
			}
		}
	case jsjson.Array:
		for v := range n.Elements() {
			if number := rounded(v); number != "" {
				return number
			}
		}
	case jsjson.Object:
		for _, v := range n.Members() {
			if number := rounded(v); number != "" {
				return number
			}
		}
	}
	return ""
}

// scientific is the size of a JSON number as its digits, without zeros at either end,
// behind a point, and a power of ten; "" for zero.
func scientific(number string) (digits string, exponent int) {
	mantissa, power, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(number, "-")), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "", 0
	}
	exponent, err := strconv.Atoi(cmp.Or(power, "0"))
	if err != nil {
		return number, 0 // like no number that a double has
	}
	exponent += len(digits) - len(fraction)
	return strings.TrimRight(digits, "0"), exponent
}

// agree holds what the model passes under a name to what the host sets. They are
// equal when their hashes would be.
func agree(key string, model, host jsjson.Node) *Refusal {
	a, err := canon.Hash(model, canon.JCS)
	if err != nil {
		return ambiguous("the argument %s: %v", plain.Quote(key, 40), err)
	}
	b, err := canon.Hash(host, canon.JCS)
	if err != nil {
		return ambiguous("what the host sets as %s: %v", plain.Quote(key, 40), err)
	}
	if a != b {
		return &Refusal{CodeHostBoundOverride, "the argument " + plain.Quote(key, 40) + " is the host's, and the model passes another value"}
	}
	return nil
}

// merge lays the host's values over the model's arguments.
func merge(model jsjson.Node, keys []string, host map[string]jsjson.Node) (Bound, *Refusal) {
	raw := model.Raw()
	if len(keys) > 0 {
		raw = []byte{'{'}
		for name, v := range model.Members() {
			if _, ok := host[string(name.Text())]; !ok {
				raw = appendMember(raw, name.Raw(), v.Raw())
			}
		}
		for _, key := range keys {
			raw = appendMember(raw, jsjson.AppendString(nil, []byte(key)), host[key].Raw())
		}
		raw = append(raw, '}')
	}
	text, err := canon.Text(raw, canon.Lexeme)
	if err != nil {
		return Bound{}, ambiguous("arguments: %v", err)
	}
	if keys == nil {
		keys = []string{}
	}
	return Bound{Keys: keys, Arguments: text}, nil
}

// appendMember appends a member to an object that is open.
func appendMember(dst, name, value []byte) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	dst = append(append(dst, name...), ':')
	return append(dst, value...)
}

// overlay is one object laid over another. A name that stands twice in either
// still does: that is for the reader of the result to refuse.
func overlay(under, over json.RawMessage) json.RawMessage {
	var a, b jsjson.Doc
	if a.Parse(under) != nil || b.Parse(over) != nil {
		return over // neither happens: both were read as objects
	}
	raw := []byte{'{'}
	for name, v := range a.Root().Members() {
		if b.Root().Get(string(name.Text())).Kind() == jsjson.Absent {
			raw = appendMember(raw, name.Raw(), v.Raw())
		}
	}
	for name, v := range b.Root().Members() {
		raw = appendMember(raw, name.Raw(), v.Raw())
	}
	return append(raw, '}')
}

func ambiguous(format string, args ...any) *Refusal {
	return &Refusal{CodeAmbiguous, plain.Clean(fmt.Sprintf(format, args...), plain.Detail)}
}

// Redact replaces every member of one of these names, at any depth, by a text
// that holds the hash of what stood there. The text it gives is canonical under
// [canon.JCS]. The error is a *[canon.Error].
func Redact(arguments json.RawMessage, names []string) (json.RawMessage, error) {
	var doc jsjson.Doc
	if err := doc.Parse(arguments); err != nil {
		return nil, &canon.Error{Reason: canon.NotJSON, Err: err}
	}
	raw, err := redact(nil, doc.Root(), names)
	if err != nil {
		return nil, err
	}
	return canon.Text(raw, canon.JCS)
}

func redact(dst []byte, n jsjson.Node, names []string) (_ []byte, err error) {
	switch n.Kind() {
	case jsjson.Object:
		dst = append(dst, '{')
		for name, v := range n.Members() {
			dst = appendMember(dst, name.Raw(), nil)
			if !slices.Contains(names, string(name.Text())) {
				if dst, err = redact(dst, v, names); err != nil {
					return nil, err
				}
				continue
			}
			hash, err := canon.Hash(v, canon.JCS)
			if err != nil {
				return nil, err
			}
			dst = append(dst, `"sha256:`+hash+`"`...)
		}
		return append(dst, '}'), nil
	case jsjson.Array:
		dst = append(dst, '[')
		for v := range n.Elements() {
			if dst[len(dst)-1] != '[' {
				dst = append(dst, ',')
			}
			if dst, err = redact(dst, v, names); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	}
	return append(dst, n.Raw()...), nil
}
