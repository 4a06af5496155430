package main

import (
	"context"
	"path/filepath"

	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// standing is how the guard of an open index stands. What keeps it from judging is
// part of the answer.
func (a *app) standing(ctx context.Context, x *ingest.Indexer, g guardOptions) *guard.Standing {
	made, err := a.guardFor(ctx, x, g)
	if err == nil {
		var s *guard.Standing
		if s, err = made.Standing(ctx); err == nil {
			return s
		}
	}
	e := errcode.Of(err)
	s := &guard.Standing{Ready: e.Message}
	if e.Hint != "" {
		s.Ready += "; " + e.Hint
	}
	return s
}

// judges reports whether a check would be answered by the rules.
func judges(s *guard.Standing) bool { return s.Ready == "" && s.Unsound == "" }

func standingJSON(s *guard.Standing) object {
	frozen := make([]object, len(s.Frozen))
	for i, f := range s.Frozen {
		frozen[i] = object{{"scope", clean(f.Scope)}, {"reason", clean(f.Reason)}}
	}
	hash := s.PolicyHash
	if s.Ready != "" {
		hash = "" // of defaults that judge nothing
	}
	return object{{"ready", judges(s)}}.add("problem", clean(s.Ready)).add("policy", s.Policy).add("policy_hash", hash).
		add("log", s.Log).with("lines", s.Lines).add("unsound", clean(s.Unsound)).with("torn", s.Torn).
		with("other_policy", s.OtherPolicy && s.Ready == "").with("frozen", frozen).with("pending_reviews", s.Pending).with("active_holds", s.Holds).
		with("open_operations", s.Open).with("unacknowledged_damage", s.Damaged).with("operators", len(s.Operators)).add("suggestion", clean(s.Suggestion))
}

// with appends a member.
func (o object) with(name string, value any) object { return append(o, member{name, value}) }

// showStanding tells a person how the guard stands, and what waits for them.
func (a *app) showStanding(s *guard.Standing, again func(command string) string) {
	t := table{width: plain.Explanation}
	if s.Ready == "" {
		t.row("", "guard", "judges")
	} else {
		t.row(red, "guard", "cannot judge, every check is a review: "+s.Ready)
	}
	policy := "the built-in defaults"
	if s.Policy != "" {
		policy = shown(s.Policy)
	}
	t.row("", "policy", policy)
	if s.PolicyHash != "" && s.Ready == "" {
		t.row("", "hash", s.PolicyHash)
	}
	if s.OtherPolicy && s.Ready == "" {
		was := "the built-in defaults"
		if s.LoggedPath != "" {
			was = shown(s.LoggedPath)
		}
		t.row(yellow, "", "the log was last written under another policy ("+was+"): a server that was not started again judges by that one")
	}
	if s.Log != "" {
		t.row("", "decisions", shown(s.Log)+", "+plain.Plural(s.Lines, "line"))
	}
	if s.Unsound != "" {
		t.row(red, "", "it does not verify, every check is a review: "+s.Unsound)
	}
	if s.Torn {
		t.row(yellow, "", "it ends in a part of a line, which a crash has left; the next writer sets it aside as torn-*.bin")
	}
	for _, f := range s.Frozen {
		text := frozenScope(f.Scope, "is blocked")
		if f.Reason != "" {
			text += ": " + plain.Quote(f.Reason, plain.Detail)
		}
		t.row(red, "frozen", text)
	}
	waits := func(n int, one, command string) string {
		text := plain.Plural(int64(n), one)
		if n > 0 {
			text += ": " + again(command)
		}
		return text
	}
	t.row("", "reviews", waits(s.Pending, "pending review", "review list"))
	t.row("", "holds", waits(s.Holds, "active hold", "hold list"))
	open := plain.Plural(int64(s.Open), "open operation")
	if s.Open > 0 {
		open += ": " + again("list") + ` and, once it is known what became of one, ` + again("resolve RUN OPERATION") + ` --as settled|failed --note "..."`
	}
	t.row("", "open", open)
	damage := plain.Plural(int64(s.Damaged), "run") + " with damage nobody acknowledged"
	if s.Damaged > 0 {
		damage += ": " + again("damage list")
	}
	t.row("", "damage", damage)
	if len(s.Operators) == 0 {
		t.row(yellow, "operators", "none: an approval could be the agent's own; "+again("doctor")+" says what to do")
	} else {
		t.row("", "operators", plain.Number(int64(len(s.Operators))))
	}
	a.show(&t)
	if s.Suggestion != "" {
		a.say("")
		a.tell(plain.Clean(s.Suggestion, plain.Explanation))
	}
}

// absolute is the path of a policy file as it was named; "" for none.
func (o *guardOptions) absolute() string {
	if o.config == "" {
		return ""
	}
	file, err := filepath.Abs(string(o.config))
	if err != nil {
		return string(o.config)
	}
	return file
}
