package dhcpd

import (
	"net"
	"testing"
	"time"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/lab"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

// TestHostsWithoutAddress: a host that is in the lab file without an ip gets an address of a pool, and its name, domain, options,
// routes and lease from its own line; what that leaves out is the pool's.
func TestHostsWithoutAddress(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.table = Compile(labWith(t, `
  named: {mac: "02:00:00:00:77:11", network: main, cluster: c1}
  own: {mac: "52:54:00:00:77:12", network: main, lease: 30m, options: {"150": 10.77.0.9}}
`)).WithNames(inLabTest)
	type reply struct {
		Addr, Name, Domain, FQDN, Lease, Routes, TFTP string
	}
	for _, tt := range []struct {
		name, mac string
		want      reply
	}{
		{"a name alone", "02:00:00:00:77:11", reply{Addr: "10.77.0.20", Name: "named", Domain: "c1.lab.test", FQDN: "named.c1.lab.test", Lease: "12h0m0s", Routes: "none"}},
		{"own options, routes of its pool", "52:54:00:00:77:12", reply{Addr: "10.77.0.13", Name: "own", Domain: "lab.test", FQDN: "own.lab.test", Lease: "30m0s", Routes: "pool", TFTP: "10.77.0.9"}},
		{"not in the lab", "02:00:00:00:77:13", reply{Addr: "10.77.0.20", Domain: "lab.test", FQDN: "mine.lab.test", Lease: "12h0m0s", Routes: "none"}},
	} {
		out := b.exchange("lab0", 67, "0.0.0.0:68", message(t, dhcpv4.MessageTypeDiscover, mac(t, tt.mac), udhcpc, raw(12, "mine"), raw(81, "\x05\x00\x00\x04mine"),
			raw(55, "\x01\x03\x06\x0c\x0f\x79\x96")))
		if len(out) != 1 {
			t.Fatalf("%s: %d replies", tt.name, len(out))
		}
		p := decode(t, out[0].data)
		got := reply{
			Addr: p.YourIPAddr.String(), Name: p.HostName(), Domain: p.DomainName(), Lease: p.IPAddressLeaseTime(0).String(), FQDN: fqdnIn(p),
			Routes: map[int]string{0: "none", 2: "pool"}[len(p.ClasslessStaticRoute())],
		}
		got.Addr = got.Addr[:len(got.Addr)-1] // which one of the pool is not of interest
		if v := p.Options.Get(dhcpv4.GenericOptionCode(150)); v != nil {
			got.TFTP = value(6, v)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// fqdnIn reads option 81 in wire form (RFC 4702 section 2.1).
func fqdnIn(p *dhcpv4.DHCPv4) (name string) {
	v := p.Options.Get(dhcpv4.OptionFQDN)
	if len(v) < 4 {
		return ""
	}
	for v = v[3:]; len(v) > 0 && v[0] > 0; v = v[1+v[0]:] {
		name += "." + string(v[1:1+v[0]])
	}
	return name[1:]
}

// TestIgnoredHosts: a host with dhcp: off gets no answer, neither for its address nor from a pool, and no other client gets its address.
func TestIgnoredHosts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.table = Compile(labWith(t, `
  fixed: {mac: "02:00:00:00:77:21", ip: 10.77.0.200, dhcp: off}
  roaming: {mac: ["02:00:00:00:77:22", "02:00:00:00:77:23"], network: beside, profile: rhcos, dhcp: off}
`))
	for _, tt := range []struct {
		mac, iface string
		replies    int
	}{{"02:00:00:00:77:21", "lab0", 0}, {"02:00:00:00:77:22", "lab0", 0}, {"02:00:00:00:77:23", "lab1", 0}, {"02:00:00:00:77:24", "lab0", 1}} {
		out := b.exchange(tt.iface, 67, "0.0.0.0:68", message(t, dhcpv4.MessageTypeDiscover, mac(t, tt.mac), ovmf))
		if len(out) != tt.replies {
			t.Errorf("%s on %s: %d replies, want %d", tt.mac, tt.iface, len(out), tt.replies)
		}
	}
	asked := b.exchange("lab0", 67, "0.0.0.0:68", message(t, dhcpv4.MessageTypeDiscover, mac(t, "02:00:00:00:77:25"), udhcpc, withRequested("10.77.0.200")))
	if len(asked) != 1 || decode(t, asked[0].data).YourIPAddr.String() == "10.77.0.200" {
		t.Errorf("its address: %d replies", len(asked))
	}
}

// TestHostsWithoutMAC: a pool never gives the address of a host that gets it from elsewhere, nor imports a lease of it.
func TestHostsWithoutMAC(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.table = Compile(labWith(t, "  nas: {ip: 10.77.0.201}\n"))
	for i := range 4 {
		m := lab.MAC{2, 0, 0, 0, 1, byte(i)}
		if got, full := b.lease(t, m.String(), udhcpc), i == 3; got == "10.77.0.201" || (got == "") != full {
			t.Errorf("machine %d got %q", i, got)
		}
	}
	l := imported(t, b, other, "10.77.0.201", time.Hour)
	if b.Import(t.Context(), []*Import{l}, ImportMode{}); l.Skipped != SkipReserved {
		t.Errorf("its address is imported as a lease: %+v", l)
	}
}

// TestReservedAddressIsOfferedAtOnce: an address that is picked from a pool is probed for before it is offered; one that the lab file
// reserves, or that the machine has had, is not: it would only make the boot later.
func TestReservedAddressIsOfferedAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	had := "02:00:00:00:01:01"
	b.lease(t, had, udhcpc) // without a socket nothing is probed
	for _, tt := range []struct {
		name, mac string
		atOnce    bool
	}{{"reserved", master0, true}, {"leased before", had, true}, {"new to a pool", other, false}} {
		wire := &capture{}
		before := b.probes.TokensAt(b.clock.Now())
		b.handle(&exchange{iface: "lab0", port: 67, sock: &segment.Socket{}, out: wire},
			message(t, dhcpv4.MessageTypeDiscover, mac(t, tt.mac), ovmf))
		if got := len(wire.sent) == 1; got != tt.atOnce {
			t.Errorf("%s: offered at once: %v, want %v", tt.name, got, tt.atOnce)
		}
		if probed := b.probes.TokensAt(b.clock.Now()) != before; probed == tt.atOnce {
			t.Errorf("%s: probed: %v", tt.name, probed)
		}
	}
}

// TestHostsInOtherNetworks: a host boots its own profile in a network that the lab file does not put it in, whatever its pool there boots, and
// not from a NIC that boots nothing.
func TestHostsInOtherNetworks(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.table = Compile(labWith(t, `
  moved:
    profile: rhcos
    nics: [{mac: "02:00:00:00:77:51", ip: 10.78.0.51, boot: true}, {mac: "52:54:00:00:77:52", ip: 10.79.0.52}]
  moved-1: {mac: "52:54:00:00:77:54", ip: 10.78.0.54, profile: rhcos}
  diskless: {mac: "52:54:00:00:77:53", ip: 10.78.0.53}
`))
	for _, tt := range []struct{ name, mac, iface, want string }{
		{"in a pool that boots a profile", "52:54:00:00:77:54", "lab0", "boot/52-54-00-00-77-54/undionly.kpxe"},
		{"in one that boots none", "02:00:00:00:77:51", "lab0", "boot/02-00-00-00-77-51/undionly.kpxe"},
		{"beside another DHCP server", "02:00:00:00:77:51", "lab1", "boot/02-00-00-00-77-51/undionly.kpxe"},
		{"a NIC that boots nothing", "52:54:00:00:77:52", "lab0", ""},
		{"a host that boots nothing", "52:54:00:00:77:53", "lab0", ""},
	} {
		out := b.exchange(tt.iface, 67, client0, message(t, dhcpv4.MessageTypeDiscover, mac(t, tt.mac), bios))
		got := "no reply"
		if len(out) > 0 {
			got = decode(t, out[0].data).BootFileName
		}
		if got != tt.want {
			t.Errorf("%s: boot file %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestNICsOfOneHost: each NIC has the address of its own network, all have the host's name, and only the one that boots is sent a boot file.
func TestNICsOfOneHost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.table = Compile(labWith(t, `
  two:
    profile: rhcos
    nics: [{mac: "02:00:00:00:77:31", ip: 10.77.0.31, boot: true}, {mac: "02:00:00:00:77:32", ip: 10.78.0.32}]
  leased:
    profile: rhcos
    nics: [{mac: "02:00:00:00:77:42", ip: 10.78.0.33, boot: true}, {mac: "52:54:00:00:77:41", network: main}]
`))
	for _, tt := range []struct{ mac, from, want, file string }{
		{"02:00:00:00:77:31", "", "10.77.0.31 two", "boot/02-00-00-00-77-31/undionly.kpxe"},
		{"02:00:00:00:77:32", "10.78.255.254", "10.78.0.32 two", ""},
		{"52:54:00:00:77:41", "", "10.77.0.132 leased", ""}, // in a pool with a profile
	} {
		m := message(t, dhcpv4.MessageTypeDiscover, mac(t, tt.mac), bios,
			dhcpv4.WithRelay(net.ParseIP(tt.from)))
		from := "0.0.0.0:68"
		if tt.from != "" {
			from = tt.from + ":67"
		}
		out := b.exchange("lab0", 67, from, m)
		if len(out) == 0 {
			t.Fatalf("%s: no reply", tt.mac)
		}
		p := decode(t, out[0].data)
		if got := p.YourIPAddr.String() + " " + p.HostName(); got != tt.want || p.BootFileName != tt.file {
			t.Errorf("%s: %s, boot file %q; want %s, %q", tt.mac, got, p.BootFileName, tt.want, tt.file)
		}
	}
}
