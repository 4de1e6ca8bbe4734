package virt

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Status is the state of one virtual machine of the lab.
type Status struct {
	Host       string `json:"host"`
	Hypervisor string `json:"hypervisor"`
	UUID       string `json:"uuid"`
	State      State  `json:"state"`
	Changed    bool   `json:"changed,omitempty"` // the lab file differs from the one that the domain was made from
	Redefined  bool   `json:"-"`                 // so does the definition that follows from it; else it is Changed in Autostart only
	Restart    bool   `json:"restart,omitempty"` // it runs with an older definition than the one on the hypervisor
	Orphan     bool   `json:"orphan,omitempty"`  // created from this lab, but no longer in the lab file, or on another hypervisor there
	Err        string `json:"err,omitempty"`     // why State is unknown, or what to do about an orphan

	At        time.Time `json:"at,omitzero"`         // when the hypervisor answered last
	Autostart bool      `json:"autostart,omitempty"` // it starts with its hypervisor

	Down time.Time `json:"down,omitzero"` // since when the hypervisor does not answer; zero: it does
}

// List returns every virtual machine of the lab, sorted by host, including those not created yet and orphans. It refreshes what
// each hypervisor answered last, and waits for that at most Config.ListWait, and not at all for a hypervisor that is down: the
// state of its machines is unknown.
func (s *Server) List(ctx context.Context) []Status {
	t := s.table()
	s.refreshSoon(ctx, t, 0)
	var all []Status
	for _, hv := range t.hypervisors {
		all = append(all, s.listOn(t, hv)...)
	}
	for _, m := range t.machines {
		if !m.isPlaced() {
			all = append(all, s.unplacedStatus(m))
		}
	}
	for host, p := range s.placements.outside(t) {
		all = append(all, Status{Host: host, Hypervisor: p.Hypervisor, UUID: domainUUID(t.lab, host), State: StateUnknown, Orphan: true, At: p.At,
			Err: fmt.Sprintf("hypervisor %s (%s) is no longer in the lab file; the machine was %s there: put the hypervisor back to manage it, or bootlab vm forget %s",
				p.Hypervisor, p.URI, p.State, host)})
	}
	slices.SortStableFunc(all, func(a, b Status) int { return cmp.Compare(a.Host, b.Host) })
	return all
}

// ByHost returns List with one status for each machine in the lab file: of a machine that is on another hypervisor than there, the orphan's.
func (s *Server) ByHost(ctx context.Context) map[string]Status {
	all, t := s.List(ctx), s.table()
	byHost := make(map[string]Status, len(all))
	for _, st := range all {
		have, listed := byHost[st.Host]
		if t.byHost[st.Host] != nil && (!listed || have.State == StateAbsent || st.State != StateAbsent && st.Hypervisor == s.HypervisorOf(st.Host)) {
			byHost[st.Host] = st
		}
	}
	return byHost
}

// unplacedStatus is the status of a machine that has no hypervisor yet.
func (s *Server) unplacedStatus(m *machine) Status {
	st := Status{Host: m.host.Name, UUID: m.uuid, State: StateAbsent}
	if err := s.neverAnswered(m); err != nil {
		st.State, st.Err = StateUnknown, err.Error()
	}
	return st
}

// refreshSoon refreshes what the hypervisors answered last, unless it is younger than an age, and waits for that at most
// Config.ListWait, and not at all for one that is down.
func (s *Server) refreshSoon(ctx context.Context, t *Table, age time.Duration) {
	var refreshes []<-chan struct{}
	for _, hv := range t.hypervisors {
		if _, at, _ := s.observationOf(hv).last(); !at.IsZero() && s.deps.Now().Sub(at) < age {
			continue
		}
		if r := s.refresh(hv); r != nil {
			refreshes = append(refreshes, r)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.ListWait)
	defer cancel()
	for _, r := range refreshes {
		select {
		case <-r:
		case <-ctx.Done():
		}
	}
}

func (s *Server) listOn(t *Table, hv *lab.Hypervisor) []Status {
	var mine []*machine
	for _, m := range t.machines {
		if m.vm.Hypervisor == hv {
			mine = append(mine, m)
		}
	}
	domains, at, since, err := s.observationOf(hv).state(hv)
	var all []Status
	if err != nil {
		all = append(unknown(mine, err), s.lostOn(t, hv, err)...)
	} else {
		all = statuses(t, hv, mine, domains)
	}
	for i := range all {
		all[i].At, all[i].Down = at, since
	}
	return all
}

func unknown(machines []*machine, err error) []Status {
	all := make([]Status, len(machines))
	for i, m := range machines {
		all[i] = m.status(StateUnknown)
		all[i].Err = err.Error()
	}
	return all
}

// lostOn returns the orphans of a hypervisor that does not answer, as it had them last: a machine that the lab file has elsewhere is not absent.
func (s *Server) lostOn(t *Table, hv *lab.Hypervisor, err error) (all []Status) {
	byHost, _ := s.placements.all()
	for host, p := range byHost {
		if m := t.byHost[host]; p.State == StateAbsent || p.URI != hv.URI || m != nil && m.vm.Hypervisor == hv {
			continue
		}
		all = append(all, Status{Host: host, Hypervisor: hv.Name, UUID: domainUUID(t.lab, host), State: StateUnknown, Orphan: true,
			Err: fmt.Sprintf("%v; the machine was %s there, and the lab file does not have it there any more", err, p.State)})
	}
	return all
}

func (m *machine) status(s State) Status {
	return Status{Host: m.host.Name, Hypervisor: m.vm.Hypervisor.Name, UUID: m.uuid, State: s}
}

// statuses compares the machines of the lab with the domains of a hypervisor.
func statuses(t *Table, hv *lab.Hypervisor, mine []*machine, domains []Domain) []Status {
	byUUID := make(map[string]Domain, len(domains))
	for _, d := range domains {
		byUUID[d.UUID] = d
	}
	all := make([]Status, 0, len(mine))
	for _, m := range mine {
		st := m.status(StateAbsent)
		if d, ok := byUUID[m.uuid]; ok {
			st.State = d.State
			mark := d.markNow()
			st.Redefined = !mark.isOf(m.mark())
			st.Changed = st.Redefined || d.Autostart != m.vm.Autostart && mark != m.mark()
			st.Restart = d.Next != "" && !mark.isOf(parseMetadata(d.Metadata))
			st.Autostart = d.Autostart
		}
		all = append(all, st)
	}
	for _, d := range domains {
		k := parseMetadata(d.Metadata)
		if m := t.byHost[k.Host]; k.Lab == t.lab && (m == nil || m.vm.Hypervisor != hv) {
			st := Status{Host: k.Host, Hypervisor: hv.Name, UUID: d.UUID, State: d.State, Orphan: true}
			if m != nil {
				st.Err = fmt.Sprintf("the lab file has it on another hypervisor%s: set hypervisor: %s again, or delete it there (bootlab vm delete %s)",
					map[bool]string{true: " (" + m.first().vm.Hypervisor.Name + ")"}[m.isPlaced()], hv.Name, k.Host)
			}
			all = append(all, st)
		}
	}
	return all
}
