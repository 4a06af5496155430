package inbox

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/settlewatch/settlewatch/internal/plain"
)

// The smallest screen anything is shown on. 40 by 16 is what it is made for.
const leastWidth, leastHeight = 24, 10

func (m *Model) small() bool { return m.width < leastWidth || m.height < leastHeight }

// frame is one screen: what stands above and below, and the lines of the page, of
// which height fit.
type frame struct {
	above, body, below []line
	height             int
	cursor             int // row among below where something is typed, -1 for none
}

// alertLines is how much of an alert stands above every page; the overview has it
// whole.
const alertLines = 2

func (m *Model) frame() frame {
	p := m.page()
	f := frame{cursor: -1, body: layout(p.blocks(m), m.width)}
	_, overview := p.(*overviewPage)
	for _, alert := range m.alerts(overview) {
		for _, part := range m.alert(alert, overview) {
			f.above = append(f.above, line{text: part, tone: Bad})
		}
	}
	f.below = append(f.below, layout(p.prompt(m), m.width)...)
	in := p.typing()
	if in != nil {
		f.cursor = len(f.below)
		f.below = append(f.below, line{text: in.shown(m.width)})
	}
	switch {
	case m.busy != "":
		f.below = append(f.below, line{text: clip(m.busy+" ...", m.width), tone: Warn})
	case m.flash != "":
		for _, part := range plain.Fold(m.flash, m.width) {
			f.below = append(f.below, line{text: part, tone: Warn})
		}
	}
	for _, hint := range keys(p.hints(m), m.width) {
		f.below = append(f.below, line{text: hint})
	}
	// What is asked stays on the screen whatever else there is.
	const title, least = 1, 3
	for len(f.above) > 0 && title+len(f.above)+least+len(f.below) > m.height {
		f.above = f.above[:len(f.above)-1]
	}
	f.height = max(1, m.height-title-len(f.above)-len(f.below))
	return f
}

// alert is an alert in as many lines as it may have.
func (m *Model) alert(text string, whole bool) []string {
	parts := plain.Fold("! "+plain.Clean(text, plain.Explanation), m.width)
	if whole || len(parts) <= alertLines {
		return parts
	}
	const more = " (w: all)"
	last := plain.Fold(parts[alertLines-1], max(1, m.width-len(more)-1))[0]
	return append(parts[:alertLines-1:alertLines-1], last+string(plain.Ellipsis)+more)
}

// alerts are what has to be known on every page.
func (m *Model) alerts(overview bool) []string {
	var out []string
	if m.stale != "" {
		at := ""
		if m.looked {
			at = " since " + m.scene.At.UTC().Format("15:04:05 UTC")
		}
		out = append(out, "not up to date"+at+": "+m.stale)
	}
	if overview {
		return out // the page says the others
	}
	return append(out, m.scene.Alerts...)
}

// hintLines is how many lines of keys there are; ? tells them all.
const hintLines = 2

// keys lays hints out, and leaves those out that do not fit.
func keys(hints []string, width int) []string {
	var lines []string
	for _, hint := range hints {
		if n := len(lines) - 1; n >= 0 && plain.Width(lines[n])+3+plain.Width(hint) <= width {
			lines[n] += " | " + hint
		} else if len(lines) < hintLines {
			lines = append(lines, clip(hint, width))
		}
	}
	return lines
}

// View is the screen.
func (m *Model) View() tea.View {
	if m.small() {
		v := tea.NewView(strings.Join(plain.Fold("this screen is too small: 40 by 16 will do. q quits.", max(1, m.width)), "\n"))
		v.AltScreen = true
		return v
	}
	f := m.frame()
	r := m.page().place()
	top := r.first(f.body, f.height)
	rows := make([]string, 0, m.height)
	rows = append(rows, m.paintTitle(f, top))
	for _, l := range f.above {
		rows = append(rows, m.paint(l))
	}
	for i := range f.height {
		if top+i < len(f.body) {
			rows = append(rows, m.paint(f.body[top+i]))
		} else {
			rows = append(rows, "")
		}
	}
	var cursor *tea.Cursor
	for i, l := range f.below {
		if i == f.cursor {
			cursor = tea.NewCursor(min(plain.Width(l.text), m.width-1), len(rows))
			if m.page().typing().secret {
				cursor.X = len("> ")
			}
		}
		rows = append(rows, m.paint(l))
	}
	v := tea.NewView(strings.Join(rows, "\n"))
	v.AltScreen, v.Cursor = true, cursor
	if m.busy != "" {
		v.Cursor = nil
	}
	return v
}

// paintTitle is the first line: what this is, and which page of it.
func (m *Model) paintTitle(f frame, top int) string {
	right := ""
	if pages := (len(f.body) + f.height - 1) / f.height; pages > 1 {
		n := top/f.height + 1
		if top+f.height >= len(f.body) {
			n = pages
		}
		right = fmt.Sprintf("page %d of %d", n, pages)
		if m.width < wideScreen {
			right = fmt.Sprintf("%d/%d", n, pages)
		}
	}
	left := m.page().title(m)
	parts := plain.Fold(plain.Clean(left, whole), max(1, m.width-plain.Width(right)-1))
	if len(parts) > 1 { // it is repeated in the page
		parts[0] += string(plain.Ellipsis)
	}
	text := bar(parts[0], right, m.width)
	text += strings.Repeat(" ", max(0, m.width-plain.Width(text)))
	if !m.o.Colour {
		return strings.TrimRight(text, " ")
	}
	return "\x1b[7m" + text + "\x1b[0m"
}

var styles = map[Tone]string{Strong: "1", Good: "32", Warn: "33", Bad: "31"}

func (m *Model) paint(l line) string {
	style := styles[l.tone]
	if style == "" || !m.o.Colour || l.text == "" {
		return l.text
	}
	return "\x1b[" + style + "m" + l.text + "\x1b[0m"
}

// away says how far a time is from now: "in 3 h 20 min".
func away(t, now time.Time) string {
	d := t.Sub(now)
	minutes := int64(d / time.Minute)
	switch hours := minutes / 60; {
	case d <= 0:
		return "now"
	case minutes == 0:
		return "in less than a minute"
	case hours == 0:
		return fmt.Sprintf("in %d min", minutes)
	case hours < 48:
		return fmt.Sprintf("in %d h %d min", hours, minutes%60)
	default:
		return fmt.Sprintf("in %d days", hours/24)
	}
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
