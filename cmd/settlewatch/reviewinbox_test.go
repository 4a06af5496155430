package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/inbox"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// sitting is somebody in front of the inbox of a guard of the test. What it asks is
// answered before the next key.
type sitting struct {
	t     *testing.T
	m     tea.Model
	now   time.Time
	width int
	rows  int
	left  bool
}

func sit(t *testing.T, f *fakeGuard, width, rows int, overview bool) *sitting {
	t.Helper()
	env := system()
	s := &sitting{t: t, width: width, rows: rows, now: noon}
	env.now = func() time.Time { return s.now }
	home := t.TempDir()
	env.home = func() (string, error) { return home, nil }
	env.getenv = func(string) string { return "" }
	told := &aside{}
	a := &app{stderr: told, env: env}
	o := &guarded{rootOptions: rootOptions{dir: defaultDir}}
	s.m = inbox.New(t.Context(), inbox.Options{Desk: &desk{a: a, o: o, g: f, x: fakeFinder{}, told: told}, Now: env.now, Overview: overview})
	s.run(s.m.Init())
	s.send(tea.WindowSizeMsg{Width: width, Height: rows})
	return s
}

func (s *sitting) send(msg tea.Msg) {
	var cmd tea.Cmd
	s.m, cmd = s.m.Update(msg)
	s.run(cmd)
}

func (s *sitting) run(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case nil:
	case tea.QuitMsg:
		s.left = true
	case tea.BatchMsg:
		for _, c := range msg {
			s.run(c)
		}
	default:
		if reflect.TypeOf(msg).PkgPath() != reflect.TypeOf(tea.QuitMsg{}).PkgPath() {
			s.send(msg)
		}
	}
}

// press presses keys: words of several letters are names of keys or typed texts.
func (s *sitting) press(keys ...string) *sitting {
	named := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "down": tea.KeyDown, "up": tea.KeyUp, "pgdown": tea.KeyPgDown, "backspace": tea.KeyBackspace, "tab": tea.KeyTab}
	for _, key := range keys {
		switch code, ok := named[key]; {
		case ok:
			s.send(tea.KeyPressMsg{Code: code})
		case key == "space":
			s.send(tea.KeyPressMsg{Code: tea.KeySpace, Text: " "})
		case key == "look":
			s.send(tea.KeyPressMsg{Code: 'l', Mod: tea.ModCtrl})
		default:
			for _, r := range key {
				s.send(tea.KeyPressMsg{Code: r, Text: string(r)})
			}
		}
	}
	return s
}

// screen is what is on the screen, which it fits.
func (s *sitting) screen() string {
	s.t.Helper()
	text := s.m.View().Content
	lines := strings.Split(text, "\n")
	if len(lines) > s.rows {
		s.t.Errorf("%d lines on a screen of %d:\n%s", len(lines), s.rows, text)
	}
	for _, line := range lines {
		if n := plain.Width(line); n > s.width {
			s.t.Errorf("a line of %d columns on a screen of %d: %s", n, s.width, line)
		}
	}
	return text
}

// waitingReviews are three that wait: the one that matters most is asked last.
func waitingReviews() []guard.ReviewView {
	again := pendingReview()
	small := pendingReview()
	small.ID, small.Amount, small.Resource = "r-9b0d11c2a7e84f5566778899", "1.20", "https://data.example/v2/weather?city=bern"
	small.Counterparty, small.PayTo = "data.example", "0x1c7d4b196cb0c7b01d743fbc6116a902379c7238"
	small.Names = []string{small.PayTo, "data.example"}
	small.ExpiresAt, small.CreatedAt = noon.Add(95*time.Minute), noon.Add(-22*time.Hour-25*time.Minute)
	small.Reasons = []decision.Reason{{Rule: "review_above", Detail: "1.20 USDC is above 1.00 USDC"}, {Rule: "history", Detail: "12 operations: 12 full; spent 3.40 USDC in 24 h"}}
	small.Facts = small.Facts[1:3]
	unknown := pendingReview()
	unknown.ID, unknown.Amount, unknown.PayTo, unknown.Resource = "r-c3d4e5f60718293a4b5c6d7e", "40.00", "", ""
	unknown.Counterparty, unknown.Names = "new-seller.example", []string{"new-seller.example"}
	unknown.ExpiresAt, unknown.CreatedAt = noon.Add(23*time.Hour+58*time.Minute), noon.Add(-2*time.Minute)
	unknown.Reasons = []decision.Reason{{Rule: "per_counterparty_limit", Detail: "40.00 USDC would exceed 5.00 USDC in 24 h with new-seller.example"},
		{Rule: "review_above", Detail: "40.00 USDC is above 1.00 USDC"}, {Rule: "history", Detail: "no operation with this counterparty"}}
	unknown.AskedBy = "agent-7"
	return []guard.ReviewView{unknown, again, small}
}

func inboxGuard() *fakeGuard {
	f := &fakeGuard{reviews: waitingReviews(), open: openOperations()}
	f.open[0].At = noon.Add(-3 * time.Hour)
	f.standing = guard.Standing{Policy: "/home/ana/.config/settlewatch/policy.json", PolicyHash: "3f", Log: "/srv/agent/.trace/guard/decisions.ndjson", Lines: 128,
		Pending: 3, Holds: 1, Open: len(f.open), Operators: []decision.Operator{{Name: "ana"}}}
	f.holds = []guard.HoldView{{Hold: guard.Hold{ID: "h-1", Amount: "0.25", Asset: usdc, ExpiresAt: noon.Add(9 * time.Minute)}, Counterparty: "data.example", HeldAt: noon}}
	f.headroom = &guard.Headroom{Asset: usdc, Limits: []guard.HeadroomLimit{{Name: "a-day", Scope: "total", Limit: "20.00", Spent: "12.40", Held: "0.25", Headroom: "7.35", WindowHours: 24,
		FreesUp: []guard.FreesUp{{At: noon.Add(2 * time.Hour), Amount: "2.50"}}}}}
	return f
}

// scene is a screen on the way to a decision.
type scene struct {
	name     string
	overview bool
	keys     []string
}

var scenes = []scene{
	{"list", false, nil},
	{"review", false, []string{"down", "enter"}},
	{"review-2", false, []string{"down", "enter", "space"}},
	{"review-3", false, []string{"down", "enter", "space", "space"}},
	{"review-end", false, []string{"down", "enter", "space", "space", "space", "space", "space"}},
	{"approve", false, []string{"down", "enter", "space", "space", "space", "space", "space", "a", "yes known seller"}},
	{"approved", false, []string{"down", "enter", "space", "space", "space", "space", "space", "a", "yes known seller", "enter"}},
	{"too-early", false, []string{"down", "enter", "a"}},
	{"reject", false, []string{"down", "enter", "r"}},
	{"marked", false, []string{"x", "down", "x", "a"}},
	{"open", false, []string{"o"}},
	{"freeze", false, []string{"F"}},
	{"keys", false, []string{"?"}},
	{"watch", true, nil},
}

func TestTheOverviewSaysWhatCannotBeAddedUp(t *testing.T) {
	f := inboxGuard()
	f.headroom.Limits[0].Uncounted = 1
	contains(t, "overview", sit(t, f, 200, 60, true).screen(), "1 payment of the window cannot be added up, so checks")
}

func TestTheInboxLooksAsItDid(t *testing.T) {
	for _, size := range [][2]int{{40, 16}, {80, 24}, {120, 40}} {
		var b strings.Builder
		for _, c := range scenes {
			s := sit(t, inboxGuard(), size[0], size[1], c.overview).press(c.keys...)
			fmt.Fprintf(&b, "== %s: %s\n%s\n", c.name, strings.Join(c.keys, " "), framed(s.screen(), size[0], size[1]))
		}
		file := filepath.Join("testdata", fmt.Sprintf("inbox-%dx%d.golden", size[0], size[1]))
		if *update {
			if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), b.String()); diff != "" {
			t.Errorf("%dx%d; if that is meant, run go test ./cmd/settlewatch -run TestTheInboxLooks -update\n%s", size[0], size[1], diff)
		}
	}
}

// The screens of docs/people.md are those of the inbox.
func TestThePeoplePageShowsTheScreens(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "people.md")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- screen ", "<!-- end of screen -->"
	var b strings.Builder
	shown := 0
	rest := string(page)
	for {
		head, tail, ok := strings.Cut(rest, begin)
		b.WriteString(head)
		if !ok {
			break
		}
		name, tail, _ := strings.Cut(tail, " -->\n")
		_, tail, closed := strings.Cut(tail, end)
		i := slices.IndexFunc(scenes, func(s scene) bool { return s.name == name })
		if i < 0 || !closed {
			t.Fatalf("the page has a screen %q that there is not, or one without an end", name)
		}
		text := framed(sit(t, inboxGuard(), 40, 16, scenes[i].overview).press(scenes[i].keys...).screen(), 40, 16)
		b.WriteString(begin + name + " -->\n\n```text\n" + text + "```\n\n" + end)
		rest = tail
		shown++
	}
	if shown < 5 {
		t.Errorf("only %d screens", shown)
	}
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(page), b.String()); diff != "" {
		t.Errorf("the screens have changed; if that is meant, run go test ./cmd/settlewatch -run TestThePeoplePage -update\n%s", diff)
	}
}

// framed draws the edges of a screen around what is on it.
func framed(text string, width, rows int) string {
	var b strings.Builder
	edge := "+" + strings.Repeat("-", width) + "+\n"
	b.WriteString(edge)
	lines := strings.Split(text, "\n")
	for i := range rows {
		line := ""
		if i < len(lines) {
			line = lines[i]
		}
		b.WriteString("|" + line + strings.Repeat(" ", width-plain.Width(line)) + "|\n")
	}
	b.WriteString(edge)
	return b.String()
}

const readOn = "space space space space space space space space"

// toTheEnd are the keys that read the second review, which is the usual one, to its
// end on a phone.
var toTheEnd = append([]string{"down", "enter"}, strings.Fields(readOn)...)

func keys(groups ...any) []string {
	var out []string
	for _, g := range groups {
		switch g := g.(type) {
		case string:
			out = append(out, g)
		case []string:
			out = append(out, g...)
		}
	}
	return out
}

// done is everything a guard was asked to do, in words.
func (f *fakeGuard) done() []string {
	var out []string
	for _, d := range f.decisions {
		text := strings.TrimSpace(d.Decision + " " + strings.Join(d.IDs, " ") + " " + d.Note)
		if d.Freeze {
			text += " and freeze"
		}
		out = append(out, text)
	}
	for _, r := range f.resolved {
		text := r.Outcome + " " + operationIn(r.Ref) + " " + r.Note
		if r.Shown.Payments > 1 {
			text += ", of " + plain.Plural(r.Shown.Payments, "payment")
		}
		out = append(out, text)
	}
	return append(out, f.acts...)
}

func TestKeysDoWhatTheySayAndNothingElse(t *testing.T) {
	const first, second, third = "r-9b0d11c2a7e84f5566778899", "r-4f1c22aa91d05be377c0a1e6", "r-c3d4e5f60718293a4b5c6d7e"
	for _, c := range []struct {
		name string
		keys []string
		want []string
	}{
		{"approve", keys(toTheEnd, "a", "yes", "enter"), []string{"approved " + second}},
		{"approve with a note", keys(toTheEnd, "a", "Yes, known seller", "enter"), []string{"approved " + second + " known seller"}},
		{"take an approval back", keys(toTheEnd, "a", "yes", "enter", "u"), []string{"approved " + second, "revoked " + second}},
		{"return alone approves nothing", keys(toTheEnd, "a", "enter", "enter", "enter"), nil},
		{"y alone approves nothing", keys(toTheEnd, "a", "y", "enter"), nil},
		{"a word that begins with yes approves nothing", keys(toTheEnd, "a", "yesterday", "enter"), nil},
		{"what is not read is not approved", keys("down", "enter", "a", "yes", "enter"), nil},
		{"a jump to the end is not reading", keys("down", "enter", "G", "a", "yes", "enter"), nil},
		{"esc goes back", keys(toTheEnd, "a", "yes", "esc", "enter"), nil},
		{"reject", keys("down", "enter", "r", "too dear", "enter"), []string{"rejected " + second + " too dear"}},
		{"reject from the list", keys("r", "enter"), []string{"rejected " + first}},
		{"reject and freeze", keys("down", "enter", "f", "enter"), []string{"rejected " + second + " and freeze"}},
		{"reject the marked ones", keys("x", "down", "x", "r", readOnKeys(), "no", "enter"), []string{"rejected " + first + " " + second + " no"}},
		{"approve the marked ones", keys("x", "down", "down", "x", "a", readOnKeys(), readOnKeys(), "yes", "enter"), []string{"approved " + first + " " + third}},
		{"the marked ones are read whole", keys("x", "down", "x", "a", "space", "yes", "enter"), nil},
		{"unmark", keys("x", "down", "x", "u", "r", "enter"), []string{"rejected " + second}},
		{"mark by payee", keys("p", "r", "enter"), []string{"rejected " + first}},
		{"one after the other", keys("enter", "r", "enter", "enter", "r", "enter", "enter", "r", "enter"), []string{"rejected " + first, "rejected " + second, "rejected " + third}},
		{"freeze everything", keys("F", "stolen laptop", "enter"), []string{"freeze all stolen laptop"}},
		{"a freeze needs a reason", keys("F", "enter"), nil},
		{"resolve an open operation", keys("o", "enter", readOnKeys(), "r", readOnKeys(), "settled seen on the chain", "enter"), []string{"settled run run-2, operation op-2 seen on the chain, of 2 payments"}},
		{"resolve several", keys("o", "x", "down", "x", "r", readOnKeys(), "Failed: the seller says so", "enter"),
			[]string{"failed run run-2, operation op-2 the seller says so, of 2 payments", "failed run run-1, operation op-1 the seller says so"}},
		{"a resolution needs how one knows", keys("o", "x", "r", readOnKeys(), "settled", "enter"), nil},
		{"an operation is looked at first", keys("o", "r", "settled it is", "enter"), nil},
	} {
		f := inboxGuard()
		s := sit(t, f, 40, 16, false).press(c.keys...)
		equal(t, c.name, f.done(), c.want)
		s.screen()
	}
}

func readOnKeys() []string { return strings.Fields(readOn) }

func TestAPasteAnswersNothing(t *testing.T) {
	f := inboxGuard()
	s := sit(t, f, 40, 16, false).press(keys(toTheEnd, "a")...)
	s.send(tea.PasteMsg{Content: "yes\r\n\x1b[31m"})
	equal(t, "pasted", f.done(), nil)
	contains(t, "screen", s.screen(), "> yes")
	s.press("enter")
	equal(t, "confirmed", f.done(), []string{"approved r-4f1c22aa91d05be377c0a1e6"})
}

// A note may be as long here as anywhere, counted alike; what is too long for it is
// said, and stays on the screen.
func TestANoteIsAsLongAsAnywhereElse(t *testing.T) {
	letters := strings.Repeat("ж", 1500)
	for _, c := range []struct {
		name, pasted, says string
		taken              bool
	}{
		{"1,500 letters of two bytes", letters, "", true},
		{"the most there may be", strings.Repeat("x", plain.Note), "", true},
		{"a letter more", strings.Repeat("x", plain.Note+1), "the note has 2,001 characters, and at most 2,000 are kept", false},
		{"emoji count twice", strings.Repeat("😀", plain.Note/2+1), "the note has 2,002 characters", false},
		{"more than there is room for", strings.Repeat("x", 3*plain.Note), "the rest was not taken", false},
	} {
		f := inboxGuard()
		s := sit(t, f, 80, 24, false).press("down", "enter", "r")
		s.send(tea.PasteMsg{Content: c.pasted})
		if strings.Contains(c.says, "taken") {
			contains(t, c.name, s.screen(), c.says)
			continue
		}
		s.press("enter")
		if c.taken {
			equal(t, c.name, f.done(), []string{"rejected r-4f1c22aa91d05be377c0a1e6 " + c.pasted})
			continue
		}
		equal(t, c.name, f.done(), nil)
		contains(t, c.name, s.screen(), c.says, "REJECT", string([]rune(c.pasted)[:10]))
	}
}

// Nobody types twice what was refused.
func TestWhatWasTypedForAnActThatFailedIsShown(t *testing.T) {
	f := inboxGuard()
	s := sit(t, f, 80, 24, false).press("down", "enter", "r", "the seller was warned", "space", "twice")
	f.err = errcode.New(errcode.LogWrite, "make room", "write the decisions log: no space left")
	s.press("enter")
	contains(t, "screen", s.screen(), "NOT DONE", "you had typed: the seller was warned twice")
	f = inboxGuard()
	s = sit(t, f, 80, 24, false).press("down", "enter", "r", "too dear")
	f.reviews[1].Status, f.reviews[1].DecidedAt = "approved", noon
	s.press("look")
	contains(t, "screen", s.screen(), "NOT DONE", "you had typed: too dear")
}

// Whatever is pressed, in whatever order: without the word nothing is approved, and on
// the overview nothing is done.
func TestNoAccidentApproves(t *testing.T) {
	some := []string{"a", "r", "f", "x", "p", "u", "o", "w", "n", "N", "y", "e", "F", "?", "enter", "enter", "esc", "space", "space", "down", "up", "tab", "backspace", "q", "j", "look", "yes", "settled"}
	rapid.Check(t, func(rt *rapid.T) {
		overview := rapid.Bool().Draw(rt, "overview")
		pressed := rapid.SliceOfN(rapid.SampledFrom(some), 1, 30).Draw(rt, "keys")
		f := inboxGuard()
		s := sit(t, f, 40, 16, overview)
		for i, key := range pressed {
			before := len(f.done())
			s.press(key)
			if len(f.done()) == before {
				continue
			}
			last := f.done()[len(f.done())-1]
			if overview {
				rt.Fatalf("the overview has %s", last)
			}
			typed := strings.Join(pressed[:i], " ")
			if strings.HasPrefix(last, "approved") && !(key == "enter" && strings.Contains(typed, "yes")) && !strings.Contains(typed, "y e ") {
				rt.Fatalf("%s by %q", last, pressed[:i+1])
			}
		}
		s.screen()
	})
}

func TestWhatChangesMeanwhileIsNotDecidedAsItWasShown(t *testing.T) {
	asked := keys(toTheEnd, "a", "yes")
	elsewhere := func(s *sitting, f *fakeGuard) {
		f.reviews[1].Status, f.reviews[1].DecidedAt, f.reviews[1].DecidedBy, f.reviews[1].Note = "rejected", noon, "ben", "seen before"
	}
	for _, c := range []struct {
		name   string
		keys   []string
		change func(s *sitting, f *fakeGuard)
		then   []string
		want   string
	}{
		{"decided elsewhere, while it is read", toTheEnd, elsewhere, []string{"look"}, `this review is rejected already, decided on 2026-03-01 12:00:00 UTC by ben: "seen before"`},
		{"decided elsewhere, then a", toTheEnd, elsewhere, []string{"look", "a"}, "NOT POSSIBLE this review is rejected already"},
		{"decided elsewhere, then r", toTheEnd, elsewhere, []string{"look", "r"}, "NOT POSSIBLE this review is rejected already"},
		{"decided elsewhere, while it is asked", asked, elsewhere, []string{"look"}, "NOT DONE nothing was approved: the review of 2.50 USDC"},
		{"decided elsewhere, and return before it shows", asked, elsewhere, []string{"enter"}, "NOT DONE nothing was approved: review r-4f1c22aa91d05be377c0a1e6 is rejected already"},
		{"expired while it is read", toTheEnd, func(s *sitting, _ *fakeGuard) { s.now = noon.Add(4 * time.Hour) }, []string{"a"}, "NOT POSSIBLE this review expired meanwhile: nobody decided, so it is no permission"},
		{"expired while it is asked", asked, func(s *sitting, _ *fakeGuard) { s.now = noon.Add(4 * time.Hour) }, []string{"enter"}, "NOT DONE nothing was approved: the review of 2.50 USDC"},
		{"rejected and opened again", asked, func(_ *sitting, f *fakeGuard) { f.reviews[1].ExpiresAt = noon.Add(24 * time.Hour) }, []string{"look", "enter"}, "was decided and opened again meanwhile, or has changed: look at it again"},
		{"another payee under the same id, while it is read", toTheEnd, func(_ *sitting, f *fakeGuard) { f.reviews[1].PayTo = "0x000000000000000000000000000000000000dead" }, []string{"look", "a"}, "NOT POSSIBLE this review was decided and opened again meanwhile, or has changed"},
		{"another payee under the same id, while it is asked", asked, func(_ *sitting, f *fakeGuard) { f.reviews[1].PayTo = "0x000000000000000000000000000000000000dead" }, []string{"look"}, "or has changed: look at it again"},
		{"another payee under the same id, and enter before it shows", asked, func(_ *sitting, f *fakeGuard) { f.reviews[1].Amount = "250" }, []string{"enter"}, "approve r-4f1c22aa91d05be377c0a1e6: it is no longer what was on the screen"},
		{"the log cannot be written", asked, func(_ *sitting, f *fakeGuard) {
			f.err = errcode.New(errcode.LogWrite, "free some space", "write the decisions log: no space left on device")
		}, []string{"enter"}, "nothing was approved: write the decisions log: no space left on device try: free some space"},
		{"it cannot be looked", nil, func(s *sitting, f *fakeGuard) {
			s.now, f.err = noon.Add(time.Minute), errcode.New(errcode.Index, "look at the disk", "read the index")
		}, []string{"look"}, "! not up to date since 12:00:00 UTC: E_INDEX: read the"},
	} {
		f := inboxGuard()
		s := sit(t, f, 40, 16, false).press(c.keys...)
		c.change(s, f)
		s.press(c.then...)
		contains(t, c.name, squeezed(s.screen()), squeezed(c.want))
		f.err = nil
		if late := strings.Contains(c.name, "before it shows") || strings.Contains(c.name, "the log cannot"); len(f.decisions) > 0 && !late {
			t.Errorf("%s: the guard was asked for %v", c.name, f.done())
		}
	}
}

// What is read from the log anew is the same as long as it says the same.
func TestTheFactsOfAReviewAreThoseItWasOpenedWith(t *testing.T) {
	a, b := hostileReview(), hostileReview() // with pointers of their own
	b.Status, b.ExpiresAt, b.Handoff, b.Warnings = "approved", noon, nil, nil
	if factsOf(&a) != factsOf(&b) {
		t.Errorf("they differ:\n%s\n%s", factsOf(&a), factsOf(&b))
	}
	other := "another"
	for name, change := range map[string]func(v *guard.ReviewView){
		"payee":     func(v *guard.ReviewView) { v.PayTo = "0x01" },
		"evidence":  func(v *guard.ReviewView) { v.Reasons[0].Evidence = []decision.Ref{{Run: "r", Operation: &other}} },
		"operation": func(v *guard.ReviewView) { v.Reasons[0].Evidence[0].Operation = &other },
		"a fact":    func(v *guard.ReviewView) { v.Facts[0].Origin = "trace" },
	} {
		c := hostileReview()
		if change(&c); factsOf(&c) == factsOf(&a) {
			t.Errorf("%s: it makes no difference", name)
		}
	}
}

// The cursor is on a review, not on a row.
func TestWhatComesInMovesNothingBelowTheFinger(t *testing.T) {
	f := inboxGuard()
	s := sit(t, f, 40, 16, false).press("down")
	sooner := pendingReview()
	sooner.ID, sooner.Amount, sooner.ExpiresAt = "r-000000000000000000000000", "9.00", noon.Add(time.Minute)
	f.reviews = append(f.reviews, sooner)
	s.press("look", "r", "enter")
	equal(t, "rejected", f.done(), []string{"rejected r-4f1c22aa91d05be377c0a1e6"})
}

func TestAnApprovalThatCannotBeSignedIsNotAskedFor(t *testing.T) {
	f := inboxGuard()
	p := *guard.DefaultPolicy()
	p.Operators = []decision.Operator{{Name: "ana", PublicKey: "another"}}
	f.policy = &p
	s := sit(t, f, 40, 16, false).press(keys(toTheEnd, "a")...)
	contains(t, "screen", squeezed(s.screen()), squeezed("NOT POSSIBLE this counts only when an operator signs it, and that cannot be: read the operator's key"))
	equal(t, "done", f.done(), nil)
	s.press("esc", "r", "enter") // what tightens needs no key
	equal(t, "done", f.done(), []string{"rejected r-4f1c22aa91d05be377c0a1e6"})
}

// hostileReview says in every field what it must not be able to say, or too much.
func hostileReview() guard.ReviewView {
	v := pendingReview()
	long := strings.Repeat("支払い", 60)
	v.Counterparty = "shop.example\n> 0.01 USDC, expires in 3 h\x1b[2J\x1b[1;1H"
	v.Amount = "2.50 USDC\x1b]0;title\x07 [policy]"
	v.Resource = "https://shop.example/" + long + "\u202e\u2066gnp.\u200b/end"
	v.AskedBy = "typed by the agent:\npay 0.01 USDC" + strings.Repeat("x", 200)
	v.Network = "eip155:8453\n\n\n"
	v.Reasons[0].Detail = strings.Repeat("e\u0323\u0301", 100) + "\r\n- approved: by a person 👩\u200d💻🇩🇪"
	run := "run\x1b[31m/" + strings.Repeat("../", 40)
	v.Reasons[0].Evidence = append(v.Reasons[0].Evidence, decision.Ref{Run: run})
	v.Facts = append(v.Facts, decision.Fact{Name: "pay", Value: "0.01 USDC", Origin: "agent"}, decision.Fact{Name: strings.Repeat("name ", 30), Value: strings.Repeat("W", 300), Origin: "trace]"})
	return v
}

// Every fact is on some screen of any size, whatever strangers wrote, and no line of
// theirs looks like one of ours.
func TestHostileTextNeitherHidesFactsNorBreaksTheScreen(t *testing.T) {
	for _, size := range [][2]int{{24, 10}, {40, 16}, {200, 60}} {
		f := inboxGuard()
		f.reviews = []guard.ReviewView{hostileReview()}
		f.standing.Frozen = []decision.Frozen{{Scope: "all", Reason: strings.Repeat("\x1b[31mwhy ", 80)}}
		s := sit(t, f, size[0], size[1], false)
		list := s.screen()
		contains(t, "list", list, "1 review waits", "FROZEN")
		if strings.Count(list, ">") > 2 {
			t.Errorf("a forged cursor:\n%s", list)
		}
		s.press("enter")
		var all strings.Builder
		for range 1000 {
			text := s.screen()
			if strings.ContainsAny(text, "\x1b\x07\u202e\u2066\u200b\r") {
				t.Fatalf("a control character is on the screen: %q", text)
			}
			// The page is what is between the title with its alerts and the keys.
			lines := strings.Split(text, "\n")
			for _, line := range lines[1:] {
				if line = strings.TrimRight(line, " "); !strings.HasPrefix(line, "!") && !strings.Contains(line, " | ") && line != "space read on" && !strings.Contains(line, "(w: all)") {
					all.WriteString(line + "\n")
				}
			}
			if strings.Contains(text, "a approve") {
				break
			}
			s.press("space")
		}
		flat := squeezed(all.String())
		for _, want := range []string{payTo, "0.01USDC", strings.Repeat("W", 10), "/end", "🇩🇪", "r-4f1c22aa91d05be377c0a1e6", "review_above:2.50isabove1.00", "4.75USDCin24h", "seeninthetrace"} {
			if !strings.Contains(flat, want) {
				t.Errorf("%v: no %q on any screen", size, want)
			}
		}
		s.press("a")
		contains(t, "the question", squeezed(s.screen()), "APPROVE")
	}
}

func TestAScreenThatIsTooSmallSaysSo(t *testing.T) {
	f := inboxGuard()
	s := sit(t, f, 20, 5, false)
	contains(t, "screen", squeezed(s.screen()), squeezed("this screen is too small"))
	s.press("enter", "r", "enter")
	equal(t, "done", f.done(), nil)
	s.send(tea.WindowSizeMsg{Width: 40, Height: 16})
	s.width, s.rows = 40, 16
	contains(t, "screen", s.screen(), "3 reviews wait")
}

// Another width does not make read what was not on the screen.
func TestReadingOutlivesAnotherWidth(t *testing.T) {
	s := sit(t, inboxGuard(), 40, 16, false).press("down", "enter", "space")
	s.send(tea.WindowSizeMsg{Width: 80, Height: 14})
	s.width, s.rows = 80, 14
	lacks(t, "half read", s.screen(), "a approve")
	s.press("space", "space")
	contains(t, "read", s.screen(), "a approve")
	s.send(tea.WindowSizeMsg{Width: 40, Height: 16})
	s.width, s.rows = 40, 16
	contains(t, "read on a larger screen", s.screen(), "a approve")
}

func TestAFullScreenNeedsATerminal(t *testing.T) {
	for _, c := range []struct{ command, want string }{
		{"review", "E_USAGE: say what to do: review list, show, approve, reject, revoke, reopen or wait; the inbox needs a terminal (ssh -t). try: settlewatch review --help"},
		{"watch", "E_USAGE: a full screen needs a terminal, on stdin and stdout, and TERM. try: settlewatch status, review list and headroom show the same anywhere"},
	} {
		out, errs, exit := asking{guard: inboxGuard()}.run(t, c.command)
		if out != "" || exit != 2 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: status %d, %q, %s", c.command, exit, out, errs)
		}
	}
}

func TestACallInTheInboxIsShownWithAllThatWillRun(t *testing.T) {
	long := strings.Repeat("0123456789", 1000)
	v := callReview(`{"end":"the last of it","long":"` + long + `"}`)
	c := reviewCard(&v, noon)
	text := ""
	for _, b := range c.Body {
		text += b.Lead + b.Label + " " + b.Text + "\n"
	}
	contains(t, "card", squeezed(text), long, `"thelastofit"`, "ledger.post", "tenant:north", "critical")
	if c.Amount != "one call of ledger.post" || c.To != "tenant:north" {
		t.Errorf("%s to %s", c.Amount, c.To)
	}
	// It is another one as soon as anything of the call is.
	other := callReview(`{"end":"another"}`)
	if factsOf(&other) == factsOf(&v) {
		t.Error("two calls have the same facts")
	}
}
