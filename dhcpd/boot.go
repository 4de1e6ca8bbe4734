package dhcpd

import (
	"net/netip"

	"bootlab/internal/lab"

	"github.com/insomniacslk/dhcp/iana"
)

// Network boot programs, by name in the boot plane.
const (
	nbpBIOS  = "undionly.kpxe"
	nbpX64   = "ipxe.efi"
	nbpARM64 = "snponly-arm64.efi"
)

const (
	vendorPXE  = "PXEClient"
	vendorHTTP = "HTTPClient"
)

// Values of option 43 for PXE (PXE 2.1 section 2.2, table 2-1), written by hand because each must end in its own 255.
const (
	// useBootFile: tag 6 (discovery control) with bit 3, "no discovery: boot the file named in this packet". Without it a
	// UEFI that reads PXEClient in option 60 ignores the boot file and asks port 4011 instead.
	useBootFile = "\x06\x01\x08\xff"
	// localDiskMenu: discovery off (bits 0 and 1), a menu (tag 9) whose first item has type 0, which is "boot from the local
	// disk", and a prompt (tag 10) that waits 0 seconds. EDK2 takes the first item and returns EFI_ABORTED, on which the
	// boot manager goes on to the next boot option (PxeBcBoot.c, PxeBcDiscoverBootFile). TestOVMF sees it: "PXE-E21: Remote
	// boot cancelled" right after the acknowledgement.
	localDiskMenu = "\x06\x01\x03" + "\x09\x0d\x00\x00\x0aLocal disk" + "\x0a\x0b\x00Local disk" + "\xff"
	// noPXEDHCP, in option 175: iPXE need not wait for a second, proxy DHCP server; saves 2 to 3 seconds a boot.
	noPXEDHCP = "\xb0\x01\x01"
)

// A bootInfo is what a packet says about booting. The zero value says nothing.
type bootInfo struct {
	file   string     // path by TFTP, or URL
	next   netip.Addr // TFTP server; invalid where file is a URL
	vendor string     // option 60
	pxe    string     // option 43
	ipxe   string     // option 175
}

// nbpOf returns the network boot program for an architecture, or "" where there is none. Some firmware says 9 (EBC) for
// x64, because RFC 4578 as published had 7 and 9 the wrong way round.
func nbpOf(r *request) string {
	if !r.hasArch {
		return nbpBIOS
	}
	switch r.arch {
	case iana.INTEL_X86PC:
		return nbpBIOS
	case iana.EFI_BC, iana.EFI_X86_64, iana.EFI_X86_64_HTTP, iana.EFI_BC_HTTP:
		return nbpX64
	case iana.EFI_ARM64, iana.EFI_ARM64_HTTP:
		return nbpARM64
	}
	return ""
}

// bootFor decides what a machine in this stage boots. An operating system never gets a boot file: Debian's installer,
// for one, takes any URL there for its preseed file.
func (s *Server) bootFor(r *request, n *lab.Network, host *lab.Host) bootInfo {
	if r.stage == StageOS || host == nil || host.Profile == nil || !n.Address.IsValid() {
		return bootInfo{}
	}
	if s.deps.Boots.LocalBoot(host) && r.stage != StageIPXE && !isBIOS(r) {
		return localBootUEFI(r)
	}
	// BIOS firmware gets iPXE, and iPXE its script, even for a machine that is to boot its disk: the script says so, with
	// sanboot or exit, where no boot file would leave a BIOS waiting.
	switch r.stage {
	case StageIPXE:
		return bootInfo{file: n.ScriptURL(r.mac), next: n.Address, ipxe: noPXEDHCP}
	case StageHTTP:
		return httpBoot(r, n)
	default:
		return pxeBoot(r, n)
	}
}

// httpBoot: UEFI takes an offer for HTTP boot only if option 60 says HTTPClient in offer and acknowledgement.
func httpBoot(r *request, n *lab.Network) bootInfo {
	nbp := nbpOf(r)
	if nbp == "" || nbp == nbpBIOS || n.BaseURL == "" {
		return bootInfo{}
	}
	return bootInfo{file: n.BootURL(r.mac, nbp), vendor: vendorHTTP}
}

// pxeBoot says PXEClient together with useBootFile. EDK2 then takes the offer at its highest rank (DhcpPxe10 in
// PxeBcDhcp4.c), above any proxy on the wire, and boots the file without asking port 4011; a plain offer without option
// 60 would boot too, but ranks below every proxy. TestOVMF sees it with real firmware.
func pxeBoot(r *request, n *lab.Network) bootInfo {
	nbp := nbpOf(r)
	if nbp == "" {
		return bootInfo{}
	}
	return bootInfo{file: lab.BootPath(r.mac, nbp), next: n.Address, vendor: vendorPXE, pxe: useBootFile}
}

// localBootUEFI is the one place that decides how UEFI firmware is sent to its own disk.
func localBootUEFI(r *request) bootInfo {
	if r.stage == StageHTTP {
		return bootInfo{} // HTTP boot has no menu
	}
	return bootInfo{vendor: vendorPXE, pxe: localDiskMenu}
}

func isBIOS(r *request) bool { return r.stage == StagePXE && nbpOf(r) == nbpBIOS }
