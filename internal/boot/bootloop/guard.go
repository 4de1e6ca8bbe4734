package bootloop

import (
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// How often is too often, and what follows. A script that loads itself is fetched up to 75 times a second, one that fails at
// once every other second; virtual firmware needs three seconds or more from one iPXE to the next, a server from the shop half
// a minute. Of one boot, GRUB asks for its script three times, and some builds of iPXE do DHCP twice.
const (
	MaxLeases  = 8  // boot files named within Window and no script fetched
	MaxScripts = 20 // scripts fetched within Window
	Window     = 2 * time.Minute
	Hold       = 5 * time.Minute // how long a machine is held: then somebody may have mended it

	maxMachines = 4096
)

// A Guard counts the rounds of machines. It is safe for concurrent use.
type Guard struct {
	now func() time.Time

	mu       sync.Mutex
	machines map[lab.MAC]*machine
}

// A machine is what is known of one machine's iPXE.
type machine struct {
	xid             [4]byte // of its last lease, since a retransmission is no new round
	leases, scripts rounds
}

// New returns a guard that knows nobody yet. now must not be nil.
func New(now func() time.Time) *Guard {
	if now == nil {
		panic("circle: now is nil")
	}
	return &Guard{now: now, machines: map[lab.MAC]*machine{}}
}

// Leased is told that an iPXE was given a boot file in the DHCP exchange with that transaction ID. It reports whether this
// begins a hold.
func (g *Guard) Leased(m lab.MAC, xid [4]byte) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	c := g.machineLocked(m, now)
	if c.xid == xid && c.leases.count > 0 {
		return false
	}
	c.xid = xid
	return c.leases.another(now, MaxLeases)
}

// Scripted is told that a machine asks for its script. It reports whether the machine is held, from this script on, because it
// fetches its script again and again: it gets another one.
func (g *Guard) Scripted(m lab.MAC) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	c := g.machineLocked(m, now)
	c.leases = rounds{}
	return c.scripts.held(now) || c.scripts.another(now, MaxScripts)
}

// Unscripted reports whether a machine is held because it never fetches its script: it gets no boot file for now.
func (g *Guard) Unscripted(m lab.MAC) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.machines[m]
	return c != nil && c.leases.held(g.now())
}

// Release lets go of machines: their operating system speaks, or somebody wants them to boot.
func (g *Guard) Release(macs ...lab.MAC) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.machines) == 0 {
		return
	}
	for _, m := range macs {
		delete(g.machines, m)
	}
}

// ReleaseAll lets go of all machines: the lab has changed, and what they boot may have.
func (g *Guard) ReleaseAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.machines)
}

func (g *Guard) machineLocked(m lab.MAC, now time.Time) *machine {
	c := g.machines[m]
	if c == nil {
		g.sweepLocked(now)
		c = &machine{}
		g.machines[m] = c
	}
	return c
}

// sweepLocked makes room: machines that are quiet go, and if all are busy, all.
func (g *Guard) sweepLocked(now time.Time) {
	if len(g.machines) < maxMachines {
		return
	}
	for m, c := range g.machines {
		if c.leases.over(now) && c.scripts.over(now) {
			delete(g.machines, m)
		}
	}
	if len(g.machines) >= maxMachines {
		clear(g.machines)
	}
}

// rounds are those of one circle.
type rounds struct {
	count int
	since time.Time // of the first that counts
	until time.Time // the end of the hold
}

// another counts one more. It reports whether it is one too many, which begins a hold.
func (r *rounds) another(now time.Time, limit int) bool {
	if now.Sub(r.since) > Window {
		r.since, r.count = now, 0
	}
	if r.count++; r.count < limit {
		return false
	}
	r.count, r.until = 0, now.Add(Hold)
	return true
}

func (r *rounds) held(now time.Time) bool { return now.Before(r.until) }

// over reports whether nothing of it matters any more.
func (r *rounds) over(now time.Time) bool { return now.Sub(r.since) > Window && !r.held(now) }
