package guard

import "github.com/settlewatch/settlewatch/guard/decision"

// Policy is the policy file with its defaults filled in (guard contract, section
// 2). It is never changed once read.
type Policy struct {
	Allowlist, Denylist   []string // canonical names
	PerCounterparty       Cap
	MaxOpenPartial        int
	ReviewAbove           string // display units of the default asset
	DefaultAsset          string // asset key
	Assets                map[string]Asset
	AssetPolicies         map[string]AssetPolicy
	Limits                []Limit
	StickyRejectHours     int
	ReviewExpiryHours     int
	MaxPendingReviews     int
	PriceDriftRatio       string
	TrustDefiniteFailures bool
	TrustSettledAmounts   bool
	BlindOperations       string // review, ignore
	Holds                 string // asked, always
	HoldSeconds           int
	LogAllows             bool
	Damage                string // review, ignore
	Operators             []decision.Operator
	ReviewURL             string
	Aliases               map[string][]string // every name of a group to the whole group, canonical
}

// Asset is an entry of the registry. Decimals come from nowhere else.
type Asset struct {
	Symbol   string
	Decimals int
}

// Cap is an amount in a window. Amount is in display units; Atomic in atomic units
// of the asset it belongs to.
type Cap struct {
	Amount, Atomic string
	WindowHours    int
}

// AssetPolicy holds the limits of an asset that has its own.
type AssetPolicy struct {
	PerCounterparty   Cap
	ReviewAbove       string // display units
	ReviewAboveAtomic string
}

// Limit is one of limits.
type Limit struct {
	Name        string
	Scope       string // counterparty, host, resource, asset, total
	Asset       string // asset key; "" for the default asset
	Amount      string // display units; "" when only counts are limited
	Atomic      string // atomic units of Asset
	Count       int64  // 0: not limited
	WindowHours int
	Action      string // review, block
	Mode        string // enforce, shadow
}
