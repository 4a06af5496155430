package mcp

import (
	"strings"

	"github.com/settlewatch/settlewatch/ingest"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// longestWay is the most bytes of an address or a command line in a hint. A
// longer one is given as its pattern: hints are cut, and a part of an address
// leads somewhere else.
const longestWay = 600

// commandLine is what to type for an operation, or "" when no command line can
// name it.
func commandLine(command string, r ingest.Ref, template string) string {
	if strings.Contains(r.Run+r.Operation, "\x00") {
		return "" // ends an operand
	}
	flags := "settlewatch " + command + " --template " + shellQuote(template)
	run := r.Run
	if run == "latest" || strings.HasPrefix(run, "run:") {
		run = "run:" + run // trace contract, section 12.4
	}
	operands := []string{run}
	if r.Null {
		flags += " --null-operation"
	} else {
		operands = append(operands, r.Operation)
	}
	line := flags
	for _, o := range operands {
		if strings.HasPrefix(o, "-") {
			line += " --"
			break
		}
	}
	for _, o := range operands {
		line += " " + shellQuote(o)
	}
	if len(line) <= longestWay {
		return line
	}
	if r.Null {
		return flags + " RUN"
	}
	return flags + " RUN OPERATION"
}

// shellQuote writes one word of a POSIX shell's command line. Ids come from
// strangers, so nothing in one may reach the shell as more than text; and a text
// the cleaner of hints would change is spelled in octal.
func shellQuote(word string) string {
	safe := word != ""
	for i := 0; i < len(word); i++ {
		safe = safe && (unreserved(word[i]) && word[i] != '~' || strings.IndexByte(":/@%+,=", word[i]) >= 0)
	}
	if safe {
		return word
	}
	// A backtick would end the command in the eyes of whoever reads the hint.
	if !strings.Contains(word, "`") && plain.Clean(word, len(word)) == word {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	var b strings.Builder
	b.WriteString("$'")
	for i := 0; i < len(word); i++ {
		c := word[i]
		switch {
		case c == '\'' || c == '\\' || c == '`' || c < 0x20 || c > 0x7e:
			b.Write([]byte{'\\', '0' + c>>6, '0' + c>>3&7, '0' + c&7})
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('\'')
	return b.String()
}
