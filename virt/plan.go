package virt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"libvirt.org/go/libvirtxml"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Condition says how a machine on its hypervisor compares with the lab file.
type Condition string

// The conditions of machines.
const (
	ConditionOK         Condition = "ok"
	ConditionMissing    Condition = "missing"    // not created yet
	ConditionChanged    Condition = "changed"    // the lab file has changed since it was defined
	ConditionDrifted    Condition = "drifted"    // its definition was edited on the hypervisor
	ConditionUnstarted  Condition = "unstarted"  // defined as in the lab file, and the start that was asked for has not succeeded
	ConditionRestart    Condition = "restart"    // defined as in the lab file, but it runs with an older definition, or without a link
	ConditionOrphaned   Condition = "orphaned"   // created from this lab, but not in the lab file, or on another hypervisor there
	ConditionDuplicated Condition = "duplicated" // it, or its MAC, is on another hypervisor or in another domain too
	ConditionUnknown    Condition = "unknown"    // its hypervisor does not answer
)

// A Comparison is one machine, or one libvirt network, and how it differs from the lab file.
type Comparison struct {
	Host       string    `json:"host"`              // empty: it is a network
	Network    string    `json:"network,omitempty"` // libvirt network that bootlab creates
	Hypervisor string    `json:"hypervisor"`
	State      State     `json:"state"`
	Condition  Condition `json:"condition"`
	Details    []string  `json:"details,omitempty"` // what differs, or why it is unknown
}

// planWait is how long Plan waits for a hypervisor.
const planWait = 15 * time.Second

// Plan compares machines and the libvirt networks that they need with the lab file, all hypervisors at the same time; nil: those of all
// hosts, and those of no host. It changes nothing. It is an error if a host is no virtual machine.
func (s *Server) Plan(ctx context.Context, hosts []string) ([]Comparison, error) {
	t := s.table()
	for _, host := range hosts {
		if _, err := t.machine(host); err != nil {
			return nil, err
		}
	}
	var mu sync.Mutex
	var all []Comparison
	var hypervisors sync.WaitGroup
	for _, hv := range t.hypervisors {
		hypervisors.Go(func() {
			on := s.planOn(ctx, t, hv, hosts)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, on...)
		})
	}
	hypervisors.Wait()
	all = append(all, s.unplaced(t, hosts)...)
	for host, p := range s.placements.outside(t) {
		if hosts == nil || slices.Contains(hosts, host) {
			all = append(all, Comparison{Host: host, Hypervisor: p.Hypervisor, State: StateUnknown, Condition: ConditionOrphaned, Details: []string{fmt.Sprintf(
				"hypervisor %s is no longer in the lab file; the machine was %s there at %s", p.Hypervisor, p.State, p.At.Format(time.DateTime))}})
		}
	}
	s.markDuplicates(t, all)
	slices.SortStableFunc(all, func(a, b Comparison) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Hypervisor, b.Hypervisor), cmp.Compare(a.Network, b.Network))
	})
	return all, nil
}

// unplaced returns the machines that have no hypervisor yet, each with the one that would be chosen now.
func (s *Server) unplaced(t *Table, hosts []string) (all []Comparison) {
	loads := s.loads(t)
	for _, m := range t.machines {
		if m.isPlaced() || hosts != nil && !slices.Contains(hosts, m.host.Name) {
			continue
		}
		c := Comparison{Host: m.host.Name, State: StateAbsent, Condition: ConditionMissing}
		err := s.neverAnswered(m)
		if err != nil {
			c.State, c.Condition = StateUnknown, ConditionUnknown
		} else if there, none := loads.pick(m); none == nil {
			c.Details = []string{fmt.Sprintf("one of %s is chosen when it is created; now that would be %s", strings.Join(m.names(), ", "), there.vm.Hypervisor.Name)}
		} else {
			err = none
		}
		if err != nil {
			c.Details = []string{err.Error()}
		}
		all = append(all, c)
	}
	return all
}

// planOn compares the machines and networks of one hypervisor.
func (s *Server) planOn(ctx context.Context, t *Table, hv *lab.Hypervisor, hosts []string) (all []Comparison) {
	ctx, cancel := context.WithTimeout(ctx, planWait)
	defer cancel()
	err := s.contained(hv, func(h Hypervisor) (err error) {
		all, err = s.planWith(ctx, h, t, hv, hosts)
		return err
	})
	if err != nil {
		return unknownOn(t, hv, hosts, s.noAnswer(hv, err))
	}
	return all
}

// planWith is planOn for a hypervisor that answers; else it is an error.
func (s *Server) planWith(ctx context.Context, h Hypervisor, t *Table, hv *lab.Hypervisor, hosts []string) ([]Comparison, error) {
	if err := s.measure(ctx, hv, h); err != nil {
		return nil, err
	}
	statuses := slices.DeleteFunc(s.listOn(t, hv), func(st Status) bool { return hosts != nil && !slices.Contains(hosts, st.Host) })
	volumes, err := volumesOf(ctx, h, t, statuses)
	if err != nil {
		return nil, err
	}
	networks, err := networksOf(ctx, h)
	if err != nil {
		return nil, err
	}
	all := planNetworks(networks, t, hv, hosts)
	domains, _, _ := s.observationOf(hv).last()
	byUUID := make(map[string]Domain, len(domains))
	for _, d := range domains {
		byUUID[d.UUID] = d
	}
	for _, st := range statuses {
		xml := ""
		if !st.Orphan && st.State != StateAbsent {
			if xml, err = h.XML(ctx, st.UUID); err != nil {
				return nil, err
			}
		}
		c := compareMachine(t, st, xml, volumes[st.Host])
		if !st.Orphan {
			if err := t.byHost[st.Host].fitsIn(s.observationOf(hv).measured().Memory); err != nil {
				c.Details = append(c.Details, err.Error())
			}
		}
		if s.unstarted(st.Host, st.State) && !st.Orphan {
			c.Details = append(c.Details, fmt.Sprintf("not started: %s; bootlab vm apply starts it, bootlab vm stop leaves it off", s.starts.of(st.Host).reason()))
			if c.Condition == ConditionOK {
				c.Condition = ConditionUnstarted
			}
		}
		if isDisconnected(byUUID[st.UUID], networks) {
			c.Details = append(c.Details, "a libvirt network was stopped while it ran, and its NIC there has had no link since: stop and start it (bootlab vm stop, start)")
			if c.Condition == ConditionOK {
				c.Condition = ConditionRestart
			}
		}
		all = append(all, c)
	}
	return all, nil
}

// unknownOn returns the machines and networks of a hypervisor that does not answer.
func unknownOn(t *Table, hv *lab.Hypervisor, hosts []string, err error) (all []Comparison) {
	unknown := Comparison{Hypervisor: hv.Name, State: StateUnknown, Condition: ConditionUnknown, Details: []string{err.Error()}}
	for _, m := range t.machines {
		if m.vm.Hypervisor == hv && (hosts == nil || slices.Contains(hosts, m.host.Name)) {
			c := unknown
			c.Host = m.host.Name
			all = append(all, c)
		}
	}
	if hosts == nil {
		for _, n := range t.networksOn(hv) {
			c := unknown
			c.Network = n.LibvirtNetwork
			all = append(all, c)
		}
	}
	return all
}

// volumesOf returns the volumes of machines, by host: those of the disks, and of their documents.
func volumesOf(ctx context.Context, h Hypervisor, t *Table, statuses []Status) (map[string][]Volume, error) {
	var ids []VolumeID
	for _, st := range statuses {
		if !st.Orphan {
			ids = append(ids, t.byHost[st.Host].allVolumeIDs()...)
		}
	}
	all, err := h.Volumes(ctx, ids)
	if err != nil {
		return nil, err
	}
	volumes := map[string][]Volume{}
	for _, st := range statuses {
		if !st.Orphan {
			n := len(t.byHost[st.Host].allVolumeIDs())
			volumes[st.Host], all = all[:n], all[n:]
		}
	}
	return volumes, nil
}

// compareMachine compares one machine, whose definition is xml and whose volumes are those of volumesOf, with the lab file.
func compareMachine(t *Table, st Status, xml string, volumes []Volume) Comparison {
	c := Comparison{Host: st.Host, Hypervisor: st.Hypervisor, State: st.State, Condition: ConditionOK}
	switch {
	case st.Orphan:
		c.Condition, c.Details = ConditionOrphaned, []string{cmp.Or(st.Err, "the host is no longer in the lab file; bootlab vm delete "+st.Host+" deletes it")}
		return c
	case st.State == StateAbsent:
		c.Condition = ConditionMissing
		c.Details = t.byHost[st.Host].diskChanges(volumes)
		return c
	}
	have, err := parseDomain(xml)
	if err != nil {
		c.Condition, c.Details = ConditionUnknown, []string{err.Error()}
		return c
	}
	m := t.byHost[st.Host]
	want := m.definition()
	setDiskPaths(want, volumes[:len(m.disksOf())])
	if want, err = m.changed(want); err != nil {
		c.Condition, c.Details = ConditionUnknown, []string{err.Error()}
		return c
	}
	c.Details = differences(want, have)
	gone := m.gone(have, volumes)
	later := len(c.Details) > 0 || st.Redefined || st.Restart
	if st.Autostart != m.vm.Autostart {
		c.Details = append(c.Details, fmt.Sprintf("autostart: %s, lab file: %s: bootlab vm apply changes it at once", yesNo(st.Autostart), yesNo(m.vm.Autostart)))
	}
	disks := m.diskChanges(volumes)
	switch {
	case st.Changed:
		c.Condition = ConditionChanged
		if len(c.Details) == 0 {
			c.Details = []string{"it was defined by another version of bootlab, or details differ"}
		}
	case len(c.Details) > 0 || len(gone) > 0:
		c.Condition = ConditionDrifted
	case len(disks) > 0:
		c.Condition = ConditionChanged
	case st.Restart:
		c.Condition = ConditionRestart
	}
	if later && st.State.active() {
		c.Details = append(c.Details, "it runs: the new definition takes effect once it is stopped and started (bootlab vm stop, start)")
	}
	c.Details = slices.Concat(gone, disks, c.Details)
	return c
}

// unstarted reports whether a machine in this state is off though it was to be started.
func (s *Server) unstarted(host string, is State) bool {
	return s.starts.of(host) != PendingStart{} && (is == StateOff || is == StateCrashed)
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}

// markDuplicates finds the machines that are on two hypervisors, and domains that have a MAC of another machine.
func (s *Server) markDuplicates(t *Table, all []Comparison) {
	byKey := map[string][]*machine{} // by UUID and by MAC
	for _, m := range t.machines {
		for _, key := range append([]string{m.uuid}, m.macs...) {
			byKey[key] = append(byKey[key], m)
		}
	}
	found := map[string][]string{}
	for _, hv := range t.hypervisors {
		domains, _, _ := s.observationOf(hv).last()
		for _, d := range domains {
			seen := map[*machine]bool{}
			for _, key := range append([]string{d.UUID}, d.MACs...) {
				for _, m := range byKey[key] {
					if text := conflict(m, hv, d); text != "" && !seen[m] {
						seen[m] = true
						found[m.host.Name] = append(found[m.host.Name], text)
					}
				}
			}
		}
	}
	for i, c := range all {
		if texts := found[c.Host]; len(texts) > 0 && c.Condition != ConditionOrphaned {
			all[i].Condition, all[i].Details = ConditionDuplicated, append(texts, c.Details...)
		}
	}
}

// Apply makes a machine as it is in the lab file: it creates and starts it if it is missing, makes its disks larger, and redefines it
// if its definition differs, also while it runs: that holds from its next start on. It starts a machine whose start failed or was
// interrupted, and no other that is off: somebody switched that off. Called again after any interruption, it does the rest.
func (s *Server) Apply(ctx context.Context, host string) error {
	err := s.run(ctx, host, s.defining("apply", func(ctx context.Context, hv Hypervisor, m *machine) (old Domain, changed bool, err error) {
		if err := s.alone(ctx, m); err != nil {
			return old, false, err
		}
		old, err = find(ctx, hv, m)
		switch {
		case errors.Is(err, ErrAbsent):
			s.wantStart(ctx, m)
			if err = s.createMissing(ctx, hv, m, m.domain(), Domain{}); err != nil {
				s.startFailed(ctx, m, err)
			}
			return old, err == nil, err
		case err != nil:
			return old, false, err
		}
		changed, err = s.applyTo(ctx, hv, m, old)
		return old, changed, err
	}))
	if err != nil || s.starts.of(host) == (PendingStart{}) {
		return err
	}
	if err := s.Start(ctx, host); err != nil {
		return fmt.Errorf("%s is defined, and does not start (bootlab vm apply %[1]s tries again): %w", host, err)
	}
	return nil
}

// applyTo is Apply for a machine whose domain is old.
func (s *Server) applyTo(ctx context.Context, hv Hypervisor, m *machine, old Domain) (changed bool, err error) {
	have, err := definitionOf(ctx, hv, old)
	if err != nil {
		return false, err
	}
	all, err := hv.Volumes(ctx, m.allVolumeIDs())
	if err != nil {
		return false, err
	}
	volumes := all[:len(m.disksOf())]
	d := m.domain()
	setDiskPaths(d, volumes)
	want, err := m.changed(d)
	if err != nil {
		return false, err
	}
	if !old.markNow().isOf(m.mark()) || len(differences(want, have)) > 0 || old.Autostart != m.vm.Autostart || len(m.gone(have, all)) > 0 {
		return true, s.createMissing(ctx, hv, m, d, old)
	}
	if err := m.checkDisks(ctx, hv, have, volumes); err != nil {
		return false, err
	}
	return m.growDisks(ctx, hv, volumes)
}

// redefine defines the domain, over an old one if there is one. Firmware variables belong to one firmware: with those of another,
// Secure Boot would be off, because they lack its keys. So they go with the old definition, and with it would its snapshots.
func redefine(ctx context.Context, hv Hypervisor, m *machine, d *libvirtxml.Domain) error {
	old, err := find(ctx, hv, m)
	if errors.Is(err, ErrAbsent) {
		return define(ctx, hv, m, d)
	}
	if err != nil {
		return err
	}
	xml, err := hv.XML(ctx, m.uuid)
	if err != nil {
		return err
	}
	have, err := parseDomain(xml)
	if err != nil {
		return err
	}
	want, err := m.changed(d)
	if err != nil {
		return err
	}
	is, should := firmwareOf(have), firmwareOf(want)
	if is == should {
		return define(ctx, hv, m, d)
	}
	if old.State.active() {
		return fmt.Errorf("it is running, and its firmware changes from %s to %s, which has variables of its own: stop it first", is, should)
	}
	snapshots, err := hv.Snapshots(ctx, m.uuid)
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	if len(snapshots) > 0 {
		return fmt.Errorf("it has %d snapshot(s), which would be lost when its firmware changes from %s to %s: delete them first (bootlab vm snapshot delete %s NAME)",
			len(snapshots), is, should, m.host.Name)
	}
	if err := hv.Undefine(ctx, m.uuid); err != nil {
		return err
	}
	if err := define(ctx, hv, m, d); err != nil {
		return errors.Join(err, restore(ctx, hv, m, old, xml))
	}
	return nil
}

// restore defines a domain again as it was, unless a new definition is there: then a step after that has failed, and an old definition
// would have the variables of another firmware.
func restore(ctx context.Context, hv Hypervisor, m *machine, old Domain, xml string) error {
	if _, err := find(ctx, hv, m); !errors.Is(err, ErrAbsent) {
		return nil
	}
	if err := hv.Define(ctx, xml); err != nil {
		return err
	}
	return hv.SetAutostart(ctx, m.uuid, old.Autostart)
}
