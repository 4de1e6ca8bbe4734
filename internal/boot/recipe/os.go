package recipe

import (
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// A system is what a recipe knows of an operating system's installer. docs/os has a page for each, with where it is
// known from.
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
	// done are the signs by which an install is known to be over where no document calls back.
	done Done
	// callsFor reports whether what the recipe adds to a boot makes the call, whatever the document says; nil: never.
	callsFor func(p *lab.Profile) bool
	// callsLate is true where a document can only call from the installed system: before that the machine must have
	// started from its disk, so that the other signs count too.
	callsLate bool
}

// systemOf returns what is known of an operating system.
func systemOf(os lab.OS) system {
	switch os {
	case lab.OSCoreOS:
		return system{args: coreosArgs, reads: 1, done: NextBoot | SystemLease, parts: coreosParts, callsFor: installs}
	case lab.OSOpenShiftAgent:
		return system{args: agentArgs, done: NextBoot}
	case lab.OSFlatcar:
		return system{args: flatcarArgs, reads: 1, done: NextBoot | SystemLease, parts: flatcarParts, callsFor: installs}
	case lab.OSTalos:
		return system{args: talosArgs, done: NextBoot | SystemLease}
	case lab.OSAnaconda:
		return system{args: anacondaArgs, reads: 1, done: NextBoot}
	case lab.OSDebian:
		return system{args: debianArgs, reads: 1, done: NextBoot | SystemLease}
	case lab.OSUbuntu:
		return system{args: ubuntuArgs, reads: 2, seed: true, parts: seedParts, done: NextBoot}
	case lab.OSAutoYaST:
		return system{args: autoyastArgs, reads: 2, done: NextBoot}
	case lab.OSAgama:
		return system{args: agamaArgs, reads: 2, done: NextBoot}
	case lab.OSHarvester:
		return system{args: harvesterArgs, reads: 1, done: NextBoot}
	case lab.OSKairos:
		return system{args: kairosArgs, done: NextBoot}
	case lab.OSESXi:
		return system{args: esxiArgs, script: esxiScript, parts: esxiParts, done: NextBoot}
	case lab.OSProxmox:
		return system{args: proxmoxArgs, script: proxmoxScript, reads: 1, done: NextBoot}
	case lab.OSWindows:
		return system{args: noArgs, script: windowsScript, reads: 1, done: NextBoot, callsLate: true}
	case lab.OSCloudInit:
		return system{args: cloudInitArgs, reads: 2, seed: true, parts: seedParts, done: NextBoot}
	default:
		return system{args: noArgs, reads: 1, done: NextBoot}
	}
}

func noArgs(*lab.Profile, Data) []string { return nil }

// installs reports whether the recipe itself puts the system on a disk.
func installs(p *lab.Profile) bool { return p.InstallTo != "" }

// bootif tells dracut and anaconda which NIC booted, in the form of PXELINUX: hardware type, then the MAC.
func bootif(d Data) string { return "BOOTIF=01-" + d.Host.MAC.Hyphens() }

func fileURL(d Data, path string) string { return d.FilesURL + "/" + strings.TrimPrefix(path, "/") }
