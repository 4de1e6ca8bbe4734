package dhcpd

import (
	"github.com/bootlab/bootlab/dhcpd/wire"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// proxy answers beside another DHCP server: boot information without an address, to firmware and iPXE only.
func (s *Server) proxy(x *exchange) dropReason {
	if x.req.Type != wire.Discover {
		return dropNotBoot
	}
	if why := s.boot(x, wire.Offer); why != dropNone {
		if x.req.Stage == wire.StageOS {
			s.deps.Circles.Release(x.req.MAC)
		}
		return why
	}
	s.watchCircle(x, &x.reply)
	return dropNone
}

// bootServer answers on port 4011, in server mode too: some firmware asks there although the offer said all.
func (s *Server) bootServer(x *exchange) dropReason {
	if x.req.Type != wire.Request && x.req.Type != wire.Inform {
		return dropNotBoot
	}
	return s.boot(x, wire.Ack)
}

func (s *Server) boot(x *exchange, kind wire.MessageType) dropReason {
	info := s.bootOf(x, x.proxyMachine())
	if info == (bootInfo{}) || x.req.Stage == wire.StageIPXE && s.deps.Circles.Unscripted(x.req.MAC) {
		return dropNotBoot
	}
	if x.req.Stage == wire.StageIPXE { // which takes a proxy's word only from a PXE server
		info.vendor, info.pxe, info.ipxe = vendorPXE, useBootFile, info.ipxe+firstIPXE
	}
	a := &x.reply
	*a = wire.Reply{Req: &x.req, Type: kind, ServerID: x.server}
	info.tell(a)
	s.send(x, a)
	s.record(x, event.Event{Kind: event.DHCPProxyOffer, Detail: x.told(a)})
	return dropNone
}
