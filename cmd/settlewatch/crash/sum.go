package crash

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// This file adds up what a crash test has paid. It shares nothing with what the
// guard counts by: neither the index, nor the reading of a line, nor a sum.

// payout is a payment as it stands in a run file.
type payout struct {
	seller, asset string // asset key
	amount        *big.Int
	at            time.Time
}

// payouts reads every run file of a root. torn counts last lines that were cut
// short: what they were to say was never said.
func payouts(root string) (all []payout, torn int, err error) {
	files, err := filepath.Glob(filepath.Join(root, "events", "*.ndjson"))
	if err != nil {
		return nil, 0, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, 0, err
		}
		lines := bytes.Split(text, []byte("\n"))
		for i, line := range lines {
			if len(line) == 0 {
				continue
			}
			p, paid, err := payoutOf(line)
			switch {
			case err != nil && i == len(lines)-1:
				torn++
			case err != nil:
				return nil, 0, fmt.Errorf("%s, line %d: %w", filepath.Base(file), i+1, err)
			case paid:
				// One that is whole but for its newline was signed as well.
				all = append(all, p)
			}
		}
	}
	return all, torn, nil
}

func payoutOf(line []byte) (p payout, paid bool, err error) {
	var e struct {
		Type    string `json:"event_type"`
		At      string `json:"occurred_at"`
		Payload struct {
			Requirements struct {
				Network string `json:"network"`
				Asset   string `json:"asset"`
				Amount  string `json:"amount"`
				PayTo   string `json:"pay_to"`
			} `json:"requirements"`
		} `json:"payload"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return p, false, err
	}
	if e.Type != "x402.payment.submitted" {
		return p, false, nil
	}
	terms := e.Payload.Requirements
	amount, ok := new(big.Int).SetString(terms.Amount, 10)
	if !ok {
		return p, false, fmt.Errorf("%q is no amount", terms.Amount)
	}
	at, err := time.Parse(time.RFC3339Nano, e.At)
	if err != nil {
		return p, false, err
	}
	return payout{strings.ToLower(terms.PayTo), terms.Network + "/" + strings.ToLower(terms.Asset), amount, at}, true, nil
}

// most is the most that some payments come to within any window, and all is what
// they come to in all.
func most(paid []payout, window time.Duration) (most, all *big.Int) {
	paid = slices.Clone(paid)
	slices.SortStableFunc(paid, func(a, b payout) int { return a.at.Compare(b.at) })
	most, all = new(big.Int), new(big.Int)
	within, first := new(big.Int), 0
	for _, p := range paid {
		all.Add(all, p.amount)
		within.Add(within, p.amount)
		for ; !paid[first].at.After(p.at.Add(-window)); first++ {
			within.Sub(within, paid[first].amount)
		}
		if within.Cmp(most) > 0 {
			most.Set(within)
		}
	}
	return most, all
}

// ledger is what may be paid in an asset: cap within any window, to each seller
// where each has a cap of its own, else to all of them.
type ledger struct {
	asset    string // key
	decimals int
	cap      *big.Int
	each     bool
	window   time.Duration
}

// accounts are what a ledger comes to.
type accounts struct {
	paid, over *big.Int
	full       int // caps that were used up to the last unit
}

// add sums up what was paid, and by how much that is over the cap, seller by seller
// where each has its own.
func (l *ledger) add(all []payout) accounts {
	sum := accounts{paid: new(big.Int), over: new(big.Int)}
	groups := map[string][]payout{}
	for _, p := range all {
		if p.asset != l.asset {
			continue
		}
		seller := ""
		if l.each {
			seller = p.seller
		}
		groups[seller] = append(groups[seller], p)
	}
	for _, group := range groups {
		most, all := most(group, l.window)
		sum.paid.Add(sum.paid, all)
		switch most.Cmp(l.cap) {
		case 0:
			sum.full++
		case 1:
			sum.over.Add(sum.over, most.Sub(most, l.cap))
		}
	}
	return sum
}

// display writes atomic units with a decimal point and at least two digits behind
// it, where the asset has as many.
func display(n *big.Int, decimals int) string {
	if n.Sign() < 0 {
		return "-" + display(new(big.Int).Neg(n), decimals)
	}
	digits := n.String()
	if decimals == 0 {
		return digits
	}
	if short := decimals + 1 - len(digits); short > 0 {
		digits = strings.Repeat("0", short) + digits
	}
	whole, fraction := digits[:len(digits)-decimals], strings.TrimRight(digits[len(digits)-decimals:], "0")
	for len(fraction) < min(2, decimals) {
		fraction += "0"
	}
	return whole + "." + fraction
}
