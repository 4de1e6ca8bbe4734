package lab

import (
	"fmt"
	"strings"
	"text/template/parse"
	"time"
)

// A Profile is what a machine boots. Kernel, Initrd, Rootfs, Image, Config, Documents and IPXE are slash-separated paths
// relative to Appliance.Files and may hold template actions; Tree is such a path without any.
type Profile struct {
	Pos         Pos
	Name        string
	OS          OS
	Tree        string // folder of an unpacked installation medium; all of it is served
	Kernel      string
	Initrd      []string
	Rootfs      string
	Image       string
	Args        []string // templates, appended to the recipe's kernel arguments
	Config      string   // template of the path of the config document, itself a template
	Documents   []string // more of the kind, served beside Config under their base names
	ConfigReads int      // complete reads in one boot; 0: as the recipe says
	InstallTo   string
	Install     InstallMode
	// InstallTimeout is how long an installer may be silent before its machine counts as installed; 0: no limit.
	InstallTimeout time.Duration
	Chain          Chain
	IPXE           string // a whole iPXE script as a template instead of kernel and initrd

	Keys map[string]Pos // place of each key in the lab file; see PosOf
}

// PosOf returns the place of a key of the profile, such as "kernel" or "args[1]"; Pos where it is not in the file.
func (p *Profile) PosOf(key string) Pos {
	if pos, ok := p.Keys[key]; ok {
		return pos
	}
	return p.Pos
}

// NetBoots reports whether the profile boots from the network; it may have an image only.
func (p *Profile) NetBoots() bool { return p.Kernel != "" || p.IPXE != "" }

// MakesDisk reports whether the first disk of a virtual machine is made from the image, and nothing installs it. In a profile with a kernel,
// the image is for the installer.
func (p *Profile) MakesDisk() bool { return p.Image != "" && !p.NetBoots() }

// A ProfilePath is a path that a profile names, below Appliance.Files.
type ProfilePath struct {
	Key  string // in the lab file, for PosOf: "kernel", "initrd[1]"
	Text string // not empty; it may hold template actions
	Sent bool   // machines fetch it unchanged; else it is rendered for one machine, and only that machine gets it
}

// ForRole returns the path as it is for the hosts of a role, as written; false: it depends on more than that. Who renders the whole template
// finds the same path, and asks whether it is one for each role.
func (p ProfilePath) ForRole(role string) (path string, ok bool) {
	if !strings.Contains(p.Text, "{{") {
		return p.Text, true
	}
	t := parse.New(p.Key)
	t.Mode = parse.SkipFuncCheck
	if _, err := t.Parse(p.Text, "", "", map[string]*parse.Tree{}); err != nil {
		return "", false
	}
	for _, n := range t.Root.Nodes {
		switch text, plain := n.(*parse.TextNode); {
		case plain:
			path += string(text.Text)
		case n.String() == "{{.Host.Role}}":
			path += role
		default:
			return "", false
		}
	}
	return path, true
}

// Paths returns all paths that p names but its tree, which is a folder.
func (p *Profile) Paths() (paths []ProfilePath) {
	add := func(key, text string, sent bool) {
		if text != "" {
			paths = append(paths, ProfilePath{key, text, sent})
		}
	}
	add("kernel", p.Kernel, true)
	for i, text := range p.Initrd {
		add(fmt.Sprintf("initrd[%d]", i), text, true)
	}
	add("rootfs", p.Rootfs, true)
	add("image", p.Image, true)
	add("config", p.Config, false)
	for i, text := range p.Documents {
		add(fmt.Sprintf("documents[%d]", i), text, false)
	}
	add("ipxe", p.IPXE, false)
	return paths
}

// OS names a built-in recipe.
type OS string

// The operating systems that have a recipe; OSes has them all. OSNone leaves kernel arguments to the profile. docs/os has a page for each.
const (
	OSNone           OS = ""
	OSCoreOS         OS = "coreos" // Fedora CoreOS, RHCOS, SCOS
	OSOpenShiftAgent OS = "openshift-agent"
	OSFlatcar        OS = "flatcar"
	OSTalos          OS = "talos"
	OSAnaconda       OS = "anaconda" // Fedora, RHEL, Alma, Rocky
	OSDebian         OS = "debian"
	OSUbuntu         OS = "ubuntu"
	OSAutoYaST       OS = "autoyast" // openSUSE Leap 15, SLE 15
	OSAgama          OS = "agama"    // openSUSE Leap 16, SLES 16
	OSHarvester      OS = "harvester"
	OSKairos         OS = "kairos"
	OSESXi           OS = "esxi"
	OSProxmox        OS = "proxmox"
	OSWindows        OS = "windows" // Windows PE by wimboot
	OSCloudInit      OS = "cloud-init"
	OSDiscover       OS = "discover" // no system at all: the machine reports what it is, and waits to be adopted
)

// OSes returns the operating systems that a profile may name.
func OSes() []OS {
	return []OS{
		OSCoreOS, OSOpenShiftAgent, OSFlatcar, OSTalos, OSAnaconda, OSDebian, OSUbuntu, OSAutoYaST, OSAgama, OSHarvester, OSKairos, OSESXi, OSProxmox, OSWindows,
		OSCloudInit, OSDiscover,
	}
}

// Chain is what a machine's UEFI firmware starts, to start the rest. BIOS firmware starts iPXE whatever the chain is.
type Chain string

// The chains. ChainDefault, which only a profile may have, leaves the choice to the host.
const (
	ChainDefault Chain = ""
	ChainIPXE    Chain = "ipxe"
	ChainGRUB    Chain = "grub" // shim and GRUB, which a distribution signed: for Secure Boot
)

// InstallMode says when a profile's installer runs.
type InstallMode string

// The install modes. InstallDefault leaves the choice to the recipe.
const (
	InstallDefault InstallMode = ""
	InstallOnce    InstallMode = "once"
	InstallAlways  InstallMode = "always"
	InstallNever   InstallMode = "never"
)

// LocalBoot says how a machine is sent to its own disk.
type LocalBoot string

// The ways to a machine's own disk.
const (
	LocalBootAuto    LocalBoot = "auto"    // by its firmware: UEFI as exit, a BIOS as sanboot
	LocalBootExit    LocalBoot = "exit"    // iPXE ends with an error, and the firmware goes on with its boot order
	LocalBootSanboot LocalBoot = "sanboot" // iPXE starts the first disk
	LocalBootNone    LocalBoot = "none"    // DHCP gives no boot file
)
