package plain

import (
	"fmt"
	"unicode/utf16"
)

// Note is how long a note or a reason may be that a person gives for the record,
// in the units that [Units] counts.
const Note = 2000

// Units is the length of a text as a web form counts it: in characters, of which
// those beyond the first 65,536, such as most emoji, count twice.
func Units(text string) int {
	n := 0
	for _, r := range text {
		n += max(1, utf16.RuneLen(r)) // ill-formed bytes are read as U+FFFD
	}
	return n
}

// Number groups the digits of a number for a person: 1,234,567.
func Number(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Plural is "1 run", "2 runs".
func Plural(n int64, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return Number(n) + " " + one + "s"
}

// Size is a number of bytes for a person: "1.4 MiB".
func Size(n int64) string {
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
