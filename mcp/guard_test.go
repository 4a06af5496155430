package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mcplib "github.com/mark3labs/mcp-go/mcp"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

var _ Guard = (*guard.Guard)(nil)

// fakeGuard is a Guard made of functions.
type fakeGuard struct {
	check    func(context.Context, guard.Request) (*guard.Verdict, error)
	review   func(context.Context, string, time.Duration) (*guard.ReviewView, error)
	headroom func(context.Context, guard.HeadroomQuery) (*guard.Headroom, error)
	release  func(context.Context, string, string) error
	resolved func([]decision.Ref) ([]*decision.Resolved, error)
}

func (f *fakeGuard) Check(ctx context.Context, r guard.Request) (*guard.Verdict, error) {
	return f.check(ctx, r)
}

func (f *fakeGuard) Review(ctx context.Context, id string, wait time.Duration) (*guard.ReviewView, error) {
	return f.review(ctx, id, wait)
}

func (f *fakeGuard) Headroom(ctx context.Context, q guard.HeadroomQuery) (*guard.Headroom, error) {
	return f.headroom(ctx, q)
}

func (f *fakeGuard) ReleaseHold(ctx context.Context, id, actor string) error {
	return f.release(ctx, id, actor)
}

func (f *fakeGuard) Resolutions(_ context.Context, refs []decision.Ref) ([]*decision.Resolved, error) {
	if f.resolved == nil {
		return make([]*decision.Resolved, len(refs)), nil
	}
	return f.resolved(refs)
}

func guarded(t testing.TB, g Guard) *service {
	t.Helper()
	s, err := build(&fake{}, Options{Guard: g, Toolsets: []string{"guard"}}, overStdio)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func askGuard(t *testing.T, g Guard, tool, arguments string) (reply, bool) {
	t.Helper()
	return askOf(t, guarded(t, g), tool, arguments)
}

func verdicts(v *guard.Verdict) *fakeGuard {
	return &fakeGuard{check: func(context.Context, guard.Request) (*guard.Verdict, error) { return v, nil }}
}

func reviews(r *guard.ReviewView) *fakeGuard {
	return &fakeGuard{review: func(context.Context, string, time.Duration) (*guard.ReviewView, error) { return r, nil }}
}

const (
	simple = `{"counterparty":"shop.example","amount":"0.05"}`
	usdc   = "eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
	offer  = `{"scheme":"exact","network":"base","maxAmountRequired":"50000","resource":"https://shop.example/a","description":"<a> \u00e9 & \ud83d\ude00","mimeType":"application/json",` +
		`"payTo":"0x737143f2900a2b2c6e16a4c3a35ca92cd170b7d1","maxTimeoutSeconds":60,"asset":"0x833589fcd6edb6e08f4c7c32d4f71b54bda02913","extra":{"name":"USDC","version":"2"},` +
		`"outputSchema":{"input":{"type":"http","method":"GET"},"output":null,"n":1e30}}`
)

func id(text string) *string { return &text }

var (
	noon    = time.Date(2026, 11, 30, 12, 0, 0, 5_000_000, time.FixedZone("", 3600))
	history = decision.Reason{Rule: "history", Detail: "2 operations with shop.example: 1 full, 1 partial, 1 open, 0 blind; spent 0.05 USDC and held 0 in 24 h"}
	checked = decision.Checked{Events: 8, Runs: 2, Through: "2026-11-30T11:00:00.000Z"}
)

func TestACheckPassesTheQuestionOn(t *testing.T) {
	for arguments, want := range map[string]guard.Request{
		simple: {Counterparty: "shop.example", Amount: "0.05"},
		`{"counterparty":"https://shop.example/a","amount":"12345678901234567890123.000000001","asset":"USDC","template":"my_own-1","resource":"mcp://tool/x","pay_to":"0xABC","hold":true,"review_id":"r-1"}`: {
			Counterparty: "https://shop.example/a", Amount: "12345678901234567890123.000000001", Asset: "USDC", Template: "my_own-1", Resource: "mcp://tool/x", PayTo: "0xABC", Hold: true, ReviewID: "r-1"},
		`{"offer":` + offer + `,"hold":false}`:     {Offer: json.RawMessage(offer)},
		`{"offer": {"payTo":"a" , "amount":"0"} }`: {Offer: json.RawMessage(`{"payTo":"a" , "amount":"0"}`)},
		`{"offer":{}}`: {Offer: json.RawMessage(`{}`)},
		`{"offer":{"PAYTO":null,"x":[[{}]]},"amount":"0","counterparty":"\ud800"}`: {Offer: json.RawMessage(`{"PAYTO":null,"x":[[{}]]}`), Amount: "0", Counterparty: "\xed\xa0\x80"},
	} {
		var got guard.Request
		g := &fakeGuard{check: func(_ context.Context, r guard.Request) (*guard.Verdict, error) {
			got = r
			return &guard.Verdict{Decision: guard.Allow, Reasons: []decision.Reason{history}, Checked: checked}, nil
		}}
		if r, isError := askGuard(t, g, "check_before_pay", arguments); isError {
			t.Errorf("%.80s was refused: %+v", arguments, r.Content)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%.80s:\n%s", arguments, diff)
		}
	}
}

func TestWhatIsNoQuestionToTheGuardIsRefused(t *testing.T) {
	const (
		members = `use counterparty, amount, asset, template, offer, resource, pay_to, hold, review_id`
		display = `text that matches ^(0|[1-9][0-9]*)(\.[0-9]+)?$ of 1 to 2048 characters, such as "0.05"`
		atomic  = `text that matches ^(0|[1-9][0-9]*)$ of 1 to 2048 characters, such as "50000"`
		either  = `give counterparty and amount, or the seller's offer as received`
		leave   = `leave it out: of an offer, payTo, amount, asset, network and scheme are judged`
	)
	long := strings.Repeat("x", 2049)
	for name, test := range map[string]struct{ tool, arguments, want string }{
		"nothing":                            {"check_before_pay", `{}`, `"counterparty" is missing. try: ` + either},
		"no amount":                          {"check_before_pay", `{"counterparty":"a"}`, `"amount" is missing. try: ` + either},
		"no counterparty":                    {"check_before_pay", `{"amount":"1"}`, `"counterparty" is missing. try: ` + either},
		"an unknown member":                  {"check_before_pay", `{"counterparty":"a","amount":"1","approve":true}`, `there is no member "approve". try: ` + members},
		"a policy in the call":               {"check_before_pay", `{"counterparty":"a","amount":"1","policy":{"reviewAbove":"100"}}`, `there is no member "policy". try: ` + members},
		"an amount that is a number":         {"check_before_pay", `{"counterparty":"a","amount":0.05}`, `"amount" must be text, not the number 0.05. try: amounts are text, put it in quotes: "0.05"`},
		"a whole number":                     {"check_before_pay", `{"counterparty":"a","amount":5}`, `"amount" must be text, not the number 5. try: amounts are text, put it in quotes: "5"`},
		"a number with an exponent":          {"check_before_pay", `{"counterparty":"a","amount":5e-2}`, `"amount" must be text, not the number 5e-2. try: amounts are ` + display},
		"a negative number":                  {"check_before_pay", `{"counterparty":"a","amount":-5}`, `"amount" must be text, not the number -5. try: amounts are ` + display},
		"an empty amount":                    {"check_before_pay", `{"counterparty":"a","amount":""}`, `"amount" is empty. try: ` + display},
		"a signed amount":                    {"check_before_pay", `{"counterparty":"a","amount":"+1"}`, `"amount" does not have the form it must have. try: ` + display},
		"a negative amount":                  {"check_before_pay", `{"counterparty":"a","amount":"-1"}`, `"amount" does not have the form it must have. try: ` + display},
		"an amount with an exponent":         {"check_before_pay", `{"counterparty":"a","amount":"1e3"}`, `"amount" does not have the form it must have. try: ` + display},
		"a padded amount":                    {"check_before_pay", `{"counterparty":"a","amount":"007"}`, `"amount" does not have the form it must have. try: ` + display},
		"an amount with a comma":             {"check_before_pay", `{"counterparty":"a","amount":"1,5"}`, `"amount" does not have the form it must have. try: ` + display},
		"an amount with a space":             {"check_before_pay", `{"counterparty":"a","amount":"1 "}`, `"amount" does not have the form it must have. try: ` + display},
		"an amount with a line feed":         {"check_before_pay", `{"counterparty":"a","amount":"1\n"}`, `"amount" does not have the form it must have. try: ` + display},
		"an amount that ends in a point":     {"check_before_pay", `{"counterparty":"a","amount":"1."}`, `"amount" does not have the form it must have. try: ` + display},
		"an amount that begins with a point": {"check_before_pay", `{"counterparty":"a","amount":".5"}`, `"amount" does not have the form it must have. try: ` + display},
		"an amount in other digits":          {"check_before_pay", `{"counterparty":"a","amount":"٣"}`, `"amount" does not have the form it must have. try: ` + display},
		"a hexadecimal amount":               {"check_before_pay", `{"counterparty":"a","amount":"0x10"}`, `"amount" does not have the form it must have. try: ` + display},
		"a null amount":                      {"check_before_pay", `{"counterparty":"a","amount":null}`, `"amount" must be text, not null. try: ` + display},
		"a repeated amount":                  {"check_before_pay", `{"counterparty":"a","amount":"1","amount":"1"}`, `"amount" is given more than once. try: ` + members},
		"a repeated amount, spelled anew":    {"check_before_pay", `{"counterparty":"a","amount":"1","amoun\u0074":"100"}`, `"amount" is given more than once. try: ` + members},
		"an amount over 2048 bytes":          {"check_before_pay", `{"counterparty":"a","amount":"1` + strings.Repeat("0", 2048) + `"}`, `"amount" is 2049 bytes long, the most is 2048. try: ` + members},
		"a counterparty over 2048 bytes":     {"check_before_pay", `{"counterparty":"` + long + `","amount":"1"}`, `"counterparty" is 2049 bytes long, the most is 2048. try: ` + members},
		"an empty counterparty":              {"check_before_pay", `{"counterparty":"","amount":"1"}`, `"counterparty" is empty. try: text of 1 to 2048 characters`},
		"an offer that is text":              {"check_before_pay", `{"offer":"{}"}`, `"offer" must be an object, not the text "{}". try: an object`},
		"a list of offers":                   {"check_before_pay", `{"offer":[` + offer + `]}`, `"offer" must be an object, not a list. try: an object`},
		"a repeated key in an offer":         {"check_before_pay", `{"offer":{"payTo":"a","amount":"1","amount":"2"}}`, `"offer"."amount" is given more than once. try: ` + members},
		"one deep in it":                     {"check_before_pay", `{"offer":{"payTo":"a","amount":"1","extra":{"x":[{"name":1,"name":1}]}}}`, `"offer"."extra"."x"[0]."name" is given more than once. try: ` + members},
		"an offer's amount as a number":      {"check_before_pay", `{"offer":{"payTo":"a","amount":50000}}`, `"offer"."amount" must be text, not the number 50000. try: amounts are text, put it in quotes: "50000"`},
		"one of version 1":                   {"check_before_pay", `{"offer":{"payTo":"a","maxAmountRequired":5e4}}`, `"offer"."maxAmountRequired" must be text, not the number 5e4. try: amounts are ` + atomic},
		"an offer's amount with a fraction":  {"check_before_pay", `{"offer":{"payTo":"a","amount":"0.05"}}`, `"offer"."amount" does not have the form it must have. try: ` + atomic},
		"an offer's amount, padded":          {"check_before_pay", `{"offer":{"payTo":"a","amount":"050000"}}`, `"offer"."amount" does not have the form it must have. try: ` + atomic},
		"an offer's amount, empty":           {"check_before_pay", `{"offer":{"payTo":"a","amount":""}}`, `"offer"."amount" is empty. try: ` + atomic},
		"an address that is a number":        {"check_before_pay", `{"offer":{"payTo":17,"amount":"1"}}`, `"offer"."payTo" must be text, not the number 17. try: put it in quotes: "17"`},
		"an address that is null":            {"check_before_pay", `{"offer":{"payTo":null,"amount":"1"}}`, `"offer"."payTo" must be text, not null. try: text of 1 to 2048 characters`},
		"a long text in an offer":            {"check_before_pay", `{"offer":{"payTo":"a","amount":"1","description":"` + long + `"}}`, `"offer"."description" is 2049 bytes long, the most is 2048. try: ` + leave},
		"an offer that is too large":         {"check_before_pay", `{"offer":{"payTo":"a","amount":"1","x":[` + strings.Repeat("0,", 32768) + `0]}}`, `"offer" is 65570 bytes long, the most is 65536. try: ` + leave},
		"a hold in words":                    {"check_before_pay", `{"counterparty":"a","amount":"1","hold":"true"}`, `"hold" must be true or false, not the text "true". try: true or false`},
		"a template path":                    {"check_before_pay", `{"counterparty":"a","amount":"1","template":"../x"}`, `"template" does not have the form it must have. try: text that matches ^[A-Za-z0-9_-]+$ of 1 to 128 characters`},
		"no review":                          {"get_review_status", `{}`, `"review_id" is missing. try: use review_id, wait_seconds (needed: review_id)`},
		"a decision":                         {"get_review_status", `{"review_id":"r","decision":"approved"}`, `there is no member "decision". try: use review_id, wait_seconds (needed: review_id)`},
		"a wait too long":                    {"get_review_status", `{"review_id":"r","wait_seconds":56}`, `"wait_seconds" is too large. try: a whole number from 0 to 55`},
		"an unknown member of headroom":      {"get_headroom", `{"amount":"1"}`, `there is no member "amount". try: use counterparty, asset`},
		"no hold":                            {"release_hold", `{}`, `"hold_id" is missing. try: use hold_id (needed: hold_id)`},
		"a hold that is a number":            {"release_hold", `{"hold_id":7}`, `"hold_id" must be text, not the number 7. try: put it in quotes: "7"`},
		"a hold that is too long":            {"release_hold", `{"hold_id":"` + long[:129] + `"}`, `"hold_id" is too long. try: text of 1 to 128 characters`},
	} {
		t.Run(name, func(t *testing.T) {
			got, isError := askGuard(t, &fakeGuard{}, test.tool, test.arguments) // a call of the guard would panic
			if !isError || len(got.Content) != 1 || got.Content[0].Text != "E_INPUT: "+test.want || got.Structured != nil {
				t.Errorf("the refusal is\n%+v, want\nE_INPUT: %s", got.Content, test.want)
			}
		})
	}
}

func TestAVerdictHasTheMembersOfTheContractInOrder(t *testing.T) {
	v := &guard.Verdict{
		Decision: guard.Review,
		Reasons: []decision.Reason{
			{Rule: "open_partial", Detail: "1 open operation with \"shop\u202e.example\"\x1b[31m", Evidence: []decision.Ref{{Run: "1796030997497", Operation: id(decision.EncodeID("op\xed\xa0\x80<"))}, {Run: "r2"}}},
			{Rule: "limit:day", Detail: "9.99 + 0 + 0.05 is more than 10", Evidence: []decision.Ref{{Run: "r", Operation: id("")}}, Total: 21},
			history,
		},
		ReviewID: "r-0123456789abcdef",
		Hold:     &guard.Hold{ID: "h-1", Amount: "0.05", Asset: usdc, ExpiresAt: noon},
		Handoff:  &guard.Handoff{Kind: "command", Target: "settlewatch review show r-0123456789abcdef", Instruction: "ask the person who approves payments to run this command and decide"},
		Warnings: []string{"checksum_mismatch", "unsigned_reviews"},
		Shadow:   []decision.Reason{{Rule: "limit:week", Detail: "would be more", Evidence: []decision.Ref{{Run: "r"}}, Total: 3}},
		Checked:  checked,
	}
	const want = `{"decision":"review","reasons":[` +
		`{"rule":"open_partial","detail":"1 open operation with \"shop.example\"","evidence":[{"run_id":"1796030997497","operation_id":"op\ud800<"},{"run_id":"r2","operation_id":null}]},` +
		`{"rule":"limit:day","detail":"9.99 + 0 + 0.05 is more than 10","evidence":[{"run_id":"r","operation_id":""}],"evidence_total":21},` +
		`{"rule":"history","detail":"2 operations with shop.example: 1 full, 1 partial, 1 open, 0 blind; spent 0.05 USDC and held 0 in 24 h"}],` +
		`"review_id":"r-0123456789abcdef",` +
		`"hold":{"hold_id":"h-1","amount":"0.05","asset":"eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913","expires_at":"2026-11-30T11:00:00.005Z"},` +
		`"handoff":{"kind":"command","target":"settlewatch review show r-0123456789abcdef","instruction":"ask the person who approves payments to run this command and decide"},` +
		`"warnings":["checksum_mismatch","unsigned_reviews"],"shadow":[{"rule":"limit:week","detail":"would be more"}],` +
		`"checked":{"events":8,"runs":2,"through":"2026-11-30T11:00:00.000Z"}}`
	got, _ := askGuard(t, verdicts(v), "check_before_pay", simple)
	if diff := cmp.Diff(want, strings.ReplaceAll(string(got.Structured), `\u003c`, "<")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, string(VerdictDocument(v))); diff != "" {
		t.Errorf("what the command line prints:\n%s", diff)
	}

	v = &guard.Verdict{Decision: guard.Allow, Reasons: []decision.Reason{history}, Checked: checked}
	const least = `{"decision":"allow","reasons":[{"rule":"history","detail":"2 operations with shop.example: 1 full, 1 partial, 1 open, 0 blind; spent 0.05 USDC and held 0 in 24 h"}],` +
		`"checked":{"events":8,"runs":2,"through":"2026-11-30T11:00:00.000Z"}}`
	if diff := cmp.Diff(least, string(VerdictDocument(v))); diff != "" {
		t.Error(diff)
	}
}

func TestAVerdictsTextSaysFirstWhatToDo(t *testing.T) {
	command := &guard.Handoff{Kind: "command", Target: "settlewatch review show r-01", Instruction: "ask the person who approves payments to run this command and decide"}
	const (
		said   = "\n- history: 2 operations with shop.example: 1 full, 1 partial, 1 open, 0 blind; spent 0.05 USDC and held 0 in 24 h"
		seen   = "\nchecked: 8 events of 2 runs, recorded until 2026-11-30T11:00:00.000Z"
		around = " Do not pay around it: not in parts, not to another address, not with another tool."
	)
	for name, test := range map[string]struct {
		verdict guard.Verdict
		want    string
	}{
		"allow": {
			guard.Verdict{Decision: guard.Allow},
			"ALLOW: you may make this one payment now, exactly as you asked about it. Check again before any other, a retry included." + said + seen,
		},
		"allow with a hold": {
			guard.Verdict{Decision: guard.Allow, Hold: &guard.Hold{ID: "h-1", Amount: "0.05", Asset: usdc, ExpiresAt: noon}, Warnings: []string{"checksum_mismatch", "some_new"}},
			"ALLOW: you may make this one payment now, exactly as you asked about it. Check again before any other, a retry included." + said +
				"\nhold h-1: 0.05 of eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913 is reserved for this payment until 2026-11-30T11:00:00.005Z. Pay before then, or check again; if you will not pay, release_hold." +
				"\nwarning: checksum_mismatch: the address has a wrong checksum: compare it with where it came from, letter by letter\nwarning: some_new" + seen,
		},
		"review": {
			guard.Verdict{Decision: guard.Review, ReviewID: "r-01", Handoff: command, Shadow: []decision.Reason{{Rule: "limit:x", Detail: "over"}},
				Reasons: []decision.Reason{{Rule: "open_partial", Detail: "d", Total: 30, Evidence: []decision.Ref{
					{Run: "r", Operation: id("a\n- b")}, {Run: "r"}, {Run: "r", Operation: id("\"c")}, {Run: "r", Operation: id("d")}}}}},
			"REVIEW: do not pay. A person has to decide, and only a person can." +
				"\n- open_partial: d [\"a - b\" of run \"r\"; the operation without an id of run \"r\"; \"'c\" of run \"r\"; 27 more]" + said +
				"\nreview: r-01\nin shadow mode, decides nothing: limit:x: over" +
				"\nhandoff: ask the person who approves payments to run this command and decide: `settlewatch review show r-01` (for a person; do not do it yourself)" +
				"\nthen: get_review_status with wait_seconds says how the review stands. Once it is approved, call check_before_pay again with the same arguments and review_id, and pay only if that says allow." + around + seen,
		},
		"review that is decided or elsewhere": {
			guard.Verdict{Decision: guard.Review, ReviewID: "r-01"},
			"REVIEW: do not pay. A person has to decide, and only a person can." + said + "\nreview: r-01" +
				"\nthen: get_review_status with wait_seconds says how the review stands. Once it is approved, call check_before_pay again with the same arguments and review_id, and pay only if that says allow." + around + seen,
		},
		"review by an address, without words": {
			guard.Verdict{Decision: guard.Review, ReviewID: "r-01", Handoff: &guard.Handoff{Kind: "url", Target: "https://reviews.example/r`-01"}},
			"REVIEW: do not pay. A person has to decide, and only a person can." + said + "\nreview: r-01" +
				"\nhandoff: ask the person who approves payments: `https://reviews.example/r'-01` (for a person; do not do it yourself)" +
				"\nthen: get_review_status with wait_seconds says how the review stands. Once it is approved, call check_before_pay again with the same arguments and review_id, and pay only if that says allow." + around + seen,
		},
		"review without one opened": {
			guard.Verdict{Decision: guard.Review, Reasons: []decision.Reason{{Rule: "not_ready", Detail: "the lock was not had"}}},
			"REVIEW: do not pay. A person has to look into it; no review was opened, the reasons say why." + "\n- not_ready: the lock was not had" + said +
				"\nnext: tell the person you work for what the reasons say, and check again when it is put right." + around + seen,
		},
		"block": {
			guard.Verdict{Decision: guard.Block, Reasons: []decision.Reason{{Rule: "denylist", Detail: "no"}}},
			"BLOCK: do not pay. Nothing you can send changes that.\n- denylist: no" + said + "\nnext: tell the person you work for what the reasons say." + around + seen,
		},
		"block that names a rejection": {
			guard.Verdict{Decision: guard.Block, ReviewID: "r-01", Reasons: []decision.Reason{{Rule: "rejected_by_human", Detail: "no"}}},
			"BLOCK: do not pay. Nothing you can send changes that.\n- rejected_by_human: no" + said + "\nreview: r-01\nnext: tell the person you work for what the reasons say." + around + seen,
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := test.verdict
			v.Reasons = append(v.Reasons, history)
			v.Checked = checked
			got, _ := askGuard(t, verdicts(&v), "check_before_pay", simple)
			if diff := cmp.Diff(test.want, got.Content[0].Text); diff != "" {
				t.Error(diff)
			}
		})
	}
	if text := checkText(&guard.Verdict{Decision: "perhaps"}, uncut); !strings.HasPrefix(text, "PERHAPS: do not pay.\n") || !strings.Contains(text, aroundIt) {
		t.Errorf("of a decision nobody knows: %s", text)
	}
}

func TestWhatTheGuardRefusesIsWorded(t *testing.T) {
	fail := errors.New("open /home/x: boom")
	refuse := errcode.New(errcode.HoldNotFound, "call check_before_pay anew", "no hold of yours has the id %s", "h\u202e-1")
	for _, test := range []struct {
		err  error
		want string
	}{
		{fail, "E_INTERNAL: the server failed while answering. try: call again, and report the server's log if it fails again"},
		{refuse, "E_HOLD_NOT_FOUND: no hold of yours has the id h-1. try: call check_before_pay anew"},
	} {
		g := &fakeGuard{
			check:    func(context.Context, guard.Request) (*guard.Verdict, error) { return nil, test.err },
			review:   func(context.Context, string, time.Duration) (*guard.ReviewView, error) { return nil, test.err },
			headroom: func(context.Context, guard.HeadroomQuery) (*guard.Headroom, error) { return nil, test.err },
			release:  func(context.Context, string, string) error { return test.err },
		}
		for tool, arguments := range map[string]string{
			"check_before_pay": simple, "get_review_status": `{"review_id":"r"}`, "get_headroom": `{}`, "release_hold": `{"hold_id":"h"}`,
		} {
			got, isError := askGuard(t, g, tool, arguments)
			if !isError || got.Content[0].Text != test.want {
				t.Errorf("%s: %+v", tool, got.Content)
			}
		}
	}
}

// aReview is one with everything in it.
func aReview() *guard.ReviewView {
	return &guard.ReviewView{
		ID: "r-0123456789ab", Status: "rejected", CreatedAt: noon, DecidedAt: noon.Add(time.Minute), Note: "not \x1b[31mthis\nmonth",
		Counterparty: "https://shop.example/a", Amount: "0.05", Asset: "USDC", Template: "escrow-arc",
		Reasons: []decision.Reason{{Rule: "review_above", Detail: "0.05 is more than 0.01"}, history},
		Names:   []string{"0x737143f2900a2b2c6e16a4c3a35ca92cd170b7d1", "shop.example"}, PayTo: "0x737143f2900a2b2c6e16a4c3a35ca92cd170b7d1",
		Resource: "https://shop.example/a", Network: "eip155:8453", AskedBy: "agent-7", DecidedBy: "unsigned (could be the agent)", ExpiresAt: noon.Add(24 * time.Hour),
		Facts: []decision.Fact{{Name: "spent", Value: "1", Origin: "trace"}}, Warnings: []string{"unsigned_reviews"},
	}
}

const aReviewDocument = `{"review_id":"r-0123456789ab","status":"rejected","created_at":"2026-11-30T11:00:00.005Z","decided_at":"2026-11-30T11:01:00.005Z","note":"not this month",` +
	`"counterparty":"https://shop.example/a","amount":"0.05","asset":"USDC","template":"escrow-arc","reasons":[{"rule":"review_above","detail":"0.05 is more than 0.01"},` +
	`{"rule":"history","detail":"2 operations with shop.example: 1 full, 1 partial, 1 open, 0 blind; spent 0.05 USDC and held 0 in 24 h"}],` +
	`"names":["0x737143f2900a2b2c6e16a4c3a35ca92cd170b7d1","shop.example"],"pay_to":"0x737143f2900a2b2c6e16a4c3a35ca92cd170b7d1","resource":"https://shop.example/a","network":"eip155:8453",` +
	`"asked_by":"agent-7","decided_by":"unsigned (could be the agent)","expires_at":"2026-12-01T11:00:00.005Z","warnings":["unsigned_reviews"]}`

func TestAReviewHasTheMembersOfTheContractInOrder(t *testing.T) {
	got, _ := askGuard(t, reviews(aReview()), "get_review_status", `{"review_id":"r-0123456789ab"}`)
	if diff := cmp.Diff(aReviewDocument, string(got.Structured)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(aReviewDocument, string(ReviewDocument(aReview()))); diff != "" {
		t.Errorf("what the command line prints:\n%s", diff)
	}
	const text = `REJECTED: do not pay, in no other way either.
review r-0123456789ab: 0.05 of USDC to "https://shop.example/a", address 0x737143f2900a2b2c6e16a4c3a35ca92cd170b7d1 on eip155:8453, for "https://shop.example/a"
opened 2026-11-30T11:00:00.005Z for "agent-7"; decided 2026-11-30T11:01:00.005Z by unsigned (could be the agent)
note: "not this month"
- review_above: 0.05 is more than 0.01
- history: 2 operations with shop.example: 1 full, 1 partial, 1 open, 0 blind; spent 0.05 USDC and held 0 in 24 h
warning: unsigned_reviews: no operator's key is set up, so anybody who can write here could have decided a review`
	if diff := cmp.Diff(text, got.Content[0].Text); diff != "" {
		t.Error(diff)
	}

	bare := &guard.ReviewView{ID: "r-02", Status: "pending", CreatedAt: noon, Counterparty: "a", Amount: "1", Asset: "b", ExpiresAt: noon,
		Handoff: &guard.Handoff{Kind: "url", Target: "https://x.example/r-02", Instruction: "open it"}}
	const least = `{"review_id":"r-02","status":"pending","created_at":"2026-11-30T11:00:00.005Z","counterparty":"a","amount":"1","asset":"b","reasons":[],"names":[],` +
		`"pay_to":null,"resource":null,"network":null,"expires_at":"2026-11-30T11:00:00.005Z","handoff":{"kind":"url","target":"https://x.example/r-02","instruction":"open it"}}`
	got, _ = askGuard(t, reviews(bare), "get_review_status", `{"review_id":"r-02","wait_seconds":0}`)
	if diff := cmp.Diff(least, string(got.Structured)); diff != "" {
		t.Error(diff)
	}
	if want := "\nhandoff: open it: `https://x.example/r-02` (for a person; do not do it yourself)\nthen: call get_review_status with wait_seconds"; !strings.Contains(got.Content[0].Text, want) {
		t.Errorf("the text is %s", got.Content[0].Text)
	}
}

func TestAListOfReviewsHoldsThemAsTheyAreShown(t *testing.T) {
	if got := string(ReviewsDocument(&guard.ReviewPage{})); got != `{"reviews":[]}` {
		t.Errorf("of none: %s", got)
	}
	page := &guard.ReviewPage{Reviews: []guard.ReviewView{*aReview(), *aReview()}, NextCursor: "on", Suggestion: "baseline"}
	want := `{"reviews":[` + aReviewDocument + `,` + aReviewDocument + `],"next_cursor":"on"}`
	if diff := cmp.Diff(want, string(ReviewsDocument(page))); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyAnApprovalLeadsOnAndThenToAnotherCheck(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*guard.ReviewView)
		want   string
	}{
		"pending":                  {func(r *guard.ReviewView) { r.Status = "pending" }, "PENDING: do not pay. No person has decided yet; silence is no consent."},
		"approved":                 {func(r *guard.ReviewView) { r.Status = "approved" }, "APPROVED: call check_before_pay again with the same arguments and review_id r-0123456789ab, and pay only if that says allow. It is good for one payment."},
		"rejected":                 {func(r *guard.ReviewView) { r.Status = "rejected" }, "REJECTED: do not pay, in no other way either."},
		"expired":                  {func(r *guard.ReviewView) { r.Status, r.DecidedAt = "expired", time.Time{} }, "EXPIRED: do not pay. Nobody decided in time, and silence is no consent. If the payment is still wanted, call check_before_pay anew."},
		"an approval that expired": {func(r *guard.ReviewView) { r.Status = "expired" }, "EXPIRED: do not pay. The approval was not used in time. If the payment is still wanted, call check_before_pay anew, without this review_id."},
		"used": {func(r *guard.ReviewView) { r.Status, r.Used = "used", &decision.UsedBy{HoldID: "h-1"} },
			"USED: the approval has been spent on one payment. Do not pay on it again; call check_before_pay for another payment."},
		"revoked":        {func(r *guard.ReviewView) { r.Status = "revoked" }, "REVOKED: do not pay. The approval was taken back."},
		"a later status": {func(r *guard.ReviewView) { r.Status = "parked" }, "PARKED: do not pay."},
	} {
		r := aReview()
		test.change(r)
		text := reviewText(r, uncut)
		first, rest, _ := strings.Cut(text, "\n")
		if first != test.want {
			t.Errorf("%s: %s", name, first)
		}
		if ends := strings.Contains(rest, "; ends 2026-12-01"); ends != (name == "pending" || name == "approved") {
			t.Errorf("%s: %s", name, rest)
		}
		if name == "used" && !strings.Contains(rest, "\nspent on hold h-1\n") {
			t.Errorf("what it was used on is not said: %s", rest)
		}
	}
	r := aReview()
	r.Status, r.Used = "used", &decision.UsedBy{Run: "r", Operation: id("op")}
	if text := reviewText(r, uncut); !strings.Contains(text, "\nspent on \"op\" of run \"r\"\n") {
		t.Errorf("what it was used on is not said: %s", text)
	}
}

func TestHeadroomIsWhatEachLimitLeaves(t *testing.T) {
	var asked guard.HeadroomQuery
	full := &guard.Headroom{Asset: usdc, Limits: []guard.HeadroomLimit{
		{Name: "per_counterparty_limit", Scope: "counterparty", Limit: "5.00", Spent: "1.5", Held: "0.5", Headroom: "3", WindowHours: 24,
			FreesUp: []guard.FreesUp{{At: noon, Amount: "1"}, {At: noon.Add(time.Hour), Amount: "0.5"}}},
		{Name: "busy", Scope: "total", Limit: "10", Spent: "10", Held: "0", Headroom: "0", Counts: true, WindowHours: 1},
		{Name: "day", Scope: "total", Limit: "5.00", Spent: "0", Held: "0", Headroom: "5.00", WindowHours: 24, Uncounted: 2},
	}}
	g := &fakeGuard{headroom: func(_ context.Context, q guard.HeadroomQuery) (*guard.Headroom, error) {
		asked = q
		return full, nil
	}}
	got, _ := askGuard(t, g, "get_headroom", `{"counterparty":"shop.example","asset":"USDC"}`)
	if asked != (guard.HeadroomQuery{Counterparty: "shop.example", Asset: "USDC"}) {
		t.Errorf("asked for %+v", asked)
	}
	const want = `{"asset":"eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913","limits":[` +
		`{"name":"per_counterparty_limit","scope":"counterparty","limit":"5.00","spent":"1.5","held":"0.5","headroom":"3","window_hours":24,` +
		`"frees_up":[{"at":"2026-11-30T11:00:00.005Z","amount":"1"},{"at":"2026-11-30T12:00:00.005Z","amount":"0.5"}]},` +
		`{"name":"busy","scope":"total","limit":"10","spent":"10","held":"0","headroom":"0","window_hours":1,"frees_up":[],"counts":true},` +
		`{"name":"day","scope":"total","limit":"5.00","spent":"0","held":"0","headroom":"5.00","window_hours":24,"frees_up":[],"uncounted":2}]}`
	if diff := cmp.Diff(want, string(got.Structured)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, string(HeadroomDocument(full))); diff != "" {
		t.Errorf("what the command line prints:\n%s", diff)
	}
	const text = `what the limits leave of eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913 (for planning; check_before_pay decides)
- per_counterparty_limit (counterparty, 24 h): 3 of 5.00 left; spent 1.5, held 0.5; frees up 1 at 2026-11-30T11:00:00.005Z, 0.5 at 2026-11-30T12:00:00.005Z
- busy (total, 1 h): 0 of 10 payments left; spent 10, held 0
- day (total, 24 h): 5.00 of 5.00 left; spent 0, held 0; 2 payments cannot be added up, so checks under this limit are reviews unless it is in shadow mode`
	if diff := cmp.Diff(text, got.Content[0].Text); diff != "" {
		t.Error(diff)
	}

	full = &guard.Headroom{Asset: usdc}
	got, _ = askGuard(t, g, "get_headroom", `{}`)
	if want := `{"asset":"` + usdc + `","limits":[]}`; string(got.Structured) != want || !strings.HasPrefix(got.Content[0].Text, "no limit applies to "+usdc) {
		t.Errorf("of no limits: %s %+v", got.Structured, got.Content)
	}
}

func TestAHoldIsReleasedByWhoHasIt(t *testing.T) {
	var id, who string
	g := &fakeGuard{release: func(_ context.Context, hold, actor string) error {
		id, who = hold, actor
		return nil
	}}
	got, isError := askGuard(t, g, "release_hold", `{"hold_id":"h-1"}`)
	if isError || id != "h-1" || who != "" || string(got.Structured) != `{"hold_id":"h-1","released":true}` {
		t.Errorf("%q of %q: %s", id, who, got.Structured)
	}
	if want := "hold h-1 is released: its amount no longer counts. Do not make the payment it was for without a new check_before_pay."; got.Content[0].Text != want {
		t.Errorf("the text is %s", got.Content[0].Text)
	}
	// A transport that knows who asks says so.
	handler := guarded(t, g).mcp.GetTool("release_hold").Handler
	ctx := context.WithValue(t.Context(), callKey{}, &callInfo{fromWire: true, arguments: []byte(`{"hold_id":"h-2"}`), actor: "agent-7"})
	if _, err := handler(ctx, mcplib.CallToolRequest{}); err != nil || id != "h-2" || who != "agent-7" {
		t.Errorf("%q of %q: %v", id, who, err)
	}
}

func TestAWaitForADecisionIsLikeAnyOther(t *testing.T) {
	var asked atomic.Int64
	g := &fakeGuard{review: func(ctx context.Context, id string, wait time.Duration) (*guard.ReviewView, error) {
		if id != "r-1" {
			t.Errorf("asked for %q", id)
		}
		if asked.Add(1) == 1 {
			if wait != 55*time.Second {
				t.Errorf("the first question waits %v", wait)
			}
			<-ctx.Done()
			return nil, fmt.Errorf("wait: %w", ctx.Err())
		}
		if wait != 0 {
			t.Errorf("the second question waits %v", wait)
		}
		return &guard.ReviewView{ID: id, Status: "pending"}, ctx.Err()
	}}
	s := guarded(t, g)
	s.progressEvery = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	c := connectTo(t, ctx, s, 0, patient)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_review_status","_meta":{"progressToken":"p"},"arguments":{"review_id":"r-1","wait_seconds":55}}}`)
	if first := c.must(); first.Method != "notifications/progress" || !bytes.Contains(first.Params, []byte(`"total":55,"message":"waiting for a person to decide"`)) {
		t.Errorf("the first message is %+v %s", first, first.Params)
	}
	stop() // ends the wait, not the answer
	all := c.rest()
	if last := all[len(all)-1]; string(last.ID) != "1" || !bytes.Contains(last.Result, []byte(`"status":"pending"`)) {
		t.Errorf("the answers are %+v", all)
	}
}

func TestWaitsForPeopleDoNotHoldUpChecks(t *testing.T) {
	release := make(chan struct{})
	var waits atomic.Int64
	g := verdicts(&guard.Verdict{Decision: guard.Allow, Reasons: []decision.Reason{history}})
	g.review = func(_ context.Context, id string, _ time.Duration) (*guard.ReviewView, error) {
		waits.Add(1)
		<-release
		return &guard.ReviewView{ID: id, Status: "approved"}, nil
	}
	c := connectTo(t, t.Context(), guarded(t, g), 0, shutdown)
	mustOvertake(t, c, call("other", "check_before_pay", simple), "get_review_status", `{"review_id":"r","wait_seconds":55}`, &waits, release)
}

func TestTheToolsOfTheGuardSayWhatTheyDo(t *testing.T) {
	s := guarded(t, &fakeGuard{})
	for name, want := range map[string]struct{ readOnly, idempotent bool }{
		"check_before_pay":  {false, false}, // a second hold is another one
		"get_review_status": {true, true},
		"get_headroom":      {true, true},
		"release_hold":      {false, true},
	} {
		a := s.mcp.GetTool(name).Tool.Annotations
		if *a.ReadOnlyHint != want.readOnly || *a.IdempotentHint != want.idempotent || *a.DestructiveHint || *a.OpenWorldHint {
			t.Errorf("%s: read only %v, idempotent %v, destructive %v, open world %v", name, *a.ReadOnlyHint, *a.IdempotentHint, *a.DestructiveHint, *a.OpenWorldHint)
		}
	}
	for name := range s.mcp.ListTools() {
		for _, word := range []string{"approve", "reject", "resolve", "freeze"} {
			if strings.Contains(name, word) {
				t.Errorf("an agent is offered %s", name)
			}
		}
	}
	// Hosts cut what all toolsets say together.
	if n := len(traceInstructions) + len("\n\n") + len(guardInstructions); n > hostText {
		t.Errorf("the instructions have %d bytes, hosts show %d", n, hostText)
	}
	for _, word := range []string{"before every payment", "allow:", "review:", "block:", "Only people decide", "decimal text", "as received", "hold: true", "Never pay around"} {
		if !strings.Contains(guardInstructions, word) {
			t.Errorf("the instructions lack %q", word)
		}
	}
}

func TestTheGuardIsOfferedWhereThereIsOne(t *testing.T) {
	for name, test := range map[string]struct {
		options Options
		want    []string
	}{
		"by default, with one":    {Options{Guard: &fakeGuard{}}, []string{"check_before_pay", "get_review_status", "get_headroom", "release_hold", "list_operations"}},
		"by default, without one": {Options{}, []string{"list_operations"}},
		"trace alone":             {Options{Guard: &fakeGuard{}, Toolsets: []string{"trace"}}, []string{"list_operations"}},
		"guard alone":             {Options{Guard: &fakeGuard{}, Toolsets: []string{"guard"}}, []string{"check_before_pay", "get_review_status", "get_headroom", "release_hold"}},
	} {
		s, err := build(&fake{}, test.options, overStdio)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range []string{"check_before_pay", "get_review_status", "get_headroom", "release_hold", "list_operations"} {
			if there := s.mcp.GetTool(tool) != nil; there != slices.Contains(test.want, tool) {
				t.Errorf("%s: %s is there: %v", name, tool, there)
			}
		}
	}
	_, err := build(&fake{}, Options{Toolsets: []string{"guard"}}, overStdio)
	if want := "E_USAGE: offer the toolset guard: this server was started without a guard. try: leave guard out of the toolsets"; err == nil || err.Error() != want {
		t.Errorf("without a guard: %v", err)
	}
}

// stranger draws texts that are hard on an answer.
func stranger(t *rapid.T, label string, most int) string {
	filler := rapid.SampledFrom([]string{"x", "<", "😀", "\x01", "\xed\xa0\x80", "\"", "\u2028", "\xff", "e\u0323", "\x1b[31m", "\n- ", "`"}).Draw(t, label)
	return strings.Repeat(filler, rapid.SampledFrom([]int{0, 1, 50, most}).Draw(t, label+" times"))
}

// strangeID is an id as the log writes it. What is ill-formed never comes out of a
// run file.
func strangeID(t *rapid.T, label string, most int) string {
	return decision.EncodeID(strings.ReplaceAll(stranger(t, label, most), "\xff", "\xed\xbf\xbf"))
}

func strangeReasons(t *rapid.T) (all []decision.Reason) {
	for range rapid.SampledFrom([]int{0, 1, 5, 12}).Draw(t, "reasons") {
		r := decision.Reason{Rule: "limit:" + stranger(t, "rule", 500), Detail: stranger(t, "detail", 2500)}
		for range rapid.SampledFrom([]int{0, 1, 20}).Draw(t, "refs") {
			ref := decision.Ref{Run: strangeID(t, "run", 250)}
			if rapid.Bool().Draw(t, "has an id") {
				ref.Operation = id(strangeID(t, "operation", 20_000))
			}
			r.Evidence = append(r.Evidence, ref)
		}
		if len(r.Evidence) == 20 {
			r.Total = 20 + rapid.IntRange(1, 1<<40).Draw(t, "more")
		}
		all = append(all, r)
	}
	all = slices.Repeat(all, rapid.SampledFrom([]int{1, 12}).Draw(t, "times"))
	return append(all, history)
}

// fitsAndReads holds an answer to its size, its schema and cleanliness.
func fitsAndReads(t *rapid.T, tool string, got answer) {
	if !got.fits() {
		t.Fatalf("the answer does not fit: %d bytes of JSON, %d of text", len(got.json), len(got.text))
	}
	var value any
	if err := json.Unmarshal(got.json, &value); err != nil {
		t.Fatal(err)
	}
	if err := outputs()[tool].compiled().Validate(value); err != nil {
		t.Fatalf("the answer is not as its schema says: %v", err)
	}
	for line := range strings.SplitSeq(got.text, "\n") {
		if plain.Clean(line, 1<<20) != line {
			t.Fatalf("a line is not clean: %q", line)
		}
	}
}

func TestNoVerdictIsTooLargeAndNoneIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := &guard.Verdict{
			Decision: rapid.SampledFrom([]string{guard.Allow, guard.Review, guard.Block}).Draw(t, "decision"),
			Reasons:  strangeReasons(t), Checked: checked, ReviewID: "r-0123456789abcdef01234567",
			Hold:     &guard.Hold{ID: "h-0123456789abcdef01234567", Amount: stranger(t, "amount", 2000), Asset: stranger(t, "asset", 2000), ExpiresAt: noon},
			Handoff:  &guard.Handoff{Kind: "url", Target: "https://x.example/" + stranger(t, "target", 2000), Instruction: stranger(t, "instruction", 2000)},
			Warnings: []string{stranger(t, "warning", 2000), "future_time"},
			Shadow:   strangeReasons(t),
		}
		got := fitting(func(c cut) answer { return answer{text: checkText(v, c), json: verdictJSON(v, c)} })
		fitsAndReads(t, "check_before_pay", got)
		if !strings.HasPrefix(got.text, strings.ToUpper(v.Decision)+": ") || !strings.Contains(got.text, "\nreview: "+v.ReviewID+"\n") || !strings.Contains(got.text, "\nhold "+v.Hold.ID+": ") {
			t.Fatalf("the text is %s", got.text)
		}
		if v.Decision != guard.Allow && !strings.Contains(got.text, aroundIt) {
			t.Fatalf("the text is %s", got.text)
		}
		var shown struct {
			Decision string
			ReviewID string `json:"review_id"`
			Reasons  []struct{ Rule string }
			Hold     struct {
				HoldID string `json:"hold_id"`
			}
		}
		if err := json.Unmarshal(got.json, &shown); err != nil {
			t.Fatal(err)
		}
		if shown.Decision != v.Decision || shown.ReviewID != v.ReviewID || shown.Hold.HoldID != v.Hold.ID || shown.Reasons[len(shown.Reasons)-1].Rule != "history" {
			t.Fatalf("the answer is %+v", shown)
		}
		exact(t, v.Reasons, got.json)
	})
}

// exact checks that evidence is part of what there was, id for id, and that what
// is left out is counted.
func exact(t *rapid.T, reasons []decision.Reason, document []byte) {
	var doc jsjson.Doc
	if err := doc.Parse(document); err != nil {
		t.Fatal(err)
	}
	n := 0
	for shown := range doc.Root().Get("reasons").Elements() {
		if string(shown.Get("rule").Text()) == "history" {
			break // the last; rules before it may have been left out
		}
		r := reasons[n]
		n++
		at, total := 0, 0
		for e := range shown.Get("evidence").Elements() {
			total++
			run, op := string(e.Get("run_id").Text()), e.Get("operation_id")
			same := func(ref decision.Ref) bool {
				if ref.Operation == nil {
					return decision.DecodeID(ref.Run) == run && op.Kind() == jsjson.Null
				}
				return decision.DecodeID(ref.Run) == run && op.Kind() == jsjson.String && decision.DecodeID(*ref.Operation) == string(op.Text())
			}
			for at < len(r.Evidence) && !same(r.Evidence[at]) {
				at++
			}
			if at++; at > len(r.Evidence) {
				t.Fatalf("evidence that there was not: %s", e.Raw())
			}
		}
		if want := max(r.Total, len(r.Evidence)); total < want {
			if got := shown.Get("evidence_total"); got.Kind() != jsjson.Number || int(got.Float()) != want {
				t.Fatalf("%d of %d operations are shown, and counted as %s", total, want, got.Raw())
			}
		} else if shown.Get("evidence_total").Kind() != jsjson.Absent {
			t.Fatalf("nothing was cut, yet: %s", shown.Raw())
		}
	}
}

func TestNoReviewAndNoHeadroomIsTooLarge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := func(label string) string { return stranger(t, label, 1000) }
		r := &guard.ReviewView{
			ID: "r-0123456789abcdef01234567", Status: rapid.SampledFrom([]string{"pending", "approved", "rejected", "expired", "used", "revoked"}).Draw(t, "status"),
			CreatedAt: noon, DecidedAt: noon, Note: text("note"), Counterparty: text("counterparty"), Amount: text("amount"), Asset: text("asset"), Template: text("template"),
			Reasons: strangeReasons(t), PayTo: text("pay_to"), Resource: text("resource"), Network: text("network"), AskedBy: text("asked_by"), DecidedBy: text("decided_by"),
			Handoff: &guard.Handoff{Kind: "command", Target: text("target"), Instruction: text("instruction")},
			Used:    &decision.UsedBy{Run: text("run"), Operation: id(text("operation"))}, Warnings: []string{text("warning")},
		}
		r.Names = slices.Repeat([]string{text("name"), "a"}, rapid.SampledFrom([]int{0, 1, 50}).Draw(t, "names"))
		got := fitting(func(c cut) answer { return answer{text: reviewText(r, c), json: appendReview(nil, r, c)} })
		fitsAndReads(t, "get_review_status", got)
		if !strings.HasPrefix(got.text, strings.ToUpper(r.Status)+": ") || !strings.Contains(got.text, "\nreview "+r.ID+": ") {
			t.Fatalf("the text is %s", got.text)
		}

		h := &guard.Headroom{Asset: text("asset")}
		l := guard.HeadroomLimit{Name: text("name"), Scope: text("scope"), Limit: text("limit"), Spent: text("spent"), Held: text("held"), Headroom: text("headroom"), WindowHours: 24}
		l.FreesUp = slices.Repeat([]guard.FreesUp{{At: noon, Amount: text("frees")}}, 3)
		h.Limits = slices.Repeat([]guard.HeadroomLimit{l}, rapid.SampledFrom([]int{0, 2, 30}).Draw(t, "limits"))
		fitsAndReads(t, "get_headroom", fitting(func(c cut) answer { return answer{text: headroomText(h, c), json: headroomJSON(h, c)} }))
	})
}

// TestTheShortestFormFitsWhateverItSays: there is nothing to fall back to.
func TestTheShortestFormFitsWhateverItSays(t *testing.T) {
	last := cuts[len(cuts)-1]
	for name, filler := range map[string]string{"texts the library escapes": "<", "characters of four bytes": "😀", "quotes": "\"", "backslashes": "\\"} {
		huge := strings.Repeat(filler, 3000)
		way := &guard.Handoff{Kind: "command", Target: huge[:last.way/len(filler)*len(filler)], Instruction: huge}
		reasons := slices.Repeat([]decision.Reason{{Rule: huge, Detail: huge, Evidence: []decision.Ref{{Run: huge}}, Total: 1 << 50}}, 200)
		v := &guard.Verdict{Decision: guard.Review, Reasons: reasons, ReviewID: "r-0123456789abcdef01234567", Handoff: way, Shadow: reasons,
			Hold: &guard.Hold{ID: "h-0123456789abcdef01234567", Amount: huge, Asset: huge}, Warnings: slices.Repeat([]string{huge}, 50), Checked: checked}
		r := &guard.ReviewView{ID: v.ReviewID, Status: statusPending, Note: huge, Counterparty: huge, Amount: huge, Asset: huge, Template: huge, Reasons: reasons,
			Names: slices.Repeat([]string{huge}, 50), PayTo: huge, Resource: huge, Network: huge, AskedBy: huge, DecidedBy: huge, Handoff: way, Warnings: v.Warnings}
		h := &guard.Headroom{Asset: huge, Limits: slices.Repeat([]guard.HeadroomLimit{{Name: huge, Scope: huge, Limit: huge, Spent: huge, Held: huge, Headroom: huge,
			FreesUp: slices.Repeat([]guard.FreesUp{{Amount: huge}}, 3)}}, 50)}
		for what, got := range map[string]answer{
			"verdict":  {text: checkText(v, last), json: verdictJSON(v, last)},
			"review":   {text: reviewText(r, last), json: appendReview(nil, r, last)},
			"headroom": {text: headroomText(h, last), json: headroomJSON(h, last)},
		} {
			if !got.fits() {
				t.Errorf("%s: a %s has %d bytes of JSON and %d of text", name, what, len(got.json), len(got.text))
			}
		}
	}
}

// TestWhatHasRoomIsNotCut: ordinary answers are whole, long ones lose evidence
// before they lose rules.
func TestWhatHasRoomIsNotCut(t *testing.T) {
	v := &guard.Verdict{Decision: guard.Review, Checked: checked}
	for i := range 8 {
		r := decision.Reason{Rule: fmt.Sprintf("limit:%d", i), Detail: strings.Repeat("d", 200), Total: 100}
		for j := range 20 {
			r.Evidence = append(r.Evidence, decision.Ref{Run: "1796030997497", Operation: id(fmt.Sprintf("24accded-0711-4d3c-9df2-4b6a7ad01f%02d", j))})
		}
		v.Reasons = append(v.Reasons, r)
	}
	v.Reasons = append(v.Reasons, history)
	got, _ := askGuard(t, verdicts(v), "check_before_pay", simple)
	if diff := cmp.Diff(string(VerdictDocument(v)), string(got.Structured)); diff != "" {
		t.Error(diff)
	}
	if n := strings.Count(got.Content[0].Text, "\n- limit:"); n != 8 {
		t.Errorf("%d rules are in the text", n)
	}
	for i := range v.Reasons[:8] {
		*v.Reasons[i].Evidence[3].Operation = strings.Repeat("x", 300)
	}
	for range 3 {
		v.Reasons = append(slices.Clone(v.Reasons[:8]), v.Reasons...)
	}
	got, _ = askGuard(t, verdicts(v), "check_before_pay", simple)
	var shown struct{ Reasons []struct{ Evidence []any } }
	if err := json.Unmarshal(got.Structured, &shown); err != nil {
		t.Fatal(err)
	}
	if len(shown.Reasons) != 33 || len(shown.Reasons[0].Evidence) == 0 || len(shown.Reasons[0].Evidence) == 20 {
		t.Errorf("%d rules with %d operations are shown", len(shown.Reasons), len(shown.Reasons[0].Evidence))
	}
}

// FuzzCheck sends any arguments at all: what reaches the guard is what was sent,
// within its bounds, and nothing is ever read as another amount.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(simple))
	f.Add([]byte(`{"offer":` + offer + `,"hold":true,"review_id":"r-1"}`))
	f.Add([]byte(`{"counterparty":"a","amount":0.05}`))
	f.Add([]byte(`{"offer":{"payTo":"a","amount":"1","amount":"2"}}`))
	f.Add([]byte(`{"offer":{"amount":"1","extra":{"a":[{"b":1,"b":2}]}},"amount":"1.0"}`))
	var got *guard.Request
	g := &fakeGuard{check: func(_ context.Context, r guard.Request) (*guard.Verdict, error) {
		got = &r
		return &guard.Verdict{Decision: guard.Block, Reasons: []decision.Reason{history}, Checked: checked}, nil
	}}
	handler := guarded(f, g).mcp.GetTool("check_before_pay").Handler
	f.Fuzz(func(t *testing.T, arguments []byte) {
		got = nil
		ctx := context.WithValue(t.Context(), callKey{}, &callInfo{fromWire: true, arguments: arguments})
		result, err := handler(ctx, mcplib.CallToolRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if line, err := json.Marshal(result); err != nil || len(line) > answerLimit-envelope {
			t.Errorf("the answer has %d bytes: %v", len(line), err)
		}
		if (got == nil) != result.IsError {
			t.Fatalf("refused: %v, asked: %+v", result.IsError, got)
		}
		if got == nil {
			return
		}
		var sent map[string]json.RawMessage
		if err := json.Unmarshal(arguments, &sent); err != nil {
			return // the library is stricter with ill-formed text
		}
		for name, text := range map[string]string{"counterparty": got.Counterparty, "amount": got.Amount, "asset": got.Asset, "template": got.Template,
			"resource": got.Resource, "pay_to": got.PayTo, "review_id": got.ReviewID} {
			if len(text) > maxText || (text == "") != (sent[name] == nil) || text != "" && sent[name][0] != '"' {
				t.Errorf("%s was sent as %s and read as %q", name, sent[name], text)
			}
		}
		if strings.Trim(got.Amount, "0123456789.") != "" || got.Amount != "" && `"`+got.Amount+`"` != string(sent["amount"]) && !bytes.ContainsRune(sent["amount"], '\\') {
			t.Errorf("the amount %s was read as %q", sent["amount"], got.Amount)
		}
		if len(got.Offer) > maxObject || !bytes.Equal(got.Offer, sent["offer"]) {
			t.Errorf("the offer %s was read as %s", sent["offer"], got.Offer)
		}
		if got.Offer == nil && (got.Counterparty == "" || got.Amount == "") {
			t.Error("asked about nothing")
		}
		if got.Actor != "" {
			t.Errorf("the caller named itself %q", got.Actor)
		}
	})
}
