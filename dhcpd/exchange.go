package dhcpd

import (
	"fmt"
	"net/netip"
	"runtime/debug"
	"slices"
	"time"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

const (
	portServer = segment.PortServer
	portClient = segment.PortClient
	portPXE    = segment.PortPXE // the boot server asked a second time, by unicast
)

// An inbound is one packet and where it came from. The packet loop reuses it, and everything in it.
type inbound struct {
	iface string
	port  uint16
	from  netip.AddrPort
	local netip.Addr // where it was sent to; known on the socket for any interface only
	data  []byte
	sock  *segment.Socket // nil in tests
	out   outbox

	x exchange
}

// An outbox takes replies: segment.Outbox, or a test's.
type outbox interface {
	// Frame returns an empty message behind its headroom, to be appended to and handed to Queue.
	Frame() []byte
	Queue(s *segment.Socket, d segment.Dest, frame []byte)
}

// keep returns a copy that outlives the packet loop's buffers and answers through out.
func (in *inbound) keep(out outbox) *inbound {
	kept := &inbound{iface: in.iface, port: in.port, from: in.from, local: in.local, sock: in.sock, out: out}
	kept.data = slices.Clone(in.data)
	return kept
}

// An exchange is one request and everything it is answered from.
type exchange struct {
	in     *inbound
	t      *Table
	start  time.Time
	req    wire.Packet
	reply  wire.Reply
	scope  *scope
	home   *lab.Network // the scope's network, with our address as seen from there
	server netip.Addr   // what we call ourselves in option 54
	res    *Reservation // in this network; nil: none
	pool   *Pool        // for a machine without a reservation; nil: none
	member *member      // the host, where the lab file has it without an address; nil: it has not
	tries  int          // addresses that a probe found in use
}

// handle answers one packet, or counts why not.
func (s *Server) handle(in *inbound) {
	defer s.contain()
	x, why := s.open(in)
	if why == dropNone {
		s.m.received[typeIndex(x.req.Type)].Inc()
		why = s.dispatch(x)
	}
	if why != dropNone {
		s.m.dropped[why].Inc()
	}
}

// contain keeps a bug in the handling of one packet from ending the process.
func (s *Server) contain() {
	if p := recover(); p != nil {
		s.m.dropped[dropPanic].Inc()
		s.log.Error("panic while answering a packet", keyErr, fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

// open reads a packet.
func (s *Server) open(in *inbound) (*exchange, dropReason) {
	x := &in.x
	x.in, x.t, x.start, x.tries = in, s.deps.Table(), s.deps.Now(), 0
	x.scope, x.home, x.res, x.pool, x.member = nil, nil, nil, nil, nil
	if err := x.req.Parse(in.data); err != nil {
		return x, dropOf(err)
	}
	return x, dropNone
}

// dispatch finds out whose network the machine is in and what the lab has for it, and answers.
func (s *Server) dispatch(x *exchange) dropReason {
	if why := s.place(x); why != dropNone {
		return why
	}
	switch {
	case x.in.port == portPXE:
		return s.bootServer(x)
	case x.scope.network.DHCP == lab.DHCPProxy:
		return s.proxy(x)
	}
	switch x.req.Type {
	case wire.Discover:
		return s.discover(x)
	case wire.Request:
		return s.request(x)
	case wire.Inform:
		return s.inform(x)
	case wire.Decline:
		return s.decline(x)
	case wire.Release:
		return s.release(x)
	}
	return dropUnknownType
}

func (s *Server) place(x *exchange) dropReason {
	r, in := &x.req, x.in
	x.scope = x.t.locate(r, in.iface)
	if x.scope == nil {
		return dropNoNetwork
	}
	x.home = x.t.home(x.scope, in.iface, in.local)
	x.server = x.home.Address
	if r.ServerIDOverride.IsValid() {
		x.server = r.ServerIDOverride
	}
	if res := x.t.reservations[r.MAC]; res != nil && res.scope == x.scope {
		x.res = res
	} else {
		x.pool, x.member = s.poolFor(x.scope, r), x.t.memberOf(r.MAC, x.scope)
	}
	switch {
	case x.scope.network.DHCP == lab.DHCPOff || x.t.ignores(r.MAC):
		return dropOff
	case !x.server.IsValid():
		return dropNoServer
	}
	return dropNone
}

// poolFor returns the pool of a machine without a reservation: the one that its lease is from, as long as that may keep it,
// else the one that what it says of itself leads to.
func (s *Server) poolFor(sc *scope, r *wire.Packet) *Pool {
	if len(sc.pools) == 0 {
		return nil
	}
	who := askerOf(r)
	if l, ok := s.deps.Book.Bound(r.MAC, sc.network.Subnet); ok && l.Live(s.deps.Now()) {
		if held := sc.poolHolding(l.Addr); held != nil && held.keeps(&who) {
			return held
		}
	}
	return sc.poolFor(&who)
}

// askerOf is what pools are chosen by.
func askerOf(r *wire.Packet) lab.Asker {
	return lab.Asker{
		MAC: r.MAC, Arch: uint16(r.Arch), HasArch: r.HasArch, VendorClass: r.VendorClass, UserClass: r.UserClass,
		CircuitID: r.CircuitID, RemoteID: r.RemoteID,
	}
}

// asker names who asks: the stage, and the architecture where firmware tells it.
func (x *exchange) asker() string {
	if x.req.HasArch {
		return fmt.Sprintf("%s arch %d", x.req.Stage, x.req.Arch)
	}
	return string(x.req.Stage)
}

// whyNobody says why this machine has no address in this network.
func (x *exchange) whyNobody() string {
	if r := x.t.reservations[x.req.MAC]; r != nil && r.scope != x.scope {
		return fmt.Sprintf("reservation is in network %s, the machine is in %s", r.scope.network.Name, x.scope.network.Name)
	}
	return "no reservation, and no pool of network " + x.scope.network.Name + " takes this machine"
}

func (s *Server) record(x *exchange, e event.Event) {
	e.MAC, e.Client = x.req.MAC, event.Client(x.req.Stage)
	if h := x.host(); h != nil {
		e.Host = h.Name
	}
	s.deps.Events.Record(e)
}

func (s *Server) refuse(x *exchange, why func() string) dropReason {
	if s.quiet.first(event.DHCPRefused, x.req.MAC) {
		s.record(x, event.Event{Kind: event.DHCPRefused, Addr: x.req.Requested, Detail: x.asker(), Err: why()})
	}
	return dropRefused
}
