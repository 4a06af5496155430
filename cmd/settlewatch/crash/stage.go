package crash

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// The assets of a crash test. The second one's cap, in atomic units, is more than 64
// bits hold.
const (
	dollar = "eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
	ether  = "eip155:8453/0x4200000000000000000000000000000000000006"
)

const capWindow = 24 * time.Hour

// stage is where one scenario is played: a trace root at a time, and the buyers on
// it. Its methods are called by one goroutine.
type stage struct {
	scenario
	o     Options
	rand  *rand.Rand // one for all scenarios of a crash test
	ctx   context.Context
	until time.Time // when to begin no further round
	seen  *sightings

	roots  []*traceRoot
	buyers []*process
	runs   int // names of run files given out
}

// traceRoot is a trace root with its policy.
type traceRoot struct {
	dir, policy, checkpoint string
	ledgers                 []ledger
	sellers                 map[string]bool // asset and seller of every order
}

// sightings is what a scenario has seen.
type sightings struct {
	processes int
	killedAt  map[string]int
	asked     map[string]*verdicts // by asset
	paid      int                  // payments that were reported
	unjudged  []string             // why the guard could not judge, each once
	problems  []string
}

// verdicts counts verdicts.
type verdicts struct {
	allowed, refused int
	refusedBy        map[string]int // by rule or code
}

func newSightings() *sightings {
	return &sightings{killedAt: map[string]int{}, asked: map[string]*verdicts{
		dollar: {refusedBy: map[string]int{}}, ether: {refusedBy: map[string]int{}},
	}}
}

// unjudgedKept bounds what is told of checks that came to no judgement. They allow
// nothing, so they are no problem.
const unjudgedKept = 3

// problem takes note of something that was not shown, or went wrong, once.
func (t *sightings) problem(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(t.problems, text) {
		t.problems = append(t.problems, text)
	}
}

func (t *sightings) add(r *reply) {
	a := t.asked[r.order.Asset]
	switch {
	case r.said.Decision == "":
	case r.allowed():
		a.allowed++
	default:
		a.refused++
		if why := r.said.Why; why != "" && len(t.unjudged) < unjudgedKept && !slices.Contains(t.unjudged, why) {
			t.unjudged = append(t.unjudged, why)
		}
		for _, rule := range append(slices.Clone(r.said.Rules), r.said.Fault) {
			if rule != "" {
				a.refusedBy[rule]++
			}
		}
	}
}

// by is how often some rules have refused, or one of them with others.
func (v *verdicts) by(rules ...string) int {
	n := 0
	for _, rule := range rules {
		n += v.refusedBy[rule]
	}
	return n
}

// root is where the buyers of now are.
func (s *stage) root() *traceRoot { return s.roots[len(s.roots)-1] }

// triesToFill bounds the rounds that are added because no cap was used up yet: a
// machine that is busy may make the guard too late for one of them.
const triesToFill = 4

// more says whether there is to be another round after n of them.
func (s *stage) more(n int) bool {
	switch {
	case s.ctx.Err() != nil:
		return false
	case n == 0 || s.o.Now().Before(s.until):
		return true
	}
	return s.fill && n < triesToFill && !s.o.Unheld && !s.filled()
}

// filled says whether a cap was used up to its last unit in every asset.
func (s *stage) filled() bool {
	full := map[string]int{}
	for _, r := range s.roots {
		all, _, err := payouts(r.dir)
		if err != nil {
			return false // it is told where the scenario is measured
		}
		for _, l := range r.ledgers {
			full[l.asset] += l.add(all).full
		}
	}
	for _, l := range s.root().ledgers {
		if full[l.asset] == 0 {
			return false
		}
	}
	return true
}

// dollars is a cap in the first asset.
func dollars(cap string, each bool) ledger {
	return ledger{asset: dollar, decimals: 6, cap: units(cap, 6), each: each, window: capWindow}
}

func ethers(cap string) ledger {
	return ledger{asset: ether, decimals: 18, cap: units(cap, 18), each: true, window: capWindow}
}

// units reads an amount in display units.
func units(amount string, decimals int) *big.Int {
	whole, fraction, _ := strings.Cut(amount, ".")
	n, ok := new(big.Int).SetString(whole+fraction+strings.Repeat("0", decimals-len(fraction)), 10)
	if !ok {
		panic("no amount: " + amount)
	}
	return n
}

// open makes a new root under caps. What its policy does not say must not refuse
// anything: only the cap is to be seen at work.
func (s *stage) open(ledgers ...ledger) error {
	dir := filepath.Join(s.o.Dir, fmt.Sprintf("%s-%d", strings.Map(func(r rune) rune {
		if r == ' ' || r == ',' {
			return '-'
		}
		return r
	}, s.name), len(s.roots)+1))
	r := &traceRoot{dir: filepath.Join(dir, ".trace"), policy: filepath.Join(dir, "policy.json"), ledgers: ledgers, sellers: map[string]bool{}}
	if err := os.MkdirAll(filepath.Join(r.dir, "events"), 0o700); err != nil {
		return errcode.Wrap(errcode.Bare(err), errcode.Internal, "a writable temporary directory in TMPDIR", "make a trace root")
	}
	const everything = "1000000"
	policy := map[string]any{
		"reviewAbove": everything, "maxOpenPartialPerCounterparty": 1_000_000, "damage": "ignore",
		"perCounterpartyLimit": map[string]any{"amount": everything, "windowHours": 24},
		"assets": map[string]any{
			dollar: map[string]any{"symbol": "USDC", "decimals": 6},
			ether:  map[string]any{"symbol": "WETH", "decimals": 18},
		},
	}
	for _, l := range ledgers {
		amount := display(l.cap, l.decimals)
		switch {
		case !l.each:
			policy["limits"] = []any{map[string]any{"name": "total", "scope": "total", "asset": l.asset, "amount": amount, "windowHours": 24, "action": "block", "mode": "enforce"}}
		case l.asset == dollar:
			policy["perCounterpartyLimit"] = map[string]any{"amount": amount, "windowHours": 24}
		default:
			policy["assetPolicies"] = map[string]any{l.asset: map[string]any{
				"perCounterpartyLimit": map[string]any{"amount": amount, "windowHours": 24}, "reviewAbove": everything,
			}}
		}
	}
	if err := writeJSON(r.policy, policy); err != nil {
		return errcode.Wrap(err, errcode.Internal, "a writable temporary directory in TMPDIR", "make a policy")
	}
	s.roots = append(s.roots, r)
	return nil
}

// start brings n more buyers, who begin at a time of their own where clock says so,
// and gives them. more goes to each as it is.
func (s *stage) start(n int, clock string, more ...string) ([]*process, error) {
	fresh := make([]*process, n)
	for i := range fresh {
		s.runs++
		r := s.root()
		run := fmt.Sprintf("buyer-%03d", s.runs)
		args := append([]string{"--dir", r.dir, "--guard-config", r.policy, "--run", run}, more...)
		if r.checkpoint != "" {
			args = append(args, "--checkpoint", r.checkpoint)
		}
		if clock != "" {
			args = append(args, "--clock", clock)
		}
		if s.runs%2 == 0 {
			args = append(args, "--watch") // some are servers, some are commands
		}
		if s.o.Unheld {
			args = append(args, "--unheld")
		}
		p, err := launch(s.ctx, s.o.Executable, args)
		if err != nil {
			return nil, errcode.Wrap(errcode.Bare(err), errcode.Internal, "let this program start processes", "start a buyer")
		}
		p.run = run
		fresh[i] = p
		s.buyers = append(s.buyers, p)
	}
	s.seen.processes += n
	errs := make([]error, n)
	var group sync.WaitGroup
	for i, p := range fresh {
		group.Go(func() { errs[i] = p.ready() })
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// seller is one that nobody has paid yet.
func (s *stage) seller() Order {
	var address [20]byte
	for i := range address {
		address[i] = byte(s.rand.UintN(256))
	}
	name := hex.EncodeToString(address[:])
	return Order{Seller: "0x" + name, Host: "s" + name[:12] + ".example", Asset: dollar}
}

// of is an order for an amount in display units.
func (o Order) of(amount string) Order {
	decimals := 6
	if o.Asset == ether {
		decimals = 18
	}
	o.Amount, o.Atomic = amount, units(amount, decimals).String()
	return o
}

func (o Order) later() Order               { o.PayLater = true; return o }
func (o Order) stop(place string) Order    { o.Stop = place; return o }
func (o Order) at(clock time.Time) Order   { o.Clock = clock.Format(time.RFC3339Nano); return o }
func (o Order) inAsset(asset string) Order { o.Asset = asset; return o }

// ask lets buyers ask all at once, and those that are allowed pay, unless they are
// to do that later. It gives what became of it when all have answered.
func (s *stage) ask(buyers []*process, what func(i int) Order) []*reply {
	replies := make([]*reply, len(buyers))
	for i, p := range buyers {
		o := what(i)
		s.root().sellers[o.Asset+" "+o.Seller] = true
		replies[i] = &reply{p: p, order: o}
	}
	for _, r := range replies {
		r.p.tell(r.order)
	}
	together(replies, func(r *reply) { r.p.wait(r) })
	s.count(replies)
	return replies
}

// pay lets those pay that were allowed and have not.
func (s *stage) pay(replies []*reply, clock time.Time) {
	var due []*reply
	for _, r := range replies {
		if r.how == unpaid {
			o := Order{}
			if !clock.IsZero() {
				o = o.at(clock)
			}
			r.p.tell(o)
			due = append(due, r)
		}
	}
	together(due, func(r *reply) { r.p.wait(r) })
	for _, r := range due {
		s.done(r)
	}
}

func (s *stage) count(replies []*reply) {
	for _, r := range replies {
		s.seen.add(r)
		s.done(r)
	}
}

// done takes note of how a step ended.
func (s *stage) done(r *reply) {
	switch r.how {
	case settled, answered:
		if r.how == settled {
			s.seen.paid++
		}
		if r.p.wasKilled() {
			s.drop(r.p) // too late to have hit anything
		}
	case stopped:
		place := r.order.Stop
		if place == "" {
			place = stopAnywhere
		}
		s.seen.killedAt[place]++
		s.drop(r.p)
	case vanished:
		s.seen.problem("a buyer died by itself: %s", firstLines(strings.TrimSpace(r.p.errors.String()), 3))
		s.drop(r.p)
	case hung:
		trace := r.p.stuck()
		name := filepath.Join(s.o.Dir, r.p.run+".stack")
		_ = os.WriteFile(name, []byte(trace), 0o600) // its first lines are told in any case
		s.seen.problem("a buyer did not answer within %s, its goroutines are in %s: %s", answerWithin, name, firstLines(trace, 3))
		s.drop(r.p)
	}
}

// stopAnywhere is the place of a kill that was left to chance.
const stopAnywhere = "anywhere"

func (s *stage) drop(p *process) {
	s.buyers = slices.DeleteFunc(s.buyers, func(q *process) bool { return q == p })
}

// send home lets buyers end by themselves.
func (s *stage) sendHome(buyers []*process) {
	together(buyers, func(p *process) {
		if p.leave() != nil {
			p.kill()
		}
	})
	for _, p := range buyers {
		s.drop(p)
	}
}

// clear ends everybody that is left.
func (s *stage) clear() { s.sendHome(slices.Clone(s.buyers)) }

// capRules are the rules that hold a cap.
var capRules = []string{"per_counterparty_limit", "limit:total"}

// outcomes measures the scenario: one row for each asset.
func (s *stage) outcomes() ([]Outcome, error) {
	var rows []Outcome
	kills := 0
	for _, n := range s.seen.killedAt {
		kills += n
	}
	for i, l := range s.roots[0].ledgers {
		asked := s.seen.asked[l.asset]
		row := Outcome{Name: s.name, More: i > 0, Processes: s.seen.processes, Kills: kills, KilledAt: s.seen.killedAt,
			Allowed: asked.allowed, Refused: asked.refused, RefusedBy: asked.refusedBy, ledger: l, paid: new(big.Int), over: new(big.Int)}
		if len(s.roots[0].ledgers) > 1 {
			row.Name += fmt.Sprintf(", %d dec.", l.decimals)
		}
		rows = append(rows, row)
	}
	found, torn, full := 0, 0, make([]int, len(rows))
	for _, r := range s.roots {
		all, cut, err := payouts(r.dir)
		if err != nil {
			return nil, errcode.Wrap(err, errcode.Internal, "report this", "add up what was paid in %s", plain.Quote(r.dir, plain.Detail))
		}
		found += len(all)
		torn += cut
		for i, l := range r.ledgers {
			sum := l.add(all)
			rows[i].paid.Add(rows[i].paid, sum.paid)
			rows[i].over.Add(rows[i].over, sum.over)
			rows[i].Caps += r.caps(&l)
			full[i] += sum.full
		}
	}
	if found < s.seen.paid {
		s.seen.problem("%d payments were made, and the run files hold %d", s.seen.paid, found)
	}
	if n := s.seen.killedAt[StopHalf]; torn < n {
		s.seen.problem("%d payments were cut short by a kill, and the run files hold %d halves", n, torn)
	}
	rows[0].Problems, rows[0].Unjudged = s.seen.problems, s.seen.unjudged
	for i := range rows {
		row := &rows[i]
		switch {
		case row.Allowed == 0:
			row.Problems = append(row.Problems, "nobody was allowed anything")
		case s.seen.asked[row.ledger.asset].by(capRules...) == 0:
			row.Problems = append(row.Problems, "the cap never refused anything")
		case s.fill && full[i] == 0:
			row.Problems = append(row.Problems, "no cap was used up to its last unit")
		}
	}
	return rows, nil
}

// caps is how many caps of a ledger a root had.
func (r *traceRoot) caps(l *ledger) int {
	if !l.each {
		return 1
	}
	n := 0
	for key := range r.sellers {
		if strings.HasPrefix(key, l.asset+" ") {
			n++
		}
	}
	return n
}
