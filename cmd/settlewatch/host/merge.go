package host

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// ErrNotJSON says that a file is not strict JSON; it may hold comments.
var ErrNotJSON = errors.New("it is not JSON")

var byteOrderMark = []byte("\xef\xbb\xbf")

// merge returns the document src with src[key][name] set to entry, which is compact
// JSON. Every other byte is kept: order, spelling and layout of what a person or a host
// wrote are theirs. An empty document counts as {}.
func merge(src []byte, key, name string, entry []byte) ([]byte, error) {
	if body, ok := bytes.CutPrefix(src, byteOrderMark); ok {
		merged, err := merge(body, key, name, entry)
		return append(slices.Clip(byteOrderMark), merged...), err
	}
	whole := wrap(name, entry)
	if len(bytes.TrimSpace(src)) == 0 {
		return []byte(layout{"  ", "\n"}.value(wrap(key, whole), 0) + "\n"), nil
	}
	if !json.Valid(src) {
		return nil, ErrNotJSON
	}
	style := layoutOf(src)
	top, end, err := members(src, 0)
	if err != nil {
		return nil, err
	}
	servers, err := pick(top, key)
	if err != nil {
		return nil, err
	}
	if servers == nil {
		return style.insert(src, top, end, 1, key, whole), nil
	}
	inner, end, err := members(src[:servers.end], servers.start)
	if err != nil {
		return nil, fmt.Errorf("its member %q: %w", key, err)
	}
	old, err := pick(inner, name)
	if err != nil {
		return nil, err
	}
	if old != nil {
		return splice(src, old.start, old.end, style.value(entry, 2)), nil
	}
	return style.insert(src, inner, end, 2, name, entry), nil
}

// wrap is an object of one member.
func wrap(name string, value []byte) []byte {
	out := append(jsjson.AppendString([]byte{'{'}, []byte(name)), ':')
	return append(append(out, value...), '}')
}

// span is a member of an object and where its value stands.
type span struct {
	name       string
	start, end int
}

// members lists the members of the object that begins at start, and gives the
// offset of its closing brace.
func members(src []byte, start int) ([]span, int, error) {
	d := json.NewDecoder(bytes.NewReader(src[start:]))
	open, err := d.Token()
	if err != nil {
		return nil, 0, err
	}
	if open != json.Delim('{') {
		return nil, 0, errors.New("it is not an object")
	}
	var list []span
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, 0, err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, 0, err
		}
		end := start + int(d.InputOffset())
		list = append(list, span{key.(string), end - len(raw), end})
	}
	if _, err := d.Token(); err != nil {
		return nil, 0, err
	}
	return list, start + int(d.InputOffset()) - 1, nil
}

// pick finds the only member of a name. Which of two a host would take is not
// ours to guess.
func pick(list []span, name string) (*span, error) {
	var found *span
	for i := range list {
		if list[i].name == name {
			if found != nil {
				return nil, fmt.Errorf("it has the member %q twice", name)
			}
			found = &list[i]
		}
	}
	return found, nil
}

func splice(src []byte, from, to int, text string) []byte {
	out := make([]byte, 0, len(src)+len(text))
	out = append(out, src[:from]...)
	out = append(out, text...)
	return append(out, src[to:]...)
}

// layout is how a document breaks its lines; unit is "" for one on one line.
type layout struct{ unit, eol string }

func layoutOf(src []byte) layout {
	l := layout{eol: "\n"}
	i := bytes.IndexByte(src, '\n')
	if i < 0 {
		return l
	}
	if i > 0 && src[i-1] == '\r' {
		l.eol = "\r\n"
	}
	l.unit = "  "
	// The first indented line shows the unit.
	for line := range bytes.Lines(src[i+1:]) {
		if text := bytes.TrimLeft(line, " \t"); len(text) < len(line) && len(bytes.TrimSpace(text)) > 0 {
			l.unit = string(line[:len(line)-len(text)])
			break
		}
	}
	return l
}

// value writes compact JSON as it stands at depth.
func (l layout) value(compact []byte, depth int) string {
	if l.unit == "" {
		return string(compact)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, compact, strings.Repeat(l.unit, depth), l.unit); err != nil {
		panic(err) // it is ours
	}
	return strings.ReplaceAll(out.String(), "\n", l.eol) // strings hold no raw newline
}

// insert adds a member as the last of an object whose members stand at depth.
func (l layout) insert(src []byte, list []span, brace, depth int, name string, value []byte) []byte {
	key := string(jsjson.AppendString(nil, []byte(name))) + ":"
	if l.unit != "" {
		key += " "
	}
	text := key + l.value(value, depth)
	start := ""
	if l.unit != "" {
		start = l.eol + strings.Repeat(l.unit, depth)
	}
	if len(list) > 0 {
		at := list[len(list)-1].end
		return splice(src, at, at, ","+start+text)
	}
	end := ""
	if l.unit != "" {
		end = l.eol + strings.Repeat(l.unit, depth-1)
	}
	open := bytes.LastIndexByte(src[:brace], '{')
	return splice(src, open+1, brace, start+text+end)
}
