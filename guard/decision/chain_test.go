package decision

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "write golden files anew")

// everyKind is a log with a line of every type that can follow another.
func everyKind() []entry {
	in := Intent{Names: []string{"0x1111111111111111111111111111111111111111", "host:api.example.com"}, Amount: "1500000", Asset: "eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913", Resource: "https://api.example.com/v1?q=\"1\"", Template: "escrow"}
	op := "op \u2028 \x7f </script> \U0001F600"
	return []entry{
		{"", Policy{Path: "/etc/policy.json", Hash: testHash, Operators: []Operator{{Name: "alice", PublicKey: "AAAA"}}, Version: "1.0.0"}},
		{"agent-1", Opened{
			ReviewID: "r-1", Kind: "payment", Intent: in, Counterparty: "api.example.com", Amount: "1.5", Asset: "USDC", PayTo: in.Names[0], Resource: in.Resource, Network: "eip155:8453",
			Facts: []Fact{{"amount", "1.5 USDC", "agent"}, {"spent", "0", "trace"}}, Shown: []Shown{{"per_counterparty_limit", "0", "0", 0, 0}},
			Reasons:   []Reason{{"review_above", "1.5 is more than 1", nil, 0}, {"open_partial", "1 open", []Ref{{"run-1", &op}, {"run-1", nil}}, 21}},
			ExpiresAt: start.Add(24 * time.Hour), PolicyHash: testHash,
		}},
		{"", Decided{ReviewID: "r-1", Decision: Approved, Note: "ok", Signed: Signed{DecidedBy: "alice", SignedAt: stamp(start), Signature: "c2ln", Key: "AAAA"}}},
		{"agent-1", Held{HoldID: "h-1", Intent: in, ExpiresAt: start.Add(10 * time.Minute), ReviewID: "r-1"}},
		{"", ApprovalUsed{ReviewID: "r-1", By: UsedBy{HoldID: "h-1"}}},
		{"", ApprovalUsed{ReviewID: "r-1", By: UsedBy{Run: "run-1", Operation: new(string)}}},
		{"", ApprovalUsed{ReviewID: "r-1", By: UsedBy{Run: "run-1"}}},
		{"", Released{HoldID: "h-1", Why: WhyPaid, By: &Ref{"run-1", &op}}},
		{"", Released{HoldID: "h-2", Why: WhyPaid, By: &Ref{"run-1", nil}, Note: "n"}},
		{"", Allowed{Intent: in, PolicyHash: testHash, Checked: Checked{Events: 9007199254740991, Runs: 2, Through: stamp(start)}, ReviewID: "r-1"}},
		{"", Blocked{Intent: pay("a.example", "1"), Rule: "denylist", Detail: "it is denied", PolicyHash: testHash}},
		{"", Frozen{Scope: "all", Reason: "fire"}},
		{"", Unfrozen{Scope: "all", Reason: "it is out"}},
		{"", Resolved{Ref: Ref{"run-1", &op}, Outcome: Settled, Amount: "7", Asset: in.Asset, Time: "2026-01-01T00:00:00Z", Note: "seen"}},
		{"", Unresolved{Ref: Ref{"run-1", nil}, Note: "no"}},
		{"", Baseline{Through: start, Runs: []Covered{{"run-1", 10, 1, 4294967295}}, Open: 1, Damaged: 2, Note: "past"}},
		{"", Seen{Runs: []Covered{{"run-1", 10, 1, 0}}}},
		{"", Rewritten{Run: "run-1", Covered: 10, EventsBefore: 1, EventsAfter: 0, How: Removed}},
		{"", Acknowledged{Run: "run-1", Through: 10, Faults: 0, Note: "known"}},
		{"agent-1", Opened{
			ReviewID: "r-2", Kind: KindToolCall, Intent: Intent{Resource: "tenant:a", Typed: "tool_call " + testHash}, Counterparty: "ledger.post", Reasons: []Reason{{"tool_approval", "it is asked", nil, 0}},
			ExpiresAt: start.Add(24 * time.Hour), PolicyHash: testHash, Call: &Call{
				Tool: "ledger.post", Resource: "tenant:a", Risk: "critical", Arguments: `{"amount":"1"}`, ArgsHash: testHash, RequestHash: testHash, Policy: "ops", PolicyVersion: "p-1", PolicyHash: testHash,
				Canon: "jcs-1", TTL: 300_000, Spend: &Spend{"g", "PAY", "USD", "1.5", "0.9"},
			},
		}},
		{"", Decided{ReviewID: "r-2", Decision: Approved}},
		{"", Authorized{ReceiptID: "n-1", ReceiptHash: testHash, Receipt: `{"kind":"x"}`, Tool: "ledger.post", Scope: "tenant:a", ArgsHash: testHash, RequestHash: testHash, Approver: "alice",
			ReviewID: "r-2", Spend: &Spend{"g", "PAY", "USD", "1.5", ""}, ExpiresAt: start.Add(time.Hour), Canon: "jcs-1"}},
		{"agent-1", Denied{Tool: "authorize_tool_call", Target: "ledger.post", Scope: "tenant:a", ReasonCode: "expired_receipt", Detail: "it is over", ArgsHash: testHash, ReceiptID: "d-0", Presented: "n-0", ReviewID: "r-0", Policy: "ops", Burnt: "n-0", Canon: "jcs-1"}},
		{"agent-1", Executed{ReceiptID: "n-1", ReceiptHash: testHash, Tool: "ledger.post", Scope: "tenant:a", ArgsHash: testHash, ReviewID: "r-2", Canon: "jcs-1"}},
		{"", Recovered{File: "f", SHA256: testHash, Lines: 3, Carried: 0}},
		{"", Adopted{File: "f", SHA256: testHash, Lines: 3, Carried: 1}},
	}
}

func TestEveryKindOfLineIsReadAsItWasWrittenAndAsTheGoldenFileHasIt(t *testing.T) {
	all := everyKind()
	kindsSeen := map[string]bool{}
	var text []byte
	prev := ""
	for i, e := range all {
		one, lines, err := compose(int64(i), prev, start.Add(time.Duration(i)*time.Second), []entry{e})
		if err != nil {
			t.Fatalf("%s: %v", e.body.kind(), err)
		}
		want, err := normal(e.body)
		if err != nil || !reflect.DeepEqual(lines[0].body, want) {
			t.Errorf("%s: %+v is read as %+v, %v", e.body.kind(), want, lines[0].body, err)
		}
		kindsSeen[e.body.kind()] = true
		text, prev = append(text, one...), lines[0].Sig
	}
	for kind := range kinds {
		if !kindsSeen[kind] {
			t.Errorf("no %s line is tried", kind)
		}
	}
	audit(t, text)
	golden := filepath.Join("testdata", "every-kind.ndjson")
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(golden, text, 0o644))
	}
	have, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(have, text) {
		t.Fatalf("it is not %s (%v); a log that was written before would no longer verify", golden, err)
	}
	f := newFixture(t)
	f.set(text)
	if s := f.read(); s.Lines() != int64(len(all)) {
		t.Errorf("%d lines", s.Lines())
	}
}

// relink signs lines anew after they were changed, so that nothing else is wrong
// with them. A line may be text already.
func relink(t testing.TB, all []map[string]any, edit func(i int, m map[string]any) string) []byte {
	t.Helper()
	var out []byte
	prev := ""
	for i, m := range all {
		m["prev"] = prev
		delete(m, "sig")
		if text := edit(i, m); text != "" {
			out = append(append(out, text...), '\n')
			continue
		}
		before := m["prev"]
		delete(m, "prev")
		_, signed := m["sig"]
		if !signed {
			sum := sha256.Sum256([]byte(plainJSON(t, map[string]any{"prev_sig": before, "entry": m})))
			m["sig"] = hex.EncodeToString(sum[:])
		}
		m["prev"] = before
		prev, _ = m["sig"].(string)
		out = append(append(out, plainJSON(t, m)...), '\n')
	}
	return out
}

func TestALineWithOneFaultMakesTheLogUnsound(t *testing.T) {
	sound := newFixture(t)
	sound.write(Frozen{Scope: "a.example", Reason: "one"})
	sound.write(asked("r-1", pay("a.example", "1"), start))
	sound.write(held("h-1", pay("a.example", "1"), start), Frozen{Scope: "b.example", Reason: "four"})
	sound.write(Released{HoldID: "h-1", Why: WhyReleased})
	raw := sound.bytes()
	lines := strings.SplitAfter(strings.TrimSuffix(string(raw), "\n"), "\n")

	// Each changes line 3, or says which.
	for name, c := range map[string]struct {
		edit func(m map[string]any) string // in the chain, with a good sig
		text func(all []string) string     // of the bytes
		line int64
		says string
	}{
		"nothing at all":                {edit: func(map[string]any) string { return "" }},
		"an unknown type":               {edit: put("type", "permitted"), line: 3, says: `its type "permitted" is not known`},
		"no type":                       {edit: drop("type"), line: 3, says: "no type"},
		"a member nobody knows":         {edit: put("hold", "x"), line: 3, says: "member .hold is not as"},
		"a member in another case":      {edit: func(m map[string]any) string { m["Hold_ID"] = m["hold_id"]; delete(m, "hold_id"); return "" }, line: 3, says: "Hold_ID"},
		"a member that is missing":      {edit: drop("expires_at"), line: 3, says: "expires_at"},
		"a member that is null":         {edit: put("intent", nil), line: 3, says: "intent"},
		"a member of another type":      {edit: put("hold_id", 7), line: 3, says: "hold_id"},
		"an empty optional member":      {edit: put("review_id", ""), line: 3, says: "review_id"},
		"a member inside that is new":   {edit: inside("intent", "extra", 1), line: 3, says: "intent"},
		"a member inside that is gone":  {edit: inside("intent", "names", nil), line: 3, says: "intent"},
		"an instant without digits":     {edit: put("expires_at", "2026-03-04T05:16:07Z"), line: 3, says: "expires_at"},
		"an instant in another zone":    {edit: put("expires_at", "2026-03-04T05:16:07.000+00:00"), line: 3, says: "expires_at"},
		"a seq that skips one":          {edit: put("seq", 4), line: 3, says: "its seq is 4"},
		"a seq that is text":            {edit: put("seq", "3"), line: 3, says: "seq is no line number"},
		"a seq of zero":                 {edit: put("seq", 0), line: 3, says: "seq is no line number"},
		"no at":                         {edit: drop("at"), line: 3, says: "at is no instant"},
		"an at without milliseconds":    {edit: put("at", "2026-03-04T05:06:07Z"), line: 3, says: "at is no instant"},
		"an at on the 30th of February": {edit: put("at", "2026-02-30T05:06:07.000Z"), line: 3, says: "at is no instant"},
		"an actor without a name":       {edit: put("actor", ""), line: 3, says: "actor"},
		"an actor that is no text":      {edit: put("actor", 1), line: 3, says: "actor"},
		"more that is zero":             {edit: put("more", 0), line: 3, says: "more"},
		"more than follow":              {edit: put("more", 2), line: 4, says: "2 of the same write"},
		"no more where more follow":     {edit: func(m map[string]any) string { delete(m, "more"); return "" }}, // the next then stands for itself
		"a sig in upper case": {edit: func(m map[string]any) string {
			m["sig"] = strings.ToUpper(testHash)
			return ""
		}, line: 3, says: "sig is no signature"},
		"a wrong sig":                 {edit: put("sig", testHash), line: 3, says: "sig is not that of its content"},
		"a prev of another line":      {edit: put("prev", testHash), line: 3, says: "its prev is not the sig"},
		"an empty prev in the middle": {edit: put("prev", ""), line: 3, says: "its prev is not the sig"},
		"a word without meaning":      {edit: func(m map[string]any) string { return "" }, text: swap(`"why":"released"`, `"why":"rereleased"`), line: 5, says: "sig is not that"},

		"a line that is missing":         {text: func(l []string) string { return l[0] + l[1] + l[3] + l[4] + "\n" }, line: 3, says: "seq is 4"},
		"the first line missing":         {text: func(l []string) string { return strings.Join(l[1:], "") + "\n" }, line: 1, says: "seq is 2"},
		"a line that stands twice":       {text: func(l []string) string { return l[0] + l[0] + strings.Join(l[1:], "") + "\n" }, line: 2, says: "seq is 1"},
		"two lines in the wrong order":   {text: func(l []string) string { return l[1] + l[0] + strings.Join(l[2:], "") + "\n" }, line: 1, says: "seq is 2"},
		"an empty line":                  {text: func(l []string) string { return l[0] + "\n" + strings.Join(l[1:], "") + "\n" }, line: 2, says: "not JSON"},
		"a line of spaces":               {text: func(l []string) string { return l[0] + "  \n" + strings.Join(l[1:], "") + "\n" }, line: 2, says: "not JSON"},
		"a space in a line":              {text: swap(`{"actor`, `{ "actor`, `{"at"`, `{ "at"`), line: 1, says: "canonical"},
		"a carriage return":              {text: swap("}\n", "}\r\n"), line: 1, says: "canonical"},
		"members in another order":       {text: swap(`,"type":"frozen"}`, `}`, `{"at"`, `{"type":"frozen","at"`), line: 1, says: "canonical"},
		"an escape that is not needed":   {text: swap(`"reason":"one"`, `"reason":"\u006fne"`), line: 1, says: "canonical"},
		"a number in another form":       {text: swap(`"seq":1,`, `"seq":1.0,`), line: 1, says: "canonical"},
		"a member that stands twice":     {text: swap(`"scope":"a.example",`, `"scope":"a.example","scope":"a.example",`), line: 1, says: "canonical form"},
		"bytes that are not UTF-8":       {text: swap(`"reason":"one"`, "\"reason\":\"on\xff\""), line: 1, says: "canonical form"},
		"half of a surrogate pair":       {text: swap(`"reason":"one"`, `"reason":"\ud800"`), line: 1, says: "canonical form"},
		"text behind the object":         {text: swap("\"type\":\"frozen\"}\n", "\"type\":\"frozen\"}{}\n"), line: 1, says: "not JSON"},
		"a list":                         {text: func(l []string) string { return l[0] + "[]\n" }, line: 2, says: "no JSON object"},
		"an object of another program":   {text: func([]string) string { return `{"type":"opened","review_id":"1"}` + "\n" }, line: 1, says: "none of the members"},
		"one letter of what was decided": {text: swap(`"reason":"four"`, `"reason":"five"`), line: 4, says: "sig is not that"},
	} {
		t.Run(name, func(t *testing.T) {
			var bad []byte
			switch {
			case c.text != nil:
				if bad = []byte(c.text(lines)); bytes.Equal(bad, raw) {
					t.Fatal("nothing was changed")
				}
			default:
				bad = relink(t, audit(t, raw), func(i int, m map[string]any) string {
					if i == 2 {
						return c.edit(m)
					}
					return ""
				})
			}
			f := newFixture(t)
			f.set(bad)
			report, err := Verify(t.Context(), f.Path(), nil)
			must(t, err)
			if c.line == 0 {
				f.read()
				if report.Unsound != nil || report.Lines != 5 {
					t.Errorf("it does not verify: %v", report.Unsound)
				}
				return
			}
			u := unsoundness(t, f.Log)
			if u.Line != c.line || !strings.Contains(u.Reason, c.says) || u.Foreign != (c.line == 1 && c.says == "none of the members") {
				t.Errorf("got line %d, %q, foreign %v", u.Line, u.Reason, u.Foreign)
			}
			if strings.ContainsAny(u.Reason, "\n") || len(u.Error()) > 500 {
				t.Errorf("that is no sentence: %q", u.Reason)
			}
			if v := report.Unsound; v == nil || v.Line != u.Line || v.Reason != u.Reason || v.Foreign != u.Foreign {
				t.Errorf("audit says %+v", v)
			}
			// What forbids is believed in spite of it.
			if _, frozen := u.State.Frozen([]string{"b.example"}); !frozen && bytes.Contains(bad, []byte(`"scope":"b.example"`)) {
				t.Error("a freeze behind the fault is lost")
			}
		})
	}
}

func put(name string, v any) func(map[string]any) string {
	return func(m map[string]any) string { m[name] = v; return "" }
}

func drop(name string) func(map[string]any) string {
	return func(m map[string]any) string { delete(m, name); return "" }
}

func inside(name, member string, v any) func(map[string]any) string {
	return func(m map[string]any) string {
		in := m[name].(map[string]any)
		if in[member] = v; v == nil {
			delete(in, member)
		}
		return ""
	}
}

func swap(pairs ...string) func([]string) string {
	return func(l []string) string {
		all := strings.Join(l, "") + "\n"
		for i := 0; i < len(pairs); i += 2 {
			all = strings.Replace(all, pairs[i], pairs[i+1], 1)
		}
		return all
	}
}

func TestAWordWithoutMeaningIsRefusedEvenWithAGoodSig(t *testing.T) {
	f := newFixture(t)
	f.write(asked("r-1", pay("a.example", "1"), start))
	f.write(Decided{ReviewID: "r-1", Decision: Rejected})
	bad := relink(t, audit(t, f.bytes()), func(i int, m map[string]any) string {
		if i == 1 {
			m["decision"] = "allowed"
		}
		return ""
	})
	g := newFixture(t)
	g.set(bad)
	if u := unsoundness(t, g.Log); u.Line != 2 || !strings.Contains(u.Reason, `decision "allowed" is not known`) {
		t.Errorf("got %v", u)
	}
}

func TestClocksThatGoBackwardsAreNoFault(t *testing.T) {
	f := newFixture(t)
	for _, h := range []time.Duration{0, -time.Hour, time.Hour, -100000 * time.Hour} {
		f.t.Helper()
		f.force(start.Add(h), Frozen{Scope: "a.example", Reason: "x"})
	}
	if s := f.read(); s.Lines() != 4 || !s.At().Equal(start.Add(-100000*time.Hour)) {
		t.Errorf("got %d lines", s.Lines())
	}
}

func TestALineThatIsTooLongIsNeitherWrittenNorRead(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 64 MiB")
	}
	if _, err := new(reader).read(make([]byte, maxLine+1)); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("reading gives %v", err)
	}
	// What comes after it is still found.
	var got []int
	src := append(bytes.Repeat([]byte("x"), 5<<20), "\nab\nc\n\nrest"...)
	must(t, eachLine(t.Context(), bytes.NewReader(src), 0, int64(len(src)), func(raw []byte) error {
		got = append(got, len(raw))
		return nil
	}))
	if !reflect.DeepEqual(got, []int{5 << 20, 2, 1, 0}) {
		t.Errorf("got %v", got)
	}
}

func TestOldVerdictsAreVerifiedButNotDecoded(t *testing.T) {
	f := newFixture(t)
	in := pay("a.example", "1")
	f.force(start, Allowed{Intent: in, PolicyHash: testHash})
	bad := relink(t, audit(t, f.bytes()), func(_ int, m map[string]any) string { m["surprise"] = true; return "" })
	for _, c := range []struct {
		raw    []byte
		sound  bool
		recent bool
	}{{f.bytes(), true, true}, {f.bytes(), true, false}, {bad, false, false}} {
		g := newFixture(t)
		g.set(c.raw)
		if !c.recent {
			g.add(time.Hour)
		}
		s, err := g.Read(t.Context())
		if (err == nil) != c.sound || c.sound && s.RecentVerdict("allowed", in, "", start) != c.recent {
			t.Errorf("sound %v, recent %v: %v", c.sound, c.recent, err)
		}
	}
}

func TestAReadThatIsCancelledGoesOnWhereItWas(t *testing.T) {
	f := newFixture(t)
	f.write(Frozen{Scope: "a.example", Reason: "x"})
	l := f.another()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Read(ctx); err == nil {
		t.Error("a cancelled read answers")
	}
	if s, err := l.Read(t.Context()); err != nil || s.Lines() != 1 {
		t.Errorf("then %d lines, %v", s.Lines(), err)
	}
}

// FuzzLine holds what the reader accepts to being exactly what it would write.
func FuzzLine(f *testing.F) {
	raw, err := os.ReadFile(filepath.Join("testdata", "every-kind.ndjson"))
	if err != nil {
		f.Fatal(err)
	}
	for l := range bytes.Lines(raw) {
		f.Add(bytes.TrimSuffix(l, []byte("\n")))
	}
	f.Add([]byte(`{"at":"2026-03-04T05:06:07.000Z","prev":"","reason":"x","scope":"all","seq":1,"sig":"","type":"frozen"}`))
	f.Add([]byte(`{"seq":1e0}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		hold(t, src)
		// A line whose only fault is its sig, with that put right.
		var m map[string]json.RawMessage
		if json.Unmarshal(src, &m) != nil || m == nil {
			return
		}
		prev, _ := m["prev"], m["sig"]
		delete(m, "prev")
		delete(m, "sig")
		entry, err := json.Marshal(m)
		if err != nil {
			return
		}
		var p string
		_ = json.Unmarshal(prev, &p)
		m["sig"] = json.RawMessage(`"` + chain(entry, p) + `"`)
		if m["prev"] = prev; prev == nil {
			m["prev"] = json.RawMessage(`""`)
		}
		if again, err := json.Marshal(m); err == nil {
			hold(t, again)
		}
		lenient(src, start)
		newStrangers().add(src)
		_ = row(src)
	})
}

func hold(t *testing.T, src []byte) {
	l, err := new(reader).read(src)
	if err != nil {
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("more than a sentence: %q", err)
		}
		return
	}
	e := l.Envelope
	again, err := encode(&e, l.body)
	if err != nil || string(again) != string(src)+"\n" {
		t.Errorf("%s is written again as %s, %v", src, again, err)
	}
}

func TestAnyTextIsReadAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		var bodies []entry
		for range rapid.IntRange(1, 4).Draw(t, "lines") {
			bodies = append(bodies, entry{rapid.StringN(0, 5, -1).Draw(t, "actor"), Opened{
				ReviewID: "r" + text.Draw(t, "id"), Kind: text.Draw(t, "kind"), Intent: Intent{Names: rapid.SliceOf(text).Draw(t, "names"), Typed: text.Draw(t, "typed")},
				Reasons:   []Reason{{Rule: text.Draw(t, "rule"), Total: rapid.IntRange(0, 1<<53-1).Draw(t, "total"), Evidence: []Ref{ref(text.Draw(t, "run"), text.Draw(t, "op"))}}},
				ExpiresAt: time.UnixMilli(rapid.Int64Range(0, 253402300799000).Draw(t, "ms")),
			}})
		}
		raw, _, err := compose(0, "", start, bodies)
		if err != nil {
			t.Fatal(err)
		}
		v := newVerifier()
		n := 0
		if err := eachLine(context.Background(), bytes.NewReader(raw), 0, int64(len(raw)), func(l []byte) error {
			done, err := v.feed(l)
			n += len(done)
			return err
		}); err != nil || n != len(bodies) {
			t.Fatal(n, err)
		}
	})
}

// TestAnyByteThatIsChangedIsFound changes each byte of a log in turn.
func TestAnyByteThatIsChangedIsFound(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "every-kind.ndjson"))
	must(t, err)
	raw = raw[:bytes.IndexByte(raw[3500:], '\n')+3501]
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(raw)-1).Draw(t, "byte")
		bad := bytes.Clone(raw)
		bad[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		v := newVerifier()
		err := eachLine(context.Background(), bytes.NewReader(bad), 0, int64(len(bad)), func(l []byte) error {
			_, err := v.feed(l)
			return err
		})
		if err == nil && v.bytes == int64(len(raw)) {
			t.Fatalf("byte %d is %q instead of %q, and the log verifies", i, bad[i], raw[i])
		}
	})
}
