package main

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/settlewatch/settlewatch/internal/plain"
)

// The colours in use, as the terminal spells them.
const (
	red    = "31"
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

// show adds a table to the answer.
func (a *app) show(t *table) {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	if t.head != nil {
		fmt.Fprintln(w, strings.Join(t.head, "\t"))
	}
	width := t.width
	if width == 0 {
		width = plain.Detail
	}
	for _, row := range t.rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = plain.Clean(cell, width)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	w.Flush()
	colour := a.colour(a.stdout)
	styles := t.styles
	if t.head != nil {
		styles = append([]string{bold}, styles...)
	}
	for i, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
		if line = strings.TrimRight(line, " "); colour && i < len(styles) {
			line = paint(styles[i], line)
		}
		a.out.WriteString(line)
		a.out.WriteByte('\n')
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

// number groups digits: 1,234,567.
func number(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// plural is "1 run", "2 runs".
func plural(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + one + "s"
}

// size is a number of bytes for a person: "1.4 MiB".
func size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, u := float64(n)/1024, 0
	for f >= 1024 && u < len(units)-1 {
		f, u = f/1024, u+1
	}
	return fmt.Sprintf("%.1f %ciB", f, units[u])
}
