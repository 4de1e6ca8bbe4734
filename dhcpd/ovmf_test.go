package dhcpd

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/netns"
)

const ovmfCode = "/usr/share/OVMF/OVMF_CODE_4M.fd"

// TestOVMF lets real UEFI firmware boot: it must ask for its boot program as soon as it has its address. It takes half a minute of
// emulation, so it runs only where BOOTLAB_REQUIRE has ovmf or all.
func TestOVMF(t *testing.T) {
	if r := os.Getenv("BOOTLAB_REQUIRE"); !strings.Contains(r, "ovmf") && !strings.Contains(r, "all") {
		t.Skip("needs BOOTLAB_REQUIRE=ovmf: half a minute of emulation")
	}
	netns.Need(t, "root", "qemu-system-x86_64")
	seg := netns.NewSegment(t, "10.77.0.1/24")
	l := startLive(t, seg)
	console := startOVMF(t, seg.Bridge, master0)
	const want = "NBP filename is boot/52-54-00-00-02-01/ipxe.efi"
	for text := ""; !strings.Contains(text, want); {
		line, err := console.ReadString('\n')
		text += line
		if err != nil {
			t.Fatalf("the machine stopped without %q: %v\n%s", want, err, text)
		}
	}
	for _, e := range l.events.take() {
		t.Logf("%s %s %s %s", e.Kind, e.Addr, e.Detail, e.Err)
	}
}

// startOVMF starts a machine that boots from the network, and returns its console. The machine is stopped after a minute.
func startOVMF(t *testing.T, bridge, mac string) *bufio.Reader {
	t.Helper()
	netns.Run(t, "ip", "tuntap", "add", "tap0", "mode", "tap")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "tap0").Run() })
	netns.Run(t, "ip", "link", "set", "tap0", "master", bridge, "up")
	vars, err := os.ReadFile("/usr/share/OVMF/OVMF_VARS_4M.fd")
	if err != nil {
		t.Skip(err)
	}
	varsCopy := filepath.Join(t.TempDir(), "vars.fd")
	if err := os.WriteFile(varsCopy, vars, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("qemu-system-x86_64", "-accel", "tcg", "-machine", "q35", "-m", "512", "-display", "none", "-nodefaults",
		"-serial", "stdio", "-no-reboot", "-drive", "if=pflash,format=raw,unit=0,readonly=on,file="+ovmfCode,
		"-drive", "if=pflash,format=raw,unit=1,file="+varsCopy, "-netdev", "tap,id=n0,ifname=tap0,script=no,downscript=no",
		"-device", "virtio-net-pci,netdev=n0,mac="+mac+",bootindex=1,romfile=", "-device", "virtio-rng-pci")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = nil
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	t.Cleanup(func() { kill.Stop(); _ = cmd.Process.Kill(); _, _ = io.Copy(io.Discard, out); _ = cmd.Wait() })
	return bufio.NewReader(out)
}
