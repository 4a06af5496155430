package canon

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"unicode/utf8"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// Marshal is the canonical text, under [JCS], of the JSON encoding/json makes of
// a Go value: what the log writes. The text is its own canonical form, so that
// what is written can always be verified; a number for which that is not so, a
// large double, is refused.
func Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("marshal canonical JSON: %w", err)
	}
	// encoding/json mends what is not UTF-8 in a Go string, and writes the
	// mended place as this escape. In a json.RawMessage the escape may be what
	// the message says, so only then the value is looked at.
	if bytes.Contains(buf.Bytes(), []byte(`\ufffd`)) && !wellFormed(reflect.ValueOf(v)) {
		return nil, &Error{Reason: InvalidUTF8}
	}
	var doc jsjson.Doc
	if err := doc.Parse(buf.Bytes()); err != nil {
		return nil, &Error{Reason: NotJSON, Err: err}
	}
	w := writer{rule: JCS, stable: true}
	return w.write(doc.Root())
}

var (
	marshaler     = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// wellFormed reports whether every string of a value that encoding/json has
// written once is UTF-8. Cycles have been refused by then.
func wellFormed(v reflect.Value) bool {
	if !v.IsValid() {
		return true
	}
	if v.Type().Implements(marshaler) {
		return true // what it writes is looked at as JSON
	}
	if v.Type().Implements(textMarshaler) && v.CanInterface() {
		if v.Kind() == reflect.Pointer && v.IsNil() {
			return true
		}
		text, err := v.Interface().(encoding.TextMarshaler).MarshalText()
		return err == nil && utf8.Valid(text)
	}
	switch v.Kind() {
	case reflect.String:
		return utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		return wellFormed(v.Elem())
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return true // base64
		}
		for i := range v.Len() {
			if !wellFormed(v.Index(i)) {
				return false
			}
		}
	case reflect.Map:
		for k, e := range v.Seq2() {
			if !wellFormed(k) || !wellFormed(e) {
				return false
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-" && !wellFormed(v.Field(i)) {
				return false
			}
		}
	}
	return true
}
