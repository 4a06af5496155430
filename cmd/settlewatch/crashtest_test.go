package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
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
	for i, want := range []struct{ name, asset, cap string }{{"two assets, 6 dec.", crashDollar, "1.00"}, {"two assets, 18 dec.", crashEther, "20.00"}} {
		if r := doc.Scenarios[i]; r.Scenario != want.name || r.Asset != want.asset || r.Cap != want.cap || r.Over != "0" || r.Processes != 8 || len(r.Problems) > 0 {
			t.Errorf("%+v", r)
		}
	}
}

// A row says what was seen, whatever that was.
func TestWhatASceneDidNotShowIsAProblem(t *testing.T) {
	const at = "2026-03-10T12:00:00.000Z"
	seller := "0x" + strings.Repeat("ab", 20)
	for _, c := range []struct {
		name    string
		fill    bool
		seen    sightings
		allowed int
		refused map[string]int
		paid    string // in the run file
		want    []string
	}{
		{"all of it", true, sightings{paid: 1}, 1, map[string]int{"per_counterparty_limit": 1}, "1000000", nil},
		{"nobody allowed", false, sightings{}, 0, map[string]int{"per_counterparty_limit": 1}, "1", []string{"nobody was allowed anything"}},
		{"no refusal", false, sightings{}, 1, nil, "1", []string{"the cap never refused anything"}},
		{"refused by something else", false, sightings{}, 1, map[string]int{"not_ready": 9}, "1", []string{"the cap never refused anything"}},
		{"not filled", true, sightings{}, 1, map[string]int{"limit:total": 1}, "999999", []string{"no cap was used up to its last unit"}},
		{"a payment that is in no file", false, sightings{paid: 2}, 2, map[string]int{"limit:total": 1}, "1", []string{"2 payments were made, and the run files hold 1"}},
		{"a half that is in no file", false, sightings{killedAt: map[string]int{stopHalf: 1}}, 1, map[string]int{"limit:total": 1}, "1",
			[]string{"1 payments were cut short by a kill, and the run files hold 0 halves"}},
	} {
		c.seen.asked = map[string]*verdicts{crashDollar: {allowed: c.allowed, refusedBy: c.refused}}
		s := &stage{scenario: scenario{name: "scene", fill: c.fill}, seen: &c.seen, roots: []*crashRoot{{
			dir: runFiles(t, map[string]string{"a.ndjson": paidLine(seller, crashDollar, c.paid, at) + "\n"}), ledgers: []ledger{dollars("1.00", true)},
		}}}
		rows, err := s.outcomes()
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		equal(t, c.name, rows[0].problems, c.want)
		if rows[0].failed() != (c.want != nil) {
			t.Errorf("%s: failed is %v", c.name, rows[0].failed())
		}
	}
}

func TestARaceIsOneOnlyIfChecksOverlap(t *testing.T) {
	at := func(began, ended int64) *reply { return &reply{said: said{Began: began, Ended: ended}} }
	for _, c := range []struct {
		name    string
		replies []*reply
		want    int
	}{
		{"nobody", nil, 0},
		{"one after the other", []*reply{at(1, 2), at(2, 3), at(3, 4)}, 1},
		{"two of three", []*reply{at(1, 5), at(4, 6), at(6, 7)}, 2},
		{"all at once", []*reply{at(1, 9), at(2, 3), at(2, 8)}, 3},
		{"who was killed has not asked", []*reply{{}, {}, at(1, 2)}, 1},
	} {
		if got := overlap(c.replies); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// aBuyer is a process of the crash test on a root of its own.
func aBuyer(t *testing.T, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := launch(t.Context(), exe, append([]string{"--dir", runFiles(t, nil), "--run", "r1"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

func anOrder() order {
	return order{Seller: "0x" + strings.Repeat("ab", 20), Host: "shop.example", Asset: crashDollar}.of("0.10")
}

func TestABuyerThatHangsIsFoundAndSaysWhere(t *testing.T) {
	p := aBuyer(t)
	if err := p.ready(); err != nil {
		t.Fatal(err)
	}
	p.within = 300 * time.Millisecond
	p.tell(anOrder().stop(stopJudged))
	r := &reply{p: p, order: anOrder()} // nobody expects it to stop
	if p.wait(r); r.how != hung {
		t.Fatalf("it %s", r.how)
	}
	if trace := p.stuck(); !strings.Contains(trace, "halt") {
		t.Errorf("what it says does not name the place: %s", firstLines(trace, 20))
	}
}

func TestABuyerThatDiesByItselfIsToldApartFromOneThatWasKilled(t *testing.T) {
	p := aBuyer(t)
	if err := p.ready(); err != nil {
		t.Fatal(err)
	}
	o := anOrder()
	o.Clock = "yesterday"
	p.tell(o)
	r := &reply{p: p, order: o}
	if p.wait(r); r.how != vanished || !strings.Contains(p.errors.String(), "--clock takes a time") {
		t.Errorf("it %s: %s", r.how, p.errors.String())
	}
	p = aBuyer(t)
	if err := p.ready(); err != nil {
		t.Fatal(err)
	}
	r = &reply{p: p, order: anOrder().stop(stopAllowed)}
	p.tell(r.order)
	if p.wait(r); r.how != stopped || !r.allowed() {
		t.Errorf("it %s, decision %q", r.how, r.said.Decision)
	}
}

func TestABuyerThatCannotStartSaysWhy(t *testing.T) {
	p := aBuyer(t, "--guard-config", "nowhere.json")
	if err := p.ready(); err == nil || !strings.Contains(err.Error(), "E_POLICY: read the policy file") {
		t.Errorf("%v", err)
	}
}

func TestABuyersClockIsMovedAndGoesOn(t *testing.T) {
	real := noon
	c := &movedClock{real: func() time.Time { return real }}
	if err := c.set(""); err != nil || !c.now().Equal(noon) {
		t.Errorf("%v, %s", err, c.now())
	}
	evening := noon.Add(-13 * time.Hour)
	if err := c.set(evening.Format(time.RFC3339)); err != nil || !c.now().Equal(evening) {
		t.Errorf("%v, %s", err, c.now())
	}
	real = real.Add(time.Second)
	if !c.now().Equal(evening.Add(time.Second)) {
		t.Errorf("it stands at %s", c.now())
	}
	if err := c.set("soon"); err == nil {
		t.Error("it takes any time")
	}
}
