package assemble

import (
	"bytes"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
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
		base := map[byte]int{'x': 16, 'X': 16, 'o': 8, 'O': 8, 'b': 2, 'B': 2}[s[1]]
		if base != 0 {
			i, ok := new(big.Int).SetString(s[2:], base)
			if !ok || strings.ContainsAny(s[2:], "+-_") {
				return nan
			}
			f, _ := new(big.Float).SetInt(i).Float64()
			return f
		}
	}
	unsigned := strings.TrimLeft(s[:1], "+-") + s[1:]
	if unsigned == "Infinity" {
		return math.Inf(map[bool]int{true: -1, false: 1}[s[0] == '-'])
	}
	if strings.Trim(unsigned, "0123456789.eE+-") != "" {
		return nan // the words, digit separators and hexadecimal floats of Go
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return nan
	}
	return f
}
