package virt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A follower is a reader of a console.
type follower struct {
	skipped int  // bytes that were skipped, because it is too slow
	behind  bool // what the console writes is skipped
}

// consoleSkips is the state of a console whose reader is too slow.
const consoleSkips = "the reader is too slow: output is skipped"

// tell sends to the followers of a host. One that is too slow misses output, and is sent a state that says so; it delays no other.
func (c *consoles) tell(host string, out ConsoleOutput) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for to, f := range c.followers[host] {
		if f.behind && len(to) <= cap(to)/2 {
			to <- ConsoleOutput{State: fmt.Sprintf("%d bytes of output were skipped", f.skipped)}
			*f = follower{}
		}
		switch {
		case f.behind && out.State == "", len(to) == cap(to):
			f.skipped += len(out.Output)
		case len(to) >= cap(to)-consoleReserve && out.State == "":
			f.behind, f.skipped = true, len(out.Output)
			to <- ConsoleOutput{State: consoleSkips}
		default:
			to <- out
		}
	}
}

func (c *consoles) dropLocked(host string, f chan ConsoleOutput) {
	if _, ok := c.followers[host][f]; ok {
		delete(c.followers[host], f)
		close(f)
	}
	if len(c.followers[host]) == 0 {
		delete(c.followers, host)
	}
}

// consoleReserve is how many of consoleFollowers are for states.
const consoleReserve = 16

// ErrNoConsoles is returned by a Server without a ConsoleLog.
var ErrNoConsoles = errors.New("this daemon opens no consoles")

// Console returns what happens on the console of a host's machine from now on, until ctx ends; then the channel is closed. The first is
// the state. A reader that is too slow misses output.
func (s *Server) Console(ctx context.Context, host string) (<-chan ConsoleOutput, error) {
	h, err := s.consolesOf(host)
	if err != nil {
		return nil, err
	}
	f := make(chan ConsoleOutput, consoleFollowers)
	c := s.consoles
	c.mu.Lock()
	if c.followers[host] == nil {
		c.followers[host] = map[chan ConsoleOutput]*follower{}
	}
	c.followers[host][f] = &follower{}
	f <- ConsoleOutput{State: h.stateOf(host)}
	c.mu.Unlock()
	context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.dropLocked(host, f)
	})
	return f, nil
}

// TakeConsole takes the console of a host's machine from another program that has it, such as virsh console, as soon as it runs.
func (s *Server) TakeConsole(host string) error {
	h, err := s.consolesOf(host)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, mc := range h.want {
		if mc.host == host && (!mc.open || mc.tries) {
			mc.next, mc.take = time.Time{}, true
			h.poke()
		}
	}
	return nil
}

// stateOf returns the state of a host's console, and lets the next attempt to open it be now.
func (h *hypervisorConsoles) stateOf(host string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, mc := range h.want {
		if mc.host != host {
			continue
		}
		if mc.open {
			return consoleConnected
		}
		mc.next = time.Time{}
		h.poke()
		if mc.state == "" {
			return "connecting"
		}
		return mc.state
	}
	return "the machine does not run"
}

// consolesOf returns the consoles of the hypervisor that has a host's machine.
func (s *Server) consolesOf(host string) (*hypervisorConsoles, error) {
	t := s.table()
	m, err := t.machine(host)
	if err != nil {
		return nil, err
	}
	if m = s.where(t, m); !m.isPlaced() || s.isAbsent(m) {
		return nil, ErrAbsent
	}
	h := s.consoles.of(m.vm.Hypervisor)
	if h == nil {
		return nil, ErrNoConsoles
	}
	return h, nil
}

// isAbsent reports whether the hypervisor of a machine answers, and has no domain of it.
func (s *Server) isAbsent(m *machine) bool {
	domains, at, down := s.observationOf(m.vm.Hypervisor).last()
	return !at.IsZero() && down.IsZero() && !slices.ContainsFunc(domains, func(d Domain) bool { return d.UUID == m.uuid })
}

// Type sends input to the console of a host's machine.
func (s *Server) Type(ctx context.Context, host string, input []byte) error {
	h, err := s.consolesOf(host)
	if err != nil {
		return err
	}
	h.mu.Lock()
	conn, uuid, state := h.conn, "", "the machine does not run"
	for id, mc := range h.want {
		if mc.host == host {
			uuid, state = id, mc.state
			if mc.open {
				state = ""
			}
		}
	}
	h.mu.Unlock()
	if conn == nil || uuid == "" || state != "" {
		return fmt.Errorf("the console of %s is not open: %s", host, state)
	}
	if err := conn.Type(ctx, uuid, input); err != nil {
		return fmt.Errorf("type on the console of %s: %w", host, err)
	}
	return nil
}
