package guard

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// The rules of the guard contract, section 1, in table order, and below them the
// words and sums they share.

func (q *question) notReady() []finding {
	why := q.notReadyWhy()
	if why == "" {
		return nil
	}
	return fire("the guard cannot judge this payment: %s", plain.Clean(why, plain.Explanation))
}

func (q *question) frozen() []finding {
	if q.r.Frozen == "" {
		return nil
	}
	return fire("%s", plain.Clean(q.r.Frozen, plain.Explanation))
}

func (q *question) logUnsound() []finding {
	if q.r.Unsound == "" {
		return nil
	}
	return fire("the decisions log does not verify (%s), so no review is opened: have a person run `settlewatch audit verify`", plain.Clean(q.r.Unsound, plain.Explanation))
}

func (q *question) recorderSilent() []finding {
	if q.f.HasRuns {
		return nil
	}
	return fire("no run was ever recorded here, so earlier payments would not be seen: wire the recorder to this trace root (README, \"Record\")")
}

func (q *question) denylist() []finding {
	var on []string
	for _, name := range q.a.Names {
		// The readings of one name look the same.
		if text := shownName(name); slices.Contains(q.p.Denylist, name) && !slices.Contains(on, text) {
			on = append(on, text)
		}
	}
	switch len(on) {
	case 0:
		return nil
	case 1:
		return fire("%s is on the denylist", on[0])
	default:
		return fire("%s and %s are on the denylist", on[0], several(len(on)-1, "more name", "more names"))
	}
}

func (q *question) rejectedByHuman() []finding {
	if q.r.Rejected == nil {
		return nil
	}
	return fire("a person rejected this payment to %s in %s%s", q.who(), q.refused(q.r.Rejected), q.sticks(q.r.Rejected))
}

func (q *question) recentlyRejected() []finding {
	if q.r.Nearby == nil {
		return nil
	}
	return fire("a person rejected %s in %s%s", q.r.Nearby.What, q.refused(q.r.Nearby), q.sticks(q.r.Nearby))
}

func (q *question) refused(r *Refusal) string {
	text := fmt.Sprintf("review %s on %s", plain.Clean(r.ReviewID, plain.Detail), moment(r.At))
	if r.By != "" {
		text += ", by " + plain.Clean(r.By, plain.Detail)
	}
	if r.Note != "" {
		text += ", noting " + plain.Quote(r.Note, plain.Detail)
	}
	return text
}

func (q *question) sticks(r *Refusal) string {
	if q.p == nil {
		return ""
	}
	until := r.At.Add(time.Duration(q.p.StickyRejectHours) * time.Hour)
	return fmt.Sprintf("; that stands until %s unless a person reopens the review", moment(until))
}

func (q *question) allowlist() []finding {
	list := q.p.Allowlist
	if len(list) == 0 {
		return nil
	}
	on := func(name string) bool { return slices.Contains(list, name) }
	// The counterparty's readings are one name. The resource's host never counts:
	// the caller types it.
	typed := len(q.a.Typed) > 0
	switch {
	case typed && !slices.ContainsFunc(q.a.Typed, on):
		return fire("%s is not on the allowlist", shownName(q.a.Typed[0]))
	case q.a.PayTo != "" && !on(q.a.PayTo):
		return fire("the address to be paid, %s, is not on the allowlist", shownName(q.a.PayTo))
	case !typed && q.a.PayTo == "":
		return fire("%s is not on the allowlist", q.who())
	}
	return nil
}

func (q *question) openPartial() []finding {
	n := q.f.Open.total()
	if n <= q.p.MaxOpenPartial {
		return nil
	}
	return q.f.Open.with(fire("%s with %s left open (allowed: %d): money may have moved and no outcome was seen; "+
		"a person who finds out can say so with `settlewatch resolve RUN OPERATION --as settled|failed`",
		several(n, "operation", "operations"), q.who(), q.p.MaxOpenPartial))
}

func (q *question) duplicatePurchase() []finding {
	n := q.f.Duplicate.total()
	if n == 0 {
		return nil
	}
	return q.f.Duplicate.with(fire("%s to %s for exactly %s: this may buy the same thing twice; see what became of the earlier payment first",
		several(n, "open payment was made", "open payments were made"), q.who(), q.money(q.a.Intent.Amount)))
}

func (q *question) unknownAsset() []finding {
	if q.a.MoneyRule != "unknown_asset" {
		return nil
	}
	return fire("%s", q.moneyDetail("the asset is not in the registry"))
}

// unparseableAmount also fires for an amount that cannot be compared though nobody
// said what is wrong with it: the rules that need it are off, so one has to speak.
func (q *question) unparseableAmount() []finding {
	if q.amountRead() || q.a.MoneyRule == "unknown_asset" || q.a.MoneyRule == "asset_mismatch" {
		return nil
	}
	return fire("%s", q.moneyDetail("the amount cannot be read"))
}

func (q *question) assetMismatch() []finding {
	if q.a.MoneyRule != "asset_mismatch" {
		return nil
	}
	return fire("%s", q.moneyDetail("the asset is not one the policy has limits for"))
}

func (q *question) moneyDetail(otherwise string) string {
	if q.a.MoneyDetail == "" {
		return otherwise
	}
	return plain.Clean(q.a.MoneyDetail, plain.Explanation)
}

func (q *question) perCounterpartyLimit() []finding {
	limit, _ := q.cap()
	w := q.f.Window
	total, over, err := exceeds(limit.Atomic, w.Spent, w.Held, q.a.Intent.Amount)
	if err != nil {
		return fire("what was paid to %s cannot be added up: %s", q.who(), err)
	}
	if !over {
		if w.Unreadable > 0 {
			return fire("payments to %s: %s", q.who(), q.leftOut(w))
		}
		return nil
	}
	return fire("%s to %s %s, over the limit of %s",
		sum(q.money(w.Spent), q.money(w.Held), q.money(q.a.Intent.Amount), q.total(total)),
		q.who(), last(limit.WindowHours), q.money(limit.Atomic))
}

func (q *question) mixedAssets() []finding {
	n := q.f.Mixed.total()
	if n == 0 {
		return nil
	}
	return q.f.Mixed.with(fire("%s with %s in an asset the policy has no limits for, which the sums of the window leave out; "+
		"give the asset an entry in assetPolicies", several(n, "operation", "operations"), q.who()))
}

func (q *question) unparseableHistory() []finding {
	n := q.f.Unreadable.total()
	if n == 0 {
		return nil
	}
	return q.f.Unreadable.with(fire("%s with %s whose amount, asset or time cannot be read, which the sums of the window leave out; "+
		"a person can state them with `settlewatch resolve RUN OPERATION --as settled --amount A --at T`", several(n, "operation", "operations"), q.who()))
}

// spendGate maps what the configured gate says (approvals contract, section 9.6).
// Whatever is not known to let the payment through blocks it.
func (q *question) spendGate() []finding {
	g := q.f.Gate
	if g == nil || g.State == approval.Locked {
		return nil
	}
	why := plain.Clean(strings.Join(g.Reasons, "; "), plain.Explanation)
	if g.State == approval.HITLRequired {
		return give(Review, fire("the spend gate asks for a person: %s", why))
	}
	return give(Block, fire("the spend gate blocks %s to %s: %s", q.money(q.a.Intent.Amount), q.who(), why))
}

func (q *question) limits() []finding {
	var all []finding
	for i := range q.p.Limits {
		l := &q.p.Limits[i]
		found := q.limit(l, i)
		if found == nil {
			continue
		}
		found[0].Rule = "limit:" + l.Name
		if found[0].gives == "" {
			found[0].gives = l.Action
		}
		if found[0].gives != Review {
			found[0].gives = Block
		}
		found[0].shadow = l.Mode == "shadow"
		all = append(all, found...)
	}
	return all
}

func (q *question) limit(l *Limit, i int) []finding {
	name := fmt.Sprintf("limit %s (%s %s)", plain.Quote(l.Name, plain.Detail), q.scope(l), last(l.WindowHours))
	if i >= len(q.f.Limits) {
		return give(Review, fire("%s: what it counts is not known", name))
	}
	w := q.f.Limits[i]
	if !w.Applies {
		return nil
	}
	var over, doubt []string
	// Amounts of two assets are never added up, whatever window the facts give.
	if l.Atomic != "" && q.amountRead() && l.Asset == q.a.Intent.Asset {
		total, exceeded, err := exceeds(l.Atomic, w.Spent, w.Held, q.a.Intent.Amount)
		switch {
		case err != nil:
			doubt = append(doubt, "what was paid cannot be added up: "+err.Error())
		case exceeded:
			over = append(over, fmt.Sprintf("%s, over %s",
				sum(q.money(w.Spent), q.money(w.Held), q.money(q.a.Intent.Amount), q.total(total)), q.money(l.Atomic)))
		case w.Unreadable > 0:
			doubt = append(doubt, q.leftOut(w))
		}
	}
	if l.Count > 0 && w.Holds >= l.Count-w.Count { // no sum that could wrap
		over = append(over, fmt.Sprintf("%s + %s + this one, over %d",
			several64(w.Count, "payment", "payments"), several64(w.Holds, "hold", "holds"), l.Count))
	}
	switch {
	case over != nil:
		return fire("%s: %s", name, strings.Join(slices.Concat(over, doubt), "; "))
	case doubt != nil:
		// A doubt is for a person, whatever an excess gives.
		return give(Review, fire("%s: %s", name, strings.Join(doubt, "; ")))
	}
	return nil
}

// leftOut says that a sum is not the whole one.
func (q *question) leftOut(w Window) string {
	return fmt.Sprintf("spent %s and %s that cannot be added up; a person can state what was paid with `settlewatch resolve`",
		q.money(w.Spent), several64(w.Unreadable, "payment", "payments"))
}

func (q *question) scope(l *Limit) string {
	switch l.Scope {
	case "counterparty":
		return "payments to " + q.who()
	case "host":
		return "payments at " + q.host()
	case "resource":
		return "payments for " + plain.Quote(q.a.Intent.Resource, plain.Detail)
	case "asset":
		return "payments in " + plain.Clean(q.p.called(l.Asset), plain.Detail)
	default:
		return "all payments"
	}
}

func (q *question) reviewAbove() []finding {
	_, above, _ := q.p.CapOf(q.a.Intent.Asset)
	_, over, err := exceeds(above, q.a.Intent.Amount)
	if err != nil {
		return fire("the amount cannot be compared with reviewAbove: %s", err)
	}
	if !over {
		return nil
	}
	return fire("%s to %s is more than the %s that may be paid without a person", q.money(q.a.Intent.Amount), q.who(), q.money(above))
}

func (q *question) payeeChanged() []finding {
	n := q.f.PayeeChanged.total()
	if n == 0 || q.a.PayTo == "" {
		return nil
	}
	shown := make([]string, len(q.f.PaidHosts))
	for i, name := range q.f.PaidHosts {
		shown[i] = shownName(name)
	}
	was := "was"
	if len(shown) > 1 {
		was = "were"
	}
	return q.f.PayeeChanged.with(fire("%s %s paid before (%s), but never at %s: check the new address with the seller by another way",
		plain.Clean(strings.Join(shown, ", "), plain.Explanation), was, several(n, "operation", "operations"), shownName(q.a.PayTo)))
}

// minPrices and maxPrices bound what the usual price is taken from.
const (
	minPrices = 3
	maxPrices = 20
)

func (q *question) priceDrift() []finding {
	prices := q.f.Prices[:min(len(q.f.Prices), maxPrices)]
	if len(prices) < minPrices {
		return nil
	}
	twice, err := twiceMedian(prices)
	if err != nil {
		return fire("the price cannot be compared with earlier ones: %s", err)
	}
	ratio, ok := new(big.Rat).SetString(q.p.PriceDriftRatio)
	if !ok {
		return fire("the price cannot be compared with earlier ones: priceDriftRatio is no number")
	}
	var amount big.Int
	amount.SetString(q.a.Intent.Amount, 10)
	// Exactly: 2 x amount >= ratio x 2 x median.
	left := new(big.Rat).SetInt(amount.Lsh(&amount, 1))
	right := new(big.Rat).SetInt(twice)
	if left.Cmp(right.Mul(right, ratio)) < 0 {
		return nil
	}
	return fire("%s is %s times the usual price or more: the median of the last %d settled payments for %s is %s",
		q.money(q.a.Intent.Amount), plain.Clean(q.p.PriceDriftRatio, plain.Detail), len(prices), plain.Quote(q.a.Intent.Resource, plain.Detail), q.half(twice))
}

// twiceMedian is two times the median, which is always whole: the mean of the
// middle two need not be.
func twiceMedian(amounts []string) (*big.Int, error) {
	for _, s := range amounts {
		if _, ok := payment.Amount(s); !ok {
			return nil, fmt.Errorf("%.40q is no amount", s)
		}
	}
	sorted := slices.SortedFunc(slices.Values(amounts), payment.Cmp)
	var low, high big.Int
	low.SetString(sorted[(len(sorted)-1)/2], 10)
	high.SetString(sorted[len(sorted)/2], 10)
	return low.Add(&low, &high), nil
}

// half shows half of an amount, which may end within an atomic unit.
func (q *question) half(twice *big.Int) string {
	tenths := new(big.Int).Mul(twice, big.NewInt(5)).String()
	asset := q.a.Intent.Asset
	return plain.Clean(unscale(tenths, q.p.Assets[asset].Decimals+1)+" "+q.p.called(asset), plain.Detail)
}

func (q *question) damagedHistory() []finding {
	n := q.damaged()
	if n == 0 || q.p.Damage == "ignore" {
		return nil
	}
	// A few are enough to begin with; an approval looks at the facts that were shown.
	const named = 3
	var said []string
	for _, d := range q.f.Damage[:min(len(q.f.Damage), named)] {
		said = append(said, damageText(d))
	}
	if more := n - len(said); more > 0 {
		said = append(said, several(more, "more", "more"))
	}
	do := "see `settlewatch damage list`, and accept it with `settlewatch damage ack`"
	if q.f.DamageCut {
		do += " or `settlewatch baseline`: it is more than an approval can cover"
	}
	return fire("payments may be missing from a damaged history: %s; %s", strings.Join(said, "; "), do)
}

func (q *question) damaged() int { return max(q.f.DamageTotal, len(q.f.Damage)) }

// damageText tells items of damage apart: a run's name is escaped, not cleaned, so
// that no two of them look the same to byDamage.
func damageText(d DamageItem) string {
	text := "run " + strconv.QuoteToASCII(d.Run)
	switch {
	case d.Line > 0:
		text += fmt.Sprintf(" line %d", d.Line)
	case d.Offset > 0:
		text += fmt.Sprintf(" byte %d", d.Offset)
	}
	if d.Removed {
		text += ", which is gone"
	}
	if d.Reason != "" {
		text += ": " + plain.Clean(d.Reason, plain.Detail)
	}
	if d.Faults > 1 {
		text += fmt.Sprintf(" (%d faults)", d.Faults)
	}
	return text
}

// exceeds adds the parts and tells whether they are strictly more than limit. A sum
// that has more digits than any amount is more than any limit; it has no total. The
// error is of what is no amount.
func exceeds(limit string, parts ...string) (total string, over bool, err error) {
	for _, s := range append([]string{limit}, parts...) {
		if _, ok := payment.Amount(s); !ok {
			return "", false, fmt.Errorf("%.40q is no amount", s)
		}
	}
	total = "0"
	for _, s := range parts {
		if total, err = payment.Add(total, s); err != nil {
			return "", true, nil //nolint:nilerr // a sum of amounts fails only by its length
		}
	}
	return total, payment.Cmp(total, limit) > 0, nil
}

func sum(spent, held, amount, total string) string {
	return fmt.Sprintf("spent %s + held %s + this %s = %s", spent, held, amount, total)
}

func (q *question) total(atomic string) string {
	if atomic == "" {
		return "more than can be added up"
	}
	return q.money(atomic)
}

// money shows atomic units of the asset that is asked about.
func (q *question) money(atomic string) string {
	if _, ok := payment.Amount(atomic); !ok {
		return "an unknown amount"
	}
	return plain.Clean(q.p.Display(q.a.Intent.Asset, atomic), plain.Detail)
}

// asked shows the amount that is asked about, as typed where it could not be read.
func (q *question) asked() string {
	if q.amountRead() {
		return q.money(q.a.Intent.Amount)
	}
	return plain.Quote(q.a.Intent.Typed, plain.Detail)
}

// name is the counterparty: what was typed, else the address or host that is named.
func (q *question) name() string {
	if len(q.a.Typed) > 0 {
		return payment.Display(q.a.Typed[0])
	}
	return payment.Display(cmp.Or(q.a.PayTo, q.a.Host, q.a.Counterparty))
}

func (q *question) who() string { return plain.Quote(q.name(), plain.Detail) }

func (q *question) host() string {
	switch {
	case q.a.Host != "":
		return shownName(q.a.Host)
	case len(q.a.Hosts) > 0:
		return shownName(q.a.Hosts[0])
	default:
		return q.who()
	}
}

func shownName(name string) string { return plain.Quote(payment.Display(name), plain.Detail) }

func several(n int, one, many string) string { return several64(int64(n), one, many) }

func several64(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + many
}

func hours(n int) string { return several(n, "hour", "hours") }

// last names a window.
func last(n int) string {
	if n == 1 {
		return "in the last hour"
	}
	return "in the last " + hours(n)
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
