package approval

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/canon"
)

// outcome is what a tool of tool approval is expected to answer.
type outcome struct {
	State   string
	Code    *string `json:"deny_code"`
	Receipt bool
}

type step struct {
	Now     time.Time
	Call    string  `json:"call_json"`
	Policy  string  `json:"policy_json"`
	Receipt *string `json:"receipt_json"`
	Want    outcome `json:"expected"`
}

type receiptVectors struct {
	Format string
	MAC    []struct {
		Name, Key, Canonical, Signature string
		Body                            string `json:"body_json"`
		Hash                            string `json:"receipt_hash"`
	}
	Parse []struct {
		Name    string
		Receipt string `json:"receipt_json"`
		Valid   bool
	} `json:"receipt_parse"`
	PolicyParse []struct {
		Name   string
		Policy string `json:"policy_json"`
		Valid  bool
	} `json:"policy_parse"`
	Ambiguous []struct {
		Value     string `json:"value_json"`
		Ambiguous bool
	} `json:"ambiguous_binding"`
	HostBind []struct {
		Name   string
		Call   string `json:"call_json"`
		Policy string `json:"policy_json"`
		Want   struct {
			OK     bool
			Code   string            `json:"deny_code"`
			Keys   []string          `json:"bound_keys"`
			Merged string            `json:"merged_json"`
			Hashes map[string]string `json:"args_hash"`
		} `json:"expected"`
	} `json:"host_bind"`
	Evaluate []struct {
		Name   string
		Call   string  `json:"call_json"`
		Policy string  `json:"policy_json"`
		Want   outcome `json:"expected"`
	} `json:"evaluate_tool_approval"`
	Issue []struct {
		Name, Actor, Decision string
		Call                  string   `json:"call_json"`
		Policy                string   `json:"policy_json"`
		TTL                   *float64 `json:"ttl_seconds"`
		Want                  outcome  `json:"expected"`
	}
	Scenarios []struct {
		Name, Key string
		Steps     []step
	} `json:"authorize_scenarios"`
	ContentHashed []struct {
		Name string
		Body string `json:"body_json"`
		Hash string `json:"content_hash"`
	} `json:"content_hashed_receipts"`
	Finance []struct {
		Name   string
		Hashed string            `json:"hashed_json"`
		Hashes map[string]string `json:"args_hash"`
	} `json:"finance_args_hash"`
}

func readVectors(t testing.TB) receiptVectors {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("testdata", "receipts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v receiptVectors
	if err := json.Unmarshal(src, &v); err != nil {
		t.Fatal(err)
	}
	if v.Format != "chp-receipts/1" {
		t.Fatalf("the vectors are of format %q", v.Format)
	}
	for what, n := range map[string][2]int{
		"mac": {len(v.MAC), 9}, "receipt_parse": {len(v.Parse), 43}, "policy_parse": {len(v.PolicyParse), 18}, "ambiguous_binding": {len(v.Ambiguous), 30},
		"host_bind": {len(v.HostBind), 31}, "evaluate_tool_approval": {len(v.Evaluate), 17}, "issue": {len(v.Issue), 21},
		"authorize_scenarios": {len(v.Scenarios), 45}, "content_hashed_receipts": {len(v.ContentHashed), 5}, "finance_args_hash": {len(v.Finance), 3},
	} {
		if n[0] < n[1] {
			t.Fatalf("%s: %d vectors, there are %d", what, n[0], n[1])
		}
	}
	return v
}

// policyOf reads the policy of a vector: nil when it cannot be read.
func policyOf(t testing.TB, src string) *ToolPolicy {
	t.Helper()
	p, err := ParseToolPolicy(node(t, src))
	if err != nil {
		return nil
	}
	return p
}

func hostedCall(t testing.TB, src string) Call {
	t.Helper()
	c, err := parseHosted(node(t, src))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// parseHosted reads a call whose envelope is believed, as that of a request of a
// trusted host is.
func parseHosted(n jsjson.Node) (Call, error) {
	c, err := ParseCall(n)
	if err != nil {
		return Call{}, err
	}
	c.Host = ReadHost(n.Get("_meta")).Under(Host{Bound: object(n.Get("host_bound"))})
	c.Enveloped = false
	return c, nil
}

func (o outcome) assert(t *testing.T, got ToolResult) {
	t.Helper()
	code := ""
	if o.Code != nil {
		code = *o.Code
	}
	if got.State != o.State || got.DenyCode != code {
		t.Errorf("got %s %q (%s), want %s %q", got.State, got.DenyCode, got.Reason, o.State, code)
	}
	if got.Allowed != (got.State == Authorized) {
		t.Errorf("%s, and allowed is %v", got.State, got.Allowed)
	}
	receipt := got.State == ReceiptRequired || code == CodeAllowlistIsNotAuth || code == CodeMissingReceipt
	if got.RequiresReceipt != receipt {
		t.Errorf("%s %q, and requires_receipt is %v", got.State, got.DenyCode, got.RequiresReceipt)
	}
}

func TestVectorsOfReceiptsMAC(t *testing.T) {
	for _, v := range readVectors(t).MAC {
		t.Run(v.Name, func(t *testing.T) {
			// Not all of these bodies are receipts that would be read.
			var m map[string]string
			if err := json.Unmarshal([]byte(v.Body), &m); err != nil {
				t.Fatal(err)
			}
			r := Receipt{SchemaVersion: m["schema_version"]}
			for _, f := range r.fields() {
				*f.value = m[f.key]
			}
			if text := string(r.Body()); text != v.Canonical {
				t.Errorf("the body is %s\nwant        %s", text, v.Canonical)
			}
			if mac := (HMACKey{[]byte(v.Key)}).mac(r.Body()); mac != v.Signature {
				t.Errorf("signed %s, want %s", mac, v.Signature)
			}
			if hash := r.Hash(); hash != v.Hash {
				t.Errorf("the hash is %s, want %s", hash, v.Hash)
			}
		})
	}
}

func TestVectorsOfReceiptsParse(t *testing.T) {
	for _, v := range readVectors(t).Parse {
		t.Run(v.Name, func(t *testing.T) {
			r, err := ParseReceipt(node(t, v.Receipt))
			if (err == nil) != v.Valid {
				t.Fatalf("%v, and valid is %v", err, v.Valid)
			}
			if err != nil {
				return
			}
			// A receipt that was read is written as it was, key for key.
			text, err := json.Marshal(r)
			if err != nil || string(text) != v.Receipt {
				t.Errorf("%s, %v\nwant %s", text, err, v.Receipt)
			}
		})
	}
}

func TestVectorsOfReceiptsPolicyParse(t *testing.T) {
	for _, v := range readVectors(t).PolicyParse {
		t.Run(v.Name, func(t *testing.T) {
			if _, err := ParseToolPolicy(node(t, v.Policy)); (err == nil) != v.Valid {
				t.Errorf("%v, and valid is %v", err, v.Valid)
			}
		})
	}
}

func TestVectorsOfReceiptsAmbiguousBinding(t *testing.T) {
	for _, v := range readVectors(t).Ambiguous {
		if _, err := binding(node(t, v.Value)); (err != nil) != v.Ambiguous {
			t.Errorf("%s: %v, and ambiguous is %v", v.Value, err, v.Ambiguous)
		}
	}
}

func Test49VectorsOfReceiptsHostBind(t *testing.T) {
	for _, v := range readVectors(t).HostBind {
		t.Run(v.Name, func(t *testing.T) {
			b, refused := hostedCall(t, v.Call).Bind(policyOf(t, v.Policy))
			if !v.Want.OK {
				if refused == nil || refused.Code != v.Want.Code {
					t.Errorf("%v, want %s", refused, v.Want.Code)
				}
				return
			}
			if refused != nil {
				t.Fatal(refused)
			}
			if diff := cmp.Diff(v.Want.Keys, b.Keys); diff != "" {
				t.Error(diff)
			}
			if string(b.Arguments) != v.Want.Merged {
				t.Errorf("merged %s, want %s", b.Arguments, v.Want.Merged)
			}
			for name, want := range v.Want.Hashes {
				rule, _ := canon.ParseRule(name)
				if hash, err := b.Hash(rule); err != nil || hash != want {
					t.Errorf("%s: %s, %v, want %s", name, hash, err, want)
				}
			}
			if len(v.Want.Hashes) != 3 {
				t.Error("hashes are missing")
			}
		})
	}
}

func TestVectorsOfReceiptsEvaluateToolApproval(t *testing.T) {
	for _, v := range readVectors(t).Evaluate {
		t.Run(v.Name, func(t *testing.T) {
			v.Want.assert(t, EvaluateTool(policyOf(t, v.Policy), hostedCall(t, v.Call)))
		})
	}
}

func TestVectorsOfReceiptsIssue(t *testing.T) {
	for _, v := range readVectors(t).Issue {
		t.Run(v.Name, func(t *testing.T) {
			r := Issue{
				Policy: policyOf(t, v.Policy), Call: hostedCall(t, v.Call), Actor: v.Actor, Decision: v.Decision, TTLSeconds: v.TTL,
				Nonce: "n", Now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
			}.HMAC(strongKey)
			v.Want.assert(t, r)
			if (r.Receipt != nil) != v.Want.Receipt || (r.ReceiptHash != "") != v.Want.Receipt || (r.DecisionLog != nil) != v.Want.Receipt {
				t.Errorf("a receipt: %v, and %v is wanted", r.Receipt, v.Want.Receipt)
			}
			if r.Receipt == nil {
				return
			}
			if _, err := ParseReceipt(node(t, encoded(t, r.Receipt))); err != nil {
				t.Errorf("what was issued cannot be read: %v", err)
			}
		})
	}
}

func Test30VectorsOfReceiptsAuthorizeScenarios(t *testing.T) {
	for _, v := range readVectors(t).Scenarios {
		t.Run(v.Name, func(t *testing.T) {
			burnt := map[string]bool{}
			for i, s := range v.Steps {
				a := Presented{
					Policy: policyOf(t, s.Policy), Call: hostedCall(t, s.Call), Now: s.Now,
					Keys:  Keys{HMAC: &HMACKey{[]byte(v.Key)}, AllowHMAC: true},
					Burnt: func(nonce string) bool { return burnt[nonce] },
				}
				if s.Receipt != nil {
					a.Receipt, a.Unreadable = ParseReceipt(node(t, *s.Receipt))
				}
				r := Authorize(a)
				t.Logf("step %d: %s", i+1, r.Reason)
				s.Want.assert(t, r)
				if r.Burn != "" {
					burnt[r.Burn] = true
				}
			}
		})
	}
}

func TestVectorsOfReceiptsContentHashed(t *testing.T) {
	for _, v := range readVectors(t).ContentHashed {
		t.Run(v.Name, func(t *testing.T) {
			if hash, err := bodyHash([]byte(v.Body)); err != nil || hash != v.Hash {
				t.Errorf("%s, %v, want %s", hash, err, v.Hash)
			}
			var kind struct{ Kind string }
			if err := json.Unmarshal([]byte(v.Body), &kind); err != nil {
				t.Fatal(err)
			}
			if kind.Kind == "deny" {
				var d DenyReceipt
				if err := json.Unmarshal([]byte(v.Body), &d); err != nil {
					t.Fatal(err)
				}
				at, err := time.Parse(time.RFC3339, d.IssuedAt)
				if got := NewDenyReceipt(d, at); err != nil || got.ContentHash != v.Hash {
					t.Errorf("made anew: %+v, %v", got, err)
				}
				return
			}
			a, err := ParseAuthorization(node(t, v.Body[:len(v.Body)-1]+`,"content_hash":"`+v.Hash+`"}`))
			if err != nil || a.ContentHash != v.Hash {
				t.Errorf("read as %+v, %v", a, err)
			}
			if _, err := ParseAuthorization(node(t, v.Body[:len(v.Body)-1]+`,"content_hash":"`+v.Hash[1:]+`0"}`)); err == nil {
				t.Error("another hash was taken for its own")
			}
		})
	}
}

func TestVectorsOfReceiptsFinanceArgsHash(t *testing.T) {
	for _, v := range readVectors(t).Finance {
		t.Run(v.Name, func(t *testing.T) {
			for name, want := range v.Hashes {
				rule, _ := canon.ParseRule(name)
				if hash, err := (Bound{Arguments: json.RawMessage(v.Hashed)}).Hash(rule); err != nil || hash != want {
					t.Errorf("%s: %s, %v, want %s", name, hash, err, want)
				}
			}
		})
	}
}

// encoded is the JSON of a value.
func encoded(t testing.TB, v any) string {
	t.Helper()
	src, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(src)
}
