package inbox

import (
	"strings"

	"github.com/settlewatch/settlewatch/internal/plain"
)

// whole bounds a text that is shown in full: more than any string a request may
// have (guard contract, section 1).
const whole = 4096

// line is one line of a page. block and off say which block it belongs to and which
// of its lines it is, so that a place in a page outlives another width.
type line struct {
	text string
	tone Tone
	at   anchor
}

// anchor is a place in a page.
type anchor struct{ block, off int }

// The columns of a label, and the width from which it has more.
const (
	labelNarrow, labelWide = 10, 14
	wideScreen             = 60
)

// layout breaks blocks into lines of a width.
func layout(blocks []Block, width int) []line {
	var out []line
	for i, b := range blocks {
		for off, text := range b.lines(width) {
			out = append(out, line{text: text, tone: b.Tone, at: anchor{i, off}})
		}
	}
	return out
}

// lines are those of one block. Each is clean: no text of a stranger reaches the
// screen another way.
func (b Block) lines(width int) []string {
	text := plain.Clean(b.Text, whole)
	if b.Label == "" {
		lead := plain.Clean(b.Lead, whole)
		return hang(lead, plain.Width(lead), plain.Fold(text, max(1, width-plain.Width(lead))))
	}
	column := labelWide
	if width < wideScreen {
		column = labelNarrow
	}
	room := max(1, width-column)
	parts := plain.Fold(text, room)
	if mark := plain.Clean(b.Mark, whole); mark != "" {
		last := &parts[len(parts)-1]
		if joined := *last + " " + mark; plain.Width(joined) <= room {
			*last = joined
		} else {
			parts = append(parts, plain.Fold(mark, room)...)
		}
	}
	label := plain.Clean(b.Label, whole)
	if n := plain.Width(label); n < column {
		return hang(label+strings.Repeat(" ", column-n), column, parts)
	}
	return append(plain.Fold(label, width), hang(strings.Repeat(" ", column), column, parts)...)
}

// hang puts the first part behind a lead and the others below it.
func hang(lead string, columns int, parts []string) []string {
	out := make([]string, len(parts))
	below := strings.Repeat(" ", columns)
	for i, part := range parts {
		if i == 1 {
			lead = below
		}
		out[i] = strings.TrimRight(lead+part, " ")
	}
	return out
}

// reader is a place in a page that is longer than the screen, and how far the page
// has been on it without a gap.
type reader struct {
	top, seen anchor
	width     int
	all       bool // every line has been on the screen
}

// index is the line an anchor stands at, or the end.
func index(lines []line, at anchor) int {
	for i, l := range lines {
		if l.at.block > at.block || l.at.block == at.block && l.at.off >= at.off {
			return i
		}
	}
	return len(lines)
}

func anchorOf(lines []line, i int) anchor {
	switch {
	case i < len(lines):
		return lines[i].at
	case len(lines) == 0:
		return anchor{}
	}
	return anchor{lines[len(lines)-1].at.block + 1, 0}
}

// settle moves the reader by some lines and takes note of what is on the screen
// then. A line counts as seen where everything before it was. On a screen of
// another width a block that was seen in part is to be seen again.
func (r *reader) settle(lines []line, width, height, by int) {
	if r.width != width {
		r.top.off, r.seen.off, r.width = 0, 0, width
	}
	top := r.first(lines, height)
	top = min(max(0, top+by), max(0, len(lines)-height))
	seen := index(lines, r.seen)
	if top <= seen {
		seen = max(seen, min(top+height, len(lines)))
	}
	r.top, r.seen, r.all = anchorOf(lines, top), anchorOf(lines, seen), seen == len(lines)
}

// first is the line the screen begins with.
func (r *reader) first(lines []line, height int) int {
	return min(index(lines, r.top), max(0, len(lines)-height))
}

// bar is a line with something at either end, as far as there is room for the
// second.
func bar(left, right string, width int) string {
	left, right = plain.Clean(left, whole), plain.Clean(right, whole)
	free := width - plain.Width(left) - plain.Width(right)
	if right == "" || free < 1 {
		return left
	}
	return left + strings.Repeat(" ", free) + right
}

// clip is the beginning of a text that is no fact, such as the hint of a key.
func clip(text string, width int) string {
	return plain.Fold(text, max(1, width))[0]
}
