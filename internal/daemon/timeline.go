package daemon

import (
	"context"
	"net/netip"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/machine"
)

// key returns the name under which the timeline keeps a machine: a host of the lab, or the MAC of an unknown machine. It may be asked for
// by whatever a host is known by, or the address that it leases.
func (c *adminBackend) key(l *lab.Lab, machine string) (string, error) {
	if h := l.Find(machine); h != nil {
		return h.Name, nil
	}
	mac, err := lab.ParseMAC(machine)
	if addr, no := netip.ParseAddr(machine); no == nil {
		if holder, ok := c.nicAddrs(l).MACOf(addr); ok {
			mac, err = holder, nil
		}
	}
	if err != nil {
		return "", api.NoHost(l, machine)
	}
	if h := c.nicAddrs(l).Machine(mac); h != nil && l.Host(h.Name) != nil {
		return h.Name, nil
	}
	return mac.String(), nil
}

// Boots implements httpd.Backend.
func (c *adminBackend) Boots(ctx context.Context, machine string) ([]api.Boot, error) {
	key, err := c.key(c.current.Load().Lab, machine)
	if err != nil {
		return nil, err
	}
	boots, err := c.timeline.Boots(ctx, key)
	out := make([]api.Boot, len(boots))
	for i, b := range boots {
		out[i] = api.Boot(b)
	}
	return out, err
}

// Follow implements httpd.Backend.
func (c *adminBackend) Follow(ctx context.Context, machine string) (<-chan event.Event, error) {
	key, err := c.key(c.current.Load().Lab, machine)
	if err != nil {
		return nil, err
	}
	return c.timeline.Follow(ctx, key), nil
}

// lastSeen adds to a what the timeline knows of the host.
func (c *adminBackend) lastSeen(a *api.Host) {
	s, ok := c.timeline.Last(a.Name)
	if !ok {
		return
	}
	last := s.Last
	a.Last = &last
	if machine.Booted(s) {
		a.Stage = s.Stage
	}
}
