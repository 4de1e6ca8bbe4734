package interop

import (
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/internal/api"
)

// TestLeaseCommands: bootlab leases release ends a lease; the lines that bootlab leases reserve prints make a reservation.
func TestLeaseCommands(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.106.5")
	d := start(t, l)
	w := d.machine(t, "02:00:00:00:ff:57").wire(t)
	one, two := w.bind(numbered(1), with(12, "one")), w.bind(numbered(2), with(12, "two"))
	if out, err := d.bootlab("leases", "release", one.YourIPAddr.String()); err != nil {
		t.Fatalf("release: %v\n%s", err, out)
	}
	if holder := d.holder(one.YourIPAddr.String()); holder != "" {
		t.Errorf("the lease book still has %s for it", holder)
	}
	at := dhcpv4.WithClientIP(one.YourIPAddr)
	w.own(one.YourIPAddr.String(), numbered(1), nil)
	h, ok := w.tryFrom(message(dhcpv4.MessageTypeRequest, numbered(1), at), netip.AddrPortFrom(netip.MustParseAddr(one.YourIPAddr.String()), 68), toServers, patience)
	if !ok || (h.MessageType() != dhcpv4.MessageTypeAck && h.MessageType() != dhcpv4.MessageTypeNak) {
		t.Errorf("the machine that had it renews: %s", h)
	}
	cmd := exec.Command(os.Getenv(binaryVar), "leases", "reserve", two.YourIPAddr.String(), "--lab", l.path())
	lines, err := cmd.Output() // messages go to stderr
	if err != nil {
		t.Fatalf("reserve: %v\n%s", err, lines)
	}
	for line := range strings.Lines(string(lines)) {
		if text := strings.TrimSpace(line); text != "" && text != "hosts:" && !strings.HasPrefix(text, "#") {
			l.hosts += line
		}
	}
	l.write()
	if err := d.reload(); err != nil {
		t.Fatalf("the lab with the printed lines: %v\n%s", err, lines)
	}
	leases, err := d.client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(leases, func(l api.Lease) bool {
		return l.IP.String() == two.YourIPAddr.String() && l.Host == "two" && l.Pool == ""
	}) {
		t.Errorf("the lease is no reservation: %+v", leases)
	}
	if again := w.bind(numbered(2)); !again.YourIPAddr.Equal(two.YourIPAddr) {
		t.Errorf("the reserved machine gets %s, had %s", again.YourIPAddr, two.YourIPAddr)
	}
	if h := w.ask(discover(numbered(3), with(50, string(two.YourIPAddr.To4())))); h.YourIPAddr.Equal(two.YourIPAddr) {
		t.Errorf("%s is offered what is reserved for another", h.ClientHWAddr)
	}
}
