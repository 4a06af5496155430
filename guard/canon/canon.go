package canon

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"unicode/utf8"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// Append appends the canonical text of a value (approvals contract, section
// 1.1). without names members of the value itself, not of what is inside it,
// that are left out: a signature is never part of what it signs (section 1.2).
// The error is an *[Error], and dst then comes back as it was.
//
// The text of a text is itself under [Lexeme] and [Float]. Under [JCS] it may be
// refused: 1e20 is a number there, yet its form is an integer that is too large.
func Append(dst []byte, n jsjson.Node, r Rule, without ...string) ([]byte, error) {
	w := writer{dst: dst, rule: r, without: without}
	return w.write(n)
}

// Hash is the content hash of a value: the SHA-256 of its canonical text in
// lower case hexadecimal (approvals contract, section 1.2). without is as for
// [Append].
func Hash(n jsjson.Node, r Rule, without ...string) (string, error) {
	text, err := Append(nil, n, r, without...)
	if err != nil {
		return "", err
	}
	return Sum(text), nil
}

// Text is the canonical text of a source, which must be one JSON value.
func Text(raw []byte, r Rule) ([]byte, error) {
	var doc jsjson.Doc
	if err := doc.Parse(raw); err != nil {
		return nil, &Error{Reason: NotJSON, Err: err}
	}
	return Append(nil, doc.Root(), r)
}

// HashText is the content hash of a source, which must be one JSON value.
func HashText(raw []byte, r Rule) (string, error) {
	text, err := Text(raw, r)
	if err != nil {
		return "", err
	}
	return Sum(text), nil
}

// Chain is the signature of an entry that follows one whose signature is prev:
// the content hash of {"prev_sig": prev, "entry": entry} (approvals contract,
// section 1.2). prev is empty before the first entry of a log (section 2.7).
// without names members of the entry that are left out, so that a stored line
// can be checked as it was read.
func Chain(prev string, entry jsjson.Node, r Rule, without ...string) (string, error) {
	if !utf8.ValidString(prev) {
		return "", &Error{Reason: InvalidUTF8, path: []string{"prev_sig"}}
	}
	text, err := Append([]byte(`{"entry":`), entry, r, without...)
	if err != nil {
		return "", err
	}
	text = append(text, `,"prev_sig":`...)
	text = jsjson.AppendString(text, []byte(prev))
	return Sum(append(text, '}')), nil
}

// Sum is the SHA-256 of a canonical text in lower case hexadecimal.
func Sum(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// member is one member of an object that is being put in order.
type member struct {
	key   []byte // decoded
	value jsjson.Node
}

// writer writes one value. Members wait in one slice for all objects that are
// open, so that an object costs no memory of its own.
type writer struct {
	dst     []byte
	rule    Rule
	without []string // members the outermost object loses
	stable  bool     // refuse what would be refused when the text is read back
	suspect bool     // some string is not UTF-8
	members []member
}

func (w *writer) write(n jsjson.Node) ([]byte, error) {
	before := w.dst
	if w.rule < 0 || int(w.rule) >= len(ruleNames) {
		return before, &Error{Reason: UnknownRule}
	}
	// Only strings can hold such bytes. One look at the whole is cheaper than
	// one at each.
	w.suspect = !utf8.Valid(n.Raw())
	if err := w.value(n, true); err != nil {
		return before, err
	}
	return w.dst, nil
}

// value recurses once a level, which [jsjson.MaxDepth] bounds. It returns an
// *Error and not an error: what is nil stays nil.
func (w *writer) value(n jsjson.Node, outermost bool) *Error {
	switch n.Kind() {
	case jsjson.Null, jsjson.Bool:
		w.dst = append(w.dst, n.Raw()...)
		return nil
	case jsjson.Number:
		return w.number(n)
	case jsjson.String:
		text, err := w.text(n)
		if err != nil {
			return err
		}
		w.dst = jsjson.AppendString(w.dst, text)
		return nil
	case jsjson.Array:
		return w.array(n)
	case jsjson.Object:
		return w.object(n, outermost)
	}
	return &Error{Reason: NotJSON}
}

// text is the decoded text of a string. The parser lets through what has no
// canonical form (approvals contract, section 1.5): bytes that are not UTF-8 it
// would replace, and half a pair it keeps as bytes that are none.
func (w *writer) text(n jsjson.Node) ([]byte, *Error) {
	if w.suspect && !utf8.Valid(n.Raw()) {
		return nil, &Error{Reason: InvalidUTF8}
	}
	text := n.Text()
	if !utf8.Valid(text) {
		return nil, &Error{Reason: LoneSurrogate}
	}
	return text, nil
}

func (w *writer) array(n jsjson.Node) *Error {
	w.dst = append(w.dst, '[')
	i := 0
	for e := range n.Elements() {
		if i > 0 {
			w.dst = append(w.dst, ',')
		}
		if err := w.value(e, false); err != nil {
			return err.inElement(i)
		}
		i++
	}
	w.dst = append(w.dst, ']')
	return nil
}

func (w *writer) object(n jsjson.Node, outermost bool) *Error {
	start := len(w.members)
	for name, value := range n.Members() {
		key, err := w.text(name)
		if err != nil {
			return err.inMember(name.Text())
		}
		w.members = append(w.members, member{key, value})
	}
	end := len(w.members)
	slices.SortFunc(w.members[start:], func(a, b member) int { return jsjson.Compare(a.key, b.key) })
	w.dst = append(w.dst, '{')
	first := true
	for i := start; i < end; i++ {
		m := w.members[i]
		if i > start && string(m.key) == string(w.members[i-1].key) {
			return (&Error{Reason: RepeatedKey}).inMember(m.key)
		}
		if outermost && slices.Contains(w.without, string(m.key)) {
			continue
		}
		if !first {
			w.dst = append(w.dst, ',')
		}
		first = false
		w.dst = jsjson.AppendString(w.dst, m.key)
		w.dst = append(w.dst, ':')
		if err := w.value(m.value, false); err != nil {
			return err.inMember(m.key)
		}
	}
	w.members = w.members[:start]
	w.dst = append(w.dst, '}')
	return nil
}
