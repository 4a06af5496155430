package approval

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard/canon"
)

type vector struct {
	Name     string
	Op       string
	Args     string `json:"args_json"`
	Expected json.RawMessage
	Hashed   string `json:"hashed_json"`
	HashJCS  string `json:"content_hash_jcs"`
}

func vectors(t testing.TB) (decided, refused []vector) {
	t.Helper()
	src, err := os.ReadFile(filepath.Join("testdata", "gate.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Format     string
		Vectors    []vector
		MustRefuse []vector `json:"must_refuse"`
	}
	if err := json.Unmarshal(src, &file); err != nil {
		t.Fatal(err)
	}
	if file.Format != "chp-gate/1" || len(file.Vectors) < 80 || len(file.MustRefuse) < 12 {
		t.Fatalf("got %d and %d vectors of format %q", len(file.Vectors), len(file.MustRefuse), file.Format)
	}
	return file.Vectors, file.MustRefuse
}

// call is the arguments of a vector: without a policy the default one counts,
// without a total nothing was committed.
type call struct {
	action    Action
	policy    Policy
	committed float64
	approver  string
}

func parseCall(src string) (call, error) {
	var doc jsjson.Doc
	if err := doc.Parse([]byte(src)); err != nil {
		return call{}, err
	}
	c := call{policy: DefaultPolicy()}
	err := members(doc.Root(), []string{"action", "policy", "committed_today", "approver"}, []string{"action"}, func(key string, v jsjson.Node) (err error) {
		switch key {
		case "action":
			c.action, err = ParseAction(v)
		case "policy":
			c.policy, err = ParsePolicy(v)
		case "committed_today":
			c.committed, err = double(v)
		case "approver":
			c.approver, err = text(v)
		}
		return err
	})
	return c, err
}

func (c call) run(op string) (Result, error) {
	if op == "approve_human" {
		return ApproveHuman(c.action, c.policy, c.committed, c.approver)
	}
	return Evaluate(c.action, c.policy, c.committed)
}

func Test12EveryGateVectorGivesTheWholeResult(t *testing.T) {
	decided, _ := vectors(t)
	for _, v := range decided {
		t.Run(v.Name, func(t *testing.T) {
			c, err := parseCall(v.Args)
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.run(v.Op)
			if err != nil {
				t.Fatal(err)
			}
			var want Result
			if err := json.Unmarshal(v.Expected, &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if text, err := hashed(got, c.action, canon.Float); err != nil || string(text) != v.Hashed {
				t.Errorf("hashed %s, %v\nwant   %s", text, err, v.Hashed)
			}
			text, err := hashed(got, c.action, canon.JCS)
			if v.HashJCS != "" && (err != nil || canon.Sum(text) != v.HashJCS) {
				t.Errorf("under the later rule: %s, %v", text, err)
			}
			assertKeys(t, got, v.Expected)
		})
	}
}

// assertKeys holds the result's JSON to the keys of the protocol.
func assertKeys(t *testing.T, got Result, want json.RawMessage) {
	t.Helper()
	src, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var x, y any
	if err := json.Unmarshal(src, &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(want, &y); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(y, x); diff != "" {
		t.Error(diff)
	}
}

func Test13WhatMustBeRefusedIsNeverAllowed(t *testing.T) {
	_, refused := vectors(t)
	for _, v := range refused {
		c, err := parseCall(v.Args)
		if err == nil {
			var r Result
			r, err = c.run(v.Op)
			if r.State != Blocked || r.Allowed {
				t.Errorf("%s: %+v", v.Name, r)
			}
		}
		if err == nil {
			t.Errorf("%s: it came to a decision; it is an input error here", v.Name)
		}
	}
}
