package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// recorded is a root that holds a copy of recorded runs.
func recorded(t *testing.T, names ...string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), ".trace")
	for _, name := range names {
		if err := os.CopyFS(filepath.Join(root, "events"), os.DirFS(filepath.Join("..", "..", "testdata", "runs", name, "events"))); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// screen is what a command shows on a screen of a width.
func screen(t *testing.T, width int, args ...string) string {
	t.Helper()
	text, status := screened(t, width, args...)
	if status != 0 {
		t.Fatalf("status %d\n%s", status, text)
	}
	return text
}

// screened is that and the exit status; where nothing is shown, it is the error.
func screened(t *testing.T, width int, args ...string) (string, int) {
	t.Helper()
	var out, errs bytes.Buffer
	a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, env: system(), width: width}
	root := a.root()
	root.SetArgs(args)
	status := a.finish(t.Context(), a.execute(t.Context(), root))
	if out.Len() == 0 {
		return errs.String(), status
	}
	return out.String(), status
}

func TestAListFitsTheScreen(t *testing.T) {
	root := recorded(t, "02-settle-timeout")
	for _, c := range []struct {
		width        int
		shown, hides []string
	}{
		{200, []string{"3f18fa50-bff0-4888-827d-8945a14385cc", "ASSET", "LAST EVENT", "AMOUNT (ATOMIC)"}, nil},
		{160, []string{"\n3f18fa50  ", "ASSET", "LAST EVENT"}, []string{"3f18fa50-"}},
		{130, []string{"\n3f18fa50  ", "LAST EVENT"}, []string{"ASSET"}},
		{100, []string{"\n3f18fa50  ", "NOTES"}, []string{"ASSET", "LAST EVENT"}},
		{80, []string{"\n3f18fa50  ", "AMOUNT ", "stage settlement missing;\n"}, []string{"ASSET", "LAST EVENT"}},
		{40, []string{"\nOPERATION        3f18fa50\n", "\nASSET            eip155", "\n\n"}, []string{"NOTES            -"}},
	} {
		text := screen(t, c.width, "list", "--dir", root)
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > c.width && c.width > 40 {
				t.Errorf("width %d: a line of %d: %s", c.width, n, line)
			}
		}
		for _, want := range c.shown {
			if !strings.Contains(text, want) {
				t.Errorf("width %d: no %q in\n%s", c.width, want, text)
			}
		}
		for _, hidden := range c.hides {
			if strings.Contains(text, hidden) {
				t.Errorf("width %d: there is %q in\n%s", c.width, hidden, text)
			}
		}
	}
}

func TestTheIdsOfANarrowListAreTakenByReceipt(t *testing.T) {
	root := recorded(t, "02-settle-timeout")
	// The rest of the ids is not on the page, so the index is asked.
	text := screen(t, 120, "list", "--dir", root, "--limit", "3")
	rows := strings.Split(text, "\n")[2:5]
	for _, row := range rows {
		id, _, _ := strings.Cut(row, " ")
		if len(id) != leastBeginning {
			t.Errorf("the id %q is not short", id)
		}
		if out, errs, status := answer(t, "receipt", "--dir", root, id); status != 0 {
			t.Errorf("receipt %s: %s%s", id, out, errs)
		}
	}
}

func TestIdsAreShortenedOnlyToWhatNamesOne(t *testing.T) {
	ids := []string{"abcdefgh-0001", "abcdefgh-0002-long-enough", "xy", "12345678\u202e-hidden", "short-one"}
	page := &ingest.Page{}
	for _, id := range ids {
		page.Operations = append(page.Operations, ingest.Row{Ref: ingest.Ref{Run: "r", Operation: id}})
	}
	page.Operations = append(page.Operations, ingest.Row{Ref: ingest.Ref{Run: "other", Operation: "abcdefgh-0003"}})
	ids = append(ids, "abcdefgh-0003")
	for _, c := range []struct {
		name string
		p    listing
		want []string
	}{
		{"a whole page", listing{Page: page, whole: true}, []string{ids[0], "abcdefgh-0002-lo", "xy", ids[3], ids[4], "abcdefgh"}},
		{"nobody can tell", listing{Page: page}, ids},
		{"the index says no", listing{Page: page, only: func(ingest.Ref) bool { return false }}, ids},
	} {
		if got := c.p.beginnings(ids); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestExplainIsWrappedOnAScreenOnly(t *testing.T) {
	root := recorded(t, "02-settle-timeout")
	text := screen(t, 60, "explain", "--dir", root, "b8bf69d7")
	if !strings.Contains(text, "\n  ") {
		t.Errorf("nothing is wrapped:\n%s", text)
	}
	for line := range strings.Lines(text[strings.Index(text, "\n\n"):]) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 60 {
			t.Errorf("a line of %d: %s", n, line)
		}
	}
	piped, _, _ := answer(t, "explain", "--dir", root, "b8bf69d7")
	if squeezed(text) != squeezed(piped) {
		t.Errorf("the words differ:\n%s\n%s", text, piped)
	}
}

// What a person reads on a phone: every line fits, and what is left to a terminal to
// break is a command to copy, on a line of its own.
func TestEveryAnswerFitsANarrowScreen(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	root := recorded(t, "01-four-sellers-settled", "02-settle-timeout", "03-insufficient-funds", "05-verify-declined", "06-walk-away", "14-long-run")
	names, err := filepath.Glob(filepath.Join(root, "events", "*.ndjson"))
	if err != nil || len(names) < 6 {
		t.Fatal(names, err)
	}
	for i, tail := range []string{"{broken}\n", `{"a":`} { // a damaged run, and one that ends too early
		f, err := os.OpenFile(names[i], os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(tail); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	unsettled := []string{"1796030990969", "b8bf69d7"}
	for _, c := range []struct {
		name   string
		args   []string
		status int
	}{
		{"list", []string{"list"}, 0},
		{"a page of list", []string{"list", "--limit", "3"}, 0},
		{"a list of nothing", []string{"list", "--counterparty", "a-seller-nobody-ever-paid-anything.example", "--template", "x402-seller"}, 0},
		{"status", []string{"status"}, 0},
		{"status of every run", []string{"status", "--runs"}, 0},
		{"receipt", append([]string{"receipt"}, unsettled...), 0},
		{"explain", append([]string{"explain"}, unsettled...), 0},
		{"doctor", []string{"doctor"}, 3},
		{"fsck", []string{"fsck"}, 3},
		{"reindex", []string{"reindex"}, 0},
		{"build", []string{"build", names[2]}, 0},
		{"damage", []string{"damage", "list"}, 0},
		{"headroom", []string{"headroom"}, 0},
		{"templates", []string{"template", "list"}, 0},
		{"one template", []string{"template", "show", "x402-buyer"}, 0},
		{"hosts", []string{"install"}, 0},
		{"version", []string{"version"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			const width = 40
			args := append(c.args, "--dir", root)
			if c.name == "version" {
				args = c.args // it is about no root
			}
			text, status := screened(t, width, args...)
			if status != c.status {
				t.Fatalf("status %d, want %d\n%s", status, c.status, text)
			}
			for line := range strings.Lines(text) {
				line = strings.TrimSuffix(line, "\n")
				if n := plain.Width(line); n > width && !strings.HasPrefix(line, "settlewatch ") {
					t.Errorf("a line of %d: %s", n, line)
				}
			}
		})
	}
}

// pressing ends the program as Ctrl-C does, at the first byte it prints, and
// may then hold on to its write for good.
type pressing struct {
	bytes.Buffer
	press context.CancelFunc
	hold  chan struct{}
}

func (p *pressing) Write(b []byte) (int, error) {
	p.press()
	if p.hold != nil {
		<-p.hold
		return 0, io.ErrClosedPipe
	}
	return p.Buffer.Write(b)
}

func TestAnInterruptedCommandSaysSo(t *testing.T) {
	root := recorded(t, "14-long-run")
	for name, c := range map[string]struct {
		args  []string
		early bool
		hold  bool
	}{
		"before a list":               {[]string{"list", "--dir", root}, true, false},
		"before a build":              {[]string{"build", "--all", "--dir", root}, true, false},
		"with --json":                 {[]string{"fsck", "--json", "--dir", root}, true, false},
		"while a build prints":        {[]string{"build", "--all", "--json", "--dir", root}, false, false},
		"while a reader does nothing": {[]string{"build", "--all", "--json", "--dir", root}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out := &pressing{press: cancel}
			if c.hold {
				out.hold = make(chan struct{})
				defer close(out.hold)
			}
			if c.early {
				cancel()
			}
			var errs bytes.Buffer
			done := make(chan int, 1)
			go func() { done <- run(ctx, c.args, strings.NewReader(""), out, &errs, system()) }()
			select {
			case status := <-done:
				if status != 130 || errs.String() != "interrupted\n" {
					t.Errorf("status %d, stderr %q", status, errs.String())
				}
			case <-time.After(time.Minute):
				t.Fatal("it goes on")
			}
		})
	}
}

func TestRowsAreColouredByWhatBecameOfTheMoney(t *testing.T) {
	for state, want := range map[string]string{"settled": green, "failed": red, "unknown": yellow, "none": "", "pending": ""} {
		if got := settlementStyle(state); got != want {
			t.Errorf("%s is %q, want %q", state, got, want)
		}
	}
}

func TestTheCursorsCommandAsksTheSameQuestion(t *testing.T) {
	o := listOptions{rootOptions: rootOptions{dir: "a b"}, query: ingest.Query{Template: "x402-seller", Run: "r", Completeness: "full",
		Counterparty: "shop.example", Settlement: "settled", Limit: 7}}
	want := "settlewatch list --dir 'a b' --run r --completeness full --counterparty shop.example --settlement settled --limit 7 --template x402-seller"
	if got := o.again(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := fmt.Sprint(o.filtered()); got != "true" {
		t.Error(got)
	}
}

func TestHelpFitsTheScreenAndKeepsItsWords(t *testing.T) {
	fits := func(what, text, of string) {
		if squeezed(text) != squeezed(of) {
			t.Errorf("%s: the words differ:\n%s", what, text)
		}
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 40 {
				t.Errorf("%s: a line of %d: %s", what, n, line)
			}
		}
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() == "completion" {
			return // the library's, with examples to copy
		}
		fits(c.CommandPath(), reflow(c.Long, 40), c.Long)
		fits(c.CommandPath(), narrowed(c.UsageString(), 40), c.UsageString())
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	a := app{env: system()}
	walk(a.root())
	fits("as it is asked for", screen(t, 40, "review", "--help"), screen(t, 0, "review", "--help"))
}
