package daemon

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/daemon/doctor"
	"github.com/bootlab/bootlab/internal/daemon/snapshot"
	"github.com/bootlab/bootlab/internal/daemon/watch"
	"github.com/bootlab/bootlab/internal/host/links"
	"github.com/bootlab/bootlab/internal/host/vip"
	"github.com/bootlab/bootlab/internal/lab"
)

// InterfaceAddr returns the address that the interface has inside subnet, the default of a network's address.
func InterfaceAddr(name string, subnet netip.Prefix) (netip.Addr, bool) {
	held := vip.Marked(name)
	addrs := slices.DeleteFunc(interfaceAddrs(name), func(a netip.Addr) bool { return slices.Contains(held, a) })
	i := slices.IndexFunc(addrs, subnet.Contains)
	if i < 0 {
		return netip.Addr{}, false
	}
	return addrs[i], true
}

// ownAddresses returns the addresses that servers listen on by default: those of the lab, and the IPv6 addresses that the
// interfaces of its networks have now.
func ownAddresses(l *lab.Lab) []netip.Addr {
	own, services := l.OwnAddresses(), []netip.Addr{} // those are the balancers'
	for _, s := range l.ServiceAddresses() {
		services = append(services, s.Addr)
	}
	for _, n := range l.Networks {
		if n.Interface == "" {
			continue
		}
		for _, a := range interfaceAddrs(n.Interface) {
			if a.Is6() && a.IsGlobalUnicast() && !slices.Contains(own, a) && !slices.Contains(services, a) {
				own = append(own, a)
			}
		}
	}
	return own
}

// interfaceAddrs returns the addresses of an interface, none where it does not exist.
func interfaceAddrs(name string) (addrs []netip.Addr) {
	prefixes, _ := links.Prefixes(name)
	for _, p := range prefixes {
		addrs = append(addrs, p.Addr())
	}
	return addrs
}

// AddressWarnings warns of addresses that no interface of this machine has, though the interface of their network exists: those of
// networks, and those of clusters and balancers that the daemon will not add; and of networks whose interface was forgotten.
func AddressWarnings(l *lab.Lab) lab.Problems {
	return append(networkWarnings(l), serviceWarnings(l)...)
}

// serviceWarnings warns of addresses of clusters and balancers that will not be added. A daemon reports their state instead.
func serviceWarnings(l *lab.Lab) (warnings lab.Problems) {
	for _, s := range l.ServiceAddresses() {
		on := interfaceFor(l, s)
		_, err := net.InterfaceByName(on)
		switch {
		case onMachine(s.Addr):
		case on == "" && slices.ContainsFunc(l.Networks, func(n *lab.Network) bool { return n.Interface != "" }):
			warnings.Addf(s.Pos, s.Key, "no network with an interface holds %s, so bootlab cannot add it: clients reach %s only if something else adds it, such as a router that forwards to this machine", s.Addr, s.For)
		case on != "" && err == nil && !holds(l.Appliance):
			warnings.Addf(s.Pos, s.Key, "no interface of this machine has %s, at which clients reach %s, and appliance.addresses is off: run %s", s.Addr, s.For, vip.AddCommand(s.Addr, on))
		}
	}
	return warnings
}

// networkWarnings warns of networks whose interface exists while no interface of this machine has their address: machines would
// be sent there for everything they boot. It also warns of those without interface whose address an interface has.
func networkWarnings(l *lab.Lab) (warnings lab.Problems) {
	for _, n := range l.Networks {
		if problem, fix := doctor.ForgottenInterface(n); problem != "" {
			warnings.Addf(n.Pos, "networks."+n.Name+".interface", "%s: want %s", problem, fix)
		}
		if !addressMissing(n) {
			continue
		}
		warnings.Addf(n.Pos, "networks."+n.Name+".address", "no interface of this machine has %s, from which machines boot: run %s, or set the address that it has", n.Address, n.AddCommand(n.Address))
	}
	return warnings
}

// HasInterface reports whether one of the interfaces of a lab's networks exists here: the lab is probably that of this machine.
func HasInterface(l *lab.Lab) bool { return slices.ContainsFunc(l.Networks, interfaceExists) }

func interfaceExists(n *lab.Network) bool {
	_, err := net.InterfaceByName(n.Interface)
	return n.Interface != "" && err == nil
}

// InterfaceWarnings warns of interfaces of networks that do not exist here.
func InterfaceWarnings(l *lab.Lab) (warnings lab.Problems) {
	for _, n := range l.Networks {
		if n.Interface != "" && !interfaceExists(n) {
			warnings.Addf(n.Pos, "networks."+n.Name+".interface", "%s does not exist on this machine: its machines are not served until it does", n.Interface)
		}
	}
	return warnings
}

// addressMissing reports whether this machine has the interface of n, but not its address.
func addressMissing(n *lab.Network) bool {
	if n.Interface == "" || !n.Address.IsValid() || n.DHCP == lab.DHCPOff {
		return false
	}
	if _, err := net.InterfaceByName(n.Interface); err != nil {
		return false // the lab of another machine, or a bridge that is made later
	}
	return !onMachine(n.Address)
}

// onMachine reports whether an interface of this machine has an address, as far as the kernel answers.
func onMachine(addr netip.Addr) bool {
	addrs, err := links.Addrs()
	return err != nil || slices.Contains(addrs, addr)
}

// currentWarnings returns the warnings that hold now: those of the load, of certificates as they are now, and addresses lost since.
func (d *Daemon) currentWarnings(s *snapshot.Snapshot) []string {
	ws, _ := d.problems(s)
	for _, p := range networkWarnings(s.Lab) {
		if text := p.Error(); !slices.Contains(ws, text) {
			ws = append(ws, text)
		}
	}
	return ws
}

// watch follows the lab's files, and the interfaces and addresses of this machine, until ctx ends.
func (d *Daemon) watch(ctx context.Context, w *watch.Watcher) error {
	changes, err := links.Open()
	if err != nil {
		d.log.Warn("no notifications of interfaces: their state is polled", "err", err)
	}
	defer changes.Close()
	return w.Run(ctx, d.reloadBecause, d.look, changes.Changed())
}

// look is called once a second, and when interfaces or addresses change. It follows the memory limit and the addresses of interfaces,
// logs new warnings, and reports whether the lab has to be reloaded for an address that exists now.
func (d *Daemon) look() bool {
	d.state.watch(d.log)
	d.health.look(thisMachine()) // since when something is gone
	d.followMemory()
	d.followAddresses()
	d.followVIPs()
	d.lookAtDisks()
	d.files.look(d.current.Load().Lab)
	d.served.look(d.serverLog)
	d.warnNew(d.current.Load())
	return d.addressFound()
}

// followAddresses opens and closes sockets as the interfaces of the lab's networks get and lose IPv6 addresses. Those of IPv4 are
// in the lab, and stay open while they are lost.
func (d *Daemon) followAddresses() {
	d.reloads.running.Lock()
	defer d.reloads.running.Unlock()
	l := d.current.Load().Lab
	st, err := d.sockets.stage(context.Background(), endpoints(l, ownAddresses(l))) // nothing waits
	if err == nil {
		st.commit()
	}
	if d.sockets.changed(err) {
		if err != nil {
			d.log.Warn("addresses of an interface are not listened on", "err", err)
			return
		}
		d.log.Info("addresses of interfaces are listened on again")
	}
}

// A machine is what this machine has of interfaces and addresses at one moment.
type machine struct {
	interfaces []net.Interface
	addrs      []netip.Addr
	unknown    bool // the kernel did not answer: nothing counts as missing
}

// thisMachine asks the kernel.
func thisMachine() machine {
	interfaces, errInterfaces := net.Interfaces()
	addrs, errAddrs := links.Addrs()
	return machine{interfaces: interfaces, addrs: addrs, unknown: errInterfaces != nil || errAddrs != nil}
}

// addressError returns errNoAddress for an address and port that clients do not reach: no interface has the address.
func (m machine) addressError(socket string) error {
	at, err := netip.ParseAddrPort(strings.TrimSuffix(socket, udpSuffix))
	if err != nil || m.unknown || at.Addr().IsUnspecified() || at.Addr().IsLoopback() || slices.Contains(m.addrs, at.Addr().WithZone("")) {
		return nil
	}
	return errNoAddress
}

// interfaceError returns why an interface cannot be served: ErrNoInterface, ErrDown, else nil. The empty name is that of all.
func (m machine) interfaceError(name string) error {
	if name == "" || m.unknown {
		return nil
	}
	i := slices.IndexFunc(m.interfaces, func(ifi net.Interface) bool { return ifi.Name == name })
	switch {
	case i < 0:
		return segment.ErrNoInterface
	case m.interfaces[i].Flags&net.FlagUp == 0:
		return segment.ErrDown
	}
	return nil
}

// missing returns one warning for each address of these sockets that this machine lacks, unless it is reported already.
func (m machine) missing(sockets []string, reported func(netip.Addr) bool) (warnings []string) {
	for _, socket := range sockets {
		err := m.addressError(socket)
		if at, _ := netip.ParseAddrPort(strings.TrimSuffix(socket, udpSuffix)); err == nil || reported(at.Addr()) {
			continue
		} else if text := at.Addr().String() + ": " + err.Error(); !slices.Contains(warnings, text) {
			warnings = append(warnings, text)
		}
	}
	return warnings
}

// reportsAddress reports whether an address has a line of its own in the status when it is missing: those of networks have a warning, those
// of clusters and balancers a state.
func reportsAddress(l *lab.Lab) func(netip.Addr) bool {
	services := l.ServiceAddresses()
	return func(a netip.Addr) bool {
		return slices.ContainsFunc(l.Networks, func(n *lab.Network) bool { return n.Address == a }) ||
			slices.ContainsFunc(services, func(s lab.ServiceAddress) bool { return s.Addr == a })
	}
}

// lookAtDisks measures the free space of the folders that images, mirrors and the state are in.
func (d *Daemon) lookAtDisks() {
	a := d.current.Load().Lab.Appliance
	d.disks.look(a.State, a.Files)
}

// addressFound reports whether an interface has an address now that its network lacked at the load.
func (d *Daemon) addressFound() bool {
	l := d.current.Load().Lab
	for _, n := range l.Networks {
		warned := slices.ContainsFunc(l.Warnings, func(w *lab.Problem) bool { return w.Pos == n.Pos && w.Key == "networks."+n.Name+".address" })
		if warned && n.Address.IsValid() && !addressMissing(n) {
			return true
		}
		if n.Interface == "" || n.Address.IsValid() {
			continue
		}
		if _, ok := InterfaceAddr(n.Interface, n.Subnet); ok {
			return true
		}
	}
	return false
}
