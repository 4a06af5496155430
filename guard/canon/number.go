package canon

import (
	"math"
	"strconv"
	"strings"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// Rule says how numbers are written (approvals contract, section 1.3). The three
// are all in use, and one value has up to three hashes.
type Rule int

// The rules.
const (
	// Lexeme keeps the difference between 100 and 100.0: an integer token is an
	// exact integer of any length, any other token a double as [AppendFloat]
	// writes it.
	Lexeme Rule = iota
	// Float takes every number for a double, written as [AppendFloat] does.
	Float
	// JCS is RFC 8785: the shortest form an ECMAScript engine writes.
	JCS
)

var ruleNames = [...]string{Lexeme: "lexeme", Float: "float", JCS: "jcs"}

// String is the name of the rule as it stands in receipts and logs.
func (r Rule) String() string {
	if r < 0 || int(r) >= len(ruleNames) {
		return "rule " + strconv.Itoa(int(r))
	}
	return ruleNames[r]
}

// ParseRule is the rule of the given name.
func ParseRule(name string) (Rule, bool) {
	for r, s := range ruleNames {
		if s == name {
			return Rule(r), true
		}
	}
	return 0, false
}

// safeDigits is the largest integer that no other integer shares its double
// with, 2^53-1. Beyond it Float and JCS would merge two values.
const safeDigits = "9007199254740991"

func (w *writer) number(n jsjson.Node) *Error {
	token := n.Raw()
	digits, negative := strings.CutPrefix(string(token), "-")
	integer := !strings.ContainsAny(digits, ".eE")
	if integer && digits == "0" {
		negative = false // an integer has one zero, whatever its sign
	}
	switch {
	case integer && w.rule == Lexeme:
		// The grammar allows no leading zero: the digits are canonical.
	case integer && (len(digits) > len(safeDigits) || len(digits) == len(safeDigits) && digits > safeDigits):
		return &Error{Reason: UnsafeInteger}
	case integer && w.rule == JCS:
	case integer && w.rule == Float:
		f := jsjson.Double(digits) // in range, and exact
		if negative {
			f = -f
		}
		w.dst = AppendFloat(w.dst, f)
		return nil
	default:
		return w.double(n.Float())
	}
	if negative {
		w.dst = append(w.dst, '-')
	}
	w.dst = append(w.dst, digits...)
	return nil
}

func (w *writer) double(f float64) *Error {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return &Error{Reason: NonFinite}
	}
	if w.rule != JCS {
		w.dst = AppendFloat(w.dst, f)
		return nil
	}
	if abs := math.Abs(f); w.stable && abs >= 1<<53 && abs < 1e21 {
		// Its form is an integer, which the next reader would refuse.
		return &Error{Reason: UnsafeInteger}
	}
	w.dst = jsjson.AppendNumber(w.dst, f)
	return nil
}

// AppendFloat appends a double the way the reference of the protocol prints it,
// which is Python's repr: the fewest digits that read back as the same double,
// always with a point or an exponent, with an exponent below 1e-4 and from 1e16
// on, of two digits at least and always signed. -0.0 keeps its sign; what is not
// finite is inf, -inf or nan.
func AppendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "nan"...)
	case math.IsInf(f, 0):
		if f < 0 {
			dst = append(dst, '-')
		}
		return append(dst, "inf"...)
	}
	// Where the exponent begins is a matter of the digits that are printed, but
	// both bounds are doubles, and rounding to shortest never crosses one.
	if abs := math.Abs(f); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	for _, c := range dst[start:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, ".0"...)
}
