package recipe

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// GRUB renders the configuration by which GRUB boots d's host from the network: the kernel, the initrds and the arguments
// of Script. A profile that is a whole iPXE script has none, which is an error, as is an argument that GRUB would change.
func (r *Recipe) GRUB(d Data) ([]byte, error) {
	switch {
	case r.profile.IPXE != "":
		return nil, fmt.Errorf("profile %s is an iPXE script, which GRUB cannot run: want kernel there, or chain: ipxe", r.profile.Name)
	case r.system.script != nil:
		return nil, fmt.Errorf("os %s is started in a way that GRUB does not know: want chain: ipxe", r.profile.OS)
	}
	p, err := r.resolved(&d)
	if err != nil {
		return nil, err
	}
	if p.Args, err = r.Args(d); err != nil {
		return nil, err
	}
	words, err := kernelWords(strings.Join(p.Args, " "))
	if err != nil {
		return nil, fmt.Errorf("args: %w", err)
	}
	return grubBoot(d, p, words)
}

// grubBoot loads kernel and initrds and starts them. GRUB goes on after a command that failed, so each stands in an if.
// What Debian signed has no HTTP in it and loads no module under Secure Boot; others have, and it is many times as fast.
func grubBoot(d Data, p *lab.Profile, words []string) ([]byte, error) {
	base, err := url.Parse(d.FilesURL)
	if err != nil || base.Scheme != "http" {
		return nil, fmt.Errorf("GRUB cannot fetch from %s: want a plain http URL", d.FilesURL)
	}
	for _, path := range append(slices.Clone(p.Initrd), p.Kernel) {
		if link := base.JoinPath(path); link.EscapedPath() != link.Path {
			return nil, fmt.Errorf("GRUB cannot fetch %q: by HTTP and by TFTP that is written in different ways; want a name of letters, digits, '-', '_' and '.'", path)
		}
	}
	file := func(path string) string { return "$from" + grubQuote(base.JoinPath(path).Path) }
	linux := "linux " + file(p.Kernel)
	for _, w := range words {
		linux += " " + grubQuote(w)
	}
	then := "boot"
	if len(p.Initrd) > 0 {
		then = "if initrd"
		for _, path := range p.Initrd {
			then += " " + file(path)
		}
		then += "; then boot; fi"
	}
	var b text
	grubSays(&b, d.Host.Name, "boots "+d.Profile.Name)
	fmt.Fprintf(&b, "for from in '(http,%s)' '(tftp,%s)'; do\n", base.Host, base.Hostname())
	fmt.Fprintf(&b, "  if %s; then\n    %s\n  fi\ndone\n", linux, then)
	grubSays(&b, d.Host.Name, "could not boot; on the appliance: bootlab timeline "+d.Host.Name)
	b.WriteString("sleep 10\nreboot\n")
	return b.Bytes(), nil
}

// GRUBLocalBoot returns the configuration that boots a machine from its own disk. When Debian's GRUB exits, it reports success to
// the firmware, and OVMF then opens its menu. So GRUB starts the boot loader on the disk directly, shim first, because Secure
// Boot verifies what it starts.
func GRUBLocalBoot(host, why string, how lab.LocalBoot) []byte {
	var b text
	grubSays(&b, host, why)
	if how == lab.LocalBootAuto || how == "" {
		b.WriteString(grubStartDisk)
		grubSays(&b, host, "has no boot loader on its disk")
	}
	b.WriteString("exit 1\n")
	return b.Bytes()
}

// grubStartDisk looks for boot loaders on all disks: the distributions' shim, Windows', the removable-media default, and the
// distributions' GRUB. A boot loader looks for its files on root.
const grubStartDisk = `set name=x64
set NAME=X64
if [ "$grub_cpu" = arm64 ]; then set name=aa64; set NAME=AA64; fi
for loader in (hd*,*)/EFI/*/shim$name.efi (hd*,*)/EFI/Microsoft/Boot/bootmgfw.efi (hd*,*)/EFI/BOOT/BOOT$NAME.EFI (hd*,*)/EFI/*/grub$name.efi; do
  if [ -f "$loader" ]; then
    regexp --set=1:root --set=2:path '^\((.*)\)(.*)$' "$loader"
    if chainloader "$path"; then boot; fi
  fi
done
`

// GRUBNothing returns the configuration for a machine without a profile, or with the discover profile, whose report GRUB cannot
// send. It shows the reason on the screen and starts the machine's own disk.
func GRUBNothing(mac lab.MAC) []byte {
	var b text
	grubSays(&b, mac.String(), "is not in the lab file, or has no profile; on the appliance: bootlab adopt "+mac.String())
	b.WriteString("sleep 5\n" + grubStartDisk + "exit 1\n")
	return b.Bytes()
}

// GRUBBootLoop is BootLoop for GRUB.
func GRUBBootLoop(host, why string) []byte {
	var b text
	grubSays(&b, host, why)
	b.WriteString("sleep 60\nexit 1\n")
	return b.Bytes()
}

func grubSays(b *text, host, what string) {
	fmt.Fprintf(b, "echo %s\n", grubQuote("bootlab: "+host+" "+what))
}

// grubQuote quotes a word for GRUB's script language, where it has to be.
func grubQuote(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789=/.,:_+-@%"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

var (
	errOpenQuote = errors.New("a double quote is not closed")
	errEscaped   = errors.New(`GRUB puts a backslash before ' and \: want arguments without them, or chain: ipxe`)
)

// kernelWords takes a kernel command line apart as the kernel does: at blanks outside of double quotes, which are not part
// of the word. GRUB puts them back around a word that holds a blank.
func kernelWords(line string) (words []string, err error) {
	var word strings.Builder
	quoted, begun := false, false
	for _, c := range line {
		switch {
		case c == '\'' || c == '\\':
			return nil, errEscaped
		case c == '"':
			quoted, begun = !quoted, true
		case strings.ContainsRune(" \t\r\n", c) && !quoted:
			if begun {
				words = append(words, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	if quoted {
		return nil, errOpenQuote
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}
