package dhcpd

import (
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/lab"
)

// A BootFile is what one kind of firmware fetches.
type BootFile struct {
	Firmware string // such as "BIOS", "UEFI x64", "iPXE" or "Raspberry Pi"
	File     string // a path by TFTP, or a URL; a folder for a Raspberry Pi, which has its own list of files
}

// BootFiles returns what each kind of firmware of h fetches from its first NIC, iPXE last. It is empty for a host that boots
// nothing from here.
func BootFiles(h *lab.Host) []BootFile {
	if h.Network == nil || h.Network.DHCP == lab.DHCPOff || len(h.MACs) == 0 {
		return nil
	}
	var files []BootFile
	for _, as := range []struct {
		firmware string
		client   wire.ClientKind
		arch     uint16 // a code of its kind
	}{
		{"BIOS", wire.ClientPXE, 0},
		{"UEFI x64", wire.ClientPXE, 7},
		{"UEFI x64 HTTP", wire.ClientHTTP, 16},
		{"UEFI arm64", wire.ClientPXE, 11},
		{"UEFI arm64 HTTP", wire.ClientHTTP, 19},
		{"iPXE", wire.ClientIPXE, 0},
	} {
		boot := bootInfoFor(&wire.Packet{MAC: h.MACs[0], Client: as.client, Arch: as.arch, HasArch: true}, h.Network, h)
		switch {
		case boot.file != "":
			files = append(files, BootFile{Firmware: as.firmware, File: boot.file})
		case boot.vendorInfo == raspberryBoot && h.Profile.Tree != "":
			files = append(files, BootFile{Firmware: "Raspberry Pi", File: h.Profile.Tree + "/"})
		}
	}
	return files
}
