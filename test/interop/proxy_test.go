package interop

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// TestProxyOffers: beside another DHCP server firmware, and only firmware, gets boot information and nothing else, on ports 67 and 4011.
func TestProxyOffers(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.107.2")
	l.lan = "    dhcp: proxy\n"
	l.write()
	d := start(t, l)
	w := d.machine(t, "02:00:00:00:ff:61").wire(t)
	card, addr := mac("52:54:00:00:00:10"), netip.MustParseAddr(l.net+".77")
	w.own(addr.String(), card, nil)
	uuid := with(97, "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10")
	bios := []dhcpv4.Modifier{with(60, "PXEClient:Arch:00000:UNDI:002001"), with(93, "\x00\x00"), uuid, dhcpv4.WithBroadcast(true)}
	uefi := []dhcpv4.Modifier{with(60, "PXEClient:Arch:00007:UNDI:003000"), with(93, "\x00\x07"), uuid, dhcpv4.WithBroadcast(true)}
	ipxe := append([]dhcpv4.Modifier{with(77, "iPXE"), with(175, "\xb1\x01\x01")}, uefi...)
	http := []dhcpv4.Modifier{with(60, "HTTPClient:Arch:00016:UNDI:003001"), with(93, "\x00\x10"), uuid, dhcpv4.WithBroadcast(true)}
	for _, tt := range []struct {
		name   string
		mods   []dhcpv4.Modifier
		file   string // ends so
		vendor string
	}{
		{"PXE BIOS", bios, "/undionly.kpxe", "PXEClient"},
		{"PXE UEFI", uefi, "/ipxe.efi", "PXEClient"},
		{"iPXE", ipxe, "/boot.ipxe", "PXEClient"},
		{"HTTP", http, "/ipxe.efi", "HTTPClient"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			check := func(h captured, kind dhcpv4.MessageType) {
				t.Helper()
				if h.MessageType() != kind || !h.YourIPAddr.IsUnspecified() || h.Options.Has(dhcpv4.OptionIPAddressLeaseTime) || h.SubnetMask() != nil || h.ServerIdentifier().String() != d.addr {
					t.Errorf("want %s with nothing but what to boot, got %s\n%s", kind, h, h.Summary())
				}
				if file := string(h.Options.Get(dhcpv4.OptionBootfileName)); !strings.HasSuffix(file, tt.file) || h.ClassIdentifier() != tt.vendor {
					t.Errorf("boots %q as %q, want …%s as %s", file, h.ClassIdentifier(), tt.file, tt.vendor)
				}
				if string(h.Options.Get(dhcpv4.OptionClientMachineIdentifier)) == "" {
					t.Error("the machine's identifier is not echoed")
				}
			}
			check(w.ask(discover(card, tt.mods...)), dhcpv4.MessageTypeOffer)
			if tt.vendor == "HTTPClient" {
				return
			}
			for _, port := range []uint16{68, 4011} { // firmware asks from either
				p := message(dhcpv4.MessageTypeRequest, card, append(tt.mods, dhcpv4.WithClientIP(net.IP(addr.AsSlice())))...)
				h := w.askFrom(p, netip.AddrPortFrom(addr, port), netip.MustParseAddrPort(d.addr+":4011"))
				check(h, dhcpv4.MessageTypeAck)
				if h.To != netip.AddrPortFrom(addr, port) || h.From.Port() != 4011 {
					t.Errorf("the boot server's answer goes %s > %s, want :4011 > :%d", h.From, h.To, port)
				}
			}
		})
	}
	probe := discover(card, bios...)
	w.silent(discover(card), probe)
	w.silent(discover(numbered(1)), probe)
	w.silent(message(dhcpv4.MessageTypeRequest, card, with(50, string(addr.AsSlice())), with(54, quad(l.net+".9"))), probe)
	w.silent(message(dhcpv4.MessageTypeRequest, card, with(50, quad("192.0.2.7"))), probe) // the other server's to refuse
	if leases, err := d.client.Leases(t.Context()); err != nil || len(leases) != 0 {
		t.Errorf("a server that gives no addresses has leases: %v, %v", leases, err)
	}
}
