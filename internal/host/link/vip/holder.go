package vip

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bootlab/bootlab/internal/host/link/arp"
	"github.com/bootlab/bootlab/internal/host/link/links"
	"github.com/bootlab/bootlab/internal/host/link/nd"
	"github.com/bootlab/bootlab/internal/host/link/packet"
	"github.com/bootlab/bootlab/internal/lab"
)

// A Wanted address is a VIP: balancers listen on it.
type Wanted struct {
	Addr      netip.Addr
	Interface string // of the network that it is in; empty: none of this machine
	For       string // who listens there, such as "cluster server": for people
	Key       string // of the lab file
}

// A Phase is what is known of an address.
type Phase string

// The phases.
const (
	Probing  Phase = "probing"  // other machines are asked whether they use it
	Added    Phase = "added"    // by this package
	Present  Phase = "present"  // on an interface, and something else has added it
	InUse    Phase = "in_use"   // on no interface: another machine uses it
	Conflict Phase = "conflict" // on an interface, and another machine claims it
	Leased   Phase = "leased"   // on an interface, and another machine, which is silent, has a lease of it
	Missing  Phase = "missing"  // on no interface, for the reason in Err
)

// Phases returns all phases.
func Phases() []Phase { return []Phase{Probing, Added, Present, InUse, Conflict, Leased, Missing} }

// An Address is what is known of a wanted address.
type Address struct {
	Wanted
	Phase Phase
	On    string    // the interface that has it; empty: none
	Down  bool      // Missing: On is down, or Interface where none has it
	Gone  bool      // Missing: Interface does not exist
	MAC   lab.MAC   // of the other machine; zero: none, or not known
	Since time.Time // of the phase
	Err   string    // why it is Missing, or why it was not probed
}

// OK reports whether clients reach this machine at the address.
func (s Address) OK() bool { return s.Phase == Added || s.Phase == Present }

// Used says how another machine stands in the way of the address, and what to do; without a problem none does. The lease name is what the machine
// called itself when it got a lease; it is for one that the lab does not have.
func (s Address) Used(l *lab.Lab, leaseName string) (problem, fix string) {
	who := "another machine"
	if !s.MAC.IsZero() {
		name := leaseName
		if h := l.HostByMAC(s.MAC); h != nil {
			name = h.Name
		}
		who = "the machine with MAC " + s.MAC.String()
		if name != "" {
			who += " (" + name + ")"
		}
	}
	switch {
	case s.Phase == InUse && l.Appliance.HoldsAddresses():
		return who + " uses it, so it is not added for " + s.For, "remove it there, or change " + s.Key + "; bootlab adds it once it is free"
	case s.Phase == InUse:
		return who + " has it (" + errOff + ")", ""
	case s.Phase == Conflict:
		return who + " uses it, too: clients reach one or the other", "remove it there"
	case s.Phase == Leased:
		return who + " has a lease of it and is silent: it gets another address when it starts again or its lease ends, and may use this one until then",
			"if it is gone for good: bootlab leases release " + s.Addr.String()
	}
	return "", ""
}

// Command returns what an admin runs so that clients reach the address: it adds it, or sets its interface up; empty: nothing would, or the
// interface is not known or does not exist.
func (s Address) Command() string {
	switch on := cmp.Or(s.On, s.Interface); {
	case s.Phase != Missing || on == "" || s.Gone:
		return ""
	case s.Down:
		return "ip link set " + on + " up"
	}
	return AddCommand(s.Addr, s.Interface)
}

// AddCommand returns the command that adds an address to an interface as Run does.
func AddCommand(a netip.Addr, on string) string {
	return fmt.Sprintf("ip addr add %s/%d dev %s", a, a.BitLen(), on)
}

// A Record says that an address is about to be added, or was, since the machine started.
type Record struct {
	Addr netip.Addr
	Boot string // the kernel's random name of that start
}

// Records keep which addresses a killed process has left.
type Records interface {
	Load(context.Context) ([]Record, error)
	Put(context.Context, Record) error
	Delete(context.Context, netip.Addr) error
}

// Config says how addresses are held. Zero durations are those of RFC 5227 section 1.1, or of this package.
type Config struct {
	Hold     bool          // else an admin adds them, and they are only observed
	Interval time.Duration // between probes: 1 s
	Retry    time.Duration // until an address that was not added is tried again: 20 s
	Check    time.Duration // between probes for an address that this machine has: 30 s
	Defend   time.Duration // between announcements against a claim: 10 s
}

const (
	probes           = 3 // PROBE_NUM
	announcements    = 2 // ANNOUNCE_NUM
	announceInterval = 2 * time.Second
	pace             = 50 * time.Millisecond // at least, between two passes
	quietChecks      = 3                     // checks without an answer that end a conflict
)

// Deps are what a Holder needs.
type Deps struct {
	Records Records
	Log     *slog.Logger
	Lease   func(netip.Addr) (lab.MAC, bool) // returns the machine that DHCP has given an address to; nil: none
	Report  func(Address)                    // called for each change of a phase or of the other machine; nil: none
}

// A Holder holds addresses. Want and States are safe for concurrent use.
type Holder struct {
	cfg    Config
	deps   Deps
	boot   string
	arp    *packet.Socket // nil: no privilege
	nd     *packet.Socket
	noRaw  error // why they are nil
	kick   chan struct{}
	claims chan claim

	mu     sync.Mutex
	wanted []Wanted
	states []Address

	// of Run
	recorded map[netip.Addr]bool
	addrs    map[netip.Addr]*tracked
	machine  machine
}

// A machine is what the kernel says at one time.
type machine struct {
	links map[string]link
	own   map[lab.MAC]bool
	addrs []onLink
	marks bool // the kernel keeps marks
}

// A tracked address is a wanted one and where its steps are.
type tracked struct {
	Address
	added     bool      // by this process or its predecessor
	probed    int       // probes sent since probing began
	announced int       // announcements that are due
	next      time.Time // of the next probe
	announce  time.Time // of the next announcement
	claimed   time.Time // when another machine claimed it last
	defended  time.Time
	carrier   bool
	blocked   bool // its interface is missing or down
}

// Open opens the sockets and reads the records. If no address is to be held, it removes those that a killed process has added: Run may lack
// the privilege. Without the one for packet sockets no machine is asked, and States say so.
func Open(ctx context.Context, cfg Config, deps Deps) (*Holder, error) {
	switch {
	case deps.Records == nil:
		panic("vip: Deps.Records is nil")
	case deps.Log == nil:
		panic("vip: Deps.Log is nil")
	}
	cfg.Interval = cmp.Or(cfg.Interval, time.Second)
	cfg.Retry = cmp.Or(cfg.Retry, 20*time.Second)
	cfg.Check = cmp.Or(cfg.Check, 30*time.Second)
	cfg.Defend = cmp.Or(cfg.Defend, 10*time.Second)
	h := &Holder{cfg: cfg, deps: deps, boot: bootID(), kick: make(chan struct{}, 1), claims: make(chan claim, 64), recorded: map[netip.Addr]bool{}, addrs: map[netip.Addr]*tracked{}}
	records, err := deps.Records.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("read which addresses were added: %w", err)
	}
	for _, r := range records {
		if r.Boot == h.boot {
			h.recorded[r.Addr] = true
			continue
		}
		if err := deps.Records.Delete(ctx, r.Addr); err != nil { // with the machine its addresses went
			return nil, fmt.Errorf("forget that %s was added: %w", r.Addr, err)
		}
	}
	if !cfg.Hold && len(h.recorded) > 0 {
		h.release(ctx)
	}
	if h.arp, h.noRaw = packet.Open(unix.ETH_P_ARP, arp.FilterWithProbes()); h.noRaw == nil {
		h.nd, h.noRaw = packet.Open(unix.ETH_P_IPV6, nd.FilterWithProbes())
	}
	return h, nil
}

// bootID returns the name of this start of the machine, empty where the kernel has none.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// Want replaces the addresses that are wanted. Those that are not any more are removed, if they were added.
func (h *Holder) Want(wanted []Wanted) {
	h.mu.Lock()
	h.wanted = slices.Clone(wanted)
	h.mu.Unlock()
	h.wake()
}

// Wanted returns what Want was called with last.
func (h *Holder) Wanted() []Wanted {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wanted
}

func (h *Holder) wake() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// States returns what is known of each wanted address, in the order of Want.
func (h *Holder) States() []Address {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]Address, len(h.wanted))
	for i, w := range h.wanted {
		out[i] = Address{Wanted: w, Phase: Probing}
		if at := slices.IndexFunc(h.states, func(s Address) bool { return s.Wanted == w }); at >= 0 {
			out[i] = h.states[at]
		}
	}
	return out
}

// Run holds the addresses until ctx ends, and then removes those that it added.
func (h *Holder) Run(ctx context.Context) error {
	changes, err := links.Open()
	if err != nil {
		return fmt.Errorf("follow the interfaces: %w", err)
	}
	defer changes.Close()
	var wg sync.WaitGroup
	for s, parse := range map[*packet.Socket]func([]byte) (claim, bool){h.arp: parseARP, h.nd: parseND} {
		if s != nil {
			wg.Go(func() {
				s.Receive(nd.Size, func(f packet.Frame) { h.received(f, parse) })
			})
		}
	}
	defer wg.Wait()
	defer h.close()
	next := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	hurry := func() {
		if soon := time.Now().Add(pace); next.After(soon) {
			next = soon
			timer.Reset(pace)
		}
	}
	for {
		select {
		case <-ctx.Done():
			h.release(context.WithoutCancel(ctx))
			return nil
		case c := <-h.claims:
			h.claim(c, time.Now())
			h.publish()
		case <-h.kick:
			hurry()
		case <-changes.Changed():
			hurry()
		case <-timer.C:
			next = h.pass(ctx, time.Now())
			if soon := time.Now().Add(pace); next.Before(soon) {
				next = soon
			}
			h.publish()
			timer.Reset(time.Until(next))
		}
	}
}

func (h *Holder) close() {
	for _, s := range []*packet.Socket{h.arp, h.nd} {
		if s != nil {
			s.Close()
		}
	}
}

// received is called for each frame on any segment.
func (h *Holder) received(f packet.Frame, parse func([]byte) (claim, bool)) {
	c, ok := parse(f.Bytes)
	if !ok {
		return
	}
	c.link = f.Link
	h.mu.Lock()
	wanted := slices.ContainsFunc(h.wanted, func(w Wanted) bool { return w.Addr == c.addr })
	h.mu.Unlock()
	if !wanted {
		return
	}
	select {
	case h.claims <- c:
	default: // more of the same
	}
}

// publish makes States return what is known now, and reports what is new.
func (h *Holder) publish() {
	states := make([]Address, 0, len(h.addrs))
	for _, a := range h.addrs {
		states = append(states, a.Address)
	}
	slices.SortFunc(states, func(a, b Address) int { return a.Addr.Compare(b.Addr) })
	h.mu.Lock()
	before := h.states
	h.states = states
	h.mu.Unlock()
	if h.deps.Report == nil {
		return
	}
	for _, s := range states {
		same := func(o Address) bool {
			return o.Addr == s.Addr && o.Phase == s.Phase && o.MAC == s.MAC && o.Err == s.Err
		}
		if s.Phase != Probing && !slices.ContainsFunc(before, same) {
			h.deps.Report(s)
		}
	}
}

// pass compares what is wanted with what the machine has, does what is due, and returns when the next step is.
func (h *Holder) pass(ctx context.Context, now time.Time) (next time.Time) {
	next = now.Add(h.cfg.Check)
	if err := h.look(); err != nil {
		h.deps.Log.Warn("VIPs not added", "err", err)
		return next
	}
	h.mu.Lock()
	wanted := h.wanted
	h.mu.Unlock()
	for _, w := range wanted {
		a := h.addrs[w.Addr]
		if a == nil {
			a = &tracked{Address: Address{Phase: Probing, Since: now}}
			h.addrs[w.Addr] = a
		}
		if a.Interface != w.Interface {
			a.restart(now)
		}
		a.Wanted = w
	}
	for addr := range maps.Keys(h.recorded) {
		if h.addrs[addr] == nil {
			h.drop(ctx, addr)
		}
	}
	for addr, a := range h.addrs {
		if !slices.ContainsFunc(wanted, func(w Wanted) bool { return w.Addr == addr }) {
			h.drop(ctx, addr)
			delete(h.addrs, addr)
			continue
		}
		if at := h.step(ctx, a, now); at.Before(next) {
			next = at
		}
	}
	return next
}

// look asks the kernel.
func (h *Holder) look() (err error) {
	m := machine{}
	if m.links, m.own, err = interfaces(); err != nil {
		return err
	}
	if m.addrs, err = onLinks(); err != nil {
		return err
	}
	// The kernel marks its own addresses, such as those of loopback, since it keeps marks.
	m.marks = slices.ContainsFunc(m.addrs, func(a onLink) bool { return a.protocol != 0 })
	h.machine = m
	return nil
}

// find returns where the machine has an address, as added by this package and by something else.
func (h *Holder) find(addr netip.Addr) (mine, others []onLink) {
	for _, o := range h.machine.addrs {
		switch {
		case o.addr != addr:
		case h.recorded[addr] && (o.protocol == Protocol || o.protocol == 0 && !h.machine.marks):
			mine = append(mine, o)
		default:
			others = append(others, o)
		}
	}
	return mine, others
}

// where returns the name of the interface that has an address: the wanted one if it has it, else the first.
func (h *Holder) where(a *tracked, have []onLink) (name string) {
	for _, o := range have {
		for n, l := range h.machine.links {
			if l.index == o.link && (name == "" || n == a.Interface) {
				name = n
			}
		}
	}
	return name
}

// drop removes an address if it was added, and the record of it.
func (h *Holder) drop(ctx context.Context, addr netip.Addr) {
	mine, _ := h.find(addr)
	for _, o := range mine {
		attrs := h.attrs(addr, o)
		if err := remove(addr, o.link); err != nil {
			h.deps.Log.Warn("VIP not removed", append(attrs, "err", err)...)
			return
		}
		h.deps.Log.Info("VIP removed", attrs...)
	}
	h.forget(ctx, addr)
}

// attrs returns what the log says of an address on an interface. Whose an address was that a killed process has left is not known.
func (h *Holder) attrs(addr netip.Addr, on onLink) []any {
	as := []any{"addr", addr}
	for name, l := range h.machine.links {
		if l.index == on.link {
			as = append(as, "interface", name)
		}
	}
	if a := h.addrs[addr]; a != nil && a.For != "" {
		as = append(as, "for", a.For)
	}
	return as
}

// forget deletes the record of an address.
func (h *Holder) forget(ctx context.Context, addr netip.Addr) {
	if !h.recorded[addr] {
		return
	}
	if err := h.deps.Records.Delete(ctx, addr); err != nil {
		h.deps.Log.Warn("removed VIP stays recorded", "addr", addr, "err", err)
	}
	delete(h.recorded, addr)
}

// release removes all addresses that were added.
func (h *Holder) release(ctx context.Context) {
	if err := h.look(); err != nil {
		h.deps.Log.Warn("VIPs not removed", "err", err)
		return
	}
	for addr := range maps.Keys(h.recorded) {
		h.drop(ctx, addr)
	}
}
