package recipe

import (
	"cmp"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

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

// debianArgs are of debian-installer; priority=critical answers what the preseed leaves open. What it would ask even then, before
// it has its preseed file, is answered here. BOOTIF names the card: with interface=auto alone it takes the first that has a link,
// and on a machine with several it may stop without an address. In a network without a router, its DHCP script breaks off at the
// route and never comes to the name servers, so that it asks for both.
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
