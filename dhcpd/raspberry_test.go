package dhcpd

import (
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/internal/lab"
)

const (
	pi3     = "b8:27:eb:12:34:56" // reserved 10.77.0.41
	piProxy = "b8:27:eb:00:00:79" // in the proxied network
)

// raspberry3 is the ROM of a Pi 3: it has no serial number in option 97 but four times the same.
func raspberry3(lab.MAC) []dhcpv4.Modifier {
	return []dhcpv4.Modifier{
		raw(60, "PXEClient:Arch:00000:UNDI:002001"), raw(93, "\x00\x00"), raw(94, "\x01\x02\x01"),
		raw(97, "\x00"+strings.Repeat("\x56\x34\x12\x00", 4)), raw(55, "\x01\x03\x2b\x3c\x42\x43\x80\x81\x82\x83\x84\x85\x86\x87"),
	}
}

// raspberry4 is the boot loader in the EEPROM of a Pi 4 or 5: four letters, revision, MAC and serial number are in option 97.
func raspberry4(m lab.MAC) []dhcpv4.Modifier {
	return append(raspberry3(m), raw(97, "\x00RPi4\x11\x31\xc0\x00\x32\x01\x02\x03\xef\xbe\xad\xde"))
}

// TestRaspberryPiOffer: a Pi's boot loader takes an offer with "Raspberry Pi Boot" in option 43 alone (a Pi 3B looks for
// three blanks behind it), and finds the TFTP server in siaddr or option 66. It never asks for the address that it is offered.
func TestRaspberryPiOffer(t *testing.T) {
	t.Parallel()
	with := func(c client, more ...dhcpv4.Modifier) client {
		return func(m lab.MAC) []dhcpv4.Modifier { return append(c(m), more...) }
	}
	for _, tt := range []struct {
		name, mac, iface string
		who              client
		words            bool
		file             string
	}{
		{"Pi 3", pi3, "lab0", raspberry3, true, ""},
		{"Pi 4, by what it says of itself", master0, "lab0", raspberry4, true, ""},
		{"architecture 41", master0, "lab0", with(bios, raw(93, "\x00\x29")), true, ""},
		{"no architecture", pi3, "lab0", with(bios, raw(60, "PXEClient"), dhcpv4.WithoutOption(dhcpv4.OptionClientSystemArchitectureType)), true, ""},
		{"Pi 3, beside another server", piProxy, "lab1", raspberry3, true, ""},
		{"a PC", master0, "lab0", bios, false, "boot/52-54-00-00-02-01/undionly.kpxe"},
		{"UEFI on a Pi", pi3, "lab0", with(ovmf, raw(93, "\x00\x0b")), false, "boot/b8-27-eb-12-34-56/snponly-arm64.efi"},
		{"iPXE on a Pi", pi3, "lab0", ipxe, false, "http://10.77.0.1:8080/boot/b8-27-eb-12-34-56/boot.ipxe"},
		{"the system of a Pi", pi3, "lab0", networkd, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out := newBench(t).exchange(tt.iface, 67, client0, message(t, dhcpv4.MessageTypeDiscover, mac(t, tt.mac), tt.who))
			if len(out) != 1 {
				t.Fatalf("%d answers, want 1", len(out))
			}
			p := decode(t, out[0].data)
			if got := strings.Contains(string(p.Options[43]), "Raspberry Pi Boot   "); got != tt.words {
				t.Errorf("option 43 % x: the words are there: %v, want %v", p.Options[43], got, tt.words)
			}
			if p.BootFileName != tt.file {
				t.Errorf("boot file %q, want %q", p.BootFileName, tt.file)
			}
			if !tt.words {
				return
			}
			if server := string(p.Options[66]); p.ServerIPAddr.String() != server || !strings.HasSuffix(server, ".1") || string(p.Options[60]) != vendorPXE {
				t.Errorf("siaddr %s, option 66 %q, option 60 %q: want our address twice, and PXEClient", p.ServerIPAddr, server, p.Options[60])
			}
		})
	}
}
