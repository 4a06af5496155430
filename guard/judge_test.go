package guard

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/plain"
)

var updateJudge = flag.Bool("update-judge", false, "write testdata/judge again")

const (
	usdc   = "eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
	eurc   = "eip155:8453/0x60a3e35cc302bfa44cb288bc5a4f316fdb1adb42"
	seller = "0x1111111111111111111111111111111111111111"
	other  = "0x2222222222222222222222222222222222222222"
	host   = "api.seller.example"
	url    = "https://api.seller.example/weather"
)

// scene is everything a verdict is a function of.
type scene struct {
	p   *Policy
	f   *Facts
	r   *Record
	a   *Ask
	now time.Time
}

func (s *scene) judge() *Verdict { return Judge(s.p, s.f, s.r, s.a, s.now) }

// quiet is a payment of 0.50 USDC that no rule minds, with some history.
func quiet() *scene {
	p := DefaultPolicy()
	p.Assets[eurc] = Asset{Symbol: "EURC", Decimals: 6}
	p.Limits = []Limit{
		{Name: "daily", Scope: "total", Asset: usdc, Amount: "20.00", Atomic: "20000000", WindowHours: 24, Action: Block, Mode: "enforce"},
		{Name: "often", Scope: "host", Count: 5, WindowHours: 1, Action: Review, Mode: "enforce"},
		{Name: "trial", Scope: "counterparty", Asset: usdc, Amount: "3.00", Atomic: "3000000", Count: 9, WindowHours: 168, Action: Block, Mode: "shadow"},
	}
	p.Operators = []decision.Operator{{Name: "ann", PublicKey: "a2V5"}}
	return &scene{
		p: p,
		f: &Facts{
			Checked: decision.Checked{Events: 40, Runs: 2, Through: "2026-03-01T12:00:00Z"}, HasRuns: true,
			Full: 3, Partial: 1, Blind: 0,
			Window: Window{Applies: true, Spent: "1000000", Held: "0", Count: 3},
			Limits: []Window{
				{Applies: true, Spent: "1000000", Held: "0", Count: 3},
				{Applies: true, Spent: "0", Held: "0", Count: 1},
				{Applies: true, Spent: "1000000", Held: "0", Count: 3},
			},
			Prices:    []string{"400000", "500000", "600000"},
			PaidHosts: []string{host},
		},
		r: &Record{},
		a: &Ask{
			Request: Request{Counterparty: url, Amount: "0.50", Resource: url, PayTo: seller},
			Intent:  decision.Intent{Names: []string{seller, host}, Amount: "500000", Asset: usdc, Resource: url},
			Typed:   []string{host}, PayTo: seller, Host: host, Hosts: []string{host}, Names: []string{seller, host},
			Symbol: "USDC", Decimals: 6, Network: "eip155:8453",
		},
		now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	}
}

// ops are n operations, the newest first: op(n-1) ... op(0).
func ops(n int) Evidence {
	e := Evidence{Total: n}
	for i := n - 1; i >= max(0, n-maxEvidence); i-- {
		e.Refs = append(e.Refs, op(i))
	}
	return e
}

func op(i int) decision.Ref {
	id := fmt.Sprint("op-", i)
	return decision.Ref{Run: "run-1", Operation: &id}
}

// row is a rule of the table of the contract: how it fires, how it just does not, and
// what switches it off.
type row struct {
	rule  string
	when  string // it fires: a sentence
	fires func(*scene)
	least string       // the nearest it does not fire: a sentence
	near  func(*scene) // nil: there is no way to be near
	gives string

	offUnready, offAmount bool // off without facts; without an amount
	money                 bool // one of the three of which one can fire at a time
	offAsset              bool // off where nobody knows the asset

	// An approval that was shown the rule never waives it, or always (by name), or
	// until it shows what more does.
	never bool
	more  func(*scene)
}

var table = []row{
	{
		rule: "not_ready", gives: Review, never: true,
		when: "the history could not be read", fires: func(s *scene) { s.f = &Facts{NotReady: "the index is locked; ask again"} },
	}, {
		rule: "frozen", gives: Block, never: true,
		when: "a freeze is in force", fires: func(s *scene) { s.r.Frozen = "all payments are frozen since 2026-03-01: audit" },
	}, {
		rule: "log_unsound", gives: Review, never: true,
		when: "the log does not verify", fires: func(s *scene) { s.r.Unsound = "line 7: its sig is wrong" },
	}, {
		rule: "recorder_silent", gives: Review, offUnready: true,
		when: "the root holds no run at all", fires: func(s *scene) { s.f.HasRuns = false },
	}, {
		rule: "denylist", gives: Block, never: true,
		when: "one name of the counterparty is on it", fires: func(s *scene) { s.p.Denylist = []string{other, host} },
		least: "another name is on it", near: func(s *scene) { s.p.Denylist = []string{other} },
	}, {
		rule: "rejected_by_human", gives: Block, never: true,
		when: "a person rejected the same payment", fires: func(s *scene) {
			s.r.Rejected = &Refusal{ReviewID: "r-77", At: s.now.Add(-time.Hour), By: "ann", Note: "not this one"}
		},
	}, {
		rule: "recently_rejected", gives: Review,
		when: "a person rejected another payment to the same payee", fires: func(s *scene) {
			s.r.Nearby = &Refusal{ReviewID: "r-78", What: `another payment to "api.seller.example"`, At: s.now.Add(-2 * time.Hour)}
		},
		more: func(s *scene) {
			s.r.Nearby = &Refusal{ReviewID: "r-79", What: `another payment to "api.seller.example"`, At: s.now.Add(-time.Minute)}
		},
	}, {
		rule: "allowlist", gives: Review,
		when: "pay_to is not on it", fires: func(s *scene) { s.p.Allowlist = []string{host} },
		least: "counterparty and pay_to are on it", near: func(s *scene) { s.p.Allowlist = []string{seller, host} },
	}, {
		rule: "open_partial", gives: Review, offUnready: true,
		when: "more operations are open than may be", fires: func(s *scene) { s.p.MaxOpenPartial = 1; s.f.Open = ops(2) },
		least: "as many operations are open as may be", near: func(s *scene) { s.p.MaxOpenPartial = 1; s.f.Open = ops(1) },
		more: func(s *scene) { s.f.Open = ops(3) },
	}, {
		rule: "duplicate_purchase", gives: Review, offUnready: true, offAmount: true,
		when: "an open operation is for the same payment", fires: func(s *scene) { s.f.Duplicate = ops(1) },
		more: func(s *scene) { s.f.Duplicate.Refs = []decision.Ref{op(9)} },
	}, {
		rule: "unknown_asset", gives: Review, money: true,
		when: "the registry does not know the asset", fires: func(s *scene) {
			s.a.MoneyRule, s.a.MoneyDetail = "unknown_asset", `no asset of the registry is called "USDX"`
			s.a.Intent.Amount, s.a.Intent.Asset, s.a.Intent.Typed, s.a.Symbol, s.a.Decimals = "", "", "0.50 USDX", "", 0
		},
	}, {
		rule: "unparseable_amount", gives: Review, money: true,
		when: "the amount has more digits than the asset", fires: func(s *scene) {
			s.a.MoneyRule, s.a.MoneyDetail = "unparseable_amount", "0.0000001 has more than the 6 decimals of USDC"
			s.a.Intent.Amount, s.a.Intent.Typed = "", "0.0000001"
		},
	}, {
		rule: "asset_mismatch", gives: Review, money: true,
		when: "the asset is another than the policy's", fires: func(s *scene) {
			s.a.MoneyRule, s.a.MoneyDetail = "asset_mismatch", "the policy has no limits for EURC"
			s.a.Intent.Amount, s.a.Intent.Asset, s.a.Intent.Typed = "", eurc, "0.50 EURC"
		},
	}, {
		rule: "per_counterparty_limit", gives: Review, offUnready: true, offAmount: true,
		when: "spent, held and this are one atomic unit over the limit", fires: func(s *scene) { s.f.Window.Spent, s.f.Window.Held = "4000000", "500001" },
		least: "spent, held and this are exactly the limit", near: func(s *scene) { s.f.Window.Spent, s.f.Window.Held = "4000000", "500000" },
		more: func(s *scene) { s.f.Window.Spent = "4000001" },
	}, {
		rule: "mixed_assets", gives: Review, offUnready: true,
		when: "another asset was paid with", fires: func(s *scene) { s.f.Mixed = ops(1) },
		more: func(s *scene) { s.f.Mixed = ops(2) },
	}, {
		rule: "unparseable_history", gives: Review, offUnready: true,
		when: "an earlier payment cannot be summed", fires: func(s *scene) { s.f.Unreadable = ops(25) },
		more: func(s *scene) { s.f.Unreadable = ops(26) },
	}, {
		rule: "spend_gate", gives: Review, offUnready: true, offAmount: true,
		when: "the gate asks for a person", fires: func(s *scene) {
			s.f.Gate = &approval.Verdict{State: approval.HITLRequired, Reasons: []string{"human approval required: 0.5 >= HITL threshold 0.25"}}
		},
		least: "the gate lets it through", near: func(s *scene) {
			s.f.Gate = &approval.Verdict{State: approval.Locked}
		},
	}, {
		rule: "spend_gate", gives: Block, offUnready: true, offAmount: true, never: true,
		when: "the gate blocks", fires: func(s *scene) {
			s.f.Gate = &approval.Verdict{State: approval.Blocked, Reasons: []string{"daily-cap: projected 1.5 vs daily cap 1"}}
		},
	}, {
		rule: "limit:daily", gives: Block, offUnready: true, offAmount: true, never: true,
		when: "a limit that blocks is one atomic unit over", fires: func(s *scene) { s.f.Limits[0].Spent, s.f.Limits[0].Held = "10000001", "9500000" },
		least: "the limit is reached exactly", near: func(s *scene) { s.f.Limits[0].Spent, s.f.Limits[0].Held = "10000000", "9500000" },
	}, {
		rule: "limit:often", gives: Review, offUnready: true,
		when: "this would be one payment too many", fires: func(s *scene) { s.f.Limits[1].Count, s.f.Limits[1].Holds = 3, 2 },
		least: "this is the last payment that may be", near: func(s *scene) { s.f.Limits[1].Count, s.f.Limits[1].Holds = 3, 1 },
		more: func(s *scene) { s.f.Limits[1].Count++ },
	}, {
		rule: "review_above", gives: Review, offAmount: true,
		when: "the amount is one atomic unit above", fires: func(s *scene) { setReviewAbove(s, "0.499999", "499999") },
		least: "the amount is exactly it", near: func(s *scene) { setReviewAbove(s, "0.5", "500000") },
	}, {
		rule: "payee_changed", gives: Review, offUnready: true,
		when: "the host was paid before and never at this address", fires: func(s *scene) { s.f.PayeeChanged = ops(2) },
		least: "no address to be paid is given", near: func(s *scene) { s.f.PayeeChanged = ops(2); s.a.PayTo = "" },
		more: func(s *scene) { s.f.PayeeChanged = ops(3) },
	}, {
		rule: "price_drift", gives: Review, offUnready: true, offAmount: true,
		when: "the amount is exactly ten times the median", fires: func(s *scene) { s.f.Prices = []string{"1", "50000", "90000"} },
		least: "the amount is less than ten times the median by less than an atomic unit", near: func(s *scene) { s.f.Prices = []string{"1", "50000", "50001", "90000"} },
	}, {
		rule: "damaged_history", gives: Review, offUnready: true,
		when: "a run has damage nobody acknowledged", fires: func(s *scene) {
			s.f.Damage = []DamageItem{{Run: "run-9", Line: 12, Offset: 900, Reason: "not JSON", Faults: 2}, {Run: "run-8", Removed: true}}
			s.f.DamageTotal = 2
		},
		least: "the policy ignores damage", near: func(s *scene) {
			s.p.Damage, s.f.Damage, s.f.DamageTotal = "ignore", []DamageItem{{Run: "run-9", Line: 12}}, 1
		},
		more: func(s *scene) { s.f.Damage[0].Faults = 3 },
	}, {
		rule: "listing_unknown_or_stale", gives: Review,
		when: "the listing is not remembered", fires: func(s *scene) { s.a.ListingRef = "l-0a1b2c" },
		least: "it is remembered", near: func(s *scene) { offered(s) },
		more: func(s *scene) { s.a.ListingRef = "l-0a1b2d" },
	}, {
		rule: "listing_not_payable", gives: Block, never: true,
		when: "the listing is not live", fires: func(s *scene) { offered(s).Status = "completed" },
		least: "it expires in an instant", near: func(s *scene) { offered(s).ExpiresAt = s.now.Add(1) },
	}, {
		rule: "listing_amount_out_of_range", gives: Review, offAmount: true,
		when: "the amount is a little more than the listing is for", fires: func(s *scene) { offered(s).AmountMax = "0.4999999" },
		least: "it is the least and the most the listing is for", near: func(s *scene) {
			l := offered(s)
			l.AmountMin, l.AmountMax = "0.5", "0.50"
		},
		more: func(s *scene) { s.a.Listing.AmountMax = "0.3" },
	}, {
		rule: "listing_currency_mismatch", gives: Review, offAsset: true,
		when: "the poster wants something else", fires: func(s *scene) { offered(s).Asset = "BTC" },
		least: "the poster wants this asset on this network", near: func(s *scene) { offered(s) },
		more: func(s *scene) { s.a.Listing.Asset = "XMR" },
	}, {
		rule: "listing_network_missing", gives: Block, never: true,
		when: "the asset is on several networks and the listing names none", fires: func(s *scene) {
			l := offered(s)
			l.Network, l.Chain = "", ""
		},
		least: "the asset is on one network", near: func(s *scene) {
			l := offered(s)
			l.Network, l.Chain, l.SeveralChains = "", "", false
		},
	}, {
		rule: "listing_new_trader", gives: Review,
		when: "the poster has one trade less than the policy asks for", fires: func(s *scene) { offered(s).Trades, s.p.MinTrades = 3, 4 },
		least: "the poster has as many", near: func(s *scene) { offered(s).Trades, s.p.MinTrades = 4, 4 },
		more: func(s *scene) { s.a.Listing.Trades = 2 },
	}, {
		rule: "listing_text_flagged", gives: Review,
		when: "cleaning changed its text", fires: func(s *scene) { offered(s).Flagged = []string{"terms"} },
		least: "nothing was changed", near: func(s *scene) { offered(s) },
		more: func(s *scene) { s.a.Listing.Digest = strings.Repeat("9", 64) },
	},
}

// offered makes the payment of a scene one for a listing that no rule minds, and
// gives it.
func offered(s *scene) *Listing {
	s.a.ListingRef = "l-0a1b2c"
	if s.a.Listing == nil {
		s.a.Listing = &Listing{
			Digest: strings.Repeat("0a1b2c3d", 8), Instance: "https://market.example", Account: "orchard.lane", Permlink: "usdc-buy-0007",
			Side: "buy", Asset: "USDC", Network: "base", Chain: "eip155:8453", SeveralChains: true, Fiat: "USD", Price: "1.00",
			Status: "live", FeeVerified: true, Trades: 10, SeenAt: s.now.Add(-time.Minute),
		}
	}
	return s.a.Listing
}

// setReviewAbove lowers it for the asset of the scene.
func setReviewAbove(s *scene, units, atomic string) {
	s.p.ReviewAbove, s.p.ReviewAboveAtomic = units, atomic
}

func names(reasons []decision.Reason) []string {
	var all []string
	for _, r := range reasons {
		all = append(all, r.Rule)
	}
	return all
}

func reason(reasons []decision.Reason, rule string) *decision.Reason {
	for i := range reasons {
		if reasons[i].Rule == rule {
			return &reasons[i]
		}
	}
	return nil
}

// approve makes a person approve what a verdict asks, and rests the scene on it.
func (s *scene) approve(t interface{ Fatalf(string, ...any) }) {
	v := s.judge()
	facts, shown := Opening(s.p, s.f, s.r, s.a, v)
	line, err := json.Marshal(decision.Opened{
		ReviewID: "r-1", Kind: "payment", Intent: s.a.Intent, Facts: facts, Shown: shown, Reasons: v.Fired,
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	// Through its line, as it comes back.
	s.r.Approval = &decision.Opened{}
	if err := json.Unmarshal(line, s.r.Approval); err != nil {
		t.Fatalf("%v", err)
	}
}

// expect judges and compares the decision and the rules, history aside.
func (s *scene) expect(t *testing.T, want string, rules ...string) *Verdict {
	t.Helper()
	v := s.judge()
	if v.Decision != want || !slices.Equal(names(v.Reasons), append(rules, "history")) {
		t.Errorf("%s %q, want %s %q", v.Decision, names(v.Reasons), want, rules)
	}
	return v
}

// contract reads the copy of the contract's table: the rules and what they give.
func contract(t *testing.T) (rules []string, gives map[string]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "judge", "rules.md"))
	if err != nil {
		t.Fatal(err)
	}
	gives = map[string]string{}
	quoted := regexp.MustCompile("`([^`]+)`")
	for _, line := range strings.Split(string(text), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(cells[0], -1) {
			rules = append(rules, m[1])
			gives[m[1]] = cells[len(cells)-1]
		}
	}
	return rules, gives
}

// family is the contract's name of a rule.
func family(rule string) string {
	if strings.HasPrefix(rule, "limit:") {
		return "limit:<name>"
	}
	return rule
}

func TestTheRulesAreThoseOfTheContractInItsOrder(t *testing.T) {
	want, gives := contract(t)
	if len(want) != 29 {
		t.Fatalf("the contracts' tables have %d rules", len(want))
	}
	var have, tested []string
	for _, r := range rules {
		have = append(have, family(r.name))
		switch g := gives[family(r.name)]; {
		case r.gives == "" && !(strings.Contains(g, Block) && strings.Contains(g, Review)):
			t.Errorf("%s may give either, the contract says %q", r.name, g)
		case r.gives != "" && !strings.HasPrefix(g, r.gives):
			t.Errorf("%s gives %s, the contract says %q", r.name, r.gives, g)
		}
	}
	for _, r := range table {
		if f := family(r.rule); !slices.Contains(tested, f) {
			tested = append(tested, f)
		}
		if !strings.Contains(gives[family(r.rule)], r.gives) {
			t.Errorf("the test of %s expects %s, the contract says %q", r.rule, r.gives, gives[family(r.rule)])
		}
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("the rules (-contract +code):\n%s", diff)
	}
	if diff := cmp.Diff(want, tested); diff != "" {
		t.Errorf("the tests (-contract +tests):\n%s", diff)
	}
}

func TestAQuietPaymentIsAllowed(t *testing.T) {
	v := quiet().expect(t, Allow)
	if v.Redeems != "" || v.NoReview() || v.Warnings != nil || v.Shadow != nil || v.Checked.Events != 40 {
		t.Errorf("%+v", v)
	}
}

// TestDecisionTable is every rule of the table in every state it can be in.
func TestDecisionTable(t *testing.T) {
	for _, r := range table {
		t.Run(fmt.Sprintf("%s gives %s when %s", r.rule, r.gives, r.when), func(t *testing.T) {
			s := quiet()
			r.fires(s)
			v := s.expect(t, r.gives, r.rule)
			if !v.blocks[r.rule] != (r.gives == Review) || len(v.blocks) > 1 {
				t.Errorf("blocks %v", v.blocks)
			}
			if v.Reasons[0].Detail == "" {
				t.Error("the reason says nothing")
			}
			if diff := cmp.Diff(v.Fired, v.Reasons); diff != "" {
				t.Errorf("nothing was waived, but (-fired +reasons):\n%s", diff)
			}
		})
		if r.near != nil {
			t.Run(fmt.Sprintf("%s is silent when %s", r.rule, r.least), func(t *testing.T) {
				s := quiet()
				r.near(s)
				s.expect(t, Allow)
			})
		}
		if r.rule != "not_ready" {
			t.Run(fmt.Sprintf("%s without facts is off: %v", r.rule, r.offUnready), func(t *testing.T) {
				s := quiet()
				r.fires(s)
				s.f.NotReady = "the index is locked; ask again"
				v := s.judge()
				if fired := reason(v.Reasons, r.rule) != nil; fired == r.offUnready {
					t.Errorf("fired: %v", fired)
				}
				if v.Reasons[0].Rule != "not_ready" || v.Decision == Allow || !v.NoReview() {
					t.Errorf("%s %q", v.Decision, names(v.Reasons))
				}
			})
		}
		if !r.money {
			t.Run(fmt.Sprintf("%s without an amount is off: %v", r.rule, r.offAmount), func(t *testing.T) {
				s := quiet()
				r.fires(s)
				s.a.MoneyRule, s.a.Intent.Amount = "unparseable_amount", ""
				v := s.judge()
				if fired := reason(v.Reasons, r.rule) != nil; fired == r.offAmount {
					t.Errorf("fired: %v", fired)
				}
				if reason(v.Reasons, "unparseable_amount") == nil || v.Decision == Allow {
					t.Errorf("%s %q", v.Decision, names(v.Reasons))
				}
			})
		}
		if r.never {
			t.Run(r.rule+" is never waived, whatever a review lists", func(t *testing.T) {
				s := quiet()
				r.fires(s)
				s.approve(t)
				v := s.expect(t, r.gives, r.rule)
				if v.Redeems != "" {
					t.Error("the approval is used up")
				}
			})
			continue
		}
		t.Run(r.rule+" is waived by a person who was shown it", func(t *testing.T) {
			s := quiet()
			r.fires(s)
			s.approve(t)
			v := s.expect(t, Allow, "approved_by_human")
			if v.Redeems != "r-1" || !strings.Contains(v.Reasons[0].Detail, r.rule) || !strings.Contains(v.Reasons[0].Detail, "r-1") {
				t.Errorf("redeems %q: %s", v.Redeems, v.Reasons[0].Detail)
			}
			if v.Fired[0].Rule != r.rule {
				t.Errorf("fired %q", names(v.Fired))
			}
		})
		t.Run(r.rule+" is not waived by a person who was not shown it", func(t *testing.T) {
			s := quiet()
			s.approve(t)
			r.fires(s)
			v := s.expect(t, Review, r.rule)
			if v.Redeems != "" {
				t.Error("the approval is used up")
			}
		})
		if r.more != nil {
			t.Run(r.rule+" is not waived when it shows more than was shown", func(t *testing.T) {
				s := quiet()
				r.fires(s)
				s.approve(t)
				r.more(s)
				s.expect(t, Review, r.rule)
			})
		}
		if r.rule != "log_unsound" {
			t.Run(r.rule+" is not waived while the log does not verify", func(t *testing.T) {
				s := quiet()
				r.fires(s)
				s.approve(t)
				s.r.Unsound = "line 7: its sig is wrong"
				if v := s.judge(); reason(v.Reasons, r.rule) == nil || v.Decision == Allow || v.Redeems != "" {
					t.Errorf("%s %q", v.Decision, names(v.Reasons))
				}
			})
		}
	}
}

func TestALimitInShadowNeverDecides(t *testing.T) {
	for name, set := range map[string]func(*scene){
		"over its amount": func(s *scene) { s.f.Limits[2].Spent = "2500001" },
		"over its count":  func(s *scene) { s.f.Limits[2].Count = 9 },
		"without a sum":   func(s *scene) { s.f.Limits[2].Held = "-1" },
	} {
		t.Run(name, func(t *testing.T) {
			s := quiet()
			set(s)
			v := s.expect(t, Allow)
			if len(v.Shadow) != 1 || v.Shadow[0].Rule != "limit:trial" || v.Shadow[0].Detail == "" || len(v.blocks) != 0 {
				t.Errorf("shadow %+v", v.Shadow)
			}
			if _, shown := Opening(s.p, s.f, s.r, s.a, v); shown != nil {
				t.Errorf("shown %+v", shown)
			}
			s.p.Limits[2].Mode = "enforce"
			if v := s.judge(); v.Decision == Allow || v.Shadow != nil {
				t.Errorf("enforced: %s, shadow %+v", v.Decision, v.Shadow)
			}
		})
	}
	s := quiet()
	s.f.Limits[2].Spent = "2500000"
	if v := s.expect(t, Allow); v.Shadow != nil {
		t.Errorf("exactly at its amount: %+v", v.Shadow)
	}
}

// TestEveryDetailIsASentence keeps what people read under review: one line a row.
func TestEveryDetailIsASentence(t *testing.T) {
	var b strings.Builder
	say := func(v *Verdict) {
		for _, r := range append(v.Reasons, v.Shadow...) {
			fmt.Fprintf(&b, "%s: %s\n", r.Rule, r.Detail)
		}
	}
	for _, r := range table {
		s := quiet()
		r.fires(s)
		v := s.judge()
		v.Reasons = v.Reasons[:1]
		say(v)
	}
	s := quiet()
	s.f.Limits[2].Count, s.f.Limits[2].Spent = 9, "2600000"
	s.f.AnyPartialCounts, s.a.Template = true, "house-escrow"
	s.r.NoApproval = "review r-5 expired on 2026-02-27 10:00:00 UTC"
	say(s.judge())
	s = quiet()
	s.f.Open, s.p.MaxOpenPartial = ops(1), 0
	s.f.Window.Spent = "4900000"
	s.approve(t)
	say(s.judge())
	s.f.HasRuns = false
	say(s.judge())
	golden(t, "details.txt", b.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "judge", name)
	if *updateJudge {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); run with -update-judge and read it:\n%s", path, diff)
	}
}

// subset draws rows that can fire together: of the money rules and of the two
// answers of the gate one each, and of a listing that is not known nothing else.
func subset(t *rapid.T, from func(row) bool) []row {
	var all []row
	once := map[string]bool{}
	for _, r := range table {
		if !from(r) || !rapid.Bool().Draw(t, r.rule+" "+r.gives) {
			continue
		}
		if once["listing_unknown_or_stale"] && strings.HasPrefix(r.rule, "listing_") {
			continue
		}
		group := r.rule
		if r.money {
			group = "money"
		}
		if !once[group] {
			all = append(all, r)
		}
		once[group] = true
	}
	return all
}

// stage makes the rows fire. not_ready takes the facts away, so it comes last.
func stage(all []row) *scene {
	s := quiet()
	for _, r := range all {
		if r.rule != "not_ready" {
			r.fires(s)
		}
	}
	for _, r := range all {
		if r.rule == "not_ready" {
			s.f.NotReady = "the index is locked; ask again"
		}
	}
	return s
}

// standing are the rows of a subset that are not switched off by another.
func standing(all []row) []row {
	unready := slices.ContainsFunc(all, func(r row) bool { return r.rule == "not_ready" })
	money := slices.ContainsFunc(all, func(r row) bool { return r.money })
	unknown := slices.ContainsFunc(all, func(r row) bool { return r.rule == "unknown_asset" })
	return slices.DeleteFunc(slices.Clone(all), func(r row) bool { return unready && r.offUnready || money && r.offAmount || unknown && r.offAsset })
}

func anyRow(row) bool { return true }

func TestReasonsStandInTableOrderAndTheFirstBlockDecides(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := subset(t, anyRow)
		decision, rules, blocks := Allow, []string{}, ""
		for _, r := range standing(all) {
			rules = append(rules, r.rule)
			switch {
			case r.gives == Block:
				decision = Block
				if blocks == "" {
					blocks = r.rule
				}
			case decision == Allow:
				decision = Review
			}
		}
		v := stage(all).judge()
		if v.Decision != decision || !slices.Equal(names(v.Reasons), append(rules, "history")) {
			t.Fatalf("%s %q, want %s %q", v.Decision, names(v.Reasons), decision, rules)
		}
		for _, r := range v.Reasons {
			if v.blocks[r.Rule] {
				if r.Rule != blocks {
					t.Fatalf("%s blocks first, want %s", r.Rule, blocks)
				}
				break
			}
		}
	})
}

func TestOneApprovalCoversAllThatItWasShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := stage(subset(t, func(r row) bool { return !r.never }))
		before := s.judge()
		s.approve(t)
		v := s.judge()
		if v.Decision != Allow || v.Redeems != "r-1" {
			t.Fatalf("%s, redeems %q: %q", v.Decision, v.Redeems, names(v.Reasons))
		}
		if diff := cmp.Diff(names(before.Reasons), names(v.Fired)); diff != "" {
			t.Fatalf("what fired differs from what was shown:\n%s", diff)
		}
		if before.Decision == Allow != (reason(v.Reasons, "approved_by_human") == nil) {
			t.Fatalf("%s without the approval, %q with it", before.Decision, names(v.Reasons))
		}
	})
}

func TestAnApprovalWaivesNothingThatWasNotShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := subset(t, func(r row) bool { return r.rule != "not_ready" && r.rule != "log_unsound" })
		s := stage(all)
		v := s.judge()
		s.approve(t)
		var listed []string
		s.r.Approval.Reasons = slices.DeleteFunc(s.r.Approval.Reasons, func(r decision.Reason) bool {
			keep := rapid.Bool().Draw(t, "shown "+r.Rule)
			if keep {
				listed = append(listed, r.Rule)
			}
			return !keep
		})
		after := s.judge()
		want, place := []string{}, -1
		for _, r := range v.Reasons {
			if r.Rule != "history" && !v.blocks[r.Rule] && slices.Contains(listed, r.Rule) {
				if place < 0 {
					place = len(want)
					want = append(want, "approved_by_human")
				}
				continue
			}
			want = append(want, r.Rule)
		}
		if !slices.Equal(names(after.Reasons), want) {
			t.Fatalf("%q, want %q", names(after.Reasons), want)
		}
		if after.Decision == Allow != (len(want) == 1 || len(want) == 2 && place == 0) {
			t.Fatalf("%s for %q", after.Decision, want)
		}
		if (after.Redeems != "") != (after.Decision == Allow) {
			t.Fatalf("%s redeems %q", after.Decision, after.Redeems)
		}
		if !slices.Equal(names(after.Fired), names(v.Fired)) {
			t.Fatalf("fired %q, want %q", names(after.Fired), names(v.Fired))
		}
	})
}

// grow makes one thing larger that a rule looks at.
func grow(t *rapid.T, s *scene) {
	add := func(amount *string) {
		sum, err := payment.Add(*amount, rapid.StringMatching(`[1-9][0-9]{0,7}`).Draw(t, "amount"))
		if err != nil {
			t.Fatal(err)
		}
		*amount = sum
	}
	evidence := func(e *Evidence) {
		e.Refs = slices.Insert(slices.Clone(e.Refs), 0, op(1000+e.Total))
		e.Refs = e.Refs[:min(len(e.Refs), maxEvidence)]
		e.Total++
	}
	windows := []*Window{&s.f.Window}
	for i := range s.f.Limits {
		windows = append(windows, &s.f.Limits[i])
	}
	w := windows[rapid.IntRange(0, len(windows)-1).Draw(t, "window")]
	switch rapid.IntRange(0, 10).Draw(t, "what") {
	case 0:
		add(&w.Spent)
	case 1:
		add(&w.Held)
	case 2:
		w.Count++
	case 3:
		w.Holds++
	case 4:
		evidence(&s.f.Open)
	case 5:
		evidence(&s.f.Duplicate)
	case 6:
		evidence(&s.f.Mixed)
	case 7:
		evidence(&s.f.Unreadable)
	case 8:
		evidence(&s.f.PayeeChanged)
	case 9:
		s.f.Damage = append([]DamageItem{{Run: fmt.Sprint("new-", s.f.DamageTotal), Line: 1}}, s.f.Damage...)
		s.f.DamageTotal++
	case 10:
		s.r.Nearby = &Refusal{ReviewID: "r-new", What: "another payment to it", At: s.now}
	}
}

var severity = []string{Allow, Review, Block}

func TestMoreEvidenceOrSpendingNeverLoosensAVerdict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := stage(subset(t, func(r row) bool { return !r.never }))
		approved := rapid.Bool().Draw(t, "approved")
		if approved {
			s.approve(t)
		}
		for range rapid.IntRange(0, 3).Draw(t, "before") {
			grow(t, s)
		}
		before := s.judge()
		grow(t, s)
		after := s.judge()
		if slices.Index(severity, after.Decision) < slices.Index(severity, before.Decision) {
			t.Fatalf("%s became %s: %q, then %q", before.Decision, after.Decision, names(before.Reasons), names(after.Reasons))
		}
		for _, r := range before.Reasons {
			if r.Rule != "approved_by_human" && reason(after.Reasons, r.Rule) == nil {
				t.Fatalf("%s fell silent", r.Rule)
			}
		}
	})
}

func TestAListingNeverLoosensAVerdict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := stage(subset(t, func(r row) bool { return !strings.HasPrefix(r.rule, "listing_") }))
		if rapid.Bool().Draw(t, "approved") {
			s.approve(t)
		}
		before := s.judge()
		if rapid.Bool().Draw(t, "known") {
			l := offered(s)
			amount := rapid.SampledFrom([]string{"", "0", "0.5", "0.50", "1000000000000", "x"})
			l.AmountMin, l.AmountMax, l.Price = amount.Draw(t, "min"), amount.Draw(t, "max"), amount.Draw(t, "price")
			l.Side = rapid.SampledFrom([]string{"buy", "sell", ""}).Draw(t, "side")
			l.Status = rapid.SampledFrom([]string{"live", "cancelled", ""}).Draw(t, "status")
			l.Chain = rapid.SampledFrom([]string{"eip155:8453", "eip155:1", ""}).Draw(t, "chain")
			l.Trades = rapid.Int64Range(-1, 5).Draw(t, "trades")
			s.p.MinTrades = rapid.IntRange(0, 5).Draw(t, "asked")
			l.FeeVerified = rapid.Bool().Draw(t, "fee")
			if rapid.Bool().Draw(t, "cleaned") {
				l.Flagged = []string{rapid.SampledFrom([]string{"terms", "amount_min"}).Draw(t, "what")}
			}
		} else {
			s.a.ListingRef = "l-0"
		}
		after := s.judge()
		if slices.Index(severity, after.Decision) < slices.Index(severity, before.Decision) {
			t.Fatalf("%s became %s: %q, then %q", before.Decision, after.Decision, names(before.Reasons), names(after.Reasons))
		}
		for _, r := range before.Fired {
			if reason(after.Fired, r.Rule) == nil {
				t.Fatalf("%s fell silent", r.Rule)
			}
		}
	})
}

func TestLessThanWasShownIsWaived(t *testing.T) {
	for name, set := range map[string]func(*scene){
		"an operation was closed": func(s *scene) { s.f.Open.Refs, s.f.Open.Total = s.f.Open.Refs[1:], 2 },
		"nothing is open now":     func(s *scene) { s.f.Open = Evidence{} },
		"a payment left":          func(s *scene) { s.f.Window.Spent = "4700000" },
		"damage was acknowledged": func(s *scene) { s.f.Damage, s.f.DamageTotal = s.f.Damage[1:], 1 },
	} {
		t.Run(name, func(t *testing.T) {
			s := quiet()
			s.f.Open = ops(3)
			s.f.Window.Spent = "4800000"
			s.f.Damage, s.f.DamageTotal = []DamageItem{{Run: "a", Line: 1}, {Run: "b", Line: 2}}, 2
			s.approve(t)
			set(s)
			s.expect(t, Allow, "approved_by_human")
		})
	}
}

func TestMoreThanWasShownIsNotWaived(t *testing.T) {
	for name, set := range map[string]func(*scene){
		"another operation in its place":      func(s *scene) { s.f.Open.Refs[0] = op(50) },
		"the same operation of another run":   func(s *scene) { s.f.Open.Refs[0].Run = "run-2" },
		"the operation whose id is null":      func(s *scene) { s.f.Open.Refs[0].Operation = nil },
		"held though less is spent":           func(s *scene) { s.f.Window.Spent, s.f.Window.Held = "4000000", "600000" },
		"another payment of nothing":          func(s *scene) { s.f.Window.Count++ },
		"another hold":                        func(s *scene) { s.f.Window.Holds++ },
		"spent can no longer be told":         func(s *scene) { s.f.Window.Spent = "" },
		"damage on another line":              func(s *scene) { s.f.Damage[1].Line = 3 },
		"damage of a run that looks alike":    func(s *scene) { s.f.Damage[0].Run = "a\u200b" },
		"damage that is not listed":           func(s *scene) { s.f.DamageTotal = 3 },
		"what was shown of the limit is gone": func(s *scene) { s.r.Approval.Shown = nil },
		"the limit was shown twice, once lower": func(s *scene) {
			s.r.Approval.Shown = append(s.r.Approval.Shown, decision.Shown{Rule: "per_counterparty_limit", Spent: "1", Held: "0"})
		},
		"a payment the sum leaves out":                    func(s *scene) { s.f.Window.Unreadable = 1 },
		"what a limit counts is not known any more":       func(s *scene) { s.f.Limits = s.f.Limits[:1] },
		"an open operation that is not listed":            func(s *scene) { s.f.Open.Total = 4 },
		"an open operation more, of more than are listed": func(s *scene) { s.f.Duplicate.Total++ },
		"what was shown of the damage is gone": func(s *scene) {
			s.r.Approval.Facts = slices.DeleteFunc(s.r.Approval.Facts, func(f decision.Fact) bool { return f.Name == "damage" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := quiet()
			s.f.Open = ops(3)
			s.f.Window.Spent = "4800000"
			s.f.Damage, s.f.DamageTotal = []DamageItem{{Run: "a", Line: 1}, {Run: "b", Line: 2}}, 2
			s.f.Duplicate = ops(25)
			s.f.Limits[1].Count = 5
			s.approve(t)
			s.expect(t, Allow, "approved_by_human")
			set(s)
			if v := s.judge(); v.Decision != Review || v.Redeems != "" {
				t.Errorf("%s %q", v.Decision, names(v.Reasons))
			}
		})
	}
}

func TestALimitOfBothIsShownAndWaivedByBoth(t *testing.T) {
	s := quiet()
	s.p.Limits[2].Mode, s.p.Limits[2].Action = "enforce", Review
	s.f.Limits[2] = Window{Applies: true, Spent: "2900000", Held: "100000", Count: 8, Holds: 1}
	_, shown := Opening(s.p, s.f, s.r, s.a, s.judge())
	if diff := cmp.Diff([]decision.Shown{{Rule: "limit:trial", Spent: "2900000", Held: "100000", Count: 9}}, shown); diff != "" {
		t.Error(diff)
	}
	s.approve(t)
	s.expect(t, Allow, "approved_by_human")
	s.f.Limits[2].Count++
	s.expect(t, Review, "limit:trial")
}

func TestAnApprovalThatIsNotNeededIsUsedUpAllTheSame(t *testing.T) {
	s := quiet()
	s.f.Open = ops(1)
	s.approve(t)
	s.f.Open = Evidence{}
	v := s.expect(t, Allow)
	if v.Redeems != "r-1" || !strings.Contains(v.Reasons[0].Detail, "r-1") {
		t.Errorf("redeems %q: %s", v.Redeems, v.Reasons[0].Detail)
	}
}

func TestAnApprovalDoesNotLiftABlock(t *testing.T) {
	s := quiet()
	s.f.Open = ops(1)
	s.approve(t)
	s.p.Denylist = []string{seller}
	v := s.expect(t, Block, "denylist", "approved_by_human")
	if v.Redeems != "" || blockedBy(v) != "denylist" {
		t.Errorf("redeems %q, blocked by %s", v.Redeems, blockedBy(v))
	}
}

func blockedBy(v *Verdict) string {
	for _, r := range v.Reasons {
		if v.blocks[r.Rule] {
			return r.Rule
		}
	}
	return ""
}

func TestWhatFiresAnewIsAskedTogetherWithWhatWasApproved(t *testing.T) {
	s := quiet()
	s.f.Open = ops(1)
	s.approve(t)
	s.f.PayeeChanged = ops(1)
	v := s.expect(t, Review, "approved_by_human", "payee_changed")
	if got := names(v.Fired); !slices.Equal(got, []string{"open_partial", "payee_changed", "history"}) {
		t.Errorf("fired %q", got)
	}
	if !strings.Contains(v.Reasons[2].Detail, "does not cover") {
		t.Errorf("history: %s", v.Reasons[2].Detail)
	}
	// The review that is opened now covers both.
	s.approve(t)
	s.expect(t, Allow, "approved_by_human")
}

func TestBoundaries(t *testing.T) {
	const most = "115792089237316195423570985008687907853269984665640564039457584007913129639935" // uint256
	nines := strings.Repeat("9", payment.MaxDigits)
	for name, c := range map[string]struct {
		set  func(*scene)
		want string
		rule string
	}{
		"a limit of uint256 that is reached exactly": {func(s *scene) {
			s.p.PerCounterparty.Atomic, s.f.Window.Spent = most, "115792089237316195423570985008687907853269984665640564039457584007913129139935"
		}, Allow, ""},
		"a limit of uint256 that is one atomic unit over": {func(s *scene) {
			s.p.PerCounterparty.Atomic, s.f.Window.Spent = most, "115792089237316195423570985008687907853269984665640564039457584007913129139936"
		}, Review, "per_counterparty_limit"},
		"a sum too long for an amount is over any limit": {func(s *scene) {
			s.p.PerCounterparty.Atomic, s.f.Window.Spent = nines, nines
		}, Review, "per_counterparty_limit"},
		"held alone is too long": {func(s *scene) {
			s.p.PerCounterparty.Atomic, s.f.Window.Spent, s.f.Window.Held = nines, nines, nines
		}, Review, "per_counterparty_limit"},
		"a sum too long for an amount blocks where the limit blocks": {func(s *scene) { s.f.Limits[0].Spent, s.f.Limits[0].Held = nines, "1" }, Block, "limit:daily"},
		"a sum of what is no amount is for a person":                 {func(s *scene) { s.f.Limits[0].Spent = "1e6" }, Review, "limit:daily"},
		"spent that is missing is not nothing":                       {func(s *scene) { s.f.Window.Spent = "" }, Review, "per_counterparty_limit"},
		"held that is negative is not less":                          {func(s *scene) { s.f.Window.Held = "-500000" }, Review, "per_counterparty_limit"},
		"a limit that cannot be read is for a person":                {func(s *scene) { s.p.PerCounterparty.Atomic = "5.00" }, Review, "per_counterparty_limit"},
		"reviewAbove that cannot be read is for a person":            {func(s *scene) { setReviewAbove(s, "x", "x") }, Review, "review_above"},
		"a limit of nothing lets nothing through":                    {func(s *scene) { s.p.PerCounterparty.Atomic, s.f.Window.Spent = "0", "0" }, Review, "per_counterparty_limit"},
		"an amount of nothing is no amount":                          {func(s *scene) { s.a.Intent.Amount = "0" }, Review, "unparseable_amount"},
		"an amount that is padded is no amount":                      {func(s *scene) { s.a.Intent.Amount = "0500000" }, Review, "unparseable_amount"},
		"a money rule nobody knows is no silence":                    {func(s *scene) { s.a.MoneyRule = "new_rule" }, Review, "unparseable_amount"},
		"a limit whose window is missing is for a person":            {func(s *scene) { s.f.Limits = s.f.Limits[:2]; s.p.Limits[2].Mode = "enforce" }, Review, "limit:trial"},
		"a limit whose scope is not named is silent":                 {func(s *scene) { s.f.Limits[0] = Window{Spent: nines} }, Allow, ""},
		"a limit in another asset does not count this amount": {func(s *scene) {
			s.p.Limits[0].Asset, s.f.Limits[0].Spent = "eip155:1/0xabc", "20000001"
		}, Allow, ""},
		"a limit that names the asset counts it": {func(s *scene) {
			s.p.Limits[0].Asset, s.f.Limits[0].Spent = usdc, "20000001"
		}, Block, "limit:daily"},
		"a limit with no known action blocks":                  {func(s *scene) { s.p.Limits[1].Action = ""; s.f.Limits[1].Count = 5 }, Block, "limit:often"},
		"a count that is nearly the largest":                   {func(s *scene) { s.f.Limits[1].Count, s.f.Limits[1].Holds = 1<<63-1, 1<<63-1 }, Review, "limit:often"},
		"a sum that leaves a payment out is for a person":      {func(s *scene) { s.f.Limits[0].Unreadable = 1 }, Review, "limit:daily"},
		"a sum that is over without the payment it leaves out": {func(s *scene) { s.f.Limits[0].Unreadable, s.f.Limits[0].Spent = 1, "20000000" }, Block, "limit:daily"},
		"a limit of counts leaves nothing out":                 {func(s *scene) { s.f.Limits[1].Unreadable = 1 }, Allow, ""},
		"too many payments block though their sum is in doubt": {func(s *scene) {
			s.p.Limits[2].Mode, s.f.Limits[2].Count, s.f.Limits[2].Spent = "enforce", 9, "x"
		}, Block, "limit:trial"},
		"what was paid to the counterparty leaves a payment out": {func(s *scene) { s.f.Window.Unreadable = 1 }, Review, "per_counterparty_limit"},
		"a gate in a state nobody knows blocks":                  {func(s *scene) { s.f.Gate = &approval.Verdict{} }, Block, "spend_gate"},
		"an asset of its own has its own limit": {func(s *scene) {
			s.a.Intent.Asset = eurc
			s.p.AssetPolicies[eurc] = AssetPolicy{Cap{"1", "1000000", 1}, "1", "1000000"}
		}, Review, "per_counterparty_limit"},
		"an asset of its own has its own reviewAbove": {func(s *scene) {
			s.a.Intent.Asset = eurc
			s.p.AssetPolicies[eurc] = AssetPolicy{Cap{"9", "9000000", 1}, "0.4", "400000"}
		}, Review, "review_above"},
		"two prices are no usual price":             {func(s *scene) { s.f.Prices = []string{"1", "1"} }, Allow, ""},
		"a ratio with a fraction is exact, reached": {func(s *scene) { s.p.PriceDriftRatio, s.f.Prices = "2.5", []string{"1", "199999", "200001", "9"} }, Review, "price_drift"},
		"the twenty newest prices are the usual one": {func(s *scene) {
			s.f.Prices = append(slices.Repeat([]string{"400000"}, 20), slices.Repeat([]string{"1"}, 40)...)
		}, Allow, ""},
		"a ratio with a fraction is exact, missed": {func(s *scene) {
			s.p.PriceDriftRatio, s.f.Prices = "2.5", []string{"200000", "200001", "200001"}
		}, Allow, ""},
		"a mean of half an atomic unit is exact, reached": {func(s *scene) { s.p.PriceDriftRatio, s.f.Prices = "1000000", []string{"0", "0", "1", "1"} }, Review, "price_drift"},
		"a mean of half an atomic unit is exact, missed":  {func(s *scene) { s.p.PriceDriftRatio, s.f.Prices = "1000000.000001", []string{"0", "0", "1", "1"} }, Allow, ""},
		"prices that cannot be read are for a person":     {func(s *scene) { s.f.Prices = []string{"1", "2", "x"} }, Review, "price_drift"},
		"prices of 1,024 digits are compared":             {func(s *scene) { s.f.Prices = []string{nines, nines, nines} }, Allow, ""},
		"prices of nothing make any price a drift":        {func(s *scene) { s.f.Prices = []string{"0", "0", "0"} }, Review, "price_drift"},
		"a ratio that is no number is for a person":       {func(s *scene) { s.p.PriceDriftRatio = "ten" }, Review, "price_drift"},
	} {
		t.Run(name, func(t *testing.T) {
			s := quiet()
			if strings.Contains(name, "ratio with a fraction") && c.want == Review {
				// The median of 1, 9, 199999 and 200001 is 100004: 2.5 times it is 250010.
				s.a.Intent.Amount = "250010"
			}
			c.set(s)
			if c.rule == "" {
				s.expect(t, c.want)
				return
			}
			v := s.expect(t, c.want, c.rule)
			if strings.Contains(v.Reasons[0].Detail, "%!") {
				t.Errorf("detail: %s", v.Reasons[0].Detail)
			}
		})
	}
}

func TestALimitThatBlocksSaysWhatIsInDoubtToo(t *testing.T) {
	s := quiet()
	s.p.Limits[2].Mode = "enforce"
	s.f.Limits[2] = Window{Applies: true, Spent: "1", Held: "0", Count: 9, Unreadable: 2}
	detail := s.expect(t, Block, "limit:trial").Reasons[0].Detail
	if !strings.Contains(detail, "9 payments + 0 holds + this one, over 9") || !strings.Contains(detail, "2 payments that cannot be added up") {
		t.Error(detail)
	}
}

func TestAnAmountOfUint256IsComparedExactly(t *testing.T) {
	const most = "115792089237316195423570985008687907853269984665640564039457584007913129639935"
	s := quiet()
	s.a.Intent.Amount = most
	s.f.Prices = nil
	s.p.PerCounterparty.Atomic, s.f.Window.Spent = most, "0"
	s.p.Limits, s.f.Limits = nil, nil
	s.expect(t, Review, "review_above")
	s.f.Window.Held = "1"
	s.expect(t, Review, "per_counterparty_limit", "review_above")
}

func TestALimitNamesItsScope(t *testing.T) {
	for scope, want := range map[string]string{
		"counterparty": `limit "daily" (payments to "api.seller.example" in the last 24 hours): spent`,
		"host":         `limit "daily" (payments at "api.seller.example" in the last 24 hours): spent`,
		"resource":     `limit "daily" (payments for "https://api.seller.example/weather" in the last 24 hours): spent`,
		"asset":        `limit "daily" (payments in USDC in the last 24 hours): spent`,
		"total":        `limit "daily" (all payments in the last 24 hours): spent`,
	} {
		s := quiet()
		s.p.Limits[0].Scope, s.f.Limits[0].Spent = scope, "20000000"
		if v := s.expect(t, Block, "limit:daily"); !strings.HasPrefix(v.Reasons[0].Detail, want) {
			t.Errorf("%s: %s", scope, v.Reasons[0].Detail)
		}
	}
}

func TestTheHostsThatWerePaidBeforeAreNamed(t *testing.T) {
	for want, hosts := range map[string][]string{
		`"a.example" was paid before (1 operation), `:               {"a.example"},
		`"a.example", "b.example" were paid before (1 operation), `: {"a.example", "b.example"},
	} {
		s := quiet()
		s.f.PayeeChanged, s.f.PaidHosts = ops(1), hosts
		if v := s.expect(t, Review, "payee_changed"); !strings.HasPrefix(v.Reasons[0].Detail, want) {
			t.Errorf("%q: %s", hosts, v.Reasons[0].Detail)
		}
	}
}

func TestWhoIsPaidIsWhoWasNamed(t *testing.T) {
	for want, set := range map[string]func(*Ask){
		host:          func(*Ask) {},
		seller:        func(a *Ask) { a.Typed = nil },
		"b.example":   func(a *Ask) { a.Typed, a.PayTo, a.Host = nil, "", "b.example" },
		"as it came":  func(a *Ask) { *a = Ask{Request: Request{Counterparty: "as it came"}} },
		"alice.near":  func(a *Ask) { a.Typed = []string{"payee:alice.near", "alice.near"} },
		"Not a 'Host": func(a *Ask) { a.Typed = []string{"payee:Not a \"Host"} },
	} {
		s := quiet()
		set(s.a)
		v := s.judge()
		if last := v.Reasons[len(v.Reasons)-1].Detail; !strings.Contains(last, `with "`+want+`":`) {
			t.Errorf("%s: %s", want, last)
		}
	}
}

func TestDamageNamesRunAndPlace(t *testing.T) {
	for want, d := range map[string]DamageItem{
		`run "a" line 3: not JSON (4 faults)`: {Run: "a", Line: 3, Offset: 77, Reason: "not JSON", Faults: 4},
		`run "a" line 3: not JSON`:            {Run: "a", Line: 3, Reason: "not JSON", Faults: 1},
		`run "a" byte 77: a torn tail`:        {Run: "a", Offset: 77, Reason: "a torn tail"},
		`run "a", which is gone`:              {Run: "a", Removed: true},
		`run "a\u200b\xff\""`:                 {Run: "a\u200b\xff\""},
	} {
		s := quiet()
		s.f.Damage, s.f.DamageTotal = []DamageItem{d}, 1
		v := s.expect(t, Review, "damaged_history")
		if !strings.Contains(v.Reasons[0].Detail, ": "+want+"; see `settlewatch damage list`") {
			t.Errorf("%s: %s", want, v.Reasons[0].Detail)
		}
	}
	s := quiet()
	for i := range 20 {
		s.f.Damage = append(s.f.Damage, DamageItem{Run: "r", Line: int64(i + 1)})
	}
	s.f.DamageTotal = 40
	if v := s.judge(); !strings.Contains(v.Reasons[0].Detail, `run "r" line 3; 37 more; see`) {
		t.Error(v.Reasons[0].Detail)
	}
}

func TestTheAllowlist(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*scene)
		want string
	}{
		"an empty list allows all":             {func(s *scene) { s.p.Allowlist = nil }, Allow},
		"only the address to be paid is on it": {func(s *scene) { s.p.Allowlist = []string{seller} }, Review},
		"any reading of what was typed is enough": {func(s *scene) {
			s.a.Typed = []string{"alice.near", "payee:alice.near"}
			s.p.Allowlist = []string{seller, "payee:alice.near"}
		}, Allow},
		"the resource's host does not count":                {func(s *scene) { s.a.Typed = []string{other}; s.a.PayTo = ""; s.p.Allowlist = []string{host} }, Review},
		"an alias does not count":                           {func(s *scene) { s.a.Names = append(s.a.Names, other); s.a.PayTo = ""; s.p.Allowlist = []string{other} }, Review},
		"an offer's address alone is on it":                 {func(s *scene) { s.a.Typed = nil; s.p.Allowlist = []string{seller} }, Allow},
		"an offer's address alone is not on it":             {func(s *scene) { s.a.Typed = nil; s.p.Allowlist = []string{other} }, Review},
		"nobody who could be on it is named":                {func(s *scene) { s.a.Typed, s.a.PayTo = nil, ""; s.p.Allowlist = []string{host} }, Review},
		"a host without an address to be paid":              {func(s *scene) { s.a.PayTo = ""; s.p.Allowlist = []string{host} }, Allow},
		"a payee who writes a listed host is not that host": {func(s *scene) { s.a.PayTo = "payee:" + host; s.p.Allowlist = []string{host} }, Review},
		"one letter's case in an address is another payee": {func(s *scene) {
			s.a.Typed = []string{"7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV"}
			s.a.PayTo = ""
			s.p.Allowlist = []string{"7ecDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV"}
		}, Review},
		"the address that was typed is on it":                  {func(s *scene) { s.a.Typed = []string{seller}; s.p.Allowlist = []string{seller} }, Allow},
		"the address typed is on it, the one to be paid isn't": {func(s *scene) { s.a.Typed = []string{seller}; s.a.PayTo = other; s.p.Allowlist = []string{seller} }, Review},
	} {
		t.Run(name, func(t *testing.T) {
			s := quiet()
			c.set(s)
			if c.want == Allow {
				s.expect(t, Allow)
			} else {
				s.expect(t, Review, "allowlist")
			}
		})
	}
}

func TestTheDenylistLooksAtEveryName(t *testing.T) {
	for _, name := range []string{seller, host, "alias.example"} {
		s := quiet()
		s.a.Names = []string{seller, "alias.example", host}
		s.p.Denylist = []string{name}
		v := s.expect(t, Block, "denylist")
		if !strings.Contains(v.Reasons[0].Detail, `"`+name+`"`) {
			t.Errorf("%s: %s", name, v.Reasons[0].Detail)
		}
	}
	s := quiet()
	s.a.Names = []string{seller, host, "payee:" + host}
	s.p.Denylist = []string{host, "payee:" + host}
	if v := s.expect(t, Block, "denylist"); v.Reasons[0].Detail != `"api.seller.example" is on the denylist` {
		t.Error(v.Reasons[0].Detail)
	}
	s.p.Denylist = []string{seller, host, "payee:" + host}
	if v := s.expect(t, Block, "denylist"); !strings.Contains(v.Reasons[0].Detail, "1 more name") {
		t.Error(v.Reasons[0].Detail)
	}
}

func TestWithoutAPolicyTheGuardIsNotReady(t *testing.T) {
	for _, why := range []string{"", "the policy file cannot be read"} {
		s := quiet()
		s.p, s.f.NotReady = nil, why
		v := s.expect(t, Review, "not_ready")
		if !v.NoReview() || v.Redeems != "" {
			t.Errorf("%+v", v)
		}
		s.r.Frozen = "all is frozen"
		s.r.Rejected = &Refusal{ReviewID: "r-3", At: s.now}
		s.expect(t, Block, "not_ready", "frozen", "rejected_by_human")
	}
}

func TestHistory(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*scene)
		want string
	}{
		"an ordinary one": {func(*scene) {}, `4 operations with "api.seller.example": 3 full, 1 partial, 0 open, 0 blind; spent 1.00 USDC and held 0.00 USDC in the last 24 hours`},
		"an asset of its own": {func(s *scene) {
			s.a.Intent.Asset = eurc
			s.p.AssetPolicies[eurc] = AssetPolicy{Cap{"9", "9000000", 1}, "1", "1000000"}
		}, `4 operations with "api.seller.example": 3 full, 1 partial, 0 open, 0 blind; spent 1.00 EURC and held 0.00 EURC in the last hour`},
		"an unknown asset while not ready": {func(s *scene) { s.f.NotReady, s.a.Intent.Asset = "the index is locked", "" },
			`0 operations with "api.seller.example": 0 full, 0 partial, 0 open, 0 blind; spent 0 and held 0`},
		"the guard is not ready":  {func(s *scene) { s.f.NotReady = "the index is locked" }, `0 operations with "api.seller.example": 0 full, 0 partial, 0 open, 0 blind; spent 0.00 USDC and held 0.00 USDC in the last 24 hours`},
		"the window is not known": {func(s *scene) { s.a.MoneyRule, s.f.Window = "unparseable_amount", Window{} }, `4 operations with "api.seller.example": 3 full, 1 partial, 0 open, 0 blind; spent an unknown amount and held an unknown amount in the last 24 hours`},
		"the asset is not known": {func(s *scene) { s.a.MoneyRule, s.a.Intent.Asset = "unknown_asset", "" },
			`4 operations with "api.seller.example": 3 full, 1 partial, 0 open, 0 blind; what was spent and held in that asset is not known`},
		"one operation": {func(s *scene) { s.f.Full, s.f.Partial, s.f.Blind, s.f.Open = 0, 1, 1, ops(1); s.p.MaxOpenPartial = 1 }, `1 operation with "api.seller.example": 0 full, 1 partial, 1 open, 1 blind; spent 1.00 USDC and held 0.00 USDC in the last 24 hours`},
		"a template without stage roles": {func(s *scene) { s.f.AnyPartialCounts, s.a.Template = true, "mine" },
			`4 operations with "api.seller.example": 3 full, 1 partial, 0 open, 0 blind; spent 1.00 USDC and held 0.00 USDC in the last 24 hours; the template "mine" names no stage roles, so every partial operation counts as open`},
		"a review that cannot be used": {func(s *scene) { s.r.NoApproval = "review r-9 is pending" },
			`4 operations with "api.seller.example": 3 full, 1 partial, 0 open, 0 blind; spent 1.00 USDC and held 0.00 USDC in the last 24 hours; review r-9 is pending`},
	} {
		t.Run(name, func(t *testing.T) {
			s := quiet()
			c.set(s)
			v := s.judge()
			last := v.Reasons[len(v.Reasons)-1]
			if last.Rule != "history" || last.Detail != c.want || last.Evidence != nil {
				t.Errorf("%+v\nwant %s", last, c.want)
			}
		})
	}
}

func TestEvidenceIsCutAndItsTotalTold(t *testing.T) {
	for _, c := range []struct{ n, refs, total int }{{1, 1, 0}, {20, 20, 0}, {21, 20, 21}, {5000, 20, 5000}} {
		s := quiet()
		s.f.Open = ops(c.n)
		r := s.judge().Reasons[0]
		if r.Rule != "open_partial" || len(r.Evidence) != c.refs || r.Total != c.total {
			t.Errorf("%d operations: %s with %d references, total %d", c.n, r.Rule, len(r.Evidence), r.Total)
		}
	}
	// A list that is longer than its total, or than may be told, is cut and counted.
	s := quiet()
	for i := range 30 {
		s.f.Open.Refs = append(s.f.Open.Refs, op(i))
	}
	if r := s.judge().Reasons[0]; len(r.Evidence) != 20 || r.Total != 30 {
		t.Errorf("%d references, total %d", len(r.Evidence), r.Total)
	}
}

func TestWarningsStandWhereTheyFirstAppear(t *testing.T) {
	s := quiet()
	s.a.Warnings = []string{"unknown_network", "checksum_mismatch", "unknown_network"}
	s.f.FutureTime, s.f.UnknownNetwork = true, true
	s.p.Operators = nil
	want := []string{"unknown_network", "checksum_mismatch", "future_time", "unsigned_reviews"}
	if got := s.expect(t, Allow).Warnings; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	s.f.NotReady = "the index is locked"
	if got := s.judge().Warnings; !slices.Equal(got, want) {
		t.Errorf("not ready: %q", got)
	}
}

func TestCheckedIsWhatTheFactsCover(t *testing.T) {
	s := quiet()
	if got := s.judge().Checked; got != s.f.Checked {
		t.Errorf("%+v", got)
	}
	s.f = &Facts{NotReady: "no"}
	if got, want := s.judge().Checked, (decision.Checked{Through: "2026-03-01T12:00:00Z"}); got != want {
		t.Errorf("not ready: %+v", got)
	}
}

func TestOpeningShowsWhatAPersonDecidesOn(t *testing.T) {
	s := quiet()
	for _, r := range table {
		if !r.never && !r.money {
			r.fires(s)
		}
	}
	group := []string{"alias.example", host, seller, "web.seller.example"}
	s.p.Aliases = map[string][]string{host: group, seller: group, "alias.example": group, "web.seller.example": group}
	s.a.Typed, s.a.Host = []string{"web.seller.example"}, host
	s.a.Names = []string{seller, "alias.example", host, "payee:" + host, "web.seller.example"}
	s.a.Template, s.a.Scheme = "house-escrow", "exact"
	v := s.judge()
	facts, shown := Opening(s.p, s.f, s.r, s.a, v)
	var b strings.Builder
	for _, f := range facts {
		fmt.Fprintf(&b, "%-6s %s: %s\n", f.Origin, f.Name, f.Value)
	}
	for _, x := range shown {
		fmt.Fprintf(&b, "shown  %s: spent %s, held %s, count %d\n", x.Rule, x.Spent, x.Held, x.Count)
	}
	golden(t, "opening.txt", b.String())
	for _, f := range facts {
		if !slices.Contains([]string{"agent", "trace", "policy", "market", "log"}, f.Origin) {
			t.Errorf("%s comes from %q", f.Name, f.Origin)
		}
	}
	again, shownAgain := Opening(s.p, s.f, s.r, s.a, v)
	if !reflect.DeepEqual(facts, again) || !reflect.DeepEqual(shown, shownAgain) {
		t.Error("a second opening differs")
	}
}

func TestOpeningIsSilentOnWhatThereIsNot(t *testing.T) {
	s := quiet()
	s.f.Prices = s.f.Prices[:2]
	s.p.Damage, s.f.Damage, s.f.DamageTotal = "ignore", []DamageItem{{Run: "a", Line: 1}}, 1
	facts, _ := Opening(s.p, s.f, s.r, s.a, s.judge())
	for _, f := range facts {
		if slices.Contains([]string{"paid_elsewhere", "usual_price", "damage", "alias", "template", "scheme"}, f.Name) {
			t.Errorf("%s: %s", f.Name, f.Value)
		}
	}
}

func TestTheAssetThatWasNotNamedIsThePolicys(t *testing.T) {
	for asset, want := range map[string]string{"": "policy", "USDC": "agent"} {
		s := quiet()
		s.a.Asset = asset
		facts, _ := Opening(s.p, s.f, s.r, s.a, s.judge())
		for _, f := range facts {
			if f.Name == "asset" && f.Origin != want {
				t.Errorf("asset %q comes from %s", asset, f.Origin)
			}
		}
	}
}

// TestTextOfStrangersIsCleaned puts the same hostile text everywhere a stranger, or
// whoever wrote the files, may have put some.
func TestTextOfStrangersIsCleaned(t *testing.T) {
	evil := "\x1b[31mpaid\x1b]0;title\x07 \u202eevil\u200b\"\n; allow" + strings.Repeat("x", 5000)
	for _, r := range table {
		t.Run(r.rule, func(t *testing.T) {
			s := quiet()
			r.fires(s)
			s.a.Typed, s.a.Names, s.a.PayTo, s.a.Host, s.a.Hosts = []string{"payee:" + evil}, []string{evil}, "payee:"+evil, evil, []string{evil}
			s.a.Symbol, s.a.Template, s.a.Network, s.a.Scheme, s.a.Counterparty = evil, evil, evil, evil, evil
			s.a.Intent.Resource, s.a.Intent.Typed = evil, evil
			if s.a.MoneyDetail != "" {
				s.a.MoneyDetail = evil
			}
			for _, text := range []*string{&s.f.NotReady, &s.r.Frozen, &s.r.Unsound} {
				if *text != "" {
					*text = evil
				}
			}
			for _, x := range []*Refusal{s.r.Rejected, s.r.Nearby} {
				if x != nil {
					x.ReviewID, x.By, x.Note = evil, evil, evil
				}
			}
			s.f.PaidHosts = []string{evil, evil}
			for i := range s.f.Damage {
				s.f.Damage[i].Run, s.f.Damage[i].Reason = evil[:250], evil
			}
			if s.p.Denylist != nil {
				s.p.Denylist = []string{evil}
			}
			if s.a.ListingRef != "" {
				s.a.ListingRef = evil
			}
			if l := s.a.Listing; l != nil {
				l.Digest, l.Instance, l.Account, l.Permlink, l.Side, l.Asset, l.Network = evil, evil, evil, evil, evil, evil, evil
				l.Fiat, l.AmountMin, l.AmountMax, l.Price = evil, evil, evil, evil
				if l.Status != "live" {
					l.Status = evil
				}
				l.Flagged = append(l.Flagged, evil)
			}
			s.p.Assets[usdc] = Asset{Symbol: evil, Decimals: 6}
			if s.f.Gate != nil {
				s.f.Gate.Reasons = []string{evil, evil}
			}
			for i := range s.p.Limits {
				s.p.Limits[i].Name = evil
			}
			s.r.NoApproval = evil
			s.f.AnyPartialCounts = true
			check := func(what, text string) {
				if !utf8.ValidString(text) || strings.ContainsFunc(text, plain.Hidden) {
					t.Errorf("%s lets hidden characters through: %.300q", what, text)
				}
				if n := utf8.RuneCountInString(text); n > 3*plain.Explanation {
					t.Errorf("%s has %d characters", what, n)
				}
			}
			v := s.judge()
			for _, x := range append(slices.Concat(v.Reasons, v.Fired), v.Shadow...) {
				check(r.rule, x.Detail)
			}
			facts, _ := Opening(s.p, s.f, s.r, s.a, v)
			for _, f := range facts {
				check(f.Name, f.Value)
			}
			s.approve(t)
			s.r.Approval.ReviewID = evil
			for _, x := range s.judge().Reasons {
				check(r.rule+", approved", x.Detail)
			}
		})
	}
}

func TestJudgeChangesNothingAndIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := subset(t, anyRow)
		approved := rapid.Bool().Draw(t, "approved")
		build := func() *scene {
			s := stage(all)
			if approved {
				s.approve(t)
			}
			return s
		}
		s := build()
		first := s.judge()
		facts, shown := Opening(s.p, s.f, s.r, s.a, first)
		if !reflect.DeepEqual(s, build()) {
			t.Fatal("an argument was changed")
		}
		second := build().judge()
		if !reflect.DeepEqual(first, second) {
			t.Fatalf("two verdicts on the same:\n%+v\n%+v", first, second)
		}
		// Nor does a verdict share memory with the facts, which may be used again.
		for i := range first.Reasons {
			for j := range first.Reasons[i].Evidence {
				first.Reasons[i].Evidence[j].Run = "changed"
			}
		}
		for i := range facts {
			facts[i].Value = "changed"
		}
		for i := range shown {
			shown[i].Spent = "changed"
		}
		if !reflect.DeepEqual(s, build()) {
			t.Fatal("a verdict shares memory with an argument")
		}
	})
}
