package market

import (
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/canon"
)

// Caps of texts in characters, and of lists (market contract, section 3).
const (
	maxTerms    = 2048
	maxRegion   = 128
	maxTitle    = 128
	maxMethod   = 32
	maxMethods  = 12
	maxAccepted = 32
	maxAmount   = "1000000000000"
	maxPrice    = "1000000000000000"
)

// Row is an offer as an agent is shown it: the members of the allowlist and no
// other, each of a closed type or clean text. Empty stands for what was not said.
// Amounts and prices are decimal text in the offer's own currency.
type Row struct {
	Account     string      `json:"account"`
	Permlink    string      `json:"permlink"`
	Asset       string      `json:"asset"`
	Network     string      `json:"asset_network,omitempty"`
	Side        string      `json:"side"` // what the poster wants
	Fiat        string      `json:"fiat_currency,omitempty"`
	Price       string      `json:"price,omitempty"`
	PriceModel  *PriceModel `json:"price_model,omitempty"`
	AmountMin   string      `json:"amount_min,omitempty"`
	AmountMax   string      `json:"amount_max,omitempty"`
	Region      string      `json:"location_region,omitempty"`
	Methods     []string    `json:"payment_methods,omitempty"`
	Accepted    []string    `json:"accepted_assets,omitempty"`
	Title       string      `json:"specific_barter_title,omitempty"`
	Terms       string      `json:"terms,omitempty"`
	Feedback    *int64      `json:"feedback_count,omitempty"`
	Rating      string      `json:"weighted_rating,omitempty"`
	Reputation  string      `json:"reputation_score,omitempty"`
	Trades      *int64      `json:"trade_count,omitempty"`
	FirstTrade  string      `json:"first_trade_at,omitempty"`
	NewTrader   *bool       `json:"is_new_trader,omitempty"`
	CreatedAt   string      `json:"created_at,omitempty"`
	UpdatedAt   string      `json:"updated_at,omitempty"`
	Status      string      `json:"status,omitempty"`     // not shown in a search
	ExpiresAt   string      `json:"expires_at,omitempty"` // not shown in a search
	Changed     []string    `json:"changed,omitempty"`    // members that were cleaned, cut or left out
	FeeVerified bool        `json:"fee_verified"`

	Ref    string `json:"-"` // listing_ref
	Listed bool   `json:"-"` // live, fee verified and not expired when it was read
}

// PriceModel says how a price is made: of a known kind with its number, or of
// another kind, of which only the name is passed on.
type PriceModel struct {
	Kind    string `json:"kind"`
	Price   string `json:"price,omitempty"`
	Percent string `json:"percent,omitempty"`
}

// Sides of an offer.
const (
	buy  = "buy"
	sell = "sell"
)

// Barter is the asset of goods: what is traded is named in the title.
const Barter = "BARTER"

// UserSide is what somebody does who takes the offer. The poster's side says what
// the poster wants, of the asset or of the goods.
func (r *Row) UserSide() string {
	if r.Side == sell {
		return buy
	}
	return sell
}

// networks are the chains a ticker that is on several of them may be offered on,
// and what the rest of the product calls them (market contract, section 3).
var networks = map[string]map[string]string{
	"USDT": {"erc20": ethereum, "trc20": tron, "spl": solana, "bep20": bsc},
	"USDC": {"erc20": ethereum, "spl": solana, "base": base, "polygon": polygon},
	"DAI":  {"erc20": ethereum, "polygon": polygon, "base": base, "arbitrum": arbitrum},
}

const (
	ethereum = "eip155:1"
	bsc      = "eip155:56"
	polygon  = "eip155:137"
	base     = "eip155:8453"
	arbitrum = "eip155:42161"
	solana   = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"
	tron     = "tron:0x2b6653dc"
)

// book says where a row came from: the public book holds what is live and paid for
// only, an account's own list everything it ever posted.
type book bool

const (
	publicBook book = true
	ownersView book = false
)

// readRow reads one element of a list. ok is false for what is no offer: without a
// name of its own and the form of one it could be any, or none.
func readRow(n jsjson.Node, from book) (r *Row, ok bool) {
	if n.Kind() != jsjson.Object {
		return nil, false
	}
	f := &fields{n: n}
	r = &Row{
		Account:  f.form("account", accountForm),
		Permlink: f.form("permlink", permlinkForm),
		Asset:    f.form("asset", tickerForm),
		Side:     f.form("side", wordForm),
	}
	if r.Account == "" || r.Permlink == "" || len(r.Permlink) > maxPermlink || r.Asset == "" || r.Side != buy && r.Side != sell {
		return nil, false
	}
	r.Network = f.network(r.Asset)
	r.Fiat = f.form("fiat_currency", fiatForm)
	r.Price = f.decimal("price", "0", maxPrice)
	r.PriceModel = f.priceModel()
	r.AmountMin = f.decimal("amount_min", "0", maxAmount)
	r.AmountMax = f.decimal("amount_max", "0", maxAmount)
	r.Region = f.text("location_region", maxRegion)
	r.Methods = f.methods()
	r.Accepted = f.accepted()
	r.Title = f.text("specific_barter_title", maxTitle)
	r.Terms = f.text("terms", maxTerms)
	r.Feedback = f.whole("feedback_count")
	r.Rating = f.decimal("weighted_rating", "1", "5")
	r.Reputation = f.decimal("reputation_score", "0", "5")
	r.Trades = f.whole("trade_count")
	r.FirstTrade = f.time("first_trade_at")
	r.NewTrader = f.flag("is_new_trader")
	r.CreatedAt = f.time("created_at")
	r.UpdatedAt = f.time("updated_at")
	r.Status = f.form("status", wordForm)
	r.ExpiresAt = f.time("expires_at")
	fee := f.form("fee_status", wordForm)
	r.FeeVerified = fee == "verified" || fee == "verified_by_attestation" || bool(from) && fee == "" && !slices.Contains(f.changed, "fee_status")
	if bool(from) && r.Status == "" && !slices.Contains(f.changed, "status") {
		r.Status = live // the book holds nothing else; older servers do not say so
	}
	r.Changed = f.changed
	return r, true
}

const live = "live"

// network is the chain of a ticker that is on several. One that is not among them
// is none: to send on a chain nobody has named loses the money.
func (f *fields) network(asset string) string {
	word := f.form("asset_network", wordForm)
	if _, ok := networks[asset][word]; word != "" && !ok {
		f.note("asset_network")
		return ""
	}
	return word
}

func (f *fields) priceModel() *PriceModel {
	n, ok := f.there("price_model")
	if !ok {
		return nil
	}
	if n.Kind() != jsjson.Object {
		f.note("price_model")
		return nil
	}
	in := &fields{n: n}
	m := &PriceModel{Kind: in.form("kind", wordForm)}
	switch m.Kind {
	case "fixed":
		if m.Price = in.decimal("price", "0", maxPrice); m.Price == "" {
			f.note("price_model")
		}
	case "spread":
		if m.Percent = in.decimal("percent", "-500", "500"); m.Percent == "" {
			f.note("price_model")
		}
	case "":
		f.note("price_model")
		return nil
	}
	return m
}

// methods are payment methods: slugs mostly, but whoever posts may type any.
func (f *fields) methods() []string {
	const name = "payment_methods"
	n, ok := f.there(name)
	if !ok {
		return nil
	}
	var all []string
	add := func(text string) {
		if len(all) == maxMethods { // what comes then is not looked at, however much it is
			f.note(name)
			return
		}
		text = f.cleaned(name, text, maxTerms)
		if text = strings.TrimSpace(text); text == "" || len([]rune(text)) > maxMethod {
			f.note(name)
			return
		}
		all = append(all, text)
	}
	switch n.Kind() {
	case jsjson.String: // an older form
		for text := range strings.SplitSeq(string(n.Text()), ",") {
			add(text)
		}
	case jsjson.Array:
		for e := range n.Elements() {
			add(textOf(e))
		}
	default:
		f.note(name)
	}
	return all
}

func (f *fields) accepted() []string {
	const name = "accepted_assets"
	n, ok := f.there(name)
	if !ok {
		return nil
	}
	if n.Kind() != jsjson.Array {
		f.note(name)
		return nil
	}
	var all []string
	for e := range n.Elements() {
		text := textOf(e)
		if !tickerForm.matches(text) || len(all) == maxAccepted {
			f.note(name)
			continue
		}
		all = append(all, text)
	}
	return all
}

// place reads when the offer ends and says whether it is in the public book now.
func (r *Row) place(now time.Time) {
	ends, ok := r.ends()
	r.Listed = r.Status == live && r.FeeVerified && ok && (ends.IsZero() || ends.After(now))
}

// ends is when the offer expires, zero for never. ok is false where what it says of
// that cannot be read.
func (r *Row) ends() (at time.Time, ok bool) {
	if r.ExpiresAt == "" {
		return time.Time{}, !slices.Contains(r.Changed, "expires_at")
	}
	at, err := time.Parse(time.RFC3339Nano, r.ExpiresAt)
	return at, err == nil
}

// refLength is how much of a digest makes a listing_ref: enough that nobody can
// make two offers of one.
const refLength = 40

func refOf(digest string) string { return "l-" + digest[:refLength] }

// contradicts reports whether two readings of one offer at one instance cannot both
// be true now: they differ in whether it is to be paid for, in what or for how much.
// What an account shows of itself has fewer members than the book, so what is not
// said of the network contradicts nothing.
func contradicts(a, b *guard.Listing) bool {
	if a.Instance != b.Instance || a.Account != b.Account || a.Permlink != b.Permlink {
		return false
	}
	type terms struct {
		status, side, asset, fiat, least, most, price string
		paid, unread                                  bool
		ends                                          int64
	}
	of := func(l *guard.Listing) terms {
		return terms{l.Status, l.Side, l.Asset, l.Fiat, l.AmountMin, l.AmountMax, l.Price, l.FeeVerified, l.ExpiryUnread, l.ExpiresAt.Unix()}
	}
	return of(a) != of(b) || a.Network != b.Network && a.Network != "" && b.Network != ""
}

// seen gives the offer its listing_ref and what the guard will rely on: the digest
// of its canonical allowlisted form and of the instance that showed it (market
// contract, section 7).
func (r *Row) seen(origin string, at time.Time) (*guard.Listing, error) {
	text, err := canon.Marshal(struct {
		Instance string `json:"instance"`
		Row      *Row   `json:"listing"`
	}{origin, r})
	if err != nil {
		return nil, err
	}
	digest := canon.Sum(text)
	r.Ref = refOf(digest)
	ends, ok := r.ends()
	l := &guard.Listing{
		Digest: digest, Instance: origin, Account: r.Account, Permlink: r.Permlink,
		Side: r.Side, Asset: r.Asset, Network: r.Network, Chain: networks[r.Asset][r.Network], SeveralChains: networks[r.Asset] != nil,
		Fiat: r.Fiat, AmountMin: r.AmountMin, AmountMax: r.AmountMax,
		Status: r.Status, FeeVerified: r.FeeVerified, ExpiresAt: ends, ExpiryUnread: !ok,
		Trades: -1, Flagged: slices.Clone(r.Changed), SeenAt: at,
	}
	if r.PriceModel != nil && r.PriceModel.Kind == "fixed" {
		l.Price = r.PriceModel.Price
	}
	if r.Trades != nil {
		l.Trades = *r.Trades
	}
	return l, nil
}
