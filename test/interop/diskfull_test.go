package interop

import (
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestDiskFull: on a full disk the daemon acknowledges no new lease, answers reservations, runs on and logs the reason once; with
// free space it leases again.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	netns.Need(t, "mount", "dig")
	l := wide(t, "10.96.3", 116)
	full := filepath.Join(l.dir, "full")
	if err := os.Mkdir(full, 0o755); err != nil {
		t.Fatal(err)
	}
	netns.Run(t, "mount", "-t", "tmpfs", "-o", "size=1m,mode=755", "none", full)
	t.Cleanup(func() { _ = exec.Command("umount", "-l", full).Run() })
	l.appliance = "  state: full\n"
	l.write()
	d := start(t, l)
	filler := filepath.Join(full, "filler")
	_ = os.WriteFile(filler, make([]byte, 1<<20), 0o644) // as much as fits
	for n := 0; ; n++ {                                  // the store has preallocated space, which is used up first
		if _, err := d.client.MarkInstalled(t.Context(), "w0"); err != nil {
			var refused *api.Error
			if !errors.As(err, &refused) || refused.Status != http.StatusInsufficientStorage || !strings.Contains(refused.Hint, "free space on the file system of "+full) {
				t.Errorf("a state that cannot be stored: %v, want status 507 and what to do", err)
			}
			break
		}
		if n == 10_000 {
			t.Fatal("the disk never was full: the test proves nothing")
		}
	}
	m := d.machine(t, "52:54:00:00:ff:07", "10.96.3.2")
	netns.Run(t, "ip", "-n", m.Name, "addr", "add", "10.116.0.2/16", "dev", "eth0")
	reserved := m.relay(t, "10.96.3.2")
	r := m.relay(t, "10.116.0.2")
	r.server.IP = net.ParseIP("10.116.0.1")
	const unwritten = `bootlab_dhcpd_packets_dropped_total{reason="commit"}`
	acked, silent := map[string]string{}, 0
	for n := 0; n < 3000 && silent < 5; n++ { // the store has some space ahead
		mac := numbered(n)
		addr, err := r.lease(mac, time.Second)
		switch {
		case err == nil:
			acked[mac.String()] = addr
		case d.metric(unwritten) > 0:
			silent++
		}
	}
	if silent == 0 {
		t.Fatal("the disk never was full: the test proves nothing")
	}
	if d.metric(unwritten) == 0 {
		t.Error("the metric does not name the reason")
	}
	d.logged("no space left on device")
	d.logged("leases are not stored")
	if n := strings.Count(d.log.String(), "leases are not stored"); n != 1 {
		t.Errorf("%d log lines for %d leases that were not stored, want 1", n, silent)
	}
	if addr, err := reserved.lease(mac("52:54:00:00:00:10"), patience); err != nil || addr != "10.96.3.10" {
		t.Errorf("a reservation: %q, %v", addr, err)
	}
	if out, err := m.run("dig", "+short", "@"+d.addr, "w0.lab.test"); err != nil || strings.TrimSpace(out) != "10.96.3.10" {
		t.Errorf("names are not answered: %v %s", err, out)
	}
	d.kill()
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	d.start()
	leases, err := d.client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range leases {
		delete(acked, lease.MAC.String())
	}
	if len(acked) > 0 {
		t.Errorf("given away and forgotten: %v", acked)
	}
	if _, err := r.lease(numbered(9999), patience); err != nil {
		t.Errorf("with room on the disk: %v", err)
	}
}

// TestDiskFullRecovers fills the disk of the lease book while machines ask, and frees it again, without a restart. Every acknowledged
// lease is in the lease book, and no two machines have the same address.
func TestDiskFullRecovers(t *testing.T) {
	t.Parallel()
	netns.Need(t, "mount")
	l := wide(t, "10.106.26", 112)
	full := filepath.Join(l.dir, "full")
	if err := os.Mkdir(full, 0o755); err != nil {
		t.Fatal(err)
	}
	netns.Run(t, "mount", "-t", "tmpfs", "-o", "size=8m,mode=755", "none", full)
	t.Cleanup(func() { _ = exec.Command("umount", "-l", full).Run() })
	l.appliance = "  state: full\n"
	l.write()
	d := start(t, l)
	m := d.machine(t, "52:54:00:00:ff:58")
	netns.Run(t, "ip", "-n", m.Name, "addr", "add", "10.112.0.2/16", "dev", "eth0")
	r := m.relay(t, "10.112.0.2")
	r.server.IP = net.ParseIP("10.112.0.1")
	acked := map[string]string{}
	ask := func(n int, within time.Duration) bool {
		addr, err := r.lease(numbered(n), within)
		if err == nil {
			acked[numbered(n).String()] = addr
		}
		return err == nil
	}
	for n := range 5 {
		if !ask(n, patience) {
			t.Fatal("no lease before the disk is full")
		}
	}
	filler := filepath.Join(full, "filler")
	_ = os.WriteFile(filler, make([]byte, 8<<20), 0o644) // as much as fits
	// A store may have preallocated space, which is used up first.
	n, silent := 5, 0
	const unwritten = `bootlab_dhcpd_packets_dropped_total{reason="commit"}`
	for deadline := time.Now().Add(patience); silent < 3 && time.Now().Before(deadline); n++ {
		if !ask(n, 500*time.Millisecond) && d.metric(unwritten) > 0 {
			silent++
		}
	}
	t.Logf("%d leases were acknowledged on a full disk before the server stopped answering", n-8)
	if silent < 3 {
		t.Errorf("%d leases, and the disk was never full: the test proves nothing", n)
	}
	if d.metric(unwritten) == 0 {
		t.Error("the metric does not name the reason")
	}
	d.logged("no space left on device")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	d.until("leases are acknowledged again, without a restart", func() bool { return ask(n+1, 2*time.Second) })
	said := &acknowledged{leases: acked}
	said.heldBy(t, d)
	d.kill()
	d.start()
	said.heldBy(t, d)
}
