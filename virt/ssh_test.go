//go:build cgo && libvirt_dlopen

package virt_test

import (
	"fmt"
	"testing"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/sshd"
	"github.com/bootlab/bootlab/virt"
)

// TestLibvirtBySSH creates, starts and deletes a machine on a libvirtd that is reached by SSH, and ends its connection in between.
func TestLibvirtBySSH(t *testing.T) {
	address, key := sshd.Start(t)
	d, on := startLibvirtd(t)
	seg := netns.NewSegment(t, "10.138.0.1/24")
	b := newTestServer(t, oneHost(on, func(h *lab.Host) {
		hv := h.VM.Hypervisor
		hv.URI = sshd.URI(address, key, d.URI)
		hv.Bridges[0].Bridge = seg.Bridge
	}), nil, virt.Config{})
	serve(t, b)
	check(t, b.Create(t.Context(), "master-0"))
	check(t, b.Start(t.Context(), "master-0"))
	wantState(t, b, virt.StateRunning)
	for _, pid := range children(t) { // with its ssh
		netns.Run(t, "kill", "-9", fmt.Sprint(pid))
	}
	waitState(t, b, virt.StateRunning)
	check(t, b.Delete(t.Context(), "master-0", virt.DeleteDisks))
	wantState(t, b, virt.StateAbsent)
}
