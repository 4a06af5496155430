package store

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	pay "github.com/settlewatch/settlewatch/guard/payment"
)

// model is what the index is to hold, kept in the plainest way: the operations of
// each run, and the answers in no operation.
type model struct {
	runs   map[string]map[string]*Operation // by file, by key
	strays map[string][]*Operation
}

var (
	testFiles     = []string{"a", "b", "c"}
	testPayees    = []string{"", "0x1", "0x2", "0x3"}
	testHosts     = []string{"", "h.example", "i.example"}
	testAssets    = []string{"", "eip155:1/0xa", "eip155:2/0xb"}
	testResources = []string{"", "https://h.example/x", "mcp://tool/y"}
	testAmounts   = []string{"", "0", "7", "1000000", "999999999999999999", "1000000000000000000", "9223372036854775807",
		"115792089237316195423570985008687907853269984665640564039457584007913129639935", "9" + string(bytes.Repeat([]byte("1"), pay.MaxDigits-1))}
	// Around the edges of slots of each size, before 1970, and in the future.
	testTimes = []int64{-slotSizes[1] - 1, -1, 0, 1, slotSizes[0] - 1, slotSizes[0], slotSizes[0] + 1, 5 * slotSizes[0],
		5*slotSizes[0] + 10, 6*slotSizes[0] - 1, slotSizes[1] - 1, slotSizes[1], slotSizes[1] + slotSizes[0], 1 << 50, math.MaxInt64 - 1}
)

func genPayment(t *rapid.T, n int) []Payment {
	p := Payment{N: n,
		Payee: rapid.SampledFrom(testPayees).Draw(t, "payee"), Host: rapid.SampledFrom(testHosts).Draw(t, "host"),
		Resource: rapid.SampledFrom(testResources).Draw(t, "resource"), Asset: rapid.SampledFrom(testAssets).Draw(t, "asset"),
		Amount: rapid.SampledFrom(testAmounts).Draw(t, "amount"), At: rapid.SampledFrom(testTimes).Draw(t, "at"), HasAt: rapid.IntRange(0, 9).Draw(t, "has time") > 0}
	p.Flags = rapid.SampledFrom([]int{0, pay.FlagPaired, pay.FlagOpen | pay.FlagUnanswered, pay.FlagDefinite, pay.FlagPaired | pay.FlagSmaller, pay.FlagAmbiguous}).Draw(t, "flags")
	if p.Flags&pay.FlagSmaller != 0 {
		p.Settled = "3"
	}
	if p.Amount == "" || p.Asset == "" || !p.HasAt || p.Flags&pay.FlagAmbiguous != 0 {
		p.Flags |= pay.FlagUnreadable
	}
	rows := []Payment{p}
	if rapid.IntRange(0, 5).Draw(t, "several names") == 0 {
		rows[0].Flags |= pay.FlagSeveral
		for range rapid.IntRange(1, 2).Draw(t, "more") {
			q := rows[0]
			q.Flags |= pay.FlagRepeat | rapid.SampledFrom([]int{0, pay.FlagNamed}).Draw(t, "named by an answer")
			q.Payee, q.Host = rapid.SampledFrom(testPayees).Draw(t, "another payee"), rapid.SampledFrom(testHosts).Draw(t, "another host")
			rows = append(rows, q)
		}
	}
	return rows
}

func genOperation(t *rapid.T, tx *Tx, key string) *Operation {
	op := &Operation{Key: []byte(key), Settlement: rapid.IntRange(0, 5).Draw(t, "settlement"), Last: []byte{1, byte(rapid.IntRange(0, 9).Draw(t, "last"))},
		Blind: rapid.SampledFrom([]string{"", "", "version_1"}).Draw(t, "blind")}
	var after int64
	for range rapid.IntRange(1, 3).Draw(t, "events") {
		typ, err := tx.Type(Type{EventType: rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "type")})
		if err != nil {
			t.Fatal(err)
		}
		op.Spans = AppendSpan(op.Spans, Span{Offset: after + 5, Length: 10, Type: typ}, after)
		after += 15
		op.Events++
		if !slices.Contains(op.Shape, typ) {
			op.Shape = append(op.Shape, typ)
			slices.Sort(op.Shape)
		}
	}
	for n := range rapid.IntRange(0, 3).Draw(t, "payments") {
		op.Payments = append(op.Payments, genPayment(t, n)...)
	}
	names := map[string]bool{}
	for _, p := range op.Payments {
		names[p.Payee], names[p.Host] = true, true
	}
	if len(op.Payments) > 0 && rapid.Bool().Draw(t, "shows its payment") {
		p := op.Payments[0]
		op.Payee, op.Host, op.Resource, op.Asset, op.Amount = p.Payee, p.Host, p.Resource, p.Asset, p.Amount
	} else {
		op.Payee, op.Amount = rapid.SampledFrom(testPayees).Draw(t, "shown payee"), rapid.SampledFrom(testAmounts).Draw(t, "shown amount")
		op.Resource, op.Asset = rapid.SampledFrom(testResources).Draw(t, "shown resource"), rapid.SampledFrom(testAssets).Draw(t, "shown asset")
		names[op.Payee] = true
	}
	delete(names, "")
	op.Names = slices.Sorted(maps.Keys(names))
	return op
}

// step does one thing to the index and the model.
func (m *model) step(t *rapid.T, tx *Tx) error {
	file := rapid.SampledFrom(testFiles).Draw(t, "file")
	run, err := tx.Run([]byte(file))
	if err != nil {
		return err
	}
	if run == nil {
		run = &Run{File: []byte(file), FileKey: []byte(file), Key: []byte(file)}
		if err := tx.PutRun(run); err != nil {
			return err
		}
		m.runs[file], m.strays[file] = map[string]*Operation{}, nil
	}
	switch k := rapid.IntRange(0, 19).Draw(t, "what"); {
	case k == 0:
		delete(m.runs, file)
		delete(m.strays, file)
		return tx.DropRun(run.No)
	case k == 1:
		m.runs[file], m.strays[file] = map[string]*Operation{}, nil
		if err := tx.ClearRun(run.No); err != nil {
			return err
		}
		run.Operations, run.Events = 0, 0
	case k == 2:
		op := &Operation{Run: run.No}
		for n := range rapid.IntRange(0, 2).Draw(t, "payments") {
			op.Payments = append(op.Payments, genPayment(t, n)...)
		}
		s := &Stray{Run: run.No, Offset: int64(len(m.strays[file])), Length: 5}
		if err := tx.PutStray(s, op); err != nil {
			return err
		}
		m.strays[file] = append(m.strays[file], op)
	default:
		key := rapid.SampledFrom([]string{"", "op1", "op2", "0191e5b0-1111-7222-8333-444455556666", "0191E5B0-1111-7222-8333-444455556666", "0191e5b0-1111-7222-8333-44445555666f"}).Draw(t, "key")
		old, err := tx.Operation(run.No, []byte(key))
		if err != nil {
			return err
		}
		for range rapid.IntRange(1, 2).Draw(t, "times") { // the second time with what the first one gave
			op := genOperation(t, tx, key)
			op.Run = run.No
			if old == nil {
				run.Operations++
			} else {
				run.Events -= old.Events
			}
			run.Events += op.Events
			if old, err = tx.Put(op, old); err != nil {
				return err
			}
			m.runs[file][key] = op
		}
	}
	return tx.PutRun(run)
}

// numbered is a payment of the model.
type numbered struct {
	op   int64
	rows []Payment
	// Where it stands in the files; place is of a stray in its run.
	file, key string
	stray     bool
	place     int
}

func (m *model) payments() (out []numbered) {
	add := func(op *Operation, at numbered) {
		for n := 0; ; n++ {
			rows := slices.DeleteFunc(slices.Clone(op.Payments), func(p Payment) bool { return p.N != n })
			if len(rows) == 0 {
				return
			}
			at.op, at.rows = op.No, rows
			out = append(out, at)
		}
	}
	for file, ops := range m.runs {
		for key, op := range ops {
			add(op, numbered{file: file, key: key})
		}
		for i, op := range m.strays[file] {
			add(op, numbered{file: file, stray: true, place: i})
		}
	}
	return out
}

func (p numbered) carries(names []string) bool {
	return slices.ContainsFunc(p.rows, func(r Payment) bool {
		return r.Payee != "" && slices.Contains(names, r.Payee) || r.Host != "" && slices.Contains(names, r.Host)
	})
}

func (p numbered) later(since int64) bool { return !p.rows[0].HasAt || p.rows[0].At > since }

// id tells payments apart.
type id struct {
	op int64
	n  int
}

func ids(found []Paid) []id {
	out := make([]id, len(found))
	for i, p := range found {
		out[i] = id{p.Op, p.N}
	}
	return out
}

// where gives the payments of the model that are as asked, in order of time, and of
// one instant by number.
func (m *model) where(is func(numbered) bool) []id {
	return m.sorted(is, func(a, b numbered) int { return cmp.Compare(a.op, b.op) })
}

// toldApart is where, but in an order that no index has a part in.
func (m *model) toldApart(is func(numbered) bool) []id {
	return m.sorted(is, func(a, b numbered) int {
		return cmp.Or(strings.Compare(a.file, b.file), compareBool(a.stray, b.stray), strings.Compare(a.key, b.key), cmp.Compare(a.place, b.place))
	})
}

func (m *model) sorted(is func(numbered) bool, ofOneInstant func(a, b numbered) int) []id {
	all := slices.DeleteFunc(m.payments(), func(p numbered) bool { return !is(p) })
	at := func(p numbered) int64 {
		if !p.rows[0].HasAt {
			return math.MaxInt64
		}
		return p.rows[0].At
	}
	slices.SortFunc(all, func(a, b numbered) int {
		return cmp.Or(cmp.Compare(at(a), at(b)), ofOneInstant(a, b), cmp.Compare(a.rows[0].N, b.rows[0].N))
	})
	out := make([]id, len(all))
	for i, p := range all {
		out[i] = id{p.op, p.rows[0].N}
	}
	return out
}

// check asks every question and compares the answers.
func (m *model) check(t *rapid.T, v *View) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	numbers := func(words []string) []int64 {
		n, err := v.WordNumbers(words)
		must(err)
		return n
	}
	word := func(w string) int64 {
		n, err := v.Word(w)
		must(err)
		return n
	}
	same := func(what string, got, want []id) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Fatalf("%s:\ngot  %v\nwant %v", what, got, want)
		}
	}
	names := rapid.SliceOfNDistinct(rapid.SampledFrom(append(testPayees[1:], testHosts[1:]...)), 1, 4, rapid.ID).Draw(t, "names")
	since := rapid.SampledFrom(testTimes).Draw(t, "since")
	asset := rapid.SampledFrom(testAssets).Draw(t, "asset")
	assetNo := word(asset)
	if asset == "" {
		assetNo = 0
	} else if assetNo == 0 {
		assetNo = 1 << 40 // no payment is in it
	}
	resource := rapid.SampledFrom(testResources[1:]).Draw(t, "resource")

	found, err := v.PaymentsOf(numbers(names), since)
	must(err)
	same("payments of names", ids(found), m.where(func(p numbered) bool { return p.carries(names) && p.later(since) }))
	for _, p := range found {
		if !p.Carries(numbers(names)) {
			t.Fatalf("%+v carries none of the names", p)
		}
	}
	if no := word(resource); no != 0 {
		found, err = v.PaymentsFor(no, since)
		must(err)
		same("payments for a resource", ids(found), m.where(func(p numbered) bool { return p.rows[0].Resource == resource && p.later(since) }))
		found, err = v.LastSettled(no, assetNo, 3)
		must(err)
		want := m.toldApart(func(p numbered) bool {
			r := p.rows[0]
			return r.Resource == resource && r.Asset == asset && r.Flags&pay.FlagPaired != 0 && r.Flags&pay.FlagUnreadable == 0
		})
		slices.Reverse(want)
		same("settled payments for the resource", ids(found), want[:min(3, len(want))])
	}

	for _, scope := range []struct {
		what string
		Scope
		is func(p numbered) bool
	}{
		{"names", Scope{Names: numbers(names), Asset: assetNo}, func(p numbered) bool { return p.carries(names) && p.rows[0].Asset == asset }},
		{"names in any asset", Scope{Names: numbers(names), Asset: AnyAsset}, func(p numbered) bool { return p.carries(names) }},
		{"a resource", Scope{Resource: word(resource), Asset: assetNo}, func(p numbered) bool { return p.rows[0].Resource == resource && p.rows[0].Asset == asset }},
		{"a resource in any asset", Scope{Resource: word(resource), Asset: AnyAsset}, func(p numbered) bool { return p.rows[0].Resource == resource }},
		{"an asset", Scope{Asset: assetNo}, func(p numbered) bool { return p.rows[0].Asset == asset }},
		{"all", Scope{Asset: AnyAsset}, func(numbered) bool { return true }},
	} {
		if scope.what[0] == 'a' && scope.what[2] == 'r' && scope.Resource == 0 {
			continue
		}
		var got []Paid
		for p, err := range v.Leaving(scope.Scope, since) {
			must(err)
			got = append(got, p)
		}
		same("what leaves a window of "+scope.what, ids(got), m.toldApart(func(p numbered) bool { return scope.is(p) && p.rows[0].HasAt && p.rows[0].At > since }))
	}

	amount := rapid.SampledFrom(testAmounts[1:]).Draw(t, "amount")
	found, err = v.MatchingPayments(numbers(names), assetNo, amount, since)
	must(err)
	matching := m.toldApart(func(p numbered) bool {
		r := p.rows[0]
		return p.carries(names) && r.Asset == asset && r.Amount == amount && r.HasAt && r.At >= since
	})
	same("matching payments", ids(found), matching)

	found, err = v.OpenPayments(numbers(names), assetNo, amount)
	must(err)
	same("open payments", ids(found), m.where(func(p numbered) bool {
		r := p.rows[0]
		return p.carries(names) && r.Asset == asset && r.Amount == amount && r.Flags&pay.FlagOpen != 0
	}))

	m.checkMade(t, v)
	m.checkSpending(t, v, names, numbers(names), AnyAsset, "", since)
	m.checkSpending(t, v, names, numbers(names), assetNo, asset, since)
	m.checkWindow(t, v, AnyAsset, "", since)
	m.checkWindow(t, v, assetNo, asset, since)
	m.checkPaid(t, v, rapid.SampledFrom(testHosts[1:]).Draw(t, "host"), rapid.SampledFrom(testPayees[1:]).Draw(t, "payee"))
	m.checkOperations(t, v, names, numbers(names))
	m.checkPeople(t, v, names, numbers(names))

	totals, err := v.Totals()
	must(err)
	want := Totals{Runs: int64(len(m.runs)), Payments: int64(len(m.payments()))}
	for _, ops := range m.runs {
		for _, op := range ops {
			want.Operations++
			want.Events += op.Events
		}
	}
	if totals != want {
		t.Fatalf("totals are %+v, want %+v", totals, want)
	}
}

// checkMade asks what payments each operation has.
func (m *model) checkMade(t *rapid.T, v *View) {
	want := map[int64]Made{}
	for _, p := range m.payments() {
		at := int64(math.MaxInt64)
		if p.rows[0].HasAt {
			at = p.rows[0].At
		}
		made, ok := want[p.op]
		if !ok || at > made.Newest {
			made.Newest = at
		}
		made.Payments++
		want[p.op] = made
	}
	got, err := v.Made(append(slices.Collect(maps.Keys(want)), 1<<40))
	if err != nil || !maps.Equal(got, want) {
		t.Fatalf("made are %v (%v), want %v", got, err, want)
	}
}

// checkSpending asks what was spent under names, where some payments lie in the future
// and some operations are looked at one by one.
func (m *model) checkSpending(t *rapid.T, v *View, names []string, numbers []int64, assetNo int64, asset string, since int64) {
	until := rapid.SampledFrom(testTimes).Draw(t, "until")
	var except []int64
	for _, p := range m.payments() {
		if rapid.IntRange(0, 4).Draw(t, "excepted") == 0 {
			except = append(except, p.op)
		}
	}
	got, err := v.Spending(numbers, assetNo, since, until, except)
	if err != nil {
		t.Fatal(err)
	}
	stands := func(p numbered) bool {
		r := p.rows[0]
		return len(p.rows) == 1 && (assetNo == AnyAsset || r.Asset == asset) && r.Flags&(pay.FlagUnreadable|pay.FlagAmbiguous|pay.FlagSmaller) == 0 &&
			r.At <= until && !slices.Contains(except, p.op)
	}
	for _, definite := range []int{0, pay.FlagDefinite} {
		var sum big.Int
		want, part := Sum{}, got.Plain
		if definite != 0 {
			part = got.Definite
		}
		for _, p := range m.payments() {
			if p.carries(names) && p.later(since) && stands(p) && p.rows[0].Flags&pay.FlagDefinite == definite {
				want.Payments++
				if n, ok := new(big.Int).SetString(p.rows[0].Amount, 10); ok && assetNo != AnyAsset {
					sum.Add(&sum, n)
				}
			}
		}
		if want.Amount = sum.String(); part != want {
			t.Fatalf("spent under %v in %q since %d, until %d but for %v, flag %d: %+v, want %+v", names, asset, since, until, except, definite, part, want)
		}
	}
	want := m.where(func(p numbered) bool { return p.carries(names) && p.later(since) && !stands(p) })
	if !slices.Equal(ids(got.Others), want) {
		t.Fatalf("beside what was spent under %v in %q since %d, until %d but for %v: %v, want %v", names, asset, since, until, except, ids(got.Others), want)
	}
}

func (m *model) checkWindow(t *rapid.T, v *View, assetNo int64, asset string, since int64) {
	got, unknown, err := v.Window(assetNo, since)
	if err != nil {
		t.Fatal(err)
	}
	var want [3]struct {
		payments, unreadable int64
		amount, settled      big.Int
	}
	var wantUnknown int64
	for _, p := range m.payments() {
		r := p.rows[0]
		if !p.later(since) {
			continue
		}
		if assetNo != AnyAsset && r.Asset != asset {
			if r.Asset == "" {
				wantUnknown++
			}
			continue
		}
		part := &want[0]
		settled := r.Amount
		switch {
		case r.Flags&pay.FlagDefinite != 0:
			part = &want[1]
		case r.Flags&pay.FlagSmaller != 0:
			part, settled = &want[2], r.Settled
		}
		part.payments++
		if r.Flags&pay.FlagUnreadable != 0 {
			part.unreadable++
		}
		if assetNo != AnyAsset {
			n, _ := new(big.Int).SetString("0"+r.Amount, 10)
			part.amount.Add(&part.amount, n)
			n, _ = new(big.Int).SetString("0"+settled, 10)
			part.settled.Add(&part.settled, n)
		}
	}
	if unknown != wantUnknown {
		t.Fatalf("beside the window of %q since %d are %d payments in unreadable assets, want %d", asset, since, unknown, wantUnknown)
	}
	for i, g := range []Part{got.Plain, got.Definite, got.Smaller} {
		w := Part{want[i].payments, want[i].unreadable, want[i].amount.String(), want[i].settled.String()}
		if g != w {
			t.Fatalf("part %d of the window of %q since %d is %+v, want %+v", i, asset, since, g, w)
		}
	}
}

func (m *model) checkPaid(t *rapid.T, v *View, host, payee string) {
	hostNo, err := v.Word(host)
	if err != nil {
		t.Fatal(err)
	}
	payeeNo, err := v.Word(payee)
	if err != nil {
		t.Fatal(err)
	}
	if hostNo == 0 {
		return
	}
	if payeeNo == 0 {
		payeeNo = 1 << 40
	}
	atHost, there, err := v.PaidAt(hostNo, payeeNo)
	if err != nil {
		t.Fatal(err)
	}
	var wantHost, wantThere PaidThere
	for _, p := range m.payments() {
		count := func(c *PaidThere) {
			switch f := p.rows[0].Flags; {
			case f&pay.FlagAmbiguous != 0:
				c.Ambiguous++
			case f&pay.FlagPaired != 0:
				c.Settled++
			case f&pay.FlagDefinite != 0:
				c.Failed++
			default:
				c.Open++
			}
		}
		if !slices.ContainsFunc(p.rows, func(r Payment) bool { return r.Host == host }) {
			continue
		}
		count(&wantHost)
		for _, r := range p.rows {
			switch {
			case r.Host != host || r.Payee != payee:
			case r.Flags&pay.FlagNamed != 0:
				wantThere.Ambiguous++
			default:
				count(&wantThere)
			}
		}
	}
	if atHost != wantHost || there != wantThere {
		t.Fatalf("paid at %s %+v and %s there %+v, want %+v and %+v", host, atHost, payee, there, wantHost, wantThere)
	}
	last, err := v.LastPaid(hostNo, 2)
	if err != nil {
		t.Fatal(err)
	}
	newest := m.toldApart(func(p numbered) bool {
		return slices.ContainsFunc(p.rows, func(r Payment) bool { return r.Host == host })
	})
	slices.Reverse(newest)
	var want, got []int64
	for _, p := range newest {
		if !slices.Contains(want, p.op) && len(want) < 2 {
			want = append(want, p.op)
		}
	}
	for _, p := range last {
		got = append(got, p.Op)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the last operations that paid %s are %v, want %v", host, got, want)
	}
}

func (m *model) checkOperations(t *rapid.T, v *View, names []string, numbers []int64) {
	classes, err := v.Classes(0)
	if err != nil {
		t.Fatal(err)
	}
	type kind struct {
		settlement int
		shape      string
		blind      bool
	}
	byNo := map[int64]Class{}
	for _, c := range classes {
		byNo[c.No] = c
	}
	want := map[kind]int64{}
	var ops []*Operation
	for _, all := range m.runs {
		for _, op := range all {
			ops = append(ops, op)
			if slices.ContainsFunc(op.Names, func(n string) bool { return slices.Contains(names, n) }) {
				want[kind{op.Settlement, fmt.Sprint(op.Shape), op.Blind != ""}]++
			}
		}
	}
	history, err := v.HistoryOf(numbers)
	if err != nil {
		t.Fatal(err)
	}
	got := map[kind]int64{}
	for _, h := range history {
		got[kind{byNo[h.Class].Settlement, fmt.Sprint(byNo[h.Class].Shape), h.Blind}] += h.N
	}
	if !maps.Equal(got, want) {
		t.Fatalf("history of %v is %v, want %v", names, got, want)
	}

	// Operations of the classes with an even settlement number.
	var open []int64
	for _, c := range classes {
		if c.Settlement%2 == 0 {
			open = append(open, c.No)
		}
	}
	for _, all := range []bool{true, false} {
		asked := numbers
		if all {
			asked = nil
		}
		wanted := map[int64]bool{}
		for _, op := range ops {
			if op.Settlement%2 == 0 && (all || slices.ContainsFunc(op.Names, func(n string) bool { return slices.Contains(names, n) })) {
				wanted[op.No] = op.Blind != ""
			}
		}
		var found map[int64]bool
		for _, atMost := range []int{0, len(wanted), len(wanted) + 1} {
			found = map[int64]bool{}
			var before *Position
			passed := map[int64]bool{}
			for no := range wanted {
				passed[no] = atMost > 0 && rapid.Bool().Draw(t, "passed over")
			}
			for o, err := range v.OpenOf(asked, open, atMost, func(op int64) bool { return passed[op] }) {
				if err != nil {
					t.Fatal(err)
				}
				if passed[o.No] {
					t.Fatalf("operation %d was to be passed over", o.No)
				}
				if before != nil && before.Compare(o.Position) >= 0 {
					t.Fatalf("open operations do not come newest first: %v before %v", before, o.Position)
				}
				before = &o.Position
				found[o.No] = o.Blind
				op := ops[slices.IndexFunc(ops, func(op *Operation) bool { return op.No == o.No })]
				if o.End != 15*op.Events || !bytes.Equal(o.Op, op.Key) || o.Run != op.Run {
					t.Fatalf("%+v is not %+v", o, op)
				}
			}
			left := maps.Clone(wanted)
			maps.DeleteFunc(left, func(op int64, _ bool) bool { return passed[op] })
			if !maps.Equal(found, left) {
				t.Fatalf("open are %v, want %v", found, left)
			}
		}
		again, err := v.OperationsNewestFirst(slices.Collect(maps.Keys(found)))
		if err != nil || len(again) != len(found) {
			t.Fatalf("%d of %d operations by number: %v", len(again), len(found), err)
		}
		for i := range again {
			if i > 0 && again[i-1].Compare(again[i].Position) >= 0 {
				t.Fatalf("operations by number do not come newest first: %v before %v", again[i-1].Position, again[i].Position)
			}
			if op := ops[slices.IndexFunc(ops, func(op *Operation) bool { return op.No == again[i].No })]; again[i].End != 15*op.Events || !bytes.Equal(again[i].Op, op.Key) {
				t.Fatalf("%+v is not %+v", again[i], op)
			}
		}
	}

	// By number and back.
	var refs []OperationRef
	var nos []int64
	for _, op := range ops {
		nos = append(nos, op.No)
	}
	byOp, err := v.OperationRefs(nos)
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		r := byOp[op.No]
		if !bytes.Equal(r.Op, op.Key) {
			t.Fatalf("operation %d is %q, want %q", op.No, r.Op, op.Key)
		}
		refs = append(refs, r)
	}
	back, err := v.OperationsByRef(append(refs, OperationRef{Run: []byte("nowhere"), Op: []byte("op1")}))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(back, append(nos, 0)) {
		t.Fatalf("by their ids operations are %v, want %v", back, nos)
	}
	details, err := v.Details(nos)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range details {
		op := ops[slices.IndexFunc(ops, func(op *Operation) bool { return op.No == d.No })]
		for what, pair := range map[string][2]string{
			"payee": {deref(d.Payee), op.Payee}, "host": {deref(d.Host), op.Host}, "resource": {deref(d.Resource), op.Resource},
			"asset": {deref(d.Asset), op.Asset}, "amount": {deref(d.Amount), op.Amount}, "key": {string(d.Key), string(op.Key)},
		} {
			if pair[0] != pair[1] {
				t.Fatalf("the %s of operation %d is %q, want %q", what, d.No, pair[0], pair[1])
			}
		}
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func dumpOf(t *rapid.T, x *Index) (out []string) {
	if err := x.Read(context.Background(), func(v *View) error {
		return v.Dump(func(_ int, s string) error {
			out = append(out, s)
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// Whatever is written, changed, cleared and removed, by two handles in turn, every
// question is answered as by a look at everything; and an index filled at once says
// the same.
func TestEveryQuestionIsAnsweredAsByALookAtEverything(t *testing.T) {
	ctx := context.Background()
	fresh := open(t)
	handles := [2]*Index{open(t)}
	var err error
	if handles[1], err = Open(ctx, handles[0].Path()); err != nil {
		t.Fatal(err)
	}
	defer handles[1].Close()
	rapid.Check(t, func(t *rapid.T) {
		for _, x := range []*Index{handles[rapid.IntRange(0, 1).Draw(t, "who clears")], fresh} {
			if err := x.Write(ctx, (*Tx).Clear); err != nil {
				t.Fatal(err)
			}
		}
		m := &model{runs: map[string]map[string]*Operation{}, strays: map[string][]*Operation{}}
		for range rapid.IntRange(1, 4).Draw(t, "transactions") {
			x := handles[rapid.IntRange(0, 1).Draw(t, "handle")]
			if err := x.Write(ctx, func(tx *Tx) error {
				for range rapid.IntRange(1, 6).Draw(t, "steps") {
					if err := m.step(t, tx); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if err := handles[rapid.IntRange(0, 1).Draw(t, "reader")].Read(ctx, func(v *View) error {
				m.check(t, v)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		have := dumpOf(t, handles[0])
		m.fill(t, fresh, handles[0])
		if want := dumpOf(t, fresh); !slices.Equal(have, want) {
			for _, s := range have {
				if !slices.Contains(want, s) {
					t.Errorf("only in the index that changed: %s", s)
				}
			}
			for _, s := range want {
				if !slices.Contains(have, s) {
					t.Errorf("only in the one filled at once: %s", s)
				}
			}
		}
	})
}

// fill writes the model into an empty index, at once. Type numbers are those of the
// other index.
func (m *model) fill(t *rapid.T, x, other *Index) {
	var types map[int64]Type
	var runs []Run
	if err := other.Read(context.Background(), func(v *View) (err error) {
		if types, err = v.Types(0); err != nil {
			return err
		}
		runs, err = v.Runs()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := x.Write(context.Background(), func(tx *Tx) error {
		if err := tx.Fill(); err != nil {
			return err
		}
		for _, file := range slices.Backward(slices.Sorted(maps.Keys(m.runs))) {
			run := runs[slices.IndexFunc(runs, func(r Run) bool { return string(r.File) == file })]
			run.No = 0
			if err := tx.PutRun(&run); err != nil {
				return err
			}
			for _, op := range m.runs[file] {
				again := *op
				again.Run, again.Shape, again.Spans = run.No, nil, nil
				spans, _ := Spans(op.Spans)
				var after int64
				for _, s := range spans {
					typ, err := tx.Type(types[s.Type])
					if err != nil {
						return err
					}
					s.Type = typ
					again.Spans = AppendSpan(again.Spans, s, after)
					after = s.Offset + s.Length
					if !slices.Contains(again.Shape, typ) {
						again.Shape = append(again.Shape, typ)
						slices.Sort(again.Shape)
					}
				}
				if _, err := tx.Put(&again, nil); err != nil {
					return err
				}
			}
			for i, op := range m.strays[file] {
				again := *op
				if err := tx.PutStray(&Stray{Run: run.No, Offset: int64(i), Length: 5}, &again); err != nil {
					return err
				}
			}
		}
		return tx.Filled()
	}); err != nil {
		t.Fatal(err)
	}
}
