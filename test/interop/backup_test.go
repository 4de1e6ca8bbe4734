package interop

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/bootlab/bootlab/internal/store/backup"
	"github.com/bootlab/bootlab/test/support/netns"
)

// readBackup reads a backup that must be whole.
func readBackup(t *testing.T, r io.Reader) *backup.Backup {
	t.Helper()
	b, err := backup.Read(r)
	if err != nil {
		t.Fatal("the backup:", err)
	}
	return b
}

// backup makes a backup of the running daemon, and reads it.
func (d *daemon) backup(t *testing.T, path string) *backup.Backup {
	t.Helper()
	if out, err := d.bootlab("backup", path); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return readBackup(t, f)
}

// TestBackupUnderLoad makes backups of a daemon while four relays ask for addresses. Each backup has every lease that was
// acknowledged before it began, and the machines get their addresses meanwhile.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	d := start(t, wide(t, "10.105.8", 114))
	m := d.machine(t, "52:54:00:00:ff:44")
	const machines, relays, backups = 2000, 4, 6
	acked := &acknowledged{leases: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer cancel()
	for i := range relays {
		addr := fmt.Sprintf("10.114.0.%d", 2+i)
		netns.Run(t, "ip", "-n", m.Name, "addr", "add", addr+"/16", "dev", "eth0")
		r := m.relay(t, addr)
		r.server.IP = net.ParseIP("10.114.0.1")
		load.Go(func() { leaseAll(ctx, r, acked, i, relays, machines, machines) })
	}
	count := func() (n int) { acked.do(func() { n = len(acked.leases) }); return n }
	for n := range backups {
		d.until("more leases", func() bool { return count() >= 50*(n+1) })
		var before map[string]string
		acked.do(func() { before = maps.Clone(acked.leases) })
		b := d.backup(t, filepath.Join(d.dir, fmt.Sprintf("%d.backup", n)))
		saved := map[string]string{}
		for _, e := range b.Entries {
			if addr, ok := strings.CutPrefix(e.Key, "lease/"); ok {
				saved[net.HardwareAddr(e.Value[2:8]).String()] = addr
			}
		}
		for mac, addr := range before {
			if saved[mac] != addr {
				t.Errorf("backup %d lacks the lease of %s for %s", n, addr, mac)
			}
		}
		t.Logf("backup %d: %d leases, %d of them acknowledged before it began, %d by its end", n, len(saved), len(before), count())
	}
}

// TestRestoredLeases restores a backup into a daemon whose state was lost. Machines keep their addresses, also one that got its
// address after the backup and renews; an address that a machine still uses is offered to no other.
func TestRestoredLeases(t *testing.T) {
	t.Parallel()
	l := newLab(t, "10.106.6")
	l.lan = "    pools: {guests: {range: NET.100-NET.103}}\n"
	l.write()
	d := start(t, l)
	m := d.machine(t, "02:00:00:00:ff:58")
	w := m.wire(t)
	old := w.bind(numbered(1), with(12, "old"))
	file := filepath.Join(d.dir, "lab.backup")
	d.backup(t, file)
	later, silent := w.bind(numbered(2), with(12, "later")), w.bind(numbered(3))
	if out, err := d.bootlab("restore", "--check", file); err != nil || !strings.Contains(out, later.YourIPAddr.String()+"  "+numbered(2).String()+"  later") ||
		!strings.Contains(out, "active leases: 3 now, 1 in the backup") {
		t.Errorf("restore --check: %v\n%s", err, out)
	}
	d.signal(syscall.SIGTERM)
	if code := d.exit(patience); code != 0 {
		t.Fatal("exit", code)
	}
	if err := os.Remove(filepath.Join(d.dir, "state", "state.db")); err != nil {
		t.Fatal(err)
	}
	if out, err := d.bootlab("restore", "--yes", file); err != nil {
		t.Fatalf("restore: %v\n%s", err, out)
	}
	// The third uses its address, and does not renew. The daemon probes free addresses from its start on.
	d.machine(t, numbered(3).String(), silent.YourIPAddr.String())
	d.start()
	if holder := d.holder(old.YourIPAddr.String()); holder != numbered(1).String() {
		t.Errorf("%s belongs to %q, not to the machine that had it at the backup", old.YourIPAddr, holder)
	}
	w.own(later.YourIPAddr.String(), numbered(2), nil)
	renewal := message(dhcpv4.MessageTypeRequest, numbered(2), dhcpv4.WithClientIP(later.YourIPAddr))
	h, ok := w.tryFrom(renewal, netip.AddrPortFrom(netip.MustParseAddr(later.YourIPAddr.String()), 68), toServers, patience)
	if !ok || h.MessageType() != dhcpv4.MessageTypeAck {
		t.Errorf("the machine that got its address after the backup renews it: %s", h)
	}
	for n := 4; n < 8; n++ {
		if h, ok := w.tryFrom(discover(numbered(n), with(50, string(silent.YourIPAddr.To4()))), netip.AddrPortFrom(netip.IPv4Unspecified(), 68), toServers, time.Second); ok && h.YourIPAddr.Equal(silent.YourIPAddr) {
			t.Errorf("%s is offered the address that another machine uses", h.ClientHWAddr)
		}
	}
}
