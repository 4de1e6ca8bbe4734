package recipe

import (
	"cmp"
	"fmt"
	"path"
	"strings"

	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
)

// A system describes an operating system's installer. docs/os has a page for each, with the sources.
type system struct {
	// args returns the kernel arguments beside the profile's own. The profile's paths are rendered.
	args func(p *lab.Profile, d Data) []string
	// reads is how many complete reads of the config document one boot makes; 0: any number, or not known.
	reads int
	// script writes what follows the first lines of the iPXE script; nil: it loads a Linux kernel.
	script func(b *text, r *Recipe, p *lab.Profile, d Data)
	// parts are the documents that the recipe adds to those of the profile.
	parts func(p *lab.Profile) []part
	// seed is true for installers that fetch a folder of documents (cloud-init's NoCloud) instead of one.
	seed bool
	// signals are the completion signals of an install whose documents do not call back.
	signals install.Signals
	// callsFor reports whether the documents that the recipe adds call back; nil: never.
	callsFor func(p *lab.Profile) bool
	// callsLate is true where a document can call back from the installed system only. The machine starts from its disk before that,
	// so the other signals count too.
	callsLate bool
}

// systemOf returns the description of an operating system's installer.
func systemOf(os lab.OS) system {
	switch os {
	case lab.OSCoreOS:
		return system{args: coreosArgs, reads: 1, signals: install.NextBoot | install.SystemLease, parts: coreosParts, callsFor: installs}
	case lab.OSOpenShiftAgent:
		return system{args: agentArgs, signals: install.NextBoot}
	case lab.OSFlatcar:
		return system{args: flatcarArgs, reads: 1, signals: install.NextBoot | install.SystemLease, parts: flatcarParts, callsFor: installs}
	case lab.OSTalos:
		return system{args: talosArgs, signals: install.NextBoot | install.SystemLease}
	case lab.OSAnaconda:
		return system{args: anacondaArgs, reads: 1, signals: install.NextBoot}
	case lab.OSDebian:
		return system{args: debianArgs, reads: 1, signals: install.NextBoot | install.SystemLease}
	case lab.OSUbuntu:
		return system{args: ubuntuArgs, reads: 2, seed: true, parts: seedParts, signals: install.NextBoot}
	case lab.OSAutoYaST:
		return system{args: autoyastArgs, reads: 2, signals: install.NextBoot}
	case lab.OSAgama:
		return system{args: agamaArgs, reads: 2, signals: install.NextBoot}
	case lab.OSHarvester:
		return system{args: harvesterArgs, reads: 1, signals: install.NextBoot}
	case lab.OSKairos:
		return system{args: kairosArgs, signals: install.NextBoot}
	case lab.OSESXi:
		return system{args: esxiArgs, script: esxiScript, parts: esxiParts, signals: install.NextBoot}
	case lab.OSProxmox:
		return system{args: proxmoxArgs, script: proxmoxScript, reads: 1, signals: install.NextBoot}
	case lab.OSWindows:
		return system{args: noArgs, script: windowsScript, reads: 1, signals: install.NextBoot, callsLate: true}
	case lab.OSCloudInit:
		return system{args: cloudInitArgs, reads: 2, seed: true, parts: seedParts, signals: install.NextBoot}
	default:
		return system{args: noArgs, reads: 1, signals: install.NextBoot}
	}
}

func noArgs(*lab.Profile, Data) []string { return nil }

// installs reports whether the recipe itself puts the system on a disk.
func installs(p *lab.Profile) bool { return p.InstallTo != "" }

// bootif names the NIC that booted, for dracut and Anaconda, in the form of PXELINUX: hardware type, then the MAC.
func bootif(d Data) string { return "BOOTIF=01-" + d.Host.MAC.Hyphens() }

func fileURL(d Data, path string) string { return d.FilesURL + "/" + strings.TrimPrefix(path, "/") }

// anacondaArgs are of Fedora, RHEL, Alma and Rocky; without a tree the kickstart names the installation source.
func anacondaArgs(p *lab.Profile, d Data) []string {
	args := []string{"ip=dhcp", bootif(d)}
	if p.Tree != "" {
		args = append(args, "inst.repo="+d.TreeURL.String())
	}
	if p.Config != "" {
		args = append(args, "inst.ks="+d.ConfigURL, "inst.ks.sendmac")
	}
	return args
}

// debianArgs are of debian-installer; priority=critical answers what the preseed leaves open; the other arguments answer what it asks
// before it has its preseed file. BOOTIF names the NIC: with interface=auto alone it takes the first that has a link, and on a machine
// with several it may stop without an address. In a network without a router its DHCP script stops at the route, before the name
// servers, and it asks for both.
func debianArgs(p *lab.Profile, d Data) []string {
	name, domain, _ := strings.Cut(d.Host.FQDN, ".")
	args := []string{"auto=true", "priority=critical", "interface=auto", bootif(d), "hostname=" + name, "domain=" + domain}
	if !d.Network.Router.IsValid() {
		args = append(args, "netcfg/no_default_route=true")
		if len(d.Network.DNS) > 0 {
			args = append(args, "netcfg/get_nameservers="+d.Network.DNS[0].String())
		}
	}
	if p.Config != "" {
		args = append(args, "url="+d.ConfigURL)
	}
	return args
}

// ubuntuArgs are of casper and subiquity: the ISO is the profile's image, the seed a NoCloud folder.
func ubuntuArgs(p *lab.Profile, d Data) []string {
	args := []string{"ip=dhcp", "cloud-config-url=/dev/null"}
	if p.Image != "" {
		args = append(args, "root=/dev/ram0", "ramdisk_size=3500000", "url="+fileURL(d, p.Image))
	}
	if p.Config != "" {
		args = append(args, "autoinstall", "ds=nocloud-net;s="+d.ConfigURL)
	}
	return args
}

// cloudInitArgs point any image with cloud-init to its NoCloud seed.
func cloudInitArgs(p *lab.Profile, d Data) []string {
	args := []string{"ip=dhcp"}
	if p.Config != "" {
		args = append(args, "ds=nocloud-net;s="+d.ConfigURL)
	}
	return args
}

// autoyastArgs are of linuxrc (openSUSE Leap 15, SLE 15), which reads the profile for its own options and leaves its URL
// to YaST, which reads it again.
func autoyastArgs(p *lab.Profile, d Data) []string {
	args := []string{"netsetup=dhcp", bootif(d)}
	if p.Tree != "" {
		args = append(args, "install="+d.TreeURL.String())
	}
	if p.Config != "" {
		args = append(args, "autoyast="+d.ConfigURL)
	}
	return args
}

// agamaArgs are of openSUSE Leap 16 and SLES 16: dracut fetches the installer into memory, its ISO (the profile's image) or
// the live file system in it (rootfs).
func agamaArgs(p *lab.Profile, d Data) []string {
	args := []string{"ip=dhcp", "rd.neednet=1", bootif(d)}
	if live := cmp.Or(p.Rootfs, p.Image); live != "" {
		args = append(args, "root=live:"+fileURL(d, live))
	}
	if p.Config != "" {
		args = append(args, "inst.auto="+d.ConfigURL)
	}
	return args
}

// talosArgs are the arguments that Talos requires on metal.
func talosArgs(p *lab.Profile, d Data) []string {
	args := []string{"talos.platform=metal", "slab_nomerge", "pti=on", "init_on_alloc=1"}
	if p.Config != "" {
		args = append(args, "talos.config="+d.ConfigURL)
	}
	return args
}

// harvesterArgs boot Harvester's installer, whose root file system dracut fetches. With a config document it asks nothing. It takes no second
// ip=.
func harvesterArgs(p *lab.Profile, d Data) []string {
	args := []string{
		"ip=dhcp", "net.ifnames=1", "rd.cos.disable", "rd.noverifyssl", "rd.net.dhcp.retry=3", "root=live:" + fileURL(d, p.Rootfs),
	}
	if p.Config != "" {
		args = append(args, "harvester.install.automatic=true", "harvester.install.config_url="+d.ConfigURL)
	}
	return args
}

// kairosArgs boot Kairos' installer, or with install: never Kairos itself from memory, which keeps its data on a local
// disk (4.2 or newer).
func kairosArgs(p *lab.Profile, d Data) []string {
	args := []string{"ip=dhcp", "rd.neednet=1", "rd.cos.disable", "netboot", "selinux=0", "root=live:" + fileURL(d, p.Rootfs)}
	config := "config_url="
	if p.Install == lab.InstallNever {
		args = append(args, "kairos.ram")
		config = "kairos." + config
	} else {
		args = append(args, "install-mode")
	}
	if p.Config != "" {
		args = append(args, config+d.ConfigURL)
	}
	return args
}

// proxmoxArgs are of the automated installer, as proxmox-auto-install-assistant writes them. DHCP gives it
// the URL of its answer (lab.AnswerOption).
func proxmoxArgs(*lab.Profile, Data) []string {
	return []string{"ro", "ramdisk_size=16777216", "rw", "quiet", "splash=silent", "proxmox-start-auto-installer"}
}

// proxmoxScript loads the ISO with the initrd, which mounts it by that name.
func proxmoxScript(b *text, _ *Recipe, p *lab.Profile, d Data) {
	linux(b, p, d, []module{{"proxmox.iso", fileURL(d, p.Image)}})
}

// Answers reports whether the installer asks for its config document by a POST to lab.PathAnswer.
func (r *Recipe) Answers() bool { return r.profile.OS == lab.OSProxmox }

// windowsScript starts wimboot, the profile's kernel, which finds the files of Windows PE by their names and puts all
// others into X:\\Windows\\System32: the profile's documents, rendered for this host. Its own arguments are gui, index=N,
// rawbcd, rawwim, quiet, pause and linear; it stops at any other.
func windowsScript(b *text, r *Recipe, p *lab.Profile, d Data) {
	fmt.Fprintf(b, "kernel --name %s\n", strings.Join(append([]string{"wimboot", fileURL(d, p.Kernel)}, p.Args...), " ")+" || goto failed")
	var modules []module
	for _, s := range r.list(d) {
		modules = append(modules, module{s.name, d.DocumentsURL + "/" + s.name})
	}
	for _, file := range p.Initrd {
		modules = append(modules, module{path.Base(file), fileURL(d, file)})
	}
	load(b, modules)
	b.WriteString("boot || goto failed\n")
}

// Signals returns the completion signals of an install of d's host: the callback alone if a document makes it before the machine starts
// from its disk. A document that does not exist yet is looked at again at the next boot.
func (r *Recipe) Signals(d Data) install.Signals {
	switch calls := r.makesCall() || r.namesDoneURL(d); {
	case calls && r.system.callsLate:
		return install.Callback | r.system.signals
	case calls:
		return install.Callback
	}
	return r.system.signals
}

// makesCall reports whether a document that the recipe adds calls back.
func (r *Recipe) makesCall() bool { return r.system.callsFor != nil && r.system.callsFor(r.profile) }

// doneField is the callback's URL in templates.
const doneField = ".DoneURL"

// namesDoneURL reports whether the profile's own templates call back.
func (r *Recipe) namesDoneURL(d Data) bool {
	for _, arg := range r.profile.Args {
		if strings.Contains(arg, doneField) {
			return true
		}
	}
	if r.profile.IPXE != "" && r.files.names(r.profile.IPXE, doneField) {
		return true
	}
	for _, s := range r.list(d) {
		if s.err == nil && s.file != "" && r.files.names(s.file, doneField) {
			return true
		}
	}
	return false
}
