package dhcpd

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
)

// TestWithoutTFTP: firmware that loads by TFTP gets no boot file; UEFI HTTP boot and iPXE boot as usual.
func TestWithoutTFTP(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, n := range b.lab.Networks {
		n.NoTFTP = true
	}
	b.table = Compile(b.lab)
	for _, tt := range []struct {
		name, mac string
		client    client
		boots     bool
	}{
		{"BIOS", master0, bios, false},
		{"UEFI", master0, ovmf, false},
		{"Raspberry Pi", "b8:27:eb:12:34:56", raspberry3, false},
		{"UEFI HTTP", master0, ovmfHTTP, true},
		{"iPXE", master0, ipxe, true},
	} {
		out := b.exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeDiscover, mac(t, tt.mac), tt.client))
		if len(out) != 1 {
			t.Fatalf("%s: %d offers, want 1", tt.name, len(out))
		}
		offer := decode(t, out[0].data)
		file := offer.BootFileName + string(offer.Options.Get(dhcpv4.OptionBootfileName))
		if (file != "") != tt.boots || !tt.boots && (offer.Options.Has(dhcpv4.OptionTFTPServerName) || offer.Options.Has(dhcpv4.OptionVendorSpecificInformation)) {
			t.Errorf("%s gets boot file %q: want a boot file %v\n%s", tt.name, file, tt.boots, offer.Summary())
		}
	}
	var firmware []string
	for _, f := range BootFiles(b.lab.Host("master-0")) {
		firmware = append(firmware, f.Firmware)
	}
	if diff := cmp.Diff([]string{"UEFI x64 HTTP", "UEFI arm64 HTTP", "UEFI ia32 HTTP", "UEFI arm32 HTTP", "UEFI riscv64 HTTP", "UEFI loongarch64 HTTP", "iPXE"}, firmware); diff != "" {
		t.Errorf("boot files (-want +got):\n%s", diff)
	}
}
