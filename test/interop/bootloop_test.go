package interop

import (
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// TestBootLoop: an iPXE that leases again and again without a request for its script gets no boot file.
func TestBootLoop(t *testing.T) {
	t.Parallel()
	d := start(t, newLab(t, "10.106.4"))
	w := d.machine(t, "02:00:00:00:ff:56").wire(t)
	card := mac("52:54:00:00:00:10")
	ipxe := []dhcpv4.Modifier{with(60, "PXEClient:Arch:00007:UNDI:003010"), with(93, "\x00\x07"), with(77, "iPXE"), with(175, "\xb1\x01\x01"), with(55, "\x01\x03\x06\x42\x43\xaf")}
	const most = 40
	rounds := 0
	for ; rounds < most; rounds++ {
		if ack := w.bind(card, ipxe...); ack.BootFileName == "" && !ack.Options.Has(dhcpv4.OptionBootfileName) {
			break
		}
	}
	if rounds == most || rounds < 3 {
		t.Errorf("%d rounds until it gets no boot file", rounds)
	}
	d.until("the loop is logged", func() bool { return strings.Contains(regexpLine(d.log.String(), "dhcp_loop"), "host=w0") })
	out, err := d.bootlab("timeline", "w0")
	if err != nil || !strings.Contains(out, "no boot file") {
		t.Errorf("its timeline does not show the loop: %v\n%s", err, out)
	}
	if ack := w.bind(card, with(12, "w0")); ack.YourIPAddr.String() != "10.106.4.10" {
		t.Errorf("the system gets %s", ack)
	}
	if ack := w.bind(mac("52:54:00:00:00:11"), ipxe...); ack.BootFileName == "" {
		t.Error("another machine gets no boot file")
	}
}
