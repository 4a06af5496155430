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
)

const passphrase = "correct horse battery"

// signing is a guard whose policy names the operator of a new key in a home
// directory.
func signing(t *testing.T, change func(*decision.Operator)) (f *fakeGuard, home string) {
	t.Helper()
	home = t.TempDir()
	text, errs, exit := asking{guard: &fakeGuard{}, home: home, person: &fakePerson{secrets: []string{passphrase, passphrase}}}.run(t, "operator", "init", "--name", "ana", "--json")
	if exit != 0 {
		t.Fatalf("status %d, %s", exit, errs)
	}
	var key struct {
		Public string `json:"public_key"`
	}
	if err := json.Unmarshal([]byte(text), &key); err != nil {
		t.Fatal(err)
	}
	p := *guard.DefaultPolicy()
	p.Operators = []decision.Operator{{Name: "ana", PublicKey: key.Public}}
	if change != nil {
		change(&p.Operators[0])
	}
	return &fakeGuard{policy: &p, reviews: []guard.ReviewView{pendingReview()}}, home
}

func TestAnOperatorsKeyIsMadeOnATerminal(t *testing.T) {
	home := t.TempDir()
	who := &fakePerson{secrets: []string{passphrase, passphrase}}
	text, errs, exit := asking{guard: &fakeGuard{}, home: home, person: who}.run(t, "operator", "init", "--name", "ana")
	if exit != 0 || errs != "" {
		t.Fatalf("status %d, %s", exit, errs)
	}
	equal(t, "asked", who.seen, []string{"new passphrase", "the same again"})
	file := filepath.Join(home, ".config", "settlewatch", "operator.key")
	contains(t, "init", text, `wrote the key of "ana" to "`+file+`"`, `{"operators":[{"name":"ana","publicKey":"`)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	content, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(content), passphrase) {
		t.Errorf("%v, %s", err, content)
	}
	if _, err := decision.OpenKey(content, []byte(passphrase)); err != nil {
		t.Error(err)
	}
	// It is never overwritten, and shown without its passphrase.
	_, errs, exit = asking{guard: &fakeGuard{}, home: home, person: &fakePerson{}}.run(t, "operator", "init")
	if exit != 1 || !strings.Contains(errs, "E_OPERATOR_KEY: write the operator's key") || !strings.Contains(errs, "file already exists") {
		t.Errorf("status %d, %s", exit, errs)
	}
	shown, errs, exit := asking{guard: &fakeGuard{}, home: home}.run(t, "operator", "show")
	if exit != 0 || !strings.Contains(shown, "name          ana") {
		t.Errorf("status %d, %s%s", exit, shown, errs)
	}
	// One that others may read is not used, whatever for.
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	shown, errs, exit = asking{guard: &fakeGuard{}, home: home}.run(t, "operator", "show")
	if exit != 1 || shown != "" || !strings.Contains(errs, "E_OPERATOR_KEY: use the operator's key") || !strings.Contains(errs, "try: chmod 600 "+file) {
		t.Errorf("status %d, %s%s", exit, shown, errs)
	}
}

func TestAKeyIsNotMadeWithoutAPersonOrAPassphrase(t *testing.T) {
	root := t.TempDir()
	for _, c := range []struct {
		name   string
		person *fakePerson
		args   []string
		want   string
	}{
		{"nobody is there", nil, nil, "make an operator's key: a passphrase is asked on a terminal only, and stdin is none. try: run it on a terminal"},
		{"too short", &fakePerson{secrets: []string{"1234567"}}, nil, "it has fewer than 8 characters"},
		{"nothing", &fakePerson{secrets: []string{""}}, nil, "it has fewer than 8 characters"},
		{"blank", &fakePerson{secrets: []string{"          ", "          "}}, nil, "the passphrase is blank"},
		{"two that differ", &fakePerson{secrets: []string{passphrase, passphrase + "!"}}, nil, "the two differ"},
		{"in the trace root", &fakePerson{secrets: []string{passphrase, passphrase}}, []string{"--dir", root, "--operator-key", filepath.Join(root, "new", "k")},
			"it would lie in the trace root, where agents write"},
	} {
		home := t.TempDir()
		out, errs, exit := asking{guard: &fakeGuard{}, home: home, person: c.person, stdin: passphrase + "\n" + passphrase + "\n"}.run(t, append([]string{"operator", "init"}, c.args...)...)
		if out != "" || exit != 1 || !strings.Contains(errs, "E_OPERATOR_KEY") || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, %q, %s", c.name, exit, out, errs)
		}
		for _, dir := range []string{home, root} {
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("%s: it left %s", c.name, left[0].Name())
			}
		}
	}
	if _, errs, exit := (asking{guard: &fakeGuard{}}).run(t, "operator", "init", "--name", "a\nb"); exit != 2 {
		t.Error(errs)
	}
}

// What is signed was seen before, and is what is decided.
func TestAnApprovalIsShownBeforeThePassphraseIsAsked(t *testing.T) {
	f, home := signing(t, nil)
	who := &fakePerson{secrets: []string{"a mistyped one", passphrase}}
	text, errs, exit := asking{guard: f, home: home, person: who}.run(t, "review", "approve", "4f1c22aa", "--note", "known")
	if exit != 0 {
		t.Fatalf("status %d, %s", exit, errs)
	}
	contains(t, "stderr", errs, "note: to be signed: approved r-4f1c22aa91d05be377c0a1e6: 2.50 USDC to "+payTo+" at xn--shp-tna.example on eip155:8453 (Base)\n",
		"the passphrase does not open the key of ana")
	if len(who.seen) != 2 || !strings.HasPrefix(who.seen[0], "passphrase of ") {
		t.Errorf("asked %q", who.seen)
	}
	if d := f.decisions[0]; len(f.decisions) != 1 || d.IDs[0] != "r-4f1c22aa91d05be377c0a1e6" || d.Signer == nil || d.Signer.Name() != "ana" || d.Note != "known" {
		t.Errorf("decided %+v", f.decisions)
	}
	contains(t, "stdout", text, "approved r-4f1c22aa91d05be377c0a1e6: 2.50 USDC")
}

func TestWhatLoosensIsSignedAndWhatTightensIsNot(t *testing.T) {
	for _, c := range []struct {
		args    string
		signed  bool
		signers func(*fakeGuard) string
	}{
		{"review approve 4f1c22aa", true, func(f *fakeGuard) string { return signedBy(f.decisions[0].Signer) }},
		{"review reject 4f1c22aa", false, func(f *fakeGuard) string { return signedBy(f.decisions[0].Signer) }},
		{"unfreeze", true, func(f *fakeGuard) string { return strings.TrimPrefix(f.acts[0], "unfreeze   ") }},
		{"baseline --note n", true, func(f *fakeGuard) string { return strings.TrimPrefix(f.acts[0], "baseline n ") }},
		{"damage ack run-1 --note n", true, func(f *fakeGuard) string { return strings.TrimPrefix(f.acts[0], "acknowledge run-1 n ") }},
		{"resolve run-1 op --as failed --note n", true, func(f *fakeGuard) string { return signedBy(f.resolved[0].Signer) }},
		{"resolve --open --as failed --note n --yes", true, func(f *fakeGuard) string { return signedBy(f.resolved[0].Signer) }},
	} {
		f, home := signing(t, nil)
		f.open = openOperations()
		who := &fakePerson{}
		want := "unsigned"
		if c.signed {
			who.secrets, want = []string{passphrase}, "signed by ana"
		}
		_, errs, exit := asking{guard: f, home: home, person: who}.run(t, strings.Fields(c.args)...)
		if exit != 0 {
			t.Errorf("%s: status %d, %s", c.args, exit, errs)
		} else if got := c.signers(f); got != want {
			t.Errorf("%s: %s, want %s", c.args, got, want)
		}
		// And without a person, what is to be signed is refused.
		f, home = signing(t, nil)
		f.open = openOperations()
		_, errs, exit = asking{guard: f, home: home, stdin: passphrase + "\n"}.run(t, strings.Fields(c.args)...)
		if refused := exit == 1 && strings.Contains(errs, "E_OPERATOR_KEY: sign, as the policy names operators: a passphrase is asked on a terminal only"); refused != c.signed {
			t.Errorf("%s without a terminal: status %d, %s", c.args, exit, errs)
		}
		if c.signed && len(f.acts)+len(f.decisions)+len(f.resolved) > 0 {
			t.Errorf("%s without a terminal: it was done", c.args)
		}
	}
	for _, args := range []string{"resolve run-1 op --undo", "freeze --reason r"} {
		f, home := signing(t, nil)
		if _, errs, exit := (asking{guard: f, home: home}).run(t, strings.Fields(args)...); exit != 0 {
			t.Errorf("%s: %s", args, errs)
		}
	}
}

func TestAKeyThatDoesNotCountIsNotAskedFor(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*decision.Operator)
		args   []string
		want   string
	}{
		{"another's key", func(o *decision.Operator) { o.PublicKey = "another" }, nil, "it is none of the policy's operators"},
		{"a retired key", func(o *decision.Operator) { o.Until = noon.Add(-time.Hour) }, nil, `sign with the key of "ana": the policy has retired it on 2026-03-01 11:00:00 UTC`},
		{"no key", nil, []string{"--operator-key", "nowhere.key"}, "no such file or directory. try: settlewatch operator init makes one"},
	} {
		f, home := signing(t, c.change)
		_, errs, exit := asking{guard: f, home: home, person: &fakePerson{}}.run(t, append([]string{"review", "approve", "4f1c22aa"}, c.args...)...)
		if exit != 1 || !strings.Contains(errs, "E_OPERATOR_KEY") || !strings.Contains(errs, c.want) || len(f.decisions) > 0 {
			t.Errorf("%s: status %d, %s, decided %+v", c.name, exit, errs, f.decisions)
		}
	}
	// Nor for a review that cannot be decided.
	f, home := signing(t, nil)
	f.reviews[0].Status = "rejected"
	_, errs, exit := asking{guard: f, home: home, person: &fakePerson{}}.run(t, "review", "approve", "4f1c22aa")
	if exit != 1 || !strings.Contains(errs, "E_REVIEW_DECIDED") {
		t.Errorf("status %d, %s", exit, errs)
	}
	// A passphrase may be mistyped twice.
	f, home = signing(t, nil)
	_, errs, exit = asking{guard: f, home: home, person: &fakePerson{secrets: []string{"x", "y", "z", "never asked"}}}.run(t, "review", "approve", "4f1c22aa")
	if exit != 1 || len(f.decisions) > 0 || !strings.Contains(errs, "E_OPERATOR_KEY: the passphrase does not open") {
		t.Errorf("status %d, %s", exit, errs)
	}
}

// Between two commands whoever can write to the log may have changed what stands in
// it: what is signed is shown by the command that signs.
func TestALongCallIsShownWholeBeforeThePassphraseIsAsked(t *testing.T) {
	f, home := signing(t, nil)
	long := strings.Repeat("0123456789", 200)
	f.reviews = []guard.ReviewView{callReview(`{"end":"the last of it","long":"` + long + `"}`)}
	out, errs, exit := asking{guard: f, home: home, width: 80, person: &fakePerson{secrets: []string{passphrase}}}.run(t, "review", "approve", "4f1c22aa", "--json")
	if exit != 0 {
		t.Fatalf("status %d, %s", exit, errs)
	}
	shown, _, asked := strings.Cut(errs, "to be signed: ")
	if !asked || !strings.Contains(squeezed(shown), long) || !strings.Contains(shown, "the last of it") || !json.Valid([]byte(out)) {
		t.Errorf("%s\n%.200s", errs, out)
	}
	for arguments, resource := range map[string]string{`{"to":"аcme"}`: "tenant:north", `{}`: "ten\u0430nt:north"} {
		f.reviews = []guard.ReviewView{callReview(arguments)}
		f.reviews[0].Call.Resource = resource
		_, errs, _ = asking{guard: f, home: home, person: &fakePerson{secrets: []string{passphrase}}}.run(t, "review", "approve", "4f1c22aa")
		if shown, _, _ := strings.Cut(errs, "to be signed: "); !strings.Contains(shown, "letters beyond ASCII") {
			t.Errorf("nobody is warned: %s", errs)
		}
	}
	f.reviews = []guard.ReviewView{callReview(`{"end":"the last of it"}`)}
	_, errs, _ = asking{guard: f, home: home, person: &fakePerson{secrets: []string{passphrase}}}.run(t, "review", "approve", "4f1c22aa")
	if !strings.HasPrefix(errs, "note: to be signed: approved r-4f1c22aa91d05be377c0a1e6: one call of ledger.post for tenant:north, with {\"end\":\"the last of it\"}\n") {
		t.Errorf("%s", errs)
	}
}

func TestAReceiptUnderASharedKeyIsPrintedForWhoAsks(t *testing.T) {
	f, home := signing(t, nil)
	f.reviews = []guard.ReviewView{callReview(`{}`), pendingReview()}
	f.reviews[1].ID = "r-99999999aaaaaaaaaaaaaaaa"
	run := func(key string, args ...string) (string, string, int) {
		return asking{guard: f, home: home, person: &fakePerson{secrets: []string{passphrase}}, shared: key}.run(t, append([]string{"review", "approve"}, args...)...)
	}
	strong := strings.Repeat("k", 32)
	for name, c := range map[string]struct {
		key  string
		args []string
	}{
		"no key":         {"", []string{"4f1c22aa", "--hmac"}},
		"a short one":    {"k", []string{"4f1c22aa", "--hmac"}},
		"with --json":    {strong, []string{"4f1c22aa", "--hmac", "--json"}},
		"for a payment":  {strong, []string{"99999999", "--hmac"}},
		"for one of two": {strong, []string{"4f1c22aa", "99999999", "--hmac"}},
	} {
		if out, errs, exit := run(c.key, c.args...); exit != 2 || out != "" || len(f.decisions) != 0 {
			t.Errorf("%s: exit %d, %s%s", name, exit, out, errs)
		}
	}
	out, errs, exit := run(strong, "4f1c22aa", "--hmac")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var receipt map[string]string
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &receipt); exit != 0 || err != nil {
		t.Fatalf("exit %d, %s%s, %v", exit, out, errs, err)
	}
	if receipt["schema_version"] != "1" || receipt["resource"] != "tenant:\u200b  north" || len(receipt["signature"]) != 64 || len(receipt) != 14 {
		t.Errorf("%v", receipt)
	}
	if out, _, _ := run(strong, "4f1c22aa"); strings.Contains(out, "schema_version") {
		t.Errorf("nobody asked for it: %s", out)
	}
}
