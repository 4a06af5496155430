package yaml12

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// notation writes a node as JSON whose keys may be any node and whose numbers
// may be NaN or infinite: the form of testdata/corpus.ndjson.
func notation(b *strings.Builder, n *Node) {
	if n == nil {
		b.WriteString("null")
		return
	}
	switch n.Kind {
	case Mapping:
		b.WriteByte('{')
		for i, p := range n.Pairs {
			if i > 0 {
				b.WriteByte(',')
			}
			notation(b, p.Key)
			b.WriteByte(':')
			notation(b, p.Value)
		}
		b.WriteByte('}')
	case Sequence:
		b.WriteByte('[')
		for i, item := range n.Items {
			if i > 0 {
				b.WriteByte(',')
			}
			notation(b, item)
		}
		b.WriteByte(']')
	default:
		switch v := n.Value.(type) {
		case nil:
			b.WriteString("null")
		case string:
			quote(b, v)
		case float64:
			b.WriteString(number(v))
		default:
			fmt.Fprint(b, v)
		}
	}
}

func number(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case f == 0 || math.IsNaN(f) || math.Abs(f) >= 1e-6 && math.Abs(f) < 1e21:
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	return strings.NewReplacer("e-0", "e-", "e+0", "e+").Replace(s)
}

func quote(b *strings.Builder, s string) {
	named := map[byte]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\t': `\t`, '\n': `\n`, '\f': `\f`, '\r': `\r`}
	b.WriteByte('"')
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case named[c] != "":
			b.WriteString(named[c])
		case c < 0x20:
			fmt.Fprintf(b, `\u%04x`, c)
		case c == 0xED && i+2 < len(s) && s[i+1] >= 0xA0: // a lone surrogate
			fmt.Fprintf(b, `\u%04x`, 0xD000|int(s[i+1]&0x3F)<<6|int(s[i+2]&0x3F))
			i += 2
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
}

func read(t *testing.T, doc string) (string, error) {
	t.Helper()
	n, _, err := Parse([]byte(doc))
	if err != nil {
		var where *Error
		if !errors.As(err, &where) || where.Line < 1 || where.Column < 1 || where.Reason == "" {
			t.Errorf("%q: the error does not say where: %v", doc, err)
		}
		return "", err
	}
	var b strings.Builder
	notation(&b, n)
	return b.String(), nil
}

// The corpus was judged by the reader that templates are written for.
func TestCorpus(t *testing.T) {
	data, err := os.ReadFile("testdata/corpus.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	accepted := 0
	for i, line := range bytes.Split(bytes.TrimSpace(data), []byte("\n")) {
		var c struct {
			Doc     string
			Value   string
			Refused bool
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		got, err := read(t, c.Doc)
		switch {
		case c.Refused && err == nil:
			t.Errorf("line %d: %q must be refused, read as %s", i+1, c.Doc, got)
		case !c.Refused && err != nil:
			t.Errorf("line %d: %q must be read as %s: %v", i+1, c.Doc, c.Value, err)
		case got != c.Value:
			t.Errorf("line %d: %q\nread as %s\nwant    %s", i+1, c.Doc, got, c.Value)
		}
		if !c.Refused {
			accepted++
		}
	}
	if accepted < 200 {
		t.Errorf("only %d documents of the corpus are accepted ones", accepted)
	}
}

// Here the package goes its own way, as its documentation says.
func TestWhereTheDialectsBestKnownReaderStumbles(t *testing.T) {
	for _, c := range []struct{ name, doc, value string }{
		{"a comment without a space, left of a block value", "a:\n  b:\n#note\n    c\nd: 1\n", `{"a":{"b":"c"},"d":1}`},
		{"a blank line before a flow key", "a: 1\n\n[b]: 2\n", `{"a":1,["b"]:2}`},
		{"a comment at column one after an entry of a flow collection", "{a: 1\n#note\n}", `{"a":1}`},
		{"an empty flow entry with a property, its comma on the next line", "[!!str\n, b]", `["","b"]`},
		{"a tab-only line after a missing value", "a:\n\t\nb: 1\n", `{"a":null,"b":1}`},
		{"a list after a byte order mark", "\uFEFF- a\n- b\n", `["a","b"]`},
		{"a second value behind a flow collection", "a: [1]: b", ""},
		{"a nameless entry that is indented too far", "a: 1\n : b", ""},
		{"a key whose colon is on the next line", "a: 1\nb\n : 2", ""},
		{"content behind an explicit key that has no value", "? {a: 1}\n 1\n? b", ""},
		{"quotes that close with an escaped quote", `"a\"`, ""},
		{"three single quotes", "'''", ""},
		{"YAML 1.1", "%YAML 1.1\n---\na: yes", ""},
		{"the merge tag", "!!merge <<: {a: 1}", ""},
		{"a timestamp", "a: !!timestamp 2026-01-01", `{"a":tag:yaml.org,2002:timestamp}`},
		{"a set", "a: !!set {b, c}", `{"a":tag:yaml.org,2002:set}`},
	} {
		got, err := read(t, c.doc)
		if got != c.value || (err == nil) != (c.value != "") {
			t.Errorf("%s: got %s, %v; want %s", c.name, got, err, c.value)
		}
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	for _, c := range []struct {
		doc  string
		line int
		says string
	}{
		{"a: 1\nb: 2\na: 3\n", 3, "the same key twice"},
		{"a: 1\nb:\n\t- c\n", 3, "tab"},
		{"a: 1\n---\nb: 2\n", 2, "more than one document"},
		{"a: *b\n", 1, `alias "b" names no anchor`},
		{"a:\n  - @x\n", 2, `"@"`},
		{"a: b: c\n", 1, "a mapping cannot begin"},
		{"a: \"b\\q\"\n", 1, "an escape"},
		{"a: [b\n", 2, "not closed"},
		{"a: \"b\n", 1, "not closed"},
		{"a: 1\n b\n", 0, ""}, // one text over two lines
		{"a:\n  b: 1\n c: 2\n", 3, "indented"},
		{"key\n", 1, ""},
		{"a: 1\nkey\n", 2, `without a ":"`},
		{"%FOO\n%YAML 3\n---\n", 2, "version"},
	} {
		_, err := read(t, c.doc)
		if c.says == "" {
			if err != nil {
				t.Errorf("%q: %v", c.doc, err)
			}
			continue
		}
		var e *Error
		if !errors.As(err, &e) || e.Line != c.line || !strings.Contains(e.Reason, c.says) {
			t.Errorf("%q: got %v, want line %d: …%s…", c.doc, err, c.line, c.says)
		}
	}
}

func TestWarningsDoNotRefuse(t *testing.T) {
	for _, c := range []struct{ doc, says string }{
		{"%FOO bar\n---\na: 1", `line 1: unknown directive "%FOO"`},
		{"%YAML 1.3\n---\na: 1", "line 1: YAML 1.3 is read as 1.2"},
		{"a: 1\nb: !kind c", "line 2: the tag !kind"},
		{"a: !!int 2.5", "line 1: the tag !!int"},
		{"a: &b: c", "line 1: an anchor"},
		{"a: &b: c\nd: *b:", "line 2: an alias"},
		{"a: !!binary aGk=", "line 1: the tag !!binary"},
	} {
		n, warnings, err := Parse([]byte(c.doc))
		if err != nil || n == nil || len(warnings) == 0 || !strings.Contains(strings.Join(warnings, "\n"), c.says) {
			t.Errorf("%q: %v, %q; want a warning with %q", c.doc, err, warnings, c.says)
		}
	}
	if _, warnings, err := Parse([]byte("a: !!str 1\nb: ! 2\nc: !!map {}\nd: !!seq []\n")); err != nil || warnings != nil {
		t.Errorf("known tags warn: %v %q", err, warnings)
	}
}

func TestNodesKnowTheirPlace(t *testing.T) {
	n, _, err := Parse([]byte("a: 1\nb:\n  - x\n  - {k: \"v\"}\nc: &n\n  d: 2\ne: *n\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		n            *Node
		line, column int
	}{
		{n, 1, 1}, {n.Get("a"), 1, 4}, {n.Get("b"), 3, 3}, {n.Get("b").Items[0], 3, 5}, {n.Get("b").Items[1], 4, 5},
		{n.Get("b").Items[1].Get("k"), 4, 9}, {n.Get("c"), 6, 3},
	} {
		if c.n.Line != c.line || c.n.Column != c.column {
			t.Errorf("a node at %d:%d says %d:%d", c.line, c.column, c.n.Line, c.n.Column)
		}
	}
	if n.Get("e") != n.Get("c") {
		t.Error("an alias is not the node it names")
	}
	if n.Get("z") != nil {
		t.Error("a missing key has a value")
	}
}

func TestGetTakesTheLastOfTwoKeysThatReadTheSame(t *testing.T) {
	n, _, err := Parse([]byte("&k a: 1\n*k : 2\n")) // an alias is never compared
	if err != nil || n.Get("a").Value != 2.0 {
		t.Errorf("got %v, %v", n, err)
	}
}

func TestAnAliasMayNameWhatItIsIn(t *testing.T) {
	n, _, err := Parse([]byte("&a [*a, b]"))
	if err != nil || n.Items[0] != n {
		t.Errorf("got %v, %v", n, err)
	}
}

func TestTemplatesOfTheVectors(t *testing.T) {
	files, _ := filepath.Glob("../../testdata/parity/*/template.yaml")
	more, _ := filepath.Glob("../../testdata/parity/templates/*.yaml")
	if len(files) == 0 || len(more) != 4 {
		t.Fatalf("%d and %d templates found", len(files), len(more))
	}
	// Refused as YAML; the other refusals are of the template's own shape.
	refused := map[string]bool{"yaml-refuse-duplicate-key": true, "yaml-refuse-tab-indent": true, "yaml-refuse-two-documents": true}
	for _, f := range append(files, more...) {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Parse(src); (err != nil) != refused[filepath.Base(filepath.Dir(f))] {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// Documents made to be slow. Each takes milliseconds; one that took time by the
// square of its size would not end before the test is stopped.
func TestHostileDocumentsCostWhatTheirSizeCosts(t *testing.T) {
	r := strings.Repeat
	anchors := func(n int, each string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, each, i, i)
		}
		return b.String()
	}
	for name, doc := range map[string]string{
		"open lists":           r("[", MaxSize),
		"open mappings":        r("{a: ", MaxSize/4),
		"nested lists":         r("- ", MaxSize/2),
		"explicit keys":        r("? ", MaxSize/2),
		"flow keys":            r("[", 400) + "a" + r("]: b", 400),
		"nested pairs":         r("[", 490) + r("k: [v], ", MaxSize/9) + r("]", 490),
		"a line of quotes":     r("'a' ", MaxSize/4),
		"an unclosed quote":    "a: \"" + r("x\\\\", MaxSize/4),
		"one long text":        "a: " + r("b ", MaxSize/3),
		"many lines of text":   "a:\n" + r("  b\n", MaxSize/5),
		"blank lines":          "a: b\n" + r("\n", MaxSize/2) + "c: d",
		"spaces":               "a: \"b" + r(" ", MaxSize/2) + "\"",
		"spaces in a text":     "a: b" + r(" ", MaxSize/2) + "c",
		"a block of blanks":    "a: |\n" + r(" \n", MaxSize/3),
		"folded deep lines":    "a: >\n" + r("  x\n   y\n", MaxSize/12),
		"comments":             r("# c\n", MaxSize/5) + "a: 1",
		"anchors":              "[" + anchors(30000, "&a%d x, *a%d, ") + "]",
		"anchors in anchors":   r("&a [", 400) + r("x, ", MaxSize/4) + r("]", 400),
		"empty anchors used":   "a: &x [" + r("[],", 1000) + "]\nb: [" + r("*x,", MaxSize/4) + "]",
		"keys":                 anchors(40000, "k%d: %d\n"),
		"tags":                 r("- !a b\n", MaxSize/8),
		"document end markers": r("...\n", MaxSize/5),
		"carriage returns":     r("\r", MaxSize/2),
		"a long key":           r("k", MaxSize-10) + ": v",
		"laughs": "a: &a [x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n" +
			"d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d,*d]\n",
	} {
		t.Run(name, func(*testing.T) { _, _, _ = Parse([]byte(doc)) })
	}
	if _, _, err := Parse([]byte("a: 1" + r("\n", MaxSize))); err == nil {
		t.Error("a document beyond the limit is read")
	}
}

func FuzzParse(f *testing.F) {
	data, err := os.ReadFile("testdata/corpus.ndjson")
	if err != nil {
		f.Fatal(err)
	}
	for _, line := range bytes.Split(bytes.TrimSpace(data), []byte("\n")) {
		var c struct{ Doc string }
		if json.Unmarshal(line, &c) == nil && len(c.Doc) < 300 {
			f.Add([]byte(c.Doc))
		}
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		if len(src) > 1<<12 {
			return
		}
		before := bytes.Clone(src)
		n, _, err := Parse(src)
		if !bytes.Equal(before, src) {
			t.Fatal("the source was changed")
		}
		if (n != nil) && (err != nil) {
			t.Fatal("both a document and an error")
		}
		again, _, err2 := Parse(src)
		if fmt.Sprint(err) != fmt.Sprint(err2) || (n == nil) != (again == nil) {
			t.Fatal("two readings differ")
		}
		seen := map[*Node]bool{}
		var walk func(*Node)
		walk = func(n *Node) {
			if n == nil || seen[n] {
				return
			}
			seen[n] = true
			if n.Kind > Sequence {
				t.Fatal("an alias was left in the document")
			}
			for _, item := range n.Items {
				walk(item)
			}
			for _, p := range n.Pairs {
				walk(p.Key)
				walk(p.Value)
			}
		}
		walk(n)
	})
}

func BenchmarkParse(b *testing.B) {
	src, err := os.ReadFile("../../testdata/parity/templates/escrow-arc.yaml")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(src)))
	for b.Loop() {
		if _, _, err := Parse(src); err != nil {
			b.Fatal(err)
		}
	}
}
