package approval

import (
	"bytes"
	"encoding/json"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/canon"
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

// ParseHostedCall is [ParseCall] for callers that are the host: the envelope in
// the call is believed (approvals contract, section 4.9).
func ParseHostedCall(n jsjson.Node) (Call, error) {
	c, err := ParseCall(n)
	if err != nil {
		return Call{}, err
	}
	c.Host = ReadHost(n.Get("_meta")).Under(Host{Bound: object(n.Get("host_bound"))})
	c.Enveloped = false
	return c, nil
}

// ReadHost is the envelope of a host in the _meta of a request. Whether that
// host is trusted is for the caller to know; what is no envelope is ignored.
func ReadHost(meta jsjson.Node) Host {
	envelope := meta.Get("cubiczan")
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

// Error implements error.
func (r *Refusal) Error() string { return r.Code + ": " + r.Detail }

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
	panic("")
}

// Redact replaces every member of one of these names, at any depth, by a text
// that holds the hash of what stood there. The text it gives is canonical under
// [canon.JCS].
func Redact(arguments json.RawMessage, names []string) (json.RawMessage, error) {
	panic("")
}

func overlay(under, over json.RawMessage) json.RawMessage {
	panic("")
}
