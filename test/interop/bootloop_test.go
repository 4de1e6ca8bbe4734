package interop

import (
	"cmp"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// TestBootLoop: an iPXE that leases again and again without a request for its script gets the boot program, and no boot file if it
// fetches no script with that either. A neighbour that forges such leases does not keep the machine from its script.
func TestBootLoop(t *testing.T) {
	t.Parallel()
	d := start(t, newLab(t, "10.106.4"))
	w := d.machine(t, "02:00:00:00:ff:56").wire(t)
	card := mac("52:54:00:00:00:10")
	ipxe := []dhcpv4.Modifier{with(60, "PXEClient:Arch:00007:UNDI:003010"), with(93, "\x00\x07"), with(77, "iPXE"), with(175, "\xb1\x01\x01"), with(55, "\x01\x03\x06\x42\x43\xaf")}
	const most = 40
	file := func() string { return bootFile(w.bind(card, ipxe...).DHCPv4) }
	const program = "boot/52-54-00-00-00-10/ipxe.efi"
	loop := func(want string, before func()) {
		t.Helper()
		rounds, got := 0, ""
		for ; rounds < most; rounds++ {
			before()
			if got = file(); !strings.HasPrefix(got, "http://") {
				break
			}
		}
		if rounds < 3 || got != want {
			t.Errorf("after %d rounds it gets %q, want %q", rounds, got, want)
		}
	}
	loop(program, func() {})
	d.until("the loop is logged", func() bool { return strings.Contains(regexpLine(d.log.String(), "dhcp_loop"), "host=w0") })
	for range 2 * most {
		if got := file(); got != program {
			t.Errorf("more of the same: it gets %q", got)
		}
	}
	// The machine itself fetches the boot program, as before every boot without an iPXE of its own.
	w0 := d.machine(t, card.String(), "10.106.4.10")
	fetch := func() {
		t.Helper()
		if out, err := w0.run("curl", "-sf", "--max-time", "60", "-o", "/dev/null", "tftp://10.106.4.1/"+program); err != nil {
			t.Fatal(err, out)
		}
	}
	fetch()
	// The daemon counts the program once it has the last acknowledgement, which curl does not wait for.
	d.until("the machine has its boot program, and gets its script's address", func() bool { return strings.HasPrefix(file(), "http://") })
	loop("", fetch)
	d.shows("no boot file", "timeline", "w0")
	if ack := w.bind(card, with(12, "w0")); ack.YourIPAddr.String() != "10.106.4.10" {
		t.Errorf("the system gets %s", ack)
	}
	if ack := w.bind(mac("52:54:00:00:00:11"), ipxe...); ack.BootFileName == "" {
		t.Error("another machine gets no boot file")
	}
}

// bootFile returns the boot file that a reply names, in the option or the header; empty: none.
func bootFile(p *dhcpv4.DHCPv4) string { return cmp.Or(p.BootFileNameOption(), p.BootFileName) }
