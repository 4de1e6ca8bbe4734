package leases

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A witness sees every acknowledgement, and complains when two machines have one address.
type witness struct {
	mu     sync.Mutex
	holder map[netip.Addr]lab.MAC
	bad    []string
}

func (w *witness) acked(a netip.Addr, m lab.MAC) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if other, ok := w.holder[a]; ok && other != m {
		w.bad = append(w.bad, a.String()+" of "+other.String()+" and "+m.String())
	}
	w.holder[a] = m
}

func (w *witness) released(a netip.Addr) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.holder, a)
}

// TestTwoClientsNeverGetOneAddress: many machines ask for few addresses at once, several threads answer, while people look.
func TestTwoClientsNeverGetOneAddress(t *testing.T) {
	t.Parallel()
	const workers, rounds = 8, 600
	d := newTestBook(t)
	p := pool(10, 73)
	w := &witness{holder: map[netip.Addr]lab.MAC{}}
	ctx, stop := context.WithCancel(t.Context())
	var work, watch sync.WaitGroup
	for id := range workers {
		work.Go(func() {
			r := rand.New(rand.NewPCG(uint64(id), 1))
			for range rounds {
				n := id + workers*r.IntN(20) // each machine speaks with one thread, as a switch would have it
				d.exchange(w, n, p, r)
				d.clock.Advance(time.Duration(r.IntN(200)) * time.Millisecond)
			}
		})
	}
	watch.Go(func() {
		for ctx.Err() == nil {
			d.All()
			d.Usage(p)
			d.Holders(p, 5)
			d.CountLive(subnet)
			d.ByHostname("x")
			d.Conflict(ip("10.0.0.30"), mac(7), d.clock.Now().Add(time.Second))
			if _, err := d.Reclaim(ctx, 10); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	work.Wait()
	stop()
	watch.Wait()
	for _, bad := range w.bad {
		t.Error(bad)
	}
	if len(w.holder) == 0 {
		t.Error("no machine got an address")
	}
	if err := d.check(); err != nil {
		t.Error(err)
	}
	for a, m := range w.holder {
		if l, ok := d.ByAddr(a); !ok || l.MAC != m {
			t.Errorf("%s was acknowledged to %s, the book says %s, %v", a, m, l.MAC, ok)
		}
	}
}

// exchange is DISCOVER, REQUEST, and half of the time RELEASE.
func (d *testBook) exchange(w *witness, n int, p *Pool, r *rand.Rand) {
	a, _, err := d.Offer(Request{MAC: mac(n), Subnet: subnet, Pool: p, Requested: addrOf(p.first + uint32(r.IntN(p.size)))})
	if err != nil || !d.Decide(mac(n), p, a, Selecting).Free {
		return
	}
	c := d.change(n, a.String())
	c.Expiry = c.Start.Add(24 * time.Hour)
	if old, ok := d.Bound(mac(n), subnet); ok && old.Addr != a {
		w.released(old.Addr) // this commit gives it up
	}
	d.commit(c)
	if c.Err != nil {
		return
	}
	w.acked(a, mac(n))
	if r.IntN(2) == 0 {
		w.released(a)
		d.release(n, a.String())
	}
}
