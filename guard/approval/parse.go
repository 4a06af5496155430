package approval

import (
	"errors"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// Fault is what is wrong with an action or a policy, and where. Path begins at
// the value that was read and is empty for that value itself, so that a caller
// who knows where it stood can put that in front.
type Fault struct {
	Path   string // .name or [index], one after the other
	Detail string // lower case, clean text
}

// Error implements error.
func (f *Fault) Error() string { return "$" + f.Path + ": " + f.Detail }

// The keys, as the protocol spells them (approvals contract, section 2.1).
var (
	actionKeys     = []string{"action", "asset", "notional", "confidence", "rationale"}
	policyKeys     = []string{"version", "max_notional", "daily_cap", "hitl_threshold", "min_confidence", "allowed_actions", "per_asset_limits"}
	actionRequired = []string{"action", "asset", "notional"}
	policyRequired = []string{"max_notional", "daily_cap", "hitl_threshold", "min_confidence"}
)

// ParseAction reads an action. It is strict: an unknown or repeated key, a value
// of another type, a number no double can hold and ill-formed text are refused.
// The error is a *[Fault].
func ParseAction(n jsjson.Node) (Action, error) {
	var a Action
	err := members(n, actionKeys, actionRequired, func(key string, v jsjson.Node) (err error) {
		switch key {
		case "action":
			a.Action, err = text(v)
		case "asset":
			a.Asset, err = text(v)
		case "rationale":
			a.Rationale, err = text(v)
		case "notional":
			a.Notional, err = double(v)
		case "confidence":
			if v.Kind() == jsjson.Null {
				return nil
			}
			var f float64
			f, err = double(v)
			a.Confidence = &f
		}
		return err
	})
	if err != nil {
		return Action{}, err
	}
	return a, nil
}

// ParsePolicy reads a spend policy whose amounts are JSON numbers, as the tools
// of the protocol have it. It is as strict as [ParseAction]; all four limits have
// to be there. A policy without a version has the default one's.
func ParsePolicy(n jsjson.Node) (Policy, error) {
	p := Policy{Version: DefaultPolicy().Version}
	err := members(n, policyKeys, policyRequired, func(key string, v jsjson.Node) (err error) {
		switch key {
		case "version":
			p.Version, err = text(v)
		case "max_notional":
			p.MaxNotional, err = double(v)
		case "daily_cap":
			p.DailyCap, err = double(v)
		case "hitl_threshold":
			p.HITLThreshold, err = double(v)
		case "min_confidence":
			p.MinConfidence, err = double(v)
		case "allowed_actions":
			p.AllowedActions, err = texts(v)
		case "per_asset_limits":
			p.PerAssetLimits, err = limits(v, double)
		}
		return err
	})
	if err != nil {
		return Policy{}, err
	}
	return p, nil
}

// ParseGate reads the spend gate of a policy file: a spend policy whose amounts
// are decimal texts and none of them negative (approvals contract, section 9.6).
// It is as strict as [ParsePolicy]. A list of no actions is refused as well: to
// the protocol it means that every action is allowed, and nobody writes it
// meaning that.
func ParseGate(n jsjson.Node) (*Gate, error) {
	g := &Gate{Version: DefaultPolicy().Version}
	err := members(n, policyKeys, policyRequired, func(key string, v jsjson.Node) (err error) {
		switch key {
		case "version":
			g.Version, err = text(v)
		case "max_notional":
			g.MaxNotional, err = amount(v)
		case "daily_cap":
			g.DailyCap, err = amount(v)
		case "hitl_threshold":
			g.HITLThreshold, err = amount(v)
		case "min_confidence":
			g.MinConfidence, err = amount(v)
		case "allowed_actions":
			if g.AllowedActions, err = texts(v); err == nil && len(g.AllowedActions) == 0 {
				err = &Fault{Detail: "an empty list would allow every action; leave it out to say so, or name the actions"}
			}
		case "per_asset_limits":
			g.PerAssetLimits, err = limits(v, amount)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// members hands every member of an object to read, once the object is known to
// hold each key once and none that is unknown, and nothing that has no canonical
// form.
func members(n jsjson.Node, known, required []string, read func(key string, v jsjson.Node) error) error {
	if n.Kind() != jsjson.Object {
		return wrong(n, "an object")
	}
	if _, err := canon.Append(nil, n, canon.Lexeme); err != nil {
		return faultOf(err)
	}
	for name, v := range n.Members() {
		key := string(name.Text())
		if !slices.Contains(known, key) {
			return &Fault{Path: canon.Step(key), Detail: "unknown key; the keys are " + strings.Join(known, ", ")}
		}
		if err := read(key, v); err != nil {
			return within(canon.Step(key), err)
		}
	}
	for _, key := range required {
		if n.Get(key).Kind() == jsjson.Absent {
			return &Fault{Path: canon.Step(key), Detail: "missing"}
		}
	}
	return nil
}

// faultOf is why a value has no canonical form, as a fault.
func faultOf(err error) *Fault {
	var e *canon.Error
	if errors.As(err, &e) {
		return &Fault{Path: strings.TrimPrefix(e.Path(), "$"), Detail: e.Detail()}
	}
	return &Fault{Detail: err.Error()}
}

// within puts a step in front of a fault's path.
func within(step string, err error) error {
	var f *Fault
	if errors.As(err, &f) {
		return &Fault{Path: step + f.Path, Detail: f.Detail}
	}
	return err
}

func wrong(n jsjson.Node, want string) error {
	return &Fault{Detail: "want " + want + ", not " + n.Kind().String()}
}

func text(n jsjson.Node) (string, error) {
	if n.Kind() != jsjson.String {
		return "", wrong(n, "text")
	}
	return string(n.Text()), nil
}

// double reads a number of the gate: a double, whatever its spelling (approvals
// contract, section 2.1).
func double(n jsjson.Node) (float64, error) {
	if n.Kind() != jsjson.Number {
		return 0, wrong(n, "a number")
	}
	f := n.Float()
	if !finite(f) {
		return 0, &Fault{Detail: "a number too large for a double"}
	}
	return f, nil
}

func texts(n jsjson.Node) ([]string, error) {
	if n.Kind() != jsjson.Array {
		return nil, wrong(n, "a list of texts")
	}
	list := []string{}
	for e := range n.Elements() {
		s, err := text(e)
		if err != nil {
			return nil, within("["+strconv.Itoa(len(list))+"]", err)
		}
		list = append(list, s)
	}
	return list, nil
}

func limits[T any](n jsjson.Node, read func(jsjson.Node) (T, error)) (map[string]T, error) {
	if n.Kind() != jsjson.Object {
		return nil, wrong(n, "an object of limits by asset")
	}
	return entries(n, read)
}

// entries reads an object whose names are its own.
func entries[T any](n jsjson.Node, read func(jsjson.Node) (T, error)) (map[string]T, error) {
	all := map[string]T{}
	for name, v := range n.Members() {
		entry, err := read(v)
		if err != nil {
			return nil, within(canon.Step(string(name.Text())), err)
		}
		all[string(name.Text())] = entry
	}
	return all, nil
}

// amount reads a decimal text and gives it in its shortest form, so that one
// policy has one hash.
func amount(n jsjson.Node) (string, error) {
	if n.Kind() != jsjson.String {
		return "", wrong(n, `a decimal amount as text, like "2.50"`)
	}
	s := string(n.Text())
	d, err := readDecimal(s)
	if err != nil {
		return "", &Fault{Detail: err.Error()}
	}
	return d.String(), nil
}

// maxDecimal bounds a decimal text in bytes.
const maxDecimal = 400

// decimal is an exact amount in display units.
type decimal struct {
	value  *big.Rat
	places int // decimal places that hold it
}

// readDecimal reads digits with an optional fraction. There is no sign, no
// exponent and no leading zero: what an amount is must not be a matter of
// reading.
func readDecimal(s string) (decimal, error) {
	whole, fraction, point := strings.Cut(s, ".")
	if len(s) > maxDecimal || !digits(whole) || len(whole) > 1 && whole[0] == '0' || point && !digits(fraction) {
		return decimal{}, errors.New(plain.Quote(s, 40) + ` is no decimal amount like "2.50"`)
	}
	if !finite(jsjson.Double(s)) {
		return decimal{}, errors.New(plain.Quote(s, 40) + " is too large for a double, which the gate's record needs")
	}
	value, ok := new(big.Rat).SetString(s)
	if !ok {
		return decimal{}, errors.New(plain.Quote(s, 40) + " is no decimal amount")
	}
	return decimal{value, len(fraction)}, nil
}

func digits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

func (d decimal) plus(e decimal) decimal {
	return decimal{new(big.Rat).Add(d.value, e.value), max(d.places, e.places)}
}

func (d decimal) atMost(e decimal) bool { return d.value.Cmp(e.value) <= 0 }

// String is the exact amount without trailing zeros.
func (d decimal) String() string {
	s := d.value.FloatString(d.places)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// double is the nearest double, which is what the record is about.
func (d decimal) double() float64 {
	f, _ := d.value.Float64()
	return f
}
