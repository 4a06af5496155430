package main

import (
	"bytes"
	"testing"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
)

func TestAStandingSaysWhatWaitsForAPerson(t *testing.T) {
	for name, test := range map[string]struct {
		standing guard.Standing
		parts    []string
		not      []string
		json     string
	}{
		"all quiet": {
			guard.Standing{PolicyHash: "abc", Log: "/r/guard/decisions.ndjson", Operators: []decision.Operator{{Name: "alice"}}},
			[]string{"guard      judges\n", "policy     the built-in defaults\n", "hash       abc\n", `decisions  "/r/guard/decisions.ndjson", 0 lines`, "reviews    0 pending reviews\n", "operators  1\n"},
			[]string{"settlewatch", "frozen", "verify"},
			`{"ready":true,"policy_hash":"abc","log":"/r/guard/decisions.ndjson","lines":0,"torn":false,"other_policy":false,"frozen":[],"pending_reviews":0,"active_holds":0,` +
				`"open_operations":0,"unacknowledged_damage":0,"operators":1}`,
		},
		"all at once": {
			guard.Standing{
				Policy: "/p.json", PolicyHash: "abc", Log: "/l", Lines: 1234, Torn: true, Pending: 2, Holds: 1, Open: 3, Damaged: 1, OtherPolicy: true, LoggedPath: "/old.json",
				Frozen:     []decision.Frozen{{Scope: "all", Reason: "to \x1b[31mlook"}, {Scope: "shop.example"}},
				Suggestion: "2 of 3 pending reviews wait only because of the past",
			},
			[]string{
				`policy     "/p.json"`, `the log was last written under another policy ("/old.json")`, `"/l", 1,234 lines`, "it ends in a part of a line",
				`frozen     every payment is blocked: "to look"`, "frozen     every payment to shop.example is blocked\n",
				"2 pending reviews: settlewatch review list --dir r --guard-config p.json", "1 active hold: settlewatch hold list --dir r", "3 open operations: settlewatch list --dir r and",
				"settlewatch resolve RUN OPERATION --dir r --guard-config p.json --as settled|failed", "1 run with damage nobody acknowledged: settlewatch damage list", "none: an approval could be the agent's own; settlewatch doctor --dir r",
				"\n2 of 3 pending reviews wait only because of the past\n",
			},
			nil,
			`{"ready":true,"policy":"/p.json","policy_hash":"abc","log":"/l","lines":1234,"torn":true,"other_policy":true,"frozen":[{"scope":"all","reason":"to look"},{"scope":"shop.example","reason":""}],` +
				`"pending_reviews":2,"active_holds":1,"open_operations":3,"unacknowledged_damage":1,"operators":0,"suggestion":"2 of 3 pending reviews wait only because of the past"}`,
		},
		"a policy that cannot be read": {
			// Of the policy that judges meanwhile nothing is said: it is nobody's.
			guard.Standing{Ready: "no such file; name another", Policy: "/p.json", PolicyHash: "of the defaults", OtherPolicy: true, Log: "/l"},
			[]string{"guard      cannot judge, every check is a review: no such file; name another\n", `"/p.json"`},
			[]string{"of the defaults", "another policy"},
			`{"ready":false,"problem":"no such file; name another","policy":"/p.json","log":"/l","lines":0,"torn":false,"other_policy":false,"frozen":[],"pending_reviews":0,"active_holds":0,` +
				`"open_operations":0,"unacknowledged_damage":0,"operators":0}`,
		},
		"a log that does not verify": {
			guard.Standing{Unsound: "line 2: its sig is wrong", Log: "/l", PolicyHash: "abc"},
			[]string{"it does not verify, every check is a review: line 2: its sig is wrong"},
			nil,
			`{"ready":false,"policy_hash":"abc","log":"/l","lines":0,"unsound":"line 2: its sig is wrong","torn":false,"other_policy":false,"frozen":[],"pending_reviews":0,"active_holds":0,` +
				`"open_operations":0,"unacknowledged_damage":0,"operators":0}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			a := &app{stdout: &out, env: system()}
			o := guarded{rootOptions: rootOptions{dir: "r"}, guardOptions: guardOptions{config: "p.json"}}
			a.showStanding(&test.standing, o.after)
			contains(t, name, a.out.String(), test.parts...)
			lacks(t, name, a.out.String(), test.not...)
			if got := string(encodeJSON(standingJSON(&test.standing), 0)); got != test.json {
				t.Errorf("the document is\n%s, want\n%s", got, test.json)
			}
		})
	}
}
