package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/host/link/vip"
	"github.com/bootlab/bootlab/internal/host/socket/portowner"
	"github.com/bootlab/bootlab/internal/lab"
)

// ports looks whether the servers could listen. It opens each port as its server does, and closes it at once. Beside the daemon these are the
// ports of the lab file that it lacks: it refused that file, or the next start opens them.
func ports(ctx context.Context, m *Machine) (all []Finding) {
	switch {
	case m.Serving:
		for _, e := range m.Endpoints {
			if m.lacks(e) {
				all = append(all, port(ctx, e))
			}
		}
		others := "all"
		if len(all) > 0 {
			others = "all others"
		}
		return append(all, ok(others, "the daemon has them"))
	case m.Unseen != nil:
		return []Finding{warn("all", "were not tried: the daemon may have them", needsRoot)}
	}
	for _, e := range m.Endpoints {
		all = append(all, port(ctx, e))
	}
	for _, iface := range m.DHCP {
		s, err := segment.Listen(iface)
		if err == nil {
			_ = s.Close()
		}
		if !errors.Is(err, syscall.ENODEV) { // else interfaces reports it
			err = portowner.Explain(err, "udp", "", DHCPKey)
			all = append(all, portFinding(dhcpSubject(iface, err), err, "free (DHCP)"))
		}
	}
	return all
}

// lacks reports whether the daemon does not listen at e. Of a server that does not serve, status says what is wrong.
func (m *Machine) lacks(e Endpoint) bool {
	servers := m.Status.Servers // none: it is starting
	i := slices.IndexFunc(servers, func(s api.Server) bool { return s.Name == e.Server })
	if i < 0 {
		return len(servers) > 0
	}
	return servers[i].Serving && !slices.Contains(servers[i].Addrs, e.Socket)
}

// DHCPKey is what to change where another program has the port of DHCP.
const DHCPKey = "the network to dhcp: off"

// dhcpSubject names the port of DHCP on an interface, or the one of the two that is in use; "": that for packets of relays, on any.
func dhcpSubject(iface string, err error) string {
	port := strconv.Itoa(segment.PortServer)
	if used, ok := errors.AsType[*portowner.InUse](err); ok {
		_, port, _ = net.SplitHostPort(used.Address) // it was listened on
	}
	if iface == "" {
		return "udp 0.0.0.0:" + port
	}
	return "udp 0.0.0.0%" + iface + ":" + port
}

// port says whether a server could listen on its port, or on all ports of a range, else on which not.
func port(ctx context.Context, e Endpoint) Finding {
	at, err := e.Addr, error(nil)
	for p := int(e.Addr.Port()); err == nil && p <= int(max(e.Last, e.Addr.Port())); p++ {
		var opened io.Closer
		at = netip.AddrPortFrom(e.Addr.Addr(), uint16(p))
		if opened, err = e.Open(ctx, at); err == nil {
			_ = opened.Close()
		}
	}
	subject := e.Network + " " + at.String()
	if err == nil {
		subject = e.Network + " " + e.ports()
	}
	loopback := e.Addr.Addr().IsLoopback()
	switch {
	case loopback && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)):
		return ok(subject, "is not on this machine, and is left out ("+e.Key+")")
	case err == nil && !e.Here:
		return warn(subject, "no interface of this machine has the address", "add it to the interface, or change "+e.Key)
	}
	return portFinding(subject, portowner.Explain(err, e.Network, at.String(), e.Key), "free ("+e.Key+")")
}

// ports writes the address with its port, or all of them.
func (e Endpoint) ports() string {
	return lab.Bind{Addr: e.Addr.Addr(), First: e.Addr.Port(), Last: max(e.Last, e.Addr.Port())}.String()
}

// portFinding says what err, of a call that listens, means; nil: good.
func portFinding(subject string, err error, good string) Finding {
	var inUse *portowner.InUse
	switch {
	case err == nil:
		return ok(subject, good)
	case errors.As(err, &inUse):
		return fail(subject, "in use "+inUse.By, inUse.Fix)
	case errors.Is(err, os.ErrPermission):
		return warn(subject, "only root may listen there, so it was not tried", needsRoot)
	}
	return fail(subject, err.Error(), "check the address and the port in the lab file")
}

// served looks at the interfaces that networks are served on.
func served(_ context.Context, m *Machine) (all []Finding) {
	for _, n := range m.Lab.Networks {
		if problem, fix := interfaces.Forgotten(n); problem != "" {
			all = append(all, warn("network "+n.Name, "interface "+problem, fix))
		}
		if !n.Served() {
			continue
		}
		good := fmt.Sprintf("up, with %s/%d of network %s", n.Address, n.Subnet.Bits(), n.Name)
		switch f := interfaces.FaultOf(m.Lab, n); {
		case f.NoCarrier:
			all = append(all, warn(n.Interface, good+", but "+f.Problem, f.Fix))
		case f.Problem != "":
			all = append(all, fail(n.Interface, f.Problem+" (network "+n.Name+")", f.Fix))
		default:
			all = append(all, ok(n.Interface, good))
		}
	}
	return all
}

// mtu compares the MTU that machines use with that of the interface.
func mtu(_ context.Context, m *Machine) (all []Finding) {
	for _, n := range m.Lab.Networks {
		i, err := net.InterfaceByName(n.Interface)
		if n.Interface == "" || err != nil {
			continue
		}
		told := n.MTU
		if told == 0 {
			told = 1500 // Ethernet's, which machines use without option 26
		}
		switch {
		case told > i.MTU:
			all = append(all, fail(n.Interface, fmt.Sprintf("has an MTU of %d, and machines of network %s use %d: large packets are lost", i.MTU, n.Name, told),
				fmt.Sprintf("ip link set %s mtu %d, and its bridge and switch too; or networks.%s.mtu: %d", n.Interface, told, n.Name, i.MTU)))
		case told < i.MTU:
			all = append(all, warn(n.Interface, fmt.Sprintf("has an MTU of %d, and machines of network %s use %d: TFTP and DNS answers of more than that may be lost", i.MTU, n.Name, told),
				fmt.Sprintf("networks.%s.mtu: %d, or ip link set %s mtu %d", n.Name, i.MTU, n.Interface, told)))
		default:
			all = append(all, ok(n.Interface, fmt.Sprintf("%d, as machines of network %s use", i.MTU, n.Name)))
		}
	}
	return all
}

// otherServers sends a DHCPDISCOVER on each served interface. Nothing is leased; a server may hold an address for a minute.
func otherServers(ctx context.Context, m *Machine) (all []Finding) {
	within := m.OffersWithin
	if within == 0 {
		within = 5 * time.Second // dnsmasq pings an address for three seconds before it offers it
	}
	done := map[string]bool{}
	var asked []*lab.Network
	for _, n := range m.Lab.Networks {
		if !n.Served() || done[n.Interface] {
			continue
		}
		done[n.Interface] = true
		if _, err := net.InterfaceByName(n.Interface); err == nil { // else interfaces reports it
			asked = append(asked, n)
		}
	}
	all = make([]Finding, len(asked))
	var wg sync.WaitGroup
	for i, n := range asked {
		wg.Go(func() { all[i] = serversBeside(ctx, m, n, within) })
	}
	wg.Wait()
	return all
}

// serversBeside says which other servers answer on the interface of n.
func serversBeside(ctx context.Context, m *Machine, n *lab.Network, within time.Duration) Finding {
	known, _ := m.Status.ConditionsOf(api.ConditionDHCPServer)
	if i := slices.IndexFunc(known, func(c api.Condition) bool { return c.Name == n.Interface }); i >= 0 {
		return tooMany(n, known[i].Detail+", seen by the daemon since "+known[i].Since.Local().Format(time.DateTime)+",")
	}
	offers, err := segment.Discover(ctx, n.Interface, within)
	switch {
	case errors.Is(err, os.ErrPermission):
		return warn(n.Interface, "only root may send a DHCPDISCOVER, so it was not tried", needsRoot)
	case err != nil:
		return warn(n.Interface, "a DHCPDISCOVER cannot be sent: "+err.Error(), "")
	}
	own := m.Lab.OwnAddresses()
	offers = slices.DeleteFunc(offers, func(o segment.ServerReply) bool { return slices.Contains(own, o.ServerID) }) // of the daemon
	return offersOf(m, n, offers)
}

// offersOf says what the answers of other servers mean on the interface of n.
func offersOf(m *Machine, n *lab.Network, offers []segment.ServerReply) Finding {
	var servers []string
	for _, o := range offers {
		server := o.ServerID
		if !server.IsValid() {
			server = o.SourceIP
		}
		if text := fmt.Sprintf("%s (%s)", server, o.SourceMAC); !slices.Contains(servers, text) {
			servers = append(servers, text)
		}
	}
	who, gives := strings.Join(servers, ", "), m.Lab.GivesAddressesOn(n.Interface)
	switch {
	case !gives && len(servers) == 0:
		return fail(n.Interface, "no DHCP server answers, and network "+n.Name+" is dhcp: proxy: machines get no address", "start the other server, or set dhcp: server")
	case !gives:
		return ok(n.Interface, who+" assigns addresses, as dhcp: proxy wants")
	case len(servers) == 0:
		return ok(n.Interface, "no other DHCP server answers")
	}
	return tooMany(n, who)
}

// tooMany is that servers answer where this one gives the addresses.
func tooMany(n *lab.Network, who string) Finding {
	return fail(n.Interface, who+" answers DHCP too: "+lab.RogueEffect, lab.StopRogue)
}

// reversePath looks for a filter that drops packets of machines behind a relay or another router.
func reversePath(_ context.Context, m *Machine) (all []Finding) {
	remote := slices.ContainsFunc(m.Lab.Networks, func(n *lab.Network) bool { return !n.Served() && n.DHCP != lab.DHCPOff })
	for _, n := range m.Lab.Networks {
		if n.Interface == "" {
			continue
		}
		strict := max(sysctl("net/ipv4/conf/all/rp_filter"), sysctl("net/ipv4/conf/"+n.Interface+"/rp_filter")) == 1
		if strict && remote {
			all = append(all, warn(n.Interface, "the reverse path filter is strict: packets of relayed networks are dropped if the way back is another interface",
				"sysctl net.ipv4.conf."+n.Interface+".rp_filter=2"))
		} else {
			all = append(all, ok(n.Interface, "drops nothing that the lab needs"))
		}
	}
	return all
}

// sysctl returns a number below /proc/sys, or 0.
func sysctl(name string) int {
	b, _ := os.ReadFile("/proc/sys/" + name)
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}

// firewall looks for a firewall whose policy is to drop what comes in. Whether its rules permit the servers is not decided here.
func firewall(ctx context.Context, m *Machine) []Finding {
	out, err := exec.CommandContext(ctx, "nft", "list", "ruleset").Output()
	if err != nil {
		return []Finding{warn("nftables", "the rules cannot be read", "as root: nft list ruleset")}
	}
	if !dropsInput(string(out)) {
		return []Finding{ok("nftables", "no chain drops incoming packets by policy")}
	}
	return []Finding{warn("nftables", "a chain drops incoming packets by policy: rules must permit the servers of the lab", "permit "+strings.Join(servedPorts(m), ", "))}
}

// dropsInput reports whether a chain at the input hook has the policy drop.
func dropsInput(rules string) bool {
	for line := range strings.Lines(rules) {
		if strings.Contains(line, "hook input") && strings.Contains(line, "policy drop") {
			return true
		}
	}
	return false
}

// servedPorts are the ports that machines and clients use, such as "udp 67".
func servedPorts(m *Machine) (all []string) {
	all = []string{"udp 67", "udp 4011"}
	for _, e := range m.Endpoints {
		text := e.ports()
		if p := e.Network + " " + text[strings.LastIndexByte(text, ':')+1:]; e.Key != "appliance.admin" && !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// addresses looks whether other machines use those of clusters and balancers. A daemon that runs reports that itself.
func addresses(ctx context.Context, m *Machine) (all []Finding) {
	if m.Serving || len(m.Addresses) == 0 {
		return nil
	}
	states, err := vip.Look(ctx, m.Addresses)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return []Finding{warn("all", "only root may ask other machines whether they use them, so it was not tried", needsRoot)}
	case err != nil:
		return []Finding{warn("all", "it is not known whether other machines use them: "+err.Error(), "")}
	}
	for _, s := range states {
		if f := address(m.Lab, s); f.Text != "" {
			f.Subject = s.Addr.String()
			all = append(all, f)
		}
	}
	return all
}

// address says what a state means for a lab; without a text: another check does.
func address(l *lab.Lab, s vip.Address) Finding {
	holds := l.Appliance.HoldsAddresses()
	problem, fix := s.Used(l, "")
	switch {
	case problem != "" && fix != "":
		return fail("", problem, fix)
	case problem != "":
		return warn("", problem, "")
	case s.OK():
		return ok("", "is on "+s.On+" ("+s.For+")")
	case s.Phase == vip.Missing && s.Interface == "":
		return warn("", "is on no interface of this machine: "+s.Err, "let something else add it, such as a router that forwards to this machine")
	case s.Phase == vip.Missing && s.Err == "" && holds:
		return ok("", "no other machine uses it ("+s.For+")")
	case s.Phase == vip.Missing && s.Err == "":
		return warn("", "is on no interface, and appliance.addresses is off", "run "+s.Command())
	}
	return Finding{}
}
