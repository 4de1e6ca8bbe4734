package statefile

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/backup"
	"github.com/bootlab/bootlab/internal/store/identity"
	"github.com/bootlab/bootlab/test/support/netns"
	"github.com/bootlab/bootlab/test/support/storetest"
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

// TestRestoreFollowsMachines: hosts that got other names after the backup have the state of their machine, by MAC, in the plan and in the
// daemon that starts with what was restored. None is armed.
func TestRestoreFollowsMachines(t *testing.T) {
	t.Parallel()
	once := &lab.Profile{Name: "p", Install: lab.InstallOnce}
	host := func(name string, last byte) *lab.Host {
		return &lab.Host{Name: name, MACs: []lab.MAC{{0x52, 0x54, 0, 0, 0, last}}, Profile: once}
	}
	record := func(state install.State, last byte) []byte {
		return fmt.Appendf(nil, `{"state":%q,"since":"2026-01-01T00:00:00Z","macs":["52:54:00:00:00:%02x"]}`, state, last)
	}
	id, err := identity.Restored(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name       string
		hosts      []*lab.Host
		saved, now map[string][]byte
		want       map[string]string // states after the restore
	}{
		{"w0 is another machine since, and both are installed",
			[]*lab.Host{host("old0", 1), host("w0", 2)},
			map[string][]byte{"install/w0": record(install.Installed, 1)},
			map[string][]byte{identity.Key: id, "install/old0": record(install.Installed, 1), "install/w0": record(install.Installed, 2)},
			map[string]string{"old0": "installed", "w0": "installed"}},
		{"w0 is another machine since, and the state was lost",
			[]*lab.Host{host("old0", 1), host("w0", 2)},
			map[string][]byte{"install/w0": record(install.Installed, 1)}, nil,
			map[string]string{"old0": "installed", "w0": "held"}},
		{"names were exchanged, and the state was lost",
			[]*lab.Host{host("a", 2), host("b", 1)},
			map[string][]byte{"install/a": record(install.Installed, 1), "install/b": record(install.Armed, 2)}, nil,
			map[string]string{"a": "held", "b": "installed"}},
		{"it has another name, and the state was lost",
			[]*lab.Host{host("new", 1)},
			map[string][]byte{"install/old": record(install.Installed, 1)}, nil,
			map[string]string{"new": "installed"}},
		{"it is not in the lab any more, and its name is free",
			[]*lab.Host{host("b", 2)},
			map[string][]byte{"install/a": record(install.Installed, 1), "install/b": record(install.Installed, 2)}, nil,
			map[string]string{"b": "installed"}},
		{"its network card was replaced",
			[]*lab.Host{host("a", 9)},
			map[string][]byte{"install/a": record(install.Installed, 1)}, nil,
			map[string]string{"a": "installed"}},
	} {
		l := &lab.Lab{Name: "t", Hosts: tt.hosts}
		l.Index()
		b := &backup.Backup{}
		b.Lab, b.Created = l.Name, time.Now()
		for key, value := range tt.saved {
			b.Entries = append(b.Entries, backup.Entry{Key: key, Value: value})
		}
		r, err := PlanRestore(l, b, tt.now, HoldHosts)
		if err != nil {
			t.Fatal(err)
		}
		if armed := r.Arms(); len(armed) > 0 {
			t.Errorf("%s: the plan arms %v", tt.name, armed)
		}
		for _, h := range r.Hosts {
			if want, ok := tt.want[h.Host]; ok && h.After != want {
				t.Errorf("%s: the plan has %s as %s, want %s", tt.name, h.Host, h.After, want)
			}
		}
		started := startWith(t, r, l)
		for _, h := range l.Hosts {
			if got := started.Status(h).Text(); got != tt.want[h.Name] || started.WouldInstall(h) {
				t.Errorf("%s: after the start, %s is %s and would install: %v; want %s", tt.name, h.Name, got, started.WouldInstall(h), tt.want[h.Name])
			}
		}
	}
}

// TestRestorePools: if the present state is lost, a machine of a pool that is not in the backup may have been installed since: it is not armed.
func TestRestorePools(t *testing.T) {
	t.Parallel()
	id, err := identity.Restored(nil)
	if err != nil {
		t.Fatal(err)
	}
	once := &lab.Profile{Name: "p", Install: lab.InstallOnce}
	l := &lab.Lab{Name: "t", Networks: []*lab.Network{{Name: "n", Pools: []*lab.Pool{{Name: "any", Profile: once}}}}}
	l.Index()
	b := &backup.Backup{}
	b.Lab, b.Created = l.Name, time.Now()
	mac := lab.MAC{0x52, 0x54, 0, 0, 0, 4}
	machine := &lab.Host{Name: mac.Hyphens(), MACs: []lab.MAC{mac}, Profile: once}
	for _, tt := range []struct {
		name  string
		now   map[string][]byte
		rearm Rearm
		want  install.State
	}{
		{"the state is lost", nil, HoldHosts, install.Unknown},
		{"the state is lost, and an admin arms all", nil, ArmHosts, install.Armed},
		{"the state knows that it never booted", map[string][]byte{identity.Key: id}, HoldHosts, install.Armed},
	} {
		r, err := PlanRestore(l, b, tt.now, tt.rearm)
		if err != nil {
			t.Fatal(err)
		}
		if warned := strings.Contains(strings.Join(r.Warnings, " "), "machines of n/any that are not in the backup boot their own disks"); warned != (tt.want == install.Unknown) {
			t.Errorf("%s: warnings %q", tt.name, r.Warnings)
		}
		if got := startWith(t, r, l).Status(machine); got.State != tt.want {
			t.Errorf("%s: it is %s, want %s", tt.name, got.State, tt.want)
		}
	}
}

// startWith returns the install states of a daemon that starts with what r restored.
func startWith(t *testing.T, r *Restore, l *lab.Lab) *install.Machine {
	t.Helper()
	s := storetest.Memory()
	for _, e := range r.records {
		if err := s.Commit(t.Context(), store.Put(e.Key, e.Value)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := install.Open(t.Context(), install.Config{}, install.Deps{Store: s, Events: noEvents{}, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	_, done, err := m.Follow(t.Context(), l.Hosts)
	if err != nil {
		t.Fatal(err)
	}
	done()
	return m
}

type noEvents struct{}

func (noEvents) Record(event.Event) {}

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
