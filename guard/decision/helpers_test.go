package decision

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

const testHash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// start is when the tests begin.
var start = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// clock is a clock that tests set.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: start} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
	return c.t
}

// bench is a log and its clock.
type fixture struct {
	t   testing.TB
	dir string
	*clock
	*Log
}

func newFixture(t testing.TB, change ...func(*Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: filepath.Join(t.TempDir(), "guard"), clock: newClock()}
	f.Log = f.another(change...)
	return f
}

// another is another handle on the same log.
func (f *fixture) another(change ...func(*Options)) *Log {
	f.t.Helper()
	o := Options{Dir: f.dir, Now: f.now}
	for _, c := range change {
		c(&o)
	}
	l, err := Open(o)
	if err != nil {
		f.t.Fatal(err)
	}
	return l
}

func (f *fixture) write(bodies ...Body) *State {
	f.t.Helper()
	s, err := f.Update(context.Background(), "", func(*State) ([]Body, error) { return bodies, nil })
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *fixture) read() *State {
	f.t.Helper()
	s, err := f.Read(context.Background())
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

func (f *fixture) bytes() []byte {
	f.t.Helper()
	b, err := os.ReadFile(f.Path())
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

func (f *fixture) set(b []byte) {
	f.t.Helper()
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(f.Path(), b, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// force appends lines that no writer of ours would write, but that verify.
func (f *fixture) force(at time.Time, bodies ...Body) *State {
	f.t.Helper()
	s := f.read()
	entries := make([]entry, len(bodies))
	for i, b := range bodies {
		entries[i] = entry{body: b}
	}
	text, _, err := compose(s.Lines(), s.Sig(), at, entries)
	if err != nil {
		f.t.Fatal(err)
	}
	must(f.t, os.MkdirAll(f.dir, 0o700))
	file, err := os.OpenFile(f.Path(), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		f.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(text); err != nil {
		f.t.Fatal(err)
	}
	return f.read()
}

// unsoundness is what Read says of a log that does not verify.
func unsoundness(t testing.TB, l *Log) *Unsound {
	t.Helper()
	s, err := l.Read(context.Background())
	var u *Unsound
	if !errors.As(err, &u) {
		t.Fatalf("the log is taken for sound: %v", err)
	}
	if s == nil || u.State != s {
		t.Fatal("what could be read is missing")
	}
	if got := errcode.Of(err).Code; got != errcode.LogUnsound {
		t.Fatalf("the code is %s", got)
	}
	return u
}

func code(err error) errcode.Code {
	if err == nil {
		return ""
	}
	return errcode.Of(err).Code
}

// audit recomputes the chain of a log from its bytes with nothing of ours: what
// encoding/json reads, keys sorted by encoding/json, which for the names here is
// the canonical order. It gives the entries.
func audit(t testing.TB, raw []byte) []map[string]any {
	t.Helper()
	var all []map[string]any
	prev := ""
	for i, text := range bytes.SplitAfter(raw, []byte("\n")) {
		if len(text) == 0 {
			break
		}
		if text[len(text)-1] != '\n' {
			t.Fatalf("line %d has no newline", i+1)
		}
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		var m map[string]any
		if err := dec.Decode(&m); err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		if got := plainJSON(t, m); got+"\n" != string(text) {
			t.Fatalf("line %d is not canonical:\n%s\n%s", i+1, got, text)
		}
		sig := m["sig"]
		if m["prev"] != prev || fmt.Sprint(m["seq"]) != fmt.Sprint(i+1) {
			t.Fatalf("line %d does not follow: %s", i+1, text)
		}
		entry := map[string]any{}
		for k, v := range m {
			if k != "prev" && k != "sig" {
				entry[k] = v
			}
		}
		sum := sha256.Sum256([]byte(plainJSON(t, map[string]any{"prev_sig": prev, "entry": entry})))
		if prev = hex.EncodeToString(sum[:]); sig != prev {
			t.Fatalf("line %d: sig is %v, want %s", i+1, sig, prev)
		}
		all = append(all, m)
	}
	return all
}

func plainJSON(t testing.TB, v any) string {
	t.Helper()
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	// encoding/json escapes two characters that canonical text does not.
	return strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(strings.TrimSuffix(b.String(), "\n"))
}

// Things to write.

func pay(name, amount string) Intent {
	return Intent{Names: []string{name}, Amount: amount, Asset: "eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"}
}

func asked(id string, in Intent, now time.Time) Opened {
	return Opened{
		ReviewID: id, Kind: "payment", Intent: in, Counterparty: in.Names[0], Amount: "1.00", Asset: "USDC",
		Facts:     []Fact{{"amount", "1.00 USDC", "agent"}},
		Reasons:   []Reason{{Rule: "review_above", Detail: "1.00 USDC is more than 0.50 USDC"}},
		ExpiresAt: now.Add(24 * time.Hour), PolicyHash: testHash,
	}
}

func held(id string, in Intent, now time.Time) Held {
	return Held{HoldID: id, Intent: in, ExpiresAt: now.Add(10 * time.Minute)}
}

func ref(run, op string) Ref { return Ref{Run: run, Operation: &op} }
