package guard_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
)

// TestAProcessThatUsesReceipts is what the tests below start: once the file go is in
// its directory it presents every receipt of a file, and prints those that were
// authorised.
func TestAProcessThatUsesReceipts(t *testing.T) {
	args := flag.Args()
	if len(args) != 3 || args[0] != "use" {
		t.Skip("other tests start it")
	}
	root, work := args[1], args[2]
	p, err := guard.ParsePolicy([]byte(opsPolicy("")))
	if err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return raceTime }
	x, err := ingest.Open(t.Context(), ingest.Options{Root: root, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	g, err := guard.New(guard.Options{Index: x, Dir: x.GuardDir(), Policy: p, Now: now, Version: "test", LockWait: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var all []presentation
	text, err := os.ReadFile(filepath.Join(work, "receipts"))
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("ready")
	for {
		if _, err := os.Stat(filepath.Join(work, "go")); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for _, one := range all {
		a, err := g.AuthorizeToolCall(context.Background(), guard.ToolRequest{Call: one.Call, Policy: "ops", Receipt: one.Receipt})
		if err != nil {
			t.Fatal(err)
		}
		if a.Allowed {
			fmt.Println("authorized", one.Nonce)
		}
	}
	fmt.Println("done")
}

type presentation struct {
	Call, Receipt json.RawMessage
	Nonce         string
}

// users starts processes that present receipts at the same instant, kills each once
// it has said so many times that it may go on, and counts how often each receipt was
// authorised.
func users(t *testing.T, root string, n int, receipts []presentation, killAfter func(i int) int) map[string]int {
	t.Helper()
	work := t.TempDir()
	if err := os.WriteFile(filepath.Join(work, "receipts"), encoded(t, receipts), 0o600); err != nil {
		t.Fatal(err)
	}
	told := map[string]int{}
	var mu sync.Mutex
	var wg, ready sync.WaitGroup
	ready.Add(n)
	for i := range n {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAProcessThatUsesReceipts$", "--", "use", root, work)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			began, said := false, 0
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if nonce, ok := strings.CutPrefix(lines.Text(), "authorized "); ok {
					mu.Lock()
					told[nonce]++
					mu.Unlock()
					if said++; killAfter != nil && said == killAfter(i) {
						_ = cmd.Process.Kill() // wherever it is by now
					}
				} else if lines.Text() == "ready" {
					began = true
					ready.Done()
				}
			}
			if !began {
				t.Error("a process did not come as far as asking")
				ready.Done()
			}
			_ = cmd.Wait()
		})
	}
	ready.Wait()
	if err := os.WriteFile(filepath.Join(work, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	return told
}

// receiptsOf are receipts for n calls, each approved.
func (s *site) receiptsOf(n int) (all []presentation) {
	s.t.Helper()
	var ids []string
	for i := range n {
		call := strings.Replace(post, "2500.00", fmt.Sprint(i), 1)
		ids = append(ids, s.request(call, "").ReviewID)
		all = append(all, presentation{Call: json.RawMessage(call)})
	}
	s.approve(ids...)
	for i := range all {
		r := s.request(string(all[i].Call), ids[i]).Receipt
		all[i].Receipt, all[i].Nonce = encoded(s.t, r), r.Nonce
	}
	return all
}

// used counts the lines that use a receipt up.
func (s *site) used() map[string]int {
	s.t.Helper()
	found := map[string]int{}
	lines, _, err := s.Log().Tail(s.t.Context(), 0, 10_000, func(l *decision.Line) bool { return l.Type == "executed" })
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range lines {
		found[l.Body.(*decision.Executed).ReceiptID]++
	}
	return found
}

func TestTwentyProcessesUseAReceiptOnce(t *testing.T) { // 32, 70
	if testing.Short() {
		t.Skip("starts processes")
	}
	s := ops(t)
	all := s.receiptsOf(2)
	told := users(t, s.dir, 20, all, nil)
	for _, one := range all {
		if told[one.Nonce] != 1 || s.used()[one.Nonce] != 1 {
			t.Errorf("%s was authorised %d times, and used %d times", one.Nonce, told[one.Nonce], s.used()[one.Nonce])
		}
	}
	if _, err := s.Log().Read(t.Context()); err != nil {
		t.Errorf("twenty writers forked the chain: %v", err)
	}
}

func TestKillingProcessesUsesNoReceiptTwice(t *testing.T) { // 72
	if testing.Short() {
		t.Skip("starts processes")
	}
	s := ops(t)
	all := s.receiptsOf(30)
	told := users(t, s.dir, 6, all, func(i int) int { return i + 1 })
	if len(told) == 0 {
		t.Error("no process came as far as using one")
	}
	s.open(opsPolicy(""))
	again := 0
	for _, one := range all {
		a := s.said(s.AuthorizeToolCall(t.Context(), guard.ToolRequest{Call: one.Call, Policy: "ops", Receipt: one.Receipt}))
		if a.Allowed {
			again++
			told[one.Nonce]++
		} else if a.DenyCode != approval.CodeReplayed {
			t.Errorf("%+v", a)
		}
		if told[one.Nonce] > 1 || s.used()[one.Nonce] != 1 {
			t.Errorf("%s was authorised %d times, and used %d times", one.Nonce, told[one.Nonce], s.used()[one.Nonce])
		}
	}
	t.Logf("%d of %d were still to be used when all were killed", again, len(all))
}
