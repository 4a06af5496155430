package inbox

import (
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/settlewatch/settlewatch/internal/plain"
)

// page is what is on the screen at a time.
type page interface {
	title(m *Model) string
	blocks(m *Model) []Block
	hints(m *Model) []string // of keys, the most needed first
	prompt(m *Model) []Block // between the page and the keys
	key(m *Model, k tea.KeyPressMsg) tea.Cmd
	want(w *Want)
	place() *reader
	typing() *input // nil where keys are commands
}

// base is what most pages have in common.
type base struct{ read reader }

func (b *base) place() *reader        { return &b.read }
func (b *base) typing() *input        { return nil }
func (b *base) want(*Want)            {}
func (b *base) prompt(*Model) []Block { return nil }

// chooser is a page with a cursor, which stays with what it was put on.
type chooser struct {
	base
	at  string // what the cursor is on
	row int    // where it was, should that be gone
}

// find is the row of the cursor among names.
func (c *chooser) find(names []string) int {
	for i, name := range names {
		if name == c.at {
			c.row = i
			return i
		}
	}
	c.row = max(0, min(c.row, len(names)-1))
	if len(names) > 0 {
		c.at = names[c.row]
	}
	return c.row
}

// move moves the cursor by a key, and reports whether it was one of those.
func (c *chooser) move(m *Model, k tea.KeyPressMsg, names []string) bool {
	row := c.find(names)
	switch k.String() {
	case "down", "j":
		row++
	case "up", "k":
		row--
	case "pgdown", "space":
		row += max(1, m.frame().height/4)
	case "pgup", "b":
		row -= max(1, m.frame().height/4)
	case "home", "g":
		row = 0
	case "end", "G":
		row = len(names) - 1
	default:
		return false
	}
	if row = max(0, min(row, len(names)-1)); len(names) > 0 {
		c.row, c.at = row, names[row]
	}
	c.follow(m, row, row == len(names)-1)
	return true
}

// follow brings the entry of a row onto the screen, and what stands below the last.
func (c *chooser) follow(m *Model, row int, last bool) {
	f := m.frame()
	begin, end := index(f.body, anchor{row * entryBlocks, 0}), index(f.body, anchor{(row+1)*entryBlocks - 1, 0})
	if last {
		end = len(f.body)
	}
	top := c.read.first(f.body, f.height)
	switch {
	case begin < top:
		m.settle(begin - top)
	case end > top+f.height:
		m.settle(min(begin, end-f.height) - top)
	}
}

// entry is one thing of a list: a line by which it is chosen, and what is behind
// leads below it. It has entryBlocks blocks.
func entry(current, marked bool, first string, below ...Block) []Block {
	lead, tone := []byte("   "), Plain
	if current {
		lead[0], tone = '>', Strong
	}
	if marked {
		lead[1] = '*'
	}
	out := []Block{{Lead: string(lead), Text: first, Tone: tone}}
	for _, b := range below {
		b.Lead = "   " + b.Lead
		out = append(out, b)
	}
	return append(out, Block{})
}

const entryBlocks = 5

// looking is said while nothing is known yet.
const looking = "looking at the traces and the decisions log"

// listPage lists what waits.
type listPage struct{ chooser }

func (p *listPage) names(m *Model) []string {
	names := make([]string, len(m.scene.Cards))
	for i, c := range m.scene.Cards {
		names[i] = c.ID
	}
	return names
}

func (p *listPage) title(m *Model) string {
	if !m.looked {
		return "settlewatch: looking"
	}
	text := plural(len(m.scene.Cards)+m.scene.Unread, "review waits", "reviews wait")
	if n := count(m.marked, p.names(m)); n > 0 {
		text += fmt.Sprintf(", %d marked", n)
	}
	return text
}

func (p *listPage) blocks(m *Model) []Block {
	switch {
	case !m.looked:
		return []Block{para(looking)}
	case len(m.scene.Cards) == 0:
		return []Block{{Text: "Nothing waits for you.", Tone: Good}, {}, para("What an agent asks about appears here by itself.")}
	}
	row := p.find(p.names(m))
	var out []Block
	for i := range m.scene.Cards {
		c := &m.scene.Cards[i]
		out = append(out, entry(i == row, m.marked[c.ID], c.Amount+", expires "+away(c.Expires, m.o.Now()),
			Block{Lead: "to ", Text: c.To}, Block{Lead: "at ", Text: c.At}, Block{Lead: "why ", Text: c.Why})...)
	}
	if m.scene.Unread > 0 {
		out = append(out, Block{Text: fmt.Sprintf("and %d more, once some of these are decided", m.scene.Unread), Tone: Warn})
	}
	return out
}

func (p *listPage) hints(m *Model) []string {
	if len(m.scene.Cards) == 0 {
		return []string{"o open operations", "w overview", "F freeze all", "? keys", "q quit"}
	}
	if count(m.marked, p.names(m)) > 0 {
		return []string{"a approve marked", "r reject marked", "x mark", "u unmark all", "? keys", "q quit"}
	}
	return []string{"enter look", "r reject", "x mark", "o open operations", "w overview", "? keys", "q quit"}
}

func (p *listPage) key(m *Model, k tea.KeyPressMsg) tea.Cmd {
	names := p.names(m)
	if p.move(m, k, names) {
		return nil
	}
	var here *Card
	if len(names) > 0 {
		here = &m.scene.Cards[p.find(names)]
	}
	switch k.String() {
	case "q", "esc":
		return tea.Quit
	case "o":
		m.push(&opsPage{})
		return m.look()
	case "w", "tab":
		m.push(&overviewPage{})
		return m.look()
	case "F":
		return m.ask(freezeAll(m))
	case "?":
		m.push(help())
	case "u":
		clear(m.marked)
	}
	if here == nil {
		return nil
	}
	switch k.String() {
	case "enter", "right", "l":
		m.push(&cardPage{card: *here})
		return m.look()
	case "x":
		mark(m.marked, here.ID)
	case "p":
		for _, c := range m.scene.Cards {
			if c.Payee == here.Payee {
				m.marked[c.ID] = true
			}
		}
	case "a":
		marked := m.markedCards()
		if len(marked) == 0 {
			m.push(&cardPage{card: *here})
			m.flash = "read it to its end, then press a"
			return m.look()
		}
		return m.ask(approval(m, marked))
	case "r", "f":
		marked := m.markedCards()
		if len(marked) == 0 {
			marked = []Card{*here}
		}
		return m.ask(rejection(m, marked, k.String() == "f"))
	}
	return nil
}

func mark(marked map[string]bool, name string) {
	if marked[name] {
		delete(marked, name)
	} else {
		marked[name] = true
	}
}

// count is how many of the names are marked.
func count(marked map[string]bool, names []string) (n int) {
	for _, name := range names {
		if marked[name] {
			n++
		}
	}
	return n
}

func (m *Model) markedCards() []Card {
	var out []Card
	for _, c := range m.scene.Cards {
		if m.marked[c.ID] {
			out = append(out, c)
		}
	}
	return out
}

// cardPage shows one review whole.
type cardPage struct {
	base
	card Card
}

func (p *cardPage) want(w *Want) { w.Follow = append(w.Follow, p.card.ID) }

func (p *cardPage) title(m *Model) string {
	for i := range m.scene.Cards {
		if m.scene.Cards[i].ID == p.card.ID {
			return fmt.Sprintf("%d of %d: %s", i+1, len(m.scene.Cards), p.card.Amount)
		}
	}
	return p.card.Amount
}

func (p *cardPage) blocks(*Model) []Block { return p.card.Body }

func (p *cardPage) prompt(m *Model) []Block {
	if why := m.ended(&p.card); why != "" && m.looked {
		return []Block{{Text: "this review " + why, Tone: Bad}}
	}
	return nil
}

func (p *cardPage) hints(m *Model) []string {
	var out []string
	if m.ended(&p.card) != "" {
		return []string{"esc back", "n next"}
	}
	if !p.read.all {
		out = append(out, "space read on")
	} else {
		out = append(out, "a approve")
	}
	out = append(out, "r reject", "esc back", "? keys", "f reject and freeze")
	if len(p.card.Open) > 0 {
		out = append(out, "o open")
	}
	return append(out, "n next review")
}

func (p *cardPage) key(m *Model, k tea.KeyPressMsg) tea.Cmd {
	if m.scroll(k) {
		return nil
	}
	switch name := k.String(); name {
	case "esc", "q", "backspace", "left", "h":
		return m.back()
	case "enter":
		m.settle(m.frame().height)
	case "n", "right", "l", "N", "p":
		by := 1
		if name == "N" || name == "p" {
			by = -1
		}
		m.next(p.card.ID, by)
		return m.look()
	case "?":
		m.push(help())
	case "o":
		if len(p.card.Open) > 0 {
			m.push(&opsPage{of: p.card.Open})
		}
	case "a", "r", "f":
		if why := m.ended(&p.card); why != "" {
			m.push(notice("NOT POSSIBLE", Bad, para("this review "+why)))
			return nil
		}
		if name != "a" {
			return m.ask(rejection(m, []Card{p.card}, name == "f"))
		}
		if !p.read.all {
			m.readOn("a approves")
			return nil
		}
		return m.ask(approval(m, []Card{p.card}))
	}
	return nil
}

// next opens the review behind or before one that is on the screen.
func (m *Model) next(id string, by int) {
	list, ok := m.pages[0].(*listPage)
	if !ok || len(m.scene.Cards) == 0 {
		return
	}
	names := list.names(m)
	row := list.find(names)
	if names[row] == id {
		row += by
	}
	if row < 0 || row >= len(names) {
		m.flash = "there is no further review"
		return
	}
	list.at = names[row]
	m.pages = append(m.pages[:1:1], &cardPage{card: m.scene.Cards[row]})
}

// confirmPage repeats what is about to be done, and does it on a typed word.
type confirmPage struct {
	base
	head, done string // "APPROVE", "approved"
	body       []Block
	question   string
	// answer reads what was typed: the note, or what is still wanted.
	answer  func(text string) (note, wanted string)
	do      func(ctx context.Context, note string) ([]Block, error)
	loosens bool
	cards   []Card
	ops     []Operation
	undo    *Act
	in      input
	note    string
}

func (p *confirmPage) want(w *Want) {
	for _, c := range p.cards {
		w.Follow = append(w.Follow, c.ID)
	}
}

func (p *confirmPage) title(*Model) string   { return p.head }
func (p *confirmPage) blocks(*Model) []Block { return p.body }

func (p *confirmPage) prompt(*Model) []Block {
	out := []Block{{Text: p.question, Tone: Strong}}
	if !p.read.all {
		out = append(out, para("> (space shows the rest first)"))
	}
	return out
}

func (p *confirmPage) typing() *input {
	if p.read.all {
		return &p.in
	}
	return nil
}

func (p *confirmPage) hints(*Model) []string {
	if !p.read.all {
		return []string{"space read on", "esc back, nothing is done"}
	}
	return []string{"esc back, nothing is done"}
}

func (p *confirmPage) key(m *Model, k tea.KeyPressMsg) tea.Cmd {
	switch name := k.String(); {
	case name == "esc":
		return m.back()
	case !p.read.all:
		if name == "enter" {
			m.settle(m.frame().height)
		} else if name == "q" {
			return m.back()
		} else {
			m.scroll(k)
		}
	case name == "enter":
		note, wanted := p.answer(string(p.in.text))
		if wanted != "" {
			m.flash = wanted
			return nil
		}
		if n := plain.Units(note); n > plain.Note {
			m.flash = fmt.Sprintf("the note has %s characters, and at most %s are kept", plain.Number(int64(n)), plain.Number(plain.Note))
			return nil
		}
		p.note = note
		return m.act(p)
	case name == "up", name == "down", name == "pgup", name == "pgdown":
		m.scroll(k)
	default:
		m.typed(p.in.key(k))
	}
	return nil
}

// word reads a text that has to begin with one of some words, and what is behind it.
func word(text string, words ...string) (first, rest string, ok bool) {
	first, rest, _ = strings.Cut(strings.TrimSpace(text), " ")
	first = strings.ToLower(strings.TrimRight(first, ",:;."))
	for _, w := range words {
		if first == w {
			return first, strings.TrimSpace(rest), true
		}
	}
	return "", "", false
}

// approval asks whether payments may be made.
func approval(m *Model, cards []Card) *confirmPage {
	c := &confirmPage{head: "APPROVE", done: "approved", loosens: true, cards: cards,
		question: "Type yes, then enter, to approve. A note may follow yes; the agent can read it.",
		answer: func(text string) (string, string) {
			if _, note, ok := word(text, "yes"); ok {
				return note, ""
			}
			return "", "only yes approves; esc goes back"
		}}
	if len(cards) == 1 {
		c.body = append([]Block{{Text: "You are about to let this be paid, once:", Tone: Strong}}, cards[0].Decisive...)
	} else {
		// What was not opened one by one has not been read: all of it is here.
		c.head = fmt.Sprintf("APPROVE %d", len(cards))
		c.question = fmt.Sprintf("Type yes, then enter, to approve all %d. A note may follow yes; the agent can read it.", len(cards))
		c.body = []Block{{Text: fmt.Sprintf("You are about to let these %d be paid, each once:", len(cards)), Tone: Strong}}
		for i := range cards {
			c.body = append(c.body, Block{}, Block{Text: fmt.Sprintf("%d of %d", i+1, len(cards)), Tone: Strong})
			c.body = append(c.body, cards[i].Body...)
		}
	}
	c.decide(m, "approved", false)
	if len(cards) == 1 {
		c.undo = &Act{Decision: "revoked", IDs: []string{cards[0].ID}}
	}
	return c
}

// rejection asks whether payments are refused.
func rejection(m *Model, cards []Card, freeze bool) *confirmPage {
	what, verb := "this payment", "REJECT"
	if len(cards) > 1 {
		what, verb = fmt.Sprintf("these %d payments", len(cards)), fmt.Sprintf("REJECT %d", len(cards))
	}
	c := &confirmPage{head: verb, done: "rejected", cards: cards,
		question: "Enter rejects. Why? A note may be typed first; the agent can read it.",
		body:     []Block{{Text: "You are about to refuse " + what + ":", Tone: Strong}},
		answer:   func(text string) (string, string) { return strings.TrimSpace(text), "" }}
	for i := range cards {
		if len(cards) > 1 {
			c.body = append(c.body, Block{})
		}
		c.body = append(c.body, cards[i].Decisive...)
	}
	if freeze {
		c.head += " AND FREEZE"
		c.question = "Enter rejects, and blocks every payment to the payee until settlewatch unfreeze. Why? A note may be typed first."
	}
	c.decide(m, "rejected", freeze)
	return c
}

func (p *confirmPage) decide(m *Model, decision string, freeze bool) {
	act := Act{Decision: decision, Freeze: freeze}
	for i := range p.cards {
		act.IDs, act.Facts = append(act.IDs, p.cards[i].ID), append(act.Facts, p.cards[i].Facts)
	}
	p.do = func(ctx context.Context, note string) ([]Block, error) {
		act.Note = note
		return m.o.Desk.Decide(ctx, act)
	}
}

// freezeAll asks whether every payment is blocked.
func freezeAll(m *Model) *confirmPage {
	return &confirmPage{head: "FREEZE", done: "frozen",
		body: []Block{{Text: "You are about to block every payment, to anybody.", Tone: Bad}, {},
			para("Every check is answered with block until settlewatch unfreeze.")},
		question: "To freeze, type why, for the record, then enter.",
		answer: func(text string) (string, string) {
			if text = strings.TrimSpace(text); text != "" {
				return text, ""
			}
			return "", "say why, for the record; esc goes back"
		},
		do: m.o.Desk.Freeze}
}

// resolution asks what became of operations.
func resolution(m *Model, ops []Operation) *confirmPage {
	outcome := ""
	c := &confirmPage{head: "RESOLVE", done: "resolved", loosens: true, ops: ops,
		question: "Type settled (the money is gone) or failed (it never moved), then how you know, then enter.",
		answer: func(text string) (string, string) {
			first, note, ok := word(text, "settled", "failed")
			switch {
			case !ok:
				return "", "begin with settled or failed; esc goes back"
			case note == "":
				return "", "say behind it how you know, for the record"
			}
			outcome = first
			return note, ""
		}}
	if len(ops) > 1 {
		c.head = fmt.Sprintf("RESOLVE %d", len(ops))
	}
	c.body = []Block{{Text: "You are about to say what became of " + plural(len(ops), "operation", "operations") + ". Settled counts as spent, failed does not.", Tone: Strong}}
	for i := range ops {
		c.body = append(append(c.body, Block{}), ops[i].Body...)
	}
	c.do = func(ctx context.Context, note string) ([]Block, error) {
		return m.o.Desk.Resolve(ctx, ops, outcome, note)
	}
	return c
}

// secretPage asks for the passphrase of the operator's key.
type secretPage struct {
	base
	file   string
	failed string
	then   *confirmPage
	in     input
}

func (p *secretPage) want(w *Want)        { p.then.want(w) }
func (p *secretPage) title(*Model) string { return "SIGN: " + p.then.head }
func (p *secretPage) typing() *input      { return &p.in }

func (p *secretPage) blocks(*Model) []Block {
	out := []Block{{Text: "This counts only when an operator signs it. To be signed:", Tone: Strong}}
	for i := range p.then.cards {
		out = append(out, para(p.then.done+": "+p.then.cards[i].Amount+" "+p.then.cards[i].Whom))
	}
	for i := range p.then.ops {
		out = append(out, para(p.then.done+": "+p.then.ops[i].Name))
	}
	return append(out, Block{}, Block{Label: "key", Text: p.file}, para("The key stays open until you leave this screen."))
}

func (p *secretPage) prompt(*Model) []Block {
	var out []Block
	if p.failed != "" {
		out = append(out, Block{Text: p.failed + ". Type it again.", Tone: Bad})
	}
	return append(out, Block{Text: "passphrase of this key, then enter:", Tone: Strong})
}

func (p *secretPage) hints(*Model) []string { return []string{"esc back, nothing is done"} }

func (p *secretPage) key(m *Model, k tea.KeyPressMsg) tea.Cmd {
	switch name := k.String(); name {
	case "esc":
		return m.back()
	case "up", "down", "pgup", "pgdown":
		m.scroll(k)
	case "enter":
		if len(p.in.text) == 0 {
			return nil
		}
		passphrase := p.in.bytes()
		p.in.clear()
		p.failed, m.busy = "", "opening the key"
		return func() tea.Msg {
			defer clear(passphrase)
			return unlockedMsg{m.o.Desk.Unlock(m.ctx, passphrase)}
		}
	default:
		p.in.key(k)
	}
	return nil
}

// opsPage lists operations whose money is not accounted for.
type opsPage struct {
	chooser
	of     []Operation // those of a review; nil for all
	marked map[string]bool
}

func (p *opsPage) want(w *Want) { w.Open = w.Open || p.of == nil }

func (p *opsPage) list(m *Model) []Operation {
	if p.of != nil {
		return p.of
	}
	return m.scene.Open
}

// more is how many are not listed.
func (p *opsPage) more(m *Model) int {
	if p.of != nil {
		return 0
	}
	return m.scene.OpenMore
}

func (p *opsPage) names(m *Model) []string {
	var names []string
	for _, o := range p.list(m) {
		names = append(names, o.Name)
	}
	return names
}

func (p *opsPage) title(m *Model) string {
	if p.list(m) == nil {
		return "open operations"
	}
	text := plural(len(p.list(m))+p.more(m), "open operation", "open operations")
	if n := count(p.marked, p.names(m)); n > 0 {
		text += fmt.Sprintf(", %d marked", n)
	}
	return text
}

func (p *opsPage) blocks(m *Model) []Block {
	ops := p.list(m)
	switch {
	case ops == nil:
		return []Block{para(looking)}
	case len(ops) == 0:
		return []Block{{Text: "No operation is open: all money is accounted for.", Tone: Good}}
	}
	row := p.find(p.names(m))
	var out []Block
	for i := range ops {
		out = append(out, entry(i == row, p.marked[ops[i].Name], ops[i].Summary,
			Block{Lead: "to ", Text: ops[i].To}, Block{Lead: "in ", Text: ops[i].Name}, Block{Lead: "as ", Text: ops[i].As})...)
	}
	if n := p.more(m); n > 0 {
		out = append(out, Block{Text: fmt.Sprintf("and %d more, older ones; settlewatch resolve --open takes them all", n), Tone: Warn})
	}
	return out
}

func (p *opsPage) hints(m *Model) []string {
	if len(p.list(m)) == 0 {
		return []string{"esc back"}
	}
	return []string{"enter look", "r resolve", "x mark", "esc back", "? keys"}
}

func (p *opsPage) key(m *Model, k tea.KeyPressMsg) tea.Cmd {
	names := p.names(m)
	if p.move(m, k, names) {
		return nil
	}
	name := k.String()
	switch name {
	case "esc", "q", "left", "h", "backspace":
		return m.back()
	case "?":
		m.push(help())
	}
	if len(names) == 0 {
		return nil
	}
	ops := p.list(m)
	here := ops[p.find(names)]
	switch name {
	case "enter", "right", "l":
		return p.look(m, here)
	case "x":
		if p.marked == nil {
			p.marked = map[string]bool{}
		}
		mark(p.marked, here.Name)
	case "r":
		var chosen []Operation
		for i := range ops {
			if p.marked[ops[i].Name] {
				chosen = append(chosen, ops[i])
			}
		}
		if chosen != nil {
			return m.ask(resolution(m, chosen))
		}
		m.flash = "see first what is on record, then press r"
		return p.look(m, here)
	}
	return nil
}

// look opens an operation and asks for what is on record of it.
func (p *opsPage) look(m *Model, op Operation) tea.Cmd {
	m.push(&opPage{op: op})
	return func() tea.Msg {
		blocks, err := m.o.Desk.Explain(m.ctx, op)
		return explainedMsg{op.Name, blocks, err}
	}
}

// opPage shows one operation and what is on record of it.
type opPage struct {
	base
	op     Operation
	record []Block
	failed error
}

func (p *opPage) title(*Model) string { return "open operation" }

func (p *opPage) blocks(*Model) []Block {
	out := append([]Block{}, p.op.Body...)
	out = append(out, Block{})
	switch {
	case p.failed != nil:
		out = append(out, Block{Text: p.failed.Error(), Tone: Bad})
	case p.record == nil:
		out = append(out, para("reading what is on record"))
	}
	return append(out, p.record...)
}

func (p *opPage) hints(*Model) []string {
	if !p.read.all {
		return []string{"space read on", "esc back", "? keys"}
	}
	return []string{"r resolve", "esc back", "? keys"}
}

func (p *opPage) key(m *Model, k tea.KeyPressMsg) tea.Cmd {
	if m.scroll(k) {
		return nil
	}
	switch k.String() {
	case "esc", "q", "left", "h", "backspace":
		return m.back()
	case "enter":
		m.settle(m.frame().height)
	case "r":
		if !p.read.all || p.record == nil && p.failed == nil {
			m.readOn("r says what became of it")
			return nil
		}
		return m.ask(resolution(m, []Operation{p.op}))
	case "?":
		m.push(help())
	}
	return nil
}

// overviewPage shows how everything stands.
type overviewPage struct{ base }

func (p *overviewPage) want(w *Want) { w.Overview = true }

func (p *overviewPage) title(m *Model) string {
	if !m.looked {
		return "settlewatch: looking"
	}
	return "settlewatch, " + m.scene.At.UTC().Format("15:04:05 UTC")
}

func (p *overviewPage) blocks(m *Model) []Block {
	if m.scene.Overview == nil {
		return []Block{para(looking)}
	}
	return m.scene.Overview
}

func (p *overviewPage) hints(m *Model) []string {
	leave := "esc back"
	if len(m.pages) == 1 {
		leave = "q quit"
	}
	return []string{"space next page", "b page before", leave}
}

func (p *overviewPage) key(m *Model, k tea.KeyPressMsg) tea.Cmd {
	if m.scroll(k) {
		return nil
	}
	switch k.String() {
	case "q", "esc", "left", "h", "w", "tab", "backspace":
		return m.back()
	}
	return nil
}

// textPage tells something.
type textPage struct {
	base
	head    string
	body    []Block
	undo    *Act
	decided bool
}

func notice(head string, tone Tone, body ...Block) *textPage {
	if len(body) > 0 && body[0].Tone == Plain {
		body[0].Tone = tone
	}
	return &textPage{head: head, body: body}
}

// keep shows what was typed for an act that was not done: nobody types it twice.
func (p *textPage) keep(typed string) {
	if typed = strings.TrimSpace(typed); typed != "" {
		p.body = append(p.body, Block{}, para("you had typed: "+typed))
	}
}

func (p *textPage) title(*Model) string   { return p.head }
func (p *textPage) blocks(*Model) []Block { return p.body }

func (p *textPage) hints(m *Model) []string {
	var out []string
	if p.decided && len(m.scene.Cards) > 0 {
		out = append(out, "enter next review")
	}
	if p.undo != nil {
		out = append(out, "u take it back")
	}
	return append(out, "esc back")
}

func (p *textPage) key(m *Model, k tea.KeyPressMsg) tea.Cmd {
	if m.scroll(k) {
		return nil
	}
	switch name := k.String(); {
	case name == "u" && p.undo != nil:
		act := *p.undo
		c := &confirmPage{done: "revoked", do: func(ctx context.Context, _ string) ([]Block, error) { return m.o.Desk.Decide(ctx, act) }}
		return m.act(c)
	case name == "enter" && p.decided && len(m.scene.Cards) > 0:
		m.next("", 0)
		return m.look()
	case name == "enter", name == "esc", name == "q", name == "left", name == "h", name == "backspace":
		return m.back()
	}
	return nil
}

func help() *textPage {
	rows := [][2]string{
		{"j k, arrows", "move, line by line"}, {"space b", "page down, page up"}, {"enter", "look at it"}, {"esc", "back; nothing is done"}, {"n N", "next review, the one before"},
		{"a", "approve: read it to its end, press a, type yes. With operators in the policy the passphrase of your key is asked once"},
		{"r", "reject, then enter; a note may be typed first. For an open operation: say what became of it"},
		{"f", "reject, and block every payment to the payee"}, {"F", "block every payment, to anybody"},
		{"x", "mark, to decide several at once"}, {"p", "mark everything to the same payee"}, {"u", "unmark all; after an approval, take it back"},
		{"o", "operations whose money is not accounted for"}, {"w", "overview: open, held, what the limits leave, health"}, {"q", "back; in the list, quit. A review that nobody decides expires, which permits nothing"},
	}
	var body []Block
	for _, r := range rows {
		body = append(body, Block{Label: r[0], Text: r[1]})
	}
	return &textPage{head: "keys", body: body}
}
