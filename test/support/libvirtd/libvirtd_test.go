package libvirtd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bootlab/bootlab/test/support/libvirtd"
	"github.com/bootlab/bootlab/test/support/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

const machine = `<domain type='qemu'><name>probe</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os></domain>`

func TestStopEndsMachines(t *testing.T) {
	netns.Need(t, libvirtd.Needs()...)
	dir := t.TempDir()
	d, err := libvirtd.Start(t.Context(), libvirtd.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Stop() })

	if pools := virsh(t, d, "pool-list", "--name"); strings.TrimSpace(pools) != libvirtd.Pool {
		t.Errorf("pools %q, want %q", pools, libvirtd.Pool)
	}
	virsh(t, d, "vol-create-as", libvirtd.Pool, "probe.qcow2", "1M", "--format", "qcow2")
	if _, err := os.Stat(filepath.Join(d.Images, "probe.qcow2")); err != nil {
		t.Errorf("volume: %v", err)
	}
	file := filepath.Join(dir, "probe.xml")
	if err := os.WriteFile(file, []byte(machine), 0o600); err != nil {
		t.Fatal(err)
	}
	virsh(t, d, "create", file)
	if !emulatorRuns(t) {
		t.Fatal("the machine was started but has no emulator")
	}
	// libvirt sees that a machine has ended only if its emulator is reaped.
	virsh(t, d, "destroy", "probe")
	virsh(t, d, "create", file)

	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	if emulatorRuns(t) {
		t.Error("the machine still runs after Stop")
	}
	if err := d.Stop(); err != nil {
		t.Errorf("second Stop: %v", err)
	}
}

func TestStartErrors(t *testing.T) {
	netns.Need(t, libvirtd.Needs()...)
	t.Run("group", func(t *testing.T) {
		_, err := libvirtd.Start(t.Context(), libvirtd.Config{Dir: t.TempDir(), Group: "nosuchgroup"})
		if err == nil || !strings.Contains(err.Error(), "nosuchgroup") {
			t.Errorf("got %v, want libvirtd's error about the group", err)
		}
	})
	for want, dir := range map[string]string{"too long": "/" + strings.Repeat("x", 80), "only letters": "/tmp/a b"} {
		_, err := libvirtd.Start(t.Context(), libvirtd.Config{Dir: dir})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", dir, err, want)
		}
	}
}

func virsh(t *testing.T, d *libvirtd.Daemon, args ...string) string {
	t.Helper()
	return netns.Run(t, "virsh", append([]string{"--connect", d.URI}, args...)...)
}

// emulatorRuns reports whether a process of this machine is the emulator of the machine "probe".
func emulatorRuns(t *testing.T) bool {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil || len(lines) == 0 {
		t.Fatalf("list processes: %v", err)
	}
	mine := fmt.Sprintf("guest=%s,", "probe")
	for _, f := range lines {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), mine) {
			return true
		}
	}
	return false
}
