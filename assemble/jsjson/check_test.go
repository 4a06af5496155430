package jsjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// deeper reports whether a source opens more than n containers inside one
// another, counting brackets outside strings.
func deeper(src []byte, n int) bool {
	depth, inside := 0, false
	for i := 0; i < len(src); i++ {
		switch c := src[i]; {
		case inside && c == '\\':
			i++
		case c == '"':
			inside = !inside
		case inside:
		case c == '[' || c == '{':
			if depth++; depth > n {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}

// checkDocument holds everything that must be true of any source at all.
func checkDocument(t *testing.T, src []byte) {
	t.Helper()
	before := bytes.Clone(src)
	var d jsjson.Doc
	err := d.Parse(src)
	deep := deeper(src, jsjson.MaxDepth)
	if !deep && (err == nil) != json.Valid(jsjson.ToWTF8(nil, src)) {
		t.Fatalf("encoding/json disagrees on %q: we say %v", src, err)
	}
	if err != nil {
		var syntax *jsjson.SyntaxError
		if !errors.As(err, &syntax) || syntax.Offset < 0 || syntax.Offset > len(src) || syntax.Reason == "" {
			t.Fatalf("error of %q is not a sound SyntaxError: %#v", src, err)
		}
		if syntax.TooDeep() && !deep {
			t.Fatalf("%q is not too deep", src)
		}
		if d.Root().Kind() != jsjson.Absent {
			t.Fatalf("a refused document has a root")
		}
		return
	}
	if deep {
		t.Fatalf("a document deeper than %d was accepted", jsjson.MaxDepth)
	}
	root := d.Root()
	checkNode(t, root)

	compact := root.Append(nil, 0, 0)
	indented := root.Append(nil, 2, 0)
	if !json.Valid(compact) {
		t.Fatalf("%q was written as %q, which is not JSON", src, compact)
	}
	for indent, out := range map[int][]byte{0: compact, 2: indented} {
		if bound := root.Bound(indent, 0); int64(len(out)) > bound {
			t.Fatalf("%q takes %d bytes, Bound says %d", src, len(out), bound)
		}
	}
	// Written once, a document is its own canonical form, whichever way it was
	// laid out.
	for _, form := range [][]byte{compact, indented} {
		var again jsjson.Doc
		if err := again.Parse(form); err != nil {
			t.Fatalf("read back %q: %v", form, err)
		}
		if got := again.Root().Append(nil, 0, 0); !bytes.Equal(got, compact) {
			t.Fatalf("writing %q again gave %q", compact, got)
		}
		if got := again.Root().Append(nil, 2, 0); !bytes.Equal(got, indented) {
			t.Fatalf("indenting %q again gave %q", indented, got)
		}
	}
	var other bytes.Buffer
	if err := json.Compact(&other, indented); err != nil || !bytes.Equal(other.Bytes(), compact) {
		t.Fatalf("indented form %q does not compact to %q", indented, compact)
	}
	other.Reset()
	if err := json.Indent(&other, compact, "", "  "); err != nil || !bytes.Equal(other.Bytes(), indented) {
		t.Fatalf("compact form %q does not indent to %q", compact, indented)
	}
	// At a depth it is the same but for more space on every line but the first.
	if got, want := string(root.Append([]byte("x"), 2, 3)), "x"+strings.ReplaceAll(string(indented), "\n", "\n      "); got != want {
		t.Fatalf("at depth 3: got %q, want %q", got, want)
	}

	if len(src) < 4096 && !deeper(src, 200) {
		v, err := modelParse(src)
		if err != nil {
			t.Fatalf("the model refuses %q: %v", src, err)
		}
		var b strings.Builder
		modelWrite(&b, v, "", "")
		if b.String() != string(compact) {
			t.Fatalf("%q was written as\n%s, the model says\n%s", src, compact, b.String())
		}
		b.Reset()
		modelWrite(&b, v, "  ", "")
		if b.String() != string(indented) {
			t.Fatalf("%q was indented as\n%s, the model says\n%s", src, indented, b.String())
		}
		checkModel(t, root, v)
	}
	if !bytes.Equal(src, before) {
		t.Fatalf("the source was changed: %q, was %q", src, before)
	}
}

// checkNode walks a document by its accessors.
func checkNode(t *testing.T, n jsjson.Node) {
	switch n.Kind() {
	case jsjson.String:
		if n.Text() == nil {
			t.Fatalf("text of %q is nil", n.Raw())
		}
		key := jsjson.SortKey(nil, n.Text())
		if got := jsjson.FromSortKey(nil, key); !bytes.Equal(got, n.Text()) {
			t.Fatalf("sort key of %q is read back as %q", n.Text(), got)
		}
		if got := jsjson.AppendString(nil, n.Text()); !bytes.Equal(got, n.Append(nil, 0, 0)) {
			t.Fatalf("%q: AppendString gives %q, Append %q", n.Raw(), got, n.Append(nil, 0, 0))
		}
	case jsjson.Number:
		if math.IsNaN(n.Float()) {
			t.Fatalf("%q is NaN", n.Raw())
		}
		if got := jsjson.AppendNumber(nil, n.Float()); !bytes.Equal(got, n.Append(nil, 0, 0)) {
			t.Fatalf("%q: AppendNumber gives %q, Append %q", n.Raw(), got, n.Append(nil, 0, 0))
		}
	case jsjson.Array:
		for e := range n.Elements() {
			checkNode(t, e)
		}
	case jsjson.Object:
		seen := 0
		for name, value := range n.Members() {
			if seen++; seen > 50 {
				break // Get and Find are linear
			}
			checkNode(t, name)
			checkNode(t, value)
			last, copies := jsjson.Node{}, 0
			for other, v := range n.Members() {
				if bytes.Equal(other.Text(), name.Text()) {
					last = v
					copies++
				}
			}
			if got := n.Get(string(name.Text())); got != last {
				t.Fatalf("Get(%q) of %q is %q, want %q", name.Text(), n.Raw(), got.Raw(), last.Raw())
			}
			got, c, variants := n.Find(string(name.Text()))
			if got != last || c != copies {
				t.Fatalf("Find(%q) of %q is %q, %d copies; want %q, %d", name.Text(), n.Raw(), got.Raw(), c, last.Raw(), copies)
			}
			if variants < 0 {
				t.Fatal("variants below zero")
			}
		}
	}
}

// checkModel compares decoded values with the model's, members by last copy.
func checkModel(t *testing.T, n jsjson.Node, v any) {
	switch v := v.(type) {
	case nil:
		if n.Kind() != jsjson.Null {
			t.Fatalf("%q is %v, want null", n.Raw(), n.Kind())
		}
	case bool:
		if n.Kind() != jsjson.Bool || n.Bool() != v {
			t.Fatalf("%q is %v %v, want %v", n.Raw(), n.Kind(), n.Bool(), v)
		}
	case float64:
		if n.Float() != v {
			t.Fatalf("%q is %v, want %v", n.Raw(), n.Float(), v)
		}
	case []uint16:
		if want := wtf8(v); !bytes.Equal(n.Text(), want) {
			t.Fatalf("%q decodes to %q, want %q", n.Raw(), n.Text(), want)
		}
	case []any:
		i := 0
		for e := range n.Elements() {
			checkModel(t, e, v[i])
			i++
		}
		if i != len(v) {
			t.Fatalf("%q has %d elements, want %d", n.Raw(), i, len(v))
		}
	case *modelObject:
		for i := range v.names {
			checkModel(t, n.Get(string(wtf8(v.names[i]))), v.values[i])
		}
	}
}

// golden is testdata/stringify.golden: what an ECMAScript engine makes of the
// sources in it. Three lines a case: the source as bytes, the compact form, and
// the form indented by 2 as a JSON string. A refused source has "refused" and an
// empty line instead.
func golden(tb testing.TB) (cases [][3][]byte) {
	tb.Helper()
	data, err := os.ReadFile("testdata/stringify.golden")
	if err != nil {
		tb.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
	for lines := range slices.Chunk(lines, 3) {
		if len(lines) != 3 {
			tb.Fatal("the golden file is cut short")
		}
		cases = append(cases, [3][]byte(lines))
	}
	return cases
}

// The lines of the parity vectors, and of a long run.
const vectors, longRun = "parity/*", "runs/14-long-run"

// linesOf is the lines of run files of the test data.
func linesOf(tb testing.TB, roots string) (lines [][]byte) {
	tb.Helper()
	names, err := filepath.Glob("../../testdata/" + roots + "/events/*.ndjson")
	if err != nil || len(names) == 0 {
		tb.Fatalf("find %s: %v, %d files", roots, err, len(names))
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			lines = append(lines, bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	return lines
}

// pieces are what random strings are made of: everything that is special to
// some rule, and fillers of many lengths so that it falls on every position of
// a word.
var pieces = []string{
	"a", "b", "é", "€", "😀", "\u2028", "\uFEFF", "\x7F", "\u0080", "\uE000", "\uFFFF",
	`\u0061`, `\ud83d`, `\ude00`, `\uDBFF`, `\uDC00`, `\u0000`, `\u001F`, `\n`, `\/`, `\"`, `\\`, `\b`, `\u005C`, `\uFFFD`,
	"/", "<", "'", "0", "1", "10", "-", "4294967295", "__proto__", "a longer run of text", "seven77", "eight888",
	"\xE2\x82", "\xF0\x9F\x98", "\xED\xA0\x80", "\xC0\xAF", "\xF5\x80", "\xE0\x80\x80", "\xF4\x90\x80\x80", "\xFF", "\x80",
}

var names = []string{
	`"a"`, `"b"`, `"A"`, `"0"`, `"1"`, `"2"`, `"10"`, `"01"`, `"-1"`, `"4294967294"`, `"4294967295"`, `"__proto__"`,
	`"\u0061"`, `""`, `"\u0031"`, `"00"`, "\"\xFF\"", "\"\xFE\"", `"\ufffd"`, `"\ud800"`, `"\ud801"`,
}

var numbers = []string{
	"0", "-0", "-0.0", "1", "12", "-3", "1.0", "1E+2", "1e20", "1e21", "1e-6", "1e-7", "5e-324", "1E400", "-1E400", "-1e-400",
	"9007199254740993", "123456789012345", "1234567890123456", "0.1", "1.7976931348623158e308", "2.4703282292062327e-324",
}

var flaws = []string{"01", "1.", ".5", "+1", "-", "1e", "nul", "True", "'a'", `"\x"`, `"\u12"`, "\"\t\"", `"`, "[", "}", ",", "\u00A0", "\x00"}

func randomSpace(r *rand.Rand) string {
	return []string{"", "", "", "", " ", "\t", "\r\n", "  "}[r.IntN(8)]
}

func randomText(r *rand.Rand) string {
	n := r.IntN(6)
	if r.IntN(10) == 0 {
		n = r.IntN(30)
	}
	var b strings.Builder
	b.WriteByte('"')
	for range n {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	b.WriteByte('"')
	return b.String()
}

// randomDocument is mostly JSON; flawed ones now and then hold a flaw.
func randomDocument(r *rand.Rand, depth int, flawed bool) string {
	v := ""
	kind := r.IntN(7)
	if depth > 4 {
		kind = r.IntN(4)
	}
	switch kind {
	case 0, 1:
		v = randomText(r)
	case 2:
		v = numbers[r.IntN(len(numbers))]
	case 3:
		v = []string{"true", "false", "null"}[r.IntN(3)]
	case 4:
		var list []string
		for range r.IntN(5) {
			list = append(list, randomDocument(r, depth+1, flawed))
		}
		v = "[" + strings.Join(list, ",") + randomSpace(r) + "]"
	default:
		n := r.IntN(8)
		if r.IntN(12) == 0 {
			n = r.IntN(80)
		}
		var list []string
		for range n {
			name := names[r.IntN(len(names))]
			if r.IntN(3) == 0 {
				name = randomText(r)
			}
			list = append(list, randomSpace(r)+name+randomSpace(r)+":"+randomDocument(r, depth+2, flawed))
		}
		v = "{" + strings.Join(list, ",") + "}"
	}
	if flawed && r.IntN(60) == 0 {
		v = flaws[r.IntN(len(flaws))]
	}
	return randomSpace(r) + v + randomSpace(r)
}
