package dhcpd

import (
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/internal/lab"
)

// TestLocalBootNone: a host with local_boot: none gets no boot file while it starts from its own disk, whatever firmware
// asks; its address and all the rest it gets as ever. Others get their boot file, and are sent to the disk by their script.
func TestLocalBootNone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		local lab.LocalBoot
		disk  bool
		file  bool
	}{
		{"auto, armed", lab.LocalBootAuto, false, true},
		{"auto, installed", lab.LocalBootAuto, true, true},
		{"none, armed", lab.LocalBootNone, false, true},
		{"none, installed", lab.LocalBootNone, true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.deps.FromDisk = func(h *lab.Host, _ lab.MAC) bool { return tt.disk && h.Name == "master-0" }
			b.lab.Host("master-0").Local = tt.local
			for name, firmware := range map[string]client{"OVMF": ovmf, "OVMF by HTTP": ovmfHTTP, "BIOS": bios, "iPXE": ipxe} {
				out := b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeDiscover, mac(t, master0), firmware))
				if len(out) != 1 {
					t.Fatalf("%s: %d answers", name, len(out))
				}
				p := decode(t, out[0].data)
				if p.YourIPAddr.String() != "10.77.0.21" {
					t.Errorf("%s is offered %s", name, p.YourIPAddr)
				}
				if got := p.BootFileName != "" || p.Options.Has(dhcpv4.OptionBootfileName); got != tt.file {
					t.Errorf("%s: boot file %v, want %v", name, got, tt.file)
				}
				if vendor := p.Options.Has(dhcpv4.OptionClassIdentifier); vendor && !tt.file {
					t.Errorf("%s: option 60 without a boot file, which sends UEFI to port 4011", name)
				}
			}
		})
	}
}
