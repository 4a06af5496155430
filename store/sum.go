package store

import (
	"fmt"
	"math/big"
	"strconv"
)

// total is an exact sum of amounts, which may be taken off again. The zero total is
// zero. Amounts have up to a thousand digits and nearly all fit a machine word, so
// large ones are added up beside the small ones.
type total struct {
	small int64    // within maxSmall of zero
	large *big.Int // nil: none yet
}

// Amounts of so many digits are kept and added as integers.
const smallDigits = 18

// maxSmall is such that two sums fit a machine word.
const maxSmall = 1<<62 - 1

// add adds an amount, sign times; the empty one is none.
func (t *total) add(amount string, sign int64) error {
	if amount == "" {
		return nil
	}
	if len(amount) <= smallDigits {
		n, err := strconv.ParseInt(amount, 10, 64)
		if err != nil {
			return fmt.Errorf("sum up the amount %.40q: not whole atomic units", amount)
		}
		t.addSmall(sign * n)
		return nil
	}
	n, ok := new(big.Int).SetString(amount, 10)
	if !ok {
		return fmt.Errorf("sum up the amount %.40q: not whole atomic units", amount)
	}
	t.addLarge(n.Mul(n, big.NewInt(sign)))
	return nil
}

// addSmall adds what is within 10^smallDigits of zero.
func (t *total) addSmall(n int64) {
	t.small += n
	if t.small > maxSmall || t.small < -maxSmall {
		t.addLarge(big.NewInt(t.small))
		t.small = 0
	}
}

func (t *total) addLarge(n *big.Int) {
	if t.large == nil {
		t.large = new(big.Int)
	}
	t.large.Add(t.large, n)
}

func (t *total) addTotal(o *total) {
	t.addSmall(o.small)
	if o.large != nil {
		t.addLarge(o.large)
	}
}

func (t *total) isZero() bool {
	if t.large == nil {
		return t.small == 0
	}
	return t.large.IsInt64() && t.large.Int64() == -t.small
}

// String is the sum as decimal text.
func (t *total) String() string {
	if t.large == nil {
		return strconv.FormatInt(t.small, 10)
	}
	return new(big.Int).Add(t.large, big.NewInt(t.small)).String()
}

// An amount is stored as an integer where that holds it, which takes half the room,
// and as text elsewhere. Either way it comes back as it was.

// stored is the column value of an amount; nil for the empty one.
func stored(amount string) any {
	if amount == "" {
		return nil
	}
	if len(amount) <= smallDigits {
		if n, err := strconv.ParseInt(amount, 10, 64); err == nil && strconv.FormatInt(n, 10) == amount {
			return n
		}
	}
	return amount
}

// amountOf is the amount of a column value.
func amountOf(v any) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case string:
		return v
	}
	return ""
}
