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

	// Neither built in nor in a package: see Added.
	IA32        = "ipxe-ia32.efi"
	ARM32       = "ipxe-arm32.efi"
	RISCV64     = "ipxe-riscv64.efi"
	LoongArch64 = "ipxe-loong64.efi"
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
	name   string
	runs   string // the firmware that runs it
	about  string
	system string // its path in Debian's package; empty: in no package
	pkg    string // Debian's package
	only   string // who needs it; empty: any lab
}

// programs returns all known programs, the most used first.
func programs() []program {
	ipxe := project{"iPXE", "GPL-2.0-or-later", "https://github.com/ipxe/ipxe"}
	shim := project{"shim", "BSD-2-Clause", "https://github.com/rhboot/shim"}
	grub := project{"GRUB", "GPL-3.0-or-later", "https://www.gnu.org/software/grub"}
	const x64, arm64, grubLabs, driver = "UEFI x64", "UEFI arm64", "labs with chain: grub", "on the firmware's driver"
	return []program{
		{ipxe, BIOS, "BIOS", "on the NIC's PXE stack", "/usr/lib/ipxe/undionly.kpxe", "ipxe", ""},
		{ipxe, UEFI, x64, "with its own drivers", "/boot/ipxe.efi", "ipxe", ""},
		{ipxe, UEFISNP, x64, driver, "/usr/lib/ipxe/snponly.efi", "ipxe", ""},
		{ipxe, ARM64, arm64, driver, "", "", ""},
		{shim, ShimX64, x64, "Secure Boot: starts GRUB", "/usr/lib/shim/shimx64.efi.signed", "shim-signed", grubLabs},
		{grub, GRUBX64, x64, "Secure Boot: starts kernels", "/usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed", "grub-efi-amd64-signed", grubLabs},
		{shim, ShimARM64, arm64, "Secure Boot: starts GRUB", "/usr/lib/shim/shimaa64.efi.signed", "shim-signed:arm64", grubLabs},
		{grub, GRUBARM64, arm64, "Secure Boot: starts kernels", "/usr/lib/grub/arm64-efi-signed/grubnetaa64.efi.signed", "grub-efi-arm64-signed:arm64", grubLabs},
		{ipxe, IA32, "UEFI ia32", driver, "", "", "such machines"},
		{ipxe, ARM32, "UEFI arm32", driver, "", "", "such machines"},
		{ipxe, RISCV64, "UEFI riscv64", driver, "", "", "such machines"},
		{ipxe, LoongArch64, "UEFI loongarch64", driver, "", "", "such machines"},
	}
}

// Added reports whether a program of that name is served only if the folder of --firmware has it.
func Added(name string) bool {
	return slices.ContainsFunc(programs(), func(p program) bool { return p.name == name && p.pkg == "" && p.only != "" })
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
