package dhcpd

import (
	"bootlab/internal/lab"

	"github.com/insomniacslk/dhcp/iana"
)

// A BootFile is what one kind of firmware is told to fetch.
type BootFile struct {
	Firmware string // such as "BIOS", "UEFI x64" or "iPXE"
	File     string // a path by TFTP, or a URL
}

// BootFiles returns what h is told to fetch as each kind of firmware, iPXE last, from its first NIC: for people who plan.
// It is empty for a host that boots nothing from here.
func BootFiles(h *lab.Host) []BootFile {
	if h.Network == nil || h.Network.DHCP == lab.DHCPOff || len(h.MACs) == 0 {
		return nil
	}
	var files []BootFile
	for _, as := range []struct {
		firmware string
		stage    Stage
		arch     iana.Arch
	}{
		{"BIOS", StagePXE, iana.INTEL_X86PC},
		{"UEFI x64", StagePXE, iana.EFI_X86_64},
		{"UEFI x64 HTTP", StageHTTP, iana.EFI_X86_64_HTTP},
		{"UEFI arm64", StagePXE, iana.EFI_ARM64},
		{"UEFI arm64 HTTP", StageHTTP, iana.EFI_ARM64_HTTP},
		{"iPXE", StageIPXE, iana.INTEL_X86PC},
	} {
		boot := bootFor(&request{mac: h.MACs[0], stage: as.stage, arch: as.arch, hasArch: true}, h.Network, h)
		if boot.file != "" {
			files = append(files, BootFile{Firmware: as.firmware, File: boot.file})
		}
	}
	return files
}
