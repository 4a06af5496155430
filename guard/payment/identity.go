package payment

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"golang.org/x/crypto/sha3"
)

// maxText is the longest text from an event that is kept as it is. What is
// longer is kept as its hash: still exact, and no line can blow up the index. No
// call may name anything longer (guard contract, section 1).
const maxText = 2048

func bounded(s string) string {
	if len(s) <= maxText {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func alnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func hexDigit(c byte) bool {
	return c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' || c >= '0' && c <= '9'
}

// evm reports whether s is an EVM address: 0x or 0X and 40 hex digits.
func evm(s string) bool {
	return len(s) == 42 && s[0] == '0' && s[1]|0x20 == 'x' && allHex(s[2:])
}

func allHex(s string) bool {
	for i := range len(s) {
		if !hexDigit(s[i]) {
			return false
		}
	}
	return true
}

// The lengths of what is taken for an address when it is not an EVM one. The
// shortest in use have 25 characters, the longest 103.
const (
	minAddress = 25
	maxAddress = 128
)

// addressLike reports whether s has the look of an address: letters and digits
// only, long, or 0x and then letters and digits.
func addressLike(s string) bool {
	if len(s) > maxAddress || len(s) < 3 {
		return false
	}
	if len(s) < minAddress && (s[0] != '0' || s[1]|0x20 != 'x') {
		return false
	}
	for i := 0; i < len(s); i++ {
		if !alnum(s[i]) {
			return false
		}
	}
	return true
}

// Address reads an address. EVM addresses are case-blind and come out in lower
// case; everything else that looks like an address (Solana, Stellar, Algorand
// and others) is kept exactly, because one letter's case is another payee (guard
// contract, section 3). ok is false for what does not look like an address.
func Address(s string) (canon string, ok bool) {
	if evm(s) {
		return strings.ToLower(s), true
	}
	return s, addressLike(s)
}

// ChecksumOK is false for an EVM address in mixed case whose EIP-55 checksum is
// wrong. Addresses in one case carry no checksum, and other text has none.
func ChecksumOK(s string) bool {
	if !evm(s) {
		return true
	}
	digits := s[2:]
	lower := strings.ToLower(digits)
	if digits == lower || digits == strings.ToUpper(digits) {
		return true
	}
	h := sha3.NewLegacyKeccak256()
	h.Write([]byte(lower))
	sum := h.Sum(nil)
	for i := 0; i < len(lower); i++ {
		c := lower[i]
		if c >= 'a' && sum[i/2]>>(4*(1-i%2))&0xf >= 8 {
			c -= 'a' - 'A'
		}
		if digits[i] != c {
			return false
		}
	}
	return true
}

// Names of counterparties share one namespace: addresses as Address gives them,
// hosts as Host gives them, and payees that are neither behind this prefix,
// which no host and no address has.
const payeePrefix = "payee:"

// Payee is the name of the account in a pay_to member: an address, or exact text
// behind a prefix, so that a seller who writes a host there does not become that
// host. Empty text is no payee (trace contract, section 9).
func Payee(payTo string) string {
	if payTo == "" {
		return ""
	}
	if a, ok := Address(payTo); ok {
		return a
	}
	return payeePrefix + bounded(payTo)
}

// hostName is the name of a canonical host. One that has the look of an address
// keeps its root dot, so that it can never be taken for that address.
func hostName(host string) string {
	if addressLike(host) {
		return host + "."
	}
	return host
}

// Name is the name of a counterparty as a person or an agent types it: an
// address, a host, or a URL, whose host counts. It is empty for empty text.
func Name(s string) string {
	if s == "" {
		return ""
	}
	if a, ok := Address(s); ok {
		return a
	}
	if h, ok := Host(s); ok {
		return hostName(h)
	}
	return payeePrefix + bounded(s)
}

// Names is every name that typed text may stand for, the likeliest (Name) first.
// Some text is both a host and an account (alice.near); a question about it is
// about both, so that no history is missed.
func Names(s string) []string {
	first := Name(s)
	if first == "" {
		return nil
	}
	names := []string{first}
	if addressLike(s) {
		// With capitals it is an address alone: read as a host, which has none, it
		// would be every payee that differs by a letter's case.
		if h, ok := Host(s); ok && !evm(s) && s == strings.ToLower(s) {
			names = append(names, hostName(h))
		}
	} else if p := Payee(s); p != first {
		names = append(names, p)
	}
	return names
}

// Display is a name as it is shown to people: without the marks that keep
// payees and hosts apart.
func Display(name string) string {
	if rest, ok := strings.CutPrefix(name, payeePrefix); ok {
		return rest
	}
	return strings.TrimSuffix(name, ".")
}

// hexClass tells hex digits apart: 1 a digit as it is, 2 one in upper case, 4 no
// digit.
var hexClass = func() (class [256]uint8) {
	for i := range class {
		c := byte(i)
		switch {
		case !hexDigit(c):
			class[i] = 4
		case c >= 'A' && c <= 'F':
			class[i] = 2
		default:
			class[i] = 1
		}
	}
	return class
}()

// transaction is a transaction hash, hex in lower case.
func transaction(b []byte) string {
	if len(b) > 2 && b[0] == '0' && b[1]|0x20 == 'x' {
		var seen uint8
		for _, c := range b[2:] {
			seen |= hexClass[c]
		}
		if seen < 4 && (seen&2 != 0 || b[1] == 'X') {
			return bounded(strings.ToLower(string(b)))
		}
	}
	return bounded(string(b))
}
