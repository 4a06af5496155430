package ui

import (
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
)

func TestTimesAreNearOrFar(t *testing.T) {
	now := time.Date(2026, 6, 15, 16, 40, 0, 0, time.UTC)
	for _, c := range []struct {
		by   time.Duration
		want string
	}{
		{0, "in less than a minute"}, {-time.Second, "just now"}, {59 * time.Second, "in less than a minute"}, {-time.Minute, "1 min ago"}, {-59*time.Minute - 59*time.Second, "59 min ago"},
		{-time.Hour, "1 h 0 min ago"}, {90 * time.Minute, "in 1 h 30 min"}, {-47 * time.Hour, "47 h 0 min ago"}, {-48 * time.Hour, "2 days ago"}, {400 * 24 * time.Hour, "in 400 days"},
	} {
		if got := away(now.Add(c.by), now); got != c.want {
			t.Errorf("%s: %q, want %q", c.by, got, c.want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0 ms", 999 * time.Millisecond: "999 ms", 1800 * time.Millisecond: "1.8 s", 61 * time.Second: "1 min 1 s", 2 * time.Hour: "2 h 0 min"} {
		if got := took(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

func TestWhatNobodySeesIsShownAsWhatItMeans(t *testing.T) {
	for text, want := range map[string]string{
		"{\n  \"a\": \"b\"\n}": "{\n  \"a\": \"b\"\n}",
		"a\u202eb":             `a\u202eb`,
		"a\u200b":              `a\u200b`,
		"\U000e0041":           `\udb40\udc41`,
		"é→":                   "é→",
	} {
		got, changed := visible([]byte(text))
		if got != want || changed != (text != want) {
			t.Errorf("%q: %q, %t, want %q", text, got, changed, want)
		}
	}
}

func TestAPageLeadsOnToPagesOfOursOnly(t *testing.T) {
	for to, want := range map[string]string{
		"/review/r-1?did=approved":     "/review/r-1?did=approved",
		"//evil.example/x":             "/x",
		"http://evil.example/reviews":  "/reviews",
		"http://evil.example//x.y/z":   "/x.y/z",
		"/%2f%2fevil.example":          "/evil.example",
		"/\\evil.example":              "/%5Cevil.example",
		"/a b":                         "/a%20b",
		"javascript:alert(1)":          "/",
		"/operation?run=%00&op=%ff%22": "/operation?run=%00&op=%ff%22",
	} {
		u, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		if got := onward(u); got != want {
			t.Errorf("%q leads to %q, want %q", to, got, want)
		}
	}
}

func TestLinksNameOneOperation(t *testing.T) {
	id := "a/b?c=\xed\xa0\x80" // a lone surrogate, as traces may hold
	encoded := decision.EncodeID(id)
	for _, of := range []any{ingest.Ref{Run: "r&1", Operation: id}, &ingest.Ref{Run: "r&1", Operation: id}, decision.Ref{Run: "r&1", Operation: &encoded}} {
		u, err := url.Parse(operationLink(of))
		if err != nil {
			t.Fatal(err)
		}
		got, err := ref(u.Query())
		if err != nil || got.Run != "r&1" || got.Operation != id || got.Null {
			t.Errorf("%T: %+v, %v", of, got, err)
		}
	}
	u, _ := url.Parse(operationLink(ingest.Ref{Run: "r", Null: true}))
	if got, err := ref(u.Query()); err != nil || !got.Null {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "run=r", "op=o", "run=r&op=o&null=1"} {
		v, _ := url.ParseQuery(bad)
		if _, err := ref(v); err == nil {
			t.Errorf("%q names an operation", bad)
		}
	}
}

func TestSharesAreCutAndNotRounded(t *testing.T) {
	for _, c := range []struct {
		full, of int64
		want     string
	}{{0, 0, "–"}, {0, 3, "0 %"}, {2, 3, "66 %"}, {999, 1000, "99 %"}, {1000, 1000, "100 %"}} {
		if got := rateOf(c.full, c.of); got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.full, c.of, got, c.want)
		}
	}
}

// What a form was made from is what its page showed: everything that is signed, and
// what was decided since.
func TestADecisionIsHeldToWhatWasShown(t *testing.T) {
	r := &decision.ReviewState{Opened: decision.Opened{ReviewID: "r-1"}, OpenedSig: "aa"}
	first := shownOf(r, "pending")
	for name, other := range map[string]string{
		"another review": shownOf(&decision.ReviewState{Opened: decision.Opened{ReviewID: "r-2"}, OpenedSig: "aa"}, "pending"),
		"another line":   shownOf(&decision.ReviewState{Opened: decision.Opened{ReviewID: "r-1"}, OpenedSig: "ab"}, "pending"),
		"another state":  shownOf(r, "rejected"),
		"decided since":  shownOf(&decision.ReviewState{Opened: decision.Opened{ReviewID: "r-1"}, OpenedSig: "aa", Decisions: []decision.Decision{{Seq: 7}, {Seq: 9}}}, "pending"),
	} {
		if other == first {
			t.Errorf("%s is taken for the same", name)
		}
	}
	if shownOf(r, "pending") != first {
		t.Error("the same is taken for another")
	}
}

// A person approves what the card shows: of a tool call all that will run, in words of
// its own, and nothing about money.
func TestACardOfACallShowsWhatWillRun(t *testing.T) {
	u := &UI{o: Options{Words: Words{Command: func(c string) string { return c }, Warning: func(w string) string { return w }, Network: func(n string) string { return n }}}, now: time.Now}
	u.sessions.init(rand.Reader)
	if err := u.parse(); err != nil {
		t.Fatal(err)
	}
	view := &guard.ReviewView{ID: "r-1", Status: decision.StatusPending}
	call := card{Waiting: true, Alone: true, View: view, Card: Card{Amount: "one call of ledger.post", To: "tenant:north", Call: &Call{Tool: "ledger.post", Resource: "tenant:north",
		Arguments: []string{"{", `  "to": "<script>"`, "}"}, Alike: true}}}
	payment := card{Waiting: true, Alone: true, View: view, Card: Card{Amount: "1 USDC", To: "0x1"}}
	unsigned := payment
	unsigned.Unsigned = true
	for name, test := range map[string]struct {
		card
		want, never []string
	}{
		"a call":    {call, []string{"What will run", "&lt;script&gt;", "run once, for", "letters beyond ASCII", "ledger.post"}, []string{"be paid once", "block every payment", "<script>"}},
		"a payment": {payment, []string{"be paid once", "block every payment", "No key is unlocked here"}, []string{"What will run", "No operator is configured"}},
		"unsigned":  {unsigned, []string{"No operator is configured"}, []string{"No key is unlocked here"}},
	} {
		var b strings.Builder
		if err := u.pages["review"].ExecuteTemplate(&b, "card", test.card); err != nil {
			t.Fatal(err)
		}
		for _, w := range test.want {
			if !strings.Contains(b.String(), w) {
				t.Errorf("%s: %q is not there", name, w)
			}
		}
		// Return in the note presses the first button.
		if _, buttons, _ := strings.Cut(b.String(), "<button"); !strings.HasPrefix(buttons, " disabled hidden>") {
			t.Errorf("%s: return in the note presses <button%.60s", name, buttons)
		}
		for _, w := range test.never {
			if strings.Contains(b.String(), w) {
				t.Errorf("%s: %q is there", name, w)
			}
		}
	}
}
