package e2e

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/test/support/guest"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/qemu"
)

// proxyLab leaves the addresses to another DHCP server, and offers boot information only.
const proxyLab = `
version: 1
lab: e2e
domain: lab.test
appliance: {state: DIR/state, files: files, admin_socket: DIR/admin.sock, user: nobody}
networks:
  inner: {subnet: 10.77.0.0/24, interface: BRIDGE, address: 10.77.0.1, dhcp: proxy}
profiles:
  shell: {ipxe: ipxe/shell.ipxe}
hosts:
  node: {mac: "52:54:00:77:00:21", ip: 10.77.0.21, profile: shell}
`

// TestProxy boots machines beside a dnsmasq that assigns addresses without boot information.
func TestProxy(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		firmware qemu.Firmware
		program  []event.Kind // of its network boot program
	}{
		{qemu.BIOS, nil}, // its ROM is iPXE already
		{qemu.BIOSPlain, []event.Kind{event.TFTPServed}},
		{qemu.UEFIPXE, []event.Kind{event.TFTPServed}},
	} {
		t.Run(string(tt.firmware), func(t *testing.T) {
			t.Parallel()
			netns.Need(t, append(qemu.Needs(), "dnsmasq")...)
			r := newRig(t, proxyLab, map[string]string{"ipxe/shell.ipxe": "#!ipxe\necho SCRIPT of {{.Host.Name}} for ${netX/ip} from ${netX/dhcp-server}\nsleep 600\n"})
			beside(t, r.seg)
			m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: tt.firmware})
			line := m.Await(t, patience, "SCRIPT of node")
			if !strings.Contains(line.Text, "for 10.77.0.21 from 10.77.0.5") {
				t.Errorf("the address is not the other server's: %s", line.Text)
			}
			if m.Said("timed out") > 0 {
				t.Error("iPXE requested files from the other server, which has none")
			}
			kinds := append([]event.Kind{event.DHCPProxyOffer}, tt.program...)
			r.wantKinds(t, "node", append(kinds, event.ScriptServed)...)
			t.Logf("script after %.1fs", line.At.Seconds())
		})
	}
}

// TestProxySecureBoot boots through shim and GRUB beside that server. GRUB takes the TFTP server from the lease, so the other server has to
// name this one there. The daemon does not know the machine's address: GRUB has to ask by its MAC.
func TestProxySecureBoot(t *testing.T) {
	t.Parallel()
	netns.Need(t, append(qemu.Needs(), "dnsmasq")...)
	netns.Need(t, guest.SignedNeeds()...)
	file := strings.NewReplacer("{ipxe: ipxe/shell.ipxe}", "{kernel: k, chain: grub}", "ip: 10.77.0.21, ", "").Replace(proxyLab)
	r := newRig(t, file, nil)
	beside(t, r.seg, "--dhcp-boot=none,,"+appliance)
	m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: nodeMAC, Firmware: qemu.UEFISecure})
	m.Await(t, patience, "bootlab: node boots shell")
	r.wantKinds(t, "node", event.DHCPProxyOffer, event.TFTPServed, event.TFTPServed, event.ScriptServed)
}

// TestProxyBesideABootFile: the other server sends its own boot file. UEFI prefers ours by the type of the offer, iPXE by its priority.
// U-Boot uses one server only, which has to name our program.
func TestProxyBesideABootFile(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		firmware  qemu.Firmware
		mac, file string
	}{
		{qemu.BIOS, nodeMAC, "theirs.0"},
		{qemu.UEFIPXE, nodeMAC, "theirs.0"},
		{qemu.UBootARM64, ubootMAC, "snponly-arm64.efi"},
	} {
		t.Run(string(tt.firmware), func(t *testing.T) {
			t.Parallel()
			netns.Need(t, append(qemu.Needs(), "dnsmasq")...)
			if tt.firmware == qemu.UBootARM64 {
				netns.Need(t, "qemu-system-aarch64", qemu.UBoot)
			}
			r := newRig(t, strings.Replace(proxyLab, nodeMAC, tt.mac, 1), map[string]string{"ipxe/shell.ipxe": "#!ipxe\necho SCRIPT of {{.Host.Name}} from ${netX/dhcp-server}\nsleep 600\n"})
			beside(t, r.seg, "--dhcp-boot="+tt.file+",,"+appliance)
			m := qemu.Start(t, qemu.Config{Bridge: r.seg.Bridge, MAC: tt.mac, Firmware: tt.firmware})
			line := m.Await(t, patience, "SCRIPT of node")
			if !strings.Contains(line.Text, "from 10.77.0.5") {
				t.Errorf("the address is not the other server's: %s", line.Text)
			}
			if n := r.count(t, "node", event.TFTPRefused); n > 0 {
				t.Errorf("%d files of the other server were requested here", n)
			}
			t.Logf("script after %.1fs", line.At.Seconds())
		})
	}
}

// beside starts the other server in its own namespace.
func beside(t *testing.T, seg *netns.Segment, more ...string) {
	t.Helper()
	c := seg.NewClient(t)
	netns.Run(t, "ip", "-n", c.Name, "addr", "add", "10.77.0.5/24", "dev", "eth0")
	ctx, cancel := context.WithCancel(context.Background())
	cmd := c.Command(ctx, "dnsmasq", append([]string{"-k", "--conf-file=/dev/null", "--port=0", "--interface=eth0", "--except-interface=lo", "--bind-interfaces",
		"--dhcp-range=10.77.0.100,10.77.0.120", "--dhcp-host=" + nodeMAC + ",10.77.0.21", "--dhcp-authoritative", "--no-ping", "--user=root", "--pid-file=",
		"--dhcp-leasefile=" + filepath.Join(t.TempDir(), "leases"), "--log-facility=-"}, more...)...)
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
}
