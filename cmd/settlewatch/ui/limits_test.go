package ui

import (
	"testing"
	"time"

	"github.com/settlewatch/settlewatch/guard"
)

// However long it takes to add up what was paid to a counterparty, its page is there.
func TestAPageDoesNotWaitForLimits(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	u := &UI{now: func() time.Time { return now }}
	query := guard.HeadroomQuery{Counterparty: "shop.example"}
	set := u.limits.set(query)
	set.making = make(chan struct{}) // never closed: it takes for ever
	if left, _, current := u.limits.get(t.Context(), u, query, "a"); left != nil || current {
		t.Errorf("%v, %t", left, current)
	}
	set.headroom, set.at, set.mark = &guard.Headroom{}, now.Add(-time.Second), "a"
	if left, at, current := u.limits.get(t.Context(), u, query, "b"); left != set.headroom || !at.Equal(set.at) || current {
		t.Errorf("%v of %v, %t", left, at, current)
	}
	set.making = nil
	if left, _, current := u.limits.get(t.Context(), u, query, "a"); left != set.headroom || !current {
		t.Errorf("%v, %t", left, current)
	}
}

func TestLimitsOfSoManyCounterpartiesAreKept(t *testing.T) {
	var l limits
	first := guard.HeadroomQuery{Counterparty: "0"}
	for i := range 3 * mostLimits {
		l.set(guard.HeadroomQuery{Counterparty: string(rune('0' + i))}).at = time.Unix(int64(i), 0)
	}
	if len(l.of) != mostLimits || l.of[first] != nil {
		t.Errorf("%d are kept", len(l.of))
	}
}
