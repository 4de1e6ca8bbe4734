package interop

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/test/support/netns"
)

// A clientKind is a kind of DHCP client.
type clientKind struct {
	name string
	mods []dhcpv4.Modifier
	from string // relayed from this address; empty: not
}

const (
	wantsROM     = "\x01\x02\x03\x04\x05\x06\x0c\x0d\x0f\x11\x12\x16\x17\x1c\x28\x29\x2a\x2b\x32\x33\x36\x3a\x3b\x3c\x42\x43\x61\x80\x81\x82\x83\x84\x85\x86\x87"
	wantsIPXE    = "\x01\x03\x06\x07\x0c\x0f\x11\x1a\x2b\x3c\x42\x43\x77\x80\x81\x82\x83\x84\x85\x86\x87\xaf\xcb"
	wantsWindows = "\x01\x03\x06\x0f\x1f\x21\x2b\x2c\x2e\x2f\x77\x79\xf9\xfc"
	wantsNM      = "\x01\x02\x06\x0c\x0f\x1a\x1c\x79\x03\x21\x28\x29\x2a\x77\xf9\xfc\x11"
)

// clientKinds are clients with the options that real ones were captured to send.
func clientKinds(card net.HardwareAddr, subnet string) []clientKind {
	uuid := with(97, "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10")
	undi, own := with(94, "\x01\x03\x00"), with(61, "\x01"+string(card))
	size := func(n uint16) dhcpv4.Modifier { return with(57, string(binary.BigEndian.AppendUint16(nil, n))) }
	var all []byte
	for code := 1; code < 255; code++ {
		all = append(all, byte(code))
	}
	return []clientKind{
		{name: "PXE BIOS", mods: []dhcpv4.Modifier{with(60, "PXEClient:Arch:00000:UNDI:002001"), with(93, "\x00\x00"), undi, uuid, size(1260), with(55, wantsROM), dhcpv4.WithBroadcast(true)}},
		{name: "PXE UEFI x64", mods: []dhcpv4.Modifier{with(60, "PXEClient:Arch:00007:UNDI:003000"), with(93, "\x00\x07"), undi, uuid, size(1472), with(55, wantsROM), dhcpv4.WithBroadcast(true)}},
		{name: "HTTP UEFI x64", mods: []dhcpv4.Modifier{with(60, "HTTPClient:Arch:00016:UNDI:003001"), with(93, "\x00\x10"), undi, uuid, size(1472), with(55, wantsROM), dhcpv4.WithBroadcast(true)}},
		{name: "iPXE", mods: []dhcpv4.Modifier{with(60, "PXEClient:Arch:00007:UNDI:003010"), with(93, "\x00\x07"), undi, uuid, own, size(1472), with(77, "iPXE"), with(175, "\xb1\x05\x01\x1a\xf4\x10\x00\x13\x01\x01"), with(55, wantsIPXE)}},
		{name: "udhcpc", mods: []dhcpv4.Modifier{with(60, "udhcp 1.35.0"), own, size(576), with(55, "\x01\x03\x06\x0c\x0f\x1c\x2a")}},
		{name: "dhclient", mods: []dhcpv4.Modifier{with(12, "w0"), with(55, "\x01\x1c\x02\x03\x0f\x06\x77\x0c\x2c\x2f\x1a\x79\x2a")}},
		{name: "networkd", mods: []dhcpv4.Modifier{with(61, "\xff\x33\x22\x11\x00\x00\x02\x00\x00\xab\x11\x01\x02\x03\x04\x05\x06\x07\x08"), with(12, "w0"), size(1472), with(55, "\x01\x03\x06\x0c\x0f\x21\x2a\x78\x79")}},
		{name: "Windows", mods: []dhcpv4.Modifier{with(60, "MSFT 5.0"), own, with(12, "w0"), with(81, "\x00\x00\x00w0"), with(55, wantsWindows)}},
		{name: "Anaconda", mods: []dhcpv4.Modifier{with(60, "anaconda-Linux"), own, size(576), with(55, wantsNM)}},
		{name: "relayed", from: subnet + ".2", mods: []dhcpv4.Modifier{agentInfo("\x01eth0/7", "\x02sw-7"), own, with(55, "\x01\x03\x06\x0f")}},
		{name: "PXE BIOS, relayed", from: subnet + ".2", mods: []dhcpv4.Modifier{with(60, "PXEClient:Arch:00000:UNDI:002001"), with(93, "\x00\x00"), undi, uuid, with(55, wantsROM), agentInfo("\x01eth0/7")}},
		{name: "small messages only", mods: []dhcpv4.Modifier{size(300), own, with(55, wantsNM)}},
		{name: "asks for everything", mods: []dhcpv4.Modifier{own, size(1472), with(55, string(all))}},
		{name: "asks for nothing", mods: []dhcpv4.Modifier{own}},
	}
}

// A side is one of the two servers, and a packet socket to it.
type side struct {
	w      *wire
	server netip.Addr
}

// talk takes a client through its messages and returns the answers by question. Questions without an answer are absent.
func (s side) talk(card net.HardwareAddr, addr string, a clientKind) map[string]captured {
	said := map[string]captured{}
	ask := func(name string, p *dhcpv4.DHCPv4, from netip.AddrPort) captured {
		to := toServers
		if a.from != "" && p.ClientIPAddr.IsUnspecified() {
			p.GatewayIPAddr = net.ParseIP(a.from).To4()
			from, to = netip.AddrPortFrom(netip.MustParseAddr(a.from), 67), netip.AddrPortFrom(s.server, 67)
		}
		h, ok := s.w.tryFrom(p, from, to, 15*time.Second) // the time that silence costs
		if ok {
			said[name] = h
		}
		return h
	}
	offer := ask("DISCOVER", discover(card, a.mods...), newClient)
	if offer.DHCPv4 == nil {
		return said
	}
	ask("SELECTING", selecting(offer, a.mods...), newClient)
	ask("INIT-REBOOT", rebooting(card, addr, a.mods...), newClient)
	bound := netip.AddrPortFrom(netip.MustParseAddr(addr), 68)
	ask("RENEWING", message(dhcpv4.MessageTypeRequest, card, append(a.mods, dhcpv4.WithClientIP(net.ParseIP(addr)))...), bound)
	ask("INFORM", message(dhcpv4.MessageTypeInform, card, append(a.mods, dhcpv4.WithClientIP(net.ParseIP(addr)))...), bound)
	ask("a wrong address", rebooting(card, "192.0.2.7", a.mods...), newClient)
	return said
}

// facts are the contents of an answer: fields by name, options by number.
func facts(h captured) map[string]string {
	if h.DHCPv4 == nil {
		return map[string]string{}
	}
	f := map[string]string{
		"to": h.To.String(), "eth": h.Eth.String(), "yiaddr": h.YourIPAddr.String(), "siaddr": h.ServerIPAddr.String(), "ciaddr": h.ClientIPAddr.String(),
		"giaddr": h.GatewayIPAddr.String(), "flags": fmt.Sprint(h.Flags), "sname": h.ServerHostName, "file": h.BootFileName,
	}
	for code, value := range h.Options {
		f[fmt.Sprint(code)] = readable(value)
	}
	return f
}

func readable(b []byte) string {
	if len(b) > 3 && !slices.ContainsFunc(b, func(c byte) bool { return c < ' ' || c > '~' }) {
		return string(b)
	}
	return fmt.Sprintf("% x", b)
}

// same compares two values. Times may differ by a second, and dnsmasq randomly subtracts up to a 16th of the lease from T1 and T2.
func same(name, ours, theirs string) bool {
	if name != "51" && name != "58" && name != "59" {
		return ours == theirs
	}
	seconds := func(s string) int {
		var b [4]byte
		_, _ = fmt.Sscanf(s, "%x %x %x %x", &b[0], &b[1], &b[2], &b[3])
		return int(binary.BigEndian.Uint32(b[:]))
	}
	a, b := seconds(ours), seconds(theirs)
	slack := 20
	if name != "51" {
		slack += 3600 / 16
	}
	return ours != "" && theirs != "" && max(a-b, b-a) <= slack
}

// A difference is a fact in which the two servers differ.
type difference struct{ client, question, fact, ours, theirs string }

func (d difference) kind() string {
	switch {
	case d.theirs == "":
		return "only we"
	case d.ours == "":
		return "only they"
	}
	return "both"
}

// differences returns all differences between two talks.
func differences(client string, ours, theirs map[string]captured) (all []difference) {
	questions := slices.Sorted(maps.Keys(ours))
	for q := range theirs {
		if _, ok := ours[q]; !ok {
			questions = append(questions, q)
		}
	}
	for _, q := range questions {
		a, okA := ours[q]
		b, okB := theirs[q]
		if okA != okB { // one is silent
			all = append(all, difference{client, q, "answer", strings.TrimPrefix(fmt.Sprint(a), "nothing"), strings.TrimPrefix(fmt.Sprint(b), "nothing")})
			continue
		}
		fa, fb := facts(a), facts(b)
		if a.To.Port() == 67 && b.To.Port() == 67 {
			delete(fa, "eth") // the relays' cards
			delete(fb, "eth")
		}
		names := maps.Clone(fa)
		maps.Copy(names, fb)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if !same(name, fa[name], fb[name]) {
				all = append(all, difference{client, q, name, fa[name], fb[name]})
			}
		}
	}
	return all
}

// TestBesideDnsmasq sends the same packets to a dnsmasq with the same configuration, and compares the answers field by field and option
// by option. Each difference is explained in differ_test.go, and each explanation is still needed.
func TestBesideDnsmasq(t *testing.T) {
	t.Parallel()
	netns.Need(t, "dnsmasq")
	const subnet, card = "10.107.1", "52:54:00:00:00:10"
	l := newLab(t, subnet)
	l.lan = `    router: NET.254
    ntp: [NET.3]
    search: [lab.test, deep.lab.test]
    mtu: 1400
    lease: 1h
    routes: [{to: 10.0.0.0/19, via: NET.101}]
    options: {"150": NET.9, "44": NET.8}
`
	l.write()
	d := start(t, l)
	them := dnsmasqBeside(t, subnet, card)
	us := side{d.machine(t, "02:00:00:00:ff:60").wire(t), netip.MustParseAddr(d.addr)}
	for _, s := range []side{us, them} {
		s.w.own(subnet+".10", mac(card), nil)
		s.w.own(subnet+".2", s.w.hw, nil)
	}
	needed := map[int]int{}
	known := explanations()
	for _, a := range clientKinds(mac(card), subnet) {
		ours, theirs := us.talk(mac(card), subnet+".10", a), them.talk(mac(card), subnet+".10", a)
		if len(ours) == 0 || len(theirs) == 0 {
			t.Errorf("%s: we answered %d questions, they %d: the test proves nothing", a.name, len(ours), len(theirs))
		}
		for _, diff := range differences(a.name, ours, theirs) {
			why := slices.IndexFunc(known, func(e explanation) bool { return e.covers(diff) })
			if why < 0 {
				t.Errorf("%s, %s, %s: ours %q, theirs %q: no explanation", diff.client, diff.question, diff.fact, diff.ours, diff.theirs)
				continue
			}
			needed[why]++
		}
	}
	for i, e := range known {
		if needed[i] == 0 {
			t.Errorf("there is no such difference any more: %+v", e)
		}
	}
	t.Logf("differences explained: %v", needed)
}

// dnsmasqBeside starts a dnsmasq with the lab's settings, on a segment of its own.
func dnsmasqBeside(t *testing.T, subnet, card string) side {
	t.Helper()
	seg := netns.NewSegment(t, "10.107.200.254/24")
	server, client := &machine{Client: seg.NewClient(t)}, &machine{Client: seg.NewClient(t)}
	netns.Run(t, "ip", "-n", server.Name, "addr", "add", subnet+".1/24", "dev", "eth0")
	dir := t.TempDir()
	conf := []string{
		"port=0", "interface=eth0", "bind-interfaces", "except-interface=lo", "dhcp-authoritative", "no-ping", "user=root", "pid-file=", "log-facility=-", "log-dhcp",
		"dhcp-leasefile=" + filepath.Join(dir, "leases"), "domain=lab.test",
		"dhcp-range=NET.100,NET.250,255.255.255.0,1h", "dhcp-host=" + card + ",w0,NET.10,1h",
		"dhcp-option=3,NET.254", "dhcp-option=6,NET.1", "dhcp-option=42,NET.3", "dhcp-option=26,1400", "dhcp-option=119,lab.test,deep.lab.test",
		"dhcp-option=121,10.0.0.0/19,NET.101,0.0.0.0/0,NET.254", "dhcp-option=249,10.0.0.0/19,NET.101,0.0.0.0/0,NET.254", "dhcp-option=150,NET.9", "dhcp-option=44,NET.8",
		"dhcp-match=set:ipxe,175", "dhcp-match=set:bios,option:client-arch,0", "dhcp-match=set:efi64,option:client-arch,7", "dhcp-vendorclass=set:http,HTTPClient",
		"dhcp-boot=tag:bios,tag:!ipxe,boot/MAC/undionly.kpxe,,NET.1", "dhcp-boot=tag:efi64,tag:!ipxe,boot/MAC/ipxe.efi,,NET.1",
		"dhcp-boot=tag:ipxe,http://NET.1:8080/boot/MAC/boot.ipxe,,NET.1", "dhcp-option=tag:ipxe,encap:175,176,1b",
		"dhcp-boot=tag:http,http://NET.1:8080/boot/MAC/ipxe.efi", "dhcp-option-force=tag:http,60,HTTPClient",
	}
	path := filepath.Join(dir, "dnsmasq.conf")
	fill := strings.NewReplacer("NET", subnet, "MAC", strings.ReplaceAll(card, ":", "-"))
	writeFile(t, path, fill.Replace(strings.Join(conf, "\n")+"\n"))
	log := server.daemonize(t, "dnsmasq", "-k", "-C", path)
	waitUntil(t, "dnsmasq listens", func() bool { return strings.Contains(log.String(), "DHCP, sockets bound") })
	return side{client.wire(t), netip.MustParseAddr(subnet + ".1")}
}
