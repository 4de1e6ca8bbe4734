package interop

import (
	"bytes"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/test/support/netns"
)

// onExt4 gives a folder an ext4 file system on a loop device, which the kernel makes read-only when it fails. mount mounts it, again.
func onExt4(t *testing.T, dir string) (fail, mount func()) {
	t.Helper()
	netns.Need(t, "root", "mount", "losetup", "mkfs.ext4", "e2fsck")
	image := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 256<<20); err != nil {
		t.Fatal(err)
	}
	netns.Run(t, "mkfs.ext4", "-q", "-E", "root_owner=0:0", image)
	device := ""
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	mount = func() {
		t.Helper()
		if device != "" {
			// Programs that other tests have started in mount namespaces of their own keep the failed file system: its device would be mounted as
			// it is. A copy has another.
			netns.Run(t, "umount", "-l", dir)
			netns.Run(t, "blockdev", "--flushbufs", device)
			netns.Run(t, "cp", "--sparse=always", image, image+".copy")
			image += ".copy"
		}
		out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", image).Output()
		if err != nil {
			netns.Absent(t, "loop devices", err)
		}
		device = string(bytes.TrimSpace(out))
		loop := device
		t.Cleanup(func() { _ = exec.Command("losetup", "-d", loop).Run() })
		_ = exec.CommandContext(t.Context(), "e2fsck", "-p", device).Run() // 1: errors were corrected
		netns.Run(t, "mount", "-o", "errors=remount-ro", device, dir)
	}
	return func() {
		t.Helper()
		trigger := filepath.Join("/sys/fs/ext4", filepath.Base(device), "trigger_fs_error")
		if err := os.WriteFile(trigger, []byte("test"), 0o200); err != nil {
			netns.Absent(t, "a kernel that can make ext4 fail", err)
		}
	}, mount
}

// TestReadOnlyDisk: the kernel makes the file system of the state read-only while the daemon runs and nobody asks it for anything. That shows
// in /readyz, status, metrics and log; renewals and reserved hosts are answered, and nothing is promised that is not on disk. It stores again
// after a repair.
func TestReadOnlyDisk(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.96.31")
	disk := filepath.Join(l.dir, "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	fail, mount := onExt4(t, disk)
	mount()
	l.appliance = "  state: disk/state\n"
	l.write()
	d := start(t, l)
	w := d.machine(t, "52:54:00:00:ff:31").wire(t)
	w.bind(mac("52:54:00:00:00:10"))
	leased := w.bind(numbered(1))
	w.own(leased.YourIPAddr.String(), numbered(1), nil)
	store := func(want string) func() bool {
		return func() bool { return strings.Contains(d.page(t, "readyz"), "\nstore: "+want) }
	}
	d.until("the store is well", store("ok"))
	d.until("nothing is stored any more", func() bool { // marks and timelines follow a commit within a second
		before := d.metric("bootlab_store_last_sync_timestamp_seconds")
		time.Sleep(3 * time.Second)
		return d.metric("bootlab_store_last_sync_timestamp_seconds") == before
	})

	fail()
	d.until("/readyz says so", store("degraded: read-only file system"))
	if d.metric("bootlab_store_degraded") != 1 {
		t.Error("the metric does not say that the store is degraded")
	}
	if s := d.status().Store; !slices.Equal(s.Causes, []string{"read-only file system"}) || !strings.Contains(strings.Join(s.Problems, "\n"), filepath.Join(disk, "state")) {
		t.Errorf("status: %+v", s)
	}
	renewal := message(dhcpv4.MessageTypeRequest, numbered(1), dhcpv4.WithClientIP(leased.YourIPAddr))
	from := netip.AddrPortFrom(netip.MustParseAddr(leased.YourIPAddr.String()), 68)
	for range 3 {
		if h := w.askFrom(renewal, from, toServers); h.MessageType() != dhcpv4.MessageTypeAck {
			t.Errorf("a renewal is answered by %s", h)
		}
		if ack := w.bind(mac("52:54:00:00:00:11")); ack.YourIPAddr.String() != d.net+".11" {
			t.Errorf("a reserved host gets %s", ack.YourIPAddr)
		}
	}
	if offer, ok := w.tryFrom(discover(numbered(2)), newClient, toServers, patience); ok {
		if ack, ok := w.tryFrom(selecting(offer), newClient, toServers, 2*time.Second); ok && ack.MessageType() == dhcpv4.MessageTypeAck {
			t.Errorf("a new lease is acknowledged that is not on disk: %s", ack)
		}
	}
	if _, err := d.client.MarkInstalled(t.Context(), "w0"); err == nil || !strings.Contains(err.Error(), "read-only file system") {
		t.Errorf("a state that cannot be stored: %v", err)
	}
	d.logged(`degraded" cause="read-only file system"`)
	d.until("/readyz says so after a commit has failed", store("degraded: read-only file system"))
	if n := strings.Count(d.log.String(), `degraded" cause="read-only file system"`); n != 1 {
		t.Errorf("the log says it %d times, want once", n)
	}

	d.kill()
	mount()
	d.start()
	d.until("the store is well again", store("ok"))
	if _, err := d.client.MarkInstalled(t.Context(), "w0"); err != nil {
		t.Error(err)
	}
	if h := w.askFrom(renewal, from, toServers); h.MessageType() != dhcpv4.MessageTypeAck {
		t.Errorf("after the repair a renewal is answered by %s", h)
	}
}

// page returns an open page of the admin API, whatever its status.
func (d *daemon) page(t *testing.T, path string) string {
	t.Helper()
	resp, err := http.Get("http://" + d.addr + ":9680/" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
