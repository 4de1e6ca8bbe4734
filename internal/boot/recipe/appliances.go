package recipe

import "github.com/bootlab/bootlab/internal/lab"

// talosArgs are the arguments that Talos requires on metal.
func talosArgs(p *lab.Profile, d Data) []string {
	args := []string{"talos.platform=metal", "slab_nomerge", "pti=on", "init_on_alloc=1"}
	if p.Config != "" {
		args = append(args, "talos.config="+d.ConfigURL)
	}
	return args
}

// harvesterArgs boot Harvester's installer, which fetches its root file system by dracut and then asks nothing if it has
// a config document. It takes no second ip=.
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
