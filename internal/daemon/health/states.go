package health

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Moment is what the states of servers follow from, beside what was observed of them.
type Moment struct {
	Lab         *lab.Lab // the one in force
	Interfaces  []string // that DHCP should serve
	Unreachable []string // hypervisors that do not answer
	Draining    bool     // the daemon stops
	Clock       string   // what is to be said of the clock of leases; empty: nothing

	Unconnected func(iface string) bool // an interface is up, and nobody is reached on it
}

// States returns the state of each server. The interfaces and addresses that they serve are looked at now.
func (h *Servers) States(at Moment) []api.Server {
	have := thisMachine()
	h.look(have, at.Lab)
	balancers := balancerSockets(at.Lab)
	virtual := h.Server(Virt, nil)
	virtual.Idle = len(at.Lab.Hypervisors) == 0
	virtual.Warnings, virtual.Cause = hypervisorWarnings(at.Unreachable, len(at.Lab.Hypervisors))
	states := []api.Server{
		h.Server(DHCP, at.Interfaces),
		h.Server(TFTP, h.Sockets(TFTP)),
		h.Server(DNS, h.Sockets(DNS)),
		h.Server(HTTP, h.Sockets(HTTP)),
		h.Server(Admin, h.Sockets(Admin)),
		h.Server(LB, balancers),
	}
	lb := &states[len(states)-1]
	lb.Warnings = have.missing(lb.Addrs, reportsAddress(at.Lab))
	lb.Addrs = withRanges(lb.Addrs, at.Lab)
	if at.Draining && lb.Serving {
		lb.Serving, lb.Cause, lb.Err = false, "draining", "draining: the daemon stops when connections have ended, after 10 seconds at most"
	}
	if at.Clock != "" {
		states[0].Warnings = append(states[0].Warnings, at.Clock)
	}
	states = append(states, virtual)
	if len(at.Lab.Redfish.Listen) > 0 {
		states = append(states, h.Server(Redfish, h.Sockets(Redfish)))
	}
	for i := range states {
		s := &states[i]
		if ws := have.unconnected(s.Name, s.Addrs, at.Unconnected); len(ws) > 0 {
			s.Warnings, s.Cause = append(s.Warnings, ws...), cmp.Or(s.Cause, errNoCarrier.Error())
		}
	}
	return states
}

// balancerSockets returns the sockets of all balancers, each once.
func balancerSockets(l *lab.Lab) (sockets []string) {
	seen := map[string]bool{}
	for _, b := range l.Balancers {
		for a := range b.Listen.All() {
			if text := a.String() + suffixOf(b); !seen[text] {
				seen[text] = true
				sockets = append(sockets, text)
			}
		}
	}
	return sockets
}

// Socket returns what a server's addresses have for a bind of a balancer, one port or a range.
func Socket(b *lab.Balancer, bind lab.Bind) string { return bind.String() + suffixOf(b) }

func suffixOf(b *lab.Balancer) string {
	if b.Mode == lab.ModeUDP {
		return udpSuffix
	}
	return ""
}

// withRanges returns the sockets of balancers with those of a range of ports as one, if all are among them.
func withRanges(sockets []string, l *lab.Lab) []string {
	if !slices.ContainsFunc(l.Balancers, func(b *lab.Balancer) bool { return b.Listen.Ports() > len(b.Listen) }) {
		return sockets
	}
	open := map[string]string{} // by socket, as what it is shown
	for _, s := range sockets {
		open[s] = s
	}
	for _, b := range l.Balancers {
		for _, bind := range b.Listen {
			all := slices.Collect(lab.Binds{bind}.All())
			if len(all) == 1 || slices.ContainsFunc(all, func(a netip.AddrPort) bool { return open[a.String()+suffixOf(b)] == "" }) {
				continue
			}
			for _, a := range all {
				open[a.String()+suffixOf(b)] = Socket(b, bind)
			}
		}
	}
	var shown []string
	for _, s := range sockets {
		if text := open[s]; !slices.Contains(shown, text) {
			shown = append(shown, text)
		}
	}
	return shown
}

// hypervisorWarnings says how many hypervisors do not answer: why and since when is a condition of each. cause names none.
func hypervisorWarnings(down []string, all int) (warnings []string, cause string) {
	if len(down) == 0 {
		return nil, ""
	}
	cause = fmt.Sprintf("%d of %d hypervisors do not answer", len(down), all)
	return []string{cause + ": " + strings.Join(down, ", ")}, cause + " (bootlab status names them)"
}
