package dhcpd

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/bootlab/bootlab/internal/lab"
)

const (
	// otherServerFor is how long another server is reported after its last reply: it answers when a machine asks, and a lab may be quiet.
	otherServerFor  = time.Hour
	maxOtherServers = 64 // anybody can send replies with made-up addresses
)

// An OtherServer is another DHCP server that answers where this one gives the addresses.
type OtherServer struct {
	Interface   string
	Addr        netip.Addr
	MAC         lab.MAC   // of the server, or of a relay
	Since, Last time.Time // of its first and its last reply
}

// A replier is what distinguishes another server. Several may use one address.
type replier struct {
	iface string
	addr  netip.Addr
	mac   lab.MAC
}

// OtherServers returns those that answered within the last hour, sorted by interface and address.
func (s *Server) OtherServers() (all []OtherServer) {
	for by, x := range s.others.fresh(s.deps.Now()) {
		all = append(all, OtherServer{by.iface, by.addr, by.mac, x.since, x.last})
	}
	slices.SortFunc(all, func(x, y OtherServer) int {
		return cmp.Or(cmp.Compare(x.Interface, y.Interface), x.Addr.Compare(y.Addr), x.MAC.Compare(y.MAC))
	})
	return all
}
