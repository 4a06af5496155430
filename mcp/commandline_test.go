package mcp

import (
	"os/exec"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/plain"
)

func TestACommandLineNamesTheOperation(t *testing.T) {
	for name, test := range map[string]struct {
		ref  ingest.Ref
		want string
	}{
		"plain ids":                      {ingest.Ref{Run: "1796030997497", Operation: "24accded-0711"}, "1796030997497 24accded-0711"},
		"a run called latest":            {ingest.Ref{Run: "latest", Operation: "latest"}, "run:latest latest"},
		"a run that begins with run:":    {ingest.Ref{Run: "run:zzz", Operation: "run:o"}, "run:run:zzz run:o"},
		"a run that begins with a dash":  {ingest.Ref{Run: "-r", Operation: "o"}, "-- -r o"},
		"an operation with a dash":       {ingest.Ref{Run: "r", Operation: "--json"}, "-- r --json"},
		"characters of the shell":        {ingest.Ref{Run: "a b", Operation: `$(x);"*~`}, `'a b' '$(x);"*~'`},
		"a home directory":               {ingest.Ref{Run: "~", Operation: "~root"}, `'~' '~root'`},
		"a single quote":                 {ingest.Ref{Run: "r", Operation: "it's"}, `r 'it'\''s'`},
		"a backtick":                     {ingest.Ref{Run: "r", Operation: "`id`'\\"}, `r $'\140id\140\047\134'`},
		"letters":                        {ingest.Ref{Run: "r", Operation: "café"}, "r 'café'"},
		"letters in another composition": {ingest.Ref{Run: "r", Operation: "cafe\u0301"}, `r $'cafe\314\201'`},
		"what would not be shown":        {ingest.Ref{Run: "r", Operation: "a\n\x1b[31m\u202e\xed\xa0\x80"}, `r $'a\012\033[31m\342\200\256\355\240\200'`},
		"a very long id":                 {ingest.Ref{Run: "r", Operation: strings.Repeat("x", 700)}, "RUN OPERATION"},
		"the operation without an id":    {ingest.Ref{Run: "r", Null: true}, "--null-operation r"},
		"the same of a very long run":    {ingest.Ref{Run: strings.Repeat("x", 700), Null: true}, "--null-operation RUN"},
	} {
		if got, want := commandLine("receipt --json", test.ref, "mine"), "settlewatch receipt --json --template mine "+test.want; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for _, ref := range []ingest.Ref{{Run: "r", Operation: "a\x00"}, {Run: "\x00", Null: true}} {
		if got := commandLine("explain", ref, "mine"); got != "" {
			t.Errorf("%q cannot be typed, yet: %s", ref.Run+ref.Operation, got)
		}
	}
}

// TestAShellReadsAQuotedWordAsItself asks the shells of this machine.
func TestAShellReadsAQuotedWordAsItself(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash here")
	}
	words := []string{"a", "", "-n", "it's", "$(id)`id`", "a\nb", "~", "!!", "\\", "\\'", "é", "\u202e", "\xed\xa0\x80", "\x01\x7f\xff", "*", "a=b", "#", "{a,b}"}
	for b := 1; b < 256; b++ {
		words = append(words, string([]byte{byte(b)}), string([]byte{'a', byte(b), '7'}))
	}
	line := "LC_ALL=C printf '%s\\0'"
	for _, w := range words {
		line += " " + shellQuote(w)
	}
	out, err := exec.CommandContext(t.Context(), bash, "--norc", "-c", line).Output()
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if len(got) != len(words) {
		t.Fatalf("%d words were read, want %d", len(got), len(words))
	}
	for i := range words {
		if got[i] != words[i] {
			t.Errorf("%q, written %s, is read as %q", words[i], shellQuote(words[i]), got[i])
		}
	}
}

func TestAQuotedWordSurvivesTheCleaningOfHints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "word")
		hint := "run `settlewatch explain " + shellQuote(word) + "` now"
		if got := plain.Clean(hint, 100_000); got != hint {
			t.Errorf("%q became %q", hint, got)
		}
		if strings.Count(hint, "`") != 2 {
			t.Errorf("where the command ends is not clear: %q", hint)
		}
	})
}
