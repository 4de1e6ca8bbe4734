package daemon

import (
	"context"
	"net/netip"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/machine"
	"github.com/bootlab/bootlab/internal/observe/timeline"
)

// key returns the name under which the timeline keeps a machine: a host of the lab, or the MAC of an unknown machine. It may be asked for
// by whatever a host is known by, or the address that it leases.
func (b *adminBackend) key(l *lab.Lab, machine string) (string, error) {
	if h := l.Find(machine); h != nil {
		return h.Name, nil
	}
	mac, err := lab.ParseMAC(machine)
	if addr, no := netip.ParseAddr(machine); no == nil {
		if holder, ok := b.nicAddrs(l).MACOf(addr); ok {
			mac, err = holder, nil
		}
	}
	if err != nil {
		return "", api.NoHost(l, machine)
	}
	if h := b.nicAddrs(l).ByLease(mac); h != nil && l.Host(h.Name) != nil {
		return h.Name, nil
	}
	return mac.String(), nil
}

// Boots implements httpd.Backend.
func (b *adminBackend) Boots(ctx context.Context, machine string) ([]api.Boot, error) {
	key, err := b.key(b.current.Load().Lab, machine)
	if err != nil {
		return nil, err
	}
	boots, err := b.timeline.Boots(ctx, key)
	out := make([]api.Boot, len(boots))
	for i, one := range boots {
		out[i] = api.Boot(one)
	}
	if n := len(out); n > 0 && out[n-1].Outcome == timeline.Booting {
		observed := b.clusters.observe(ctx, b.current.Load())
		if h := observed.Lab.Host(key); h != nil {
			s, _ := b.clusters.machineState(h, observed)
			out[n-1].Outcome = outcomeNow(s)
		}
	}
	return out, err
}

// outcomeNow is the outcome of a boot after whose last event something else could still follow: the word that hosts and why have for its
// machine, if nothing does.
func outcomeNow(s machine.State) string {
	switch s.Stage {
	case machine.Stopped, machine.Off, machine.Unknown:
		return string(s.Stage)
	}
	return timeline.Booting
}

// Follow implements httpd.Backend.
func (b *adminBackend) Follow(ctx context.Context, machine string) (<-chan event.Event, error) {
	key, err := b.key(b.current.Load().Lab, machine)
	if err != nil {
		return nil, err
	}
	return b.timeline.Follow(ctx, key), nil
}

// lastSeen adds to a what the timeline knows of the host.
func (b *adminBackend) lastSeen(a *api.Host) {
	s, ok := b.timeline.Last(a.Name)
	if !ok {
		return
	}
	last := s.Last
	a.Last = &last
	if machine.Booted(s) {
		a.Stage = s.Stage
	}
}
