package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"
)

// machine says where a table was made.
type machine struct {
	Processor string `json:"processor,omitempty"`
	Cores     int    `json:"cores"`
	System    string `json:"system"`
	Go        string `json:"go"`
	Load      string `json:"load,omitempty"` // one-minute average when the run began
	Date      string `json:"date"`
}

func thisMachine(now time.Time) machine {
	name, load := processor()
	return machine{
		Processor: name,
		Cores:     runtime.NumCPU(),
		System:    runtime.GOOS + "/" + runtime.GOARCH,
		Go:        runtime.Version(),
		Load:      load,
		Date:      now.UTC().Format(time.DateOnly),
	}
}

// report is a whole run of the benchmark.
type report struct {
	machine machine
	options options
	results []result
}

var columns = []string{"row", "what", "on", "measured", "reference", "result", "target", "goal", "verdict"}

func (r result) cells() []string {
	on := r.On
	if r.RefOn != "" && r.RefOn != r.On {
		on += " vs " + r.RefOn
	}
	cells := []string{r.name, r.what, on, "", "", "", r.now.show(r.show), r.goal.show(r.show), r.verdict()}
	if r.Skipped != "" {
		return cells
	}
	cells[3] = r.show(r.Value)
	if !r.alone() {
		cells[3] = r.metric.show(r.metric.of(r.Item))
		cells[4] = r.reference().show(r.reference().of(r.Ref))
	}
	cells[5] = r.show(r.Value)
	return cells
}

// conditions says in one line where and how the table was made.
func (r report) conditions() string {
	m := r.machine
	parts := []string{m.Date}
	if m.Processor != "" {
		parts = append(parts, m.Processor)
	}
	parts = append(parts, fmt.Sprintf("%d cores", m.Cores), m.System, m.Go, fmt.Sprintf("%d rounds", r.options.Rounds), fmt.Sprintf("seed %d", r.options.Seed))
	if m.Load != "" {
		parts = append(parts, "load "+m.Load)
	}
	if r.options.Quick {
		parts = append(parts, "quick sets: ratios are rough")
	}
	return strings.Join(parts, ", ")
}

// table is for people.
func (r report) table() string {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(cells []string) { _, _ = fmt.Fprintln(w, strings.Join(cells, "\t")) } // into memory
	line(columns)
	for _, res := range r.results {
		line(res.cells())
	}
	_ = w.Flush()
	out := r.conditions() + "\n\n"
	for l := range strings.Lines(b.String()) {
		out += strings.TrimRight(l, " \n") + "\n"
	}
	return out
}

func (r report) markdown() string {
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	b.WriteString(r.conditions() + "\n\n")
	line(columns)
	b.WriteString(strings.Repeat("|---", len(columns)) + "|\n")
	for _, res := range r.results {
		line(res.cells())
	}
	return b.String()
}

type jsonBound struct {
	Most  float64 `json:"most,omitempty"`
	Least float64 `json:"least,omitempty"`
}

func (b bound) json() *jsonBound {
	if b.none() {
		return nil
	}
	return &jsonBound{b.most, b.least}
}

type jsonRow struct {
	Row         string     `json:"row"`
	What        string     `json:"what"`
	On          string     `json:"on"`
	ReferenceOn string     `json:"reference_on,omitempty"`
	Rounds      int        `json:"rounds"`
	Measured    *sample    `json:"measured,omitempty"`
	Reference   *sample    `json:"reference,omitempty"`
	Result      *float64   `json:"result,omitempty"`
	Shown       string     `json:"shown,omitempty"`
	Target      *jsonBound `json:"target,omitempty"`
	Goal        *jsonBound `json:"goal,omitempty"`
	Verdict     string     `json:"verdict"`
}

// json is for programs. Measured and reference are the middle round's.
func (r report) json() ([]byte, error) {
	out := struct {
		Shape   string    `json:"shape"`
		Machine machine   `json:"machine"`
		Options options   `json:"options"`
		Rows    []jsonRow `json:"rows"`
	}{"bench/1", r.machine, r.options, []jsonRow{}}
	for _, res := range r.results {
		j := jsonRow{Row: res.name, What: res.what, On: res.On, ReferenceOn: res.RefOn, Rounds: res.Rounds, Target: res.now.json(), Goal: res.goal.json(), Verdict: res.verdict()}
		if res.Skipped == "" {
			j.Measured, j.Result, j.Shown = &res.Item, &res.Value, res.show(res.Value)
			if !res.alone() {
				j.Reference = &res.Ref
			}
		}
		out.Rows = append(out.Rows, j)
	}
	b, err := json.MarshalIndent(out, "", "  ")
	return append(b, '\n'), err
}

// The table of a document stands between these lines.
const (
	beginMark = "<!-- bench: the lines up to bench:end are written by `go run ./cmd/bench --write` -->"
	endMark   = "<!-- bench:end -->"
)

// insert puts the table into a document that has a place for it.
func insert(document []byte, table string) ([]byte, error) {
	before, rest, ok := bytes.Cut(document, []byte(beginMark+"\n"))
	_, after, ok2 := bytes.Cut(rest, []byte(endMark))
	if !ok || !ok2 {
		return nil, fmt.Errorf("write the table: the document has no place for it; try: add the lines %q and %q", beginMark, endMark)
	}
	var b bytes.Buffer
	b.Write(before)
	b.WriteString(beginMark + "\n\n" + table + "\n" + endMark)
	b.Write(after)
	return b.Bytes(), nil
}

func (r report) write(path string) error {
	document, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	if document, err = insert(document, r.markdown()); err != nil {
		return err
	}
	return os.WriteFile(path, document, 0o644)
}
