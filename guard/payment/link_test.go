package payment

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/ingest/event"
)

const second = 1000

// pay is a payment at ms that Link may look at.
func pay(ms int, edit ...func(*LinkPayment)) LinkPayment {
	p := LinkPayment{
		Key: event.Key{At: []byte(at(ms)), ID: []byte(fmt.Sprint("p", ms))}, AtMS: int64(hour + ms), AtOK: true,
		Resource: "https://a.example/1", Accepts: []Terms{{Payee: shop, Asset: key, Amount: "100", TimeoutMS: 60 * second}},
	}
	for _, e := range edit {
		e(&p)
	}
	return p
}

// ans is an answer at ms with an operation of its own.
func ans(ms int, edit ...func(*LinkAnswer)) LinkAnswer {
	a := LinkAnswer{
		Key: event.Key{At: []byte(at(ms)), ID: []byte(fmt.Sprint("q", ms))}, AtMS: int64(hour + ms), AtOK: true,
		Payee: shop, Asset: key, Amount: "100", Resource: "https://a.example/1", Op: fmt.Sprint("op", ms),
	}
	for _, e := range edit {
		e(&a)
	}
	return a
}

func TestLinks(t *testing.T) {
	terms := func(list ...Terms) func(*LinkPayment) { return func(p *LinkPayment) { p.Accepts = list } }
	term := func(amount string, timeout int64) Terms {
		return Terms{Payee: shop, Asset: key, Amount: amount, TimeoutMS: timeout}
	}
	answered := func(p *LinkPayment) { p.Answered = true }
	ambiguous := func(p *LinkPayment) { p.Ambiguous = true }
	timeless := func(p *LinkPayment) { p.AtOK, p.AtMS = false, 0 }
	thing := func(resource, tool string) func(*LinkPayment) {
		return func(p *LinkPayment) { p.Resource, p.Tool = resource, tool }
	}
	named := func(resource, tool string) func(*LinkAnswer) {
		return func(a *LinkAnswer) { a.Resource, a.Tool = resource, tool }
	}
	op := func(id string) func(*LinkAnswer) { return func(a *LinkAnswer) { a.Op = id } }
	for _, c := range []struct {
		what     string
		payments []LinkPayment
		answers  []LinkAnswer
		want     string // payment>answer by index
	}{
		{"one payment, one answer", []LinkPayment{pay(0)}, []LinkAnswer{ans(1)}, "0>0"},
		{"an answer without an operation", []LinkPayment{pay(0)}, []LinkAnswer{ans(1, op(""))}, "0>0"},
		{"two payments give no link", []LinkPayment{pay(0), pay(1)}, []LinkAnswer{ans(2)}, ""},
		{"an earlier answer leaves the second payment alone", []LinkPayment{pay(0), pay(2)}, []LinkAnswer{ans(1), ans(3)}, "0>0 1>1"},
		{"what could not be told once is not told by the next", []LinkPayment{pay(0), pay(1)}, []LinkAnswer{ans(2), ans(3)}, ""},
		{"an answer before the payment", []LinkPayment{pay(5)}, []LinkAnswer{ans(1)}, ""},
		{"an answered payment is not there", []LinkPayment{pay(0, answered), pay(1)}, []LinkAnswer{ans(2)}, "1>0"},
		{"a claimed one neither", []LinkPayment{pay(0)}, []LinkAnswer{ans(1), ans(2)}, "0>0"},
		{"at its timeout and a minute", []LinkPayment{pay(0)}, []LinkAnswer{ans(120 * second)}, "0>0"},
		{"a millisecond later", []LinkPayment{pay(0)}, []LinkAnswer{ans(120*second + 1)}, ""},
		{"an unknown timeout is 300 seconds", []LinkPayment{pay(0, terms(term("100", -1)))}, []LinkAnswer{ans(360 * second)}, "0>0"},
		{"and no more", []LinkPayment{pay(0, terms(term("100", -1)))}, []LinkAnswer{ans(360*second + 1)}, ""},
		{"a payment past its time does not stand in the way", []LinkPayment{pay(0), pay(100 * second)}, []LinkAnswer{ans(121 * second)}, "1>0"},
		{"another payee", []LinkPayment{pay(0)}, []LinkAnswer{ans(1, func(a *LinkAnswer) { a.Payee = other })}, ""},
		{"another asset", []LinkPayment{pay(0)}, []LinkAnswer{ans(1, func(a *LinkAnswer) { a.Asset = "eip155:137/x" })}, ""},
		{"another amount", []LinkPayment{pay(0)}, []LinkAnswer{ans(1, func(a *LinkAnswer) { a.Amount = "99" })}, ""},
		{"an amount nobody knows", []LinkPayment{pay(0, terms(term("", 0)))}, []LinkAnswer{ans(1, func(a *LinkAnswer) { a.Amount = "" })}, ""},
		{"another resource", []LinkPayment{pay(0)}, []LinkAnswer{ans(1, named("https://a.example/2", ""))}, ""},
		{"no resource and no tool", []LinkPayment{pay(0, thing("", ""))}, []LinkAnswer{ans(1, named("", ""))}, ""},
		{"one of them names no resource, but both the tool", []LinkPayment{pay(0, thing("mcp://tool/t", "t"))}, []LinkAnswer{ans(1, named("", "t"))}, "0>0"},
		{"the other way round", []LinkPayment{pay(0, thing("", "t"))}, []LinkAnswer{ans(1, named("mcp://tool/t", "t"))}, "0>0"},
		{"neither names a resource", []LinkPayment{pay(0, thing("", "t"))}, []LinkAnswer{ans(1, named("", "t"))}, "0>0"},
		{"the tool of another resource", []LinkPayment{pay(0, thing("mcp://a/t", "t"))}, []LinkAnswer{ans(1, named("mcp://b/t", "t"))}, ""},
		{"another tool of the same resource", []LinkPayment{pay(0, thing("mcp://a", "t"))}, []LinkAnswer{ans(1, named("mcp://a", "u"))}, ""},
		{"the tool is known to one side only", []LinkPayment{pay(0, thing("mcp://a", "t"))}, []LinkAnswer{ans(1, named("mcp://a", ""))}, "0>0"},
		{"two that are alike by different ways", []LinkPayment{pay(0, thing("mcp://a", "t")), pay(1, thing("", "t"))}, []LinkAnswer{ans(2, named("mcp://a", "t"))}, ""},
		{"some entry of the offer", []LinkPayment{pay(0, terms(term("7", 0), term("100", 60*second)))}, []LinkAnswer{ans(1)}, "0>0"},
		{"one offer with the entry twice is one payment", []LinkPayment{pay(0, terms(term("100", 0), term("100", 60*second)))}, []LinkAnswer{ans(1)}, "0>0"},
		{"an ambiguous payment is never claimed", []LinkPayment{pay(0, ambiguous)}, []LinkAnswer{ans(1)}, ""},
		{"and stands in the way", []LinkPayment{pay(0, ambiguous), pay(1)}, []LinkAnswer{ans(2)}, ""},
		{"a payment without a time too", []LinkPayment{pay(0, timeless), pay(1)}, []LinkAnswer{ans(2)}, ""},
		{"an ambiguous answer claims nothing", []LinkPayment{pay(0)}, []LinkAnswer{ans(1, func(a *LinkAnswer) { a.Ambiguous = true })}, ""},
		{"an answer without a time claims nothing", []LinkPayment{pay(0)}, []LinkAnswer{ans(1, func(a *LinkAnswer) { a.AtOK = false })}, ""},
		{"the second answer of an operation joins the first", []LinkPayment{pay(0), pay(2)}, []LinkAnswer{ans(1, op("x")), ans(3, op("x")), ans(4)}, "0>0 0>1 1>2"},
		{"and joins it only where it fits", []LinkPayment{pay(0), pay(2)}, []LinkAnswer{ans(1, op("x")), ans(3, op("x"), func(a *LinkAnswer) { a.Resource = "other" }), ans(200*second, op("x"))}, "0>0"},
		{"answers without an operation are strangers", []LinkPayment{pay(0), pay(2)}, []LinkAnswer{ans(1, op("")), ans(3, op(""))}, "0>0 1>1"},
		{"a claim of an earlier call", []LinkPayment{pay(0, func(p *LinkPayment) { p.Claimed = true }), pay(1)}, []LinkAnswer{ans(2)}, "1>0"},
		{"and its operation's other answer", []LinkPayment{pay(0, func(p *LinkPayment) { p.Claimed, p.ClaimedBy = true, "x" }), pay(1)}, []LinkAnswer{ans(2, op("x"))}, "0>0"},
		{"payment and answer of one key", []LinkPayment{pay(1)}, []LinkAnswer{ans(1, func(a *LinkAnswer) { a.Key = pay(1).Key })}, "0>0"},
		{"text decides the order where instants do not", []LinkPayment{pay(0, func(p *LinkPayment) { p.Key.At = []byte("2026-03-01T12:00:00.000+02:00") })}, []LinkAnswer{ans(1)}, ""},
		{"nothing", nil, []LinkAnswer{ans(1)}, ""},
	} {
		if got := pairs(Link(c.payments, c.answers)); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

func pairs(list []Pair) string {
	out := ""
	for i, p := range list {
		if i > 0 {
			out += " "
		}
		out += fmt.Sprintf("%d>%d", p.Payment, p.Answer)
	}
	return out
}

func drawLinks(t *rapid.T) (payments []LinkPayment, answers []LinkAnswer) {
	ms := rapid.IntRange(0, 40)
	rare := func(label string) bool { return rapid.IntRange(0, 9).Draw(t, label) == 0 }
	for i := range rapid.IntRange(0, 9).Draw(t, "payments") {
		p := pay(ms.Draw(t, "at") * 10 * second)
		p.Key.ID = fmt.Append(nil, "p", i)
		p.Resource = rapid.SampledFrom([]string{"r", "r", "s", ""}).Draw(t, "resource")
		p.Tool = rapid.SampledFrom([]string{"t", "t", "u", ""}).Draw(t, "tool")
		p.Accepts[0].Amount = rapid.SampledFrom([]string{"1", "1", "2"}).Draw(t, "amount")
		p.Accepts[0].TimeoutMS = rapid.SampledFrom([]int64{-1, 0, 60 * second}).Draw(t, "timeout")
		if rare("more") {
			p.Accepts = append(p.Accepts, Terms{Payee: shop, Asset: key, Amount: "3", TimeoutMS: 0})
		}
		p.Answered, p.Ambiguous = rare("answered"), rare("ambiguous")
		if rare("timeless") {
			p.AtOK, p.AtMS = false, 0
		}
		if rare("odd time") {
			// Sorts by its text, an hour off.
			p.AtMS += 3600 * second
		}
		payments = append(payments, p)
	}
	for i := range rapid.IntRange(0, 9).Draw(t, "answers") {
		a := ans(ms.Draw(t, "at") * 10 * second)
		a.Key.ID = fmt.Append(nil, "q", i)
		a.Resource = rapid.SampledFrom([]string{"r", "r", "s", ""}).Draw(t, "resource")
		a.Tool = rapid.SampledFrom([]string{"t", "t", "u", ""}).Draw(t, "tool")
		a.Amount = rapid.SampledFrom([]string{"1", "1", "2", "3"}).Draw(t, "amount")
		a.Op = rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(t, "op")
		if rare("odd time") {
			a.AtMS += 3600 * second
		}
		answers = append(answers, a)
	}
	return payments, answers
}

// plainLink is the rule of the contract written down without any index.
func plainLink(payments []LinkPayment, answers []LinkAnswer) map[int]int {
	order := make([]int, len(answers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return compareLinkAnswers(&answers[a], &answers[b]) })
	claimed, of, links := make(map[int]bool), make(map[string]int), make(map[int]int)
	for i, p := range payments {
		if p.Claimed {
			claimed[i] = true
			if p.ClaimedBy != "" {
				of[p.ClaimedBy] = i
			}
		}
	}
	for _, i := range order {
		a := &answers[i]
		if a.Ambiguous || !a.AtOK {
			continue
		}
		if p, ok := of[a.Op]; ok && a.Op != "" {
			if payments[p].fit(a) == fits {
				links[i] = p
			}
			continue
		}
		var fitting []int
		barred := false
		for j := range payments {
			if payments[j].Answered || claimed[j] {
				continue
			}
			switch payments[j].fit(a) {
			case fits:
				fitting = append(fitting, j)
			case blocks:
				barred = true
			}
		}
		if len(fitting) == 1 && !barred {
			links[i] = fitting[0]
			claimed[fitting[0]] = true
			if a.Op != "" {
				of[a.Op] = fitting[0]
			}
		}
	}
	return links
}

func asMap(list []Pair) map[int]int {
	m := make(map[int]int)
	for _, p := range list {
		m[p.Answer] = p.Payment
	}
	return m
}

func TestLinkIsThePlainRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payments, answers := drawLinks(t)
		if got, want := asMap(Link(payments, answers)), plainLink(payments, answers); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

func TestLinksDoNotDependOnTheOrderOfTheInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payments, answers := drawLinks(t)
		names := func(p []LinkPayment, a []LinkAnswer) []string {
			var out []string
			for _, pair := range Link(p, a) {
				out = append(out, string(p[pair.Payment].Key.ID)+">"+string(a[pair.Answer].Key.ID))
			}
			return out
		}
		p2 := rapid.Permutation(payments).Draw(t, "payments shuffled")
		a2 := rapid.Permutation(answers).Draw(t, "answers shuffled")
		if got, want := names(p2, a2), names(payments, answers); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// The property an index relies on: after a change at key k, the links of earlier
// answers are what they were, and walking on from k with those links kept gives
// what walking everything gives. Payments that no answer from k on can reach may
// be left out.
func TestLinkingOnFromTheEarliestChangeEqualsLinkingAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payments, answers := drawLinks(t)
		before := Link(payments, answers)

		// Something changes: a payment or an answer comes, goes, or is answered
		// after all. from is the earliest key touched.
		after, afterAnswers := slices.Clone(payments), slices.Clone(answers)
		var from event.Key
		switch change := rapid.IntRange(0, 3).Draw(t, "change"); {
		case change == 0 && len(after) > 0:
			i := rapid.IntRange(0, len(after)-1).Draw(t, "which")
			from = after[i].Key
			after[i].Answered = !after[i].Answered
		case change == 1 && len(after) > 0:
			i := rapid.IntRange(0, len(after)-1).Draw(t, "which")
			from = after[i].Key
			after = slices.Delete(after, i, i+1)
		case change == 2 && len(afterAnswers) > 0:
			i := rapid.IntRange(0, len(afterAnswers)-1).Draw(t, "which")
			from = afterAnswers[i].Key
			afterAnswers = slices.Delete(afterAnswers, i, i+1)
		default:
			a := ans(rapid.IntRange(0, 40).Draw(t, "new at") * 10 * second)
			a.Key.ID, a.Amount, a.Resource, a.Tool = []byte("new"), "1", "r", "t"
			from = a.Key
			afterAnswers = append(afterAnswers, a)
		}
		all := make(map[string]string)
		for _, p := range Link(after, afterAnswers) {
			all[string(afterAnswers[p.Answer].Key.ID)] = string(after[p.Payment].Key.ID)
		}

		// Keep the links of the answers below k.
		got := make(map[string]string)
		kept := make(map[string]string) // payment to the operation that holds it
		for _, p := range before {
			if a := answers[p.Answer]; a.Key.Compare(from) < 0 {
				got[string(a.Key.ID)] = string(payments[p.Payment].Key.ID)
				kept[string(payments[p.Payment].Key.ID)] = a.Op
			}
		}
		var rest []LinkAnswer
		first := int64(1 << 62)
		for _, a := range afterAnswers {
			if a.Key.Compare(from) >= 0 {
				rest = append(rest, a)
				first = min(first, a.AtMS)
			}
		}
		var reach []LinkPayment
		for _, p := range after {
			if op, ok := kept[string(p.Key.ID)]; ok {
				p.Claimed, p.ClaimedBy = true, op
			}
			if p.Until() >= first || p.Claimed && p.ClaimedBy != "" {
				reach = append(reach, p)
			}
		}
		for _, p := range Link(reach, rest) {
			got[string(rest[p.Answer].Key.ID)] = string(reach[p.Payment].Key.ID)
		}
		if fmt.Sprint(got) != fmt.Sprint(all) {
			t.Fatalf("from %s: %v, want %v", from.At, got, all)
		}
	})
}

func TestLinksAreLinearInARunFullOfLookAlikes(t *testing.T) {
	var payments []LinkPayment
	var answers []LinkAnswer
	for i := range 20000 {
		payments = append(payments, pay(i), pay(i))
		payments[2*i+1].Key.ID = []byte("a twin")
		answers = append(answers, ans(i, func(a *LinkAnswer) { a.Op = "" }))
	}
	if got := Link(payments, answers); len(got) != 0 {
		t.Errorf("%d links among look-alikes", len(got))
	}
	// One payment, one answer, each in its turn: claimed ones pile up.
	payments, answers = payments[:0], answers[:0]
	for i := range 20000 {
		payments, answers = append(payments, pay(2*i)), append(answers, ans(2*i+1))
	}
	if got := Link(payments, answers); len(got) != 20000 {
		t.Errorf("%d links", len(got))
	}
}

func TestLinksByTransaction(t *testing.T) {
	p := func(run string, edit ...func(*LinkPayment)) LinkPayment {
		return pay(0, append([]func(*LinkPayment){func(p *LinkPayment) { p.Run, p.Transactions = run, []string{"0x1", "0x1"} }}, edit...)...)
	}
	a := func(run string, edit ...func(*LinkAnswer)) LinkAnswer {
		return ans(999*second, append([]func(*LinkAnswer){func(a *LinkAnswer) { a.Run, a.Transaction, a.Amount = run, "0x1", "7" }}, edit...)...)
	}
	for _, c := range []struct {
		what     string
		payments []LinkPayment
		answers  []LinkAnswer
		want     string
	}{
		{"of another run, whatever amount and time", []LinkPayment{p("1")}, []LinkAnswer{a("2")}, "0>0"},
		{"not of the same run", []LinkPayment{p("1")}, []LinkAnswer{a("1")}, ""},
		{"not without a transaction", []LinkPayment{p("1")}, []LinkAnswer{a("2", func(a *LinkAnswer) { a.Transaction = "" })}, ""},
		{"not of another transaction", []LinkPayment{p("1")}, []LinkAnswer{a("2", func(a *LinkAnswer) { a.Transaction = "0x2" })}, ""},
		{"not of another payee", []LinkPayment{p("1")}, []LinkAnswer{a("2", func(a *LinkAnswer) { a.Payee = other })}, ""},
		{"not of another asset", []LinkPayment{p("1")}, []LinkAnswer{a("2", func(a *LinkAnswer) { a.Asset = "x/y" })}, ""},
		{"not of two payments", []LinkPayment{p("1"), p("3")}, []LinkAnswer{a("2")}, ""},
		{"not of an ambiguous one", []LinkPayment{p("1", func(p *LinkPayment) { p.Ambiguous = true })}, []LinkAnswer{a("2")}, ""},
		{"not by an ambiguous one", []LinkPayment{p("1")}, []LinkAnswer{a("2", func(a *LinkAnswer) { a.Ambiguous = true })}, ""},
		{"an answered payment too, so that it counts once", []LinkPayment{p("1", func(p *LinkPayment) { p.Answered = true })}, []LinkAnswer{a("2")}, "0>0"},
		{"by two answers that report one settlement", []LinkPayment{p("1")}, []LinkAnswer{a("2"), a("3")}, "0>0 0>1"},
	} {
		if got := pairs(LinkByTransaction(c.payments, c.answers)); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}
