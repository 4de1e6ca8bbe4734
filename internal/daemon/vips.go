package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/host/vip"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/metrics"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/records"
)

// openVIPs makes what holds the addresses of clusters and balancers.
func (d *Daemon) openVIPs(ctx context.Context, hold bool) (*vip.Holder, error) {
	h, err := vip.Open(ctx, vip.Config{Hold: hold}, vip.Deps{Records: vipRecords{d.store, d.saver}, Log: d.serverLog, Lease: d.leaseOfVIP, Report: d.reportVIP})
	if err != nil {
		return nil, err
	}
	return h, d.registry.Register(newVIPCollector(h))
}

// leaseOfVIP returns the machine that has a lease of an address. A pool that had an address gives it to nobody from when the lab file has a
// cluster or balancer there, but its leases run on.
func (d *Daemon) leaseOfVIP(a netip.Addr) (lab.MAC, bool) {
	l, ok := d.book.ByAddr(a)
	return l.MAC, ok
}

// wantedVIPs returns the addresses of l that this machine has to have.
func wantedVIPs(l *lab.Lab) (wanted []vip.Wanted) {
	for _, s := range l.ServiceAddresses() {
		wanted = append(wanted, vip.Wanted{Addr: s.Addr, Interface: interfaces.Of(l, s), For: s.For})
	}
	return wanted
}

// followVIPs makes the holder follow the interfaces of IPv6 prefixes, which come and go while the lab stays.
func (d *Daemon) followVIPs() {
	wanted := wantedVIPs(d.current.Load().Lab)
	if !slices.Equal(wanted, d.vips.Wanted()) {
		d.vips.Want(wanted)
	}
}

// reportVIP records that an address came, went, or is another machine's too.
func (d *Daemon) reportVIP(s vip.State) {
	e := event.Event{Kind: event.ServiceAddressUp, Addr: s.Addr, Detail: fmt.Sprintf("%s of %s, on %s", s.Addr, s.For, s.Interface)}
	switch s.Phase {
	case vip.Held:
	case vip.Present:
		e.Detail = fmt.Sprintf("%s of %s, which bootlab did not add", s.Addr, s.For)
	case vip.Taken, vip.Conflict, vip.Leased:
		e.Kind, e.Detail, e.Err = event.ServiceAddressTaken, fmt.Sprintf("%s of %s", s.Addr, s.For), d.vipProblem(s)
	default:
		e.Kind, e.Detail, e.Err = event.ServiceAddressMissing, fmt.Sprintf("%s of %s", s.Addr, s.For), d.vipProblem(s)
	}
	d.bus.Record(e)
}

// vipProblem says why clients do not reach this machine at an address, and what to do; empty: they do.
func (d *Daemon) vipProblem(s vip.State) string {
	who := "another machine"
	if !s.MAC.IsZero() {
		who = "the machine with MAC " + s.MAC.String()
		lease, _ := d.book.ByMAC(s.MAC)
		if h := d.current.Load().Lab.HostByMAC(s.MAC); h != nil {
			who += " (" + h.Name + ")"
		} else if lease.Hostname != "" {
			who += " (" + lease.Hostname + ")"
		}
	}
	hold := d.current.Load().Lab.Appliance.HoldsAddresses()
	switch s.Phase {
	case vip.Looking:
		return "other machines are asked whether they use it"
	case vip.Taken:
		if hold {
			return who + " uses it: remove it there, or change it here; bootlab adds it once it is free"
		}
		return who + " has it (appliance.addresses is off)"
	case vip.Conflict:
		return who + " uses it, too: clients reach one or the other; remove it there"
	case vip.Leased:
		return who + " has a lease of it and is silent: it gets another address when it starts again or its lease ends, and may use this one until then; " +
			"if it is gone for good: bootlab leases release " + s.Addr.String()
	case vip.Missing:
		problem := s.Err
		if !hold || s.Interface == "" {
			problem = "on no interface of this machine: " + problem
		}
		if command := s.Command(); command != "" && !hold {
			problem += ": run " + command
		}
		return problem
	}
	return s.Err
}

// vipStates returns the addresses for people.
func (d *Daemon) vipStates() []api.Address {
	out := []api.Address{}
	for _, s := range d.vips.States() {
		a := api.Address{Addr: s.Addr, Interface: s.Interface, For: s.For, State: string(s.Phase), OK: s.OK(), MAC: s.MAC, Since: s.Since, Problem: d.vipProblem(s), Command: s.Command()}
		if h := d.current.Load().Lab.HostByMAC(s.MAC); h != nil && !s.MAC.IsZero() {
			a.Host = h.Name
		}
		out = append(out, a)
	}
	return out
}

// vipRecords stores which addresses were added, below "address/". The value is the machine's start.
type vipRecords struct {
	store store.Store
	saver *records.Saver
}

const vipPrefix = "address/"

// Load implements vip.Records.
func (s vipRecords) Load(ctx context.Context) (all []vip.Record, err error) {
	err = records.Read(ctx, s.store, vipPrefix, func(key, boot string) error {
		addr, err := netip.ParseAddr(key)
		if err == nil {
			all = append(all, vip.Record{Addr: addr, Boot: boot})
		}
		return err
	})
	return all, err
}

// Put implements vip.Records.
func (s vipRecords) Put(_ context.Context, r vip.Record) error {
	boot, err := json.Marshal(r.Boot)
	if err != nil {
		return err
	}
	return s.saver.Save(store.Op{Key: vipPrefix + r.Addr.String(), Value: boot})
}

// Delete implements vip.Records.
func (s vipRecords) Delete(_ context.Context, a netip.Addr) error {
	return s.saver.Save(store.Op{Key: vipPrefix + a.String(), Delete: true})
}

// MetricAddresses is how many addresses of clusters and balancers are in a state.
const MetricAddresses = "bootlab_addresses"

// newVIPCollector counts the addresses.
func newVIPCollector(h *vip.Holder) *metrics.Gauges {
	desc := prometheus.NewDesc(MetricAddresses, "Addresses of clusters and balancers: held (bootlab added it), present (something else did), looking (other machines are asked), taken (another machine has it), conflict (another one has it, too), leased (another one has a lease of it), missing.", []string{"state"}, nil)
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
