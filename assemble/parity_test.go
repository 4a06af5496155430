package assemble

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

const (
	parityDir = "../testdata/parity"
	runsDir   = "../testdata/runs"
)

type runFile struct {
	id   string // WTF-8
	data []byte
}

// listRuns reads the run files of a root in listing order (trace contract,
// section 2).
func listRuns(t *testing.T, root string) []runFile {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, "events"))
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int {
		return jsjson.Compare(jsjson.ToWTF8(nil, []byte(a.Name())), jsjson.ToWTF8(nil, []byte(b.Name())))
	})
	var all []runFile
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(root, "events", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		id := e.Name()
		if id != ".ndjson" {
			id = strings.TrimSuffix(id, ".ndjson")
		}
		all = append(all, runFile{string(jsjson.ToWTF8(nil, []byte(id))), data})
	}
	return all
}

// document is what expected.json holds: the build document without what depends
// on where things lie.
func document(runs []Built) []byte {
	w := writer{indent: 2}
	w.open('{')
	w.runs(runs, "", false)
	w.close('}')
	return append(w.dst, '\n')
}

func firstDifference(got, want []byte) string {
	n := 0
	for n < len(got) && n < len(want) && got[n] == want[n] {
		n++
	}
	cut := func(b []byte) []byte { return b[min(max(n-60, 0), len(b)):min(n+60, len(b))] }
	return fmt.Sprintf("they part at byte %d (of %d and %d):\n got %q\nwant %q", n, len(got), len(want), cut(got), cut(want))
}

var expectedError = regexp.MustCompile(`^(?:run ([^,]+), )?line ([0-9]+): `)

func TestParityVectors(t *testing.T) {
	list, err := os.ReadFile(filepath.Join(parityDir, "cases.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for _, row := range strings.Split(strings.TrimSpace(string(list)), "\n")[1:] {
		name, _, _ := strings.Cut(row, "\t")
		cases++
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(parityDir, name)
			src, err := os.ReadFile(filepath.Join(dir, "template.yaml"))
			if err != nil {
				ref, err := os.ReadFile(filepath.Join(dir, "template"))
				if err != nil {
					t.Fatal(err)
				}
				src = Builtin(strings.TrimSpace(string(ref)))
			}
			refusal, _ := os.ReadFile(filepath.Join(dir, "expected_error"))
			template, _, err := ParseTemplate(src)
			if strings.HasPrefix(string(refusal), "template: ") {
				var e *TemplateError
				if !errors.As(err, &e) || e.Line == 0 {
					t.Fatalf("the template must be refused (%s) with its line: %v", refusal, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var built []Built
			var refused []string
			for _, r := range listRuns(t, dir) {
				run, err := Assemble(template, r.data)
				if err != nil {
					var e *LineError
					if !errors.As(err, &e) || run != nil {
						t.Fatalf("run %s: %v", r.id, err)
					}
					refused = append(refused, fmt.Sprintf("%s %d", r.id, e.Line))
					continue
				}
				built = append(built, Built{ID: r.id, Run: run})
				checkJudge(t, template, run)
				checkOne(t, template, r.data, run)
			}
			if m := expectedError.FindStringSubmatch(string(refusal)); m != nil {
				run := m[1]
				if run == "" {
					run = listRuns(t, dir)[0].id
				}
				if want := []string{run + " " + m[2]}; !slices.Equal(refused, want) {
					t.Errorf("refused %q, want %q", refused, want)
				}
				return
			}
			if len(refused) > 0 {
				t.Fatalf("refused %q", refused)
			}
			want, err := os.ReadFile(filepath.Join(dir, "expected.json"))
			if err != nil {
				t.Fatal(err)
			}
			if got := document(built); !bytes.Equal(got, want) {
				t.Errorf("the document differs: %s", firstDifference(got, want))
			}
			checkReceiptFiles(t, filepath.Join(dir, "receipts"), built)
		})
	}
	if cases < 70 {
		t.Errorf("only %d cases", cases)
	}
}

// checkReceiptFiles compares every stored receipt, and that there is no other.
func checkReceiptFiles(t *testing.T, dir string, built []Built) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for _, e := range entries {
		left[e.Name()] = true
	}
	for _, b := range built {
		for _, r := range b.Run.Receipts {
			name := FileName([]byte(b.ID), r.OperationID(), r.Null())
			want, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Error(err)
				continue
			}
			delete(left, name)
			got := append(r.Append(nil, 2, 0), '\n')
			if !bytes.Equal(got, want) {
				t.Errorf("%s differs: %s", name, firstDifference(got, want))
			}
			if bound := r.Bound(2, 0); int64(len(got)) > bound {
				t.Errorf("%s has %d bytes, more than the bound %d", name, len(got), bound)
			}
		}
	}
	for name := range left {
		t.Errorf("no receipt for %s", name)
	}
}

// checkJudge compares the verdict on each operation's shape with its receipt.
func checkJudge(t *testing.T, template *Template, run *Run) {
	t.Helper()
	for _, r := range run.Receipts {
		if got, want := fmt.Sprint(template.Judge(shape(r))), fmt.Sprint(r.Verdict()); got != want {
			t.Errorf("operation %q: judged %s, receipt %s", r.OperationID(), got, want)
		}
	}
}

func shape(r *Receipt) []Pair {
	var pairs []Pair
	for _, e := range r.events {
		p := Pair{Type: string(e.typ), Role: string(e.role), HasRole: e.role != nil}
		if e.typ != nil && !slices.Contains(pairs, p) {
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// checkOne compares the receipt made of an operation's lines alone with the one
// made of the whole run.
func checkOne(t *testing.T, template *Template, data []byte, run *Run) {
	t.Helper()
	byID := map[string][][]byte{}
	var doc jsjson.Doc
	for _, line := range SplitLines(data) {
		if jsjson.Blank(line) {
			continue
		}
		e, err := decode(&doc, line)
		if err != nil {
			t.Fatal(err)
		}
		if e.owner != ownerNone {
			byID[fmt.Sprint(e.owner, string(e.operation))] = append(byID[fmt.Sprint(e.owner, string(e.operation))], line)
		}
	}
	for _, r := range run.Receipts {
		lines := byID[fmt.Sprint(r.events[0].owner, string(r.id))]
		one, err := One(template, lines)
		if err != nil {
			t.Errorf("operation %q: %v", r.OperationID(), err)
			continue
		}
		if got, want := one.Append(nil, 0, 0), r.Append(nil, 0, 0); !bytes.Equal(got, want) {
			t.Errorf("operation %q alone differs: %s", r.OperationID(), firstDifference(got, want))
		}
	}
	if len(byID) != len(run.Receipts) {
		t.Errorf("%d operations, %d receipts", len(byID), len(run.Receipts))
	}
}

func TestRecordedRuns(t *testing.T) {
	roots, err := filepath.Glob(filepath.Join(runsDir, "*", "events"))
	if err != nil || len(roots) < 10 {
		t.Fatalf("%d recorded roots, %v", len(roots), err)
	}
	for _, root := range roots {
		root = filepath.Dir(root)
		expected, err := filepath.Glob(filepath.Join(root, "expected", "*"))
		if err != nil || len(expected) == 0 {
			t.Fatalf("%s: nothing expected", root)
		}
		for _, file := range expected {
			ext := filepath.Ext(file)
			name := strings.TrimSuffix(filepath.Base(file), ext)
			t.Run(filepath.Base(root)+"/"+name, func(t *testing.T) {
				template, _, err := ParseTemplate(Builtin(name))
				if err != nil {
					t.Fatal(err)
				}
				var built []Built
				var sums strings.Builder
				for _, r := range listRuns(t, root) {
					run, err := Assemble(template, r.data)
					if err != nil {
						t.Fatal(err)
					}
					built = append(built, Built{ID: r.id, Run: run})
					checkJudge(t, template, run)
					checkOne(t, template, r.data, run)
					for _, receipt := range run.Receipts {
						sum := sha256.Sum256(append(receipt.Append(nil, 2, 0), '\n'))
						fmt.Fprintf(&sums, "%s %s %s\n", r.id, receipt.OperationID(), hex.EncodeToString(sum[:]))
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				got := []byte(sums.String())
				if ext == ".json" {
					got = document(built)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("differs: %s", firstDifference(got, want))
				}
			})
		}
	}
}

func BenchmarkAssemble(b *testing.B) {
	data, err := os.ReadFile(filepath.Join(runsDir, "14-long-run", "events", "1796031753779.ndjson"))
	if err != nil {
		b.Fatal(err)
	}
	template, _, err := ParseTemplate(Builtin(DefaultTemplate))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("receipts", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := Assemble(template, data); err != nil {
				b.Fatal(err)
			}
		}
	})
	run, err := Assemble(template, data)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("document", func(b *testing.B) {
		b.ReportAllocs()
		var dst []byte
		for b.Loop() {
			dst = AppendBuild(dst[:0], []Built{{ID: "1", Path: "p", Run: run}}, &Resolved{Template: template}, "")
		}
		b.SetBytes(int64(len(dst)))
	})
	b.Run("judge", func(b *testing.B) {
		pairs := shape(run.Receipts[0])
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if v := template.Judge(pairs); v.Full && len(v.Missing) > 0 {
				b.Fatal(strconv.Itoa(i))
			}
		}
	})
}
