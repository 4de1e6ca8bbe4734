package dnsd

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"

	"github.com/google/go-cmp/cmp"
)

const outside = "203.0.113.9" // no client of the lab

// TestRFC4592 asks the questions of RFC 4592 section 2.2.1 of the zone there, and some around them.
func TestRFC4592(t *testing.T) {
	t.Parallel()
	s := newServer(t, compile(t, &lab.Lab{Zones: []*lab.Zone{zoneOfLines("example.",
		"$TTL 3600",
		"@ SOA ns hostmaster 1 2 3 4 5",
		"@ NS ns.example.com.",
		"@ NS ns.example.net.",
		`* TXT "this is a wildcard"`,
		"* MX 10 host1.example.",
		`sub.* TXT "this is not a wildcard"`,
		"host1 A 192.0.2.1",
		"_ssh._tcp.host1 SRV 1 0 22 host1",
		"_ssh._tcp.host2 SRV 1 0 22 host2",
		"subdel NS ns.example.com.",
		"subdel NS ns.example.net.",
	)}}), nil)
	const soa = "\nns example. SOA ns.example."
	wantAnswers(t, s, outside, []dialogue{
		{"host3.example. MX", "NOERROR aa\nan host3.example. MX 10 host1.example.\nar host1.example. A 192.0.2.1"},
		{"host3.example. A", "NOERROR aa" + soa},
		{"foo.bar.example. TXT", `NOERROR aa` + "\n" + `an foo.bar.example. TXT "this is a wildcard"`},
		{"host1.example. MX", "NOERROR aa" + soa},
		{"sub.*.example. MX", "NOERROR aa" + soa},
		{"_telnet._tcp.host1.example. SRV", "NXDOMAIN aa" + soa},
		{"host.subdel.example. A", "NOERROR\nns subdel.example. NS ns.example.com.\nns subdel.example. NS ns.example.net."},
		{"ghost.*.example. MX", "NXDOMAIN aa" + soa},
		{"*.example. TXT", "NOERROR aa\n" + `an *.example. TXT "this is a wildcard"`},
		// An empty non-terminal exists: neither NXDOMAIN nor the wildcard.
		{"_tcp.host1.example. TXT", "NOERROR aa" + soa},
		{"host2.example. MX", "NOERROR aa" + soa},
		{"HoSt1.EXAMPLE. A", "NOERROR aa\nan HoSt1.EXAMPLE. A 192.0.2.1"},
		{"_ssh._tcp.host1.example. SRV", "NOERROR aa\nan _ssh._tcp.host1.example. SRV 1 0 22 host1.example.\nar host1.example. A 192.0.2.1"},
		{"subdel.example. DS", "NOERROR aa" + soa},
		{"host1.example. ANY", "NOERROR aa\nan host1.example. A 192.0.2.1"},
		{"example. NS", "NOERROR aa\nan example. NS ns.example.com.\nan example. NS ns.example.net."},
	})
}

// openshift is what labs/openshift-upi.yaml derives, by hand.
func openshift() *lab.Lab {
	return &lab.Lab{
		Domain: "example.com",
		Networks: []*lab.Network{{Name: "cluster", Subnet: netip.MustParsePrefix("192.168.131.0/24"),
			Address: netip.MustParseAddr("192.168.131.10")}},
		Zones: []*lab.Zone{
			derived("131.168.192.in-addr.arpa.",
				"10.131.168.192.in-addr.arpa. PTR loadbalancer.mycluster.example.com.",
				"12.131.168.192.in-addr.arpa. PTR master.mycluster.example.com.",
				"13.131.168.192.in-addr.arpa. PTR worker-1.mycluster.example.com."),
			derived("example.com."),
			derived("mycluster.example.com.",
				"*.apps.mycluster.example.com. A 192.168.131.10",
				"_etcd-server-ssl._tcp.mycluster.example.com. SRV 0 10 2380 etcd-0.mycluster.example.com.",
				"api.mycluster.example.com. A 192.168.131.10",
				"api-int.mycluster.example.com. A 192.168.131.10",
				"etcd-0.mycluster.example.com. A 192.168.131.12",
				"loadbalancer.mycluster.example.com. A 192.168.131.10",
				"master.mycluster.example.com. A 192.168.131.12",
				"worker-1.mycluster.example.com. A 192.168.131.13"),
		},
	}
}

func TestOpenShift(t *testing.T) {
	t.Parallel()
	leases := clients(map[string]string{"laptop": "192.168.131.77", "master": "192.168.131.78", "pc-": "192.168.131.79"})
	s := newServer(t, compile(t, openshift()), leases)
	const soa = "\nns mycluster.example.com. SOA bootlab.example.com."
	wantAnswers(t, s, outside, []dialogue{
		{"api.mycluster.example.com. A", "NOERROR aa\nan api.mycluster.example.com. A 192.168.131.10"},
		{"console.apps.mycluster.example.com. A", "NOERROR aa\nan console.apps.mycluster.example.com. A 192.168.131.10"},
		{"a.b.apps.mycluster.example.com. A", "NOERROR aa\nan a.b.apps.mycluster.example.com. A 192.168.131.10"},
		// musl and glibc ask for AAAA too: anything but NODATA breaks or misleads them.
		{"console.apps.mycluster.example.com. AAAA", "NOERROR aa" + soa},
		{"apps.mycluster.example.com. A", "NOERROR aa" + soa},
		{"missing.mycluster.example.com. A", "NXDOMAIN aa" + soa},
		{"_etcd-server-ssl._tcp.mycluster.example.com. SRV", "NOERROR aa\nan _etcd-server-ssl._tcp.mycluster.example.com. SRV 0 10 2380 " +
			"etcd-0.mycluster.example.com.\nar etcd-0.mycluster.example.com. A 192.168.131.12"},
		{"12.131.168.192.in-addr.arpa. PTR", "NOERROR aa\nan 12.131.168.192.in-addr.arpa. PTR master.mycluster.example.com."},
		{"12.131.168.192.in-addr.arpa. A", "NOERROR aa\nns 131.168.192.in-addr.arpa. SOA bootlab.example.com."},
		{"99.131.168.192.in-addr.arpa. PTR", "NXDOMAIN aa\nns 131.168.192.in-addr.arpa. SOA bootlab.example.com."},
		// DHCP clients: only what the table does not hold.
		{"laptop.example.com. A", "NOERROR aa\nan laptop.example.com. A 192.168.131.77"},
		{"laptop.example.com. AAAA", "NOERROR aa\nns example.com. SOA bootlab.example.com."},
		{"77.131.168.192.in-addr.arpa. PTR", "NOERROR aa\nan 77.131.168.192.in-addr.arpa. PTR laptop.example.com."},
		{"pc-.example.com. A", "NOERROR aa\nan pc-.example.com. A 192.168.131.79"}, // no host name, but both ways alike
		{"79.131.168.192.in-addr.arpa. PTR", "NOERROR aa\nan 79.131.168.192.in-addr.arpa. PTR pc-.example.com."},
		{"master.mycluster.example.com. A", "NOERROR aa\nan master.mycluster.example.com. A 192.168.131.12"},
		{"bootlab.example.com. A", "NOERROR aa\nan bootlab.example.com. A 192.168.131.10"},
		{"www.example.org. A", "REFUSED"},
		{"example.com. HTTPS", "NOERROR aa\nns example.com. SOA bootlab.example.com."},
	})
}

// TestNamesThatNoClientMayHave: whatever a DHCP client calls itself, it gets no name of the lab, and none that programs trust,
// neither forward nor backward.
func TestNamesThatNoClientMayHave(t *testing.T) {
	t.Parallel()
	l := openshift()
	l.Hosts = append(l.Hosts, &lab.Host{Name: "worker-1", FQDN: "worker-1.mycluster.example.com", IP: netip.MustParseAddr("192.168.131.13")},
		&lab.Host{Name: "away", FQDN: "roaming.example.com", MACs: []lab.MAC{{2}}})
	l.Zones = append(l.Zones, derived("cut.example.com.", "www.cut.example.com. A 192.168.131.9"))
	l.Zones[1].Records = append(l.Zones[1].Records, derived("x.", "printer.example.com. A 192.168.131.20").Records...)
	l.Index()
	var leases leaseBook
	for i, label := range []string{"wpad", "isatap", "localhost", "ns", "bootlab", "api", "api-int", "worker-1", "away", "roaming", "printer", "cut", "laptop"} {
		leases = append(leases, Lease{Addr: netip.AddrFrom4([4]byte{192, 168, 131, byte(100 + i)}), Hostname: label})
	}
	s := newServer(t, compile(t, l), leases)
	for _, client := range leases {
		label, addr := client.Hostname, client.Addr
		want := label == "laptop"
		got := lookup(t, s, label+".example.com. A", outside)
		if has := strings.Contains(show(got), addr.String()); has != want {
			t.Errorf("%s.example.com is a client's name: %v, want %v: %s", label, has, want, show(got))
		}
		reverse := fmt.Sprintf("%d.131.168.192.in-addr.arpa. PTR", addr.As4()[3])
		if has := strings.Contains(show(lookup(t, s, reverse, outside)), "PTR"); has != want {
			t.Errorf("%s is the reverse name of the client %s: %v, want %v", reverse, label, has, want)
		}
	}
}

// TestNameOfTheAppliance: no DHCP client gets the name that the machine of the appliance has in its operating system.
func TestNameOfTheAppliance(t *testing.T) {
	t.Parallel()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	label, _, _ := strings.Cut(strings.ToLower(name), ".")
	if got := compile(t, openshift()).ClientName(label); got != "" {
		t.Errorf("a client named %s has the name %s", label, got)
	}
}

// TestHostsWithoutAddress: a host of the lab that has its address from a pool answers to its names, forward and backward, as long as
// it has the address, whatever it calls itself.
func TestHostsWithoutAddress(t *testing.T) {
	t.Parallel()
	l := openshift()
	nic, spare := lab.MAC{0x52, 0x54, 0, 0, 0, 0x41}, lab.MAC{0x52, 0x54, 0, 0, 0, 0x42}
	l.Hosts = append(l.Hosts,
		&lab.Host{Name: "roaming", FQDN: "roaming.mycluster.example.com", Aliases: []string{"files.example.com"}, MACs: []lab.MAC{spare, nic}},
		&lab.Host{Name: "away", FQDN: "away.example.com", MACs: []lab.MAC{{2}}})
	l.Index()
	at := netip.MustParseAddr("192.168.131.80")
	s := newServer(t, compile(t, l), leaseBook{{at, nic, "calls-itself-so"}, {Addr: netip.MustParseAddr("192.168.131.81"), Hostname: "away"}})
	const soa = "\nns example.com. SOA bootlab.example.com."
	wantAnswers(t, s, outside, []dialogue{
		{"Roaming.mycluster.example.com. A", "NOERROR aa\nan Roaming.mycluster.example.com. A 192.168.131.80"},
		{"roaming.mycluster.example.com. AAAA", "NOERROR aa\nns mycluster.example.com. SOA bootlab.example.com."},
		{"files.example.com. A", "NOERROR aa\nan files.example.com. A 192.168.131.80"},
		{"roaming.example.com. A", "NXDOMAIN aa" + soa},
		{"away.example.com. A", "NXDOMAIN aa" + soa}, // although a client calls itself that
		{"calls-itself-so.example.com. A", "NXDOMAIN aa" + soa},
		{"80.131.168.192.in-addr.arpa. PTR", "NOERROR aa\nan 80.131.168.192.in-addr.arpa. PTR roaming.mycluster.example.com."},
	})
	gone := newServer(t, compile(t, l), leaseBook{})
	wantAnswers(t, gone, outside, []dialogue{
		{"roaming.mycluster.example.com. A", "NXDOMAIN aa\nns mycluster.example.com. SOA bootlab.example.com."},
	})
}

// TestLeaseOfReservedHost: a host that has a reservation, and is leased an address of a pool all the same, as one that was moved to another
// network, has no name by that lease. The table of the request decides it, so that a reload between two look-ups cannot mix two labs.
func TestLeaseOfReservedHost(t *testing.T) {
	t.Parallel()
	l := openshift()
	nic := lab.MAC{0x52, 0x54, 0, 0, 0, 0x43}
	leases := leaseBook{{netip.MustParseAddr("192.168.131.82"), nic, "laptop"}}
	const soa, reverse = "\nns example.com. SOA bootlab.example.com.", "82.131.168.192.in-addr.arpa. PTR"
	before := newServer(t, compile(t, l), leases)
	l = openshift()
	l.Hosts = append(l.Hosts, &lab.Host{Name: "kept", FQDN: "kept.example.com", MACs: []lab.MAC{nic}, IP: netip.MustParseAddr("192.168.131.83")})
	l.Index()
	after := newServer(t, compile(t, l), leases)
	wantAnswers(t, before, outside, []dialogue{
		{"laptop.example.com. A", "NOERROR aa\nan laptop.example.com. A 192.168.131.82"},
		{reverse, "NOERROR aa\nan " + reverse + " laptop.example.com."},
	})
	wantAnswers(t, after, outside, []dialogue{
		{"laptop.example.com. A", "NXDOMAIN aa" + soa},
		{reverse, "NXDOMAIN aa\nns 131.168.192.in-addr.arpa. SOA bootlab.example.com."},
	})
}

// TestRouterZone is labs/wildcard-router.yaml.
func TestRouterZone(t *testing.T) {
	t.Parallel()
	s := newServer(t, compile(t, &lab.Lab{Zones: []*lab.Zone{
		zoneOfLines("demo.kuryr.org.", "@ NS ns", "ns A 127.0.0.1", "* 300 A 172.24.4.2")}}), nil)
	wantAnswers(t, s, outside, []dialogue{
		{"foo.demo.kuryr.org. A", "NOERROR aa\nan foo.demo.kuryr.org. A 172.24.4.2"},
		{"foo.demo.kuryr.org. AAAA", "NOERROR aa\nns demo.kuryr.org. SOA ns.demo.kuryr.org."},
		{"ns.demo.kuryr.org. A", "NOERROR aa\nan ns.demo.kuryr.org. A 127.0.0.1"},
		{"demo.kuryr.org. SOA", "NOERROR aa\nan demo.kuryr.org. SOA ns.demo.kuryr.org."},
		{"demo.kuryr.org. A", "NOERROR aa\nns demo.kuryr.org. SOA ns.demo.kuryr.org."},
		{"kuryr.org. A", "REFUSED"},
	})
	m := lookup(t, s, "foo.demo.kuryr.org. A", outside)
	if ttl := m.Answer[0].Header().Ttl; ttl != 300 {
		t.Errorf("TTL %d, want 300", ttl)
	}
}

// TestChains follows CNAMEs inside the table, through wildcards and zones, into nothing and round in cnameLoop.
func TestChains(t *testing.T) {
	t.Parallel()
	s := newServer(t, compile(t, &lab.Lab{Zones: []*lab.Zone{
		zoneOfLines("a.test.", "www CNAME web.b.test.", "* CNAME www", "loop CNAME pool", "pool CNAME loop",
			"dead CNAME missing.b.test.", "out CNAME www.example.org.", "below CNAME x.sub.b.test.",
			"nodata CNAME web.b.test.", "mail 5m MX 5 web.b.test."),
		zoneOfLines("b.test.", "web 1h A 192.0.2.7", "web 2h A 192.0.2.8", "sub NS ns.sub", "ns.sub A 192.0.2.53", "ns.sub AAAA 2001:db8::53"),
	}}), nil)
	const soaB = "\nns b.test. SOA b.test."
	wantAnswers(t, s, outside, []dialogue{
		{"www.a.test. A", "NOERROR aa\nan www.a.test. CNAME web.b.test.\nan web.b.test. A 192.0.2.7\nan web.b.test. A 192.0.2.8"},
		{"any.a.test. A", "NOERROR aa\nan any.a.test. CNAME www.a.test.\nan www.a.test. CNAME web.b.test.\n" +
			"an web.b.test. A 192.0.2.7\nan web.b.test. A 192.0.2.8"},
		{"www.a.test. CNAME", "NOERROR aa\nan www.a.test. CNAME web.b.test."},
		{"dead.a.test. A", "NXDOMAIN aa\nan dead.a.test. CNAME missing.b.test." + strings.Replace(soaB, "SOA b.test.", "SOA b.test.", 1)},
		{"nodata.a.test. AAAA", "NOERROR aa\nan nodata.a.test. CNAME web.b.test." + soaB},
		{"out.a.test. A", "NOERROR aa\nan out.a.test. CNAME www.example.org."},
		{"below.a.test. A", "NOERROR aa\nan below.a.test. CNAME x.sub.b.test.\nns sub.b.test. NS ns.sub.b.test.\n" +
			"ar ns.sub.b.test. A 192.0.2.53\nar ns.sub.b.test. AAAA 2001:db8::53"},
		{"ns.sub.b.test. A", "NOERROR\nns sub.b.test. NS ns.sub.b.test.\nar ns.sub.b.test. A 192.0.2.53\nar ns.sub.b.test. AAAA 2001:db8::53"},
		{"LOOP.a.test. A", "NOERROR aa\nan LOOP.a.test. CNAME pool.a.test.\nan pool.a.test. CNAME loop.a.test."},
		{"mail.a.test. MX", "NOERROR aa\nan mail.a.test. MX 5 web.b.test.\nar web.b.test. A 192.0.2.7\nar web.b.test. A 192.0.2.8"},
	})
	if m := lookup(t, s, "web.b.test. A", outside); m.Answer[1].Header().Ttl != 3600 {
		t.Errorf("TTL of a set of 1h and 2h is %d, want 3600", m.Answer[1].Header().Ttl)
	}
}

// TestLongestZone nests zones: the inner one answers, whatever the outer has.
func TestLongestZone(t *testing.T) {
	t.Parallel()
	s := newServer(t, compile(t, &lab.Lab{Zones: []*lab.Zone{
		derived("test.", "inner.test. A 192.0.2.1", "x.inner.test. A 192.0.2.1"),
		zoneOfLines("inner.test.", "@ A 192.0.2.2"),
		zoneOfLines(".", "arpa A 192.0.2.9"),
	}}), nil)
	wantAnswers(t, s, outside, []dialogue{
		{"inner.test. A", "NOERROR aa\nan inner.test. A 192.0.2.2"},
		{"x.inner.test. A", "NXDOMAIN aa\nns inner.test. SOA inner.test."},
		{"y.test. A", "NXDOMAIN aa\nns test. SOA test."},
		{"arpa. A", "NOERROR aa\nan arpa. A 192.0.2.9"},
		{"org. A", "NXDOMAIN aa\nns . SOA ."},
	})
}

func TestZoneFile(t *testing.T) {
	t.Parallel()
	// The shape of the BIND sample in OpenShift's documentation: units, parentheses, absolute owners, two PTRs.
	const file = `$TTL 1W
@	IN	SOA	ns1.example.com.	root (
			2019070700	; serial
			3H		; refresh
			30M		; retry
			2W		; expiry
			1W )		; minimum
	IN	NS	ns1.example.com.
ns1.example.com.	IN	A	192.168.1.5
*.apps.ocp4		IN	A	192.168.1.5
$GENERATE 0-2 control-plane$ A 192.168.1.9$
`
	read := func(path, _ string) ([]byte, error) {
		if path != "/lab/zones/example.com" {
			return nil, errNoFile
		}
		return []byte(file), nil
	}
	table, err := Compile(&lab.Lab{Zones: []*lab.Zone{
		{Origin: "example.com.", File: "/lab/zones/example.com"},
		{Origin: "gone.test.", File: "/lab/zones/gone"},
	}}, read)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, table, nil)
	wantAnswers(t, s, outside, []dialogue{
		{"control-plane2.example.com. A", "NOERROR aa\nan control-plane2.example.com. A 192.168.1.92"},
		{"x.apps.ocp4.example.com. A", "NOERROR aa\nan x.apps.ocp4.example.com. A 192.168.1.5"},
		{"www.gone.test. A", "SERVFAIL"},
	})
	if got := lookup(t, s, "example.com. SOA", outside).Answer[0].String(); !strings.Contains(got, "2019070700 10800 1800 1209600 604800") {
		t.Errorf("SOA of the file: %s", got)
	}
	want := "lab: dns.zones.gone.test.file: zone gone.test. answers SERVFAIL: no such file"
	if diff := cmp.Diff(want, table.Warnings().Error()); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// TestProblems are lines that are refused, with their exact message.
func TestProblems(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, line, want string }{
		{"no type", "www 10.0.0.1", `lab.yaml:10:9: dns.zones.z.test.records[0]: "www 10.0.0.1": "10.0.0.1" is neither a TTL nor a type of record: want NAME TYPE DATA, as in www A 10.0.0.1`},
		{"bad address", "www A 10.0.0.256", `lab.yaml:10:9: dns.zones.z.test.records[0]: "www A 10.0.0.256": "10.0.0.256" is not an IPv4 address`},
		{"outside", "www.example.org. A 10.0.0.1",
			`lab.yaml:10:9: dns.zones.z.test.records[0]: "www.example.org. A 10.0.0.1": www.example.org. is not in the zone z.test.`},
		{"include", "$INCLUDE /etc/passwd",
			`lab.yaml:10:9: dns.zones.z.test.records[0]: "$INCLUDE /etc/passwd": $INCLUDE is allowed in zone files only`},
		{"class", "www CH A 10.0.0.1", `lab.yaml:10:9: dns.zones.z.test.records[0]: "www CH A 10.0.0.1": only class IN is served`},
		{"two dnames", "www DNAME x.\nwww DNAME y.", "lab.yaml:10:9: zone z.test.: www.z.test.: a name has one DNAME (RFC 6672 section 2.4)"},
		{"below a dname", "w DNAME x.\na.b.w A 10.0.0.1", "lab.yaml:10:9: zone z.test.: a.b.w.z.test.: is below the DNAME of w.z.test. (RFC 6672 section 2.4)"},
		{"cname and more", "www CNAME a\nwww A 10.0.0.1",
			"lab.yaml:10:9: zone z.test.: www.z.test.: a name with a CNAME has no other record (RFC 1034 section 3.6.2)"},
		{"cname at apex", "@ CNAME a", "lab.yaml:10:9: zone z.test.: z.test.: a name with a CNAME has no other record (RFC 1034 section 3.6.2)"},
		{"wildcard NS", "* NS ns", "lab.yaml:10:9: zone z.test.: *.z.test.: a wildcard cannot be delegated (RFC 4592 section 4.2)"},
		{"soa below", "www SOA a b 1 2 3 4 5", "lab.yaml:10:9: zone z.test.: www.z.test.: a zone has one SOA, at its origin z.test."},
		{"generate", "$GENERATE 1-99999999 h$ A 10.0.0.1", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Compile(&lab.Lab{Zones: []*lab.Zone{zoneOfLines("z.test.", tt.line)}}, nil)
			switch {
			case err == nil:
				t.Fatal("compiled")
			case tt.want == "" && strings.HasPrefix(err.Error(), "lab.yaml:10:9: "):
			default:
				if diff := cmp.Diff(tt.want, err.Error()); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestLines reads lines as people write them.
func TestLines(t *testing.T) {
	t.Parallel()
	table := compile(t, &lab.Lab{Zones: []*lab.Zone{zoneOfLines("z.test.",
		"$TTL 2h", "www A 192.0.2.1", "  AAAA 2001:db8::1", "$ORIGIN sub", "www 1m IN A 192.0.2.2", "@ TXT \"a b\" c",
		"abs.z.test. IN 7 CAA 0 issue \"x\"", "t TYPE65400 \\# 2 abcd", "; a comment", "")}})
	var b strings.Builder
	if err := table.WithSerials(map[string]uint32{"z.test.": 7}).WriteZones(&b); err != nil {
		t.Fatal(err)
	}
	want := `; zone z.test. (static)
z.test.	60	IN	SOA	z.test. hostmaster.z.test. 7 3600 600 604800 60
z.test.	60	IN	NS	z.test.
abs.z.test.	7	IN	CAA	0 issue "x"
sub.z.test.	7200	IN	TXT	"a b" "c"
t.sub.z.test.	7200	CLASS1	TYPE65400	\# 2 abcd
www.sub.z.test.	60	IN	A	192.0.2.2
www.z.test.	7200	IN	A	192.0.2.1
www.z.test.	7200	IN	AAAA	2001:db8::1
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWriteZones shows where derived records come from, and that the same lab gives the same text.
func TestWriteZones(t *testing.T) {
	t.Parallel()
	var one, two strings.Builder
	if err := compile(t, openshift()).WriteZones(&one); err != nil {
		t.Fatal(err)
	}
	if err := compile(t, openshift()).WriteZones(&two); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(one.String(), two.String()); diff != "" {
		t.Errorf("two compilations differ:\n%s", diff)
	}
	want := "master.mycluster.example.com.\t60\tIN\tA\t192.168.131.12\t; host master\n"
	if !strings.Contains(one.String(), want) {
		t.Errorf("no line %q in\n%s", want, one.String())
	}
}

// TestChildHere: a derived zone delegates the zones below it that are here too, so that a secondary of it alone, and who asks for a DS,
// learn of them. That makes no resolver of a server without a forwarder.
func TestChildHere(t *testing.T) {
	t.Parallel()
	l := openshift()
	l.DNS.Forward = nil
	table := compile(t, l)
	s := newServer(t, table, nil)
	wantAnswers(t, s, outside, []dialogue{
		{"mycluster.example.com. DS", "NOERROR aa\nns example.com. SOA bootlab.example.com."},
		{"missing.mycluster.example.com. A", "NXDOMAIN aa\nns mycluster.example.com. SOA bootlab.example.com."},
		{"mycluster.example.com. NS", "NOERROR aa\nan mycluster.example.com. NS bootlab.example.com."},
	})
	wantAnswers(t, s, inside, []dialogue{{"mycluster.example.com. DS", "NOERROR aa\nns example.com. SOA bootlab.example.com."}})
	for _, f := range table.ZoneFiles() {
		if f.Origin == "example.com." && !strings.Contains(f.Text, "mycluster.example.com.\t60\tIN\tNS\tbootlab.example.com.") {
			t.Errorf("example.com does not delegate mycluster.example.com:\n%s", f.Text)
		}
	}
}

// TestSubnet6: clients of a network's IPv6 subnet may use the forwarder.
func TestSubnet6(t *testing.T) {
	t.Parallel()
	table, err := Compile(&lab.Lab{Networks: []*lab.Network{{Name: "n", Subnet: netip.MustParsePrefix("10.0.0.0/24"), Subnet6: netip.MustParsePrefix("fd00:16::/64")}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"10.0.0.9": true, "fd00:16::9": true, "fd00:17::9": false, "10.0.1.9": false} {
		if got := table.mayRecurse(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s may recurse: %t", text, got)
		}
	}
}

// TestBesideCNAME: a zone file may have a CNAME more than once, in another case, and records of DNSSEC beside it, which are answered as they are.
func TestBesideCNAME(t *testing.T) {
	t.Parallel()
	table := compile(t, &lab.Lab{Zones: []*lab.Zone{zoneOfLines("z.test.", "a CNAME www", "A CNAME WWW.Z.test.", "a NSEC www CNAME NSEC", "www A 192.0.2.1", "www NSEC a A NSEC")}})
	wantAnswers(t, newServer(t, table, nil), outside, []dialogue{
		{"a.z.test. A", "NOERROR aa\nan a.z.test. CNAME www.z.test.\nan www.z.test. A 192.0.2.1"},
		{"a.z.test. NSEC", "NOERROR aa\nan a.z.test. NSEC www.z.test. CNAME NSEC"},
		{"a.z.test. CNAME", "NOERROR aa\nan a.z.test. CNAME www.z.test."},
		{"a.z.test. KEY", "NOERROR aa\nns z.test. SOA z.test."},
	})
	if _, err := Compile(&lab.Lab{Zones: []*lab.Zone{zoneOfLines("z.test.", "a CNAME www", "a CNAME www2")}}, nil); err == nil {
		t.Error("two CNAMEs at a name are taken")
	}
}

// TestWildcardBesideEmptyName: a name below an empty non-terminal is not synthesized from a wildcard beside that (RFC 4592 section 2.2.2).
func TestWildcardBesideEmptyName(t *testing.T) {
	t.Parallel()
	table := compile(t, &lab.Lab{Zones: []*lab.Zone{zoneOfLines("z.test.", "* A 192.0.2.1", "a.empty A 192.0.2.2")}})
	wantAnswers(t, newServer(t, table, nil), outside, []dialogue{
		{"b.z.test. A", "NOERROR aa\nan b.z.test. A 192.0.2.1"},
		{"empty.z.test. A", "NOERROR aa\nns z.test. SOA z.test."},
		{"b.empty.z.test. A", "NXDOMAIN aa\nns z.test. SOA z.test."},
	})
}
