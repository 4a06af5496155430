package crash

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// By the name it is called by, this binary is a buyer.
func TestMain(m *testing.M) {
	if os.Args[0] == "settlewatch" {
		os.Exit(standIn(os.Args[1:]))
	}
	m.Run()
}

// standIn keeps to the protocol as a buyer does, and asks no guard: every order is
// allowed. What a buyer does beyond that is tried where buyers are made.
func standIn(args []string) int {
	if slices.Contains(args, "--guard-config") {
		fmt.Fprintln(os.Stderr, "E_POLICY: read the policy file")
		return 2
	}
	say(Said{At: AtReady})
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var o Order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		if _, err := time.Parse(time.RFC3339Nano, o.Clock); o.Clock != "" && err != nil {
			fmt.Fprintln(os.Stderr, "--clock takes a time")
			return 2
		}
		if o.Stop == StopJudged {
			return halt(in, o.Stop)
		}
		say(Said{At: AtAnswered, Decision: "allow"})
		if o.Stop == StopAllowed {
			return halt(in, o.Stop)
		}
		say(Said{At: AtPaid})
	}
	return 0
}

func say(s Said) {
	line, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

// halt waits to be killed, or for stdin to end.
func halt(in *bufio.Scanner, at string) int {
	say(Said{At: at})
	for in.Scan() {
		continue
	}
	return 1
}

// aBuyer is a process of the crash test on a root of its own.
func aBuyer(t *testing.T, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := launch(t.Context(), exe, append([]string{"--dir", runFiles(t, nil), "--run", "r1"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

func anOrder() Order {
	return Order{Seller: "0x" + strings.Repeat("ab", 20), Host: "shop.example", Asset: dollar}.of("0.10")
}

func TestABuyerThatHangsIsFoundAndSaysWhere(t *testing.T) {
	p := aBuyer(t)
	if err := p.ready(); err != nil {
		t.Fatal(err)
	}
	p.within = 300 * time.Millisecond
	p.tell(anOrder().stop(StopJudged))
	r := &reply{p: p, order: anOrder()} // nobody expects it to stop
	if p.wait(r); r.how != hung {
		t.Fatalf("it %s", r.how)
	}
	if trace := p.stuck(); !strings.Contains(trace, "halt") {
		t.Errorf("what it says does not name the place: %s", firstLines(trace, 20))
	}
}

func TestABuyerThatDiesByItselfIsToldApartFromOneThatWasKilled(t *testing.T) {
	p := aBuyer(t)
	if err := p.ready(); err != nil {
		t.Fatal(err)
	}
	o := anOrder()
	o.Clock = "yesterday"
	p.tell(o)
	r := &reply{p: p, order: o}
	if p.wait(r); r.how != vanished || !strings.Contains(p.errors.String(), "--clock takes a time") {
		t.Errorf("it %s: %s", r.how, p.errors.String())
	}
	p = aBuyer(t)
	if err := p.ready(); err != nil {
		t.Fatal(err)
	}
	r = &reply{p: p, order: anOrder().stop(StopAllowed)}
	p.tell(r.order)
	if p.wait(r); r.how != stopped || !r.allowed() {
		t.Errorf("it %s, decision %q", r.how, r.said.Decision)
	}
}

func TestABuyerThatCannotStartSaysWhy(t *testing.T) {
	p := aBuyer(t, "--guard-config", "nowhere.json")
	if err := p.ready(); err == nil || !strings.Contains(err.Error(), "E_POLICY: read the policy file") {
		t.Errorf("%v", err)
	}
}

func TestARaceIsOneOnlyIfChecksOverlap(t *testing.T) {
	at := func(began, ended int64) *reply { return &reply{said: Said{Began: began, Ended: ended}} }
	for _, c := range []struct {
		name    string
		replies []*reply
		want    int
	}{
		{"nobody", nil, 0},
		{"one after the other", []*reply{at(1, 2), at(2, 3), at(3, 4)}, 1},
		{"two of three", []*reply{at(1, 5), at(4, 6), at(6, 7)}, 2},
		{"all at once", []*reply{at(1, 9), at(2, 3), at(2, 8)}, 3},
		{"who was killed has not asked", []*reply{{}, {}, at(1, 2)}, 1},
	} {
		if got := overlap(c.replies); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
