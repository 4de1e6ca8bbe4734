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
  ignored: {mac: 52:54:00:00:00:06, ip: 10.0.0.16, profile: p, dhcp: off}
  silent: {mac: 52:54:00:00:00:03, ip: 10.0.1.13, profile: p}
`), load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const tftp, http = "boot/52-54-00-00-00-01/", "http://10.0.0.1:8080/boot/52-54-00-00-00-01/"
	// more are the files of --firmware, which DHCP names whether they exist or not, and the script.
	more := func(mac string) (files []dhcpd.BootFile) {
		for _, f := range [][2]string{{"UEFI ia32", "ipxe-ia32.efi"}, {"UEFI arm32", "ipxe-arm32.efi"}, {"UEFI riscv64", "ipxe-riscv64.efi"}, {"UEFI loongarch64", "ipxe-loong64.efi"}} {
			path := "boot/" + mac + "/" + f[1]
			files = append(files, dhcpd.BootFile{Firmware: f[0], File: path}, dhcpd.BootFile{Firmware: f[0] + " HTTP", File: "http://10.0.0.1:8080/" + path})
		}
		return append(files, dhcpd.BootFile{Firmware: "iPXE", File: "http://10.0.0.1:8080/boot/" + mac + "/boot.ipxe"})
	}
	for _, tc := range []struct {
		host string
		want []dhcpd.BootFile
	}{
		{"bare", nil},
		{"silent", nil},
		{"ignored", nil},
		{"boots", append([]dhcpd.BootFile{
			{Firmware: "BIOS", File: tftp + "undionly.kpxe"},
			{Firmware: "UEFI x64", File: tftp + "ipxe.efi"},
			{Firmware: "UEFI x64 HTTP", File: http + "ipxe.efi"},
			{Firmware: "UEFI arm64", File: tftp + "snponly-arm64.efi"},
			{Firmware: "UEFI arm64 HTTP", File: http + "snponly-arm64.efi"},
		}, more("52-54-00-00-00-01")...)},
		{"pi", append([]dhcpd.BootFile{
			{Firmware: "Raspberry Pi", File: "rpi/"},
			{Firmware: "UEFI x64", File: "boot/dc-a6-32-00-00-05/ipxe.efi"},
			{Firmware: "UEFI x64 HTTP", File: "http://10.0.0.1:8080/boot/dc-a6-32-00-00-05/ipxe.efi"},
			{Firmware: "UEFI arm64", File: "boot/dc-a6-32-00-00-05/snponly-arm64.efi"},
			{Firmware: "UEFI arm64 HTTP", File: "http://10.0.0.1:8080/boot/dc-a6-32-00-00-05/snponly-arm64.efi"},
		}, more("dc-a6-32-00-00-05")...)},
		{"secure", append([]dhcpd.BootFile{
			{Firmware: "BIOS", File: "boot/52-54-00-00-00-04/undionly.kpxe"},
			{Firmware: "UEFI x64", File: "boot/52-54-00-00-00-04/shimx64.efi"},
			{Firmware: "UEFI arm64", File: "boot/52-54-00-00-00-04/shimaa64.efi"},
		}, more("52-54-00-00-00-04")...)},
	} {
		if diff := cmp.Diff(tc.want, dhcpd.BootFiles(l.Host(tc.host))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.host, diff)
		}
	}
}
