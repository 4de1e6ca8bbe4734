package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/daemon/doctor"
	"github.com/bootlab/bootlab/internal/host/descriptors"
	"github.com/bootlab/bootlab/internal/host/handover"
	"github.com/bootlab/bootlab/internal/host/portowner"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/metrics"
	"github.com/bootlab/bootlab/lbproxy"
)

// The servers, in the order in which a boot meets them.
const (
	serverDHCP  = "dhcpd"
	serverTFTP  = "tftpd"
	serverDNS   = "dnsd"
	serverHTTP  = "httpd" // for machines
	serverAdmin = "admin" // for people
	serverLB    = "lbproxy"
	serverVirt  = "virt"

	serverRedfish = "redfish" // for clients that take virtual machines for metal
)

// health is what was observed of each server: whether its Serve runs, and which of its sockets are open.
type health struct {
	mu      sync.Mutex
	running map[string]observation            // by server
	sockets map[string]map[string]observation // by server, then by address or, of dhcpd, by interface
	gone    map[string]observation            // open sockets whose address or interface this machine lacks, by address or interface
}

// An observation says whether a server runs or a socket is open, since when, and if not, why.
type observation struct {
	ok    bool
	since time.Time
	err   error
	until time.Time // when err is outdated, if it was not noted again; zero: never
}

func newHealth() *health {
	return &health{running: map[string]observation{}, sockets: map[string]map[string]observation{}, gone: map[string]observation{}}
}

// started notes that Serve of a server was called.
func (h *health) started(server string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running[server] = observation{ok: true, since: time.Now()}
}

// ended notes that it returned.
func (h *health) ended(server string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		err = errors.New("stopped")
	}
	h.running[server] = observation{since: time.Now(), err: err}
}

// opened notes the result of an attempt to open a socket.
func (h *health) opened(server, socket string, err error) {
	h.note(server, socket, observation{ok: err == nil, since: time.Now(), err: err})
}

// acceptErrorLasts is longer than lbproxy waits before it calls Accept again. A call without an error waits for the next
// connection, which may be long after the cause of an error has ended.
const acceptErrorLasts = 3 * time.Second

// accepted notes the result of a call of Accept.
func (h *health) accepted(server, socket string, err error) {
	now := time.Now()
	h.note(server, socket, observation{ok: err == nil, since: now, err: err, until: now.Add(acceptErrorLasts)})
}

// note notes the state of a socket. Its since stays while the state does.
func (h *health) note(server, socket string, now observation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.sockets[server]
	if of == nil {
		of = map[string]observation{}
		h.sockets[server] = of
	}
	if before := of[socket].current(); before.ok == now.ok && !before.since.IsZero() {
		now.since = before.since
	}
	of[socket] = now
}

// current returns o, or success where its error is outdated.
func (o observation) current() observation {
	if !o.ok && !o.until.IsZero() && time.Now().After(o.until) {
		return observation{ok: true, since: o.until}
	}
	return o
}

// closed forgets a socket.
func (h *health) closed(server, socket string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sockets[server], socket)
}

// errNotOpen is why a server does not serve on a socket that nothing tried to open.
var errNotOpen = errors.New("not open yet")

// server returns the state of a server that should serve on these sockets. It is idle if they are none.
func (h *health) server(name string, want []string) api.Server {
	h.mu.Lock()
	defer h.mu.Unlock()
	run := h.running[name]
	s := api.Server{Name: name, Serving: run.ok, Idle: len(want) == 0, Since: run.since}
	errs := []error{run.err}
	if run.since.IsZero() {
		errs[0] = errors.New("starting")
	}
	for _, socket := range want {
		o := h.sockets[name][socket].current()
		if gone, is := h.gone[socket]; is && o.ok {
			o = gone
		}
		switch {
		case o.ok && run.ok:
			s.Addrs = append(s.Addrs, socket)
			continue
		case o.ok: // still open, but its server does not serve
			continue
		case o.err == nil:
			o.err = errNotOpen
		}
		errs = append(errs, &socketError{socket, o.err})
		if s.Serving {
			s.Serving, s.Since = false, o.since
		}
	}
	if err := errors.Join(errs...); err != nil {
		s.Err, s.Cause = strings.ReplaceAll(err.Error(), "\n", "; "), cause(err)
	}
	return s
}

// A socketError says which socket of a server it is about.
type socketError struct {
	socket string
	err    error
}

// Error implements error.
func (e *socketError) Error() string {
	if strings.Contains(e.err.Error(), e.socket) {
		return e.err.Error()
	}
	return e.socket + ": " + e.err.Error()
}

// Unwrap returns the error of the socket.
func (e *socketError) Unwrap() error { return e.err }

// cause returns why in words that name no address and no host.
func cause(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	for _, plain := range []error{errNotOpen, errNoAddress, segment.ErrNoInterface, segment.ErrDown, segment.ErrReplaced} {
		if errors.Is(err, plain) {
			return plain.Error()
		}
	}
	return "see bootlab status"
}

// errNoAddress is why a server does not serve on a socket that is open, and stays open until the address is back (IP_FREEBIND).
var errNoAddress = errors.New("no interface of this machine has this address")

// look notes which sockets are open while what they are bound to is gone. Addresses of balancers may be another machine's for now.
func (h *health) look(have machine) {
	h.mu.Lock()
	defer h.mu.Unlock()
	gone := map[string]observation{}
	for server, of := range h.sockets {
		if server == serverLB {
			continue
		}
		for socket := range of {
			err := have.addressError(socket)
			if server == serverDHCP {
				err = have.interfaceError(socket)
			}
			if err == nil {
				continue
			}
			o := observation{since: time.Now(), err: err}
			if before, is := h.gone[socket]; is {
				o.since = before.since
			}
			gone[socket] = o
		}
	}
	h.gone = gone
}

// socketsOf returns the sockets that were noted for a server, sorted.
func (h *health) socketsOf(server string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.sockets[server]))
}

// serverStates returns the state of each server. The interfaces and addresses that they serve are looked at now.
func (d *Daemon) serverStates() []api.Server {
	s, have := d.current.Load(), thisMachine()
	d.health.look(have)
	balancers := balancerSockets(s.Lab)
	virtual := d.health.server(serverVirt, nil)
	virtual.Idle = len(s.Lab.Hypervisors) == 0
	virtual.Warnings, virtual.Cause = hypervisorWarnings(d.virt.Unreachable(), len(s.Lab.Hypervisors))
	states := []api.Server{
		d.health.server(serverDHCP, s.DHCP.Interfaces()),
		d.health.server(serverTFTP, d.health.socketsOf(serverTFTP)),
		d.health.server(serverDNS, d.health.socketsOf(serverDNS)),
		d.health.server(serverHTTP, d.health.socketsOf(serverHTTP)),
		d.health.server(serverAdmin, d.health.socketsOf(serverAdmin)),
		d.health.server(serverLB, balancers),
	}
	lb := &states[len(states)-1]
	lb.Warnings = have.missing(lb.Addrs, reportsAddress(s.Lab))
	lb.Addrs = withRanges(lb.Addrs, s.Lab)
	if !d.handover.Stops().IsZero() && lb.Serving {
		lb.Serving, lb.Cause, lb.Err = false, "draining", "draining: the daemon stops when connections have ended, after 10 seconds at most"
	}
	if note := clockNote(d.clock); note != "" {
		states[0].Warnings = append(states[0].Warnings, note)
	}
	states = append(states, virtual)
	if len(s.Lab.Redfish.Listen) > 0 {
		states = append(states, d.health.server(serverRedfish, d.health.socketsOf(serverRedfish)))
	}
	counts := d.panics.Counts()
	for i := range states {
		states[i].Panics = counts[states[i].Name].N
	}
	return states
}

// balancerSockets returns the sockets of all balancers, each once.
func balancerSockets(l *lab.Lab) (sockets []string) {
	seen := map[string]bool{}
	for _, b := range l.Balancers {
		for a := range b.Listen.All() {
			if text := a.String() + suffixOf(b); !seen[text] {
				seen[text] = true
				sockets = append(sockets, text)
			}
		}
	}
	return sockets
}

func suffixOf(b *lab.Balancer) string {
	if b.Mode == lab.ModeUDP {
		return udpSuffix
	}
	return ""
}

// withRanges returns the sockets of balancers with those of a range of ports as one, if all are among them.
func withRanges(sockets []string, l *lab.Lab) []string {
	if !slices.ContainsFunc(l.Balancers, func(b *lab.Balancer) bool { return b.Listen.Ports() > len(b.Listen) }) {
		return sockets
	}
	open := map[string]string{} // by socket, as what it is shown
	for _, s := range sockets {
		open[s] = s
	}
	for _, b := range l.Balancers {
		for _, bind := range b.Listen {
			all := slices.Collect(lab.Binds{bind}.All())
			if len(all) == 1 || slices.ContainsFunc(all, func(a netip.AddrPort) bool { return open[a.String()+suffixOf(b)] == "" }) {
				continue
			}
			for _, a := range all {
				open[a.String()+suffixOf(b)] = bind.String() + suffixOf(b)
			}
		}
	}
	var shown []string
	for _, s := range sockets {
		if text := open[s]; !slices.Contains(shown, text) {
			shown = append(shown, text)
		}
	}
	return shown
}

// hypervisorWarnings says how many hypervisors do not answer: why and since when is a condition of each. cause names none.
func hypervisorWarnings(down []string, all int) (warnings []string, cause string) {
	if len(down) == 0 {
		return nil, ""
	}
	cause = fmt.Sprintf("%d of %d hypervisors do not answer", len(down), all)
	return []string{cause + ": " + strings.Join(down, ", ")}, cause + " (bootlab status names them)"
}

// listenDHCP is segment.Listen; the error of a taken port names who holds it.
func (d *Daemon) listenDHCP(iface string) (*segment.Socket, error) {
	s, err := segment.Listen(iface)
	if err != nil {
		return nil, portowner.Explain(err, "udp", ":67", doctor.DHCPKey)
	}
	return s, nil
}

const balancerKey = "the listen of the balancer"

// listenBalancer is lbproxy.ListenFree; the error of a taken port names who holds it.
func (d *Daemon) listenBalancer(ctx context.Context, addr netip.AddrPort) (net.Listener, error) {
	l := d.handover.Take(addr)
	if l == nil {
		var err error
		if l, err = lbproxy.ListenFree(ctx, addr); err != nil {
			return nil, portowner.Explain(err, "tcp", addr.String(), balancerKey)
		}
		d.handover.KeepListener(addr, l)
	}
	d.health.opened(serverLB, addr.String(), nil)
	return &observedListener{Listener: l, health: d.health, addr: addr.String(), closed: func() { d.handover.Closed(handover.TCP, addr) }}, nil
}

// listenPacketBalancer is lbproxy.ListenPacketFree; the error of a taken port names who holds it.
func (d *Daemon) listenPacketBalancer(ctx context.Context, addr netip.AddrPort) (lbproxy.PacketConn, error) {
	conn := d.handover.TakePacket(addr)
	if conn == nil {
		var err error
		if conn, err = lbproxy.ListenPacketFree(ctx, addr); err != nil {
			return nil, portowner.Explain(err, "udp", addr.String(), balancerKey)
		}
		d.handover.Keep(handover.UDP, addr, conn)
	}
	d.health.opened(serverLB, addr.String()+udpSuffix, nil)
	return &observedPacketConn{conn, func() {
		d.health.closed(serverLB, addr.String()+udpSuffix)
		d.handover.Closed(handover.UDP, addr)
	}}, nil
}

// udpSuffix follows the address of a socket for UDP, of a server whose others are for TCP.
const udpSuffix = "/udp"

// An observedPacketConn notes when it is closed.
type observedPacketConn struct {
	*net.UDPConn
	closed func() // called by Close
}

// Close implements lbproxy.PacketConn.
func (c *observedPacketConn) Close() error {
	c.closed()
	return c.UDPConn.Close()
}

// An observedListener notes when it fails and when it is closed.
type observedListener struct {
	net.Listener
	health *health
	addr   string
	closed func() // called by Close
	failed bool   // the last Accept
}

// Accept implements net.Listener; one goroutine calls it.
func (l *observedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if (err != nil || l.failed) && !errors.Is(err, net.ErrClosed) {
		l.failed = err != nil
		l.health.accepted(serverLB, l.addr, err)
	}
	return conn, err
}

// SyscallConn implements syscall.Conn: the balancers accept most connections without package net. After an error they call Accept.
func (l *observedListener) SyscallConn() (syscall.RawConn, error) {
	if c, ok := l.Listener.(syscall.Conn); ok {
		return c.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// Close implements net.Listener.
func (l *observedListener) Close() error {
	l.health.closed(serverLB, l.addr)
	l.closed()
	return l.Listener.Close()
}

// MetricServerUp is 1 for a server that serves all that it should.
const MetricServerUp = "bootlab_server_up"

// MetricServerDescriptors is how many file descriptors a server may use.
const MetricServerDescriptors = "bootlab_server_descriptors"

// newServerCollector counts the servers that serve.
func newServerCollector(states func() []api.Server, shares descriptors.Shares) *metrics.Gauges {
	label := []string{"server"}
	up := prometheus.NewDesc(MetricServerUp, "Whether the server serves all that it should: 1, else 0.", label, nil)
	files := prometheus.NewDesc(MetricServerDescriptors, "File descriptors that the server may use for connections, transfers and requests. process_max_fds is the limit of all.", label, nil)
	return metrics.NewGauges(func(set metrics.Gauge) {
		for server, n := range map[string]int{
			serverTFTP: shares.TFTP(), serverDNS: shares.DNS(), serverHTTP: shares.HTTP(), serverAdmin: shares.Admin, serverLB: shares.Balancers(),
		} {
			set(files, float64(n), server)
		}
		for _, s := range states() {
			serves := 0.0
			if s.Serving {
				serves = 1
			}
			set(up, serves, s.Name)
		}
	}, up, files)
}
