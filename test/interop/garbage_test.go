package interop

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/miekg/dns"

	"github.com/bootlab/bootlab/test/support/netns"
)

// seeds are valid packets of every protocol, to be mutated.
func seeds(t *testing.T) map[string][]byte {
	t.Helper()
	discover, err := dhcpv4.NewDiscovery(numbered(1), dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient:Arch:00007:UNDI:003000")))
	if err != nil {
		t.Fatal(err)
	}
	query := new(dns.Msg)
	query.SetQuestion("w0.lab.test.", dns.TypeA)
	query.SetEdns0(1232, true)
	q, err := query.Pack()
	if err != nil {
		t.Fatal(err)
	}
	hello, err := hex.DecodeString("16030100750100007103030000000000000000000000000000000000000000000000000000000000000000000002130101000046000000110" +
		"00f00000c776f7773652e6c61622e74")
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"dhcp": discover.ToBytes(),
		"dns":  q,
		"tftp": []byte("\x00\x01files/public/motd\x00octet\x00blksize\x001468\x00windowsize\x0064\x00tsize\x000\x00"),
		"http": []byte("GET /boot/52-54-00-00-00-10/boot.ipxe HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999999999999999\r\nTransfer-Encoding: chunked\r\n\r\n"),
		"tls":  hello,
	}
}

// mutate returns a packet that is random, truncated, changed or too long.
func mutate(seed []byte) []byte {
	b := append([]byte(nil), seed...)
	switch rand.IntN(4) {
	case 0:
		return b[:rand.IntN(len(b))]
	case 1:
		for range 1 + rand.IntN(8) {
			b[rand.IntN(len(b))] = byte(rand.Uint32())
		}
		return b
	case 2:
		return append(b, b...)
	default:
		b = make([]byte, rand.IntN(1400))
		for i := range b {
			b[i] = byte(rand.Uint32())
		}
		return b
	}
}

// sendGarbage sends mutated packets until stop, a few hundred a second.
func (m *machine) sendGarbage(network, addr string, seed []byte) func(int) error {
	return func(int) error {
		time.Sleep(3 * time.Millisecond)
		err := m.inside(func() error {
			c, err := net.DialTimeout(network, addr, patience)
			if err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_, _ = c.Write(mutate(seed)) // may be refused in the middle
			return nil
		})
		if opErr := (*net.OpError)(nil); errors.As(err, &opErr) && !opErr.Timeout() && network == "udp" {
			return nil // an ICMP error for the packet before
		}
		return err
	}
}

// TestGarbage sends garbage to every socket for some seconds, while valid requests are served.
func TestGarbage(t *testing.T) {
	t.Parallel()
	netns.Need(t, "dig", "udhcpc")
	l := newLab(t, "10.92.1")
	l.balancers = `  tcp: {listen: "NET.1:7000", backends: ["NET.1:7001"]}
  sni: {listen: "NET.1:7443", match: {sni: [a.lab.test]}, backends: ["NET.1:7001"]}
  web: {listen: "NET.1:7080", mode: http, backends: ["NET.1:8080"]}
  proxied: {listen: "NET.1:7002", accept_proxy: [NET.0/24], backends: ["NET.1:7001"]}
`
	l.write()
	echo(t, "10.92.1.1:7001")
	d := start(t, l)
	vandal := d.machine(t, "52:54:00:00:ff:03", "10.92.1.3")
	good := d.machine(t, "52:54:00:00:00:10", "10.92.1.4")

	c, stop := newCrowd(t)
	defer stop()
	s := seeds(t)
	for _, at := range []struct{ network, port, seed string }{
		{"udp", "67", "dhcp"}, {"udp", "53", "dns"}, {"udp", "69", "tftp"},
		{"tcp", "53", "dns"}, {"tcp", "8080", "http"}, {"tcp", "9680", "http"},
		{"tcp", "7000", "tls"}, {"tcp", "7443", "tls"}, {"tcp", "7080", "http"}, {"tcp", "7002", "tls"},
	} {
		c.join("garbage "+at.network+" "+at.port, vandal.sendGarbage(at.network, d.addr+":"+at.port, s[at.seed]))
	}
	c.join("dig", func(int) error {
		out, err := good.run("dig", "+short", "@"+d.addr, "w0.lab.test")
		if strings.TrimSpace(out) != "10.92.1.10" {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	c.join("curl", func(int) error {
		if status, body := good.get("10.92.1.4", "files/public/motd"); status != 200 || body != "hello\n" {
			return fmt.Errorf("%d %q", status, body)
		}
		return nil
	})
	c.join("tftp", func(int) error {
		out, err := good.run("curl", "-sS", "-m", "60", "tftp://"+d.addr+"/files/public/motd")
		if out != "hello\n" {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	leased := d.machine(t, "52:54:00:00:00:11")
	c.join("udhcpc", func(int) error {
		if addr := leased.lease(t); addr != "10.92.1.11" {
			return fmt.Errorf("got %q", addr)
		}
		return nil
	})
	time.Sleep(4 * time.Second)
	for _, series := range []string{
		`bootlab_dhcpd_packets_dropped_total{reason="malformed"}`,
		`bootlab_dnsd_queries_dropped_total{reason="malformed"}`,
		`bootlab_tftpd_packets_dropped_total{reason="malformed"}`,
		`bootlab_lbproxy_rejected_total{balancer="",reason="no_match"}`,
	} {
		d.until(series+" counts", func() bool { return d.metric(series) > 0 })
	}
	counts := stop()
	t.Logf("%v", counts)
	if !d.alive() {
		t.Fatal("the daemon ended")
	}
	if log := d.log.String(); strings.Contains(log, "panic") {
		t.Error("a handler panicked")
	}
	if n := d.metric("process_open_fds"); n > 1300 { // two for each of 512 abandoned transfers
		t.Errorf("%v files are open after the garbage", n)
	}
}
