package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bootlab/bootlab/test/support/faultfs"
	"github.com/bootlab/bootlab/test/support/netns"
)

// TestKnownHostsOnASlowDisk: machines with a reservation, and those of a pool that have a lease, are acknowledged while a sync does not return;
// a new machine is not. With -v it shows how long they wait while each sync takes 500 ms: the number of docs/performance.md.
func TestKnownHostsOnASlowDisk(t *testing.T) {
	t.Parallel()
	netns.Need(t, "root", "/dev/fuse", "perfdhcp")
	const machines = 100
	l := wide(t, "10.127.42", 128)
	for i := range 2 * machines {
		l.hosts += fmt.Sprintf("  r%d: {mac: \"02:0a:00:00:00:%02x\", ip: 10.128.1.%d}\n", i, i, i+1)
	}
	l.write()
	state := filepath.Join(l.dir, "state")
	if err := os.Mkdir(state, 0o755); err != nil {
		t.Fatal(err)
	}
	disk := faultfs.Mount(t, state)
	d := start(t, l)
	m := d.machine(t, "52:54:00:00:ff:42")
	netns.Run(t, "ip", "-n", m.Name, "addr", "add", "10.128.0.2/16", "dev", "eth0")
	ask := func(what, mac, name string, want int) {
		t.Helper()
		report := m.perfdhcp(t, "10.128.0.2", "10.128.0.1", "-r", "200", "-R", fmt.Sprint(machines), "-n", fmt.Sprint(machines), "-W", "2000000", "-d", "20",
			"-b", "mac="+mac, "-o", fmt.Sprintf("12,%x", name))
		if got := counts(report)["REQUEST-ACK received packets"]; got != want {
			t.Errorf("%s: %d of %d machines are acknowledged, want %d\n%s", what, got, machines, want, report)
		}
		t.Logf("%s:\n%s", what, report)
	}
	const pooled, strangers = "02:0b:00:00:00:00", "02:0c:00:00:00:00"
	ask("leases of a pool, on a disk that works", pooled, "first", machines)

	disk.Fail(func(op faultfs.Op, _ int64, _ int) syscall.Errno {
		if op == faultfs.Sync {
			time.Sleep(500 * time.Millisecond)
		}
		return 0
	})
	ask("reservations, each sync takes 500 ms", "02:0a:00:00:00:00", "res", machines)
	ask("leases of a pool that are to be stored again, each sync takes 500 ms", pooled, "second", machines)

	var held, ended atomic.Int64
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { disk.Fail(nil); close(hold) })
	t.Cleanup(release) // before the daemon is killed
	disk.Fail(func(op faultfs.Op, _ int64, _ int) syscall.Errno {
		if op == faultfs.Sync {
			held.Add(1)
			<-hold
			ended.Add(1)
		}
		return 0
	})
	ask("reservations, no sync returns", fmt.Sprintf("02:0a:00:00:00:%02x", machines), "res", machines)
	ask("leases of a pool that are to be stored again, no sync returns", pooled, "third", machines)
	ask("new machines, no sync returns", strangers, "new", 0)
	if held.Load() == 0 || ended.Load() > 0 {
		t.Errorf("%d syncs were held, and %d returned: the test proves nothing", held.Load(), ended.Load())
	}
	release()
	ask("new machines, on a disk that works again", strangers, "new", machines)
}
