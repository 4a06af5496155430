package decision

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

// cheap is the least a key file can cost.
const cheap = 1

func operatorOf(t testing.TB, name string) (Signer, Operator) {
	t.Helper()
	file, public, err := NewKey(name, []byte("open sesame"), cheap)
	must(t, err)
	s, err := OpenKey(file, []byte("open sesame"))
	must(t, err)
	return s, Operator{Name: name, PublicKey: public}
}

func by(ops ...Operator) func(*Options) { return func(o *Options) { o.Operators = ops } }

func (f *fixture) sign(s Signer, bodies ...Body) (*State, error) {
	return f.Update(f.t.Context(), "", func(st *State) ([]Body, error) {
		out := slices.Clone(bodies)
		for i, b := range out {
			var err error
			if out[i], err = Sign(b, st, s, f.now()); err != nil {
				return nil, err
			}
		}
		return out, nil
	})
}

func TestWhatLoosensCountsOnlySignedAndWhatTightensAlways(t *testing.T) {
	alice, op := operatorOf(t, "alice")
	run := ref("run", "op")
	setup := []Body{
		Policy{Hash: testHash}, asked("r-1", pay("a.example", "1"), start), asked("r-2", pay("b.example", "1"), start), asked("r-3", pay("c.example", "1"), start),
		Decided{ReviewID: "r-2", Decision: Rejected}, Frozen{Scope: "all", Reason: "x"}, Rewritten{Run: "run", How: Edited},
	}
	for name, c := range map[string]struct {
		body    Body
		changed func(s *State) bool
	}{
		"approve":     {Decided{ReviewID: "r-1", Decision: Approved}, func(s *State) bool { return s.Review("r-1").Status(start) == StatusApproved }},
		"reopen":      {Decided{ReviewID: "r-2", Decision: Reopened}, func(s *State) bool { return s.Review("r-2").Status(start) == StatusPending }},
		"unfreeze":    {Unfrozen{Scope: "all"}, func(s *State) bool { return len(s.AllFrozen()) == 0 }},
		"acknowledge": {Acknowledged{Run: "run", Note: "x"}, func(s *State) bool { return len(s.Rewritten("run")) == 0 }},
		"resolve":     {Resolved{Ref: run, Outcome: Failed, Note: "x"}, func(s *State) bool { return s.Resolution(run) != nil }},
		"baseline":    {Baseline{Through: start, Note: "x"}, func(s *State) bool { return s.Baseline() != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, by(op))
			f.write(setup...)
			for how, body := range map[string]Body{
				"unsigned": c.body,
				"with a signature that is none": func() Body {
					b, err := normal(c.body)
					must(t, err)
					*signed(b) = Signed{DecidedBy: "alice", SignedAt: stamp(start), Signature: base64.StdEncoding.EncodeToString(make([]byte, 64)), Key: op.PublicKey}
					return b
				}(),
			} {
				_, err := f.Update(t.Context(), "", func(*State) ([]Body, error) { return []Body{body}, nil })
				if code(err) != errcode.OperatorKey {
					t.Errorf("%s: writing gives %v", how, err)
				}
				before := f.read()
				s := f.force(start, body)
				last, total := s.Ignored()
				if c.changed(s) || total == 0 || last[len(last)-1].Seq != s.Lines() || s.Lines() != before.Lines()+1 {
					t.Errorf("%s: forced into the log it counts: %v", how, last)
				}
			}
			s, err := f.sign(alice, c.body)
			if err != nil || !c.changed(s) {
				t.Fatalf("signed it does not count: %v", err)
			}
			if o, err := f.another(by(op)).Read(t.Context()); err != nil || !c.changed(o) {
				t.Errorf("read anew it does not count: %v", err)
			}
			// By value it comes back by value.
			signedBody, err := Sign(c.body, s, alice, start)
			if err != nil || reflect.TypeOf(signedBody) != reflect.TypeOf(c.body) || signed(mustNormal(t, c.body)).Signature != "" {
				t.Errorf("got %T, %v", signedBody, err)
			}
		})
	}
	t.Run("what tightens", func(t *testing.T) {
		f := newFixture(t, by(op))
		f.write(setup...)
		_, err := f.sign(alice, Decided{ReviewID: "r-1", Decision: Approved}, Resolved{Ref: run, Outcome: Failed, Note: "x"})
		must(t, err)
		s := f.write(Decided{ReviewID: "r-1", Decision: Revoked}, Decided{ReviewID: "r-3", Decision: Rejected}, Frozen{Scope: "x.example"}, Unresolved{Ref: run})
		if s.Review("r-1").Status(start) != StatusRevoked || s.Review("r-3").Status(start) != StatusRejected || len(s.AllFrozen()) != 2 || s.Resolution(run) != nil {
			t.Error("unsigned it does not count")
		}
	})
	t.Run("without operators all counts, and nothing passes for signed", func(t *testing.T) {
		f := newFixture(t)
		f.write(setup...)
		s, err := f.sign(alice, Decided{ReviewID: "r-1", Decision: Approved})
		must(t, err)
		if d := s.Review("r-1").Last(); d.Signature != "" || d.Operator != "" || s.Review("r-1").Status(start) != StatusApproved {
			t.Errorf("got %+v", d)
		}
		o, err := f.another(by(op)).Read(t.Context())
		must(t, err)
		if d := o.Review("r-1").Last(); d.Signature == "" || d.Operator != "alice" {
			t.Errorf("with operators it is %+v", d)
		}
	})
}

func mustNormal(t testing.TB, b Body) Body {
	t.Helper()
	n, err := normal(b)
	must(t, err)
	return n
}

func TestASignedRejectionSaysWhoseItIs(t *testing.T) {
	alice, op := operatorOf(t, "alice")
	f := newFixture(t, by(op))
	f.write(asked("r-1", pay("a.example", "1"), start), asked("r-2", pay("a.example", "2"), start))
	_, err := f.sign(alice, Decided{ReviewID: "r-1", Decision: Rejected, Note: "no"})
	must(t, err)
	s := f.write(Decided{ReviewID: "r-2", Decision: Rejected, Signed: Signed{DecidedBy: "alice", Key: op.PublicKey, Signature: "AAAA"}})
	if d := s.Review("r-1").Last(); d.Operator != "alice" || d.DecidedBy != "alice" || d.Signature == "" {
		t.Errorf("got %+v", d)
	}
	if d := s.Review("r-2").Last(); d.Operator != "" || d.Signature != "" {
		t.Errorf("a forged one: %+v", d)
	}
}

func TestASignatureCannotBeMovedChangedOrUsedAgain(t *testing.T) {
	alice, op := operatorOf(t, "alice")
	_, other := operatorOf(t, "bob")
	f := newFixture(t, by(op))
	f.write(Policy{Hash: testHash})
	f.write(asked("r-1", pay("a.example", "1"), start), asked("r-2", pay("a.example", "2"), start), Frozen{Scope: "all", Reason: "x"})
	_, err := f.sign(alice, Decided{ReviewID: "r-1", Decision: Approved, Note: "fine"})
	must(t, err)
	_, err = f.sign(alice, Unfrozen{Scope: "all"})
	must(t, err)
	raw := f.bytes()
	status := func(t *testing.T, bad []byte, ops ...Operator) (*State, *ReviewState) {
		t.Helper()
		g := newFixture(t, by(ops...))
		g.set(bad)
		s := g.read()
		return s, s.Review("r-1")
	}
	if _, r := status(t, raw, op); r.Status(start) != StatusApproved {
		t.Fatal("as it is it does not count")
	}
	edits := map[string]func(i int, m map[string]any) string{
		"what was shown is changed":  func(i int, m map[string]any) string { return set(i == 1, m, "amount", "0.01") },
		"when it expires is changed": func(i int, m map[string]any) string { return set(i == 1, m, "expires_at", "2036-01-01T00:00:00.000Z") },
		"who asked is changed":       func(i int, m map[string]any) string { return set(i == 1, m, "actor", "somebody") },
		"the note is changed":        func(i int, m map[string]any) string { return set(i == 4, m, "note", "very fine") },
		"the time of signing is changed": func(i int, m map[string]any) string {
			return set(i == 4, m, "signed_at", stamp(start.Add(time.Second)))
		},
		"the name is changed":           func(i int, m map[string]any) string { return set(i == 4, m, "decided_by", "bob") },
		"it is moved to another review": func(i int, m map[string]any) string { return set(i == 4, m, "review_id", "r-2") },
		"it is moved to another log":    func(i int, m map[string]any) string { return set(i == 0, m, "version", "2") },
		"another key is named":          func(i int, m map[string]any) string { return set(i == 4, m, "key", other.PublicKey) },
		"the signature is spelt otherwise": func(i int, m map[string]any) string {
			if i == 4 {
				m["signature"] = m["signature"].(string) + "\n"
			}
			return ""
		},
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			s, r := status(t, relink(t, audit(t, raw), edit), op, other)
			if r.Status(start) != StatusPending || s.Review("r-2").Status(start) != StatusPending {
				t.Error("it still permits")
			}
			if _, n := s.Ignored(); n == 0 {
				t.Error("nobody is told")
			}
		})
	}

	again := func(t *testing.T, l map[string]any, wait time.Duration, before ...Body) (*State, Ignored) {
		t.Helper()
		g := newFixture(t, by(op))
		g.set(raw)
		if len(before) > 0 {
			g.force(start.Add(wait), before...)
		}
		all := append(audit(t, g.bytes()), l)
		g2 := newFixture(t, by(op))
		g2.set(relink(t, all, func(i int, m map[string]any) string {
			if i == len(all)-1 {
				m["seq"] = len(all)
				m["at"] = stamp(start.Add(wait))
			}
			return ""
		}))
		s := g2.read()
		last, total := s.Ignored()
		if total == 0 {
			t.Fatal("nobody is told")
		}
		return s, last[len(last)-1]
	}
	t.Run("a copied unfreeze after another freeze", func(t *testing.T) {
		for _, wait := range []time.Duration{time.Second, time.Hour} {
			s, why := again(t, audit(t, raw)[5], wait, Frozen{Scope: "all", Reason: "again"})
			if len(s.AllFrozen()) != 1 || why.Why == "" {
				t.Errorf("after %s it lifts it again: %v", wait, why)
			}
		}
	})
	t.Run("a copied approval after it was revoked", func(t *testing.T) {
		s, _ := again(t, audit(t, raw)[4], time.Second, Decided{ReviewID: "r-1", Decision: Revoked})
		if s.Review("r-1").Status(start) != StatusRevoked {
			t.Error("it approves again")
		}
	})
}

func set(when bool, m map[string]any, name string, v any) string {
	if when {
		m[name] = v
	}
	return ""
}

func TestAWithheldSignatureIsNotGoodForLater(t *testing.T) {
	alice, op := operatorOf(t, "alice")
	f := newFixture(t, by(op))
	f.write(Policy{Hash: testHash}, asked("r-1", pay("a.example", "1"), start), Frozen{Scope: "all", Reason: "x"})
	s := f.read()
	approve, err := Sign(Decided{ReviewID: "r-1", Decision: Approved}, s, alice, start)
	must(t, err)
	unfreeze, err := Sign(Unfrozen{Scope: "all"}, s, alice, start)
	must(t, err)
	reopen, err := Sign(Decided{ReviewID: "r-1", Decision: Reopened}, s, alice, start)
	must(t, err)

	f.force(hour(20), approve)
	if r := f.read().Review("r-1"); !r.ExpiresAt(start).Equal(hour(24)) {
		t.Errorf("an approval counts from when it was signed, but expires at %s", r.ExpiresAt(start))
	}
	f.force(hour(21), Frozen{Scope: "all", Reason: "again"}, unfreeze)
	if len(f.read().AllFrozen()) != 1 {
		t.Error("it lifts a freeze from after it was signed")
	}
	f.force(hour(22), asked("r-2", pay("b.example", "1"), hour(22)), Decided{ReviewID: "r-2", Decision: Rejected})
	f.force(hour(23), reopen)
	if f.read().Review("r-2").Status(hour(23)) != StatusRejected {
		t.Error("it reopens what was rejected after it was signed")
	}
}

func TestARetiredKeyKeepsItsPastAndHasNoFuture(t *testing.T) {
	alice, op := operatorOf(t, "alice")
	retired := op
	retired.Until = hour(2)
	approve := func(id string, st *State, at time.Time) Body {
		b, err := Sign(Decided{ReviewID: id, Decision: Approved}, st, alice, at)
		must(t, err)
		return b
	}
	f := newFixture(t, by(retired))
	f.write(Policy{Hash: testHash}, asked("r-1", pay("a.example", "1"), start), asked("r-2", pay("b.example", "1"), start), asked("r-3", pay("c.example", "1"), start), asked("r-4", pay("d.example", "1"), start))
	s := f.read()
	f.force(hour(1), approve("r-1", s, hour(1)))
	f.force(hour(2), approve("r-2", s, hour(2)))     // signed when it was retired
	f.force(hour(3), approve("r-3", s, hour(1.5)))   // written after that
	f.force(hour(1.5), approve("r-4", s, hour(1.5))) // all dated back, but the log had gone on
	s = f.read()
	for id, want := range map[string]string{"r-1": StatusApproved, "r-2": StatusPending, "r-3": StatusPending, "r-4": StatusPending} {
		if got := s.Review(id).Status(hour(3)); got != want {
			t.Errorf("%s is %s, want %s", id, got, want)
		}
	}
	last, _ := s.Ignored()
	for _, i := range last {
		if !strings.Contains(i.Why, "retired on 2026-03-04T07:06:07.000Z") {
			t.Errorf("it says %q", i.Why)
		}
	}
}

func TestTheFirstLineOfALogCannotBeSigned(t *testing.T) {
	alice, op := operatorOf(t, "alice")
	f := newFixture(t, by(op))
	if _, err := f.sign(alice, Baseline{Note: "x"}); code(err) != errcode.OperatorKey {
		t.Errorf("got %v", err)
	}
	if _, err := f.sign(alice, Frozen{Scope: "all"}); code(err) != errcode.OperatorKey {
		t.Errorf("a line without a place for a signature: %v", err)
	}
	if _, err := f.sign(alice, Decided{ReviewID: "r-1", Decision: Approved}); code(err) != errcode.OperatorKey {
		t.Errorf("a review nobody opened: %v", err)
	}
}

func TestASignatureIsOverTheCanonicalActTheLogAndWhatWasShown(t *testing.T) {
	alice, op := operatorOf(t, "alice")
	f := newFixture(t, by(op))
	f.write(Policy{Hash: testHash})
	f.write(asked("r-1", pay("a.example", "1"), start))
	_, err := f.sign(alice, Decided{ReviewID: "r-1", Decision: Approved, Note: "fine"})
	must(t, err)
	all := audit(t, f.bytes())
	act := map[string]any{"type": "decided", "review_id": "r-1", "decision": "approved", "note": "fine", "decided_by": "alice", "signed_at": stamp(start)}
	payload := plainJSON(t, map[string]any{"log": all[0]["sig"], "line": act, "opened": all[1]["sig"]})
	sig, err := base64.StdEncoding.DecodeString(all[2]["signature"].(string))
	must(t, err)
	key, err := publicKey(op.PublicKey)
	must(t, err)
	if !ed25519.Verify(key, []byte(payload), sig) {
		t.Errorf("it is not over %s", payload)
	}
}

func TestAKeyFileOpensWithItsPassphraseOnly(t *testing.T) {
	pass := []byte("correct horse battery staple")
	file, public, err := NewKey("alice", pass, cheap)
	must(t, err)
	s, err := OpenKey(file, pass)
	must(t, err)
	if s.Name() != "alice" || s.PublicKey() != public {
		t.Errorf("got %s, %s", s.Name(), s.PublicKey())
	}
	sig, err := s.Sign([]byte("x"))
	key, kerr := publicKey(public)
	if err != nil || kerr != nil || !ed25519.Verify(key, []byte("x"), sig) {
		t.Error("it does not sign")
	}
	if bytes.Contains(file, []byte(base64.StdEncoding.EncodeToString(s.(*operatorKey).private.Seed()))) {
		t.Error("the file holds the key as it is")
	}
	for _, wrong := range [][]byte{nil, []byte("x"), append(bytes.Clone(pass), ' ')} {
		if _, err := OpenKey(file, wrong); code(err) != errcode.OperatorKey || !strings.Contains(err.Error(), "passphrase") {
			t.Errorf("%q gives %v", wrong, err)
		}
	}
	if name, pub, err := KeyInfo(file); err != nil || name != "alice" || pub != public {
		t.Errorf("got %s, %s, %v", name, pub, err)
	}
	again, other, err := NewKey("alice", pass, cheap)
	if err != nil || other == public || bytes.Equal(again, file) {
		t.Error("two keys are one")
	}
}

func TestAKeyFileThatWasChangedDoesNotOpen(t *testing.T) {
	pass := []byte("x y z")
	file, _, err := NewKey("alice", pass, cheap)
	must(t, err)
	_, another, err := NewKey("bob", pass, cheap)
	must(t, err)
	edit := func(fn func(m map[string]any)) []byte {
		var m map[string]any
		must(t, json.Unmarshal(file, &m))
		fn(m)
		b, err := json.Marshal(m)
		must(t, err)
		return b
	}
	kdf := func(name string, v any) func(map[string]any) {
		return func(m map[string]any) { m["kdf"].(map[string]any)[name] = v }
	}
	for name, bad := range map[string][]byte{
		"nothing":             nil,
		"no JSON":             []byte("x"),
		"too long":            append(bytes.Repeat([]byte(" "), MaxKeyFile), file...),
		"another name":        edit(func(m map[string]any) { m["name"] = "bob" }),
		"a blank name":        edit(func(m map[string]any) { m["name"] = " " }),
		"another public key":  edit(func(m map[string]any) { m["publicKey"] = another }),
		"no public key":       edit(func(m map[string]any) { m["publicKey"] = "x" }),
		"another version":     edit(func(m map[string]any) { m["version"] = 2 }),
		"another type":        edit(func(m map[string]any) { m["type"] = "x" }),
		"another cipher":      edit(func(m map[string]any) { m["cipher"] = "none" }),
		"another derivation":  edit(kdf("name", "pbkdf2")),
		"a cost of gigabytes": edit(kdf("logN", 30)),
		"a negative cost":     edit(kdf("logN", -1)),
		"another cost":        edit(kdf("logN", 2)),
		"another r":           edit(kdf("r", 1024)),
		"another p":           edit(kdf("p", 1024)),
		"another salt":        edit(kdf("salt", base64.StdEncoding.EncodeToString(make([]byte, saltSize)))),
		"a short salt":        edit(kdf("salt", "")),
		"another nonce":       edit(func(m map[string]any) { m["nonce"] = base64.StdEncoding.EncodeToString(make([]byte, 24)) }),
		"a short nonce":       edit(func(m map[string]any) { m["nonce"] = "" }),
		"a shorter seal":      edit(func(m map[string]any) { m["sealed"] = "" }),
		"a member more":       edit(func(m map[string]any) { m["x"] = 1 }),
	} {
		if _, err := OpenKey(bad, pass); code(err) != errcode.OperatorKey {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := OpenKey(edit(func(map[string]any) {}), pass); err != nil {
		t.Errorf("written in one line it does not open: %v", err)
	}
}

func TestAKeyIsMadeWithANameAndAPassphrase(t *testing.T) {
	for name, c := range map[string]struct{ name, pass string }{
		"no name": {"", "x"}, "a blank name": {" ", "x"}, "a name with an escape": {"a\x1b[0m", "x"}, "a long name": {strings.Repeat("a", 65), "x"},
		"bytes": {"a\xff", "x"}, "a direction mark": {"a\u202eb", "x"}, "no passphrase": {"alice", ""}, "a blank one": {"alice", " \t"},
	} {
		if _, _, err := NewKey(c.name, []byte(c.pass), cheap); code(err) != errcode.OperatorKey {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOperatorsWhoseKeysCannotBeReadAreRefused(t *testing.T) {
	_, op := operatorOf(t, "alice")
	for name, ops := range map[string][]Operator{
		"no base64": {{Name: "a", PublicKey: "!"}}, "too short": {{Name: "a", PublicKey: "AAAA"}}, "the same twice": {op, op},
		"white space": {{Name: "a", PublicKey: op.PublicKey + "\n"}},
	} {
		if _, err := Open(Options{Dir: "x", Now: func() time.Time { return start }, Operators: ops}); code(err) != errcode.OperatorKey {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type badSigner struct{ Signer }

func (badSigner) Sign([]byte) ([]byte, error) { return nil, errors.New("no") }

func TestASignerThatFailsIsAnError(t *testing.T) {
	alice, op := operatorOf(t, "alice")
	f := newFixture(t, by(op))
	f.write(Policy{Hash: testHash})
	if _, err := f.sign(badSigner{alice}, Baseline{Note: "x"}); code(err) != errcode.OperatorKey {
		t.Errorf("got %v", err)
	}
}
