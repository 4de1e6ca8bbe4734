package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/dhcpd"
	"github.com/bootlab/bootlab/internal/daemon/diskhealth"
	"github.com/bootlab/bootlab/internal/daemon/doctor"
	"github.com/bootlab/bootlab/internal/daemon/interfaces"
	"github.com/bootlab/bootlab/internal/host/link/links"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/lab/load"
	"github.com/bootlab/bootlab/test/support/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// machine returns what doctor looks at for a lab with one network, on an interface.
func machine(t *testing.T, iface, network, more string) *doctor.Machine {
	t.Helper()
	dir := t.TempDir()
	text := fmt.Sprintf("version: 1\ndomain: lab.example\nappliance: {user: root, state: %s, files: %s}\nnetworks:\n  lan: {subnet: 10.132.1.0/24, interface: %s, address: 10.132.1.1%s}\n%s",
		filepath.Join(dir, "state"), filepath.Join(dir, "files"), iface, network, more)
	l, err := load.Parse(filepath.Join(dir, "lab.yaml"), []byte(text), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &doctor.Machine{Lab: l, Warnings: l.Warnings, DHCP: dhcpd.Compile(l).Interfaces(), OffersWithin: 300 * time.Millisecond}
}

// found fails the test unless a check found something of that level, subject and text.
func found(t *testing.T, m *doctor.Machine, check, subject string, level doctor.Level, text string) {
	t.Helper()
	all := doctor.Run(t.Context(), m)
	for _, f := range all {
		if f.Check == check && strings.Contains(f.Subject, subject) && f.Level == level && strings.Contains(f.Text+" "+f.Fix, text) {
			return
		}
	}
	t.Errorf("no finding %s %s of %s with %q in %+v", level, check, subject, text, all)
}

// TestSegment looks at one interface: with its address, beside another DHCP server, with another MTU, without an address, down, and gone.
func TestSegment(t *testing.T) {
	netns.Need(t, "root", "ip", "dnsmasq")
	seg := netns.NewSegment(t, "10.132.1.1/24")
	client := seg.NewClient(t)
	m := machine(t, seg.Bridge, "", "")
	found(t, m, "interfaces", seg.Bridge, doctor.OK, "up, with 10.132.1.1/24")
	found(t, m, "dhcp", seg.Bridge, doctor.OK, "no other DHCP server")
	found(t, m, "mtu", seg.Bridge, doctor.OK, "1500")
	found(t, machine(t, seg.Bridge, ", dhcp: proxy", ""), "dhcp", seg.Bridge, doctor.Fail, "no DHCP server answers")
	found(t, machine(t, seg.Bridge, ", mtu: 9000", ""), "mtu", seg.Bridge, doctor.Fail, "large packets are lost")
	found(t, machine(t, seg.Bridge, ", mtu: 1400", ""), "mtu", seg.Bridge, doctor.Warn, "ip link set")

	shared := machine(t, seg.Bridge, ", dhcp: proxy", "  two: {subnet: 10.132.2.0/24, interface: "+seg.Bridge+", address: 10.132.2.1}\n")
	found(t, shared, "dhcp", seg.Bridge, doctor.OK, "no other DHCP server answers")

	forgotten := machine(t, seg.Bridge, "", "")
	forgotten.Lab.Networks[0].Interface = ""
	found(t, forgotten, "interfaces", "network lan", doctor.Warn, seg.Bridge+" has the network's address 10.132.1.1 interface: "+seg.Bridge)

	netns.Run(t, "ip", "-n", client.Name, "addr", "add", "10.132.1.7/24", "dev", "eth0")
	rogue(t, client)
	// A slow server may answer the next DISCOVER in time.
	for m, want := range map[*doctor.Machine]string{m: "answers DHCP too", machine(t, seg.Bridge, ", dhcp: proxy", ""): "as dhcp: proxy wants"} {
		netns.WaitFor(t, "10.132.1.7 "+want, func() bool {
			return slices.ContainsFunc(doctor.Run(t.Context(), m), func(f doctor.Finding) bool {
				return f.Check == "dhcp" && strings.HasPrefix(f.Text, "10.132.1.7 (") && strings.Contains(f.Text, want) && (f.Level == doctor.Fail) == (m.Lab.Networks[0].DHCP == lab.DHCPServer)
			})
		})
	}

	m.Serving = true
	netns.WaitFor(t, "10.132.1.7 beside the daemon, which has seen nothing", func() bool {
		return slices.ContainsFunc(doctor.Run(t.Context(), m), func(f doctor.Finding) bool {
			return f.Check == "dhcp" && f.Level == doctor.Fail && strings.HasPrefix(f.Text, "10.132.1.7 (")
		})
	})
	m.Lab.Networks[0].Address = netip.MustParseAddr("10.132.1.7") // the daemon's own answer, by another interface
	found(t, m, "dhcp", seg.Bridge, doctor.OK, "no other DHCP server answers")
	m.Lab.Networks[0].Address, m.Serving = netip.MustParseAddr("10.132.1.1"), false

	netns.Run(t, "ip", "-n", client.Name, "link", "del", "eth0") // and with it the bridge's port, and soon its carrier
	netns.WaitFor(t, "the bridge has no carrier", func() bool {
		none, _ := links.NoCarrier(seg.Bridge)
		return none
	})
	found(t, m, "interfaces", seg.Bridge, doctor.Warn, "up, with 10.132.1.1/24 of network lan, but has no carrier: the bridge has no port run ip link set NIC master "+seg.Bridge)
	if all := doctor.Run(t.Context(), m); len(slices.DeleteFunc(all, func(f doctor.Finding) bool { return f.Check != "interfaces" })) != 1 {
		t.Errorf("an interface without a carrier has not one line: %+v", all)
	}

	netns.Run(t, "ip", "addr", "flush", "dev", seg.Bridge)
	elsewhere(t, m, seg.Bridge)
	found(t, m, "interfaces", seg.Bridge, doctor.Fail, "ip addr add 10.132.1.1/24 dev "+seg.Bridge)
	netns.Run(t, "ip", "link", "set", seg.Bridge, "down")
	found(t, m, "interfaces", seg.Bridge, doctor.Fail, "ip link set "+seg.Bridge+" up")
	found(t, machine(t, "none0", "", ""), "interfaces", "none0", doctor.Fail, "interface does not exist")
}

// elsewhere: an address on another interface than the lab says is named by doctor, check --live and the condition of the interface, in the same words.
func elsewhere(t *testing.T, m *doctor.Machine, bridge string) {
	t.Helper()
	netns.Run(t, "ip", "link", "add", "other0", "type", "bridge")
	netns.Run(t, "ip", "addr", "add", "10.132.1.1/24", "dev", "other0")
	const problem = "has no address, and not 10.132.1.1, which is on other0: DHCP answers the machines of another network"
	found(t, m, "interfaces", bridge, doctor.Fail, problem+" (network lan) set networks.lan.interface: other0, or move the address")
	if f := interfaces.FaultOf(m.Lab, m.Lab.Networks[0]); f.Problem != problem || !f.Elsewhere || f.AddressLost {
		t.Errorf("fault %+v", f)
	}
	warnings := interfaces.AddressWarnings(m.Lab)
	if len(warnings) != 1 || !strings.Contains(warnings[0].Error(), "networks.lan.interface: "+bridge+" "+problem) {
		t.Errorf("warnings: %v", warnings)
	}
	m.Lab.Warnings = warnings
	if interfaces.AddressFound(m.Lab) {
		t.Error("the lab is reloaded though nothing has changed")
	}
	netns.Run(t, "ip", "link", "del", "other0")
	netns.Run(t, "ip", "addr", "add", "10.132.1.1/24", "dev", bridge)
	if !interfaces.AddressFound(m.Lab) {
		t.Error("the lab is not reloaded for the address that its interface has now")
	}
	m.Lab.Warnings = nil
	netns.Run(t, "ip", "addr", "flush", "dev", bridge)
}

// rogue starts a DHCP server in the namespace of a client.
func rogue(t *testing.T, c *netns.Client) {
	t.Helper()
	dir := t.TempDir()
	cmd := c.Command(t.Context(), "dnsmasq", "-k", "--conf-file=/dev/null", "--port=0", "--interface=eth0", "--bind-interfaces", "--except-interface=lo", "--user=root", "--no-ping",
		"--dhcp-range=10.132.1.100,10.132.1.110", "--pid-file=", "--dhcp-leasefile="+filepath.Join(dir, "leases"), "--log-facility="+filepath.Join(dir, "log"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// TestSilentNetwork: an interface on which DHCP is off need not exist.
func TestSilentNetwork(t *testing.T) {
	t.Parallel()
	m := machine(t, "br-not-here", ", dhcp: off", "")
	for _, f := range doctor.Run(t.Context(), m) {
		if f.Check == "interfaces" {
			t.Errorf("found %+v", f)
		}
	}
	if warnings := interfaces.Warnings(m.Lab); len(warnings) > 0 {
		t.Errorf("warnings %v", warnings)
	}
}

// TestPorts names the process that has a port, and says what to do about it.
func TestPorts(t *testing.T) {
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	addr := netip.MustParseAddrPort(udp.LocalAddr().String())
	m := machine(t, "lo", ", dhcp: off", "")
	listen := func(e doctor.Endpoint) doctor.Endpoint {
		e.Open = func(_ context.Context, at netip.AddrPort) (io.Closer, error) {
			if e.Network == "udp" {
				return net.ListenPacket("udp", at.String())
			}
			return net.Listen("tcp", at.String())
		}
		return e
	}
	m.Endpoints = []doctor.Endpoint{
		listen(doctor.Endpoint{Key: "appliance.dns", Network: "udp", Addr: addr, Here: true}),
		listen(doctor.Endpoint{Key: "appliance.dns", Network: "tcp", Addr: addr, Here: true}),
		listen(doctor.Endpoint{Key: "appliance.http", Network: "tcp", Addr: netip.MustParseAddrPort("127.0.0.1:0")}),
	}
	found(t, m, "ports", "udp "+addr.String(), doctor.Fail, fmt.Sprintf("(pid %d)", os.Getpid()))
	for _, finding := range doctor.Run(t.Context(), m) {
		if finding.Level == doctor.Fail && finding.Check == "ports" && finding.Fix != "stop that program, or change appliance.dns" {
			t.Errorf("a port in use: advice %q", finding.Fix)
		}
	}
	found(t, m, "ports", "tcp "+addr.String(), doctor.OK, "free (appliance.dns)")
	found(t, m, "ports", "127.0.0.1:0", doctor.Warn, "no interface of this machine has the address")
	// Of a range all are tried, and the first that another program has is named.
	first := netip.AddrPortFrom(addr.Addr(), addr.Port()-3)
	m.Endpoints = []doctor.Endpoint{listen(doctor.Endpoint{Key: "balancers.b.listen", Network: "udp", Addr: first, Last: addr.Port() + 3, Here: true})}
	found(t, m, "ports", "udp "+addr.String(), doctor.Fail, fmt.Sprintf("(pid %d) stop that program, or change balancers.b.listen", os.Getpid()))
	m.Endpoints[0].Last = addr.Port() - 1
	found(t, m, "ports", fmt.Sprintf("udp %s-%d", first, addr.Port()-1), doctor.OK, "free (balancers.b.listen)")
	m.Unseen = errors.New("permission denied: become root")
	found(t, m, "ports", "all", doctor.Warn, "the daemon may have them")
	found(t, m, "daemon", "daemon", doctor.Warn, "cannot be asked: permission denied: become root")
	m.Unseen, m.Serving = nil, true
	found(t, m, "ports", "all", doctor.OK, "the daemon has them")
}

// TestDHCPPort: a program that has port 67 or 4011 of the interface is in the way, and one that has it of another interface is not.
func TestDHCPPort(t *testing.T) {
	netns.Need(t, "root", "ip")
	seg := netns.NewSegment(t, "10.132.1.1/24")
	m := machine(t, seg.Bridge, "", "")
	found(t, m, "ports", "udp 0.0.0.0%"+seg.Bridge+":67", doctor.OK, "free (DHCP)")
	relayed := machine(t, seg.Bridge, "}\n  far: {subnet: 10.9.0.0/24", "")
	hold := func(iface string, port int) func() {
		config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
			_ = c.Control(func(fd uintptr) { err = unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, iface) })
			return err
		}}
		c, err := config.ListenPacket(t.Context(), "udp4", fmt.Sprintf("0.0.0.0:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		return func() { _ = c.Close() }
	}
	release := hold("lo", 67)
	found(t, m, "ports", "udp 0.0.0.0%"+seg.Bridge+":67", doctor.OK, "free (DHCP)")
	for _, finding := range doctor.Run(t.Context(), relayed) {
		if finding.Check == "ports" && finding.Level != doctor.OK {
			t.Errorf("beside a network behind a relay: %+v", finding)
		}
	}
	release()
	for _, port := range []int{67, 4011} {
		release := hold(seg.Bridge, port)
		found(t, m, "ports", fmt.Sprintf("udp 0.0.0.0%%%s:%d", seg.Bridge, port), doctor.Fail, fmt.Sprintf("(pid %d) stop that program, or change the network to dhcp: off", os.Getpid()))
		release()
	}
}

// TestState: a disk that can be written, one with few inodes, and a read-only file system.
func TestState(t *testing.T) {
	netns.Need(t, "root")
	m := machine(t, "lo", ", dhcp: off", "")
	dir := m.Lab.Appliance.State
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	found(t, m, "state", dir, doctor.OK, "MiB free")
	found(t, m, "state", dir, doctor.OK, "a synced write took")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("doctor left %v in the state folder, %v", entries, err)
	}
	mount := func(flags uintptr, options string) {
		if err := unix.Mount("none", dir, "tmpfs", flags, options); err != nil {
			netns.Absent(t, "mount", err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, 0) })
	}
	mount(0, "size=2g,nr_inodes=500")
	found(t, m, "state", dir, doctor.Fail, "inodes free, fewer than 65536 KiB or 1000: too little for the daemon's state free some space")
	mount(unix.MS_RDONLY, "")
	found(t, m, "state", dir, doctor.Fail, "its file system is read-only: reservations and renewals are answered, new clients get no address, and no install begins "+
		diskhealth.Advice(dir, unix.EROFS))
}

// TestFiles: a file that is missing, and one that the daemon's user may not read.
func TestFiles(t *testing.T) {
	netns.Need(t, "root")
	m := machine(t, "lo", ", dhcp: off", "profiles: {rescue: {kernel: k, initrd: [i]}}\n")
	files := m.Lab.Appliance.Files
	found(t, m, "files", filepath.Join(files, "k"), doctor.Warn, "")
	if err := os.MkdirAll(files, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"k", "i"} {
		if err := os.WriteFile(filepath.Join(files, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m.Warnings, m.Unread = nil, []doctor.Finding{{Subject: "/srv/k", Level: doctor.Fail, Text: "permission denied", Fix: "run chmod o+r /srv/k"}}
	found(t, m, "files", "/srv/k", doctor.Fail, "permission denied run chmod")
	m.Unread = nil
	found(t, m, "files", files, doctor.OK, "can be read")
}

// TestMissingFile: a file that several profiles need has one line, with their keys and how to get it.
func TestMissingFile(t *testing.T) {
	t.Parallel()
	m := machine(t, "lo", ", dhcp: off", "profiles: {a: {kernel: k}, b: {kernel: k}, c: {kernel: other}}\nimages: {k: {url: \"http://mirror.example/k\", sha256: \""+strings.Repeat("ab", 32)+"\"}}\n")
	file := filepath.Join(m.Lab.Appliance.Files, "k")
	all := slices.DeleteFunc(doctor.Run(t.Context(), m), func(f doctor.Finding) bool { return f.Subject != file })
	want := []doctor.Finding{{Check: "files", Subject: file, Level: doctor.Warn, Text: "file not found; bootlab images pull fetches it (profiles.a.kernel, profiles.b.kernel)"}}
	if !slices.Equal(all, want) {
		t.Errorf("%+v, want %+v", all, want)
	}
}

// TestUpstreams: a server that answers, and one that does not.
func TestUpstreams(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			b[2] |= 0x80
			_, _ = server.WriteTo(b[:n], from)
		}
	}()
	closed, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.LocalAddr().String()
	closed.Close()
	m := machine(t, "lo", ", dhcp: off", "")
	m.Lab.DNS.Forward = []lab.NameServer{{Addr: netip.MustParseAddrPort(server.LocalAddr().String())}, {Addr: netip.MustParseAddrPort(nobody)}}
	found(t, m, "dns", server.LocalAddr().String(), doctor.OK, "answers")
	found(t, m, "dns", nobody, doctor.Fail, "does not answer")
}

// TestResolvConf: the servers that a file names are asked as those of the lab file. One without a server that can be asked is an error.
func TestResolvConf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"nameserver 127.77.77.77\n":                    {"127.77.77.77:53 (%s)", "does not answer"},
		"search example.org\n":                         {"%s", "names no server: clients get REFUSED"},
		"nameserver 10.99.0.1\nnameserver 127.0.0.1\n": {"%s", "names only this appliance itself: clients get REFUSED"},
	} {
		file := filepath.Join(t.TempDir(), "resolv.conf")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		m := machine(t, "lo", ", dhcp: off", "")
		m.Lab.DNS.Forward = []lab.NameServer{{File: file}}
		m.Lab.Appliance.DNS = lab.Listen{netip.MustParseAddrPort("10.99.0.1:53"), netip.MustParseAddrPort("127.0.0.1:53")}
		found(t, m, "dns", strings.Replace(want[0], "%s", file, 1), doctor.Fail, want[1])
	}
}

// TestFirewall: a chain that drops by policy, and a relayed network behind a strict reverse path filter.
func TestFirewall(t *testing.T) {
	netns.Need(t, "root", "nft")
	m := machine(t, "lo", "", "  far: {subnet: 10.132.2.0/24}\n")
	found(t, m, "firewall", "nftables", doctor.OK, "no chain drops")
	netns.Run(t, "nft", "add table inet doctor; add chain inet doctor in { type filter hook input priority 0; policy drop; }")
	t.Cleanup(func() { _ = exec.Command("nft", "delete", "table", "inet", "doctor").Run() })
	found(t, m, "firewall", "nftables", doctor.Warn, "udp 67")
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/lo/rp_filter", []byte("1"), 0o644); err != nil {
		netns.Absent(t, "rp_filter", err)
	}
	found(t, m, "reverse path", "lo", doctor.Warn, "rp_filter=2")
}

// TestElsewhere: beside a daemon in another network namespace nothing is said of the interfaces and ports here.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	m := machine(t, "none0", "", "")
	m.Serving, m.Elsewhere = true, true
	found(t, m, "network", "network namespace", doctor.Warn, "the daemon runs in another one")
	all := doctor.Run(t.Context(), m)
	if doctor.Worst(all) != doctor.Warn {
		t.Errorf("findings about another namespace: %+v", all)
	}
	for _, f := range all {
		if slices.Contains([]string{"ports", "interfaces", "mtu", "dhcp", "reverse path", "firewall", "dns", "hypervisors"}, f.Check) {
			t.Errorf("a check of this namespace: %+v", f)
		}
	}
}

// TestHypervisors: one that cannot be reached, and the driver for tests.
func TestHypervisors(t *testing.T) {
	m := machine(t, "lo", ", dhcp: off", "hypervisors: {far: {uri: \"qemu+tcp://127.0.0.1:1/system\"}, near: {uri: \"test:///default\"}}\n")
	found(t, m, "hypervisors", "far", doctor.Fail, "cannot be reached")
	found(t, m, "hypervisors", "near", doctor.OK, "")
}

// TestOperationsPage: the example of docs/operations.md is what doctor prints of a missing interface.
func TestOperationsPage(t *testing.T) {
	netns.Need(t, "root")
	page, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	all := doctor.Run(t.Context(), machine(t, "br0", "", ""))
	i := slices.IndexFunc(all, func(f doctor.Finding) bool { return f.Check == "interfaces" })
	if i < 0 {
		t.Fatalf("no finding of interfaces in %+v", all)
	}
	for _, want := range []string{" br0           " + all[i].Text + "\n", "-> " + all[i].Fix + "\n"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("docs/operations.md lacks %q", want)
		}
	}
}
