package buyer

import (
	"testing"
	"time"
)

func TestABuyersClockIsMovedAndGoesOn(t *testing.T) {
	noon := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	real := noon
	c := &Clock{Real: func() time.Time { return real }}
	if err := c.Set(""); err != nil || !c.Now().Equal(noon) {
		t.Errorf("%v, %s", err, c.Now())
	}
	evening := noon.Add(-13 * time.Hour)
	if err := c.Set(evening.Format(time.RFC3339)); err != nil || !c.Now().Equal(evening) {
		t.Errorf("%v, %s", err, c.Now())
	}
	real = real.Add(time.Second)
	if !c.Now().Equal(evening.Add(time.Second)) {
		t.Errorf("it stands at %s", c.Now())
	}
	if err := c.Set("soon"); err == nil {
		t.Error("it takes any time")
	}
}
