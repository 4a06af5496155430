package approval

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

var (
	inf  = math.Inf(1)
	nan  = math.NaN()
	some = func(f float64) *float64 { return &f }
)

func pay(n float64) Action { return Action{Action: "PAY", Asset: "USDC", Notional: n} }

// amounts are round and awkward numbers around the limits of the policies below.
var amounts = rapid.OneOf(
	rapid.Float64Range(-10, 3000),
	rapid.Custom(func(t *rapid.T) float64 { return float64(rapid.IntRange(-10, 300000).Draw(t, "cents")) / 100 }),
	rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 5e-324, 0.1, 0.2, 0.3, 250, 500, 2500, 1e16, 1e308}))

func policies(t *rapid.T) Policy {
	p := Policy{
		MaxNotional:   amounts.Draw(t, "max"),
		DailyCap:      amounts.Draw(t, "day"),
		HITLThreshold: amounts.Draw(t, "threshold"),
		MinConfidence: rapid.Float64Range(-1, 2).Draw(t, "confidence"),
	}
	if rapid.Bool().Draw(t, "listed") {
		p.AllowedActions = rapid.SliceOfN(rapid.SampledFrom([]string{"PAY", "REFUND", "pay"}), 0, 3).Draw(t, "actions")
	}
	if rapid.Bool().Draw(t, "limited") {
		p.PerAssetLimits = map[string]float64{rapid.SampledFrom([]string{"USDC", "DAI"}).Draw(t, "asset"): amounts.Draw(t, "limit")}
	}
	return p
}

func actions(t *rapid.T) Action {
	a := Action{
		Action:   rapid.SampledFrom([]string{"PAY", "REFUND", "SWAP", ""}).Draw(t, "action"),
		Asset:    rapid.SampledFrom([]string{"USDC", "DAI", "\"\\\n", "💵"}).Draw(t, "asset"),
		Notional: amounts.Draw(t, "notional"),
	}
	if rapid.Bool().Draw(t, "confident") {
		a.Confidence = some(rapid.Float64Range(-1, 2).Draw(t, "confidence"))
	}
	return a
}

var rank = map[string]int{Locked: 0, HITLRequired: 1, Blocked: 2}

func TestAResultIsOfOnePiece(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, p, committed := actions(t), policies(t), amounts.Draw(t, "committed")
		r, err := Evaluate(a, p, committed)
		if err != nil {
			t.Fatal(err)
		}
		failed := failedRules(r.Claims)
		if (len(failed) > 0) != (r.State == Blocked) || r.Allowed != (r.State == Locked) || r.RequiresHuman != (r.State == HITLRequired) {
			t.Fatalf("%+v", r)
		}
		if r.Allowed && r.CommittedDelta != a.Notional || !r.Allowed && r.CommittedDelta != 0 {
			t.Fatalf("a delta of %v in state %s", r.CommittedDelta, r.State)
		}
		if r.State == Blocked && r.Reason != "blocked: "+strings.Join(failed, ", ") {
			t.Fatalf("reason %q for %q", r.Reason, failed)
		}
		if len(r.ContentHash) != 64 {
			t.Fatalf("hash %q", r.ContentHash)
		}
		want := 4
		if len(p.AllowedActions) > 0 {
			want++
		}
		if a.Confidence != nil {
			want++
		}
		if len(r.Claims) != want {
			t.Fatalf("%d claims, want %d: a rule stopped the next", len(r.Claims), want)
		}
		again, _ := Evaluate(a, p, committed)
		if diff := cmp.Diff(r, again); diff != "" {
			t.Fatalf("the same question has another answer: %s", diff)
		}
	})
}

func TestSpendingMoreIsNeverEasier(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, p, committed := actions(t), policies(t), amounts.Draw(t, "committed")
		if a.Notional <= 0 {
			return
		}
		less, _ := Evaluate(a, p, committed)
		more := amounts.Filter(func(f float64) bool { return f >= a.Notional }).Draw(t, "more")
		a.Notional = more
		if r, _ := Evaluate(a, p, committed); rank[r.State] < rank[less.State] {
			t.Fatalf("%s, and %s for more", less.State, r.State)
		}
		if r, _ := Evaluate(a, p, committed+math.Abs(amounts.Draw(t, "spent"))); rank[r.State] < rank[less.State] {
			t.Fatalf("%s, and %s on a day with more behind it", less.State, r.State)
		}
	})
}

func TestALimitOfAnAssetCanOnlyLower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, p, committed := actions(t), policies(t), amounts.Draw(t, "committed")
		p.PerAssetLimits = nil
		without, _ := Evaluate(a, p, committed)
		p.PerAssetLimits = map[string]float64{a.Asset: amounts.Draw(t, "limit")}
		if with, _ := Evaluate(a, p, committed); rank[with.State] < rank[without.State] {
			t.Fatalf("%s became %s", without.State, with.State)
		}
	})
}

func TestAnApprovalWaivesTheThresholdAndNothingElse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, p, committed := actions(t), policies(t), amounts.Draw(t, "committed")
		asked, _ := Evaluate(a, p, committed)
		r, err := ApproveHuman(a, p, committed, "ana")
		if err != nil {
			t.Fatal(err)
		}
		if asked.State == Blocked {
			if r.State != Blocked || r.Allowed || r.ContentHash != asked.ContentHash || r.Reason != "approval by ana rejected: "+asked.Reason {
				t.Fatalf("%+v", r)
			}
			if diff := cmp.Diff(asked.Claims, r.Claims); diff != "" {
				t.Fatal(diff)
			}
			return
		}
		if r.State != Locked || !r.Allowed || r.CommittedDelta != a.Notional || r.RequiresHuman {
			t.Fatalf("%+v", r)
		}
		// Who approved is no part of the record, nor that somebody did.
		p.HITLThreshold = math.MaxFloat64
		auto, _ := Evaluate(a, p, committed)
		other, _ := ApproveHuman(a, p, committed, "bo")
		if auto.State == Locked && auto.ContentHash != r.ContentHash || other.ContentHash != r.ContentHash {
			t.Fatalf("%s, %s and %s", auto.ContentHash, r.ContentHash, other.ContentHash)
		}
	})
}

func TestTheHashIsOverTheActionAndTheOutcomeOnly(t *testing.T) {
	base, err := Evaluate(pay(10), DefaultPolicy(), 0)
	if err != nil {
		t.Fatal(err)
	}
	told, versioned := pay(10), DefaultPolicy()
	told.Rationale, versioned.Version, versioned.DailyCap = "because", "9", 99
	if r, _ := Evaluate(told, versioned, 7); r.ContentHash != base.ContentHash {
		t.Error("rationale, version, caps or the day's total are hashed")
	}
	for name, a := range map[string]Action{
		"the action":     {Action: "REFUND", Asset: "USDC", Notional: 10},
		"the asset":      {Action: "PAY", Asset: "usdc", Notional: 10},
		"the amount":     {Action: "PAY", Asset: "USDC", Notional: math.Nextafter(10, 11)},
		"the confidence": {Action: "PAY", Asset: "USDC", Notional: 10, Confidence: some(1)},
	} {
		if r, _ := Evaluate(a, DefaultPolicy(), 0); r.ContentHash == base.ContentHash {
			t.Errorf("%s is not hashed", name)
		}
	}
	strict := DefaultPolicy()
	strict.HITLThreshold = 0
	if r, _ := Evaluate(pay(10), strict, 0); r.ContentHash == base.ContentHash {
		t.Error("the state is not hashed")
	}
}

func TestWhatCannotBeJudgedIsBlocked(t *testing.T) {
	with := func(change func(a *Action, p *Policy, committed *float64)) call {
		c := call{action: pay(1), policy: DefaultPolicy()}
		change(&c.action, &c.policy, &c.committed)
		return c
	}
	cases := map[string]call{}
	for sign, f := range map[string]float64{"infinite": inf, "minus infinite": -inf, "not a number": nan} {
		cases["an amount that is "+sign] = with(func(a *Action, _ *Policy, _ *float64) { a.Notional = f })
		cases["a confidence that is "+sign] = with(func(a *Action, _ *Policy, _ *float64) { a.Confidence = some(f) })
		cases["a maximum that is "+sign] = with(func(_ *Action, p *Policy, _ *float64) { p.MaxNotional = f })
		cases["a daily cap that is "+sign] = with(func(_ *Action, p *Policy, _ *float64) { p.DailyCap = f })
		cases["a threshold that is "+sign] = with(func(_ *Action, p *Policy, _ *float64) { p.HITLThreshold = f })
		cases["a floor that is "+sign] = with(func(_ *Action, p *Policy, _ *float64) { p.MinConfidence = f })
		cases["another asset's limit that is "+sign] = with(func(_ *Action, p *Policy, _ *float64) { p.PerAssetLimits = map[string]float64{"DAI": f} })
		cases["a total that is "+sign] = with(func(_ *Action, _ *Policy, committed *float64) { *committed = f })
	}
	cases["an action that is not UTF-8"] = with(func(a *Action, _ *Policy, _ *float64) { a.Action = "\xff" })
	cases["an asset with half a pair"] = with(func(a *Action, _ *Policy, _ *float64) { a.Asset = "\xed\xa0\x80" })
	for name, c := range cases {
		for _, op := range []string{"evaluate", "approve_human"} {
			c.approver = "ana"
			r, err := c.run(op)
			var e *errcode.Error
			if !errors.As(err, &e) || e.Code != errcode.Input || e.Hint == "" {
				t.Errorf("%s: %v", name, err)
			}
			if r.State != Blocked || r.Allowed || r.CommittedDelta != 0 || r.ContentHash != "" || !strings.HasPrefix(r.Reason, "blocked: ") {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
}

func TestNobodyCannotApprove(t *testing.T) {
	for _, approver := range []string{"", " \t\n", "\xff"} {
		r, err := ApproveHuman(pay(1), DefaultPolicy(), 0, approver)
		if err == nil || r.State != Blocked || r.Allowed {
			t.Errorf("%q approved: %+v, %v", approver, r, err)
		}
	}
}

func TestAnEmptyPolicyLetsNothingThrough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if r, err := Evaluate(actions(t), Policy{}, 0); err != nil || r.State != Blocked {
			t.Fatalf("%+v, %v", r, err)
		}
	})
}

func TestEveryCallerHasADefaultPolicyOfItsOwn(t *testing.T) {
	p := DefaultPolicy()
	p.AllowedActions, p.PerAssetLimits = []string{"PAY"}, map[string]float64{"USDC": 1e9}
	want := Policy{Version: "1.0", MaxNotional: 500, DailyCap: 2500, HITLThreshold: 250, MinConfidence: 0.55}
	if diff := cmp.Diff(want, DefaultPolicy()); diff != "" {
		t.Error(diff)
	}
}

func TestAnOverflowingDayIsOverEveryCap(t *testing.T) {
	p := Policy{MaxNotional: math.MaxFloat64, DailyCap: math.MaxFloat64, HITLThreshold: math.MaxFloat64}
	r, err := Evaluate(pay(math.MaxFloat64), p, math.MaxFloat64)
	if err != nil || r.State != Blocked || r.Claims[3].Detail != "projected inf vs daily cap 1.7976931348623157e+308" {
		t.Errorf("%+v, %v", r, err)
	}
}
