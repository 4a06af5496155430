package jsjson_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// This file is a second, slow implementation of the trace contract, section 8,
// written from the ECMAScript description and sharing nothing with the package:
// text is a list of UTF-16 units, a document a tree, an object a list of
// properties that is searched from its start.

// units decodes UTF-8 with replacement. The maximal subpart of an ill-formed
// sequence is found by its definition: the longest prefix that some well-formed
// sequence begins with.
func units(raw []byte) []uint16 {
	var out []uint16
	for len(raw) > 0 {
		if r, n := utf8.DecodeRune(raw); r != utf8.RuneError || n == 3 {
			out = utf16.AppendRune(out, r)
			raw = raw[n:]
			continue
		}
		n := 1
		for n < min(3, len(raw)) && begins(raw[:n+1]) {
			n++
		}
		out = append(out, 0xFFFD)
		raw = raw[n:]
	}
	return out
}

// begins reports whether some well-formed sequence starts with p and is longer.
func begins(p []byte) bool {
	var try func(s []byte) bool
	try = func(s []byte) bool {
		if utf8.Valid(s) {
			r, n := utf8.DecodeRune(s)
			return n == len(s) && r != utf8.RuneError || n == 3
		}
		if len(s) == 4 {
			return false
		}
		for c := 0x80; c <= 0xBF; c++ {
			if try(append(s[:len(s):len(s)], byte(c))) {
				return true
			}
		}
		return false
	}
	return try(p)
}

// wtf8 encodes units: pairs as one character, lone surrogates by themselves.
func wtf8(u []uint16) []byte {
	out := []byte{}
	for i := 0; i < len(u); i++ {
		if i+1 < len(u) {
			if r := utf16.DecodeRune(rune(u[i]), rune(u[i+1])); r != utf8.RuneError {
				out = utf8.AppendRune(out, r)
				i++
				continue
			}
		}
		if u[i] >= 0xD800 && u[i] < 0xE000 {
			out = append(out, byte(0xE0|u[i]>>12), byte(0x80|u[i]>>6&0x3F), byte(0x80|u[i]&0x3F))
			continue
		}
		out = utf8.AppendRune(out, rune(u[i]))
	}
	return out
}

type modelObject struct {
	names  [][]uint16
	values []any
}

type model struct {
	in []uint16
	at int
}

// modelParse is JSON.parse: nil, bool, float64, []uint16, []any, *modelObject.
func modelParse(raw []byte) (v any, err error) {
	m := &model{in: units(raw)}
	defer func() {
		if r := recover(); r != nil {
			v, err = nil, fmt.Errorf("%v", r)
		}
	}()
	v = m.value()
	if m.at != len(m.in) {
		panic("more")
	}
	return v, nil
}

func (m *model) skip() {
	for m.at < len(m.in) && strings.ContainsRune(" \t\n\r", rune(m.in[m.at])) {
		m.at++
	}
}

func (m *model) peek() rune {
	if m.at == len(m.in) {
		return -1
	}
	return rune(m.in[m.at])
}

func (m *model) want(text string) {
	for _, c := range text {
		if m.peek() != c {
			panic("want " + text)
		}
		m.at++
	}
}

func (m *model) value() any {
	m.skip()
	defer m.skip()
	switch c := m.peek(); {
	case c == '{':
		m.at++
		o := &modelObject{}
		m.skip()
		if m.peek() == '}' {
			m.at++
			return o
		}
		for {
			m.skip()
			name := m.text()
			m.skip()
			m.want(":")
			o.set(name, m.value())
			if m.peek() != ',' {
				m.want("}")
				return o
			}
			m.at++
		}
	case c == '[':
		m.at++
		list := []any{}
		m.skip()
		if m.peek() == ']' {
			m.at++
			return list
		}
		for {
			list = append(list, m.value())
			if m.peek() != ',' {
				m.want("]")
				return list
			}
			m.at++
		}
	case c == '"':
		return m.text()
	case c == 't':
		m.want("true")
		return true
	case c == 'f':
		m.want("false")
		return false
	case c == 'n':
		m.want("null")
		return nil
	}
	return m.number()
}

func (m *model) text() []uint16 {
	m.want(`"`)
	out := []uint16{}
	for {
		c := m.peek()
		m.at++
		switch {
		case c < ' ':
			panic("text")
		case c == '"':
			return out
		case c != '\\':
			out = append(out, uint16(c))
			continue
		}
		e := m.peek()
		m.at++
		if i := strings.IndexRune(`"\/bfnrt`, e); i >= 0 {
			out = append(out, uint16("\"\\/\b\f\n\r\t"[i]))
			continue
		}
		if e != 'u' || m.at+4 > len(m.in) {
			panic("escape")
		}
		digits := string(utf16.Decode(m.in[m.at : m.at+4]))
		m.at += 4
		u, err := strconv.ParseUint(digits, 16, 16)
		if err != nil || strings.ContainsAny(digits, "+-_") {
			panic("escape")
		}
		out = append(out, uint16(u))
	}
}

func (m *model) number() float64 {
	start := m.at
	digits := func() {
		if c := m.peek(); c < '0' || c > '9' {
			panic("number")
		}
		for c := m.peek(); c >= '0' && c <= '9'; c = m.peek() {
			m.at++
		}
	}
	if m.peek() == '-' {
		m.at++
	}
	if m.peek() == '0' {
		m.at++
	} else {
		digits()
	}
	if m.peek() == '.' {
		m.at++
		digits()
	}
	if c := m.peek(); c == 'e' || c == 'E' {
		m.at++
		if c := m.peek(); c == '+' || c == '-' {
			m.at++
		}
		digits()
	}
	f, _ := strconv.ParseFloat(string(utf16.Decode(m.in[start:m.at])), 64)
	return f
}

// set is what an assignment does: a name keeps its place.
func (o *modelObject) set(name []uint16, v any) {
	for i := range o.names {
		if slices.Equal(o.names[i], name) {
			o.values[i] = v
			return
		}
	}
	o.names = append(o.names, name)
	o.values = append(o.values, v)
}

// listed is the properties in the order of OrdinaryOwnPropertyKeys.
func (o *modelObject) listed() []int {
	indexOf := func(name []uint16) (uint64, bool) {
		text := string(utf16.Decode(name))
		v, err := strconv.ParseUint(text, 10, 64)
		return v, err == nil && v <= math.MaxUint32-1 && strconv.FormatUint(v, 10) == text
	}
	var indices, others []int
	for i, name := range o.names {
		if _, ok := indexOf(name); ok {
			indices = append(indices, i)
		} else {
			others = append(others, i)
		}
	}
	slices.SortFunc(indices, func(a, b int) int {
		x, _ := indexOf(o.names[a])
		y, _ := indexOf(o.names[b])
		return int(int64(x) - int64(y))
	})
	return append(indices, others...)
}

// modelWrite is JSON.stringify(v, null, gap).
func modelWrite(b *strings.Builder, v any, gap, indent string) {
	inner := indent + gap
	line := func(indent string) {
		if gap != "" {
			b.WriteString("\n" + indent)
		}
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		fmt.Fprint(b, v)
	case float64:
		b.WriteString(modelNumber(v))
	case []uint16:
		modelText(b, v)
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			line(inner)
			modelWrite(b, e, gap, inner)
		}
		if len(v) > 0 {
			line(indent)
		}
		b.WriteByte(']')
	case *modelObject:
		b.WriteByte('{')
		for i, p := range v.listed() {
			if i > 0 {
				b.WriteByte(',')
			}
			line(inner)
			modelText(b, v.names[p])
			b.WriteByte(':')
			if gap != "" {
				b.WriteByte(' ')
			}
			modelWrite(b, v.values[p], gap, inner)
		}
		if len(v.names) > 0 {
			line(indent)
		}
		b.WriteByte('}')
	}
}

func modelText(b *strings.Builder, u []uint16) {
	b.WriteByte('"')
	for i := 0; i < len(u); i++ {
		if i+1 < len(u) {
			if r := utf16.DecodeRune(rune(u[i]), rune(u[i+1])); r != utf8.RuneError {
				b.WriteRune(r)
				i++
				continue
			}
		}
		c := u[i]
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(byte(c))
		case c < ' ' && strings.ContainsRune("\b\t\n\f\r", rune(c)):
			b.WriteByte('\\')
			b.WriteByte("btn?fr"[c-'\b'])
		case c < ' ' || c >= 0xD800 && c < 0xE000:
			fmt.Fprintf(b, `\u%04x`, c)
		default:
			b.WriteRune(rune(c))
		}
	}
	b.WriteByte('"')
}

// modelNumber is Number::toString as the standard words it: the digits s, k of
// them, and the position n of the point.
func modelNumber(f float64) string {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return "null"
	case f == 0:
		return "0"
	case f < 0:
		return "-" + modelNumber(-f)
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	s := strings.Replace(mantissa, ".", "", 1)
	e, _ := strconv.Atoi(exponent)
	k, n := len(s), e+1
	switch {
	case k <= n && n <= 21:
		return s + strings.Repeat("0", n-k)
	case 0 < n && n <= 21:
		return s[:n] + "." + s[n:]
	case -6 < n && n <= 0:
		return "0." + strings.Repeat("0", -n) + s
	case k == 1:
		return fmt.Sprintf("%se%+d", s, n-1)
	}
	return fmt.Sprintf("%s.%se%+d", s[:1], s[1:], n-1)
}
