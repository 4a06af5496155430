package jsjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

func parse(t *testing.T, src string) jsjson.Node {
	t.Helper()
	d := new(jsjson.Doc)
	if err := d.Parse([]byte(src)); err != nil {
		t.Fatalf("parse %q: %v", src, err)
	}
	return d.Root()
}

func TestWritingAgreesWithAnECMAScriptEngine(t *testing.T) {
	for _, c := range golden(t) {
		var d jsjson.Doc
		err := d.Parse(c[0])
		if string(c[1]) == "refused" {
			if err == nil {
				t.Errorf("%q was accepted", c[0])
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c[0], err)
			continue
		}
		if got := d.Root().Append(nil, 0, 0); !bytes.Equal(got, c[1]) {
			t.Errorf("%q was written as\n%s, want\n%s", c[0], got, c[1])
		}
		if got := jsjson.AppendString(nil, d.Root().Append(nil, 2, 0)); !bytes.Equal(got, c[2]) {
			t.Errorf("%q was indented as\n%s, want\n%s", c[0], got, c[2])
		}
	}
}

func TestEveryInvariantHolds(t *testing.T) {
	t.Run("for the golden sources", func(t *testing.T) {
		for _, c := range golden(t) {
			checkDocument(t, c[0])
		}
	})
	t.Run("for the lines of the parity vectors", func(t *testing.T) {
		for _, line := range linesOf(t, vectors) {
			checkDocument(t, line)
		}
	})
	t.Run("for random documents", func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		for range 1500 {
			checkDocument(t, []byte(randomDocument(r, 0, true)))
		}
	})
	t.Run("for every prefix of a document", func(t *testing.T) {
		src := []byte(` {"a" : [1, -2.5e+7, true , false, null, {}, []], "b\u00e9\ud83d\ude00": "text of some length", "é": "ü" } `)
		for i := range len(src) + 1 {
			checkDocument(t, src[:i:i])
		}
	})
	t.Run("for every byte at every place of a document", func(t *testing.T) {
		src := []byte(`{"a":[1,-2.5e7,true],"b\u00e9\n":"12345678"}`)
		for i := range src {
			changed := bytes.Clone(src)
			for c := range 256 {
				changed[i] = byte(c)
				checkDocument(t, changed)
			}
		}
	})
}

func TestSpecialBytesAreFoundAtEveryPositionOfAWord(t *testing.T) {
	for length := range 40 {
		for at := range length {
			for c := range 256 {
				text := bytes.Repeat([]byte{'x'}, length)
				text[at] = byte(c)
				src := slices.Concat([]byte(`["`), text, []byte(`"]`))
				var d jsjson.Doc
				err := d.Parse(src)
				if want := json.Valid(jsjson.ToWTF8(nil, src)); (err == nil) != want {
					t.Fatalf("%q: %v, want valid %v", src, err, want)
				}
				if err != nil {
					continue
				}
				for e := range d.Root().Elements() {
					if want := jsjson.ToWTF8(nil, text); !bytes.Equal(e.Text(), want) && c != '"' && c != '\\' {
						t.Fatalf("%q decodes to %q", src, e.Text())
					}
				}
			}
		}
	}
}

func TestMalformedDocuments(t *testing.T) {
	for _, c := range []struct {
		name, src string
		offset    int
		reason    string
	}{
		{"an empty source", "", 0, "it ends before the value does"},
		{"white space alone", " \r\n\t", 4, "it ends before the value does"},
		{"a leading zero", "[01]", 2, "want ',' or ']' after an element"},
		{"a plus sign", "+1", 0, "want a value"},
		{"a hanging point", "[1.]", 3, "malformed number"},
		{"a leading point", ".5", 0, "want a value"},
		{"an empty exponent", "1e+", 3, "malformed number"},
		{"a lone minus", "-", 1, "malformed number"},
		{"a hanging comma in an array", "[1,]", 3, "want a value"},
		{"a hanging comma in an object", `{"a":1,}`, 7, "want a member name in double quotes"},
		{"a comment", "// a", 0, "want a value"},
		{"single quotes", "'a'", 0, "want a value"},
		{"a bare name", "{a:1}", 1, "want a member name in double quotes"},
		{"NaN", "NaN", 0, "want a value"},
		{"Infinity", "Infinity", 0, "want a value"},
		{"a hexadecimal escape", `"\x41"`, 1, "malformed escape in a string"},
		{"a short unicode escape", `"a\u12"`, 2, "malformed escape in a string"},
		{"a backslash at the end", `"\`, 2, "it ends before the value does"},
		{"a raw tab in a string", "\"a\tb\"", 2, "raw control character in a string"},
		{"a raw NUL in a long string", "\"0123456789abcdef\x00\"", 17, "raw control character in a string"},
		{"two values", "1 2", 2, "want nothing after the value"},
		{"a bracket too many", "[]]", 2, "want nothing after the value"},
		{"the wrong bracket", "[}", 1, "want a value"},
		{"the wrong closing bracket", "[1}", 2, "want ',' or ']' after an element"},
		{"a missing colon", `{"a" 1}`, 5, "want ':' after a member name"},
		{"a missing comma", `{"a":1 "b":2}`, 7, "want ',' or '}' after a member"},
		{"a member name without value", `{"a"`, 4, "it ends before the value does"},
		{"an unfinished word", "tru", 0, "want a value"},
		{"a wrong word", "nulL", 0, "want a value"},
		{"a byte order mark", "\uFEFF{}", 0, "want a value"},
		{"a no-break space before the value", "\u00A0{}", 0, "want a value"},
		{"a vertical tab before the value", "\v{}", 0, "want a value"},
		{"a no-break space after the value", "{}\u00A0", 2, "want nothing after the value"},
		{"ill-formed UTF-8 outside strings", "[\xFF]", 1, "want a value"},
	} {
		t.Run(c.name+" is refused where it stands", func(t *testing.T) {
			var d jsjson.Doc
			err := d.Parse([]byte(c.src))
			var syntax *jsjson.SyntaxError
			if !errors.As(err, &syntax) {
				t.Fatalf("got %v, want a SyntaxError", err)
			}
			if syntax.Offset != c.offset || syntax.Reason != c.reason {
				t.Errorf("got %d, %q; want %d, %q", syntax.Offset, syntax.Reason, c.offset, c.reason)
			}
			if want := fmt.Sprintf("read JSON: at byte %d: %s", c.offset, c.reason); err.Error() != want {
				t.Errorf("got %q, want %q", err, want)
			}
			if syntax.TooDeep() {
				t.Error("it is not too deep")
			}
		})
	}
}

func TestDepthIsBounded(t *testing.T) {
	for name, pair := range map[string][2]string{
		"arrays":  {"[", "]"},
		"objects": {`{"a":`, "}"},
		"both":    {`[{"a":`, "}]"},
	} {
		t.Run(name, func(t *testing.T) {
			levels := len(strings.Trim(pair[0], `"a:`))
			nest := func(n int) []byte {
				return []byte(strings.Repeat(pair[0], n) + "1" + strings.Repeat(pair[1], n))
			}
			var d jsjson.Doc
			src := nest(jsjson.MaxDepth / levels)
			if err := d.Parse(src); err != nil {
				t.Fatalf("%d levels: %v", jsjson.MaxDepth, err)
			}
			if got := d.Root().Append(nil, 0, 0); !bytes.Equal(got, src) {
				t.Error("the deepest document is not written as it was read")
			}
			if got := d.Root().Append(nil, 2, 1); int64(len(got)) > d.Root().Bound(2, 1) {
				t.Errorf("%d bytes, Bound says %d", len(got), d.Root().Bound(2, 1))
			}
			err := d.Parse(nest(jsjson.MaxDepth/levels + 1))
			var syntax *jsjson.SyntaxError
			if !errors.As(err, &syntax) || !syntax.TooDeep() {
				t.Fatalf("one level more: got %v, want too deep", err)
			}
			if err := d.Parse([]byte("[1]")); err != nil {
				t.Errorf("the document is not usable afterwards: %v", err)
			}
		})
	}
}

func TestManyShallowContainersAreNotDeep(t *testing.T) {
	checkDocument(t, []byte("["+strings.Repeat("[],{},", 5000)+"0]"))
}

func TestIllFormedUTF8IsReplacedByMaximalSubparts(t *testing.T) {
	for _, c := range []struct {
		raw  string
		want int // U+FFFD, section 8.6
	}{
		{"\xE2\x82", 1}, {"\xF0\x9F\x98", 1}, {"\xED\xA0\x80", 3}, {"\xC0\xAF", 2}, {"\xF5\x80", 2},
		{"\xE0\x80\x80", 3}, {"\xF4\x90\x80\x80", 4}, {"\x80", 1}, {"\xFF\xFE", 2}, {"\xC3", 1},
		{"\xF0\x90", 1}, {"\xF0\x80\x80\x80", 4}, {"\xF4\x8F\xBF", 1}, {"\xE2\x82\xE2\x82", 2},
		{"\xF0\x9F\xF0\x9F\x98", 2}, {"\xED\xA0\xBD\xED\xB8\x80", 6},
	} {
		for _, around := range [][2]string{{"", ""}, {"a", "b"}, {"€", "😀"}, {"0123456", "89abcdefgh"}} {
			raw := around[0] + c.raw + around[1]
			want := around[0] + strings.Repeat("\uFFFD", c.want) + around[1]
			if got := jsjson.ToWTF8([]byte(">"), []byte(raw)); string(got) != ">"+want {
				t.Errorf("ToWTF8(%q) = %q, want %q", raw, got, want)
			}
			if got := parse(t, `"`+raw+`"`).Text(); string(got) != want {
				t.Errorf("text of %q = %q, want %q", raw, got, want)
			}
			if got := parse(t, `"`+raw+`\n"`).Text(); string(got) != want+"\n" {
				t.Errorf("text of %q with an escape = %q, want %q", raw, got, want)
			}
			if got := jsjson.AppendString(nil, []byte(c.raw)); c.raw[0] != 0xED && string(got) != `"`+strings.Repeat("\uFFFD", c.want)+`"` {
				t.Errorf("AppendString(%q) = %q", c.raw, got)
			}
		}
	}
}

func TestReplacementAgreesWithItsDefinition(t *testing.T) {
	leads := []byte{0x00, 'a', 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF}
	r := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		raw := make([]byte, r.IntN(7))
		for i := range raw {
			raw[i] = leads[r.IntN(len(leads))]
		}
		got, want := jsjson.ToWTF8(nil, raw), string(utf16.Decode(units(raw)))
		if string(got) != want {
			t.Fatalf("ToWTF8(%x) = %x, want %x", raw, got, want)
		}
	}
}

func TestTextIsPartOfTheSourceWhenNothingNeedsDecoding(t *testing.T) {
	for text, aliases := range map[string]bool{
		`plain`: true, ``: true, `é€😀`: true, `a longer text, still plain`: true,
		`\n`: false, "\xFF": false, `é\u0041`: false,
	} {
		src := []byte(`["` + text + `"]`)
		var d jsjson.Doc
		if err := d.Parse(src); err != nil {
			t.Fatal(err)
		}
		for e := range d.Root().Elements() {
			got := e.Text()
			if got == nil {
				t.Errorf("text of %q is nil", text)
			}
			if len(got) == 0 {
				continue
			}
			if is := &got[0] == &src[2]; is != aliases {
				t.Errorf("text of %q aliases: %v, want %v", text, is, aliases)
			}
			if aliases && cap(got) != len(got) {
				t.Errorf("appending to the text of %q would change the source", text)
			}
		}
	}
}

func TestSurrogatesInText(t *testing.T) {
	for src, want := range map[string]string{
		`"\ud83d\ude00"`:        "😀",
		`"\uD83D\uDE00"`:        "😀",
		`"\ud800"`:              "\xED\xA0\x80",
		`"\udfff"`:              "\xED\xBF\xBF",
		`"\ude00\ud83d"`:        "\xED\xB8\x80\xED\xA0\xBD",
		`"\ud83d\ud83d\ude00"`:  "\xED\xA0\xBD😀",
		`"\ud83dx\ude00"`:       "\xED\xA0\xBDx\xED\xB8\x80",
		`"\ud83d\n\ude00"`:      "\xED\xA0\xBD\n\xED\xB8\x80",
		"\"\\ud83d\xED\xB8\x80": "",
	} {
		if want == "" {
			src += `"`
			want = "\xED\xA0\xBD\uFFFD\uFFFD\uFFFD" // a raw half is ill-formed and joins nothing
		}
		if got := parse(t, src).Text(); string(got) != want {
			t.Errorf("%s decodes to %x, want %x", src, got, want)
		}
	}
	// Halves that meet only in text put together outside are a pair to
	// ECMAScript.
	if got := jsjson.AppendString(nil, []byte("\xED\xA0\xBD\xED\xB8\x80")); string(got) != `"😀"` {
		t.Errorf("meeting halves are written as %s", got)
	}
}

func TestNumbers(t *testing.T) {
	for src, want := range map[string]float64{
		"0": 0, "7": 7, "123456789012345": 123456789012345, "1234567890123456": 1234567890123456, "-5": -5, "1e3": 1000,
		"9007199254740993": 9007199254740992, "1E400": math.Inf(1), "-1E400": math.Inf(-1), "5e-324": 5e-324, "1e-400": 0,
	} {
		if got := parse(t, src).Float(); got != want {
			t.Errorf("%s is %v, want %v", src, got, want)
		}
	}
	if f := parse(t, "-0").Float(); f != 0 || !math.Signbit(f) {
		t.Errorf("-0 is %v", f)
	}
	if !math.IsNaN(parse(t, `"1"`).Float()) || !math.IsNaN(jsjson.Node{}.Float()) {
		t.Error("what is no number is NaN")
	}
}

// A value as long as a line may be is still the double it says.
func TestVeryLongNumbers(t *testing.T) {
	zeros := strings.Repeat("0", 200_000)
	for name, c := range map[string]struct {
		src  string
		want float64
	}{
		"zeros taken back by the exponent":    {"1" + zeros + "e-200000", 1},
		"a fraction lifted by the exponent":   {"0." + zeros + "15e200001", 1.5},
		"negative":                            {"-0." + zeros + "15e200001", -1.5},
		"an exponent beyond any integer type": {"1e" + strings.Repeat("9", 2000), math.Inf(1)},
		"and a negative one":                  {"1e-" + strings.Repeat("9", 2000), 0},
		"zero with a large exponent":          {"0." + zeros + "e999999", 0},
		"an exponent with leading zeros":      {"2e+" + zeros + "3", 2000},
		"exactly half way":                    {"9007199254740993." + zeros, 9007199254740992},
		"just above half way":                 {"9007199254740993." + zeros + "1", 9007199254740994},
		"half way below the smallest":         {"2.4703282292062327208e-324" + "", 0},
		"many digits":                         {strings.Repeat("7", 5000) + "e-4999", 7.777777777777778},
	} {
		if got := parse(t, c.src).Float(); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestNumbersAreWrittenAsTheStandardSays(t *testing.T) {
	for f, want := range map[float64]string{
		math.NaN(): "null", math.Inf(1): "null", math.Inf(-1): "null", math.Copysign(0, -1): "0", 1: "1", -1: "-1", 100: "100",
		1e20: "100000000000000000000", 1e21: "1e+21", 123456789e13: "1.23456789e+21", 1e-6: "0.000001", 1e-7: "1e-7",
		1.5e-9: "1.5e-9", 1e100: "1e+100", 1e-100: "1e-100", 5e-324: "5e-324", math.MaxFloat64: "1.7976931348623157e+308", 0.1: "0.1",
	} {
		if got := jsjson.AppendNumber([]byte(">"), f); string(got) != ">"+want {
			t.Errorf("%v is written %s, want %s", f, got, want)
		}
	}
	r := rand.New(rand.NewPCG(7, 8))
	for range 20000 {
		f := math.Float64frombits(r.Uint64())
		if r.IntN(2) == 0 {
			f = float64(r.Int64N(1<<60)) * math.Pow(10, float64(r.IntN(40)-30))
		}
		got := string(jsjson.AppendNumber(nil, f))
		if want := modelNumber(f); got != want {
			t.Fatalf("%v is written %s, want %s", f, got, want)
		}
		if len(got) > 25 {
			t.Fatalf("%s is longer than Bound counts on", got)
		}
	}
}

func TestStringsAreEscapedOnlyWhereTheyMustBe(t *testing.T) {
	for text, want := range map[string]string{
		"":                              `""`,
		"\"\\/":                         `"\"\\/"`,
		"\x00\x01\b\t\n\v\f\r\x1F \x7F": `"\u0000\u0001\b\t\n\u000b\f\r\u001f ` + "\x7F\"",
		"<>&\u0080\u2028\u2029\uFEFF\uFFFE\uFFFF😀\U0010FFFF": "\"<>&\u0080\u2028\u2029\uFEFF\uFFFE\uFFFF😀\U0010FFFF\"",
		"\xED\xBF\xBF\xED\xA0\x80":                           `"\udfff\ud800"`,
	} {
		if got := jsjson.AppendString(nil, []byte(text)); string(got) != want {
			t.Errorf("%q is written %s, want %s", text, got, want)
		}
	}
}

func TestMembersAreOrderedAsECMAScriptDoes(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"indices come first, ascending", `{"b":1,"10":2,"9":3,"a":4,"0":5}`, `{"0":5,"9":3,"10":2,"b":1,"a":4}`},
		{"the largest index", `{"a":1,"4294967294":2}`, `{"4294967294":2,"a":1}`},
		{"one beyond the largest index", `{"a":1,"4294967295":2}`, `{"a":1,"4294967295":2}`},
		{"digits that are no index", `{"01":1,"-1":2,"1.5":3,"9007199254740991":4,"00":5,"1":6}`, `{"1":6,"01":1,"-1":2,"1.5":3,"9007199254740991":4,"00":5}`},
		{"an index in escapes", `{"a":1,"\u0031":2}`, `{"1":2,"a":1}`},
		{"a repeated name keeps its place and takes the last value", `{"a":1,"b":2,"a":3}`, `{"a":3,"b":2}`},
		{"names are equal after unescaping", `{"a":1,"b":2,"\u0061":[]}`, `{"a":[],"b":2}`},
		{"names are equal after replacement", "{\"\xFF\":1,\"b\":2,\"\xFE\":3,\"\\ufffd\":4}", "{\"\uFFFD\":4,\"b\":2}"},
		{"a repeated index", `{"1":1,"0":2,"1":3}`, `{"0":2,"1":3}`},
		{"lone surrogates differ", `{"\ud800":1,"\ud801":2,"\uD800":3}`, `{"\ud800":3,"\ud801":2}`},
		{"letter case matters", `{"a":1,"A":2}`, `{"a":1,"A":2}`},
		{"prototype names are plain", `{"__proto__":{"x":1},"constructor":2,"":3,"__proto__":{"y":1}}`, `{"__proto__":{"y":1},"constructor":2,"":3}`},
		{"every level", `[{"b":{"2":[{"1":0,"0":0}],"1":1}}]`, `[{"b":{"1":1,"2":[{"0":0,"1":0}]}}]`},
		{"a dropped copy is not written at all", `{"a":{"deep":[1,2,3]},"a":0}`, `{"a":0}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := parse(t, c.src).Append(nil, 0, 0); string(got) != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// Wide objects take another way than small ones; both must agree, and a hundred
// thousand repeated members must not take a quadratic time.
func TestWideObjects(t *testing.T) {
	for _, width := range []int{1, 11, 12, 13, 14, 31, 32, 33, 100, 1000} {
		r := rand.New(rand.NewPCG(9, uint64(width)))
		var b strings.Builder
		b.WriteByte('{')
		for i := range 2 * width {
			if i > 0 {
				b.WriteByte(',')
			}
			name := strconv.Itoa(r.IntN(width))
			switch r.IntN(4) {
			case 0:
				name = "n" + name
			case 1:
				name = `\u006e` + name
			case 2:
				name = "é" + name
			}
			fmt.Fprintf(&b, `"%s":%d`, name, i)
		}
		b.WriteByte('}')
		v, err := modelParse([]byte(b.String()))
		if err != nil {
			t.Fatal(err)
		}
		var want strings.Builder
		modelWrite(&want, v, "", "")
		if got := parse(t, b.String()).Append(nil, 0, 0); string(got) != want.String() {
			t.Fatalf("%d members: got\n%s, want\n%s", 2*width, got, want.String())
		}
	}
	var b strings.Builder
	for i := range 200_000 {
		fmt.Fprintf(&b, `,"member %d":%d`, i%100_000, i)
	}
	got := parse(t, "{"+b.String()[1:]+"}").Append(nil, 0, 0)
	if !bytes.HasPrefix(got, []byte(`{"member 0":100000,"member 1":100001,`)) || !bytes.HasSuffix(got, []byte(`,"member 99999":199999}`)) {
		t.Errorf("a wide object is written as %.60s … %s", got, got[len(got)-30:])
	}
}

func TestIndentIsWhatStringifyTakes(t *testing.T) {
	n := parse(t, `{"a":[1,{}],"b":[]}`)
	for indent, want := range map[int]string{
		0:  `{"a":[1,{}],"b":[]}`,
		-3: `{"a":[1,{}],"b":[]}`,
		1:  "{\n \"a\": [\n  1,\n  {}\n ],\n \"b\": []\n}",
		2:  "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}",
	} {
		if got := n.Append(nil, indent, 0); string(got) != want {
			t.Errorf("indent %d: got %s", indent, got)
		}
	}
	if !bytes.Equal(n.Append(nil, 99, 0), n.Append(nil, 10, 0)) {
		t.Error("JSON.stringify indents by 10 at most")
	}
}

func TestAnAbsentNodeAnswersAsNothing(t *testing.T) {
	var d jsjson.Doc
	for name, n := range map[string]jsjson.Node{
		"zero node": {}, "root of an unused document": d.Root(), "missing member": parse(t, `{"a":1}`).Get("b"), "member of a list": parse(t, `[]`).Get("a"),
	} {
		t.Run(name, func(t *testing.T) {
			if n != (jsjson.Node{}) || n.Kind() != jsjson.Absent || n.Raw() != nil || n.Text() != nil || n.Bool() || !math.IsNaN(n.Float()) {
				t.Error("it is not absent")
			}
			if n.Get("a") != (jsjson.Node{}) || len(n.Append(nil, 2, 0)) != 0 || n.Bound(2, 0) != 0 {
				t.Error("it holds something")
			}
			if v, copies, variants := n.Find("a"); v != (jsjson.Node{}) || copies != 0 || variants != 0 {
				t.Error("something was found in it")
			}
			for range n.Members() {
				t.Error("it has members")
			}
			for range n.Elements() {
				t.Error("it has elements")
			}
		})
	}
}

func TestAccessorsOfAnotherKindGiveNothing(t *testing.T) {
	for _, src := range []string{"null", "true", "1", `"true"`, "[true]", `{"a":"b"}`} {
		n := parse(t, src)
		if (n.Text() != nil) != (n.Kind() == jsjson.String) {
			t.Errorf("Text of %s is %q", src, n.Text())
		}
		if n.Bool() != (src == "true") {
			t.Errorf("Bool of %s is %v", src, n.Bool())
		}
		if math.IsNaN(n.Float()) != (n.Kind() != jsjson.Number) {
			t.Errorf("Float of %s is %v", src, n.Float())
		}
		if (n.Get("a").Kind() != jsjson.Absent) != (n.Kind() == jsjson.Object) {
			t.Errorf("Get of %s is %v", src, n.Get("a").Kind())
		}
		if string(n.Raw()) != src {
			t.Errorf("Raw of %s is %s", src, n.Raw())
		}
	}
	kinds := ""
	for e := range parse(t, ` [ null , false , 1 , "a" , [ ] , { } ] `).Elements() {
		kinds += e.Kind().String() + " " + string(e.Raw()) + "; "
	}
	if want := "null null; boolean false; number 1; text \"a\"; array [ ]; object { }; "; kinds != want {
		t.Errorf("got %s, want %s", kinds, want)
	}
}

func TestMembersAreYieldedAsTheyStand(t *testing.T) {
	var got []string
	n := parse(t, `{"b":[1,{"x":2}],"a":{"b":3},"\u0062":null}`)
	for name, value := range n.Members() {
		got = append(got, string(name.Text())+"="+string(value.Raw()))
	}
	if want := []string{`b=[1,{"x":2}]`, `a={"b":3}`, "b=null"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for name := range n.Members() {
		if string(name.Text()) != "b" {
			t.Error("the loop went on after break")
		}
		break
	}
	for e := range parse(t, "[1,2]").Elements() {
		if string(e.Raw()) != "1" {
			t.Error("the loop went on after break")
		}
		break
	}
}

func TestFindCountsCopiesAndVariants(t *testing.T) {
	for _, c := range []struct {
		name, src, member, want string
		copies, variants        int
	}{
		{"no member", `{"a":1}`, "b", "", 0, 0},
		{"one member", `{"a":1,"b":2}`, "b", "2", 1, 0},
		{"the last copy counts", `{"a":1,"b":0,"\u0061":2}`, "a", "2", 2, 0},
		{"letter case is a variant", `{"Pay_To":1,"pay_to":2,"PAY_TO":3}`, "pay_to", "2", 1, 2},
		{"a variant alone is not the member", `{"Seq":1}`, "seq", "", 0, 1},
		{"the Kelvin sign folds with k", `{"KELVIN":1,"kelvin":2}`, "kelvin", "2", 1, 1},
		{"the long s folds with s", `{"ſeq":1}`, "seq", "", 0, 1},
		{"a variant in escapes", `{"\u212Aind":1}`, "kind", "", 0, 1},
		{"sigma has three forms", `{"σ":1,"ς":2,"Σ":3}`, "Σ", "3", 1, 2},
		{"full folding is not simple folding", `{"straße":1}`, "STRASSE", "", 0, 0},
		{"capital sharp s folds simply", `{"straße":1}`, "STRAẞE", "", 0, 1},
		{"dotless i folds with nothing", `{"ıd":1}`, "id", "", 0, 0},
		{"lone surrogates are not each other's variants", `{"\ud800":1}`, "\xED\xA0\x81", "", 0, 0},
		{"a lone surrogate is found", `{"\ud800":1}`, "\xED\xA0\x80", "1", 1, 0},
		{"punctuation 32 apart is no variant", `{"[a]":1,"@":2}`, "{a}", "", 0, 0},
		{"nested members do not count", `{"x":{"a":1,"A":2},"a":3}`, "a", "3", 1, 0},
		{"the empty name", `{"":1}`, "", "1", 1, 0},
		{"a name of replaced bytes", "{\"\xFF\":1,\"\xC0\":2}", "\uFFFD", "2", 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := parse(t, c.src)
			v, copies, variants := n.Find(c.member)
			if string(v.Raw()) != c.want || copies != c.copies || variants != c.variants {
				t.Errorf("Find: got %s, %d, %d; want %s, %d, %d", v.Raw(), copies, variants, c.want, c.copies, c.variants)
			}
			if got := n.Get(c.member); got != v {
				t.Errorf("Get: got %s, want %s", got.Raw(), v.Raw())
			}
		})
	}
}

func TestFoldingIsSimpleFoldingOfEveryCharacter(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		folded := unicode.SimpleFold(r)
		if folded == r || !utf8.ValidRune(r) {
			continue
		}
		n := parse(t, `{"x`+string(r)+`y":1}`)
		if _, _, variants := n.Find("X" + string(folded) + "y"); variants != 1 {
			t.Errorf("%q is no variant of %q", folded, r)
		}
		if _, _, variants := n.Find("x" + string(folded) + "z"); variants != 0 {
			t.Errorf("xyz is a variant of xyy by %q", r)
		}
	}
	r := rand.New(rand.NewPCG(10, 11))
	letters := []rune("kKK\u017FsSßẞσςΣıiIİéÉé_[{@`")
	for range 20000 {
		var a, b strings.Builder
		for range 1 + r.IntN(3) {
			a.WriteRune(letters[r.IntN(len(letters))])
			b.WriteRune(letters[r.IntN(len(letters))])
		}
		_, copies, variants := parse(t, `{"`+a.String()+`":1}`).Find(b.String())
		if got, want := copies+variants == 1, strings.EqualFold(a.String(), b.String()); got != want {
			t.Fatalf("%q and %q: %v, want %v", a.String(), b.String(), got, want)
		}
	}
}

func randomUnits(r *rand.Rand) []uint16 {
	pick := []uint16{'a', 'b', 'z', 0, 0x7F, 0x80, 0x7FF, 0x800, 0xCFFF, 0xD000, 0xD7FF, 0xD800, 0xD801, 0xDBFF, 0xDC00, 0xDC01, 0xDFFF, 0xE000, 0xFB00, 0xFFFD, 0xFFFF}
	u := make([]uint16, r.IntN(6))
	for i := range u {
		u[i] = pick[r.IntN(len(pick))]
	}
	if r.IntN(2) == 0 {
		u = append(slices.Repeat([]uint16{'p'}, r.IntN(20)), u...)
	}
	return u
}

func TestComparisonIsByCodeUnit(t *testing.T) {
	for _, c := range []struct {
		name, less, more string
	}{
		{"a prefix sorts first", "a", "ab"},
		{"the empty text sorts first", "", "\x00"},
		{"astral characters sort before U+E000", "😀", "\uE000"},
		{"astral characters sort before ligatures", "😀", "ﬀ"},
		{"astral characters sort after U+D7FF", "\uD7FF", "😀"},
		{"lone surrogates take part with their value", "\uD7FF", "\xED\xA0\x80"},
		{"a lone high half sorts before a pair with it", "\xED\xA0\x80", "\U00010000"},
		{"a lone high half and a letter sort before the pair", "\xED\xA0\x80z", "\U00010000"},
		{"a lone high half and U+E000 sort after the pair", "\U00010000", "\xED\xA0\x80\uE000"},
		{"a higher lone half sorts after the pair", "\U00010000", "\xED\xAF\xBF"},
		{"a lone low half sorts after any pair", "\U0010FFFF", "\xED\xB0\x80"},
		{"case matters", "A", "a"},
		{"times sort as text", "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := []byte(c.less), []byte(c.more)
			if jsjson.Compare(a, b) != -1 || jsjson.Compare(b, a) != 1 || jsjson.Compare(a, a) != 0 || jsjson.Compare(b, b) != 0 {
				t.Errorf("Compare: %d, %d", jsjson.Compare(a, b), jsjson.Compare(b, a))
			}
			if bytes.Compare(jsjson.SortKey(nil, a), jsjson.SortKey(nil, b)) != -1 {
				t.Error("the sort keys disagree")
			}
		})
	}
	r := rand.New(rand.NewPCG(12, 13))
	for range 100_000 {
		x, y := randomUnits(r), randomUnits(r)
		if r.IntN(4) == 0 {
			y = append(x[:r.IntN(len(x)+1):len(x)], y...)
		}
		a, b := wtf8(x), wtf8(y)
		want := slices.Compare(x, y)
		if got := jsjson.Compare(a, b); got != want {
			t.Fatalf("Compare(%x, %x) = %d, want %d", x, y, got, want)
		}
		ka, kb := jsjson.SortKey([]byte("k"), a), jsjson.SortKey([]byte("k"), b)
		if got := bytes.Compare(ka, kb); got != want {
			t.Fatalf("sort keys of %x, %x: %d, want %d", x, y, got, want)
		}
		if got := jsjson.FromSortKey([]byte("t"), ka[1:]); string(got) != "t"+string(a) {
			t.Fatalf("sort key of %x read back as %x", a, got[1:])
		}
	}
}

func TestBlankIsWhatTrimLeavesNothingOf(t *testing.T) {
	blank := "\t\n\v\f\r \u00A0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200A\u2028\u2029\u202F\u205F\u3000\uFEFF"
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if !utf8.ValidRune(r) {
			continue
		}
		if got, want := jsjson.Blank([]byte(string(r))), strings.ContainsRune(blank, r); got != want {
			t.Errorf("%U: %v, want %v", r, got, want)
		}
	}
	for line, want := range map[string]bool{
		"": true, blank: true, blank + "x": false, "x" + blank: false, "\r": true, "\uFEFF\r": true,
		"\xFF": false, "\xC2": false, "\xED\xA0\x80": false, " \u0085": false, "\u180E": false, "\u200B": false, "\x00": false,
	} {
		if got := jsjson.Blank([]byte(line)); got != want {
			t.Errorf("%q: %v, want %v", line, got, want)
		}
	}
}

func TestReadingAllocatesNothing(t *testing.T) {
	lines := linesOf(t, longRun)[:200]
	var d jsjson.Doc
	var out []byte
	run := func() {
		for _, line := range lines {
			if err := d.Parse(line); err != nil {
				t.Fatal(err)
			}
			d.Root().Get("event_id").Text()
			d.Root().Find("payload")
			d.Root().Get("seq").Float()
			for name, value := range d.Root().Members() {
				name.Text()
				value.Kind()
			}
			out = d.Root().Append(out[:0], 2, 2)
		}
	}
	run()
	if n := testing.AllocsPerRun(5, run); n > 0 {
		t.Errorf("%v allocations for %d lines", n, len(lines))
	}
}

func TestAMonstrousTapeIsNotKept(t *testing.T) {
	var d jsjson.Doc
	if err := d.Parse([]byte("[" + strings.Repeat("0,", 300_000) + "0]")); err != nil {
		t.Fatal(err)
	}
	if err := d.Parse([]byte("[1,2]")); err != nil {
		t.Fatal(err)
	}
	if got := string(d.Root().Append(nil, 0, 0)); got != "[1,2]" {
		t.Errorf("got %s", got)
	}
}

func FuzzDocument(f *testing.F) {
	for _, c := range golden(f) {
		f.Add(c[0])
	}
	for _, line := range linesOf(f, vectors) {
		if len(line) < 4096 {
			f.Add(line)
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) { checkDocument(t, src) })
}

func FuzzText(f *testing.F) {
	f.Add([]byte("😀"), []byte("ﬀ"))
	f.Add([]byte("\xED\xA0\x80"), []byte("\U00010000"))
	f.Add([]byte("\xE2\x82"), []byte("\xF4\x90\x80\x80"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if got, want := jsjson.ToWTF8(nil, a), string(utf16.Decode(units(a))); string(got) != want {
			t.Fatalf("ToWTF8(%x) = %x, want %x", a, got, want)
		}
		var d jsjson.Doc
		for _, text := range [][]byte{a, b} {
			// Any bytes are written as JSON.
			if err := d.Parse(jsjson.AppendString(nil, text)); err != nil {
				t.Fatalf("AppendString(%x) is not JSON: %v", text, err)
			}
			jsjson.Blank(text)
		}
		x, y := units(a), units(b)
		a, b = wtf8(x), wtf8(y)
		want := slices.Compare(x, y)
		if got := jsjson.Compare(a, b); got != want {
			t.Fatalf("Compare(%x, %x) = %d, want %d", a, b, got, want)
		}
		if got := bytes.Compare(jsjson.SortKey(nil, a), jsjson.SortKey(nil, b)); got != want {
			t.Fatalf("sort keys of %x, %x: %d, want %d", a, b, got, want)
		}
		if got := jsjson.FromSortKey(nil, jsjson.SortKey(nil, a)); !bytes.Equal(got, a) {
			t.Fatalf("sort key of %x read back as %x", a, got)
		}
	})
}
