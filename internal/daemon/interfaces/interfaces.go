package interfaces

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/host/link/links"
	"github.com/bootlab/bootlab/internal/host/link/vip"
	"github.com/bootlab/bootlab/internal/lab"
)

// AddrIn returns the address that the interface has inside subnet, the default of a network's address.
func AddrIn(name string, subnet netip.Prefix) (netip.Addr, bool) {
	held := vip.Marked(name)
	addrs := slices.DeleteFunc(addrsOf(name), func(a netip.Addr) bool { return slices.Contains(held, a) })
	i := slices.IndexFunc(addrs, subnet.Contains)
	if i < 0 {
		return netip.Addr{}, false
	}
	return addrs[i], true
}

// OwnAddresses returns the addresses that servers listen on by default: those of the lab, and the IPv6 addresses that the
// interfaces of its networks have now.
func OwnAddresses(l *lab.Lab) []netip.Addr {
	own, services := l.OwnAddresses(), []netip.Addr{} // those are the balancers'
	for _, s := range l.VIPs() {
		services = append(services, s.Addr)
	}
	for _, n := range l.Networks {
		if n.Interface == "" {
			continue
		}
		for _, a := range addrsOf(n.Interface) {
			if a.Is6() && a.IsGlobalUnicast() && !slices.Contains(own, a) && !slices.Contains(services, a) {
				own = append(own, a)
			}
		}
	}
	return own
}

// addrsOf returns the addresses of an interface, none where it does not exist.
func addrsOf(name string) (addrs []netip.Addr) {
	prefixes, _ := links.Prefixes(name)
	for _, p := range prefixes {
		addrs = append(addrs, p.Addr())
	}
	return addrs
}

// AddressWarnings warns of addresses that no interface of this machine has, though the interface of their network exists: those of
// networks, and those of clusters and balancers that the daemon will not add; and of networks whose interface was forgotten.
func AddressWarnings(l *lab.Lab) lab.Problems {
	return append(NetworkWarnings(l), serviceWarnings(l)...)
}

// serviceWarnings warns of addresses of clusters and balancers that will not be added. A daemon reports their state instead.
func serviceWarnings(l *lab.Lab) (warnings lab.Problems) {
	for _, s := range l.VIPs() {
		on := Of(l, s)
		_, err := net.InterfaceByName(on)
		switch {
		case onMachine(s.Addr):
		case on == "" && slices.ContainsFunc(l.Networks, func(n *lab.Network) bool { return n.Interface != "" }):
			warnings.Addf(s.Pos, s.Key, "no network with an interface holds %s, so bootlab cannot add it: clients reach %s only if something else adds it, "+
				"such as a router that forwards to this machine", s.Addr, s.For)
		case on != "" && err == nil && !l.Appliance.HoldsAddresses():
			warnings.Addf(s.Pos, s.Key, "no interface of this machine has %s, at which clients reach %s, and appliance.addresses is off: run %s", s.Addr, s.For, vip.AddCommand(s.Addr, on))
		}
	}
	return warnings
}

// NetworkWarnings warns of networks whose interface exists while no interface of this machine has their address: machines would
// be sent there for everything they boot. It also warns of those without interface whose address an interface has, and of those
// whose address another interface has.
func NetworkWarnings(l *lab.Lab) (warnings lab.Problems) {
	for _, n := range l.Networks {
		if problem, fix := Forgotten(n); problem != "" {
			warnings.Addf(n.Pos, "networks."+n.Name+".interface", "%s: want %s", problem, fix)
		}
		if problem, fix := elsewhere(n); problem != "" {
			warnings.Addf(n.Pos, "networks."+n.Name+".interface", "%s %s: %s", n.Interface, problem, fix)
		}
		if !addressMissing(n) {
			continue
		}
		warnings.Addf(n.Pos, "networks."+n.Name+".address", "no interface of this machine has %s, from which machines boot: run %s, or set the address that it has", n.Address, n.AddCommand(n.Address))
	}
	return warnings
}

// Up reports whether the interface of a network exists and is up.
func Up(n *lab.Network) bool {
	i, err := net.InterfaceByName(n.Interface)
	return err == nil && i.Flags&net.FlagUp != 0
}

// A Fault is why no machine boots on the interface of a network. The zero value: nothing is wrong.
type Fault struct {
	Problem, Fix string // Fix is what to do
	NoCarrier    bool   // that is all: the network is served, and nothing is connected
	AddressLost  bool   // that is all: DHCP answers, as it needs only the interface, and no other server is reached
	Elsewhere    bool   // that is all: DHCP answers on this interface, and another one has the address
}

// FaultOf returns what is wrong with the interface of a network now.
func FaultOf(l *lab.Lab, n *lab.Network) (f Fault) {
	f.Problem, f.Fix = unserved(n)
	f.AddressLost = f.Problem != "" && n.HasAppliance() && Up(n)
	if f.Problem == "" {
		f.Problem, f.Fix = elsewhere(n)
		f.Elsewhere = f.Problem != ""
	}
	if f.Problem == "" {
		f.Problem, f.Fix = noCarrier(l, n)
		f.NoCarrier = f.Problem != ""
	}
	return f
}

// unserved says what keeps a network from being served on its interface, and what to do; "": nothing.
func unserved(n *lab.Network) (problem, fix string) {
	i, err := net.InterfaceByName(n.Interface)
	switch {
	case err != nil:
		return segment.ErrNoInterface.Error(), "make it, or set networks." + n.Name + ".interface"
	case i.Flags&net.FlagUp == 0:
		return segment.ErrDown.Error(), "run ip link set " + n.Interface + " up"
	}
	if n.HasAppliance() && onMachine(n.Address) {
		return "", ""
	}
	var others []string
	held := vip.Marked(n.Interface) // those of clusters and balancers, which are no address of a network
	for _, a := range addrsOf(n.Interface) {
		if n.Subnet.Contains(a) && !slices.Contains(held, a) {
			others = append(others, a.String())
		}
	}
	switch {
	case !n.HasAppliance():
		return "no address in " + n.Subnet.String(), "run " + n.AddCommand(n.Subnet.Addr().Next())
	case len(others) > 0:
		return fmt.Sprintf("%s is on no interface, and this one has %s", n.Address, strings.Join(others, ", ")), "set networks." + n.Name + ".address, or run " + n.AddCommand(n.Address)
	}
	return n.Address.String() + " is on no interface", "run " + n.AddCommand(n.Address)
}

// elsewhere says which other interface has the address of a network, and what to do; "": its own has it, or none. The loopback interface may:
// the address is reached from every segment.
func elsewhere(n *lab.Network) (problem, fix string) {
	if !n.Served() || !n.HasAppliance() || !interfaceExists(n) || slices.Contains(addrsOf(n.Interface), n.Address) {
		return "", ""
	}
	other, _ := links.Find(func(p netip.Prefix) bool { return p.Addr() == n.Address })
	if other == "" {
		return "", ""
	}
	has := "no address"
	for i, a := range addrsOf(n.Interface) {
		switch {
		case i == 0:
			has = a.String()
		case a.Is4():
			has += ", " + a.String()
		}
	}
	return fmt.Sprintf("has %s, and not %s, which is on %s: DHCP answers the machines of another network", has, n.Address, other),
		fmt.Sprintf("set networks.%s.interface: %s, or move the address", n.Name, other)
}

// Forgotten says which interface has the address of a network without interface, and what to do; "": none.
func Forgotten(n *lab.Network) (problem, fix string) {
	if n.Interface != "" || n.DHCP == lab.DHCPOff || !n.HasAppliance() {
		return "", ""
	}
	name, _ := links.Find(func(p netip.Prefix) bool { return p.Addr() == n.Address })
	if name == "" {
		return "", ""
	}
	return fmt.Sprintf("is missing, and %s has the network's address %s", name, n.Address),
		fmt.Sprintf("interface: %s; without it machines are served only through a relay agent", name)
}

// AnyExists reports whether one of the interfaces of a lab's networks exists here: the lab is probably that of this machine.
func AnyExists(l *lab.Lab) bool { return slices.ContainsFunc(l.Networks, interfaceExists) }

func interfaceExists(n *lab.Network) bool {
	_, err := net.InterfaceByName(n.Interface)
	return n.Interface != "" && err == nil
}

// Warnings warns of interfaces that DHCP listens on and that do not exist here.
func Warnings(l *lab.Lab) (warnings lab.Problems) {
	for _, n := range l.Networks {
		if n.Served() && !interfaceExists(n) {
			warnings.Addf(n.Pos, "networks."+n.Name+".interface", "%s does not exist on this machine: its machines are not served until it does", n.Interface)
		}
	}
	return warnings
}

// addressMissing reports whether this machine has the interface of n, but not its address.
func addressMissing(n *lab.Network) bool {
	if !n.HasAppliance() || !n.Served() || !interfaceExists(n) { // the lab of another machine, or a bridge that is made later
		return false
	}
	return !onMachine(n.Address)
}

// onMachine reports whether an interface of this machine has an address, as far as the kernel answers.
func onMachine(addr netip.Addr) bool {
	addrs, err := links.Addrs()
	return err != nil || slices.Contains(addrs, addr)
}

// AddressFound reports whether an interface has an address now that its network lacked at the load of l.
func AddressFound(l *lab.Lab) bool {
	for _, n := range l.Networks {
		warned := func(key string) bool {
			return slices.ContainsFunc(l.Warnings, func(w *lab.Problem) bool { return w.Key == "networks."+n.Name+key })
		}
		if n.HasAppliance() && warned(".address") && !addressMissing(n) {
			return true
		}
		if problem, _ := elsewhere(n); n.Interface != "" && n.HasAppliance() && interfaceExists(n) && warned(".interface") && problem == "" {
			return true
		}
		if n.Interface == "" || n.HasAppliance() {
			continue
		}
		subnet := n.Subnet
		if !n.Address.IsValid() {
			subnet = netip.PrefixFrom(netip.IPv4Unspecified(), 0) // any: its machines may be behind a relay
		}
		if _, ok := AddrIn(n.Interface, subnet); ok {
			return true
		}
	}
	return false
}

// Of returns the interface of the network that an address is in; empty: none. Where the lab file does not
// say which IPv6 prefix a network has (subnet6), its interface does.
func Of(l *lab.Lab, s lab.VIP) string {
	if s.Network != nil {
		return s.Network.Interface
	}
	for _, n := range l.Networks {
		prefixes, _ := links.Prefixes(n.Interface) // none: it is not there
		if slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Bits() < p.Addr().BitLen() && p.Contains(s.Addr) }) {
			return n.Interface
		}
	}
	return ""
}

// Unconnected reports whether an interface is up, and nobody is reached on it: it has no carrier. A bridge without a port in a lab with virtual
// machines counts as connected: they bring theirs.
func Unconnected(l *lab.Lab, name string) bool {
	none, noPort := links.NoCarrier(name)
	return none && !(noPort && len(l.Hypervisors) > 0)
}

// noCarrier says why nobody is reached on the interface of a network though it is up and served, and what to do; "": somebody may be.
func noCarrier(l *lab.Lab, n *lab.Network) (problem, fix string) {
	if !Unconnected(l, n.Interface) {
		return "", ""
	}
	if _, noPort := links.NoCarrier(n.Interface); noPort {
		return "has no carrier: the bridge has no port", "run ip link set NIC master " + n.Interface
	}
	return "has no carrier: no cable, or no port of the bridge, is connected", "look at ip link show " + n.Interface
}
