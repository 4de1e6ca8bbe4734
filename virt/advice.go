package virt

import (
	"fmt"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// advise adds to a hypervisor's error what somebody who runs the lab can do about it. libvirt passes most errors of the
// layers below on as text only, so text is what there is to go by.
func advise(err error, a lab.Attachment, hv *lab.Hypervisor) error {
	text := err.Error()
	has := func(parts ...string) bool {
		for _, p := range parts {
			if !strings.Contains(text, p) {
				return false
			}
		}
		return true
	}
	switch {
	case a.Bridge != "" && has(a.Bridge, "No such device"):
		return fmt.Errorf("%w: make bridge %s on that machine, or name another in hypervisors.%s.bridges", err, a.Bridge, hv.Name)
	case a.LibvirtNetwork != "" && (has("Network not found") || has("network '"+a.LibvirtNetwork+"' is not active")):
		return fmt.Errorf("%w: define and start libvirt network %s there (virsh net-start %[2]s), or change hypervisors.%[3]s.bridges",
			err, a.LibvirtNetwork, hv.Name)
	case has("libvirt-sock", "Permission denied"), has("authentication unavailable"), has("access denied by policy"):
		return fmt.Errorf("%w: add the user that bootlab runs as to group libvirt (usermod -aG libvirt bootlab) and restart bootlab", err)
	case has("-sock'", "No such file"), has("-sock'", "Connection refused"):
		return fmt.Errorf("%w: libvirt does not run there (systemctl start libvirtd), or the URI of hypervisor %s names the wrong socket",
			err, hv.Name)
	case has("Permission denied (publickey"), has("Host key verification failed"):
		return fmt.Errorf("%w: the user that bootlab runs as must be able to log in with \"ssh\" and no password; try it as that user", err)
	case has("unable to find any emulator"), has("invalid argument: could not get preferred machine"), has("KVM is not available"):
		return fmt.Errorf("%w: no hardware virtualization there? set hypervisors.%s.domain_type: qemu", err, hv.Name)
	}
	return err
}
