package install

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Rearm says what a restore does with hosts that the backup does not have as installed.
type Rearm int

// The kinds of restore.
const (
	HoldHosts Rearm = iota // they start from their own disk until an admin arms them: they may have been installed since
	ArmHosts               // their next boot installs them, as when the backup was made
)

// ByHost returns install records, which are stored under RecordKey, by the name that the machine of each has in a lab: the rule of
// Machine.Follow. That of a machine which is in no lab, but whose name is a host's there, has the name of its MAC. Those that the lab does
// not know at all keep the name that they were stored under. Other keys are ignored; a record that cannot be read counts as one without MACs.
func ByHost(entries map[string][]byte, hosts []*lab.Host) (map[string][]byte, error) {
	records, stored := map[string][]byte{}, newStates()
	for key, value := range entries {
		if name, ok := HostOfKey(key); ok {
			records[name] = value
			s, _, _ := statusOf(name, value)
			stored.set(name, s)
		}
	}
	sources := sourcesOf(hosts, stored)
	unchanged := maps.Clone(records)
	for _, from := range sources {
		delete(unchanged, from.name)
	}
	for _, h := range hosts {
		delete(unchanged, h.Name)
	}
	named := maps.Clone(unchanged)
	changed := maps.Clone(stored.of)
	maps.DeleteFunc(changed, func(name string, _ Status) bool { return unchanged[name] != nil })
	if err := addDeparted(named, changed, hosts); err != nil {
		return nil, err
	}
	for _, from := range sources {
		if record, ok := records[from.name]; ok {
			named[from.host.Name] = record
		}
	}
	return named, nil
}

// Separate gives the present records of machines that are in no lab the names of their MACs, where the backup has another machine under their
// name: else one of the two would be forgotten. Both are of ByHost.
func Separate(saved, now map[string][]byte, hosts []*lab.Host) error {
	inLab := map[string]bool{}
	for _, h := range hosts {
		inLab[h.Name] = true
	}
	for name := range saved {
		present, ok, _ := statusOf(name, now[name])
		before, _, _ := statusOf(name, saved[name])
		if !ok || inLab[name] || len(before.MACs) == 0 || slices.ContainsFunc(present.MACs, func(mac lab.MAC) bool { return slices.Contains(before.MACs, mac) }) {
			continue
		}
		if err := addDeparted(now, map[string]Status{name: present}, hosts); err != nil {
			return err
		}
		delete(now, name)
	}
	return nil
}

// addDeparted adds to records those of states that no host of a lab has, unless there is a later one of the machine.
func addDeparted(records map[string][]byte, states map[string]Status, hosts []*lab.Host) error {
	for name, s := range departed(states, hosts) {
		record, err := json.Marshal(s)
		if err != nil {
			return fmt.Errorf("encode install state of %s: %w", name, err)
		}
		if have, ok, _ := statusOf(name, records[name]); !ok || s.since(have) {
			records[name] = record
		}
	}
	return nil
}

// A Merged is what a restore makes of the install state of one host.
type Merged struct {
	Host   string `json:"host"`
	Now    string `json:"now,omitempty"`       // state before the restore; empty: not known, which JSON has as unknown
	Saved  string `json:"backup,omitempty"`    // state in the backup; empty: not in it
	After  string `json:"after,omitempty"`     // state after the restore; empty: not known, as with Now
	Boot   string `json:"next_boot,omitempty"` // what the next network boot after the restore starts: install, which overwrites the disk, or disk
	Once   bool   `json:"-"`                   // it is installed once
	Record []byte `json:"-"`                   // to store under RecordKey(Host); nil: none
}

// RecordKey returns the key of the install state of a host.
func RecordKey(host string) string { return keyPrefix + host }

// HostOfKey returns the host that a key of the store is about.
func HostOfKey(key string) (host string, ok bool) { return strings.CutPrefix(key, keyPrefix) }

// Merge decides what becomes of a host in a restore. saved is its record in a backup made at that time, now the one before the
// restore, both of ByHost; nil: none. h is the host in the lab, nil if it is not there: then it counts as one that is installed once.
//
// An installed host stays installed, whichever of the two records says so. Missing data never arms a host: with HoldHosts every
// other host that is installed once is held. No token outlives a restore.
func Merge(name string, h *lab.Host, saved, now []byte, made time.Time, r Rearm) (Merged, error) {
	m := Merged{Host: name, Once: h == nil || h.Profile != nil && h.Profile.Install == lab.InstallOnce}
	before, known, err := statusOf(name, now)
	if err != nil {
		known = false // the store that is replaced may be damaged
	}
	if known {
		m.Now = before.label()
	}
	s, inBackup, err := statusOf(name, saved)
	if err != nil {
		return m, err
	}
	if inBackup {
		m.Saved = s.label()
	}
	switch {
	case !m.Once && !inBackup, h == nil && !inBackup && !(known && before.known()):
		return m, nil // as one that never booted
	case !m.Once, s.State == Installed, h == nil && s.State == Live:
	case before.State == Installed:
		s = before
	case r == ArmHosts:
		s = Status{State: Armed, Since: s.Since, Held: s.Held, Why: s.Why}
	default:
		s = Status{State: Armed, Since: s.Since, Held: true, Why: fmt.Sprintf("not installed in the backup of %s that was restored: %s",
			made.Local().Format(time.DateTime), doneOrInstall(name))}
	}
	s.Tokens, s.Requested = nil, nil
	if s.State == Booting || s.State == Installing {
		s = Status{State: Armed, Since: s.Since}
	}
	if h != nil && len(h.AllMACs()) > 0 {
		s.MACs = h.AllMACs()
	}
	m.After = s.label()
	if m.Once {
		m.Boot = m.nextBoot()
	}
	m.Record, err = json.Marshal(s)
	return m, err
}

// What the next network boot of a host starts: its Merged.Boot.
const (
	BootInstall = "install"
	BootDisk    = "disk"
)

// nextBoot returns what the next network boot of a host starts that is installed once.
func (m Merged) nextBoot() string {
	switch m.After {
	case string(Armed):
		return BootInstall
	case labelHeld, string(Installed):
		return BootDisk
	}
	return ""
}

// MarshalJSON writes a state that is not known as unknown, as the table of bootlab restore does.
func (m Merged) MarshalJSON() ([]byte, error) {
	type plain Merged
	m.Now, m.After = cmp.Or(m.Now, string(Unknown)), cmp.Or(m.After, string(Unknown))
	return json.Marshal(plain(m))
}

// Arms reports whether the next boot of the host installs it.
func (m Merged) Arms() bool { return m.After == string(Armed) }

// Held reports whether the host starts from its own disk until an admin arms it.
func (m Merged) Held() bool { return m.After == labelHeld }

// statusOf decodes a record, if there is one.
func statusOf(host string, record []byte) (s Status, ok bool, err error) {
	if record == nil {
		return Status{}, false, nil
	}
	s, err = decode(host, record)
	return s, err == nil, err
}

// HeldByRestore reports whether a restore holds the host, and not the limit of attempts: only a restore says why.
func (s Status) HeldByRestore() bool { return s.Held && s.Why != "" }

const labelHeld = "held"

// Text is the state as hosts, why and dashboard show it; empty: nothing to install.
func (s Status) Text() string {
	if s.State == Live && !s.Held {
		return ""
	}
	return s.label()
}

// label is the state for people: held, until an admin says what the host is, or State.
func (s Status) label() string {
	if s.Held {
		return labelHeld
	}
	return string(s.State)
}
