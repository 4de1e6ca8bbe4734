package virt

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A Placement is where a machine of the lab was when its hypervisor answered last, or, while its State is StateAbsent, where it is to
// be created. It outlives the hypervisor's entry in the lab file, so that the machine is not forgotten, and never exists twice.
type Placement struct {
	Hypervisor string    `json:"hypervisor"` // name
	URI        string    `json:"uri"`
	State      State     `json:"state"`
	At         time.Time `json:"at"` // when the state was seen first
}

// Answered says that a hypervisor has answered, and that where its machines are was stored.
type Answered struct {
	URI string    `json:"uri"`
	At  time.Time `json:"at"` // for the first time
}

// placements are the placements that are known.
type placements struct{ persistent[Placement] }

// update notes the domains of a hypervisor, as far as they are of the lab.
func (ps *placements) update(ctx context.Context, t *Table, hv *lab.Hypervisor, domains []Domain, now time.Time) error {
	ps.changing.Lock()
	defer ps.changing.Unlock()
	there := map[string]Placement{}
	for _, d := range domains {
		if k := parseMetadata(d.Metadata); k.Lab == t.lab && d.UUID == domainUUID(t.lab, k.Host) {
			there[k.Host] = Placement{Hypervisor: hv.Name, URI: hv.URI, State: d.State, At: now}
		}
	}
	before, _ := ps.all()
	changed := map[string]Placement{}
	for host, p := range there {
		old := before[host]
		there := old.State != StateAbsent && old.URI != "" && old.URI != p.URI && old.Hypervisor != p.Hypervisor
		if there && (old.State.active() || !p.State.active()) {
			continue // it is defined here too: where it was first counts, unless it runs here alone
		} else if old.URI != p.URI || old.State != p.State || old.Hypervisor != p.Hypervisor {
			changed[host] = p
		}
	}
	for host, p := range before {
		if _, ok := there[host]; ok || p.URI != hv.URI || p.State == StateAbsent {
			continue
		}
		if m := t.byHost[host]; m == nil || m.host.VM.Candidates == nil {
			p = Placement{}
		} else {
			p.State, p.At = StateAbsent, now // it stays the choice
		}
		changed[host] = p
	}
	return ps.note(ctx, changed)
}

// outside returns the placements on hypervisors that the table does not have, by host.
func (ps *placements) outside(t *Table) map[string]Placement {
	out := map[string]Placement{}
	byHost, _ := ps.all()
	for host, p := range byHost {
		if p.State != StateAbsent && !slices.ContainsFunc(t.hypervisors, func(h *lab.Hypervisor) bool { return h.URI == p.URI }) {
			out[host] = p
		}
	}
	return out
}

// Forget removes what is known of a machine on a hypervisor that is down, or no longer in the lab file: it does not
// exist there any more, or will never run again. It is an error if the hypervisor answers.
func (s *Server) Forget(ctx context.Context, host string) error {
	p := s.placements.of(host)
	if p.URI == "" {
		return fmt.Errorf("forget VM %s: no hypervisor had it when it answered last", host)
	}
	for _, hv := range s.deps.Table().hypervisors {
		if _, _, _, err := s.observationOf(hv).state(hv); hv.URI == p.URI && err == nil && p.State != StateAbsent {
			return fmt.Errorf("forget VM %s: hypervisor %s answers and has it: delete it (bootlab vm delete %s)", host, hv.Name, host)
		}
	}
	s.placements.changing.Lock()
	defer s.placements.changing.Unlock()
	return s.placements.note(ctx, map[string]Placement{host: {}})
}

// A duplicate is a machine that would exist twice: the error of what would make it so.
type duplicate struct{ text string }

// Error implements error.
func (d *duplicate) Error() string { return d.text }

// aloneAge is how old an answer of a hypervisor may be for alone. What this server does itself is known at once.
const aloneAge = 5 * time.Second

// alone returns a *duplicate if the machine, or another with one of its MACs, is on another hypervisor, or was when that answered
// last. Hypervisors that answer are asked again, for a second at most, unless they answered within aloneAge.
func (s *Server) alone(ctx context.Context, m *machine) error {
	s.refreshSoon(ctx, m.table, aloneAge)
	for _, hv := range m.table.hypervisors {
		domains, at, down := s.observationOf(hv).last()
		for _, d := range domains {
			if text := conflict(m, hv, d); text != "" {
				if !down.IsZero() {
					text += fmt.Sprintf(" (as of %s; %s is down since %s)", at.Format(time.DateTime), hv.Name, down.Format(time.DateTime))
				}
				return &duplicate{text}
			}
		}
	}
	p := s.placements.of(m.host.Name)
	if p.URI == "" || p.State == StateAbsent || m.isPlaced() && p.URI == m.vm.Hypervisor.URI {
		return nil
	}
	for _, hv := range m.table.hypervisors {
		if _, at, _ := s.observationOf(hv).last(); hv.URI == p.URI && !at.IsZero() {
			return nil // it was asked since, and does not have it
		}
	}
	return &duplicate{fmt.Sprintf("it was %s on hypervisor %s (%s) at %s, which does not answer or is no longer in the lab file, and two machines "+
		"must not have one MAC: put that hypervisor back and delete the machine there, or, if it is gone for good, bootlab vm forget %s",
		p.State, p.Hypervisor, p.URI, p.At.Format(time.DateTime), m.host.Name)}
}

// conflict says why the machine must not exist beside a domain; "": it may.
func conflict(m *machine, hv *lab.Hypervisor, d Domain) string {
	if d.UUID == m.uuid {
		on := "another hypervisor"
		if m.isPlaced() {
			on = m.vm.Hypervisor.Name
		}
		if m.isPlaced() && hv.URI == m.vm.Hypervisor.URI {
			return ""
		}
		return fmt.Sprintf("it is %s on hypervisor %s, and two machines must not have one MAC: set hypervisor: %[2]s again, or delete it there "+
			"(bootlab vm delete %[3]s) before it is created on %[4]s", stateText(d.State), hv.Name, m.host.Name, on)
	}
	i := slices.IndexFunc(m.macs, func(mac string) bool { return slices.Contains(d.MACs, mac) })
	if i < 0 {
		return ""
	}
	k := parseMetadata(d.Metadata)
	switch {
	case k.Lab == m.table.lab:
		return fmt.Sprintf("VM %s on hypervisor %s has its MAC %s: delete that one (bootlab vm delete %[1]s)", k.Host, hv.Name, m.macs[i])
	case d.State.active():
		return fmt.Sprintf("domain %q on hypervisor %s, which is %s, has its MAC %s and was not created from lab %s: stop it, or change the MAC",
			d.Name, hv.Name, stateText(d.State), m.macs[i], m.table.lab)
	}
	return ""
}

// stateText is the state in words of the command line.
func stateText(s State) string {
	if s == StateOff {
		return "defined, but off,"
	}
	return string(s)
}
