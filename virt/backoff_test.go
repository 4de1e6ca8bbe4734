package virt_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bootlab/bootlab/virt"
)

// A counting hypervisor counts how often all its domains are asked for.
type counting struct {
	*fake
	asked atomic.Int32
}

func (c *counting) Open(string, func([]string)) virt.Hypervisor { return c }

func (c *counting) Domains(ctx context.Context) ([]virt.Domain, error) {
	c.asked.Add(1)
	return c.fake.Domains(ctx)
}

// TestBackOff: a hypervisor that is down is asked after 2 seconds, 4, 8 and so on up to a minute, however often its machines are listed.
func TestBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &counting{fake: newFake()}
		c.fail["dial"] = virt.Unreachable(errors.New("no route to host"))
		b := newTestServer(t, oneHost(), c, virt.Config{})
		for start := time.Now(); time.Since(start) < 10*time.Minute; time.Sleep(100 * time.Millisecond) {
			b.List(t.Context())
		}
		if n := c.asked.Load(); n != 14 {
			t.Errorf("asked %d times in 10 minutes, want 14", n)
		}
		c.mu.Lock()
		delete(c.fail, "dial")
		c.mu.Unlock()
		time.Sleep(time.Minute)
		b.List(t.Context())
		synctest.Wait()
		if st := b.List(t.Context())[0]; st.State != virt.StateAbsent || !st.Down.IsZero() {
			t.Errorf("a minute after it came back: %+v", st)
		}
	})
}
