package main

import (
	"fmt"
	"strconv"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// object is a JSON object whose members keep their order. The shapes are
// described in docs/json.md.
type object []member

type member struct {
	name  string
	value any // string, bool, int, int64, float64, nil, object, []object, []string, raw
}

// raw is a JSON text of another package, laid out like the rest.
type raw []byte

// add appends a member unless its text is empty: an unknown value is absent.
func (o object) add(name, text string) object {
	if text == "" {
		return o
	}
	return append(o, member{name, text})
}

// encodeJSON writes v, on one line when indent is 0. Strings are WTF-8: ids with lone surrogates come out as
// escapes and stay addressable, which encoding/json would not allow.
func encodeJSON(v any, indent int) []byte {
	return appendValue(nil, v, indent, 0)
}

func appendValue(dst []byte, v any, indent, depth int) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case string:
		return jsjson.AppendString(dst, []byte(v))
	case bool:
		return strconv.AppendBool(dst, v)
	case int:
		return strconv.AppendInt(dst, int64(v), 10)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case float64:
		return jsjson.AppendNumber(dst, v)
	case raw:
		var d jsjson.Doc
		if err := d.Parse(v); err != nil {
			panic(fmt.Sprintf("no JSON: %v", err))
		}
		return d.Root().Append(dst, indent, depth)
	case object:
		return appendList(dst, '{', '}', len(v), indent, depth, func(dst []byte, i int) []byte {
			dst = append(jsjson.AppendString(dst, []byte(v[i].name)), ':')
			if indent > 0 {
				dst = append(dst, ' ')
			}
			return appendValue(dst, v[i].value, indent, depth+1)
		})
	case []object:
		return appendList(dst, '[', ']', len(v), indent, depth, func(dst []byte, i int) []byte {
			return appendValue(dst, v[i], indent, depth+1)
		})
	case []string:
		return appendList(dst, '[', ']', len(v), indent, depth, func(dst []byte, i int) []byte {
			return appendValue(dst, v[i], indent, depth+1)
		})
	}
	panic(fmt.Sprintf("no JSON form for %T", v))
}

func appendList(dst []byte, open, end byte, n, indent, depth int, item func([]byte, int) []byte) []byte {
	dst = append(dst, open)
	for i := range n {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = newline(dst, indent, depth+1)
		dst = item(dst, i)
	}
	if n > 0 {
		dst = newline(dst, indent, depth)
	}
	return append(dst, end)
}

func newline(dst []byte, indent, depth int) []byte {
	if indent == 0 {
		return dst
	}
	dst = append(dst, '\n')
	for range indent * depth {
		dst = append(dst, ' ')
	}
	return dst
}
