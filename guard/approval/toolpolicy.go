package approval

import (
	"slices"
	"strings"
	"unicode"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// The risks of a tool call.
const (
	RiskLow      = "low"
	RiskMedium   = "medium"
	RiskHigh     = "high"
	RiskCritical = "critical"
)

var risks = []string{RiskLow, RiskMedium, RiskHigh, RiskCritical}

// ToolPolicy says which tools may be called once a person has approved the call
// (approvals contract, section 3). It comes from [ParseToolPolicy]: one that was
// put together otherwise has no hash, and nothing passes it.
type ToolPolicy struct {
	Version              string
	AllowedTools         []string
	AlwaysRequireReceipt []string // noted; every call needs a receipt anyhow (section 8)
	ToolRisk             map[string]string
	DefaultRisk          string  // "" is [RiskHigh]
	MaxTTLSeconds        float64 // 0: the policy names none, and [DefaultTTL] counts
	AllowedResources     map[string][]string
	HostBoundFields      map[string][]string
	DenyOnAmbiguity      bool // what the policy says; what is ambiguous is denied anyhow (section 8)
	// RedactAll and Redact name arguments that are shown and logged as hashes: of
	// every tool, and by tool.
	RedactAll []string
	Redact    map[string][]string
	hash      string
}

// The keys, as the protocol spells them (approvals contract, section 3), and ours
// of section 9.7b.
var (
	toolPolicyKeys = []string{"version", "allowed_tools", "always_require_receipt", "tool_risk", "default_risk", "max_ttl_seconds",
		"allowed_resources", "host_bound_fields", "deny_on_ambiguity", "redact"}
	toolPolicyRequired = []string{"version", "allowed_tools"}
)

// ParseToolPolicy reads a tool policy. It is as strict as [ParsePolicy], and
// refuses a version that names none. The error is a *[Fault].
func ParseToolPolicy(n jsjson.Node) (*ToolPolicy, error) {
	p := &ToolPolicy{DenyOnAmbiguity: true}
	if err := members(n, toolPolicyKeys, toolPolicyRequired, p.read); err != nil {
		return nil, err
	}
	hash, err := canon.Hash(n, canon.JCS)
	if err != nil {
		return nil, faultOf(err)
	}
	p.hash = hash
	return p, nil
}

func (p *ToolPolicy) read(key string, v jsjson.Node) (err error) {
	switch key {
	case "version":
		p.Version, err = binding(v)
	case "allowed_tools":
		p.AllowedTools, err = texts(v)
	case "always_require_receipt":
		p.AlwaysRequireReceipt, err = texts(v)
	case "tool_risk":
		p.ToolRisk, err = byTool(v, risk)
	case "default_risk":
		p.DefaultRisk, err = risk(v)
	case "max_ttl_seconds":
		if p.MaxTTLSeconds, err = double(v); err == nil && p.MaxTTLSeconds <= 0 {
			err = &Fault{Detail: "want more than 0 seconds"}
		}
	case "allowed_resources":
		p.AllowedResources, err = byTool(v, texts)
	case "host_bound_fields":
		p.HostBoundFields, err = byTool(v, texts)
	case "deny_on_ambiguity":
		if v.Kind() != jsjson.Bool {
			return wrong(v, "true or false")
		}
		p.DenyOnAmbiguity = v.Bool()
	case "redact":
		if v.Kind() == jsjson.Array {
			p.RedactAll, err = texts(v)
		} else {
			p.Redact, err = byTool(v, texts)
		}
	}
	return err
}

// Hash is the hash of everything the policy says, under [canon.JCS]: a version is
// a name, and two policies may bear the same one.
func (p *ToolPolicy) Hash() string { return p.hash }

// Risk is the risk of a tool.
func (p *ToolPolicy) Risk(tool string) string {
	if r, ok := p.ToolRisk[tool]; ok {
		return r
	}
	if p.DefaultRisk != "" {
		return p.DefaultRisk
	}
	return RiskHigh
}

// Redacted are the names of the arguments of a tool that are kept from people and
// logs.
func (p *ToolPolicy) Redacted(tool string) []string {
	return slices.Concat(p.RedactAll, p.Redact[tool])
}

func byTool[T any](n jsjson.Node, read func(jsjson.Node) (T, error)) (map[string]T, error) {
	if n.Kind() != jsjson.Object {
		return nil, wrong(n, "an object by tool")
	}
	return entries(n, read)
}

func risk(n jsjson.Node) (string, error) {
	s, err := text(n)
	if err == nil && !slices.Contains(risks, s) {
		err = &Fault{Detail: plain.Quote(s, 40) + " is no risk; the risks are " + strings.Join(risks, ", ")}
	}
	return s, err
}

// binding reads a text that names one thing.
func binding(n jsjson.Node) (string, error) {
	s, err := text(n)
	if err == nil && Ambiguous(s) {
		err = &Fault{Detail: plain.Quote(s, 40) + " is ambiguous: it does not name one thing"}
	}
	return s, err
}

// Ambiguous reports whether a text is no name of one actor, tool, resource or
// version: a word for anything or nothing, or a pattern (approvals contract,
// section 4.3).
func Ambiguous(s string) bool {
	if strings.ContainsAny(s, "*?[]{}") {
		return true
	}
	// What cannot be seen around a word does not make it another one.
	bare := strings.TrimFunc(s, func(r rune) bool { return unicode.IsSpace(r) || plain.Hidden(r) })
	switch strings.ToLower(bare) {
	case "", "any", "all", "unknown", "undefined", "null":
		return true
	}
	return false
}
