package jsjson_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

func TestACursorTakesWhatItNamesOrNothing(t *testing.T) {
	c := jsjson.Cursor(`{"a":"text","n":120,"b":""}`)
	a, c := c.Text(`{"a":"`)
	n, c := c.Digits(`,"n":`)
	b, c := c.Text(`,"b":"`)
	c = c.Take(`}`)
	if string(a) != "text" || n != 120 || b == nil || len(b) != 0 || c == nil || len(c) != 0 {
		t.Errorf("a %q, n %v, b %q, rest %q", a, n, b, c)
	}
	if cap(a) != len(a) {
		t.Error("a text can be appended to")
	}
	if c.Take(`}`) != nil {
		t.Error("something was taken off the end")
	}
	for _, src := range []string{"", `"`, `{"b":"text"}`, `{"a":"text`, `{"a":1}`, `{"a":"té"}`, `{"a":"\u0061"}`, "{\"a\":\"\x1F\"}", "{\"a\":\"\x00", "{\"a\":\"\xFF\"}"} {
		text, c := jsjson.Cursor(src).Text(`{"a":"`)
		if text != nil || c != nil {
			t.Errorf("%q: took %q", src, text)
		}
		// What failed once fails to the end.
		text, c = c.Text("")
		if v, d := c.Digits(""); text != nil || v != 0 || c.Take("") != nil || d != nil {
			t.Errorf("%q: a nil cursor takes something", src)
		}
	}
}

// A text is taken exactly when it is plain, whatever its length and wherever in
// it and in a word the odd byte stands.
func TestACursorTakesPlainTextOnly(t *testing.T) {
	var d jsjson.Doc
	for length := range 26 {
		for at := range length + 1 {
			for odd := range 256 {
				text := []byte(strings.Repeat("x", length))
				if at < length {
					text[at] = byte(odd)
				}
				src := append(append([]byte{'"'}, text...), '"')
				for _, behind := range []string{"", strings.Repeat("y", 20)} {
					got, c := jsjson.Cursor(append(bytes.Clone(src), behind...)).Text(`"`)
					if at < length && odd == '"' {
						if string(got) != string(text[:at]) || c == nil {
							t.Fatalf("%q: took %q", src, got)
						}
						continue
					}
					plain := at == length || odd >= ' ' && odd < 0x80 && odd != '\\'
					if (c != nil) != plain || plain && string(c) != behind {
						t.Fatalf("%q: took %q and left %q", src, got, c)
					}
					if plain && (d.Parse(src) != nil || string(d.Root().Text()) != string(got)) {
						t.Fatalf("%q: %q is not its text", src, got)
					}
				}
			}
		}
	}
}

func TestACursorTakesWholeNumbersOnly(t *testing.T) {
	for src, rest := range map[string]string{
		"0": "", "7,": ",", "10}": "}", "123456789012345": "", "1.5": ".5", "1e3": "e3",
	} {
		if _, c := jsjson.Cursor(src).Digits(""); c == nil || string(c) != rest {
			t.Errorf("%s: %q is left", src, c)
		}
	}
	for _, src := range []string{"", "-1", "01", "00", "x", ".5", "1234567890123456", "9007199254740993", " 1"} {
		if v, c := jsjson.Cursor(src).Digits(""); c != nil {
			t.Errorf("%s: took %v", src, v)
		}
	}
}

// What a cursor takes is what Parse reads there.
func FuzzCursor(f *testing.F) {
	f.Add([]byte(`"text"`))
	f.Add([]byte(`12345`))
	f.Add([]byte(`"` + strings.Repeat("a", 17) + `\n"`))
	var d jsjson.Doc
	f.Fuzz(func(t *testing.T, src []byte) {
		if text, c := jsjson.Cursor(src).Text(`"`); c != nil {
			if err := d.Parse(src[:len(src)-len(c)]); err != nil || d.Root().Kind() != jsjson.String || !bytes.Equal(d.Root().Text(), text) {
				t.Fatalf("%q: took %q: %v", src, text, err)
			}
		}
		if v, c := jsjson.Cursor(src).Digits(""); c != nil {
			if err := d.Parse(src[:len(src)-len(c)]); err != nil || d.Root().Float() != v {
				t.Fatalf("%q: took %v: %v", src, v, err)
			}
		}
	})
}
