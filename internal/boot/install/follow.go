package install

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/store"
)

// A Move says that the state of a machine is that of another host name from now on.
type Move struct {
	From, To string
	MAC      lab.MAC // by which the machine is known
	State    State
}

// Follow makes each state that of the host that has its machine in a lab which comes into use: by MAC, as an admin may rename hosts or
// exchange their names, and an installed machine that counts as a new one would be installed again. A host whose MACs are in no
// state keeps the one of its name: its network card was replaced.
//
// The states are durable when Follow returns. The caller calls done once the lab is in use: it forgets the names that were left. After an
// error nothing has changed: a machine whose state has another name is then Unknown, and one with the state of another is, too.
func (m *Machine) Follow(ctx context.Context, hosts []*lab.Host) (moves []Move, done func(), err error) {
	moves, next := m.followers(hosts)
	locked := touched(moves)
	for name := range next {
		locked[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(locked)) {
		end, err := m.locks.take(ctx, name)
		if err != nil {
			return nil, nil, err
		}
		defer end()
	}
	if len(locked) > 0 { // transitions may have ended meanwhile
		moves, next = m.followers(hosts)
	}
	left := touched(moves)
	var t store.Txn
	for name, s := range next {
		delete(left, name)
		b, err := json.Marshal(s)
		if err != nil {
			return nil, nil, fmt.Errorf("encode install state of %s: %w", name, err)
		}
		t.Then = append(t.Then, store.Op{Key: keyPrefix + name, Value: b})
	}
	for name := range left {
		t.Then = append(t.Then, store.Op{Key: keyPrefix + name, Delete: true})
	}
	if len(t.Then) > 0 {
		if err := m.deps.Store.Commit(ctx, t); err != nil {
			return nil, nil, fmt.Errorf("keep the install states of renamed hosts: %w", err)
		}
	}
	m.follow(moves, next)
	return moves, func() { m.leave(left) }, nil
}

// touched returns the names that moves are from and to.
func touched(moves []Move) map[string]bool {
	names := make(map[string]bool)
	for _, move := range moves {
		names[move.From], names[move.To] = true, true
	}
	return names
}

// A source is the name under which a host of a lab has its state.
type source struct {
	host *lab.Host
	name string
	mac  lab.MAC // by which the machine is known; zero: by its name alone
}

// sourcesOf returns the sources of all hosts: the state that has one of the host's MACs, or else the one of its name, unless that is another
// host's now.
func sourcesOf(hosts []*lab.Host, states states) (sources []source) {
	taken := make(map[string]bool)
	var unknown []*lab.Host // no state has one of their MACs
	for _, h := range hosts {
		from := source{host: h}
		for _, mac := range h.AllMACs() {
			if name, ok := states.nameOf(mac); ok && (from.name == "" || name == h.Name) {
				from.name, from.mac = name, mac
			}
		}
		switch {
		case from.name == "":
			unknown = append(unknown, h)
		case from.name == h.Name || !taken[from.name]:
			sources = append(sources, from)
			taken[from.name] = taken[from.name] || from.name != h.Name
		}
	}
	for _, h := range unknown {
		if !taken[h.Name] {
			sources = append(sources, source{host: h, name: h.Name})
		}
	}
	return sources
}

// followers returns which states move, and the states that differ under the hosts of a lab, by their names.
func (m *Machine) followers(hosts []*lab.Host) (moves []Move, next map[string]Status) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	next = make(map[string]Status)
	for _, from := range sourcesOf(hosts, m.states) {
		name := from.host.Name
		if from.name == name {
			m.keepMACs(next, from.host)
			continue
		}
		s := m.trusted(from.name)
		s.MACs = from.host.AllMACs()
		next[name] = s
		moves = append(moves, Move{From: from.name, To: name, MAC: from.mac, State: s.State})
	}
	changed := make(map[string]Status)
	for name := range touched(moves) {
		changed[name] = m.trusted(name)
	}
	for name := range next {
		changed[name] = m.trusted(name)
	}
	for name, s := range departed(changed, hosts) {
		if have, ok := m.states.of[name]; !ok || s.since(have) {
			next[name] = s
		}
	}
	return moves, next
}

// trusted returns the state of a host, or of none, held if it may be an older one.
func (m *Machine) trusted(name string) Status {
	s := m.states.of[name]
	if s.State != Installed && m.doubtful(name) {
		s.Held, s.Why = true, m.damage.Why
	}
	return s
}

// departed returns the states that a lab leaves without a host, of those by name whose host has another MAC or another name in it: each under
// the first of its MACs that no host has, as a machine of a pool is named. An installed machine that comes back later is not new.
func departed(states map[string]Status, hosts []*lab.Host) map[string]Status {
	inLab := make(map[lab.MAC]bool)
	for _, h := range hosts {
		for _, mac := range h.AllMACs() {
			inLab[mac] = true
		}
	}
	left := make(map[string]Status)
	for name, s := range states {
		gone := slices.DeleteFunc(slices.Clone(s.MACs), func(mac lab.MAC) bool { return inLab[mac] })
		if len(gone) == 0 || !s.known() {
			continue
		}
		s.MACs = gone
		s.Why = cmp.Or(s.Why, "its MAC was that of "+name+", which is another machine now, or has another network card")
		left[gone[0].Hyphens()] = s
	}
	return left
}

// keepMACs adds the state of h to next if it has other MACs.
func (m *Machine) keepMACs(next map[string]Status, h *lab.Host) {
	macs := h.AllMACs()
	s, known := m.states.of[h.Name]
	if len(macs) == 0 || !known || slices.Equal(s.MACs, macs) || m.doubtful(h.Name) {
		return
	}
	s.MACs = macs
	next[h.Name] = s
}

// doubtful reports whether the state of a host may be an older one: it is not written again, which would end the doubt.
func (m *Machine) doubtful(host string) bool {
	return m.damage != nil && store.Doubtful(m.deps.Store, keyPrefix+host)
}

func (m *Machine) follow(moves []Move, next map[string]Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := maps.Clone(m.plain)
	for _, move := range moves {
		delete(m.plain, move.To)
		if plain, ok := was[move.From]; ok {
			m.plain[move.To] = plain
		}
	}
	for name, s := range next {
		m.states.set(name, s)
	}
}

func (m *Machine) leave(names map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range names {
		m.dropLocked(name)
	}
}

func (m *Machine) dropLocked(host string) {
	m.states.drop(host)
	delete(m.plain, host)
}

// elsewhereLocked returns the name under which the machine of h has a state that a new machine has not; empty: there is none.
func (m *Machine) elsewhereLocked(h *lab.Host) string {
	for _, mac := range h.AllMACs() {
		name, ok := m.states.nameOf(mac)
		if s := m.states.of[name]; ok && name != h.Name && s.known() {
			return name
		}
	}
	return ""
}

// ofAnother reports whether s is the state of another machine than h.
func (s Status) ofAnother(h *lab.Host) bool {
	macs := h.AllMACs()
	return len(s.MACs) > 0 && len(macs) > 0 && !slices.ContainsFunc(macs, func(mac lab.MAC) bool { return slices.Contains(s.MACs, mac) })
}
