package assemble

import (
	"bytes"
	"math"
	"strings"
	"unicode"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

var nan = math.NaN()

// textNumber is JavaScript's Number(text): what a seq given as text is compared
// by (trace contract, section 5, "Off-contract comparisons").
func textNumber(text []byte) float64 {
	s := string(bytes.TrimFunc(text, func(r rune) bool {
		return r == '\uFEFF' || r != '\u0085' && unicode.IsSpace(r)
	}))
	if s == "" {
		return 0
	}
	if len(s) > 2 && s[0] == '0' {
		if bits := map[byte]uint{'x': 4, 'X': 4, 'o': 3, 'O': 3, 'b': 1, 'B': 1}[s[1]]; bits != 0 {
			return jsjson.BinaryDouble(s[2:], bits)
		}
	}
	unsigned := strings.TrimLeft(s[:1], "+-") + s[1:]
	if unsigned == "Infinity" {
		return math.Inf(map[bool]int{true: -1, false: 1}[s[0] == '-'])
	}
	return jsjson.Double(s)
}
