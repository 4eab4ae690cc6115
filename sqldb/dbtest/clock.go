package dbtest

import (
	"sync"
	"time"
)

// Clock is a clock that a test moves. Its zero value has the real time until then.
type Clock struct {
	mu      sync.Mutex
	stopped time.Time     // where it stands still; zero means it runs. Guarded by mu
	ahead   time.Duration // of the real time, while it runs; guarded by mu
}

// NewClock returns a clock that stands still.
func NewClock() *Clock { return &Clock{stopped: time.Now().UTC().Truncate(time.Second)} }

func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped.IsZero() {
		return c.stopped
	}
	return time.Now().Add(c.ahead)
}

func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped.IsZero() {
		c.ahead += d
		return
	}
	c.stopped = c.stopped.Add(d)
}
