package firmware

import "slices"

// The names of the programs, as they appear in TFTP and HTTP paths.
const (
	BIOS    = "undionly.kpxe"     // x86 BIOS, uses the NIC's PXE stack (UNDI)
	UEFI    = "ipxe.efi"          // UEFI x86-64, has its own drivers
	UEFISNP = "snponly.efi"       // UEFI x86-64, uses the firmware's driver
	ARM64   = "snponly-arm64.efi" // UEFI 64-bit Arm, uses the firmware's driver

	// Signed by a distribution, for Secure Boot. shim loads GRUB by this name from its own folder.
	ShimX64   = "shimx64.efi"
	GRUBX64   = "grubx64.efi"
	ShimARM64 = "shimaa64.efi"
	GRUBARM64 = "grubaa64.efi"
)

// A project is the software that a program is a build of.
type project struct {
	what    string
	licence string // SPDX
	source  string
}

// A program is a network boot program that bootlab knows by name.
type program struct {
	project
	name     string
	runs     string // the firmware that runs it
	about    string
	system   string // its path in Debian's package; empty: in no package
	pkg      string // Debian's package
	optional bool   // needed only by labs with chain: grub
}

// programs returns all known programs, the most used first.
func programs() []program {
	ipxe := project{"iPXE", "GPL-2.0-or-later", "https://github.com/ipxe/ipxe"}
	shim := project{"shim", "BSD-2-Clause", "https://github.com/rhboot/shim"}
	grub := project{"GRUB", "GPL-3.0-or-later", "https://www.gnu.org/software/grub"}
	const x64, arm64 = "UEFI x64", "UEFI arm64"
	return []program{
		{ipxe, BIOS, "BIOS", "on the NIC's PXE stack", "/usr/lib/ipxe/undionly.kpxe", "ipxe", false},
		{ipxe, UEFI, x64, "with its own drivers", "/boot/ipxe.efi", "ipxe", false},
		{ipxe, UEFISNP, x64, "on the firmware's driver", "/usr/lib/ipxe/snponly.efi", "ipxe", false},
		{ipxe, ARM64, arm64, "on the firmware's driver", "", "", false},
		{shim, ShimX64, x64, "Secure Boot: starts GRUB", "/usr/lib/shim/shimx64.efi.signed", "shim-signed", true},
		{grub, GRUBX64, x64, "Secure Boot: starts kernels", "/usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed", "grub-efi-amd64-signed", true},
		{shim, ShimARM64, arm64, "Secure Boot: starts GRUB", "/usr/lib/shim/shimaa64.efi.signed", "shim-signed:arm64", true},
		{grub, GRUBARM64, arm64, "Secure Boot: starts kernels", "/usr/lib/grub/arm64-efi-signed/grubnetaa64.efi.signed", "grub-efi-arm64-signed:arm64", true},
	}
}

// Names returns the names of all programs, sorted.
func Names() []string {
	var names []string
	for _, p := range programs() {
		names = append(names, p.name)
	}
	slices.Sort(names)
	return names
}
