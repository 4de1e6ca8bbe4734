package leases

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bootlab/bootlab/internal/store"

	"golang.org/x/sys/unix"
)

// A Clock counts the time of leases. It runs on while the wall clock is set forward or back: a machine without a battery
// starts in 1970 and is corrected by NTP, and a lease must neither end nor last longer for it. So the time of a lease is the
// wall clock as it was when the first lease was stored, plus the time that has passed since. Where the wall clock was never
// set by more than minJump, the two agree.
//
// In a process the time that has passed is known, and over a restart of the process too, as long as the machine runs. Over a
// restart of the machine it is what the wall clock says, but never less than the machine is up, nor more than maxDowntime
// and that: leases rather last too long than end while their machines use them.
//
// The store has the clock in one record, clockKey. A Clock is safe for concurrent use.
type Clock struct {
	host  Host
	store store.Store
	base  atomic.Int64 // the time of leases, in Unix nanoseconds, when Mono was 0

	mu      sync.Mutex
	sinceUp time.Duration // the time of leases, less what Boot was then
	offset  time.Duration // of the wall clock, as last seen
	jump    Jump          // the last one
	isNew   bool          // Check has not returned it
	saved   time.Time     // time of leases
}

// A Host has the clocks of the operating system.
type Host struct {
	Wall   func() time.Time     // CLOCK_REALTIME
	Mono   func() time.Duration // runs evenly from any start, but maybe not while the machine is suspended; it is read for each packet
	Boot   func() time.Duration // CLOCK_BOOTTIME: since the machine was started, suspended or not
	BootID string               // differs each time that the machine is started; empty: not known
}

// SystemHost returns the clocks of this machine.
func SystemHost() Host {
	start := time.Now()
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it a restart counts as one of the machine
	return Host{
		Wall: time.Now, Mono: func() time.Duration { return time.Since(start) }, BootID: strings.TrimSpace(string(id)),
		Boot: func() time.Duration {
			var t unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
				return time.Since(start)
			}
			return time.Duration(t.Nano())
		},
	}
}

const (
	clockKey = "lease-clock"
	// minJump is what counts as a jump. NTP corrects smaller differences slowly, and a restart loses about a second.
	minJump = 10 * time.Second
	// maxDowntime is how much of the time that a machine was off counts, if only the wall clock says that it was.
	maxDowntime = time.Hour
	// saveEvery is how often the clock is stored: over a restart of the machine, this much of a jump is not noticed.
	saveEvery = 5 * time.Minute
)

// A clockRecord is the clock in the store. All times are in Unix nanoseconds.
type clockRecord struct {
	Lease   int64         `json:"lease"` // time of leases
	Wall    int64         `json:"wall"`  // wall clock at that moment
	BootID  string        `json:"boot_id,omitempty"`
	SinceUp time.Duration `json:"since_up"`
}

// A Jump is a wall clock that was set.
type Jump struct {
	By      time.Duration // forward, or back if negative; 0: no jump
	Restart bool          // while the machine or the daemon was off; forward, it may have been off for so long
	At      time.Time     // time of leases
	Until   time.Time     // time of leases: when the last lease ends that was given before
}

// OpenClock continues the clock in the store, or starts one with the wall clock. The first Check stores it, and returns the
// jump of the wall clock since the last run.
func OpenClock(ctx context.Context, s store.Store, h Host) (*Clock, error) {
	c := &Clock{host: h, store: s}
	b, err := s.Get(ctx, clockKey)
	if errors.Is(err, store.ErrNotFound) {
		c.set(h.Wall())
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the clock of leases: %w", err)
	}
	var r clockRecord
	if err := json.Unmarshal(b, &r); err != nil {
		var bad store.Undecodable
		bad.Add(clockKey, fmt.Errorf("read the clock of leases: %s: %w", clockKey, err))
		c.set(h.Wall())
		return c, bad.MarkLost(s)
	}
	c.resume(&r)
	return c, nil
}

// resume sets the clock to where it is now, if it was at r.
func (c *Clock) resume(r *clockRecord) {
	wall, up := c.host.Wall(), c.host.Boot()
	last, off := time.Unix(0, r.Lease), wall.Sub(time.Unix(0, r.Wall))
	passed := min(max(off, up), maxDowntime+up)
	if c.host.BootID != "" && c.host.BootID == r.BootID {
		passed = time.Unix(0, int64(r.SinceUp)).Add(up).Sub(last)
	}
	c.set(last.Add(passed))
	if by := off - passed; by.Abs() >= minJump {
		c.jump, c.isNew = Jump{By: by.Round(time.Second), Restart: true, At: c.Now()}, true
	}
}

func (c *Clock) set(now time.Time) {
	c.base.Store(now.Add(-c.host.Mono()).UnixNano())
	c.sinceUp = time.Duration(now.UnixNano()) - c.host.Boot()
	c.offset = c.host.Wall().Sub(now)
}

// Now returns the time of leases. It costs no system call.
func (c *Clock) Now() time.Time { return time.Unix(0, c.base.Load()+int64(c.host.Mono())) }

// Wall returns what the wall clock shows at a time of leases, if it is not set.
func (c *Clock) Wall(t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.offset.Abs() < minJump {
		return t
	}
	return t.Add(c.offset)
}

// OnWall gives a lease of the book the times of the wall clock. The zero Expiry is that of one that never ends.
func (c *Clock) OnWall(lease *Lease) {
	if lease.Start = c.Wall(lease.Start); lease.Expiry.Equal(Forever) {
		lease.Expiry = time.Time{}
		return
	}
	lease.Expiry = c.Wall(lease.Expiry)
}

// Last returns the last jump of the wall clock that Check returned.
func (c *Clock) Last() Jump {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isNew {
		return Jump{}
	}
	return c.jump
}

// Check compares the clocks, and is to be called about every second. It returns the jump of the wall clock since the last
// call, if there was one. until returns when the last lease ends. An error is that the clock could not be stored.
func (c *Clock) Check(ctx context.Context, until func() time.Time) (Jump, error) {
	c.mu.Lock()
	now := c.compareLocked()
	j := Jump{}
	if c.isNew {
		c.jump.Until, c.isNew = until(), false
		j = c.jump
	}
	save := j.By != 0 || now.Sub(c.saved) >= saveEvery
	c.mu.Unlock()
	if save {
		return j, c.Save(ctx)
	}
	return j, nil
}

// compareLocked notes a jump of the wall clock and returns the time of leases.
func (c *Clock) compareLocked() time.Time {
	before := c.host.Boot()
	wall := c.host.Wall()
	now := time.Unix(0, int64(c.sinceUp+before))
	if c.host.Boot()-before > time.Second {
		return now // the process did not run between the two
	}
	if c.Now().Sub(now).Abs() > 10*time.Millisecond { // the machine was suspended
		c.base.Store(now.Add(-c.host.Mono()).UnixNano())
	}
	offset := wall.Sub(now)
	if by := (offset - c.offset).Round(time.Second); by.Abs() >= minJump {
		c.jump, c.isNew = Jump{By: by, At: now}, true
	}
	c.offset = offset
	return now
}

// Save stores the clock.
func (c *Clock) Save(ctx context.Context) error {
	c.mu.Lock()
	now := c.Now()
	r := clockRecord{Lease: now.UnixNano(), Wall: now.Add(c.offset).UnixNano(), BootID: c.host.BootID, SinceUp: c.sinceUp}
	c.saved = now
	c.mu.Unlock()
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := c.store.Commit(ctx, store.Put(clockKey, b)); err != nil {
		return fmt.Errorf("store the clock of leases: %w", err)
	}
	return nil
}
