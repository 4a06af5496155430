package assemble

import (
	"fmt"
	"strings"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// Room, in bytes, for the parts of an explanation that grow with the operation.
// What does not fit is counted, not shown, so that a text stays readable and
// fits an answer whatever strangers wrote.
const (
	roomObserved = 3500 // from the start, and as much from the end
	roomMissing  = 5000
	roomFaults   = 2500
	roomAll      = 16000 // of the whole: only a template of endless texts comes near
)

// Caps, in characters, on what events and templates contribute to a line.
const (
	capTime = 40
	capName = 100 // event types, roles, stage ids
)

// Explain says in plain English what a receipt means: what was observed and
// when, what is missing and what its absence means, each fault, and what cannot
// be known from this side about money that may have moved. It is made from the
// receipt alone, the same text for the same receipt, and never guesses (guard
// contract, section 9). Everything strangers wrote in it is cleaned. The text
// has several lines and no final line feed.
func Explain(r *Receipt) string {
	var b strings.Builder
	explainVerdict(&b, r)
	explainObserved(&b, r)
	explainMissing(&b, r)
	explainFaults(&b, r)
	explainMoney(&b, r)
	text := strings.TrimSuffix(b.String(), "\n")
	if len(text) > roomAll {
		text = strings.ToValidUTF8(text[:roomAll], "") + "\n(cut here)"
	}
	return text
}

// short cleans a name for a line of an explanation.
func short(s string) string { return plain.Clean(s, capName) }

func explainVerdict(b *strings.Builder, r *Receipt) {
	id := "with the id null"
	if !r.null {
		id = plain.Quote(string(r.id), plain.Detail)
	}
	fmt.Fprintf(b, "Operation %s is %s under the template %s, version %s.\n", id, r.Completeness(), short(r.t.Name), jsjson.AppendNumber(nil, r.t.Version))
	confirmed := 0
	for _, s := range r.stages {
		if len(s) > 0 {
			confirmed++
		}
	}
	missing, faults := len(r.Missing()), len(r.faults)
	switch {
	case r.Full():
		b.WriteString("Every required stage is confirmed and no fault was recorded.\n")
	case missing > 0 && faults > 0:
		fmt.Fprintf(b, "It lacks %s and has %s.\n", count(missing, "required stage"), count(faults, "fault"))
	case missing > 0:
		fmt.Fprintf(b, "It lacks %s.\n", count(missing, "required stage"))
	case faults > 0:
		fmt.Fprintf(b, "No required stage is missing, but it has %s, and an operation with a fault is never full.\n", count(faults, "fault"))
	case confirmed == 0:
		b.WriteString("The template requires no stage, but at least one must be confirmed, and none is.\n")
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// who is the event's type and role.
func (e *event) who() string {
	s := "an event without a type"
	if e.typ != nil {
		s = short(string(e.typ))
	}
	if e.role != nil {
		s += " (" + short(string(e.role)) + ")"
	}
	return s
}

func (e *event) when() string {
	if e.at.kind != jsjson.String {
		return "at no recorded time"
	}
	if t := plain.Clean(string(e.at.text), capTime); t != "" {
		return t
	}
	return "at no recorded time"
}

func explainObserved(b *strings.Builder, r *Receipt) {
	evidence := map[*event][]string{}
	for i, s := range r.stages {
		for _, e := range s {
			evidence[e] = append(evidence[e], short(r.t.Stages[i].ID))
		}
	}
	faults := map[*event]bool{}
	for _, e := range r.faults {
		faults[e] = true
	}
	line := func(e *event) string {
		var parts []string
		if stages := evidence[e]; len(stages) > 0 {
			word := "stage "
			if len(stages) > 1 {
				word = "stages "
			}
			parts = append(parts, "confirms the "+word+list(stages))
		}
		if faults[e] {
			parts = append(parts, "is a fault")
		}
		if parts == nil {
			parts = append(parts, "has no part in the verdict")
		}
		return fmt.Sprintf("- %s %s %s.\n", e.when(), e.who(), strings.Join(parts, " and "))
	}

	fmt.Fprintf(b, "\nObserved, in order (%s):\n", count(len(r.events), "event"))
	head, tail := 0, len(r.events)
	for room := roomObserved; head < tail && room > 0; head++ {
		l := line(r.events[head])
		room -= len(l)
		b.WriteString(l)
	}
	var last []string
	for room := roomObserved; head < tail && room > 0; tail-- {
		l := line(r.events[tail-1])
		room -= len(l)
		last = append(last, l)
	}
	if head < tail {
		fmt.Fprintf(b, "- (%s more between)\n", count(tail-head, "event"))
	}
	for i := len(last) - 1; i >= 0; i-- {
		b.WriteString(last[i])
	}
}

// list joins words, a few of them: "a, b and c".
func list(words []string) string {
	const most = 8
	if len(words) > most {
		words = append(words[:most:most], fmt.Sprintf("%d more", len(words)-most))
	}
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

func explainMissing(b *strings.Builder, r *Receipt) {
	var optional []string
	missing := 0
	room := roomMissing
	for i, s := range r.t.Stages {
		if len(r.stages[i]) > 0 {
			continue
		}
		if !s.Required {
			optional = append(optional, short(s.ID))
			continue
		}
		if missing++; missing == 1 {
			b.WriteString("\nMissing:\n")
		}
		if room <= 0 {
			continue
		}
		var witnesses []string
		for _, w := range s.Match {
			t := short(w.Event)
			if w.Role != "" {
				t += " (" + short(w.Role) + ")"
			}
			witnesses = append(witnesses, t)
		}
		l := fmt.Sprintf("- Stage %s: nothing confirms it; %s would.", short(s.ID), either(witnesses))
		if why := plain.Clean(s.Explanation, plain.Explanation); why != "" {
			l += " " + why
		} else {
			l += " The template does not say what its absence means."
		}
		room -= len(l)
		b.WriteString(l + "\n")
		if room <= 0 && missing < len(r.Missing()) {
			fmt.Fprintf(b, "- (%s more)\n", count(len(r.Missing())-missing, "stage"))
		}
	}
	if optional != nil {
		fmt.Fprintf(b, "\nNot observed, and not required: %s.\n", list(optional))
	}
}

func either(words []string) string {
	s := list(words)
	if i := strings.LastIndex(s, " and "); len(words) > 1 && len(words) <= 8 {
		s = s[:i] + " or " + s[i+len(" and "):]
	}
	return s
}

func explainFaults(b *strings.Builder, r *Receipt) {
	if len(r.faults) == 0 {
		return
	}
	doc := docs.Get().(*jsjson.Doc)
	defer docs.Put(doc)
	b.WriteString("\nFaults:\n")
	room := roomFaults
	for i, e := range r.faults {
		if room <= 0 {
			fmt.Fprintf(b, "- (%s more)\n", count(len(r.faults)-i, "fault"))
			return
		}
		l := fmt.Sprintf("- %s %s%s.\n", e.when(), e.who(), reasons(e.root(doc).Get("payload")))
		room -= len(l)
		b.WriteString(l)
	}
}

// reasons is what a fault's payload gives as its reason, quoted (trace contract,
// sections 9 and 10, name the places).
func reasons(payload jsjson.Node) string {
	var said []string
	say := func(v jsjson.Node) {
		if t := plain.Clean(string(v.Text()), plain.Detail); t != "" {
			t = plain.Quote(t, plain.Detail)
			for _, s := range said {
				if s == t {
					return
				}
			}
			said = append(said, t)
		}
	}
	settle, verify, failure := payload.Get("settle"), payload.Get("verify"), payload.Get("error")
	say(settle.Get("error_reason"))
	say(settle.Get("error_message"))
	say(verify.Get("invalid_reason"))
	say(verify.Get("invalid_message"))
	say(payload.Get("payment_required").Get("error"))
	say(failure)
	say(failure.Get("name"))
	say(failure.Get("message"))
	say(payload.Get("reason"))
	say(payload.Get("error_reason"))
	s := ": it gives no reason"
	if said != nil {
		s = ": it says " + strings.Join(said, ", ")
	}
	if tx := plain.Clean(string(settle.Get("transaction").Text()), capName); tx != "" {
		s += ", and names the transaction " + plain.Quote(tx, capName)
	}
	return s
}

// explainMoney says what the record leaves open about money.
func explainMoney(b *strings.Builder, r *Receipt) {
	if explainBuyer(b, r) || r.Full() {
		return
	}
	money, _ := r.t.Roles()
	switch {
	case money == "":
		b.WriteString("\nThe template does not say which of its stages move money, so nothing is said about money here.\n")
	case !r.verdict.Open():
	case r.t.Name == "escrow-arc":
		b.WriteString("\nMoney is on record as locked, and nothing here shows that it has left again, in either direction.\n")
	default:
		b.WriteString("\nThe buyer's payment was found valid, and nothing here shows that it was settled.\n")
	}
}

// explainBuyer speaks of what the paying side recorded, whatever the template,
// and reports whether there was anything of the kind. A payment is counted as
// the guard counts it (guard contract, section 1, "Spent"): each signing, else
// each paid call.
func explainBuyer(b *strings.Builder, r *Receipt) bool {
	signed, called, settled, unclear, failed := 0, 0, 0, 0, 0
	doc := docs.Get().(*jsjson.Doc)
	defer docs.Put(doc)
	for _, e := range r.events {
		if string(e.role) != "client" {
			continue
		}
		switch string(e.typ) {
		case "x402.payment.submitted":
			signed++
		case "x402.payment.requested":
			called++
		case "x402.payment.responded":
			if e.root(doc).Get("payload").Get("settle").Get("success").Bool() {
				settled++
			} else {
				unclear++
			}
		case "x402.settle.failed", "x402.verify.failed", "x402.payment.failed":
			failed++
		}
	}
	paid, what := signed, "payment"
	if signed == 0 {
		paid, what = called, "paid call"
	}
	answers := settled + unclear + failed
	switch {
	case paid == 0 && answers == 0:
		return false
	case paid == 0:
		b.WriteString("\nAn answer to a payment is on record here, and the payment itself is not; it may stand in another operation of the run.\n")
		return true
	case settled >= paid:
		return true
	}
	began := map[string]string{"payment": "signed", "paid call": "begun"}[what]
	if paid == 1 {
		fmt.Fprintf(b, "\nMoney may have moved: a %s was %s", what, began)
	} else {
		fmt.Fprintf(b, "\nMoney may have moved more than once: %s were %s", count(paid, what), began)
	}
	var on []string
	if settled > 0 {
		on = append(on, count(settled, "answer")+" that it was settled")
	}
	if failed > 0 {
		on = append(on, count(failed, "report")+" of failure, which is no proof that no money moved")
	}
	if unclear > 0 {
		on = append(on, count(unclear, "answer")+" that does not say whether it was settled")
	}
	if on == nil {
		b.WriteString(", and no answer about its settlement is on record.")
	} else {
		fmt.Fprintf(b, ", and what is on record about its settlement is %s.", list(on))
	}
	b.WriteString(" A payment whose settlement answer never came and one that settled silently look the same from this side.\n")
	return true
}
