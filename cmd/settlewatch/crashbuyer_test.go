package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/settlewatch/settlewatch/cmd/settlewatch/crash"
)

// What a buyer says and leaves, until nobody is there any more to tell it anything.
func TestABuyerKeepsToTheProtocol(t *testing.T) {
	order := crash.Order{Seller: payTo, Host: "shop.example", Asset: usdc, Amount: "0.10", Atomic: "100000"}
	with := func(change func(*crash.Order)) crash.Order {
		o := order
		change(&o)
		return o
	}
	const leftAlone = "nobody has ended this process"
	for _, c := range []struct {
		name   string
		orders []crash.Order
		args   []string
		said   string
		lines  int    // whole ones, in the run file
		torn   bool   // and half of one
		fails  string // "" for an end of its own
	}{
		{"pays what is allowed", []crash.Order{order}, nil, "ready answered:allow paid", 5, false, ""},
		{"stops when it is judged, and is not allowed when nobody ends it", []crash.Order{with(func(o *crash.Order) { o.Stop = crash.StopJudged })}, nil, "ready judged answered:review", 1, false, ""},
		{"stops when it is allowed", []crash.Order{with(func(o *crash.Order) { o.Stop = crash.StopAllowed })}, nil, "ready answered:allow allowed", 1, false, leftAlone},
		{"stops in the middle of a line", []crash.Order{with(func(o *crash.Order) { o.Stop = crash.StopHalf })}, nil, "ready answered:allow half", 3, true, leftAlone},
		{"waits to be told when to pay", []crash.Order{with(func(o *crash.Order) { o.PayLater = true })}, nil, "ready answered:allow", 1, false, ""},
		{"pays when it is told", []crash.Order{with(func(o *crash.Order) { o.PayLater = true }), {}}, nil, "ready answered:allow paid", 5, false, ""},
		{"takes no clock that is none", []crash.Order{with(func(o *crash.Order) { o.Clock = "yesterday" })}, nil, "ready", 1, false, "--clock takes a time"},
		{"cannot start", []crash.Order{order}, []string{"--guard-config", "nowhere.json"}, "", 0, false, "E_POLICY: read the policy file"},
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "events"), 0o700); err != nil {
			t.Fatal(err)
		}
		var orders bytes.Buffer
		for _, o := range c.orders {
			line, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			orders.Write(append(line, '\n'))
		}
		stdout, stderr, exit := asking{stdin: orders.String()}.run(t, append([]string{"crash-test", "buyer", "--dir", dir, "--run", "r1"}, c.args...)...)
		if got := wordsOf(t, stdout); got != c.said {
			t.Errorf("%s: it says %q, want %q", c.name, got, c.said)
		}
		if !strings.Contains(stderr, c.fails) || (exit != 0) != (c.fails != "") {
			t.Errorf("%s: status %d, %q", c.name, exit, stderr)
		}
		run, _ := os.ReadFile(filepath.Join(dir, "events", "r1.ndjson")) // who cannot start has none
		if lines, torn := bytes.Count(run, []byte("\n")), len(run) > 0 && !bytes.HasSuffix(run, []byte("\n")); lines != c.lines || torn != c.torn {
			t.Errorf("%s: %d lines, torn %v: %s", c.name, lines, torn, run)
		}
	}
}

// wordsOf are the words of what a buyer has said, and its verdicts.
func wordsOf(t *testing.T, stdout string) string {
	t.Helper()
	var words []string
	for line := range strings.Lines(stdout) {
		var s crash.Said
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if s.At == crash.AtAnswered {
			s.At += ":" + s.Decision
		}
		words = append(words, s.At)
	}
	return strings.Join(words, " ")
}
