package virt

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A PendingStart is a start that was asked for and has not succeeded: the start of a machine that was created, or one that an admin asked
// for. It outlives the daemon, so that a machine that was defined and never started is not taken for one that somebody switched off.
type PendingStart struct {
	At  time.Time `json:"at"`            // when it was asked for
	Err string    `json:"err,omitempty"` // why it failed; empty: it was interrupted, or is in progress
}

// reason says why the machine was not started.
func (p PendingStart) reason() string {
	if p.Err == "" {
		return fmt.Sprintf("its start at %s was interrupted", p.At.Format(time.DateTime))
	}
	return fmt.Sprintf("its start at %s failed: %s", p.At.Format(time.DateTime), p.Err)
}

// starting runs do, which starts a machine, and keeps the start until it has succeeded.
func (s *Server) starting(ctx context.Context, hv Hypervisor, m *machine, do func(context.Context, Hypervisor, *machine) error) error {
	s.wantStart(ctx, m)
	err := do(ctx, hv, m)
	if err != nil {
		s.startFailed(ctx, m, err)
		return err
	}
	s.noteStart(ctx, m.host.Name, PendingStart{})
	return nil
}

// startFailed notes why a machine was not started. One whose request ended was interrupted.
func (s *Server) startFailed(ctx context.Context, m *machine, err error) {
	p := s.starts.of(m.host.Name)
	if !errors.Is(err, context.Canceled) {
		p.Err = m.hinted(err, m.vm.Hypervisor).Error()
	}
	s.noteStart(ctx, m.host.Name, p)
}

// wantStart notes that a machine is to be started. A daemon that is killed from now on knows.
func (s *Server) wantStart(ctx context.Context, m *machine) {
	s.noteStart(ctx, m.host.Name, PendingStart{At: s.deps.Now()})
}

// noteStart stores the pending start of a host; the zero value: there is none.
func (s *Server) noteStart(ctx context.Context, host string, p PendingStart) {
	s.starts.changing.Lock()
	defer s.starts.changing.Unlock()
	if s.starts.of(host) == p {
		return
	}
	if err := s.starts.note(context.WithoutCancel(ctx), map[string]PendingStart{host: p}); err != nil {
		s.deps.Log.Warn("start of a virtual machine not stored", "host", host, "err", err)
	}
}

// seeStarts forgets the pending starts of machines that run: somebody started them. Those that an operation works on are left to it.
func (s *Server) seeStarts(ctx context.Context, t *Table, domains []Domain) {
	pending, _ := s.starts.all()
	if len(pending) == 0 {
		return
	}
	for _, d := range domains {
		m := t.byUUID(d)
		if m == nil || !d.State.active() || pending[m.host.Name] == (PendingStart{}) || s.worksOn(t, d.UUID) {
			continue
		}
		s.noteStart(ctx, m.host.Name, PendingStart{})
	}
}
