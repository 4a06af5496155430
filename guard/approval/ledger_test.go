package approval

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/canon"
)

type ledgerVector struct {
	Name    string
	Genesis string
	Lines   []string
	Bad     int64 `json:"first_bad_line"`
	Kind    string
	Anchor  *LedgerAnchor
	Found   *bool `json:"three_hash_check_alone_finds_it"`
}

type chainVector struct {
	Name  string
	Links []struct {
		Entry string `json:"entry_json"`
		Prev  string `json:"prev_sig"`
		Sig   string
	}
	Bad    int `json:"first_bad"`
	Anchor *LedgerAnchor
}

type ledgerVectors struct {
	Format          string
	Chains          []chainVector
	ChainsTampered  []chainVector  `json:"chains_tampered"`
	Ledgers         []ledgerVector `json:"deny_ledgers"`
	LedgersTampered []ledgerVector `json:"deny_ledgers_tampered"`
}

func readLedgers(t testing.TB) ledgerVectors {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("testdata", "ledger.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v ledgerVectors
	if err := json.Unmarshal(src, &v); err != nil {
		t.Fatal(err)
	}
	if v.Format != "chp-ledger/1" || len(v.Chains) < 7 || len(v.ChainsTampered) < 12 || len(v.Ledgers) < 5 || len(v.LedgersTampered) < 32 {
		t.Fatal("vectors are missing")
	}
	return v
}

func verifyLines(t testing.TB, lines []string, a *LedgerAnchor) (LedgerAnchor, *LedgerFault) {
	t.Helper()
	text := strings.Join(lines, "\n")
	if len(lines) > 0 {
		text += "\n"
	}
	rows, fault, err := VerifyLedger(strings.NewReader(text), a)
	if err != nil {
		t.Fatal(err)
	}
	return rows, fault
}

func TestVectorsOfLedgersHold(t *testing.T) {
	for _, v := range readLedgers(t).Ledgers {
		t.Run(v.Name, func(t *testing.T) {
			for _, anchor := range []*LedgerAnchor{nil, v.Anchor} {
				rows, fault := verifyLines(t, v.Lines, anchor)
				if fault != nil || rows != *v.Anchor {
					t.Errorf("%+v, %v, want %+v", rows, fault, *v.Anchor)
				}
			}
			if v.Genesis != ledgerGenesis {
				t.Errorf("it begins with %s", v.Genesis)
			}
		})
	}
}

// Test68 is the tampered set. The verifier of the published server passes ten of
// them (approvals contract, section 7, W16).
func Test68VectorsOfTamperedLedgersAreRefused(t *testing.T) {
	missed := 0
	for _, v := range readLedgers(t).LedgersTampered {
		t.Run(v.Name, func(t *testing.T) {
			_, fault := verifyLines(t, v.Lines, v.Anchor)
			if fault == nil {
				t.Fatal("it passes")
			}
			t.Log(fault)
			if v.Kind != "anchor" && fault.Line != v.Bad {
				t.Errorf("%v, want row %d", fault, v.Bad)
			}
			if v.Anchor != nil {
				// Whole in itself: only who remembers its end can tell.
				if _, fault := verifyLines(t, v.Lines, nil); fault != nil {
					t.Errorf("without its anchor: %v", fault)
				}
			}
		})
		if v.Found != nil && !*v.Found {
			missed++
		}
	}
	if missed < 10 {
		t.Errorf("%d of the variants are those the published verifier passes, there are 10", missed)
	}
}

func TestVectorsOfChainsHoldAndTamperedOnesDoNot(t *testing.T) {
	first := func(v chainVector) int {
		prev := ""
		for i, l := range v.Links {
			sig, err := canon.Chain(prev, node(t, l.Entry), canon.Lexeme)
			if err != nil || l.Prev != prev || l.Sig != sig {
				return i + 1
			}
			prev = sig
		}
		if a := v.Anchor; a != nil && (int64(len(v.Links)) < a.Count || prev != a.HeadSig) {
			return v.Bad // only the failure counts
		}
		return 0
	}
	file := readLedgers(t)
	for _, v := range file.Chains {
		if bad := first(v); bad != 0 {
			t.Errorf("%s: link %d does not hold", v.Name, bad)
		}
	}
	for _, v := range file.ChainsTampered {
		if bad := first(v); bad == 0 || bad != v.Bad {
			t.Errorf("%s: the first bad link is %d, want %d", v.Name, bad, v.Bad)
		}
	}
}

// TestALedgerWrittenAnewIsTheSame reads the rows of the vectors and writes them.
func TestALedgerWrittenAnewIsTheSame(t *testing.T) {
	for _, v := range readLedgers(t).Ledgers {
		var l Ledger
		for i, line := range v.Lines {
			row := node(t, line)
			at, err := time.Parse(time.RFC3339, string(row.Get("ts").Text()))
			if err != nil {
				t.Fatal(err)
			}
			got, err := l.Append(Row{
				At: at, Event: string(row.Get("event").Text()), ReasonCode: string(row.Get("reason_code").Text()), Tool: string(row.Get("tool").Text()),
				Scope: string(row.Get("scope").Text()), ReceiptID: string(row.Get("receipt_id").Text()), ArgsHash: string(row.Get("args_hash").Text()),
				Body: row.Get("payload").Get("body").Raw(),
			})
			if err != nil || string(got) != line {
				t.Errorf("%s, row %d: %v\n%s\nwant\n%s", v.Name, i+1, err, got, line)
			}
		}
		if l.Anchor() != *v.Anchor {
			t.Errorf("%s: %+v, want %+v", v.Name, l.Anchor(), *v.Anchor)
		}
	}
}

func TestARowThatWouldNotVerifyIsNotWritten(t *testing.T) {
	body := json.RawMessage(`{"receipt_id":"r","args":{}}`)
	good := Row{At: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Event: EventExecute, Tool: "t", ReceiptID: "r", ArgsHash: strings.Repeat("a", 64), Body: body}
	for name, edit := range map[string]func(*Row){
		"an event that is none":     func(r *Row) { r.Event = "approve" },
		"a code without a denial":   func(r *Row) { r.ReasonCode = "replay" },
		"another receipt inside":    func(r *Row) { r.ReceiptID = "s" },
		"a body that is no JSON":    func(r *Row) { r.Body = json.RawMessage(`{"receipt_id":"r","args":{}`) },
		"a body that closes early":  func(r *Row) { r.Body = json.RawMessage(`{"receipt_id":"r","args":{}},"x":{}`) },
		"a key that stands twice":   func(r *Row) { r.Body = json.RawMessage(`{"receipt_id":"r","args":{"a":1,"a":2}}`) },
		"half of a surrogate":       func(r *Row) { r.Body = json.RawMessage(`{"receipt_id":"r","args":{"a":"\ud800"}}`) },
		"a body with other members": func(r *Row) { r.Body = json.RawMessage(`{"receipt_id":"r","args":{},"note":1}`) },
		"no body":                   func(r *Row) { r.Body = nil },
	} {
		var l Ledger
		row := good
		edit(&row)
		if text, err := l.Append(row); err == nil || l.Anchor().Count != 0 {
			t.Errorf("%s: %s", name, text)
		}
		if _, err := l.Append(good); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
}

func TestALedgerThatWasRewrittenWholeShowsAgainstItsAnchorAlone(t *testing.T) {
	v := readLedgers(t).Ledgers[0]
	for n := range int64(len(v.Lines)) {
		anchor := LedgerAnchor{n, ledgerGenesis}
		if n > 0 {
			anchor.HeadSig = string(node(t, v.Lines[n-1]).Get("sig").Text())
		}
		if _, fault := verifyLines(t, v.Lines, &anchor); fault != nil {
			t.Errorf("it has grown since row %d: %v", n, fault)
		}
		other := LedgerAnchor{n, strings.Repeat("1", 64)}
		if _, fault := verifyLines(t, v.Lines, &other); fault == nil {
			t.Errorf("another row %d than the anchor's passes", n)
		}
	}
	if _, fault := verifyLines(t, nil, &LedgerAnchor{0, strings.Repeat("1", 64)}); fault == nil {
		t.Error("an empty ledger of another format passes")
	}
}

func TestAnAnchorIsReadStrictly(t *testing.T) {
	sig := strings.Repeat("a", 64)
	if a, err := ParseLedgerAnchor(node(t, `{"head_sig":"`+sig+`","count":3}`)); err != nil || a != (LedgerAnchor{3, sig}) {
		t.Errorf("%+v, %v", a, err)
	}
	for _, src := range []string{`{}`, `[]`, `{"count":3}`, `{"head_sig":"` + sig + `","count":-1}`, `{"head_sig":"` + sig + `","count":1.0}`, `{"head_sig":"` + sig + `","count":"1"}`,
		`{"head_sig":"A","count":1}`, `{"head_sig":"` + sig + `","count":1,"x":1}`, `{"head_sig":"` + sig + `","count":1,"count":1}`, `{"head_sig":null,"count":1}`} {
		if a, err := ParseLedgerAnchor(node(t, src)); err == nil {
			t.Errorf("%s was read as %+v", src, a)
		}
	}
}

func TestLinesOfALedgerEndAtNewlinesAlone(t *testing.T) {
	lines := readLedgers(t).Ledgers[0].Lines
	whole := strings.Join(lines, "\n")
	for name, c := range map[string]struct {
		text string
		bad  int64
	}{
		"without the last newline": {whole, 0},
		"a blank line at the end":  {whole + "\n\n", 11},
		"a blank line at the head": {"\n" + whole, 1},
		"a byte order mark":        {"\ufeff" + whole, 1},
		"a row of endless blanks":  {strings.Repeat(" ", maxRow+1), 1},
		"a row that is an array":   {"[]\n", 1},
		"a row that is a number":   {"1\n", 1},
		"a row that is deep":       {strings.Repeat("[", 5000) + "\n", 1},
		"bytes that are not UTF-8": {strings.Replace(whole, "✓", "\xff", 1), 8},
	} {
		_, fault, err := VerifyLedger(strings.NewReader(c.text), nil)
		if err != nil || (fault == nil) != (c.bad == 0) || fault != nil && fault.Line != c.bad {
			t.Errorf("%s: %v, %v, want row %d", name, fault, err, c.bad)
		}
	}
}

// TestEveryCharacterOfALedgerCounts edits one character of a row after the other. A
// verifier that leaves something out of its hashes, or reads two spellings alike,
// lets one of them through.
func TestEveryCharacterOfALedgerCounts(t *testing.T) {
	var before Ledger
	for _, line := range readLedgers(t).Ledgers[0].Lines[:3] {
		for i := int(before.rows); i < len(line); i += 3 { // each row at other places
			edited := []byte(line)
			edited[i] ^= 1
			v := LedgerVerifier{ledger: before}
			if fault := v.Line(edited); fault == nil {
				t.Errorf("row %d passes with byte %d edited: %s", before.rows+1, i, edited)
			}
		}
		v := LedgerVerifier{ledger: before}
		if fault := v.Line([]byte(line)); fault != nil {
			t.Fatal(fault)
		}
		before = v.ledger
	}
}

func FuzzLedgerLine(f *testing.F) {
	file := readLedgers(f)
	for _, v := range append(slices.Clone(file.Ledgers), file.LedgersTampered...) {
		for _, l := range v.Lines {
			f.Add([]byte(l))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var v LedgerVerifier
		if fault := v.Line(raw); fault != nil {
			if fault.Line != 1 || fault.Error() == "" || v.Rows().Count != 0 {
				t.Fatalf("%+v", fault)
			}
			return
		}
		// What passes says what it says once: written anew it is the same row.
		var doc jsjson.Doc
		if err := doc.Parse(raw); err != nil {
			t.Fatal(err)
		}
		row := doc.Root()
		at, err := time.Parse(time.RFC3339, string(row.Get("ts").Text()))
		if err != nil {
			t.Fatal(err)
		}
		if stamp(at) != string(row.Get("ts").Text()) {
			return // another spelling of an instant
		}
		for _, key := range []string{"reason_code", "scope", "receipt_id"} {
			if v := row.Get(key); v.Kind() == jsjson.String && len(v.Text()) == 0 {
				return
			}
		}
		var l Ledger
		again, err := l.Append(Row{
			At: at, Event: string(row.Get("event").Text()), ReasonCode: string(row.Get("reason_code").Text()), Tool: string(row.Get("tool").Text()),
			Scope: string(row.Get("scope").Text()), ReceiptID: string(row.Get("receipt_id").Text()), ArgsHash: string(row.Get("args_hash").Text()),
			Body: row.Get("payload").Get("body").Raw(),
		})
		if err != nil {
			t.Fatal(err)
		}
		a, errA := canon.Text(raw, canon.Lexeme)
		b, errB := canon.Text(again, canon.Lexeme)
		if diff := cmp.Diff(string(a), string(b)); diff != "" || errA != nil || errB != nil {
			t.Fatal(diff, errA, errB)
		}
	})
}
