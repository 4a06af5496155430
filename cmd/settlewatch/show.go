package main

import (
	"slices"
	"strings"

	"github.com/settlewatch/settlewatch/internal/plain"
)

// The colours in use, as the terminal spells them.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	bold   = "1"
)

func paint(style, text string) string {
	if style == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// table lays out rows in columns. Cells are cleaned here, so a caller may put
// anything into them. A row is coloured as a whole, after the layout: escape
// sequences inside cells would count as width.
type table struct {
	head   []string
	width  int // most characters of a cell; 0 means plain.Detail
	rows   [][]string
	styles []string
}

func (t *table) row(style string, cells ...string) {
	t.rows = append(t.rows, cells)
	t.styles = append(t.styles, style)
}

// without drops the columns of these names.
func (t *table) without(names ...string) *table {
	kept := func(cells []string) []string {
		var out []string
		for i, cell := range cells {
			if !slices.Contains(names, t.head[i]) {
				out = append(out, cell)
			}
		}
		return out
	}
	out := &table{head: kept(t.head), width: t.width, styles: t.styles}
	for _, row := range t.rows {
		out.rows = append(out.rows, kept(row))
	}
	return out
}

// clean makes every cell fit to be shown.
func (t *table) clean() {
	width := t.width
	if width == 0 {
		width = plain.Detail
	}
	for _, row := range t.rows {
		for i, cell := range row {
			row[i] = plain.Clean(cell, width)
		}
	}
}

const gap = 2 // spaces between columns

// widths are those of the columns.
func (t *table) widths() []int {
	var widths []int
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], plain.Width(cell))
		}
	}
	return widths
}

// natural is the width of the whole table, and rest that of all but the last
// column.
func (t *table) natural() (whole, rest int) {
	widths := t.widths()
	for _, w := range widths[:max(0, len(widths)-1)] {
		rest += w + gap
	}
	if len(widths) == 0 {
		return 0, 0
	}
	return rest + widths[len(widths)-1], rest
}

// narrowest is what a last column is still folded into. A screen that leaves
// less shows a block a row.
const narrowest = 20

// show adds a table to the answer, as wide as the screen allows.
func (a *app) show(t *table) {
	t.clean()
	columns := a.columns()
	whole, rest := t.natural()
	last := 0 // what the last column is folded into; 0 for no limit
	if columns > 0 && whole > columns {
		if last = columns - rest; last < narrowest {
			if t.head != nil {
				a.showBlocks(t, columns)
				return
			}
			last = narrowest
		}
	}
	widths := t.widths()
	if t.head != nil {
		a.showRow(bold, t.head, widths, last)
	}
	for i, row := range t.rows {
		a.showRow(t.styles[i], row, widths, last)
	}
}

// showRow adds a row, whose last cell may take several lines.
func (a *app) showRow(style string, cells []string, widths []int, last int) {
	line := ""
	for i, cell := range cells {
		at := plain.Width(line)
		if i == len(widths)-1 {
			for j, part := range plain.Fold(cell, last) {
				if j > 0 {
					a.line(style, line)
					line = strings.Repeat(" ", at)
				}
				line += part
			}
			break
		}
		line += cell + strings.Repeat(" ", widths[i]-plain.Width(cell)+gap)
	}
	a.line(style, line)
}

// showBlocks adds a table as one block a row: a line a cell that says
// something.
func (a *app) showBlocks(t *table, columns int) {
	labels := 0
	for _, name := range t.head {
		labels = max(labels, plain.Width(name))
	}
	widths := []int{labels, 0}
	for i, row := range t.rows {
		if i > 0 {
			a.line("", "")
		}
		for j, cell := range row {
			if cell != "" && cell != "-" {
				a.showRow(t.styles[i], []string{t.head[j], cell}, widths, max(1, columns-labels-gap))
			}
		}
	}
}

func (a *app) line(style, text string) {
	if text = strings.TrimRight(text, " "); a.colour(a.stdout) && text != "" {
		text = paint(style, text)
	}
	a.out.WriteString(text)
	a.out.WriteByte('\n')
}

// tell adds clean text, on a screen folded to its width. Further lines of a
// paragraph begin below its first word, behind a mark and spaces.
func (a *app) tell(text string) {
	columns := a.columns()
	for line := range strings.SplitSeq(text, "\n") {
		body := strings.TrimLeft(line, " |-")
		indent := plain.Width(line) - plain.Width(body)
		if columns == 0 || indent+narrowest > columns {
			a.say("%s", line)
			continue
		}
		mark, below := line[:len(line)-len(body)], strings.Map(func(r rune) rune {
			if r == '|' {
				return r
			}
			return ' '
		}, line[:len(line)-len(body)])
		for i, part := range plain.Fold(body, columns-indent) {
			if i > 0 {
				mark = below
			}
			a.say("%s%s", mark, part)
		}
	}
}

// short abbreviates an address for a table: 0x833589…2913. Anything else is
// returned as it is.
func short(address string) string {
	if i := strings.LastIndex(address, "0x"); i >= 0 && len(address)-i == 42 {
		return address[:i+8] + "…" + address[len(address)-4:]
	}
	return address
}

// dash is text, or the mark that stands for nothing in a table.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
