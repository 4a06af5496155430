package guard

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// Asset is an entry of the registry. Decimals come from nowhere else.
type Asset struct {
	Symbol   string // "" when it has none
	Decimals int
}

// The assets that are built in (guard contract, section 2).
const (
	usdcBase        = "eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
	usdcBaseSepolia = "eip155:84532/0x036cbd53842c5426634e7929541ec2318f3dcf7e"
)

func builtIn() map[string]Asset {
	return map[string]Asset{
		usdcBase:        {Symbol: "USDC", Decimals: 6},
		usdcBaseSepolia: {Symbol: "USDC", Decimals: 6},
	}
}

// maxDecimals is what an EVM token can say of itself: decimals() is a uint8.
const maxDecimals = 255

// cutKey takes an asset key apart, as it is typed. The network ends at the first
// slash.
func cutKey(key string) (network, address string, ok bool) {
	network, address, ok = strings.Cut(key, "/")
	return network, address, ok && network != "" && address != ""
}

// canonicalKey is the key a typed one stands for: the network as CAIP-2, hex in
// lower case (guard contract, section 3). It is "" for what is no key.
func canonicalKey(key string) string {
	network, address, ok := cutKey(key)
	if !ok {
		return ""
	}
	return payment.AssetKey(network, address)
}

// networkOf is the network of a canonical key.
func networkOf(key string) string {
	network, _, _ := strings.Cut(key, "/")
	return network
}

// canonicalAddress is the address of an asset as keys hold it.
func canonicalAddress(text string) string {
	_, address, _ := strings.Cut(payment.AssetKey("x", text), "/")
	return address
}

// resolve finds the asset that typed text names: by key, by symbol or by address,
// "" for the default asset. A symbol or an address that several entries bear
// names the default asset if it is among them and else nothing (guard contract,
// section 3). Symbols are compared exactly. why is the sentence when there is none.
func (p *Policy) resolve(typed string) (key, why string) {
	if typed == "" {
		return p.DefaultAsset, ""
	}
	shown := plain.Quote(typed, plain.Detail)
	if strings.Contains(typed, "/") {
		key = canonicalKey(typed)
		if _, ok := p.Assets[key]; ok {
			return key, ""
		}
		return "", "the asset " + shown + " is not in the policy's assets"
	}
	switch found := p.bearers(typed); {
	case slices.Contains(found, p.DefaultAsset):
		return p.DefaultAsset, ""
	case len(found) == 1:
		return found[0], ""
	case len(found) > 1:
		return "", fmt.Sprintf("%d assets of the policy are called %s and none of them is the default: only the asset's key tells them apart", len(found), shown)
	}
	for _, key := range p.keys() {
		if s := p.Assets[key].Symbol; strings.EqualFold(s, typed) {
			return "", "the asset " + shown + " is not in the policy's assets; symbols are compared letter by letter, and there is " + s
		}
	}
	return "", "the asset " + shown + " is not in the policy's assets"
}

// bearers are the keys of the entries whose symbol or address is text.
func (p *Policy) bearers(text string) []string {
	address := canonicalAddress(text)
	var found []string
	for key, a := range p.Assets {
		if _, its, _ := cutKey(key); its == address || a.Symbol != "" && a.Symbol == text {
			found = append(found, key)
		}
	}
	slices.Sort(found)
	return found
}

// called is an asset for people: its symbol, else its key.
func (p *Policy) called(key string) string {
	if s := p.Assets[key].Symbol; s != "" {
		return s
	}
	return plain.Clean(key, plain.Detail)
}

// Units is an amount of atomic units in the asset's display units, "1.50": with at
// least two fraction digits where the asset has as many, and no digit lost. It is
// the amount as it is when the asset is not in the registry, and "" for "".
func (p *Policy) Units(asset, atomic string) string {
	a, ok := p.Assets[asset]
	if !ok || atomic == "" {
		return atomic
	}
	return unscale(atomic, a.Decimals)
}

// Display is an amount of atomic units for people: "1.50 USDC".
func (p *Policy) Display(asset, atomic string) string {
	switch a, ok := p.Assets[asset]; {
	case atomic == "":
		return "an unknown amount"
	case !ok && asset == "":
		return atomic + " atomic units of an unknown asset"
	case !ok:
		return atomic + " atomic units of " + plain.Clean(asset, plain.Detail)
	case a.Symbol == "":
		return unscale(atomic, a.Decimals) + " of " + plain.Clean(asset, plain.Detail)
	default:
		return unscale(atomic, a.Decimals) + " " + a.Symbol
	}
}

// Atomic is an amount in display units in the asset's atomic units. Zero is an
// amount here.
func (p *Policy) Atomic(asset, display string) (string, error) {
	a, ok := p.Assets[asset]
	if !ok {
		return "", errcode.New(errcode.Input, "add it to assets in the policy file",
			"read an amount of %s: the policy's assets do not hold it, so its decimals are not known", plain.Quote(asset, plain.Detail))
	}
	atomic, why := scale(display, a.Decimals)
	if why == notDecimal {
		return "", errcode.New(errcode.Input, amountHint, "read the amount %s: it %s", plain.Quote(display, plain.Detail), why)
	}
	if why != "" {
		return "", errcode.New(errcode.Input, "", "read the amount %s: it %s", plain.Quote(display, plain.Detail), p.ofAsset(asset, why))
	}
	return atomic, nil
}

// ofAsset ends a sentence on an amount that scale refuses with what the asset has.
func (p *Policy) ofAsset(asset, why string) string {
	if why == tooLarge {
		return why
	}
	return fmt.Sprintf("%s, and %s has %d", why, p.called(asset), p.Assets[asset].Decimals)
}

// Why scale refuses an amount.
const (
	notDecimal = "is not decimal text"
	tooLarge   = "is larger than any amount there is"
)

const amountHint = `write it as "0.05": digits, and a point where there is a fraction; no sign, exponent, separator or leading zero`

// cutDecimal takes decimal text apart: ^(0|[1-9][0-9]*)(\.[0-9]+)?$.
func cutDecimal(s string) (whole, fraction string, ok bool) {
	whole, fraction, point := strings.Cut(s, ".")
	if whole == "" || len(whole) > 1 && whole[0] == '0' || !digits(whole) || point && (fraction == "" || !digits(fraction)) {
		return "", "", false
	}
	return whole, fraction, true
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// shortDecimal is the one spelling of a decimal text: without zeros at the end of
// the fraction.
func shortDecimal(s string) string {
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// scale gives decimal text in display units as atomic units by moving the point.
// Nothing is rounded: an amount that needs more decimals than there are is
// refused, even where the surplus digits are zeros, since whoever wrote them had
// another asset in mind. why is "" or the end of a sentence that begins with it.
func scale(display string, decimals int) (atomic, why string) {
	whole, fraction, ok := cutDecimal(display)
	switch {
	case !ok:
		return "", notDecimal
	case len(fraction) > decimals && len(fraction) == 1:
		return "", "has 1 fraction digit"
	case len(fraction) > decimals:
		return "", fmt.Sprintf("has %d fraction digits", len(fraction))
	}
	atomic = strings.TrimLeft(whole+fraction+strings.Repeat("0", decimals-len(fraction)), "0")
	if atomic == "" {
		return "0", ""
	}
	if len(atomic) > payment.MaxDigits {
		return "", tooLarge
	}
	return atomic, ""
}

// unscale is the way back, in the spelling that Units promises.
func unscale(atomic string, decimals int) string {
	if decimals == 0 {
		return atomic
	}
	if missing := decimals + 1 - len(atomic); missing > 0 {
		atomic = strings.Repeat("0", missing) + atomic
	}
	whole, fraction := atomic[:len(atomic)-decimals], atomic[len(atomic)-decimals:]
	fraction = strings.TrimRight(fraction, "0")
	if missing := min(2, decimals) - len(fraction); missing > 0 {
		fraction += strings.Repeat("0", missing)
	}
	return whole + "." + fraction
}

// keys are the keys of the registry in order.
func (p *Policy) keys() []string { return slices.Sorted(maps.Keys(p.Assets)) }
