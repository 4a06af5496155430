package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the golden files anew")

// told is the demo as it is told at noon, on a screen of a width, with the ids of
// reviews, which are random, made one.
func told(t *testing.T, width int) string {
	t.Helper()
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	env := system()
	env.now = func() time.Time { return noon }
	var out, errs bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, env: env, width: width}
	root := a.root()
	root.SetArgs([]string{"demo"})
	if status := a.finish(t.Context(), a.execute(t.Context(), root)); status != 0 || errs.Len() > 0 {
		t.Fatalf("status %d, %s", status, errs.String())
	}
	if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 {
		t.Errorf("it leaves %q", left)
	}
	text := out.String()
	id := regexp.MustCompile(`r-[0-9a-f]{24}`).FindString(text)
	if id == "" {
		t.Fatalf("no review in\n%s", text)
	}
	const same = "r-5e77ab1e0000000000000000"
	text = strings.ReplaceAll(text, id, same)
	return strings.ReplaceAll(text, id[2:10], same[2:10])
}

func TestTheDemoTellsTheWholeStory(t *testing.T) {
	text := told(t, 0)
	golden := filepath.Join("testdata", "demo.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	now, before := strings.Split(text, "\n"), strings.Split(string(want), "\n")
	for i := range min(len(now), len(before)) {
		if now[i] != before[i] {
			t.Fatalf("line %d is\n%s\nand in %s (go test ./cmd/settlewatch -run Demo -update writes it anew)\n%s", i+1, now[i], golden, before[i])
		}
	}
	if len(now) != len(before) {
		t.Errorf("%d lines, and in %s %d", len(now), golden, len(before))
	}
}

func TestTheDemoIsReadableOnAScreen(t *testing.T) {
	if told(t, 0) != told(t, 80) {
		t.Error("what is no terminal is told something else than one of 80 columns")
	}
	for _, width := range []int{80, 60, 40} {
		for line := range strings.Lines(told(t, width)) {
			line = strings.TrimSuffix(line, "\n")
			// What is to be copied stands on one line.
			copied := strings.HasPrefix(strings.TrimPrefix(line, "  $"), " settlewatch ") || strings.HasPrefix(line, "  settlewatch ") && !strings.Contains(line, "  what ")
			if n := utf8.RuneCountInString(line); n > width && !copied && !strings.HasPrefix(line, "    ") {
				t.Errorf("width %d: a line of %d: %s", width, n, line)
			}
		}
	}
}

// On a terminal each scene is shown when it is done.
func TestADemoOnATerminalIsToldSceneByScene(t *testing.T) {
	var parts []string
	d := &demonstration{a: &app{stdout: writes(func(b []byte) { parts = append(parts, string(b)) })}, pace: 1}
	for _, text := range []string{"one", "two"} {
		d.a.say("%s", text)
		if err := d.pause(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "parts", parts, []string{"one\n", "two\n"})
	if d.a.out.Len() > 0 {
		t.Errorf("left is %q", d.a.out.String())
	}
}

type writes func([]byte)

func (w writes) Write(b []byte) (int, error) { w(b); return len(b), nil }

// shapeOf is every path of an event with the kind of value there.
func shapeOf(value any, path string, into map[string]bool) {
	switch v := value.(type) {
	case map[string]any:
		for name, member := range v {
			shapeOf(member, path+"."+name, into)
		}
	case []any:
		for _, element := range v {
			shapeOf(element, path+"[]", into)
		}
	case string:
		into[path+" text"] = true
	case float64:
		into[path+" number"] = true
	case bool:
		into[path+" flag"] = true
	}
}

func events(t *testing.T, text []byte) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range bytes.Lines(text) {
		var e map[string]any
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, e)
	}
	return all
}

func TestTheDemosEventsHaveTheShapeOfRecordedOnes(t *testing.T) {
	recorded := map[string]map[string]bool{} // by type of event
	runs, err := filepath.Glob(filepath.Join("..", "..", "testdata", "runs", "0*", "events", "*.ndjson"))
	if err != nil || len(runs) == 0 {
		t.Fatal(runs, err)
	}
	for _, run := range runs {
		text, err := os.ReadFile(run)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events(t, text) {
			kind := e["event_type"].(string)
			if recorded[kind] == nil {
				recorded[kind] = map[string]bool{}
			}
			shapeOf(e, "", recorded[kind])
		}
	}
	files, err := fs.Glob(demoTrace, "demo/*")
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	seq, ids := 0, map[any]bool{}
	for _, file := range files {
		text, err := demoTrace.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events(t, text) {
			shape := map[string]bool{}
			shapeOf(e, "", shape)
			for _, path := range slices.Sorted(maps.Keys(shape)) {
				if !recorded[e["event_type"].(string)][path] {
					t.Errorf("%s: no recorded %s has %s", file, e["event_type"], path)
				}
			}
			if e["seq"] != float64(seq) || ids[e["event_id"]] {
				t.Errorf("%s: seq %v where %d is due, id %v", file, e["seq"], seq, e["event_id"])
			}
			seq++
			ids[e["event_id"]] = true
		}
	}
}

func TestEventsAreMovedInTimeTogether(t *testing.T) {
	const before = `{"occurred_at":"2026-03-10T23:59:59.500Z","x":"occurred_at"}` + "\n" + `{"occurred_at":"2026-03-11T00:00:01.000Z"}` + "\n"
	const after = `{"occurred_at":"2026-03-01T12:00:00.000Z","x":"occurred_at"}` + "\n" + `{"occurred_at":"2026-03-01T12:00:01.500Z"}` + "\n"
	if got, err := redated([]byte(before), noon); err != nil || string(got) != after {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := redated([]byte(`{"occurred_at":"noon"}`), noon); err == nil {
		t.Error("noon is a time")
	}
}
