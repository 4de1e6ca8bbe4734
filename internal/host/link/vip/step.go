package vip

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/lab"
)

// restart probes an address from the beginning.
func (a *tracked) restart(now time.Time) { a.probed, a.next = 0, now }

// enter sets the phase.
func (a *tracked) enter(p Phase, mac lab.MAC, reason string, now time.Time) {
	if a.Phase != p || a.MAC != mac {
		a.Since = now
	}
	a.Phase, a.MAC, a.Err = p, mac, reason
}

// here reports whether an interface of this machine has the address.
func (a *tracked) here() bool {
	return a.Phase == Added || a.Phase == Present || a.Phase == Conflict || a.Phase == Leased
}

// step does what is due for one address, and returns when it is to be called again at the latest.
func (h *Holder) step(ctx context.Context, a *tracked, now time.Time) time.Time {
	on, exists := h.machine.links[a.Interface]
	mine, others := h.find(a.Addr)
	a.added, a.On, a.Down, a.Gone = false, "", false, false
	for _, o := range mine {
		if o.link == on.index && o.flags&unix.IFA_F_DADFAILED == 0 {
			a.added = true
			if o.flags&unix.IFA_F_TENTATIVE != 0 && on.carrier && len(others) == 0 {
				a.enter(Probing, lab.MAC{}, "", now)
				return now.Add(h.cfg.Interval)
			}
			continue
		}
		h.drop(ctx, a.Addr)
		if o.flags&unix.IFA_F_DADFAILED != 0 {
			return h.inUse(a, a.MAC, now)
		}
	}
	have := others
	if a.added {
		have = append(mine, others...)
	}
	a.On = h.where(a, have)
	switch {
	case a.On != "" && !h.machine.links[a.On].up:
		a.Down = true
		return h.block(a, fmt.Sprintf("interface %s is down", a.On), now)
	case len(others) > 0:
		return h.keep(a, on, Present, now)
	case a.added:
		return h.keep(a, on, Added, now)
	}
	if a.here() {
		h.deps.Log.Warn("VIP was removed by something else, or with its interface", "addr", a.Addr, "interface", a.Interface, "for", a.For)
		a.enter(Probing, lab.MAC{}, "", now)
		a.restart(now)
	}
	switch {
	case a.Interface == "":
		return h.block(a, "no network of the lab that has an interface holds it", now)
	case !exists:
		a.Gone = true
		return h.block(a, fmt.Sprintf("interface %s does not exist: make it, or change the interface of the network", a.Interface), now)
	case !on.up:
		a.Down = true
		return h.block(a, fmt.Sprintf("interface %s is down", a.Interface), now)
	}
	if a.blocked {
		a.blocked = false
		a.enter(Probing, lab.MAC{}, "", now)
		a.restart(now)
	}
	return h.seek(ctx, a, on, now)
}

// block notes why an address cannot be reached until the interfaces change.
func (h *Holder) block(a *tracked, reason string, now time.Time) time.Time {
	a.blocked = true
	a.enter(Missing, lab.MAC{}, reason, now)
	return now.Add(h.cfg.Check)
}

// seek asks whether another machine uses an address, and adds it if none does.
func (h *Holder) seek(ctx context.Context, a *tracked, on link, now time.Time) time.Time {
	if now.Before(a.next) {
		return a.next
	}
	asks := on.carrier && !on.mac.IsZero() && h.noRaw == nil // else there is no neighbour to ask, or no way to
	if asks && a.probed < probes {
		if a.probed == 0 {
			a.claimed = time.Time{}
		}
		if a.Phase != InUse && a.Err == "" {
			a.enter(Probing, lab.MAC{}, "", now)
		}
		h.send(on, a.Addr, probe(on.mac, a.Addr))
		a.probed++
		a.next = now.Add(h.cfg.Interval)
		return a.next
	}
	if asks && !a.claimed.IsZero() {
		return h.inUse(a, a.MAC, now)
	}
	if !h.cfg.Hold {
		return h.missing(a, errOff, now)
	}
	return h.add(ctx, a, on, now)
}

// inUse notes that another machine uses an address, which is tried again later. Two that wait for each other do not try at the same time.
func (h *Holder) inUse(a *tracked, mac lab.MAC, now time.Time) time.Time {
	a.enter(InUse, mac, "", now)
	a.restart(now.Add(h.cfg.Retry + rand.N(h.cfg.Retry/4)))
	return a.next
}

// missing notes why an address was not added, which is tried again later.
func (h *Holder) missing(a *tracked, reason string, now time.Time) time.Time {
	a.enter(Missing, lab.MAC{}, reason, now)
	a.restart(now.Add(h.cfg.Retry))
	return a.next
}

// add adds an address. The record is written first: what a crash leaves is known then.
func (h *Holder) add(ctx context.Context, a *tracked, on link, now time.Time) time.Time {
	if !h.recorded[a.Addr] {
		if err := h.deps.Records.Put(ctx, Record{a.Addr, h.boot}); err != nil {
			h.deps.Log.Warn("VIP not stored: if the daemon is killed, it stays", "addr", a.Addr, "err", err)
		}
		h.recorded[a.Addr] = true
	}
	err := add(a.Addr, on)
	switch {
	case err == nil:
		a.added, a.On, a.carrier, a.announced = true, a.Interface, on.carrier, 0
		h.wake() // the kernel may still look for a duplicate of it
		if a.Addr.Is6() && on.carrier {
			return now.Add(h.cfg.Interval)
		}
		return h.keep(a, on, Added, now)
	case errors.Is(err, unix.EEXIST): // by something else, just now
		h.forget(ctx, a.Addr)
		h.wake()
		return now.Add(h.cfg.Interval)
	case errors.Is(err, unix.EACCES) && a.Addr.Is6():
		return h.missing(a, fmt.Sprintf("IPv6 is disabled on interface %s", a.Interface), now)
	case errors.Is(err, fs.ErrPermission):
		return h.missing(a, "the daemon may not add it: start it as root, or with CAP_NET_ADMIN, or set appliance.addresses to off", now)
	default:
		return h.missing(a, err.Error(), now)
	}
}

// keep announces an address that an interface has, in a phase that is Added or Present, and checks whether another machine claims it.
func (h *Holder) keep(a *tracked, on link, phase Phase, now time.Time) time.Time {
	if !a.here() || a.carrier != on.carrier { // neighbours do not know it yet, or may have removed it
		a.carrier, a.announced, a.announce, a.probed, a.next = on.carrier, announcements, now, 0, now.Add(h.cfg.Interval)
	}
	reason := ""
	if h.noRaw != nil {
		reason = "it is not known whether another machine uses it: " + h.noRaw.Error()
	}
	// In a conflict the other machine is asked more often, and announces the end of it by silence.
	check := h.cfg.Check
	if !a.claimed.IsZero() && now.Sub(a.claimed) < quietChecks*h.cfg.Interval*2 {
		phase, check = Conflict, h.cfg.Interval
	} else if a.Phase == Conflict {
		a.announced, a.announce = announcements, now
	}
	mac, leased := h.lease(a.Addr)
	switch {
	case phase == Conflict:
		a.enter(phase, a.MAC, reason, now)
	case leased:
		a.enter(Leased, mac, reason, now)
	default:
		a.enter(phase, lab.MAC{}, reason, now)
	}
	if on.carrier && !now.Before(a.next) {
		h.send(on, a.Addr, probe(on.mac, a.Addr))
		a.next = now.Add(check)
	}
	next := a.next
	if a.announced > 0 && a.added && on.carrier && phase == Added {
		if !now.Before(a.announce) {
			h.send(on, a.Addr, gratuitousARP(on.mac, a.Addr))
			a.announced--
			a.announce = now.Add(announceInterval)
		}
		if a.announce.Before(next) {
			next = a.announce
		}
	}
	return next
}

// lease returns the other machine that has a lease of an address.
func (h *Holder) lease(a netip.Addr) (mac lab.MAC, ok bool) {
	if h.deps.Lease == nil {
		return mac, false
	}
	mac, ok = h.deps.Lease(a)
	return mac, ok && !h.machine.own[mac]
}

// claim notes that a machine claims an address.
func (h *Holder) claim(c claim, now time.Time) {
	a := h.addrs[c.addr]
	if a == nil || h.machine.own[c.mac] || h.machine.links[a.Interface].index != c.link {
		return
	}
	switch {
	case !a.here():
		a.claimed = now
		if a.probed > 0 || a.Phase == InUse {
			h.inUse(a, c.mac, now)
		}
	case !c.probe: // the kernel answers a probe, and the other machine gives way
		a.claimed = now
		a.enter(Conflict, c.mac, a.Err, now)
		if a.next.After(now.Add(h.cfg.Interval)) {
			a.next = now.Add(h.cfg.Interval)
		}
		if a.added && now.Sub(a.defended) >= h.cfg.Defend { // RFC 5227 section 2.4
			a.defended = now
			on := h.machine.links[a.Interface]
			h.send(on, a.Addr, gratuitousARP(on.mac, a.Addr))
		}
		h.wake()
	}
}

// send sends a frame on an Ethernet interface. The next step comes if it is lost.
func (h *Holder) send(on link, a netip.Addr, frame []byte) {
	s := h.arp
	if a.Is6() {
		s = h.nd
	}
	if s != nil && !on.mac.IsZero() {
		_ = s.Send(on.index, frame)
	}
}
