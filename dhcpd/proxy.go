package dhcpd

import (
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/boot/bootloop"
	"github.com/bootlab/bootlab/internal/lab"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// proxy answers beside another DHCP server: boot information without an address, to firmware and iPXE only.
func (s *Server) proxy(x *exchange) dropReason {
	if x.req.Type != wire.Discover {
		return dropNotBoot
	}
	if why := s.sendBootInfo(x, wire.Offer); why != dropNone {
		if x.req.Client == wire.ClientOS {
			s.deps.Loops.Release(x.req.MAC)
		}
		return why
	}
	s.watchBootLoop(x, &x.reply)
	return dropNone
}

// pxeBootServer answers on port 4011, where this server gives the addresses too: some firmware asks there although the
// offer said all.
func (s *Server) pxeBootServer(x *exchange) dropReason {
	if x.req.Type != wire.Request && x.req.Type != wire.Inform {
		return dropNotBoot
	}
	return s.sendBootInfo(x, wire.Ack)
}

func (s *Server) sendBootInfo(x *exchange, kind wire.MessageType) dropReason {
	info := s.bootInfo(x, x.proxyMachine())
	held := x.req.Client == wire.ClientIPXE && info.file == "" && s.deps.Loops.Remedy(x.req.MAC) != bootloop.None
	if info == (bootInfo{}) || held {
		return dropNotBoot
	}
	if x.req.Client == wire.ClientIPXE { // which takes a proxy's boot file only from a PXE server
		info.vendorClass, info.vendorInfo, info.ipxe = vendorPXE, useBootFile, info.ipxe+firstIPXE
	}
	a := &x.reply
	*a = wire.Reply{Req: &x.req, Type: kind, ServerID: x.serverID}
	info.addTo(a)
	s.send(x, a)
	s.record(x, event.Event{Kind: event.DHCPProxyOffer, Detail: x.replyDetail(a)})
	return dropNone
}

// proxyMachine returns the machine, whose address another server chose, or nil.
func (x *exchange) proxyMachine() *lab.Host {
	addr := x.req.CIAddr
	if x.pool != nil && !x.pool.Range.Contains(addr) {
		addr = x.pool.Range.First
	}
	return x.machine(addr)
}
