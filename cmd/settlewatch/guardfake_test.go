package main

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
)

// noon is the clock of these tests.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	usdc  = "eip155:8453/0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
	payTo = "0x209693bc6afc0c5328ba36faf03c514ef312287c"
)

// fakeGuard answers what it was given and keeps what it was asked.
type fakeGuard struct {
	policy   *guard.Policy
	verdict  *guard.Verdict
	headroom *guard.Headroom
	reviews  []guard.ReviewView
	page     guard.ReviewPage // beside reviews
	holds    []guard.HoldView
	open     []guard.OpenOperation
	shown    guard.Shown
	damage   []guard.DamageItem
	standing guard.Standing
	err      error // what every act fails with

	request   guard.Request
	query     guard.HeadroomQuery
	listed    guard.ReviewQuery
	decisions []guard.Decision
	resolved  []guard.Resolution
	asked     guard.OpenQuery
	acts      []string
}

func (f *fakeGuard) Policy() *guard.Policy {
	if f.policy == nil {
		f.policy = guard.DefaultPolicy()
	}
	return f.policy
}

func (f *fakeGuard) did(words ...string) error {
	if f.err == nil {
		f.acts = append(f.acts, strings.Join(words, " "))
	}
	return f.err
}

func (f *fakeGuard) Check(_ context.Context, r guard.Request) (*guard.Verdict, error) {
	f.request = r
	return f.verdict, f.err
}

func (f *fakeGuard) Headroom(_ context.Context, q guard.HeadroomQuery) (*guard.Headroom, error) {
	f.query = q
	return f.headroom, f.err
}

func (f *fakeGuard) Review(_ context.Context, id string, _ time.Duration) (*guard.ReviewView, error) {
	var found []guard.ReviewView
	for _, v := range f.reviews {
		if strings.HasPrefix(v.ID, id) || strings.HasPrefix(v.ID, "r-"+id) {
			found = append(found, v)
		}
	}
	switch len(found) {
	case 0:
		return nil, errcode.New(errcode.ReviewNotFound, "", "no review has the id %q", id)
	case 1:
		return &found[0], nil
	}
	return nil, errcode.New(errcode.ReviewAmbiguous, "", "2 reviews begin with %q", id)
}

func (f *fakeGuard) Reviews(_ context.Context, q guard.ReviewQuery) (*guard.ReviewPage, error) {
	f.listed = q
	page := f.page
	for _, v := range f.reviews {
		if q.Status == "" || q.Status == v.Status {
			page.Reviews = append(page.Reviews, v)
		}
	}
	return &page, f.err
}

func (f *fakeGuard) SharedReceipt(_ context.Context, id string, key approval.HMACKey) (*approval.Receipt, error) {
	return approval.Receipt{Kind: approval.ReceiptKind, SchemaVersion: approval.ReceiptV2, Resource: "tenant:\u200b  north", ReviewID: id}.Shared(key)
}

func (f *fakeGuard) Decide(ctx context.Context, d guard.Decision) ([]guard.ReviewView, error) {
	f.decisions = append(f.decisions, d)
	if f.err != nil {
		return nil, f.err
	}
	var out []guard.ReviewView
	for _, id := range d.IDs {
		v, err := f.Review(ctx, id, 0)
		if err != nil {
			return nil, err
		}
		if v.Status != before[d.Decision] {
			return nil, errcode.New(errcode.ReviewDecided, "", "review %s is %s already", v.ID, v.Status)
		}
		v.Status = d.Decision
		if v.Status == "reopened" {
			v.Status = "pending"
		}
		out = append(out, *v)
	}
	return out, nil
}

func (f *fakeGuard) EndHold(_ context.Context, id, note string) error {
	return f.did("release", id, note)
}
func (f *fakeGuard) Holds(context.Context) ([]guard.HoldView, error) { return f.holds, f.err }

func (f *fakeGuard) Freeze(_ context.Context, counterparty, reason string) (string, error) {
	scope := counterparty
	if scope == "" {
		scope = decision.ScopeAll
	}
	return scope, f.did("freeze", scope, reason)
}

func (f *fakeGuard) Unfreeze(_ context.Context, counterparty, reason string, by decision.Signer) error {
	return f.did("unfreeze", counterparty, reason, signedBy(by))
}

func signedBy(by decision.Signer) string {
	if by == nil {
		return "unsigned"
	}
	return "signed by " + by.Name()
}

func (f *fakeGuard) Shown(context.Context, decision.Ref) (guard.Shown, error) { return f.shown, f.err }

func (f *fakeGuard) Resolve(_ context.Context, all []guard.Resolution) error {
	if f.err == nil {
		f.resolved = append(f.resolved, all...)
	}
	return f.err
}

func (f *fakeGuard) Unresolve(_ context.Context, ref decision.Ref, note string) error {
	return f.did("unresolve", operationIn(ref), note)
}

func (f *fakeGuard) Open(_ context.Context, q guard.OpenQuery) ([]guard.OpenOperation, error) {
	f.asked = q
	return f.open, f.err
}

func (f *fakeGuard) Baseline(_ context.Context, note string, by decision.Signer) (open, damaged int, err error) {
	return 12, 1, f.did("baseline", note, signedBy(by))
}

func (f *fakeGuard) Damage(context.Context) ([]guard.DamageItem, error) { return f.damage, f.err }

func (f *fakeGuard) Acknowledge(_ context.Context, run, note string, by decision.Signer) (int, error) {
	return 1, f.did("acknowledge", run, note, signedBy(by))
}

func (f *fakeGuard) Standing(context.Context) (*guard.Standing, error) { return &f.standing, f.err }

// fakeFinder knows two runs and takes every operation for one that is there.
type fakeFinder struct{ missing bool }

func (f fakeFinder) Resolve(_ context.Context, r ingest.Ref) (ingest.Ref, error) {
	if f.missing {
		return r, errcode.New(errcode.OperationNotFound, "", "no operation %q", r.Operation)
	}
	if r.Run == "latest" {
		r.Run = "run-2"
	}
	return r, nil
}

func (f fakeFinder) Runs(context.Context) ([]string, error) { return []string{"run-1", "run-2"}, nil }

// fakePerson types what it was told to.
type fakePerson struct {
	answers []bool
	secrets []string
	seen    []string
}

func (p *fakePerson) yes(_ context.Context, question string) (bool, error) {
	p.seen = append(p.seen, question)
	answer := p.answers[0]
	p.answers = p.answers[1:]
	return answer, nil
}

func (p *fakePerson) secret(_ context.Context, prompt string) ([]byte, error) {
	p.seen = append(p.seen, prompt)
	typed := p.secrets[0]
	p.secrets = p.secrets[1:]
	return []byte(typed), nil
}

// asking runs a command against a guard of the test.
type asking struct {
	guard  *fakeGuard
	finder fakeFinder
	person *fakePerson // nil: nobody sits there
	width  int
	stdin  string
	home   string
	shared string    // CHP_RECEIPT_KEY
	now    time.Time // noon unless given
}

func (q asking) run(t *testing.T, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	var out, errs bytes.Buffer
	env := system()
	env.now = func() time.Time { return noon }
	if !q.now.IsZero() {
		env.now = func() time.Time { return q.now }
	}
	home := q.home
	if home == "" {
		home = t.TempDir()
	}
	env.home = func() (string, error) { return home, nil }
	env.getenv = func(name string) string { return map[string]string{receiptKey: q.shared}[name] }
	a := &app{stdin: strings.NewReader(q.stdin), stdout: &out, stderr: &errs, env: env, width: q.width, json: asksJSON(args), keyCost: 4}
	if q.person != nil {
		a.someone = q.person
	}
	a.guards = func(*guarded) (guardian, finder) { return q.guard, q.finder }
	root := a.root()
	root.SetArgs(args)
	exit = a.finish(t.Context(), a.execute(t.Context(), root))
	return out.String(), errs.String(), exit
}

// asked is a review as the guard shows one that waits for a person.
func pendingReview() guard.ReviewView {
	operation := "3f18fa50-bff0-4888-827d-8945a14385cc"
	return guard.ReviewView{
		ID: "r-4f1c22aa91d05be377c0a1e6", Status: "pending", CreatedAt: noon.Add(-5 * time.Minute), ExpiresAt: noon.Add(3*time.Hour + 20*time.Minute),
		Counterparty: "https://Shöp.example/buy", Amount: "2.50", Asset: "USDC", PayTo: payTo, Network: "eip155:8453",
		Resource: "https://shöp.example/api/report?id=7",
		Names:    []string{payTo, "xn--shp-tna.example"},
		Reasons: []decision.Reason{
			{Rule: "open_partial", Detail: "2 operations with " + payTo + " took money and delivered nothing", Evidence: []decision.Ref{{Run: "1796030990969", Operation: &operation}}, Total: 2},
			{Rule: "review_above", Detail: "2.50 is above 1.00"},
			{Rule: "history", Detail: "7 operations: 5 full, 2 partial"},
		},
		Facts: []decision.Fact{{Name: "counterparty", Value: "https://Shöp.example/buy", Origin: "agent"}, {Name: "asset", Value: usdc, Origin: "policy"},
			{Name: "network", Value: "eip155:8453", Origin: "policy"}, {Name: "operations", Value: "7 (5 full, 2 partial)", Origin: "trace"},
			{Name: "spent", Value: "4.75 USDC in 24 h", Origin: "trace"}, {Name: "per_counterparty_limit", Value: "5.00 USDC in 24 h", Origin: "policy"}},
		Warnings: []string{"unsigned_reviews"},
		Handoff:  &guard.Handoff{Kind: "command", Target: "settlewatch review show r-4f1c22aa91d05be377c0a1e6"},
	}
}

// squeezed is a text without white space: what is wrapped must still be all there.
func squeezed(text string) string { return strings.Join(strings.Fields(text), "") }

func contains(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s: no %q in\n%s", what, part, text)
		}
	}
}

func lacks(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(text, part) {
			t.Errorf("%s: there is %q in\n%s", what, part, text)
		}
	}
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}
