package dhcpd

import (
	"net/netip"

	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/lab"
)

// Network boot programs, by name in the boot plane.
const (
	nbpBIOS  = "undionly.kpxe"
	nbpX64   = "ipxe.efi"
	nbpARM64 = "snponly-arm64.efi"
	// Not built in: served from the folder of --firmware, and missed loudly where it has none.
	nbpIA32    = "ipxe-ia32.efi"
	nbpARM32   = "ipxe-arm32.efi"
	nbpRISCV64 = "ipxe-riscv64.efi"
	nbpLoong64 = "ipxe-loong64.efi"
	// Signed, for Secure Boot; each loads grubx64.efi or grubaa64.efi from beside itself.
	nbpShimX64   = "shimx64.efi"
	nbpShimARM64 = "shimaa64.efi"
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
	// noPXEDHCP, in option 175: iPXE need not wait for a second, proxy DHCP server; saves 2 to 3 seconds a boot.
	noPXEDHCP = "\xb0\x01\x01"
	// firstIPXE, in option 175: what this packet says comes before what others say, 0 being the default. Without it iPXE takes the
	// boot file of the server that gave the address, where that names one.
	firstIPXE = "\x01\x01\x01"
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
func nbpOf(r *wire.Packet) string {
	if !r.HasArch {
		return nbpBIOS
	}
	switch r.Arch {
	case wire.ArchBIOS:
		return nbpBIOS
	case wire.ArchEBC, wire.ArchX64, wire.ArchX64HTTP, wire.ArchEBCHTTP:
		return nbpX64
	case wire.ArchARM64, wire.ArchARM64HTTP:
		return nbpARM64
	case wire.ArchIA32, wire.ArchIA32HTTP:
		return nbpIA32
	case wire.ArchARM32, wire.ArchARM32HTTP:
		return nbpARM32
	case wire.ArchRISCV64, wire.ArchRISCV64HTTP:
		return nbpRISCV64
	case wire.ArchLoong64, wire.ArchLoong64HTTP:
		return nbpLoong64
	}
	return ""
}

// signed returns the shim for an architecture that there is Secure Boot for, or nbp.
func signed(nbp string) string {
	switch nbp {
	case nbpX64:
		return nbpShimX64
	case nbpARM64:
		return nbpShimARM64
	}
	return nbp
}

// bootFor decides what a machine in this stage boots. An operating system never gets a boot file: Debian's installer,
// for one, takes any URL there for its preseed file.
//
// A machine that is to boot its own disk gets the same as ever: its script sends it there. With OVMF and the network before
// the disk that takes 16 s, against 221 s without a boot file and 219 s with a PXE boot menu whose one item is the local
// disk, because the firmware then tries IPv6 and HTTP for minutes (test/support/qemu BenchmarkLocalBoot).
func bootFor(r *wire.Packet, n *lab.Network, host *lab.Host) bootInfo {
	if r.Stage == wire.StageOS || host == nil || host.Profile == nil || !n.Address.IsValid() {
		return bootInfo{}
	}
	switch r.Stage {
	case wire.StageIPXE:
		return bootInfo{file: n.ScriptURL(r.MAC), next: n.Address, ipxe: noPXEDHCP}
	case wire.StageHTTP:
		return httpBoot(r, n, host.Chain)
	default:
		return pxeBoot(r, n, host.Chain)
	}
}

// bootOf is bootFor, but gives no boot file to a machine that is to start from its own disk and whose lab file says so
// (local_boot: none), for firmware that does not come back from a network boot program.
func (s *Server) bootOf(x *exchange, host *lab.Host) bootInfo {
	info := bootFor(&x.req, x.home, host)
	if info.file == "" || host.Local != lab.LocalBootNone || s.deps.FromDisk == nil || !s.deps.FromDisk(host) {
		return info
	}
	return bootInfo{ipxe: info.ipxe}
}

// httpBoot: UEFI takes an offer for HTTP boot only if option 60 says HTTPClient in offer and acknowledgement. GRUB that was
// loaded by HTTP knows no network, as Debian builds it, and stops at its prompt: such a machine is left to PXE.
func httpBoot(r *wire.Packet, n *lab.Network, chain lab.Chain) bootInfo {
	nbp := nbpOf(r)
	if nbp == "" || nbp == nbpBIOS || n.BaseURL == "" || chain == lab.ChainGRUB && signed(nbp) != nbp {
		return bootInfo{}
	}
	return bootInfo{file: n.BootURL(r.MAC, nbp), vendor: vendorHTTP}
}

// pxeBoot says PXEClient together with useBootFile. EDK2 then takes the offer at its highest rank (DhcpPxe10 in
// PxeBcDhcp4.c), above any proxy on the wire, and boots the file without asking port 4011; a plain offer without option
// 60 would boot too, but ranks below every proxy. TestOVMF sees it with real firmware.
func pxeBoot(r *wire.Packet, n *lab.Network, chain lab.Chain) bootInfo {
	if n.NoTFTP {
		return bootInfo{}
	}
	if isRaspberry(r) { // which knows by itself what to fetch
		return bootInfo{next: n.Address, vendor: vendorPXE, pxe: raspberryBoot}
	}
	nbp := nbpOf(r)
	if chain == lab.ChainGRUB {
		nbp = signed(nbp)
	}
	if nbp == "" {
		return bootInfo{}
	}
	return bootInfo{file: lab.BootPath(r.MAC, nbp), next: n.Address, vendor: vendorPXE, pxe: useBootFile}
}
