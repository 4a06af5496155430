package store

import (
	"errors"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	pay "github.com/settlewatch/settlewatch/guard/payment"
)

func genAmount(t *rapid.T, name string) string {
	digits := rapid.OneOf(rapid.IntRange(1, 40), rapid.Just(smallDigits), rapid.Just(smallDigits+1), rapid.Just(pay.MaxDigits)).Draw(t, name+" digits")
	first := rapid.IntRange(1, 9).Draw(t, name+" first")
	return string(rune('0'+first)) + strings.Repeat(string(rune('0'+rapid.IntRange(0, 9).Draw(t, name+" rest"))), digits-1)
}

func TestSumsAreExactWhateverIsAddedAndTakenOff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sum total
		want := new(big.Int)
		for range rapid.IntRange(0, 30).Draw(t, "amounts") {
			amount, sign := genAmount(t, "amount"), rapid.SampledFrom([]int64{1, 1, -1}).Draw(t, "sign")
			if err := sum.add(amount, sign); err != nil {
				t.Fatal(err)
			}
			n, _ := new(big.Int).SetString(amount, 10)
			want.Add(want, n.Mul(n, big.NewInt(sign)))
		}
		if sum.String() != want.String() || sum.isZero() != (want.Sign() == 0) {
			t.Fatalf("the sum is %s, want %s", sum.String(), want)
		}
	})
}

func TestSumsPastAMachineWordDoNotWrap(t *testing.T) {
	var sum total
	for range 100 {
		if err := sum.add("999999999999999999", 1); err != nil {
			t.Fatal(err)
		}
	}
	if got := sum.String(); got != "99999999999999999900" {
		t.Errorf("a hundred times 999999999999999999 is %s", got)
	}
	for range 100 {
		if err := sum.add("999999999999999999", -1); err != nil {
			t.Fatal(err)
		}
	}
	if !sum.isZero() {
		t.Errorf("taking them off again leaves %s", sum.String())
	}
}

func TestWhatIsNoAmountIsNeverSummed(t *testing.T) {
	for _, amount := range []string{"1.5", "1e3", "x", "0x10", strings.Repeat("9", 30) + "x"} {
		var sum total
		if err := sum.add(amount, 1); err == nil || !sum.isZero() {
			t.Errorf("adding %q gives %s", amount, sum.String())
		}
	}
}

func TestAmountsComeBackAsTheyWereStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := rapid.OneOf(rapid.Just(""), rapid.Just("0"), rapid.Map(rapid.Uint64(), func(n uint64) string { return new(big.Int).SetUint64(n).String() }),
			rapid.Custom(func(t *rapid.T) string { return genAmount(t, "amount") }), rapid.String()).Draw(t, "amount")
		if got := amountOf(stored(amount)); got != amount {
			t.Fatalf("%q comes back as %q", amount, got)
		}
	})
}

func TestSlotsCountFromBelow(t *testing.T) {
	for size, length := range slotSizes {
		for ms, want := range map[int64]int64{-length: -1, -1: -1, 0: 0, length - 1: 0, length: 1, -length - 1: -2} {
			if got := slotOf(ms, size); got != want {
				t.Errorf("%d ms lies in slot %d of size %d, want %d", ms, got, size, want)
			}
		}
	}
}

func TestASlotLiesInTheSlotAroundIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.OneOf(rapid.Int64(), rapid.Just(int64(noTime)), rapid.Int64Range(-1<<40, 1<<40)).Draw(t, "ms")
		k := slotKey{slot: slotOf(ms, 0)}
		for size := 1; size < len(slotSizes); size++ {
			if k = k.up(); k.slot != slotOf(ms, size) || k.size != int64(size) {
				t.Fatalf("%d ms lies in slot %d of size %d, want %d", ms, k.slot, k.size, slotOf(ms, size))
			}
		}
	})
}

func TestSlotsThatDivideADay(t *testing.T) {
	for i, length := range slotSizes {
		if dayLength%length != 0 || i > 0 && length%slotSizes[i-1] != 0 {
			t.Errorf("slots of %d ms do not make up the next larger ones and a day", length)
		}
	}
}

func TestSumsOfASlotComeBackAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var written slotSums
		for i := range written {
			p := &written[i]
			p.payments = rapid.Int64Range(0, 3).Draw(t, "payments")
			p.unreadable = rapid.Int64Range(0, p.payments).Draw(t, "unreadable")
			for _, sum := range []*total{&p.amount, &p.taken} {
				if p.payments > 0 && rapid.Bool().Draw(t, "any") {
					if err := sum.add(genAmount(t, "amount"), 1); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		var read slotSums
		if err := read.addText(written.text()); err != nil {
			t.Fatal(err)
		}
		if read.text() != written.text() || read.isZero() != written.isZero() {
			t.Fatalf("%q comes back as %q", written.text(), read.text())
		}
		if err := read.addText(written.text()); err != nil {
			t.Fatal(err)
		}
		for i := range read {
			if read[i].payments != 2*written[i].payments || read[i].unreadable != 2*written[i].unreadable {
				t.Fatalf("%q twice is %q", written.text(), read.text())
			}
		}
	})
}

func TestWhatAreNoSumsOfASlotSaysSo(t *testing.T) {
	for _, text := range []string{"x", "0", "0 1", "5 1 2", "-1 1 2", "0 1 2 3 4 5", "0 x 2", "0 1 x", "0 1 2 x", "0 1 2 0 x", "0 1 2;", ";0 1 2", "0 1 2;1"} {
		var s slotSums
		if err := s.addText(text); !errors.Is(err, ErrUnusable) {
			t.Errorf("%q is read as sums: %v", text, err)
		}
	}
}

func TestTwoSumsAtTheEdgeOfAMachineWordAddUp(t *testing.T) {
	edge := func(sign int64) (sum total) {
		left := int64(1) << 62
		for left > 0 {
			part := min(left, 999_999_999_999_999_999)
			if err := sum.add(strconv.FormatInt(part, 10), sign); err != nil {
				t.Fatal(err)
			}
			left -= part
		}
		return sum
	}
	for sign, want := range map[int64]string{1: "9223372036854775808", -1: "-9223372036854775808"} {
		a, b := edge(sign), edge(sign)
		if a.addTotal(&b); a.String() != want {
			t.Errorf("twice %s is %s, want %s", b.String(), a.String(), want)
		}
	}
}
