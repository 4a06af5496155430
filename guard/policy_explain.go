package guard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// Setting is one member of a policy as `policy check` shows it.
type Setting struct {
	Path     string   // JSON path in the file, or where it would stand there
	Value    string   // as it is read; clean text
	Default  bool     // the file says nothing about it
	Means    string   // one sentence
	Warnings []string // what a person should look at again; not faults
}

// Explain tells what the policy says, member by member in the order of the guard
// contract, section 2, and which of it the file did not say.
func (p *Policy) Explain() []Setting {
	e := explainer{p: p}
	add := e.add

	add("allowlist", listed(p.Allowlist), allowMeans(p.Allowlist))
	add("denylist", listed(bare(p.Denylist)), "every payment in which one of these names occurs is blocked")
	e.cap("$.perCounterpartyLimit", p.PerCounterparty, p.DefaultAsset)
	add("maxOpenPartialPerCounterparty", strconv.Itoa(p.MaxOpenPartial), fmt.Sprintf("a payment is a review while more than %d earlier ones with the counterparty have no known outcome", p.MaxOpenPartial))
	add("reviewAbove", p.Display(p.DefaultAsset, p.ReviewAboveAtomic), "a larger single payment is a review")
	add("defaultAsset", plain.Clean(p.DefaultAsset, plain.Detail), "the asset of a request that names none is "+p.called(p.DefaultAsset))
	e.assets()
	e.assetPolicies()
	e.limits()
	add("stickyRejectHours", strconv.Itoa(p.StickyRejectHours), "a payment that a person rejected is blocked for "+inHours(p.StickyRejectHours))
	add("reviewExpiryHours", strconv.Itoa(p.ReviewExpiryHours), "a review nobody decides expires after "+inHours(p.ReviewExpiryHours)+", as an approval does")
	add("maxPendingReviews", strconv.Itoa(p.MaxPendingReviews), "no further review is opened for one that has as many pending")
	add("priceDriftRatio", p.PriceDriftRatio, "a payment of "+p.PriceDriftRatio+" times the usual price of the resource, or more, is a review")
	add("trustDefiniteFailures", strconv.FormatBool(p.TrustDefiniteFailures), either(p.TrustDefiniteFailures,
		"a payment that was declined by name counts neither as open nor as spent", "a payment that failed counts as open and as spent until a person says otherwise"))
	add("trustSettledAmounts", strconv.FormatBool(p.TrustSettledAmounts), either(p.TrustSettledAmounts,
		"a seller is believed that says it took less than it was allowed to (scheme upto)", "what was authorised counts as spent, whatever the seller says it took"))
	add("blindOperations", p.BlindOperations, either(p.BlindOperations == "review",
		"payments whose outcome could never be seen count as open", "payments whose outcome could never be seen do not count as open"))
	add("holds", p.Holds, either(p.Holds == "always", "every allow reserves its amount", "an allow reserves its amount when it is asked to"))
	add("holdSeconds", strconv.Itoa(p.HoldSeconds), fmt.Sprintf("a reservation ends after %d s unless its payment is seen before", p.HoldSeconds))
	add("logAllows", strconv.FormatBool(p.LogAllows), either(p.LogAllows, "every allow is in the decisions log", "an allow without a hold leaves no line in the decisions log"))
	add("damage", p.Damage, either(p.Damage == "review",
		"while a run is damaged and nobody has acknowledged it every payment is a review", "damaged runs are passed over"))
	e.operators()
	url := "none"
	if p.ReviewURL != "" {
		url = plain.Clean(p.ReviewURL, plain.Detail)
	}
	add("reviewUrl", url, either(p.ReviewURL != "", "agents are told to send people there to decide a review", "agents are told the command that shows a review"))
	e.aliases()
	e.approvals()
	add("market.minTrades", strconv.Itoa(p.MinTrades), either(p.MinTrades > 0,
		"a payment for a listing of somebody with fewer completed trades is a review", "how many trades the poster of a listing has completed is not looked at"))
	return e.all
}

type explainer struct {
	p   *Policy
	all []Setting
}

func (e *explainer) add(name, value, means string) { e.at("$."+name, value, means) }

// at adds a setting with the notes that were made about it, or about what lies
// inside it and is not shown by itself.
func (e *explainer) at(path, value, means string) {
	s := Setting{Path: path, Value: value, Default: !e.p.given[path], Means: means}
	for _, noted := range slices.Sorted(maps.Keys(e.p.notes)) {
		rest, inside := strings.CutPrefix(noted, path)
		switch {
		case !inside:
		case rest == "":
			s.Warnings = append(s.Warnings, e.p.notes[noted])
		case rest[0] == '[' || rest[0] == '.':
			s.Warnings = append(s.Warnings, noted+": "+e.p.notes[noted])
		}
	}
	e.all = append(e.all, s)
}

func (e *explainer) cap(path string, c Cap, asset string) {
	e.at(path+".amount", e.p.Display(asset, c.Atomic), "more than that to one counterparty within the window is a review")
	e.at(path+".windowHours", strconv.Itoa(c.WindowHours), "the window is the last "+inHours(c.WindowHours))
}

func (e *explainer) assets() {
	for _, key := range e.p.keys() {
		a := e.p.Assets[key]
		value := strconv.Itoa(a.Decimals) + " decimals"
		if a.Symbol != "" {
			value = a.Symbol + ", " + value
		}
		path := e.p.filed("assets", key)
		e.at(path, value, "amounts in "+e.p.called(key)+" can be read")
	}
}

func (e *explainer) assetPolicies() {
	keys := slices.Sorted(maps.Keys(e.p.AssetPolicies))
	for _, key := range keys {
		own := e.p.AssetPolicies[key]
		path := e.p.filed("assetPolicies", key)
		e.cap(path+".perCounterpartyLimit", own.PerCounterparty, key)
		e.at(path+".reviewAbove", e.p.Display(key, own.ReviewAboveAtomic), "a larger single payment in "+e.p.called(key)+" is a review")
	}
	if len(keys) == 0 {
		e.add("assetPolicies", "none", "a payment in any asset but the default one is a review")
	}
}

// filed is where an entry stands in the file, or would stand.
func (p *Policy) filed(list, name string) string {
	if path, ok := p.where[list+" "+name]; ok {
		return path
	}
	return "$." + list + "[" + plain.Quote(name, plain.Detail) + "]"
}

func (e *explainer) limits() {
	for i, l := range e.p.Limits {
		e.at("$.limits["+strconv.Itoa(i)+"]", l.Name, e.p.limitMeans(l))
	}
	if len(e.p.Limits) == 0 {
		e.add("limits", "none", "beside perCounterpartyLimit nothing limits what is spent in all")
	}
}

func (p *Policy) limitMeans(l Limit) string {
	var most []string
	if l.Amount != "" {
		most = append(most, p.Display(l.Asset, l.Atomic))
	}
	if l.Count > 0 {
		most = append(most, several(int(l.Count), "payment", "payments"))
	}
	scope := map[string]string{
		"counterparty": "to one counterparty", "host": "at one host", "resource": "for one resource", "asset": "in all", "total": "in all",
	}[l.Scope]
	if l.Asset != "" && l.Count > 0 {
		scope = "in " + p.called(l.Asset) + " " + scope
	}
	verb := map[string]string{"review": "is a review", "block": "is blocked"}[l.Action]
	if l.Mode == "shadow" {
		verb += " in name only: shadow mode reports it and decides nothing"
	}
	return fmt.Sprintf("more than %s %s within %s %s", strings.Join(most, ", or more than "), scope, inHours(l.WindowHours), verb)
}

func (e *explainer) operators() {
	for i, o := range e.p.Operators {
		means := "what this key signs may loosen"
		if !o.Until.IsZero() {
			means += " if it is dated before " + moment(o.Until)
		}
		e.at("$.operators["+strconv.Itoa(i)+"]", o.Name+", "+o.PublicKey, means)
	}
	if len(e.p.Operators) == 0 {
		e.add("operators", "none", "whoever can run settlewatch can approve, an agent among them")
	}
}

func (e *explainer) aliases() {
	groups := e.p.groups()
	for _, group := range groups {
		e.at(e.p.filed("counterpartyAliases", group[0]), listed(bare(group)), "these names are one counterparty")
	}
	if len(groups) == 0 {
		e.add("counterpartyAliases", "none", "every name is a counterparty of its own")
	}
}

func (e *explainer) approvals() {
	g := e.p.SpendGate
	if g == nil {
		e.add("spendGate", "none", "no spend gate is asked")
	} else {
		text, err := canon.Marshal(g)
		if err != nil {
			text = []byte("?")
		}
		e.add("spendGate", plain.Clean(string(text), plain.Explanation), "every payment is put through this gate as well, and the stricter answer counts")
	}
	for _, name := range slices.Sorted(maps.Keys(e.p.ToolPolicies)) {
		e.at(e.p.filed("toolPolicies", name), plain.Clean(string(e.p.ToolPolicies[name]), plain.Explanation), "calls of the listed tools can be approved by a person, one by one")
		if last := &e.all[len(e.all)-1]; len(e.p.Operators) == 0 {
			last.Warnings = append(last.Warnings, "no operator is named, so nobody can approve a call: a receipt is signed with an operator's key")
		}
	}
	if len(e.p.ToolPolicies) == 0 {
		e.add("toolPolicies", "none", "no tool call can be approved")
	}
}

func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

func inHours(n int) string { return several(n, "hour", "hours") }

// listed are names for people, as a list in the file may have them.
func listed(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	clean := make([]string, len(names))
	for i, name := range names {
		clean[i] = plain.Clean(name, plain.Detail)
	}
	return strings.Join(clean, ", ")
}

func allowMeans(names []string) string {
	if len(names) == 0 {
		return "an empty list lists everybody"
	}
	return "a payment to anybody else is a review"
}

// starterTotal is what the starter policy lets be spent in a day.
const starterTotal = "10.00"

// StarterPolicy is the policy file that install writes for a trace root: the
// defaults, a limit of what may be spent in all in a day, and comments. dir is the
// absolute path of the root.
func StarterPolicy(dir string) []byte {
	type limit struct {
		Comment string `json:"$comment"`
		limitFile
	}
	p := DefaultPolicy()
	amount := func(asset, atomic string) string { return p.Units(asset, atomic) }
	starter := struct {
		Comment              []string            `json:"$comment"`
		Allowlist            []string            `json:"allowlist"`
		Denylist             []string            `json:"denylist"`
		PerCounterpartyLimit capFile             `json:"perCounterpartyLimit"`
		ReviewAbove          string              `json:"reviewAbove"`
		MaxOpenPartial       int                 `json:"maxOpenPartialPerCounterparty"`
		DefaultAsset         string              `json:"defaultAsset"`
		Limits               []limit             `json:"limits"`
		Aliases              map[string][]string `json:"counterpartyAliases"`
	}{
		Comment: []string{
			"The policy by which settlewatch judges payments of the agents that are recorded in " + dir + ".",
			"`settlewatch policy show --guard-config FILE` says what every member means, those that are not written here too.",
			"It is read when a server starts: start it again after a change. Keep the file where no agent can write.",
			"Amounts are texts in the default asset, USDC on Base. An empty allowlist lists everybody.",
			"In allowlist, denylist and counterpartyAliases stand addresses and hosts.",
		},
		Allowlist: []string{}, Denylist: []string{},
		PerCounterpartyLimit: capFile{p.PerCounterparty.Amount, p.PerCounterparty.WindowHours},
		ReviewAbove:          amount(p.DefaultAsset, p.ReviewAboveAtomic),
		MaxOpenPartial:       p.MaxOpenPartial,
		DefaultAsset:         p.DefaultAsset,
		Limits: []limit{{
			"What all agents together may spend in any 24 hours. With \"block\" for \"review\" not even a person can let more through.",
			limitFile{Name: "daily_total", Scope: "total", Asset: p.DefaultAsset, Amount: starterTotal, WindowHours: 24, Action: "review", Mode: "enforce"},
		}},
		Aliases: map[string][]string{},
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(starter); err != nil {
		panic("guard: the starter policy cannot be written: " + err.Error())
	}
	return out.Bytes()
}
