package approval

import "strings"

// strongKey is a key of HMAC receipts that may be used.
var strongKey = func() HMACKey {
	k, err := NewHMACKey(strings.Repeat("key-of-the-tests.", 3))
	if err != nil {
		panic(err)
	}
	return k
}()
