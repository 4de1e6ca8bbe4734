package recipe

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// bootConfig is what mboot reads instead of a command line: kernel, modules and where they are.
const bootConfig = "boot.cfg"

// esxiArgs are the options of ESXi's kernel; they go into boot.cfg.
func esxiArgs(p *lab.Profile, d Data) []string {
	args := []string{"runweasel"}
	if d.ConfigURL != "" && p.Config != "" {
		args = append(args, "ks="+d.ConfigURL)
	}
	return args
}

// esxiScript starts mboot, which is another program on BIOS. There it needs the MAC by hand, which PXELINUX would give it,
// and an iPXE that was built with IMAGE_COMBOOT.
func esxiScript(b *text, _ *Recipe, p *lab.Profile, d Data) {
	config := d.DocumentsURL + "/" + bootConfig
	b.WriteString("iseq ${platform} efi || goto bios\n")
	fmt.Fprintf(b, "kernel --name mboot %s -c %s || goto failed\n", fileURL(d, p.Kernel), config)
	b.WriteString("boot || goto failed\n")
	b.WriteString(":bios\n")
	fmt.Fprintf(b, "kernel --name mboot %s -c %s %s || goto failed\n", d.TreeURL.String()+"/mboot.c32", config, bootif(d))
	b.WriteString("boot || goto failed\n")
}

func esxiParts(*lab.Profile) []part { return []part{{bootConfig, esxiBootConfig}} }

// esxiBootConfig renders the boot.cfg of the medium for one host: paths below the tree instead of the medium's root, and the
// host's own options.
func esxiBootConfig(r *Recipe, d Data) ([]byte, error) {
	text, err := r.readTree(bootConfig, "BOOT.CFG", "efi/boot/boot.cfg", "EFI/BOOT/BOOT.CFG")
	if err != nil {
		return nil, err
	}
	args, err := r.Args(d)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "=")
		if !ok {
			continue
		}
		seen[key] = true
		switch key {
		case "kernel", "modules":
			value = relative(value)
		case "prefix":
			continue
		case "kernelopt":
			value = strings.Join(mergeOptions(strings.Fields(value), args), " ")
		}
		fmt.Fprintf(&b, "%s=%s\n", key, value)
	}
	if !seen["kernel"] || !seen["modules"] {
		return nil, fmt.Errorf("boot.cfg below %s names no kernel and modules: want the boot.cfg of an ESXi medium", r.profile.Tree)
	}
	if !seen["kernelopt"] {
		fmt.Fprintf(&b, "kernelopt=%s\n", strings.Join(args, " "))
	}
	fmt.Fprintf(&b, "prefix=%s\n", d.TreeURL)
	return []byte(b.String()), nil
}

// relative takes the slash from the front of every file, which mboot would take from the root of its server.
func relative(list string) string {
	files := strings.Split(list, " --- ")
	for i, f := range files {
		files[i] = strings.TrimPrefix(strings.TrimSpace(f), "/")
	}
	return strings.Join(files, " --- ")
}

// mergeOptions adds to what the medium says, without what makes it look for itself on a CD.
func mergeOptions(medium, own []string) []string {
	medium = slices.DeleteFunc(medium, func(o string) bool { return o == "cdromBoot" || slices.Contains(own, o) })
	return append(medium, own...)
}

// readTree reads the first of these files that is there, below the profile's tree.
func (r *Recipe) readTree(names ...string) ([]byte, error) {
	for _, name := range names {
		text, err := fs.ReadFile(r.files.files, path.Join(r.profile.Tree, name))
		if !errors.Is(err, fs.ErrNotExist) {
			return text, err
		}
	}
	return nil, fmt.Errorf("%s is not below %s: %w", names[0], r.profile.Tree, fs.ErrNotExist)
}
