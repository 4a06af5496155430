package safefile

import "testing"

func withoutOpenat2(t *testing.T, yes bool) {
	t.Helper()
	noOpenat2.Store(yes)
	t.Cleanup(func() { noOpenat2.Store(false) })
}
