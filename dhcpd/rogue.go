package dhcpd

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

const (
	// rogueFor is how long a rogue server is reported after its last reply: it answers when a machine asks, and a lab may be quiet.
	rogueFor  = time.Hour
	maxRogues = 64 // anybody can send replies with made-up addresses
)

// A RogueServer is another DHCP server that answers where this one gives the addresses.
type RogueServer struct {
	Interface   string
	Addr        netip.Addr
	MAC         lab.MAC   // of the server, or of a relay
	Since, Last time.Time // of its first and its last reply
}

// A rogueKey is what distinguishes one rogue server from another. Several may use one address.
type rogueKey struct {
	iface string
	addr  netip.Addr
	mac   lab.MAC
}

// RogueServers returns those that answered within the last hour, sorted by interface and address.
func (s *Server) RogueServers() (all []RogueServer) {
	for by, x := range s.rogues.fresh(s.deps.Now()) {
		all = append(all, RogueServer{by.iface, by.addr, by.mac, x.since, x.last})
	}
	slices.SortFunc(all, func(x, y RogueServer) int {
		return cmp.Or(cmp.Compare(x.Interface, y.Interface), x.Addr.Compare(y.Addr), x.MAC.Compare(y.MAC))
	})
	return all
}
