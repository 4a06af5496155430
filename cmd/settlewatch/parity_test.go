package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// cases are the golden vectors (trace contract, beginning).
func cases(t *testing.T) []string {
	t.Helper()
	table, err := os.ReadFile(filepath.Join("..", "..", "testdata", "parity", "cases.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(table)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
		dir := filepath.Join("..", "..", "testdata", "parity", name)
		if info, err := os.Stat(dir); err == nil && info.IsDir() && name != "" {
			names = append(names, dir)
		}
	}
	if len(names) < 60 {
		t.Fatalf("only %d vectors found", len(names))
	}
	return names
}

// templateOf is the path of a case's template.
func templateOf(t *testing.T, dir string) string {
	t.Helper()
	name, err := os.ReadFile(filepath.Join(dir, "template"))
	if errors.Is(err, fs.ErrNotExist) {
		return filepath.Join(dir, "template.yaml")
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "..", "templates", strings.TrimSpace(string(name))+".yaml")
}

// common leaves out of a build document what the vectors leave out: where
// things lie.
func common(t *testing.T, document string) string {
	t.Helper()
	var b strings.Builder
	after := false
	for line := range strings.Lines(document) {
		if line == "  \"template\": {\n" {
			text := strings.TrimSuffix(b.String(), ",\n")
			return text + "\n}\n"
		}
		if after && strings.HasPrefix(line, `      "path": `) {
			after = false
			continue
		}
		after = strings.HasPrefix(line, `      "run": `)
		b.WriteString(line)
	}
	t.Error("the document has no member template")
	return document
}

func TestBuildReproducesEveryVector(t *testing.T) {
	for _, dir := range cases(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			stdout, stderr, status := answer(t, "build", "--all", "--json", "--dir", dir, "--template", templateOf(t, dir))
			refused, err := os.ReadFile(filepath.Join(dir, "expected_error"))
			if err == nil {
				if status != 1 || stdout != "" {
					t.Errorf("status %d, stdout %q; expected a refusal: %s", status, stdout, refused)
				}
				checkRefusal(t, string(refused), stderr)
				return
			}
			want, err := os.ReadFile(filepath.Join(dir, "expected.json"))
			if err != nil {
				t.Fatal(err)
			}
			if status != 0 {
				t.Fatalf("status %d: %s", status, stderr)
			}
			if got := common(t, stdout); got != string(want) {
				t.Errorf("the documents differ at byte %d", diff(got, string(want)))
			}
		})
	}
}

// checkRefusal holds the run and line of a refusal to the vector's.
func checkRefusal(t *testing.T, want, stderr string) {
	t.Helper()
	var e struct {
		Error struct{ Code, Message, Hint string }
	}
	if err := json.Unmarshal([]byte(stderr), &e); err != nil || e.Error.Code == "" || e.Error.Message == "" {
		t.Errorf("stderr is no error document: %q", stderr)
	}
	where, _, _ := strings.Cut(want, ":")
	switch {
	case where == "template":
		if e.Error.Code != "E_TEMPLATE_INVALID" {
			t.Errorf("code %s, want E_TEMPLATE_INVALID", e.Error.Code)
		}
	case strings.HasPrefix(where, "line "), strings.HasPrefix(where, "run "):
		line := where[strings.Index(where, "line "):]
		if e.Error.Code != "E_RUN_DAMAGED" || !strings.Contains(e.Error.Message, line+":") {
			t.Errorf("%s: %s; want %s", e.Error.Code, e.Error.Message, where)
		}
		if run, ok := strings.CutPrefix(where, "run "); ok {
			run, _, _ = strings.Cut(run, ",")
			if !strings.Contains(e.Error.Message, strconv.Quote(run)) {
				t.Errorf("%s; want run %s", e.Error.Message, run)
			}
		}
	}
}

func diff(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// decodeName undoes the encoding of ids in receipt file names (trace contract,
// section 7), into WTF-8.
func decodeName(name string) string {
	var units []uint16
	for i := 0; i < len(name); i++ {
		if name[i] == '%' && i+5 <= len(name) {
			if n, err := strconv.ParseUint(name[i+1:i+5], 16, 16); err == nil {
				units = append(units, uint16(n))
				i += 4
				continue
			}
		}
		units = append(units, uint16(name[i]))
	}
	var b []byte
	for i := 0; i < len(units); i++ {
		r := rune(units[i])
		if r >= 0xd800 && r < 0xdc00 && i+1 < len(units) && units[i+1] >= 0xdc00 && units[i+1] < 0xe000 {
			r = (r-0xd800)<<10 + rune(units[i+1]) - 0xdc00 + 0x10000
			i++
		}
		switch {
		case r >= 0xd800 && r < 0xe000: // alone
			b = append(b, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
		default:
			b = append(b, string(r)...)
		}
	}
	return string(b)
}

func TestReceiptPrintsTheStoredBytes(t *testing.T) {
	t.Parallel()
	for _, dir := range cases(t) {
		files, _ := filepath.Glob(filepath.Join(dir, "receipts", "*.json"))
		if len(files) == 0 {
			continue
		}
		name := filepath.Base(dir)
		if strings.HasPrefix(name, "loose-") {
			continue // broken events are damage to the index, which leaves them out
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			index := filepath.Join(t.TempDir(), "index.db")
			for _, file := range files {
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				run, operation, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".json"), "~")
				args := []string{"receipt", "--json", "--dir", dir, "--index", index, "--template", templateOf(t, dir)}
				if bytes.Contains(want, []byte("\n    \"operation_id\": null\n")) {
					args = append(args, "--null-operation", "--", "run:"+decodeName(run))
				} else {
					args = append(args, "--", "run:"+decodeName(run), decodeName(operation))
				}
				stdout, stderr, status := answer(t, args...)
				if status != 0 {
					t.Errorf("%s: status %d: %s", file, status, stderr)
				} else if stdout != string(want) {
					t.Errorf("%s: differs at byte %d", file, diff(stdout, string(want)))
				}
			}
		})
	}
}

// The recorded runs under the template that fits each.
func TestBuildReproducesRecordedRuns(t *testing.T) {
	expected, err := filepath.Glob(filepath.Join("..", "..", "testdata", "runs", "*", "expected", "*.json"))
	if err != nil || len(expected) < 8 {
		t.Fatalf("%d expectations, %v", len(expected), err)
	}
	for _, file := range expected {
		root := filepath.Dir(filepath.Dir(file))
		if _, err := os.Stat(filepath.Join(root, "expected_error")); err == nil {
			continue
		}
		template := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(filepath.Base(root)+" by "+template, func(t *testing.T) {
			stdout, stderr, status := answer(t, "build", "--all", "--json", "--dir", root, "--template", template)
			if status != 0 {
				t.Fatalf("status %d: %s", status, stderr)
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got := common(t, stdout); got != string(want) {
				t.Errorf("the documents differ at byte %d", diff(got, string(want)))
			}
		})
	}
}
