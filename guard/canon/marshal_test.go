package canon

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type inner struct {
	Z string `json:"z"`
	A *int   `json:"a,omitempty"`
}

type line struct {
	Seq  int64           `json:"seq"`
	At   time.Time       `json:"at"`
	Type string          `json:"type"`
	Rest json.RawMessage `json:"rest,omitempty"`
	List []inner         `json:"list"`
	Map  map[string]any  `json:"map,omitempty"`
	inner
	Hidden string `json:"-"`
}

func TestMarshalWritesTheCanonicalTextOfAGoValue(t *testing.T) {
	seven := 7
	got, err := Marshal(line{
		Seq:    1<<53 - 1,
		At:     time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Type:   "a<b>&\u2028/é",
		Rest:   json.RawMessage(` { "b" : 1.50 , "a" : "\ufffd" } `),
		List:   []inner{{Z: "x"}, {A: &seven}},
		Map:    map[string]any{"😀": true, "\ue000": nil},
		inner:  inner{Z: "promoted"},
		Hidden: "\xff",
	})
	want := `{"at":"2026-01-02T03:04:05Z","list":[{"z":"x"},{"a":7,"z":""}],"map":{"😀":true,"` + "\ue000" + `":null},` +
		`"rest":{"a":"` + "\ufffd" + `","b":1.5},"seq":9007199254740991,"type":"a<b>&` + "\u2028" + `/é","z":"promoted"}`
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
}

type named string

type text struct{ s string }

func (x text) MarshalText() ([]byte, error) { return []byte(x.s), nil }

type raw struct{ s string }

func (x raw) MarshalJSON() ([]byte, error) { return []byte(x.s), nil }

func TestMarshalRefusesWhatEncodingJSONWouldMend(t *testing.T) {
	bad := "a\xff"
	half := "\xed\xa0\x80" // half a pair, as jsjson hands it out
	for name, v := range map[string]any{
		"a string":                 bad,
		"half a pair":              half,
		"a named string":           named(bad),
		"a member":                 inner{Z: bad},
		"a pointer":                &bad,
		"an element":               []string{"ok", bad},
		"an array":                 [2]named{"", named(half)},
		"a value of a map":         map[string]any{"a": []any{bad}},
		"a key of a map":           map[string]int{bad: 1},
		"an embedded member":       line{inner: inner{Z: bad}},
		"text of a marshaler":      text{bad},
		"a key that is text":       map[text]int{{bad}: 1},
		"a raw message":            json.RawMessage("\"\xff\""),
		"JSON of a marshaler":      raw{"\"\xff\""},
		"beside a legal U+FFFD":    []any{json.RawMessage(`"\ufffd"`), bad},
		"a pointer to a pointer":   func() any { p := &bad; return &p }(),
		"inside an interface":      []any{inner{Z: bad}},
		"a nil beside what is bad": []any{(*text)(nil), (*string)(nil), nil, bad},
	} {
		got, err := Marshal(v)
		if reason(err) != InvalidUTF8 {
			t.Errorf("%s: got %s, %v", name, got, err)
		}
	}
	for name, c := range map[string]struct {
		v      any
		reason Reason
	}{
		"half a pair in a raw message":       {json.RawMessage(`"\ud800"`), LoneSurrogate},
		"a key twice in a raw message":       {json.RawMessage(`{"a":1,"a":1}`), RepeatedKey},
		"two keys that are the same text":    {map[*text]int{{"k"}: 1, {"k"}: 2}, RepeatedKey},
		"an integer no double tells apart":   {int64(1 << 53), UnsafeInteger},
		"the same, unsigned":                 {uint64(math.MaxUint64), UnsafeInteger},
		"the same, negative":                 {int64(math.MinInt64), UnsafeInteger},
		"a number too large":                 {json.Number("1e400"), NonFinite},
		"a message deeper than can be read":  {json.RawMessage(strings.Repeat("[", 3001) + strings.Repeat("]", 3001)), NotJSON},
		"a large double in a raw message":    {json.RawMessage(`[1e20]`), UnsafeInteger},
		"a large double from Go":             {1e20, UnsafeInteger},
		"the smallest double that is unsafe": {json.RawMessage(`9007199254740992.0`), UnsafeInteger},
	} {
		got, err := Marshal(c.v)
		if reason(err) != c.reason {
			t.Errorf("%s: got %s, %v, want %s", name, got, err, c.reason)
		}
	}
}

func TestMarshalKeepsLegalReplacementCharacters(t *testing.T) {
	for _, v := range []any{
		"\ufffd", `\ufffd`, []any{json.RawMessage(`"\ufffd"`), "\ufffd", 1, nil, []byte{0xff}, map[int]string{1: "x"}},
		map[text]named{{"k"}: "\ufffd"}, (*inner)(nil), []any{json.RawMessage(`"\ufffd"`), (*text)(nil), time.Time{}},
	} {
		if _, err := Marshal(v); err != nil {
			t.Errorf("%v: %v", v, err)
		}
	}
}

func TestMarshalHandsOnTheErrorsOfEncodingJSON(t *testing.T) {
	_, err := Marshal(map[string]any{"f": func() {}})
	var unsupported *json.UnsupportedTypeError
	if !errors.As(err, &unsupported) {
		t.Error(err)
	}
	if _, err := Marshal(math.NaN()); err == nil {
		t.Error("NaN was written")
	}
}

func TestWhatMarshalWritesIsItsOwnCanonicalText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		src := document(t, 3)
		v := line{Seq: rapid.Int64().Draw(t, "seq"), Type: word.Draw(t, "type"), Rest: json.RawMessage(src), Map: map[string]any{word.Draw(t, "key"): word.Draw(t, "value")}}
		got, err := Marshal(v)
		if err != nil {
			if r := reason(err); r != UnsafeInteger && r != NonFinite {
				t.Fatalf("%s: %v", src, err)
			}
			return
		}
		again, err := Text(got, JCS)
		if err != nil || string(again) != string(got) {
			t.Fatalf("got   %s\nagain %s, %v", got, again, err)
		}
		plain, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if want, err := Text(plain, JCS); err != nil || string(want) != string(got) {
			t.Fatalf("got  %s\nwant %s, %v", got, want, err)
		}
	})
}
