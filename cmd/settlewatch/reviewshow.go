package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// marks say where a fact comes from (guard contract, section 4): a person must
// not take for evidence what the agent has typed.
var marks = map[string]string{
	"agent":  "[typed by the agent]",
	"trace":  "[seen in the trace]",
	"policy": "[policy]",
	"market": "[said by the market]",
	"log":    "[from the decisions log]",
}

func mark(origin string) string {
	if m, ok := marks[origin]; ok {
		return m
	}
	return "[" + plain.Clean(origin, plain.Detail) + "]"
}

// payee is who a review is about, read from what was typed and held to the names
// the guard counts with.
type payee struct {
	to    string   // the account to be paid, "" when none was named
	hosts []string // in ASCII
	other []string // further names the guard counts with
	typed string   // the counterparty as it was typed, where that says something else
}

func payeeOf(v *guard.ReviewView) payee {
	var p payee
	known := func(name string) bool { return name != "" && slices.Contains(v.Names, name) }
	shown := map[string]bool{}
	host := func(text string) {
		// A host as such: of some text, an account of that name is read as well.
		if name := payment.Name(text); known(name) && !account(name) && !shown[name] {
			shown[name] = true
			p.hosts = append(p.hosts, payment.Display(name))
		}
	}
	if v.PayTo != "" {
		p.to, shown[v.PayTo] = payment.Display(v.PayTo), true
	}
	if name := payment.Name(v.Counterparty); known(name) && account(name) && p.to == "" {
		p.to, shown[name] = payment.Display(name), true
	}
	host(v.Counterparty)
	host(v.Resource)
	for _, name := range v.Names {
		if !shown[name] {
			p.other = append(p.other, payment.Display(name))
		}
	}
	if typed := v.Counterparty; typed != "" && !strings.EqualFold(typed, p.to) && !slices.Contains(p.hosts, typed) {
		p.typed = typed
	}
	return p
}

// account reports whether a canonical name is an account and no host.
func account(name string) bool {
	_, address := payment.Address(name)
	// What is shown of an account in other words has lost its prefix.
	return address || payment.Payee(payment.Display(name)) == name
}

// typed is a text of an agent as it is shown beside marks: one that could be
// taken for a mark stands in quotes.
func typed(text string) string {
	if strings.ContainsAny(text, "[]\"") {
		return plain.Quote(text, whole)
	}
	return text
}

// fact is what a review was opened with under a name.
func fact(v *guard.ReviewView, name string) (decision.Fact, bool) {
	i := slices.IndexFunc(v.Facts, func(f decision.Fact) bool { return f.Name == name })
	if i < 0 {
		return decision.Fact{}, false
	}
	return v.Facts[i], true
}

var decimal = regexp.MustCompile(`^(0|[1-9][0-9]*)(\.[0-9]+)?$`)

// paid is how much a review is about. What the guard could not read is said to
// be so: a symbol that an agent has typed names no asset (guard contract, section
// 3).
func paid(v *guard.ReviewView) (amount, key string) {
	f, known := fact(v, "asset")
	if key = f.Value; !known && strings.Contains(v.Asset, "/") {
		key = v.Asset
	}
	amount = typed(v.Amount)
	switch {
	case v.Amount == "":
		amount = "an amount that was not named,"
	case !decimal.MatchString(v.Amount):
		amount = plain.Quote(v.Amount, whole) + ", which could not be read as an amount,"
	}
	switch {
	case key != "" && v.Asset != "" && v.Asset != key:
		amount += " " + typed(v.Asset)
	case key != "":
		amount += " of " + typed(key)
	case v.Asset != "":
		amount += " of " + plain.Quote(v.Asset, whole) + ", an asset that is not known here"
	default:
		amount += " of an asset that was not named"
	}
	return strings.TrimSuffix(amount, ","), key
}

// money is an amount of an asset key for a person, by symbol where the policy has
// one for it: a symbol is taken from nowhere else (guard contract, section 3). The
// same symbol stands for play money on a test network.
func money(p *guard.Policy, amount, asset string) string {
	if known := p.Assets[asset]; known.Symbol != "" {
		return amount + " " + known.Symbol + onNetwork(asset)
	}
	return amount + " of " + asset
}

// onNetwork names the network of an asset key, for the end of an amount.
func onNetwork(asset string) string {
	id, _, ok := strings.Cut(asset, "/")
	if !ok {
		return ""
	}
	return " on " + network(id)
}

// The networks people know by a name, and whether their money is worth nothing.
var networkNames = map[string]string{
	"eip155:1":        "Ethereum",
	"eip155:10":       "Optimism",
	"eip155:56":       "BNB Smart Chain",
	"eip155:137":      "Polygon",
	"eip155:8453":     "Base",
	"eip155:42161":    "Arbitrum",
	"eip155:43114":    "Avalanche",
	"eip155:43113":    "Avalanche Fuji, a test network",
	"eip155:80002":    "Polygon Amoy, a test network",
	"eip155:84532":    "Base Sepolia, a test network",
	"eip155:11155111": "Sepolia, a test network",
	"solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1": "Solana Devnet, a test network",
}

// network names a network in CAIP-2 and in the word people use.
func network(id string) string {
	if solana, _ := payment.Network("solana"); id == solana {
		return id + " (Solana)"
	}
	if name, ok := networkNames[id]; ok {
		return id + " (" + name + ")"
	}
	return typed(id)
}

// moment is a time for a person, to the second. A clock on the wall and one in a
// log are not to be confused, so the zone is named.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// away says how far a time is from now: "in 3 h 20 min", "5 min ago".
func away(t, now time.Time) string {
	d, form := t.Sub(now), "in %s"
	if d < 0 {
		d, form = -d, "%s ago"
	}
	minutes := int64(d / time.Minute)
	var text string
	switch hours := minutes / 60; {
	case minutes == 0:
		text = "less than a minute"
	case hours == 0:
		text = fmt.Sprintf("%d min", minutes)
	case hours < 48:
		text = fmt.Sprintf("%d h %d min", hours, minutes%60)
	default:
		text = fmt.Sprintf("%d days", hours/24)
	}
	return fmt.Sprintf(form, text)
}

// statusStyle colours a review by what may be done with it.
func statusStyle(status string) string {
	return map[string]string{"pending": yellow, "approved": green, "rejected": red}[status]
}

// warnings are the codes of a verdict in words (guard contract, section 1).
var warningWords = map[string]string{
	"checksum_mismatch": "the address is in mixed case and its checksum is wrong: a letter of it may be mistyped",
	"unknown_network":   "a network is not known by name, so what lies on it is counted by itself",
	"future_time":       "a payment is dated in the future: a clock is wrong somewhere",
	"unsigned_reviews":  "no operator key is configured, so whoever runs programs as this user, the agent too, could approve this: settlewatch operator init",
}

func warningText(code string) string {
	if text, ok := warningWords[code]; ok {
		return text
	}
	return plain.Clean(code, plain.Detail)
}

// operationIn names an operation as a command takes it.
func operationIn(r decision.Ref) string {
	if r.Operation == nil {
		return "run " + plain.Clean(r.Run, plain.Detail) + ", operation null"
	}
	return "run " + plain.Clean(r.Run, plain.Detail) + ", operation " + operationName([]byte(*r.Operation), false)
}

// factLabels are shorter words for facts whose names do not fit a phone.
var factLabels = map[string]string{
	"operations": "earlier", "paid_elsewhere": "elsewhere", "usual_price": "usual", "per_counterparty_limit": "limit", "review_above": "ask above",
}

func factLabel(name string) string {
	if label, ok := factLabels[name]; ok {
		return label
	}
	return strings.ReplaceAll(name, "_", " ")
}

// shownReview is a review on its way to the screen.
type shownReview struct {
	*guard.ReviewView
	o  *guarded
	id string // what the commands take: shortened where that names it
	// whole: every piece of evidence, and at the end once more what is decided,
	// so that the last lines of a small screen say it. A list holds no more than
	// three pieces a rule.
	whole bool
}

// showReview shows a review in full: who is paid, how much, why a person is
// asked, and the commands that decide.
func (a *app) showReview(r shownReview) {
	a.put(bold, "review ", r.ID)
	if r.Call != nil {
		a.showCall(r)
		return
	}
	a.showSheet(reviewSheet(r.ReviewView, a.env.now()))
	a.showReasons("why a person is asked:", r.Reasons, r.whole)
	for _, code := range r.Warnings {
		a.put(yellow, "! ", warningText(code))
	}
	amount, _ := paid(r.ReviewView)
	a.showChoices(r, payeeOf(r.ReviewView), amount)
}

// noAddress says of a payment to a host where its money goes.
const noAddress = "no address was named: whatever address the host asks for"

// reviewSheet is every fact of a review but the reasons, the decisive ones first.
func reviewSheet(r *guard.ReviewView, now time.Time) *sheet {
	p := payeeOf(r)
	amount, _ := paid(r)
	s := &sheet{}
	s.styled(statusStyle(r.Status), "status", stateOf(r, now), "")
	s.styled(bold, "pay", amount, originOf(r, "amount"))
	if p.to != "" {
		from := "pay_to"
		if r.PayTo == "" {
			from = "counterparty"
		}
		s.styled(bold, "to", p.to, originOf(r, from))
	} else {
		s.styled(yellow, "to", noAddress, "")
	}
	for _, host := range p.hosts {
		s.styled(bold, "host", host, originOf(r, "counterparty"))
	}
	s.rows = append(s.rows, termRows(r)...)
	s.row("asked by", askerOf(r), "")
	s.row("asked", moment(r.CreatedAt)+", "+away(r.CreatedAt, now), "")
	s.rows = append(s.rows, factRows(r)...)
	s.outcome(r)
	return s
}

// originOf is where a fact of a review comes from: who asked has typed it, unless the
// log knows better.
func originOf(r *guard.ReviewView, name string) string {
	if f, ok := fact(r, name); ok {
		return f.Origin
	}
	return "agent"
}

// termRows are what a payment is asked for on, besides amount and payee.
func termRows(r *guard.ReviewView) []sheetRow {
	p := payeeOf(r)
	_, key := paid(r)
	var s sheet
	if p.typed != "" {
		s.row("typed as", plain.Quote(p.typed, whole), "agent")
	}
	if r.Resource != "" {
		s.row("resource", typed(r.Resource), originOf(r, "resource"))
	}
	if r.Network != "" {
		s.row("network", network(r.Network), originOf(r, "network"))
	}
	if key != "" {
		s.row("asset", typed(key), originOf(r, "asset"))
	}
	if len(p.other) > 0 {
		s.row("counts as", strings.Join(p.other, ", "), "policy")
	}
	if r.Template != "" {
		s.row("template", typed(r.Template), "agent")
	}
	return s.rows
}

// factRows are the facts a review was opened with that no other row has.
func factRows(r *guard.ReviewView) []sheetRow {
	var s sheet
	for _, f := range r.Facts {
		switch f.Name {
		case "amount", "asset", "counterparty", "host", "network", "pay_to", "resource", "template":
		default:
			s.row(factLabel(f.Name), typed(f.Value), f.Origin)
		}
	}
	return s.rows
}

// askerOf says who asked.
func askerOf(r *guard.ReviewView) string {
	if r.AskedBy != "" {
		return plain.Quote(r.AskedBy, whole)
	}
	return "somebody on this machine (stdio or the command line)"
}

// outcome adds what has become of a review.
func (s *sheet) outcome(r *guard.ReviewView) {
	if !r.DecidedAt.IsZero() {
		s.row("decided", moment(r.DecidedAt)+" by "+dash(r.DecidedBy), "")
	}
	if r.Note != "" {
		s.row("note", plain.Quote(r.Note, whole), "")
	}
	if r.Used != nil {
		s.row("used by", usedBy(r.Used), "")
	}
}

// stateOf is the status of a review in words.
func stateOf(r *guard.ReviewView, now time.Time) string {
	what, unused := "payment", ""
	if r.Call != nil {
		what, unused = "call", ", or it was not used"
	}
	switch r.Status {
	case "pending":
		return r.Status + ", expires " + moment(r.ExpiresAt) + ", " + away(r.ExpiresAt, now)
	case "approved":
		return r.Status + " for one " + what + " until " + moment(r.ExpiresAt) + ", " + away(r.ExpiresAt, now)
	case "expired":
		return r.Status + " on " + moment(r.ExpiresAt) + ": nobody decided" + unused + ", so it is no permission"
	}
	return r.Status
}

func usedBy(u *decision.UsedBy) string {
	if u.HoldID != "" {
		return "hold " + u.HoldID
	}
	if u.ReceiptID != "" {
		return "the call on receipt " + u.ReceiptID
	}
	return "the payment in " + operationIn(decision.Ref{Run: u.Run, Operation: u.Operation})
}

// evidenceShown bounds the evidence of a rule in a list.
const evidenceShown = 3

// showReasons shows each rule that fired with its detail and evidence.
func (a *app) showReasons(title string, reasons []decision.Reason, all bool) {
	if title != "" {
		a.say("%s", title)
	}
	for _, r := range reasons {
		a.put("", "- ", r.Rule+": "+r.Detail)
		shown := r.Evidence
		if !all {
			shown = shown[:min(len(shown), evidenceShown)]
		}
		for _, ref := range shown {
			a.put("", "  in ", operationIn(ref))
		}
		if more := max(r.Total, len(r.Evidence)) - len(shown); more > 0 && len(r.Evidence) > 0 {
			a.put("", "  ", "and "+plain.Number(int64(more))+" more")
		}
	}
}

// resolvable are the rules whose evidence a person may close by saying what
// became of it.
var resolvable = []string{"open_partial", "duplicate_purchase"}

// showChoices gives the commands that decide, whole and each on a line of its
// own, so that they can be copied.
func (a *app) showChoices(r shownReview, p payee, amount string) {
	if r.Status == "pending" {
		for _, reason := range r.Reasons {
			if slices.Contains(resolvable, reason.Rule) && len(reason.Evidence) > 0 {
				a.put("", "", "if you know that an operation above was settled, or failed:")
				a.pasteable(resolveCommand(r.o, reason.Evidence[0]))
				break
			}
		}
		if r.whole {
			a.put(bold, "", "to approve is to let this be paid once:")
			a.put(bold, "  ", amount)
			if r.Network != "" {
				a.put(bold, "  on ", network(r.Network))
			}
			if p.to != "" {
				a.put(bold, "  to ", p.to)
			} else {
				a.put(bold, "  to ", "whatever address the host asks for")
			}
			if len(p.hosts) > 0 {
				a.put(bold, "  at ", strings.Join(p.hosts, ", "))
			}
		}
	}
	a.showVerbs(r)
}

// showVerbs gives the commands that decide a review as it stands.
func (a *app) showVerbs(r shownReview) {
	command := func(verb string) { a.pasteable(r.o.again("review " + verb + " " + shellWord(r.id))) }
	switch r.Status {
	case "pending":
		command("approve")
		command("reject")
	case "approved":
		a.put("", "", "to take it back, while it is unused:")
		command("revoke")
	case "rejected":
		a.put("", "", "to ask again, under the same id:")
		command("reopen")
	}
}

// resolveCommand closes an operation, with the words a person has to fill in.
func resolveCommand(o *guarded, r decision.Ref) string {
	command := "resolve " + shellWord(r.Run)
	if r.Operation == nil {
		command += " --null-operation"
	} else {
		command += " " + shellWord(*r.Operation)
	}
	return o.again(command) + ` --as settled --note "..."`
}
