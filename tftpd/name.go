package tftpd

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/lab"
)

// A kind is what a name asks for.
type kind int

const (
	file     kind = iota // of the lab
	firmware             // a network boot program
	script               // rendered for the machine
)

// A target is a parsed name.
type target struct {
	kind kind
	name string  // of the file, the program or the script
	mac  lab.MAC // zero where the name carries none
}

// trimOptionEnd removes the bytes 0xff that some NICs send after a name: the end mark of the DHCP option that it came in.
func trimOptionEnd(name string) string {
	for strings.HasSuffix(name, "\xff") {
		name = name[:len(name)-1]
	}
	return name
}

// resolve parses a name as clients write it: with a leading slash (GRUB), with backslashes (Windows, shim), with 0xff at its
// end. ok is false for a name that no file can have.
func resolve(name string) (t target, ok bool) {
	name = strings.ReplaceAll(trimOptionEnd(name), `\`, "/")
	if slices.Contains(strings.Split(name, "/"), "..") {
		return target{}, false
	}
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if !fs.ValidPath(name) || name == "." || name == "" {
		return target{}, false
	}
	if mac, file, ok := cutMAC(name); ok && file != "" && !strings.Contains(file, "/") {
		return bootTarget(mac, file), true
	}
	if mac, ok := grubConfig(name); ok {
		return target{kind: script, name: lab.GRUBName, mac: mac}, true
	}
	if !strings.Contains(name, "/") {
		return bootTarget(lab.MAC{}, name), true
	}
	return target{kind: file, name: strings.TrimPrefix(name, lab.PathFiles)}, true
}

func bootTarget(mac lab.MAC, name string) target {
	for _, s := range []string{lab.ScriptName, lab.AutoexecName, lab.GRUBName} {
		if strings.EqualFold(name, s) {
			return target{kind: script, name: s, mac: mac}
		}
	}
	return target{kind: firmware, name: name, mac: mac}
}

// cutMAC splits "boot/<mac>/<rest>".
func cutMAC(name string) (mac lab.MAC, rest string, ok bool) {
	parts := strings.SplitN(name, "/", 3)
	if len(parts) != 3 || !strings.EqualFold(parts[0]+"/", lab.PathBoot) {
		return lab.MAC{}, "", false
	}
	mac, err := lab.ParseMAC(parts[1])
	return mac, parts[2], err == nil
}

// grubConfig reports whether a name is that of GRUB's configuration, and for which machine: zero where the name carries no MAC.
// Who builds GRUB chooses its folder: "/grub" with Debian, "/debian-installer/amd64/grub" with its installer, that of GRUB
// itself with Red Hat, which asks for "grub.cfg-01-<mac>" first. Files of the lab keep their names.
func grubConfig(name string) (mac lab.MAC, ok bool) {
	first, _, _ := strings.Cut(name, "/")
	if strings.EqualFold(first+"/", lab.PathFiles) || strings.EqualFold(first, files.Public) {
		return lab.MAC{}, false
	}
	dir, base := path.Split(name)
	if len(base) < len(lab.GRUBName) || !strings.EqualFold(base[:len(lab.GRUBName)], lab.GRUBName) {
		return lab.MAC{}, false
	}
	switch rest := base[len(lab.GRUBName):]; {
	case rest == "":
		mac, _, _ = cutMAC(dir)
		return mac, true
	case strings.HasPrefix(rest, "-01-"):
		mac, err := lab.ParseMAC(rest[len("-01-"):])
		return mac, err == nil
	}
	return lab.MAC{}, false
}

// serialDigits is how long a Raspberry Pi's folder name is: the lower half of its serial number in hexadecimal.
const serialDigits = 8

// cutHostFolder removes the folder that a machine asks for its files in: its serial number, or its MAC, which it returns.
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

// optional reports whether firmware asks for a file of that name whether it exists or not, so that its absence is not worth an
// event: shim for revocations and certificates, GRUB for lists of modules and for modules, U-Boot for a script and a device
// tree, a Raspberry Pi for signatures, recovery and settings that have defaults.
func optional(name string) bool {
	lower := strings.ToLower(name)
	base := path.Base(lower)
	switch ext := path.Ext(base); {
	case ext == ".lst" || ext == ".mod":
		return strings.Contains(lower, "grub/")
	case strings.HasPrefix(base, "revocations_"), strings.HasPrefix(base, "shim_certificate_"):
		return true
	case slices.Contains([]string{"boot.scr.uimg", "boot.scr", "dtb"}, name), strings.HasPrefix(name, "dtb/"):
		return true
	}
	_, pi := cutHostFolder(lower)
	return strings.HasPrefix(pi, "armstub") && path.Ext(pi) == ".bin" || slices.Contains([]string{
		"bootsig.bin", "autoboot.txt", "bootcfg.txt", "dt-blob.bin", "pieeprom.sig", "pieeprom.upd", "recover4.elf", "recovery.bin", "recovery.elf",
	}, pi)
}

// macOf returns the MAC that a name carries, or zero.
func macOf(name string) lab.MAC {
	t, _ := resolve(name)
	return t.mac
}
