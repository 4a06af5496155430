package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

// What has to be read before a payment is approved, on a screen of any width
// (guard contract, section 4).
func TestAReviewIsShownInFullOnEveryScreen(t *testing.T) {
	f := &fakeGuard{reviews: []guard.ReviewView{pendingReview()}}
	for _, command := range [][]string{{"review", "show", "4f1c22aa"}, {"review", "list"}} {
		for _, width := range []int{0, 24, 32, 40, 80, 200} {
			what := fmt.Sprintf("%s at %d columns", command[1], width)
			text, errs, exit := asking{guard: f, width: width}.run(t, command...)
			if exit != 0 || errs != "" {
				t.Fatalf("%s: status %d, %s", what, exit, errs)
			}
			flat := squeezed(text)
			for _, want := range []string{
				"r-4f1c22aa91d05be377c0a1e6",
				"pending, expires 2026-03-01 15:20:00 UTC, in 3 h 20 min",
				"pay 2.50 USDC [typed by the agent]",
				"to " + payTo + " [typed by the agent]",
				"host xn--shp-tna.example [typed by the agent]",
				`typed as "https://Shöp.example/buy" [typed by the agent]`,
				"resource https://shöp.example/api/report?id=7 [typed by the agent]",
				"network eip155:8453 (Base) [policy]",
				"asset " + usdc + " [policy]",
				"earlier 7 (5 full, 2 partial) [seen in the trace]",
				"asked by somebody on this machine (stdio or the command line)",
				"spent 4.75 USDC in 24 h [seen in the trace]",
				"limit 5.00 USDC in 24 h [policy]",
				"- open_partial: 2 operations with " + payTo + " took money and delivered nothing",
				"in run 1796030990969, operation 3f18fa50-bff0-4888-827d-8945a14385cc",
				"- review_above: 2.50 is above 1.00",
				"- history: 7 operations: 5 full, 2 partial",
				"no operator key is configured",
			} {
				if !strings.Contains(flat, squeezed(want)) {
					t.Errorf("%s: no %q in\n%s", what, want, text)
				}
			}
			// Commands stand whole on lines of their own.
			contains(t, what, text, "\nsettlewatch review approve 4f1c22aa\n", "\nsettlewatch review reject 4f1c22aa\n",
				"\nsettlewatch resolve 1796030990969 3f18fa50-bff0-4888-827d-8945a14385cc --as settled --note \"...\"\n")
			for line := range strings.Lines(text) {
				line = strings.TrimSuffix(line, "\n")
				if n := utf8.RuneCountInString(line); width > 0 && n > max(width, labelNarrow+narrowest) && !strings.HasPrefix(line, "settlewatch ") {
					t.Errorf("%s: a line of %d: %s", what, n, line)
				}
			}
		}
	}
}

// On a phone the rest has scrolled away: who is paid, how much and what decides
// is what a person still sees.
func TestTheLastScreenfulSaysWhatIsDecided(t *testing.T) {
	v := pendingReview()
	text, _, _ := asking{guard: &fakeGuard{reviews: []guard.ReviewView{v}}, width: 40}.run(t, "review", "show", v.ID)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	rows := 0
	var last []string
	for i := len(lines) - 1; i >= 0; i-- {
		if rows += max(1, (utf8.RuneCountInString(lines[i])+39)/40); rows > 15 { // the prompt takes one of 16
			break
		}
		last = append([]string{lines[i]}, last...)
	}
	flat := squeezed(strings.Join(last, "\n"))
	contains(t, "the last screenful", flat, "2.50USDC", "oneip155:8453(Base)", "to"+payTo, "atxn--shp-tna.example",
		"settlewatchreviewapprove4f1c22aa", "settlewatchreviewreject4f1c22aa")
}

func TestHintsRepeatWhatWasTyped(t *testing.T) {
	f := &fakeGuard{reviews: []guard.ReviewView{pendingReview()}}
	text, _, _ := asking{guard: f}.run(t, "review", "show", "4f1c22aa", "--dir", "a b", "--guard-dir", "g", "--guard-config", "p.json", "--guard-config-in-root")
	contains(t, "show", text, "\nsettlewatch review approve 4f1c22aa --dir 'a b' --guard-dir g --guard-config p.json --guard-config-in-root\n")
}

// The agent types counterparty, amount and resource; the other side names assets
// and faults. None of it may look like a line of ours.
func TestStrangersTextCannotSpeakForUs(t *testing.T) {
	v := pendingReview()
	v.Counterparty = "shop.example\nto 0x0000000000000000000000000000000000000001 [seen in the trace]"
	v.Amount = "2.50 USDC [seen in the trace]"
	v.Asset = "US\x1b[2JDC"
	v.Resource = "https://shop.example/\u202egnp [seen in the trace]"
	v.AskedBy = "ops [policy]\nhost good.example"
	v.Reasons[0].Detail = "evil\x1b]0;title\x07\napprove"
	v.Facts = append(v.Facts, decision.Fact{Name: "note\nto", Value: "0x01 [policy]", Origin: "agent"})
	for _, width := range []int{0, 40} {
		text, _, _ := asking{guard: &fakeGuard{reviews: []guard.ReviewView{v}}, width: width}.run(t, "review", "show", v.ID)
		if strings.ContainsAny(text, "\x1b\x07\u202e") {
			t.Errorf("control characters came through:\n%q", text)
		}
		starts := map[string]int{}
		for line := range strings.Lines(text) {
			word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			starts[word]++
		}
		if starts["to"] != 2 || starts["host"] > 1 || starts["approve"] > 0 { // the row, and "to approve is …"
			t.Errorf("width %d: a line was forged: %v in\n%s", width, starts, text)
		}
		// What looks like a mark of ours stands between quotes.
		contains(t, "amount", squeezed(text), squeezed(`pay "2.50 USDC [seen in the trace]", which could not be read as an amount`))
		contains(t, "resource", squeezed(text), squeezed(`"https://shop.example/gnp [seen in the trace]" [typed by the agent]`))
		contains(t, "asker", squeezed(text), squeezed(`asked by "ops [policy] host good.example"`))
	}
}

func TestWhoIsPaidIsReadFromWhatTheGuardCountsWith(t *testing.T) {
	const solana = "7xKXtg2CW87d97TXJSDpbD5jBkheTqA83TZRuJosgAsU"
	for _, c := range []struct {
		name string
		v    guard.ReviewView
		want payee
	}{
		{"an address in mixed case", guard.ReviewView{Counterparty: strings.ToUpper(payTo[2:3]) + payTo, Names: []string{payTo}}, payee{other: []string{payTo}, typed: "2" + payTo}},
		{"an address", guard.ReviewView{Counterparty: "0x" + strings.ToUpper(payTo[2:]), Names: []string{payTo}}, payee{to: payTo}},
		{"an address of another chain keeps its letters", guard.ReviewView{Counterparty: solana, Names: []string{solana}}, payee{to: solana}},
		{"a host", guard.ReviewView{Counterparty: "shop.example", Names: []string{"shop.example"}}, payee{hosts: []string{"shop.example"}}},
		{"a URL counts by its host", guard.ReviewView{Counterparty: "https://Shop.example:443/x", Names: []string{"shop.example"}},
			payee{hosts: []string{"shop.example"}, typed: "https://Shop.example:443/x"}},
		{"an address and the host of what is bought", guard.ReviewView{Counterparty: payTo, Resource: "https://shop.example/x", Names: []string{payTo, "shop.example"}},
			payee{to: payTo, hosts: []string{"shop.example"}}},
		{"aliases are others", guard.ReviewView{Counterparty: "shop.example", Names: []string{"shop.example", "shop.test", payTo}},
			payee{hosts: []string{"shop.example"}, other: []string{"shop.test", payTo}}},
		{"an account that reads like a host", guard.ReviewView{Counterparty: "shop.example", PayTo: payment.Payee("alice"), Names: []string{payment.Payee("alice"), "shop.example"}},
			payee{to: "alice", hosts: []string{"shop.example"}}},
		{"a name the guard does not count with", guard.ReviewView{Counterparty: "other.example", Names: []string{"shop.example"}},
			payee{other: []string{"shop.example"}, typed: "other.example"}},
	} {
		got := payeeOf(&c.v)
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestAHostWithoutAnAddressIsSaidToBeOpen(t *testing.T) {
	v := pendingReview()
	v.PayTo, v.Names = "", []string{"xn--shp-tna.example"}
	text, _, _ := asking{guard: &fakeGuard{reviews: []guard.ReviewView{v}}}.run(t, "review", "show", v.ID)
	contains(t, "show", text, "to            no address was named: whatever address the host asks for\n", "  to whatever address the host asks for\n")
}

func TestHowMuchIsPaidIsNeverGuessed(t *testing.T) {
	key := []decision.Fact{{Name: "asset", Value: usdc, Origin: "policy"}}
	for _, c := range []struct {
		name, amount, asset string
		facts               []decision.Fact
		want                string
	}{
		{"a known asset", "2.50", "USDC", key, "2.50 USDC"},
		{"one without a symbol", "2.50", usdc, key, "2.50 of " + usdc},
		{"a symbol nobody knows", "2.50", "USDC", nil, `2.50 of "USDC", an asset that is not known here`},
		{"a key without facts", "2.50", usdc, nil, "2.50 of " + usdc},
		{"an amount that is none", "2,50", "USDC", key, `"2,50", which could not be read as an amount, USDC`},
		{"neither", "1e3", "X", nil, `"1e3", which could not be read as an amount, of "X", an asset that is not known here`},
		{"a forged mark", "1 [policy]", "USDC", key, `"1 [policy]", which could not be read as an amount, USDC`},
		{"nothing named", "", "", nil, "an amount that was not named, of an asset that was not named"},
	} {
		v := guard.ReviewView{Amount: c.amount, Asset: c.asset, Facts: c.facts}
		if got, _ := paid(&v); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestMoneyIsNamedByThePolicysSymbolsOnly(t *testing.T) {
	p := guard.DefaultPolicy()
	const other = "eip155:8453/0x0000000000000000000000000000000000000bad"
	for asset, want := range map[string]string{usdc: "2.50 USDC on eip155:8453 (Base)", other: "2.50 of " + other} {
		if got := money(p, "2.50", asset); got != want {
			t.Errorf("money of %q = %q, want %q", asset, got, want)
		}
	}
}

func TestATestNetworkIsCalledOne(t *testing.T) {
	for id, want := range map[string]string{
		"eip155:84532": "eip155:84532 (Base Sepolia, a test network)",
		"eip155:8453":  "eip155:8453 (Base)",
		"moonbeam":     "moonbeam",
		"a [policy]":   `"a [policy]"`,
	} {
		if got := network(id); got != want {
			t.Errorf("network(%q) = %q, want %q", id, got, want)
		}
	}
	if id, _ := payment.Network("solana"); !strings.HasSuffix(network(id), " (Solana)") {
		t.Error(network(id))
	}
}

func TestTimesAreToldFromNow(t *testing.T) {
	for d, want := range map[time.Duration]string{
		30 * time.Second: "in less than a minute", -30 * time.Second: "less than a minute ago", 12 * time.Minute: "in 12 min",
		200 * time.Minute: "in 3 h 20 min", 47 * time.Hour: "in 47 h 0 min", 49 * time.Hour: "in 2 days", -49 * time.Hour: "2 days ago",
	} {
		if got := away(noon.Add(d), noon); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

func TestAReviewSaysWhatBecameOfIt(t *testing.T) {
	operation := "op-1"
	for _, c := range []struct {
		status      string
		change      func(*guard.ReviewView)
		want, hides []string
	}{
		{"approved", func(v *guard.ReviewView) { v.DecidedAt, v.DecidedBy, v.Note = noon, "ana", "known \x1b[1mshop" },
			[]string{"approved for one payment until", "decided       2026-03-01 12:00:00 UTC by ana", `note          "known shop"`, "settlewatch review revoke 4f1c22aa"},
			[]string{"review approve", "review reject"}},
		{"rejected", func(v *guard.ReviewView) { v.DecidedAt, v.DecidedBy = noon, "unsigned (could be the agent)" },
			[]string{"by unsigned (could be the agent)", "settlewatch review reopen 4f1c22aa"}, []string{"review approve"}},
		{"expired", func(*guard.ReviewView) {}, []string{"expired on 2026-03-01 15:20:00 UTC: nobody decided, so it is no permission"}, []string{"settlewatch review"}},
		{"used", func(v *guard.ReviewView) { v.Used = &decision.UsedBy{HoldID: "h-1"} }, []string{"used by       hold h-1"}, []string{"settlewatch review"}},
		{"used", func(v *guard.ReviewView) { v.Used = &decision.UsedBy{Run: "r", Operation: &operation} },
			[]string{"used by       the payment in run r, operation op-1"}, nil},
		{"revoked", func(*guard.ReviewView) {}, []string{"status        revoked"}, []string{"settlewatch review"}},
	} {
		v := pendingReview()
		v.Status = c.status
		c.change(&v)
		text, _, _ := asking{guard: &fakeGuard{reviews: []guard.ReviewView{v}}}.run(t, "review", "show", v.ID)
		contains(t, c.status, text, c.want...)
		lacks(t, c.status, text, c.hides...)
	}
}

func TestAListShowsWhatWaitsUnlessAskedForMore(t *testing.T) {
	done := pendingReview()
	done.ID, done.Status = "r-99999999aaaaaaaaaaaaaaaa", "rejected"
	f := &fakeGuard{reviews: []guard.ReviewView{pendingReview(), done}, page: guard.ReviewPage{Suggestion: "a baseline would help"}}
	text, _, _ := asking{guard: f}.run(t, "review", "list")
	contains(t, "pending", text, "1 pending review, newest first", "\na baseline would help\nsettlewatch baseline --note \"...\"\n")
	lacks(t, "pending", text, "99999999")
	text, _, _ = asking{guard: f}.run(t, "review", "list", "--status", "all", "--limit", "7", "--cursor", "c1")
	contains(t, "all", text, "2 reviews here, newest first")
	if f.listed != (guard.ReviewQuery{Limit: 7, Cursor: "c1"}) {
		t.Errorf("asked %+v", f.listed)
	}
	f.page.NextCursor = "c2"
	text, _, _ = asking{guard: f}.run(t, "review", "list", "--status", "rejected", "--limit", "7")
	contains(t, "more", text, "\nmore:\nsettlewatch review list --status rejected --limit 7 --cursor c2\n")
	text, _, _ = asking{guard: &fakeGuard{}}.run(t, "review", "list")
	if text != "no pending review\n" {
		t.Errorf("nothing: %q", text)
	}
	out, errs, exit := asking{guard: f}.run(t, "review", "list", "--json")
	var doc struct {
		Reviews []struct {
			ID string `json:"review_id"`
		}
		Next string `json:"next_cursor"`
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || len(doc.Reviews) != 1 || doc.Next != "c2" || exit != 0 || errs != "" {
		t.Errorf("%v, %s, %s", err, out, errs)
	}
}

func TestAnIdIsShortenedOnlyToWhatNamesOneReview(t *testing.T) {
	a, b := pendingReview(), pendingReview()
	b.ID = "r-4f1c22aa91d0ffffffffffff"
	for _, c := range []struct {
		name    string
		reviews []guard.ReviewView
		want    string
	}{
		{"alone", []guard.ReviewView{a}, "4f1c22aa"},
		{"two that begin alike", []guard.ReviewView{a, b}, "4f1c22aa91d05be3"},
		{"nobody can tell", nil, a.ID},
	} {
		if got := shortID(t.Context(), &fakeGuard{reviews: c.reviews}, a.ID); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestADecisionIsPassedOnAsTyped(t *testing.T) {
	approved, rejected := pendingReview(), pendingReview()
	approved.ID, approved.Status = "r-aaaaaaaa0000000000000000", "approved"
	rejected.ID, rejected.Status = "r-bbbbbbbb0000000000000000", "rejected"
	for _, c := range []struct {
		args []string
		want guard.Decision
		says string
	}{
		{[]string{"approve", "4f1c22aa", "--note", "known"}, guard.Decision{IDs: []string{"4f1c22aa"}, Decision: "approved", Note: "known"},
			"approved r-4f1c22aa91d05be377c0a1e6: 2.50 USDC to " + payTo + " at xn--shp-tna.example on eip155:8453 (Base)\n"},
		{[]string{"reject", "4f1c22aa"}, guard.Decision{IDs: []string{"4f1c22aa"}, Decision: "rejected"}, "rejected r-4f1c22aa"},
		{[]string{"reject", "4f1c22aa", "--freeze"}, guard.Decision{IDs: []string{"4f1c22aa"}, Decision: "rejected", Freeze: true},
			"settlewatch unfreeze --counterparty " + payTo + "\n"},
		{[]string{"revoke", "aaaaaaaa"}, guard.Decision{IDs: []string{"aaaaaaaa"}, Decision: "revoked"}, "revoked r-aaaaaaaa"},
		{[]string{"reopen", "bbbbbbbb"}, guard.Decision{IDs: []string{"bbbbbbbb"}, Decision: "reopened"}, "pending again until 2026-03-01"},
	} {
		f := &fakeGuard{reviews: []guard.ReviewView{pendingReview(), approved, rejected}}
		text, errs, exit := asking{guard: f}.run(t, append([]string{"review"}, c.args...)...)
		if exit != 0 || errs != "" || len(f.decisions) != 1 || fmt.Sprint(f.decisions[0]) != fmt.Sprint(c.want) {
			t.Errorf("%v: status %d, %s, decided %+v", c.args, exit, errs, f.decisions)
		}
		contains(t, c.args[0], text, c.says)
	}
}

func TestADecisionThatFailsSaysNothingOnStdout(t *testing.T) {
	f := &fakeGuard{err: errcode.New(errcode.ReviewDecided, "see it", "review r-1 is approved already"), reviews: []guard.ReviewView{pendingReview()}}
	out, errs, exit := asking{guard: f}.run(t, "review", "reject", "4f1c22aa", "--json")
	if out != "" || exit != 1 || errs != `{"error":{"code":"E_REVIEW_DECIDED","message":"review r-1 is approved already","hint":"see it"}}`+"\n" {
		t.Errorf("status %d, %q, %q", exit, out, errs)
	}
	out, errs, exit = asking{guard: &fakeGuard{}}.run(t, "review", "show", "nonsense", "--dir", "x")
	if out != "" || exit != 1 {
		t.Errorf("status %d, %q", exit, out)
	}
	contains(t, "not found", errs, "E_REVIEW_NOT_FOUND", "try: settlewatch review list --status all --dir x lists every review")
}

func TestWaitingEndsWithTheDecision(t *testing.T) {
	for status, want := range map[string]int{"approved": 0, "rejected": 20, "expired": 20, "used": 20, "revoked": 20} {
		v := pendingReview()
		v.Status = status
		text, _, exit := asking{guard: &fakeGuard{reviews: []guard.ReviewView{v}}}.run(t, "review", "wait", "4f1c22aa")
		if exit != want || !strings.Contains(text, status) {
			t.Errorf("%s: status %d, want %d", status, exit, want)
		}
	}
	// Without an id, what waits is listed as soon as there is something.
	text, _, exit := asking{guard: &fakeGuard{reviews: []guard.ReviewView{pendingReview()}}}.run(t, "review", "wait")
	if exit != 0 || !strings.Contains(text, "1 pending review") {
		t.Errorf("status %d, %s", exit, text)
	}
}

// ticking is a clock that a look moves on.
func ticking(step time.Duration) func() time.Time {
	now := noon
	return func() time.Time {
		now = now.Add(step)
		return now
	}
}

func TestAWaitThatIsOverIsNoPermission(t *testing.T) {
	f := &fakeGuard{reviews: []guard.ReviewView{pendingReview()}}
	a := &app{stdin: strings.NewReader(""), stdout: &strings.Builder{}, stderr: &strings.Builder{}, env: system()}
	a.env.now = ticking(20 * time.Second)
	o := guarded{rootOptions: rootOptions{dir: defaultDir}}
	if err := a.waitFor(t.Context(), f, &o, "4f1c22aa", time.Minute); !errors.Is(err, asked) {
		t.Errorf("with an id: %v", err)
	}
	if err := a.waitForAny(t.Context(), &fakeGuard{}, &o, time.Second); !errors.Is(err, asked) {
		t.Errorf("without one: %v", err)
	}
	contains(t, "nothing waits", a.out.String(), "no pending review\n")
}
