package guard

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// Listing is a public offer that was shown to the agent that now asks about paying
// for it (market contract, section 7). Amounts are decimal text in Fiat, Price in
// Fiat for one unit of Asset; "" stands for what the offer does not say. It is never
// changed once made.
type Listing struct {
	Digest            string // of its canonical form and the instance that showed it
	Instance          string // origin
	Account, Permlink string
	Side              string // buy, sell: what the poster wants
	Asset, Network    string // ticker, and the chain as the offer names it
	Chain             string // CAIP-2, "" where Network is not known
	SeveralChains     bool   // the asset is on several
	Fiat              string
	AmountMin         string
	AmountMax         string
	Price             string // "" also where it is not fixed

	Status       string
	FeeVerified  bool
	ExpiresAt    time.Time // zero: never
	ExpiryUnread bool
	Trades       int64    // completed by the poster; -1 not known
	Flagged      []string // members that were cleaned, cut or left out
	SeenAt       time.Time
}

// accountOf is how the poster of an offer is named to the guard.
func (l *Listing) accountOf() string { return "morphit:" + l.Account }

// shown names an offer in a sentence.
func (l *Listing) shown() string {
	return "the listing " + plain.Quote("@"+l.Account+"/"+l.Permlink, plain.Detail)
}

// fiatNetwork is what stands for a network in the key of a currency.
const fiatNetwork = "fiat"

// fiatKey is the key a currency has in the policy's assets.
func fiatKey(currency string) string { return fiatNetwork + "/" + currency }

// unknownListing stands for the counterparty of an offer that is not known, where
// the request names nobody else. No account has such a name.
const unknownListing = "listing:"

// attach finds the offer a request is about. Whoever posted it is then the
// counterparty; of one that is not known nothing follows but a rule.
func (g *Guard) attach(r *Request) error {
	r.Listing = nil // only this guard's own memory says what was shown
	if r.ListingRef == "" {
		return nil
	}
	if err := checkText("listing_ref", r.ListingRef); err != nil {
		return err
	}
	if g.o.Listing != nil {
		r.Listing = g.o.Listing(r.ListingRef)
	}
	if r.Listing == nil {
		if r.Counterparty == "" && len(r.Offer) == 0 {
			r.Counterparty = cmp.Or(r.PayTo, unknownListing+canon.Sum([]byte(r.ListingRef))[:16])
		}
		return nil
	}
	account := r.Listing.accountOf()
	if typed := r.Counterparty; typed != "" && typed != account && typed != r.Listing.Account && typed != "@"+r.Listing.Account {
		return errcode.New(errcode.Input, "leave counterparty out, and give the address to be paid as pay_to",
			`"counterparty" is %s, but the listing was posted by %s`, plain.Quote(typed, showText), account)
	}
	r.Counterparty = account
	return nil
}

// namesNobody reports that a request rests on an offer alone that is not known. A
// person could not tell whom an approval would pay, so no review is opened: reading
// the offer again settles it.
func (a *Ask) namesNobody() bool {
	return a.ListingRef != "" && a.Listing == nil && strings.HasPrefix(a.Counterparty, unknownListing)
}

// The rules on listings (market contract, section 7). They look at nothing that the
// agent sends but the reference, and they can only tighten.

func (q *question) listingUnknown() []finding {
	if q.a.ListingRef == "" || q.a.Listing != nil {
		return nil
	}
	return fire("the listing %s is not known here, or was shown too long ago: read it again with morphit_get_listing and check with the listing_ref it has then",
		plain.Quote(q.a.ListingRef, showText))
}

func (q *question) listingNotPayable() []finding {
	l := q.a.Listing
	if l == nil {
		return nil
	}
	var why []string
	if l.Status != "live" {
		why = append(why, "its status is "+plain.Quote(l.Status, showText))
	}
	switch {
	case l.ExpiryUnread:
		why = append(why, "when it expires cannot be read")
	case !l.ExpiresAt.IsZero() && !l.ExpiresAt.After(q.now):
		why = append(why, "it expired on "+moment(l.ExpiresAt))
	}
	if !l.FeeVerified {
		why = append(why, "its fee is not verified, so it is not in the public book")
	}
	if why == nil {
		return nil
	}
	return fire("%s is not to be paid for: %s", l.shown(), strings.Join(why, "; "))
}

func (q *question) listingAmount() []finding {
	l := q.a.Listing
	if l == nil {
		return nil
	}
	low, high := rational(l.AmountMin), rational(l.AmountMax)
	if low == nil && l.AmountMin != "" || high == nil && l.AmountMax != "" || slices.Contains(l.Flagged, "amount_min") || slices.Contains(l.Flagged, "amount_max") {
		return fire("the amounts that %s is for cannot be read", l.shown())
	}
	if low == nil && high == nil {
		return nil
	}
	amount, ok := q.inFiat(l)
	if !ok {
		return fire("%s is for %s, and what %s is worth in that is not known", l.shown(), l.bounds(), q.money(q.a.Intent.Amount))
	}
	if (low == nil || amount.Cmp(low) >= 0) && (high == nil || amount.Cmp(high) <= 0) {
		return nil
	}
	return fire("%s is for %s, not for %s", l.shown(), l.bounds(), q.money(q.a.Intent.Amount))
}

// inFiat is the amount that is asked about in the currency of the offer, exactly.
// ok is false where no number says what it is worth.
func (q *question) inFiat(l *Listing) (amount *big.Rat, ok bool) {
	units := rational(q.p.Units(q.a.Intent.Asset, q.a.Intent.Amount))
	switch {
	case units == nil:
		return nil, false
	case q.a.Intent.Asset == fiatKey(l.Fiat):
		return units, true
	}
	price := rational(l.Price)
	// At a price of nothing any amount would be worth too little to ask about.
	if price == nil || price.Sign() <= 0 || !q.paysInKind(l) {
		return nil, false
	}
	return units.Mul(units, price), true
}

// paysInKind reports whether what is paid is the asset the poster buys, on the chain
// the offer names: one ticker on two chains is two assets. Where it names none,
// listing_network_missing blocks.
func (q *question) paysInKind(l *Listing) bool {
	return l.Side == "buy" && q.a.Symbol != "" && q.a.Symbol == l.Asset && (l.Chain == "" || q.a.Network == l.Chain)
}

func rational(text string) *big.Rat {
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return nil
	}
	return r
}

// bounds says for which amounts an offer is good.
func (l *Listing) bounds() string {
	currency := plain.Clean(l.Fiat, showText)
	switch {
	case l.AmountMax == "":
		return fmt.Sprintf("%s %s or more", plain.Clean(l.AmountMin, showText), currency)
	case l.AmountMin == "":
		return fmt.Sprintf("at most %s %s", plain.Clean(l.AmountMax, showText), currency)
	default:
		return fmt.Sprintf("%s to %s %s", plain.Clean(l.AmountMin, showText), plain.Clean(l.AmountMax, showText), currency)
	}
}

// listingCurrency leaves an asset nobody knows to unknown_asset.
func (q *question) listingCurrency() []finding {
	l := q.a.Listing
	if l == nil || q.a.Intent.Asset == "" || l.Fiat != "" && q.a.Intent.Asset == fiatKey(l.Fiat) || q.paysInKind(l) {
		return nil
	}
	paid := plain.Clean(q.p.named(q.a.Intent.Asset), plain.Explanation)
	terms := "names no currency"
	if l.Fiat != "" {
		terms = "is in " + plain.Clean(l.Fiat, showText)
	}
	if l.Side == "buy" {
		terms += " and buys " + plain.Clean(l.Asset, showText)
		if l.Network != "" {
			terms += " on " + plain.Clean(l.Network, showText)
		}
	}
	return fire("%s %s, and would be paid in %s", l.shown(), terms, paid)
}

func (q *question) listingNetwork() []finding {
	l := q.a.Listing
	if l == nil || !l.SeveralChains || l.Chain != "" {
		return nil
	}
	return fire("%s does not say on which network %s is traded: it is on several, and what is sent on the wrong one is lost", l.shown(), plain.Clean(l.Asset, showText))
}

func (q *question) listingNewTrader() []finding {
	l := q.a.Listing
	if l == nil || int64(q.p.MinTrades) <= 0 || l.Trades >= int64(q.p.MinTrades) {
		return nil
	}
	done := "an unknown number of trades"
	if l.Trades >= 0 {
		done = several64(l.Trades, "trade", "trades")
	}
	return fire("%s has completed %s; market.minTrades asks for %d", plain.Quote(l.accountOf(), plain.Detail), done, q.p.MinTrades)
}

func (q *question) listingText() []finding {
	l := q.a.Listing
	if l == nil || len(l.Flagged) == 0 {
		return nil
	}
	return fire("%s had hidden characters, values that are none, or too much in %s; what was shown of it (%s) is not what was posted",
		l.shown(), plain.Clean(strings.Join(l.Flagged, ", "), plain.Detail), firstHex(l.Digest))
}

// firstHex is enough of a digest to tell two versions of an offer apart.
func firstHex(digest string) string { return plain.Clean(digest, 16) }

// decidedOn are the facts of an offer that say what is paid for and on which terms.
// How often its poster has traded since, and in which words, is for the rules.
var decidedOn = []string{"listing", "listing_instance", "listing_offer", "listing_amounts", "listing_price"}

// sameListing reports whether what is asked about is the offer that a review showed,
// on the terms it showed. To the payment that is approved another offer of the same
// poster, or none, would look the same.
func (q *question) sameListing(o *decision.Opened) bool {
	shown, now := map[string]string{}, map[string]string{}
	for _, f := range o.Facts {
		shown[f.Name] = f.Value
	}
	if shown["listing"] == "" {
		return true
	}
	q.listingFacts(func(_, name, value string) { now[name] = plain.Clean(value, plain.Explanation) })
	return !slices.ContainsFunc(decidedOn, func(name string) bool { return shown[name] != now[name] })
}

// listingFacts are what a person is shown of an offer, and what the log keeps of it.
func (q *question) listingFacts(say func(origin, name, value string)) {
	if q.a.ListingRef == "" {
		return
	}
	say(fromAgent, "listing_ref", q.a.ListingRef)
	l := q.a.Listing
	if l == nil {
		return
	}
	say(fromMarket, "listing", "@"+l.Account+"/"+l.Permlink)
	say(fromPolicy, "listing_instance", l.Instance)
	say(fromMarket, "listing_digest", l.Digest)
	offer := l.Side + "s " + l.Asset
	if l.Network != "" {
		offer += " on " + l.Network
	}
	if l.Fiat != "" {
		offer += " for " + l.Fiat
	}
	say(fromMarket, "listing_offer", "the poster "+offer)
	if l.AmountMin != "" || l.AmountMax != "" {
		say(fromMarket, "listing_amounts", l.bounds())
	}
	say(fromMarket, "listing_price", l.Price)
	state := l.Status
	if !l.FeeVerified {
		state += ", fee not verified"
	}
	if !l.ExpiresAt.IsZero() {
		state += ", until " + moment(l.ExpiresAt)
	}
	say(fromMarket, "listing_status", state)
	if l.Trades >= 0 {
		say(fromMarket, "listing_trades", several64(l.Trades, "completed trade", "completed trades"))
	}
	say(fromMarket, "listing_flagged", strings.Join(l.Flagged, ", "))
	say(fromMarket, "listing_seen", moment(l.SeenAt))
	if q.p != nil && q.p.MinTrades > 0 {
		say(fromPolicy, "market_min_trades", several(q.p.MinTrades, "trade", "trades"))
	}
}
