package health

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/api"
	"github.com/bootlab/bootlab/internal/host/process/descriptors"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/metrics"
)

// The servers, in the order in which a boot meets them.
const (
	DHCP  = "dhcpd"
	TFTP  = "tftpd"
	DNS   = "dnsd"
	HTTP  = "httpd" // for machines
	Admin = "admin" // for people
	LB    = "lbproxy"
	Virt  = "virt"

	Redfish = "redfish" // for clients that take virtual machines for metal
)

// Servers are what was observed of each server: whether its Serve runs, and which of its sockets are open. They are safe for concurrent use.
type Servers struct {
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
	back  time.Time // when it was ok again after an outage; zero: there was none
}

// New returns Servers of which nothing is known yet.
func New() *Servers {
	return &Servers{running: map[string]observation{}, sockets: map[string]map[string]observation{}, gone: map[string]observation{}}
}

// Started notes that Serve of a server was called.
func (h *Servers) Started(server string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running[server] = observation{ok: true, since: time.Now()}
}

// Ended notes that it returned.
func (h *Servers) Ended(server string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		err = errors.New("stopped")
	}
	h.running[server] = observation{since: time.Now(), err: err}
}

// Opened notes the result of an attempt to open a socket.
func (h *Servers) Opened(server, socket string, err error) {
	h.note(server, socket, observation{ok: err == nil, since: time.Now(), err: err})
}

// acceptErrorLasts is longer than lbproxy waits before it calls Accept again. A call without an error waits for the next
// connection, which may be long after the cause of an error has ended.
const acceptErrorLasts = 3 * time.Second

// accepted notes the result of a call of Accept.
func (h *Servers) accepted(server, socket string, err error) {
	now := time.Now()
	h.note(server, socket, observation{ok: err == nil, since: now, err: err, until: now.Add(acceptErrorLasts)})
}

// note notes the state of a socket. Its since stays while the state does.
func (h *Servers) note(server, socket string, now observation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.sockets[server]
	if of == nil {
		of = map[string]observation{}
		h.sockets[server] = of
	}
	before := of[socket].current()
	now.back = before.back
	switch known := !before.since.IsZero(); {
	case known && before.ok == now.ok:
		now.since = before.since
	case known && now.ok:
		now.back = now.since
	}
	of[socket] = now
}

// current returns o, or success where its error is outdated.
func (o observation) current() observation {
	if !o.ok && !o.until.IsZero() && time.Now().After(o.until) {
		return observation{ok: true, since: o.until, back: o.until}
	}
	return o
}

// Closed forgets a socket.
func (h *Servers) Closed(server, socket string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sockets[server], socket)
}

// errNotOpen is why a server does not serve on a socket that nothing tried to open.
var errNotOpen = errors.New("not open yet")

// Server returns the state of a server that should serve on these sockets. It is idle if they are none.
func (h *Servers) Server(name string, want []string) api.Server {
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
			if s.Serving && o.back.After(s.Since) {
				s.Since = o.back
			}
			continue
		case o.ok: // still open, but its server does not serve
			continue
		case o.err == nil:
			o.err = errNotOpen
		}
		if err := notServed(socket, o.err); !slices.ContainsFunc(errs, func(e error) bool { return e != nil && e.Error() == err.Error() }) {
			errs = append(errs, err)
		}
		if s.Serving {
			s.Serving, s.Since = false, o.since
		}
	}
	if err := errors.Join(errs...); err != nil {
		s.Err, s.Cause = strings.ReplaceAll(err.Error(), "\n", "; "), cause(err)
	}
	return s
}

// notServed returns why a socket is not served; of all sockets on an interface that is down the same.
func notServed(socket string, err error) error {
	if errors.As(err, new(*downError)) {
		return err
	}
	return &socketError{socket, err}
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

// Look notes since when sockets are open while what they are bound to is gone: an address, or an interface.
func (h *Servers) Look(l *lab.Lab) { h.look(thisMachine(), l) }

// look notes which sockets are open while what they are bound to is gone, or down.
func (h *Servers) look(have machine, l *lab.Lab) {
	h.mu.Lock()
	defer h.mu.Unlock()
	gone := map[string]observation{}
	for server, of := range h.sockets {
		for socket, seen := range of {
			err := have.socketError(server, socket, l)
			if _, was := h.gone[socket]; was && err == nil {
				seen.back = time.Now()
				of[socket] = seen
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

// A ServerAddr is an address that a server listens on.
type ServerAddr struct{ Server, Addr string }

// Compare orders addresses by their server.
func (a ServerAddr) Compare(b ServerAddr) int {
	return cmp.Or(strings.Compare(a.Server, b.Server), strings.Compare(a.Addr, b.Addr))
}

// Lost returns why clients do not reach each address that a server has opened, as of the last Look; nil: they do. dhcpd logs its interfaces
// itself, and addresses of balancers may be another machine's for now.
func (h *Servers) Lost() map[ServerAddr]error {
	h.mu.Lock()
	defer h.mu.Unlock()
	lost := map[ServerAddr]error{}
	for server, of := range h.sockets {
		if server == DHCP || server == LB {
			continue
		}
		for addr, o := range of {
			if o.current().ok {
				lost[ServerAddr{server, addr}] = h.gone[addr].err
			}
		}
	}
	return lost
}

// Sockets returns the sockets that were noted for a server, sorted.
func (h *Servers) Sockets(server string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.sockets[server]))
}

// MetricServerUp is 1 for a server that serves all that it should.
const MetricServerUp = "bootlab_server_up"

// MetricServerDescriptors is how many file descriptors a server may use.
const MetricServerDescriptors = "bootlab_server_descriptors"

// NewCollector counts the servers that serve.
func NewCollector(states func() []api.Server, shares descriptors.Shares) *metrics.Gauges {
	label := []string{"server"}
	up := prometheus.NewDesc(MetricServerUp, "Whether the server serves all that it should: 1, else 0.", label, nil)
	files := prometheus.NewDesc(MetricServerDescriptors, "File descriptors that the server may use for connections, transfers and requests. process_max_fds is the limit of all.", label, nil)
	return metrics.NewGauges(func(set metrics.Gauge) {
		for server, n := range map[string]int{
			TFTP: shares.TFTP(), DNS: shares.DNS(), HTTP: shares.HTTP(), Admin: shares.Admin, LB: shares.Balancers(),
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
