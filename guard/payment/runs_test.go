package payment

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest/event"
)

const runsDir = "../../testdata/runs"

// operation is one operation of a recorded run, and what an indexer would keep
// of it.
type operation struct {
	run, id string
	state   State
}

type recorded struct {
	ops        []*operation
	unassigned []Fact
	blind      bool // the run has a session that cannot witness settlements
}

// load projects every run of a root, in file order.
func load(t testing.TB, dir string) map[string]*recorded {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "events", "*.ndjson"))
	if err != nil || len(files) == 0 {
		t.Fatalf("list the runs of %s: %v, %d files", dir, err, len(files))
	}
	runs := make(map[string]*recorded)
	var in Interner
	var doc jsjson.Doc
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		run := strings.TrimSuffix(filepath.Base(file), ".ndjson")
		r := &recorded{}
		runs[run] = r
		byID := make(map[string]*operation)
		for line := range bytes.Lines(data) {
			if jsjson.Blank(line) || line[len(line)-1] != '\n' {
				continue
			}
			e, fault := event.Decode(&doc, line)
			if fault != "" {
				continue
			}
			if _, blind, ok := Attestation(e); ok && blind {
				r.blind = true
			}
			f, ok := Project(e, &in)
			if !ok {
				continue
			}
			if e.Op != event.TextOperation {
				r.unassigned = append(r.unassigned, f)
				continue
			}
			op := byID[string(e.OpID)]
			if op == nil {
				op = &operation{run: run, id: string(e.OpID)}
				byID[op.id] = op
				r.ops = append(r.ops, op)
			}
			op.state.Add(f)
		}
	}
	return runs
}

// linkRun does for one run what an indexer does: it summarises every operation,
// links answers to payments, and summarises the linked operations again.
func linkRun(r *recorded) (sums []Summary, links map[int]int) {
	sums = make([]Summary, len(r.ops))
	var payments []LinkPayment
	var answers []LinkAnswer
	var ofPayment, ofAnswer []int
	var full []Answer
	for i, op := range r.ops {
		sums[i] = op.state.Summary(Outside{NoResponseHook: r.blind})
		for j := range sums[i].Payments {
			if c, ok := sums[i].Payments[j].Candidate(); ok {
				payments, ofPayment = append(payments, c), append(ofPayment, i)
			}
		}
		for j := range sums[i].Answers {
			a := sums[i].Answers[j]
			answers, ofAnswer, full = append(answers, a.Candidate(op.id)), append(ofAnswer, i), append(full, a)
		}
	}
	for _, f := range r.unassigned {
		var s State
		s.Add(f)
		for _, a := range s.Summary(Outside{}).Answers {
			answers, ofAnswer, full = append(answers, a.Candidate("")), append(ofAnswer, -1), append(full, a)
		}
	}
	outside := make(map[int]*Outside)
	get := func(i int) *Outside {
		if outside[i] == nil {
			outside[i] = &Outside{NoResponseHook: r.blind}
		}
		return outside[i]
	}
	links = make(map[int]int)
	for _, p := range Link(payments, answers) {
		from, to := ofAnswer[p.Answer], ofPayment[p.Payment]
		get(to).Linked = append(get(to).Linked, full[p.Answer])
		if from >= 0 {
			get(from).LinkedAway = append(get(from).LinkedAway, full[p.Answer].Key)
		}
		links[to] = from
	}
	for i, o := range outside {
		sums[i] = r.ops[i].state.Summary(*o)
	}
	return sums, links
}

// payeeRow is a line of the per-payee tables of testdata/runs/README.md.
type payeeRow struct {
	payee, asset      string // as shortened there
	network           string
	operations, offer int
	amounts           string
	settled           int
	sum               string
}

// readme reads the per-payee tables, by root.
func readme(t *testing.T) map[string][]payeeRow {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(runsDir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	tables := make(map[string][]payeeRow)
	root := ""
	for _, line := range strings.Split(string(text), "\n") {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			root = name
		}
		cells := strings.Split(line, "|")
		if len(cells) != 10 || !strings.HasPrefix(line, "| 0x") {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		n := func(s string) int {
			v, err := strconv.Atoi(s)
			if err != nil {
				t.Fatalf("table of %s: %v", root, err)
			}
			return v
		}
		tables[root] = append(tables[root], payeeRow{
			payee: cells[1], network: cells[2], asset: cells[3],
			operations: n(cells[4]), offer: n(cells[5]), amounts: cells[6], settled: n(cells[7]), sum: cells[8],
		})
	}
	return tables
}

// short matches a shortened address of the tables.
func short(pattern, full string) bool {
	head, tail, ok := strings.Cut(strings.ToLower(pattern), "…")
	return ok && strings.HasPrefix(full, head) && strings.HasSuffix(full, tail)
}

func TestEveryClientRootGivesThePayeeTableOfItsReadme(t *testing.T) {
	tables := readme(t)
	for _, root := range []string{
		"01-four-sellers-settled", "02-settle-timeout", "03-insufficient-funds", "05-verify-declined",
		"06-walk-away", "08-two-agents", "10-both-sides", "14-long-run", "17-mcp-tools",
	} {
		t.Run(root, func(t *testing.T) {
			rows := tables[root]
			if len(rows) == 0 {
				t.Fatal("no table")
			}
			type count struct {
				operations, offer, settled int
				sum                        string
				amounts                    []string
			}
			got := make(map[string]*count)
			for _, r := range load(t, filepath.Join(runsDir, root)) {
				for _, op := range r.ops {
					// Links are no part of these tables: an operation counts
					// for what its own events say.
					s := op.state.Summary(Outside{})
					if s.Side != Client || s.Payee == "" {
						t.Fatalf("operation %s: side %d, payee %q", op.id, s.Side, s.Payee)
					}
					c := got[s.Payee]
					if c == nil {
						c = &count{sum: "0"}
						got[s.Payee] = c
					}
					c.operations++
					all := append(slices.Clone(s.Payments), s.Offers...)
					if len(all) != 1 {
						t.Fatalf("operation %s: %d payments and offers", op.id, len(all))
					}
					p := all[0]
					if p.Status == Offered || p.Status == RequestedPayment && !p.Answered {
						c.offer++
					}
					if p.Amount != "" && !slices.Contains(c.amounts, p.Amount) {
						c.amounts = append(c.amounts, p.Amount)
					}
					taken := p.Settled
					if !p.Paired && settledBySeller(op) {
						// The table of the root that records every side counts
						// what any of them said. For this side it stays unpaired.
						taken = p.Amount
					}
					if taken != "" {
						c.settled++
						sum, err := Add(c.sum, taken)
						if err != nil {
							t.Fatal(err)
						}
						c.sum = sum
						for _, row := range rows {
							if !short(row.payee, p.Payee) {
								continue
							}
							network, asset, _ := strings.Cut(p.Asset, "/")
							if network != row.network || !short(row.asset, asset) {
								t.Errorf("operation %s: asset %s, want %s on %s", op.id, p.Asset, row.asset, row.network)
							}
						}
					}
				}
			}
			if len(got) != len(rows) {
				t.Errorf("%d payees, want %d", len(got), len(rows))
			}
			for _, row := range rows {
				var c *count
				for payee, k := range got {
					if short(row.payee, payee) {
						c = k
					}
				}
				if c == nil {
					t.Errorf("no payee %s", row.payee)
					continue
				}
				have := payeeRow{row.payee, row.asset, row.network, c.operations, c.offer, amounts(c.amounts), c.settled, c.sum}
				if have != row {
					t.Errorf("got  %+v\nwant %+v", have, row)
				}
			}
		})
	}
}

func settledBySeller(op *operation) bool {
	return slices.ContainsFunc(op.state.facts, func(f Fact) bool { return f.kind == SettleOK })
}

// amounts writes a set of amounts as the tables do: up to three of them, else
// the range.
func amounts(list []string) string {
	slices.SortFunc(list, Cmp)
	if len(list) > 3 {
		return list[0] + " to " + list[len(list)-1]
	}
	return strings.Join(list, ", ")
}

func TestTheMCPRunWithoutAPaymentClientIsLinked(t *testing.T) {
	runs := load(t, filepath.Join(runsDir, "17-mcp-tools"))
	r := runs["1796031581628"]
	sums, links := linkRun(r)
	at := func(id string) int {
		return slices.IndexFunc(r.ops, func(op *operation) bool { return strings.HasPrefix(op.id, id) })
	}
	for call, answer := range map[string]string{
		"5b6315": "1ee154", "8398e5": "b489be", "97d205": "142d18", "4831bc": "e800f3", "e3de7d": "6e02c5",
		"c34655": "7219b8", "19480e": "59afdd", "a0d2fe": "072635", "8cad99": "2691b0", "fbf5b4": "a931cf",
	} {
		if from, ok := links[at(call)]; !ok || from != at(answer) {
			t.Errorf("the call %s is linked to %d, want %s", call, from, answer)
		}
		delete(links, at(call))
	}
	// Two calls of one tool overlap, and a third was given up before: which of
	// the three an answer is about cannot be told.
	if len(links) != 0 {
		t.Errorf("also linked: %v", links)
	}

	words := make(map[string]int)
	open, counted := 0, "0"
	for i := range sums {
		s := &sums[i]
		words[s.SettlementAt(1796031581628+86_400_000)]++
		if s.Open {
			open++
		}
		for j := range s.Payments {
			p := &s.Payments[j]
			if p.Payee == Payee("0xC1D3D49722ce7f1750C4113e912A7a90ac7e49eD") && p.Asset == AssetKey("base", "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913") {
				counted, _ = Add(counted, p.Amount)
			}
		}
	}
	// Of the thirteen calls six are closed by a link.
	if open != 7 {
		t.Errorf("%d operations are open, want 7", open)
	}
	// Six calls are settled by a link, and all eight answers say settled. One
	// call met a named decline.
	if words[WordSettled] != 6+8 || words[WordFailed] != 1 {
		t.Errorf("settlement states: %v", words)
	}
	// Five calls of one tool, each with its answer: each counts once, and on the
	// network its answer names.
	if counted != "1000000" {
		t.Errorf("the render tool counts %s, want 1000000", counted)
	}
}

func TestARunOfACompleteClientHasNothingToLink(t *testing.T) {
	for root, run := range map[string]string{"17-mcp-tools": "1796031583872", "14-long-run": "1796031753779", "02-settle-timeout": "1796030990969"} {
		if _, links := linkRun(load(t, filepath.Join(runsDir, root))[run]); len(links) != 0 {
			t.Errorf("%s: links %v", root, links)
		}
	}
}

func TestSettlementStatesOfTheRecordedRuns(t *testing.T) {
	const later = 1 << 50
	for _, c := range []struct {
		root string
		want map[string]int // by word, long after
	}{
		{"01-four-sellers-settled", map[string]int{"settled": 40}},
		{"02-settle-timeout", map[string]int{"settled": 8, "unknown": 7}},
		// A settlement that was reverted carries a hash, so it is not definite.
		{"03-insufficient-funds", map[string]int{"settled": 5, "failed": 5, "unknown": 1}},
		{"05-verify-declined", map[string]int{"settled": 5, "failed": 5, "unknown": 2}},
		{"06-walk-away", map[string]int{"settled": 3, "none": 9}},
		{"15-circle-escrow", map[string]int{"settled": 7, "unknown": 2, "none": 1}},
	} {
		got := make(map[string]int)
		for _, r := range load(t, filepath.Join(runsDir, c.root)) {
			for _, op := range r.ops {
				s := op.state.Summary(Outside{})
				got[s.SettlementAt(later)]++
				if s.Open && s.Settlement == WordSettled || !s.MoneyStage && s.Open {
					t.Errorf("%s %s: open %v, money %v, %s", c.root, op.id, s.Open, s.MoneyStage, s.Settlement)
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.root, got, c.want)
		}
	}
}

// The columns "of these open" of the template tables.
func TestOpenOperationsOfTheRecordedRuns(t *testing.T) {
	for root, want := range map[string]int{
		"01-four-sellers-settled": 0, "02-settle-timeout": 7, "03-insufficient-funds": 6, "05-verify-declined": 7,
		"06-walk-away": 0, "08-two-agents": 6, "10-both-sides": 7, "11-seller-only": 7, "14-long-run": 321, "15-circle-escrow": 2,
		"17-mcp-tools": 18,
	} {
		open := 0
		for _, r := range load(t, filepath.Join(runsDir, root)) {
			for _, op := range r.ops {
				if s := op.state.Summary(Outside{}); s.Open {
					open++
				}
			}
		}
		if open != want {
			t.Errorf("%s: %d open, want %d", root, open, want)
		}
	}
}
