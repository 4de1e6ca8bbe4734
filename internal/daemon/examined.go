package daemon

import (
	"net/netip"
	"os"
	"slices"

	"github.com/bootlab/bootlab/internal/daemon/doctor"
	"github.com/bootlab/bootlab/internal/lab"
)

// Namespace names the network namespace of this process, as /proc does; empty: not known.
func Namespace() string {
	name, _ := os.Readlink("/proc/self/ns/net")
	return name
}

// Examined returns what the checks of package doctor look at: a lab, where its servers listen, and what Check warns of. serving says
// that a daemon runs here. Addresses that the daemon adds to interfaces when it starts are left out until they are there.
func Examined(l *lab.Lab, warnings lab.Problems, serving bool) *doctor.Machine {
	m := &doctor.Machine{Lab: l, Warnings: warnings, Serving: serving, NoSpace: minFreeBytes}
	add := func(e doctor.Endpoint) {
		later := holds(l.Appliance) && !onMachine(e.Addr.Addr()) && slices.ContainsFunc(l.ServiceAddresses(), func(s lab.ServiceAddress) bool { return s.Addr == e.Addr.Addr() })
		if !later && !slices.ContainsFunc(m.Endpoints, func(o doctor.Endpoint) bool { return o.Network == e.Network && o.Addr == e.Addr }) {
			m.Endpoints = append(m.Endpoints, e)
		}
	}
	for _, e := range endpoints(l, ownAddresses(l)) {
		add(doctor.Endpoint{Key: e.key(), Network: e.network, Addr: e.addr})
	}
	for _, b := range l.Balancers {
		for _, bind := range b.Listen { // of a range the first port
			add(doctor.Endpoint{Key: "balancers." + b.Name + ".listen", Network: "tcp", Addr: netip.AddrPortFrom(bind.Addr, bind.First)})
		}
	}
	return m
}
