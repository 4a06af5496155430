package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

func verdict(decided string) *guard.Verdict {
	return &guard.Verdict{
		Decision: decided,
		Reasons:  []decision.Reason{{Rule: "review_above", Detail: "2.50 is above 1.00"}, {Rule: "history", Detail: "no operation"}},
		Checked:  decision.Checked{Events: 1234, Runs: 3, Through: "2026-03-01T12:00:00.000Z"},
	}
}

func TestTheExitStatusIsTheVerdict(t *testing.T) {
	for decided, want := range map[string]int{guard.Allow: 0, guard.Review: 10, guard.Block: 20, "something new": 20} {
		for _, args := range [][]string{{}, {"--json"}} {
			f := &fakeGuard{verdict: verdict(decided)}
			out, errs, exit := asking{guard: f}.run(t, append([]string{"check", "--counterparty", "shop.example", "--amount", "2.50"}, args...)...)
			if exit != want || errs != "" || out == "" {
				t.Errorf("%s %v: status %d, want %d; %s", decided, args, exit, want, errs)
			}
		}
	}
}

func TestACheckAsksExactlyWhatWasTyped(t *testing.T) {
	f := &fakeGuard{verdict: verdict(guard.Allow)}
	offer := filepath.Join(t.TempDir(), "offer.json")
	const text = ` {"payTo": "0xAB", "amount": "1e3"} `
	if err := os.WriteFile(offer, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, errs, exit := asking{guard: f}.run(t, "check", "--counterparty", "C", "--amount", "0.05", "--asset", "USDC", "--template", "escrow-arc",
		"--resource", "mcp://tool/x", "--pay-to", "P", "--offer", offer, "--review-id", "r-1", "--hold")
	want := guard.Request{Counterparty: "C", Amount: "0.05", Asset: "USDC", Template: "escrow-arc", Resource: "mcp://tool/x", PayTo: "P", Offer: []byte(text),
		Hold: true, ReviewID: "r-1"}
	if got := f.request; exit != 0 || string(got.Offer) != text {
		t.Errorf("status %d, %s, asked %+v", exit, errs, got)
	} else if got.Offer, want.Offer = nil, nil; mustJSON(got) != mustJSON(want) {
		t.Errorf("asked %+v, want %+v", got, want)
	}
	// From a pipe too.
	if _, errs, exit := (asking{guard: f, stdin: text}).run(t, "check", "--offer", "-"); exit != 0 || string(f.request.Offer) != text {
		t.Errorf("status %d, %s, asked %+v", exit, errs, f.request)
	}
}

func TestAnOfferThatCannotBeReadIsNoQuestion(t *testing.T) {
	for name, q := range map[string]struct{ file, stdin string }{
		"no such file": {"nowhere.json", ""}, "nothing piped": {"-", " \n"}, "endless": {"-", strings.Repeat("x", maxOffer+1)}, "a directory": {".", ""},
	} {
		f := &fakeGuard{verdict: verdict(guard.Allow)}
		out, errs, exit := asking{guard: f, stdin: q.stdin}.run(t, "check", "--offer", q.file)
		if out != "" || exit != 1 || !strings.Contains(errs, "E_INPUT: read the offer") || f.request.Offer != nil {
			t.Errorf("%s: status %d, %q, %s", name, exit, out, errs)
		}
	}
}

func TestAVerdictSaysWhatToDoNext(t *testing.T) {
	review := verdict(guard.Review)
	review.ReviewID = "r-4f1c22aa91d05be377c0a1e6"
	review.Handoff = &guard.Handoff{Kind: "url", Target: "https://approvals.example/r-4f1c22aa91d05be377c0a1e6"}
	review.Warnings = []string{"checksum_mismatch", "something_new"}
	review.Shadow = []decision.Reason{{Rule: "limit:day", Detail: "would be passed"}}
	held := verdict(guard.Allow)
	held.Hold = &guard.Hold{ID: "h-1", Amount: "2.50", Asset: usdc, ExpiresAt: noon.Add(10 * time.Minute)}
	for _, c := range []struct {
		name string
		v    *guard.Verdict
		want []string
	}{
		{"allow with a hold", held, []string{"allow: this one payment may be made now\n- review_above: 2.50 is above 1.00\n- history: no operation\n",
			"hold          h-1: 2.50 USDC on eip155:8453 (Base) until 2026-03-01 12:10:00 UTC, in 10 min\n", "checked       1,234 events of 3 runs, until 2026-03-01T12:00:00.000Z\n",
			"\nsettlewatch hold release h-1 --note \"not paid\"\n"}},
		{"review", review, []string{"review: do not pay before a person has decided\n", "\nsettlewatch review show 4f1c22aa\n",
			"\nhttps://approvals.example/r-4f1c22aa91d05be377c0a1e6\n", "in shadow mode, which decides nothing:\n- limit:day: would be passed\n",
			"! the address is in mixed case and its checksum is wrong", "! something_new\n"}},
		{"block", verdict(guard.Block), []string{"block: do not pay\n"}},
	} {
		text, _, _ := asking{guard: &fakeGuard{verdict: c.v, reviews: []guard.ReviewView{pendingReview()}}}.run(t, "check", "--counterparty", "c", "--amount", "1")
		contains(t, c.name, text, c.want...)
	}
}

func TestWhatTheGuardRefusesIsAnErrorAndNoVerdict(t *testing.T) {
	f := &fakeGuard{err: errcode.New(errcode.Input, "write it as text", "the amount is empty")}
	out, errs, exit := asking{guard: f}.run(t, "check", "--counterparty", "c", "--amount", "x", "--json")
	if out != "" || exit != 1 || errs != `{"error":{"code":"E_INPUT","message":"the amount is empty","hint":"write it as text"}}`+"\n" {
		t.Errorf("status %d, %q, %q", exit, out, errs)
	}
}

func TestHeadroomIsATableAndADocument(t *testing.T) {
	f := &fakeGuard{headroom: &guard.Headroom{Asset: usdc, Limits: []guard.HeadroomLimit{
		{Name: "per_counterparty_limit", Scope: "counterparty", Limit: "5.00", Spent: "4.00", Held: "0.50", Headroom: "0.50", WindowHours: 24,
			FreesUp: []guard.FreesUp{{At: noon.Add(2 * time.Hour), Amount: "1.00"}}},
		{Name: "calls", Scope: "host", Limit: "10", Spent: "10", Held: "0", Headroom: "0", Counts: true, WindowHours: 1},
		{Name: "a-day", Scope: "total", Limit: "9.00", Spent: "0", Held: "0", Headroom: "9.00", WindowHours: 24, Uncounted: 1},
	}}}
	text, _, exit := asking{guard: f}.run(t, "headroom", "--counterparty", "shop.example", "--asset", "USDC")
	if exit != 0 || f.query != (guard.HeadroomQuery{Counterparty: "shop.example", Asset: "USDC"}) {
		t.Errorf("status %d, asked %+v", exit, f.query)
	}
	contains(t, "table", text, "what the limits leave of USDC, "+usdc, "per_counterparty_limit  counterparty  0.50", "1.00 in 2 h 0 min", "0 payments  10 payments",
		"a-day: 1 payment of the window cannot be added up, so checks under this limit are reviews unless it is in shadow mode\n")
	out, _, _ := asking{guard: f}.run(t, "headroom", "--json")
	var doc struct {
		Limits []struct {
			Headroom  string
			Uncounted int
		}
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || len(doc.Limits) != 3 || doc.Limits[0].Headroom != "0.50" || doc.Limits[2].Uncounted != 1 {
		t.Errorf("%v: %s", err, out)
	}
}
