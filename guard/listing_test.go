package guard_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

// euros is a policy that knows a currency and who an account of the market is.
const euros = `{
	"assets": {"fiat/EUR": {"symbol": "EUR", "decimals": 2}, "tron:0x2b6653dc/TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t": {"symbol": "USDT", "decimals": 6},
		"eip155:1/0xdac17f958d2ee523a2206206994597c13d831ec7": {"symbol": "USDT", "decimals": 6}, "coin/XMR": {"symbol": "XMR", "decimals": 12}},
	"assetPolicies": {
		"fiat/EUR": {"perCounterpartyLimit": {"amount": "1000", "windowHours": 24}, "reviewAbove": "500"},
		"tron:0x2b6653dc/TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t": {"perCounterpartyLimit": {"amount": "1000", "windowHours": 24}, "reviewAbove": "500"},
		"eip155:1/0xdac17f958d2ee523a2206206994597c13d831ec7": {"perCounterpartyLimit": {"amount": "1000", "windowHours": 24}, "reviewAbove": "500"},
		"coin/XMR": {"perCounterpartyLimit": {"amount": "10", "windowHours": 24}, "reviewAbove": "5"}
	},
	"counterpartyAliases": {"morphit:orchard.lane": ["` + seller + `"]},
	"market": {"minTrades": 4}
}`

// market makes a site at which one listing was shown, as l-1.
func market(t *testing.T, change func(*guard.Listing)) *site {
	t.Helper()
	s := newSite(t, euros)
	l := &guard.Listing{
		Digest: strings.Repeat("ab", 32), Instance: "https://market.example", Account: "orchard.lane", Permlink: "xmr-sell-eur-0007",
		Side: "sell", Asset: "XMR", Fiat: "EUR", AmountMin: "50", AmountMax: "600", Status: "live", FeeVerified: true, Trades: 10, SeenAt: s.clock.now(),
	}
	if change != nil {
		change(l)
	}
	s.listings = map[string]*guard.Listing{"l-1": l}
	return s
}

// of asks about paying for the listing.
func (s *site) of(r guard.Request) *guard.Verdict {
	s.t.Helper()
	v, err := s.Check(s.t.Context(), r)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

func rulesOf(v *guard.Verdict) (all []string) {
	for _, r := range v.Reasons {
		if r.Rule != "history" {
			all = append(all, r.Rule)
		}
	}
	return all
}

func TestAPaymentIsHeldToTheListingItIsFor(t *testing.T) {
	const (
		tronUSDT = "tron:0x2b6653dc/TR7NHqjeKQxGTCi8q8ZY4pL8otSzgjLj6t"
		ethUSDT  = "eip155:1/0xdac17f958d2ee523a2206206994597c13d831ec7"
	)
	buysTether := func(l *guard.Listing) {
		l.Side, l.Asset, l.Network, l.Chain, l.SeveralChains, l.Price = "buy", "USDT", "trc20", "tron:0x2b6653dc", true, "0.92"
	}
	for name, c := range map[string]struct {
		change        func(*guard.Listing)
		amount, asset string
		want          string
		rules         []string
	}{
		"within its amounts":                         {nil, "60.00", "fiat/EUR", "allow", nil},
		"the least it is for":                        {nil, "50", "EUR", "allow", nil},
		"the most it is for, above reviewAbove":      {nil, "600.00", "EUR", "review", []string{"review_above"}},
		"a cent less":                                {nil, "49.99", "EUR", "review", []string{"listing_amount_out_of_range"}},
		"a cent more":                                {nil, "600.01", "EUR", "review", []string{"review_above", "listing_amount_out_of_range"}},
		"no most":                                    {func(l *guard.Listing) { l.AmountMax = "" }, "499.99", "EUR", "allow", nil},
		"no least":                                   {func(l *guard.Listing) { l.AmountMin = "" }, "0.01", "EUR", "allow", nil},
		"amounts that could not be read":             {func(l *guard.Listing) { l.AmountMin, l.Flagged = "", []string{"amount_min"} }, "60", "EUR", "review", []string{"listing_amount_out_of_range", "listing_text_flagged"}},
		"another currency":                           {func(l *guard.Listing) { l.Fiat, l.AmountMin, l.AmountMax = "USD", "", "" }, "60", "EUR", "review", []string{"listing_currency_mismatch"}},
		"another currency cannot be compared":        {func(l *guard.Listing) { l.Fiat = "USD" }, "60", "EUR", "review", []string{"listing_amount_out_of_range", "listing_currency_mismatch"}},
		"no currency at all":                         {func(l *guard.Listing) { l.Fiat, l.AmountMin, l.AmountMax = "", "", "" }, "60", "EUR", "review", []string{"listing_currency_mismatch"}},
		"a currency nobody registered":               {nil, "60", "fiat/GBP", "review", []string{"unknown_asset"}},
		"not live":                                   {func(l *guard.Listing) { l.Status = "cancelled" }, "60", "EUR", "block", []string{"listing_not_payable"}},
		"status not said":                            {func(l *guard.Listing) { l.Status = "" }, "60", "EUR", "block", []string{"listing_not_payable"}},
		"its fee is not verified":                    {func(l *guard.Listing) { l.FeeVerified = false }, "60", "EUR", "block", []string{"listing_not_payable"}},
		"it has just expired":                        {func(l *guard.Listing) { l.ExpiresAt = l.SeenAt }, "60", "EUR", "block", []string{"listing_not_payable"}},
		"when it expires cannot be read":             {func(l *guard.Listing) { l.ExpiryUnread = true }, "60", "EUR", "block", []string{"listing_not_payable"}},
		"too few trades":                             {func(l *guard.Listing) { l.Trades = 3 }, "60", "EUR", "review", []string{"listing_new_trader"}},
		"trades not known":                           {func(l *guard.Listing) { l.Trades = -1 }, "60", "EUR", "review", []string{"listing_new_trader"}},
		"its text was cleaned":                       {func(l *guard.Listing) { l.Flagged = []string{"terms"} }, "60", "EUR", "review", []string{"listing_text_flagged"}},
		"sold on no network in particular":           {func(l *guard.Listing) { l.Asset, l.SeveralChains = "USDT", true }, "60", "EUR", "block", []string{"listing_network_missing"}},
		"the poster buys this on this network":       {buysTether, "100", tronUSDT, "allow", nil},
		"the poster buys this on another network":    {buysTether, "100", ethUSDT, "review", []string{"listing_amount_out_of_range", "listing_currency_mismatch"}},
		"its worth at the fixed price, just too low": {buysTether, "54.347826", tronUSDT, "review", []string{"listing_amount_out_of_range"}},
		"its worth at the fixed price, just enough":  {buysTether, "54.347827", tronUSDT, "allow", nil},
		"its worth at a price that moves": {func(l *guard.Listing) { buysTether(l); l.Price = "" }, "100", tronUSDT, "review",
			[]string{"listing_amount_out_of_range"}},
		"its worth at a price of nothing": {func(l *guard.Listing) { buysTether(l); l.AmountMin, l.Price = "", "0" }, "100", tronUSDT, "review",
			[]string{"listing_amount_out_of_range"}},
		"the least is more than the most":          {func(l *guard.Listing) { l.AmountMin, l.AmountMax = "600", "50" }, "60", "EUR", "review", []string{"listing_amount_out_of_range"}},
		"a coin of one chain":                      {func(l *guard.Listing) { l.Side, l.Price = "buy", "150" }, "1", "coin/XMR", "allow", nil},
		"the poster sells what would be paid with": {func(l *guard.Listing) { l.AmountMin, l.AmountMax = "", "" }, "1", "coin/XMR", "review", []string{"listing_currency_mismatch"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := market(t, c.change)
			v := s.of(guard.Request{ListingRef: "l-1", Amount: c.amount, Asset: c.asset})
			if got := rulesOf(v); v.Decision != c.want || !slices.Equal(got, c.rules) {
				t.Errorf("%s by %q, want %s by %q: %+v", v.Decision, got, c.want, c.rules, v.Reasons)
			}
		})
	}
}

func TestTheCounterpartyOfAListingIsWhoPostedIt(t *testing.T) {
	s := market(t, nil)
	// Open payments of the address the policy ties to the account count.
	s.submit("r1", "op1", terms{})
	if v := s.of(guard.Request{ListingRef: "l-1", Amount: "60", Asset: "EUR"}); !slices.Contains(rulesOf(v), "open_partial") {
		t.Errorf("%q", rulesOf(v))
	}
	for _, typed := range []string{"orchard.lane", "@orchard.lane", "morphit:orchard.lane"} {
		if v := s.of(guard.Request{ListingRef: "l-1", Counterparty: typed, Amount: "60", Asset: "EUR"}); !slices.Contains(rulesOf(v), "open_partial") {
			t.Errorf("%s: %q", typed, rulesOf(v))
		}
	}
	_, err := s.Check(t.Context(), guard.Request{ListingRef: "l-1", Counterparty: other, Amount: "60", Asset: "EUR"})
	var coded *errcode.Error
	if !errors.As(err, &coded) || coded.Code != errcode.Input || !strings.Contains(coded.Message, "morphit:orchard.lane") {
		t.Errorf("another counterparty: %v", err)
	}
	// What the offer of a seller pays is the address; the listing says who sells.
	v := s.of(guard.Request{ListingRef: "l-1", Offer: []byte(`{"scheme":"exact","network":"eip155:8453","amount":"500000","asset":"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913","payTo":"` + other + `"}`)})
	if got := rulesOf(v); !slices.Contains(got, "listing_currency_mismatch") || !slices.Contains(got, "open_partial") {
		t.Errorf("with an offer: %q", got)
	}
}

func TestAListingThatIsNotKnownIsForAPerson(t *testing.T) {
	s := market(t, nil)
	ask := guard.Request{ListingRef: "l-2", Counterparty: seller, Amount: "0.50"}
	v := s.of(ask)
	if v.Decision != "review" || !slices.Equal(rulesOf(v), []string{"listing_unknown_or_stale"}) || v.ReviewID == "" {
		t.Errorf("%s %q %s", v.Decision, rulesOf(v), v.ReviewID)
	}
	s.decide("approved", v.ReviewID)
	ask.ReviewID = v.ReviewID
	if v := s.of(ask); v.Decision != "allow" {
		t.Errorf("approved: %s %q", v.Decision, rulesOf(v))
	}
	// Where it alone says who is paid nobody could decide, so nobody is asked.
	for range 2 {
		v = s.of(guard.Request{ListingRef: "l-2 \u202e", Amount: "60", Asset: "EUR"})
		if v.Decision != "review" || !slices.Equal(rulesOf(v), []string{"listing_unknown_or_stale"}) || v.ReviewID != "" || v.Handoff != nil {
			t.Errorf("%s %q %s", v.Decision, rulesOf(v), v.ReviewID)
		}
	}
	// The address alone is somebody.
	if v = s.of(guard.Request{ListingRef: "l-2", PayTo: seller, Amount: "60", Asset: "EUR"}); v.Decision != "review" || v.ReviewID == "" {
		t.Errorf("with an address: %s %q", v.Decision, rulesOf(v))
	}
	if _, err := s.Check(t.Context(), guard.Request{ListingRef: strings.Repeat("l", 3000), Amount: "60"}); err == nil {
		t.Error("a reference of 3,000 bytes was taken")
	}
}

func TestWhoAsksCannotBringAListing(t *testing.T) {
	s := market(t, nil)
	forged := &guard.Listing{Account: "mallory", Status: "live", FeeVerified: true, Fiat: "EUR"}
	v := s.of(guard.Request{ListingRef: "l-2", Listing: forged, Amount: "60", Asset: "EUR"})
	if !slices.Equal(rulesOf(v), []string{"listing_unknown_or_stale"}) {
		t.Errorf("%q", rulesOf(v))
	}
	v = s.of(guard.Request{Counterparty: seller, Amount: "0.50", Listing: &guard.Listing{Account: "mallory"}})
	if v.Decision != "allow" {
		t.Errorf("without a reference: %s %q", v.Decision, rulesOf(v))
	}
}

func TestTheLogKeepsWhatAReviewReliedOn(t *testing.T) {
	s := market(t, func(l *guard.Listing) {
		l.Trades, l.Flagged, l.ExpiresAt = 1, []string{"terms"}, time.Date(2026, 12, 24, 0, 0, 0, 0, time.UTC)
	})
	v := s.of(guard.Request{ListingRef: "l-1", Amount: "60", Asset: "EUR"})
	r := s.state().Review(v.ReviewID)
	if r == nil {
		t.Fatalf("no review: %s %q", v.Decision, rulesOf(v))
	}
	got := map[string]decision.Fact{}
	for _, f := range r.Facts {
		got[f.Name] = f
	}
	for name, want := range map[string]decision.Fact{
		"counterparty":      {Value: "morphit:orchard.lane", Origin: "market"},
		"listing":           {Value: "@orchard.lane/xmr-sell-eur-0007", Origin: "market"},
		"listing_ref":       {Value: "l-1", Origin: "agent"},
		"listing_instance":  {Value: "https://market.example", Origin: "policy"},
		"listing_digest":    {Value: strings.Repeat("ab", 32), Origin: "market"},
		"listing_offer":     {Value: "the poster sells XMR for EUR", Origin: "market"},
		"listing_amounts":   {Value: "50 to 600 EUR", Origin: "market"},
		"listing_status":    {Value: "live, until 2026-12-24 00:00:00 UTC", Origin: "market"},
		"listing_trades":    {Value: "1 completed trade", Origin: "market"},
		"listing_flagged":   {Value: "terms", Origin: "market"},
		"market_min_trades": {Value: "4 trades", Origin: "policy"},
	} {
		want.Name = name
		if got[name] != want {
			t.Errorf("%s is %+v, want %+v", name, got[name], want)
		}
	}
	if len(r.Reasons) != 3 {
		t.Errorf("%+v", r.Reasons)
	}
	// What the person was shown is waived for as long as the listing says the same.
	s.decide("approved", v.ReviewID)
	again := guard.Request{ListingRef: "l-1", Amount: "60", Asset: "EUR", ReviewID: v.ReviewID}
	changed := *s.listings["l-1"]
	changed.Digest = strings.Repeat("cd", 32)
	was := s.listings["l-1"]
	s.listings["l-1"] = &changed
	if v := s.of(again); v.Decision != "review" || !slices.Contains(rulesOf(v), "listing_text_flagged") {
		t.Errorf("a listing that was changed: %s %q", v.Decision, rulesOf(v))
	}
	s.listings["l-1"] = was
	if v := s.of(again); v.Decision != "allow" {
		t.Errorf("the same listing: %s %q", v.Decision, rulesOf(v))
	}
}

func TestAnApprovalIsForTheListingThatWasShown(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*guard.Listing) // nil: the reference is left out
		want   string
	}{
		"the same":                      {func(*guard.Listing) {}, "allow"},
		"one more trade":                {func(l *guard.Listing) { l.Trades, l.Digest = 11, strings.Repeat("cd", 32) }, "allow"},
		"read again":                    {func(l *guard.Listing) { l.SeenAt = l.SeenAt.Add(time.Minute) }, "allow"},
		"another one of the poster":     {func(l *guard.Listing) { l.Permlink = "xmr-sell-eur-0008" }, "review"},
		"the same one of an instance":   {func(l *guard.Listing) { l.Instance = "https://other.example" }, "review"},
		"other amounts, still in range": {func(l *guard.Listing) { l.AmountMax = "5000" }, "review"},
		"another price":                 {func(l *guard.Listing) { l.Price = "900" }, "review"},
		"another asset":                 {func(l *guard.Listing) { l.Asset = "BTC" }, "review"},
		"another side":                  {func(l *guard.Listing) { l.Side = "buy" }, "review"},
		"none":                          {nil, "review"},
	} {
		t.Run(name, func(t *testing.T) {
			s := market(t, func(l *guard.Listing) { l.Price = "150" })
			ask := guard.Request{ListingRef: "l-1", Amount: "550.00", Asset: "EUR"}
			v := s.of(ask)
			if !slices.Equal(rulesOf(v), []string{"review_above"}) || v.ReviewID == "" {
				t.Fatalf("%s %q", v.Decision, rulesOf(v))
			}
			s.decide("approved", v.ReviewID)
			ask.ReviewID = v.ReviewID
			if c.change == nil {
				ask.ListingRef, ask.Counterparty = "", "morphit:orchard.lane"
			} else {
				l := *s.listings["l-1"]
				c.change(&l)
				s.listings["l-1"] = &l
			}
			if v := s.of(ask); v.Decision != c.want || !slices.Contains(rulesOf(v), map[string]string{"allow": "approved_by_human", "review": "review_above"}[c.want]) {
				t.Errorf("%s by %q", v.Decision, rulesOf(v))
			} else if c.want == "review" && (v.ReviewID == "" || v.ReviewID == ask.ReviewID) {
				t.Errorf("nobody is asked about this one: review %q", v.ReviewID)
			}
		})
	}
}

func TestWithoutAListingNothingChanges(t *testing.T) {
	s := newSite(t, "")
	v := s.want("allow", guard.Request{})
	for _, r := range v.Reasons {
		if strings.HasPrefix(r.Rule, "listing") {
			t.Errorf("%+v", r)
		}
	}
	s.submit("r1", "op1", terms{})
	v = s.ask(guard.Request{})
	for _, f := range s.state().Review(v.ReviewID).Facts {
		if strings.HasPrefix(f.Name, "listing") || f.Origin == "market" {
			t.Errorf("%+v", f)
		}
	}
	if strings.Contains(string(guard.DefaultPolicy().Effective()), "market") {
		t.Error("a policy that says nothing of the market has another hash than before")
	}
}

func TestWhatIsAskedOfPostersIsStrict(t *testing.T) {
	for text, want := range map[string]string{
		`{"market": {"minTrades": 4}}`:     "",
		`{"market": {"minTrades": 0}}`:     "",
		`{"market": {}}`:                   "",
		`{"market": {"$comment": "none"}}`: "",
		`{"market": {"minTrades": "4"}}`:   "$.market.minTrades: it must be a whole number",
		`{"market": {"minTrades": -1}}`:    "$.market.minTrades: it must be from 0",
		`{"market": {"min_trades": 4}}`:    "$.market.min_trades: there is no such member",
		`{"market": 4}`:                    "$.market: it must be an object",
		`{"market": null}`:                 "$.market: it must be an object",
	} {
		p, err := guard.ParsePolicy([]byte(text))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", text, err, want)
		case want == "":
			again, err := guard.ParsePolicy(p.Effective())
			if err != nil || again.Hash() != p.Hash() || again.MinTrades != p.MinTrades {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
	four, err := guard.ParsePolicy([]byte(`{"market": {"minTrades": 4}}`))
	if err != nil || four.MinTrades != 4 || four.Hash() == guard.DefaultPolicy().Hash() {
		t.Errorf("%+v, %v", four, err)
	}
}
