package dhcpd

import (
	"fmt"
	"net/netip"

	"github.com/bootlab/bootlab/dhcpd/segment"
	"github.com/bootlab/bootlab/internal/observe/event"
)

// isOurServer reports whether a server identifier is one of ours, which a relay may bring back to the segment.
func (s *Server) isOurServer(id netip.Addr) bool { return s.deps.Table().ownAddress(id) }

// rogue reports another DHCP server. Where this one only adds boot information (dhcp: proxy), the other is the rule.
func (s *Server) rogue(r segment.Rogue) {
	if !s.deps.Table().servesOn(r.Interface) {
		return
	}
	s.m.rogue.Add(float64(1 + r.Missed))
	server := r.ServerID
	if !server.IsValid() {
		server = r.SourceIP
	}
	e := event.Event{
		Kind: event.DHCPRogue, MAC: r.ClientMAC, Addr: server, Detail: fmt.Sprintf("%s (%s) on %s", server, r.SourceMAC, r.Interface),
		Err: fmt.Sprintf("another DHCP server sent %s", r.Kind),
	}
	if r.YIAddr.IsValid() {
		e.Err += " of " + r.YIAddr.String()
	}
	s.deps.Events.Record(e)
}
