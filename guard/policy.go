package guard

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
)

// Policy is the policy file with its defaults filled in (guard contract, section
// 2). It is never changed once read. [DefaultPolicy] and [ParsePolicy] make one.
type Policy struct {
	// Names are canonical, sorted, none twice. Denylist holds every reading of
	// its entries (see Expand); Allowlist the likeliest one only, so that listing
	// a host permits no account that is called like it.
	Allowlist, Denylist   []string
	PerCounterparty       Cap // of the default asset
	MaxOpenPartial        int
	ReviewAbove           string // display units of the default asset
	ReviewAboveAtomic     string
	DefaultAsset          string // asset key, in Assets
	Assets                map[string]Asset
	AssetPolicies         map[string]AssetPolicy // never holds the default asset
	Limits                []Limit
	StickyRejectHours     int
	ReviewExpiryHours     int
	MaxPendingReviews     int
	PriceDriftRatio       string // decimal text, above zero
	TrustDefiniteFailures bool
	TrustSettledAmounts   bool
	BlindOperations       string // review, ignore
	Holds                 string // asked, always
	HoldSeconds           int
	LogAllows             bool
	Damage                string // review, ignore
	Operators             []decision.Operator
	ReviewURL             string // may hold {review_id}
	// Every name of a group to the whole group, canonical and sorted.
	Aliases      map[string][]string
	SpendGate    *approval.Gate             // nil when none is configured
	ToolPolicies map[string]json.RawMessage // canonical JSON, by name (approvals contract, section 3)
	MinTrades    int                        // of who posted a listing; 0: any

	given map[string]bool   // what came from the file, by JSON path
	where map[string]string // where entries stand that the file names itself, see filed
	notes map[string]string // what a person should look at, by JSON path
}

// Cap is an amount in a window. Amount is in display units; Atomic in atomic units
// of the asset it belongs to.
type Cap struct {
	Amount, Atomic string
	WindowHours    int
}

// AssetPolicy holds the limits of an asset that has its own. What the file leaves
// out is zero, so that every payment is a review: five dollars say nothing of what
// five of another asset are worth.
type AssetPolicy struct {
	PerCounterparty   Cap
	ReviewAbove       string // display units
	ReviewAboveAtomic string
}

// Limit is one of limits.
type Limit struct {
	Name        string
	Scope       string // counterparty, host, resource, asset, total
	Asset       string // asset key; "" only where payments in any asset are counted
	Amount      string // display units; "" when only payments are counted
	Atomic      string // atomic units of Asset
	Count       int64  // payments; 0: not limited
	WindowHours int
	Action      string // review, block
	Mode        string // enforce, shadow
}

// What a policy says where the file says nothing (guard contract, section 2).
const (
	defaultHours       = 24
	defaultCap         = "5"
	defaultReviewAbove = "1"
	defaultMaxPending  = 50
	defaultDrift       = "10"
	defaultHold        = 600 // seconds
)

// DefaultPolicy is the policy of an empty file.
func DefaultPolicy() *Policy {
	p := &Policy{
		DefaultAsset: usdcBase, Assets: builtIn(), AssetPolicies: map[string]AssetPolicy{},
		StickyRejectHours: defaultHours, ReviewExpiryHours: defaultHours, MaxPendingReviews: defaultMaxPending, PriceDriftRatio: defaultDrift,
		BlindOperations: "review", Holds: "asked", HoldSeconds: defaultHold, LogAllows: true, Damage: "review",
		Aliases: map[string][]string{}, ToolPolicies: map[string]json.RawMessage{},
		given: map[string]bool{}, where: map[string]string{}, notes: map[string]string{},
	}
	p.PerCounterparty = p.cap(p.DefaultAsset, defaultCap, defaultHours)
	p.ReviewAbove, p.ReviewAboveAtomic = p.amount(p.DefaultAsset, defaultReviewAbove)
	return p
}

// amount is an amount in both units; the caller knows that it can be read.
func (p *Policy) amount(asset, display string) (units, atomic string) {
	atomic, _ = scale(display, p.Assets[asset].Decimals)
	return p.Units(asset, atomic), atomic
}

func (p *Policy) cap(asset, display string, hours int) Cap {
	units, atomic := p.amount(asset, display)
	return Cap{Amount: units, Atomic: atomic, WindowHours: hours}
}

// CapOf gives what per_counterparty_limit and review_above compare with in an
// asset: those of the policy for its default asset, else those of the asset's own
// entry. ok is false for an asset that has neither (guard contract, section 1,
// asset_mismatch).
func (p *Policy) CapOf(asset string) (limit Cap, reviewAbove string, ok bool) {
	if asset == p.DefaultAsset {
		return p.PerCounterparty, p.ReviewAboveAtomic, true
	}
	own, ok := p.AssetPolicies[asset]
	return own.PerCounterparty, own.ReviewAboveAtomic, ok
}

// ToolPolicy is the policy of tool approvals of a name, nil when there is none.
func (p *Policy) ToolPolicy(name string) *approval.ToolPolicy {
	var doc jsjson.Doc
	if err := doc.Parse(p.ToolPolicies[name]); err != nil {
		return nil
	}
	tools, err := approval.ParseToolPolicy(doc.Root())
	if err != nil {
		return nil // none was read that is not one
	}
	return tools
}

// Group is every name that counterpartyAliases says is the same counterparty, the
// name itself among them.
func (p *Policy) Group(name string) []string {
	if group, ok := p.Aliases[name]; ok {
		return group
	}
	return []string{name}
}

// Expand is every name under which history of the given canonical names may be
// found: themselves, what else they may be read as (a host may be an account that
// is called like it), and their aliases. Sorted, no name twice. It is how Ask.Names
// follows from Intent.Names, and it is the way to look for the payment of an intent
// that was logged.
func (p *Policy) Expand(names ...string) []string {
	out := readings(names)
	for _, name := range out {
		out = append(out, p.Aliases[name]...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// accountPrefix is what names have in payment that are neither an address nor a
// host. In a policy it may be written too, to name an account and not the host.
const accountPrefix = "payee:"

// typedNames are the canonical readings of text a person or an agent typed for a
// counterparty, the likeliest first. People are shown the prefix, so they may type
// it; what a seller writes never passes here.
func typedNames(text string) []string {
	if account, ok := strings.CutPrefix(text, accountPrefix); ok && account != "" {
		return []string{payment.Payee(account)}
	}
	return payment.Names(text)
}

// readings are canonical names with what else they may be read as, sorted. The
// readings of readings are themselves.
func readings(names []string) []string {
	out := slices.Clone(names)
	for _, name := range names {
		if account, ok := strings.CutPrefix(name, accountPrefix); ok {
			// An account that is written like a host, in any of a host's
			// spellings, is looked for under the one spelling hosts have: a seller
			// must not leave a denylist by a capital letter.
			if host := payment.Name(account); isHost(host) {
				out = append(out, accountPrefix+host)
			}
			continue
		}
		if isHost(name) {
			if !strings.HasSuffix(name, ".") { // else it looks like an address, which is its account
				out = append(out, accountPrefix+name)
			}
			continue
		}
		out = append(out, payment.Names(name)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// isHost reports whether a canonical name is a host's.
func isHost(name string) bool {
	_, address := payment.Address(name)
	return name != "" && !address && !strings.HasPrefix(name, accountPrefix)
}

// Hash is the content hash of the effective policy, defaults filled in, in one
// spelling and order (guard contract, section 2): the SHA-256 of [Policy.Effective].
func (p *Policy) Hash() string { return canon.Sum(p.Effective()) }

// The policy file as it is written. What is absent here is given a value by every
// policy, but for the members that have no neutral one.
type (
	policyFile struct {
		Allowlist             []string                   `json:"allowlist"`
		Denylist              []string                   `json:"denylist"`
		PerCounterpartyLimit  capFile                    `json:"perCounterpartyLimit"`
		MaxOpenPartial        int                        `json:"maxOpenPartialPerCounterparty"`
		ReviewAbove           string                     `json:"reviewAbove"`
		DefaultAsset          string                     `json:"defaultAsset"`
		Assets                map[string]assetFile       `json:"assets"`
		AssetPolicies         map[string]assetPolicyFile `json:"assetPolicies"`
		Limits                []limitFile                `json:"limits"`
		StickyRejectHours     int                        `json:"stickyRejectHours"`
		ReviewExpiryHours     int                        `json:"reviewExpiryHours"`
		MaxPendingReviews     int                        `json:"maxPendingReviews"`
		PriceDriftRatio       string                     `json:"priceDriftRatio"`
		TrustDefiniteFailures bool                       `json:"trustDefiniteFailures"`
		TrustSettledAmounts   bool                       `json:"trustSettledAmounts"`
		BlindOperations       string                     `json:"blindOperations"`
		Holds                 string                     `json:"holds"`
		HoldSeconds           int                        `json:"holdSeconds"`
		LogAllows             bool                       `json:"logAllows"`
		Damage                string                     `json:"damage"`
		Operators             []operatorFile             `json:"operators"`
		ReviewURL             string                     `json:"reviewUrl,omitempty"`
		Aliases               map[string][]string        `json:"counterpartyAliases"`
		SpendGate             *approval.Gate             `json:"spendGate,omitempty"`
		ToolPolicies          map[string]json.RawMessage `json:"toolPolicies"`
		Market                *marketFile                `json:"market,omitempty"` // absent by default: without it a policy keeps its hash
	}
	capFile struct {
		Amount      string `json:"amount"`
		WindowHours int    `json:"windowHours"`
	}
	assetFile struct {
		Symbol   string `json:"symbol,omitempty"`
		Decimals int    `json:"decimals"`
	}
	assetPolicyFile struct {
		PerCounterpartyLimit capFile `json:"perCounterpartyLimit"`
		ReviewAbove          string  `json:"reviewAbove"`
	}
	limitFile struct {
		Name        string `json:"name"`
		Scope       string `json:"scope"`
		Asset       string `json:"asset,omitempty"`
		Amount      string `json:"amount,omitempty"`
		Count       int64  `json:"count,omitempty"`
		WindowHours int    `json:"windowHours"`
		Action      string `json:"action"`
		Mode        string `json:"mode"`
	}
	marketFile struct {
		MinTrades int `json:"minTrades"`
	}
	operatorFile struct {
		Name      string `json:"name"`
		PublicKey string `json:"publicKey"`
		Until     string `json:"until,omitempty"`
	}
)

// Effective is the whole policy in canonical JSON, in the form of a policy file: it
// reads as the same policy.
func (p *Policy) Effective() []byte {
	f := policyFile{
		Allowlist: append([]string{}, p.Allowlist...), Denylist: bare(p.Denylist),
		PerCounterpartyLimit: p.PerCounterparty.file(), MaxOpenPartial: p.MaxOpenPartial, ReviewAbove: shortDecimal(p.ReviewAbove),
		DefaultAsset: p.DefaultAsset, Assets: map[string]assetFile{}, AssetPolicies: map[string]assetPolicyFile{}, Limits: []limitFile{},
		StickyRejectHours: p.StickyRejectHours, ReviewExpiryHours: p.ReviewExpiryHours, MaxPendingReviews: p.MaxPendingReviews,
		PriceDriftRatio: p.PriceDriftRatio, TrustDefiniteFailures: p.TrustDefiniteFailures, TrustSettledAmounts: p.TrustSettledAmounts,
		BlindOperations: p.BlindOperations, Holds: p.Holds, HoldSeconds: p.HoldSeconds, LogAllows: p.LogAllows, Damage: p.Damage,
		Operators: []operatorFile{}, ReviewURL: p.ReviewURL, Aliases: map[string][]string{}, SpendGate: p.SpendGate, ToolPolicies: p.ToolPolicies,
	}
	if f.ToolPolicies == nil {
		f.ToolPolicies = map[string]json.RawMessage{}
	}
	if p.MinTrades > 0 {
		f.Market = &marketFile{p.MinTrades}
	}
	for key, a := range p.Assets {
		f.Assets[key] = assetFile(a)
	}
	for key, own := range p.AssetPolicies {
		f.AssetPolicies[key] = assetPolicyFile{own.PerCounterparty.file(), shortDecimal(own.ReviewAbove)}
	}
	for _, l := range p.Limits {
		f.Limits = append(f.Limits, limitFile{Name: l.Name, Scope: l.Scope, Asset: l.Asset, Amount: shortDecimal(l.Amount), Count: l.Count,
			WindowHours: l.WindowHours, Action: l.Action, Mode: l.Mode})
	}
	for _, o := range p.Operators {
		w := operatorFile{Name: o.Name, PublicKey: o.PublicKey}
		if !o.Until.IsZero() {
			w.Until = o.Until.UTC().Format(time.RFC3339Nano)
		}
		f.Operators = append(f.Operators, w)
	}
	for _, group := range p.groups() {
		group = bare(group)
		f.Aliases[group[0]] = group[1:]
	}
	text, err := canon.Marshal(f)
	if err != nil {
		// Every text of a policy that was read is well-formed, every number small.
		panic("guard: this policy has no canonical form: " + err.Error())
	}
	return text
}

func (c Cap) file() capFile { return capFile{shortDecimal(c.Amount), c.WindowHours} }

// bare are names without those that are readings of others among them.
func bare(names []string) []string {
	derived := map[string]bool{}
	for _, name := range names {
		for _, reading := range readings([]string{name}) {
			derived[reading] = derived[reading] || reading != name
		}
	}
	out := []string{}
	for _, name := range names {
		if !derived[name] {
			out = append(out, name)
		}
	}
	return out
}

// groups are the groups of counterpartyAliases, each once, in order.
func (p *Policy) groups() [][]string {
	var out [][]string
	for _, name := range slices.Sorted(maps.Keys(p.Aliases)) {
		if group := p.Aliases[name]; group[0] == name {
			out = append(out, group)
		}
	}
	return out
}
