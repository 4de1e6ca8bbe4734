package load

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

func (r *resolver) profileList() {
	slab := make([]lab.Profile, len(r.raw.Profiles.Entries))
	for i, e := range r.raw.Profiles.Entries {
		p := &slab[i]
		r.profile(e, p)
		r.profiles[e.Name] = p
		r.lab.Profiles = append(r.lab.Profiles, p)
	}
}

func (r *resolver) profile(e *entry[rawProfile], p *lab.Profile) {
	raw, key := &e.V, "profiles."+e.Name
	r.identName(e.spot, key, e.Name)
	*p = lab.Profile{
		Pos: r.pos(e.spot), Name: e.Name, OS: raw.OS.or(lab.OSNone),
		Kernel: r.filePath(&raw.Kernel, key+".kernel"), Rootfs: r.filePath(&raw.Rootfs, key+".rootfs"),
		Image: r.filePath(&raw.Image, key+".image"), Config: r.filePath(&raw.Config, key+".config"),
		IPXE: r.filePath(&raw.IPXE, key+".ipxe"), Args: values(raw.Args, func(t text) string { return string(t) }),
		ConfigReads: int(raw.ConfigReads.or(0)), InstallTo: string(raw.InstallTo.or("")), Install: raw.Install.or(lab.InstallDefault),
		Chain:          raw.Chain.or(lab.ChainDefault),
		InstallTimeout: time.Duration(raw.Timeout.or(limit(installTimeout))),
	}
	p.Initrd = r.filePaths(raw.Initrd, key+".initrd")
	p.Documents = r.filePaths(raw.Documents, key+".documents")
	p.Keys = r.profileKeys(raw)
	for i := range raw.Args.Items {
		r.template(&raw.Args.Items[i], fmt.Sprintf("%s.args[%d]", key, i))
	}
	if v := &raw.InstallTo; v.ok() && bareDisk.MatchString(string(v.V)) && p.OS != lab.OSAnaconda {
		r.fail(v.spot, key+".install_to", "%q is not the path of a disk: did you mean /dev/%[1]s?", v.V)
	}
	r.profileMedium(e, p)
	if p.Install == lab.InstallDefault {
		p.Install = defaultInstall(p)
	}
	if p.Install != lab.InstallNever && p.MakesDisk() {
		r.fail(raw.Install.spot, key+".install", "a machine is made from the image (%s), and nothing installs it: want kernel too, or no install", r.pos(raw.Image.spot))
	}
	r.profileMakesSense(e, key)
}

// bareDisk matches the names of disks that only a kickstart file takes without /dev/ in front.
var bareDisk = regexp.MustCompile(`^((sd|vd|xvd|hd)[a-z]+|nvme[0-9]+n[0-9]+|mmcblk[0-9]+)$`)

// defaultInstall is once if the recipe installs or install_to is set, and the machine boots from the network.
func defaultInstall(p *lab.Profile) lab.InstallMode {
	if !p.NetBoots() {
		return lab.InstallNever
	}
	switch p.OS {
	case lab.OSOpenShiftAgent, lab.OSTalos, lab.OSAnaconda, lab.OSDebian, lab.OSUbuntu, lab.OSAutoYaST, lab.OSAgama, lab.OSHarvester, lab.OSKairos, lab.OSESXi, lab.OSProxmox:
		return lab.InstallOnce
	case lab.OSWindows:
		if p.Config != "" { // without an answer file it is a rescue system
			return lab.InstallOnce
		}
	}
	if p.InstallTo != "" {
		return lab.InstallOnce
	}
	return lab.InstallNever
}

func (r *resolver) profileMakesSense(e *entry[rawProfile], key string) {
	raw := &e.V
	if raw.IPXE.set() {
		for name, s := range map[string]spot{"kernel": raw.Kernel.spot, "initrd": raw.Initrd.spot, "rootfs": raw.Rootfs.spot, "args": raw.Args.spot} {
			if s.set() {
				r.fail(s, key+"."+name, "excludes ipxe (%s), which is a whole script: want one of the two", r.pos(raw.IPXE.spot))
			}
		}
		if raw.Chain.V == lab.ChainGRUB {
			r.fail(raw.Chain.spot, key+".chain", "GRUB cannot run the iPXE script (%s): want kernel instead, or chain: ipxe", r.pos(raw.IPXE.spot))
		}
		return
	}
	if raw.OS.V == lab.OSDiscover {
		r.discoverMakesSense(raw, key)
		return
	}
	r.systemMakesSense(e, key)
	switch {
	case mediumOf(raw.OS.V).kernel != "" && raw.Tree.set(): // that is where they are
	case !raw.Kernel.set() && raw.Initrd.set():
		r.fail(raw.Initrd.spot, key+".initrd", "needs kernel: want both")
	case !raw.Kernel.set() && raw.Rootfs.set():
		r.fail(raw.Rootfs.spot, key+".rootfs", "needs kernel: want both")
	case raw.OS.set() && !raw.OS.ok() && raw.Tree.set(): // it may be on the medium of the system that was meant
	case !raw.Kernel.set() && !raw.Image.set():
		r.fail(e.spot, key, "boots nothing: want kernel, image or ipxe%s", mediumHint(raw.OS.V))
	case raw.ConfigReads.ok() && raw.ConfigReads.V == 0:
		r.fail(raw.ConfigReads.spot, key+".config_reads", "0 would never let the machine read its document: want 1 or more")
	}
}

// discoverMakesSense reports keys that a profile with os: discover cannot have: it loads and installs nothing.
func (r *resolver) discoverMakesSense(raw *rawProfile, key string) {
	for _, v := range []struct {
		name string
		s    spot
	}{
		{"kernel", raw.Kernel.spot}, {"initrd", raw.Initrd.spot}, {"rootfs", raw.Rootfs.spot}, {"image", raw.Image.spot}, {"args", raw.Args.spot},
		{"config", raw.Config.spot}, {"install_to", raw.InstallTo.spot}, {"install", raw.Install.spot},
	} {
		if v.s.set() {
			r.fail(v.s, key+"."+v.name, "excludes os: discover, which boots nothing: want one of the two")
		}
	}
}

// A medium is where an installation medium has what a machine boots, below the tree of a profile.
type medium struct {
	kernel string // empty: the medium has none that fits
	initrd []string
}

// mediumOf returns how the x86-64 media of an operating system are laid out; those of other architectures need kernel and
// initrd in the profile.
func mediumOf(os lab.OS) medium {
	switch os {
	case lab.OSAnaconda:
		return medium{"images/pxeboot/vmlinuz", []string{"images/pxeboot/initrd.img"}}
	case lab.OSAutoYaST, lab.OSAgama:
		return medium{"boot/x86_64/loader/linux", []string{"boot/x86_64/loader/initrd"}}
	case lab.OSUbuntu:
		return medium{"casper/vmlinuz", []string{"casper/initrd"}}
	case lab.OSESXi:
		return medium{"efi/boot/bootx64.efi", nil}
	case lab.OSWindows: // its kernel is wimboot, which is on no medium
		return medium{"", []string{"boot/bcd", "boot/boot.sdi", "sources/boot.wim"}}
	}
	return medium{}
}

// mediumHint completes the error for a profile that boots nothing.
func mediumHint(os lab.OS) string {
	if mediumOf(os).kernel == "" {
		return ""
	}
	return ", or tree: the folder of the unpacked medium"
}

// profileMedium settles the tree of p, and takes kernel and initrd from there where the lab file names none.
func (r *resolver) profileMedium(e *entry[rawProfile], p *lab.Profile) {
	raw, key := &e.V, "profiles."+e.Name
	p.Tree = r.filePath(&raw.Tree, key+".tree")
	if strings.Contains(p.Tree, "{{") || p.Tree == "." {
		r.fail(raw.Tree.spot, key+".tree", "%q is not a folder below appliance.files: want one like media/rocky9, without a template", p.Tree)
	}
	if p.Tree == "" || p.IPXE != "" {
		return
	}
	m := mediumOf(p.OS)
	if p.Kernel == "" && m.kernel != "" {
		p.Kernel = path.Join(p.Tree, m.kernel)
	}
	if len(p.Initrd) == 0 {
		for _, name := range m.initrd {
			p.Initrd = append(p.Initrd, path.Join(p.Tree, name))
		}
	}
}

// profileKeys returns the places of the keys that others than the loader complain about.
func (r *resolver) profileKeys(raw *rawProfile) map[string]lab.Pos {
	keys := map[string]lab.Pos{}
	for name, v := range map[string]*scalar[text]{
		"kernel": &raw.Kernel, "rootfs": &raw.Rootfs, "image": &raw.Image, "config": &raw.Config, "ipxe": &raw.IPXE, "tree": &raw.Tree, "install_to": &raw.InstallTo,
	} {
		if v.set() {
			keys[name] = r.pos(v.spot)
		}
	}
	for name, l := range map[string]*scalars[text]{"initrd": &raw.Initrd, "args": &raw.Args, "documents": &raw.Documents} {
		for i := range l.Items {
			keys[fmt.Sprintf("%s[%d]", name, i)] = r.pos(l.Items[i].spot)
		}
	}
	return keys
}

// systemMakesSense reports keys that the recipe of an operating system requires and the profile lacks, and keys that it does not
// use.
func (r *resolver) systemMakesSense(e *entry[rawProfile], key string) {
	raw := &e.V
	need := func(name string, there bool, what string) {
		if !there {
			r.fail(e.spot, key+"."+name, "is missing: os: %s needs %s", raw.OS.V, what)
		}
	}
	unused := func(name string, s spot, why string) {
		if s.set() {
			r.fail(s, key+"."+name, "os: %s does not use it: %s", raw.OS.V, why)
		}
	}
	switch raw.OS.V {
	case lab.OSCoreOS:
		r.liveSystem(e, key)
	case lab.OSOpenShiftAgent:
		need("rootfs", raw.Rootfs.set(), "the agent.ARCH-rootfs.img of openshift-install agent create pxe-files")
		unused("config", raw.Config.spot, "the agent's Ignition is inside its initrd")
	case lab.OSHarvester, lab.OSKairos:
		need("rootfs", raw.Rootfs.set(), "the root file system of its release (.squashfs)")
	case lab.OSAgama:
		need("image", raw.Image.set() || raw.Rootfs.set(), "the ISO of the installer, or its live file system as rootfs")
	case lab.OSProxmox:
		need("kernel", raw.Kernel.set(), "the vmlinuz of proxmox-auto-install-assistant prepare-iso --pxe")
		need("image", raw.Image.set(), "the ISO of proxmox-auto-install-assistant prepare-iso --pxe")
	case lab.OSESXi:
		need("tree", raw.Tree.set(), "the folder of the unpacked ISO, for its modules")
		unused("initrd", raw.Initrd.spot, "boot.cfg of its tree names the modules")
	case lab.OSWindows:
		need("kernel", raw.Kernel.set(), "the path of wimboot")
		need("initrd", raw.Initrd.set() || raw.Tree.set(), "BCD, boot.sdi and boot.wim, or tree: the folder of the unpacked ISO")
	}
}

// liveSystem warns of a CoreOS that has no root file system, neither in a file of its own, nor in a second initrd, nor by its arguments.
func (r *resolver) liveSystem(e *entry[rawProfile], key string) {
	raw := &e.V
	elsewhere := slices.ContainsFunc(raw.Args.Items, func(a scalar[text]) bool {
		return strings.Contains(string(a.V), "rootfs_url=") || strings.Contains(string(a.V), "image_url=")
	})
	if raw.Kernel.set() && !raw.Rootfs.set() && len(raw.Initrd.Items) == 1 && !elsewhere && !r.incomplete[key] {
		r.lab.Warnings.Addf(r.pos(e.spot), key+".rootfs", "is missing: the live system of os: coreos stops in its initrd without its root file system; want the live-rootfs.img of the same release")
	}
}

// answers adds the DHCP option with the URL of the answer file to hosts and pools whose installer POSTs for it.
func (r *resolver) answers() {
	added := map[*lab.Network][]lab.Option{}
	with := func(n *lab.Network, own []lab.Option) []lab.Option {
		if own != nil {
			return withAnswer(own, n)
		}
		if added[n] == nil {
			added[n] = withAnswer(n.Options, n)
		}
		return added[n]
	}
	for _, h := range r.lab.Hosts {
		if h.Profile != nil && h.Profile.OS == lab.OSProxmox && h.Network != nil && h.Network.BaseURL != "" {
			h.Options = with(h.Network, h.Options)
		}
	}
	for _, n := range r.lab.Networks {
		for _, p := range n.Pools {
			if p.Profile != nil && p.Profile.OS == lab.OSProxmox && n.BaseURL != "" {
				p.Options = with(n, p.Options)
			}
		}
	}
}

// withAnswer adds the option to a copy of options, unless it is set.
func withAnswer(options []lab.Option, n *lab.Network) []lab.Option {
	at, set := slices.BinarySearchFunc(options, lab.AnswerOption, func(o lab.Option, code int) int { return int(o.Code) - code })
	if set {
		return options
	}
	return slices.Insert(slices.Clone(options), at, lab.Option{Code: lab.AnswerOption, Data: []byte(n.AnswerURL())})
}
