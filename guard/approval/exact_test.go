package approval

import (
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func gate(max, day, threshold string) Gate {
	return Gate{Version: "1.0", MaxNotional: max, DailyCap: day, HITLThreshold: threshold, MinConfidence: "0"}
}

func TestAGateJudgesAPayment(t *testing.T) {
	limited := gate("500", "2500", "250")
	limited.AllowedActions = []string{"PAY"}
	limited.PerAssetLimits = map[string]string{"DAI": "50", "BIG": "9999"}
	for name, c := range map[string]struct {
		gate    Gate
		payment Payment
		state   string
		reasons []string
	}{
		"a small one goes ahead":    {limited, Payment{"PAY", "USDC", "12.50", "0"}, Locked, nil},
		"just under the threshold":  {limited, Payment{"PAY", "USDC", "249.999999", "0"}, Locked, nil},
		"the threshold itself asks": {limited, Payment{"PAY", "USDC", "250.00", "0"}, HITLRequired, []string{"human approval required: 250 >= HITL threshold 250"}},
		"the maximum itself asks":   {limited, Payment{"PAY", "USDC", "500", "0"}, HITLRequired, []string{"human approval required: 500 >= HITL threshold 250"}},
		"over the maximum nobody is asked": {limited, Payment{"PAY", "USDC", "500.000001", "0"}, Blocked,
			[]string{"per-asset-cap: USDC notional 500.000001 vs cap 500", "max-notional: 500.000001 vs max 500"}},
		"an asset's own limit":              {limited, Payment{"PAY", "DAI", "50.01", "0"}, Blocked, []string{"per-asset-cap: DAI notional 50.01 vs cap 50"}},
		"an asset's limit met":              {limited, Payment{"PAY", "DAI", "50", "0"}, Locked, nil},
		"an asset's limit lifts no maximum": {limited, Payment{"PAY", "BIG", "501", "0"}, Blocked, []string{"max-notional: 501 vs max 500"}},
		"another action":                    {limited, Payment{"pay", "USDC", "1", "0"}, Blocked, []string{"allowed-action: action pay"}},
		"the day's cap filled":              {limited, Payment{"PAY", "USDC", "100", "2400"}, Locked, nil},
		"the day's cap passed":              {limited, Payment{"PAY", "USDC", "100.01", "2400"}, Blocked, []string{"daily-cap: projected 2500.01 vs daily cap 2500"}},
		"nothing to pay":                    {limited, Payment{"PAY", "USDC", "0.00", "0"}, Blocked, []string{"sane-notional: notional=0"}},
		"a threshold of zero always asks":   {gate("1", "1", "0"), Payment{"PAY", "USDC", "0.000001", "0"}, HITLRequired, []string{"human approval required: 0.000001 >= HITL threshold 0"}},
		"a threshold above never asks":      {gate("1", "1", "2"), Payment{"PAY", "USDC", "1", "0"}, Locked, nil},
	} {
		t.Run(name, func(t *testing.T) {
			v := c.gate.Judge(c.payment)
			if v.State != c.state || v.Disagree || v.Record.State != c.state {
				t.Errorf("%+v", v)
			}
			if diff := cmp.Diff(c.reasons, v.Reasons); diff != "" {
				t.Error(diff)
			}
			if len(v.Record.ContentHash) != 64 {
				t.Error("no record")
			}
		})
	}
}

// The doubles of the protocol round; money does not. The stricter side counts and
// a reason says that they differ (approvals contract, section 9.6).
func TestWhereDoublesRoundTheStricterCounts(t *testing.T) {
	for name, c := range map[string]struct {
		gate          Gate
		payment       Payment
		state, record string
		reason        string
	}{
		"doubles put 0.1 and 0.2 above 0.3": {gate("1", "0.3", "1"), Payment{"PAY", "USDC", "0.2", "0.1"}, Blocked, Blocked,
			"in doubles, as the protocol computes, the gate says BLOCKED (blocked: daily-cap); in exact amounts LOCKED; the stricter counts"},
		"an atom over the maximum": {gate("0.3", "9", "9"), Payment{"PAY", "USDC", "0.300000000000000000001", "0"}, Blocked, Locked,
			"in doubles, as the protocol computes, the gate says LOCKED (auto-approved under CHP thresholds); in exact amounts BLOCKED; the stricter counts"},
		"an atom over a great day": {gate("90071992547409930", "90071992547409930", "90071992547409931"), Payment{"PAY", "USDC", "1", "90071992547409930"}, Blocked, Locked,
			"in doubles, as the protocol computes, the gate says LOCKED (auto-approved under CHP thresholds); in exact amounts BLOCKED; the stricter counts"},
		"an atom under the threshold": {gate("1", "1", "0.300000000000000000001"), Payment{"PAY", "USDC", "0.3", "0"}, HITLRequired, HITLRequired,
			"in doubles, as the protocol computes, the gate says HITL_REQUIRED (human approval required: 0.3 >= HITL threshold 0.3); in exact amounts LOCKED; the stricter counts"},
		"an amount no double can tell from nothing": {gate("1", "1", "1"), Payment{"PAY", "USDC", "0." + strings.Repeat("0", 390) + "1", "0"}, Blocked, Blocked,
			"in doubles, as the protocol computes, the gate says BLOCKED (blocked: sane-notional); in exact amounts LOCKED; the stricter counts"},
	} {
		t.Run(name, func(t *testing.T) {
			v := c.gate.Judge(c.payment)
			if v.State != c.state || v.Record.State != c.record || !v.Disagree {
				t.Errorf("%+v", v)
			}
			if len(v.Reasons) == 0 || v.Reasons[len(v.Reasons)-1] != c.reason {
				t.Errorf("reasons %q", v.Reasons)
			}
		})
	}
}

func TestAPersonWaivesTheThresholdOfAGateAndNothingElse(t *testing.T) {
	g := gate("500", "2500", "0")
	v := g.Approve(Payment{"PAY", "USDC", "320", "2180"}, "ana")
	if v.State != Locked || v.Disagree || len(v.Reasons) != 0 || v.Record.Reason != "human-approved by ana" || v.Record.CommittedDelta != 320 {
		t.Errorf("%+v", v)
	}
	v = g.Approve(Payment{"PAY", "USDC", "320", "2180.000001"}, "ana")
	if v.State != Blocked || v.Disagree || v.Record.Reason != "approval by ana rejected: blocked: daily-cap" ||
		!slices.Equal(v.Reasons, []string{"daily-cap: projected 2500.000001 vs daily cap 2500"}) {
		t.Errorf("%+v", v)
	}
	if v := g.Approve(Payment{"PAY", "USDC", "1", "0"}, " "); v.State != Blocked || v.Record.Allowed {
		t.Errorf("nobody approved: %+v", v)
	}
	// The record cannot carry an approval past what exact amounts refuse.
	if v := gate("0.3", "9", "0").Approve(Payment{"PAY", "USDC", "0.300000000000000000001", "0"}, "ana"); v.State != Blocked || v.Record.State != Locked || !v.Disagree {
		t.Errorf("%+v", v)
	}
}

func TestWhatAGateCannotReadIsBlocked(t *testing.T) {
	good, ok := gate("500", "2500", "250"), Payment{"PAY", "USDC", "1", "0"}
	limited := good
	limited.PerAssetLimits = map[string]string{"OTHER": "x"}
	for name, c := range map[string]struct {
		gate    Gate
		payment Payment
		reason  string
	}{
		"an empty gate":            {Gate{}, ok, `blocked: evaluate the spend gate: max_notional: "" is no decimal amount like "2.50"`},
		"no amount":                {good, Payment{"PAY", "USDC", "", "0"}, `blocked: evaluate the spend gate: amount: "" is no decimal amount like "2.50"`},
		"a negative amount":        {good, Payment{"PAY", "USDC", "-1", "0"}, `blocked: evaluate the spend gate: amount: "-1" is no decimal amount like "2.50"`},
		"no total":                 {good, Payment{"PAY", "USDC", "1", ""}, `blocked: evaluate the spend gate: committed: "" is no decimal amount like "2.50"`},
		"a negative total":         {good, Payment{"PAY", "USDC", "1", "-100"}, `blocked: evaluate the spend gate: committed: "-100" is no decimal amount like "2.50"`},
		"a limit of another asset": {limited, ok, `blocked: evaluate the spend gate: per_asset_limits: "x" is no decimal amount like "2.50"`},
		"an asset not UTF-8":       {good, Payment{"PAY", "\xff", "1", "0"}, `blocked: evaluate the spend gate: action or asset is not UTF-8 text`},
		"an unreadable day's cap":  {gate("1", "∞", "1"), ok, `blocked: evaluate the spend gate: daily_cap: "∞" is no decimal amount like "2.50"`},
	} {
		for _, v := range []Verdict{c.gate.Judge(c.payment), c.gate.Approve(c.payment, "ana")} {
			if v.State != Blocked || v.Record.State != Blocked || v.Record.Allowed || !slices.Equal(v.Reasons, []string{c.reason}) {
				t.Errorf("%s: %+v", name, v)
			}
		}
	}
}

var rational = rapid.StringMatching(`(0|[1-9][0-9]{0,3})(\.[0-9]{1,20})?`)

// A second gate in fractions, written the other way round: from the limits to
// the state, without claims.
func TestTheExactGateAgreesWithAModelAndTheStricterCounts(t *testing.T) {
	rat := func(s string) *big.Rat { r, _ := new(big.Rat).SetString(s); return r }
	rapid.Check(t, func(t *rapid.T) {
		g := gate(rational.Draw(t, "max"), rational.Draw(t, "day"), rational.Draw(t, "threshold"))
		p := Payment{ActionPay, "USDC", rational.Draw(t, "amount"), rational.Draw(t, "committed")}
		if rapid.Bool().Draw(t, "limited") {
			g.PerAssetLimits = map[string]string{"USDC": rational.Draw(t, "limit"), "DAI": "0"}
		}
		v := g.Judge(p)

		ceiling := rat(g.MaxNotional)
		if l, ok := g.PerAssetLimits["USDC"]; ok && rat(l).Cmp(ceiling) < 0 {
			ceiling = rat(l)
		}
		if left := new(big.Rat).Sub(rat(g.DailyCap), rat(p.Committed)); left.Cmp(ceiling) < 0 {
			ceiling = left
		}
		want := Locked
		switch {
		case rat(p.Amount).Sign() == 0 || rat(p.Amount).Cmp(ceiling) > 0:
			want = Blocked
		case rat(p.Amount).Cmp(rat(g.HITLThreshold)) >= 0:
			want = HITLRequired
		}
		if v.Disagree != (v.Record.State != want) {
			t.Fatalf("the exact gate does not say %s: %+v", want, v)
		}
		if rank[v.State] != max(rank[want], rank[v.Record.State]) {
			t.Fatalf("%s of %s and %s", v.State, want, v.Record.State)
		}
		if (v.State == Locked) != (len(v.Reasons) == 0) {
			t.Fatalf("reasons %q in state %s", v.Reasons, v.State)
		}
	})
}

// Quarters are exact in doubles: the two gates are the same gate.
func TestWithoutRoundingTheExactGateIsTheGateOfTheProtocol(t *testing.T) {
	quarters := rapid.StringMatching(`(0|[1-9][0-9]{0,3})(\.(0|25|5|75))?`)
	rapid.Check(t, func(t *rapid.T) {
		g := gate(quarters.Draw(t, "max"), quarters.Draw(t, "day"), quarters.Draw(t, "threshold"))
		g.AllowedActions = []string{"PAY"}
		g.PerAssetLimits = map[string]string{"DAI": quarters.Draw(t, "limit")}
		p := Payment{rapid.SampledFrom([]string{"PAY", "SWAP"}).Draw(t, "action"), rapid.SampledFrom([]string{"USDC", "DAI"}).Draw(t, "asset"),
			quarters.Draw(t, "amount"), quarters.Draw(t, "committed")}
		v := g.Judge(p)
		if v.Disagree || v.State != v.Record.State || len(v.Claims) != len(v.Record.Claims) {
			t.Fatalf("%+v", v)
		}
		for i, c := range v.Claims {
			r := v.Record.Claims[i]
			if c.Rule != r.Rule || c.Passed != r.Passed || c.Detail != strings.ReplaceAll(r.Detail, ".0", "") {
				t.Fatalf("%+v beside %+v", c, r)
			}
		}
	})
}
