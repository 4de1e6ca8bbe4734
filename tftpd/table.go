package tftpd

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/boot/files"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Table is what the server answers from: which files of the lab may be fetched, and what each machine boots. It is immutable.
type Table struct {
	lab   *lab.Lab
	files *files.Files
}

// Compile makes the table of a lab. It does no I/O. Errors are lab.Problems.
func Compile(l *lab.Lab) (*Table, error) {
	files, err := files.Compile(l)
	if err != nil {
		return nil, err
	}
	return NewTable(l, files), nil
}

// NewTable makes a table of a lab whose files were compiled already, for who serves them by HTTP too.
func NewTable(l *lab.Lab, files *files.Files) *Table { return &Table{lab: l, files: files} }

// Files returns the files of the lab that may be fetched.
func (t *Table) Files() *files.Files { return t.files }

// A what is the sort of thing that a name asks for.
type what int

const (
	wantFile     what = iota // of the lab
	wantFirmware             // a network boot program
	wantScript               // rendered for the machine
)

// A target is a name understood.
type target struct {
	what what
	name string  // of the file, the firmware or the script
	mac  lab.MAC // zero where the name does not tell
}

// trimOptionEnd cuts off the bytes 0xff that some NICs send behind a name: the end mark of the option that it came in.
func trimOptionEnd(name string) string {
	for strings.HasSuffix(name, "\xff") {
		name = name[:len(name)-1]
	}
	return name
}

// resolve understands a name as clients write it: with a leading slash (GRUB), with backslashes (Windows, shim), with
// 0xff behind it (NICs that take the option's end for a part of the name). ok is false for a name that leads nowhere.
func resolve(name string) (t target, ok bool) {
	name = strings.ReplaceAll(trimOptionEnd(name), `\`, "/")
	if slices.Contains(strings.Split(name, "/"), "..") {
		return target{}, false
	}
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if !fs.ValidPath(name) || name == "." || name == "" {
		return target{}, false
	}
	if mac, file, ok := cutBootPath(name); ok {
		return bootTarget(mac, file), true
	}
	if mac, ok := grubConfig(name); ok {
		return target{what: wantScript, name: lab.GRUBName, mac: mac}, true
	}
	if !strings.Contains(name, "/") {
		return bootTarget(lab.MAC{}, name), true
	}
	return target{what: wantFile, name: strings.TrimPrefix(name, lab.PathFiles)}, true
}

// cutBootPath takes "boot/<mac>/<file>" apart.
func cutBootPath(name string) (mac lab.MAC, file string, ok bool) {
	mac, file, ok = cutMAC(name)
	return mac, file, ok && file != "" && !strings.Contains(file, "/")
}

// cutMAC takes "boot/<mac>/<rest>" apart.
func cutMAC(name string) (mac lab.MAC, rest string, ok bool) {
	parts := strings.SplitN(name, "/", 3)
	if len(parts) != 3 || !strings.EqualFold(parts[0]+"/", lab.PathBoot) {
		return lab.MAC{}, "", false
	}
	mac, err := lab.ParseMAC(parts[1])
	return mac, parts[2], err == nil
}

// grubConfig reports whether a name is that of GRUB's configuration, and for which machine: zero where the name does not
// tell. Whoever builds GRUB chooses the folder: "/grub" with Debian, "/debian-installer/amd64/grub" with its installer, that
// of GRUB itself with Red Hat, which asks for "grub.cfg-01-<mac>" first. Lab files keep their names.
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

// optional reports whether a file of that name, which is not there, is missed by nobody: shim asks for revocations and
// certificates beside itself, GRUB for lists of modules and, where it has none built in, for modules, U-Boot for a script and a device tree,
// a Raspberry Pi for whatever it might use.
func optional(name string) bool {
	base := strings.ToLower(path.Base(name))
	if _, rest := cutHostFolder(name); raspberryOptional(rest) || ubootOptional(name) {
		return true
	}
	switch path.Ext(base) {
	case ".lst", ".mod":
		return strings.Contains(strings.ToLower(name), "grub/")
	}
	return strings.HasPrefix(base, "revocations_") || strings.HasPrefix(base, "shim_certificate_")
}

func bootTarget(mac lab.MAC, file string) target {
	for _, script := range []string{lab.ScriptName, lab.AutoexecName, lab.GRUBName} {
		if strings.EqualFold(file, script) {
			return target{what: wantScript, name: script, mac: mac}
		}
	}
	return target{what: wantFirmware, name: file, mac: mac}
}
