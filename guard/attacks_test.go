package guard_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/assemble"
	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/canon"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

// beside gives the same root with a second guard of the same process, as a
// restart would have it.
func (s *site) beside(policy string, change func(*guard.Options)) *site {
	s.t.Helper()
	again := &site{t: s.t, dir: s.dir, clock: s.clock, seq: s.seq + 1000, index: s.index}
	p := guard.DefaultPolicy()
	if policy != "" {
		var err error
		if p, err = guard.ParsePolicy([]byte(policy)); err != nil {
			s.t.Fatal(err)
		}
	}
	o := guard.Options{Index: s.index, Dir: s.index.GuardDir(), Policy: p, Now: s.clock.now, Version: "test"}
	if change != nil {
		change(&o)
	}
	g, err := guard.New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	again.Guard = g
	return again
}

// restart opens index and guard again, after the index was deleted where forget
// says so.
func (s *site) restart(policy string, forget bool) {
	s.t.Helper()
	_ = s.index.Close()
	if forget {
		all, err := filepath.Glob(filepath.Join(s.dir, "guard", "index-*"))
		if err != nil || len(all) == 0 {
			s.t.Fatal(all, err)
		}
		for _, f := range all {
			if err := os.Remove(f); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	s.open(policy)
}

func (s *site) logPath() string { return filepath.Join(s.dir, "guard", "decisions.ndjson") }

func (s *site) logText() []byte {
	s.t.Helper()
	text, err := os.ReadFile(s.logPath())
	if err != nil {
		s.t.Fatal(err)
	}
	return text
}

func (s *site) write(path string, text []byte) {
	s.t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) run(name string) string { return filepath.Join(s.dir, "events", name+".ndjson") }

// refused asks and holds the answer to an error of the request.
func (s *site) refused(r guard.Request) {
	s.t.Helper()
	v, err := s.Check(s.t.Context(), r)
	if known := errcode.Of(err); known == nil || known.Code != errcode.Input {
		s.t.Errorf("%+v: %+v, %v", r, v, err)
	}
}

const laxTemplate = `template: %s
version: 1
stages:
  - id: anything
    required: true
    match:
      - { event: x402.payment.required, role: client }
    missing_explanation: Nothing.
`

func TestALaxTemplateHidesNothing(t *testing.T) {
	s := newSite(t, "")
	lax, _, err := assemble.ParseTemplate(fmt.Appendf(nil, laxTemplate, "lax"))
	if err != nil {
		t.Fatal(err)
	}
	g := s.beside("", func(o *guard.Options) {
		o.Template = func(name string) (*assemble.Resolved, error) {
			if name != "lax" {
				t.Errorf("the template %s was looked for among the local files", name)
			}
			return &assemble.Resolved{Template: lax, Ref: name}, nil
		}
	})
	q := terms{}.payload()
	s.event("r1", "op1", "x402.payment.required", map[string]any{"x402_version": 2, "resource": q["resource"], "accepts": []any{q["requirements"]}})
	s.submit("r1", "op1", terms{})
	for _, name := range []string{"", "lax", "x402-buyer", "x402-seller", "x402-facilitator", "escrow-arc"} {
		g.want("review", guard.Request{Amount: "0.25", Template: name}, "open_partial")
	}
	// The template is no part of the intent, so a refusal is not shaken off with it.
	v := g.want("review", guard.Request{Amount: "0.25", Template: "lax"}, "open_partial")
	g.decide("rejected", v.ReviewID)
	g.want("block", guard.Request{Amount: "0.25"}, "rejected_by_human", "open_partial")
	g.want("block", guard.Request{Amount: "0.25", Template: "x402-seller"}, "rejected_by_human", "open_partial")
}

func TestAnAllowedHostCitedAsResourceAllowsNobody(t *testing.T) {
	s := newSite(t, `{"allowlist": ["good.example"]}`)
	s.want("allow", guard.Request{Counterparty: "good.example"})
	s.want("review", guard.Request{Counterparty: other, Resource: "https://good.example/x"}, "allowlist")
	s.want("review", guard.Request{Counterparty: "bad.example", Resource: "https://good.example/x"}, "allowlist")
	s.want("review", guard.Request{Counterparty: "good.example", PayTo: other}, "allowlist")
	s.want("review", guard.Request{Counterparty: "https://good.example@bad.example/"}, "allowlist")
	s.want("review", guard.Request{Counterparty: "good.example.bad.example"}, "allowlist")
	s.want("review", guard.Request{Counterparty: "https://bad.example/?good.example"}, "allowlist")
}

func TestADeniedNameIsDeniedInEverySpelling(t *testing.T) {
	spellings := []string{
		"evil.example", "EVIL.Example", "evil.example.", "evil.example:8443", "EVIL.EXAMPLE.:443", "https://evil.example/x?y#z",
		"https://user:pw@evil.example/x", "http://a@EVIL.example.:1/", "HTTPS://evil.example", "\uff45vil.example", "evil\u3002example",
	}
	puny := []string{"b\u00fccher.example", "B\u00dcCHER.example.", "bu\u0308cher.example", "xn--bcher-kva.example", "XN--BCHER-KVA.EXAMPLE:80", "https://u@b\u00fccher.example/"}
	check := func(denied string, all []string) {
		t.Helper()
		policy, err := json.Marshal(map[string]any{"denylist": []string{denied}})
		if err != nil {
			t.Fatal(err)
		}
		s := newSite(t, string(policy))
		for _, name := range all {
			for _, r := range []guard.Request{
				{Counterparty: name}, {Counterparty: name, PayTo: seller}, {Counterparty: "fine.example", Resource: "https://" + strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(name, "https://"), "http://"), "HTTPS://")},
			} {
				r.Amount = "0.5"
				if v := s.ask(r); v.Decision != "block" || v.Reasons[0].Rule != "denylist" {
					t.Errorf("denied %q: %q (resource %q): %s %v", denied, name, r.Resource, v.Decision, v.Reasons)
				}
			}
		}
		for _, name := range []string{"notevil.example", "evil.example.org", "evil-example", "bucher.example", "https://fine.example/evil.example"} {
			if v := s.ask(guard.Request{Counterparty: name, Amount: "0.5"}); v.Decision != "allow" {
				t.Errorf("denied %q: %q: %s %v", denied, name, v.Decision, v.Reasons)
			}
		}
	}
	for _, denied := range []string{"evil.example", "EVIL.example.", "https://evil.example:8443/x"} {
		check(denied, spellings)
	}
	for _, denied := range puny[:4] {
		check(denied, puny)
	}
	s := newSite(t, `{"denylist": ["`+strings.ToLower(seller)+`"]}`)
	for _, name := range []string{seller, strings.ToUpper(seller), strings.ToLower(seller), "0X" + seller[2:]} {
		s.want("block", guard.Request{Counterparty: name}, "denylist")
		s.want("block", guard.Request{Counterparty: "fine.example", PayTo: name}, "denylist")
		s.want("block", guard.Request{Counterparty: "-", Offer: offerOf(name, "500000")}, "denylist")
	}
}

// offerOf is an entry of an offer's accepts.
func offerOf(payTo, amount string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"scheme":"exact","network":"base","asset":"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913","payTo":%q,"maxAmountRequired":%q}`, payTo, amount))
}

func TestATinySettledAmountOfUptoIsNotBelieved(t *testing.T) {
	s := newSite(t, `{"reviewAbove": "100"}`)
	p := terms{amount: "5000000", scheme: "upto"}
	s.submit("r1", "op1", p)
	payload := p.payload()
	payload["settle"] = map[string]any{"success": true, "transaction": "0x01", "network": "eip155:8453", "amount": "1"}
	s.event("r1", "op1", "x402.payment.responded", payload)
	s.want("review", guard.Request{Amount: "0.000001"}, "per_counterparty_limit")
	// What the offer's scheme is called takes nothing off what is asked about.
	s.want("review", guard.Request{Counterparty: other, Amount: "101", Resource: "mcp://tool/upto"}, "per_counterparty_limit", "review_above")
}

func TestAHoldEndsWithItsOwnPaymentOnly(t *testing.T) {
	s := newSite(t, `{"reviewAbove": "100"}`)
	s.want("allow", guard.Request{Amount: "0.60", Hold: true, Resource: shop})
	s.want("allow", guard.Request{Amount: "0.60", Hold: true, Resource: shop})
	at := s.clock.now()
	active := func(want int, why string) {
		t.Helper()
		holds, err := s.Holds(t.Context())
		if err != nil || len(holds) != want {
			t.Errorf("%s: %d holds, want %d (%v)", why, len(holds), want, err)
		}
	}
	s.clock.set(at.Add(time.Second))
	elsewhere := "https://elsewhere.example/"
	s.buy("r1", "a", terms{amount: "599999"})
	s.buy("r1", "b", terms{amount: "600001"})
	active(2, "other amounts")
	s.buy("r1", "c", terms{amount: "600000", payTo: other, resource: elsewhere})
	active(2, "another payee")
	s.submit("r1", "d", terms{amount: "600000", network: "eip155:84532", asset: "0x036CbD53842c5426634e7929541eC2318f3dCF7e"})
	s.submit("r1", "e", terms{amount: "600000", network: "eip155:84532"})
	active(2, "another asset")
	s.event("r1", "f", "x402.payment.required", map[string]any{"x402_version": 2, "accepts": []any{terms{amount: "600000"}.payload()["requirements"]}})
	s.event("r1", "g", "x402.payment.creating", terms{amount: "600000"}.payload())
	active(2, "no payment was made")
	s.clock.set(at.Add(-2001 * time.Millisecond))
	s.buy("r1", "h", terms{amount: "600000"})
	s.clock.set(at.Add(2 * time.Second))
	active(2, "a payment from before the hold")
	s.buy("r2", "i", terms{amount: "600000"})
	active(1, "one payment ends one hold")
	s.restart(`{"reviewAbove": "100"}`, false)
	s.want("review", guard.Request{Amount: "0.10"}, "open_partial", "mixed_assets") // writes down what has ended
	active(1, "and only one, also once it is written down")
	s.buy("r2", "i", terms{amount: "600000"})
	active(0, "the second payment of an operation ends the second")
}

func TestAnApprovalIsForOnePayment(t *testing.T) {
	open := func(t *testing.T) (*site, string) {
		s := newSite(t, "")
		s.submit("r1", "before", terms{amount: "250000"}) // last night's payment
		s.clock.add(12 * time.Hour)
		v := s.want("review", guard.Request{Amount: "0.25"}, "open_partial", "duplicate_purchase")
		s.decide("approved", v.ReviewID)
		return s, v.ReviewID
	}
	status := func(s *site, id, want string) {
		s.t.Helper()
		if v, err := s.Review(s.t.Context(), id, 0); err != nil || v.Status != want {
			s.t.Errorf("the review is %+v, %v; want it %s", v, err, want)
		}
	}
	t.Run("it is redeemed once", func(t *testing.T) {
		s, id := open(t)
		status(s, id, "approved")
		v := s.want("allow", guard.Request{Amount: "0.25", ReviewID: id}, "approved_by_human")
		status(s, id, "used")
		s.want("review", guard.Request{Amount: "0.25", ReviewID: id}, "open_partial", "duplicate_purchase")
		// Giving the hold back does not give the approval back.
		if err := s.ReleaseHold(t.Context(), v.Hold.ID, ""); err != nil {
			t.Fatal(err)
		}
		s.want("review", guard.Request{Amount: "0.25", ReviewID: id}, "open_partial", "duplicate_purchase")
		status(s, id, "used")
	})
	t.Run("its hold running out does not bring it back", func(t *testing.T) {
		s, id := open(t)
		s.want("allow", guard.Request{Amount: "0.25", ReviewID: id}, "approved_by_human")
		s.clock.add(time.Hour)
		s.want("review", guard.Request{Amount: "0.25", ReviewID: id}, "open_partial", "duplicate_purchase")
	})
	t.Run("it is not for another amount, payee or resource", func(t *testing.T) {
		s, id := open(t)
		for _, r := range []guard.Request{
			{Amount: "0.250001", ReviewID: id}, {Amount: "0.25", PayTo: other, ReviewID: id}, {Amount: "0.25", Resource: shop, ReviewID: id},
		} {
			if v := s.ask(r); v.Decision != "review" {
				t.Errorf("%+v: %s", r, v.Decision)
			}
		}
		status(s, id, "approved")
	})
	t.Run("last night's payment does not use it up", func(t *testing.T) {
		s, id := open(t)
		now := s.clock.now()
		s.clock.set(now.Add(-11 * time.Hour))
		s.submit("r1", "late", terms{amount: "250000", payTo: other, resource: "https://other.example/"})
		s.clock.set(now)
		status(s, id, "approved")
		s.want("allow", guard.Request{Amount: "0.25", ReviewID: id}, "approved_by_human")
	})
	t.Run("a payment made without it uses it up", func(t *testing.T) {
		s, id := open(t)
		s.clock.add(time.Minute)
		s.buy("r2", "op2", terms{amount: "250000"})
		status(s, id, "used")
		v := s.want("review", guard.Request{Amount: "0.25"}, "open_partial", "duplicate_purchase")
		if v.ReviewID == id {
			t.Error("the agent is sent to an approval that is used up")
		}
		s.want("review", guard.Request{Amount: "0.25", ReviewID: id}, "open_partial", "duplicate_purchase")
	})
	t.Run("the payment of its hold uses up no second approval", func(t *testing.T) {
		s, id := open(t)
		s.want("allow", guard.Request{Amount: "0.25", ReviewID: id}, "approved_by_human")
		v := s.want("review", guard.Request{Amount: "0.25"}, "open_partial", "duplicate_purchase")
		s.decide("approved", v.ReviewID)
		s.clock.add(time.Second)
		s.buy("r2", "op2", terms{amount: "250000"})
		status(s, v.ReviewID, "approved")
		s.want("review", guard.Request{Amount: "0.26"}, "open_partial")
		status(s, v.ReviewID, "approved")
	})
	t.Run("of two approvals of one intent the one that covers is named", func(t *testing.T) {
		s, id := open(t)
		s.submit("r2", "more", terms{amount: "10000"})
		v := s.ask(guard.Request{Amount: "0.25", ReviewID: id})
		if v.Decision != "review" || v.ReviewID == id {
			t.Fatal("no new review for what the first did not show")
		}
		s.decide("approved", v.ReviewID)
		for _, r := range []guard.Request{{Amount: "0.25"}, {Amount: "0.25", ReviewID: id}} {
			if again := s.ask(r); again.Decision != "review" || again.ReviewID != v.ReviewID {
				t.Errorf("asked with %q: %s, want %s", r.ReviewID, again.ReviewID, v.ReviewID)
			}
		}
		s.want("allow", guard.Request{Amount: "0.25", ReviewID: v.ReviewID}, "approved_by_human")
	})
}

func TestALittleLessAfterARefusalIsForAPerson(t *testing.T) {
	s := newSite(t, `{"counterpartyAliases": {"shop": ["`+other+`", "`+seller+`"]}}`)
	v := s.want("review", guard.Request{Amount: "2.00"}, "review_above")
	s.decide("rejected", v.ReviewID)
	s.want("block", guard.Request{Amount: "2.00"}, "rejected_by_human", "review_above")
	s.want("block", guard.Request{Amount: "2.000000", Asset: "USDC"}, "rejected_by_human", "review_above")
	s.want("review", guard.Request{Amount: "1.99"}, "recently_rejected", "review_above")
	s.want("review", guard.Request{Amount: "0.01"}, "recently_rejected")
	s.want("review", guard.Request{Counterparty: strings.ToLower(seller), Amount: "0.01"}, "recently_rejected")
	s.want("review", guard.Request{Counterparty: "shop.example", PayTo: seller, Amount: "0.01"}, "recently_rejected")
	s.want("review", guard.Request{Counterparty: other, Amount: "0.01"}, "recently_rejected")
	s.want("review", guard.Request{Counterparty: "shop.example", Offer: offerOf(seller, "10000"), Amount: "0.01"}, "recently_rejected")
	s.want("allow", guard.Request{Counterparty: "0x3333333333333333333333333333333333333333", Amount: "0.01"})
	s.clock.add(24*time.Hour + time.Second)
	s.want("allow", guard.Request{Amount: "0.01"})
}

func TestAQueryBehindAQuestionMarkIsNoOtherPurchase(t *testing.T) {
	s := newSite(t, "")
	v := s.want("review", guard.Request{Amount: "2", Resource: shop + "?n=1"}, "review_above")
	s.decide("rejected", v.ReviewID)
	s.want("block", guard.Request{Amount: "2", Resource: shop + "?n=2"}, "rejected_by_human", "review_above")
	s.want("block", guard.Request{Amount: "2", Resource: shop}, "rejected_by_human", "review_above")
	s.want("block", guard.Request{Amount: "2", Resource: "HTTPS://SHOP.example:443/report#x"}, "rejected_by_human", "review_above")
	s.want("review", guard.Request{Amount: "2", Resource: shop + "s"}, "recently_rejected", "review_above")
}

func TestTheSameIntentAskedFiveTimesOpensOneReview(t *testing.T) {
	s := newSite(t, "")
	r := guard.Request{Amount: "2", Resource: shop}
	id := s.want("review", r, "review_above").ReviewID
	lines := s.state().Lines()
	spellings := []guard.Request{
		r, {Amount: "2.0", Resource: "https://SHOP.example:443/report", Counterparty: strings.ToLower(seller)},
		{Amount: "2.000000", Asset: "USDC", Resource: shop}, {Amount: "2", Resource: shop, Template: "x402-seller", Hold: true},
	}
	for _, r := range spellings {
		if v := s.want("review", r, "review_above"); v.ReviewID != id {
			t.Errorf("%+v opened %s", r, v.ReviewID)
		}
	}
	if n := s.state().Lines(); n != lines {
		t.Errorf("asking again made %d lines", n-lines)
	}
	s.decide("rejected", id)
	for _, r := range spellings {
		if v := s.want("block", r, "rejected_by_human", "review_above"); v.ReviewID != "" {
			t.Errorf("the refused payment was raised again as %s", v.ReviewID)
		}
	}
	reviews := 0
	for range s.state().Reviews() {
		reviews++
	}
	if reviews != 1 {
		t.Errorf("%d reviews", reviews)
	}
}

func TestAskingEveryTenMinutesForADayWearsNobodyDown(t *testing.T) {
	s := newSite(t, `{"maxPendingReviews": 3}`)
	var ids []string
	for range 6 * 24 {
		v := s.want("review", guard.Request{Amount: "2"}, "review_above")
		if len(ids) == 0 || ids[len(ids)-1] != v.ReviewID {
			ids = append(ids, v.ReviewID)
		}
		s.clock.add(10 * time.Minute)
	}
	if len(ids) != 1 {
		t.Errorf("a day of asking opened %d reviews", len(ids))
	}
	s.want("review", guard.Request{Amount: "2"}, "review_above") // silence is not consent
	for i := range 10 {
		s.want("review", guard.Request{Amount: fmt.Sprintf("2.0%d", i)}, "review_above")
	}
	if n := s.state().Pending("", s.clock.now()); n != 3 {
		t.Errorf("%d reviews are pending", n)
	}
	// Refused, it stays refused for as long as the policy says, and is not raised.
	id := s.ask(guard.Request{Amount: "2"}).ReviewID
	s.decide("rejected", id)
	lines := s.state().Lines()
	for range 6 * 24 {
		s.want("block", guard.Request{Amount: "2"}, "rejected_by_human", "review_above")
		s.clock.add(10*time.Minute - time.Second)
	}
	if n := s.state().Pending("", s.clock.now().Add(-23*time.Hour)); n > 3 {
		t.Errorf("%d reviews, %d lines", n, s.state().Lines()-lines)
	}
}

func TestRunFilesThatLoseWhatWasSeen(t *testing.T) {
	attacks := map[string]func(s *site){
		"trimmed":            func(s *site) { _ = os.Truncate(s.run("r2"), 700) },
		"trimmed to nothing": func(s *site) { _ = os.Truncate(s.run("r2"), 0) },
		"deleted":            func(s *site) { _ = os.Remove(s.run("r2")) },
		"moved away":         func(s *site) { _ = os.Rename(s.run("r2"), filepath.Join(s.dir, "r2")) },
		"replaced by a longer one": func(s *site) {
			text, _ := os.ReadFile(s.run("r1"))
			_ = os.Remove(s.run("r2"))
			s.write(s.run("r2"), bytes.Repeat(text, 40))
		},
		"replaced by an empty one": func(s *site) { _ = os.Remove(s.run("r2")); s.write(s.run("r2"), nil) },
		"edited in place": func(s *site) {
			text, _ := os.ReadFile(s.run("r2"))
			s.write(s.run("r2"), bytes.ReplaceAll(text, []byte(`"amount":"500000"`), []byte(`"amount":"000001"`)))
		},
		"edited and made longer": func(s *site) {
			text, _ := os.ReadFile(s.run("r2"))
			s.write(s.run("r2"), append(bytes.ReplaceAll(text, []byte(`"amount":"500000"`), []byte(`"amount":"500"`)), bytes.Repeat([]byte("\n"), 100)...))
		},
		"a line taken out": func(s *site) {
			text, _ := os.ReadFile(s.run("r2"))
			_, rest, _ := bytes.Cut(text, []byte("\n"))
			s.write(s.run("r2"), rest)
		},
	}
	for name, attack := range attacks {
		for _, how := range []string{"while it runs", "while it is stopped", "with the index deleted"} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, "")
				s.buy("r2", "op1", terms{})
				s.clock.add(time.Hour)
				s.want("allow", guard.Request{})
				s.clock.add(time.Minute)
				if how == "while it runs" {
					attack(s)
				} else {
					_ = s.index.Close()
					attack(s)
					s.restart("", how == "with the index deleted")
				}
				rewritten(s)
				rewritten(s)
				s.restart("", true)
				rewritten(s)
				n := s.state().Lines()
				if s.ask(guard.Request{Amount: "0.33"}); s.state().Lines() > n+2 {
					t.Errorf("asking wrote %d lines", s.state().Lines()-n)
				}
			})
		}
	}
}

// rewritten asks and wants the damage named, whatever else there is.
func rewritten(s *site) {
	s.t.Helper()
	v := s.ask(guard.Request{Amount: "0.31"})
	named := false
	for _, r := range v.Reasons {
		named = named || r.Rule == "damaged_history" && strings.Contains(r.Detail, `run "r2"`)
	}
	if v.Decision != "review" || !named {
		s.t.Errorf("%s %v", v.Decision, v.Reasons)
	}
}

func TestWhatWasAcceptedOnceIsNotAcceptedAgain(t *testing.T) {
	for name, attack := range map[string]func(s *site){
		"deleted": func(s *site) { _ = os.Remove(s.run("r2")) },
		"trimmed": func(s *site) { _ = os.Truncate(s.run("r2"), 700) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "")
			s.buy("r2", "op1", terms{})
			s.want("allow", guard.Request{})
			whole, err := os.ReadFile(s.run("r2"))
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				attack(s)
				rewritten(s)
				run := "r2"
				if name == "deleted" {
					run = ""
				}
				if _, err := s.Acknowledge(t.Context(), run, "known", nil); err != nil {
					t.Fatal(err)
				}
				if v := s.ask(guard.Request{Amount: "0.32"}); name == "deleted" && v.Decision != "allow" {
					t.Errorf("after the acknowledgement: %s %v", v.Decision, v.Reasons)
				}
				s.write(s.run("r2"), whole)
				s.clock.add(2 * time.Minute)
				s.ask(guard.Request{Amount: "0.33"})
			}
		})
	}
}

func TestALogWhoseTailIsCutIsUnsound(t *testing.T) {
	for name, cut := range map[string]func([]byte) []byte{
		"the last line":   func(b []byte) []byte { return b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1] },
		"half of it":      func(b []byte) []byte { return b[:len(b)-20] },
		"everything":      func([]byte) []byte { return nil },
		"all but a line":  func(b []byte) []byte { return b[:bytes.IndexByte(b, '\n')+1] },
		"to another tail": func(b []byte) []byte { return append(b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1], "{}\n"...) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "")
			pin := filepath.Join(t.TempDir(), "pin")
			g := s.beside("", func(o *guard.Options) { o.Checkpoint = pin })
			id := g.want("review", guard.Request{Amount: "2"}, "review_above").ReviewID
			g.decide("rejected", id)
			g.want("block", guard.Request{Amount: "2"}, "rejected_by_human", "review_above")
			s.write(s.logPath(), cut(s.logText()))
			v := g.ask(guard.Request{Amount: "2"})
			if v.Decision == "allow" || firedBy(v)[0] != "log_unsound" || v.ReviewID != "" {
				t.Errorf("the process that has seen more: %s %v", v.Decision, v.Reasons)
			}
			later := s.beside("", func(o *guard.Options) { o.Checkpoint = pin })
			v = later.ask(guard.Request{Amount: "2"})
			if v.Decision == "allow" || firedBy(v)[0] != "log_unsound" || v.ReviewID != "" {
				t.Errorf("the process with a checkpoint: %s %v", v.Decision, v.Reasons)
			}
		})
	}
}

func TestOneJunkLineMakesTheLogUnsoundUntilAPersonRecovers(t *testing.T) {
	for name, junk := range map[string]string{
		"junk": "junk\n", "an object": "{}\n", "an empty line": "\n", "a copy of the last line": "", "deep": strings.Repeat("[", 20000) + "\n", "a NUL": "\x00\n",
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, "")
			id := s.want("review", guard.Request{Amount: "2"}, "review_above").ReviewID
			s.decide("rejected", id)
			if _, err := s.Freeze(t.Context(), other, "odd"); err != nil {
				t.Fatal(err)
			}
			text := s.logText()
			if junk == "" {
				junk = string(text[bytes.LastIndexByte(text[:len(text)-1], '\n')+1:])
			}
			s.write(s.logPath(), append(bytes.Clone(text), junk...))
			again := s.beside("", nil)
			for _, g := range []*site{s, again} {
				v := g.want("review", guard.Request{Counterparty: "new.example", Hold: true}, "log_unsound")
				if v.ReviewID != "" || v.Hold != nil {
					t.Errorf("%+v", v)
				}
				// What can still be read goes on blocking.
				g.want("block", guard.Request{Amount: "2"}, "log_unsound", "rejected_by_human", "review_above")
				g.want("block", guard.Request{Counterparty: other}, "frozen", "log_unsound")
			}
			if !bytes.Equal(append(text, junk...), s.logText()) {
				t.Error("something was written behind it")
			}
		})
	}
}

func TestATornTailIsSetAsideAndBelievedByNobody(t *testing.T) {
	s := newSite(t, "")
	v := s.want("review", guard.Request{Amount: "2"}, "review_above")
	text := s.logText()
	forged := fmt.Sprintf(`{"at":"2026-03-10T12:00:00.000Z","decision":"approved","review_id":%q,"type":"decided"`, v.ReviewID)
	s.write(s.logPath(), append(text, forged...))
	s.restart("", false)
	s.want("review", guard.Request{Amount: "2", ReviewID: v.ReviewID}, "review_above")
	s.want("allow", guard.Request{})
	torn, err := filepath.Glob(filepath.Join(s.dir, "guard", "torn-*.bin"))
	if err != nil || len(torn) != 1 {
		t.Fatal(torn, err)
	}
	if kept, _ := os.ReadFile(torn[0]); string(kept) != forged {
		t.Errorf("%q was set aside", kept)
	}
}

// operator signs with a key of a test.
type operator struct{ key ed25519.PrivateKey }

func newOperator() operator { return operator{ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32))} }

func (o operator) Name() string { return "alice" }
func (o operator) PublicKey() string {
	return base64.StdEncoding.EncodeToString(o.key.Public().(ed25519.PublicKey))
}
func (o operator) Sign(payload []byte) ([]byte, error) { return ed25519.Sign(o.key, payload), nil }

// forge changes lines of the log and mends the chain behind them, as whoever may
// write the file can.
func (s *site) forge(change func(line map[string]any)) {
	s.t.Helper()
	var out []byte
	prev := ""
	for _, text := range bytes.SplitAfter(bytes.TrimSuffix(s.logText(), []byte("\n")), []byte("\n")) {
		var line map[string]any
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		if err := dec.Decode(&line); err != nil {
			s.t.Fatal(err)
		}
		change(line)
		delete(line, "sig")
		delete(line, "prev")
		src, err := canon.Marshal(line)
		if err != nil {
			s.t.Fatal(err)
		}
		var doc jsjson.Doc
		if err := doc.Parse(src); err != nil {
			s.t.Fatal(err)
		}
		sig, err := canon.Chain(prev, doc.Root(), canon.JCS)
		if err != nil {
			s.t.Fatal(err)
		}
		line["prev"], line["sig"] = prev, sig
		prev = sig
		if src, err = canon.Marshal(line); err != nil {
			s.t.Fatal(err)
		}
		out = append(append(out, src...), '\n')
	}
	s.write(s.logPath(), out)
}

func TestAGenuineSignatureCoversWhatWasShown(t *testing.T) {
	by := newOperator()
	policy := fmt.Sprintf(`{"reviewAbove": "1", "operators": [{"name": "alice", "publicKey": %q}]}`, by.PublicKey())
	open := func(t *testing.T) (*site, string) {
		s := newSite(t, policy)
		s.want("allow", guard.Request{})
		id := s.want("review", guard.Request{Amount: "2"}, "review_above").ReviewID
		if _, err := s.Decide(t.Context(), guard.Decision{IDs: []string{id}, Decision: "approved", Signer: by}); err != nil {
			t.Fatal(err)
		}
		return s, id
	}
	t.Run("as it was signed it counts", func(t *testing.T) {
		s, id := open(t)
		s.forge(func(map[string]any) {}) // the same log again: the forger of these tests is exact
		s.restart(policy, false)
		s.want("allow", guard.Request{Amount: "2", ReviewID: id}, "approved_by_human")
	})
	for name, change := range map[string]func(line map[string]any){
		"another amount": func(line map[string]any) {
			if line["type"] == "opened" {
				line["intent"].(map[string]any)["amount"] = "3000000"
			}
		},
		"another payee": func(line map[string]any) {
			if line["type"] == "opened" {
				line["intent"].(map[string]any)["names"] = []string{decisionName(other)}
			}
		},
		"one more reason": func(line map[string]any) {
			if line["type"] == "opened" {
				line["reasons"] = append(line["reasons"].([]any), map[string]any{"rule": "open_partial", "detail": "x"})
			}
		},
		"a later expiry": func(line map[string]any) {
			if line["type"] == "opened" {
				line["expires_at"] = "2036-01-01T00:00:00.000Z"
			}
		},
		"another log": func(line map[string]any) {
			if line["seq"] == json.Number("1") {
				line["version"] = "another"
			}
		},
		"no signature": func(line map[string]any) {
			for _, m := range []string{"signature", "key", "signed_at"} {
				delete(line, m)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, id := open(t)
			s.forge(change)
			s.restart(policy, false)
			for _, r := range []guard.Request{
				{Amount: "2", ReviewID: id}, {Amount: "3", ReviewID: id}, {Counterparty: other, Amount: "2", ReviewID: id},
			} {
				if v := s.ask(r); v.Decision == "allow" {
					t.Errorf("%+v: %s %v", r, v.Decision, v.Reasons)
				}
			}
		})
	}
	t.Run("an agent without the key loosens nothing", func(t *testing.T) {
		s := newSite(t, policy)
		id := s.want("review", guard.Request{Amount: "2"}, "review_above").ReviewID
		if _, err := s.Decide(t.Context(), guard.Decision{IDs: []string{id}, Decision: "approved"}); err == nil {
			t.Error("it was approved unsigned")
		}
		// A program that does not know the policy writes the line all the same.
		if _, err := s.beside("", nil).Decide(t.Context(), guard.Decision{IDs: []string{id}, Decision: "approved"}); err == nil {
			s.want("review", guard.Request{Amount: "2", ReviewID: id}, "review_above")
		}
	})
}

func decisionName(address string) string { return strings.ToLower(address) }

func TestAnEmptyRootIsARecorderThatIsNotWired(t *testing.T) {
	s := &site{t: t, dir: t.TempDir(), clock: &clock{t: time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)}}
	s.open("")
	s.want("review", guard.Request{}, "recorder_silent")
	s.want("review", guard.Request{Hold: true, Counterparty: other}, "recorder_silent")
	g := s.beside("", func(o *guard.Options) { o.Fault = errcode.New(errcode.Input, "make it", "the root is missing") })
	v := g.want("review", guard.Request{}, "not_ready")
	if v.ReviewID != "" || v.Hold != nil {
		t.Errorf("%+v", v)
	}
}

func TestASellerWhoRotatesPayToIsOneCounterparty(t *testing.T) {
	policy := `{"perCounterpartyLimit": {"amount": "1.00", "windowHours": 24}, "limits": [{"name": "host", "scope": "host", "amount": "1.20", "windowHours": 24, "action": "block"}, {"name": "day", "scope": "total", "amount": "1.50", "windowHours": 24, "action": "block"}]}`
	s := newSite(t, policy)
	fresh := func(i int) string { return fmt.Sprintf("0x%040d", i) }
	for i := range 2 {
		s.want("allow", guard.Request{Counterparty: "shop.example", Amount: "0.50", Resource: shop})
		s.buy("r1", fmt.Sprint(i), terms{payTo: fresh(i), amount: "500000"})
		s.clock.add(time.Minute)
	}
	s.want("review", guard.Request{Counterparty: "shop.example", PayTo: fresh(3), Amount: "0.01"}, "per_counterparty_limit", "payee_changed")
	s.want("review", guard.Request{Counterparty: fresh(3), Resource: shop, Amount: "0.01"}, "per_counterparty_limit")
	s.want("block", guard.Request{Counterparty: "shop.example", PayTo: fresh(3), Amount: "0.21"}, "per_counterparty_limit", "limit:host", "payee_changed")
	s.want("review", guard.Request{Counterparty: "shop.example", PayTo: fresh(1), Amount: "0.01"}, "per_counterparty_limit")
	// Where the agent names the new address alone, the limit on everything is left.
	s.want("allow", guard.Request{Counterparty: fresh(4), Amount: "0.50"})
	s.want("block", guard.Request{Counterparty: fresh(4), Amount: "0.51"}, "limit:day")
}

func TestAnAddressThatAnAnswerNamesIsNoneThatWasPaid(t *testing.T) {
	const policy = `{"perCounterpartyLimit": {"amount": "100", "windowHours": 24}}`
	for name, answer := range map[string]func(s *site){
		"for the payment": func(s *site) { s.settle("r1", "a", terms{payTo: other}) },
		"for another host too": func(s *site) {
			s.settle("r1", "a", terms{payTo: other, resource: "https://elsewhere.example/x"})
		},
		"for another host too, later in the alphabet": func(s *site) {
			s.settle("r1", "a", terms{payTo: other, resource: "https://zzz.example/x"})
		},
		"beside the payment's own": func(s *site) {
			s.settle("r1", "a", terms{})
			s.settle("r1", "a", terms{payTo: other})
		},
		"in no operation that was paid": func(s *site) {
			s.settle("r1", "a", terms{})
			s.settle("r1", "b", terms{payTo: other})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, policy)
			s.submit("r1", "a", terms{})
			answer(s)
			for payTo, fires := range map[string]bool{seller: false, other: true} {
				v := s.ask(guard.Request{Counterparty: "shop.example", PayTo: payTo, Amount: "0.01", Resource: "https://shop.example/y"})
				if got := slices.ContainsFunc(v.Reasons, func(r decision.Reason) bool { return r.Rule == "payee_changed" }); got != fires {
					t.Errorf("%s: payee_changed %v, want %v: %v", payTo, got, fires, v.Reasons)
				}
			}
		})
	}
	for _, ok := range []bool{true, false} {
		t.Run(fmt.Sprintf("in place of the one of several that was offered first, success %v", ok), func(t *testing.T) {
			s := newSite(t, policy)
			s.buy("r1", "before", terms{})
			offered := []any{terms{}.payload()["requirements"], terms{payTo: other}.payload()["requirements"]}
			s.event("r1", "asked", "x402.payment.requested", map[string]any{"x402_version": 2, "resource": map[string]any{"url": shop}, "accepts": offered})
			answer := terms{payTo: other}.payload()
			answer["settle"] = map[string]any{"success": ok, "transaction": "", "network": "eip155:8453", "error_reason": "insufficient_funds"}
			s.event("r1", "asked", map[bool]string{true: "x402.payment.responded", false: "x402.settle.failed"}[ok], answer)
			v := s.ask(guard.Request{Counterparty: "shop.example", PayTo: other, Amount: "0.01", Resource: "https://shop.example/y"})
			if !slices.ContainsFunc(v.Reasons, func(r decision.Reason) bool { return r.Rule == "payee_changed" }) {
				t.Errorf("%s by %+v", v.Decision, v.Reasons)
			}
		})
	}
	t.Run("until the agent signs to pay it", func(t *testing.T) {
		s := newSite(t, policy)
		s.submit("r1", "a", terms{})
		s.settle("r1", "a", terms{payTo: other})
		s.submit("r1", "b", terms{payTo: other, amount: "7"})
		s.settle("r1", "b", terms{payTo: other, amount: "7"})
		s.want("allow", guard.Request{Counterparty: "shop.example", PayTo: other, Amount: "0.01", Resource: "https://shop.example/y"})
	})
	t.Run("nor at the host that it names", func(t *testing.T) {
		s := newSite(t, policy)
		s.submit("r1", "a", terms{resource: "https://elsewhere.example/x", payTo: other})
		s.settle("r1", "a", terms{payTo: other})
		s.want("review", guard.Request{Counterparty: "shop.example", PayTo: other, Amount: "0.01", Resource: "https://shop.example/y"}, "payee_changed")
	})
}

func TestAChangedPayeeIsSaidOfTheHostThatWasPaid(t *testing.T) {
	s := newSite(t, `{"counterpartyAliases": {"shop.example": ["shop2.example", "shop3.example"]}}`)
	s.buy("r1", "a", terms{})
	s.clock.add(time.Minute)
	const there = "https://shop2.example/x"
	said := func(want string, n int) {
		t.Helper()
		v := s.want("review", guard.Request{Counterparty: "shop3.example", PayTo: other, Amount: "0.01", Resource: there}, "payee_changed")
		if r := v.Reasons[0]; !strings.HasPrefix(r.Detail, want) || len(r.Evidence) != n {
			t.Errorf("%s, %v", r.Detail, r.Evidence)
		}
	}
	said(`"shop.example" was paid before (1 operation), `, 1)
	s.buy("r1", "b", terms{resource: there})
	said(`"shop.example", "shop2.example" were paid before (2 operations), `, 2)
}

func TestASellerWhoDeclaresAnotherHostIsStillPaid(t *testing.T) {
	s := newSite(t, `{"perCounterpartyLimit": {"amount": "1.00", "windowHours": 24}}`)
	s.buy("r1", "a", terms{resource: "https://innocent.example/x", amount: "900000"})
	s.want("review", guard.Request{Counterparty: "shop.example", PayTo: seller, Amount: "0.11"}, "per_counterparty_limit")
	s.want("review", guard.Request{Counterparty: "shop.example", Offer: offerOf(seller, "110000"), Amount: "0.11"}, "per_counterparty_limit")
	s.submit("r1", "b", terms{resource: "https://innocent.example/x", amount: "10000"})
	s.want("review", guard.Request{Counterparty: "shop.example", PayTo: seller, Amount: "0.01"}, "open_partial", "duplicate_purchase")
}

func TestASellerWhoPricesInExponentsIsNotPaid(t *testing.T) {
	s := newSite(t, "")
	for _, amount := range []string{"1e6", "1E6", "+1", " 1", "1 ", "-5", "0x1", "1.5", "01", "", "\uff11", "1_0", "NaN", "1,0"} {
		s.refused(guard.Request{Counterparty: seller, Offer: offerOf(seller, amount)})
		if amount != "1.5" && amount != "" {
			s.refused(guard.Request{Counterparty: seller, Amount: amount})
		}
	}
	s.refused(guard.Request{Offer: json.RawMessage(strings.Replace(string(offerOf(seller, "1")), `"maxAmountRequired":"1"`, `"maxAmountRequired":1`, 1))})
	s.refused(guard.Request{Offer: json.RawMessage(strings.Replace(string(offerOf(seller, "1")), `"maxAmountRequired":"1"`, `"maxAmountRequired":"1","amount":"2"`, 1))})
	s.refused(guard.Request{Offer: json.RawMessage(strings.Replace(string(offerOf(seller, "1")), `"maxAmountRequired":"1"`, `"maxAmountRequired":"1","MaxAmountRequired":"2"`, 1))})
	s.refused(guard.Request{Counterparty: other, Offer: offerOf(seller, "1")})
	s.refused(guard.Request{Amount: "0.5", Offer: offerOf(seller, "1")})
	s.want("review", guard.Request{Amount: "0"}, "unparseable_amount")
	s.want("review", guard.Request{Counterparty: "shop.example", Offer: offerOf(seller, "0"), Amount: "0"}, "unparseable_amount")
}

func TestAClockSetBackLoosensNothing(t *testing.T) {
	s := newSite(t, `{"perCounterpartyLimit": {"amount": "1.00", "windowHours": 24}, "holdSeconds": 600}`)
	id := s.want("review", guard.Request{Counterparty: other, Amount: "2"}, "per_counterparty_limit", "review_above").ReviewID
	s.decide("rejected", id)
	s.buy("r1", "op1", terms{amount: "300000"})
	s.want("allow", guard.Request{Amount: "0.60", Hold: true})
	for _, back := range []time.Duration{time.Second, time.Minute, time.Hour, 48 * time.Hour} {
		s.clock.add(-back)
		s.want("block", guard.Request{Counterparty: other, Amount: "2"}, "rejected_by_human", "per_counterparty_limit", "review_above")
		s.want("review", guard.Request{Counterparty: other, Amount: "0.01"}, "recently_rejected")
		s.want("review", guard.Request{Amount: "0.11"}, "per_counterparty_limit")
		if n := s.state().Pending("", s.clock.now()); n > 2 {
			t.Errorf("%d reviews", n)
		}
	}
}

func TestAFreezeHoldsInEverySpelling(t *testing.T) {
	s := newSite(t, "")
	if _, err := s.Freeze(t.Context(), "https://B\u00fccher.example:443/x", "odd"); err != nil {
		t.Fatal(err)
	}
	for _, r := range []guard.Request{
		{Counterparty: "b\u00fccher.example"}, {Counterparty: "XN--BCHER-KVA.example."}, {Resource: "http://u@xn--bcher-kva.example:80/y"},
	} {
		s.want("block", r, "frozen")
	}
	if err := s.Unfreeze(t.Context(), "B\u00dcCHER.example.", "fine", nil); err != nil {
		t.Error(err)
	}
	s.want("allow", guard.Request{Counterparty: "b\u00fccher.example"})
}

func TestALimitOnEverythingKnowsWhatItCannotReadBeforeItsAssetWasEverPaid(t *testing.T) {
	s := newSite(t, `{"limits": [{"name": "day", "scope": "total", "amount": "10.00", "windowHours": 24, "action": "block"}]}`)
	s.event("r1", "op1", "x402.payment.submitted", map[string]any{"x402_version": 1})
	s.want("review", guard.Request{}, "limit:day")
	op := "op1"
	err := s.Resolve(t.Context(), []guard.Resolution{{Ref: decision.Ref{Run: "r1", Operation: &op}, Outcome: "settled", Amount: "9.60", Note: "asked"}})
	if err != nil {
		t.Fatal(err)
	}
	s.want("allow", guard.Request{Amount: "0.40"})
	s.want("block", guard.Request{Amount: "0.41"}, "limit:day")
}
