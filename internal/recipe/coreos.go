package recipe

import "bootlab/internal/lab"

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

// agentArgs are of what "openshift-install agent create pxe-files" makes: its Ignition is inside the initrd, and platform
// metal makes it look there.
func agentArgs(p *lab.Profile, d Data) []string {
	return []string{"coreos.live.rootfs_url=" + fileURL(d, p.Rootfs), "rw", "ignition.firstboot", "ignition.platform.id=metal"}
}

// flatcarArgs boot Flatcar from memory; an install is a unit of the Ignition document.
func flatcarArgs(p *lab.Profile, d Data) []string {
	args := []string{"flatcar.first_boot=1"}
	if p.Config != "" {
		args = append(args, "ignition.config.url="+d.ConfigURL)
	}
	return args
}
