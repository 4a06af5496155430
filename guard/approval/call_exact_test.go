package approval

import (
	"encoding/json"
	"strings"
	"testing"
)

// A person is shown the canonical form of a number, and what makes the call reads
// the number: they have to be the same one.
func TestANumberThatIsShownAsAnotherIsAmbiguous(t *testing.T) {
	policy := policyOf(t, `{"version": "p-1", "allowed_tools": ["kb.search"], "host_bound_fields": {"kb.search": ["limit"]}}`)
	for _, c := range []struct {
		number string
		passes bool
	}{
		{"0", true}, {"-0", true}, {"0.0", true}, {"0e9", true}, {"0e99999999999999999999", true}, {"1", true}, {"1.0", true}, {"1e0", true}, {"100", true}, {"1E2", true}, {"-2.50", true},
		{"0.1", true}, {"0.30000000000000004", true}, {"9007199254740991", true}, {"1e15", true}, {"1e21", true}, {"5e-324", true}, {"0.000001", true}, {"123.456e-3", true},
		{"0.10000000000000000001", false}, {"9007199254740991.4", false}, {"1.00000000000000000000000001", false}, {"1e-400", false}, {"3e-324", false},
		{"1e-99999999999999999999", false}, {"3.141592653589793238", false}, {"1.7976931348623158e308", false},
	} {
		for name, call := range map[string]Call{
			"an argument":        {Tool: "kb.search", Resource: "kb", Arguments: json.RawMessage(`{"deep": [{"n": ` + c.number + `}]}`), Host: Host{Bound: json.RawMessage(`{"limit": 1}`)}},
			"one the host fixes": {Tool: "kb.search", Resource: "kb", Arguments: json.RawMessage(`{}`), Host: Host{Bound: json.RawMessage(`{"limit": ` + c.number + `}`)}},
		} {
			if seen := Inspect(policy, call); (seen.Refused == nil) != c.passes {
				t.Errorf("%s as %s: %+v", c.number, name, seen.Refused)
			} else if !c.passes && (seen.Refused.Code != CodeAmbiguous || seen.ArgsHash != "") {
				t.Errorf("%s as %s: %+v", c.number, name, seen)
			}
		}
	}
}

func TestANameThatIsTooLongToBeShownIsAmbiguous(t *testing.T) {
	policy := policyOf(t, `{"version": "p-1", "allowed_tools": ["kb.search"]}`)
	for _, c := range []struct {
		length int
		passes bool
	}{{maxName, true}, {maxName + 1, false}} {
		seen := Inspect(policy, Call{Tool: "kb.search", Resource: strings.Repeat("r", c.length), Arguments: json.RawMessage(`{}`)})
		if (seen.Refused == nil) != c.passes {
			t.Errorf("%d bytes: %+v", c.length, seen.Refused)
		}
	}
}
