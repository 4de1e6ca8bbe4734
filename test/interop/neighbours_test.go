package interop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
)

// A neighbourhood is a segment with the appliance, a host that is being installed, and a neighbour that wants its document.
type neighbourhood struct {
	*daemon
	t         *testing.T
	host, spy *machine
	raw       int // a socket of the neighbour that sends with any address
	frames    *packet.Socket
	link      int          // of frames
	deaf      *net.UDPConn // of the host, at forgedPort; nil: none yet

	config, done string // the paths of the host's boot, as if they had leaked
	script       string
}

const (
	hostMAC, spyMAC = "52:54:00:00:00:10", "52:54:00:00:ff:66"
	hostHyphens     = "52-54-00-00-00-10"
)

func (n *neighbourhood) hostAddr() string { return n.net + ".10" }
func (n *neighbourhood) spyAddr() string  { return n.net + ".66" }

func newNeighbourhood(t *testing.T, subnet string) *neighbourhood {
	t.Helper()
	netns.Need(t, "root", "ip", "curl", "udhcpc")
	l := newLab(t, subnet)
	if err := errors.Join(os.Symlink("../ignition/worker.ign", filepath.Join(l.dir, "files/public/link.ign")),
		os.Link(filepath.Join(l.dir, "files/ignition/worker.ign"), filepath.Join(l.dir, "files/public/hard"))); err != nil {
		t.Fatal(err)
	}
	d := start(t, l)
	n := &neighbourhood{daemon: d, t: t, host: d.machine(t, hostMAC), spy: d.machine(t, spyMAC, l.net+".66")}
	if addr := n.host.lease(t); addr != n.hostAddr() {
		t.Fatalf("w0 got %q", addr)
	}
	err := n.spy.inside(func() (err error) {
		if n.raw, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW); err != nil {
			return err
		}
		ifi, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		n.link = ifi.Index
		n.frames, err = packet.OpenOn(ifi.Index, unix.ETH_P_ARP, nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(n.raw); n.frames.Close() })
	n.boot()
	return n
}

// boot lets the host fetch its script.
func (n *neighbourhood) boot() {
	n.t.Helper()
	n.reachable()
	config, done, err := n.host.script(n.hostAddr(), hostHyphens)
	if err != nil {
		n.t.Fatal(err)
	}
	n.config, n.done, n.script = config, done, "boot/"+hostHyphens+"/boot.ipxe"
}

// install lets the host read its document and report that it is done.
func (n *neighbourhood) install() {
	n.t.Helper()
	n.reachable()
	if status, body := n.host.get(n.hostAddr(), n.config); status != http.StatusOK || !strings.Contains(body, "treasure-of-w0") {
		n.t.Fatalf("w0 does not get its document: %d %s\n%s", status, body, n.timeline())
	}
	if status, _ := n.host.get(n.hostAddr(), n.done); status != http.StatusOK {
		n.t.Fatalf("done: status %d\n%s", status, n.timeline())
	}
}

func (n *neighbourhood) timeline() string {
	n.t.Helper()
	out, err := n.bootlab("timeline", "w0", "--all")
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// reachable ends what a neighbour did to the appliance's ARP cache: that breaks any connection, whatever serves it.
func (n *neighbourhood) reachable() {
	n.t.Helper()
	netns.Run(n.t, "ip", "neigh", "replace", n.hostAddr(), "lladdr", hostMAC, "dev", n.seg.Bridge, "nud", "reachable")
}

// off switches the host off, until the function that it returns is called.
func (n *neighbourhood) off() (on func()) {
	n.t.Helper()
	netns.Run(n.t, "ip", "-n", n.host.Name, "link", "set", "eth0", "down")
	return func() {
		n.t.Helper()
		netns.Run(n.t, "ip", "-n", n.host.Name, "link", "set", "eth0", "up")
		n.host.AwaitUp(n.t, "eth0")
	}
}

// take gives the neighbour the host's address, until the function that it returns is called.
func (n *neighbourhood) take() (giveBack func()) {
	n.t.Helper()
	netns.Run(n.t, "ip", "-n", n.spy.Name, "addr", "add", n.hostAddr()+"/24", "dev", "eth0")
	return func() {
		n.t.Helper()
		netns.Run(n.t, "ip", "-n", n.spy.Name, "addr", "del", n.hostAddr()+"/24", "dev", "eth0")
	}
}

// announce sends gratuitous ARP: the host's address is the neighbour's.
func (n *neighbourhood) announce() {
	n.t.Helper()
	addr, mac := netip.MustParseAddr(n.hostAddr()), must(lab.ParseMAC(spyMAC))
	frame := arp.Request(mac, addr, arp.Broadcast, addr)
	if err := n.frames.Send(n.link, frame[:]); err != nil {
		n.t.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// http sends a request by the neighbour from an address and returns the whole answer, empty where there is none.
func (n *neighbourhood) http(from, method, path string, headers ...string) string {
	var conn net.Conn
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 2 * time.Second}
	if n.spy.inside(func() (err error) { conn, err = dialer.Dial("tcp4", n.addr+":8080"); return err }) != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	text := method + " /" + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + strings.Join(append(headers, ""), "\r\n")
	if method == http.MethodPost {
		const body = `{"network_interfaces": [{"mac": "` + hostMAC + `"}]}`
		text += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	} else {
		text += "\r\n"
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return ""
	}
	b, _ := io.ReadAll(conn)
	return string(b)
}

// rrq is a TFTP read request.
func rrq(name string, options ...string) []byte {
	return []byte("\x00\x01" + strings.Join(append([]string{name, "octet"}, options...), "\x00") + "\x00")
}

// tftp fetches a file by the neighbour from an address and returns what came.
func (n *neighbourhood) tftp(from, name string) string { return n.tftpBy(n.spy, from, name) }

func (n *neighbourhood) tftpBy(m *machine, from, name string) string {
	n.t.Helper()
	var conn *net.UDPConn
	err := m.inside(func() (err error) {
		conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(from)})
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	defer conn.Close()
	var out strings.Builder
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	to, b := netip.MustParseAddrPort(n.addr+":69"), make([]byte, 2048)
	for packet := rrq(name); ; {
		if _, err := conn.WriteToUDPAddrPort(packet, to); err != nil {
			return out.String()
		}
		size, at, err := conn.ReadFromUDPAddrPort(b)
		if err != nil || size < 4 || b[1] != 3 {
			return out.String()
		}
		out.Write(b[4:size])
		packet, to = []byte{0, 4, b[2], b[3]}, at
		if size < 516 {
			_, _ = conn.WriteToUDPAddrPort(packet, to)
			return out.String()
		}
	}
}

// forge sends a UDP packet in the host's name.
func (n *neighbourhood) forge(fromPort, toPort uint16, payload []byte) {
	n.t.Helper()
	src, dst := netip.MustParseAddr(n.hostAddr()).As4(), netip.MustParseAddr(n.addr).As4()
	p := make([]byte, 28, 28+len(payload))
	p[0], p[8], p[9] = 0x45, 64, unix.IPPROTO_UDP // the kernel fills in length and checksum
	copy(p[12:], src[:])
	copy(p[16:], dst[:])
	binary.BigEndian.PutUint16(p[20:], fromPort)
	binary.BigEndian.PutUint16(p[22:], toPort)
	binary.BigEndian.PutUint16(p[24:], uint16(8+len(payload)))
	if err := unix.Sendto(n.raw, append(p, payload...), 0, &unix.SockaddrInet4{Addr: dst}); err != nil && !errors.Is(err, unix.ENOBUFS) {
		n.t.Fatal(err)
	}
}

// forgedPort is where a request comes from that is acknowledged at every port.
const forgedPort = 20002

// listenAtForgedPort keeps the host from refusing, by ICMP, what is sent to that port, as a neighbour can do that uses up its rate limit.
func (n *neighbourhood) listenAtForgedPort() {
	n.t.Helper()
	if n.deaf != nil {
		return
	}
	err := n.host.inside(func() (err error) {
		n.deaf, err = net.ListenUDP("udp4", &net.UDPAddr{Port: forgedPort})
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = n.deaf.Close() })
}

// acknowledgeEverywhere acknowledges a script at each port at which its transfer may wait: as one block, then as two.
func (n *neighbourhood) acknowledgeEverywhere() {
	n.t.Helper()
	for block := byte(1); block <= 2; block++ {
		for port := 32768; port < 61000; port++ {
			n.forge(forgedPort, uint16(port), []byte{0, 4, 0, block})
		}
	}
}

// A phase is a situation, and what the neighbour tries in it.
type phase struct {
	setUp func() (tearDown func())
	tries []try
}

// A try is a way to another machine's document. It returns what the neighbour got.
type try struct {
	name string
	do   func() string
}

// phases are all ways, in all situations.
func (n *neighbourhood) phases() []phase {
	own, host := n.spyAddr(), n.hostAddr()
	guess := "config/" + hostHyphens + "/" + strings.Repeat("A", 26) + "/worker.ign"
	port := func() uint16 { return uint16(1024 + rand.IntN(60000)) }
	get := func(from, path string, headers ...string) string { return n.http(from, "GET", path, headers...) }
	announced := func(do func() string) func() string {
		return func() string { n.announce(); return do() }
	}
	return []phase{
		{func() func() { return func() {} }, []try{
			{"script, from its own address", func() string { return get(own, n.script) }},
			{"script by TFTP", func() string { return n.tftp(own, n.script) }},
			{"document with the token", func() string { return get(own, n.config) }},
			{"document with a guess", func() string { return get(own, guess) }},
			{"document with forged headers", func() string {
				return get(own, n.config, "X-Forwarded-For: "+host, "Forwarded: for="+host, "X-Real-IP: "+host)
			}},
			{"document by TFTP", func() string { return n.tftp(own, n.config) + n.tftp(own, "ignition/worker.ign") }},
			{"done with the token", func() string { return get(own, n.done) }},
			{"answer for the host's MAC", func() string { return n.http(own, "POST", "answer") }},
			{"the file itself", func() string {
				return get(own, "files/ignition/worker.ign") + get(own, "files/public/../ignition/worker.ign")
			}},
			{"links to the file", func() string {
				return get(own, "files/public/hard") + get(own, "files/public/link.ign") + n.tftp(own, "public/hard")
			}},
			{"forged requests by TFTP", func() string {
				for range 6 {
					n.forge(port(), 69, rrq(n.script))
				}
				return ""
			}},
			{"forged requests with options", func() string {
				n.forge(port(), 69, rrq("boot/"+hostHyphens+"/grub.cfg", "blksize", "1024"))
				n.forge(port(), 69, rrq("autoexec.ipxe", "tsize", "0"))
				return ""
			}},
			{"a forged request, acknowledged at every port", func() string {
				n.listenAtForgedPort()
				n.forge(forgedPort, 69, rrq(n.script))
				n.acknowledgeEverywhere()
				return ""
			}},
			{"forged requests with forged acknowledgements", func() string {
				from := port()
				n.forge(from, 69, rrq(n.script))
				for range 50 {
					n.forge(from, port(), []byte{0, 4, 0, 1})
				}
				return ""
			}},
		}},
		{n.whileOff, []try{
			{"script, while the host is off", func() string { return get(host, n.script) }},
			{"document, while the host is off", func() string { return get(host, n.config) }},
			{"done, while the host is off", func() string { return get(host, n.done) }},
		}},
		{n.take, []try{
			{"script, with gratuitous ARP", announced(func() string { return get(host, n.script) })},
			{"script by TFTP, with gratuitous ARP", announced(func() string {
				script := n.tftp(host, n.script)
				found := configPath.FindString(script)
				if found == "" {
					return script
				}
				// It joined the transfer of a forged request, whose port it has by chance. The token alone reads nothing.
				n.announce()
				return get(host, found)
			})},
			{"document, with gratuitous ARP", announced(func() string { return get(host, n.config) })},
			{"a part of it, with gratuitous ARP", announced(func() string {
				return get(host, n.config, "Range: bytes=0-10") + n.http(host, "HEAD", n.config)
			})},
		}},
	}
}

// whileOff switches the host off and gives its address to the neighbour.
func (n *neighbourhood) whileOff() (tearDown func()) {
	n.t.Helper()
	on, giveBack := n.off(), n.take()
	netns.Run(n.t, "ip", "neigh", "flush", "to", n.hostAddr(), "dev", n.seg.Bridge)
	return func() { n.t.Helper(); giveBack(); on() }
}

// undisturbed checks that the host's boot is as it was, and that its token still reads.
func (n *neighbourhood) undisturbed(after string) {
	n.t.Helper()
	n.until("w0 is answered", func() bool {
		n.reachable()
		status, _ := n.host.get(n.hostAddr(), n.config, "-I")
		if status != http.StatusOK && status != http.StatusServiceUnavailable { // late ARP packets of the neighbour
			n.t.Fatalf("after %s: the token of w0 gets status %d\n%s", after, status, n.timeline())
		}
		return status == http.StatusOK
	})
	hosts, err := n.client.Hosts(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	for _, h := range hosts {
		if h.Name == "w0" && string(h.Install) != "booting" {
			n.t.Fatalf("after %s: w0 is %s\n%s", after, h.Install, n.timeline())
		}
	}
}

// gotNothing checks what a neighbour got by a try.
func (n *neighbourhood) gotNothing(name, what string) {
	n.t.Helper()
	for _, secret := range []string{"treasure", "ignition", "config/", strings.Split(n.config, "/")[2]} {
		if strings.Contains(what, secret) {
			n.t.Fatalf("%s: the neighbour got %q", name, what)
		}
	}
}

// TestNeighboursGetNothing lets a neighbour try to get the document of a host, and to disturb its install, in 21 ways: 0 documents, 0 installs
// disturbed. With BOOTLAB_LONG=1 it tries 10,000 times.
func TestNeighboursGetNothing(t *testing.T) {
	t.Parallel()
	n := newNeighbourhood(t, "10.93.17")
	rounds := 2
	if os.Getenv("BOOTLAB_LONG") != "" {
		rounds = 500
	}
	kinds, made := 0, 0
	for round := range rounds {
		kinds = 0
		for _, p := range n.phases() {
			tearDown := p.setUp()
			for _, try := range p.tries {
				kinds, made = kinds+1, made+1
				n.gotNothing(try.name, try.do())
			}
			tearDown()
			if round < 2 {
				n.undisturbed(p.tries[0].name + " and the like")
			}
		}
		n.undisturbed("a round")
		if round%25 != rounds%25 && round != 0 {
			continue
		}
		n.install()
		if out, err := n.bootlab("install", "w0", "--yes"); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		n.boot()
	}
	n.install()
	if kinds != 21 {
		t.Errorf("%d kinds of tries, want 21", kinds)
	}
	n.shows("address conflict", "timeline", "w0", "--all")
	n.shows(spyMAC, "timeline", "w0", "--all")
	conflicts := n.metric(`bootlab_events_total{kind="address_conflict"}`)
	if want := 6 * rounds; int(conflicts) < want {
		t.Errorf("%v address conflicts are counted, want at least %d", conflicts, want)
	}
	n.logged("address_conflict")
	t.Logf("0 documents in %d tries of %d kinds, 0 installs disturbed; %v address conflicts", made, kinds, conflicts)
}

// TestForgedScriptRequests: requests for a script by TFTP that a neighbour forges, one or a flood, neither start nor fail a boot of the host,
// while it installs or is off, and leave its own events on its timeline.
func TestForgedScriptRequests(t *testing.T) {
	t.Parallel()
	n := newNeighbourhood(t, "10.93.18")
	if status, _ := n.host.get(n.hostAddr(), n.config); status != http.StatusOK {
		t.Fatalf("the document: status %d", status)
	}
	own := func() []string { events, _ := n.events(); return events }
	var before []string
	n.until("the install is on the timeline", func() bool { before = own(); return strings.HasSuffix(strings.Join(before, " "), "install booting") })
	failed := func() float64 { return n.metric(`bootlab_events_total{kind="tftp_failed"}`) }
	refused := func() float64 { return n.metric(`bootlab_events_total{kind="script_refused"}`) }
	unchanged := func(after string) {
		t.Helper()
		if diff := cmp.Diff(before, own()); diff != "" {
			t.Errorf("after %s, the host's own boots (-want +got):\n%s\n%s", after, diff, n.timeline())
		}
	}
	n.forge(20000, 69, rrq(n.script))
	n.until("a forged request has failed", func() bool { return failed() >= 1 })
	unchanged("one request")
	sent := uint16(0)
	n.until("a flood of them has failed", func() bool {
		for range 2000 {
			n.forge(2000+sent%60000, 69, rrq(n.script))
			sent++
		}
		return failed() >= 3000
	})
	unchanged("a flood")
	n.reachable()
	if status, _ := n.host.get(n.hostAddr(), n.done); status != http.StatusOK {
		t.Fatalf("done: status %d\n%s", status, n.timeline())
	}
	n.until("the install is done", func() bool { before = own(); return strings.HasSuffix(strings.Join(before, " "), "install done") })
	defer n.off()()
	netns.Run(t, "ip", "neigh", "flush", "to", n.hostAddr(), "dev", n.seg.Bridge)
	n.until("requests in the name of a host that is off are refused", func() bool { n.forge(20001, 69, rrq(n.script)); return refused() >= 2 })
	unchanged("requests while it is off")
	if strings.Contains(n.log.String(), "context canceled") {
		t.Error("the log has clients that went away for errors of the store")
	}
}

// TestBlindAcknowledgement: a request for a script by TFTP that a neighbour forges with its own MAC, and acknowledges at every port, begins no
// boot of a host that installs. The machine's own request does, by TFTP too.
func TestBlindAcknowledgement(t *testing.T) {
	t.Parallel()
	n := newNeighbourhood(t, "10.93.21")
	if status, _ := n.host.get(n.hostAddr(), n.config); status != http.StatusOK {
		t.Fatalf("the document: status %d", status)
	}
	n.shows("installing", "hosts")
	var before []string
	n.until("the install is on the timeline", func() bool {
		before, _ = n.events()
		return strings.HasSuffix(strings.Join(before, " "), "install booting")
	})
	n.listenAtForgedPort()
	served := func() float64 { return n.metric(`bootlab_events_total{kind="tftp_served"}`) }
	n.until("a transfer is acknowledged", func() bool {
		n.forge(forgedPort, 69, rrq(n.script))
		n.acknowledgeEverywhere()
		return served() > 0
	})
	n.shows("installing", "hosts")
	if after, _ := n.events(); !slices.Equal(before, after) {
		t.Errorf("the host's own boots (-want +got):\n%s\n%s", cmp.Diff(before, after), n.timeline())
	}
	n.reachable()
	if status, _ := n.host.get(n.hostAddr(), n.done); status != http.StatusOK {
		t.Fatalf("done: status %d\n%s", status, n.timeline())
	}
	if out, err := n.bootlab("install", "w0", "--yes"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	n.reachable()
	if script := n.tftpBy(n.host, n.hostAddr(), n.script); configPath.FindString(script) == "" {
		t.Fatalf("the machine's own request gets %q\n%s", script, n.timeline())
	}
	n.until("its own request begins a boot", func() bool {
		out, err := n.bootlab("hosts")
		return err == nil && strings.Contains(out, "booting")
	})
}

// TestNamedInARP: a neighbour that sends with its own MAC, and names the MAC of a host that is off in its ARP packets, gets neither its script
// nor a boot.
func TestNamedInARP(t *testing.T) {
	t.Parallel()
	n := newNeighbourhood(t, "10.93.22")
	before, _ := n.events()
	defer n.off()()
	netns.Run(t, "ip", "neigh", "flush", "to", n.hostAddr(), "dev", n.seg.Bridge)
	// What is sent to the host's MAC arrives at victim0; what is sent leaves by eth0.
	gateway, err := net.InterfaceByName(n.seg.Bridge)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.eth0.rp_filter=0 net.ipv4.conf.all.arp_ignore=8",
		"ip link add victim0 link eth0 address " + hostMAC + " type macvlan mode bridge",
		"sysctl -qw net.ipv4.conf.victim0.rp_filter=0",
		"ip link set victim0 arp off up",
		"ip addr add " + n.hostAddr() + "/32 dev victim0",
		"ip neigh replace " + n.addr + " lladdr " + gateway.HardwareAddr.String() + " dev eth0 nud permanent",
	} {
		n.spy.Run(t, "sh", "-c", line)
	}
	addr, victim := netip.MustParseAddr(n.hostAddr()), must(lab.ParseMAC(hostMAC))
	frame := arp.Request(victim, addr, arp.Broadcast, netip.MustParseAddr(n.addr))
	spy := must(lab.ParseMAC(spyMAC))
	copy(frame[6:], spy[:]) // the source of the frame
	answer := ""
	n.until("the appliance answers", func() bool {
		if err := n.frames.Send(n.link, frame[:]); err != nil {
			t.Fatal(err)
		}
		answer = n.http(n.hostAddr(), "GET", n.script)
		return answer != ""
	})
	if !strings.HasPrefix(answer, "HTTP/1.1 503 ") {
		t.Errorf("the script: %q", answer)
	}
	n.gotNothing("the script", answer)
	if after, _ := n.events(); !slices.Equal(before, after) {
		t.Errorf("the host's own boots (-want +got):\n%s\n%s", cmp.Diff(before, after), n.timeline())
	}
}

// events returns the kinds of the host's own events, with the stage and the outcome of each boot, and how many requests others made in its
// name.
func (n *neighbourhood) events() (own []string, claimed int) {
	n.t.Helper()
	boots, err := n.client.Boots(n.t.Context(), "w0")
	if err != nil {
		n.t.Fatal(err)
	}
	for _, b := range boots {
		for _, e := range b.Events {
			if !e.Claimed {
				own = append(own, e.Kind.String())
			}
		}
		own = append(own, fmt.Sprint(b.Stage, " ", b.Outcome))
		claimed += b.Claimed
	}
	return own, claimed
}

// TestForgedDHCP: DHCP messages that a neighbour forges with the host's MAC, while the host boots and while it installs, begin boots on its
// timeline, and change neither its state, nor its address, nor its token, nor what it reads.
func TestForgedDHCP(t *testing.T) {
	t.Parallel()
	n := newNeighbourhood(t, "10.93.20")
	w, victim, self := n.spy.wire(t), mac(hostMAC), net.ParseIP(n.net+".1")
	own := net.ParseIP(n.hostAddr())
	pxe := dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient:Arch:00007:UNDI:003016"))
	ipxe := dhcpv4.WithOption(dhcpv4.OptUserClass("iPXE"))
	asking := func(addr net.IP) dhcpv4.Modifier { return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(addr)) }
	server := dhcpv4.WithOption(dhcpv4.OptServerIdentifier(self))
	counted := func() (all float64) {
		for _, kind := range []string{"discover", "request", "decline", "release", "inform"} {
			all += n.metric(`bootlab_dhcpd_packets_received_total{type="` + kind + `"}`)
		}
		return all
	}
	forge := func() {
		t.Helper()
		before, sent := counted(), 0
		for range 3 {
			for _, p := range []*dhcpv4.DHCPv4{
				discover(victim, pxe), discover(victim, ipxe), discover(victim),
				message(dhcpv4.MessageTypeRequest, victim, asking(own), server, pxe), message(dhcpv4.MessageTypeRequest, victim, asking(own), server),
				message(dhcpv4.MessageTypeRequest, victim, asking(net.ParseIP(n.net+".77"))),
				message(dhcpv4.MessageTypeDecline, victim, asking(own), server),
				message(dhcpv4.MessageTypeRelease, victim, dhcpv4.WithClientIP(own), server),
				message(dhcpv4.MessageTypeInform, victim, dhcpv4.WithClientIP(own)),
			} {
				w.sendBytes(mac(spyMAC), newClient, toServers, p.ToBytes())
				sent++
			}
		}
		n.until("all forged messages are received", func() bool { return counted() >= before+float64(sent) })
	}
	boots := func() int {
		all, err := n.client.Boots(t.Context(), "w0")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	before := boots()
	forge()
	n.undisturbed("forged DHCP messages")
	t.Logf("%d boots before, %d after the forged messages", before, boots())
	n.reachable()
	if status, body := n.host.get(n.hostAddr(), n.config); status != http.StatusOK || !strings.Contains(body, "treasure-of-w0") {
		t.Fatalf("the document: status %d %s\n%s", status, body, n.timeline())
	}
	forge()
	n.shows("installing", "hosts")
	n.reachable()
	if status, _ := n.host.get(n.hostAddr(), n.done); status != http.StatusOK {
		t.Fatalf("done: status %d\n%s", status, n.timeline())
	}
	if addr := n.host.lease(t); addr != n.hostAddr() {
		t.Errorf("the host gets %q then", addr)
	}
	t.Logf("%d boots at the end\n%s", boots(), n.timeline())
}

// TestForgedFileRequests: requests by TFTP for files that a neighbour forges, and for a script that cannot be rendered, change no boot of a
// host that installs or runs its system.
func TestForgedFileRequests(t *testing.T) {
	t.Parallel()
	n := newNeighbourhood(t, "10.93.19")
	forgeAll := func(names ...string) {
		t.Helper()
		before, claimed := n.events()
		for i, name := range names {
			n.forge(uint16(20000+i), 69, rrq(name))
		}
		n.until("all forged requests are claimed", func() bool { _, now := n.events(); return now >= claimed+len(names) })
		if after, _ := n.events(); !slices.Equal(before, after) {
			t.Errorf("the host's own boots (-want +got):\n%s\n%s", cmp.Diff(before, after), n.timeline())
		}
	}
	forged := []string{"undionly.kpxe", "boot/" + hostHyphens + "/snponly.efi", "public/motd", "nosuch", "ignition/worker.ign"}
	if status, _ := n.host.get(n.hostAddr(), n.config); status != http.StatusOK {
		t.Fatalf("the document: status %d", status)
	}
	n.until("the install is on the timeline", func() bool { own, _ := n.events(); return strings.HasSuffix(strings.Join(own, " "), "install booting") })
	forgeAll(forged...)
	n.reachable()
	if status, _ := n.host.get(n.hostAddr(), n.done); status != http.StatusOK {
		t.Fatalf("done: status %d\n%s", status, n.timeline())
	}
	n.until("the install is done", func() bool { own, _ := n.events(); return strings.HasSuffix(strings.Join(own, " "), "install done") })
	forgeAll(forged...)
	if _, err := n.bootlab("install", "w0", "--yes"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.dir, "files/ignition/worker.ign"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	n.reachable()
	forgeAll(n.script)
}
