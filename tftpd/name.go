package tftpd

import (
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// Some firmware asks for files by names of its own and cannot be told others: a Raspberry Pi for "config.txt" and "start4.elf", first
// in a folder named after itself. What no other rule knows is therefore looked for in the tree of what the machine boots.

// inHostTree returns where a name is below the tree of the profile that a machine boots, without the folder that firmware puts
// before it. ok is false for a machine without a tree.
func (s *Server) inHostTree(table *Table, name string, from netip.Addr) (own string, ok bool) {
	mac, rest := cutHostFolder(name)
	if known, ok := s.deps.Leases.MACOf(from); ok {
		mac = known
	}
	h := table.lab.MachineOf(mac, from.Unmap())
	if h == nil || h.Profile == nil || h.Profile.Tree == "" {
		return "", false
	}
	return path.Join(h.Profile.Tree, rest), true
}

// serialDigits is how long the folder's name is: the lower half of a Pi's serial number in hexadecimal.
const serialDigits = 8

// cutHostFolder takes off the folder that a machine asks for its files in: its serial number, or its MAC, which it returns.
func cutHostFolder(name string) (mac lab.MAC, rest string) {
	first, rest, found := strings.Cut(name, "/")
	if !found {
		return lab.MAC{}, name
	}
	if mac, err := lab.ParseMAC(first); err == nil {
		return mac, rest
	}
	if len(first) == serialDigits && strings.Trim(strings.ToLower(first), "0123456789abcdef") == "" {
		return lab.MAC{}, rest
	}
	return lab.MAC{}, name
}

// raspberryOptional reports whether a Raspberry Pi asks for a file of that name whether it is there or not: signatures, recovery,
// settings that have defaults.
func raspberryOptional(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "armstub") && path.Ext(name) == ".bin" || slices.Contains([]string{
		"bootsig.bin", "autoboot.txt", "bootcfg.txt", "dt-blob.bin", "pieeprom.sig", "pieeprom.upd", "recover4.elf", "recovery.bin", "recovery.elf",
	}, name)
}

// ubootOptional reports whether U-Boot asks for a file of that name whether it is there or not.
func ubootOptional(name string) bool {
	return slices.Contains([]string{"boot.scr.uimg", "boot.scr", "dtb"}, name) || strings.HasPrefix(name, "dtb/")
}
