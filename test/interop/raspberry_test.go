package interop

import (
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/test/support/netns"
)

// TestRaspberryPi sends what the boot loaders of Raspberry Pis send: a Pi 3 uses the OFFER and asks for no lease, a Pi 4 leases an address,
// here of a pool; then both fetch their files by TFTP, below their serial number. Beside another DHCP server it is the same.
func TestRaspberryPi(t *testing.T) {
	t.Parallel()
	pi3 := []dhcpv4.Modifier{with(60, "PXEClient:Arch:00000:UNDI:002001"), with(93, "\x00\x00"), with(94, "\x01\x02\x01"), with(97, "\x00"+strings.Repeat("\x56\x34\x12\x00", 4))}
	pi4 := append(pi3[:3:3], with(97, "\x00RPi4\x11\x31\xc0\x00\x32\x01\x02\x03\xef\xbe\xad\xde"))
	const pool = "    pools: {pis: {range: NET.100-NET.100, mac: [\"dc:a6:32:*:*:*\"], profile: rpi}}\n"
	for _, tt := range []struct {
		name, subnet, lan string
		card              string
		who               []dhcpv4.Modifier
		asks              bool
		addr              string
	}{
		{"Pi 3", "10.108.1", "", "b8:27:eb:12:34:56", pi3, false, "10.108.1.41"},
		{"Pi 4 of a pool", "10.108.2", pool, "dc:a6:32:01:02:03", pi4, true, "10.108.2.100"},
		{"Pi 3 beside another server", "10.108.3", "    dhcp: proxy\n", "b8:27:eb:12:34:56", pi3, false, "10.108.3.41"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			netns.Need(t, "curl")
			l := newLab(t, tt.subnet)
			l.lan = tt.lan
			l.profiles = "  rpi: {tree: media/rpi, kernel: media/rpi/kernel8.img, install: never}\n"
			l.hosts = "  pi: {mac: \"b8:27:eb:12:34:56\", ip: NET.41, profile: rpi}\n"
			l.file("files/media/rpi/kernel8.img", []byte("kernel"))
			l.file("files/media/rpi/config.txt", []byte("arm_64bit=1\n"))
			l.write()
			d := start(t, l)
			m := d.machine(t, tt.card, tt.addr)
			w := m.wire(t)
			offer := w.ask(discover(mac(tt.card), tt.who...))
			if words := string(offer.Options.Get(dhcpv4.OptionVendorSpecificInformation)); !strings.Contains(words, "Raspberry Pi Boot") || offer.ServerIPAddr.String() != d.addr {
				t.Errorf("it waits for the words and for a server, and gets %q and %s", words, offer.ServerIPAddr)
			}
			if tt.asks {
				if ack := w.ask(selecting(offer, tt.who...)); ack.YourIPAddr.String() != tt.addr {
					t.Errorf("it gets %s, want %s", ack.YourIPAddr, tt.addr)
				}
			}
			for name, want := range map[string]string{"deadbeef/config.txt": "arm_64bit=1\n", "kernel8.img": "kernel"} {
				if out, err := m.run("curl", "-sS", "-m", "60", "tftp://"+d.addr+"/"+name); err != nil || out != want {
					t.Errorf("%s: %q, %v", name, out, err)
				}
			}
			if out, err := m.run("curl", "-sS", "-m", "10", "tftp://"+d.addr+"/bootsig.bin"); err == nil {
				t.Errorf("bootsig.bin: %q", out)
			}
			if out, err := d.bootlab("timeline", strings.ReplaceAll(tt.card, ":", "-")); err == nil && strings.Contains(out, "bootsig") {
				t.Errorf("its timeline has what it can do without:\n%s", out)
			}
		})
	}
}
