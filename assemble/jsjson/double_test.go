package jsjson_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/settlewatch/settlewatch/assemble/jsjson"
)

// The digits of these stand before the point, where strconv forgets all beyond eight
// hundred.
func TestLongNumbersKeepTheirPowerOfTen(t *testing.T) {
	zeros := func(n int) string { return strings.Repeat("0", n) }
	for _, c := range []struct{ src, want string }{
		{"1" + zeros(800) + "e-790", "10000000000"},
		{"-1" + zeros(800) + "e-790", "-10000000000"},
		{"1" + zeros(799) + "e-790", "1000000000"},
		{"1" + zeros(850) + "e-845", "100000"},
		{"1" + zeros(850) + ".000e-845", "100000"},
		{"1" + zeros(850) + "E-0845", "100000"},
		{"1" + zeros(850) + "e-500", "null"},
		{"-1" + zeros(850) + "e-500", "null"},
		{"1" + zeros(850) + "e-1170", "1e-320"},
		{"1" + zeros(850) + "e-99999999999999999999", "0"},
		{"1" + zeros(850) + "e+99999999999999999999", "null"},
		{"9007199254740993" + zeros(786) + "e-786", "9007199254740992"},
		{"9007199254740993" + zeros(786) + ".01e-786", "9007199254740994"},
		{"9007199254740993" + zeros(900) + "1e-901", "9007199254740994"},
		{strings.Repeat("3", 900) + "e-899", "3.3333333333333335"},
		{"0." + zeros(850) + "15e851", "1.5"},
	} {
		if got := jsjson.AppendNumber(nil, parse(t, c.src).Float()); string(got) != c.want {
			t.Errorf("%.20s... of %d bytes is %s, want %s", c.src, len(c.src), got, c.want)
		}
	}
}

// exactly is the double nearest to a numeral, worked out as a fraction.
func exactly(t *testing.T, numeral string) float64 {
	t.Helper()
	r, ok := new(big.Rat).SetString(numeral)
	if !ok {
		t.Fatalf("%s is no number", numeral)
	}
	f, _ := r.Float64()
	return f
}

func TestLongNumbersAreTheNearestDouble(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for range 1500 {
		digits := someDigits(r)
		// The point somewhere, and an exponent that mostly brings the value back to
		// where doubles are.
		point := r.IntN(len(digits) + 1)
		whole, fraction := digits[:point], digits[point:]
		if whole == "" {
			whole = "0"
		}
		sign := []string{"", "-"}[r.IntN(2)]
		src := sign + whole
		if fraction != "" {
			src += "." + fraction
		}
		exponent := r.IntN(700) - 350 - point
		if r.IntN(10) == 0 {
			exponent = r.IntN(4000) - 2000
		}
		src += fmt.Sprintf("e%d", exponent)
		want := exactly(t, src)
		if got := jsjson.Double(src); got != want {
			t.Fatalf("%s is %v, want %v", src, got, want)
		}
		if src = strings.TrimLeft(strings.TrimPrefix(src, sign), "0"); src[0] != '.' && src[0] != 'e' {
			if got := parse(t, sign+src).Float(); got != want {
				t.Fatalf("in a document %s is %v, want %v", sign+src, got, want)
			}
		}
	}
}

// someDigits are up to some two thousand digits: any, few among zeros, or those of a
// value half way between two doubles, with and without something behind.
func someDigits(r *rand.Rand) string {
	var b strings.Builder
	switch r.IntN(3) {
	case 0:
		for range 1 + r.IntN(1700) {
			b.WriteByte(byte('0' + r.IntN(10)))
		}
	case 1:
		for range 1 + r.IntN(3) {
			b.WriteString(strconv.Itoa(r.IntN(100)))
			b.WriteString(strings.Repeat("0", r.IntN(700)))
		}
	default:
		half := new(big.Float).SetMantExp(new(big.Float).SetUint64(1<<53|r.Uint64()>>12<<1|1), r.IntN(1000)-500)
		text := strings.Trim(strings.ReplaceAll(half.Text('f', 600), ".", ""), "0")
		b.WriteString(text + strings.Repeat("0", r.IntN(600)))
		if r.IntN(2) == 0 {
			b.WriteByte('1')
		}
	}
	return strings.Repeat("0", r.IntN(2)*r.IntN(900)) + b.String()
}

func TestWhatIsNoNumeralIsNaN(t *testing.T) {
	long := strings.Repeat("0", 900)
	for _, s := range []string{"", "+", "-", ".", "e1", ".e1", "1e", "1e+", "1e1.5", "1.2.3", "--1", "1 ", " 1", "0x10", "0x1p3", "1_0", "inf", "Infinity", "nan", "1f", "1e1e1",
		"1" + long + "x", "1" + long + "e", "1" + long + ".0.0", "0x" + long + "1"} {
		if f := jsjson.Double(s); !math.IsNaN(f) {
			t.Errorf("%.20q is %v", s, f)
		}
	}
	for s, want := range map[string]float64{"+1": 1, "-1": -1, "5.": 5, ".5": .5, "007": 7, "+.5e+1": 5, "1." + long: 1, "+" + long + "7." + long + "e-1": .7, "1e400": math.Inf(1), "-1e400": math.Inf(-1)} {
		if f := jsjson.Double([]byte(s)); f != want {
			t.Errorf("%.20q is %v, want %v", s, f, want)
		}
	}
	if f := jsjson.Double("-" + long + "e5"); f != 0 || !math.Signbit(f) {
		t.Errorf("a long -0 is %v", f)
	}
}

func TestNumbersOfABinaryBaseAreTheNearestDouble(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	for range 1500 {
		bits := []uint{1, 3, 4}[r.IntN(3)]
		digits := "0123456789abcdef"[:1<<bits]
		b := []byte(strings.Repeat("0", r.IntN(20)) + "1")
		for range r.IntN(60) {
			b = append(b, digits[r.IntN(len(digits))])
		}
		b = append(b, strings.Repeat("0", r.IntN(300))...)
		b = append(b, digits[r.IntN(len(digits))])
		i, ok := new(big.Int).SetString(string(b), 1<<bits)
		if !ok {
			t.Fatalf("%s is no number", b)
		}
		want, _ := new(big.Float).SetInt(i).Float64()
		if got := jsjson.BinaryDouble(b, bits); got != want {
			t.Fatalf("%s in base %d is %v, want %v", b, 1<<bits, got, want)
		}
	}
	for _, c := range []struct {
		src  string
		bits uint
	}{{"", 4}, {"g", 4}, {"8", 3}, {"2", 1}, {"-1", 4}, {"1_0", 4}, {"1.", 4}, {"/", 4}, {":", 4}, {"@", 4}} {
		if f := jsjson.BinaryDouble(c.src, c.bits); !math.IsNaN(f) {
			t.Errorf("%q in base %d is %v", c.src, 1<<c.bits, f)
		}
	}
	if f := jsjson.BinaryDouble("fF", 4); f != 255 {
		t.Errorf("fF is %v", f)
	}
}

// A number may be as long as a line: each digit is looked at once or twice. What
// grows with the square takes minutes here.
func TestAMonstrousNumberCostsWhatItsLengthCosts(t *testing.T) {
	const size = 32 << 20
	digits := strings.Repeat("7", size)
	if f := jsjson.Double(digits + "e-" + strconv.Itoa(size-1)); f != 7.777777777777778 {
		t.Errorf("got %v", f)
	}
	if f := jsjson.BinaryDouble(digits, 4); !math.IsInf(f, 1) {
		t.Errorf("got %v", f)
	}
}
