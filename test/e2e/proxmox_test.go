package e2e

import (
	"strings"
	"testing"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/qemu"
)

// proxmoxLab has one machine whose installer requests its answer file by POST.
const proxmoxLab = `
version: 1
lab: e2e
domain: lab.test
appliance: {state: DIR/state, files: files, admin_socket: DIR/admin.sock, user: nobody}
networks: {inner: {subnet: 10.77.0.0/24, interface: BRIDGE, address: 10.77.0.1}}
profiles:
  pve:
    os: proxmox
    kernel: images/vmlinuz
    initrd: [images/initrd.img]
    image: images/auto.iso
    config: pve/answer.toml
    args: [console=ttyS0, no_timer_check]
hosts:
  node: {mac: "52:54:00:77:00:21", ip: 10.77.0.21, profile: pve}
`

// TestProxmox plays Proxmox' installer with our guest. iPXE must add the ISO as a file to the initrd, on BIOS and on UEFI, where the kernel
// gets its initrds in another way; DHCP must name the URL of the answer file; the machine with the posted NICs must get it, once.
func TestProxmox(t *testing.T) {
	t.Parallel()
	for _, firmware := range withLong([]qemu.Firmware{qemu.BIOS}, qemu.UEFIPXE) {
		t.Run(string(firmware), func(t *testing.T) {
			t.Parallel()
			netns.Need(t, qemu.Needs()...)
			r := newRig(t, proxmoxLab, withGuest(t, map[string]string{
				"images/auto.iso": strings.Repeat("iso", 100_001),
				"pve/answer.toml": "disk = \"/dev/vda\"\nmessage = \"{{.Host.Name}}\"\nimage = \"{{.FilesURL}}/public/disk.img\"\ndone = \"{{.DoneURL}}\"\n",
			}))
			m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: firmware, Disk: qemu.NewDisk(t, 1<<30)})
			m.Await(t, patience, "GUEST medium bytes=300003")
			m.Await(t, patience, "GUEST answer bytes=")
			m.Await(t, patience, "GUEST message node")
			m.Await(t, patience, "GUEST install done")
			if got := r.host(t, "node").Install; got != "installed" {
				t.Errorf("install state %q after the installer said that it is done", got)
			}
			r.wantKinds(t, "node", event.DHCPAck, event.ScriptServed, event.ConfigServed, event.InstallStarted, event.InstallDone)
		})
	}
}
