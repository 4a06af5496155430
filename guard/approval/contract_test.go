package approval

// Tests of the approvals contract, section 6, on canonical JSON and the spend gate,
// under their numbers there.

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settlewatch/settlewatch/guard/canon"
)

func Test01KeyOrderNeverMattersAndArrayOrderDoes(t *testing.T) {
	for _, rule := range []canon.Rule{canon.Lexeme, canon.Float, canon.JCS} {
		hash := func(src string) string {
			h, err := canon.HashText([]byte(src), rule)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		if hash(`{"a":1,"b":{"c":2,"d":[1,2]}}`) != hash(`{ "b": {"d":[1,2], "c":2}, "a": 1 }`) {
			t.Errorf("%s: the order of keys matters", rule)
		}
		if hash(`[1,2]`) == hash(`[2,1]`) {
			t.Errorf("%s: the order of a list does not matter", rule)
		}
	}
}

func Test02TextThatIsNotASCIIStandsAsItIs(t *testing.T) {
	const want = `{"é":"株 ✓ 😀 \u001f/<` + "\u007f\u2028" + `"}`
	got, err := canon.Text([]byte(`{"\u00e9":"\u682a \u2713 \ud83d\ude00 \u001F\/<\u007f\u2028"}`), canon.JCS)
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// decided is what the gate says, which has to be sure of it.
func decided(t *testing.T, a Action, p Policy, committed float64) Result {
	t.Helper()
	r, err := Evaluate(a, p, committed)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func Test05TheThresholdIsInclusive(t *testing.T) {
	for n, want := range map[float64]string{249.99999999999997: Locked, 250: HITLRequired, 250.00000000000003: HITLRequired} {
		if r := decided(t, pay(n), DefaultPolicy(), 0); r.State != want {
			t.Errorf("%v is %s, want %s", n, r.State, want)
		}
	}
}

func Test06WhatIsOverTheCapIsBlockedAndNeverAskedAbout(t *testing.T) {
	if r := decided(t, pay(501), DefaultPolicy(), 0); r.State != Blocked || r.RequiresHuman || r.CommittedDelta != 0 {
		t.Errorf("%+v", r)
	}
}

func Test07ALimitOfAnAssetBelowTheMaximumBlocks(t *testing.T) {
	p := DefaultPolicy()
	p.PerAssetLimits = map[string]float64{"USDC": 5}
	if r := decided(t, pay(6), p, 0); r.State != Blocked || r.Reason != "blocked: per-asset-cap" {
		t.Errorf("%+v", r)
	}
}

func Test08ZeroAndLessAreBlocked(t *testing.T) {
	for _, n := range []float64{0, -1, math.Copysign(0, -1)} {
		if r := decided(t, pay(n), DefaultPolicy(), 0); r.State != Blocked || !strings.Contains(r.Reason, RuleSaneNotional) {
			t.Errorf("%v: %+v", n, r)
		}
	}
}

func Test09WithoutAConfidenceThereIsNoRuleAboutIt(t *testing.T) {
	r := decided(t, pay(1), DefaultPolicy(), 0)
	for _, c := range r.Claims {
		if c.Rule == RuleMinConfidence {
			t.Errorf("%+v", c)
		}
	}
	low := 0.1
	if r := decided(t, Action{Action: "PAY", Asset: "USDC", Notional: 1, Confidence: &low}, DefaultPolicy(), 0); r.State != Blocked {
		t.Errorf("%+v", r)
	}
}

func Test10TheDailyCapIsOnTheProjectedSum(t *testing.T) {
	for committed, want := range map[float64]string{2400: Locked, 2400.01: Blocked} {
		if r := decided(t, pay(100), DefaultPolicy(), committed); r.State != want {
			t.Errorf("with %v: %s, want %s", committed, r.State, want)
		}
	}
}

func Test11AnApprovalRunsEveryRuleAgain(t *testing.T) {
	low := 0.1
	for name, c := range map[string]struct {
		action    Action
		committed float64
	}{
		"the maximum": {pay(501), 0}, "the day": {pay(300), 2300}, "the confidence": {Action{Action: "PAY", Asset: "USDC", Notional: 300, Confidence: &low}, 0},
	} {
		r, err := ApproveHuman(c.action, DefaultPolicy(), c.committed, "ana")
		before := decided(t, c.action, DefaultPolicy(), c.committed)
		if err != nil || r.State != Blocked || r.Allowed || r.ContentHash != before.ContentHash || r.Reason != "approval by ana rejected: "+before.Reason {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

func Test14WithoutAPolicyTheDefaultOneCountsAndItIsNotUnlimited(t *testing.T) {
	want := Policy{Version: "1.0", MaxNotional: 500, DailyCap: 2500, HITLThreshold: 250, MinConfidence: 0.55}
	if diff := cmp.Diff(want, DefaultPolicy()); diff != "" {
		t.Error(diff)
	}
}

func Test15TheDayTurnsAtMidnightUTCWhereverItIsAsked(t *testing.T) {
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	last := midnight.Add(-time.Millisecond)
	for _, zone := range []*time.Location{time.UTC, time.FixedZone("", 14*3600), time.FixedZone("", -12*3600), time.FixedZone("", 5*3600+45*60)} {
		start, end := Day(last.In(zone))
		if !start.Equal(midnight.AddDate(0, 0, -1)) || !end.Equal(midnight) {
			t.Errorf("the day of %s is %s to %s", last.In(zone), start, end)
		}
		if start, _ := Day(midnight.In(zone)); !start.Equal(midnight) {
			t.Errorf("the day of %s begins at %s", midnight.In(zone), start)
		}
		spent := []Authorised{{Amount: "100", At: last.In(zone), Expires: last.Add(time.Second), BurntAt: last.In(zone)}}
		for now, want := range map[time.Time]string{last: "100", midnight: "0"} {
			if got, err := Committed(now.In(zone), spent, "0", "0", ""); err != nil || got != want {
				t.Errorf("at %s: %s, %v, want %s", now.In(zone), got, err, want)
			}
		}
	}
}

// Test16 is the part of two requests at once that needs no lock: the second is asked
// with what the first was given.
func Test16TheSecondOfTwoRequestsIsAskedWithWhatTheFirstWasGiven(t *testing.T) {
	g := gate("100", "150", "200")
	var given []Authorised
	for _, want := range []string{Locked, Blocked} {
		committed, err := Committed(noon, given, "0", "0", "")
		if err != nil {
			t.Fatal(err)
		}
		v := g.Judge(Payment{Action: ActionPay, Asset: "USDC", Amount: "100", Committed: committed})
		if v.State != want {
			t.Errorf("with %s given: %s, want %s", committed, v.State, want)
		}
		given = append(given, Authorised{Amount: "100", At: noon, Expires: noon.Add(time.Minute)})
	}
}

func Test17TheSameQuestionHasTheSameAnswerByteForByte(t *testing.T) {
	for range 3 {
		a, b := decided(t, pay(251), DefaultPolicy(), 7), decided(t, pay(251), DefaultPolicy(), 7)
		x, errX := json.Marshal(a)
		y, errY := json.Marshal(b)
		if string(x) != string(y) || errX != nil || errY != nil {
			t.Errorf("%s\n%s", x, y)
		}
		first, again := sold(t), sold(t)
		if encoded(t, first.HMAC(strongKey)) != encoded(t, again.HMAC(strongKey)) || *signed(t, first, ana, behind) != *signed(t, again, ana, behind) {
			t.Error("a receipt depends on more than what it is issued for")
		}
	}
}

// Test74 is the pure half: what the day's total is made of.
func Test74TheDayAddsUpWhatWasAuthorisedOrSpentWhicheverIsMore(t *testing.T) {
	yesterday, soon, past := noon.AddDate(0, 0, -1), noon.Add(time.Minute), noon.Add(-time.Minute)
	for name, c := range map[string]struct {
		given                []Authorised
		spent, held, claimed string
		want                 string
	}{
		"nothing":                           {nil, "0", "0", "", "0"},
		"one that may be used":              {[]Authorised{{Amount: "1.10", At: past, Expires: soon}}, "0", "0", "", "1.1"},
		"one that was used":                 {[]Authorised{{Amount: "1.10", At: past, Expires: past, BurntAt: past}}, "0", "0", "", "1.1"},
		"one that expired unused":           {[]Authorised{{Amount: "1.10", At: past, Expires: noon}}, "0", "0", "", "0"},
		"one of yesterday that was used":    {[]Authorised{{Amount: "1.10", At: yesterday, Expires: yesterday, BurntAt: yesterday}}, "0", "0", "", "0"},
		"one of yesterday used today":       {[]Authorised{{Amount: "1.10", At: yesterday, Expires: soon, BurntAt: past}}, "0", "0", "", "1.1"},
		"one of yesterday that may be used": {[]Authorised{{Amount: "1.10", At: yesterday, Expires: soon}}, "0", "0", "", "1.1"},
		"one of tomorrow: the clock was set back": {[]Authorised{{Amount: "1.10", At: noon.AddDate(0, 0, 1), Expires: noon.AddDate(0, 0, 2), BurntAt: noon.AddDate(0, 0, 1)}},
			"0", "0", "", "1.1"},
		"more was spent":                {[]Authorised{{Amount: "3", At: past, Expires: soon}}, "2", "1.5", "", "3.5"},
		"less was spent":                {[]Authorised{{Amount: "3", At: past, Expires: soon}}, "1", "1.5", "", "3"},
		"the caller claims more":        {nil, "2", "0", "5.50", "5.5"},
		"the caller claims less":        {nil, "2", "0", "0", "2"},
		"tenths that doubles get wrong": {[]Authorised{{Amount: "0.1", At: past, Expires: soon}, {Amount: "0.2", At: past, Expires: soon}}, "0", "0", "", "0.3"},
	} {
		if got, err := Committed(noon, c.given, c.spent, c.held, c.claimed); err != nil || got != c.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, c.want)
		}
	}
	for _, bad := range []string{"-1", "NaN", "1e3", "Infinity", "1,5", "x"} {
		for _, err := range []error{
			second(Committed(noon, []Authorised{{Amount: bad, At: yesterday}}, "0", "0", "")), second(Committed(noon, nil, bad, "0", "")),
			second(Committed(noon, nil, "0", bad, "")), second(Committed(noon, nil, "0", "0", bad)),
		} {
			if err == nil || !strings.HasPrefix(err.Error(), "E_INPUT") {
				t.Errorf("%q: %v", bad, err)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }
