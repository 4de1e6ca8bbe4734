package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/dhcpd"
	"github.com/bootlab/bootlab/dnsd"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/content/mirror"
	"github.com/bootlab/bootlab/internal/daemon/diskhealth"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/metrics"
	"github.com/bootlab/bootlab/tftpd"
	"github.com/bootlab/bootlab/virt"
)

// conditions returns what was measured beside the servers: interfaces, hypervisors, pools, disks, certificates, DNS upstreams, other
// DHCP servers, reserved and leased addresses that others use, mirrors without an upstream, a TFTP server that is full, markers that would not show a
// loss of the state, and the machines and zones that are refused.
func (d *Daemon) conditions(s *snapshot.Snapshot) []api.Condition {
	all := slices.Concat(interfaceConditions(s.Lab), d.hypervisorConditions(s.Lab), poolConditions(d.pools(s.DHCP)), d.diskConditions(),
		d.certificateConditions(s.Lab), upstreamConditions(d.dns.Forwards(s.DNS)),
		rogueConditions(d.servers.dhcp.RogueServers()), addressConflictConditions(d.servers.dhcp.AddressConflicts()),
		mirrorConditions(s.Lab, d.servers.mirrors.Outages()), tftpConditions(d.servers.tftp.Full()), markerConditions(d.badMarkers()), refusedConditions(s))
	return d.conditionTimes.date(all, time.Now())
}

// conditionTimes are since when conditions are as they are that are measured anew each time: interfaces, pools, certificates.
type conditionTimes struct {
	mu sync.Mutex
	of map[conditionKey]conditionTime
}

// A conditionKey tells conditions apart. Two networks may be on one interface.
type conditionKey struct{ kind, name, network string }

type conditionTime struct {
	ok bool
	at time.Time
}

// date sets Since of all that have none: when they were first seen as they are now.
func (t *conditionTimes) date(all []api.Condition, now time.Time) []api.Condition {
	t.mu.Lock()
	defer t.mu.Unlock()
	current := make(map[conditionKey]conditionTime, len(t.of))
	for i, c := range all {
		if !c.Since.IsZero() {
			continue
		}
		key := conditionKey{kind: c.Kind, name: c.Name}
		if c.Kind == api.ConditionInterface {
			key.network = c.Detail
		}
		seen, known := t.of[key]
		if !known || seen.ok != c.OK {
			seen = conditionTime{c.OK, now}
		}
		current[key] = seen
		all[i].Since = seen.at
	}
	t.of = current
	return all
}

// interfaceConditions has one condition for each network that is served on an interface.
func interfaceConditions(l *lab.Lab) (all []api.Condition) {
	for _, n := range l.Networks {
		if n.Served() {
			all = append(all, interfaceCondition(l, n))
		}
	}
	return all
}

// interfaceCondition says whether the interface of n is up and connected and has the address from which machines boot.
func interfaceCondition(l *lab.Lab, n *lab.Network) api.Condition {
	c := api.Condition{Kind: api.ConditionInterface, Name: n.Interface, Detail: "network " + n.Name}
	if f := interfaces.FaultOf(l, n); f.Problem != "" {
		c = c.With(f.Problem, f.Fix)
	}
	c.OK = c.Problem == ""
	return c
}

func (d *Daemon) hypervisorConditions(l *lab.Lab) (all []api.Condition) {
	for _, hv := range l.Hypervisors {
		since, err := d.virt.Answered(hv.Name)
		c := api.Condition{Kind: api.ConditionHypervisor, Name: hv.Name, Detail: hv.URI, OK: err == nil, Since: since}
		if down := (*virt.DownError)(nil); errors.As(err, &down) {
			c.Problem = down.Err.Error() // Name and Since say the rest
		} else if err != nil {
			c.Problem = err.Error()
		}
		all = append(all, c)
	}
	return all
}

// diskConditions has one condition for each folder. That of the state is not good while its disk takes no writes: its free space can still be read.
func (d *Daemon) diskConditions() []api.Condition {
	all := d.disks.Conditions()
	for i, c := range all {
		if silent := d.storeWatch.Hangs(); silent > 0 && c.OK && c.Name == d.storeWatch.Folder() {
			all[i].OK, all[i].Problem, all[i].Since = false, diskhealth.CauseHangs, time.Now().Add(-silent)
		}
	}
	return all
}

// pools returns the use of the pools of a table, for everybody who asks: the API, status, dashboard and metrics have the same numbers.
func (d *Daemon) pools(t *dhcpd.Table) (all []api.Pool) {
	for _, p := range d.servers.dhcp.Pools(t) {
		all = append(all, api.Pool{
			Network: p.Network, Name: p.Name, Range: p.Range, Size: p.Usable, Leased: p.Leased, Offered: p.Offered, Quarantined: p.Quarantined, Free: p.Free,
		})
	}
	return all
}

func poolConditions(pools []api.Pool) (all []api.Condition) {
	for _, p := range pools {
		c := api.Condition{Kind: api.ConditionPool, Name: p.Network + "/" + p.Name, OK: !p.Full(), Detail: p.Use()}
		switch {
		case p.Size == 0:
			c.Problem = "no address of its range is free for machines without a reservation"
		case p.Full():
			c.Problem = "full: new machines get no address"
		}
		all = append(all, c)
	}
	return all
}

func upstreamConditions(rules []dnsd.ForwardRule) (all []api.Condition) {
	for _, r := range rules {
		c := api.Condition{Kind: api.ConditionUpstream, Name: r.Key(), OK: r.Err == nil, Since: r.Since, Detail: fmt.Sprintf("%d of %d servers answer", r.Answering, r.Servers)}
		switch {
		case r.Servers == 0:
			c = c.With("clients get REFUSED: there is no server to ask", "set "+r.Key()+" to servers other than this appliance")
		case r.Err != nil:
			c = c.With("clients get SERVFAIL: "+r.Err.Error(), "set "+r.Key()+" to servers that this machine may ask, or look at the firewall")
		}
		all = append(all, c)
	}
	return all
}

// maxNamedServers is how many other DHCP servers of an interface are named: anybody can forge more.
const maxNamedServers = 3

// rogueConditions has one condition for each interface on which other DHCP servers answer; they are sorted by it.
func rogueConditions(others []dhcpd.RogueServer) (all []api.Condition) {
	of := map[string]int{}
	for _, o := range others {
		who := fmt.Sprintf("%s (%s)", o.Addr, o.MAC)
		if n := len(all); n > 0 && all[n-1].Name == o.Interface {
			last := &all[n-1]
			if of[o.Interface]++; of[o.Interface] <= maxNamedServers {
				last.Detail += ", " + who
			}
			if o.Since.Before(last.Since) {
				last.Since = o.Since
			}
			continue
		}
		of[o.Interface] = 1
		all = append(all, api.Condition{Kind: api.ConditionDHCPServer, Name: o.Interface, Since: o.Since, Detail: who,
			Problem: "another DHCP server answers: " + lab.RogueEffect + ": " + lab.StopRogue})
	}
	for i, c := range all {
		if n := of[c.Name]; n > maxNamedServers {
			all[i].Detail = fmt.Sprintf("%d servers: %s, …", n, c.Detail)
		}
	}
	return all
}

// addressConflictConditions has one condition for each reserved or leased address that another machine uses.
func addressConflictConditions(conflicts []dhcpd.AddressConflict) (all []api.Condition) {
	for _, x := range conflicts {
		c := api.Condition{Kind: api.ConditionLease, Name: x.Addr.String(), Since: x.Since, Detail: "lease of " + x.Owner.String(),
			Problem: fmt.Sprintf("another machine uses it: switch off %s", x.MAC)}
		if x.Owner.Reserved {
			c.Kind, c.Detail = api.ConditionReserved, "host "+x.Owner.String()
		}
		if x.Owner.Host != "" {
			c.Problem += ", or add that MAC to the host's line if it is a NIC of it"
		}
		all = append(all, c)
	}
	return all
}

// mirrorConditions has one condition for each mirror of a lab of which no upstream answers.
func mirrorConditions(l *lab.Lab, outages []mirror.Outage) (all []api.Condition) {
	for _, o := range outages {
		if slices.ContainsFunc(l.Mirrors, func(m *lab.Mirror) bool { return m.Name == o.Mirror }) {
			all = append(all, api.Condition{Kind: api.ConditionMirror, Name: o.Mirror, Since: o.Since, Problem: "no upstream answers, so that only cached files are served: " + o.Err})
		}
	}
	return all
}

// tftpConditions has a condition while TFTP drops requests.
func tftpConditions(f tftpd.Full, full bool) []api.Condition {
	if !full {
		return nil
	}
	c := api.Condition{Kind: api.ConditionTFTP, Name: "transfers", Since: f.Since, Detail: fmt.Sprintf("%d at a time", f.Max),
		Problem: fmt.Sprintf("full: %d requests were dropped", f.Dropped)}
	if f.Held > 0 {
		c.Problem += fmt.Sprintf("; the client with the most transfers is %s, with %d: look at that machine", f.Client, f.Held)
	}
	return []api.Condition{c}
}

// refusedConditions has one condition for each machine and zone that an error or a missing file keeps from being served.
func refusedConditions(s *snapshot.Snapshot) (all []api.Condition) {
	for _, r := range s.Boot.Refused() {
		for _, h := range r.Hosts {
			all = append(all, api.Condition{Kind: api.ConditionMachine, Name: h.Name, Since: cmp.Or(r.Since, s.At), Problem: "refused: " + r.Error(), Cause: r.Problem})
		}
	}
	for _, p := range slices.Concat(s.DNS.BadFiles(), s.DNS.NoFiles()) {
		all = append(all, api.Condition{Kind: api.ConditionZone, Name: p.Of, Since: s.At, Problem: "not served: " + p.Error(), Cause: p})
	}
	return all
}

// MetricConditions is how many of the measured conditions are good and how many are not.
const MetricConditions = "bootlab_conditions"

// newConditionCollector counts conditions.
func newConditionCollector(conditions func() []api.Condition) *metrics.Gauges {
	desc := prometheus.NewDesc(MetricConditions,
		"What bootlab status measures beside servers, such as interfaces, hypervisors, pools, disks and certificates: how many are good, and how many not.", []string{"condition", "state"}, nil)
	return metrics.NewGauges(func(set metrics.Gauge) {
		n := map[[2]string]int{}
		for _, k := range api.ConditionKinds() {
			n[[2]string{k, api.ConditionOK}], n[[2]string{k, api.ConditionFailed}] = 0, 0
		}
		for _, x := range conditions() {
			n[[2]string{x.Kind, x.State()}]++
		}
		for labels, count := range n {
			set(desc, float64(count), labels[:]...)
		}
	}, desc)
}
