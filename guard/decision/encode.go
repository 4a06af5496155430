package decision

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/canon"
)

// kinds makes an empty body of each type of line, by pointer.
var kinds = map[string]func() Body{
	"policy": func() Body { return &Policy{} }, "opened": func() Body { return &Opened{} },
	"decided": func() Body { return &Decided{} }, "approval_used": func() Body { return &ApprovalUsed{} },
	"allowed": func() Body { return &Allowed{} }, "blocked": func() Body { return &Blocked{} },
	"held": func() Body { return &Held{} }, "released": func() Body { return &Released{} },
	"frozen": func() Body { return &Frozen{} }, "unfrozen": func() Body { return &Unfrozen{} },
	"resolved": func() Body { return &Resolved{} }, "unresolved": func() Body { return &Unresolved{} },
	"baseline": func() Body { return &Baseline{} }, "seen": func() Body { return &Seen{} },
	"rewritten": func() Body { return &Rewritten{} }, "acknowledged": func() Body { return &Acknowledged{} },
	"denied": func() Body { return &Denied{} }, "authorized": func() Body { return &Authorized{} },
	"executed":  func() Body { return &Executed{} },
	"recovered": func() Body { return &Recovered{} }, "adopted": func() Body { return &Adopted{} },
}

// envelope are the members every line may have beside those of its type.
var envelope = []string{"actor", "at", "more", "prev", "seq", "sig", "type"}

// maxLine is the length of a line, without its newline, beyond which it is taken
// for damage and never written. A line of a baseline holds every run there is.
const maxLine = 64 << 20

// line is one line that was read or is about to be written.
type line struct {
	Envelope
	body Body   // by pointer; nil for a verdict too old for its content to matter
	size int    // bytes, with the newline
	act  []byte // of a signed act: its own members, canonical, without signature and key
}

// normal copies a body, by pointer, in the form it has after it was written and
// read again: no nil lists, instants in whole milliseconds, what a line does not
// hold left out.
func normal(body Body) (Body, error) {
	v := reflect.ValueOf(body)
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil, errors.New("there is nothing to write")
		}
		v = v.Elem()
	}
	fresh, ok := kinds[body.kind()]
	if !ok {
		return nil, fmt.Errorf("%q is no type of line", body.kind())
	}
	out := fresh()
	reflect.ValueOf(out).Elem().Set(v)
	switch b := out.(type) {
	case *Policy:
		all := make([]Operator, len(b.Operators))
		for i, o := range b.Operators {
			all[i] = Operator{Name: o.Name, PublicKey: o.PublicKey}
		}
		b.Operators = all
	case *Opened:
		b.Intent.Names, b.Facts, b.Reasons = list(b.Intent.Names), list(b.Facts), list(b.Reasons)
		b.ExpiresAt = whole(b.ExpiresAt)
	case *Allowed:
		b.Intent.Names = list(b.Intent.Names)
	case *Blocked:
		b.Intent.Names = list(b.Intent.Names)
	case *Held:
		b.Intent.Names, b.ExpiresAt = list(b.Intent.Names), whole(b.ExpiresAt)
	case *Authorized:
		b.ExpiresAt = whole(b.ExpiresAt)
	case *Baseline:
		b.Runs, b.Through = list(b.Runs), whole(b.Through)
	case *Seen:
		b.Runs = list(b.Runs)
	}
	if err := valid(out); err != nil {
		return nil, err
	}
	return out, nil
}

func list[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

// valid holds the words of a body to those that have a meaning. A word that has
// none would be a decision nobody can carry out.
func valid(body Body) error {
	word := func(member, got string, of ...string) error {
		for _, w := range of {
			if got == w {
				return nil
			}
		}
		return fmt.Errorf("%s %q is not known", member, cut(got))
	}
	switch b := body.(type) {
	case *Opened:
		if b.ReviewID == "" {
			return errors.New("the review has no id")
		}
		if (b.Kind == KindToolCall) != (b.Call != nil) {
			return errors.New("a review of a tool call, and no other, holds the call")
		}
	case *Decided:
		return word("decision", b.Decision, Approved, Rejected, Revoked, Reopened)
	case *Held:
		if b.HoldID == "" {
			return errors.New("the hold has no id")
		}
	case *Denied:
		if b.ReasonCode == "" {
			return errors.New("the refusal has no reason")
		}
	case *Authorized:
		if b.ReceiptID == "" {
			return errors.New("the receipt has no id")
		}
	case *Executed:
		if b.ReceiptID == "" {
			return errors.New("the receipt has no id")
		}
	case *Released:
		return word("why", b.Why, WhyReleased, WhyPaid, WhyExpired)
	case *Frozen:
		if b.Scope == "" {
			return errors.New("the freeze has no scope")
		}
	case *Resolved:
		return word("outcome", b.Outcome, Settled, Failed)
	case *Rewritten:
		return word("how", b.How, Shrunk, Replaced, Edited, Removed)
	}
	return nil
}

// cut keeps text of a damaged line from filling an error.
func cut(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "..."
	}
	return s
}

// members are the members of a body with its type, as JSON.
func members(body Body) (map[string]json.RawMessage, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return nil, err
	}
	m := map[string]json.RawMessage{}
	if err := json.Unmarshal(buf.Bytes(), &m); err != nil {
		return nil, err
	}
	for _, name := range envelope {
		if _, taken := m[name]; taken {
			return nil, fmt.Errorf("a %s line cannot have a member %s of its own", body.kind(), name)
		}
	}
	m["type"] = quoted(body.kind())
	return m, nil
}

// quoted is an ASCII word as JSON.
func quoted(word string) json.RawMessage { return strconv.AppendQuoteToASCII(nil, word) }

// encode gives the line of an envelope and a normal body, with its newline, and
// fills in its sig (guard contract, section 7).
func encode(e *Envelope, body Body) ([]byte, error) {
	m, err := members(body)
	if err != nil {
		return nil, err
	}
	m["seq"] = strconv.AppendInt(nil, e.Seq, 10)
	m["at"] = quoted(stamp(e.At))
	if e.Actor != "" {
		if m["actor"], err = canon.Marshal(e.Actor); err != nil {
			return nil, err
		}
	}
	if e.More != 0 {
		m["more"] = strconv.AppendInt(nil, e.More, 10)
	}
	entry, err := canon.Marshal(m)
	if err != nil {
		return nil, err
	}
	e.Sig = chain(entry, e.Prev)
	m["prev"], m["sig"] = quoted(e.Prev), quoted(e.Sig)
	text, err := canon.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(text) > maxLine {
		return nil, fmt.Errorf("the line has %d bytes, and at most %d can be written", len(text), maxLine)
	}
	return append(text, '\n'), nil
}

// chain is the signature of a canonical entry behind prev, which is hexadecimal
// or empty (approvals contract, section 1.2).
func chain(entry []byte, prev string) string {
	h := sha256.New()
	h.Write([]byte(`{"entry":`))
	h.Write(entry)
	h.Write([]byte(`,"prev_sig":"` + prev + `"}`))
	var sum [sha256.Size]byte
	return hex.EncodeToString(h.Sum(sum[:0]))
}

// reader reads lines. It uses its memory again for each.
type reader struct {
	doc         jsjson.Doc
	text, entry []byte
	old         time.Time // verdicts before this are not decoded
}

// fault is why a line is none of ours: one sentence.
type fault struct {
	reason  string
	foreign bool // it has not the members of a line at all
}

func (f *fault) Error() string { return f.reason }

func faultf(format string, args ...any) error { return &fault{reason: fmt.Sprintf(format, args...)} }

// read reads one line without its newline. It checks everything but how the line
// follows the one before. The error is a *fault. Nothing of src is kept.
func (r *reader) read(src []byte) (*line, error) {
	if len(src) > maxLine {
		return nil, faultf("it has %d bytes, more than a line can have", len(src))
	}
	if err := r.doc.Parse(src); err != nil {
		return nil, faultf("it is not JSON: %s", err)
	}
	root := r.doc.Root()
	if root.Kind() != jsjson.Object {
		return nil, &fault{reason: "it is no JSON object", foreign: true}
	}
	if absent(root, "seq") && absent(root, "prev") && absent(root, "sig") {
		return nil, &fault{reason: "it has none of the members seq, prev and sig", foreign: true}
	}
	var err error
	r.text, err = canon.Append(r.text[:0], root, canon.JCS)
	if err != nil {
		return nil, faultf("it has no canonical form: %s", err)
	}
	if !bytes.Equal(r.text, src) {
		return nil, faultf("it is not written in its canonical form")
	}
	var e envelopeNodes
	// The text is canonical, so that leaving two members out keeps it so.
	r.entry = append(r.entry[:0], '{')
	for name, v := range root.Members() {
		if e.take(name.Text(), v) {
			continue
		}
		if len(r.entry) > 1 {
			r.entry = append(r.entry, ',')
		}
		r.entry = append(append(append(r.entry, name.Raw()...), ':'), v.Raw()...)
	}
	r.entry = append(r.entry, '}')
	l := &line{size: len(src) + 1}
	if err := l.envelope(&e); err != nil {
		return nil, err
	}
	if chain(r.entry, l.Prev) != l.Sig {
		return nil, faultf("its sig is not that of its content")
	}
	return l, r.body(l, src, root)
}

func absent(n jsjson.Node, name string) bool { return n.Get(name).Kind() == jsjson.Absent }

// envelopeNodes are the members every line has.
type envelopeNodes struct{ seq, at, kind, actor, more, prev, sig jsjson.Node }

// take keeps a member of the envelope, and reports whether it is one that the sig
// is not over.
func (e *envelopeNodes) take(name []byte, v jsjson.Node) bool {
	switch string(name) {
	case "seq":
		e.seq = v
	case "at":
		e.at = v
	case "type":
		e.kind = v
	case "actor":
		e.actor = v
	case "more":
		e.more = v
	case "prev":
		e.prev = v
		return true
	case "sig":
		e.sig = v
		return true
	}
	return false
}

// envelope reads the members every line has.
func (l *line) envelope(e *envelopeNodes) error {
	text := func(v jsjson.Node) (string, bool) { return string(v.Text()), v.Kind() == jsjson.String }
	number := func(v jsjson.Node) (int64, bool) {
		n, err := strconv.ParseInt(string(v.Raw()), 10, 64)
		return n, err == nil && v.Kind() == jsjson.Number
	}
	var ok bool
	if l.Seq, ok = number(e.seq); !ok || l.Seq < 1 {
		return faultf("its seq is no line number")
	}
	at, _ := text(e.at)
	var err error
	if l.At, err = time.Parse(stampForm, at); err != nil || stamp(l.At) != at {
		return faultf("its at is no instant in UTC with milliseconds")
	}
	if l.Type, ok = text(e.kind); !ok {
		return faultf("it has no type")
	}
	if l.Actor, ok = text(e.actor); e.actor.Kind() != jsjson.Absent && (!ok || l.Actor == "") {
		return faultf("its actor is no name")
	}
	if l.More, ok = number(e.more); e.more.Kind() != jsjson.Absent && (!ok || l.More < 1) {
		return faultf("its more is no number of lines")
	}
	if l.Prev, ok = text(e.prev); !ok || !hexOrEmpty(l.Prev) {
		return faultf("its prev is no signature")
	}
	if l.Sig, ok = text(e.sig); !ok || l.Sig == "" || !hexOrEmpty(l.Sig) {
		return faultf("its sig is no signature")
	}
	return nil
}

func hexOrEmpty(s string) bool {
	if s == "" {
		return true
	}
	if len(s) != 2*sha256.Size {
		return false
	}
	for _, c := range []byte(s) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// body reads the members of the line's type, which must be exactly those.
func (r *reader) body(l *line, src []byte, root jsjson.Node) error {
	fresh, ok := kinds[l.Type]
	if !ok {
		return faultf("its type %q is not known to this version", cut(l.Type))
	}
	if name, ok := shapes[l.Type].check(root); !ok {
		return faultf("its member %s is not as in a %s line", canon.Step(cut(name)), l.Type)
	}
	body := fresh()
	switch body.(type) {
	case *Allowed, *Blocked:
		// By far the most lines are verdicts, and all the state keeps of them is
		// whether one was written within the last minute.
		if l.At.Before(r.old) {
			return nil
		}
	}
	if err := json.Unmarshal(src, body); err != nil {
		return faultf("its members are not those of a %s line: %s", l.Type, err)
	}
	if err := valid(body); err != nil {
		return faultf("%s", err)
	}
	l.body = body
	if s := signed(body); s != nil && s.Signature != "" {
		var err error
		if l.act, err = signedPart(root); err != nil {
			return faultf("its signed members have no canonical form: %s", err)
		}
	}
	return nil
}

// signed is the signature of a body that can have one.
func signed(body Body) *Signed {
	switch b := body.(type) {
	case *Decided:
		return &b.Signed
	case *Unfrozen:
		return &b.Signed
	case *Resolved:
		return &b.Signed
	case *Unresolved:
		return &b.Signed
	case *Baseline:
		return &b.Signed
	case *Acknowledged:
		return &b.Signed
	case *Recovered:
		return &b.Signed
	case *Adopted:
		return &b.Signed
	}
	return nil
}

// entry is a body on its way into the log, and who caused it.
type entry struct {
	actor string
	body  Body
}

// compose makes the lines of one write behind the line seq, whose sig is prev. All
// but the last say how many follow, so that a write that was cut short, even
// between two of its lines, is not half believed.
func compose(seq int64, prev string, at time.Time, entries []entry) (text []byte, lines []*line, err error) {
	at = whole(at)
	var rd reader
	for i, in := range entries {
		body, err := normal(in.body)
		if err != nil {
			return nil, nil, err
		}
		e := Envelope{Seq: seq + 1 + int64(i), At: at, Type: body.kind(), Actor: in.actor, More: int64(len(entries) - 1 - i), Prev: prev}
		raw, err := encode(&e, body)
		if err != nil {
			return nil, nil, err
		}
		l, err := rd.read(raw[:len(raw)-1])
		if err != nil {
			return nil, nil, fmt.Errorf("a %s line cannot be read back: %w", e.Type, err)
		}
		// What is believed from now on is what others will read.
		if l.Actor != in.actor || !reflect.DeepEqual(l.body, body) {
			return nil, nil, fmt.Errorf("a %s line would not say exactly what was meant (text that is not UTF-8?)", e.Type)
		}
		text, lines, prev = append(text, raw...), append(lines, l), e.Sig
	}
	return text, lines, nil
}

// encodedID begins an id that JSON text cannot hold as it is.
const encodedID = "wtf-8:"

// EncodeID gives an id of the trace, which is WTF-8, as text that JSON can hold:
// itself where that is possible. No two ids share a form.
func EncodeID(wtf8 string) string {
	if utf8.ValidString(wtf8) && !strings.HasPrefix(wtf8, encodedID) {
		return wtf8
	}
	return encodedID + hex.EncodeToString([]byte(wtf8))
}

// DecodeID gives the id that EncodeID made text of.
func DecodeID(text string) string {
	if rest, ok := strings.CutPrefix(text, encodedID); ok {
		if b, err := hex.DecodeString(rest); err == nil {
			return string(b)
		}
	}
	return text
}

// lenient reads what can be read of a line that does not verify; nil when it is
// nothing of ours. now is the time of one that does not tell its own: what it
// restricts is then not over yet.
func lenient(raw []byte, now time.Time) *line {
	var head struct {
		Seq   int64  `json:"seq"`
		At    string `json:"at"`
		Type  string `json:"type"`
		Actor string `json:"actor"`
		Sig   string `json:"sig"`
	}
	if json.Unmarshal(raw, &head) != nil {
		return nil
	}
	fresh, ok := kinds[head.Type]
	if !ok || head.Seq < 1 || head.Sig == "" {
		return nil
	}
	l := &line{Envelope: Envelope{Seq: head.Seq, Type: head.Type, Actor: head.Actor, Sig: head.Sig}, body: fresh(), size: len(raw) + 1}
	var err error
	if l.At, err = time.Parse(stampForm, head.At); err != nil {
		l.At = now
	}
	if json.Unmarshal(raw, l.body) != nil || valid(l.body) != nil {
		return nil
	}
	if s := signed(l.body); s != nil && s.Signature != "" {
		var doc jsjson.Doc
		if doc.Parse(raw) == nil {
			l.act, _ = signedPart(doc.Root()) // without it the signature is nobody's
		}
	}
	return l
}

// Hash is the content hash of a body's own members as its line has them, signature
// included: what a receipt names its decision by, which holds wherever in the log
// the line stands (approvals contract, section 9.4).
func Hash(body Body) (string, error) {
	full, err := normal(body)
	if err != nil {
		return "", err
	}
	m, err := members(full)
	if err != nil {
		return "", err
	}
	text, err := canon.Marshal(m)
	if err != nil {
		return "", err
	}
	return canon.Sum(text), nil
}

// signedPart is what the signature of a line is over, of the line itself.
func signedPart(root jsjson.Node) ([]byte, error) {
	return canon.Append(nil, root, canon.JCS, "actor", "at", "more", "prev", "seq", "sig", "signature", "key")
}
