package bootloop

import (
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// The limits. A script that loads itself is requested up to 75 times a second, one that fails at once every other second. From one
// iPXE to the next, virtual firmware takes three seconds or more, a server half a minute. In one boot, GRUB requests its script three
// times, and some builds of iPXE take two leases.
const (
	MaxLeases  = 8  // leases with a boot file within Window, and no script received
	MaxScripts = 20 // scripts received within Window
	Window     = 2 * time.Minute
	RemedyTime = 5 * time.Minute // for which a machine in a loop gets something else

	maxMachines = 4096
)

// A Detector counts the leases and the scripts of each machine. It is safe for concurrent use.
type Detector struct {
	now func() time.Time

	mu       sync.Mutex
	machines map[lab.MAC]*machine
}

// A machine holds the counts of one machine's iPXE.
type machine struct {
	xid     [4]byte // of its last lease: a retransmission is not counted
	program bool    // it has received a boot program, and no lease since
	// leases are those before each of which it received a boot program; bare are the others: of an iPXE in a NIC, or forged.
	leases, bare, scripts counter
}

// A Remedy is what iPXE gets in place of its script's address.
type Remedy int

// The remedies.
const (
	None    Remedy = iota // the script, as always
	Program               // the boot program by TFTP
	NoFile                // no boot file
)

// New returns a detector that has counted nothing. now must not be nil.
func New(now func() time.Time) *Detector {
	if now == nil {
		panic("bootloop: now is nil")
	}
	return &Detector{now: now, machines: map[lab.MAC]*machine{}}
}

// ProgramReceived counts that a machine received the whole of a boot program. Nobody else can do that in its name with some packets.
func (d *Detector) ProgramReceived(m lab.MAC) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.machineLocked(m, d.now())
	c.program, c.bare = true, counter{}
}

// BootFileSent counts that iPXE got a boot file in the DHCP exchange with that transaction ID. It returns the remedy that begins with
// this one.
func (d *Detector) BootFileSent(m lab.MAC, xid [4]byte) Remedy {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	c := d.machineLocked(m, now)
	if c.xid == xid && c.leases.count+c.bare.count > 0 {
		return None
	}
	c.xid = xid
	switch {
	case c.program:
		c.program = false
		if c.leases.add(now, MaxLeases) {
			return NoFile
		}
	case !c.bare.loops(now) && c.bare.add(now, MaxLeases):
		return Program
	}
	return None
}

// ScriptReceived counts a script that a machine received. A request that is not expected is not counted: any client can send it.
func (d *Detector) ScriptReceived(m lab.MAC) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	c := d.machineLocked(m, now)
	c.leases, c.bare, c.program = counter{}, counter{}, false
	if !c.scripts.loops(now) {
		c.scripts.add(now, MaxScripts)
	}
}

// ScriptLoops reports whether a machine gets no script of its own because it received its script too often.
func (d *Detector) ScriptLoops(m lab.MAC) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.machines[m]
	return c != nil && c.scripts.loops(d.now())
}

// Remedy returns what a machine gets that never requests its script.
func (d *Detector) Remedy(m lab.MAC) Remedy {
	d.mu.Lock()
	defer d.mu.Unlock()
	c, now := d.machines[m], d.now()
	switch {
	case c == nil:
		return None
	case c.leases.loops(now):
		return NoFile
	case c.bare.loops(now):
		return Program
	}
	return None
}

// Release forgets machines: their operating system sent a DHCP message, or an admin wants them to boot.
func (d *Detector) Release(macs ...lab.MAC) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.machines) == 0 {
		return
	}
	for _, m := range macs {
		delete(d.machines, m)
	}
}

// ReleaseAll forgets all machines: the lab has changed, and with it what they boot.
func (d *Detector) ReleaseAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.machines)
}

func (d *Detector) machineLocked(m lab.MAC, now time.Time) *machine {
	c := d.machines[m]
	if c == nil {
		d.sweepLocked(now)
		c = &machine{}
		d.machines[m] = c
	}
	return c
}

// sweepLocked removes machines without recent requests where there are too many; if none is left to remove, all.
func (d *Detector) sweepLocked(now time.Time) {
	if len(d.machines) < maxMachines {
		return
	}
	for m, c := range d.machines {
		if c.leases.expired(now) && c.bare.expired(now) && c.scripts.expired(now) {
			delete(d.machines, m)
		}
	}
	if len(d.machines) >= maxMachines {
		clear(d.machines)
	}
}

// A counter counts one kind of request.
type counter struct {
	count int
	since time.Time // of the first that counts
	until time.Time // the end of the remedy
}

// add counts one more. It reports whether it is one too many, which begins a remedy.
func (c *counter) add(now time.Time, limit int) bool {
	if now.Sub(c.since) > Window {
		c.since, c.count = now, 0
	}
	if c.count++; c.count < limit {
		return false
	}
	c.count, c.until = 0, now.Add(RemedyTime)
	return true
}

func (c *counter) loops(now time.Time) bool { return now.Before(c.until) }

// expired reports whether the counter can be forgotten.
func (c *counter) expired(now time.Time) bool { return now.Sub(c.since) > Window && !c.loops(now) }
