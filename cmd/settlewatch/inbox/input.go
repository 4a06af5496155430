package inbox

import (
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/settlewatch/settlewatch/internal/plain"
)

// longest bounds what is typed: a note is a sentence or two.
const longest = 500

// input is one line that is typed. What is typed last stays on the screen.
type input struct {
	text   []rune
	secret bool
}

// newSecret is an input that is not shown. It has room from the start: what grows
// leaves copies behind that nobody clears.
func newSecret() input { return input{secret: true, text: make([]rune, 0, longest)} }

// key takes a key that is one of typing, and ignores others.
func (in *input) key(k tea.KeyPressMsg) {
	switch k.String() {
	case "backspace", "ctrl+h":
		if len(in.text) > 0 {
			in.text[len(in.text)-1] = 0
			in.text = in.text[:len(in.text)-1]
		}
	case "ctrl+u":
		in.clear()
	default:
		in.add(k.Text)
	}
}

// add takes typed or pasted text. A line break in it is a space: a paste must not
// answer a question. A secret is taken as it is, but for line breaks at its end.
func (in *input) add(text string) {
	if in.secret {
		text = strings.TrimRight(text, "\r\n")
	} else {
		text = plain.Clean(text, longest)
		if room := longest - len(in.text); utf8.RuneCountInString(text) > room {
			text = plain.Clean(text, max(0, room))
		}
	}
	in.text = append(in.text, []rune(text)...)
}

// clear forgets what was typed, in memory too.
func (in *input) clear() {
	clear(in.text[:cap(in.text)])
	in.text = in.text[:0]
}

// bytes is what was typed; the caller clears them.
func (in *input) bytes() []byte {
	var out []byte
	for _, r := range in.text {
		out = utf8.AppendRune(out, r)
	}
	return out
}

// shown is the line on the screen. A secret is not on it, nor how long it is.
func (in *input) shown(width int) string {
	if in.secret {
		return "> (what you type is not shown)"
	}
	text := string(in.text)
	room := width - 3
	for cut := false; plain.Width(text) > room && text != ""; {
		_, n := utf8.DecodeRuneInString(text)
		text = text[n:]
		if !cut {
			cut, room = true, room-1
		}
		if plain.Width(text) <= room {
			return "> " + string(plain.Ellipsis) + text
		}
	}
	return "> " + text
}
