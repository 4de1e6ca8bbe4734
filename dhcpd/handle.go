package dhcpd

import (
	"errors"
	"fmt"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	"bootlab/dhcpd/segment"
	"bootlab/internal/event"
	"bootlab/internal/lab"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

const (
	portServer = segment.PortServer
	portClient = segment.PortClient
	portPXE    = segment.PortPXE // the boot server asked a second time, by unicast
)

// An inbound is one packet and where it came from. The packet loop reuses it.
type inbound struct {
	iface string
	port  uint16
	from  netip.AddrPort
	local netip.Addr // where it was sent to; known on the socket for any interface only
	data  []byte
	sock  *segment.Socket // nil in tests
	out   outbox
}

// An outbox takes replies: segment.Outbox, or a test's.
type outbox interface {
	// Frame returns an empty message behind its headroom, to be appended to and handed to Queue.
	Frame() []byte
	Queue(s *segment.Socket, d segment.Dest, frame []byte)
}

// An exchange is one request and everything it is answered from.
type exchange struct {
	t      *Table
	sock   *segment.Socket
	from   netip.AddrPort
	port   uint16
	start  time.Time
	req    *request
	scope  *scope
	home   *lab.Network // the scope's network, with our address as seen from there
	server netip.Addr   // what we call ourselves in option 54
	res    *Reservation // in this network; nil: none
	pool   *Pool        // for a machine without a reservation; nil: none
	tries  int          // addresses that a probe found in use
}

// handle answers one packet, or counts why not.
func (s *Server) handle(in *inbound) {
	defer s.contain()
	t := s.deps.Table()
	r, why := parse(in.data)
	if why == dropNone {
		s.m.received[typeIndex(r.kind)].Inc()
		why = s.dispatch(t, in, r)
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

func (s *Server) dispatch(t *Table, in *inbound, r *request) dropReason {
	scope := t.locate(r, in.iface)
	if scope == nil {
		return dropNoNetwork
	}
	home := t.home(scope, in.iface, in.local)
	x := &exchange{
		t: t, sock: in.sock, from: in.from, port: in.port, start: s.deps.Now(), req: r, scope: scope, home: home,
		server: home.Address,
	}
	if r.override.IsValid() {
		x.server = r.override
	}
	if res := t.reservations[r.mac]; res != nil && res.scope == scope {
		x.res = res
	} else {
		x.pool = s.poolFor(scope, r)
	}
	switch {
	case scope.network.DHCP == lab.DHCPOff:
		return dropOff
	case !x.server.IsValid():
		return dropNoServer
	case in.port == portPXE:
		return s.bootServer(x, in.out)
	case scope.network.DHCP == lab.DHCPProxy:
		return s.proxy(x, in.out)
	}
	return s.serve(x, in.out)
}

// poolFor returns the pool of a machine without a reservation: the one that its lease is from, as long as that may keep it,
// else the one that what it says of itself leads to.
func (s *Server) poolFor(sc *scope, r *request) *Pool {
	who := r.asker()
	pool := sc.poolFor(&who)
	if l, ok := s.deps.Book.binding(r.mac, sc.network.Subnet); ok {
		if held := sc.poolHolding(l.Addr); held != nil && held.keeps(&who) {
			return held
		}
	}
	return pool
}

func (s *Server) serve(x *exchange, out outbox) dropReason {
	switch x.req.kind {
	case dhcpv4.MessageTypeDiscover:
		return s.discover(x, out)
	case dhcpv4.MessageTypeRequest:
		return s.request(x, out)
	case dhcpv4.MessageTypeInform:
		return s.inform(x, out)
	case dhcpv4.MessageTypeDecline:
		return s.decline(x)
	case dhcpv4.MessageTypeRelease:
		return s.release(x)
	}
	return dropUnknownType
}

func (s *Server) discover(x *exchange, out outbox) dropReason {
	s.record(x, event.Event{Kind: event.DHCPDiscover, Detail: x.asker()})
	switch {
	case x.res != nil:
		return s.offer(x, x.res.Host.IP, out)
	case x.pool == nil:
		return s.refuse(x, x.whyNobody)
	}
	if why := s.admit(x); why != dropNone {
		return why
	}
	return s.offerFromPool(x, out)
}

func (s *Server) offer(x *exchange, addr netip.Addr, out outbox) dropReason {
	a := s.answer(x, dhcpv4.MessageTypeOffer, addr, s.leaseTime(x))
	s.send(x, a, out)
	s.record(x, event.Event{Kind: event.DHCPOffer, Addr: addr, Detail: x.told(a)})
	return dropNone
}

// request tells the four meanings of DHCPREQUEST apart (RFC 2131 section 4.3.2).
func (s *Server) request(x *exchange, out outbox) dropReason {
	r := x.req
	switch {
	case r.server.IsValid() && !s.isUs(x, r.server):
		return s.foreign(x)
	case r.server.IsValid(): // SELECTING
		addr := r.requested
		if !addr.IsValid() {
			addr, _ = s.deps.Book.offerOf(r.mac) // a client that names the server but not the address
		}
		if !addr.IsValid() {
			addr = r.ciaddr // renewing, with an option too many
		}
		return s.grant(x, out, addr, true)
	case r.ciaddr.IsValid(): // RENEWING, REBINDING
		return s.grant(x, out, r.ciaddr, s.knows(x, r.ciaddr))
	case r.requested.IsValid(): // INIT-REBOOT
		return s.grant(x, out, r.requested, s.knows(x, r.requested))
	}
	return dropMalformed
}

func (s *Server) isUs(x *exchange, a netip.Addr) bool { return a == x.server || x.t.ownAddress(a) }

// knows reports whether the address was given to this machine by us, whatever the lab says now.
func (s *Server) knows(x *exchange, a netip.Addr) bool {
	_, ok := s.deps.Book.current(x.req.mac, a)
	return ok
}

// grant leases addr to the machine, or refuses it. ours says that the client speaks of an address that we gave or
// offered; of somebody else's client without a place in the lab we say nothing (RFC 2131 section 4.3.2), unless it is in
// the wrong network, where no server could let it be.
func (s *Server) grant(x *exchange, out outbox, addr netip.Addr, ours bool) dropReason {
	mac := x.req.mac
	switch {
	case !x.scope.network.Subnet.Contains(addr):
		return s.nak(x, out, addr, "address is not of network "+x.scope.network.Name)
	case x.res != nil && addr != x.res.Host.IP:
		return s.nak(x, out, addr, "address reserved for this machine is "+x.res.Host.IP.String())
	case x.res == nil && x.pool == nil && !ours:
		return s.refuse(x, x.whyNobody)
	case x.res == nil && x.pool == nil:
		return s.nak(x, out, addr, x.whyNobody())
	case x.res == nil && !s.deps.Book.mayHave(mac, x.t, x.pool, addr):
		return s.nak(x, out, addr, "address is not free for this machine")
	}
	want := s.leaseTime(x)
	if left, ok := s.deps.Book.lazy(mac, addr, want); ok {
		s.deps.Book.withdraw(mac)
		return s.ack(x, out, addr, left)
	}
	return s.enqueue(&job{change: x.lease(addr, Active, want), finish: func(out outbox, err error) {
		s.granted(x, out, addr, want, err)
	}})
}

// granted answers once the lease is durable, or stays silent. Only one who lost the address to another machine is told.
func (s *Server) granted(x *exchange, out outbox, addr netip.Addr, lease time.Duration, err error) {
	why := dropCommit
	switch {
	case err == nil:
		why = s.ack(x, out, addr, lease)
	case errors.Is(err, errTaken):
		why = s.nak(x, out, addr, "address was leased to another machine")
	}
	if why != dropNone {
		s.m.dropped[why].Inc()
	}
}

func (s *Server) ack(x *exchange, out outbox, addr netip.Addr, lease time.Duration) dropReason {
	a := s.answer(x, dhcpv4.MessageTypeAck, addr, lease)
	s.send(x, a, out)
	s.record(x, event.Event{Kind: event.DHCPAck, Addr: addr, Detail: x.told(a), Dur: s.deps.Now().Sub(x.start)})
	s.watchLoop(x, a)
	return dropNone
}

// watchLoop finds machines that never come further than iPXE. Their operating system's first word ends the suspicion.
func (s *Server) watchLoop(x *exchange, a *answer) {
	switch {
	case x.req.stage == StageOS:
		s.loops.progress(x.req.mac)
	case x.req.stage == StageIPXE && a.boot.file != "" && s.loops.round(x.req.mac, x.req.xid):
		s.record(x, event.Event{Kind: event.DHCPLoop, Addr: a.yiaddr, Detail: x.told(a), Err: fmt.Sprintf(
			"%d times within %s; no boot file for %s: look at its script and at what the script loads", loopCount, loopWindow, loopHold)})
	}
}

func (s *Server) nak(x *exchange, out outbox, addr netip.Addr, message string) dropReason {
	s.deps.Book.withdraw(x.req.mac)
	a := &answer{req: x.req, kind: dhcpv4.MessageTypeNak, server: x.server, message: message}
	s.send(x, a, out)
	s.record(x, event.Event{Kind: event.DHCPNak, Addr: addr, Err: message})
	return dropNone
}

// inform tells a machine that has its address from elsewhere everything but an address (RFC 2131 section 4.3.5).
func (s *Server) inform(x *exchange, out outbox) dropReason {
	s.send(x, s.answer(x, dhcpv4.MessageTypeAck, netip.Addr{}, 0), out)
	return dropNone
}

// decline takes an address out of use for a while. A reservation stays: whoever sits on a reserved address is found by
// the operator, whom the event calls, and not by giving the machine another one.
func (s *Server) decline(x *exchange) dropReason {
	r := x.req
	offered, _ := s.deps.Book.offerOf(r.mac)
	if (r.server.IsValid() && !s.isUs(x, r.server)) || (!s.knows(x, r.requested) && offered != r.requested) {
		return dropNotOurs
	}
	e := event.Event{Kind: event.DHCPDecline, Addr: r.requested, Err: "another machine uses this address"}
	if x.res != nil {
		e.Err += ", which is reserved; it stays reserved"
		s.record(x, e)
		return dropNone
	}
	s.record(x, e)
	s.deps.Book.withdraw(r.mac)
	return s.enqueue(&job{change: x.lease(r.requested, Declined, quarantine), finish: func(outbox, error) {}})
}

func (s *Server) release(x *exchange) dropReason {
	r := x.req
	if (r.server.IsValid() && !s.isUs(x, r.server)) || !s.knows(x, r.ciaddr) {
		return dropNotOurs
	}
	return s.enqueue(&job{change: x.lease(r.ciaddr, Released, 0), finish: func(_ outbox, err error) {
		if err == nil {
			s.record(x, event.Event{Kind: event.DHCPRelease, Addr: r.ciaddr})
		}
	}})
}

// foreign: the client takes another server's offer. Ours is free again, and people should know that there are two.
func (s *Server) foreign(x *exchange) dropReason {
	s.deps.Book.withdraw(x.req.mac)
	if s.quiet.first(event.DHCPForeign, x.req.mac) {
		s.record(x, event.Event{Kind: event.DHCPForeign, Addr: x.req.requested, Detail: x.req.server.String()})
	}
	return dropNotOurs
}

func (s *Server) refuse(x *exchange, why func() string) dropReason {
	if s.quiet.first(event.DHCPRefused, x.req.mac) {
		s.record(x, event.Event{Kind: event.DHCPRefused, Addr: x.req.requested, Detail: x.asker(), Err: why()})
	}
	return dropRefused
}

// admit rations newcomers, see ration.
func (s *Server) admit(x *exchange) dropReason {
	if s.deps.Book.remembers(x.req.mac, x.scope.network.Subnet) {
		return dropNone
	}
	line := x.req.line()
	if most := x.pool.pool.PerPort; most > 0 && line != "" && s.deps.Book.behind(x.pool, line) >= most {
		return s.refuse(x, func() string {
			return fmt.Sprintf("machines behind this relay port (%s) have %d addresses of pool %s already, and it allows no more (per_port)",
				line, most, x.pool.pool.Name)
		})
	}
	free := s.deps.Book.freeSoon(x.t, x.pool)
	if free == 0 { // then the book says who has them
		return dropNone
	}
	if s.ration.allow(x.scope.network.Name, line, free, x.pool.usable) {
		s.deps.Book.spend(x.pool)
		return dropNone
	}
	if s.quiet.first(event.DHCPLimited, x.req.mac) {
		s.record(x, event.Event{Kind: event.DHCPLimited, Detail: x.asker(), Err: fmt.Sprintf(
			"%d of %d addresses of pool %s are left, and too many newcomers ask for them at once; it may ask again",
			free, x.pool.usable, x.pool.pool.Name)})
	}
	return dropLimited
}

// maxNamed is how many holders of a full pool are named.
const maxNamed = 6

// whyFull names those who hold a pool, since somebody has to decide who does without.
func (s *Server) whyFull(x *exchange) string {
	var b strings.Builder
	fmt.Fprintf(&b, "pool %s of network %s is full", x.pool.pool.Name, x.scope.network.Name)
	holders := s.deps.Book.holders(x.pool)
	for i, l := range holders {
		switch {
		case i == 0:
			fmt.Fprintf(&b, ": its %d addresses are held by ", x.pool.usable)
		case i == maxNamed:
			fmt.Fprintf(&b, " and %d more", len(holders)-i)
			return b.String()
		default:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (%s", l.MAC, l.Addr)
		if l.Hostname != "" {
			fmt.Fprintf(&b, ", %s", l.Hostname)
		}
		fmt.Fprintf(&b, ", %s for %s)", l.State, l.Expiry.Sub(x.start).Round(time.Second))
	}
	return b.String()
}

// proxy answers beside another DHCP server: boot information without an address, to firmware and iPXE only.
func (s *Server) proxy(x *exchange, out outbox) dropReason {
	if x.req.kind != dhcpv4.MessageTypeDiscover {
		return dropNotBoot
	}
	return s.boot(x, out, dhcpv4.MessageTypeOffer, x.proxyMachine())
}

// bootServer answers on port 4011, in server mode too: some firmware asks there although the offer said all.
func (s *Server) bootServer(x *exchange, out outbox) dropReason {
	if x.req.kind != dhcpv4.MessageTypeRequest && x.req.kind != dhcpv4.MessageTypeInform {
		return dropNotBoot
	}
	return s.boot(x, out, dhcpv4.MessageTypeAck, x.proxyMachine())
}

func (s *Server) boot(x *exchange, out outbox, kind dhcpv4.MessageType, host *lab.Host) dropReason {
	info := bootFor(x.req, x.home, host)
	if info == (bootInfo{}) {
		return dropNotBoot
	}
	if x.req.stage == StageIPXE { // which takes a proxy's word only from a PXE server
		info.vendor, info.pxe = vendorPXE, useBootFile
	}
	a := &answer{req: x.req, kind: kind, server: x.server, boot: info}
	s.send(x, a, out)
	s.record(x, event.Event{Kind: event.DHCPProxyOffer, Detail: x.told(a)})
	return dropNone
}

// proxyMachine returns the machine, whose address another server chose.
func (x *exchange) proxyMachine() *lab.Host {
	switch {
	case x.res != nil:
		return x.res.Host
	case x.pool != nil && x.req.ciaddr.IsValid() && x.pool.contains(x.req.ciaddr):
		return x.t.machineOf(x.req.mac, x.req.ciaddr)
	case x.pool != nil:
		return x.t.machineOf(x.req.mac, x.pool.pool.Range.First)
	}
	return nil
}

// answer fills an offer or acknowledgement with everything this machine is told.
func (s *Server) answer(x *exchange, kind dhcpv4.MessageType, addr netip.Addr, lease time.Duration) *answer {
	a := &answer{
		req: x.req, kind: kind, server: x.server, yiaddr: addr, lease: lease, options: x.scope.options, domain: x.t.domain,
	}
	switch {
	case x.res != nil:
		a.options, a.name, a.domain = x.res.options, x.res.Host.Name, x.res.Host.Domain
		a.boot = bootFor(x.req, x.home, x.res.Host)
	case x.pool != nil:
		a.options = x.pool.options
		if x.pool.pool.Profile != nil && x.req.stage != StageOS {
			a.boot = bootFor(x.req, x.home, x.t.machineOf(x.req.mac, addr))
		}
	}
	if x.req.stage == StageIPXE && s.loops.held(x.req.mac) {
		a.boot = bootInfo{ipxe: noPXEDHCP}
	}
	return a
}

func (s *Server) send(x *exchange, a *answer, out outbox) {
	out.Queue(x.sock, x.destination(a), a.append(out.Frame()))
	s.m.sent[typeIndex(a.kind)].Inc()
	if a.dropped > 0 {
		s.m.truncated.Add(float64(a.dropped))
	}
}

// destination follows RFC 2131 section 4.1.
func (x *exchange) destination(a *answer) segment.Dest {
	r := x.req
	d := segment.Dest{Source: x.home.Address, Port: x.port}
	if x.port == portPXE && x.from.Addr().IsValid() && !x.from.Addr().IsUnspecified() {
		d.To = x.from
		return d
	}
	switch {
	case r.giaddr.IsValid():
		d.To = netip.AddrPortFrom(r.giaddr, portServer)
		if r.relayPort && x.from.IsValid() {
			d.To = netip.AddrPortFrom(r.giaddr, x.from.Port())
		}
	case a.kind == dhcpv4.MessageTypeNak:
		d.Broadcast()
	case r.ciaddr.IsValid():
		d.To = netip.AddrPortFrom(r.ciaddr, portClient)
	case r.broadcast() || !a.yiaddr.IsValid():
		d.Broadcast()
	default: // the client has no address yet, so nobody could find it by ARP
		d.To, d.MAC = netip.AddrPortFrom(a.yiaddr, portClient), r.mac
	}
	return d
}

func (s *Server) leaseTime(x *exchange) time.Duration {
	switch {
	case x.res != nil:
		return x.res.lease
	case x.pool != nil && s.deps.Book.remembers(x.req.mac, x.scope.network.Subnet):
		return x.pool.lease
	case x.pool != nil:
		return newcomerLease(x.pool.lease, s.deps.Book.freeSoon(x.t, x.pool), x.pool.usable)
	}
	return x.scope.lease
}

// lease describes what is to be stored. The store keeps whole seconds.
func (x *exchange) lease(addr netip.Addr, state State, d time.Duration) *change {
	start := x.start.Truncate(time.Second)
	return &change{
		subnet: x.scope.network.Subnet, reserved: x.res != nil,
		lease: Lease{
			Addr: addr, MAC: x.req.mac, State: state, Start: start, Expiry: start.Add(d), Hostname: x.req.hostname,
			ClientID: x.req.clientID, Line: x.req.line(),
		},
	}
}

// whyNobody says why this machine has no address in this network.
func (x *exchange) whyNobody() string {
	if r := x.t.reservations[x.req.mac]; r != nil && r.scope != x.scope {
		return fmt.Sprintf("reservation is in network %s, the machine is in %s", r.scope.network.Name, x.scope.network.Name)
	}
	return "no reservation, and no pool of network " + x.scope.network.Name + " takes this machine"
}

// asker names who asks: the stage, and the architecture where firmware tells it.
func (x *exchange) asker() string {
	if x.req.hasArch {
		return fmt.Sprintf("%s arch %d", x.req.stage, x.req.arch)
	}
	return string(x.req.stage)
}

// told is the stage and the boot file, if any: "os", "pxe boot/52-54-…/ipxe.efi".
func (x *exchange) told(a *answer) string {
	if a.boot.file == "" {
		return string(x.req.stage)
	}
	return string(x.req.stage) + " " + a.boot.file
}

func (s *Server) record(x *exchange, e event.Event) {
	e.MAC = x.req.mac
	if x.res != nil {
		e.Host = x.res.Host.Name
	}
	s.deps.Events.Record(e)
}
