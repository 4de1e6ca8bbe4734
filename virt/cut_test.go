//go:build cgo && libvirt_dlopen

package virt_test

import (
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/virt"
)

// TestCutOffHypervisor creates and starts a machine by qemu+tcp, and cuts the hypervisor off as a firewall or a dead link does: packets
// vanish. Operations fail in time, lists say that it is down, and once packets flow again everything goes on.
func TestCutOffHypervisor(t *testing.T) {
	netns.Need(t, "iptables")
	d, on := startLibvirtdWith(t, libvirtd.Config{TCP: true})
	seg := netns.NewSegment(t, "10.139.0.1/24")
	ctx := t.Context()
	l := oneHost(on, func(h *lab.Host) { h.VM.Hypervisor.URI, h.VM.Hypervisor.Bridges[0].Bridge = d.TCP, seg.Bridge })
	b := newTestServer(t, l, nil, virt.Config{ListWait: 100 * time.Millisecond, Timeout: 10 * time.Second, Refresh: time.Second})
	serve(t, b)
	check(t, b.Create(ctx, "master-0"))
	check(t, b.Start(ctx, "master-0"))
	waitState(t, b, virt.StateRunning)
	filter := func(op string) {
		t.Helper()
		for _, port := range []string{"--dport", "--sport"} {
			netns.Run(t, "iptables", "-w", op, "INPUT", "-i", "lo", "-p", "tcp", port, d.Port, "-j", "DROP")
		}
	}
	filter("-I")
	wantErr(t, b.Stop(ctx, "master-0", virt.StopForce, 0), "on hypervisor kvm1")
	waitState(t, b, virt.StateUnknown)
	if st := b.List(ctx)[0]; st.Down.IsZero() || len(b.Unreachable()) != 1 {
		t.Errorf("a hypervisor that is cut off: %+v", st)
	}
	wantErr(t, b.Start(ctx, "master-0"), "on hypervisor kvm1") // a new connection
	filter("-D")
	waitState(t, b, virt.StateRunning)
	check(t, b.Delete(ctx, "master-0", virt.DeleteDisks))
}
