package interop

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/test/support/netns"
)

// importedConf is a dnsmasq with every way to an address and a name. Each pool has one address, so that both servers assign the same.
const importedConf = `interface=eth0
except-interface=lo
bind-interfaces
domain=lab.test
local=/lab.test/
expand-hosts
no-hosts
no-resolv
no-ping
dhcp-authoritative
dhcp-sequential-ip
dhcp-hostsfile=HOSTS
dhcp-host=52:54:00:00:00:10,NET.10,w0,1h
dhcp-host=52:54:00:00:00:11,NET.11,first,1h
dhcp-host=52:54:00:00:00:11,NET.12,last,1h
dhcp-host=52:54:00:00:00:13,NET.13,line,1h
dhcp-host=52:54:00:*:*:*,set:libvirt,set:ocp
dhcp-vendorclass=set:kiosk,Kiosk
dhcp-range=tag:libvirt,NET.130,NET.130,255.255.255.0,2h
dhcp-range=tag:kiosk,tag:!libvirt,NET.140,NET.140,255.255.255.0,2h
dhcp-range=tag:!libvirt,tag:!kiosk,NET.200,NET.200,255.255.255.0,2h
dhcp-option=option:ntp-server,0.0.0.0,NET.3
dhcp-option=26,1400
dhcp-option=option:domain-search,lab.test,deep.lab.test
dhcp-option=150,NET.9
dhcp-option=44,NET.8
dhcp-option=252,"http://wpad.lab.test/wpad.dat"
dhcp-option=tag:ocp,option:classless-static-route,10.0.0.0/19,NET.101,0.0.0.0/0,NET.1
dhcp-option=tag:ocp,249,10.0.0.0/19,NET.101,0.0.0.0/0,NET.1
dhcp-option=tag:kiosk,option:router,NET.254
host-record=nas.lab.test,nas,NET.5
host-record=away.lab.test,10.99.9.9
cname=files.lab.test,nas.lab.test
address=/apps.lab.test/NET.60
srv-host=_etcd-server-ssl._tcp.lab.test,w0.lab.test,2380,0,10
txt-record=lab.test,"v=spf1 a -all","two, words"
mx-host=lab.test,nas.lab.test,50
ptr-record=60.1.126.10.in-addr.arpa,ingress.lab.test
`

// TestImportedDnsmasq: what bootlab import makes of a dnsmasq's configuration gives clients the same addresses and options, and the
// same names, as that dnsmasq. The differences are those of TestBesideDnsmasq.
func TestImportedDnsmasq(t *testing.T) {
	t.Parallel()
	netns.Need(t, "dnsmasq", "dig")
	const subnet = "10.126.1"
	l := newLab(t, subnet)
	l.apart()
	seg := netns.NewSegment(t, "10.126.200.254/24")
	server, client := &machine{Client: seg.NewClient(t)}, &machine{Client: seg.NewClient(t)}
	netns.Run(t, "ip", "-n", server.Name, "addr", "add", subnet+".1/24", "dev", "eth0")
	conf := filepath.Join(l.dir, "dnsmasq.conf")
	hosts := filepath.Join(l.dir, "hosts")
	writeFile(t, hosts, "52:54:00:00:00:13,"+subnet+".14,file,1h\n")
	writeFile(t, conf, strings.NewReplacer("NET", subnet, "HOSTS", hosts).Replace(importedConf))
	log := server.daemonize(t, "dnsmasq", "-k", "-C", conf, "--user=root", "--pid-file=", "--log-facility=-", "--log-dhcp", "--dhcp-leasefile="+filepath.Join(t.TempDir(), "leases"))
	waitUntil(t, "dnsmasq listens", func() bool { return strings.Contains(log.String(), "DHCP, sockets bound") })

	lab, err := server.Command(t.Context(), os.Getenv(binaryVar), "import", "dnsmasq", conf).Output()
	if err != nil {
		t.Fatal(err)
	}
	appliance, _, _ := strings.Cut(l.text(), "networks:") // what dnsmasq has no equivalent of
	l.replace(strings.Replace(string(lab), "version: 1\ndomain: lab.test\n", appliance, 1))
	d := start(t, l)

	them, us := side{client.wire(t), netip.MustParseAddr(subnet + ".1")}, side{d.machine(t, "02:00:00:00:ff:61").wire(t), netip.MustParseAddr(d.addr)}
	for _, c := range []struct{ card, addr string }{
		{"52:54:00:00:00:10", subnet + ".10"}, {"52:54:00:00:00:11", subnet + ".12"}, {"52:54:00:00:00:13", subnet + ".14"}, {"52:54:00:00:00:77", subnet + ".130"}, {"02:00:00:00:00:77", subnet + ".140"}, {"02:00:00:00:00:78", subnet + ".200"},
	} {
		for _, s := range []side{us, them} {
			s.w.own(c.addr, mac(c.card), nil)
		}
		for _, kind := range clientKinds(mac(c.card), subnet) {
			if kind.name != "udhcpc" && kind.name != "Windows" {
				continue
			}
			if strings.HasSuffix(c.addr, ".140") {
				kind.mods = append(slices.Clone(kind.mods), with(60, "Kiosk 2"))
			}
			sameLease(t, us, them, mac(c.card), c.addr, kind)
		}
	}
	for _, q := range []string{
		"w0.lab.test A", "w0.lab.test AAAA", "nas.lab.test A", "files.lab.test A", "away.lab.test A", "apps.lab.test A", "console.apps.lab.test A", "a.b.apps.lab.test A",
		"_etcd-server-ssl._tcp.lab.test SRV", "lab.test TXT", "lab.test MX", "none.lab.test A", "-x NET.10", "-x NET.5", "-x NET.60",
	} {
		args := append([]string{"@" + subnet + ".1", "+short", "+tries=3", "+time=20"}, strings.Fields(strings.ReplaceAll(q, "NET", subnet))...)
		ours, err := (&machine{Client: &netns.Client{Name: l.ns}}).run("dig", args...)
		theirs, err2 := server.run("dig", args...)
		if strings.HasPrefix(q, "files") { // an alias here, a CNAME there
			theirs = strings.TrimPrefix(theirs, "nas.lab.test.\n")
		}
		if ours != theirs || err != nil || err2 != nil || ours == "" && !strings.HasPrefix(q, "none") && !strings.HasSuffix(q, "AAAA") {
			t.Errorf("%s: ours %q %v, theirs %q %v", q, ours, err, theirs, err2)
		}
	}
}

// sameLease fails the test where the answers to a client differ without one of the explanations.
func sameLease(t *testing.T, us, them side, card net.HardwareAddr, addr string, kind clientKind) {
	t.Helper()
	ours, theirs := us.talk(card, addr, kind), them.talk(card, addr, kind)
	for who, said := range map[string]map[string]captured{"we": ours, "they": theirs} {
		if got := fmt.Sprint(said["DISCOVER"].DHCPv4 != nil && said["SELECTING"].MessageType() == dhcpv4.MessageTypeAck, said["DISCOVER"].YourIPAddr); got != "true "+addr {
			t.Errorf("%s, %s: %s answered %s, want a lease of %s", card, kind.name, who, got, addr)
		}
	}
	for _, diff := range differences(kind.name, ours, theirs) {
		if strings.Contains("51 58 59", diff.fact) && netip.MustParseAddr(addr).As4()[3] > 99 {
			continue // a pool without a free address has short leases
		}
		if diff.fact == "81" && diff.ours == "08 ff ff" && netip.MustParseAddr(addr).As4()[3] > 99 {
			continue // the name leads to host w0, so it is not confirmed (RFC 4702 section 4); dnsmasq confirms what a client asks for
		}
		asked := diff.fact == "121" && kind.name == "Windows" // the explanation is about clients that do not
		if asked || !slices.ContainsFunc(explanations(), func(e explanation) bool { return e.covers(diff) }) {
			t.Errorf("%s, %s, %s, %s: ours %q, theirs %q", card, diff.client, diff.question, diff.fact, diff.ours, diff.theirs)
		}
	}
}
