package lab

import (
	"fmt"
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

// A ProfilePath is a path that a profile names, below Appliance.Files.
type ProfilePath struct {
	Key  string // in the lab file, for PosOf: "kernel", "initrd[1]"
	Text string // not empty; it may hold template actions
	Sent bool   // machines fetch it unchanged; else it is rendered for one machine, and only that machine gets it
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
