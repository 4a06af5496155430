package assemble

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/settlewatch/settlewatch/internal/plain"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs: %s", file, firstDifference([]byte(got), want))
	}
}

// Every operation of these vectors and runs, explained.
func TestExplainGolden(t *testing.T) {
	roots := map[string]string{
		"buyer-http-settled":           "",
		"buyer-open-payment":           "",
		"buyer-settlement-declined":    "",
		"buyer-fault-then-settled":     "",
		"buyer-bare-client":            "",
		"buyer-mcp-tool":               "",
		"seller-paid-and-open":         "",
		"seller-faults":                "",
		"facilitator-mixed":            "",
		"facilitator-run-as-seller":    "",
		"escrow-released-and-refunded": "",
		"escrow-open-with-fault":       "",
		"tmpl-match-sets":              "",
		"tmpl-all-optional":            "",
		"ctx-null-is-an-operation":     "",
		"ctx-odd-names":                "",
		"loose-missing-event-id":       "",
		"json-lone-surrogates":         "",
		"02-settle-timeout":            "x402-buyer",
		"03-insufficient-funds":        "x402-buyer",
		"05-verify-declined":           "x402-buyer",
	}
	for root, builtin := range roots {
		t.Run(root, func(t *testing.T) {
			dir := filepath.Join(parityDir, root)
			var src []byte
			switch {
			case builtin != "":
				dir, src = filepath.Join(runsDir, root), Builtin(builtin)
			default:
				var err error
				if src, err = os.ReadFile(filepath.Join(dir, "template.yaml")); err != nil {
					ref, err := os.ReadFile(filepath.Join(dir, "template"))
					if err != nil {
						t.Fatal(err)
					}
					src = Builtin(strings.TrimSpace(string(ref)))
				}
			}
			template, _, err := ParseTemplate(src)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, f := range listRuns(t, dir) {
				run, err := Assemble(template, f.data)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range run.Receipts {
					text := Explain(r)
					if text != Explain(r) {
						t.Error("the same receipt has two explanations")
					}
					b.WriteString(text + "\n\n---\n\n")
				}
			}
			golden(t, "explain/"+root+".txt", b.String())
		})
	}
}

func TestExplainIsShortAndCleanWhateverStrangersWrote(t *testing.T) {
	nasty := "\u202e\u001b[31mPAY 0xEVIL\u001b[0m\u200b \u0007\u2028" + strings.Repeat("𝕏", 5000) + "\U000E0041"
	hostile, _, err := ParseTemplate([]byte(`{"template": "t", "version": 1, "stages": [` +
		`{"id": "a", "required": true, "match": [{"event": "x.a", "role": "` + strings.Repeat("r", 900) + `"}], "missing_explanation": "` + strings.Repeat("why ", 3000) + `"},
		 {"id": "b", "required": true, "match": [{"event": "x.b"}]}], "exceptions": ["x402.settle.failed"]}`))
	if err != nil {
		t.Fatal(err)
	}
	quoted := strings.NewReplacer("\u001b", `\u001b`, "\u0007", `\u0007`).Replace(nasty)
	var data strings.Builder
	for range 300 {
		data.WriteString(`{"event_id":"e","event_type":"x402.settle.failed","occurred_at":"` + quoted + `","seq":1,"context_id":"` + quoted + `","role":"` + quoted +
			`","payload":{"settle":{"error_reason":"` + quoted + `","transaction":"` + quoted + `"}}}` + "\n")
		data.WriteString(`{"event_id":"e","event_type":"` + quoted + `","occurred_at":7,"seq":1,"context_id":"` + quoted + `","role":"client"}` + "\n")
	}
	run, err := Assemble(hostile, []byte(data.String()))
	if err != nil {
		t.Fatal(err)
	}
	text := Explain(run.Receipts[0])
	if len(text) > 16<<10 {
		t.Errorf("the explanation has %d bytes", len(text))
	}
	if !utf8.ValidString(text) {
		t.Error("the explanation is not UTF-8")
	}
	for _, r := range text {
		if r != '\n' && plain.Hidden(r) {
			t.Errorf("the explanation holds %U", r)
		}
	}
	endless, err := One(&Template{Name: "t", Stages: []Stage{{ID: "a", Required: true, Match: []Witness{{Event: "e"}}, Explanation: strings.Repeat("€", 9000), HasExplanation: true},
		{ID: "b", Required: true, Match: slices.Repeat([]Witness{{Event: strings.Repeat("é", 200), Role: strings.Repeat("é", 200)}}, 50), Explanation: strings.Repeat("€", 9000), HasExplanation: true},
		{ID: "c", Required: true, Match: []Witness{{Event: "e"}}}}},
		[][]byte{[]byte(`{"context_id":"a"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if s := Explain(endless); len(s) > 16<<10 || !utf8.ValidString(s) {
		t.Errorf("an explanation of a template with endless texts has %d bytes", len(s))
	}
	for _, says := range []string{"600 events", "more between", "more)", "at no recorded time"} {
		if !strings.Contains(text, says) {
			t.Errorf("the explanation does not say %q", says)
		}
	}
}
