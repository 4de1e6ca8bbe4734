package load

import (
	"fmt"
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
	r.profileMedium(e, p)
	if p.Install == lab.InstallDefault {
		p.Install = defaultInstall(p)
	}
	r.profileMakesSense(e, key)
}

// defaultInstall is once where something is installed: by the recipe, or because there is a disk to install to.
func defaultInstall(p *lab.Profile) lab.InstallMode {
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
				r.fail(s, key+"."+name, "stands beside ipxe (%s), which is a whole script: want one of the two", r.pos(raw.IPXE.spot))
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
		r.fail(raw.Initrd.spot, key+".initrd", "stands without a kernel: want kernel beside it")
	case !raw.Kernel.set() && raw.Rootfs.set():
		r.fail(raw.Rootfs.spot, key+".rootfs", "stands without a kernel: want kernel beside it")
	case !raw.Kernel.set() && !raw.Image.set():
		r.fail(e.spot, key, "boots nothing: want kernel, image or ipxe%s", mediumHint(raw.OS.V))
	case raw.ConfigReads.ok() && raw.ConfigReads.V == 0:
		r.fail(raw.ConfigReads.spot, key+".config_reads", "0 would keep the machine from its document: want 1 or more")
	}
}

// discoverMakesSense: a machine that only tells what it is loads nothing and installs nothing.
func (r *resolver) discoverMakesSense(raw *rawProfile, key string) {
	for _, v := range []struct {
		name string
		s    spot
	}{
		{"kernel", raw.Kernel.spot}, {"initrd", raw.Initrd.spot}, {"rootfs", raw.Rootfs.spot}, {"image", raw.Image.spot}, {"args", raw.Args.spot},
		{"config", raw.Config.spot}, {"install_to", raw.InstallTo.spot}, {"install", raw.Install.spot},
	} {
		if v.s.set() {
			r.fail(v.s, key+"."+v.name, "stands beside os: discover, which boots nothing: want one of the two")
		}
	}
}
