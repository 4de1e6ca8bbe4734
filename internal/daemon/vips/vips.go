package vips

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/host/link/vip"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/metrics"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/records"
)

// Deps are what Open needs. All fields are required.
type Deps struct {
	Lab        func() *lab.Lab // the one in force
	Book       *leases.Book
	Store      store.Store
	Saver      *records.Saver
	Events     *event.Bus
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// VIPs are the addresses of clusters and balancers. They are safe for concurrent use.
type VIPs struct {
	*vip.Holder
	deps Deps
}

// Open makes what holds the VIPs, if the lab in force says so, and reads which were added before.
func Open(ctx context.Context, deps Deps) (a *VIPs, err error) {
	a = &VIPs{deps: deps}
	a.Holder, err = vip.Open(ctx, vip.Config{Hold: deps.Lab().Appliance.HoldsAddresses()}, vip.Deps{Records: added{deps.Store, deps.Saver}, Log: deps.Log, Lease: a.leaseOf, Report: a.report})
	if err != nil {
		return nil, err
	}
	return a, deps.Registerer.Register(newCollector(a.Holder))
}

// leaseOf returns the machine that has a lease of an address. A pool that had an address gives it to nobody from when the lab file has a
// cluster or balancer there, but its leases run on.
func (a *VIPs) leaseOf(addr netip.Addr) (lab.MAC, bool) {
	l, ok := a.deps.Book.ByAddr(addr)
	return l.MAC, ok
}

// Wanted returns the VIPs of l that this machine has to have.
func Wanted(l *lab.Lab) (all []vip.Wanted) {
	for _, s := range l.VIPs() {
		all = append(all, vip.Wanted{Addr: s.Addr, Interface: interfaces.Of(l, s), For: s.For, Key: s.Key})
	}
	return all
}

// Want makes the holder hold the VIPs of l.
func (a *VIPs) Want(l *lab.Lab) { a.Holder.Want(Wanted(l)) }

// Follow makes the holder follow the interfaces of IPv6 prefixes, which come and go while the lab stays.
func (a *VIPs) Follow() {
	if now := Wanted(a.deps.Lab()); !slices.Equal(now, a.Wanted()) {
		a.Holder.Want(now)
	}
}

// troubles are the events of the states in which clients may not reach this machine at an address.
var troubles = map[vip.Phase]event.Kind{vip.InUse: event.VIPInUse, vip.Conflict: event.VIPConflict, vip.Leased: event.VIPLeased, vip.Missing: event.VIPMissing}

// report records that an address came, went, or is another machine's too.
func (a *VIPs) report(s vip.Address) {
	e := event.Event{Kind: event.VIPUp, Addr: s.Addr, Detail: fmt.Sprintf("%s of %s, on %s", s.Addr, s.For, s.Interface)}
	switch s.Phase {
	case vip.Added:
	case vip.Present:
		e.Detail = fmt.Sprintf("%s of %s, which bootlab did not add", s.Addr, s.For)
	default:
		e.Kind, e.Detail, e.Err = troubles[s.Phase], fmt.Sprintf("%s of %s", s.Addr, s.For), a.problem(s)
	}
	a.deps.Events.Record(e)
}

// problem says why clients do not reach this machine at an address, and what to do; empty: they do.
func (a *VIPs) problem(s vip.Address) string {
	l := a.deps.Lab()
	lease, _ := a.deps.Book.ByMAC(s.MAC)
	if problem, fix := s.Used(l, lease.Hostname); fix != "" {
		return problem + "; " + fix
	} else if problem != "" {
		return problem
	}
	hold := l.Appliance.HoldsAddresses()
	switch s.Phase {
	case vip.Probing:
		return "other machines are asked whether they use it"
	case vip.Missing:
		problem := s.Err
		if !s.Down && (!hold || s.Interface == "") {
			problem = "on no interface of this machine: " + problem
		}
		if command := s.Command(); command != "" && (s.Down || !hold) {
			problem += ": run " + command
		}
		return problem
	}
	return s.Err
}

// Status returns the VIPs for people.
func (a *VIPs) Status() []api.Address {
	out := []api.Address{}
	for _, s := range a.States() {
		one := api.Address{Addr: s.Addr, Interface: cmp.Or(s.On, s.Interface), For: s.For, State: string(s.Phase), OK: s.OK(), MAC: s.MAC, Since: s.Since, Problem: a.problem(s), Command: s.Command()}
		if h := a.deps.Lab().HostByMAC(s.MAC); h != nil && !s.MAC.IsZero() {
			one.Host = h.Name
		}
		out = append(out, one)
	}
	return out
}

// added stores which addresses were added, below "address/". The value is the machine's start.
type added struct {
	store store.Store
	saver *records.Saver
}

const addedPrefix = "address/"

// Load implements vip.Records.
func (s added) Load(ctx context.Context) (all []vip.Record, err error) {
	err = records.Read(ctx, s.store, addedPrefix, func(key, boot string) error {
		addr, err := netip.ParseAddr(key)
		if err == nil {
			all = append(all, vip.Record{Addr: addr, Boot: boot})
		}
		return err
	})
	return all, err
}

// Put implements vip.Records.
func (s added) Put(_ context.Context, r vip.Record) error {
	return s.saver.Put(addedPrefix+r.Addr.String(), r.Boot)
}

// Delete implements vip.Records.
func (s added) Delete(_ context.Context, a netip.Addr) error {
	return s.saver.Save(store.Op{Key: addedPrefix + a.String(), Delete: true})
}

// MetricVIPs is how many VIPs are in a state.
const MetricVIPs = "bootlab_vips"

// newCollector counts the VIPs.
func newCollector(h *vip.Holder) *metrics.Gauges {
	desc := prometheus.NewDesc(MetricVIPs, "Addresses of clusters and balancers (VIPs): added (by bootlab), present (by something else), probing (other "+
		"machines are asked), in_use (by another machine), conflict (another one uses it, too), leased (another one has a lease of it), missing.", []string{"state"}, nil)
	return metrics.NewGauges(func(set metrics.Gauge) {
		n := map[vip.Phase]int{}
		for _, s := range h.States() {
			n[s.Phase]++
		}
		for _, p := range vip.Phases() {
			set(desc, float64(n[p]), string(p))
		}
	}, desc)
}
