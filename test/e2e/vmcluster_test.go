package e2e

import (
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestClusterOfVMs: up creates the virtual machine of a cluster, and down switches it off.
func TestClusterOfVMs(t *testing.T) {
	t.Parallel()
	netns.Need(t, libvirtd.Needs()...)
	netns.Enter(t)
	libvirt := startLibvirt(t)
	lab := strings.NewReplacer("kind: openshift", "kind: kubernetes, address: 10.77.0.10", "role: worker", "role: control-plane").Replace(vmLab(libvirt.URI, "bios"))
	r := newRigHere(t, lab, bootFiles)
	r.bootlab(t, "up", "prod", "--yes", "--detach")
	r.wantKinds(t, "node", event.VMCreated, event.VMStarted, event.DHCPAck)
	r.untilVM(t, "running")
	r.bootlab(t, "down", "prod", "--yes")
	r.untilVM(t, "off")
	r.bootlab(t, "vm", "delete", "node", "--disks", "--yes")
}
