package statefile

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store/backup"
	"github.com/bootlab/bootlab/internal/store/identity"
	"github.com/bootlab/bootlab/test/support/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// TestRestoreNow: a host without a record is armed now, as bootlab hosts says, unless the state has lost something or there is none.
func TestRestoreNow(t *testing.T) {
	t.Parallel()
	name, err := identity.Restored(nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab.Lab{Name: "t", Hosts: []*lab.Host{{Name: "a", Profile: &lab.Profile{Name: "p", Install: lab.InstallOnce}}}}
	l.Index()
	b := &backup.Backup{Entries: []backup.Entry{{Key: install.RecordKey("a"), Value: []byte(`{"state":"installed"}`)}}}
	b.Lab, b.Created = "t", time.Now()
	for _, tt := range []struct {
		name string
		now  map[string][]byte
		want string
	}{
		{"it never booted", map[string][]byte{identity.Key: name}, "armed"},
		{"no state", nil, ""},
		{"a loss that nobody has accepted", map[string][]byte{identity.Key: name, install.LostKey: []byte("{}")}, ""},
		{"a damaged file", map[string][]byte{identity.Key: name, "store/loss/1": []byte("{}")}, ""},
	} {
		r, err := PlanRestore(l, b, tt.now, HoldHosts)
		if err != nil || len(r.Hosts) != 1 || r.Hosts[0].Now != tt.want || r.Hosts[0].After != "installed" {
			t.Errorf("%s: %+v, %v, want %q now", tt.name, r, err, tt.want)
		}
	}
}

// TestRestoreReadOnly: a restore on a disk that takes no writes says what to do.
func TestRestoreReadOnly(t *testing.T) {
	netns.Need(t, "root")
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", unix.MS_RDONLY, ""); err != nil {
		netns.Absent(t, "mount", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	a := lab.Appliance{State: dir}
	s, err := Hold(a)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Restore(t.Context(), a, &Restore{}); err == nil || !strings.Contains(err.Error(), "read-only file system: nothing was changed: check dmesg and the disk, repair and remount it writable") {
		t.Errorf("restore: %v", err)
	}
}

// TestRestoreReserved: an address that the lab file reserves for the machine that has it is not free for others after a restore.
func TestRestoreReserved(t *testing.T) {
	t.Parallel()
	a, b := lab.MAC{0x52, 0x54, 0, 0, 0, 1}, lab.MAC{0x52, 0x54, 0, 0, 0, 2}
	l := &lab.Lab{Name: "t", Hosts: []*lab.Host{{Name: "a", MACs: []lab.MAC{a}, IP: netip.MustParseAddr("10.1.0.1")}, {Name: "c", IP: netip.MustParseAddr("10.1.0.3")}}}
	l.Index()
	now := map[string][]byte{}
	for addr, mac := range map[string]lab.MAC{"10.1.0.1": a, "10.1.0.2": b, "10.1.0.3": b} {
		record := append([]byte{1, byte(leases.Active)}, mac[:]...)
		record = binary.BigEndian.AppendUint32(record, uint32(time.Now().Unix()))
		record = binary.BigEndian.AppendUint32(record, uint32(time.Now().Add(time.Hour).Unix()))
		now["lease/"+addr] = append(record, 0, 0, 0, 0)
	}
	saved := &backup.Backup{}
	saved.Lab, saved.Created = "t", time.Now()
	r, err := PlanRestore(l, saved, now, HoldHosts)
	if err != nil || r.Leases.Now != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	if lost := r.Leases.Lost; len(lost) != 2 || lost[0].MAC != b || lost[1].MAC != b {
		t.Errorf("at risk: %v, want those that %s has", lost, b)
	}
}
