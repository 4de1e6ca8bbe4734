package qemu_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/guest"
	"github.com/bootlab/bootlab/test/support/qemu"
)

// BenchmarkLocalBoot measures how long a machine takes from power-on to the system on its disk, with the network before the disk in
// its boot order, for every way of telling it to boot from there.
func BenchmarkLocalBoot(b *testing.B) {
	// dhcpd's localDiskMenu: discovery off, a menu whose first item is "boot from the local disk", and a prompt of 0 seconds.
	menu := []string{
		"dhcp-option-force=tag:!http,60,PXEClient",
		"dhcp-option-force=tag:!http,43,06:01:03:09:0d:00:00:0a:4c:6f:63:61:6c:20:64:69:73:6b:0a:0b:00:4c:6f:63:61:6c:20:64:69:73:6b:ff",
	}
	menuAndHTTP := append(slices.Clone(menu), "dhcp-option-force=tag:http,60,HTTPClient", "dhcp-boot=tag:http,http://"+address+":8080/ipxe.efi")
	silent := []string{"dhcp-ignore=tag:!known"}
	tests := []struct {
		name     string
		firmware qemu.Firmware
		dhcp     []string
		script   string
	}{
		{"bios/ipxe sanboot", qemu.BIOS, bootTags(), "#!ipxe\nsanboot --no-describe --drive 0x80 || exit\n"},
		{"bios/ipxe exit", qemu.BIOS, bootTags(), "#!ipxe\nexit 1\n"},
		{"bios/no boot file", qemu.BIOS, nil, ""},
		{"bios-plain/undionly sanboot", qemu.BIOSPlain, bootTags(), "#!ipxe\nsanboot --no-describe --drive 0x80 || exit\n"},
		{"bios-plain/undionly exit", qemu.BIOSPlain, bootTags(), "#!ipxe\nexit 1\n"},
		{"uefi-pxe/no boot file", qemu.UEFIPXE, nil, ""},
		{"uefi-pxe/ipxe exit 1", qemu.UEFIPXE, bootTags(), "#!ipxe\nexit 1\n"},
		{"uefi-pxe/menu type 0", qemu.UEFIPXE, menu, ""},
		{"uefi-pxe/menu type 0, ipxe exit 1 by HTTP", qemu.UEFIPXE, menuAndHTTP, "#!ipxe\nexit 1\n"},
		{"uefi-pxe/no answer", qemu.UEFIPXE, silent, ""},
		{"uefi-http/no boot file", qemu.UEFIHTTP, nil, ""},
		{"uefi-http/ipxe exit 1", qemu.UEFIHTTP, bootTags(), "#!ipxe\nexit 1\n"},
		{"disk first/bios", qemu.BIOS, nil, ""},
		{"disk first/uefi", qemu.UEFIPXE, nil, ""},
	}
	for _, tt := range tests {
		b.Run(tt.name, func(b *testing.B) {
			for b.Loop() {
				s := newStandIn(b, tt.dhcp...)
				s.script = func(w http.ResponseWriter) { _, _ = io.WriteString(w, tt.script) }
				disk := installedDisk(b, s.files)
				first := strings.HasPrefix(tt.name, "disk first")
				m := qemu.Start(b, qemu.Config{Bridge: s.seg.Bridge, MAC: mac, Firmware: tt.firmware, Disk: disk, DiskFirst: first})
				line := m.Await(b, 400*time.Second, "GUEST installed system booted from disk")
				m.Kill()
				b.ReportMetric(line.At.Seconds(), "s/boot")
			}
		})
	}
}

// installedDisk returns a copy of the guest's disk, as the installer leaves it.
func installedDisk(t testing.TB, files guest.Files) string {
	t.Helper()
	from, err := os.Open(files.Disk)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	path := filepath.Join(t.TempDir(), "disk.img")
	to, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(to, from)
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}
