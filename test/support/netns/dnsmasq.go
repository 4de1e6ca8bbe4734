package netns

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// LibvirtDnsmasq runs dnsmasq on a bridge until the test ends, started as libvirt starts it for its network "default", which
// most machines with libvirt have: 192.168.122.2 to .254 by DHCP, no DNS.
func LibvirtDnsmasq(t testing.TB, bridge string) {
	t.Helper()
	Need(t, "root", "dnsmasq")
	dir := t.TempDir()
	cmd := exec.Command("dnsmasq", "-k", "--conf-file=/dev/null", "--port=0", "--bind-dynamic", "--interface="+bridge,
		"--except-interface=lo", "--dhcp-range=192.168.122.2,192.168.122.254", "--no-ping", "--user=root", "--group=root",
		"--pid-file="+filepath.Join(dir, "pid"), "--dhcp-leasefile="+filepath.Join(dir, "leases"), "--log-facility="+filepath.Join(dir, "log"))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}
