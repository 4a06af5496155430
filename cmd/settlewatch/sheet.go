package main

import (
	"strings"

	"github.com/settlewatch/settlewatch/internal/plain"
)

// whole bounds a text that is shown in full: more than any string a request may
// have (guard contract, section 1).
const whole = 4096

// sheet is what a person reads before a decision, a fact a row. Nothing of it is
// cut on a screen of any width: what does not fit goes on below itself, an
// address too, since half an address names somebody else.
type sheet struct{ rows []sheetRow }

type sheetRow struct {
	label, value, origin, style string
}

// row adds a fact; origin says where it comes from, "" that this is no question.
func (s *sheet) row(label, value, origin string) { s.styled("", label, value, origin) }

func (s *sheet) styled(style, label, value, origin string) {
	s.rows = append(s.rows, sheetRow{label, value, origin, style})
}

// The columns of a label, and the width of a screen from which it has more.
const (
	labelNarrow, labelWide = 10, 14
	wideScreen             = 60
)

// showSheet adds a sheet to the answer.
func (a *app) showSheet(s *sheet) {
	columns := a.columns()
	label, width := labelWide, 0
	if columns > 0 {
		if columns < wideScreen {
			label = labelNarrow
		}
		width = max(narrowest, columns-label)
	}
	below := strings.Repeat(" ", label)
	for _, r := range s.rows {
		parts := plain.Fold(plain.Clean(r.value, whole), width)
		if r.origin != "" {
			last, mark := &parts[len(parts)-1], mark(r.origin)
			if joined := *last + " " + mark; width == 0 || plain.Width(joined) <= width {
				*last = joined
			} else {
				parts = append(parts, mark)
			}
		}
		name := plain.Clean(r.label, plain.Detail)
		if n := plain.Width(name); n < label {
			parts[0] = name + strings.Repeat(" ", label-n) + parts[0]
		} else {
			a.line(r.style, name)
			parts[0] = below + parts[0]
		}
		for i, part := range parts {
			if i > 0 {
				part = below + part
			}
			a.line(r.style, part)
		}
	}
}

// put adds clean text on a screen of any width, further lines below its
// first word behind lead.
func (a *app) put(style, lead, text string) {
	columns, indent := a.columns(), plain.Width(lead)
	width := 0
	if columns > 0 {
		width = max(narrowest, columns-indent)
	}
	for i, part := range plain.Fold(plain.Clean(text, whole), width) {
		if i == 1 {
			lead = strings.Repeat(" ", indent)
		}
		a.line(style, lead+part)
	}
}

// toCopy adds a command to copy behind the words that say what it is for, or below
// them where a line has no room for both.
func (a *app) toCopy(words, command string) {
	line := words + " " + oneLine(command)
	if columns := a.columns(); columns == 0 || plain.Width(line) <= columns {
		a.line("", line)
		return
	}
	a.put("", "", words)
	a.pasteable(command)
}

// pasteable adds a command on a line of its own that is never broken: a terminal
// which is too narrow goes on in its next line, and still copies it as one.
func (a *app) pasteable(command string) { a.say("%s", oneLine(command)) }
