package dhcpd_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bootlab/bootlab/dhcpd"
	"github.com/bootlab/bootlab/internal/lab/load"
)

func TestBootFiles(t *testing.T) {
	t.Parallel()
	l, err := load.Parse("lab.yaml", []byte(`
version: 1
domain: example
networks:
  n: {subnet: 10.0.0.0/24, interface: br0, address: 10.0.0.1}
  quiet: {subnet: 10.0.1.0/24, interface: br1, address: 10.0.1.1, dhcp: off}
profiles: {p: {kernel: k}, signed: {kernel: k, chain: grub}, rpi: {tree: rpi, kernel: rpi/k}}
hosts:
  boots: {mac: 52:54:00:00:00:01, ip: 10.0.0.11, profile: p}
  bare: {mac: 52:54:00:00:00:02, ip: 10.0.0.12}
  secure: {mac: 52:54:00:00:00:04, ip: 10.0.0.14, profile: signed}
  pi: {mac: "dc:a6:32:00:00:05", ip: 10.0.0.15, profile: rpi}
  silent: {mac: 52:54:00:00:00:03, ip: 10.0.1.13, profile: p}
`), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const tftp, http = "boot/52-54-00-00-00-01/", "http://10.0.0.1:8080/boot/52-54-00-00-00-01/"
	for _, tc := range []struct {
		host string
		want []dhcpd.BootFile
	}{
		{"bare", nil},
		{"silent", nil},
		{"boots", []dhcpd.BootFile{
			{Firmware: "BIOS", File: tftp + "undionly.kpxe"},
			{Firmware: "UEFI x64", File: tftp + "ipxe.efi"},
			{Firmware: "UEFI x64 HTTP", File: http + "ipxe.efi"},
			{Firmware: "UEFI arm64", File: tftp + "snponly-arm64.efi"},
			{Firmware: "UEFI arm64 HTTP", File: http + "snponly-arm64.efi"},
			{Firmware: "iPXE", File: http + "boot.ipxe"},
		}},
		{"pi", []dhcpd.BootFile{
			{Firmware: "Raspberry Pi", File: "rpi/"},
			{Firmware: "UEFI x64", File: "boot/dc-a6-32-00-00-05/ipxe.efi"},
			{Firmware: "UEFI x64 HTTP", File: "http://10.0.0.1:8080/boot/dc-a6-32-00-00-05/ipxe.efi"},
			{Firmware: "UEFI arm64", File: "boot/dc-a6-32-00-00-05/snponly-arm64.efi"},
			{Firmware: "UEFI arm64 HTTP", File: "http://10.0.0.1:8080/boot/dc-a6-32-00-00-05/snponly-arm64.efi"},
			{Firmware: "iPXE", File: "http://10.0.0.1:8080/boot/dc-a6-32-00-00-05/boot.ipxe"},
		}},
		{"secure", []dhcpd.BootFile{
			{Firmware: "BIOS", File: "boot/52-54-00-00-00-04/undionly.kpxe"},
			{Firmware: "UEFI x64", File: "boot/52-54-00-00-00-04/shimx64.efi"},
			{Firmware: "UEFI arm64", File: "boot/52-54-00-00-00-04/shimaa64.efi"},
			{Firmware: "iPXE", File: "http://10.0.0.1:8080/boot/52-54-00-00-00-04/boot.ipxe"},
		}},
	} {
		if diff := cmp.Diff(tc.want, dhcpd.BootFiles(l.Host(tc.host))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.host, diff)
		}
	}
}
