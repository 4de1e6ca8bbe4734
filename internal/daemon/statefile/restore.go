package statefile

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bootlab/bootlab/dhcpd/leases"
	"github.com/bootlab/bootlab/internal/boot/install"
	"github.com/bootlab/bootlab/internal/daemon/serverstate"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
	"github.com/bootlab/bootlab/internal/store/backup"
	"github.com/bootlab/bootlab/internal/store/identity"
)

// A Restore says what a restore changes.
type Restore struct {
	Backup   backup.Summary `json:"backup"`
	File     string         `json:"state_file"`
	Warnings []string       `json:"warnings"`
	Leases   RestoredLeases `json:"leases"`
	Hosts    []Merged       `json:"hosts"` // whose install state changes, or is not that of the backup, by name
	Kept     string         `json:"kept,omitempty"`

	records []backup.Entry
}

// A Rearm says what a restore does with hosts that the backup does not have as installed.
type Rearm = install.Rearm

// The kinds of restore.
const (
	HoldHosts = install.HoldHosts
	ArmHosts  = install.ArmHosts
)

// A Merged is what a restore makes of the install state of one host.
type Merged = install.Merged

// What the next network boot of a host starts: its Merged.Boot.
const (
	BootInstall = install.BootInstall
	BootDisk    = install.BootDisk
)

// RestoredLeases counts the leases that hold an address.
type RestoredLeases struct {
	Now   int              `json:"now"`
	Saved int              `json:"saved"`
	Lost  []RestoredChange `json:"lost"` // addresses that a machine has now, and that are free or another's afterwards
}

// A RestoredChange is an address whose machine is not known after a restore.
type RestoredChange struct {
	IP      netip.Addr `json:"ip"`
	MAC     lab.MAC    `json:"mac"`
	Name    string     `json:"hostname,omitempty"`
	Expires time.Time  `json:"expires"`
}

// Arms returns the hosts that their next boot installs, although they are installed once, after the restore.
func (r *Restore) Arms() (hosts []string) {
	for _, h := range r.Hosts {
		if h.Arms() {
			hosts = append(hosts, h.Host)
		}
	}
	return hosts
}

// ArmsWarning says which hosts the next network boot installs after the restore; empty: none.
func (r *Restore) ArmsWarning() string {
	armed := r.Arms()
	if len(armed) == 0 {
		return ""
	}
	return "the next network boot of these hosts installs them and overwrites their disks: " + strings.Join(armed, ", ")
}

// MarshalJSON has the warning about armed hosts among the others. Text has it last, below the table.
func (r *Restore) MarshalJSON() ([]byte, error) {
	type plain Restore
	out := plain(*r)
	if text := r.ArmsWarning(); text != "" {
		out.Warnings = append(slices.Clone(r.Warnings), text)
	}
	return json.Marshal(out)
}

// PlanRestore decides what a backup changes in a state with the entries now. The error is that the backup holds what this
// program cannot read. Nothing is written.
func PlanRestore(l *lab.Lab, b *backup.Backup, now map[string][]byte, rearm Rearm) (*Restore, error) {
	r := &Restore{Backup: b.Summary, File: Path(l.Appliance), Warnings: []string{}, Hosts: []Merged{}, Leases: RestoredLeases{Lost: []RestoredChange{}}}
	if b.Lab != l.Name {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the backup is of lab %s, this is lab %s", b.Lab, l.Name))
	}
	saved := EntriesOf(b)
	for _, e := range b.Entries {
		switch _, isInstall := install.HostOfKey(e.Key); {
		case strings.HasPrefix(e.Key, store.OwnPrefix):
			r.Warnings = append(r.Warnings, "when the backup was made, the state had lost changes: it may lack leases and installs")
		case strings.HasPrefix(e.Key, serverstate.AnsweredPrefix): // machines may have been created since
		case e.Key == identity.Key, e.Key == install.LostKey: // what is restored is decided here
		case strings.HasPrefix(e.Key, serverstate.SerialPrefix) && now[e.Key] != nil: // secondaries have seen it: it must not go back
			r.records = append(r.records, backup.Entry{Key: e.Key, Value: now[e.Key]})
		case !isInstall:
			r.records = append(r.records, e)
		}
	}
	r.Warnings = slices.Compact(r.Warnings)
	name, err := identity.Restored(saved[identity.Key])
	if err != nil {
		return nil, fmt.Errorf("the backup cannot be used by this bootlab: %w", err)
	}
	r.records = append(r.records, backup.Entry{Key: identity.Key, Value: name})
	addrs, err := r.planLeases(l, saved, now)
	if err != nil {
		return nil, err
	}
	if err := r.planHosts(l, saved, now, addrs, rearm); err != nil {
		return nil, err
	}
	return r, r.planPools(l, now, rearm)
}

// planLeases compares the leases, and returns the address of each machine of both. No other machine gets an address that the lab file has for a
// host: what that host had leased is never lost.
func (r *Restore) planLeases(l *lab.Lab, saved, now map[string][]byte) (addrs map[lab.MAC]netip.Addr, err error) {
	addrs = map[lab.MAC]netip.Addr{}
	held := map[netip.Addr]lab.MAC{}
	today := time.Now()
	for key, value := range saved {
		lease, ok, err := leases.ParseRecord(key, value)
		if err != nil {
			return nil, fmt.Errorf("the backup cannot be used by this bootlab: %w", err)
		}
		if ok && lease.State != leases.Declined {
			addrs[lease.MAC] = lease.Addr
		}
		if ok && lease.Live(today) {
			held[lease.Addr] = lease.MAC
		}
	}
	r.Leases.Saved = len(held)
	for key, value := range now {
		lease, ok, err := leases.ParseRecord(key, value)
		if !ok || err != nil { // a state that is replaced may be damaged
			continue
		}
		if _, known := addrs[lease.MAC]; !known && lease.State != leases.Declined {
			addrs[lease.MAC] = lease.Addr
		}
		if !lease.Live(today) {
			continue
		}
		r.Leases.Now++
		h := l.HostByMAC(lease.MAC)
		if reserved := h != nil && l.HostByIP(lease.Addr) == h; !reserved && held[lease.Addr] != lease.MAC {
			r.Leases.Lost = append(r.Leases.Lost, RestoredChange{IP: lease.Addr, MAC: lease.MAC, Name: lease.Hostname, Expires: lease.Expiry})
		}
	}
	slices.SortFunc(r.Leases.Lost, func(x, y RestoredChange) int { return x.IP.Compare(y.IP) })
	return addrs, nil
}

// planHosts decides about every host that the lab, the backup or the present state knows.
func (r *Restore) planHosts(l *lab.Lab, saved, now map[string][]byte, addrs map[lab.MAC]netip.Addr, rearm Rearm) error {
	inBackup, err := install.ByHost(saved, l.Hosts)
	if err != nil {
		return err
	}
	present, err := install.ByHost(now, l.Hosts)
	if err != nil {
		return err
	}
	if err := install.Separate(inBackup, present, l.Hosts); err != nil {
		return err
	}
	names := map[string]bool{}
	for _, h := range l.Hosts {
		names[h.Name] = true
	}
	for _, records := range []map[string][]byte{inBackup, present} {
		for host := range records {
			names[host] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		h := l.Host(name)
		if mac, err := lab.ParseMAC(name); h == nil && err == nil {
			h = l.MachineOf(mac, addrs[mac])
		}
		m, err := install.Merge(name, h, inBackup[name], present[name], r.Backup.Created, rearm)
		if err != nil {
			return fmt.Errorf("the backup cannot be used by this bootlab: %w", err)
		}
		if m.Now == "" && h != nil && present[name] == nil && whole(now) {
			m.Now = string(install.Initial(h))
		}
		if m.Record != nil {
			r.records = append(r.records, backup.Entry{Key: install.RecordKey(name), Value: m.Record})
		}
		if m.Once && (m.After != m.Now || m.After != m.Saved) && cmp.Or(m.After, m.Now, m.Saved) != "" {
			r.Hosts = append(r.Hosts, m)
		}
	}
	return nil
}

// planPools makes machines of pools that the backup does not have boot their own disks, where the present state would tell which are installed,
// and is lost: until an admin accepts the loss.
func (r *Restore) planPools(l *lab.Lab, now map[string][]byte, rearm Rearm) error {
	var pools []string
	for _, n := range l.Networks {
		for _, p := range n.Pools {
			if p.Profile != nil && p.Profile.Install == lab.InstallOnce {
				pools = append(pools, n.Name+"/"+p.Name)
			}
		}
	}
	if rearm == ArmHosts || len(pools) == 0 || whole(now) {
		return nil
	}
	made := r.Backup.Created.Local().Format(time.DateTime)
	loss, err := json.Marshal(install.Loss{Since: time.Now(), Why: "the backup of " + made + " was restored, and which machines of pools were installed after it is not known"})
	if err != nil {
		return fmt.Errorf("encode the loss of install states: %w", err)
	}
	r.records = append(r.records, backup.Entry{Key: install.LostKey, Value: loss})
	r.Warnings = append(r.Warnings, fmt.Sprintf("machines of %s that are not in the backup boot their own disks after the restore, as they may have been installed since: "+
		"bootlab install MAC --done or bootlab install MAC says what one is, and bootlab state accept-new arms all others, which overwrites their disks", lab.Named(pools, maxPools)))
	return nil
}

// maxPools is how many pools a warning names.
const maxPools = 5

// whole reports whether entries are those of a state that has lost nothing, so that a host without a record never booted.
func whole(entries map[string][]byte) bool {
	if entries[identity.Key] == nil || entries[install.LostKey] != nil {
		return false
	}
	for key := range entries {
		if strings.HasPrefix(key, store.OwnPrefix) {
			return false
		}
	}
	return true
}

// Restore puts what r planned in place of the state, which it keeps: r.Kept is then its file.
func (s *State) Restore(ctx context.Context, a lab.Appliance, r *Restore) (err error) {
	if err := os.MkdirAll(a.State, 0o750); err != nil {
		return fmt.Errorf("appliance.state: %w", err)
	}
	r.Kept, err = s.held.Replace(ctx, func(yield func(string, []byte) bool) {
		for _, e := range r.records {
			if !yield(e.Key, e.Value) {
				return
			}
		}
	})
	switch {
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: nothing was changed: check dmesg and the disk, repair and remount it writable, or set appliance.state to another folder", err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: nothing was changed: free space on the file system of %s", err, a.State)
	}
	return err
}

// EntriesOf returns the entries of a backup by key, to plan a restore into the daemon that sent it.
func EntriesOf(b *backup.Backup) map[string][]byte {
	all := make(map[string][]byte, len(b.Entries))
	for _, e := range b.Entries {
		all[e.Key] = e.Value
	}
	return all
}
