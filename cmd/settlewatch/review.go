package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/approval"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/mcp"
)

func (a *app) review() *cobra.Command {
	var o guarded
	c := a.command(&cobra.Command{
		Use:   "review [flags]",
		Short: "see and decide what the guard asks a person",
		Long: `Where the guard's answer to an agent is review, a person decides. An approval lets that
one payment be made once; the agent can read a decision and cannot make one.

By itself, on a terminal, it opens the inbox: everything that waits, on a full screen of 40
by 16 or more, decided with a few keys. ? shows them.

ID is a review's id or 8 or more characters of its beginning, if only one review begins
so. Several at once are decided all or none.`,
		Args: knownCommand,
	}, func(ctx context.Context, _ []string) error {
		if _, _, ok := a.fullScreen(); !ok || o.json {
			return usage("say what to do: review list, show, approve, reject, revoke, reopen or wait; the inbox needs a terminal (ssh -t)")
		}
		return a.runInbox(ctx, &o, false)
	})
	o.flags(c.Flags())
	o.operatorFlag(c.Flags())
	c.AddCommand(a.reviewList(), a.reviewShow(),
		a.reviewDecide("approve", "approved", "let a payment be made once",
			`Approve reviews: the payment or the tool call of each may be made once, until the approval
expires. A tool call runs on a receipt, which takes an operator's signature. With operators in the policy an approval counts only when one of them signs it: the passphrase
of the key is asked on the terminal, after what is to be signed was shown.`),
		a.reviewDecide("reject", "rejected", "refuse a payment",
			`Reject reviews: the same payment is blocked for a while, and others to the same payee are
asked about again. --freeze blocks every payment to the payee until settlewatch unfreeze.`),
		a.reviewDecide("revoke", "revoked", "take back an approval that is not used yet",
			`Take back approvals that no payment has used yet.`),
		a.reviewDecide("reopen", "reopened", "take back a rejection, so that it is decided again",
			`Take back rejections: each review is pending again, under its own id and with a new expiry.`),
		a.reviewWait())
	return c
}

var reviewStates = []string{"pending", "approved", "rejected", "expired", "used", "revoked", "all"}

type reviewListOptions struct {
	guarded
	query guard.ReviewQuery
}

func (a *app) reviewList() *cobra.Command {
	var o reviewListOptions
	c := a.command(&cobra.Command{
		Use:   "list [flags]",
		Short: "list reviews in full, newest first",
		Long: `List the reviews that wait for a person, newest first: whom the agent wants to pay, how
much, why a person is asked, and the commands that decide. --status all lists the decided
ones too.`,
		Args: operands(0, 0),
	}, func(ctx context.Context, _ []string) error { return a.runReviewList(ctx, o) })
	f := c.Flags()
	o.flags(f)
	f.StringVar(&o.query.Status, "status", "pending", "only reviews that are pending, approved, rejected, expired, used or revoked, or all")
	f.IntVar(&o.query.Limit, "limit", defaultLimit, "reviews to show, 1 to 100")
	f.StringVar(&o.query.Cursor, "cursor", "", "go on after an earlier page")
	return c
}

func (a *app) runReviewList(ctx context.Context, o reviewListOptions) error {
	if o.query.Limit < 1 || o.query.Limit > 100 {
		return usage("--limit takes 1 to 100, not %d", o.query.Limit)
	}
	if err := oneOf("status", o.query.Status, reviewStates...); err != nil {
		return err
	}
	q := o.query
	if q.Status == "all" {
		q.Status = ""
	}
	return a.withGuard(ctx, &o.guarded, func(g guardian, _ finder) error {
		page, err := g.Reviews(ctx, q)
		if err != nil {
			return err
		}
		if o.json {
			return a.document(mcp.ReviewsDocument(page))
		}
		a.showReviews(ctx, g, &o, page)
		return nil
	})
}

func (a *app) showReviews(ctx context.Context, g guardian, o *reviewListOptions, page *guard.ReviewPage) {
	kind := o.query.Status + " "
	if o.query.Status == "all" {
		kind = ""
	}
	switch {
	case len(page.Reviews) > 0:
		title := plain.Plural(int64(len(page.Reviews)), kind+"review")
		if page.NextCursor != "" || o.query.Cursor != "" {
			title += " here"
		}
		a.tell(title + ", newest first")
	case o.query.Cursor != "":
		a.say("no further %sreview", kind)
	default:
		a.say("no %sreview", kind)
	}
	for i := range page.Reviews {
		a.say("")
		a.showReview(shownReview{ReviewView: &page.Reviews[i], o: &o.guarded, id: shortID(ctx, g, page.Reviews[i].ID)})
	}
	if page.NextCursor != "" {
		a.say("")
		more := "review list"
		if o.query.Status != "pending" {
			more += " --status " + o.query.Status
		}
		if o.query.Limit != defaultLimit {
			more += fmt.Sprintf(" --limit %d", o.query.Limit)
		}
		a.say("more:")
		a.pasteable(o.again(more + " --cursor " + page.NextCursor))
	}
	if page.Suggestion != "" {
		a.say("")
		a.put("", "", page.Suggestion)
		a.pasteable(o.again(`baseline --note "..."`))
	}
}

// shortID is a beginning of a review's id that a person can type and that names
// it alone.
func shortID(ctx context.Context, g guardian, id string) string {
	_, body, found := strings.Cut(id, "-")
	if !found {
		body = id
	}
	for _, n := range []int{leastBeginning, leastBeginning + 4, leastBeginning + 8} {
		if n >= len(body) {
			break
		}
		if v, err := g.Review(ctx, body[:n], 0); err == nil && v.ID == id {
			return body[:n]
		}
	}
	return id
}

func (a *app) reviewShow() *cobra.Command {
	var o guarded
	c := a.command(&cobra.Command{
		Use:   "show [flags] ID",
		Short: "show one review and how to decide it",
		Long: `Show a review in full, with all evidence, where each fact comes from, and the commands
that decide.`,
		Args: operands(1, 1),
	}, func(ctx context.Context, args []string) error {
		if err := noBlank("ID", args); err != nil {
			return err
		}
		return a.withGuard(ctx, &o, func(g guardian, _ finder) error {
			v, err := g.Review(ctx, args[0], 0)
			if err != nil {
				return err
			}
			return a.answerReview(ctx, g, &o, v)
		})
	})
	o.flags(c.Flags())
	return c
}

func (a *app) answerReview(ctx context.Context, g guardian, o *guarded, v *guard.ReviewView) error {
	if o.json {
		return a.document(mcp.ReviewDocument(v))
	}
	a.showReview(shownReview{ReviewView: v, o: o, id: shortID(ctx, g, v.ID), whole: true})
	return nil
}

// noBlank refuses a blank operand: most likely a variable was empty.
func noBlank(what string, args []string) error {
	for _, arg := range args {
		if strings.TrimSpace(arg) == "" {
			return usage("%s is blank", what)
		}
	}
	return nil
}

// some checks that a command was given at least one operand.
func some(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage("%s needs %s", strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" "), what)
		}
		return nil
	}
}

// before is the state a decision takes a review from (guard contract, section 4).
var before = map[string]string{"approved": "pending", "rejected": "pending", "revoked": "approved", "reopened": "rejected"}

type decideOptions struct {
	guarded
	d    guard.Decision
	hmac bool              // a receipt of version 1 as well
	key  *approval.HMACKey // that it is signed with
}

func (a *app) reviewDecide(verb, decision, short, long string) *cobra.Command {
	o := decideOptions{d: guard.Decision{Decision: decision}}
	c := a.command(&cobra.Command{
		Use:   verb + " [flags] ID...",
		Short: short,
		Long:  long,
		Args:  some("the id of a review"),
	}, func(ctx context.Context, args []string) error {
		if err := noBlank("ID", args); err != nil {
			return err
		}
		if o.hmac {
			if o.json {
				return usage("--hmac prints a receipt, and --json the reviews: give one of them")
			}
			key, err := approval.NewHMACKey(a.env.getenv(receiptKey))
			if err != nil {
				return err
			}
			o.key = &key
		}
		return a.runDecide(ctx, o, args)
	})
	f := c.Flags()
	o.flags(f)
	f.StringVar(&o.d.Note, "note", "", "why, for the record; the agent can read it")
	switch decision {
	case "rejected":
		f.BoolVar(&o.d.Freeze, "freeze", false, "also block every payment to the payee until it is unfrozen")
	case "approved":
		f.BoolVar(&o.hmac, "hmac", false, "also print the receipt of a tool call as one of version 1, under the key in "+receiptKey)
		o.operatorFlag(f)
	case "reopened":
		o.operatorFlag(f)
	}
	return c
}

func (a *app) runDecide(ctx context.Context, o decideOptions, args []string) error {
	return a.withGuard(ctx, &o.guarded, func(g guardian, _ finder) error {
		o.d.IDs = args
		if err := guard.CheckNote("note", o.d.Note); err != nil {
			return err
		}
		if loosens := o.d.Decision == "approved" || o.d.Decision == "reopened"; loosens && len(g.Policy().Operators) > 0 {
			if signed, err := a.signDecision(ctx, g, &o); err != nil || !signed {
				return err
			}
		}
		views, err := g.Decide(ctx, o.d)
		if err != nil {
			return err
		}
		if o.json {
			return a.document(mcp.ReviewsDocument(&guard.ReviewPage{Reviews: views}))
		}
		for i := range views {
			if err := a.showDecided(ctx, g, &o, &views[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// signDecision gives a decision its signer. What is signed must have been seen: it is
// shown before the passphrase is asked, and decided under the whole ids of what was
// shown.
func (a *app) signDecision(ctx context.Context, g guardian, o *decideOptions) (signed bool, err error) {
	var ids, acts []string
	for _, id := range o.d.IDs {
		v, err := g.Review(ctx, id, 0)
		if err != nil {
			return false, err
		}
		if o.hmac && v.Call == nil {
			return false, usage("--hmac is for reviews of tool calls, and %s is of a payment", v.ID)
		}
		ids, acts = append(ids, v.ID), append(acts, decided(o.d.Decision, v))
		if v.Status != before[o.d.Decision] {
			// No passphrase is asked for what cannot be; why is for the guard to say,
			// which accepts nothing without a signature here.
			_, err := g.Decide(ctx, guard.Decision{IDs: []string{v.ID}, Decision: o.d.Decision})
			return false, err
		}
		if err := a.showBeforeSigning(ctx, &o.guarded, v); err != nil {
			return false, err
		}
	}
	o.d.IDs = ids
	o.d.Signer, err = a.signer(ctx, g, &o.guarded, acts)
	return err == nil, err
}

// showDecided shows what has been decided, and how to take it back.
func (a *app) showDecided(ctx context.Context, g guardian, o *decideOptions, v *guard.ReviewView) error {
	a.put(statusStyle(v.Status), "", decided(o.d.Decision, v))
	switch {
	case o.d.Decision == "approved":
		what := "payment"
		if v.Call != nil {
			what = "call"
		}
		a.put("", "  ", "for one "+what+", until "+moment(v.ExpiresAt)+"; to take it back:")
		a.pasteable(o.again("review revoke " + shortID(ctx, g, v.ID)))
		if o.key == nil {
			return nil
		}
		receipt, err := g.SharedReceipt(ctx, v.ID, *o.key)
		if err != nil {
			return err
		}
		text, err := json.Marshal(receipt)
		if err != nil {
			return err
		}
		a.say("%s", visible(string(text)))
	case o.d.Decision == "reopened":
		a.put("", "  ", "pending again until "+moment(v.ExpiresAt))
	case o.d.Freeze:
		a.put("", "  ", "and frozen: every payment to this payee is blocked; to end that:")
		a.pasteable(o.again("unfreeze --counterparty " + shellWord(frozenBy(v))))
	}
	return nil
}

// decided says what a decision is about, whom and how much it pays included.
func decided(decision string, v *guard.ReviewView) string {
	if v.Call != nil {
		text, _ := decidedCall(decision, v)
		return text
	}
	who := payeeOf(v)
	amount, _ := paid(v)
	text := decision + " " + v.ID + ": " + amount
	if who.to != "" {
		text += " to " + who.to
	}
	if len(who.hosts) > 0 {
		text += " at " + strings.Join(who.hosts, ", ")
	}
	if v.Network != "" {
		text += " on " + network(v.Network)
	}
	return text
}

// frozenBy is a name a rejection has frozen.
func frozenBy(v *guard.ReviewView) string {
	if p := payeeOf(v); p.to != "" {
		return p.to
	} else if len(p.hosts) > 0 {
		return p.hosts[0]
	}
	return v.Counterparty
}

// The exit statuses of check and of review wait (guard contract, section 1): a
// shell's && goes on only where a payment is allowed.
const (
	asked   = status(10)
	refused = status(20)
)

func (a *app) reviewWait() *cobra.Command {
	var o guarded
	var timeout time.Duration
	c := a.command(&cobra.Command{
		Use:   "wait [flags] [ID]",
		Short: "wait until a review is decided, or until there is one to decide",
		Long: `With ID, wait until the review is decided or expires, and show it. Exit status 0 when it
is approved, 10 when it is still pending after --timeout, 20 when it is anything else.

Without ID, wait until some review is pending, and list what is. Exit status 0 then, and
10 after --timeout.`,
		Args: operands(0, 1),
	}, func(ctx context.Context, args []string) error {
		if err := noBlank("ID", args); err != nil {
			return err
		}
		if timeout < 0 {
			return usage("--timeout takes a time of 0 or more, not %s", timeout)
		}
		return a.withGuard(ctx, &o, func(g guardian, _ finder) error {
			if len(args) == 0 {
				return a.waitForAny(ctx, g, &o, timeout)
			}
			return a.waitFor(ctx, g, &o, args[0], timeout)
		})
	})
	o.flags(c.Flags())
	c.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait, such as 10m; 0 is without end")
	return c
}

// Waits are made in pieces: the clock and the file are looked at again in between.
const (
	waitPiece = 50 * time.Second
	waitEvery = time.Second
)

func (a *app) waitFor(ctx context.Context, g guardian, o *guarded, id string, timeout time.Duration) error {
	until := a.env.now().Add(timeout)
	for {
		piece := waitPiece
		if timeout > 0 {
			piece = min(piece, until.Sub(a.env.now()))
		}
		v, err := g.Review(ctx, id, max(piece, 0))
		if err != nil {
			return err
		}
		over := timeout > 0 && !a.env.now().Before(until)
		if v.Status == "pending" && !over {
			continue
		}
		if err := a.answerReview(ctx, g, o, v); err != nil {
			return err
		}
		switch v.Status {
		case "approved":
			return nil
		case "pending":
			return asked
		default:
			return refused
		}
	}
}

func (a *app) waitForAny(ctx context.Context, g guardian, o *guarded, timeout time.Duration) error {
	list := reviewListOptions{guarded: *o, query: guard.ReviewQuery{Status: "pending", Limit: defaultLimit}}
	until := a.env.now().Add(timeout)
	for {
		page, err := g.Reviews(ctx, list.query)
		if err != nil {
			return err
		}
		over := timeout > 0 && !a.env.now().Before(until)
		if len(page.Reviews) > 0 || over {
			if o.json {
				err = a.document(mcp.ReviewsDocument(page))
			} else {
				a.showReviews(ctx, g, &list, page)
			}
			if err == nil && len(page.Reviews) == 0 {
				err = asked
			}
			return err
		}
		pause := time.NewTimer(waitEvery)
		select {
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		case <-pause.C:
		}
	}
}
