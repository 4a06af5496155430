package canon

import (
	"strconv"
	"strings"

	"github.com/settlewatch/settlewatch/internal/plain"
)

// Reason names why a value has no canonical form. The words are part of what the
// conformance adapter answers and do not change.
type Reason string

// The reasons.
const (
	NotJSON       Reason = "not-json"       // the source is not one JSON value, or is nested too deep
	InvalidUTF8   Reason = "invalid-utf8"   // a string holds bytes that are not UTF-8
	LoneSurrogate Reason = "lone-surrogate" // a string holds half of a surrogate pair
	RepeatedKey   Reason = "repeated-key"   // an object has a key twice
	NonFinite     Reason = "non-finite"     // a number is too large for a double
	UnsafeInteger Reason = "unsafe-integer" // an integer is beyond 2^53-1, where two share a double
	UnknownRule   Reason = "unknown-rule"   // the number rule is none of the three
)

var sentences = map[Reason]string{
	NotJSON:       "not one JSON value",
	InvalidUTF8:   "text that is not UTF-8",
	LoneSurrogate: "text with an unpaired surrogate",
	RepeatedKey:   "a key that stands twice in its object",
	NonFinite:     "a number too large for a double",
	UnsafeInteger: "an integer beyond 2^53-1; write it as text",
	UnknownRule:   "a number rule that does not exist",
}

// Error says why a value has no canonical form, and where.
type Error struct {
	Reason Reason
	Err    error    // what the parser said, when the source is not JSON
	path   []string // steps from the fault outwards
}

// Error implements error.
func (e *Error) Error() string {
	return "canonical JSON: at " + e.Path() + ": " + e.Detail()
}

// Detail is what is wrong, without the place, for callers whose messages name a
// place in a larger document.
func (e *Error) Detail() string {
	if e.Err != nil {
		return sentences[e.Reason] + ": " + e.Err.Error()
	}
	return sentences[e.Reason]
}

func (e *Error) Unwrap() error { return e.Err }

// maxPath bounds a path in bytes: keys and depth are a stranger's choice.
const maxPath = 200

// Path is where in the value the fault stands, as $.name[index]. It is clean
// text, and long ones are cut.
func (e *Error) Path() string {
	var b strings.Builder
	b.WriteByte('$')
	for i := len(e.path) - 1; i >= 0; i-- {
		if b.Len() > maxPath {
			b.WriteRune(plain.Ellipsis)
			break
		}
		b.WriteString(e.path[i])
	}
	return b.String()
}

func (e *Error) inElement(i int) *Error {
	e.path = append(e.path, "["+strconv.Itoa(i)+"]")
	return e
}

func (e *Error) inMember(key []byte) *Error {
	e.path = append(e.path, Step(string(key)))
	return e
}

// Step is how a member of the given name is spelt in a JSON path.
func Step(name string) string {
	bare := name != ""
	for i := range len(name) {
		c := name[i]
		bare = bare && (c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || i > 0 && c >= '0' && c <= '9')
	}
	if bare && len(name) <= 40 {
		return "." + name
	}
	return "[" + plain.Quote(name, 40) + "]"
}
