package adoption

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/boot/discovered"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/observe/timeline"
)

// MaxUnknown bounds the list of unknown machines: those seen last.
const MaxUnknown = 500

// Machines are where machines are known from. All fields are required.
type Machines struct {
	Lab      func() *lab.Lab // the one in force
	Book     *leases.Book
	Clock    *leases.Clock // all times of Book are its
	Timeline *timeline.Recorder
	Reports  *discovered.Book
}

// Unknown returns the machines whose MAC no host of the lab has, and that sent a report, hold a lease, or have a timeline. All three are
// bounded, and survive a restart.
func (m Machines) Unknown() []api.UnknownMachine {
	found := map[lab.MAC]*api.UnknownMachine{}
	l := m.Lab()
	of := func(mac lab.MAC) *api.UnknownMachine {
		if mac.IsZero() || l.HostByMAC(mac) != nil {
			return nil
		}
		if found[mac] == nil {
			found[mac] = &api.UnknownMachine{MAC: mac}
		}
		return found[mac]
	}
	for _, s := range m.Timeline.All() {
		if mac, err := lab.ParseMAC(s.Key); err == nil {
			addTimeline(of(mac), s)
		}
	}
	for _, r := range m.Reports.All() {
		addReport(of(r.MAC), r)
	}
	m.addLeases(l, found)
	all := make([]api.UnknownMachine, 0, len(found))
	for _, u := range found {
		if p := located(l, *u); m.seen(l, p) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b api.UnknownMachine) int { return cmp.Or(b.Last.Compare(a.Last), a.MAC.Compare(b.MAC)) })
	return all[:min(len(all), MaxUnknown)]
}

// addTimeline adds the last event. A machine may have two timelines: one is of the time before it had an address of a pool.
func addTimeline(u *api.UnknownMachine, s timeline.Summary) {
	if u == nil || s.Last.At.Before(u.Last) {
		return
	}
	u.Last, u.Stage, u.Event = s.Last.At, s.Stage, s.Last.Kind.String()
	u.IP, u.Network, u.Reason = s.Last.Addr, s.Last.Network, ""
	if s.Last.Kind == event.DHCPRogue {
		u.IP = netip.Addr{} // that of the other server
	}
	if s.Outcome == timeline.Failed {
		u.Reason = lab.Shortened(lab.Tidy(s.Reason, len(s.Reason)), 200)
	}
}

// seen reports whether a machine exists, and is not only a MAC in the URL of a request: it has asked for an address here, unless another
// server leases them.
func (m Machines) seen(l *lab.Lab, u api.UnknownMachine) bool {
	_, leased := m.Book.ByMAC(u.MAC)
	n := l.NetworkOf(u.IP)
	return leased || !u.First.IsZero() || u.Stage == event.StageAddress || n != nil && n.DHCP != lab.DHCPServer
}

func addReport(u *api.UnknownMachine, m discovered.Machine) {
	if u == nil {
		return
	}
	f := m.Facts
	u.First, u.IP, u.MACs = m.First, m.Addr, f.MACs
	if m.Last.After(u.Last) {
		u.Last = m.Last
	}
	u.UUID, u.Serial, u.Asset, u.Board, u.Manufacturer, u.Product = f.UUID, f.Serial, f.Asset, f.Board, f.Manufacturer, f.Product
	u.Arch, u.Platform, u.IPXE, u.NIC, u.MemoryMiB = f.Arch, f.Platform, f.IPXE, f.NIC, f.MemoryMiB
}

// addLeases adds the latest lease of each machine that was found, and the machines that only have a lease: as many as can be
// listed, those whose lease began last.
func (m Machines) addLeases(l *lab.Lab, found map[lab.MAC]*api.UnknownMachine) {
	latest, others := make(map[lab.MAC]leases.Lease, len(found)), latestLeases{listed: make(map[lab.MAC]bool, MaxUnknown)}
	m.Book.Walk(func(lease *leases.Lease) {
		m.Clock.OnWall(lease)
		switch before, again := latest[lease.MAC]; {
		case lease.State != leases.Active && lease.State != leases.Released, lease.MAC.IsZero(), l.HostByMAC(lease.MAC) != nil:
		case found[lease.MAC] == nil:
			others.add(*lease)
		case !again || latestFirst(*lease, before) < 0:
			latest[lease.MAC] = *lease
		}
	})
	for mac, lease := range latest {
		addLease(found[mac], lease)
	}
	others.cut()
	for _, lease := range others.all {
		found[lease.MAC] = &api.UnknownMachine{MAC: lease.MAC}
		addLease(found[lease.MAC], lease)
	}
}

// latestLeases keeps the latest lease of each of the machines whose lease began last, as many as can be listed.
type latestLeases struct {
	all    []leases.Lease
	listed map[lab.MAC]bool // of cut
}

func (l *latestLeases) add(lease leases.Lease) {
	l.all = append(l.all, lease)
	if len(l.all) >= 4*MaxUnknown {
		l.cut()
	}
}

func (l *latestLeases) cut() {
	slices.SortFunc(l.all, latestFirst)
	clear(l.listed)
	l.all = slices.DeleteFunc(l.all, func(lease leases.Lease) bool {
		if l.listed[lease.MAC] || len(l.listed) == MaxUnknown {
			return true
		}
		l.listed[lease.MAC] = true
		return false
	})
}

func latestFirst(x, y leases.Lease) int {
	return cmp.Or(y.Start.Compare(x.Start), x.MAC.Compare(y.MAC), y.Addr.Compare(x.Addr))
}

func addLease(u *api.UnknownMachine, lease leases.Lease) {
	u.IP, u.Name = lease.Addr, lab.Tidy(lease.Hostname, 253)
	if lease.Start.After(u.Last) {
		u.Last = lease.Start
	}
}

// located adds the network and the pool of a machine. Without an address, as after a refusal, the network is that of its last event.
func located(l *lab.Lab, u api.UnknownMachine) api.UnknownMachine {
	n := l.NetworkOf(u.IP)
	if n == nil {
		n = l.Network(u.Network)
	}
	u.Network = ""
	if n != nil {
		u.Network = n.Name
		if p := n.PoolHolding(u.IP); p != nil {
			u.Pool = p.Name
		}
	}
	return u
}

// Adoption returns how the unknown machine that has a MAC could be added to the lab. The error is an api.Error: it is in the lab, or was not
// seen.
func (m Machines) Adoption(mac lab.MAC) (api.Adoption, error) {
	l := m.Lab()
	if h := l.HostByMAC(mac); h != nil {
		return api.Adoption{}, &api.Error{Status: http.StatusConflict, Message: fmt.Sprintf("%s is in the lab: it is host %s", mac, h.Name), Hint: "bootlab hosts lists them"}
	}
	all := m.Unknown()
	i := slices.IndexFunc(all, func(u api.UnknownMachine) bool { return u.MAC == mac || slices.Contains(u.MACs, mac) })
	if i < 0 {
		return api.Adoption{}, &api.Error{Status: http.StatusNotFound, Message: fmt.Sprintf("%s was not seen", mac), Hint: "bootlab hosts --unknown lists unknown machines"}
	}
	a := api.Adoption{UnknownMachine: all[i], Names: names(l, all[i])}
	a.MACs = slices.DeleteFunc(slices.Clone(a.MACs), func(m lab.MAC) bool { return l.HostByMAC(m) != nil })
	a.Wanted, a.From = m.wanted(l, all[i])
	return a, nil
}

// names returns free names for a machine: its serial number, its host name, its UUID (the last part, which differs between machines; all
// of Dell's begin alike), its MAC.
func names(l *lab.Lab, u api.UnknownMachine) (free []string) {
	uuid := u.UUID[strings.LastIndexByte(u.UUID, '-')+1:]
	if uuid != "" {
		uuid = "node-" + uuid
	}
	for _, name := range []string{label(serial(u.Serial)), label(u.Name), label(uuid), u.MAC.Hyphens()} {
		if name != "" && l.Host(name) == nil && !lab.ReservedName(name) && !slices.Contains(free, name) {
			free = append(free, name)
		}
	}
	return free
}

// serial drops placeholders that makers write in place of a serial number.
func serial(s string) string {
	switch low := strings.ToLower(s); {
	case len(s) < 4, strings.HasPrefix(low, "to be filled"), strings.HasPrefix(low, "not "), strings.Contains(low, "default"), strings.Contains(low, "serial"),
		strings.Contains(low, "o.e.m"), strings.Trim(low, "0123456789") == "" && strings.HasPrefix("0123456789012345", low), strings.Trim(low, "0-. x") == "", low == "none", low == "invalid":
		return ""
	}
	return s
}

// label makes a host name of a text, or nothing if too little is left.
func label(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		case r == '-' || r == ' ' || r == '_' || r == '.':
			return '-'
		}
		return -1
	}, s)
	s = strings.Trim(s[:min(len(s), 63)], "-")
	if len(s) < 3 {
		return ""
	}
	return s
}

// wanted returns an address to reserve for a machine: that of its lease, or a free one of its network.
func (m Machines) wanted(l *lab.Lab, u api.UnknownMachine) (netip.Addr, string) {
	if lease, ok := m.Book.ByMAC(u.MAC); ok && l.NetworkOf(lease.Addr) != nil && l.HostByIP(lease.Addr) == nil {
		return lease.Addr, "its lease"
	}
	n := l.Network(u.Network)
	if n == nil && len(l.Networks) == 1 {
		n = l.Networks[0]
	}
	if n == nil {
		return netip.Addr{}, ""
	}
	if a := m.NextFree(l, n); a.IsValid() {
		return a, "the next free address of network " + n.Name
	}
	return netip.Addr{}, ""
}

// maxTries bounds the search for a free address in a large subnet.
const maxTries = 1 << 16

// NextFree returns the first free address after the highest reserved one, or else the first of the subnet. Addresses of pools are not free.
func (m Machines) NextFree(l *lab.Lab, n *lab.Network) netip.Addr {
	taken := m.takenIn(l, n)
	start := n.Subnet.Addr()
	for a := range maps.Keys(taken) {
		if n.Subnet.Contains(a) && a.Compare(start) > 0 && l.HostByIP(a) != nil && n.PoolHolding(a) == nil && a != n.Router && a != n.Address {
			start = a
		}
	}
	free := func(from netip.Addr) netip.Addr {
		for a, tries := from.Next(), 0; n.Subnet.Contains(a) && tries < maxTries; a, tries = a.Next(), tries+1 {
			if _, used := taken[a]; !used && n.PoolHolding(a) == nil && n.Subnet.Contains(a.Next()) { // the last is the broadcast address
				return a
			}
		}
		return netip.Addr{}
	}
	if a := free(start); a.IsValid() {
		return a
	}
	return free(n.Subnet.Addr())
}

// takenIn returns the addresses of n that are in use.
func (m Machines) takenIn(l *lab.Lab, n *lab.Network) map[netip.Addr]struct{} {
	taken := l.NotPooled()
	m.Book.Walk(func(lease *leases.Lease) {
		if n.Subnet.Contains(lease.Addr) && n.PoolHolding(lease.Addr) == nil { // else it is not looked at
			taken[lease.Addr] = struct{}{}
		}
	})
	return taken
}
