package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// crashed runs a crash test in process, a round of a scenario; its buyers are processes
// of this test binary. It gives what was shown and what is left behind.
func crashed(t *testing.T, o crashOptions) (text string, left []string, err error) {
	t.Helper()
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	var errs bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: &errs, env: system()}
	o.time = time.Millisecond
	err = a.runCrashTest(t.Context(), o)
	if errs.Len() > 0 {
		t.Errorf("it says beside its answer: %s", errs.String())
	}
	left, _ = filepath.Glob(filepath.Join(temp, "*"))
	return a.out.String(), left, err
}

// A check that cannot fail is worth nothing: without holds everybody who asks before
// anybody has paid is allowed, and the same harness has to see the money.
func TestWithoutHoldsMoneyGoesOverTheCap(t *testing.T) {
	text, left, err := crashed(t, crashOptions{scenario: "race, one seller", unheld: true})
	if !errors.Is(err, unsound) {
		t.Errorf("it ended with %v", err)
	}
	// Ten times the cap less a unit.
	contains(t, "table", text, "race, one seller  10         0      10       20       9.99999  1.00  8.99999\n", "\nmoney went over a cap (10 processes, ")
	if len(left) != 1 {
		t.Fatalf("what happened is not kept: %q", left)
	}
	contains(t, "table", text, "\nwhat happened is kept in "+left[0]+"\n")
	if runs, _ := filepath.Glob(filepath.Join(left[0], "*", ".trace", "events", "*.ndjson")); len(runs) != 10 {
		t.Errorf("%d runs are kept", len(runs))
	}
}

func TestAFaultThatDidNotHappenIsAFailure(t *testing.T) {
	text, _, err := crashed(t, crashOptions{scenario: "kill -9", mild: true})
	if !errors.Is(err, unsound) {
		t.Errorf("it ended with %v", err)
	}
	contains(t, "table", text, "kill -9   7          0      8        11       1.00  1.00  0\n",
		"\n! kill -9: no kill landed: between the verdict and the log\n", "\n! kill -9: no kill landed: between an allow and its payment\n",
		"\n! kill -9: no kill landed: in the middle of a payment's line\n", "\n! kill -9: no kill landed: at a moment left to chance\n",
		"\nno money went over a cap, but not everything was shown (7 processes, 0 of them killed, ")
}

func TestACrashTestIsADocument(t *testing.T) {
	text, left, err := crashed(t, crashOptions{scenario: "two assets", json: true, seed: 7})
	if err != nil || len(left) > 0 {
		t.Errorf("%v, left %q", err, left)
	}
	var doc struct {
		Shape     string
		Sound     bool
		Seed      int64
		Scenarios []struct {
			Scenario, Asset, Paid, Cap, Over string
			Processes, Allowed, Refused      int
			RefusedBy                        map[string]int `json:"refused_by"`
			Problems                         []string
		}
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil || doc.Shape != "crash-test/1" || !doc.Sound || doc.Seed != 7 || len(doc.Scenarios) != 2 {
		t.Fatalf("%v: %s", err, text)
	}
	for i, want := range []struct{ name, asset, cap string }{{"two assets, 6 dec.", usdc, "1.00"}, {"two assets, 18 dec.", "eip155:8453/0x4200000000000000000000000000000000000006", "20.00"}} {
		if r := doc.Scenarios[i]; r.Scenario != want.name || r.Asset != want.asset || r.Cap != want.cap || r.Over != "0" || r.Processes != 8 || len(r.Problems) > 0 {
			t.Errorf("%+v", r)
		}
	}
}
