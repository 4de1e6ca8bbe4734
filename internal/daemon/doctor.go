package daemon

import (
	"net/netip"
	"os"
	"slices"

	"github.com/bootlab/bootlab/internal/daemon/doctor"
	"github.com/bootlab/bootlab/internal/daemon/ports"
	"github.com/bootlab/bootlab/internal/daemon/privileges"
	"github.com/bootlab/bootlab/internal/host/links"
	"github.com/bootlab/bootlab/internal/lab"
)

// Namespace names the network namespace of this process, as /proc does; empty: not known.
func Namespace() string {
	name, _ := os.Readlink("/proc/self/ns/net")
	return name
}

// Examined returns what the checks of package doctor look at: a lab, what a start of the daemon would find, where its servers listen, and
// what Check warns of. Addresses that the daemon adds to interfaces when it starts are left out until they are there.
func Examined(l *lab.Lab, labPath string, warnings lab.Problems) *doctor.Machine {
	m := &doctor.Machine{Lab: l, Warnings: warnings}
	m.Start, m.Unread = privileges.Rehearse(l, labPath)
	own, err := links.Addrs()
	add := func(e ports.Endpoint) {
		addr := e.Addr.Addr()
		here := err != nil || own.Serve(addr)
		later := !here && l.Appliance.HoldsAddresses() && slices.ContainsFunc(l.ServiceAddresses(), func(s lab.ServiceAddress) bool { return s.Addr == addr })
		if !later && !slices.ContainsFunc(m.Endpoints, func(o doctor.Endpoint) bool { return o.Network == e.Network && o.Addr == e.Addr }) {
			m.Endpoints = append(m.Endpoints, doctor.Endpoint{Key: e.Key, Network: e.Network, Addr: e.Addr, Here: here, Open: e.Open})
		}
	}
	for _, e := range endpoints(l) {
		add(e)
	}
	for _, b := range l.Balancers {
		network := "tcp"
		if b.Mode == lab.ModeUDP {
			network = "udp"
		}
		for _, bind := range b.Listen { // of a range the first port
			add(ports.Endpoint{Key: "balancers." + b.Name + ".listen", Network: network, Addr: netip.AddrPortFrom(bind.Addr, bind.First)})
		}
	}
	return m
}
