package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/cmd/settlewatch/inbox"
	"github.com/settlewatch/settlewatch/guard"
	"github.com/settlewatch/settlewatch/guard/decision"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// showCall shows what a review of a tool call is about: all of what will run, since
// that is what an approval is for (approvals contract, section 9.7b).
func (a *app) showCall(r shownReview) {
	c := r.Call
	var s sheet
	s.styled(statusStyle(r.Status), "status", stateOf(r.ReviewView, a.env.now()), "")
	s.rows = append(s.rows, callRows(c)...)
	s.row("asked by", askerOf(r.ReviewView), "")
	s.row("asked", moment(r.CreatedAt)+", "+away(r.CreatedAt, a.env.now()), "")
	s.outcome(r.ReviewView)
	a.showSheet(&s)
	a.put(bold, "", "arguments "+mark("agent")+":")
	a.showArguments(c.Arguments)
	switch {
	case beyondASCII(c.Tool + c.Resource):
		a.put(yellow, "! ", "what is called, or for what, has letters beyond ASCII: some look like others")
	case beyondASCII(c.Arguments):
		a.put(yellow, "! ", "the arguments hold letters beyond ASCII: some look like others")
	}
	a.showReasons("why a person is asked:", r.Reasons, r.whole)
	for _, code := range r.Warnings {
		a.put(yellow, "! ", warningText(code))
	}
	if r.Status == "pending" && r.whole {
		a.put(bold, "", "to approve is to let this call be made once, with these arguments:")
	}
	a.showVerbs(r)
}

// callRows are the facts of a tool call, but for its arguments.
func callRows(c *decision.Call) []sheetRow {
	var s sheet
	s.styled(bold, "call", typed(visible(c.Tool)), "agent")
	s.styled(bold, "for", typed(visible(c.Resource)), "agent")
	s.styled(riskStyle(c.Risk), "risk", c.Risk, "policy")
	if c.Spend != nil {
		s.styled(bold, "spends", typed(visible(c.Spend.Notional+" "+c.Spend.Asset))+" ("+typed(visible(c.Spend.Action))+")", "agent")
	}
	s.row("policy", typed(c.Policy)+", version "+typed(c.PolicyVersion), "policy")
	if c.TTL > 0 {
		s.row("good for", (time.Duration(c.TTL)*time.Millisecond).String()+" from the approval on", "")
	}
	return s.rows
}

func riskStyle(risk string) string {
	return map[string]string{"high": yellow, "critical": red}[risk]
}

// callCard is a review of a tool call as the inbox shows it, all arguments included.
func callCard(v *guard.ReviewView) inbox.Card {
	call := v.Call
	tool, resource := typed(visible(call.Tool)), typed(visible(call.Resource))
	rows := callRows(call)
	first := slices.IndexFunc(rows, func(r sheetRow) bool { return r.label == "policy" }) // what is done stands before it
	c := inbox.Card{
		ID: v.ID, Expires: v.ExpiresAt, Facts: factsOf(v), Amount: "one call of " + tool, To: resource, At: "policy " + typed(call.Policy) + ", risk " + call.Risk,
		Whom: "for " + resource, Payee: call.Tool + "\n" + call.Resource, Decisive: rowBlocks(rows[:first]),
	}
	if call.Spend != nil {
		c.Amount += ", " + typed(visible(call.Spend.Notional+" "+call.Spend.Asset))
	}
	c.Body = append(slices.Clone(c.Decisive), inbox.Block{}, inbox.Block{Text: "arguments " + mark("agent") + ":", Tone: inbox.Strong})
	if beyondASCII(call.Tool + call.Resource + call.Arguments) {
		c.Body = append(c.Body, inbox.Block{Lead: "! ", Text: "there are letters beyond ASCII: some look like others", Tone: inbox.Warn})
	}
	for _, line := range argumentLines(call.Arguments) {
		c.Body = append(c.Body, inbox.Block{Lead: "  ", Text: line})
	}
	why, rules := reasonBlocks(v)
	c.Why = strings.Join(rules, ", ")
	c.Body = append(append(c.Body, inbox.Block{}), why...)
	c.Body = append(append(c.Body, inbox.Block{}), rowBlocks(rows[first:])...)
	c.Body = append(c.Body, inbox.Block{Label: "review", Text: v.ID})
	return c
}

// rowBlocks are rows of a sheet on a card.
func rowBlocks(rows []sheetRow) (out []inbox.Block) {
	for _, r := range rows {
		out = append(out, inbox.Block{Label: r.label, Text: r.value, Tone: tones[r.style]})
	}
	return out
}

// showArguments shows arguments whole, however long they are.
func (a *app) showArguments(canonical string) {
	for _, line := range argumentLines(canonical) {
		a.put("", "  ", line)
	}
}

// argumentLines are arguments for a screen, all of them.
func argumentLines(canonical string) (lines []string) {
	var doc jsjson.Doc
	text := canonical
	if doc.Parse([]byte(canonical)) == nil {
		text = string(doc.Root().Append(nil, 2, 0))
	}
	for line := range strings.Lines(text) {
		for part := range slices.Chunk([]rune(visible(strings.TrimSuffix(line, "\n"))), whole) {
			lines = append(lines, string(part))
		}
	}
	return lines
}

// beyondASCII reports whether a text has letters that may look like others.
func beyondASCII(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII })
}

// visible shows of JSON what a screen would hide or change: each such character as
// the escape JSON has for it. What is cleaned away has been approved all the same.
func visible(line string) string {
	var b strings.Builder
	indent := len(line) - len(strings.TrimLeft(line, " "))
	b.WriteString(line[:indent])
	space := false
	for _, r := range line[indent:] {
		again := r == ' ' && space
		space = r == ' '
		switch {
		case !again && r != unicode.ReplacementChar && unicode.IsPrint(r) && !plain.Hidden(r) && !unicode.IsMark(r):
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// shownInNote is how much of a call stands on the line that says what is signed.
const shownInNote = 1200

// decidedCall says what a decision on a call is about. whole: that is all there is to
// see of it.
func decidedCall(decision string, v *guard.ReviewView) (text string, whole bool) {
	c := v.Call
	text = decision + " " + v.ID + ": one call of " + typed(visible(c.Tool)) + " for " + typed(visible(c.Resource))
	if c.Spend != nil {
		text += ", " + typed(visible(c.Spend.Notional+" "+c.Spend.Asset))
	}
	if full := text + ", with " + visible(c.Arguments); len(full) <= shownInNote {
		return full, !beyondASCII(full)
	}
	return text + fmt.Sprintf(", with %d bytes of arguments, which settlewatch review show %s shows", len(c.Arguments), v.ID), false
}

// showBeforeSigning shows all of a call that the line that says what is signed does not
// show as it is. What another process showed of it before proves nothing: whoever can
// write to the log may have changed it since.
func (a *app) showBeforeSigning(ctx context.Context, o *guarded, v *guard.ReviewView) error {
	if v.Call == nil {
		return nil
	}
	if _, whole := decidedCall("", v); whole {
		return nil
	}
	screen := &app{stdout: a.stderr, stderr: a.stderr, env: a.env, width: a.width}
	screen.showReview(shownReview{ReviewView: v, o: o, id: v.ID, whole: true})
	return screen.write(ctx)
}
