package recipe

import (
	"strings"

	"bootlab/internal/lab"
)

// A system is what a recipe knows of an operating system's installer.
type system struct {
	// args returns the kernel arguments beside the profile's own; documented at the OS' own site, see each function.
	args func(p *lab.Profile, d Data) []string
	// reads is how many complete reads of the config document one boot makes; 0: any number.
	reads int
	// seed is true for installers that fetch a folder of documents (cloud-init's NoCloud) instead of one.
	seed bool
	// callsBack is true where the config document can make the "done" call; otherwise the machine's next request for
	// its script says that the install is over.
	callsBack bool
}

// systemOf returns what is known of an operating system.
func systemOf(os lab.OS) system {
	switch os {
	case lab.OSCoreOS:
		return system{args: coreosArgs, reads: 1}
	case lab.OSFlatcar:
		return system{args: flatcarArgs, reads: 1, callsBack: true}
	case lab.OSTalos:
		return system{args: talosArgs}
	case lab.OSAnaconda:
		return system{args: anacondaArgs, reads: 1, callsBack: true}
	case lab.OSDebian:
		return system{args: debianArgs, reads: 1, callsBack: true}
	case lab.OSUbuntu:
		return system{args: ubuntuArgs, reads: 2, seed: true, callsBack: true}
	case lab.OSCloudInit:
		return system{args: cloudInitArgs, reads: 2, seed: true, callsBack: true}
	default:
		return system{args: func(*lab.Profile, Data) []string { return nil }, reads: 1, callsBack: true}
	}
}

// coreosArgs are of the live image of Fedora CoreOS, RHCOS and SCOS: with install_to it runs coreos-installer, without
// it Ignition configures the live system. The rootfs is fetched by the initramfs (dracut's livenet, by curl).
func coreosArgs(p *lab.Profile, d Data) []string {
	args := []string{"ip=dhcp", "rd.neednet=1", bootif(d)}
	if p.Rootfs != "" {
		args = append(args, "coreos.live.rootfs_url="+fileURL(d, p.Rootfs))
	}
	switch {
	case p.Config == "":
	case p.InstallTo != "":
		args = append(args, "coreos.inst.ignition_url="+d.ConfigURL)
	default:
		args = append(args, "ignition.firstboot", "ignition.platform.id=metal", "ignition.config.url="+d.ConfigURL)
	}
	if p.InstallTo != "" {
		args = append(args, "coreos.inst.install_dev="+p.InstallTo)
	}
	return args
}

// flatcarArgs boot Flatcar from memory; an install is a unit of the Ignition document.
func flatcarArgs(p *lab.Profile, d Data) []string {
	args := []string{"flatcar.first_boot=1"}
	if p.Config != "" {
		args = append(args, "ignition.config.url="+d.ConfigURL)
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

// anacondaArgs are of Fedora, RHEL, Alma and Rocky; the kickstart names the installation source.
func anacondaArgs(p *lab.Profile, d Data) []string {
	args := []string{"ip=dhcp", bootif(d)}
	if p.Config != "" {
		args = append(args, "inst.ks="+d.ConfigURL, "inst.ks.sendmac")
	}
	return args
}

// debianArgs are of debian-installer; priority=critical answers what the preseed leaves open.
func debianArgs(p *lab.Profile, d Data) []string {
	name, domain, _ := strings.Cut(d.Host.FQDN, ".")
	args := []string{"auto=true", "priority=critical", "interface=auto", "hostname=" + name, "domain=" + domain}
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

// bootif tells dracut and anaconda which NIC booted, in the form of PXELINUX: hardware type, then the MAC.
func bootif(d Data) string { return "BOOTIF=01-" + d.Host.MAC.Hyphens() }

func fileURL(d Data, path string) string { return d.FilesURL + "/" + strings.TrimPrefix(path, "/") }
