package assemble

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// Cases of the vectors' kinds; the documents were made by JavaScript itself,
// from the words of the contract.
func TestHeldOutCases(t *testing.T) {
	data, err := os.ReadFile("testdata/heldout.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range bytes.Split(bytes.TrimSpace(data), []byte("\n")) {
		var c struct {
			Name, Template, Document string
			Run                      []byte
		}
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		t.Run(c.Name, func(t *testing.T) {
			src := []byte(c.Template)
			if IsName(c.Template) {
				src = Builtin(c.Template)
			}
			template, _, err := ParseTemplate(src)
			if err != nil {
				t.Fatal(err)
			}
			run, err := Assemble(template, c.Run)
			if err != nil {
				var e *LineError
				if !errors.As(err, &e) || c.Document != fmt.Sprint("error ", e.Line) {
					t.Errorf("got %v, want %.40s", err, c.Document)
				}
				return
			}
			if got := document([]Built{{ID: "r", Run: run}}); string(got) != c.Document {
				t.Errorf("differs: %s", firstDifference(got, []byte(c.Document)))
			}
			checkJudge(t, template, run)
			checkOne(t, template, c.Run, run)
		})
	}
}

func TestSplitLinesDropsWhatFollowsTheLastLineFeed(t *testing.T) {
	for _, c := range []struct {
		data string
		want []string
	}{
		{"", nil},
		{"torn", nil},
		{"\n", []string{"1:"}},
		{"a\n", []string{"1:a"}},
		{"a\r\n\nb\rc\n{}", []string{"1:a\r", "2:", "3:b\rc"}},
	} {
		var got []string
		for n, line := range SplitLines([]byte(c.data)) {
			got = append(got, fmt.Sprintf("%d:%s", n, line))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.data, got, c.want)
		}
	}
	for range SplitLines([]byte("a\nb\n")) {
		break // an early end must not panic
	}
}

func TestOneRefusesWhatIsNotOneOperation(t *testing.T) {
	tp, _, err := ParseTemplate([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	a, b, none := `{"context_id":"a"}`, `{"context_id":"b"}`, `{"context_id":""}`
	for _, c := range []struct {
		name  string
		lines []string
		says  string
	}{
		{"no line", nil, "without events"},
		{"another operation", []string{a, a, b}, "line 3: the event belongs to another operation"},
		{"null and text", []string{a, `{"context_id":null}`}, "line 2: the event belongs to another operation"},
		{"no operation", []string{none}, "line 1: the event belongs to no operation"},
		{"no operation later", []string{a, `1`}, "line 2: the event belongs to no operation"},
		{"not JSON", []string{a, `{`}, "line 2: not JSON"},
		{"null", []string{`null`}, "line 1: null is not an event"},
		{"a number as id", []string{`{"context_id":1}`}, "line 1: context_id is neither text nor null"},
	} {
		var lines [][]byte
		for _, l := range c.lines {
			lines = append(lines, []byte(l))
		}
		if r, err := One(tp, lines); r != nil || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestReceiptAccessors(t *testing.T) {
	tp, _, err := ParseTemplate(Builtin("x402-buyer"))
	if err != nil {
		t.Fatal(err)
	}
	run, err := Assemble(tp, []byte(`{"event_id":"1","event_type":"x402.payment.submitted","role":"client","occurred_at":"t","seq":1,"context_id":"\ud83d"}
{"event_id":"2","event_type":"x402.payment.submitted","role":"client","occurred_at":"t","seq":2,"context_id":"\ud83d"}
{"event_id":"3","event_type":"x402.payment.failed","role":"client","occurred_at":"t","seq":3,"context_id":"\ud83d"}
{"event_id":"4","event_type":"x402.payment.submitted","occurred_at":"t","seq":4,"context_id":null}
`))
	if err != nil {
		t.Fatal(err)
	}
	r := run.Receipts[0]
	want := []StageState{{"challenge", true, false, 0}, {"payment", true, true, 2}, {"settlement", true, false, 0}}
	if string(r.OperationID()) != "\xed\xa0\xbd" || r.Null() || r.Full() || r.Completeness() != "partial" || r.EventCount() != 3 || r.Template() != tp ||
		!slices.Equal(r.Missing(), []string{"challenge", "settlement"}) || !slices.Equal(r.Stages(), want) ||
		!slices.Equal(r.Exceptions(), []string{"x402.payment.failed"}) || !r.Verdict().Open() {
		t.Errorf("got %q %v %v %s %d %v %v %v %+v", r.OperationID(), r.Null(), r.Full(), r.Completeness(), r.EventCount(), r.Missing(), r.Stages(), r.Exceptions(), r.Verdict())
	}
	if null := run.Receipts[1]; !null.Null() || null.OperationID() != nil || null.Verdict().Open() {
		t.Errorf("the null operation: %v %q", null.Null(), null.OperationID())
	}
}

func TestAppendMembers(t *testing.T) {
	tp, _, err := ParseTemplate([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	r, err := One(tp, [][]byte{[]byte(`{"event_id":"1","event_type":"probe.seen","context_id":"a","payload":{"x":[]}}`)})
	if err != nil {
		t.Fatal(err)
	}
	for _, indent := range []int{0, 2} {
		for _, depth := range []int{0, 3} {
			whole := string(r.Append(nil, indent, depth))
			open, shut := "{", "}"
			if indent > 0 {
				open = "{\n" + strings.Repeat(" ", indent*(depth+1))
				shut = "\n" + strings.Repeat(" ", indent*depth) + "}"
			}
			if got := open + string(r.AppendMembers([]byte(""), MemberOptions{Indent: indent, Depth: depth})) + shut; got != whole {
				t.Errorf("indent %d, depth %d: got %s\nwant %s", indent, depth, got, whole)
			}
		}
	}
	got := string(r.AppendMembers([]byte("x"), MemberOptions{OmitEvents: true}))
	want := `x"operation":{"template":"probe","version":1,"operation_id":"a"},"completeness":"full",` +
		`"stages":[{"id":"seen","required":true,"state":"confirmed","events":["1"]}],"missing":[],"exceptions":[],"events_omitted":1`
	if got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestBoundTellsAReceiptThatWouldGrow(t *testing.T) {
	tp, _, err := ParseTemplate([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	deep := strings.Repeat("[", 1000) + strings.Repeat("1,", 2000) + "1" + strings.Repeat("]", 1000)
	r, err := One(tp, [][]byte{[]byte(`{"event_id":` + deep + `,"event_type":"probe.seen","context_id":"a"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if n, bound := len(r.Append(nil, 2, 0)), r.Bound(2, 0); bound < int64(n) || bound > 20*int64(n) || n < 8e6 {
		t.Errorf("%d bytes, bound %d", n, bound)
	}
}

func TestAppendBuild(t *testing.T) {
	lib := Library{}
	res, err := lib.Resolve("x402-buyer", nil)
	if err != nil {
		t.Fatal(err)
	}
	run, err := Assemble(res.Template, []byte(`{"event_id":"1","event_type":"x402.payment.required","role":"client","context_id":"a"}
{"event_id":"2","event_type":"x402.payment.submitted","role":"client","context_id":"a"}
{"event_id":"3","event_type":"x402.payment.responded","role":"client","context_id":"a"}
{"event_id":"4","event_type":"x402.payment.responded","role":"client","context_id":"b"}
{"n":1}
`))
	if err != nil {
		t.Fatal(err)
	}
	runs := []Built{{ID: "r~1", Path: "/x/r~1.ndjson", Run: run}, {ID: "e", Path: "/x/e.ndjson", Run: &Run{}}}
	for _, status := range []string{"", "full", "partial"} {
		name := status
		if name == "" {
			name = "all"
		}
		golden(t, "build/"+name+".json", string(AppendBuild(nil, runs, res, status)))
	}
}

func TestFileName(t *testing.T) {
	for _, c := range []struct {
		run, op string
		null    bool
		want    string
	}{
		{"1777885200000", "8d1f-0d6e", false, "1777885200000~8d1f-0d6e.json"},
		{"a b", "x/y~z%", false, "a%0020b~x%002Fy%007Ez%0025.json"},
		{"r", "😀é", false, "r~%D83D%DE00%00E9.json"},
		{"r", "\xed\xa0\x80x", false, "r~%D800x.json"},
		{"r", "a.b_c-D9", false, "r~a.b_c-D9.json"},
		{"r", "\x00\n", false, "r~%0000%000A.json"},
		{"r", "", true, "r~operation.json"},
		{"r", "operation", false, "r~operation.json"},
		{".ndjson", "\uFFFD", false, ".ndjson~%FFFD.json"},
	} {
		if got := FileName([]byte(c.run), []byte(c.op), c.null); got != c.want {
			t.Errorf("%q %q: got %s, want %s", c.run, c.op, got, c.want)
		}
	}
}

func TestTextNumber(t *testing.T) {
	for s, want := range map[string]float64{
		"": 0, " ": 0, "\u00a0\uFEFF\n": 0, "10": 10, " 2 ": 2, "0x0B": 11, "0XfF": 255, "0b11": 3, "0O17": 15, "1e3": 1000, ".5": .5, "5.": 5,
		"-7": -7, "+7": 7, "007": 7, "1e400": math.Inf(1), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1), "+Infinity": math.Inf(1),
		"0x": nan, "-0x1": nan, "0x-1": nan, "0x_1": nan, "1_0": nan, "inf": nan, "nan": nan, "NaN": nan, "infinity": nan, "0x1p3": nan, "1,5": nan, "e1": nan, "-": nan, "1 2": nan, "\u00855": nan, "0b2": nan,
		"1" + strings.Repeat("0", 850) + "e-845": 100000, "1" + strings.Repeat("0", 900) + "x": nan, "1" + strings.Repeat("0", 900) + "..1": nan,
	} {
		if got := textNumber([]byte(s)); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("%q: got %v, want %v", s, got, want)
		}
	}
}

// The counts of testdata/runs/README.md: what the recorder's authors counted by
// hand.
func TestCountsOfTheRecordedRuns(t *testing.T) {
	f, err := os.Open(filepath.Join(runsDir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	heading := regexp.MustCompile("^\\| `([a-z0-9-]+)`: run \\|")
	root, name, rows := "", "", 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if s, ok := strings.CutPrefix(line, "## "); ok {
			root = s
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			name = m[1]
			continue
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if name == "" || !strings.HasPrefix(line, "|") || len(cells) != 8 {
			if !strings.HasPrefix(line, "|---") {
				name = ""
			}
			continue
		}
		tp, _, err := ParseTemplate(Builtin(name))
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(runsDir, root, "events", cells[0]+".ndjson"))
		if err != nil {
			t.Fatal(err)
		}
		run, err := Assemble(tp, data)
		if err != nil {
			t.Fatal(err)
		}
		events, full, open, faults := len(run.Unassigned), 0, 0, 0
		for _, r := range run.Receipts {
			events += r.EventCount()
			v := r.Verdict()
			for n, is := range map[*int]bool{&full: v.Full, &open: v.Open(), &faults: v.Fault} {
				if is {
					*n++
				}
			}
		}
		got := []string{cells[0]}
		for _, n := range []int{events, len(run.Receipts), full, len(run.Receipts) - full, open, faults, len(run.Unassigned)} {
			got = append(got, strconv.Itoa(n))
		}
		if !slices.Equal(got, cells) {
			t.Errorf("%s, %s: got %v, want %v", root, name, got, cells)
		}
		rows++
	}
	if rows < 15 {
		t.Errorf("only %d rows of counts were found", rows)
	}
}

var (
	someTypes = []string{"x.a", "x.b", "x.c", "x.d", "y"}
	someRoles = []string{"", "r", "q"}
)

func someTemplate(t *rapid.T) *Template {
	tp := &Template{Name: "t", Version: 1}
	for i := range rapid.IntRange(1, 4).Draw(t, "stages") {
		s := Stage{ID: strconv.Itoa(i), Required: rapid.Bool().Draw(t, "required")}
		for range rapid.IntRange(1, 3).Draw(t, "witnesses") {
			s.Match = append(s.Match, Witness{rapid.SampledFrom(someTypes).Draw(t, "event"), rapid.SampledFrom(someRoles).Draw(t, "role")})
		}
		tp.Stages = append(tp.Stages, s)
	}
	tp.Exceptions = rapid.SliceOfN(rapid.SampledFrom(someTypes), 0, 2).Draw(t, "exceptions")
	if rapid.Bool().Draw(t, "parsed") {
		tp.readings = tp.read()
	}
	return tp
}

func someRun(t *rapid.T) []string {
	role := rapid.SampledFrom([]string{"", `,"role":"r"`, `,"role":"q"`, `,"role":null`, `,"role":""`, `,"role":1`})
	operation := rapid.SampledFrom([]string{`"a"`, `"b"`, `"c"`, `""`, `null`, `"😀"`})
	n := rapid.IntRange(0, 30).Draw(t, "events")
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"event_id":"%d","event_type":%q,"occurred_at":"%d","seq":%d%s,"context_id":%s}`, i,
			rapid.SampledFrom(someTypes).Draw(t, "type"), rapid.IntRange(0, 3).Draw(t, "time"), rapid.IntRange(0, 3).Draw(t, "seq"), role.Draw(t, "role"), operation.Draw(t, "operation"))
	}
	return lines
}

// The verdict on a shape is the verdict of the receipt, and both are what the
// contract's words say, read naively.
func TestJudgeOfAShapeIsTheReceiptsVerdict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tp := someTemplate(t)
		run, err := Assemble(tp, []byte(strings.Join(someRun(t), "\n")+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range run.Receipts {
			pairs := shape(r)
			got := tp.Judge(pairs)
			if fmt.Sprint(got) != fmt.Sprint(r.Verdict()) {
				t.Fatalf("judged %+v, receipt %+v", got, r.Verdict())
			}
			var missing []string
			some, fault := false, false
			for _, s := range tp.Stages {
				seen := false
				for _, w := range s.Match {
					for _, p := range pairs {
						seen = seen || p.Type == w.Event && (w.Role == "" || p.HasRole && p.Role == w.Role)
					}
				}
				some = some || seen
				if s.Required && !seen {
					missing = append(missing, s.ID)
				}
			}
			for _, p := range pairs {
				fault = fault || tp.IsException(p.Type)
			}
			if got.Full != (some && missing == nil && !fault) || got.Fault != fault || !slices.Equal(got.Missing, missing) {
				t.Fatalf("judged %+v; missing %v, fault %v, some %v", got, missing, fault, some)
			}
			slices.Reverse(pairs)
			if fmt.Sprint(tp.Judge(append(pairs, pairs...))) != fmt.Sprint(got) {
				t.Fatal("the verdict depends on the order or the number of pairs")
			}
		}
	})
}

func TestOneIsAssembleForEachOperation(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		tp := someTemplate(rt)
		data := []byte(strings.Join(someRun(rt), "\n") + "\n")
		run, err := Assemble(tp, data)
		if err != nil {
			rt.Fatal(err)
		}
		checkOne(t, tp, data, run)
	})
}

// Records that differ in time, seq or id have one order, whatever order the file
// has them in.
func TestReceiptsDoNotDependOnTheOrderOfTheFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tp := someTemplate(t)
		lines := someRun(t)
		first, err := Assemble(tp, []byte(strings.Join(lines, "\n")+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		again, err := Assemble(tp, []byte(strings.Join(rapid.Permutation(lines).Draw(t, "order"), "\n")+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(document([]Built{{Run: first}}), document([]Built{{Run: again}})) {
			t.Fatal("the receipts differ")
		}
	})
}

func FuzzAssemble(f *testing.F) {
	files, _ := filepath.Glob(filepath.Join(parityDir, "*", "events", "*.ndjson"))
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && len(data) < 1<<14 {
			f.Add(data)
		}
	}
	tp, _, err := ParseTemplate(Builtin(DefaultTemplate))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		run, err := Assemble(tp, data)
		if err != nil {
			var e *LineError
			if run != nil || !errors.As(err, &e) || e.Line < 1 || e.Line > bytes.Count(data, []byte("\n")) {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		events := len(run.Unassigned)
		for _, r := range run.Receipts {
			events += r.EventCount()
			if bound := r.Bound(2, 4); bound < 1<<20 {
				text := r.Append(nil, 2, 4)
				if int64(len(text)) > bound {
					t.Fatalf("%d bytes, bound %d", len(text), bound)
				}
				if !json.Valid(text) {
					t.Fatalf("not JSON: %s", text)
				}
			}
			if fmt.Sprint(tp.Judge(shape(r))) != fmt.Sprint(r.Verdict()) {
				t.Fatal("judged otherwise than assembled")
			}
			if len(Explain(r)) > 16<<10 {
				t.Fatal("a long explanation")
			}
			FileName([]byte("r"), r.OperationID(), r.Null())
		}
		lines := 0
		for _, line := range SplitLines(data) {
			if !jsjson.Blank(line) {
				lines++
			}
		}
		if events != lines {
			t.Fatalf("%d lines, %d events", lines, events)
		}
		if !bytes.Equal(before, data) {
			t.Fatal("the run was changed")
		}
	})
}
