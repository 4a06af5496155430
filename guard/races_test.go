package guard_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
)

const racePolicy = `{"reviewAbove": "1.00", "perCounterpartyLimit": {"amount": "5.00", "windowHours": 24}}`

// opened opens an index and a guard of one's own on a root.
func opened(ctx context.Context, dir string, now func() time.Time) (*guard.Guard, func(), error) {
	p, err := guard.ParsePolicy([]byte(racePolicy))
	if err != nil {
		return nil, nil, err
	}
	var g *guard.Guard
	x, err := ingest.Open(ctx, ingest.Options{
		Root: dir, Now: now,
		Rewritten: func(ctx context.Context, r ingest.Rewrite) { _ = g.Noticed(ctx, guard.Rewrite(r)) },
	})
	if err != nil {
		return nil, nil, err
	}
	// Twenty wait in line here; nobody is to give up.
	g, err = guard.New(guard.Options{Index: x, Dir: x.GuardDir(), Policy: p, Now: now, Version: "test", LockWait: 20 * time.Second})
	if err != nil {
		return nil, nil, err
	}
	return g, func() { _ = x.Close() }, nil
}

// race lets n guards of their own ask at the same instant and gives the answers.
func race(t *testing.T, s *site, n int, r guard.Request) []*guard.Verdict {
	t.Helper()
	guards := make([]*guard.Guard, n)
	for i := range guards {
		g, done, err := opened(t.Context(), s.dir, s.clock.now)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		guards[i] = g
	}
	start := make(chan struct{})
	answers := make([]*guard.Verdict, n)
	var wg sync.WaitGroup
	for i, g := range guards {
		wg.Go(func() {
			<-start
			v, err := g.Check(t.Context(), r)
			if err != nil {
				t.Error(err)
				v = &guard.Verdict{}
			}
			answers[i] = v
		})
	}
	close(start)
	wg.Wait()
	return answers
}

func allowedOf(answers []*guard.Verdict) (n int) {
	for _, v := range answers {
		if v.Decision == "allow" {
			n++
		}
	}
	return n
}

func TestTenAtTheCapMinusOneUnitAreAllowedOnce(t *testing.T) {
	s := newSite(t, racePolicy)
	s.buy("r1", "op1", terms{amount: "4999999"})
	answers := race(t, s, 10, guard.Request{Counterparty: seller, Amount: "0.000001", Hold: true})
	if n := allowedOf(answers); n != 1 {
		t.Errorf("%d of ten were allowed", n)
	}
	ids := map[string]bool{}
	for _, v := range answers {
		if v.Decision == "review" {
			ids[v.ReviewID] = true
			if firedBy(v)[0] != "per_counterparty_limit" {
				t.Errorf("%v", v.Reasons)
			}
		}
	}
	if len(ids) != 1 || ids[""] {
		t.Errorf("the same question has the reviews %v", ids)
	}
}

func TestTwentyRacersRedeemAnApprovalOnce(t *testing.T) {
	s := newSite(t, racePolicy)
	id := s.want("review", guard.Request{Amount: "2"}, "review_above").ReviewID
	s.decide("approved", id)
	answers := race(t, s, 20, guard.Request{Counterparty: seller, Amount: "2", ReviewID: id})
	if n := allowedOf(answers); n != 1 {
		t.Errorf("%d of twenty were allowed", n)
	}
	again := map[string]bool{}
	for _, v := range answers {
		if v.Decision != "allow" {
			again[v.ReviewID] = true
		}
	}
	if len(again) != 1 || again[id] || again[""] {
		t.Errorf("those who came too late were given %v", again)
	}
	if r := s.state().Review(id); r.Used == nil || r.Status(s.clock.now()) != "used" {
		t.Errorf("the review is %+v", r)
	}
}

// interrupted is an index after whose next Sync something happens.
type interrupted struct {
	*ingest.Indexer
	then func()
}

func (x *interrupted) Sync(ctx context.Context) error {
	err := x.Indexer.Sync(ctx)
	if then := x.then; then != nil {
		x.then = nil
		then()
	}
	return err
}

func TestAPaymentThatEndsAHoldWhileACheckWaitsIsCounted(t *testing.T) {
	s := newSite(t, racePolicy)
	// Another process, which cannot write the usual index: what it reads stays its own.
	rival := &site{t: t, dir: s.dir, clock: s.clock}
	rival.openWith(racePolicy, func(o *guard.Options) {
		x, err := ingest.Open(t.Context(), ingest.Options{Root: s.dir, Now: s.clock.now, Index: filepath.Join(t.TempDir(), "index.db")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = x.Close() })
		o.Index = x
	})
	s.buy("r1", "op1", terms{amount: "4000000"})
	s.clock.add(time.Minute)
	s.want("allow", guard.Request{Amount: "0.80", Hold: true}) // 4.00 spent, 0.80 held of 5.00
	var index interrupted
	s.openWith(racePolicy, func(o *guard.Options) {
		index.Indexer = o.Index.(*ingest.Indexer)
		o.Index = &index
	})
	index.then = func() {
		s.clock.add(time.Second)
		s.buy("r1", "op2", terms{amount: "800000"})
		rival.want("allow", guard.Request{Counterparty: other, Amount: "0.10"}) // it writes down that the hold has ended
	}
	s.want("review", guard.Request{Amount: "0.30"}, "per_counterparty_limit")
	for range s.state().Holds(s.clock.now()) {
		t.Error("the hold is active still, so the check was not put to the test")
	}
}

func TestAnIndexFilledAnewWhileACheckWaitsIsBroughtUpToDate(t *testing.T) {
	s := newSite(t, racePolicy)
	rival, done, err := opened(t.Context(), s.dir, s.clock.now)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if _, err := rival.Check(t.Context(), guard.Request{Counterparty: seller, Amount: "0.10"}); err != nil {
		t.Fatal(err)
	}
	var index interrupted
	s.openWith(racePolicy, func(o *guard.Options) {
		index.Indexer = o.Index.(*ingest.Indexer)
		o.Index = &index
	})
	s.want("allow", guard.Request{Amount: "0.20"})
	events := filepath.Join(s.dir, "events")
	index.then = func() {
		// A filling that began before the last lines were written: it lacks them.
		s.buy("r1", "op1", terms{amount: "4900000"})
		if err := index.Indexer.Sync(t.Context()); err != nil {
			t.Error(err)
		}
		aside := events + ".aside"
		if err := os.Rename(events, aside); err != nil {
			t.Error(err)
		}
		if err := os.Mkdir(events, 0o700); err != nil {
			t.Error(err)
		}
		if x, err := ingest.Open(t.Context(), ingest.Options{Root: s.dir, Now: s.clock.now}); err != nil {
			t.Error(err)
		} else if _, err := x.Reindex(t.Context(), nil); err != nil {
			t.Error(err)
		} else if err := x.Close(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(os.Remove(events), os.Rename(aside, events)); err != nil {
			t.Error(err)
		}
	}
	s.want("review", guard.Request{Amount: "0.30"}, "per_counterparty_limit")
}

var raceTime = time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)

// TestAnotherProcess is what the tests below start: it asks until it is killed, and
// prints each allow once it has it.
func TestAnotherProcess(t *testing.T) {
	args := flag.Args()
	if len(args) != 4 || args[0] != "race" {
		t.Skip("other tests start it")
	}
	g, done, err := opened(t.Context(), args[1], func() time.Time { return raceTime })
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	fmt.Println("ready")
	for range 1000 {
		v, err := g.Check(t.Context(), guard.Request{Counterparty: seller, Amount: args[2], ReviewID: args[3], Hold: true})
		if err != nil {
			t.Fatal(err)
		}
		if v.Decision == "allow" {
			fmt.Println("allowed", v.Hold.ID)
		}
	}
}

// killed starts n processes, kills each after a while of its own, and gives the
// holds that were told.
func killed(t *testing.T, dir, amount, review string, n int) (told []string) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	ready := 0
	for i := range n {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAnotherProcess$", "--", "race", dir, amount, review)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			lines := bufio.NewScanner(out)
			for lines.Scan() {
				id, ok := strings.CutPrefix(lines.Text(), "allowed ")
				switch {
				case ok:
					mu.Lock()
					told = append(told, id)
					mu.Unlock()
				case lines.Text() == "ready":
					mu.Lock()
					ready++
					mu.Unlock()
					time.AfterFunc(time.Duration(5+i*30)*time.Millisecond, func() { _ = cmd.Process.Kill() })
				}
			}
			_ = cmd.Wait()
		})
	}
	wg.Wait()
	if ready != n {
		t.Errorf("%d of %d processes came as far as asking", ready, n)
	}
	t.Logf("%d holds were told", len(told))
	return told
}

func TestKillingProcessesSpendsNoApprovalTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	s := newSite(t, racePolicy)
	id := s.want("review", guard.Request{Amount: "2"}, "review_above").ReviewID
	s.decide("approved", id)
	told := killed(t, s.dir, "2", id, 6)
	told = append(told, killed(t, s.dir, "2", id, 2)...)
	v := s.ask(guard.Request{Amount: "2", ReviewID: id})
	if v.Decision == "allow" {
		told = append(told, v.Hold.ID)
	}
	if len(told) > 1 {
		t.Errorf("one approval was given to %v", told)
	}
	if n := bytes.Count(s.logText(), []byte(`"type":"held"`)); n != 1 {
		t.Errorf("it made %d holds, %v", n, told)
	}
	if r := s.state().Review(id); r.Used == nil {
		t.Errorf("the review is %+v", r)
	}
}

func TestKillingProcessesNeverPassesTheCap(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	s := newSite(t, racePolicy)
	s.buy("r1", "op1", terms{amount: "3000000"})
	told := killed(t, s.dir, "0.9", "", 6)
	var st *decision.State
	for range 3 { // until the cap is reached
		s.ask(guard.Request{Amount: "0.9", Hold: true})
	}
	st = s.state()
	var held big.Int
	onDisk := map[string]bool{}
	for _, h := range st.Holds(raceTime) {
		n, _ := new(big.Int).SetString(h.Intent.Amount, 10)
		held.Add(&held, n)
		onDisk[h.HoldID] = true
	}
	if held.Int64() != 1800000 {
		t.Errorf("%s units are held over the 3,000,000 of 5,000,000 that are spent", held.String())
	}
	for _, id := range told {
		if !onDisk[id] {
			t.Errorf("the hold %s was told and is not on disk", id)
		}
	}
}

// rivalWhere is a guard of another process, which cannot write the usual index: what
// it reads stays its own. Something happens after its next look at the run files.
func (s *site) rivalWhere(then func()) *site {
	rival := &site{t: s.t, dir: s.dir, clock: s.clock}
	rival.openWith(racePolicy, func(o *guard.Options) {
		x, err := ingest.Open(s.t.Context(), ingest.Options{Root: s.dir, Now: s.clock.now, Index: filepath.Join(s.t.TempDir(), "index.db")})
		if err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { _ = x.Close() })
		o.Index = &interrupted{Indexer: x, then: then}
	})
	return rival
}

func TestAPaymentBehindAHoldThatRunsOutWhileACheckWaitsIsCounted(t *testing.T) {
	s := newSite(t, racePolicy)
	rival := s.rivalWhere(func() {
		s.buy("r2", "op1", terms{amount: "900000"})
		s.clock.add(11 * time.Minute) // longer than a hold lasts
	})
	for n := range 4 {
		s.buy("r1", fmt.Sprintf("op%d", n), terms{amount: "900000"})
	}
	s.want("allow", guard.Request{Amount: "0.90", Hold: true})
	rival.want("review", guard.Request{Amount: "0.90"}, "per_counterparty_limit")
}

func TestAnApprovalThatIsPaidOnWhileACheckWaitsIsUsed(t *testing.T) {
	s := newSite(t, racePolicy)
	id := s.want("review", guard.Request{Amount: "2"}, "review_above").ReviewID
	s.decide("approved", id)
	s.clock.add(time.Minute)
	rival := s.rivalWhere(func() { s.buy("r2", "op1", terms{amount: "2000000", resource: shop}) })
	if v := rival.ask(guard.Request{Amount: "2", ReviewID: id}); v.Decision == "allow" {
		t.Errorf("one approval is for two payments: %+v", v)
	}
}
