// Package clock is a clock for tests, which moves only when a test says so.
package clock

import (
	"sync"
	"time"
)

// A Clock shows a time that is set by hand. Its methods may be called by several goroutines.
type Clock struct {
	mu sync.Mutex
	at time.Time
}

// New returns a clock that shows a time.
func New(at time.Time) *Clock { return &Clock{at: at} }

// Now returns the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Set makes the clock show a time.
func (c *Clock) Set(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = at
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}
