package dhcpd

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
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

// OtherServers returns those that answered within the last hour, sorted by interface and address.
func (s *Server) OtherServers() []OtherServer { return s.others.fresh(s.deps.Now()) }

type otherServers struct {
	mu   sync.Mutex
	seen []OtherServer
}

// note notes a reply.
func (o *otherServers) note(iface string, addr netip.Addr, mac lab.MAC, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen = slices.DeleteFunc(o.seen, func(x OtherServer) bool { return now.Sub(x.Last) >= otherServerFor })
	i := slices.IndexFunc(o.seen, func(x OtherServer) bool { return x.Interface == iface && x.Addr == addr && x.MAC == mac })
	switch {
	case i >= 0:
		o.seen[i].Last = now
	case len(o.seen) < maxOtherServers:
		o.seen = append(o.seen, OtherServer{iface, addr, mac, now, now})
	}
}

func (o *otherServers) fresh(now time.Time) (all []OtherServer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, x := range o.seen {
		if now.Sub(x.Last) < otherServerFor {
			all = append(all, x)
		}
	}
	slices.SortFunc(all, func(x, y OtherServer) int {
		return cmp.Or(cmp.Compare(x.Interface, y.Interface), x.Addr.Compare(y.Addr))
	})
	return all
}
