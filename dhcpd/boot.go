package dhcpd

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/firmware"
	"github.com/bootlab/bootlab/internal/lab"
)

// firmwares are the kinds of firmware that have a network boot program.
var firmwares = []struct {
	name    string // for people
	arch    uint16 // a code of its kind, see lab.ArchName
	program string
}{
	{"BIOS", 0, firmware.BIOS}, {"UEFI x64", 7, firmware.UEFI}, {"UEFI arm64", 11, firmware.ARM64},
	// Not built in: served from the folder of --firmware. A pool of such machines is a warning if it has none.
	{"UEFI ia32", 6, firmware.IA32}, {"UEFI arm32", 10, firmware.ARM32}, {"UEFI riscv64", 27, firmware.RISCV64}, {"UEFI loongarch64", 39, firmware.LoongArch64},
}

// programs are the network boot programs of firmwares, by lab.ArchName.
var programs = func() map[string]string {
	all := map[string]string{}
	for _, f := range firmwares {
		all[lab.ArchName(f.arch)] = f.program
	}
	return all
}()

const (
	vendorPXE  = "PXEClient"
	vendorHTTP = "HTTPClient"
)

// Values of option 43 for PXE (PXE 2.1 section 2.2, table 2-1), written out because each must end in its own 255.
const (
	// useBootFile: tag 6 (discovery control) with bit 3, "no discovery: boot the file named in this packet". Without it a
	// UEFI that reads PXEClient in option 60 ignores the boot file and asks port 4011 instead.
	useBootFile = "\x06\x01\x08\xff"
	// noPXEDHCP, in option 175: iPXE need not wait for a second, proxy DHCP server; saves 2 to 3 seconds a boot.
	noPXEDHCP = "\xb0\x01\x01"
	// firstIPXE, in option 175: this packet's settings have priority over others', 0 being the default. Without it iPXE takes
	// the boot file of the server that gave the address, if that names one.
	firstIPXE = "\x01\x01\x01"
)

// A bootInfo is the part of a reply that makes a machine boot. The zero value is for a machine that boots nothing.
type bootInfo struct {
	file        string     // path by TFTP, or URL
	nextServer  netip.Addr // TFTP server; invalid where file is a URL
	vendorClass string     // option 60
	vendorInfo  string     // option 43
	ipxe        string     // option 175
}

// addTo puts the boot information into a reply.
func (b bootInfo) addTo(a *wire.Reply) {
	a.BootFile, a.NextServer, a.VendorClass, a.VendorInfo, a.IPXE = b.file, b.nextServer, b.vendorClass, b.vendorInfo, b.ipxe
}

// Program returns the file name of the network boot program for an architecture, or "" where there is none.
func Program(a lab.Arch) string { return programs[a.Name()] }

// nbpOf returns the network boot program for an architecture, or "" where there is none.
func nbpOf(r *wire.Packet) string { return programs[lab.ArchName(r.Arch)] }

// signed returns the shim that takes the place of nbp under Secure Boot, or nbp where there is none. It loads GRUB from its own folder.
func signed(nbp string) string {
	switch nbp {
	case firmware.UEFI:
		return firmware.ShimX64
	case firmware.ARM64:
		return firmware.ShimARM64
	}
	return nbp
}

// bootInfoFor decides what a client boots. An operating system never gets a boot file: Debian's installer takes any URL
// there for its preseed file.
//
// A machine that is to boot its own disk gets the same as always: its script makes it boot the disk. With OVMF and the
// network before the disk that takes 16 s, against 221 s without a boot file and 219 s with a PXE boot menu whose one item
// is the local disk, because the firmware then tries IPv6 and HTTP for minutes (test/support/qemu BenchmarkLocalBoot).
func bootInfoFor(r *wire.Packet, n *lab.Network, host *lab.Host) bootInfo {
	if r.Client == wire.ClientOS || host == nil || host.Profile == nil || !n.Address.IsValid() {
		return bootInfo{}
	}
	switch r.Client {
	case wire.ClientIPXE:
		return bootInfo{file: n.ScriptURL(r.MAC), nextServer: n.Address, ipxe: noPXEDHCP}
	case wire.ClientHTTP:
		return httpBoot(r, n, host.Chain)
	default:
		return pxeBoot(r, n, host.Chain)
	}
}

// bootInfo is bootInfoFor, without a boot file for a machine that is to boot its own disk and has local_boot: none, for
// firmware that does not return from a network boot program. An iPXE that never fetches its script gets a bootloop.Remedy.
func (s *Server) bootInfo(x *exchange, host *lab.Host) bootInfo {
	info := bootInfoFor(&x.req, x.scope.network, host)
	if info.file == "" {
		return info
	}
	if host.Local == lab.LocalBootNone && s.deps.FromDisk != nil && s.deps.FromDisk(host, x.req.MAC) {
		return bootInfo{ipxe: info.ipxe}
	}
	if x.req.Client != wire.ClientIPXE {
		return info
	}
	switch s.deps.Loops.Remedy(x.req.MAC) {
	case bootloop.Program:
		program := pxeBoot(&x.req, x.scope.network, host.Chain)
		return bootInfo{file: program.file, nextServer: program.nextServer, ipxe: info.ipxe}
	case bootloop.NoFile:
		return bootInfo{ipxe: info.ipxe}
	}
	return info
}

// httpBoot is for UEFI HTTP boot, which takes an offer only if option 60 is HTTPClient in offer and acknowledgement. GRUB
// that was loaded by HTTP has no network, as Debian builds it, and stops at its prompt: such a machine boots by PXE.
func httpBoot(r *wire.Packet, n *lab.Network, chain lab.Chain) bootInfo {
	nbp := nbpOf(r)
	if nbp == "" || nbp == firmware.BIOS || n.BaseURL == "" || chain == lab.ChainGRUB && signed(nbp) != nbp {
		return bootInfo{}
	}
	return bootInfo{file: n.BootURL(r.MAC, nbp), vendorClass: vendorHTTP}
}

// pxeBoot sends PXEClient together with useBootFile. EDK2 then takes the offer at its highest rank (DhcpPxe10 in
// PxeBcDhcp4.c), above any proxy's, and boots the file without asking port 4011; a plain offer without option
// 60 would boot too, but ranks below every proxy's. TestOVMF checks it with real firmware.
func pxeBoot(r *wire.Packet, n *lab.Network, chain lab.Chain) bootInfo {
	if n.NoTFTP {
		return bootInfo{}
	}
	if isRaspberry(r) { // it has its own list of files
		return bootInfo{nextServer: n.Address, vendorClass: vendorPXE, vendorInfo: raspberryBoot}
	}
	nbp := nbpOf(r)
	if chain == lab.ChainGRUB {
		nbp = signed(nbp)
	}
	if nbp == "" {
		return bootInfo{}
	}
	return bootInfo{file: lab.BootPath(r.MAC, nbp), nextServer: n.Address, vendorClass: vendorPXE, vendorInfo: useBootFile}
}

// raspberryBoot is the value of option 43 that a Raspberry Pi looks for, a PXE boot menu whose one item is "Raspberry Pi
// Boot": without that text it takes no offer. The first Pi 3B compares with three blanks after it; all others accept any value
// that contains the text. A Pi reads no more of the menu: tag 6 (no discovery by broadcast or multicast), 10 (prompt, 0
// seconds), 9 (item of type 0).
const raspberryBoot = "\x06\x01\x03" + "\x0a\x04\x00PXE" + "\x09\x17\x00\x00\x14Raspberry Pi Boot   " + "\xff"

// isRaspberry reports whether the client is a Raspberry Pi's own boot loader. UEFI and iPXE on a Pi are as on any machine.
func isRaspberry(r *wire.Packet) bool {
	switch kind := lab.ArchName(r.Arch); {
	case r.Client != wire.ClientPXE:
		return false
	case kind == "rpiboot":
		return true
	case kind != "bios": // most send 0, as a PC's BIOS does
		return false
	}
	// Option 97 is a byte 0 and "RPi4" or "RPi5"; the Pi 3 has its serial number there.
	return bytes.HasPrefix(r.UUID, []byte("\x00RPi")) || slices.Contains(raspberryPrefixes, [3]byte(r.MAC[:3]))
}

// raspberryPrefixes are the prefixes of MACs that Raspberry Pi has registered.
var raspberryPrefixes = [][3]byte{
	{0xb8, 0x27, 0xeb}, {0xdc, 0xa6, 0x32}, {0xe4, 0x5f, 0x01}, {0x28, 0xcd, 0xc1}, {0xd8, 0x3a, 0xdd}, {0x2c, 0xcf, 0x67},
}

// A BootFile is what one kind of firmware fetches.
type BootFile struct {
	Firmware string // such as "BIOS", "UEFI x64", "iPXE" or "Raspberry Pi"
	File     string // a path by TFTP, or a URL; a folder for a Raspberry Pi, which has its own list of files
}

// BootFiles returns what each kind of firmware of h fetches from its first NIC, iPXE last. It is empty for a host that boots
// nothing from here.
func BootFiles(h *lab.Host) (files []BootFile) {
	if h.Network == nil || !h.Network.Answers(h) || len(h.MACs) == 0 {
		return nil
	}
	add := func(name string, client wire.ClientKind, arch uint16) {
		boot := bootInfoFor(&wire.Packet{MAC: h.MACs[0], Client: client, Arch: arch, HasArch: true}, h.Network, h)
		switch {
		case boot.file != "":
			files = append(files, BootFile{Firmware: name, File: boot.file})
		case boot.vendorInfo == raspberryBoot && h.Profile.Tree != "":
			files = append(files, BootFile{Firmware: "Raspberry Pi", File: h.Profile.Tree + "/"})
		}
	}
	for _, f := range firmwares {
		add(f.name, wire.ClientPXE, f.arch)
		add(f.name+" HTTP", wire.ClientHTTP, f.arch)
	}
	add("iPXE", wire.ClientIPXE, 0)
	return files
}
