package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
)

func TestAReportSaysWhatItProvesAndWhatItDoesNot(t *testing.T) {
	const sig = "c849bac8616b07c942f729ca09a11b7baebb210f977820165cf03366caf8b92d"
	for _, c := range []struct {
		name      string
		r         decision.Report
		says      []string
		hides     []string
		json      string // members beside those that are always there
		jsonHides string
	}{
		{"no log yet", decision.Report{Path: "g/decisions.ndjson"},
			[]string{"lines         none: nothing has been decided here yet\n", "tail: NOT PINNED\n", "the log verifies\n"}, []string{"last sig", "audit checkpoint"}, `"exists":false`, "fault"},
		{"a log", decision.Report{Path: "g/decisions.ndjson", Exists: true, Lines: 1234, Sig: sig, First: sig, At: noon},
			[]string{"lines         1,234\n", "last line     2026-03-01 12:00:00 UTC\n", "last sig      " + sig + "\n", "the log verifies\n", "settlewatch audit checkpoint --dir d\n"},
			[]string{"torn"}, `"last_at":"2026-03-01T12:00:00.000Z"`, "fault"},
		{"a pinned one", decision.Report{Path: "g/decisions.ndjson", Exists: true, Lines: 7, Pinned: 7, Sig: sig, First: sig, At: noon},
			[]string{"the log verifies\n"}, []string{"audit checkpoint"}, `"pinned_lines":7`, "fault"},
		{"a torn end", decision.Report{Path: "g/decisions.ndjson", Exists: true, Lines: 7, Sig: sig, First: sig, At: noon, Torn: 40},
			[]string{"torn          40 bytes after the last whole line"}, nil, `"torn_bytes":40`, "fault"},
		{"an edited one", decision.Report{Path: "g/decisions.ndjson", Exists: true, Lines: 6, Unsound: &decision.Unsound{Line: 7, Reason: "its sig is wrong"}},
			[]string{"the log does not verify: line 7: its sig is wrong\n", "\nsettlewatch audit recover --dir d\n"}, []string{"the log verifies"}, `"fault":{"line":7,"reason":"its sig is wrong","foreign":false}`, ""},
		{"another program's", decision.Report{Path: "g/decisions.ndjson", Exists: true, Unsound: &decision.Unsound{Reason: "it is another's", Foreign: true}},
			[]string{"the log does not verify: it is another's\n", "\nsettlewatch audit adopt --dir d\n"}, []string{"recover"}, `"foreign":true`, ""},
	} {
		for _, width := range []int{0, 40} {
			a := app{width: width}
			a.showReport(&auditOptions{rootOptions: rootOptions{dir: "d"}}, &c.r, true)
			text := a.out.String()
			for _, want := range c.says {
				if !strings.Contains(squeezed(text), squeezed(want)) || width == 0 && !strings.Contains(text, want) {
					t.Errorf("%s at %d: no %q in\n%s", c.name, width, want, text)
				}
			}
			lacks(t, c.name, text, c.hides...)
		}
		doc := string(encodeJSON(reportJSON(&c.r), 0))
		contains(t, c.name, doc, `{"shape":"audit/1",`, c.json)
		if c.jsonHides != "" {
			lacks(t, c.name, doc, c.jsonHides)
		}
		if !json.Valid([]byte(doc)) {
			t.Errorf("%s: %s", c.name, doc)
		}
	}
}

// What another program's review was about is read as a request is, so that what
// was rejected there is rejected here, by whichever spelling it is asked again.
func TestAForeignReviewIsReadAsARequest(t *testing.T) {
	read := intentOf(guard.DefaultPolicy())
	ask, err := guard.DefaultPolicy().Read(guard.Request{Counterparty: payTo, Amount: "0.50", Resource: "https://Shop.example:443/x"})
	if err != nil {
		t.Fatal(err)
	}
	foreign := decision.Foreign{Counterparty: "0x" + strings.ToUpper(payTo[2:]), Amount: "0.5", Resource: "https://shop.example/x"}
	if got := read(foreign); !got.Same(ask.Intent) {
		t.Errorf("got %+v, want %+v", got, ask.Intent)
	}
	// What cannot be read keeps its names, each once and in order.
	got := read(decision.Foreign{Counterparty: "shop.example", PayTo: payTo, Amount: "a lot", Asset: strings.Repeat("x", 5000)})
	want := append(payment.Names(payTo), payment.Names("shop.example")...)
	slices.Sort(want)
	equal(t, "names", got.Names, want)
}

func TestAnAuditorNeedsNoRoot(t *testing.T) {
	dir := t.TempDir()
	log := write(t, "", dir, "copy.ndjson")
	out, errs, exit := answer(t, "audit", "verify", log, "--dir", filepath.Join(dir, "nowhere"), "--json")
	if exit != 0 || !strings.Contains(out, `"sound": true`) {
		t.Errorf("status %d, %s%s", exit, out, errs)
	}
	for _, args := range [][]string{{"verify"}, {"checkpoint"}, {"export"}, {"recover"}} {
		_, errs, exit := answer(t, append([]string{"audit", args[0]}, "--dir", filepath.Join(dir, "nowhere"))...)
		if exit != 2 || !strings.Contains(errs, "E_ROOT") {
			t.Errorf("%s without a root: status %d, %s", args[0], exit, errs)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("something was made: %v", left)
	}
}

func TestAPolicyIsToldMemberByMember(t *testing.T) {
	dir := t.TempDir()
	file := write(t, `{"reviewAbove": "2", "denylist": ["evil.example"]}`, dir, "policy.json")
	for _, width := range []int{0, 40} {
		text := screen(t, width, "policy", "show", "--guard-config", file, "--dir", filepath.Join(dir, "nowhere"))
		from, by, ok := strings.Cut(text, "\nby default:\n")
		if !ok || !strings.Contains(from, "\nfrom the file:\n") {
			t.Fatalf("not in two parts:\n%s", text)
		}
		contains(t, "from the file", squeezed(from), squeezed("- denylist evil.example: "), squeezed("- reviewAbove 2.00 USDC: "))
		contains(t, "by default", squeezed(by), squeezed("- holdSeconds 600: "), squeezed("- perCounterpartyLimit"))
		lacks(t, "by default", by, "- reviewAbove", "- denylist")
	}
	out, _, _ := answer(t, "policy", "show", "--guard-config", file, "--dir", filepath.Join(dir, "nowhere"), "--json")
	var doc struct {
		Path   string
		Hash   string `json:"policy_hash"`
		Policy json.RawMessage
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || doc.Path != file {
		t.Fatalf("%v: %s", err, out)
	}
	// What is printed is a policy file that says the same.
	if p, err := guard.ParsePolicy(doc.Policy); err != nil || p.Hash() != doc.Hash {
		t.Errorf("%v: %s", err, doc.Policy)
	}
}

// Tables of the guard on a phone: a block a row, and nothing cut.
func TestTablesOfTheGuardAreWholeOnANarrowScreen(t *testing.T) {
	f := &fakeGuard{
		verdict: verdict(guard.Review), open: openOperations(),
		holds:  []guard.HoldView{{Hold: guard.Hold{ID: "h-0a1b2c3d4e5f60718293a4b5", Amount: "2.50", Asset: usdc, ExpiresAt: noon}, Counterparty: payTo}},
		damage: []guard.DamageItem{{Run: "1796030990969-a-longer-name", Line: 7, Reason: "not JSON", Faults: 1}},
	}
	f.verdict.Reasons[0].Detail = "2.50 to " + payTo + " is above 1.00"
	for _, c := range []struct {
		args string
		want []string
	}{
		{"check --counterparty c --amount 2.50", []string{"review: do not pay before a person has decided", "- review_above: 2.50 to " + payTo + " is above 1.00"}},
		{"hold list", []string{"HOLD h-0a1b2c3d4e5f60718293a4b5", "AMOUNT 2.50 USDC on eip155:8453 (Base)", "PAYEE " + payTo}},
		{"damage list", []string{"RUN 1796030990969-a-longer-name", "LINE 7", "REASON not JSON"}},
	} {
		text, _, _ := asking{guard: f, width: 40}.run(t, strings.Fields(c.args)...)
		for _, want := range c.want {
			if !strings.Contains(squeezed(text), squeezed(want)) {
				t.Errorf("%s: no %q in\n%s", c.args, want, text)
			}
		}
	}
	_, errs, _ := asking{guard: f, width: 40, person: &fakePerson{answers: []bool{false}}}.run(t, "resolve", "--open", "--as", "failed", "--note", "n")
	for _, want := range []string{"OPERATION op-2", "PAYEE " + payTo, "AMOUNT 2.50 USDC", "NETWORK eip155:8453 (Base)", "NOTES blind"} {
		if !strings.Contains(squeezed(errs), squeezed(want)) {
			t.Errorf("resolve: no %q in\n%s", want, errs)
		}
	}
}
