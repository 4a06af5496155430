package canon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"pgregory.net/rapid"
)

// model is a second implementation of the approvals contract, section 1, on top
// of encoding/json: a tree instead of a tape, UTF-16 arrays instead of a
// comparison of bytes, decimal places moved by hand. It knows nothing of what
// must be refused in strings and keys.
func model(src []byte, r Rule) (string, error) {
	dec := json.NewDecoder(bytes.NewReader(src))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return "", err
	}
	var b strings.Builder
	err := modelValue(&b, v, r)
	return b.String(), err
}

func modelValue(b *strings.Builder, v any, r Rule) error {
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		fmt.Fprint(b, v)
	case string:
		modelString(b, v)
	case json.Number:
		s, err := modelNumber(string(v), r)
		b.WriteString(s)
		return err
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := modelValue(b, e, r); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case map[string]any:
		var keys []string
		for k := range v {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, func(x, y string) int {
			return slices.Compare(utf16.Encode([]rune(x)), utf16.Encode([]rune(y)))
		})
		b.WriteByte('{')
		for i, k := range keys {
			if i > 0 {
				b.WriteByte(',')
			}
			modelString(b, k)
			b.WriteByte(':')
			if err := modelValue(b, v[k], r); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	}
	return nil
}

func modelString(b *strings.Builder, s string) {
	short := map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}
	b.WriteByte('"')
	for _, c := range s {
		if e, ok := short[c]; ok {
			b.WriteString(e)
		} else if c < 0x20 {
			fmt.Fprintf(b, `\u%04x`, c)
		} else {
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
}

func modelNumber(token string, r Rule) (string, error) {
	if i, ok := new(big.Int).SetString(token, 10); ok {
		if r != Lexeme && i.CmpAbs(big.NewInt(1<<53-1)) > 0 {
			return "", fmt.Errorf("unsafe %s", token)
		}
		if r != Float {
			return i.String(), nil
		}
		token = i.String() // -0 is 0
	}
	f, err := strconv.ParseFloat(token, 64)
	if err != nil {
		return "", err
	}
	if r == JCS {
		return modelDigits(f, -7, 21, ""), nil
	}
	return modelDigits(f, -5, 16, ".0"), nil
}

// modelDigits prints the shortest digits of a double: with an exponent when that
// is at most low or at least high, otherwise with the point moved. whole ends a
// number that has no fraction, and its presence asks for Python's exponents and
// its negative zero.
func modelDigits(f float64, low, high int, whole string) string {
	python := whole != ""
	sign := ""
	if math.Signbit(f) && (f != 0 || python) {
		sign = "-"
	}
	mantissa, e, _ := strings.Cut(strconv.FormatFloat(math.Abs(f), 'e', -1, 64), "e")
	exp, _ := strconv.Atoi(e)
	digits := strings.Replace(mantissa, ".", "", 1)
	switch {
	case exp <= low || exp >= high:
		if python {
			return fmt.Sprintf("%s%se%+03d", sign, mantissa, exp)
		}
		return fmt.Sprintf("%s%se%+d", sign, mantissa, exp)
	case exp < 0:
		return sign + "0." + strings.Repeat("0", -exp-1) + digits
	case len(digits) <= exp+1:
		return sign + digits + strings.Repeat("0", exp+1-len(digits)) + whole
	}
	return sign + digits[:exp+1] + "." + digits[exp+1:]
}

// document draws a JSON source: every kind of value, numbers and strings in all
// their spellings, white space anywhere, keys that are easily confused, no key
// twice in an object.
func document(t *rapid.T, depth int) string {
	var b strings.Builder
	write(t, &b, depth)
	return b.String()
}

var (
	spaces = rapid.SampledFrom([]string{"", "", "", " ", "\n", "\t \r\n"})
	letter = rapid.OneOf(
		rapid.RuneFrom([]rune("ab/\"\\\b\f\n\r\t\x00\x1f\x7f<>&é\u0301ß\u2028\u2029\ufeff\ud7ff\ue000\ufffd\uffff")),
		rapid.Int32Range(0x10000, 0x10ffff),
		rapid.Int32Range(0, 0xd7ff))
	word   = rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOfN(letter, 0, 4).Draw(t, "runes")) })
	number = rapid.OneOf(
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})`),
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})\.[0-9]{1,20}`),
		rapid.StringMatching(`-?(0|[1-9][0-9]{0,4})(\.[0-9]{1,4})?[eE][+-]?[0-9]{1,2}`),
		rapid.StringMatching(`[1-9](\.[0-9]{1,16})?e-?3[0-2][0-9]`),
		rapid.Custom(func(t *rapid.T) string {
			return strconv.FormatFloat(rapid.Float64().Draw(t, "double"), 'g', -1, 64)
		}),
		rapid.SampledFrom([]string{"-0", "-0.0", "0e0", "9007199254740991", "-9007199254740991", "9007199254740992", "9007199254740992.0",
			"1e15", "1e16", "9999999999999998.0", "1e20", "1e21", "0.0001", "0.00001", "1e-6", "1e-7", "1e400", "5e-324"}))
)

// spell writes a string with each character literal or escaped by chance.
func spell(t *rapid.T, b *strings.Builder, s string) {
	b.WriteByte('"')
	for _, c := range s {
		must := c < 0x20 || c == '"' || c == '\\'
		if !must && !rapid.Bool().Draw(t, "escape") {
			b.WriteRune(c)
			continue
		}
		if e := strings.IndexRune("\"\\/\b\f\n\r\t", c); e >= 0 && rapid.Bool().Draw(t, "short") {
			b.WriteString(`\` + `"\/bfnrt`[e:e+1])
			continue
		}
		for _, u := range utf16.Encode([]rune{c}) {
			fmt.Fprintf(b, rapid.SampledFrom([]string{`\u%04x`, `\u%04X`}).Draw(t, "hex"), u)
		}
	}
	b.WriteByte('"')
}

func write(t *rapid.T, b *strings.Builder, depth int) {
	b.WriteString(spaces.Draw(t, "space"))
	kind := rapid.IntRange(0, 6).Draw(t, "kind")
	if depth == 0 {
		kind %= 4
	}
	switch kind {
	case 0:
		b.WriteString(rapid.SampledFrom([]string{"null", "true", "false"}).Draw(t, "word"))
	case 1, 2:
		b.WriteString(number.Draw(t, "number"))
	case 3:
		spell(t, b, word.Draw(t, "text"))
	case 4:
		b.WriteByte('[')
		for i := range rapid.IntRange(0, 4).Draw(t, "elements") {
			if i > 0 {
				b.WriteByte(',')
			}
			write(t, b, depth-1)
		}
		b.WriteByte(']')
	default:
		b.WriteByte('{')
		for i, key := range rapid.SliceOfNDistinct(word, 0, 16, rapid.ID).Draw(t, "keys") {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(spaces.Draw(t, "space"))
			spell(t, b, key)
			b.WriteString(spaces.Draw(t, "space"))
			b.WriteByte(':')
			write(t, b, depth-1)
		}
		b.WriteByte('}')
	}
	b.WriteString(spaces.Draw(t, "space"))
}
