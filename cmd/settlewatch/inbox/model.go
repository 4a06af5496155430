package inbox

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/settlewatch/settlewatch/internal/errcode"
)

// Options say what an inbox is opened over.
type Options struct {
	Desk     Desk
	Now      func() time.Time
	Every    time.Duration // how often it looks by itself; 0: never, only after an act and on ctrl+l
	Overview bool          // only the overview, which decides nothing
	Colour   bool
	In       io.Reader // the terminal
	Out      io.Writer
	Environ  []string // of the terminal: what it can do
}

// Run shows the inbox until the person leaves it or ctx ends, and puts the terminal
// back as it was, also after a defect.
func Run(ctx context.Context, o Options) error {
	p := tea.NewProgram(New(ctx, o), tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out),
		tea.WithEnvironment(o.Environ), tea.WithoutSignalHandler()) // signals end ctx
	_, err := p.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return errcode.Wrap(err, errcode.Internal, "report this; `settlewatch review list` shows the same without a full screen", "show the inbox")
	}
	return nil
}

// Model is the inbox as the library runs it: New, Update and View touch nothing but
// the desk.
type Model struct {
	o             Options
	ctx           context.Context
	width, height int

	scene   Scene
	looked  bool   // there is a scene
	stale   string // why the last look gave none
	looking bool
	again   bool // look once more when this look is over

	pages    []page // the last is on the screen
	marked   map[string]bool
	decided  map[string]time.Time // by us, with the expiry they had: a late look may still have them
	unlocked bool
	busy     string // what is being done; keys wait
	flash    string // said until the next key
}

// New makes an inbox that has looked at nothing yet.
func New(ctx context.Context, o Options) *Model {
	m := &Model{o: o, ctx: ctx, width: 80, height: 24, marked: map[string]bool{}, decided: map[string]time.Time{}}
	if o.Overview {
		m.pages = []page{&overviewPage{}}
	} else {
		m.pages = []page{&listPage{}}
	}
	return m
}

// Init begins to look.
func (m *Model) Init() tea.Cmd { return m.look() }

type (
	sceneMsg struct {
		scene *Scene
		err   error
		took  time.Duration
	}
	lookMsg struct{}
	doneMsg struct { // an act came back
		what   *confirmPage
		blocks []Block
		err    error
	}
	unlockedMsg  struct{ err error }
	explainedMsg struct {
		name   string
		blocks []Block
		err    error
	}
)

// lookShare is of how many parts of the time looking takes one at most: the machine
// is there for others too.
const lookShare = 10

// look looks now, or once more when the look that is under way is over.
func (m *Model) look() tea.Cmd {
	if m.looking {
		m.again = true
		return nil
	}
	m.looking, m.again = true, false
	w := Want{Overview: m.o.Overview}
	for _, p := range m.pages {
		p.want(&w)
	}
	return func() tea.Msg {
		began := m.o.Now()
		s, err := m.o.Desk.Look(m.ctx, w)
		return sceneMsg{s, err, m.o.Now().Sub(began)}
	}
}

// Update takes a key, a size or an answer.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case lookMsg:
		cmd = m.look()
	case sceneMsg:
		cmd = m.saw(msg)
	case doneMsg:
		cmd = m.did(msg)
	case unlockedMsg:
		cmd = m.opened(msg)
	case explainedMsg:
		if p, ok := m.page().(*opPage); ok && p.op.Name == msg.name {
			p.record, p.failed = msg.blocks, msg.err
		}
	case tea.PasteMsg:
		if in := m.page().typing(); in != nil && m.busy == "" {
			m.flash = ""
			m.typed(in.add(msg.Content))
		}
	case tea.KeyPressMsg:
		cmd = m.key(msg)
	}
	m.settle(0)
	return m, cmd
}

// saw takes what was looked for.
func (m *Model) saw(msg sceneMsg) tea.Cmd {
	m.looking = false
	if msg.err != nil {
		m.stale = errcode.Of(msg.err).Error()
	} else {
		m.scene, m.looked, m.stale = *msg.scene, true, ""
		m.scene.Cards = slices.DeleteFunc(slices.Clone(m.scene.Cards), func(c Card) bool {
			expiry, ours := m.decided[c.ID]
			return ours && expiry.Equal(c.Expires)
		})
		for id := range m.marked {
			if m.scene.card(id) == nil {
				delete(m.marked, id)
			}
		}
		for _, p := range m.pages {
			// Times pass on a page that is being read; what was asked does not change.
			if p, ok := p.(*cardPage); ok {
				if now := m.scene.card(p.card.ID); now != nil && now.same(&p.card) {
					p.card = *now
				}
			}
		}
		m.overtaken()
	}
	if m.again {
		return m.look()
	}
	if m.o.Every == 0 {
		return nil
	}
	return tea.Tick(max(m.o.Every, lookShare*msg.took), func(time.Time) tea.Msg { return lookMsg{} })
}

// overtaken leaves a question whose reviews wait no longer as they were shown.
func (m *Model) overtaken() {
	for i, p := range m.pages {
		c, ok := p.(*confirmPage)
		if !ok || m.busy != "" {
			continue
		}
		if why := m.late(c.cards); why != "" {
			typed := string(c.in.text)
			m.leave(m.pages[i:])
			n := notice("NOT DONE", Bad, para("nothing was "+c.done+": "+why))
			n.keep(typed)
			m.pages = append(m.pages[:i:i], n)
			return
		}
	}
}

// late says why reviews can no longer be decided as they were shown, "" if they can.
func (m *Model) late(cards []Card) string {
	for i := range cards {
		c := &cards[i]
		if why := m.ended(c); why != "" {
			return "the review of " + c.Amount + " " + c.Whom + " " + why
		}
	}
	return ""
}

// ended says what became of a review that waits no longer, or no longer as it was
// shown; "" where it waits.
func (m *Model) ended(c *Card) string {
	now := m.scene.card(c.ID)
	switch {
	case now == nil && m.scene.Ends[c.ID] != "":
		return m.scene.Ends[c.ID]
	case now == nil:
		return "no longer waits"
	case !now.same(c):
		return "was decided and opened again meanwhile, or has changed: look at it again"
	case !m.o.Now().Before(c.Expires):
		return "expired meanwhile: nobody decided, so it is no permission"
	}
	return ""
}

// same reports whether a review is still what was shown.
func (c *Card) same(shown *Card) bool {
	return c.ID == shown.ID && c.Facts == shown.Facts && c.Expires.Equal(shown.Expires)
}

func (s *Scene) card(id string) *Card {
	if i := slices.IndexFunc(s.Cards, func(c Card) bool { return c.ID == id }); i >= 0 {
		return &s.Cards[i]
	}
	return nil
}

// typed says when what was typed was more than there is room for.
func (m *Model) typed(fits bool) {
	if !fits {
		m.flash = "there is no room for more: the rest was not taken"
	}
}

func (m *Model) page() page { return m.pages[len(m.pages)-1] }

func (m *Model) push(p page) { m.pages = append(m.pages, p) }

// back leaves the page on the screen, and the program where there is none before it.
func (m *Model) back() tea.Cmd {
	if len(m.pages) == 1 {
		return tea.Quit
	}
	m.leave(m.pages[len(m.pages)-1:])
	m.pages = m.pages[:len(m.pages)-1]
	return nil
}

// leave forgets what was typed on pages.
func (m *Model) leave(pages []page) {
	for _, p := range pages {
		if in := p.typing(); in != nil {
			in.clear()
		}
	}
}

// key does what a key does everywhere, or has the page do it.
func (m *Model) key(k tea.KeyPressMsg) tea.Cmd {
	switch name := k.String(); {
	case name == "ctrl+c":
		return tea.Quit
	case name == "ctrl+z":
		return tea.Suspend
	case name == "ctrl+l":
		return tea.Batch(tea.ClearScreen, m.look())
	case m.busy != "":
		return nil
	case m.small():
		if name == "q" {
			return tea.Quit
		}
		return nil
	}
	m.flash = ""
	return m.page().key(m, k)
}

// scroll moves the page by a key, and reports whether it was one of those.
func (m *Model) scroll(k tea.KeyPressMsg) bool {
	height := m.frame().height
	switch k.String() {
	case "down", "j":
		m.settle(1)
	case "up", "k":
		m.settle(-1)
	case "pgdown", "space", "ctrl+f":
		m.settle(height)
	case "pgup", "b", "ctrl+b":
		m.settle(-height)
	case "home", "g":
		m.settle(-1 << 20)
	case "end", "G":
		m.settle(1 << 20)
	default:
		return false
	}
	return true
}

// settle moves the page on the screen by some lines, and notes what is seen of it.
func (m *Model) settle(by int) {
	if m.small() {
		return // nothing is seen
	}
	f := m.frame()
	m.page().place().settle(f.body, m.width, f.height, by)
}

// unread is how many screens of the page have not been on the screen.
func (m *Model) unread() int {
	f := m.frame()
	left := len(f.body) - index(f.body, m.page().place().seen)
	return (left + f.height - 1) / max(1, f.height)
}

// readOn goes on to what has not been seen, and says that there is more.
func (m *Model) readOn(before string) {
	n := m.unread()
	m.settle(m.frame().height)
	if m.page().place().all {
		m.flash = "that was the end of it: now " + before
		return
	}
	m.flash = fmt.Sprintf("read it to its end first (%d more screens), then %s", n, before)
}

// ask puts a question, whose answer is an act.
func (m *Model) ask(c *confirmPage) tea.Cmd {
	if len(c.cards) > 0 {
		if why := m.late(c.cards); why != "" {
			m.push(notice("NOT POSSIBLE", Bad, para(why)))
			return nil
		}
	}
	if c.loosens && m.scene.KeyFault != "" {
		m.push(notice("NOT POSSIBLE", Bad, para("this counts only when an operator signs it, and that cannot be: "+m.scene.KeyFault)))
		return nil
	}
	m.push(c)
	return nil
}

// act does what was confirmed, once it can be signed.
func (m *Model) act(c *confirmPage) tea.Cmd {
	if why := m.late(c.cards); why != "" {
		m.overtaken()
		return nil
	}
	if c.loosens && m.scene.Key != "" && !m.unlocked {
		m.push(&secretPage{file: m.scene.Key, then: c, in: newSecret()})
		return nil
	}
	m.busy = "writing it to the decisions log"
	note := c.note
	return func() tea.Msg {
		blocks, err := c.do(m.ctx, note)
		return doneMsg{c, blocks, err}
	}
}

// did says what came of an act.
func (m *Model) did(msg doneMsg) tea.Cmd {
	m.busy = ""
	m.leave(m.pages)
	if msg.err != nil {
		// What led to it stays: the person may try again, or see why not.
		if i := slices.Index(m.pages, page(msg.what)); i > 0 {
			m.pages = m.pages[:i]
		}
		e := errcode.Of(msg.err)
		n := notice("NOT DONE", Bad, Block{Text: "nothing was " + msg.what.done + ":", Tone: Bad}, para(e.Message))
		if e.Hint != "" {
			n.body = append(n.body, para("try: "+e.Hint))
		}
		n.keep(msg.what.note)
		m.push(n)
		return m.look()
	}
	for _, c := range msg.what.cards {
		m.decided[c.ID] = c.Expires
		delete(m.marked, c.ID)
	}
	m.scene.Cards = slices.DeleteFunc(m.scene.Cards, func(c Card) bool {
		return slices.ContainsFunc(msg.what.cards, func(d Card) bool { return d.ID == c.ID })
	})
	n := notice("DONE", Good, msg.blocks...)
	n.undo, n.decided = msg.what.undo, len(msg.what.cards) > 0
	m.pages = append(m.pages[:1:1], n)
	return m.look()
}

// opened goes on with an act once the key is open.
func (m *Model) opened(msg unlockedMsg) tea.Cmd {
	m.busy = ""
	p, ok := m.page().(*secretPage)
	if !ok {
		return nil
	}
	if msg.err != nil {
		p.failed = errcode.Of(msg.err).Message
		return nil
	}
	m.unlocked = true
	m.back()
	return m.act(p.then)
}

func para(text string) Block { return Block{Text: text} }
