package payment

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/ingest/event"
)

func TestOnlyEventsAboutMoneyAreProjected(t *testing.T) {
	for _, c := range []struct {
		typ, role string
		kind      Kind
		side      Side
	}{
		{"x402.payment.required", "client", Offer, Client},
		{"x402.payment.creating", "client", Creating, Client},
		{"x402.payment.creation_failed", "client", Creating, Client},
		{"x402.payment.submitted", "client", Submitted, Client},
		{"x402.payment.requested", "client", Requested, Client},
		{"x402.payment.responded", "client", Responded, Client},
		{"x402.payment.failed", "client", PaymentFailed, Client},
		{"x402.settle.failed", "client", SettleFailed, Client},
		{"x402.verify.failed", "client", VerifyFailed, Client},
		{"x402.verify.started", "server", Started, Server},
		{"x402.settle.started", "facilitator", Started, Facilitator},
		{"x402.verify.ok", "server", VerifyOK, Server},
		{"x402.settle.ok", "facilitator", SettleOK, Facilitator},
		{"x402.settle.failed", "server", SettleFailed, Server},
		{"x402.verify.failed", "facilitator", VerifyFailed, Facilitator},
		{"x402.payment.canceled", "server", Canceled, Server},
		{"circle.contract.payment_created", "", Deposit, Escrow},
		{"circle.contract.withdrawal", "", Disposition, Escrow},
		{"circle.contract.refund", "", Disposition, Escrow},
		{"circle.transaction.inbound.complete", "", Disposition, Escrow},
		{"circle.transaction.outbound.complete", "", Transfer, Escrow},
		{"circle.transaction.outbound.failed", "", Transfer, Escrow},
		{"circle.transaction.inbound.failed", "", Transfer, Escrow},

		{"x402.payment.submitted", "server", NoKind, NoSide},
		{"x402.payment.submitted", "", NoKind, NoSide},
		{"x402.payment.submitted", "CLIENT", NoKind, NoSide},
		{"x402.settle.ok", "client", NoKind, NoSide},
		{"x402.request.protected", "server", NoKind, NoSide},
		{"X402.payment.submitted", "client", NoKind, NoSide},
		{"x402.payment.submitted ", "client", NoKind, NoSide},
		{"x402.payment.refunded", "client", NoKind, NoSide},
		{"escrow.agreement.created", "", NoKind, NoSide},
		{"escrow.review.approved", "", NoKind, NoSide},
		{"trace.attached", "client", NoKind, NoSide},
		{"circle.contract.other", "", NoKind, NoSide},
		{"x", "client", NoKind, NoSide},
		{"", "", NoKind, NoSide},
	} {
		l := strings.Replace(line(5, "T", c.role, `{}`), `"T"`, `"`+c.typ+`"`, 1)
		f, ok := project(t, l)
		if ok != (c.kind != NoKind) || f.Kind() != c.kind || f.Side() != c.side {
			t.Errorf("%s@%s: %v, kind %d, side %d", c.typ, c.role, ok, f.Kind(), f.Side())
		}
		if k := f.Key(); ok && (string(k.At) != at(5) || string(k.ID) != "e5" || k.Seq != 0) {
			t.Errorf("%s: key %v", c.typ, k)
		}
	}
}

func TestAFactKeepsNothingOfItsLine(t *testing.T) {
	for _, in := range []*Interner{nil, {}} {
		src := []byte(buyer(0, "payment.responded", facts(req("100"), settle(true, "0x1"), `"tool_name":"t"`)))
		var doc jsjson.Doc
		e, fault := event.Decode(&doc, src)
		if fault != "" {
			t.Fatal(fault)
		}
		f, _ := Project(e, in)
		var s State
		s.Add(f)
		for i := range src {
			src[i] = '#'
		}
		want := summary(t, buyer(0, "payment.responded", facts(req("100"), settle(true, "0x1"), `"tool_name":"t"`)))
		if diff := cmp.Diff(want, s.Summary(Outside{}), cmp.AllowUnexported(Payment{})); diff != "" {
			t.Error(diff)
		}
	}
}

func TestAmbiguousFacts(t *testing.T) {
	const kelvin, long = "K", "ſ" // they fold to k and s
	r, o := req("100"), `"`+other+`"`
	extra := func(in, add string) string { return strings.Replace(in, "{", "{"+add+",", 1) }
	submitted := func(payload string) string { return buyer(0, "payment.submitted", payload) }
	for _, c := range []struct {
		what, line string
		payees     string // named beside the shop
	}{
		{"a payee twice", submitted(facts(extra(r, `"pay_to":`+o))), other},
		{"the same payee twice", submitted(facts(extra(r, `"pay_to":"`+shop+`"`))), ""},
		{"a payee in another case", submitted(facts(extra(r, `"Pay_To":`+o))), other},
		{"a payee with an escape in its name", submitted(facts(extra(r, `"pay\u005fto":`+o))), other},
		{"an amount twice", submitted(facts(extra(r, `"amount":"1"`))), ""},
		{"an amount in another case", submitted(facts(extra(r, `"AMOUNT":"1"`))), ""},
		{"an asset twice", submitted(facts(extra(r, `"asset":"1"`))), ""},
		{"an asset with a long s", submitted(facts(extra(r, `"a`+long+`set":"1"`))), ""},
		{"a network with a Kelvin sign", submitted(facts(extra(r, `"networ`+kelvin+`":"1"`))), ""},
		{"a network with an escaped Kelvin sign", submitted(facts(extra(r, `"networ\u212a":"1"`))), ""},
		{"a scheme twice", submitted(facts(extra(r, `"scheme":"upto"`))), ""},
		{"requirements twice", submitted(extra(facts(r), `"requirements":`+req("1", "pay_to", o))), other},
		{"requirements in another case", submitted(extra(facts(r), `"Requirements":{"PAY_TO":`+o+`}`)), other},
		{"requirements twice, one of them no object", submitted(extra(facts(r), `"requirements":null`)), ""},
		{"a payload twice", strings.Replace(submitted(facts(r)), `"payload":`, `"payload":`+facts(req("1", "pay_to", o))+`,"payload":`, 1), other},
		{"a payload in another case", strings.Replace(submitted(facts(r)), `"payload":`, `"PAYLOAD":`+facts(req("1", "pay_to", o))+`,"payload":`, 1), other},
		{"a resource twice", submitted(extra(facts(r), `"resource":{}`)), ""},
		{"a url twice", submitted(strings.Replace(facts(r), `{"url"`, `{"URL":"x","url"`, 1)), ""},
		{"success twice", buyer(0, "payment.responded", facts(r, `"settle":{"success":false,"success":true}`)), ""},
		{"success in another case", buyer(0, "payment.responded", facts(r, `"settle":{"success":true,"`+long+`uccess":true}`)), ""},
		{"settle twice", buyer(0, "payment.responded", facts(r, `"settle":{"success":true},"settle":{"success":true}`)), ""},
		{"a taken amount twice", buyer(0, "payment.responded", facts(r, `"settle":{"success":true,"amount":"1","amount":"1"}`)), ""},
		{"a settled network twice", buyer(0, "payment.responded", facts(r, `"settle":{"success":true,"network":"a","Network":"a"}`)), ""},
		{"a transaction twice", buyer(0, "payment.responded", facts(r, `"settle":{"success":true,"transaction":"a","transaction":"b"}`)), ""},
		{"accepts twice", buyer(0, "payment.required", extra(offer(r), `"accepts":[`+req("1", "pay_to", o)+`]`)), other},
		{"a payee twice in an entry", buyer(0, "payment.required", offer(extra(r, `"pay_to":`+o))), other},
		{"a fresh offer twice", buyer(0, "verify.failed", facts(r, `"payment_required":{},"payment_required":`+offer(req("1", "pay_to", o)))), other},
		{"a payee twice in a fresh offer", buyer(0, "verify.failed", facts(r, `"payment_required":`+offer(extra(req("1", "pay_to", o), `"pay_to":"z"`)))), other + " payee:z"},
	} {
		s := summary(t, c.line)
		if !s.Ambiguous {
			t.Errorf("%s: not ambiguous", c.what)
			continue
		}
		want := sorted(append(strings.Fields(c.payees), shop))
		for _, p := range append(slices.Clone(s.Payments), s.Offers...) {
			if !p.Ambiguous || p.Readable() {
				t.Errorf("%s: a payment of it can be summed", c.what)
			}
			if !slices.Equal(p.Payees, want) {
				t.Errorf("%s: it counts with %q, want %q", c.what, p.Payees, want)
			}
		}
		for _, name := range want {
			if !slices.Contains(s.Names, name) {
				t.Errorf("%s: %s is missing from %q", c.what, name, s.Names)
			}
		}
		if s.Settlement == WordSettled || s.Settlement == WordFailed || s.Amount != "" {
			t.Errorf("%s: %s, amount %q", c.what, s.Settlement, s.Amount)
		}
	}
}

// What counts as another letter case is what the parser calls a variant.
func TestLetterCasesAreThoseOfSimpleFolding(t *testing.T) {
	sets := []*nameSet{payloadNames, termsNames, settleNames, urlNames, freshNames, verifyNames}
	rapid.Check(t, func(t *rapid.T) {
		set := rapid.SampledFrom(sets).Draw(t, "set")
		object := "{"
		for i := range rapid.IntRange(1, 3).Draw(t, "members") {
			name := ""
			for _, c := range rapid.SampledFrom(set.list).Draw(t, "name") {
				switch rapid.IntRange(0, 11).Draw(t, "twist") {
				case 0:
					c = unicode.SimpleFold(c)
				case 1:
					c = unicode.SimpleFold(unicode.SimpleFold(c))
				case 2:
					if rapid.IntRange(0, 9).Draw(t, "other") == 0 {
						c = 'é'
					}
				}
				name += string(c)
			}
			if i > 0 {
				object += ","
			}
			object += `"` + name + `":1`
		}
		var doc jsjson.Doc
		if err := doc.Parse([]byte(object + "}")); err != nil {
			t.Fatal(err)
		}
		var v [maxNames]jsjson.Node
		_, doubt := set.read(doc.Root(), &v)
		for i, name := range set.list {
			_, copies, variants := doc.Root().Find(name)
			if got, want := doubt>>i&1 != 0, copies > 1 || variants > 0; got != want {
				t.Fatalf("%s in %s: %v, want %v", name, object, got, want)
			}
		}
	})
}

func TestHostsOfEveryCopyCount(t *testing.T) {
	s := summary(t, buyer(0, "payment.submitted", `{"resource":{"url":"https://a.example","URL":"https://b.example"},"RESOURCE":{"url":"https://c.example"},"requirements":`+req("1")+`}`))
	if p := s.Payments[0]; !slices.Equal(p.Hosts, []string{"a.example", "b.example", "c.example"}) {
		t.Errorf("%q", p.Hosts)
	}
}

func TestAnAmbiguousSettlementCountsAndClosesNothing(t *testing.T) {
	answer := buyer(1, "payment.responded", facts(req("100"), `"settle":{"success":false,"success":true,"transaction":"0x1"}`))
	s := summary(t, buyer(0, "payment.submitted", facts(req("100"))), answer)
	if !s.Open || s.Settlement != WordUnknown || spent(s) != "100s" {
		t.Errorf("open %v, %s, %s", s.Open, s.Settlement, spent(s))
	}
	if s := summary(t, answer); spent(s) != "100s(alone)" || s.Settlement != WordUnknown {
		t.Errorf("alone: %s, %s", spent(s), s.Settlement)
	}
}

func TestWhatIsNotAmbiguous(t *testing.T) {
	r := req("100")
	for what, l := range map[string]string{
		"an unknown member twice":                  buyer(0, "payment.submitted", facts(strings.Replace(r, "{", `{"extra":1,"extra":2,`, 1))),
		"a description twice":                      buyer(0, "payment.submitted", strings.Replace(facts(r), `{"url"`, `{"description":"a","description":"b","url"`, 1)),
		"a money name where it is none":            buyer(0, "payment.submitted", facts(r, `"amount":"1","Amount":"2","extra":{"pay_to":1,"PAY_TO":2}`)),
		"a name that only contains one":            buyer(0, "payment.submitted", facts(strings.Replace(r, "{", `{"amounts":1,"amoun":2,"pay-to":3,"amoůnt":4,`, 1))),
		"a reason twice":                           buyer(0, "settle.failed", facts(r, settle(false, "", `"error_reason":"a","error_reason":"b"`))),
		"an envelope member twice":                 strings.Replace(buyer(0, "payment.submitted", facts(r)), `"adapter"`, `"adapter":"y","adapter"`, 1),
		"a settle in an event without one to read": line(0, "x402.verify.ok", "server", facts(r, `"settle":{"success":1,"success":2}`)),
	} {
		if summary(t, l).Ambiguous {
			t.Errorf("%s is ambiguous", what)
		}
	}
}

func TestDecline(t *testing.T) {
	for reason, want := range map[string]bool{
		"insufficient_funds": true, "invalid_exact_evm_insufficient_balance": true, "insufficient_allowance": true, "permit2_insufficient_allowance_2": true,
		"invalid_exact_evm_signature": true, "invalid_payload": true, "unsupported_scheme": true, "unsupported_network": true,
		"invalid_transaction_state_x": true, "invalid_x": true,
		"invalid_transaction_state": false, "invalid_": false, "invalid": false, "unsupported_schemes": false, "unsupported_asset": false,
		"settlement_pending": false, "fetch failed": false, "Facilitator settle failed (503): busy": false, "INSUFFICIENT_FUNDS": false,
		"insufficient_funds ": false, " insufficient_funds": false, "insufficient_funds\n": false, "insufficient funds": false, "": false,
		"error: insufficient_funds": false, "insufficient_native": false, "payer_not_accepted": false, "invalid_exact.evm": false,
	} {
		if Decline(reason) != want {
			t.Errorf("%q is %v", reason, !want)
		}
	}
	contract := regexp.MustCompile(`\A(?:[a-z0-9_]*insufficient_(?:funds|balance|allowance)[a-z0-9_]*|invalid_[a-z0-9_]+|unsupported_(?:scheme|network))\z`)
	rapid.Check(t, func(t *rapid.T) {
		reason := rapid.OneOf(rapid.StringMatching(`[a-z0-9_]{0,3}(insufficient_(funds|balance|allowance|x)|invalid_|unsupported_(scheme|network|x))[a-z0-9_. ]{0,3}`), rapid.String()).Draw(t, "reason")
		if want := contract.MatchString(reason) && reason != "invalid_transaction_state"; Decline(reason) != want {
			t.Fatalf("Decline(%q) = %v", reason, !want)
		}
	})
}

func TestAttestation(t *testing.T) {
	for _, c := range []struct {
		what, typ, role, payload string
		kind                     string
		blind, ok                bool
	}{
		{"a whole client", "trace.attached", "client", `{"kind":"httpClient","attached":["client.onPaymentResponse"]}`, "httpClient", false, true},
		{"a client without the hook", "trace.attach_partial", "client", `{"kind":"client","missing":["onPaymentResponse"]}`, "client", true, true},
		{"the hook named with its object", "trace.attach_partial", "client", `{"kind":"httpClient","missing":["x","client.onPaymentResponse"]}`, "httpClient", true, true},
		{"another hook is missing", "trace.attach_partial", "client", `{"kind":"client","missing":["onPaymentResponseX","onBeforePayment"]}`, "client", false, true},
		{"missing is no list", "trace.attach_partial", "client", `{"kind":"client","missing":"onPaymentResponse"}`, "client", false, true},
		{"nothing is said", "trace.attach_partial", "client", `null`, "", false, true},
		{"a seller", "trace.attach_partial", "server", `{"kind":"server","missing":["onPaymentResponse"]}`, "", false, false},
		{"nobody", "trace.attached", "", `{"source":"circle-webhook"}`, "", false, false},
		{"another event", "trace.attach_failed", "client", `{"kind":"client"}`, "", false, false},
		{"a payment", "x402.payment.submitted", "client", `{"kind":"client"}`, "", false, false},
	} {
		var doc jsjson.Doc
		e, fault := event.Decode(&doc, []byte(line(0, c.typ, c.role, c.payload)))
		if fault != "" {
			t.Fatal(fault)
		}
		if kind, blind, ok := Attestation(e); kind != c.kind || blind != c.blind || ok != c.ok {
			t.Errorf("%s: %q, %v, %v", c.what, kind, blind, ok)
		}
	}
}

func TestStrangeTexts(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	s := summary(t, buyer(0, "payment.submitted", facts(req("1", "pay_to", `"`+long+`"`, "asset", `"`+long+`"`, "network", `"`+long+`"`, "scheme", `"`+long+`"`), `"tool_name":"`+long+`"`)))
	p := s.Payments[0]
	for _, text := range []string{p.Payee, p.Asset, p.Network, p.Scheme, p.Tool} {
		if text == "" || len(text) > 200 {
			t.Errorf("a text of %d bytes is kept as %d", len(long), len(text))
		}
	}
	for what, payTo := range map[string]string{
		"a number": `1`, "null": `null`, "empty text": `""`, "a list": `["` + shop + `"]`, "true": `true`,
	} {
		if p := summary(t, buyer(0, "payment.submitted", facts(req("1", "pay_to", payTo)))).Payments[0]; p.Payee != "" || len(p.Payees) != 0 {
			t.Errorf("a payee that is %s: %q", what, p.Payees)
		}
	}
	if p := summary(t, buyer(0, "payment.submitted", facts(req("1", "pay_to", `"\ud800A"`)))).Payments[0]; p.Payee != "payee:\xed\xa0\x80A" {
		t.Errorf("a lone surrogate: %q", p.Payee)
	}
	if p := summary(t, buyer(0, "payment.submitted", `{"requirements":`+req("1")+`}`)).Payments[0]; p.Host != "" || p.Resource != "" {
		t.Errorf("no resource: %+v", p)
	}
}

func TestAnOfferWithoutEndIsNotTrusted(t *testing.T) {
	same := strings.Repeat(req("1")+",", 5000) + req("2")
	if s := summary(t, buyer(0, "payment.requested", call(same))); s.Ambiguous || len(s.Payments[0].Accepts) != 2 || s.Payments[0].Amount != "2" {
		t.Errorf("entries that repeat: ambiguous %v, %d entries", s.Ambiguous, len(s.Payments[0].Accepts))
	}
	var b strings.Builder
	for i := range maxOffers + 1 {
		b.WriteString(req(fmt.Sprint(i+1)) + ",")
	}
	s := summary(t, buyer(0, "payment.requested", call(b.String()+req("1", "pay_to", `"`+other+`"`))))
	if !s.Ambiguous || len(s.Payments[0].Accepts) != maxOffers || !slices.Contains(s.Payments[0].Payees, other) || s.Payments[0].Readable() {
		t.Errorf("entries without end: ambiguous %v, %d entries, payees %q", s.Ambiguous, len(s.Payments[0].Accepts), s.Payments[0].Payees)
	}
}

// The cache must not be seen from outside, full or not.
func TestFactsAreTheSameWithAnInterner(t *testing.T) {
	var in Interner
	rapid.Check(t, func(t *rapid.T) {
		l := anyLine(t)
		a, aok := projectAny(l, nil)
		b, bok := projectAny(l, &in)
		if aok != bok || aok && compareFacts(&a, &b) != 0 {
			t.Fatalf("%+v\n%+v", a, b)
		}
	})
	for i := range 3 * maxEntries {
		put(&in.texts, strings.Repeat("x", i%7)+string(rune(i)), "")
	}
	if len(in.texts) > maxEntries {
		t.Errorf("the cache holds %d", len(in.texts))
	}
}

func FuzzProject(f *testing.F) {
	for _, l := range []string{
		buyer(0, "payment.required", offer(req("1"), req("2"))),
		buyer(0, "payment.requested", call(req("1"), `null`)),
		buyer(1, "payment.submitted", facts(req("1", "Pay_To", `"x"`))),
		buyer(2, "payment.responded", facts(req("1"), settle(true, "0x1", `"amount":"1"`))),
		buyer(3, "verify.failed", facts(req("1"), `"payment_required":`+offer(req("9")))),
		line(4, "x402.settle.ok", "server", facts(req("1"), settle(true, "0x1"))),
		line(5, "circle.contract.payment_created", "", `{"contract_address":"`+shop+`"}`),
		line(6, "trace.attach_partial", "client", `{"kind":"c","missing":["onPaymentResponse"]}`),
	} {
		f.Add([]byte(l))
	}
	var in Interner
	f.Fuzz(func(t *testing.T, src []byte) {
		var doc jsjson.Doc
		e, fault := event.Decode(&doc, src)
		if fault != "" {
			return
		}
		Attestation(e)
		a, ok := Project(e, nil)
		b, _ := Project(e, &in)
		if !ok {
			return
		}
		if compareFacts(&a, &b) != 0 {
			t.Fatalf("%+v\n%+v", a, b)
		}
		var s State
		s.Add(a)
		sum := s.Summary(Outside{Linked: nil, NoResponseHook: true})
		for i := range sum.Payments {
			p := &sum.Payments[i]
			if _, ok := Amount(p.Amount); !ok && p.Amount != "" {
				t.Fatalf("amount %q", p.Amount)
			}
			if p.Readable() && (p.Asset == "" || p.Ambiguous) {
				t.Fatalf("%+v", p)
			}
		}
		if a.side == Client && (a.kind == Submitted || a.kind == Requested) && len(sum.Payments) != 1 {
			t.Fatal("a payment is lost")
		}
		s.Add(b)
		s.Summary(Outside{Linked: sum.Answers})
	})
}
