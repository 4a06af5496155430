package crash

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// This file is what is played in a crash test. Each scenario begins with a cap that
// nobody has touched, does something to the guard while buyers use the cap up, and
// ends with everybody asking for the smallest unit there is.

type scenario struct {
	name string
	part float64 // of the time there is
	fill bool    // some cap must have been used up to its last unit
	play func(*stage) error
}

var scenarios = []scenario{
	{"race, one seller", 0.16, true, (*stage).raceForOneSeller},
	{"race, one total", 0.10, true, (*stage).raceForOneTotal},
	{"paid before a hold", 0.05, true, (*stage).payBeforeAHold},
	{"kill -9", 0.33, false, (*stage).killAnybody},
	{"restart, no index", 0.12, true, (*stage).restartWithoutIndex},
	{"cut log", 0.10, false, (*stage).cutTheLog},
	{"two assets", 0.04, true, (*stage).twoAssets},
	{"midnight", 0.05, true, (*stage).passMidnight},
	{"clock set back", 0.05, true, (*stage).setTheClockBack},
}

const smallest = "0.000001" // the smallest amount of the first asset

// notReady is the rule of a guard that cannot judge, and unsoundLog that of one that
// does not trust its log.
const (
	notReady   = "not_ready"
	unsoundLog = "log_unsound"
)

// oneAtATime is the problem of a race that was none.
func (s *stage) oneAtATime(most int) {
	if most < 2 {
		s.seen.problem("no two buyers ever asked at the same moment, so nobody raced")
	}
}

func (s *stage) raceForOneSeller() error {
	if err := s.open(dollars("1.00", true)); err != nil {
		return err
	}
	buyers, err := s.start(10, "")
	if err != nil {
		return err
	}
	most := 0
	for n := 0; s.more(n); n++ {
		seller := s.seller()
		for _, amount := range []string{"0.999999", smallest, smallest} {
			all := s.ask(buyers, func(int) Order {
				if n%2 == 0 {
					return seller.of(amount).later() // everybody has an answer before anybody pays
				}
				return seller.of(amount)
			})
			s.pay(all, time.Time{})
			most = max(most, overlap(all))
		}
	}
	s.oneAtATime(most)
	return nil
}

func (s *stage) raceForOneTotal() error {
	most := 0
	for n := 0; s.more(n); n++ {
		if err := s.open(dollars("1.00", false)); err != nil {
			return err
		}
		buyers, err := s.start(10, "")
		if err != nil {
			return err
		}
		for _, amount := range []string{"0.999999", smallest, smallest} {
			all := s.ask(buyers, func(int) Order {
				if n%2 == 0 {
					return s.seller().of(amount).later()
				}
				return s.seller().of(amount)
			})
			s.pay(all, time.Time{})
			most = max(most, overlap(all))
		}
		s.clear()
	}
	s.oneAtATime(most)
	return nil
}

// payBeforeAHold lets somebody pay without a hold just before somebody else, who is to
// pay the same, gets one. The payment is none that the hold was made for (guard
// contract, section 5).
func (s *stage) payBeforeAHold() error {
	if err := s.open(dollars("1.00", true)); err != nil {
		return err
	}
	free, err := s.start(1, "", "--unheld")
	if err != nil {
		return err
	}
	buyers, err := s.start(3, "")
	if err != nil {
		return err
	}
	holds := 0
	for n := 0; s.more(n); n++ {
		seller := s.seller()
		s.ask(free, func(int) Order { return seller.of("0.40") })
		late := s.ask(buyers[:1], func(int) Order { return seller.of("0.40").later() })
		if late[0].allowed() {
			holds++
		}
		s.ask(buyers[1:], func(int) Order { return seller.of("0.40") })
		s.pay(late, time.Time{})
		s.ask(buyers, func(int) Order { return seller.of("0.20") })
		s.ask(buyers, func(int) Order { return seller.of(smallest) })
	}
	if holds == 0 {
		s.seen.problem("nobody got a hold after the payment")
	}
	return nil
}

// killable are the places of a kill, in turn.
var killable = []string{StopJudged, StopAllowed, StopHalf, stopAnywhere}

// checkLasts is about how long a check among others takes, where none was seen yet.
const checkLasts = 30 * time.Millisecond

// longest is how long the longest of some checks took.
func longest(replies []*reply) time.Duration {
	longest := time.Duration(0)
	for _, r := range replies {
		longest = max(longest, time.Duration(r.said.Ended-r.said.Began))
	}
	return longest
}

// place is where somebody is to be killed next: where nobody has been yet, else in
// turn.
func (s *stage) place(n int) string {
	if missing := s.notKilledAt(); len(missing) > 0 {
		return missing[n%len(missing)]
	}
	return killable[n%len(killable)]
}

func (s *stage) notKilledAt() []string {
	return slices.DeleteFunc(slices.Clone(killable), func(place string) bool { return s.seen.killedAt[place] > 0 })
}

func (s *stage) killAnybody() error {
	if err := s.open(dollars("1.00", true)); err != nil {
		return err
	}
	patient, err := s.start(2, "")
	if err != nil {
		return err
	}
	const tries = 16
	lasts := checkLasts
	var others []*process
	for n := 0; s.more(n) || n < tries && !s.o.Mild && len(s.notKilledAt()) > 0; n++ {
		if s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		seller := s.seller()
		// What these have been allowed is not paid until the end, and must not be
		// forgotten whoever dies.
		late := s.ask(patient, func(int) Order { return seller.of("0.20").later() })
		for wave := range 2 {
			fresh, err := s.start(5-len(others), "")
			if err != nil {
				return err
			}
			others = append(others, fresh...)
			// The first time there is room for everybody, so that whoever is to be
			// killed after an allow gets one.
			victim, place := s.rand.IntN(len(others)), s.place(n+wave)
			all := s.ask(others, func(i int) Order {
				o := seller.of("0.10")
				if i != victim || s.o.Mild {
					return o
				}
				if place == stopAnywhere {
					o.after = 1 + time.Duration(s.rand.Int64N(int64(lasts)))
					return o
				}
				return o.stop(place)
			})
			lasts = max(time.Millisecond, longest(all))
			others = slices.DeleteFunc(others, func(p *process) bool { return !slices.Contains(s.buyers, p) })
		}
		s.pay(late, time.Time{})
		s.ask(slices.Clone(s.buyers), func(int) Order { return seller.of(smallest) })
		others = slices.DeleteFunc(others, func(p *process) bool { return !slices.Contains(s.buyers, p) })
		patient = slices.DeleteFunc(patient, func(p *process) bool { return !slices.Contains(s.buyers, p) })
		again, err := s.start(2-len(patient), "")
		if err != nil {
			return err
		}
		patient = append(patient, again...)
	}
	for _, place := range s.notKilledAt() {
		s.seen.problem("no kill landed: %s", map[string]string{
			StopJudged: "between the verdict and the log", StopAllowed: "between an allow and its payment",
			StopHalf: "in the middle of a payment's line", stopAnywhere: "at a moment left to chance",
		}[place])
	}
	return nil
}

func (s *stage) restartWithoutIndex() error {
	if err := s.open(dollars("1.00", true)); err != nil {
		return err
	}
	buyers, err := s.start(8, "")
	if err != nil {
		return err
	}
	gone, restarts := 0, 0
	forget := func() error {
		n, err := s.deleteIndex()
		gone += n
		return err
	}
	for n := 0; s.more(n); n++ {
		seller := s.seller()
		patient, others := buyers[:2], buyers[2:]
		late := s.ask(patient, func(int) Order { return seller.of("0.25").later() })
		s.ask(others, func(int) Order { return seller.of("0.05") })
		if err := forget(); err != nil {
			return err
		}
		s.sendHome(others[:3])
		fresh, err := s.start(3, "")
		if err != nil {
			return err
		}
		restarts += len(fresh)
		others = append(fresh, others[3:]...)
		// Once more while they ask.
		done := make(chan error, 1)
		pause := time.Duration(s.rand.Int64N(int64(checkLasts)))
		go func() {
			time.Sleep(pause)
			done <- forget()
		}()
		s.ask(others, func(int) Order { return seller.of("0.05") })
		if err := <-done; err != nil {
			return err
		}
		s.pay(late, time.Time{})
		if err := forget(); err != nil {
			return err
		}
		buyers = append(slices.Clone(patient), others...)
		s.ask(buyers, func(int) Order { return seller.of(smallest) })
	}
	if gone == 0 {
		s.seen.problem("no index was ever deleted")
	}
	if restarts == 0 {
		s.seen.problem("nobody was restarted")
	}
	return nil
}

// deleteIndex removes the index of a root as a person might, while it is in use, and
// says whether there was one.
func (s *stage) deleteIndex() (int, error) {
	if s.o.Mild {
		return 0, nil
	}
	n := 0
	files, err := filepath.Glob(filepath.Join(s.root().dir, "guard", "index-*"))
	for _, file := range files {
		if filepath.Ext(file) == ".lock" {
			continue // it is held by name, and is no part of what is known
		}
		if rerr := os.Remove(file); rerr == nil && filepath.Ext(file) == ".db" {
			n = 1
		}
	}
	return n, err
}

// cuts are what is done to the log. harmless is what a crash leaves: the guard goes on
// from there. plain ones are noticed by whoever reads the log; the others by whoever
// had seen the line, or by a checkpoint.
var cuts = []struct {
	name            string
	harmless, plain bool
	cut             func(log []byte) []byte
}{
	{"half a line at its end", true, true, func(log []byte) []byte {
		last := log[lastLine(log):]
		return append(slices.Clip(log), last[:len(last)/2]...)
	}},
	{"its end cut off within a line", false, false, func(log []byte) []byte { return log[:(lastLine(log)+len(log))/2] }},
	{"its last line cut off", false, false, func(log []byte) []byte { return log[:lastLine(log)] }},
	{"a line in its middle cut out", false, true, func(log []byte) []byte {
		lines := bytes.SplitAfter(log, []byte("\n"))
		return slices.Concat(slices.Concat(lines[:len(lines)/2]...), slices.Concat(lines[len(lines)/2+1:]...))
	}},
}

// lastLine is where the last line of a log begins.
func lastLine(log []byte) int { return bytes.LastIndexByte(log[:len(log)-1], '\n') + 1 }

func (s *stage) cutTheLog() error {
	for n := 0; s.more(n); n++ {
		for i := range cuts {
			for _, pinned := range []bool{false, true} {
				if pinned && cuts[i].plain {
					continue // it makes no difference
				}
				if err := s.cutOnce(i, pinned); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// cutOnce cuts a log, with a checkpoint kept elsewhere or without. What was allowed
// and is not paid stands in the last line: it may be paid after that was cut off only
// where a checkpoint says that there was such a line, since nothing else can (guard
// contract, section 7).
func (s *stage) cutOnce(i int, pinned bool) error {
	c := &cuts[i]
	if err := s.open(dollars("1.00", true)); err != nil {
		return err
	}
	if pinned {
		s.root().checkpoint = filepath.Join(filepath.Dir(s.root().dir), "checkpoint.json")
	}
	old, err := s.start(3, "")
	if err != nil {
		return err
	}
	seller := s.seller()
	s.ask(old[:2], func(int) Order { return seller.of("0.30") })
	late := s.ask(old[2:], func(int) Order { return seller.of("0.20").later() })
	if !c.plain && !pinned {
		s.pay(late, time.Time{})
		late = nil
	}
	if !s.o.Mild {
		if err := s.rewriteLog(c.cut); err != nil {
			return err
		}
	}
	verdicts := s.seen.asked[dollar]
	before := verdicts.by(unsoundLog, notReady)
	writer := old[2:] // of the last line
	if late != nil {
		writer = nil // it is told when to pay before anything else
	}
	asking := append(slices.Clone(old[:2]), writer...)
	all := s.ask(asking, func(int) Order { return seller.of("0.20") })
	fresh, err := s.start(1, "")
	if err != nil {
		return err
	}
	all = append(all, s.ask(fresh, func(int) Order { return seller.of("0.20") })...)
	s.pay(late, time.Time{})
	s.ask(slices.Clone(s.buyers), func(int) Order { return seller.of(smallest) })
	noticed := verdicts.by(unsoundLog, notReady) - before
	allowed := 0
	for _, r := range all {
		if r.allowed() {
			allowed++
		}
	}
	torn, err := filepath.Glob(filepath.Join(s.root().dir, "guard", "torn-*.bin"))
	switch {
	case err != nil:
		return err
	case c.harmless && (len(torn) == 0 || allowed != 1):
		s.seen.problem("%s: it was to be set aside and one buyer to be allowed; %d files were and %d buyers", c.name, len(torn), allowed)
	case !c.harmless && noticed == 0:
		s.seen.problem("%s: nobody noticed", c.name)
	case !c.harmless && (c.plain || pinned) && allowed > 0:
		s.seen.problem("%s: %d buyers were allowed all the same", c.name, allowed)
	}
	s.clear()
	return nil
}

// rewriteLog changes the log where it is, as a program that edits it would.
func (s *stage) rewriteLog(cut func([]byte) []byte) error {
	name := s.logPath()
	text, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name, cut(text), 0o600)
	}
	if err != nil {
		return errcode.Wrap(errcode.Bare(err), errcode.Internal, "report this", "cut the decisions log %s", plain.Quote(name, plain.Detail))
	}
	return nil
}

func (s *stage) logPath() string { return filepath.Join(s.root().dir, "guard", "decisions.ndjson") }

func (s *stage) twoAssets() error {
	if err := s.open(dollars("1.00", true), ethers("20.00")); err != nil {
		return err
	}
	buyers, err := s.start(8, "")
	if err != nil {
		return err
	}
	amounts := [][2]string{{"0.999999", "19.999999999999999999"}, {smallest, "0.000000000000000001"}, {smallest, "0.000000000000000001"}}
	most := 0
	for n := 0; s.more(n); n++ {
		seller := s.seller()
		for _, amount := range amounts {
			all := s.ask(buyers, func(i int) Order {
				o := seller.of(amount[0])
				if i%2 == 1 {
					o = seller.inAsset(ether).of(amount[1])
				}
				if n%2 == 0 {
					return o.later()
				}
				return o
			})
			s.pay(all, time.Time{})
			most = max(most, overlap(all))
		}
	}
	s.oneAtATime(most)
	return nil
}

// passMidnight has two roots, since a limit of one seller and one of all payments
// are added up in different ways.
func (s *stage) passMidnight() error {
	day := s.o.Now().UTC().Truncate(24 * time.Hour)
	evening, night := day.Add(23*time.Hour+59*time.Minute), day.Add(24*time.Hour+time.Minute)
	for n := 0; s.more(n) || n < 2; n++ {
		if err := s.open(dollars("1.00", n%2 == 0)); err != nil {
			return err
		}
		buyers, err := s.start(3, evening.Format(time.RFC3339))
		if err != nil {
			return err
		}
		seller := s.seller()
		one := func(amount string, clock time.Time) int {
			all := s.ask(buyers, func(int) Order { return seller.of(amount).at(clock).later() })
			s.pay(all, time.Time{})
			allowed := 0
			for _, r := range all {
				if r.allowed() {
					allowed++
				}
			}
			return allowed
		}
		first := one("0.60", evening)
		fresh, err := s.start(3, night.Format(time.RFC3339))
		if err != nil {
			return err
		}
		buyers = append(buyers, fresh...)
		// An hour of its own would let this through, and so would a day.
		if over := one("0.60", night); first != 1 || over != 0 {
			s.seen.problem("at 23:59 %d buyers were allowed and at 00:01 %d, in place of 1 and 0", first, over)
		}
		second := one("0.40", night)
		one(smallest, night)
		// A minute after its evening, the first payment has left the window and the
		// second has not.
		if third := one("0.60", evening.Add(24*time.Hour+time.Minute)); second != 1 || third != 1 {
			s.seen.problem("after midnight %d buyers were allowed and a day later %d, in place of 1 and 1", second, third)
		}
		one(smallest, evening.Add(24*time.Hour+time.Minute))
		s.clear()
	}
	return nil
}

func (s *stage) setTheClockBack() error {
	noon := s.o.Now().UTC().Truncate(24 * time.Hour).Add(12 * time.Hour)
	back := noon.Add(-time.Hour)
	if s.o.Mild {
		back = noon.Add(time.Second)
	}
	for n := 0; s.more(n) || n < 2; n++ {
		if err := s.open(dollars("1.00", n%2 == 0)); err != nil {
			return err
		}
		buyers, err := s.start(5, noon.Format(time.RFC3339))
		if err != nil {
			return err
		}
		seller := s.seller()
		late := s.ask(buyers[:2], func(int) Order { return seller.of("0.30").at(noon).later() })
		s.ask(buyers[2:3], func(int) Order { return seller.of("0.20").at(noon) })
		fresh, err := s.start(2, back.Format(time.RFC3339))
		if err != nil {
			return err
		}
		others := append(slices.Clone(buyers[2:]), fresh...)
		s.ask(others, func(int) Order { return seller.of("0.30").at(back) })
		s.ask(others, func(int) Order { return seller.of("0.20").at(back) })
		// Whoever was allowed at noon pays at eleven.
		s.pay(late, back)
		everybody := append(slices.Clone(buyers), fresh...)
		s.ask(everybody, func(int) Order { return seller.of(smallest).at(back) })
		// When the clock is right again, all reservations are over.
		s.ask(everybody, func(int) Order { return seller.of(smallest).at(noon.Add(15 * time.Minute)) })
		wentBack, err := s.timesGoBack()
		if err != nil {
			return err
		}
		if !wentBack {
			s.seen.problem("the decisions log does not show that a clock was set back")
		}
		s.clear()
	}
	return nil
}

// timesGoBack reports whether a line of the log is dated half an hour or more before
// the one above it.
func (s *stage) timesGoBack() (bool, error) {
	text, err := os.ReadFile(s.logPath())
	if err != nil {
		return false, errcode.Wrap(errcode.Bare(err), errcode.Internal, "report this", "read the decisions log")
	}
	var last time.Time
	for line := range bytes.Lines(text) {
		var l struct {
			At time.Time `json:"at"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			return false, errcode.Wrap(err, errcode.Internal, "report this", "read the decisions log")
		}
		if l.At.Before(last.Add(-30 * time.Minute)) {
			return true, nil
		}
		last = l.At
	}
	return false, nil
}
