package store

import "encoding/hex"

// Ids of operations are mostly UUIDs. Packed they take half the room, which is a
// twentieth of the index. A packed id is the only one that begins with this byte,
// since no encoding of text does.
const packedKey = 0xff

// packKey is the stored form of an operation's key.
func packKey(key []byte) []byte {
	if !isUUID(key) {
		return nonNil(key)
	}
	b := make([]byte, 17)
	b[0] = packedKey
	var digits [32]byte
	for i, part := range uuidParts {
		copy(digits[packedAt[i]:], key[part[0]:part[1]])
	}
	_, _ = hex.Decode(b[1:], digits[:]) // isUUID has seen the digits
	return b
}

// unpackKey is the key of a stored form.
func unpackKey(b []byte) []byte {
	if len(b) != 17 || b[0] != packedKey {
		return b
	}
	var digits [32]byte
	hex.Encode(digits[:], b[1:])
	key := make([]byte, 36)
	for i, part := range uuidParts {
		copy(key[part[0]:part[1]], digits[packedAt[i]:])
		if i > 0 {
			key[part[0]-1] = '-'
		}
	}
	return key
}

// uuidParts are where the digits of a UUID stand in its text, packedAt where they
// stand among the digits alone.
var (
	uuidParts = [...][2]int{{0, 8}, {9, 13}, {14, 18}, {19, 23}, {24, 36}}
	packedAt  = [...]int{0, 8, 12, 16, 20}
)

// isUUID tells whether a key is a UUID in the one spelling that comes back from 16
// bytes.
func isUUID(key []byte) bool {
	if len(key) != 36 {
		return false
	}
	for i, c := range key {
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

// keyText is the SQL that spells a stored key out, for where its order or its
// beginning is asked for.
func keyText(column string) string {
	h := "hex(" + column + ")"
	return "CASE WHEN length(" + column + ") = 17 AND substr(" + column + ", 1, 1) = x'ff' THEN CAST(lower(substr(" + h + ", 3, 8) || '-' || substr(" + h +
		", 11, 4) || '-' || substr(" + h + ", 15, 4) || '-' || substr(" + h + ", 19, 4) || '-' || substr(" + h + ", 23)) AS BLOB) ELSE " + column + " END"
}
