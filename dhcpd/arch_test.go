package dhcpd

import (
	"fmt"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// TestArchitecturesBootTheirPrograms: what option 93 says, by IANA's registry, and what a machine gets that says so, with option 60 as
// PXE or as HTTP boot. Code 9 is x64 for firmware that goes by RFC 4578 as it was first published. Other architectures still get an address.
func TestArchitecturesBootTheirPrograms(t *testing.T) {
	t.Parallel()
	const tftp, http = "boot/52-54-00-00-02-01/", "http://10.77.0.1:8080/boot/52-54-00-00-02-01/"
	for _, tt := range []struct {
		code uint16
		http bool
		what string
		want string
	}{
		{0, false, "BIOS", tftp + "undionly.kpxe"},
		{1, false, "NEC PC-98", ""},
		{6, false, "UEFI IA32", tftp + "ipxe-ia32.efi"},
		{7, false, "UEFI x64", tftp + "ipxe.efi"},
		{9, false, "EBC, meant is x64", tftp + "ipxe.efi"},
		{10, false, "UEFI ARM32", tftp + "ipxe-arm32.efi"},
		{11, false, "UEFI ARM64", tftp + "snponly-arm64.efi"},
		{14, false, "POWER OPAL", ""},
		{15, true, "UEFI IA32", http + "ipxe-ia32.efi"},
		{16, true, "UEFI x64", http + "ipxe.efi"},
		{17, true, "EBC", http + "ipxe.efi"},
		{18, true, "UEFI ARM32", http + "ipxe-arm32.efi"},
		{19, true, "UEFI ARM64", http + "snponly-arm64.efi"},
		{20, true, "BIOS", ""},
		{21, false, "U-Boot ARM32", ""},
		{22, false, "U-Boot ARM64", ""},
		{25, false, "UEFI RISC-V 32", ""},
		{27, false, "UEFI RISC-V 64", tftp + "ipxe-riscv64.efi"},
		{28, true, "UEFI RISC-V 64", http + "ipxe-riscv64.efi"},
		{31, false, "s390", ""},
		{37, false, "UEFI LoongArch 32", ""},
		{39, false, "UEFI LoongArch 64", tftp + "ipxe-loong64.efi"},
		{40, true, "UEFI LoongArch 64", http + "ipxe-loong64.efi"},
	} {
		t.Run(fmt.Sprintf("%d %s", tt.code, tt.what), func(t *testing.T) {
			t.Parallel()
			vendor := vendorPXE
			if tt.http {
				vendor = vendorHTTP
			}
			for name, more := range map[string][]dhcpv4.Modifier{
				"option 93":       {raw(60, vendor), raw(93, string([]byte{byte(tt.code >> 8), byte(tt.code)}))},
				"option 60 alone": {raw(60, fmt.Sprintf("%s:Arch:%05d:UNDI:003000", vendor, tt.code)), dhcpv4.WithoutOption(dhcpv4.OptionClientSystemArchitectureType)},
			} {
				out := newBench(t).exchange("lab0", 67, client0, message(t, dhcpv4.MessageTypeDiscover, mac(t, master0), ovmf, more...))
				if len(out) != 1 {
					t.Fatalf("%s: %d answers", name, len(out))
				}
				p := decode(t, out[0].data)
				if p.BootFileName != tt.want || string(p.Options[67]) != tt.want || p.YourIPAddr.String() != "10.77.0.21" {
					t.Errorf("%s: %s gets %q, in option 67 %q, want %q", name, p.YourIPAddr, p.BootFileName, p.Options[67], tt.want)
				}
				if has := p.Options.Has(dhcpv4.OptionClassIdentifier); has != (tt.want != "") {
					t.Errorf("%s: option 60 %v without a boot file would send firmware to port 4011", name, has)
				}
			}
		})
	}
}
