package virt

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/bootlab/bootlab/internal/lab"
)

// addHint adds to a hypervisor's error what an admin can do. It searches the text, because libvirt passes most errors of
// lower layers on as text only.
func addHint(err error, a lab.Attachment, hv *lab.Hypervisor) error {
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
		return fmt.Errorf("%w: create bridge %s on the hypervisor, or set another in hypervisors.%s.bridges", err, a.Bridge, hv.Name)
	case a.LibvirtNetwork != "" && (has("Network not found") || has("network '"+a.LibvirtNetwork+"' is not active")):
		return fmt.Errorf("%w: define and start libvirt network %s on the hypervisor (virsh net-start %[2]s), or change hypervisors.%[3]s.bridges",
			err, a.LibvirtNetwork, hv.Name)
	case has("libvirt-sock", "Permission denied"), has("authentication unavailable"), has("access denied by policy"):
		return fmt.Errorf("%w: add bootlab's user to group libvirt (usermod -aG libvirt bootlab) and restart bootlab", err)
	case has("-sock'", "No such file"), has("-sock'", "Connection refused"):
		return fmt.Errorf("%w: %s", err, socketHint(text, hv))
	case has("Permission denied (publickey"), has("Host key verification failed"):
		return fmt.Errorf("%w: bootlab's user must be able to log in with \"ssh\" without a password; test it as that user", err)
	case has("unable to find any emulator"), has("invalid argument: could not get preferred machine"), has("KVM is not available"):
		return fmt.Errorf("%w: without hardware virtualization set hypervisors.%s.domain_type: qemu", err, hv.Name)
	}
	return err
}

// daemonSocket finds the socket of one of libvirt's daemons that is not libvirtd, such as virtlogd, which libvirtd itself connects to.
var daemonSocket = regexp.MustCompile(`/(virt[a-z]+d)-sock'`)

// socketHint returns what to do about a socket on which nobody listens.
func socketHint(text string, hv *lab.Hypervisor) string {
	start, correct := "start libvirt on the hypervisor (systemctl start libvirtd)", ", or correct the socket in hypervisors."+hv.Name+".uri"
	found := daemonSocket.FindStringSubmatch(text)
	if found == nil {
		return start + correct
	}
	start = fmt.Sprintf("start %s on the hypervisor (systemctl start %[1]s.socket)", found[1])
	if found[1] == "virtqemud" || strings.Contains(hv.URI, found[1]) { // bootlab connects to it
		return start + correct
	}
	return start
}

// hinted is addHint for the NIC of m that the error is about.
func (m *machine) hinted(err error, hv *lab.Hypervisor) error {
	for _, a := range m.attach {
		if with := addHint(err, a, hv); with.Error() != err.Error() {
			return with
		}
	}
	return err
}
