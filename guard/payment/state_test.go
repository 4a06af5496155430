package payment

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest/event"
)

// at is a time of day in the tests' one hour: milliseconds after its start.
func at(ms int) string {
	return fmt.Sprintf("2026-03-01T10:%02d:%02d.%03dZ", ms/60000, ms/1000%60, ms%1000)
}

const hour = 1772359200000 // 2026-03-01T10:00:00Z

// line is an event's line at ms; its id is its time unless the type says
// "type#id".
func line(ms int, typ, role, payload string) string {
	typ, id, _ := strings.Cut(typ, "#")
	if id == "" {
		id = fmt.Sprint("e", ms)
	}
	if role != "" {
		role = fmt.Sprintf(`"role":%q,`, role)
	}
	return fmt.Sprintf(`{"event_id":%q,"event_type":%q,"occurred_at":%q,"context_id":"op","seq":0,"adapter":"x",%s"payload":%s}`, id, typ, at(ms), role, payload)
}

func buyer(ms int, typ, payload string) string { return line(ms, "x402."+typ, "client", payload) }

func project(t testing.TB, line string) (Fact, bool) {
	t.Helper()
	var doc jsjson.Doc
	e, fault := event.Decode(&doc, []byte(line))
	if fault != "" {
		t.Fatalf("%s: %s", fault, line)
	}
	return Project(e, nil)
}

func state(t testing.TB, lines ...string) *State {
	t.Helper()
	var s State
	for _, l := range lines {
		if f, ok := project(t, l); ok {
			s.Add(f)
		}
	}
	return &s
}

func summary(t testing.TB, lines ...string) Summary {
	t.Helper()
	return state(t, lines...).Summary(Outside{})
}

const (
	shop  = "0x1111111111111111111111111111111111111111"
	other = "0x2222222222222222222222222222222222222222"
	usdc  = "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"
	key   = "eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
)

// req is a requirements object; edits replace members ("name", "json").
func req(amount string, edits ...string) string {
	m := map[string]json.RawMessage{
		"scheme": json.RawMessage(`"exact"`), "network": json.RawMessage(`"eip155:8453"`), "asset": json.RawMessage(`"` + usdc + `"`),
		"pay_to": json.RawMessage(`"` + shop + `"`), "amount": json.RawMessage(`"` + amount + `"`), "max_timeout_seconds": json.RawMessage(`60`),
	}
	for i := 0; i < len(edits); i += 2 {
		if edits[i+1] == "" {
			delete(m, edits[i])
		} else {
			m[edits[i]] = json.RawMessage(edits[i+1])
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// facts is a payload: requirements, the usual resource and whatever follows.
func facts(requirements string, more ...string) string {
	return `{"x402_version":2,"resource":{"url":"https://api.shop.example/data"},"requirements":` + requirements + strings.Join(append([]string{""}, more...), ",") + `}`
}

func offer(entries ...string) string {
	return `{"x402_version":2,"error":"Payment required","resource":{"url":"https://api.shop.example/data"},"accepts":[` + strings.Join(entries, ",") + `]}`
}

func call(entries ...string) string {
	return `{"x402_version":2,"resource":{"url":"mcp://tool/t"},"tool_name":"t","accepts":[` + strings.Join(entries, ",") + `]}`
}

func settle(success bool, tx string, more ...string) string {
	return fmt.Sprintf(`"settle":{"success":%v,"transaction":%q,"network":"eip155:8453"%s}`, success, tx, strings.Join(append([]string{""}, more...), ","))
}

// spent writes what an operation counts: amounts in order, with a question mark
// for one that cannot be read, and an s behind one that was settled.
func spent(s Summary) string {
	var out []string
	for _, p := range s.Payments {
		a := p.Amount
		if a == "" {
			a = "?"
		}
		if p.Paired {
			a += "s"
		}
		if p.Status == SettledAlone {
			a += "(alone)"
		}
		out = append(out, a)
	}
	return strings.Join(out, " ")
}

func TestSpentOfOneOperation(t *testing.T) {
	submitted := func(ms int, r string) string { return buyer(ms, "payment.submitted", facts(r)) }
	responded := func(ms int, r, tx string, more ...string) string {
		return buyer(ms, "payment.responded", facts(r, settle(true, tx, more...)))
	}
	upto := func(amount string) string { return req(amount, "scheme", `"upto"`) }
	for _, c := range []struct {
		what  string
		lines []string
		want  string
	}{
		{"an offer is no payment", []string{buyer(0, "payment.required", offer(req("100")))}, ""},
		{"nor is one that was only being created", []string{buyer(0, "payment.creating", facts(req("100")))}, ""},
		{"a signed payment counts, answered or not", []string{submitted(0, req("100"))}, "100"},
		{"a settlement pairs with it", []string{submitted(0, req("100")), responded(1, req("100"), "0x1")}, "100s"},
		{"every signed payment is one", []string{submitted(0, req("100")), submitted(1, req("100")), submitted(2, req("7", "network", `"eip155:137"`))}, "100 100 7"},
		{"a settlement pairs with the earliest", []string{submitted(0, req("100")), submitted(1, req("100")), responded(2, req("100"), "0x1")}, "100s 100"},
		{"whose amount is not below it", []string{submitted(0, req("100")), submitted(1, req("300")), responded(2, req("300"), "0x1")}, "100 300s"},
		{"of the same asset", []string{submitted(0, req("100", "asset", `"`+other+`"`)), submitted(1, req("100")), responded(2, req("100"), "0x1")}, "100 100s"},
		{"of the same network", []string{submitted(0, req("100", "network", `"eip155:137"`)), responded(2, req("100"), "0x1")}, "100 100s(alone)"},
		{"two settlements pair with two", []string{submitted(0, req("100")), submitted(1, req("100")), responded(2, req("100"), "0x1"), responded(3, req("100"), "0x2")}, "100s 100s"},
		{"one settlement told twice pairs once", []string{submitted(0, req("100")), submitted(1, req("100")), responded(2, req("100"), "0xAB"), responded(3, req("100"), "0xab")}, "100s 100"},
		{"without a transaction every event is a settlement", []string{submitted(0, req("100")), submitted(1, req("100")), responded(2, req("100"), ""), responded(3, req("100"), "")}, "100s 100s"},
		{"one more settlement than payments counts as its own", []string{submitted(0, req("100")), responded(2, req("100"), "0x1"), responded(3, req("100"), "0x2")}, "100s 100s(alone)"},
		{"a settlement above every payment counts as its own", []string{submitted(0, req("100")), responded(2, req("500"), "0x1")}, "100 500s(alone)"},
		{"the word and the id of a network are one", []string{submitted(0, req("100", "network", `"base"`)), responded(1, req("100"), "0x1")}, "100s"},
		{"addresses are case-blind", []string{submitted(0, req("100", "asset", `"`+strings.ToUpper(usdc)+`"`)), responded(1, req("100"), "0x1")}, "100s"},
		{"a smaller taken amount does not count less", []string{submitted(0, upto("100")), responded(1, upto("100"), "0x1", `"amount":"30"`)}, "100s"},
		{"nothing taken at all neither", []string{submitted(0, upto("100")), responded(1, upto("100"), "0x1", `"amount":"0"`)}, "100s"},
		{"an unpaired one counts the larger of both", []string{responded(1, upto("100"), "0x1", `"amount":"30"`)}, "100s(alone)"},
		{"more than uint256", []string{submitted(0, req("9"+strings.Repeat("0", 90))), responded(1, req("9"+strings.Repeat("0", 90)), "0x1")}, "9" + strings.Repeat("0", 90) + "s"},
		{"a failure takes nothing away", []string{submitted(0, req("100")), buyer(1, "settle.failed", facts(req("100"), settle(false, "")))}, "100"},
		{"an unsuccessful answer is no settlement", []string{submitted(0, req("100")), buyer(1, "payment.responded", facts(req("100"), settle(false, "0x1")))}, "100"},
		{"an answer without settle neither", []string{submitted(0, req("100")), buyer(1, "payment.responded", facts(req("100")))}, "100"},
		{"success as text is none", []string{submitted(0, req("100")), buyer(1, "payment.responded", facts(req("100"), `"settle":{"success":"true","transaction":"0x1"}`))}, "100"},
		{"success as a number is none", []string{submitted(0, req("100")), buyer(1, "payment.responded", facts(req("100"), `"settle":{"success":1,"transaction":"0x1"}`))}, "100"},
		{"a settlement on a network nobody asked for", []string{submitted(0, req("100")), buyer(1, "payment.responded", facts(req("100"), `"settle":{"success":true,"transaction":"0x1","network":"eip155:137"}`))}, "100 100s(alone)"},
		{"a failure that says success may have taken money", []string{buyer(1, "settle.failed", facts(req("100"), settle(true, "0x1")))}, "100s(alone)"},
		{"what the seller recorded is not our spending", []string{line(0, "x402.payment.submitted", "server", facts(req("100"))), line(1, "x402.settle.ok", "server", facts(req("100"), settle(true, "0x1")))}, ""},
		{"nor what nobody in particular recorded", []string{line(0, "x402.payment.submitted", "", facts(req("100")))}, ""},
		{"another case of the role is another role", []string{line(0, "x402.payment.submitted", "Client", facts(req("100")))}, ""},
		{"an answer of the seller settles nothing here", []string{submitted(0, req("100")), line(1, "x402.payment.responded", "server", facts(req("100"), settle(true, "0x1")))}, "100"},

		{"an amount that is a number cannot be read", []string{submitted(0, req("", "amount", `100`))}, "?"},
		{"an amount that is missing", []string{submitted(0, req("", "amount", ``))}, "?"},
		{"an amount that is empty", []string{submitted(0, req(""))}, "?"},
		{"an amount that is null", []string{submitted(0, req("", "amount", `null`))}, "?"},
		{"an amount with a sign", []string{submitted(0, req("-5"))}, "?"},
		{"an amount with a fraction", []string{submitted(0, req("1.5"))}, "?"},
		{"an amount beyond every size", []string{submitted(0, req(strings.Repeat("9", 2000)))}, "?"},
		{"a settlement does not pair with an amount that cannot be read", []string{submitted(0, req("x")), responded(1, req("100"), "0x1")}, "? 100s(alone)"},
		{"a taken amount that cannot be read pairs with nothing", []string{submitted(0, req("100")), responded(1, req("100"), "0x1", `"amount":100`)}, "100 ?s(alone)"},
		{"an empty taken amount is absent", []string{submitted(0, req("100")), responded(1, req("100"), "0x1", `"amount":""`)}, "100s"},
		{"a null taken amount too", []string{submitted(0, req("100")), responded(1, req("100"), "0x1", `"amount":null`)}, "100s"},
		{"requirements that are no object", []string{submitted(0, `["x"]`)}, "?"},
		{"requirements that are null", []string{submitted(0, `null`)}, "?"},
		{"no payload at all", []string{buyer(0, "payment.submitted", `null`)}, "?"},
		{"a payload that is text", []string{buyer(0, "payment.submitted", `"x"`)}, "?"},
		{"an answer without requirements", []string{buyer(0, "payment.responded", `{"settle":{"success":true}}`)}, "?s(alone)"},
		{"version 1 has no amount", []string{
			buyer(0, "payment.required", `{"x402_version":1,"accepts":[`+req("", "amount", "")+`]}`),
			buyer(1, "payment.creating", `{"x402_version":1,"requirements":`+req("", "amount", "", "network", `"base"`)+`}`),
			buyer(2, "payment.submitted", `{"x402_version":1}`),
		}, "?"},
		{"version 1 borrows no amount either", []string{
			buyer(1, "payment.creating", `{"x402_version":1,"requirements":`+req("100")+`}`), buyer(2, "payment.submitted", `{"x402_version":1}`),
		}, "?"},

		{"a tool call counts the largest entry", []string{buyer(0, "payment.requested", call(req("100"), req("300"), req("200")))}, "300"},
		{"of one payee only", []string{buyer(0, "payment.requested", call(req("100"), req("300", "pay_to", `"`+other+`"`)))}, "?"},
		{"and one asset only", []string{buyer(0, "payment.requested", call(req("100"), req("300", "network", `"eip155:137"`)))}, "?"},
		{"and when all can be read", []string{buyer(0, "payment.requested", call(req("100"), req("x")))}, "?"},
		{"an entry that is no object spoils it", []string{buyer(0, "payment.requested", call(req("100"), `null`))}, "?"},
		{"an empty offer", []string{buyer(0, "payment.requested", call())}, "?"},
		{"no offer", []string{buyer(0, "payment.requested", `{"tool_name":"t"}`)}, "?"},
		{"an offer that is an object", []string{buyer(0, "payment.requested", `{"accepts":{"0":`+req("100")+`}}`)}, "?"},
		{"its answer supplies the amount", []string{buyer(0, "payment.requested", call(req("100"), req("300"))), responded(1, req("100"), "0x1")}, "100s"},
		{"and the network", []string{buyer(0, "payment.requested", call(req("100", "network", `"eip155:137"`), req("300"))), responded(1, req("300"), "0x1")}, "300s"},
		{"a failed answer too", []string{buyer(0, "payment.requested", call(req("100"), req("300"))), buyer(1, "payment.failed", facts(req("100")))}, "100"},
		{"an answer on terms that were not offered counts the largest of its asset", []string{buyer(0, "payment.requested", call(req("100"), req("300"))), responded(1, req("200"), "0x1")}, "300s"},
		{"an answer above every entry is a payment of its own", []string{buyer(0, "payment.requested", call(req("100"), req("300"))), responded(1, req("400"), "0x1")}, "300 400s(alone)"},
		{"a signed payment comes before a requested one", []string{buyer(0, "payment.requested", call(req("100"), req("300"))), submitted(1, req("100"))}, "100"},
		{"two calls, two answers", []string{
			buyer(0, "payment.requested", call(req("100"))), buyer(1, "payment.requested", call(req("300"))),
			responded(2, req("300"), "0x1"), responded(3, req("100"), "0x2"),
		}, "100s 300s"},
	} {
		if got := spent(summary(t, c.lines...)); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

func TestAPaymentSaysWhoWhatAndWhen(t *testing.T) {
	s := summary(t,
		buyer(1000, "payment.required", offer(req("100"), req("100", "network", `"solana"`, "pay_to", `"SoLPayee1111111111111111111111111"`))),
		buyer(2000, "payment.submitted", facts(req("100", "scheme", `"upto"`, "pay_to", `"0x1111111111111111111111111111111111111111"`))),
		buyer(3000, "payment.responded", facts(req("100", "scheme", `"upto"`), settle(true, "0xAB", `"amount":"30"`))),
	)
	want := Payment{
		Status: SubmittedPayment, Key: event.Key{At: []byte(at(2000)), ID: []byte("e2000")}, AtMS: hour + 2000, AtOK: true,
		Terms:  Terms{Payee: shop, Network: "eip155:8453", Asset: key, Scheme: "upto", Amount: "100", TimeoutMS: 60000, NetworkKnown: true},
		Payees: []string{shop}, Hosts: []string{"api.shop.example"}, Host: "api.shop.example", Resource: "https://api.shop.example/data",
		Settled: "30", Transaction: "0xab", Paired: true, Answered: true, answeredBy: settled,
	}
	if diff := cmp.Diff([]Payment{want}, s.Payments, cmp.AllowUnexported(Payment{})); diff != "" {
		t.Error(diff)
	}
	if !s.Payments[0].Readable() {
		t.Error("the payment cannot be summed")
	}
	if got := []string{s.Payee, s.Host, s.Resource, s.Asset, s.Amount}; !slices.Equal(got, []string{shop, "api.shop.example", "https://api.shop.example/data", key, "100"}) {
		t.Errorf("display %q", got)
	}
	// The offer that was not taken up names nobody.
	if !slices.Equal(s.Names, []string{shop, "api.shop.example"}) {
		t.Errorf("names %q", s.Names)
	}
	if !slices.Equal(s.Transactions, []string{"0xab"}) || len(s.Offers) > 0 || len(s.Answers) > 0 {
		t.Errorf("transactions %q, offers %v, answers %v", s.Transactions, s.Offers, s.Answers)
	}
	if s.Side != Client || !s.MoneyStage || s.Open || s.Settlement != WordSettled {
		t.Errorf("side %d, money %v, open %v, %s", s.Side, s.MoneyStage, s.Open, s.Settlement)
	}
}

func TestASmallerSettledAmountNeedsOneScheme(t *testing.T) {
	s := summary(t,
		buyer(0, "payment.submitted", facts(req("100"))),
		buyer(1, "payment.responded", facts(req("100", "scheme", `"upto"`), settle(true, "0x1", `"amount":"30"`))))
	if p := s.Payments[0]; p.Scheme != "" || p.Amount != "100" || p.Settled != "30" {
		t.Errorf("%+v", p)
	}
}

func TestAPaymentCountsWithWhomItsSettlementNames(t *testing.T) {
	signed := buyer(0, "payment.submitted", facts(req("100")))
	report := func(ms int, terms, host string) string {
		return strings.Replace(buyer(ms, "payment.responded", facts(terms, settle(true, "0x1"))), "api.shop.example", host, 1)
	}
	another := []string{"pay_to", `"` + other + `"`}
	for _, c := range []struct {
		what          string
		lines         []string
		payees, hosts []string
	}{
		{"the same", []string{signed, report(1, req("100"), "api.shop.example")}, []string{shop}, []string{"api.shop.example"}},
		{"another payee and host", []string{signed, report(1, req("100", another...), "other.example")}, []string{shop, other}, []string{"api.shop.example", "other.example"}},
		{"another payee in the second report", []string{signed, report(1, req("100"), "api.shop.example"), report(2, req("100", another...), "api.shop.example")}, []string{shop, other}, []string{"api.shop.example"}},
		{"a payee the payment does not name", []string{buyer(0, "payment.submitted", facts(req("100", "pay_to", ""))), report(1, req("100"), "api.shop.example")}, []string{shop}, []string{"api.shop.example"}},
		{"an unpaired settlement names itself", []string{signed, report(1, req("101", another...), "other.example")}, []string{shop}, []string{"api.shop.example"}},
	} {
		s := summary(t, c.lines...)
		if p := s.Payments[0]; !slices.Equal(p.Payees, c.payees) || !slices.Equal(p.Hosts, c.hosts) {
			t.Errorf("%s: payees %q, hosts %q", c.what, p.Payees, p.Hosts)
		}
	}
}

func TestTimesOfPayments(t *testing.T) {
	for _, c := range []struct {
		what, at string
		ms       int64
		ok       bool
	}{
		{"canonical", "2026-03-01T10:00:01.000Z", hour + 1000, true},
		{"with an offset", "2026-03-01T12:00:01+02:00", hour + 1000, true},
		{"no time", "yesterday", 0, false},
		{"empty", "", 0, false},
		{"no such day", "2026-02-30T10:00:00.000Z", 0, false},
	} {
		s := summary(t, strings.Replace(buyer(0, "payment.submitted", facts(req("1"))), at(0), c.at, 1))
		if p := s.Payments[0]; p.AtOK != c.ok || p.AtMS != c.ms || p.Readable() != c.ok {
			t.Errorf("%s: %d, %v", c.what, p.AtMS, p.AtOK)
		}
	}
}

func TestVersion1BorrowsWhatLeavesNoDoubt(t *testing.T) {
	v1 := func(ms int, typ, body string) string { return buyer(ms, typ, `{"x402_version":1`+body+`}`) }
	submitted := v1(9, "payment.submitted", "")
	entry := func(edits ...string) string {
		return req("", append([]string{"amount", "", "network", `"base"`}, edits...)...)
	}
	for _, c := range []struct {
		what               string
		lines              []string
		payee, asset, hold string
	}{
		{"from creating", []string{v1(0, "payment.required", `,"accepts":[`+entry("pay_to", `"`+other+`"`)+`]`), v1(1, "payment.creating", `,"requirements":`+entry())}, shop, key, shop},
		{"else from the offer", []string{v1(0, "payment.required", `,"accepts":[`+entry()+`,`+entry()+`]`)}, shop, key, shop},
		{"not when payees differ", []string{v1(0, "payment.required", `,"accepts":[`+entry()+`,`+entry("pay_to", `"`+other+`"`)+`]`)}, "", key, shop + " " + other},
		{"not when assets differ", []string{v1(0, "payment.required", `,"accepts":[`+entry()+`,`+entry("asset", `"X"`)+`]`)}, shop, "", shop},
		{"from nothing", nil, "", "", ""},
	} {
		s := summary(t, append(c.lines, submitted)...)
		p := s.Payments[0]
		if p.Payee != c.payee || p.Asset != c.asset || strings.Join(p.Payees, " ") != c.hold || p.Amount != "" || !p.Version1 || p.Readable() {
			t.Errorf("%s: %+v", c.what, p)
		}
		if s.Blind != BlindVersion1 || !s.Open {
			t.Errorf("%s: blind %q, open %v", c.what, s.Blind, s.Open)
		}
	}
}

func TestSettlementStates(t *testing.T) {
	submitted := buyer(1000, "payment.submitted", facts(req("100")))
	again := buyer(3000, "payment.submitted", facts(req("100")))
	ok := func(ms int) string {
		return buyer(ms, "payment.responded", facts(req("100"), settle(true, fmt.Sprint("0x", ms))))
	}
	no := func(ms int, reason string) string {
		return buyer(ms, "settle.failed", facts(req("100"), settle(false, "", `"error_reason":"`+reason+`"`)))
	}
	decline := func(ms int) string { return no(ms, "insufficient_funds") }
	unproven := func(ms int) string { return buyer(ms, "payment.responded", facts(req("100"), settle(false, ""))) }
	for _, c := range []struct {
		what     string
		lines    []string
		now      int
		word     string
		open     bool
		definite bool
	}{
		{"an offer", []string{buyer(0, "payment.required", offer(req("100")))}, 2000, WordNone, false, false},
		{"a payment that was not signed", []string{buyer(0, "payment.creating", facts(req("100"))), buyer(1, "payment.creation_failed", facts(req("100"), `"error":{"name":"E","message":"m"}`))}, 2000, WordNone, false, false},
		{"a young payment", []string{submitted}, 60999, WordPending, true, false},
		{"at its timeout it is unknown", []string{submitted}, 61000, WordUnknown, true, false},
		{"the clock may be behind the payment", []string{submitted}, 0, WordPending, true, false},
		{"of two payments the older decides", []string{submitted, again}, 61000, WordUnknown, true, false},
		{"without a timeout nothing is pending", []string{buyer(0, "payment.submitted", facts(req("1", "max_timeout_seconds", "")))}, 1, WordUnknown, true, false},
		{"with a timeout in text neither", []string{buyer(0, "payment.submitted", facts(req("1", "max_timeout_seconds", `"60"`)))}, 1, WordUnknown, true, false},
		{"with a negative one neither", []string{buyer(0, "payment.submitted", facts(req("1", "max_timeout_seconds", `-1`)))}, 1, WordUnknown, true, false},
		{"an endless timeout is long", []string{buyer(0, "payment.submitted", facts(req("1", "max_timeout_seconds", `1e999`)))}, 1 << 30, WordPending, true, false},
		{"without a readable time neither", []string{strings.Replace(submitted, at(1000), "x", 1)}, 1, WordUnknown, true, false},
		{"a tool call is as young as its shortest entry", []string{buyer(0, "payment.requested", call(req("1"), req("2", "max_timeout_seconds", "5")))}, 5000, WordUnknown, true, false},
		{"and pending before", []string{buyer(0, "payment.requested", call(req("1"), req("2", "max_timeout_seconds", "5")))}, 4999, WordPending, true, false},
		{"settled", []string{submitted, ok(2000)}, 2001, WordSettled, false, false},
		{"settled after a fault", []string{submitted, no(1500, "fetch failed"), ok(2000)}, 2001, WordSettled, false, false},
		{"an answer without a payment", []string{ok(2000)}, 2001, WordSettled, false, false},
		{"a failure without a payment is no money stage", []string{decline(2000)}, 2001, WordNone, false, false},
		{"a named decline", []string{submitted, decline(2000)}, 2001, WordFailed, true, true},
		{"a transport failure", []string{submitted, no(2000, "fetch failed")}, 2001, WordUnknown, true, false},
		{"no reason", []string{submitted, buyer(2000, "settle.failed", facts(req("100"), settle(false, "")))}, 2001, WordUnknown, true, false},
		{"a failure without settle", []string{submitted, buyer(2000, "settle.failed", facts(req("100")))}, 2001, WordUnknown, true, false},
		{"a failed payment says nothing of money", []string{submitted, buyer(2000, "payment.failed", facts(req("100")))}, 2001, WordUnknown, true, false},
		{"a decline and something unclear", []string{submitted, decline(2000), no(2001, "fetch failed")}, 2002, WordUnknown, true, false},
		{"a decline and a failed payment", []string{submitted, decline(2000), buyer(2001, "payment.failed", facts(req("100")))}, 2002, WordUnknown, true, false},
		{"a decline twice", []string{submitted, decline(2000), decline(2001)}, 2002, WordFailed, true, true},
		{"a decline with a hash", []string{submitted, buyer(2000, "settle.failed", facts(req("100"), settle(false, "0x1", `"error_reason":"insufficient_funds"`)))}, 2001, WordUnknown, true, false},
		{"a decline beside the seller's hash", []string{submitted, decline(2000), line(2001, "x402.settle.failed", "server", facts(req("100"), settle(false, "0x1")))}, 2002, WordUnknown, true, false},
		{"a decline beside the seller's settlement", []string{submitted, decline(2000), line(2001, "x402.settle.ok", "server", facts(req("100"), settle(true, "")))}, 2002, WordUnknown, true, false},
		{"two payments and a decline", []string{submitted, decline(2000), again}, 3001, WordUnknown, true, false},
		{"two payments, both declined", []string{submitted, decline(2000), again, decline(4000)}, 4001, WordUnknown, true, false},
		{"a decline that says success", []string{submitted, buyer(2000, "settle.failed", facts(req("100"), settle(true, "", `"error_reason":"insufficient_funds"`)))}, 2001, WordUnknown, true, false},
		{"a reason told twice", []string{submitted, buyer(2000, "settle.failed", facts(req("100"), settle(false, "", `"error_reason":"insufficient_funds","error_reason":"insufficient_funds"`)))}, 2001, WordUnknown, true, false},
		{"a reason in another letter case", []string{submitted, buyer(2000, "settle.failed", facts(req("100"), settle(false, "", `"error_reason":"insufficient_funds","Error_Reason":"x"`)))}, 2001, WordUnknown, true, false},
		{"a reason that is no text", []string{submitted, buyer(2000, "settle.failed", facts(req("100"), settle(false, "", `"error_reason":["insufficient_funds"]`)))}, 2001, WordUnknown, true, false},
		{"a decline at the check", []string{submitted, buyer(2000, "verify.failed", facts(req("100"), `"payment_required":{"error":"invalid_exact_evm_signature"}`))}, 2001, WordFailed, true, true},
		{"by verify", []string{submitted, buyer(2000, "verify.failed", facts(req("100"), `"verify":{"is_valid":false,"invalid_reason":"unsupported_scheme"}`))}, 2001, WordFailed, true, true},
		{"by both, of which one is unclear", []string{submitted, buyer(2000, "verify.failed", facts(req("100"), `"payment_required":{"error":"Facilitator verify failed (503)"},"verify":{"invalid_reason":"insufficient_funds"}`))}, 2001, WordUnknown, true, false},
		{"declined, then paid", []string{submitted, decline(2000), again, ok(4000)}, 4001, WordSettled, false, false},
		{"unclear, then paid", []string{submitted, no(2000, "fetch failed"), again, ok(4000)}, 4001, WordUnknown, false, false},
		{"two payments and one settlement", []string{submitted, again, ok(4000)}, 4001, WordUnknown, false, false},
		{"an answer that reports no settlement", []string{submitted, unproven(2000)}, 2001, WordUnknown, true, false},
		{"and then a settlement", []string{submitted, unproven(2000), ok(3000)}, 3001, WordSettled, false, false},
		{"one of two payments with such an answer", []string{submitted, unproven(2000), again, ok(4000)}, 4001, WordUnknown, true, false},
	} {
		s := summary(t, c.lines...)
		if got := s.SettlementAt(hour + int64(c.now)); got != c.word || s.Open != c.open || s.DefiniteFailure != c.definite {
			t.Errorf("%s: %s, open %v, definite %v; want %s, %v, %v", c.what, got, s.Open, s.DefiniteFailure, c.word, c.open, c.definite)
		}
	}
}

func TestOtherSides(t *testing.T) {
	server := func(ms int, typ, payload string) string { return line(ms, "x402."+typ, "server", payload) }
	verified := server(1000, "verify.ok", facts(req("100"), `"verify":{"is_valid":true}`))
	done := server(2000, "settle.ok", facts(req("100"), settle(true, "0x1")))
	for _, c := range []struct {
		what  string
		lines []string
		now   int
		side  Side
		word  string
		open  bool
	}{
		{"a verified payment is young", []string{verified}, 60999, Server, WordPending, true},
		{"and then unknown", []string{verified}, 61000, Server, WordUnknown, true},
		{"settled", []string{verified, done}, 2001, Server, WordSettled, false},
		{"settled up front", []string{done}, 2001, Server, WordSettled, false},
		{"settled, then the work failed", []string{verified, done, server(3000, "payment.canceled", facts(req("100"), `"reason":"handler_failed"`))}, 3001, Server, WordSettled, false},
		{"canceled before it was settled", []string{verified, server(3000, "payment.canceled", facts(req("100"), `"reason":"handler_failed"`))}, 3001, Server, WordUnknown, true},
		{"declined at the check there is no money stage", []string{server(1, "verify.failed", facts(req("100"), `"verify":{"invalid_reason":"insufficient_funds"}`))}, 2, Server, WordNone, false},
		{"verified, then declined", []string{verified, server(2000, "settle.failed", facts(req("100"), settle(false, "", `"error_reason":"insufficient_funds"`)))}, 2001, Server, WordFailed, true},
		{"verified, then an error", []string{verified, server(2000, "settle.failed", facts(req("100"), `"error":{"message":"x"}`))}, 2001, Server, WordUnknown, true},
		{"a settlement that says it is none", []string{verified, server(2000, "settle.ok", facts(req("100"), settle(false, "0x1")))}, 2001, Server, WordUnknown, true},
		{"only started", []string{server(1, "verify.started", facts(req("100")))}, 2, Server, WordNone, false},
		{"a go-between", []string{line(1, "x402.verify.ok", "facilitator", facts(req("100"))), line(2, "x402.settle.ok", "facilitator", facts(req("100"), settle(true, "0x1")))}, 3, Facilitator, WordSettled, false},
		{"a seller beside a go-between is a seller", []string{line(1, "x402.settle.ok", "facilitator", facts(req("100"), settle(true, "0x1"))), verified}, 61000, Server, WordUnknown, true},
		{"a buyer beside both is a buyer", []string{buyer(500, "payment.submitted", facts(req("100"))), verified, done}, 61000, Client, WordUnknown, true},
		{"a deal with its money locked", []string{line(0, "circle.contract.payment_created", "", `{"contract_address":"`+shop+`"}`)}, 1, Escrow, WordUnknown, true},
		{"a deal paid out", []string{line(0, "circle.contract.payment_created", "", `{"contract_address":"`+shop+`"}`), line(1, "circle.contract.withdrawal", "", `{"contract_address":"`+shop+`"}`)}, 2, Escrow, WordSettled, false},
		{"a transfer out of nothing", []string{line(1, "circle.transaction.inbound.complete", "", `{"source_address":"`+shop+`"}`)}, 2, Escrow, WordSettled, false},
		{"a failed deposit", []string{line(1, "circle.transaction.outbound.failed", "", `{"destination_address":"`+shop+`"}`)}, 2, Escrow, WordNone, false},
	} {
		s := summary(t, c.lines...)
		if got := s.SettlementAt(hour + int64(c.now)); s.Side != c.side || got != c.word || s.Open != c.open {
			t.Errorf("%s: side %d, %s, open %v", c.what, s.Side, got, s.Open)
		}
		if s.Payee != shop || !slices.Contains(s.Names, shop) {
			t.Errorf("%s: payee %q, names %q", c.what, s.Payee, s.Names)
		}
		if c.side != Client && (len(s.Payments) > 0 || len(s.Answers) > 0) {
			t.Errorf("%s: payments %v, answers %v", c.what, s.Payments, s.Answers)
		}
	}
}

func TestBlindOperations(t *testing.T) {
	sol := req("1", "network", `"solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp"`)
	paid := buyer(0, "payment.submitted", facts(req("1")))
	answer := buyer(1, "payment.failed", facts(req("1")))
	for _, c := range []struct {
		what  string
		lines []string
		out   Outside
		want  string
	}{
		{"an ordinary payment", []string{paid}, Outside{}, ""},
		{"Solana", []string{buyer(0, "payment.submitted", facts(sol))}, Outside{}, BlindSolana},
		{"Solana by its word", []string{buyer(0, "payment.submitted", facts(req("1", "network", `"solana"`)))}, Outside{}, BlindSolana},
		{"a tool call that may have been paid on Solana", []string{buyer(0, "payment.requested", call(req("1"), sol))}, Outside{}, BlindSolana},
		{"version 1 comes before Solana", []string{buyer(0, "payment.submitted", `{"x402_version":1,"requirements":`+sol+`}`)}, Outside{}, BlindVersion1},
		{"a session without the hook", []string{paid}, Outside{NoResponseHook: true}, BlindNoResponseHook},
		{"an offer is not blind", []string{buyer(0, "payment.required", offer(sol))}, Outside{NoResponseHook: true}, ""},
		{"what was answered is not blind", []string{paid, answer}, Outside{NoResponseHook: true}, ""},
		{"nor what a link answers", []string{buyer(0, "payment.submitted", facts(sol))}, Outside{Linked: state(t, buyer(1, "payment.responded", facts(sol, settle(true, "x")))).Summary(Outside{}).Answers}, ""},
	} {
		if got := state(t, c.lines...).Summary(c.out).Blind; got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

func TestLinkedHalvesCountOnce(t *testing.T) {
	payment := state(t, buyer(0, "payment.requested", call(req("100"), req("300"), req("100", "network", `"eip155:137"`))))
	answer := state(t, buyer(1, "payment.responded", facts(req("100"), settle(true, "0x1", `"amount":"40"`))))
	alone := answer.Summary(Outside{})
	if got := spent(alone); got != "100s(alone)" || len(alone.Answers) != 1 {
		t.Fatalf("the answer alone: %s, %d answers", got, len(alone.Answers))
	}
	before := payment.Summary(Outside{})
	if !before.Open || before.Payments[0].Answered || spent(before) != "?" {
		t.Fatalf("before: %+v", before)
	}
	after := payment.Summary(Outside{Linked: alone.Answers})
	if p := after.Payments[0]; spent(after) != "100s" || after.Open || after.Settlement != WordSettled || p.Answered || p.Asset != key || p.Settled != "40" || p.Transaction != "0x1" {
		t.Errorf("after: %s, %+v", spent(after), after)
	}
	away := answer.Summary(Outside{LinkedAway: []event.Key{alone.Answers[0].Key}})
	if len(away.Payments) != 0 || away.Settlement != WordSettled || len(away.Answers) != 1 || away.Payee != shop {
		t.Errorf("the other half: %+v", away)
	}

	// Two answers alike in key and only one link: the other still counts.
	twice := state(t, buyer(1, "payment.responded", facts(req("100"), settle(true, ""))), buyer(1, "payment.responded", facts(req("100"), settle(true, ""))))
	if got := spent(twice.Summary(Outside{LinkedAway: []event.Key{alone.Answers[0].Key}})); got != "100s(alone)" {
		t.Errorf("two answers, one link: %s", got)
	}
}

func TestALinkedFailureWeighsAsInsideTheOperation(t *testing.T) {
	payment := state(t, buyer(0, "payment.submitted", facts(req("100"))))
	linked := func(line string) Summary {
		return payment.Summary(Outside{Linked: state(t, line).Summary(Outside{}).Answers})
	}
	if s := linked(buyer(1, "settle.failed", facts(req("100"), settle(false, "", `"error_reason":"insufficient_funds"`)))); !s.Open || !s.DefiniteFailure || s.Settlement != WordFailed {
		t.Errorf("a decline: %+v", s)
	}
	if s := linked(buyer(1, "payment.failed", facts(req("100")))); !s.Open || s.DefiniteFailure || s.Settlement != WordUnknown {
		t.Errorf("an unclear failure: %+v", s)
	}
	if s := linked(buyer(1, "settle.failed", facts(req("100"), settle(false, "0x1", `"error_reason":"insufficient_funds"`)))); s.DefiniteFailure {
		t.Errorf("a decline with a hash: %+v", s)
	}
}

func TestASettlementReportedInTwoRunsIsOne(t *testing.T) {
	payment := state(t, buyer(0, "payment.submitted", facts(req("100"))), buyer(1, "payment.responded", facts(req("100"), settle(true, "0x1"))))
	late := state(t, buyer(2, "payment.responded", facts(req("100"), settle(true, "0x1")))).Summary(Outside{})
	if got := spent(payment.Summary(Outside{Linked: late.Answers})); got != "100s" {
		t.Error(got)
	}
	// An answer that came back from storage has no field of its own left out.
	stored := late.Answers[0]
	b, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	var again Answer
	if err := json.Unmarshal(b, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(stored, again); diff != "" {
		t.Error(diff)
	}
}

func TestOffers(t *testing.T) {
	for _, c := range []struct {
		what                 string
		lines                []string
		status               Status
		payees               string
		payee, asset, amount string
	}{
		{"one entry", []string{buyer(0, "payment.required", offer(req("100")))}, Offered, shop, shop, key, "100"},
		{"two networks of one payee", []string{buyer(0, "payment.required", offer(req("100"), req("100", "network", `"eip155:137"`)))}, Offered, shop, shop, "", ""},
		{"two prices of one payee", []string{buyer(0, "payment.required", offer(req("100"), req("200")))}, Offered, shop, shop, key, ""},
		{"two payees", []string{buyer(0, "payment.required", offer(req("100"), req("100", "pay_to", `"`+other+`"`)))}, Offered, shop + " " + other, "", "", ""},
		{"what was chosen comes before the offer", []string{buyer(0, "payment.required", offer(req("100"), req("7", "network", `"eip155:137"`))), buyer(1, "payment.creating", facts(req("100")))}, Named, shop, shop, key, "100"},
		{"a failure alone names its terms", []string{buyer(1, "payment.failed", facts(req("100")))}, Named, shop, shop, key, "100"},
		{"the offer of a refusal is no offer of this operation", []string{buyer(1, "verify.failed", `{"payment_required":`+offer(req("9"))+`}`)}, 0, "", "", "", ""},
	} {
		s := summary(t, c.lines...)
		var payees []string
		for _, o := range s.Offers {
			payees = append(payees, o.Payee)
			if o.Status != c.status {
				t.Errorf("%s: status %d", c.what, o.Status)
			}
		}
		if strings.Join(payees, " ") != c.payees || s.Payee != c.payee || s.Asset != c.asset || s.Amount != c.amount || len(s.Payments) != 0 {
			t.Errorf("%s: offers of %q, display %q %q %q", c.what, payees, s.Payee, s.Asset, s.Amount)
		}
	}
}

func TestDisplayAddsUpTheSamePayeeAndAsset(t *testing.T) {
	a := buyer(0, "payment.submitted", facts(req("100")))
	b := buyer(1, "payment.submitted", facts(req("30")))
	for want, lines := range map[string][]string{
		"130": {a, b},
		"100": {a, buyer(1, "payment.submitted", facts(req("30", "pay_to", `"`+other+`"`)))},
		"":    {a, buyer(1, "payment.submitted", facts(req("x")))},
	} {
		if s := summary(t, lines...); s.Amount != want || s.Payee != shop {
			t.Errorf("%q, want %q", s.Amount, want)
		}
	}
}

func TestAPayeeThatLooksLikeAHost(t *testing.T) {
	s := summary(t, buyer(0, "payment.submitted", facts(req("1", "pay_to", `"api.shop.example"`))))
	if want := []string{"api.shop.example", "payee:api.shop.example"}; !slices.Equal(s.Names, want) || s.Payee != want[1] {
		t.Errorf("payee %q, names %q", s.Payee, s.Names)
	}
}

func TestStateCanBeUsedAgain(t *testing.T) {
	s := state(t, buyer(0, "payment.submitted", facts(req("1"))))
	s.Reset()
	if got := s.Summary(Outside{}); s.Len() != 0 || got.Side != NoSide || got.Settlement != WordNone || got.SettlementAt(0) != WordNone {
		t.Errorf("%+v", got)
	}
}

// anyLine draws an event that says something about money, of few values, so that
// repeats, ties, contradictions and near misses are common.
func anyLine(t *rapid.T) string {
	pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	requirements := func(label string) string {
		r := req(pick(label+" amount", "1", "2", "3", "x", ""),
			"pay_to", pick(label+" pay_to", `"`+shop+`"`, `"`+other+`"`),
			"network", pick(label+" network", `"eip155:8453"`, `"base"`, `"eip155:137"`),
			"scheme", pick(label+" scheme", `"exact"`, `"upto"`),
			"max_timeout_seconds", pick(label+" timeout", "1", "2", `"x"`))
		switch rapid.IntRange(0, 9).Draw(t, label+" twist") {
		case 0:
			return `null`
		case 1:
			return strings.Replace(r, `{`, `{"Amount":"9",`, 1)
		}
		return r
	}
	payload := `{"x402_version":` + pick("version", "2", "2", "1")
	if rapid.Bool().Draw(t, "has requirements") {
		payload += `,"requirements":` + requirements("r")
	}
	if rapid.Bool().Draw(t, "has accepts") {
		payload += `,"accepts":[` + requirements("a") + `,` + requirements("b") + `]`
	}
	if rapid.Bool().Draw(t, "has settle") {
		payload += `,"settle":{"success":` + pick("success", "true", "false", `"x"`) + `,"transaction":` + pick("tx", `""`, `"0x1"`, `"0x2"`) +
			`,"network":` + pick("settle network", `"eip155:8453"`, `"eip155:137"`) + pick("settled", ``, `,"amount":"1"`, `,"amount":1`) +
			pick("reason", ``, `,"error_reason":"insufficient_funds"`, `,"error_reason":"x"`) + `}`
	}
	payload += pick("resource", `,"resource":{"url":"https://a.example/1"}`, `,"resource":{"url":"https://a.example/2"}`, ``)
	payload += pick("tool", ``, `,"tool_name":"t"`) + `}`
	typ := pick("type", "payment.required", "payment.requested", "payment.creating", "payment.submitted", "payment.submitted", "payment.responded",
		"payment.responded", "settle.failed", "verify.failed", "payment.failed", "settle.ok", "verify.ok")
	l := line(rapid.IntRange(0, 5).Draw(t, "ms"), "x402."+typ+"#"+pick("id", "a", "b"), pick("role", "client", "client", "client", "server"), payload)
	return l
}

// The central property: only the set of events counts.
func TestTheOrderOfEventsDoesNotMatter(t *testing.T) {
	compare := cmp.AllowUnexported(Payment{})
	var used Summary
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.Custom(anyLine), 1, 7).Draw(t, "lines")
		shuffled := rapid.Permutation(lines).Draw(t, "shuffled")
		var a, b, tail State
		var in Interner
		for i := range lines {
			if f, ok := projectAny(lines[i], nil); ok {
				a.Add(f)
			}
			if f, ok := projectAny(shuffled[i], &in); ok {
				if i%2 == 0 {
					b.Add(f)
				} else {
					tail.Add(f)
				}
			}
			b.Summary(Outside{}) // asking in between changes nothing
		}
		b.Merge(&tail)
		want := a.Summary(Outside{})
		if diff := cmp.Diff(want, b.Summary(Outside{}), compare); diff != "" {
			t.Fatal(diff)
		}
		if b.SummaryInto(&used, Outside{}); cmp.Diff(want, used, compare, cmpopts.EquateEmpty()) != "" {
			t.Fatalf("in used memory: %s", cmp.Diff(want, used, compare, cmpopts.EquateEmpty()))
		}
		linked := rapid.SliceOfN(rapid.Custom(anyLine), 0, 3).Draw(t, "linked")
		var o, p Outside
		for i, l := range linked {
			var s State
			if f, ok := projectAny(l, nil); ok {
				s.Add(f)
			}
			o.Linked = append(o.Linked, s.Summary(Outside{}).Answers...)
			s.Reset()
			if f, ok := projectAny(linked[len(linked)-1-i], nil); ok {
				s.Add(f)
			}
			p.Linked = append(p.Linked, s.Summary(Outside{}).Answers...)
		}
		if diff := cmp.Diff(a.Summary(o), b.Summary(p), compare); diff != "" {
			t.Fatalf("with links: %s", diff)
		}
	})
}

// What must hold for whatever was recorded.
func TestNothingSpentIsEverLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		submitted, requested, settlements := 0, 0, 0
		for _, l := range rapid.SliceOfN(rapid.Custom(anyLine), 1, 8).Draw(t, "lines") {
			f, ok := projectAny(l, nil)
			if !ok {
				continue
			}
			s.Add(f)
			switch {
			case f.side != Client:
			case f.kind == Submitted:
				submitted++
			case f.kind == Requested:
				requested++
			case f.kind == Responded && f.out.success:
				settlements++
			}
		}
		sum := s.Summary(Outside{})
		made := submitted
		if made == 0 {
			made = requested
		}
		own, alone, paired := 0, 0, 0
		for _, p := range sum.Payments {
			if p.Status == SettledAlone {
				alone++
			} else {
				own++
				if p.Paired {
					paired++
				}
			}
			if p.Settled != "" && p.Amount != "" && Cmp(p.Amount, p.Settled) < 0 {
				t.Fatalf("%s was taken and %s counts", p.Settled, p.Amount)
			}
			for _, n := range append(slices.Clone(p.Payees), p.Hosts...) {
				if !slices.Contains(sum.Names, n) {
					t.Fatalf("%q is no name of the operation", n)
				}
			}
			if p.Payee != "" && !slices.Contains(p.Payees, p.Payee) {
				t.Fatalf("%q is missing from %q", p.Payee, p.Payees)
			}
			if sum.Ambiguous && p.Readable() {
				t.Fatal("a payment of an ambiguous operation can be summed")
			}
		}
		if own != made {
			t.Fatalf("%d payments made, %d counted", made, own)
		}
		if alone+paired < min(settlements, 1) {
			t.Fatal("a settlement is lost")
		}
		if sum.Open && !sum.MoneyStage || sum.MoneyStage && sum.Settlement == WordNone {
			t.Fatalf("open %v, money %v, %s", sum.Open, sum.MoneyStage, sum.Settlement)
		}
		if sum.Settlement == WordSettled && sum.Open || sum.DefiniteFailure && !sum.Open {
			t.Fatalf("%s and open %v, definite %v", sum.Settlement, sum.Open, sum.DefiniteFailure)
		}
	})
}

func projectAny(line string, in *Interner) (Fact, bool) {
	var doc jsjson.Doc
	e, fault := event.Decode(&doc, []byte(line))
	if fault != "" {
		panic(string(fault) + line)
	}
	return Project(e, in)
}
