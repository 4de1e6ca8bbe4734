package recipe

import (
	"strings"

	"bootlab/internal/lab"
)

// A system is what a recipe knows of an operating system's installer. docs/os has a page for each, with where it is
// known from.
type system struct {
	// args returns the kernel arguments beside the profile's own. The profile's paths are rendered.
	args func(p *lab.Profile, d Data) []string
	// reads is how many complete reads of the config document one boot makes; 0: any number, or not known.
	reads int
	// seed is true for installers that fetch a folder of documents (cloud-init's NoCloud) instead of one.
	seed bool
	// done are the signs by which an install is known to be over where no document calls back.
	done Done
	// callsFor reports whether what the recipe adds to a boot makes the call, whatever the document says; nil: never.
	callsFor func(p *lab.Profile) bool
}

// systemOf returns what is known of an operating system.
func systemOf(os lab.OS) system {
	switch os {
	case lab.OSCoreOS:
		return system{args: coreosArgs, reads: 1, done: NextBoot | SystemLease}
	case lab.OSOpenShiftAgent:
		return system{args: agentArgs, done: NextBoot}
	case lab.OSFlatcar:
		return system{args: flatcarArgs, reads: 1, done: NextBoot | SystemLease}
	case lab.OSTalos:
		return system{args: talosArgs, done: NextBoot | SystemLease}
	case lab.OSAnaconda:
		return system{args: anacondaArgs, reads: 1, done: NextBoot}
	case lab.OSDebian:
		return system{args: debianArgs, reads: 1, done: NextBoot | SystemLease}
	case lab.OSUbuntu:
		return system{args: ubuntuArgs, reads: 2, seed: true, done: NextBoot}
	case lab.OSAutoYaST:
		return system{args: autoyastArgs, reads: 2, done: NextBoot}
	case lab.OSAgama:
		return system{args: agamaArgs, reads: 2, done: NextBoot}
	case lab.OSHarvester:
		return system{args: harvesterArgs, reads: 1, done: NextBoot}
	case lab.OSKairos:
		return system{args: kairosArgs, done: NextBoot}
	case lab.OSCloudInit:
		return system{args: cloudInitArgs, reads: 2, seed: true, done: NextBoot}
	default:
		return system{args: func(*lab.Profile, Data) []string { return nil }, reads: 1, done: NextBoot}
	}
}

// bootif tells dracut and anaconda which NIC booted, in the form of PXELINUX: hardware type, then the MAC.
func bootif(d Data) string { return "BOOTIF=01-" + d.Host.MAC.Hyphens() }

func fileURL(d Data, path string) string { return d.FilesURL + "/" + strings.TrimPrefix(path, "/") }
