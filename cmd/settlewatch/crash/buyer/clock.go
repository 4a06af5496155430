package buyer

import (
	"sync"
	"time"

	"github.com/settlewatch/settlewatch/internal/errcode"
	"github.com/settlewatch/settlewatch/internal/plain"
)

// Clock is the machine's clock, moved.
type Clock struct {
	Real func() time.Time

	mu   sync.Mutex
	away time.Duration // guarded by mu
}

// Now is the time it shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Real().Add(c.away)
}

// Set moves the clock to a time; blank leaves it.
func (c *Clock) Set(text string) error {
	if text == "" {
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return errcode.New(errcode.Usage, "settlewatch --help", "--clock takes a time such as 2026-01-31T23:59:00Z, not %s", plain.Quote(text, plain.Detail))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = t.Sub(c.Real())
	return nil
}
