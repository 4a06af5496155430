package guard

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/guard/payment"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// record is what the log says about a question.
func (g *Guard) record(s *decision.State, m *matching, ask *Ask, now time.Time) *Record {
	r := &Record{Frozen: g.frozen(s, ask)}
	for refused := range s.Rejections(now, g.policy.StickyRejectHours) {
		switch {
		case r.Rejected == nil && sticks(refused.Intent, ask.Intent):
			r.Rejected = refusal(refused)
		case r.Nearby == nil:
			if what := g.policy.nearby(&refused.Opened, ask); what != "" {
				r.Nearby = refusal(refused)
				r.Nearby.What = what
			}
		}
	}
	if ask.ReviewID != "" {
		r.Approval, r.NoApproval = redeemable(s, m, ask, now)
	}
	return r
}

// frozen words the freeze in force, "" for none.
func (g *Guard) frozen(s *decision.State, ask *Ask) string {
	if g.frozenByFile() {
		return "everything is frozen by the file " + frozenFile + " in the guard directory: only a person may remove it"
	}
	if s == nil {
		return ""
	}
	f, ok := s.Frozen(frozenAs(ask.Names))
	if !ok {
		return ""
	}
	what := "everything"
	if f.Scope != decision.ScopeAll {
		what = plain.Quote(payment.Display(f.Scope), plain.Detail)
	}
	text := what + " is frozen by a person"
	if f.Reason != "" {
		text += ", noting " + plain.Quote(f.Reason, plain.Detail)
	}
	return text + ": only a person can unfreeze it"
}

// frozenAs are the names that a freeze of them may have: it is written under one name,
// and what a person typed as a host may have been an account (alice.near).
func frozenAs(names []string) []string {
	out := slices.Clone(names)
	for _, name := range names {
		if account, ok := strings.CutPrefix(name, accountPrefix); ok {
			if host := payment.Name(account); isHost(host) {
				out = append(out, host)
			}
		}
	}
	return out
}

func refusal(r *decision.ReviewState) *Refusal {
	out := &Refusal{ReviewID: r.ReviewID, At: r.At}
	if d := r.Last(); d != nil {
		out.At, out.By, out.Note = d.At, decidedBy(d), d.Note
	}
	return out
}

// sticks reports whether a refusal is of the same intent. It is also where only the
// resource's query differs: a number behind a question mark makes no other purchase
// (guard contract, section 4).
func sticks(refused, asked decision.Intent) bool {
	refused.Resource, asked.Resource = withoutQuery(refused.Resource), withoutQuery(asked.Resource)
	return refused.Same(asked)
}

func withoutQuery(resource string) string {
	before, _, _ := strings.Cut(resource, "?") // a canonical resource has no fragment
	return before
}

// nearby says what a person refused, where that was another payment to the same payee;
// "" where it was not. The same payee is the same address or alias group, or the same
// host where the counterparty was given as a host. The host of a resource is only typed
// beside the payee, so neither it nor what it may stand for is one (guard contract,
// section 1, recently_rejected).
func (p *Policy) nearby(refused *decision.Opened, ask *Ask) string {
	given := ask.Typed
	if ask.PayTo != "" {
		given = append(slices.Clone(given), ask.PayTo)
	}
	payees := readings(payeesOf(refused))
	for _, name := range given {
		if shares(readings([]string{name}), payees) {
			return "another payment to " + shownName(name)
		}
	}
	group := p.Expand(payees...)
	for _, name := range given {
		if shares(p.Expand(name), group) {
			return "another payment to an alias of " + shownName(name)
		}
	}
	// Who asks about the host itself after a refusal there has only left the address out.
	for _, name := range ask.Typed {
		if isHost(name) && slices.Contains(refused.Intent.Names, name) {
			return "a payment for a resource at " + shownName(name)
		}
	}
	return ""
}

// payeesOf are the names of an intent but for a host that only its resource has. That is
// so where the counterparty of the review is another of the names; where that cannot be
// told, the host stays.
func payeesOf(r *decision.Opened) []string {
	host, typed := resourceHost(r.Intent.Resource), typedNames(r.Counterparty)
	beside := !slices.Contains(typed, host) && shares(typed, r.Intent.Names)
	return slices.DeleteFunc(slices.Clone(r.Intent.Names), func(name string) bool { return beside && name == host })
}

// redeemable gives the review a request rests on, or says why it may not.
func redeemable(s *decision.State, m *matching, ask *Ask, now time.Time) (*decision.Opened, string) {
	id := plain.Clean(ask.ReviewID, plain.Detail)
	r := s.Review(ask.ReviewID)
	switch {
	case r == nil:
		return nil, fmt.Sprintf("review %s is not known", id)
	case !r.Intent.Same(ask.Intent):
		return nil, fmt.Sprintf("review %s is about another payment", id)
	case r.Status(now) != decision.StatusApproved:
		return nil, fmt.Sprintf("review %s is %s", id, r.Status(now))
	}
	if by, used := m.approvals[r.ReviewID]; used {
		return nil, fmt.Sprintf("review %s was used by a payment in run %s", id, plain.Quote(by.Run, plain.Detail))
	}
	return &r.Opened, ""
}
