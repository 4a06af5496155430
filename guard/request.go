package guard

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// maxText is the most bytes a text in a request may have (guard contract, section 1).
const maxText = 2048

// buyerTemplate is judged by always, so naming it asks for nothing more.
const buyerTemplate = "x402-buyer"

// The warnings a request alone can cause.
const (
	warnChecksum = "checksum_mismatch"
	warnNetwork  = "unknown_network"
)

// The rules about money that cannot be read (guard contract, section 1).
const (
	ruleUnknownAsset = "unknown_asset"
	ruleUnparseable  = "unparseable_amount"
	ruleMismatch     = "asset_mismatch"
)

// Read finds out everything about a request that needs no history. Its errors are
// E_INPUT: what was asked does not have the form of the contract's input table or
// contradicts itself, and there is no verdict about it. Money of the right form
// that the policy cannot read, zero among it, is no error but a rule, in
// Ask.MoneyRule: the verdict is then a review.
//
// What an offer gives and the request does not is filled in in Ask.Request, so that
// people are shown it: counterparty, pay_to, asset (its key), and the amount where
// its asset's decimals are known.
func (p *Policy) Read(r Request) (*Ask, error) {
	if err := checkTexts(r); err != nil {
		return nil, err
	}
	o, err := readOffer(r.Offer)
	if err != nil {
		return nil, err
	}
	a := &Ask{Request: r}
	if err := a.readNames(p, o); err != nil {
		return nil, err
	}
	if err := a.readMoney(p, o); err != nil {
		return nil, err
	}
	if r.Template != buyerTemplate {
		a.Intent.Template = r.Template
	}
	a.Intent.Resource = payment.Resource(r.Resource)
	for _, text := range []string{a.Request.Counterparty, a.Request.PayTo, tokenAddress(r.Asset), o.asset} {
		if !payment.ChecksumOK(text) {
			a.warn(warnChecksum)
		}
	}
	slices.Sort(a.Warnings)
	return a, nil
}

func (a *Ask) warn(code string) {
	if !slices.Contains(a.Warnings, code) {
		a.Warnings = append(a.Warnings, code)
	}
}

// refuse is the error of a request that has no verdict.
func refuse(hint, format string, args ...any) error {
	return errcode.New(errcode.Input, hint, format, args...)
}

// checkTexts holds the members of a request to what any text in it must be.
func checkTexts(r Request) error {
	for _, m := range []struct{ name, text string }{
		{"counterparty", r.Counterparty}, {"amount", r.Amount}, {"asset", r.Asset}, {"template", r.Template},
		{"resource", r.Resource}, {"pay_to", r.PayTo}, {"review_id", r.ReviewID},
	} {
		if err := checkText(m.name, m.text); err != nil {
			return err
		}
	}
	for _, m := range []struct{ name, text string }{{"counterparty", r.Counterparty}, {"pay_to", r.PayTo}} {
		if err := checkName(m.name, m.text); err != nil {
			return err
		}
	}
	if len(r.Offer) == 0 {
		const hint = "or pass the entry of the offer's accepts that would be paid, as offer"
		switch {
		case r.Counterparty == "":
			return refuse("give the seller's pay_to address or host; "+hint, `"counterparty" is needed where there is no offer`)
		case r.Amount == "":
			return refuse(`give it in display units, such as "0.05"; `+hint, `"amount" is needed where there is no offer`)
		}
	}
	if r.Amount == "" {
		return nil
	}
	if _, _, ok := cutDecimal(r.Amount); !ok {
		return refuse(amountHint, `"amount" %s is no amount`, plain.Quote(r.Amount, showText))
	}
	return nil
}

func checkText(name, text string) error {
	switch {
	case len(text) > maxText:
		return refuse("shorten it", "%q is %d bytes long, and no text may have more than %d", name, len(text), maxText)
	case !utf8.ValidString(text):
		return refuse("send it as well-formed Unicode", "%q holds half of a surrogate pair or bytes that are not UTF-8", name)
	}
	return nil
}

// checkName refuses what could be taken for somebody else: a padded address would
// be another payee to every list and every limit. And of a URL the host counts, so
// it needs one.
func checkName(name, text string) error {
	if strings.ContainsFunc(text, invisible) {
		return refuse("give the address or host alone, a host with such characters in its ASCII form",
			"%q %s holds white space or characters that cannot be seen", name, plain.Quote(text, showText))
	}
	if namesNetwork(text) {
		return refuse("give the address alone; the network belongs to the asset",
			"%q %s names a network before the address", name, plain.Quote(text, showText))
	}
	if strings.Contains(text, "://") && !isHost(payment.Name(text)) {
		return refuse("give the seller's address or host; what is bought goes into resource",
			"%q %s is a URL without a host", name, plain.Quote(text, showText))
	}
	return nil
}

// offer is one entry of an offer's accepts (guard contract, section 1). It is all
// empty where there is none.
type offer struct {
	payTo, amount, asset, network, scheme string

	key   string // asset key
	known bool   // the network
}

func readOffer(raw json.RawMessage) (offer, error) {
	if len(raw) == 0 {
		return offer{}, nil
	}
	var doc jsjson.Doc
	if err := doc.Parse(raw); err != nil {
		return offer{}, refuse("pass it exactly as received", `"offer" is not JSON: %v`, err)
	}
	root := doc.Root()
	if root.Kind() != jsjson.Object {
		return offer{}, refuse("pass the one entry of accepts that would be paid, as it was received", `"offer" must be an object, not %s`, valueShown(root))
	}
	seen := map[string]bool{}
	for name := range root.Members() {
		text := string(name.Text())
		if seen[text] {
			return offer{}, refuse("an offer that says one thing twice is not to be paid", `"offer" has the member %s twice`, plain.Quote(text, showText))
		}
		seen[text] = true
	}
	var o offer
	for _, m := range []struct {
		into  *string
		same  func(a, b string) bool
		names []string
	}{
		{&o.payTo, func(a, b string) bool { return payment.Payee(a) == payment.Payee(b) }, []string{"payTo", "pay_to"}},
		{&o.amount, func(a, b string) bool { return a == b }, []string{"amount", "maxAmountRequired"}},
		{&o.asset, nil, []string{"asset"}},
		{&o.network, nil, []string{"network"}},
		{&o.scheme, nil, []string{"scheme"}},
	} {
		for _, name := range m.names {
			text, given, err := offerText(root, name)
			switch {
			case err != nil:
				return offer{}, err
			case !given:
			case *m.into == "":
				*m.into = text
			case !m.same(*m.into, text):
				return offer{}, refuse("an offer that says two things is not to be paid", `"offer" says %s in %s and %s in %s`,
					plain.Quote(*m.into, showText), m.names[0], plain.Quote(text, showText), name)
			}
		}
		if *m.into == "" && m.into != &o.scheme {
			hint := "pass the entry exactly as received"
			if root.Get("accepts").Kind() == jsjson.Array {
				hint = "pass one entry of its accepts, not the whole offer"
			}
			return offer{}, refuse(hint, `"offer" has no %s`, strings.Join(m.names, " or "))
		}
	}
	if err := checkName("offer.payTo", o.payTo); err != nil {
		return offer{}, err
	}
	if !digits(o.amount) || len(o.amount) > 1 && o.amount[0] == '0' {
		return offer{}, refuse("amounts of offers are atomic units: digits, without sign, point, exponent or leading zero; one in another form is not to be paid",
			`"offer" has the amount %s`, plain.Quote(o.amount, showText))
	}
	o.key = payment.AssetKey(o.network, o.asset)
	_, o.known = payment.Network(o.network)
	return o, nil
}

// offerText is a text member of an offer.
func offerText(root jsjson.Node, name string) (text string, given bool, err error) {
	v, copies, variants := root.Find(name)
	if variants > 0 {
		return "", false, refuse("an offer in other letters than the protocol's is read in two ways, and not to be paid",
			`"offer" has a member that is %q in another letter case`, name)
	}
	if copies == 0 {
		return "", false, nil
	}
	if v.Kind() != jsjson.String {
		return "", false, refuse("pass the entry exactly as received; amounts in it are texts", `"offer" must have text in %s, not %s`, name, valueShown(v))
	}
	text = string(v.Text())
	if text == "" {
		return "", false, refuse("such an offer is not to be paid", `"offer" has nothing in %s`, name)
	}
	return text, true, checkText("offer."+name, text)
}

// readNames reads who is paid.
func (a *Ask) readNames(p *Policy, o offer) error {
	r := &a.Request
	a.Typed = typedNames(r.Counterparty)
	if o.payTo != "" {
		payee := payment.Payee(o.payTo)
		if r.PayTo != "" && payment.Payee(r.PayTo) != payee {
			return disagree("pay_to", r.PayTo, "pays", o.payTo)
		}
		// A host or the poster of a listing beside an offer says who sells, not who is
		// paid.
		if len(a.Typed) > 0 && !isHost(a.Typed[0]) && r.Listing == nil && a.Typed[0] != payee {
			return disagree("counterparty", r.Counterparty, "pays", o.payTo)
		}
		r.PayTo = o.payTo
		if r.Counterparty == "" {
			r.Counterparty = o.payTo
		}
	}
	a.PayTo = payment.Payee(r.PayTo)
	a.Host = resourceHost(r.Resource)
	a.Scheme = o.scheme

	// Of the readings of what was typed the likeliest makes the intent: two
	// spellings of one host are one.
	for _, name := range []string{a.PayTo, a.Host} {
		if name != "" {
			a.Intent.Names = append(a.Intent.Names, name)
		}
	}
	if len(a.Typed) > 0 {
		a.Intent.Names = append(a.Intent.Names, a.Typed[0])
	}
	slices.Sort(a.Intent.Names)
	a.Intent.Names = slices.Compact(a.Intent.Names)

	a.Names = p.Expand(append(slices.Clone(a.Typed), a.Intent.Names...)...)
	for _, name := range a.Names {
		if isHost(name) && name != a.Host {
			a.Hosts = append(a.Hosts, name)
		}
	}
	return nil
}

// disagree is the error of a request that says something else than its offer.
func disagree(member, said, verb, offered string) error {
	return refuse("leave it out where there is an offer, or ask about the offer it belongs to",
		"%q is %s, but the offer %s %s", member, plain.Quote(said, showText), verb, plain.Quote(offered, showText))
}

// resourceHost is the name of the host of a resource that is a URL, "" for the id
// of a tool.
func resourceHost(resource string) string {
	scheme, _, url := strings.Cut(payment.Resource(resource), "://")
	if !url || scheme == "" || scheme == "mcp" || scheme[0] < 'a' || strings.ContainsFunc(scheme, notOfScheme) {
		return ""
	}
	if name := payment.Name(resource); isHost(name) {
		return name
	}
	return ""
}

func notOfScheme(c rune) bool {
	return (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("+-.", c)
}

// tokenAddress is the part of a typed asset that may have a checksum.
func tokenAddress(asset string) string {
	if _, address, ok := cutKey(asset); ok {
		return address
	}
	return asset
}

// readMoney reads what is paid.
func (a *Ask) readMoney(p *Policy, o offer) error {
	if o.key != "" {
		return a.readOffered(p, o)
	}
	key, why := p.resolve(a.Request.Asset)
	if why != "" {
		network, _, typed := cutKey(a.Request.Asset)
		if typed {
			a.network(network)
		}
		a.unread(ruleUnknownAsset, why, shortDecimal(a.Request.Amount)+" "+typedAsset(a.Request.Asset))
		return nil
	}
	a.asset(p, key)
	atomic, why := scale(a.Request.Amount, a.Decimals)
	if why != "" {
		why = plain.Quote(a.Request.Amount, showText) + " " + p.ofAsset(key, why)
	}
	a.settle(p, atomic, why, shortDecimal(a.Request.Amount)+" "+key)
	return nil
}

// readOffered reads what an offer asks for, which is exact whatever the policy
// knows.
func (a *Ask) readOffered(p *Policy, o offer) error {
	if !p.sameAsset(a.Request.Asset, o) {
		return disagree("asset", a.Request.Asset, "asks for", o.key)
	}
	if a.Request.Asset == "" {
		a.Request.Asset = o.key
	}
	a.network(o.network)
	if _, ok := p.Assets[o.key]; !ok {
		a.unread(ruleUnknownAsset, "the asset "+plain.Quote(o.key, plain.Detail)+" of the offer is not in the policy's assets",
			"atomic "+o.amount+" "+o.key)
		return nil
	}
	a.asset(p, o.key)
	atomic, ok := payment.Amount(o.amount)
	why := ""
	if !ok {
		why = "the amount of the offer " + tooLarge
	}
	if typed := a.Request.Amount; typed != "" {
		own, wrong := scale(typed, a.Decimals)
		if wrong != "" || own != o.amount {
			return disagree("amount", typed, "asks for", p.Display(o.key, o.amount))
		}
	} else if ok {
		a.Request.Amount = p.Units(o.key, atomic)
	}
	a.settle(p, atomic, why, "atomic "+o.amount+" "+o.key)
	return nil
}

// sameAsset reports whether a typed asset may be the offer's. A symbol is, where
// the offer's asset bears it: the offer says which one is meant. Text that names
// nothing the policy knows contradicts only what the policy does know.
func (p *Policy) sameAsset(typed string, o offer) bool {
	entry, registered := p.Assets[o.key]
	switch {
	case typed == "":
		return true
	case strings.Contains(typed, "/"):
		return canonicalKey(typed) == o.key
	case canonicalAddress(typed) == canonicalAddress(o.asset):
		return true
	case registered:
		return entry.Symbol == typed
	}
	_, address := payment.Address(typed)
	return !address && len(p.bearers(typed)) == 0
}

// network notes the network of the asset.
func (a *Ask) network(word string) {
	id, known := payment.Network(word)
	a.Network = id
	if !known {
		a.warn(warnNetwork)
	}
}

// asset notes an asset of the registry. Whoever registered it knows its network.
func (a *Ask) asset(p *Policy, key string) {
	entry := p.Assets[key]
	a.Symbol, a.Decimals = entry.Symbol, entry.Decimals
	a.Network = networkOf(key)
	a.Intent.Asset = key
}

// settle ends the reading of an amount of a registered asset: why is "" where it
// could be read. typed is what stands for it where it could not.
func (a *Ask) settle(p *Policy, atomic, why, typed string) {
	key := a.Intent.Asset
	if why == "" {
		typed = shortDecimal(p.Units(key, atomic)) + " " + key
	}
	switch _, _, limited := p.CapOf(key); {
	case !limited:
		a.unread(ruleMismatch, "limits are in "+p.named(p.DefaultAsset)+"; "+p.named(key)+" has none of its own in assetPolicies", typed)
	case why != "":
		a.unread(ruleUnparseable, why, typed)
	case atomic == "0":
		a.unread(ruleUnparseable, "the amount is zero", typed)
	default:
		a.Intent.Amount = atomic
	}
}

// named is an asset for people who must tell it from others of its symbol.
func (p *Policy) named(key string) string {
	if s := p.Assets[key].Symbol; s != "" {
		return s + " (" + plain.Clean(key, plain.Detail) + ")"
	}
	return plain.Clean(key, plain.Detail)
}

// unread notes why there is no amount. typed keeps two such requests apart.
func (a *Ask) unread(rule, detail, typed string) {
	a.MoneyRule, a.MoneyDetail = rule, detail
	a.Intent.Typed = typed
}

// typedAsset is the one spelling of an asset the policy does not know.
func typedAsset(text string) string {
	if key := canonicalKey(text); key != "" {
		return key
	}
	return canonicalAddress(text)
}
