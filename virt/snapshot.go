package virt

import (
	"cmp"
	"context"
	"encoding/xml"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/observe/event"
)

// A Snapshot is what a machine was at a time: its disks, and its memory if it ran.
type Snapshot struct {
	Name    string
	Created time.Time
	State   string // of the machine then: running, off …
	Current bool   // the machine goes on from this one
	Parent  string // the snapshot that the machine went on from then; empty: none
}

// parseSnapshot reads libvirt's description of a snapshot.
func parseSnapshot(text string) (Snapshot, error) {
	var s struct {
		Name    string `xml:"name"`
		State   string `xml:"state"`
		Created int64  `xml:"creationTime"`
		Parent  string `xml:"parent>name"`
	}
	if err := xml.Unmarshal([]byte(text), &s); err != nil {
		return Snapshot{}, fmt.Errorf("read snapshot: %w", err)
	}
	if s.State == "shutoff" { // libvirt's word
		s.State = string(StateOff)
	}
	return Snapshot{Name: s.Name, State: s.State, Created: time.Unix(s.Created, 0), Parent: s.Parent}, nil
}

// snapshotWait is the timeout of an operation with snapshots, which may write the memory of a machine.
const snapshotWait = 15 * time.Minute

// snapshotName is what a snapshot may be called: libvirt makes a file of it.
var snapshotName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]{0,63}$`)

// Snapshots returns the snapshots of a host's machine, the oldest first.
func (s *Server) Snapshots(ctx context.Context, host string) (all []Snapshot, err error) {
	err = s.onSnapshots(ctx, host, "snapshot", 0, func(ctx context.Context, hv Hypervisor, m *machine) (bool, error) {
		all, err = hv.Snapshots(ctx, m.uuid)
		return false, err
	})
	sortSnapshots(all)
	return all, err
}

// sortSnapshots sorts by time, of which libvirt knows only seconds, and within a second each after its parents.
func sortSnapshots(all []Snapshot) {
	parent := map[string]string{}
	for _, s := range all {
		parent[s.Name] = s.Parent
	}
	depth := func(s Snapshot) (n int) {
		for name := s.Parent; name != "" && n < len(all); name = parent[name] {
			n++
		}
		return n
	}
	slices.SortFunc(all, func(a, b Snapshot) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(depth(a), depth(b)), cmp.Compare(a.Name, b.Name))
	})
}

// CreateSnapshot creates a snapshot of a host's machine: of its disks, and of its memory if it runs.
func (s *Server) CreateSnapshot(ctx context.Context, host, name string) error {
	if !snapshotName.MatchString(name) {
		return fmt.Errorf("%q is no name of a snapshot: want up to 64 letters, digits, '-', '_' and '.'", name)
	}
	return s.onSnapshots(ctx, host, "snapshot", event.VMSnapshot, func(ctx context.Context, hv Hypervisor, m *machine) (bool, error) {
		have, err := hv.Snapshots(ctx, m.uuid)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(have, func(s Snapshot) bool { return s.Name == name }) {
			return false, refused(fmt.Sprintf("there is a snapshot %q: delete it, or choose another name", name))
		}
		text, err := (&libvirtxml.DomainSnapshot{Name: name, Description: "created by bootlab"}).Marshal()
		if err != nil {
			return false, err
		}
		return true, hv.CreateSnapshot(ctx, m.uuid, text)
	})
}

// Revert makes a host's machine what it was when a snapshot was created. What it has become since is lost.
func (s *Server) Revert(ctx context.Context, host, name string) error {
	return s.onSnapshots(ctx, host, "revert", event.VMReverted, func(ctx context.Context, hv Hypervisor, m *machine) (bool, error) {
		if err := hasSnapshot(ctx, hv, m, name); err != nil {
			return false, err
		}
		return true, hv.Revert(ctx, m.uuid, name)
	})
}

// DeleteSnapshot deletes a snapshot of a host's machine.
func (s *Server) DeleteSnapshot(ctx context.Context, host, name string) error {
	return s.onSnapshots(ctx, host, "delete snapshot", event.VMSnapshotDeleted, func(ctx context.Context, hv Hypervisor, m *machine) (bool, error) {
		if err := hasSnapshot(ctx, hv, m, name); err != nil {
			return false, err
		}
		return true, hv.DeleteSnapshot(ctx, m.uuid, name)
	})
}

// hasSnapshot returns an error if a machine has no snapshot of that name.
func hasSnapshot(ctx context.Context, hv Hypervisor, m *machine, name string) error {
	have, err := hv.Snapshots(ctx, m.uuid)
	if err != nil {
		return err
	}
	var names []string
	for _, s := range have {
		if s.Name == name {
			return nil
		}
		names = append(names, s.Name)
	}
	if len(names) == 0 {
		return refused(fmt.Sprintf("no snapshot %q: %s has none", name, m.host.Name))
	}
	return refused(fmt.Sprintf("no snapshot %q: %s has %s", name, m.host.Name, strings.Join(names, ", ")))
}

// onSnapshots runs an operation on a machine that exists, where it is.
func (s *Server) onSnapshots(ctx context.Context, host, name string, kind event.Kind, do func(context.Context, Hypervisor, *machine) (bool, error)) error {
	m, err := s.placedMachine(ctx, host)
	if err != nil {
		return fmt.Errorf("%s of VM %s: %w", name, host, err)
	}
	return s.runOn(ctx, m, m.vm.Hypervisor, operation{
		name: name, kind: kind, timeout: func(*machine) time.Duration { return snapshotWait },
		do: func(ctx context.Context, hv Hypervisor, m *machine) (bool, error) {
			if _, err := find(ctx, hv, m); err != nil {
				return false, err
			}
			changed, err := do(ctx, hv, m)
			if err != nil && strings.Contains(err.Error(), "pflash") {
				err = fmt.Errorf("%w: this libvirt has no snapshots of machines with UEFI; use firmware: bios", err)
			}
			return changed, err
		},
	})
}
