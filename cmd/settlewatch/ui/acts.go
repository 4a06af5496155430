package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
	"github.com/settlewatch/settlewatch/mcp"
)

// Every act goes through the call of the guard that the command makes. What loosens
// is signed with the key that was unlocked when the program started.

// may tells whether this login may act: where a key is unlocked, somebody must have
// typed its code on the terminal.
func (q *request) may() error {
	if !q.sessions.may(q.s) {
		return errUnconfirmed
	}
	return nil
}

// done leads to a page that says what was done.
func (q *request) done(to, did string) error {
	at, err := url.Parse(to)
	if err != nil {
		return err
	}
	q.to, q.did = to, did
	v := at.Query()
	v.Set("did", did)
	at.RawQuery = v.Encode()
	return q.goTo(at.String())
}

func (q *request) text(name string) string {
	return strings.TrimSpace(q.r.PostForm.Get(name))
}

func (q *request) note(name string, needed bool) (string, error) {
	text := q.text(name)
	if needed && text == "" {
		return "", errcode.New(errcode.Input, "", "say why, for the record")
	}
	return text, guard.CheckNote(name, text)
}

func loosens(what string) bool { return what == decision.Approved || what == decision.Reopened }

// decision reads what a form wants decided.
func (q *request) decision() (guard.Decision, error) {
	d := guard.Decision{Decision: oneOf(q.text("decision"), decision.Approved, decision.Rejected, decision.Revoked, decision.Reopened)}
	if d.Decision == "" {
		return d, errcode.New(errcode.Input, "", "the form says no decision")
	}
	var err error
	if d.Note, err = q.note("note", false); err != nil {
		return d, err
	}
	d.Freeze = d.Decision == decision.Rejected && q.text("freeze") != ""
	if loosens(d.Decision) {
		if q.mute() {
			return d, errMute
		}
		d.Signer = q.o.Signer
	}
	return d, q.may()
}

// errMute says that what loosens needs a key, and none was unlocked.
var errMute = errcode.New(errcode.OperatorKey, "start settlewatch ui again without --no-key, or use the command line", "no key is unlocked here, and this counts only when an operator signs it")

// mute tells whether what needs a signature cannot be done here.
func (q *request) mute() bool {
	return q.o.Signer == nil && len(q.g.Policy().Operators) > 0
}

// still holds a form to what its page showed. The line that opened a review never
// changes, so what is compared here is what is signed; that it was not decided
// meanwhile, the guard makes sure of under the log's lock.
func (q *request) still(ctx context.Context, what string, ids, shown []string) error {
	if len(ids) == 0 || len(ids) != len(shown) {
		return errcode.New(errcode.Input, "", "no review was chosen")
	}
	s, err := q.g.Log().Read(ctx)
	if err != nil {
		return err
	}
	for i, id := range ids {
		v, err := q.g.Review(ctx, id, 0)
		if err != nil {
			return err
		}
		r := s.Review(v.ID)
		if v.ID != id || r == nil {
			return errStale // a form holds whole ids
		}
		if v.Status == decides[what] && shownOf(r, v.Status) != shown[i] {
			return errStale
		}
		// In any other state the guard says better what has happened.
	}
	return nil
}

// decides is the state that each decision is made in.
var decides = map[string]string{
	decision.Approved: decision.StatusPending, decision.Rejected: decision.StatusPending,
	decision.Revoked: decision.StatusApproved, decision.Reopened: decision.StatusRejected,
}

func (q *request) decide() error {
	ctx := q.r.Context()
	id := q.text("id")
	d, err := q.decision()
	if err != nil {
		return err
	}
	if err := q.still(ctx, d.Decision, []string{id}, []string{q.text("shown")}); err != nil {
		return err
	}
	d.IDs = []string{id}
	views, err := q.g.Decide(ctx, d)
	if err != nil {
		return err
	}
	call := len(views) == 1 && views[0].Call != nil
	did := d.Decision
	switch {
	case d.Freeze:
		did = "frozenalso"
	case call && did == decision.Approved:
		did = "callapproved"
	case call && did == decision.Rejected:
		did = "callrejected"
	}
	return q.done("/review/"+url.PathEscape(id), did)
}

// batch decides many reviews, all or none: first it shows what that comes to.
func (q *request) batch() error {
	ctx := q.r.Context()
	d, err := q.decision()
	if err != nil {
		return err
	}
	if decides[d.Decision] != decision.StatusPending {
		return errcode.New(errcode.Input, "", "only reviews that are pending are decided at once")
	}
	var ids, shown []string
	for _, chosen := range q.r.PostForm["review"] {
		id, what, _ := strings.Cut(chosen, " ")
		if !slices.Contains(ids, id) {
			ids, shown = append(ids, id), append(shown, what)
		}
	}
	if len(ids) > mostBatch {
		return errcode.New(errcode.Input, "", "more than %d reviews are not decided at once", mostBatch)
	}
	if err := q.still(ctx, d.Decision, ids, shown); err != nil {
		return err
	}
	for _, id := range ids {
		if v, err := q.g.Review(ctx, id, 0); err != nil {
			return err
		} else if v.Call != nil {
			return errcode.New(errcode.Input, "", "a tool call is decided by itself, on a page that shows all of it")
		}
	}
	if q.text("sure") == "" {
		s, err := q.g.Log().Read(ctx)
		if err != nil {
			return err
		}
		p := batchPage{Decision: d.Decision, Note: d.Note, Back: q.back()}
		for _, id := range ids {
			v, err := q.g.Review(ctx, id, 0)
			if err != nil {
				return err
			}
			p.Cards = append(p.Cards, q.card(s, v, false))
		}
		p.Sums = q.sums(s, p.Cards)
		q.render(http.StatusOK, "batch", "reviews", p)
		return nil
	}
	d.IDs = ids
	if _, err := q.g.Decide(ctx, d); err != nil {
		return err
	}
	return q.done("/reviews?status="+map[bool]string{true: "approved", false: "rejected"}[d.Decision == decision.Approved], "batch")
}

// about reads what a form is about. It stands there as in an address, escaped: a
// browser changes line ends, and what it cannot read, in the values of a form.
func (q *request) about() (url.Values, error) {
	v, err := url.ParseQuery(q.text("of"))
	if err != nil {
		return nil, errcode.New(errcode.Input, "", "the form cannot be read")
	}
	return v, nil
}

// ref reads which operation a page or a form is about.
func ref(v url.Values) (ingest.Ref, error) {
	r := ingest.Ref{Run: v.Get("run"), Operation: v.Get("op"), Null: v.Get("null") != ""}
	if r.Run == "" || r.Null == (r.Operation != "") {
		return r, errcode.New(errcode.Input, "", "the address names no operation")
	}
	return r, nil
}

// paidMark is by what a form knows the payments of an operation again.
func paidMark(s guard.Shown) string { return fmt.Sprintf("%d to %d", s.Payments, s.Newest) }

func (q *request) resolve() error {
	ctx := q.r.Context()
	about, err := q.about()
	if err != nil {
		return err
	}
	of, err := ref(about)
	if err != nil {
		return err
	}
	if err := q.may(); err != nil {
		return err
	}
	line, page := mcp.LineRef(of), operationLink(of)
	outcome := q.text("as")
	note, err := q.note("note", outcome != "undo")
	if err != nil {
		return err
	}
	if outcome == "undo" {
		if err := q.g.Unresolve(ctx, line, note); err != nil {
			return err
		}
		return q.done(page, "unresolved")
	}
	shown, err := q.g.Shown(ctx, line)
	if err != nil {
		return err
	}
	if paidMark(shown) != q.text("paid") {
		return errStale
	}
	r := guard.Resolution{Ref: line, Outcome: outcome, Note: note, Shown: shown, Signer: q.o.Signer}
	if outcome == decision.Settled {
		r.Amount, r.Time = q.text("amount"), q.text("at")
	}
	if r.Time != "" {
		if _, err := time.Parse(time.RFC3339, r.Time); err != nil {
			return errcode.New(errcode.Input, "write it as 2026-01-31T18:30:00Z", "the time %s cannot be read", plain.Quote(r.Time, plain.Detail))
		}
	}
	if err := q.g.Resolve(ctx, []guard.Resolution{r}); err != nil {
		return err
	}
	return q.done(page, "resolved")
}

// freezing reads a form about a freeze: whose, and why.
func (q *request) freezing(why bool) (about url.Values, reason string, err error) {
	if reason, err = q.note("reason", why); err != nil {
		return nil, "", err
	}
	if err = q.may(); err != nil {
		return nil, "", err
	}
	about, err = q.about()
	return about, reason, err
}

func (q *request) freeze() error {
	about, reason, err := q.freezing(true)
	if err != nil {
		return err
	}
	who := about.Get("name")
	if who == "" && q.text("all") == "" {
		return errcode.New(errcode.Input, "", "the form says nobody to freeze")
	}
	if _, err := q.g.Freeze(q.r.Context(), who, reason); err != nil {
		return q.orByFile(err)
	}
	return q.done(q.back(), "frozen")
}

// orByFile adds to an error how a person in a hurry freezes all the same.
func (q *request) orByFile(err error) error {
	known := errcode.Of(err)
	if known.Code == errcode.Input {
		return err
	}
	with := *known
	file, _ := q.g.FreezeFile()
	with.Hint = "make a file " + file + ", which blocks every payment while it is there"
	return &with
}

func (q *request) unfreeze() error {
	about, reason, err := q.freezing(false)
	if err != nil {
		return err
	}
	s, err := q.g.Log().Read(q.r.Context())
	if err != nil {
		return err
	}
	// Another freeze of the same may have come since, for a better reason.
	if slices.ContainsFunc(s.AllFrozen(), func(f decision.Frozen) bool {
		return f.Scope == about.Get("scope") && f.Reason != about.Get("reason")
	}) {
		return errStale
	}
	scope := about.Get("scope")
	if scope == decision.ScopeAll {
		scope = ""
	} else if scope == "" {
		return errcode.New(errcode.Input, "", "the form says nobody to unfreeze")
	}
	if err := q.g.Unfreeze(q.r.Context(), scope, reason, q.o.Signer); err != nil {
		return err
	}
	return q.done(q.back(), "unfrozen")
}
