package virt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// Where the lab file leaves the choice, Create and Apply choose the hypervisor of a machine, once: the choice is stored as its
// Placement, before anything is created, and stays until the machine is deleted with its disks. A domain that exists decides before
// that: its Placement follows from it, also after the state was lost.

// A placedTable is a table with the machines on the hypervisors that their placements name.
type placedTable struct {
	from    *Table
	changes uint64 // of the placements
	table   *Table
}

// table returns the table of the lab, with placements.
func (s *Server) table() *Table {
	t := s.deps.Table()
	if !t.open {
		return t
	}
	if have := s.placed.Load(); have != nil && have.from == t && have.changes == s.placements.count() {
		return have.table
	}
	byHost, changes := s.placements.all()
	p := &placedTable{from: t, changes: changes, table: t.placed(byHost)}
	s.placed.Store(p)
	return p.table
}

// HypervisorOf returns the name of the hypervisor that has a host's machine, else of the lab file's; "": none was chosen yet, or there is no such
// machine.
func (s *Server) HypervisorOf(host string) string {
	t := s.table()
	m := t.byHost[host]
	if m == nil {
		return ""
	}
	if m = s.where(t, m); !m.isPlaced() {
		return ""
	}
	return m.vm.Hypervisor.Name
}

func (t *Table) placed(byHost map[string]Placement) *Table {
	if !t.open {
		return t
	}
	on := *t
	on.machines, on.byHost = slices.Clone(t.machines), make(map[string]*machine, len(t.machines))
	for i, m := range on.machines {
		if there := m.candidate(t, byHost[m.host.Name]); there != nil {
			on.machines[i], m = there, there
		}
		on.byHost[m.host.Name] = m
	}
	return &on
}

// candidate returns the machine on the hypervisor of a placement; nil: there is none, or the machine may not run there.
func (m *machine) candidate(t *Table, p Placement) *machine {
	for _, there := range m.candidates {
		if there.vm.Hypervisor.URI == p.URI {
			return there
		}
	}
	if slices.ContainsFunc(t.hypervisors, func(h *lab.Hypervisor) bool { return h.URI == p.URI }) {
		return nil
	}
	for _, there := range m.candidates { // it has another URI now
		if there.vm.Hypervisor.Name == p.Hypervisor {
			return there
		}
	}
	return nil
}

// isPlaced reports whether the machine has a hypervisor.
func (m *machine) isPlaced() bool { return m.vm.Hypervisor != nil }

// first returns the machine on a hypervisor: the first that may have it, if none was chosen yet.
func (m *machine) first() *machine {
	if m.isPlaced() || len(m.candidates) == 0 {
		return m
	}
	return m.candidates[0]
}

// Choice says what the lab file lets bootlab choose for a host's machine, and where XML has it; "": it names the hypervisor.
func (t *Table) Choice(host string) string {
	m := t.byHost[host]
	if m == nil || m.candidates == nil {
		return ""
	}
	return fmt.Sprintf("as on %s: vm create chooses one of %s", m.first().vm.Hypervisor.Name, strings.Join(m.names(), ", "))
}

// names returns the names of the candidates.
func (m *machine) names() []string {
	names := make([]string, len(m.candidates))
	for i, c := range m.candidates {
		names[i] = c.vm.Hypervisor.Name
	}
	return names
}

// placedMachine returns the machine of a host on the hypervisor that has it, else on that of the lab file. If there is none, the hypervisors
// that answer are asked again. ErrAbsent: it was not placed yet.
func (s *Server) placedMachine(ctx context.Context, host string) (*machine, error) {
	m, err := s.seek(ctx, host, s.where)
	if err != nil || m.isPlaced() {
		return m, err
	}
	if err := s.neverAnswered(m); err != nil {
		return nil, err
	}
	return nil, ErrAbsent
}

// seek is placedMachine with where or asInLab, and without an error for a machine that was not placed yet.
func (s *Server) seek(ctx context.Context, host string, as func(*Table, *machine) *machine) (*machine, error) {
	for _, ask := range []bool{false, true} {
		t := s.table()
		if ask {
			s.refreshSoon(ctx, t, aloneAge)
			t = s.table()
		}
		m, err := t.machine(host)
		if err != nil {
			return nil, err
		}
		if m = as(t, m); m.isPlaced() {
			return m, nil
		}
	}
	return s.table().machine(host)
}

// asInLab is for seek: the hypervisor of the lab file or of its choice.
func asInLab(_ *Table, m *machine) *machine { return m }

// neverAnswered returns an error if a hypervisor that may have the machine has not answered since the start, and the state does not say that it
// did before: then nothing says that the machine is not there.
func (s *Server) neverAnswered(m *machine) error {
	for _, c := range m.candidates {
		hv := c.vm.Hypervisor
		if _, at, _ := s.observationOf(hv).last(); at.IsZero() && s.answered.of(hv.Name).URI != hv.URI {
			others := ""
			if names := slices.DeleteFunc(m.names(), func(n string) bool { return n == hv.Name }); len(names) > 0 {
				others = fmt.Sprintf(", or name the others in the lab file (hypervisor: [%s])", strings.Join(names, ", "))
			}
			return fmt.Errorf("hypervisor %s has not answered since the daemon started, and may have it: start %[1]s%s", hv.Name, others)
		}
	}
	return nil
}

// chooseWait is how long choose waits for hypervisors.
const chooseWait = 10 * time.Second

// choose places the machine of a host that is not placed yet.
func (s *Server) choose(ctx context.Context, host string) (*machine, error) {
	m, err := s.table().machine(host)
	if err != nil {
		return nil, err
	}
	s.ask(ctx, m)
	s.choosing.Lock() // the next one counts this one
	defer s.choosing.Unlock()
	t := s.table()
	if m, err = t.machine(host); err != nil || m.isPlaced() {
		return m, err // it was found
	}
	if err := s.neverAnswered(m); err != nil {
		return nil, err
	}
	if err := s.alone(ctx, m); err != nil {
		return nil, err
	}
	there, err := s.loads(t).pick(m)
	if err != nil {
		return nil, err
	}
	hv := there.vm.Hypervisor
	p := Placement{Hypervisor: hv.Name, URI: hv.URI, State: StateAbsent, At: s.deps.Now()}
	if err := s.placements.change(ctx, host, func(have *Placement) { *have = p }); err != nil {
		return nil, fmt.Errorf("store its hypervisor: %w", err)
	}
	return there, nil
}

// unplace forgets the choice for a machine that does not exist any more.
func (s *Server) unplace(ctx context.Context, host string) error {
	return s.placements.change(ctx, host, func(p *Placement) {
		if p.State == StateAbsent {
			*p = Placement{}
		}
	})
}

// ask asks the hypervisors that may have a machine what they have. One that is down is not asked.
func (s *Server) ask(ctx context.Context, m *machine) {
	ctx, cancel := context.WithTimeout(ctx, chooseWait)
	defer cancel()
	var asked sync.WaitGroup
	for _, c := range m.candidates {
		hv := c.vm.Hypervisor
		if _, _, down := s.observationOf(hv).last(); !down.IsZero() {
			continue
		}
		asked.Go(func() {
			err := s.contained(hv, func(h Hypervisor) error { return s.measure(ctx, hv, h) })
			if err != nil && !errors.Is(err, errBusy) && !errors.Is(err, errClosed) {
				s.observationOf(hv).failed(err, s.deps.Now())
			}
		})
	}
	asked.Wait()
}

// measure is observe that also reads what a hypervisor has.
func (s *Server) measure(ctx context.Context, hv *lab.Hypervisor, h Hypervisor) error {
	if err := s.observe(ctx, hv, h); err != nil {
		return err
	}
	node, err := h.Node(ctx)
	if err == nil {
		o := s.observationOf(hv)
		o.mu.Lock()
		o.node = node
		o.mu.Unlock()
	}
	return err
}

// A load is what is on a hypervisor.
type load struct {
	hv        *lab.Hypervisor
	node      Node           // the zero value: not known
	allocated uint64         // bytes of memory of the machines of the lab that are placed there, running or not
	others    uint64         // bytes of memory of what else runs there
	machines  int            // of the lab, that are placed there
	running   int            // of these
	roles     map[string]int // machines, by cluster and role
	down      error          // why nothing can be created there now
}

// loads are those of the hypervisors, by URI.
type loads map[string]*load

// loads returns the loads of all hypervisors, as they answered last.
func (s *Server) loads(t *Table) loads {
	all := loads{}
	for _, hv := range t.hypervisors {
		o := s.observationOf(hv)
		_, _, _, err := o.state(hv)
		domains, _, _ := o.last()
		l := &load{hv: hv, node: o.measured(), down: err, roles: map[string]int{}}
		for _, d := range domains {
			m := t.byUUID(d)
			switch {
			case !d.State.active():
			case m != nil && m.vm.Hypervisor == hv:
				l.running++
			default:
				l.others += d.Memory
			}
		}
		all[hv.URI] = l
	}
	for _, m := range t.machines {
		if m.isPlaced() {
			all[m.vm.Hypervisor.URI].add(m)
		}
	}
	return all
}

// byUUID returns the machine that a domain is; nil: none of the lab.
func (t *Table) byUUID(d Domain) *machine {
	k := parseMetadata(d.Metadata)
	if m := t.byHost[k.Host]; m != nil && k.Lab == t.lab && m.uuid == d.UUID {
		return m
	}
	return nil
}

func (l *load) add(m *machine) {
	l.allocated += uint64(m.vm.Memory)
	l.machines++
	l.roles[m.peers()]++
}

// free returns how much memory is neither used nor allocated.
func (l *load) free() uint64 {
	used := l.allocated + l.others
	switch {
	case l.node.Memory == 0:
		return math.MaxUint64
	case used > l.node.Memory:
		return 0
	}
	return l.node.Memory - used
}

// peers names the machines that should not be on one hypervisor: those of one role in one cluster; "": it has no role.
func (m *machine) peers() string {
	if m.host.Role == "" {
		return ""
	}
	if m.host.Cluster == nil {
		return "/" + m.host.Role
	}
	return m.host.Cluster.Name + "/" + m.host.Role
}

// pick returns the machine on the hypervisor that is best for it, and counts it there: of those with enough memory one with the fewest
// machines of its role, then one with the most memory left, then the first by name.
func (ls loads) pick(m *machine) (*machine, error) {
	var fit []*machine
	var errs []string
	for _, c := range m.candidates {
		l := ls[c.vm.Hypervisor.URI]
		switch {
		case l.down != nil:
			errs = append(errs, l.down.Error())
		case uint64(m.vm.Memory) > l.free():
			errs = append(errs, fmt.Sprintf("hypervisor %s has %d MiB left of %d MiB", l.hv.Name, l.free()>>20, l.node.Memory>>20))
		default:
			fit = append(fit, c)
		}
	}
	if len(fit) == 0 {
		return nil, fmt.Errorf("no hypervisor has room for its %d MiB of memory: %s: make it smaller, delete others, or name one hypervisor, which is not limited",
			m.vm.Memory>>20, strings.Join(errs, "; "))
	}
	best := slices.MinFunc(fit, func(a, b *machine) int {
		la, lb := ls[a.vm.Hypervisor.URI], ls[b.vm.Hypervisor.URI]
		others := 0
		if peers := m.peers(); peers != "" {
			others = cmp.Compare(la.roles[peers], lb.roles[peers])
		}
		return cmp.Or(others, cmp.Compare(lb.free(), la.free()))
	})
	ls[best.vm.Hypervisor.URI].add(best)
	return best, nil
}
