package inbox

import (
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/settlewatch/settlewatch/internal/plain"
)

const (
	// longest bounds what is typed: a note, and the word in front of it.
	longest = plain.Note + 32
	// longestSecret is more than any passphrase that is typed has.
	longestSecret = 500
)

// input is one line that is typed. What is typed last stays on the screen.
type input struct {
	text   []rune
	secret bool
}

// newSecret is an input that is not shown. It has room from the start: what grows
// leaves copies behind that nobody clears.
func newSecret() input { return input{secret: true, text: make([]rune, 0, longestSecret)} }

// key takes a key that is one of typing, and ignores others. It tells whether there
// was room for it.
func (in *input) key(k tea.KeyPressMsg) bool {
	switch k.String() {
	case "backspace", "ctrl+h":
		if len(in.text) > 0 {
			in.text[len(in.text)-1] = 0
			in.text = in.text[:len(in.text)-1]
		}
	case "ctrl+u":
		in.clear()
	default:
		return in.add(k.Text)
	}
	return true
}

// add takes typed or pasted text. A line break in it is a space: a paste must not
// answer a question. A secret is taken as it is, but for line breaks at its end. What
// there is no room for is cut, and add tells whether there was.
func (in *input) add(text string) bool {
	if in.secret {
		in.text = append(in.text, []rune(strings.TrimRight(text, "\r\n"))...)
		return true
	}
	text = plain.Clean(text, longest+1) // one more than fits shows that more came
	room := longest - len(in.text)
	fits := utf8.RuneCountInString(text) <= room
	if !fits {
		text = plain.Clean(text, room)
	}
	in.text = append(in.text, []rune(text)...)
	return fits
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
