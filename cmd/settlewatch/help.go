package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/settlewatch/settlewatch/internal/plain"
)

// help gives a command the help of the library, laid out to the width of a screen
// that is narrower than the text.
func (a *app) help(root *cobra.Command) {
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		text := strings.TrimRight(c.Long, "\n ")
		if text == "" {
			text = strings.TrimRight(c.Short, "\n ")
		}
		if text != "" {
			a.out.WriteString(reflow(text, a.columns()) + "\n\n")
		}
		if c.Runnable() || c.HasSubCommands() {
			a.out.WriteString(narrowed(c.UsageString(), a.columns()))
		}
	})
}

// reflow joins the lines of each paragraph and breaks them again, where one of them
// does not fit. Indented lines are lists, and are laid out as usage is.
func reflow(text string, width int) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		switch {
		case width <= 0 || widest(p) <= width:
			continue
		case strings.HasPrefix(p, " "):
			paragraphs[i] = narrowed(p, width)
			continue
		}
		paragraphs[i] = strings.Join(plain.Fold(strings.Join(strings.Fields(p), " "), width), "\n")
	}
	return strings.Join(paragraphs, "\n\n")
}

func widest(text string) (n int) {
	for line := range strings.SplitSeq(text, "\n") {
		n = max(n, plain.Width(line))
	}
	return n
}

// narrowed breaks the lines of a usage text that do not fit. What a flag or a
// command is for goes on below itself, or where that leaves no room, below its name.
func narrowed(text string, width int) string {
	if width <= 0 {
		return text
	}
	const below = 8 // columns further lines begin with, where the second column leaves no room
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		if plain.Width(line) <= width {
			out = append(out, line)
			continue
		}
		body := strings.TrimLeft(line, " ")
		lead := len(line) - len(body)
		name, rest, _ := strings.Cut(body, "  ")
		rest = strings.TrimLeft(rest, " ")
		at := len(line) - len(rest)
		switch {
		case rest == "":
			out = append(out, hanging(strings.Repeat(" ", lead), lead+2, body, width)...)
		case width-at >= narrowest:
			out = append(out, hanging(line[:at], at, rest, width)...)
		default:
			out = append(out, strings.Repeat(" ", min(lead, 2))+name)
			out = append(out, hanging(strings.Repeat(" ", below), below, rest, width)...)
		}
	}
	return strings.Join(out, "\n")
}

// hanging breaks text behind a lead, its further lines in a column.
func hanging(lead string, column int, text string, width int) []string {
	parts := plain.Fold(text, max(1, width-column))
	for i := range parts {
		if i > 0 {
			lead = strings.Repeat(" ", column)
		}
		parts[i] = lead + parts[i]
	}
	return parts
}
