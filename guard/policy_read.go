package guard

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// PolicyError is every fault of a policy file, in the order of the file. Errors of
// [ParsePolicy] wrap one.
type PolicyError struct{ Faults []PolicyFault }

// PolicyFault is one thing a policy file must not say.
type PolicyFault struct {
	Path    string // JSON path: $.limits[2].amount
	Problem string // what is wrong there, lower case, no full stop
	Hint    string // what to write instead; may be empty
}

// Error has a line for each fault.
func (e *PolicyError) Error() string {
	var b strings.Builder
	for i, f := range e.Faults {
		if i == maxFaults {
			fmt.Fprintf(&b, "\nand %d more", len(e.Faults)-i)
			break
		}
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(f.Path + ": " + f.Problem)
		// The hint of a lone fault is the hint of the whole error.
		if f.Hint != "" && len(e.Faults) > 1 {
			b.WriteString(" (" + f.Hint + ")")
		}
	}
	return b.String()
}

const (
	maxFaults = 100 // that are spelt out
	maxName   = 64  // bytes of a name for people: a limit's, an operator's, a symbol
	maxHours  = 1_000_000
	maxSecond = 366 * 24 * 60 * 60
	maxWhole  = 1_000_000_000
	showText  = 80 // characters of a value in a message
)

// commentKey may stand in every object of the file, as text or a list of texts.
// JSON has no comments, and a member that a reader of JSON Schema knows as one
// surprises least.
const commentKey = "$comment"

// ParsePolicy reads a policy file. It is strict: whatever it does not understand,
// down to the case of a letter, is a fault, since a limit that is misspelt limits
// nothing (guard contract, section 2). The error is an E_POLICY around a
// [*PolicyError] with every fault, and its first line is the first.
func ParsePolicy(src []byte) (*Policy, error) {
	r := policyReader{p: DefaultPolicy(), order: map[string]int{}}
	var doc jsjson.Doc
	if why, hint := parseStrict(&doc, src); why != "" {
		r.fault("$", hint, "%s", why)
		return nil, r.err()
	}
	r.number("$", doc.Root(), 0)
	r.policy(doc.Root())
	if err := r.err(); err != nil {
		return nil, err
	}
	return r.p, nil
}

// parseStrict parses a file a person wrote, and says in a person's words why it
// cannot: the first fault of many is the encoding or a comment.
func parseStrict(doc *jsjson.Doc, src []byte) (why, hint string) {
	switch {
	case bytes.HasPrefix(src, []byte("\xef\xbb\xbf")):
		return "the file begins with a byte order mark", "save it as UTF-8 without one (without BOM)"
	case bytes.HasPrefix(src, []byte("\xff\xfe")), bytes.HasPrefix(src, []byte("\xfe\xff")):
		return "the file is UTF-16", "save it as UTF-8"
	case len(bytes.TrimSpace(src)) == 0:
		return "the file is empty", "{} is a policy with every default"
	case !utf8.Valid(src):
		line, column := place(src, firstIllFormed(src))
		return fmt.Sprintf("line %d, column %d: not UTF-8", line, column), "save it as UTF-8"
	}
	err := doc.Parse(src)
	if err == nil {
		return "", ""
	}
	var at *jsjson.SyntaxError
	if !errors.As(err, &at) {
		return err.Error(), ""
	}
	rest, before := src[at.Offset:], bytes.TrimRight(src[:at.Offset], " \t\r\n")
	switch {
	case bytes.HasPrefix(rest, []byte("//")), bytes.HasPrefix(rest, []byte("/*")), bytes.HasPrefix(rest, []byte("#")):
		hint = `JSON has no comments; a member "` + commentKey + `" with text may stand in any object`
	case len(rest) > 0 && (rest[0] == '}' || rest[0] == ']') && bytes.HasSuffix(before, []byte(",")):
		hint = "no comma stands behind the last member"
	case bytes.HasPrefix(rest, []byte("'")):
		hint = `texts and names stand in double quotes: "..."`
	}
	line, column := place(src, at.Offset)
	return fmt.Sprintf("line %d, column %d: %s", line, column, at.Reason), hint
}

func firstIllFormed(src []byte) int {
	for i := 0; i < len(src); {
		r, n := utf8.DecodeRune(src[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(src)
}

// place is where an offset stands, both from 1; columns are characters.
func place(src []byte, offset int) (line, column int) {
	before := src[:min(offset, len(src))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[start:]) + 1
}

// policyReader reads one file and collects its faults.
type policyReader struct {
	p      *Policy
	faults []PolicyFault
	order  map[string]int // paths by where they stand in the file
}

func (r *policyReader) fault(path, hint, format string, args ...any) {
	r.faults = append(r.faults, PolicyFault{Path: path, Problem: fmt.Sprintf(format, args...), Hint: hint})
}

// err is the error of all faults, nil when there are none. Members are read in the
// order in which they depend on one another; people read the file from the top.
func (r *policyReader) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	slices.SortStableFunc(r.faults, func(a, b PolicyFault) int { return cmp.Compare(r.position(a.Path), r.position(b.Path)) })
	e := &PolicyError{Faults: r.faults}
	hint := "correct these lines; nothing of the file is in force"
	if len(r.faults) == 1 {
		hint = r.faults[0].Hint
	}
	return &errcode.Error{Code: errcode.Policy, Message: e.Error(), Hint: hint, Err: e}
}

// position is where a path stands, or the nearest value around it that was noted.
func (r *policyReader) position(path string) int {
	for {
		if at, known := r.order[path]; known || path == "" {
			return at
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
}

// number notes in which order the paths stand, as deep as the members of a policy
// lie.
func (r *policyReader) number(path string, n jsjson.Node, depth int) {
	if _, known := r.order[path]; !known {
		r.order[path] = len(r.order)
	}
	if depth == 5 {
		return
	}
	for name, v := range n.Members() {
		r.number(path+step(name), v, depth+1)
	}
	i := 0
	for v := range n.Elements() {
		r.number(path+"["+strconv.Itoa(i)+"]", v, depth+1)
		i++
	}
}

// step is how a member stands in a JSON path. An asset key must stand there whole.
func step(name jsjson.Node) string {
	text := string(name.Text())
	bare := text != ""
	for i := range len(text) {
		c := text[i]
		bare = bare && (c == '_' || c == '$' && i == 0 || c|0x20 >= 'a' && c|0x20 <= 'z' || i > 0 && c >= '0' && c <= '9')
	}
	if bare && len(text) <= maxName {
		return "." + text
	}
	return "[" + plain.Quote(text, plain.Detail) + "]"
}

// valueShown is a value as a message names it.
func valueShown(n jsjson.Node) string {
	switch n.Kind() {
	case jsjson.String:
		return "the text " + plain.Quote(string(n.Text()), showText)
	case jsjson.Number:
		return "the number " + plain.Clean(string(n.Raw()), showText)
	case jsjson.Object:
		return "an object"
	case jsjson.Array:
		return "a list"
	default:
		return string(n.Raw()) // true, false, null
	}
}

// member is one of an object.
type member struct {
	name string
	path string
	node jsjson.Node
}

// members are the members of an object, without comments; of a repeated one the
// first. ok is false when it is no object.
func (r *policyReader) members(path string, n jsjson.Node) (all []member, ok bool) {
	if n.Kind() != jsjson.Object {
		r.wrongKind(path, n, "an object")
		return nil, false
	}
	seen := map[string]bool{}
	for name, v := range n.Members() {
		m := member{name: string(name.Text()), path: path + step(name), node: v}
		switch {
		case !utf8.ValidString(m.name):
			r.fault(m.path, "", "the name holds half of a surrogate pair")
		case seen[m.name]:
			r.fault(m.path, "keep one of the two", "it is given twice")
		case m.name == commentKey:
			if !isComment(v) {
				r.fault(m.path, "", "a comment is text or a list of texts, not %s", valueShown(v))
			}
		default:
			all = append(all, m)
		}
		seen[m.name] = true
	}
	return all, true
}

func (r *policyReader) wrongKind(path string, n jsjson.Node, want string) {
	hint := ""
	switch {
	case n.Kind() == jsjson.Null && path != "$":
		hint = "leave the member out where the default is meant"
	case want == decimalText && n.Kind() == jsjson.Number:
		hint = `put it in quotes: "` + plain.Clean(string(n.Raw()), showText) + `"`
	case want == "a whole number" && n.Kind() == jsjson.String && digits(string(n.Text())):
		hint = "write it without quotes"
	case want == "true or false" && n.Kind() == jsjson.String:
		hint = "write it without quotes"
	}
	r.fault(path, hint, "it must be %s, not %s", want, valueShown(n))
}

// fields reads an object whose members are known. What it gives holds those that
// are there.
func (r *policyReader) fields(path string, n jsjson.Node, known ...string) (map[string]member, bool) {
	all, ok := r.members(path, n)
	found := map[string]member{}
	for _, m := range all {
		if slices.Contains(known, m.name) {
			found[m.name] = m
			r.p.given[m.path] = true
			continue
		}
		r.fault(m.path, didYouMean(m.name, known), "there is no such member")
	}
	return found, ok
}

// didYouMean names what is spelt like name, else all there is.
func didYouMean(name string, known []string) string {
	var near []string
	for _, k := range known {
		if distance(folded(name), folded(k)) <= 2 {
			near = append(near, strconv.Quote(k))
		}
	}
	if len(near) > 0 {
		return "did you mean " + strings.Join(near, " or ") + "? names are compared letter by letter"
	}
	return "one of " + strings.Join(known, ", ")
}

// folded is a name without what people mix up: case and separators.
func folded(name string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(name))
}

// distance is how many letters must be added, left out, changed, or swapped with
// the next to make b of a; beyond what is of interest it is only large.
func distance(a, b string) int {
	if d := len(a) - len(b); d > 2 || d < -2 {
		return 3
	}
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		earlier := before
		before, row = row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := before[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, before[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], earlier[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// decimalText is what an amount is: a JSON number loses digits on its way.
const decimalText = "decimal text"

func (r *policyReader) text(path string, n jsjson.Node) (string, bool) {
	return r.textOf(path, n, "text")
}

func (r *policyReader) textOf(path string, n jsjson.Node, want string) (string, bool) {
	if n.Kind() != jsjson.String {
		r.wrongKind(path, n, want)
		return "", false
	}
	text := string(n.Text())
	switch {
	case !utf8.ValidString(text):
		r.fault(path, "", "it holds half of a surrogate pair")
	case len(text) > maxText:
		r.fault(path, "", "it is longer than %d bytes", maxText)
	default:
		return text, true
	}
	return "", false
}

// word reads one of a few words into w.
func (r *policyReader) word(m member, w *string, words ...string) {
	if m.node.Kind() == jsjson.Absent {
		return
	}
	text, ok := r.text(m.path, m.node)
	if !ok {
		return
	}
	if !slices.Contains(words, text) {
		r.fault(m.path, "write one of "+strings.Join(words, ", "), "%s is not what it can be", plain.Quote(text, showText))
		return
	}
	*w = text
}

// flag reads true or false into b.
func (r *policyReader) flag(m member, b *bool) {
	switch m.node.Kind() {
	case jsjson.Absent:
	case jsjson.Bool:
		*b = m.node.Bool()
	default:
		r.wrongKind(m.path, m.node, "true or false")
	}
}

// whole reads a whole number into v. 24.0 is one, as it is for whatever else reads
// the file; exponents are not read.
func (r *policyReader) whole(m member, v *int, least, most int) {
	if m.node.Kind() == jsjson.Absent {
		return
	}
	if m.node.Kind() != jsjson.Number {
		r.wrongKind(m.path, m.node, "a whole number")
		return
	}
	text, fraction, _ := strings.Cut(string(m.node.Raw()), ".")
	n, err := strconv.Atoi(text)
	if strings.Trim(fraction, "0") != "" || err != nil && !errors.Is(err, strconv.ErrRange) {
		r.fault(m.path, "", "it must be a whole number, not %s", plain.Clean(string(m.node.Raw()), showText))
		return
	}
	if err != nil || n < least || n > most {
		r.fault(m.path, "", "it must be from %d to %d, not %s", least, most, plain.Clean(text, showText))
		return
	}
	*v = n
}

// list are the elements of a list.
func (r *policyReader) list(m member) (all []member) {
	if m.node.Kind() == jsjson.Absent {
		return nil
	}
	if m.node.Kind() != jsjson.Array {
		r.wrongKind(m.path, m.node, "a list")
		return nil
	}
	for n := range m.node.Elements() {
		e := member{path: m.path + "[" + strconv.Itoa(len(all)) + "]", node: n}
		r.p.given[e.path] = true
		all = append(all, e)
	}
	return all
}

// label is a name that people read: no more than that is asked of it.
func (r *policyReader) label(m member) (string, bool) {
	text, ok := r.text(m.path, m.node)
	switch {
	case !ok:
		return "", false
	case text == "":
		r.fault(m.path, "", "it must not be empty")
	case len(text) > maxName:
		r.fault(m.path, "", "it must have at most %d bytes", maxName)
	case plain.Clean(text, maxName) != text:
		r.fault(m.path, "write "+plain.Quote(text, maxName), "%s holds what cannot be seen as it is", plain.Quote(text, showText))
	default:
		return text, true
	}
	return "", false
}

// policy reads the whole file.
func (r *policyReader) policy(root jsjson.Node) {
	p := r.p
	f, _ := r.fields("$", root, policyMembers...)

	// The registry first, then the default asset: amounts need decimals.
	r.assets(f["assets"])
	r.defaultAsset(f["defaultAsset"])

	p.Allowlist = r.names(f["allowlist"])
	p.Denylist = readings(r.names(f["denylist"]))
	r.ownLimits(f)
	r.whole(f["maxOpenPartialPerCounterparty"], &p.MaxOpenPartial, 0, maxWhole)
	r.assetPolicies(f["assetPolicies"])
	r.limits(f["limits"])
	r.whole(f["stickyRejectHours"], &p.StickyRejectHours, 1, maxHours)
	r.whole(f["reviewExpiryHours"], &p.ReviewExpiryHours, 1, maxHours)
	r.whole(f["maxPendingReviews"], &p.MaxPendingReviews, 1, maxWhole)
	r.ratio(f["priceDriftRatio"])
	r.flag(f["trustDefiniteFailures"], &p.TrustDefiniteFailures)
	r.flag(f["trustSettledAmounts"], &p.TrustSettledAmounts)
	r.word(f["blindOperations"], &p.BlindOperations, "review", "ignore")
	r.word(f["holds"], &p.Holds, "asked", "always")
	r.whole(f["holdSeconds"], &p.HoldSeconds, 1, maxSecond)
	r.flag(f["logAllows"], &p.LogAllows)
	r.word(f["damage"], &p.Damage, "review", "ignore")
	r.operators(f["operators"])
	r.reviewURL(f["reviewUrl"])
	r.aliases(f["counterpartyAliases"])
	r.approvals(f["spendGate"], f["toolPolicies"])
	r.market(f["market"])
}

// policyMembers are the members of the file in the order of the contract.
var policyMembers = []string{
	"allowlist", "denylist", "perCounterpartyLimit", "maxOpenPartialPerCounterparty", "reviewAbove", "defaultAsset", "assets",
	"assetPolicies", "limits", "stickyRejectHours", "reviewExpiryHours", "maxPendingReviews", "priceDriftRatio",
	"trustDefiniteFailures", "trustSettledAmounts", "blindOperations", "holds", "holdSeconds", "logAllows", "damage",
	"operators", "reviewUrl", "counterpartyAliases", "spendGate", "toolPolicies", "market",
}

// entries are the members of an object whose names are the file's own.
func (r *policyReader) entries(m member) []member {
	if m.node.Kind() == jsjson.Absent {
		return nil
	}
	all, _ := r.members(m.path, m.node)
	return all
}

// file notes where an entry stands whose name is the file's own, by its list and
// the canonical form of that name.
func (r *policyReader) file(e member, list, name string) {
	r.p.given[e.path] = true
	r.p.where[list+" "+name] = e.path
}

const wrongChecksum = "the checksum of the address is wrong: look for a letter that was changed"

// key reads an asset key that stands in the file, as name or as value.
func (r *policyReader) key(path, text string) (string, bool) {
	hint := "write the network as CAIP-2, a slash and the token's address, such as " + usdcBase
	network, address, ok := cutKey(text)
	if !ok {
		if found := r.p.bearers(text); len(found) > 0 {
			hint = "write " + strings.Join(found, " or ")
		}
		r.fault(path, hint, "%s is no asset key", plain.Quote(text, showText))
		return "", false
	}
	if strings.ContainsFunc(text, invisible) {
		r.fault(path, hint, "%s holds white space or characters that cannot be seen", plain.Quote(text, showText))
		return "", false
	}
	id, known := payment.Network(network)
	if !known && (id != network || strings.Contains(network, ":")) {
		r.fault(path, hint, "%s is no network", plain.Quote(network, showText))
		return "", false
	}
	if _, evm := payment.Address(address); strings.HasPrefix(id, "eip155:") && (!evm || len(address) != len("0x")+40 || address[0] != '0') {
		r.fault(path, hint, "%s is no token address of an EVM network", plain.Quote(address, showText))
		return "", false
	}
	switch {
	case !payment.ChecksumOK(address):
		r.p.notes[path] = wrongChecksum
	case !known && network != fiatNetwork:
		r.p.notes[path] = "the network " + plain.Quote(network, showText) + " is none that is known"
	}
	return payment.AssetKey(network, address), true
}

// held is an asset key that the registry must have.
func (r *policyReader) held(path, text string) (string, bool) {
	key, ok := r.key(path, text)
	if !ok {
		return "", false
	}
	if _, ok := r.p.Assets[key]; !ok {
		r.fault(path, "add it to assets with its decimals", "the asset %s is not in assets", plain.Quote(text, plain.Detail))
		return "", false
	}
	return key, true
}

func (r *policyReader) assets(m member) {
	fixed := builtIn()
	seen := map[string]bool{}
	for _, e := range r.entries(m) {
		f, ok := r.fields(e.path, e.node, "symbol", "decimals")
		key, named := r.key(e.path, e.name)
		if !ok || !named {
			continue
		}
		if seen[key] {
			r.fault(e.path, "keep one of the two", "it is the same asset as another entry, in another spelling")
			continue
		}
		seen[key] = true
		r.file(e, "assets", key)
		a, known := fixed[key]
		if !known {
			// Kept with a faulty count, so that one fault does not look like ten.
			a.Decimals = maxDecimals
		}
		if d, given := f["decimals"]; given {
			r.whole(d, &a.Decimals, 0, maxDecimals)
			if fixed := fixed[key]; known && a.Decimals != fixed.Decimals {
				// Another count would move the point of every amount.
				r.fault(d.path, "leave the entry out", "%s has %d decimals, not %d", fixed.Symbol, fixed.Decimals, a.Decimals)
				a.Decimals = fixed.Decimals
			}
		} else if !known {
			r.fault(e.path, `add "decimals"`, "decimals are needed: they come from nowhere else")
		}
		if s, given := f["symbol"]; given {
			a.Symbol = r.symbol(s)
		}
		r.p.Assets[key] = a
	}
}

func (r *policyReader) symbol(m member) string {
	text, ok := r.label(m)
	if !ok {
		return ""
	}
	if _, address := payment.Address(text); address || strings.Contains(text, "/") {
		r.fault(m.path, "", "%s looks like an address or a key, not like a symbol", plain.Quote(text, showText))
		return ""
	}
	return text
}

func (r *policyReader) defaultAsset(m member) {
	if m.node.Kind() == jsjson.Absent {
		return
	}
	text, ok := r.text(m.path, m.node)
	if !ok {
		return
	}
	if key, ok := r.held(m.path, text); ok {
		r.p.DefaultAsset = key
	}
	// What is not given of the default asset's limits means the same number of
	// another asset now.
	r.p.PerCounterparty = r.p.cap(r.p.DefaultAsset, defaultCap, defaultHours)
	r.p.ReviewAbove, r.p.ReviewAboveAtomic = r.p.amount(r.p.DefaultAsset, defaultReviewAbove)
}

// amount reads an amount of an asset.
func (r *policyReader) amount(m member, asset string) (units, atomic string, ok bool) {
	text, ok := r.textOf(m.path, m.node, decimalText)
	if !ok {
		return "", "", false
	}
	if strings.HasPrefix(text, "-") {
		r.fault(m.path, "", "%s is negative", plain.Quote(text, showText))
		return "", "", false
	}
	atomic, why := scale(text, r.p.Assets[asset].Decimals)
	switch why {
	case "":
		return r.p.Units(asset, atomic), atomic, true
	case notDecimal:
		r.fault(m.path, amountHint, "%s %s", plain.Quote(text, showText), why)
	default:
		r.fault(m.path, "", "%s %s", plain.Quote(text, showText), r.p.ofAsset(asset, why))
	}
	return "", "", false
}

// limit reads {amount, windowHours} over what c holds.
func (r *policyReader) limit(m member, asset string, c *Cap) {
	if m.node.Kind() == jsjson.Absent {
		return
	}
	f, _ := r.fields(m.path, m.node, "amount", "windowHours")
	if a, given := f["amount"]; given {
		if units, atomic, ok := r.amount(a, asset); ok {
			c.Amount, c.Atomic = units, atomic
		}
	}
	r.whole(f["windowHours"], &c.WindowHours, 1, maxHours)
}

func (r *policyReader) ownLimits(f map[string]member) {
	p := r.p
	r.limit(f["perCounterpartyLimit"], p.DefaultAsset, &p.PerCounterparty)
	if m, given := f["reviewAbove"]; given {
		if units, atomic, ok := r.amount(m, p.DefaultAsset); ok {
			p.ReviewAbove, p.ReviewAboveAtomic = units, atomic
		}
	}
}

func (r *policyReader) assetPolicies(m member) {
	for _, e := range r.entries(m) {
		f, ok := r.fields(e.path, e.node, "perCounterpartyLimit", "reviewAbove")
		key, held := r.held(e.path, e.name)
		if !ok || !held {
			continue
		}
		if key == r.p.DefaultAsset {
			r.fault(e.path, "give perCounterpartyLimit and reviewAbove of the policy itself", "it is the default asset, whose limits stand outside of assetPolicies")
			continue
		}
		if _, twice := r.p.AssetPolicies[key]; twice {
			r.fault(e.path, "keep one of the two", "it is the same asset as another entry, in another spelling")
			continue
		}
		r.file(e, "assetPolicies", key)
		own := AssetPolicy{PerCounterparty: r.p.cap(key, "0", defaultHours)}
		own.ReviewAbove, own.ReviewAboveAtomic = r.p.amount(key, "0")
		r.limit(f["perCounterpartyLimit"], key, &own.PerCounterparty)
		if above, given := f["reviewAbove"]; given {
			if units, atomic, ok := r.amount(above, key); ok {
				own.ReviewAbove, own.ReviewAboveAtomic = units, atomic
			}
		}
		r.p.AssetPolicies[key] = own
	}
}

func (r *policyReader) limits(m member) {
	seen := map[string]bool{}
	for _, e := range r.list(m) {
		f, ok := r.fields(e.path, e.node, "name", "scope", "asset", "amount", "count", "windowHours", "action", "mode")
		if !ok {
			continue
		}
		l := Limit{WindowHours: defaultHours, Action: "review", Mode: "enforce"}
		if name, given := f["name"]; !given {
			r.fault(e.path, `add "name"`, "a limit needs a name, which reasons call it by")
		} else if l.Name, ok = r.label(name); ok {
			switch {
			case seen[l.Name]:
				r.fault(name.path, "", "another limit is called %s", plain.Quote(l.Name, showText))
			case l.Name == "per_counterparty_limit":
				r.fault(name.path, "", "the limit of perCounterpartyLimit is called that")
			}
			seen[l.Name] = true
		}
		if scope, given := f["scope"]; given {
			r.word(scope, &l.Scope, "counterparty", "host", "resource", "asset", "total")
		} else {
			r.fault(e.path, `add "scope": counterparty, host, resource, asset or total`, "a limit needs a scope")
		}
		asset, known := r.p.DefaultAsset, true
		if named, given := f["asset"]; given {
			if text, ok := r.text(named.path, named.node); !ok {
				known = false
			} else if asset, known = r.held(named.path, text); known {
				l.Asset = asset
			}
		}
		if amount, given := f["amount"]; given && known {
			l.Asset = asset
			l.Amount, l.Atomic, _ = r.amount(amount, asset)
		}
		if l.Scope == "asset" && known {
			l.Asset = asset
		}
		if count, given := f["count"]; given {
			n := 0
			r.whole(count, &n, 1, maxWhole)
			l.Count = int64(n)
		}
		if f["amount"].path == "" && f["count"].path == "" {
			r.fault(e.path, `add "amount" or "count"`, "a limit without amount and count limits nothing")
		}
		r.whole(f["windowHours"], &l.WindowHours, 1, maxHours)
		r.word(f["action"], &l.Action, "review", "block")
		r.word(f["mode"], &l.Mode, "enforce", "shadow")
		r.p.Limits = append(r.p.Limits, l)
	}
}

func (r *policyReader) ratio(m member) {
	if m.node.Kind() == jsjson.Absent {
		return
	}
	text, ok := r.textOf(m.path, m.node, decimalText)
	if !ok {
		return
	}
	_, _, ok = cutDecimal(text)
	switch {
	case !ok:
		r.fault(m.path, `write it as "10" or "2.5"`, "%s %s", plain.Quote(text, showText), notDecimal)
	case strings.Trim(text, "0.") == "":
		r.fault(m.path, "", "it must be above zero")
	case len(text) > maxName:
		r.fault(m.path, "", "it must have at most %d digits", maxName)
	default:
		r.p.PriceDriftRatio = shortDecimal(text)
	}
}

// invisible is a character that no name holds: a padded address would be another
// payee to everybody but the person who reads it.
func invisible(c rune) bool { return unicode.IsSpace(c) || plain.Hidden(c) }

// nameHint says what a name is.
const nameHint = "an address, a host, or " + accountPrefix + " and an account's exact text"

// entryNames are the canonical names of an entry of a list, the likeliest first.
func entryNames(text string) (names []string, why string) {
	switch {
	case text == "", text == accountPrefix:
		return nil, "is empty"
	case len(text) > maxText:
		return nil, "is too long"
	case strings.ContainsFunc(text, invisible):
		return nil, "holds white space or characters that cannot be seen"
	case strings.Contains(text, "*"):
		return nil, "holds a wildcard, and names are compared whole"
	case strings.HasPrefix(text, "."):
		return nil, "begins with a dot, and names are compared whole"
	case namesNetwork(text):
		return nil, "names a network, and an address is compared without one"
	}
	name := typedNames(text)[0]
	if strings.HasPrefix(name, accountPrefix) && strings.Contains(strings.TrimPrefix(text, accountPrefix), "://") {
		return nil, "is a URL without a host"
	}
	names = []string{name}
	if isHost(name) && name != text && strings.Trim(text, "0123456789.") == "" {
		// 0.0.1234 is an account of Hedera before it is a host, whose address
		// nobody writes like that.
		names = append(names, payment.Payee(text))
	}
	return names, ""
}

// namesNetwork reports whether text is an address behind a network, as CAIP-10 writes
// accounts. Histories name the address alone.
func namesNetwork(text string) bool {
	i := strings.LastIndexByte(text, ':')
	if i < 0 || strings.HasPrefix(text, accountPrefix) {
		return false
	}
	_, network := payment.Network(text[:i])
	_, address := payment.Address(text[i+1:])
	return network && (address || strings.Contains(text[:i], ":"))
}

// name reads one entry of a list of names.
func (r *policyReader) name(path, text string) []string {
	names, why := entryNames(text)
	if why != "" {
		r.fault(path, nameHint, "%s %s", plain.Quote(text, showText), why)
		return nil
	}
	switch {
	case !payment.ChecksumOK(text):
		r.p.notes[path] = wrongChecksum
	case isHost(names[0]) && beyondHost(text):
		r.p.notes[path] = "only the host is compared: the whole of " + payment.Display(names[0]) + " is meant"
	}
	return names
}

// beyondHost reports whether text says more than which host: a path, a query or a
// user. A port is no more, since every service on a machine is the machine's.
func beyondHost(text string) bool {
	_, rest, url := strings.Cut(text, "://")
	if !url {
		rest = text
	}
	end := endOfAuthority(rest)
	return strings.Contains(rest[:end], "@") || len(rest) > end+1
}

// names reads a list of names: sorted, none twice.
func (r *policyReader) names(m member) (all []string) {
	for _, e := range r.list(m) {
		if text, ok := r.text(e.path, e.node); ok {
			all = append(all, r.name(e.path, text)...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (r *policyReader) operators(m member) {
	seen := map[string]bool{}
	for _, e := range r.list(m) {
		f, ok := r.fields(e.path, e.node, "name", "publicKey", "until")
		if !ok {
			continue
		}
		var o decision.Operator
		if name, given := f["name"]; given {
			o.Name, _ = r.label(name)
		} else {
			r.fault(e.path, `add "name"`, "an operator needs a name")
		}
		if key, given := f["publicKey"]; given {
			o.PublicKey = r.publicKey(key)
			if o.PublicKey != "" && seen[o.PublicKey] {
				r.fault(key.path, "keep one of the two", "another operator has this key")
			}
			seen[o.PublicKey] = true
		} else {
			r.fault(e.path, "settlewatch operator init makes one", "an operator needs a publicKey")
		}
		if until, given := f["until"]; given {
			if text, ok := r.text(until.path, until.node); ok {
				at, err := time.Parse(time.RFC3339, text)
				if err != nil || at.UTC().Year() < 1970 || at.UTC().Year() > 9999 {
					r.fault(until.path, "write it as 2030-01-31T00:00:00Z", "%s is no instant", plain.Quote(text, showText))
				}
				o.Until = at.UTC()
			}
		}
		r.p.Operators = append(r.p.Operators, o)
	}
}

func (r *policyReader) publicKey(m member) string {
	text, ok := r.text(m.path, m.node)
	if !ok {
		return ""
	}
	key, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(key) != 32 || strings.ContainsAny(text, "\r\n") {
		r.fault(m.path, "settlewatch operator init prints it", "%s is no base64 of the 32 bytes of an Ed25519 key", plain.Quote(text, showText))
		return ""
	}
	return text
}

// reviewPlace is what reviewUrl may have in the review's place.
const reviewPlace = "{review_id}"

func (r *policyReader) reviewURL(m member) {
	if m.node.Kind() == jsjson.Absent {
		return
	}
	text, ok := r.text(m.path, m.node)
	if !ok {
		return
	}
	scheme, rest, _ := strings.Cut(text, "://")
	_, host := payment.Host(text)
	authority := rest[:endOfAuthority(rest)]
	switch {
	case scheme != "https" && scheme != "http" || !host || strings.ContainsFunc(text, invisible):
		r.fault(m.path, "write it as https://example.com/reviews/"+reviewPlace, "%s is no web address", plain.Quote(text, showText))
	case strings.Contains(authority, "@"):
		r.fault(m.path, "", "it must hold no user name or password: agents are shown it")
	case strings.ContainsAny(strings.ReplaceAll(text, reviewPlace, ""), "{}"):
		r.fault(m.path, "", "the one thing that can be filled in is %s", reviewPlace)
	default:
		r.p.ReviewURL = text
	}
}

func endOfAuthority(s string) int {
	if i := strings.IndexAny(s, `/\?#`); i >= 0 {
		return i
	}
	return len(s)
}

func (r *policyReader) aliases(m member) {
	group := map[string]string{} // names by the path of the group that has them
	for _, e := range r.entries(m) {
		named := []member{{name: e.name, path: e.path}}
		for _, alias := range r.list(e) {
			if text, ok := r.text(alias.path, alias.node); ok {
				named = append(named, member{name: text, path: alias.path})
			}
		}
		var all []string
		for _, alias := range named {
			names := readings(r.name(alias.path, alias.name))
			for _, name := range names {
				if first, taken := group[name]; taken && first != e.path {
					r.fault(alias.path, "make one group of the two", "%s is in the group %s too", plain.Quote(alias.name, showText), first)
					break
				}
			}
			all = append(all, names...)
		}
		slices.Sort(all)
		all = slices.Compact(all)
		if len(all) > 0 {
			r.file(e, "counterpartyAliases", all[0])
		}
		for _, name := range all {
			group[name] = e.path
			r.p.Aliases[name] = all
		}
	}
}

// approvals reads the spend gate and the policies of tool approvals (approvals
// contract, sections 2.1 and 3). The latter are kept as JSON too: what they say is
// part of the policy's hash, word for word.
func (r *policyReader) approvals(gate, tools member) {
	if n := r.uncommented(gate); n.Kind() != jsjson.Absent {
		g, err := approval.ParseGate(n)
		r.misread(gate.path, err)
		r.p.SpendGate = g
	}
	for _, e := range r.entries(tools) {
		n := r.uncommented(e)
		if n.Kind() != jsjson.Object {
			r.wrongKind(e.path, n, "an object")
			continue
		}
		p, err := approval.ParseToolPolicy(n)
		if err != nil {
			r.misread(e.path, err)
			continue
		}
		text, err := canon.Marshal(json.RawMessage(n.Raw()))
		if err != nil {
			r.misread(e.path, err)
			continue
		}
		r.file(e, "toolPolicies", e.name)
		r.p.ToolPolicies[e.name] = text
		if !p.DenyOnAmbiguity {
			r.p.notes[e.path] = "deny_on_ambiguity changes nothing: what is ambiguous is denied"
		} else if p.AlwaysRequireReceipt != nil {
			r.p.notes[e.path] = "always_require_receipt changes nothing: every call needs a receipt"
		}
	}
}

// misread takes over what another package found wrong with a value, and where.
func (r *policyReader) misread(path string, err error) {
	var f *approval.Fault
	var c *canon.Error
	switch {
	case errors.As(err, &f):
		r.fault(path+f.Path, "", "%s", f.Detail)
	case errors.As(err, &c):
		r.fault(path+strings.TrimPrefix(c.Path(), "$"), "", "%s", c.Detail())
	case err != nil:
		r.fault(path, "", "%v", err)
	}
}

// market reads what is asked of listings (market contract, section 7).
func (r *policyReader) market(m member) {
	if m.node.Kind() == jsjson.Absent {
		return
	}
	f, _ := r.fields(m.path, m.node, "minTrades")
	r.whole(f["minTrades"], &r.p.MinTrades, 0, maxWhole)
}

// uncommented is a value that another package reads, without its comments.
func (r *policyReader) uncommented(m member) jsjson.Node {
	if m.node.Kind() == jsjson.Absent {
		return m.node
	}
	var doc jsjson.Doc
	if err := doc.Parse(withoutComments(nil, m.node)); err != nil {
		r.fault(m.path, "", "%v", err)
		return jsjson.Node{}
	}
	return doc.Root()
}

func withoutComments(dst []byte, n jsjson.Node) []byte {
	switch n.Kind() {
	case jsjson.Object:
		dst = append(dst, '{')
		comma := false
		for name, v := range n.Members() {
			if string(name.Text()) == commentKey && isComment(v) {
				continue
			}
			if comma {
				dst = append(dst, ',')
			}
			comma = true
			dst = append(append(dst, name.Raw()...), ':')
			dst = withoutComments(dst, v)
		}
		return append(dst, '}')
	case jsjson.Array:
		dst = append(dst, '[')
		comma := false
		for v := range n.Elements() {
			if comma {
				dst = append(dst, ',')
			}
			comma = true
			dst = withoutComments(dst, v)
		}
		return append(dst, ']')
	default:
		return append(dst, n.Raw()...)
	}
}

// isComment reports whether a value can be that of a comment.
func isComment(n jsjson.Node) bool {
	if n.Kind() == jsjson.Array {
		for line := range n.Elements() {
			if line.Kind() != jsjson.String {
				return false
			}
		}
		return true
	}
	return n.Kind() == jsjson.String
}
