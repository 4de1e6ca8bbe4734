package virt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

// A ConsoleLog keeps what serial consoles write. Its methods must not block.
type ConsoleLog interface {
	// Begin says that the machine of a host has started. key names its run: while it is the same, the boot goes on. An empty key
	// says that the machine was reset.
	Begin(host, key string)
	// Write takes output, which it may keep.
	Write(host string, output []byte)
}

// A ConsoleOutput is what happens on the console of a machine: it writes, or State changes.
type ConsoleOutput struct {
	Output []byte
	State  string // for people: "connected", or why it is not
}

// consoleConnected is the state of a console that is open.
const consoleConnected = "connected"

// The pauses between attempts to open a console. The first is short: a machine that went off may start again.
const (
	consolePauseFirst = time.Second
	consolePauseMost  = time.Minute
	// A console that is silent for so long is opened again: libvirt does not say that virsh console --force took it.
	consoleQuiet     = time.Minute
	consoleFollowers = 512 // parts of output that wait for a reader; then some are skipped, until half of them are read
)

// consoles are the serial consoles of all running machines of the lab. There is a goroutine for each hypervisor.
type consoles struct {
	server *Server
	log    ConsoleLog // nil: consoles are not kept, and not open

	mu        sync.Mutex
	ctx       context.Context // of the goroutines; nil: Serve does not run
	byURI     map[string]*hypervisorConsoles
	followers map[string]map[chan ConsoleOutput]*follower // by host
	running   sync.WaitGroup
}

// hypervisorConsoles are the consoles on one hypervisor.
type hypervisorConsoles struct {
	all    *consoles
	hv     *lab.Hypervisor
	wake   chan struct{}
	cancel context.CancelFunc

	mu     sync.Mutex // of what follows
	want   map[string]*machineConsole
	conn   Consoles  // nil: not connected
	ready  bool      // connect, even if no machine runs: one is about to
	needed time.Time // when the connection was needed last
}

// A machineConsole is the console of one running machine.
type machineConsole struct {
	host       string
	run        int
	open       bool          // or an attempt to open it is in progress
	tries      bool          // an attempt is in progress
	take       bool          // from another program, at the next attempt
	state      string        // why it is not open
	pause      time.Duration // before the next attempt
	next       time.Time
	lastOutput time.Time // when it wrote last, or was opened
}

// start lets consoles be opened until ctx ends.
func (c *consoles) start(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ctx = ctx
}

// wait waits for the goroutines, whose context has ended.
func (c *consoles) wait() { c.running.Wait() }

// of returns the consoles on a hypervisor; nil: they are not kept, or Serve does not run.
func (c *consoles) of(hv *lab.Hypervisor) *hypervisorConsoles {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.log == nil || c.ctx == nil || c.ctx.Err() != nil {
		return nil
	}
	h := c.byURI[hv.URI]
	if h == nil {
		ctx, cancel := context.WithCancel(c.ctx)
		h = &hypervisorConsoles{all: c, hv: hv, wake: make(chan struct{}, 1), cancel: cancel, want: map[string]*machineConsole{}}
		c.byURI[hv.URI] = h
		c.running.Go(func() {
			defer h.disconnect("the daemon is stopping")
			c.server.deps.Panics.Loop(ctx, func() { h.tend(ctx) })
		})
	}
	return h
}

// keep ends the consoles on hypervisors that are no longer in the lab.
func (c *consoles) keep(hypervisors []*lab.Hypervisor) {
	named := map[string]bool{}
	for _, hv := range hypervisors {
		named[hv.URI] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for uri, h := range c.byURI {
		if !named[uri] {
			h.cancel()
			delete(c.byURI, uri)
		}
	}
}

// update notes which domains run on a hypervisor.
func (c *consoles) update(hv *lab.Hypervisor, domains []Domain) {
	h := c.of(hv)
	if h == nil {
		return
	}
	t := c.server.deps.Table()
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := map[string]bool{}
	for _, d := range domains {
		k := parseMetadata(d.Metadata)
		if m := t.byHost[k.Host]; m == nil || k.Lab != t.lab || m.uuid != d.UUID || d.Run == 0 {
			continue
		}
		seen[d.UUID] = true
		if mc := h.want[d.UUID]; mc == nil || mc.run != d.Run {
			h.want[d.UUID] = &machineConsole{host: k.Host, run: d.Run}
		}
	}
	for uuid := range h.want {
		if !seen[uuid] {
			delete(h.want, uuid)
		}
	}
	h.poke()
}

// prepare connects for the console of a machine that is about to start, so that less of what it writes first is missed.
func (c *consoles) prepare(hv *lab.Hypervisor) {
	if h := c.of(hv); h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.ready = true
		h.poke()
	}
}

// poke wakes the goroutine.
func (h *hypervisorConsoles) poke() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// tend opens the consoles that are wanted until ctx ends.
func (h *hypervisorConsoles) tend(ctx context.Context) {
	for {
		wait := h.attend(ctx)
		timer := time.NewTimer(wait)
		var done <-chan struct{}
		if conn := h.connection(); conn != nil {
			done = conn.Done()
		}
		select {
		case <-ctx.Done():
		case <-h.wake:
		case <-timer.C:
		case <-done:
			h.disconnect("the hypervisor does not answer")
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

func (h *hypervisorConsoles) connection() Consoles {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conn
}

// disconnect ends the connection.
func (h *hypervisorConsoles) disconnect(why string) {
	h.mu.Lock()
	conn := h.conn
	h.conn = nil
	var lost []string
	for _, mc := range h.want {
		if mc.open {
			mc.open, mc.state = false, why
			lost = append(lost, mc.host)
		}
	}
	h.mu.Unlock()
	if conn != nil {
		conn.End()
	}
	for _, host := range lost {
		h.all.tell(host, ConsoleOutput{State: why})
	}
}

// attend connects where that is needed, and opens the consoles that are due. It returns how long nothing else is.
func (h *hypervisorConsoles) attend(ctx context.Context) time.Duration {
	h.mu.Lock()
	needed := len(h.want) > 0 || h.ready
	if needed {
		h.ready, h.needed = false, time.Now()
	}
	conn, idle := h.conn, time.Since(h.needed) > consolePauseMost
	h.mu.Unlock()
	switch {
	case !needed && conn != nil && idle: // a process costs memory
		h.disconnect("the machine is off")
		return consolePauseMost
	case !needed:
		return consolePauseMost
	case conn == nil:
		if err := h.connect(ctx); err != nil {
			return consolePauseMost / 4
		}
	}
	now := time.Now()
	wait := consolePauseMost
	for uuid, mc := range h.due(now) {
		h.openConsole(ctx, uuid, mc)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, mc := range h.want {
		due := mc.next
		if mc.open {
			due = mc.lastOutput.Add(consoleQuiet)
		}
		wait = min(wait, max(time.Until(due), 10*time.Millisecond))
	}
	return wait
}

// due returns the consoles to open now.
func (h *hypervisorConsoles) due(now time.Time) map[string]machineConsole {
	h.mu.Lock()
	defer h.mu.Unlock()
	due := map[string]machineConsole{}
	for uuid, mc := range h.want {
		if mc.open && now.Sub(mc.lastOutput) > consoleQuiet || !mc.open && !now.Before(mc.next) {
			due[uuid] = *mc
			mc.take, mc.tries = false, true
		}
	}
	return due
}

func (h *hypervisorConsoles) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	err := h.all.server.connections.use(h.hv, func(hv Hypervisor) error {
		conn, err := hv.Consoles(ctx, h)
		if err == nil {
			h.mu.Lock()
			h.conn = conn
			h.mu.Unlock()
		}
		return err
	})
	h.mu.Lock()
	for _, mc := range h.want {
		if err != nil {
			mc.state = err.Error()
		}
	}
	h.mu.Unlock()
	return err
}

// openConsole opens one console. Its log begins before, so that nothing that it writes at once is missed.
func (h *hypervisorConsoles) openConsole(ctx context.Context, uuid string, mc machineConsole) {
	conn := h.connection()
	defer h.tried(uuid)
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	if mc.open {
		_ = conn.Close(ctx, uuid) // Open says what is wrong
	} else {
		h.all.log.Begin(mc.host, fmt.Sprintf("run %d", mc.run))
	}
	h.opened(uuid, mc.run, nil) // before its output comes
	err := conn.Open(ctx, uuid, mc.take)
	state := consoleConnected
	if err != nil {
		h.opened(uuid, mc.run, err)
		state = err.Error()
	}
	if mc.open != (err == nil) || !mc.open && state != mc.state {
		h.all.tell(mc.host, ConsoleOutput{State: state})
	}
}

// tried notes that an attempt to open a console has ended. If it failed, and the console was to be taken meanwhile, the next one is now.
func (h *hypervisorConsoles) tried(uuid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	mc := h.want[uuid]
	if mc == nil {
		return
	}
	mc.tries = false
	if mc.open {
		mc.take = false
	} else if mc.take {
		mc.next = time.Time{}
	}
}

// opened notes that a console is open, or why it is not.
func (h *hypervisorConsoles) opened(uuid string, run int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	mc := h.want[uuid]
	if mc == nil || mc.run != run {
		return
	}
	mc.open, mc.state, mc.lastOutput = err == nil, "", time.Now()
	if err != nil {
		mc.state = err.Error()
		mc.pause = min(max(2*mc.pause, consolePauseFirst), consolePauseMost)
		mc.next = time.Now().Add(mc.pause)
	}
}

// Output implements ConsoleSink.
func (h *hypervisorConsoles) Output(uuid string, output []byte) {
	h.mu.Lock()
	mc := h.want[uuid]
	if mc != nil {
		mc.pause, mc.lastOutput = 0, time.Now()
	}
	h.mu.Unlock()
	if mc != nil {
		h.all.log.Write(mc.host, output)
		h.all.tell(mc.host, ConsoleOutput{Output: output})
	}
}

// Reset implements ConsoleSink.
func (h *hypervisorConsoles) Reset(uuid string) {
	h.mu.Lock()
	mc := h.want[uuid]
	open := mc != nil && mc.open
	h.mu.Unlock()
	if open {
		h.all.log.Begin(mc.host, "")
	}
}

// Ended implements ConsoleSink.
func (h *hypervisorConsoles) Ended(uuid, reason string) {
	h.mu.Lock()
	mc := h.want[uuid]
	h.mu.Unlock()
	if mc != nil {
		h.opened(uuid, mc.run, errors.New(reason))
		h.all.tell(mc.host, ConsoleOutput{State: reason})
		h.poke()
	}
}
