package dhcpd

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

const (
	portServer = segment.PortServer
	portClient = segment.PortClient
	portPXE    = segment.PortPXE // of the PXE boot server, asked a second time, by unicast
)

// An exchange is one packet of a client, what the lab has for it, and its reply. A receive loop uses one exchange for packet
// after packet; a reply that has to wait keeps a copy.
type exchange struct {
	iface string
	port  uint16
	from  netip.AddrPort
	local netip.Addr      // the address of this machine that the packet was sent to; of a broadcast, the interface's
	sock  *segment.Socket // nil in tests
	out   sender

	t     *Table
	start time.Time
	req   wire.Packet
	reply wire.Reply

	scope    *scope
	serverID netip.Addr // option 54
	host     *host      // of the lab file, in this network; nil: none
	pool     *pool      // that the address comes from; nil: the host has a reservation, or no pool takes the machine
	tries    int        // addresses that a probe found in use
}

// A sender takes replies: a segment.Sender, or a test's.
type sender interface {
	// Frame returns an empty message behind its headroom, to be appended to and handed to Queue.
	Frame() []byte
	Queue(s *segment.Socket, d segment.Dest, frame []byte)
}

// keep returns a copy that outlives the receive loop's buffers and replies through out.
func (x *exchange) keep(out sender) *exchange {
	kept := *x
	x.req.CopyTo(&kept.req, nil)
	kept.out = out
	return &kept
}

// handle answers one packet, or counts why it got no answer.
func (s *Server) handle(x *exchange, data []byte) {
	defer s.contain()
	why := s.parse(x, data)
	if why == dropNone {
		s.m.received[typeIndex(x.req.Type)].Inc()
		why = s.match(x)
	}
	if why == dropNone {
		why = s.dispatch(x)
	}
	s.dropped(why)
}

// contain keeps a bug in the handling of one packet from ending the process.
func (s *Server) contain() {
	if p := recover(); p != nil {
		s.m.dropped[dropPanic].Inc()
		s.panics.Note(p)
	}
}

// dropped counts a packet that got no answer.
func (s *Server) dropped(why dropReason) {
	if why != dropNone {
		s.m.dropped[why].Inc()
	}
}

// parse reads a packet and takes the snapshot that it is answered from.
func (s *Server) parse(x *exchange, data []byte) dropReason {
	x.t, x.start, x.tries = s.deps.Table(), s.deps.Now(), 0
	x.scope, x.host, x.pool = nil, nil, nil
	switch err := x.req.Parse(data); err {
	case nil:
		if !x.mayReply() {
			return dropMalformed
		}
		return dropNone
	case wire.ErrNotRequest:
		return dropNotRequest
	case wire.ErrHardware:
		return dropHardware
	case wire.ErrHops:
		return dropHops
	}
	return dropMalformed
}

// match finds the client's network, and its host or pool in it.
func (s *Server) match(x *exchange) dropReason {
	r := &x.req
	if x.scope = x.t.locate(r, x.iface); x.scope == nil {
		return s.refuseNoNetwork(x)
	}
	x.serverID = x.scope.network.Address
	if r.ServerIDOverride.IsValid() {
		x.serverID = r.ServerIDOverride
	}
	h := x.t.hosts[r.MAC]
	switch {
	case !x.scope.network.Answers(h.ofLab()):
		return dropOff
	case !x.serverID.IsValid():
		return dropNoServer
	}
	if h != nil && h.scope == x.scope {
		x.host = h
	}
	if !x.host.reserved() {
		x.pool = s.poolFor(x.scope, r)
	}
	return dropNone
}

// poolFor returns the pool of a machine without a reservation: the one that holds its lease while it admits the machine,
// else the one that matches what the client says of itself.
func (s *Server) poolFor(sc *scope, r *wire.Packet) *pool {
	if len(sc.pools) == 0 {
		return nil
	}
	if l, ok := s.deps.Book.Bound(r.MAC, sc.network.Subnet); ok && l.Live(s.deps.Now()) {
		if p := sc.poolHolding(l.Addr); p != nil && p.keeps(r) {
			return p
		}
	}
	c := traitsOf(r)
	return sc.poolFor(&c)
}

// traitsOf returns what pools are chosen by.
func traitsOf(r *wire.Packet) lab.Client {
	return lab.Client{
		MAC: r.MAC, Arch: r.Arch, HasArch: r.HasArch, VendorClass: r.VendorClass, UserClass: r.UserClass,
		CircuitID: r.CircuitID, RemoteID: r.RemoteID,
	}
}

// dispatch hands a packet to the handler of its message type.
func (s *Server) dispatch(x *exchange) dropReason {
	switch {
	case x.port == portPXE:
		return s.pxeBootServer(x)
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

// noAddress says why the machine has no address in this network.
func (x *exchange) noAddress() (event.Reason, string) {
	if h := x.t.hosts[x.req.MAC]; h.reserved() && h.scope != x.scope {
		return event.OtherNetwork, fmt.Sprintf("reservation is in network %s, the machine is in %s", h.scope.network.Name, x.scope.network.Name)
	}
	return event.NoReservation, "no reservation, and no pool of network " + x.scope.network.Name + " takes this machine"
}

// clientDetail is the client and its architecture, if it sends one: "pxe arch 7".
func (x *exchange) clientDetail() string {
	if x.req.HasArch {
		return fmt.Sprintf("%s arch %d", x.req.Client, x.req.Arch)
	}
	return string(x.req.Client)
}

func (s *Server) record(x *exchange, e event.Event) {
	e.MAC, e.Client = x.req.MAC, event.Client(x.req.Client)
	if x.host != nil {
		e.Host = x.host.Name
	}
	if x.scope != nil {
		e.Network = x.scope.network.Name
	}
	s.deps.Events.Record(e)
}

// refuseNoAddress refuses a machine that has no address in this network.
func (s *Server) refuseNoAddress(x *exchange) dropReason {
	reason, why := x.noAddress()
	return s.refuse(x, reason, why)
}

// noNetworkEvery is how often packets in no network are logged: a segment that the lab does not serve may be full of machines.
const noNetworkEvery = time.Hour

// refuseNoNetwork refuses a machine that is in no network of the lab. Only for hosts that is an event.
func (s *Server) refuseNoNetwork(x *exchange) dropReason {
	r, h := &x.req, x.t.hosts[x.req.MAC]
	if r.Type != wire.Discover || h != nil && h.Ignored {
		return dropNoNetwork
	}
	why := "it came by broadcast, and no network has this interface"
	if r.LinkAddr.IsValid() {
		why = "the relay's address " + r.LinkAddr.String() + " is in no network"
	}
	if h != nil {
		s.record(x, event.Event{Kind: event.DHCPRefused, Host: h.Name, Detail: x.clientDetail(), Err: why, Reason: event.NoNetwork})
		return dropNoNetwork
	}
	s.outside.Do(func() {
		s.log.Warn("DHCPDISCOVER in no network of the lab; more within an hour are only counted", keyMAC, r.MAC, keyErr, why)
	})
	return dropNoNetwork
}

// refuse records that the machine gets no address. The client is not answered.
func (s *Server) refuse(x *exchange, reason event.Reason, why string) dropReason {
	s.record(x, event.Event{Kind: event.DHCPRefused, Addr: x.req.Requested, Detail: x.clientDetail(), Err: why, Reason: reason})
	return dropRefused
}
