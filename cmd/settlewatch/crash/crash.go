package crash

import (
	"context"
	"math/big"
	"math/rand/v2"
	"time"
)

// Options are what a crash test is told.
type Options struct {
	Scenario string        // one of Scenarios; "" for all
	Seed     int64         // chooses who is killed when
	Time     time.Duration // about how long to go on; it takes what one round of each scenario needs

	Now        func() time.Time
	Executable string            // this program: it is a buyer when it is called as "crash-test buyer"
	Dir        string            // an empty directory, by its real path, where everything happens
	Note       func(name string) // called with each scenario before it begins; nil for nobody

	// A crash test that cannot fail is worth nothing. It is seen to fail by these.
	Unheld bool // buyers ask without a hold
	Mild   bool // nobody is killed, nothing is deleted, cut or set back
}

// Outcome is what a scenario came to in one asset.
type Outcome struct {
	Name             string
	More             bool // of the scenario of the outcome before, in another asset
	Processes, Kills int
	KilledAt         map[string]int // by place: a stop, or "anywhere"
	Allowed, Refused int            // verdicts, in the asset
	RefusedBy        map[string]int // by rule, or by the code of an error
	Caps             int            // how many there were: one, or one of each seller
	Problems         []string       // besides money over the cap: what was not shown, or went wrong
	Unjudged         []string       // why the guard answered not_ready

	ledger     ledger
	paid, over *big.Int
}

// Asset is the key of the asset.
func (o *Outcome) Asset() string { return o.ledger.asset }

// Cap is what each cap allows, in display units.
func (o *Outcome) Cap() string { return display(o.ledger.cap, o.ledger.decimals) }

// Paid is what was paid in all, in display units.
func (o *Outcome) Paid() string { return display(o.paid, o.ledger.decimals) }

// Over is what was paid over the caps, in display units; "0" where no cap was passed.
func (o *Outcome) Over() string {
	if !o.IsOver() {
		return "0"
	}
	return display(o.over, o.ledger.decimals)
}

// IsOver reports whether money went over a cap.
func (o *Outcome) IsOver() bool { return o.over.Sign() != 0 }

// Failed reports whether money went over a cap or something was not shown.
func (o *Outcome) Failed() bool { return o.IsOver() || len(o.Problems) > 0 }

// Scenarios are the names of what is played, in that order.
func Scenarios() []string {
	names := make([]string, len(scenarios))
	for i, s := range scenarios {
		names[i] = s.name
	}
	return names
}

// Run plays the scenarios one after the other, since each is to have the machine to
// itself, and gives an outcome for each asset of each. An error means that the test
// could not be made, or was interrupted; what went wrong in it is in the outcomes.
func Run(ctx context.Context, o Options) ([]Outcome, error) {
	var all []Outcome
	began, parts := o.Now(), 0.0
	random := rand.New(rand.NewPCG(uint64(o.Seed), 0))
	for _, s := range scenarios {
		parts += s.part
		if o.Scenario != "" {
			parts = 1
		}
		if o.Scenario != "" && o.Scenario != s.name {
			continue
		}
		if o.Note != nil {
			o.Note(s.name)
		}
		// Time that one has not used is the next one's.
		until := began.Add(time.Duration(float64(o.Time) * parts))
		rows, err := play(ctx, &stage{o: o, rand: random, scenario: s, until: until, seen: newSightings()})
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	return all, nil
}

// play plays what a stage is for and measures it.
func play(ctx context.Context, s *stage) ([]Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.ctx = ctx
	err := s.play(s)
	s.clear()
	if err == nil {
		err = ctx.Err() // who was interrupted has shown nothing
	}
	if err != nil {
		return nil, err
	}
	return s.outcomes()
}
