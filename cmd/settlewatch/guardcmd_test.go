package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

// What is typed wrongly is refused before anything is read or written.
func TestCommandsOfTheGuardRefuseWhatTheyDoNotTake(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"check", "--counterparty is needed, unless --offer gives it"},
		{"check --counterparty c", "--amount is needed"},
		{"check c", `check takes no argument, not "c"`},
		{"check --counterparty c --amount 1 --sync-timeout 0s", "--sync-timeout takes a time of more than 0, not 0s"},
		{"check --counterparty c --amount 1 --sync-timeout soon", `--sync-timeout cannot take "soon"`},
		{"review", "say what to do: review list, show, approve, reject, revoke, reopen or wait"},
		{"review aprove x", "did you mean settlewatch review approve?"},
		{"review list --status open", "--status takes pending, approved, rejected, expired, used, revoked or all"},
		{"review list --limit 0", "--limit takes 1 to 100"},
		{"review show", "review show takes 1 argument, not 0"},
		{"review approve", "review approve needs the id of a review"},
		{"review approve BLANK", "ID is blank"},
		{"review approve x --freeze", "unknown flag: --freeze"},
		{"review reject x --operator-key k", "unknown flag: --operator-key"},
		{"review wait a b", "review wait takes at most 1 argument, not 2"},
		{"review wait a --timeout -1s", "--timeout takes a time of 0 or more"},
		{"resolve", "--as is needed: settled or failed"},
		{"resolve --as settled --note n", "give a run and an operation, or --open or --blind"},
		{"resolve r o --note n", "--as is needed"},
		{"resolve r o --as paid --note n", `--as takes settled or failed, not "paid"`},
		{"resolve r o --as settled", "--note is needed"},
		{"resolve r o --as failed --amount 1 --note n", "--amount and --at go with --as settled"},
		{"resolve r o --as settled --at yesterday --note n", `--at takes a time such as 2026-01-31T18:30:00Z, not "yesterday"`},
		{"resolve r o --as settled --note n --yes", "--run, --counterparty, --before and --yes go with --open or --blind"},
		{"resolve r o --undo --as failed", "--undo takes neither --as"},
		{"resolve r o --null-operation --as failed --note n", "give at most a run with --null-operation"},
		{"resolve --open --blind --as failed --note n", "--open or --blind, not both"},
		{"resolve r o --open --as failed --note n", "--open and --blind take no operation"},
		{"resolve --open --undo", "--open and --blind take no operation and no --undo"},
		{"resolve --open --as settled --amount 1 --note n --yes", "--amount and --at are of one operation"},
		{"resolve --open --as settled --note n", "--yes is needed where nobody can be asked"},
		{"resolve --open --as settled --note n --yes --before tomorrow", "--before takes a day such as 2026-01-31"},
		{"baseline", "--note is needed"},
		{"hold", "say what to do: hold list or hold release"},
		{"hold release", "hold release takes 1 argument, not 0"},
		{"hold release h", "--note is needed"},
		{"freeze", "--reason is needed"},
		{"freeze all --reason x", `freeze takes no argument, not "all"`},
		{"unfreeze --counterparty BLANK", "--counterparty is blank"},
		{"damage", "say what to do: damage list or damage ack"},
		{"damage ack --note n", "give either a run or --removed"},
		{"damage ack r --removed --note n", "give either a run or --removed"},
		{"damage ack r", "--note is needed"},
		{"headroom --sync-timeout -1s", "--sync-timeout takes a time of more than 0"},
		{"policy", "say what to do: policy check or policy show"},
		{"policy check f --guard-config g", "give either FILE or --guard-config"},
		{"operator", "say what to do: operator init, operator list or operator show"},
		{"audit", "say what to do: audit verify, checkpoint, export, recover or adopt"},
		{"audit export --format xml", `--format takes ndjson, csv or chp, not "xml"`},
		{"audit verify BLANK", "LOG is blank"},
		{"serve --sync-timeout 0s", "--sync-timeout takes a time of more than 0"},
	} {
		args := strings.Fields(c.args)
		for i, arg := range args {
			if arg == "BLANK" {
				args[i] = " "
			}
		}
		f := &fakeGuard{verdict: verdict(guard.Allow)}
		out, errs, exit := asking{guard: f}.run(t, args...)
		if exit != 2 || out != "" || !strings.Contains(errs, "E_USAGE") || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, stdout %q, stderr %s", c.args, exit, out, errs)
		}
		if len(f.acts)+len(f.decisions)+len(f.resolved) > 0 || f.request.Counterparty != "" {
			t.Errorf("%s: something was done all the same", c.args)
		}
	}
}

func TestActsArePassedOnAndSayHowToUndoThem(t *testing.T) {
	holds := []guard.HoldView{{Hold: guard.Hold{ID: "h-1", Amount: "2.50", Asset: usdc, ExpiresAt: noon.Add(5 * time.Minute)}, Counterparty: payTo, HeldAt: noon, Actor: "ops", ReviewID: "r-1"}}
	damage := []guard.DamageItem{{Run: "run-1", Line: 7, Offset: 900, Reason: "not JSON", Faults: 2}, {Run: "run-0", Reason: "the run file is gone", Removed: true}}
	for _, c := range []struct {
		args string
		act  string
		says []string
	}{
		{"freeze --reason x", "freeze all x", []string{"frozen: every payment is blocked", "\nsettlewatch unfreeze\n"}},
		{"freeze --counterparty shop.example --reason x --dir d", "freeze shop.example x",
			[]string{"frozen: every payment to shop.example is blocked", "\nsettlewatch unfreeze --counterparty shop.example --dir d\n"}},
		{"unfreeze --reason over", "unfreeze  over unsigned", []string{"no longer frozen as a whole", "every payment to evil.example is still blocked: \"stole\""}},
		{"hold release h-1 --note x", "release h-1 x", []string{"released hold h-1"}},
		{"hold list", "", []string{"HOLD  AMOUNT                           PAYEE", "h-1   2.50 USDC on eip155:8453 (Base)  " + payTo + "  in 5 min  ops       r-1", "\nsettlewatch hold release h-1 --note \"...\"\n"}},
		{"baseline --note x", "baseline x unsigned", []string{"made history of 12 open operations and 1 damaged run; what was spent still counts"}},
		{"damage list", "", []string{"run-1  7     2       not JSON", "settlewatch damage ack run-1 --note \"...\"\n", "settlewatch damage ack --removed --note \"...\"\n"}},
		{"damage ack latest --note x", "acknowledge run-2 x unsigned", []string{`acknowledged the damage of run "run-2" (1 run)`}},
		{"damage ack run:7 --note x", "acknowledge 7 x unsigned", nil},
		{"damage ack --removed --note x", "acknowledge  x unsigned", []string{"every run that has vanished"}},
	} {
		f := &fakeGuard{holds: holds, damage: damage, standing: guard.Standing{Frozen: []decision.Frozen{{Scope: "evil.example", Reason: "stole"}}}}
		text, errs, exit := asking{guard: f}.run(t, strings.Fields(c.args)...)
		if exit != 0 || errs != "" || strings.Join(f.acts, ";") != c.act {
			t.Errorf("%s: status %d, %s, did %q", c.args, exit, errs, f.acts)
		}
		contains(t, c.args, text, c.says...)
		// The same as a document, under a name and a version.
		out, errs, exit := asking{guard: f}.run(t, append(strings.Fields(c.args), "--json")...)
		var doc struct{ Shape string }
		if err := json.Unmarshal([]byte(out), &doc); err != nil || !strings.HasSuffix(doc.Shape, "/1") || exit != 0 || errs != "" {
			t.Errorf("%s --json: %v, status %d, %s%s", c.args, err, exit, out, errs)
		}
	}
}

func TestNothingThereIsSaid(t *testing.T) {
	for args, want := range map[string]string{
		"hold list": "no hold is in force\n", "damage list": "no damage that is not acknowledged\n",
		"resolve --open --as failed --note n --yes": "no such operation is open\n",
	} {
		if text, _, _ := (asking{guard: &fakeGuard{}}).run(t, strings.Fields(args)...); text != want {
			t.Errorf("%s: %q", args, text)
		}
	}
}

// The button for an emergency must not leave a person with an error alone.
func TestAFreezeThatFailsNamesTheFileThatFreezes(t *testing.T) {
	f := &fakeGuard{err: errcode.New(errcode.LogWrite, "make room", "append to the log: no space left")}
	_, errs, exit := asking{guard: f}.run(t, "freeze", "--reason", "x", "--guard-dir", "g h")
	if exit != 1 || !strings.Contains(errs, "E_LOG_WRITE: append to the log: no space left. try: touch '") || !strings.Contains(errs, "g h/FROZEN' blocks every payment meanwhile; then make room") {
		t.Error(errs)
	}
	f.err = errcode.New(errcode.Input, "name a host", "no counterparty")
	if _, errs, _ = (asking{guard: f}).run(t, "freeze", "--reason", "x", "--counterparty", "?"); strings.Contains(errs, "FROZEN") {
		t.Error(errs)
	}
}

func TestAnErrorOfTheGuardNamesTheRootInItsHint(t *testing.T) {
	o := guarded{rootOptions: rootOptions{dir: "d"}, guardOptions: guardOptions{config: "p", operator: "k"}}
	for code, want := range map[errcode.Code]string{
		errcode.ReviewNotFound:  "settlewatch review list --status all --dir d --guard-config p lists every review",
		errcode.ReviewAmbiguous: "more of the id; settlewatch review list --status all --dir d --guard-config p shows whole ones",
		errcode.HoldNotFound:    "settlewatch hold list --dir d --guard-config p; a hold ends by itself when its payment is seen or its time is over",
		errcode.LogUnsound:      "settlewatch audit verify --dir d says where, settlewatch audit recover --dir d begins a new log",
		errcode.ReviewDecided:   "see it with `settlewatch review show r-1 --dir d --guard-config p`, then `settlewatch list --dir d`",
	} {
		if got := errcode.Of(o.wordedGuard(errcode.New(code, "see it with `settlewatch review show r-1`, then `settlewatch list`", "m"))); got.Code != code || got.Message != "m" || got.Hint != want {
			t.Errorf("%s: %+v", code, got)
		}
	}
	if err := o.wordedGuard(asked); !errors.Is(err, asked) {
		t.Errorf("an exit status became %v", err)
	}
}

// What a hint says must do what it promises when it is pasted.
func TestEveryCommandThatIsHintedAtIsOne(t *testing.T) {
	review, approved, rejected := pendingReview(), pendingReview(), pendingReview()
	approved.ID, approved.Status = "r-aaaaaaaa0000000000000000", "approved"
	rejected.ID, rejected.Status = "r-bbbbbbbb0000000000000000", "rejected"
	asking10 := verdict(guard.Review)
	asking10.ReviewID = review.ID
	held := verdict(guard.Allow)
	held.Hold = &guard.Hold{ID: "h-1", Amount: "1", Asset: usdc, ExpiresAt: noon}
	operation := "op"
	f := &fakeGuard{
		reviews: []guard.ReviewView{review, approved, rejected}, page: guard.ReviewPage{Suggestion: "perhaps", NextCursor: "c"},
		holds:  []guard.HoldView{{Hold: guard.Hold{ID: "h-1", ExpiresAt: noon}}},
		damage: []guard.DamageItem{{Run: "run-1"}, {Run: "run-0", Removed: true}},
		open:   []guard.OpenOperation{{Ref: decision.Ref{Run: "run-1", Operation: &operation}}},
	}
	typed := strings.Fields("--dir d --index i --guard-dir g --templates-dir t --guard-config p --guard-config-in-root")
	hinted := 0
	for _, args := range []string{
		"check --counterparty c --amount 1", "review list --status all --limit 7", "review show 4f1c22aa", "review show aaaaaaaa", "review show bbbbbbbb",
		"review approve 4f1c22aa --operator-key k", "review reject 4f1c22aa --freeze", "hold list", "damage list", "freeze --reason r", "freeze --reason r --counterparty c",
		"resolve run-1 op --as failed --note n --operator-key k", "resolve --open --as settled --note n --yes",
	} {
		for _, f.verdict = range []*guard.Verdict{asking10, held} {
			text, errs, _ := asking{guard: f}.run(t, append(strings.Fields(args), typed...)...)
			for line := range strings.Lines(text + errs) {
				command, ours := strings.CutPrefix(strings.TrimSpace(line), "settlewatch ")
				if !ours {
					continue
				}
				hinted++
				contains(t, args, command, strings.Join(typed, " "))
				words := strings.Fields(strings.NewReplacer(`"`, "", "'", "").Replace(command))
				if _, errs, exit := answer(t, append(words, "--help")...); exit != 0 {
					t.Errorf("%s hints at %q: %s", args, command, errs)
				}
			}
		}
	}
	if hinted < 30 {
		t.Errorf("only %d commands were hinted at", hinted)
	}
}

func openOperations() []guard.OpenOperation {
	one, two := "op-1", "op-2"
	return []guard.OpenOperation{
		{Ref: decision.Ref{Run: "run-2", Operation: &two}, Counterparty: payTo, Amount: "2500000", Asset: usdc, At: noon, Shown: guard.Shown{Payments: 2, Newest: 7}},
		{Ref: decision.Ref{Run: "run-1", Operation: &one}, Counterparty: payTo, Amount: "1500000", Asset: usdc, Blind: true},
		{Ref: decision.Ref{Run: "run-1"}, Counterparty: "shop.example"},
	}
}

func TestAResolutionInBulkShowsWhatItWillDoAndAsks(t *testing.T) {
	const question = "resolve 3 operations as failed (4.00 USDC on eip155:8453 (Base); 1 amount that cannot be read)"
	for _, c := range []struct {
		name     string
		person   *fakePerson
		yes      bool
		resolved int
		exit     int
	}{
		{"a person says yes", &fakePerson{answers: []bool{true}}, false, 3, 0},
		{"a person says no", &fakePerson{answers: []bool{false}}, false, 0, 1},
		{"a person has said so before", &fakePerson{}, true, 3, 0},
		{"nobody is there, but it was said", nil, true, 3, 0},
	} {
		f := &fakeGuard{open: openOperations()}
		args := []string{"resolve", "--open", "--as", "failed", "--note", "checked", "--run", "latest", "--counterparty", "shop.example", "--before", "2026-02-01"}
		if c.yes {
			args = append(args, "--yes")
		}
		text, errs, exit := asking{guard: f, person: c.person}.run(t, args...)
		if exit != c.exit || len(f.resolved) != c.resolved {
			t.Errorf("%s: status %d, resolved %d; %s", c.name, exit, len(f.resolved), errs)
		}
		if want := (guard.OpenQuery{Run: "run-2", Counterparty: "shop.example", Before: time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)}); f.asked != want {
			t.Errorf("%s: asked %+v", c.name, f.asked)
		}
		if c.person != nil && !c.yes {
			equal(t, c.name, c.person.seen, []string{question + "?"})
			contains(t, c.name, errs, "run-2  op-2       "+payTo, "run-1  (null)     shop.example", "blind", "the first of 2 payments")
		}
		if c.resolved == 0 {
			contains(t, c.name, errs, "E_INPUT: "+question+": the answer was no, so nothing was changed")
			if text != "" {
				t.Errorf("%s: %q", c.name, text)
			}
		} else {
			contains(t, c.name, text, "resolved as failed: 3 operations; it does not count as spent")
			if got := f.resolved[0]; got.Shown != f.open[0].Shown {
				t.Errorf("%s: covers %+v, shown was %+v", c.name, got.Shown, f.open[0].Shown)
			}
			if got := f.resolved[2]; got.Ref.Operation != nil || got.Outcome != "failed" || got.Note != "checked" {
				t.Errorf("%s: %+v", c.name, got)
			}
		}
	}
}

func TestOneOperationIsResolvedAndTakenBack(t *testing.T) {
	f := &fakeGuard{shown: guard.Shown{Payments: 1, Newest: 7}}
	text, errs, exit := asking{guard: f}.run(t, "resolve", "op-9", "--as", "settled", "--amount", "1.5", "--at", "2026-01-31T18:30:00Z", "--note", "seen on chain")
	if exit != 0 || len(f.resolved) != 1 {
		t.Fatalf("status %d, %s", exit, errs)
	}
	r := f.resolved[0]
	if r.Ref.Run != "run-2" || *r.Ref.Operation != "op-9" || r.Outcome != "settled" || r.Amount != "1.5" || r.Time != "2026-01-31T18:30:00Z" || r.Note != "seen on chain" || r.Shown != f.shown {
		t.Errorf("resolved %+v", r)
	}
	contains(t, "resolve", text, "resolved as settled: run run-2, operation op-9; it counts as spent", "\nsettlewatch resolve run-2 op-9 --undo\n")
	// What is taken back need not be in the trace any more.
	for _, missing := range []bool{false, true} {
		f := &fakeGuard{}
		_, errs, exit := asking{guard: f, finder: fakeFinder{missing: missing}}.run(t, "resolve", "run:run-1", "op-9", "--undo", "--note", "wrong one")
		if missing && (exit != 0 || strings.Join(f.acts, "") != "unresolve run run-1, operation op-9 wrong one") {
			t.Errorf("status %d, %s, %q", exit, errs, f.acts)
		}
	}
	_, errs, exit = asking{guard: f, finder: fakeFinder{missing: true}}.run(t, "resolve", "run-1", "op-9", "--as", "failed", "--note", "n")
	if exit != 1 || !strings.Contains(errs, "E_OPERATION_NOT_FOUND") {
		t.Errorf("status %d, %s", exit, errs)
	}
	// The operation whose id is null, as a document.
	out, _, _ := asking{guard: f}.run(t, "resolve", "run-1", "--null-operation", "--as", "failed", "--note", "n", "--json")
	var doc struct {
		Shape, Outcome string
		Operations     []struct {
			Run       string  `json:"run_id"`
			Operation *string `json:"operation_id"`
		}
	}
	if err := json.Unmarshal([]byte(out), &doc); err != nil || doc.Outcome != "failed" || len(doc.Operations) != 1 || doc.Operations[0].Operation != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestSumsOfSeveralAssetsDoNotMix(t *testing.T) {
	all := openOperations()[:2]
	all = append(all, guard.OpenOperation{Amount: "5", Asset: "eip155:1/0xab"})
	o := resolveOptions{as: "settled"}
	const want = "resolve 3 operations as settled (5 atomic units of eip155:1/0xab on eip155:1 (Ethereum); 4.00 USDC on eip155:8453 (Base))"
	if got := summary(guard.DefaultPolicy(), &o, all); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
