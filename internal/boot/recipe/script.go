package recipe

import (
	"bytes"
	"strconv"

	"github.com/bootlab/bootlab/internal/lab"
)

// Script renders the iPXE script that boots d's host from the network.
func (r *Recipe) Script(d Data) ([]byte, error) {
	if r.profile.IPXE != "" {
		return r.files.render(r.profile.IPXE, d)
	}
	p, err := r.resolved(&d)
	if err != nil {
		return nil, err
	}
	if p.Args, err = r.argsOf(p, d); err != nil {
		return nil, err
	}
	var b text
	b.Grow(usualScript)
	begin(&b, d.Host.Name, "boots "+d.Profile.Name)
	if r.system.script != nil {
		r.system.script(&b, r, p, d)
	} else {
		linux(&b, p, d, nil)
	}
	failed(&b, d.Host.Name)
	return b.Bytes(), nil
}

// Args returns the kernel's arguments: the recipe's, then the profile's.
func (r *Recipe) Args(d Data) ([]string, error) {
	p, err := r.resolved(&d)
	if err != nil {
		return nil, err
	}
	return r.argsOf(p, d)
}

// usualScript is the size of most scripts.
const usualScript = 1 << 10

// argsOf is Args with the paths rendered already.
func (r *Recipe) argsOf(p *lab.Profile, d Data) ([]string, error) {
	own, err := renderAll(r.args, &d)
	if err != nil {
		return nil, err
	}
	return append(r.system.args(p, d), own...), nil
}

// A module is a file that is loaded beside a kernel under a name, which programs other than Linux look for.
type module struct{ name, url string }

// linux loads kernel, initrds and modules and starts them. Kernels that start through the EFI stub find their initrds by
// name only, so each is named on the command line; BIOS kernels ignore that. A module becomes a file of that name in the
// initial root file system. Old iPXE (QEMU's ROMs of 2019) has all commands used here.
func linux(b *text, p *lab.Profile, d Data, modules []module) {
	b.put("kernel --name kernel ", fileURL(d, p.Kernel))
	for i := range p.Initrd {
		b.put(" initrd=initrd", strconv.Itoa(i))
	}
	for _, a := range p.Args {
		b.put(" ", a)
	}
	b.put(" || goto failed\n")
	for i, path := range p.Initrd {
		b.put("initrd --name initrd", strconv.Itoa(i), " ", fileURL(d, path), " || goto failed\n")
	}
	load(b, modules)
	b.WriteString("boot || goto failed\n")
}

// load loads modules. iPXE passes the last word to what it starts: a name in the initial root file system, or in the
// volume that wimboot makes.
func load(b *text, modules []module) {
	for _, m := range modules {
		b.put("initrd --name ", m.name, " ", m.url, " ", m.name, " || goto failed\n")
	}
}

// LocalBoot returns the script that starts a machine from its own disk. On UEFI, iPXE exits with an error: only then does the firmware
// go on to the next boot option (exit 0 drops many into their setup). On BIOS, iPXE starts the first disk itself: a BIOS whose network
// boot returns often stops. The lab file can choose for firmware that needs another way.
func LocalBoot(host, why string, how lab.LocalBoot) []byte {
	const sanboot = "sanboot --no-describe --drive 0x80 || exit 1\n"
	var b text
	begin(&b, host, why)
	switch how {
	case lab.LocalBootExit, lab.LocalBootNone: // none: another server gave it a boot file
		b.WriteString("exit 1\n")
	case lab.LocalBootSanboot:
		b.WriteString(sanboot)
	default:
		b.WriteString("iseq ${platform} efi && exit 1 ||\n" + sanboot)
	}
	return b.Bytes()
}

// Nothing returns the script for a machine that the lab has no profile for: it prints that and goes on to the next
// boot device.
func Nothing(mac lab.MAC) []byte {
	var b text
	begin(&b, mac.String(), "is not in the lab file, or has no profile")
	b.WriteString("sleep 5\n")
	b.WriteString("exit 1\n")
	return b.Bytes()
}

// BootLoop returns the script for a machine in a boot loop: it prints why, and goes on to the next boot device after a minute.
func BootLoop(host, why string) []byte {
	var b text
	begin(&b, host, why)
	b.WriteString("sleep 60\nexit 1\n")
	return b.Bytes()
}

func begin(b *text, host, what string) {
	b.put("#!ipxe\necho bootlab: ", host, " ", what, "\n")
}

// failed prints which command shows the reason, and reboots.
func failed(b *text, host string) {
	b.put(":failed\necho bootlab: ", host, " could not boot; on the appliance: bootlab timeline ", host, "\n")
	b.put("sleep 10\nreboot || exit 1\n")
}

// A text is a buffer for a script.
type text struct{ bytes.Buffer }

// put writes the pieces.
func (t *text) put(pieces ...string) {
	for _, p := range pieces {
		t.WriteString(p)
	}
}
