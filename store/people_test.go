package store

import (
	"cmp"
	"math/big"
	"slices"

	"pgregory.net/rapid"

	pay "github.com/settlewatch/settlewatch/guard/payment"
)

// checkPeople compares what people's pages ask with a look at everything.
func (m *model) checkPeople(t *rapid.T, v *View, names []string, numbers []int64) {
	m.checkDays(t, v)
	m.checkOldest(t, v)
	limit := rapid.IntRange(1, 5).Draw(t, "newest")
	newest, err := v.NewestOf(numbers, limit)
	if err != nil {
		t.Fatal(err)
	}
	all := m.toldApart(func(p numbered) bool { return p.carries(names) })
	if len(newest) != min(limit, len(all)) {
		t.Fatalf("%d of %d payments of %q are the newest %d", len(newest), len(all), names, limit)
	}
	for i := range newest {
		want := all[len(all)-1-i]
		if got := (id{newest[i].Op, newest[i].N}); got != want {
			t.Fatalf("payment %d of %q is %v, want %v", i, names, got, want)
		}
	}
	for _, no := range numbers {
		pairs, err := v.PaidThrough(no, rapid.SampledFrom([]int{1, 3, 1000}).Draw(t, "rows"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pairs {
			_, want, err := v.PaidAt(p.Host, p.Payee)
			if err != nil || p.PaidThere != want || p.Host != no && p.Payee != no {
				t.Fatalf("paid through %d: %+v, want %+v, %v", no, p, want, err)
			}
		}
	}
}

func (m *model) checkDays(t *rapid.T, v *View) {
	from := rapid.SampledFrom([]int64{-10, 0, 1, 100}).Draw(t, "first day")
	got, err := v.Days(from)
	if err != nil {
		t.Fatal(err)
	}
	numbers := make([]int64, len(got))
	for i := range got {
		numbers[i] = got[i].Asset
	}
	words, err := v.Words(numbers)
	if err != nil {
		t.Fatal(err)
	}
	type key struct {
		day   int64
		asset string
		state DayState
	}
	type sum struct {
		payments, unreadable int64
		amount               big.Int
	}
	want := map[key]*sum{}
	for _, p := range m.payments() {
		r := p.rows[0]
		if !r.HasAt || dayOf(r.At) < from || dayOf(r.At) == dayOf(noTime) {
			continue
		}
		k := key{dayOf(r.At), r.Asset, DayOpen}
		switch {
		case r.Flags&pay.FlagPaired != 0:
			k.state = DaySettled
		case r.Flags&pay.FlagDefinite != 0:
			k.state = DayFailed
		}
		if want[k] == nil {
			want[k] = &sum{}
		}
		want[k].payments++
		if r.Flags&pay.FlagUnreadable != 0 {
			want[k].unreadable++
		}
		n, _ := new(big.Int).SetString("0"+r.Amount, 10)
		want[k].amount.Add(&want[k].amount, n)
	}
	if len(got) != len(want) {
		t.Fatalf("%d days, assets and states, want %d", len(got), len(want))
	}
	for _, d := range got {
		w := want[key{d.Day, words[d.Asset], d.State}]
		if w == nil || d.Payments != w.payments || d.Unreadable != w.unreadable || d.Amount != w.amount.String() {
			t.Fatalf("the sum is %+v, want %+v", d, w)
		}
	}
}

// checkOldest walks from the oldest operation on and from the newest.
func (m *model) checkOldest(t *rapid.T, v *View) {
	walk := func(f Filter) (out []int64) {
		for {
			rows, err := v.List(f, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) == 0 {
				return out
			}
			for _, r := range rows {
				out = append(out, r.No)
			}
			f.After = &rows[len(rows)-1].Position
		}
	}
	classes, err := v.Classes(0)
	if err != nil {
		t.Fatal(err)
	}
	var all []int64
	for _, c := range classes {
		all = append(all, c.No)
	}
	for _, f := range []Filter{{Limit: 3}, {Limit: 3, Classes: all}} {
		newest := walk(f)
		f.Oldest = true
		oldest := walk(f)
		slices.Reverse(oldest)
		if len(newest) != len(oldest) || slices.CompareFunc(newest, oldest, cmp.Compare[int64]) != 0 {
			t.Fatalf("from the newest %v, from the oldest %v", newest, oldest)
		}
	}
}
