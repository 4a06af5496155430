package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/settlewatch/settlewatch/guard/decision"
)

// A command of a person has to read the log to know by which policy, and the guard it
// asks has to know the log: that is one reading. Whoever has read the log notices that
// it is gone.
func TestAPersonsCommandVerifiesTheLogOnce(t *testing.T) {
	policy := func(text string) path {
		t.Helper()
		file := filepath.Join(t.TempDir(), "policy.json")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path(file)
	}
	plain := policy(`{"reviewAbove": "5"}`)
	manned := policy(`{"operators": [{"name": "ana", "publicKey": "` + strings.Repeat("A", 43) + `="}]}`)
	other := policy(`{"operators": [{"name": "bob", "publicKey": "` + strings.Repeat("B", 42) + `E="}]}`)
	for _, c := range []struct {
		name   string
		logged path // the policy a check was made under
		given  path
	}{
		{"no policy", "", ""},
		{"a policy the log names", plain, ""},
		{"operators the log names", manned, ""},
		{"a policy that is given", plain, plain},
		{"other operators than the log's are given", manned, other},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := recorded(t, "03-insufficient-funds")
			check := []string{"check", "--counterparty", "shop.example", "--amount", "0.01", "--asset", "USDC", "--dir", root}
			if c.logged != "" {
				check = append(check, "--guard-config", string(c.logged))
			}
			if _, errs, status := answer(t, check...); status == 1 || status == 2 {
				t.Fatal(errs)
			}
			a := &app{stderr: os.Stderr, env: system()}
			g, x, err := a.openGuard(t.Context(), rootOptions{dir: path(root)}, guardOptions{config: c.given})
			if err != nil {
				t.Fatal(err)
			}
			defer x.Close()
			want := c.given
			if want == "" {
				want = c.logged
			}
			if ops := g.Policy().Operators; (len(ops) > 0) != (want == manned || want == other) || !g.Log().GoesBy(ops) {
				t.Errorf("the operators are %v, and the log's are others: %v", ops, !g.Log().GoesBy(ops))
			}
			if err := os.Remove(filepath.Join(x.GuardDir(), decision.FileName)); err != nil {
				t.Fatal(err)
			}
			if _, err := g.Log().Read(t.Context()); err == nil || !strings.Contains(err.Error(), "it is gone") {
				t.Errorf("the guard had not read the log: %v", err)
			}
		})
	}
}
